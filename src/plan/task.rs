//! What steps do, by name.

use std::fmt;

use crate::kernels::pointwise::Params;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Logic, Sign, Unary};

/// What a step does. Types are those of the operands unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Task {
    Unary(Unary, Params),
    Binary(Binary, Params, DataType),
    Compare(Comparison, DataType),
    Logic(Logic),
    Not,
    Classify(Class, DataType),
    Sign(Sign),
    Select,
    Convert(DataType, DataType),
    /// Rounds an f32 to what another type can hold.
    Round(DataType),
    Index,
}

/// What a task is called where a plan is shown: its function, and the type on which it works unless that is always f32.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unary(function, _) => write!(f, "{function:?}"),
            Self::Binary(function, _, of) => write!(f, "{function:?} {of}"),
            Self::Compare(comparison, of) => write!(f, "{comparison:?} {of}"),
            Self::Logic(logic) => write!(f, "{logic:?}"),
            Self::Not => f.write_str("Not"),
            Self::Classify(class, of) => write!(f, "Is{class:?} {of}"),
            Self::Sign(sign) => write!(f, "{sign:?} sign"),
            Self::Select => f.write_str("Select"),
            Self::Convert(from, to) => write!(f, "Convert {from} to {to}"),
            Self::Round(to) => write!(f, "Round to {to}"),
            Self::Index => f.write_str("Index"),
        }
    }
}

/// What a step does beside its tasks to have operands and results where they are wanted, or the task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Deed {
    Gather,
    Scatter,
    Copy,
    Task(Task),
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gather => f.write_str("Gather"),
            Self::Scatter => f.write_str("Scatter"),
            Self::Copy => f.write_str("Copy"),
            Self::Task(task) => task.fmt(f),
        }
    }
}
