//! Vectors of f32, as micro-kernels see them at each level.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;
use crate::kernels::isa::Portable;
#[cfg(target_arch = "aarch64")]
use crate::kernels::pointwise::half::widen_f16;

/// Vectors of a level.
///
/// # Safety of the methods
///
/// The machine runs the level. The lanes that the caller names can be read or written at the address.
pub(super) trait Simd: 'static {
    /// Elements of a vector.
    const LANES: usize;
    type Vector: Copy;
    /// The first lanes of a vector.
    type Mask: Copy;

    fn mask(lanes: usize) -> Self::Mask;
    unsafe fn zero() -> Self::Vector;
    unsafe fn load(at: *const f32) -> Self::Vector;
    /// Loads the lanes of a mask; the others are 0.
    unsafe fn load_part(at: *const f32, mask: Self::Mask) -> Self::Vector;
    unsafe fn store(at: *mut f32, value: Self::Vector);
    unsafe fn store_part(at: *mut f32, mask: Self::Mask, value: Self::Vector);
    unsafe fn splat(at: *const f32) -> Self::Vector;
    /// `x · y + sum`, rounded once if the level can.
    unsafe fn mul_add(x: Self::Vector, y: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// Widens bf16, as [`load_part`](Self::load_part).
    unsafe fn load_bf16(at: *const u16, mask: Self::Mask) -> Self::Vector;
    /// Widens f16, as [`load_part`](Self::load_part).
    unsafe fn load_f16(at: *const u16, mask: Self::Mask) -> Self::Vector;
}

/// Lanes of a vector at level Portable, which every machine of the family has.
const PORTABLE: usize = 4;

impl Simd for Portable {
    const LANES: usize = PORTABLE;
    type Vector = [f32; PORTABLE];
    type Mask = usize;

    #[inline(always)]
    fn mask(lanes: usize) -> usize {
        lanes
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        [0.0; PORTABLE]
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::Vector {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_part(at: *const f32, lanes: usize) -> Self::Vector {
        if lanes == PORTABLE {
            // SAFETY: as the caller promises.
            return unsafe { Self::load(at) };
        }
        std::array::from_fn(
            #[inline(always)]
            |lane| match lane < lanes {
                // SAFETY: only lanes of the mask are read.
                true => unsafe { at.add(lane).read_unaligned() },
                false => 0.0,
            },
        )
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: Self::Vector) {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<Self::Vector>().write_unaligned(value) };
    }

    #[inline(always)]
    unsafe fn store_part(at: *mut f32, lanes: usize, value: Self::Vector) {
        for (lane, value) in value.into_iter().enumerate().take(lanes) {
            // SAFETY: only lanes of the mask are written.
            unsafe { at.add(lane).write_unaligned(value) };
        }
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> Self::Vector {
        // SAFETY: as the caller promises.
        [unsafe { at.read_unaligned() }; PORTABLE]
    }

    #[inline(always)]
    unsafe fn mul_add(x: Self::Vector, y: Self::Vector, sum: Self::Vector) -> Self::Vector {
        std::array::from_fn(
            #[inline(always)]
            |lane| sum[lane] + x[lane] * y[lane],
        )
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16, lanes: usize) -> Self::Vector {
        std::array::from_fn(
            #[inline(always)]
            |lane| {
                // SAFETY: only lanes of the mask are read.
                let bits = if lane < lanes { unsafe { at.add(lane).read_unaligned() } } else { 0 };
                f32::from_bits(u32::from(bits) << 16)
            },
        )
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16, lanes: usize) -> Self::Vector {
        std::array::from_fn(
            #[inline(always)]
            |lane| {
                // SAFETY: only lanes of the mask are read.
                let bits = if lane < lanes { unsafe { at.add(lane).read_unaligned() } } else { 0 };
                half::f16::from_bits(bits).to_f32_const()
            },
        )
    }
}

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    const LANES: usize = 8;
    type Vector = __m256;
    type Mask = usize;

    #[inline(always)]
    fn mask(lanes: usize) -> usize {
        lanes
    }

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn load_part(at: *const f32, lanes: usize) -> __m256 {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe {
            match lanes {
                8 => _mm256_loadu_ps(at),
                _ => _mm256_maskload_ps(at, first_lanes(lanes)),
            }
        }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: __m256) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_ps(at, value) };
    }

    #[inline(always)]
    unsafe fn store_part(at: *mut f32, lanes: usize, value: __m256) {
        // SAFETY: as the caller promises; lanes outside of the mask are not written.
        unsafe { _mm256_maskstore_ps(at, first_lanes(lanes), value) };
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_set1_ps(at.read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: __m256, y: __m256, sum: __m256) -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_fmadd_ps(x, y, sum) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16, lanes: usize) -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves(at, lanes)))) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16, lanes: usize) -> __m256 {
        // SAFETY: as the caller promises.
        unsafe { _mm256_cvtph_ps(halves(at, lanes)) }
    }
}

/// All bits of the first lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_lanes(lanes: usize) -> __m256i {
    static BITS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: eight elements are within the table from each index up to 8 on.
    unsafe { _mm256_loadu_si256(BITS.as_ptr().add(8 - lanes).cast()) }
}

/// The first lanes of eight elements of 16 bits; the others are 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn halves(at: *const u16, lanes: usize) -> __m128i {
    if lanes == 8 {
        // SAFETY: as the caller promises.
        return unsafe { _mm_loadu_si128(at.cast()) };
    }
    let mut part = [0u16; 8];
    // SAFETY: only the first lanes are read, which the caller promises; a vector has eight elements.
    unsafe {
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), part.as_mut_ptr().cast(), 2 * lanes);
        _mm_loadu_si128(part.as_ptr().cast())
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl Simd for Avx512 {
    const LANES: usize = 16;
    type Vector = __m512;
    type Mask = __mmask16;

    #[inline(always)]
    fn mask(lanes: usize) -> __mmask16 {
        0xffff >> (16 - lanes)
    }

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn load_part(at: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe { _mm512_maskz_loadu_ps(mask, at) }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: __m512) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_ps(at, value) };
    }

    #[inline(always)]
    unsafe fn store_part(at: *mut f32, mask: __mmask16, value: __m512) {
        // SAFETY: as the caller promises; lanes outside of the mask are not written.
        unsafe { _mm512_mask_storeu_ps(at, mask, value) };
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_set1_ps(at.read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: __m512, y: __m512, sum: __m512) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_fmadd_ps(x, y, sum) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16, mask: __mmask16) -> __m512 {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe {
            let bits = _mm256_maskz_loadu_epi16(mask, at.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16, mask: __mmask16) -> __m512 {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at.cast())) }
    }
}

#[cfg(target_arch = "aarch64")]
impl Simd for Neon {
    const LANES: usize = 4;
    type Vector = float32x4_t;
    type Mask = usize;

    #[inline(always)]
    fn mask(lanes: usize) -> usize {
        lanes
    }

    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<float32x4_t>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_part(at: *const f32, lanes: usize) -> float32x4_t {
        // SAFETY: as the caller promises; lanes outside of the mask are not read.
        unsafe {
            match lanes {
                4 => Self::load(at),
                _ => part(at, lanes),
            }
        }
    }

    #[inline(always)]
    unsafe fn store(at: *mut f32, value: float32x4_t) {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<float32x4_t>().write_unaligned(value) };
    }

    #[inline(always)]
    unsafe fn store_part(at: *mut f32, lanes: usize, value: float32x4_t) {
        // Lane by lane, as in `part`.
        // SAFETY: as the caller promises; lanes outside of the mask are not written.
        unsafe {
            if lanes == 4 {
                return Self::store(at, value);
            }
            if lanes > 0 {
                at.write_unaligned(vgetq_lane_f32::<0>(value));
            }
            if lanes > 1 {
                at.add(1).write_unaligned(vgetq_lane_f32::<1>(value));
            }
            if lanes > 2 {
                at.add(2).write_unaligned(vgetq_lane_f32::<2>(value));
            }
        }
    }

    #[inline(always)]
    unsafe fn splat(at: *const f32) -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { vdupq_n_f32(at.read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn mul_add(x: float32x4_t, y: float32x4_t, sum: float32x4_t) -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { vfmaq_f32(sum, x, y) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u16, lanes: usize) -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(part(at, lanes)))) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16, lanes: usize) -> float32x4_t {
        // SAFETY: as the caller promises.
        unsafe { widen_f16(part(at, lanes)) }
    }
}

/// A vector of four elements: the first are read, and the others are 0.
///
/// # Safety
///
/// The first elements can be read.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn part<T: Copy, V: Copy>(at: *const T, lanes: usize) -> V {
    const { assert!(size_of::<V>() == 4 * size_of::<T>()) };
    if lanes == 4 {
        // SAFETY: as the caller promises.
        return unsafe { at.cast::<V>().read_unaligned() };
    }
    // Lane by lane: a copy of any length is a call, around which a micro-kernel would spill its sums at every
    // step of the depth.
    // SAFETY: zeros are a valid vector, which has room for four elements; only the first elements are read.
    unsafe {
        let mut vector = std::mem::zeroed::<V>();
        let to = (&raw mut vector).cast::<T>();
        if lanes > 0 {
            to.write(at.read_unaligned());
        }
        if lanes > 1 {
            to.add(1).write(at.add(1).read_unaligned());
        }
        if lanes > 2 {
            to.add(2).write(at.add(2).read_unaligned());
        }
        vector
    }
}
