//! Channels one by one, whose windows are read where the image is: registers that hold a whole vector mask
//! what lies beyond the image as fast as they load, so no plane is written first
//! (decision: windows-in-place). Elements of a type other than f32 are copied once, without zeros around
//! them.

use std::ops::Range;

use super::part::{
    PlanePart, PlaneTile, ROWS_OF_IMAGE, RowLoop, bias_at, bias_vector, with_bias, write_neighbours,
    write_zeros,
};
use crate::kernels::gemm::product::Matrix;
use crate::kernels::gemm::windows::WindowAxis;
use crate::kernels::prefetch_l1;
use crate::kernels::vector::{LANES, Lanes, RowType};

/// A channel of the image, and what is made of it.
struct RowsOfImage<'a> {
    part: &'a PlanePart<'a>,
    seen: SeenRows,
    /// The taps along both dims.
    weights: Matrix,
    /// The bias, or null.
    bias: *const f32,
    to: *mut f32,
}

/// Most rows of the image that a block of rows of windows sees.
const MAX_SEEN: usize = (ROWS_OF_IMAGE - 1) * 2 + 5;

/// The elements in f32 that windows see: rows and columns that are counted from what the first window sees
/// first.
struct SeenRows {
    /// The element at row 0 and column 0, which may lie beyond the image, and bytes from row to row.
    at: *const f32,
    row_stride: isize,
    rows: Range<usize>,
    columns: Range<usize>,
    /// The element at column 0 of a row of zeros.
    zeros: *const f32,
}

impl SeenRows {
    /// The rows of a channel, which are copied to scratch unless they are f32. A row of zeros is there.
    ///
    /// # Safety
    ///
    /// As [`PlaneKernel::run`](super::PlaneKernel::run).
    #[inline(always)]
    unsafe fn new<I: Lanes>(part: &PlanePart<'_>, image: *const u8) -> Self {
        let &PlanePart { tile, planes, place: [top, left], outer, rows, .. } = part;
        let [.., down, along] = &tile.windows.axes;
        let reach = |axis: &WindowAxis, windows: usize| {
            (windows - 1) * axis.stride + axis.taps.saturating_sub(1) * axis.dilation.unsigned_abs() + 1
        };
        let (of_down, of_along) = (reach(down, rows), reach(along, planes.along.windows));
        let seen = if outer.is_some() { down.inside(top, 1, 0..of_down) } else { 0..0 };
        let columns = along.inside(left, 1, 0..of_along);
        let zeros = tile.scratch.wrapping_sub(columns.start).cast_const();
        let first = image.wrapping_offset(outer.unwrap_or(0) + top * down.step + left * along.step);
        if part.image == RowType::F32 {
            return Self { at: first.cast(), row_stride: down.step, rows: seen, columns, zeros };
        }
        let width = columns.len();
        let scratch = tile.scratch.wrapping_add(width.next_multiple_of(LANES));
        let mut from = first.wrapping_offset(columns.start as isize * along.step);
        from = from.wrapping_offset(seen.start as isize * down.step);
        for index in 0..seen.len() {
            // SAFETY: as the caller promises; what is written behind a row is overwritten by the next one.
            unsafe { write_neighbours::<I>(from, part.image, width, scratch.wrapping_add(index * width)) };
            from = from.wrapping_offset(down.step);
        }
        let at = scratch.wrapping_sub(seen.start * width + columns.start).cast_const();
        Self { at, row_stride: 4 * width as isize, rows: seen, columns, zeros }
    }

    /// Some rows from one on; those beyond the image are the row of zeros.
    #[inline(always)]
    fn rows_from(&self, first: usize, count: usize) -> [*const f32; MAX_SEEN] {
        let mut rows = [self.zeros; MAX_SEEN];
        for (index, row) in rows.iter_mut().enumerate().take(count) {
            let index = first + index;
            if self.rows.contains(&index) {
                *row = self.at.wrapping_byte_offset(self.row_stride * index as isize);
            }
        }
        rows
    }
}

/// The sums of all channels of a part.
///
/// # Safety
///
/// As [`PlaneKernel::run`](super::PlaneKernel::run); each channel sees one of its own, and the loop [is in
/// place](RowLoop::is_in_place).
#[inline(always)]
pub(super) unsafe fn sum_channels_in_place<I: Lanes>(part: &PlanePart<'_>, row_loop: RowLoop) {
    let &PlaneTile { windows, weights, extent, scratch, .. } = part.tile;
    let [.., along] = &windows.axes;
    let row_stride = weights.col_stride * along.taps as isize;
    // SAFETY: as the caller promises; there is room for one more row than windows see.
    unsafe {
        write_zeros::<I>(scratch, part.planes.along.elements * part.planes.along.planes);
        for channel in 0..extent.rows {
            let image = part.tile.image.wrapping_offset(windows.channel_step * channel as isize);
            let of = RowsOfImage {
                part,
                seen: SeenRows::new::<I>(part, image),
                weights: Matrix {
                    at: weights.at.wrapping_offset(weights.row_stride * channel as isize),
                    row_stride,
                    col_stride: weights.col_stride,
                },
                bias: bias_at(part.tile.bias, channel),
                to: part.tile.to.row::<f32>(channel).wrapping_add(part.column),
            };
            match row_loop {
                RowLoop::Three => sum_blocks::<I, 3, 1>(&of),
                RowLoop::ThreeApart => sum_blocks::<I, 3, 2>(&of),
                RowLoop::Five => sum_blocks::<I, 5, 1>(&of),
                RowLoop::FiveApart => sum_blocks::<I, 5, 2>(&of),
                RowLoop::Seven => sum_blocks::<I, 7, 1>(&of),
            }
        }
    }
}

/// The sums of a channel by blocks of rows, for a kernel of `TAPS` rows and windows that are `APART` rows
/// from each other.
///
/// # Safety
///
/// As [`sum_channels_in_place`].
#[inline(always)]
unsafe fn sum_blocks<I: Lanes, const TAPS: usize, const APART: usize>(of: &RowsOfImage<'_>) {
    let &PlanePart { planes, rows, .. } = of.part;
    for row in (0..rows).step_by(ROWS_OF_IMAGE) {
        // Rows behind the last one are summed up again, or are none of the tile.
        let row = if rows >= ROWS_OF_IMAGE { row.min(rows - ROWS_OF_IMAGE) } else { row };
        let seen = of.seen.rows_from(row * APART, (ROWS_OF_IMAGE - 1) * APART + TAPS);
        for column in (0..planes.along.windows).step_by(LANES) {
            // SAFETY: as the caller promises.
            unsafe { sum_block::<I, TAPS, APART>(of, &seen, (row, column)) };
        }
    }
}

/// The sums of a vector of some rows, which see rows of the image.
///
/// # Safety
///
/// As [`sum_channels_in_place`].
#[inline(always)]
unsafe fn sum_block<I: Lanes, const TAPS: usize, const APART: usize>(
    of: &RowsOfImage<'_>,
    seen: &[*const f32; MAX_SEEN],
    (row, column): (usize, usize),
) {
    let &PlanePart { planes, rows, tile, .. } = of.part;
    let [.., along] = &tile.windows.axes;
    let (count, columns) = (along.taps, planes.along.windows);
    // SAFETY: as the caller promises.
    unsafe {
        let mut block =
            WindowBlock::<I, TAPS, APART> { of, seen, column, sums: [I::splat(0.0); ROWS_OF_IMAGE] };
        // Narrow rows follow each other in the cache.
        if columns > LANES {
            block.prefetch_next(row);
        }
        let mut tap = 0;
        // Taps side by side see elements that one load takes apart.
        while APART == 2 && along.stride == 2 && tap + 2 <= count {
            block.add::<2, 2>([tap, tap + 1], tap);
            tap += 2;
        }
        if APART == 2 && along.stride == 2 && tap < count {
            block.add::<1, 2>([tap, tap], tap);
            tap += 1;
        }
        while tap < count {
            let place = if along.dilation < 0 { count - 1 - tap } else { tap };
            block.add::<1, 1>([tap, tap], place * along.dilation.unsigned_abs());
            tap += 1;
        }
        let bias = bias_vector::<I>(of.bias);
        let lanes = LANES.min(columns - column);
        for (r, &sums) in block.sums.iter().enumerate() {
            if row + r < rows {
                let to = of.to.wrapping_add((row + r) * columns + column);
                I::store_inside(to, 0..lanes, with_bias::<I>(sums, bias));
            }
        }
    }
}

/// A vector of windows in each of some rows, with their sums.
struct WindowBlock<'a, I: Lanes, const TAPS: usize, const APART: usize> {
    of: &'a RowsOfImage<'a>,
    seen: &'a [*const f32; MAX_SEEN],
    column: usize,
    sums: [I::F; ROWS_OF_IMAGE],
}

impl<I: Lanes, const TAPS: usize, const APART: usize> WindowBlock<'_, I, TAPS, APART> {
    /// Prefetches what the same windows of the next block see first, given their row in this one.
    #[inline(always)]
    fn prefetch_next(&self, row: usize) {
        let seen = &self.of.seen;
        let first = ROWS_OF_IMAGE * APART + TAPS - APART;
        let at = seen.at.wrapping_add(self.column * APART);
        for j in first..first + ROWS_OF_IMAGE * APART {
            let at = at.wrapping_byte_offset(seen.row_stride * (row * APART + j) as isize);
            prefetch_l1(at.cast(), 4 * LANES * APART);
        }
    }

    /// Adds the products of `N` taps along the last dim, the first of which is some elements behind the first
    /// that a window sees; along it, windows are `ALONG` elements from each other.
    ///
    /// # Safety
    ///
    /// As [`sum_channels_in_place`].
    #[inline(always)]
    unsafe fn add<const N: usize, const ALONG: usize>(&mut self, taps: [usize; 2], place: usize) {
        let Matrix { at, row_stride, col_stride } = self.of.weights;
        let first = self.column * ALONG + place;
        let inside = |end: usize| end.saturating_sub(first).min(LANES * ALONG);
        let columns = inside(self.of.seen.columns.start)..inside(self.of.seen.columns.end);
        let mut sums = self.sums;
        // SAFETY: as the caller promises; elements inside lie in the image.
        unsafe {
            let mut weights = [[I::splat(0.0); 2]; TAPS];
            for (t, weights) in weights.iter_mut().enumerate() {
                for n in 0..N {
                    let at = at.wrapping_offset(row_stride * t as isize + col_stride * taps[n] as isize);
                    weights[n] = I::splat(at.cast::<f32>().read_unaligned());
                }
            }
            // Written out: compilers keep arrays of vectors in memory unless they unroll the loop.
            macro_rules! add_row {
                ($j:literal; $($r:literal)*) => {
                    if $j < (ROWS_OF_IMAGE - 1) * APART + TAPS {
                        let from = self.seen[$j].wrapping_add(first);
                        let x = match ALONG {
                            1 => [I::load_inside(from, columns.clone()); 2],
                            _ => I::load_apart(from, columns.clone()),
                        };
                        $(if $j >= $r * APART && $j < $r * APART + TAPS {
                            let weights = weights[$j - $r * APART];
                            sums[$r] = I::fma(x[0], weights[0], sums[$r]);
                            if N == 2 {
                                sums[$r] = I::fma(x[1], weights[1], sums[$r]);
                            }
                        })*
                    }
                };
            }
            macro_rules! add_rows {
                ($($j:literal)*) => {
                    $(add_row!($j; 0 1 2 3 4 5 6);)*
                };
            }
            add_rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        }
        self.sums = sums;
    }
}
