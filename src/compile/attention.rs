//! Lowers attention to one phase: two products with a SoftMax between them, and the pointwise ops before,
//! between and behind them.
//!
//! [`Shape::new`] checks whether a partition has the form that the phase runs: the SoftMax goes along the
//! keys, scores and weights are no outputs, and all operands of a tile are strided. Any other partition runs
//! its products and its SoftMax one after another, through internal buffers.

use smallvec::smallvec;

use super::attention_integers::{self, IntegerOperands};
use super::attention_scores::{BooleanMask, ScaledScores, is_copy};
use super::attention_shape::{Shape, TokenOperands, result, round, widen};
use super::elementwise::DriverSpace;
use super::machine::Machine;
use super::phases::PlanBuilder;
use super::quantized_tokens::quantized_layout;
use super::shaped_partition::ShapedPartition;
use super::{decode, gemm, memory};
use crate::compile::memory::whole_lines;
use crate::error::{CompileFault, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::attention::{AttentionKernels, QUAD, QUERIES, QuadKernels};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::Kernel1;
use crate::kernels::{Extent, LINE};
use crate::partition::Partition;
use crate::plan::{
    AttentionCore, AttentionPhase, AttentionScratch, CLASS_PART, DECODE_ROWS, IntegerScratch, KEYS, LoopNest,
    Phase, Plan, ValueId, ValueProduct, WeightsProgram,
};
use crate::types::dtype::DataType;
use crate::types::fallback::FastForm;
use crate::types::kind::OpKind;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let mut plan = PlanBuilder::new(&shaped, machine.level, machine.single_thread());
    let softmax = partition.ops().iter().position(|op| op.kind() == OpKind::SoftMax).unwrap_or_default();
    let shape = Shape::new(&shaped, &plan);
    match plan.taken(FastForm::Attention, softmax, shape) {
        Some(shape) => add(&shaped, &mut plan, &shape, machine)?,
        None => gemm::add_anchors(&shaped, &mut plan, 0..shaped.group.anchors.len(), machine)?,
    }
    plan.finish()
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
    let type_of = |value: ValueId| group.values[value].data_type;
    let unsupported = |what: &str| CompileFault::Unsupported(format!("no kernel runs attention {what}"));
    let integers = attention_integers::find(plan, shaped.partition.ops(), shape, machine);
    let operands = match &integers {
        Some(IntegerOperands { stored, .. }) => TokenOperands::of_bytes(plan, shape, stored),
        None => TokenOperands::new(plan, shape)?,
    };
    if shape.count(shape.query_axis) <= DECODE_ROWS
        && plan.taken(FastForm::Decode, shape.softmax, decode::fits(shape, &operands)).is_some()
    {
        return decode::add(plan, shape, operands, level);
    }
    let width = |value: ValueId| type_of(value).size().unwrap_or(4);

    let tile = Extent {
        rows: shape.count(shape.key_axis).min(KEYS),
        columns: shape.count(shape.query_axis).min(QUERIES),
    };
    let slot = |width: usize| ((QUERIES * width) as isize, width as isize);
    let space = DriverSpace {
        rows_innermost: true,
        overwrites_results: true,
        ..DriverSpace::new(
            shape.dims.clone(),
            [Some(shape.key_axis), Some(shape.query_axis)],
            tile,
            smallvec![slot(width(shape.scores)), slot(width(shape.logits))],
        )
    };
    let pairs = Some(Form::packed(DataType::Bf16, level, machine.features)).filter(|form| form.is_in_pairs());
    let is_bf16 = |values: [ValueId; 2]| values.iter().all(|&value| type_of(value) == DataType::Bf16);
    let types = operands.types();
    let form = pairs.filter(|_| is_bf16([shape.queries, shape.keys]) && types[..2] == [DataType::Bf16; 2]);
    let form = match integers {
        Some(_) => attention_integers::FORM,
        None => form.unwrap_or(Form::F32),
    };
    let scaled = match form {
        attention_integers::FORM => ScaledScores::find(plan, shape.scores, &[DataType::F32, DataType::Bf16]),
        _ => ScaledScores::find(plan, shape.scores, &[DataType::F32]),
    };
    let supplied = (scaled.as_ref().map_or(shape.scores, |scaled| scaled.value), AttentionCore::SCORES);
    let (nest, unmasked) = match shape.logits == supplied.0 {
        true => (space.empty_nest(), None),
        false => {
            let unmasked = match group.without_masks(supplied.0, shape.logits) {
                Some(group) if is_copy(&group, shape.logits, supplied.0) => Some(space.empty_nest()),
                _ => plan.unmasked_program(&space, supplied, shape.logits, AttentionCore::LOGITS)?,
            };
            (plan.slot_program(&space, &[supplied], shape.logits, AttentionCore::LOGITS)?, unmasked)
        }
    };
    let weights = match shape.weights.filter(|_| integers.is_none()) {
        None => None,
        Some([from, to]) => {
            let widths = [width(from), width(to)];
            let space = DriverSpace { slots: smallvec![slot(widths[0]), slot(widths[1])], ..space };
            let supplied = [(from, AttentionCore::SCORES)];
            let nest = plan.slot_program(&space, &supplied, to, AttentionCore::LOGITS)?;
            Some((nest, widths, [from, to].map(type_of)))
        }
    };

    let of_result = |width: usize| (width as isize, (QUERIES * width) as isize);
    let result = result(plan, shape, tile.columns, of_result, level)?;
    let attached = |nest: LoopNest| {
        let blocks = [nest.column_blocks, nest.row_blocks];
        operands.attach(shape, nest, blocks, [tile.columns, tile.rows])
    };
    let mut program = attached(nest);
    let unmasked = unmasked.map(attached);
    let factor = scaled.map(|scaled| scaled.attach(&mut program.nest));

    let to_f32 = |data_type: DataType| match data_type {
        DataType::F32 => Some(None),
        other => RowPack::new(level, other, DataType::F32).map(Some),
    };
    let pack_keys = match form.is_in_pairs() {
        _ if integers.is_some() => Some(None),
        true if operands.keys.element == 2 || shape.depth == 1 => Some(None),
        true => RowPack::new(level, DataType::Bf16, DataType::Bf16).map(Some),
        false => to_f32(types[1]),
    };
    let pack_values = if integers.is_some() { Some(None) } else { to_f32(types[2]) };
    let value_product =
        pairs.filter(|_| is_bf16([shape.factors, shape.values]) && types[2] == DataType::Bf16);
    let value_product = match (integers, value_product) {
        (Some(integers), _) => Some(ValueProduct::Integers(Box::new(integers.products))),
        (None, None) => Some(ValueProduct::F32(GemmKernel::new(level, Form::F32))),
        (None, Some(form)) => {
            let weights = PackPanel::new(level, DataType::F32, form, QUERIES);
            let values = RowPack::new(level, DataType::Bf16, DataType::Bf16);
            let kernel = GemmKernel::new(level, form);
            weights.zip(values).map(|(weights, values)| ValueProduct::Pairs { kernel, weights, values })
        }
    };
    let refuse = |plan: &PlanBuilder<'_>| plan.refuse(unsupported("on these types"));
    let pack_queries = PackPanel::new(level, operands.types()[0], form, tile.columns);
    let (Some(pack_queries), Some(pack_keys), Some(pack_values), Some(value_product)) =
        (pack_queries, pack_keys, pack_values, value_product)
    else {
        return Err(refuse(plan));
    };
    let weights = match weights {
        None => None,
        Some((nest, widths, [from, to])) => {
            let (Some(round), Some(widen)) = (round(level, from), widen(level, to)) else {
                return Err(refuse(plan));
            };
            Some(WeightsProgram { nest, round, widen, widths })
        }
    };
    let Some(mut core) = shape.core(plan, program, unmasked, result, operands.quantized) else {
        return Err(refuse(plan));
    };
    if form == attention_integers::FORM && core.nest.program.roots.is_empty() {
        // Nothing needs scores in their type.
        (core.round_scores, core.widen_logits) = (None, None);
    }
    let mask = match core.unmasked {
        Some(_) => BooleanMask::find(plan, shape, supplied.0),
        None => None,
    };
    let mask = mask.map(|mask| mask.attach(shape, &mut core.nest, [tile.rows, tile.columns]));
    let product = GemmKernel::new(level, form);
    if matches!(value_product, ValueProduct::F32(_)) && can_leave_out_parts(product) {
        plan.divide_tiles();
    }
    let layout = {
        let packs = Packs { queries: &pack_queries, keys: pack_keys, values: pack_values };
        scratch_layout(&core, product.panel_columns(), packs, &value_product, weights.as_ref())
    };
    let phase = AttentionPhase {
        core,
        types,
        product,
        factor,
        mask,
        value_product,
        kernels: AttentionKernels::new(level),
        queries: pack_queries,
        keys: pack_keys,
        values: pack_values,
        weights,
        layout,
    };
    plan.push(Phase::Attention(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// The kernels that bring operands to the form that the products read.
struct Packs<'a> {
    queries: &'a PackPanel,
    keys: Option<RowPack>,
    values: Option<RowPack>,
}

/// The layout of the scratch of a thread. `lanes` are the columns of a panel of the product of scores.
fn scratch_layout(
    core: &AttentionCore,
    lanes: usize,
    packs: Packs<'_>,
    value_product: &ValueProduct,
    weights_program: Option<&WeightsProgram>,
) -> AttentionScratch {
    let unmasked = core.unmasked.as_ref().map_or(0, |unmasked| unmasked.nest.program.scratch);
    let mut end = core.nest.program.scratch.max(unmasked);
    let mut take = |bytes: usize| {
        let start = whole_lines(end);
        end = start.saturating_add(bytes);
        start
    };
    let (depth, value_columns) = (core.depth, core.value_columns);
    let tile = |rows: usize, width: usize| rows.saturating_mul(QUERIES * width);
    let row = |elements: usize| whole_lines(elements.saturating_mul(4)).saturating_add(LINE);
    let [of_keys, of_values] = [0, 1].map(|operand| core.quantized[operand].is_some());
    let converted = |pack: Option<RowPack>, is_quantized: bool, row: usize| match pack {
        None if !is_quantized => 0,
        _ => row.saturating_mul(KEYS),
    };
    let typed = |kernel: Option<Kernel1>, rows: usize| kernel.map_or(0, |_| tile(rows, 2));
    let is_integer = matches!(value_product, ValueProduct::Integers(_));
    let key_row = row(if is_integer { depth.div_ceil(QUAD) } else { depth });
    let value_row = row(value_columns);
    let result_program = take(core.result.nest.program.scratch);
    let panels = QUERIES.div_ceil(lanes);
    let queries = take(packs.queries.panel_bytes(depth).saturating_mul(panels));
    let keys = take(converted(packs.keys, of_keys || is_integer, key_row));
    let values = take(converted(packs.values, of_values, value_row));
    let (packed_values, packed_weights) = match value_product {
        ValueProduct::F32(_) => (0, 0),
        ValueProduct::Integers(_) => {
            (take(QuadKernels::value_row(value_columns).saturating_mul(KEYS / QUAD)), take(KEYS * QUERIES))
        }
        ValueProduct::Pairs { weights, .. } => {
            let panels = QUERIES.div_ceil(weights.columns());
            let values = value_columns.saturating_mul(AttentionPhase::PACKED_VALUE_ROW);
            (take(values), take(weights.panel_bytes(KEYS).saturating_mul(panels)))
        }
    };
    let scores = take(tile(KEYS, 4));
    let weights = take(tile(KEYS, 4));
    let typed_scores = take(typed(core.round_scores, KEYS));
    let typed_logits = take(typed(core.widen_logits, KEYS));
    let programmed = |bytes: usize| if weights_program.is_some() { bytes } else { 0 };
    let weights_scratch = take(weights_program.map_or(0, |weights| weights.nest.program.scratch));
    let typed_weights = take(programmed(tile(KEYS, 4)));
    let typed_factors = take(programmed(tile(KEYS, 4)));
    let factors = take(programmed(tile(KEYS, 4)));
    let key_blocks = core.nest.loops[core.nest.row_blocks].extent;
    let all_keys = tile(KEYS, 4).saturating_mul(key_blocks);
    let keeps = (weights_program.is_some() || is_integer) && memory::keeps_logits(all_keys);
    let stored_weights = keeps.then(|| take(all_keys));
    let integers = is_integer.then(|| IntegerScratch {
        scale: take(4),
        query_sums: take(4 * QUERIES),
        subtracted: take(4 * QUERIES),
        key_sums: take(4 * KEYS),
        value_sums: take(QuadKernels::value_row(value_columns)),
        maxima: take((4 * QUERIES).saturating_mul(key_blocks)),
    });
    let result = take(tile(value_columns, 4));
    let typed_result = take(typed(core.result.round, value_columns));
    let pack = take(pack::SCRATCH);
    let quantized = core.quantized.each_ref().map(|tokens| quantized_layout(tokens.as_ref(), &mut take));
    AttentionScratch {
        result_program,
        queries,
        keys,
        key_row,
        values,
        value_row,
        packed_values,
        packed_weights,
        scores,
        weights,
        typed_scores,
        typed_logits,
        weights_program: weights_scratch,
        typed_weights,
        typed_factors,
        factors,
        stored_weights,
        integers,
        result,
        typed_result,
        pack,
        quantized,
        end: whole_lines(end),
    }
}

/// True if the products of a kernel may begin with any part of a tile of scores.
fn can_leave_out_parts(kernel: GemmKernel) -> bool {
    let columns = kernel.panel_columns();
    kernel.form() == Form::F32 && (columns == QUERIES || CLASS_PART.is_multiple_of(columns))
}

#[cfg(test)]
mod tests;
