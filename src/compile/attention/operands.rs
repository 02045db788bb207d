//! The operands of attention and of its gradients: from token to token, and along the elements of one.

use std::sync::Arc;

use smallvec::SmallVec;

use super::pages::{self, PagedOperand};
use super::shape::Shape;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::quantized_tokens::{self, QuantizedOperand};
use crate::error::Result;
use crate::plan::{
    Access, Base, LoopNest, PageTable, QuantizedTokens, ScoreBound, ScoreOperand, ScoreProgram, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::shape;

/// An operand of a product as its kernels go through it. Strides count bytes.
#[derive(PartialEq)]
pub(super) struct Tokens {
    pub(super) base: Base,
    /// The type in which the phase reads elements: f32 if the phase dequantises them.
    pub(super) data_type: DataType,
    /// Bytes to the first element.
    pub(super) offset: isize,
    /// Strides along the axes of the scores; that of the tokens themselves is `token`.
    pub(super) outer: AxisStrides,
    pub(super) token: isize,
    pub(super) element: isize,
}

impl Tokens {
    /// An operand whose rows are tokens unless it lies transposed. `scores` are the dims of the scores.
    pub(super) fn new(
        plan: &mut PlanBuilder<'_>,
        value: ValueId,
        is_transposed: bool,
        scores: &[i64],
    ) -> Result<Self> {
        let (tensor, offset) = plan.operand_view(value)?;
        let width = tensor.data_type.size().unwrap_or(1) as isize;
        Ok(Self::placed(&tensor, offset, width, is_transposed, scores))
    }

    /// The same for a tensor whose strides count elements of so many bytes.
    fn placed(
        tensor: &PlacedTensor,
        offset: isize,
        width: isize,
        is_transposed: bool,
        scores: &[i64],
    ) -> Self {
        let (rank, own) = (scores.len(), tensor.dims.len());
        let stride = |axis: usize| tensor.strides[axis] as isize * width;
        let [token_axis, element_axis] = token_axes(own, is_transposed);
        let of_batch = &tensor.dims[..own - 2];
        let batch = shape::access_strides(of_batch, &tensor.strides, &scores[..rank - 2], rank - own);
        let mut outer: AxisStrides = batch.into_iter().map(|stride| stride as isize * width).collect();
        outer.resize(rank, 0);
        Self {
            base: tensor.base,
            data_type: tensor.data_type,
            offset,
            outer,
            token: stride(token_axis),
            element: stride(element_axis),
        }
    }

    /// Keys or values, with their dequantisation if the phase can dequantise them itself, and with their
    /// tables if the phase reads them in the pages of a cache.
    fn cached(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        value: ValueId,
        is_transposed: bool,
    ) -> Result<CachedTokens> {
        let (rank, own) = (shape.dims.len(), plan.group().values[value].dims.len());
        let of_batch = |&axis: &usize| (axis < rank - 2).then(|| (axis + own).checked_sub(rank)).flatten();
        let outer: SmallVec<[Option<usize>; 6]> = shape.outer.iter().map(of_batch).chain([None]).collect();
        let axes = token_axes(own, is_transposed);
        if let Some(paged) = pages::find(plan, value, axes) {
            let quantized = quantized_tokens::find(plan, value, axes, &outer, Some(&paged.of_load()));
            let is_read = quantized.is_some() == paged.is_dequantized;
            let found = Self::of_pages(plan, shape, value, is_transposed, &paged).filter(|_| is_read);
            if let Some((tokens, tables)) = found {
                paged.add_checks(plan);
                let quantized = quantized.map(|of| Arc::new(of.tokens));
                return Ok(CachedTokens { tokens, quantized, tables: Some(tables) });
            }
        }
        pages::copy(plan, value)?;
        match quantized_tokens::find(plan, value, axes, &outer, None) {
            None => {
                let tokens = Self::new(plan, value, is_transposed, &shape.dims)?;
                Ok(CachedTokens { tokens, quantized: None, tables: None })
            }
            Some(QuantizedOperand { tensor, offset, tokens }) => {
                let stored = Self::placed(&tensor, offset, 1, is_transposed, &shape.dims);
                let stored = Self { data_type: DataType::F32, element: 4, ..stored };
                Ok(CachedTokens { tokens: stored, quantized: Some(Arc::new(tokens)), tables: None })
            }
        }
    }

    /// Keys or values in the pages of a cache: those of the first page, and the tables that lead to all.
    fn of_pages(
        plan: &PlanBuilder<'_>,
        shape: &Shape,
        value: ValueId,
        is_transposed: bool,
        paged: &PagedOperand,
    ) -> Option<(Self, PagedTables)> {
        let dims = plan.group().values[value].dims.clone();
        let along = |strides: &[i64], base: Base, data_type: DataType, width: isize| {
            let (mut first, mut strides) = paged.strides_in(plan, value, strides)?;
            // Rows of four bits begin with bytes; the stride along their elements is not read.
            if data_type.size().is_none() {
                first /= 2;
                strides.iter_mut().for_each(|stride| *stride /= 2);
            }
            let tensor = PlacedTensor { base, data_type, dims: dims.clone(), strides };
            let first = isize::try_from(first).ok()?.checked_mul(width)?;
            Some(Self::placed(&tensor, first, width, is_transposed, &shape.dims))
        };
        let width = paged.data_type.size().unwrap_or(1) as isize;
        let cached = along(&paged.strides, paged.base, paged.data_type, width)?;
        let (data_type, element) =
            if paged.is_dequantized { (DataType::F32, 4) } else { (paged.data_type, width) };
        let tokens = Self {
            data_type,
            offset: cached.offset + paged.offset,
            token: paged.table.row_stride,
            element,
            ..cached
        };
        // Tables lead along sequences that follow each other.
        let of_sequence = [i64::from(paged.table.sequences.is_none()), 0, 0, 0];
        let of_sequences = |(base, stride): (Base, isize), data_type: DataType, row_stride: isize| {
            let Self { base, offset, outer, .. } = along(&of_sequence, base, data_type, stride)?;
            Some((Access { base, offset, row_stride, col_stride: data_type.size()? as isize }, outer))
        };
        let table = paged.table;
        let entries = of_sequences(paged.entries, table.entry_type, table.entry_stride)?;
        let lengths = match paged.lengths.zip(table.length_type) {
            Some((lengths, data_type)) => Some(of_sequences(lengths, data_type, 0)?),
            None => None,
        };
        Some((tokens, PagedTables { table, entries, lengths }))
    }

    /// Queries of which those of other heads may be in a block.
    fn of_blocks(self, shape: &Shape) -> Self {
        let query_axis = shape.dims.len() - 2;
        if shape.query_axis == query_axis {
            return self;
        }
        let (token, mut outer) = (self.outer[shape.query_axis], self.outer);
        outer[query_axis] = self.token;
        Self { token, outer, ..self }
    }

    /// The memory of its tokens along some axes of the scores, for a bound of them; `None` for types that
    /// have no bounds.
    pub(super) fn bounded(
        &self,
        dims: &[i64],
        outer: impl Iterator<Item = usize>,
        [tokens, elements]: [usize; 2],
    ) -> Option<ScoreOperand> {
        let is_float = matches!(self.data_type, DataType::F32 | DataType::Bf16 | DataType::F16);
        let distinct = outer.filter(|&axis| self.outer[axis] != 0);
        is_float.then(|| ScoreOperand {
            base: self.base,
            offset: self.offset,
            data_type: self.data_type,
            outer: distinct.map(|axis| (dims[axis] as usize, self.outer[axis])).collect(),
            tokens: (tokens, self.token),
            elements: (elements, self.element),
        })
    }

    /// The access whose rows are tokens.
    pub(super) fn access(&self) -> Access {
        Access { base: self.base, offset: self.offset, row_stride: self.token, col_stride: self.element }
    }
}

/// Keys or values as a phase reads them.
struct CachedTokens {
    tokens: Tokens,
    quantized: Option<Arc<QuantizedTokens>>,
    tables: Option<PagedTables>,
}

/// The tables of keys or values in the pages of a cache: entries, and lengths if there are any, each with
/// strides along the axes of the scores.
pub(super) struct PagedTables {
    pub(super) table: PageTable,
    entries: (Access, AxisStrides),
    lengths: Option<(Access, AxisStrides)>,
}

/// The dims of an operand along tokens and along the elements of one.
pub(super) fn token_axes(rank: usize, is_transposed: bool) -> [usize; 2] {
    if is_transposed { [rank - 1, rank - 2] } else { [rank - 2, rank - 1] }
}

/// The operands of both products of attention, and the statistics.
pub(super) struct TokenOperands {
    pub(super) queries: Tokens,
    pub(super) keys: Tokens,
    pub(super) values: Tokens,
    /// The dequantisations of keys and of values that the phase does.
    pub(super) quantized: [Option<Arc<QuantizedTokens>>; 2],
    /// The tables of keys and of values that lie in pages.
    tables: [Option<PagedTables>; 2],
    /// The start of the statistics, if they are wanted.
    stats: Option<Base>,
    /// Their strides along the axes of the scores; 0 without statistics.
    stats_strides: AxisStrides,
    /// The sinks, if there are any: one for each query, and their strides along the axes of the scores.
    sinks: Option<(Access, AxisStrides)>,
}

impl TokenOperands {
    /// The operands of the products, and the place of the statistics.
    pub(super) fn new(plan: &mut PlanBuilder<'_>, shape: &Shape) -> Result<Self> {
        let queries = Tokens::new(plan, shape.queries, shape.transposes.queries, &shape.dims)?;
        // Keys that are the transposed right operand lie token by token.
        let keys = Tokens::cached(plan, shape, shape.keys, !shape.transposes.keys)?;
        let values = Tokens::cached(plan, shape, shape.values, shape.transposes.values)?;
        let tables = [keys.tables, values.tables];
        let (tokens, quantized) = ([queries, keys.tokens, values.tokens], [keys.quantized, values.quantized]);
        Ok(Self { tables, ..Self::with_columns(plan, shape, tokens, quantized)? })
    }

    /// The same for queries, keys and values that are read as they are stored, in bytes.
    pub(super) fn of_bytes(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        stored: &[(PlacedTensor, isize); 3],
    ) -> Result<Self> {
        let transposes = &shape.transposes;
        let [queries, keys, values] = stored;
        let placed = |(tensor, offset): &(PlacedTensor, isize), is_transposed: bool| {
            Tokens::placed(tensor, *offset, 1, is_transposed, &shape.dims)
        };
        let tokens = [
            placed(queries, transposes.queries),
            placed(keys, !transposes.keys),
            placed(values, transposes.values),
        ];
        Self::with_columns(plan, shape, tokens, [None, None])
    }

    /// The operands with what has one number for each query.
    fn with_columns(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        [queries, keys, values]: [Tokens; 3],
        quantized: [Option<Arc<QuantizedTokens>>; 2],
    ) -> Result<Self> {
        let sinks = shape.sinks.map(|sinks| sink_access(plan, shape, sinks)).transpose()?;
        let stats = shape.stats.map(|value| plan.result(value));
        let stats_strides = match &stats {
            Some(stats) => stats_strides(shape, stats),
            None => AxisStrides::from_elem(0, shape.dims.len()),
        };
        let stats = stats.map(|stats| stats.base);
        let queries = queries.of_blocks(shape);
        let tables = [None, None];
        Ok(Self { queries, keys, values, quantized, tables, stats, stats_strides, sinks })
    }

    /// The types of the queries, the keys and the values.
    pub(super) fn types(&self) -> [DataType; 3] {
        [&self.queries, &self.keys, &self.values].map(|tokens| tokens.data_type)
    }

    /// True if iterations along an axis of the scores have the same keys and values.
    pub(super) fn are_shared(&self, axis: usize) -> bool {
        let of_tables = |tables: &PagedTables| {
            let lengths = tables.lengths.as_ref().is_none_or(|(_, strides)| strides[axis] == 0);
            tables.entries.1[axis] == 0 && lengths
        };
        let are_tables = self.tables.iter().flatten().all(of_tables);
        self.keys.outer[axis] == 0 && self.values.outer[axis] == 0 && are_tables
    }

    /// How tables lead to keys and to values.
    pub(super) fn pages(&self) -> [Option<PageTable>; 2] {
        self.tables.each_ref().map(|tables| tables.as_ref().map(|tables| tables.table))
    }

    /// The bound of the scores, unless the phase dequantises keys, or finds them by a table.
    pub(super) fn score_bound(&self, shape: &Shape) -> Option<ScoreBound> {
        if self.quantized[0].is_some() || self.tables[0].is_some() {
            return None;
        }
        let bounded = |tokens: &Tokens, axis: usize| {
            tokens.bounded(&shape.dims, shape.outer.iter().copied(), [shape.count(axis), shape.depth])
        };
        let queries = bounded(&self.queries, shape.query_axis)?;
        let keys = bounded(&self.keys, shape.key_axis)?;
        Some(ScoreBound { operands: [queries, keys], depth: shape.depth })
    }

    /// A program on tiles of scores, with the accesses of the operands behind those of the program. `blocks`
    /// are the loops over blocks of queries and of keys, `tile` the queries and the keys of a block.
    pub(super) fn attach(
        &self,
        shape: &Shape,
        mut nest: LoopNest,
        blocks: [usize; 2],
        tile: [usize; 2],
    ) -> ScoreProgram {
        let Self { queries, keys, values, stats, stats_strides, sinks, .. } = self;
        let to_stats = match stats {
            &Some(base) => {
                Access { base, offset: 0, row_stride: stats_strides[shape.query_axis], col_stride: 4 }
            }
            None => queries.access(),
        };
        let (to_sinks, sink_strides) = match sinks {
            Some((access, strides)) => (access.clone(), strides.clone()),
            None => (queries.access(), AxisStrides::from_elem(0, shape.dims.len())),
        };
        let of_tables = self.accesses_of_tables(shape);
        let of_block = |stride: isize, tokens: usize| stride.saturating_mul(tokens as isize);
        // Tables lead to the tokens of a block.
        let of_cache = |tokens: &Tokens, index: usize, count: usize| match self.tables[index] {
            None => of_block(tokens.token, count),
            Some(_) => 0,
        };
        let [of_queries, of_keys] = tile;
        let first_access = nest.program.next_access();
        nest.program.accesses.extend([queries.access(), keys.access(), values.access(), to_stats, to_sinks]);
        nest.program.accesses.extend(of_tables.iter().map(|(access, _)| access.clone()));
        for index in 0..nest.loops.len() {
            let strides = match shape.outer.get(index) {
                Some(&axis) => [
                    queries.outer[axis],
                    keys.outer[axis],
                    values.outer[axis],
                    stats_strides[axis],
                    sink_strides[axis],
                ],
                None if index == blocks[0] => [
                    of_block(queries.token, of_queries),
                    0,
                    0,
                    of_block(stats_strides[shape.query_axis], of_queries),
                    of_block(sink_strides[shape.query_axis], of_queries),
                ],
                None => [0, of_cache(keys, 0, of_keys), of_cache(values, 1, of_keys), 0, 0],
            };
            nest.loops[index].strides.extend(strides);
            let along = |strides: &AxisStrides| shape.outer.get(index).map_or(0, |&axis| strides[axis]);
            nest.loops[index].strides.extend(of_tables.iter().map(|(_, strides)| along(strides)));
        }
        ScoreProgram { nest, first_access }
    }
}

impl TokenOperands {
    /// The accesses of tables and lengths of keys and of values, in the order of their operands, with strides
    /// along the axes of the scores; none if neither lies in pages. The queries stand for what there is not.
    fn accesses_of_tables(&self, shape: &Shape) -> SmallVec<[(Access, AxisStrides); 4]> {
        if self.tables.iter().all(Option::is_none) {
            return SmallVec::new();
        }
        let none = || (self.queries.access(), AxisStrides::from_elem(0, shape.dims.len()));
        let of = |tables: &Option<PagedTables>| {
            let entries = tables.as_ref().map(|tables| tables.entries.clone());
            let lengths = tables.as_ref().and_then(|tables| tables.lengths.clone());
            [entries.unwrap_or_else(none), lengths.unwrap_or_else(none)]
        };
        self.tables.iter().flat_map(of).collect()
    }
}

/// The sinks of the queries, in memory.
fn sink_access(plan: &mut PlanBuilder<'_>, shape: &Shape, sinks: ValueId) -> Result<(Access, AxisStrides)> {
    let (tensor, offset) = plan.operand_view(sinks)?;
    let width = tensor.data_type.size().unwrap_or(1) as isize;
    let along = shape::access_strides(&tensor.dims, &tensor.strides, &shape.dims, 0);
    let mut strides: AxisStrides = along.into_iter().map(|stride| stride as isize * width).collect();
    strides[shape.key_axis] = 0;
    let row_stride = strides[shape.query_axis];
    Ok((Access { base: tensor.base, offset, row_stride, col_stride: width }, strides))
}

/// The strides of the statistics along the axes of the scores.
fn stats_strides(shape: &Shape, stats: &PlacedTensor) -> AxisStrides {
    let strides = shape::access_strides(&stats.dims, &stats.strides, &shape.dims, 0);
    strides.into_iter().map(|stride| stride as isize * 4).collect()
}
