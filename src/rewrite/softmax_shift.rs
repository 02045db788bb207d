//! A SoftMax of scores less their maximum becomes that of the scores.
//!
//! gpt-oss takes the maximum off before a SoftMax in a narrow type; the exponentials of SoftMax are those of
//! the distances from the maximum anyway.

use super::pattern_rewriter::{PatternRewriter, Replacement, aligns_right};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let softmax = rewriter.op(place).filter(|op| op.kind() == OpKind::SoftMax && op.outputs().len() == 1)?;
    // A row of −∞ is NaN less its maximum, which that mode does not turn into 0.
    if softmax.str_attr(Attr::Mode) == Some("inf_as_zero") {
        return None;
    }
    let (shift_place, shift) = rewriter.only_producer(softmax.inputs().first()?)?;
    let Shifted { x, maximum } = Shifted::of(rewriter, shift)?;
    let (max_place, max) = rewriter.only_producer(maximum)?;
    let axis = from_end(softmax.s64_attr(Attr::Axis)?, x.rank())?;
    if reduced_axis(max) != Some(axis) || shift.outputs()[0].data_type() != x.data_type() {
        return None;
    }
    let softmax = softmax.with_tensors([x.clone()], softmax.outputs().to_vec());
    Some(Replacement { removed: vec![place, shift_place, max_place], added: vec![softmax] })
}

/// A tensor less its maximum along one axis.
pub(super) struct Shifted<'a> {
    pub(super) x: &'a LogicalTensor,
    pub(super) maximum: &'a LogicalTensor,
}

impl<'a> Shifted<'a> {
    /// The operands of a Subtract whose right one is the maximum of the left one.
    pub(super) fn of(rewriter: &PatternRewriter<'_>, shift: &'a Op) -> Option<Self> {
        let [x, maximum] = shift.inputs() else { return None };
        let (_, max) = rewriter.producer(maximum)?;
        let is_shifted = shift.kind() == OpKind::Subtract
            && aligns_right(shift)
            && max.kind() == OpKind::ReduceMax
            && max.inputs()[0].id() == x.id();
        is_shifted.then_some(Self { x, maximum })
    }
}

/// The one axis along which an op reduces, counted from the end, if the op keeps its dims.
pub(super) fn reduced_axis(op: &Op) -> Option<i64> {
    let (&[axis], [x]) = (op.s64s_attr(Attr::Axes), op.inputs()) else { return None };
    from_end(axis, x.rank()).filter(|_| op.bool_attr(Attr::KeepDims))
}

/// An axis counted from the end; `None` if an unknown rank hides which one it is.
pub(super) fn from_end(axis: i64, rank: Option<usize>) -> Option<i64> {
    if axis < 0 { Some(axis) } else { Some(axis - rank? as i64) }
}
