//! Errors as data, and the one table from an error to a C status code.

mod graph;
mod partition;
mod ports;
mod session;
mod tensor;

pub use self::graph::{AttentionFault, GraphFault, Mention, OpFault, ShapeFault};
pub use self::partition::{CompileFault, ExecuteFault};
pub use self::ports::{Direction, OpRef, PortRef};
use self::session::ShownCall;
pub use self::session::{MissingOp, SessionFault, ShownValue};
pub use self::tensor::{PortFault, TensorFault};
use crate::types::id::TensorId;
use crate::types::kind::OpKind;

/// The result of every function of this crate that can fail.
///
/// ```
/// use sterna::{DataType, LogicalTensor};
/// fn row(id: usize, length: i64) -> sterna::Result<LogicalTensor> {
///     LogicalTensor::strided(id, DataType::F32, &[1, length])
/// }
/// assert!(row(0, 3).is_ok() && row(0, -3).is_err());
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate. Its text is one sentence that names the op, the port and the values that clash.
///
/// ```
/// use sterna::{DataType, Error, LogicalTensor, Status};
/// let error = LogicalTensor::strided(7, DataType::F32, &[2, -3]).unwrap_err();
/// assert_eq!(error.to_string(), "tensor 7: dim 1 is -3; a dim is not negative");
/// assert_eq!(error.status(), Status::InvalidArguments);
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A logical tensor, or its memory, is not what it must be.
    #[error("tensor {id}: {fault}")]
    Tensor {
        /// The tensor.
        id: TensorId,
        /// The fault.
        fault: TensorFault,
    },
    /// A value of the reference interpreter is not what it must be.
    #[error("value: {0}")]
    Value(TensorFault),
    /// An op does not fit its schema row.
    #[error("{op}: {fault}")]
    Op {
        /// The op.
        op: OpRef,
        /// The fault.
        fault: OpFault,
    },
    /// The ops do not make a graph, or the graph is not in the state that a call needs.
    #[error(transparent)]
    Graph(#[from] GraphFault),
    /// An option of attention does not do.
    #[error("attention: {0}")]
    Attention(AttentionFault),
    /// Shapes that contradict an op's shape rule.
    #[error("{op}: {fault}")]
    Shape {
        /// The op.
        op: OpRef,
        /// The fault of its shapes.
        fault: Box<ShapeFault>,
    },
    /// A partition cannot be compiled for the given tensors.
    #[error("partition {partition} cannot be compiled: {fault}")]
    Compile {
        /// The partition.
        partition: usize,
        /// Why not.
        fault: CompileFault,
    },
    /// A compiled partition cannot be executed on the given tensors.
    #[error("the partition cannot be executed: {0}")]
    Execute(ExecuteFault),
    /// The engine's allocator did not give memory.
    #[error("the allocator failed to give {size} bytes aligned to {align}")]
    OutOfMemory {
        /// Bytes requested.
        size: usize,
        /// Alignment requested, in bytes.
        align: usize,
    },
    /// The thread pool of an engine could not start.
    #[error("a pool of {threads} worker threads could not be started")]
    ThreadPool {
        /// Workers requested.
        threads: usize,
    },
    /// Something known that is not implemented.
    #[error("{op}: {reason}")]
    Unimplemented {
        /// The op.
        op: OpRef,
        /// The feature that is not implemented.
        reason: &'static str,
    },
    /// A name is not that of one port.
    #[error("port `{name}`: {fault}")]
    Port {
        /// The name.
        name: String,
        /// The fault.
        fault: PortFault,
    },
    /// An operand of [`select`](fn@crate::select), or its result, is not what it must be.
    #[error("select: `{operand}`: {fault}")]
    Operand {
        /// The operand: `cond`, `then`, `else` or `dst`.
        operand: &'static str,
        /// The fault.
        fault: TensorFault,
    },
    /// An op that a [`GraphBuilder`](crate::GraphBuilder) cannot add.
    #[error("{}: {error}", ShownCall(*op, values))]
    Build {
        /// The kind of the op.
        op: OpKind,
        /// Its operands.
        values: Vec<ShownValue>,
        /// The fault of the op.
        error: Box<Error>,
    },
    /// A model cannot become a session, or a session cannot run on what it is given.
    #[error("session: {0}")]
    Session(SessionFault),
    /// A graph in JSON is not well formed, or lacks a part of an op.
    #[error(transparent)]
    Json(Box<JsonFault>),
}

impl Error {
    /// The status in the C ABI.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Tensor { .. }
            | Self::Value(_)
            | Self::Json(_)
            | Self::Attention(_)
            | Self::Port { .. }
            | Self::Operand { .. } => Status::InvalidArguments,
            Self::Op { .. } => Status::InvalidGraphOp,
            Self::Graph(GraphFault::DuplicateOp(_)) => Status::InvalidGraphOp,
            Self::Graph(_) => Status::InvalidGraph,
            Self::Shape { .. } => Status::InvalidShape,
            Self::Compile { fault: CompileFault::Type { .. }, .. } => Status::InvalidDataType,
            Self::Compile { .. } => Status::InvalidArguments,
            Self::Execute(ExecuteFault::Panicked) => Status::RuntimeError,
            Self::Execute(_) => Status::InvalidArguments,
            Self::OutOfMemory { .. } => Status::OutOfMemory,
            Self::ThreadPool { .. } => Status::RuntimeError,
            Self::Build { error, .. } => error.status(),
            Self::Session(SessionFault::MissingOps(_)) => Status::Unimplemented,
            Self::Session(SessionFault::Custom { .. }) => Status::RuntimeError,
            Self::Session(SessionFault::NoSource(_)) => Status::InvalidGraph,
            Self::Session(
                SessionFault::Dims { .. } | SessionFault::OpenShape { .. } | SessionFault::OpenState { .. },
            ) => Status::InvalidShape,
            Self::Session(SessionFault::Type { .. }) => Status::InvalidDataType,
            Self::Session(_) => Status::InvalidArguments,
            Self::Unimplemented { .. } => Status::Unimplemented,
        }
    }
}

/// The result of a call in the C ABI; the codes are those of `dnnl_status_t`.
///
/// ```
/// use sterna::{OpFault, Error, Graph, Op, OpKind, Status};
/// let error = Graph::new().add_op(Op::new(4, OpKind::Select)).unwrap_err();
/// assert_eq!(error.status(), Status::InvalidGraphOp);
/// assert!(matches!(error, Error::Op { op, fault: OpFault::Count { given: 0, .. } } if op.id == 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Status {
    /// The call succeeded.
    Success = 0,
    /// The allocator failed.
    OutOfMemory = 1,
    /// A value that the call cannot take.
    InvalidArguments = 2,
    /// Known, but not implemented.
    Unimplemented = 3,
    /// A defect of this library showed while a partition ran.
    RuntimeError = 5,
    /// The graph is not consistent, or not in the state that the call needs.
    InvalidGraph = 7,
    /// An op does not fit its schema row.
    InvalidGraphOp = 8,
    /// Shapes do not fit together.
    InvalidShape = 9,
    /// A data type is not that of the graph.
    InvalidDataType = 10,
}

impl From<SessionFault> for Error {
    fn from(fault: SessionFault) -> Self {
        Self::Session(fault)
    }
}

impl From<AttentionFault> for Error {
    fn from(fault: AttentionFault) -> Self {
        Self::Attention(fault)
    }
}

/// Where and why a graph in JSON cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {place}{message}")]
#[non_exhaustive]
pub struct JsonFault {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The op, port, attribute and key of the error, then `: `; empty for the whole document.
    pub place: String,
    /// The fault there.
    pub message: String,
    /// The error of the graph under construction, if the JSON itself is well formed; the message says it too,
    /// so it is no source of its own.
    pub cause: Option<Error>,
}
