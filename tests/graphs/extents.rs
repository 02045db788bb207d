//! Promise: a graph whose dims are near 2³¹, 2⁵⁸ or 2⁶³, some of them beside a dim of 0, is partitioned,
//! explained, compiled, summed up and, if its tensors are small or empty, executed and interpreted, or
//! refused with a typed error; no product or sum of sizes overflows.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{Random, report};
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrValue, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op, OpKind, Partition,
    Policy, Stream, Tensor, TensorBuf, TensorId,
};

use DataType as D;
use OpKind as K;

const SMALL: &[i64] = &[1, 1, 2, 3, 16, 31, 32, 64, 130];
const LARGE: &[i64] = &[
    1 << 16,
    i32::MAX as i64,
    1 << 31,
    1 << 32,
    1 << 44,
    1 << 57,
    1 << 58,
    1 << 59,
    1 << 61,
    (1 << 61) - 1,
    1 << 62,
    i64::MAX / 2,
    i64::MAX - 1,
    i64::MAX,
];

/// The most bytes of a tensor of a partition that is executed.
const FEW: usize = 1 << 16;

/// A graph under way. Dims go by letters: a letter is one dim throughout the graph.
struct Maker {
    random: Random,
    dims: BTreeMap<char, i64>,
    ops: Vec<Op>,
    next: usize,
    data_type: DataType,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let data_type = random.pick(&[D::F32, D::F32, D::Bf16, D::F16]);
        Self { random, dims: BTreeMap::from([('1', 1)]), ops: Vec::new(), next: 0, data_type }
    }

    fn dim(&mut self, letter: char) -> i64 {
        let random = &mut self.random;
        *self.dims.entry(letter).or_insert_with(|| match random.below(8) {
            0..=3 => random.pick(SMALL),
            4 => 0,
            _ => random.pick(LARGE),
        })
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// An input whose dims have these letters; row-major, in another order, or with repeated elements, as far
    /// as there is such a tensor.
    fn typed(&mut self, data_type: DataType, letters: &str) -> LogicalTensor {
        let dims: Vec<i64> = letters.chars().map(|letter| self.dim(letter)).collect();
        let id = self.id();
        let mut order: Vec<usize> = (0..dims.len()).collect();
        if self.random.below(3) == 0 {
            (1..order.len()).for_each(|at| order.swap(at, self.random.below(at + 1)));
        }
        let (mut strides, mut stride) = (vec![0i64; dims.len()], Some(1i64));
        for &axis in order.iter().rev() {
            strides[axis] = stride.unwrap_or(0);
            stride = stride.and_then(|stride| stride.checked_mul(dims[axis].max(1)));
        }
        let strided = LogicalTensor::with_strides(id, data_type, &dims, &strides);
        strided.unwrap_or_else(|_| LogicalTensor::unknown(id, data_type))
    }

    fn input(&mut self, letters: &str) -> LogicalTensor {
        self.typed(self.data_type, letters)
    }

    fn ops(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        to: &[DataType],
        attrs: &[(Attr, AttrValue)],
    ) -> Vec<LogicalTensor> {
        let outputs: Vec<_> = to.iter().map(|&to| LogicalTensor::unknown(self.id(), to)).collect();
        let op = inputs.iter().fold(Op::new(self.ops.len(), kind), |op, &input| op.input(input.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.ops.push(outputs.iter().fold(op, |op, output| op.output(output.clone())));
        outputs
    }

    fn with(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        attrs: &[(Attr, AttrValue)],
    ) -> LogicalTensor {
        self.ops(kind, inputs, &[self.data_type], attrs).remove(0)
    }

    fn op(&mut self, kind: OpKind, inputs: &[&LogicalTensor]) -> LogicalTensor {
        self.with(kind, inputs, &[])
    }

    fn maybe(&mut self) -> bool {
        self.random.below(2) == 0
    }

    fn matmul(&mut self, a: &LogicalTensor, b: &LogicalTensor, transpose_b: bool) -> LogicalTensor {
        self.with(K::MatMul, &[a, b], &[(Attr::TransposeB, transpose_b.into())])
    }
}

type Family = fn(&mut Maker);

const FAMILIES: [(&str, Family); 14] = [
    ("pointwise", pointwise),
    ("moves", moves),
    ("concat", concat),
    ("product", product),
    ("product of batches", batches),
    ("norm and products", norm_matmul),
    ("gated block", gated),
    ("rows", rows),
    ("row gradients", row_gradients),
    ("channels", channels),
    ("attention", |maker| attention(maker, false)),
    ("attention, causal", |maker| attention(maker, true)),
    ("gradients of attention", attention_gradients),
    ("integers", integers),
];

fn pointwise(m: &mut Maker) {
    let (x, y) = (m.input("abcd"), m.input("a1cd"));
    let sum = m.op(K::Add, &[&x, &y]);
    let cond = m.typed(D::Boolean, "cd");
    let other = m.input("1bc1");
    let chosen = m.op(K::Select, &[&cond, &sum, &other]);
    let root = m.op(K::Tanh, &[&chosen]);
    m.op(K::Multiply, &[&root, &sum]);
}

fn moves(m: &mut Maker) {
    let x = m.input("abc");
    let x = m.op(K::Exp, &[&x]);
    let order: &[i64] = &[2, 0, 1];
    let moved = m.with(K::StaticTranspose, &[&x], &[(Attr::Order, order.into())]);
    let shape: &[i64] = if m.maybe() { &[-1] } else { &[0, -1] };
    let attrs = [(Attr::Shape, shape.into()), (Attr::SpecialZero, true.into())];
    let flat = m.with(K::StaticReshape, &[&moved], &attrs);
    m.op(K::Abs, &[&flat]);
    let index = m.ops(K::GenIndex, &[&x], &[D::S32], &[(Attr::Axis, 1i64.into())]).remove(0);
    let other = m.typed(D::S32, "c");
    m.ops(K::Less, &[&index, &other], &[D::Boolean], &[]);
}

fn concat(m: &mut Maker) {
    let (x, y, z) = (m.input("abc"), m.input("adc"), m.input("aec"));
    let joined = m.with(K::Concat, &[&x, &y, &z], &[(Attr::Axis, 1i64.into())]);
    let bias = m.input("c");
    m.op(K::Add, &[&joined, &bias]);
}

fn product(m: &mut Maker) {
    let transpose = m.maybe();
    let (x, w) = (m.input("bmk"), m.input(if transpose { "nk" } else { "kn" }));
    let x = if m.maybe() { m.op(K::Square, &[&x]) } else { x };
    let y = m.matmul(&x, &w, transpose);
    let bias = m.input("n");
    let y = m.op(K::Add, &[&y, &bias]);
    let y = m.op(K::GELU, &[&y]);
    let order: &[i64] = &[1, 0, 2];
    m.with(K::StaticTranspose, &[&y], &[(Attr::Order, order.into())]);
}

fn batches(m: &mut Maker) {
    let transpose = m.maybe();
    let (x, w) = (m.input("bhmk"), m.input(if transpose { "b1nk" } else { "b1kn" }));
    let y = m.matmul(&x, &w, transpose);
    let scale = m.input("bh11");
    m.op(K::Multiply, &[&y, &scale]);
}

fn norm_matmul(m: &mut Maker) {
    let x = m.input("bmk");
    let normed = match m.maybe() {
        true => m.with(K::RMSNorm, &[&x], &[(Attr::BeginNormAxis, (-1i64).into())]),
        false => {
            let (gamma, beta) = (m.typed(D::F32, "k"), m.typed(D::F32, "k"));
            m.with(K::LayerNorm, &[&x, &gamma, &beta], &[(Attr::KeepStats, false.into())])
        }
    };
    for letters in ["kn", "ko"] {
        let w = m.input(letters);
        let y = m.matmul(&normed, &w, false);
        m.op(K::ReLU, &[&y]);
    }
}

fn gated(m: &mut Maker) {
    let (x, gate, up, down) = (m.input("bmk"), m.input("kn"), m.input("kn"), m.input("no"));
    let x = m.with(K::RMSNorm, &[&x], &[(Attr::BeginNormAxis, (-1i64).into())]);
    let (gate, up) = (m.matmul(&x, &gate, false), m.matmul(&x, &up, false));
    let share = m.op(K::Sigmoid, &[&gate]);
    let gate = m.op(K::Multiply, &[&gate, &share]);
    let both = m.op(K::Multiply, &[&gate, &up]);
    m.matmul(&both, &down, false);
}

fn rows(m: &mut Maker) {
    let (x, y) = (m.input("abcd"), m.input("cd"));
    let sum = m.op(K::Add, &[&x, &y]);
    let kinds =
        [K::SoftMax, K::LogSoftmax, K::ReduceSum, K::ReduceMean, K::ReduceMax, K::ReduceL2, K::ReduceProd];
    let kind = m.random.pick(&kinds);
    let axes: &[i64] = match m.random.below(4) {
        0 => &[-1],
        1 => &[1],
        2 => &[0, 2],
        _ => &[0, 1, 2, 3],
    };
    let attrs = match kind {
        K::SoftMax | K::LogSoftmax => vec![(Attr::Axis, axes[0].into())],
        _ => vec![(Attr::Axes, axes.into()), (Attr::KeepDims, true.into())],
    };
    let row = m.with(kind, &[&sum], &attrs);
    m.op(K::Multiply, &[&row, &sum]);
}

fn row_gradients(m: &mut Maker) {
    let (x, y) = (m.input("abc"), m.input("abc"));
    match m.random.below(3) {
        0 => drop(m.with(K::SoftMaxBackward, &[&x, &y], &[(Attr::Axis, (-1i64).into())])),
        1 => {
            let attrs = [(Attr::UseAffine, true.into())];
            let [mean, variance, gamma, beta] =
                ["ab", "ab", "c", "c"].map(|letters| m.typed(D::F32, letters));
            let to = [m.data_type, D::F32, D::F32];
            drop(m.ops(K::LayerNormBackward, &[&x, &y, &mean, &variance, &gamma, &beta], &to, &attrs));
        }
        _ => drop(m.with(K::BiasAddBackward, &[&x], &[(Attr::DataFormat, "NXC".into())])),
    }
}

fn channels(m: &mut Maker) {
    let x = m.input("acde");
    let groups = m.random.pick(&[1i64, 2, 4, i64::MAX]);
    let (gamma, beta) = (m.typed(D::F32, "c"), m.typed(D::F32, "c"));
    let attrs =
        [(Attr::Groups, groups.into()), (Attr::KeepStats, false.into()), (Attr::DataFormat, "NCX".into())];
    let y = m.with(K::GroupNorm, &[&x, &gamma, &beta], &attrs);
    m.op(K::Sigmoid, &[&y]);
}

fn scores(m: &mut Maker, q: &LogicalTensor, k: &LogicalTensor, causal: bool) -> LogicalTensor {
    let scores = m.matmul(q, k, true);
    let scale = m.input("");
    let scores = m.op(K::Multiply, &[&scores, &scale]);
    if !causal {
        let mask = m.input("b1st");
        return m.op(K::Add, &[&scores, &mask]);
    }
    let [i, j] = [-2i64, -1]
        .map(|axis| m.ops(K::GenIndex, &[&scores], &[D::S32], &[(Attr::Axis, axis.into())]).remove(0));
    let cond = m.ops(K::GreaterEqual, &[&i, &j], &[D::Boolean], &[]).remove(0);
    let fill = m.input("");
    m.op(K::Select, &[&cond, &scores, &fill])
}

fn attention(m: &mut Maker, causal: bool) {
    let (q, k, v) = (m.input("bhsd"), m.input("bhtd"), m.input("bhtv"));
    let scores = scores(m, &q, &k, causal);
    let shares = m.with(K::SoftMax, &[&scores], &[(Attr::Axis, (-1i64).into())]);
    let result = m.matmul(&shares, &v, false);
    if m.maybe() {
        let order: &[i64] = &[0, 2, 1, 3];
        m.with(K::StaticTranspose, &[&result], &[(Attr::Order, order.into())]);
    }
}

fn attention_gradients(m: &mut Maker) {
    let (q, k, v, d_result) = (m.input("bhsd"), m.input("bhtd"), m.input("bhtv"), m.input("bhsv"));
    let causal = m.maybe();
    let scores = scores(m, &q, &k, causal);
    let shares = m.with(K::SoftMax, &[&scores], &[(Attr::Axis, (-1i64).into())]);
    let of_left = [(Attr::TransposeA, true.into())];
    m.with(K::MatMul, &[&shares, &d_result], &of_left);
    let d_shares = m.matmul(&d_result, &v, true);
    let d_scores = m.with(K::SoftMaxBackward, &[&d_shares, &shares], &[(Attr::Axis, (-1i64).into())]);
    m.matmul(&d_scores, &k, false);
    m.with(K::MatMul, &[&d_scores, &q], &of_left);
}

fn integers(m: &mut Maker) {
    let (x, w) = (m.typed(D::U8, "bmk"), m.typed(D::S8, "kn"));
    let quantization = |scale: f32, point: i64| {
        let (scales, points): (&[f32], &[i64]) = (&[scale], &[point]);
        [(Attr::Qtype, "per_tensor".into()), (Attr::Scales, scales.into()), (Attr::Zps, points.into())]
    };
    m.data_type = D::F32;
    let x = m.with(K::Dequantize, &[&x], &quantization(0.5, 3));
    let w = m.with(K::Dequantize, &[&w], &quantization(0.25, 0));
    let y = m.matmul(&x, &w, false);
    let bias = m.input("n");
    let y = m.op(K::Add, &[&y, &bias]);
    m.ops(K::Quantize, &[&y], &[D::U8], &quantization(0.5, 3));
}

/// Takes a graph as far as it goes; whether anything of it was compiled.
fn taken(ops: &[Op], engine: &Engine) -> Result<bool, String> {
    let mut graph = Graph::new();
    for op in ops {
        graph.add_op(op.clone()).map_err(|error| format!("no op of the test: {error}"))?;
    }
    graph.finalize().map_err(|error| error.to_string())?;
    graph.explain().map_err(|error| error.to_string())?;
    let mut is_compiled = false;
    for policy in [Policy::Fusion, Policy::Debug] {
        let mut known: BTreeMap<TensorId, LogicalTensor> = BTreeMap::new();
        for partition in graph.partitions(policy).map_err(|error| error.to_string())? {
            let of = |port: &LogicalTensor| known.get(&port.id()).unwrap_or(port).clone();
            let inputs: Vec<LogicalTensor> = partition.inputs().iter().map(of).collect();
            let compiled = match partition.compile_for(engine, &inputs, partition.outputs()) {
                Ok(compiled) => compiled,
                Err(error) if error.to_string().is_empty() => return Err("an error without a text".into()),
                Err(_) => continue,
            };
            is_compiled = true;
            known.extend(compiled.outputs().iter().map(|output| (output.id(), output.clone())));
            executed(&partition, &compiled, engine)?;
        }
    }
    Ok(is_compiled)
}

/// Asks a compiled partition for its sizes, and executes and interprets it if its tensors are small.
fn executed(partition: &Partition, compiled: &CompiledPartition, engine: &Engine) -> Result<(), String> {
    let text = compiled.plan().to_string();
    let scratchpad = compiled.scratchpad_size();
    let ports = || compiled.inputs().iter().chain(compiled.outputs());
    if text.is_empty() || ports().any(|port| port.span().is_none()) {
        return Err(format!("a port without a span, or a plan without a text: {text:?}"));
    }
    let _ = compiled.bytes_moved();
    if scratchpad > 1 << 22 || ports().any(|port| port.memory_size() > FEW) {
        return Ok(());
    }
    let made =
        |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), engine).map_err(|error| error.to_string());
    let inputs: Vec<TensorBuf> = compiled.inputs().iter().map(made).collect::<Result<_, _>>()?;
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(made).collect::<Result<_, _>>()?;
    let tensors: Vec<Tensor<'_>> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let mut into: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    compiled.execute(&Stream::new(engine), &tensors, &mut into).map_err(|error| error.to_string())?;
    if let [op] = partition.ops() {
        let input = |input: &LogicalTensor| {
            let at = compiled.inputs().iter().position(|port| port.id() == input.id());
            Value::read(&tensors[at.unwrap()]).map_err(|error| error.to_string())
        };
        let values: Vec<Value> = op.inputs().iter().map(input).collect::<Result<_, _>>()?;
        // An index of a type that cannot count the dim is refused, even if there is none.
        let Ok(results) = reference::run(op, &values) else { return Ok(()) };
        for (result, output) in results.iter().zip(compiled.outputs()) {
            if output.dims() != Some(result.dims()) {
                return Err(format!("{:?} instead of {:?}", output.dims(), result.dims()));
            }
        }
    }
    Ok(())
}

#[test]
fn graphs_of_extreme_dims_are_compiled_or_refused() {
    let engine = Engine::builder().threads(2).build();
    let (mut wrong, mut compiled) = (Vec::new(), BTreeMap::new());
    for (name, family) in FAMILIES {
        for seed in 0..300 {
            let mut maker = Maker::new(seed);
            family(&mut maker);
            match catch_unwind(AssertUnwindSafe(|| taken(&maker.ops, &engine))) {
                Ok(Ok(is_compiled)) => *compiled.entry(name).or_insert(0) += usize::from(is_compiled),
                Ok(Err(why)) => wrong.push((name, seed, maker.data_type, maker.dims, why)),
                Err(_) => wrong.push((name, seed, maker.data_type, maker.dims, "it panics".into())),
            }
        }
    }
    report(&wrong);
    println!("{compiled:?}");
    assert!(compiled.len() == FAMILIES.len() && compiled.values().all(|&count| count >= 20), "{compiled:?}");
}

/// A tensor without elements is legal whatever its other dims are.
#[test]
fn tensors_without_elements_are_executed_to_nothing() {
    let f32s = |id: usize, dims: &[i64]| LogicalTensor::with_strides(id, D::F32, dims, &vec![1; dims.len()]);
    let unknown = |id| LogicalTensor::unknown(id, D::F32);
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for dims in [[1 << 58, 0, 32], [0, 1 << 58, 32], [1 << 58, 1 << 58, 0], [i64::MAX, 0, i64::MAX]] {
        let one = |kind: OpKind| vec![Op::new(0, kind).input(f32s(0, &dims).unwrap()).output(unknown(1))];
        let mut all = vec![one(K::RMSNorm), one(K::SoftMax), one(K::Exp)];
        let depth = dims[2].min(32);
        if let Ok(weights) = f32s(2, &[dims[2], depth]) {
            let product = Op::new(1, K::MatMul).input(unknown(1)).input(weights).output(unknown(3));
            all.push([one(K::RMSNorm), vec![product]].concat());
        }
        for ops in &all {
            match catch_unwind(AssertUnwindSafe(|| taken(ops, &engine))) {
                Ok(Ok(true)) => {}
                other => wrong.push((dims, ops[0].kind(), ops.len(), format!("{other:?}"))),
            }
        }
    }
    report(&wrong);
}
