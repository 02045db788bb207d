//! Channels one by one, by loops over several rows of windows: an element of the image is read once for all
//! of them. Taps along the last dim come first.

use super::part::{PlanePart, ROWS_OF_PLANES, RowLoop, bias_vector, store_lanes, with_bias};
use crate::kernels::gemm::product::Matrix;
use crate::kernels::vector::{LANES, Lanes};

/// A channel whose planes are in scratch.
pub(super) struct RowsOfPlane<'a> {
    pub(super) part: &'a PlanePart<'a>,
    /// Numbers to the element of each tap along the last dim.
    pub(super) columns: &'a [usize],
    /// The taps along both dims.
    pub(super) weights: Matrix,
    /// The bias, or null.
    pub(super) bias: *const f32,
    pub(super) to: *mut f32,
}

/// The sums of a channel.
///
/// # Safety
///
/// As [`PlaneKernel::run`](super::PlaneKernel::run); the planes are written.
#[inline(always)]
pub(super) unsafe fn sum_rows<I: Lanes>(row_loop: RowLoop, rows: &RowsOfPlane<'_>) {
    // SAFETY: as the caller promises.
    unsafe {
        match row_loop {
            RowLoop::Three => sum_blocks::<I, 3, 1>(rows),
            RowLoop::ThreeApart => sum_blocks::<I, 3, 2>(rows),
            RowLoop::Five => sum_blocks::<I, 5, 1>(rows),
            RowLoop::FiveApart => sum_blocks::<I, 5, 2>(rows),
            RowLoop::Seven => sum_blocks::<I, 7, 1>(rows),
        }
    }
}

/// The sums of a channel by blocks of several rows, for a kernel of `TAPS` rows and windows that are `APART`
/// rows from each other.
///
/// # Safety
///
/// As [`sum_rows`].
#[inline(always)]
unsafe fn sum_blocks<I: Lanes, const TAPS: usize, const APART: usize>(of: &RowsOfPlane<'_>) {
    let &PlanePart { planes, rows, .. } = of.part;
    for row in (0..rows).step_by(ROWS_OF_PLANES) {
        // Rows behind the last one are summed up again, or are none of the tile.
        let row = if rows >= ROWS_OF_PLANES { row.min(rows - ROWS_OF_PLANES) } else { row };
        for column in (0..planes.along.windows).step_by(LANES) {
            // SAFETY: as the caller promises.
            unsafe { sum_block_of_windows::<I, TAPS, APART>(of, row, column) };
        }
    }
}

/// The sums of a vector of some rows.
///
/// # Safety
///
/// As [`sum_rows`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the loops run over rows, not over an array")]
unsafe fn sum_block_of_windows<I: Lanes, const TAPS: usize, const APART: usize>(
    of: &RowsOfPlane<'_>,
    row: usize,
    column: usize,
) {
    let &PlanePart { planes, rows, tile, .. } = of.part;
    let (row_stride, columns) = (planes.along.elements, planes.along.windows);
    let first = tile.scratch.wrapping_add(row * row_stride + column).cast_const();
    let next_plane = planes.plane() * planes.along.planes;
    // SAFETY: as the caller promises; planes have the elements that all rows of the block see.
    unsafe {
        let mut sums = [I::splat(0.0); ROWS_OF_PLANES];
        for (tap, &place) in of.columns.iter().enumerate() {
            let first = first.wrapping_add(place);
            let mut weights = [I::splat(0.0); TAPS];
            for t in 0..TAPS {
                let at = of.weights.at.wrapping_offset(of.weights.row_stride * t as isize);
                let at = at.wrapping_offset(of.weights.col_stride * tap as isize);
                weights[t] = I::splat(at.cast::<f32>().read_unaligned());
            }
            for j in 0..(ROWS_OF_PLANES - 1) * APART + TAPS {
                let x = I::load(first.wrapping_add(j % APART * next_plane + j / APART * row_stride));
                for r in 0..ROWS_OF_PLANES {
                    if j >= r * APART && j - r * APART < TAPS {
                        sums[r] = I::fma(x, weights[j - r * APART], sums[r]);
                    }
                }
            }
        }
        let bias = bias_vector::<I>(of.bias);
        for r in 0..ROWS_OF_PLANES.min(rows - row) {
            let to = of.to.wrapping_add((row + r) * columns + column);
            store_lanes::<I>(to, columns - column, with_bias::<I>(sums[r], bias));
        }
    }
}
