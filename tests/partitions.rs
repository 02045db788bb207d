//! Promise: a finalized graph comes back in partitions that cover it, in an order in which they can run.

mod common;

use common::Random;
use sterna::{DataType, Graph, GraphFault, LogicalTensor, Op, OpKind, Partition, Policy, Verdict};

fn f32s(id: usize) -> LogicalTensor {
    LogicalTensor::strided(id, DataType::F32, &[4]).unwrap()
}

fn mask(id: usize) -> LogicalTensor {
    LogicalTensor::strided(id, DataType::Boolean, &[4]).unwrap()
}

fn unary(id: usize, kind: OpKind, input: usize, output: usize) -> Op {
    Op::new(id, kind).input(f32s(input)).output(f32s(output))
}

fn graph(ops: impl IntoIterator<Item = Op>) -> Graph {
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
    graph.finalize().unwrap();
    graph
}

fn ids(tensors: &[LogicalTensor]) -> Vec<usize> {
    tensors.iter().map(LogicalTensor::id).collect()
}

#[test]
fn each_select_is_supported_and_every_other_kind_is_not() {
    let graph = graph([
        unary(0, OpKind::Exp, 0, 1),
        Op::select(1, mask(2), f32s(1), f32s(3), f32s(4)),
        unary(2, OpKind::ReLU, 4, 5),
        Op::new(3, OpKind::End).input(f32s(5)),
        Op::new(4, OpKind::Wildcard).input(f32s(5)).output(f32s(6)),
    ]);
    for policy in [Policy::Fusion, Policy::Debug] {
        let partitions = graph.partitions(policy).unwrap();
        let summary: Vec<_> = partitions
            .iter()
            .map(|p| (p.id(), p.ops()[0].kind(), p.is_supported(), ids(p.inputs()), ids(p.outputs())))
            .collect();
        assert_eq!(
            summary,
            [
                (0, OpKind::Exp, false, vec![0], vec![1]),
                (1, OpKind::Select, true, vec![2, 1, 3], vec![4]),
                (2, OpKind::ReLU, false, vec![4], vec![5]),
                (3, OpKind::End, false, vec![5], vec![]),
                (4, OpKind::Wildcard, false, vec![5], vec![6]),
            ]
        );
        assert_eq!(partitions[0].unsupported_reason().as_deref(), Some("no kernel runs Exp"));
        assert_eq!(partitions[1].unsupported_reason(), None);
    }
}

#[test]
fn a_port_is_listed_once() {
    let graph = graph([Op::select(0, mask(0), f32s(1), f32s(1), f32s(2))]);
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(ids(partitions[0].inputs()), [0, 1]);
    assert_eq!(ids(partitions[0].outputs()), [2]);
}

#[test]
fn partitions_come_in_run_order_whatever_the_order_of_add_op() {
    let mut random = Random::new(7);
    for _ in 0..200 {
        // A random graph: op `i` takes results of earlier ops or graph inputs, and is added in random order.
        let n = 1 + random.below(12);
        let mut ops: Vec<Op> = (0..n)
            .map(|i| {
                let mut pick =
                    || if i == 0 || random.below(3) == 0 { 100 + random.below(3) } else { random.below(i) };
                match i % 2 {
                    0 => Op::new(i, OpKind::Add).input(f32s(pick())).input(f32s(pick())).output(f32s(i)),
                    _ => Op::select(i, mask(200), f32s(pick()), f32s(pick()), f32s(i)),
                }
            })
            .collect();
        let in_order = graph(ops.clone()).partitions(Policy::Fusion).unwrap();
        for i in (1..n).rev() {
            ops.swap(i, random.below(i + 1));
        }
        let shuffled = graph(ops).partitions(Policy::Fusion).unwrap();
        let mut known: Vec<usize> = vec![100, 101, 102, 200];
        for partition in &shuffled {
            assert!(ids(partition.inputs()).iter().all(|id| known.contains(id)), "{shuffled:#?}");
            known.extend(ids(partition.outputs()));
        }
        let order = |partitions: &[Partition]| partitions.iter().map(|p| p.ops()[0].id()).collect::<Vec<_>>();
        assert_eq!(order(&in_order), order(&shuffled));
        let mut all = order(&shuffled);
        all.sort_unstable();
        assert_eq!(all, (0..n).collect::<Vec<_>>());
    }
}

#[test]
fn partitioning_before_finalize_is_an_error() {
    let mut graph = Graph::new();
    graph.add_op(unary(0, OpKind::Exp, 0, 1)).unwrap();
    assert_eq!(graph.partitions(Policy::Fusion).unwrap_err(), GraphFault::NotFinalized.into());
    assert_eq!(graph.explain().unwrap_err(), GraphFault::NotFinalized.into());
    graph.finalize().unwrap();
    graph.finalize().unwrap();
    assert!(graph.is_finalized());
    assert_eq!(graph.partitions(Policy::Fusion).unwrap().len(), 1);
    assert_eq!(graph.partitions(Policy::Fusion).unwrap().len(), 1);
}

#[test]
fn an_empty_graph_has_no_partitions() {
    assert!(graph([]).partitions(Policy::Fusion).unwrap().is_empty());
}

#[test]
fn from_op_verifies_the_op() {
    let op = Op::new(3, OpKind::Select).input(mask(0)).input(f32s(1)).output(f32s(2));
    let error = Partition::from_op(op).unwrap_err();
    assert_eq!(error.to_string(), "Select (op 3): 2 inputs were given, 3 expected");
}

#[test]
fn explain_says_why_neighbours_were_not_fused() {
    let graph = graph([unary(0, OpKind::Exp, 0, 1), Op::select(1, mask(2), f32s(1), f32s(3), f32s(4))]);
    let explanations = graph.explain().unwrap();
    let neighbour =
        explanations.iter().find(|e| e.neighbour.is_some_and(|op| op.kind == OpKind::Exp)).unwrap();
    assert_eq!(neighbour.seed.kind, OpKind::Select);
    assert!(matches!(neighbour.verdict, Verdict::Rejected(why) if !why.is_empty()), "{neighbour:?}");
    assert!(explanations.iter().any(|e| e.neighbour.is_none() && e.verdict == Verdict::Matched));
}

#[test]
fn a_long_chain_is_linked_and_partitioned_without_recursion() {
    let n = 200_000;
    let scalar = |id, data_type| LogicalTensor::strided(id, data_type, &[]).unwrap();
    let data = |id| scalar(id, DataType::F32);
    let cond = scalar(n + 1, DataType::Boolean);
    let graph = graph((0..n).rev().map(|i| Op::select(i, cond.clone(), data(i), data(n + 2), data(i + 1))));
    assert_eq!((graph.inputs().len(), graph.outputs().len()), (3, 1));
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    assert!(partitions.iter().enumerate().all(|(i, partition)| partition.ops()[0].id() == i));
}
