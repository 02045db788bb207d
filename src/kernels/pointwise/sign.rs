//! Operations on the sign bit of a floating-point number; its other bits stay.

use std::marker::PhantomData;

use super::driver::{Impls, Kernel1, UnaryTable, numbers1};
use crate::kernels::function::Function1;
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::kernels::{BLOCK, Width};
use crate::types::function::{Params, Sign};
use crate::types::kind::Level;

/// The implementations to clear or flip the highest bit of elements of a width.
pub(crate) fn sign(level: Level, width: Width, sign: Sign) -> Impls<Kernel1> {
    let table = match width {
        Width::W1 => table::<u8>(sign),
        Width::W2 => table::<u16>(sign),
        Width::W4 => table::<u32>(sign),
        Width::W8 => table::<u64>(sign),
    };
    table[level as usize]
}

fn table<U: Bits>(sign: Sign) -> &'static UnaryTable {
    match sign {
        Sign::Clear => const { &numbers1::<Clear<U>, BLOCK>() },
        Sign::Flip => const { &numbers1::<Flip<U>, BLOCK>() },
    }
}

/// An unsigned integer that holds the bits of a number.
trait Bits: Pod {
    fn clear(self) -> Self;
    fn flip(self) -> Self;
}

macro_rules! bits {
    ($($U:ident)*) => {
        $(impl Bits for $U {
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

struct Clear<U>(PhantomData<U>);
struct Flip<U>(PhantomData<U>);

impl<U: Bits> Function1 for Clear<U> {
    type X = U;
    type To = U;

    #[inline(always)]
    fn of<I: Isa>(x: U, _: Params) -> U {
        x.clear()
    }
}

impl<U: Bits> Function1 for Flip<U> {
    type X = U;
    type To = U;

    #[inline(always)]
    fn of<I: Isa>(x: U, _: Params) -> U {
        x.flip()
    }
}
