//! The test that a group stays convex when an op joins it: no path leaves the group and comes back into it.
//!
//! Each group formed so far runs as one, so each group is contracted to one node, and the nodes are kept in
//! an order in which they can run. Two interleaved searches answer a question, an edge each: one from the
//! group, one from the candidate. The first search that ends answers, so a question costs at most twice the
//! easier search. The search from the group is kept while the group grows. Trees along the edges, built once,
//! answer for long paths: the group reaches every op below a member in a tree.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::op_graph::{EdgeDirection, OpGraph};
use super::run_order::RunOrder;
use crate::graph::OpIndices;

/// The graph with its groups contracted, and the group that grows.
pub(super) struct Convexity<'g> {
    contracted: ContractedGraph<'g>,
    /// The growth in which an op last became a member.
    member_in: Vec<u32>,
    growth: u32,
    /// The search along consumers and the search along producers of the growing group.
    from_group: [Search; 2],
    from_candidate: Search,
    below_group: [Below; 2],
}

impl<'g> Convexity<'g> {
    pub(super) fn new(graph: &'g OpGraph<'_>) -> Self {
        let count = graph.ops.len();
        Self {
            contracted: ContractedGraph::new(graph),
            member_in: vec![0; count],
            growth: 0,
            from_group: [EdgeDirection::Consumers, EdgeDirection::Producers]
                .map(|direction| Search::new(direction, count)),
            from_candidate: Search::new(EdgeDirection::Producers, count),
            below_group: [
                // The latest producer most often ends the longest path.
                Below::new(0..count, |op| graph.producers(op).copied().max()),
                Below::new((0..count).rev(), |op| graph.consumers(op).copied().min()),
            ],
        }
    }

    /// A measure of the work so far: edges followed and nodes labelled.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        let searches = self.from_group.iter().chain([&self.from_candidate]);
        searches.map(|search| search.steps).sum::<u64>()
            + self.contracted.steps
            + self.contracted.order.labelled()
    }

    /// Begins a group without ops.
    pub(super) fn start(&mut self) {
        self.growth += 1;
        self.from_group.iter_mut().for_each(Search::restart);
        self.below_group.iter_mut().for_each(|below| below.ranges.clear());
    }

    /// Adds an op that leaves the group convex.
    pub(super) fn join(&mut self, op: usize) {
        self.member_in[op] = self.growth;
        for search in &mut self.from_group {
            search.forget_detours_over(op, &self.contracted);
            search.reach(op, &self.contracted);
        }
        self.below_group.iter_mut().for_each(|below| below.add(op));
    }

    /// True if a path between the group and a candidate passes an op outside of both. The candidate is a
    /// neighbour of the group in one direction.
    pub(super) fn has_detour(&mut self, candidate: usize, direction: EdgeDirection) -> bool {
        let Self { contracted, member_in, growth, from_group, from_candidate, below_group } = self;
        let is_member = |node: usize| member_in[node] == *growth;
        let (from_group, below_group) =
            (&mut from_group[direction as usize], &below_group[direction as usize]);
        from_candidate.direction = direction.opposite();
        from_candidate.restart();
        from_candidate.reach(candidate, contracted);
        loop {
            if from_group.detours(candidate) > 0 {
                return true;
            }
            // The search from the group has seen all nodes up to its front. A node on a path to the candidate
            // is nearer than the candidate, and nearer than the front of the candidate's own search.
            let front = from_group.front();
            if front >= contracted.distance(direction, candidate) || front > u64::MAX - from_candidate.front()
            {
                return false;
            }
            let Some((from, op)) = from_candidate.follow(contracted) else { return false };
            let to = contracted.node_of[op];
            if is_member(to) {
                if from != candidate {
                    from_group.reach(from, contracted);
                    return true;
                }
            } else if from_group.has_reached(to) || below_group.contains(op) {
                from_group.reach(to, contracted);
                return true;
            } else if contracted.distance(direction, to) > from_group.front() {
                from_candidate.reach(to, contracted);
            }
            let Some((_, met)) = from_group.advance(contracted, is_member) else { continue };
            if met != candidate && from_candidate.has_reached(met) {
                return true;
            }
        }
    }

    /// Contracts the group to one node.
    pub(super) fn contract(&mut self, group: &[usize]) {
        if group.len() < 2 {
            return;
        }
        let Self { contracted, member_in, growth, from_group, .. } = self;
        let is_member = |node: usize| member_in[node] == *growth;
        let label = |op: &&usize| contracted.order.label(**op);
        let (Some(&first), Some(&last)) = (group.iter().min_by_key(label), group.iter().max_by_key(label))
        else {
            return;
        };
        // The group moves to the place of its last op, and its consumers behind that place; or to the place
        // of its first op, and its producers before that place. The search that ends first decides.
        let [after, before] = from_group;
        let is_after = loop {
            if after.front() >= contracted.distance(EdgeDirection::Consumers, last) {
                break true;
            }
            if before.front() >= contracted.distance(EdgeDirection::Producers, first) {
                break false;
            }
            after.advance(contracted, is_member);
            before.advance(contracted, is_member);
        };
        let (search, anchor, direction) = if is_after {
            (after, last, EdgeDirection::Consumers)
        } else {
            (before, first, EdgeDirection::Producers)
        };
        let limit = contracted.distance(direction, if is_after { last } else { first });
        let is_between = |&node: &usize| !is_member(node) && contracted.distance(direction, node) < limit;
        let mut moving: Vec<usize> = search.reached.iter().copied().filter(is_between).collect();
        search.steps += search.reached.len() as u64;
        moving.sort_unstable_by_key(|&node| contracted.order.label(node));
        match is_after {
            true => contracted.order.move_after(anchor, &moving),
            false => contracted.order.move_before(anchor, &moving),
        }
        contracted.contract(group, anchor);
    }
}

/// Nodes in an order in which they can run, and the edges between them. A node is an op, or a group named by
/// one of its ops.
struct ContractedGraph<'g> {
    node_of: Vec<usize>,
    /// The ops to which the edges of a node lead, by direction.
    edges: [Vec<Cow<'g, [usize]>>; 2],
    order: RunOrder,
    steps: u64,
}

impl<'g> ContractedGraph<'g> {
    fn new(graph: &'g OpGraph<'_>) -> Self {
        let count = graph.ops.len();
        let borrowed = |edges: &'g [OpIndices]| edges.iter().map(|edges| Cow::Borrowed(&edges[..])).collect();
        Self {
            node_of: (0..count).collect(),
            edges: [EdgeDirection::Consumers, EdgeDirection::Producers]
                .map(|direction| borrowed(graph.edges(direction))),
            order: RunOrder::new(count),
            steps: 0,
        }
    }

    /// A number that grows along every edge in a direction.
    fn distance(&self, direction: EdgeDirection, node: usize) -> u64 {
        match direction {
            EdgeDirection::Consumers => self.order.label(node),
            EdgeDirection::Producers => u64::MAX - self.order.label(node),
        }
    }

    /// The op to which an edge of a node leads.
    fn edge(&self, direction: EdgeDirection, node: usize, index: usize) -> Option<usize> {
        self.edges[direction as usize][node].get(index).copied()
    }

    fn contract(&mut self, group: &[usize], node: usize) {
        for &op in group {
            self.node_of[op] = node;
            if op != node {
                self.order.remove(op);
            }
        }
        for edges in &mut self.edges {
            let leaving = group.iter().flat_map(|&op| edges[op].iter().copied());
            let leaving: Vec<usize> = leaving.filter(|&op| self.node_of[op] != node).collect();
            self.steps += leaving.len() as u64;
            group.iter().for_each(|&op| edges[op] = Cow::Borrowed(&[]));
            edges[node] = Cow::Owned(leaving);
        }
    }
}

/// A search along the edges in one direction, nearest nodes first.
struct Search {
    direction: EdgeDirection,
    /// Marks of earlier rounds do not count.
    round: u32,
    reached_in: Vec<u32>,
    reached: Vec<usize>,
    /// Nodes with edges that may not have been followed yet.
    frontier: BinaryHeap<Reverse<(u64, usize)>>,
    next_edge: Vec<usize>,
    /// How many edges were followed to a node from outside of the group, and in which round.
    detours: Vec<(u32, usize)>,
    steps: u64,
}

impl Search {
    fn new(direction: EdgeDirection, count: usize) -> Self {
        Self {
            direction,
            round: 0,
            reached_in: vec![0; count],
            reached: Vec::new(),
            frontier: BinaryHeap::new(),
            next_edge: vec![0; count],
            detours: vec![(0, 0); count],
            steps: 0,
        }
    }

    fn restart(&mut self) {
        self.round += 1;
        self.reached.clear();
        self.frontier.clear();
    }

    fn has_reached(&self, node: usize) -> bool {
        self.reached_in[node] == self.round
    }

    /// Marks a node; true if the node was not marked before.
    fn reach(&mut self, node: usize, contracted: &ContractedGraph<'_>) -> bool {
        if self.has_reached(node) {
            return false;
        }
        self.reached_in[node] = self.round;
        self.next_edge[node] = 0;
        self.reached.push(node);
        self.frontier.push(Reverse((contracted.distance(self.direction, node), node)));
        true
    }

    /// The distance up to which all nodes that can be reached have been reached.
    fn front(&self) -> u64 {
        self.frontier.peek().map_or(u64::MAX, |&Reverse((distance, _))| distance)
    }

    /// Follows one more edge of the nearest node that has one, to an op.
    fn follow(&mut self, contracted: &ContractedGraph<'_>) -> Option<(usize, usize)> {
        while let Some(&Reverse((_, node))) = self.frontier.peek() {
            self.steps += 1;
            if let Some(to) = contracted.edge(self.direction, node, self.next_edge[node]) {
                self.next_edge[node] += 1;
                return Some((node, to));
            }
            self.frontier.pop();
        }
        None
    }

    /// Follows one more edge from the group. The edge is returned if it leads to a node that was not reached
    /// before.
    fn advance(
        &mut self,
        contracted: &ContractedGraph<'_>,
        is_member: impl Fn(usize) -> bool,
    ) -> Option<(usize, usize)> {
        let (from, op) = self.follow(contracted)?;
        let to = contracted.node_of[op];
        if !is_member(from) {
            self.detours[to] = (self.round, self.detours(to) + 1);
        }
        self.reach(to, contracted).then_some((from, to))
    }

    fn detours(&self, node: usize) -> usize {
        let (round, count) = self.detours[node];
        if round == self.round { count } else { 0 }
    }

    /// Takes back the detours counted over a node that has joined the group.
    fn forget_detours_over(&mut self, node: usize, contracted: &ContractedGraph<'_>) {
        if self.has_reached(node) {
            for index in 0..self.next_edge[node] {
                self.steps += 1;
                if let Some(op) = contracted.edge(self.direction, node, index) {
                    self.detours[contracted.node_of[op]].1 -= 1;
                }
            }
        }
    }
}

/// Trees in which each op hangs below one of its neighbours in one direction, and the places below members.
struct Below {
    /// For each op, the places of the op itself and of all ops below it.
    places: Vec<Range<usize>>,
    /// Places below members: disjoint ranges, ascending.
    ranges: Vec<Range<usize>>,
}

impl Below {
    /// Trees of ops that are given parents first.
    fn new(
        ops: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone,
        parent: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let mut sizes = vec![1; ops.len()];
        for op in ops.clone().rev() {
            if let Some(parent) = parent(op) {
                sizes[parent] += sizes[op];
            }
        }
        let mut places = vec![0..0; ops.len()];
        // Below each op, the place that is free next; the last entry is for ops without a parent.
        let mut free = vec![0; ops.len() + 1];
        for op in ops {
            let free_below = &mut free[parent(op).unwrap_or(sizes.len())];
            let first = *free_below;
            *free_below += sizes[op];
            free[op] = first + 1;
            places[op] = first..first + sizes[op];
        }
        Self { places, ranges: Vec::new() }
    }

    fn add(&mut self, op: usize) {
        let new = self.places[op].clone();
        if !self.contains(op) {
            let covered = |range: &Range<usize>| new.start <= range.start && range.end <= new.end;
            self.ranges.retain(|range| !covered(range));
            let at = self.ranges.partition_point(|range| range.start < new.start);
            self.ranges.insert(at, new);
        }
    }

    fn contains(&self, op: usize) -> bool {
        let place = self.places[op].start;
        let at = self.ranges.partition_point(|range| range.end <= place);
        self.ranges.get(at).is_some_and(|range| range.start <= place)
    }
}
