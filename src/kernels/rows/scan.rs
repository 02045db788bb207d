//! Sums along rows: each element of a result is the sum of the elements up to its own.
//!
//! Sums of floats are f64 and rounded to f32, and from there to the type, for each element; those of integers
//! wrap. They are added up in the order of the row, so the bits are the same at every level and on any number
//! of threads.

use crate::kernels::floats::canonical;
use crate::kernels::isa::{ByLevel, Isa, by_level, shells};
use crate::kernels::pointwise::conversion::To;
use crate::kernels::pointwise::half::{Bf16, F16};
use crate::kernels::{Extent, Source, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// The operands of [`ScanRows`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) extent: Extent,
    pub(crate) source: Source,
    pub(crate) to: Target,
    pub(crate) order: ScanOrder,
    /// The sum of each row up to the tile, which becomes that up to the tile's end: 8 bytes each, of which
    /// all are 0 at the start of a row.
    pub(crate) sums: *mut u64,
}

/// The order in which a row is added up, and where a sum goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanOrder {
    /// An element of the result is the sum without its own element.
    pub(crate) is_exclusive: bool,
    /// The sums begin at the last element.
    pub(crate) is_reverse: bool,
}

/// Writes the sums along the rows of a tile.
///
/// # Safety
///
/// Every element of the tile can be read, every result and sum can be written, and the machine runs the
/// kernel's level. The target is the source itself or overlaps it nowhere.
pub(crate) type ScanRows = unsafe fn(operands: &Scan);

/// The kernels of a type, which write sums along the rows or down the columns of a tile. The sums up to the
/// tile are those of each row, or of each column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SumKernels {
    pub(crate) rows: ScanRows,
    pub(crate) columns: ScanRows,
}

/// The kernels of a type for a level; `None` for types without sums.
pub(crate) fn scan(level: Level, data_type: DataType) -> Option<SumKernels> {
    let table = match data_type {
        DataType::F32 => table::<f32>(),
        DataType::Bf16 => table::<Bf16>(),
        DataType::F16 => table::<F16>(),
        DataType::S32 => table::<i32>(),
        DataType::S64 => table::<i64>(),
        _ => return None,
    };
    Some(table[level.row()])
}

const fn table<T: Summand>() -> ByLevel<SumKernels> {
    macro_rules! of {
        ($level:ident) => {
            SumKernels { rows: $level::rows::<T>, columns: $level::columns::<T> }
        };
    }
    by_level!(of!)
}

shells! {
    I:
    fn rows[T: Summand](operands: &Scan) {
        scan_rows::<T, I>(operands)
    }

    fn columns[T: Summand](operands: &Scan) {
        scan_columns::<T, I>(operands)
    }
}

/// An element whose sums are kept in 8 bytes or fewer, which are 0 for a sum of nothing.
trait Summand: Copy + 'static {
    type Sum: Copy;

    fn add<I: Isa>(sum: Self::Sum, x: Self) -> Self::Sum;
    fn of<I: Isa>(sum: Self::Sum) -> Self;
}

impl Summand for f32 {
    type Sum = f64;

    #[inline(always)]
    fn add<I: Isa>(sum: f64, x: f32) -> f64 {
        sum + f64::from(x)
    }
    #[inline(always)]
    fn of<I: Isa>(sum: f64) -> f32 {
        canonical(sum as f32)
    }
}

macro_rules! halves {
    ($($T:ty)*) => {
        $(impl Summand for $T {
            type Sum = f64;

            #[inline(always)]
            fn add<I: Isa>(sum: f64, x: $T) -> f64 {
                let x: f32 = x.to::<I>();
                sum + f64::from(x)
            }
            #[inline(always)]
            fn of<I: Isa>(sum: f64) -> $T {
                (sum as f32).to::<I>()
            }
        })*
    };
}

halves!(Bf16 F16);

macro_rules! integers {
    ($($T:ty)*) => {
        $(impl Summand for $T {
            type Sum = $T;

            #[inline(always)]
            fn add<I: Isa>(sum: $T, x: $T) -> $T {
                sum.wrapping_add(x)
            }
            #[inline(always)]
            fn of<I: Isa>(sum: $T) -> $T {
                sum
            }
        })*
    };
}

integers!(i32 i64);

/// Rows that are added up side by side: an addition of one need not wait for that of another.
const ROWS: usize = 4;

/// # Safety
///
/// As [`ScanRows`].
#[inline(always)]
unsafe fn scan_rows<T: Summand, I: Isa>(operands: &Scan) {
    let rows = operands.extent.rows;
    let blocks = rows / ROWS * ROWS;
    for row in (0..blocks).step_by(ROWS) {
        // SAFETY: as the caller promises.
        unsafe { scan_block::<T, I, ROWS>(operands, row) };
    }
    for row in blocks..rows {
        // SAFETY: as the caller promises.
        unsafe { scan_block::<T, I, 1>(operands, row) };
    }
}

/// # Safety
///
/// As [`ScanRows`]; the tile has `N` rows from the first one on.
#[inline(always)]
unsafe fn scan_block<T: Summand, I: Isa, const N: usize>(operands: &Scan, first: usize) {
    let &Scan { extent: Extent { columns, .. }, source, to, order, sums } = operands;
    let (mut from, mut into) = ([source.at.cast::<T>(); N], [to.at.cast::<T>(); N]);
    for row in 0..N {
        (from[row], into[row]) = (source.row(first + row), to.row(first + row));
    }
    let sums = sums.wrapping_add(first);
    // SAFETY: as the caller promises; no sum has more than 8 bytes, whose zeros are a sum of nothing.
    unsafe {
        let mut totals = [sums.cast::<T::Sum>().read(); N];
        for (row, total) in totals.iter_mut().enumerate() {
            *total = sums.add(row).cast::<T::Sum>().read();
        }
        for step in 0..columns {
            let column = if order.is_reverse { columns - 1 - step } else { step };
            for row in 0..N {
                let before = totals[row];
                totals[row] = T::add::<I>(before, from[row].add(column).read_unaligned());
                let sum = if order.is_exclusive { before } else { totals[row] };
                into[row].add(column).write_unaligned(T::of::<I>(sum));
            }
        }
        for (row, total) in totals.into_iter().enumerate() {
            sums.add(row).cast::<T::Sum>().write(total);
        }
    }
}

/// # Safety
///
/// As [`ScanRows`].
#[inline(always)]
unsafe fn scan_columns<T: Summand, I: Isa>(operands: &Scan) {
    let &Scan { extent: Extent { rows, columns }, source, to, order, sums } = operands;
    let sums = sums.cast::<T::Sum>();
    for step in 0..rows {
        let row = if order.is_reverse { rows - 1 - step } else { step };
        let (from, into) = (source.row::<T>(row), to.row::<T>(row));
        // SAFETY: as the caller promises; no sum has more than 8 bytes, whose zeros are a sum of nothing.
        unsafe {
            if order.is_exclusive || source.at != to.at {
                for column in 0..columns {
                    let before = sums.add(column).read();
                    let after = T::add::<I>(before, from.add(column).read_unaligned());
                    sums.add(column).write(after);
                    into.add(column).write_unaligned(T::of::<I>(match order.is_exclusive {
                        true => before,
                        false => after,
                    }));
                }
                continue;
            }
            // Sums replace their elements: the compiler takes neighbours together in two loops, not in one.
            for column in 0..columns {
                let sum = T::add::<I>(sums.add(column).read(), from.add(column).read_unaligned());
                sums.add(column).write(sum);
            }
            for column in 0..columns {
                into.add(column).write_unaligned(T::of::<I>(sums.add(column).read()));
            }
        }
    }
}
