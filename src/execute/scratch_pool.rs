//! Scratch memory that executions hand on to later ones.

use std::panic::{RefUnwindSafe, UnwindSafe};

use parking_lot::Mutex;

use super::engine::{Allocation, Engine};
use crate::error::Result;

/// Scratch memory, kept for the next execution.
#[derive(Default)]
pub(super) struct ScratchPool {
    free: Mutex<Vec<Allocation>>,
}

// Nothing that can panic runs under the lock; what an execution has taken when it panics is dropped.
impl UnwindSafe for ScratchPool {}
impl RefUnwindSafe for ScratchPool {}

impl ScratchPool {
    pub(super) fn take(&self, engine: &Engine, size: usize) -> Result<Allocation> {
        // The lock is released before the allocator runs, which is the caller's code.
        let free = self.free.lock().pop();
        free.map_or_else(|| engine.allocate(size), Ok)
    }

    pub(super) fn put(&self, scratch: Allocation) {
        self.free.lock().push(scratch);
    }
}

impl std::fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}
