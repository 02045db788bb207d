//! Promise: an execution through the C interface allocates nothing, as one through Rust does not.
//!
//! One test alone in its binary: a second one would allocate while this one counts.

#[path = "common/select.rs"]
mod select;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use select::{CPU, SUCCESS, Select, made};
use sterna_capi::engine::sterna_engine_create;

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn executions_allocate_nothing() {
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_ne!(CALLS.get(), before, "the counter counts");

    // SAFETY: the engine is destroyed with the select.
    let engine = made(|engine| unsafe { sterna_engine_create(Some(engine), CPU, 0) });
    let select = Select::new(engine, 1);
    assert_eq!(select.execute(), SUCCESS);
    let before = CALLS.get();
    for _ in 0..10 {
        assert_eq!(select.execute(), SUCCESS);
    }
    assert_eq!(CALLS.get() - before, 0, "calls of the allocator in ten executions");
    assert_eq!(select.finish(), [1.0, 2.0, 1.0, 2.0, 1.0]);
}
