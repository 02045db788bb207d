//! Tiles that the gradients leave out against the same plan that leaves out none, bit for bit.

use crate::compile::machine::Machine;
use crate::compile::skipped::{
    ADDENDS, DEPTH, EARLY, FILLS, KEYS, MASKS, MaskForm, Masked, Ops, QUERIES, SUMS, TYPES, fault, lower,
    machines, mixed, wrong_of,
};
use crate::plan::Phase;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType as D;
use OpKind as K;

/// The ops that make the weights, and those that follow the gradients of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The exponentials of the scores less the statistics of the SoftMax.
    Stats,
    /// A SoftMax, whose gradient is SoftMaxBackward.
    SoftMax,
    /// As `Stats`; heads of queries share a head of keys, whose gradients are sums.
    Grouped,
}

const KINDS: [Kind; 3] = [Kind::Stats, Kind::SoftMax, Kind::Grouped];

#[derive(Debug, Clone, Copy)]
struct Row {
    kind: Kind,
    data_type: DataType,
    queries: usize,
    masked: Masked,
}

/// The gradients of queries, keys and values.
fn graph(row: Row) -> Ops {
    let (t, queries) = (row.data_type, row.queries);
    let mut ops = Ops::default();
    let (of_queries, of_keys): (&[usize], &[usize]) = match row.kind {
        Kind::Grouped => (&[2, 3], &[2, 1]),
        _ => (&[2], &[2]),
    };
    let dims = |batch: &[usize], more: [usize; 2]| [batch, &more].concat();
    let of_stats = dims(of_queries, [queries, 1]);
    let of_result = dims(of_queries, [KEYS, DEPTH]);
    let (of_queries, of_keys) = (dims(of_queries, [queries, DEPTH]), dims(of_keys, [KEYS, DEPTH]));
    let q = ops.numbers(t, &of_queries);
    let [k, v] = [0; 2].map(|_| ops.numbers(t, &of_keys));
    let d_result = ops.numbers(t, &of_queries);

    let scores = ops.product(&q, &k);
    let scale = ops.number(0.2);
    let scores = ops.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = ops.masked(&scores, queries, row.masked);
    let weights = match row.kind {
        Kind::SoftMax => ops.softmax(&scores, D::F32),
        _ => {
            let stats = ops.input(D::F32, &of_stats, |at| 5.0 + (at % 3) as f32);
            let below = ops.op(K::Subtract, &[&scores, &stats], D::F32);
            ops.op(K::Exp, &[&below], D::F32)
        }
    };
    let d_weights = ops.product(&d_result, &v);
    let slopes = match row.kind {
        Kind::SoftMax => {
            ops.op_with(K::SoftMaxBackward, &[&d_weights, &weights], D::F32, |op| op.attr(Attr::Axis, -1i64))
        }
        _ => {
            let result = ops.numbers(t, &of_queries);
            let both = ops.op(K::Multiply, &[&result, &d_result], D::F32);
            let sums = ops.op_with(K::ReduceSum, &[&both], D::F32, |op| {
                op.attr(Attr::Axes, &[-1i64][..]).attr(Attr::KeepDims, true)
            });
            let distance = ops.op(K::Subtract, &[&d_weights, &sums], D::F32);
            ops.op(K::Multiply, &[&weights, &distance], D::F32)
        }
    };
    let slopes = ops.op(K::Multiply, &[&slopes, &scale], D::F32);
    let [slopes, weights] = [slopes, weights].map(|of| ops.cast(of, t));
    ops.output(K::MatMul, &[&slopes, &k], (t, &of_queries), |op| op);
    for (left, right) in [(&slopes, &q), (&weights, &d_result)] {
        if row.kind == Kind::Grouped {
            let of_heads = ops.op_with(K::MatMul, &[left, right], t, |op| op.attr(Attr::TransposeA, true));
            ops.output(K::ReduceSum, &[&of_heads], (t, &of_keys), |op| {
                op.attr(Attr::Axes, &[1i64][..]).attr(Attr::KeepDims, true)
            });
        } else {
            ops.output(K::MatMul, &[left, right], (t, &of_result), |op| op.attr(Attr::TransposeA, true));
        }
    }
    ops
}

/// Takes the classes from a phase; answers whether it had any.
fn forget(phase: &mut Phase) -> bool {
    match phase {
        Phase::AttentionBackward(phase) => phase.classes.take().is_some(),
        _ => false,
    }
}

#[test]
fn what_is_left_out_changes_no_bit() {
    let mut rows: Vec<(Machine, Row)> = Vec::new();
    for machine in machines() {
        for (kind, mask) in KINDS.into_iter().flat_map(|kind| MASKS.iter().map(move |mask| (kind, mask))) {
            for form in [MaskForm::Boolean, MaskForm::Expression, MaskForm::Additive] {
                let seed = mixed(rows.len());
                let masked = Masked { mask, form, inverted: seed & 1 != 0, fill: FILLS[(seed >> 1) % 3] };
                let (data_type, queries) = (TYPES[(seed >> 8) % 3], QUERIES[seed >> 16 & 1]);
                rows.push((machine, Row { kind, data_type, queries, masked }));
            }
        }
    }
    report(&rows);
}

#[test]
fn what_added_numbers_leave_out_changes_no_bit() {
    let mut rows: Vec<(Machine, Row)> = Vec::new();
    for machine in machines() {
        let masks = || MASKS.iter().chain([&EARLY]);
        for (form, mask) in SUMS.into_iter().flat_map(|form| masks().map(move |mask| (form, mask))) {
            let seed = mixed(rows.len());
            let fill = ADDENDS[(seed >> 1) % 4];
            let masked = Masked { mask, form, inverted: seed & 1 != 0, fill };
            let (kind, data_type) = (KINDS[(seed >> 8) % 3], TYPES[(seed >> 16) % 3]);
            rows.push((machine, Row { kind, data_type, queries: QUERIES[1], masked }));
        }
        for fill in ADDENDS {
            let masked = Masked { mask: &EARLY, form: MaskForm::Boolean, inverted: false, fill };
            rows.push((machine, Row { kind: Kind::SoftMax, data_type: D::F32, queries: QUERIES[1], masked }));
        }
    }
    report(&rows);
}

/// Runs rows, each with tiles that are left out and without.
fn report(rows: &[(Machine, Row)]) {
    let wrong = wrong_of(rows, |&(machine, row)| {
        let why = fault(&graph(row), machine, lower, forget)?;
        Some(format!("{why}: {machine:?}, {row:?}"))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
