//! A fusion: a row of the table in `fusions.rs`, the verdicts that it gives, and what they tell
//! users.

use std::cell::OnceCell;
use std::fmt;

use super::matches::Match;
use super::op_graph::OpGraph;
use crate::error::OpRef;
use crate::graph::op::Op;
use crate::types::codes::coded_enum;
use crate::types::fallback::FallbackReason;
use crate::types::kind::OpKind;

/// A kind of partition that can be run, as data: the ops at which it starts, the ops that it absorbs,
/// whether the grown group is worth a partition, and what becomes of the partition.
pub(super) struct Fusion {
    /// Its name in explanations.
    pub(super) name: &'static str,
    /// True if a group may start at an op.
    pub(super) seed: fn(&Op) -> bool,
    /// The verdict on one more op, a neighbour along an edge, by the op's position in the graph.
    pub(super) grow: fn(&GroupView<'_>, usize) -> FusionVerdict,
    /// The match of the grown group, if it is to be a partition, or the verdict on it.
    pub(super) matches: fn(&GroupView<'_>) -> Result<Match, FusionVerdict>,
    /// True for a fusion that takes a group of certain ops alone, and rejects others that have grown. The
    /// group then has only the neighbours that were looked at before too many had been refused.
    pub(super) is_pattern: bool,
}

/// A group that grows, as a fusion sees it: with the graph around the group, so that a fusion can follow
/// edges from members to ops outside.
pub(super) struct GroupView<'a> {
    /// The whole graph.
    pub(super) graph: &'a OpGraph<'a>,
    /// The members of the group, in the order in which they joined.
    pub(super) members: &'a [usize],
    /// The ops that a fusion has found from the seed, if it finds them as a whole.
    pub(super) found: &'a OnceCell<Vec<usize>>,
}

impl GroupView<'_> {
    /// True if an op is a member.
    pub(super) fn has(&self, op: usize) -> bool {
        self.members.contains(&op)
    }

    /// True if the group has as many ops as a group may have, numbers that the graph fixes apart: these are
    /// no steps of a plan.
    pub(super) fn is_full(&self, most: usize) -> bool {
        let is_step = |op: &&usize| self.graph.ops[**op].kind() != OpKind::Fill;
        self.members.len() >= most && self.members.iter().filter(is_step).count() >= most
    }

    /// The index of a member in the partition of the group.
    pub(super) fn place(&self, op: usize) -> usize {
        self.members.iter().filter(|&&member| member < op).count()
    }
}

coded_enum! {
    /// How the bits of a partition relate to those of its ops, each run as a separate partition, and to the
    /// exact result.
    ///
    /// ```
    /// use sterna::{Accuracy, DataType, LogicalTensor, Op, OpKind, Partition};
    /// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
    /// let partition = Partition::from_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
    /// assert_eq!(partition.accuracy(), Some(Accuracy::Exact));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub enum Accuracy: "accuracy" {
        /// The bits are those of the ops run one by one, and each element is computed on its own.
        Exact = 0 => "exact",
        /// The bits are those of the ops run one by one. An op adds up many elements, in an order that
        /// depends on the op, its types, its shapes and strides, and the CPU alone, and stays within a bound
        /// of the exact result.
        ///
        /// With layout `any`, an op alone may settle another layout, and with it another order of additions.
        /// The bits are those of the ops with the layouts that the partition settled: those of its compiled
        /// inputs and outputs, and row-major ones for the tensors inside.
        Ordered = 1 => "ordered",
        /// The result stays within a bound of the exact one, but its bits may differ from those of the ops
        /// run one by one.
        Bounded = 2 => "bounded",
    }
}

impl Match {
    /// Why plans of the match take a slower form whatever the shapes; `None` if the ops do not tell.
    pub(super) fn slower(&self) -> Option<FallbackReason> {
        match self {
            Self::Attention { roles: Ok(roles), .. } => roles.rounded?.quantize.err(),
            Self::Attention { roles: Err(reason), .. }
            | Self::AttentionBackward { roles: Err(reason), .. } => Some(*reason),
            _ => None,
        }
    }

    /// How exact a partition is that runs the ops of the match themselves.
    pub(super) fn accuracy(&self) -> Accuracy {
        match self {
            Self::Elementwise | Self::Lookup => Accuracy::Exact,
            Self::Rows | Self::Pool | Self::Products { of_integers: false } => Accuracy::Ordered,
            Self::Products { of_integers: true }
            | Self::Attention { .. }
            | Self::AttentionBackward { .. } => Accuracy::Bounded,
        }
    }
}

/// The verdict of a fusion on an op, or on a group of ops.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FusionVerdict {
    /// The fusion takes it.
    Matched,
    /// It does not match the fusion.
    NoMatch,
    /// It would match, but for the reason that the text gives.
    Rejected(&'static str),
    /// The fusion takes the group, but its ops are none that the fast form of the fusion runs, whatever
    /// their shapes: plans take a slower form for this reason.
    Slower(FallbackReason),
}

impl fmt::Display for FusionVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Matched => f.write_str("taken"),
            Self::NoMatch => f.write_str("not of this fusion"),
            Self::Rejected(why) => write!(f, "rejected: {why}"),
            Self::Slower(reason) => write!(f, "taken in a slower form: {reason}, {}", reason.text()),
        }
    }
}

/// One verdict of a fusion: the answer to "why was this not fused?".
///
/// `Graph::explain` lists them.
///
/// ```
/// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind, FusionVerdict};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
/// let mut graph = Graph::new();
/// graph.add_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
/// graph.add_op(Op::new(1, OpKind::SoftMax).input(tensor(1)?).output(tensor(2)?))?;
/// graph.finalize()?;
/// for line in graph.explain()? {
///     if let FusionVerdict::Rejected(why) = line.verdict {
///         println!("{} at {}: {why}", line.fusion, line.seed);
///     }
/// }
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The fusion.
    pub fusion: &'static str,
    /// The op from which the group started.
    pub seed: OpRef,
    /// The neighbour that was checked against the group; `None` if the verdict is on the seed or the whole
    /// group.
    pub neighbour: Option<OpRef>,
    /// The verdict.
    pub verdict: FusionVerdict,
}
