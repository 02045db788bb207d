//! Pointwise kernels: the functions of [`types::function`](crate::types::function) and the conversions
//! between types, over a tile.

mod binary;
mod compare;
mod convert;
mod driver;
mod half;
mod indices;
mod sign;
#[cfg(test)]
mod tests;
mod unary;

pub(crate) use binary::binary;
pub(crate) use compare::{classify, compare, compared_in, logic, not};
pub(crate) use convert::{convert, round_to};
pub(in crate::kernels) use driver::{Avx2, Avx512, Function1, Function2, Isa, Pod, read_part};
pub(crate) use driver::{Impls, Kernel1, Kernel2, Params};
pub(crate) use indices::{Ramp, indices};
pub(crate) use sign::sign;
pub(crate) use unary::unary;

/// The canonical NaN: arithmetic gives no other.
const NAN: f32 = f32::from_bits(0x7fc0_0000);

/// `x`, or the canonical NaN.
#[inline(always)]
fn canonical(x: f32) -> f32 {
    if x.is_nan() { NAN } else { x }
}

/// The larger number; NaN if one is NaN, +0 above −0.
#[inline(always)]
fn maximum(x: f32, y: f32) -> f32 {
    let larger = if x > y { x } else { y };
    // Equal numbers have equal bits, except zeros.
    let larger = if x == y { f32::from_bits(x.to_bits() & y.to_bits()) } else { larger };
    if x.is_nan() | y.is_nan() { NAN } else { larger }
}

/// The smaller number; NaN if one is NaN, −0 below +0.
#[inline(always)]
fn minimum(x: f32, y: f32) -> f32 {
    let smaller = if x < y { x } else { y };
    let smaller = if x == y { f32::from_bits(x.to_bits() | y.to_bits()) } else { smaller };
    if x.is_nan() | y.is_nan() { NAN } else { smaller }
}
