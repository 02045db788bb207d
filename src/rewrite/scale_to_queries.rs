//! A factor of all keys becomes one of the queries or of the scores: there are fewer of these in a step of a
//! decoder, and a product applies a factor of its scores for nothing.
//!
//! `torch.onnx.export` multiplies queries and keys by the root of the scale each.

use super::pattern_rewriter::{PatternRewriter, Replacement, aligns_right};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// The most moves between the factor and the product.
const MAX_MOVES: usize = 8;

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let product = rewriter.op(place).filter(|op| op.kind() == OpKind::MatMul)?;
    let ([queries, keys], [scores]) = (product.inputs(), product.outputs()) else { return None };
    if queries.id() == keys.id() {
        return None;
    }
    // From the product to the factor.
    let mut moves = Vec::new();
    let mut moved = keys;
    let (scale_place, scale) = loop {
        let (place, op) = rewriter.only_producer(moved)?;
        match is_move(op) {
            true if moves.len() < MAX_MOVES => moves.push((place, op)),
            true => return None,
            false => break (place, op),
        }
        moved = &op.inputs()[0];
    };
    let (unscaled, factor) = scaled(rewriter, scale)?;
    if !matches!(unscaled.data_type(), DataType::F32 | DataType::Bf16) || !rewriter.leads_to_softmax(scores) {
        return None;
    }
    let removed = [place, scale_place].into_iter().chain(moves.iter().map(|(place, _)| *place)).collect();
    let mut added = Vec::new();
    let mut operand = unscaled.clone();
    for (_, op) in moves.iter().rev() {
        let result = rewriter.fresh(&op.outputs()[0]);
        added.push(op.with_tensors([operand], [result.clone()]));
        operand = result;
    }
    let is_stored = is_stored(rewriter, queries) && queries.data_type() == factor.data_type();
    match () {
        () if is_stored && rewriter.is_number(factor, queries) => {
            let scaled = rewriter.fresh(queries);
            added.push(scale.with_tensors([queries.clone(), factor.clone()], [scaled.clone()]));
            added.push(product.with_tensors([scaled, operand], [scores.clone()]));
        }
        () if scores.data_type() == DataType::F32 && rewriter.is_number(factor, scores) => {
            let unscaled = rewriter.fresh(scores);
            added.push(product.with_tensors([queries.clone(), operand], [unscaled.clone()]));
            added.push(scale.with_tensors([unscaled, factor.clone()], [scores.clone()]));
        }
        () => return None,
    }
    Some(Replacement { removed, added })
}

/// True if an op gives the elements of its operand other places.
fn is_move(op: &Op) -> bool {
    matches!(op.kind(), OpKind::StaticTranspose | OpKind::StaticReshape | OpKind::Reorder)
}

/// The operand of an op that is scaled by a number, and the number.
fn scaled<'a>(rewriter: &PatternRewriter<'_>, op: &'a Op) -> Option<(&'a LogicalTensor, &'a LogicalTensor)> {
    let [first, second] = op.inputs() else { return None };
    let is_by = |number: &LogicalTensor, other| rewriter.is_number(number, other);
    match op.kind() {
        _ if !aligns_right(op) => None,
        OpKind::Multiply | OpKind::Divide if is_by(second, first) => Some((first, second)),
        OpKind::Multiply if is_by(first, second) => Some((second, first)),
        _ => None,
    }
}

/// True if queries come from outside of the graph, moved or not, so that attention takes in a factor of them.
fn is_stored(rewriter: &PatternRewriter<'_>, queries: &LogicalTensor) -> bool {
    let mut tensor = queries;
    for _ in 0..MAX_MOVES {
        match rewriter.producer(tensor) {
            None => return true,
            Some((_, op)) if is_move(op) => tensor = &op.inputs()[0],
            Some(_) => return false,
        }
    }
    false
}
