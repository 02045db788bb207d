//! Masked attention as ordinary ops, for those who do not come with a graph.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::Graph;
use super::logical_tensor::LogicalTensor;
use super::op::Op;
use super::verify;
use crate::error::{AttentionFault, Error, GraphFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpId, OpKind, TensorId};
use crate::types::shape::UNKNOWN_DIM;

/// The types of queries, keys and values.
const FLOATS: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];

/// The largest index that `Fill`, whose value is an f32, gives exactly.
const MAX_EXACT: i64 = 1 << 24;

/// What `true` in a boolean mask says about its pair of a query and a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaskTrue {
    /// The key takes part, as in torch's `attn_mask`.
    Keeps,
    /// The key is left out, as in torch's `key_padding_mask`.
    Masks,
}

/// Where the diagonal of a causal mask lies: query `i` sees key `j` if `j <= i + offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Causal {
    /// The offset is 0: the first query sees the first key alone.
    TopLeft,
    /// The offset is the number of keys less the number of queries, as the graph describes them: the last
    /// query sees every key. A partition that is compiled for other numbers needs [`Offset`](Self::Offset).
    BottomRight,
    /// The offset is a tensor of s32 that broadcasts to the scores: a scalar, or one number for each member
    /// of the batch. It tells how many keys of a cache come before the first query.
    Offset(LogicalTensor),
}

/// Options of [`Graph::attention`].
///
/// Dims of `q` are [.., queries, d], of `k` [.., keys, d], of `v` [.., keys, d_v] and of the result
/// [.., queries, d_v]. The dims in front are batch and heads; they broadcast as those of `MatMul` do.
///
/// ```
/// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor, MaskTrue};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[2, 8, 128, 64]);
/// let padding = LogicalTensor::strided(4, DataType::Boolean, &[2, 1, 1, 128])?;
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?)
///     .causal(Causal::TopLeft)
///     .mask(padding, MaskTrue::Keeps);
/// let mut graph = Graph::new();
/// let ids = graph.attention(&attention)?;
/// assert_eq!(ids.ops.len(), graph.ops().len());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// The queries.
    pub q: LogicalTensor,
    /// The keys.
    pub k: LogicalTensor,
    /// The values.
    pub v: LogicalTensor,
    /// The result.
    pub dst: LogicalTensor,
    /// Whether `k` has dims [.., d, keys].
    pub k_transposed: bool,
    /// The factor of the scores; `None` for 1/√d.
    pub scale: Option<f32>,
    /// The cap `c` of the scaled scores, which become `c · tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Numbers that are added to the scaled and capped scores.
    pub bias: Option<LogicalTensor>,
    /// Booleans, and what `true` says.
    pub mask: Option<(LogicalTensor, MaskTrue)>,
    /// Whether a query sees only keys up to its own position.
    pub causal: Option<Causal>,
    /// The number of positions, its own included, that a query sees back, and ahead unless it is causal.
    pub window: Option<i64>,
    /// The number of query heads that share a head of keys and values; `None` for 1.
    pub groups: Option<i64>,
    /// Whether a query without keys gets 0 instead of NaN.
    pub inf_as_zero: bool,
    /// The type of the scores.
    pub score_type: DataType,
    /// Where maximum + ln(sum) of each query's scores goes: f32, with dims [.., queries, 1].
    pub stats: Option<LogicalTensor>,
    /// The id of the first op; `None` for one that follows all of the graph.
    pub first_op: Option<OpId>,
    /// The id of the first tensor between the ops; `None` for one that follows all of the graph and of these
    /// options.
    pub first_tensor: Option<TensorId>,
}

/// The ids that [`Graph::attention`] has used.
///
/// ```
/// use sterna::{Attention, DataType, Graph, LogicalTensor};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 128, 64]);
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).ids_from(10, 100);
/// let ids = Graph::new().attention(&attention)?;
/// assert_eq!((ids.ops.start, ids.tensors.start), (10, 100));
/// assert!(ids.tensors.contains(&ids.probabilities));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttentionIds {
    /// The ops, in a run order.
    pub ops: Range<OpId>,
    /// The tensors between the ops.
    pub tensors: Range<TensorId>,
    /// The products of queries and keys, as `MatMul` gives them.
    pub scores: TensorId,
    /// The scores that `SoftMax` takes.
    pub masked_scores: TensorId,
    /// The result of `SoftMax`.
    pub probabilities: TensorId,
}

impl Attention {
    /// Plain attention: the factor 1/√d, no mask, scores of f32, and 0 for a query without keys.
    pub fn new(q: LogicalTensor, k: LogicalTensor, v: LogicalTensor, dst: LogicalTensor) -> Self {
        Self {
            q,
            k,
            v,
            dst,
            k_transposed: false,
            scale: None,
            softcap: None,
            bias: None,
            mask: None,
            causal: None,
            window: None,
            groups: None,
            inf_as_zero: true,
            score_type: DataType::F32,
            stats: None,
            first_op: None,
            first_tensor: None,
        }
    }

    /// Says that `k` has dims [.., d, keys].
    pub fn k_transposed(self, k_transposed: bool) -> Self {
        Self { k_transposed, ..self }
    }

    /// Sets the factor of the scores.
    pub fn scale(self, scale: f32) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// Caps the scaled scores: they become `softcap · tanh(score / softcap)`.
    pub fn softcap(self, softcap: f32) -> Self {
        Self { softcap: Some(softcap), ..self }
    }

    /// Adds a tensor of numbers to the scaled and capped scores; −∞ leaves a key out.
    pub fn bias(self, bias: LogicalTensor) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// Leaves keys out by a tensor of booleans, which broadcasts to the scores.
    pub fn mask(self, mask: LogicalTensor, says: MaskTrue) -> Self {
        Self { mask: Some((mask, says)), ..self }
    }

    /// Leaves out the keys behind a query's own position.
    pub fn causal(self, causal: Causal) -> Self {
        Self { causal: Some(causal), ..self }
    }

    /// Leaves out keys that are `window` or more positions before the query; unless the mask is causal, those
    /// as far behind it too.
    pub fn window(self, window: i64) -> Self {
        Self { window: Some(window), ..self }
    }

    /// Lets this number of heads of queries share each head of keys and values.
    ///
    /// Tensors of rank 5 have them as a dim: `q` is [batch, key heads, groups, queries, d], `k` is
    /// [batch, key heads, 1, keys, d]. Tensors of rank 4, [batch, heads, .., d], are reshaped by ops of the
    /// graph; to describe them with rank 5 is cheaper, because the same memory has both shapes.
    pub fn groups(self, groups: i64) -> Self {
        Self { groups: Some(groups), ..self }
    }

    /// Whether a query without keys gets 0, or else NaN.
    pub fn inf_as_zero(self, inf_as_zero: bool) -> Self {
        Self { inf_as_zero, ..self }
    }

    /// Sets the type of the scores: f32, or the type of `q`.
    pub fn score_type(self, score_type: DataType) -> Self {
        Self { score_type, ..self }
    }

    /// Hands out maximum + ln(sum) of each query's scores, as training needs it.
    pub fn stats(self, stats: LogicalTensor) -> Self {
        Self { stats: Some(stats), ..self }
    }

    /// Sets the ids of the first op and of the first tensor between the ops.
    pub fn ids_from(self, first_op: OpId, first_tensor: TensorId) -> Self {
        Self { first_op: Some(first_op), first_tensor: Some(first_tensor), ..self }
    }

    /// The tensors of the caller.
    fn tensors(&self) -> impl Iterator<Item = &LogicalTensor> {
        let offset = match &self.causal {
            Some(Causal::Offset(offset)) => Some(offset),
            _ => None,
        };
        let mask = self.mask.as_ref().map(|(mask, _)| mask);
        let optional = [self.bias.as_ref(), mask, offset, self.stats.as_ref()];
        [&self.q, &self.k, &self.v, &self.dst].into_iter().chain(optional.into_iter().flatten())
    }
}

impl Graph {
    /// Adds the ops of masked attention: `MatMul` of queries and keys, `Multiply` by the scale, `Tanh` for a
    /// cap, `Add` of a bias, `Select` by a condition over `GenIndex` and by a boolean mask, `SoftMax`, and
    /// `MatMul` with the values. They are ops like any other: `finalize` links them, and partitioning makes
    /// of them what it makes of a graph that a framework hands over. Constants are `Fill` ops.
    ///
    /// # Errors
    ///
    /// [`Error::Attention`] for an option whose value, type or shape does not do, or that needs a size which
    /// is unknown; whatever [`add_op`](Self::add_op) answers with. After an error the graph is as it was.
    pub fn attention(&mut self, options: &Attention) -> Result<AttentionIds> {
        self.add_sequence(options, &[], |sequence, heads| sequence.attention(options, heads))
    }

    /// Adds the ops that a function makes for some options and further tensors of the caller.
    pub(super) fn add_sequence(
        &mut self,
        options: &Attention,
        more: &[&LogicalTensor],
        make: impl FnOnce(&mut OpSequence, Option<Heads>) -> Result<[TensorId; 3]>,
    ) -> Result<AttentionIds> {
        if self.is_finalized() {
            return Err(GraphFault::Finalized.into());
        }
        let after = |ids: &mut dyn Iterator<Item = usize>| ids.max().map_or(0, |id| id.saturating_add(1));
        let mentioned = self.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
        let taken: FxHashSet<TensorId> =
            mentioned.chain(options.tensors()).chain(more.iter().copied()).map(LogicalTensor::id).collect();
        let first_op = options.first_op.unwrap_or_else(|| after(&mut self.ops().iter().map(Op::id)));
        let first_tensor = options.first_tensor.unwrap_or_else(|| after(&mut taken.iter().copied()));

        let heads = Heads::of(options)?;
        let mut sequence = OpSequence { ops: Vec::new(), first_op, next_tensor: first_tensor };
        let [scores, masked_scores, probabilities] = make(&mut sequence, heads)?;
        let tensors = first_tensor..sequence.next_tensor;
        let Some(end) = first_op.checked_add(sequence.ops.len()).filter(|_| tensors.end < TensorId::MAX)
        else {
            return Err(value("ids_from", format!("{first_op}, {first_tensor}"), "the ids leave usize"));
        };
        if let Some(taken) = tensors.clone().find(|id| taken.contains(id)) {
            return Err(AttentionFault::TensorTaken { first: first_tensor, taken }.into());
        }
        for op in &mut sequence.ops {
            verify::verify(op)?;
            if self.ops().iter().any(|other| other.id() == op.id()) {
                return Err(GraphFault::DuplicateOp(op.op_ref()).into());
            }
        }
        sequence.ops.into_iter().try_for_each(|op| self.add_op(op))?;
        Ok(AttentionIds { ops: first_op..end, tensors, scores, masked_scores, probabilities })
    }
}

pub(super) fn value(option: &'static str, given: impl ToString, rule: &'static str) -> Error {
    AttentionFault::Value { option, given: given.to_string(), rule }.into()
}

pub(super) fn unknown(option: &'static str, what: &'static str, tensor: &LogicalTensor) -> Error {
    AttentionFault::Unknown { option, what, tensor: tensor.id() }.into()
}

/// A dim counted from the end, if it is known.
pub(super) fn from_end(tensor: &LogicalTensor, back: usize) -> Option<i64> {
    let dims = tensor.dims()?;
    let dim = *dims.get(dims.len().checked_sub(back)?)?;
    (dim != UNKNOWN_DIM).then_some(dim)
}

/// The heads of tensors of rank 4, which need reshapes to share heads of keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) of_queries: i64,
    pub(super) of_keys: i64,
    pub(super) groups: i64,
}

impl Heads {
    /// `None` if nothing is reshaped.
    fn of(options: &Attention) -> Result<Option<Self>> {
        let Attention { q, k, v, .. } = options;
        let Some(groups) = options.groups else { return Ok(None) };
        if groups < 1 {
            return Err(value("groups", groups, "it is at least 1"));
        }
        let rank = q.rank().ok_or_else(|| unknown("groups", "the rank of `q`", q))?;
        if let Some(other) = [k, v].into_iter().find(|other| other.rank() != Some(rank)) {
            let rule = "`q`, `k` and `v` have one known rank";
            let given = other.dims().unwrap_or_default().into();
            return Err(AttentionFault::Shape { option: "groups", tensor: other.id(), given, rule }.into());
        }
        let wrong = |tensor: &LogicalTensor, rule| {
            let given = tensor.dims().unwrap_or_default().into();
            Err(AttentionFault::Shape { option: "groups", tensor: tensor.id(), given, rule }.into())
        };
        if rank == 5 {
            if from_end(q, 3).is_some_and(|dim| dim != groups) {
                return wrong(q, "dim 2 of a `q` of rank 5 is the number of groups");
            }
            return match [k, v].into_iter().find(|shared| from_end(shared, 3).is_some_and(|dim| dim != 1)) {
                Some(shared) => wrong(shared, "dim 2 of a `k` or `v` of rank 5 is 1"),
                None => Ok(None),
            };
        }
        if rank != 4 {
            return wrong(q, "heads that share keys are a dim of tensors of rank 4 or 5");
        }
        if groups == 1 {
            return Ok(None);
        }
        let of_queries = from_end(q, 3).ok_or_else(|| unknown("groups", "the number of heads", q))?;
        if of_queries % groups != 0 {
            return Err(AttentionFault::Groups { groups, heads: of_queries }.into());
        }
        let of_keys = of_queries / groups;
        for shared in [k, v] {
            if from_end(shared, 3).is_some_and(|heads| heads != of_keys) {
                return wrong(shared, "it has one head for each group of heads of `q`");
            }
        }
        Ok(Some(Self { of_queries, of_keys, groups }))
    }
}

/// The ops so far.
pub(super) struct OpSequence {
    pub(super) ops: Vec<Op>,
    first_op: OpId,
    next_tensor: TensorId,
}

impl OpSequence {
    /// Adds all ops; answers with the ids of scores, masked scores and probabilities.
    fn attention(&mut self, options: &Attention, heads: Option<Heads>) -> Result<[TensorId; 3]> {
        check(options)?;
        let data_type = options.q.data_type();
        let score_type = options.score_type;
        let (mut q, mut k, mut v) = (options.q.clone(), options.k.clone(), options.v.clone());
        if let Some(Heads { of_keys, groups, .. }) = heads {
            q = self.regrouped(&q, "q", [of_keys, groups])?;
            k = self.regrouped(&k, "k", [of_keys, 1])?;
            v = self.regrouped(&v, "v", [of_keys, 1])?;
        }
        let raw = self.next(score_type);
        let product = self.op(OpKind::MatMul, "scores").attr(Attr::TransposeB, !options.k_transposed);
        self.ops.push(product.inputs_from([q, k]).output(raw.clone()));

        let mut scores = self.scaled(options, raw.clone())?;
        if let Some(bias) = &options.bias {
            let bias = self.mask_of_heads(bias, "bias", heads)?;
            scores = self.pair(OpKind::Add, "bias", scores, bias, score_type);
        }
        scores = self.masked(options, heads, scores)?;

        let probabilities = self.next(data_type);
        let mode = if options.inf_as_zero { "inf_as_zero" } else { "none" };
        let softmax = self.op(OpKind::SoftMax, "softmax").attr(Attr::Axis, -1i64).attr(Attr::Mode, mode);
        let softmax = softmax.input(scores.clone()).output(probabilities.clone());
        let softmax = match (&options.stats, heads) {
            (None, _) => softmax,
            (Some(stats), None) => softmax.output(stats.clone()),
            (Some(_), Some(_)) => softmax.output(self.next(DataType::F32)),
        };
        let grouped_stats = softmax.outputs().get(1).cloned();
        self.ops.push(softmax);

        let result = if heads.is_some() { self.next(options.dst.data_type()) } else { options.dst.clone() };
        let product = self.op(OpKind::MatMul, "output");
        self.ops.push(product.inputs_from([probabilities.clone(), v]).output(result.clone()));
        if let Some(Heads { of_queries, .. }) = heads {
            let d = from_end(&options.v, 1).unwrap_or(UNKNOWN_DIM);
            self.reshape("heads", result, vec![0, of_queries, -1, d], options.dst.clone());
            if let (Some(stats), Some(grouped)) = (&options.stats, grouped_stats) {
                self.reshape("stats", grouped, vec![0, of_queries, -1, 1], stats.clone());
            }
        }
        Ok([raw.id(), scores.id(), probabilities.id()])
    }

    /// The factor, and the cap.
    pub(super) fn scaled(&mut self, options: &Attention, scores: LogicalTensor) -> Result<LogicalTensor> {
        let t = options.score_type;
        let scale = match options.scale {
            Some(scale) => f64::from(scale),
            None => {
                let d = from_end(&options.q, 1);
                let d = d.ok_or_else(|| unknown("scale", "the last dim of `q`", &options.q))?;
                (d.max(1) as f64).sqrt().recip()
            }
        };
        let Some(cap) = options.softcap else {
            let scale = self.constant("scale", t, scale as f32)?;
            return Ok(self.pair(OpKind::Multiply, "scaled", scores, scale, t));
        };
        let scale = self.constant("scale", t, (scale / f64::from(cap)) as f32)?;
        let scores = self.pair(OpKind::Multiply, "scaled", scores, scale, t);
        let bent = self.next(t);
        let tanh = self.op(OpKind::Tanh, "softcap");
        self.ops.push(tanh.input(scores).output(bent.clone()));
        let cap = self.constant("cap", t, cap)?;
        Ok(self.pair(OpKind::Multiply, "capped", bent, cap, t))
    }

    /// The Selects.
    pub(super) fn masked(
        &mut self,
        options: &Attention,
        heads: Option<Heads>,
        mut scores: LogicalTensor,
    ) -> Result<LogicalTensor> {
        let by_position = self.by_position(options, heads, &scores)?;
        if by_position.is_none() && options.mask.is_none() {
            return Ok(scores);
        }
        let t = options.score_type;
        let nothing = self.constant("minus_infinity", t, f32::NEG_INFINITY)?;
        if let Some(keeps) = by_position {
            scores = self.select("by_position", keeps, scores, nothing.clone(), t);
        }
        if let Some((mask, says)) = &options.mask {
            let mask = self.mask_of_heads(mask, "mask", heads)?;
            scores = match says {
                MaskTrue::Keeps => self.select("by_mask", mask, scores, nothing, t),
                MaskTrue::Masks => self.select("by_mask", mask, nothing, scores, t),
            };
        }
        Ok(scores)
    }

    /// The condition over the positions of queries and keys.
    fn by_position(
        &mut self,
        options: &Attention,
        heads: Option<Heads>,
        scores: &LogicalTensor,
    ) -> Result<Option<LogicalTensor>> {
        if options.causal.is_none() && options.window.is_none() {
            return Ok(None);
        }
        let index = |sequence: &mut Self, name, axis: i64| {
            let index = sequence.next(DataType::S32);
            let op = sequence.op(OpKind::GenIndex, name).attr(Attr::Axis, axis);
            sequence.ops.push(op.input(scores.clone()).output(index.clone()));
            index
        };
        let mut query = index(self, "query", -2);
        let key = index(self, "key", -1);
        let offset = match &options.causal {
            None | Some(Causal::TopLeft) => None,
            Some(Causal::Offset(offset)) => Some(self.mask_of_heads(offset, "causal", heads)?),
            Some(Causal::BottomRight) => {
                Some(self.constant("offset", DataType::S32, bottom_right(options)?)?)
            }
        };
        if let Some(offset) = offset {
            query = self.pair(OpKind::Add, "position", query, offset, DataType::S32);
        }
        let causal = options.causal.is_some().then(|| {
            self.pair(OpKind::GreaterEqual, "causal", query.clone(), key.clone(), DataType::Boolean)
        });
        let Some(window) = options.window else { return Ok(causal) };
        let mut distance = self.pair(OpKind::Subtract, "distance", query, key, DataType::S32);
        if causal.is_none() {
            let both_ways = self.next(DataType::S32);
            let abs = self.op(OpKind::Abs, "both_ways");
            self.ops.push(abs.input(distance).output(both_ways.clone()));
            distance = both_ways;
        }
        let window = self.constant("window_size", DataType::S32, window as f32)?;
        let near = self.pair(OpKind::Less, "window", distance, window, DataType::Boolean);
        Ok(Some(match causal {
            Some(causal) => self.pair(OpKind::LogicalAnd, "near_and_causal", causal, near, DataType::Boolean),
            None => near,
        }))
    }

    /// A mask, a bias or an offset, which broadcasts to scores of rank 5 if heads are grouped.
    pub(super) fn mask_of_heads(
        &mut self,
        mask: &LogicalTensor,
        option: &'static str,
        heads: Option<Heads>,
    ) -> Result<LogicalTensor> {
        let Some(Heads { of_queries, of_keys, groups }) = heads else { return Ok(mask.clone()) };
        let dims = mask.dims().ok_or_else(|| unknown(option, "its rank, for the groups", mask))?;
        let (batch, heads, last) = match *dims {
            [] | [_] | [_, _] | [1, _, _] | [1, 1, _, _] => return Ok(mask.clone()),
            [heads, queries, keys] => (None, heads, [queries, keys]),
            [_, heads, queries, keys] => (Some(0), heads, [queries, keys]),
            _ => {
                let (tensor, given) = (mask.id(), dims.into());
                let rule = "a mask of tensors of rank 4 has at most rank 4";
                return Err(AttentionFault::Shape { option, tensor, given, rule }.into());
            }
        };
        let heads = match heads {
            1 => [1, 1],
            UNKNOWN_DIM => return Err(unknown(option, "its number of heads, for the groups", mask)),
            heads if heads == of_queries => [of_keys, groups],
            _ => {
                let (tensor, given) = (mask.id(), dims.into());
                let rule = "a mask has one head, or as many as `q`";
                return Err(AttentionFault::Shape { option, tensor, given, rule }.into());
            }
        };
        // A reshape leaves one dim open.
        let last = match last {
            [UNKNOWN_DIM, UNKNOWN_DIM] => {
                return Err(unknown(option, "one of its last two dims, for the groups", mask));
            }
            [queries, UNKNOWN_DIM] => [queries, -1],
            [UNKNOWN_DIM, keys] => [-1, keys],
            // One row is the form of padding, whose length is what changes from one compilation to the next.
            [1, _] => [1, -1],
            [_, keys] => [-1, keys],
        };
        let shape: Vec<i64> = batch.into_iter().chain(heads).chain(last).collect();
        let regrouped = self.next(mask.data_type());
        self.reshape(option, mask.clone(), shape, regrouped.clone());
        Ok(regrouped)
    }

    /// A tensor of rank 4 with its heads as two dims.
    pub(super) fn regrouped(
        &mut self,
        tensor: &LogicalTensor,
        name: &'static str,
        heads: [i64; 2],
    ) -> Result<LogicalTensor> {
        // One of the last two dims must be known; the last but one is the one that changes, but in a K^T.
        let last = match (from_end(tensor, 2), from_end(tensor, 1)) {
            (_, Some(last)) => [-1, last],
            (Some(before), None) => [before, -1],
            (None, None) => return Err(unknown("groups", "one of the last two dims", tensor)),
        };
        let regrouped = self.next(tensor.data_type());
        let shape = vec![0, heads[0], heads[1], last[0], last[1]];
        self.reshape(name, tensor.clone(), shape, regrouped.clone());
        Ok(regrouped)
    }

    pub(super) fn reshape(&mut self, name: &str, from: LogicalTensor, shape: Vec<i64>, to: LogicalTensor) {
        let op = self.op(OpKind::StaticReshape, name).attr(Attr::Shape, shape).attr(Attr::SpecialZero, true);
        self.ops.push(op.input(from).output(to));
    }

    fn select(
        &mut self,
        name: &str,
        cond: LogicalTensor,
        then: LogicalTensor,
        other: LogicalTensor,
        t: DataType,
    ) -> LogicalTensor {
        let dst = self.next(t);
        let op = self.op(OpKind::Select, name);
        self.ops.push(op.inputs_from([cond, then, other]).output(dst.clone()));
        dst
    }

    /// An op on two tensors.
    pub(super) fn pair(
        &mut self,
        kind: OpKind,
        name: &str,
        left: LogicalTensor,
        right: LogicalTensor,
        t: DataType,
    ) -> LogicalTensor {
        let dst = self.next(t);
        let op = self.op(kind, name);
        self.ops.push(op.inputs_from([left, right]).output(dst.clone()));
        dst
    }

    /// A scalar that the graph knows.
    pub(super) fn constant(&mut self, name: &str, t: DataType, number: f32) -> Result<LogicalTensor> {
        let scalar = LogicalTensor::strided(self.next(t).id(), t, &[])?;
        let op = self.op(OpKind::Fill, name).attr(Attr::Shape, Vec::<i64>::new()).attr(Attr::Value, number);
        self.ops.push(op.output(scalar.clone()));
        Ok(scalar)
    }

    pub(super) fn op(&self, kind: OpKind, name: &str) -> Op {
        let id = self.first_op.wrapping_add(self.ops.len());
        Op::new(id, kind).named(format!("attention_{name}_{id}"))
    }

    /// The next tensor between the ops; its shape is inferred when a partition is compiled.
    pub(super) fn next(&mut self, t: DataType) -> LogicalTensor {
        let tensor = LogicalTensor::unknown(self.next_tensor, t);
        self.next_tensor = self.next_tensor.saturating_add(1);
        tensor
    }
}

/// Checks what no op checks.
pub(super) fn check(options: &Attention) -> Result<()> {
    let of_type = |option, tensor: &LogicalTensor, allowed: &[DataType], rule| {
        let given = tensor.data_type();
        match allowed.contains(&given) {
            true => Ok(()),
            false => Err(Error::from(AttentionFault::Type { option, tensor: tensor.id(), given, rule })),
        }
    };
    let data_type = options.q.data_type();
    of_type("q", &options.q, &FLOATS, "queries are f32, bf16 or f16")?;
    of_type("k", &options.k, &[data_type], "keys have the type of `q`")?;
    of_type("v", &options.v, &[data_type], "values have the type of `q`")?;
    of_type("dst", &options.dst, &[data_type, DataType::F32], "the result is f32 or of the type of `q`")?;
    if let Some(bias) = &options.bias {
        of_type("bias", bias, &FLOATS, "a bias is added, so it is f32, bf16 or f16; booleans are a `mask`")?;
    }
    if let Some((mask, _)) = &options.mask {
        of_type(
            "mask",
            mask,
            &[DataType::Boolean],
            "a mask is boolean; numbers that are added are a `bias`",
        )?;
    }
    if let Some(Causal::Offset(offset)) = &options.causal {
        of_type("causal", offset, &[DataType::S32], "an offset is s32, as indices are")?;
    }
    if let Some(stats) = &options.stats {
        of_type("stats", stats, &[DataType::F32], "statistics are f32")?;
    }
    if ![data_type, DataType::F32].contains(&options.score_type) {
        return Err(value("score_type", options.score_type, "scores are f32 or of the type of `q`"));
    }
    if let Some(scale) = options.scale.filter(|scale| !scale.is_finite()) {
        return Err(value("scale", scale, "it is a finite number"));
    }
    if let Some(cap) = options.softcap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
        return Err(value("softcap", cap, "it is a finite number above 0"));
    }
    if let Some(window) = options.window.filter(|window| !(1..=MAX_EXACT).contains(window)) {
        return Err(value("window", window, "it is 1 to 16777216 keys"));
    }
    Ok(())
}

/// The number of keys less the number of queries.
fn bottom_right(options: &Attention) -> Result<f32> {
    let Attention { q, k, .. } = options;
    let queries = from_end(q, 2).ok_or_else(|| unknown("causal", "the number of queries", q))?;
    let keys = from_end(k, if options.k_transposed { 1 } else { 2 });
    let offset = keys.ok_or_else(|| unknown("causal", "the number of keys", k))? - queries;
    match offset.abs() <= MAX_EXACT {
        true => Ok(offset as f32),
        false => Err(value("causal", offset, "keys and queries differ by at most 16777216")),
    }
}
