//! Faults of a tensor, and of the name of a port.

use std::fmt;

use crate::types::DidYouMean;
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::shape::{Braced, Dims, MAX_RANK};

/// The fault of a logical tensor, or of its memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// More dims than a tensor can have.
    #[error("rank {rank} is larger than {MAX_RANK}")]
    Rank {
        /// The rank given.
        rank: usize,
    },
    /// A negative dim.
    #[error("dim {axis} is {dim}; a dim is not negative")]
    NegativeDim {
        /// Its axis.
        axis: usize,
        /// The dim given.
        dim: i64,
    },
    /// A negative stride.
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
    /// The memory does not start where an element of the type can.
    #[error("the memory is not aligned to {align} bytes")]
    Unaligned {
        /// The alignment of an element.
        align: usize,
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
    /// An index of a lookup names no place along the dim that it looks up.
    #[error("element {place} is {index}, which is no index from -{size} to {size} - 1")]
    IndexOutOfRange {
        /// The place of the index in its tensor, counted row-major.
        place: usize,
        /// The index.
        index: i64,
        /// The size of the dim.
        size: i64,
    },
    /// A number that names a page, a slot or a length is out of its range.
    #[error("element {place} is {number}, which is not from {first} to {last}")]
    NumberOutOfRange {
        /// The place of the number in its tensor, counted row-major.
        place: usize,
        /// The number.
        number: i64,
        /// The least number that it may be.
        first: i64,
        /// The greatest one.
        last: i64,
    },
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
