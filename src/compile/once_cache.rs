//! Values by key. Each is made once, however many threads look it up at the same time; the least recently
//! used is evicted first.
//!
//! The locks come from the parent module, so that `tests/interleavings` can replace them by those of a model
//! checker.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use rustc_hash::FxBuildHasher;

use super::sync::{Mutex, OnceLock};

/// A value that is made or being made. A look-up waits for a value that is being made.
type Cached<V, E> = Arc<OnceLock<Result<Arc<V>, E>>>;
type CachedValues<K, V, E> = LruCache<K, Cached<V, E>, FxBuildHasher>;

pub(super) struct OnceCache<K, V, E>(Mutex<CacheState<K, V, E>>);

struct CacheState<K, V, E> {
    /// `None` if the capacity is 0.
    entries: Option<CachedValues<K, V, E>>,
    hits: u64,
    misses: u64,
}

/// Statistics of the compiled-partition cache since the process started.
///
/// ```
/// let stats = sterna::compiled_partition_cache_stats();
/// assert_eq!((stats.hits, stats.misses, stats.len), (0, 0, 0)); // nothing was compiled yet
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Compilations that found their plan, or waited for another thread to make it, and calls of
    /// [`select`](fn@crate::select) that found their compiled partition.
    pub hits: u64,
    /// Compilations that made their plan.
    pub misses: u64,
    /// Plans in the cache.
    pub len: usize,
}

impl<K: Clone + Eq + Hash, V, E: Clone> OnceCache<K, V, E> {
    pub(super) fn new(capacity: usize) -> Self {
        Self(Mutex::new(CacheState {
            entries: NonZeroUsize::new(capacity).map(new_entries),
            hits: 0,
            misses: 0,
        }))
    }

    pub(super) fn capacity(&self) -> usize {
        self.0.lock().entries.as_ref().map_or(0, |entries| entries.cap().get())
    }

    /// Evicts the least recently used values beyond the capacity; 0 turns the cache off.
    pub(super) fn set_capacity(&self, capacity: usize) {
        let mut state = self.0.lock();
        state.entries = match (NonZeroUsize::new(capacity), state.entries.take()) {
            (Some(capacity), Some(mut entries)) => {
                entries.resize(capacity);
                Some(entries)
            }
            (Some(capacity), None) => Some(new_entries(capacity)),
            (None, _) => None,
        };
    }

    pub(super) fn stats(&self) -> CacheStats {
        let state = self.0.lock();
        CacheStats {
            hits: state.hits,
            misses: state.misses,
            len: state.entries.as_ref().map_or(0, LruCache::len),
        }
    }

    /// The value of a key; `make` makes it unless it is here. If several threads miss one key at once, one
    /// makes the value and the others wait. A failure is not kept.
    pub(super) fn get_or_make(&self, key: &K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let cached = {
            let mut state = self.0.lock();
            let CacheState { entries, hits, misses } = &mut *state;
            let Some(entries) = entries else {
                *misses += 1;
                drop(state);
                return make().map(Arc::new);
            };
            match entries.get(key) {
                Some(cached) => {
                    *hits += 1;
                    cached.clone()
                }
                None => {
                    *misses += 1;
                    let cached = Cached::default();
                    entries.put(key.clone(), cached.clone());
                    cached
                }
            }
        };
        let value = cached.get_or_init(|| make().map(Arc::new)).clone();
        if value.is_err()
            && let Some(entries) = &mut self.0.lock().entries
            // Meanwhile another thread may have failed with this slot, and a third may have replaced it by
            // its own.
            && entries.peek(key).is_some_and(|kept| Arc::ptr_eq(kept, &cached))
        {
            entries.pop(key);
        }
        value
    }
}

fn new_entries<K: Eq + Hash, V, E>(capacity: NonZeroUsize) -> CachedValues<K, V, E> {
    // Unbounded at first, so that memory grows with use instead of being allocated for the whole capacity.
    let mut entries = LruCache::unbounded_with_hasher(FxBuildHasher);
    entries.resize(capacity);
    entries
}
