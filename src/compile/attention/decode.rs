//! Lowers attention of few queries, which share their keys, to the phase that reads every key once.

use smallvec::smallvec;

use super::operands::{TokenOperands, Tokens};
use super::pages::paged_layout;
use super::result::result;
use super::shape::{CoreParts, Shape};
use crate::compile::arena::Arena;
use crate::compile::elementwise::DriverSpace;
use crate::compile::phases::PlanBuilder;
use crate::compile::quantized_tokens::quantized_layout;
use crate::error::{CompileFault, Result};
use crate::kernels::attention::DecodeKernels;
use crate::kernels::gemm::pack::{self, RowPack};
use crate::kernels::gemm::{StoredKernels, WIDENED_ROWS};
use crate::kernels::pointwise::Kernel1;
use crate::kernels::vector::{LANES, RowType};
use crate::kernels::{Extent, LINE};
use crate::plan::{
    AttentionCore, CHUNK, DECODE_ROWS, DecodeCore, DecodePhase, DecodeScratch, DecodeTokens, LoopNest, Phase,
    ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FastForm};
use crate::types::kind::Level;

/// Most queries for which a level makes f32 of each token in registers, anew for every few of them, and not
/// in rows before (decision: decode-in-registers).
fn most_rows(level: Level, is_float: bool) -> usize {
    match level {
        Level::Avx512 => DECODE_ROWS,
        Level::Portable => 0,
        _ if is_float => DECODE_ROWS,
        _ => 2,
    }
}

/// Succeeds if the phase runs attention of few queries: the elements of keys and of values lie next to each
/// other.
pub(super) fn fits(shape: &Shape, operands: &TokenOperands) -> Result<(), FallbackReason> {
    let are_rows = [&operands.keys, &operands.values].into_iter().all(|tokens| row_of(tokens).is_some());
    FallbackReason::StridedElements.unless(are_rows)?;
    FallbackReason::ComputedWeights.unless(shape.weights.is_none())
}

/// The type of elements that lie next to each other.
fn row_of(tokens: &Tokens) -> Option<RowType> {
    RowType::of(tokens.data_type).filter(|of| of.bytes() as isize == tokens.element)
}

/// Iterations of the innermost outer axes that share keys and values: as many as make a group.
fn repeats(shape: &Shape, operands: &TokenOperands) -> usize {
    let mut repeats = 1;
    for &axis in shape.outer.iter().rev() {
        let count = shape.count(axis);
        let is_shared = count == 1 || operands.are_shared(axis);
        if !is_shared || repeats * count * shape.count(shape.query_axis) > DECODE_ROWS {
            break;
        }
        repeats *= count;
    }
    repeats
}

/// Adds the phase.
pub(super) fn add(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: TokenOperands,
    level: Level,
) -> Result<()> {
    let group = plan.group();
    let width = |value: ValueId| group.values[value].data_type.size().unwrap_or(4);
    let (queries, repeats) = (shape.count(shape.query_axis), repeats(shape, &operands));
    let tile = Extent { rows: queries, columns: shape.count(shape.key_axis).min(CHUNK) };
    let slot = |width: usize| ((CHUNK * width) as isize, width as isize);
    let space = DriverSpace::new(
        shape.dims.clone(),
        [Some(shape.query_axis), Some(shape.key_axis)],
        tile,
        smallvec![slot(width(shape.scores)), slot(width(shape.logits))],
    );
    let supplied = (shape.scores, AttentionCore::SCORES);
    let nest = match shape.logits == shape.scores {
        true => space.empty_nest(),
        false => plan.slot_program(&space, &[supplied], shape.logits, AttentionCore::LOGITS)?,
    };
    let unmasked = match plan.group().without_masks(shape.scores, shape.logits) {
        Some(group) => {
            plan.unmasked_program(&space, &group, supplied, shape.logits, AttentionCore::LOGITS)?
        }
        None => None,
    };
    let value_row = shape.value_columns.next_multiple_of(LANES);
    let of_result = |width: usize| ((value_row * width) as isize, width as isize);
    let result = result(plan, shape, queries, of_result, false)?;
    let attached = |nest: LoopNest| {
        let blocks = [nest.row_blocks, nest.column_blocks];
        operands.attach(shape, nest, blocks, [tile.rows, tile.columns])
    };
    let program = attached(nest);
    let unmasked = unmasked.map(attached);

    let refuse = |plan: &PlanBuilder<'_>| {
        plan.refuse(CompileFault::Unsupported("no kernel runs attention on these types".into()))
    };
    let pack_queries = RowPack::new(level, operands.types()[0], DataType::F32);
    let tokens = tokens(plan, shape, &operands, level, repeats * queries);
    let of_f32 = StoredKernels::new(level, DataType::F32, false);
    let (Some(pack_queries), Some(tokens), Some(of_f32)) = (pack_queries, tokens, of_f32) else {
        return Err(refuse(plan));
    };
    let pages = operands.pages();
    let quantized = operands.quantized;
    // A bound of the scores takes as long as the scores, which are bound by the memory of the keys.
    let classes = shape.classify(plan, None, shape.classified(false, &[]));
    let parts = CoreParts { program, unmasked, result, quantized, pages, is_exact: false, classes };
    let Some(core) = shape.core(plan, parts) else { return Err(refuse(plan)) };
    let core = DecodeCore { core, repeats, queries };
    let phase = DecodePhase {
        layout: scratch_layout(&core, &tokens),
        partials: (core.chunks() > 1).then(|| plan.buffer(core.partial_bytes())),
        core,
        kernels: DecodeKernels::new(level),
        pack_queries,
        tokens,
        of_f32,
    };
    plan.push(Phase::Decode(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// How keys and values are read for so many queries; `None` if no kernel reads their type.
fn tokens(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: &TokenOperands,
    level: Level,
    rows: usize,
) -> Option<[DecodeTokens; 2]> {
    let mut read = |index: usize, of: &Tokens, columns: usize| {
        let Some(stored) = &operands.quantized[index] else {
            let kernels = StoredKernels::new(level, of.data_type, false)?;
            return Some(DecodeTokens { kernels, in_registers: rows <= most_rows(level, true) });
        };
        let kernels = stored.kernels;
        let has_registers = FallbackReason::CpuLevel.unless(rows <= most_rows(level, false));
        let in_registers = has_registers.and_then(|()| match index {
            0 => kernels.has_dots(columns, stored.group),
            _ => kernels.has_add_rows(columns, stored.group),
        });
        let in_registers = plan.taken(FastForm::Registers, shape.roles.softmax, in_registers).is_some();
        Some(DecodeTokens { kernels, in_registers })
    };
    Some([read(0, &operands.keys, shape.depth)?, read(1, &operands.values, shape.value_columns)?])
}

/// The layout of the scratch of a thread.
fn scratch_layout(core: &DecodeCore, tokens: &[DecodeTokens; 2]) -> DecodeScratch {
    let unmasked = core.unmasked.as_ref().map_or(0, |unmasked| unmasked.nest.program.scratch);
    let mut arena = Arena::behind(core.nest.program.scratch.max(unmasked));
    let mut take = |bytes: usize| arena.take(bytes);
    let (rows, queries) = (core.rows(), core.queries);
    let (query_row, value_row) = (core.query_row(), core.value_row());
    let widened = |operand: usize, row: usize| match tokens[operand].kernels.data_type() {
        DataType::F32 => 0,
        _ => row,
    };
    let widened = widened(0, query_row).max(widened(1, value_row));
    let typed = |kernel: Option<Kernel1>, row: usize| kernel.map_or(0, |_| queries.saturating_mul(2 * row));
    let result_program = take(core.result.nest.program.scratch);
    let floats = |rows: usize, row: usize| rows.saturating_mul(row).saturating_mul(4);
    let queries = take(floats(rows, query_row));
    // Kernels may write a vector behind the last row.
    let widened = take(floats(WIDENED_ROWS, widened).saturating_add(LINE));
    let scores = take(floats(rows, CHUNK));
    let logits = take(floats(rows, CHUNK));
    let typed_scores = take(typed(core.round_scores, CHUNK));
    let typed_logits = take(typed(core.widen_logits, CHUNK));
    let partial = take(floats(1, core.partial()));
    let result = take(floats(rows, value_row));
    let typed_result = take(typed(core.result.round, value_row));
    let pack = take(pack::SCRATCH);
    let quantized = core.quantized.each_ref().map(|tokens| quantized_layout(tokens.as_ref(), &mut arena));
    let paged = paged_layout(core, None, &mut arena);
    DecodeScratch {
        result_program,
        queries,
        widened,
        scores,
        logits,
        typed_scores,
        typed_logits,
        partial,
        result,
        typed_result,
        pack,
        quantized,
        paged,
        end: arena.bytes(),
    }
}
