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

/// Writes elements of four bytes to every second place.
///
/// # Safety
///
/// They can be read and written, and the machine runs level Avx512.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn spread_by_two(count: usize, from: *const u32, to: *mut i32) {
    use std::arch::x86_64::*;

    for first in (0..count).step_by(8) {
        let part = (count - first).min(8);
        // SAFETY: as the caller promises; elements outside of the masks are neither read nor written.
        unsafe {
            let elements = _mm256_maskz_loadu_epi32(0xff >> (8 - part), from.add(first).cast());
            let places = 0x5555 >> (16 - 2 * part);
            _mm512_mask_storeu_epi32(to.add(2 * first), places, _mm512_cvtepu32_epi64(elements));
        }
    }
}

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
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            if I::LEVEL == Level::Avx512 && size_of::<U>() == 4 && col_stride == 8 {
                // SAFETY: as the caller promises.
                unsafe { spread_by_two(extent.columns, from.cast(), to.cast()) };
                continue;
            }
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
