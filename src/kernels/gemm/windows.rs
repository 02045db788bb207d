//! The windows of an image as an operand of a product, gathered block by block: a window is a row of the left
//! operand or a column of the right one. Elements beyond the image have a fill value.
//!
//! No table of offsets is as large as the operand: the geometry of a tap is found once for all channels, and
//! that of a window once for all elements that lie next to each other.

use std::ops::Range;

use crate::kernels::by_width::{ByWidth, kernel};
use crate::kernels::simd::LaneBits;
use crate::kernels::{Extent, Source, Target, Width};
use crate::types::kind::Level;

/// Most dims along which windows lie: those of space, and the batch.
pub(crate) const MAX_WINDOW_DIMS: usize = 4;

/// Most windows that are gathered at once as columns: those of the widest panel.
const MAX_COLUMNS: usize = 64;

/// A dim along which windows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowAxis {
    /// Number of windows.
    pub(crate) windows: usize,
    /// Elements of a window.
    pub(crate) taps: usize,
    /// Elements of the image.
    pub(crate) image: usize,
    /// Elements of the image from one window to the next, and from one tap to the next, which may lie before
    /// it.
    pub(crate) stride: usize,
    pub(crate) dilation: isize,
    /// Place of the first tap of the first window; negative in front of the image.
    pub(crate) start: isize,
    /// Bytes from one element of the image to the next.
    pub(crate) step: isize,
}

impl WindowAxis {
    /// A dim without an extent.
    pub(crate) const ONE: Self =
        Self { windows: 1, taps: 1, image: 1, stride: 1, dilation: 1, start: 0, step: 0 };

    /// The place in the image of a tap of a window, if the image has it.
    #[inline(always)]
    fn place(&self, window: usize, tap: usize) -> Option<isize> {
        let place = self.start + (window * self.stride) as isize + tap as isize * self.dilation;
        (0..self.image as isize).contains(&place).then_some(place)
    }

    /// Those of some indices whose places, a number of elements apart, lie in the image; `start` is the place
    /// of index 0.
    #[inline(always)]
    pub(super) fn inside(&self, start: isize, apart: isize, indices: Range<usize>) -> Range<usize> {
        // Places that go down are counted from the end of the image.
        let start = if apart < 0 { self.image as isize - 1 - start } else { start };
        let apart = apart.unsigned_abs();
        let count = |end: isize| match usize::try_from(end - start) {
            // Most are neighbours, and a division takes longer than the rest.
            Ok(distance) if apart == 1 => distance,
            Ok(distance) if distance > 0 => (distance - 1) / apart + 1,
            _ => 0,
        };
        let first = count(0).clamp(indices.start, indices.end);
        first..count(self.image as isize).clamp(first, indices.end)
    }

    /// Those of some windows whose taps all lie in the image.
    #[inline(always)]
    pub(super) fn whole(&self, windows: Range<usize>) -> Range<usize> {
        let last_tap = self.start + self.taps.saturating_sub(1) as isize * self.dilation;
        let of_first = self.inside(self.start, self.stride as isize, windows.clone());
        let of_last = self.inside(last_tap, self.stride as isize, windows);
        let start = of_first.start.max(of_last.start);
        start..of_first.end.min(of_last.end).max(start)
    }
}

/// The windows of an image with channels. The depth of the product goes through taps and channels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageWindows {
    /// The outermost dim first.
    pub(crate) axes: [WindowAxis; MAX_WINDOW_DIMS],
    pub(crate) channels: usize,
    /// Bytes from one channel to the next.
    pub(crate) channel_step: isize,
    /// The depth goes through all channels of a tap before it goes to the next tap; otherwise through all
    /// taps of a channel.
    pub(crate) channels_inside: bool,
    pub(crate) width: Width,
    /// Each byte of an element beyond the image.
    pub(crate) fill: u8,
}

/// ImageWindows that follow each other along the last dim.
#[derive(Clone, Copy)]
pub(super) struct WindowRun {
    /// The first one as a column, and their number.
    column: usize,
    count: usize,
    /// The first one along each dim.
    window: [usize; MAX_WINDOW_DIMS],
}

/// Columns whose elements lie in the image at equal distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageRun {
    pub(super) column: u32,
    pub(super) count: u32,
    /// Bytes to the first element.
    pub(super) offset: isize,
}

impl ImageWindows {
    pub(super) fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.taps).product()
    }

    /// The index along each dim of a number that counts the last dim first.
    #[inline(always)]
    pub(super) fn indices(
        &self,
        mut number: usize,
        extent: impl Fn(&WindowAxis) -> usize,
    ) -> [usize; MAX_WINDOW_DIMS] {
        let mut indices = [0; MAX_WINDOW_DIMS];
        for (index, axis) in indices.iter_mut().zip(&self.axes).rev() {
            let extent = extent(axis);
            (*index, number) = (number % extent, number / extent);
        }
        indices
    }

    /// Goes to the next tap along the first dims; false, and to the first one, behind the last.
    #[inline(always)]
    pub(super) fn go_on(&self, tap: &mut [usize; MAX_WINDOW_DIMS], dims: usize) -> bool {
        for (index, axis) in tap[..dims].iter_mut().zip(&self.axes).rev() {
            *index += 1;
            if *index < axis.taps {
                return true;
            }
            *index = 0;
        }
        false
    }

    /// Bytes to an element of a window along all dims but the last; `None` if it lies beyond the image.
    #[inline(always)]
    pub(super) fn outer_offset(
        &self,
        window: &[usize; MAX_WINDOW_DIMS],
        tap: &[usize; MAX_WINDOW_DIMS],
    ) -> Option<isize> {
        let outer = self.axes[..MAX_WINDOW_DIMS - 1].iter().zip(window).zip(tap);
        let mut offset = 0;
        for ((axis, &window), &tap) in outer {
            offset += axis.place(window, tap)? * axis.step;
        }
        Some(offset)
    }

    /// Bytes to a window along all dims but the last two, which have one tap; `None` if it lies beyond the
    /// image.
    #[inline(always)]
    pub(super) fn outermost_offset(&self, window: &[usize; MAX_WINDOW_DIMS]) -> Option<isize> {
        let mut offset = 0;
        for (axis, &window) in self.axes[..MAX_WINDOW_DIMS - 2].iter().zip(window) {
            offset += axis.place(window, 0)? * axis.step;
        }
        Some(offset)
    }

    /// The channels that have an element of a tap in a part of the depth, and the row of the first of them.
    fn rows_of_tap(&self, tap: usize, taps: usize, depth: &Range<usize>) -> (Range<usize>, usize) {
        let (first, apart) = match self.channels_inside {
            true => (tap * self.channels, 1),
            false => (tap, taps),
        };
        let channels = |end: usize| end.saturating_sub(first).div_ceil(apart).min(self.channels);
        let of_tap = channels(depth.start)..channels(depth.end);
        let row = (first + of_tap.start * apart).saturating_sub(depth.start);
        (of_tap, row)
    }

    /// Gathers windows as columns: a row for each element of a part of the depth. A row is filled up to a
    /// number of columns.
    ///
    /// # Safety
    ///
    /// `at` is the image, whose elements can be read. There are no more than [`MAX_COLUMNS`] windows, and
    /// rows of `columns` elements can be written, at least as many. Nothing overlaps, and the machine runs
    /// the level.
    pub(crate) unsafe fn as_columns(
        &self,
        level: Level,
        at: *const u8,
        depth: Range<usize>,
        windows: Range<usize>,
        (to, columns): (Target, usize),
    ) {
        let (runs, count) = self.runs::<MAX_COLUMNS>(windows);
        let gather = COLUMNS.get(level, self.width);
        let taps = self.taps();
        let target = (to, columns);
        if !self.channels_inside && self.axes[MAX_WINDOW_DIMS - 1].taps == 1 && taps > self.channels {
            // SAFETY: as the caller promises.
            return unsafe { self.taps_as_rows((gather, at), depth, &runs[..count], target) };
        }
        if !self.channels_inside && taps > depth.len() {
            // SAFETY: as the caller promises.
            return unsafe { self.single_rows((gather, at), depth, &runs[..count], target) };
        }
        let of_depth = match self.channels_inside {
            true => depth.start / self.channels.max(1)..depth.end.div_ceil(self.channels.max(1)),
            false => 0..taps,
        };
        let lane_step = self.lane_step();
        for tap in of_depth {
            let (channels, row) = self.rows_of_tap(tap, taps, &depth);
            if channels.is_empty() {
                continue;
            }
            let tap = self.indices(tap, |axis| axis.taps);
            let (pieces, count) = self.pieces::<MAX_COLUMNS>(&runs[..count], &tap);
            let from = Source {
                at: at.wrapping_offset(self.channel_step * channels.start as isize),
                row_stride: self.channel_step,
            };
            let apart = if self.channels_inside { 1 } else { taps as isize };
            let to = Target { row_stride: to.row_stride * apart, ..to.at_row(row) };
            let extent = Extent { rows: channels.len(), columns };
            // SAFETY: pieces lie in the image, and the rows in the target.
            unsafe { gather(&pieces[..count], extent, from, lane_step, to, self.fill) };
        }
    }

    /// Gathers columns row by row, because a part of the depth has less rows than a window has taps.
    ///
    /// # Safety
    ///
    /// As [`as_columns`](Self::as_columns), for the runs of its windows.
    unsafe fn single_rows(
        &self,
        (gather, at): (GatherColumns, *const u8),
        depth: Range<usize>,
        runs: &[WindowRun],
        (to, columns): (Target, usize),
    ) {
        let (taps, lane_step) = (self.taps(), self.lane_step());
        let (mut channel, mut tap) = (depth.start / taps, self.indices(depth.start % taps, |axis| axis.taps));
        for row in 0..depth.len() {
            let (pieces, count) = self.pieces::<MAX_COLUMNS>(runs, &tap);
            let of_row = channel;
            channel += usize::from(!self.go_on(&mut tap, MAX_WINDOW_DIMS));
            let from = Source { at: at.wrapping_offset(self.channel_step * of_row as isize), row_stride: 0 };
            let extent = Extent { rows: 1, columns };
            // SAFETY: pieces lie in the image, and the row in the target.
            unsafe { gather(&pieces[..count], extent, from, lane_step, to.at_row(row), self.fill) };
        }
    }

    /// Gathers columns whose last dim has no taps: taps that follow each other along another dim are rows at
    /// equal distances in the image, of which those in the middle are within it for a whole run of columns.
    ///
    /// # Safety
    ///
    /// As [`as_columns`](Self::as_columns), for the runs of its windows.
    unsafe fn taps_as_rows(
        &self,
        (gather, at): (GatherColumns, *const u8),
        depth: Range<usize>,
        runs: &[WindowRun],
        (to, columns): (Target, usize),
    ) {
        let (taps, lane_step, width) = (self.taps(), self.lane_step(), self.width.bytes());
        let dim = self.axes.iter().rposition(|axis| axis.taps > 1).unwrap_or(0);
        let along = self.axes[dim];
        let mut done = depth.start;
        while done < depth.end {
            let (channel, mut tap) = (done / taps, self.indices(done % taps, |axis| axis.taps));
            let of = tap[dim]..along.taps.min(tap[dim] + depth.end - done);
            let rows = to.at_row(done - depth.start);
            done += of.len();
            for (index, run) in runs.iter().enumerate() {
                let end = if index + 1 == runs.len() { columns } else { run.column + run.count };
                let to = Target { at: rows.at.wrapping_add(run.column * width), ..rows };
                let fill = |rows: Range<usize>| {
                    let extent = Extent { rows: rows.len(), columns: end - run.column };
                    let from = Source { at, row_stride: 0 };
                    // SAFETY: nothing is read; the rows are those of the target.
                    unsafe {
                        gather(&[], extent, from, lane_step, to.at_row(rows.start - of.start), self.fill);
                    }
                };
                let start = along.start + (run.window[dim] * along.stride) as isize;
                let inside = along.inside(start, along.dilation, of.clone());
                tap[dim] = inside.start;
                let piece = if inside.is_empty() { None } else { self.piece(run, &tap) };
                let Some(piece) = piece else {
                    fill(of.clone());
                    continue;
                };
                let piece = ImageRun { column: piece.column - run.column as u32, ..piece };
                let extent = Extent { rows: inside.len(), columns: end - run.column };
                let from = Source {
                    at: at.wrapping_offset(self.channel_step * channel as isize),
                    row_stride: along.dilation * along.step,
                };
                fill(of.start..inside.start);
                // SAFETY: the piece lies in the image for all taps inside, and the rows in the target.
                unsafe {
                    let to = to.at_row(inside.start - of.start);
                    gather(&[piece], extent, from, lane_step, to, self.fill);
                }
                fill(inside.end..of.end);
            }
        }
    }

    /// Bytes from a window to the next one along the last dim.
    pub(super) fn lane_step(&self) -> isize {
        let along = self.axes[MAX_WINDOW_DIMS - 1];
        along.stride as isize * along.step
    }

    /// The runs of some windows, no more than `N`, and their number.
    #[inline(always)]
    pub(super) fn runs<const N: usize>(&self, windows: Range<usize>) -> ([WindowRun; N], usize) {
        let mut runs = [WindowRun { column: 0, count: 0, window: [0; MAX_WINDOW_DIMS] }; N];
        let (mut count, mut window) = (0, windows.start);
        while window < windows.end {
            let of_first = self.indices(window, |axis| axis.windows);
            let left = self.axes[MAX_WINDOW_DIMS - 1].windows - of_first[MAX_WINDOW_DIMS - 1];
            let of_run = left.min(windows.end - window);
            runs[count] = WindowRun { column: window - windows.start, count: of_run, window: of_first };
            (count, window) = (count + 1, window + of_run);
        }
        (runs, count)
    }

    /// The parts of runs, no more than `N`, that a tap has in the image, and their number.
    #[inline(always)]
    fn pieces<const N: usize>(
        &self,
        runs: &[WindowRun],
        tap: &[usize; MAX_WINDOW_DIMS],
    ) -> ([ImageRun; N], usize) {
        let (mut pieces, mut count) = ([ImageRun { column: 0, count: 0, offset: 0 }; N], 0);
        for run in runs {
            if let Some(piece) = self.piece(run, tap) {
                pieces[count] = piece;
                count += 1;
            }
        }
        (pieces, count)
    }

    /// The part of a run that a tap has in the image.
    #[inline(always)]
    fn piece(&self, run: &WindowRun, tap: &[usize; MAX_WINDOW_DIMS]) -> Option<ImageRun> {
        let last = MAX_WINDOW_DIMS - 1;
        let along = &self.axes[last];
        let outer = self.outer_offset(&run.window, tap)?;
        let start = along.start + tap[last] as isize * along.dilation;
        let first = run.window[last];
        let inside = along.inside(start, along.stride as isize, first..first + run.count);
        let place = start + (inside.start * along.stride) as isize;
        (!inside.is_empty()).then(|| ImageRun {
            column: (run.column + inside.start - first) as u32,
            count: inside.len() as u32,
            offset: outer + place * along.step,
        })
    }
}

/// Copies pieces of a row to their columns, and fills the other columns: for each row of the extent, at the
/// row strides of source and target.
///
/// # Safety
///
/// Pieces are in order, and lie within the columns. Their elements can be read, all columns of all rows can
/// be written, no more than [`MAX_COLUMNS`]. Nothing overlaps, and the machine runs the level.
type GatherColumns =
    unsafe fn(pieces: &[ImageRun], extent: Extent, from: Source, lane_step: isize, to: Target, fill: u8);

static COLUMNS: ByWidth<GatherColumns> = kernel!(
    (pieces: &[ImageRun], extent: Extent, from: Source, lane_step: isize, to: Target, fill: u8),
    bodies::columns[],
    masked::columns[]
);

mod bodies {
    use std::ops::Range;

    use super::{Extent, ImageRun, LaneBits, Source, Target};
    use crate::kernels::gemm::window_bytes::{copy_bytes, fill_bytes};

    /// # Safety
    ///
    /// As [`GatherColumns`](super::GatherColumns).
    #[inline(always)]
    pub(super) unsafe fn columns<U: LaneBits>(
        pieces: &[ImageRun],
        extent: Extent,
        from: Source,
        lane_step: isize,
        to: Target,
        fill: u8,
    ) {
        let is_contiguous = lane_step == size_of::<U>() as isize;
        for row in 0..extent.rows {
            let (from, to) = (from.at_row(row).at, to.row::<U>(row));
            let fill = |columns: Range<usize>| {
                let to = to.wrapping_add(columns.start).cast();
                // SAFETY: as the caller promises.
                unsafe { fill_bytes(to, fill, columns.len() * size_of::<U>()) };
            };
            let mut done = 0;
            for piece in pieces {
                let (first, count) = (piece.column as usize, piece.count as usize);
                fill(done..first);
                done = first + count;
                let (from, to) = (from.wrapping_offset(piece.offset), to.wrapping_add(first));
                if is_contiguous {
                    // SAFETY: as the caller promises.
                    unsafe { copy_bytes(from, to.cast(), count * size_of::<U>()) };
                    continue;
                }
                for i in 0..count {
                    // SAFETY: as the caller promises.
                    unsafe {
                        let x = from.wrapping_offset(lane_step * i as isize).cast::<U>().read_unaligned();
                        to.wrapping_add(i).write_unaligned(x);
                    }
                }
            }
            fill(done..extent.columns);
        }
    }
}

/// The lanes of a piece are loaded by a mask, so that no element beside the piece is read and short pieces
/// take no loops.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod masked {
    use std::arch::x86_64::*;

    use super::{Extent, ImageRun, LaneBits, MAX_COLUMNS, Source, Target, bodies};
    use crate::kernels::simd::mask_of_first;

    /// The lanes of a vector that belong to one piece.
    #[derive(Clone, Copy)]
    struct MaskedRun {
        /// Bytes to the first lane of the vector, as if the piece went on there.
        offset: isize,
        mask: u64,
    }

    /// Most vectors of a row.
    const MAX_VECTORS: usize = 8;

    /// # Safety
    ///
    /// As [`GatherColumns`](super::GatherColumns).
    #[inline(always)]
    pub(super) unsafe fn columns<U: LaneBits>(
        pieces: &[ImageRun],
        extent: Extent,
        from: Source,
        lane_step: isize,
        to: Target,
        fill: u8,
    ) {
        let is_contiguous = lane_step == size_of::<U>() as isize;
        let has_gather = size_of::<U>() == 4 && lane_step.unsigned_abs() < 1 << 24;
        if !is_contiguous && !has_gather {
            // SAFETY: as the caller promises.
            return unsafe { bodies::columns::<U>(pieces, extent, from, lane_step, to, fill) };
        }
        let vectors = extent.columns.div_ceil(U::LANES);
        let mut parts = [MaskedRun { offset: 0, mask: 0 }; MAX_COLUMNS + MAX_VECTORS];
        let mut ends = [0; MAX_VECTORS];
        let (mut count, mut next) = (0, 0);
        for (vector, end) in ends[..vectors].iter_mut().enumerate() {
            let lanes = vector * U::LANES..(vector + 1) * U::LANES;
            while let Some(piece) = pieces.get(next) {
                let of = piece.column as usize..(piece.column + piece.count) as usize;
                if of.start >= lanes.end {
                    break;
                }
                let mask = mask_of_first(of.end.min(lanes.end) - lanes.start)
                    & !mask_of_first(of.start.max(lanes.start) - lanes.start);
                let offset = piece.offset + (lanes.start as isize - of.start as isize) * lane_step;
                parts[count] = MaskedRun { offset, mask };
                count += 1;
                if of.end > lanes.end {
                    break;
                }
                next += 1;
            }
            *end = count;
        }
        // SAFETY: as the caller promises; lanes outside of a mask are neither read nor written.
        unsafe {
            let filled = _mm512_set1_epi8(fill as i8);
            let steps: [i32; 16] = std::array::from_fn(|lane| lane as i32 * lane_step as i32);
            let steps = _mm512_loadu_si512(steps.as_ptr().cast());
            for row in 0..extent.rows {
                let (from, to) = (from.at_row(row).at, to.row::<U>(row));
                let mut part = 0;
                for (vector, &end) in ends[..vectors].iter().enumerate() {
                    let mut lanes = filled;
                    while part < end {
                        let MaskedRun { offset, mask } = parts[part];
                        let at = from.wrapping_offset(offset);
                        lanes = match is_contiguous {
                            true => U::select(mask, U::load(at.cast(), mask), lanes),
                            false => _mm512_mask_i32gather_epi32::<1>(lanes, mask as u16, steps, at.cast()),
                        };
                        part += 1;
                    }
                    let first = vector * U::LANES;
                    U::store(to.wrapping_add(first), mask_of_first(extent.columns - first), lanes);
                }
            }
        }
    }
}
