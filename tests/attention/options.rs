//! Promise: `Graph::attention` builds ordinary ops that compute attention as its options say, in a range of
//! ids that it tells, and answers options that do not do with an error that names option and value.

use std::collections::BTreeMap;

use crate::common::open::{self, OPEN};
use crate::common::{Random, report};
use sterna::reference::{self, Value};
use sterna::{
    Attention, AttentionFault, Causal, DataType, Engine, Error, Graph, GraphFault, Layout, LogicalTensor,
    MaskTrue, Op, OpKind, Policy, Status, Stream, TensorBuf,
};

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const BIAS: usize = 3;
const MASK: usize = 4;
const OFFSET: usize = 5;
const DST: usize = 6;
const STATS: usize = 7;

const BATCH: usize = 2;
const HEADS: usize = 4;
const QUERIES: usize = 5;
const KEYS: usize = 7;
const DEPTH: usize = 8;
const WIDTH: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Diagonal {
    None,
    TopLeft,
    BottomRight,
    Offset,
}

/// How heads share keys.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sharing {
    None,
    Rank4(usize),
    Rank5(usize),
}

#[derive(Debug, Clone, Copy)]
struct Case {
    diagonal: Diagonal,
    window: Option<i64>,
    /// The dims of the mask for scores [batch, heads, queries, keys].
    mask: Option<(&'static [i64], MaskTrue)>,
    bias: Option<&'static [i64]>,
    cap: Option<f32>,
    scale: Option<f32>,
    sharing: Sharing,
    k_transposed: bool,
    inf_as_zero: bool,
    /// The graph does not know the dims.
    is_open: bool,
}

const PLAIN: Case = Case {
    diagonal: Diagonal::None,
    window: None,
    mask: None,
    bias: None,
    cap: None,
    scale: None,
    sharing: Sharing::None,
    k_transposed: false,
    inf_as_zero: true,
    is_open: false,
};

impl Case {
    fn groups(&self) -> usize {
        match self.sharing {
            Sharing::None => 1,
            Sharing::Rank4(groups) | Sharing::Rank5(groups) => groups,
        }
    }

    /// The dims of a tensor whose heads are `HEADS`, 1 or `HEADS / groups`, at the rank of the case.
    fn dims(&self, dims: &[i64]) -> Vec<i64> {
        let Sharing::Rank5(groups) = self.sharing else { return dims.to_vec() };
        let groups = groups as i64;
        let Some(at) = dims.len().checked_sub(3) else { return dims.to_vec() };
        let heads = match dims[at] {
            heads if heads == HEADS as i64 => [heads / groups, groups],
            heads => [heads, 1],
        };
        [&dims[..at], &heads, &dims[at + 1..]].concat()
    }

    fn values(&self, random: &mut Random) -> BTreeMap<usize, Value> {
        let mut numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect()
        };
        let mut values = BTreeMap::new();
        let shared = HEADS / self.groups();
        let mut add = |id, dims: &[i64]| {
            let count = dims.iter().product::<i64>() as usize;
            values.insert(id, Value::from_slice(&self.dims(dims), &numbers(count)).unwrap());
        };
        let [b, h, s, q, k, d, w] =
            [BATCH, HEADS, shared, QUERIES, KEYS, DEPTH, WIDTH].map(|size| size as i64);
        add(Q, &[b, h, q, d]);
        add(K, &if self.k_transposed { [b, s, d, k] } else { [b, s, k, d] });
        add(V, &[b, s, k, w]);
        if let Some(dims) = self.bias {
            add(BIAS, dims);
        }
        if let Some((dims, _)) = self.mask {
            let count = dims.iter().product::<i64>() as usize;
            let bits: Vec<bool> = (0..count).map(|_| random.below(3) > 0).collect();
            values.insert(MASK, Value::from_slice(&self.dims(dims), &bits).unwrap());
        }
        if self.diagonal == Diagonal::Offset {
            let dims = self.dims(&[b, 1, 1, 1]);
            values.insert(OFFSET, Value::from_slice(&dims, &[3i32, -2]).unwrap());
        }
        values
    }

    fn desc(&self, id: usize, values: &BTreeMap<usize, Value>) -> LogicalTensor {
        let value = &values[&id];
        match self.is_open {
            true => LogicalTensor::unknown(id, value.data_type()),
            false => LogicalTensor::strided(id, value.data_type(), value.dims()).unwrap(),
        }
    }

    fn options(&self, values: &BTreeMap<usize, Value>) -> Attention {
        let desc = |id| self.desc(id, values);
        let open = |id| LogicalTensor::unknown(id, DataType::F32);
        let causal = match self.diagonal {
            Diagonal::None => None,
            Diagonal::TopLeft => Some(Causal::TopLeft),
            Diagonal::BottomRight => Some(Causal::BottomRight),
            Diagonal::Offset => Some(Causal::Offset(desc(OFFSET))),
        };
        let says = self.mask.map_or(MaskTrue::Keeps, |(_, says)| says);
        Attention::new(desc(Q), desc(K), desc(V), open(DST))
            .k_transposed(self.k_transposed)
            .nan_without_keys(!self.inf_as_zero)
            .stats(open(STATS))
            .window(self.window)
            .softcap(self.cap)
            .scale(self.scale)
            .bias(self.bias.map(|_| desc(BIAS)))
            .mask(self.mask.map(|_| desc(MASK)), says)
            .causal(causal)
            .groups((self.sharing != Sharing::None).then_some(self.groups() as i64))
    }

    /// Output and statistics by definition.
    fn expected(&self, values: &BTreeMap<usize, Value>) -> [Vec<f64>; 2] {
        let floats = |id: usize| values[&id].elements::<f32>().unwrap();
        let (q, k, v) = (floats(Q), floats(K), floats(V));
        let bias = self.bias.map(|dims| (dims, floats(BIAS)));
        let mask = self.mask.map(|(dims, says)| (dims, says, values[&MASK].bytes().to_vec()));
        let scale = self.scale.map_or(1.0 / (DEPTH as f64).sqrt(), f64::from);
        let (mut output, mut stats) = (Vec::new(), Vec::new());
        for (b, h, i) in
            (0..BATCH).flat_map(|b| (0..HEADS).flat_map(move |h| (0..QUERIES).map(move |i| (b, h, i))))
        {
            let shared = HEADS / self.groups();
            let head = b * shared + h / self.groups();
            let score = |j: usize| {
                let product = |c: usize| {
                    let at = if self.k_transposed { c * KEYS + j } else { j * DEPTH + c };
                    f64::from(q[((b * HEADS + h) * QUERIES + i) * DEPTH + c])
                        * f64::from(k[head * KEYS * DEPTH + at])
                };
                let mut score = (0..DEPTH).map(product).sum::<f64>() * scale;
                if let Some(cap) = self.cap.map(f64::from) {
                    score = cap * (score / cap).tanh();
                }
                if let Some((dims, bias)) = &bias {
                    score += f64::from(bias[place(dims, [b, h, i, j])]);
                }
                let offset = match self.diagonal {
                    Diagonal::None | Diagonal::TopLeft => 0,
                    Diagonal::BottomRight => KEYS as i64 - QUERIES as i64,
                    Diagonal::Offset => [3, -2][b],
                };
                let distance = i as i64 + offset - j as i64;
                let is_causal = self.diagonal != Diagonal::None;
                let distance = if is_causal { distance } else { distance.abs() };
                let mut keeps = !is_causal || distance >= 0;
                keeps &= self.window.is_none_or(|window| distance < window);
                if let Some((dims, says, bits)) = &mask {
                    keeps &= (bits[place(dims, [b, h, i, j])] != 0) == (*says == MaskTrue::Keeps);
                }
                if keeps { score } else { f64::NEG_INFINITY }
            };
            let scores: Vec<f64> = (0..KEYS).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let is_empty = most == f64::NEG_INFINITY;
            for c in 0..WIDTH {
                let dot: f64 =
                    (0..KEYS).map(|j| weights[j] * f64::from(v[(head * KEYS + j) * WIDTH + c])).sum();
                output.push(if is_empty && self.inf_as_zero { 0.0 } else { dot / sum });
            }
            stats.push(if is_empty { 0.0 } else { most + sum.ln() });
        }
        [output, stats]
    }

    /// Runs the graph by the interpreter, and by its partitions.
    fn complaints(&self, seed: u64) -> Vec<String> {
        let values = self.values(&mut Random::new(seed));
        let expected = self.expected(&values);
        let mut graph = Graph::new();
        graph.attention(&self.options(&values)).unwrap();
        graph.finalize().unwrap();
        let mut wrong = Vec::new();
        for (by, results) in
            [("interpreter", interpreted(&graph, &values)), ("partitions", run(&graph, &values))]
        {
            for (id, expected) in [DST, STATS].into_iter().zip(&expected) {
                if id == STATS && !self.inf_as_zero {
                    continue;
                }
                let given = results[&id].elements::<f32>().unwrap();
                let is_near = |(given, expected): (&f32, &f64)| {
                    let given = f64::from(*given);
                    (given - expected).abs() <= 1e-5 * (1.0 + expected.abs())
                        || (given.is_nan() && expected.is_nan())
                };
                if given.len() != expected.len() || !given.iter().zip(expected).all(is_near) {
                    wrong.push(format!("{self:?} by {by}: tensor {id} is {given:?}, not {expected:?}"));
                }
            }
        }
        wrong
    }
}

/// The place of an element of a mask that broadcasts to [batch, heads, queries, keys].
fn place(dims: &[i64], at: [usize; 4]) -> usize {
    let at = &at[4 - dims.len()..];
    dims.iter().zip(at).fold(0, |place, (&dim, &at)| place * dim as usize + at.min(dim as usize - 1))
}

pub(crate) fn interpreted(graph: &Graph, values: &BTreeMap<usize, Value>) -> BTreeMap<usize, Value> {
    let mut values = values.clone();
    for partition in graph.partitions(Policy::Debug).unwrap() {
        for op in partition.ops() {
            let inputs: Vec<Value> =
                op.inputs().iter().map(|input| values[&input.id().get()].clone()).collect();
            let results = reference::run(op, &inputs).unwrap();
            values.extend(op.outputs().iter().map(|tensor| tensor.id().get()).zip(results));
        }
    }
    values
}

fn run(graph: &Graph, values: &BTreeMap<usize, Value>) -> BTreeMap<usize, Value> {
    try_run(graph, values).unwrap()
}

/// The results of the partitions of a graph.
pub(crate) fn try_run(
    graph: &Graph,
    values: &BTreeMap<usize, Value>,
) -> sterna::Result<BTreeMap<usize, Value>> {
    let engine = Engine::builder().threads(2).build();
    let mut values = values.clone();
    for partition in graph.partitions(Policy::Fusion).unwrap() {
        let desc = |port: &LogicalTensor| {
            let value = &values[&port.id().get()];
            LogicalTensor::strided(port.id(), value.data_type(), value.dims()).unwrap()
        };
        let inputs: Vec<LogicalTensor> = partition.inputs().iter().map(desc).collect();
        let outputs: Vec<LogicalTensor> = partition
            .outputs()
            .iter()
            .map(|port| LogicalTensor::with_layout(port.id(), port.data_type(), None, Layout::Any).unwrap())
            .collect();
        let compiled = partition.compile_for(&engine, &inputs, &outputs)?;
        let tensors: Vec<TensorBuf> = compiled
            .inputs()
            .iter()
            .map(|desc| {
                let mut tensor = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
                values[&desc.id().get()].write(&mut tensor).unwrap();
                tensor
            })
            .collect();
        let inputs: Vec<_> = tensors.iter().map(TensorBuf::as_tensor).collect();
        let mut results: Vec<TensorBuf> =
            compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        let mut outputs: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        compiled.execute(&Stream::new(&engine), &inputs, &mut outputs)?;
        for result in &results {
            values.insert(result.desc().id().get(), Value::read(&result.as_tensor()).unwrap());
        }
    }
    Ok(values)
}

const DIAGONALS: [Diagonal; 4] = [Diagonal::None, Diagonal::TopLeft, Diagonal::BottomRight, Diagonal::Offset];
const SHARINGS: [Sharing; 5] =
    [Sharing::None, Sharing::Rank4(2), Sharing::Rank4(4), Sharing::Rank5(2), Sharing::Rank4(1)];
const MASKS: [Option<(&[i64], MaskTrue)>; 6] = [
    None,
    Some((&[7], MaskTrue::Keeps)),
    Some((&[5, 7], MaskTrue::Masks)),
    Some((&[2, 1, 1, 7], MaskTrue::Keeps)),
    Some((&[2, 4, 5, 7], MaskTrue::Masks)),
    Some((&[4, 5, 7], MaskTrue::Keeps)),
];

#[test]
fn every_option_means_what_it_says() {
    let mut cases = Vec::new();
    for (diagonal, sharing) in DIAGONALS.into_iter().flat_map(|diagonal| SHARINGS.map(|s| (diagonal, s))) {
        for (window, mask) in [None, Some(1), Some(3)].into_iter().flat_map(|w| MASKS.map(|mask| (w, mask))) {
            cases.push(Case { diagonal, sharing, window, mask, ..PLAIN });
        }
        cases.push(Case { diagonal, sharing, cap: Some(1.5), bias: Some(&[2, 1, 5, 7]), ..PLAIN });
        cases.push(Case { diagonal, sharing, scale: Some(0.75), bias: Some(&[4, 5, 1]), ..PLAIN });
        cases.push(Case { diagonal, sharing, k_transposed: true, mask: MASKS[3], ..PLAIN });
        cases.push(Case { diagonal, sharing, inf_as_zero: false, mask: MASKS[2], ..PLAIN });
    }
    for diagonal in [Diagonal::None, Diagonal::TopLeft, Diagonal::Offset] {
        cases.push(Case { diagonal, mask: MASKS[4], scale: Some(0.5), is_open: true, ..PLAIN });
    }
    let wrong: Vec<String> =
        cases.iter().enumerate().flat_map(|(seed, case)| case.complaints(seed as u64)).collect();
    report(&wrong);
}

#[test]
fn half_types_and_types_of_scores() {
    let mut wrong = Vec::new();
    for (t, scores) in [
        (DataType::F16, DataType::F32),
        (DataType::F16, DataType::F16),
        (DataType::Bf16, DataType::F32),
        (DataType::Bf16, DataType::Bf16),
        (DataType::F32, DataType::F32),
    ] {
        let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, t, dims).unwrap();
        let [q, k, v] = [Q, K, V].map(|id| tensor(id, &[2, 9, 16]));
        let options = Attention::new(q, k, v, LogicalTensor::unknown(DST, t))
            .causal(Causal::TopLeft)
            .window(4)
            .softcap(20.0)
            .bias(LogicalTensor::strided(BIAS, DataType::F32, &[9, 9]).unwrap())
            .score_type(scores);
        let mut graph = Graph::new();
        let ids = graph.attention(&options).unwrap();
        graph.finalize().unwrap();
        let type_of = |id: usize| {
            graph.ops().iter().flat_map(|op| op.outputs()).find(|out| out.id() == id).unwrap().data_type()
        };
        if [ids.scores, ids.masked_scores, ids.probabilities].map(|id| type_of(id.get()))
            != [scores, scores, t]
        {
            wrong.push(format!("{t} and {scores}: {ids:?}"));
        }
        let supported = graph.partitions(Policy::Fusion).unwrap().iter().all(|p| p.is_supported());
        if !supported {
            wrong.push(format!("{t} and {scores}: a partition does not run"));
        }
    }
    report(&wrong);
}

#[test]
fn ids_are_those_that_it_tells() {
    let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[1, 2, 4, 8]).unwrap();
    let options =
        Attention::new(tensor(10), tensor(11), tensor(12), tensor(13)).causal(Causal::TopLeft).window(2);
    let mut graph = Graph::new();
    graph.add_op(Op::new(5, OpKind::Abs).input(tensor(30)).output(tensor(10))).unwrap();
    let first = graph.attention(&options).unwrap();
    assert!(first.ops.start == 6 && first.tensors.start == 31, "ids follow those of the graph");
    let second = Attention::new(tensor(13), tensor(11), tensor(12), tensor(14)).ids_from(100, 500);
    let second = graph.attention(&second).unwrap();
    assert!(second.ops.start == 100 && second.tensors.start == 500);

    let ids: Vec<usize> = graph.ops().iter().map(|op| op.id().get()).collect();
    let numbers = |start: usize, end: usize| start..end;
    let ops = [&first, &second].map(|ids| numbers(ids.ops.start.get(), ids.ops.end.get()));
    let told: Vec<usize> = [5].into_iter().chain(ops.into_iter().flatten()).collect();
    assert_eq!(ids, told);
    let mut between: Vec<usize> =
        graph.ops().iter().flat_map(|op| op.outputs()).map(|tensor| tensor.id().get()).collect();
    between.sort_unstable();
    let tensors = [&first, &second].map(|ids| numbers(ids.tensors.start.get(), ids.tensors.end.get()));
    let mut told: Vec<usize> = [10, 13, 14].into_iter().chain(tensors.into_iter().flatten()).collect();
    told.sort_unstable();
    assert_eq!(between, told);
    assert!(first.tensors.contains(&first.scores) && first.tensors.contains(&first.masked_scores));
    assert!(second.masked_scores > second.scores && second.probabilities > second.masked_scores);

    // An error leaves the graph as it was.
    let before = graph.clone();
    let plain = Attention::new(tensor(20), tensor(21), tensor(22), tensor(23));
    let taken = graph.attention(&plain.clone().ids_from(200, 9)).unwrap_err();
    let expected = AttentionFault::TensorTaken { first: 9.into(), taken: 10.into() };
    assert_eq!(taken, Error::Attention(expected));
    let own = graph.attention(&plain.clone().ids_from(200, 19)).unwrap_err();
    assert_eq!(own, Error::Attention(AttentionFault::TensorTaken { first: 19.into(), taken: 20.into() }));
    let twice = graph.attention(&plain.clone().ids_from(98, 700)).unwrap_err();
    assert!(matches!(twice, Error::Graph(GraphFault::DuplicateOp(op)) if op.id == 100), "{twice}");
    let end = graph.attention(&plain.clone().ids_from(usize::MAX - 1, 700)).unwrap_err();
    assert!(end.to_string().contains("the ids leave usize"), "{end}");
    let end = graph.attention(&plain.clone().ids_from(700, usize::MAX - 1)).unwrap_err();
    assert!(end.to_string().contains("the ids leave usize"), "{end}");
    assert_eq!(graph, before);
    graph.finalize().unwrap();
    assert_eq!(graph.attention(&plain).unwrap_err(), Error::Graph(GraphFault::Finalized));
}

#[test]
fn options_that_do_not_do_are_named() {
    let of = |id: usize, t, dims: &[i64]| open::strided(id, t, dims).unwrap();
    let f32 = |id, dims: &[i64]| of(id, DataType::F32, dims);
    let dims = |dims: [&[i64]; 3]| {
        Attention::new(
            f32(Q, dims[0]),
            f32(K, dims[1]),
            f32(V, dims[2]),
            LogicalTensor::unknown(DST, DataType::F32),
        )
    };
    let plain = || dims([&[2, 6, 5, 8], &[2, 6, 7, 8], &[2, 6, 7, 8]]);
    let grouped = |k: &[i64]| dims([&[2, 6, 5, 8], k, k]);
    let open = OPEN;
    let mask = |t, dims: &[i64]| of(MASK, t, dims);
    let typed = |t| {
        let of = |id| LogicalTensor::strided(id, t, &[2, 6, 5, 8]).unwrap();
        Attention::new(of(Q), of(K), of(V), of(DST))
    };
    let rows: Vec<(Attention, &str)> = vec![
        (plain().window(0), "attention: `window` is 0; it is 1 to 16777216 keys"),
        (plain().window(-3), "`window` is -3;"),
        (plain().window(i64::MAX), "`window` is 9223372036854775807;"),
        (plain().scale(f32::NAN), "`scale` is NaN; it is a finite number"),
        (plain().scale(f32::INFINITY), "`scale` is inf;"),
        (plain().softcap(0.0), "`softcap` is 0; it is a finite number above 0"),
        (plain().softcap(-1.0), "`softcap` is -1;"),
        (plain().softcap(f32::NAN), "`softcap` is NaN;"),
        (plain().groups(0), "`groups` is 0; it is at least 1"),
        (plain().groups(-2), "`groups` is -2;"),
        (plain().groups(4), "`groups` is 4, which does not divide the 6 heads of `q`"),
        (plain().groups(2), "`groups` meets tensor 1 of {2,6,7,8}; it has one head for each group"),
        (
            dims([&[6, 5, 8], &[6, 7, 8], &[6, 7, 8]]).groups(2),
            "`groups` meets tensor 0 of {6,5,8}; heads that",
        ),
        (dims([&[2, 6, 5, 8], &[3, 7, 8], &[3, 7, 8]]).groups(2), "have one known rank"),
        (
            dims([&[2, open, 5, 8], &[2, 3, 7, 8], &[2, 3, 7, 8]]).groups(2),
            "`groups` needs the number of heads",
        ),
        (
            dims([&[2, 6, open, open], &[2, 3, 7, 8], &[2, 3, 7, 8]]).groups(2).scale(1.0),
            "`groups` needs one of the last two dims, which tensor 0 leaves open",
        ),
        (
            dims([&[2, 3, 3, 5, 8], &[2, 3, 1, 7, 8], &[2, 3, 1, 7, 8]]).groups(2),
            "dim 2 of a `q` of rank 5 is the number of groups",
        ),
        (
            dims([&[2, 3, 2, 5, 8], &[2, 3, 2, 7, 8], &[2, 3, 1, 7, 8]]).groups(2),
            "`groups` meets tensor 1 of {2,3,2,7,8}; dim 2 of a `k` or `v` of rank 5 is 1",
        ),
        (dims([&[2, 6, 5, open], &[2, 6, 7, 8], &[2, 6, 7, 8]]), "`scale` needs the last dim of `q`"),
        (
            dims([&[2, 6, open, 8], &[2, 6, 7, 8], &[2, 6, 7, 8]]).causal(Causal::BottomRight),
            "`causal` needs the number of queries, which tensor 0 leaves open",
        ),
        (
            dims([&[2, 6, 5, 8], &[2, 6, open, 8], &[2, 6, 7, 8]]).causal(Causal::BottomRight),
            "`causal` needs the number of keys, which tensor 1 leaves open",
        ),
        (
            dims([&[2, 1 << 25, 8], &[2, 3, 8], &[2, 3, 8]]).causal(Causal::BottomRight),
            "`causal` is -33554429; keys and queries differ by at most 16777216",
        ),
        (
            plain().causal(Causal::Offset(of(OFFSET, DataType::S64, &[]))),
            "`causal` is tensor 5 of type s64; an offset is s32",
        ),
        (
            plain().mask(mask(DataType::F32, &[5, 7]), MaskTrue::Keeps),
            "`mask` is tensor 4 of type f32; a mask is boolean; numbers that are added are a `bias`",
        ),
        (
            plain().bias(mask(DataType::Boolean, &[5, 7])),
            "`bias` is tensor 4 of type boolean; a bias is added, so it is f32, bf16 or f16; booleans are a `mask`",
        ),
        (
            grouped(&[2, 3, 7, 8]).groups(2).mask(mask(DataType::Boolean, &[2, 3, 5, 7]), MaskTrue::Keeps),
            "`mask` meets tensor 4 of {2,3,5,7}; a mask has one head, or as many as `q`",
        ),
        (
            grouped(&[2, 3, 7, 8]).groups(2).mask(mask(DataType::Boolean, &[2, 1, 1, 5, 7]), MaskTrue::Keeps),
            "a mask of tensors of rank 4 has at most rank 4",
        ),
        (
            grouped(&[2, 3, 7, 8])
                .groups(2)
                .mask(LogicalTensor::unknown(MASK, DataType::Boolean), MaskTrue::Keeps),
            "`mask` needs its rank, for the groups, which tensor 4 leaves open",
        ),
        (
            grouped(&[2, 3, 7, 8]).groups(2).bias(f32(BIAS, &[2, 6, open, open])),
            "`bias` needs one of its last two dims, for the groups",
        ),
        (plain().score_type(DataType::Bf16), "`score_type` is bf16; scores are f32 or of the type of `q`"),
        (plain().stats(of(STATS, DataType::F16, &[2, 6, 5, 1])), "`stats` is tensor 7 of type f16;"),
        (typed(DataType::S32), "`q` is tensor 0 of type s32; queries are f32, bf16 or f16"),
        (
            Attention::new(
                f32(Q, &[5, 8]),
                of(K, DataType::F16, &[7, 8]),
                f32(V, &[7, 8]),
                LogicalTensor::unknown(DST, DataType::F32),
            ),
            "`k` is tensor 1 of type f16; keys have the type of `q`",
        ),
        (
            Attention::new(
                f32(Q, &[5, 8]),
                f32(K, &[7, 8]),
                f32(V, &[7, 8]),
                of(DST, DataType::F16, &[5, 8]),
            ),
            "`dst` is tensor 6 of type f16; the result is f32 or of the type of `q`",
        ),
    ];
    let mut wrong = Vec::new();
    for (options, expected) in rows {
        let mut graph = Graph::new();
        match graph.attention(&options) {
            Ok(_) => wrong.push(format!("taken: {expected}")),
            Err(error) => {
                let text = error.to_string();
                let is_named = matches!(error, Error::Attention(_)) && text.contains(expected);
                if !is_named || error.status() != Status::InvalidArguments || !graph.ops().is_empty() {
                    wrong.push(format!("{text:?} for {expected:?}"));
                }
            }
        }
    }
    report(&wrong);
}

/// The faults of rows of options that are to be refused as invalid arguments, with errors that say a part of
/// a sentence; nothing is added to the graph.
pub(crate) fn faults_of_refusals<'a>(rows: impl IntoIterator<Item = (Attention, &'a str)>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (options, part) in rows {
        let mut graph = Graph::new();
        match graph.attention(&options) {
            Err(error) if error.to_string().contains(part) && error.status() == Status::InvalidArguments => {}
            other => wrong.push(format!("{part}: {other:?}")),
        }
        if !graph.ops().is_empty() {
            wrong.push(format!("{part}: the graph has ops"));
        }
    }
    wrong
}

#[cfg(feature = "json")]
#[test]
fn its_graphs_are_written_and_read() {
    let mut wrong = Vec::new();
    for (diagonal, sharing) in DIAGONALS.into_iter().flat_map(|diagonal| SHARINGS.map(|s| (diagonal, s))) {
        let case = Case { diagonal, sharing, window: Some(3), mask: MASKS[3], cap: Some(2.0), ..PLAIN };
        let values = case.values(&mut Random::new(1));
        let mut graph = Graph::new();
        graph.attention(&case.options(&values)).unwrap();
        let read = Graph::from_json(&graph.to_json()).map_err(|error| error.to_string());
        if read.as_ref() != Ok(&graph) {
            wrong.push(format!("{case:?}: {read:?}"));
        }
    }
    report(&wrong);
}
