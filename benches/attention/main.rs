//! Attention: time, GFLOP/s and shares of limits: arithmetic of the machine, and reads of as many bytes, in
//! the same run.
//!
//! `cargo bench --bench attention -- [--threads N] [--rounds N] [--list] [FILTER]...` measures the rows whose
//! names hold every filter; a filter with a `=` in front must be the whole name. Without one there are
//! hundreds of rows, some of seconds. A row is
//!
//! - `f32 8x2048x64 full`: 8 heads, 2048 queries and keys, depth 64, no mask;
//! - `f32 2x16384x64 full`: the same for heads that are long;
//! - `f32 1x32768x64 full`, `f32 1x32768x64 causal expression`: a head whose scores alone would take 4 GiB;
//! - `... causal tensor`, `... causal expression`: with that mask, as booleans that all heads share, or as
//!   ops over indices. It is measured interleaved with the unmasked row; `of ideal` is the unmasked time
//!   times the share of 64 x 64 tiles that the mask keeps, divided by the time; `... causal added`: as
//!   exporters write it, 0 or the least finite number by the booleans, added to the scores;
//! - `... full backward`, `... causal tensor backward`: the gradients of queries, keys and values, with the
//!   statistics and the result of forward given, which forward has made of the same tensors. It is measured
//!   interleaved with forward of the same mask; `of ideal` is then its time divided by that of forward;
//! - `f32 decode 8x4096x128 rows 2`: that many queries a head of keys, whose limit is the bytes of keys and
//!   values;
//! - `s8 on f16 decode 8x4096x128 rows 2`, `u4 on f16 8x2048x64 full`: keys and values stored so, with a
//!   scale in f16 and a zero point for each 64 elements of a token; the limit of decode is their bytes;
//! - `u8 throughout on bf16 8x1024x64 full`: queries, keys and values are dequantised from u8, the weights
//!   are rounded to u8 behind the SoftMax, and so is the result. It is measured interleaved with the row
//!   without any of that; `of ideal` is then its time divided by that of the other;
//! - `f32 decode 8x4096x128 rows 2, pages of 16`, `f32 8x2048x64 full, pages of 64`: keys and values in pages
//!   of a cache, in no order; `..., pages of 16 by rows`: the rows of a page lie before its heads. It is
//!   measured interleaved with the row without pages; `of ideal` is then its time divided by that of the
//!   other;
//! - `f32 packed 100 of 77, causal`, `f32 packed 64 of 1 on 512, full, heads share keys`: so many sequences
//!   of so many tokens, or queries and keys, one behind the other; `..., pages of 16`: their keys and values
//!   lie in pages of a cache, in no order. It is measured interleaved with the same sequences one by one,
//!   without pages; `of ideal` is then its time divided by theirs;
//! - `f32 small 4x32x64`.
//!
//! Arithmetic counts 4 · depth operations for each pair that the mask keeps, masked pairs none;
//! backward counts 10 · depth. `KiB` is the scratch that an execution takes for each of its threads.
//! `--serve ROW` reads requests on standard input instead; `peers.py` sends them.

#[path = "../limits/mod.rs"]
mod limits;
mod masks;
mod packed;
mod steps;

use std::collections::BTreeMap;
use std::io::Write;

use masks::{Builder, Kept, Mask, mixed};
use packed::PackedRow;
use steps::Steps;
use sterna::{Attr, DataType, Engine, Graph, LogicalTensor, Op, OpKind, TensorBuf};

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

const SIZES: [usize; 5] = [384, 1024, 2048, 4096, 8192];
const DEPTHS: [usize; 2] = [64, 128];
const TYPES: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];

/// Heads that share a mask plane.
const HEADS: usize = 8;

/// Keys and values of such a head leave the second-level cache.
const LONG: usize = 16_384;
const LONG_HEADS: usize = 2;

/// The scores of such a head have no room in memory beside those of a few others.
const LONGEST: usize = 32_768;

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const DST: usize = 3;
const MASK: usize = 4;
/// The result of forward, its gradient, and the statistics, behind all other tensors; the gradients of
/// queries, keys and values from [`GRADIENTS`] on.
const RESULT: usize = 1 << 20;
const D_RESULT: usize = RESULT + 1;
const STATS: usize = RESULT + 2;
/// The first gradient.
const GRADIENTS: usize = RESULT + 3;
/// Scales and zero points of keys, then those of values.
const PARAMETERS: usize = RESULT + 6;
/// Elements of a token that share a scale.
const SHARED: usize = 64;
/// The pages of keys and values.
const TABLE: usize = RESULT + 10;
/// The first list of a mask; the tensors between the ops come behind the lists.
const LISTS: usize = 5;
const BETWEEN: usize = 20;

/// The form in which a mask is said.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Tensor,
    Expression,
    /// Of the booleans, an addend that is 0 or the least finite number.
    Added,
}

#[derive(Debug, Clone)]
struct Row {
    name: String,
    data_type: DataType,
    heads: usize,
    queries: usize,
    keys: usize,
    depth: usize,
    /// Tokens of a page, if keys and values lie in pages, and true if the rows of a page lie before its
    /// heads.
    page: Option<(usize, bool)>,
    /// The type of keys and values, if they are dequantised.
    stored: Option<DataType>,
    /// The number of a mask in [`Mask::all`], and its form.
    mask: Option<(usize, Form)>,
    /// The bytes of keys and values limit it, and not arithmetic.
    is_decode: bool,
    is_backward: bool,
    /// Forward gives the statistics too, which backward takes.
    has_stats: bool,
    /// Queries, keys, values, weights and the result are u8.
    is_throughout: bool,
}

impl Row {
    /// Attention of as many queries as keys, without a mask.
    fn plain(data_type: DataType, heads: usize, size: usize, depth: usize) -> Self {
        Self {
            name: format!("{data_type} {heads}x{size}x{depth} full"),
            data_type,
            heads,
            queries: size,
            keys: size,
            depth,
            page: None,
            stored: None,
            mask: None,
            is_decode: false,
            is_backward: false,
            has_stats: false,
            is_throughout: false,
        }
    }

    /// The row with a mask of [`Mask::all`].
    fn masked(&self, number: usize, mask: &Mask, form: Form) -> Self {
        let of = match form {
            Form::Tensor => "tensor",
            Form::Expression => "expression",
            Form::Added => "added",
        };
        let name = self.name.replace("full", &format!("{} {of}", mask.name));
        Self { name, mask: Some((number, form)), ..self.clone() }
    }

    fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        for (t, size, depth) in TYPES
            .into_iter()
            .flat_map(|t| SIZES.into_iter().flat_map(move |size| DEPTHS.map(move |depth| (t, size, depth))))
        {
            let plain = Self::plain(t, HEADS, size, depth);
            rows.push(plain.clone());
            for (number, mask) in Mask::all(size).iter().enumerate() {
                let is_said = |form: &Form| match form {
                    Form::Tensor => true,
                    Form::Expression => mask.is_expression(),
                    Form::Added => size == 2048,
                };
                let forms = [Form::Tensor, Form::Expression, Form::Added].into_iter().filter(is_said);
                rows.extend(forms.map(|form| plain.masked(number, mask, form)));
            }
        }
        for (t, keys, queries) in TYPES
            .into_iter()
            .flat_map(|t| [4096, 32_768].into_iter().flat_map(move |keys| [1, 2, 4, 8].map(|q| (t, keys, q))))
        {
            for heads in [1, HEADS] {
                let depth = 128;
                let name = format!("{t} decode {heads}x{keys}x{depth} rows {queries}");
                rows.push(Self { name, queries, is_decode: true, ..Self::plain(t, heads, keys, depth) });
            }
        }
        for (t, depth) in TYPES.into_iter().flat_map(|t| DEPTHS.map(|depth| (t, depth))) {
            rows.push(Self::plain(t, LONG_HEADS, LONG, depth));
        }
        for t in TYPES {
            rows.push(Self { name: format!("{t} small 4x32x64"), ..Self::plain(t, 4, 32, 64) });
        }
        for stored in [DataType::S8, DataType::U8, DataType::S4, DataType::U4] {
            let compressed = |row: &Self| {
                let is_taken = row.data_type == DataType::F16 && row.mask.is_none() && row.keys >= 2048;
                is_taken.then(|| {
                    let name = row.name.replacen("f16", &format!("{stored} on f16"), 1);
                    Self { name, stored: Some(stored), ..row.clone() }
                })
            };
            let compressed: Vec<Self> =
                rows.iter().filter(|row| row.stored.is_none()).filter_map(compressed).collect();
            rows.extend(compressed);
        }
        let in_pages = |row: &Self| {
            let is_taken = row.mask.is_none()
                && row.stored.is_none()
                && row.heads == HEADS
                && (row.is_decode && row.keys == 4096 || row.keys == 2048);
            let of = |(page, by_rows)| {
                let order = if by_rows { " by rows" } else { "" };
                let name = format!("{}, pages of {page}{order}", row.name);
                Self { name, page: Some((page, by_rows)), ..row.clone() }
            };
            let pages =
                [16, 64, 256].into_iter().flat_map(|page| [false, true].map(|by_rows| (page, by_rows)));
            pages.filter(|_| is_taken).map(of).collect::<Vec<_>>()
        };
        let in_pages: Vec<Self> = rows.iter().flat_map(in_pages).collect();
        let throughout = |row: &Self| {
            let is_taken = row.data_type != DataType::F16
                && row.mask.is_none()
                && row.stored.is_none()
                && row.keys <= 4096;
            is_taken.then(|| Self {
                name: format!("u8 throughout on {}", row.name),
                is_throughout: true,
                ..row.clone()
            })
        };
        let throughout: Vec<Self> = rows.iter().filter_map(throughout).collect();
        rows.extend(throughout);
        rows.extend(in_pages);
        // Under `cargo test` one row is enough.
        let is_trained = |row: &&Self| {
            let is_large = row.queries > SIZES[0] || row.mask.is_none();
            row.queries > 32
                && row.queries <= 4096
                && is_large
                && !row.is_decode
                && !row.is_throughout
                && row.stored.is_none()
                && row.page.is_none()
        };
        let backward =
            |row: &Self| Self { name: format!("{} backward", row.name), is_backward: true, ..row.clone() };
        let backward: Vec<Self> = rows.iter().filter(is_trained).map(backward).collect();
        rows.extend(backward);
        let longest = Self::plain(DataType::F32, 1, LONGEST, 64);
        let masks = Mask::all(LONGEST);
        let causal = masks.iter().enumerate().filter(|(_, mask)| mask.name == "causal");
        let causal: Vec<Self> =
            causal.map(|(number, mask)| longest.masked(number, mask, Form::Expression)).collect();
        rows.push(longest);
        rows.extend(causal);
        rows
    }

    fn mask(&self) -> Option<Mask> {
        self.mask.map(|(number, _)| Mask::all(self.queries).swap_remove(number))
    }

    /// The inputs, by id.
    fn inputs(&self, mask: Option<&Mask>) -> Vec<LogicalTensor> {
        let desc = |id, t, dims: &[usize]| {
            let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
            LogicalTensor::strided(id, t, &dims).expect("the dims are small")
        };
        let &Self { data_type: t, heads, queries, keys, depth, .. } = self;
        let queried = if self.is_throughout { DataType::U8 } else { t };
        let stored = self.stored.unwrap_or(queried);
        let mut inputs = vec![
            desc(Q, queried, &[1, heads, queries, depth]),
            desc(K, stored, &[1, heads, keys, depth]),
            desc(V, stored, &[1, heads, keys, depth]),
        ];
        if let Some((page, by_rows)) = self.page {
            let dims = [keys / page, heads, page, depth].map(|dim| dim as i64);
            let [head, row] = if by_rows { [depth, heads * depth] } else { [page * depth, depth] };
            let strides = [page * heads * depth, head, row, 1].map(|stride| stride as i64);
            for id in [K, V] {
                inputs[id] = LogicalTensor::with_strides(id, t, &dims, &strides).expect("the dims are small");
            }
            inputs.push(desc(TABLE, DataType::S32, &[1, keys / page]));
        }
        if self.stored.is_some() {
            let dims = [1, heads, keys, depth / SHARED];
            inputs.extend(
                [t, DataType::S8, t, DataType::S8]
                    .into_iter()
                    .enumerate()
                    .map(|(place, t)| desc(PARAMETERS + place, t, &dims)),
            );
        }
        match (mask, self.mask) {
            (Some(_), Some((_, Form::Tensor | Form::Added))) => {
                inputs.push(desc(MASK, DataType::Boolean, &[1, 1, queries, keys]));
            }
            (Some(mask), _) => inputs.extend((0..mask.lists.len()).flat_map(|list| {
                let id = LISTS + 2 * list;
                [desc(id, DataType::S32, &[queries, 1]), desc(id + 1, DataType::S32, &[keys])]
            })),
            (None, _) => {}
        }
        if self.is_backward {
            inputs.push(desc(RESULT, t, &[1, heads, queries, depth]));
            inputs.push(desc(D_RESULT, t, &[1, heads, queries, depth]));
            inputs.push(desc(STATS, DataType::F32, &[1, heads, queries, 1]));
        }
        inputs
    }

    fn graph(&self, mask: Option<&Mask>, inputs: &[LogicalTensor]) -> Graph {
        let t = self.data_type;
        let mut builder = Builder::new(BETWEEN, LISTS);
        if self.is_throughout {
            return finished(self.throughout(builder, inputs));
        }
        let [keys, values] = [K, V].map(|operand| match self.stored {
            None if self.page.is_some() => {
                let table = inputs.iter().find(|desc| desc.id() == TABLE).expect("it is an input");
                builder.op(OpKind::PagedLoad, &[&inputs[operand], table], t)
            }
            None => inputs[operand].clone(),
            Some(_) => {
                let given = |id: usize| inputs.iter().find(|desc| desc.id() == id).expect("it is an input");
                let first = PARAMETERS + 2 * (operand - K);
                let op = Op::new(builder.ops.len(), OpKind::DynamicDequantize).attr(Attr::Qtype, "per_group");
                let op = op.attr(Attr::GroupShape, &[1, 1, 1, SHARED as i64][..]);
                builder.add(op, &[&inputs[operand], given(first), given(first + 1)], t)
            }
        });
        let product = Op::new(builder.ops.len(), OpKind::MatMul).attr(Attr::TransposeB, true);
        let scores = builder.add(product, &[&inputs[Q], &keys], DataType::F32);
        let scale = builder.constant(DataType::F32, 1.0 / (self.depth as f32).sqrt());
        let mut scores = builder.op(OpKind::Multiply, &[&scores, &scale], DataType::F32);
        if let Some(mask) = mask {
            let condition = match self.mask {
                Some((_, Form::Expression)) => mask.ops(&mut builder, &scores),
                _ => inputs[MASK - 1].clone(),
            };
            if matches!(self.mask, Some((_, Form::Added))) {
                let [kept, dropped] = [0.0, f32::MIN].map(|number| builder.constant(DataType::F32, number));
                let addend = builder.op(OpKind::Select, &[&condition, &kept, &dropped], DataType::F32);
                scores = builder.op(OpKind::Add, &[&scores, &addend], DataType::F32);
            } else {
                let nothing = builder.constant(DataType::F32, f32::NEG_INFINITY);
                scores = builder.op(OpKind::Select, &[&condition, &scores, &nothing], DataType::F32);
            }
        }
        if self.is_backward {
            self.add_gradients(&mut builder, inputs, &scores, &scale);
            return finished(builder);
        }
        let softmax = Op::new(builder.ops.len(), OpKind::SoftMax).attr(Attr::Axis, -1i64);
        let weights = builder.add(softmax.attr(Attr::Mode, "inf_as_zero"), &[&scores], t);
        if self.has_stats {
            let softmax = builder.ops.pop().expect("the SoftMax is the last op");
            builder.ops.push(softmax.output(LogicalTensor::unknown(STATS, DataType::F32)));
        }
        let product = Op::new(builder.ops.len(), OpKind::MatMul).inputs_from([weights, values]);
        builder.ops.push(product.output(LogicalTensor::unknown(DST, t)));
        finished(builder)
    }

    /// The ops of attention on u8 throughout.
    fn throughout(&self, mut builder: Builder, inputs: &[LogicalTensor]) -> Builder {
        const F32: DataType = DataType::F32;
        let t = self.data_type;
        let quantization = |kind: OpKind, builder: &Builder, scale: f32, zero: i64| {
            let op = Op::new(builder.ops.len(), kind).attr(Attr::Qtype, "per_tensor");
            op.attr(Attr::Scales, vec![scale]).attr(Attr::Zps, vec![zero])
        };
        let cast = |builder: &mut Builder, from: LogicalTensor, to: DataType| match t {
            F32 => from,
            _ => builder.op(OpKind::TypeCast, &[&from], to),
        };
        let dequantized = |builder: &mut Builder, from: &LogicalTensor, scale: f32, zero: i64| {
            let op = quantization(OpKind::Dequantize, builder, scale, zero);
            let number = builder.add(op, &[from], F32);
            cast(builder, number, t)
        };
        let [q, k, v] = [Q, K, V].map(|id| dequantized(&mut builder, &inputs[id], 1.0 / 128.0, 128));
        let product = Op::new(builder.ops.len(), OpKind::MatMul).attr(Attr::TransposeB, true);
        let scores = builder.add(product, &[&q, &k], t);
        let scale = builder.constant(t, 1.0 / (self.depth as f32).sqrt());
        let scores = builder.op(OpKind::Multiply, &[&scores, &scale], t);
        let softmax = Op::new(builder.ops.len(), OpKind::SoftMax).attr(Attr::Axis, -1i64);
        let weights = builder.add(softmax.attr(Attr::Mode, "inf_as_zero"), &[&scores], t);
        let weights = cast(&mut builder, weights, F32);
        let op = quantization(OpKind::Quantize, &builder, 1.0 / 255.0, 0);
        let rounded = builder.add(op, &[&weights], DataType::U8);
        let weights = dequantized(&mut builder, &rounded, 1.0 / 255.0, 0);
        let product = Op::new(builder.ops.len(), OpKind::MatMul);
        let result = builder.add(product, &[&weights, &v], t);
        let result = cast(&mut builder, result, F32);
        let op = quantization(OpKind::Quantize, &builder, 1.0 / 128.0, 128).inputs_from([result]);
        builder.ops.push(op.output(LogicalTensor::unknown(DST, DataType::U8)));
        builder
    }

    /// The ops of the gradients, from what entered the SoftMax on.
    fn add_gradients(
        &self,
        builder: &mut Builder,
        inputs: &[LogicalTensor],
        scores: &LogicalTensor,
        scale: &LogicalTensor,
    ) {
        let t = self.data_type;
        let given = |id: usize| inputs.iter().find(|desc| desc.id() == id).expect("it is an input");
        let [result, d_result, stats] = [RESULT, D_RESULT, STATS].map(given);
        let product = |builder: &Builder, transposed: Attr| {
            Op::new(builder.ops.len(), OpKind::MatMul).attr(transposed, true)
        };
        let below = builder.op(OpKind::Subtract, &[scores, stats], DataType::F32);
        let weights = builder.op(OpKind::Exp, &[&below], DataType::F32);
        let op = product(builder, Attr::TransposeB);
        let d_weights = builder.add(op, &[d_result, &inputs[V]], DataType::F32);
        let both = builder.op(OpKind::Multiply, &[result, d_result], DataType::F32);
        let sum = Op::new(builder.ops.len(), OpKind::ReduceSum).attr(Attr::Axes, &[-1i64][..]);
        let sums = builder.add(sum.attr(Attr::KeepDims, true), &[&both], DataType::F32);
        let distance = builder.op(OpKind::Subtract, &[&d_weights, &sums], DataType::F32);
        let slopes = builder.op(OpKind::Multiply, &[&weights, &distance], DataType::F32);
        let mut slopes = builder.op(OpKind::Multiply, &[&slopes, scale], DataType::F32);
        let mut weights = weights;
        if t != DataType::F32 {
            slopes = builder.op(OpKind::TypeCast, &[&slopes], t);
            weights = builder.op(OpKind::TypeCast, &[&weights], t);
        }
        let rows = [(&slopes, &inputs[K], false), (&slopes, &inputs[Q], true), (&weights, d_result, true)];
        for (place, (left, right, is_transposed)) in rows.into_iter().enumerate() {
            let op = Op::new(builder.ops.len(), OpKind::MatMul).attr(Attr::TransposeA, is_transposed);
            let op = op.inputs_from([left.clone(), right.clone()]);
            builder.ops.push(op.output(LogicalTensor::unknown(GRADIENTS + place, t)));
        }
    }
}

fn finished(builder: Builder) -> Graph {
    let mut graph = Graph::new();
    for op in builder.ops {
        graph.add_op(op).expect("the ops fit their schema");
    }
    graph.finalize().expect("the graph is whole");
    graph
}

/// Numbers from -1 to 1, always the same.
fn number(id: usize, at: usize) -> f32 {
    (mixed((id as u64) << 48 | at as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn half(number: f32) -> u16 {
    // The numbers are of few bits and far from the edges of f16, so cutting off is all that rounding needs.
    let bits = number.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 112;
    let sign = (bits >> 16 & 0x8000) as u16;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

/// A row, compiled, with its tensors.
struct Ready {
    steps: Steps,
    kept: Kept,
}

impl Ready {
    fn new(row: &Row, engine: &Engine) -> Self {
        let mask = row.mask();
        let of_tensor = mask.as_ref().filter(|_| matches!(row.mask, Some((_, Form::Tensor | Form::Added))));
        let bytes = of_tensor.map(|mask| mask.bytes(row.queries));
        let all = Kept { pairs: 1.0, tiles: 1.0 };
        let kept = mask.as_ref().map_or(all, |mask| mask.kept(row.queries));
        let inputs = row.inputs(mask.as_ref());
        let mut tensors = BTreeMap::new();
        for desc in &inputs {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).expect("there is memory");
            fill(&mut tensor, bytes.as_deref(), mask.as_ref());
            tensors.insert(desc.id().get(), tensor);
        }
        if row.is_backward {
            let mut forward = Self::new(&Row { is_backward: false, has_stats: true, ..row.clone() }, engine);
            forward.steps.execute();
            for (made, given) in [(DST, RESULT), (STATS, STATS)] {
                let given = tensors.get_mut(&given).expect("it is an input");
                given.as_mut_bytes().copy_from_slice(forward.steps.tensors[&made].as_bytes());
            }
        }
        let graph = row.graph(mask.as_ref(), &inputs);
        Self { steps: Steps::new(&graph, engine, &row.name, tensors), kept }
    }
}

fn fill(tensor: &mut TensorBuf, bytes: Option<&[u8]>, mask: Option<&Mask>) {
    let (id, t) = (tensor.desc().id().get(), tensor.desc().data_type());
    let into = tensor.as_mut_bytes();
    match t {
        DataType::F32 => {
            for (at, element) in into.chunks_exact_mut(4).enumerate() {
                element.copy_from_slice(&number(id, at).to_ne_bytes());
            }
        }
        DataType::Bf16 => {
            for (at, element) in into.chunks_exact_mut(2).enumerate() {
                element.copy_from_slice(&((number(id, at).to_bits() >> 16) as u16).to_ne_bytes());
            }
        }
        DataType::F16 => {
            for (at, element) in into.chunks_exact_mut(2).enumerate() {
                element.copy_from_slice(&half(number(id, at)).to_ne_bytes());
            }
        }
        DataType::S8 | DataType::U8 | DataType::S4 | DataType::U4 => {
            for (at, element) in into.iter_mut().enumerate() {
                *element = (mixed((id as u64) << 48 | at as u64) >> 40) as u8;
            }
        }
        DataType::S32 if id == TABLE => {
            let pages = into.len() / 4;
            for (at, element) in into.chunks_exact_mut(4).enumerate() {
                // An odd factor names each of a power of two of pages once.
                element.copy_from_slice(&((at * 37 % pages) as i32).to_ne_bytes());
            }
        }
        DataType::S32 => {
            let lists = mask.map_or(&[][..], |mask| &mask.lists);
            for (element, number) in into.chunks_exact_mut(4).zip(&lists[(id - LISTS) / 2]) {
                element.copy_from_slice(&number.to_ne_bytes());
            }
        }
        _ => into.copy_from_slice(bytes.unwrap_or_default()),
    }
}

/// The least seconds of runs that are interleaved.
fn best_interleaved(rounds: usize, all: &mut [&mut Ready]) -> Vec<f64> {
    let runs: Vec<usize> = all.iter_mut().map(|ready| ready.steps.runs()).collect();
    let mut best = vec![f64::MAX; all.len()];
    for _ in 0..rounds {
        for ((ready, &runs), best) in all.iter_mut().zip(&runs).zip(&mut best) {
            *best = best.min(ready.steps.sample(runs));
        }
    }
    best
}

struct Options {
    /// False under `cargo test`, which runs a row of each kind once.
    is_bench: bool,
    is_list: bool,
    rounds: usize,
    threads: usize,
    serve: Option<String>,
    filters: Vec<String>,
}

impl Options {
    fn parse() -> Result<Self, String> {
        let mut options =
            Self { is_bench: false, is_list: false, rounds: 9, threads: 2, serve: None, filters: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let number = arguments.next().and_then(|number| number.parse().ok());
                number.filter(|&number| number > 0).ok_or(format!("{argument} takes a number above 0"))
            };
            match argument.as_str() {
                "--bench" => options.is_bench = true,
                "--list" => options.is_list = true,
                "--rounds" => options.rounds = number()?,
                "--threads" => options.threads = number()?,
                "--serve" => {
                    options.serve = Some(arguments.next().ok_or("--serve takes the name of a row")?);
                }
                _ if argument.starts_with('-') => return Err(format!("unknown option {argument}")),
                _ => options.filters.push(argument),
            }
        }
        Ok(options)
    }

    fn takes(&self, row: &str) -> bool {
        self.filters.iter().all(|filter| match filter.strip_prefix('=') {
            Some(name) => row == name,
            None => row.contains(filter.as_str()),
        })
    }
}

fn main() -> Result<(), String> {
    let mut options = Options::parse()?;
    if let Some(name) = &options.serve {
        let row = Row::all().into_iter().find(|row| row.name == *name);
        return serve(&row.ok_or(format!("no row is called {name:?}"))?, options.threads);
    }
    let mut rows: Vec<Row> = Row::all().into_iter().filter(|row| options.takes(&row.name)).collect();
    let mut packed: Vec<PackedRow> = PackedRow::all();
    packed.retain(|row| options.takes(&row.name));
    if options.is_list {
        let names = rows.iter().map(|row| &row.name).chain(packed.iter().map(|row| &row.name));
        names.for_each(|name| println!("{name}"));
        return Ok(());
    }
    if !options.is_bench {
        // A test of the bench: every mask in every form, once.
        rows.retain(|row| row.name.contains("f32 8x384x64") || row.name.contains("small"));
        packed.retain(|row| row.name.contains("f32 packed 100 of 8"));
        options.rounds = 1;
    }
    for threads in [1, options.threads].into_iter().take(options.threads.min(2)) {
        let limits = TYPES.map(|t| (t, limits::arithmetic(t, threads, options.rounds)));
        println!("\n{threads} thread{}", if threads == 1 { "" } else { "s" });
        for (t, rate) in &limits {
            println!("limit of {t}: {:.1} GFLOP/s in registers", rate / 1e9);
        }
        println!(
            "{:<46}{:>12}{:>10}{:>10}{:>9}{:>9}{:>13}{:>7}{:>8}",
            "row", "ms", "GFLOP/s", "of limit", "pairs", "tiles", "of ideal", "parts", "KiB"
        );
        rows.iter().for_each(|row| measure(row, &limits, threads, options.rounds));
        let engine = Engine::builder().threads(threads).build();
        for row in &packed {
            let (packed, alone, parts) = row.measure(&engine, options.rounds);
            let name = &row.name;
            let ideal = format!("{:.2} x alone", packed / alone);
            println!("{name:<52}{packed:>12.4}{alone:>12.4}{ideal:>13}{parts:>7}");
        }
    }
    Ok(())
}

fn measure(row: &Row, limits: &[(DataType, f64)], threads: usize, rounds: usize) {
    let engine = Engine::builder().threads(threads).build();
    let mut ready = Ready::new(row, &engine);
    // Forward beside backward, or the row without its mask, or without its u8.
    let full = match row.is_backward {
        true => Row { is_backward: false, ..row.clone() },
        false => Row { mask: None, is_throughout: false, page: None, ..row.clone() },
    };
    let is_compared = row.is_backward || row.is_throughout || row.mask.is_some() || row.page.is_some();
    let mut full = is_compared.then(|| Ready::new(&full, &engine));
    let mut all: Vec<&mut Ready> = [&mut ready].into_iter().chain(full.as_mut()).collect();
    let best = best_interleaved(rounds, &mut all);
    let Kept { pairs, tiles } = ready.kept;
    let products = if row.is_backward { 10.0 } else { 4.0 };
    let flops = products * (row.heads * row.queries * row.keys * row.depth) as f64 * pairs;
    let of_bytes = if row.is_throughout { DataType::U8 } else { row.data_type };
    let of_elements = row.depth * row.stored.unwrap_or(of_bytes).bits() / 8;
    let of_scales = if row.stored.is_some() { row.depth / SHARED * 3 } else { 0 };
    let bytes = 2 * row.heads * row.keys * (of_elements + of_scales);
    let peak = limits::of(row.data_type, limits);
    let reading = row.is_decode.then(|| bytes as f64 / limits::reading(bytes, threads, rounds));
    let limit = (flops / peak).max(reading.unwrap_or(0.0));
    let ideal = best.get(1).map_or("".into(), |full| match (row.is_backward, row.is_throughout) {
        (true, _) => format!("{:.2} x fwd", best[0] / full),
        (_, true) => format!("{:.2} x {}", best[0] / full, row.data_type),
        _ if row.page.is_some() => format!("{:.2} x plain", best[0] / full),
        _ => format!("{:.2}", full * tiles / best[0]),
    });
    println!(
        "{:<46}{:>12.4}{:>10.1}{:>10.2}{:>9.3}{:>9.3}{:>13}{:>7}{:>8}",
        row.name,
        1e3 * best[0],
        flops / best[0] / 1e9,
        limit / best[0],
        pairs,
        tiles,
        ideal,
        ready.steps.count(),
        ready.steps.scratch().div_ceil(threads << 10)
    );
}

/// Answers the questions of `peers.py`: `run SAMPLES` by nanoseconds of each sample, `write ID PATH` by the
/// bytes of a tensor in a file. The mask can be asked for as bytes whatever its form; for gradients, the
/// result and the statistics of forward, and the gradient of the result, are inputs that have ids of their
/// own.
fn serve(row: &Row, threads: usize) -> Result<(), String> {
    let engine = Engine::builder().threads(threads).build();
    let mut ready = Ready::new(row, &engine);
    let runs = ready.steps.runs();
    let Row { data_type, heads, queries, keys, depth, .. } = row;
    println!("ready {data_type} {heads} {queries} {keys} {depth} {} {}", ready.kept.pairs, ready.kept.tiles);
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["run", samples] => {
                let samples: usize = samples.parse().map_err(|_| format!("{samples:?} is no number"))?;
                let times = (0..samples).map(|_| format!(" {:.1}", 1e9 * ready.steps.sample(runs)));
                println!("times{}", times.collect::<String>());
            }
            ["write", id, path] => {
                let id = id.parse().map_err(|_| format!("{id:?} is no number"))?;
                let mut file = std::fs::File::create(path).map_err(|error| error.to_string())?;
                let written = match (ready.steps.tensors.get(&id), row.mask()) {
                    (Some(tensor), _) => file.write_all(tensor.as_bytes()),
                    (None, Some(mask)) if id == MASK => file.write_all(&mask.bytes(row.queries)),
                    (None, _) => return Err(format!("there is no tensor {id}")),
                };
                written.map_err(|error| error.to_string())?;
                println!("written");
            }
            _ => break,
        }
    }
    Ok(())
}
