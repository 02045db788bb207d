//! Which pointwise ops have a kernel, and the type in which they compute.

use crate::graph::function::{Composite, Function};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::function::Binary;
use crate::types::kind::Attr;

use DataType as D;
use Function as F;

/// An op that has kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pointwise {
    /// One function of elements.
    Function(TypedFunction),
    /// Several.
    Composite(Composite),
}

/// A function of elements, and the type in which it is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TypedFunction {
    pub(crate) function: Function,
    /// Operands are converted to this type and the result is rounded from it: f32 for f32, bf16 and f16.
    /// Functions that only move bits compute in the type of their result.
    pub(crate) computes_in: DataType,
}

impl Pointwise {
    /// What an op computes; `None` if no kernel runs it.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        if let Some(composite) = Composite::of(op) {
            return is_of_bytes_and_channels(op).then_some(Self::Composite(composite));
        }
        let function = Function::of(op)?;
        let computes_in = computes_in(function, op)?;
        Some(Self::Function(TypedFunction { function, computes_in }))
    }
}

/// Whether no operand is of 4 bits, and no scale belongs to a group.
fn is_of_bytes_and_channels(op: &Op) -> bool {
    let is_whole = |tensor: &LogicalTensor| DataType::WHOLE.contains(&tensor.data_type());
    op.str_attr(Attr::Qtype) != Some("per_group") && op.inputs().iter().all(is_whole)
}

/// The type rule: f32, bf16 and f16 mix and compute in f32; integers go with themselves; nothing else mixes.
fn computes_in(function: Function, op: &Op) -> Option<DataType> {
    let result = op.outputs()[0].data_type();
    let operands = || op.inputs().iter().map(|input| input.data_type());
    let is_float = |t: DataType| [D::F32, D::Bf16, D::F16].contains(&t);
    let is_integer = |t: DataType| [D::S32, D::S64].contains(&t);
    let all = |wanted: &dyn Fn(DataType) -> bool| operands().all(wanted) && wanted(result);
    match function {
        F::Unary(..) => all(&is_float).then_some(D::F32),
        F::Binary(binary, _) => {
            let on_integers = matches!(
                binary,
                Binary::Add
                    | Binary::Subtract
                    | Binary::Multiply
                    | Binary::Divide
                    | Binary::Modulo
                    | Binary::Maximum
                    | Binary::Minimum
            );
            match () {
                () if all(&is_float) => Some(D::F32),
                () if on_integers && is_integer(result) && all(&|t| t == result) => Some(result),
                () => None,
            }
        }
        F::Compare(_) => {
            let first = operands().next()?;
            match () {
                () if operands().all(is_float) => Some(D::F32),
                () if operands().all(|t| t == first) && D::NUMERIC.contains(&first) => Some(first),
                () => None,
            }
        }
        F::Sign(_) => (all(&is_float) || all(&is_integer)).then_some(result),
        F::Classify(_) => operands().next().map(|t| if is_float(t) { D::F32 } else { t }),
        F::Logic(_) | F::Not | F::Select | F::Convert | F::Identity | F::Index | F::Fill(_) => Some(result),
        F::IsKept => None,
    }
}
