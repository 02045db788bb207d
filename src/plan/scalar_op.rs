//! Scalar instructions, and the labels of steps.

use std::fmt;

use crate::kernels::pointwise::Params;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};
use crate::types::function_row::CostClass;

/// A scalar instruction. Its type is that of the operands, unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ScalarOp {
    Unary(Unary, Params, DataType),
    Binary(Binary, Params, DataType),
    Compare(Comparison, DataType),
    Logic(Logic),
    Not,
    Classify(Class, DataType),
    Sign(Sign, DataType),
    Select,
    Convert(DataType, DataType),
    /// Rounds an f32 to a value of another type.
    Round(DataType),
    Index,
    IsKept,
    /// Widens elements of four bits to bytes.
    Nibbles(DataType),
}

impl ScalarOp {
    /// Cost for an element. An op without a kernel, which selecting one refuses, counts as light.
    pub(crate) fn cost(self) -> CostClass {
        match self {
            Self::Unary(function, _, of) => function.cost_on(of).unwrap_or(CostClass::Light),
            Self::Binary(function, _, of) => function.cost_on(of).unwrap_or(CostClass::Light),
            Self::Compare(..) | Self::Classify(..) | Self::Sign(..) | Self::Logic(_) | Self::Not => {
                CostClass::Light
            }
            Self::Convert(..) | Self::Round(_) | Self::Select | Self::Index => CostClass::Light,
            Self::IsKept => CostClass::Heavy,
            Self::Nibbles(_) => CostClass::Light,
        }
    }

    /// True if the op runs instructions that depend on the thread's floating-point environment.
    pub(crate) fn reads_float_environment(self) -> bool {
        match self {
            Self::Unary(..) | Self::Binary(..) | Self::Compare(..) | Self::Classify(..) => true,
            Self::Convert(..) | Self::Round(_) | Self::IsKept => true,
            Self::Logic(_) | Self::Not | Self::Sign(..) | Self::Select => false,
            Self::Index | Self::Nibbles(_) => false,
        }
    }

    /// True if the op counts as an operation on numbers; comparing, selecting and converting do not.
    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(self, Self::Unary(..) | Self::Binary(..))
    }
}

/// Name of an op in a shown plan: its function, and its type, unless that is always f32.
impl fmt::Display for ScalarOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unary(function, _, DataType::F32) => write!(f, "{function:?}"),
            Self::Unary(function, _, of) => write!(f, "{function:?} {of}"),
            Self::Binary(function, _, of) => write!(f, "{function:?} {of}"),
            Self::Compare(comparison, of) => write!(f, "{comparison:?} {of}"),
            Self::Logic(logic) => write!(f, "{logic:?}"),
            Self::Not => f.write_str("Not"),
            Self::Classify(class, of) => write!(f, "Is{class:?} {of}"),
            Self::Sign(sign, of @ (DataType::S32 | DataType::S64)) => write!(f, "{sign:?} sign {of}"),
            Self::Sign(sign, _) => write!(f, "{sign:?} sign"),
            Self::Select => f.write_str("Select"),
            Self::Convert(from, to) => write!(f, "Convert {from} to {to}"),
            Self::Round(to) => write!(f, "Round to {to}"),
            Self::Index => f.write_str("Index"),
            Self::Nibbles(of) => write!(f, "Widen {of}"),
            Self::IsKept => f.write_str("Is kept"),
        }
    }
}

/// A step's label: an op, or a data movement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StepLabel {
    PackTile,
    UnpackTile,
    Transpose,
    Copy,
    Repeat,
    ScalarOp(ScalarOp),
}

impl fmt::Display for StepLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PackTile => f.write_str("Pack"),
            Self::UnpackTile => f.write_str("Unpack"),
            Self::Transpose => f.write_str("Transpose"),
            Self::Copy => f.write_str("Copy"),
            Self::Repeat => f.write_str("Repeat"),
            Self::ScalarOp(op) => op.fmt(f),
        }
    }
}
