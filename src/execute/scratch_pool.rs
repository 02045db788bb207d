//! Memory that executions hand on to later ones: scratch, and that of results that were dropped.

use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::engine::{Allocation, Engine};
use crate::error::Result;

/// Scratch memory, kept for the next execution.
pub(crate) struct ScratchPool {
    free: Mutex<Vec<Allocation>>,
    /// The most blocks that are kept.
    most: usize,
    results: Arc<ResultPool>,
}

/// Memory of results that their owners have dropped: a block of an allocator that gives pages back to the
/// system costs a fault for each page when it is written anew.
#[derive(Default)]
pub(super) struct ResultPool {
    free: Mutex<VecDeque<Allocation>>,
    /// The most blocks that are kept.
    most: usize,
}

/// Bytes from which on memory of a result is kept: allocators keep smaller blocks themselves.
const MIN_RESULT: usize = 64 << 10;

/// Parts of a power of two to which the size of a kept block is rounded up, so that a result that is a little
/// longer in every run finds one.
const SIZES: usize = 8;

// Nothing that can panic runs under the lock; what an execution has taken when it panics is dropped.
impl UnwindSafe for ScratchPool {}
impl RefUnwindSafe for ScratchPool {}
impl UnwindSafe for ResultPool {}
impl RefUnwindSafe for ResultPool {}

impl ScratchPool {
    /// A pool that keeps so many blocks.
    pub(crate) fn keeping(most: usize) -> Self {
        Self { free: Mutex::default(), most, results: Arc::default() }
    }

    /// A pool that also keeps so many blocks of results.
    pub(crate) fn keeping_results(self, most: usize) -> Self {
        Self { results: Arc::new(ResultPool { free: Mutex::default(), most }), ..self }
    }

    /// Memory for a result, and the pool that takes it back.
    pub(super) fn take_result(&self, engine: &Engine, size: usize) -> Result<(Allocation, Weak<ResultPool>)> {
        if size < MIN_RESULT || self.results.most == 0 {
            return Ok((engine.allocate(size)?, Weak::new()));
        }
        let unit = 1 << (size / SIZES).ilog2();
        let size = size.checked_next_multiple_of(unit).unwrap_or(size);
        let free = {
            let mut free = self.results.free.lock();
            let newest = free.iter().rposition(|block| block.size() == size);
            newest.and_then(|index| free.remove(index))
        };
        let memory = free.map_or_else(|| engine.allocate(size), Ok)?;
        Ok((memory, Arc::downgrade(&self.results)))
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

impl ResultPool {
    /// Keeps a block, in the place of the oldest one if there are enough.
    pub(super) fn put(&self, block: Allocation) {
        let mut free = self.free.lock();
        free.push_back(block);
        let oldest = if free.len() > self.most { free.pop_front() } else { None };
        // It is dropped behind the lock, since an allocator is the caller's code.
        drop(free);
        drop(oldest);
    }
}

impl std::fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}
