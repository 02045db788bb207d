//! The table of fusions, by priority. To add a fusion is to add a row.

use super::fusion::{Accuracy, Fusion, FusionVerdict, Lowering};
use super::moves;
use super::pointwise::Pointwise;
use super::rows::{self, is_on_rows};
use crate::graph::function::Function;

/// The most ops of a fused group. A plan then has a few hundred steps at most, and their order is found at
/// once.
const MAX_OPS: usize = 64;

/// Every fusion, the one with the highest priority first.
pub(super) const FUSIONS: &[Fusion] = &[ROWS, POINTWISE];

/// An op on rows, with pointwise ops around it.
const ROWS: Fusion = Fusion {
    name: "rows",
    seed: is_on_rows,
    grow: |group, op| rows::grow(group, op, MAX_OPS),
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
            Some(_) if group.members.len() == MAX_OPS => {
                FusionVerdict::Rejected("the group has as many ops as a group may have")
            }
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
