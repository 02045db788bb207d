//! Masked attention as ordinary ops, for those who do not come with a graph.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::Graph;
use super::attention_heads::{HeadDims, Heads, Open, batch};
use super::attention_pages::{PagedSequences, check_rows};
use super::attention_positions::{
    Causal, MaskPositions, MaskTrue, PackedSequences, PositionOptions, QueriesAndKeys,
};
use super::attention_sinks::check_sinks;
use super::attention_stored::{OF_KEYS, OF_VALUES, StoredTokens, TokenScales};
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown, value};
use super::verify;
use crate::error::{AttentionFault, Error, GraphFault, Result};
use crate::types::dtype::DataType;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, OpKind};

/// The types of queries, keys and values.
const FLOATS: [DataType; 3] = [DataType::F32, DataType::Bf16, DataType::F16];

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
/// assert_eq!(ids.ops.end, graph.ops().len());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// The queries.
    pub(super) q: LogicalTensor,
    /// The keys.
    pub(super) k: LogicalTensor,
    /// The values.
    pub(super) v: LogicalTensor,
    /// The result.
    pub(super) dst: LogicalTensor,
    /// How integers of keys and of values become numbers; `None` if they are numbers.
    pub(super) k_scales: Option<TokenScales>,
    pub(super) v_scales: Option<TokenScales>,
    /// True if `k` has dims [.., d, keys].
    pub(super) k_transposed: bool,
    /// The factor of the scores; `None` for 1/√d.
    pub(super) scale: Option<f32>,
    /// The cap `c` of the scaled scores, which become `c · tanh(score / c)`.
    pub(super) softcap: Option<f32>,
    /// Numbers that are added to the scaled and capped scores.
    pub(super) bias: Option<LogicalTensor>,
    /// A score without a key for each query.
    pub(super) sinks: Option<LogicalTensor>,
    /// Booleans, and what `true` says.
    pub(super) mask: Option<(LogicalTensor, MaskTrue)>,
    /// The keys that a query sees by their positions, and the slopes of scores.
    pub(super) positions: PositionOptions,
    /// The number of query heads that share a head of keys and values; `None` for 1.
    pub(super) groups: Option<i64>,
    /// A query all of whose keys are left out gets NaN instead of 0. One that has no keys to leave out gets 0
    /// either way: its products have no terms.
    pub(super) nan_without_keys: bool,
    /// The type of the scores.
    pub(super) score_type: DataType,
    /// Where maximum + ln(sum) of each query's scores goes: f32, with dims [.., queries, 1].
    pub(super) stats: Option<LogicalTensor>,
    /// The id of the first op; `None` for one that follows all of the graph.
    pub(super) first_op: Option<OpId>,
    /// The id of the first tensor between the ops; `None` for one that follows all of the graph and of these
    /// options.
    pub(super) first_tensor: Option<TensorId>,
}

/// The ids that [`Graph::attention`] has used.
///
/// ```
/// use sterna::{Attention, DataType, Graph, LogicalTensor};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 128, 64]);
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).ids_from(10, 100);
/// let ids = Graph::new().attention(&attention)?;
/// assert!(ids.ops.start == 10 && ids.tensors.start == 100);
/// assert!(ids.tensors.contains(&ids.probabilities));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttentionIds {
    /// The ops, in a run order, from the first to behind the last.
    pub ops: Range<OpId>,
    /// The tensors between the ops, from the first to behind the last.
    pub tensors: Range<TensorId>,
    /// The products of queries and keys, as `MatMul` gives them.
    pub scores: TensorId,
    /// The scores that `SoftMax` takes.
    pub masked_scores: TensorId,
    /// The result of `SoftMax`.
    pub probabilities: TensorId,
}

impl Attention {
    /// Plain attention: the factor 1/√d, no mask, scores of f32, and 0 for a query that sees no key.
    #[must_use]
    pub fn new(q: LogicalTensor, k: LogicalTensor, v: LogicalTensor, dst: LogicalTensor) -> Self {
        Self {
            q,
            k,
            v,
            dst,
            k_scales: None,
            v_scales: None,
            k_transposed: false,
            scale: None,
            softcap: None,
            bias: None,
            sinks: None,
            mask: None,
            positions: PositionOptions::default(),
            groups: None,
            nan_without_keys: false,
            score_type: DataType::F32,
            stats: None,
            first_op: None,
            first_tensor: None,
        }
    }

    /// Says whether `k` has dims [.., d, keys].
    #[must_use]
    pub fn k_transposed(self, k_transposed: bool) -> Self {
        Self { k_transposed, ..self }
    }

    /// Says that keys are integers of 8 or 4 bits, s8, u8, s4 or u4: a key is its integer less the zero
    /// point, if there are any, times the scale.
    ///
    /// Scales, f32 or of the type of `q`, and zero points, s8, u8, s4, u4 or s32, have the dims of `k`, and a
    /// number of groups in place of d: each key has a scale for each group of its neighbouring elements, 1
    /// for all of them. With [`paged`](Self::paged) they lie in pages of their own, [pages, heads, rows of a
    /// page, groups], to which the same table leads: a `PagedLoad` gives those of all rows of the sequences,
    /// while the integers are read where they lie. No copy of keys is made; a row of 4-bit integers has an
    /// even number of them and begins with a byte.
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor, Policy};
    /// let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims);
    /// let heads = |id| tensor(id, DataType::F32, &[32, 16, 1, 128]);
    /// // A scale and a zero point for 32 elements.
    /// let cache = |id| tensor(id, DataType::U4, &[1000, 4, 16, 128]);
    /// let scales = |id| tensor(id, DataType::F32, &[1000, 4, 16, 4]);
    /// let zeros = |id| tensor(id, DataType::U8, &[1000, 4, 16, 4]);
    /// let (table, lengths) = (tensor(4, DataType::S32, &[32, 64])?, tensor(5, DataType::S32, &[32])?);
    /// let attention = Attention::new(heads(0)?, cache(1)?, cache(2)?, heads(3)?)
    ///     .quantized_keys(scales(6)?, zeros(7)?)
    ///     .quantized_values(scales(8)?, zeros(9)?)
    ///     .paged(table, lengths)
    ///     .causal(Causal::BottomRight)
    ///     .groups(4);
    /// let mut graph = Graph::new();
    /// graph.attention(&attention)?;
    /// graph.finalize()?;
    /// // The loads of scales and of zero points, and attention.
    /// let partitions = graph.partitions(Policy::Fusion)?;
    /// assert!(partitions.len() == 5 && partitions.iter().all(|partition| partition.is_supported()));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn quantized_keys(
        self,
        scales: LogicalTensor,
        zero_points: impl Into<Option<LogicalTensor>>,
    ) -> Self {
        Self { k_scales: Some(TokenScales { scales, zero_points: zero_points.into() }), ..self }
    }

    /// Says of values what [`quantized_keys`](Self::quantized_keys) says of keys.
    ///
    /// ```
    /// use sterna::{Attention, DataType, Graph, LogicalTensor, Policy};
    /// let tensor = |id, t, dims: &[i64]| LogicalTensor::strided(id, t, dims);
    /// let queries = |id| tensor(id, DataType::Bf16, &[8, 1, 64]);
    /// let attention = Attention::new(
    ///     queries(0)?,
    ///     tensor(1, DataType::S8, &[8, 900, 64])?,
    ///     tensor(2, DataType::S8, &[8, 900, 64])?,
    ///     queries(3)?,
    /// )
    /// .quantized_keys(tensor(4, DataType::F32, &[8, 900, 1])?, None)
    /// .quantized_values(tensor(5, DataType::F32, &[8, 900, 1])?, None);
    /// let mut graph = Graph::new();
    /// graph.attention(&attention)?;
    /// graph.finalize()?;
    /// assert_eq!(graph.partitions(Policy::Fusion)?.len(), 1);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn quantized_values(
        self,
        scales: LogicalTensor,
        zero_points: impl Into<Option<LogicalTensor>>,
    ) -> Self {
        Self { v_scales: Some(TokenScales { scales, zero_points: zero_points.into() }), ..self }
    }

    /// Sets the factor of the scores; `None` for 1/√d.
    #[must_use]
    pub fn scale(self, scale: impl Into<Option<f32>>) -> Self {
        Self { scale: scale.into(), ..self }
    }

    /// Caps the scaled scores: they become `softcap · tanh(score / softcap)`.
    #[must_use]
    pub fn softcap(self, softcap: impl Into<Option<f32>>) -> Self {
        Self { softcap: softcap.into(), ..self }
    }

    /// Adds a tensor of numbers to the scaled and capped scores; −∞ leaves a key out.
    #[must_use]
    pub fn bias(self, bias: impl Into<Option<LogicalTensor>>) -> Self {
        Self { bias: bias.into(), ..self }
    }

    /// Gives each query a score that belongs to no key, as gpt-oss does: it takes a share of the weights, and
    /// no value is weighed by it. No option masks or scales it.
    ///
    /// Sinks are f32, bf16 or f16. They broadcast to [.., queries, 1]: [heads, 1, 1] has a number for each
    /// head, a sink of 0 adds 1 to the sum of the exponentials, and one of −∞ is none. `stats` count them.
    /// The batch dims of `q` are those of the scores.
    ///
    /// ```
    /// use sterna::{Attention, DataType, Graph, LogicalTensor, Policy};
    /// let heads = |id| LogicalTensor::strided(id, DataType::F32, &[2, 8, 128, 64]);
    /// let sinks = LogicalTensor::strided(4, DataType::F32, &[8, 1, 1])?;
    /// let attention = Attention::new(heads(0)?, heads(1)?, heads(2)?, heads(3)?).sinks(sinks);
    /// let mut graph = Graph::new();
    /// graph.attention(&attention)?;
    /// graph.finalize()?;
    /// assert_eq!(graph.partitions(Policy::Fusion)?.len(), 1);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn sinks(self, sinks: impl Into<Option<LogicalTensor>>) -> Self {
        Self { sinks: sinks.into(), ..self }
    }

    /// Leaves keys out by a tensor of booleans, which broadcasts to the scores.
    #[must_use]
    pub fn mask(self, mask: impl Into<Option<LogicalTensor>>, says: MaskTrue) -> Self {
        Self { mask: mask.into().map(|mask| (mask, says)), ..self }
    }

    /// Leaves out the keys behind a query's own position.
    #[must_use]
    pub fn causal(self, causal: impl Into<Option<Causal>>) -> Self {
        Self { positions: PositionOptions { causal: causal.into(), ..self.positions }, ..self }
    }

    /// Leaves out keys that are `window` or more positions before the query, a number from 1 to 2²⁴; unless
    /// the mask is causal, those as far behind it too.
    #[must_use]
    pub fn window(self, window: impl Into<Option<i64>>) -> Self {
        Self { positions: PositionOptions { window: window.into(), ..self.positions }, ..self }
    }

    /// Says that queries and keys are those of many sequences, which follow each other without padding, as in
    /// flash-attention's functions of variable length.
    ///
    /// Both tensors are s32 and of dims [sequences + 1]: the number of queries, or of keys, in front of each
    /// sequence, and of all. A query sees keys of its own sequence alone. [`Causal`] and
    /// [`window`](Self::window) count from the start of each sequence, or from its end with
    /// [`Causal::BottomRight`]; an [offset](Causal::Offset) is refused. A sequence may be empty on either
    /// side. Queries without a key, those behind the last sequence among them, get 0.
    ///
    /// QueriesAndKeys in memory as [tokens, heads, d] have the dims [heads, tokens, d] and the strides [d,
    /// heads · d, 1]. Ops that take a time in proportion to the tokens find the keys of each query, as
    /// partitions of their own; no table has an element for each pair of a query and a key. A number of
    /// queries in front of which sequences begin that is negative or above the number of queries is an error
    /// of the execution.
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor, Policy};
    /// let tokens = |id| LogicalTensor::with_strides(id, DataType::F32, &[8, 1000, 64], &[64, 8 * 64, 1]);
    /// let starts = |id| LogicalTensor::strided(id, DataType::S32, &[33]);
    /// let attention = Attention::new(tokens(0)?, tokens(1)?, tokens(2)?, tokens(3)?)
    ///     .packed(starts(4)?, starts(5)?)
    ///     .causal(Causal::TopLeft);
    /// let mut graph = Graph::new();
    /// let ids = graph.attention(&attention)?;
    /// graph.finalize()?;
    /// let partitions = graph.partitions(Policy::Fusion)?;
    /// assert!(partitions.iter().all(|partition| partition.is_supported()));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn packed(self, cu_seqlens_q: LogicalTensor, cu_seqlens_kv: LogicalTensor) -> Self {
        let packed = Some(PackedSequences { queries: cu_seqlens_q, keys: Some(cu_seqlens_kv) });
        Self { positions: PositionOptions { packed, ..self.positions }, ..self }
    }

    /// Says that the queries of many sequences follow each other without padding, as with
    /// [`packed`](Self::packed), while their keys are [in pages](Self::paged): sequences whose prompts are
    /// read and sequences that write a token are one call.
    ///
    /// `cu_seqlens_q` is s32 and of dims [sequences + 1]. Queries have dims [1, heads, queries, d], and there
    /// are as many sequences as rows of the table. The graph knows the heads, the rows of a page and the
    /// elements of a row. All else is as for both options: the queries of a sequence are its last ones with
    /// [`Causal::BottomRight`].
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor};
    /// let tokens = |id| LogicalTensor::strided(id, DataType::F32, &[1, 16, 300, 128]);
    /// let cache = |id| LogicalTensor::strided(id, DataType::F32, &[1000, 4, 16, 128]);
    /// let table = LogicalTensor::strided(4, DataType::S32, &[32, 64])?;
    /// let lengths = LogicalTensor::strided(5, DataType::S32, &[32])?;
    /// let starts = LogicalTensor::strided(6, DataType::S32, &[33])?;
    /// let attention = Attention::new(tokens(0)?, cache(1)?, cache(2)?, tokens(3)?)
    ///     .packed_queries(starts)
    ///     .paged(table, lengths)
    ///     .causal(Causal::BottomRight)
    ///     .groups(4);
    /// assert!(Graph::new().attention(&attention).is_ok());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn packed_queries(self, cu_seqlens_q: LogicalTensor) -> Self {
        let packed = Some(PackedSequences { queries: cu_seqlens_q, keys: None });
        Self { positions: PositionOptions { packed, ..self.positions }, ..self }
    }

    /// Says that keys and values are rows of a cache in pages, which sequences of different lengths share, as
    /// in vLLM, FlashInfer and cuDNN: no partition copies what it reads of the cache.
    ///
    /// Queries have dims [batch, heads, queries, d], and `k` and `v` are the whole cache: [pages, heads, rows
    /// of a page, d]. A cache in memory as [pages, rows of a page, heads, d] has the same dims and the
    /// strides [rows · heads · d, d, heads · d, 1]. `block_table`, s32 or s64 of dims [batch, pages of each
    /// sequence], has the pages of each sequence in order, and `lengths`, s32 of dims `[batch]`, the number
    /// of its keys. A query sees the keys of its own sequence alone, and none behind its length, whatever the
    /// cache holds there. An entry of the table behind the length is not read; a page or a length out of
    /// range is an error of the execution.
    ///
    /// With [`Causal::BottomRight`] the queries of a sequence are its last ones: its last query sees all of
    /// its keys. [`CacheStore`](OpKind::CacheStore) writes keys and values of new tokens to the cache before.
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor, Policy};
    /// let q = LogicalTensor::strided(0, DataType::F32, &[32, 16, 1, 128])?;
    /// let rows_first = [16 * 4 * 128, 128, 4 * 128, 1];
    /// let cache = |id| LogicalTensor::with_strides(id, DataType::F32, &[1000, 4, 16, 128], &rows_first);
    /// let table = LogicalTensor::strided(4, DataType::S32, &[32, 64])?;
    /// let lengths = LogicalTensor::strided(5, DataType::S32, &[32])?;
    /// let dst = LogicalTensor::strided(3, DataType::F32, &[32, 16, 1, 128])?;
    /// let attention = Attention::new(q, cache(1)?, cache(2)?, dst)
    ///     .paged(table, lengths)
    ///     .causal(Causal::BottomRight)
    ///     .groups(4);
    /// let mut graph = Graph::new();
    /// graph.attention(&attention)?;
    /// graph.finalize()?;
    /// let partitions = graph.partitions(Policy::Fusion)?;
    /// assert!(partitions.len() == 1 && partitions[0].is_supported());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn paged(self, block_table: LogicalTensor, lengths: LogicalTensor) -> Self {
        let paged = Some(PagedSequences { block_table, lengths });
        Self { positions: PositionOptions { paged, ..self.positions }, ..self }
    }

    /// Takes off each score the distance of its key times a slope, as in ALiBi: slope · |i + offset − j| of
    /// query `i` and key `j`, with the offset of [`causal`](Self::causal), or 0.
    ///
    /// Slopes are f32 and broadcast to the scores: [heads, 1, 1] has one for each head.
    ///
    /// ```
    /// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor};
    /// let head = |id| LogicalTensor::strided(id, DataType::F32, &[2, 8, 128, 64]);
    /// let slopes = LogicalTensor::strided(4, DataType::F32, &[8, 1, 1])?;
    /// let attention =
    ///     Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).causal(Causal::TopLeft).alibi(slopes);
    /// assert!(Graph::new().attention(&attention).is_ok());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn alibi(self, slopes: impl Into<Option<LogicalTensor>>) -> Self {
        Self { positions: PositionOptions { alibi: slopes.into(), ..self.positions }, ..self }
    }

    /// Lets this number of heads of queries share each head of keys and values.
    ///
    /// Tensors of rank 5 have them as a dim: `q` is [batch, key heads, groups, queries, d], `k` is
    /// [batch, key heads, 1, keys, d]. Tensors of rank 4, [batch, heads, .., d], are reshaped by ops of the
    /// graph; to describe them with rank 5 is cheaper, because the same memory has both shapes.
    #[must_use]
    pub fn groups(self, groups: impl Into<Option<i64>>) -> Self {
        Self { groups: groups.into(), ..self }
    }

    /// Gives a query all of whose keys are left out NaN, as the formula does, or else 0. One that has no keys
    /// to leave out gets 0 either way.
    #[must_use]
    pub fn nan_without_keys(self, nan_without_keys: bool) -> Self {
        Self { nan_without_keys, ..self }
    }

    /// Sets the type of the scores: f32, or the type of `q`.
    #[must_use]
    pub fn score_type(self, score_type: DataType) -> Self {
        Self { score_type, ..self }
    }

    /// Hands out maximum + ln(sum) of each query's scores, as training needs it: f32, with dims
    /// [.., queries, 1].
    #[must_use]
    pub fn stats(self, stats: impl Into<Option<LogicalTensor>>) -> Self {
        Self { stats: stats.into(), ..self }
    }

    /// Sets the ids of the first op and of the first tensor between the ops, which else follow all of the
    /// graph.
    #[must_use]
    pub fn ids_from(self, first_op: impl Into<OpId>, first_tensor: impl Into<TensorId>) -> Self {
        Self { first_op: Some(first_op.into()), first_tensor: Some(first_tensor.into()), ..self }
    }

    /// The keys and the values.
    fn stored(&self) -> [StoredTokens<'_>; 2] {
        [
            StoredTokens { option: OF_KEYS, tokens: &self.k, scales: self.k_scales.as_ref() },
            StoredTokens { option: OF_VALUES, tokens: &self.v, scales: self.v_scales.as_ref() },
        ]
    }

    /// The tensors of the caller.
    fn tensors(&self) -> impl Iterator<Item = &LogicalTensor> {
        let mask = self.mask.as_ref().map(|(mask, _)| mask);
        let optional =
            [self.bias.as_ref(), self.sinks.as_ref(), mask, self.stats.as_ref()].into_iter().flatten();
        let scales = [&self.k_scales, &self.v_scales].into_iter().flatten().flat_map(TokenScales::tensors);
        let operands = [&self.q, &self.k, &self.v, &self.dst].into_iter();
        operands.chain(optional).chain(scales).chain(self.positions.tensors())
    }
}

impl Graph {
    /// Adds the ops of masked attention: `PagedLoad` of keys and values in pages, `DynamicDequantize` of
    /// those in integers, `MatMul` of queries and keys, `Multiply` by the scale, `Tanh` for a cap, `Add` of a
    /// bias, `Subtract` of slopes times distances, `Select` by a condition over `GenIndex` and by a boolean
    /// mask, `Concat` of sinks, `SoftMax`, `Slice` of the weights of keys, and `MatMul` with the values. They
    /// are ops like any other: `finalize` links them, and partitioning makes of them what it makes of a graph
    /// that a framework hands over. Constants are `Fill` ops.
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
        let after = |largest: Option<usize>| largest.map_or(0, |id| id.saturating_add(1));
        let mentioned = self.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
        let taken: FxHashSet<TensorId> =
            mentioned.chain(options.tensors()).chain(more.iter().copied()).map(LogicalTensor::id).collect();
        let first_op =
            options.first_op.unwrap_or_else(|| after(self.ops().iter().map(|op| op.id().get()).max()).into());
        let after_all = || after(taken.iter().map(|id| id.get()).max());
        let first_tensor = options.first_tensor.map_or_else(after_all, TensorId::get);

        let heads = Heads::of(options.groups, [&options.q, &options.k, &options.v])?;
        let mut sequence = OpSequence { ops: Vec::new(), first_op, next_tensor: first_tensor };
        let [scores, masked_scores, probabilities] = make(&mut sequence, heads)?;
        let tensors = first_tensor..sequence.next_tensor;
        let Some(end) = first_op.get().checked_add(sequence.ops.len()).filter(|_| tensors.end < usize::MAX)
        else {
            return Err(value("ids_from", format!("{first_op}, {first_tensor}"), "the ids leave usize"));
        };
        if let Some(taken) = tensors.clone().map(TensorId::new).find(|id| taken.contains(id)) {
            return Err(AttentionFault::TensorTaken { first: first_tensor.into(), taken }.into());
        }
        for op in &mut sequence.ops {
            verify::verify(op)?;
            if self.ops().iter().any(|other| other.id() == op.id()) {
                return Err(GraphFault::DuplicateOp(op.op_ref()).into());
            }
        }
        sequence.ops.into_iter().try_for_each(|op| self.add_op(op))?;
        let (ops, tensors) = (first_op..end.into(), tensors.start.into()..tensors.end.into());
        Ok(AttentionIds { ops, tensors, scores, masked_scores, probabilities })
    }
}

impl OpSequence {
    /// Adds all ops; answers with the ids of scores, masked scores and probabilities.
    fn attention(&mut self, options: &Attention, heads: Option<Heads>) -> Result<[TensorId; 3]> {
        check(options)?;
        let data_type = options.q.data_type();
        let score_type = options.score_type;
        let mut q = options.q.clone();
        let paged = options.positions.paged.as_ref();
        let [keys, values] = options.stored();
        let mut k = self.dequantized(keys, paged, data_type)?;
        let mut v = self.dequantized(values, paged, data_type)?;
        if paged.is_some() && options.positions.packed.is_some() {
            k = self.in_order("keys_in_order", k)?;
            v = self.in_order("values_in_order", v)?;
        }
        let front = batch([&q, &k, &v]);
        if let Some(Heads { of_keys, groups, .. }) = heads {
            q = self.regrouped(&q, "q", [of_keys, groups])?;
            k = self.regrouped(&k, "k", [of_keys, 1])?;
            v = self.regrouped(&v, "v", [of_keys, 1])?;
        }
        let raw = self.next(score_type);
        let product = self.op(OpKind::MatMul, "scores").attr(Attr::TransposeB, !options.k_transposed);
        self.ops.push(product.inputs_from([q.clone(), k]).output(raw.clone()));

        let scores = self.scaled(options, raw.clone())?;
        let mut scores = self.biased_and_masked(options, heads, scores)?;
        if let Some(sinks) = &options.sinks {
            scores = self.with_sinks(sinks, heads, q, scores)?;
        }

        let probabilities = self.next(data_type);
        let mode = if options.nan_without_keys { "none" } else { "inf_as_zero" };
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
        let weights = match options.sinks {
            Some(_) => self.without_sinks(probabilities.clone()),
            None => probabilities.clone(),
        };
        let product = self.op(OpKind::MatMul, "output");
        self.ops.push(product.inputs_from([weights, v]).output(result.clone()));
        if let Some(Heads { of_queries, .. }) = heads {
            let (rows, d) = (from_end(&options.q, 2), from_end(&options.v, 1));
            let joined = |d| HeadDims {
                front: Some(front),
                heads: vec![of_queries],
                last: [rows, d],
                open: Open::Rows,
            };
            self.reshape("heads", result, joined(d), options.dst.clone())?;
            if let (Some(stats), Some(grouped)) = (&options.stats, grouped_stats) {
                self.reshape("stats", grouped, joined(Some(1)), stats.clone())?;
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

    /// The additions to the scores, and the Selects.
    pub(super) fn biased_and_masked(
        &mut self,
        options: &Attention,
        heads: Option<Heads>,
        mut scores: LogicalTensor,
    ) -> Result<LogicalTensor> {
        if let Some(bias) = &options.bias {
            let bias = self.mask_of_heads(bias, "bias", heads)?;
            scores = self.pair(OpKind::Add, "bias", scores, bias, options.score_type);
        }
        let tokens = QueriesAndKeys { q: &options.q, k: &options.k, k_transposed: options.k_transposed };
        let positions = self.positions(&options.positions, tokens, heads, &scores)?;
        let scores = self.with_slopes(&options.positions, heads, positions.as_ref(), scores)?;
        self.masked(options, heads, positions.as_ref(), scores)
    }

    /// The Selects.
    fn masked(
        &mut self,
        options: &Attention,
        heads: Option<Heads>,
        positions: Option<&MaskPositions>,
        mut scores: LogicalTensor,
    ) -> Result<LogicalTensor> {
        let by_position = self.by_position(&options.positions, positions)?;
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
    let [keys, values] = options.stored();
    keys.check(data_type, "keys have the type of `q`")?;
    values.check(data_type, "values have the type of `q`")?;
    if keys.scales.is_some() && options.k_transposed {
        return Err(value("k_transposed", true, "keys with scales lie as rows"));
    }
    of_type("dst", &options.dst, &[data_type, DataType::F32], "the result is f32 or of the type of `q`")?;
    if let Some(sinks) = &options.sinks {
        check_sinks(sinks, &options.q)?;
    }
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
    if let Some(paged) = &options.positions.paged {
        check_rows(options.k_transposed)?;
        paged.check_operands(&options.q, [&options.k, &options.v])?;
    }
    options.positions.check()
}
