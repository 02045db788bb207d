//! From a partition and concrete tensors to a plan, whatever the lowering.

use super::machine::Machine;
use super::phases::PlanBuilder;
use super::shaped_partition::ShapedPartition;
use super::{attention, elementwise, empty, gemm, lookup, rows};
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::partition::fusion::Lowering;
use crate::plan::Plan;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    lowering: Lowering,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    if let Some(plan) = empty::lower(partition, inputs, outputs)? {
        return Ok(plan);
    }
    let (level, single_thread) = (machine.level, machine.single_thread());
    if lowering == Lowering::Elementwise {
        return elementwise::lower(partition, inputs, outputs, level, single_thread);
    }
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let shaped = match lowering {
        Lowering::Rows | Lowering::Matmul => shaped.with_moves_as_strides(),
        _ => shaped,
    };
    let mut plan = PlanBuilder::new(&shaped, level, single_thread);
    match lowering {
        Lowering::Attention => attention::forward::add(&shaped, &mut plan, machine)?,
        Lowering::AttentionBackward => attention::backward::add(&shaped, &mut plan, machine)?,
        Lowering::Rows => rows::add_anchors(&shaped, &mut plan)?,
        Lowering::Lookup => lookup::add(&shaped, &mut plan)?,
        _ => gemm::add_anchors(&shaped, &mut plan, 0..shaped.group.anchors.len(), machine)?,
    }
    plan.finish()
}
