//! Vectors of level Avx512.

use std::arch::x86_64::*;
use std::ops::Range;

use super::avx2::{largest_4, sum_4};
use super::score::{UPPER, gone};
use super::{LANES, Lanes, RowType};
use crate::kernels::floats::NAN;
use crate::kernels::isa::Avx512;
use crate::kernels::math::avx512::{self, OfVector};

/// Choices of the instruction for ranges, both with the sign of the result that is chosen.
const MINIMUM: i32 = 0b01_00;
const MAXIMUM: i32 = 0b01_01;

/// Joins the lanes of each of four vectors by halves. Lanes of all four go into one vector, so that most
/// instructions work for all of them.
macro_rules! joined {
    ($x:ident, $join:ident) => {{
        let [a, b, c, d] = $x;
        let ab =
            $join(_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
        let cd =
            $join(_mm512_shuffle_f32x4::<0b01_00_01_00>(c, d), _mm512_shuffle_f32x4::<0b11_10_11_10>(c, d));
        let all = $join(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd),
        );
        let all = $join(all, _mm512_permute_ps::<0b01_00_11_10>(all));
        let all = $join(all, _mm512_permute_ps::<0b10_11_00_01>(all));
        [
            _mm512_cvtss_f32(all),
            _mm_cvtss_f32(_mm512_extractf32x4_ps::<1>(all)),
            _mm_cvtss_f32(_mm512_extractf32x4_ps::<2>(all)),
            _mm_cvtss_f32(_mm512_extractf32x4_ps::<3>(all)),
        ]
    }};
}

impl Lanes for Avx512 {
    type F = __m512;
    type D = [__m512d; 2];

    const HAS_MANY_REGISTERS: bool = true;
    const REGISTERS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_of_groups<const GROUP: usize>(from: *const f32, place: usize) -> Self::F {
        // SAFETY: as the caller promises; indices are below the number of lanes.
        unsafe {
            let indices: [i32; LANES] = std::array::from_fn(|lane| (lane / GROUP * GROUP + place) as i32);
            let indices = _mm512_loadu_si512(indices.as_ptr().cast());
            _mm512_permutexvar_ps(indices, _mm512_loadu_ps(from))
        }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { bf16_to_f32(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(to.cast(), f32_to_bf16(x)) }
    }
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u16, x: Self::F, y: Self::F) {
        /// The high halves of the first vector, then those of the second one.
        const IN_ORDER: [u16; 2 * LANES] = {
            let mut order = [0; 2 * LANES];
            let mut i = 0;
            while i < LANES {
                (order[i], order[LANES + i]) = (2 * i as u16 + 1, (2 * (LANES + i)) as u16 + 1);
                i += 1;
            }
            order
        };
        // SAFETY: as the caller promises; the order is a vector.
        unsafe {
            let order = _mm512_loadu_si512(IN_ORDER.as_ptr().cast());
            let both = _mm512_permutex2var_epi16(rounded_to_bf16(x), order, rounded_to_bf16(y));
            _mm512_storeu_si512(to.cast(), both);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
    #[inline(always)]
    unsafe fn add(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_add_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn sub(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_sub_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn mul(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_mul_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn div(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_div_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_fmadd_ps(x, y, z) }
    }
    #[inline(always)]
    unsafe fn splat_in_pairs(x: f64) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_castpd_ps(_mm512_set1_pd(x)) }
    }
    #[inline(always)]
    unsafe fn fma_in_pairs(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let [x, y, z] = [_mm512_castps_pd(x), _mm512_castps_pd(y), _mm512_castps_pd(z)];
            _mm512_castpd_ps(_mm512_fmadd_pd(x, y, z))
        }
    }
    #[inline(always)]
    unsafe fn larger(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_max_ps(x, y) }
    }
    #[inline(always)]
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises. The instruction takes the number beside NaN, and +0 above −0.
        unsafe {
            let larger = _mm512_range_ps::<MAXIMUM>(x, y);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y);
            _mm512_mask_blend_ps(is_nan, larger, _mm512_set1_ps(NAN))
        }
    }
    #[inline(always)]
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as for `maximum`.
        unsafe {
            let smaller = _mm512_range_ps::<MINIMUM>(x, y);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, y);
            _mm512_mask_blend_ps(is_nan, smaller, _mm512_set1_ps(NAN))
        }
    }
    of_parts! {
        add_64(x, y) -> D = _mm512_add_pd, 2;
        sub_64(x, y) -> D = _mm512_sub_pd, 2;
        mul_64(x, y) -> D = _mm512_mul_pd, 2;
    }
    #[inline(always)]
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let is_positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps());
            _mm512_mask_blend_ps(is_positive, else_, then)
        }
    }
    #[inline(always)]
    unsafe fn exp(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { avx512::Exp::of(x) }
    }
    #[inline(always)]
    unsafe fn exp_of_distance(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { avx512::exp_up_to_90(x) }
    }
    #[inline(always)]
    unsafe fn canonical_vector(x: Self::F) -> Self::F {
        /// By class of a number, starting at quiet and signalling NaN: 0 takes the other operand, 1 the
        /// number itself.
        const KINDS: i32 = 0x1111_1100;
        // SAFETY: as the caller promises.
        unsafe { _mm512_fixupimm_ps::<0>(_mm512_set1_ps(NAN), x, _mm512_set1_epi32(KINDS)) }
    }
    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            sum_4(_mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn largest(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            largest_4(_mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn sum_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { joined!(x, _mm512_add_ps) }
    }
    #[inline(always)]
    unsafe fn largest_of_each(x: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller promises.
        unsafe { joined!(x, _mm512_max_ps) }
    }
    #[inline(always)]
    unsafe fn first(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtss_f32(x) }
    }
    #[inline(always)]
    unsafe fn first_64(x: Self::D) -> f64 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtsd_f64(x[0]) }
    }
    #[inline(always)]
    unsafe fn from_on<const N: usize>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            match N {
                8 => _mm512_shuffle_f32x4::<0b11_10_11_10>(x, x),
                4 => _mm512_shuffle_f32x4::<0b01_01_01_01>(x, x),
                2 => _mm512_permute_ps::<0b11_10_11_10>(x),
                _ => _mm512_permute_ps::<0b01_01_01_01>(x),
            }
        }
    }
    #[inline(always)]
    unsafe fn from_on_64<const N: usize>(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            [match N {
                8 => x[1],
                4 => _mm512_shuffle_f64x2::<0b11_10_11_10>(x[0], x[0]),
                2 => _mm512_shuffle_f64x2::<0b01_01_01_01>(x[0], x[0]),
                _ => _mm512_permute_pd::<0b11_11_11_11>(x[0]),
            }; 2]
        }
    }
    #[inline(always)]
    unsafe fn splat_64(x: f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_set1_pd(x); 2] }
    }
    #[inline(always)]
    unsafe fn widen(x: Self::F) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            [_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x))]
        }
    }
    #[inline(always)]
    unsafe fn narrow(x: Self::D) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let low = _mm512_castps256_ps512(_mm512_cvtpd_ps(x[0]));
            _mm512_insertf32x8::<1>(low, _mm512_cvtpd_ps(x[1]))
        }
    }
    #[inline(always)]
    unsafe fn abs_64(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_abs_pd(x[0]), _mm512_abs_pd(x[1])] }
    }
    #[inline(always)]
    unsafe fn load_64(from: *const f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm512_loadu_pd(from), _mm512_loadu_pd(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_wide(from: *const f32) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(2, |i| _mm512_cvtps_pd(_mm256_loadu_ps(from.add(8 * i)))) }
    }
    #[inline(always)]
    unsafe fn store_64(to: *mut f64, x: Self::D) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm512_storeu_pd(to, x[0]);
            _mm512_storeu_pd(to.add(8), x[1]);
        }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, float: RowType, count: usize, pad: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let x = Self::load_registers(from, float, 1, count);
            _mm512_mask_blend_ps(first_of(count), _mm512_set1_ps(pad), x)
        }
    }

    #[inline(always)]
    unsafe fn store_part(to: *mut u8, float: RowType, count: usize, x: Self::F) {
        let mask = first_of(count);
        // SAFETY: as the caller promises; elements beyond the mask are not written.
        unsafe {
            match float {
                RowType::F32 => _mm512_mask_storeu_ps(to.cast(), mask, x),
                RowType::Bf16 => _mm256_mask_storeu_epi16(to.cast(), mask, f32_to_bf16(x)),
                RowType::F16 => {
                    let bits = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
                    _mm256_mask_storeu_epi16(to.cast(), mask, bits);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn load_registers(from: *const u8, float: RowType, _: usize, count: usize) -> Self::F {
        let mask = first_of(count);
        // SAFETY: as the caller promises; elements beyond the mask are not read.
        unsafe {
            match float {
                RowType::F32 => _mm512_maskz_loadu_ps(mask, from.cast()),
                RowType::Bf16 => bf16_to_f32(_mm256_maskz_loadu_epi16(mask, from.cast())),
                RowType::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
            }
        }
    }

    #[inline(always)]
    unsafe fn store_registers(to: *mut f32, _: usize, count: usize, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe { Self::store_first(to, count, x) };
    }

    #[inline(always)]
    unsafe fn replaced(x: Self::F, bits: u16, with: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_mask_mov_ps(x, bits, with) }
    }

    #[inline(always)]
    unsafe fn lane_mask(from: *const u8, count: usize) -> u64 {
        let first = u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
        // SAFETY: as the caller promises; bytes outside of the mask are not read.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi8(first, from.cast());
            _mm512_test_epi8_mask(bytes, bytes)
        }
    }

    #[inline(always)]
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises. The distance of −∞ from the integer below it is 0, and scaling by
        // 2 to the power of −∞ gives 0; scaling goes by the integer below, and rounds once.
        unsafe {
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, _mm512_set1_ps(gone(SUBNORMAL)));
            let x = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
            let r = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
            let mut y = _mm512_set1_ps(UPPER[6]);
            for c in [UPPER[5], UPPER[4], UPPER[3], UPPER[2], UPPER[1], UPPER[0]] {
                y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(c));
            }
            match SUBNORMAL {
                true => _mm512_scalef_ps(y, x),
                false => _mm512_maskz_scalef_ps(is_kept, y, x),
            }
        }
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let is_kept = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(p, _mm512_setzero_ps());
            _mm512_mask3_fmadd_ps(x, p, sum, is_kept)
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_s8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_places(from: *const f32, places: *const u32, count: usize) -> Self::F {
        let mask = first_of(count);
        // SAFETY: as the caller promises; elements outside of the masks are not read, and those between two
        // places of a row are in the row.
        unsafe {
            let at = _mm512_maskz_loadu_epi32(mask, places.cast());
            let first = places.read_unaligned();
            let reach = places.wrapping_add(count - 1).read_unaligned().wrapping_sub(first);
            let beyond = _mm512_sub_epi32(at, _mm512_set1_epi32(first as i32));
            let far = _mm512_mask_cmpgt_epu32_mask(mask, beyond, _mm512_set1_epi32(reach as i32));
            if far != 0 || reach as usize >= 2 * LANES {
                return _mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), mask, at, from);
            }
            // Neighbours are read at once, and change places in registers (decision: places-nearby).
            let (from, between) = (from.wrapping_add(first as usize), (2u64 << reach) - 1);
            let low = _mm512_maskz_loadu_ps(between as u16, from);
            let high = _mm512_maskz_loadu_ps((between >> LANES) as u16, from.wrapping_add(LANES));
            _mm512_maskz_permutex2var_ps(mask, low, beyond, high)
        }
    }

    #[inline(always)]
    unsafe fn load_inside(from: *const f32, inside: Range<usize>) -> Self::F {
        // SAFETY: as the caller promises; elements outside of the mask are not read.
        unsafe { _mm512_maskz_loadu_ps(first_of(inside.end) & !first_of(inside.start), from) }
    }

    #[inline(always)]
    unsafe fn store_inside(to: *mut f32, inside: Range<usize>, x: Self::F) {
        // SAFETY: as the caller promises; elements outside of the mask are not written.
        unsafe { _mm512_mask_storeu_ps(to, first_of(inside.end) & !first_of(inside.start), x) }
    }

    #[inline(always)]
    unsafe fn load_apart(from: *const f32, inside: Range<usize>) -> [Self::F; 2] {
        // SAFETY: as the caller promises; elements outside of the masks are not read.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            let first = first_of(inside.end) & !first_of(inside.start);
            let low = _mm512_maskz_loadu_ps(first, from);
            let behind =
                first_of(inside.end.saturating_sub(LANES)) & !first_of(inside.start.saturating_sub(LANES));
            let high = _mm512_maskz_loadu_ps(behind, from.wrapping_add(LANES));
            [_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)]
        }
    }

    const IS_CHOSEN_IN_ORDER: bool = false;

    #[inline(always)]
    unsafe fn arranged(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
            _mm512_permutexvar_ps(order, x)
        }
    }

    #[inline(always)]
    unsafe fn in_order(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
            _mm512_permutexvar_ps(order, x)
        }
    }

    /// The first half is in even lanes, the second in odd ones.
    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        // SAFETY: as the caller promises. A permutation reads the lowest 4 bits of an index.
        unsafe {
            let shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
            // A load gives 8 elements to all even lanes and the 8 behind them to all odd ones.
            let bits = _mm512_set1_epi64(from.cast::<i64>().read_unaligned());
            _mm512_permutexvar_ps(_mm512_srlv_epi32(bits, shifts), table)
        }
    }
}

/// The mask of the first numbers of a vector.
#[inline(always)]
fn first_of(count: usize) -> u16 {
    ((1u32 << count.min(LANES)) - 1) as u16
}

/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn bf16_to_f32(bits: __m256i) -> __m512 {
    // SAFETY: as the caller promises.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
}

/// Numbers rounded to nearest, ties to even, in the high halves of lanes, whose low halves are anything; the
/// machine's instruction would flush subnormal numbers.
///
/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn rounded_to_bf16(x: __m512) -> __m512i {
    /// Of three operands, the first or both others.
    const FIRST_OR_BOTH: i32 = 0b1111_1000;
    // SAFETY: as the caller promises.
    unsafe {
        let bits = _mm512_castps_si512(x);
        // Just below one half in the low 16 bits, and the last bit that is kept above; then their sum.
        let below_half = _mm512_set1_epi32(0x7fff);
        let last = _mm512_set1_epi32(0x1_0000);
        let parts = _mm512_ternarylogic_epi32::<FIRST_OR_BOTH>(below_half, bits, last);
        _mm512_add_epi32(bits, _mm512_madd_epi16(parts, _mm512_set1_epi16(1)))
    }
}

/// # Safety
///
/// The machine runs level Avx512.
#[inline(always)]
unsafe fn f32_to_bf16(x: __m512) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe { _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded_to_bf16(x))) }
}
