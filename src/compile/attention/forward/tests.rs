//! Tiles that are left out against the same plan that leaves out none, bit for bit.

use crate::compile::machine::Machine;
use crate::compile::skipped::{
    ADDENDS, DEPTH, EARLY, FILLS, KEYS, Lower, MASKS, MaskForm, Masked, Ops, QUERIES, SUMS, TYPES, fault,
    lower, machines, mixed, wrong_of,
};
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::plan::{Phase, Plan};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType as D;
use OpKind as K;

/// The operands of attention, and the use that it makes of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bare,
    /// Heads of queries that share a head of keys.
    Grouped,
    /// Keys and values of 8 bits.
    Compressed,
    /// Queries, keys, values and weights that were rounded to 8 bits.
    Rounded,
}

const KINDS: [Kind; 4] = [Kind::Bare, Kind::Grouped, Kind::Compressed, Kind::Rounded];

#[derive(Debug, Clone, Copy)]
struct Row {
    kind: Kind,
    data_type: DataType,
    queries: usize,
    masked: Masked,
}

fn per_tensor(op: Op, scale: f32, zero: i64) -> Op {
    op.attr(Attr::Qtype, "per_tensor").attr(Attr::Scales, vec![scale]).attr(Attr::Zps, vec![zero])
}

/// Tokens of a head, however they are stored.
fn tokens(ops: &mut Ops, row: Row, dims: &[usize], is_stored: bool) -> LogicalTensor {
    let t = row.data_type;
    match row.kind {
        Kind::Compressed if is_stored => {
            let mut of_group = dims.to_vec();
            of_group[dims.len() - 1] /= 8;
            let bytes = ops.bytes(dims);
            let scales = ops.input(t, &of_group, |at| 0.01 + (at % 7) as f32 / 512.0);
            let zeros = ops.input(D::S8, &of_group, |at| 100.0 + (at % 5) as f32);
            let mut group = vec![1i64; dims.len()];
            group[dims.len() - 1] = 8;
            ops.op_with(K::DynamicDequantize, &[&bytes, &scales, &zeros], t, |op| {
                op.attr(Attr::Qtype, "per_group").attr(Attr::GroupShape, &group[..])
            })
        }
        Kind::Rounded => {
            let bytes = ops.bytes(dims);
            let numbers = ops.op_with(K::Dequantize, &[&bytes], D::F32, |op| per_tensor(op, 0.015, 128));
            ops.cast(numbers, t)
        }
        _ => ops.numbers(t, dims),
    }
}

/// Scale, mask, SoftMax and both products.
fn graph(row: Row) -> Ops {
    let t = row.data_type;
    let mut ops = Ops::default();
    let (of_queries, of_keys): (&[usize], &[usize]) = match row.kind {
        Kind::Grouped => (&[2, 3], &[2, 1]),
        _ => (&[2], &[2]),
    };
    let of_queries = [of_queries, &[row.queries, DEPTH]].concat();
    let of_keys = [of_keys, &[KEYS, DEPTH]].concat();
    let q = tokens(&mut ops, row, &of_queries, false);
    let [k, v] = [0; 2].map(|_| tokens(&mut ops, row, &of_keys, true));
    let scores = ops.product(&q, &k);
    let scale = ops.number(0.2);
    let scores = ops.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = ops.masked(&scores, row.queries, row.masked);
    let mut weights = ops.softmax(&scores, t);
    if row.kind == Kind::Rounded {
        weights = ops.cast(weights, D::F32);
        let of_weights = |op: Op| per_tensor(op, 1.0 / 255.0, 3);
        weights = ops.op_with(K::Quantize, &[&weights], D::U8, of_weights);
        weights = ops.op_with(K::Dequantize, &[&weights], D::F32, of_weights);
        weights = ops.cast(weights, t);
    }
    ops.output(K::MatMul, &[&weights, &v], (t, &of_queries), |op| op);
    ops
}

/// Takes the classes from a phase; answers whether it had any.
fn forget(phase: &mut Phase) -> bool {
    let core = match phase {
        Phase::Attention(phase) => &mut phase.core,
        Phase::Decode(phase) => &mut phase.core.core,
        _ => return false,
    };
    core.unmasked = None;
    core.classes.take().is_some()
}

/// As [`lower`], without room for the logits of all keys.
fn lower_without_room(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let mut plan = lower(partition, inputs, outputs, machine)?;
    for phase in &mut plan.phases {
        if let Phase::Attention(phase) = phase {
            phase.layout.stored_weights = None;
        }
    }
    Ok(plan)
}

#[test]
fn what_is_left_out_changes_no_bit() {
    let mut rows: Vec<(Machine, Row)> = Vec::new();
    for machine in machines() {
        for (kind, mask) in KINDS.into_iter().flat_map(|kind| MASKS.iter().map(move |mask| (kind, mask))) {
            // Bare booleans in all types, sizes and fills; of all else, a few that differ from row to row.
            let all = TYPES.into_iter().flat_map(|t| QUERIES.map(|queries| (t, queries)));
            for (data_type, queries) in all.filter(|_| kind == Kind::Bare) {
                rows.extend(FILLS.map(|fill| {
                    let masked = Masked { mask, form: MaskForm::Boolean, inverted: false, fill };
                    (machine, Row { kind, data_type, queries, masked })
                }));
            }
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
        for (form, mask) in
            SUMS.into_iter().flat_map(|form| MASKS.iter().chain([&EARLY]).map(move |mask| (form, mask)))
        {
            for fill in ADDENDS {
                let seed = mixed(rows.len());
                let masked = Masked { mask, form, inverted: seed & 1 != 0, fill };
                let (kind, data_type) = (KINDS[(seed >> 1) % 4], TYPES[(seed >> 8) % 3]);
                // One row in four has few queries.
                let queries = QUERIES[usize::from(seed >> 16 & 3 != 0)];
                rows.push((machine, Row { kind, data_type, queries, masked }));
            }
        }
        // Fills that take the place of scores, in blocks of queries that need them.
        for (form, fill) in [MaskForm::Boolean, MaskForm::Expression]
            .into_iter()
            .flat_map(|form| ADDENDS.map(|fill| (form, fill)))
        {
            let masked = Masked { mask: &EARLY, form, inverted: false, fill };
            let data_type = TYPES[rows.len() % 3];
            rows.push((machine, Row { kind: Kind::Bare, data_type, queries: QUERIES[1], masked }));
        }
    }
    report(&rows);
}

/// Runs rows, each with tiles that are left out and without.
fn report(rows: &[(Machine, Row)]) {
    let wrong = wrong_of(rows, |&(machine, row)| {
        let lowers: &[Lower] =
            if row.kind == Kind::Rounded { &[lower, lower_without_room] } else { &[lower] };
        let why = lowers.iter().find_map(|&lower| fault(&graph(row), machine, lower, forget))?;
        Some(format!("{why}: {machine:?}, {row:?}"))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn logits_of_rounded_weights_are_kept_up_to_a_number_of_keys() {
    let rounded = |keys: usize| {
        let mut ops = Ops::default();
        let q = ops.numbers(D::F32, &[70, 8]);
        let [k, v] = [0; 2].map(|_| ops.numbers(D::F32, &[keys, 8]));
        let scores = ops.product(&q, &k);
        let weights = ops.softmax(&scores, D::F32);
        let of_weights = |op: Op| per_tensor(op, 1.0 / 255.0, 3);
        let weights = ops.op_with(K::Quantize, &[&weights], D::U8, of_weights);
        let weights = ops.op_with(K::Dequantize, &[&weights], D::F32, of_weights);
        ops.output(K::MatMul, &[&weights, &v], (D::F32, &[70, 8]), |op| op);
        ops
    };
    for (keys, is_kept) in [(65, true), (4096, true), (4097, false)] {
        let plan = rounded(keys).plan(machines()[0], lower);
        let has_kept = plan.phases.iter().any(|phase| match phase {
            Phase::Attention(phase) => phase.layout.stored_weights.is_some(),
            _ => false,
        });
        assert_eq!(has_kept, is_kept, "{keys} keys");
    }
}
