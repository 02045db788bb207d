//! Which pointwise ops have a kernel, and the type in which they compute.

use crate::graph::function::Function;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::function::Binary;

use DataType as D;
use Function as F;

/// An op that has a kernel: its function, and the type in which it computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pointwise {
    pub(crate) function: Function,
    /// Operands are converted to this type and the result is rounded from it: f32 for f32, bf16 and f16.
    /// Functions that only move bits compute in the type of their result.
    pub(crate) computes_in: DataType,
}

impl Pointwise {
    /// What an op computes; `None` if no kernel runs it.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        let function = Function::of(op)?;
        let computes_in = computes_in(function, op)?;
        Some(Self { function, computes_in })
    }
}

/// The type rule: f32, bf16 and f16 mix and compute in f32; integers go with themselves; nothing else mixes.
fn computes_in(function: Function, op: &Op) -> Option<DataType> {
    let result = op.outputs()[0].data_type();
    let operands = || op.inputs().iter().map(|input| input.data_type());
    let is_float = |t: DataType| [D::F32, D::Bf16, D::F16].contains(&t);
    let all = |wanted: &dyn Fn(DataType) -> bool| operands().all(wanted) && wanted(result);
    match function {
        F::Unary(..) => all(&is_float).then_some(D::F32),
        F::Binary(binary, _) => {
            let on_integers = matches!(
                binary,
                Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Maximum | Binary::Minimum
            );
            let is_integer = [D::S32, D::S64].contains(&result);
            match () {
                () if all(&is_float) => Some(D::F32),
                () if on_integers && is_integer && all(&|t| t == result) => Some(result),
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
        F::Sign(_) => all(&is_float).then_some(result),
        F::Classify(_) => operands().next().map(|t| if is_float(t) { D::F32 } else { t }),
        F::Logic(_) | F::Not | F::Select | F::Convert | F::Identity | F::Index | F::Fill(_) => Some(result),
    }
}
