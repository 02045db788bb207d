//! Approximated functions.
//!
//! Most are computed in f64, whose extra precision absorbs every intermediate rounding, so that the result is
//! nearly always the f32 nearest to the true value. The most common functions are computed in f32 if that
//! keeps to their accuracy: in [`single`] and, with instructions of level Avx512, in [`avx512`].
//!
//! `docs/ops.md` has the greatest error found for each, at each level.
//!
//! They are our own because crates that vectorise such functions lack some (rten-vecmath has no logarithm and
//! no power), need the unstable `portable_simd` (sleef), or fall back to scalar calls (simdeez).

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(in crate::kernels) mod avx512;
mod double;
mod erf;
mod exp;
mod log;
mod polynomial;
mod pow;
mod sine;
pub(in crate::kernels) mod single;

pub(in crate::kernels) use double::{
    gelu_erf_slope, gelu_tanh_slope, mish, mish_slope, sigmoid, sigmoid_slope, softplus, tanh_slope,
};
pub(in crate::kernels) use erf::normal_cdf;
pub(in crate::kernels) use exp::exp;
pub(in crate::kernels) use log::ln;
pub(in crate::kernels) use pow::pow;
pub(in crate::kernels) use sine::{LARGE, of_large, sine};
