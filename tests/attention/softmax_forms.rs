//! Promise: a SoftMax that is written out, or whose maximum is taken off before it, runs as the op, in one
//! partition with the attention around it; a form that is another function, or whose inner values are needed
//! elsewhere, stays.

use crate::attention::{Builder, Heads, Port, Setup, numbers};
use crate::common::Random;
use crate::rewrites::{Case, Masked, Repeated, check, fill, masked, repeat};
use sterna::{Attr, AttrValue, DataType, OpKind, Policy, Rewrite};

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

fn reduce(builder: &mut Builder, kind: OpKind, of: &Port, axis: i64) -> Port {
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Axes, vec![axis].into()), (Attr::KeepDims, true.into())];
    builder.op_with(kind, &[of], &[of.data_type()], &attrs).remove(0)
}

/// Scaled scores, and the values.
fn scores(builder: &mut Builder, heads: &Heads, of_scores: DataType) -> [Port; 2] {
    let [q, k, v] = heads.inputs(builder, &mut Random::new(31));
    let scores = builder.matmul(&q, &k, true, of_scores);
    let scale = builder.scalar(of_scores, 0.3);
    [builder.op(K::Multiply, &[&scores, &scale], of_scores), v]
}

/// A case whose forms stay as they are.
fn stays(name: &str, setup: Setup) -> Case {
    let partitions = setup.partitions(Policy::Fusion).len();
    Case::new(name, setup, &[], partitions)
}

/// A SoftMax behind a subtraction of the maximum.
#[derive(Debug, Clone, Copy)]
struct Shift {
    of_scores: DataType,
    inf_as_zero: bool,
    /// The axis of the maximum.
    axis: i64,
    /// The inner value that is handed out: the maximum, or the difference.
    wanted: Option<usize>,
    has_column: bool,
}

const SHIFT: Shift =
    Shift { of_scores: D::F32, inf_as_zero: false, axis: -1, wanted: None, has_column: false };

/// Attention as gpt-oss writes it.
fn shifted(heads: &Heads, form: Shift) -> Setup {
    let mut builder = Builder::new(true);
    let [mut x, v] = scores(&mut builder, heads, form.of_scores);
    let seen: Vec<f32> = (0..heads.queries * heads.keys)
        .map(|at| f32::from(u8::from(at / heads.keys != 3 && at % 7 != 0)))
        .collect();
    let keep = builder.input(D::Boolean, &[heads.queries, heads.keys], None, &seen);
    x = builder.select(&keep, &x, f32::NEG_INFINITY, false);
    if form.has_column {
        let dims = [&heads.batch[..], &[heads.queries, 1]].concat();
        let column = numbers(&mut Random::new(32), &dims, 2.0);
        let column = builder.input(form.of_scores, &dims, None, &column);
        let axis = [(Attr::Axis, (-1i64).into())];
        x = builder.op_with(K::Concat, &[&x, &column], &[form.of_scores], &axis).remove(0);
    }
    let maximum = reduce(&mut builder, K::ReduceMax, &x, form.axis);
    let difference = builder.op(K::Subtract, &[&x, &maximum], form.of_scores);
    if let Some(wanted) = form.wanted {
        builder.hand_out([&maximum, &difference][wanted]);
    }
    let mut weights = builder.softmax(&difference, form.inf_as_zero, v.data_type());
    if form.has_column {
        weights = columns(&mut builder, &weights, heads.keys);
    }
    builder.matmul(&weights, &v, false, v.data_type());
    builder.finish()
}

/// The first columns.
fn columns(builder: &mut Builder, of: &Port, end: i64) -> Port {
    let range = [(Attr::Axes, -1), (Attr::Starts, 0), (Attr::Ends, end)];
    let attrs = range.map(|(attr, number): (Attr, i64)| (attr, vec![number].into()));
    builder.op_with(K::Slice, &[of], &[of.data_type()], &attrs).remove(0)
}

#[test]
fn a_maximum_is_not_taken_off_before_a_softmax() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::SoftmaxShift][..];
    for data_type in TYPES {
        for sizes in [[40, 70], [4, 700]] {
            for has_column in [false, true] {
                let heads = Heads::new(data_type, &[2, 3], sizes, 16);
                let of_scores = if has_column { data_type } else { D::F32 };
                let form = Shift { of_scores, has_column, ..SHIFT };
                let name = format!("{data_type} {sizes:?}, column {has_column}");
                cases.push(Case::new(name, shifted(&heads, form), applied, 1));
            }
        }
    }
    let mut builder = Builder::new(true);
    let x = builder.input(D::F32, &[5, 33], None, &numbers(&mut Random::new(1), &[5, 33], 9.0));
    let maximum = reduce(&mut builder, K::ReduceMax, &x, 1);
    let difference = builder.op(K::Subtract, &[&x, &maximum], D::F32);
    builder.softmax(&difference, false, D::F32);
    cases.push(Case::new("outside of attention, an axis from the front", builder.finish(), applied, 1));
    check(cases);
}

#[test]
fn a_maximum_that_is_needed_or_of_another_axis_stays() {
    let heads = Heads::new(D::F32, &[2], [9, 40], 16);
    let rows = [
        ("a mode that makes −∞ 0", Shift { inf_as_zero: true, ..SHIFT }),
        ("the maxima of queries", Shift { axis: -2, ..SHIFT }),
        ("the maximum is handed out", Shift { wanted: Some(0), ..SHIFT }),
        ("the difference is handed out", Shift { wanted: Some(1), ..SHIFT }),
    ];
    check(rows.into_iter().map(|(name, form)| stays(name, shifted(&heads, form))).collect());
}

/// The addend of the sum of the exponentials.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Added {
    Nothing,
    /// A number times the exponential of the negative maximum, or without a maximum the number itself.
    Share(f32),
    /// A number beside exponentials of distances from the maximum: not a column of one number.
    Number(f32),
}

/// A SoftMax of ops.
#[derive(Debug, Clone, Copy)]
struct Written {
    has_maximum: bool,
    added: Added,
    by_reciprocal: bool,
    axis: i64,
    /// The sum is handed out.
    is_wanted: bool,
}

const WRITTEN: Written =
    Written { has_maximum: true, added: Added::Nothing, by_reciprocal: false, axis: -1, is_wanted: false };

fn written(builder: &mut Builder, x: &Port, form: Written) -> Port {
    let of = x.data_type();
    let maximum = form.has_maximum.then(|| reduce(builder, K::ReduceMax, x, form.axis));
    let shifted = maximum.as_ref().map(|maximum| builder.op(K::Subtract, &[x, maximum], of));
    let exponentials = builder.op(K::Exp, &[shifted.as_ref().unwrap_or(x)], of);
    let mut sum = reduce(builder, K::ReduceSum, &exponentials, form.axis);
    if form.is_wanted {
        builder.hand_out(&sum);
    }
    let addend = match (form.added, &maximum) {
        (Added::Nothing, _) => None,
        (Added::Share(number), Some(maximum)) => {
            let negative = builder.op(K::Negative, &[maximum], of);
            let share = builder.op(K::Exp, &[&negative], of);
            match number {
                1.0 => Some(share),
                number => {
                    let factor = fill(builder, of, &[], number);
                    Some(builder.op(K::Multiply, &[&factor, &share], of))
                }
            }
        }
        (Added::Share(number) | Added::Number(number), _) => Some(fill(builder, of, &[], number)),
    };
    if let Some(addend) = addend {
        sum = builder.op(K::Add, &[&addend, &sum], of);
    }
    match form.by_reciprocal {
        true => {
            let inverse = builder.op(K::Reciprocal, &[&sum], of);
            builder.op(K::Multiply, &[&exponentials, &inverse], of)
        }
        false => builder.op(K::Divide, &[&exponentials, &sum], of),
    }
}

/// Attention as gpt-oss writes it, with heads of keys and values for two heads of queries each, a mask that
/// another partition makes, and a column for each head.
fn sinks_of_repeated_heads(queries: i64) -> Setup {
    let mut builder = Builder::new(true);
    let mut random = Random::new(33);
    let mut input = |builder: &mut Builder, dims: &[i64]| {
        let numbers = numbers(&mut random, dims, 1.5);
        builder.input(D::F32, dims, None, &numbers)
    };
    let keys = 70;
    let q = input(&mut builder, &[2, 4, queries, 16]);
    let [k, v] = [0, 1].map(|_| {
        let of = input(&mut builder, &[2, 2, keys, 16]);
        repeat(&mut builder, &of, 2, Repeated::Select)
    });
    let k = builder.transpose(&k, &[0, 1, 3, 2]);
    let x = builder.matmul(&q, &k, false, D::F32);
    let scale = builder.scalar(D::F32, 0.3);
    let x = builder.op(K::Multiply, &[&x, &scale], D::F32);
    let x = masked(&mut builder, &x, Masked::Computed(&[2, 1]));
    let column = input(&mut builder, &[2, 4, queries, 1]);
    let axis = [(Attr::Axis, (-1i64).into())];
    let x = builder.op_with(K::Concat, &[&x, &column], &[D::F32], &axis).remove(0);
    let maximum = reduce(&mut builder, K::ReduceMax, &x, -1);
    let difference = builder.op(K::Subtract, &[&x, &maximum], D::F32);
    let weights = builder.softmax(&difference, false, D::F32);
    let weights = columns(&mut builder, &weights, keys);
    builder.matmul(&weights, &v, false, D::F32);
    builder.finish()
}

#[test]
fn columns_and_repeated_heads_go_together() {
    let applied = &[Rewrite::SoftmaxShift, Rewrite::RepeatedHeads][..];
    let cases = [1, 40]
        .map(|queries| Case::new(format!("{queries} queries"), sinks_of_repeated_heads(queries), applied, 2));
    check(cases.into());
}

/// Attention with a SoftMax of ops.
fn attention(heads: &Heads, form: Written) -> Setup {
    let mut builder = Builder::new(true);
    let [x, v] = scores(&mut builder, heads, heads.data_type);
    let weights = written(&mut builder, &x, form);
    builder.matmul(&weights, &v, false, v.data_type());
    builder.finish()
}

#[test]
fn a_softmax_that_is_written_out_becomes_the_op() {
    let mut cases = Vec::new();
    let applied = &[Rewrite::WrittenSoftmax][..];
    let added = [Added::Nothing, Added::Share(1.0), Added::Share(2.5)];
    for (at, data_type) in [D::F32, D::Bf16].into_iter().enumerate() {
        for sizes in [[40, 70], [4, 700]] {
            for added in added {
                for has_maximum in [true, false] {
                    let heads = Heads::new(data_type, &[2, 3], sizes, 16);
                    let by_reciprocal = (at + usize::from(has_maximum)).is_multiple_of(2);
                    let form = Written { has_maximum, added, by_reciprocal, ..WRITTEN };
                    let name = format!("{data_type} {sizes:?} {form:?}");
                    cases.push(Case::new(name, attention(&heads, form), applied, 1));
                }
            }
        }
    }
    for axis in [0, 1, -1] {
        let mut builder = Builder::new(true);
        let x = builder.input(D::F32, &[5, 33], None, &numbers(&mut Random::new(1), &[5, 33], 9.0));
        written(&mut builder, &x, Written { axis, ..WRITTEN });
        cases.push(Case::new(format!("outside of attention, axis {axis}"), builder.finish(), applied, 1));
    }
    check(cases);
}

#[test]
fn queries_without_keys_have_no_weights_beside_a_number() {
    let heads = Heads::new(D::F32, &[2], [9, 40], 16);
    let mut cases = Vec::new();
    for added in [Added::Share(1.0), Added::Share(0.5)] {
        let mut builder = Builder::new(true);
        let [x, v] = scores(&mut builder, &heads, D::F32);
        let seen: Vec<f32> = (0..9 * 40).map(|at| f32::from(u8::from(at / 40 != 3))).collect();
        let keep = builder.input(D::Boolean, &[9, 40], None, &seen);
        let x = builder.select(&keep, &x, f32::NEG_INFINITY, false);
        let weights = written(&mut builder, &x, Written { has_maximum: false, added, ..WRITTEN });
        builder.matmul(&weights, &v, false, D::F32);
        cases.push(Case::new(format!("{added:?}"), builder.finish(), &[Rewrite::WrittenSoftmax], 1));
    }
    check(cases);
}

#[test]
fn other_quotients_of_exponentials_stay() {
    let heads = Heads::new(D::F32, &[2], [9, 40], 16);
    let rows = [
        ("a number beside the maximum", Written { added: Added::Number(1.0), ..WRITTEN }),
        ("a negative share", Written { added: Added::Share(-0.125), ..WRITTEN }),
        ("the sum is handed out", Written { is_wanted: true, ..WRITTEN }),
        ("a column along queries", Written { axis: -2, added: Added::Share(1.0), ..WRITTEN }),
    ];
    check(rows.into_iter().map(|(name, form)| stays(name, attention(&heads, form))).collect());
}
