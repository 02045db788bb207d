//! The ops that a sequence adds to a graph, and the ids that they take.

use super::logical_tensor::LogicalTensor;
use super::op::Op;
use crate::error::{AttentionFault, Error, Result};
use crate::types::dtype::DataType;
use crate::types::id::OpId;
use crate::types::kind::{Attr, OpKind};
use crate::types::shape;

pub(super) fn value(option: &'static str, given: impl ToString, rule: &'static str) -> Error {
    AttentionFault::Value { option, given: given.to_string(), rule }.into()
}

pub(super) fn unknown(option: &'static str, what: &'static str, tensor: &LogicalTensor) -> Error {
    AttentionFault::Unknown { option, what, tensor: tensor.id() }.into()
}

/// A dim counted from the end, if it is known.
pub(super) fn from_end(tensor: &LogicalTensor, back: usize) -> Option<i64> {
    let dims = tensor.raw_dims()?;
    let dim = *dims.get(dims.len().checked_sub(back)?)?;
    shape::known(dim)
}

/// The ops so far.
pub(super) struct OpSequence {
    pub(super) ops: Vec<Op>,
    pub(super) first_op: OpId,
    /// The number of the next tensor between the ops.
    pub(super) next_tensor: usize,
}

impl OpSequence {
    pub(super) fn select(
        &mut self,
        name: &str,
        cond: LogicalTensor,
        then: LogicalTensor,
        other: LogicalTensor,
        t: DataType,
    ) -> LogicalTensor {
        let dst = self.next(t);
        let op = self.op(OpKind::Select, name);
        self.ops.push(op.inputs_from([cond, then, other]).output(dst.clone()));
        dst
    }

    /// An op on two tensors.
    pub(super) fn pair(
        &mut self,
        kind: OpKind,
        name: &str,
        left: LogicalTensor,
        right: LogicalTensor,
        t: DataType,
    ) -> LogicalTensor {
        let dst = self.next(t);
        let op = self.op(kind, name);
        self.ops.push(op.inputs_from([left, right]).output(dst.clone()));
        dst
    }

    /// An op on one tensor.
    pub(super) fn unary(
        &mut self,
        kind: OpKind,
        name: &str,
        src: LogicalTensor,
        t: DataType,
    ) -> LogicalTensor {
        let dst = self.next(t);
        let op = self.op(kind, name);
        self.ops.push(op.input(src).output(dst.clone()));
        dst
    }

    /// The indices from one to in front of another along an axis; negative ones count from the end.
    pub(super) fn part(
        &mut self,
        name: &str,
        src: LogicalTensor,
        axis: i64,
        [start, end]: [i64; 2],
    ) -> LogicalTensor {
        let dst = self.next(src.data_type());
        let slice = self.op(OpKind::Slice, name).attr(Attr::Axes, vec![axis]);
        let slice = slice.attr(Attr::Starts, vec![start]).attr(Attr::Ends, vec![end]);
        self.ops.push(slice.input(src).output(dst.clone()));
        dst
    }

    /// Tensors one behind the other along an axis.
    pub(super) fn joined<const N: usize>(
        &mut self,
        name: &str,
        axis: i64,
        parts: [LogicalTensor; N],
    ) -> LogicalTensor {
        let dst = self.next(parts[0].data_type());
        let concat = self.op(OpKind::Concat, name).attr(Attr::Axis, axis);
        self.ops.push(concat.inputs_from(parts).output(dst.clone()));
        dst
    }

    /// The elements of a tensor in another shape, in which −1 is what is left.
    pub(super) fn reshaped(&mut self, name: &str, src: LogicalTensor, shape: &[i64]) -> LogicalTensor {
        let dst = self.next(src.data_type());
        let op = self.op(OpKind::StaticReshape, name).attr(Attr::Shape, shape).attr(Attr::SpecialZero, false);
        self.ops.push(op.input(src).output(dst.clone()));
        dst
    }

    /// The index of each element of a tensor along an axis.
    pub(super) fn index(&mut self, name: &str, of: &LogicalTensor, axis: i64) -> LogicalTensor {
        let index = self.next(DataType::S32);
        let op = self.op(OpKind::GenIndex, name).attr(Attr::Axis, axis);
        self.ops.push(op.input(of.clone()).output(index.clone()));
        index
    }

    /// A scalar that the graph knows.
    pub(super) fn constant(&mut self, name: &str, t: DataType, number: f32) -> Result<LogicalTensor> {
        self.filled(name, t, &[], number)
    }

    /// A tensor of one number, which the graph knows.
    pub(super) fn filled(
        &mut self,
        name: &str,
        t: DataType,
        shape: &[i64],
        number: f32,
    ) -> Result<LogicalTensor> {
        let filled = LogicalTensor::strided(self.next(t).id(), t, shape)?;
        let op = self.op(OpKind::Fill, name).attr(Attr::Shape, shape).attr(Attr::Value, number);
        self.ops.push(op.output(filled.clone()));
        Ok(filled)
    }

    pub(super) fn op(&self, kind: OpKind, name: &str) -> Op {
        let id = self.first_op.get().wrapping_add(self.ops.len());
        Op::new(id, kind).named(format!("attention_{name}_{id}"))
    }

    /// The next tensor between the ops; its shape is inferred when a partition is compiled.
    pub(super) fn next(&mut self, t: DataType) -> LogicalTensor {
        let tensor = LogicalTensor::unknown(self.next_tensor, t);
        self.next_tensor = self.next_tensor.saturating_add(1);
        tensor
    }
}
