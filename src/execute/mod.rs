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
pub(crate) mod prepared;
mod rows;
mod slots;
pub(crate) mod stream;
mod sync;
mod task_runner;
pub(crate) mod tensor;
mod tile_class;

use self::bindings::Bindings;
use self::engine::Engine;
use self::task_runner::TaskRunner;
use crate::error::Result;
use crate::plan::{Phase, Plan};

/// Runs some phases of a plan, each after the one before it has ended, without those at some indices.
fn run(phases: &[Phase], without: &[usize], plan: &Plan, bindings: &Bindings, engine: &Engine) -> Result<()> {
    let small = engine.begin_small(plan.threading);
    let runner = TaskRunner::new(plan, engine, small.as_ref());
    for (index, phase) in phases.iter().enumerate() {
        if !without.is_empty() && without.contains(&index) {
            continue;
        }
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
    }
    Ok(())
}

#[cfg(test)]
mod tests;
