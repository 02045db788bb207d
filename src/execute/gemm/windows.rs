//! The windows of convolutions as operands of products.
#![allow(unsafe_code, reason = "windows are read from raw memory that was checked before")]

use std::ops::Range;

use super::GemmOperands;
use crate::kernels::gemm::depthwise::DepthwiseTile;
use crate::kernels::gemm::pack::{PackPanel, RowPack};
use crate::kernels::gemm::planes::PlaneTile;
use crate::kernels::gemm::windows::ImageWindows;
use crate::kernels::gemm::{GemmKernel, Matrix, Product, gather_rows};
use crate::kernels::{Extent, Target};
use crate::plan::{GemmMethod, GemmOperand, GemmPhase, TapRows, WindowOperand};

impl GemmOperands<'_> {
    /// The windows of the tile.
    fn windows(&self, of: &WindowOperand) -> ImageWindows {
        let mut windows = of.windows;
        for (axis, index) in windows.axes.iter_mut().zip(of.loops) {
            if let Some(index) = index {
                axis.start += (self.cursor.iteration(index) * axis.stride) as isize;
            }
        }
        windows
    }

    /// A block of the left operand from a depth on, which consists of windows.
    pub(super) fn gathered_rows(
        &self,
        of: &WindowOperand,
        convert: Option<&RowPack>,
        extent: Extent,
        from: usize,
    ) -> Matrix {
        let GemmPhase { layout, integers, .. } = self.phase;
        let (windows, at) = (self.windows(of), self.at(GemmOperand::Left).cast_const());
        let (first, depth) = (self.first_row(), from..from + extent.columns);
        let width = windows.width.bytes() as isize;
        let to = Target { at: self.place(layout.left), row_stride: layout.left_row as isize };
        let gather = |rows: Range<usize>, to: Target| {
            let rows = first + rows.start..first + rows.end;
            // SAFETY: windows lie in the image, or beyond it, and the scratch has room for a block of them.
            unsafe { gather_rows(of.level, &windows, (at, depth.clone()), rows, to) };
        };
        let mut written = Matrix { at: to.at, row_stride: to.row_stride, col_stride: width };
        if convert.is_none() && integers.is_none() {
            gather(0..extent.rows, to);
            return written;
        }
        let row_stride = width * extent.columns as isize;
        let gathered = Target { at: self.place(layout.gathered), row_stride };
        for row in (0..extent.rows).step_by(WindowOperand::ROWS) {
            let part = Extent { rows: WindowOperand::ROWS.min(extent.rows - row), ..extent };
            gather(row..row + part.rows, gathered);
            let matrix = Matrix { at: gathered.at, row_stride, col_stride: width };
            // SAFETY: the scratch has room for the rows, before and behind the conversion.
            unsafe {
                if let Some(integers) = integers {
                    written = self.integer_rows(integers, part, matrix, row, from > 0);
                } else if let Some(convert) = convert {
                    convert.run(part, matrix, to.at_row(row), self.place(layout.row_pack));
                    written.col_stride = convert.written_width() as isize;
                }
            }
        }
        written
    }

    /// Computes a product from a depth on, and gathers each panel of windows before it is multiplied.
    ///
    /// # Safety
    ///
    /// As [`packed_panels`](Self::packed_panels).
    pub(super) unsafe fn gathered_panels(
        &self,
        pack: PackPanel,
        kernel: GemmKernel,
        product: &Product,
        from: usize,
    ) {
        let Some(of) = &self.phase.windows else { return };
        let layout = &self.phase.layout;
        let (windows, at) = (self.windows(of), self.at(GemmOperand::Right).cast_const());
        let (width, element) = (pack.columns(), windows.width.bytes());
        let sums = self.panel_sums(width, from);
        let (to, scratch) = (self.place(layout.panels), self.place(layout.row_pack));
        let row_stride = (width * element) as isize;
        let gathered =
            Target { at: if pack.copies() { to } else { self.place(layout.gathered) }, row_stride };
        let matrix = Matrix { at: gathered.at, row_stride, col_stride: element as isize };
        for column in (0..product.columns).step_by(width) {
            let part = Extent { rows: product.depth, columns: width.min(product.columns - column) };
            let product = product.part(column, part.columns, kernel.form());
            let first = self.first_column() + column;
            let (depth, columns) = (from..from + part.rows, first..first + part.columns);
            // SAFETY: windows lie in the image, or beyond it. The scratch has room for a panel, before and
            // behind packing, and for the sums of all columns. The rest is as the caller promises.
            unsafe {
                windows.as_columns(of.level, at, depth, columns, (gathered, width));
                match pack.writes_sums() {
                    _ if pack.copies() => {}
                    false => pack.run(part.rows, part.columns, matrix, to, scratch),
                    true => pack.run_with_sums(part, matrix, to, sums.wrapping_add(column), scratch),
                }
                kernel.run(&product);
            }
        }
    }

    /// Convolves each channel of a tile, or each group of channels, with its own weights.
    pub(super) fn depthwise(&self, extent: Extent, to: Target) {
        let GemmMethod::Depthwise { kernel, group, seen, taps } = self.phase.method else { return };
        let Some(of) = &self.phase.windows else { return };
        let windows = &self.windows(of);
        let image = self.at(GemmOperand::Left).cast_const();
        let rows = Extent { rows: self.phase.depth, ..extent };
        let weights = self.taps(GemmOperand::Right, &taps, (rows, self.tile().columns));
        let first = self.first_row();
        // SAFETY: as for tiles; windows lie in the image, or beyond it.
        unsafe { kernel.windows(&DepthwiseTile { windows, image, weights, first, group, seen, extent, to }) };
    }

    /// Convolves channels of the result, which are rows, in planes of the image, and adds the bias to the
    /// sums unless it is null.
    pub(super) fn planes(&self, extent: Extent, to: Target, bias: *const f32) {
        let GemmMethod::Planes { kernel, is_depthwise, taps } = self.phase.method else { return };
        let Some(of) = &self.phase.windows else { return };
        let windows = &self.windows(of);
        let image = self.at(GemmOperand::Right).cast_const();
        let depth = self.phase.depth;
        let weights = self.taps(GemmOperand::Left, &taps, (Extent { columns: depth, ..extent }, depth));
        let (first, scratch) = (self.first_column(), self.place(self.phase.layout.gathered).cast());
        // SAFETY: as for tiles; windows lie in the image, or beyond it. The scratch has room for the planes
        // of a tile.
        unsafe {
            let tile = PlaneTile { windows, image, weights, bias, first, extent, to, scratch, is_depthwise };
            kernel.run(&tile);
        }
    }

    /// The weights of the channels of a tile as rows of f32, which have so many columns at most.
    fn taps(&self, operand: GemmOperand, taps: &TapRows, (extent, columns): (Extent, usize)) -> Matrix {
        let &TapRows { pack, row_stride, col_stride } = taps;
        let weights = Matrix { at: self.at(operand), row_stride, col_stride };
        let Some(pack) = pack else { return weights };
        let layout = &self.phase.layout;
        let packed = Target { at: self.place(layout.panels), row_stride: 4 * columns as isize };
        // SAFETY: the operand has the weights of the tile, and the scratch has room for them.
        unsafe { pack.run(extent, weights, packed, self.place(layout.row_pack)) };
        Matrix { at: packed.at, row_stride: packed.row_stride, col_stride: 4 }
    }
}
