//! Copies from strided elements to a contiguous tile.

use super::by_width::{ByWidth, PackTile};
use super::isa::{Isa, by_level, shells};
use super::simd::LaneBits;
use super::transpose::transpose_tile;
use super::{Extent, InnerStride, Source, StorePolicy, Target, Width, select};
use crate::types::kind::Level;

/// The kernel that packs a strided operand.
pub(crate) fn pack_tile(level: Level, width: Width) -> PackTile {
    PACK_TILE.get(level, width)
}

static PACK_TILE: ByWidth<PackTile> = ByWidth::of(
    by_level!(pack::<u8>),
    by_level!(pack::<u16>),
    by_level!(pack::<u32>),
    by_level!(pack::<u64>),
);

shells! {
    I:
    fn pack[U: LaneBits](extent: Extent, from: Source, col_stride: isize, distance: isize, to: Target) {
        packed::<I, U>(extent, from, col_stride, distance, to)
    }
}

/// # Safety
///
/// As [`PackTile`].
#[inline(always)]
unsafe fn packed<I: Isa, U: LaneBits>(
    extent: Extent,
    from: Source,
    col_stride: isize,
    distance: isize,
    to: Target,
) {
    if col_stride == size_of::<U>() as isize {
        // SAFETY: as the caller promises.
        return unsafe { bodies::copy_rows::<U>(extent, from, to) };
    }
    let is_transposed = from.row_stride == size_of::<U>() as isize;
    let apart = 2 * size_of::<U>() as isize;
    // SAFETY: as the caller promises.
    unsafe {
        if col_stride == 0 {
            let fill = select::copy(I::LEVEL, U::WIDTH, InnerStride::Broadcast, StorePolicy::Temporal);
            return fill(extent, from, to);
        }
        // Vectors take every second element of neighbours; other widths are too rare for code of their own.
        if I::LEVEL > Level::Portable && size_of::<U>() == 4 && col_stride == apart && !is_transposed {
            return bodies::pack_tile::<U>(extent, from, apart, to);
        }
        match I::LEVEL {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => shuffled::pack_tile::<U>(extent, from, col_stride, distance, to),
            // Lanes change places in registers (decision: transposed-pack).
            Level::Avx2 if is_transposed => {
                let transpose = transpose_tile(I::LEVEL, U::WIDTH, StorePolicy::Temporal);
                transpose(extent, from, col_stride, distance, to);
            }
            _ => bodies::pack_tile::<U>(extent, from, col_stride, to),
        }
    }
}

pub(super) mod bodies {
    use super::{Extent, LaneBits, Source, Target};

    /// Copies rows of neighbours.
    ///
    /// # Safety
    ///
    /// As [`PackTile`](super::PackTile).
    #[inline(always)]
    pub(in crate::kernels) unsafe fn copy_rows<U: LaneBits>(extent: Extent, from: Source, to: Target) {
        let bytes = extent.columns * size_of::<U>();
        for row in 0..extent.rows {
            // SAFETY: the caller promises that every element of the tile can be read and written.
            unsafe { to.row::<u8>(row).copy_from_nonoverlapping(from.row(row), bytes) };
        }
    }

    /// # Safety
    ///
    /// As [`PackTile`](super::PackTile).
    #[inline(always)]
    pub(super) unsafe fn pack_tile<U: LaneBits>(extent: Extent, from: Source, col_stride: isize, to: Target) {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe {
                    to.add(i).write_unaligned(from.byte_offset(col_stride * i as isize).read_unaligned())
                };
            }
        }
    }
}

/// If neighbours in memory are neighbours in a column, the tile is transposed block by block. So each cache
/// line is read once, although the lines of a row may lie so far apart that the first-level cache cannot hold
/// two of them.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod shuffled {
    use std::arch::x86_64::*;

    use super::{Extent, Source, Target, bodies};
    use crate::kernels::prefetch_l1;
    use crate::kernels::simd::LaneBits;

    /// Most columns of a block, each a vector: inputs and outputs of the transposition stay in registers
    /// (decision: packed-block).
    const MAX_COLUMNS: usize = 16;

    /// # Safety
    ///
    /// As [`PackTile`](super::PackTile).
    #[inline(always)]
    pub(super) unsafe fn pack_tile<U: LaneBits>(
        extent: Extent,
        from: Source,
        col_stride: isize,
        distance: isize,
        to: Target,
    ) {
        let (tall, wide) = (U::LANES, U::LANES.min(MAX_COLUMNS));
        let (rows, columns) = match from.row_stride == size_of::<U>() as isize {
            true => (extent.rows - extent.rows % tall, extent.columns - extent.columns % wide),
            false => (0, 0),
        };
        let corner = |row: usize, column: usize| {
            let to = Target { at: to.row::<U>(row).wrapping_add(column).cast(), ..to };
            (from.row::<U>(row).wrapping_byte_offset(col_stride * column as isize), to)
        };
        for row in (0..rows).step_by(tall) {
            for column in (0..columns).step_by(wide) {
                let (from, to) = corner(row, column);
                // SAFETY: the block lies within the tile.
                unsafe { transpose(from, col_stride, distance, to) };
            }
        }
        let edge = |row: usize, column: usize, extent: Extent| {
            let (at, to) = corner(row, column);
            // SAFETY: the rest lies within the tile.
            unsafe { bodies::pack_tile::<U>(extent, Source { at: at.cast(), ..from }, col_stride, to) };
        };
        edge(0, columns, Extent { rows, columns: extent.columns - columns });
        edge(rows, 0, Extent { rows: extent.rows - rows, columns: extent.columns });
    }

    /// Transposes a block of at most [`MAX_COLUMNS`] columns and as many rows as a vector has lanes: a
    /// perfect shuffle of all lanes, once for each bit of a column's number.
    ///
    /// # Safety
    ///
    /// The block can be read and written, and the machine runs level Avx512.
    #[inline(always)]
    unsafe fn transpose<U: LaneBits>(from: *const U, col_stride: isize, distance: isize, to: Target) {
        let columns = U::LANES.min(MAX_COLUMNS);
        // SAFETY: as the caller promises.
        unsafe {
            // The hardware does not predict lines that lie a row apart, so this prefetches lines of a later
            // block.
            if distance != 0 {
                let later = from.wrapping_byte_offset(distance);
                for column in 0..columns {
                    prefetch_l1(later.wrapping_byte_offset(col_stride * column as isize).cast(), 1);
                }
            }
            let mut vectors = [_mm512_setzero_si512(); MAX_COLUMNS];
            for (column, vector) in vectors[..columns].iter_mut().enumerate() {
                *vector = _mm512_loadu_si512(from.byte_offset(col_stride * column as isize).cast());
            }
            for _ in 0..columns.ilog2() {
                let before = vectors;
                for pair in 0..columns / 2 {
                    let (low, high) = U::interleave(before[pair], before[pair + columns / 2]);
                    vectors[2 * pair] = low;
                    vectors[2 * pair + 1] = high;
                }
            }
            let rows_of_vector = U::LANES / columns;
            for (place, &vector) in vectors[..columns].iter().enumerate() {
                let row = |i: usize| to.row::<__m512i>(rows_of_vector * place + i);
                match rows_of_vector {
                    1 => _mm512_storeu_si512(row(0), vector),
                    2 => {
                        _mm256_storeu_si256(row(0).cast(), _mm512_castsi512_si256(vector));
                        _mm256_storeu_si256(row(1).cast(), _mm512_extracti64x4_epi64::<1>(vector));
                    }
                    _ => {
                        _mm_storeu_si128(row(0).cast(), _mm512_castsi512_si128(vector));
                        _mm_storeu_si128(row(1).cast(), _mm512_extracti32x4_epi32::<1>(vector));
                        _mm_storeu_si128(row(2).cast(), _mm512_extracti32x4_epi32::<2>(vector));
                        _mm_storeu_si128(row(3).cast(), _mm512_extracti32x4_epi32::<3>(vector));
                    }
                }
            }
        }
    }
}
