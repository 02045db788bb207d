//! Which pointwise ops have a kernel, and the type in which they compute.

use crate::graph::function::{Composite, Function};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::function::{Class, Comparison, Sign, computes_in_f32};

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
    /// Operands are converted to this type and the result is rounded from it: f32 for f32, bf16 and f16, else
    /// the type itself.
    /// Functions that only move bits compute in the type of their result.
    pub(crate) computes_in: DataType,
}

impl Pointwise {
    /// The computation of an op; `None` if no kernel runs it.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        if let Some(composite) = Composite::of(op) {
            return Some(Self::Composite(composite));
        }
        let function = Function::of(op)?;
        let computes_in = computes_in(function, op)?;
        Some(Self::Function(TypedFunction { function, computes_in }))
    }
}

/// True if an op repeats floating-point numbers in a type of such numbers.
pub(super) fn is_conversion(op: &Op) -> bool {
    let is_float = |tensor: &LogicalTensor| computes_in_f32(tensor.data_type());
    matches!(Function::of(op), Some(F::Convert | F::Identity))
        && op.inputs().iter().chain(op.outputs()).all(is_float)
}

/// The type rule: f32, bf16 and f16 mix and compute in f32; f64 and integers go with themselves; nothing else
/// mixes.
fn computes_in(function: Function, op: &Op) -> Option<DataType> {
    let result = op.outputs()[0].data_type();
    let operands = || op.inputs().iter().map(|input| input.data_type());
    let all = |wanted: &dyn Fn(DataType) -> bool| operands().all(wanted) && wanted(result);
    let are_floats = all(&computes_in_f32);
    match function {
        F::Unary(unary, _) => {
            let of = if are_floats { D::F32 } else { result };
            Some(of).filter(|&of| (are_floats || all(&|t| t == of)) && unary.cost_on(of).is_some())
        }
        F::Binary(binary, _) => {
            let of = if are_floats { D::F32 } else { result };
            Some(of).filter(|&of| (are_floats || all(&|t| t == of)) && binary.cost_on(of).is_some())
        }
        F::Compare(_) => {
            let first = operands().next()?;
            let fit = operands().all(computes_in_f32) || operands().all(|t| t == first);
            Comparison::computes_in(first).filter(|_| fit)
        }
        F::Sign(_) => all(&Sign::runs_on).then_some(result),
        F::Classify(_) => operands().next().and_then(Class::computes_in),
        F::Logic(_) | F::Not | F::Select | F::Convert | F::Identity | F::Index | F::Fill(_) | F::Move(_) => {
            Some(result)
        }
        F::IsKept => None,
    }
}
