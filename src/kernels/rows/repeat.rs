//! Rows whose elements are repeated: interpolations to a whole multiple of the size, by the nearest element.

use crate::kernels::floats::canonical;
use crate::kernels::isa::{ByLevel, Isa, by_level, shells};
use crate::kernels::vector::RowType;
use crate::kernels::{Source, Target};
use crate::types::kind::Level;

/// Rows of floats, contiguous in source and result, each element of which is repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepeatedRows {
    pub(crate) from: Source,
    pub(crate) to: Target,
    pub(crate) float: RowType,
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
        repeat_floats::<I>(operands)
    }
}

/// # Safety
///
/// As [`RepeatRows`].
#[inline(always)]
unsafe fn repeat_floats<I: Isa>(operands: &RepeatedRows) {
    let infinity: u16 = match operands.float {
        // SAFETY: as the caller promises.
        RowType::F32 => return unsafe { repeat_rows::<I, f32>(operands, canonical) },
        RowType::F16 => 0x7c00,
        RowType::Bf16 => 0x7f80,
    };
    let nan = infinity | (infinity & infinity.wrapping_neg()) >> 1;
    // SAFETY: as the caller promises.
    unsafe {
        repeat_rows::<I, u16>(
            operands,
            #[inline(always)]
            |x| if x & 0x7fff > infinity { nan } else { x },
        );
    }
}

/// Elements of a block of the rows that are repeated, and of those shorter than that.
const WIDE: usize = 16;
const NARROW: usize = 4;

/// # Safety
///
/// As [`RepeatRows`].
#[inline(always)]
unsafe fn repeat_rows<I: Isa, T: Copy>(operands: &RepeatedRows, canonical: impl Fn(T) -> T) {
    let &RepeatedRows { from, to, rows, columns, times, .. } = operands;
    for row in 0..rows {
        let from = from.at_row(row).at.cast::<T>();
        let to = to.at_row(row * times.rows);
        // SAFETY: as the caller promises. Loops of a known number of repeats are vectors.
        unsafe {
            match times.columns {
                2 if I::LEVEL > Level::Portable && columns >= WIDE => {
                    repeat_twice::<T, WIDE>(from, columns, to, times.rows, &canonical);
                    continue;
                }
                2 if I::LEVEL > Level::Portable && columns >= NARROW => {
                    repeat_twice::<T, NARROW>(from, columns, to, times.rows, &canonical);
                    continue;
                }
                4 if I::LEVEL > Level::Portable => repeat_row(from, to.at.cast(), columns, 4, &canonical),
                more => repeat_row(from, to.at.cast(), columns, more, &canonical),
            }
            for copy in 1..times.rows {
                let bytes = columns * times.columns * size_of::<T>();
                to.at_row(copy).at.copy_from_nonoverlapping(to.at, bytes);
            }
        }
    }
}

/// Writes each element twice, to some rows at once. The last block of `N` elements overlaps the one before.
///
/// # Safety
///
/// So many elements, at least `N`, can be read, and twice as many be written to each row.
#[inline(always)]
unsafe fn repeat_twice<T: Copy, const N: usize>(
    from: *const T,
    columns: usize,
    to: Target,
    rows: usize,
    canonical: &impl Fn(T) -> T,
) {
    for column in (0..columns).step_by(N) {
        let column = column.min(columns - N);
        // SAFETY: as the caller promises.
        unsafe {
            let block = from.add(column).cast::<[T; N]>().read_unaligned();
            let mut twice = [[block[0]; 2]; N];
            for i in 0..N {
                twice[i] = [canonical(block[i]); 2];
            }
            for row in 0..rows {
                to.row::<T>(row).add(2 * column).cast::<[[T; 2]; N]>().write_unaligned(twice);
            }
        }
    }
}

/// # Safety
///
/// So many elements can be read, and so many times as many be written; they do not overlap.
#[inline(always)]
unsafe fn repeat_row<T: Copy>(
    from: *const T,
    to: *mut T,
    columns: usize,
    times: usize,
    canonical: &impl Fn(T) -> T,
) {
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
