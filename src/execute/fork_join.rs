//! Teams: a caller and whichever workers wake up in time share the work of an execution.
//!
//! A scope of rayon ends when every spawned job has run, so a caller that is done waits for workers that only
//! now wake up and find nothing left (decision: late-workers). Here the caller closes the work when it is
//! done and waits only for workers that have begun; a later worker finds it closed. So sleeping workers cost
//! a call no more than waking them. If no worker can come, because the pool is busy, is the caller's own, or
//! died in a fork, the caller does all the work.
//!
//! A job belongs to no team: a worker that runs it looks for teams that it can join. So a busy pool holds at
//! most one waiting job for each worker, however many calls have come and gone, and jobs that were spawned
//! for one call help a later one.

#![allow(unsafe_code, reason = "work is lent to threads that outlive the borrow, and taken back in time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::sync::{AtomicUsize, MIN_SLOTS, Ordering, SPINS, Thread, UnsafeCell, current, park};

/// Parts of [`TeamSlot::state`]: the number of workers that have begun and not ended, the number that may
/// still begin, and flags. The state of a free slot is 0.
const BITS_OF_COUNT: u32 = usize::BITS / 2 - 2;
const MAX_COUNT: usize = (1 << BITS_OF_COUNT) - 1;
const WORKING: usize = MAX_COUNT;
const ONE_WORKING: usize = 1;
const OPEN: usize = MAX_COUNT << BITS_OF_COUNT;
const ONE_OPEN: usize = 1 << BITS_OF_COUNT;
/// A caller has the slot.
const TAKEN: usize = 1 << (2 * BITS_OF_COUNT);
/// The caller is done: no worker may begin any more, and the last one to end wakes the caller.
const CLOSED: usize = TAKEN << 1;
/// A thread's work panicked.
const PANICKED: usize = TAKEN << 2;

/// A thread's work panicked.
#[derive(Debug)]
pub(super) struct Panicked;

/// The teams of a pool.
pub(super) struct Teams {
    slots: Box<[TeamSlot]>,
    /// Number of workers of the pool, and so of jobs that may wait.
    workers: usize,
    /// Number of jobs that no worker has begun.
    waiting: AtomicUsize,
}

/// The place of one team at a time, in a cache line of its own.
#[repr(align(64))]
struct TeamSlot {
    state: AtomicUsize,
    /// Written by the caller that has the slot, while no worker works; read by workers that have begun.
    call: UnsafeCell<Option<Fork>>,
}

struct Fork {
    /// The work of each member, given its number; valid as long as a member works.
    work: *const (dyn Fn(usize) + Sync),
    members: usize,
    caller: Thread,
}

// SAFETY: the work may be called from any thread at once, and is called only by the caller and by workers
// between begin and end, while the caller keeps it; `state` says who may touch the call.
unsafe impl Send for TeamSlot {}
// SAFETY: as above.
unsafe impl Sync for TeamSlot {}

impl Teams {
    /// The teams of a pool with a number of workers.
    pub(super) fn new(workers: usize) -> Self {
        let slot = || TeamSlot { state: AtomicUsize::new(0), call: UnsafeCell::new(None) };
        let slots = (0..workers.max(MIN_SLOTS)).map(|_| slot()).collect();
        Self { slots, workers, waiting: AtomicUsize::new(0) }
    }

    /// Does `work` on the caller's thread, which is number 0, and on up to `members - 1` workers; returns
    /// when no member works on it any more. A member returns from `work` only when all of it has been taken,
    /// so the number of workers that came does not matter. `spawn` makes a worker call [`help`](Self::help).
    pub(super) fn run(
        self: &Arc<Self>,
        members: usize,
        work: &(dyn Fn(usize) + Sync),
        spawn: impl Fn(Arc<Self>),
    ) -> Result<(), Panicked> {
        let Some(slot) = self.slots.iter().find(|slot| slot.take()) else { return caught(|| work(0)) };
        let others = (members - 1).min(MAX_COUNT);
        slot.open(others + 1, work);
        let own = caught(|| {
            self.request_workers(others, spawn);
            work(0);
        });
        slot.close().and(own)
    }

    /// Spawns jobs, up to the number that may wait.
    fn request_workers(self: &Arc<Self>, jobs: usize, spawn: impl Fn(Arc<Self>)) {
        let most = |waiting: usize| self.workers.min(waiting + jobs);
        // Written even if it stays the same: a job that begins later reads the value from here, and so sees
        // the team.
        let write = |waiting| Some(most(waiting).max(waiting));
        let waiting =
            self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, write).unwrap_or_default();
        (waiting..most(waiting)).for_each(|_| spawn(self.clone()));
    }

    /// The body of a job: joins each open team, starting at some slot.
    pub(super) fn help(&self, first: usize) {
        // From here on, a call for help spawns another job.
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let (before, from) = self.slots.split_at(first % self.slots.len());
        from.iter().chain(before).for_each(TeamSlot::help);
    }
}

impl TeamSlot {
    /// Takes the slot if it is free; returns whether it was.
    fn take(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
            && self.state.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets workers begin: all members except the caller.
    fn open(&self, members: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes; `close` makes sure that no thread uses it after `run`.
        let work = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(
                work,
            )
        };
        let opened = Fork { work, members, caller: current() };
        // SAFETY: the caller has the slot, and no worker has begun.
        self.call.with_mut(|call| unsafe { *call = Some(opened) });
        self.state.store(TAKEN | ((members - 1) * ONE_OPEN), Ordering::Release);
    }

    /// Works, if there is a team that a worker may join.
    fn help(&self) {
        let begun =
            |state: usize| (state & OPEN != 0 && state & CLOSED == 0).then(|| state - ONE_OPEN + ONE_WORKING);
        let Ok(state) = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, begun) else { return };
        let open = (state & OPEN) / ONE_OPEN;
        // SAFETY: this worker has begun, so the caller leaves the call as it is.
        let call = self.call.with(|call| unsafe { &*call }.as_ref().map(Fork::seen));
        let Some((work, members, caller)) = call else { unreachable!("an open slot has a call") };
        // SAFETY: this worker has begun, so `run` has not returned.
        let is_done = caught(|| unsafe { &*work }(members - open)).is_ok();
        // All work has been taken, so no other worker needs to begin.
        let flag = if is_done { 0 } else { PANICKED };
        let ended = |state: usize| Some(((state & !OPEN) - ONE_WORKING) | flag);
        let state = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, ended).unwrap_or_default();
        // From here on the slot may belong to another caller.
        if state & CLOSED != 0 && state & WORKING == ONE_WORKING {
            caller.unpark();
        }
    }

    /// Closes the work, waits for workers that have begun, and frees the slot.
    fn close(&self) -> Result<(), Panicked> {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0;
        let state = loop {
            let state = self.state.load(Ordering::Acquire);
            if state & WORKING == 0 {
                break state;
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                park();
            }
        };
        // SAFETY: no worker works, and none may begin.
        self.call.with_mut(|call| unsafe { *call = None });
        self.state.store(0, Ordering::Release);
        if state & PANICKED == 0 { Ok(()) } else { Err(Panicked) }
    }
}

impl Fork {
    /// The parts that a worker keeps: after the worker has ended, the call may be gone.
    fn seen(&self) -> (*const (dyn Fn(usize) + Sync), usize, Thread) {
        (self.work, self.members, self.caller.clone())
    }
}

fn caught(work: impl FnOnce()) -> Result<(), Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}
