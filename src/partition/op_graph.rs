//! A finalized graph by position: ops in run order, and the edges between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::Result;
use crate::graph::Graph;
use crate::graph::op::Op;

/// A direction along the edges of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EdgeDirection {
    /// From an op to the ops that use its results.
    Consumers,
    /// From an op to the ops whose results it uses.
    Producers,
}

impl EdgeDirection {
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Consumers => Self::Producers,
            Self::Producers => Self::Consumers,
        }
    }
}

/// A finalized graph as fusions see it: ops by their position in the run order, and the edges between them.
///
/// A shape-only input is an edge like any other: within a group, the shape is known when the group is
/// compiled; if the edge crosses the border of the group, the tensor is a port of the group.
pub(super) struct OpGraph<'g> {
    pub(super) ops: Vec<&'g Op>,
    pub(super) producers: Vec<Vec<usize>>,
    pub(super) consumers: Vec<Vec<usize>>,
}

impl<'g> OpGraph<'g> {
    pub(super) fn new(graph: &'g Graph) -> Result<Self> {
        let links = graph.links()?;
        let ops: Vec<&Op> = links.order.iter().map(|&index| &graph.ops()[index]).collect();
        let mut position = vec![0; ops.len()];
        for (at, &index) in links.order.iter().enumerate() {
            position[index] = at;
        }
        let none = || vec![Vec::new(); ops.len()];
        let (mut producers, mut consumers) = (none(), none());
        // The last consumer that was linked to each op.
        let mut linked = vec![usize::MAX; ops.len()];
        for (at, op) in ops.iter().enumerate() {
            for input in op.inputs() {
                let Some(&producer) = links.producer.get(&input.id()) else { continue };
                let producer = position[producer];
                if linked[producer] != at {
                    linked[producer] = at;
                    producers[at].push(producer);
                    consumers[producer].push(at);
                }
            }
        }
        Ok(Self { ops, producers, consumers })
    }

    /// The neighbours of an op along edges, producers first, and the direction of each.
    pub(super) fn neighbours(&self, op: usize) -> impl Iterator<Item = (usize, EdgeDirection)> {
        let producers = self.producers[op].iter().map(|&other| (other, EdgeDirection::Producers));
        producers.chain(self.consumers[op].iter().map(|&other| (other, EdgeDirection::Consumers)))
    }

    /// Puts groups of ops, each ascending, in an order in which they can run. Of the groups that can run, the
    /// one whose first op is earliest comes first.
    pub(super) fn in_run_order<G: AsRef<[usize]>>(&self, mut groups: Vec<G>) -> Vec<G> {
        groups.sort_unstable_by_key(|group| group.as_ref()[0]);
        let mut group_of = vec![0; self.ops.len()];
        for (index, group) in groups.iter().enumerate() {
            group.as_ref().iter().for_each(|&op| group_of[op] = index);
        }
        let mut waiting_for = vec![0usize; groups.len()];
        let mut next = vec![Vec::new(); groups.len()];
        for (op, producers) in self.producers.iter().enumerate() {
            for &producer in producers.iter().filter(|&&producer| group_of[producer] != group_of[op]) {
                waiting_for[group_of[op]] += 1;
                next[group_of[producer]].push(group_of[op]);
            }
        }
        let ready = (0..groups.len()).filter(|&group| waiting_for[group] == 0).map(Reverse);
        let mut ready: BinaryHeap<_> = ready.collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(Reverse(group)) = ready.pop() {
            order.push(group);
            for &follower in &next[group] {
                waiting_for[follower] -= 1;
                if waiting_for[follower] == 0 {
                    ready.push(Reverse(follower));
                }
            }
        }
        let mut groups: Vec<Option<G>> = groups.into_iter().map(Some).collect();
        order.into_iter().filter_map(|group| groups[group].take()).collect()
    }
}
