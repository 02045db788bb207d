//! The gradient of the weights of a convolution of each channel on its own, or of groups of a few: as such a
//! convolution, in which elements of the kernel and windows change places. Its weights are the gradients of
//! windows. Each channel of a group has a convolution of its own, which sees that channel.

use std::ops::Range;

use smallvec::SmallVec;

use super::data::{data_order, merged_stride, placed_data};
use crate::compile::elementwise::{FoldedAxes, NestBox};
use crate::compile::gemm::method::Method;
use crate::compile::gemm::operands::{OperandSide, ProductOperands};
use crate::compile::machine::Machine;
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::product_shape::{ProductShape, width_of};
use crate::error::Result;
use crate::graph::windows::{WeightsAxes, Windows as Geometry};
use crate::kernels::Width;
use crate::kernels::gemm::windows::{ImageWindows, MAX_WINDOW_DIMS, WindowAxis};
use crate::kernels::vector::LANES;
use crate::plan::{ValueId, WindowOperand};
use crate::types::dtype::DataType;
use crate::types::kind::Level;
use crate::types::shape::Dims;

/// Channels of groups whose elements are summed up for all elements of the kernel before others are: the
/// second level keeps them.
const GROUPED_COLUMNS: i64 = 64;

/// The axes of the weights: blocks of channels, elements of the kernel along outer dims, then rows, and as
/// columns the channels of a block. Rows go through the elements of the kernel along the last dim, or along
/// all, or through the channels of a group that a channel sees.
pub(super) struct ChannelSpace {
    pub(super) folded: FoldedAxes,
    rows: RowAxis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowAxis {
    LastDim,
    AllDims,
    SeenChannels,
}

impl ChannelSpace {
    /// The space, and the values that an epilogue writes; `None` if it has too many axes.
    pub(super) fn find(
        plan: &PlanBuilder<'_>,
        geometry: &Geometry,
        axes: WeightsAxes,
        index: usize,
    ) -> Option<(Self, Vec<ValueId>)> {
        let value = plan.group().anchors[index].outputs[0];
        let dims = &plan.group().values[value].dims;
        let with_roots = |rows: RowAxis| {
            let space = match rows {
                RowAxis::SeenChannels => Self::of_groups(dims, geometry, axes)?,
                _ => Self::new(dims, geometry, axes, rows),
            };
            let roots = plan.epilogue_roots(index, &[value], Some(&space.folded));
            Some((space, roots))
        };
        if geometry.image_channels > geometry.groups {
            return with_roots(RowAxis::SeenChannels);
        }
        let apart = with_roots(RowAxis::LastDim)?;
        with_roots(RowAxis::AllDims).filter(|joined| joined.1 == apart.1).or(Some(apart))
    }

    /// The space of groups of few channels; `None` if it has too many axes.
    fn of_groups(dims: &Dims, geometry: &Geometry, axes: WeightsAxes) -> Option<Self> {
        let in_block = (1..=GROUPED_COLUMNS / LANES as i64).map(|vectors| vectors * LANES as i64);
        let in_block = in_block.rev().find(|block| geometry.window_channels % block == 0)?;
        let runs: SmallVec<[Range<usize>; 5]> = (0..dims.len()).map(|dim| dim..dim + 1).collect();
        let nest_box = NestBox::of_runs(dims, &runs).split(axes.windows, in_block)?;
        let split = |axis: usize| axis + usize::from(axis > axes.windows);
        let kernel = (axes.spatial..axes.spatial + geometry.dims.len()).map(split);
        let rows_and_columns = [split(axes.image), axes.windows + 1];
        let order: SmallVec<[usize; 6]> =
            [axes.windows].into_iter().chain(kernel).chain(rows_and_columns).collect();
        let nest_box = nest_box.in_order(&order);
        Some(Self { folded: FoldedAxes { dims: dims.clone(), nest_box }, rows: RowAxis::SeenChannels })
    }

    fn new(dims: &Dims, geometry: &Geometry, axes: WeightsAxes, rows: RowAxis) -> Self {
        let spatial = axes.spatial..axes.spatial + geometry.dims.len();
        let one = |dim: usize| dim..dim + 1;
        let kernel: SmallVec<[Range<usize>; 3]> = match rows {
            RowAxis::AllDims => [spatial].into_iter().collect(),
            _ => spatial.map(one).collect(),
        };
        let channels = [one(axes.image), one(axes.windows)];
        let mut runs: SmallVec<[Range<usize>; 5]> = kernel.iter().chain(&channels).cloned().collect();
        runs.sort_unstable_by_key(|run| run.start);
        let ordered = [&channels[0]].into_iter().chain(&kernel).chain([&channels[1]]);
        let place = |run: &Range<usize>| runs.iter().position(|other| other == run).unwrap_or(0);
        let order: SmallVec<[usize; 5]> = ordered.map(place).collect();
        let nest_box = NestBox::of_runs(dims, &runs).in_order(&order);
        Self { folded: FoldedAxes { dims: dims.clone(), nest_box }, rows }
    }

    /// The elements that windows see, the gradients of windows, and the method that sums up their products.
    pub(super) fn operands(
        &self,
        plan: &mut PlanBuilder<'_>,
        geometry: &Geometry,
        [image, windows]: [ValueId; 2],
        machine: Machine,
    ) -> Result<ProductOperands> {
        let data = geometry.data;
        let order = data_order(data, geometry.dims.len());
        let of_depth = &order[..order.len() - 1];
        // Kernels read groups of channels as f32.
        let data_type = (self.rows == RowAxis::SeenChannels).then_some(DataType::F32);
        let left = placed_data(plan, image, data_type, &order, |of| of.strides[data.channels] == 1)?;
        // Kernels read them as they read weights: as rows of f32.
        let right = placed_data(plan, windows, Some(DataType::F32), &order, |of| {
            of.strides[data.channels] == 1 && merged_stride(of, of_depth).is_some()
        })?;
        let bytes = |of: &PlacedTensor, stride: i64| stride as isize * width_of(of);
        let extents = self.folded.nest_box.extents();
        let rank = extents.len();
        let mut of_left = AxisStrides::from_elem(0, rank);
        of_left[rank - 1] = bytes(&left.0, left.0.strides[data.channels]);
        let mut of_right = AxisStrides::from_elem(0, rank);
        let right_column = bytes(&right.0, right.0.strides[data.channels]);
        let in_block = extents[rank - 1] as isize;
        (of_left[0], of_right[0]) = (in_block * of_left[rank - 1], in_block * right_column);
        let channels = (geometry.image_channels / geometry.groups) as usize;
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
            left_depth: 0,
            right_depth: bytes(&right.0, merged_stride(&right.0, of_depth).unwrap_or(1)),
            right_column,
            dims: extents,
        };
        let method = Method::of_channels(&shape, channels, 1, false, machine);
        let windows = Some((OperandSide::Left, self.windows(geometry, &left.0, machine.level)));
        Ok(ProductOperands { left, right, shape, method, windows, integers: None, dequantized: None })
    }

    /// A window for each element of the kernel, whose taps are the windows of all images.
    fn windows(&self, geometry: &Geometry, image: &PlacedTensor, level: Level) -> WindowOperand {
        let bytes = |axis: usize| image.strides[axis] as isize * width_of(image);
        let mut axes = [WindowAxis::ONE; MAX_WINDOW_DIMS];
        let mut loops = [None; MAX_WINDOW_DIMS];
        let spatial = geometry.dims.len();
        let first = MAX_WINDOW_DIMS - spatial;
        let images = geometry.batch as usize;
        axes[first - 1] = WindowAxis { taps: images, image: images, step: bytes(0), ..WindowAxis::ONE };
        for (index, dim) in geometry.dims.iter().enumerate() {
            let is_outer = match self.rows {
                RowAxis::LastDim => index + 1 < spatial,
                RowAxis::AllDims => false,
                RowAxis::SeenChannels => true,
            };
            let outer = is_outer.then_some(1 + index);
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
            channels: 1,
            channel_step: bytes(geometry.data.channels),
            channels_inside: true,
            width: Width::of(width_of(image) as usize).unwrap_or(Width::W4),
            fill: 0,
        };
        WindowOperand { level, windows, loops }
    }
}
