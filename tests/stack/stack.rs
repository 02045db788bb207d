//! Promise: to partition, compile and execute the largest groups there are takes little stack, however they
//! are built.
//!
//! Each row runs on a thread of a small stack; where that is too small, the system ends the process.
//! `STERNA_STACK=96:decoder cargo test --package sterna-stack` runs the rows whose names hold `decoder` on
//! stacks of 96 KiB.

mod graphs;

use std::collections::BTreeMap;
use std::{env, thread};

use graphs::{Heads, Maker};

use sterna::{
    DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, Stream, Tensor, TensorBuf,
    TensorId,
};

/// The most ops of a group.
const MOST_OPS: usize = 64;

/// The stack of the thread for all: in a build for release, and in one with few optimisations and with
/// checks, where what is put on the stack stays there longer and shares no room.
const STACK: usize = if cfg!(debug_assertions) { 128 << 10 } else { 64 << 10 };

/// Ops of f32 or of bf16, each with its result.
struct Builder {
    ops: Vec<Op>,
    data_type: DataType,
    next: usize,
}

impl Builder {
    fn tensor(&self, id: TensorId) -> LogicalTensor {
        LogicalTensor::strided(id, self.data_type, &[8, 16]).unwrap()
    }

    fn mask(id: TensorId) -> LogicalTensor {
        LogicalTensor::strided(id, DataType::Boolean, &[8, 16]).unwrap()
    }

    fn fresh(&mut self) -> TensorId {
        self.next += 1;
        TensorId::new(self.next - 1)
    }

    fn op(&mut self, kind: OpKind, inputs: &[TensorId]) -> TensorId {
        let result = self.fresh();
        let op = inputs.iter().fold(Op::new(self.ops.len(), kind), |op, &input| op.input(self.tensor(input)));
        self.ops.push(op.output(self.tensor(result)));
        result
    }

    /// A comparison, of which the condition is the result.
    fn compare(&mut self, x: TensorId, y: TensorId) -> TensorId {
        let result = self.fresh();
        let op = Op::new(self.ops.len(), OpKind::Greater).input(self.tensor(x)).input(self.tensor(y));
        self.ops.push(op.output(Self::mask(result)));
        result
    }

    fn select(&mut self, cond: TensorId, then: TensorId, else_: TensorId) -> TensorId {
        let result = self.fresh();
        let [then, else_, dst] = [then, else_, result].map(|id| self.tensor(id));
        self.ops.push(Op::select(self.ops.len(), Self::mask(cond), then, else_, dst));
        result
    }

    fn is_full(&self, room: usize) -> bool {
        self.ops.len() + room > MOST_OPS
    }
}

/// Starts with a condition, which is no number.
fn with_cond(b: &mut Builder) -> [TensorId; 3] {
    [b.fresh(), b.fresh(), b.fresh()]
}

fn chain(b: &mut Builder) {
    let [cond, x, y] = with_cond(b);
    let mut last = b.select(cond, x, y);
    while !b.is_full(1) {
        let kind = [OpKind::Tanh, OpKind::Negative, OpKind::Sigmoid, OpKind::Abs][b.ops.len() % 4];
        last = b.op(kind, &[last]);
    }
}

fn chain_before(b: &mut Builder) {
    let [cond, mut last, y] = with_cond(b);
    while !b.is_full(2) {
        last = b.op(OpKind::Square, &[last]);
    }
    b.select(cond, last, y);
}

fn balanced_tree(b: &mut Builder) {
    let cond = b.fresh();
    let mut row: Vec<TensorId> = (0..32).map(|_| b.fresh()).collect();
    while row.len() > 1 {
        row = row
            .chunks(2)
            .map(|pair| match row.len() {
                2 => b.select(cond, pair[0], pair[1]),
                _ => b.op(OpKind::Add, pair),
            })
            .collect();
    }
}

fn nests(b: &mut Builder, deep_in_else: bool) {
    let [x, y, mut last] = with_cond(b);
    while !b.is_full(2) {
        let cond = b.compare(last, if b.ops.len().is_multiple_of(4) { x } else { y });
        last = if deep_in_else { b.select(cond, y, last) } else { b.select(cond, last, y) };
    }
}

fn everything_shared(b: &mut Builder) {
    let [cond, x, y] = with_cond(b);
    let mut values = vec![x, y, b.select(cond, x, y)];
    while !b.is_full(1) {
        let [.., before, last] = values[..] else { unreachable!("there are three") };
        values
            .push(b.op([OpKind::Add, OpKind::Multiply, OpKind::Maximum][values.len() % 3], &[last, before]));
    }
}

fn backward(b: &mut Builder) {
    let [cond, x, mut gradient] = with_cond(b);
    gradient = b.select(cond, x, gradient);
    while !b.is_full(1) {
        let kind = [OpKind::ReLUBackward, OpKind::TanhBackward, OpKind::GELUBackward][b.ops.len() % 3];
        gradient = b.op(kind, &[x, gradient]);
    }
}

type Build = fn(&mut Builder);

const ROWS: [(&str, Build); 7] = [
    ("chain", chain),
    ("chain before a select", chain_before),
    ("balanced tree", balanced_tree),
    ("nests in then", |b| nests(b, false)),
    ("nests in else", |b| nests(b, true)),
    ("everything shared", everything_shared),
    ("backward", backward),
];

/// Takes a graph all the way on a thread of a small stack.
fn run(ops: Vec<Op>, stack: usize) -> usize {
    let on_thread = move || {
        let mut graph = Graph::new();
        ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let engine = Engine::builder().threads(1).build();
        let mut known = BTreeMap::new();
        partitions.iter().for_each(|partition| compile_and_execute(partition, &engine, &mut known));
        partitions.iter().map(|partition| partition.ops().len()).max().unwrap_or(0)
    };
    thread::Builder::new().stack_size(stack).spawn(on_thread).unwrap().join().unwrap()
}

/// `known` holds the results of earlier partitions.
fn compile_and_execute(
    partition: &Partition,
    engine: &Engine,
    known: &mut BTreeMap<TensorId, LogicalTensor>,
) {
    let of = |port: &LogicalTensor| known.get(&port.id()).unwrap_or(port).clone();
    let inputs: Vec<LogicalTensor> = partition.inputs().iter().map(of).collect();
    let compiled = partition.compile_for(engine, &inputs, partition.outputs()).unwrap();
    known.extend(compiled.outputs().iter().map(|output| (output.id(), output.clone())));
    let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), engine).unwrap();
    let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(made).collect();
    let inputs: Vec<Tensor<'_>> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let mut outputs: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    compiled.execute(&Stream::new(engine), &inputs, &mut outputs).unwrap();
}

/// The bytes of the stack and a part of the names of rows, as the environment gives them.
fn asked(otherwise: usize) -> (usize, String) {
    let text = env::var("STERNA_STACK").unwrap_or_default();
    let (kib, name) = text.split_once(':').unwrap_or((&text, ""));
    (kib.parse().map_or(otherwise, |kib: usize| kib << 10), name.to_owned())
}

#[test]
fn the_largest_groups_fit_a_small_stack() {
    let (stack, part) = asked(STACK);
    for (name, build) in ROWS.iter().filter(|(name, _)| name.contains(&part)) {
        for data_type in [DataType::F32, DataType::Bf16] {
            let mut builder = Builder { ops: Vec::new(), data_type, next: 0 };
            build(&mut builder);
            println!("{name}, {data_type:?}: {} ops", builder.ops.len());
            let ops_of_group = run(builder.ops, stack);
            assert!(ops_of_group >= 31, "{name}: a group of {ops_of_group} ops");
        }
    }
}

/// The least ops of the largest group of a row with an anchor.
const FEW_OPS: usize = 20;

/// As [`STACK`], with products, rows or attention in the group.
const STACK_OF_ANCHORED: usize = STACK * 5 / 2;

const HEADS: Heads = Heads { queries: 70, keys: 130, groups: 2, of_keys: 2, width: 32 };
const DECODE: Heads = Heads { queries: 1, keys: 600, groups: 4, of_keys: 1, width: 64 };

type MakeGraph = fn(&mut Maker);

const ANCHORED: [(&str, MakeGraph); 26] = [
    ("attention, chain on scores", |m| graphs::attention(m, HEADS, 56, 0, false)),
    ("attention, shorter chain on scores", |m| graphs::attention(m, HEADS, 40, 0, false)),
    ("attention, causal, chain on scores", |m| graphs::attention(m, HEADS, 50, 0, true)),
    ("attention, chain behind", |m| graphs::attention(m, HEADS, 0, 56, false)),
    ("attention, chains", |m| graphs::attention(m, HEADS, 28, 28, true)),
    ("decode, chain on scores", |m| graphs::attention(m, Heads { of_keys: 4, ..DECODE }, 56, 0, false)),
    ("decode, causal, chain on scores", |m| {
        graphs::attention(m, Heads { of_keys: 4, ..DECODE }, 50, 0, true)
    }),
    ("decode of groups, chain on scores", |m| graphs::attention(m, DECODE, 40, 10, false)),
    ("gradients of attention", |m| graphs::gradients(m, HEADS, 20)),
    ("gradients of attention, chain on scores", |m| graphs::gradients(m, HEADS, 50)),
    ("product, chain behind", |m| graphs::product(m, [40, 70, 90], 0, 62)),
    ("product, chain before", |m| graphs::product(m, [40, 70, 90], 62, 0)),
    ("product, chains", |m| graphs::product(m, [400, 70, 90], 31, 31)),
    ("product of a row", |m| graphs::product(m, [1, 300, 700], 20, 42)),
    ("stored weights of 8 bits", |m| graphs::stored(m, DataType::S8, 40, 60)),
    ("stored weights of 4 bits", |m| graphs::stored(m, DataType::U4, 40, 60)),
    ("stored weights of 4 bits, a row", |m| graphs::stored(m, DataType::S4, 1, 60)),
    ("product of integers", |m| graphs::integers(m, 60)),
    ("rows, SoftMax", |m| graphs::rows(m, OpKind::SoftMax, 100, 31, 31)),
    ("rows, SoftMax of long rows", |m| graphs::rows(m, OpKind::SoftMax, 9_000, 31, 31)),
    ("rows, LayerNorm", |m| graphs::rows(m, OpKind::LayerNorm, 100, 60, 3)),
    ("rows, GroupNorm", |m| graphs::rows(m, OpKind::GroupNorm, 100, 31, 31)),
    ("rows, ReduceSum", |m| graphs::rows(m, OpKind::ReduceSum, 100, 50, 12)),
    ("decoder, chains", |m| graphs::decoder(m, 64, 64, 30)),
    ("decoder, long chains", |m| graphs::decoder(m, 33, 100, 55)),
    ("decoder of a token, chains", |m| graphs::decoder(m, 1, 300, 25)),
];

#[test]
fn the_largest_groups_with_an_anchor_fit_a_small_stack() {
    let (stack, part) = asked(STACK_OF_ANCHORED);
    for (name, make) in ANCHORED.iter().filter(|(name, _)| name.contains(&part)) {
        for data_type in [DataType::F32, DataType::Bf16] {
            let mut maker = Maker::new(data_type);
            make(&mut maker);
            println!("{name}, {data_type:?}: {} ops", maker.ops.len());
            let ops_of_group = run(maker.ops, stack);
            assert!(ops_of_group >= FEW_OPS, "{name}: a group of {ops_of_group} ops");
        }
    }
}
