//! Ops whose result is their input, seen in another way: no byte moves.

use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::OpKind;
use crate::types::shape::{self, Dims};

/// A result as a view of the operand: its description, and the bytes before its first element.
pub(super) struct AliasedView {
    pub(super) desc: LogicalTensor,
    pub(super) offset: usize,
}

/// The result of an op as a view of its only input; `None` if it must be computed.
pub(super) fn view_of(op: &Op, input: &LogicalTensor) -> Option<AliasedView> {
    let (dims, strides) = (input.dims()?, input.strides()?);
    let [output] = op.outputs() else { return None };
    let viewed = |dims: &[i64], strides: &[i64], offset: usize| {
        let desc = LogicalTensor::with_strides(output.id(), output.data_type(), dims, strides).ok()?;
        Some(AliasedView { desc, offset })
    };
    match op.kind() {
        OpKind::StaticReshape => {
            let result = output.dims()?;
            let is_dense = shape::row_major_strides(dims).as_deref() == Some(strides);
            viewed(result, &shape::row_major_strides(result)?, 0).filter(|_| is_dense)
        }
        OpKind::StaticTranspose => {
            let order = infer::resolved_order(op, dims).ok()?;
            let permuted = |of: &[i64]| order.iter().map(|&axis| of[axis]).collect::<Dims>();
            viewed(&permuted(dims), &permuted(strides), 0)
        }
        OpKind::Slice => {
            let size = output.data_type().size()?;
            let ranges = infer::slice_ranges(op, dims).ok()?;
            let mut first = 0i64;
            let mut stepped = Dims::new();
            for (range, &stride) in ranges.iter().zip(strides) {
                if range.step < 0 {
                    return None;
                }
                first += range.start.max(0) * stride;
                stepped.push(range.step * stride);
            }
            let counts: Dims = ranges.iter().map(|range| range.count).collect();
            let first = if counts.contains(&0) { 0 } else { first };
            viewed(&counts, &stepped, usize::try_from(first).ok()?.checked_mul(size)?)
        }
        _ => None,
    }
}
