//! The instruction-set level that kernels are taken from, and what the widest one gives to kernel bodies.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::sync::OnceLock;

use crate::types::kind::Level;

/// The variable that caps the level: `portable`, `avx2` or `avx512`.
const CAP: &str = "STERNA_MAX_CPU_ISA";

impl Level {
    /// The widest level that this machine runs, or the one that the environment variable `STERNA_MAX_CPU_ISA`
    /// (`portable`, `avx2`, `avx512`) names, if that is lower. Read once; any other value is ignored.
    pub fn available() -> Level {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let cap = std::env::var(CAP).ok().and_then(|name| name.parse().ok()).unwrap_or(Level::Avx512);
            of_machine().min(cap)
        })
    }

    /// Every level up to [`available`](Self::available).
    pub fn all_available() -> impl Iterator<Item = Level> {
        Self::ALL.iter().copied().filter(|&level| level <= Self::available())
    }
}

#[cfg(target_arch = "x86_64")]
fn of_machine() -> Level {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx512, avx2) {
        (true, _) => Level::Avx512,
        (false, true) => Level::Avx2,
        (false, false) => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn of_machine() -> Level {
    Level::Portable
}

/// Ends, when dropped, what a thread has stored past the caches: other threads then see it in order.
///
/// Streaming stores are not ordered by anything else, not even by the join of a thread pool.
pub(crate) struct StoreFence;

impl Drop for StoreFence {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 machine has the instruction.
        unsafe {
            _mm_sfence();
        }
    }
}

/// What a lane's integer type can do in vectors of 512 bits. Masks have a bit a lane, from the lowest on.
///
/// # Safety of the methods
///
/// The machine runs level Avx512; lanes whose mask bit is set can be read or written at the address.
#[cfg(target_arch = "x86_64")]
pub(crate) trait Wide: Sized {
    /// Lanes of a vector.
    const LANES: usize = 64 / size_of::<Self>();

    /// A vector of one value.
    unsafe fn splat(self) -> __m512i;

    /// The lanes of a mask; the others are 0.
    unsafe fn load(at: *const Self, mask: u64) -> __m512i;

    /// Writes the lanes of a mask.
    unsafe fn store(at: *mut Self, mask: u64, value: __m512i);

    /// `then` in the lanes of a mask, `else_` in the others.
    unsafe fn choose(mask: u64, then: __m512i, else_: __m512i) -> __m512i;
}

#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($($U:ident, $Signed:ident, $Mask:ident: $splat:ident $load:ident $store:ident $choose:ident;)*) => {
        $(impl Wide for $U {
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
            unsafe fn choose(mask: u64, then: __m512i, else_: __m512i) -> __m512i {
                // SAFETY: as the caller promises.
                unsafe { $choose(mask as $Mask, else_, then) }
            }
        })*
    };
}

#[cfg(target_arch = "x86_64")]
wide! {
    u8, i8, u64: _mm512_set1_epi8 _mm512_maskz_loadu_epi8 _mm512_mask_storeu_epi8 _mm512_mask_blend_epi8;
    u16, i16, u32: _mm512_set1_epi16 _mm512_maskz_loadu_epi16 _mm512_mask_storeu_epi16 _mm512_mask_blend_epi16;
    u32, i32, u16: _mm512_set1_epi32 _mm512_maskz_loadu_epi32 _mm512_mask_storeu_epi32 _mm512_mask_blend_epi32;
    u64, i64, u8: _mm512_set1_epi64 _mm512_maskz_loadu_epi64 _mm512_mask_storeu_epi64 _mm512_mask_blend_epi64;
}

/// Other machines have no vectors of 512 bits.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) trait Wide {}

#[cfg(not(target_arch = "x86_64"))]
impl<U> Wide for U {}
