//! Constants of one number as ops `Fill`, which rewrites and fusions look at.

use std::collections::{BTreeMap, BTreeSet};

use sterna::reference::{self, Value};
use sterna::{Attr, DataType, LogicalTensor, Op, OpKind, Schema, ShapeRule, TensorId};

use super::{Builder, Origin};
use crate::error::Error;
use crate::weights::{integers, one_float};

impl Builder<'_> {
    /// Gives ops a tensor of their own for each operand that an op `Fill` makes: a number that a mapping
    /// brings along, or a constant of one number beside other elements. A tensor that several ops share would
    /// join their partitions, or keep each of them from taking it in.
    pub(super) fn numbers_apart(&mut self, ops: &mut [Op]) -> Result<(), Error> {
        let mut numbers: BTreeMap<TensorId, Option<f32>> = BTreeMap::new();
        for op in ops {
            let is_on_elements = is_on_elements(op.kind());
            let inputs: BTreeSet<TensorId> = op.inputs().iter().map(LogicalTensor::id).collect();
            let mut apart = BTreeMap::new();
            for id in inputs {
                let (number, value) = match &self.tensors[id.get()].origin {
                    Origin::Number(number, value) => (Some(*number), value),
                    // Only a constant can be given another value.
                    Origin::Constant(value) if is_on_elements && !self.defaults.contains_key(&id) => {
                        (*numbers.entry(id).or_insert_with(|| exact_number(value)), value)
                    }
                    _ => continue,
                };
                let Some(number) = number else { continue };
                let (value, dims) = (value.clone(), value.dims().into());
                let own = self.add(value.data_type(), Some(dims), Origin::Number(number, value))?;
                if let Some(name) = self.constant_names.get(&id).cloned() {
                    self.constant_names.insert(own, name);
                }
                apart.insert(id, self.describe(own)?);
            }
            if !apart.is_empty() {
                let inputs = op.inputs().iter().map(|input| apart.get(&input.id()).unwrap_or(input).clone());
                *op = super::renumbered(op, op.id(), inputs.collect());
            }
        }
        Ok(())
    }
}

/// True for kinds whose operands broadcast to each other.
fn is_on_elements(kind: OpKind) -> bool {
    matches!(Schema::of(kind).shape_rule, ShapeRule::ElemwiseArithmetic | ShapeRule::Select)
}

/// The op that gives a number in each element of a tensor.
pub(super) fn fill(id: usize, number: f32, tensor: LogicalTensor) -> Op {
    let shape = tensor.dims().unwrap_or(&[]).to_vec();
    Op::new(id, OpKind::Fill).attr(Attr::Shape, shape).attr(Attr::Value, number).output(tensor)
}

/// The number of a constant of one element, if an op `Fill` gives its very bits.
fn exact_number(value: &Value) -> Option<f32> {
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
    (!number.is_nan() && made.first() == Some(value)).then_some(number as f32)
}
