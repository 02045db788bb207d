//! The table of fusions, by priority. To add one is to add an entry.

use super::grow::Verdict;
use super::pointwise::Pointwise;
use crate::graph::function::Function;
use crate::graph::op::Op;

/// The most ops of a fused group: a plan then has a few hundred steps at most, whose order is worked out at
/// once.
const MAX_OPS: usize = 64;

/// A kind of partition that can be run, as data: where it starts, what it takes in, and when it is worth it.
pub(super) struct Fusion {
    /// What it is called in explanations.
    pub(super) name: &'static str,
    /// Whether a group may start at an op.
    pub(super) seed: fn(&Op) -> bool,
    /// Whether a group takes in one more op, a neighbour along an edge of data.
    pub(super) grow: fn(group: &[&Op], op: &Op) -> Verdict,
    /// Whether the grown group is to be a partition.
    pub(super) accept: fn(group: &[&Op]) -> Verdict,
}

/// Every fusion, the one that is tried first first.
pub(super) const FUSIONS: &[Fusion] = &[Fusion {
    name: "pointwise",
    seed: |op| Pointwise::of(op).is_some(),
    grow: |group, op| match Pointwise::of(op) {
        Some(_) if group.len() == MAX_OPS => {
            Verdict::Rejected("the group has as many ops as a group may have")
        }
        Some(_) => Verdict::Matched,
        None if Function::of(op).is_some() => {
            Verdict::Rejected("no kernel runs the op on these types together")
        }
        None => Verdict::NoMatch,
    },
    accept: |_| Verdict::Matched,
}];
