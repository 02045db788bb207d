//! Reports executions to the profiler of an engine.

use std::time::Instant;

use super::engine::Engine;
use super::profiler::{ExecutionProfile, PhaseProfile, Profiler};
use super::task_runner::threads;
use crate::plan::{Base, Phase, Plan};
use crate::types::id::OpId;
use crate::types::kind::OpKind;

/// The profiler of an execution, and the facts of its reports.
pub(super) struct Profile<'a> {
    pub(super) profiler: &'a dyn Profiler,
    pub(super) ops: &'a [(OpKind, OpId)],
    pub(super) plan: &'a Plan,
}

impl Profile<'_> {
    #[cold]
    pub(super) fn phase(&self, index: usize, phase: &Phase, engine: &Engine, began: Instant) {
        let duration = began.elapsed();
        let plan = self.plan;
        let mut bases: Vec<Base> = Vec::new();
        for base in phase.bases() {
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        let bytes = |base: &Base| match *base {
            Base::Port(port) => plan.sizes[port],
            Base::Buffer(buffer) => plan.buffers[buffer].bytes,
            _ => 0,
        };
        self.profiler.phase(&PhaseProfile {
            ops: self.ops,
            index,
            count: plan.phases.len(),
            kind: phase.kind(),
            tasks: phase.tasks(),
            threads: threads(plan, engine).min(phase.tasks()),
            bytes: bases.iter().map(bytes).fold(0, usize::saturating_add),
            flops: plan.phase_flops.get(index).copied().unwrap_or(0),
            began,
            duration,
        });
    }

    #[cold]
    pub(super) fn execution(&self, began: Instant) {
        let duration = began.elapsed();
        let (ops, cost) = (self.ops, self.plan.cost);
        let profile = ExecutionProfile { ops, bytes: cost.bytes, flops: cost.flops, began, duration };
        self.profiler.execution(&profile);
    }
}
