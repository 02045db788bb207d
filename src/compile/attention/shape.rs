//! The values and the axes of attention.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::compile::elementwise::ShapedGroup;
use crate::compile::paged::loaded;
use crate::compile::phases::{ClassifiedScores, PlanBuilder};
use crate::graph::infer;
use crate::kernels::pointwise::{Kernel1, convert};
use crate::partition::matches::AttentionRoles;
use crate::plan::{
    AttentionCore, AttentionResult, ClassTable, PageTable, QuantizedTokens, ScoreProgram, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::kind::{Attr, Level};
use crate::types::shape::{Dims, SaturatingProduct};

/// The fewest queries of a head that make a block if heads share keys and values. Fewer make one block with
/// the same queries of the other heads.
const MIN_BLOCK_QUERIES: usize = 16;

/// The values and the axes of attention. Axes count those of the scores.
pub(super) struct Shape {
    pub(super) roles: AttentionRoles,
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
    /// The last column that enters the SoftMax, if it has no key.
    pub(super) sinks: Option<ValueId>,
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

/// The parts of a phase of attention that its core takes over.
pub(super) struct CoreParts {
    /// The program that makes the logits, and the same without masks.
    pub(super) program: ScoreProgram,
    pub(super) unmasked: Option<ScoreProgram>,
    /// The store of the result.
    pub(super) result: AttentionResult,
    /// The dequantisations of keys and of values.
    pub(super) quantized: [Option<Arc<QuantizedTokens>>; 2],
    /// How tables lead to keys and values that lie in pages.
    pub(super) pages: [Option<PageTable>; 2],
    /// True if scores are exact sums in f32, which only a program needs in their type.
    pub(super) is_exact: bool,
    /// The classes of tiles, if any are masked.
    pub(super) classes: Option<ClassTable>,
}

/// Which operands lie transposed.
pub(super) struct Transposes {
    pub(super) queries: bool,
    pub(super) keys: bool,
    pub(super) values: bool,
}

impl Shape {
    /// The values of ops that have these roles, if the phase runs their shapes.
    pub(super) fn new(plan: &PlanBuilder<'_>, roles: AttentionRoles) -> Result<Self, FallbackReason> {
        let group = plan.group();
        let ops = [roles.scores, roles.softmax, roles.result];
        let [Some(first), Some(softmax), Some(second)] = ops.map(|op| group.anchor(op)) else {
            return Err(R::OtherOps);
        };
        let [first, softmax, second] = [first, softmax, second].map(|anchor| &group.anchors[anchor]);
        let [first_op, softmax_op, second_op] = ops.map(|op| plan.op(op));
        let (scores, result) = (first.outputs[0], second.outputs[0]);
        let (entered, left) = (softmax.inputs[0], softmax.outputs[0]);
        let (logits, weights, sinks) = match roles.sinks {
            None => (entered, left, None),
            Some(slice) => {
                let &[logits, sinks] = &group.operands(entered)[..] else { return Err(R::ShapeOfScores) };
                (logits, group.results[slice], Some(sinks))
            }
        };
        let is_column = sinks.is_none_or(|sinks| group.values[sinks].dims.last() == Some(&1));
        let stats = softmax.outputs.get(1).copied().filter(|stats| group.outputs.contains(stats));
        let dims = &group.values[scores].dims;
        let rank = dims.len();
        let result_dims = &group.values[result].dims;
        let is_along_keys = || infer::resolved_axis(softmax_op, dims).is_ok_and(|axis| axis == rank - 1);
        R::OperandForm.unless(rank >= 2)?;
        let are_alike = [logits, weights].iter().all(|&value| group.values[value].dims == *dims);
        R::ShapeOfScores.unless(is_column && are_alike)?;
        R::SoftmaxAxis.unless(is_along_keys())?;
        R::ShapeOfResult.unless(result_dims.len() == rank && result_dims[..rank - 1] == dims[..rank - 1])?;
        let operands = [first.inputs[0], first.inputs[1], second.inputs[1]];
        let is_empty = |value: ValueId| group.values[value].dims.contains(&0);
        R::NoElements.unless(![scores, result].into_iter().chain(operands).any(is_empty))?;
        R::OperandForm.unless(are_matrices(plan, operands))?;
        let factors = second.inputs[0];
        let changed = roles.computes_weights.then_some([weights, factors]);
        let is_made = changed.is_none() || plan.is_tile_program(dims, &[weights], factors);
        R::ComputedWeights.unless(is_made)?;
        // No output needs scores, weights, or what is computed from them.
        let is_hidden = group.outputs.iter().all(|&output| {
            Some(output) == stats || [scores, left].iter().all(|&value| !plan.depends(output, value, &[]))
        });
        R::InnerUses.unless(is_hidden)?;
        R::OperandForm.unless(sinks.is_none_or(|sinks| plan.is_computable(sinks, &[])))?;
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
        let query_axis = block_axis(group, dims, [keys, values]);
        Ok(Self {
            roles,
            queries,
            keys,
            values,
            scores,
            logits,
            result,
            weights: changed,
            sinks,
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

    /// The scores as those whose tiles are classified. `divides` is true if the products leave out the masked
    /// parts of partial tiles.
    pub(super) fn classified<'a>(&self, divides: bool, sums_left_out: &'a [ValueId]) -> ClassifiedScores<'a> {
        ClassifiedScores {
            scores: self.scores,
            logits: self.logits,
            query_axis: self.query_axis,
            key_axis: self.key_axis,
            is_exponent: false,
            divides,
            sums_left_out,
        }
    }

    /// The part that both phases of attention have. `None` if no kernel converts scores or logits.
    pub(super) fn core(&self, plan: &PlanBuilder<'_>, parts: CoreParts) -> Option<AttentionCore> {
        let [scores, logits] = [self.scores, self.logits].map(|value| plan.group().values[value].data_type);
        let CoreParts { program, unmasked, result, quantized, pages, is_exact, classes } = parts;
        let ScoreProgram { nest, first_access } = program;
        let [round_scores, widen_logits] = match is_exact && nest.program.roots.is_empty() {
            true => [None, None],
            false => [round(plan.level, scores)?, widen(plan.level, logits)?],
        };
        // The type in memory, from which they are widened as they are read.
        let sinks = self.sinks.map(|sinks| match plan.view(sinks) {
            Some((tensor, _)) => tensor.data_type,
            None => plan.group().values[sinks].data_type,
        });
        Some(AttentionCore {
            nest,
            first_access,
            // Without classes the driver cannot tell which tiles are unmasked.
            unmasked: unmasked.filter(|_| classes.is_some()),
            depth: self.depth,
            value_columns: self.value_columns,
            quantized,
            pages,
            round_scores,
            widen_logits,
            score_width: scores.size().unwrap_or(4),
            logit_width: logits.size().unwrap_or(4),
            inf_as_zero: self.inf_as_zero,
            has_stats: self.stats.is_some(),
            sinks,
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

/// True if queries, keys and values are matrices in memory, or what pointwise ops make of such, or of a load
/// of keys or values from pages.
fn are_matrices(plan: &PlanBuilder<'_>, operands: [ValueId; 3]) -> bool {
    let loaded = loaded(plan);
    let from: [&[ValueId]; 3] = [&[], &loaded, &loaded];
    operands.into_iter().zip(from).all(|(value, loaded)| {
        plan.group().values[value].dims.len() >= 2 && plan.is_computable(value, loaded)
    })
}

/// The axis of the queries of a block: few queries of heads that share keys and values are one block.
fn block_axis(group: &ShapedGroup, dims: &Dims, shared: [ValueId; 2]) -> usize {
    let rank = dims.len();
    let is_shared = |axis: usize| {
        shared.into_iter().all(|value| {
            let own = &group.values[value].dims;
            (axis + own.len()).checked_sub(rank).is_none_or(|at| own[at] == 1)
        })
    };
    let count = |axis: usize| dims[axis] as usize;
    let shared = (0..rank - 2).filter(|&axis| is_shared(axis)).max_by_key(|&axis| count(axis));
    match shared {
        Some(axis) if count(rank - 2) < MIN_BLOCK_QUERIES && count(axis) > count(rank - 2) => axis,
        _ => rank - 2,
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
