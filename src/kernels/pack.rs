//! Between elements at any stride and a dense tile.

use super::{ByWidth, Extent, Lane, Level, Source, Target, Width, kernel};

/// Reads elements that lie `step` bytes apart along a row, and writes them densely. What lies `ahead` bytes on may be asked for;
/// nothing where that is 0.
///
/// # Safety
///
/// Every element of the tile can be read from the source and written to the target, the machine runs the kernel's
/// level, and source and target do not overlap.
pub(crate) type Gather = unsafe fn(extent: Extent, from: Source, step: isize, ahead: isize, to: Target);

/// Reads elements densely, and writes them `step` bytes apart along a row.
///
/// # Safety
///
/// As for [`Gather`].
pub(crate) type Scatter = unsafe fn(extent: Extent, from: Source, to: Target, step: isize);

/// The kernel that makes a strided operand dense.
pub(crate) fn gather(level: Level, width: Width) -> Gather {
    GATHER.get(level, width)
}

/// The kernel that spreads a dense operand.
pub(crate) fn scatter(level: Level, width: Width) -> Scatter {
    SCATTER.get(level, width)
}

static GATHER: ByWidth<Gather> = kernel!(
    (extent: Extent, from: Source, step: isize, ahead: isize, to: Target),
    bodies::gather[],
    avx512::gather[]
);

static SCATTER: ByWidth<Scatter> = kernel!(
    (extent: Extent, from: Source, to: Target, step: isize),
    bodies::scatter[],
    bodies::scatter[]
);

mod bodies {
    use super::{Extent, Lane, Source, Target};

    /// # Safety
    ///
    /// As [`Gather`](super::Gather).
    #[inline(always)]
    pub(super) unsafe fn gather<U: Lane>(extent: Extent, from: Source, step: isize, _: isize, to: Target) {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe { to.add(i).write_unaligned(from.byte_offset(step * i as isize).read_unaligned()) };
            }
        }
    }

    /// # Safety
    ///
    /// As [`Scatter`](super::Scatter).
    #[inline(always)]
    pub(super) unsafe fn scatter<U: Lane>(extent: Extent, from: Source, to: Target, step: isize) {
        for row in 0..extent.rows {
            let (from, to) = (from.row::<U>(row), to.row::<U>(row));
            for i in 0..extent.columns {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe { to.byte_offset(step * i as isize).write_unaligned(from.add(i).read_unaligned()) };
            }
        }
    }
}

/// Where neighbours in memory stand in one column of the tile, the tile is transposed block by block: each cache line
/// is read once, although the lines of a row may lie so far apart that the first-level cache cannot hold two of them.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Extent, Lane, Source, Target, bodies};
    use crate::kernels::bring;

    /// Columns of a block at most, each a vector: all of them, and what they become, stay in registers. Transposed bytes
    /// took 0.75 of the time that they took in blocks of 64.
    const MOST_COLUMNS: usize = 16;

    /// # Safety
    ///
    /// As [`Gather`](super::Gather).
    #[inline(always)]
    pub(super) unsafe fn gather<U: Lane>(
        extent: Extent,
        from: Source,
        step: isize,
        ahead: isize,
        to: Target,
    ) {
        let (tall, wide) = (U::LANES, U::LANES.min(MOST_COLUMNS));
        let (rows, columns) = match from.pitch == size_of::<U>() as isize {
            true => (extent.rows - extent.rows % tall, extent.columns - extent.columns % wide),
            false => (0, 0),
        };
        let corner = |row: usize, column: usize| {
            let to = Target { at: to.row::<U>(row).wrapping_add(column).cast(), ..to };
            (from.row::<U>(row).wrapping_byte_offset(step * column as isize), to)
        };
        for row in (0..rows).step_by(tall) {
            for column in (0..columns).step_by(wide) {
                let (from, to) = corner(row, column);
                // SAFETY: the block lies within the tile.
                unsafe { transpose(from, step, ahead, to) };
            }
        }
        let rest = |row: usize, column: usize, extent: Extent| {
            let (at, to) = corner(row, column);
            // SAFETY: the rest lies within the tile.
            unsafe { bodies::gather::<U>(extent, Source { at: at.cast(), ..from }, step, ahead, to) };
        };
        rest(0, columns, Extent { rows, columns: extent.columns - columns });
        rest(rows, 0, Extent { rows: extent.rows - rows, columns: extent.columns });
    }

    /// Transposes a block of as many rows as a vector has lanes and at most [`MOST_COLUMNS`] columns: a perfect shuffle
    /// of all lanes of the block, done once for each bit of a column's number.
    ///
    /// # Safety
    ///
    /// The block can be read and written, and the machine runs level Avx512.
    #[inline(always)]
    unsafe fn transpose<U: Lane>(from: *const U, step: isize, ahead: isize, to: Target) {
        let columns = U::LANES.min(MOST_COLUMNS);
        // SAFETY: as the caller promises.
        unsafe {
            // The machine does not foresee lines that lie a row apart, so a later block's are asked for here.
            if ahead != 0 {
                let later = from.wrapping_byte_offset(ahead);
                for column in 0..columns {
                    bring(later.wrapping_byte_offset(step * column as isize).cast(), 1);
                }
            }
            let mut vectors = [_mm512_setzero_si512(); MOST_COLUMNS];
            for (column, vector) in vectors[..columns].iter_mut().enumerate() {
                *vector = _mm512_loadu_si512(from.byte_offset(step * column as isize).cast());
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
