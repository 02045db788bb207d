//! Runs plans on the caller's thread, or on that and the engine's workers.
#![allow(unsafe_code, reason = "a plan is run on raw memory that was checked before")]

mod awake;
mod chunks;
pub(crate) mod compiled;
mod cursor;
pub(crate) mod engine;
mod fork_join;
mod interpreter;
pub(crate) mod stream;
pub(crate) mod tensor;

/// What `fork_join` shares by.
mod sync {
    pub(super) use std::hint::spin_loop as pause;
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use std::thread::{Thread, current, park};

    /// How often a caller looks whether the others are done before it lets the system run something else.
    pub(super) const SPINS: usize = 10_000;

    /// How many teams of a small pool there may be at once. A caller that finds no slot works alone, beside
    /// more callers than that, each of which has a thread.
    pub(super) const MIN_SLOTS: usize = 16;

    /// The cell of the standard library, with the methods of the one that a model checker watches.
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use smallvec::SmallVec;

use self::chunks::ChunkQueue;
use self::engine::Engine;
use self::interpreter::{Interpreter, select_dests};
use crate::error::{Error, ExecuteFault, Result};
use crate::kernels::StorePolicy;
use crate::kernels::floats::DefaultFloats;
use crate::kernels::simd::StoreFence;
use crate::plan::{Plan, Threading};

/// Addresses of a plan's ports. Every port has been checked to be memory that fits the plan, and no output
/// overlaps an input that it is not in place of.
#[derive(Default)]
struct Bindings {
    /// The address of each port, inputs first. Inputs are never written: steps write to destinations, which
    /// are outputs or scratch.
    ports: SmallVec<[*mut u8; 8]>,
    /// Pairs of ports that share one buffer: an input and the output that is in place of it.
    in_place: SmallVec<[(usize, usize); 2]>,
    /// The plan's scratch, aligned, for as many threads as may run the plan.
    scratch: Option<NonNull<u8>>,
}

// SAFETY: the addresses are those of tensors, which are `Sync`; threads write to disjoint tiles, and each to
// its own part of the scratch.
unsafe impl Sync for Bindings {}

/// Number of threads that may run a plan, workers that happen to be awake included.
fn most_threads(plan: &Plan, engine: &Engine) -> usize {
    if engine.is_small(plan.threading) { engine.threads() } else { threads(plan, engine) }
}

/// Number of threads for which a plan wakes workers.
fn threads(plan: &Plan, engine: &Engine) -> usize {
    if plan.threading == Threading::AllWorkers { engine.threads() } else { 1 }
}

/// Runs a plan.
fn run(plan: &Plan, bindings: &Bindings, engine: &Engine) -> Result<()> {
    let small = engine.begin_small(plan.threading);
    let awake = small.as_ref().and_then(|execution| engine.awake_workers(execution));
    let most = if awake.is_some() { engine.threads() } else { threads(plan, engine) };
    for nest in &plan.nests {
        let tiles = nest.tiles();
        let threads = most.min(tiles);
        let select_dests = select_dests(nest, &bindings.in_place);
        let interpreter = |thread: usize| {
            let scratch = bindings
                .scratch
                .map_or(std::ptr::null_mut(), |s| s.as_ptr().wrapping_add(plan.scratch * thread));
            Interpreter::new(plan, nest, bindings, &select_dests, scratch)
        };
        // Each thread fences its non-temporal stores and restores its floating-point environment, on
        // unwinding too.
        let guards = || {
            let fence = (plan.stores == StorePolicy::NonTemporal).then_some(StoreFence);
            (fence, plan.computes_floats.then(DefaultFloats::new))
        };
        let all_run = if threads <= 1 {
            catch_unwind(AssertUnwindSafe(|| {
                let _guards = guards();
                interpreter(0).run(0..tiles);
            }))
            .is_ok()
        } else {
            let chunks = ChunkQueue::new(tiles, threads);
            let work = |thread: usize| {
                let _guards = guards();
                let mut interpreter = interpreter(thread);
                chunks.taken_by(thread).for_each(|chunk| interpreter.run(chunk));
            };
            match &awake {
                Some(awake) => awake.run(threads, &work).is_ok(),
                None => engine.workers()?.run(threads, &work).is_ok(),
            }
        };
        if !all_run {
            return Err(Error::Execute(ExecuteFault::Panicked));
        }
    }
    Ok(())
}
