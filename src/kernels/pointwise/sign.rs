//! Operations on signs: on the sign bit of a floating-point number, whose other bits stay, and arithmetic on
//! an integer.

use std::marker::PhantomData;

use super::driver::{Impls, Kernel1, UnaryTable, numbers1};
use crate::kernels::BLOCK;
use crate::kernels::function::Function1;
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::types::dtype::DataType;
use crate::types::function::{Params, Sign};
use crate::types::kind::Level;

/// The implementations to clear or flip the sign of numbers of a type, if there are any.
pub(crate) fn sign(level: Level, of: DataType, sign: Sign) -> Option<Impls<Kernel1>> {
    let table = match of {
        DataType::F8E5m2 | DataType::F8E4m3 => table::<u8>(sign),
        DataType::Bf16 | DataType::F16 => table::<u16>(sign),
        DataType::F32 => table::<u32>(sign),
        DataType::F64 => table::<u64>(sign),
        DataType::S32 => table::<i32>(sign),
        DataType::S64 => table::<i64>(sign),
        _ => return None,
    };
    Some(table[level.row()])
}

fn table<U: Signed>(sign: Sign) -> &'static UnaryTable {
    match sign {
        Sign::Clear => const { &numbers1::<Clear<U>, BLOCK>() },
        Sign::Flip => const { &numbers1::<Flip<U>, BLOCK>() },
    }
}

/// A signed integer, or an unsigned one that holds the bits of a floating-point number.
trait Signed: Pod {
    fn clear(self) -> Self;
    fn flip(self) -> Self;
}

macro_rules! bits {
    ($($U:ident)*) => {
        $(impl Signed for $U {
            #[inline(always)]
            fn clear(self) -> Self {
                self & ($U::MAX >> 1)
            }

            #[inline(always)]
            fn flip(self) -> Self {
                self ^ !($U::MAX >> 1)
            }
        })*
    };
}

bits!(u8 u16 u32 u64);

macro_rules! integers {
    ($($T:ident)*) => {
        $(impl Signed for $T {
            #[inline(always)]
            fn clear(self) -> Self {
                self.wrapping_abs()
            }

            #[inline(always)]
            fn flip(self) -> Self {
                self.wrapping_neg()
            }
        })*
    };
}

integers!(i32 i64);

struct Clear<U>(PhantomData<U>);
struct Flip<U>(PhantomData<U>);

impl<U: Signed> Function1 for Clear<U> {
    type X = U;
    type To = U;

    #[inline(always)]
    fn of<I: Isa>(x: U, _: Params) -> U {
        x.clear()
    }
}

impl<U: Signed> Function1 for Flip<U> {
    type X = U;
    type To = U;

    #[inline(always)]
    fn of<I: Isa>(x: U, _: Params) -> U {
        x.flip()
    }
}
