//! Heads that lie beside each other in the columns of a product become batch dims of it.
//!
//! JAX multiplies the one head of keys of multi-query attention with all heads of queries at once: scores
//! `[b, k, h·q]` become `[b, h, k, q]` before the SoftMax, and weights `[b, k, h·q]` behind it.

use super::attention_core::{batch_of, reshape};
use super::pattern_rewriter::{PatternRewriter, Replacement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let op = rewriter.op(place)?;
    match op.kind() {
        OpKind::StaticTranspose => before_softmax(rewriter, place, op),
        OpKind::MatMul => behind_softmax(rewriter, place, op),
        _ => None,
    }
}

/// A product whose columns a reshape divides and a transpose makes the dim before its rows.
fn before_softmax(rewriter: &PatternRewriter<'_>, place: usize, transpose: &Op) -> Option<Replacement> {
    let result = &transpose.outputs()[0];
    let (divide, op) = rewriter.only_producer(&transpose.inputs()[0])?;
    let (whole, divided) = (op.inputs().first()?, &op.outputs()[0]);
    let (of_product, product) = rewriter.only_producer(whole)?;
    let is_form = op.kind() == OpKind::StaticReshape && product.kind() == OpKind::MatMul;
    let ([left, right], true) = (product.inputs(), is_form && rewriter.leads_to_softmax(result)) else {
        return None;
    };
    let order = exchange(divided, whole)?;
    if transpose.s64s_attr(Attr::Order) != order {
        return None;
    }
    let &[heads, columns] = divided.dims()?.last_chunk()?;
    let mut added = Vec::new();
    let left = with_one(rewriter, product, left, order.len(), &mut added)?;
    let (batch, tokens) = (batch_of(right)?, right.dims()?.last_chunk::<2>()?);
    let right = match product.bool_attr(Attr::TransposeB) {
        true => {
            let dims = [batch, &[heads, columns, tokens[1]]].concat();
            reshaped(rewriter, product, right, &dims, &mut added)?
        }
        false => {
            let dims = [batch, &[tokens[0], heads, columns]].concat();
            let divided = reshaped(rewriter, product, right, &dims, &mut added)?;
            let dims = [batch, &[heads, tokens[0], columns]].concat();
            let moved = tensor(rewriter, right, &dims)?;
            added.push(transpose.with_tensors([divided], [moved.clone()]));
            moved
        }
    };
    (right.rank()? == order.len()).then_some(())?;
    added.push(product.with_tensors([left, right], [result.clone()]));
    Some(Replacement { removed: vec![place, divide, of_product], added })
}

/// A product whose right operand are weights with their heads in the columns.
fn behind_softmax(rewriter: &PatternRewriter<'_>, place: usize, product: &Op) -> Option<Replacement> {
    let ([values, right], false) = (product.inputs(), product.bool_attr(Attr::TransposeB)) else {
        return None;
    };
    let (join, op) = rewriter.only_producer(right)?;
    let (moved, transpose) = rewriter.only_producer(op.inputs().first()?)?;
    let weights = transpose.inputs().first()?;
    let (_, softmax) = rewriter.only_producer(weights)?;
    let is_form = op.kind() == OpKind::StaticReshape && softmax.kind() == OpKind::SoftMax;
    let joined = &transpose.outputs()[0];
    let order = exchange(joined, right)?;
    if !is_form || transpose.kind() != OpKind::StaticTranspose || transpose.s64s_attr(Attr::Order) != order {
        return None;
    }
    let result = &product.outputs()[0];
    let (batch, &[rows, _]) = (batch_of(result)?, result.dims()?.last_chunk()?);
    let &[heads, columns] = joined.dims()?.last_chunk()?;
    let mut added = Vec::new();
    let values = with_one(rewriter, product, values, order.len(), &mut added)?;
    let made = tensor(rewriter, result, &[batch, &[heads, rows, columns]].concat())?;
    let dims = [batch, &[rows, heads, columns]].concat();
    let exchanged = tensor(rewriter, result, &dims)?;
    added.push(product.with_tensors([values, weights.clone()], [made.clone()]));
    added.push(transpose.with_tensors([made], [exchanged.clone()]));
    added.push(reshape(product, exchanged, result.clone(), result.dims()?));
    Some(Replacement { removed: vec![place, join, moved], added })
}

/// The order that exchanges the two dims before the last one, if a tensor is another one with its last dim
/// divided in two.
fn exchange(divided: &LogicalTensor, whole: &LogicalTensor) -> Option<Vec<i64>> {
    let (&[heads, columns], dims) = (divided.dims()?.last_chunk()?, whole.dims()?);
    let (&all, outer) = dims.split_last()?;
    let rank = dims.len() + 1;
    let is_division =
        divided.dims()?.get(..rank - 2) == Some(outer) && heads.checked_mul(columns) == Some(all);
    let mut order: Vec<i64> = (0..rank as i64).collect();
    (is_division && rank > 2).then(|| order.swap(rank - 3, rank - 2))?;
    Some(order)
}

/// An operand of so many dims with one, of one head, before its last two.
fn with_one(
    rewriter: &PatternRewriter<'_>,
    user: &Op,
    operand: &LogicalTensor,
    rank: usize,
    added: &mut Vec<Op>,
) -> Option<LogicalTensor> {
    let (batch, tokens) = (batch_of(operand)?, operand.dims()?.last_chunk::<2>()?);
    (batch.len() + 3 == rank).then_some(())?;
    reshaped(rewriter, user, operand, &[batch, &[1], tokens].concat(), added)
}

fn reshaped(
    rewriter: &PatternRewriter<'_>,
    user: &Op,
    operand: &LogicalTensor,
    dims: &[i64],
    added: &mut Vec<Op>,
) -> Option<LogicalTensor> {
    let new = tensor(rewriter, operand, dims)?;
    added.push(reshape(user, operand.clone(), new.clone(), dims));
    Some(new)
}

fn tensor(rewriter: &PatternRewriter<'_>, like: &LogicalTensor, dims: &[i64]) -> Option<LogicalTensor> {
    LogicalTensor::any(rewriter.fresh(like).id(), like.data_type(), dims).ok()
}
