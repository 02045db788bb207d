//! Kernels on results of attention: scaling by query, and statistics.

use super::lanes::{by_columns, read, write};
use super::tile::{QUERIES, SoftmaxState};
use crate::kernels::floats::canonical;
use crate::kernels::vector::{LANES, Lanes};

/// Multiplies rows by the factors.
///
/// # Safety
///
/// As [`rescale`](super::AttentionKernels::rescale).
#[inline(always)]
pub(super) unsafe fn rescale<I: Lanes>(at: *mut f32, rows: usize, queries: usize, factors: &[f32; QUERIES]) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, queries, rescale_columns(at, rows, factors)) };
}

/// # Safety
///
/// As [`rescale`]; the columns are within the rows.
#[inline(always)]
unsafe fn rescale_columns<I: Lanes, const N: usize, const PART: bool>(
    at: *mut f32,
    rows: usize,
    factors: &[f32; QUERIES],
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of factors are whole.
    unsafe {
        let factor = read::<I, N, false>(factors.as_ptr().add(first), LANES, 0.0);
        for row in 0..rows {
            let row = at.add(row * QUERIES + first);
            let mut x = read::<I, N, PART>(row, count, 0.0);
            for i in 0..N {
                x[i] = I::mul(x[i], factor[i]);
            }
            write::<I, N, PART>(row, count, x);
        }
    }
}

/// Divides rows by the sums, and returns whether all their numbers were finite.
///
/// # Safety
///
/// As [`divide`](super::AttentionKernels::divide).
#[inline(always)]
pub(super) unsafe fn divide<I: Lanes>(
    at: *mut f32,
    rows: usize,
    queries: usize,
    state: &SoftmaxState,
    inf_as_zero: bool,
) -> bool {
    let mut inverse = [0.0; QUERIES];
    for (inverse, &sum) in inverse.iter_mut().zip(&state.sum) {
        *inverse = 1.0 / sum;
    }
    let of_none = if inf_as_zero { 0.0 } else { f32::NAN };
    let divisors = Divisors { sum: &state.sum, inverse: &inverse, of_none };
    let mut is_finite = true;
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, queries, divide_columns(at, rows, &divisors, &mut is_finite)) };
    is_finite
}

/// The divisors of [`divide`], for each query.
struct Divisors<'a> {
    sum: &'a [f32; QUERIES],
    inverse: &'a [f32; QUERIES],
    /// The result of a query whose sum is 0: added to a sum that is not positive.
    of_none: f32,
}

/// # Safety
///
/// As [`divide`]; the columns are within the rows.
#[inline(always)]
unsafe fn divide_columns<I: Lanes, const N: usize, const PART: bool>(
    at: *mut f32,
    rows: usize,
    divisors: &Divisors<'_>,
    is_finite: &mut bool,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises; vectors of the state are whole.
    unsafe {
        let zero = I::splat(0.0);
        let sum = read::<I, N, false>(divisors.sum.as_ptr().add(first), LANES, 0.0);
        let inverse = read::<I, N, false>(divisors.inverse.as_ptr().add(first), LANES, 0.0);
        let mut otherwise = sum;
        for i in 0..N {
            // The sum is 0 or NaN if it is not positive.
            otherwise[i] = I::add(sum[i], I::splat(divisors.of_none));
        }
        // 0 times a number is 0, but NaN if the number is not finite (decision: finite-division).
        let mut zeros = [zero; N];
        for row in 0..rows {
            let row = at.add(row * QUERIES + first);
            let mut x = read::<I, N, PART>(row, count, 0.0);
            for i in 0..N {
                zeros[i] = I::fma(x[i], zero, zeros[i]);
                let quotient = I::if_positive(sum[i], I::mul(x[i], inverse[i]), otherwise[i]);
                x[i] = I::canonical_vector(quotient);
            }
            write::<I, N, PART>(row, count, x);
        }
        let mut of_all = zero;
        for zeros in zeros {
            of_all = I::add(of_all, zeros);
        }
        *is_finite &= I::sum(of_all) == 0.0;
    }
}

/// The maximum plus the logarithm of the sum of one query; without a sum NaN, as the result of such a row.
pub(crate) fn statistic(max: f32, sum: f32, inf_as_zero: bool) -> f32 {
    match (sum == 0.0, inf_as_zero) {
        (true, true) => 0.0,
        (true, false) => f32::NAN,
        (false, _) => canonical((f64::from(max) + f64::from(sum).ln()) as f32),
    }
}
