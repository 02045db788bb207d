//! The table of fusions, by priority. To add a fusion is to add a row.

use super::fusion::{Accuracy, Fusion, FusionVerdict, GroupView, Lowering};
use super::pointwise::Pointwise;
use crate::graph::function::Function;
use crate::types::kind::OpKind;

/// The most ops of a fused group. A plan then has a few hundred steps at most, and their order is found at
/// once.
const MAX_OPS: usize = 64;

/// Whether a product takes an op into its epilogue: a pointwise op that uses its result, or what follows from
/// it.
fn behind_product(group: &GroupView<'_>, op: usize) -> FusionVerdict {
    let is_member = |other: &usize| group.members.contains(other);
    if Pointwise::of(group.graph.ops[op]).is_none() {
        return FusionVerdict::NoMatch;
    }
    match group.graph.producers[op].iter().any(is_member) {
        true if group.members.len() == MAX_OPS => {
            FusionVerdict::Rejected("the group has as many ops as a group may have")
        }
        true => FusionVerdict::Matched,
        false => FusionVerdict::Rejected("the op does not use the product"),
    }
}

/// Every fusion, the one with the highest priority first.
pub(super) const FUSIONS: &[Fusion] = &[
    Fusion {
        name: "matmul",
        seed: |op| op.kind() == OpKind::MatMul,
        grow: behind_product,
        accept: |_| FusionVerdict::Matched,
        lowering: Lowering::Matmul,
        accuracy: Accuracy::Ordered,
    },
    Fusion {
        name: "pointwise",
        seed: |op| Pointwise::of(op).is_some(),
        grow: |group, op| {
            let op = group.graph.ops[op];
            match Pointwise::of(op) {
                Some(_) if group.members.len() == MAX_OPS => {
                    FusionVerdict::Rejected("the group has as many ops as a group may have")
                }
                Some(_) => FusionVerdict::Matched,
                None if Function::of(op).is_some() => {
                    FusionVerdict::Rejected("no kernel runs the op on these types together")
                }
                None => FusionVerdict::NoMatch,
            }
        },
        accept: |_| FusionVerdict::Matched,
        lowering: Lowering::Elementwise,
        accuracy: Accuracy::Exact,
    },
];
