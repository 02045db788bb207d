//! The operands of attention and of its gradients: from token to token, and along the elements of one.

use smallvec::SmallVec;

use super::shape::Shape;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::quantized_tokens::{self, QuantizedOperand};
use crate::error::Result;
use crate::plan::{Access, Base, LoopNest, QuantizedTokens, ScoreBound, ScoreOperand, ScoreProgram, ValueId};
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

    /// Keys or values, and their dequantisation if the phase can dequantise them itself.
    fn cached(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        value: ValueId,
        is_transposed: bool,
    ) -> Result<(Self, Option<QuantizedTokens>)> {
        let (rank, own) = (shape.dims.len(), plan.group().values[value].dims.len());
        let of_batch = |&axis: &usize| (axis < rank - 2).then(|| (axis + own).checked_sub(rank)).flatten();
        let outer: SmallVec<[Option<usize>; 6]> = shape.outer.iter().map(of_batch).chain([None]).collect();
        match quantized_tokens::find(plan, value, token_axes(own, is_transposed), &outer) {
            None => Ok((Self::new(plan, value, is_transposed, &shape.dims)?, None)),
            Some(QuantizedOperand { tensor, offset, tokens }) => {
                let stored = Self::placed(&tensor, offset, 1, is_transposed, &shape.dims);
                Ok((Self { data_type: DataType::F32, element: 4, ..stored }, Some(tokens)))
            }
        }
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
    pub(super) quantized: [Option<QuantizedTokens>; 2],
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
        let (keys, of_keys) = Tokens::cached(plan, shape, shape.keys, !shape.transposes.keys)?;
        let (values, of_values) = Tokens::cached(plan, shape, shape.values, shape.transposes.values)?;
        Self::with_columns(plan, shape, [queries, keys, values], [of_keys, of_values])
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
        quantized: [Option<QuantizedTokens>; 2],
    ) -> Result<Self> {
        let sinks = shape.sinks.map(|sinks| sink_access(plan, shape, sinks)).transpose()?;
        let stats = shape.stats.map(|value| plan.result(value));
        let stats_strides = match &stats {
            Some(stats) => stats_strides(shape, stats),
            None => AxisStrides::from_elem(0, shape.dims.len()),
        };
        let stats = stats.map(|stats| stats.base);
        let queries = queries.of_blocks(shape);
        Ok(Self { queries, keys, values, quantized, stats, stats_strides, sinks })
    }

    /// The types of the queries, the keys and the values.
    pub(super) fn types(&self) -> [DataType; 3] {
        [&self.queries, &self.keys, &self.values].map(|tokens| tokens.data_type)
    }

    /// The bound of the scores, unless the phase dequantises keys.
    pub(super) fn score_bound(&self, shape: &Shape) -> Option<ScoreBound> {
        if self.quantized[0].is_some() {
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
        let of_block = |stride: isize, tokens: usize| stride.saturating_mul(tokens as isize);
        let [of_queries, of_keys] = tile;
        let first_access = nest.program.next_access();
        nest.program.accesses.extend([queries.access(), keys.access(), values.access(), to_stats, to_sinks]);
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
                None => [0, of_block(keys.token, of_keys), of_block(values.token, of_keys), 0, 0],
            };
            nest.loops[index].strides.extend(strides);
        }
        ScoreProgram { nest, first_access }
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
