//! Plain loops that the compiler turns into instructions of the machine, without a kernel.

#[cfg(target_arch = "x86_64")]
use crate::types::kind::Level;

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
        if Level::available() >= Level::Avx2 {
            // SAFETY: the machine runs every level up to that one, and Avx2 has AVX2.
            return unsafe { with_avx2(loops) };
        }
    }
    loops.run();
}
