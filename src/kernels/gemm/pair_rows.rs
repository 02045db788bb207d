//! Products of few rows with rows of bf16 as they are stored, in pairs: what [`dot`](super::dot) and
//! [`outer`](super::outer) do, with a multiplication of pairs in place of two widenings and two
//! multiplications. The left rows are f32, and are rounded to bf16.
//!
//! The order of a sum depends on nothing but its own numbers: a dot product takes every fourth pair, and adds
//! up four sums as a tree; a sum of rows is one chain in the order of pairs of rows.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::operand::{NibbleValues, OperandRows, RowProduct};
use super::outer::rows_ahead;
use crate::kernels::isa::{Avx512, with_features};
use crate::kernels::vector::{LANES, Lanes};
use crate::kernels::{LINE, Target, prefetch_l1};

/// Elements of a vector.
const PAIRS: usize = 2 * LANES;

/// Stored rows whose dot products are computed side by side, four to a vector.
const SIDE: usize = LANES;
const QUADS: usize = SIDE / 4;

/// Left rows that are rounded together, at most.
const LEFT_ROWS: usize = 8;

/// Stored rows whose sums are taken in one go; they stay in the first level while several passes go over
/// them.
const GROUP: usize = 64;

with_features! {
    avx512_bf16
    /// As [`dots`](super::dot::dots). `rounded` has room for the left rows, each as whole vectors.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn dots(product: &RowProduct, _: &NibbleValues, rounded: *mut f32) {
        let right = &product.right;
        let row = right.columns.next_multiple_of(PAIRS);
        let rounded = rounded.cast::<u16>();
        // SAFETY: as the caller promises.
        unsafe {
            for index in 0..product.rows {
                round(product.left.row(index), right.columns, rounded.add(index * row));
            }
            let distance = OperandRows::distance(2 * right.columns).max(SIDE);
            let mut first = 0;
            while first < right.rows {
                let later = right.later_offset(first, distance);
                let group = DotGroup { product, first, later, left: rounded.cast_const(), row };
                match right.rows - first {
                    SIDE.. => group.run::<true>(),
                    _ => group.run::<false>(),
                }
                first += SIDE;
            }
        }
    }
}

with_features! {
    avx512_bf16
    /// As [`add_rows`](super::outer::add_rows).
    ///
    /// # Safety
    ///
    /// As there; there are at most [`LEFT_ROWS`] left rows.
    pub(super) unsafe fn add_rows(product: &RowProduct, accumulate: bool, _: &NibbleValues) {
        debug_assert!(product.rows <= LEFT_ROWS);
        let right = &product.right;
        let distance = rows_ahead(right.row_stride, 2 * right.columns);
        let mut rounded = [[0u16; GROUP]; LEFT_ROWS];
        for first in (0..right.rows).step_by(GROUP) {
            let count = GROUP.min(right.rows - first);
            // SAFETY: as the caller promises.
            unsafe {
                for (index, to) in rounded.iter_mut().enumerate().take(product.rows) {
                    round(product.left.row::<f32>(index).add(first), count, to.as_mut_ptr());
                }
                let later = right.later_offset(first, distance);
                let starts = first == 0 && !accumulate;
                let group = SumGroup { right, first, count, later, starts, left: &rounded, to: product.to };
                let mut index = 0;
                while index < product.rows {
                    index += match product.rows - index {
                        4.. => group.run::<4, 2>(index),
                        2.. => group.run::<2, 4>(index),
                        _ => group.run::<1, 4>(index),
                    };
                }
            }
        }
    }
}

/// Rounds numbers to bf16, and fills the last vector with 0.
///
/// # Safety
///
/// The numbers can be read, whole vectors written, and the machine has the instructions.
#[inline(always)]
unsafe fn round(from: *const f32, count: usize, to: *mut u16) {
    for at in (0..count).step_by(PAIRS) {
        let low = LANES.min(count - at);
        // SAFETY: as the caller promises; vectors are of one size.
        unsafe {
            let from = from.add(at);
            let second = Avx512::load_first(from.wrapping_add(LANES), (count - at - low).min(LANES), 0.0);
            let both = _mm512_cvtne2ps_pbh(second, Avx512::load_first(from, low, 0.0));
            _mm512_storeu_si512(to.add(at).cast(), std::mem::transmute::<__m512bh, __m512i>(both));
        }
    }
}

/// Some elements of a row; the others are 0.
///
/// # Safety
///
/// The elements can be read, and the machine has the instructions.
#[inline(always)]
unsafe fn load(at: *const u8, count: usize) -> __m512bh {
    // SAFETY: as the caller promises; the vectors are of one size.
    unsafe {
        let mask = u32::MAX.checked_shr(PAIRS.saturating_sub(count) as u32).unwrap_or(0);
        std::mem::transmute::<__m512i, __m512bh>(_mm512_maskz_loadu_epi16(mask, at.cast()))
    }
}

/// Stored rows, and all left rows in bf16.
struct DotGroup<'a> {
    product: &'a RowProduct,
    first: usize,
    /// Bytes from a row to the one that is prefetched meanwhile.
    later: isize,
    left: *const u16,
    /// Elements from one left row to the next.
    row: usize,
}

impl DotGroup<'_> {
    /// Multiplies all left rows with [`SIDE`] stored rows, or with fewer if these are not `FULL`.
    ///
    /// # Safety
    ///
    /// As [`dots`].
    #[inline(always)]
    unsafe fn run<const FULL: bool>(&self) {
        let Self { product: RowProduct { rows, right, to, .. }, first, left, row, .. } = *self;
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[Avx512::splat(0.0); QUADS]; LEFT_ROWS];
            for column in (0..right.columns).step_by(PAIRS) {
                let y = self.interleaved::<FULL>(column);
                let mut index = 0;
                while index < *rows {
                    // Left rows that are unrolled would leave stored ones without registers.
                    let sums = sums.as_mut_ptr().add(black_box(index));
                    *sums = add_dots(left.add(index * row + column), &y, *sums);
                    index += 1;
                }
            }
            let count = if FULL { SIDE } else { right.rows - first };
            for (index, &sums) in sums.iter().enumerate().take(*rows) {
                Avx512::store_first(to.row::<f32>(index).add(first), count, joined(sums));
            }
        }
    }

    /// A vector of columns of the stored rows: the vectors of a quad hold four rows, a pair of each in turn,
    /// and each 128 bits of them one pair in four. The last row stands in for those that are none.
    ///
    /// # Safety
    ///
    /// As [`dots`].
    #[inline(always)]
    unsafe fn interleaved<const FULL: bool>(&self, column: usize) -> [[__m512i; 4]; QUADS] {
        let right = &self.product.right;
        let last = right.rows - self.first - 1;
        let at = right.row(self.first).wrapping_add(2 * column);
        // SAFETY: as the caller promises; vectors are of one size.
        unsafe {
            let mut quads = [[_mm512_setzero_si512(); 4]; QUADS];
            for (quad, of_quad) in quads.iter_mut().enumerate() {
                let mut x = [_mm512_setzero_si512(); 4];
                for (side, x) in x.iter_mut().enumerate() {
                    let row = 4 * quad + side;
                    let row = if FULL { row } else { row.min(last) };
                    let at = at.wrapping_offset(right.row_stride * row as isize);
                    prefetch_l1(at.wrapping_offset(self.later), LINE);
                    *x = std::mem::transmute::<__m512bh, __m512i>(load(at, right.columns - column));
                }
                let [low, high] = [_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1])];
                let [low_2, high_2] = [_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3])];
                *of_quad = [
                    _mm512_unpacklo_epi64(low, low_2),
                    _mm512_unpackhi_epi64(low, low_2),
                    _mm512_unpacklo_epi64(high, high_2),
                    _mm512_unpackhi_epi64(high, high_2),
                ];
            }
            quads
        }
    }
}

/// Adds the products of a vector of a left row with [interleaved](DotGroup::interleaved) rows.
///
/// # Safety
///
/// The vector can be read, and the machine has the instructions.
#[inline(always)]
unsafe fn add_dots(
    left: *const u16,
    rows: &[[__m512i; 4]; QUADS],
    mut sums: [__m512; QUADS],
) -> [__m512; QUADS] {
    // SAFETY: as the caller promises; vectors are of one size.
    unsafe {
        let x = _mm512_loadu_si512(left.cast());
        let x = [
            _mm512_shuffle_epi32::<0x00>(x),
            _mm512_shuffle_epi32::<0x55>(x),
            _mm512_shuffle_epi32::<0xaa>(x),
            _mm512_shuffle_epi32::<0xff>(x),
        ];
        for (pair, x) in x.into_iter().enumerate() {
            for (quad, sum) in sums.iter_mut().enumerate() {
                let [x, y] = [x, rows[quad][pair]];
                let [x, y] = [
                    std::mem::transmute::<__m512i, __m512bh>(x),
                    std::mem::transmute::<__m512i, __m512bh>(y),
                ];
                *sum = _mm512_dpbf16_ps(*sum, x, y);
            }
        }
        sums
    }
}

/// The sums of all rows, from sums of every fourth pair.
///
/// # Safety
///
/// The machine has the instructions.
#[inline(always)]
unsafe fn joined(x: [__m512; QUADS]) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe {
        let mut halves = [Avx512::splat(0.0); 2];
        for (at, half) in halves.iter_mut().enumerate() {
            let [x, y] = [x[2 * at], x[2 * at + 1]];
            *half = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(x, y), _mm512_shuffle_f32x4::<0xee>(x, y));
        }
        let [low, high] = halves;
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(low, high), _mm512_shuffle_f32x4::<0xdd>(low, high))
    }
}

/// Stored rows, and their numbers of each left row in bf16.
struct SumGroup<'a> {
    right: &'a OperandRows,
    first: usize,
    count: usize,
    /// Bytes from a row to the one that is prefetched meanwhile.
    later: isize,
    /// The sums start at 0.
    starts: bool,
    left: &'a [[u16; GROUP]; LEFT_ROWS],
    to: Target,
}

/// The first of the places that numbers have once those of two rows are paired, which goes on 128 bits at a
/// time: of the first half of 16 pairs, and of both in order.
const LOW: [u32; LANES] = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];
const ORDERED: [u32; LANES] = [0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23];

impl SumGroup<'_> {
    /// Adds to `R` rows of the result, `V` vectors of stored rows side by side. Returns `R`.
    ///
    /// # Safety
    ///
    /// As [`add_rows`], for the left rows from a row on.
    #[inline(always)]
    unsafe fn run<const R: usize, const V: usize>(&self, index: usize) -> usize {
        for column in (0..self.right.columns).step_by(V * PAIRS) {
            // SAFETY: as the caller promises.
            unsafe { self.columns::<R, V>(index, column) };
        }
        R
    }

    /// # Safety
    ///
    /// As [`run`](Self::run), for the columns from one on.
    #[inline(always)]
    unsafe fn columns<const R: usize, const V: usize>(&self, index: usize, column: usize) {
        let Self { right, first, count, later, starts, left, to } = *self;
        let columns = right.columns - column;
        // SAFETY: as the caller promises; elements behind the columns are neither read nor written, and pairs
        // of a left row are neighbours.
        unsafe {
            let [low, ordered] = [LOW, ORDERED].map(
                #[inline(always)]
                |places| _mm512_loadu_si512(places.as_ptr().cast()),
            );
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
            let above = _mm512_add_epi32(ordered, _mm512_set1_epi32(8));
            let at_row = |r: usize, v: usize| to.row::<f32>(index + r).wrapping_add(column + v * PAIRS);
            // Numbers of each half of a vector of pairs.
            let halves = |v: usize| {
                let count = columns.saturating_sub(v * PAIRS);
                (count.min(LANES), count.saturating_sub(LANES).min(LANES))
            };
            let mut sums = [[[Avx512::splat(0.0); 2]; V]; R];
            if !starts {
                for (r, sums) in sums.iter_mut().enumerate() {
                    for (v, sums) in sums.iter_mut().enumerate() {
                        let (at, (of_first, of_second)) = (at_row(r, v), halves(v));
                        let x = Avx512::load_first(at, of_first, 0.0);
                        let y = Avx512::load_first(at.wrapping_add(LANES), of_second, 0.0);
                        *sums = [_mm512_permutex2var_ps(x, low, y), _mm512_permutex2var_ps(x, high, y)];
                    }
                }
            }
            let left = left.as_ptr().cast::<u16>().wrapping_add(index * GROUP);
            for key in (0..count).step_by(2) {
                let row = right.row(first + key).wrapping_add(2 * column);
                // A row whose pair has no second number stands in for it.
                let second = if key + 1 < count { row.wrapping_offset(right.row_stride) } else { row };
                let mut pairs = [[_mm512_setzero_si512(); 2]; V];
                for (v, pairs) in pairs.iter_mut().enumerate() {
                    let count = columns.saturating_sub(v * PAIRS);
                    let [x, y] = [row, second].map(
                        #[inline(always)]
                        |row| {
                            let at = row.wrapping_add(v * LINE);
                            if index == 0 {
                                prefetch_l1(at.wrapping_offset(later), LINE);
                            }
                            std::mem::transmute::<__m512bh, __m512i>(load(at, count))
                        },
                    );
                    *pairs = [_mm512_unpacklo_epi16(x, y), _mm512_unpackhi_epi16(x, y)];
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let pair = left.add(r * GROUP + key).cast::<i32>().read_unaligned();
                    let x = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pair));
                    for (sums, &pairs) in sums.iter_mut().zip(&pairs) {
                        for (sum, &y) in sums.iter_mut().zip(&pairs) {
                            let y = std::mem::transmute::<__m512i, __m512bh>(y);
                            *sum = _mm512_dpbf16_ps(*sum, x, y);
                        }
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, &[x, y]) in sums.iter().enumerate() {
                    let (at, (of_first, of_second)) = (at_row(r, v), halves(v));
                    Avx512::store_first(at, of_first, _mm512_permutex2var_ps(x, ordered, y));
                    let second = _mm512_permutex2var_ps(x, above, y);
                    Avx512::store_first(at.wrapping_add(LANES), of_second, second);
                }
            }
        }
    }
}
