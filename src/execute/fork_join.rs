//! Fork-join: a caller and the workers that wake up in time share the work of one call.
//!
//! A scope of rayon ends when every spawned job has run. A caller that has finished then waits for workers
//! that wake up late and find nothing left (decision: late-workers). Here the caller closes its team when the
//! work is done, and waits only for workers that have begun; a worker that comes later finds the team closed.
//! A team that no worker can join is done by the caller alone: all workers are busy, the caller is the pool's
//! only worker, or the workers did not survive a fork.
//!
//! A job belongs to no team: a worker that runs a job joins every open team. So a busy pool holds at most one
//! waiting job for each worker, whatever the number of calls, and a job that one call spawned helps a later
//! call.

#![allow(unsafe_code, reason = "work is lent to threads that outlive the borrow, and taken back in time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::sync::{AtomicUsize, MIN_SLOTS, Ordering, SPINS, Thread, UnsafeCell, current, park, pause};

/// Bits of a count in [`TeamSlot::state`]. From the lowest bit up the state holds two counts and three flags:
/// workers at work, workers that may still begin, `TAKEN`, `CLOSED`, `PANICKED`. The state of a free slot is
/// 0.
const BITS_OF_COUNT: u32 = usize::BITS / 2 - 2;
const MAX_COUNT: usize = (1 << BITS_OF_COUNT) - 1;
const WORKING: usize = MAX_COUNT;
const ONE_WORKING: usize = 1;
const OPEN: usize = MAX_COUNT << BITS_OF_COUNT;
const ONE_OPEN: usize = 1 << BITS_OF_COUNT;
/// A caller has the slot.
const TAKEN: usize = 1 << (2 * BITS_OF_COUNT);
/// The caller is done: no worker may begin any more, and the last worker to end wakes the caller.
const CLOSED: usize = TAKEN << 1;
/// The part of a worker panicked.
const PANICKED: usize = TAKEN << 2;

/// A thread's work panicked.
#[derive(Debug)]
pub(super) struct Panicked;

/// The teams of a pool.
pub(super) struct Teams {
    slots: Box<[TeamSlot]>,
    /// Workers of the pool, which is also the largest number of jobs that wait.
    workers: usize,
    /// Jobs that no worker has begun.
    waiting: AtomicUsize,
    /// Workers that look for open teams although no job calls for them.
    awake: AtomicUsize,
    /// Counts the teams that were opened, so that a worker that is awake reads one number instead of all
    /// slots.
    opened: AtomicUsize,
}

/// Room for one team at a time, alone in its cache line.
#[repr(align(64))]
struct TeamSlot {
    state: AtomicUsize,
    /// Written by the caller that has the slot, while no worker is at work; read by workers that have begun.
    call: UnsafeCell<Option<Fork>>,
}

struct Fork {
    /// The part of a thread of the team, given the thread's number; valid while a worker is at work.
    work: *const (dyn Fn(usize) + Sync),
    threads: usize,
    caller: Thread,
}

// SAFETY: the work is `Sync`, and a worker calls it only after it has begun and before it has ended; the
// caller keeps the work until then. `state` says which thread may touch the call.
unsafe impl Send for TeamSlot {}
// SAFETY: as above.
unsafe impl Sync for TeamSlot {}

impl Teams {
    /// The teams of a pool with this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        let slot = || TeamSlot { state: AtomicUsize::new(0), call: UnsafeCell::new(None) };
        let slots = (0..workers.max(MIN_SLOTS)).map(|_| slot()).collect();
        let [waiting, awake, opened] = std::array::from_fn(|_| AtomicUsize::new(0));
        Self { slots, workers, waiting, awake, opened }
    }

    /// Does `work` on the caller's thread, which is thread 0 of the team, and on up to `threads - 1` workers.
    /// Returns when no thread is at work any more. The part of a thread ends only when all work has been
    /// taken, so the number of workers that came does not matter. `spawn` starts a job that calls
    /// [`help`](Self::help) on a worker.
    pub(super) fn run(
        self: &Arc<Self>,
        threads: usize,
        work: &(dyn Fn(usize) + Sync),
        spawn: impl Fn(Arc<Self>),
    ) -> Result<(), Panicked> {
        self.run_after(threads, work, |others| self.request_workers(others, spawn))
    }

    /// As [`run`](Self::run), with workers that are awake alone: it spawns no job.
    pub(super) fn run_awake(&self, threads: usize, work: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        self.run_after(threads, work, |_| ())
    }

    /// Opens a team, calls `request` with the number of workers that may join, and works.
    fn run_after(
        &self,
        threads: usize,
        work: &(dyn Fn(usize) + Sync),
        request: impl FnOnce(usize),
    ) -> Result<(), Panicked> {
        // If the handle of the thread is gone, in a destructor of a thread, this panics before a slot is
        // taken.
        let caller = current();
        let Some(slot) = self.slots.iter().find(|slot| slot.take()) else { return caught(|| work(0)) };
        let others = (threads - 1).min(MAX_COUNT);
        slot.open(others + 1, work, caller);
        // A worker that reads the new count sees the open team.
        self.opened.fetch_add(1, Ordering::Release);
        let own = caught(|| {
            request(others);
            work(0);
        });
        slot.close().and(own)
    }

    /// Spawns jobs, if fewer than the largest number wait.
    fn request_workers(self: &Arc<Self>, jobs: usize, spawn: impl Fn(Arc<Self>)) {
        let most = |waiting: usize| self.workers.min(waiting + jobs);
        // Written even if the number stays the same: a job that begins later acquires this write and so sees
        // the open team. A job that began earlier has made room for another job.
        let write = |waiting| Some(most(waiting).max(waiting));
        let waiting =
            self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, write).unwrap_or_default();
        (waiting..most(waiting)).for_each(|_| spawn(self.clone()));
    }

    /// The body of a job: joins each open team, and says whether there was one. `first` is the slot to start
    /// from.
    pub(super) fn help(&self, first: usize) -> bool {
        // A caller that opens a team from here on spawns another job.
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.join_open(first)
    }

    /// Joins each open team, and says whether there was one.
    fn join_open(&self, first: usize) -> bool {
        let (before, from) = self.slots.split_at(first % self.slots.len());
        from.iter().chain(before).fold(false, |has_joined, slot| slot.help() | has_joined)
    }

    /// Joins teams as they open, without a job, until `is_over`, which learns whether the last look found a
    /// team.
    pub(super) fn stay_awake(&self, first: usize, mut is_over: impl FnMut(bool) -> bool) {
        self.awake.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.opened.load(Ordering::Acquire);
        // A team may have opened before the count was read.
        let mut has_joined = self.join_open(first);
        while !is_over(has_joined) {
            pause();
            let opened = self.opened.load(Ordering::Acquire);
            has_joined = opened != seen && self.join_open(first);
            seen = opened;
        }
        self.awake.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if a worker is awake. Nothing but speed depends on it.
    pub(super) fn is_awake(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > 0
    }
}

impl TeamSlot {
    /// Takes the slot if it is free, and says whether it was.
    fn take(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
            && self.state.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets workers begin: all threads of the team but the caller.
    fn open(&self, threads: usize, work: &(dyn Fn(usize) + Sync), caller: Thread) {
        // SAFETY: only the lifetime changes; after `close` no thread uses the work.
        let work = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(
                work,
            )
        };
        let opened = Fork { work, threads, caller };
        // SAFETY: the caller has the slot, and no worker has begun.
        self.call.with_mut(|call| unsafe { *call = Some(opened) });
        self.state.store(TAKEN | ((threads - 1) * ONE_OPEN), Ordering::Release);
    }

    /// Joins the team of the slot if it is open, does a thread's part, and says whether it did.
    fn help(&self) -> bool {
        let begun =
            |state: usize| (state & OPEN != 0 && state & CLOSED == 0).then(|| state - ONE_OPEN + ONE_WORKING);
        let Ok(state) = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, begun) else {
            return false;
        };
        let open = (state & OPEN) / ONE_OPEN;
        // SAFETY: this worker has begun, so the caller does not write to the call.
        let call = self.call.with(|call| unsafe { &*call }.as_ref().map(Fork::seen));
        let Some((work, threads, caller)) = call else { unreachable!("an open slot has a call") };
        // SAFETY: this worker has begun and not ended, so `run` has not returned.
        let is_done = caught(|| unsafe { &*work }(threads - open)).is_ok();
        // All work has been taken, so no other worker need begin.
        let flag = if is_done { 0 } else { PANICKED };
        let ended = |state: usize| Some(((state & !OPEN) - ONE_WORKING) | flag);
        let state = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, ended).unwrap_or_default();
        // From here on the slot may belong to another caller; the worker holds a copy of the thread handle.
        if state & CLOSED != 0 && state & WORKING == ONE_WORKING {
            caller.unpark();
        }
        true
    }

    /// Lets no worker begin any more, waits for those that have begun, and frees the slot.
    fn close(&self) -> Result<(), Panicked> {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0;
        let state = loop {
            let state = self.state.load(Ordering::Acquire);
            if state & WORKING == 0 {
                break state;
            } else if spins != SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                park();
            }
        };
        // SAFETY: no worker is at work, and none may begin.
        self.call.with_mut(|call| unsafe { *call = None });
        self.state.store(0, Ordering::Release);
        if state & PANICKED == 0 { Ok(()) } else { Err(Panicked) }
    }
}

impl Fork {
    /// A worker's copy: when the worker has ended, the call may be gone.
    fn seen(&self) -> (*const (dyn Fn(usize) + Sync), usize, Thread) {
        (self.work, self.threads, self.caller.clone())
    }
}

fn caught(work: impl FnOnce()) -> Result<(), Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}
