//! Scratch memory that executions hand on to later ones.

use std::panic::{RefUnwindSafe, UnwindSafe};

use parking_lot::Mutex;

use super::engine::{Allocation, Engine};
use crate::error::Result;

/// Scratch memory, kept for the next execution.
pub(crate) struct ScratchPool {
    free: Mutex<Vec<Allocation>>,
    /// The most blocks that are kept.
    most: usize,
}

// Nothing that can panic runs under the lock; what an execution has taken when it panics is dropped.
impl UnwindSafe for ScratchPool {}
impl RefUnwindSafe for ScratchPool {}

impl ScratchPool {
    /// A pool that keeps so many blocks.
    pub(crate) fn keeping(most: usize) -> Self {
        Self { free: Mutex::default(), most }
    }

    /// A block of at least a size.
    pub(super) fn take(&self, engine: &Engine, size: usize) -> Result<Allocation> {
        // The lock is released before the allocator runs, which is the caller's code.
        let free = {
            let mut free = self.free.lock();
            let newest = free.iter().rposition(|block| block.size() >= size);
            newest.map(|index| free.swap_remove(index))
        };
        free.map_or_else(|| engine.allocate(size), Ok)
    }

    /// Keeps a block, in the place of the smallest one if there are enough.
    pub(super) fn put(&self, scratch: Allocation) {
        // A block that is not kept is dropped behind the lock, since an allocator is the caller's code.
        let mut scratch = scratch;
        let mut free = self.free.lock();
        if free.len() < self.most {
            free.push(scratch);
            return;
        }
        if let Some(smallest) = free.iter_mut().min_by_key(|block| block.size())
            && smallest.size() < scratch.size()
        {
            std::mem::swap(smallest, &mut scratch);
        }
        drop(free);
        drop(scratch);
    }
}

impl std::fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}
