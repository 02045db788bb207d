//! Phases of pools and interpolations: each row of the result combines rows of the source, element by
//! element, and then elements of the combined row along it.
//!
//! A row goes along the last spatial dim. It has groups of `inner` elements, which are all channels if they
//! are nearer to each other in the source than the places along the row, and one element otherwise.

use smallvec::SmallVec;

use super::access::Base;
use crate::kernels::by_width::PackTile;
use crate::kernels::pointwise::Kernel1;
use crate::kernels::rows::{LargestKernels, PoolKernels, RepeatRows, Repeats, Strip, WindowsAlong};
use crate::kernels::unpack::UnpackTile;
use crate::kernels::vector::RowType;
use crate::types::shape::SaturatingProduct;

/// Combines rows of a source to rows of a result.
#[derive(Debug)]
pub(crate) struct PoolPhase {
    /// The op, and the part that the phase has in it.
    pub(crate) name: &'static str,
    pub(crate) kernels: PoolKernels,
    pub(crate) work: PoolWork,
    pub(crate) source: PoolOperand,
    /// The tensor that is written, or read beside the source if the work gives numbers of elements.
    pub(crate) result: PoolOperand,
    /// Extents of the dims that source and result share, but for the channels of a group.
    pub(crate) planes: SmallVec<[usize; 2]>,
    /// The spatial dims but the last.
    pub(crate) outer: SmallVec<[AxisTaps; 2]>,
    /// True if rows have no shares.
    pub(crate) is_plain: bool,
    /// The groups of a row of the source and of the result, and the elements of a group.
    pub(crate) width: usize,
    pub(crate) outputs: usize,
    pub(crate) inner: usize,
    pub(crate) across: PoolAcross,
    /// Groups of the result that are made at once, and the number of such parts.
    pub(crate) part: usize,
    pub(crate) parts: usize,
    /// The number with which an element begins, and which stands for what lies beyond the source.
    pub(crate) start: f32,
    pub(crate) scratch: PoolScratch,
}

/// The use of combined elements.
#[derive(Debug)]
pub(crate) enum PoolWork {
    /// The result, divided by numbers.
    Combine(PoolDivisor),
    /// The number of the largest element of each window goes to a buffer, dense.
    Numbers { to: Base, kernels: LargestKernels },
    /// Elements of the source are added where numbers in a buffer say.
    Scatter { numbers: Base, kernels: LargestKernels },
    /// The same of planes whose rows are contiguous. A task has several rows of windows of a plane, or
    /// several planes, which are one plane of the phase.
    Planes(PoolDivisor, PoolPlanes),
    /// Rows of the source are repeated. A task has all rows along the last of the outer dims, which is one
    /// row of the phase.
    Repeat(RowRepeats),
}

/// The windows down planes, and the planes along the last dim of these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolPlanes {
    pub(crate) down: WindowsAlong,
    /// Rows of windows of a plane, and those of a task.
    pub(crate) rows: usize,
    pub(crate) of_task: usize,
    pub(crate) strip: Strip,
    pub(crate) planes: usize,
    pub(crate) planes_of_task: usize,
    /// Bytes from one plane to the next, in the source and in the result.
    pub(crate) strides: [isize; 2],
}

/// The rows of a task whose elements are repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowRepeats {
    pub(crate) kernel: RepeatRows,
    pub(crate) rows: usize,
    pub(crate) times: Repeats,
    /// Bytes from one row to the next, in the source and in the result.
    pub(crate) strides: [isize; 2],
}

/// The numbers by which sums are divided.
#[derive(Debug)]
pub(crate) enum PoolDivisor {
    Same(f32),
    /// The number of rows that are combined, times a number of each group of the result.
    Counted(Vec<f32>),
}

/// Groups along a row.
#[derive(Debug)]
pub(crate) enum PoolAcross {
    /// Those of windows.
    Strided(WindowsAlong),
    /// For each rank and output; the group behind the row stands for none. Shares of sums are beside it.
    Named { places: Vec<u32>, shares: Vec<f32>, ranks: usize },
}

/// The rows along one dim that make each row of the result.
#[derive(Debug, Clone)]
pub(crate) struct AxisTaps {
    /// Where those of each row begin, and one more.
    pub(crate) firsts: Vec<u32>,
    pub(crate) taps: Vec<AxisTap>,
    /// Elements of the kernel along the dim.
    pub(crate) kernel: u32,
    /// Rows of the source along the dim.
    pub(crate) source: usize,
}

/// A row along one dim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AxisTap {
    pub(crate) place: u32,
    /// Its number in the kernel.
    pub(crate) number: u32,
    pub(crate) share: f32,
}

/// A tensor, with its strides in bytes.
#[derive(Debug)]
pub(crate) struct PoolOperand {
    pub(crate) base: Base,
    pub(crate) float: RowType,
    pub(crate) planes: SmallVec<[isize; 2]>,
    pub(crate) outer: SmallVec<[isize; 2]>,
    /// Along a row, and in a group.
    pub(crate) along: isize,
    pub(crate) within: isize,
    /// The kernels that bring rows to neighbours and back; `None` if they are.
    pub(crate) packed: Option<(PackTile, UnpackTile)>,
    /// The kernels from the type to f32 and back; `None` for f32.
    pub(crate) to_f32: Option<Kernel1>,
    pub(crate) of_f32: Option<Kernel1>,
}

/// Offsets in the scratch of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolScratch {
    /// A row of the source as neighbours, and in f32.
    pub(crate) packed: usize,
    pub(crate) widened: usize,
    /// Combined rows, with room before and behind; the numbers of rows; and room to take both apart.
    pub(crate) combined: usize,
    pub(crate) numbers: usize,
    pub(crate) apart: usize,
    pub(crate) apart_numbers: usize,
    /// A row of the result in f32, and in its type.
    pub(crate) result: usize,
    pub(crate) narrow: usize,
    pub(crate) end: usize,
}

impl AxisTaps {
    /// The rows that make a row of the result.
    pub(crate) fn of(&self, row: usize) -> &[AxisTap] {
        &self.taps[self.firsts[row] as usize..self.firsts[row + 1] as usize]
    }

    /// Rows of the result.
    pub(crate) fn rows(&self) -> usize {
        self.firsts.len() - 1
    }
}

impl PoolPhase {
    /// Rows of the result.
    pub(crate) fn rows(&self) -> usize {
        let outer = self.outer.iter().map(AxisTaps::rows);
        self.planes.iter().copied().chain(outer).saturating_product()
    }

    /// Number of tasks: a part of a row each.
    pub(crate) fn tasks(&self) -> usize {
        self.rows().saturating_mul(self.parts)
    }

    /// The starts of all that the phase reads.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Base> {
        let numbers = match self.work {
            PoolWork::Scatter { numbers, .. } => Some(numbers),
            PoolWork::Combine(_) | PoolWork::Planes(..) | PoolWork::Numbers { .. } | PoolWork::Repeat(_) => {
                None
            }
        };
        [self.source.base].into_iter().chain(numbers)
    }

    /// The start of what it writes.
    pub(crate) fn written(&self) -> Base {
        match self.work {
            PoolWork::Numbers { to, .. } => to,
            PoolWork::Combine(_) | PoolWork::Planes(..) | PoolWork::Scatter { .. } | PoolWork::Repeat(_) => {
                self.result.base
            }
        }
    }
}
