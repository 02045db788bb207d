//! The weights of convolutions as matrices, one for each group.

use smallvec::SmallVec;

use super::data::{dense_copy, merged_stride};
use super::space::ConvolutionSpace;
use super::window_sum::{SplitAxes, WindowSum};
use crate::compile::elementwise::Moved;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::product_shape::width_of;
use crate::error::Result;
use crate::graph::infer::DimRange;
use crate::plan::ValueId;
use crate::types::dtype::DataType;
use crate::types::shape::Dims;

/// How the depth goes through the dims of the weights, whose channels of windows are divided into groups.
///
/// The order is that of the weights, unless windows are rows, which want the channels inside. It is settled
/// by attributes alone: strides decide nothing about the order of additions.
pub(super) struct DepthOrder {
    /// The dims, the outermost first.
    axes: SmallVec<[usize; 6]>,
    weights: SplitAxes,
    /// The depth goes through all channels of a tap before it goes to the next tap.
    pub(super) channels_inside: bool,
    /// The weights are the right operand.
    weights_are_right: bool,
    /// The channels of all groups are columns of one matrix.
    is_direct: bool,
}

impl DepthOrder {
    pub(super) fn new(sum: &WindowSum, has_rows: bool) -> Self {
        let axes = sum.weights;
        let taps = axes.spatial..axes.spatial + sum.dims.len();
        let channels_inside = has_rows || axes.spatial < axes.source;
        let of_depth: SmallVec<[usize; 6]> = match channels_inside {
            true => taps.chain([axes.source]).collect(),
            false => [axes.source].into_iter().chain(taps).collect(),
        };
        let is_direct = sum.is_direct();
        Self { axes: of_depth, weights: axes, channels_inside, weights_are_right: has_rows, is_direct }
    }

    /// The stride along the depth; `None` if there is not one.
    pub(super) fn stride(&self, of: &PlacedTensor) -> Option<i64> {
        merged_stride(of, &self.axes)
    }

    /// True if tiles would bring the depth of the weights together in each execution, element by element, or
    /// each time anew for constant ones: a copy takes less.
    fn wants_copy(&self, of: &PlacedTensor, is_kept: bool) -> bool {
        let is_left = !self.weights_are_right && !self.is_direct;
        is_left && (is_kept || of.data_type != DataType::F32) && self.stride(of) != Some(1)
    }

    /// True if the channels of all groups have one stride, or need none.
    fn is_one_matrix(&self, of: &PlacedTensor) -> bool {
        let SplitAxes { groups, result, .. } = self.weights;
        !self.is_direct || merged_stride(of, &[groups, result]).is_some()
    }

    /// All dims of the weights in the order of a copy: that of the kernels for channels on their own.
    /// Otherwise the depth is innermost, because a copy of each output channel stays in the caches, and
    /// panels are packed from it by transposition.
    fn of_copy(&self) -> SmallVec<[usize; 6]> {
        let (groups, depth) = ([self.weights.groups], self.axes.iter().copied());
        match self.is_direct {
            true => depth.chain(groups).chain([self.weights.result]).collect(),
            false => groups.into_iter().chain([self.weights.result]).chain(depth).collect(),
        }
    }
}

/// The weights of all groups as matrices.
pub(super) struct WeightMatrices {
    /// The dims are groups, depth and channels of a group, or groups, channels of a group and depth.
    pub(super) tensor: PlacedTensor,
    /// Bytes to the first element.
    pub(super) offset: isize,
    /// Strides from group to group, from channel to channel, and along the depth.
    pub(super) group_stride: i64,
    pub(super) channel_stride: i64,
    pub(super) depth_stride: i64,
}

impl WeightMatrices {
    /// From a place of the weights, if the depth has a stride there that serves, or else from a copy of the
    /// value; `is_kept` if a copy is made once for all executions.
    pub(super) fn new(
        plan: &mut PlanBuilder<'_>,
        place: Option<&(PlacedTensor, isize)>,
        value: ValueId,
        (sum, space): (&WindowSum, &ConvolutionSpace),
        (order, is_kept): (&DepthOrder, bool),
    ) -> Result<Self> {
        let serves = |of: &PlacedTensor| {
            order.stride(of).is_some() && order.is_one_matrix(of) && !order.wants_copy(of, is_kept)
        };
        let found = place.map(|(tensor, offset)| taps_of(tensor, *offset, sum));
        let found = found.filter(|(tensor, _)| serves(tensor));
        let (tensor, offset) = match found {
            Some(found) => found,
            None => (copied(plan, value, sum, order)?, 0),
        };
        let SplitAxes { groups, result, .. } = sum.weights;
        let (group_stride, channel_stride) = (tensor.strides[groups], tensor.strides[result]);
        let depth_stride = order.stride(&tensor).unwrap_or(1);
        // The channels of all groups are rows or columns of one matrix.
        let (group, channel_stride) = match sum.is_depthwise() {
            true => ((1, 0), group_stride),
            false if sum.is_direct() => ((1, 0), channel_stride),
            false => ((sum.groups, group_stride), channel_stride),
        };
        let mut matrix = [(sum.depth(), depth_stride), (space.in_group, channel_stride)];
        if !order.weights_are_right {
            matrix.reverse();
        }
        let (dims, strides) = [group].into_iter().chain(matrix).unzip();
        let tensor = PlacedTensor { dims, strides, ..tensor };
        Ok(Self { tensor, offset, group_stride: group.1, channel_stride, depth_stride })
    }
}

/// The taps of a sum in weights at a place, with the channels of windows divided into groups; and the bytes
/// to the first element.
pub(super) fn taps_of(of: &PlacedTensor, offset: isize, sum: &WindowSum) -> (PlacedTensor, isize) {
    let mut split = divided(of, sum);
    let mut offset = offset;
    for (axis, dim) in (sum.weights.spatial..).zip(&sum.dims) {
        split.dims[axis] = dim.taps;
        offset += (dim.first_tap * split.strides[axis]) as isize * width_of(of);
        split.strides[axis] *= dim.tap_step;
    }
    (split, offset)
}

/// Weights with the channels of windows divided into groups.
fn divided(of: &PlacedTensor, sum: &WindowSum) -> PlacedTensor {
    let mut split = of.clone();
    let (axis, stride) = (sum.weights.groups, of.strides[sum.weights.groups]);
    let in_group = of.dims[axis] / sum.groups;
    split.dims[axis] = in_group;
    split.dims.insert(axis, sum.groups);
    split.strides.insert(axis, stride * in_group);
    split
}

/// A dense copy of the taps of a sum in an internal buffer, the channels of windows divided into groups.
fn copied(
    plan: &mut PlanBuilder<'_>,
    value: ValueId,
    sum: &WindowSum,
    order: &DepthOrder,
) -> Result<PlacedTensor> {
    let (axis, mut dims) = (sum.weights.groups, plan.group().values[value].dims.clone());
    let (mut group, mut copy) = plan.group().with_copy(value);
    if sum.groups > 1 {
        dims[axis] /= sum.groups;
        dims.insert(axis, sum.groups);
        (group, copy) = group.with_moved(value, Moved::Reshaped, dims.clone());
    }
    let is_divided = sum.groups > 1;
    let spatial = sum.weights.spatial - usize::from(!is_divided && sum.weights.spatial > axis);
    if (spatial..).zip(&sum.dims).any(|(axis, dim)| dims[axis] != dim.taps) {
        let mut ranges: SmallVec<[DimRange; 6]> =
            dims.iter().map(|&count| DimRange { start: 0, step: 1, count }).collect();
        for (axis, dim) in (spatial..).zip(&sum.dims) {
            ranges[axis] = DimRange { start: dim.first_tap, step: dim.tap_step, count: dim.taps };
        }
        let from = if is_divided { copy } else { value };
        let counts: Dims = ranges.iter().map(|range| range.count).collect();
        (group, copy) = group.with_moved(from, Moved::Sliced(ranges), counts);
    }
    // Kernels that sum up side by side read numbers.
    if order.is_direct && matches!(group.values[copy].data_type, DataType::S8 | DataType::U8) {
        (group, copy) = group.with_conversion(copy, DataType::F32);
    }
    let order = order.of_copy().into_iter();
    let order: SmallVec<[usize; 6]> = match is_divided {
        true => order.collect(),
        false => order.filter(|&of| of != axis).map(|of| of - usize::from(of > axis)).collect(),
    };
    let place = dense_copy(plan, &group, copy, &order, "the weights")?;
    Ok(if is_divided { place } else { divided(&place, sum) })
}
