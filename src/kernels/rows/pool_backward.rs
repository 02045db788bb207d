//! Gradients of pools of maxima: the number of the largest element of each window, and gradients that are
//! added to these elements, row by row.
//!
//! Rows have groups of neighbours, as in pools. The loops have neither branches nor calls, so that the
//! compiler makes vectors of a level of them.

use std::ops::Range;

use super::apart::copy_to;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::types::kind::Level;

/// The number of the largest element of a window that has none.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The kernels of the gradient of a pool of maxima.
///
/// # Safety
///
/// All rows can be read or written as their sizes say, and the machine runs the level. A row that is written
/// overlaps no other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargestKernels {
    pub(crate) down: unsafe fn(&LargestDown),
    pub(crate) across: unsafe fn(&LargestAcross),
    pub(crate) scatter: unsafe fn(&ScatteredRow),
    pub(crate) join: unsafe fn(&JoinedRow),
}

/// The kernels for a level.
pub(crate) fn largest(level: Level) -> LargestKernels {
    macro_rules! of {
        ($level:ident) => {
            LargestKernels {
                down: $level::down,
                across: $level::across,
                scatter: $level::scatter,
                join: $level::join,
            }
        };
    }
    const TABLE: ByLevel<LargestKernels> = by_level!(of!);
    TABLE[level.row()]
}

shells! {
    I:
    fn down[](operands: &LargestDown) {
        largest_down(operands)
    }
    fn across[](operands: &LargestAcross) {
        largest_across(operands)
    }
    fn scatter[](operands: &ScatteredRow) {
        scatter_row(operands)
    }
    fn join[](operands: &JoinedRow) {
        join_row(operands)
    }
}

/// The rows of which the largest elements are found, element by element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargestDown {
    /// A row, and its number among those of a window.
    pub(crate) row: *const f32,
    pub(crate) number: u32,
    /// True for the first row of the window; the others come in the order of their numbers.
    pub(crate) is_first: bool,
    pub(crate) width: usize,
    /// The largest elements of the rows so far, and the numbers of their rows.
    pub(crate) largest: *mut f32,
    pub(crate) numbers: *mut u32,
}

/// Groups along a row, and how windows go along them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowsAcross {
    /// Windows, and elements of a group.
    pub(crate) windows: usize,
    pub(crate) inner: usize,
    /// Groups of a window, from one to the next, and from those of a window to those of the next.
    pub(crate) ranks: usize,
    pub(crate) between: usize,
    pub(crate) step: usize,
}

/// The largest elements of rows that are combined along the row, which are taken apart if windows say so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargestAcross {
    pub(crate) largest: *const f32,
    pub(crate) numbers: *const u32,
    pub(crate) across: WindowsAcross,
    /// The number of the largest element of each window, or [`NOWHERE`].
    pub(crate) to: *mut u32,
}

/// Gradients of windows that go to the largest elements in one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScatteredRow {
    pub(crate) gradient: *const f32,
    /// The number of the largest element of each window.
    pub(crate) numbers: *const u32,
    pub(crate) across: WindowsAcross,
    /// The number of the first element of a window in the row.
    pub(crate) first: u32,
    /// The sums: groups in the order of [`place`](WindowsAcross::place), if that has parts of so many.
    pub(crate) to: *mut f32,
    pub(crate) part: usize,
}

/// A row that was taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinedRow {
    pub(crate) from: *const f32,
    pub(crate) part: usize,
    pub(crate) step: usize,
    pub(crate) length: usize,
    pub(crate) to: *mut f32,
}

impl WindowsAcross {
    /// True if rows are taken apart, so that all windows are one run: each `step`-th element from each of the
    /// first ones on.
    pub(crate) fn is_apart(&self) -> bool {
        self.step > 1 && self.inner == 1
    }

    /// Numbers of a part of a row that is taken apart.
    pub(crate) fn part(&self) -> usize {
        self.reach().div_ceil(self.step)
    }

    /// Groups from the first one of the first window to the last one of the last.
    pub(crate) fn reach(&self) -> usize {
        (self.windows.max(1) - 1) * self.step + (self.ranks - 1) * self.between + 1
    }

    /// Runs of windows whose elements lie beside each other, and elements of a run.
    #[inline(always)]
    fn runs(&self) -> (usize, usize) {
        match self.step == 1 || self.inner == 1 {
            true => (1, self.windows * self.inner),
            false => (self.windows, self.inner),
        }
    }

    /// The place of a run's elements of a rank; rows that are taken apart have parts of so many elements.
    #[inline(always)]
    fn place(&self, run: usize, rank: usize, part: usize) -> usize {
        let place = rank * self.between;
        match self.is_apart() {
            true => place % self.step * part + place / self.step,
            false => (run * self.step + place) * self.inner,
        }
    }
}

/// Works on a run by blocks. The number of elements is known where a block is whole, and operands are copied
/// to arrays first: so the compiler makes vectors of the loops.
macro_rules! in_blocks {
    ($count:expr, |$first:ident| $of:ident($($operand:expr),*)) => {{
        let (count, mut $first) = ($count, 0);
        while $first < count {
            $first += match count - $first {
                64.. => $of::<64>(64, $($operand),*),
                16.. => $of::<16>(16, $($operand),*),
                8.. => $of::<8>(8, $($operand),*),
                rest => $of::<8>(rest, $($operand),*),
            };
        }
    }};
}

/// True if an element is larger than another one; a NaN is larger than every number.
#[inline(always)]
fn is_larger(x: f32, y: f32) -> bool {
    (x > y) | (x.is_nan() & !y.is_nan())
}

/// Takes the elements of a row that are larger than those of the rows before. A NaN is larger than every
/// number.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn largest_down(operands: &LargestDown) {
    let &LargestDown { row, number, is_first, width, largest, numbers } = operands;
    // SAFETY: as the caller promises.
    unsafe {
        if is_first {
            for i in 0..width {
                *largest.add(i) = row.add(i).read_unaligned();
                *numbers.add(i) = number;
            }
            return;
        }
        for i in 0..width {
            let (x, best, of_best) = (row.add(i).read_unaligned(), *largest.add(i), *numbers.add(i));
            let is_larger = is_larger(x, best);
            *largest.add(i) = if is_larger { x } else { best };
            *numbers.add(i) = if is_larger { number } else { of_best };
        }
    }
}

/// Finds the first of the largest elements of each window: that of the first row, and there the first one.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn largest_across(operands: &LargestAcross) {
    let &LargestAcross { largest, numbers, across, to } = operands;
    let (runs, count) = across.runs();
    let part = across.part();
    // SAFETY: as the caller promises.
    unsafe {
        for run in 0..runs {
            let at = across.place(run, 0, part);
            let (largest, numbers, to) = (largest.add(at), numbers.add(at), to.add(run * count));
            in_blocks!(count, |first| largest_of_block(
                (largest.add(first), numbers.add(first)),
                &across,
                part,
                to.add(first)
            ));
        }
    }
}

/// Finds the numbers of the first elements of a block, and tells how many they are.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn largest_of_block<const N: usize>(
    count: usize,
    (largest, numbers): (*const f32, *const u32),
    across: &WindowsAcross,
    part: usize,
    to: *mut u32,
) -> usize {
    let (mut best, mut of_best) = ([f32::NEG_INFINITY; N], [NOWHERE; N]);
    let ranks = across.ranks as u32;
    // SAFETY: as the caller promises.
    unsafe {
        for rank in 0..ranks {
            let at = across.place(0, rank as usize, part);
            let (largest, numbers) = (largest.add(at), numbers.add(at));
            for i in 0..count {
                let (x, number) = (*largest.add(i), *numbers.add(i));
                let number = if number == NOWHERE { NOWHERE } else { number.wrapping_mul(ranks) + rank };
                let (y, of_y) = (best[i], of_best[i]);
                let is_first = is_larger(x, y) | (!is_larger(y, x) & (number < of_y));
                best[i] = if is_first { x } else { y };
                of_best[i] = if is_first { number } else { of_y };
            }
        }
        to.copy_from_nonoverlapping(of_best.as_ptr(), count);
    }
    count
}

/// Adds gradients to the elements of a row that are the largest of their windows. An element takes those of
/// its windows in their order, which is that from the last rank to the first.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn scatter_row(operands: &ScatteredRow) {
    let &ScatteredRow { gradient, numbers, across, first: number, to, part } = operands;
    let (runs, count) = across.runs();
    // Elements of a long run are those of other windows, too, a few places away: a load behind their stores
    // would wait for these, so another rank follows when the run is through.
    let at_once = if runs == 1 { 1 } else { across.ranks };
    for run in 0..runs {
        let mut end = across.ranks;
        while end > 0 {
            let first_rank = end.saturating_sub(at_once);
            // SAFETY: as the caller promises.
            unsafe {
                let (gradient, numbers) = (gradient.add(run * count), numbers.add(run * count));
                let to = to.add(across.place(run, 0, part));
                in_blocks!(count, |first| scatter_block(
                    (gradient.add(first), numbers.add(first)),
                    (&across, first_rank..end),
                    (number, part),
                    to.add(first)
                ));
            }
            end = first_rank;
        }
    }
}

/// Adds the first gradients of a block to the elements of some ranks, and tells how many they are.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn scatter_block<const N: usize>(
    count: usize,
    (gradient, numbers): (*const f32, *const u32),
    (across, ranks): (&WindowsAcross, Range<usize>),
    (first, part): (u32, usize),
    to: *mut f32,
) -> usize {
    let (mut x, mut number, mut sums) = ([0.0f32; N], [NOWHERE; N], [0.0f32; N]);
    // SAFETY: as the caller promises; arrays have room for a block.
    unsafe {
        copy_to(gradient, &mut x, count);
        copy_to(numbers, &mut number, count);
        for rank in ranks.rev() {
            let (of_rank, to) = (first + rank as u32, to.add(across.place(0, rank, part)));
            copy_to(to, &mut sums, count);
            for i in 0..count {
                // A sum that begins with +0 is never −0, so adding +0 leaves it as it is.
                sums[i] += if number[i] == of_rank { x[i] } else { 0.0 };
            }
            to.copy_from_nonoverlapping(sums.as_ptr(), count);
        }
    }
    count
}

/// Puts the parts of a row together.
///
/// # Safety
///
/// As [`LargestKernels`].
#[inline(always)]
unsafe fn join_row(operands: &JoinedRow) {
    let &JoinedRow { from, part, step, length, to } = operands;
    // SAFETY: as the caller promises.
    unsafe {
        match step {
            2 => {
                for i in 0..length / 2 {
                    *to.add(2 * i) = *from.add(i);
                    *to.add(2 * i + 1) = *from.add(part + i);
                }
                if length % 2 == 1 {
                    *to.add(length - 1) = *from.add(length / 2);
                }
            }
            _ => {
                for place in 0..length {
                    *to.add(place) = *from.add(place % step * part + place / step);
                }
            }
        }
    }
}
