//! Attention in a text model: prompts of different lengths at once, then one token after the other on a cache
//! that grows.
//!
//! Two graphs serve every shape, because they leave all dims open. A program that meets ever new lengths
//! would compile for each of them; here lengths are rounded up to buckets, and each bucket is compiled once.
//! Keys behind the end of a sequence are masked, so what the cache holds there does not matter: it is NaN.
//!
//! `cargo run --example attention`

use std::collections::BTreeMap;

use sterna::{
    Attention, Causal, CompiledPartition, DataType, Engine, Graph, LogicalTensor, MaskTrue, Partition,
    Policy, Result, Stream, TensorBuf, TensorId,
};

const BATCH: usize = 2;
/// Heads of keys, and heads of queries that share each of them.
const HEADS: usize = 2;
const GROUPS: usize = 4;
const DEPTH: usize = 16;
/// Positions that the cache has room for, and of a bucket.
const ROOM: usize = 128;
const BUCKET: usize = 32;

/// The elements of the cache that nobody has written yet.
const UNUSED: f32 = f32::NAN;

const PROMPTS: [usize; BATCH] = [45, 20];
const NEW_TOKENS: usize = 24;

const Q: TensorId = TensorId::new(0);
const K: TensorId = TensorId::new(1);
const V: TensorId = TensorId::new(2);
const OUT: TensorId = TensorId::new(3);
const MASK: TensorId = TensorId::new(4);
const OFFSET: TensorId = TensorId::new(5);

/// A graph of attention that is compiled for one bucket after the other.
struct Attending {
    partitions: Vec<Partition>,
    /// The compiled partitions of each bucket: of prompts a length, of single tokens a number of keys.
    compiled: BTreeMap<usize, Vec<CompiledPartition>>,
}

impl Attending {
    fn new(options: &Attention) -> Result<Self> {
        let mut graph = Graph::new();
        graph.attention(options)?;
        graph.finalize()?;
        Ok(Self { partitions: graph.partitions(Policy::Fusion)?, compiled: BTreeMap::new() })
    }

    /// Runs the graph on tensors, by id, and adds its results to them.
    fn run(
        &mut self,
        bucket: usize,
        stream: &Stream,
        tensors: &mut BTreeMap<TensorId, TensorBuf>,
    ) -> Result<()> {
        let engine = stream.engine();
        if !self.compiled.contains_key(&bucket) {
            let mut known: BTreeMap<TensorId, LogicalTensor> =
                tensors.iter().map(|(&id, tensor)| (id, tensor.desc().clone())).collect();
            let mut all = Vec::new();
            for partition in &self.partitions {
                let inputs: Vec<LogicalTensor> =
                    partition.inputs().iter().map(|port| known[&port.id()].clone()).collect();
                let compiled = partition.compile_for(engine, &inputs, partition.outputs())?;
                known.extend(compiled.outputs().iter().map(|output| (output.id(), output.clone())));
                all.push(compiled);
            }
            self.compiled.insert(bucket, all);
        }
        for compiled in &self.compiled[&bucket] {
            let inputs: Vec<_> =
                compiled.inputs().iter().map(|desc| tensors[&desc.id()].as_tensor()).collect();
            let mut outputs = Vec::new();
            for desc in compiled.outputs() {
                outputs.push(TensorBuf::zeroed(desc.clone(), engine)?);
            }
            let mut into: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            compiled.execute(stream, &inputs, &mut into)?;
            tensors.extend(outputs.into_iter().map(|output| (output.desc().id(), output)));
        }
        Ok(())
    }
}

/// Stands for the model's projections: a number of a tensor at a position.
fn projected(tensor: TensorId, entry: usize, head: usize, position: usize, column: usize) -> f32 {
    let at = (((tensor.get() * BATCH + entry) * HEADS * GROUPS + head) * ROOM + position) * DEPTH + column;
    (at.wrapping_mul(2_654_435_761) >> 8) as u16 as f32 / 32_768.0 - 1.0
}

/// The cache of keys or values: [batch, heads, room, depth].
struct Cache {
    tensor: TensorId,
    numbers: Vec<f32>,
}

impl Cache {
    fn new(tensor: TensorId) -> Self {
        Self { tensor, numbers: vec![UNUSED; BATCH * HEADS * ROOM * DEPTH] }
    }

    /// Adds what the model projects for a position.
    fn push(&mut self, entry: usize, position: usize) {
        for (head, column) in (0..HEADS).flat_map(|head| (0..DEPTH).map(move |column| (head, column))) {
            let at = ((entry * HEADS + head) * ROOM + position) * DEPTH + column;
            self.numbers[at] = projected(self.tensor, entry, head, position, column);
        }
    }

    /// The first positions, where they lie in the cache: a program in C or C++ gives the address of the cache
    /// with these strides, and copies nothing.
    fn first(&self, positions: usize, engine: &Engine) -> Result<TensorBuf> {
        let dims = [BATCH, HEADS, 1, positions, DEPTH].map(|dim| dim as i64);
        let strides =
            [HEADS * ROOM * DEPTH, ROOM * DEPTH, ROOM * DEPTH, DEPTH, 1].map(|stride| stride as i64);
        let desc = LogicalTensor::with_strides(self.tensor, DataType::F32, &dims, &strides)?;
        let mut tensor = TensorBuf::zeroed(desc, engine)?;
        let memory = tensor.as_mut_slice::<f32>()?;
        let spanned = memory.len();
        memory.copy_from_slice(&self.numbers[..spanned]);
        Ok(tensor)
    }
}

/// The queries of positions [`from`, `from + count`) of each entry.
fn queries(from: [usize; BATCH], count: usize, engine: &Engine) -> Result<TensorBuf> {
    let dims = [BATCH, HEADS, GROUPS, count, DEPTH];
    let desc = LogicalTensor::strided(Q, DataType::F32, &dims.map(|dim| dim as i64))?;
    let mut tensor = TensorBuf::zeroed(desc, engine)?;
    for (at, number) in tensor.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        let (row, column) = (at / DEPTH, at % DEPTH);
        let (head, entry) = (row / count % (HEADS * GROUPS), row / count / (HEADS * GROUPS));
        *number = projected(Q, entry, head, from[entry] + row % count, column);
    }
    Ok(tensor)
}

/// Attention by its definition, for one query: the largest difference from a row of the result.
fn error(entry: usize, head: usize, position: usize, row: &[f32]) -> f64 {
    let of = |tensor, head, position, column| f64::from(projected(tensor, entry, head, position, column));
    let score = |key| {
        let dot: f64 = (0..DEPTH).map(|c| of(Q, head, position, c) * of(K, head / GROUPS, key, c)).sum();
        (dot / (DEPTH as f64).sqrt()).exp()
    };
    let weights: Vec<f64> = (0..=position).map(score).collect();
    let sum: f64 = weights.iter().sum();
    let exact = |column| -> f64 {
        let terms = weights.iter().enumerate();
        terms.map(|(key, weight)| weight / sum * of(V, head / GROUPS, key, column)).sum()
    };
    let off = |(column, &given): (usize, &f32)| match (f64::from(given) - exact(column)).abs() {
        off if off.is_nan() => f64::INFINITY,
        off => off,
    };
    row.iter().enumerate().map(off).fold(0.0, f64::max)
}

fn main() -> Result<()> {
    let engine = Engine::new();
    let stream = Stream::new(&engine);
    let open = |id| LogicalTensor::unknown(id, DataType::F32);
    // The depth is not known, so the scale cannot follow from it.
    let plain = || Attention::new(open(Q), open(K), open(V), open(OUT)).scale(1.0 / (DEPTH as f32).sqrt());

    // Prompts: a query sees the words up to its own, and none behind the end of its prompt.
    let padding = LogicalTensor::unknown(MASK, DataType::Boolean);
    let mut prompts = Attending::new(&plain().causal(Causal::TopLeft).mask(padding, MaskTrue::Keeps))?;
    let (mut keys, mut values) = (Cache::new(K), Cache::new(V));
    for (entry, length) in PROMPTS.into_iter().enumerate() {
        for position in 0..length {
            keys.push(entry, position);
            values.push(entry, position);
        }
    }
    let length = PROMPTS[0].max(PROMPTS[1]).next_multiple_of(BUCKET);
    let mask = LogicalTensor::strided(MASK, DataType::Boolean, &[BATCH as i64, 1, 1, 1, length as i64])?;
    let mut mask = TensorBuf::zeroed(mask, &engine)?;
    for (at, byte) in mask.as_mut_bytes().iter_mut().enumerate() {
        *byte = u8::from(at % length < PROMPTS[at / length]);
    }
    let mut tensors = BTreeMap::from([
        (Q, queries([0; BATCH], length, &engine)?),
        (K, keys.first(length, &engine)?),
        (V, values.first(length, &engine)?),
        (MASK, mask),
    ]);
    prompts.run(length, &stream, &mut tensors)?;
    let result = tensors[&OUT].as_slice::<f32>()?;
    let mut worst = 0.0f64;
    for (at, row) in result.chunks_exact(DEPTH).enumerate() {
        let (position, head) = (at % length, at / length % (HEADS * GROUPS));
        let entry = at / length / (HEADS * GROUPS);
        if position < PROMPTS[entry] {
            worst = worst.max(error(entry, head, position, row));
        }
    }
    assert!(worst < 1e-5, "prompts are off by {worst}");
    println!("prompts of {PROMPTS:?} words, as {length}");

    // Tokens: the one query of an entry stands behind the keys so far, whose number is data.
    let offset = LogicalTensor::unknown(OFFSET, DataType::S32);
    let mut tokens = Attending::new(&plain().causal(Causal::Offset(offset)))?;
    let mut lengths = PROMPTS;
    for _ in 0..NEW_TOKENS {
        let from = lengths;
        for (entry, length) in lengths.iter_mut().enumerate() {
            keys.push(entry, *length);
            values.push(entry, *length);
            *length += 1;
        }
        let bucket = lengths[0].max(lengths[1]).next_multiple_of(BUCKET);
        let offset = LogicalTensor::strided(OFFSET, DataType::S32, &[BATCH as i64, 1, 1, 1, 1])?;
        let mut offset = TensorBuf::zeroed(offset, &engine)?;
        offset.as_mut_slice::<i32>()?.copy_from_slice(&from.map(|position| position as i32));
        let mut tensors = BTreeMap::from([
            (Q, queries(from, 1, &engine)?),
            (K, keys.first(bucket, &engine)?),
            (V, values.first(bucket, &engine)?),
            (OFFSET, offset),
        ]);
        tokens.run(bucket, &stream, &mut tensors)?;
        let result = tensors[&OUT].as_slice::<f32>()?;
        for (at, row) in result.chunks_exact(DEPTH).enumerate() {
            let (head, entry) = (at % (HEADS * GROUPS), at / (HEADS * GROUPS));
            worst = worst.max(error(entry, head, from[entry], row));
        }
        assert!(worst < 1e-5, "token {from:?} is off by {worst}");
    }
    let buckets: Vec<&usize> = tokens.compiled.keys().collect();
    println!("{NEW_TOKENS} tokens more, on buckets of {buckets:?} keys, each compiled once");
    Ok(())
}
