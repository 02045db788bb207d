//! Operations on blocks and their masks that a level has beyond plain Rust.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::blocks::Pod;
use super::vector512::LaneBits;
#[cfg(target_arch = "x86_64")]
use crate::kernels::BLOCK;
#[cfg(target_arch = "x86_64")]
use crate::kernels::isa::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::kernels::isa::Avx512;
#[cfg(target_arch = "aarch64")]
use crate::kernels::isa::Neon;

/// A level with register fusion, whose blocks have `N` elements. Bit `i` of a mask belongs to element `i`.
///
/// # Safety of the methods
///
/// The machine runs the level.
pub(in crate::kernels) trait Vectors<const N: usize> {
    /// Which of 16 bytes are not zero.
    unsafe fn mask_16(bytes: &[u8; 16]) -> u16;

    /// Which bytes of a block are not zero.
    unsafe fn mask(bytes: &[u8; N]) -> u64;

    /// A byte for each bit, 0 or 1.
    unsafe fn bytes(mask: u64) -> [u8; N];

    /// `then` where the bit is set, else `else_`.
    unsafe fn select<U: LaneBits>(mask: u64, then: &[U; N], else_: &[U; N]) -> [U; N];

    /// Writes the first elements of a block and touches no line beyond them: even a masked store of no byte
    /// takes ownership of its line. With `NON_TEMPORAL`, whole lines are stored non-temporally; the address
    /// is then a multiple of 64, and a fence follows on the same thread.
    unsafe fn write<T: Pod, const NON_TEMPORAL: bool>(to: *mut u8, block: &[T; N], count: usize);
}

#[cfg(target_arch = "x86_64")]
impl Vectors<BLOCK> for Avx2 {
    #[inline(always)]
    unsafe fn mask_16(bytes: &[u8; 16]) -> u16 {
        // SAFETY: as the caller promises; the array has the size of a vector.
        unsafe {
            let bytes = bytes.as_ptr().cast::<__m128i>().read_unaligned();
            !_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) as u16
        }
    }

    #[inline(always)]
    unsafe fn mask(bytes: &[u8; BLOCK]) -> u64 {
        let mut mask = 0;
        for i in (0..BLOCK).step_by(32) {
            // SAFETY: as the caller promises; 32 bytes from there on are within the block.
            let zeros = unsafe {
                let bytes = bytes.as_ptr().add(i).cast::<__m256i>().read_unaligned();
                _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256()))
            };
            mask |= u64::from(!zeros as u32) << i;
        }
        mask
    }

    #[inline(always)]
    unsafe fn bytes(mask: u64) -> [u8; BLOCK] {
        // Spreads each byte of the mask over eight bytes; each of these keeps its own bit.
        const OWN_BIT: i64 = 0x8040_2010_0804_0201_u64 as i64;
        let mut bytes = [0; BLOCK];
        for i in 0..BLOCK / 32 {
            // SAFETY: as the caller promises; 32 bytes from there on are within the block.
            unsafe {
                let half = _mm256_set1_epi32((mask >> (32 * i)) as i32);
                let place =
                    _mm256_set_epi64x(0x0303_0303_0303_0303, 0x0202_0202_0202_0202, 0x0101_0101_0101_0101, 0);
                let spread = _mm256_shuffle_epi8(half, place);
                let own = _mm256_set1_epi64x(OWN_BIT);
                let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, own), own);
                let ones = _mm256_and_si256(is_set, _mm256_set1_epi8(1));
                bytes.as_mut_ptr().add(32 * i).cast::<__m256i>().write_unaligned(ones);
            }
        }
        bytes
    }

    #[inline(always)]
    unsafe fn select<U: LaneBits>(mask: u64, then: &[U; BLOCK], else_: &[U; BLOCK]) -> [U; BLOCK] {
        // SAFETY: as the caller promises.
        let conds = unsafe { Self::bytes(mask) };
        let mut to = *else_;
        for i in 0..BLOCK {
            to[i] = U::blend(conds[i], then[i], else_[i]);
        }
        to
    }

    #[inline(always)]
    unsafe fn write<T: Pod, const NON_TEMPORAL: bool>(to: *mut u8, block: &[T; BLOCK], count: usize) {
        for at in (0..size_of_val(block)).step_by(64) {
            // SAFETY: as the caller promises; a line from there on is within the block.
            unsafe {
                let (to, from) = (to.wrapping_add(at), block.as_ptr().cast::<u8>().add(at).cast::<__m256i>());
                let [low, high] = [from.read_unaligned(), from.add(1).read_unaligned()];
                match (count * size_of::<T>()).saturating_sub(at) {
                    64.. if NON_TEMPORAL => {
                        _mm256_stream_si256(to.cast(), low);
                        _mm256_stream_si256(to.add(32).cast(), high);
                    }
                    64.. => to.cast::<[__m256i; 2]>().write_unaligned([low, high]),
                    0 => break,
                    rest => {
                        // Copied, so that whole blocks stay in registers.
                        let line = [low, high];
                        to.copy_from_nonoverlapping(line.as_ptr().cast(), rest);
                    }
                }
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
impl Vectors<BLOCK> for Avx512 {
    #[inline(always)]
    unsafe fn mask_16(bytes: &[u8; 16]) -> u16 {
        // SAFETY: as the caller promises; the array has the size of a vector.
        unsafe {
            let bytes = bytes.as_ptr().cast::<__m128i>().read_unaligned();
            _mm_test_epi8_mask(bytes, bytes)
        }
    }

    #[inline(always)]
    unsafe fn mask(bytes: &[u8; BLOCK]) -> u64 {
        // SAFETY: as the caller promises; the array has the size of a vector.
        unsafe {
            let bytes = bytes.as_ptr().cast::<__m512i>().read_unaligned();
            _mm512_test_epi8_mask(bytes, bytes)
        }
    }

    #[inline(always)]
    unsafe fn bytes(mask: u64) -> [u8; BLOCK] {
        // SAFETY: as the caller promises; any bytes are an array of bytes.
        unsafe { std::mem::transmute::<__m512i, [u8; BLOCK]>(_mm512_maskz_set1_epi8(mask, 1)) }
    }

    #[inline(always)]
    unsafe fn select<U: LaneBits>(mask: u64, then: &[U; BLOCK], else_: &[U; BLOCK]) -> [U; BLOCK] {
        let mut to = *else_;
        for i in (0..BLOCK).step_by(U::LANES) {
            let part = if U::LANES == 64 { mask } else { mask >> i };
            // SAFETY: as the caller promises; a vector from there on is within each block.
            unsafe {
                let then = then.as_ptr().add(i).cast::<__m512i>().read_unaligned();
                let else_ = else_.as_ptr().add(i).cast::<__m512i>().read_unaligned();
                to.as_mut_ptr().add(i).cast::<__m512i>().write_unaligned(U::select(part, then, else_));
            }
        }
        to
    }

    #[inline(always)]
    unsafe fn write<T: Pod, const NON_TEMPORAL: bool>(to: *mut u8, block: &[T; BLOCK], count: usize) {
        for at in (0..size_of_val(block)).step_by(64) {
            // SAFETY: as the caller promises; a vector from there on is within the block.
            unsafe {
                let (to, from) = (to.wrapping_add(at), block.as_ptr().cast::<u8>().add(at));
                let vector = from.cast::<__m512i>().read_unaligned();
                match (count * size_of::<T>()).saturating_sub(at) {
                    64.. if NON_TEMPORAL => _mm512_stream_si512(to.cast(), vector),
                    64.. => _mm512_storeu_si512(to.cast(), vector),
                    0 => break,
                    rest => _mm512_mask_storeu_epi8(to.cast(), (1 << rest) - 1, vector),
                }
            }
        }
    }
}

/// The bit of each of 16 bytes within its half.
#[cfg(target_arch = "aarch64")]
const BIT_WITHIN_HALF: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

#[cfg(target_arch = "aarch64")]
const EIGHT_BITS: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

#[cfg(target_arch = "aarch64")]
const FOUR_BITS: [u32; 4] = [1, 2, 4, 8];

/// Blocks of 32 elements: eight vectors of four elements of 4 bytes.
#[cfg(target_arch = "aarch64")]
impl Vectors<32> for Neon {
    #[inline(always)]
    unsafe fn mask_16(bytes: &[u8; 16]) -> u16 {
        // Adding up neighbours three times gathers the bits of a half in one byte.
        // SAFETY: as the caller promises; the arrays have the size of a vector.
        unsafe {
            let bytes = vld1q_u8(bytes.as_ptr());
            let bits = vandq_u8(vtstq_u8(bytes, bytes), vld1q_u8(BIT_WITHIN_HALF.as_ptr()));
            let bits = vpaddq_u8(bits, bits);
            let bits = vpaddq_u8(bits, bits);
            vgetq_lane_u16::<0>(vreinterpretq_u16_u8(vpaddq_u8(bits, bits)))
        }
    }

    #[inline(always)]
    unsafe fn mask(bytes: &[u8; 32]) -> u64 {
        let (halves, _) = bytes.as_chunks::<16>();
        // SAFETY: as the caller promises.
        let [low, high] = unsafe { [Self::mask_16(&halves[0]), Self::mask_16(&halves[1])] };
        u64::from(low) | u64::from(high) << 16
    }

    #[inline(always)]
    unsafe fn bytes(mask: u64) -> [u8; 32] {
        let mut bytes = [0; 32];
        let (parts, _) = bytes.as_chunks_mut::<16>();
        for (part, i) in parts.iter_mut().zip([0, 16]) {
            // Each half has a byte of the mask in all its places; each of these keeps its own bit.
            // SAFETY: as the caller promises; the arrays have the size of a vector.
            unsafe {
                let spread = vcombine_u8(vdup_n_u8((mask >> i) as u8), vdup_n_u8((mask >> (i + 8)) as u8));
                let is_set = vtstq_u8(spread, vld1q_u8(BIT_WITHIN_HALF.as_ptr()));
                vst1q_u8(part.as_mut_ptr(), vandq_u8(is_set, vdupq_n_u8(1)));
            }
        }
        bytes
    }

    /// The bits are tested in lanes as wide as the elements, so that no mask is widened.
    #[inline(always)]
    unsafe fn select<U: LaneBits>(mask: u64, then: &[U; 32], else_: &[U; 32]) -> [U; 32] {
        let mut to = *else_;
        // SAFETY: as the caller promises; a vector from each `i` on is within each block.
        unsafe {
            match size_of::<U>() {
                2 => {
                    for i in (0..32).step_by(8) {
                        let own = vshlq_u16(vld1q_u16(EIGHT_BITS.as_ptr()), vdupq_n_s16((i % 16) as i16));
                        let is_set = vtstq_u16(vdupq_n_u16((mask >> (i / 16 * 16)) as u16), own);
                        let of = |block: &[U; 32]| vld1q_u16(block.as_ptr().add(i).cast());
                        let part = vbslq_u16(is_set, of(then), of(else_));
                        vst1q_u16(to.as_mut_ptr().add(i).cast(), part);
                    }
                }
                4 => {
                    let mut own = vld1q_u32(FOUR_BITS.as_ptr());
                    for i in (0..32).step_by(4) {
                        let is_set = vtstq_u32(vdupq_n_u32(mask as u32), own);
                        let of = |block: &[U; 32]| vld1q_u32(block.as_ptr().add(i).cast());
                        let part = vbslq_u32(is_set, of(then), of(else_));
                        vst1q_u32(to.as_mut_ptr().add(i).cast(), part);
                        own = vshlq_n_u32::<4>(own);
                    }
                }
                _ => {
                    let conds = Self::bytes(mask);
                    for i in 0..32 {
                        to[i] = U::blend(conds[i], then[i], else_[i]);
                    }
                }
            }
        }
        to
    }

    /// Stores are temporal: the level has pairs of registers that are stored so, but only as a hint.
    #[inline(always)]
    unsafe fn write<T: Pod, const NON_TEMPORAL: bool>(to: *mut u8, block: &[T; 32], count: usize) {
        // SAFETY: as the caller promises; a partial block is copied, so that whole blocks stay in registers.
        unsafe {
            match count {
                32.. => to.cast::<[T; 32]>().write_unaligned(*block),
                _ => {
                    let part = *block;
                    to.copy_from_nonoverlapping(part.as_ptr().cast(), count * size_of::<T>());
                }
            }
        }
    }
}
