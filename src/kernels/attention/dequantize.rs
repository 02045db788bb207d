//! Keys and values of 8 or 4 bits: rows of them become rows of f32.
//!
//! A number is its integer less a zero point, times a scale, and each of both steps is rounded to f32. So the
//! bits are the same at every level.

use super::decode::DISTANCE;
use super::lanes::{LANES, ScoreLanes};
use crate::kernels::isa::{at_level, shells};
use crate::kernels::pointwise::{Kernel1, LinearIndex, Nibbles, convert, nibbles};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, Source, Target, prefetch_l1};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// Rows of numbers of 8 or 4 bits, which lie next to each other in a row; a row starts at a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizedRows {
    pub(crate) at: *const u8,
    pub(crate) row_stride: isize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// What is read after these rows, if it is to be prefetched.
    pub(crate) later: Option<LaterRows>,
}

/// What is read after some rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterRows {
    /// Rows up to the last one of the run, from the first row on.
    pub(crate) rows: usize,
    /// What is read behind the run; any address is fine.
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

/// How rows are stored.
#[derive(Debug, Clone, Copy)]
enum StoredAs {
    U8,
    S8,
    /// Two integers in a byte, which are widened to bytes first.
    Nibbles {
        widen: Nibbles,
        is_signed: bool,
    },
    /// Small floats, which are widened to f32 first.
    Floats(Kernel1),
}

/// The types from which the body of the kernels reads.
const OF_U8: u8 = 0;
const OF_S8: u8 = 1;
/// Numbers in f32 that stand where the results come.
const OF_F32: u8 = 2;

shells! {
    I:
    fn dequantize[const OF: u8](rows: QuantizedRows, scaling: RowScaling, to: *mut f32, to_row: usize) {
        dequantize_of::<I, OF>(rows, scaling, to, to_row)
    }
}

/// Turns rows of a type into rows of f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DequantizeKernels {
    level: Level,
    stored: StoredAs,
}

impl DequantizeKernels {
    /// `None` if the type is none of integers of 8 or 4 bits, and of floats of 8 bits.
    pub(crate) fn new(level: Level, data_type: DataType) -> Option<Self> {
        let stored = match data_type {
            DataType::U8 => StoredAs::U8,
            DataType::S8 => StoredAs::S8,
            DataType::U4 | DataType::S4 => {
                StoredAs::Nibbles { widen: nibbles(level, data_type)?, is_signed: data_type == DataType::S4 }
            }
            DataType::F8E4m3 | DataType::F8E5m2 => {
                StoredAs::Floats(convert(level, data_type, DataType::F32)?.kernel)
            }
            _ => return None,
        };
        Some(Self { level, stored })
    }

    /// Bytes of scratch for each number of the rows of one call.
    pub(crate) fn scratch(&self) -> usize {
        usize::from(matches!(self.stored, StoredAs::Nibbles { .. }))
    }

    /// Writes rows of f32, `to_row` numbers from one to the next. What stands behind the columns of a row, up
    /// to 16 numbers, is overwritten.
    ///
    /// # Safety
    ///
    /// The machine runs the level. The rows can be read; the scales and zero points of all groups too, and 16
    /// more numbers; the target can be written, as can 16 numbers behind each row; `scratch` has room for the
    /// bytes that [`scratch`](Self::scratch) says. Nothing overlaps. If the rows are small floats, the rows
    /// of the target have a multiple of 16 numbers, and a group of columns is one column or all.
    pub(crate) unsafe fn run(
        &self,
        rows: QuantizedRows,
        scaling: RowScaling,
        to: *mut f32,
        to_row: usize,
        scratch: *mut u8,
    ) {
        let QuantizedRows { at, row_stride, columns, .. } = rows;
        let extent = Extent { rows: rows.rows, columns };
        // SAFETY: as the caller promises.
        unsafe {
            match self.stored {
                StoredAs::U8 => self.of::<OF_U8>(rows, scaling, to, to_row),
                StoredAs::S8 => self.of::<OF_S8>(rows, scaling, to, to_row),
                StoredAs::Nibbles { widen, is_signed } => {
                    (0..rows.rows).for_each(|row| rows.prefetch(row, columns.div_ceil(2)));
                    let row_step = 2 * row_stride as u64;
                    let target = Target { at: scratch, row_stride: columns as isize };
                    widen(extent, at, LinearIndex { first: 0, row_step, column_step: 1 }, target);
                    let rows =
                        QuantizedRows { at: scratch, row_stride: columns as isize, later: None, ..rows };
                    match is_signed {
                        true => self.of::<OF_S8>(rows, scaling, to, to_row),
                        false => self.of::<OF_U8>(rows, scaling, to, to_row),
                    }
                }
                StoredAs::Floats(widen) => {
                    (0..rows.rows).for_each(|row| rows.prefetch(row, columns));
                    let row = 4 * to_row as isize;
                    let target = Target { at: to.cast(), row_stride: row };
                    let source = Source { at, row_stride };
                    widen(extent, source, target, &[0.0; 2], &mut PrefetchQueue::default());
                    let rows = QuantizedRows { at: to.cast(), row_stride: row, later: None, ..rows };
                    self.of::<OF_F32>(rows, scaling, to, to_row);
                }
            }
        }
    }

    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn of<const OF: u8>(&self, rows: QuantizedRows, scaling: RowScaling, to: *mut f32, to_row: usize) {
        // SAFETY: as the caller promises.
        unsafe { at_level!(self.level, dequantize::<OF>(rows, scaling, to, to_row)) }
    }
}

impl QuantizedRows {
    /// Prefetches what is read some time after a row of so many bytes.
    #[inline(always)]
    fn prefetch(&self, row: usize, bytes: usize) {
        let Some(LaterRows { rows, next }) = self.later else { return };
        let row = row + DISTANCE.div_ceil(bytes.max(1));
        let (from, row) = match row.checked_sub(rows) {
            None => (self.at, row),
            Some(past) => (next, past),
        };
        prefetch_l1(from.wrapping_offset(self.row_stride * row as isize), bytes);
    }
}

/// # Safety
///
/// As [`DequantizeKernels::run`], for rows of the type.
#[inline(always)]
unsafe fn dequantize_of<I: ScoreLanes, const OF: u8>(
    rows: QuantizedRows,
    scaling: RowScaling,
    to: *mut f32,
    to_row: usize,
) {
    let columns = rows.columns;
    let width = if OF == OF_F32 { 4 } else { 1 };
    let RowScaling { group, row_step, column_step, .. } = scaling;
    for row in 0..rows.rows {
        if OF != OF_F32 {
            rows.prefetch(row, columns);
        }
        let from = rows.at.wrapping_offset(rows.row_stride * row as isize);
        let to = to.wrapping_add(row * to_row);
        let place = (scaling.before + row) / group.rows * row_step;
        let (scales, zeros) = (scaling.scales.wrapping_add(place), scaling.zeros.wrapping_add(place));
        // SAFETY: as the caller promises. A vector that goes beyond its group is overwritten by the next one.
        unsafe {
            if group.columns == 1 {
                for column in (0..columns).step_by(LANES) {
                    let x = load::<I, OF>(from.wrapping_add(column * width), columns - column);
                    let x = I::sub(x, I::load(zeros.add(column)));
                    I::store(to.add(column), I::mul(x, I::load(scales.add(column))));
                }
                continue;
            }
            for (index, first) in (0..columns).step_by(group.columns).enumerate() {
                let scale = I::splat(*scales.add(index * column_step));
                let zero = I::splat(*zeros.add(index * column_step));
                let end = columns.min(first + group.columns);
                for column in (first..end).step_by(LANES) {
                    let x = load::<I, OF>(from.wrapping_add(column * width), columns - column);
                    I::store(to.add(column), I::mul(I::sub(x, zero), scale));
                }
            }
        }
    }
}

/// A vector of numbers of a type, or the `count` that are left of a row.
///
/// # Safety
///
/// These can be read.
#[inline(always)]
unsafe fn load<I: ScoreLanes, const OF: u8>(from: *const u8, count: usize) -> I::F {
    // SAFETY: as the caller promises; the part is a vector.
    unsafe {
        if OF == OF_F32 {
            return match count {
                LANES.. => I::load(from.cast()),
                rest => I::load_first(from.cast(), rest, 0.0),
            };
        }
        let mut part = [0u8; LANES];
        let from = match count {
            LANES.. => from,
            rest => {
                part.as_mut_ptr().copy_from_nonoverlapping(from, rest);
                part.as_ptr()
            }
        };
        if OF == OF_S8 { I::load_s8(from) } else { I::load_u8(from) }
    }
}
