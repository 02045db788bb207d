//! The growth behind every fusion: convex groups of ops, grown from seeds. It knows graphs, and no particular
//! op.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::convexity::Convexity;
use super::fusion::{Accuracy, Explanation, Fusion, FusionVerdict, GroupView, Lowering};
use super::op_graph::{EdgeDirection, OpGraph};

/// Ops that share a partition, as positions in the run order, ascending; and the lowering and the accuracy of
/// the partition, if a fusion took the ops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpGroup {
    pub(super) ops: Vec<usize>,
    pub(super) fused: Option<(Lowering, Accuracy)>,
}

impl AsRef<[usize]> for OpGroup {
    fn as_ref(&self) -> &[usize] {
        &self.ops
    }
}

/// Applies fusions in the order of the table; an op that no fusion takes is a group of one op. If `grow` is
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

/// The groups that fusions have formed so far, and the one that grows.
struct Growth<'g, E> {
    graph: &'g OpGraph<'g>,
    explain: E,
    groups: Vec<OpGroup>,
    is_taken: Vec<bool>,
    convexity: Convexity<'g>,
    /// How many groups have been grown.
    grown: usize,
    /// For each op, the group whose candidate it last was, counted from 1, and its place among the
    /// candidates.
    candidate: Vec<(usize, usize)>,
    /// How often an op was examined.
    looks: u64,
}

/// A neighbour of a group, or one of its ops.
struct Candidate {
    op: usize,
    direction: EdgeDirection,
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
                let verdict = (fusion.accept)(&GroupView { graph: self.graph, members: &ops });
                if verdict == FusionVerdict::Matched {
                    if grow {
                        self.convexity.contract(&ops);
                    }
                    self.form(ops, Some((fusion.lowering, fusion.accuracy)));
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

    fn form(&mut self, ops: Vec<usize>, fused: Option<(Lowering, Accuracy)>) {
        ops.iter().for_each(|&op| self.is_taken[op] = true);
        self.groups.push(OpGroup { ops, fused });
    }

    /// Takes in neighbours, nearest first, as long as the fusion takes one and the group stays convex.
    fn grown(&mut self, fusion: &Fusion, seed: usize) -> Vec<usize> {
        let mut members = Vec::new();
        let mut candidates =
            vec![Candidate { op: seed, direction: EdgeDirection::Consumers, state: State::Waiting }];
        self.grown += 1;
        self.candidate[seed] = (self.grown, 0);
        self.convexity.start();
        // The candidates before this place have been examined.
        let mut examined = 0;
        // Places of candidates that were refused, and whose neighbour has joined since.
        let mut again: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
        loop {
            // The earliest candidate comes first, so that groups are the same as if each joining started the
            // round anew.
            let place = again.pop().map_or(examined, |Reverse(place)| place);
            let Some(&Candidate { op, direction, .. }) = candidates.get(place) else { break };
            examined += usize::from(place == examined);
            self.looks += 1;
            let joins = op == seed
                || (fusion.grow)(&GroupView { graph: self.graph, members: &members }, op)
                    == FusionVerdict::Matched
                    && !self.convexity.has_detour(op, direction);
            candidates[place].state = if joins { State::Joined } else { State::Refused };
            if !joins {
                continue;
            }
            members.push(op);
            self.convexity.join(op);
            for (neighbour, direction) in self.graph.neighbours(op) {
                self.looks += 1;
                let (of, place) = self.candidate[neighbour];
                if self.is_taken[neighbour] {
                    continue;
                }
                if of != self.grown {
                    self.candidate[neighbour] = (self.grown, candidates.len());
                    candidates.push(Candidate { op: neighbour, direction, state: State::Waiting });
                } else if candidates[place].state == State::Refused {
                    // Each path back into the group passes a neighbour of the candidate. The op that has
                    // joined may be that neighbour.
                    candidates[place].state = State::Waiting;
                    again.push(Reverse(place));
                }
            }
        }
        for candidate in candidates.iter().filter(|candidate| candidate.state == State::Refused) {
            let neighbour = self.graph.ops[candidate.op];
            let group = GroupView { graph: self.graph, members: &members };
            let verdict = match (fusion.grow)(&group, candidate.op) {
                FusionVerdict::Matched => {
                    FusionVerdict::Rejected("a path would leave the group and come back into it")
                }
                verdict => verdict,
            };
            let (seed, neighbour) = (self.graph.ops[seed].op_ref(), Some(neighbour.op_ref()));
            (self.explain)(Explanation { fusion: fusion.name, seed, neighbour, verdict });
        }
        members.sort_unstable();
        members
    }

    /// A measure of the work so far: ops examined, edges followed, nodes moved.
    #[cfg(test)]
    fn steps(&self) -> u64 {
        self.looks + self.convexity.steps()
    }
}

#[cfg(test)]
mod tests;
