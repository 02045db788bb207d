//! A layer of a decoder as one graph: norm, packed queries, keys and values, rotary embedding, causal
//! attention of heads that share keys, projection, residual, norm, gated block, residual.
//!
//! Sterna runs it as five partitions; what is between them are the only tensors in memory.
//!
//! `cargo run --release --example decoder_layer` compares a small layer with the reference.
//! `cargo run --release --example decoder_layer -- --time bf16 512 1` prints the least time of a larger layer
//! on so many tokens and threads, as JSON; a file name behind these has its result written there, in f32.
//! `benches/attention/decoder_layer.py` compares both with torch.

use std::collections::BTreeMap;
use std::time::Instant;

use half::bf16;
use sterna::reference::{self, Value};
use sterna::{
    Attention, Attr, AttrValue, Causal, CompiledPartition, DataType, Engine, Graph, LogicalTensor, Op,
    OpKind, Policy, Property, Result, Stream, TensorBuf, TensorId,
};

/// The size of a layer.
#[derive(Debug, Clone, Copy)]
struct Size {
    tokens: i64,
    /// Heads of queries, and heads of keys, which several heads of queries share.
    heads: i64,
    kv_heads: i64,
    depth: i64,
    /// Columns of the gated block.
    inner: i64,
}

const SMALL: Size = Size { tokens: 24, heads: 4, kv_heads: 2, depth: 16, inner: 96 };
const LARGE: Size = Size { tokens: 512, heads: 16, kv_heads: 4, depth: 64, inner: 2816 };

/// Least seconds for which executions are timed.
const SECONDS: f64 = 1.0;

/// The contents of an input.
#[derive(Clone, Copy)]
enum Contents {
    /// Made numbers around a number, at most so far from it.
    Numbers(f32, f32),
    /// A function of the angles by which pairs of elements are turned.
    Angles(fn(f64) -> f64),
}

/// Writes the graph of a layer.
struct Layer {
    graph: Graph,
    next: usize,
    data_type: DataType,
    inputs: Vec<(LogicalTensor, Contents)>,
}

impl Layer {
    fn tensor(&mut self, dims: &[i64]) -> Result<LogicalTensor> {
        self.next += 1;
        LogicalTensor::strided(self.next, self.data_type, dims)
    }

    fn input(&mut self, dims: &[i64], property: Property, contents: Contents) -> Result<LogicalTensor> {
        let input = self.tensor(dims)?.with_property(property)?;
        self.inputs.push((input.clone(), contents));
        Ok(input)
    }

    fn op(
        &mut self,
        kind: OpKind,
        inputs: &[&LogicalTensor],
        dims: &[i64],
        attrs: &[(Attr, AttrValue)],
    ) -> Result<LogicalTensor> {
        let to = self.tensor(dims)?;
        let id = self.graph.ops().iter().map(|op| op.id().get() + 1).max().unwrap_or(0);
        let op = Op::new(id, kind).inputs_from(inputs.iter().map(|&tensor| tensor.clone()));
        let op = attrs.iter().fold(op, |op, (attr, value)| op.attr(*attr, value.clone()));
        self.graph.add_op(op.output(to.clone()))?;
        Ok(to)
    }

    /// An op on elements.
    fn pointwise(&mut self, kind: OpKind, inputs: &[&LogicalTensor]) -> Result<LogicalTensor> {
        let dims = inputs[0].dims().unwrap_or_default().to_vec();
        self.op(kind, inputs, &dims, &[])
    }

    fn reshape(&mut self, of: &LogicalTensor, dims: &[i64]) -> Result<LogicalTensor> {
        let attrs = [(Attr::Shape, AttrValue::from(dims)), (Attr::SpecialZero, false.into())];
        self.op(OpKind::StaticReshape, &[of], dims, &attrs)
    }

    fn slice(&mut self, of: &LogicalTensor, starts: [i64; 3], ends: [i64; 3]) -> Result<LogicalTensor> {
        let dims: Vec<i64> = starts.iter().zip(ends).map(|(start, end)| end - start).collect();
        let attrs = [(Attr::Starts, AttrValue::from(&starts[..])), (Attr::Ends, AttrValue::from(&ends[..]))];
        self.op(OpKind::Slice, &[of], &dims, &attrs)
    }

    /// The product with a matrix of weights.
    fn project(&mut self, of: &LogicalTensor, columns: i64) -> Result<LogicalTensor> {
        let [rows, depth] = of.dims().unwrap_or_default() else {
            unreachable!("only matrices are projected")
        };
        let dims = [*rows, columns];
        let depth = *depth;
        let contents = Contents::Numbers(0.0, (3.0 / depth as f32).sqrt());
        let weights = self.input(&[depth, columns], Property::Constant, contents)?;
        self.op(OpKind::MatMul, &[of, &weights], &dims, &[])
    }

    fn norm(&mut self, of: &LogicalTensor) -> Result<LogicalTensor> {
        let columns = of.dims().and_then(|dims| dims.last().copied()).unwrap_or_default();
        let gamma = self.input(&[columns], Property::Constant, Contents::Numbers(1.0, 0.2))?;
        self.pointwise(OpKind::RMSNorm, &[of, &gamma])
    }

    /// Rotary embedding of [heads, tokens, depth]: the halves of a token change places, one of them with its
    /// sign.
    fn rotate(&mut self, of: &LogicalTensor, tables: [&LogicalTensor; 2]) -> Result<LogicalTensor> {
        let &[heads, tokens, depth] = of.dims().unwrap_or_default() else {
            unreachable!("heads have 3 dims")
        };
        let low = self.slice(of, [0, 0, 0], [heads, tokens, depth / 2])?;
        let high = self.slice(of, [0, 0, depth / 2], [heads, tokens, depth])?;
        let high = self.pointwise(OpKind::Negative, &[&high])?;
        let last = [(Attr::Axis, 2i64.into())];
        let turned = self.op(OpKind::Concat, &[&high, &low], &[heads, tokens, depth], &last)?;
        let straight = self.pointwise(OpKind::Multiply, &[of, tables[0]])?;
        let crossed = self.pointwise(OpKind::Multiply, &[&turned, tables[1]])?;
        self.pointwise(OpKind::Add, &[&straight, &crossed])
    }

    /// The layer, and its result.
    fn new(size: Size, data_type: DataType) -> Result<(Self, LogicalTensor)> {
        let Size { tokens, heads, kv_heads, depth, inner } = size;
        let (width, groups) = (heads * depth, heads / kv_heads);
        let mut layer = Self { graph: Graph::new(), next: 0, data_type, inputs: Vec::new() };
        let x = layer.input(&[tokens, width], Property::Variable, Contents::Numbers(0.0, 1.0))?;
        let cos = layer.input(&[tokens, depth], Property::Variable, Contents::Angles(f64::cos))?;
        let sin = layer.input(&[tokens, depth], Property::Variable, Contents::Angles(f64::sin))?;

        let normed = layer.norm(&x)?;
        let all = heads + 2 * kv_heads;
        let packed = layer.project(&normed, all * depth)?;
        let packed = layer.reshape(&packed, &[tokens, all, depth])?;
        let order = [(Attr::Order, AttrValue::from(&[1i64, 0, 2][..]))];
        let packed = layer.op(OpKind::StaticTranspose, &[&packed], &[all, tokens, depth], &order)?;
        let mut parts = Vec::new();
        for (first, count, shared) in
            [(0, heads, groups), (heads, kv_heads, 1), (heads + kv_heads, kv_heads, 1)]
        {
            let mut part = layer.slice(&packed, [first, 0, 0], [first + count, tokens, depth])?;
            if parts.len() < 2 {
                part = layer.rotate(&part, [&cos, &sin])?;
            }
            parts.push(layer.reshape(&part, &[1, kv_heads, shared, tokens, depth])?);
        }
        let [q, k, v] = [parts[0].clone(), parts[1].clone(), parts[2].clone()];
        let attended = layer.tensor(&[1, kv_heads, groups, tokens, depth])?;
        let attention = Attention::new(q, k, v, attended.clone()).groups(groups).causal(Causal::TopLeft);
        layer.next = layer.graph.attention(&attention)?.tensors.end.get();
        let order = [(Attr::Order, AttrValue::from(&[0i64, 3, 1, 2, 4][..]))];
        let dims = [1, tokens, kv_heads, groups, depth];
        let merged = layer.op(OpKind::StaticTranspose, &[&attended], &dims, &order)?;
        let merged = layer.reshape(&merged, &[tokens, width])?;
        let projected = layer.project(&merged, width)?;
        let between = layer.pointwise(OpKind::Add, &[&projected, &x])?;

        let normed = layer.norm(&between)?;
        let (gate, up) = (layer.project(&normed, inner)?, layer.project(&normed, inner)?);
        let sigmoid = layer.pointwise(OpKind::Sigmoid, &[&gate])?;
        let active = layer.pointwise(OpKind::Multiply, &[&gate, &sigmoid])?;
        let joined = layer.pointwise(OpKind::Multiply, &[&active, &up])?;
        let down = layer.project(&joined, width)?;
        let result = layer.pointwise(OpKind::Add, &[&down, &between])?;
        layer.graph.finalize()?;
        Ok((layer, result))
    }

    /// The inputs as numbers.
    fn numbers(&self) -> impl Iterator<Item = (&LogicalTensor, Vec<f32>)> {
        self.inputs.iter().enumerate().map(|(index, (desc, contents))| {
            let dims = desc.dims().unwrap_or_default();
            let count = dims.iter().product::<i64>() as usize;
            let depth = dims.last().map_or(1, |&depth| depth as usize);
            let number = |at: usize| match contents {
                Contents::Numbers(around, most) => around + most * number(index, at),
                Contents::Angles(of) => of(angle(at / depth, at % depth, depth)) as f32,
            };
            (desc, (0..count).map(number).collect())
        })
    }
}

/// Numbers from -1 to 1 that look random, always the same.
fn number(input: usize, at: usize) -> f32 {
    let mut mixed = (input as u32).wrapping_mul(0x9e37_79b9) ^ at as u32;
    mixed = mixed.wrapping_mul(2_654_435_761);
    mixed = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b);
    ((mixed ^ mixed >> 13) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// The angle by which an element of a token is turned.
fn angle(token: usize, element: usize, depth: usize) -> f64 {
    let pair = element % (depth / 2);
    token as f64 * 10_000f64.powf(-2.0 * pair as f64 / depth as f64)
}

/// A layer that is ready to run, with its tensors by id.
struct Ready {
    steps: Vec<CompiledPartition>,
    tensors: BTreeMap<TensorId, TensorBuf>,
    stream: Stream,
}

impl Ready {
    fn new(layer: &Layer, engine: &Engine) -> Result<Self> {
        let mut tensors = BTreeMap::new();
        for (desc, numbers) in layer.numbers() {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine)?;
            match desc.data_type() {
                DataType::F32 => tensor.as_mut_slice::<f32>()?.copy_from_slice(&numbers),
                _ => {
                    let into = tensor.as_mut_slice::<bf16>()?.iter_mut();
                    into.zip(numbers).for_each(|(element, number)| *element = bf16::from_f32(number));
                }
            }
            tensors.insert(desc.id(), tensor);
        }
        let partitions = layer.graph.partitions(Policy::Fusion)?;
        assert!(partitions.len() <= 6, "{} partitions", partitions.len());
        let mut steps = Vec::new();
        for partition in partitions {
            let inputs: Vec<LogicalTensor> =
                partition.inputs().iter().map(|port| tensors[&port.id()].desc().clone()).collect();
            let compiled = partition.compile_for(engine, &inputs, partition.outputs())?;
            for output in compiled.outputs() {
                tensors.insert(output.id(), TensorBuf::zeroed(output.clone(), engine)?);
            }
            steps.push(compiled);
        }
        Ok(Self { steps, tensors, stream: Stream::new(engine) })
    }

    fn run(&mut self) -> Result<()> {
        for step in &self.steps {
            let mut outputs: Vec<TensorBuf> =
                step.outputs().iter().filter_map(|desc| self.tensors.remove(&desc.id())).collect();
            let inputs: Vec<_> =
                step.inputs().iter().map(|desc| self.tensors[&desc.id()].as_tensor()).collect();
            let mut into: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            step.execute(&self.stream, &inputs, &mut into)?;
            drop(into);
            self.tensors.extend(outputs.into_iter().map(|tensor| (tensor.desc().id(), tensor)));
        }
        Ok(())
    }

    fn read(&self, of: &LogicalTensor) -> Result<Vec<f32>> {
        let tensor = &self.tensors[&of.id()];
        Ok(match of.data_type() {
            DataType::F32 => tensor.as_slice::<f32>()?.to_vec(),
            _ => tensor.as_slice::<bf16>()?.iter().map(|number| number.to_f32()).collect(),
        })
    }
}

/// The reference's result of a layer, op by op.
fn expected(layer: &Layer, result: &LogicalTensor) -> Result<Vec<f32>> {
    let mut values: BTreeMap<TensorId, Value> = BTreeMap::new();
    for (desc, numbers) in layer.numbers() {
        let dims = desc.dims().unwrap_or_default();
        let value = match desc.data_type() {
            DataType::F32 => Value::from_slice(dims, &numbers)?,
            _ => Value::from_slice(dims, &numbers.into_iter().map(bf16::from_f32).collect::<Vec<_>>())?,
        };
        values.insert(desc.id(), value);
    }
    for op in layer.graph.ops() {
        let inputs: Vec<Value> = op.inputs().iter().map(|input| values[&input.id()].clone()).collect();
        let made = reference::run(op, &inputs)?;
        values.extend(op.outputs().iter().map(LogicalTensor::id).zip(made));
    }
    let value = &values[&result.id()];
    Ok(match result.data_type() {
        DataType::F32 => value.elements::<f32>().unwrap_or_default(),
        _ => value.elements::<bf16>().unwrap_or_default().into_iter().map(bf16::to_f32).collect(),
    })
}

/// Compares a small layer with the reference.
fn check(data_type: DataType, most: f32) -> Result<()> {
    let (layer, result) = Layer::new(SMALL, data_type)?;
    let mut ready = Ready::new(&layer, &Engine::new())?;
    ready.run()?;
    let (made, expected) = (ready.read(&result)?, expected(&layer, &result)?);
    let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let worst = made.iter().zip(&expected).fold(0f32, |worst, (x, y)| worst.max((x - y).abs()));
    println!("{data_type}: {} partitions, off by {:.1e} of the largest", ready.steps.len(), worst / largest);
    assert!(made.len() == expected.len() && worst <= most * largest, "off by {worst} of {largest}");
    Ok(())
}

/// Prints the least time of a large layer, by the arguments behind `--time`.
fn time(arguments: &[String]) -> Result<()> {
    let data_type = match arguments.first().map(String::as_str) {
        Some("bf16") => DataType::Bf16,
        _ => DataType::F32,
    };
    let given = |at: usize| arguments.get(at).and_then(|number| number.parse::<i64>().ok());
    let size = Size { tokens: given(1).unwrap_or(LARGE.tokens).max(1), ..LARGE };
    let threads = given(2).unwrap_or(1).max(1) as usize;
    let (layer, result) = Layer::new(size, data_type)?;
    let mut ready = Ready::new(&layer, &Engine::builder().threads(threads).build())?;
    ready.run()?;
    let (start, mut least) = (Instant::now(), f64::MAX);
    while start.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        ready.run()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    if let Some(path) = arguments.get(3) {
        let bytes: Vec<u8> = ready.read(&result)?.into_iter().flat_map(f32::to_le_bytes).collect();
        std::fs::write(path, bytes).expect("the file can be written");
    }
    let Size { tokens, heads, kv_heads, depth, inner } = size;
    println!(
        "{{\"type\": \"{data_type}\", \"tokens\": {tokens}, \"heads\": {heads}, \"kv_heads\": {kv_heads}, \
         \"depth\": {depth}, \"inner\": {inner}, \"threads\": {threads}, \"partitions\": {}, \"ms\": {:.3}}}",
        ready.steps.len(),
        1e3 * least
    );
    Ok(())
}

pub(crate) fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--time") {
        return time(&arguments[at + 1..]);
    }
    check(DataType::F32, 1e-5)?;
    check(DataType::Bf16, 0.03)
}
