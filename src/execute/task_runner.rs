//! Shares the tasks of a phase among the threads of an execution; the part that all phases have in common.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::chunks::ChunkQueue;
use super::engine::Engine;
use super::workers::{AwakeWorkers, SmallExecution};
use crate::error::{Error, ExecuteFault, Result};
use crate::kernels::StorePolicy;
use crate::kernels::floats::DefaultFloats;
use crate::kernels::simd::StoreFence;
use crate::plan::{Plan, Threading};

/// Number of threads that may run a plan, workers that happen to be awake included.
pub(super) fn most_threads(plan: &Plan, engine: &Engine) -> usize {
    if engine.workers().is_small(plan.threading) { engine.threads() } else { threads(plan, engine) }
}

/// Number of threads for which a plan wakes workers.
pub(super) fn threads(plan: &Plan, engine: &Engine) -> usize {
    if plan.threading == Threading::AllWorkers { engine.threads() } else { 1 }
}

/// The threads of one execution of a plan, and what each of them does before and after its tasks.
pub(super) struct TaskRunner<'a> {
    engine: &'a Engine,
    /// The workers of a small execution.
    awake: Option<AwakeWorkers<'a>>,
    /// Number of threads, unless there are fewer tasks.
    most: usize,
    stores: StorePolicy,
    computes_floats: bool,
}

impl<'a> TaskRunner<'a> {
    /// The threads that an execution of a plan is worth; `small` if the execution is a small one.
    pub(super) fn new(plan: &Plan, engine: &'a Engine, small: Option<&SmallExecution<'_>>) -> Self {
        let awake = small.and_then(|execution| engine.workers().awake(execution));
        let most = if awake.is_some() { engine.threads() } else { threads(plan, engine) };
        let (stores, computes_floats) = (plan.stores, plan.computes_floats);
        Self { engine, awake, most, stores, computes_floats }
    }

    /// Runs tasks, and returns when all have ended. `work` runs once on each thread that comes, with the
    /// number of the thread and the ranges of its tasks; each task is in one range of one thread.
    ///
    /// Each thread fences its non-temporal stores and restores its floating-point environment, on unwinding
    /// too.
    #[inline(always)]
    pub(super) fn run(&self, tasks: usize, work: impl Fn(usize, TaskRanges<'_>) + Sync) -> Result<()> {
        let guards = || {
            let fence = (self.stores == StorePolicy::NonTemporal).then_some(StoreFence);
            (fence, self.computes_floats.then(DefaultFloats::new))
        };
        let threads = self.most.min(tasks);
        let all_run = if threads <= 1 {
            catch_unwind(AssertUnwindSafe(|| {
                let _guards = guards();
                work(0, TaskRanges::Whole(Some(0..tasks)));
            }))
            .is_ok()
        } else {
            let chunks = ChunkQueue::new(tasks, threads);
            let work = |thread: usize| {
                let _guards = guards();
                work(thread, TaskRanges::Chunks(&chunks, thread, 0));
            };
            match &self.awake {
                Some(awake) => awake.run(threads, &work).is_ok(),
                None => self.engine.workers().started()?.run(threads, &work).is_ok(),
            }
        };
        if all_run { Ok(()) } else { Err(Error::Execute(ExecuteFault::Panicked)) }
    }
}

/// The tasks of one thread, as ranges that are taken when the iterator reaches them.
pub(super) enum TaskRanges<'a> {
    /// All tasks, for the only thread.
    Whole(Option<Range<usize>>),
    /// The chunks that a thread takes, and how many spans it has found empty.
    Chunks(&'a ChunkQueue, usize, usize),
}

impl Iterator for TaskRanges<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        match self {
            Self::Whole(range) => range.take(),
            Self::Chunks(queue, thread, emptied) => queue.take(*thread, emptied),
        }
    }
}
