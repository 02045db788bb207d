//! Lowers a partition of products, of ops on rows, and of pointwise ops around them, to a plan: one anchor
//! after the other.
//!
//! An operand that pointwise ops compute is written to an internal buffer first, unless strides lead to its
//! elements in a value that is stored.
//! A move between the result and an output costs nothing: the product writes by the strides of the output.
//! If all results have the shape of the product, the pointwise ops run as an epilogue on each tile of the
//! product. Otherwise the product goes to an output or to an internal buffer, which later phases read.
//!
//! If both operands are 8-bit integers behind a dequantisation, their product is summed up in s32. If the
//! right one alone is stored in 8 or 4 bits, it becomes f32 part by part.

mod method;
mod stored;

use smallvec::{SmallVec, smallvec};

use self::method::{Algorithm, Method, Right};
use self::stored::DequantizedOperand;
use super::elementwise::DriverSpace;
use super::integers::{ColumnSums, OperandPlaces, PlacedIntegers, integer_operands};
use super::machine::Machine;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::product_shape::{ProductShape, batch_strides, width_of};
use super::rows;
use super::shaped_partition::ShapedPartition;
use crate::compile::memory::whole_lines;
use crate::error::{CompileFault, Result};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::kernels::gemm::dot::dot_kernel;
use crate::kernels::gemm::integers::{self, IntegerRows, SumScaling};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pack::unpack_tile;
use crate::kernels::pointwise::{binary, convert};
use crate::kernels::{Extent, InnerStride, LINE, Width};
use crate::partition::Partition;
use crate::plan::{
    Access, Base, Bias, DequantizedRight, Finish, GemmMethod, GemmPhase, GemmScratch, IntegerProduct, Loop,
    LoopNest, PackPhase, Phase, Plan, RightForm, TilePanels, TileProgram, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::function::Binary;
use crate::types::kind::OpKind;
use crate::types::shape;

/// Rows of the right operand in a block that is packed by one task. It is a multiple of the depth unit of
/// every form, and makes tasks enough for the threads.
const PACKED_ROWS: usize = 256;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?.with_moves_as_strides();
    let mut plan = PlanBuilder::new(&shaped, machine.level, machine.single_thread());
    add_anchors(&shaped, &mut plan, 0..shaped.group.anchors.len(), machine)?;
    plan.finish()
}

/// Adds the phases of products and of ops on rows, in the given order.
pub(super) fn add_anchors(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    anchors: impl IntoIterator<Item = usize>,
    machine: Machine,
) -> Result<()> {
    for anchor in anchors {
        match shaped.partition.ops()[shaped.group.anchors[anchor].op].kind() {
            OpKind::MatMul => add_product(shaped, plan, anchor, machine)?,
            _ => drop(rows::add(shaped, plan, anchor)?),
        }
    }
    Ok(())
}

/// Adds the phases of one product, and of its epilogue.
fn add_product(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    index: usize,
    machine: Machine,
) -> Result<()> {
    let anchor = &shaped.group.anchors[index];
    let op = &shaped.partition.ops()[anchor.op];
    let value = anchor.outputs[0];
    let result = &shaped.group.values[value];
    let roots = plan.epilogue_roots(index, &[value], None);
    if result.dims.contains(&0) {
        roots.into_iter().for_each(|root| drop(plan.result(root)));
        return Ok(());
    }
    // Without a root, other ops use the shape of the product alone.
    if roots.is_empty() {
        return Ok(());
    }
    let (mut integers, mut dequantized, mut of_stored) = (None, None, None);
    let places = if let Some((places, scaling)) = integer_operands(plan, anchor)? {
        integers = Some(scaling);
        places
    } else if let Some(found) = stored::find(plan, anchor, &result.dims, machine)? {
        let (places, of_right, method) = found;
        (dequantized, of_stored) = (Some(of_right), Some(method));
        places
    } else {
        operands(plan, op, &anchor.inputs, &result.dims, machine)?
    };
    let [(left, left_offset), (right, right_offset)] = places;
    let bias = anchor.inputs.get(2).map(|&bias| plan.operand(bias)).transpose()?;
    let shape = ProductShape::new(op, &left, &right, &result.dims);
    let right_type = op.inputs()[1].data_type();
    let method = match (&integers, of_stored) {
        (_, Some(method)) => method,
        (Some(_), None) => {
            let varies = matches!(right.base, Base::Port(port) if !plan.is_constant(port));
            Method::of_integers(&shape, machine, varies)
        }
        (None, None) => Method::choose(&shape, &left, &right, right_type, machine),
    };
    let (nest, to) = match roots[..] == [value] {
        true => (shape.empty_nest(method.tile), plan.result(value)),
        false => {
            let width = result.data_type.size().unwrap_or(1);
            let space = DriverSpace::new(
                result.dims.clone(),
                [shape.row_axis, shape.column_axis],
                method.tile,
                smallvec![((method.tile.columns * width) as isize, width as isize)],
            );
            let nest = plan.epilogue(&space, &[(value, 0)], &roots)?;
            let to = PlacedTensor {
                base: Base::Driver(0),
                data_type: result.data_type,
                dims: result.dims.clone(),
                strides: shape.driver_strides(result.dims.len(), method.tile.columns),
            };
            (nest, to)
        }
    };
    let integers = integers.map(|scaling| PlacedIntegers::new(plan, &scaling));
    let phases = Phases {
        shape: &shape,
        method: &method,
        left: &left,
        right: &right,
        offsets: [left_offset, right_offset],
        integers: integers.as_ref(),
        dequantized: dequantized.as_ref(),
        machine,
    };
    let unsupported = |why: &str| {
        let types = [&left, &right, &to].map(|tensor| tensor.data_type.name());
        CompileFault::Unsupported(format!("no kernel runs MatMul on {}: {why}", types.join(", ")))
    };
    let mut right_at = RightPlace::of(&right, right_offset, &shape);
    if method.packs() {
        let packed = phases.pack();
        let (mut phase, bytes, place) =
            packed.ok_or_else(|| plan.refuse(unsupported("the packed operand is too large")))?;
        let buffer = plan.buffer(bytes);
        phase.nest.program.accesses[PackPhase::TO.0..].iter_mut().for_each(|access| access.base = buffer);
        plan.push(Phase::Pack(phase), 0, true);
        right_at = RightPlace { base: buffer, ..place };
    }
    let gemm = phases.gemm(nest, &right_at, bias.as_ref(), &to);
    let gemm = gemm.ok_or_else(|| plan.refuse(unsupported("not these types")))?;
    plan.push(Phase::Gemm(Box::new(gemm)), shape.flops(), true);
    Ok(())
}

/// Where both operands are, each with the bytes to its first element.
///
/// The strides of an operand may decide the order of additions. If strides lead to the elements of an operand
/// that ops move, they are used only if the order is that of the operand in rows, as it would be if these ops
/// were run one by one.
fn operands(
    plan: &mut PlanBuilder<'_>,
    op: &Op,
    inputs: &[ValueId],
    result: &[i64],
    machine: Machine,
) -> Result<OperandPlaces> {
    let right_type = op.inputs()[1].data_type();
    // If both operands are NaN, which of the two becomes the product depends on how the kernel reads the
    // right operand.
    let order = |left: &PlacedTensor, right: &PlacedTensor| {
        let shape = ProductShape::new(op, left, right, result);
        let method = Method::choose(&shape, left, right, right_type, machine);
        (method.order(), (!method.packs()).then_some(right.data_type))
    };
    let dense = [0, 1].map(|input| plan.place_or_dense(inputs[input]));
    let views = [0, 1].map(|input| plan.view(inputs[input]));
    let wanted = order(&dense[0], &dense[1]);
    let with_views = [[true, true], [false, true], [true, false]].into_iter().find(|use_view| {
        let [left, right] = [0, 1].map(|input| match &views[input] {
            Some((view, _)) if use_view[input] => view,
            _ => &dense[input],
        });
        order(left, right) == wanted
    });
    let with_views = with_views.unwrap_or_default();
    let [left_view, right_view] = views;
    let mut place = |view: Option<(PlacedTensor, isize)>, input: usize| -> Result<_> {
        match view {
            Some(view) if with_views[input] => Ok(view),
            _ => Ok((plan.operand(inputs[input])?, 0)),
        }
    };
    Ok([place(left_view, 0)?, place(right_view, 1)?])
}

/// Where the right operand is, packed or not.
struct RightPlace {
    base: Base,
    /// Bytes to the first element.
    offset: isize,
    /// Strides along the axes of the result.
    strides: AxisStrides,
    /// The sums of the columns of integers.
    sums: Option<ColumnSums>,
}

impl RightPlace {
    /// An operand that is not packed.
    fn of(right: &PlacedTensor, offset: isize, shape: &ProductShape) -> Self {
        Self { base: right.base, offset, strides: shape.right.clone(), sums: None }
    }
}

/// Makes the phases of a product.
struct Phases<'a> {
    shape: &'a ProductShape,
    method: &'a Method,
    left: &'a PlacedTensor,
    right: &'a PlacedTensor,
    /// Bytes to the first element of each.
    offsets: [isize; 2],
    integers: Option<&'a PlacedIntegers>,
    dequantized: Option<&'a DequantizedOperand>,
    machine: Machine,
}

impl Phases<'_> {
    /// The phase that packs the right operand into a buffer, the bytes of the buffer, and the place of the
    /// operand in a buffer. `None` if the sizes overflow.
    fn pack(&self) -> Option<(PackPhase, usize, RightPlace)> {
        let Self { shape, method, right, .. } = self;
        let (kernel, panel) = self.pack_kernel()?;
        let panels = shape.columns.div_ceil(panel);
        let packed_rows = shape.depth.div_ceil(PACKED_ROWS);
        let sums = match kernel.writes_sums() {
            true => Some(ColumnSums {
                offset: kernel.panel_bytes(shape.depth).checked_mul(panels)?,
                row: panels.checked_mul(4 * kernel.columns())?,
                rows: packed_rows,
            }),
            false => None,
        };
        let bytes_of_sums = sums.map_or(Some(0), |sums| sums.row.checked_mul(sums.rows))?;
        let matrix = kernel.panel_bytes(shape.depth).checked_mul(panels)?.checked_add(bytes_of_sums)?;
        let own = &right.dims[..right.dims.len().saturating_sub(2)];
        let order: SmallVec<[usize; 6]> = (0..own.len()).collect();
        // In matrices; a matrix that broadcasts is packed once.
        let dense = shape::dense_strides(own, &order)?;
        let matrices = own.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim as usize))?;
        let bytes = matrix.checked_mul(matrices)?;
        isize::try_from(bytes).ok()?;

        let accessed = if sums.is_some() { 3 } else { 2 };
        let outer = own.iter().enumerate().map(|(axis, &dim)| {
            let to = dense[axis] as isize * matrix as isize;
            let strides = [right.strides[axis] as isize * width_of(right), to, to];
            Loop { extent: dim as usize, strides: strides[..accessed].into() }
        });
        let &ProductShape { right_depth: right_row, right_column, .. } = *shape;
        let rows = PACKED_ROWS / kernel.depth_step() * kernel.row_bytes();
        let blocks = [
            (
                packed_rows,
                [right_row * PACKED_ROWS as isize, rows as isize, sums.map_or(0, |sums| sums.row as isize)],
            ),
            (
                panels,
                [
                    right_column * panel as isize,
                    kernel.panel_bytes(shape.depth) as isize,
                    4 * kernel.columns() as isize,
                ],
            ),
        ];
        let blocks = blocks.map(|(extent, strides)| Loop { extent, strides: strides[..accessed].into() });
        let access = |base, offset, row_stride, col_stride| Access { base, offset, row_stride, col_stride };
        let of_sums = sums.map(|sums| access(Base::Buffer(0), sums.offset as isize, sums.row as isize, 4));
        let accesses = [
            access(right.base, self.offsets[1], right_row, right_column),
            access(Base::Buffer(0), 0, kernel.row_bytes() as isize, 0),
        ];
        let accesses = accesses.into_iter().chain(of_sums).collect();
        let nest = LoopNest {
            loops: outer.chain(blocks).collect(),
            row_blocks: own.len(),
            column_blocks: own.len() + 1,
            space: Extent { rows: shape.depth, columns: shape.columns },
            tile: Extent { rows: PACKED_ROWS, columns: panel },
            program: TileProgram { accesses, ..TileProgram::default() },
        };
        let packed = PlacedTensor {
            base: Base::Buffer(0),
            dims: right.dims.clone(),
            strides: dense.iter().copied().chain([0, 0]).collect(),
            data_type: DataType::U8,
        };
        let batch =
            shape.dims.len() - usize::from(shape.column_axis.is_some()) - usize::from(self.has_rows());
        let strides = batch_strides(&packed, &shape.dims, batch);
        let strides = strides.into_iter().map(|stride| stride * matrix as isize).collect();
        debug_assert!(method.packs());
        let place = RightPlace { base: Base::Buffer(0), offset: 0, strides, sums };
        Some((PackPhase { nest, kernel }, bytes, place))
    }

    /// True if rows have an axis in the result.
    fn has_rows(&self) -> bool {
        self.left.dims.len() > 1
    }

    /// The kernel that packs, and the columns of a panel.
    fn pack_kernel(&self) -> Option<(PackPanel, usize)> {
        let Algorithm::Tiles { form, .. } = self.method.algorithm else { return None };
        let panel = GemmKernel::new(self.machine.level, form).panel_columns();
        let data_type = if self.dequantized.is_some() { DataType::F32 } else { self.right.data_type };
        let kernel = PackPanel::new(self.machine.level, data_type, form, self.shape.columns)?;
        Some((kernel, panel))
    }

    /// The phase that computes the products, in the tiles of a nest whose program is the epilogue. `None` if
    /// no kernel takes the types.
    fn gemm(
        &self,
        mut nest: LoopNest,
        right_at: &RightPlace,
        bias: Option<&PlacedTensor>,
        to: &PlacedTensor,
    ) -> Option<GemmPhase> {
        let Self { shape, method, left, right, offsets, integers, dequantized, machine } = self;
        let (level, tile) = (machine.level, method.tile);
        let &ProductShape { left_depth: left_column, right_depth: right_row, right_column, .. } = *shape;
        let left_row = shape.row(&shape.left);
        let to_axes = shape.result_strides(to);
        let (to_row, to_column) = (shape.row(&to_axes), shape.column(&to_axes));
        let none = || to_axes.iter().map(|_| 0).collect();
        let bias_axes: AxisStrides = bias.map_or_else(none, |bias| shape.result_strides(bias));
        let (bias_row, bias_column) = (shape.row(&bias_axes), shape.column(&bias_axes));

        let (kernel_method, right_tile, left_type, block) = match method.algorithm {
            Algorithm::Dots => {
                let kernel =
                    dot_kernel(level, if dequantized.is_some() { DataType::F32 } else { right.data_type });
                let method = GemmMethod::Dots { kernel, right_column };
                (method, right_column * tile.columns as isize, DataType::F32, shape.depth)
            }
            Algorithm::Tiles { form, right: lies, depth_block } => {
                let kernel = GemmKernel::new(level, form);
                let panel = kernel.panel_columns();
                let (row, panel_stride, form_of_right) = match lies {
                    Right::InPlace => (right_row, right_column * panel as isize, RightForm::InPlace),
                    Right::Streams => (right_row, right_column * panel as isize, RightForm::Streams),
                    Right::Packed => {
                        let (packed, _) = self.pack_kernel()?;
                        let stride = packed.panel_bytes(shape.depth);
                        (packed.row_bytes() as isize, stride as isize, RightForm::Packed)
                    }
                    Right::PackedInTile => {
                        let (kernel, _) = self.pack_kernel()?;
                        let stride = kernel.panel_bytes(depth_block);
                        let panels = TilePanels { kernel, row_stride: right_row, col_stride: right_column };
                        (kernel.row_bytes() as isize, stride as isize, RightForm::PackedInTile(panels))
                    }
                    Right::Dequantized => {
                        let (kernel, _) = self.pack_kernel()?;
                        let stride = kernel.panel_bytes(depth_block);
                        (kernel.row_bytes() as isize, stride as isize, RightForm::Dequantized(kernel))
                    }
                };
                let right_tile = match lies {
                    Right::Packed => panel_stride * tile.columns.div_ceil(panel) as isize,
                    _ => right_column * tile.columns as isize,
                };
                let (right, right_row) = (form_of_right, row);
                let method = GemmMethod::Tiles { kernel, depth_block, right_row, panel: panel_stride, right };
                (method, right_tile, form.left_type(), depth_block.min(shape.depth))
            }
        };
        // Parts of a stored matrix are found from its start.
        let right_tile = if dequantized.is_some() { 0 } else { right_tile };
        let in_registers = dequantized.is_some_and(|of| of.products.is_some());
        let block = if in_registers { shape.depth } else { block };
        let is_along_depth = match method.algorithm {
            Algorithm::Dots => true,
            Algorithm::Tiles { form, .. } => in_registers || form.is_in_pairs(),
        };
        let must_lie_along_depth = is_along_depth && shape.depth > 1;
        let left_width = left_type.size()? as isize;
        // Tiles read whole lines, and two for each if rows do not begin with lines (decision: amx-lines).
        let crosses_lines = |form: Form| form.uses_tiles() && left_row % LINE as isize != 0;
        let is_read_in_place = left.data_type == left_type
            && (!must_lie_along_depth || left_column == left_width)
            && !matches!(method.algorithm, Algorithm::Tiles { form, .. } if crosses_lines(form));
        let row_pack = match is_read_in_place || integers.is_some() {
            true => None,
            false => Some(RowPack::new(level, left.data_type, left_type)?),
        };
        let contiguous = InnerStride::Contiguous;
        let bias_phase = match bias {
            None => None,
            Some(bias) => Some(Bias {
                row_pack: RowPack::new(level, bias.data_type, DataType::F32)?,
                add: binary(level, Binary::Add, DataType::F32, contiguous, contiguous)?.kernel,
                row_stride: bias_row,
                col_stride: bias_column,
            }),
        };
        let width = width_of(to);
        let is_strided = to_column != width && shape.columns > 1;
        let finish = Finish {
            round: match to.data_type {
                DataType::F32 => None,
                other => Some(convert(level, DataType::F32, other)?.kernel),
            },
            unpack: is_strided.then_some(unpack_tile(level, Width::of(width as usize)?)),
            col_stride: to_column,
        };

        // The accesses of the product follow those of the epilogue.
        let first_access = nest.program.next_access();
        let bias_base = bias.map_or(left.base, |bias| bias.base);
        let sums = self.column_sums(right_at);
        let of_integers = sums.zip(*integers).map(|(sums, of)| {
            let constants = [of.scales, of.zeros].map(|(base, stride)| (base, 0, 0, stride));
            let [scales, zeros] = constants;
            [scales, zeros, (right_at.base, sums.offset as isize, sums.row as isize, 4)]
        });
        let accesses = [
            (left.base, offsets[0], left_row, left_column),
            (right_at.base, right_at.offset, right_row, right_column),
            (bias_base, 0, bias_row, bias_column),
            (to.base, 0, to_row, to_column),
        ];
        let of_scaling = dequantized.map(|of| of.scaling.each_ref().map(|place| (place.base, 0, 0, 4)));
        let of_scaling_axes = dequantized.map(|of| {
            let batch =
                shape.dims.len() - usize::from(shape.column_axis.is_some()) - usize::from(self.has_rows());
            of.scaling.each_ref().map(|place| batch_strides(place, &shape.dims, batch))
        });
        let accesses = accesses.into_iter().chain(of_integers.into_iter().flatten());
        let accesses = accesses.chain(of_scaling.into_iter().flatten());
        nest.program.accesses.extend(accesses.map(|(base, offset, row_stride, col_stride)| Access {
            base,
            offset,
            row_stride,
            col_stride,
        }));
        let is_driver = matches!(to.base, Base::Driver(_));
        let by_tile = |stride: isize, size: usize| stride.saturating_mul(size as isize);
        let to_moves = |stride: isize| if is_driver { 0 } else { stride };
        for (index, l) in nest.loops.iter_mut().enumerate() {
            l.strides.extend(match shape.outer.get(index) {
                None if index == nest.row_blocks => [
                    by_tile(left_row, tile.rows),
                    0,
                    by_tile(bias_row, tile.rows),
                    to_moves(by_tile(to_row, tile.rows)),
                ],
                None => [
                    0,
                    right_tile,
                    by_tile(bias_column, tile.columns),
                    to_moves(by_tile(to_column, tile.columns)),
                ],
                Some(&axis) => {
                    [shape.left[axis], right_at.strides[axis], bias_axes[axis], to_moves(to_axes[axis])]
                }
            });
            if let Some(axes) = &of_scaling_axes {
                let outer = shape.outer.get(index);
                l.strides.extend(axes.iter().map(|strides| outer.map_or(0, |&axis| strides[axis])));
            }
            let Some(of_integers) = &of_integers else { continue };
            l.strides.extend(match shape.outer.get(index) {
                None if index == nest.row_blocks => [0; 3],
                None => of_integers.map(|(_, _, _, column)| by_tile(column, tile.columns)),
                Some(&axis) => [0, 0, right_at.strides[axis]],
            });
        }
        let layout = scratch_layout(
            nest.program.scratch,
            tile,
            &finish,
            ScratchNeeds {
                left: match (row_pack, integers) {
                    (None, None) => None,
                    _ => Some(block.next_multiple_of(4) * left_width as usize),
                },
                integers: integers.is_some(),
                product: is_driver.then_some(width as usize),
                bias: bias.is_some(),
                panels: self.tile_panels(),
                widened: self.widened(),
            },
        );
        Some(GemmPhase {
            nest,
            first_access,
            depth: shape.depth,
            method: kernel_method,
            left: row_pack,
            left_column,
            integers: self.integer_product(sums),
            dequantized: dequantized.map(|of| self.dequantized_right(of)),
            bias: bias_phase,
            finish,
            layout,
        })
    }

    /// The sums of the columns of integers: those of a packed operand, or those that a tile makes. These have
    /// no place in memory, so their access leads nowhere.
    fn column_sums(&self, right_at: &RightPlace) -> Option<ColumnSums> {
        let of_tile = self.tile_panels().map(|(_, rows, _)| ColumnSums { offset: 0, row: 0, rows });
        right_at.sums.or(of_tile)
    }

    /// Bytes of the panels that a tile has at once, rows of the sums of columns, and sums of a row.
    fn tile_panels(&self) -> Option<(usize, usize, usize)> {
        let Algorithm::Tiles { right, depth_block, .. } = self.method.algorithm else { return None };
        let (kernel, _) = self.pack_kernel()?;
        let panels = self.method.tile.columns.div_ceil(kernel.columns());
        let panel = kernel.panel_bytes(depth_block);
        match right {
            // A panel is multiplied before the next one is packed.
            Right::PackedInTile => {
                Some((panel, self.shape.depth.div_ceil(depth_block), panels * kernel.columns()))
            }
            // Kernels write a vector behind the last row.
            Right::Dequantized => Some((panels * panel + LINE, 0, 0)),
            _ => None,
        }
    }

    /// Bytes of rows of a stored right operand in f32, or of the left rows that are multiplied with it.
    fn widened(&self) -> usize {
        let Some(of) = self.dequantized else { return 0 };
        let rows = |count: usize, elements: usize| {
            count.saturating_mul(4 * DequantizedRight::widened_row(elements)).saturating_add(LINE)
        };
        match self.method.algorithm {
            _ if !of.stored.is_along_depth => 0,
            // There are fewer left rows if these are multiplied in registers.
            Algorithm::Dots => rows(DequantizedRight::DOT_COLUMNS, self.shape.depth),
            Algorithm::Tiles { depth_block, .. } => {
                self.pack_kernel().map_or(0, |(kernel, _)| rows(kernel.columns(), depth_block))
            }
        }
    }

    fn dequantized_right(&self, of: &DequantizedOperand) -> DequantizedRight {
        let &ProductShape { right_depth, right_column, depth, columns, .. } = self.shape;
        let is_along_depth = of.stored.is_along_depth;
        DequantizedRight {
            kernels: of.kernels,
            products: of.products,
            bits: self.right.data_type.size().map_or(4, |bytes| 8 * bytes),
            is_along_depth,
            row_stride: if is_along_depth { right_column } else { right_depth },
            rows: if is_along_depth { columns } else { depth },
            group: of.stored.group,
            row_step: of.row_step,
        }
    }

    /// The facts of a product of integers; `None` for any other product.
    fn integer_product(&self, sums: Option<ColumnSums>) -> Option<IntegerProduct> {
        let (Some(integers), Algorithm::Tiles { form, .. }) = (self.integers, &self.method.algorithm) else {
            return None;
        };
        Some(IntegerProduct {
            rows: IntegerRows::new(self.machine.level, self.left.data_type, *form),
            left_zero: integers.left_zero,
            has_right_zeros: integers.has_right_zeros,
            sum_rows: sums?.rows,
            scaling: SumScaling::new(self.machine.level),
        })
    }
}

/// The demands of a product on the scratch of a thread.
struct ScratchNeeds {
    /// Bytes of a row of a block of the left operand.
    left: Option<usize>,
    /// Bytes of an element of the tile that an epilogue reads.
    product: Option<usize>,
    bias: bool,
    /// True if operands are integers.
    integers: bool,
    /// Bytes of panels that a tile packs, rows of the sums of their columns, and sums of a row.
    panels: Option<(usize, usize, usize)>,
    /// Bytes of rows in f32 of a right operand, or of left rows for kernels of stored rows.
    widened: usize,
}

fn scratch_layout(first: usize, tile: Extent, finish: &Finish, needs: ScratchNeeds) -> GemmScratch {
    let mut end = first;
    let mut take = |bytes: usize| {
        let start = whole_lines(end);
        end = start.saturating_add(bytes);
        start
    };
    let elements = tile.rows.saturating_mul(tile.columns);
    let of_elements = |bytes: usize| elements.saturating_mul(bytes);
    // A line between two rows, so that rows of a power of two do not share a set of the cache.
    let left_row = needs.left.map_or(0, |bytes| whole_lines(bytes).saturating_add(LINE));
    let left = take(left_row.saturating_mul(tile.rows));
    let sums = take(if finish.is_direct() { 0 } else { of_elements(4) });
    let rounded = take(if finish.round.is_some() && finish.unpack.is_some() { of_elements(2) } else { 0 });
    let product = take(of_elements(needs.product.unwrap_or(0)));
    let bias = take(if needs.bias { 4 * tile.columns } else { 0 });
    let columns = if needs.integers { tile.columns.next_multiple_of(integers::BLOCK) } else { 0 };
    let scales = take(8 * columns);
    let [subtracted, zeros] = [take(4 * columns), take(4 * columns)];
    let row_sums = take(if needs.integers { 4 * tile.rows } else { 0 });
    // A plan that needs no scratch takes none, which saves time on small products.
    let (of_panels, rows, of_row) = needs.panels.unwrap_or_default();
    let panels = take(of_panels);
    let panel_sums = take(4 * rows * of_row);
    let widened = take(needs.widened);
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
        panels,
        panel_sums,
        end: whole_lines(end),
    }
}
