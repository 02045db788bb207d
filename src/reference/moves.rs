//! Ops that move elements and leave their bits alone.

use super::value::{Value, count, one, reserve};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::shape::Dims;

/// Dim `i` of the result is dim `order[i]` of the input; an empty `order` reverses the dims.
pub(super) fn static_transpose(op: &Op, inputs: &[Value], _: &[Dims]) -> Result<Vec<Value>> {
    one(inputs[0].permuted(&infer::resolved_order(op, inputs[0].dims())?))
}

/// The elements of the input, in the same order, in the shape `shape`.
///
/// With `special_zero` a 0 stands for the dim of the input at that place, else for itself. One −1 stands for
/// what is left beside the dims that a 0 stands for; beside another dim of 0 it is an error.
pub(super) fn static_reshape(_: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    Ok(vec![inputs[0].reshaped(&shapes[0])])
}

/// Along each of `axes` the elements from `starts` to `ends`, the end excluded, every `steps`-th.
///
/// Without `axes` these are the first dims, without `steps` all steps are 1; the other dims stay whole. A
/// start or an end that is negative counts from the end of its dim; then one that lies beyond the dim is
/// moved to its edge. A negative step goes backwards, and its end may be before the first element. A range of
/// nothing leaves a dim of 0.
pub(super) fn slice(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, dims) = (&inputs[0], inputs[0].dims());
    let ranges = infer::slice_ranges(op, dims)?;
    let size = src.data_type().size().unwrap_or(1);
    one(Value::compute(src.data_type(), &shapes[0], |elements, into| {
        for (element, into) in elements.zip(into.chunks_exact_mut(size)) {
            // The digits of the element's number are its indices, the last dim first.
            let (mut rest, mut at, mut stride) = (element as i64, 0, 1);
            for (range, dim) in ranges.iter().zip(dims).rev() {
                at += (range.start + rest % range.count * range.step) * stride;
                rest /= range.count;
                stride *= dim;
            }
            into.copy_from_slice(&src.bytes()[at as usize * size..][..size]);
        }
    }))
}

/// The same elements; only strides differ.
pub(super) fn reorder(_: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    Ok(vec![inputs[0].reshaped(&shapes[0])])
}

/// The inputs one after the other along `axis`; their other dims are equal.
pub(super) fn concat(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let axis = infer::resolved_axis(op, &shapes[0])?;
    let outer = count(&shapes[0][..axis]);
    let mut bytes = reserve(inputs.iter().map(|input| input.bytes().len()).sum())?;
    for i in 0..outer {
        for input in inputs {
            let length = input.bytes().len() / outer;
            bytes.extend_from_slice(&input.bytes()[i * length..][..length]);
        }
    }
    one(Value::new(op.outputs()[0].data_type(), &shapes[0], bytes))
}
