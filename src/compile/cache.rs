//! The compiled-partition cache: plans by what they compute, shared by all engines of the process.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock, OnceLock};

use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

use super::key::Key;
use crate::error::Result;
use crate::plan::Plan;

/// How many plans are kept unless [`set_compiled_partition_cache_capacity`] says otherwise.
const DEFAULT_CAPACITY: usize = 1024;

/// A plan that is being made, or made. Whoever asks while it is being made waits for it.
type Slot = Arc<OnceLock<Result<Arc<Plan>>>>;

struct Cache {
    /// `None` where the capacity is 0.
    slots: Option<LruCache<Key, Slot, FxBuildHasher>>,
    hits: u64,
    misses: u64,
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(|| {
    let capacity = NonZeroUsize::new(DEFAULT_CAPACITY);
    Mutex::new(Cache { slots: capacity.map(new_slots), hits: 0, misses: 0 })
});

fn new_slots(capacity: NonZeroUsize) -> LruCache<Key, Slot, FxBuildHasher> {
    // Unbounded at first, so that memory is taken as it is needed and not for the whole capacity at once.
    let mut slots = LruCache::unbounded_with_hasher(FxBuildHasher);
    slots.resize(capacity);
    slots
}

/// What the compiled-partition cache has seen since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Compilations that found their plan, or waited for another thread to finish it.
    pub hits: u64,
    /// Compilations that made their plan.
    pub misses: u64,
    /// Plans kept now.
    pub len: usize,
}

/// How many plans the compiled-partition cache keeps; 1024 unless set.
pub fn compiled_partition_cache_capacity() -> usize {
    CACHE.lock().slots.as_ref().map_or(0, |slots| slots.cap().get())
}

/// Sets how many plans the compiled-partition cache keeps. The least recently used ones beyond that are dropped;
/// 0 empties the cache and turns it off. Compiled partitions keep their plans.
pub fn set_compiled_partition_cache_capacity(capacity: usize) {
    let mut cache = CACHE.lock();
    cache.slots = match (NonZeroUsize::new(capacity), cache.slots.take()) {
        (Some(capacity), Some(mut slots)) => {
            slots.resize(capacity);
            Some(slots)
        }
        (Some(capacity), None) => Some(new_slots(capacity)),
        (None, _) => None,
    };
}

/// What the compiled-partition cache has seen.
pub fn compiled_partition_cache_stats() -> CacheStats {
    let cache = CACHE.lock();
    CacheStats { hits: cache.hits, misses: cache.misses, len: cache.slots.as_ref().map_or(0, LruCache::len) }
}

/// The plan of a key, made by `make` unless the cache has it. Of several threads that miss one key at once, one makes
/// the plan and the others wait for it. A failure is not kept.
pub(super) fn plan_of(key: &Key, make: impl FnOnce() -> Result<Plan>) -> Result<Arc<Plan>> {
    let slot = {
        let mut cache = CACHE.lock();
        let Cache { slots, hits, misses } = &mut *cache;
        let Some(slots) = slots else {
            *misses += 1;
            drop(cache);
            return make().map(Arc::new);
        };
        match slots.get(key) {
            Some(slot) => {
                *hits += 1;
                slot.clone()
            }
            None => {
                *misses += 1;
                let slot = Slot::default();
                slots.put(key.clone(), slot.clone());
                slot
            }
        }
    };
    let plan = slot.get_or_init(|| make().map(Arc::new)).clone();
    if plan.is_err()
        && let Some(slots) = &mut CACHE.lock().slots
        && slots.peek(key).is_some_and(|kept| Arc::ptr_eq(kept, &slot))
    {
        slots.pop(key);
    }
    plan
}
