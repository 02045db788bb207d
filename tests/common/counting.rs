//! The system's allocator, which counts: what each thread asks of it, and the bytes that all of them hold.
//!
//! A test binary that names this module runs on it; no other does.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

static HELD: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    // A thread that is ending has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    HELD.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the allocator, on this thread, while something runs.
pub fn allocations(run: impl FnOnce()) -> usize {
    let before = CALLS.get();
    run();
    CALLS.get() - before
}

/// Bytes that have been allocated and not been freed, by all threads.
pub fn held() -> isize {
    HELD.load(Ordering::Relaxed)
}
