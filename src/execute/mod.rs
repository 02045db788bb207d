//! Runs plans on the caller's thread, or on that and the engine's workers.
#![allow(unsafe_code, reason = "a plan is run on raw memory that was checked before")]

mod attention;
#[cfg(feature = "threads")]
mod awake;
mod bindings;
mod chunks;
pub(crate) mod compiled;
pub(crate) mod constant_budget;
mod cursor;
pub(crate) mod dyn_view;
pub(crate) mod engine;
#[cfg(feature = "threads")]
mod fork_join;
mod gemm;
mod index_check;
mod interpreter;
mod lookup;
mod map;
#[cfg(feature = "ndarray")]
mod ndarray;
mod paged;
mod pages;
mod pool;
pub(crate) mod port;
pub(crate) mod prepared;
mod profile;
pub(crate) mod profiler;
pub(crate) mod raw_view;
mod rows;
pub(crate) mod scratch_pool;
pub(crate) mod sequence;
mod slots;
pub(crate) mod state_buffer;
pub(crate) mod stream;
#[cfg(feature = "threads")]
mod sync;
mod task_runner;
pub(crate) mod tensor;
mod top_k;
pub(crate) mod view;
#[cfg(feature = "threads")]
mod workers;

use std::time::Instant;

use self::bindings::Bindings;
use self::engine::Engine;
use self::profile::Profile;
use self::task_runner::TaskRunner;
use crate::error::Result;
use crate::plan::{ClassifyPhase, Phase, Plan};
use crate::types::labels::PartitionLabels;

/// Runs the phases of a plan one after another, but skips those at some indices.
fn run(
    phases: &[Phase],
    without: &[usize],
    plan: &Plan,
    bindings: &Bindings,
    engine: &Engine,
    labels: &PartitionLabels,
) -> Result<()> {
    let profile =
        engine.profiler().map(|profiler| (Profile { profiler, ops: &labels.ops, plan }, Instant::now()));
    let small = engine.workers().begin_small(plan.threading);
    let runner = TaskRunner::new(plan, engine, small.as_ref());
    for (index, phase) in phases.iter().enumerate() {
        if !without.is_empty() && without.contains(&index) {
            continue;
        }
        let began = profile.is_some().then(Instant::now);
        match phase {
            Phase::Map(nest) => map::run(nest, plan, bindings, &runner)?,
            Phase::Rows(rows) => rows::run(rows, plan, bindings, &runner)?,
            Phase::Pack(phase) => gemm::run_pack(phase, plan, bindings, &runner)?,
            Phase::Gemm(phase) => gemm::run(phase, plan, bindings, &runner)?,
            Phase::Attention(phase) => attention::forward::run(phase, plan, bindings, &runner)?,
            Phase::Decode(phase) => attention::decode::run(phase, plan, bindings, &runner)?,
            Phase::AttentionBackward(phase) => attention::backward::run(phase, plan, bindings, &runner)?,
            Phase::Classify(phase) => attention::tile_class::run(phase, plan, bindings, &runner)?,
            Phase::Ragged(phase) => attention::ragged::run(phase, plan, bindings, &runner)?,
            Phase::Lookup(phase) => lookup::run(phase, plan, bindings, &runner)?,
            Phase::TopK(phase) => top_k::run(phase, plan, bindings, &runner)?,
            Phase::Paged(phase) => paged::run(phase, plan, bindings, &runner)?,
            Phase::Pool(phase) => pool::run(phase, plan, bindings, &runner)?,
        }
        if let (Some((profile, _)), Some(began)) = (&profile, began) {
            profile.phase(index, phase, engine, began);
        }
    }
    if let Some((profile, began)) = profile {
        profile.execution(began);
    }
    Ok(())
}

/// Finds the classes of tiles alone.
fn run_classes(classify: &ClassifyPhase, plan: &Plan, bindings: &Bindings, engine: &Engine) -> Result<()> {
    let small = engine.workers().begin_small(plan.threading);
    attention::tile_class::run(classify, plan, bindings, &TaskRunner::new(plan, engine, small.as_ref()))
}

/// The workers of an engine in a build without the feature `threads`, which has none.
#[cfg(not(feature = "threads"))]
mod workers {
    use crate::error::{Error, Result};
    use crate::plan::Threading;

    #[derive(Default)]
    pub(super) struct WorkerOptions {
        /// The caller's thread is the only one, whatever number is set.
        pub(super) threads: Option<usize>,
        pub(super) stay_awake: bool,
    }

    pub(super) struct EngineWorkers;

    /// There are none.
    pub(super) enum Workers {}

    pub(super) type AwakeWorkers<'a> = &'a Workers;
    pub(super) type SmallExecution<'a> = &'a Workers;

    impl Workers {
        pub(super) fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) -> Result<()> {
            match *self {}
        }
    }

    impl EngineWorkers {
        pub(super) fn new(options: WorkerOptions) -> Self {
            let _ = options.stay_awake;
            Self
        }

        pub(super) fn threads(&self) -> usize {
            1
        }

        pub(super) fn is_small(&self, _: Threading) -> bool {
            false
        }

        pub(super) fn begin_small(&self, _: Threading) -> Option<SmallExecution<'_>> {
            None
        }

        pub(super) fn awake(&self, _: &SmallExecution<'_>) -> Option<AwakeWorkers<'_>> {
            None
        }

        /// Never called, because the number of threads is 1.
        pub(super) fn started(&self) -> Result<&Workers> {
            Err(Error::ThreadPool { threads: 0 })
        }
    }
}

#[cfg(test)]
mod tests;
