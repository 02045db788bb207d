//! A convolution as a product: of the windows of an image and of the weights. The depth goes through the
//! channels and the taps of a window; no copy of the image holds them, because tiles gather their windows.
//!
//! If channels are the last dim, windows are the rows of the left operand, whose elements are neighbours for
//! all channels of a tap. Otherwise windows are the columns of the right operand, because neighbours along a
//! row of the image are neighbours along a row of the result.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::method::Method;
use super::operands::{OperandSide, ProductOperands, is_kept, keeps_panels};
use super::phase::Phases;
use crate::compile::dequantized::dequantized;
use crate::compile::elementwise::{Anchor, DriverSpace, FoldedAxes, NestBox};
use crate::compile::integers::{
    IntegerRoles, IntegerScaling, PlacedIntegerOperands, PlacedIntegers, integers_of,
};
use crate::compile::machine::Machine;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, width_of};
use crate::error::{CompileFault, Result};
use crate::graph::windows::{WeightsAxes, WindowDim, Windows as Geometry, windows};
use crate::kernels::Width;
use crate::kernels::gemm::Form;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS, WindowAxis};
use crate::plan::{Base, LoopNest, ValueId, WindowOperand};
use crate::types::fallback::{FallbackReason as R, FastForm};
use crate::types::shape::Dims;

/// Adds the phases of one convolution, and of its epilogue.
pub(super) fn add(plan: &mut PlanBuilder<'_>, index: usize, machine: Machine) -> Result<()> {
    let anchor = &plan.group().anchors[index];
    let value = anchor.outputs[0];
    let dims = &plan.group().values[value].dims;
    if dims.contains(&0) {
        let roots = plan.epilogue_roots(index, &[value], None);
        roots.into_iter().for_each(|root| drop(plan.result(root)));
        return Ok(());
    }
    let refuse = |plan: &PlanBuilder<'_>, why: &str| {
        plan.refuse(CompileFault::Unsupported(format!("no kernel runs Convolution: {why}")))
    };
    let of_inputs: SmallVec<[&[i64]; 3]> =
        anchor.inputs.iter().map(|&input| &plan.group().values[input].dims[..]).collect();
    let geometry = windows(plan.op(anchor.op), &of_inputs)?;
    let geometry = geometry.filter(|geometry| geometry.dims.len() < MAX_WINDOW_DIMS);
    let geometry = geometry.and_then(|geometry| Some((geometry.weights?, geometry)));
    let (axes, geometry) = geometry.ok_or_else(|| refuse(plan, "it has more than three spatial dims"))?;
    let Some((space, roots)) = ConvolutionSpace::find(plan, &geometry, index) else {
        return Err(refuse(plan, "it has too many dims"));
    };
    // Without a root, other ops use the shape of the product alone.
    if roots.is_empty() {
        return Ok(());
    }
    let operands = operands(plan, anchor, (&geometry, axes), &space, machine)?;
    let bias = match anchor.inputs.get(2) {
        Some(&bias) => Some(space.of_channels(&plan.operand(bias)?)),
        None => None,
    };
    let (nest, to) = destination(plan, &operands, &space, value, &roots)?
        .ok_or_else(|| refuse(plan, "no strides lead to the result"))?;
    let integers = operands.integers.as_ref().map(|scaling| PlacedIntegers::new(plan, scaling));
    Phases { operands: &operands, integers: integers.as_ref(), machine }.push(plan, nest, bias.as_ref(), &to)
}

/// True if each channel of the image gives one of the result.
fn is_depthwise(geometry: &Geometry) -> bool {
    let &Geometry { groups, image_channels, window_channels, .. } = geometry;
    groups > 1 && image_channels == groups && window_channels == groups
}

/// True if windows are rows of the product. The format says so, because the order of additions depends on it;
/// that of channels on their own does not, so the memory of the image does.
fn has_rows(plan: &PlanBuilder<'_>, geometry: &Geometry, image: ValueId) -> bool {
    if !is_depthwise(geometry) {
        return geometry.data.channels > geometry.data.spatial;
    }
    let view = plan.view(image).map(|(view, _)| view);
    view.unwrap_or_else(|| plan.place_or_dense(image)).strides[geometry.data.channels] == 1
}

/// No kernel convolves channels of integers on their own, which the plan says.
fn no_integers(plan: &mut PlanBuilder<'_>, anchor: &Anchor) -> Option<PlacedIntegerOperands> {
    let are_integers = [0, 1].map(|input| dequantized(plan.group(), anchor.inputs[input]).is_some());
    match are_integers {
        [true, true] => plan.taken(FastForm::IntegerProduct, anchor.op, Err(R::ElementType)),
        _ => None,
    }
}

/// The axes of the result: those of products of their own, then a group of channels, then rows and columns,
/// of which one goes through windows and the other through the channels of a group.
struct ConvolutionSpace {
    folded: FoldedAxes,
    extents: Dims,
    /// The first dim of the result that the axis of windows goes through.
    first: usize,
    /// True if windows are rows.
    has_rows: bool,
    /// Channels of a group; all channels if each is convolved on its own.
    in_group: i64,
    /// Each channel is convolved on its own.
    is_depthwise: bool,
}

impl ConvolutionSpace {
    /// The space whose axis of windows goes through as many dims as strides of all values allow, and the
    /// values that an epilogue writes.
    fn find(plan: &PlanBuilder<'_>, geometry: &Geometry, index: usize) -> Option<(Self, Vec<ValueId>)> {
        let value = plan.group().anchors[index].outputs[0];
        let dims = &plan.group().values[value].dims;
        let last = geometry.data.spatial + geometry.dims.len() - 1;
        let has_rows = has_rows(plan, geometry, plan.group().anchors[index].inputs[0]);
        let with_roots = |first: usize| {
            let space = Self::new(dims, geometry, first, has_rows)?;
            let roots = plan.epilogue_roots(index, &[value], Some(&space.folded));
            Some((space, roots))
        };
        let plain = with_roots(last)?;
        let batch = if geometry.data.spatial == 1 { 0 } else { geometry.data.spatial };
        let mut wider = [batch, geometry.data.spatial].into_iter().filter(|&first| first < last);
        wider.find_map(|first| with_roots(first).filter(|(_, roots)| *roots == plain.1)).or(Some(plain))
    }

    fn new(dims: &Dims, geometry: &Geometry, first: usize, has_rows: bool) -> Option<Self> {
        let end = geometry.data.spatial + geometry.dims.len();
        let is_last = geometry.data.channels == end;
        let mut runs: SmallVec<[Range<usize>; 6]> = (0..first).map(|dim| dim..dim + 1).collect();
        runs.push(first..end);
        runs.extend((end..dims.len()).map(|dim| dim..dim + 1));
        let channels = if is_last { runs.len() - 1 } else { geometry.data.channels };
        let is_depthwise = is_depthwise(geometry);
        let groups = if is_depthwise { 1 } else { geometry.groups };
        let in_group = geometry.window_channels / groups;
        let nest_box = NestBox::of_runs(dims, &runs).split(channels, in_group)?;
        let windows = if is_last { channels - 1 } else { runs.len() };
        let [rows, columns] = if has_rows { [windows, channels + 1] } else { [channels + 1, windows] };
        let is_outer = |&axis: &usize| ![channels, rows, columns].contains(&axis);
        let outer = (0..=runs.len()).filter(is_outer);
        let order: SmallVec<[usize; 8]> = outer.chain([channels, rows, columns]).collect();
        let nest_box = nest_box.in_order(&order);
        let extents = nest_box.extents();
        let folded = FoldedAxes { dims: dims.clone(), nest_box };
        Some(Self { folded, extents, first, has_rows, in_group, is_depthwise })
    }

    /// The axis of groups.
    fn groups(&self) -> usize {
        self.extents.len() - 3
    }

    /// The axis of the channels of a group.
    fn channels(&self) -> usize {
        self.extents.len() - if self.has_rows { 1 } else { 2 }
    }

    /// The axis of a dim of the result that the axis of windows does not go through, if it is none of
    /// channels.
    fn outer_axis(&self, dim: usize, geometry: &Geometry) -> Option<usize> {
        let before = usize::from(dim > geometry.data.channels);
        (dim < self.first).then(|| dim - before)
    }

    /// A tensor with a number for each channel of the result, over the axes.
    fn of_channels(&self, of: &PlacedTensor) -> PlacedTensor {
        let (mut dims, mut strides) =
            (Dims::from_elem(1, self.extents.len()), Dims::from_elem(0, self.extents.len()));
        let (group, channel) = (self.groups(), self.channels());
        (dims[group], dims[channel]) = (self.extents[group], self.extents[channel]);
        strides[channel] = of.strides[0];
        strides[group] = of.strides[0] * self.in_group;
        PlacedTensor { dims, strides, ..of.clone() }
    }
}

/// The place of the result, and the loops around its tiles: the value itself, or the slot of an epilogue that
/// writes the roots. `None` if no strides lead to the value.
fn destination(
    plan: &mut PlanBuilder<'_>,
    operands: &ProductOperands,
    space: &ConvolutionSpace,
    value: ValueId,
    roots: &[ValueId],
) -> Result<Option<(LoopNest, PlacedTensor)>> {
    let ProductOperands { shape, method: Method { tile, .. }, .. } = operands;
    let dims = space.extents.clone();
    if *roots == [value] {
        let to = plan.result(value);
        let strides = space.folded.nest_box.view().strides(&to.dims, &to.strides, &dims);
        let Ok((_, strides)) = strides else { return Ok(None) };
        return Ok(Some((shape.empty_nest(*tile), PlacedTensor { dims, strides, ..to })));
    }
    let data_type = plan.group().values[value].data_type;
    let width = data_type.size().unwrap_or(1);
    let driver = DriverSpace {
        folded: Some(space.folded.clone()),
        ..DriverSpace::new(
            dims.clone(),
            [shape.row_axis, shape.column_axis],
            *tile,
            smallvec![((tile.columns * width) as isize, width as isize)],
        )
    };
    let nest = plan.epilogue(&driver, &[(value, 0)], roots)?;
    let strides = shape.driver_strides(dims.len(), tile.columns);
    Ok(Some((nest, PlacedTensor { base: Base::Driver(0), data_type, dims, strides })))
}

/// The operands of a convolution in memory, each with the bytes to its first element.
struct PlacedOperands {
    image: (PlacedTensor, isize),
    weights: WeightMatrices,
    integers: Option<IntegerScaling>,
    /// Each byte of an element beyond the image.
    fill: u8,
}

impl PlacedOperands {
    fn find(
        plan: &mut PlanBuilder<'_>,
        anchor: &Anchor,
        (geometry, axes): (&Geometry, WeightsAxes),
        space: &ConvolutionSpace,
    ) -> Result<Self> {
        let order = DepthOrder::new(geometry, axes, space.has_rows);
        let roles = IntegerRoles {
            channels: Some(axes.windows),
            depth: order.elements(&plan.group().values[anchor.inputs[1]].dims),
            weights_are_left: !space.has_rows,
        };
        let fits = |has_zero: bool, moved: Option<&PlacedTensor>| {
            R::ScaleRange.unless(has_zero)?;
            R::NoStrides.unless(moved.is_none_or(|weights| order.stride(weights).is_some()))
        };
        let found = match space.is_depthwise {
            true => no_integers(plan, anchor),
            false => integers_of(plan, anchor, Ok(roles), fits)?,
        };
        if let Some(found) = found {
            let [image, weights] = found.places;
            let weights = WeightMatrices::new(plan, Some(weights), found.sources[1], space, &order)?;
            let groups = Some((space.groups(), space.in_group as usize));
            let integers = Some(IntegerScaling { groups, ..found.scaling });
            return Ok(Self { image, weights, integers, fill: found.zero });
        }
        let image = plan.operand_view(anchor.inputs[0])?;
        let view = plan.view(anchor.inputs[1]);
        let weights = WeightMatrices::new(plan, view, anchor.inputs[1], space, &order)?;
        Ok(Self { image, weights, integers: None, fill: 0 })
    }
}

/// Both operands, and the method that multiplies them.
fn operands(
    plan: &mut PlanBuilder<'_>,
    anchor: &Anchor,
    (geometry, axes): (&Geometry, WeightsAxes),
    space: &ConvolutionSpace,
    machine: Machine,
) -> Result<ProductOperands> {
    let PlacedOperands { image, weights, integers, fill } =
        PlacedOperands::find(plan, anchor, (geometry, axes), space)?;
    let is_kept = match integers {
        Some(_) => is_kept(plan, &weights.tensor, machine),
        None => keeps_panels(plan, anchor.inputs[1], machine),
    };
    let (windows, of_image) = image_windows(&image.0, geometry, space, weights.channels_inside, machine);
    let windows = WindowOperand { windows: ImageWindows { fill, ..windows.windows }, ..windows };
    let of_channel = weights.channel_stride as isize * width_of(&weights.tensor);
    let of_depth = weights.depth_stride as isize * width_of(&weights.tensor);
    let mut of_weights = AxisStrides::from_elem(0, space.extents.len());
    of_weights[space.groups()] = of_channel * space.in_group as isize;
    let depth = weights.tensor.dims[1 + usize::from(!space.has_rows)];
    let rank = space.extents.len();
    let mut shape = ProductShape {
        dims: space.extents.clone(),
        rows: space.extents[rank - 2] as usize,
        columns: space.extents[rank - 1] as usize,
        depth: depth as usize,
        row_axis: Some(rank - 2),
        column_axis: Some(rank - 1),
        outer: (0..rank - 2).collect(),
        left: of_image,
        right: of_weights,
        left_depth: 0,
        right_depth: of_depth,
        right_column: of_channel,
    };
    let (mut left, mut right) = (image, (weights.tensor, weights.offset));
    if !space.has_rows {
        std::mem::swap(&mut left, &mut right);
        std::mem::swap(&mut shape.left, &mut shape.right);
        shape.left[rank - 2] = of_channel;
        (shape.left_depth, shape.right_depth, shape.right_column) = (of_depth, 0, 0);
    }
    let right_type = plan.op(anchor.op).inputs()[1].data_type();
    let form = match integers {
        Some(_) => Form::integers(machine.level, machine.features, shape.rows),
        None => Form::packed(right_type, machine.level, machine.features),
    };
    let method = match space.is_depthwise {
        true => Method::of_channels(&shape, space.has_rows, machine),
        false => Method::of_windows(&shape, form, space.has_rows, is_kept, machine),
    };
    let windows = Some((if space.has_rows { OperandSide::Left } else { OperandSide::Right }, windows));
    Ok(ProductOperands { left, right, shape, method, windows, integers, dequantized: None })
}

/// How the depth goes through the dims of the weights.
///
/// The order is that of the weights, unless windows are rows, which want the channels inside. It is settled
/// by attributes alone: strides decide nothing about the order of additions.
struct DepthOrder {
    /// The dims, the outermost first.
    axes: SmallVec<[usize; 6]>,
    /// The dim of the channels of the result.
    channels: usize,
    /// The depth goes through all channels of a tap before it goes to the next tap.
    channels_inside: bool,
    /// The weights are the right operand.
    weights_are_right: bool,
}

impl DepthOrder {
    fn new(geometry: &Geometry, axes: WeightsAxes, has_rows: bool) -> Self {
        let taps = axes.spatial..axes.spatial + geometry.dims.len();
        let channels_inside = has_rows || axes.spatial < axes.image;
        let of_depth: SmallVec<[usize; 6]> = match channels_inside {
            true => taps.chain([axes.image]).collect(),
            false => [axes.image].into_iter().chain(taps).collect(),
        };
        Self { axes: of_depth, channels: axes.windows, channels_inside, weights_are_right: has_rows }
    }

    fn elements(&self, dims: &[i64]) -> i64 {
        self.axes.iter().map(|&axis| dims[axis]).product()
    }

    /// The stride along the depth; `None` if there is not one.
    fn stride(&self, of: &PlacedTensor) -> Option<i64> {
        let mut several = self.axes.iter().copied().filter(|&axis| of.dims[axis] != 1).rev();
        let Some(innermost) = several.next() else { return Some(1) };
        let stride = of.strides[innermost];
        let mut next = stride.checked_mul(of.dims[innermost])?;
        for axis in several {
            if of.strides[axis] != next {
                return None;
            }
            next = next.checked_mul(of.dims[axis])?;
        }
        Some(stride)
    }

    /// All dims of the weights in the order in which kernels like to read them.
    fn of_copy(&self) -> SmallVec<[usize; 6]> {
        let depth = self.axes.iter().copied();
        match self.weights_are_right {
            true => depth.chain([self.channels]).collect(),
            false => [self.channels].into_iter().chain(depth).collect(),
        }
    }
}

/// The weights of all groups as matrices.
struct WeightMatrices {
    /// The dims are groups, depth and channels of a group, or groups, channels of a group and depth.
    tensor: PlacedTensor,
    /// Bytes to the first element.
    offset: isize,
    /// The depth goes through all channels of a tap before it goes to the next tap.
    channels_inside: bool,
    channel_stride: i64,
    depth_stride: i64,
}

impl WeightMatrices {
    /// From a place of the weights, if the depth has a stride there, or else from a copy of the value.
    fn new(
        plan: &mut PlanBuilder<'_>,
        place: Option<(PlacedTensor, isize)>,
        value: ValueId,
        space: &ConvolutionSpace,
        order: &DepthOrder,
    ) -> Result<Self> {
        let found = place.and_then(|(tensor, offset)| Some((order.stride(&tensor)?, tensor, offset)));
        let (depth_stride, tensor, offset) = match found {
            Some(found) => found,
            None => {
                let tensor = copied(plan, value, &order.of_copy())?;
                (
                    if order.weights_are_right { space.extents[space.groups()] * space.in_group } else { 1 },
                    tensor,
                    0,
                )
            }
        };
        let channel_stride = tensor.strides[order.channels];
        let ConvolutionSpace { in_group, .. } = *space;
        let mut matrix = [(order.elements(&tensor.dims), depth_stride), (in_group, channel_stride)];
        if !order.weights_are_right {
            matrix.reverse();
        }
        let group = (space.extents[space.groups()], channel_stride * in_group);
        let (dims, strides) = [group].into_iter().chain(matrix).unzip();
        let tensor = PlacedTensor { dims, strides, ..tensor };
        let channels_inside = order.channels_inside;
        Ok(Self { tensor, offset, channels_inside, channel_stride, depth_stride })
    }
}

/// A dense copy of a value in an internal buffer, with its dims in an order, the outermost one first.
fn copied(plan: &mut PlanBuilder<'_>, value: ValueId, order: &[usize]) -> Result<PlacedTensor> {
    let (group, copy) = plan.group().with_copy(value);
    let unsupported = || CompileFault::Unsupported("no kernel copies the weights of a Convolution".into());
    let places = plan.write_in(&group, [copy], order);
    let [place] = places.ok_or_else(|| plan.refuse(unsupported()))?;
    Ok(place)
}

/// The windows of the image, and the strides of the image along the axes.
fn image_windows(
    image: &PlacedTensor,
    geometry: &Geometry,
    space: &ConvolutionSpace,
    channels_inside: bool,
    machine: Machine,
) -> (WindowOperand, AxisStrides) {
    let bytes = |axis: usize| image.strides[axis] as isize * width_of(image);
    let channels = geometry.image_channels / geometry.groups;
    let channel_step = bytes(geometry.data.channels);
    let mut strides = AxisStrides::from_elem(0, space.extents.len());
    strides[space.groups()] = channel_step * channels as isize;
    if space.is_depthwise {
        strides[space.channels()] = channel_step;
    }
    let mut axes = [WindowAxis::ONE; MAX_WINDOW_DIMS];
    let mut loops = [None; MAX_WINDOW_DIMS];
    let before = MAX_WINDOW_DIMS - geometry.dims.len();
    match space.outer_axis(0, geometry) {
        Some(batch) => strides[batch] = bytes(0),
        None => {
            let images = geometry.batch as usize;
            axes[before - 1] =
                WindowAxis { windows: images, image: images, step: bytes(0), ..WindowAxis::ONE };
        }
    }
    for (index, of) in geometry.dims.iter().enumerate() {
        let &WindowDim { image, windows, kernel, dilation, stride, pad_begin, .. } = of;
        let dim = geometry.data.spatial + index;
        let outer = space.outer_axis(dim, geometry);
        loops[before + index] = outer;
        axes[before + index] = WindowAxis {
            windows: if outer.is_some() { 1 } else { windows as usize },
            taps: kernel as usize,
            image: image as usize,
            stride: stride as usize,
            dilation: dilation as usize,
            start: -pad_begin as isize,
            step: bytes(dim),
        };
    }
    let windows = ImageWindows {
        axes,
        channels: channels as usize,
        channel_step,
        channels_inside,
        width: Width::of(width_of(image) as usize).unwrap_or(Width::W4),
        fill: 0,
    };
    (WindowOperand { level: machine.level, windows, loops }, strides)
}
