//! A dequantisation for each product that reads one.

use std::collections::BTreeMap;

use sterna::{Attr, AttrValue, DataType, LogicalTensor, Op, OpId, OpKind, TensorId};

use super::{Builder, Origin, renumbered};
use crate::error::Error;

impl Builder<'_> {
    /// Ops in order, in which a product has a dequantisation of its own for each operand that one gives to
    /// other ops as well: a tensor that several ops share would keep each product from reading the integers.
    pub(super) fn dequantised_apart(&mut self, ops: Vec<Op>) -> Result<Vec<Op>, Error> {
        if !ops.iter().any(is_of_bytes) {
            return Ok(ops);
        }
        let mut uses: BTreeMap<TensorId, usize> = BTreeMap::new();
        for input in ops.iter().flat_map(Op::inputs) {
            *uses.entry(input.id()).or_default() += 1;
        }
        let mut next = ops.iter().map(|op| op.id().get() + 1).max().unwrap_or(0);
        let mut makers: BTreeMap<TensorId, Op> = BTreeMap::new();
        let mut apart = Vec::with_capacity(ops.len());
        for op in ops {
            let mut inputs = op.inputs().to_vec();
            if op.kind() == OpKind::MatMul {
                for input in inputs.iter_mut().take(2) {
                    let is_shared = uses.get(&input.id()).is_some_and(|&uses| uses > 1);
                    let Some(maker) = makers.get(&input.id()).filter(|_| is_shared) else { continue };
                    let dims = input.dims().map(Into::into);
                    let copy = self.add(input.data_type(), dims, Origin::Computed)?;
                    *input = self.describe(copy)?;
                    apart.push(with_output(maker, OpId::new(next), input.clone()));
                    next += 1;
                }
            }
            if is_of_bytes(&op) {
                makers.insert(op.outputs()[0].id(), op.clone());
            }
            let is_same = inputs == op.inputs();
            apart.push(if is_same { op } else { renumbered(&op, op.id(), inputs) });
        }
        Ok(apart)
    }
}

/// A move, and its attributes.
type Move = (OpKind, Vec<(Attr, AttrValue)>);

impl Builder<'_> {
    /// The integers of a type of which one scale and one zero point make a tensor, and the moves behind that,
    /// in order. What becomes of the node then follows from more than the facts of its inputs.
    pub(crate) fn moved_integers(
        &mut self,
        mut tensor: TensorId,
        of: DataType,
        (scale, zero): (f32, i64),
    ) -> Option<(TensorId, Vec<Move>)> {
        let mut moves = Vec::new();
        loop {
            let op = self.maker(tensor)?;
            let from = op.inputs().first()?;
            match op.kind() {
                OpKind::StaticReshape | OpKind::StaticTranspose | OpKind::Slice => {
                    moves.push((op.kind(), op.attrs().map(|(attr, value)| (attr, value.clone())).collect()));
                    tensor = from.id();
                }
                OpKind::Dequantize => {
                    let has_scale = match op.get_attr(Attr::Scales) {
                        Some(AttrValue::F32s(scales)) => scales == &[scale],
                        _ => false,
                    };
                    let has_zero = match op.get_attr(Attr::Zps) {
                        Some(AttrValue::S64s(zeros)) => zeros == &[zero],
                        _ => zero == 0,
                    };
                    if from.data_type() != of || !has_scale || !has_zero {
                        return None;
                    }
                    let integers = from.id();
                    self.beyond_facts += 1;
                    moves.reverse();
                    return Some((integers, moves));
                }
                _ => return None,
            }
        }
    }
}

/// True for a dequantisation of integers of 8 bits.
fn is_of_bytes(op: &Op) -> bool {
    matches!(op.kind(), OpKind::Dequantize | OpKind::DynamicDequantize)
        && matches!(op.inputs()[0].data_type(), DataType::U8 | DataType::S8)
}

/// The same op for another output.
fn with_output(op: &Op, id: OpId, output: LogicalTensor) -> Op {
    let same = Op::new(id, op.kind()).named(op.name()).inputs_from(op.inputs().to_vec());
    op.attrs().fold(same, |same, (attr, value)| same.attr(attr, value.clone())).output(output)
}
