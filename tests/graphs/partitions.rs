//! Promise: a finalized graph comes back in partitions that cover it, in an order in which they can run.

use crate::common::{self, Random};
use sterna::{
    Accuracy, DataType, FusionVerdict, Graph, GraphFault, LogicalTensor, Op, OpKind, Partition, Policy,
};

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
    tensors.iter().map(|tensor| tensor.id().get()).collect()
}

/// Ops of a partition, whether it is supported, its inputs and its outputs, by id.
type Summary = (Vec<usize>, bool, Vec<usize>, Vec<usize>);

fn summary(graph: &Graph, policy: Policy) -> Vec<Summary> {
    let partitions = graph.partitions(policy).unwrap();
    assert!(partitions.iter().enumerate().all(|(place, partition)| partition.id() == place));
    let ops = |p: &Partition| p.ops().iter().map(|op| op.id().get()).collect();
    partitions.iter().map(|p| (ops(p), p.is_supported(), ids(p.inputs()), ids(p.outputs()))).collect()
}

#[test]
fn neighbours_that_run_share_a_partition_and_every_other_op_has_its_own() {
    let graph = graph([
        unary(0, OpKind::Exp, 0, 1),
        Op::select(1, mask(2), f32s(1), f32s(3), f32s(4)),
        unary(2, OpKind::ReLU, 4, 5),
        unary(3, OpKind::Wildcard, 5, 6),
        Op::new(4, OpKind::End).input(f32s(5)),
        Op::new(5, OpKind::Wildcard).input(f32s(6)).output(f32s(7)),
        unary(6, OpKind::Abs, 6, 8),
    ]);
    assert_eq!(
        summary(&graph, Policy::Fusion),
        [
            (vec![0, 1, 2], true, vec![0, 2, 3], vec![5]),
            (vec![3], false, vec![5], vec![6]),
            (vec![4], false, vec![5], vec![]),
            (vec![5], false, vec![6], vec![7]),
            (vec![6], true, vec![6], vec![8]),
        ]
    );
    assert_eq!(
        summary(&graph, Policy::Debug),
        [
            (vec![0], true, vec![0], vec![1]),
            (vec![1], true, vec![2, 1, 3], vec![4]),
            (vec![2], true, vec![4], vec![5]),
            (vec![3], false, vec![5], vec![6]),
            (vec![4], false, vec![5], vec![]),
            (vec![5], false, vec![6], vec![7]),
            (vec![6], true, vec![6], vec![8]),
        ]
    );
    for policy in [Policy::Fusion, Policy::Debug] {
        for partition in graph.partitions(policy).unwrap() {
            let accuracy = partition.is_supported().then_some(Accuracy::Exact);
            assert_eq!(partition.accuracy(), accuracy, "{:?}", partition.ops());
        }
    }
    let reasons: Vec<_> =
        graph.partitions(Policy::Fusion).unwrap().iter().map(Partition::unsupported_reason).collect();
    assert_eq!(reasons[1].as_deref(), Some("no kernel runs Wildcard"));
    assert_eq!(reasons[0], None);
}

#[test]
fn a_tensor_within_a_group_is_handed_out_where_an_end_or_an_op_outside_takes_it() {
    let graph = graph([
        unary(0, OpKind::Abs, 0, 1),
        unary(1, OpKind::Exp, 1, 2),
        unary(2, OpKind::Log, 2, 3),
        Op::new(3, OpKind::End).input(f32s(1)),
        unary(4, OpKind::Wildcard, 2, 5),
    ]);
    assert_eq!(
        summary(&graph, Policy::Fusion),
        [
            (vec![0, 1, 2], true, vec![0], vec![1, 2, 3]),
            (vec![3], false, vec![1], vec![]),
            (vec![4], false, vec![2], vec![5]),
        ]
    );
}

#[test]
fn a_group_never_waits_for_itself() {
    // Exp feeds Add both directly and through Wildcard, which nothing here runs.
    let add = |id, a, b, to| Op::new(id, OpKind::Add).input(f32s(a)).input(f32s(b)).output(f32s(to));
    let graph = graph([
        unary(0, OpKind::Exp, 0, 1),
        unary(1, OpKind::Wildcard, 1, 2),
        add(2, 1, 2, 3),
        unary(3, OpKind::Abs, 3, 4),
    ]);
    assert_eq!(
        summary(&graph, Policy::Fusion),
        [
            (vec![0], true, vec![0], vec![1]),
            (vec![1], false, vec![1], vec![2]),
            (vec![2, 3], true, vec![1, 2], vec![4]),
        ]
    );
    let explanations = graph.explain().unwrap();
    let refused = |e: &&sterna::Explanation| {
        e.neighbour.is_some_and(|op| op.id == 2)
            && matches!(e.verdict, FusionVerdict::Rejected(why) if why.contains("come back"))
    };
    assert!(explanations.iter().any(|e| refused(&e)), "{explanations:#?}");
}

fn index(id: usize, from: usize, to: usize) -> Op {
    let to = LogicalTensor::strided(to, DataType::S32, &[4]).unwrap();
    Op::new(id, OpKind::GenIndex).axis(0).input(f32s(from)).output(to)
}

#[test]
fn an_op_that_uses_only_a_shape_joins_and_needs_no_memory_of_it() {
    // The op with the larger id makes what the one with the smaller takes its shape from.
    let graph = graph([unary(7, OpKind::Abs, 0, 1), index(3, 1, 2)]);
    assert_eq!(summary(&graph, Policy::Fusion), [(vec![7, 3], true, vec![0], vec![2])]);
    assert_eq!(
        summary(&graph, Policy::Debug),
        [(vec![7], true, vec![0], vec![1]), (vec![3], true, vec![1], vec![2])]
    );
}

#[test]
fn an_op_outside_that_uses_only_a_shape_takes_the_tensor_and_runs_later() {
    let s32s = |id| LogicalTensor::strided(id, DataType::S32, &[4]).unwrap();
    let graph = graph([
        unary(0, OpKind::Wildcard, 0, 1),
        index(1, 1, 2),
        Op::new(2, OpKind::Wildcard).input(s32s(2)).output(f32s(3)),
        unary(3, OpKind::Abs, 3, 4),
        // Between the index and the sum lies an op that nothing runs.
        Op::new(4, OpKind::GenIndex).axis(0).input(f32s(4)).output(s32s(5)),
        Op::new(5, OpKind::Add).input(s32s(5)).input(s32s(2)).output(s32s(6)),
    ]);
    assert_eq!(
        summary(&graph, Policy::Fusion),
        [
            (vec![0], false, vec![0], vec![1]),
            (vec![1], true, vec![1], vec![2]),
            (vec![2], false, vec![2], vec![3]),
            (vec![3, 4, 5], true, vec![3, 2], vec![6]),
        ]
    );
}

#[test]
fn types_that_do_not_mix_are_not_supported() {
    let typed = |id, data_type| LogicalTensor::strided(id, data_type, &[4]).unwrap();
    use DataType::{Bf16, F16, F32, S32, S64};
    let rows: &[(OpKind, [DataType; 3], bool)] = &[
        (OpKind::Add, [F32, Bf16, F16], true),
        (OpKind::Add, [F16, Bf16, Bf16], true),
        (OpKind::Add, [S32, S32, S32], true),
        (OpKind::Add, [S64, S64, S64], true),
        (OpKind::Add, [S32, S64, S64], false),
        (OpKind::Add, [S32, F32, F32], false),
        (OpKind::Subtract, [F32, F32, S32], false),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .map(|&(kind, types, expected)| {
            let op = Op::new(0, kind).input(typed(0, types[0])).input(typed(1, types[1]));
            let partition = Partition::from_op(op.output(typed(2, types[2]))).unwrap();
            (kind, types, expected, partition.unsupported_reason())
        })
        .filter(|(_, _, expected, reason)| *expected != reason.is_none())
        .collect();
    common::report(&wrong);
    let op = Op::new(0, OpKind::Add).input(typed(0, S32)).input(typed(1, F32)).output(typed(2, F32));
    let reason = Partition::from_op(op).unwrap().unsupported_reason();
    assert_eq!(reason.as_deref(), Some("no kernel runs Add on s32, f32 to f32"));
}

#[test]
fn a_group_over_the_limit_splits() {
    let n = 100;
    let graph = graph((0..n).map(|i| unary(i, OpKind::Abs, i, i + 1)));
    let sizes: Vec<usize> = graph.partitions(Policy::Fusion).unwrap().iter().map(|p| p.ops().len()).collect();
    assert_eq!(sizes, [64, 36]);
    let refused =
        graph.explain().unwrap().into_iter().find(|e| e.neighbour.is_some_and(|op| op.id == 64)).unwrap();
    assert!(
        matches!(refused.verdict, FusionVerdict::Rejected(why) if why.contains("as many ops")),
        "{refused:?}"
    );
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
                match i % 3 {
                    0 => unary(i, OpKind::Wildcard, pick(), i),
                    1 => Op::new(i, OpKind::Add).input(f32s(pick())).input(f32s(pick())).output(f32s(i)),
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
        let order = |partitions: &[Partition]| {
            let ops = |p: &Partition| p.ops().iter().map(|op| op.id().get()).collect::<Vec<_>>();
            partitions.iter().map(ops).collect::<Vec<_>>()
        };
        assert_eq!(order(&in_order), order(&shuffled));
        let mut all = order(&shuffled).concat();
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
    let s32 = |id| LogicalTensor::strided(id, DataType::S32, &[4]).unwrap();
    let graph = graph([
        Op::new(0, OpKind::Cast).input(f32s(0)).output(s32(1)),
        Op::new(1, OpKind::Add).input(s32(1)).input(f32s(2)).output(f32s(3)),
    ]);
    let explanations = graph.explain().unwrap();
    let neighbour =
        explanations.iter().find(|e| e.neighbour.is_some_and(|op| op.kind == OpKind::Add)).unwrap();
    assert_eq!(neighbour.seed.kind, OpKind::Cast);
    assert!(
        matches!(neighbour.verdict, FusionVerdict::Rejected(why) if why.contains("types")),
        "{neighbour:?}"
    );
    assert!(explanations.iter().any(|e| e.neighbour.is_none() && e.verdict == FusionVerdict::Matched));
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
    let ops = partitions.iter().flat_map(|partition| partition.ops().iter().map(|op| op.id().get()));
    assert!(ops.eq(0..n));
}
