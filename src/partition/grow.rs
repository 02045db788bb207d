//! The growth behind every fusion: convex groups of ops, grown from seeds. It knows graphs, and no particular
//! op.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::convexity::Convexity;
use super::fusion::{Explanation, Fusion, FusionVerdict, GroupView};
use super::matches::Match;
use super::op_graph::{EdgeDirection, OpGraph};

/// Ops that share a partition, as positions in the run order, ascending; and their match, if a fusion took
/// them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpGroup {
    pub(super) ops: Vec<usize>,
    pub(super) fused: Option<Match>,
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
    explain: Option<&mut dyn FnMut(Explanation)>,
) -> Vec<OpGroup> {
    let mut growth = Growth::new(graph, explain);
    growth.run(fusions, grow);
    graph.in_run_order(growth.groups)
}

/// The groups that fusions have formed so far, and the one that grows.
struct Growth<'g, 'e> {
    graph: &'g OpGraph<'g>,
    explain: Option<&'e mut dyn FnMut(Explanation)>,
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

/// The most candidates that a pattern refuses before it looks at no more. A group that it then rejects has
/// cost no more than so many, whatever ops of the group have how many neighbours.
const MAX_REFUSED: usize = 256;

/// A group that grows.
struct Growing {
    members: Vec<usize>,
    /// The neighbours of members so far, in the order of their members.
    candidates: Vec<Candidate>,
    /// The member, and its neighbour by number, that becomes a candidate next.
    next: (usize, usize),
    /// Places of candidates that were refused, and whose neighbour has joined since.
    again: BinaryHeap<Reverse<usize>>,
    refused: usize,
    found: OnceCell<Vec<usize>>,
}

impl Growing {
    fn view<'a>(&'a self, graph: &'a OpGraph<'a>) -> GroupView<'a> {
        GroupView { graph, members: &self.members, found: &self.found }
    }
}

impl<'g, 'e> Growth<'g, 'e> {
    fn new(graph: &'g OpGraph<'g>, explain: Option<&'e mut dyn FnMut(Explanation)>) -> Self {
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
                let group = GroupView { graph: self.graph, members: &ops, found: &OnceCell::new() };
                let verdict = match (fusion.matches)(&group) {
                    Ok(found) => {
                        if grow {
                            self.convexity.contract(&ops);
                        }
                        let slower = found.slower();
                        self.form(ops, Some(found));
                        slower.map_or(FusionVerdict::Matched, FusionVerdict::Slower)
                    }
                    Err(verdict) => verdict,
                };
                // A fusion says nothing on ops that are something else.
                if verdict != FusionVerdict::NoMatch {
                    self.say(fusion, seed, None, verdict);
                }
            }
        }
        for op in 0..self.graph.ops.len() {
            if !self.is_taken[op] {
                self.form(vec![op], None);
            }
        }
    }

    fn form(&mut self, ops: Vec<usize>, fused: Option<Match>) {
        ops.iter().for_each(|&op| self.is_taken[op] = true);
        self.groups.push(OpGroup { ops, fused });
    }

    fn say(&mut self, fusion: &Fusion, seed: usize, neighbour: Option<usize>, verdict: FusionVerdict) {
        if let Some(explain) = &mut self.explain {
            let op_ref = |op: usize| self.graph.ops[op].op_ref();
            let (seed, neighbour) = (op_ref(seed), neighbour.map(op_ref));
            explain(Explanation { fusion: fusion.name, seed, neighbour, verdict });
        }
    }

    /// Takes in neighbours, nearest first, as long as the fusion takes one and the group stays convex.
    fn grown(&mut self, fusion: &Fusion, seed: usize) -> Vec<usize> {
        self.grown += 1;
        self.candidate[seed] = (self.grown, 0);
        self.convexity.start();
        let mut group = Growing {
            members: Vec::new(),
            candidates: vec![Candidate {
                op: seed,
                direction: EdgeDirection::Consumers,
                state: State::Joined,
            }],
            next: (0, 0),
            again: BinaryHeap::new(),
            refused: 0,
            found: OnceCell::new(),
        };
        self.join(&mut group, seed);
        // The earliest candidate comes first, so that groups are the same as if each joining started the
        // round anew.
        while let Some(place) = self.next_candidate(fusion, &mut group) {
            let Candidate { op, direction, .. } = group.candidates[place];
            self.looks += 1;
            let joins = (fusion.grow)(&group.view(self.graph), op) == FusionVerdict::Matched
                && !self.convexity.has_detour(op, direction);
            group.candidates[place].state = if joins { State::Joined } else { State::Refused };
            match joins {
                true => self.join(&mut group, op),
                false => group.refused += 1,
            }
        }
        if self.explain.is_some() {
            self.explain_refusals(fusion, seed, &group);
        }
        let mut members = group.members;
        members.sort_unstable();
        members
    }

    /// The place of the candidate that is examined next: the earliest of those whose neighbour has joined
    /// since they were refused, or else a neighbour of a member that has not been one yet.
    fn next_candidate(&mut self, fusion: &Fusion, group: &mut Growing) -> Option<usize> {
        if let Some(Reverse(place)) = group.again.pop() {
            return Some(place);
        }
        if fusion.is_pattern && group.refused > MAX_REFUSED {
            return None;
        }
        loop {
            let (member, number) = &mut group.next;
            self.looks += 1;
            let Some((op, direction)) = self.graph.neighbour(*group.members.get(*member)?, *number) else {
                (*member, *number) = (*member + 1, 0);
                continue;
            };
            *number += 1;
            if !self.is_taken[op] && self.candidate[op].0 != self.grown {
                let place = group.candidates.len();
                self.candidate[op] = (self.grown, place);
                group.candidates.push(Candidate { op, direction, state: State::Waiting });
                return Some(place);
            }
        }
    }

    /// Takes an op in. Each path back into the group passes a neighbour of a candidate. The op may be that
    /// neighbour, so its neighbours that were refused are examined again.
    fn join(&mut self, group: &mut Growing, op: usize) {
        group.members.push(op);
        self.convexity.join(op);
        let places: Vec<usize> = match self.graph.neighbour_count(op) <= group.candidates.len() {
            true => {
                let neighbours = self.graph.neighbours(op).map(|(neighbour, _)| self.candidate[neighbour]);
                neighbours.filter(|(of, _)| *of == self.grown).map(|(_, place)| place).collect()
            }
            false => {
                let is_neighbour = |candidate: &Candidate| {
                    self.graph.has_edge(op, candidate.op) || self.graph.has_edge(candidate.op, op)
                };
                let places = group.candidates.iter().enumerate();
                places.filter(|(_, candidate)| is_neighbour(candidate)).map(|(place, _)| place).collect()
            }
        };
        for place in places {
            let candidate = &mut group.candidates[place];
            if candidate.state == State::Refused {
                candidate.state = State::Waiting;
                group.again.push(Reverse(place));
            }
        }
    }

    /// Says why candidates were refused, if the group may be one of the fusion.
    fn explain_refusals(&mut self, fusion: &Fusion, seed: usize, group: &Growing) {
        if (fusion.matches)(&group.view(self.graph)) == Err(FusionVerdict::NoMatch) {
            return;
        }
        for candidate in group.candidates.iter().filter(|candidate| candidate.state == State::Refused) {
            let verdict = match (fusion.grow)(&group.view(self.graph), candidate.op) {
                FusionVerdict::Matched => {
                    FusionVerdict::Rejected("a path would leave the group and come back into it")
                }
                verdict => verdict,
            };
            self.say(fusion, seed, Some(candidate.op), verdict);
        }
    }

    /// A measure of the work so far: ops examined, edges followed, nodes moved.
    #[cfg(test)]
    fn steps(&self) -> u64 {
        self.looks + self.convexity.steps() + self.graph.steps()
    }
}

#[cfg(test)]
mod tests;
