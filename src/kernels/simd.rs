//! The instruction-set level that kernels are taken from.

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
