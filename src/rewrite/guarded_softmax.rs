//! A guard of the SoftMax of a row without keys becomes the mode of the SoftMax that says the same.
//!
//! `torch.onnx.export` writes it behind every mask of booleans: where a weight is NaN, it is 0.

use super::pattern_rewriter::{PatternRewriter, Replacement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let softmax = rewriter.op(place).filter(|op| op.kind() == OpKind::SoftMax && op.outputs().len() == 1)?;
    if softmax.str_attr(Attr::Mode) == Some("inf_as_zero") {
        return None;
    }
    let weights = &softmax.outputs()[0];
    let [first, second] = rewriter.consumers(weights) else { return None };
    [(*first, *second), (*second, *first)].into_iter().find_map(|(test_place, guard_place)| {
        let (test, guard) = (rewriter.op(test_place)?, rewriter.op(guard_place)?);
        let keeps_nan = keeps_nan(test, weights)?;
        let [condition, then, other] = guard.inputs() else { return None };
        let (of_nan, of_number) = if keeps_nan { (then, other) } else { (other, then) };
        let result = &guard.outputs()[0];
        let is_guard = guard.kind() == OpKind::Select
            && condition.id() == test.outputs()[0].id()
            && of_number.id() == weights.id();
        let zero = rewriter.producer(of_nan).filter(|(_, op)| is_zero(op))?;
        let is_alike = result.dims().is_some() && result.dims() == weights.dims();
        if !is_guard || !is_alike || !rewriter.is_number(of_nan, weights) {
            return None;
        }
        let softmax = softmax.with_tensors(softmax.inputs().to_vec(), [result.clone()]);
        let mut removed = vec![place, test_place, guard_place];
        removed.extend(rewriter.only_producer(of_nan).map(|_| zero.0));
        Some(Replacement { removed, added: vec![softmax.attr(Attr::Mode, "inf_as_zero")] })
    })
}

/// The result of a test of NaN: true for NaN alone, or false for NaN alone; `None` for any other op.
fn keeps_nan(test: &Op, weights: &LogicalTensor) -> Option<bool> {
    let is_of_weights = test.inputs().iter().all(|input| input.id() == weights.id());
    match test.kind() {
        _ if !is_of_weights => None,
        OpKind::IsNaN | OpKind::NotEqual => Some(true),
        OpKind::Equal => Some(false),
        _ => None,
    }
}

fn is_zero(op: &Op) -> bool {
    op.kind() == OpKind::Fill && op.f32_attr(Attr::Value) == Some(0.0)
}
