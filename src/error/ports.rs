//! How errors name an op and a port.

use std::fmt;

use crate::types::id::{OpId, TensorId};
use crate::types::kind::OpKind;

/// The op of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OpRef {
    /// Its kind.
    pub kind: OpKind,
    /// Its id.
    pub id: OpId,
}

impl OpRef {
    /// The op of a kind and an id.
    #[must_use]
    pub fn new(kind: OpKind, id: impl Into<OpId>) -> Self {
        Self { kind, id: id.into() }
    }
}

impl fmt::Display for OpRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (op {})", self.kind, self.id)
    }
}

/// The direction of data through a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Into the op or partition.
    Input,
    /// Out of the op or partition.
    Output,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// The port of an error's op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PortRef {
    /// Input or output.
    pub direction: Direction,
    /// The index of the port among the op's inputs, or outputs.
    pub index: usize,
    /// Its name in the schema.
    pub name: &'static str,
    /// Its tensor.
    pub tensor: TensorId,
}

impl PortRef {
    /// The port at an index among the inputs or outputs of an op, with its name and its tensor.
    #[must_use]
    pub fn new(direction: Direction, index: usize, name: &'static str, tensor: impl Into<TensorId>) -> Self {
        Self { direction, index, name, tensor: tensor.into() }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} `{}` (tensor {})", self.direction, self.index, self.name, self.tensor)
    }
}
