//! Rows that go to or from places which indices name.
//!
//! The places lie anywhere, so memory decides the time of a lookup, and plain Rust serves every level. The
//! copy of a row is that of the C library.

use super::Width;
use super::floats::{canonical, maximum, minimum};
use super::isa::{Portable, at_level, shells};
use super::pointwise::conversion::To;
use super::pointwise::doubles;
use super::pointwise::half::{Bf16, F16};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// The elements of a row in memory; strides are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowStrides {
    pub(crate) count: usize,
    pub(crate) table: isize,
    pub(crate) rows: isize,
}

/// Copies a row from a table.
///
/// # Safety
///
/// Each element of the row can be read in the table and written in the rows, and the two do not overlap.
pub(crate) type CopyRow = unsafe fn(row: RowStrides, table: *const u8, rows: *mut u8);

/// Combines each element of a row with that of a table, which the result replaces.
///
/// # Safety
///
/// Each element of the row can be read in the rows, and read and written in the table, and the two do not
/// overlap.
pub(crate) type CombineRow = unsafe fn(row: RowStrides, table: *mut u8, rows: *const u8);

/// A line of places with one element each, by one index each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexedLine {
    pub(crate) count: usize,
    pub(crate) indices: *const u8,
    pub(crate) index_stride: isize,
    /// The size of the dim that the indices name, which is not 0, and the bytes between its elements.
    pub(crate) size: i64,
    pub(crate) axis_stride: isize,
    pub(crate) table: *mut u8,
    pub(crate) table_stride: isize,
    pub(crate) rows: *mut u8,
    pub(crate) row_stride: isize,
}

/// Copies the elements of a line from a table, or to it in their order.
///
/// # Safety
///
/// Each index can be read, each element of the rows written, and each element of the table along the dim that
/// the indices name can be read at each place. The rows do not overlap the table or the indices. Elements
/// that go to the table can be read in the rows and written there.
pub(crate) type MoveElements = unsafe fn(line: IndexedLine);

/// How an element and an update become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combination {
    /// The update stands.
    Replace,
    Add,
    Multiply,
    Minimum,
    Maximum,
}

/// The element that an index stands for, in the dim if the index is in range; one out of range, which a
/// caller's other threads may write after it was checked, stands for the nearest element.
#[inline(always)]
pub(crate) fn place_in(index: i64, size: i64) -> isize {
    // Most are counted from the front.
    if (index as u64) < size as u64 {
        return index as isize;
    }
    let from_front = if index < 0 { index.saturating_add(size) } else { index };
    from_front.clamp(0, size - 1) as isize
}

/// True if contiguous indices lie from a first one on in a span.
///
/// # Safety
///
/// The indices can be read, and the machine runs the level.
pub(crate) unsafe fn are_within(
    level: Level,
    indices: (*const u8, DataType),
    count: usize,
    first: i64,
    span: u64,
) -> bool {
    let (at, data_type) = indices;
    // SAFETY: as the caller promises.
    unsafe {
        match data_type {
            DataType::S32 => at_level!(level, within::<i32>(at, count, first, span)),
            _ => at_level!(level, within::<i64>(at, count, first, span)),
        }
    }
}

shells! {
    I:
    fn within[T: Index](at: *const u8, count: usize, first: i64, span: u64) -> bool {
        all_within::<T>(at.cast(), count, first, span)
    }
}

/// Blocks have no branches (decision: indices-by-blocks).
///
/// # Safety
///
/// As [`are_within`].
#[inline(always)]
unsafe fn all_within<T: Index>(at: *const T, count: usize, first: i64, span: u64) -> bool {
    const BLOCK: usize = 256;
    for start in (0..count).step_by(BLOCK) {
        let mut beyond = 0u64;
        for i in start..count.min(start + BLOCK) {
            // SAFETY: as the caller promises.
            let index: i64 = unsafe { at.add(i).read_unaligned() }.into();
            beyond += u64::from(index.wrapping_sub(first) as u64 > span);
        }
        if beyond != 0 {
            return false;
        }
    }
    true
}

/// Reads an index.
///
/// # Safety
///
/// The index can be read; its type is s32 or s64.
#[inline(always)]
pub(crate) unsafe fn index_at(at: *const u8, data_type: DataType) -> i64 {
    // SAFETY: as the caller promises.
    unsafe {
        match data_type {
            DataType::S32 => at.cast::<i32>().read_unaligned().into(),
            _ => at.cast::<i64>().read_unaligned(),
        }
    }
}

/// The kernel that copies rows of elements of a width.
pub(crate) fn copy_row(width: Width) -> CopyRow {
    match width {
        Width::W1 => copied::<u8>,
        Width::W2 => copied::<u16>,
        Width::W4 => copied::<u32>,
        Width::W8 => copied::<u64>,
    }
}

/// The kernel that copies single elements of a width by indices of a type: from the table, or to it.
pub(crate) fn move_elements(width: Width, indices: DataType, is_gather: bool) -> MoveElements {
    match (is_gather, indices) {
        (true, DataType::S32) => elements_of::<i32, true>(width),
        (true, _) => elements_of::<i64, true>(width),
        (false, DataType::S32) => elements_of::<i32, false>(width),
        (false, _) => elements_of::<i64, false>(width),
    }
}

fn elements_of<I: Index, const GATHER: bool>(width: Width) -> MoveElements {
    match width {
        Width::W1 => moved::<u8, I, GATHER>,
        Width::W2 => moved::<u16, I, GATHER>,
        Width::W4 => moved::<u32, I, GATHER>,
        Width::W8 => moved::<u64, I, GATHER>,
    }
}

/// The kernel that combines rows of a type; `None` if the type has no numbers to combine.
pub(crate) fn combine_row(data_type: DataType, combination: Combination) -> Option<CombineRow> {
    if combination == Combination::Replace {
        return Some(match Width::of(data_type.size()?)? {
            Width::W1 => replaced::<u8>,
            Width::W2 => replaced::<u16>,
            Width::W4 => replaced::<u32>,
            Width::W8 => replaced::<u64>,
        });
    }
    Some(match data_type {
        DataType::F32 => combined_as::<f32>(combination),
        DataType::F64 => combined_as::<f64>(combination),
        DataType::Bf16 => combined_as::<Bf16>(combination),
        DataType::F16 => combined_as::<F16>(combination),
        DataType::S8 => combined_as::<i8>(combination),
        DataType::S16 => combined_as::<i16>(combination),
        DataType::S32 => combined_as::<i32>(combination),
        DataType::S64 => combined_as::<i64>(combination),
        DataType::U8 => combined_as::<u8>(combination),
        DataType::U16 => combined_as::<u16>(combination),
        DataType::U32 => combined_as::<u32>(combination),
        DataType::U64 => combined_as::<u64>(combination),
        _ => return None,
    })
}

/// # Safety
///
/// As for [`CopyRow`].
unsafe fn copied<U: Copy>(row: RowStrides, table: *const u8, rows: *mut u8) {
    let size = size_of::<U>() as isize;
    // SAFETY: as the caller promises.
    unsafe {
        match row {
            RowStrides { count: 1, .. } => {
                rows.cast::<U>().write_unaligned(table.cast::<U>().read_unaligned())
            }
            RowStrides { count, table: along, rows: to } if along == size && to == size => {
                std::ptr::copy_nonoverlapping(table, rows, count * size_of::<U>());
            }
            RowStrides { count, table: 0, rows: to } if to == size => {
                let element = table.cast::<U>().read_unaligned();
                for i in 0..count {
                    rows.cast::<U>().add(i).write_unaligned(element);
                }
            }
            RowStrides { count, table: along, rows: to } => {
                for i in 0..count as isize {
                    let element = table.offset(along * i).cast::<U>().read_unaligned();
                    rows.offset(to * i).cast::<U>().write_unaligned(element);
                }
            }
        }
    }
}

/// # Safety
///
/// As for [`CombineRow`].
unsafe fn replaced<U: Copy>(row: RowStrides, table: *mut u8, rows: *const u8) {
    let swapped = RowStrides { count: row.count, table: row.rows, rows: row.table };
    // SAFETY: as the caller promises.
    unsafe { copied::<U>(swapped, rows, table) }
}

/// An integer that indexes.
trait Index: Copy + Into<i64> {}

impl Index for i32 {}
impl Index for i64 {}

/// # Safety
///
/// As for [`MoveElements`].
unsafe fn moved<U: Copy, I: Index, const GATHER: bool>(line: IndexedLine) {
    let neighbours = (size_of::<I>() as isize, size_of::<U>() as isize);
    let are_neighbours = (line.index_stride, line.row_stride) == neighbours;
    // The elements of a row of neighbours by indices along it.
    let is_row = (line.table_stride, line.axis_stride) == (0, neighbours.1);
    // SAFETY: as the caller promises.
    unsafe {
        match (are_neighbours, is_row) {
            (true, true) => moved_at::<U, I, GATHER>(IndexedLine {
                table_stride: 0,
                axis_stride: neighbours.1,
                index_stride: neighbours.0,
                row_stride: neighbours.1,
                ..line
            }),
            (true, false) => moved_at::<U, I, GATHER>(IndexedLine {
                index_stride: neighbours.0,
                row_stride: neighbours.1,
                ..line
            }),
            (false, _) => moved_at::<U, I, GATHER>(line),
        }
    }
}

/// # Safety
///
/// As for [`MoveElements`].
#[inline(always)]
unsafe fn moved_at<U: Copy, I: Index, const GATHER: bool>(line: IndexedLine) {
    let IndexedLine {
        count,
        indices,
        index_stride,
        size,
        axis_stride,
        table,
        table_stride,
        rows,
        row_stride,
    } = line;
    for i in 0..count as isize {
        // SAFETY: as the caller promises.
        unsafe {
            let index = indices.offset(index_stride * i).cast::<I>().read_unaligned();
            let at = table.offset(table_stride * i + place_in(index.into(), size) * axis_stride).cast::<U>();
            let row = rows.offset(row_stride * i).cast::<U>();
            let (from, to) = if GATHER { (at, row) } else { (row, at) };
            to.write_unaligned(from.read_unaligned());
        }
    }
}

/// An element that can be combined with an update.
trait Combined: Copy {
    fn add(self, update: Self) -> Self;
    fn multiply(self, update: Self) -> Self;
    fn minimum(self, update: Self) -> Self;
    fn maximum(self, update: Self) -> Self;
}

macro_rules! integers {
    ($($T:ty)*) => {
        $(impl Combined for $T {
            #[inline(always)]
            fn add(self, update: Self) -> Self {
                self.wrapping_add(update)
            }

            #[inline(always)]
            fn multiply(self, update: Self) -> Self {
                self.wrapping_mul(update)
            }

            #[inline(always)]
            fn minimum(self, update: Self) -> Self {
                self.min(update)
            }

            #[inline(always)]
            fn maximum(self, update: Self) -> Self {
                self.max(update)
            }
        })*
    };
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! floats {
    ($($T:ty: $of:expr, $to:expr, $canonical:path, $minimum:path, $maximum:path;)*) => {
        $(impl Combined for $T {
            #[inline(always)]
            fn add(self, update: Self) -> Self {
                $to($canonical($of(self) + $of(update)))
            }

            #[inline(always)]
            fn multiply(self, update: Self) -> Self {
                $to($canonical($of(self) * $of(update)))
            }

            #[inline(always)]
            fn minimum(self, update: Self) -> Self {
                $to($minimum($of(self), $of(update)))
            }

            #[inline(always)]
            fn maximum(self, update: Self) -> Self {
                $to($maximum($of(self), $of(update)))
            }
        })*
    };
}

floats! {
    f32: std::convert::identity, std::convert::identity, canonical, minimum, maximum;
    f64: std::convert::identity, std::convert::identity, doubles::canonical, doubles::minimum,
        doubles::maximum;
    Bf16: <Bf16 as To<f32>>::to::<Portable>, <f32 as To<Bf16>>::to::<Portable>, canonical, minimum, maximum;
    F16: <F16 as To<f32>>::to::<Portable>, <f32 as To<F16>>::to::<Portable>, canonical, minimum, maximum;
}

fn combined_as<T: Combined>(combination: Combination) -> CombineRow {
    match combination {
        Combination::Replace => replaced::<T>,
        Combination::Add => combined::<T, ADD>,
        Combination::Multiply => combined::<T, MULTIPLY>,
        Combination::Minimum => combined::<T, MINIMUM>,
        Combination::Maximum => combined::<T, MAXIMUM>,
    }
}

const ADD: u8 = 0;
const MULTIPLY: u8 = 1;
const MINIMUM: u8 = 2;
const MAXIMUM: u8 = 3;

/// # Safety
///
/// As for [`CombineRow`].
unsafe fn combined<T: Combined, const COMBINATION: u8>(row: RowStrides, table: *mut u8, rows: *const u8) {
    let one = |old: T, update: T| match COMBINATION {
        ADD => old.add(update),
        MULTIPLY => old.multiply(update),
        MINIMUM => old.minimum(update),
        _ => old.maximum(update),
    };
    let size = size_of::<T>() as isize;
    // SAFETY: as the caller promises.
    unsafe {
        match row.table == size && row.rows == size {
            true => {
                for i in 0..row.count {
                    let (to, from) = (table.cast::<T>().add(i), rows.cast::<T>().add(i));
                    to.write_unaligned(one(to.read_unaligned(), from.read_unaligned()));
                }
            }
            false => {
                for i in 0..row.count as isize {
                    let to = table.offset(row.table * i).cast::<T>();
                    let from = rows.offset(row.rows * i).cast::<T>();
                    to.write_unaligned(one(to.read_unaligned(), from.read_unaligned()));
                }
            }
        }
    }
}
