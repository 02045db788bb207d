//! The exponential of scores of attention.

use crate::kernels::isa::Isa;
#[cfg(doc)]
use crate::kernels::vector::Lanes;
use crate::types::function::{EXP_IS_SUBNORMAL, EXP_IS_ZERO};

/// `2ʳ` for r from 0 to 1, with a relative error of 2.1e-9, and without one at 0.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(super) const UPPER: [f32; 7] =
    [1.0, 0.69314706, 0.24022909, 0.055486184, 0.009673775, 0.0012482288, 0.00021565985];

/// The same for r from −½ to ½, with a relative error of 1.3e-8.
const CENTRED: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.24022594, 0.055503663, 0.009625445, 0.0013387942, 0.00013332852];

/// The number below which exponentials are 0. If subnormal results are kept, the exponential below it rounds
/// to 0 in f32; else the exponential at it is still a normal number.
pub(super) const fn gone(has_subnormal: bool) -> f32 {
    if has_subnormal { EXP_IS_ZERO } else { EXP_IS_SUBNORMAL }
}

/// [`Lanes::exp_of_score`] of one number.
#[inline(always)]
pub(super) fn exp_of_one<I: Isa, const SUBNORMAL: bool>(x: f32) -> f32 {
    // Half of the power of 2, and twice the polynomial: the bits of the half are 0 where the power is the
    // smallest normal number, so that what is gone needs no choice of its own (decision: clamped-scores).
    const BIAS: u32 = 126;
    // The half is a normal number for each n: one that is higher by this, if results may be subnormal.
    let up = if SUBNORMAL { 64 } else { 0 };
    // Adding this leaves the nearest integer n, and the exponent of the half in the low bits.
    let shifter = (3 << 22) as f32 + (BIAS + up) as f32;
    // NaN stays.
    let x = if x < gone(SUBNORMAL) { gone(SUBNORMAL) } else { x };
    let shifted = I::mul_add(x, std::f32::consts::LOG2_E, shifter);
    let r = I::mul_add(x, std::f32::consts::LOG2_E, shifter - shifted);
    let mut y = 2.0 * CENTRED[6];
    for c in [CENTRED[5], CENTRED[4], CENTRED[3], CENTRED[2], CENTRED[1], CENTRED[0]] {
        y = I::mul_add(y, r, 2.0 * c);
    }
    let y = y * f32::from_bits(shifted.to_bits() << 23);
    // Only this rounds a subnormal result.
    if SUBNORMAL { y * f32::from_bits((BIAS + 1 - up) << 23) } else { y }
}
