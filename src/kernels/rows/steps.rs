//! Loops along a row: loads and stores of four vectors, and of the rest of a row.

use crate::kernels::vector::{LANES, Lanes, RowType, each, load_at};
use crate::kernels::{Source, prefetch_l1};

/// Numbers of a step of a loop along a row: four vectors.
pub(super) const STEP: usize = 4 * LANES;

/// The four vectors that start at a column.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_step<I: Lanes>(row: *const u8, float: RowType, column: usize) -> [I::F; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        match float {
            RowType::F32 => each!(4, |i| I::load(row.cast::<f32>().add(column + i * LANES))),
            RowType::Bf16 => each!(4, |i| I::load_bf16(row.cast::<u16>().add(column + i * LANES))),
            RowType::F16 => each!(4, |i| I::load_f16(row.cast::<u16>().add(column + i * LANES))),
        }
    }
}

/// The vector that starts at a column and has `count` elements within the row; the others are `pad`.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_end<I: Lanes>(
    row: *const u8,
    float: RowType,
    column: usize,
    count: usize,
    pad: f32,
) -> I::F {
    // SAFETY: as the caller promises.
    unsafe {
        match count < LANES {
            true => I::load_part(row.add(column * float.bytes()), float, count, pad),
            false => load_at::<I>(row, float, column),
        }
    }
}

/// The four vectors that start at a column and have `count` elements within the row; the others are `pad`.
///
/// # Safety
///
/// As [`load_at`].
#[inline(always)]
pub(super) unsafe fn load_rest<I: Lanes>(
    row: *const u8,
    float: RowType,
    column: usize,
    count: usize,
    pad: f32,
) -> [I::F; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        each!(4, |i| match count.saturating_sub(i * LANES) {
            0 => I::splat(pad),
            rest => load_end::<I>(row, float, column + i * LANES, rest, pad),
        })
    }
}

/// Stores the four vectors that start at a column.
///
/// # Safety
///
/// Their elements can be written, and the machine runs the level.
#[inline(always)]
pub(super) unsafe fn store_step<I: Lanes>(row: *mut u8, float: RowType, column: usize, x: [I::F; 4]) {
    // SAFETY: as the caller promises.
    unsafe {
        let x = each!(4, |i| I::canonical_vector(x[i]));
        let at = |i: usize| row.wrapping_add((column + i * LANES) * float.bytes());
        match float {
            RowType::F32 => {
                each!(4, |i| I::store(at(i).cast(), x[i]));
            }
            RowType::Bf16 => {
                each!(2, |i| I::store_bf16_pair(at(2 * i).cast(), x[2 * i], x[2 * i + 1]));
            }
            RowType::F16 => {
                each!(4, |i| I::store_f16(at(i).cast(), x[i]));
            }
        }
    }
}

/// Stores the vector that starts at a column and has `count` elements within the row.
///
/// # Safety
///
/// As [`store_step`].
#[inline(always)]
pub(super) unsafe fn store_end<I: Lanes>(row: *mut u8, float: RowType, column: usize, count: usize, x: I::F) {
    // SAFETY: as the caller promises.
    unsafe {
        let x = I::canonical_vector(x);
        if count < LANES {
            return I::store_part(row.add(column * float.bytes()), float, count, x);
        }
        match float {
            RowType::F32 => I::store(row.cast::<f32>().add(column), x),
            RowType::Bf16 => I::store_bf16(row.cast::<u16>().add(column), x),
            RowType::F16 => I::store_f16(row.cast::<u16>().add(column), x),
        }
    }
}

/// Rows from one to the one that is prefetched meanwhile, of parts of rows.
const LATER_ROWS: usize = 16;

/// Prefetches so many bytes of a later row. One copy serves all kernels.
#[inline(never)]
pub(super) fn prefetch_later(from: Source, row: usize, bytes: usize) {
    prefetch_l1(from.row::<u8>(row + LATER_ROWS), bytes);
}

/// Longest row, in bytes, for which the next row is prefetched (decision: row-prefetch): both fit into the
/// first level.
const PREFETCHED: usize = 16 << 10;

/// Prefetches the same step of the next row if rows are short.
#[inline(always)]
pub(super) fn prefetch_next(row: *const u8, row_stride: isize, float: RowType, column: usize) {
    if row_stride.unsigned_abs() <= PREFETCHED {
        let at = row.wrapping_offset(row_stride).wrapping_add(column * float.bytes());
        prefetch_l1(at, STEP * float.bytes());
    }
}
