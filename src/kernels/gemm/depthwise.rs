//! Convolutions of one channel at a time, or of groups of few channels: a sum of few products for each
//! element, which is no product of matrices worth the name. Elements of the image go from memory to
//! registers, and sums to memory.
//!
//! Taps are added in their order, those of one place channel by channel, and those beyond the image are left
//! out.

use std::ops::Range;

use super::product::Matrix;
use super::windows::{ImageRun, ImageWindows, MAX_WINDOW_DIMS};
use crate::kernels::isa::{at_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, load_at};
use crate::kernels::{Extent, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Most taps whose places are kept at once.
const MAX_TAPS: usize = 64;

/// Vectors of sums of a window that are in registers at once.
const BLOCK: usize = 4;

/// Windows whose sums are in registers at once, so that a weight is read for all of them.
const WINDOW_BLOCK: usize = 4;

/// The kernels of a level for images of a type. Weights and sums are f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DepthwiseKernel {
    level: Level,
    image: RowType,
}

/// A part of a convolution: the windows from one on, and of channels as many as the tile has.
#[derive(Clone, Copy)]
pub(crate) struct DepthwiseTile<'a> {
    pub(crate) windows: &'a ImageWindows,
    /// The first channel of the image.
    pub(crate) image: *const u8,
    /// Rows of channels and columns of taps, or rows of taps, whose channels are contiguous. A tap has a row
    /// for each channel of a group.
    pub(crate) weights: Matrix,
    pub(crate) first: usize,
    /// Channels of a group, all of which each of its results sees.
    pub(crate) group: usize,
    /// Channels of the first group that lie in front of the tile.
    pub(crate) before: usize,
    pub(crate) extent: Extent,
    pub(crate) to: Target,
}

impl DepthwiseKernel {
    /// `None` if no kernel reads images of the type.
    pub(crate) fn new(level: Level, image: DataType) -> Option<Self> {
        Some(Self { level, image: RowType::of(image)? })
    }

    /// True if kernels sum up channels of f32 by groups of so many. Several groups fill a vector, or several
    /// vectors a group.
    pub(crate) fn has_groups(group: usize, channels: usize) -> bool {
        matches!(group, 4 | 8 | LANES | 32) && channels.is_multiple_of(LANES)
    }

    /// Computes a tile whose rows are channels and whose columns are windows.
    ///
    /// # Safety
    ///
    /// The image and the weights can be read, the tile can be written, and overlaps neither; the machine runs
    /// the level.
    pub(crate) unsafe fn channels(self, tile: &DepthwiseTile<'_>) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, channels(tile, self.image)) }
    }

    /// Computes a tile whose rows are windows and whose columns are channels, which are contiguous in the
    /// image and in the weights. If groups have several channels, these are f32 and
    /// [`has_groups`](Self::has_groups) holds of the columns.
    ///
    /// # Safety
    ///
    /// As [`channels`](Self::channels).
    pub(crate) unsafe fn windows(self, tile: &DepthwiseTile<'_>) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, windows(tile, self.image)) }
    }
}

shells! {
    I:
    fn channels[](tile: &DepthwiseTile<'_>, image: RowType) {
        sum_channels::<I>(tile, image)
    }

    fn windows[](tile: &DepthwiseTile<'_>, image: RowType) {
        sum_windows::<I>(tile, image)
    }
}

/// The lanes of a vector of windows that a tap has in one run of the image.
#[derive(Clone, Copy)]
struct TapRun {
    mask: u16,
    tap: u32,
    /// Bytes to the first lane of the vector, as if the run went on there.
    offset: isize,
}

/// Runs of any length are lanes of a mask, so that sums stay in registers for all taps.
///
/// # Safety
///
/// As [`DepthwiseKernel::channels`].
#[inline(always)]
unsafe fn sum_channels<I: Lanes>(tile: &DepthwiseTile<'_>, image: RowType) {
    let &DepthwiseTile { windows, first, extent, .. } = tile;
    let (taps, lane_step) = (windows.taps(), windows.lane_step());
    let mut of_taps = [TapRun { mask: 0, tap: 0, offset: 0 }; MAX_TAPS * LANES];
    for column in (0..extent.columns).step_by(LANES) {
        let lanes = LANES.min(extent.columns - column);
        let (runs, count) = windows.runs::<LANES>(first + column..first + column + lanes);
        // Sums of no taps are zeros, which are written as well.
        for first_tap in (0..taps.max(1)).step_by(MAX_TAPS) {
            let mut used = 0;
            for tap in first_tap..taps.min(first_tap + MAX_TAPS) {
                let (pieces, pieces_count) = windows.pieces::<LANES>(&runs[..count], tap);
                for &ImageRun { column, count, offset } in &pieces[..pieces_count] {
                    let mask = (((1u32 << count) - 1) << column) as u16;
                    let offset = offset - column as isize * lane_step;
                    of_taps[used] = TapRun { mask, tap: tap as u32, offset };
                    used += 1;
                }
            }
            let part = Extent { rows: extent.rows, columns: lanes };
            // SAFETY: as the caller promises; lanes of a mask lie in the image. Loops for types and distances
            // that are known have no branches.
            unsafe {
                let runs = (&of_taps[..used], first_tap > 0);
                match image {
                    RowType::F32 if lane_step == 4 => {
                        sum_vector::<I>(tile, (RowType::F32, 4), (column, part), runs);
                    }
                    _ => sum_vector::<I>(tile, (image, lane_step), (column, part), runs),
                }
            }
        }
    }
}

/// The sums of a vector of windows, for all channels. The sums of earlier taps are in memory if it
/// accumulates.
///
/// # Safety
///
/// As [`DepthwiseKernel::channels`].
#[inline(always)]
unsafe fn sum_vector<I: Lanes>(
    tile: &DepthwiseTile<'_>,
    (image, lane_step): (RowType, isize),
    (column, Extent { rows, columns }): (usize, Extent),
    (taps, accumulates): (&[TapRun], bool),
) {
    let &DepthwiseTile { windows, weights, to, .. } = tile;
    let is_contiguous = lane_step == image.bytes() as isize;
    for row in 0..rows {
        let from = tile.image.wrapping_offset(windows.channel_step * row as isize);
        let of_row = weights.at.wrapping_offset(weights.row_stride * row as isize);
        let to = to.row::<f32>(row).wrapping_add(column);
        // SAFETY: as the caller promises; lanes outside of a mask are neither read nor written.
        unsafe {
            let mut sum = match accumulates {
                true if columns == LANES => I::load(to),
                true => I::load_first(to, columns, 0.0),
                false => I::splat(0.0),
            };
            for &TapRun { mask, tap, offset } in taps {
                let at = from.wrapping_offset(offset);
                let weight = of_row.wrapping_offset(weights.col_stride * tap as isize);
                let weight = I::splat(weight.cast::<f32>().read_unaligned());
                sum = match mask == u16::MAX {
                    true if is_contiguous => I::fma(load_at::<I>(at, image, 0), weight, sum),
                    _ => {
                        let x = I::load_lanes(at, lane_step, image, mask);
                        I::replaced(sum, mask, I::fma(x, weight, sum))
                    }
                };
            }
            match columns == LANES {
                true => I::store(to, sum),
                false => I::store_first(to, columns, sum),
            }
        }
    }
}

/// The taps of a window that lie in the image.
struct TapsOfWindow {
    /// The number of each, and bytes to its element.
    taps: [(usize, isize); MAX_TAPS],
    count: usize,
}

impl TapsOfWindow {
    /// Those of some taps.
    #[inline(always)]
    fn new(windows: &ImageWindows, window: &[usize; MAX_WINDOW_DIMS], of: Range<usize>) -> Self {
        let mut taps = Self { taps: [(0, 0); MAX_TAPS], count: 0 };
        let along = windows.axes[MAX_WINDOW_DIMS - 1];
        let mut tap = of.start;
        while tap < of.end {
            let indices = windows.indices(tap, |axis| axis.taps);
            let first = indices[MAX_WINDOW_DIMS - 1];
            let end = along.taps.min(first + of.end - tap);
            if let Some(outer) = windows.outer_offset(window, &indices) {
                let start = along.start + (window[MAX_WINDOW_DIMS - 1] * along.stride) as isize;
                for inside in along.inside(start, along.dilation, first..end) {
                    let place = start + inside as isize * along.dilation;
                    taps.taps[taps.count] = (tap + inside - first, outer + place * along.step);
                    taps.count += 1;
                }
            }
            tap += end - first;
        }
        taps
    }
}

/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_windows<I: Lanes>(tile: &DepthwiseTile<'_>, image: RowType) {
    // SAFETY: as the caller promises. Loops for types and groups that are known have no branches.
    unsafe {
        match (image, tile.group) {
            (RowType::F32, 1) => sum_rows::<I, 1>(tile, RowType::F32),
            (_, 1) => sum_rows::<I, 1>(tile, image),
            (_, 4) => sum_rows::<I, 4>(tile, RowType::F32),
            (_, 8) => sum_rows::<I, 8>(tile, RowType::F32),
            _ => sum_rows::<I, LANES>(tile, RowType::F32),
        }
    }
}

/// Some windows of a tile that have the same taps, at equal distances.
struct AlikeWindows<'a> {
    tile: &'a DepthwiseTile<'a>,
    image: RowType,
    /// The taps of the first window.
    taps: &'a [(usize, isize)],
    /// The windows as rows of the tile.
    rows: Range<usize>,
    /// The sums of earlier taps are in memory.
    accumulates: bool,
}

/// `GROUP` is the number of channels of a group, or that of lanes if groups have so many, or a multiple.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_rows<I: Lanes, const GROUP: usize>(tile: &DepthwiseTile<'_>, image: RowType) {
    let &DepthwiseTile { windows, first, extent, .. } = tile;
    let (last, count) = (MAX_WINDOW_DIMS - 1, windows.taps());
    let along = &windows.axes[last];
    let mut row = 0;
    while row < extent.rows {
        let mut window = windows.indices(first + row, |axis| axis.windows);
        let start = window[last];
        let run = start..along.windows.min(start + extent.rows - row);
        let whole = along.whole(run.clone());
        // Sums of no taps are zeros, which are written as well.
        for first_tap in (0..count.max(1)).step_by(MAX_TAPS) {
            window[last] = run.start;
            while window[last] < run.end {
                let taps = TapsOfWindow::new(windows, &window, first_tap..count.min(first_tap + MAX_TAPS));
                let alike = if whole.contains(&window[last]) { whole.end - window[last] } else { 1 };
                let from = row + window[last] - start;
                let part = AlikeWindows {
                    tile,
                    image,
                    taps: &taps.taps[..taps.count],
                    rows: from..from + alike,
                    accumulates: first_tap > 0,
                };
                // SAFETY: as the caller promises; taps lie in the image.
                unsafe { sum_alike::<I, GROUP>(&part) };
                window[last] += alike;
            }
        }
        row += run.len();
    }
}

/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_alike<I: Lanes, const GROUP: usize>(part: &AlikeWindows<'_>) {
    let mut row = part.rows.start;
    // SAFETY: as the caller promises.
    unsafe {
        // Sums of more registers hide how long an addition takes.
        if I::REGISTERS == 1 {
            while row + 2 * WINDOW_BLOCK <= part.rows.end {
                sum_columns::<I, GROUP, { 2 * WINDOW_BLOCK }, 1>(part, row);
                row += 2 * WINDOW_BLOCK;
            }
        }
        while row + WINDOW_BLOCK <= part.rows.end {
            sum_columns::<I, GROUP, WINDOW_BLOCK, 1>(part, row);
            row += WINDOW_BLOCK;
        }
        while row < part.rows.end {
            sum_columns::<I, GROUP, 1, BLOCK>(part, row);
            row += 1;
        }
    }
}

/// The sums of all columns of some windows, from one on.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_columns<I: Lanes, const GROUP: usize, const ROWS: usize, const N: usize>(
    part: &AlikeWindows<'_>,
    row: usize,
) {
    let columns = part.tile.extent.columns;
    let mut column = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while column + N * LANES <= columns {
            sum_block::<I, GROUP, ROWS, N>(part, row, column);
            column += N * LANES;
        }
        while N > 1 && column + LANES <= columns {
            sum_block::<I, GROUP, ROWS, 1>(part, row, column);
            column += LANES;
        }
        // Groups of several channels fill vectors.
        if GROUP == 1 && column < columns {
            (row..row + ROWS).for_each(|row| sum_rest::<I>(part, row, column));
        }
    }
}

impl AlikeWindows<'_> {
    /// The image from the window of a row on.
    #[inline(always)]
    fn image_of(&self, row: usize) -> *const u8 {
        self.tile.image.wrapping_offset(self.tile.windows.lane_step() * (row - self.rows.start) as isize)
    }

    /// The weights of a place along the depth from a column on.
    #[inline(always)]
    fn weights_of(&self, depth: usize, column: usize) -> *const f32 {
        let Matrix { at, row_stride, .. } = self.tile.weights;
        at.wrapping_offset(row_stride * depth as isize).cast::<f32>().wrapping_add(column)
    }
}

/// The sums of some vectors of channels of some windows.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the loops run over rows and vectors, not over an array")]
unsafe fn sum_block<I: Lanes, const GROUP: usize, const ROWS: usize, const N: usize>(
    part: &AlikeWindows<'_>,
    row: usize,
    column: usize,
) {
    let &DepthwiseTile { windows, group, before, to, .. } = part.tile;
    let (step, size) = (windows.lane_step(), part.image.bytes() as isize);
    let to = |w: usize, i: usize| to.row::<f32>(row + w).wrapping_add(column + i * LANES);
    // The first channel that a vector reads.
    let channel = |i: usize| {
        let column = column + i * LANES;
        let first = if GROUP < LANES { column } else { (before + column) / group * group };
        first as isize - if GROUP < LANES { 0 } else { before as isize }
    };
    let channels: [isize; N] = std::array::from_fn(channel);
    let image = part.image_of(row);
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[I::splat(0.0); N]; ROWS];
        if part.accumulates {
            for w in 0..ROWS {
                for i in 0..N {
                    sums[w][i] = I::load(to(w, i));
                }
            }
        }
        for &(tap, offset) in part.taps {
            let from = image.wrapping_offset(offset);
            for place in 0..if GROUP < LANES { GROUP } else { group } {
                let weights = part.weights_of(tap * group + place, column);
                for i in 0..N {
                    let weight = I::load(weights.wrapping_add(i * LANES));
                    for w in 0..ROWS {
                        let from = from.wrapping_offset(step * w as isize + channels[i] * size);
                        let x = match GROUP {
                            1 => load_at::<I>(from, part.image, 0),
                            _ => I::load_of_groups::<GROUP>(from.cast(), place),
                        };
                        sums[w][i] = I::fma(x, weight, sums[w][i]);
                    }
                }
            }
        }
        for w in 0..ROWS {
            for i in 0..N {
                I::store(to(w, i), sums[w][i]);
            }
        }
    }
}

/// The sums of the last channels of a window, which fill no vector.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_rest<I: Lanes>(part: &AlikeWindows<'_>, row: usize, column: usize) {
    let (rest, image) = (part.tile.extent.columns - column, part.image_of(row));
    let to = part.tile.to.row::<f32>(row).wrapping_add(column);
    // SAFETY: as the caller promises.
    unsafe {
        let mut sum = if part.accumulates { I::load_first(to, rest, 0.0) } else { I::splat(0.0) };
        for &(tap, offset) in part.taps {
            let from = image.wrapping_offset(offset).wrapping_add(column * part.image.bytes());
            let weight = I::load_first(part.weights_of(tap, column), rest, 0.0);
            sum = I::fma(I::load_part(from, part.image, rest, 0.0), weight, sum);
        }
        I::store_first(to, rest, sum);
    }
}
