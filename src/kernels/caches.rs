//! Sizes of the machine's caches, which decide on stores and tiles.

use std::sync::OnceLock;

/// Sizes in bytes, as one core sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caches {
    /// The largest cache, or what a core counts on if a socket shares it.
    pub(crate) last_level: usize,
    /// The second-level cache of one core.
    pub(crate) second_level: usize,
    /// The first-level data cache of one core.
    pub(crate) first_level: usize,
}

/// Sizes for a machine that does not tell its own.
const DEFAULT: Caches = Caches { last_level: 32 << 20, second_level: 1 << 20, first_level: 32 << 10 };

/// The caches of this machine; read once.
pub(crate) fn caches() -> Caches {
    static CACHES: OnceLock<Caches> = OnceLock::new();
    *CACHES.get_or_init(|| of_machine().unwrap_or(DEFAULT))
}

#[cfg(target_arch = "x86_64")]
fn of_machine() -> Option<Caches> {
    use raw_cpuid::{CacheType, CpuId};

    // A last level of Intel's above this is spread over a socket, and slower to write to than memory with
    // non-temporal stores (decision: last-level-of-a-socket).
    const SOCKET: usize = 40 << 20;
    // The cache that a core of such a socket counts on instead, in second levels.
    const SECOND_LEVELS_OF_SOCKET: usize = 4;

    let cpu = CpuId::new();
    let parameters = cpu.get_cache_parameters()?;
    let data = parameters.filter(|cache| matches!(cache.cache_type(), CacheType::Data | CacheType::Unified));
    let sizes: Vec<(u8, usize)> = data
        .map(|cache| {
            let lines = cache.associativity() * cache.physical_line_partitions() * cache.sets();
            (cache.level(), lines * cache.coherency_line_size())
        })
        .collect();
    let &(_, last_level) = sizes.iter().max_by_key(|(level, _)| level)?;
    let of_level = |number: u8| sizes.iter().find(|(level, _)| *level == number).map(|&(_, size)| size);
    let second_level = of_level(2).unwrap_or(DEFAULT.second_level);
    let first_level = of_level(1).unwrap_or(DEFAULT.first_level);
    let is_intel = cpu.get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
    let last_level = match is_intel && last_level > SOCKET {
        true => SECOND_LEVELS_OF_SOCKET * second_level,
        false => last_level,
    };
    Some(Caches { last_level, second_level, first_level })
}

#[cfg(not(target_arch = "x86_64"))]
fn of_machine() -> Option<Caches> {
    None
}
