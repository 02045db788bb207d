//! Rows whose elements are repeated: interpolations to a whole multiple of the size, by the nearest element.

use crate::kernels::floats::canonical;
use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::{Source, Target};
use crate::types::kind::Level;

/// Rows of f32, contiguous in source and result, each element of which is repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepeatedRows {
    pub(crate) from: Source,
    pub(crate) to: Target,
    /// Rows of the source, and elements of each.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) times: Repeats,
}

/// How many rows of the result are a row of the source, and how many elements an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeats {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// A kernel that repeats rows.
///
/// # Safety
///
/// All rows of the source can be read, those of the result be written; none overlap, and the machine runs the
/// level.
pub(crate) type RepeatRows = unsafe fn(&RepeatedRows);

/// The kernel of a level.
pub(crate) fn repeat(level: Level) -> RepeatRows {
    let kernels: ByLevel<RepeatRows> = by_level!(repeated);
    kernels[level.row()]
}

shells! {
    I:
    fn repeated[](operands: &RepeatedRows) {
        repeat_rows(operands)
    }
}

/// # Safety
///
/// As [`RepeatRows`].
#[inline(always)]
unsafe fn repeat_rows(operands: &RepeatedRows) {
    let &RepeatedRows { from, to, rows, columns, times } = operands;
    for row in 0..rows {
        let from = from.at_row(row).at.cast::<f32>();
        let first = to.at_row(row * times.rows).at;
        // SAFETY: as the caller promises. Loops of a known number of repeats are vectors.
        unsafe {
            match times.columns {
                1 => repeat_row(from, first.cast(), columns, 1),
                2 => repeat_row(from, first.cast(), columns, 2),
                4 => repeat_row(from, first.cast(), columns, 4),
                more => repeat_row(from, first.cast(), columns, more),
            }
            for copy in 1..times.rows {
                let to = to.at_row(row * times.rows + copy).at;
                to.copy_from_nonoverlapping(first, columns * times.columns * size_of::<f32>());
            }
        }
    }
}

/// # Safety
///
/// So many elements can be read, and so many times as many be written; they do not overlap.
#[inline(always)]
unsafe fn repeat_row(from: *const f32, to: *mut f32, columns: usize, times: usize) {
    for column in 0..columns {
        // SAFETY: as the caller promises.
        unsafe {
            let x = canonical(from.add(column).read_unaligned());
            for copy in 0..times {
                to.add(column * times + copy).write_unaligned(x);
            }
        }
    }
}
