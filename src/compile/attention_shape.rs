//! The values and the axes of attention, its operands as its phases read them, and the store of its result.

use smallvec::{SmallVec, smallvec};

use super::elementwise::{DriverSpace, ShapedGroup};
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::quantized_tokens::{self, QuantizedOperand};
use super::shaped_partition::ShapedPartition;
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::kernels::Extent;
use crate::kernels::pointwise::{Kernel1, convert};
use crate::plan::{
    Access, AttentionCore, AttentionResult, Base, LoopNest, QuantizedTokens, ScoreProgram, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::kind::{Attr, Level, OpKind};
use crate::types::shape::{self, Dims, SaturatingProduct};

/// The fewest queries of a head that make a block if heads share keys and values. Fewer make one block with
/// the same queries of the other heads.
const MIN_BLOCK_QUERIES: usize = 16;

/// The values and the axes of attention. Axes count those of the scores.
pub(super) struct Shape {
    /// The SoftMax, by its index in the partition.
    pub(super) softmax: usize,
    /// The operands of both products.
    pub(super) queries: ValueId,
    pub(super) keys: ValueId,
    pub(super) values: ValueId,
    /// The result of the first product, the logits, which enter the SoftMax, and the result of the second
    /// product.
    pub(super) scores: ValueId,
    pub(super) logits: ValueId,
    pub(super) result: ValueId,
    /// The left operand of the second product.
    pub(super) factors: ValueId,
    /// The result of the SoftMax and the left operand of the second product, if ops between them compute.
    pub(super) weights: Option<[ValueId; 2]>,
    /// The second result of the SoftMax, if it is wanted.
    pub(super) stats: Option<ValueId>,
    pub(super) inf_as_zero: bool,
    pub(super) transposes: Transposes,
    pub(super) dims: Dims,
    pub(super) query_axis: usize,
    pub(super) key_axis: usize,
    /// The other axes.
    pub(super) outer: SmallVec<[usize; 6]>,
    pub(super) depth: usize,
    pub(super) value_columns: usize,
}

/// Which operands lie transposed.
pub(super) struct Transposes {
    pub(super) queries: bool,
    pub(super) keys: bool,
    pub(super) values: bool,
}

impl Shape {
    /// The form of a partition, if the phase runs it.
    pub(super) fn new(shaped: &ShapedPartition<'_>, plan: &PlanBuilder<'_>) -> Result<Self, FallbackReason> {
        let (partition, group) = (shaped.partition, &shaped.group);
        let [first, softmax, second] = &group.anchors[..] else { return Err(R::OtherOps) };
        let [first_op, softmax_op, second_op] = [first, softmax, second].map(|of| &partition.ops()[of.op]);
        let kinds = [first_op, softmax_op, second_op].map(Op::kind);
        R::OtherOps.unless(kinds == [OpKind::MatMul, OpKind::SoftMax, OpKind::MatMul])?;
        let (scores, logits, result) = (first.outputs[0], softmax.inputs[0], second.outputs[0]);
        let weights = softmax.outputs[0];
        let stats = softmax.outputs.get(1).copied().filter(|stats| group.outputs.contains(stats));
        let dims = &group.values[scores].dims;
        let rank = dims.len();
        let result_dims = &group.values[result].dims;
        let is_along_keys = || infer::resolved_axis(softmax_op, dims).is_ok_and(|axis| axis == rank - 1);
        R::BiasOfProduct.unless(first.inputs.len() == 2 && second.inputs.len() == 2)?;
        R::OperandForm.unless(rank >= 2)?;
        R::ShapeOfScores.unless(group.values[logits].dims == *dims)?;
        R::SoftmaxAxis.unless(is_along_keys())?;
        R::ShapeOfResult.unless(result_dims.len() == rank && result_dims[..rank - 1] == dims[..rank - 1])?;
        R::TransposedWeights.unless(!second_op.bool_attr(Attr::TransposeA))?;
        let operands = [first.inputs[0], first.inputs[1], second.inputs[1]];
        let is_empty = |value: ValueId| group.values[value].dims.contains(&0);
        R::NoElements.unless(![scores, result].into_iter().chain(operands).any(is_empty))?;
        let is_matrix =
            |&value: &ValueId| group.values[value].dims.len() >= 2 && plan.is_computable(value, &[]);
        R::OperandForm.unless(operands.iter().all(is_matrix))?;
        let factors = second.inputs[0];
        let changed = (!is_conversion_of(group, factors, weights)).then_some([weights, factors]);
        let is_made = changed.is_none() || plan.is_tile_program(dims, &[weights], factors);
        R::ComputedWeights.unless(is_made)?;
        // No output needs scores, weights, or what is computed from them.
        let is_hidden = group.outputs.iter().all(|&output| {
            Some(output) == stats || [scores, weights].iter().all(|&value| !plan.depends(output, value, &[]))
        });
        R::InnerUses.unless(is_hidden)?;
        R::ComputedLogits.unless(logits == scores || plan.is_tile_program(dims, &[scores], logits))?;
        let [queries, keys, values] = operands;
        let transposes = Transposes {
            queries: first_op.bool_attr(Attr::TransposeA),
            keys: first_op.bool_attr(Attr::TransposeB),
            values: second_op.bool_attr(Attr::TransposeB),
        };
        let along = |value: ValueId, is_transposed: bool| {
            let dims = &group.values[value].dims;
            let rank = dims.len();
            dims[if is_transposed { rank - 2 } else { rank - 1 }] as usize
        };
        let (depth, value_columns) = (along(queries, transposes.queries), along(values, transposes.values));
        // Few queries of heads that share keys and values are one block.
        let is_shared = |axis: usize| {
            [keys, values].into_iter().all(|value| {
                let own = &group.values[value].dims;
                (axis + own.len()).checked_sub(rank).is_none_or(|at| own[at] == 1)
            })
        };
        let count = |axis: usize| dims[axis] as usize;
        let shared = (0..rank - 2).filter(|&axis| is_shared(axis)).max_by_key(|&axis| count(axis));
        let query_axis = match shared {
            Some(axis) if count(rank - 2) < MIN_BLOCK_QUERIES && count(axis) > count(rank - 2) => axis,
            _ => rank - 2,
        };
        Ok(Self {
            softmax: softmax.op,
            queries,
            keys,
            values,
            scores,
            logits,
            result,
            weights: changed,
            stats,
            inf_as_zero: softmax_op.str_attr(Attr::Mode) == Some("inf_as_zero"),
            transposes,
            factors,
            dims: dims.clone(),
            query_axis,
            key_axis: rank - 1,
            outer: (0..rank - 1).filter(|&axis| axis != query_axis).collect(),
            depth,
            value_columns,
        })
    }

    pub(super) fn count(&self, axis: usize) -> usize {
        self.dims[axis] as usize
    }

    pub(super) fn places(&self) -> usize {
        self.outer.iter().map(|&axis| self.count(axis)).saturating_product()
    }

    /// The part that both phases of attention have, given the program that makes the logits, the same without
    /// masks, and the store of the result. `None` if no kernel converts scores or logits.
    pub(super) fn core(
        &self,
        plan: &mut PlanBuilder<'_>,
        program: ScoreProgram,
        unmasked: Option<ScoreProgram>,
        result: AttentionResult,
        quantized: [Option<QuantizedTokens>; 2],
    ) -> Option<AttentionCore> {
        let [scores, logits] = [self.scores, self.logits].map(|value| plan.group().values[value].data_type);
        let (round_scores, widen_logits) = (round(plan.level, scores)?, widen(plan.level, logits)?);
        let classes = plan.classify((self.scores, self.logits), (self.query_axis, self.key_axis), false);
        let ScoreProgram { nest, first_access } = program;
        Some(AttentionCore {
            nest,
            first_access,
            // Without classes the driver cannot tell which tiles are unmasked.
            unmasked: unmasked.filter(|_| classes.is_some()),
            depth: self.depth,
            value_columns: self.value_columns,
            quantized,
            round_scores,
            widen_logits,
            score_width: scores.size().unwrap_or(4),
            logit_width: logits.size().unwrap_or(4),
            inf_as_zero: self.inf_as_zero,
            has_stats: self.stats.is_some(),
            classes,
            result,
        })
    }

    pub(super) fn flops(&self) -> usize {
        let pairs = self.places().saturating_mul(self.count(self.query_axis));
        let pairs = pairs.saturating_mul(self.count(self.key_axis));
        pairs.saturating_mul(2 * (self.depth + self.value_columns))
    }
}

/// True if a value is another one in another type of floating-point numbers.
pub(super) fn is_conversion_of(group: &ShapedGroup, mut value: ValueId, of: ValueId) -> bool {
    while value != of {
        match group.converted(value) {
            Some(operand) => value = operand,
            None => return false,
        }
    }
    true
}

/// An operand of a product as strides from token to token, and along the elements of one.
pub(super) struct Tokens {
    pub(super) tensor: PlacedTensor,
    pub(super) offset: isize,
    /// Bytes along the axes of the scores; that of the tokens themselves is `token`.
    pub(super) outer: AxisStrides,
    pub(super) token: isize,
    pub(super) element: isize,
}

/// An operand of a product, whose rows are tokens unless it lies transposed.
fn tokens(plan: &mut PlanBuilder<'_>, shape: &Shape, value: ValueId, is_transposed: bool) -> Result<Tokens> {
    let (tensor, offset) = plan.operand_view(value)?;
    let width = tensor.data_type.size().unwrap_or(1) as isize;
    Ok(placed_tokens(shape, value, is_transposed, tensor, offset, width))
}

/// The dims of an operand along tokens and along the elements of one.
pub(super) fn token_axes(rank: usize, is_transposed: bool) -> [usize; 2] {
    if is_transposed { [rank - 1, rank - 2] } else { [rank - 2, rank - 1] }
}

/// Keys or values. If the phase can dequantise them itself, their type is the f32 that the phase makes, but
/// their strides and offset are those of the integers in memory.
fn cached_tokens(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    value: ValueId,
    is_transposed: bool,
) -> Result<(Tokens, Option<QuantizedTokens>)> {
    let (rank, own) = (shape.dims.len(), plan.group().values[value].dims.len());
    let of_batch = |&axis: &usize| (axis < rank - 2).then(|| (axis + own).checked_sub(rank)).flatten();
    let outer: SmallVec<[Option<usize>; 6]> = shape.outer.iter().map(of_batch).chain([None]).collect();
    match quantized_tokens::find(plan, value, token_axes(own, is_transposed), &outer) {
        None => Ok((tokens(plan, shape, value, is_transposed)?, None)),
        Some(QuantizedOperand { tensor, offset, tokens }) => {
            let mut placed = placed_tokens(shape, value, is_transposed, tensor, offset, 1);
            placed.tensor.data_type = DataType::F32;
            placed.element = 4;
            Ok((placed, Some(tokens)))
        }
    }
}

/// The tokens of an operand whose strides count elements of so many bytes.
fn placed_tokens(
    shape: &Shape,
    value: ValueId,
    is_transposed: bool,
    tensor: PlacedTensor,
    offset: isize,
    width: isize,
) -> Tokens {
    let (rank, own) = (shape.dims.len(), tensor.dims.len());
    let stride = |axis: usize| tensor.strides[axis] as isize * width;
    let [token_axis, element_axis] = token_axes(own, is_transposed);
    let batch =
        shape::access_strides(&tensor.dims[..own - 2], &tensor.strides, &shape.dims[..rank - 2], rank - own);
    let mut outer: AxisStrides = batch.into_iter().map(|stride| stride as isize * width).collect();
    outer.resize(rank, 0);
    let (mut token, element) = (stride(token_axis), stride(element_axis));
    // The queries of other heads may be those of a block.
    if value == shape.queries && shape.query_axis != rank - 2 {
        outer[rank - 2] = token;
        token = outer[shape.query_axis];
    }
    Tokens { outer, token, element, offset, tensor }
}

/// The strides of the statistics along the axes of the scores.
fn stats_strides(shape: &Shape, stats: &PlacedTensor) -> AxisStrides {
    let strides = shape::access_strides(&stats.dims, &stats.strides, &shape.dims, 0);
    strides.into_iter().map(|stride| stride as isize * 4).collect()
}

/// How the blocks of the second product are stored: with the moves and the pointwise ops that follow the
/// product.
///
/// `queries` is the number of queries of a block. `strides` maps the bytes of an element to the bytes from
/// query to query, and from one element of a value to the next.
pub(super) fn result(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    queries: usize,
    strides: impl Fn(usize) -> (isize, isize),
    level: Level,
) -> Result<AttentionResult> {
    let group = plan.group();
    let rank = shape.dims.len();
    // The value that the phase supplies, and for each axis of the scores its place among the axes of the
    // value.
    let mut value = shape.result;
    let mut places: SmallVec<[usize; 6]> = (0..rank).collect();
    while !group.outputs.contains(&value)
        && let Some((user, order)) = group.only_transposed(value)
    {
        for place in &mut places {
            *place = order.iter().position(|axis| axis == place).unwrap_or(0);
        }
        value = user;
    }
    let data_type = group.values[value].data_type;
    let width = data_type.size().unwrap_or(4);
    let space = DriverSpace::new(
        group.values[value].dims.clone(),
        [Some(places[shape.query_axis]), Some(places[shape.key_axis])],
        Extent { rows: queries, columns: shape.value_columns },
        smallvec![strides(width)],
    );
    let nest = plan.result_program(&space, value)?;
    // Tiles of the nest from one iteration of each loop to the next; blocks of queries and of columns come
    // last there.
    let outer: SmallVec<[usize; 6]> = space.outer().collect();
    let tiles: SmallVec<[usize; 6]> = (0..nest.loops.len())
        .map(|index| nest.loops[index + 1..].iter().map(|l| l.extent).saturating_product())
        .collect();
    let of_axis =
        |axis: &usize| outer.iter().position(|&other| other == places[*axis]).map_or(0, |at| tiles[at]);
    let tile_strides = shape.outer.iter().map(of_axis).chain([tiles[nest.row_blocks]]).collect();
    let round = match data_type {
        DataType::F32 => None,
        other => convert(level, DataType::F32, other).map(|kernels| kernels.kernel),
    };
    Ok(AttentionResult { nest, tile_strides, round })
}

/// The operands of both products, and the statistics.
pub(super) struct TokenOperands {
    pub(super) queries: Tokens,
    pub(super) keys: Tokens,
    pub(super) values: Tokens,
    /// How the phase dequantises keys and values.
    pub(super) quantized: [Option<QuantizedTokens>; 2],
    /// The start of the statistics, if they are wanted.
    stats: Option<Base>,
    /// Their strides along the axes of the scores; 0 without statistics.
    stats_strides: AxisStrides,
}

impl TokenOperands {
    /// The operands of the products, and the place of the statistics.
    pub(super) fn new(plan: &mut PlanBuilder<'_>, shape: &Shape) -> Result<Self> {
        let queries = tokens(plan, shape, shape.queries, shape.transposes.queries)?;
        // Keys that are the transposed right operand lie token by token.
        let (keys, of_keys) = cached_tokens(plan, shape, shape.keys, !shape.transposes.keys)?;
        let (values, of_values) = cached_tokens(plan, shape, shape.values, shape.transposes.values)?;
        Ok(Self::with_stats(plan, shape, [queries, keys, values], [of_keys, of_values]))
    }

    /// The same for queries, keys and values that are read as they are stored, in bytes.
    pub(super) fn of_bytes(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        stored: &[(PlacedTensor, isize); 3],
    ) -> Self {
        let [queries, keys, values] = stored;
        let placed = |value: ValueId, is_transposed: bool, (tensor, offset): &(PlacedTensor, isize)| {
            placed_tokens(shape, value, is_transposed, tensor.clone(), *offset, 1)
        };
        let tokens = [
            placed(shape.queries, shape.transposes.queries, queries),
            placed(shape.keys, !shape.transposes.keys, keys),
            placed(shape.values, shape.transposes.values, values),
        ];
        Self::with_stats(plan, shape, tokens, [None, None])
    }

    fn with_stats(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        [queries, keys, values]: [Tokens; 3],
        quantized: [Option<QuantizedTokens>; 2],
    ) -> Self {
        let stats = shape.stats.map(|value| plan.result(value));
        let stats_strides = match &stats {
            Some(stats) => stats_strides(shape, stats),
            None => shape.dims.iter().map(|_| 0).collect(),
        };
        Self { queries, keys, values, quantized, stats: stats.map(|stats| stats.base), stats_strides }
    }

    /// The types of the queries, the keys and the values.
    pub(super) fn types(&self) -> [DataType; 3] {
        [&self.queries, &self.keys, &self.values].map(|tokens| tokens.tensor.data_type)
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
        let Self { queries, keys, values, stats, stats_strides, .. } = self;
        let access = |tokens: &Tokens| Access {
            base: tokens.tensor.base,
            offset: tokens.offset,
            row_stride: tokens.token,
            col_stride: tokens.element,
        };
        let to_stats = match stats {
            &Some(base) => {
                Access { base, offset: 0, row_stride: stats_strides[shape.query_axis], col_stride: 4 }
            }
            None => access(queries),
        };
        let of_block = |stride: isize, tokens: usize| stride.saturating_mul(tokens as isize);
        let [of_queries, of_keys] = tile;
        let first_access = nest.program.next_access();
        nest.program.accesses.extend([access(queries), access(keys), access(values), to_stats]);
        for index in 0..nest.loops.len() {
            let strides = match shape.outer.get(index) {
                Some(&axis) => {
                    [queries.outer[axis], keys.outer[axis], values.outer[axis], stats_strides[axis]]
                }
                None if index == blocks[0] => [
                    of_block(queries.token, of_queries),
                    0,
                    0,
                    of_block(stats_strides[shape.query_axis], of_queries),
                ],
                None => [0, of_block(keys.token, of_keys), of_block(values.token, of_keys), 0],
            };
            nest.loops[index].strides.extend(strides);
        }
        ScoreProgram { nest, first_access }
    }
}

/// The kernels between f32 and the types of scores.
pub(super) fn round(level: Level, to: DataType) -> Option<Option<Kernel1>> {
    match to {
        DataType::F32 => Some(None),
        other => convert(level, DataType::F32, other).map(|kernels| Some(kernels.kernel)),
    }
}

pub(super) fn widen(level: Level, from: DataType) -> Option<Option<Kernel1>> {
    match from {
        DataType::F32 => Some(None),
        other => convert(level, other, DataType::F32).map(|kernels| Some(kernels.kernel)),
    }
}
