//! Operations on vectors of 512 bits, by the integer type of a lane.

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use std::arch::x86_64::*;

use crate::kernels::Width;

/// Operations on a lane's integer type in vectors of 512 bits. Bit `i` of a mask belongs to lane `i`.
///
/// # Safety of the methods
///
/// The machine runs level Avx512; lanes whose mask bit is set can be read or written at the address.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(in crate::kernels) trait Vector512: Sized {
    /// Lanes of a vector.
    const LANES: usize = 64 / size_of::<Self>();

    /// A vector of one value.
    unsafe fn splat(self) -> __m512i;

    /// Loads the lanes of a mask; the others are 0.
    unsafe fn load(at: *const Self, mask: u64) -> __m512i;

    /// Stores the lanes of a mask.
    unsafe fn store(at: *mut Self, mask: u64, value: __m512i);

    /// `then` in the lanes of a mask, `else_` in the others.
    unsafe fn select(mask: u64, then: __m512i, else_: __m512i) -> __m512i;

    /// The lanes of two vectors interleaved: those of the lower halves, and those of the upper halves.
    unsafe fn interleave(a: __m512i, b: __m512i) -> (__m512i, __m512i);
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
macro_rules! vector512 {
    ($(
        $U:ident, $Signed:ident, $Mask:ident:
        $splat:ident $load:ident $store:ident $select:ident $interleave:ident;
    )*) => {
        $(impl Vector512 for $U {
            #[inline(always)]
            unsafe fn splat(self) -> __m512i {
                // SAFETY: as the caller promises.
                unsafe { $splat(self as $Signed) }
            }

            #[inline(always)]
            unsafe fn load(at: *const Self, mask: u64) -> __m512i {
                // SAFETY: as the caller promises.
                unsafe { $load(mask as $Mask, at.cast()) }
            }

            #[inline(always)]
            unsafe fn store(at: *mut Self, mask: u64, value: __m512i) {
                // SAFETY: as the caller promises.
                unsafe { $store(at.cast(), mask as $Mask, value) }
            }

            #[inline(always)]
            unsafe fn select(mask: u64, then: __m512i, else_: __m512i) -> __m512i {
                // SAFETY: as the caller promises.
                unsafe { $select(mask as $Mask, else_, then) }
            }

            #[inline(always)]
            unsafe fn interleave(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
                // SAFETY: as the caller promises.
                unsafe { $interleave(a, b) }
            }
        })*
    };
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
vector512! {
    u8, i8, u64:
    _mm512_set1_epi8 _mm512_maskz_loadu_epi8 _mm512_mask_storeu_epi8 _mm512_mask_blend_epi8 interleave_8;
    u16, i16, u32:
    _mm512_set1_epi16 _mm512_maskz_loadu_epi16 _mm512_mask_storeu_epi16 _mm512_mask_blend_epi16 interleave_16;
    u32, i32, u16:
    _mm512_set1_epi32 _mm512_maskz_loadu_epi32 _mm512_mask_storeu_epi32 _mm512_mask_blend_epi32 interleave_32;
    u64, i64, u8:
    _mm512_set1_epi64 _mm512_maskz_loadu_epi64 _mm512_mask_storeu_epi64 _mm512_mask_blend_epi64 interleave_64;
}

/// For each lane of two interleaved vectors, from lane `start` of each on: its number in the first vector, or
/// in the second counted on from the first.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
const fn interleaved_lanes<const LANES: usize>(start: usize) -> [u64; LANES] {
    let mut lanes = [0; LANES];
    let mut i = 0;
    while i < LANES {
        lanes[i] = (start + i / 2 + (i % 2) * LANES) as u64;
        i += 1;
    }
    lanes
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
macro_rules! interleave_by_permuting {
    ($($name:ident: $U:ident, $LANES:literal, $permute:ident;)*) => {
        $(
            /// # Safety
            ///
            /// As for the methods of [`Vector512`].
            #[inline(always)]
            unsafe fn $name(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
                const fn narrowed(lanes: [u64; $LANES]) -> [$U; $LANES] {
                    let mut narrow = [0; $LANES];
                    let mut i = 0;
                    while i < $LANES {
                        narrow[i] = lanes[i] as $U;
                        i += 1;
                    }
                    narrow
                }
                const LOW: [$U; $LANES] = narrowed(interleaved_lanes(0));
                const HIGH: [$U; $LANES] = narrowed(interleaved_lanes($LANES / 2));
                // SAFETY: as the caller promises; the tables have the size of a vector.
                unsafe {
                    let low = _mm512_loadu_si512(LOW.as_ptr().cast());
                    let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
                    ($permute(a, low, b), $permute(a, high, b))
                }
            }
        )*
    };
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
interleave_by_permuting! {
    interleave_16: u16, 32, _mm512_permutex2var_epi16;
    interleave_32: u32, 16, _mm512_permutex2var_epi32;
    interleave_64: u64, 8, _mm512_permutex2var_epi64;
}

/// This level has no permutation of bytes from two vectors: they are unpacked within 128 bits, which are then
/// sorted.
///
/// # Safety
///
/// As for the methods of [`Vector512`].
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
unsafe fn interleave_8(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    const LOW: [u64; 8] = [0, 1, 8, 9, 2, 3, 10, 11];
    const HIGH: [u64; 8] = [4, 5, 12, 13, 6, 7, 14, 15];
    // SAFETY: as the caller promises; the tables have the size of a vector.
    unsafe {
        let (even, odd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
        let low = _mm512_loadu_si512(LOW.as_ptr().cast());
        let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
        (_mm512_permutex2var_epi64(even, low, odd), _mm512_permutex2var_epi64(even, high, odd))
    }
}

/// Other machines have no vectors of 512 bits.
#[cfg(not(all(target_arch = "x86_64", feature = "avx512")))]
pub(in crate::kernels) trait Vector512 {}

#[cfg(not(all(target_arch = "x86_64", feature = "avx512")))]
impl<U> Vector512 for U {}

/// The mask of the first `count` lanes of 64.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(in crate::kernels) fn mask_of_first(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Writes 64 bytes to `to`: those of a mask from `from`, 0 for the others.
///
/// # Safety
///
/// The machine runs level Avx512, the bytes of the mask can be read, and all can be written.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(in crate::kernels) unsafe fn load_bytes(to: *mut u8, from: *const u8, mask: u64) {
    // SAFETY: as the caller promises.
    unsafe { u8::store(to, u64::MAX, u8::load(from, mask)) };
}

/// Writes the bytes of a mask of 64 to `to`.
///
/// # Safety
///
/// The machine runs level Avx512, all bytes can be read, and those of the mask can be written.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
#[inline(always)]
pub(in crate::kernels) unsafe fn store_bytes(to: *mut u8, mask: u64, from: *const u8) {
    // SAFETY: as the caller promises.
    unsafe { u8::store(to, mask, u8::load(from, u64::MAX)) };
}

/// An unsigned integer that holds the bits of an element.
pub(in crate::kernels) trait LaneBits: Vector512 + Copy + Default + 'static {
    const WIDTH: Width;

    /// `then` where the condition byte is not zero, else `else_`, without a branch.
    fn blend(cond: u8, then: Self, else_: Self) -> Self;
}

macro_rules! lane_bits {
    ($($U:ty: $Width:ident)*) => {
        $(impl LaneBits for $U {
            const WIDTH: Width = Width::$Width;

            #[inline(always)]
            fn blend(cond: u8, then: Self, else_: Self) -> Self {
                let mask = (0 as $U).wrapping_sub((cond != 0) as $U);
                (then & mask) | (else_ & !mask)
            }
        })*
    };
}

lane_bits!(u8: W1 u16: W2 u32: W4 u64: W8);
