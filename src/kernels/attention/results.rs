//! Kernels on results of attention: scaling by query, products with masked keys, and statistics.

use super::lanes::{by_columns, read, write};
use super::tile::{QUERIES, ScoreTile, SoftmaxState};
use crate::kernels::floats::canonical;
use crate::kernels::gemm::Matrix;
use crate::kernels::vector::{LANES, Lanes};

/// Dims of a result that stay in registers together.
const DIMS: usize = 4;

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

/// Adds the products of V with probabilities that are not 0 to the result.
///
/// # Safety
///
/// As [`masked_product`](super::AttentionKernels::masked_product).
#[inline(always)]
pub(super) unsafe fn masked_product<I: Lanes>(tile: ScoreTile, v: Matrix, dims: usize, result: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe { by_columns!(I, tile.queries, masked_columns(tile, v, dims, result)) };
}

/// # Safety
///
/// As [`masked_product`]; the columns are within the tile.
#[inline(always)]
unsafe fn masked_columns<I: Lanes, const N: usize, const PART: bool>(
    tile: ScoreTile,
    v: Matrix,
    dims: usize,
    result: *mut f32,
    first: usize,
    count: usize,
) {
    let mut dim = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while dim + DIMS <= dims {
            masked_dims::<I, N, PART, DIMS>(tile, v, dim, result, first, count);
            dim += DIMS;
        }
        while dim < dims {
            masked_dims::<I, N, PART, 1>(tile, v, dim, result, first, count);
            dim += 1;
        }
    }
}

/// # Safety
///
/// As [`masked_columns`]; the dims are within V and the result.
#[inline(always)]
unsafe fn masked_dims<I: Lanes, const N: usize, const PART: bool, const D: usize>(
    tile: ScoreTile,
    v: Matrix,
    dim: usize,
    result: *mut f32,
    first: usize,
    count: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let to = result.add(dim * QUERIES + first);
        let mut sums = [[I::splat(0.0); N]; D];
        for (d, sums) in sums.iter_mut().enumerate() {
            *sums = read::<I, N, PART>(to.add(d * QUERIES), count, 0.0);
        }
        let column = v.at.wrapping_offset(v.col_stride * dim as isize);
        for key in 0..tile.keys {
            let p = read::<I, N, PART>(tile.at.add(key * QUERIES + first), count, 0.0);
            let v_row = column.wrapping_offset(v.row_stride * key as isize);
            for (d, sums) in sums.iter_mut().enumerate() {
                let at = v_row.wrapping_offset(v.col_stride * d as isize);
                let x = I::splat(at.cast::<f32>().read_unaligned());
                for i in 0..N {
                    sums[i] = I::add_product(x, p[i], sums[i]);
                }
            }
        }
        for (d, &sums) in sums.iter().enumerate() {
            write::<I, N, PART>(to.add(d * QUERIES), count, sums);
        }
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
