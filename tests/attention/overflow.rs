//! Promise: an interval of the reference allows each order of a sum, even where an order overflows to one
//! infinity and a term of the sum is the other.

use std::collections::BTreeMap;

use crate::common::{engines, report};
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Policy, Stream, TensorBuf, TensorId};

use OpKind as K;

const INFINITY: f32 = f32::INFINITY;
/// Two of it overflow.
const LARGE: f32 = 3e38;

fn tensor(id: usize, value: &Value) -> LogicalTensor {
    LogicalTensor::strided(id, DataType::F32, value.dims()).unwrap()
}

fn op(id: usize, kind: OpKind, inputs: &[usize], output: usize) -> Op {
    let port = |id| LogicalTensor::unknown(id, DataType::F32);
    Op::new(id, kind).inputs_from(inputs.iter().map(|&id| port(id))).output(port(output))
}

/// Numbers of f32 as a value of two dims.
fn value(rows: usize, numbers: &[f32]) -> Value {
    Value::from_slice(&[rows as i64, (numbers.len() / rows) as i64], numbers).unwrap()
}

/// A sum is its number, or open.
#[test]
fn sums_that_may_overflow_on_the_way_are_open() {
    // The left row of a product by ones, a row of a sum, and a row of gradients whose weights are 1.
    let rows: [(&str, &[f32], Option<f32>); 9] = [
        ("finite", &[1.0, 2.0, LARGE], Some(LARGE)),
        ("finite, overflows", &[LARGE, LARGE, -LARGE], None),
        ("an infinity", &[-INFINITY, 1.0, 2.0], Some(-INFINITY)),
        ("-inf, +overflow", &[-INFINITY, LARGE, LARGE], None),
        ("+overflow, -inf", &[LARGE, LARGE, -INFINITY], None),
        ("-inf, -overflow", &[-INFINITY, -LARGE, -LARGE], Some(-INFINITY)),
        ("+inf, -overflow", &[-LARGE, INFINITY, -LARGE], None),
        ("+inf, +overflow", &[LARGE, INFINITY, LARGE], Some(INFINITY)),
        ("both infinities", &[LARGE, INFINITY, -INFINITY], Some(f32::NAN)),
    ];
    let ones = value(1, &[1.0; 3]);
    let mut wrong = Vec::new();
    for (name, row, expected) in rows {
        let row = value(1, row);
        let product = op(0, K::MatMul, &[0, 1], 2).attr(Attr::TransposeB, true);
        let sum = op(0, K::ReduceSum, &[0], 2).attr(Attr::Axes, vec![1]).attr(Attr::KeepDims, true);
        let gradient = op(0, K::SoftMaxBackward, &[0, 1], 2);
        for op in [product, sum, gradient] {
            let kind = op.kind();
            let inputs = BTreeMap::from([(0.into(), row.clone()), (1.into(), ones.clone())]);
            let made = &reference::enclose(&[op], &inputs, &[2.into()]).unwrap()[&2.into()];
            let (is_open, given) = (!made.is_judged(0), made.numbers()[0]);
            // A gradient is that of another number: the distance from the sum.
            let is_number = |expected: f32| match expected.is_nan() {
                _ if kind == K::SoftMaxBackward => true,
                true => given.is_nan(),
                false => made.first_outside(&value(1, &[expected])).is_none(),
            };
            let is_right = is_open == expected.is_none() && expected.is_none_or(is_number);
            if !is_right {
                wrong.push(format!("{name}, {kind}: {given}, open: {is_open}"));
            }
        }
    }
    report(&wrong);
}

/// The statistic of scores so large that rounding them moves their exponentials beyond all bounds.
#[test]
fn statistics_of_large_scores_move_as_far_as_the_scores() {
    let sum = op(0, K::MatMul, &[0, 1], 3).attr(Attr::TransposeB, true);
    let scaled = op(1, K::Multiply, &[3, 2], 4);
    let softmax = op(2, K::SoftMax, &[4], 5).output(LogicalTensor::unknown(6, DataType::F32));
    let inputs = BTreeMap::from([
        (0.into(), value(1, &[1.0; 33])),
        (1.into(), value(2, &[1.0; 66])),
        (2.into(), value(1, &[1e12])),
    ]);
    let made = &reference::enclose(&[sum, scaled, softmax], &inputs, &[6.into()]).unwrap()[&6.into()];
    let exact = 33e12f32;
    let rows =
        [(1.0, true), (1.0 + 1e-6, true), (1.0 - 1e-6, true), (1.0 + 1e-4, false), (1.0 - 1e-4, false)];
    let is_wrong = |&(factor, is_allowed): &(f32, bool)| {
        made.first_outside(&value(1, &[exact * factor])).is_none() != is_allowed
    };
    report(&rows.into_iter().filter(is_wrong).collect::<Vec<_>>());
}

/// Runs a graph of one partition.
fn run(graph: &Graph, inputs: &BTreeMap<TensorId, Value>, engine: &Engine) -> Value {
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    let [partition] = &partitions[..] else { panic!("{} partitions", partitions.len()) };
    let descs: Vec<_> = inputs.iter().map(|(id, value)| tensor(id.get(), value)).collect();
    let compiled = partition.compile_for(engine, &descs, partition.outputs()).unwrap();
    let buffer = |(desc, value): (&LogicalTensor, &Value)| {
        let mut buffer = TensorBuf::zeroed(desc.clone(), engine).unwrap();
        value.write(&mut buffer).unwrap();
        buffer
    };
    let given: Vec<TensorBuf> = descs.iter().zip(inputs.values()).map(buffer).collect();
    let given: Vec<_> = given.iter().map(TensorBuf::as_tensor).collect();
    let output = compiled.port(partition.outputs()[0].id()).unwrap().clone();
    let mut made = TensorBuf::zeroed(output, engine).unwrap();
    compiled.execute(&Stream::new(engine), &given, &mut [made.as_tensor_mut()]).unwrap();
    Value::read(&made.as_tensor()).unwrap()
}

/// The second query is −∞ in one place; its other terms overflow to +∞ on the way or not.
#[test]
fn attention_lies_within_the_intervals_at_every_level() {
    let mut wrong = Vec::new();
    for (name, second, is_open) in
        [("overflows", [-INFINITY, LARGE, LARGE], true), ("does not", [-INFINITY, -LARGE, 1.0], false)]
    {
        let queries: Vec<f32> = [1.0, 0.5, -1.0].into_iter().chain(second).collect();
        let inputs = BTreeMap::from([
            (0.into(), value(2, &queries)),
            (1.into(), value(2, &[1.0, 2.0, 2.0, 1.0, 1.0, 1.0])),
            (2.into(), value(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ]);
        let mut graph = Graph::new();
        let port = |id: usize| tensor(id, &inputs[&id.into()]);
        let between = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
        let scores = Op::new(0, K::MatMul).inputs_from([port(0), port(1)]).output(between(3, &[2, 2]));
        graph.add_op(scores.attr(Attr::TransposeB, true)).unwrap();
        let softmax = Op::new(1, K::SoftMax).attr(Attr::Axis, -1).attr(Attr::Mode, "inf_as_zero");
        graph.add_op(softmax.input(between(3, &[2, 2])).output(between(4, &[2, 2]))).unwrap();
        let result = Op::new(2, K::MatMul).inputs_from([between(4, &[2, 2]), port(2)]);
        graph.add_op(result.output(between(5, &[2, 3]))).unwrap();
        graph.finalize().unwrap();
        let allowed = &reference::enclose(graph.ops(), &inputs, &[5.into()]).unwrap()[&5.into()];
        if allowed.is_judged(3) == is_open {
            wrong.push(format!("{name}: judged {}", allowed.is_judged(3)));
        }
        for engine in engines() {
            if let Some(at) = allowed.first_outside(&run(&graph, &inputs, &engine)) {
                wrong.push(format!("{name}, {}: element {at}", engine.level()));
            }
        }
    }
    report(&wrong);
}
