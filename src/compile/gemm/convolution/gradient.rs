//! The gradient of the weights of a convolution as a product: of the gradients of windows and of what the
//! windows see. The depth goes through all windows, one image after the other.
//!
//! Columns are elements of weights, for which tiles gather what windows see; rows are channels of windows.
//! Elements of a column that lie next to each other in the image belong to neighbouring channels, so images
//! whose channels lie apart are copied first.

use std::ops::Range;

use smallvec::SmallVec;

use super::channel_gradient::ChannelSpace;
use super::data::{data_order, merged_stride, placed_data};
use super::destination::{Destination, refused};
use super::window_sum::are_few_channels;
use crate::compile::elementwise::{FoldedAxes, NestBox};
use crate::compile::gemm::method::Method;
use crate::compile::gemm::operands::{OperandSide, ProductOperands};
use crate::compile::gemm::phase::Phases;
use crate::compile::machine::Machine;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, width_of};
use crate::error::Result;
use crate::graph::windows::{WeightsAxes, WindowPort, WindowRoles, Windows as Geometry};
use crate::kernels::Width;
use crate::kernels::gemm::Form;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS, WindowAxis};
use crate::plan::{ValueId, WindowOperand};
use crate::types::dtype::DataType;
use crate::types::kind::Level;
use crate::types::shape::Dims;

/// Fewest channels of a group that are columns by themselves, with a product for each element of the kernel,
/// if the elements of the kernel lie inside of the channels.
const MIN_COLUMNS: i64 = 8;

/// Fewest channels of a group that are worth a copy which brings them together.
const MIN_COPIED_CHANNELS: i64 = 4;

/// Adds the phase of the gradient of weights, and of its epilogue.
pub(super) fn add(
    plan: &mut PlanBuilder<'_>,
    index: usize,
    (geometry, axes, roles): (&Geometry, WeightsAxes, &WindowRoles),
    machine: Machine,
) -> Result<()> {
    let anchor = &plan.group().anchors[index];
    let value = anchor.outputs[0];
    let (WindowPort::Input(image), WindowPort::Input(windows)) = (roles.image, roles.windows) else {
        return Err(refused(plan, index, "its operands are results"));
    };
    let (image, windows) = (anchor.inputs[image], anchor.inputs[windows]);
    let right_type = plan.op(anchor.op).inputs()[1].data_type();
    // Without a root, other ops use the shape of the product alone.
    let (folded, roots, operands) = match is_by_channels(geometry) {
        true => {
            let Some((space, roots)) = ChannelSpace::find(plan, geometry, axes, index) else {
                return Err(refused(plan, index, "it has too many dims"));
            };
            if roots.is_empty() {
                return Ok(());
            }
            let operands = space.operands(plan, geometry, [image, windows], machine)?;
            (space.folded, roots, operands)
        }
        false => {
            let Some((space, roots)) = GradientSpace::find(plan, geometry, axes, value, index) else {
                return Err(refused(plan, index, "it has too many dims"));
            };
            if roots.is_empty() {
                return Ok(());
            }
            let operands = space.operands(plan, geometry, [image, windows], right_type, machine)?;
            (space.folded, roots, operands)
        }
    };
    let operands = [operands];
    let destinations = Destination::of_all(plan, &operands, &[&folded], (value, &roots), None)?;
    let mut destinations = destinations.unwrap_or_default();
    let (Some(Destination { nest, to, offset, is_transposed }), [operands]) = (destinations.pop(), &operands)
    else {
        return Err(refused(plan, index, "no strides lead to the result"));
    };
    Phases { operands, integers: None, machine, is_transposed }.push(plan, nest, None, (&to, offset))
}

/// True if each channel is convolved on its own, or groups of few channels side by side.
fn is_by_channels(geometry: &Geometry) -> bool {
    let &Geometry { groups, image_channels, window_channels, .. } = geometry;
    let is_depthwise = image_channels == groups && window_channels == groups;
    groups > 1 && (is_depthwise || are_few_channels(geometry))
}

/// The axes of the weights: elements of the kernel with products of their own, then groups, then the channels
/// of windows as rows, and as columns the channels of the image, with the elements of the kernel or without.
struct GradientSpace {
    folded: FoldedAxes,
    /// The number of axes of elements of the kernel, 0 if columns go through these.
    taps: usize,
    /// Columns go through the elements of the kernel for each channel.
    has_taps_inside: bool,
}

impl GradientSpace {
    /// The space, and the values that an epilogue writes.
    fn find(
        plan: &PlanBuilder<'_>,
        geometry: &Geometry,
        axes: WeightsAxes,
        value: ValueId,
        index: usize,
    ) -> Option<(Self, Vec<ValueId>)> {
        let dims = &plan.group().values[value].dims;
        let with_roots = |is_joined: bool| {
            let space = Self::new(dims, geometry, axes, is_joined)?;
            let roots = plan.epilogue_roots(index, &[value], Some(&space.folded));
            Some((space, roots))
        };
        let apart = with_roots(false)?;
        let has_taps_inside = axes.spatial > axes.image;
        if has_taps_inside && geometry.image_channels / geometry.groups >= MIN_COLUMNS {
            return Some(apart);
        }
        with_roots(true).filter(|(_, roots)| *roots == apart.1).or(Some(apart))
    }

    fn new(dims: &Dims, geometry: &Geometry, axes: WeightsAxes, is_joined: bool) -> Option<Self> {
        let spatial = geometry.dims.len();
        let first = axes.spatial.min(axes.image);
        let joined = first..first + spatial + 1;
        let runs: SmallVec<[Range<usize>; 5]> = match (is_joined, axes.windows < first) {
            (true, true) => [0..1, joined].into_iter().collect(),
            (true, false) => [joined, spatial + 1..spatial + 2].into_iter().collect(),
            (false, _) => (0..dims.len()).map(|dim| dim..dim + 1).collect(),
        };
        let windows = if axes.windows < first { 0 } else { runs.len() - 1 };
        let nest_box = NestBox::of_runs(dims, &runs);
        let nest_box = nest_box.split(windows, geometry.window_channels / geometry.groups)?;
        let split = |axis: usize| axis + usize::from(axis > windows);
        let columns = if is_joined { 1 - windows } else { axes.image };
        let taps = if is_joined { 0..0 } else { axes.spatial..axes.spatial + spatial };
        let outer = taps.clone().map(split);
        let order: SmallVec<[usize; 8]> = outer.chain([windows, windows + 1, split(columns)]).collect();
        let folded = FoldedAxes { dims: dims.clone(), nest_box: nest_box.in_order(&order) };
        Some(Self { folded, taps: taps.len(), has_taps_inside: is_joined && axes.spatial > axes.image })
    }

    /// The gradients of windows and what these see, and the method that multiplies them.
    fn operands(
        &self,
        plan: &mut PlanBuilder<'_>,
        geometry: &Geometry,
        [image, windows]: [ValueId; 2],
        right_type: DataType,
        machine: Machine,
    ) -> Result<ProductOperands> {
        let data = geometry.data;
        let order = data_order(data, geometry.dims.len());
        let of_depth = &order[..order.len() - 1];
        let left = placed_data(plan, windows, None, &order, |of| merged_stride(of, of_depth).is_some())?;
        let channels = geometry.image_channels / geometry.groups;
        let are_close = |of: &PlacedTensor| channels < MIN_COPIED_CHANNELS || of.strides[data.channels] == 1;
        let right = placed_data(plan, image, None, &order, are_close)?;
        let bytes = |of: &PlacedTensor, stride: i64| stride as isize * width_of(of);
        let extents = self.folded.nest_box.extents();
        let rank = extents.len();
        let [mut of_left, mut of_right] = [(); 2].map(|()| AxisStrides::from_elem(0, rank));
        let row = bytes(&left.0, left.0.strides[data.channels]);
        of_left[rank - 2] = row;
        of_left[rank - 3] = row * (geometry.window_channels / geometry.groups) as isize;
        of_right[rank - 3] = bytes(&right.0, right.0.strides[data.channels]) * channels as isize;
        let depth = geometry.dims.iter().fold(geometry.batch, |depth, dim| depth * dim.windows);
        let shape = ProductShape {
            rows: extents[rank - 2] as usize,
            columns: extents[rank - 1] as usize,
            depth: depth as usize,
            row_axis: Some(rank - 2),
            column_axis: Some(rank - 1),
            outer: (0..rank - 2).collect(),
            left: of_left,
            right: of_right,
            left_depth: bytes(&left.0, merged_stride(&left.0, of_depth).unwrap_or(1)),
            right_depth: 0,
            right_column: 0,
            dims: extents,
        };
        let form = Form::packed(right_type, machine.level, machine.features);
        let method = Method::of_windows(&shape, form, false, false, machine).copying_left(&shape, &left.0);
        let windows = Some((OperandSide::Right, self.windows(geometry, &right.0, machine.level)));
        Ok(ProductOperands { left, right, shape, method, windows, integers: None, dequantized: None })
    }

    /// The elements that windows see: a column for each element of the weights, and along the depth the
    /// windows, with the images in the place of channels.
    fn windows(&self, geometry: &Geometry, image: &PlacedTensor, level: Level) -> WindowOperand {
        let bytes = |axis: usize| image.strides[axis] as isize * width_of(image);
        let mut axes = [WindowAxis::ONE; MAX_WINDOW_DIMS];
        let mut loops = [None; MAX_WINDOW_DIMS];
        let channels = (geometry.image_channels / geometry.groups) as usize;
        let first = MAX_WINDOW_DIMS - geometry.dims.len() - usize::from(!self.has_taps_inside);
        let channel = if self.has_taps_inside { first - 1 } else { MAX_WINDOW_DIMS - 1 };
        axes[channel] = WindowAxis {
            windows: channels,
            image: channels,
            step: bytes(geometry.data.channels),
            ..WindowAxis::ONE
        };
        for (index, dim) in geometry.dims.iter().enumerate() {
            let outer = (index < self.taps).then_some(index);
            loops[first + index] = outer;
            axes[first + index] = WindowAxis {
                windows: if outer.is_some() { 1 } else { dim.kernel as usize },
                taps: dim.windows as usize,
                image: dim.image as usize,
                stride: dim.dilation as usize,
                dilation: dim.stride as isize,
                start: -dim.pad_begin as isize,
                step: bytes(geometry.data.spatial + index),
            };
        }
        let windows = ImageWindows {
            axes,
            channels: geometry.batch as usize,
            channel_step: bytes(0),
            channels_inside: false,
            width: Width::of(width_of(image) as usize).unwrap_or(Width::W4),
            fill: 0,
        };
        WindowOperand { level, windows, loops }
    }
}
