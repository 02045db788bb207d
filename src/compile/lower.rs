//! From a partition and concrete tensors to a plan, whatever its match.

use super::machine::Machine;
use super::phases::PlanBuilder;
use super::shaped_partition::ShapedPartition;
use super::{attention, elementwise, empty, gemm, lookup, paged, pool};
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::partition::matches::Match;
use crate::plan::Plan;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    if let Some(plan) = empty::lower(partition, inputs, outputs)? {
        return Ok(plan);
    }
    let (level, single_thread) = (machine.level, machine.single_thread());
    let found = partition.matched().unwrap_or(&Match::Elementwise);
    if *found == Match::Elementwise {
        return elementwise::lower(partition, inputs, outputs, level, single_thread);
    }
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let shaped = match found {
        Match::Rows | Match::Products { .. } => shaped.with_moves_as_strides(),
        _ => shaped,
    };
    let mut plan = PlanBuilder::new(&shaped, level, single_thread);
    match *found {
        Match::Attention { softmax, roles } => {
            attention::forward::add(&shaped, &mut plan, (softmax, roles), machine)?
        }
        Match::AttentionBackward { weights, roles } => {
            attention::backward::add(&shaped, &mut plan, (weights, roles), machine)?
        }
        Match::Lookup if paged::is_of_pages(&shaped) => paged::add(&shaped, &mut plan)?,
        Match::Lookup => lookup::add(&shaped, &mut plan)?,
        Match::Pool => pool::add(&shaped, &mut plan)?,
        _ => gemm::add_anchors(&shaped, &mut plan, 0..shaped.group.anchors.len(), machine)?,
    }
    plan.finish()
}
