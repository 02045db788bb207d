//! The ops of a model that nothing runs.

use rustc_hash::FxHashSet;

use super::custom::{Helpers, node_of};
use crate::error::{MissingOp, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::types::kind::Policy;
use crate::types::shape;

/// An op that nothing runs.
pub(super) fn missing(model: &Model, op: &Op, partition: &Partition) -> MissingOp {
    let place = model.graph().ops().iter().position(|other| other.id() == op.id()).unwrap_or(0);
    let shown = |input: &LogicalTensor| match input.partial_dims() {
        Some(dims) => format!("{} {}", input.data_type(), shape::BracedPartial(&dims)),
        None => format!("{} of unknown rank", input.data_type()),
    };
    MissingOp {
        op: node_of(model, op).op,
        node: op.name().to_owned(),
        place,
        inputs: op.inputs().iter().map(shown).collect(),
        reason: partition.unsupported_reason().unwrap_or_default(),
    }
}

/// The ops of a model that nothing runs.
pub(super) fn missing_ops(model: &Model, ops: &[Op], helpers: &Helpers) -> Result<Vec<MissingOp>> {
    let graph = model.graph().with_ops(ops.to_vec())?;
    let partitions = graph.partitions(Policy::Debug)?;
    let mut seen = FxHashSet::default();
    let of_partition = |partition: &Partition| {
        let op = &partition.ops()[0];
        let is_run = partition.is_supported()
            || partition.outputs().is_empty()
            || helpers.of(model, op).is_some()
            || !seen.insert(op.id());
        (!is_run).then(|| missing(model, op, partition))
    };
    Ok(partitions.iter().filter_map(of_partition).collect())
}
