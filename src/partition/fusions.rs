//! The table of fusions, by priority. To add one is to add an entry.

use super::grow::Verdict;
use crate::graph::op::Op;
use crate::types::kind::OpKind;

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
    name: "select",
    seed: |op| op.kind() == OpKind::Select,
    grow: |_, _| Verdict::Rejected("a select runs alone: no fusion takes in its neighbours yet"),
    accept: |_| Verdict::Matched,
}];
