//! Blocks of queries that begin where sequences do: the mask that allows them, and nests whose loops go token
//! by token.

use super::scores::is_copy;
use super::shape::Shape;
use crate::compile::elementwise::{DriverSpace, ShapedGroup};
use crate::compile::phases::PlanBuilder;
use crate::error::Result;
use crate::plan::{
    AttentionCore, BlockList, ClassifyPhase, FewQueries, LoopNest, MaskExpr, MaskNode, MaskOp, Phase,
    RaggedPhase, Traversal, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::function::{Binary, Comparison, Logic};

/// A mask that gives each query one range of keys, read from tensors.
pub(super) struct RangeMask {
    mask: ClassifyPhase,
    /// The computation of the range of a query, and the nodes of its first key and of its end.
    nodes: Vec<MaskNode>,
    range: [usize; 2],
}

impl RangeMask {
    /// The mask by whose ranges of keys blocks of queries begin where sequences do; `None` for blocks of a
    /// grid. A plan that could have such blocks says why it does not. The logits are made `from` a value.
    pub(super) fn taken(
        plan: &mut PlanBuilder<'_>,
        shape: &Shape,
        is_integer: bool,
        from: ValueId,
    ) -> Option<Self> {
        let found = Self::find(plan, shape)?.and_then(|mask| {
            R::ConvertedWeights.unless(shape.weights.is_none())?;
            R::OperandForm.unless(!is_integer)?;
            R::ComputedLogits.unless(plan.group().without_masks(from, shape.logits).is_some())?;
            Ok(mask)
        });
        plan.taken(FastForm::Ragged, shape.roles.softmax, found)
    }

    /// The mask of the scores; `None` if no tensor gives queries ranges of keys. An error says why blocks
    /// that begin with sequences are of no use all the same.
    fn find(plan: &PlanBuilder<'_>, shape: &Shape) -> Option<Result<Self, FallbackReason>> {
        let mask = plan.mask(shape.classified(false, &[]))?;
        let expr = &mask.expr;
        let (cond, range) = (0..expr.nodes.len()).find_map(|node| {
            let range = range_of(expr, node, shape)?;
            range.iter().any(|&of| reads_elements(expr, of)).then_some((node, range))
        })?;
        let decides = decides_alone(expr, cond) && !reads_keys(expr, shape.key_axis);
        let mut nodes = Vec::new();
        let range = range.map(|node| copied(expr, node, &mut nodes));
        Some(R::OtherMasks.unless(decides).map(|()| Self { mask, nodes, range }))
    }

    /// Adds the phase that finds the blocks, and gives their lists.
    pub(super) fn add(self, plan: &mut PlanBuilder<'_>, shape: &Shape, few: FewQueries) -> BlockList {
        let Self { mask, nodes, range } = self;
        let [queries, keys] = [shape.query_axis, shape.key_axis].map(|axis| shape.count(axis));
        let list = BlockList { buffer: mask.table, queries, keys, few };
        let list = BlockList { buffer: plan.buffer(list.bytes()), ..list };
        let mask = ClassifyPhase { table: list.buffer, ..mask };
        plan.push(Phase::Ragged(Box::new(RaggedPhase { mask, nodes, range, list })), 0, false);
        list
    }
}

/// The nodes of the first key and of the end of each query's range, if a node is the condition that a key
/// lies in it.
fn range_of(expr: &MaskExpr, cond: usize, shape: &Shape) -> Option<[usize; 2]> {
    let node = &expr.nodes[cond];
    let (MaskOp::Logic(Logic::And), &[x, y]) = (&node.op, &node.operands[..]) else { return None };
    let (mut first, mut end) = (None, None);
    for compared in [x, y] {
        let node = &expr.nodes[compared];
        let (&MaskOp::Compare(comparison), &[left, right]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        match comparison {
            Comparison::GreaterEqual if is_key(expr, left, shape) => first = Some(right),
            Comparison::LessEqual if is_key(expr, right, shape) => first = Some(left),
            Comparison::Less if is_key(expr, left, shape) => end = Some(right),
            Comparison::Greater if is_key(expr, right, shape) => end = Some(left),
            _ => return None,
        }
    }
    let range = [first?, end?];
    range.iter().all(|&node| is_of_query(expr, node, shape.query_axis)).then_some(range)
}

/// True if a node is the number of the key. The number of a key alone does not grow.
fn is_key(expr: &MaskExpr, node: usize, shape: &Shape) -> bool {
    let MaskNode { op, data_type, .. } = &expr.nodes[node];
    let MaskOp::Index { first: 0, steps } = op else { return false };
    let grows = |axis: usize| axis == shape.key_axis && shape.count(axis) > 1;
    let is_step = |(axis, &step): (usize, &i64)| step == i64::from(grows(axis));
    *data_type == DataType::S32 && steps.iter().enumerate().all(is_step)
}

/// True if a node is a number in s32 for each query, the same at all places, which the phase can compute.
fn is_of_query(expr: &MaskExpr, node: usize, query_axis: usize) -> bool {
    let MaskNode { op, data_type, operands, reads_score, varies } = &expr.nodes[node];
    let is_computed = match op {
        MaskOp::Number(number) => f64::from(*number as i32) == *number,
        MaskOp::Index { .. } | MaskOp::Element(_) => true,
        MaskOp::Binary(Binary::Add | Binary::Subtract | Binary::Minimum | Binary::Maximum) => {
            operands.len() == 2
        }
        _ => false,
    };
    is_computed
        && *data_type == DataType::S32
        && !reads_score
        && varies & !(1 << query_axis) == 0
        && operands.iter().all(|&operand| is_of_query(expr, operand, query_axis))
}

fn reads_elements(expr: &MaskExpr, node: usize) -> bool {
    let MaskNode { op, operands, .. } = &expr.nodes[node];
    matches!(op, MaskOp::Element(_)) || operands.iter().any(|&operand| reads_elements(expr, operand))
}

/// True if the whole mask is that scores without the condition are −∞.
fn decides_alone(expr: &MaskExpr, cond: usize) -> bool {
    let Some(root) = expr.nodes.last() else { return false };
    let (MaskOp::Select, &[of_root, _, filled]) = (&root.op, &root.operands[..]) else { return false };
    let selects = expr.nodes.iter().filter(|node| matches!(node.op, MaskOp::Select)).count();
    let is_masked = matches!(expr.nodes[filled].op, MaskOp::Number(f64::NEG_INFINITY));
    of_root == cond && selects == 1 && is_masked
}

/// True if elements of a tensor differ from key to key, which may mask some.
fn reads_keys(expr: &MaskExpr, key_axis: usize) -> bool {
    let varies = |node: &MaskNode| node.varies & 1 << key_axis != 0;
    expr.nodes.iter().any(|node| matches!(node.op, MaskOp::Element(_)) && varies(node))
}

/// Copies a node behind its operands, and gives its place.
fn copied(expr: &MaskExpr, node: usize, nodes: &mut Vec<MaskNode>) -> usize {
    let node = &expr.nodes[node];
    let operands = node.operands.iter().map(|&operand| copied(expr, operand, nodes)).collect();
    let node = MaskNode { operands, ..node.clone() };
    if let Some(place) = nodes.iter().position(|other| *other == node) {
        return place;
    }
    nodes.push(node);
    nodes.len() - 1
}

/// The program that makes the logits from scores that no mask masks, with loops that go token by token.
pub(super) fn program_by_tokens(
    plan: &mut PlanBuilder<'_>,
    shape: &Shape,
    space: &DriverSpace,
    from: ValueId,
    without_masks: Option<&ShapedGroup>,
) -> Result<LoopNest> {
    let nest = match without_masks {
        Some(group) if !is_copy(group, shape.logits, from) => {
            let supplied = (from, AttentionCore::SCORES);
            plan.unmasked_program(space, group, supplied, shape.logits, AttentionCore::LOGITS)?
        }
        _ => None,
    };
    let mut nest = nest.unwrap_or_else(|| space.empty_nest());
    by_tokens(&mut nest);
    Ok(nest)
}

/// Has loops over blocks go token by token; the driver says how many tokens a block has.
pub(super) fn by_tokens(nest: &mut LoopNest) {
    for (index, tile, tokens) in [
        (nest.row_blocks, nest.tile.rows, nest.space.rows),
        (nest.column_blocks, nest.tile.columns, nest.space.columns),
    ] {
        let l = &mut nest.loops[index];
        l.extent = tokens;
        l.strides.iter_mut().for_each(|stride| *stride /= tile as isize);
    }
    // Rows of a narrow block have gaps between them.
    for step in nest.program.steps.iter_mut().filter(|step| step.traversal == Traversal::Flat) {
        step.traversal = Traversal::RowByRow;
    }
}
