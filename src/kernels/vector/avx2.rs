//! Vectors of level Avx2.

use std::arch::x86_64::*;

use super::arrays::exp_of_each;
use super::score::exp_of_one;
use super::{LANES, Lanes, RowType, lanes_of};
use crate::kernels::floats::NAN;
use crate::kernels::isa::Avx2;

/// The sum of four numbers, and the largest, as the last halves of a vector.
///
/// # Safety
///
/// The machine runs level Avx2.
#[inline(always)]
pub(super) unsafe fn sum_4(x: __m128) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

/// # Safety
///
/// The machine runs level Avx2.
#[inline(always)]
pub(super) unsafe fn largest_4(x: __m128) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
    }
}

impl Lanes for Avx2 {
    type F = [__m256; 2];
    type D = [__m256d; 4];

    const REGISTERS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { each!(2, |i| bf16_to_f32(_mm_loadu_si128(from.add(8 * i).cast()))) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { each!(2, |i| _mm256_cvtph_ps(_mm_loadu_si128(from.add(8 * i).cast()))) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_ps(to, x[0]);
            _mm256_storeu_ps(to.add(8), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            let [low, high] = each!(2, |i| {
                let bits = _mm256_castps_si256(x[i]);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
                _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half))
            });
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
            _mm256_storeu_si256(to.cast(), packed);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, x: Self::F) {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| _mm_storeu_si128(
                to.add(8 * i).cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[i])
            ));
        }
    }
    of_parts! {
        add(x, y) -> F = _mm256_add_ps, 2;
        sub(x, y) -> F = _mm256_sub_ps, 2;
        mul(x, y) -> F = _mm256_mul_ps, 2;
        div(x, y) -> F = _mm256_div_ps, 2;
        fma(x, y, z) -> F = _mm256_fmadd_ps, 2;
        larger(x, y) -> F = _mm256_max_ps, 2;
        add_64(x, y) -> D = _mm256_add_pd, 4;
        sub_64(x, y) -> D = _mm256_sub_pd, 4;
        mul_64(x, y) -> D = _mm256_mul_pd, 4;
    }
    #[inline(always)]
    unsafe fn splat_in_pairs(x: f64) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_castpd_ps(_mm256_set1_pd(x)); 2] }
    }
    #[inline(always)]
    unsafe fn fma_in_pairs(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                let [x, y, z] = [_mm256_castps_pd(x[i]), _mm256_castps_pd(y[i]), _mm256_castps_pd(z[i])];
                _mm256_castpd_ps(_mm256_fmadd_pd(x, y, z))
            })
        }
    }
    #[inline(always)]
    unsafe fn maximum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as the caller promises. Of equal operands the instruction gives the second, so the two
        // results differ for zeros alone.
        unsafe {
            each!(2, |i| {
                let (x, y) = (x[i], y[i]);
                let larger = _mm256_and_ps(_mm256_max_ps(x, y), _mm256_max_ps(y, x));
                _mm256_blendv_ps(larger, _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y))
            })
        }
    }
    #[inline(always)]
    unsafe fn minimum(x: Self::F, y: Self::F) -> Self::F {
        // SAFETY: as for `maximum`.
        unsafe {
            each!(2, |i| {
                let (x, y) = (x[i], y[i]);
                let smaller = _mm256_or_ps(_mm256_min_ps(x, y), _mm256_min_ps(y, x));
                _mm256_blendv_ps(smaller, _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y))
            })
        }
    }
    #[inline(always)]
    unsafe fn if_positive(x: Self::F, then: Self::F, else_: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                let is_positive = _mm256_cmp_ps::<_CMP_GT_OQ>(x[i], _mm256_setzero_ps());
                _mm256_blendv_ps(else_[i], then[i], is_positive)
            })
        }
    }
    #[inline(always)]
    unsafe fn exp(x: Self::F) -> Self::F {
        let mut block = [0.0; LANES];
        // SAFETY: as the caller promises; the block is a vector.
        unsafe {
            Self::store(block.as_mut_ptr(), x);
            Self::load(exp_of_each::<Self>(block).as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn canonical_vector(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                _mm256_blendv_ps(x[i], _mm256_set1_ps(NAN), _mm256_cmp_ps::<_CMP_UNORD_Q>(x[i], x[i]))
            })
        }
    }
    #[inline(always)]
    unsafe fn sum(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_add_ps(x[0], x[1]);
            sum_4(_mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn largest(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe {
            let x = _mm256_max_ps(x[0], x[1]);
            largest_4(_mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
        }
    }
    #[inline(always)]
    unsafe fn first(x: Self::F) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_cvtss_f32(x[0]) }
    }
    #[inline(always)]
    unsafe fn first_64(x: Self::D) -> f64 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_cvtsd_f64(x[0]) }
    }
    #[inline(always)]
    unsafe fn from_on<const N: usize>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            [match N {
                8 => x[1],
                4 => _mm256_permute2f128_ps::<1>(x[0], x[0]),
                2 => _mm256_permute_ps::<0b11_10_11_10>(x[0]),
                _ => _mm256_permute_ps::<0b01_01_01_01>(x[0]),
            }; 2]
        }
    }
    #[inline(always)]
    unsafe fn from_on_64<const N: usize>(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            match N {
                8 => [x[2], x[3], x[2], x[3]],
                4 => [x[1]; 4],
                2 => [_mm256_permute2f128_pd::<1>(x[0], x[0]); 4],
                _ => [_mm256_permute_pd::<0b11_11>(x[0]); 4],
            }
        }
    }
    #[inline(always)]
    unsafe fn splat_64(x: f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { [_mm256_set1_pd(x); 4] }
    }
    #[inline(always)]
    unsafe fn widen(x: Self::F) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe {
            [
                _mm256_cvtps_pd(_mm256_castps256_ps128(x[0])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[0])),
                _mm256_cvtps_pd(_mm256_castps256_ps128(x[1])),
                _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[1])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn narrow(x: Self::D) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            [
                _mm256_set_m128(_mm256_cvtpd_ps(x[1]), _mm256_cvtpd_ps(x[0])),
                _mm256_set_m128(_mm256_cvtpd_ps(x[3]), _mm256_cvtpd_ps(x[2])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn abs_64(x: Self::D) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| _mm256_andnot_pd(_mm256_set1_pd(-0.0), x[i])) }
    }
    #[inline(always)]
    unsafe fn load_64(from: *const f64) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| _mm256_loadu_pd(from.add(4 * i))) }
    }
    #[inline(always)]
    unsafe fn load_wide(from: *const f32) -> Self::D {
        // SAFETY: as the caller promises.
        unsafe { each!(4, |i| _mm256_cvtps_pd(_mm_loadu_ps(from.add(4 * i)))) }
    }
    #[inline(always)]
    unsafe fn store_64(to: *mut f64, x: Self::D) {
        // SAFETY: as the caller promises.
        unsafe {
            each!(4, |i| _mm256_storeu_pd(to.add(4 * i), x[i]));
        }
    }
    #[inline(always)]
    unsafe fn exp_of_score<const SUBNORMAL: bool>(x: Self::F) -> Self::F {
        // SAFETY: as the caller promises; an array of 16 numbers is a vector.
        unsafe {
            let mut to = [0.0; LANES];
            Self::store(to.as_mut_ptr(), x);
            for x in &mut to {
                *x = exp_of_one::<Self, SUBNORMAL>(*x);
            }
            Self::load(to.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn replaced(x: Self::F, bits: u16, with: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            let masks = lane_masks(bits);
            each!(2, |i| _mm256_blendv_ps(x[i], with[i], _mm256_castsi256_ps(masks[i])))
        }
    }

    #[inline(always)]
    unsafe fn lane_mask(from: *const u8, count: usize) -> u64 {
        const BYTES: usize = 32;
        let mut lane_mask = 0;
        for first in (0..count).step_by(BYTES) {
            let mut part = [0u8; BYTES];
            // SAFETY: as the caller promises; the part is a vector.
            unsafe {
                let mut at = from.add(first);
                if count - first < BYTES {
                    at.copy_to_nonoverlapping(part.as_mut_ptr(), count - first);
                    at = part.as_ptr();
                }
                let bytes = _mm256_loadu_si256(at.cast());
                let is_false = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256()));
                lane_mask |= u64::from(!is_false as u32) << first;
            }
        }
        lane_mask
    }

    #[inline(always)]
    unsafe fn add_product(x: Self::F, p: Self::F, sum: Self::F) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                let is_masked = _mm256_cmp_ps::<_CMP_EQ_OQ>(p[i], _mm256_setzero_ps());
                _mm256_blendv_ps(_mm256_fmadd_ps(x[i], p[i], sum[i]), sum[i], is_masked)
            })
        }
    }

    #[inline(always)]
    unsafe fn load_u8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8 * i).cast())))
            })
        }
    }

    #[inline(always)]
    unsafe fn load_s8(from: *const u8) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            each!(2, |i| {
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8 * i).cast())))
            })
        }
    }

    #[inline(always)]
    unsafe fn chosen(from: *const u8, table: Self::F) -> Self::F {
        // SAFETY: as the caller promises. A permutation reads the lowest 3 bits of an index, a blend the
        // sign.
        unsafe {
            let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            each!(2, |i| {
                let bits = _mm256_set1_epi32(from.cast::<i32>().add(i).read_unaligned());
                let index = _mm256_srlv_epi32(bits, shifts);
                let low = _mm256_permutevar8x32_ps(table[0], index);
                let high = _mm256_permutevar8x32_ps(table[1], index);
                _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
            })
        }
    }

    #[inline(always)]
    unsafe fn load_registers(from: *const u8, float: RowType, registers: usize, count: usize) -> Self::F {
        // SAFETY: as the caller promises; lanes outside of a mask are not read.
        unsafe {
            each!(2, |i| {
                let at = from.wrapping_add(8 * i * float.bytes());
                match (float, lanes_of::<Self>(i, registers, count)) {
                    (_, None) => _mm256_setzero_ps(),
                    (RowType::F32, Some(8)) => _mm256_loadu_ps(at.cast()),
                    (RowType::F32, Some(count)) => _mm256_maskload_ps(at.cast(), masks_256(count)[0]),
                    (RowType::Bf16, Some(count)) => bf16_to_f32(load_halves(at, count)),
                    (RowType::F16, Some(count)) => _mm256_cvtph_ps(load_halves(at, count)),
                }
            })
        }
    }

    #[inline(always)]
    unsafe fn store_registers(to: *mut f32, registers: usize, count: usize, x: Self::F) {
        // SAFETY: as the caller promises; lanes outside of a mask are not written.
        unsafe {
            if registers == 2 {
                _mm256_storeu_ps(to, x[0]);
            }
            let last = registers - 1;
            // A store under a mask takes as long as ten others on some CPUs (decision: whole-stores).
            match count - 8 * last {
                8 => _mm256_storeu_ps(to.add(8 * last), x[last]),
                rest => _mm256_maskstore_ps(to.add(8 * last), masks_256(rest)[0], x[last]),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_of_groups<const GROUP: usize>(from: *const f32, place: usize) -> Self::F {
        // SAFETY: as the caller promises.
        unsafe {
            match GROUP {
                4 => {
                    let place = _mm256_set1_epi32(place as i32);
                    each!(2, |i| _mm256_permutevar_ps(_mm256_loadu_ps(from.add(8 * i)), place))
                }
                _ => each!(2, |i| _mm256_set1_ps(from.add(8 * i + place).read_unaligned())),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, pad: f32) -> Self::F {
        // SAFETY: as the caller promises; lanes outside of a mask are not read.
        unsafe {
            let pad = _mm256_castps_si256(_mm256_set1_ps(pad));
            let [low, high] = masks_256(count);
            let load = |from: *const f32, mask| {
                let x = _mm256_castps_si256(_mm256_maskload_ps(from, mask));
                _mm256_castsi256_ps(_mm256_blendv_epi8(pad, x, mask))
            };
            [load(from, low), load(from.wrapping_add(8), high)]
        }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, count: usize, x: Self::F) {
        let [low, high] = masks_256(count);
        // SAFETY: as the caller promises; lanes outside of a mask are not written.
        unsafe {
            _mm256_maskstore_ps(to, low, x[0]);
            _mm256_maskstore_ps(to.wrapping_add(8), high, x[1]);
        }
    }
}

/// Lanes whose signs are the bits, the first the lowest one: blends and loads under a mask read signs.
///
/// # Safety
///
/// The machine runs level Avx2.
#[inline(always)]
unsafe fn lane_masks(bits: u16) -> [__m256i; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        let bits = _mm256_set1_epi32(i32::from(bits));
        let shifts = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let shifts = [shifts, _mm256_sub_epi32(shifts, _mm256_set1_epi32(8))];
        each!(2, |i| _mm256_sllv_epi32(bits, shifts[i]))
    }
}

/// # Safety
///
/// The machine runs level Avx2.
#[inline(always)]
unsafe fn bf16_to_f32(bits: __m128i) -> __m256 {
    // SAFETY: as the caller promises.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits))) }
}

/// The first of eight elements of 16 bits; the others are 0.
///
/// # Safety
///
/// They can be read, and the machine runs level Avx2.
#[inline(always)]
unsafe fn load_halves(from: *const u8, count: usize) -> __m128i {
    let mut part = [0u16; 8];
    // SAFETY: as the caller promises; a vector has eight elements.
    unsafe {
        if count == 8 {
            return _mm_loadu_si128(from.cast());
        }
        from.copy_to_nonoverlapping(part.as_mut_ptr().cast(), 2 * count);
        _mm_loadu_si128(part.as_ptr().cast())
    }
}

/// All bits of the first lanes of a vector, as halves.
#[inline(always)]
fn masks_256(count: usize) -> [__m256i; 2] {
    const LANES: usize = 16;
    static BITS: [i32; 2 * LANES] = {
        let mut bits = [0; 2 * LANES];
        let mut lane = 0;
        while lane < LANES {
            bits[lane] = -1;
            lane += 1;
        }
        bits
    };
    let at = BITS[LANES - count.min(LANES)..].as_ptr();
    // SAFETY: 16 elements are within the table from each index up to 16 on; only kernels of the level call
    // this.
    unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast())] }
}
