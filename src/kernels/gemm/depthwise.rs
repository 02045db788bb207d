//! Convolutions of one channel at a time, or of groups of few channels: a sum of few products for each
//! element, which is no product of matrices worth the name. Elements of the image go from memory to
//! registers, and sums to memory.
//!
//! Taps are added in their order, those of one place channel by channel, and those beyond the image are left
//! out.

use std::ops::Range;

use super::product::Matrix;
use super::windows::{ImageWindows, MAX_WINDOW_DIMS};
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
    /// Rows of taps, whose channels are contiguous. A tap has a row for each channel that an element sees.
    pub(crate) weights: Matrix,
    pub(crate) first: usize,
    /// Channels of a group.
    pub(crate) group: usize,
    /// Channels that each element of the result sees: all of its group, or one. If a channel of a group sees
    /// one, rows are those that it sees, and there is one window.
    pub(crate) seen: usize,
    pub(crate) extent: Extent,
    pub(crate) to: Target,
}

impl DepthwiseKernel {
    /// `None` if no kernel reads images of the type.
    pub(crate) fn new(level: Level, image: DataType) -> Option<Self> {
        Some(Self { level, image: RowType::of(image)? })
    }

    /// True if kernels sum up channels of f32 by groups of so many, several of which fill a vector; larger
    /// groups are products (decision: grouped-products).
    pub(crate) fn has_groups(group: usize, channels: usize) -> bool {
        matches!(group, 4 | 8) && channels.is_multiple_of(LANES)
    }

    /// Computes a tile whose rows are windows and whose columns are channels, which are contiguous in the
    /// image and in the weights. If groups have several channels, these are f32 and
    /// [`has_groups`](Self::has_groups) holds of the columns.
    ///
    /// # Safety
    ///
    /// The image and the weights can be read, the tile can be written, and overlaps neither; the machine runs
    /// the level.
    pub(crate) unsafe fn windows(self, tile: &DepthwiseTile<'_>) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, windows(tile, self.image)) }
    }
}

shells! {
    I:
    fn windows[](tile: &DepthwiseTile<'_>, image: RowType) {
        sum_windows::<I>(tile, image)
    }
}

/// The taps of a window that lie in the image.
struct TapsOfWindow {
    /// The number of each, and bytes to its element.
    taps: [(usize, isize); MAX_TAPS],
    count: usize,
}

impl TapsOfWindow {
    /// Those of some taps, the first of which has indices along the dims. Others follow without a division.
    #[inline(always)]
    fn new(
        windows: &ImageWindows,
        window: &[usize; MAX_WINDOW_DIMS],
        (of, mut indices): (Range<usize>, [usize; MAX_WINDOW_DIMS]),
    ) -> Self {
        let mut taps = Self { taps: [(0, 0); MAX_TAPS], count: 0 };
        let along = windows.axes[MAX_WINDOW_DIMS - 1];
        let mut tap = of.start;
        while tap < of.end {
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
            indices[MAX_WINDOW_DIMS - 1] = 0;
            windows.go_on(&mut indices, MAX_WINDOW_DIMS - 1);
        }
        taps
    }
}

/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_windows<I: Lanes>(tile: &DepthwiseTile<'_>, image: RowType) {
    // SAFETY: as the caller promises. Loops for types and groups that are known have no branches, which the
    // lowest level does without.
    unsafe {
        match (image, tile.group) {
            (RowType::F32, 1) if I::LEVEL != Level::Portable => sum_rows::<I, 1>(tile, RowType::F32),
            (_, 1) => sum_rows::<I, 1>(tile, image),
            (_, 4) => sum_rows::<I, 4>(tile, RowType::F32),
            _ => sum_rows::<I, 8>(tile, RowType::F32),
        }
    }
}

/// Some windows of a tile that have the same taps, at equal distances.
struct AlikeWindows<'a> {
    tile: &'a DepthwiseTile<'a>,
    image: RowType,
    /// The taps of the first window.
    taps: &'a [(usize, isize)],
    /// The windows as rows of the tile, and bytes from one to the next.
    rows: Range<usize>,
    step: isize,
    /// Rows are not windows, but channels of a group, each of which sees one.
    are_places: bool,
    /// The sums of earlier taps are in memory.
    accumulates: bool,
}

/// The indices of a tap along the dims; there may be no tap.
fn indices_of_tap(windows: &ImageWindows, tap: usize) -> [usize; MAX_WINDOW_DIMS] {
    if tap > 0 { windows.indices(tap, |axis| axis.taps) } else { [0; MAX_WINDOW_DIMS] }
}

/// `GROUP` is the number of channels of a group.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_rows<I: Lanes, const GROUP: usize>(tile: &DepthwiseTile<'_>, image: RowType) {
    let &DepthwiseTile { windows, first, extent, seen, .. } = tile;
    let (last, count) = (MAX_WINDOW_DIMS - 1, windows.taps());
    if GROUP > 1 && seen == 1 {
        // SAFETY: as the caller promises.
        return unsafe { sum_seen::<I, GROUP>(tile, count) };
    }
    let along = &windows.axes[last];
    let mut row = 0;
    while row < extent.rows {
        let mut window = windows.indices(first + row, |axis| axis.windows);
        let start = window[last];
        let run = start..along.windows.min(start + extent.rows - row);
        let whole = along.whole(run.clone());
        // Sums of no taps are zeros, which are written as well.
        for first_tap in (0..count.max(1)).step_by(MAX_TAPS) {
            let indices = indices_of_tap(windows, first_tap);
            window[last] = run.start;
            while window[last] < run.end {
                let of = first_tap..count.min(first_tap + MAX_TAPS);
                let taps = TapsOfWindow::new(windows, &window, (of, indices));
                let alike = if whole.contains(&window[last]) { whole.end - window[last] } else { 1 };
                let from = row + window[last] - start;
                let part = AlikeWindows {
                    tile,
                    image,
                    taps: &taps.taps[..taps.count],
                    rows: from..from + alike,
                    step: windows.lane_step(),
                    are_places: false,
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

/// The sums of one window, whose rows are channels that it sees.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_seen<I: Lanes, const GROUP: usize>(tile: &DepthwiseTile<'_>, count: usize) {
    for first_tap in (0..count.max(1)).step_by(MAX_TAPS) {
        let of = first_tap..count.min(first_tap + MAX_TAPS);
        let indices = indices_of_tap(tile.windows, first_tap);
        let taps = TapsOfWindow::new(tile.windows, &[0; MAX_WINDOW_DIMS], (of, indices));
        let part = AlikeWindows {
            tile,
            image: RowType::F32,
            taps: &taps.taps[..taps.count],
            rows: 0..tile.extent.rows,
            step: 0,
            are_places: true,
            accumulates: first_tap > 0,
        };
        // SAFETY: as the caller promises; taps lie in the image.
        unsafe { sum_alike::<I, GROUP>(&part) };
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
        if N > 2 && column + 2 * LANES <= columns {
            sum_block::<I, GROUP, ROWS, 2>(part, row, column);
            column += 2 * LANES;
        }
        while N > 1 && column + LANES <= columns {
            sum_block::<I, GROUP, ROWS, 1>(part, row, column);
            column += LANES;
        }
        // Groups of several channels fill vectors.
        if GROUP == 1 && column < columns {
            for row in row..row + ROWS {
                sum_rest::<I>(part, row, column);
            }
        }
    }
}

impl AlikeWindows<'_> {
    /// The image from the window of a row on.
    #[inline(always)]
    fn image_of(&self, row: usize) -> *const u8 {
        self.tile.image.wrapping_offset(self.step * (row - self.rows.start) as isize)
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
    let &DepthwiseTile { seen, to, .. } = part.tile;
    let seen = if GROUP == 1 { 1 } else { seen };
    let (step, size) = (part.step, part.image.bytes() as isize);
    let to = |w: usize, i: usize| to.row::<f32>(row + w).wrapping_add(column + i * LANES);
    let image = part.image_of(row).wrapping_offset(column as isize * size);
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
        // The place in its group of the channel that a row sees first.
        let (first, next) = if part.are_places { (part.tile.first + row, 1) } else { (0, 0) };
        for &(tap, offset) in part.taps {
            let from = image.wrapping_offset(offset);
            for place in 0..seen {
                let weights = part.weights_of(tap * seen + place, column);
                for i in 0..N {
                    let weight = I::load(weights.wrapping_add(i * LANES));
                    for w in 0..ROWS {
                        let from = from.wrapping_offset(step * w as isize + (i * LANES) as isize * size);
                        let x = match GROUP {
                            1 => load_at::<I>(from, part.image, 0),
                            _ => I::load_of_groups::<GROUP>(from.cast(), first + next * w + place),
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
