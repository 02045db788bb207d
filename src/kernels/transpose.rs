//! Copies a tile whose elements follow each other in memory down its columns to one whose elements follow
//! each other along its rows.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use std::arch::x86_64::__m512i;

use super::by_width::ByWidth;
use super::isa::{Isa, by_level, shells};
use super::pack::PackTile;
use super::simd::LaneBits;
use super::{Extent, Source, StorePolicy, Target, Width};
use crate::types::kind::Level;

/// The kernel that transposes; the row stride of its source is one element. Non-temporal stores are used for
/// whole cache lines alone, and need a fence.
pub(crate) fn transpose_tile(level: Level, width: Width, stores: StorePolicy) -> PackTile {
    match stores {
        StorePolicy::Temporal => TEMPORAL.get(level, width),
        StorePolicy::NonTemporal => NON_TEMPORAL.get(level, width),
    }
}

/// A kernel for each level and width.
macro_rules! table {
    ($non_temporal:literal) => {
        ByWidth::of(
            by_level!(transposed::<u8, $non_temporal>),
            by_level!(transposed::<u16, $non_temporal>),
            by_level!(transposed::<u32, $non_temporal>),
            by_level!(transposed::<u64, $non_temporal>),
        )
    };
}

static TEMPORAL: ByWidth<PackTile> = table!(false);
static NON_TEMPORAL: ByWidth<PackTile> = table!(true);

shells! {
    I:
    fn transposed[U: LaneBits, const NON_TEMPORAL: bool](
        extent: Extent,
        from: Source,
        col_stride: isize,
        distance: isize,
        to: Target,
    ) {
        at_level::<I, U, NON_TEMPORAL>(extent, from, col_stride, distance, to)
    }
}

/// # Safety
///
/// As for [`PackTile`], the row stride of the source is one element, and the machine runs the level.
#[inline(always)]
unsafe fn at_level<I: Isa, U: LaneBits, const NON_TEMPORAL: bool>(
    extent: Extent,
    from: Source,
    col_stride: isize,
    _: isize,
    to: Target,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match I::LEVEL {
            #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            Level::Avx512 => blocks::tile::<U, __m512i, NON_TEMPORAL>(extent, from, col_stride, to),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => blocks::tile::<U, __m256i, NON_TEMPORAL>(extent, from, col_stride, to),
            _ => elements::<U>(extent, from, col_stride, to),
        }
    }
}

/// Element by element: blocks of as many rows as a line has elements, so that lines are read once.
///
/// # Safety
///
/// As for [`PackTile`], and the row stride of the source is one element.
#[inline(always)]
unsafe fn elements<U: LaneBits>(extent: Extent, from: Source, col_stride: isize, to: Target) {
    for first in (0..extent.rows).step_by(BLOCK) {
        let rows = first..extent.rows.min(first + BLOCK);
        for column in 0..extent.columns {
            let from = from.at.cast::<U>().wrapping_byte_offset(col_stride * column as isize);
            for row in rows.clone() {
                // SAFETY: the caller promises that every element of the tile can be read and written.
                unsafe {
                    to.row::<U>(row)
                        .wrapping_add(column)
                        .write_unaligned(from.wrapping_add(row).read_unaligned());
                }
            }
        }
    }
}

/// Rows that are written alternately.
const BLOCK: usize = 16;

/// Blocks of vectors: each part of 16 bytes of a vector is read from a row of memory of its own, and elements
/// change places within their parts, so that no shuffle crosses parts.
#[cfg(target_arch = "x86_64")]
mod blocks {
    use std::arch::x86_64::*;

    use super::{Extent, LaneBits, Source, Target, elements};
    use crate::kernels::LINE;

    /// Bytes of a part of a vector.
    const PART: usize = 16;

    /// A vector of several parts. A caller promises a machine that has its instructions.
    pub(super) trait PartedVector: Copy {
        const COUNT: usize;

        /// Reads each part from its own address.
        unsafe fn load(at: impl Fn(usize) -> *const __m128i) -> Self;

        /// The elements of the lower and of the upper halves of all parts of two vectors, interleaved, for
        /// the bytes of an element.
        unsafe fn interleave(a: Self, b: Self, bytes: usize) -> (Self, Self);

        unsafe fn store(self, to: *mut u8);

        /// Stores non-temporally, to an address that is a multiple of the vector's size.
        unsafe fn stream(self, to: *mut u8);
    }

    macro_rules! parts {
        (
            $Vector:ident, $count:literal, $load:expr,
            $($bytes:literal: $low:ident $high:ident,)*
            $store:ident $stream:ident
        ) => {
            impl PartedVector for $Vector {
                const COUNT: usize = $count;

                #[inline(always)]
                unsafe fn load(at: impl Fn(usize) -> *const __m128i) -> Self {
                    // SAFETY: as the caller promises.
                    unsafe { $load(at) }
                }

                #[inline(always)]
                unsafe fn interleave(a: Self, b: Self, bytes: usize) -> (Self, Self) {
                    // SAFETY: as the caller promises.
                    unsafe {
                        match bytes {
                            $($bytes => ($low(a, b), $high(a, b)),)*
                            _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
                        }
                    }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut u8) {
                    // SAFETY: as the caller promises.
                    unsafe { $store(to.cast(), self) }
                }

                #[inline(always)]
                unsafe fn stream(self, to: *mut u8) {
                    // SAFETY: as the caller promises.
                    unsafe { $stream(to.cast(), self) }
                }
            }
        };
    }

    parts! {
        __m256i, 2, load_256,
        1: _mm256_unpacklo_epi8 _mm256_unpackhi_epi8,
        2: _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
        4: _mm256_unpacklo_epi32 _mm256_unpackhi_epi32,
        8: _mm256_unpacklo_epi64 _mm256_unpackhi_epi64,
        _mm256_storeu_si256 _mm256_stream_si256
    }

    #[cfg(feature = "avx512")]
    parts! {
        __m512i, 4, load_512,
        1: _mm512_unpacklo_epi8 _mm512_unpackhi_epi8,
        2: _mm512_unpacklo_epi16 _mm512_unpackhi_epi16,
        4: _mm512_unpacklo_epi32 _mm512_unpackhi_epi32,
        8: _mm512_unpacklo_epi64 _mm512_unpackhi_epi64,
        _mm512_storeu_si512 _mm512_stream_si512
    }

    #[inline(always)]
    unsafe fn load_256(at: impl Fn(usize) -> *const __m128i) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe {
            let first = _mm256_castsi128_si256(_mm_loadu_si128(at(0)));
            _mm256_inserti128_si256::<1>(first, _mm_loadu_si128(at(1)))
        }
    }

    #[cfg(feature = "avx512")]
    #[inline(always)]
    unsafe fn load_512(at: impl Fn(usize) -> *const __m128i) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe {
            let vector = _mm512_castsi128_si512(_mm_loadu_si128(at(0)));
            let vector = _mm512_inserti32x4::<1>(vector, _mm_loadu_si128(at(1)));
            let vector = _mm512_inserti32x4::<2>(vector, _mm_loadu_si128(at(2)));
            _mm512_inserti32x4::<3>(vector, _mm_loadu_si128(at(3)))
        }
    }

    /// Writes as many rows of a vector each as a part has elements.
    ///
    /// # Safety
    ///
    /// The block can be read and written, and the machine has the vector's instructions.
    #[inline(always)]
    unsafe fn block<U: LaneBits, V: PartedVector, const STREAM: bool>(
        from: *const U,
        col_stride: isize,
        to: Target,
    ) {
        let count = PART / size_of::<U>();
        let at = |column: usize| from.wrapping_byte_offset(col_stride * column as isize).cast::<__m128i>();
        // SAFETY: as the caller promises.
        unsafe {
            let mut vectors = [V::load(|part| at(part * count)); PART];
            for (i, vector) in vectors[..count].iter_mut().enumerate() {
                *vector = V::load(|part| at(part * count + i));
            }
            for _ in 0..count.ilog2() {
                let before = vectors;
                for pair in 0..count / 2 {
                    let (low, high) = V::interleave(before[pair], before[pair + count / 2], size_of::<U>());
                    (vectors[2 * pair], vectors[2 * pair + 1]) = (low, high);
                }
            }
            for (row, vector) in vectors[..count].iter().enumerate() {
                if STREAM { vector.stream(to.row(row)) } else { vector.store(to.row(row)) }
            }
        }
    }

    /// Where pieces of a size begin that cover an extent: the last one ends with it, and overlaps the one
    /// before.
    #[inline(always)]
    fn starts(extent: usize, size: usize) -> impl Iterator<Item = usize> {
        (0..extent.div_ceil(size)).map(move |piece| (piece * size).min(extent - size))
    }

    /// Elements of four bytes and more are written two lines at a time if rows begin with lines
    /// (decision: transposed-lines).
    ///
    /// # Safety
    ///
    /// As for [`elements`], and the machine has the vector's instructions.
    #[inline(always)]
    pub(super) unsafe fn tile<U: LaneBits, V: PartedVector, const NON_TEMPORAL: bool>(
        extent: Extent,
        from: Source,
        col_stride: isize,
        to: Target,
    ) {
        let (tall, line) = (PART / size_of::<U>(), LINE / size_of::<U>());
        if extent.rows < tall || extent.columns < line {
            // SAFETY: as the caller promises.
            return unsafe { elements::<U>(extent, from, col_stride, to) };
        }
        let is_aligned = (to.at.addr() | to.row_stride as usize).is_multiple_of(LINE);
        let is_wide = V::COUNT == 4 && size_of::<U>() >= 4;
        // SAFETY: as the caller promises.
        unsafe {
            match is_wide && is_aligned && extent.columns >= 2 * line {
                true => strips::<U, V, NON_TEMPORAL, 2>(extent, from, col_stride, to, is_aligned),
                false => strips::<U, V, NON_TEMPORAL, 1>(extent, from, col_stride, to, is_aligned),
            }
        }
    }

    /// Goes down strips of some cache lines of each row.
    ///
    /// # Safety
    ///
    /// As for [`tile`], whose rows have at least the lines, and whose columns at least a part of a vector.
    #[inline(always)]
    unsafe fn strips<U: LaneBits, V: PartedVector, const NON_TEMPORAL: bool, const LINES: usize>(
        extent: Extent,
        from: Source,
        col_stride: isize,
        to: Target,
        is_aligned: bool,
    ) {
        let (tall, line) = (PART / size_of::<U>(), LINE / size_of::<U>());
        // Along the memory of the operand, which the hardware prefetches.
        for column in starts(extent.columns, LINES * line) {
            let streams = NON_TEMPORAL && is_aligned && column % line == 0;
            for row in starts(extent.rows, tall) {
                for part in 0..4 * LINES / V::COUNT {
                    let column = column + part * line * V::COUNT / 4;
                    let from = from.at.cast::<U>().wrapping_add(row);
                    let from = from.wrapping_byte_offset(col_stride * column as isize);
                    let to = Target { at: to.row::<U>(row).wrapping_add(column).cast(), ..to };
                    // SAFETY: the block lies within the tile.
                    unsafe {
                        match streams {
                            true => block::<U, V, true>(from, col_stride, to),
                            false => block::<U, V, false>(from, col_stride, to),
                        }
                    }
                }
            }
        }
    }
}
