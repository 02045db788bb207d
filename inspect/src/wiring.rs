//! The tensors between partitions, and why they lead from one to another.

use std::collections::{HashMap, HashSet};

use sterna::{Explanation, FusionVerdict, Op, OpId, OpKind, Partition, TensorId};

use crate::op::ShownOp;
use crate::subject::Subject;
use crate::words::plain;

/// An op outside a partition that shares a tensor with one inside.
pub(crate) struct Neighbour {
    /// Its partition.
    pub(crate) part: usize,
    /// The producer and the consumer of the tensor.
    pub(crate) producer: String,
    pub(crate) consumer: String,
    /// Why the two are not in one partition.
    pub(crate) why: String,
}

/// A tensor that leads from one partition to another.
struct PartitionEdge<'a> {
    producer: (usize, &'a Op),
    consumer: (usize, &'a Op),
}

/// The tensors between partitions.
pub(crate) struct PartitionEdges<'a> {
    edges: Vec<PartitionEdge<'a>>,
    /// The edges of each partition.
    edges_of: HashMap<usize, Vec<usize>>,
    /// The verdicts on ops beside a group that became a partition, by the partition and the id of the op.
    said_of: HashMap<(usize, OpId), Vec<&'a Explanation>>,
    subject: &'a dyn Subject,
}

impl<'a> PartitionEdges<'a> {
    pub(crate) fn new(
        partitions: &'a [Partition],
        explanations: &'a [Explanation],
        subject: &'a dyn Subject,
    ) -> Self {
        let ops = || partitions.iter().flat_map(|part| part.ops().iter().map(move |op| (part.id(), op)));
        let makers: HashMap<TensorId, (usize, &Op)> =
            ops().flat_map(|(part, op)| op.outputs().iter().map(move |out| (out.id(), (part, op)))).collect();
        let mut edges = Vec::new();
        let mut edges_of: HashMap<usize, Vec<usize>> = HashMap::new();
        for (part, op) in ops() {
            for input in op.inputs() {
                let Some(&producer) = makers.get(&input.id()) else { continue };
                if producer.0 != part {
                    edges_of.entry(producer.0).or_default().push(edges.len());
                    edges_of.entry(part).or_default().push(edges.len());
                    edges.push(PartitionEdge { producer, consumer: (part, op) });
                }
            }
        }
        let part_of: HashMap<OpId, usize> = ops().map(|(part, op)| (op.id(), part)).collect();
        let mut said_of: HashMap<(usize, OpId), Vec<&Explanation>> = HashMap::new();
        for explanation in explanations {
            if let (Some(&part), Some(neighbour)) = (part_of.get(&explanation.seed.id), explanation.neighbour)
            {
                said_of.entry((part, neighbour.id)).or_default().push(explanation);
            }
        }
        Self { edges, edges_of, said_of, subject }
    }

    /// The neighbours of a partition, and why they are not part of it.
    pub(crate) fn neighbours(&self, part: usize) -> Vec<Neighbour> {
        let mut neighbours: Vec<Neighbour> = Vec::new();
        let mut seen = HashSet::new();
        for &edge in self.edges_of.get(&part).into_iter().flatten() {
            let edge = &self.edges[edge];
            let ends = [edge.producer.1, edge.consumer.1];
            let [producer, consumer] = ends.map(|op| ShownOp::new(op, self.subject).to_string());
            let other = if edge.producer.0 == part { edge.consumer.0 } else { edge.producer.0 };
            if seen.insert(ends.map(Op::id)) {
                neighbours.push(Neighbour { part: other, producer, consumer, why: self.why(edge) });
            }
        }
        neighbours
    }

    /// The verdicts that kept the two ends of an edge apart.
    fn why(&self, edge: &PartitionEdge<'_>) -> String {
        let ends = [(edge.producer, edge.consumer), (edge.consumer, edge.producer)];
        let said = ends.iter().flat_map(|((part, _), (_, op))| self.said_of.get(&(*part, op.id())));
        let verdicts = said.flatten().filter_map(|explanation| {
            let neighbour = explanation.neighbour?;
            let neighbour = match self.subject.skipped_kind(neighbour.id) {
                Some(kind) if neighbour.kind == OpKind::Wildcard => {
                    format!("{} (op {})", plain(kind), neighbour.id)
                }
                _ => neighbour.to_string(),
            };
            let fusion = explanation.fusion;
            match explanation.verdict {
                FusionVerdict::Matched => None,
                FusionVerdict::Rejected(why) => {
                    Some(format!("the fusion `{fusion}` refused {neighbour}: {why}"))
                }
                _ => Some(format!("the fusion `{fusion}` takes no {neighbour}")),
            }
        });
        let mut verdicts: Vec<String> = verdicts.collect();
        verdicts.dedup();
        match &verdicts[..] {
            [] => format!("no fusion starts at {} or at {}", edge.producer.1.kind(), edge.consumer.1.kind()),
            verdicts => verdicts.join("; "),
        }
    }
}
