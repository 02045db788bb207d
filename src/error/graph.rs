//! Faults of an op, of its shapes, of a graph, and of the options of attention.

use std::fmt;

use super::ports::{Direction, OpRef, PortRef};
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, AutoBroadcast};
use crate::types::shape::{Braced, BracedPartial, BroadcastFault, Dims};

/// The fault of an op according to its schema row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpFault {
    /// Too many or too few inputs or outputs.
    #[error("{given} {direction}s were given, {expected} expected")]
    Count {
        /// Inputs or outputs.
        direction: Direction,
        /// The rule of the schema row, in words.
        expected: String,
        /// The number given.
        given: usize,
    },
    /// A port whose type the schema row does not allow.
    #[error("{port} is {given}{}", MustBe(allowed))]
    Type {
        /// The port.
        port: PortRef,
        /// The allowed types.
        allowed: &'static [DataType],
        /// The type given.
        given: DataType,
    },
    /// Two ports that must share one type.
    #[error("{port} is {given}, but {other} is {expected}; they share one type")]
    TypesDiffer {
        /// The later port.
        port: PortRef,
        /// Its type.
        given: DataType,
        /// The earlier port.
        other: PortRef,
        /// Its type.
        expected: DataType,
    },
    /// An attribute that ops of this kind do not have.
    #[error("attribute `{0}` does not exist on ops of this kind")]
    UnknownAttr(Attr),
    /// A required attribute is missing.
    #[error("attribute `{0}` is missing")]
    MissingAttr(Attr),
    /// An attribute of another type.
    #[error("attribute `{attr}` is of type {given}, not {expected}")]
    AttrType {
        /// The attribute.
        attr: Attr,
        /// The type expected.
        expected: &'static str,
        /// The type given.
        given: &'static str,
    },
    /// A value that the attribute cannot have.
    #[error("attribute `{attr}` is {given:?}, not one of {allowed:?}")]
    AttrValue {
        /// The attribute.
        attr: Attr,
        /// The allowed values.
        allowed: &'static [&'static str],
        /// The value given.
        given: String,
    },
    /// An attribute that needs one broadcast mode.
    #[error("attribute `{attr}` goes with auto_broadcast = {needs} alone, not with {given}")]
    AttrNeedsMode {
        /// The attribute.
        attr: Attr,
        /// The mode that it needs.
        needs: AutoBroadcast,
        /// The mode given.
        given: AutoBroadcast,
    },
    /// One of the extra checks of the schema row.
    #[error("{rule}; here {found}")]
    Check {
        /// The rule for ops of this kind.
        rule: &'static str,
        /// The part that the op has instead.
        found: String,
    },
}

/// Says which types a port can have.
struct MustBe<'a>(&'a [DataType]);

impl fmt::Display for MustBe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "; it must be " } else { ", not one of " })?;
        for (i, data_type) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{data_type}")?;
        }
        Ok(())
    }
}

/// The fault of a graph as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFault {
    /// A second op with the same id.
    #[error("{0}: an op of this id is in the graph already")]
    DuplicateOp(OpRef),
    /// An op was added, or a mode set, after `finalize`.
    #[error("the graph is finalized and cannot be changed")]
    Finalized,
    /// The graph was partitioned before `finalize`.
    #[error("the graph is not finalized; call `finalize` first")]
    NotFinalized,
    /// Two ops produce one tensor.
    #[error("tensor {tensor} is produced by {first} and by {second}")]
    TwoProducers {
        /// The tensor.
        tensor: TensorId,
        /// The op that was added first.
        first: OpRef,
        /// The op that was added later.
        second: OpRef,
    },
    /// Two descriptions of one tensor.
    #[error(
        "tensor {tensor} is described in two ways: {what} differ, {first} and {second}; describe it once, \
         and give that description to every op"
    )]
    MentionsDiffer {
        /// The tensor.
        tensor: TensorId,
        /// The part that differs first: "types", "ranks", "dims", "layouts", "strides" or "properties".
        what: &'static str,
        /// The first description.
        first: Box<Mention>,
        /// A description that differs.
        second: Box<Mention>,
    },
    /// An op that depends on its own result.
    #[error("{0} depends on its own result")]
    Cycle(OpRef),
}

/// A place in a graph at which a tensor is described.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mention {
    /// The op.
    pub op: OpRef,
    /// Its port.
    pub port: PortRef,
    /// The part of the description that another mention contradicts, as `{2,3}`.
    pub says: String,
}

impl fmt::Display for Mention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, port: PortRef { direction, index, name, .. }, says } = self;
        write!(f, "{says} at {direction} {index} `{name}` of {op}")
    }
}

/// The fault of an option of [`Graph::attention`](crate::Graph::attention).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionFault {
    /// A number out of its range.
    #[error("`{option}` is {given}; {rule}")]
    Value {
        /// The option.
        option: &'static str,
        /// Its value.
        given: String,
        /// The rule for it.
        rule: &'static str,
    },
    /// A number of groups that does not divide the number of heads.
    #[error("`groups` is {groups}, which does not divide the {heads} heads of `q`")]
    Groups {
        /// The number of groups.
        groups: i64,
        /// The number of heads of `q`.
        heads: i64,
    },
    /// A size that the option needs is unknown.
    #[error("`{option}` needs {what}, which tensor {tensor} leaves open")]
    Unknown {
        /// The option.
        option: &'static str,
        /// The size.
        what: &'static str,
        /// The tensor that leaves it open.
        tensor: TensorId,
    },
    /// A tensor of a type that the option does not take.
    #[error("`{option}` is tensor {tensor} of type {given}; {rule}")]
    Type {
        /// The option.
        option: &'static str,
        /// The tensor.
        tensor: TensorId,
        /// Its type.
        given: DataType,
        /// The rule for it.
        rule: &'static str,
    },
    /// A tensor of a shape that the option does not take.
    #[error("`{option}` meets tensor {tensor} of {}; {rule}", BracedPartial(given))]
    Shape {
        /// The option.
        option: &'static str,
        /// The tensor.
        tensor: TensorId,
        /// Its dims, `None` for an unknown one; empty if its rank is unknown.
        given: Vec<Option<i64>>,
        /// The rule for it.
        rule: &'static str,
    },
    /// Ids for the tensors between the ops that are not free.
    #[error("`ids_from` gives tensors ids from {first} on, but tensor {taken} is there already")]
    TensorTaken {
        /// The first id.
        first: TensorId,
        /// The id that is taken.
        taken: TensorId,
    },
}

/// How shapes contradict the shape rule of an op.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeFault {
    /// An operand does not broadcast as its mode requires.
    #[error("{port} under auto_broadcast = {mode}: {fault}")]
    Broadcast {
        /// The operand.
        port: PortRef,
        /// The mode.
        mode: AutoBroadcast,
        /// The contradiction.
        fault: BroadcastFault,
    },
    /// The shape of a port is not the one inferred from the inputs.
    #[error("{port} is given as {}, but {} follows from the inputs", BracedPartial(given), Braced(inferred))]
    Contradiction {
        /// The port.
        port: PortRef,
        /// The shape given, `None` for an unknown dim.
        given: Vec<Option<i64>>,
        /// The inferred shape.
        inferred: Dims,
    },
    /// The shape of one port does not fit the op.
    #[error("{port} is {}: {why}", Braced(given))]
    Unfit {
        /// The port.
        port: PortRef,
        /// Its shape.
        given: Dims,
        /// The parts that do not fit.
        why: &'static str,
    },
    /// The result has more elements than can be addressed.
    #[error("the result {} is larger than the address space", Braced(dims))]
    TooLarge {
        /// The inferred shape.
        dims: Dims,
    },
}
