//! Functions made of exponentials and logarithms, in f64.

use super::erf::normal_cdf_and_density;
use super::exp::{exp, exp_fine, exp_m1};
use super::log::ln_1p;
use crate::kernels::isa::Isa;

/// The logistic function, `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(in crate::kernels) fn sigmoid<I: Isa>(x: f64) -> f64 {
    1.0 / (1.0 + exp::<I>(-x))
}

/// The slope of [`sigmoid`].
#[inline(always)]
pub(in crate::kernels) fn sigmoid_slope<I: Isa>(x: f64) -> f64 {
    let e = exp::<I>(-x.abs());
    e / ((1.0 + e) * (1.0 + e))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(in crate::kernels) fn tanh<I: Isa>(x: f64) -> f64 {
    let e = exp_m1::<I>(-2.0 * x.abs());
    (-e / (e + 2.0)).copysign(x)
}

/// The slope of [`tanh`].
#[inline(always)]
pub(in crate::kernels) fn tanh_slope<I: Isa>(x: f64) -> f64 {
    4.0 * sigmoid_slope::<I>(2.0 * x)
}

/// `ln(1 + e^(p·x)) / p`.
#[inline(always)]
pub(in crate::kernels) fn softplus<I: Isa>(x: f64, p: f64) -> f64 {
    let z = p * x;
    let above = if z > 0.0 { z } else { 0.0 };
    // NaN passes through the exponential.
    (above + ln_1p::<I>(exp::<I>(-z.abs()))) * (1.0 / p)
}

/// `x · tanh(ln(1 + eˣ))`.
#[inline(always)]
pub(in crate::kernels) fn mish<I: Isa>(x: f64) -> f64 {
    let w = exp::<I>(flat_above(x));
    let n = w * (w + 2.0);
    x * (n / (n + 2.0))
}

/// The slope of [`mish`].
#[inline(always)]
pub(in crate::kernels) fn mish_slope<I: Isa>(x: f64) -> f64 {
    let bounded = flat_above(x);
    let w = exp_fine::<I>(bounded);
    let n = w * (w + 2.0);
    let d = n + 2.0;
    let slope = (n * d + 4.0 * bounded * w * (1.0 + w)) / (d * d);
    if x < f64::INFINITY { slope } else { f64::NAN }
}

/// Above 40, where both are straight lines in f64, the terms of [`mish`] would overflow f64.
#[inline(always)]
fn flat_above(x: f64) -> f64 {
    if x > 40.0 { 40.0 } else { x }
}

/// Twice the argument of the hyperbolic tangent in GELU's approximation is `x · (A + B·x²)`.
const A: f64 = 1.595769121605731; // √(8/π)
pub(super) const B: f64 = 0.07135481627260025; // 0.044715 · √(8/π)

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`.
#[inline(always)]
pub(in crate::kernels) fn gelu_tanh<I: Isa>(x: f64) -> f64 {
    x * sigmoid::<I>(x * (A + B * x * x))
}

/// The slope of [`gelu_tanh`].
#[inline(always)]
pub(in crate::kernels) fn gelu_tanh_slope<I: Isa>(x: f64) -> f64 {
    let is_finite = x.abs() < f64::INFINITY;
    // Below that, an f64 cannot tell the slope from 0.
    let is_flat = -x * (A + B * x * x) > 745.14;
    // Further out the slope is 0 or 1, and the terms would overflow.
    let x = if x > 20.0 { 20.0 } else { x };
    let x = if x < -20.0 { -20.0 } else { x };
    let e = exp_fine::<I>(-x * (A + B * x * x));
    let s = 1.0 / (1.0 + e);
    let slope = s * (1.0 + x * (A + 3.0 * B * x * x) * (e * s));
    let slope = if is_flat { 0.0 } else { slope };
    if is_finite { slope } else { f64::NAN }
}

/// The slope of `x · Φ(x)`: `Φ(x) + x·φ(x)`.
#[inline(always)]
pub(in crate::kernels) fn gelu_erf_slope<I: Isa>(x: f64) -> f64 {
    let (mass, density) = normal_cdf_and_density::<I>(x);
    mass + x * density
}
