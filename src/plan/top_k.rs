//! Phases that give the first elements of lines in order of size, or their places.

use smallvec::SmallVec;

use super::access::Base;
use crate::kernels::top_k::{FirstOfLine, LineOrder};
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Finds the first elements of each line.
#[derive(Debug)]
pub(crate) struct TopKPhase {
    pub(crate) name: &'static str,
    pub(crate) kernel: FirstOfLine,
    pub(crate) order: LineOrder,
    /// Elements of a line.
    pub(crate) length: usize,
    /// How many of each line are given.
    pub(crate) count: usize,
    pub(crate) source: LineOperand,
    /// The elements, if they are given.
    pub(crate) elements: Option<LineOperand>,
    /// The places of the elements.
    pub(crate) indices: LineOperand,
    /// The lines.
    pub(crate) dims: SmallVec<[LineDim; 4]>,
    /// Bytes of scratch of a thread.
    pub(crate) scratch: usize,
}

/// A tensor in whose lines elements lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineOperand {
    pub(crate) base: Base,
    pub(crate) data_type: DataType,
    /// Bytes from one element of a line to the next.
    pub(crate) stride: isize,
}

/// A dim of the lines; all strides are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineDim {
    pub(crate) extent: usize,
    pub(crate) source: isize,
    pub(crate) elements: isize,
    pub(crate) indices: isize,
}

impl TopKPhase {
    /// The starts of all tensors that it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = Base> {
        [self.indices.base].into_iter().chain(self.elements.map(|elements| elements.base))
    }

    /// Number of lines; each is a task.
    pub(crate) fn lines(&self) -> usize {
        self.dims.iter().map(|dim| dim.extent).saturating_product()
    }
}
