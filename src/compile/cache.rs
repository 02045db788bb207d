//! The compiled-partition cache: plans by what they compute, shared by all engines of the process but those
//! that have one of their own.

use std::sync::{Arc, LazyLock};

use super::key::Key;
pub use super::once_cache::CacheStats;
use super::once_cache::OnceCache;
use super::select_key::{ReadySelect, SelectKey};
use crate::error::{Error, Result};
use crate::execute::engine::Engine;
use crate::plan::Plan;

/// Number of plans kept, unless [`set_compiled_partition_cache_capacity`] changes it.
const DEFAULT_CAPACITY: usize = 1024;

type PlanCache = OnceCache<Key, Plan, Error>;

static PLANS: LazyLock<PlanCache> = LazyLock::new(|| OnceCache::new(DEFAULT_CAPACITY));

/// The compiled selects of the engine that the process shares.
static SELECTS: LazyLock<OnceCache<SelectKey, ReadySelect, Error>> =
    LazyLock::new(|| OnceCache::new(DEFAULT_CAPACITY));

/// Number of plans that the compiled-partition cache of the process keeps; 1024 unless set.
///
/// ```
/// assert_eq!(sterna::compiled_partition_cache_capacity(), 1024);
/// ```
#[must_use]
pub fn compiled_partition_cache_capacity() -> usize {
    PLANS.capacity()
}

/// Sets the number of plans that the compiled-partition cache of the process keeps, for engines without a
/// [cache of their own](crate::EngineBuilder::cache_capacity). It evicts the least recently used plans
/// beyond that; 0 empties the cache and turns it off. Compiled partitions keep their plans.
///
/// ```
/// sterna::set_compiled_partition_cache_capacity(0); // compile anew each time, keep nothing
/// assert_eq!(sterna::compiled_partition_cache_stats().len, 0);
/// ```
pub fn set_compiled_partition_cache_capacity(capacity: usize) {
    PLANS.set_capacity(capacity);
    SELECTS.set_capacity(capacity);
}

/// Statistics of the compiled-partition cache.
///
/// ```
/// let before = sterna::compiled_partition_cache_stats();
/// // … compile …
/// let found = sterna::compiled_partition_cache_stats().hits - before.hits;
/// println!("{found} compilations found their plan");
/// ```
#[must_use]
pub fn compiled_partition_cache_stats() -> CacheStats {
    let plans = PLANS.stats();
    CacheStats { hits: plans.hits + SELECTS.stats().hits, ..plans }
}

/// The plan of a key; `make` makes it unless the cache of the engine has it.
pub(super) fn plan_of(engine: &Engine, key: &Key, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
    engine.own_cache(PlanCache::new).unwrap_or(&PLANS).get_or_make(key, make)
}

/// The compiled select of a key; `make` makes it unless the cache has it.
pub(super) fn select_of(
    key: &SelectKey,
    make: impl FnOnce() -> Result<ReadySelect>,
) -> Result<Arc<ReadySelect>> {
    SELECTS.get_or_make(key, make)
}
