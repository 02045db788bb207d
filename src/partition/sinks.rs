//! A column of scores without a key, which takes a share of the weights: a Concat before a SoftMax adds it
//! behind the scores, and a Slice behind the SoftMax takes its weights off.

use super::op_graph::OpGraph;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

/// The ops around a SoftMax that make its last column one without a key.
#[derive(Clone, Copy)]
pub(super) struct SinkOps {
    pub(super) concat: usize,
    pub(super) slice: usize,
}

impl SinkOps {
    /// Those of a SoftMax, as far as attributes tell; dims are compared when shapes are known.
    pub(super) fn of(graph: &OpGraph<'_>, softmax: usize) -> Option<Self> {
        let &concat = graph.producers(softmax).next()?;
        // Others may read the statistics.
        let weights = graph.ops[softmax].outputs().first()?.id();
        let reads_weights = |op: &&usize| graph.ops[**op].inputs().iter().any(|input| input.id() == weights);
        let mut users = graph.consumers(softmax).filter(reads_weights);
        let (&slice, None) = (users.next()?, users.next()) else { return None };
        let ops = [concat, softmax, slice].map(|op| graph.ops[op]);
        let are_linked = graph.consumer_count(concat) == 1
            && ops[1].inputs().first().map(|input| input.id()) == Some(ops[0].outputs()[0].id())
            && ops[2].inputs()[0].id() == ops[1].outputs()[0].id();
        (are_linked && adds_column(ops[0]) && drops_column(ops[2])).then_some(Self { concat, slice })
    }
}

/// True if an axis is the last one of a tensor of this rank.
fn is_last(axis: Option<i64>, rank: Option<usize>) -> bool {
    axis == Some(-1) || axis.is_some() && axis == rank.map(|rank| rank as i64 - 1)
}

/// True if an op puts one column behind a tensor.
fn adds_column(op: &Op) -> bool {
    let [scores, column] = op.inputs() else { return false };
    let is_one = column.dims().and_then(|dims| dims.last()).is_none_or(|&dim| dim == 1);
    op.kind() == OpKind::Concat && is_one && is_last(op.s64_attr(Attr::Axis), scores.rank())
}

/// True if an op may take the last column off, and nothing else.
fn drops_column(op: &Op) -> bool {
    if op.kind() != OpKind::Slice {
        return false;
    }
    let (starts, steps) = (op.s64s_attr(Attr::Starts), op.s64s_attr(Attr::Steps));
    let (axes, rank) = (op.s64s_attr(Attr::Axes), op.inputs()[0].rank());
    let is_along_last = match axes {
        [axis] => is_last(Some(*axis), rank),
        _ => rank.is_some_and(|rank| axes.is_empty() && starts.len() == rank),
    };
    is_along_last && starts.iter().all(|&start| start == 0) && steps.iter().all(|&step| step == 1)
}
