//! The conditions of masks over positions of queries and keys as ordinary ops: causal masks, windows, and
//! sequences that follow each other; the meaning of boolean masks; and the slopes of ALiBi.

use super::attention_heads::Heads;
use super::attention_pages::{MAX_EXACT, PagedSequences};
use super::logical_tensor::LogicalTensor;
use super::op_sequence::{OpSequence, from_end, unknown, value};
use crate::error::{AttentionFault, Result};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType::S32;

/// Where the diagonal of a causal mask lies: query `i` sees key `j` if `j <= i + offset`.
///
/// ```
/// use sterna::{Attention, Causal, DataType, Graph, LogicalTensor};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 128, 64]);
/// let cached = LogicalTensor::strided(4, DataType::S32, &[])?;
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).causal(Causal::Offset(cached));
/// assert!(Graph::new().attention(&attention).is_ok());
/// # Ok::<(), sterna::Error>(())
/// ```
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

/// The meaning of `true` in a boolean mask for its pair of a query and a key.
///
/// ```
/// use sterna::{Attention, DataType, Graph, LogicalTensor, MaskTrue};
/// let head = |id| LogicalTensor::strided(id, DataType::F32, &[8, 128, 64]);
/// let padding = LogicalTensor::strided(4, DataType::Boolean, &[1, 1, 128])?;
/// let attention = Attention::new(head(0)?, head(1)?, head(2)?, head(3)?).mask(padding, MaskTrue::Masks);
/// assert!(Graph::new().attention(&attention).is_ok());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaskTrue {
    /// The key takes part, as in torch's `attn_mask`.
    Keeps,
    /// The key is left out, as in torch's `key_padding_mask`.
    Masks,
}

/// The options of attention about positions of queries and keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct PositionOptions {
    /// The alignment if a query sees only keys up to its own position.
    pub(super) causal: Option<Causal>,
    /// The number of positions, its own included, that a query sees back, and ahead unless it is causal.
    pub(super) window: Option<i64>,
    pub(super) packed: Option<PackedSequences>,
    pub(super) paged: Option<PagedSequences>,
    /// The slopes by which the score of a key falls with its distance.
    pub(super) alibi: Option<LogicalTensor>,
}

/// Sequences that follow each other along the queries and along the keys: the places in front of which they
/// begin, and the place behind the last one. Keys in pages follow each other as their table says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PackedSequences {
    pub(super) queries: LogicalTensor,
    pub(super) keys: Option<LogicalTensor>,
}

/// The queries and keys of attention.
#[derive(Clone, Copy)]
pub(super) struct QueriesAndKeys<'a> {
    pub(super) q: &'a LogicalTensor,
    pub(super) k: &'a LogicalTensor,
    /// True if the keys have dims [.., d, keys].
    pub(super) k_transposed: bool,
}

/// MaskPositions of queries and keys, which broadcast to the scores.
pub(super) struct MaskPositions {
    /// Of each query: the position of the key that is its own, if an option asks for it.
    query: Option<LogicalTensor>,
    /// Of each key.
    key: LogicalTensor,
    /// Of each query of packed sequences: the first key of its sequence, and the one behind the last.
    sequence: Option<[LogicalTensor; 2]>,
    /// Of each sequence in pages: the number of its keys, if queries may see keys behind them.
    end: Option<LogicalTensor>,
}

impl PositionOptions {
    /// The tensors of the caller.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &LogicalTensor> {
        let offset = match &self.causal {
            Some(Causal::Offset(offset)) => Some(offset),
            _ => None,
        };
        let packed =
            self.packed.iter().flat_map(|PackedSequences { queries, keys }| [Some(queries), keys.as_ref()]);
        let paged =
            self.paged.iter().flat_map(|PagedSequences { block_table, lengths }| [block_table, lengths]);
        offset.into_iter().chain(packed.flatten()).chain(paged).chain(&self.alibi)
    }

    fn is_empty(&self) -> bool {
        let Self { causal, window, packed, paged, alibi } = self;
        causal.is_none() && window.is_none() && packed.is_none() && paged.is_none() && alibi.is_none()
    }

    /// True if an option asks where queries are among the keys.
    fn places_queries(&self) -> bool {
        self.causal.is_some() || self.window.is_some() || self.alibi.is_some()
    }

    /// Refuses values, types and shapes that no mask can be made of.
    pub(super) fn check(&self) -> Result<()> {
        let of_type = |option, tensor: &LogicalTensor, allowed, rule| {
            let given = tensor.data_type();
            match given == allowed {
                true => Ok(()),
                false => Err(AttentionFault::Type { option, tensor: tensor.id(), given, rule }),
            }
        };
        if let Some(Causal::Offset(offset)) = &self.causal {
            of_type("causal", offset, S32, "an offset is s32, as indices are")?;
        }
        if let Some(window) = self.window.filter(|window| !(1..=MAX_EXACT).contains(window)) {
            return Err(value("window", window, "it is 1 to 16777216 keys"));
        }
        if let Some(slopes) = &self.alibi {
            of_type("alibi", slopes, DataType::F32, "slopes are f32")?;
        }
        if let Some(paged) = &self.paged {
            paged.check()?;
        }
        let Some(PackedSequences { queries, keys }) = &self.packed else { return Ok(()) };
        match (keys, &self.paged) {
            (Some(_), Some(paged)) => {
                let rule = "the keys of packed queries are in pages, or packed themselves";
                return Err(value("paged", paged.lengths.id(), rule));
            }
            (None, None) => {
                let rule = "queries alone are packed if keys lie in pages";
                return Err(value("packed_queries", queries.id(), rule));
            }
            _ => {}
        }
        for tensor in [queries].into_iter().chain(keys) {
            of_type("packed", tensor, S32, "the places of sequences are s32")?;
            if tensor.rank().is_some_and(|rank| rank != 1) || from_end(tensor, 1) == Some(0) {
                let (option, given) = ("packed", tensor.partial_dims().unwrap_or_default());
                let rule = "places have rank 1: one for each sequence, and one behind the last";
                return Err(AttentionFault::Shape { option, tensor: tensor.id(), given, rule }.into());
            }
        }
        match &self.causal {
            Some(Causal::Offset(offset)) => {
                let rule = "packed sequences are aligned at their starts or at their ends";
                Err(value("causal", offset.id(), rule))
            }
            _ => Ok(()),
        }
    }
}

impl OpSequence {
    /// The positions of queries and keys, if an option asks for them.
    pub(super) fn positions(
        &mut self,
        options: &PositionOptions,
        tokens: QueriesAndKeys<'_>,
        heads: Option<Heads>,
        scores: &LogicalTensor,
    ) -> Result<Option<MaskPositions>> {
        if options.is_empty() {
            return Ok(None);
        }
        if let Some(packed) = &options.packed {
            return self.packed_positions(options, packed, tokens, scores).map(Some);
        }
        let query = options.places_queries().then(|| self.index("query", scores, -2));
        let key = self.index("key", scores, -1);
        let lengths = options.paged.as_ref().map(|paged| self.lengths(paged, heads));
        let offset = match (&options.causal, &lengths) {
            (None | Some(Causal::TopLeft), _) => None,
            (Some(Causal::Offset(offset)), _) => Some(self.mask_of_heads(offset, "causal", heads)?),
            (Some(Causal::BottomRight), None) => Some(self.constant("offset", S32, bottom_right(tokens)?)?),
            (Some(Causal::BottomRight), Some(lengths)) => {
                let queries = from_end(tokens.q, 2);
                let queries = queries.ok_or_else(|| unknown("causal", "the number of queries", tokens.q))?;
                let queries = self.constant("queries", S32, exact(queries)?)?;
                Some(self.pair(OpKind::Subtract, "offset", lengths.clone(), queries, S32))
            }
        };
        let query = match (query, offset) {
            (Some(query), Some(offset)) => Some(self.pair(OpKind::Add, "position", query, offset, S32)),
            (query, _) => query,
        };
        // The last query of a sequence sees its last key.
        let end = lengths.filter(|_| options.causal != Some(Causal::BottomRight));
        Ok(Some(MaskPositions { query, key, sequence: None, end }))
    }

    /// The condition over the positions of queries and keys.
    pub(super) fn by_position(
        &mut self,
        options: &PositionOptions,
        positions: Option<&MaskPositions>,
    ) -> Result<Option<LogicalTensor>> {
        let Some(MaskPositions { query, key, sequence, end }) = positions else { return Ok(None) };
        if let Some(bounds) = sequence {
            return self.in_sequence(options, query.as_ref(), key, bounds.clone()).map(Some);
        }
        let near = match query {
            Some(query) => self.near(options, query, key)?,
            None => None,
        };
        let Some(end) = end else { return Ok(near) };
        let is_there = self.pair(OpKind::Less, "before_end", key.clone(), end.clone(), DataType::Boolean);
        Ok(Some(match near {
            Some(near) => self.pair(OpKind::LogicalAnd, "near_and_there", near, is_there, DataType::Boolean),
            None => is_there,
        }))
    }

    /// The condition of a causal mask and of a window.
    fn near(
        &mut self,
        options: &PositionOptions,
        query: &LogicalTensor,
        key: &LogicalTensor,
    ) -> Result<Option<LogicalTensor>> {
        let causal = options.causal.is_some().then(|| {
            self.pair(OpKind::GreaterEqual, "causal", query.clone(), key.clone(), DataType::Boolean)
        });
        let Some(window) = options.window else { return Ok(causal) };
        let mut distance = self.pair(OpKind::Subtract, "distance", query.clone(), key.clone(), S32);
        if causal.is_none() {
            distance = self.unary(OpKind::Abs, "both_ways", distance, S32);
        }
        let window = self.constant("window_size", S32, window as f32)?;
        let near = self.pair(OpKind::Less, "window", distance, window, DataType::Boolean);
        Ok(Some(match causal {
            Some(causal) => self.pair(OpKind::LogicalAnd, "near_and_causal", causal, near, DataType::Boolean),
            None => near,
        }))
    }

    /// The condition that a key lies within the bounds of its query's sequence, of a causal mask and of a
    /// window. All but the last comparisons are of one number for each query.
    fn in_sequence(
        &mut self,
        options: &PositionOptions,
        query: Option<&LogicalTensor>,
        key: &LogicalTensor,
        [mut first, mut end]: [LogicalTensor; 2],
    ) -> Result<LogicalTensor> {
        let reach = match (options.causal.is_some(), options.window) {
            (true, _) => Some(1),
            (false, window) => window,
        };
        if let (Some(reach), Some(query)) = (reach, query) {
            let reach = self.constant("reach", S32, reach as f32)?;
            let limit = self.pair(OpKind::Add, "limit", query.clone(), reach, S32);
            end = self.pair(OpKind::Minimum, "end", end, limit, S32);
        }
        if let (Some(window), Some(query)) = (options.window, query) {
            let back = self.constant("back", S32, (window - 1) as f32)?;
            let farthest = self.pair(OpKind::Subtract, "farthest", query.clone(), back, S32);
            first = self.pair(OpKind::Maximum, "first", first, farthest, S32);
        }
        let behind = self.pair(OpKind::GreaterEqual, "from_first", key.clone(), first, DataType::Boolean);
        let before = self.pair(OpKind::Less, "before_end", key.clone(), end, DataType::Boolean);
        Ok(self.pair(OpKind::LogicalAnd, "in_sequence", behind, before, DataType::Boolean))
    }

    /// The slopes of ALiBi times the distances of keys, taken off the scores.
    pub(super) fn with_slopes(
        &mut self,
        options: &PositionOptions,
        heads: Option<Heads>,
        positions: Option<&MaskPositions>,
        scores: LogicalTensor,
    ) -> Result<LogicalTensor> {
        let (Some(slopes), Some(MaskPositions { query: Some(query), key, .. })) = (&options.alibi, positions)
        else {
            return Ok(scores);
        };
        let slopes = self.mask_of_heads(slopes, "alibi", heads)?;
        let way = self.pair(OpKind::Subtract, "way", query.clone(), key.clone(), S32);
        let distance = self.unary(OpKind::Abs, "distance", way, S32);
        let distance = self.unary(OpKind::Cast, "distance_as_number", distance, DataType::F32);
        let bias = self.pair(OpKind::Multiply, "alibi", distance, slopes, DataType::F32);
        let t = scores.data_type();
        Ok(self.pair(OpKind::Subtract, "with_alibi", scores, bias, t))
    }

    /// The positions of queries and keys of sequences that follow each other. A query is looked up in a table
    /// of three numbers for each sequence: its first key, the key behind its last one, and the way from a
    /// query to its own key. A row without keys follows those of the sequences, for queries of none.
    fn packed_positions(
        &mut self,
        options: &PositionOptions,
        PackedSequences { queries, keys }: &PackedSequences,
        tokens: QueriesAndKeys<'_>,
        scores: &LogicalTensor,
    ) -> Result<MaskPositions> {
        let place = self.places_of_queries(tokens.q)?;
        let sequence = self.sequences_of_queries(place.clone(), queries)?;
        let [first_key, end_key] = match (keys, &options.paged) {
            (None, Some(paged)) => self.keys_of_pages(paged, tokens.k)?,
            (None, None) => [self.starts_of(queries), self.ends_of(queries)],
            (Some(keys), _) => [self.starts_of(keys), self.ends_of(keys)],
        };
        let way = options.places_queries().then(|| {
            let (of_keys, of_queries) = match options.causal {
                Some(Causal::BottomRight) => (&end_key, self.ends_of(queries)),
                _ => (&first_key, self.starts_of(queries)),
            };
            self.pair(OpKind::Subtract, "way", of_keys.clone(), of_queries, S32)
        });
        let is_placed = way.is_some();
        let table = match way {
            Some(way) => self.joined("sequences", 1, [first_key, end_key, way]),
            None => self.joined("sequences", 1, [first_key, end_key]),
        };
        let rows = self.next(S32);
        let gather = self.op(OpKind::Gather, "sequence_of_query");
        self.ops.push(gather.inputs_from([table, sequence]).output(rows.clone()));
        let mut column = |name, at| self.part(name, rows.clone(), 1, [at, at + 1]);
        let (first, end) = (column("first", 0), column("end", 1));
        let way = is_placed.then(|| column("way", 2));
        let query = way.map(|way| {
            let place = self.reshaped("place_in_column", place, &[-1, 1]);
            self.pair(OpKind::Add, "own_key", place, way, S32)
        });
        let key = self.index("key", scores, -1);
        Ok(MaskPositions { query, key, sequence: Some([first, end]), end: None })
    }

    /// The place of each query along the dim of queries, in rank 1. Where the graph does not know their
    /// number, the queries tell it, which costs a copy of those that other ops move.
    fn places_of_queries(&mut self, q: &LogicalTensor) -> Result<LogicalTensor> {
        if let Some(queries) = from_end(q, 2) {
            let row = self.filled("row", S32, &[queries], 0.0)?;
            return Ok(self.index("place", &row, 0));
        }
        let rank = q.rank().ok_or_else(|| unknown("packed", "the rank of `q`", q))?;
        let mut places = self.index("places", q, -2);
        for axis in (0..rank as i64).filter(|&axis| axis != rank as i64 - 2) {
            places = self.part("places", places, axis, [0, 1]);
        }
        Ok(self.reshaped("place", places, &[-1]))
    }

    /// The number of the sequence of each query: how many begin in front of the query or with it, less one.
    /// Queries in front of the first sequence have −1, which is the last row of a table, as those behind the
    /// last sequence have.
    fn sequences_of_queries(
        &mut self,
        place: LogicalTensor,
        starts: &LogicalTensor,
    ) -> Result<LogicalTensor> {
        let none = self.pair(OpKind::Subtract, "no_starts", place.clone(), place, S32);
        // Sequences may begin, and the last one ends, behind all queries.
        let behind = self.filled("behind", S32, &[1], 0.0)?;
        let none = self.joined("starts", 0, [none, behind]);
        let zeros = self.pair(OpKind::Subtract, "zeros", starts.clone(), starts.clone(), S32);
        let one = self.constant("one", S32, 1.0)?;
        let ones = self.pair(OpKind::Add, "ones", zeros, one.clone(), S32);
        let counts = self.next(S32);
        let scatter = self.op(OpKind::ScatterElements, "starts_at").attr(Attr::Reduction, "add");
        self.ops.push(scatter.inputs_from([none, starts.clone(), ones]).output(counts.clone()));
        let sums = self.next(S32);
        let sum = self.op(OpKind::CumSum, "starts_before").attr(Attr::Axis, 0i64);
        self.ops.push(sum.input(counts).output(sums.clone()));
        let sums = self.part("starts_of_queries", sums, 0, [0, -1]);
        Ok(self.pair(OpKind::Subtract, "sequence", sums, one, S32))
    }

    /// A column of the first place of each sequence, and the last place behind all.
    fn starts_of(&mut self, places: &LogicalTensor) -> LogicalTensor {
        self.reshaped("starts", places.clone(), &[-1, 1])
    }

    /// A column of the place behind each sequence, and once more the last one.
    fn ends_of(&mut self, places: &LogicalTensor) -> LogicalTensor {
        let later = self.part("later_starts", places.clone(), 0, [1, i64::MAX]);
        let last = self.part("last_end", places.clone(), 0, [-1, i64::MAX]);
        let ends = self.joined("ends", 0, [later, last]);
        self.reshaped("ends", ends, &[-1, 1])
    }
}

/// A number of queries or keys that a constant gives exactly.
fn exact(count: i64) -> Result<f32> {
    match count.abs() <= MAX_EXACT {
        true => Ok(count as f32),
        false => Err(value("causal", count, "keys and queries differ by at most 16777216")),
    }
}

/// The number of keys less the number of queries.
fn bottom_right(QueriesAndKeys { q, k, k_transposed }: QueriesAndKeys<'_>) -> Result<f32> {
    let queries = from_end(q, 2).ok_or_else(|| unknown("causal", "the number of queries", q))?;
    let keys = from_end(k, if k_transposed { 1 } else { 2 });
    let offset = keys.ok_or_else(|| unknown("causal", "the number of keys", k))? - queries;
    exact(offset)
}
