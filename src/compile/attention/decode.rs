//! Lowers attention of few queries, which share their keys, to the phase that reads every key once.

use smallvec::smallvec;

use super::forms::Forms;
use super::operands::{TokenOperands, Tokens};
use super::pages::paged_layout;
use super::ragged::{RangeMask, program_by_tokens};
use super::result::{ResultBlocks, result, results};
use super::shape::{CoreParts, Shape};
use crate::compile::arena::Arena;
use crate::compile::elementwise::DriverSpace;
use crate::compile::phases::PlanBuilder;
use crate::compile::quantized_tokens::quantized_layout;
use crate::error::{CompileFault, Result};
use crate::kernels::attention::DecodeKernels;
use crate::kernels::gemm::pack::{self, RowPack};
use crate::kernels::gemm::{Form, StoredKernels, WIDENED_ROWS};
use crate::kernels::pointwise::Kernel1;
use crate::kernels::vector::{LANES, RowType};
use crate::kernels::{Extent, LINE};
use crate::plan::{
    AttentionCore, AttentionResult, BlockList, CHUNK, DECODE_ROWS, DecodeCore, DecodePhase, DecodeScratch,
    DecodeTokens, FewQueries, LoopNest, Phase, ScoreProgram, ValueId,
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

/// Succeeds if the phase runs what blocks that begin with sequences have few queries.
pub(super) fn fits_beside(plan: &PlanBuilder<'_>, shape: &Shape, operands: &TokenOperands) -> bool {
    let has_program = plan.group().without_masks(shape.scores, shape.logits).is_some();
    fits(shape, operands).is_ok() && has_program
}

/// The blocks of queries on a list that the phase computes, and the store of their results.
pub(super) struct FewOnList {
    pub(super) list: BlockList,
    pub(super) result: AttentionResult,
}

/// The blocks of results.
pub(super) fn blocks(shape: &Shape) -> ResultBlocks {
    let queries = shape.count(shape.query_axis).min(DECODE_ROWS);
    ResultBlocks { queries, steps: [shape.value_columns.next_multiple_of(LANES), 1] }
}

/// Iterations of the innermost outer axes that share keys and values: as many as make a group, with so many
/// queries each.
fn repeats(shape: &Shape, operands: &TokenOperands, queries: usize) -> usize {
    let mut repeats = 1;
    for &axis in shape.outer.iter().rev() {
        let count = shape.count(axis);
        let is_shared = count == 1 || operands.are_shared(axis);
        if !is_shared || repeats * count * queries > DECODE_ROWS {
            break;
        }
        repeats *= count;
    }
    repeats
}

/// Adds the phase, for all queries.
pub(super) fn add(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: TokenOperands,
    mask: Option<RangeMask>,
    kernels: (Level, Forms),
) -> Result<()> {
    let phase = match mask {
        None => {
            let result = result(plan, shape, blocks(shape))?;
            phase(plan, shape, operands, (None, result), kernels)?
        }
        Some(mask) => {
            let [result] = results(plan, shape, [blocks(shape)], true)?;
            let list = mask.add(plan, shape, FewQueries::All);
            phase(plan, shape, operands, (Some(list), result), kernels)?
        }
    };
    plan.push(Phase::Decode(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// Adds the phase beside another one, whose cost has all queries.
pub(super) fn add_beside(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: TokenOperands,
    FewOnList { list, result }: FewOnList,
    kernels: (Level, Forms),
) -> Result<()> {
    let phase = phase(plan, shape, operands, (Some(list), result), kernels)?;
    plan.push(Phase::Decode(Box::new(phase)), 0, true);
    Ok(())
}

/// The programs that make the logits, with the accesses of the operands: that with the masks and the one
/// without them, or the latter alone if a list says where they mask.
fn programs(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: &TokenOperands,
    tile: Extent,
    is_ragged: bool,
) -> Result<(ScoreProgram, Option<ScoreProgram>)> {
    let group = plan.group();
    let width = |value: ValueId| group.values[value].data_type.size().unwrap_or(4);
    let slot = |width: usize| ((CHUNK * width) as isize, width as isize);
    let space = DriverSpace::new(
        shape.dims.clone(),
        [Some(shape.query_axis), Some(shape.key_axis)],
        tile,
        smallvec![slot(width(shape.scores)), slot(width(shape.logits))],
    );
    let supplied = (shape.scores, AttentionCore::SCORES);
    let (logits, slot) = (shape.logits, AttentionCore::LOGITS);
    let without_masks = group.without_masks(shape.scores, logits);
    let (nest, unmasked) = match &without_masks {
        _ if is_ragged => {
            (program_by_tokens(plan, shape, &space, shape.scores, without_masks.as_ref())?, None)
        }
        _ if logits == shape.scores => (space.empty_nest(), None),
        None => (plan.slot_program(&space, &[supplied], logits, slot)?, None),
        Some(group) => (
            plan.slot_program(&space, &[supplied], logits, slot)?,
            plan.unmasked_program(&space, group, supplied, logits, slot)?,
        ),
    };
    let steps = if is_ragged { [1, 1] } else { [tile.rows, tile.columns] };
    let attached = |nest: LoopNest| {
        let blocks = [nest.row_blocks, nest.column_blocks];
        operands.attach(shape, nest, blocks, steps)
    };
    Ok((attached(nest), unmasked.map(attached)))
}

/// The phase, for the blocks of a list or for all queries.
fn phase(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: TokenOperands,
    (pieces, result): (Option<BlockList>, AttentionResult),
    (level, forms): (Level, Forms),
) -> Result<DecodePhase> {
    let queries = shape.count(shape.query_axis).min(DECODE_ROWS);
    let tile = Extent { rows: queries, columns: shape.count(shape.key_axis).min(CHUNK) };
    let repeats = repeats(shape, &operands, if pieces.is_some() { 1 } else { queries });
    let (program, unmasked) = programs(plan, shape, &operands, tile, pieces.is_some())?;
    let refuse = |plan: &PlanBuilder<'_>| {
        plan.refuse(CompileFault::Unsupported("no kernel runs attention on these types".into()))
    };
    let pack_queries = RowPack::new(level, operands.types()[0], DataType::F32);
    let tokens = tokens(plan, shape, &operands, (level, forms), DECODE_ROWS.min(repeats * queries));
    let of_f32 = StoredKernels::new(level, DataType::F32, false);
    let (Some(pack_queries), Some(tokens), Some(of_f32)) = (pack_queries, tokens, of_f32) else {
        return Err(refuse(plan));
    };
    let pages = operands.pages();
    let quantized = operands.quantized;
    // A bound of the scores takes as long as the scores, which are bound by the memory of the keys.
    let classified = shape.classified(false, &[]);
    let classes = if pieces.is_some() { None } else { plan.classify(classified, None) };
    let parts = CoreParts { program, unmasked, result, quantized, pages, is_exact: false, classes };
    let Some(core) = shape.core(plan, parts) else { return Err(refuse(plan)) };
    let core = DecodeCore { core, repeats, queries, pieces };
    Ok(DecodePhase {
        layout: scratch_layout(&core, &tokens),
        partials: (core.partials() > 0).then(|| plan.buffer(core.partial_bytes())),
        core,
        kernels: DecodeKernels::new(level),
        pack_queries,
        tokens,
        of_f32,
    })
}

/// How keys and values are read for so many queries; `None` if no kernel reads their type.
fn tokens(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    operands: &TokenOperands,
    (level, forms): (Level, Forms),
    rows: usize,
) -> Option<[DecodeTokens; 2]> {
    let mut read = |index: usize, of: &Tokens, columns: usize| {
        let Some(stored) = &operands.quantized[index] else {
            let kernels = StoredKernels::new(level, of.data_type, false)?;
            // Pairs take half of the instructions (decision: few-in-pairs).
            if [Some(forms.scores), forms.values][index] == Some(Form::Bf16Pairs) {
                return Some(DecodeTokens { kernels: kernels.in_pairs(), in_registers: true });
            }
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
    let of_parts = rows.saturating_mul(core.most_parts());
    let queries = take(floats(of_parts, query_row));
    // Kernels may write a vector behind the last row.
    let widened = take(floats(WIDENED_ROWS, widened).saturating_add(LINE));
    let scores = take(floats(rows, CHUNK));
    let logits = take(floats(rows, CHUNK));
    let typed_scores = take(typed(core.round_scores, CHUNK));
    let typed_logits = take(typed(core.widen_logits, CHUNK));
    let partial = take(floats(1, core.partial()));
    let result = take(floats(of_parts, value_row));
    let typed_result = take(typed(core.result.round, value_row));
    let pack = take(pack::SCRATCH);
    let quantized = core.quantized.each_ref().map(|tokens| quantized_layout(tokens.as_deref(), &mut arena));
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
