//! The table of fusions, by priority. A new fusion is a new entry.

use super::grow::FusionVerdict;
use super::pointwise::Pointwise;
use crate::graph::function::Function;
use crate::graph::op::Op;

/// Most ops of a fused group. A plan then has at most a few hundred steps, whose order is computed at once.
const MAX_OPS: usize = 64;

/// How the bits of a partition relate to those of its ops, each run as a partition of its own, and to the
/// exact result.
///
/// ```
/// use sterna::{Accuracy, DataType, LogicalTensor, Op, OpKind, Partition};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
/// let partition = Partition::from_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
/// assert_eq!(partition.accuracy(), Some(Accuracy::Exact));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accuracy {
    /// The bits are those of the ops run one by one, and each element is computed on its own.
    Exact,
    /// The bits are those of the ops run one by one. An op adds up many elements, in an order that depends on
    /// the op, its types, its shapes and the CPU level alone, and stays within a bound of the exact result.
    Ordered,
    /// The result stays within a bound of the exact one, but its bits may differ from those of the ops run
    /// one by one.
    Bounded,
}

/// A kind of partition that can run, as data: where it starts, what it absorbs, and when it is worth it.
pub(super) struct Fusion {
    /// Its name in explanations.
    pub(super) name: &'static str,
    /// Whether a group may start at an op.
    pub(super) seed: fn(&Op) -> bool,
    /// Whether a group absorbs one more op, a neighbour along an edge.
    pub(super) grow: fn(group: &[&Op], op: &Op) -> FusionVerdict,
    /// How exact its partitions are.
    pub(super) accuracy: Accuracy,
    /// Whether the grown group becomes a partition.
    pub(super) accept: fn(group: &[&Op]) -> FusionVerdict,
}

/// Every fusion, in the order in which they are tried.
pub(super) const FUSIONS: &[Fusion] = &[Fusion {
    name: "pointwise",
    accuracy: Accuracy::Exact,
    seed: |op| Pointwise::of(op).is_some(),
    grow: |group, op| match Pointwise::of(op) {
        Some(_) if group.len() == MAX_OPS => {
            FusionVerdict::Rejected("the group has as many ops as a group may have")
        }
        Some(_) => FusionVerdict::Matched,
        None if Function::of(op).is_some() => {
            FusionVerdict::Rejected("no kernel runs the op on these types together")
        }
        None => FusionVerdict::NoMatch,
    },
    accept: |_| FusionVerdict::Matched,
}];
