//! Whether a group stays convex if an op joins it: no path may leave the group and come back into it.
//!
//! Each formed group runs as one, so the graph is contracted to one node for each group, in a run order. Two
//! searches answer a query, alternating edge by edge: one from the group, one from the op that would join.
//! The first to end answers, so a query costs at most twice the easier search. The search from the group is
//! kept while the group grows. Trees along the edges, made once, answer for long paths: an op below a member
//! in a tree is reached from the group, however far it is.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::op_graph::{EdgeSide, OpGraph};
use super::run_order::RunOrder;

/// The graph with its groups contracted, and the growing group.
pub(super) struct Convexity<'g> {
    links: ContractedGraph<'g>,
    /// For each op, the growth in which it last became a member.
    member_in: Vec<u32>,
    growth: u32,
    /// The nodes that the growing group reaches, and the nodes that reach it.
    from_group: [Search; 2],
    from_candidate: Search,
    below_group: [Below; 2],
}

impl<'g> Convexity<'g> {
    pub(super) fn new(graph: &'g OpGraph<'_>) -> Self {
        let count = graph.ops.len();
        Self {
            links: ContractedGraph::new(graph),
            member_in: vec![0; count],
            growth: 0,
            from_group: [EdgeSide::Consumers, EdgeSide::Producers].map(|side| Search::new(side, count)),
            from_candidate: Search::new(EdgeSide::Producers, count),
            below_group: [
                // The latest producer is at the end of the longest path, most often.
                Below::new(0..count, |op| graph.producers[op].iter().copied().max()),
                Below::new((0..count).rev(), |op| graph.consumers[op].iter().copied().min()),
            ],
        }
    }

    /// Number of edges followed and labels given so far, a measure of the work.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        let searches = self.from_group.iter().chain([&self.from_candidate]);
        searches.map(|search| search.steps).sum::<u64>() + self.links.steps + self.links.order.labelled()
    }

    /// Begins a group without ops.
    pub(super) fn start(&mut self) {
        self.growth += 1;
        self.from_group.iter_mut().for_each(Search::restart);
        self.below_group.iter_mut().for_each(|below| below.ranges.clear());
    }

    /// Adds an op to the group, which stays convex.
    pub(super) fn join(&mut self, op: usize) {
        self.member_in[op] = self.growth;
        for search in &mut self.from_group {
            search.forget_detours_over(op, &self.links);
            search.reach(op, &self.links);
        }
        self.below_group.iter_mut().for_each(|below| below.add(op));
    }

    /// Whether a path through an op outside of the group connects the group with a candidate. The candidate
    /// is a neighbour of the group, on one side.
    pub(super) fn has_detour(&mut self, candidate: usize, side: EdgeSide) -> bool {
        let Self { links, member_in, growth, from_group, from_candidate, below_group } = self;
        let is_member = |node: usize| member_in[node] == *growth;
        let (from_group, below_group) = (&mut from_group[side as usize], &below_group[side as usize]);
        from_candidate.side = side.opposite();
        from_candidate.restart();
        from_candidate.reach(candidate, links);
        loop {
            if from_group.detours(candidate) > 0 {
                return true;
            }
            // The nodes that the group reaches are known up to its front. A node on a path to the candidate
            // is nearer than the candidate, and nearer than the rest of the candidate's own search.
            let front = from_group.front();
            if front >= links.distance(side, candidate) || front > u64::MAX - from_candidate.front() {
                return false;
            }
            let Some((from, op)) = from_candidate.follow(links) else { return false };
            let to = links.node_of[op];
            if is_member(to) {
                if from != candidate {
                    from_group.reach(from, links);
                    return true;
                }
            } else if from_group.has_reached(to) || below_group.contains(op) {
                from_group.reach(to, links);
                return true;
            } else if links.distance(side, to) > from_group.front() {
                from_candidate.reach(to, links);
            }
            let Some((_, met)) = from_group.advance(links, is_member) else { continue };
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
        let Self { links, member_in, growth, from_group, .. } = self;
        let is_member = |node: usize| member_in[node] == *growth;
        let label = |op: &&usize| links.order.label(**op);
        let (Some(&first), Some(&last)) = (group.iter().min_by_key(label), group.iter().max_by_key(label))
        else {
            return;
        };
        // The group moves to the position of its last op, with the nodes that it reaches behind it; or to the
        // position of its first op, with the nodes that reach it in front: whichever search ends first.
        let [after, before] = from_group;
        let is_after = loop {
            if after.front() >= links.distance(EdgeSide::Consumers, last) {
                break true;
            }
            if before.front() >= links.distance(EdgeSide::Producers, first) {
                break false;
            }
            after.advance(links, is_member);
            before.advance(links, is_member);
        };
        let (search, anchor, side) =
            if is_after { (after, last, EdgeSide::Consumers) } else { (before, first, EdgeSide::Producers) };
        let limit = links.distance(side, if is_after { last } else { first });
        let is_between = |&node: &usize| !is_member(node) && links.distance(side, node) < limit;
        let mut moving: Vec<usize> = search.reached.iter().copied().filter(is_between).collect();
        search.steps += search.reached.len() as u64;
        moving.sort_unstable_by_key(|&node| links.order.label(node));
        match is_after {
            true => links.order.move_after(anchor, &moving),
            false => links.order.move_before(anchor, &moving),
        }
        links.contract(group, anchor);
    }
}

/// Nodes in a run order, and the edges between them. A node is an op, or a group named by one of its ops.
struct ContractedGraph<'g> {
    node_of: Vec<usize>,
    /// The ops at the other ends of a node's edges, by side.
    edges: [Vec<Cow<'g, [usize]>>; 2],
    order: RunOrder,
    steps: u64,
}

impl<'g> ContractedGraph<'g> {
    fn new(graph: &'g OpGraph<'_>) -> Self {
        let count = graph.ops.len();
        let borrowed =
            |edges: &'g [Vec<usize>]| edges.iter().map(|edges| Cow::Borrowed(&edges[..])).collect();
        Self {
            node_of: (0..count).collect(),
            edges: [borrowed(&graph.consumers), borrowed(&graph.producers)],
            order: RunOrder::new(count),
            steps: 0,
        }
    }

    /// A number that grows along every edge of a side.
    fn distance(&self, side: EdgeSide, node: usize) -> u64 {
        match side {
            EdgeSide::Consumers => self.order.label(node),
            EdgeSide::Producers => u64::MAX - self.order.label(node),
        }
    }

    /// The op at the other end of a node's edge.
    fn edge(&self, side: EdgeSide, node: usize, index: usize) -> Option<usize> {
        self.edges[side as usize][node].get(index).copied()
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

/// A search along the edges of one side, nearest nodes first.
struct Search {
    side: EdgeSide,
    /// Marks of earlier rounds do not count.
    round: u32,
    reached_in: Vec<u32>,
    reached: Vec<usize>,
    /// Nodes with edges that may not have been followed yet.
    frontier: BinaryHeap<Reverse<(u64, usize)>>,
    next_edge: Vec<usize>,
    /// For each node, the number of edges followed to it from outside of the group, and the round.
    detours: Vec<(u32, usize)>,
    steps: u64,
}

impl Search {
    fn new(side: EdgeSide, count: usize) -> Self {
        Self {
            side,
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

    /// Marks a node; returns whether it was unmarked.
    fn reach(&mut self, node: usize, links: &ContractedGraph<'_>) -> bool {
        if self.has_reached(node) {
            return false;
        }
        self.reached_in[node] = self.round;
        self.next_edge[node] = 0;
        self.reached.push(node);
        self.frontier.push(Reverse((links.distance(self.side, node), node)));
        true
    }

    /// The distance up to which all reachable nodes have been reached.
    fn front(&self) -> u64 {
        self.frontier.peek().map_or(u64::MAX, |&Reverse((distance, _))| distance)
    }

    /// Follows one more edge of the nearest node that has one, to an op.
    fn follow(&mut self, links: &ContractedGraph<'_>) -> Option<(usize, usize)> {
        while let Some(&Reverse((_, node))) = self.frontier.peek() {
            self.steps += 1;
            if let Some(to) = links.edge(self.side, node, self.next_edge[node]) {
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
        links: &ContractedGraph<'_>,
        is_member: impl Fn(usize) -> bool,
    ) -> Option<(usize, usize)> {
        let (from, op) = self.follow(links)?;
        let to = links.node_of[op];
        if !is_member(from) {
            self.detours[to] = (self.round, self.detours(to) + 1);
        }
        self.reach(to, links).then_some((from, to))
    }

    fn detours(&self, node: usize) -> usize {
        let (round, count) = self.detours[node];
        if round == self.round { count } else { 0 }
    }

    /// Subtracts the counted edges that start at a node, because the node is now in the group.
    fn forget_detours_over(&mut self, node: usize, links: &ContractedGraph<'_>) {
        if self.has_reached(node) {
            for index in 0..self.next_edge[node] {
                self.steps += 1;
                if let Some(op) = links.edge(self.side, node, index) {
                    self.detours[links.node_of[op]].1 -= 1;
                }
            }
        }
    }
}

/// Trees in which each op is below one that leads to it, and the ops below the members of the group.
struct Below {
    /// For each op, the positions of itself and of all ops below it.
    places: Vec<Range<usize>>,
    /// Positions below members: disjoint ranges, ascending.
    ranges: Vec<Range<usize>>,
}

impl Below {
    /// Trees of ops, given parents first.
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
        // For each op, the next free position below it; the last entry is for ops without a parent.
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
