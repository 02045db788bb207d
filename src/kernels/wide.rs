//! Plain loops that the compiler turns into instructions of the machine, without a kernel.

/// Loops that are compiled wherever they are called, which is [`in_wide_registers`]; `run` is inlined always.
pub(crate) trait PlainLoops {
    fn run(self);
}

/// Runs loops, compiled for AVX2 too if the machine has that. Nothing in them is contracted or reordered:
/// results are those of every other machine.
#[inline(always)]
pub(crate) fn in_wide_registers(loops: impl PlainLoops) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2(loops: impl PlainLoops) {
            loops.run();
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has AVX2.
            return unsafe { with_avx2(loops) };
        }
    }
    loops.run();
}
