//! Faults of graphs under construction, of models, and of sessions that run them.

use std::fmt;

use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::OpKind;
use crate::types::shape::{Braced, BracedPartial};

/// A value of a graph under construction, as a message shows it: its name, type and dims.
///
/// ```
/// use sterna::{DataType, Error, GraphBuilder};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[Some(2), Some(3)])?;
/// let Err(Error::Build { values, .. }) = g.matmul(x, x) else { panic!("[2, 3] · [2, 3]") };
/// assert_eq!(values[0].to_string(), "`x` f32 {2,3}");
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownValue {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub data_type: DataType,
    /// The dims, `None` for one that is open; `None` as a whole if the rank is unknown.
    pub dims: Option<Vec<Option<i64>>>,
}

impl fmt::Display for ShownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.name, self.data_type)?;
        match &self.dims {
            Some(dims) => write!(f, " {}", BracedPartial(dims)),
            None => f.write_str(" of unknown rank"),
        }
    }
}

/// Writes an op that could not be added: its kind, and its operands in parentheses.
pub(super) struct ShownCall<'a>(pub(super) OpKind, pub(super) &'a [ShownValue]);

impl fmt::Display for ShownCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.0)?;
        for (index, value) in self.1.iter().enumerate() {
            write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

/// The fault of a model, or of a call of its session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionFault {
    /// An operand of an op is a value of another builder.
    #[error("value {0} belongs to another builder")]
    ForeignValue(TensorId),
    /// Two inputs, or two outputs, have one name.
    #[error("two {what}s are called `{name}`")]
    SameName {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name that no input or output has.
    #[error("no {what} is called `{name}`; there are {}{}", Quoted(known), DidYouMeanOwned(nearest))]
    UnknownName {
        /// "input" or "output".
        what: &'static str,
        /// The name given.
        name: String,
        /// The names of all inputs or outputs.
        known: Vec<String>,
        /// The name that may be meant.
        nearest: Option<String>,
    },
    /// An input or output that was not given.
    #[error("{what} `{name}` is missing")]
    Missing {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Memory for an output that is not row-major.
    #[error("output `{0}` is given with strides; results are row-major")]
    Strided(String),
    /// An input or output that was given twice.
    #[error("{what} `{name}` is given twice")]
    GivenTwice {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An input or output of another type.
    #[error("{what} `{name}` is {given}, the model has {expected}")]
    Type {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
        /// The type in the model.
        expected: DataType,
        /// The type given.
        given: DataType,
    },
    /// An input whose dims are not those of the model, or an output whose dims are not those that follow.
    #[error("{what} `{name}` is given as {}, the model has {}", Braced(given), BracedPartial(expected))]
    Dims {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
        /// The dims of the model.
        expected: Vec<Option<i64>>,
        /// The dims given.
        given: Vec<i64>,
    },
    /// Memory that holds fewer elements than dims and strides name.
    #[error("{what} `{name}` has {given} elements, {needed} are needed")]
    TooShort {
        /// "input" or "output".
        what: &'static str,
        /// The name.
        name: String,
        /// Elements from the first to the last.
        needed: usize,
        /// Elements given.
        given: usize,
    },
    /// A tensor of the graph that no op, input or constant gives.
    #[error("nothing gives tensor {0}: it is no input and no constant of the model, and no op computes it")]
    NoSource(TensorId),
    /// A constant whose bytes are not those of its tensor.
    #[error("constant {tensor} has {given} bytes, {needed} are needed")]
    ConstantBytes {
        /// The tensor.
        tensor: TensorId,
        /// Bytes that dims, strides and type need.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// Ops that nothing runs.
    #[error("nothing runs {}", Listing(.0))]
    MissingOps(Vec<MissingOp>),
    /// An op of the caller's own failed.
    #[error("{op} `{node}`: {message}")]
    Custom {
        /// The name by which the op was given.
        op: String,
        /// The name of the op in the graph.
        node: String,
        /// The message.
        message: String,
    },
    /// A link from an output to the next run's input that the model does not fit.
    #[error("state `{past}` from `{present}`: {reason}")]
    Link {
        /// The name of the input.
        past: String,
        /// The name of the output.
        present: String,
        /// The reason, in words.
        reason: &'static str,
    },
    /// A run with a state of a session that has no links, or with a state of another session.
    #[error("the state is none of this session")]
    ForeignState,
    /// A tensor of a state whose dims nobody has said.
    #[error("dim {axis} of state `{name}` is open; `new_state` takes its dims")]
    OpenState {
        /// The name of the input.
        name: String,
        /// The axis.
        axis: usize,
    },
    /// A tensor of a state that has no room for what a run adds.
    #[error("state `{name}` holds {capacity} rows, {needed} are needed")]
    Capacity {
        /// The name of the input.
        name: String,
        /// The most rows.
        capacity: usize,
        /// Rows behind the run.
        needed: usize,
    },
    /// The source of a model gives none for the shapes of a run.
    #[error("{0}")]
    Source(String),
    /// The shape of a tensor is not known before it is computed.
    #[error(
        "the shape of tensor {tensor}, which `{node}` gives, does not follow from the shapes of the inputs"
    )]
    OpenShape {
        /// The tensor.
        tensor: TensorId,
        /// The name of the op that gives it.
        node: String,
    },
}

/// An op of a model that nothing runs.
///
/// ```
/// use sterna::{DataType, Engine, Error, GraphBuilder, Session, SessionFault};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[Some(4)])?;
/// let y = g.custom("my.domain::Twice", &[x], &[(DataType::F32, None)])?[0];
/// g.output("y", y)?;
/// let Err(Error::Session(SessionFault::MissingOps(ops))) = Session::new(g.build()?, &Engine::new()) else {
///     panic!("nobody has given the op");
/// };
/// assert_eq!((&*ops[0].op, &*ops[0].inputs[0]), ("my.domain::Twice", "f32 {4}"));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingOp {
    /// The kind of the op, or the name under which the model has it.
    pub op: String,
    /// The name of the op in the graph.
    pub node: String,
    /// The place of the op among those of the graph.
    pub place: usize,
    /// Its inputs: type and dims of each.
    pub inputs: Vec<String>,
    /// Why no kernel of Sterna runs it.
    pub reason: String,
}

/// Writes ops one behind the other, each with its name, its place and its inputs.
struct Listing<'a>(&'a [MissingOp]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, MissingOp { op, node, place, inputs, .. }) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            write!(f, "{before}{op} `{node}` (op {place}) on {}", inputs.join(", "))?;
        }
        Ok(())
    }
}

/// Writes names in quotes, with commas between them.
struct Quoted<'a>(&'a [String]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct DidYouMeanOwned<'a>(&'a Option<String>);

impl fmt::Display for DidYouMeanOwned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, "; did you mean `{name}`?"))
    }
}
