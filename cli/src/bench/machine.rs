//! The measured machine.

use std::env::consts::{ARCH, OS};
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

/// Facts that tell machines apart, as far as times go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name; empty if unknown.
    pub(crate) cpu: String,
    /// Threads that it runs at once.
    pub(crate) threads: usize,
    pub(crate) arch: String,
    pub(crate) os: String,
    /// Bytes of the data caches that one core sees, from the first level on; empty if unknown.
    pub(crate) caches: Vec<usize>,
}

impl Machine {
    pub(crate) fn here() -> Self {
        Self {
            cpu: cpu(),
            threads: available_parallelism().map_or(1, NonZeroUsize::get),
            arch: ARCH.into(),
            os: OS.into(),
            caches: caches(),
        }
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cpu = if self.cpu.is_empty() { "unknown processor" } else { &self.cpu };
        write!(f, "{cpu}, {} threads, {} {}", self.threads, self.os, self.arch)
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    let brand = raw_cpuid::CpuId::new().get_processor_brand_string();
    brand.map_or_else(String::new, |brand| brand.as_str().trim().into())
}

#[cfg(target_arch = "x86_64")]
fn caches() -> Vec<usize> {
    use raw_cpuid::{CacheType, CpuId};

    let Some(parameters) = CpuId::new().get_cache_parameters() else { return Vec::new() };
    let data = parameters.filter(|cache| matches!(cache.cache_type(), CacheType::Data | CacheType::Unified));
    let mut sizes: Vec<(u8, usize)> = data
        .map(|cache| {
            let lines = cache.associativity() * cache.physical_line_partitions() * cache.sets();
            (cache.level(), lines * cache.coherency_line_size())
        })
        .collect();
    sizes.sort_unstable();
    sizes.into_iter().map(|(_, size)| size).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    String::new()
}

#[cfg(not(target_arch = "x86_64"))]
fn caches() -> Vec<usize> {
    Vec::new()
}
