//! An allocator that knows how much memory an engine holds at most.
#![allow(dead_code, unreachable_pub, reason = "each user uses a part of this")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use sterna::{Allocator, SystemAllocator};

/// The system's memory, and how much of it is held at most.
#[derive(Debug, Default)]
pub struct Watched {
    held: AtomicUsize,
    most: AtomicUsize,
}

impl Watched {
    /// The most bytes that something holds beside those that are held before it.
    pub fn most_of(&self, run: impl FnOnce()) -> usize {
        let before = self.held.load(Ordering::Relaxed);
        self.most.store(before, Ordering::Relaxed);
        run();
        self.most.load(Ordering::Relaxed) - before
    }
}

// SAFETY: the blocks are those of `SystemAllocator`.
unsafe impl Allocator for Watched {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let held = self.held.fetch_add(size, Ordering::Relaxed) + size;
        self.most.fetch_max(held, Ordering::Relaxed);
        SystemAllocator.allocate(size, align)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        self.held.fetch_sub(size, Ordering::Relaxed);
        // SAFETY: as the caller promises, the block came from there with these numbers.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}
