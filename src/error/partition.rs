//! Why a partition cannot be compiled or executed.

use super::ports::Direction;
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::shape::{Braced, Dims};

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
        /// The property that differs: "types", "dims", …
        what: &'static str,
        /// The property of the tensor given, as text.
        given: String,
        /// The property that the partition was compiled for, as text.
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
        /// The memory that it overlaps.
        other: TensorId,
    },
    /// An output marked as in place of an input, although the two are no in-place pair.
    #[error("output tensor {output} cannot be in place of tensor {input}; see `in_place_pairs`")]
    NotInPlace {
        /// The output.
        output: TensorId,
        /// The input that it was to replace.
        input: TensorId,
    },
    /// An index of a lookup that names no place along the dim that it looks up.
    #[error("tensor {tensor}: element {place} is {index}, which is no index from -{size} to {size} - 1")]
    IndexOutOfRange {
        /// The indices.
        tensor: TensorId,
        /// The place of the index in its tensor, counted row-major.
        place: usize,
        /// The index.
        index: i64,
        /// The size of the dim.
        size: i64,
    },
    /// A number that names a page, a slot or a length is out of its range.
    #[error("tensor {tensor}: element {place} is {number}, which is not from {first} to {last}")]
    NumberOutOfRange {
        /// The tensor of the number.
        tensor: TensorId,
        /// The place of the number in its tensor, counted row-major.
        place: usize,
        /// The number.
        number: i64,
        /// The least number that it may be.
        first: i64,
        /// The greatest one.
        last: i64,
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
