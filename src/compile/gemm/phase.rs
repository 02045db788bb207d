//! The phase that computes a product: its kernels, the accesses of its operands, and the scratch of a thread.

use smallvec::SmallVec;

use super::method::{Algorithm, Method, Right};
use super::operands::{OperandSide, ProductOperands, RightPlace};
use super::stored::DequantizedOperand;
use crate::compile::arena::Arena;
use crate::compile::integers::{ColumnSums, PlacedIntegers};
use crate::compile::machine::Machine;
use crate::compile::memory::whole_lines;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, batch_strides, width_of};
use crate::error::{CompileFault, Result};
use crate::kernels::gemm::depthwise::DepthwiseKernel;
use crate::kernels::gemm::integers::{self, IntegerRows, SumScaling};
use crate::kernels::gemm::pack::{self, RowPack};
use crate::kernels::gemm::planes::PlaneKernel;
use crate::kernels::gemm::{Form, GemmKernel, StoredKernels};
use crate::kernels::pointwise::{binary, convert};
use crate::kernels::unpack::unpack_tile;
use crate::kernels::{Extent, InnerStride, LINE, Width};
use crate::plan::{
    Access, Base, Bias, DequantizedRight, Finish, GemmMethod, GemmOperand, GemmPhase, GemmScratch,
    IntegerProduct, LeftForm, LoopNest, Phase, RightForm, TapRows, TilePanels, WindowOperand,
};
use crate::types::dtype::DataType;
use crate::types::function::Binary;

/// Makes the phases of a product.
pub(super) struct Phases<'a> {
    pub(super) operands: &'a ProductOperands,
    pub(super) integers: Option<&'a PlacedIntegers>,
    pub(super) machine: Machine,
    /// Rows of the nest are columns of the product.
    pub(super) is_transposed: bool,
}

/// The kernels of a product, and the parts of the operands that they read at once.
struct Kernels {
    method: GemmMethod,
    /// The type in which the kernels read the left operand, and where.
    left_type: DataType,
    left: LeftForm,
    /// Elements of the depth in a block.
    block: usize,
    /// Bytes from the right operand of a tile to that of the next tile of a row.
    right_tile: isize,
}

/// An access of a product: the strides along the outer axes of the result, and from tile to tile.
struct ProductAccess {
    access: Access,
    axes: AxisStrides,
    row_tile: isize,
    column_tile: isize,
}

/// The strides of a tensor that broadcasts to the result, in bytes.
struct ResultStrides {
    axes: AxisStrides,
    row: isize,
    column: isize,
}

impl ResultStrides {
    fn new(shape: &ProductShape, of: Option<&PlacedTensor>) -> Self {
        let none = || AxisStrides::from_elem(0, shape.dims.len());
        let axes = of.map_or_else(none, |of| shape.result_strides(of));
        Self { row: shape.row(&axes), column: shape.column(&axes), axes }
    }
}

impl Phases<'_> {
    pub(super) fn right(&self) -> &PlacedTensor {
        &self.operands.right.0
    }

    fn dequantized(&self) -> Option<&DequantizedOperand> {
        self.operands.dequantized.as_ref()
    }

    /// The type of the right operand as it is packed, or as dot products read it.
    pub(super) fn right_type(&self) -> DataType {
        self.dequantized().map_or(self.right().data_type, |_| DataType::F32)
    }

    /// Axes of the result that belong to the batch.
    pub(super) fn batch(&self) -> usize {
        let ProductOperands { shape, left: (left, _), .. } = self.operands;
        shape.dims.len() - usize::from(shape.column_axis.is_some()) - usize::from(left.dims.len() > 1)
    }

    /// Adds the phases of the product, in the tiles of a nest whose program is the epilogue. The result has a
    /// place and bytes to its first element.
    pub(super) fn push(
        &self,
        plan: &mut PlanBuilder<'_>,
        nest: LoopNest,
        bias: Option<&PlacedTensor>,
        to: (&PlacedTensor, isize),
    ) -> Result<()> {
        let ProductOperands { left: (left, _), right: (right, _), shape, method, windows, .. } =
            self.operands;
        let unsupported = |why: &str| {
            let kind = if windows.is_some() { "Convolution" } else { "MatMul" };
            let types = [left, right, to.0].map(|tensor| tensor.data_type.name());
            CompileFault::Unsupported(format!("no kernel runs {kind} on {}: {why}", types.join(", ")))
        };
        let right_at = match method.packs() {
            false => self.operands.right_place(),
            true => {
                let packed = self.pack(plan);
                let (phase, place) =
                    packed.ok_or_else(|| plan.refuse(unsupported("the packed operand is too large")))?;
                plan.push(Phase::Pack(phase), 0, true);
                place
            }
        };
        let gemm = self.gemm(nest, &right_at, bias, to);
        let gemm = gemm.ok_or_else(|| plan.refuse(unsupported("not these types")))?;
        plan.push(Phase::Gemm(Box::new(gemm)), shape.flops(), true);
        Ok(())
    }

    /// The phase that computes the products, in the tiles of a nest whose program is the epilogue. `None` if
    /// no kernel takes the types.
    pub(super) fn gemm(
        &self,
        nest: LoopNest,
        right_at: &RightPlace,
        bias: Option<&PlacedTensor>,
        (to, to_offset): (&PlacedTensor, isize),
    ) -> Option<GemmPhase> {
        let ProductOperands { shape, method, .. } = self.operands;
        let Kernels { method: kernel_method, left_type, left, block, right_tile } = self.kernels()?;
        let [bias_strides, to_strides] = [bias, Some(to)].map(|of| ResultStrides::new(shape, of));
        let finish = self.finish(to, &to_strides)?;
        let sums = self.column_sums(right_at);
        let left_rows = (block.next_multiple_of(4) * left_type.size()?, method.tile.rows);
        let left_columns = (method.tile.rows * left_type.size()?, block);
        let needs = ScratchNeeds {
            left: match left {
                LeftForm::InPlace => self.packs_integers().then_some(left_rows),
                LeftForm::Rows(_) | LeftForm::Windows(_) => Some(left_rows),
                LeftForm::Columns(_) => Some(left_columns),
            },
            integers: self.integers.is_some(),
            product: matches!(to.base, Base::Driver(_)).then_some(width_of(to) as usize),
            bias: bias.is_some(),
            panels: self.tile_panels(),
            widened: self.widened(),
            gathered: self.gathered(&left, block),
        };
        let layout = scratch_layout(nest.program.scratch, method.tile, &finish, needs);
        let bias_phase = match bias {
            None => None,
            Some(bias) => Some(self.bias(bias, &bias_strides)?),
        };
        let mut accesses = self.accesses(right_at, right_tile, (bias, bias_strides), (to, to_strides));
        accesses[GemmOperand::Result as usize].access.offset = to_offset;
        accesses.extend(self.accesses_of_scaling(right_at, sums));
        Some(GemmPhase {
            first_access: nest.program.next_access(),
            nest: attach(nest, (shape, self.is_transposed), accesses),
            is_transposed: self.is_transposed,
            depth: shape.depth,
            method: kernel_method,
            left,
            left_column: shape.left_depth,
            integers: self.integer_product(sums),
            windows: self.operands.windows.map(|(_, windows)| windows),
            dequantized: self.dequantized().map(|of| self.dequantized_right(of)),
            bias: bias_phase,
            finish,
            layout,
        })
    }

    /// `None` if no kernel takes the types.
    fn kernels(&self) -> Option<Kernels> {
        let ProductOperands { shape, method, .. } = self.operands;
        let level = self.machine.level;
        let by_columns = shape.right_column * method.tile.columns as isize;
        let (kernel_method, right_tile, left_type, block) = match method.algorithm {
            Algorithm::Dots => {
                let kernels = StoredKernels::new(level, self.right_type(), false)?;
                let method = GemmMethod::Dots { kernels, right_column: shape.right_column };
                (method, by_columns, DataType::F32, shape.depth)
            }
            Algorithm::Depthwise { group, seen } => {
                let kernel = DepthwiseKernel::new(level, self.operands.left.0.data_type)?;
                let taps = self.tap_rows()?;
                let method = GemmMethod::Depthwise { kernel, group, seen, taps };
                (method, by_columns, DataType::F32, shape.depth)
            }
            Algorithm::Planes { is_depthwise } => {
                let kernel = PlaneKernel::new(level, self.operands.right.0.data_type)?;
                let method = GemmMethod::Planes { kernel, is_depthwise, taps: self.tap_columns()? };
                (method, by_columns, DataType::F32, shape.depth)
            }
            Algorithm::Tiles { form, right: lies, depth_block } => {
                let kernel = GemmKernel::new(level, form);
                let (right, right_row, panel) = self.right_form(lies, depth_block, kernel.panel_columns())?;
                let right_tile = match lies {
                    Right::Packed => panel * method.tile.columns.div_ceil(kernel.panel_columns()) as isize,
                    _ => by_columns,
                };
                let method = GemmMethod::Tiles { kernel, depth_block, right_row, panel, right };
                (method, right_tile, form.left_type(), depth_block.min(shape.depth))
            }
        };
        let in_registers = self.dequantized().is_some_and(|of| of.in_registers);
        let is_along_depth = match method.algorithm {
            Algorithm::Dots => true,
            Algorithm::Depthwise { .. } | Algorithm::Planes { .. } => false,
            Algorithm::Tiles { form, .. } => in_registers || form.is_in_pairs(),
        };
        let row_pack = RowPack::new(level, self.operands.left.0.data_type, left_type);
        let left = match self.reads_left_in_place(left_type, is_along_depth)? {
            _ if matches!(method.algorithm, Algorithm::Depthwise { .. } | Algorithm::Planes { .. }) => {
                LeftForm::InPlace
            }
            _ if self.windows_of(OperandSide::Left).is_some() => {
                let is_read = self.operands.left.0.data_type == left_type || self.integers.is_some();
                LeftForm::Windows(if is_read { None } else { Some(row_pack?) })
            }
            _ if self.packs_integers() => LeftForm::InPlace,
            false => LeftForm::Rows(row_pack?),
            true if method.copies_left => LeftForm::Columns(row_pack?),
            true => LeftForm::InPlace,
        };
        Some(Kernels {
            method: kernel_method,
            left_type,
            left,
            block: if in_registers { shape.depth } else { block },
            // Parts of a stored matrix are found from its start.
            right_tile: if self.dequantized().is_some() { 0 } else { right_tile },
        })
    }

    /// The weights of convolutions of one channel each, or of groups of a few; `None` if no kernel takes
    /// their type.
    fn tap_rows(&self) -> Option<TapRows> {
        let &ProductShape { right_depth, right_column, .. } = &self.operands.shape;
        let data_type = self.right().data_type;
        let pack = match data_type == DataType::F32 && right_column == 4 {
            true => None,
            false => Some(RowPack::new(self.machine.level, data_type, DataType::F32)?),
        };
        Some(TapRows { pack, row_stride: right_depth, col_stride: right_column })
    }

    /// The weights of convolutions in planes, whose rows are channels; `None` if no kernel takes their type.
    fn tap_columns(&self) -> Option<TapRows> {
        let shape = &self.operands.shape;
        let data_type = self.operands.left.0.data_type;
        let pack = match data_type {
            DataType::F32 => None,
            other => Some(RowPack::new(self.machine.level, other, DataType::F32)?),
        };
        Some(TapRows { pack, row_stride: shape.row(&shape.left), col_stride: shape.left_depth })
    }

    /// The form of the right operand of micro-kernels, and the bytes from row to row and from panel to panel.
    fn right_form(
        &self,
        lies: Right,
        depth_block: usize,
        panel_columns: usize,
    ) -> Option<(RightForm, isize, isize)> {
        let &ProductShape { depth, right_depth, right_column, .. } = &self.operands.shape;
        let in_memory = right_column * panel_columns as isize;
        match lies {
            Right::InPlace => return Some((RightForm::InPlace, right_depth, in_memory)),
            Right::Streams => return Some((RightForm::Streams, right_depth, in_memory)),
            Right::Packed | Right::PackedInTile | Right::Dequantized => {}
        }
        let (kernel, _) = self.pack_kernel()?;
        let (form, rows) = match lies {
            Right::Packed => (RightForm::Packed, depth),
            Right::Dequantized => (RightForm::Dequantized(kernel), depth_block),
            _ if self.windows_of(OperandSide::Right).is_some() => (RightForm::Windows(kernel), depth_block),
            _ => {
                let panels = TilePanels { kernel, row_stride: right_depth, col_stride: right_column };
                (RightForm::PackedInTile(panels), depth_block)
            }
        };
        Some((form, kernel.row_bytes() as isize, kernel.panel_bytes(rows) as isize))
    }

    /// True if kernels read integers, and no numbers that are integers.
    fn packs_integers(&self) -> bool {
        self.integers.is_some() && matches!(self.operands.method.algorithm, Algorithm::Tiles { .. })
    }

    fn windows_of(&self, side: OperandSide) -> Option<&WindowOperand> {
        self.operands.windows.as_ref().filter(|(of, _)| *of == side).map(|(_, windows)| windows)
    }

    /// Bytes of windows as they are in the image, before they are converted or packed.
    fn gathered(&self, left: &LeftForm, block: usize) -> usize {
        let Some((side, WindowOperand { windows, .. })) = &self.operands.windows else { return 0 };
        let method = &self.operands.method;
        if let Algorithm::Planes { is_depthwise } = method.algorithm {
            return PlaneKernel::scratch(windows, method.tile.columns, is_depthwise).saturating_mul(4);
        }
        let elements = match (side, left) {
            _ if matches!(method.algorithm, Algorithm::Depthwise { .. }) => 0,
            (OperandSide::Left, LeftForm::Windows(None)) if self.integers.is_none() => 0,
            (OperandSide::Left, _) => block.saturating_mul(WindowOperand::ROWS),
            (OperandSide::Right, _) => match self.pack_kernel() {
                Some((pack, _)) if !pack.copies() => block.saturating_mul(pack.columns()),
                _ => 0,
            },
        };
        elements.saturating_mul(windows.width.bytes())
    }

    /// True if the kernels read the left operand in memory; `None` if its type has no elements of bytes.
    fn reads_left_in_place(&self, left_type: DataType, is_along_depth: bool) -> Option<bool> {
        let ProductOperands { shape, method, left: (left, _), .. } = self.operands;
        let must_lie_along_depth = is_along_depth && shape.depth > 1;
        let width = left_type.size()? as isize;
        // Tiles read whole lines, and two for each if rows do not begin with lines (decision: amx-lines).
        let crosses_lines = |form: Form| form.uses_tiles() && shape.row(&shape.left) % LINE as isize != 0;
        Some(
            left.data_type == left_type
                && (!must_lie_along_depth || shape.left_depth == width)
                && !matches!(method.algorithm, Algorithm::Tiles { form, .. } if crosses_lines(form)),
        )
    }

    /// The addition of a bias; `None` if no kernel takes its type.
    fn bias(&self, bias: &PlacedTensor, strides: &ResultStrides) -> Option<Bias> {
        let (level, of_sums) = (self.machine.level, self.sum_type());
        let is_of_rows = strides.column == 0 && strides.row != 0;
        let add = |addend: InnerStride| {
            Some(binary(level, Binary::Add, of_sums, InnerStride::Contiguous, addend)?.kernel)
        };
        Some(Bias {
            level,
            row_pack: RowPack::new(level, bias.data_type, of_sums)?,
            add: add(InnerStride::Broadcast)?,
            add_row: if of_sums == DataType::F64 { Some(add(InnerStride::Contiguous)?) } else { None },
            is_of_rows,
            row_stride: strides.row,
            col_stride: strides.column,
        })
    }

    /// The type of sums when they become elements of the result; integers are f32 by then.
    fn sum_type(&self) -> DataType {
        match self.operands.method.algorithm {
            Algorithm::Tiles { form: Form::F64, .. } => DataType::F64,
            _ => DataType::F32,
        }
    }

    /// The last step of a tile; `None` if no kernel makes the type of the result.
    fn finish(&self, to: &PlacedTensor, strides: &ResultStrides) -> Option<Finish> {
        let (level, width, of_sums) = (self.machine.level, width_of(to), self.sum_type());
        let is_strided = strides.column != width && self.operands.shape.columns > 1;
        Some(Finish {
            sum_width: of_sums.size()?,
            width: width as usize,
            round: match to.data_type == of_sums {
                true => None,
                false => Some(convert(level, of_sums, to.data_type)?.kernel),
            },
            unpack: is_strided.then_some(unpack_tile(level, Width::of(width as usize)?)),
            col_stride: strides.column,
        })
    }

    /// The accesses of both operands, of the bias and of the result.
    fn accesses(
        &self,
        right_at: &RightPlace,
        right_tile: isize,
        (bias, bias_strides): (Option<&PlacedTensor>, ResultStrides),
        (to, to_strides): (&PlacedTensor, ResultStrides),
    ) -> SmallVec<[ProductAccess; 7]> {
        let ProductOperands { shape, method: Method { tile, .. }, left: (left, left_offset), .. } =
            self.operands;
        let left_row = shape.row(&shape.left);
        let of_result = |base: Base, strides: ResultStrides, moves: bool| {
            let ResultStrides { axes, row, column } = strides;
            let tiles = |stride: isize, size: usize| if moves { by_tile(stride, size) } else { 0 };
            ProductAccess {
                access: Access { base, offset: 0, row_stride: row, col_stride: column },
                row_tile: tiles(row, tile.rows),
                column_tile: tiles(column, tile.columns),
                axes: if moves { axes } else { AxisStrides::from_elem(0, axes.len()) },
            }
        };
        let left = ProductAccess {
            access: Access {
                base: left.base,
                offset: *left_offset,
                row_stride: left_row,
                col_stride: shape.left_depth,
            },
            axes: shape.left.clone(),
            row_tile: by_tile(left_row, tile.rows),
            column_tile: by_tile(shape.column(&shape.left), tile.columns),
        };
        let right = ProductAccess {
            access: Access {
                base: right_at.base,
                offset: right_at.offset,
                row_stride: shape.right_depth,
                col_stride: shape.right_column,
            },
            axes: right_at.strides.clone(),
            row_tile: by_tile(shape.row(&shape.right), tile.rows),
            column_tile: right_tile,
        };
        let bias_base = bias.map_or(left.access.base, |bias| bias.base);
        let bias = of_result(bias_base, bias_strides, true);
        // Each tile is in the same slot of a driver.
        let to = of_result(to.base, to_strides, !matches!(to.base, Base::Driver(_)));
        [left, right, bias, to].into_iter().collect()
    }

    /// The accesses of scales, zero points and sums of columns, of integers and of stored operands.
    fn accesses_of_scaling(
        &self,
        right_at: &RightPlace,
        sums: Option<ColumnSums>,
    ) -> SmallVec<[ProductAccess; 3]> {
        let ProductOperands { shape, method, .. } = self.operands;
        let none = || AxisStrides::from_elem(0, shape.dims.len());
        let access =
            |base, (offset, row_stride): (isize, isize), col_stride: isize, axes, columns| ProductAccess {
                access: Access { base, offset, row_stride, col_stride },
                axes,
                row_tile: 0,
                column_tile: by_tile(col_stride, columns),
            };
        let columns = method.tile.columns;
        if let Some(of) = self.integers {
            let [mut scales, zeros] = [of.scales, of.zeros].map(|(base, stride)| {
                let mut axes = none();
                if let Some((axis, count)) = of.groups {
                    axes[axis] = by_tile(stride, count);
                }
                access(base, (0, 0), stride, axes, columns)
            });
            if of.scales_rows {
                scales.column_tile = 0;
                scales.row_tile = by_tile(scales.access.col_stride, method.tile.rows);
            }
            let place = sums.map_or((0, 0), |sums| (sums.offset as isize, sums.row as isize));
            let sums = access(right_at.base, place, 4, right_at.strides.clone(), columns);
            return [scales, zeros, sums].into_iter().collect();
        }
        let scaling = self.dequantized().into_iter().flat_map(|of| &of.scaling);
        let axes = |place| batch_strides(place, &shape.dims, self.batch());
        scaling.map(|place| access(place.base, (0, 0), 4, axes(place), 0)).collect()
    }

    /// The sums of the columns of integers: those of a packed operand, or those that a tile makes. These have
    /// no place in memory, so their access leads nowhere.
    fn column_sums(&self, right_at: &RightPlace) -> Option<ColumnSums> {
        let of_tile = self.tile_panels().map(|(_, rows, _)| ColumnSums { offset: 0, row: 0, rows });
        right_at.sums.or(of_tile)
    }

    /// Bytes of the panels that a tile has at once, rows of the sums of columns, and sums of a row.
    fn tile_panels(&self) -> Option<(usize, usize, usize)> {
        let (shape, tile) = (&self.operands.shape, self.operands.method.tile);
        let (right, depth_block) = match self.operands.method.algorithm {
            Algorithm::Tiles { right, depth_block, .. } => (right, depth_block),
            Algorithm::Depthwise { .. } => {
                let packs = self.tap_rows()?.pack.is_some();
                return packs.then(|| (shape.depth.saturating_mul(4 * tile.columns), 0, 0));
            }
            Algorithm::Planes { .. } => {
                let packs = self.tap_columns()?.pack.is_some();
                return packs.then(|| (shape.depth.saturating_mul(4 * tile.rows), 0, 0));
            }
            Algorithm::Dots => return None,
        };
        let (kernel, _) = self.pack_kernel()?;
        let panels = self.operands.method.tile.columns.div_ceil(kernel.columns());
        let panel = kernel.panel_bytes(depth_block);
        match right {
            // A panel is multiplied before the next one is packed.
            Right::PackedInTile => {
                Some((panel, self.operands.shape.depth.div_ceil(depth_block), panels * kernel.columns()))
            }
            // Kernels write a vector behind the last row.
            Right::Dequantized => Some((panels * panel + LINE, 0, 0)),
            _ => None,
        }
    }

    /// Bytes of rows of a stored right operand in f32, or of the left rows that are multiplied with it.
    fn widened(&self) -> usize {
        let Some(of) = self.dequantized() else { return 0 };
        let rows = |count: usize, elements: usize| {
            count.saturating_mul(4 * DequantizedRight::widened_row(elements)).saturating_add(LINE)
        };
        match self.operands.method.algorithm {
            _ if !of.stored.is_along_depth => 0,
            Algorithm::Depthwise { .. } | Algorithm::Planes { .. } => 0,
            // There are fewer left rows if these are multiplied in registers.
            Algorithm::Dots => rows(DequantizedRight::DOT_COLUMNS, self.operands.shape.depth),
            Algorithm::Tiles { depth_block, .. } => {
                self.pack_kernel().map_or(0, |(kernel, _)| rows(kernel.columns(), depth_block))
            }
        }
    }

    fn dequantized_right(&self, of: &DequantizedOperand) -> DequantizedRight {
        let &ProductShape { right_depth, right_column, depth, columns, .. } = &self.operands.shape;
        let is_along_depth = of.stored.is_along_depth;
        DequantizedRight {
            kernels: of.kernels,
            in_registers: of.in_registers,
            bits: self.right().data_type.size().map_or(4, |bytes| 8 * bytes),
            is_along_depth,
            row_stride: if is_along_depth { right_column } else { right_depth },
            rows: if is_along_depth { columns } else { depth },
            group: of.stored.group,
            row_step: of.row_step,
        }
    }

    /// The facts of a product of integers; `None` for any other product.
    fn integer_product(&self, sums: Option<ColumnSums>) -> Option<IntegerProduct> {
        let (integers, level) = (self.integers?, self.machine.level);
        let (rows, sum_rows) = match self.operands.method.algorithm {
            Algorithm::Tiles { form, .. } => {
                (Some(IntegerRows::new(level, self.operands.left.0.data_type, form)), sums?.rows)
            }
            _ => (None, 0),
        };
        Some(IntegerProduct {
            rows,
            left_zero: integers.left_zero,
            has_right_zeros: integers.has_right_zeros,
            scales_rows: integers.scales_rows,
            sum_rows,
            scaling: SumScaling::new(level, rows.is_none()),
        })
    }
}

/// Bytes from tile to tile.
fn by_tile(stride: isize, size: usize) -> isize {
    stride.saturating_mul(size as isize)
}

/// The loops with the accesses of a product behind those of the epilogue, whose rows may be the columns of
/// the product.
fn attach(
    mut nest: LoopNest,
    (shape, is_transposed): (&ProductShape, bool),
    accesses: SmallVec<[ProductAccess; 7]>,
) -> LoopNest {
    for (index, l) in nest.loops.iter_mut().enumerate() {
        l.strides.extend(accesses.iter().map(|of| match shape.outer.get(index) {
            Some(&axis) => of.axes[axis],
            None if (index == nest.row_blocks) != is_transposed => of.row_tile,
            None => of.column_tile,
        }));
    }
    nest.program.accesses.extend(accesses.into_iter().map(|of| of.access));
    nest
}

/// The demands of a product on the scratch of a thread.
struct ScratchNeeds {
    /// Bytes of a row of a block of the left operand, or of a column, and their number.
    left: Option<(usize, usize)>,
    /// Bytes of an element of the tile that an epilogue reads.
    product: Option<usize>,
    bias: bool,
    /// True if operands are integers.
    integers: bool,
    /// Bytes of panels that a tile packs, rows of the sums of their columns, and sums of a row.
    panels: Option<(usize, usize, usize)>,
    /// Bytes of rows in f32 of a right operand, or of left rows for kernels of stored rows.
    widened: usize,
    /// Bytes of windows before they are converted or packed.
    gathered: usize,
}

fn scratch_layout(first: usize, tile: Extent, finish: &Finish, needs: ScratchNeeds) -> GemmScratch {
    let mut arena = Arena::behind(first);
    let mut take = |bytes: usize| arena.take(bytes);
    let elements = tile.rows.saturating_mul(tile.columns);
    let of_elements = |bytes: usize| elements.saturating_mul(bytes);
    // A line between two rows, so that rows of a power of two do not share a set of the cache.
    let left_row = needs.left.map_or(0, |(bytes, _)| whole_lines(bytes).saturating_add(LINE));
    let left = take(needs.left.map_or(0, |(_, count)| left_row.saturating_mul(count)));
    let sums = take(if finish.is_direct() { 0 } else { of_elements(finish.sum_width) });
    let is_rounded = finish.round.is_some() && finish.unpack.is_some();
    let rounded = take(if is_rounded { of_elements(finish.width) } else { 0 });
    let product = take(of_elements(needs.product.unwrap_or(0)));
    let bias = take(if needs.bias { finish.sum_width * tile.columns.max(tile.rows) } else { 0 });
    let columns = if needs.integers { tile.columns.next_multiple_of(integers::BLOCK) } else { 0 };
    let scales = take(if needs.integers { 8 * columns.max(tile.rows) } else { 0 });
    let [subtracted, zeros] = [take(4 * columns), take(4 * columns)];
    let row_sums = take(if needs.integers { 4 * tile.rows } else { 0 });
    // A plan that needs no scratch takes none, which saves time on small products.
    let (of_panels, rows, of_row) = needs.panels.unwrap_or_default();
    let panels = take(of_panels);
    let panel_sums = take(4 * rows * of_row);
    let widened = take(needs.widened);
    let gathered = take(needs.gathered);
    let row_pack =
        take(if needs.left.is_some() || needs.bias || needs.panels.is_some() { pack::SCRATCH } else { 0 });
    GemmScratch {
        left,
        left_row,
        sums,
        rounded,
        product,
        bias,
        scales,
        subtracted,
        zeros,
        row_sums,
        row_pack,
        widened,
        gathered,
        panels,
        panel_sums,
        end: arena.bytes(),
    }
}
