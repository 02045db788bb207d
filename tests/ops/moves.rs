//! Promise: ops that move elements give what the reference interpreter gives, alone and in groups, fused and
//! not, for every type, layout and CPU level, and none of them has a step of its own where strides lead to
//! the elements.

use std::collections::BTreeMap;

use crate::common::{self, GAP, Random, engines, report};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrValue, CompiledPartition, DataType, Engine, FusionVerdict, Graph, LogicalTensor, Op, OpKind,
    Partition, Policy, Stream, TensorBuf,
};

use DataType as D;
use OpKind as K;

/// Moves of one tensor, as kind and attributes.
fn transpose(order: &[i64]) -> Op {
    Op::new(0, K::StaticTranspose).attr(Attr::Order, order)
}

fn reshape(shape: &[i64]) -> Op {
    Op::new(0, K::StaticReshape).attr(Attr::Shape, shape).attr(Attr::SpecialZero, true)
}

fn slice(starts: &[i64], ends: &[i64], steps: &[i64]) -> Op {
    Op::new(0, K::Slice).attr(Attr::Starts, starts).attr(Attr::Ends, ends).attr(Attr::Steps, steps)
}

fn concat(axis: i64) -> Op {
    Op::new(0, K::Concat).axis(axis)
}

fn reorder() -> Op {
    Op::new(0, K::Reorder)
}

/// The op on tensors of a type; inputs have the ids from 0 on, the output 99.
fn on(op: &Op, data_type: DataType, inputs: usize) -> Op {
    let bare = (0..inputs)
        .fold(Op::new(op.id(), op.kind()), |op, id| op.input(LogicalTensor::unknown(id, data_type)));
    let bare = bare.output(LogicalTensor::unknown(99, data_type));
    op.attrs().fold(bare, |op, (attr, value): (Attr, &AttrValue)| op.attr(attr, value.clone()))
}

/// Strides of a layout by number: dense, with gaps, permuted, reversed, permuted with gaps, every other
/// element, rows that share sets of caches.
fn strides(dims: &[i64], layout: usize) -> Vec<i64> {
    let rank = dims.len();
    let order: Vec<usize> = match layout {
        2 | 4 => (0..rank).map(|i| (i + 1) % rank.max(1)).collect(),
        3 => (0..rank).rev().collect(),
        _ => (0..rank).collect(),
    };
    let mut strides = vec![0; rank];
    let mut stride = if layout == 5 { 2 } else { 1 };
    for &axis in order.iter().rev() {
        strides[axis] = stride;
        stride *= dims[axis].max(1);
        if [1, 4].contains(&layout) {
            stride += 3;
        }
        if layout == ROWS_SHARE_SETS {
            stride = (stride + 1023) / 1024 * 1024;
        }
    }
    strides
}

/// The number of the layouts that every move takes.
const LAYOUTS: usize = 6;

const ROWS_SHARE_SETS: usize = 6;

fn random_value(random: &mut Random, data_type: DataType, dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>() as usize * data_type.size().unwrap();
    Value::new(data_type, dims, (0..count).map(|_| random.next() as u8).collect()).unwrap()
}

fn tensor(desc: LogicalTensor, value: &Value, engine: &Engine) -> TensorBuf {
    let mut tensor = TensorBuf::zeroed(desc, engine).unwrap();
    value.write(&mut tensor).unwrap();
    tensor
}

/// Runs a compiled partition of one output on tensors; bytes between elements must stay.
fn run(compiled: &CompiledPartition, engine: &Engine, inputs: &[TensorBuf]) -> Result<Value, String> {
    let mut output = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).map_err(|e| e.to_string())?;
    output.as_mut_bytes().fill(GAP);
    common::run(compiled, engine, inputs, &mut output).map_err(|e| e.to_string())?;
    let value = Value::read(&output.as_tensor()).unwrap();
    let mut expected = TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).unwrap();
    expected.as_mut_bytes().fill(GAP);
    value.write(&mut expected).unwrap();
    match expected.as_bytes() == output.as_bytes() {
        true => Ok(value),
        false => Err("bytes between the elements changed".into()),
    }
}

/// Runs an op alone in some layouts and compares it with the reference.
fn check(
    op: &Op,
    data_type: DataType,
    dims: &[Vec<i64>],
    [from, to]: [usize; 2],
    engine: &Engine,
) -> Result<(), String> {
    let op = on(op, data_type, dims.len());
    let mut random = Random::new(dims.len() as u64 + 7);
    let values: Vec<Value> = dims.iter().map(|dims| random_value(&mut random, data_type, dims)).collect();
    let expected = reference::run(&op, &values).map_err(|e| e.to_string())?.remove(0);
    let descs: Vec<LogicalTensor> = (dims.iter().enumerate())
        .map(|(id, dims)| LogicalTensor::with_strides(id, data_type, dims, &strides(dims, from)).unwrap())
        .collect();
    let output =
        LogicalTensor::with_strides(99, data_type, expected.dims(), &strides(expected.dims(), to)).unwrap();
    let partition = Partition::from_op(op).map_err(|e| e.to_string())?;
    let compiled = partition.compile_for(engine, &descs, &[output]).map_err(|e| e.to_string())?;
    let inputs: Vec<TensorBuf> =
        descs.iter().zip(&values).map(|(desc, value)| tensor(desc.clone(), value, engine)).collect();
    match run(&compiled, engine, &inputs)? == expected {
        true => Ok(()),
        false => Err("other elements".into()),
    }
}

/// Every kind of move on shapes of all sorts.
fn moves() -> Vec<(Op, Vec<Vec<i64>>)> {
    let one = |op: Op, dims: &[i64]| (op, vec![dims.to_vec()]);
    let mut moves = vec![
        one(transpose(&[]), &[]),
        one(transpose(&[0]), &[7]),
        one(transpose(&[1, 0]), &[3, 5]),
        one(transpose(&[1, 0]), &[64, 64]),
        one(transpose(&[1, 0]), &[65, 33]),
        one(transpose(&[-1, -2]), &[130, 77]),
        one(transpose(&[1, 0]), &[1, 9]),
        one(transpose(&[1, 0]), &[0, 9]),
        one(transpose(&[0, 2, 1]), &[3, 19, 40]),
        one(transpose(&[0, 2, 1, 3]), &[2, 5, 3, 16]),
        one(transpose(&[0, 2, 1, 3]), &[2, 17, 4, 9]),
        one(transpose(&[0, 3, 1, 2]), &[2, 7, 6, 5]),
        one(transpose(&[0, 2, 3, 1]), &[2, 7, 6, 5]),
        one(transpose(&[]), &[2, 3, 4, 5]),
        one(transpose(&[4, 2, 0, 5, 3, 1]), &[2, 3, 4, 2, 3, 2]),
        one(transpose(&[11, 9, 7, 5, 3, 1, 10, 8, 6, 4, 2, 0]), &[2, 1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2]),
        one(reorder(), &[]),
        one(reorder(), &[1000]),
        one(reorder(), &[17, 31]),
        one(reorder(), &[3, 0, 5]),
        one(reorder(), &[4, 5, 6, 7]),
        one(reshape(&[]), &[1, 1]),
        one(reshape(&[1, 1]), &[]),
        one(reshape(&[24]), &[4, 6]),
        one(reshape(&[4, 6]), &[24]),
        one(reshape(&[3, 8]), &[4, 6]),
        one(reshape(&[6, 4]), &[4, 6]),
        one(reshape(&[2, 12]), &[4, 6]),
        one(reshape(&[0, -1, 8]), &[5, 6, 4]),
        one(reshape(&[0, 0, 4, 16]), &[2, 7, 64]),
        one(reshape(&[0, 0, -1]), &[2, 7, 4, 16]),
        one(reshape(&[7, 1, 11]), &[11, 7]),
        one(reshape(&[-1, 35]), &[5, 6, 7]),
        one(reshape(&[0, 7, -1]), &[21, 7, 35]),
        one(reshape(&[3, 0]), &[0, 0]),
        one(reshape(&[2; 6]), &[64]),
        one(reshape(&[2, 1, 2, 1, 3, 1, 2, 1, 2, 1, 1, 1]), &[4, 12]),
        one(slice(&[2], &[9], &[]), &[12]),
        one(slice(&[-1], &[-99], &[-1]), &[37]),
        one(slice(&[1], &[i64::MAX], &[3]), &[100]),
        one(slice(&[0, 3], &[9, -2], &[]), &[4, 33]),
        one(slice(&[3, -1], &[-99, 0], &[-2, -3]), &[6, 70]),
        one(slice(&[5, 0], &[5, 9], &[]), &[6, 7]),
        one(slice(&[0, 0, 8], &[9, 9, 24], &[]), &[2, 3, 24]),
        one(slice(&[16], &[32], &[]).attr(Attr::Axes, vec![-1i64]), &[2, 5, 48]),
        one(slice(&[1, 0], &[2, 40], &[1, 2]).attr(Attr::Axes, vec![1i64, 3]), &[2, 3, 4, 40]),
        one(slice(&[], &[], &[]), &[3, 4]),
        (concat(0), vec![vec![3, 4]]),
        (concat(0), vec![vec![3, 4], vec![5, 4], vec![0, 4], vec![1, 4]]),
        (concat(-1), vec![vec![3, 4], vec![3, 0], vec![3, 37]]),
        (concat(1), vec![vec![2, 64, 3], vec![2, 16, 3]]),
        (concat(2), vec![vec![2, 5, 40], vec![2, 5, 1], vec![2, 5, 64]]),
        (concat(1), vec![vec![0, 3], vec![0, 4]]),
        (concat(0), vec![vec![2, 3]; 64]),
        (concat(0), vec![vec![1000], vec![7]]),
    ];
    moves.retain(|(op, dims)| {
        let dims: Vec<&[i64]> = dims.iter().map(Vec::as_slice).collect();
        reference::output_shapes(&on(op, D::F32, dims.len()), &dims).is_ok()
    });
    moves
}

#[test]
fn each_move_alone_gives_what_the_interpreter_gives() {
    let mut wrong = Vec::new();
    for (place, (op, dims)) in moves().iter().enumerate() {
        for engine in engines() {
            for layouts in (0..LAYOUTS * LAYOUTS).map(|n| [n / LAYOUTS, n % LAYOUTS]) {
                // Every type, and every pair of layouts, but not each with each.
                let data_type = D::WHOLE[(place + layouts[0] + 5 * layouts[1]) % D::WHOLE.len()];
                if let Err(why) = check(op, data_type, dims, layouts, &engine) {
                    wrong.push(format!(
                        "{op:?} of {dims:?} {data_type} {layouts:?} {:?}: {why}",
                        engine.level()
                    ));
                }
            }
        }
    }
    wrong.truncate(10);
    report(&wrong);
}

#[test]
fn each_width_is_transposed_in_any_size() {
    let mut wrong = Vec::new();
    for engine in engines() {
        for data_type in [D::U8, D::Bf16, D::F32, D::S64] {
            for rows in [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100] {
                for columns in [1, 2, 3, 4, 8, 9, 16, 24, 32, 63, 64, 70, 130] {
                    for layouts in [[0, 0], [1, 1], [0, 5]] {
                        let dims = [vec![2, rows, columns]];
                        if let Err(why) = check(&transpose(&[0, 2, 1]), data_type, &dims, layouts, &engine) {
                            wrong.push((data_type, dims, layouts, engine.level(), why));
                        }
                    }
                }
            }
        }
    }
    report(&wrong);
}

#[test]
fn rows_that_share_sets_of_caches_are_transposed_in_any_size() {
    let mut wrong = Vec::new();
    for engine in engines() {
        for data_type in [D::U8, D::Bf16, D::F32, D::S64] {
            for rows in [15, 16, 32, 63, 64, 65, 130] {
                for columns in [9, 16, 40, 128, 265, 300] {
                    for from in [0, ROWS_SHARE_SETS] {
                        let (dims, layouts) = ([vec![2, columns, rows]], [from, ROWS_SHARE_SETS]);
                        if let Err(why) = check(&transpose(&[0, 2, 1]), data_type, &dims, layouts, &engine) {
                            wrong.push((data_type, dims, layouts, engine.level(), why));
                        }
                    }
                }
            }
        }
    }
    report(&wrong);
}

/// A graph under construction: each op has one result, whose id is returned.
#[derive(Default)]
struct Ops {
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
    types: Vec<DataType>,
}

impl Ops {
    fn input(&mut self, data_type: DataType, dims: &[i64]) -> usize {
        self.laid_out(data_type, dims, &strides(dims, 0))
    }

    fn laid_out(&mut self, data_type: DataType, dims: &[i64], strides: &[i64]) -> usize {
        let id = self.types.len();
        self.inputs.push(LogicalTensor::with_strides(id, data_type, dims, strides).unwrap());
        self.types.push(data_type);
        id
    }

    fn op(&mut self, op: Op, inputs: &[usize]) -> usize {
        let to = match op.kind() {
            K::GenIndex => D::S32,
            K::Less | K::GreaterEqual | K::LogicalNot => D::Boolean,
            K::Select => self.types[inputs[1]],
            _ => self.types[inputs[0]],
        };
        let id = self.types.len();
        let bare = Op::new(self.ops.len(), op.kind());
        let bare = inputs.iter().fold(bare, |op, &id| op.input(LogicalTensor::unknown(id, self.types[id])));
        let bare = bare.output(LogicalTensor::unknown(id, to));
        self.ops.push(
            op.attrs().fold(bare, |op, (attr, value): (Attr, &AttrValue)| op.attr(attr, value.clone())),
        );
        self.types.push(to);
        id
    }

    fn of(&mut self, kind: OpKind, inputs: &[usize]) -> usize {
        self.op(Op::new(0, kind), inputs)
    }

    /// An op outside of all partitions that takes a tensor.
    fn end(&mut self, id: usize) {
        let end = Op::new(self.ops.len(), K::End).input(LogicalTensor::unknown(id, self.types[id]));
        self.ops.push(end);
    }

    fn select(&mut self, cond: usize, then: usize, else_: usize) -> usize {
        self.op(Op::new(0, K::Select).attr(Attr::AutoBroadcast, "multidirectional"), &[cond, then, else_])
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        self.ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
        graph.finalize().unwrap();
        graph
    }

    /// Runs partitions and gives all tensors they hand out.
    fn run(&self, policy: Policy, engine: &Engine) -> Result<BTreeMap<usize, Value>, String> {
        let mut random = Random::new(3);
        let mut values: BTreeMap<usize, (LogicalTensor, Value)> = BTreeMap::new();
        for desc in &self.inputs {
            let mut value = random_value(&mut random, desc.data_type(), desc.dims().unwrap());
            if desc.data_type() == D::Boolean {
                let bytes = value.bytes().iter().map(|byte| byte & 1).collect();
                value = Value::new(D::Boolean, value.dims(), bytes).unwrap();
            } else if desc.data_type() == D::F32 {
                let numbers = value.bytes().chunks(4).map(|bytes| f32::from(bytes[0]) - 99.5);
                value = Value::from_slice(value.dims(), &numbers.collect::<Vec<_>>()).unwrap();
            }
            values.insert(desc.id().get(), (desc.clone(), value));
        }
        let mut made = BTreeMap::new();
        let partitions = self.graph().partitions(policy).unwrap();
        for partition in partitions.into_iter().filter(Partition::is_supported) {
            let ports = || partition.inputs().iter().map(|port| &values[&port.id().get()]);
            let descs: Vec<LogicalTensor> = ports().map(|(desc, _)| desc.clone()).collect();
            let compiled = partition
                .compile_for(engine, &descs, partition.outputs())
                .map_err(|error| error.to_string())?;
            let inputs: Vec<TensorBuf> =
                ports().map(|(desc, value)| tensor(desc.clone(), value, engine)).collect();
            let inputs: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
            let mut outputs: Vec<TensorBuf> = (compiled.outputs().iter())
                .map(|desc| TensorBuf::zeroed(desc.clone(), engine).unwrap())
                .collect();
            let mut borrowed: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            compiled.execute(&Stream::new(engine), &inputs, &mut borrowed).map_err(|e| e.to_string())?;
            drop(borrowed);
            for output in outputs {
                let value = Value::read(&output.as_tensor()).unwrap();
                made.insert(output.desc().id().get(), value.clone());
                values.insert(output.desc().id().get(), (output.desc().clone(), value));
            }
        }
        Ok(made)
    }
}

/// RoPE: the first half of each row of `x` and the negative second half change places.
fn rope(ops: &mut Ops, x: usize, half: i64, tables: [usize; 2]) -> usize {
    let last = |op: Op| op.attr(Attr::Axes, vec![-1i64]);
    let low = ops.op(last(slice(&[0], &[half], &[])), &[x]);
    let high = ops.op(last(slice(&[half], &[i64::MAX], &[])), &[x]);
    let negative = ops.of(K::Negative, &[high]);
    let turned = ops.op(concat(-1), &[negative, low]);
    let straight = ops.of(K::Multiply, &[x, tables[0]]);
    let crossed = ops.of(K::Multiply, &[turned, tables[1]]);
    ops.of(K::Add, &[straight, crossed])
}

/// Graphs of moves around selects, and how many partitions each has.
fn graphs() -> Vec<(&'static str, Ops, usize)> {
    let mut graphs = Vec::new();
    let mut add = |name, partitions, build: &dyn Fn(&mut Ops)| {
        let mut ops = Ops::default();
        build(&mut ops);
        graphs.push((name, ops, partitions));
    };
    add("a transposed mask", 1, &|ops| {
        let (mask, x, y) =
            (ops.input(D::Boolean, &[65, 33]), ops.input(D::F32, &[2, 33, 65]), ops.input(D::F32, &[]));
        let turned = ops.op(transpose(&[1, 0]), &[mask]);
        ops.select(turned, x, y);
    });
    add("a transposed result", 1, &|ops| {
        let (mask, x, y) =
            (ops.input(D::Boolean, &[65, 1]), ops.input(D::F32, &[3, 65, 40]), ops.input(D::F32, &[40]));
        let selected = ops.select(mask, x, y);
        let exp = ops.of(K::Exp, &[selected]);
        ops.op(transpose(&[0, 2, 1]), &[exp]);
    });
    add("a result and its transpose, both handed out", 1, &|ops| {
        let (mask, x) = (ops.input(D::Boolean, &[9, 33]), ops.input(D::F32, &[9, 33]));
        let abs = ops.of(K::Abs, &[x]);
        let selected = ops.select(mask, abs, x);
        ops.end(selected);
        ops.op(transpose(&[1, 0]), &[selected]);
    });
    add("packed queries, keys and values", 3, &|ops| {
        let (packed, mask) = (ops.input(D::F32, &[2, 7, 3 * 4 * 8]), ops.input(D::Boolean, &[2, 1, 1, 8]));
        for part in 0..3 {
            let range = slice(&[part * 32], &[part * 32 + 32], &[]).attr(Attr::Axes, vec![2i64]);
            let part = ops.op(range, &[packed]);
            let heads = ops.op(reshape(&[0, 0, 4, 8]), &[part]);
            let turned = ops.op(transpose(&[0, 2, 1, 3]), &[heads]);
            let negative = ops.of(K::Negative, &[turned]);
            ops.select(mask, turned, negative);
        }
    });
    add("merged heads", 1, &|ops| {
        let (x, mask) = (ops.input(D::F32, &[2, 4, 7, 8]), ops.input(D::Boolean, &[7, 1]));
        let negative = ops.of(K::Negative, &[x]);
        let selected = ops.select(mask, x, negative);
        let turned = ops.op(transpose(&[0, 2, 1, 3]), &[selected]);
        ops.op(reshape(&[0, 0, -1]), &[turned]);
    });
    add("rotary embedding", 1, &|ops| {
        let x = ops.input(D::F32, &[2, 3, 9, 32]);
        let tables = [ops.input(D::F32, &[9, 32]), ops.input(D::F32, &[9, 32])];
        let turned = rope(ops, x, 16, tables);
        let mask = ops.input(D::Boolean, &[9, 1]);
        ops.select(mask, turned, x);
    });
    add("rotary embedding of bf16 whose halves are packed", 1, &|ops| {
        let x = ops.laid_out(D::Bf16, &[2, 3, 9, 34], &[3 * 9 * 40, 40, 3 * 40, 1]);
        let tables = [ops.input(D::Bf16, &[9, 34]), ops.input(D::Bf16, &[9, 34])];
        rope(ops, x, 17, tables);
    });
    add("a causal mask of sliced and transposed indices", 1, &|ops| {
        let x = ops.input(D::F32, &[20, 30]);
        let rows = ops.op(Op::new(0, K::GenIndex).axis(0), &[x]);
        let columns = ops.op(Op::new(0, K::GenIndex).axis(1), &[x]);
        let [rows, columns] =
            [rows, columns].map(|index| ops.op(slice(&[3, 25], &[18, 4], &[2, -3]), &[index]));
        let causal = ops.of(K::GreaterEqual, &[rows, columns]);
        let turned = ops.op(transpose(&[1, 0]), &[causal]);
        let (then, else_) = (ops.input(D::F32, &[7, 8]), ops.input(D::F32, &[]));
        ops.select(turned, then, else_);
    });
    add("indices through a reshape", 1, &|ops| {
        let x = ops.input(D::F32, &[6, 20]);
        let index = ops.op(Op::new(0, K::GenIndex).axis(1), &[x]);
        let split = ops.op(reshape(&[6, 4, 5]), &[index]);
        let twice = ops.of(K::Add, &[split, split]);
        ops.op(transpose(&[2, 0, 1]), &[twice]);
    });
    add("pieces of pieces", 1, &|ops| {
        let [a, b, c] = [3, 4, 5].map(|n| ops.input(D::F32, &[n, 10]));
        let ab = ops.op(concat(0), &[a, b]);
        let abc = ops.op(concat(0), &[ab, c]);
        let turned = ops.op(transpose(&[1, 0]), &[abc]);
        let exp = ops.of(K::Exp, &[turned]);
        ops.op(slice(&[-1, 2], &[-99, 11], &[-1, 1]), &[exp]);
    });
    add("a concatenation of results", 1, &|ops| {
        let (mask, x, y) =
            (ops.input(D::Boolean, &[5, 9]), ops.input(D::F32, &[5, 9]), ops.input(D::F32, &[5, 2]));
        let negative = ops.of(K::Negative, &[x]);
        let selected = ops.select(mask, x, negative);
        ops.op(concat(1), &[y, selected, y, x]);
    });
    add("a slice added to its neighbour", 1, &|ops| {
        let x = ops.input(D::F32, &[7, 40]);
        let exp = ops.of(K::Exp, &[x]);
        let low = ops.op(slice(&[0, 0], &[7, 39], &[]), &[exp]);
        let high = ops.op(slice(&[0, 1], &[7, 40], &[]), &[exp]);
        ops.of(K::Subtract, &[high, low]);
    });
    add("a matrix and its transpose", 1, &|ops| {
        let x = ops.input(D::F32, &[33, 33]);
        let exp = ops.of(K::Exp, &[x]);
        let turned = ops.op(transpose(&[1, 0]), &[exp]);
        ops.of(K::Add, &[exp, turned]);
    });
    graphs
}

#[test]
fn groups_with_moves_give_the_bits_of_their_ops() {
    let mut wrong = Vec::new();
    for (name, ops, partitions) in graphs() {
        let found = ops.graph().partitions(Policy::Fusion).unwrap();
        let supported: Vec<_> = found.iter().filter(|partition| partition.is_supported()).collect();
        if supported.len() != partitions {
            wrong.push(format!("{name}: {} partitions, not {partitions}", supported.len()));
        }
        for engine in engines() {
            let level = engine.level();
            match (ops.run(Policy::Fusion, &engine), ops.run(Policy::Debug, &engine)) {
                (Ok(fused), Ok(apart)) => {
                    let unlike = fused.iter().find(|(id, value)| apart[id] != **value);
                    wrong.extend(unlike.map(|(id, _)| format!("{name}, {level}: tensor {id} differs")));
                }
                (fused, apart) => wrong.push(format!("{name}, {level}: {:?} {:?}", fused.err(), apart.err())),
            }
        }
    }
    report(&wrong);
}

/// The partition of a graph whose ops all fit into one, compiled for the shapes that it names.
fn one_partition(ops: &Ops, engine: &Engine) -> CompiledPartition {
    let partitions = ops.graph().partitions(Policy::Fusion).unwrap();
    let [partition] = &partitions[..] else { panic!("{} partitions", partitions.len()) };
    partition.compile_for(engine, &ops.inputs, partition.outputs()).unwrap()
}

#[test]
fn views_cost_neither_a_step_nor_memory() {
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    // Loop nests, and elements of f32 read.
    let expected = BTreeMap::from([
        ("a transposed mask", (1, 0)),
        ("rotary embedding of bf16 whose halves are packed", (2, 0)),
        ("a concatenation of results", (4, 0)),
        ("a slice added to its neighbour", (1, 4 * 7 * 40)),
        ("a matrix and its transpose", (1, 4 * 33 * 33)),
    ]);
    for (name, ops, _) in graphs() {
        let Some(&(nests, read)) = expected.get(name) else { continue };
        let compiled = one_partition(&ops, &engine);
        let plan = compiled.plan();
        let found = (plan.nests.len(), plan.buffer_bytes, plan.bytes_read);
        if found.0 != nests || found.1 != 0 || (read != 0 && found.2 != read) {
            wrong.push(format!("{name}: {found:?}\n{plan}"));
        }
    }
    let mut sliced = Ops::default();
    let packed = sliced.input(D::F32, &[5, 96]);
    sliced.op(slice(&[0, 32], &[5, 64], &[]), &[packed]);
    let plan = one_partition(&sliced, &engine).plan();
    if (plan.bytes_read, plan.bytes_written) != (5 * 32 * 4, 5 * 32 * 4) {
        wrong.push(format!("a slice reads the whole\n{plan}"));
    }
    report(&wrong);
}

#[test]
fn a_reshape_between_other_dims_stays_alone_and_says_why() {
    let why = "no strides lead through a reshape whose dims share no factors";
    let mut ops = Ops::default();
    let x = ops.input(D::F32, &[4, 6]);
    let exp = ops.of(K::Exp, &[x]);
    let mut graph = Graph::new();
    let known = |id, dims: &[i64]| LogicalTensor::strided(id, D::F32, dims).unwrap();
    graph.add_op(Op::new(0, K::Exp).input(known(x, &[4, 6])).output(known(exp, &[4, 6]))).unwrap();
    let reshaped = reshape(&[3, 8]).input(known(exp, &[4, 6])).output(known(2, &[3, 8]));
    let mut numbered = Op::new(1, K::StaticReshape);
    for (attr, value) in reshaped.attrs() {
        numbered = numbered.attr(attr, value.clone());
    }
    graph.add_op(numbered.input(known(exp, &[4, 6])).output(known(2, &[3, 8]))).unwrap();
    graph.finalize().unwrap();
    assert_eq!(graph.partitions(Policy::Fusion).unwrap().len(), 2);
    let said = graph.explain().unwrap();
    assert!(said.iter().any(|line| line.verdict == FusionVerdict::Rejected(why)), "{said:?}");
}

#[test]
fn only_what_stays_in_its_place_is_in_place() {
    let engine = Engine::builder().threads(1).build();
    let square = |op: Op| {
        let mut ops = Ops::default();
        let x = ops.input(D::F32, &[8, 8]);
        ops.op(op, &[x]);
        one_partition(&ops, &engine).in_place_pairs().len()
    };
    let rows = [
        ("Reorder", reorder(), 1),
        ("a transpose that moves nothing", transpose(&[0, 1]), 1),
        ("a transpose", transpose(&[1, 0]), 0),
        ("a slice of all", slice(&[0], &[8], &[]), 1),
        ("a slice backwards", slice(&[-1], &[-99], &[-1]), 0),
        ("a reshape to the same", reshape(&[8, 8]), 1),
        ("a concatenation of one", concat(0), 1),
    ];
    let wrong: Vec<_> = rows
        .into_iter()
        .map(|(name, op, expected)| (name, square(op), expected))
        .filter(|(_, found, expected)| found != expected)
        .collect();
    report(&wrong);
}
