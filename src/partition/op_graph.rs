//! A finalized graph by position: ops in run order, and the edges between them.

#[cfg(test)]
use std::cell::Cell;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::Result;
use crate::graph::op::Op;
use crate::graph::{Graph, OpIndices};
use crate::types::id::TensorId;

/// The most ops on a chain that is followed.
const MAX_STEPS: usize = 64;

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
///
/// An op may have as many neighbours as the graph has ops. What is asked for each op that may join a group
/// takes time by the size of the group, not by the number of neighbours: [`uses_any`](Self::uses_any) and its
/// kin.
pub(super) struct OpGraph<'g> {
    pub(super) ops: Vec<&'g Op>,
    producers: Vec<OpIndices>,
    /// Ascending.
    consumers: Vec<OpIndices>,
    /// Facts of the whole graph, which fusions work out once.
    pub(super) to_product: OnceCell<Vec<usize>>,
    pub(super) from_product: OnceCell<Vec<usize>>,
    pub(super) leads_out: OnceCell<Vec<bool>>,
    /// How many edges were followed.
    #[cfg(test)]
    steps: Cell<u64>,
}

impl<'g> OpGraph<'g> {
    pub(super) fn new(graph: &'g Graph) -> Result<Self> {
        let links = graph.links()?;
        let ops: Vec<&Op> = links.order.iter().map(|&index| &graph.ops()[index]).collect();
        let mut position = vec![0; ops.len()];
        for (at, &index) in links.order.iter().enumerate() {
            position[index] = at;
        }
        let none = || vec![OpIndices::new(); ops.len()];
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
        Ok(Self {
            ops,
            producers,
            consumers,
            to_product: OnceCell::new(),
            from_product: OnceCell::new(),
            leads_out: OnceCell::new(),
            #[cfg(test)]
            steps: Cell::new(0),
        })
    }

    /// The edges in a direction, for a walk that counts its steps itself.
    pub(super) fn edges(&self, direction: EdgeDirection) -> &[OpIndices] {
        match direction {
            EdgeDirection::Consumers => &self.consumers,
            EdgeDirection::Producers => &self.producers,
        }
    }

    /// The ops whose results an op uses, in the order of its inputs.
    pub(super) fn producers(&self, op: usize) -> impl Iterator<Item = &usize> {
        self.producers[op].iter().inspect(|_| self.step())
    }

    /// The op that gives an input of an op.
    pub(super) fn producer(&self, op: usize, input: usize) -> Option<usize> {
        let tensor = self.ops[op].inputs().get(input)?.id();
        self.producers(op).copied().find(|&producer| self.ops[producer].gives(tensor))
    }

    /// The tensor from which ops that `pass` make an input of an op, each from its first input, and the op
    /// that gives the tensor. A long chain of such ops is not followed to its end.
    pub(super) fn origin(
        &self,
        mut op: usize,
        mut input: usize,
        passes: impl Fn(&Op) -> bool,
    ) -> (Option<TensorId>, Option<usize>) {
        let mut producer = self.producer(op, input);
        for _ in 0..MAX_STEPS {
            let Some(passed) = producer.filter(|&producer| passes(self.ops[producer])) else { break };
            (op, input) = (passed, 0);
            producer = self.producer(op, input);
        }
        (self.ops[op].inputs().get(input).map(|input| input.id()), producer)
    }

    /// The ops that use results of an op, ascending.
    pub(super) fn consumers(&self, op: usize) -> impl Iterator<Item = &usize> {
        self.consumers[op].iter().inspect(|_| self.step())
    }

    /// Number of ops that use results of an op.
    pub(super) fn consumer_count(&self, op: usize) -> usize {
        self.consumers[op].len()
    }

    /// True if an op uses a result of another.
    pub(super) fn has_edge(&self, producer: usize, consumer: usize) -> bool {
        self.step();
        self.consumers[producer].binary_search(&consumer).is_ok()
    }

    /// True if an op uses a result of any of some ops.
    pub(super) fn uses_any(&self, op: usize, of: &[usize]) -> bool {
        match self.producers[op].len() <= of.len() {
            true => self.producers(op).any(|producer| of.contains(producer)),
            false => of.iter().any(|&producer| self.has_edge(producer, op)),
        }
    }

    /// True if any of some ops uses a result of an op.
    pub(super) fn feeds_any(&self, op: usize, users: &[usize]) -> bool {
        match self.consumers[op].len() <= users.len() {
            true => self.consumers(op).any(|consumer| users.contains(consumer)),
            false => users.iter().any(|&user| self.has_edge(op, user)),
        }
    }

    /// True if no op but some uses the results of an op.
    pub(super) fn feeds_only(&self, op: usize, users: &[usize]) -> bool {
        self.consumers[op].len() <= users.len() && self.consumers(op).all(|consumer| users.contains(consumer))
    }

    /// The neighbour of an op by its number, producers first, and its direction.
    pub(super) fn neighbour(&self, op: usize, number: usize) -> Option<(usize, EdgeDirection)> {
        self.step();
        let producers = &self.producers[op];
        match producers.get(number) {
            Some(&producer) => Some((producer, EdgeDirection::Producers)),
            None => {
                let consumer = self.consumers[op].get(number - producers.len())?;
                Some((*consumer, EdgeDirection::Consumers))
            }
        }
    }

    /// The neighbours of an op along edges, producers first, and the direction of each.
    pub(super) fn neighbours(&self, op: usize) -> impl Iterator<Item = (usize, EdgeDirection)> {
        (0..).map_while(move |number| self.neighbour(op, number))
    }

    /// Number of neighbours of an op.
    pub(super) fn neighbour_count(&self, op: usize) -> usize {
        self.producers[op].len() + self.consumers[op].len()
    }

    #[cfg(test)]
    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    #[cfg(not(test))]
    fn step(&self) {}

    /// A measure of the work so far: edges followed.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
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
