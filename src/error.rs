//! Errors as data, and the one table from an error to a C status code.

use std::fmt;

use crate::types::DidYouMean;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, AutoBroadcast, OpId, OpKind, TensorId};
use crate::types::shape::{Braced, BroadcastFault, Dims, MAX_RANK};

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
        /// What is wrong with it.
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
        /// What is wrong with it.
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
        /// What is wrong with its shapes.
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
        /// What is not implemented.
        reason: &'static str,
    },
    /// A name is not that of one port.
    #[error("port `{name}`: {fault}")]
    Port {
        /// The name.
        name: String,
        /// What is wrong with it.
        fault: PortFault,
    },
    /// An operand of [`select`](fn@crate::select), or its result, is not what it must be.
    #[error("select: `{operand}`: {fault}")]
    Operand {
        /// The operand: `cond`, `then`, `else` or `dst`.
        operand: &'static str,
        /// What is wrong with it.
        fault: TensorFault,
    },
    /// A graph in JSON is not well formed, or lacks a part of an op.
    #[error(transparent)]
    Json(Box<JsonFault>),
}

impl Error {
    /// The status in the C ABI.
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

/// The op of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpRef {
    /// Its kind.
    pub kind: OpKind,
    /// Its id.
    pub id: OpId,
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

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} `{}` (tensor {})", self.direction, self.index, self.name, self.tensor)
    }
}

/// What is wrong with a logical tensor, or with its memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// More dims than a tensor can have.
    #[error("rank {rank} is larger than {MAX_RANK}")]
    Rank {
        /// The rank given.
        rank: usize,
    },
    /// A negative dim that is not [`UNKNOWN_DIM`](crate::UNKNOWN_DIM).
    #[error("dim {axis} is {dim}; a dim is not negative")]
    NegativeDim {
        /// Its axis.
        axis: usize,
        /// The dim given.
        dim: i64,
    },
    /// A negative stride that is not [`UNKNOWN_DIM`](crate::UNKNOWN_DIM).
    #[error("stride {axis} is {stride}; a stride is not negative")]
    NegativeStride {
        /// Its axis.
        axis: usize,
        /// The stride given.
        stride: i64,
    },
    /// The number of strides is not that of dims.
    #[error("{strides} strides for {dims} dims")]
    StrideCount {
        /// Number of dims.
        dims: usize,
        /// Number of strides.
        strides: usize,
    },
    /// A product of dims, strides and element size exceeds the address space.
    #[error("{} with strides {} is larger than the address space", Braced(dims), Braced(strides))]
    TooLarge {
        /// The dims.
        dims: Dims,
        /// The strides; empty if contiguous strides would have been computed.
        strides: Dims,
    },
    /// A host scalar has rank 0 and type s32, s64 or f32.
    #[error("a host scalar has rank 0 and type s32, s64 or f32, not {} and type {data_type}", Rank(*rank))]
    HostScalar {
        /// The rank given; `None` if unknown.
        rank: Option<usize>,
        /// The type given.
        data_type: DataType,
    },
    /// The call is for host scalars only, or for all but host scalars.
    #[error("property {property} does not go with this call; {hint}")]
    Property {
        /// The property of the tensor.
        property: crate::types::kind::Property,
        /// The call that fits.
        hint: &'static str,
    },
    /// Memory was given for a tensor with unknown dims or strides.
    #[error("memory needs known dims and strides")]
    NotConcrete,
    /// The Rust type of the memory is not the type of the tensor.
    #[error("the elements given are {given}, the tensor is {expected}")]
    ElementType {
        /// The type of the tensor.
        expected: DataType,
        /// The type given.
        given: DataType,
    },
    /// The memory holds fewer elements than the tensor.
    #[error("{given} elements were given, {needed} are needed")]
    TooShort {
        /// Elements that the tensor spans.
        needed: usize,
        /// Elements given.
        given: usize,
    },
    /// No port of the partition has this id.
    #[error("it is no port of the compiled partition")]
    NoPort,
    /// A view whose strides are not those of the description.
    #[error("the strides given are {}, the tensor has {}", Braced(given), Braced(expected))]
    Strides {
        /// The strides of the tensor.
        expected: Dims,
        /// The strides given.
        given: Dims,
    },
    /// Elements were given for another shape.
    #[error("elements of {} were given, the tensor is {}", Braced(given), Braced(expected))]
    Shape {
        /// The shape of the tensor.
        expected: Dims,
        /// The shape given.
        given: Dims,
    },
    /// The number of bytes is not that of shape and type.
    #[error("{given} bytes were given, {needed} are needed")]
    ByteCount {
        /// Bytes of all elements.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The layout is none that an array of `ndarray` has.
    #[error("no array has dims and strides of the tensor")]
    NoArray,
    /// The type has no element of whole bytes.
    #[error("no memory can be had for elements of type {0}")]
    NoElements(DataType),
}

struct Rank(Option<usize>);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rank) => write!(f, "rank {rank}"),
            None => f.write_str("unknown rank"),
        }
    }
}

/// Why a name is not that of one port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortFault {
    /// No port has this name.
    #[error("no port of the compiled partition is called so, only {}{}", Listed(names), DidYouMean(*nearest))]
    Unknown {
        /// The names of the ports, inputs first.
        names: Vec<&'static str>,
        /// The name that may be meant.
        nearest: Option<&'static str>,
    },
    /// Several ports have this name.
    #[error("tensors {} are called so; name one of them by its id", Listed(tensors))]
    Ambiguous {
        /// The tensors of the ports.
        tensors: Vec<TensorId>,
    },
}

/// Writes values with commas between them.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What is wrong with an op according to its schema row.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpFault {
    /// Too many or too few inputs or outputs.
    #[error("{given} {direction}s were given, {expected} expected")]
    Count {
        /// Inputs or outputs.
        direction: Direction,
        /// What the schema row says, in words.
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
        /// What the op has instead.
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

/// What is wrong with a graph as a whole.
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
    /// Two descriptions of one tensor contradict each other.
    #[error("tensor {tensor} is described in two ways: {what} differ between {first} and {second}")]
    MentionsDiffer {
        /// The tensor.
        tensor: TensorId,
        /// What differs: "types", "dims", …
        what: &'static str,
        /// The op of the first description.
        first: OpRef,
        /// The op of the description that differs.
        second: OpRef,
    },
    /// An op that depends on its own result.
    #[error("{0} depends on its own result")]
    Cycle(OpRef),
}

/// What is wrong with an option of [`Graph::attention`](crate::Graph::attention).
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
    #[error("`{option}` meets tensor {tensor} of {}; {rule}", Braced(given))]
    Shape {
        /// The option.
        option: &'static str,
        /// The tensor.
        tensor: TensorId,
        /// Its dims; none if they are unknown.
        given: Dims,
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

impl From<AttentionFault> for Error {
    fn from(fault: AttentionFault) -> Self {
        Self::Attention(fault)
    }
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
    #[error("{port} is given as {}, but {} follows from the inputs", Braced(given), Braced(inferred))]
    Contradiction {
        /// The port.
        port: PortRef,
        /// The shape given, with `?` for unknown dims.
        given: Dims,
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
        /// What does not fit.
        why: &'static str,
    },
    /// The result has more elements than can be addressed.
    #[error("the result {} is larger than the address space", Braced(dims))]
    TooLarge {
        /// The inferred shape.
        dims: Dims,
    },
}

/// Why a partition cannot be compiled for the given tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileFault {
    /// Sterna does not run it.
    #[error("it is not supported: {0}")]
    Unsupported(String),
    /// No logical tensor was given for a port.
    #[error("{direction} tensor {tensor} is missing")]
    Missing {
        /// Input or output.
        direction: Direction,
        /// The port.
        tensor: TensorId,
    },
    /// A type other than that of the graph.
    #[error("tensor {tensor} is {given}, in the graph it is {expected}")]
    Type {
        /// The port.
        tensor: TensorId,
        /// The type in the graph.
        expected: DataType,
        /// The type given.
        given: DataType,
    },
    /// An input with unknown dims.
    #[error("the shape of input tensor {tensor} is not fully known")]
    UnknownShape {
        /// The port.
        tensor: TensorId,
    },
    /// A tensor whose layout is not strided, or whose strides are unknown.
    #[error("tensor {tensor} has no strided layout with known strides")]
    NotStrided {
        /// The port.
        tensor: TensorId,
    },
    /// An output whose strides may put two elements in one place.
    #[error("the strides {} of output tensor {tensor} overlap for dims {}", Braced(strides), Braced(dims))]
    OverlappingStrides {
        /// The port.
        tensor: TensorId,
        /// Its dims.
        dims: Dims,
        /// Its strides.
        strides: Dims,
    },
    /// A layout that exceeds the address space.
    #[error("tensor {tensor} of {} is larger than the address space", Braced(dims))]
    TooLarge {
        /// The port.
        tensor: TensorId,
        /// Its dims.
        dims: Dims,
    },
    /// A property other than that of the graph, if one of the two is host scalar.
    #[error("tensor {tensor} is a host scalar here or in the graph, but not in both")]
    HostScalar {
        /// The port.
        tensor: TensorId,
    },
}

/// Why a compiled partition cannot be executed on the given tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteFault {
    /// No tensor was given for a port.
    #[error("{direction} tensor {tensor} is missing")]
    Missing {
        /// Input or output.
        direction: Direction,
        /// The port.
        tensor: TensorId,
    },
    /// A tensor without memory.
    #[error("tensor {tensor} has no memory")]
    NoMemory {
        /// The port.
        tensor: TensorId,
    },
    /// A tensor whose description differs from the compiled one.
    #[error("tensor {tensor}: {what} are {given} here, but {expected} where it was compiled")]
    Differs {
        /// The port.
        tensor: TensorId,
        /// What differs: "types", "dims", …
        what: &'static str,
        /// What the tensor given has, as text.
        given: String,
        /// What the partition was compiled for, as text.
        expected: String,
    },
    /// A tensor of another engine.
    #[error("tensor {tensor} belongs to another engine")]
    TensorEngine {
        /// The port.
        tensor: TensorId,
    },
    /// A stream of another engine than that of the compiled partition.
    #[error("the stream belongs to another engine than the compiled partition")]
    StreamEngine,
    /// An output that overlaps another output, or an input that is not its in-place pair.
    #[error("output tensor {output} overlaps tensor {other} in memory")]
    Overlap {
        /// The output.
        output: TensorId,
        /// What it overlaps.
        other: TensorId,
    },
    /// An output marked as in place of an input, although the two are no in-place pair.
    #[error("output tensor {output} cannot be in place of tensor {input}; see `inplace_ports`")]
    NotInPlace {
        /// The output.
        output: TensorId,
        /// The input that it was to replace.
        input: TensorId,
    },
    /// The caller's scratch memory is too small.
    #[error("the scratchpad has {given} bytes, {needed} are needed")]
    Scratchpad {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// A worker panicked: a defect of this library. The compiled partition can be used again.
    #[error("a worker panicked")]
    Panicked,
}

/// Where and why a graph in JSON cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {place}{message}")]
pub struct JsonFault {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The op, port, attribute and key of the error, then `: `; empty for the whole document.
    pub place: String,
    /// What is wrong there.
    pub message: String,
    /// The error of the graph under construction, if the JSON itself is well formed.
    #[source]
    pub cause: Option<Error>,
}
