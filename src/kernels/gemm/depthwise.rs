//! Convolutions of one channel at a time: a sum of few products for each element, which is no product of
//! matrices worth the name. Elements of the image go from memory to registers, and sums to memory.
//!
//! Taps are added in their order, and those beyond the image are left out.

use std::ops::Range;

use super::product::Matrix;
use super::windows::{ImageRun, ImageWindows, MAX_WINDOW_DIMS};
use crate::kernels::isa::{at_level, shells};
use crate::kernels::vector::{LANES, Lanes, RowType, load_at, read_one};
use crate::kernels::{Extent, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Most taps whose places are kept at once.
const MAX_TAPS: usize = 64;

/// Windows whose sums are added up together, where these are in memory.
const WINDOWS: usize = 64;

/// Vectors of sums that are in registers at once.
const BLOCK: usize = 4;

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
    /// Rows of channels and columns of taps, or rows of taps, whose channels are contiguous.
    pub(crate) weights: Matrix,
    pub(crate) first: usize,
    pub(crate) extent: Extent,
    pub(crate) to: Target,
}

impl DepthwiseKernel {
    /// `None` if no kernel reads images of the type.
    pub(crate) fn new(level: Level, image: DataType) -> Option<Self> {
        Some(Self { level, image: RowType::of(image)? })
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
    /// image and in the weights.
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
    } or {
        masked::sum_channels(tile, image)
    }

    fn windows[](tile: &DepthwiseTile<'_>, image: RowType) {
        sum_windows::<I>(tile, image)
    }
}

/// # Safety
///
/// As [`DepthwiseKernel::channels`].
#[inline(always)]
unsafe fn sum_channels<I: Lanes>(tile: &DepthwiseTile<'_>, image: RowType) {
    let &DepthwiseTile { windows, weights, first, extent, to, .. } = tile;
    let lane_step = windows.lane_step();
    for row in 0..extent.rows {
        // SAFETY: as the caller promises.
        unsafe { to.row::<f32>(row).write_bytes(0, extent.columns) };
    }
    for column in (0..extent.columns).step_by(WINDOWS) {
        let of = first + column..first + extent.columns.min(column + WINDOWS);
        let (runs, count) = windows.runs::<WINDOWS>(of);
        for tap in 0..windows.taps() {
            let (pieces, pieces_count) = windows.pieces::<WINDOWS>(&runs[..count], tap);
            for row in 0..extent.rows {
                let from = tile.image.wrapping_offset(windows.channel_step * row as isize);
                let weight = weights.at.wrapping_offset(weights.row_stride * row as isize);
                let weight = weight.wrapping_offset(weights.col_stride * tap as isize).cast::<f32>();
                let to = to.row::<f32>(row).wrapping_add(column);
                // SAFETY: as the caller promises; pieces lie in the image.
                unsafe {
                    let weight = weight.read_unaligned();
                    for &ImageRun { column, count, offset } in &pieces[..pieces_count] {
                        let from = (from.wrapping_offset(offset), lane_step, image);
                        add_products::<I>(from, weight, count as usize, to.wrapping_add(column as usize));
                    }
                }
            }
        }
    }
}

/// Adds the products of a weight and of elements of the image, at equal distances, to sums.
///
/// # Safety
///
/// The elements can be read, the sums read and written.
#[inline(always)]
unsafe fn add_products<I: Lanes>(
    (from, step, image): (*const u8, isize, RowType),
    weight: f32,
    count: usize,
    to: *mut f32,
) {
    let is_contiguous = step == image.bytes() as isize;
    // SAFETY: as the caller promises.
    unsafe {
        let weight = I::splat(weight);
        for first in (0..count).step_by(LANES) {
            let lanes = LANES.min(count - first);
            let (from, to) = (from.wrapping_offset(step * first as isize), to.wrapping_add(first));
            let x = match is_contiguous {
                true if lanes == LANES => load_at::<I>(from, image, 0),
                true => I::load_part(from, image, lanes, 0.0),
                false => {
                    let mut x = [0.0; LANES];
                    for (lane, x) in x.iter_mut().enumerate().take(lanes) {
                        *x = read_one::<I>(from.wrapping_offset(step * lane as isize), image, 0);
                    }
                    I::load(x.as_ptr())
                }
            };
            match lanes == LANES {
                true => I::store(to, I::fma(x, weight, I::load(to))),
                false => I::store_first(to, lanes, I::fma(x, weight, I::load_first(to, lanes, 0.0))),
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
    let &DepthwiseTile { windows, weights, first, extent, to, .. } = tile;
    let count = windows.taps();
    for row in 0..extent.rows {
        let window = windows.indices(first + row, |axis| axis.windows);
        // Sums of no taps are zeros, which are written as well.
        for first_tap in (0..count.max(1)).step_by(MAX_TAPS) {
            let taps = TapsOfWindow::new(windows, &window, first_tap..count.min(first_tap + MAX_TAPS));
            let taps = &taps.taps[..taps.count];
            let sums = to.row::<f32>(row);
            let is_first = first_tap == 0;
            let mut column = 0;
            // SAFETY: as the caller promises; taps lie in the image.
            unsafe {
                while column + BLOCK * LANES <= extent.columns {
                    sum_block::<I, BLOCK>(tile.image, image, weights, taps, (sums, column), is_first);
                    column += BLOCK * LANES;
                }
                while column + LANES <= extent.columns {
                    sum_block::<I, 1>(tile.image, image, weights, taps, (sums, column), is_first);
                    column += LANES;
                }
                let rest = extent.columns - column;
                if rest > 0 {
                    let to = sums.wrapping_add(column);
                    let mut sum = if is_first { I::splat(0.0) } else { I::load_first(to, rest, 0.0) };
                    for &(tap, offset) in taps {
                        let from = tile.image.wrapping_offset(offset).wrapping_add(column * image.bytes());
                        let weight = weights.at.wrapping_offset(weights.row_stride * tap as isize);
                        let weight = I::load_first(weight.cast::<f32>().wrapping_add(column), rest, 0.0);
                        sum = I::fma(I::load_part(from, image, rest, 0.0), weight, sum);
                    }
                    I::store_first(to, rest, sum);
                }
            }
        }
    }
}

/// The sums of some vectors of channels.
///
/// # Safety
///
/// As [`DepthwiseKernel::windows`].
#[inline(always)]
unsafe fn sum_block<I: Lanes, const N: usize>(
    from: *const u8,
    image: RowType,
    weights: Matrix,
    taps: &[(usize, isize)],
    (to, column): (*mut f32, usize),
    is_first: bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let to = to.wrapping_add(column);
        let mut sums = [I::splat(0.0); N];
        if !is_first {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = I::load(to.wrapping_add(i * LANES));
            }
        }
        for &(tap, offset) in taps {
            let from = from.wrapping_offset(offset);
            let weight = weights.at.wrapping_offset(weights.row_stride * tap as isize).cast::<f32>();
            let weight = weight.wrapping_add(column);
            for (i, sum) in sums.iter_mut().enumerate() {
                let x = load_at::<I>(from, image, column + i * LANES);
                *sum = I::fma(x, I::load(weight.wrapping_add(i * LANES)), *sum);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            I::store(to.wrapping_add(i * LANES), sum);
        }
    }
}

/// Runs of any length are lanes of a mask, so that sums stay in registers for all taps.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod masked {
    use std::arch::x86_64::*;

    use super::{DepthwiseTile, Extent, ImageRun, LANES, MAX_TAPS, RowType};

    /// The lanes of a vector of windows that a tap has in one run of the image.
    #[derive(Clone, Copy)]
    struct TapRun {
        tap: u32,
        mask: u16,
        /// Bytes to the first lane of the vector, as if the run went on there.
        offset: isize,
    }

    /// # Safety
    ///
    /// As [`DepthwiseKernel::channels`](super::DepthwiseKernel::channels).
    #[inline(always)]
    pub(super) unsafe fn sum_channels(tile: &DepthwiseTile<'_>, image: RowType) {
        let &DepthwiseTile { windows, first, extent, .. } = tile;
        let (taps, lane_step) = (windows.taps(), windows.lane_step());
        let mut of_taps = [TapRun { tap: 0, mask: 0, offset: 0 }; MAX_TAPS * LANES];
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
                        of_taps[used] = TapRun { tap: tap as u32, mask, offset };
                        used += 1;
                    }
                }
                let part = Extent { rows: extent.rows, columns: lanes };
                // SAFETY: as the caller promises; lanes of a mask lie in the image.
                unsafe { sum_vector(tile, image, (column, part), &of_taps[..used], first_tap > 0) };
            }
        }
    }

    /// The sums of a vector of windows, for all channels.
    ///
    /// # Safety
    ///
    /// As [`sum_channels`].
    #[inline(always)]
    unsafe fn sum_vector(
        tile: &DepthwiseTile<'_>,
        image: RowType,
        (column, Extent { rows, columns }): (usize, Extent),
        taps: &[TapRun],
        accumulate: bool,
    ) {
        let &DepthwiseTile { windows, weights, to, .. } = tile;
        let lane_step = windows.lane_step();
        let is_contiguous = lane_step == image.bytes() as isize;
        let written = (u32::MAX >> (32 - columns)) as u16;
        // SAFETY: as the caller promises; lanes outside of a mask are neither read nor written.
        unsafe {
            let steps: [i32; LANES] = std::array::from_fn(|lane| lane as i32 * lane_step as i32);
            let steps = _mm512_loadu_si512(steps.as_ptr().cast());
            for row in 0..rows {
                let from = tile.image.wrapping_offset(windows.channel_step * row as isize);
                let of_row = weights.at.wrapping_offset(weights.row_stride * row as isize);
                let to = to.row::<f32>(row).wrapping_add(column);
                let mut sum = match accumulate {
                    true => _mm512_maskz_loadu_ps(written, to),
                    false => _mm512_setzero_ps(),
                };
                for &TapRun { tap, mask, offset } in taps {
                    let at = from.wrapping_offset(offset);
                    let weight = of_row.wrapping_offset(weights.col_stride * tap as isize);
                    let weight = _mm512_set1_ps(weight.cast::<f32>().read_unaligned());
                    let x = match (is_contiguous, image) {
                        (true, RowType::F32) => _mm512_maskz_loadu_ps(mask, at.cast()),
                        (true, _) => widen(image, _mm256_maskz_loadu_epi16(mask, at.cast())),
                        (false, RowType::F32) if lane_step.unsigned_abs() < 1 << 24 => {
                            _mm512_mask_i32gather_ps::<1>(_mm512_setzero_ps(), mask, steps, at.cast())
                        }
                        (false, RowType::F32) => {
                            let mut x = [0.0f32; LANES];
                            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                                x[lane] = at
                                    .wrapping_offset(lane_step * lane as isize)
                                    .cast::<f32>()
                                    .read_unaligned();
                            }
                            _mm512_loadu_ps(x.as_ptr())
                        }
                        (false, _) => {
                            let mut x = [0u16; LANES];
                            for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                                x[lane] = at
                                    .wrapping_offset(lane_step * lane as isize)
                                    .cast::<u16>()
                                    .read_unaligned();
                            }
                            widen(image, _mm256_loadu_si256(x.as_ptr().cast()))
                        }
                    };
                    sum = _mm512_mask3_fmadd_ps(x, weight, sum, mask);
                }
                _mm512_mask_storeu_ps(to, written, sum);
            }
        }
    }

    /// # Safety
    ///
    /// The machine runs level Avx512.
    #[inline(always)]
    unsafe fn widen(image: RowType, x: __m256i) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            match image {
                RowType::Bf16 => _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x))),
                _ => _mm512_cvtph_ps(x),
            }
        }
    }
}
