//! Plain loops that the compiler turns into instructions of the machine, without a kernel.

/// Runs a closure, compiled for AVX2 too if the machine has that. Nothing in it is contracted or reordered:
/// its results are those of every other machine.
#[inline(always)]
pub(crate) fn in_wide_registers<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has AVX2.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}
