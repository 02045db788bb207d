//! Promise: a column of scores that has no key takes its share of the weights, in one partition with its
//! attention.

use crate::attention::{
    Builder, Expression, Form, Heads, Lie, Port, Row, Setup, check_all, floats, masks, numbers, value_of,
};
use std::collections::BTreeMap;

use crate::common::{Random, engines, report};
use sterna::reference::{self, Value};
use sterna::{
    Attention, AttentionBackward, Attr, AttrValue, DataType, Engine, FastForm, Graph, LogicalTensor, Op,
    OpKind, Policy, Stream, TensorBuf, TensorId,
};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// Attention with a column, and what is around it.
#[derive(Debug, Clone, Copy)]
struct Case {
    of_scores: DataType,
    /// The graph knows its dims.
    is_known: bool,
    inf_as_zero: bool,
    stats: bool,
    /// The numbers are those of heads, repeated for the queries by an op.
    by_head: bool,
    /// An op changes the weights.
    halves: bool,
    /// The numbers have the type of the queries, and become f32 before the column.
    widens: bool,
}

const PLAIN: Case = Case {
    of_scores: D::F32,
    is_known: true,
    inf_as_zero: false,
    stats: false,
    by_head: false,
    halves: false,
    widens: false,
};

/// The attributes of a Slice up to a column.
fn up_to(end: i64) -> [(Attr, AttrValue); 3] {
    let range = [(Attr::Axes, -1), (Attr::Starts, 0), (Attr::Ends, end)];
    range.map(|(attr, number): (Attr, i64)| (attr, vec![number].into()))
}

/// The column: for each query, or for each head.
fn column(builder: &mut Builder, heads: &Heads, form: Case, number: impl Fn(usize) -> f32) -> Port {
    let of_queries = [&heads.batch[..], &[heads.queries, 1]].concat();
    let of_heads = [&heads.batch[..], &[1, 1]].concat();
    let dims = if form.by_head { &of_heads } else { &of_queries };
    let count = dims.iter().product::<i64>() as usize;
    let column: Vec<f32> = (0..count).map(number).collect();
    if form.widens {
        let column = builder.input(heads.data_type, dims, None, &column);
        return builder.op(K::TypeCast, &[&column], form.of_scores);
    }
    let column = builder.input(form.of_scores, dims, None, &column);
    if !form.by_head {
        return column;
    }
    let zeros = vec![0.0; of_queries.iter().product::<i64>() as usize];
    let zeros = builder.input(form.of_scores, &of_queries, None, &zeros);
    builder.op(K::Add, &[&column, &zeros], form.of_scores)
}

fn setup(
    heads: &Heads,
    form: Case,
    mask: impl Fn(&mut Builder, &Port) -> Port,
    number: impl Fn(usize) -> f32,
) -> Setup {
    let mut builder = Builder::new(form.is_known);
    let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(11));
    let scores = builder.matmul(&q, &k, !heads.key_view, form.of_scores);
    let scale = builder.scalar(form.of_scores, (heads.d as f32).sqrt());
    let scores = builder.op(K::Divide, &[&scores, &scale], form.of_scores);
    let scores = mask(&mut builder, &scores);
    let column = column(&mut builder, heads, form, number);
    let axis = [(Attr::Axis, (-1i64).into())];
    let both = builder.op_with(K::Concat, &[&scores, &column], &[form.of_scores], &axis).remove(0);
    let weights = match form.stats {
        true => builder.softmax_with_stats(&both, form.inf_as_zero, heads.data_type)[0].clone(),
        false => builder.softmax(&both, form.inf_as_zero, heads.data_type),
    };
    let mut weights = builder.op_with(K::Slice, &[&weights], &[heads.data_type], &up_to(-1)).remove(0);
    if form.halves {
        let half = builder.scalar(heads.data_type, 0.5);
        weights = builder.op(K::Multiply, &[&weights, &half], heads.data_type);
    }
    builder.matmul(&weights, &v, false, heads.data_type);
    builder.finish()
}

fn unmasked(_: &mut Builder, scores: &Port) -> Port {
    scores.clone()
}

/// A number within ±4.
fn some(at: usize) -> f32 {
    (at * 37 % 101) as f32 / 12.0 - 4.0
}

/// Faults of rows that are not one partition whose attention is one phase.
fn apart(rows: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, setup) in rows {
        let partitions = setup.partitions(Policy::Fusion);
        let [partition] = &partitions[..] else {
            wrong.push(format!("{name}: {} partitions", partitions.len()));
            continue;
        };
        let inputs: Vec<LogicalTensor> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
        let compiled = partition.compile_for(&Engine::new(), &inputs, partition.outputs()).unwrap();
        let fallbacks = compiled.plan().fallbacks;
        if fallbacks.iter().any(|fallback| fallback.form == FastForm::Attention) {
            wrong.push(format!("{name}: {fallbacks:?}"));
        }
    }
    wrong
}

fn checked(rows: &[Row]) {
    let mut wrong = apart(rows);
    wrong.extend(check_all(rows, &engines()));
    report(&wrong);
}

/// Sizes of blocks of queries, and of few queries.
const SIZES: [[i64; 2]; 5] = [[70, 130], [64, 64], [3, 700], [1, 1100], [5, 7]];

#[test]
fn a_column_without_a_key_takes_its_share() {
    let mut rows = Vec::new();
    for data_type in TYPES {
        for sizes in SIZES {
            for (name, form) in [
                ("plain", PLAIN),
                ("by head", Case { by_head: true, ..PLAIN }),
                ("of the type", Case { of_scores: data_type, ..PLAIN }),
                ("unknown dims", Case { is_known: false, ..PLAIN }),
                ("statistics", Case { stats: true, inf_as_zero: true, ..PLAIN }),
                ("halved", Case { halves: true, ..PLAIN }),
            ] {
                let heads = Heads::new(data_type, &[2, 3], sizes, 24);
                rows.push((format!("{data_type} {sizes:?} {name}"), setup(&heads, form, unmasked, some)));
            }
            if data_type != D::F32 {
                let heads = Heads::new(data_type, &[2, 3], sizes, 24);
                let form = Case { widens: true, ..PLAIN };
                rows.push((format!("{data_type} {sizes:?} widened"), setup(&heads, form, unmasked, some)));
            }
            let heads = Heads { kv_batch: vec![2, 1], ..Heads::new(data_type, &[2, 3], sizes, 24) };
            rows.push((format!("{data_type} {sizes:?} groups"), setup(&heads, PLAIN, unmasked, some)));
            let heads = Heads { lie: Lie::TokenMajor, ..Heads::new(data_type, &[2, 3], sizes, 24) };
            rows.push((format!("{data_type} {sizes:?} views"), setup(&heads, PLAIN, unmasked, some)));
        }
    }
    checked(&rows);
}

#[test]
fn masks_and_columns_without_keys_go_together() {
    let mut rows = Vec::new();
    for [queries, keys] in [[130, 200], [3, 700]] {
        let all: Vec<(&str, Expression)> = masks(queries, keys);
        for (name, mask) in
            all.into_iter().filter(|(name, _)| ["causal", "sliding window", "padding"].contains(name))
        {
            for (form, fill) in
                [(Form::Boolean, f32::NEG_INFINITY), (Form::Expression, -1e4), (Form::Additive, f32::MIN)]
            {
                let heads = Heads::new(D::F32, &[2], [queries, keys], 16);
                let masked =
                    |builder: &mut Builder, scores: &Port| builder.masked(scores, &mask, form, false, fill);
                rows.push((format!("{name} {form:?} {fill} {queries}"), setup(&heads, PLAIN, masked, some)));
            }
        }
    }
    // Queries without a key.
    for inf_as_zero in [false, true] {
        for queries in [70, 3] {
            let heads = Heads::new(D::F32, &[2], [queries, 130], 16);
            let nothing = |builder: &mut Builder, scores: &Port| {
                let none = builder.input(D::Boolean, &[1, 1], None, &[0.0]);
                builder.select(&none, scores, f32::NEG_INFINITY, false)
            };
            let form = Case { inf_as_zero, ..PLAIN };
            for (name, number) in [("a number", 1.0), ("−∞", f32::NEG_INFINITY)] {
                rows.push((
                    format!("{queries} queries, {name}"),
                    setup(&heads, form, nothing, move |_| number),
                ));
            }
        }
    }
    checked(&rows);
}

#[test]
fn columns_of_every_size_are_right() {
    let mut rows = Vec::new();
    let extremes = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 300.0, -300.0, 1e-40];
    for sizes in [[70, 130], [3, 700]] {
        for stats in [false, true] {
            let heads = Heads::new(D::F32, &[2], sizes, 16);
            let form = Case { stats, ..PLAIN };
            let number = move |at: usize| if at.is_multiple_of(3) { some(at) } else { extremes[at % 8] };
            rows.push((format!("{sizes:?}, statistics {stats}"), setup(&heads, form, unmasked, number)));
        }
    }
    checked(&rows);
}

#[test]
fn a_column_of_minus_infinity_changes_no_bit() {
    let mut wrong = Vec::new();
    for sizes in [[130, 200], [3, 700]] {
        let heads = Heads::new(D::F32, &[2], sizes, 16);
        let with = setup(&heads, PLAIN, unmasked, |_| f32::NEG_INFINITY);
        let mut builder = Builder::new(true);
        let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(11));
        let scores = builder.matmul(&q, &k, true, D::F32);
        let scale = builder.scalar(D::F32, 4.0);
        let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
        let weights = builder.softmax(&scores, false, D::F32);
        builder.matmul(&weights, &v, false, D::F32);
        let without = builder.finish();
        for engine in engines() {
            let [of_with, of_without] = [&with, &without].map(|setup| {
                let made = setup.run(&setup.partitions(Policy::Fusion), &engine).unwrap();
                floats(&made[&setup.outputs[0]]).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            });
            if of_with != of_without {
                wrong.push((sizes, engine.level()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn other_columns_keep_the_ops_apart_and_are_right() {
    let engine = Engine::new();
    let mut rows = Vec::new();
    for columns in [2, 0] {
        let heads = Heads::new(D::F32, &[2], [20, 30], 8);
        let mut builder = Builder::new(false);
        let mut random = Random::new(3);
        let [q, k, v] = heads.inputs(&mut builder, &mut random);
        let scores = builder.matmul(&q, &k, true, D::F32);
        let column = numbers(&mut random, &[2, 20, columns], 1.0);
        let column = builder.input(D::F32, &[2, 20, columns], None, &column);
        let axis = [(Attr::Axis, (-1i64).into())];
        let both = builder.op_with(K::Concat, &[&scores, &column], &[D::F32], &axis).remove(0);
        let weights = builder.softmax(&both, false, D::F32);
        let weights = builder.op_with(K::Slice, &[&weights], &[D::F32], &up_to(30)).remove(0);
        builder.matmul(&weights, &v, false, D::F32);
        rows.push((format!("{columns} columns"), builder.finish()));
    }
    let mut wrong = check_all(&rows, &engines());
    for (name, setup) in &rows {
        let partitions = setup.partitions(Policy::Fusion);
        let [partition] = &partitions[..] else { continue };
        let inputs: Vec<LogicalTensor> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
        let compiled = partition.compile_for(&engine, &inputs, partition.outputs()).unwrap();
        let fallbacks = compiled.plan().fallbacks;
        if !fallbacks.iter().any(|fallback| fallback.form == FastForm::Attention) {
            wrong.push(format!("{name}: {fallbacks:?}"));
        }
    }
    report(&wrong);
}

/// The options of sinks, of tensors of some dims, for scores [2, 6, queries, keys].
fn options(queries: &[i64], keys: &[i64], sinks: &[i64], groups: Option<i64>, is_known: bool) -> Attention {
    let tensor = |id, dims: &[i64]| match is_known {
        true => LogicalTensor::strided(id, D::F32, dims).unwrap(),
        false => LogicalTensor::unknown(id, D::F32),
    };
    let [q, k, v, dst] =
        [(0, queries), (1, keys), (2, keys), (3, queries)].map(|(id, dims)| tensor(id, dims));
    Attention::new(q, k, v, dst).scale(0.25).sinks(tensor(4, sinks)).groups(groups)
}

#[test]
fn options_of_sinks_are_the_column() {
    let mut wrong = Vec::new();
    type Dims<'a> = &'a [i64];
    let rows: [(&str, [Dims<'_>; 3], Option<i64>, bool); 5] = [
        ("heads", [&[2, 6, 70, 16], &[2, 6, 90, 16], &[6, 1, 1]], None, true),
        ("queries", [&[2, 6, 70, 16], &[2, 6, 90, 16], &[2, 6, 70, 1]], None, true),
        ("unknown dims", [&[2, 6, 3, 16], &[2, 6, 90, 16], &[6, 1, 1]], None, false),
        ("groups of rank 4", [&[2, 6, 70, 16], &[2, 2, 90, 16], &[6, 1, 1]], Some(3), true),
        ("groups of rank 5", [&[2, 2, 3, 70, 16], &[2, 2, 1, 90, 16], &[2, 3, 1, 1]], Some(3), true),
    ];
    for (name, [of_queries, of_keys, of_sinks], groups, is_known) in rows {
        let mut graph = Graph::new();
        graph.attention(&options(of_queries, of_keys, of_sinks, groups, is_known)).unwrap();
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let [partition] = &partitions[..] else {
            wrong.push(format!("{name}: {} partitions", partitions.len()));
            continue;
        };
        let mut random = Random::new(5);
        let inputs = [(0, of_queries), (1, of_keys), (2, of_keys), (4, of_sinks)]
            .map(|(id, dims)| (TensorId::new(id), value_of(D::F32, dims, &numbers(&mut random, dims, 2.0))));
        let inputs = BTreeMap::from(inputs);
        let allowed = reference::enclose(graph.ops(), &inputs, &[3.into()]).unwrap();
        for engine in engines() {
            let descs: Vec<LogicalTensor> = (inputs.iter())
                .map(|(id, value)| LogicalTensor::strided(id.get(), D::F32, value.dims()).unwrap())
                .collect();
            let compiled = partition.compile_for(&engine, &descs, partition.outputs()).unwrap();
            if !compiled.plan().fallbacks.iter().all(|fallback| fallback.form != FastForm::Attention) {
                wrong.push(format!("{name}: {:?}", compiled.plan().fallbacks));
            }
            let given: Vec<TensorBuf> = (descs.iter().zip(inputs.values()))
                .map(|(desc, value)| {
                    let mut buffer = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
                    value.write(&mut buffer).unwrap();
                    buffer
                })
                .collect();
            let mut made = TensorBuf::zeroed(compiled.port(3).unwrap().clone(), &engine).unwrap();
            let given: Vec<_> = given.iter().map(TensorBuf::as_tensor).collect();
            compiled.execute(&Stream::new(&engine), &given, &mut [made.as_tensor_mut()]).unwrap();
            let made = Value::read(&made.as_tensor()).unwrap();
            if let Some(at) = allowed[&TensorId::new(3)].first_outside(&made) {
                wrong.push(format!("{name}, {}: element {at}", engine.level()));
            }
        }
    }
    report(&wrong);
}

#[test]
fn ops_that_read_the_statistics_leave_a_column_in_its_partition() {
    let (queries, keys) = ([2, 6, 70, 16], [2, 6, 90, 16]);
    let stats = LogicalTensor::strided(5, D::F32, &[2, 6, 70, 1]).unwrap();
    let read = LogicalTensor::strided(90, D::F32, &[2, 6, 70, 1]).unwrap();
    for reader in [K::Exp, K::Wildcard, K::End] {
        let mut graph = Graph::new();
        graph.attention(&options(&queries, &keys, &[6, 1, 1], None, true).stats(stats.clone())).unwrap();
        let op = Op::new(99, reader).input(stats.clone());
        graph.add_op(if reader == K::End { op } else { op.output(read.clone()) }).unwrap();
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let of_softmax = partitions.iter().find(|one| one.ops().iter().any(|op| op.kind() == K::SoftMax));
        let of_softmax = of_softmax.unwrap();
        let products = of_softmax.ops().iter().filter(|op| op.kind() == K::MatMul).count();
        assert_eq!(products, 2, "{reader:?}");
        assert!(of_softmax.outputs().iter().any(|port| port.id() == TensorId::new(5)), "{reader:?}");
    }
}

#[test]
fn options_of_sinks_that_do_not_do_are_named() {
    let queries: &[i64] = &[2, 6, 70, 16];
    let plain = options(queries, queries, &[6, 1, 1], None, true);
    let of = |tensor: LogicalTensor| Graph::new().attention(&plain.clone().sinks(tensor)).unwrap_err();
    let booleans = of(LogicalTensor::strided(4, D::Boolean, &[6, 1, 1]).unwrap());
    assert!(booleans.to_string().contains("sinks are f32, bf16 or f16"), "{booleans}");
    let wide = of(LogicalTensor::strided(4, D::F32, &[6, 1, 2]).unwrap());
    assert!(wide.to_string().contains("the last dim of sinks"), "{wide}");
    // Statistics count the sinks, so gradients need them.
    let d = |id| LogicalTensor::strided(id, D::F32, queries).unwrap();
    let gradients = AttentionBackward::new(plain.clone(), d(5)).d_q(d(6));
    let without = Graph::new().attention_backward(&gradients).unwrap_err();
    assert!(without.to_string().contains("need the `stats` of forward"), "{without}");
    let stats = LogicalTensor::strided(7, D::F32, &[2, 6, 70, 1]).unwrap();
    let gradients = AttentionBackward::new(plain.stats(stats), d(5)).d_q(d(6));
    Graph::new().attention_backward(&gradients).unwrap();
}
