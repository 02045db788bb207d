//! Scratch memory that executions hand on to later ones.

use std::panic::{RefUnwindSafe, UnwindSafe};

use parking_lot::Mutex;

use super::engine::{Allocation, Engine};
use crate::error::Result;

/// Scratch memory, kept for the next execution.
pub(super) struct ScratchPool {
    free: Mutex<Vec<Allocation>>,
    /// The most blocks that are kept.
    most: usize,
}

// Nothing that can panic runs under the lock; what an execution has taken when it panics is dropped.
impl UnwindSafe for ScratchPool {}
impl RefUnwindSafe for ScratchPool {}

impl ScratchPool {
    /// A pool that keeps so many blocks.
    pub(super) fn keeping(most: usize) -> Self {
        Self { free: Mutex::default(), most }
    }

    pub(super) fn take(&self, engine: &Engine, size: usize) -> Result<Allocation> {
        // The lock is released before the allocator runs, which is the caller's code.
        let free = self.free.lock().pop();
        free.map_or_else(|| engine.allocate(size), Ok)
    }

    pub(super) fn put(&self, scratch: Allocation) {
        // A block that is not kept is dropped behind the lock, since an allocator is the caller's code.
        let mut free = self.free.lock();
        if free.len() < self.most {
            free.push(scratch);
        }
    }
}

impl std::fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}
