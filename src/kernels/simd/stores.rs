//! Non-temporal stores, and the fence that orders them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// When dropped, orders the non-temporal stores of a thread before all that follows, so that other threads
/// see them.
///
/// Nothing else orders non-temporal stores, not even the join of a thread pool.
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

/// A cache line of results on its way to memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct CacheLine(pub(crate) [u8; 64]);

impl Default for CacheLine {
    #[inline(always)]
    fn default() -> Self {
        Self([0; 64])
    }
}

impl CacheLine {
    /// Stores the line non-temporally; machines other than x86-64 store it temporally.
    ///
    /// # Safety
    ///
    /// The line can be written, its address is a multiple of 64, and a [`StoreFence`] follows on the same
    /// thread.
    #[inline(always)]
    pub(crate) unsafe fn store_non_temporal(&self, to: *mut u8) {
        // SAFETY: as the caller promises; every x86-64 machine has the instructions.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            for at in (0..self.0.len()).step_by(size_of::<__m128i>()) {
                let part = _mm_load_si128(self.0.as_ptr().add(at).cast());
                _mm_stream_si128(to.add(at).cast(), part);
            }
        }
        // SAFETY: as the caller promises.
        #[cfg(not(target_arch = "x86_64"))]
        unsafe {
            to.cast::<[u8; 64]>().write(self.0);
        }
    }
}
