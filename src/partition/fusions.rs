//! The table of fusions, by priority. A new fusion is a new row.

use super::fusion::{Accuracy, Fusion, FusionVerdict, Lowering};
use super::pointwise::Pointwise;
use crate::graph::function::Function;

/// Most ops of a fused group. A plan then has at most a few hundred steps, whose order is computed at once.
const MAX_OPS: usize = 64;

/// Every fusion, in the order in which they are tried.
pub(super) const FUSIONS: &[Fusion] = &[Fusion {
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
}];
