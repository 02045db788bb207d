//! Runs plans on the caller's thread, or on that and the engine's workers.
#![allow(unsafe_code, reason = "a plan is run on raw memory that was checked before")]

mod attention;
mod attention_backward;
mod awake;
mod bindings;
mod chunks;
pub(crate) mod compiled;
mod cursor;
mod decode;
mod dequantizer;
pub(crate) mod engine;
mod fork_join;
mod gemm;
mod interpreter;
mod interval;
mod map;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod port;
pub(crate) mod prepared;
mod profile;
pub(crate) mod profiler;
mod rows;
mod slots;
pub(crate) mod stream;
mod sync;
mod task_runner;
pub(crate) mod tensor;
mod tile_class;
pub(crate) mod view;

use std::time::Instant;

use self::bindings::Bindings;
use self::engine::Engine;
use self::profile::Profile;
use self::task_runner::TaskRunner;
use crate::error::Result;
use crate::plan::{Phase, Plan};
use crate::types::labels::PartitionLabels;

/// Runs some phases of a plan, each after the one before it has ended, without those at some indices.
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
    let small = engine.begin_small(plan.threading);
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
            Phase::Attention(phase) => attention::run(phase, plan, bindings, &runner)?,
            Phase::Decode(phase) => decode::run(phase, plan, bindings, &runner)?,
            Phase::AttentionBackward(phase) => attention_backward::run(phase, plan, bindings, &runner)?,
            Phase::Classify(phase) => tile_class::run(phase, plan, bindings, &runner)?,
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

#[cfg(test)]
mod tests;
