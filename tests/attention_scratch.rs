//! Promise: the memory that attention and its gradients take beside their tensors grows with the number of
//! tokens, not with its square, whatever masks the scores and however keys are stored, as the allocator of
//! the engine sees it.

#[path = "common/attention.rs"]
mod attention;
mod common;
#[path = "common/gradients.rs"]
mod gradients;
#[path = "common/watched.rs"]
mod watched;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use attention::{Builder, Heads, Port, Setup};
use common::{Random, report};
use gradients::{Gradients, WEIGHTS};
use sterna::reference::Value;
use sterna::{Attr, AttrValue, DataType, Engine, LogicalTensor, OpKind, Policy, Stream, TensorBuf};
use watched::Watched;

use DataType as D;
use OpKind as K;

const TYPES: [DataType; 3] = [D::F32, D::Bf16, D::F16];

/// Numbers of tokens, each twice as large as the one before.
const SIZES: [i64; 4] = [1024, 2048, 4096, 8192];

/// Elements of a token.
const DEPTH: i64 = 16;

/// Bytes that an execution of the one partition of a graph holds at most, beside its tensors.
fn peak(setup: Setup) -> usize {
    let memory = Arc::new(Watched::default());
    let engine = Engine::builder().threads(1).allocator(memory.clone()).build();
    let partitions = setup.partitions(Policy::Fusion);
    let [partition] = &partitions[..] else { panic!("{} partitions", partitions.len()) };
    let Setup { inputs: given, .. } = setup;
    let tensor = |desc: &LogicalTensor| TensorBuf::zeroed(desc.clone(), &engine).unwrap();
    let inputs: Vec<TensorBuf> = given
        .into_iter()
        .map(|given| {
            let mut buffer = tensor(&given.desc);
            given.value.write(&mut buffer).unwrap();
            buffer
        })
        .collect();
    let descs: Vec<LogicalTensor> = inputs.iter().map(|input| input.desc().clone()).collect();
    let of_port = |port: &LogicalTensor| descs.iter().find(|desc| desc.id() == port.id()).unwrap().clone();
    let descs: Vec<LogicalTensor> = partition.inputs().iter().map(of_port).collect();
    let compiled = partition.compile_for(&engine, &descs, partition.outputs()).unwrap();
    let mut outputs: Vec<TensorBuf> = compiled.outputs().iter().map(tensor).collect();
    let sources: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    let mut targets: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
    let stream = Stream::new(&engine);
    let most = memory.most_of(|| compiled.execute(&stream, &sources, &mut targets).unwrap());
    most.max(compiled.scratchpad_size())
}

/// The ops that mask scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mask {
    Nothing,
    /// Indices that are compared.
    Causal,
    /// The same with a fill that is finite.
    FiniteFill,
    /// A boolean for each score.
    Booleans,
    /// A number for each score.
    Additive,
    /// Numbers of documents for queries and for keys.
    Documents,
}

const MASKS: [Mask; 6] =
    [Mask::Nothing, Mask::Causal, Mask::FiniteFill, Mask::Booleans, Mask::Additive, Mask::Documents];

impl Mask {
    fn applied(self, builder: &mut Builder, scores: &Port) -> Port {
        let rank = scores.dims.len();
        let [queries, keys] = [scores.dims[rank - 2], scores.dims[rank - 1]];
        let pairs = || (0..queries * keys).map(|at| at % keys <= at / keys);
        let cond = match self {
            Self::Nothing => return scores.clone(),
            Self::Causal | Self::FiniteFill => builder.causal(scores, false),
            Self::Booleans => {
                let bytes = pairs().map(u8::from).collect();
                builder.input_of(Value::new(D::Boolean, &[queries, keys], bytes).unwrap(), None)
            }
            Self::Additive => {
                let half = |holds: bool| if holds { half::bf16::ZERO } else { half::bf16::NEG_INFINITY };
                let bytes = pairs().flat_map(|holds| half(holds).to_ne_bytes()).collect();
                let value = Value::new(D::Bf16, &[queries, keys], bytes).unwrap();
                let addend = builder.input_of(value, None);
                return builder.op(K::Add, &[scores, &addend], D::F32);
            }
            Self::Documents => {
                let ids = |count: i64| (0..count).map(|at| (at / 300) as f32).collect::<Vec<f32>>();
                let of_queries = builder.input(D::S32, &[queries, 1], None, &ids(queries));
                let of_keys = builder.input(D::S32, &[keys], None, &ids(keys));
                builder.op(K::Equal, &[&of_queries, &of_keys], D::Boolean)
            }
        };
        let fill = if self == Self::FiniteFill { -1e4 } else { f32::NEG_INFINITY };
        builder.select(&cond, scores, fill, false)
    }
}

/// How queries, keys, values and weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Plain,
    /// Keys and values of 8 bits, with a scale for each token.
    Compressed,
    /// All of 8 bits, the result too.
    Throughout,
}

fn per_tensor(scale: f32, zero: i64) -> Vec<(Attr, AttrValue)> {
    vec![
        (Attr::Qtype, "per_tensor".into()),
        (Attr::Scales, vec![scale].into()),
        (Attr::Zps, vec![zero].into()),
    ]
}

fn cast(builder: &mut Builder, from: Port, to: DataType) -> Port {
    if from.data_type() == to { from } else { builder.op(K::TypeCast, &[&from], to) }
}

/// Tokens of a head.
fn tokens(builder: &mut Builder, count: i64, stored: Stored, t: DataType) -> Port {
    let dims = [1, count, DEPTH];
    let bytes = |builder: &mut Builder| {
        let bytes = (0..count * DEPTH).map(|at| (at % 251) as u8).collect();
        builder.input_of(Value::new(D::U8, &dims, bytes).unwrap(), None)
    };
    match stored {
        Stored::Plain => {
            let numbers = attention::numbers(&mut Random::new(count as u64), &dims, 1.0);
            builder.input(t, &dims, None, &numbers)
        }
        Stored::Compressed => {
            let bytes = bytes(builder);
            let scales = builder.input(t, &[1, count, 1], None, &vec![0.01; count as usize]);
            let attrs =
                [(Attr::Qtype, "per_group".into()), (Attr::GroupShape, [1, 1, DEPTH].as_slice().into())];
            builder.op_with(K::DynamicDequantize, &[&bytes, &scales], &[t], &attrs).remove(0)
        }
        Stored::Throughout => {
            let bytes = bytes(builder);
            let number =
                builder.op_with(K::Dequantize, &[&bytes], &[D::F32], &per_tensor(0.01, 128)).remove(0);
            cast(builder, number, t)
        }
    }
}

/// Attention of one head.
fn forward(t: DataType, [queries, keys]: [i64; 2], mask: Mask, stored: Stored, has_stats: bool) -> Setup {
    let mut builder = Builder::new(true);
    let of_queries = if stored == Stored::Compressed { Stored::Plain } else { stored };
    let q = tokens(&mut builder, queries, of_queries, t);
    let [k, v] = [0; 2].map(|_| tokens(&mut builder, keys, stored, t));
    let scores = builder.matmul(&q, &k, true, D::F32);
    let scale = builder.scalar(D::F32, 0.25);
    let scores = builder.op(K::Multiply, &[&scores, &scale], D::F32);
    let scores = mask.applied(&mut builder, &scores);
    let mut weights = match has_stats {
        true => {
            let [weights, stats] = builder.softmax_with_stats(&scores, true, t);
            builder.hand_out(&stats);
            weights
        }
        false => builder.softmax(&scores, true, t),
    };
    if stored == Stored::Throughout {
        let of_weights = per_tensor(1.0 / 255.0, 0);
        weights = cast(&mut builder, weights, D::F32);
        weights = builder.op_with(K::Quantize, &[&weights], &[D::U8], &of_weights).remove(0);
        weights = builder.op_with(K::Dequantize, &[&weights], &[D::F32], &of_weights).remove(0);
        weights = cast(&mut builder, weights, t);
    }
    let result = builder.matmul(&weights, &v, false, t);
    if stored == Stored::Throughout {
        let result = cast(&mut builder, result, D::F32);
        builder.op_with(K::Quantize, &[&result], &[D::U8], &per_tensor(0.01, 128));
    }
    builder.finish()
}

/// A graph for each number of tokens, by name.
type Row = (String, Box<dyn Fn(i64) -> Setup + Sync>);

/// Holds the growth of each row; answers with the rows that grow faster than tokens do, or take a byte for so
/// few scores.
fn too_large(rows: &[Row], sizes: &[i64], scores: i64) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, graph)) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            let peaks: Vec<usize> = sizes.iter().map(|&size| peak(graph(size))).collect();
            // Scratch of 64 queries is as large as that at 1,024 keys.
            let is_square =
                |(&size, &most): (&i64, &usize)| size >= 4096 && most as i64 >= size * size / scores;
            let grows = |pair: &[usize]| pair[1] > 2 * pair[0] + 4096;
            if sizes.iter().zip(&peaks).any(is_square) || peaks.windows(2).any(grows) {
                wrong.lock().unwrap().push(format!("{name}: {peaks:?}"));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    wrong.into_inner().unwrap()
}

#[test]
fn memory_of_attention_grows_with_the_number_of_tokens() {
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |name: &str, graph: Box<dyn Fn(i64) -> Setup + Sync>| rows.push((name.into(), graph));
    for (index, mask) in MASKS.into_iter().enumerate() {
        let has_few = matches!(mask, Mask::Nothing | Mask::Causal);
        for t in TYPES.into_iter().enumerate().filter(|(at, _)| has_few || *at == index % 3).map(|(_, t)| t) {
            row(
                &format!("{mask:?} of {t}"),
                Box::new(move |size| forward(t, [size; 2], mask, Stored::Plain, false)),
            );
        }
        let t = TYPES[(index + 1) % 3];
        row(
            &format!("{mask:?}, two queries of {t}"),
            Box::new(move |size| forward(t, [2, size], mask, Stored::Plain, false)),
        );
    }
    for (index, t) in TYPES.into_iter().enumerate() {
        let mask = [Mask::Causal, Mask::Booleans, Mask::Nothing][index];
        row(
            &format!("{mask:?}, statistics of {t}"),
            Box::new(move |size| forward(t, [size; 2], mask, Stored::Plain, true)),
        );
        row(
            &format!("{mask:?}, compressed on {t}"),
            Box::new(move |size| forward(t, [size; 2], mask, Stored::Compressed, false)),
        );
        row(
            &format!("two queries on compressed of {t}"),
            Box::new(move |size| forward(t, [2, size], Mask::Causal, Stored::Compressed, false)),
        );
    }
    for t in [D::F32, D::Bf16] {
        row(
            &format!("throughout on {t}"),
            Box::new(move |size| forward(t, [size; 2], Mask::Causal, Stored::Throughout, false)),
        );
    }
    // Not even a bit for each score.
    report(&too_large(&rows, &SIZES, 8));
}

#[test]
fn memory_of_gradients_grows_with_the_number_of_tokens() {
    let graph = |weights, t, mask: Mask| {
        move |size| {
            let of = Gradients::new(Heads::new(t, &[1], [size; 2], DEPTH), weights);
            of.graph_without_forward(1, |builder, scores| mask.applied(builder, scores)).0.finish()
        }
    };
    let mut rows: Vec<Row> = Vec::new();
    for (weights, t) in WEIGHTS.into_iter().flat_map(|weights| TYPES.map(|t| (weights, t))) {
        rows.push((format!("{weights:?} of {t}"), Box::new(graph(weights, t, Mask::Causal))));
    }
    // The gradients of a head stay in scratch.
    let mut wrong = too_large(&rows, &SIZES[..3], 4);
    rows.clear();
    for (index, mask) in MASKS.into_iter().enumerate() {
        let (weights, t) = (WEIGHTS[index % 3], TYPES[(index + index / 3) % 3]);
        rows.push((format!("{mask:?}, {weights:?} of {t}"), Box::new(graph(weights, t, mask))));
    }
    wrong.extend(too_large(&rows, &SIZES, 4));
    report(&wrong);
}
