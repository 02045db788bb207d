//! A convolution as a product: of the windows of an image and of the weights. The depth goes through the
//! channels and the taps of a window; no copy of the image holds them, because tiles gather their windows.
//!
//! Windows are the rows of the left operand, whose elements are neighbours for all channels of a tap. An
//! image whose channels lie apart is copied, and tiles of its result are transposed: both take far less time
//! than the product gains by long runs of neighbours (decision: channels-together). If windows have one
//! element and need no copy, the image is the right operand as it is. Channels on their own, and few
//! channels, gain more by long runs of windows: tiles copy what they see of an image to planes
//! (decision: planes).
//!
//! A transposed convolution is a product for each remainder that places have by the stride. The gradient of
//! weights is a product whose depth goes through the windows.

mod channel_gradient;
mod data;
mod destination;
mod gradient;
mod space;
mod weights;
mod window_sum;

use smallvec::SmallVec;

use self::data::{data_order, merged_stride, placed_data};
use self::destination::{Destination, are_apart, refused};
use self::space::ConvolutionSpace;
use self::weights::{DepthOrder, WeightMatrices, taps_of};
use self::window_sum::{SumDim, WindowSum};
use super::method::Method;
use super::operands::{OperandSide, ProductOperands, is_kept, keeps_panels};
use super::phase::Phases;
use crate::compile::dequantized::dequantized;
use crate::compile::elementwise::{Anchor, FoldedAxes};
use crate::compile::integers::{IntegerRoles, IntegerScaling, PlacedIntegers, integers_of, reduced_integers};
use crate::compile::machine::Machine;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, width_of};
use crate::error::Result;
use crate::graph::windows::{WeightsAxes, WindowPort, Windows as Geometry, result_shape, roles, windows};
use crate::kernels::Width;
use crate::kernels::gemm::Form;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS, WindowAxis};
use crate::plan::{ValueId, WindowOperand};
use crate::types::dtype::DataType;
use crate::types::fallback::FallbackReason as R;

/// Most products whose tiles run an epilogue; of more, the result goes to memory first.
const MAX_FUSED: usize = 64;

/// Fewest windows of one element that are columns of a product for each image: fewer leave panels half empty,
/// and are worth a copy (decision: channels-together).
const MIN_COLUMNS: i64 = 100;

/// Adds the phases of one convolution, forward or backward, and of its epilogue.
pub(super) fn add(plan: &mut PlanBuilder<'_>, index: usize, machine: Machine) -> Result<()> {
    let anchor = &plan.group().anchors[index];
    let value = anchor.outputs[0];
    if plan.group().values[value].dims.contains(&0) {
        let roots = plan.epilogue_roots(index, &[value], None);
        roots.into_iter().for_each(|root| drop(plan.result(root)));
        return Ok(());
    }
    let op = plan.op(anchor.op);
    let of_inputs: SmallVec<[&[i64]; 3]> =
        anchor.inputs.iter().map(|&input| &plan.group().values[input].dims[..]).collect();
    let geometry = windows(op, &of_inputs)?.filter(|geometry| geometry.dims.len() < MAX_WINDOW_DIMS);
    let geometry = geometry.and_then(|geometry| Some((geometry.weights?, geometry))).zip(roles(op));
    let ((axes, geometry), roles) =
        geometry.ok_or_else(|| refused(plan, index, "it has more than three spatial dims"))?;
    match (roles.windows, roles.weights) {
        (_, Some(WindowPort::Result)) => gradient::add(plan, index, (&geometry, axes, &roles), machine),
        (WindowPort::Result, _) => {
            let of_data = WindowSum::of_windows(&geometry, axes);
            add_sums(plan, index, (&geometry, axes), &[of_data], machine)
        }
        _ => {
            let sums = WindowSum::of_image(&geometry, axes);
            let sums = sums.ok_or_else(|| refused(plan, index, "its strides make too many products"))?;
            add_sums(plan, index, (&geometry, axes), &sums, machine)
        }
    }
}

/// Adds the phases of sums, each of its own elements of the result, and of their epilogue.
fn add_sums(
    plan: &mut PlanBuilder<'_>,
    index: usize,
    (geometry, axes): (&Geometry, WeightsAxes),
    sums: &[WindowSum],
    machine: Machine,
) -> Result<()> {
    let anchor = &plan.group().anchors[index];
    let value = anchor.outputs[0];
    let has_rows = has_rows(plan, sums, index, machine);
    let channels = sums[0].data.channels;
    let spaces: Option<Vec<_>> =
        sums.iter().map(|sum| ConvolutionSpace::find(plan, sum, index, has_rows)).collect();
    let spaces = spaces.ok_or_else(|| refused(plan, index, "it has too many dims"))?;
    let mut roots = spaces[0].1.clone();
    // Without a root, other ops use the shape of the product alone.
    if spaces.iter().all(|(_, roots)| roots.is_empty()) {
        return Ok(());
    }
    let is_alike = spaces.iter().all(|(_, of_sum)| *of_sum == roots);
    if !is_alike || spaces.len() > MAX_FUSED {
        roots = vec![value];
    }
    let are_apart = are_apart(plan, &roots, channels);
    let placed = PlacedOperands::find(plan, anchor, sums, (geometry, axes), has_rows)?;
    let mut operands = Vec::new();
    for (sum, (space, _)) in sums.iter().zip(&spaces) {
        operands.push(placed.product(plan, anchor, (sum, space), are_apart, machine)?);
    }
    // The third input of a gradient is a shape.
    let bias = anchor.inputs.get(2).filter(|_| result_shape(plan.op(anchor.op)).is_none());
    let bias = bias.map(|&bias| plan.operand(bias)).transpose()?;
    let spaces: Vec<&ConvolutionSpace> = spaces.iter().map(|(space, _)| space).collect();
    let folded: Vec<&FoldedAxes> = spaces.iter().map(|space| &space.folded).collect();
    let places =
        Destination::of_all(plan, &operands, &folded, (value, &roots), has_rows.then_some(channels))?;
    let places = places.ok_or_else(|| refused(plan, index, "no strides lead to the result"))?;
    let products = operands.iter().zip(&spaces).zip(places);
    for ((operands, space), Destination { nest, to, offset, is_transposed }) in products {
        let integers = operands.integers.as_ref().map(|scaling| PlacedIntegers::new(plan, scaling));
        let bias = bias.as_ref().map(|bias| space.of_channels(bias));
        let phases = Phases { operands, integers: integers.as_ref(), machine, is_transposed };
        phases.push(plan, nest, bias.as_ref(), (&to, offset))?;
    }
    Ok(())
}

/// True if windows are rows of the product. They are columns if channels lie apart in source and result and
/// few of them are summed up in planes, or if they have one element, which changes no order of additions. The
/// order in planes is another one: so their own layouts decide, not those of what is fused to them.
fn has_rows(plan: &PlanBuilder<'_>, sums: &[WindowSum], index: usize, machine: Machine) -> bool {
    let anchor = &plan.group().anchors[index];
    let data = sums[0].data;
    let is_product = |sum: &WindowSum| {
        let places = sum.dims.iter().fold(1i64, |places, dim| places.saturating_mul(dim.count));
        !sum.is_direct() && sum.is_of_elements() && places >= MIN_COLUMNS
    };
    if sums.iter().all(is_product) {
        return are_neighbours(&plan.view_or_dense(anchor.inputs[0]), data.channels);
    }
    let is_in_f32 = is_in_f32(plan, anchor, machine);
    let is_of_planes = |sum: &WindowSum| sum.is_of_planes() && (is_in_f32 || sum.is_depthwise());
    let are_of_planes = sums.iter().all(|sum| is_of_planes(sum) || sum.is_of_elements());
    if !are_of_planes || !sums.iter().any(is_of_planes) {
        return true;
    }
    let source = plan.place_or_dense(anchor.inputs[0]);
    !are_neighbours(&source, sums[0].last_dim()) || !are_apart(plan, &anchor.outputs, data.channels)
}

/// True if the elements of a tensor along a dim lie next to each other.
fn are_neighbours(of: &PlacedTensor, dim: usize) -> bool {
    of.strides[dim] == 1 || of.dims[dim] <= 1
}

/// True if products multiply and add numbers of f32, not pairs of bf16 or integers, of which instructions
/// take several at once.
fn is_in_f32(plan: &PlanBuilder<'_>, anchor: &Anchor, machine: Machine) -> bool {
    let operands = &anchor.inputs[..2];
    Form::packed(plan.op(anchor.op).inputs()[1].data_type(), machine.level, machine.features) == Form::F32
        && !operands.iter().all(|&input| dequantized(plan.group(), input).is_some())
}

/// The integers of a source of windows, or a copy in which the channels of a place are neighbours, if windows
/// are rows and the integers are a value as it is stored; others are gathered one by one.
fn with_neighbours(
    plan: &mut PlanBuilder<'_>,
    (source, offset): (PlacedTensor, isize),
    value: ValueId,
    (sum, has_rows): (&WindowSum, bool),
) -> Result<(PlacedTensor, isize)> {
    let stored = plan.view(value);
    let is_value =
        stored.is_some_and(|(of, at)| of.dims == source.dims && of.strides == source.strides && at == offset);
    if !has_rows || !is_value || are_neighbours(&source, sum.data.channels) {
        return Ok((source, offset));
    }
    placed_data(plan, value, None, &data_order(sum.data, sum.dims.len()), |_| false)
}

/// The operands of a convolution in memory.
struct PlacedOperands {
    /// The source of windows, with the bytes to its first element.
    source: (PlacedTensor, isize),
    /// The place of the weights, if strides lead to them, and the value that holds them.
    weights: (Option<(PlacedTensor, isize)>, ValueId),
    integers: Option<IntegerScaling>,
    /// Each byte of an element beyond the source.
    fill: u8,
    has_rows: bool,
}

impl PlacedOperands {
    fn find(
        plan: &mut PlanBuilder<'_>,
        anchor: &Anchor,
        sums: &[WindowSum],
        (geometry, axes): (&Geometry, WeightsAxes),
        has_rows: bool,
    ) -> Result<Self> {
        let sum = &sums[0];
        let order = DepthOrder::new(sum, has_rows);
        let kernel = geometry.dims.iter().fold(1i64, |count, dim| count.saturating_mul(dim.kernel));
        let roles = IntegerRoles {
            channels: Some(if sum.gives_windows() { axes.windows } else { axes.image }),
            depth: kernel.saturating_mul(sum.source_channels),
            weights_are_left: !has_rows,
        };
        let fits = |has_zero: bool, moved: Option<&PlacedTensor>| {
            R::ScaleRange.unless(has_zero)?;
            let has_stride = |weights: &PlacedTensor| {
                sums.iter().all(|sum| order.stride(&taps_of(weights, 0, sum).0).is_some())
            };
            R::NoStrides.unless(moved.is_none_or(has_stride))
        };
        if !sum.is_direct()
            && let Some(found) = integers_of(plan, anchor, Ok(roles), fits)?
        {
            let [source, weights] = found.places;
            let source = with_neighbours(plan, source, found.sources[0], (sum, has_rows))?;
            let weights = (Some(weights), found.sources[1]);
            let (integers, fill) = (Some(found.scaling), found.zero);
            return Ok(Self { source, weights, integers, fill, has_rows });
        }
        // Kernels that sum up side by side read integers as numbers.
        let reduced = match sum.is_direct() {
            true => reduced_integers(plan, anchor, &roles),
            false => None,
        };
        let (values, integers) = match reduced {
            Some((values, scaling)) => (values, Some(scaling)),
            None => ([anchor.inputs[0], anchor.inputs[1]], None),
        };
        let source = match has_rows {
            true => {
                let (order, channels) = (data_order(sum.data, sum.dims.len()), sum.data.channels);
                // Kernels read groups of channels as f32.
                let data_type = (sum.has_few_channels || integers.is_some()).then_some(DataType::F32);
                placed_data(plan, values[0], data_type, &order, |of| are_neighbours(of, channels))?
            }
            false if sums.iter().any(WindowSum::is_of_planes) => {
                let last = sum.last_dim();
                let order: SmallVec<[usize; 6]> = (0..=last.max(sum.data.channels)).collect();
                let data_type = integers.is_some().then_some(DataType::F32);
                placed_data(plan, values[0], data_type, &order, |of| are_neighbours(of, last))?
            }
            false => plan.operand_view(values[0])?,
        };
        let weights = (plan.view(values[1]).filter(|_| integers.is_none()), values[1]);
        Ok(Self { source, weights, integers, fill: 0, has_rows })
    }

    /// Both operands of a sum, and the method that multiplies them; `are_apart` if the channels of the result
    /// are no neighbours.
    fn product(
        &self,
        plan: &mut PlanBuilder<'_>,
        anchor: &Anchor,
        (sum, space): (&WindowSum, &ConvolutionSpace),
        are_apart: bool,
        machine: Machine,
    ) -> Result<ProductOperands> {
        let order = DepthOrder::new(sum, self.has_rows);
        let (place, value) = &self.weights;
        let is_kept = match (&self.integers, place) {
            (Some(_), Some((tensor, _))) => is_kept(plan, tensor, machine),
            _ => keeps_panels(plan, anchor.inputs[1], machine),
        };
        let weights = WeightMatrices::new(plan, place.as_ref(), *value, (sum, space), (&order, is_kept))?;
        let side = if space.has_rows { OperandSide::Left } else { OperandSide::Right };
        let (windows, of_source) = match self.matrix(sum, space) {
            Some(of_source) => (None, of_source),
            None => {
                let (mut windows, of_source) = self.windows(sum, space, machine);
                windows.windows.channels_inside = order.channels_inside;
                (Some((side, windows)), of_source)
            }
        };
        let bytes = |stride: i64| stride as isize * width_of(&weights.tensor);
        let (of_channel, of_depth) = (bytes(weights.channel_stride), bytes(weights.depth_stride));
        let mut of_weights = AxisStrides::from_elem(0, space.extents.len());
        of_weights[space.groups()] = bytes(weights.group_stride);
        let rank = space.extents.len();
        let (window, source_depth) = match windows {
            Some(_) => (0, 0),
            None => (of_source[space.windows()], self.bytes(sum.data.channels)),
        };
        let mut shape = ProductShape {
            dims: space.extents.clone(),
            rows: space.extents[rank - 2] as usize,
            columns: space.extents[rank - 1] as usize,
            depth: sum.depth() as usize,
            row_axis: Some(rank - 2),
            column_axis: Some(rank - 1),
            outer: (0..rank - 2).collect(),
            left: of_source,
            right: of_weights,
            left_depth: source_depth,
            right_depth: of_depth,
            right_column: of_channel,
        };
        let (mut left, mut right) = (self.source.clone(), (weights.tensor, weights.offset));
        if !space.has_rows {
            std::mem::swap(&mut left, &mut right);
            std::mem::swap(&mut shape.left, &mut shape.right);
            shape.left[rank - 2] = of_channel;
            std::mem::swap(&mut shape.left_depth, &mut shape.right_depth);
            shape.right_column = window;
        }
        let form = match self.integers {
            Some(_) => Form::integers(machine.level, machine.features, shape.rows),
            None => Form::packed(plan.op(anchor.op).inputs()[1].data_type(), machine.level, machine.features),
        };
        let method = match (sum.is_direct(), space.has_rows) {
            (_, false) if sum.is_of_planes() => {
                Method::of_planes(&shape, sum.row_and_channels(), sum.is_depthwise(), machine)
            }
            (true, _) => {
                let group = sum.source_channels as usize;
                Method::of_channels(&shape, group, group, are_apart, machine)
            }
            (false, true) => Method::of_windows(&shape, form, true, is_kept, machine),
            (false, false) => {
                let is_matrix = windows.is_none() && form != Form::F32;
                let method = Method::of_windows(&shape, form, is_matrix, false, machine);
                let method = method.copying_left(&shape, &left.0);
                if windows.is_none() { method.reading_elements(&shape, &right.0) } else { method }
            }
        };
        // Channels of an image have the same scales in all groups.
        let groups = sum.gives_windows().then_some((space.groups(), space.in_group as usize));
        let integers = self.integers.clone().map(|scaling| IntegerScaling { groups, ..scaling });
        Ok(ProductOperands { left, right, shape, method, windows, integers, dequantized: None })
    }

    /// Bytes from one element of the source to the next along a dim.
    fn bytes(&self, dim: usize) -> isize {
        self.source.0.strides[dim] as isize * width_of(&self.source.0)
    }

    /// The strides of the source along the axes, if each window is an element of it and the windows are the
    /// rows or columns of a matrix in memory.
    fn matrix(&self, sum: &WindowSum, space: &ConvolutionSpace) -> Option<AxisStrides> {
        if sum.is_direct() || !sum.is_of_elements() {
            return None;
        }
        let spatial = sum.data.spatial..sum.data.spatial + sum.dims.len();
        let mut of_windows = self.source.0.clone();
        for (dim, of) in spatial.clone().zip(&sum.dims) {
            of_windows.dims[dim] = of.count;
        }
        let mut strides = AxisStrides::from_elem(0, space.extents.len());
        let mut merged: SmallVec<[usize; 4]> = SmallVec::new();
        for dim in [0].into_iter().chain(spatial) {
            match space.outer_axis(dim, sum.data.channels) {
                Some(axis) => strides[axis] = self.bytes(dim),
                None => merged.push(dim),
            }
        }
        strides[space.groups()] = self.bytes(sum.data.channels) * sum.source_channels as isize;
        strides[space.windows()] = merged_stride(&of_windows, &merged)? as isize * width_of(&of_windows);
        Some(strides)
    }

    /// The windows of the source, and the strides of the source along the axes.
    fn windows(
        &self,
        sum: &WindowSum,
        space: &ConvolutionSpace,
        machine: Machine,
    ) -> (WindowOperand, AxisStrides) {
        let channel_step = self.bytes(sum.data.channels);
        let mut strides = AxisStrides::from_elem(0, space.extents.len());
        strides[space.groups()] = channel_step * sum.source_channels as isize;
        if sum.is_direct() {
            strides[space.channels()] = channel_step;
        }
        let mut axes = [WindowAxis::ONE; MAX_WINDOW_DIMS];
        let mut loops = [None; MAX_WINDOW_DIMS];
        let before = MAX_WINDOW_DIMS - sum.dims.len();
        match space.outer_axis(0, sum.data.channels) {
            Some(batch) => strides[batch] = self.bytes(0),
            None => {
                let images = sum.batch as usize;
                axes[before - 1] =
                    WindowAxis { windows: images, image: images, step: self.bytes(0), ..WindowAxis::ONE };
            }
        }
        for (index, of) in sum.dims.iter().enumerate() {
            let &SumDim { source, count, taps, dilation, stride, start, .. } = of;
            let dim = sum.data.spatial + index;
            let outer = space.outer_axis(dim, sum.data.channels);
            loops[before + index] = outer;
            axes[before + index] = WindowAxis {
                windows: if outer.is_some() { 1 } else { count as usize },
                taps: taps as usize,
                image: source as usize,
                stride: stride as usize,
                dilation: dilation as isize,
                start: start as isize,
                step: self.bytes(dim),
            };
        }
        let windows = ImageWindows {
            axes,
            channels: sum.source_channels as usize,
            channel_step,
            channels_inside: false,
            width: Width::of(width_of(&self.source.0) as usize).unwrap_or(Width::W4),
            fill: self.fill,
        };
        (WindowOperand { level: machine.level, windows, loops }, strides)
    }
}
