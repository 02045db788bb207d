//! The loops around the tiles of a nest.

use smallvec::SmallVec;

/// The strides of the accesses of a nest along one loop, in bytes, by access.
pub(crate) type Strides = SmallVec<[isize; 4]>;

/// One loop of a nest. Each iteration writes its own elements, so iterations may run in any order and on any
/// thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Number of iterations.
    pub(crate) extent: usize,
    /// The stride of each access, in bytes.
    pub(crate) strides: Strides,
}
