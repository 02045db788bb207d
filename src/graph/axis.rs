//! Dims that attributes name, and the errors of shapes that do not fit.

use super::op::Op;
use crate::error::{Error, Result, ShapeFault};
use crate::types::kind::Attr;

/// The dim that a number names: negative values count from the end.
pub(super) fn dim_of(number: i64, dims: &[i64]) -> Option<usize> {
    let rank = dims.len() as i64;
    (-rank..rank).contains(&number).then(|| number.rem_euclid(rank) as usize)
}

/// The attribute `axis` as an index of a dim: negative values count from the end.
pub(crate) fn resolved_axis(op: &Op, dims: &[i64]) -> Result<usize> {
    let axis = op.s64_attr(Attr::Axis).unwrap_or(-1);
    dim_of(axis, dims).ok_or_else(|| unfit(op, 0, dims, "the attribute `axis` is not one of its dims"))
}

pub(super) fn unfit(op: &Op, port: usize, given: &[i64], why: &'static str) -> Error {
    shape_error(op, ShapeFault::Unfit { port: op.input_ref(port), given: given.into(), why })
}

pub(super) fn shape_error(op: &Op, fault: ShapeFault) -> Error {
    Error::Shape { op: op.op_ref(), fault: Box::new(fault) }
}
