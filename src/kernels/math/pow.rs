//! Powers.

use super::exp::exp;
use super::log::ln;
use crate::kernels::isa::Isa;

/// From here on every f32 is an even integer.
const ALL_EVEN: f64 = 16777216.0; // 2^24

/// Added to a number of fewer than 52 bits, it leaves an integer, whose last bit is that of the sum.
const TO_INTEGER: f64 = 4503599627370496.0; // 2^52

/// `x` to the power of `p`, both an f32 in an f64, with the special cases of C's `pow`.
#[inline(always)]
pub(in crate::kernels) fn pow<I: Isa>(x: f64, p: f64) -> f64 {
    let (a, size) = (x.abs(), p.abs());
    let rounded = size + TO_INTEGER;
    let huge = size >= ALL_EVEN;
    let integer = huge | (rounded - TO_INTEGER == size);
    let odd = integer & !huge & (rounded.to_bits() & 1 != 0);
    let y = exp::<I>(p * ln::<I>(a));
    // An infinite power of 1 would compute infinity times 0.
    let y = if a == 1.0 { 1.0 } else { y };
    let y = if odd { y.copysign(x) } else { y };
    let y = if !integer & (x < 0.0) & (a < f64::INFINITY) { f64::NAN } else { y };
    if (p == 0.0) | (x == 1.0) { 1.0 } else { y }
}
