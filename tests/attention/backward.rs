//! Promise: the gradients of attention are one partition, in every form in which frameworks write them; they
//! are right, masked keys do not exist for them, and their bits do not depend on threads.

use std::collections::BTreeMap;

use crate::attention::{self, Builder, FORMS, Form, Heads, Lie, Port, Setup, floats, masks, value_of};
use crate::common::{Random, engines, faults_of, report};
use crate::gradients::{Gradients, OfMask, WEIGHTS, Weights};
use sterna::reference::Value;
use sterna::{
    Attr, AttrValue, DataType, Engine, LogicalTensor, OpKind, PhaseKind, Policy, TensorBuf, TileClass,
};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// A graph by name.
type Row = (String, Setup);

/// Runs each graph at every level, and collects what is wrong: graphs that are not one partition, plans
/// without the phase, and results outside of what the reference allows.
fn wrong(rows: &[Row], engines: &[Engine]) -> Vec<String> {
    faults_of(rows, usize::MAX, |row| wrong_of(row, engines))
}

fn wrong_of((name, setup): &Row, engines: &[Engine]) -> Vec<String> {
    let partitions = setup.partitions(Policy::Fusion);
    if partitions.len() != 1 {
        return vec![format!("{name}: {} partitions", partitions.len())];
    }
    let mut wrong = Vec::new();
    let allowed = setup.enclosures();
    for engine in engines {
        match phases(setup, engine) {
            kinds if kinds.contains(&PhaseKind::AttentionBackward) => {}
            kinds => wrong.push(format!("{name}: phases {kinds:?}")),
        }
        if let Err(why) = setup.check(engine, &allowed) {
            wrong.push(format!("{name}: {why}"));
        }
    }
    wrong
}

/// The phases of the one partition of a graph.
fn phases(setup: &Setup, engine: &Engine) -> Vec<PhaseKind> {
    let partition = &setup.partitions(Policy::Fusion)[0];
    let descs: Vec<_> = setup.inputs.iter().map(|given| given.desc.clone()).collect();
    let compiled = partition.compile_for(engine, &descs, partition.outputs()).unwrap();
    compiled.plan().nests.iter().map(|nest| nest.kind).collect()
}

/// No mask.
fn plain(_: &mut Builder, scores: &Port) -> Port {
    scores.clone()
}

fn causal(builder: &mut Builder, scores: &Port) -> Port {
    let cond = builder.causal(scores, false);
    builder.select(&cond, scores, f32::NEG_INFINITY, false)
}

#[test]
fn numbers_scale_gradients_in_their_partition() {
    let gradients = Gradients::new(Heads::new(D::F32, &[1, 2], [70, 130], 16), Weights::Stats);
    let (mut builder, results) = gradients.graph(3, plain);
    for result in results.iter().flatten() {
        let attrs: [(Attr, AttrValue); 2] = [(Attr::Shape, vec![1i64].into()), (Attr::Value, 0.5f32.into())];
        let number = builder.op_with(K::Fill, &[], &[D::F32], &attrs).remove(0);
        builder.op(K::Multiply, &[result, &number], D::F32);
    }
    report(&wrong(&[("gradients by numbers".into(), builder.finish())], &engines()));
}

#[test]
fn every_form_is_one_partition_and_right() {
    let mut rows: Vec<Row> = Vec::new();
    for (index, weights) in WEIGHTS.into_iter().enumerate() {
        for (queries, keys) in [(1, 1), (5, 3), (64, 64), (70, 130), (130, 70), (330, 65)] {
            let heads = Heads::new(D::F32, &[1, 2], [queries, keys], 16);
            let of = Gradients::new(heads, weights);
            let seed = (queries * 7 + keys + index as i64) as u64;
            rows.push((format!("{weights:?} {queries} {keys}"), of.setup(seed, plain)));
            rows.push((format!("{weights:?} {queries} {keys} causal"), of.setup(seed, causal)));
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn any_type_layout_and_choice_of_gradients_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for weights in WEIGHTS {
        for data_type in TYPES {
            let heads = Heads::new(data_type, &[1, 2], [70, 90], 16);
            let plain_of = Gradients::new(heads.clone(), weights);
            let name = |what: &str| format!("{weights:?} of {data_type}: {what}");
            for lie in [Lie::Dense, Lie::TokenMajor, Lie::Packed, Lie::Gaps] {
                for key_view in [false, true] {
                    let heads = Heads { lie, key_view, ..heads.clone() };
                    let of = Gradients { heads, ..plain_of.clone() };
                    rows.push((name(&format!("{lie:?}, keys as a view {key_view}")), of.setup(1, causal)));
                }
            }
            for [d, dv] in [[8, 24], [33, 5], [1, 7], [80, 64]] {
                let heads = Heads { d, dv, ..heads.clone() };
                let of = Gradients { heads, ..plain_of.clone() };
                rows.push((name(&format!("depths {d} and {dv}")), of.setup(2, causal)));
            }
            for chosen in 1..8u8 {
                let wanted = [0, 1, 2].map(|bit| chosen & 1 << bit != 0);
                let of = Gradients { wanted, ..plain_of.clone() };
                rows.push((name(&format!("wanted {wanted:?}")), of.setup(3, causal)));
            }
            let dropped = Gradients { has_dropout: true, ..plain_of.clone() };
            rows.push((name("dropout"), dropped.setup(4, causal)));
            let unknown = Gradients { is_known: false, ..plain_of.clone() };
            rows.push((name("unknown shapes"), unknown.setup(5, causal)));
            let mut grouped = Heads::new(data_type, &[1, 2, 3], [70, 90], 16);
            grouped.kv_batch = vec![1, 2, 1];
            for summed in [Some((2, true)), Some((2, false)), Some((-3, true)), None] {
                let of = Gradients { heads: grouped.clone(), summed, ..plain_of.clone() };
                rows.push((name(&format!("heads share keys, summed {summed:?}")), of.setup(6, causal)));
            }
            if data_type != D::F32 {
                let of = Gradients { of_scores: data_type, ..plain_of.clone() };
                rows.push((name("scores of the same type"), of.setup(7, causal)));
            }
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn what_follows_the_gradients_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    for weights in WEIGHTS {
        for what in ["moves", "casts and numbers", "a sum over tokens", "a sum over another axis each"] {
            let of = Gradients::new(Heads::new(D::Bf16, &[2, 3], [70, 90], 8), weights);
            let (mut builder, results) = of.graph(2, causal);
            let axes = |axis: i64| [(Attr::Axes, [axis].as_slice().into()), (Attr::KeepDims, true.into())];
            for (place, result) in results.iter().flatten().enumerate() {
                let tokens = result.dims[2];
                match what {
                    "moves" => {
                        let moved = builder.transpose(result, &[0, 2, 1, 3]);
                        let moved = builder.reshape(&moved, &[2, tokens, 24]);
                        builder.reorder(&moved);
                    }
                    "casts and numbers" => {
                        let wide = builder.op(K::TypeCast, &[result], D::F32);
                        let factor = builder.scalar(D::F32, 0.5);
                        builder.op(K::Multiply, &[&wide, &factor], D::F32);
                    }
                    "a sum over tokens" => {
                        builder.op_with(K::ReduceSum, &[result], &[D::Bf16], &axes(-2));
                    }
                    _ => {
                        let axis = [0, 1, 0][place];
                        builder.op_with(K::ReduceSum, &[result], &[D::Bf16], &axes(axis));
                    }
                }
            }
            rows.push((format!("{what}, {weights:?}"), builder.finish()));
        }
    }
    report(&wrong(&rows, &engines()));
}

/// Uses of the gradient of a mask, by name.
const OF_MASK: [(&str, OfMask); 6] = [
    ("as it is", |builder, slopes| builder.hand_out(slopes)),
    ("in another type", in_another_type),
    ("summed over heads", |builder, slopes| _ = summed(builder, slopes, &[0, 1], true)),
    ("summed over queries", |builder, slopes| _ = summed(builder, slopes, &[-2], false)),
    ("summed over heads, in another type", |builder, slopes| {
        let sum = summed(builder, slopes, &[1], true);
        in_another_type(builder, &sum);
    }),
    ("in other dims", |builder, slopes| {
        let [batch, heads, queries, keys] = slopes.dims[..] else { unreachable!("scores of four dims") };
        builder.reshape(slopes, &[batch * heads, queries, keys]);
    }),
];

fn in_another_type(builder: &mut Builder, port: &Port) {
    let to = if port.data_type() == D::F32 { D::Bf16 } else { D::F32 };
    builder.op(K::TypeCast, &[port], to);
}

fn summed(builder: &mut Builder, port: &Port, axes: &[i64], keeps: bool) -> Port {
    let attrs = [(Attr::Axes, axes.into()), (Attr::KeepDims, keeps.into())];
    builder.op_with(K::ReduceSum, &[port], &[port.data_type()], &attrs).remove(0)
}

#[test]
fn the_gradient_of_a_mask_is_one_more_result() {
    let mut rows: Vec<Row> = Vec::new();
    for weights in WEIGHTS {
        for (index, (what, of_mask)) in OF_MASK.into_iter().enumerate() {
            for (data_type, of_scores) in [(D::F32, D::F32), (D::Bf16, D::F32), (D::F16, D::F16)] {
                let name = |how: &str| format!("{what}, {how}, {weights:?} of {data_type} and {of_scores}");
                let heads = Heads::new(data_type, &[2, 2], [70, 130], 16);
                let of = Gradients { of_scores, of_mask: Some(of_mask), ..Gradients::new(heads, weights) };
                rows.push((name("causal"), of.setup(index as u64, causal)));
                let added = of.setup(index as u64, |builder, scores| {
                    let numbers = attention::numbers(&mut Random::new(7), &[1, 1, 70, 130], 1.0);
                    let bias = builder.input(scores.data_type(), &[1, 1, 70, 130], None, &numbers);
                    builder.op(K::Add, &[scores, &bias], scores.data_type())
                });
                rows.push((name("added"), added));
                let alone = Gradients { wanted: [index % 2 == 0, false, index % 3 == 0], ..of.clone() };
                if index % 2 == 0 {
                    rows.push((name("without some gradients"), alone.setup(index as u64, causal)));
                }
            }
        }
        let mut grouped = Heads::new(D::Bf16, &[1, 2, 3], [70, 90], 16);
        grouped.kv_batch = vec![1, 2, 1];
        let of_mask: OfMask = |builder, slopes| builder.hand_out(slopes);
        let of = Gradients { summed: Some((2, true)), ..Gradients::new(grouped, weights) };
        let of = Gradients { of_mask: Some(of_mask), ..of };
        rows.push((format!("heads share keys, {weights:?}"), of.setup(6, causal)));
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn every_mask_in_every_form_is_right() {
    let mut rows: Vec<Row> = Vec::new();
    let mut next = 0;
    for (name, mask) in masks(140, 200) {
        for (form, inverted) in FORMS.into_iter().flat_map(|form| [false, true].map(|of| (form, of))) {
            for fill in [f32::NEG_INFINITY, -1e4] {
                let (weights, data_type) = (WEIGHTS[next % 3], TYPES[next / 3 % 3]);
                next += 1;
                let of = Gradients::new(Heads::new(data_type, &[], [140, 200], 8), weights);
                let setup = of.setup(next as u64, |builder, scores| {
                    builder.masked(scores, &mask, form, inverted, fill)
                });
                let how = format!("{form:?} with {fill}, inverted {inverted}");
                rows.push((format!("{name} as {how}, {weights:?} of {data_type}"), setup));
            }
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn every_mask_is_right_for_heads_that_share_keys_and_with_dropout() {
    let mut rows: Vec<Row> = Vec::new();
    for (index, (name, mask)) in masks(90, 140).into_iter().enumerate() {
        for has_dropout in [false, true] {
            let at = index + usize::from(has_dropout);
            let (weights, data_type) = (WEIGHTS[at % 3], TYPES[at / 3 % 3]);
            let (form, inverted) = (FORMS[index / 2 % 3], index % 2 == 0);
            let fill = if at % 4 == 0 { -1e4 } else { f32::NEG_INFINITY };
            let of = match has_dropout {
                true => {
                    let of = Gradients::new(Heads::new(data_type, &[2], [90, 140], 8), weights);
                    Gradients { has_dropout, ..of }
                }
                false => {
                    let heads = Heads::new(data_type, &[2, 3], [90, 140], 8);
                    let heads = Heads { kv_batch: vec![2, 1], ..heads };
                    Gradients { summed: Some((1, true)), ..Gradients::new(heads, weights) }
                }
            };
            let setup =
                of.setup(at as u64, |builder, scores| builder.masked(scores, &mask, form, inverted, fill));
            let how = format!("{form:?} with {fill}, inverted {inverted}, dropout {has_dropout}");
            rows.push((format!("{name} as {how}, {weights:?} of {data_type}"), setup));
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn chains_with_more_than_a_mask_are_right() {
    type Chain = fn(&mut Builder, &Port) -> Port;
    let chains: [(&str, Chain); 3] = [
        ("bias for each key", |builder, scores| {
            let keys = *scores.dims.last().unwrap();
            let bias: Vec<f32> = (0..keys).map(|key| key as f32 / keys as f32).collect();
            let bias = builder.input(D::F32, &[keys], None, &bias);
            let scores = builder.op(K::Add, &[scores, &bias], D::F32);
            causal(builder, &scores)
        }),
        ("capped scores, whose slope nobody asks for", |builder, scores| {
            let cap = builder.scalar(D::F32, 5.0);
            let scaled = builder.op(K::Divide, &[scores, &cap], D::F32);
            let bent = builder.op(K::Tanh, &[&scaled], D::F32);
            builder.op(K::Multiply, &[&bent, &cap], D::F32)
        }),
        ("two masks, the second one of numbers", |builder, scores| {
            let scores = causal(builder, scores);
            let keys = *scores.dims.last().unwrap();
            let bias: Vec<f32> =
                (0..keys).map(|key| if key % 5 == 1 { f32::NEG_INFINITY } else { 0.0 }).collect();
            let bias = builder.input(D::F32, &[keys], None, &bias);
            builder.op(K::Add, &[&scores, &bias], D::F32)
        }),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (name, chain) in chains {
        for weights in WEIGHTS {
            let of = Gradients::new(Heads::new(D::F32, &[2], [130, 130], 16), weights);
            rows.push((format!("{name}, {weights:?}"), of.setup(9, chain)));
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn masked_keys_do_not_exist() {
    const QUERIES: i64 = 130;
    const KEYS: i64 = 150;
    let mut rows: Vec<Row> = Vec::new();
    let mut unclear = Vec::new();
    let which = ["causal", "padding", "document", "random half", "sliding window"];
    for (name, mask) in masks(QUERIES, KEYS).into_iter().filter(|(name, _)| which.contains(name)) {
        for (index, weights) in WEIGHTS.into_iter().enumerate() {
            for (form, number) in [(Form::Boolean, f32::NAN), (Form::Additive, f32::INFINITY)] {
                let data_type = TYPES[index];
                let of = Gradients::new(Heads::new(data_type, &[], [QUERIES, KEYS], 8), weights);
                let mut setup = of.setup(3, |builder, scores| {
                    builder.masked(scores, &mask, form, false, f32::NEG_INFINITY)
                });
                // Whole keys and single elements of values.
                let padded = name == "padding";
                let planted = if padded { vec![95, 100, 149] } else { vec![70, 141] };
                for key in planted {
                    (key * 8..(key + 1) * 8).for_each(|at| setup.inputs[1].plant(at, number));
                    (key * 8..(key + 1) * 8).step_by(3).for_each(|at| setup.inputs[2].plant(at, number));
                }
                let name = format!("{number} under {name} as {form:?}, {weights:?} of {data_type}");
                let has_finite = setup.enclosures().values().any(|allowed| {
                    let count = allowed.numbers().len();
                    (0..count).any(|at| allowed.is_judged(at) && allowed.numbers()[at].is_finite())
                });
                if !has_finite {
                    unclear.push(name.clone());
                }
                rows.push((name, setup));
            }
        }
    }
    report(&unclear);
    report(&wrong(&rows, &engines()));
}

/// A query, or its gradient, that is not finite reaches the keys that it sees.
#[test]
fn queries_that_are_not_finite_reach_the_keys_that_they_see() {
    let mut rows: Vec<Row> = Vec::new();
    for weights in WEIGHTS {
        for (what, input) in [("query", 0), ("gradient", 3)] {
            let of = Gradients::new(Heads::new(D::F32, &[], [130, 150], 8), weights);
            let mut setup = of.setup(4, causal);
            (70 * 8..71 * 8).for_each(|at| setup.inputs[input].plant(at, f32::NAN));
            rows.push((format!("a {what} of NaN, {weights:?}"), setup));
        }
    }
    report(&wrong(&rows, &engines()));
}

#[test]
fn a_query_without_keys_has_no_gradient() {
    let mut bad = Vec::new();
    for weights in WEIGHTS {
        let of = Gradients::new(Heads::new(D::F32, &[], [70, 66], 8), weights);
        let (builder, results) = of.graph(5, |builder, scores| {
            let holds: Vec<f32> = (0..70).map(|query| f32::from(query % 7 != 3 && query < 65)).collect();
            let cond = builder.input(D::Boolean, &[70, 1], None, &holds);
            builder.select(&cond, scores, f32::NEG_INFINITY, false)
        });
        let id = results[0].as_ref().unwrap().id();
        let setup = builder.finish();
        bad.extend(wrong(&[(format!("{weights:?}"), setup)], &engines()));
        let (builder, _) = of.graph(5, |builder, scores| {
            let holds: Vec<f32> = (0..70).map(|query| f32::from(query % 7 != 3 && query < 65)).collect();
            let cond = builder.input(D::Boolean, &[70, 1], None, &holds);
            builder.select(&cond, scores, f32::NEG_INFINITY, false)
        });
        let setup = builder.finish();
        let made = setup.run(&setup.partitions(Policy::Fusion), &Engine::new()).unwrap();
        for query in (0..70).filter(|query| query % 7 == 3 || *query >= 65) {
            let row = &floats(&made[&id])[query * 8..(query + 1) * 8];
            if row.iter().any(|&x| x != 0.0) {
                bad.push(format!("{weights:?}: the gradient of query {query} is {row:?}"));
            }
        }
    }
    report(&bad);
}

/// Tiles of a fill whose weight is 0 are left out, and those of a fill that weighs are not.
#[test]
fn fills_that_weigh_nothing_are_left_out_by_given_statistics() {
    let mut bad = Vec::new();
    for (fill, masked) in [(f32::NEG_INFINITY, 3), (-1e9, 3), (-65504.0, 3), (-200.0, 3), (-20.0, 0)] {
        for data_type in [D::F32, D::Bf16] {
            let of = Gradients::new(Heads::new(data_type, &[2], [150, 150], 8), Weights::Stats);
            let setup = of.setup(8, |builder, scores| {
                let cond = builder.causal(scores, false);
                builder.select(&cond, scores, fill, false)
            });
            let name = format!("{fill} in {data_type}");
            bad.extend(wrong(&[(name.clone(), setup)], &engines()));
            let setup = of.setup(8, |builder, scores| {
                let cond = builder.causal(scores, false);
                builder.select(&cond, scores, fill, false)
            });
            let (partition, engine) = (&setup.partitions(Policy::Fusion)[0], Engine::new());
            let mut tensors = BTreeMap::new();
            for given in &setup.inputs {
                let mut tensor = TensorBuf::zeroed(given.desc.clone(), &engine).unwrap();
                given.value.write(&mut tensor).unwrap();
                tensors.insert(given.desc.id(), tensor);
            }
            let of_port = |port: &LogicalTensor| &tensors[&port.id()];
            let descs: Vec<_> = partition.inputs().iter().map(|port| of_port(port).desc().clone()).collect();
            let compiled = partition.compile_for(&engine, &descs, partition.outputs()).unwrap();
            let inputs: Vec<_> = partition.inputs().iter().map(|port| of_port(port).as_tensor()).collect();
            let tiles = compiled.mask_tiles(&inputs).unwrap().unwrap();
            let found = tiles.count(TileClass::Masked);
            if found != masked * tiles.planes() {
                bad.push(format!("{name}: {found} masked tiles in {} planes", tiles.planes()));
            }
        }
    }
    report(&bad);
}

/// The same partition runs op by op the graphs that the phase does not run.
#[test]
fn graphs_of_other_forms_are_right() {
    let mut bad = Vec::new();
    for weights in [Weights::SoftMax, Weights::Stats] {
        for what in ["scores from outside", "weights from outside", "no batch", "no keys"] {
            let sizes = if what == "no keys" { [5, 0] } else { [70, 66] };
            let batch: &[i64] = if what == "no batch" { &[0, 2] } else { &[1, 2] };
            let of = Gradients::new(Heads::new(D::F32, batch, sizes, 8), weights);
            let (mut builder, _) = of.graph(6, plain);
            let wanted = match what {
                "scores from outside" => K::Multiply,
                "weights from outside" if weights == Weights::SoftMax => K::SoftMax,
                "weights from outside" => K::Exp,
                _ => K::Wildcard,
            };
            let port = builder.ops.iter().find(|op| op.kind() == wanted).map(|op| op.outputs()[0].clone());
            if let Some(desc) = port {
                builder.hand_out(&Port { desc, dims: Vec::new() });
            }
            let setup = builder.finish();
            let allowed = setup.enclosures();
            for engine in engines() {
                if let Err(why) = setup.check(&engine, &allowed) {
                    bad.push(format!("{weights:?}, {what}: {why}"));
                }
            }
        }
    }
    // A SoftMax along the queries.
    let mut builder = Builder::new(true);
    let random = &mut Random::new(1);
    let [q, k, v] = Heads::new(D::F32, &[2], [20, 30], 8).inputs(&mut builder, random);
    let d_result = builder.input(D::F32, &[2, 20, 8], None, &attention::numbers(random, &[2, 20, 8], 1.0));
    let scores = builder.matmul(&q, &k, true, D::F32);
    let along = [(Attr::Axis, 1i64.into())];
    let weights = builder.op_with(K::SoftMax, &[&scores], &[D::F32], &along).remove(0);
    let transposed = [(Attr::TransposeA, true.into())];
    builder.op_with(K::MatMul, &[&weights, &d_result], &[D::F32], &transposed);
    let d_weights = builder.matmul(&d_result, &v, true, D::F32);
    let slopes = builder.op_with(K::SoftMaxBackward, &[&d_weights, &weights], &[D::F32], &along).remove(0);
    builder.matmul(&slopes, &k, false, D::F32);
    let setup = builder.finish();
    let partitions = setup.partitions(Policy::Fusion).len();
    if partitions != 1 {
        bad.push(format!("SoftMax along the queries: {partitions} partitions"));
    }
    let allowed = setup.enclosures();
    bad.extend(engines().iter().filter_map(|engine| setup.check(engine, &allowed).err()));
    report(&bad);
}

#[test]
fn gradients_are_the_slopes_of_the_result() {
    const STEP: f32 = 1.0 / 256.0;
    let mut bad = Vec::new();
    for weights in WEIGHTS {
        let heads = Heads { dv: 3, ..Heads::new(D::F32, &[2], [4, 5], 6) };
        let of = Gradients::new(heads.clone(), weights);
        let (builder, results) = of.graph(8, causal);
        let ids = results.map(|port| port.unwrap().id());
        let setup = builder.finish();
        let given: Vec<Value> = setup.inputs[..4].iter().map(|given| given.value.clone()).collect();
        // The sum of results, each times the gradient that backward is given.
        let loss = |inputs: &[Value]| -> f64 {
            let mut forward = Builder::new(true);
            let [q, k, v] = heads.inputs(&mut forward, &mut Random::new(0));
            for (input, value) in forward.inputs.iter_mut().zip(inputs) {
                input.value = value.clone();
            }
            let scores = forward.matmul(&q, &k, true, D::F32);
            let scale = forward.scalar(D::F32, 1.0 / 6f32.sqrt());
            let scores = forward.op(K::Multiply, &[&scores, &scale], D::F32);
            let scores = causal(&mut forward, &scores);
            let shares = forward.softmax(&scores, true, D::F32);
            forward.matmul(&shares, &v, false, D::F32);
            let result = forward.finish().enclosures().into_values().next().unwrap();
            result.numbers().iter().zip(floats(&inputs[3])).map(|(x, d)| x * d).sum()
        };
        let made = setup.run(&setup.partitions(Policy::Fusion), &Engine::new()).unwrap();
        for (input, id) in ids.into_iter().enumerate() {
            let numbers: Vec<f32> = floats(&given[input]).into_iter().map(|x| x as f32).collect();
            for at in 0..numbers.len() {
                let moved = |step: f32| {
                    let mut numbers = numbers.clone();
                    numbers[at] += step;
                    let mut inputs = given.clone();
                    inputs[input] = value_of(D::F32, given[input].dims(), &numbers);
                    (loss(&inputs), f64::from(numbers[at]))
                };
                let ((above, high), (below, low)) = (moved(STEP), moved(-STEP));
                let slope = (above - below) / (high - low);
                let found = floats(&made[&id])[at];
                if (found - slope).abs() > 2e-5 {
                    bad.push(format!("{weights:?}, input {input}, element {at}: {found}, not {slope}"));
                }
            }
        }
    }
    report(&bad);
}

#[test]
fn one_to_eight_threads_give_the_same_bits() {
    let mut bad = Vec::new();
    for weights in WEIGHTS {
        for data_type in TYPES {
            let mut heads = Heads::new(data_type, &[2, 2, 2], [200, 330], 16);
            heads.kv_batch = vec![2, 2, 1];
            let of_mask: OfMask = |builder, slopes| _ = summed(builder, slopes, &[0, 1], true);
            let of = Gradients { summed: Some((2, true)), ..Gradients::new(heads, weights) };
            let setup = Gradients { of_mask: Some(of_mask), ..of }.setup(1, causal);
            let partitions = setup.partitions(Policy::Fusion);
            let mut first: Option<BTreeMap<usize, Value>> = None;
            for threads in 1..=8 {
                let engine = Engine::builder().threads(threads).build();
                let made = setup.run(&partitions, &engine).unwrap();
                match &first {
                    None => first = Some(made),
                    Some(first) if *first != made => bad.push((weights, data_type, threads)),
                    Some(_) => {}
                }
            }
        }
    }
    report(&bad);
}
