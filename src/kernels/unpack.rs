//! Copies from a contiguous tile to strided elements.

use super::by_width::ByWidth;
use super::isa::{Isa, by_level, shells};
use super::pack::bodies::copy_rows;
use super::simd::LaneBits;
use super::transpose::transpose_tile;
use super::{Extent, LINE, Source, StorePolicy, Target, Width};
use crate::types::kind::Level;

/// Reads contiguous elements, and writes them `col_stride` bytes apart along a row.
///
/// # Safety
///
/// Every element of the tile can be read from the source and written to the target, the machine runs the
/// kernel's level, and source and target do not overlap.
pub(crate) type UnpackTile = unsafe fn(extent: Extent, from: Source, to: Target, col_stride: isize);

/// The kernel that unpacks a contiguous operand.
pub(crate) fn unpack_tile(level: Level, width: Width) -> UnpackTile {
    UNPACK_TILE.get(level, width)
}

static UNPACK_TILE: ByWidth<UnpackTile> = {
    shells! {
        I:
        fn unpacked[U: LaneBits](extent: Extent, from: Source, to: Target, col_stride: isize) {
            unpack::<I, U>(extent, from, to, col_stride)
        }
    }

    ByWidth::of(
        by_level!(unpacked::<u8>),
        by_level!(unpacked::<u16>),
        by_level!(unpacked::<u32>),
        by_level!(unpacked::<u64>),
    )
};

/// # Safety
///
/// As [`UnpackTile`].
#[inline(always)]
unsafe fn unpack<I: Isa, U: LaneBits>(extent: Extent, from: Source, to: Target, col_stride: isize) {
    let element = size_of::<U>() as isize;
    if col_stride == element {
        // SAFETY: as the caller promises.
        return unsafe { copy_rows::<U>(extent, from, to) };
    }
    if to.row_stride == element {
        let transpose = transpose_tile(I::LEVEL, U::WIDTH, StorePolicy::Temporal);
        let (source, to) = (Source { row_stride: element, ..from }, Target { row_stride: col_stride, ..to });
        // SAFETY: as the caller promises.
        return unsafe { transpose(extent.transposed(), source, from.row_stride, 0, to) };
    }
    // If neighbours in a column share lines of memory, lines are written as a whole.
    let block = (LINE / to.row_stride.unsigned_abs().max(1)).max(1);
    if block == 1 {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: as the caller promises.
                unsafe {
                    to.byte_offset(col_stride * i as isize).write_unaligned(from.add(i).read_unaligned())
                };
            }
        }
        return;
    }
    for first in (0..extent.rows).step_by(block) {
        for i in 0..extent.columns {
            for row in first..extent.rows.min(first + block) {
                let (from, to) = (from.row::<U>(row), to.row::<U>(row));
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe {
                    to.byte_offset(col_stride * i as isize).write_unaligned(from.add(i).read_unaligned())
                };
            }
        }
    }
}
