//! Runs the phases of matrix products.
#![allow(unsafe_code, reason = "products are computed on raw memory that was checked before")]

mod windows;

use std::ops::Range;

use super::bindings::Bindings;
use super::cursor::Cursor;
use super::interpreter::{Interpreter, TileOperands, select_dests};
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::gemm::integers::{self, ScaledTile};
use crate::kernels::gemm::pack::PackPanel;
use crate::kernels::gemm::{
    GemmKernel, LaterRows, Matrix, OperandRows, PanelPrefetch, Panels, Product, RowProduct, RowScaling,
    add_to_rows, is_finite,
};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    AccessId, Base, Bias, DequantizedRight, GemmMethod, GemmOperand, GemmPhase, IntegerProduct, LeftForm,
    PackPhase, Plan, RightForm, TilePanels,
};
use crate::types::dtype::DataType;

/// Packs the right operand of a product.
pub(super) fn run_pack(
    phase: &PackPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(phase.nest.tiles(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let mut cursor = Cursor::new(&phase.nest, &plan.constants, bindings);
        for task in ranges.flatten() {
            cursor.go_to(task);
            let Extent { rows, columns } = cursor.extent();
            let matrix = cursor.matrix(PackPhase::FROM);
            let to = cursor.at(PackPhase::TO);
            // SAFETY: the accesses stay within their memory for every tile of the nest, and the plan's level
            // and features were available when the plan was made.
            unsafe {
                match phase.kernel.writes_sums() {
                    false => phase.kernel.run(rows, columns, matrix, to, scratch),
                    true => {
                        let sums = cursor.at(PackPhase::SUMS).cast();
                        phase.kernel.run_with_sums(Extent { rows, columns }, matrix, to, sums, scratch);
                    }
                }
            }
        }
    })
}

/// Computes products, and runs the epilogue on each tile.
pub(super) fn run(
    phase: &GemmPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let program = &phase.nest.program;
    let select_dests = select_dests(&phase.nest, bindings);
    runner.run(phase.nest.tiles(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let cursor = Cursor::new(&phase.nest, &plan.constants, bindings);
        let operands = GemmOperands { phase, scratch, cursor, computed: None };
        if program.roots.is_empty() {
            let mut operands = operands;
            for task in ranges.flatten() {
                operands.cursor.go_to(task);
                let result = phase.first_access + GemmOperand::Result as usize;
                let to = Target {
                    at: operands.cursor.at(result),
                    row_stride: program.accesses[result].row_stride,
                };
                operands.compute(to);
            }
            return;
        }
        let mut interpreter = Interpreter::new(program, &select_dests, scratch, operands);
        ranges.for_each(|tasks| tasks.for_each(|task| interpreter.run(task)));
    })
}

/// The operands of an epilogue: a tile of the product is computed when a step first reads
/// it.
struct GemmOperands<'a> {
    phase: &'a GemmPhase,
    scratch: *mut u8,
    cursor: Cursor<'a>,
    /// The tile whose product is in scratch.
    computed: Option<usize>,
}

impl<'a> TileOperands<'a> for GemmOperands<'a> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        let of = &self.phase.nest.program.accesses[access];
        let Base::Driver(_) = of.base else { return self.cursor.at(access) };
        let at = self.scratch.wrapping_add(self.phase.layout.product);
        if self.computed != Some(self.cursor.tile()) {
            self.computed = Some(self.cursor.tile());
            let row_stride = match self.phase.is_transposed {
                true => self.row_stride(GemmOperand::Result),
                false => of.row_stride,
            };
            self.compute(Target { at, row_stride });
        }
        at
    }
}

impl GemmOperands<'_> {
    /// Computes the product of the present tile.
    fn compute(&self, to: Target) {
        let phase = self.phase;
        let extent = self.extent();
        let sums = match phase.finish.is_direct() {
            true => to,
            false => {
                let row_stride = (phase.finish.sum_width * self.tile().columns) as isize;
                Target { at: self.place(phase.layout.sums), row_stride }
            }
        };
        let bias = self.bias_in_registers(extent);
        match phase.method {
            _ if self.in_registers(extent, sums) => {}
            GemmMethod::Tiles { .. } => self.tiles(extent, sums, bias),
            GemmMethod::Dots { .. } => self.dots(extent, sums),
            GemmMethod::Depthwise { .. } => self.depthwise(extent, sums),
            GemmMethod::Planes { .. } => self.planes(extent, sums, bias),
        }
        if let Some(integers) = &self.phase.integers {
            self.scale(integers, extent, sums);
        }
        if bias.is_null() {
            self.add_bias(extent, sums);
        }
        self.finish(extent, sums, to);
    }

    /// Rows and columns of the product in the present tile, and in the largest one.
    fn extent(&self) -> Extent {
        let extent = self.cursor.extent();
        if self.phase.is_transposed { extent.transposed() } else { extent }
    }

    fn tile(&self) -> Extent {
        let tile = self.phase.nest.tile;
        if self.phase.is_transposed { tile.transposed() } else { tile }
    }

    /// The first row and the first column of the product in the present tile.
    fn first_row(&self) -> usize {
        if self.phase.is_transposed { self.cursor.first_column() } else { self.cursor.first_row() }
    }

    fn first_column(&self) -> usize {
        if self.phase.is_transposed { self.cursor.first_row() } else { self.cursor.first_column() }
    }

    fn place(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(offset)
    }

    fn at(&self, operand: GemmOperand) -> *mut u8 {
        self.cursor.at(self.phase.first_access + operand as usize)
    }

    fn row_stride(&self, operand: GemmOperand) -> isize {
        self.phase.nest.program.accesses[self.phase.first_access + operand as usize].row_stride
    }

    /// The left operand from a depth on, in the form that the kernel reads.
    fn left(&self, rows: usize, from: usize, depth: usize) -> Matrix {
        let GemmPhase { left_column, layout, .. } = self.phase;
        let extent = Extent { rows, columns: depth };
        if let (LeftForm::Windows(convert), Some(windows)) = (&self.phase.left, &self.phase.windows) {
            return self.gathered_rows(windows, convert.as_ref(), extent, from);
        }
        let at = self.at(GemmOperand::Left).wrapping_offset(left_column * from as isize);
        let matrix = Matrix { at, row_stride: self.row_stride(GemmOperand::Left), col_stride: *left_column };
        let to = Target { at: self.place(layout.left), row_stride: layout.left_row as isize };
        if let Some(integers @ IntegerProduct { rows: Some(_), .. }) = &self.phase.integers {
            // SAFETY: as below.
            return unsafe { self.integer_rows(integers, extent, matrix, 0, from > 0) };
        }
        let scratch = self.place(layout.row_pack);
        // SAFETY: the operand covers the tile's rows and the depth; the scratch has room for a block of both.
        unsafe {
            match &self.phase.left {
                LeftForm::InPlace | LeftForm::Windows(_) => matrix,
                LeftForm::Rows(pack) => {
                    pack.run(extent, matrix, to, scratch);
                    let col_stride = pack.written_width() as isize;
                    Matrix { at: to.at, row_stride: to.row_stride, col_stride }
                }
                LeftForm::Columns(pack) => {
                    pack.run(extent.transposed(), matrix.transposed(), to, scratch);
                    let row_stride = pack.written_width() as isize;
                    Matrix { at: to.at, row_stride, col_stride: to.row_stride }
                }
            }
        }
    }

    /// Packs rows of integers from a row of the left block on.
    ///
    /// # Safety
    ///
    /// The rows can be read, and the scratch has room for them.
    unsafe fn integer_rows(
        &self,
        integers: &IntegerProduct,
        extent: Extent,
        from: Matrix,
        row: usize,
        is_later: bool,
    ) -> Matrix {
        let layout = &self.phase.layout;
        let Some(pack) = &integers.rows else { return from };
        let to = Target { at: self.place(layout.left), row_stride: layout.left_row as isize };
        let sums = match integers.has_right_zeros {
            true => self.place(layout.row_sums).cast::<i32>().wrapping_add(row),
            false => std::ptr::null_mut(),
        };
        // SAFETY: as the caller promises; the scratch has room for a sum of each row.
        unsafe { pack.run(extent, from, to.at_row(row), sums, is_later, self.place(layout.row_pack)) };
        Matrix { at: to.at, row_stride: to.row_stride, col_stride: pack.written_width() as isize }
    }

    /// The kernels add the bias to the sums, unless it is null.
    fn tiles(&self, Extent { rows, columns }: Extent, sums: Target, bias: *const f32) {
        let GemmMethod::Tiles { kernel, depth_block, right_row, panel, right } = self.phase.method else {
            return;
        };
        let depth = self.phase.depth;
        let step = kernel.form().depth_step();
        let mut from = 0;
        loop {
            let block = depth_block.min(depth - from);
            let (at, prefetch) = match right {
                RightForm::Packed if kernel.form().uses_tiles() => {
                    // The next part of the depth, or the first one of the next columns.
                    let next = match from + block < depth {
                        true => self.right_rows(right_row, (from + block) / step),
                        false => {
                            let panels = columns.div_ceil(kernel.panel_columns());
                            self.right_rows(right_row, 0).wrapping_offset(panel * panels as isize)
                        }
                    };
                    (self.right_rows(right_row, from / step), PanelPrefetch::Block(next))
                }
                // A single row goes through panels as fast as memory gives them (decision: kept-panels).
                RightForm::Packed if rows == 1 => {
                    (self.right_rows(right_row, from / step), PanelPrefetch::Nothing)
                }
                RightForm::Packed => (self.right_rows(right_row, from / step), PanelPrefetch::NextPanel),
                RightForm::InPlace => (self.right_rows(right_row, from / step), PanelPrefetch::Nothing),
                RightForm::Streams => (self.right_rows(right_row, from / step), PanelPrefetch::Streams),
                RightForm::Dequantized(panels) => {
                    let panels = self.dequantize_panels(panels, from..from + block, columns, depth_block);
                    (panels.cast_const(), PanelPrefetch::Nothing)
                }
                RightForm::PackedInTile(_) | RightForm::Windows(_) => {
                    (self.place(self.phase.layout.panels).cast_const(), PanelPrefetch::Nothing)
                }
            };
            let product = Product {
                rows,
                columns,
                depth: block,
                left: self.left(rows, from, block),
                right: Panels { at, row_stride: right_row, panel_stride: panel },
                to: sums.at.cast(),
                to_row: sums.row_stride,
                accumulate: from > 0,
                bias: if from + block >= depth { bias } else { std::ptr::null() },
            };
            // SAFETY: operands cover the tile and the depth. The sums are those of the tile, in scratch or in
            // an output, which overlaps no input. The plan's level and features were available when the plan
            // was made.
            unsafe {
                match right {
                    RightForm::PackedInTile(panels) => self.packed_panels(panels, kernel, &product, from),
                    RightForm::Windows(pack) => self.gathered_panels(pack, kernel, &product, from),
                    _ => kernel.run_prefetching(&product, prefetch),
                }
            }
            from += block;
            if from >= depth {
                return;
            }
        }
    }

    /// The right operand from a row on.
    fn right_rows(&self, row_stride: isize, row: usize) -> *const u8 {
        self.at(GemmOperand::Right).wrapping_offset(row_stride * row as isize)
    }

    /// Computes a product from a depth on, and packs each panel of the right operand before it is multiplied.
    ///
    /// # Safety
    ///
    /// As [`GemmKernel::run`]; the right operand of the product is the scratch that has room for a panel.
    unsafe fn packed_panels(&self, panels: TilePanels, kernel: GemmKernel, product: &Product, from: usize) {
        let layout = &self.phase.layout;
        let TilePanels { kernel: pack, row_stride, col_stride } = panels;
        let (width, is_whole_step) = (pack.columns(), pack.depth_step() == 1);
        let sums = self.panel_sums(width, from);
        let at = self.right_rows(row_stride, from);
        let source = |column: usize| {
            let at = at.wrapping_offset(col_stride * column as isize);
            Matrix { at, row_stride, col_stride }
        };
        let to = self.place(layout.panels);
        for column in (0..product.columns).step_by(width) {
            let part = Extent { rows: product.depth, columns: width.min(product.columns - column) };
            let scratch = self.place(layout.row_pack);
            let product = product.part(column, part.columns, kernel.form());
            let prefetch = match is_whole_step && col_stride == pack.row_bytes() as isize / width as isize {
                true => PanelPrefetch::Rows(source(column + width)),
                false => PanelPrefetch::Nothing,
            };
            // SAFETY: the operand covers the tile's columns and the depth; the scratch has room for a panel,
            // and for the sums of all columns. The rest is as the caller promises.
            unsafe {
                match pack.writes_sums() {
                    false => pack.run(part.rows, part.columns, source(column), to, scratch),
                    true => pack.run_with_sums(part, source(column), to, sums.wrapping_add(column), scratch),
                }
                kernel.run_prefetching(&product, prefetch);
            }
        }
    }

    /// The sums of the columns of panels of some width, for a part of the depth.
    fn panel_sums(&self, width: usize, from: usize) -> *mut i32 {
        let block = match self.phase.method {
            GemmMethod::Tiles { depth_block, .. } => depth_block.max(1),
            GemmMethod::Dots { .. } | GemmMethod::Depthwise { .. } | GemmMethod::Planes { .. } => 1,
        };
        let sums: *mut i32 = self.place(self.phase.layout.panel_sums).cast();
        sums.wrapping_add(from / block * self.sum_columns(width))
    }

    /// A part of a right operand of 8 or 4 bits, with its scales and zero points; `columns` are counted from
    /// the first column of the tile.
    fn stored(
        &self,
        of: &DequantizedRight,
        depth: Range<usize>,
        columns: Range<usize>,
    ) -> (OperandRows, RowScaling) {
        let first = self.first_column();
        let columns = first + columns.start..first + columns.end;
        let (rows, elements) = if of.is_along_depth { (columns, depth) } else { (depth, columns) };
        let bytes = |elements: usize| elements * of.bits / 8;
        let row = self.at(GemmOperand::Right).wrapping_offset(of.row_stride * rows.start as isize);
        let place = rows.start / of.group.rows * of.row_step + elements.start / of.group.columns;
        let scaling = |operand: GemmOperand| self.at(operand).cast::<f32>().cast_const().wrapping_add(place);
        // A part that starts within a group ends within it.
        let shares = match elements.start % of.group.columns {
            0 => of.group.columns,
            _ => elements.len(),
        };
        let stored = OperandRows {
            at: row.wrapping_add(bytes(elements.start)),
            row_stride: of.row_stride,
            rows: rows.len(),
            columns: elements.len(),
            later: Some(LaterRows {
                rows: of.rows - rows.start,
                next: self.at(GemmOperand::Right).wrapping_add(bytes(elements.end)),
            }),
        };
        let scaling = RowScaling {
            scales: scaling(GemmOperand::Scales),
            zeros: scaling(GemmOperand::Zeros),
            group: Extent { rows: of.group.rows, columns: shares },
            before: rows.start % of.group.rows,
            row_step: of.row_step,
            column_step: 1,
        };
        (stored, scaling)
    }

    /// Dequantises a block of the right operand for the columns of a tile; returns the panels.
    fn dequantize_panels(
        &self,
        panels: PackPanel,
        depth: Range<usize>,
        columns: usize,
        depth_block: usize,
    ) -> *mut u8 {
        let (layout, width) = (&self.phase.layout, panels.columns());
        let to = self.place(layout.panels);
        let Some(of) = &self.phase.dequantized else { return to };
        for (index, column) in (0..columns).step_by(width).enumerate() {
            let part = column..columns.min(column + width);
            let to = to.wrapping_add(index * panels.panel_bytes(depth_block));
            let (stored, scaling) = self.stored(of, depth.clone(), part.clone());
            // SAFETY: the operand covers the tile's columns and the depth. The scratch has room for the
            // panels of a block and a vector more, and for a panel's columns in f32 and a vector behind each.
            // The next row or panel overwrites the elements written behind the one before it.
            unsafe {
                if !of.is_along_depth {
                    of.kernels.widen_canonical(&stored, &scaling, to.cast(), width);
                    continue;
                }
                let rows = self.place(layout.widened);
                let row = DequantizedRight::widened_row(depth.len());
                of.kernels.widen_canonical(&stored, &scaling, rows.cast(), row);
                let from = Matrix { at: rows, row_stride: 4, col_stride: 4 * row as isize };
                panels.run(depth.len(), part.len(), from, to, self.place(layout.row_pack));
            }
        }
        to
    }

    /// Computes products of few rows with a right operand that becomes f32 in registers, and says whether it
    /// did: only if all factors are finite, so that no sum has to choose between two NaNs.
    fn in_registers(&self, Extent { rows, columns }: Extent, sums: Target) -> bool {
        let Some(of) = &self.phase.dequantized else { return false };
        if !of.in_registers {
            return false;
        }
        let depth = self.phase.depth;
        let Matrix { at, row_stride, .. } = self.left(rows, 0, depth);
        let left = Source { at, row_stride };
        let (right, scaling) = self.stored(of, 0..depth, 0..columns);
        let product = RowProduct { rows, left, right, scaling, to: sums };
        let of_left = Matrix { at, row_stride, col_stride: 4 };
        // SAFETY: as for tiles; the left rows are contiguous rows of f32. The scratch has room for them as
        // whole vectors.
        unsafe {
            let extent = Extent { rows, columns: depth };
            let are_finite = of.kernels.gives_no_nan(&right, &scaling)
                && is_finite(of.kernels.level(), extent, of_left, DataType::F32);
            match of.is_along_depth {
                _ if !are_finite => {}
                true => of.kernels.dots(&product, self.place(self.phase.layout.widened).cast()),
                false => of.kernels.add_rows(&product, false),
            }
            are_finite
        }
    }

    /// Number of sums in a row, for sums that tiles compute from panels of some width.
    fn sum_columns(&self, width: usize) -> usize {
        self.tile().columns.next_multiple_of(width)
    }

    /// The sums of the columns of a tile, and the bytes from row to row.
    fn column_sums(&self) -> (*mut u8, isize) {
        match self.phase.method {
            GemmMethod::Tiles {
                right: RightForm::PackedInTile(TilePanels { kernel: pack, .. }) | RightForm::Windows(pack),
                ..
            } => {
                let columns = self.sum_columns(pack.columns());
                (self.place(self.phase.layout.panel_sums), 4 * columns as isize)
            }
            _ => (self.at(GemmOperand::ColumnSums), self.row_stride(GemmOperand::ColumnSums)),
        }
    }

    fn dots(&self, Extent { rows, columns }: Extent, sums: Target) {
        let GemmMethod::Dots { kernels, right_column } = self.phase.method else { return };
        let depth = self.phase.depth;
        let Matrix { at, row_stride, .. } = self.left(rows, 0, depth);
        let (left, arranged) = (Source { at, row_stride }, std::ptr::null_mut());
        let of_rows = |at: *const u8, row_stride: isize, rows: usize, later: Option<LaterRows>| OperandRows {
            at,
            row_stride,
            rows,
            columns: depth,
            later,
        };
        let product =
            |right: OperandRows, to: Target| RowProduct { rows, left, right, scaling: RowScaling::NONE, to };
        let Some(of) = &self.phase.dequantized else {
            // The rows behind those of the tile are those of the next one.
            let later = LaterRows { rows: usize::MAX, next: std::ptr::null() };
            let right = of_rows(self.at(GemmOperand::Right), right_column, columns, Some(later));
            // SAFETY: as for tiles; floats are in order.
            return unsafe { kernels.dots(&product(right, sums), arranged) };
        };
        let (at, row) = (self.place(self.phase.layout.widened), DequantizedRight::widened_row(depth));
        for first in (0..columns).step_by(DequantizedRight::DOT_COLUMNS) {
            let part = first..columns.min(first + DequantizedRight::DOT_COLUMNS);
            let (stored, scaling) = self.stored(of, 0..depth, part.clone());
            let right = of_rows(at, 4 * row as isize, part.len(), None);
            let to = Target { at: sums.at.wrapping_add(4 * first), ..sums };
            // SAFETY: as for tiles; the scratch has room for the columns in f32, and a vector behind each.
            unsafe {
                of.kernels.widen_canonical(&stored, &scaling, at.cast(), row);
                kernels.dots(&product(right, to), arranged);
            }
        }
    }

    /// Turns the sums of a tile from s32 to f32.
    fn scale(&self, product: &IntegerProduct, extent: Extent, sums: Target) {
        let GemmPhase { layout, depth, .. } = self.phase;
        let columns = extent.columns;
        let padded = columns.next_multiple_of(integers::BLOCK);
        let words = |operand: GemmOperand| {
            let access = self.phase.first_access + operand as usize;
            (self.cursor.at(access), self.phase.nest.program.accesses[access].col_stride)
        };
        let zeros_at: *mut i32 = self.place(layout.zeros).cast();
        // SAFETY: the scratch has room for whole blocks of columns in each array, which do not overlap and
        // which nothing else reads meanwhile. Constants and sums of columns have an element for each column
        // of the tile: words of 8 bytes, and rows of s32.
        unsafe {
            let array = |at: usize| std::slice::from_raw_parts_mut(self.place(at).cast::<i32>(), padded);
            self.place(layout.subtracted).write_bytes(0, 4 * padded);
            let subtracted = array(layout.subtracted);
            if product.left_zero != 0 {
                let (from, row_stride) = self.column_sums();
                for row in 0..product.sum_rows {
                    let row = from.wrapping_offset(row_stride * row as isize);
                    for (column, sum) in subtracted[..columns].iter_mut().enumerate() {
                        *sum = sum.wrapping_add(row.cast::<i32>().wrapping_add(column).read_unaligned());
                    }
                }
            }
            if product.has_right_zeros {
                self.place(layout.zeros).write_bytes(0, 4 * padded);
                let (from, stride) = words(GemmOperand::Zeros);
                for (column, zero) in array(layout.zeros)[..columns].iter_mut().enumerate() {
                    *zero = from.wrapping_offset(stride * column as isize).cast::<i32>().read_unaligned();
                    let of_all = (*depth as i32).wrapping_mul(*zero);
                    subtracted[column] = subtracted[column].wrapping_sub(of_all);
                }
            }
            subtracted.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(product.left_zero));
            let (count, room) =
                if product.scales_rows { (extent.rows, extent.rows) } else { (columns, padded) };
            let scales = std::slice::from_raw_parts_mut(self.place(layout.scales).cast::<f64>(), room);
            let (whole, behind) = scales.split_at_mut(count);
            let (from, stride) = words(GemmOperand::Scales);
            for (index, of) in whole.iter_mut().enumerate() {
                *of = from.wrapping_offset(stride * index as isize).cast::<f64>().read_unaligned();
            }
            behind.fill(0.0);
            product.scaling.run(&ScaledTile {
                extent,
                sums,
                columns: subtracted.as_ptr(),
                zeros: if product.has_right_zeros { zeros_at } else { std::ptr::null_mut() },
                rows: self.place(layout.row_sums).cast::<i32>(),
                scales: scales.as_ptr(),
                scales_rows: product.scales_rows,
            });
        }
    }

    /// A number for each row of the tile that kernels add to sums in registers; null if they add none.
    fn bias_in_registers(&self, extent: Extent) -> *const f32 {
        let GemmPhase { bias, method, dequantized, integers, .. } = self.phase;
        let adds_bias = match method {
            GemmMethod::Tiles { kernel, .. } => kernel.form().adds_bias() && dequantized.is_none(),
            GemmMethod::Planes { .. } => true,
            GemmMethod::Dots { .. } | GemmMethod::Depthwise { .. } => false,
        };
        match bias {
            // Sums of integers are scaled before.
            Some(bias) if adds_bias && bias.is_of_rows && integers.is_none() => {
                self.bias_of_rows(bias, extent)
            }
            _ => std::ptr::null(),
        }
    }

    /// The bias of the rows of the tile, in scratch.
    fn bias_of_rows(&self, bias: &Bias, extent: Extent) -> *const f32 {
        let layout = &self.phase.layout;
        let at = self.at(GemmOperand::Bias);
        let matrix = Matrix { at, row_stride: 0, col_stride: bias.row_stride };
        let numbers = Extent { rows: 1, columns: extent.rows };
        let to = Target { at: self.place(layout.bias), row_stride: 0 };
        // SAFETY: the bias covers the rows of the tile, and the scratch has room for them.
        unsafe { bias.row_pack.run(numbers, matrix, to, self.place(layout.row_pack)) };
        to.at.cast_const().cast()
    }

    fn add_bias(&self, extent: Extent, sums: Target) {
        let Some(bias) = &self.phase.bias else { return };
        let layout = &self.phase.layout;
        if bias.is_of_rows {
            let row_stride = self.phase.finish.sum_width as isize;
            let addend = Source { at: self.bias_of_rows(bias, extent).cast(), row_stride };
            let sum = sums.as_source();
            // SAFETY: the sums are those of the tile, each row of which has a number in scratch.
            return unsafe { bias.add.run(extent, sum, addend, sums, &[0.0; 2]) };
        }
        let row_of_sums = self.place(layout.bias);
        // Rows of one bias are added at once.
        let block = if bias.row_stride == 0 { extent.rows } else { 1 };
        for row in (0..extent.rows).step_by(block) {
            let at = self.at(GemmOperand::Bias).wrapping_offset(bias.row_stride * row as isize);
            let matrix = Matrix { at, row_stride: 0, col_stride: bias.col_stride };
            let to = Target { at: row_of_sums, row_stride: 0 };
            let rows = Extent { rows: block, ..extent };
            // SAFETY: the bias covers the tile, the scratch has room for a row, and the sums are those of the
            // tile.
            unsafe {
                bias.row_pack.run(Extent { rows: 1, ..extent }, matrix, to, self.place(layout.row_pack));
                let sums = sums.at_row(row);
                match bias.add_row {
                    None => add_to_rows(bias.level, rows, sums, row_of_sums.cast()),
                    Some(add) => {
                        let sum = sums.as_source();
                        let addend = Source { at: row_of_sums, row_stride: 0 };
                        add.run(rows, sum, addend, sums, &[0.0; 2]);
                    }
                }
            }
        }
    }

    fn finish(&self, extent: Extent, sums: Target, to: Target) {
        let finish = &self.phase.finish;
        let queue = &mut PrefetchQueue::default();
        // SAFETY: the target covers the tile, and overlaps no scratch; scratch has room for a rounded tile.
        unsafe {
            match (finish.round, finish.unpack) {
                (None, None) => {}
                (Some(round), None) => round(extent, sums.as_source(), to, &[0.0; 2], queue),
                (None, Some(unpack)) => unpack(extent, sums.as_source(), to, finish.col_stride),
                (Some(round), Some(unpack)) => {
                    let row_stride = (finish.width * self.tile().columns) as isize;
                    let rounded = Target { at: self.place(self.phase.layout.rounded), row_stride };
                    round(extent, sums.as_source(), rounded, &[0.0; 2], queue);
                    unpack(extent, rounded.as_source(), to, finish.col_stride);
                }
            }
        }
    }
}
