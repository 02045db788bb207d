//! Runs phases that give the first elements of lines in order of size.
#![allow(unsafe_code, reason = "lines are read and written in raw memory that was checked before")]

use super::bindings::Bindings;
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::top_k::SourceLine;
use crate::plan::{LineOperand, Plan, TopKPhase};
use crate::types::dtype::DataType;

/// Finds the first elements of all lines.
pub(super) fn run(
    phase: &TopKPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(phase.lines(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        ranges.flatten().for_each(|task| run_line(phase, plan, bindings, scratch, task));
    })
}

fn run_line(phase: &TopKPhase, plan: &Plan, bindings: &Bindings, scratch: *mut u8, task: usize) {
    let at = |operand: &LineOperand| bindings.address(operand.base, &plan.constants).cast_mut();
    let (mut source, mut indices) = (at(&phase.source), at(&phase.indices));
    let mut elements = phase.elements.as_ref().map(at);
    let mut rest = task;
    for dim in phase.dims.iter().rev() {
        let index = (rest % dim.extent) as isize;
        rest /= dim.extent;
        source = source.wrapping_offset(dim.source * index);
        indices = indices.wrapping_offset(dim.indices * index);
        elements = elements.map(|at| at.wrapping_offset(dim.elements * index));
    }
    let width = phase.source.data_type.size().unwrap_or(1);
    let mut taken = 0;
    let mut take = |place: usize| {
        // SAFETY: the line has so many results, whose strides stay within tensors that fit the plan; each
        // line is one task's.
        unsafe {
            let to = indices.offset(phase.indices.stride * taken);
            match phase.indices.data_type {
                DataType::S32 => to.cast::<i32>().write_unaligned(place as i32),
                _ => to.cast::<i64>().write_unaligned(place as i64),
            }
            if let (Some(elements), Some(operand)) = (elements, &phase.elements) {
                let from = source.offset(phase.source.stride * place as isize);
                std::ptr::copy_nonoverlapping(from, elements.offset(operand.stride * taken), width);
            }
        }
        taken += 1;
    };
    let line = SourceLine { at: source, stride: phase.source.stride, length: phase.length };
    // SAFETY: the line is one of a tensor that fits the plan; the scratch of the thread has room for the keys
    // of a line, and each thread has its own.
    unsafe { (phase.kernel)(line, phase.count, phase.order, scratch, &mut take) };
}
