//! The phase that packs the right operand of a product into panels.

use smallvec::SmallVec;

use super::method::Algorithm;
use super::operands::RightPlace;
use super::phase::Phases;
use crate::compile::integers::ColumnSums;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, batch_strides, width_of};
use crate::kernels::Extent;
use crate::kernels::gemm::GemmKernel;
use crate::kernels::gemm::pack::PackPanel;
use crate::plan::{Access, Loop, LoopNest, PackPhase, TileProgram};
use crate::types::dtype::DataType;
use crate::types::shape::{self, Dims};

/// Rows of the right operand in a block that is packed by one task. It is a multiple of the depth unit of
/// every form, and makes tasks enough for the threads.
const PACKED_ROWS: usize = 256;

/// The packed matrices of a right operand.
struct PackedMatrices {
    kernel: PackPanel,
    /// Columns of a panel, and panels of a matrix.
    panel: usize,
    panels: usize,
    /// Blocks of rows.
    blocks: usize,
    /// The sums of the columns of integers, behind the panels.
    sums: Option<ColumnSums>,
    /// Bytes of a matrix with its sums, and of all matrices.
    matrix: usize,
    bytes: usize,
    /// The dims of the matrices, and the matrices from index to index.
    dims: Dims,
    strides: Dims,
}

impl PackedMatrices {
    /// `None` if the sizes overflow.
    fn new(phases: &Phases<'_>) -> Option<Self> {
        let ProductShape { depth, columns, .. } = phases.operands.shape;
        let (kernel, panel) = phases.pack_kernel()?;
        let panels = columns.div_ceil(panel);
        let blocks = depth.div_ceil(PACKED_ROWS);
        let panel_bytes = kernel.panel_bytes(depth).checked_mul(panels)?;
        let sums = match kernel.writes_sums() {
            true => {
                let row = panels.checked_mul(4 * kernel.columns())?;
                Some(ColumnSums { offset: panel_bytes, row, rows: blocks })
            }
            false => None,
        };
        let bytes_of_sums = sums.map_or(Some(0), |sums| sums.row.checked_mul(sums.rows))?;
        let matrix = panel_bytes.checked_add(bytes_of_sums)?;
        let own = &phases.right().dims;
        let dims: Dims = own[..own.len().saturating_sub(2)].into();
        let order: SmallVec<[usize; 6]> = (0..dims.len()).collect();
        // A matrix that broadcasts is packed once.
        let strides = shape::dense_strides(&dims, &order)?;
        let matrices = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim as usize))?;
        let bytes = matrix.checked_mul(matrices)?;
        isize::try_from(bytes).ok()?;
        Some(Self { kernel, panel, panels, blocks, sums, matrix, bytes, dims, strides })
    }

    /// The loops over matrices, blocks of rows and panels. The strides are those of the operand, of the
    /// panels and, with integers, of the sums.
    fn loops(&self, phases: &Phases<'_>) -> SmallVec<[Loop; 6]> {
        let &Self { kernel, panel, panels, blocks, sums, matrix, .. } = self;
        let &ProductShape { depth, right_depth, right_column, .. } = &phases.operands.shape;
        let accessed = if sums.is_some() { 3 } else { 2 };
        let one = |extent: usize, strides: [isize; 3]| Loop { extent, strides: strides[..accessed].into() };
        let right = phases.right();
        let outer = self.dims.iter().enumerate().map(|(axis, &dim)| {
            let to = self.strides[axis] as isize * matrix as isize;
            one(dim as usize, [right.strides[axis] as isize * width_of(right), to, to])
        });
        let rows = PACKED_ROWS / kernel.depth_step() * kernel.row_bytes();
        let row_of_sums = sums.map_or(0, |sums| sums.row as isize);
        let of_rows = one(blocks, [right_depth * PACKED_ROWS as isize, rows as isize, row_of_sums]);
        let panel_bytes = kernel.panel_bytes(depth) as isize;
        let of_panels =
            one(panels, [right_column * panel as isize, panel_bytes, 4 * kernel.columns() as isize]);
        outer.chain([of_rows, of_panels]).collect()
    }
}

impl Phases<'_> {
    /// The phase that packs the right operand into a buffer, and the place of the operand there. `None` if
    /// the sizes overflow.
    pub(super) fn pack(&self, plan: &mut PlanBuilder<'_>) -> Option<(PackPhase, RightPlace)> {
        let ProductShape { dims, depth, columns, right_depth, right_column, .. } = &self.operands.shape;
        let (right, offset) = &self.operands.right;
        let packed = PackedMatrices::new(self)?;
        let loops = packed.loops(self);
        let PackedMatrices { kernel, panel, sums, matrix, .. } = packed;
        let buffer = plan.buffer(packed.bytes);
        let access = |base, offset, row_stride, col_stride| Access { base, offset, row_stride, col_stride };
        let of_sums = sums.map(|sums| access(buffer, sums.offset as isize, sums.row as isize, 4));
        let accesses = [
            access(right.base, *offset, *right_depth, *right_column),
            access(buffer, 0, kernel.row_bytes() as isize, 0),
        ];
        let accesses = accesses.into_iter().chain(of_sums).collect();
        let nest = LoopNest {
            row_blocks: packed.dims.len(),
            column_blocks: packed.dims.len() + 1,
            loops,
            space: Extent { rows: *depth, columns: *columns },
            tile: Extent { rows: PACKED_ROWS, columns: panel },
            program: TileProgram { accesses, ..TileProgram::default() },
        };
        let matrices = PlacedTensor {
            base: buffer,
            dims: right.dims.clone(),
            strides: packed.strides.iter().copied().chain([0, 0]).collect(),
            data_type: DataType::U8,
        };
        let strides = batch_strides(&matrices, dims, self.batch());
        let strides = strides.into_iter().map(|stride| stride * matrix as isize).collect();
        Some((PackPhase { nest, kernel }, RightPlace { base: buffer, offset: 0, strides, sums }))
    }

    /// The kernel that packs, and the columns of a panel.
    pub(super) fn pack_kernel(&self) -> Option<(PackPanel, usize)> {
        let Algorithm::Tiles { form, .. } = self.operands.method.algorithm else { return None };
        let panel = GemmKernel::new(self.machine.level, form).panel_columns();
        let columns = self.operands.shape.columns;
        let kernel = PackPanel::new(self.machine.level, self.right_type(), form, columns)?;
        Some((kernel, panel))
    }
}
