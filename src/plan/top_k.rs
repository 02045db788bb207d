//! Phases that give the first elements of lines in order of size, or their places.

use smallvec::SmallVec;

use super::access::Base;
use crate::kernels::by_width::PackTile;
use crate::kernels::pointwise::Kernel1;
use crate::kernels::top_k::{LineKernels, Ranking};
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Most lines of a task.
pub(crate) const LINES: usize = 256;

/// Finds the first elements of each line.
#[derive(Debug)]
pub(crate) struct TopKPhase {
    pub(crate) name: &'static str,
    pub(crate) kernels: LineKernels,
    pub(crate) ranking: Ranking,
    pub(crate) form: LineForm,
    /// Elements of a line.
    pub(crate) length: usize,
    /// How many of each line are given.
    pub(crate) count: usize,
    pub(crate) source: LineOperand,
    /// The elements, if they are given.
    pub(crate) elements: Option<LineOperand>,
    /// The places of the elements.
    pub(crate) indices: LineOperand,
    /// The lines, with at least one dim.
    pub(crate) dims: SmallVec<[LineDim; 4]>,
    /// Most lines of a task, which lie along the last dim.
    pub(crate) lines: usize,
    /// The kernel that brings elements from strides, with room for them.
    pub(crate) pack: Option<LineCopy<PackTile>>,
    /// The kernel that widens elements, with room for them.
    pub(crate) widen: Option<LineCopy<Kernel1>>,
    /// Bytes of an element that kernels read.
    pub(crate) width: usize,
    /// Offsets in the scratch: of keys, and of places.
    pub(crate) keys: usize,
    pub(crate) places: usize,
    /// Bytes of scratch of a thread.
    pub(crate) scratch: usize,
}

/// The direction in which kernels go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineForm {
    /// Along lines side by side, a few steps at a time.
    Columns { steps: usize },
    /// The same, once short lines are transposed.
    Transposed,
    /// Line by line.
    Rows,
}

/// A kernel that copies elements, and the offset of the copies in the scratch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineCopy<K> {
    pub(crate) kernel: K,
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

    /// Number of tasks along the last dim.
    pub(crate) fn blocks(&self) -> usize {
        self.dims.last().map_or(1, |dim| dim.extent.div_ceil(self.lines))
    }

    /// Number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        let outer = self.dims.len().saturating_sub(1);
        let dims = self.dims[..outer].iter().map(|dim| dim.extent);
        dims.chain([self.blocks()]).saturating_product()
    }

    /// Number of lines.
    pub(crate) fn all_lines(&self) -> usize {
        self.dims.iter().map(|dim| dim.extent).saturating_product()
    }
}
