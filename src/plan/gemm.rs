//! The phases of a matrix product: the packing of the right operand, and the product itself.

use super::access::Base;
use super::ids::AccessId;
use super::nest::LoopNest;
use crate::kernels::Extent;
use crate::kernels::gemm::depthwise::DepthwiseKernel;
use crate::kernels::gemm::integers::{IntegerRows, SumScaling};
use crate::kernels::gemm::pack::{PackPanel, RowPack};
use crate::kernels::gemm::planes::PlaneKernel;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS};
use crate::kernels::gemm::{GemmKernel, StoredKernels};
use crate::kernels::pointwise::{Kernel1, Kernel2};
use crate::kernels::unpack::UnpackTile;
use crate::kernels::vector::LANES;
use crate::types::kind::Level;

/// Packs the right operand of a product into an internal buffer, panel by panel.
#[derive(Debug)]
pub(crate) struct PackPhase {
    /// The loops over matrices and, in each, over blocks of rows and over panels. Its program has no steps,
    /// and two accesses: the operand and the buffer; with integers a third one, the sums of columns.
    pub(crate) nest: LoopNest,
    pub(crate) kernel: PackPanel,
}

impl PackPhase {
    /// The access of the operand.
    pub(crate) const FROM: AccessId = AccessId(0);
    /// The access of the buffer.
    pub(crate) const TO: AccessId = AccessId(1);
    /// The access of the sums of columns, in s32: a row for each block of rows.
    pub(crate) const SUMS: AccessId = AccessId(2);
}

/// Computes matrix products, tile by tile of the results.
#[derive(Debug)]
pub(crate) struct GemmPhase {
    /// The loops over matrices and, in each, over tiles of the result. Its program is the epilogue, which may
    /// have no steps; its accesses are followed by those of the product, in the order of [`GemmOperand`].
    pub(crate) nest: LoopNest,
    /// The access of the left operand.
    pub(crate) first_access: AccessId,
    /// Rows of the nest are columns of the product.
    pub(crate) is_transposed: bool,
    /// Number of products that an element sums up.
    pub(crate) depth: usize,
    pub(crate) method: GemmMethod,
    pub(crate) left: LeftForm,
    /// Bytes from one column of the left operand to the next.
    pub(crate) left_column: isize,
    /// The facts of a product of integers, whose sums are s32, or f32 that are integers.
    pub(crate) integers: Option<IntegerProduct>,
    /// The windows that one operand consists of, if it is an image.
    pub(crate) windows: Option<WindowOperand>,
    /// How the right operand is dequantised, unless it is read as it is.
    pub(crate) dequantized: Option<DequantizedRight>,
    pub(crate) bias: Option<Bias>,
    pub(crate) finish: Finish,
    pub(crate) layout: GemmScratch,
}

impl GemmPhase {
    /// The bases that the product reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = Base> {
        let read = [GemmOperand::Left, GemmOperand::Right, GemmOperand::Bias];
        let scaling: &[GemmOperand] = match self.dequantized {
            Some(_) => &[GemmOperand::Scales, GemmOperand::Zeros],
            None => &[],
        };
        read.into_iter()
            .chain(scaling.iter().copied())
            .map(|operand| self.nest.program.accesses[self.first_access + operand as usize].base)
    }
}

/// The accesses of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GemmOperand {
    Left,
    Right,
    /// The bias, or the left operand again if there is none.
    Bias,
    /// The result; a slot of the driver if an epilogue reads it.
    Result,
    /// Of integers: the product of both scales for each column, in f64. Of a right operand that is
    /// dequantised: its scales in f32.
    Scales,
    /// Of integers: the right zero point of each column, an s32 in a word of 8 bytes. Of a right operand that
    /// is dequantised: its zero points in f32.
    Zeros,
    /// Of integers alone: the sums of the columns of the right operand, in s32. A row has those of a block of
    /// rows of the operand.
    ColumnSums,
}

/// An operand that consists of windows of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowOperand {
    pub(crate) level: Level,
    pub(crate) windows: ImageWindows,
    /// For each dim the loop through its windows, unless the rows or columns of the product go through them.
    pub(crate) loops: [Option<usize>; MAX_WINDOW_DIMS],
}

/// How operands of 8-bit integers are read, and how their sums become numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntegerProduct {
    /// Packs blocks of the left operand, unless operands are integers in f32, whose sums are f32.
    pub(crate) rows: Option<IntegerRows>,
    /// The zero point of the left operand, as kernels read it.
    pub(crate) left_zero: i32,
    /// True if a column has a zero point other than 0.
    pub(crate) has_right_zeros: bool,
    /// Scales belong to rows of the product, not to columns.
    pub(crate) scales_rows: bool,
    /// Rows of the sums of columns.
    pub(crate) sum_rows: usize,
    pub(crate) scaling: SumScaling,
}

/// A right operand of 8 or 4 bits, which becomes f32 part by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DequantizedRight {
    pub(crate) kernels: StoredKernels,
    /// The operand becomes f32 in registers, if all factors are finite.
    pub(crate) in_registers: bool,
    /// Bits of an element.
    pub(crate) bits: usize,
    /// True if a stored row, whose elements lie next to each other, goes along the depth, not along columns.
    pub(crate) is_along_depth: bool,
    /// Bytes from one stored row to the next, and their number.
    pub(crate) row_stride: isize,
    pub(crate) rows: usize,
    /// Stored rows, and elements of one, that share a scale.
    pub(crate) group: Extent,
    /// Scales from one group of rows to the next. Those of a row are neighbours.
    pub(crate) row_step: usize,
}

impl WindowOperand {
    /// Rows of the left operand that are gathered before they are converted.
    pub(crate) const ROWS: usize = 16;
}

impl DequantizedRight {
    /// Columns that become f32 at once for dot products.
    pub(crate) const DOT_COLUMNS: usize = 16;

    /// Numbers from one stored row in f32 to the next, if rows have so many elements. Kernels write whole
    /// vectors.
    pub(crate) fn widened_row(elements: usize) -> usize {
        elements.next_multiple_of(LANES) + LANES
    }
}

/// How a product is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GemmMethod {
    /// By micro-kernels, in blocks of the depth.
    Tiles {
        kernel: GemmKernel,
        /// Elements of the depth in a block.
        depth_block: usize,
        /// Bytes from one row of the right operand, or of its panels, to the next.
        right_row: isize,
        /// Bytes from one panel to the next.
        panel: isize,
        right: RightForm,
    },
    /// Channel by channel, or group by group of few channels, as sums of few products each.
    Depthwise {
        kernel: DepthwiseKernel,
        /// Channels of a group, and those that each element of the result sees: all, or the first one.
        group: usize,
        seen: usize,
        /// The weights.
        taps: TapRows,
    },
    /// In planes of the image. Rows are channels of the result, each of which sees one channel of its own, or
    /// all of a group.
    Planes {
        kernel: PlaneKernel,
        is_depthwise: bool,
        /// The weights.
        taps: TapRows,
    },
    /// By dot products, for few rows.
    Dots {
        kernels: StoredKernels,
        /// Bytes from one column of the right operand to the next.
        right_column: isize,
    },
}

/// The weights of channels that are convolved one by one: rows of taps, or of channels if these are rows of
/// the product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TapRows {
    /// Writes those of a tile as rows of f32, unless they are such rows.
    pub(crate) pack: Option<RowPack>,
    /// Bytes from one row to the next, and from one column to the next.
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
}

/// How the kernels of a product read the left operand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LeftForm {
    /// In memory.
    InPlace,
    /// In rows of contiguous elements, to which each tile converts or packs a block.
    Rows(RowPack),
    /// In columns of contiguous elements, which each tile copies next to each other: in memory they lie so
    /// far apart that they share few sets of the caches.
    Columns(RowPack),
    /// In windows of an image, which each tile gathers as rows, and converts unless types are equal.
    Windows(Option<RowPack>),
}

/// How the right operand of micro-kernels lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RightForm {
    /// In rows in memory.
    InPlace,
    /// In rows in memory, some of which are read side by side from beyond the caches.
    Streams,
    /// In panels, which an earlier phase has packed.
    Packed,
    /// In panels that each tile packs to scratch, block by block of the depth.
    PackedInTile(TilePanels),
    /// In windows of an image, which each tile gathers as panels, block by block of the depth.
    Windows(PackPanel),
    /// In panels that each tile dequantises to scratch, block by block of the depth.
    Dequantized(PackPanel),
}

/// The packing of a tile's part of the right operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilePanels {
    pub(crate) kernel: PackPanel,
    /// Bytes from one row of the operand to the next, and from one column to the next.
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
}

/// The addition of a bias to a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bias {
    pub(crate) level: Level,
    /// Widens a row of the bias to the type of the sums.
    pub(crate) row_pack: RowPack,
    /// Adds a number to each row.
    pub(crate) add: Kernel2,
    /// Adds a row to each row of sums in f64; others have [a kernel](crate::kernels::gemm::add_to_rows).
    pub(crate) add_row: Option<Kernel2>,
    /// Bytes from one row of the bias to the next, and from one column to the next.
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
    /// The bias is one number for each row.
    pub(crate) is_of_rows: bool,
}

/// How a tile of sums becomes one of the result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    /// Bytes of a sum, and of an element of the result.
    pub(crate) sum_width: usize,
    pub(crate) width: usize,
    /// Rounds to the type of the result.
    pub(crate) round: Option<Kernel1>,
    /// Stores elements that do not lie side by side.
    pub(crate) unpack: Option<UnpackTile>,
    /// Bytes from one column of the result to the next.
    pub(crate) col_stride: isize,
}

impl Finish {
    /// True if sums are computed in the memory of the result.
    pub(crate) fn is_direct(&self) -> bool {
        self.round.is_none() && self.unpack.is_none()
    }
}

/// Places in the scratch of a thread, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GemmScratch {
    /// The epilogue's own scratch comes first; the scratch of the product starts here.
    pub(crate) left: usize,
    /// Bytes from one row of the left block to the next, or from one column to the next.
    pub(crate) left_row: usize,
    /// The tile of f32, unless sums are computed in the memory of the result.
    pub(crate) sums: usize,
    /// The rounded tile, if it is unpacked afterwards.
    pub(crate) rounded: usize,
    /// The tile that the epilogue reads.
    pub(crate) product: usize,
    /// A row of the bias, or a column.
    pub(crate) bias: usize,
    /// Of integers: for each column of a tile the scale in f64, and in s32 the offset of the sum and the zero
    /// point; for each row the sum of the left operand in s32.
    pub(crate) scales: usize,
    pub(crate) subtracted: usize,
    pub(crate) zeros: usize,
    pub(crate) row_sums: usize,
    /// Scratch of the kernels that pack rows.
    pub(crate) row_pack: usize,
    /// Rows of a right operand in f32, or the left rows as kernels of stored rows read them.
    pub(crate) widened: usize,
    /// Panels that a tile packs, and the sums of their columns in s32: a row for each block of the depth.
    pub(crate) panels: usize,
    pub(crate) panel_sums: usize,
    /// Elements of windows as they are in the image, before they are converted or packed.
    pub(crate) gathered: usize,
    /// Bytes of the whole scratch.
    pub(crate) end: usize,
}
