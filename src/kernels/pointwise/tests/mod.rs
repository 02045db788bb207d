//! Promises of the pointwise kernels, at every level that this machine runs.

mod accuracy;
mod conversions;
mod edges;
mod levels;
mod modulo;
mod shapes;

use super::{Impls, Kernel1, Kernel2, Params};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, Source, Target};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Unary};
use crate::types::kind::Level;

/// The functions of two f32.
fn of_f32() -> impl Iterator<Item = Binary> {
    Binary::ALL.iter().copied().filter(|function| function.cost_on(DataType::F32).is_some())
}

/// The implementations of a function of one f32.
fn unary(level: Level, function: Unary) -> Impls<Kernel1> {
    super::unary(level, function, DataType::F32).expect("every function of one number has a kernel for f32")
}

/// One row of dense elements.
fn source<T>(row: &[T]) -> Source {
    Source { at: row.as_ptr().cast(), row_stride: 0 }
}

/// Runs a kernel over one row.
fn run1<X, To: Copy + Default>(kernel: Kernel1, x: &[X], params: Params) -> Vec<To> {
    let mut to = vec![To::default(); x.len()];
    let target = Target { at: to.as_mut_ptr().cast(), row_stride: 0 };
    // SAFETY: the row is as long as the extent says; kernels are taken from available levels.
    unsafe {
        kernel(
            Extent { rows: 1, columns: x.len() },
            source(x),
            target,
            &params,
            &mut PrefetchQueue::default(),
        )
    };
    to
}

/// Runs a kernel over one row; only the first element of a repeated operand is read.
fn run2<X, To: Copy + Default>(kernel: Kernel2, x: &[X], y: &[X], params: Params) -> Vec<To> {
    let columns = x.len().max(y.len());
    let mut to = vec![To::default(); columns];
    let target = Target { at: to.as_mut_ptr().cast(), row_stride: 0 };
    // SAFETY: dense rows are as long as the extent says; kernels are taken from available levels.
    unsafe { kernel.run(Extent { rows: 1, columns }, source(x), source(y), target, &params) };
    to
}

/// Distance of a result from the true value, in units in the last place of the true value. Infinite if one is
/// NaN and the other is not, if a NaN is not canonical, and if an exact zero has the wrong sign.
fn ulps(got: f32, want: f64) -> f64 {
    /// One beyond the greatest f32.
    const BEYOND: f64 = 340282366920938463463374607431768211456.0;
    let nearest = want as f32;
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.to_bits() == 0x7fc0_0000 { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 {
        return if got.to_bits() == nearest.to_bits() { 0.0 } else { f64::INFINITY };
    }
    if got == nearest && got.is_infinite() {
        return 0.0;
    }
    let finite = |x: f64| x.clamp(-BEYOND, BEYOND);
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (finite(got.into()) - finite(want)).abs() / 2f64.powi(exponent - 23)
}

/// Numbers at the corners of most functions.
const SPECIAL: [f32; 30] = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1.1754942e-38,
    -1.1754944e-38,
    1e-20,
    -1e-20,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    -1.5,
    2.5,
    -2.5,
    3.0,
    -3.0,
    8388607.5,
    -8388609.0,
    88.72284,
    -103.97,
    2147483600.0,
    -3e9,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::from_bits(0xffc0_1234),
    f32::from_bits(0x7f80_0001),
];
