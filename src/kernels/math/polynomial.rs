//! Polynomials in f64.

use crate::kernels::isa::Isa;

/// `c₀ + c₁·x + c₂·x² + …`, by Horner's rule.
#[inline(always)]
pub(super) fn polynomial<I: Isa>(x: f64, coefficients: &[f64]) -> f64 {
    let (last, rest) = coefficients.split_last().unwrap_or((&0.0, &[]));
    rest.iter().rev().fold(*last, |sum, &c| I::mul_add_64(sum, x, c))
}
