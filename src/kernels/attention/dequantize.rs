//! Keys and values of 8 or 4 bits: rows of them become rows of f32.
//!
//! A number is its integer less a zero point, times a scale, and each of both steps is rounded to f32. So the
//! bits are the same at every level.

use super::decode::{DISTANCE, FloatRows};
use super::finite::all_finite;
use crate::kernels::floats::canonical;
use crate::kernels::gemm::Matrix;
use crate::kernels::isa::{at_level, shells};
use crate::kernels::pointwise::{Kernel1, convert};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::vector::{LANES, Lanes};
use crate::kernels::{Extent, Source, Target, prefetch_l1};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Rows of contiguous 8-bit or 4-bit numbers; each row starts at a whole byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizedRows {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The rows to prefetch at the end of these rows, if any.
    pub(crate) later: Option<LaterRows>,
}

/// The rows to prefetch at the end of some rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterRows {
    /// Rows up to the last one of the run, from the first row on.
    pub(crate) rows: usize,
    /// Address to prefetch behind the run; it need not be valid.
    pub(crate) next: *const u8,
}

/// The scales and the zero points of rows, in f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowScaling {
    /// Those of the first row.
    pub(crate) scales: *const f32,
    pub(crate) zeros: *const f32,
    /// Rows, and columns, that share a scale.
    pub(crate) group: Extent,
    /// Rows of the first group that come before the first row.
    pub(crate) before: usize,
    /// Numbers from one group of rows to the next, and from one group of columns to the next; the latter is 1
    /// if each column has a scale of its own.
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
}

/// Goes through the scales and zero points of rows. A division for each row, or for each group, would take as
/// long as some vectors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScalingCursor {
    /// Those of the row.
    pub(super) scales: *const f32,
    pub(super) zeros: *const f32,
    /// Rows of the group behind the row.
    left: usize,
}

impl ScalingCursor {
    /// Before the first row.
    #[inline(always)]
    pub(super) fn new(scaling: &RowScaling) -> Self {
        let left = scaling.group.rows - scaling.before;
        Self { scales: scaling.scales, zeros: scaling.zeros, left }
    }

    /// Goes to the next row.
    #[inline(always)]
    pub(super) fn next(&mut self, scaling: &RowScaling) {
        self.next_rows(scaling, 1);
    }

    /// Goes on by the rows that share the scales of the next row, but by no more than a number of rows above
    /// 0; tells how many they are.
    #[inline(always)]
    pub(super) fn next_rows(&mut self, scaling: &RowScaling, most: usize) -> usize {
        if self.left == 0 {
            self.scales = self.scales.wrapping_add(scaling.row_step);
            self.zeros = self.zeros.wrapping_add(scaling.row_step);
            self.left = scaling.group.rows;
        }
        let rows = self.left.min(most);
        self.left -= rows;
        rows
    }
}

/// How rows are stored.
#[derive(Debug, Clone, Copy)]
enum StoredAs {
    U8,
    S8,
    /// Two integers in a byte, the first in its low half.
    U4,
    S4,
    /// Small floats, which are widened to f32 first.
    Floats(Kernel1),
}

/// The types from which the body of the kernels reads.
const OF_U8: u8 = 0;
const OF_S8: u8 = 1;
/// Numbers in f32 that stand where the results come.
const OF_F32: u8 = 2;
/// Two integers in a byte. The table differs for signed and unsigned integers, so that one kernel serves
/// both.
const OF_HALVES: u8 = 3;

shells! {
    I:
    fn dequantize[const OF: u8](
        rows: QuantizedRows,
        scaling: RowScaling,
        integers: &[f32; LANES],
        to: *mut f32,
        to_row: usize,
    ) {
        dequantize_of::<I, OF>(rows, scaling, integers, to, to_row)
    }

    fn finite[](extent: Extent, from: Matrix) -> bool {
        all_finite(extent, from, 0x7f80_0000u32)
    }
}

/// Turns rows of a type into rows of f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DequantizeKernels {
    level: Level,
    stored: StoredAs,
}

impl DequantizeKernels {
    /// `None` unless the type is an integer of 8 or 4 bits, or a float of 8 bits.
    pub(crate) fn new(level: Level, data_type: DataType) -> Option<Self> {
        let stored = match data_type {
            DataType::U8 => StoredAs::U8,
            DataType::S8 => StoredAs::S8,
            DataType::U4 => StoredAs::U4,
            DataType::S4 => StoredAs::S4,
            DataType::F8E4m3 | DataType::F8E5m2 => {
                StoredAs::Floats(convert(level, data_type, DataType::F32)?.kernel)
            }
            _ => return None,
        };
        Some(Self { level, stored })
    }

    /// Writes rows of f32, `to_row` numbers from one to the next. Up to 16 numbers behind the columns of a
    /// row are overwritten.
    ///
    /// # Safety
    ///
    /// The machine runs the level. The rows can be read; the scales and zero points of all groups too, and 16
    /// more numbers; the target can be written, as can 16 numbers behind each row. Nothing overlaps. If the
    /// rows are small floats, the rows of the target have a multiple of 16 numbers, and a group of columns is
    /// one column or all.
    pub(crate) unsafe fn run(&self, rows: QuantizedRows, scaling: RowScaling, to: *mut f32, to_row: usize) {
        let QuantizedRows { at, row_stride, columns, .. } = rows;
        let extent = Extent { rows: rows.rows, columns };
        // SAFETY: as the caller promises.
        unsafe {
            match self.stored {
                StoredAs::U8 => self.of::<OF_U8>(rows, scaling, &UNSIGNED, to, to_row),
                StoredAs::S8 => self.of::<OF_S8>(rows, scaling, &UNSIGNED, to, to_row),
                StoredAs::U4 => self.of::<OF_HALVES>(rows, scaling, &UNSIGNED, to, to_row),
                StoredAs::S4 => self.of::<OF_HALVES>(rows, scaling, &SIGNED, to, to_row),
                StoredAs::Floats(widen) => {
                    (0..rows.rows).for_each(|row| rows.prefetch(row, columns));
                    let row = 4 * to_row as isize;
                    let target = Target { at: to.cast(), row_stride: row };
                    let source = Source { at, row_stride };
                    widen(extent, source, target, &[0.0; 2], &mut PrefetchQueue::default());
                    let rows = QuantizedRows { at: to.cast(), row_stride: row, later: None, ..rows };
                    self.of::<OF_F32>(rows, scaling, &UNSIGNED, to, to_row);
                }
            }
        }
    }

    /// As [`run`](Self::run), but a NaN is the canonical one, which an op on elements gives.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    pub(crate) unsafe fn run_canonical(
        &self,
        rows: QuantizedRows,
        scaling: RowScaling,
        to: *mut f32,
        to_row: usize,
    ) {
        // SAFETY: as the caller promises; these elements were written.
        unsafe {
            self.run(rows, scaling, to, to_row);
            if self.gives_no_nan(&rows, &scaling) {
                return;
            }
            for row in 0..rows.rows {
                let row = std::slice::from_raw_parts_mut(to.add(row * to_row), rows.columns);
                row.iter_mut().for_each(|x| *x = canonical(*x));
            }
        }
    }

    /// True if the rows are integers whose scales are all finite; zero points always are.
    ///
    /// # Safety
    ///
    /// The machine runs the level, and the scales of all groups can be read.
    pub(crate) unsafe fn gives_no_nan(&self, rows: &QuantizedRows, scaling: &RowScaling) -> bool {
        let RowScaling { scales, group, before, row_step, column_step, .. } = *scaling;
        let extent = Extent {
            rows: (before + rows.rows).div_ceil(group.rows),
            columns: rows.columns.div_ceil(group.columns),
        };
        let [row_stride, col_stride] = [row_step, column_step].map(|step| 4 * step as isize);
        let from = Matrix { at: scales.cast(), row_stride, col_stride };
        // SAFETY: as the caller promises.
        !matches!(self.stored, StoredAs::Floats(_)) && unsafe { at_level!(self.level, finite(extent, from)) }
    }

    /// True if all numbers of rows in f32 are finite.
    ///
    /// # Safety
    ///
    /// The machine runs the level, and the rows can be read.
    pub(crate) unsafe fn are_finite(&self, rows: FloatRows, columns: usize) -> bool {
        let extent = Extent { rows: rows.rows, columns };
        let from = Matrix { at: rows.at.cast(), row_stride: 4 * rows.row as isize, col_stride: 4 };
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, finite(extent, from)) }
    }

    /// `integers` are the values of a type of four bits, indexed by their bits; other types do not read them.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn of<const OF: u8>(
        &self,
        rows: QuantizedRows,
        scaling: RowScaling,
        integers: &[f32; LANES],
        to: *mut f32,
        to_row: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, dequantize::<OF>(rows, scaling, integers, to, to_row)) }
    }
}

impl QuantizedRows {
    /// Prefetches the row at the prefetch distance from a row of so many bytes.
    #[inline(always)]
    pub(super) fn prefetch(&self, row: usize, bytes: usize) {
        if self.later.is_some() {
            prefetch_l1(self.later_row(row, Self::distance(bytes)), bytes);
        }
    }

    /// Prefetch distance in rows of so many bytes.
    #[inline(always)]
    pub(super) fn distance(bytes: usize) -> usize {
        DISTANCE.div_ceil(bytes.max(1))
    }

    /// Bytes from a row to the one that is read so many rows after it.
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    #[inline(always)]
    pub(super) fn later_offset(&self, row: usize, distance: usize) -> isize {
        let at = self.at.wrapping_offset(self.row_stride * row as isize);
        self.later_row(row, distance).addr().wrapping_sub(at.addr()) as isize
    }

    /// The row that is read so many rows after a row.
    #[inline(always)]
    pub(super) fn later_row(&self, row: usize, distance: usize) -> *const u8 {
        let row = row + distance;
        let LaterRows { rows, next } = self.later.unwrap_or(LaterRows { rows: usize::MAX, next: self.at });
        let (from, row) = match row.checked_sub(rows) {
            None => (self.at, row),
            Some(past) => (next, past),
        };
        from.wrapping_offset(self.row_stride * row as isize)
    }
}

/// The values of unsigned and of signed integers of four bits, indexed by their bits.
pub(super) static UNSIGNED: [f32; LANES] = integers(false);
pub(super) static SIGNED: [f32; LANES] = integers(true);

/// The values of a type of four bits, indexed by their bits.
const fn integers(is_signed: bool) -> [f32; LANES] {
    let mut integers = [0.0; LANES];
    let mut bits = 0;
    while bits < LANES {
        integers[bits] = if is_signed && bits > 7 { bits as f32 - 16.0 } else { bits as f32 };
        bits += 1;
    }
    integers
}

/// # Safety
///
/// As [`DequantizeKernels::run`], for rows of the type.
#[inline(always)]
unsafe fn dequantize_of<I: Lanes, const OF: u8>(
    rows: QuantizedRows,
    scaling: RowScaling,
    integers: &[f32; LANES],
    to: *mut f32,
    to_row: usize,
) {
    let columns = rows.columns;
    let bytes = if OF == OF_HALVES { columns.div_ceil(2) } else { columns };
    let RowScaling { group, column_step, .. } = scaling;
    let mut cursor = ScalingCursor::new(&scaling);
    // SAFETY: as the caller promises. A vector that goes beyond its group is overwritten by the next one.
    unsafe {
        let integers = I::load(integers.as_ptr());
        for row in 0..rows.rows {
            if OF != OF_F32 {
                rows.prefetch(row, bytes);
            }
            cursor.next(&scaling);
            let ScalingCursor { scales, zeros, .. } = cursor;
            let from = rows.at.wrapping_offset(rows.row_stride * row as isize);
            let to = to.wrapping_add(row * to_row);
            let mut column = 0;
            if group.columns == 1 {
                while column < columns {
                    let x = load::<I, OF>(from, column, columns, integers);
                    let x = I::sub(x, I::load(zeros.add(column)));
                    I::store(to.add(column), I::mul(x, I::load(scales.add(column))));
                    column += LANES;
                }
                continue;
            }
            let (mut end, mut place) = (0, 0);
            while column < columns {
                end = columns.min(end + group.columns);
                let (scale, zero) = (I::splat(*scales.add(place)), I::splat(*zeros.add(place)));
                // An integer of four bits chooses one of its 16 results.
                let results = I::mul(I::sub(integers, zero), scale);
                while column < end {
                    let x = match OF == OF_HALVES {
                        true => load::<I, OF>(from, column, columns, results),
                        false => I::mul(I::sub(load::<I, OF>(from, column, columns, results), zero), scale),
                    };
                    I::store(to.add(column), x);
                    column += LANES;
                }
                (column, place) = (end, place + column_step);
            }
        }
    }
}

/// A vector of numbers of a row from a column on, or the rest of the row. Integers of four bits
/// become the numbers that `table` has for their bits.
///
/// # Safety
///
/// The row can be read.
#[inline(always)]
unsafe fn load<I: Lanes, const OF: u8>(row: *const u8, column: usize, columns: usize, table: I::F) -> I::F {
    let count = columns - column;
    // SAFETY: as the caller promises; the part is a vector.
    unsafe {
        if OF == OF_F32 {
            let from = row.cast::<f32>().add(column);
            return if count < LANES { I::load_first(from, count, 0.0) } else { I::load(from) };
        }
        let mut part = [0u8; LANES];
        let mut from = row.wrapping_add(if OF == OF_HALVES { column / 2 } else { column });
        if OF == OF_HALVES && (count < LANES || column % 2 == 1) {
            part = half_bytes(row, column, count.min(LANES));
            from = part.as_ptr();
        } else if count < LANES {
            part.as_mut_ptr().copy_from_nonoverlapping(from, count);
            from = part.as_ptr();
        }
        match OF {
            OF_S8 => I::load_s8(from),
            OF_U8 => I::load_u8(from),
            _ => I::chosen(from, table),
        }
    }
}

/// Integers of four bits from any column of a row on, two in a byte.
///
/// # Safety
///
/// They can be read.
unsafe fn half_bytes(row: *const u8, column: usize, count: usize) -> [u8; LANES] {
    let mut part = [0; LANES];
    for index in 0..count {
        let at = column + index;
        // SAFETY: as the caller promises.
        let integer = unsafe { row.add(at / 2).read() } >> (at % 2 * 4) & 0xf;
        part[index / 2] |= integer << (index % 2 * 4);
    }
    part
}
