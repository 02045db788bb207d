//! Which additions mask scores.

use super::function::Function;
use super::op::Op;
use crate::types::id::TensorId;
use crate::types::kind::OpKind;

/// For each of some ops in run order: the input, if there is one, whose −∞ makes a score −∞, whatever the
/// score was. The op is an addition of a score, which follows from a product by ops on elements, and of
/// something that does not depend on the product; ops on elements lead from the sum to a SoftMax, or, if
/// there is none, to an Exp.
pub(crate) fn additive_masks(ops: &[Op]) -> Vec<Option<usize>> {
    let is_pointwise = |op: &Op| {
        let function = Function::of(op);
        function.is_some_and(|function| !matches!(function, Function::Index | Function::Fill(_)))
    };
    let mut scores: Vec<TensorId> = Vec::new();
    for op in ops {
        let follows = || is_pointwise(op) && op.inputs().iter().any(|port| scores.contains(&port.id()));
        if op.kind() == OpKind::MatMul || follows() {
            scores.extend(op.outputs().iter().map(|port| port.id()));
        }
    }
    let has_softmax = ops.iter().any(|op| op.kind() == OpKind::SoftMax);
    let end = if has_softmax { OpKind::SoftMax } else { OpKind::Exp };
    let mut before_softmax: Vec<TensorId> = Vec::new();
    for op in ops.iter().rev() {
        let leads =
            || is_pointwise(op) && op.outputs().iter().any(|port| before_softmax.contains(&port.id()));
        if op.kind() == end || leads() {
            before_softmax.extend(op.inputs().iter().map(|port| port.id()));
        }
    }
    let mask = |op: &Op| match op.inputs() {
        [a, b] if op.kind() == OpKind::Add && before_softmax.contains(&op.outputs()[0].id()) => {
            match [a, b].map(|port| scores.contains(&port.id())) {
                [true, false] => Some(1),
                [false, true] => Some(0),
                _ => None,
            }
        }
        _ => None,
    };
    ops.iter().map(mask).collect()
}
