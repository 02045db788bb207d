//! Lowers attention to one phase: two products with a SoftMax between them, and the pointwise ops before,
//! between and behind them.
//!
//! [`Shape::new`] checks whether the ops have shapes that the phase runs: the SoftMax goes along the keys,
//! scores and weights are no outputs, and all operands of a tile are strided. Any other partition runs its
//! products and its SoftMax one after another, through internal buffers.

use super::decode::{self, FewOnList};
use super::forms::Forms;
use super::integers::{self, IntegerOperands};
use super::operands::TokenOperands;
use super::pages::paged_layout;
use super::ragged::{RangeMask, program_by_tokens};
use super::result::{ResultBlocks, result, results};
use super::scores::{BooleanMask, ScaledScores, is_copy};
use super::shape::{CoreParts, Shape, round, widen};
use crate::compile::arena::{Arena, padded_row};
use crate::compile::elementwise::{DriverSpace, ShapedGroup};
use crate::compile::machine::Machine;
use crate::compile::phases::PlanBuilder;
use crate::compile::quantized_tokens::quantized_layout;
use crate::compile::shaped_partition::ShapedPartition;
use crate::compile::{gemm, memory};
use crate::error::{CompileFault, Error, Result};
use crate::kernels::Extent;
use crate::kernels::attention::{AttentionKernels, QUAD, QUERIES, QuadKernels};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::Kernel1;
use crate::partition::matches::AttentionRoles;
use crate::plan::{
    AttentionCore, AttentionPhase, AttentionResult, AttentionScratch, CLASS_PART, DECODE_ROWS, FewQueries,
    IntegerProducts, IntegerScratch, KEYS, LoopNest, Phase, RaggedTiles, ValueId, ValueProduct,
    WeightsProgram,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FastForm};

/// Adds the phase, or those of products and a SoftMax one after another.
pub(in crate::compile) fn add(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    (softmax, roles): (usize, Result<AttentionRoles, FallbackReason>),
    machine: Machine,
) -> Result<()> {
    let shape = roles.and_then(|roles| Shape::new(plan, roles));
    match plan.taken(FastForm::Attention, softmax, shape) {
        Some(shape) => add_phase(plan, &shape, machine),
        None => gemm::add_anchors(shaped, plan, 0..shaped.group.anchors.len(), machine),
    }
}

/// Adds the phase.
fn add_phase(plan: &mut PlanBuilder<'_>, shape: &Shape, machine: Machine) -> Result<()> {
    let integers = integers::find(plan, shape, machine);
    let operands = match &integers {
        Some(IntegerOperands { stored, .. }) => TokenOperands::of_bytes(plan, shape, stored)?,
        None => TokenOperands::new(plan, shape)?,
    };
    let forms = Forms::new(plan, shape, &operands, integers.is_some(), machine);
    if shape.count(shape.query_axis) <= DECODE_ROWS
        && plan.taken(FastForm::Decode, shape.roles.softmax, decode::fits(shape, &operands)).is_some()
    {
        let mask = RangeMask::taken(plan, shape, integers.is_some(), shape.scores);
        return decode::add(plan, shape, operands, mask, (machine.level, forms));
    }
    let tiles = Tiles { shape, forms, machine };
    tiles.add(plan, operands, integers.map(|of| of.products))
}

/// The scores of tiles in which no mask masks anything.
struct Unmasked {
    /// The group without masks, if there are any.
    group: Option<ShapedGroup>,
    /// The sums with masks that the group leaves out, as they add 0 there.
    sums_left_out: Vec<ValueId>,
    /// The mask that the driver applies, if it is the only one.
    mask: Option<BooleanMask>,
}

/// Makes the phase that goes through tiles of scores.
struct Tiles<'a> {
    shape: &'a Shape,
    forms: Forms,
    machine: Machine,
}

impl Tiles<'_> {
    /// Adds the phase, and the one for few queries beside it.
    fn add(
        &self,
        plan: &mut PlanBuilder<'_>,
        operands: TokenOperands,
        integers: Option<IntegerProducts>,
    ) -> Result<()> {
        let Self { shape, machine, .. } = *self;
        let (phase, few) = self.phase(plan, &operands, integers)?;
        plan.push(Phase::Attention(Box::new(phase)), shape.flops(), true);
        match few {
            Some(few) => decode::add_beside(plan, shape, operands, few, (machine.level, self.forms)),
            None => Ok(()),
        }
    }

    /// The phase, and what is left to the one for few queries.
    fn phase(
        &self,
        plan: &mut PlanBuilder<'_>,
        operands: &TokenOperands,
        integers: Option<IntegerProducts>,
    ) -> Result<(AttentionPhase, Option<FewOnList>)> {
        let Self { shape, forms, machine } = *self;
        let tile = self.tile();
        let types = operands.types();
        let is_integer = integers.is_some();
        let factors: &[DataType] =
            if is_integer { &[DataType::F32, DataType::Bf16] } else { &[DataType::F32] };
        let scaled = ScaledScores::find(plan, shape.scores, factors);
        let from = scaled.as_ref().map_or(shape.scores, |scaled| scaled.value);
        let range_mask = RangeMask::taken(plan, shape, is_integer, from);
        let Unmasked { group, sums_left_out, mask } = self.unmasked(plan, from, range_mask.is_some());
        let (nest, unmasked) = match range_mask {
            None => self.programs(plan, from, group.as_ref())?,
            Some(_) => {
                let space = self.space(plan, [shape.scores, shape.logits]);
                (program_by_tokens(plan, shape, &space, from, group.as_ref())?, None)
            }
        };
        let weights = if is_integer { None } else { self.weights(plan)? };
        let of_block = ResultBlocks { queries: tile.columns, steps: [1, QUERIES] };
        let (result, of_few) = match &range_mask {
            None => (result(plan, shape, of_block)?, None),
            Some(_) => self.ragged_results(plan, operands, of_block)?,
        };
        let steps = if range_mask.is_some() { [1, 1] } else { [tile.columns, tile.rows] };
        let attached = |nest: LoopNest| {
            let blocks = [nest.column_blocks, nest.row_blocks];
            operands.attach(shape, nest, blocks, steps)
        };
        let mut program = attached(nest);
        let unmasked = unmasked.map(attached);
        let factor = scaled.map(|scaled| scaled.attach(&mut program.nest));
        let packs = self.packs(operands).ok_or_else(|| self.refuse(plan))?;
        let value_product = self.value_product(integers).ok_or_else(|| self.refuse(plan))?;
        let product = GemmKernel::new(machine.level, forms.scores);
        let divides = can_leave_out_parts(product) && value_product.kernel().is_some_and(can_leave_out_parts);
        let score_bound = operands.score_bound(shape).filter(|_| !is_integer);
        let few = if of_few.is_some() { FewQueries::Beside } else { FewQueries::Nowhere };
        let ragged = range_mask.map(|mask| RaggedTiles { list: mask.add(plan, shape, few), divides });
        let few = of_few.zip(ragged).map(|(result, RaggedTiles { list, .. })| FewOnList { list, result });
        let classes = match ragged {
            None => plan.classify(shape.classified(divides, &sums_left_out), score_bound),
            Some(_) => None,
        };
        let mask = mask.filter(|_| unmasked.is_some() && classes.is_some());
        let mask = mask.map(|mask| mask.attach(shape, &mut program.nest, [tile.rows, tile.columns]));
        let pages = operands.pages();
        let (quantized, is_exact) = (operands.quantized.clone(), is_integer);
        let parts = CoreParts { program, unmasked, result, quantized, pages, is_exact, classes };
        let core = shape.core(plan, parts).ok_or_else(|| self.refuse(plan))?;
        let keeps_values = ragged.is_none() && shape.count(shape.query_axis) > QUERIES;
        let layout = scratch_layout(
            &core,
            product.panel_columns(),
            &packs,
            (&value_product, keeps_values),
            weights.as_ref(),
        );
        let phase = AttentionPhase {
            core,
            types,
            product,
            factor,
            mask,
            ragged,
            value_product,
            kernels: AttentionKernels::new(machine.level),
            queries: packs.queries,
            keys: packs.keys,
            values: packs.values,
            weights,
            layout,
        };
        Ok((phase, few))
    }

    /// The results of blocks that begin with sequences, and of their few queries, if these are a phase
    /// beside.
    fn ragged_results(
        &self,
        plan: &mut PlanBuilder<'_>,
        operands: &TokenOperands,
        of_block: ResultBlocks,
    ) -> Result<(AttentionResult, Option<AttentionResult>)> {
        let Self { shape, .. } = self;
        if decode::fits_beside(plan, shape, operands) {
            let [result, of_few] = results(plan, shape, [of_block, decode::blocks(shape)], true)?;
            return Ok((result, Some(of_few)));
        }
        let [result] = results(plan, shape, [of_block], true)?;
        Ok((result, None))
    }

    /// The group without masks. Sums stay beside a mask that the driver applies, and where blocks follow
    /// sequences, as all tiles take one program there.
    fn unmasked(&self, plan: &mut PlanBuilder<'_>, from: ValueId, is_ragged: bool) -> Unmasked {
        let logits = self.shape.logits;
        let group = plan.group().without_masks(from, logits);
        if is_ragged {
            return Unmasked { group, sums_left_out: Vec::new(), mask: None };
        }
        let mask = group.as_ref().and_then(|_| BooleanMask::find(plan, self.shape, from));
        let without_sums = match mask {
            None => plan.group().without_added_masks(from, logits),
            Some(_) => None,
        };
        match without_sums {
            Some((group, sums_left_out)) => Unmasked { group: Some(group), sums_left_out, mask },
            None => Unmasked { group, sums_left_out: Vec::new(), mask },
        }
    }

    /// The program that makes the logits from scores that no mask masks; `None` if there are no masks.
    fn unmasked_program(
        &self,
        plan: &mut PlanBuilder<'_>,
        space: &DriverSpace,
        from: ValueId,
        without_masks: Option<&ShapedGroup>,
    ) -> Result<Option<LoopNest>> {
        let logits = self.shape.logits;
        match without_masks {
            None => Ok(None),
            Some(group) if is_copy(group, logits, from) => Ok(Some(space.empty_nest())),
            Some(group) => {
                let supplied = (from, AttentionCore::SCORES);
                plan.unmasked_program(space, group, supplied, logits, AttentionCore::LOGITS)
            }
        }
    }

    fn refuse(&self, plan: &PlanBuilder<'_>) -> Error {
        plan.refuse(CompileFault::Unsupported("no kernel runs attention on these types".into()))
    }

    /// Keys and queries of a tile.
    fn tile(&self) -> Extent {
        let Self { shape, .. } = self;
        Extent {
            rows: shape.count(shape.key_axis).min(KEYS),
            columns: shape.count(shape.query_axis).min(QUERIES),
        }
    }

    /// The space of programs on tiles, with the slots of a value that is taken and of one that is made.
    fn space(&self, plan: &PlanBuilder<'_>, values: [ValueId; 2]) -> DriverSpace {
        let slot = |width: usize| ((QUERIES * width) as isize, width as isize);
        let axes = [self.shape.key_axis, self.shape.query_axis].map(Some);
        let slots = values.map(|value| slot(width_of(plan, value))).into();
        DriverSpace {
            rows_innermost: true,
            overwrites_results: true,
            ..DriverSpace::new(self.shape.dims.clone(), axes, self.tile(), slots)
        }
    }

    /// The program that makes the logits from scores, and the same without masks.
    fn programs(
        &self,
        plan: &mut PlanBuilder<'_>,
        from: ValueId,
        without_masks: Option<&ShapedGroup>,
    ) -> Result<(LoopNest, Option<LoopNest>)> {
        let Self { shape, .. } = self;
        let space = self.space(plan, [shape.scores, shape.logits]);
        if shape.logits == from {
            return Ok((space.empty_nest(), None));
        }
        let supplied = (from, AttentionCore::SCORES);
        let unmasked = self.unmasked_program(plan, &space, from, without_masks)?;
        Ok((plan.slot_program(&space, &[supplied], shape.logits, AttentionCore::LOGITS)?, unmasked))
    }

    /// The program between the SoftMax and the second product, if there is one.
    fn weights(&self, plan: &mut PlanBuilder<'_>) -> Result<Option<WeightsProgram>> {
        let Some([from, to]) = self.shape.weights else { return Ok(None) };
        let space = self.space(plan, [from, to]);
        let supplied = [(from, AttentionCore::SCORES)];
        let nest = plan.slot_program(&space, &supplied, to, AttentionCore::LOGITS)?;
        let [of_weights, of_factors] = [from, to].map(|value| plan.group().values[value].data_type);
        let kernels = round(plan.level, of_weights).zip(widen(plan.level, of_factors));
        let (round, widen) = kernels.ok_or_else(|| self.refuse(plan))?;
        let widths = [from, to].map(|value| width_of(plan, value));
        Ok(Some(WeightsProgram { nest, round, widen, widths }))
    }

    /// The kernels that bring the operands to the form of the products; `None` if there are none.
    fn packs(&self, operands: &TokenOperands) -> Option<Packs> {
        let level = self.machine.level;
        let form = self.forms.scores;
        let [of_queries, of_keys, of_values] = operands.types();
        let to_f32 = |data_type: DataType| match data_type {
            DataType::F32 => Some(None),
            other => RowPack::new(level, other, DataType::F32).map(Some),
        };
        let is_integer = form == integers::FORM;
        let keys = match form.is_in_pairs() {
            _ if is_integer => None,
            true if operands.keys.element == 2 || self.shape.depth == 1 => None,
            true => Some(RowPack::new(level, DataType::Bf16, DataType::Bf16)?),
            false => to_f32(of_keys)?,
        };
        Some(Packs {
            queries: PackPanel::new(level, of_queries, form, self.tile().columns)?,
            keys,
            values: if is_integer { None } else { to_f32(of_values)? },
        })
    }

    /// The product of weights and values; `None` if no kernel takes their types.
    fn value_product(&self, integers: Option<IntegerProducts>) -> Option<ValueProduct> {
        let level = self.machine.level;
        if let Some(integers) = integers {
            return Some(ValueProduct::Integers(Box::new(integers)));
        }
        let Some(form) = self.forms.values else {
            return Some(ValueProduct::F32(GemmKernel::new(level, Form::F32)));
        };
        Some(ValueProduct::Pairs {
            kernel: GemmKernel::new(level, form),
            weights: PackPanel::new(level, DataType::F32, form, QUERIES)?,
            values: RowPack::new(level, DataType::Bf16, DataType::Bf16)?,
        })
    }
}

/// Bytes of an element of a value.
fn width_of(plan: &PlanBuilder<'_>, value: ValueId) -> usize {
    plan.group().values[value].data_type.size().unwrap_or(4)
}

/// The kernels that bring operands to the form that the products read.
struct Packs {
    queries: PackPanel,
    keys: Option<RowPack>,
    values: Option<RowPack>,
}

/// The layout of the scratch of a thread. `lanes` are the columns of a panel of the product of scores. Packed
/// values may be kept if several blocks of queries read them.
fn scratch_layout(
    core: &AttentionCore,
    lanes: usize,
    packs: &Packs,
    (value_product, keeps_values): (&ValueProduct, bool),
    weights_program: Option<&WeightsProgram>,
) -> AttentionScratch {
    let unmasked = core.unmasked.as_ref().map_or(0, |unmasked| unmasked.nest.program.scratch);
    let mut arena = Arena::behind(core.nest.program.scratch.max(unmasked));
    let mut take = |bytes: usize| arena.take(bytes);
    let (depth, value_columns) = (core.depth, core.value_columns);
    let [of_keys, of_values] = [0, 1].map(|operand| core.quantized[operand].is_some());
    let converted = |pack: Option<RowPack>, is_quantized: bool, row: usize| match pack {
        None if !is_quantized => 0,
        _ => row.saturating_mul(KEYS),
    };
    let typed = |kernel: Option<Kernel1>, rows: usize| kernel.map_or(0, |_| tile_bytes(rows, 2));
    let is_integer = matches!(value_product, ValueProduct::Integers(_));
    let key_row = padded_row(if is_integer { depth.div_ceil(QUAD) } else { depth });
    let value_row = padded_row(value_columns);
    let result_program = take(core.result.nest.program.scratch);
    let queries = take(packs.queries.panel_bytes(depth).saturating_mul(QUERIES.div_ceil(lanes)));
    let keys = take(converted(packs.keys, of_keys || is_integer, key_row));
    let values = take(converted(packs.values, of_values, value_row));
    let key_blocks = core.nest.loops[core.nest.row_blocks].extent;
    let [of_values, packed_weights] = packed_bytes(value_product, value_columns);
    let all_values = of_values.saturating_mul(key_blocks);
    let is_kept = keeps_values
        && matches!(value_product, ValueProduct::Pairs { .. })
        && core.pages[1].is_none()
        && memory::keeps_packed_values(all_values);
    let packed_values = take(if is_kept { all_values } else { of_values });
    let kept_values = is_kept.then(|| take(key_blocks * size_of::<usize>()));
    let packed_weights = take(packed_weights);
    let scores = take(tile_bytes(KEYS, 4));
    let weights = take(tile_bytes(KEYS, 4));
    let typed_scores = take(typed(core.round_scores, KEYS));
    let typed_logits = take(typed(core.widen_logits, KEYS));
    let programmed = |bytes: usize| if weights_program.is_some() { bytes } else { 0 };
    let weights_scratch = take(weights_program.map_or(0, |weights| weights.nest.program.scratch));
    let [typed_weights, typed_factors, factors] = [programmed(tile_bytes(KEYS, 4)); 3].map(&mut take);
    let all_keys = tile_bytes(KEYS, 4).saturating_mul(key_blocks);
    let keeps = (weights_program.is_some() || is_integer) && memory::keeps_logits(all_keys);
    let stored_weights = keeps.then(|| take(all_keys));
    let integers = is_integer.then(|| integer_layout(&mut take, value_columns, key_blocks));
    let result = take(tile_bytes(value_columns, 4));
    let typed_result = take(typed(core.result.round, value_columns));
    let pack = take(pack::SCRATCH);
    let quantized = core.quantized.each_ref().map(|tokens| quantized_layout(tokens.as_deref(), &mut arena));
    let paged = paged_layout(core, Some(KEYS), &mut arena);
    AttentionScratch {
        result_program,
        queries,
        keys,
        key_row,
        values,
        value_row,
        packed_values,
        kept_values,
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
        paged,
        end: arena.bytes(),
    }
}

/// Bytes of a tile of rows of one element for each query.
fn tile_bytes(rows: usize, width: usize) -> usize {
    rows.saturating_mul(QUERIES * width)
}

/// Bytes of packed values and of packed weights; 0 where a product reads neither.
fn packed_bytes(value_product: &ValueProduct, value_columns: usize) -> [usize; 2] {
    match value_product {
        ValueProduct::F32(_) => [0, 0],
        ValueProduct::Integers(_) => {
            [QuadKernels::value_row(value_columns).saturating_mul(KEYS / QUAD), KEYS * QUERIES]
        }
        ValueProduct::Pairs { weights, .. } => {
            let panels = QUERIES.div_ceil(weights.columns());
            let values = value_columns.saturating_mul(AttentionPhase::PACKED_VALUE_ROW);
            [values, weights.panel_bytes(KEYS).saturating_mul(panels)]
        }
    }
}

/// The layout of the data that products of integers need.
fn integer_layout(
    take: &mut impl FnMut(usize) -> usize,
    value_columns: usize,
    key_blocks: usize,
) -> IntegerScratch {
    IntegerScratch {
        scale: take(4),
        query_sums: take(4 * QUERIES),
        subtracted: take(4 * QUERIES),
        key_sums: take(4 * KEYS),
        value_sums: take(QuadKernels::value_row(value_columns)),
        maxima: take((4 * QUERIES).saturating_mul(key_blocks)),
    }
}

/// True if the products of a kernel may begin with any part of a tile of scores.
fn can_leave_out_parts(kernel: GemmKernel) -> bool {
    let columns = kernel.panel_columns();
    matches!(kernel.form(), Form::F32 | Form::Bf16Pairs)
        && (columns == QUERIES || CLASS_PART.is_multiple_of(columns))
}

#[cfg(test)]
mod tests;
