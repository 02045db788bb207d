//! Lowers attention to one phase: two products with a SoftMax between them, the pointwise ops that make the
//! scores, and those that follow.
//!
//! [`Shape::new`] looks whether a partition has the form that the phase runs: the SoftMax goes along the
//! keys, nobody asks for scores or weights, and strides lead a tile to all operands. Any other partition runs
//! its products and its SoftMax one after another, through internal buffers.

use smallvec::{SmallVec, smallvec};

use super::elementwise::{DriverSpace, ShapedGroup};
use super::gemm;
use super::machine::Machine;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder, ShapedPartition};
use super::rows;
use crate::error::{CompileFault, Result};
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::attention::{AttentionKernels, QUERIES};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::{Kernel1, convert};
use crate::kernels::{Extent, LINE};
use crate::partition::Partition;
use crate::plan::{
    Access, AttentionPhase, AttentionResult, AttentionScratch, KEYS, Loop, LoopNest, Phase, Plan,
    ScoreProgram, StepSet, TileProgram, WeightsProgram,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level, OpKind};
use crate::types::shape::{self, Dims};

/// Fewest queries of a head that are a block of their own if heads share keys and values.
const FEW_QUERIES: usize = 16;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let mut plan = PlanBuilder::new(&shaped, machine.level, machine.single_thread);
    match Shape::new(&shaped, &plan)? {
        Some(shape) => add(&shaped, &mut plan, &shape, machine)?,
        None => {
            for (index, anchor) in shaped.group.anchors.iter().enumerate() {
                match partition.ops()[anchor.op].kind() {
                    OpKind::MatMul => gemm::add_product(&shaped, &mut plan, index, machine)?,
                    _ => drop(rows::add(&shaped, &mut plan, index)?),
                }
            }
        }
    }
    plan.finish()
}

/// The values and the axes of attention. Axes count those of the scores.
struct Shape {
    /// The operands of both products.
    queries: usize,
    keys: usize,
    values: usize,
    /// The result of the first product, what enters the SoftMax, and the result of the second product.
    scores: usize,
    logits: usize,
    result: usize,
    /// The result of the SoftMax and the left operand of the second product, if ops between them compute.
    weights: Option<[usize; 2]>,
    /// The second result of the SoftMax, if it is wanted.
    stats: Option<usize>,
    inf_as_zero: bool,
    transposes: Transposes,
    dims: Dims,
    query_axis: usize,
    key_axis: usize,
    /// The other axes.
    outer: SmallVec<[usize; 6]>,
    depth: usize,
    value_columns: usize,
}

/// Which operands lie transposed.
struct Transposes {
    queries: bool,
    keys: bool,
    values: bool,
}

impl Shape {
    /// `None` if the phase does not run a partition of this form.
    fn new(shaped: &ShapedPartition<'_>, plan: &PlanBuilder<'_>) -> Result<Option<Self>> {
        let (partition, group) = (shaped.partition, &shaped.group);
        let kind = |anchor: usize| partition.ops()[group.anchors[anchor].op].kind();
        let [first, softmax, second] = match group.anchors[..] {
            [_, _, _] if kind(0) == OpKind::MatMul && kind(1) == OpKind::SoftMax => [0, 1, 2],
            _ => return Ok(None),
        };
        let [first, softmax, second] = [first, softmax, second].map(|index| &group.anchors[index]);
        let op = |anchor: usize| &partition.ops()[anchor];
        let (first_op, softmax_op, second_op) = (op(first.op), op(softmax.op), op(second.op));
        let (scores, logits, result) = (first.outputs[0], softmax.inputs[0], second.outputs[0]);
        let weights = softmax.outputs[0];
        let stats = softmax.outputs.get(1).copied().filter(|stats| group.outputs.contains(stats));
        let dims = &group.values[scores].dims;
        let rank = dims.len();
        let result_dims = &group.values[result].dims;
        let is_form = second_op.kind() == OpKind::MatMul
            && first.inputs.len() == 2
            && second.inputs.len() == 2
            && rank >= 2
            && group.values[logits].dims == *dims
            && infer::resolved_axis(softmax_op, dims)? == rank - 1
            && result_dims.len() == rank
            && result_dims[..rank - 1] == dims[..rank - 1]
            && !second_op.bool_attr(Attr::TransposeA)
            && !dims.contains(&0)
            && !result_dims.contains(&0);
        let operands = [first.inputs[0], first.inputs[1], second.inputs[1]];
        let are_matrices = operands.iter().all(|&value| {
            let dims = &group.values[value].dims;
            dims.len() >= 2 && !dims.contains(&0) && plan.is_computable(value, &[])
        });
        if !is_form || !are_matrices {
            return Ok(None);
        }
        let factors = second.inputs[0];
        let changed = match is_conversion_of(group, factors, weights) {
            true => None,
            false if plan.is_tile_program(dims, &[weights], factors) => Some([weights, factors]),
            false => return Ok(None),
        };
        // Nobody else needs scores, weights, or what is computed from them.
        let is_hidden = group.outputs.iter().all(|&output| {
            Some(output) == stats || [scores, weights].iter().all(|&value| !plan.depends(output, value, &[]))
        });
        if !is_hidden || logits != scores && !plan.is_tile_program(dims, &[scores], logits) {
            return Ok(None);
        }
        let [queries, keys, values] = operands;
        let transposes = Transposes {
            queries: first_op.bool_attr(Attr::TransposeA),
            keys: first_op.bool_attr(Attr::TransposeB),
            values: second_op.bool_attr(Attr::TransposeB),
        };
        let along = |value: usize, is_transposed: bool| {
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
            Some(axis) if count(rank - 2) < FEW_QUERIES && count(axis) > count(rank - 2) => axis,
            _ => rank - 2,
        };
        Ok(Some(Self {
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
            dims: dims.clone(),
            query_axis,
            key_axis: rank - 1,
            outer: (0..rank - 1).filter(|&axis| axis != query_axis).collect(),
            depth,
            value_columns,
        }))
    }

    fn count(&self, axis: usize) -> usize {
        self.dims[axis] as usize
    }

    fn places(&self) -> usize {
        self.outer.iter().map(|&axis| self.count(axis)).fold(1, usize::saturating_mul)
    }

    fn flops(&self) -> usize {
        let pairs = self.places().saturating_mul(self.count(self.query_axis));
        let pairs = pairs.saturating_mul(self.count(self.key_axis));
        pairs.saturating_mul(2 * (self.depth + self.value_columns))
    }

    /// Queries of a block, and keys.
    fn tile(&self) -> Extent {
        Extent {
            rows: self.count(self.key_axis).min(KEYS),
            columns: self.count(self.query_axis).min(QUERIES),
        }
    }
}

/// Whether a value is another one in another type of floating-point numbers.
pub(super) fn is_conversion_of(group: &ShapedGroup, mut value: usize, of: usize) -> bool {
    while value != of {
        match group.converted(value) {
            Some(operand) => value = operand,
            None => return false,
        }
    }
    true
}

/// An operand of a product as the phase reads it: from token to token, and along the elements of one.
struct Tokens {
    tensor: PlacedTensor,
    offset: isize,
    /// Bytes along the axes of the scores; that of the tokens themselves is `token`.
    outer: AxisStrides,
    token: isize,
    element: isize,
}

/// Adds the phase.
fn add(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    machine: Machine,
) -> Result<()> {
    let level = machine.level;
    let group = &shaped.group;
    let type_of = |value: usize| group.values[value].data_type;
    let unsupported = |what: &str| CompileFault::Unsupported(format!("no kernel runs attention {what}"));
    let queries = tokens(plan, shape, shape.queries, shape.transposes.queries)?;
    // Keys that are the transposed right operand lie token by token.
    let keys = tokens(plan, shape, shape.keys, !shape.transposes.keys)?;
    let values = tokens(plan, shape, shape.values, shape.transposes.values)?;
    let width = |value: usize| type_of(value).size().unwrap_or(4);
    let (score_width, logit_width) = (width(shape.scores), width(shape.logits));

    let tile = shape.tile();
    let slot = |width: usize| ((QUERIES * width) as isize, width as isize);
    let space = DriverSpace {
        dims: shape.dims.clone(),
        rows: Some(shape.key_axis),
        columns: Some(shape.query_axis),
        tile,
        slots: smallvec![slot(score_width), slot(logit_width)],
    };
    let mut nest = match shape.logits == shape.scores {
        true => empty_nest(shape, tile),
        false => {
            let from = [(shape.scores, AttentionPhase::SCORES)];
            plan.slot_program(&space, &from, shape.logits, AttentionPhase::LOGITS)?
        }
    };
    let mut unmasked = match shape.logits == shape.scores {
        true => None,
        false => {
            let supplied = (shape.scores, AttentionPhase::SCORES);
            plan.unmasked_program(&space, supplied, shape.logits, AttentionPhase::LOGITS)?
        }
    };
    for nest in [&mut nest].into_iter().chain(&mut unmasked) {
        keys_innermost(nest);
        rewrite_roots(&mut nest.program);
    }
    let weights = match shape.weights {
        None => None,
        Some([from, to]) => {
            let widths = [width(from), width(to)];
            let space = DriverSpace { slots: smallvec![slot(widths[0]), slot(widths[1])], ..space };
            let supplied = [(from, AttentionPhase::SCORES)];
            let mut nest = plan.slot_program(&space, &supplied, to, AttentionPhase::LOGITS)?;
            keys_innermost(&mut nest);
            rewrite_roots(&mut nest.program);
            Some((nest, widths, [from, to].map(type_of)))
        }
    };

    let stats = shape.stats.map(|value| plan.result(value));
    let result = result(plan, shape, tile, level)?;

    let stats_strides = stats.as_ref().map(|stats| stats_strides(shape, stats));
    let access = |tokens: &Tokens| Access {
        base: tokens.tensor.base,
        offset: tokens.offset,
        row_stride: tokens.token,
        col_stride: tokens.element,
    };
    let to_stats = match (&stats, &stats_strides) {
        (Some(stats), Some(strides)) => {
            Access { base: stats.base, offset: 0, row_stride: strides[shape.query_axis], col_stride: 4 }
        }
        _ => access(&queries),
    };
    let accesses = [access(&queries), access(&keys), access(&values), to_stats];
    let strides_of = |index: usize, nest: &LoopNest| {
        let by_query = |stride: isize| stride.saturating_mul(tile.columns as isize);
        let by_key = |stride: isize| stride.saturating_mul(tile.rows as isize);
        let stats_of = |axis: usize| stats_strides.as_ref().map_or(0, |strides| strides[axis]);
        match shape.outer.get(index) {
            Some(&axis) => [queries.outer[axis], keys.outer[axis], values.outer[axis], stats_of(axis)],
            None if index == nest.column_blocks => {
                [by_query(queries.token), 0, 0, by_query(stats_of(shape.query_axis))]
            }
            None => [0, by_key(keys.token), by_key(values.token), 0],
        }
    };
    // The accesses of the phase follow those of the program.
    let with_accesses = |mut nest: LoopNest| {
        let first_access = nest.program.accesses.len();
        nest.program.accesses.extend(accesses.clone());
        for index in 0..nest.loops.len() {
            let strides = strides_of(index, &nest);
            nest.loops[index].strides.extend(strides);
        }
        ScoreProgram { nest, first_access }
    };
    let ScoreProgram { nest, first_access } = with_accesses(nest);
    let unmasked = unmasked.map(with_accesses);

    let form = Form::F32;
    let to_f32 = |data_type: DataType| match data_type {
        DataType::F32 => Some(None),
        other => RowPack::new(level, other, DataType::F32).map(Some),
    };
    let round = |to: DataType| match to {
        DataType::F32 => Some(None),
        other => convert(level, DataType::F32, other).map(|kernels| Some(kernels.kernel)),
    };
    let widen = |from: DataType| match from {
        DataType::F32 => Some(None),
        other => convert(level, other, DataType::F32).map(|kernels| Some(kernels.kernel)),
    };
    let refuse = |plan: &PlanBuilder<'_>| plan.refuse(unsupported("on these types"));
    let pack_queries = PackPanel::new(level, queries.tensor.data_type, form, QUERIES);
    let (Some(pack_queries), Some(pack_keys), Some(pack_values), Some(round_scores), Some(widen_logits)) = (
        pack_queries,
        to_f32(keys.tensor.data_type),
        to_f32(values.tensor.data_type),
        round(type_of(shape.scores)),
        widen(type_of(shape.logits)),
    ) else {
        return Err(refuse(plan));
    };
    let weights = match weights {
        None => None,
        Some((nest, widths, [from, to])) => {
            let (Some(round), Some(widen)) = (round(from), widen(to)) else { return Err(refuse(plan)) };
            Some(WeightsProgram { nest, round, widen, widths })
        }
    };
    let classes = plan.classify((shape.scores, shape.logits), (shape.query_axis, shape.key_axis));
    // Without classes nobody knows which tiles are unmasked.
    let unmasked = unmasked.filter(|_| classes.is_some());
    let mut phase = AttentionPhase {
        nest,
        first_access,
        unmasked,
        types: [&queries, &keys, &values].map(|tokens| tokens.tensor.data_type),
        depth: shape.depth,
        value_columns: shape.value_columns,
        product: GemmKernel::new(level, form),
        kernels: AttentionKernels::new(level),
        queries: pack_queries,
        keys: pack_keys,
        values: pack_values,
        round_scores,
        widen_logits,
        score_width,
        logit_width,
        inf_as_zero: shape.inf_as_zero,
        has_stats: stats.is_some(),
        weights,
        classes,
        result,
        layout: AttentionScratch::default(),
    };
    phase.layout = scratch_layout(&phase);
    plan.push(Phase::Attention(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// An operand of a product, whose rows are tokens unless it lies transposed.
fn tokens(plan: &mut PlanBuilder<'_>, shape: &Shape, value: usize, is_transposed: bool) -> Result<Tokens> {
    let (tensor, offset) = plan.operand_view(value)?;
    let (rank, own) = (shape.dims.len(), tensor.dims.len());
    let width = tensor.data_type.size().unwrap_or(1) as isize;
    let stride = |axis: usize| tensor.strides[axis] as isize * width;
    let (token_axis, element_axis) = if is_transposed { (own - 1, own - 2) } else { (own - 2, own - 1) };
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
    Ok(Tokens { outer, token, element, offset, tensor })
}

/// The strides of the statistics along the axes of the scores.
fn stats_strides(shape: &Shape, stats: &PlacedTensor) -> AxisStrides {
    let strides = shape::access_strides(&stats.dims, &stats.strides, &shape.dims, 0);
    strides.into_iter().map(|stride| stride as isize * 4).collect()
}

/// The loops around the tiles of the scores, without accesses.
fn empty_nest(shape: &Shape, tile: Extent) -> LoopNest {
    let (keys, queries) = (shape.count(shape.key_axis), shape.count(shape.query_axis));
    let extents = shape.outer.iter().map(|&axis| shape.count(axis));
    let extents = extents.chain([keys.div_ceil(tile.rows), queries.div_ceil(tile.columns)]);
    let loops: SmallVec<[Loop; 6]> = extents.map(|extent| Loop { extent, strides: smallvec![] }).collect();
    let invalidated_by = smallvec![StepSet::none_of(0); loops.len()];
    LoopNest {
        loops,
        row_blocks: shape.outer.len(),
        column_blocks: shape.outer.len() + 1,
        space: Extent { rows: keys, columns: queries },
        tile,
        program: TileProgram { invalidated_by, ..TileProgram::default() },
    }
}

/// Makes blocks of keys the innermost loop; they are the last but one.
pub(super) fn keys_innermost(nest: &mut LoopNest) {
    let (keys, queries) = (nest.row_blocks, nest.column_blocks);
    nest.loops.swap(keys, queries);
    nest.program.invalidated_by.swap(keys, queries);
    (nest.row_blocks, nest.column_blocks) = (queries, keys);
}

/// Lets the roots of a program run in each tile, because their results are overwritten.
pub(super) fn rewrite_roots(program: &mut TileProgram) {
    let roots = &program.roots;
    program.invalidated_by.iter_mut().for_each(|steps| roots.iter().for_each(|&root| steps.insert(root)));
}

/// How the blocks of the second product leave the phase: where their elements lie, as far as moves follow the
/// product, and with the pointwise ops that follow.
fn result(plan: &mut PlanBuilder<'_>, shape: &Shape, tile: Extent, level: Level) -> Result<AttentionResult> {
    let group = plan.group();
    let rank = shape.dims.len();
    // The value that the phase supplies, and where the axes of the scores are in the value.
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
    let space = DriverSpace {
        dims: group.values[value].dims.clone(),
        rows: Some(places[shape.query_axis]),
        columns: Some(places[shape.key_axis]),
        tile: Extent { rows: tile.columns, columns: shape.value_columns },
        slots: smallvec![(width as isize, (QUERIES * width) as isize)],
    };
    let nest = plan.result_program(&space, value)?;
    // Tiles of the nest from one iteration of each loop to the next; blocks of queries and of columns come
    // last there.
    let outer: SmallVec<[usize; 6]> = space.outer().collect();
    let strides: SmallVec<[usize; 6]> = (0..nest.loops.len())
        .map(|index| nest.loops[index + 1..].iter().map(|l| l.extent).product())
        .collect();
    let of_axis =
        |axis: &usize| outer.iter().position(|&other| other == places[*axis]).map_or(0, |at| strides[at]);
    let tile_strides = shape.outer.iter().map(of_axis).chain([strides[nest.row_blocks]]).collect();
    let round = match data_type {
        DataType::F32 => None,
        other => convert(level, DataType::F32, other).map(|kernels| kernels.kernel),
    };
    Ok(AttentionResult { nest, tile_strides, round })
}

fn scratch_layout(phase: &AttentionPhase) -> AttentionScratch {
    let unmasked = phase.unmasked.as_ref().map_or(0, |unmasked| unmasked.nest.program.scratch);
    let mut end = phase.nest.program.scratch.max(unmasked);
    let mut take = |bytes: usize| {
        let start = end.next_multiple_of(LINE);
        end = start.saturating_add(bytes);
        start
    };
    let (depth, value_columns) = (phase.depth, phase.value_columns);
    let lanes = phase.product.panel_columns();
    let tile = |rows: usize, width: usize| rows.saturating_mul(QUERIES * width);
    let row = |elements: usize| elements.saturating_mul(4).next_multiple_of(LINE).saturating_add(LINE);
    let converted = |pack: Option<RowPack>, row: usize| pack.map_or(0, |_| row.saturating_mul(KEYS));
    let typed = |kernel: Option<Kernel1>, rows: usize| kernel.map_or(0, |_| tile(rows, 2));
    let (key_row, value_row) = (row(depth), row(value_columns));
    let result_program = take(phase.result.nest.program.scratch);
    let panels = QUERIES.div_ceil(lanes);
    let queries = take(phase.queries.panel_bytes(depth).saturating_mul(panels));
    let keys = take(converted(phase.keys, key_row));
    let values = take(converted(phase.values, value_row));
    let scores = take(tile(KEYS, 4));
    let weights = take(tile(KEYS, 4));
    let typed_scores = take(typed(phase.round_scores, KEYS));
    let typed_logits = take(typed(phase.widen_logits, KEYS));
    let programmed = |bytes: usize| if phase.weights.is_some() { bytes } else { 0 };
    let weights_program = take(phase.weights.as_ref().map_or(0, |weights| weights.nest.program.scratch));
    let typed_weights = take(programmed(tile(KEYS, 4)));
    let typed_factors = take(programmed(tile(KEYS, 4)));
    let factors = take(programmed(tile(KEYS, 4)));
    let result = take(tile(value_columns, 4));
    let typed_result = take(typed(phase.result.round, value_columns));
    let pack = take(pack::SCRATCH);
    AttentionScratch {
        result_program,
        queries,
        keys,
        key_row,
        values,
        value_row,
        scores,
        weights,
        typed_scores,
        typed_logits,
        weights_program,
        typed_weights,
        typed_factors,
        factors,
        result,
        typed_result,
        pack,
        end: end.next_multiple_of(LINE),
    }
}
