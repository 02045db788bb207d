//! The table of fusions, by priority. To add a fusion is to add a row.

use super::attention;
use super::fusion::{Accuracy, Fusion, FusionVerdict, GroupView, Lowering};
use super::moves;
use super::pointwise::Pointwise;
use super::rows::{self, is_on_rows};
use crate::graph::function::Function;
use crate::types::kind::OpKind;

/// The most ops of a fused group. A plan then has a few hundred steps at most, and their order is found at
/// once.
const MAX_OPS: usize = 64;

/// Every fusion, the one with the highest priority first.
pub(super) const FUSIONS: &[Fusion] = &[ATTENTION, MATMUL, ROWS, POINTWISE];

/// Two products with a SoftMax between them, and the pointwise ops between and around.
const ATTENTION: Fusion = Fusion {
    name: "attention",
    seed: attention::is_seed,
    grow: |group, op| attention::grow(group, op, MAX_OPS),
    accept: attention::accept,
    lowering: Lowering::Attention,
    accuracy: Accuracy::Bounded,
};

/// A matrix product, with pointwise ops around it.
const MATMUL: Fusion = Fusion {
    name: "matmul",
    seed: |op| op.kind() == OpKind::MatMul,
    grow: around_product,
    accept: |_| FusionVerdict::Matched,
    lowering: Lowering::Matmul,
    accuracy: Accuracy::Ordered,
};

/// An op on rows, with pointwise ops around it.
const ROWS: Fusion = Fusion {
    name: "rows",
    seed: is_on_rows,
    grow: |group, op| match moves::moves(group.graph.ops[op]) {
        true => FusionVerdict::Rejected(MOVES_ALONE),
        false => rows::grow(group, op, MAX_OPS),
    },
    accept: |_| FusionVerdict::Matched,
    lowering: Lowering::Rows,
    accuracy: Accuracy::Ordered,
};

/// Ops that compute each element on its own.
const POINTWISE: Fusion = Fusion {
    name: "pointwise",
    seed: |op| Pointwise::of(op).is_some(),
    grow: |group, index| {
        let op = group.graph.ops[index];
        match Pointwise::of(op) {
            Some(_) if group.members.len() == MAX_OPS => FusionVerdict::Rejected(FULL),
            Some(_) => match moves::objection(group, index) {
                Some(why) => FusionVerdict::Rejected(why),
                None => FusionVerdict::Matched,
            },
            None if Function::of(op).is_some() => {
                FusionVerdict::Rejected("no kernel runs the op on these types together")
            }
            None => FusionVerdict::NoMatch,
        }
    },
    accept: |_| FusionVerdict::Matched,
    lowering: Lowering::Elementwise,
    accuracy: Accuracy::Exact,
};

const FULL: &str = "the group has as many ops as a group may have";
const MOVES_ALONE: &str = "tiles of a product or of rows lie where the op does not move them";

/// Whether a product takes an op in: a pointwise op that uses its result, or what follows from it; or one
/// that leads to the operands of the product alone.
fn around_product(group: &GroupView<'_>, index: usize) -> FusionVerdict {
    let graph = group.graph;
    let op = graph.ops[index];
    // The growth takes in a seed first.
    let Some(&product) = group.members.first() else { return FusionVerdict::NoMatch };
    let is_member = |other: &usize| group.members.contains(other);
    let is_behind = |other: &usize| *other >= product && is_member(other);
    match () {
        () if Pointwise::of(op).is_none() => FusionVerdict::NoMatch,
        () if group.members.len() == MAX_OPS => FusionVerdict::Rejected(FULL),
        () if graph.producers[index].iter().any(is_behind) => match moves::moves(op) {
            true => FusionVerdict::Rejected(MOVES_ALONE),
            false => FusionVerdict::Matched,
        },
        () if index > product => FusionVerdict::Rejected("the op does not use the product"),
        () if !graph.consumers[index].iter().all(|user| *user <= product && is_member(user)) => {
            FusionVerdict::Rejected("the op does not lead to the operands of the product alone")
        }
        () if follows_anchor(group, index) => {
            FusionVerdict::Rejected("the op is behind a product, or behind an op on rows")
        }
        () => moves::objection(group, index).map_or(FusionVerdict::Matched, FusionVerdict::Rejected),
    }
}

/// Whether pointwise ops lead to an op from a product or from an op on rows outside of the group, which takes
/// in what follows it; or from more ops than one group can have.
fn follows_anchor(group: &GroupView<'_>, index: usize) -> bool {
    let graph = group.graph;
    let (mut open, mut seen) = (vec![index], vec![index]);
    while let Some(op) = open.pop() {
        for &producer in &graph.producers[op] {
            let kind = graph.ops[producer];
            if kind.kind() == OpKind::MatMul || is_on_rows(kind) || seen.len() == MAX_OPS {
                return true;
            }
            if Pointwise::of(kind).is_some() && !seen.contains(&producer) {
                seen.push(producer);
                open.push(producer);
            }
        }
    }
    false
}
