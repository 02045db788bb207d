use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::error::OpRef;
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::{AttrValue, Op};
use crate::partition::fusions::FUSIONS;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

/// A fusion that takes every op but `Exp`, up to four of them.
const ALL_BUT_EXP: Fusion = Fusion {
    name: "all_but_exp",
    is_pattern: false,
    seed: |op| op.kind() != OpKind::Exp,
    grow: |group, op| match group.graph.ops[op].kind() {
        OpKind::Exp => FusionVerdict::NoMatch,
        _ if group.members.len() == 4 => FusionVerdict::Rejected("four ops are enough"),
        _ => FusionVerdict::Matched,
    },
    matches: |_| Ok(Match::Elementwise),
};

fn tensor(id: usize) -> LogicalTensor {
    LogicalTensor::strided(id, DataType::F32, &[4]).unwrap()
}

/// Ops as (kind, inputs, output), with their index as id.
fn graph(ops: &[(OpKind, &[usize], usize)]) -> Graph {
    let mut graph = Graph::new();
    for (id, (kind, inputs, output)) in ops.iter().enumerate() {
        let data_type = if *kind == OpKind::GenIndex { DataType::S32 } else { DataType::F32 };
        let output = LogicalTensor::strided(*output, data_type, &[4]).unwrap();
        let mut op = Op::new(id, *kind).inputs_from(inputs.iter().map(|&id| tensor(id))).output(output);
        if *kind == OpKind::GenIndex {
            op = op.axis(0);
        }
        graph.add_op(op).unwrap();
    }
    graph.finalize().unwrap();
    graph
}

fn groups(graph: &Graph) -> (Vec<Vec<usize>>, Vec<Explanation>) {
    groups_of(graph, ALL_BUT_EXP)
}

fn groups_of(graph: &Graph, fusion: Fusion) -> (Vec<Vec<usize>>, Vec<Explanation>) {
    let op_graph = OpGraph::new(graph).unwrap();
    let mut explanations = Vec::new();
    let groups = group(&op_graph, &[fusion], true, Some(&mut |explanation| explanations.push(explanation)));
    let ids = |group: &OpGroup| group.ops.iter().map(|&op| op_graph.ops[op].id().get()).collect();
    (groups.iter().map(ids).collect(), explanations)
}

#[test]
fn a_group_grows_along_edges() {
    use OpKind::{Abs, Add, Exp, ReLU};
    let (groups, _) = groups(&graph(&[(Abs, &[0], 1), (ReLU, &[1], 2), (Exp, &[2], 3), (Add, &[3, 4], 5)]));
    assert_eq!(groups, [vec![0, 1], vec![2], vec![3]]);
}

#[test]
fn a_path_through_an_op_outside_keeps_two_ops_apart() {
    use OpKind::{Abs, Add, Exp};
    // Abs feeds Add both directly and through Exp: Abs and Add in one group would wait for themselves.
    let (groups, explanations) = groups(&graph(&[(Abs, &[0], 1), (Exp, &[1], 2), (Add, &[1, 2], 3)]));
    assert_eq!(groups, [vec![0], vec![1], vec![2]]);
    let rejected = explanations.iter().any(|explanation| {
        matches!(explanation.verdict, FusionVerdict::Rejected(why) if why.contains("come back"))
            && explanation.neighbour == Some(OpRef { kind: Add, id: 2.into() })
    });
    assert!(rejected, "{explanations:?}");
}

#[test]
fn an_op_refused_at_first_joins_once_the_path_runs_inside() {
    use OpKind::{Abs, Add, ReLU};
    let (groups, _) = groups(&graph(&[(Abs, &[0], 1), (ReLU, &[1], 2), (Add, &[1, 2], 3)]));
    assert_eq!(groups, [vec![0, 1, 2]]);
}

#[test]
fn two_groups_never_wait_for_each_other() {
    use OpKind::{Abs, Add};
    // Ids 0, 1, 4 come from one place, 2, 3, 5 from another; each side uses a result of the other, and no
    // path runs through both. Grown without regard for the first group, the second would close a ring.
    let graph = graph(&[
        (Abs, &[0], 10),
        (Abs, &[10], 11),
        (Abs, &[1], 20),
        (Abs, &[20], 21),
        (Add, &[11, 20], 12),
        (Add, &[21, 10], 22),
    ]);
    let (groups, _) = groups(&graph);
    let mut ids: Vec<usize> = groups.concat();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5], "{groups:?}");
}

#[test]
fn a_group_grows_along_shape_only_inputs() {
    use OpKind::{Abs, Exp, GenIndex};
    let (joined, _) = groups(&graph(&[(Abs, &[0], 1), (GenIndex, &[1], 2)]));
    assert_eq!(joined, [vec![0, 1]]);
    // Such an edge lies on paths as well.
    let (apart, _) = groups(&graph(&[(Abs, &[0], 1), (Exp, &[1], 2), (GenIndex, &[2], 3)]));
    assert_eq!(apart, [vec![0], vec![1], vec![2]]);
}

#[test]
fn a_fusion_sees_the_edges_around_its_group() {
    use OpKind::{Abs, Add, ReLU};
    // A fusion that takes in a consumer only if nothing else uses the results of its producers.
    let sole_consumers = Fusion {
        grow: |group, op| {
            let is_shared = |&&producer: &&usize| group.graph.consumer_count(producer) > 1;
            let shared = group.graph.producers(op).find(is_shared);
            match shared {
                Some(producer) if group.members.contains(producer) => {
                    FusionVerdict::Rejected("another op uses the result as well")
                }
                _ => FusionVerdict::Matched,
            }
        },
        ..ALL_BUT_EXP
    };
    // The result of ReLU goes to Abs and Add.
    let graph = graph(&[(Abs, &[0], 1), (ReLU, &[1], 2), (Abs, &[2], 3), (Add, &[2, 4], 5)]);
    let (groups, explanations) = groups_of(&graph, sole_consumers);
    assert_eq!(groups, [vec![0, 1], vec![2], vec![3]]);
    let refused = explanations.iter().filter(|line| matches!(line.verdict, FusionVerdict::Rejected(_)));
    let refused: Vec<_> =
        refused.map(|line| (line.seed.id.get(), line.neighbour.map(|op| op.id.get()))).collect();
    assert_eq!(refused, [(0, Some(2)), (0, Some(3))]);
}

#[test]
fn a_refusal_of_the_fusion_is_listed_with_its_reason() {
    use OpKind::Abs;
    let chain: Vec<(OpKind, Vec<usize>, usize)> = (0..6).map(|i| (Abs, vec![i], i + 1)).collect();
    let chain: Vec<(OpKind, &[usize], usize)> = chain.iter().map(|(k, i, o)| (*k, &i[..], *o)).collect();
    let (groups, explanations) = groups(&graph(&chain));
    assert_eq!(groups, [vec![0, 1, 2, 3], vec![4, 5]]);
    let refusal = FusionVerdict::Rejected("four ops are enough");
    assert!(explanations.iter().any(|e| e.verdict == refusal && e.neighbour.is_some()), "{explanations:?}");
}

#[test]
fn groups_do_not_depend_on_the_order_of_add_op() {
    use OpKind::{Abs, Add, Exp, ReLU};
    let ops: [(OpKind, &[usize], usize); 4] =
        [(Abs, &[0], 1), (ReLU, &[1], 2), (Exp, &[2], 3), (Add, &[3, 1], 4)];
    let build = |order: [usize; 4]| {
        let mut graph = Graph::new();
        for id in order {
            let (kind, inputs, output) = ops[id];
            let op = Op::new(id, kind).inputs_from(inputs.iter().map(|&id| tensor(id)));
            graph.add_op(op.output(tensor(output))).unwrap();
        }
        graph.finalize().unwrap();
        groups(&graph).0
    };
    let expected = build([0, 1, 2, 3]);
    assert_eq!(build([3, 2, 1, 0]), expected);
    assert_eq!(build([2, 0, 3, 1]), expected);
}

/// Groups by the same rules, each question answered anew: every joining starts the round of neighbours again,
/// and a path is looked for by a walk over the whole graph.
fn plainly_grown(graph: &OpGraph<'_>, fusion: &Fusion) -> (Vec<OpGroup>, Vec<Explanation>) {
    let mut formed: Vec<Vec<usize>> = Vec::new();
    let mut explanations = Vec::new();
    for (seed, op) in graph.ops.iter().enumerate() {
        let is_taken = |op: usize| formed.iter().any(|group| group.contains(&op));
        if is_taken(seed) || !(fusion.seed)(op) {
            continue;
        }
        let mut group = vec![seed];
        let refused = loop {
            let mut seen: BTreeSet<usize> = group.iter().copied().collect();
            let mut refused = Vec::new();
            let mut neighbours = group.iter().flat_map(|&op| graph.neighbours(op));
            let joining = neighbours.find(|&(neighbour, _)| {
                if is_taken(neighbour) || !seen.insert(neighbour) {
                    return false;
                }
                let mut verdict =
                    (fusion.grow)(&GroupView { graph, members: &group, found: &OnceCell::new() }, neighbour);
                if verdict == FusionVerdict::Matched
                    && !is_plainly_convex(graph, &[&group[..], &[neighbour]].concat(), &formed)
                {
                    verdict = FusionVerdict::Rejected("a path would leave the group and come back into it");
                }
                if verdict != FusionVerdict::Matched {
                    refused.push((neighbour, verdict.clone()));
                }
                verdict == FusionVerdict::Matched
            });
            match joining {
                Some((neighbour, _)) => group.push(neighbour),
                None => break refused,
            }
        };
        let explain = |neighbour: Option<usize>, verdict| Explanation {
            fusion: fusion.name,
            seed: op.op_ref(),
            neighbour: neighbour.map(|op| graph.ops[op].op_ref()),
            verdict,
        };
        explanations.extend(refused.into_iter().map(|(op, verdict)| explain(Some(op), verdict)));
        explanations.push(explain(None, FusionVerdict::Matched));
        group.sort_unstable();
        formed.push(group);
    }
    let alone = (0..graph.ops.len()).filter(|op| !formed.iter().any(|group| group.contains(op)));
    let alone: Vec<OpGroup> = alone.map(|op| OpGroup { ops: vec![op], fused: None }).collect();
    let formed = formed.into_iter().map(|ops| {
        let view = GroupView { graph, members: &ops, found: &OnceCell::new() };
        let fused = (fusion.matches)(&view).ok();
        OpGroup { ops, fused }
    });
    (graph.in_run_order(formed.chain(alone).collect()), explanations)
}

fn is_plainly_convex(graph: &OpGraph<'_>, group: &[usize], formed: &[Vec<usize>]) -> bool {
    let leaving = group.iter().flat_map(|&op| graph.consumers(op)).filter(|op| !group.contains(op));
    let mut outside: Vec<usize> = leaving.copied().collect();
    let mut seen = BTreeSet::new();
    while let Some(op) = outside.pop() {
        if group.contains(&op) {
            return false;
        }
        if seen.insert(op) {
            let together = formed.iter().find(|formed| formed.contains(&op)).map_or(&[][..], |formed| formed);
            outside.extend(together.iter().chain(graph.consumers(op)));
        }
    }
    true
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// A fusion with other limits than those of the table.
fn limited<const MAX: usize>() -> Fusion {
    Fusion {
        grow: |group, op| match group.graph.ops[op].kind() {
            OpKind::Exp => FusionVerdict::NoMatch,
            _ if group.members.len() == MAX => FusionVerdict::Rejected("the group is full"),
            _ => FusionVerdict::Matched,
        },
        ..ALL_BUT_EXP
    }
}

/// Ops as (kind, inputs), each with its index as its id and as that of its output.
type Form = Vec<(OpKind, Vec<usize>)>;

fn graph_of(form: &Form) -> Graph {
    let ops: Vec<_> = form.iter().enumerate().map(|(id, (kind, inputs))| (*kind, &inputs[..], id)).collect();
    graph(&ops)
}

/// A tensor that no op of a form makes.
const INPUT: usize = usize::MAX;

/// Ops that take results of any earlier ones, or of the last `reach`; of eight, `outside` are of no fusion.
fn random_form(random: &mut Random, count: usize, reach: usize, outside: usize) -> Form {
    let op = |at: usize| {
        let mut pick =
            || if at == 0 || random.below(9) == 0 { INPUT } else { at - 1 - random.below(reach.min(at)) };
        let (a, b) = (pick(), pick());
        match random.below(8) {
            n if n < outside => (OpKind::Exp, vec![a]),
            n if n < 5 => (OpKind::Add, vec![a, b]),
            _ => (OpKind::Abs, vec![a]),
        }
    };
    (0..count).map(op).collect()
}

#[test]
fn groups_are_those_of_the_plain_way() {
    let mut random = Random(1);
    let mut wrong = Vec::new();
    for seed in 0..600 {
        let (count, reach, outside) = (2 + random.below(60), 1 + random.below(30), random.below(4));
        let form = random_form(&mut random, count, reach, outside);
        let fusion = match seed % 3 {
            0 => limited::<3>(),
            1 => limited::<8>(),
            _ => limited::<64>(),
        };
        let graph = graph_of(&form);
        let op_graph = OpGraph::new(&graph).unwrap();
        let mut explanations = Vec::new();
        let groups =
            group(&op_graph, &[fusion], true, Some(&mut |explanation| explanations.push(explanation)));
        let plain = match seed % 3 {
            0 => plainly_grown(&op_graph, &limited::<3>()),
            1 => plainly_grown(&op_graph, &limited::<8>()),
            _ => plainly_grown(&op_graph, &limited::<64>()),
        };
        assert_eq!(groups.iter().map(|group| group.ops.len()).sum::<usize>(), count);
        if (&groups, &explanations) != (&plain.0, &plain.1) {
            wrong.push((seed, count, reach, outside));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Forms of graphs of about a number of ops, by name.
fn forms(count: usize) -> BTreeMap<&'static str, Form> {
    use OpKind::{Abs, Add, Exp};
    let half = count / 2;
    let mut random = Random(count as u64);
    BTreeMap::from([
        ("a chain", (0..count).map(|i| (Abs, vec![i.wrapping_sub(1)])).collect()),
        ("a fan", (0..count).map(|i| (Abs, vec![if i == 0 { INPUT } else { 0 }])).collect()),
        (
            "a fan of chains",
            (0..count).map(|i| (Abs, vec![if i == 0 { INPUT } else { i.saturating_sub(100) }])).collect(),
        ),
        (
            // Each consumer of the hub also takes what another op makes of it.
            "a hub of refused consumers",
            (0..count)
                .map(|i| match i {
                    0 => (Abs, vec![INPUT]),
                    i if i < half => (Exp, vec![0]),
                    i => (Add, vec![0, 1 + (i - half) % (half - 1)]),
                })
                .collect(),
        ),
        (
            // The hub is of no fusion, and so are none of its neighbours' other neighbours.
            "a hub between pairs",
            (0..count)
                .map(|i| match i {
                    0 => (Exp, vec![INPUT]),
                    i if i < half => (Abs, vec![INPUT]),
                    i => (Add, vec![0, 1 + (i - half) % (half - 1)]),
                })
                .collect(),
        ),
        (
            "a recurrence over halves",
            (0..count)
                .map(|i| match i {
                    0 => (Abs, vec![INPUT]),
                    i => (Add, vec![i - 1, i / 2]),
                })
                .collect(),
        ),
        (
            // The last op takes the result of the first, with everything else in between.
            "one wide group",
            (0..count)
                .map(|i| match i {
                    0 => (Abs, vec![INPUT]),
                    i if i == count - 1 => (Add, vec![0, INPUT]),
                    i if i % 3 == 1 => (Exp, vec![INPUT]),
                    i => (Abs, vec![i - 1]),
                })
                .collect(),
        ),
        (
            // Each op of the first half goes with one of the second; a chain of another fusion takes all of
            // the first.
            "many wide groups",
            (0..count)
                .map(|i| match i {
                    i if i >= half => (Add, vec![2 * ((i - half) / 2), INPUT]),
                    i if i % 2 == 0 => (Abs, vec![INPUT]),
                    i => (Exp, vec![i - 1]),
                })
                .collect(),
        ),
        (
            "a tree of sums",
            (0..count)
                .map(|i| match i {
                    i if i < half || i == 2 * half - 1 => (Abs, vec![INPUT]),
                    i => (Add, vec![2 * (i - half), 2 * (i - half) + 1]),
                })
                .collect(),
        ),
        ("random, from anywhere", random_form(&mut random, count, count, 1)),
        ("random, from near by", random_form(&mut random, count, 40, 2)),
        ("random, in layers", random_form(&mut random, count, 400, 0)),
    ])
}

/// The most steps an op costs at each doubling of the graph, over all forms. Each edge that is looked at is a
/// step.
const STEPS: u64 = 5;

#[test]
fn partitioning_takes_n_log_n_steps_whatever_the_form() {
    let mut wrong = Vec::new();
    for count in [1_000, 2_000, 4_000, 8_000] {
        for (name, form) in forms(count) {
            let graph = graph_of(&form);
            let op_graph = OpGraph::new(&graph).unwrap();
            let mut growth = Growth::new(&op_graph, None);
            growth.run(&[limited::<64>()], true);
            let limit = STEPS * count as u64 * u64::from(count.ilog2());
            let steps = growth.steps();
            println!("{name}, {count} ops: {steps} steps, {:.2} of the limit", steps as f64 / limit as f64);
            if steps > limit {
                wrong.push((name, count, steps, limit));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Graphs whose ops share a tensor, which the fusions of the table look at, each of about a number of ops.
struct Hubs(Graph);

impl Hubs {
    fn new() -> Self {
        Self(Graph::new())
    }

    /// The result of an op on f32 of any shape, whose id is that of the op.
    fn op_with(
        &mut self,
        kind: OpKind,
        inputs: &[usize],
        data_types: &[DataType],
        attrs: &[(Attr, AttrValue)],
    ) -> usize {
        let id = self.0.ops().len();
        let inputs = inputs.iter().zip(data_types);
        let inputs = inputs.map(|(&id, &data_type)| LogicalTensor::unknown(id, data_type));
        let op = attrs.iter().fold(Op::new(id, kind), |op, (attr, value)| op.attr(*attr, value.clone()));
        let to = match kind {
            OpKind::Greater => DataType::Boolean,
            OpKind::GenIndex => DataType::S32,
            _ => DataType::F32,
        };
        let op = op.inputs_from(inputs);
        let op = if kind == OpKind::End { op } else { op.output(LogicalTensor::unknown(id, to)) };
        self.0.add_op(op).unwrap();
        id
    }

    fn op(&mut self, kind: OpKind, inputs: &[usize]) -> usize {
        let attrs: &[(Attr, AttrValue)] = match kind {
            OpKind::StaticTranspose => &[(Attr::Order, [0i64, 1, 3, 2].as_slice().into())],
            OpKind::GenIndex | OpKind::Concat => &[(Attr::Axis, 0i64.into())],
            OpKind::LayerNorm => &[(Attr::KeepStats, false.into())],
            _ => &[],
        };
        self.op_with(kind, inputs, &vec![DataType::F32; inputs.len()], attrs)
    }

    fn select(&mut self, cond: usize, then: usize, other: usize) -> usize {
        let data_types = [DataType::Boolean, DataType::F32, DataType::F32];
        self.op_with(OpKind::Select, &[cond, then, other], &data_types, &[])
    }

    /// Attention over keys, values and an addend for the scores.
    fn attention(&mut self, [keys, values, mask, scale]: [usize; 4]) -> usize {
        let scores = self.op(OpKind::MatMul, &[FREE, keys]);
        let scores = self.op(OpKind::Multiply, &[scores, scale]);
        let scores = self.op(OpKind::Add, &[scores, mask]);
        let shares = self.op(OpKind::SoftMax, &[scores]);
        self.op(OpKind::MatMul, &[shares, values])
    }

    /// Concatenations of many, as many at once as one op takes.
    fn concat(&mut self, all: &[usize]) {
        for some in all.chunks(64) {
            self.op(OpKind::Concat, some);
        }
    }

    /// The sum of many by pairs.
    fn tree(&mut self, mut row: Vec<usize>) -> usize {
        while row.len() > 1 {
            row = row
                .chunks(2)
                .map(|pair| if pair.len() == 2 { self.op(OpKind::Add, pair) } else { pair[0] })
                .collect();
        }
        row[0]
    }
}

/// A tensor that no op makes.
const FREE: usize = 1 << 40;

type Hub = fn(&mut Hubs, usize);

/// Graphs in which about so many ops share a tensor.
const HUBS: [(&str, Hub); 26] = [
    ("keys of attention", |b, n| {
        let keys = b.op(OpKind::StaticTranspose, &[FREE]);
        for _ in 0..n / 5 {
            b.attention([keys, FREE, FREE, FREE]);
        }
    }),
    ("values of attention", |b, n| {
        let values = b.op(OpKind::StaticTranspose, &[FREE]);
        for _ in 0..n / 5 {
            b.attention([FREE, values, FREE, FREE]);
        }
    }),
    ("the mask of attention", |b, n| {
        let mask = b.op(OpKind::Abs, &[FREE]);
        for _ in 0..n / 5 {
            b.attention([FREE, FREE, mask, FREE]);
        }
    }),
    ("the scale of attention", |b, n| {
        let scale = b.op(OpKind::Abs, &[FREE]);
        for _ in 0..n / 5 {
            b.attention([FREE, FREE, FREE, scale]);
        }
    }),
    ("scores without values", |b, n| {
        let scores = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n {
            b.op(OpKind::SoftMax, &[scores]);
        }
    }),
    ("scores of attention", |b, n| {
        let scores = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n / 2 {
            let shares = b.op(OpKind::SoftMax, &[scores]);
            b.op(OpKind::MatMul, &[shares, FREE]);
        }
    }),
    ("scores that others use", |b, n| {
        let scores = b.op(OpKind::MatMul, &[FREE, FREE]);
        let shares = b.op(OpKind::SoftMax, &[scores]);
        b.op(OpKind::MatMul, &[shares, FREE]);
        for _ in 0..n {
            b.op(OpKind::Wildcard, &[scores]);
        }
    }),
    ("the result of attention, refused", |b, n| {
        let result = b.attention([FREE; 4]);
        for _ in 0..n {
            b.op(OpKind::MatMul, &[result, FREE]);
        }
    }),
    ("the result of attention, scaled", |b, n| {
        let result = b.attention([FREE; 4]);
        for _ in 0..n {
            b.op(OpKind::Multiply, &[result, FREE]);
        }
    }),
    ("exponentials of a product", |b, n| {
        let scores = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n {
            b.op(OpKind::Exp, &[scores]);
        }
    }),
    ("indices of an exponential", |b, n| {
        let scores = b.op(OpKind::MatMul, &[FREE, FREE]);
        let shares = b.op(OpKind::Exp, &[scores]);
        for _ in 0..n {
            b.op(OpKind::GenIndex, &[shares]);
        }
    }),
    ("a product that norms use", |b, n| {
        let product = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n {
            b.op(OpKind::LayerNorm, &[product, FREE + 1, FREE + 2]);
        }
    }),
    ("a product that products use", |b, n| {
        let product = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n {
            b.op(OpKind::MatMul, &[product, FREE]);
        }
    }),
    ("a norm that products use", |b, n| {
        let norm = b.op(OpKind::LayerNorm, &[FREE, FREE + 1, FREE + 2]);
        for _ in 0..n {
            b.op(OpKind::MatMul, &[norm, FREE]);
        }
    }),
    ("the right operand of products", |b, n| {
        let weights = b.op(OpKind::StaticTranspose, &[FREE]);
        for _ in 0..n {
            b.op(OpKind::MatMul, &[FREE, weights]);
        }
    }),
    ("the bias of chains", |b, n| {
        let bias = b.op(OpKind::Abs, &[FREE]);
        (0..n).fold(FREE, |last, _| b.op(OpKind::Add, &[last, bias]));
    }),
    ("the bias of products", |b, n| {
        let bias = b.op(OpKind::Abs, &[FREE]);
        for _ in 0..n / 2 {
            let product = b.op(OpKind::MatMul, &[FREE, FREE]);
            b.op(OpKind::Add, &[product, bias]);
        }
    }),
    ("the condition of selects", |b, n| {
        let cond = b.op(OpKind::Greater, &[FREE, FREE]);
        (0..n).fold(FREE, |last, _| b.select(cond, last, FREE));
    }),
    ("the condition of selects of products", |b, n| {
        let cond = b.op(OpKind::Greater, &[FREE, FREE]);
        for _ in 0..n / 3 {
            let product = b.op(OpKind::MatMul, &[FREE, FREE]);
            let chosen = b.select(cond, product, FREE);
            b.op(OpKind::SoftMax, &[chosen]);
        }
    }),
    ("a result that ends use", |b, n| {
        let result = b.op(OpKind::Abs, &[FREE]);
        for _ in 0..n {
            b.op(OpKind::End, &[result]);
        }
    }),
    ("a product that ends use", |b, n| {
        let product = b.op(OpKind::MatMul, &[FREE, FREE]);
        for _ in 0..n {
            b.op(OpKind::End, &[product]);
        }
    }),
    ("products that one op joins", |b, n| {
        let all: Vec<usize> = (0..n).map(|_| b.op(OpKind::MatMul, &[FREE, FREE])).collect();
        b.concat(&all);
    }),
    ("rows that one op joins", |b, n| {
        let all: Vec<usize> = (0..n).map(|_| b.op(OpKind::SoftMax, &[FREE])).collect();
        b.concat(&all);
    }),
    ("attentions that one op joins", |b, n| {
        let all: Vec<usize> = (0..n / 5).map(|_| b.attention([FREE; 4])).collect();
        b.concat(&all);
    }),
    ("a sum of products that others use", |b, n| {
        let all: Vec<usize> = (0..n / 3).map(|_| b.op(OpKind::MatMul, &[FREE, FREE])).collect();
        let sum = b.tree(all);
        for _ in 0..n / 3 {
            b.op(OpKind::Wildcard, &[sum]);
        }
    }),
    ("moves behind a product", |b, n| {
        let product = b.op(OpKind::MatMul, &[FREE, FREE]);
        (0..n).fold(product, |last, _| b.op(OpKind::StaticTranspose, &[last]));
    }),
];

#[test]
fn the_fusions_take_n_log_n_steps_at_hubs() {
    let steps = |hub: Hub, count: usize| {
        let mut hubs = Hubs::new();
        hub(&mut hubs, count);
        hubs.0.finalize().unwrap();
        let op_graph = OpGraph::new(&hubs.0).unwrap();
        let mut said = 0u64;
        let mut explain = |_| said += 1;
        let mut growth = Growth::new(&op_graph, Some(&mut explain));
        growth.run(FUSIONS, true);
        growth.steps() + said
    };
    let mut wrong = Vec::new();
    for (name, hub) in HUBS {
        let [few, many] = [1_000, 8_000].map(|count| steps(hub, count));
        println!("{name}: {few} steps, {many} for eight times the ops");
        // The logarithm grows by a third.
        if many > 12 * few.max(10_000) {
            wrong.push((name, few, many));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
