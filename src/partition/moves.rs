//! Which ops that move elements a group cannot take: each element of a group is computed on its own, from
//! places that strides lead to.

use super::fusion::GroupView;
use super::op_graph::OpGraph;
use crate::graph::function::{Function, Movement};
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::kind::OpKind;
use crate::types::shape::{Dims, SaturatingProduct};

/// Most loop nests for one shape of results into which concatenations may cut a group.
const MAX_PIECES: usize = 16;

/// Why an op cannot join a group; `None` if it can.
pub(super) fn objection(group: &GroupView<'_>, op: usize) -> Option<&'static str> {
    let of_group = || group.members.iter().copied().chain([op]);
    if !group.members.is_empty() && of_group().any(|member| renumbers(group.graph.ops[member])) {
        return Some("no strides lead through a reshape whose dims share no factors");
    }
    let concats = || of_group().filter(|&member| movement(group.graph.ops[member]) == Some(Movement::Concat));
    let pieces = concats().map(|concat| group.graph.ops[concat].inputs().len()).saturating_product();
    // The pieces of a result take a nest each, whatever their number.
    let is_result = |concat: usize| {
        let mut others = of_group().filter(|&member| member != concat);
        others.all(|member| !group.graph.has_edge(concat, member))
    };
    let is_lone_result = concats().count() == 1 && concats().all(is_result);
    (pieces > MAX_PIECES && !is_lone_result).then_some("the group would fall into too many pieces")
}

/// True if an op moves elements.
pub(super) fn moves(op: &Op) -> bool {
    movement(op).is_some()
}

/// True if an op moves the result of a product, or of an op on rows, on its way out of the graph: the op and
/// all ops behind it only move elements, they keep every element, and no other op uses what they move.
/// Strides of the output may then lead to the places of the result.
pub(super) fn leads_out(graph: &OpGraph<'_>, op: usize) -> bool {
    let all = graph.leads_out.get_or_init(|| {
        let mut all = vec![false; graph.ops.len()];
        for op in (0..graph.ops.len()).rev() {
            let keeps_all = keeps_elements(graph.ops[op]) && movement(graph.ops[op]) != Some(Movement::Slice);
            all[op] = keeps_all
                && graph.producers(op).all(|&producer| graph.consumer_count(producer) == 1)
                && graph.consumers(op).all(|&user| all[user]);
        }
        all
    });
    all[op]
}

/// True if an op gives each element of its one operand another place, or none.
pub(super) fn keeps_elements(op: &Op) -> bool {
    let is_one = matches!(movement(op), Some(Movement::Transpose | Movement::Reshape | Movement::Slice));
    is_one || op.kind() == OpKind::Reorder
}

fn movement(op: &Op) -> Option<Movement> {
    match Function::of(op) {
        Some(Function::Move(movement)) => Some(movement),
        _ => None,
    }
}

/// True if an op is a reshape of known dims in which one dim begins and ends within dims of the other side.
fn renumbers(op: &Op) -> bool {
    let Some([from, to]) = reshaped(op) else { return false };
    let mut all = [inner_sizes(&from), inner_sizes(&to)].concat();
    all.sort_unstable();
    all.windows(2).any(|pair| pair[0] != 0 && pair[1] % pair[0] != 0)
}

/// True if an op is a reshape of known dims that divides dims and joins none: strides lead to its elements
/// whatever those of its operand are.
pub(super) fn divides(op: &Op) -> bool {
    let Some([from, to]) = reshaped(op) else { return false };
    let ends = inner_sizes(&to);
    !from.contains(&0) && inner_sizes(&from).iter().all(|size| *size == 1 || ends.contains(size))
}

/// All that a reshape's dims say of it here.
pub(super) fn division(op: &Op) -> [bool; 2] {
    [renumbers(op), divides(op)]
}

/// The dims before and behind a reshape of known dims.
fn reshaped(op: &Op) -> Option<[Dims; 2]> {
    if movement(op) != Some(Movement::Reshape) {
        return None;
    }
    let dims = op.inputs()[0].dims()?;
    let shapes = infer::output_shapes(op, &[dims]).ok()??;
    Some([dims.into(), shapes.into_iter().next()?])
}

/// The number of elements of each dim and all dims inside it, the innermost first.
fn inner_sizes(dims: &[i64]) -> Vec<usize> {
    let inner = dims.iter().rev().scan(1usize, |size, &dim| {
        *size = size.saturating_mul(dim as usize);
        Some(*size)
    });
    inner.collect()
}
