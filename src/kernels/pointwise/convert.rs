//! Conversions between types.
//!
//! Float to integer truncates and saturates; NaN gives 0. Integer to integer keeps the low bits. A conversion
//! to a float rounds once, to nearest, ties to even; a NaN becomes the positive quiet NaN without payload. A
//! boolean is 1 if its byte is not zero.
//!
//! Not every pair of types has a body: [`TwoStepConvert`] goes through a third type.

use std::marker::PhantomData;

use super::conversion::{RoundedToOdd, To};
use super::driver::{Impls, Kernel1, UnaryTable, numbers1, unary_table};
use super::half::{Bf16, F16};
use super::small::{E4m3, E5m2};
use crate::kernels::BLOCK;
use crate::kernels::floats::canonical;
use crate::kernels::function::Function1;
use crate::kernels::fused;
use crate::kernels::isa::Isa;
use crate::kernels::simd::Pod;
use crate::types::dtype::DataType;
use crate::types::function::Params;
use crate::types::kind::Level;

/// Block length of conversions that widen to the widest elements: more than the compiler unrolls before it
/// vectorises the loop; with less it would leave scalar code at level Avx2.
const WIDEST: usize = 128;

/// The implementations of a conversion from a number or boolean type to another number type. The 8-bit floats
/// convert from and to f32 alone, the 4-bit types not at all, and nothing converts to boolean.
pub(crate) fn convert(level: Level, from: DataType, to: DataType) -> Option<Impls<Kernel1>> {
    let table = match from {
        DataType::Boolean => from_integer::<BoolByte>(to),
        DataType::S8 => from_integer::<i8>(to),
        DataType::U8 => from_integer::<u8>(to),
        DataType::S16 => from_integer::<i16>(to),
        DataType::U16 => from_integer::<u16>(to),
        DataType::S32 => from_integer::<i32>(to),
        DataType::U32 => from_integer::<u32>(to),
        DataType::S64 => from_integer::<i64>(to),
        DataType::U64 => from_integer::<u64>(to),
        DataType::F16 => from_half::<F16>(from, to),
        DataType::Bf16 => from_half::<Bf16>(from, to),
        DataType::F8E5m2 if to == DataType::F32 => Some(impls::<Convert<E5m2, f32>>()),
        DataType::F8E4m3 if to == DataType::F32 => Some(impls::<Convert<E4m3, f32>>()),
        DataType::F32 => from_f32(to),
        DataType::F64 => from_f64(to),
        _ => None,
    };
    table.map(|table| table[level.row()])
}

/// The implementations that round an f32 to the nearest value of f16 or bf16 and keep it as an f32.
pub(crate) fn round_to(level: Level, to: DataType) -> Option<Impls<Kernel1>> {
    let table = match to {
        DataType::F16 => impls::<TwoStepConvert<f32, F16, f32>>(),
        DataType::Bf16 => impls::<TwoStepConvert<f32, Bf16, f32>>(),
        _ => return None,
    };
    Some(table[level.row()])
}

fn impls<F: Function1>() -> &'static UnaryTable {
    const {
        match (size_of::<F::X>(), size_of::<F::To>()) {
            (_, 8) => &numbers1::<F, WIDEST>(),
            _ => &numbers1::<F, BLOCK>(),
        }
    }
}

/// The implementations of the conversion to bytes, which ends or interrupts chains that quantise their
/// result.
fn quantising<T: Pod>() -> &'static UnaryTable
where
    f32: To<T>,
{
    const { &unary_table::<Convert<f32, T>, BLOCK>(fused::narrowing1::<Convert<f32, T>>()) }
}

/// Signed and unsigned integers of one width have the same low bits, so they share implementations.
fn from_integer<T>(to: DataType) -> Option<&'static UnaryTable>
where
    T: To<u8> + To<u16> + To<u32> + To<u64> + To<f32> + To<f64> + To<RoundedToOdd>,
{
    Some(match to {
        DataType::S8 | DataType::U8 => impls::<Convert<T, u8>>(),
        DataType::S16 | DataType::U16 => impls::<Convert<T, u16>>(),
        DataType::S32 | DataType::U32 => impls::<Convert<T, u32>>(),
        DataType::S64 | DataType::U64 => impls::<Convert<T, u64>>(),
        DataType::F16 => impls::<TwoStepConvert<T, RoundedToOdd, F16>>(),
        DataType::Bf16 => impls::<TwoStepConvert<T, RoundedToOdd, Bf16>>(),
        DataType::F32 => impls::<Convert<T, f32>>(),
        DataType::F64 => impls::<Convert<T, f64>>(),
        _ => return None,
    })
}

fn from_f32(to: DataType) -> Option<&'static UnaryTable> {
    Some(match to {
        DataType::S8 => quantising::<i8>(),
        DataType::U8 => quantising::<u8>(),
        DataType::S16 => impls::<Convert<f32, i16>>(),
        DataType::U16 => impls::<Convert<f32, u16>>(),
        DataType::S32 => impls::<Convert<f32, i32>>(),
        DataType::U32 => impls::<Convert<f32, u32>>(),
        DataType::S64 => impls::<Convert<f32, i64>>(),
        DataType::U64 => impls::<Convert<f32, u64>>(),
        DataType::F8E5m2 => impls::<Convert<f32, E5m2>>(),
        DataType::F8E4m3 => impls::<Convert<f32, E4m3>>(),
        DataType::F16 => impls::<Convert<f32, F16>>(),
        DataType::Bf16 => impls::<Convert<f32, Bf16>>(),
        DataType::F32 => impls::<Convert<u32, u32>>(),
        DataType::F64 => impls::<Convert<f32, f64>>(),
        _ => return None,
    })
}

fn from_f64(to: DataType) -> Option<&'static UnaryTable> {
    Some(match to {
        DataType::S8 => impls::<Convert<f64, i8>>(),
        DataType::U8 => impls::<Convert<f64, u8>>(),
        DataType::S16 => impls::<Convert<f64, i16>>(),
        DataType::U16 => impls::<Convert<f64, u16>>(),
        DataType::S32 => impls::<Convert<f64, i32>>(),
        DataType::U32 => impls::<Convert<f64, u32>>(),
        DataType::S64 => impls::<Convert<f64, i64>>(),
        DataType::U64 => impls::<Convert<f64, u64>>(),
        DataType::F16 => impls::<TwoStepConvert<f64, RoundedToOdd, F16>>(),
        DataType::Bf16 => impls::<TwoStepConvert<f64, RoundedToOdd, Bf16>>(),
        DataType::F32 => impls::<Convert<f64, f32>>(),
        DataType::F64 => impls::<Convert<u64, u64>>(),
        _ => return None,
    })
}

/// Every f16 and every bf16 is an f32, so conversions from them go through f32.
fn from_half<T: To<f32>>(from: DataType, to: DataType) -> Option<&'static UnaryTable> {
    Some(match to {
        _ if to == from => impls::<Convert<u16, u16>>(),
        DataType::S8 => impls::<TwoStepConvert<T, f32, i8>>(),
        DataType::U8 => impls::<TwoStepConvert<T, f32, u8>>(),
        DataType::S16 => impls::<TwoStepConvert<T, f32, i16>>(),
        DataType::U16 => impls::<TwoStepConvert<T, f32, u16>>(),
        DataType::S32 => impls::<TwoStepConvert<T, f32, i32>>(),
        DataType::U32 => impls::<TwoStepConvert<T, f32, u32>>(),
        DataType::S64 => impls::<TwoStepConvert<T, f32, i64>>(),
        DataType::U64 => impls::<TwoStepConvert<T, f32, u64>>(),
        DataType::F16 => impls::<TwoStepConvert<T, f32, F16>>(),
        DataType::Bf16 => impls::<TwoStepConvert<T, f32, Bf16>>(),
        DataType::F32 => impls::<Convert<T, f32>>(),
        DataType::F64 => impls::<TwoStepConvert<T, f32, f64>>(),
        _ => return None,
    })
}

/// A conversion from one type to another.
struct Convert<A, B>(PhantomData<(A, B)>);

impl<A: To<B>, B: Pod> Function1 for Convert<A, B> {
    type X = A;
    type To = B;

    #[inline(always)]
    fn of<I: Isa>(x: A, _: Params) -> B {
        x.to::<I>()
    }

    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[A; N], _: Params) -> [B; N] {
        A::block_to::<I, N>(x)
    }
}

/// A conversion through a third type, which loses nothing that the last type shows.
struct TwoStepConvert<A, M, B>(PhantomData<(A, M, B)>);

impl<A: To<M>, M: To<B>, B: Pod> Function1 for TwoStepConvert<A, M, B> {
    type X = A;
    type To = B;

    #[inline(always)]
    fn of<I: Isa>(x: A, _: Params) -> B {
        x.to::<I>().to::<I>()
    }

    #[inline(always)]
    fn of_block<I: Isa, const N: usize>(x: &[A; N], _: Params) -> [B; N] {
        M::block_to::<I, N>(&A::block_to::<I, N>(x))
    }
}

/// A byte that is true if it is not zero.
#[derive(Clone, Copy, Default)]
struct BoolByte(u8);

impl To<RoundedToOdd> for f64 {
    #[inline(always)]
    fn to<I: Isa>(self) -> RoundedToOdd {
        let near = self as f32;
        let back = f64::from(near);
        let (bits, beyond) = (near.to_bits(), back.abs() > self.abs());
        let rounded = (if beyond { bits.wrapping_sub(1) } else { bits }) | 1;
        RoundedToOdd(f32::from_bits(if back == self { bits } else { rounded }))
    }
}

macro_rules! by_cast {
    ($($A:ty => $($B:ty)*;)*) => {
        $($(impl To<$B> for $A {
            #[inline(always)]
            fn to<I: Isa>(self) -> $B {
                self as $B
            }
        })*)*
    };
}

by_cast! {
    i8 => u8 u16 u32 u64 f32 f64;
    u8 => u8 u16 u32 u64 f32 f64;
    i16 => u8 u16 u32 u64 f32 f64;
    u16 => u8 u16 u32 u64 f32 f64;
    i32 => u8 u16 u32 u64 f32 f64;
    u32 => u8 u16 u32 u64 f32 f64;
    i64 => u8 u16 u32 u64 f32 f64;
    u64 => u8 u16 u32 u64 f32 f64;
}

/// Float to integer, truncated and saturated, as `as` does; but `as` compiles to one number at a time. The
/// bounds are the integer's least value and one above its greatest. The conversion itself goes to a type for
/// which the machine has an instruction.
macro_rules! saturating {
    ($($A:ident => $($B:ident by $Int:ident)*;)*) => {
        $($(impl To<$B> for $A {
            #[inline(always)]
            fn to<I: Isa>(self) -> $B {
                const ABOVE: $A = ($B::MAX / 2 + 1) as $A * 2.0;
                // 0 for NaN too, because every comparison with NaN is false.
                let within = if (self >= $B::MIN as $A) & (self < ABOVE) { self } else { 0.0 };
                // SAFETY: the number is within the type's bounds.
                let value = unsafe { within.to_int_unchecked::<$Int>() } as $B;
                let value = if self >= ABOVE { $B::MAX } else { value };
                if self < $B::MIN as $A { $B::MIN } else { value }
            }
        })*)*
    };
}

saturating! {
    f32 => i32 by i32 u32 by u32 i64 by i64 u64 by u64;
    f64 => i32 by i32 u32 by u32 i64 by i64 u64 by u64;
}

/// The same for integers whose bounds are floats, so that a minimum and a maximum of floats saturate.
macro_rules! saturating_small {
    ($($A:ident => $($B:ident)*;)*) => {
        $($(impl To<$B> for $A {
            #[inline(always)]
            fn to<I: Isa>(self) -> $B {
                const MIN: $A = $B::MIN as $A;
                const MAX: $A = $B::MAX as $A;
                let within = if self > MIN { self } else { MIN };
                let within = if within < MAX { within } else { MAX };
                // NaN is 0, which it is by now if 0 is the least integer.
                let within = if MIN == 0.0 || !self.is_nan() { within } else { 0.0 };
                // SAFETY: the number is within the type's bounds.
                unsafe { within.to_int_unchecked::<i32>() as $B }
            }
        })*)*
    };
}

saturating_small! {
    f32 => i8 u8 i16 u16;
    f64 => i8 u8 i16 u16;
}

impl To<f64> for f32 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f64 {
        f64::from(canonical(self))
    }
}

impl To<f32> for f64 {
    #[inline(always)]
    fn to<I: Isa>(self) -> f32 {
        canonical(self as f32)
    }
}

/// Integers that f32 holds.
macro_rules! exact_in_f32 {
    ($($T:ty)*) => {
        $(impl To<RoundedToOdd> for $T {
            #[inline(always)]
            fn to<I: Isa>(self) -> RoundedToOdd {
                RoundedToOdd(f32::from(self))
            }
        })*
    };
}

exact_in_f32!(i8 u8 i16 u16);

/// Integers that f64 holds.
macro_rules! rounded_to_odd_by_f64 {
    ($($T:ty)*) => {
        $(impl To<RoundedToOdd> for $T {
            #[inline(always)]
            fn to<I: Isa>(self) -> RoundedToOdd {
                f64::from(self).to::<I>()
            }
        })*
    };
}

rounded_to_odd_by_f64!(i32 u32);

impl To<RoundedToOdd> for u64 {
    #[inline(always)]
    fn to<I: Isa>(self) -> RoundedToOdd {
        // The bits for which f64 has no room become one bit: whether any of them is set.
        const LOST: u64 = (1 << 11) - 1;
        let sticky = (self | ((self & LOST) + LOST)) & !LOST;
        (if self >> 53 == 0 { self } else { sticky } as f64).to::<I>()
    }
}

impl To<RoundedToOdd> for i64 {
    #[inline(always)]
    fn to<I: Isa>(self) -> RoundedToOdd {
        let RoundedToOdd(magnitude) = self.unsigned_abs().to::<I>();
        RoundedToOdd(if self < 0 { -magnitude } else { magnitude })
    }
}

macro_rules! from_bool_byte {
    ($($B:ty)*) => {
        $(impl To<$B> for BoolByte {
            #[inline(always)]
            fn to<I: Isa>(self) -> $B {
                u8::from(self.0 != 0).to::<I>()
            }
        })*
    };
}

from_bool_byte!(u8 u16 u32 u64 f32 f64 RoundedToOdd);
