//! Promise: a plan says which fast forms it did not take, and why, and the guide lists every reason.

use std::collections::BTreeMap;
use std::fs;

use crate::common::report;
use sterna::reference::{self, Value};
use sterna::{
    Attr, DataType, Engine, FallbackReason, FastForm, FusionVerdict, Graph, LogicalTensor, MaskedKeys, Op,
    OpKind, Partition, PlanSummary, Policy, Rewrite, Stream, TensorBuf, TensorId,
};

use DataType as D;
use OpKind as K;

fn tensor(id: usize, dims: &[i64]) -> LogicalTensor {
    LogicalTensor::strided(id, D::F32, dims).unwrap()
}

fn graph(ops: Vec<Op>) -> Graph {
    let mut graph = Graph::new();
    for op in ops {
        graph.add_op(op).unwrap();
    }
    graph.finalize().unwrap();
    graph
}

fn plan(graph: &Graph) -> PlanSummary {
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    assert_eq!(partitions.len(), 1, "{:?}", graph.explain());
    partitions[0].compile(&Engine::new()).unwrap().plan()
}

/// Attention of so many queries, with changes to the first product, the SoftMax and the second product.
fn attention(queries: i64, changed: impl Fn(usize, Op) -> Op) -> Graph {
    let scores = [2, queries, 48];
    let op = |id: usize, kind: K, inputs: [LogicalTensor; 2], output: LogicalTensor| {
        let inputs = inputs.into_iter().take(if kind == K::SoftMax { 1 } else { 2 });
        changed(id, inputs.fold(Op::new(id, kind), Op::input).output(output))
    };
    graph(vec![
        op(0, K::MatMul, [tensor(0, &[2, queries, 8]), tensor(1, &[2, 48, 8])], tensor(2, &scores))
            .attr(Attr::TransposeB, true),
        op(1, K::SoftMax, [tensor(2, &scores), tensor(2, &scores)], tensor(3, &scores))
            .attr(Attr::Axis, -1i64),
        op(2, K::MatMul, [tensor(3, &scores), tensor(4, &[2, 48, 8])], tensor(5, &[2, queries, 8])),
    ])
}

fn said(plan: &PlanSummary) -> Vec<(FastForm, usize, FallbackReason)> {
    plan.fallbacks.iter().map(|fallback| (fallback.form, fallback.op.id.get(), fallback.reason)).collect()
}

/// A norm written out, then attention of its result. The written norm is longer than what makes the values,
/// which move before the scores are there; the norm as one op is shorter.
fn behind_a_written_norm() -> Graph {
    let op = |id: usize, kind: K, inputs: &[&LogicalTensor], output: &LogicalTensor| {
        inputs.iter().fold(Op::new(id, kind), |op, &input| op.input(input.clone())).output(output.clone())
    };
    let fill = |id: usize, number: &LogicalTensor, value: f32| {
        op(id, K::Fill, &[], number).attr(Attr::Shape, vec![1i64]).attr(Attr::Value, value)
    };
    let [x, squares, q, result] = [0, 1, 2, 3].map(|id| tensor(id, &[2, 40, 8]));
    let [mean, raised, root] = [4, 5, 6].map(|id| tensor(id, &[2, 40, 1]));
    let [scores, logits, shares] = [7, 8, 9].map(|id| tensor(id, &[2, 40, 48]));
    let [k, moved] = [10, 11].map(|id| tensor(id, &[2, 48, 8]));
    let [epsilon, scale] = [12, 13].map(|id| tensor(id, &[1]));
    let values = [14, 15, 16, 17, 18].map(|id| tensor(id, &[2, 6, 8, 8]));
    let mut ops = vec![
        fill(0, &epsilon, 1e-6),
        fill(1, &scale, 0.5),
        op(2, K::Square, &[&x], &squares),
        op(3, K::ReduceMean, &[&squares], &mean).attr(Attr::Axes, vec![-1i64]).attr(Attr::KeepDims, true),
        op(4, K::Add, &[&mean, &epsilon], &raised),
        op(5, K::Sqrt, &[&raised], &root),
        op(6, K::Divide, &[&x, &root], &q),
        op(7, K::MatMul, &[&q, &k], &scores).attr(Attr::TransposeB, true),
        op(8, K::Multiply, &[&scores, &scale], &logits),
        op(9, K::SoftMax, &[&logits], &shares).attr(Attr::Axis, -1i64),
        op(10, K::StaticReshape, &[&values[4]], &moved)
            .attr(Attr::Shape, vec![2i64, 48, 8])
            .attr(Attr::SpecialZero, false),
        op(11, K::MatMul, &[&shares, &moved], &result),
    ];
    ops.extend((0..4).map(|at| op(12 + at, K::Abs, &[&values[at]], &values[at + 1])));
    graph(ops)
}

#[test]
fn a_group_beside_a_rewritten_one_keeps_its_form() {
    let partitions = behind_a_written_norm().partitions(Policy::Fusion).unwrap();
    let is_rewritten = |of: &Partition| of.rewrites() == [Rewrite::RmsNorm];
    assert_eq!(partitions.iter().map(is_rewritten).collect::<Vec<_>>(), [true, false, false]);
    let plan = partitions[2].compile(&Engine::new()).unwrap().plan();
    assert_eq!(said(&plan), []);
}

#[test]
fn a_plan_in_the_fast_form_says_nothing() {
    for queries in [1, 100] {
        assert_eq!(said(&plan(&attention(queries, |_, op| op))), []);
    }
}

#[test]
fn a_bias_keeps_attention_from_its_form() {
    let with_bias = |id: usize, op: Op| if id == 2 { op.input(tensor(6, &[8])) } else { op };
    let plan = plan(&attention(100, with_bias));
    assert_eq!(said(&plan), [(FastForm::Attention, 1, FallbackReason::BiasOfProduct)]);
    let text = "slower   no attention at SoftMax (op 1): bias_of_product, a product has a bias\n";
    assert!(plan.to_string().contains(text), "{plan}");
}

/// The verdicts on the whole partition.
fn verdicts(graph: &Graph) -> Vec<(usize, FusionVerdict)> {
    let of_group = |line: &sterna::Explanation| line.neighbour.is_none();
    let all = graph.explain().unwrap().into_iter().filter(of_group);
    all.map(|line| (line.seed.id.get(), line.verdict)).collect()
}

#[test]
fn ops_that_no_shape_makes_fast_say_so_before_they_are_compiled() {
    let with_bias = |id: usize, op: Op| if id == 0 { op.input(tensor(6, &[48])) } else { op };
    let reason = FallbackReason::BiasOfProduct;
    assert_eq!(verdicts(&attention(100, with_bias)), [(1, FusionVerdict::Slower(reason))]);
    assert_eq!(verdicts(&attention(100, |_, op| op)), [(1, FusionVerdict::Matched)]);
}

#[test]
fn strided_keys_keep_few_queries_from_decode() {
    let strided = |id: usize, op: Op| match id {
        2 => Op::new(2, K::MatMul)
            .input(op.inputs()[0].clone())
            .input(LogicalTensor::with_strides(4, D::F32, &[2, 48, 8], &[768, 16, 2]).unwrap())
            .output(op.outputs()[0].clone()),
        _ => op,
    };
    let plan = plan(&attention(1, strided));
    assert_eq!(said(&plan), [(FastForm::Decode, 1, FallbackReason::StridedElements)]);
}

/// The product of activations in u8 and weights in s8, whose scales are numbers of the graph or inputs.
fn product_of_bytes(has_fixed_scales: bool) -> Graph {
    let typed = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let dequantized = |id: usize, from: LogicalTensor, to: LogicalTensor| match has_fixed_scales {
        true => Op::new(id, K::Dequantize)
            .attr(Attr::Scales, vec![0.5f32])
            .attr(Attr::Zps, vec![3i64])
            .input(from)
            .output(to),
        false => Op::new(id, K::DynamicDequantize).input(from).input(tensor(20 + id, &[1])).output(to),
    };
    let [left, right] = [[16, 32], [32, 24]];
    graph(vec![
        dequantized(0, typed(0, D::U8, &left), tensor(1, &left)),
        dequantized(1, typed(2, D::S8, &right), tensor(3, &right)),
        Op::new(2, K::MatMul).input(tensor(1, &left)).input(tensor(3, &right)).output(tensor(4, &[16, 24])),
    ])
}

#[test]
fn scales_that_are_inputs_keep_a_product_from_integers() {
    assert_eq!(said(&plan(&product_of_bytes(true))), []);
    let said = said(&plan(&product_of_bytes(false)));
    assert_eq!(said[0], (FastForm::IntegerProduct, 2, FallbackReason::ComputedScales), "{said:?}");
}

#[test]
fn the_guide_lists_every_form_and_reason() {
    let page = fs::read_to_string("docs/guide/performance.md").unwrap();
    let (_, section) = page.split_once("## Why is the plan slower than it could be?\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let wanted = FastForm::ALL.iter().map(|form| (form.name(), 2, None));
    let reasons = FallbackReason::ALL.iter().map(|reason| (reason.name(), 3, Some(reason.text())));
    let wanted: Vec<(&str, usize, Option<&str>)> = wanted.chain(reasons).collect();
    let mut faults = Vec::new();
    for (row, (name, columns, text)) in rows.iter().zip(&wanted) {
        let is_right = row.len() == *columns
            && row[0].trim_matches('`') == *name
            && text.is_none_or(|text| row[1] == text)
            && row.iter().all(|cell| !cell.is_empty());
        if !is_right {
            faults.push(format!("{row:?} is not the row of {name}"));
        }
    }
    if rows.len() != wanted.len() {
        faults.push(format!("{} rows for {} names", rows.len(), wanted.len()));
    }
    report(&faults);
}

/// Queries of ones, keys of which the last has a share of 0, values of which the last is NaN, and a bias.
fn with_a_masked_nan(id: usize, desc: &LogicalTensor) -> Value {
    let dims = desc.dims().unwrap();
    let count = dims.iter().product::<i64>() as usize;
    let last = |place: usize| (place / 8) % 48 == 47;
    let number = |place: usize| match id {
        1 if last(place) => -1000.0,
        4 if last(place) => f32::NAN,
        0 | 1 => 1.0,
        _ => (place % 7) as f32 - 3.0,
    };
    Value::from_slice(dims, &(0..count).map(number).collect::<Vec<f32>>()).unwrap()
}

#[test]
fn masked_keys_take_part_in_a_slower_form_alone() {
    let with_bias = |id: usize, op: Op| if id == 2 { op.input(tensor(6, &[8])) } else { op };
    let engine = Engine::new();
    let cases = [
        (attention(100, |_, op| op), MaskedKeys::Skipped),
        (attention(1, |_, op| op), MaskedKeys::Skipped),
        (attention(100, with_bias), MaskedKeys::Multiplied),
    ];
    let mut wrong = Vec::new();
    for (graph, expected) in &cases {
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let compiled = partitions[0].compile(&engine).unwrap();
        let given: BTreeMap<TensorId, Value> = (compiled.inputs().iter())
            .map(|desc| (desc.id(), with_a_masked_nan(desc.id().get(), desc)))
            .collect();
        let buffers: Vec<TensorBuf> = (compiled.inputs().iter())
            .map(|desc| {
                let mut buffer = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
                given[&desc.id()].write(&mut buffer).unwrap();
                buffer
            })
            .collect();
        let mut made = TensorBuf::zeroed(compiled.outputs()[0].clone(), &engine).unwrap();
        let inputs: Vec<_> = buffers.iter().map(TensorBuf::as_tensor).collect();
        compiled.execute(&Stream::new(&engine), &inputs, &mut [made.as_tensor_mut()]).unwrap();
        let made = Value::read(&made.as_tensor()).unwrap();
        let masked_keys = compiled.plan().masked_keys();
        let other = match masked_keys {
            MaskedKeys::Skipped => MaskedKeys::Multiplied,
            MaskedKeys::Multiplied => MaskedKeys::Skipped,
        };
        let outside = |masked_keys| {
            let wanted = [5.into()];
            let made_up = reference::enclose_each(graph.ops(), &given, &wanted, masked_keys, &|_| ());
            made_up.unwrap()[&TensorId::new(5)].first_outside(&made)
        };
        let found = (masked_keys, outside(masked_keys), outside(other).is_some());
        if found != (*expected, None, true) {
            wrong.push(format!("expected {expected:?}, found {found:?}"));
        }
    }
    report(&wrong);
}
