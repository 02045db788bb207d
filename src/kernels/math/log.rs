//! Logarithms.

use super::polynomial::polynomial;
use crate::kernels::isa::Isa;

/// `ln(1 + f) / f` for 1 + f between √½ and √2, with a relative error of 2e-11.
const CENTRED: [f64; 13] = [
    0.9999999999858887,
    -0.500000000295851,
    0.33333334337289794,
    -0.2499999405454842,
    0.1999988083950203,
    -0.16666944354253316,
    0.1429099646020941,
    -0.1249747455341075,
    0.1100495707482492,
    -0.09922839655686481,
    0.10033841342798594,
    -0.09901355990113785,
    0.05362454758036997,
];

/// The same for f between 0 and 1.
const UPPER: [f64; 13] = [
    0.9999999999812598,
    -0.49999999347857893,
    0.3333329551327216,
    -0.24999131503097993,
    0.1998952753032726,
    -0.16590399781157353,
    0.13921567618239788,
    -0.11297482025156794,
    0.0825554444699425,
    -0.049543780332169794,
    0.021912255643099555,
    -0.0061635661881444355,
    0.0008130469532557478,
];

/// The natural logarithm of a positive f64 that is neither subnormal nor infinite, with a relative error of
/// 2e-11.
#[inline(always)]
pub(super) fn ln_positive<I: Isa>(x: f64) -> f64 {
    // Exponents are counted from √½ on, so that the mantissa is between √½ and √2.
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const INTEGER: f64 = 4503599627370496.0; // 2^52, whose bits take a small integer
    let above = x.to_bits().wrapping_sub(ROOT_HALF);
    let mantissa = f64::from_bits((above & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_HALF));
    // The exponent is signed; it is biased to be positive while it is converted.
    let exponent = (above.wrapping_add(1024 << 52) >> 52) | INTEGER.to_bits();
    let exponent = f64::from_bits(exponent) - (INTEGER + 1024.0);
    let f = mantissa - 1.0;
    I::mul_add_64(exponent, std::f64::consts::LN_2, f * polynomial::<I>(f, &CENTRED))
}

/// The natural logarithm of any f32 in an f64.
#[inline(always)]
pub(in crate::kernels) fn ln<I: Isa>(x: f64) -> f64 {
    let y = ln_positive::<I>(x);
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    let y = if x == f64::INFINITY { f64::INFINITY } else { y };
    if x >= 0.0 { y } else { f64::NAN }
}

/// `ln(1 + u)` for u between 0 and 1, with a relative error of 2e-11; NaN for NaN.
#[inline(always)]
pub(in crate::kernels) fn ln_1p<I: Isa>(u: f64) -> f64 {
    u * polynomial::<I>(u, &UPPER)
}
