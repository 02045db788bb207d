//! The most common functions, in f32: a vector holds twice as many lanes as in f64. If the error without
//! fused multiply-add would exceed two units in the last place, level Portable uses f64.

use super::double::{self, B as CUBIC};
use super::exp::exp_m1;
use crate::kernels::isa::Isa;
use crate::types::function::EXP_IS_ZERO;
use crate::types::kind::Level;

/// Adding this leaves the nearest integer in the low bits of an f32 of small magnitude.
pub(super) const SHIFTER: f32 = 12582912.0; // 1.5 · 2^23

#[inline(always)]
fn polynomial<I: Isa>(x: f32, coefficients: &[f32]) -> f32 {
    let (last, rest) = coefficients.split_last().unwrap_or((&0.0, &[]));
    rest.iter().rev().fold(*last, |sum, &c| I::mul_add(sum, x, c))
}

/// `(eʳ − 1 − r) / r²` for |r| up to a little above ln(2)/2, with an error of 1e-8 of eʳ.
pub(super) const EXP: [f32; 5] = [0.5, 0.16666576, 0.041666374, 0.008363238, 0.0013941216];

/// The same for r from −0.6 to 0.11.
const EXP_M1: [f32; 5] = [0.50000006, 0.1666676, 0.04166175, 0.008258352, 0.0011713437];

/// High and low part of ln 2; products of the high part with a small integer are exact.
pub(super) const LN_2: [f32; 2] = [0.693_359_4, -0.000_212_194_44];

/// `x + low = n·ln 2 + r`, with n nearest for the number `near`: returns n in the low bits, and r. For a huge
/// x the result is meaningless.
#[inline(always)]
fn reduced<I: Isa>(x: f32, low: f32, near: f32) -> (u32, f32) {
    let shifted = I::mul_add(near, std::f32::consts::LOG2_E, SHIFTER);
    let n = shifted - SHIFTER;
    let r = I::mul_add(n, -LN_2[0], x);
    (shifted.to_bits(), I::mul_add(n, -LN_2[1], r + low))
}

/// `y · 2ⁿ` for a normal result; n is in the low bits.
#[inline(always)]
fn scaled(y: f32, n: u32) -> f32 {
    f32::from_bits(y.to_bits().wrapping_add(n << 23))
}

/// `y · 2ⁿ` for any result, with n about `x / ln 2`.
#[inline(always)]
fn scaled_below(y: f32, n: u32, x: f32) -> f32 {
    // Only the last product rounds a subnormal result.
    let small = x < -80.0;
    let n = if small { n.wrapping_add(64) } else { n };
    scaled(y, n) * if small { f32::from_bits((127 - 64) << 23) } else { 1.0 }
}

/// `eˣ` for x from [`EXP_IS_ZERO`] to 88.
#[inline(always)]
fn exp_within<I: Isa>(x: f32) -> f32 {
    let (n, r) = reduced::<I>(x, -0.0, x);
    scaled_below(I::mul_add(polynomial::<I>(r, &EXP), r * r, r) + 1.0, n, x)
}

/// `eˣ`.
#[inline(always)]
pub(in crate::kernels) fn exp<I: Isa>(x: f32) -> f32 {
    let y = exp_within::<I>(x);
    let y = if x > 88.72283 { f32::INFINITY } else { y };
    let y = if x < EXP_IS_ZERO { 0.0 } else { y };
    if x.is_nan() { f32::NAN } else { y }
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(in crate::kernels) fn sigmoid<I: Isa>(x: f32) -> f32 {
    let a = -x.abs();
    let z = exp_within::<I>(if a < EXP_IS_ZERO { EXP_IS_ZERO } else { a });
    let sum = 1.0 + z;
    let y = (if x < 0.0 { z } else { 1.0 }) / sum;
    // Corrects for the rounding error of the sum. One over the sum is 1 − y for x below 0, and nearly so
    // above.
    let lost = z - (sum - 1.0);
    let y = I::mul_add(-y, I::mul_add(-lost, y, lost), y);
    if x.is_nan() { f32::NAN } else { y }
}

/// `eˣ − 1` for x from −30 to 0, and its rounding error.
#[inline(always)]
fn exp_m1_within<I: Isa>(x: f32) -> (f32, f32) {
    // With r from −0.59 to 0.11, all results above −0.44 come from r alone, so none is a difference of close
    // numbers.
    let (n, r) = reduced::<I>(x, -0.0, x + 0.2426);
    let scale = scaled(1.0, n);
    let (quotient, square) = (polynomial::<I>(r, &EXP_M1), r * r);
    let e = I::mul_add(quotient, square, r);
    let y = I::mul_add(e, scale, scale - 1.0);
    let lost = I::mul_add(quotient, square, r - e);
    (y, I::mul_add(lost, scale, I::mul_add(e, scale, (scale - 1.0) - y)))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(in crate::kernels) fn tanh<I: Isa>(x: f32) -> f32 {
    if I::LEVEL == Level::Portable {
        return double::tanh::<I>(x.into()) as f32;
    }
    let a = -2.0 * x.abs();
    let (e, low) = exp_m1_within::<I>(if a < -30.0 { -30.0 } else { a });
    let sum = e + 2.0;
    let y = -e / sum;
    // Corrects for the rounding errors of the exponential, the sum and the quotient. One over the sum is (1 +
    // y) / 2.
    let lost = I::mul_add(-y, e - (sum - 2.0), I::mul_add(-y, sum, -e));
    let lost = I::mul_add(-low, 1.0 + y, lost);
    let y = I::mul_add(lost, I::mul_add(0.5, y, 0.5), y).copysign(x);
    if x.is_nan() { f32::NAN } else { y }
}

/// `p · (eˣ − 1)` for x up to 0.
#[inline(always)]
pub(in crate::kernels) fn elu<I: Isa>(x: f32, p: f32) -> f32 {
    let y = match I::LEVEL {
        Level::Portable => (f64::from(p) * exp_m1::<I>(x.into())) as f32,
        _ => p * exp_m1_within::<I>(if x < -30.0 { -30.0 } else { x }).0,
    };
    // Zeros keep their sign, and NaN stays NaN.
    if x < 0.0 { y } else { p * x }
}

/// `(ln(1 + f) − f) / f²` for 1 + f between √½ and √2, with an error of 1e-8.
const LN: [f32; 9] = [
    -0.49999997,
    0.33333313,
    -0.2500075,
    0.20002696,
    -0.16628923,
    0.14173451,
    -0.1307254,
    0.12917888,
    -0.08064703,
];

/// The natural logarithm.
#[inline(always)]
pub(in crate::kernels) fn ln<I: Isa>(x: f32) -> f32 {
    const ROOT_HALF: u32 = 0x3f35_04f3;
    // Scales subnormal numbers to normal ones.
    let tiny = x < f32::MIN_POSITIVE;
    let normal = if tiny { x * 8388608.0 } else { x };
    let above = normal.to_bits().wrapping_sub(ROOT_HALF);
    let f = f32::from_bits((above & 0x007f_ffff).wrapping_add(ROOT_HALF)) - 1.0;
    let exponent = (above as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let low = I::mul_add(exponent, LN_2[1], polynomial::<I>(f, &LN) * (f * f));
    let y = I::mul_add(exponent, LN_2[0], low + f);
    // Infinity and NaN are returned as they are.
    let y = if x < f32::INFINITY { y } else { x };
    let of_rest = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    if x > 0.0 { y } else { of_rest }
}

/// √(8/π), with a high part so short that its difference from a sum is exact.
pub(super) const GELU_A: [f32; 2] = [1.5957031, 6.599_66e-5];

/// 0.044715 · √(8/π).
pub(super) const GELU_B: [f32; 2] = [CUBIC as f32, (CUBIC - CUBIC as f32 as f64) as f32];

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`, which is `x / (1 + e⁻ᵛ)` with v twice the argument of the
/// tangent.
#[inline(always)]
pub(in crate::kernels) fn gelu_tanh<I: Isa>(x: f32) -> f32 {
    if I::LEVEL == Level::Portable {
        return double::gelu_tanh::<I>(x.into()) as f32;
    }
    // From there on the difference from x, or from 0, is below half of the least number.
    let a = x.abs();
    let a = if a > 10.8 { 10.8 } else { a };
    // An error of v is one of the result's exponent, so v has a low part.
    let square = a * a;
    let square_low = I::mul_add(a, a, -square);
    let w = I::mul_add(GELU_B[0], square, GELU_A[0]);
    let w_low = I::mul_add(GELU_B[0], square, GELU_A[0] - w)
        + I::mul_add(GELU_B[0], square_low, I::mul_add(GELU_B[1], square, GELU_A[1]));
    let v = a * w;
    let v_low = I::mul_add(a, w_low, I::mul_add(a, w, -v));
    let (n, r) = reduced::<I>(-v, -v_low, -v);
    let e = I::mul_add(polynomial::<I>(r, &EXP), r * r, r);
    let z = if v > 80.0 { 0.0 } else { scaled(1.0 + e, n) };
    let y = (if x < 0.0 { -a } else { x }) / (1.0 + z);
    let below = scaled_below(I::mul_add(y, e, y), n, -v);
    let y = if x < 0.0 { below } else { y };
    if x > f32::NEG_INFINITY { y } else { f32::NAN }
}
