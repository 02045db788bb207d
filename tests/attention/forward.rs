//! Promise: attention is one partition, whatever its chain, shapes, layouts and types; its result is right,
//! and masked keys do not exist for it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::attention::{
    self, Builder, Expression, FORMS, Form, Heads, Lie, Row, Setup, check_all, floats, masks, numbers, plain,
    value_of,
};
use crate::common::{Random, engines, faults_of, report, seeds};
use sterna::reference::Enclosure;
use sterna::{Attr, AttrValue, DataType, Engine, OpKind, Policy};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// Random truth values, most of them true.
fn truths(random: &mut Random, dims: &[i64]) -> Vec<f32> {
    (0..dims.iter().product()).map(|_: i64| f32::from(random.below(4) != 0)).collect()
}

/// GPT: the mask before the scale, a bias for each key behind it, keys as a transposed view.
fn gpt(is_known: bool, [queries, keys]: [i64; 2]) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(1));
    let heads = Heads { key_view: true, ..Heads::new(D::F32, &[1, 4], [queries, keys], 16) };
    let [q, k, v] = heads.inputs(&mut builder, &mut random);
    let scores = builder.matmul(&q, &k, false, D::F32);
    let cond =
        builder.input(D::Boolean, &[1, 1, queries, keys], None, &truths(&mut random, &[queries, keys]));
    let scores = builder.select(&cond, &scores, f32::MIN, false);
    let scale = builder.scalar(D::F32, 4.0);
    let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
    let bias = numbers(&mut random, &[keys], 1.0);
    let bias = builder.input(D::F32, &[1, 1, 1, keys], None, &bias);
    let scores = builder.op(K::Add, &[&scores, &bias], D::F32);
    let shares = builder.softmax(&scores, true, D::F32);
    let result = builder.matmul(&shares, &v, false, D::F32);
    let result = builder.transpose(&result, &[0, 2, 1, 3]);
    builder.reorder(&result);
    builder.finish()
}

/// DistilBERT: a fill where the condition holds, one condition for each key, token-major views.
fn distilbert(is_known: bool, fill: f32) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(2));
    let heads = Heads { lie: Lie::TokenMajor, ..Heads::new(D::F32, &[1, 3], [70, 130], 16) };
    let [q, k, v] = heads.inputs(&mut builder, &mut random);
    let scores = builder.matmul(&q, &k, true, D::F32);
    let scale = builder.scalar(D::F32, 4.0);
    let scores = builder.op(K::Divide, &[&scores, &scale], D::F32);
    let cond = builder.input(D::Boolean, &[1, 1, 1, 130], None, &truths(&mut random, &[130]));
    let scores = builder.select(&cond, &scores, fill, true);
    let shares = builder.softmax(&scores, true, D::F32);
    let result = builder.matmul(&shares, &v, false, D::F32);
    let result = builder.transpose(&result, &[0, 2, 1, 3]);
    builder.reorder(&result);
    builder.finish()
}

/// CodeGemma: a mask for each head, f32 scores of bf16, no zeros for −∞.
fn codegemma(is_known: bool, of_scores: DataType) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(3));
    let heads = Heads::new(D::Bf16, &[1, 3], [130, 130], 32);
    let [q, k, v] = heads.inputs(&mut builder, &mut random);
    let scores = builder.matmul(&q, &k, true, of_scores);
    let scale = builder.scalar(of_scores, 0.25);
    let scores = builder.op(K::Multiply, &[&scores, &scale], of_scores);
    let dims = [1, 3, 130, 130];
    let cond = builder.input(D::Boolean, &dims, None, &truths(&mut random, &dims));
    let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
    let shares = builder.softmax(&scores, false, D::Bf16);
    builder.matmul(&shares, &v, false, D::Bf16);
    builder.finish()
}

/// Gemma 2: scores bent by Tanh, one query of grouped heads.
fn gemma2(is_known: bool, keys: i64) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(4));
    let mut heads = Heads::new(D::Bf16, &[1, 2, 4], [1, keys], 32);
    heads.kv_batch = vec![1, 2, 1];
    let [q, k, v] = heads.inputs(&mut builder, &mut random);
    let scores = builder.matmul(&q, &k, true, D::F32);
    let [scale, cap] = [0.1, 5.0].map(|number| builder.scalar(D::F32, number));
    let scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = builder.op(K::Tanh, &[&scores], D::F32);
    let scores = builder.op(K::Multiply, &[&scores, &cap], D::F32);
    let cond = builder.input(D::Boolean, &[1, 1, 1, 1, keys], None, &truths(&mut random, &[keys]));
    let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
    let shares = builder.softmax(&scores, false, D::Bf16);
    builder.matmul(&shares, &v, false, D::Bf16);
    builder.finish()
}

/// How scores are scaled and what the graph hands out.
#[derive(Clone, Copy)]
struct Causal {
    bottom_right: bool,
    /// The type of the scale.
    scale: DataType,
    host_scale: bool,
    stats: bool,
    of_scores: DataType,
}

const CAUSAL: Causal =
    Causal { bottom_right: false, scale: D::F32, host_scale: false, stats: false, of_scores: D::F32 };

/// Causal by indices.
fn causal(heads: &Heads, is_known: bool, how: Causal) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(5));
    let [q, k, v] = heads.inputs(&mut builder, &mut random);
    let scores = builder.matmul(&q, &k, !heads.key_view, how.of_scores);
    let scale = match how.host_scale {
        true => builder.host_scalar(D::F32, 0.25),
        false => builder.scalar(how.scale, 0.25),
    };
    let scores = builder.op(K::Multiply, &[&scores, &scale], how.of_scores);
    let cond = builder.causal(&scores, how.bottom_right);
    let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
    let shares = match how.stats {
        true => builder.softmax_with_stats(&scores, true, heads.data_type)[0].clone(),
        false => builder.softmax(&scores, true, heads.data_type),
    };
    builder.matmul(&shares, &v, false, heads.data_type);
    builder.finish()
}

fn grouped(data_type: DataType, sizes: [i64; 2], lie: Lie) -> Heads {
    let heads = Heads::new(data_type, &[1, 2, 3], sizes, 32);
    Heads { kv_batch: vec![1, 2, 1], lie, ..heads }
}

/// The graphs that frameworks hand over, and what they become.
fn graphs() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |name: &str, setup: Setup| rows.push((name.to_owned(), setup));
    for is_known in [true, false] {
        let bottom_right = Causal { bottom_right: true, scale: D::F16, ..CAUSAL };
        let stats = Causal { stats: true, ..CAUSAL };
        row("GPT", gpt(is_known, [32, 33]));
        row("GPT, fewer keys", gpt(is_known, [70, 33]));
        row("DistilBERT", distilbert(is_known, f32::MIN));
        row("DistilBERT, -inf", distilbert(is_known, f32::NEG_INFINITY));
        row("CodeGemma", codegemma(is_known, D::F32));
        row("CodeGemma, scores of bf16", codegemma(is_known, D::Bf16));
        row("Gemma 2", gemma2(is_known, 257));
        row("Gemma 2, 65 keys", gemma2(is_known, 65));
        for (lie, name) in [(Lie::Dense, "dense"), (Lie::TokenMajor, "token-major"), (Lie::Packed, "packed")]
        {
            for sizes in [[130, 130], [70, 130], [130, 70], [1, 257]] {
                let name = |what: &str| format!("{what}, {name}, {sizes:?}");
                row(
                    &name("grouped, bottom-right"),
                    causal(&grouped(D::F16, sizes, lie), is_known, bottom_right),
                );
                row(&name("grouped, causal"), causal(&grouped(D::F32, sizes, lie), is_known, CAUSAL));
                row(&name("grouped, statistics"), causal(&grouped(D::Bf16, sizes, lie), is_known, stats));
            }
            let heads = |data_type| Heads { lie, ..Heads::new(data_type, &[1, 3], [64, 64], 32) };
            row("4-D, bottom-right", causal(&heads(D::F16), is_known, bottom_right));
            row("4-D, causal", causal(&heads(D::F32), is_known, CAUSAL));
            row("4-D, statistics", causal(&heads(D::Bf16), is_known, stats));
            row(
                "4-D, scores of f16",
                causal(&heads(D::F16), is_known, Causal { of_scores: D::F16, scale: D::F16, ..CAUSAL }),
            );
        }
        let heads = Heads { dv: 24, ..Heads::new(D::F32, &[2], [70, 130], 32) };
        row("3-D, other width of values", causal(&heads, is_known, stats));
        let heads = Heads::new(D::Bf16, &[], [130, 70], 7);
        row("2-D, width 7", causal(&heads, is_known, Causal { host_scale: true, ..CAUSAL }));
        let heads = Heads { key_view: true, lie: Lie::Gaps, ..Heads::new(D::F16, &[2, 2], [65, 63], 33) };
        row("gaps", causal(&heads, is_known, Causal { host_scale: true, bottom_right: true, ..CAUSAL }));
        row("width 1", causal(&Heads::new(D::F32, &[2], [70, 130], 1), is_known, CAUSAL));
        row("width 300", causal(&Heads::new(D::F32, &[1], [20, 70], 300), is_known, CAUSAL));
    }
    rows
}

/// A scale of the queries, not of the scores.
fn scaled_queries() -> Setup {
    let mut builder = Builder::new(true);
    let heads = Heads { lie: Lie::TokenMajor, ..Heads::new(D::F16, &[1, 2], [70, 130], 16) };
    let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(21));
    let scale = builder.scalar(D::F16, 0.25);
    let q = builder.op(K::Multiply, &[&q, &scale], D::F16);
    let scores = builder.matmul(&q, &k, true, D::F32);
    let cond = builder.causal(&scores, false);
    let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
    let shares = builder.softmax(&scores, true, D::F16);
    builder.matmul(&shares, &v, false, D::F16);
    builder.finish()
}

/// The graph that exporters of PyTorch write: heads that lie by tokens, moved, and half of the scale on
/// either operand.
fn scaled_operands(data_type: DataType, is_known: bool) -> Setup {
    let (mut builder, mut random) = (Builder::new(is_known), Random::new(23));
    let mut tokens = |builder: &mut Builder, count: i64| {
        let numbers = numbers(&mut random, &[2, count, 3, 16], 2.0);
        builder.input(data_type, &[2, count, 3, 16], None, &numbers)
    };
    let [q, k, v] = [70, 130, 130].map(|count| tokens(&mut builder, count));
    let q = builder.transpose(&q, &[0, 2, 1, 3]);
    let k = builder.transpose(&k, &[0, 2, 3, 1]);
    let v = builder.transpose(&v, &[0, 2, 1, 3]);
    let root = builder.scalar(data_type, 0.5);
    let [q, k] = [q, k].map(|of| builder.op(K::Multiply, &[&of, &root], data_type));
    let scores = builder.matmul(&q, &k, false, data_type);
    let cond = builder.causal(&scores, false);
    let scores = builder.select(&cond, &scores, f32::NEG_INFINITY, false);
    let shares = builder.softmax(&scores, true, data_type);
    let result = builder.matmul(&shares, &v, false, data_type);
    let result = builder.transpose(&result, &[0, 2, 1, 3]);
    builder.reshape(&result, &[2, 70, 48]);
    builder.finish()
}

/// 4-D tensors of heads that share keys, split by reshapes, and an additive mask of 4 dims.
fn reshaped_groups() -> Setup {
    let mut builder = Builder::new(true);
    let random = &mut Random::new(22);
    let mut input = |builder: &mut Builder, dims: &[i64]| {
        let numbers = numbers(random, dims, 2.0);
        builder.input(D::F32, dims, None, &numbers)
    };
    let q = input(&mut builder, &[2, 6, 70, 16]);
    let [k, v] = [0, 1].map(|_| input(&mut builder, &[2, 2, 130, 16]));
    let q = builder.reshape(&q, &[2, 2, 3, 70, 16]);
    let [k, v] = [k, v].map(|of| builder.reshape(&of, &[2, 2, 1, 130, 16]));
    let scores = builder.matmul(&q, &k, true, D::F32);
    let bias: Vec<f32> = (0..260).map(|at| if at % 130 < 90 { 0.5 } else { f32::NEG_INFINITY }).collect();
    let bias = builder.input(D::F32, &[2, 1, 1, 130], None, &bias);
    let bias = builder.reshape(&bias, &[2, 1, 1, 1, 130]);
    let scores = builder.op(K::Add, &[&scores, &bias], D::F32);
    let shares = builder.softmax(&scores, true, D::F32);
    let result = builder.matmul(&shares, &v, false, D::F32);
    builder.reshape(&result, &[2, 6, 70, 16]);
    builder.finish()
}

/// Graphs whose chains are free.
fn chains() -> Vec<Row> {
    let heads = || Heads::new(D::F32, &[1, 2], [70, 130], 16);
    let minus_infinity = f32::NEG_INFINITY;
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |name: &str, setup: Setup| rows.push((name.to_owned(), setup));
    row("no chain at all", plain(&heads(), true, 1, |_, scores| scores.clone()));
    row("queries that are scaled before the product", scaled_queries());
    for data_type in [D::F32, D::Bf16, D::F16] {
        row(&format!("{data_type} with a scale on either operand"), scaled_operands(data_type, true));
    }
    row("a scale on either operand, unknown dims", scaled_operands(D::F32, false));
    row("heads, groups and a mask through reshapes", reshaped_groups());
    row(
        "a slope by distance",
        plain(&heads(), true, 2, |builder, scores| {
            let [i, j] = [-2, -1].map(|axis| builder.index(scores, axis));
            let distance = builder.op(K::Subtract, &[&j, &i], D::S32);
            let distance = builder.op(K::Cast, &[&distance], D::F32);
            let slopes = builder.input(D::F32, &[2, 1, 1], None, &[0.5, 0.25]);
            let bias = builder.op(K::Multiply, &[&distance, &slopes], D::F32);
            builder.op(K::Add, &[scores, &bias], D::F32)
        }),
    );
    row(
        "two masks, of both polarities, and a bias in between",
        plain(&heads(), true, 3, |builder, scores| {
            let random = &mut Random::new(9);
            let cond = builder.causal(scores, false);
            let scores = builder.select(&cond, scores, minus_infinity, false);
            let bias = numbers(random, &[70, 130], 1.0);
            let bias = builder.input(D::F32, &[70, 130], None, &bias);
            let scores = builder.op(K::Add, &[&scores, &bias], D::F32);
            let padding: Vec<f32> = (0..130).map(|j| f32::from(j > 90)).collect();
            let cond = builder.input(D::Boolean, &[130], None, &padding);
            builder.select(&cond, &scores, minus_infinity, true)
        }),
    );
    row(
        "a second select undoes the first",
        plain(&heads(), true, 4, |builder, scores| {
            let cond = builder.causal(scores, false);
            let masked = builder.select(&cond, scores, minus_infinity, false);
            let all = builder.input(D::Boolean, &[1], None, &[0.0]);
            builder.op(K::Select, &[&all, &masked, scores], D::F32)
        }),
    );
    row(
        "a fill that Tanh brings back",
        plain(&heads(), true, 5, |builder, scores| {
            let cond = builder.causal(scores, false);
            let masked = builder.select(&cond, scores, minus_infinity, false);
            builder.op(K::Tanh, &[&masked], D::F32)
        }),
    );
    row(
        "a negative factor behind the mask",
        plain(&heads(), true, 6, |builder, scores| {
            let cond = builder.causal(scores, false);
            let masked = builder.select(&cond, scores, f32::INFINITY, false);
            let factor = builder.scalar(D::F32, -1.0);
            builder.op(K::Multiply, &[&masked, &factor], D::F32)
        }),
    );
    row("a guard behind SoftMax", {
        let mut builder = Builder::new(true);
        let [q, k, v] = heads().inputs(&mut builder, &mut Random::new(7));
        let scores = builder.matmul(&q, &k, true, D::F32);
        let cond = builder.causal(&scores, false);
        let scores = builder.select(&cond, &scores, minus_infinity, false);
        let shares = builder.softmax(&scores, false, D::F32);
        let any: Vec<f32> = (0..70).map(|i| f32::from(i % 3 != 0)).collect();
        let any = builder.input(D::Boolean, &[70, 1], None, &any);
        let shares = builder.select(&any, &shares, 0.0, false);
        builder.matmul(&shares, &v, false, D::F32);
        builder.finish()
    });
    for (what, which) in [("raw scores", 0), ("masked scores", 1), ("shares", 2), ("all in between", 3)] {
        let mut builder = Builder::new(true);
        let [q, k, v] = heads().inputs(&mut builder, &mut Random::new(8));
        let raw = builder.matmul(&q, &k, true, D::F32);
        let cond = builder.causal(&raw, false);
        let scores = builder.select(&cond, &raw, minus_infinity, false);
        let [shares, stats] = builder.softmax_with_stats(&scores, true, D::F32);
        let asked = [&raw, &scores, &shares, &stats];
        let asked = if which == 3 { &asked[..] } else { &asked[which..=which] };
        asked.iter().for_each(|port| builder.hand_out(port));
        builder.matmul(&shares, &v, false, D::F32);
        row(&format!("handed out: {what}"), builder.finish());
    }
    for data_type in [D::Bf16, D::F16] {
        let mut builder = Builder::new(true);
        let heads = Heads::new(data_type, &[1, 2], [70, 130], 16);
        let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(8));
        let scores = builder.matmul(&q, &k, true, D::F32);
        let addend: Vec<f32> =
            (0..70 * 130).map(|at| if at % 130 > at / 130 { minus_infinity } else { 0.5 }).collect();
        let addend = builder.input(data_type, &[1, 1, 70, 130], None, &addend);
        let scores = builder.op(K::Add, &[&scores, &addend], D::F32);
        let shares = builder.softmax(&scores, true, data_type);
        let result = builder.matmul(&shares, &v, false, D::F32);
        let result = builder.op(K::TypeCast, &[&result], data_type);
        let result = builder.transpose(&result, &[0, 2, 1, 3]);
        builder.reshape(&result, &[1, 70, 32]);
        row(&format!("an additive mask of {data_type} on f32"), builder.finish());
    }
    row("quantised", {
        let mut builder = Builder::new(true);
        let [q, k, v] = heads().inputs(&mut builder, &mut Random::new(12));
        let scores = builder.matmul(&q, &k, true, D::F32);
        let cond = builder.causal(&scores, false);
        let scores = builder.select(&cond, &scores, minus_infinity, false);
        let shares = builder.softmax(&scores, true, D::F32);
        let result = builder.matmul(&shares, &v, false, D::F32);
        let result = builder.transpose(&result, &[0, 2, 1, 3]);
        let result = builder.reorder(&result);
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Scales, vec![0.01f32].into()), (Attr::Zps, vec![128i64].into())];
        builder.op_with(K::Quantize, &[&result], &[D::U8], &attrs);
        builder.finish()
    });
    rows
}

#[test]
fn graphs_of_frameworks_are_one_partition_and_right() {
    let rows = graphs();
    let mut wrong: Vec<String> =
        rows.iter().filter_map(|(name, setup)| Some(format!("{name}: {}", setup.is_not_one()?))).collect();
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn any_chain_is_one_partition_and_right() {
    let rows = chains();
    let mut wrong: Vec<String> =
        rows.iter().filter_map(|(name, setup)| Some(format!("{name}: {}", setup.is_not_one()?))).collect();
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

#[test]
fn every_mask_in_every_form_is_right() {
    let engines = engines();
    let (queries, keys) = (140, 200);
    let all: Vec<(&str, Expression, DataType)> = masks(queries, keys)
        .into_iter()
        .flat_map(|(name, mask)| TYPES.map(|data_type| (name, mask.clone(), data_type)))
        .collect();
    let wrong = faults_of(&all, usize::MAX, |(name, mask, data_type)| {
        let heads = Heads::new(*data_type, &[], [queries, keys], 16);
        let of = |form: Form, inverted: bool| {
            plain(&heads, true, 1, |builder, scores| {
                builder.masked(scores, mask, form, inverted, f32::NEG_INFINITY)
            })
        };
        // Every form means the same.
        let (mut allowed, mut wrong) = (None, Vec::new());
        for (form, inverted) in FORMS.into_iter().flat_map(|form| [(form, false), (form, true)]) {
            let setup = of(form, inverted);
            let allowed = allowed.get_or_insert_with(|| setup.enclosures().into_values().next().unwrap());
            let allowed = BTreeMap::from([(setup.outputs[0], allowed.clone())]);
            for engine in &engines {
                if let Err(why) = setup.check(engine, &allowed) {
                    let what = format!("{name} as {form:?} of {data_type}, inverted {inverted}: {why}");
                    wrong.push(what);
                }
            }
        }
        wrong
    });
    report(&wrong);
}

#[test]
fn every_mask_with_a_finite_fill_is_right() {
    let (queries, keys) = (140, 200);
    let mut rows: Vec<Row> = Vec::new();
    for (name, mask) in masks(queries, keys) {
        for (index, form) in FORMS.into_iter().enumerate() {
            for fill in [-1e4, f32::MIN] {
                let (data_type, inverted) =
                    (TYPES[(rows.len() / 2 + index) % 3], (rows.len() / 3).is_multiple_of(2));
                let heads = Heads::new(data_type, &[], [queries, keys], 16);
                let setup = plain(&heads, true, 1, |builder, scores| {
                    builder.masked(scores, &mask, form, inverted, fill)
                });
                let name = format!("{name} as {form:?} of {data_type} with {fill}, inverted {inverted}");
                rows.push((name, setup));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn biases_that_are_nothing_in_some_tiles_are_right() {
    let (queries, keys) = (140, 200);
    // In turn: nothing, a bias, a mask, and one of them in a corner of a tile alone.
    let number = |i: i64, j: i64| match (i / 64 + 3 * (j / 64)) % 7 {
        0 => 0.0,
        1 => -0.0,
        2 => 0.25 * (i % 5) as f32 - 0.5,
        3 => f32::NEG_INFINITY,
        4 if i % 64 > 60 && j % 64 == 0 => -1.5,
        5 if i % 64 > 2 && j % 64 > 40 => f32::NEG_INFINITY,
        6 if i % 64 < 3 && j % 64 > 40 => -3e4,
        _ => 0.0,
    };
    let mut rows: Vec<Row> = Vec::new();
    for data_type in TYPES {
        for (name, dims) in [("shared", &[queries, keys][..]), ("by head", &[2, queries, keys])] {
            for inf_as_zero in [true, false] {
                let heads = Heads::new(data_type, &[2], [queries, keys], 16);
                let setup = plain(&heads, inf_as_zero, 1, |builder, scores| {
                    let planes = dims[..dims.len() - 2].iter().product::<i64>();
                    let pairs = || (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
                    let addend: Vec<f32> =
                        (0..planes).flat_map(|_| pairs()).map(|(i, j)| number(i, j)).collect();
                    let addend = builder.input(data_type, dims, None, &addend);
                    builder.op(K::Add, &[scores, &addend], data_type)
                });
                rows.push((format!("{name} of {data_type}, no key is 0 {inf_as_zero}"), setup));
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn a_mask_for_each_head_is_right() {
    let (queries, keys) = (140, 200);
    let mut rows: Vec<Row> = Vec::new();
    let all = masks(queries, keys);
    for (index, (name, first)) in all.iter().enumerate() {
        let (other, second) = &all[(index + 7) % all.len()];
        for (form, fill) in
            [(Form::Boolean, f32::NEG_INFINITY), (Form::Additive, f32::NEG_INFINITY), (Form::Boolean, -1e4)]
        {
            let data_type = TYPES[rows.len() / 3 % 3];
            let heads = Heads::new(data_type, &[2], [queries, keys], 16);
            let setup = plain(&heads, true, 1, |builder, scores| {
                let pairs = || (0..queries as i32).flat_map(|i| (0..keys as i32).map(move |j| (i, j)));
                let holds = [first, second].into_iter().flat_map(|of| pairs().map(|(i, j)| of.holds(i, j)));
                let dims = [2, queries, keys];
                match form {
                    Form::Additive => {
                        let addend: Vec<f32> = holds.map(|holds| if holds { 0.0 } else { fill }).collect();
                        let addend = builder.input(D::F32, &dims, None, &addend);
                        builder.op(K::Add, &[scores, &addend], D::F32)
                    }
                    _ => {
                        let truth: Vec<f32> = holds.map(f32::from).collect();
                        let cond = builder.input(D::Boolean, &dims, None, &truth);
                        builder.select(&cond, scores, fill, false)
                    }
                }
            });
            rows.push((format!("{name} and {other} as {form:?} of {data_type} with {fill}"), setup));
        }
    }
    report(&check_all(&rows, &engines()));
}

/// Attention of one head as it is written in books, over the keys that a query sees.
fn by_the_book(setup: &Setup, heads: &Heads, sees: impl Fn(i32, i32) -> bool) -> Vec<f64> {
    let [q, k, v] = [0, 1, 2].map(|input| floats(&setup.inputs[input].value));
    let (d, dv) = (heads.d as usize, heads.dv as usize);
    let dot = |i: usize, j: usize| (0..d).map(|c| q[i * d + c] * k[j * d + c]).sum::<f64>();
    let row = |i: usize| {
        let seen: Vec<usize> = (0..heads.keys as usize).filter(|&j| sees(i as i32, j as i32)).collect();
        let root = f64::from((heads.d as f32).sqrt());
        let weights: Vec<f64> = seen.iter().map(|&j| (dot(i, j) / root).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let pairs = || seen.iter().zip(&weights);
        let of = |c: usize| pairs().map(|(&j, weight)| weight / sum * v[j * dv + c]).sum::<f64>();
        (0..dv).map(of).collect::<Vec<f64>>()
    };
    (0..heads.queries as usize).flat_map(row).collect()
}

#[test]
fn the_reference_is_attention_by_the_book_and_judges() {
    let mut wrong = Vec::new();
    for (name, mask) in masks(40, 50) {
        for data_type in TYPES {
            let heads = Heads { dv: 3, ..Heads::new(data_type, &[], [40, 50], 5) };
            let mut setup = plain(&heads, true, 2, |builder, scores| {
                builder.masked(scores, &mask, Form::Boolean, false, f32::NEG_INFINITY)
            });
            let book = by_the_book(&setup, &heads, |i, j| mask.holds(i, j));
            // A key that nobody sees may hold anything.
            let unseen = (0..50).filter(|&j| (0..40).all(|i| !mask.holds(i, j)));
            for j in unseen {
                plant(&mut setup, 1, j as usize * 5..j as usize * 5 + 2, f32::NAN);
                plant(&mut setup, 2, j as usize * 3..j as usize * 3 + 3, f32::INFINITY);
            }
            let allowed = setup.enclosures().into_values().next().unwrap();
            let is_far = |(x, y): (&f64, &f64)| (x - y).abs() > 1e-12;
            let is_inside = allowed.first_outside(allowed.value()).is_none();
            if !is_inside || allowed.numbers().iter().zip(&book).any(is_far) {
                wrong.push((name, data_type, None));
            }
            // A value that is off by a twentieth of the largest value is outside, in every element.
            let right: Vec<f32> = allowed.numbers().iter().map(|&x| x as f32).collect();
            for at in 0..right.len() {
                let mut off = right.clone();
                off[at] += 0.05;
                let given = value_of(data_type, allowed.value().dims(), &off);
                if allowed.first_outside(&given) != Some(at) {
                    wrong.push((name, data_type, Some(at)));
                }
            }
        }
    }
    report(&wrong);
}

/// Replaces elements of an input.
fn plant(setup: &mut Setup, input: usize, places: impl Iterator<Item = usize>, number: f32) {
    let given = &mut setup.inputs[input];
    let (data_type, dims) = (given.desc.data_type(), given.value.dims().to_vec());
    let mut numbers: Vec<f32> = floats(&given.value).into_iter().map(|x| x as f32).collect();
    places.for_each(|place| numbers[place] = number);
    given.value = value_of(data_type, &dims, &numbers);
}

/// How many elements are finite, and how many are not; all must be judged.
fn finite_and_not(allowed: &Enclosure) -> [usize; 2] {
    let numbers = allowed.numbers();
    assert!((0..numbers.len()).all(|at| allowed.is_judged(at)), "an element is not judged");
    let finite = numbers.iter().filter(|x| x.is_finite()).count();
    [finite, numbers.len() - finite]
}

#[test]
fn what_a_masked_key_holds_reaches_nobody_who_masks_it() {
    const KEYS: i64 = 150;
    const QUERIES: i64 = 130;
    const KEY_INPUT: usize = 1;
    const VALUE_INPUT: usize = 2;
    let mut rows = Vec::new();
    let which = ["causal", "padding", "document", "random half", "sliding window"];
    let chosen: Vec<_> = masks(QUERIES, KEYS).into_iter().filter(|(name, _)| which.contains(name)).collect();
    for (name, mask) in chosen {
        for data_type in TYPES {
            for (form, fill) in [
                (Form::Boolean, f32::NEG_INFINITY),
                (Form::Expression, f32::NEG_INFINITY),
                (Form::Additive, f32::NEG_INFINITY),
                (Form::Boolean, -1e4),
            ] {
                for (what, number) in [("NaN", f32::NAN), ("inf", f32::INFINITY)] {
                    let heads = Heads::new(data_type, &[], [QUERIES, KEYS], 8);
                    let mut setup = plain(&heads, true, 3, |builder, scores| {
                        builder.masked(scores, &mask, form, false, fill)
                    });
                    // Whole rows of keys and single elements of values.
                    let padded = name == "padding";
                    let planted = if padded { vec![95, 100, 149] } else { vec![70, 141] };
                    for key in planted {
                        let row = key * 8..(key + 1) * 8;
                        plant(&mut setup, KEY_INPUT, row.clone(), number);
                        plant(&mut setup, VALUE_INPUT, row.step_by(3), number);
                    }
                    let allowed = setup.enclosures().into_values().next().unwrap();
                    let [finite, not] = finite_and_not(&allowed);
                    assert!(
                        finite > 0 && (padded == (not == 0)),
                        "{name}, {form:?}: {finite} finite, {not} not"
                    );
                    rows.push((format!("{what} under {name} as {form:?} with {fill} of {data_type}"), setup));
                }
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn values_alone_that_are_not_finite_reach_those_who_see_them() {
    let mut rows = Vec::new();
    for data_type in TYPES {
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let heads = Heads::new(data_type, &[1, 2], [130, 150], 8);
            let mut setup = plain(&heads, true, 4, |builder, scores| {
                let cond = builder.causal(scores, false);
                builder.select(&cond, scores, f32::NEG_INFINITY, false)
            });
            plant(&mut setup, 2, [100 * 8 + 3, 64 * 8, 150 * 8 + 149 * 8].into_iter(), number);
            let allowed = setup.enclosures().into_values().next().unwrap();
            let [finite, not] = finite_and_not(&allowed);
            assert!(finite > 0 && not > 0);
            rows.push((format!("{number} of {data_type}"), setup));
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn finite_fills_and_rows_without_keys_are_right() {
    let mut rows = Vec::new();
    for data_type in TYPES {
        for inf_as_zero in [true, false] {
            for fill in [f32::NEG_INFINITY, -1e4, -65504.0, f32::MIN, -50.0, -3.0] {
                for (name, from) in [("few", 100), ("none at all", 0), ("some", 30)] {
                    let heads = Heads::new(data_type, &[2], [70, 130], 8);
                    let mut setup = plain(&heads, inf_as_zero, 5, |builder, scores| {
                        // Queries up to 20 see nothing, the others keys below `from`.
                        let holds: Vec<f32> =
                            (0..70 * 130).map(|at| f32::from(at / 130 > 20 && at % 130 < from)).collect();
                        let cond = builder.input(D::Boolean, &[70, 130], None, &holds);
                        builder.select(&cond, scores, fill, false)
                    });
                    if name == "some" {
                        // Where a row has other keys far above the fill, what is masked stays out.
                        plant(&mut setup, 0, 0..70 * 8, 4.0);
                    }
                    rows.push((format!("{data_type}, fill {fill}, {name}, {inf_as_zero}"), setup));
                }
            }
        }
    }
    report(&check_all(&rows, &engines()));
}

#[test]
fn statistics_of_rows_without_keys_are_zero() {
    let mut wrong = Vec::new();
    let heads = Heads::new(D::F32, &[2], [130, 70], 8);
    let setup = causal(&heads, true, Causal { stats: true, bottom_right: true, ..CAUSAL });
    for engine in engines() {
        let made = setup.run(&setup.partitions(Policy::Fusion), &engine).unwrap();
        let [stats, result] = [&made[&setup.outputs[0]], &made[&setup.outputs[1]]].map(floats);
        // The first 60 queries are before every key.
        let is_zero = |at: usize| stats[at] == 0.0 && result[at * 8..][..8].iter().all(|&x| x == 0.0);
        wrong.extend((0..260).filter(|&at| is_zero(at) != (at % 130 < 60)).map(|at| (engine.level(), at)));
    }
    report(&wrong);
}

#[test]
fn a_row_masked_as_a_whole_by_a_finite_fill_averages() {
    let mut wrong = Vec::new();
    for fill in [-1e4, -65504.0, f32::MIN] {
        let heads = Heads::new(D::F32, &[], [3, 130], 8);
        let setup = plain(&heads, true, 6, |builder, scores| {
            let cond = builder.input(D::Boolean, &[3, 1], None, &[0.0, 1.0, 0.0]);
            builder.select(&cond, scores, fill, false)
        });
        let values = floats(&setup.inputs[2].value);
        let mean = |column: usize| values.iter().skip(column).step_by(8).sum::<f64>() / 130.0;
        for engine in engines() {
            let made = setup.run(&setup.partitions(Policy::Fusion), &engine).unwrap();
            let result = floats(&made[&setup.outputs[0]]);
            let is_off =
                |row: usize| (0..8).any(|column| (result[row * 8 + column] - mean(column)).abs() > 1e-6);
            wrong
                .extend([0, 2].into_iter().filter(|&row| is_off(row)).map(|row| (engine.level(), fill, row)));
        }
    }
    report(&wrong);
}

#[test]
fn results_are_as_accurate_as_ops_run_one_by_one() {
    let mut wrong = Vec::new();
    for data_type in TYPES {
        for (name, sizes, is_causal) in
            [("full", [130, 300], false), ("causal", [200, 200], true), ("one query", [1, 700], false)]
        {
            // Enough elements that the largest error says something.
            let heads = Heads::new(data_type, &[if sizes[0] == 1 { 40 } else { 2 }], sizes, 64);
            let setup = plain(&heads, true, 7, |builder, scores| {
                if !is_causal {
                    return scores.clone();
                }
                let cond = builder.causal(scores, false);
                builder.select(&cond, scores, f32::NEG_INFINITY, false)
            });
            let exact = setup.enclosures().into_values().next().unwrap();
            let unit = match data_type {
                D::F32 => 2f64.powi(-23),
                D::Bf16 => 2f64.powi(-7),
                _ => 2f64.powi(-10),
            };
            for engine in engines() {
                let error = |policy: Policy, units: f64| {
                    let made = setup.run(&setup.partitions(policy), &engine).unwrap();
                    let pairs = floats(&made[&setup.outputs[0]]).into_iter().zip(exact.numbers());
                    // The largest value is about 1.
                    pairs.map(|(x, &y)| ((x - y).abs() - units * unit * y.abs()).max(0.0)).fold(0.0, f64::max)
                };
                let apart = error(Policy::Debug, 0.0);
                let (together, most) = match data_type {
                    D::F32 => (error(Policy::Fusion, 0.0), 1.5 * apart),
                    _ => (error(Policy::Fusion, 1.0), apart),
                };
                if together > most {
                    wrong.push((data_type, name, engine.level(), together, most));
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn one_to_eight_threads_give_the_same_bits() {
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for data_type in TYPES {
        rows.push(causal(
            &grouped(data_type, [200, 330], Lie::Dense),
            true,
            Causal { stats: true, ..CAUSAL },
        ));
        rows.push(causal(
            &grouped(data_type, [1, 1500], Lie::TokenMajor),
            true,
            Causal { bottom_right: true, ..CAUSAL },
        ));
        rows.push(causal(
            &Heads::new(data_type, &[], [2, 2100], 32),
            true,
            Causal { bottom_right: true, ..CAUSAL },
        ));
    }
    for (row, setup) in rows.iter().enumerate() {
        let partitions = setup.partitions(Policy::Fusion);
        let mut first = None;
        for threads in 1..=8 {
            let engine = Engine::builder().threads(threads).build();
            let made = setup.run(&partitions, &engine).unwrap();
            match &first {
                None => first = Some(made),
                Some(first) if *first != made => wrong.push((row, threads)),
                Some(_) => {}
            }
        }
    }
    report(&wrong);
}

#[test]
fn random_attention_is_right() {
    let engines = engines();
    let judged = Mutex::new([0usize; 2]);
    let wrong = faults_of(seeds(400), 3, |seed| {
        let setup = attention::random(&mut Random::new(seed));
        let allowed = setup.enclosures();
        for allowed in allowed.values() {
            let all = allowed.numbers().len();
            let known = (0..all).filter(|&at| allowed.is_judged(at)).count();
            let mut judged = judged.lock().unwrap();
            *judged = [judged[0] + all, judged[1] + known];
        }
        let why = setup.check(&engines[seed as usize % engines.len()], &allowed).err()?;
        println!("seed {seed}: {why}\n{}", setup.describe());
        Some((seed, why))
    });
    report(&wrong);
    let [all, known] = judged.into_inner().unwrap();
    assert!(known * 10 > all * 9, "{known} of {all} elements are judged");
}
