//! Constants of one number as ops `Fill`, which rewrites and fusions look at.

use sterna::reference;
use sterna::{Attr, DataType, LogicalTensor, Op, OpKind, Schema, ShapeRule};

use crate::constant::Constant;
use crate::weights::{integers, one_float};

/// True for kinds whose operands broadcast to each other.
pub(super) fn is_on_elements(kind: OpKind) -> bool {
    matches!(Schema::of(kind).shape_rule, ShapeRule::ElemwiseArithmetic | ShapeRule::Select)
}

/// The op that gives a number in each element of a tensor.
pub(super) fn fill(id: usize, number: f32, tensor: LogicalTensor) -> Op {
    let shape = tensor.dims().unwrap_or(&[]).to_vec();
    Op::new(id, OpKind::Fill).attr(Attr::Shape, shape).attr(Attr::Value, number).output(tensor)
}

/// The number of a constant of one element, if an op `Fill` gives its very bits.
pub(super) fn exact_number(value: &Constant) -> Option<f32> {
    if value.dims().iter().any(|&dim| dim != 1) {
        return None;
    }
    let number = match value.data_type() {
        DataType::Boolean => f64::from(*value.bytes().first()?),
        data_type if data_type.bits() < 8 => return None,
        _ => one_float(value).or_else(|| Some(*integers(value)?.first()? as f64))?,
    };
    // A NaN has bits beside its value.
    let tensor = LogicalTensor::strided(0, value.data_type(), value.dims()).ok()?;
    let made = reference::run(&fill(0, number as f32, tensor), &[]).ok()?;
    (!number.is_nan() && made.first().is_some_and(|made| value == made)).then_some(number as f32)
}
