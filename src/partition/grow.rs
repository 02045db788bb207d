//! The engine behind every fusion: grows convex groups of ops from seeds. It knows graphs, but no particular
//! op.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::convexity::Convexity;
use super::fusions::{Accuracy, Fusion};
use super::op_graph::{EdgeSide, OpGraph};
use crate::error::OpRef;
use crate::graph::op::Op;

/// The verdict of a fusion on an op, or on a group of ops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FusionVerdict {
    /// The fusion takes it.
    Matched,
    /// It does not match the fusion.
    NoMatch,
    /// It would match, but for the reason that the text gives.
    Rejected(&'static str),
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

/// Ops that share a partition, as positions in the run order, ascending; and how exact it is, if a fusion
/// took them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpGroup {
    pub(super) ops: Vec<usize>,
    pub(super) accuracy: Option<Accuracy>,
}

impl AsRef<[usize]> for OpGroup {
    fn as_ref(&self) -> &[usize] {
        &self.ops
    }
}

/// Applies fusions in the order of the table; an op that no fusion takes is a group of its own. If `grow` is
/// false, no group has more than its seed.
pub(super) fn group(
    graph: &OpGraph<'_>,
    fusions: &[Fusion],
    grow: bool,
    explain: impl FnMut(Explanation),
) -> Vec<OpGroup> {
    let mut growth = Growth::new(graph, explain);
    growth.run(fusions, grow);
    graph.in_run_order(growth.groups)
}

/// The groups that fusions have formed so far, and the growing one.
struct Growth<'g, E> {
    graph: &'g OpGraph<'g>,
    explain: E,
    groups: Vec<OpGroup>,
    is_taken: Vec<bool>,
    convexity: Convexity<'g>,
    /// Number of groups that have been grown.
    grown: usize,
    /// For each op, the number of the group of which it was last a candidate, counted from 1, and its index
    /// among the candidates.
    candidate: Vec<(usize, usize)>,
    /// Number of times an op was looked at.
    looks: u64,
}

/// A neighbour of a group, or one of its ops.
struct Candidate {
    op: usize,
    side: EdgeSide,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Joined,
    Refused,
}

impl<'g, E: FnMut(Explanation)> Growth<'g, E> {
    fn new(graph: &'g OpGraph<'g>, explain: E) -> Self {
        let count = graph.ops.len();
        Self {
            graph,
            explain,
            groups: Vec::new(),
            is_taken: vec![false; count],
            convexity: Convexity::new(graph),
            grown: 0,
            candidate: vec![(0, 0); count],
            looks: 0,
        }
    }

    fn run(&mut self, fusions: &[Fusion], grow: bool) {
        for fusion in fusions {
            for (seed, &op) in self.graph.ops.iter().enumerate() {
                if self.is_taken[seed] || !(fusion.seed)(op) {
                    continue;
                }
                let ops = if grow { self.grown(fusion, seed) } else { vec![seed] };
                let members: Vec<&Op> = ops.iter().map(|&op| self.graph.ops[op]).collect();
                let verdict = (fusion.accept)(&members);
                if verdict == FusionVerdict::Matched {
                    if grow {
                        self.convexity.contract(&ops);
                    }
                    self.form(ops, Some(fusion.accuracy));
                }
                (self.explain)(Explanation {
                    fusion: fusion.name,
                    seed: op.op_ref(),
                    neighbour: None,
                    verdict,
                });
            }
        }
        for op in 0..self.graph.ops.len() {
            if !self.is_taken[op] {
                self.form(vec![op], None);
            }
        }
    }

    fn form(&mut self, ops: Vec<usize>, accuracy: Option<Accuracy>) {
        ops.iter().for_each(|&op| self.is_taken[op] = true);
        self.groups.push(OpGroup { ops, accuracy });
    }

    /// Absorbs neighbours, nearest first, as long as the fusion wants one and the group stays convex.
    fn grown(&mut self, fusion: &Fusion, seed: usize) -> Vec<usize> {
        let mut group = Vec::new();
        let mut members: Vec<&Op> = Vec::new();
        let mut candidates = vec![Candidate { op: seed, side: EdgeSide::Consumers, state: State::Waiting }];
        self.grown += 1;
        self.candidate[seed] = (self.grown, 0);
        self.convexity.start();
        let mut next = 0;
        // Indices of candidates that were refused before, and next to which an op has joined since.
        let mut again: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
        loop {
            // The first candidate in the order, so that groups are the same as if each joining restarted the
            // round.
            let place = again.pop().map_or(next, |Reverse(place)| place);
            let Some(&Candidate { op, side, .. }) = candidates.get(place) else { break };
            next += usize::from(place == next);
            self.looks += 1;
            let joins = op == seed
                || (fusion.grow)(&members, self.graph.ops[op]) == FusionVerdict::Matched
                    && !self.convexity.has_detour(op, side);
            candidates[place].state = if joins { State::Joined } else { State::Refused };
            if !joins {
                continue;
            }
            group.push(op);
            members.push(self.graph.ops[op]);
            self.convexity.join(op);
            for (neighbour, side) in self.graph.neighbours(op) {
                self.looks += 1;
                let (of, place) = self.candidate[neighbour];
                if self.is_taken[neighbour] {
                    continue;
                }
                if of != self.grown {
                    self.candidate[neighbour] = (self.grown, candidates.len());
                    candidates.push(Candidate { op: neighbour, side, state: State::Waiting });
                } else if candidates[place].state == State::Refused {
                    // Each path that would come back passes a neighbour of the candidate, maybe the one that
                    // has joined.
                    candidates[place].state = State::Waiting;
                    again.push(Reverse(place));
                }
            }
        }
        for candidate in candidates.iter().filter(|candidate| candidate.state == State::Refused) {
            let neighbour = self.graph.ops[candidate.op];
            let verdict = match (fusion.grow)(&members, neighbour) {
                FusionVerdict::Matched => {
                    FusionVerdict::Rejected("a path would leave the group and come back into it")
                }
                verdict => verdict,
            };
            let (seed, neighbour) = (self.graph.ops[seed].op_ref(), Some(neighbour.op_ref()));
            (self.explain)(Explanation { fusion: fusion.name, seed, neighbour, verdict });
        }
        group.sort_unstable();
        group
    }

    /// Amount of work: ops looked at, edges followed, nodes moved.
    #[cfg(test)]
    fn steps(&self) -> u64 {
        self.looks + self.convexity.steps()
    }
}

#[cfg(test)]
mod tests;
