//! The phase that packs the right operand of a product into panels.

use smallvec::SmallVec;

use super::method::Algorithm;
use super::operands::RightPlace;
use super::phase::Phases;
use crate::compile::integers::ColumnSums;
use crate::compile::phases::{AxisStrides, PlanBuilder};
use crate::compile::product_shape::ProductShape;
use crate::kernels::Extent;
use crate::kernels::gemm::GemmKernel;
use crate::kernels::gemm::pack::PackPanel;
use crate::plan::{Access, Loop, LoopNest, PackPhase, TileProgram};
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
    /// The axes of the result that have matrices of their own, and matrices from index to index.
    axes: SmallVec<[usize; 6]>,
    strides: Dims,
}

impl PackedMatrices {
    /// `None` if the sizes overflow.
    fn new(phases: &Phases<'_>) -> Option<Self> {
        let shape = &phases.operands.shape;
        let &ProductShape { depth, columns, .. } = shape;
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
        // A matrix that broadcasts is packed once.
        let has_own = |&axis: &usize| shape.right[axis] != 0;
        let axes: SmallVec<[usize; 6]> = shape.outer.iter().copied().filter(has_own).collect();
        let dims: Dims = axes.iter().map(|&axis| shape.dims[axis]).collect();
        let order: SmallVec<[usize; 6]> = (0..dims.len()).collect();
        let strides = shape::dense_strides(&dims, &order)?;
        let matrices = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim as usize))?;
        let bytes = matrix.checked_mul(matrices)?;
        isize::try_from(bytes).ok()?;
        Some(Self { kernel, panel, panels, blocks, sums, matrix, bytes, axes, strides })
    }

    /// The loops over matrices, blocks of rows and panels. The strides are those of the operand, of the
    /// panels and, with integers, of the sums.
    fn loops(&self, phases: &Phases<'_>) -> SmallVec<[Loop; 6]> {
        let &Self { kernel, panel, panels, blocks, sums, matrix, .. } = self;
        let ProductShape { dims, depth, right, right_depth, right_column, .. } = &phases.operands.shape;
        let accessed = if sums.is_some() { 3 } else { 2 };
        let one = |extent: usize, strides: [isize; 3]| Loop { extent, strides: strides[..accessed].into() };
        let outer = self.axes.iter().zip(&self.strides).map(|(&axis, &matrices)| {
            let to = matrices as isize * matrix as isize;
            one(dims[axis] as usize, [right[axis], to, to])
        });
        let rows = PACKED_ROWS / kernel.depth_step() * kernel.row_bytes();
        let row_of_sums = sums.map_or(0, |sums| sums.row as isize);
        let of_rows = one(blocks, [right_depth * PACKED_ROWS as isize, rows as isize, row_of_sums]);
        let panel_bytes = kernel.panel_bytes(*depth) as isize;
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
            row_blocks: packed.axes.len(),
            column_blocks: packed.axes.len() + 1,
            loops,
            space: Extent { rows: *depth, columns: *columns },
            tile: Extent { rows: PACKED_ROWS, columns: panel },
            program: TileProgram { accesses, ..TileProgram::default() },
        };
        let mut strides = AxisStrides::from_elem(0, dims.len());
        for (&axis, &matrices) in packed.axes.iter().zip(&packed.strides) {
            strides[axis] = matrices as isize * matrix as isize;
        }
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
