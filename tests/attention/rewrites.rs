//! Promise: a form that exporters write runs as the form that fuses, in one partition that has the ops and
//! the ports of the graph, with results within the same bounds; a rewrite can be turned off, and leaves alone
//! a form whose inner values are needed elsewhere.

use crate::attention::{Builder, Heads, Port, Row, Setup, check_all, numbers};
use crate::common::{Random, engines, report};
use sterna::{Attr, AttrValue, DataType, FusionVerdict, OpKind, Policy, Rewrite};

use DataType as D;
use OpKind as K;

/// A graph by name, the rewrites that apply to it, and the partitions into which it falls.
struct Case {
    name: String,
    setup: Setup,
    rewrites: Vec<Rewrite>,
    partitions: usize,
}

impl Case {
    fn new(name: impl Into<String>, setup: Setup, rewrites: &[Rewrite], partitions: usize) -> Self {
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
fn check(cases: Vec<Case>) {
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

fn fill(builder: &mut Builder, data_type: DataType, dims: &[i64], number: f32) -> Port {
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
