//! Promise: a form that exporters write runs as the form that fuses, in one partition that has the ops and
//! the ports of the graph, with results within the same bounds; a rewrite can be turned off, and leaves alone
//! a form whose inner values are needed elsewhere.

use crate::attention::{self, Builder, Heads, Lie, Port, Row, Setup, check_all, numbers};
use crate::common::{Random, engines, report};
use sterna::{Attr, AttrValue, DataType, FusionVerdict, OpKind, Policy, Rewrite};

use DataType as D;
use OpKind as K;

/// A graph by name, the rewrites that apply to it, and the partitions into which it falls.
pub(crate) struct Case {
    name: String,
    setup: Setup,
    rewrites: Vec<Rewrite>,
    partitions: usize,
}

impl Case {
    pub(crate) fn new(
        name: impl Into<String>,
        setup: Setup,
        rewrites: &[Rewrite],
        partitions: usize,
    ) -> Self {
        Self { name: name.into(), setup, rewrites: rewrites.to_vec(), partitions }
    }

    /// The fault of the partitions, if their form is another one.
    fn fault(&self) -> Option<String> {
        let Self { name, setup, rewrites, partitions } = self;
        let made = setup.partitions(Policy::Fusion);
        let applied: Vec<Rewrite> = made.iter().flat_map(|of| of.rewrites()).copied().collect();
        if applied != *rewrites || made.len() != *partitions {
            return Some(format!("{name}: {} partitions with {applied:?}", made.len()));
        }
        let mut ids: Vec<_> = made.iter().flat_map(|of| of.ops()).map(|op| op.id()).collect();
        ids.sort_unstable();
        let all: Vec<_> = setup.ops.iter().map(|op| op.id()).collect();
        if ids != all {
            return Some(format!("{name}: the partitions have the ops {ids:?}, not {all:?}"));
        }
        let told = setup.graph.explain().unwrap();
        let is_told = |rewrite: &Rewrite| {
            told.iter().any(|line| line.fusion == rewrite.name() && line.verdict == FusionVerdict::Matched)
        };
        let silent: Vec<_> =
            Rewrite::ALL.iter().filter(|one| is_told(one) != rewrites.contains(one)).collect();
        (!silent.is_empty()).then(|| format!("{name}: explain is wrong on {silent:?}"))
    }
}

/// Checks forms, and results with rewrites and without.
pub(crate) fn check(cases: Vec<Case>) {
    let mut wrong: Vec<String> = cases.iter().filter_map(Case::fault).collect();
    let mut rows: Vec<Row> = cases.into_iter().map(|case| (case.name, case.setup)).collect();
    let engines = engines();
    wrong.extend(check_all(&rows, &engines));
    for (name, setup) in &mut rows {
        Rewrite::ALL.iter().for_each(|&rewrite| setup.graph.set_rewrite(rewrite, false));
        if setup.partitions(Policy::Fusion).iter().any(|partition| !partition.rewrites().is_empty()) {
            wrong.push(format!("{name}: a rewrite that is off applies"));
        }
    }
    wrong.extend(check_all(&rows, &engines).into_iter().map(|why| format!("without rewrites: {why}")));
    report(&wrong);
}

pub(crate) fn fill(builder: &mut Builder, data_type: DataType, dims: &[i64], number: f32) -> Port {
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Shape, dims.into()), (Attr::Value, number.into())];
    builder.op_with(K::Fill, &[], &[data_type], &attrs).remove(0)
}

/// SoftMax of the scores and the product with the values.
fn finish(mut builder: Builder, scores: &Port, v: &Port) -> Setup {
    let shares = builder.softmax(scores, false, v.data_type());
    builder.matmul(&shares, v, false, v.data_type());
    builder.finish()
}

/// The place of a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scaled {
    /// Of the keys as they are given, before a transpose.
    Before,
    /// Of the keys behind a transpose.
    Behind,
}

/// Attention whose keys, and perhaps queries, have a factor.
fn scaled(
    data_type: DataType,
    queries: i64,
    place: Scaled,
    kind: OpKind,
    of_queries: bool,
    number: impl Fn(&mut Builder) -> Port,
) -> (Builder, [Port; 4]) {
    let mut builder = Builder::new(true);
    let heads = Heads::new(data_type, &[2, 3], [queries, 70], 24);
    let [mut q, k, v] = heads.inputs(&mut builder, &mut Random::new(5));
    let number = number(&mut builder);
    if of_queries {
        q = builder.op(kind, &[&q, &number], data_type);
    }
    let order = [0, 1, 3, 2];
    let (scaled, keys) = match place {
        Scaled::Before => {
            let scaled = builder.op(kind, &[&k, &number], data_type);
            let keys = builder.transpose(&scaled, &order);
            (scaled, keys)
        }
        Scaled::Behind => {
            let keys = builder.transpose(&k, &order);
            let scaled = builder.op(kind, &[&keys, &number], data_type);
            (scaled.clone(), scaled)
        }
    };
    let scores = builder.matmul(&q, &keys, false, D::F32);
    (builder, [scores, v, scaled, keys])
}

#[test]
fn a_factor_of_the_keys_becomes_one_of_queries_or_scores() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::ScaleToQueries][..];
    for data_type in [D::F32, D::Bf16] {
        for place in [Scaled::Before, Scaled::Behind] {
            for (kind, number) in [(K::Multiply, 0.4), (K::Divide, 2.3)] {
                for (of_queries, queries) in [(false, 1), (false, 40), (true, 1), (true, 40)] {
                    let input = |builder: &mut Builder| builder.scalar(data_type, number);
                    let (builder, [scores, v, ..]) =
                        scaled(data_type, queries, place, kind, of_queries, input);
                    let name = format!("{data_type} {place:?} {kind} {of_queries} {queries}");
                    cases.push(Case::new(name, finish(builder, &scores, &v), applied, 1));
                }
            }
        }
    }
    let by_fill = |builder: &mut Builder| fill(builder, D::F32, &[1], 0.3);
    let (builder, [scores, v, ..]) = scaled(D::F32, 1, Scaled::Before, K::Multiply, false, by_fill);
    cases.push(Case::new("a number that an op fills in", finish(builder, &scores, &v), applied, 1));
    check(cases);
}

#[test]
fn a_factor_that_is_needed_or_is_no_number_stays() {
    let number = |builder: &mut Builder| builder.scalar(D::F32, 0.4);
    let plain = || scaled(D::F32, 4, Scaled::Before, K::Multiply, false, number);
    let mut cases = Vec::new();

    for wanted in [2, 3] {
        let (mut builder, ports) = plain();
        builder.hand_out(&ports[wanted]);
        let [scores, v, ..] = ports;
        cases.push(Case::new(format!("port {wanted} is handed out"), finish(builder, &scores, &v), &[], 2));
    }
    let of_features = |builder: &mut Builder| {
        let numbers = numbers(&mut Random::new(8), &[24], 1.0);
        builder.input(D::F32, &[24], None, &numbers)
    };
    let (builder, [scores, v, ..]) = scaled(D::F32, 4, Scaled::Before, K::Multiply, false, of_features);
    cases.push(Case::new("a factor for each feature", finish(builder, &scores, &v), &[], 1));
    let narrow = |builder: &mut Builder| builder.scalar(D::F16, 0.4);
    let (builder, [scores, v, ..]) = scaled(D::F16, 4, Scaled::Before, K::Multiply, false, narrow);
    cases.push(Case::new("f16, which has a small range", finish(builder, &scores, &v), &[], 1));
    let (mut builder, [scores, ..]) = plain();
    builder.op(K::Exp, &[&scores], D::F32);
    let setup = builder.finish();
    let partitions = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("a product without a SoftMax", setup, &[], partitions));
    check(cases);
}

#[test]
fn other_dims_than_those_of_the_graph_run_without_rewrites() {
    let number = |builder: &mut Builder| builder.scalar(D::F32, 0.4);
    let (builder, [scores, v, ..]) = scaled(D::F32, 4, Scaled::Before, K::Multiply, false, number);
    let mut setup = finish(builder, &scores, &v);
    assert_eq!(setup.partitions(Policy::Fusion)[0].rewrites(), [Rewrite::ScaleToQueries]);
    // The number becomes one for each key.
    let numbers = numbers(&mut Random::new(9), &[70, 1], 1.0);
    let mut other = Builder::new(true);
    other.input(D::F32, &[70, 1], None, &numbers);
    let mut given = other.inputs.remove(0);
    let place = setup.inputs.iter().position(|input| input.value.dims().is_empty()).unwrap();
    given.desc = given.desc.with_id(setup.inputs[place].desc.id());
    setup.inputs[place] = given;
    let wrong = check_all(&[("a number for each key".into(), setup)], &engines());
    report(&wrong);
}

/// How keys and values are repeated for the heads of the queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Repeated {
    Select,
    Multiply,
    Concat,
}

/// Keys or values [b, h, s, d] for h·g heads of queries.
pub(crate) fn repeat(builder: &mut Builder, of: &Port, groups: i64, form: Repeated) -> Port {
    let &[b, h, s, d] = &of.dims[..] else { panic!("keys have four dims") };
    let apart = builder.reshape(of, &[b, h, 1, s, d]);
    let dims = [b, h, groups, s, d];
    let repeated = match form {
        Repeated::Select => {
            let all = fill(builder, D::Boolean, &dims, 1.0);
            let mode = (Attr::AutoBroadcast, "multidirectional".into());
            builder.op_with(K::Select, &[&all, &apart, &apart], &[of.data_type()], &[mode]).remove(0)
        }
        Repeated::Multiply => {
            let ones = fill(builder, of.data_type(), &dims, 1.0);
            builder.op(K::Multiply, &[&apart, &ones], of.data_type())
        }
        Repeated::Concat => {
            let copies = vec![&apart; groups as usize];
            builder.op_with(K::Concat, &copies, &[of.data_type()], &[(Attr::Axis, 2i64.into())]).remove(0)
        }
    };
    builder.reshape(&repeated, &[b, h * groups, s, d])
}

/// A mask of scores [b, heads, q, k].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Masked {
    No,
    /// A bias of these batch dims, from behind.
    Bias(&'static [i64]),
    /// The same, that a partition of its own makes.
    Computed(&'static [i64]),
    Causal,
}

pub(crate) fn masked(builder: &mut Builder, scores: &Port, masked: Masked) -> Port {
    let tokens = &scores.dims[scores.dims.len() - 2..].to_vec();
    match masked {
        Masked::No => scores.clone(),
        Masked::Bias(batch) => {
            let dims = [batch, tokens].concat();
            let numbers = numbers(&mut Random::new(21), &dims, 1.0);
            let bias = builder.input(scores.data_type(), &dims, None, &numbers);
            builder.op(K::Add, &[scores, &bias], scores.data_type())
        }
        Masked::Computed(batch) => {
            let [a, b] = [tokens.clone(), vec![tokens[1], tokens[0]]].map(|tokens| {
                let dims = [batch, &tokens].concat();
                let numbers = numbers(&mut Random::new(22), &dims, 1.0);
                builder.input(scores.data_type(), &dims, None, &numbers)
            });
            let rank = batch.len() as i64 + 2;
            let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            let b = builder.transpose(&b, &order);
            let bias = builder.op(K::Add, &[&a, &b], scores.data_type());
            builder.op(K::Add, &[scores, &bias], scores.data_type())
        }
        Masked::Causal => {
            let keep = builder.causal(scores, false);
            builder.select(&keep, scores, f32::NEG_INFINITY, false)
        }
    }
}

fn grouped(
    data_type: DataType,
    queries: i64,
    batch: i64,
    form: Repeated,
    mask: Masked,
    transposes: bool,
) -> Setup {
    let mut builder = Builder::new(true);
    let mut random = Random::new(6);
    let mut input = |builder: &mut Builder, dims: &[i64]| {
        let numbers = numbers(&mut random, dims, 1.5);
        builder.input(data_type, dims, None, &numbers)
    };
    let (heads, groups, keys, d) = (2, 3, 37, 16);
    let q = input(&mut builder, &[batch, heads * groups, queries, d]);
    let k = input(&mut builder, &[batch, heads, keys, d]);
    let v = input(&mut builder, &[batch, heads, keys, d]);
    let mut k = repeat(&mut builder, &k, groups, form);
    let v = repeat(&mut builder, &v, groups, form);
    if transposes {
        k = builder.transpose(&k, &[0, 1, 3, 2]);
    }
    let scores = builder.matmul(&q, &k, !transposes, D::F32);
    let scale = builder.scalar(D::F32, 0.25);
    let scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = masked(&mut builder, &scores, mask);
    let shares = builder.softmax(&scores, false, data_type);
    let result = builder.matmul(&shares, &v, false, data_type);
    builder.transpose(&result, &[0, 2, 1, 3]);
    builder.finish()
}

#[test]
fn repeated_heads_become_groups_of_queries() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::RepeatedHeads][..];
    let forms = [Repeated::Select, Repeated::Multiply, Repeated::Concat];
    let masks = [
        Masked::No,
        Masked::Bias(&[]),
        Masked::Bias(&[1, 1]),
        Masked::Bias(&[1, 6]),
        Masked::Bias(&[6]),
        Masked::Causal,
    ];
    for (at, mask) in masks.into_iter().enumerate() {
        for (queries, batch, data_type) in [(1, 1, D::F32), (37, 1, D::F32), (5, 2, D::Bf16)] {
            let (form, transposes) = (forms[at % 3], at % 2 == 0);
            let name = format!("{form:?} {mask:?} of {queries} × {batch} in {data_type}");
            let setup = grouped(data_type, queries, batch, form, mask, transposes);
            cases.push(Case::new(name, setup, applied, 1));
        }
    }
    for mask in [Masked::Bias(&[2, 1]), Masked::Bias(&[2, 6])] {
        let setup = grouped(D::F32, 5, 2, Repeated::Select, mask, true);
        cases.push(Case::new(format!("{mask:?} of two samples"), setup, applied, 1));
    }
    for mask in [Masked::Computed(&[2, 1]), Masked::Computed(&[2, 6])] {
        for queries in [1, 37] {
            let setup = grouped(D::F32, queries, 2, Repeated::Select, mask, true);
            cases.push(Case::new(format!("{mask:?} of {queries} queries"), setup, applied, 2));
        }
    }
    check(cases);
}

/// Scores [heads, q, k] that get a leading dim before the SoftMax.
fn reshaped([before, mask]: [Masked; 2], leads_back: bool, is_wanted: bool) -> Setup {
    let mut builder = Builder::new(true);
    let mut random = Random::new(7);
    let mut input = |builder: &mut Builder, dims: &[i64]| {
        let numbers = numbers(&mut random, dims, 1.5);
        builder.input(D::F32, dims, None, &numbers)
    };
    let (samples, heads, queries, keys, d) = (2, 3, 40, 70, 16);
    let q = input(&mut builder, &[samples * heads, queries, d]);
    let k = input(&mut builder, &[samples * heads, d, keys]);
    let batch: &[i64] = if leads_back { &[6] } else { &[2, 3] };
    let v = input(&mut builder, &[batch, &[keys, d]].concat());
    let scores = builder.matmul(&q, &k, false, D::F32);
    let scale = builder.scalar(D::F32, 0.25);
    let scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = masked(&mut builder, &scores, before);
    let apart = builder.reshape(&scores, &[samples, heads, queries, keys]);
    if is_wanted {
        builder.hand_out(&apart);
    }
    let logits = masked(&mut builder, &apart, mask);
    let mut shares = builder.softmax(&logits, false, D::F32);
    if leads_back {
        shares = builder.reshape(&shares, &[samples * heads, queries, keys]);
    }
    builder.matmul(&shares, &v, false, D::F32);
    builder.finish()
}

/// Scores [heads, q, k] that get their dims for the mask alone, and perhaps may not be less than a number.
fn reshaped_for_a_mask(mask: Masked, is_floored: bool) -> Setup {
    let mut builder = Builder::new(true);
    let heads = Heads::new(D::F32, &[6], [40, 70], 16);
    let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(8));
    let scores = builder.matmul(&q, &k, true, D::F32);
    let apart = builder.reshape(&scores, &[2, 3, 40, 70]);
    let mut logits = masked(&mut builder, &apart, mask);
    if is_floored {
        let least = fill(&mut builder, D::F32, &[], f32::MIN);
        logits = builder.op(K::Maximum, &[&logits, &least], D::F32);
    }
    let joined = builder.reshape(&logits, &[6, 40, 70]);
    finish(builder, &joined, &v)
}

#[test]
fn a_reshape_inside_of_attention_moves_to_its_borders() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::ReshapeInsideAttention][..];
    let masks =
        [Masked::No, Masked::Bias(&[1, 1]), Masked::Bias(&[2, 1]), Masked::Bias(&[2, 3]), Masked::Causal];
    for mask in masks {
        for leads_back in [false, true] {
            let setup = reshaped([Masked::No, mask], leads_back, false);
            cases.push(Case::new(format!("{mask:?}, leads back: {leads_back}"), setup, applied, 1));
        }
    }
    // BLOOM's slopes, and DeBERTa's positions, are made by other ops.
    for (before, partitions) in [(Masked::Computed(&[6]), 2), (Masked::Computed(&[1]), 1)] {
        for leads_back in [false, true] {
            let setup = reshaped([before, Masked::Bias(&[2, 1])], leads_back, false);
            let name = format!("{before:?}, leads back: {leads_back}");
            cases.push(Case::new(name, setup, applied, partitions));
        }
    }
    for mask in [Masked::Bias(&[1, 1]), Masked::Bias(&[2, 1]), Masked::Bias(&[2, 3]), Masked::Causal] {
        for is_floored in [false, true] {
            let name = format!("{mask:?} and back, floored: {is_floored}");
            cases.push(Case::new(name, reshaped_for_a_mask(mask, is_floored), applied, 1));
        }
    }
    let setup = reshaped([Masked::No; 2], true, true);
    let partitions = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("the reshaped scores are handed out", setup, &[], partitions));
    check(cases);
}

/// Strides lead through a reshape that divides dims whatever they are, and not through one that joins dims.
#[test]
fn a_bias_of_another_partition_is_reshaped_where_strides_are_enough() {
    let mut rows: Vec<Row> = Vec::new();
    let mut wrong = Vec::new();
    for (name, from, to, is_inside) in [
        ("divided", &[6][..], &[2, 3][..], true),
        ("joined", &[2, 3], &[6], false),
        ("one more", &[6], &[6, 1], true),
    ] {
        let mut builder = Builder::new(true);
        let heads = Heads::new(D::F32, to, [40, 70], 16);
        let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(15));
        let dims = [from, &[40, 70]].concat();
        let strides = attention::strides(&dims, Lie::TokenMajor);
        let [a, b] = [16, 17].map(|seed| {
            let numbers = numbers(&mut Random::new(seed), &dims, 1.0);
            builder.input(D::F32, &dims, Some(&strides), &numbers)
        });
        let bias = builder.op(K::Add, &[&a, &b], D::F32);
        let bias = builder.reshape(&bias, &[to, &[40, 70]].concat());
        let scores = builder.matmul(&q, &k, true, D::F32);
        let scores = builder.op(K::Add, &[&scores, &bias], D::F32);
        let setup = finish(builder, &scores, &v);
        let partitions = setup.partitions(Policy::Fusion);
        let has = |kind: OpKind| {
            partitions.iter().position(|of| of.ops().iter().any(|op| op.kind() == kind)).unwrap()
        };
        if partitions.len() != 2 || (has(K::SoftMax) == has(K::StaticReshape)) != is_inside {
            wrong.push(format!("{name}: {} partitions", partitions.len()));
        }
        rows.push((name.into(), setup));
    }
    wrong.extend(check_all(&rows, &engines()));
    report(&wrong);
}

/// Attention whose weights are guarded, with a row of queries that sees no key.
fn guarded(test: OpKind, zero: f32, is_wanted: bool) -> Setup {
    let mut builder = Builder::new(true);
    let heads = Heads::new(D::F32, &[2, 3], [9, 40], 16);
    let [q, k, v] = heads.inputs(&mut builder, &mut Random::new(11));
    let scores = builder.matmul(&q, &k, true, D::F32);
    let seen: Vec<f32> = (0..9 * 40).map(|at| f32::from(u8::from(at / 40 != 3 && at % 7 != 0))).collect();
    let keep = builder.input(D::Boolean, &[9, 40], None, &seen);
    let scores = builder.select(&keep, &scores, f32::NEG_INFINITY, false);
    let weights = builder.softmax(&scores, false, D::F32);
    if is_wanted {
        builder.hand_out(&weights);
    }
    let zero = fill(&mut builder, D::F32, &[], zero);
    let operands = if test == K::IsNaN { vec![&weights] } else { vec![&weights, &weights] };
    let is_nan = builder.op(test, &operands, D::Boolean);
    let [then, other] = if test == K::Equal { [&weights, &zero] } else { [&zero, &weights] };
    let shares = builder.op(K::Select, &[&is_nan, then, other], D::F32);
    builder.matmul(&shares, &v, false, D::F32);
    builder.finish()
}

#[test]
fn a_guard_of_the_weights_becomes_the_mode_of_the_softmax() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::GuardedSoftmax][..];
    for test in [K::IsNaN, K::NotEqual, K::Equal] {
        cases.push(Case::new(format!("{test}"), guarded(test, 0.0, false), applied, 1));
    }
    for (name, zero, is_wanted) in [("another number", 1.0, false), ("weights handed out", 0.0, true)] {
        let setup = guarded(K::IsNaN, zero, is_wanted);
        let partitions = setup.partitions(Policy::Fusion).len();
        cases.push(Case::new(name, setup, &[], partitions));
    }
    check(cases);
}

/// Values, whose tokens are columns or rows, times the transposed weights.
fn transposed(data_type: DataType, by_attr: bool, tokens_are_rows: bool, is_wanted: bool) -> Setup {
    let mut builder = Builder::new(true);
    let heads = Heads::new(data_type, &[2, 3], [9, 40], 16);
    let [q, k, _] = heads.inputs(&mut builder, &mut Random::new(13));
    let mut dims = [2, 3, 16, 40];
    if tokens_are_rows {
        dims.swap(2, 3);
    }
    let of_values = numbers(&mut Random::new(14), &dims, 1.0);
    let v = builder.input(data_type, &dims, None, &of_values);
    let scores = builder.matmul(&q, &k, true, D::F32);
    let weights = builder.softmax(&scores, true, data_type);
    let mut right = weights;
    if !by_attr {
        right = builder.transpose(&right, &[0, 1, 3, 2]);
        right = builder.reorder(&right);
    }
    if is_wanted {
        builder.hand_out(&right);
    }
    let attrs = [(Attr::TransposeA, tokens_are_rows.into()), (Attr::TransposeB, by_attr.into())];
    let result = builder.op_with(K::MatMul, &[&v, &right], &[data_type], &attrs).remove(0);
    builder.transpose(&result, &[0, 3, 1, 2]);
    builder.finish()
}

#[test]
fn transposed_weights_become_the_left_operand() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::TransposedWeights][..];
    for data_type in [D::F32, D::Bf16] {
        for by_attr in [false, true] {
            for tokens_are_rows in [false, true] {
                let name = format!("{data_type}, by an attribute {by_attr}, rows {tokens_are_rows}");
                let setup = transposed(data_type, by_attr, tokens_are_rows, false);
                cases.push(Case::new(name, setup, applied, 1));
            }
        }
    }
    let setup = transposed(D::F32, false, false, true);
    let partitions = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("the weights are handed out", setup, &[], partitions));
    check(cases);
}

/// Multi-query attention as JAX writes it: one head of keys times all heads of queries at once, whose scores
/// are `[b, k, h·q]`, and go through a SoftMax along the queries.
fn heads_in_columns(data_type: DataType, by_attr: bool, values_by_attr: bool, is_wanted: bool) -> Setup {
    let [batch, heads, keys, queries, depth] = [2, 3, 40, 70, 16];
    let mut builder = Builder::new(true);
    let mut input = |dims: &[i64], seed: u64| {
        builder.input(data_type, dims, None, &numbers(&mut Random::new(seed), dims, 1.0))
    };
    let k = input(&[batch, keys, depth], 1);
    let q = match by_attr {
        true => input(&[batch, heads * queries, depth], 2),
        false => input(&[batch, depth, heads * queries], 2),
    };
    let v = match values_by_attr {
        true => input(&[batch, keys, depth], 3),
        false => input(&[batch, depth, keys], 3),
    };
    let bias = input(&[batch, heads, keys, queries], 4);
    let scores = builder.matmul(&k, &q, by_attr, D::F32);
    let scores = builder.reshape(&scores, &[batch, keys, heads, queries]);
    let scores = builder.transpose(&scores, &[0, 2, 1, 3]);
    let scores = builder.op(K::Add, &[&scores, &bias], D::F32);
    let weights = builder.softmax(&scores, true, data_type);
    let moved = builder.transpose(&weights, &[0, 2, 1, 3]);
    let joined = builder.reshape(&moved, &[batch, keys, heads * queries]);
    if is_wanted {
        builder.hand_out(&joined);
    }
    let attrs = [(Attr::TransposeA, values_by_attr.into())];
    builder.op_with(K::MatMul, &[&v, &joined], &[data_type], &attrs);
    builder.finish()
}

#[test]
fn heads_in_columns_become_batch_dims() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::ReshapeInsideAttention, Rewrite::TransposedWeights][..];
    for data_type in [D::F32, D::Bf16] {
        for by_attr in [false, true] {
            for values_by_attr in [false, true] {
                let name = format!("{data_type}, transposed by attributes {by_attr}, {values_by_attr}");
                let setup = heads_in_columns(data_type, by_attr, values_by_attr, false);
                cases.push(Case::new(name, setup, applied, 1));
            }
        }
    }
    let setup = heads_in_columns(D::F32, false, false, true);
    let partitions = setup.partitions(Policy::Fusion).len();
    cases.push(Case::new("the weights are handed out", setup, &[], partitions));
    check(cases);
}

#[test]
fn a_product_of_two_softmaxes_stays() {
    let mut cases = Vec::new();
    for transpose_b in [false, true] {
        let mut builder = Builder::new(true);
        let mut shares = |dims: &[i64]| {
            let scores = builder.input(D::F32, dims, None, &numbers(&mut Random::new(1), dims, 1.0));
            builder.softmax(&scores, true, D::F32)
        };
        let left = shares(&[2, 5, 7]);
        let right = shares(if transpose_b { &[2, 6, 7] } else { &[2, 7, 6] });
        builder.matmul(&left, &right, transpose_b, D::F32);
        let setup = builder.finish();
        let partitions = setup.partitions(Policy::Fusion).len();
        cases.push(Case::new(format!("transposed {transpose_b}"), setup, &[], partitions));
    }
    check(cases);
}
