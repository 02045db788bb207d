//! Windows gathered as rows: whole runs of them piece by piece, those at an edge of the image one by one.

use std::ops::Range;

use super::window_bytes::{copy_blocks, copy_bytes, fill_bytes};
use super::windows::{ImageWindows, MAX_WINDOW_DIMS};
use crate::kernels::isa::{at_level, shells};
use crate::kernels::{Source, Target};
use crate::types::kind::Level;

/// Gathers windows as rows, each with the elements of a part of the depth next to each other. The depth goes
/// through all channels of a tap.
///
/// # Safety
///
/// `at` is the image, whose elements can be read; the rows can be written. Nothing overlaps, and the machine
/// runs the level.
pub(crate) unsafe fn gather_rows(
    level: Level,
    windows: &ImageWindows,
    (at, depth): (*const u8, Range<usize>),
    of: Range<usize>,
    to: Target,
) {
    // SAFETY: as the caller promises.
    unsafe { at_level!(level, rows(windows, at, depth, of, to)) }
}

shells! {
    I:
    fn rows[](windows: &ImageWindows, at: *const u8, depth: Range<usize>, of: Range<usize>, to: Target) {
        gather_windows(windows, at, depth, of, to)
    }
}

/// # Safety
///
/// As [`gather_rows`].
#[inline(always)]
unsafe fn gather_windows(
    windows: &ImageWindows,
    at: *const u8,
    depth: Range<usize>,
    of: Range<usize>,
    to: Target,
) {
    let last = MAX_WINDOW_DIMS - 1;
    let (along, width) = (windows.axes[last], windows.width.bytes());
    let of_outer = along.taps * windows.channels;
    let mut next = of.start;
    while next < of.end {
        let window = windows.indices(next, |axis| axis.windows);
        let run = window[last]..along.windows.min(window[last] + of.end - next);
        let rows = to.at_row(next - of.start);
        next += run.len();
        let whole = along.whole(run.clone());
        let mut done = depth.start;
        while done < depth.end {
            let first = done % of_outer;
            let part = first..of_outer.min(first + depth.end - done);
            let rows = Target { at: rows.at.wrapping_add((done - depth.start) * width), ..rows };
            let tap = windows.indices(done / of_outer * along.taps, |axis| axis.taps);
            done += part.len();
            let from = windows.outer_offset(&window, &tap).map(|offset| at.wrapping_offset(offset));
            // SAFETY: as the caller promises.
            unsafe { gather_part(windows, from, (run.clone(), whole.clone()), part, rows) };
        }
    }
}

/// Gathers a part of the taps and channels along the last dim for windows that follow each other there, some
/// of which lie in the image as a whole. `from` is the image at their place along the other dims; without one
/// they lie beyond it.
///
/// # Safety
///
/// As [`gather_rows`].
#[inline(always)]
unsafe fn gather_part(
    windows: &ImageWindows,
    from: Option<*const u8>,
    (run, whole): (Range<usize>, Range<usize>),
    part: Range<usize>,
    to: Target,
) {
    let (along, width) = (windows.axes[MAX_WINDOW_DIMS - 1], windows.width.bytes());
    let ImageWindows { channels, channel_step, fill, .. } = *windows;
    let is_dense = channel_step == width as isize || channels == 1;
    let tap_step = along.dilation * along.step;
    // All taps along the last dim follow each other, if channels of neighbours do.
    let is_one = is_dense && (tap_step == (channels * width) as isize || along.taps == 1);
    let place = |window: usize| along.start + (window * along.stride) as isize;
    let mut copied = run.start..run.start;
    if let (Some(from), true, false) = (from, is_dense, whole.is_empty()) {
        copied = whole.clone();
        let from = from.wrapping_offset(place(whole.start) * along.step);
        let to = to.at_row(whole.start - run.start);
        let (mut element, mut tap, mut channel) = (part.start, 0, part.start);
        if !is_one {
            (tap, channel) = (part.start / channels.max(1), part.start % channels.max(1));
        }
        while element < part.end {
            let end = if is_one { part.end } else { part.end.min(element + channels - channel) };
            let at = from.wrapping_offset(tap as isize * tap_step).wrapping_add(channel * width);
            let to = Target { at: to.at.wrapping_add((element - part.start) * width), ..to };
            let source = Source { at, row_stride: windows.lane_step() };
            // SAFETY: as the caller promises; windows that lie in the image as a whole have all taps.
            unsafe { copy_rows(whole.len(), (end - element) * width, source, to) };
            (element, tap, channel) = (end, tap + 1, 0);
        }
    }
    for (row, window) in run.enumerate().filter(|(_, window)| !copied.contains(window)) {
        let row = to.at_row(row).at;
        let start = place(window);
        let taps = match from {
            None => 0..0,
            Some(_) if whole.contains(&window) => 0..along.taps,
            Some(_) => along.inside(start, along.dilation, 0..along.taps),
        };
        let first = (taps.start * channels).clamp(part.start, part.end);
        let inside = first..(taps.end * channels).clamp(first, part.end);
        let from = from.unwrap_or(std::ptr::null()).wrapping_offset(start * along.step);
        let to = |element: usize| row.wrapping_add((element - part.start) * width);
        // SAFETY: elements inside lie in the image, all of the part in the row.
        unsafe {
            fill_bytes(row, fill, (inside.start - part.start) * width);
            fill_bytes(to(inside.end), fill, (part.end - inside.end) * width);
            if is_one {
                let from = from.wrapping_add(inside.start * width);
                copy_bytes(from, to(inside.start), inside.len() * width);
                continue;
            }
            let mut element = inside.start;
            let (mut tap, mut channel) = (element / channels.max(1), element % channels.max(1));
            while element < inside.end {
                let count = (channels - channel).min(inside.end - element);
                let from = from.wrapping_offset(tap as isize * tap_step + channel as isize * channel_step);
                match is_dense {
                    true => copy_bytes(from, to(element), count * width),
                    false => {
                        for i in 0..count {
                            let from = from.wrapping_offset(i as isize * channel_step);
                            copy_bytes(from, to(element + i), width);
                        }
                    }
                }
                (element, tap, channel) = (element + count, tap + 1, 0);
            }
        }
    }
}

/// Copies so many bytes to each of some rows. Blocks of one size are copied for all rows.
///
/// # Safety
///
/// As [`copy_bytes`] for each row.
#[inline(always)]
unsafe fn copy_rows(rows: usize, bytes: usize, from: Source, to: Target) {
    for row in 0..rows {
        let (from, to) = (from.at_row(row).at, to.at_row(row).at);
        // SAFETY: as the caller promises. The size is the same for all rows.
        unsafe {
            match bytes {
                64.. => copy_blocks::<64>(from, to, bytes),
                32.. => copy_blocks::<32>(from, to, bytes),
                _ => copy_bytes(from, to, bytes),
            }
        }
    }
}
