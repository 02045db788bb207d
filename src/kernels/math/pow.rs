//! Powers.

use super::exp::exp;
use super::log::ln;
use crate::kernels::isa::Isa;

/// From here on every f64 is an even integer.
const ALL_EVEN: f64 = 9007199254740992.0; // 2^53

/// `x` to the power of `p`, both an f32 in an f64, with the special cases of C's `pow`.
#[inline(always)]
pub(in crate::kernels) fn pow<I: Isa>(x: f64, p: f64) -> f64 {
    let huge = p.abs() >= ALL_EVEN;
    let integer = huge || p as i64 as f64 == p;
    let odd = integer && !huge && p as i64 & 1 != 0;
    let a = x.abs();
    let y = exp::<I>(p * ln::<I>(a));
    // An infinite power of 1 would compute infinity times 0.
    let y = if a == 1.0 { 1.0 } else { y };
    let y = if odd { y.copysign(x) } else { y };
    let y = if !integer && x < 0.0 && a < f64::INFINITY { f64::NAN } else { y };
    if p == 0.0 || x == 1.0 { 1.0 } else { y }
}
