//! The exponential function.

use super::polynomial::polynomial;
use crate::kernels::isa::Isa;

/// Adding this leaves the nearest integer in the low bits of an f64 of small magnitude.
pub(super) const SHIFTER: f64 = 6755399441055744.0; // 1.5 · 2^52

/// `(eʳ − 1 − r) / r²` for |r| ≤ ln(2)/2, with an error of 2e-10 of eʳ.
const COARSE: [f64; 6] = [
    0.5000000013547783,
    0.1666666675694132,
    0.041666464137220534,
    0.008333285836560053,
    0.0013933735716771243,
    0.00019907704448986996,
];

/// The same, with an error of 1e-17.
const FINE: [f64; 10] = [
    0.5000000000000001,
    0.16666666666666674,
    0.04166666666662381,
    0.008333333333322127,
    0.0013888888917370848,
    0.00019841269886836392,
    2.4801521052860206e-05,
    2.7557242059340425e-06,
    2.762020367160025e-07,
    2.5110154340462048e-08,
];

/// `x = n·ln 2 + r`: returns `2ⁿ`, which is 0 or infinite for the largest |x|, and `eʳ − 1`.
#[inline(always)]
fn reduced<I: Isa>(x: f64, coefficients: &[f64]) -> (f64, f64) {
    // The high part of ln 2 has enough trailing zeros for its product with n to be exact.
    const LN_2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -709.0 { -709.0 } else { x };
    let shifted = I::mul_add_64(x, std::f64::consts::LOG2_E, SHIFTER);
    let n = shifted - SHIFTER;
    let r = I::mul_add_64(n, -LN_2[1], I::mul_add_64(n, -LN_2[0], x));
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    (scale, I::mul_add_64(r * r, polynomial::<I>(r, coefficients), r))
}

/// `eˣ`, with a relative error of 2e-10; 0 and infinity beyond the range of f64.
#[inline(always)]
pub(in crate::kernels) fn exp<I: Isa>(x: f64) -> f64 {
    let (scale, e) = reduced::<I>(x, &COARSE);
    (1.0 + e) * scale
}

/// `eˣ`, with an error of little more than the last bit of f64: for sums that cancel.
#[inline(always)]
pub(in crate::kernels) fn exp_fine<I: Isa>(x: f64) -> f64 {
    let (scale, e) = reduced::<I>(x, &FINE);
    (1.0 + e) * scale
}

/// `eˣ − 1` for x up to 700, with a relative error of 1e-9.
#[inline(always)]
pub(in crate::kernels) fn exp_m1<I: Isa>(x: f64) -> f64 {
    let (scale, e) = reduced::<I>(x, &COARSE);
    I::mul_add_64(e, scale, scale - 1.0)
}
