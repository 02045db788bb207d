//! Fork-join with late workers: the caller and whichever workers wake up in time share the work.
//!
//! A scope of rayon ends when every spawned job has run, so a caller that is done waits for workers that only
//! now wake up and find nothing left (decision: late-workers). Here the caller closes the work when it is
//! done and waits only for workers that have begun; a later worker finds it closed. So sleeping workers cost
//! a call no more than waking them. If no worker can come, because the pool is busy, is the caller's own, or
//! died in a fork, the caller does all the work.

#![allow(unsafe_code, reason = "work is lent to threads that outlive the borrow, and taken back in time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;

use rayon::ThreadPool;

/// Times that the caller checks for the end of the workers before it yields to the system.
const SPINS: usize = 10_000;

/// Set in [`ForkJoin::working`] if no worker may begin any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A thread's work panicked.
#[derive(Debug)]
pub(super) struct Panicked;

/// What the threads of a fork-join share.
struct ForkJoin {
    /// The work of each thread, given its number; valid as long as a thread works.
    work: *const (dyn Fn(usize) + Sync),
    /// Number of workers that have begun and not ended, and whether the work is closed.
    working: AtomicUsize,
    panicked: AtomicBool,
    caller: Thread,
}

// SAFETY: the work may be called from any thread at once, and is called only between `begin` and `end`, while
// the caller keeps it.
unsafe impl Send for ForkJoin {}
// SAFETY: as above.
unsafe impl Sync for ForkJoin {}

/// Does `work` on the caller's thread, which is number 0, and on up to `threads - 1` workers of a pool;
/// returns when no thread works on it any more. The caller returns from `work` only when all of it has been
/// taken, so the number of workers that came does not matter.
pub(super) fn run(pool: &ThreadPool, threads: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
    // SAFETY: only the lifetime changes; `ForkJoin::close` makes sure that no thread uses it after this call.
    let work = unsafe {
        std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(work)
    };
    let join = Arc::new(ForkJoin {
        work,
        working: AtomicUsize::new(0),
        panicked: AtomicBool::new(false),
        caller: std::thread::current(),
    });
    for number in 1..threads {
        let join = join.clone();
        pool.spawn(move || {
            if join.begin() {
                join.work(number);
                join.end();
            }
        });
    }
    join.work(0);
    join.close();
    if join.panicked.load(Ordering::Relaxed) { Err(Panicked) } else { Ok(()) }
}

impl ForkJoin {
    /// Registers a worker, if the work is not closed.
    fn begin(&self) -> bool {
        let begun = |working: usize| (working & CLOSED == 0).then_some(working + 1);
        self.working.fetch_update(Ordering::Acquire, Ordering::Relaxed, begun).is_ok()
    }

    fn work(&self, number: usize) {
        // SAFETY: the caller is in `run`, or the worker has begun, so `run` has not returned.
        let work = unsafe { &*self.work };
        if catch_unwind(AssertUnwindSafe(|| work(number))).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
    }

    fn end(&self) {
        if self.working.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            self.caller.unpark();
        }
    }

    /// Closes the work, and waits for workers that have begun.
    fn close(&self) {
        self.working.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0;
        while self.working.load(Ordering::Acquire) != CLOSED {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
        }
    }
}
