//! A phase over rows: each place of a tensor has a row, which lies along some of the tensor's dims.
//!
//! A task is a tile of places, and a part of their rows if the rows are long and only numbers of them are
//! wanted or no element depends on another, or if the rows are few. The parts of a row are fixed, so the bits
//! do not depend on threads. If the results of a row depend on numbers of the whole row, a phase before
//! measures the parts.

use smallvec::SmallVec;

use super::ids::AccessId;
use super::nest::LoopNest;
use crate::kernels::by_width::PackTile;
use crate::kernels::pointwise::Kernel1;
use crate::kernels::rows::{
    ChannelKernels, Fold, FoldKernels, NormBackward, NormProducts, NormRows, PreluBackward, PreluProducts,
    RowKernel, RowPass, ScanOrder, SoftMaxBackward, SoftMaxRows, SumKernels,
};
use crate::kernels::unpack::UnpackTile;
use crate::kernels::vector::RowType;

/// Elements of a part of a row that is combined to one number.
pub(crate) const PART: usize = 64 << 10;

/// Rows of products that are combined by columns at once: they stay in the first-level cache beside the
/// partial results.
pub(crate) const PRODUCT_ROWS: usize = 16;

/// The rows of tensors, and the work on them.
#[derive(Debug)]
pub(crate) struct RowsPhase {
    /// The op, for showing the plan.
    pub(crate) name: &'static str,
    /// The loops around tiles of places. A row of a tile is a place, and the only column is the place's row.
    pub(crate) nest: LoopNest,
    /// Elements of a row.
    pub(crate) length: usize,
    /// Elements of a part of a row, and the number of parts.
    pub(crate) part: usize,
    pub(crate) parts: usize,
    /// The computation.
    pub(crate) work: RowWork,
    /// The operands, in the order of the work.
    pub(crate) operands: SmallVec<[PlacedRows; 3]>,
    /// The rows that are written; none if numbers alone are.
    pub(crate) result: Option<PlacedRows>,
    /// The f32 by which rows are multiplied, and which are added: gamma and beta.
    pub(crate) parameters: SmallVec<[RowParameter; 2]>,
    /// A number for each place that is read.
    pub(crate) given: SmallVec<[PlaceNumbers; 2]>,
    /// A number for each place that is written.
    pub(crate) numbers: SmallVec<[PlaceNumbers; 2]>,
    /// The numbers of the parts of rows that one phase writes and the next one reads.
    pub(crate) measured: Option<Measured>,
    /// Offset of room for a row of f32 in the scratch, if the work keeps one.
    pub(crate) kept_row: Option<usize>,
    /// Offset of room for rows of f32 that are combined, for partial results of columns, or for numbers of
    /// channels.
    pub(crate) room: usize,
    /// The programs that produce the source and consume the result, while both are in the caches.
    pub(crate) prologue: Option<FusedRows>,
    pub(crate) epilogue: Option<FusedRows>,
}

impl RowsPhase {
    /// The part of the work on a row that the phase does: the whole, the first or the second pass.
    pub(crate) fn pass(&self) -> RowPass {
        self.measured.map_or(RowPass::Whole, |measured| measured.pass)
    }

    /// Number of tasks: each part of the rows of each tile of places.
    pub(crate) fn tasks(&self) -> usize {
        self.nest.tiles().saturating_mul(self.parts)
    }

    /// The nests of the programs before and behind the work.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &LoopNest> {
        self.prologue.iter().chain(&self.epilogue).map(|fused| &fused.nest)
    }

    /// Bytes of scratch of one thread.
    pub(crate) fn scratch(&self) -> usize {
        self.nest.program.scratch
    }
}

/// Two f64 for each part of the row of each place, which lie next to each other for the parts of a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// The direction: the phase writes the numbers or reads them.
    pub(crate) pass: RowPass,
    /// The access of the numbers, whose row stride is that of places.
    pub(crate) access: AccessId,
    /// Elements of a part of a row in the phase that writes the numbers, and the number of parts.
    pub(crate) part: usize,
    pub(crate) parts: usize,
    /// Offsets in the scratch: of the first and of the second number for each place of a tile.
    pub(crate) scratch: [usize; 2],
}

/// A tile program that runs on the rows of a tile of places.
#[derive(Debug)]
pub(crate) struct FusedRows {
    /// The same loops around tiles of places, then blocks of columns.
    pub(crate) nest: LoopNest,
    /// Offset of the program's scratch.
    pub(crate) scratch: usize,
    /// Offset of the rows that the program and the work hand over.
    pub(crate) rows: usize,
    /// Bytes from one of these rows to the next, and of an element.
    pub(crate) row_stride: usize,
    pub(crate) element: usize,
    /// True if a place has one element, not a row of them.
    pub(crate) is_by_place: bool,
}

/// The work on rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowWork {
    /// The elements as they are.
    Copy,
    /// A number of each row.
    Fold(FoldWork),
    /// A number of the numbers of its parts, which are f64.
    Merge {
        fold: Fold,
        finish: FoldFinish,
    },
    SoftMax {
        kernel: SoftMaxRows,
        inf_as_zero: bool,
        is_logarithm: bool,
    },
    Norm {
        kernel: NormRows,
        is_centred: bool,
        epsilon: f64,
    },
    /// GroupNorm of channels that lie beside each other: a tile has all groups, a part of a row some
    /// positions.
    ChannelNorm {
        kernels: ChannelKernels,
        /// Channels of a group.
        channels: usize,
        epsilon: f64,
    },
    SoftMaxBackward(RowKernel<SoftMaxBackward>),
    NormBackward {
        kernel: RowKernel<NormBackward>,
        epsilon: f64,
    },
    PreluBackward(RowKernel<PreluBackward>),
    /// The sums along a row, whose parts one task adds up one after the other.
    Scan {
        kernels: SumKernels,
        order: ScanOrder,
        /// True if the kernel goes along the places, because these lie contiguous.
        by_columns: bool,
    },
}

/// How rows are combined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoldWork {
    pub(crate) kernels: FoldKernels,
    /// The products that are combined, if not the elements.
    pub(crate) map: RowMap,
    /// True if the kernel goes along the places, because these lie contiguous.
    pub(crate) by_columns: bool,
    /// The kernel that transposes short rows first, so that their places lie contiguous.
    pub(crate) transpose: Option<PackTile>,
    /// The function that makes the result from the number; `None` for the number of a part of a row.
    pub(crate) finish: Option<FoldFinish>,
}

impl RowWork {
    /// True if numbers that a phase reads are those of elements of a row, not of places.
    pub(crate) fn is_given_along(&self) -> bool {
        matches!(self, Self::Fold(FoldWork { map: RowMap::Norm { is_by_place: false, .. }, .. }))
    }
}

/// Products that are combined.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowMap {
    None,
    /// Of a gradient with the normalised source; statistics are those of places, or of elements of a row.
    Norm {
        kernel: RowKernel<NormProducts>,
        epsilon: f64,
        is_by_place: bool,
    },
    Prelu(RowKernel<PreluProducts>),
}

/// The last step on the number of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FoldFinish {
    AsItIs,
    /// Divides it by the number of elements.
    Mean(f64),
    Root,
}

impl FoldFinish {
    /// The result for a number.
    pub(crate) fn of(self, number: f64) -> f64 {
        match self {
            Self::AsItIs => number,
            Self::Mean(count) => number / count,
            Self::Root => number.sqrt(),
        }
    }
}

/// Where rows, or numbers of places, are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowPlace {
    /// In memory; the row stride of the access leads from place to place.
    Access(AccessId),
    /// With the program before or behind the work.
    Program,
    /// Not needed.
    Unused,
}

/// Rows that are read or written.
#[derive(Debug, Clone)]
pub(crate) struct PlacedRows {
    pub(crate) place: RowPlace,
    /// Bytes of an element, and its type where kernels compute in f32.
    pub(crate) bytes: usize,
    pub(crate) float: RowType,
    /// Extents and strides in bytes of the loops along a row, the outermost first.
    pub(crate) along: SmallVec<[(usize, isize); 2]>,
    /// The room for rows that do not lie contiguous; `None` if they do.
    pub(crate) packed: Option<Packed>,
}

/// Contiguous rows in scratch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    /// Offset in the scratch, and bytes from row to row.
    pub(crate) scratch: usize,
    pub(crate) row_stride: usize,
    pub(crate) pack: PackTile,
    pub(crate) unpack: UnpackTile,
}

/// Rows of parameters, as f32.
#[derive(Debug, Clone)]
pub(crate) struct RowParameter {
    pub(crate) operand: PlacedRows,
    /// The kernel that widens them, and the offset of the wide rows in the scratch.
    pub(crate) widen: Option<(Kernel1, usize, usize)>,
    /// True if all places have the same.
    pub(crate) is_same: bool,
}

/// A number for each place, read or written.
#[derive(Debug, Clone)]
pub(crate) struct PlaceNumbers {
    pub(crate) place: RowPlace,
    /// For numbers that differ along rows instead: the loops along a row, as in [`PlacedRows`].
    pub(crate) along: SmallVec<[(usize, isize); 2]>,
    /// The kernel between f64 and the type in memory, and the bytes of an element in memory.
    pub(crate) convert: Option<Kernel1>,
    pub(crate) bytes: usize,
    /// Offsets in the scratch: of the numbers in f64, and in the type in memory.
    pub(crate) scratch: usize,
    pub(crate) narrow: usize,
    pub(crate) pack: PackTile,
    pub(crate) unpack: UnpackTile,
}
