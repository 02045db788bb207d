//! Promise: to partition, compile and execute the largest groups there are takes little stack, however they
//! are built; threads of some systems have 128 KiB.
//!
//! Each row runs on a thread of a small stack; where that is too small, the system ends the process.

use std::thread;

use sterna::{
    DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition, Policy, Stream, Tensor, TensorBuf,
    TensorId,
};

/// The most ops of a group.
const MOST_OPS: usize = 64;

/// What the thread has for all: in a build for release, and in one with few optimisations and with checks,
/// where what is put on the stack stays there longer and shares no room.
const STACK: usize = if cfg!(debug_assertions) { 128 << 10 } else { 64 << 10 };

/// Ops of f32 or of bf16, each with its result.
struct Builder {
    ops: Vec<Op>,
    data_type: DataType,
    next: TensorId,
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
        self.next - 1
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
fn run(ops: Vec<Op>) -> usize {
    let on_thread = move || {
        let mut graph = Graph::new();
        ops.into_iter().for_each(|op| graph.add_op(op).unwrap());
        graph.finalize().unwrap();
        let partitions = graph.partitions(Policy::Fusion).unwrap();
        let engine = Engine::builder().threads(1).build();
        partitions.iter().for_each(|partition| compile_and_execute(partition, &engine));
        partitions.iter().map(|partition| partition.ops().len()).max().unwrap_or(0)
    };
    thread::Builder::new().stack_size(STACK).spawn(on_thread).unwrap().join().unwrap()
}

fn compile_and_execute(partition: &Partition, engine: &Engine) {
    let compiled = partition.compile(engine).unwrap();
    let made = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), engine).unwrap();
    let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect();
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(made).collect();
    let inputs: Vec<Tensor<'_>> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let mut outputs: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    compiled.execute(&Stream::new(engine), &inputs, &mut outputs).unwrap();
}

#[test]
fn the_largest_groups_fit_a_small_stack() {
    for (name, build) in ROWS {
        for data_type in [DataType::F32, DataType::Bf16] {
            let mut builder = Builder { ops: Vec::new(), data_type, next: 0 };
            build(&mut builder);
            println!("{name}, {data_type:?}: {} ops", builder.ops.len());
            let ops_of_group = run(builder.ops);
            assert!(ops_of_group >= 31, "{name}: a group of {ops_of_group} ops");
        }
    }
}
