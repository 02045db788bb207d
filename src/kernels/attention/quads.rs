//! Weights and values of attention as quads: what [products of 8-bit integers](crate::kernels::gemm::Form)
//! read.
//!
//! A quad is four neighbouring keys of a query, or of an element of a value. Values are the left operand of
//! the product and so u8, weights the right one and so s8. An integer of the other type is read as one that
//! differs by 128, as in [`integers`](crate::kernels::gemm::integers).
//!
//! Only level Avx512 with VNNI has these kernels (decision: integer-attention).

use super::tile::{QUERIES, ScoreTile};
use crate::kernels::gemm::{Matrix, Panels};
use crate::kernels::{Extent, Source};
use crate::types::dtype::DataType;
use crate::types::fallback::FallbackReason;
use crate::types::features::CpuFeatures;
use crate::types::kind::Level;

/// Keys of a quad.
pub(crate) const QUAD: usize = 4;

/// Elements of values that are packed side by side.
pub(crate) const VALUE_BLOCK: usize = 16;

/// The bit in which an s8 and the u8 that is larger by 128 differ.
const FLIP: u8 = 0x80;

/// How exponentials become integers: each is multiplied by the factor of its query, `zero` is added, and the
/// sum is rounded to even and saturated to u8.
#[cfg_attr(
    not(all(target_arch = "x86_64", feature = "avx512")),
    allow(dead_code, reason = "no other level has the kernels")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightRounding {
    pub(crate) factors: [f32; QUERIES],
    pub(crate) zero: f32,
    /// A bit for each query whose weights are numbers. Weights of the others are `of_nan`.
    pub(crate) known: u64,
    pub(crate) of_nan: u8,
}

/// A tile of sums in s32 that become numbers: less `subtracted` of the query, and less `zero` times the sum
/// of the row, times the scale.
#[cfg_attr(
    not(all(target_arch = "x86_64", feature = "avx512")),
    allow(dead_code, reason = "no other level has the kernels")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuadSums {
    /// The bits of the sums.
    pub(crate) tile: ScoreTile,
    pub(crate) subtracted: *const i32,
    /// Not read if `zero` is 0.
    pub(crate) row_sums: *const i32,
    pub(crate) zero: i32,
    pub(crate) scale: f32,
}

type ScaleSums = unsafe fn(&QuadSums);
type PackValues = unsafe fn(Extent, Source, u8, *mut u8, *mut i32);
type RoundWeights = unsafe fn(ScoreTile, &WeightRounding, *mut u8, *mut i32);

/// The kernels that make quads.
#[cfg_attr(
    not(all(target_arch = "x86_64", feature = "avx512")),
    allow(dead_code, reason = "no other level has the kernels")
)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuadKernels {
    flip: u8,
    scale: ScaleSums,
    pack_values: PackValues,
    round_weights: RoundWeights,
}

impl QuadKernels {
    /// For values of u8 or s8.
    pub(crate) fn new(level: Level, features: CpuFeatures, values: DataType) -> Result<Self, FallbackReason> {
        let flip = match values {
            DataType::U8 => 0,
            DataType::S8 => FLIP,
            _ => return Err(FallbackReason::ElementType),
        };
        #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
        if level == Level::Avx512 && features.contains(crate::types::kind::CpuFeature::Avx512Vnni) {
            return Ok(Self {
                flip,
                scale: avx512::scale,
                pack_values: avx512::pack_values,
                round_weights: avx512::round_weights,
            });
        }
        let _ = (level, features, flip);
        Err(FallbackReason::CpuLevel)
    }

    /// Bytes of a row of packed values: of a quad of each element.
    pub(crate) fn value_row(columns: usize) -> usize {
        QUAD * columns.next_multiple_of(VALUE_BLOCK)
    }

    /// Packed values: four keys of an element are neighbours, and so are elements.
    pub(crate) fn packed(at: *const u8, columns: usize) -> Matrix {
        let row = Self::value_row(columns) as isize;
        Matrix { at, row_stride: row / QUAD as isize, col_stride: QUAD as isize }
    }

    /// The panel of weights.
    pub(crate) fn panel(at: *const u8) -> Panels {
        Panels { at, row_stride: (QUAD * QUERIES) as isize, panel_stride: 0 }
    }

    /// Turns sums into numbers. A sum is rounded to f32, then its product with the scale.
    ///
    /// # Safety
    ///
    /// The tile can be read and written; [`QUERIES`] numbers to subtract can be read, and a sum for each row.
    pub(crate) unsafe fn scale(&self, sums: &QuadSums) {
        debug_assert!(sums.tile.queries <= QUERIES);
        // SAFETY: as the caller promises; the machine has the instructions of a kernel that was found.
        unsafe { (self.scale)(sums) }
    }

    /// Packs a block of values, whose rows are keys, as u8: a row for each four keys, and in it a quad for
    /// each element. Keys that the last row lacks are 0. The sums over all keys are added to `sums`.
    ///
    /// # Safety
    ///
    /// The values can be read, which lie next to each other in a row; the rows of quads can be written, and
    /// `sums` has a number for each element, up to whole blocks of [`VALUE_BLOCK`]. Nothing overlaps.
    pub(crate) unsafe fn pack_values(&self, values: Extent, from: Source, to: *mut u8, sums: *mut i32) {
        // SAFETY: as the caller promises; the machine has the instructions of a kernel that was found.
        unsafe { (self.pack_values)(values, from, self.flip, to, sums) }
    }

    /// Rounds a tile of exponentials to u8 and packs the integers as s8 that are smaller by 128: a row for
    /// each four keys, and in it a quad for each of [`QUERIES`]. Keys that the last row lacks are 0. The sums
    /// of the s8 are added to `sums`. Quads of queries that the tile lacks, and their sums, may be anything.
    ///
    /// # Safety
    ///
    /// The tile can be read, the rows of quads can be written, as can [`QUERIES`] sums. Nothing overlaps.
    pub(crate) unsafe fn round_weights(
        &self,
        tile: ScoreTile,
        rounding: &WeightRounding,
        to: *mut u8,
        sums: *mut i32,
    ) {
        debug_assert!(tile.queries <= QUERIES);
        // SAFETY: as the caller promises; the machine has the instructions of a kernel that was found.
        unsafe { (self.round_weights)(tile, rounding, to, sums) }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod avx512 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::kernels::isa::with_features;

    /// Transposes the 4 × 4 bytes of 16.
    const TRANSPOSED: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

    /// Transposes 4 × 4 words of four bytes.
    const TRANSPOSED_WORDS: [u32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

    /// Lanes of a vector of f32.
    const LANES: usize = 16;

    /// A bit for each of the first lanes.
    fn first_lanes(count: usize) -> u16 {
        u16::MAX >> LANES.saturating_sub(count)
    }

    with_features! {
        avx512
        pub(super) unsafe fn scale(sums: &QuadSums) {
            let ScoreTile { at, keys, queries } = sums.tile;
            for column in (0..queries).step_by(LANES) {
                let mask = first_lanes(queries - column);
                // SAFETY: as the caller promises; the numbers to subtract are whole vectors, and elements
                // outside of a mask are neither read nor written.
                unsafe {
                    let subtracted = _mm512_loadu_epi32(sums.subtracted.add(column));
                    let scale = _mm512_set1_ps(sums.scale);
                    for key in 0..keys {
                        let at = at.add(key * QUERIES + column);
                        let mut x = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(mask, at.cast()), subtracted);
                        if sums.zero != 0 {
                            let of_row = sums.row_sums.add(key).read().wrapping_mul(sums.zero);
                            x = _mm512_sub_epi32(x, _mm512_set1_epi32(of_row));
                        }
                        // A sum of 0 is +0, whatever the sign of the scale.
                        let x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), scale, _mm512_setzero_ps());
                        _mm512_mask_storeu_ps(at, mask, x);
                    }
                }
            }
        }
    }

    with_features! {
        avx512_vnni
        pub(super) unsafe fn pack_values(
            values: Extent,
            from: Source,
            flip: u8,
            to: *mut u8,
            sums: *mut i32,
        ) {
            let row_bytes = QuadKernels::value_row(values.columns);
            let ones = _mm512_set1_epi8(1);
            for first in (0..values.rows).step_by(QUAD) {
                let count = QUAD.min(values.rows - first);
                let rows: [*const u8; QUAD] =
                    std::array::from_fn(|row| from.at_row(first + row.min(count - 1)).at);
                let to = to.wrapping_add(first / QUAD * row_bytes);
                // SAFETY: as the caller promises; elements outside of a mask are not read.
                unsafe {
                    let words = _mm512_loadu_si512(TRANSPOSED_WORDS.as_ptr().cast());
                    let bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(TRANSPOSED.as_ptr().cast()));
                    let has_row = first_lanes(QUAD * count);
                    let flips = _mm512_set1_epi8(flip as i8);
                    for column in (0..values.columns).step_by(VALUE_BLOCK) {
                        let mask = first_lanes(values.columns - column);
                        let mut block = [_mm_setzero_si128(); QUAD];
                        for row in 0..QUAD {
                            block[row] = _mm_maskz_loadu_epi8(mask, rows[row].add(column).cast());
                        }
                        let x = _mm512_castsi128_si512(block[0]);
                        let x = _mm512_inserti32x4::<1>(x, block[1]);
                        let x = _mm512_inserti32x4::<2>(x, block[2]);
                        let x = _mm512_inserti32x4::<3>(x, block[3]);
                        let x = _mm512_maskz_xor_epi32(has_row, x, flips);
                        let x = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, x), bytes);
                        _mm512_storeu_si512(to.wrapping_add(QUAD * column).cast(), x);
                        let sum = sums.wrapping_add(column).cast();
                        _mm512_storeu_si512(sum, _mm512_dpbusd_epi32(_mm512_loadu_si512(sum), x, ones));
                    }
                }
            }
        }
    }

    with_features! {
        avx512_vnni
        pub(super) unsafe fn round_weights(
            tile: ScoreTile,
            rounding: &WeightRounding,
            to: *mut u8,
            sums: *mut i32,
        ) {
            for column in (0..tile.queries).step_by(LANES) {
                let whole = tile.keys / QUAD * QUAD;
                // SAFETY: as the caller promises; the factors and the sums have whole vectors.
                unsafe {
                    let queries = Queries {
                        at: tile.at.wrapping_add(column),
                        mask: first_lanes(tile.queries - column),
                        factor: _mm512_loadu_ps(rounding.factors.as_ptr().add(column)),
                        zero: _mm512_set1_ps(rounding.zero),
                        known: (rounding.known >> column) as u16,
                        of_nan: _mm512_set1_epi32(i32::from(rounding.of_nan)),
                        bytes: _mm512_broadcast_i32x4(_mm_loadu_si128(TRANSPOSED.as_ptr().cast())),
                    };
                    let at = sums.wrapping_add(column).cast();
                    let (mut sum, ones) = (_mm512_loadu_si512(at), _mm512_set1_epi8(1));
                    let to = |key: usize| to.wrapping_add(key * QUERIES + QUAD * column).cast();
                    for key in (0..whole).step_by(QUAD) {
                        let x = quads(&queries, key, QUAD);
                        _mm512_storeu_si512(to(key), x);
                        sum = _mm512_dpbusd_epi32(sum, ones, x);
                    }
                    if whole < tile.keys {
                        let x = quads(&queries, whole, tile.keys - whole);
                        _mm512_storeu_si512(to(whole), x);
                        sum = _mm512_dpbusd_epi32(sum, ones, x);
                    }
                    _mm512_storeu_si512(at, sum);
                }
            }
        }
    }

    /// A vector of queries of a tile.
    struct Queries {
        at: *const f32,
        mask: __mmask16,
        factor: __m512,
        zero: __m512,
        known: __mmask16,
        of_nan: __m512i,
        bytes: __m512i,
    }

    with_features! {
        avx512_vnni
        /// The quads from a key on, of so many keys.
        #[inline]
        unsafe fn quads(of: &Queries, key: usize, count: usize) -> __m512i {
            // The missing keys of a quad are 0.
            let mut rounded = [_mm512_set1_epi32(i32::from(FLIP)); QUAD];
            for (row, rounded) in rounded.iter_mut().enumerate().take(count) {
                // SAFETY: as the caller of the kernel promises; elements outside of the mask are not read.
                let x = unsafe { _mm512_maskz_loadu_ps(of.mask, of.at.wrapping_add((key + row) * QUERIES)) };
                let x = _mm512_min_ps(_mm512_fmadd_ps(x, of.factor, of.zero), _mm512_set1_ps(255.0));
                *rounded = _mm512_mask_cvtps_epi32(of.of_nan, of.known, x);
            }
            let [a, b, c, d] = rounded;
            let x = _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            _mm512_xor_si512(_mm512_shuffle_epi8(x, of.bytes), _mm512_set1_epi8(FLIP as i8))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", feature = "avx512"))]
mod tests {
    use super::*;
    use crate::kernels::isa::LEVELS;

    const KEYS: [usize; 8] = [1, 2, 3, 4, 5, 7, 63, 64];

    /// The kernels for values of a type; none if the machine has no such instructions.
    fn kernels(data_type: DataType) -> Option<QuadKernels> {
        let features = CpuFeatures::available();
        LEVELS.iter().find_map(|&level| QuadKernels::new(level, features.within(level), data_type).ok())
    }

    fn byte(seed: usize) -> u8 {
        ((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
    }

    #[test]
    fn sums_become_numbers() {
        let Some(kernels) = kernels(DataType::U8) else { return };
        let integer = |seed: usize| i32::from(byte(seed)) * 1009 - 90_000;
        for queries in [1, 15, 16, 17, 63, 64] {
            for (keys, zero) in KEYS.into_iter().zip([0, 3, -128, 0, 127, 1, -5, 128]) {
                let mut of: Vec<f32> =
                    (0..keys * QUERIES).map(|at| f32::from_bits(integer(at) as u32)).collect();
                let subtracted: Vec<i32> = (0..QUERIES).map(|query| integer(query + 5000)).collect();
                let row_sums: Vec<i32> = (0..keys).map(|key| integer(key + 7000)).collect();
                let sums = QuadSums {
                    tile: ScoreTile { at: of.as_mut_ptr(), keys, queries },
                    subtracted: subtracted.as_ptr(),
                    row_sums: if zero == 0 { std::ptr::null() } else { row_sums.as_ptr() },
                    zero,
                    scale: -0.75,
                };
                // SAFETY: the tile has so many rows, and the arrays a number for each key and query.
                unsafe { kernels.scale(&sums) };
                for (at, found) in of.iter().enumerate() {
                    let (key, query) = (at / QUERIES, at % QUERIES);
                    let sum = integer(at) - subtracted[query] - zero * row_sums[key];
                    let expected = match query < queries {
                        true => (sum as f32 * -0.75 + 0.0).to_bits(),
                        false => integer(at) as u32,
                    };
                    assert_eq!(found.to_bits(), expected, "{queries} {keys}: key {key} of {query}");
                }
            }
        }
    }

    #[test]
    fn values_become_quads_and_sums() {
        for (data_type, flip) in [(DataType::U8, 0), (DataType::S8, FLIP)] {
            let Some(kernels) = kernels(data_type) else { return };
            for columns in [1, 3, 15, 16, 17, 40, 64] {
                for keys in KEYS {
                    let (row, extent) = (columns + 5, Extent { rows: keys, columns });
                    let from: Vec<u8> = (0..row * (keys - 1) + columns).map(byte).collect();
                    let row_bytes = QuadKernels::value_row(columns);
                    let mut to = vec![0xa5; row_bytes * keys.div_ceil(QUAD)];
                    let mut sums = vec![7i32; row_bytes / QUAD];
                    let source = Source { at: from.as_ptr(), row_stride: row as isize };
                    // SAFETY: the source has so many rows, and the targets whole blocks.
                    unsafe { kernels.pack_values(extent, source, to.as_mut_ptr(), sums.as_mut_ptr()) };
                    for column in 0..columns {
                        let number = |key: usize| from[key * row + column] ^ flip;
                        let sum: i32 = (0..keys).map(|key| i32::from(number(key))).sum();
                        assert_eq!(sums[column], 7 + sum, "{data_type} {columns} {keys}");
                        for key in 0..to.len() / row_bytes * QUAD {
                            let expected = if key < keys { number(key) } else { 0 };
                            let at = key / QUAD * row_bytes + column * QUAD + key % QUAD;
                            assert_eq!(to[at], expected, "{data_type} {columns} {keys}: {key} of {column}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn exponentials_become_quads_and_sums() {
        let Some(kernels) = kernels(DataType::U8) else { return };
        let special = [f32::NAN, f32::INFINITY, 1e30, -1e30, 0.5, 1.5, -0.0, 254.5];
        for queries in [1, 15, 16, 17, 63, 64] {
            for keys in KEYS {
                let number = |key: usize, query: usize| match byte(key * 71 + query) {
                    of if of < 16 => special[usize::from(of) % special.len()],
                    of => f32::from(of) / 64.0,
                };
                let mut from: Vec<f32> =
                    (0..keys * QUERIES).map(|at| number(at / QUERIES, at % QUERIES)).collect();
                let is_known = |query: usize| query % 5 != 2;
                let mut rounding =
                    WeightRounding { factors: [0.0; QUERIES], zero: 3.0, known: 0, of_nan: 128 };
                for query in 0..QUERIES {
                    rounding.factors[query] = 1.0 + query as f32 * 0.75;
                    rounding.known |= u64::from(is_known(query)) << query;
                }
                let mut to = vec![0xa5u8; QUAD * QUERIES * keys.div_ceil(QUAD)];
                let mut sums = [-9i32; QUERIES];
                let tile = ScoreTile { at: from.as_mut_ptr(), keys, queries };
                // SAFETY: the tile has so many rows, and the targets have rows for all queries.
                unsafe { kernels.round_weights(tile, &rounding, to.as_mut_ptr(), sums.as_mut_ptr()) };
                for query in 0..queries {
                    let mut sum = -9;
                    for key in 0..keys.next_multiple_of(QUAD) {
                        let x = if key < keys { number(key, query) } else { 0.0 };
                        let of_number = x.mul_add(rounding.factors[query], 3.0).round_ties_even() as u8;
                        let expected = match is_known(query) {
                            _ if key >= keys => 128,
                            // NaN of a query whose weights are numbers may be anything.
                            true if x.is_nan() => 255,
                            true => of_number,
                            false => 128,
                        };
                        let found = to[key / QUAD * QUAD * QUERIES + QUAD * query + key % QUAD];
                        assert_eq!(found, expected ^ FLIP, "{queries} {keys}: key {key} of {query} is {x}");
                        sum += i32::from(found as i8);
                    }
                    assert_eq!(sums[query], sum, "{queries} {keys}: {query}");
                }
            }
        }
    }
}
