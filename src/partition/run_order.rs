//! A run order that changes while groups form: a list of nodes whose labels ascend.

/// An order of nodes. The time of a move does not depend on the length of the order.
pub(super) struct RunOrder {
    labels: Vec<u64>,
    /// The node before and the node after each one. The list is a ring, closed by an end mark that is no
    /// node.
    before: Vec<usize>,
    after: Vec<usize>,
    /// How often a label has been given.
    labelled: u64,
}

impl RunOrder {
    /// The nodes from 0 to `count`, in this order.
    pub(super) fn new(count: usize) -> Self {
        let before = (0..=count).map(|node| node.checked_sub(1).unwrap_or(count)).collect();
        let after = (0..=count).map(|node| if node == count { 0 } else { node + 1 }).collect();
        let mut order = Self { labels: vec![0; count], before, after, labelled: 0 };
        order.label_evenly();
        order
    }

    /// The label of a node, larger than the labels of all nodes before.
    pub(super) fn label(&self, node: usize) -> u64 {
        self.labels[node]
    }

    /// How many labels have been given so far, a measure of the work.
    #[cfg(test)]
    pub(super) fn labelled(&self) -> u64 {
        self.labelled
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, node: usize) {
        let (before, after) = (self.before[node], self.after[node]);
        self.after[before] = after;
        self.before[after] = before;
    }

    /// Moves nodes behind another one, in the order in which they are given.
    pub(super) fn move_after(&mut self, anchor: usize, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.remove(node));
        self.insert_after(anchor, nodes);
    }

    /// Moves nodes in front of another one, in the order in which they are given.
    pub(super) fn move_before(&mut self, anchor: usize, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.remove(node));
        self.insert_after(self.before[anchor], nodes);
    }

    fn insert_after(&mut self, anchor: usize, nodes: &[usize]) {
        let end = self.labels.len();
        let follower = self.after[anchor];
        let mut last = anchor;
        for &node in nodes {
            self.after[last] = node;
            self.before[node] = last;
            last = node;
        }
        self.after[last] = follower;
        self.before[follower] = last;
        let lowest = if anchor == end { 0 } else { self.labels[anchor] };
        let highest = if follower == end { u64::MAX } else { self.labels[follower] };
        match (highest - lowest) / (nodes.len() as u64 + 1) {
            // No room is left between the neighbours.
            0 => self.label_evenly(),
            gap => {
                self.labelled += nodes.len() as u64;
                let mut label = lowest;
                for &node in nodes {
                    label += gap;
                    self.labels[node] = label;
                }
            }
        }
    }

    /// Spreads the labels of all nodes over the whole range.
    fn label_evenly(&mut self) {
        let end = self.labels.len();
        let gap = u64::MAX / (end as u64 + 1);
        let (mut node, mut label) = (self.after[end], 0);
        while node != end {
            label += gap;
            self.labels[node] = label;
            self.labelled += 1;
            node = self.after[node];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(order: &RunOrder) -> Vec<usize> {
        let end = order.labels.len();
        let mut nodes = Vec::new();
        let mut node = order.after[end];
        while node != end {
            nodes.push(node);
            node = order.after[node];
        }
        assert!(nodes.is_sorted_by_key(|&node| order.label(node)), "{:?}", order.labels);
        nodes
    }

    #[test]
    fn nodes_move_to_where_they_are_put() {
        let mut order = RunOrder::new(5);
        assert_eq!(nodes(&order), [0, 1, 2, 3, 4]);
        order.move_after(3, &[0, 2]);
        assert_eq!(nodes(&order), [1, 3, 0, 2, 4]);
        order.move_before(1, &[4, 3]);
        assert_eq!(nodes(&order), [4, 3, 1, 0, 2]);
        order.remove(1);
        order.move_after(2, &[4]);
        assert_eq!(nodes(&order), [3, 0, 2, 4]);
    }

    #[test]
    fn a_full_gap_makes_room() {
        let mut order = RunOrder::new(200);
        // Each node halves the gap behind the first one.
        for node in 2..200 {
            order.move_after(0, &[node]);
        }
        let expected: Vec<usize> = [0].into_iter().chain((2..200).rev()).chain([1]).collect();
        assert_eq!(nodes(&order), expected);
    }
}
