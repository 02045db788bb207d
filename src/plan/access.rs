//! Strided accesses, and the loops along which they move.

use smallvec::SmallVec;

use super::ids::{AccessId, indexed_by};

/// A strided access; its strides along the loops are in the loops, at the index of the access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// Its start.
    pub(crate) base: Base,
    /// Bytes from there to the first element; for indices, the first index.
    pub(crate) offset: isize,
    /// Bytes from one row of a tile to the next.
    pub(crate) row_stride: isize,
    /// Bytes from one element of a row to the next.
    pub(crate) col_stride: isize,
}

/// Start of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// A port, by its index among the inputs followed by the outputs.
    Port(usize),
    /// One of the plan's internal buffers.
    Buffer(usize),
    /// A constant of the plan, by its first word.
    Constant(usize),
    /// 0: the access goes through indices, not through memory, and its strides count in ones.
    Index,
    /// Memory that the driver of the phase supplies for each tile, by the number of its slot. The driver
    /// follows the tiles, so the access has no strides along loops.
    Driver(usize),
}

impl Base {
    /// The index of the accessed input, given the number of inputs.
    pub(crate) fn input(self, inputs: usize) -> Option<usize> {
        match self {
            Self::Port(port) if port < inputs => Some(port),
            _ => None,
        }
    }
}

/// The strides of the accesses of a nest along one loop, in bytes, by access.
pub(crate) type Strides = SmallVec<[isize; 4]>;

indexed_by! {
    SmallVec<[Access; 4]>, AccessId, Access;
    [Access], AccessId, Access;
    Strides, AccessId, isize;
}

/// One loop of a nest. Each iteration writes its own elements, so iterations may run in any order and on any
/// thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Number of iterations.
    pub(crate) extent: usize,
    /// The stride of each access, in bytes.
    pub(crate) strides: Strides,
}

/// A set of the loops of a nest, one bit each.
pub(crate) type LoopSet = u32;
