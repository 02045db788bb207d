//! Tensors of data as products of convolutions read them.

use smallvec::SmallVec;

use crate::compile::elementwise::ShapedGroup;
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::error::{CompileFault, Result};
use crate::graph::windows::DataAxes;
use crate::plan::ValueId;
use crate::types::dtype::DataType;

/// The stride of one axis along some dims, the outermost first; `None` if there is not one.
pub(super) fn merged_stride(of: &PlacedTensor, axes: &[usize]) -> Option<i64> {
    if axes.iter().any(|&axis| of.dims[axis] == 0) {
        return Some(1);
    }
    let mut several = axes.iter().copied().filter(|&axis| of.dims[axis] != 1).rev();
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

/// The dims of a tensor of data: the batch, those of space, and the channels.
pub(super) fn data_order(data: DataAxes, spatial_dims: usize) -> SmallVec<[usize; 6]> {
    let spatial = data.spatial..data.spatial + spatial_dims;
    [0].into_iter().chain(spatial).chain([data.channels]).collect()
}

/// A tensor of data as it is in memory, or if that has another type or is of no use a copy with its dims in
/// an order; and the bytes to the first element.
pub(super) fn placed_data(
    plan: &mut PlanBuilder<'_>,
    value: ValueId,
    data_type: Option<DataType>,
    order: &[usize],
    is_fit: impl Fn(&PlacedTensor) -> bool,
) -> Result<(PlacedTensor, isize)> {
    let has_type = |of: DataType| data_type.is_none_or(|data_type| data_type == of);
    let view = plan.view(value).filter(|(view, _)| has_type(view.data_type) && is_fit(view));
    if let Some(view) = view {
        return Ok(view);
    }
    let group = plan.group();
    let (group, copy) = match data_type.filter(|&of| of != group.values[value].data_type) {
        Some(data_type) => group.with_conversion(value, data_type),
        None => group.with_copy(value),
    };
    Ok((dense_copy(plan, &group, copy, order, "the images")?, 0))
}

/// A value of a group, written densely to an internal buffer with its dims in an order, the outermost first.
pub(super) fn dense_copy(
    plan: &mut PlanBuilder<'_>,
    group: &ShapedGroup,
    copy: ValueId,
    order: &[usize],
    what: &str,
) -> Result<PlacedTensor> {
    let unsupported = || CompileFault::Unsupported(format!("no kernel copies {what} of a convolution"));
    let places = plan.write_in(group, [copy], order);
    let [place] = places.ok_or_else(|| plan.refuse(unsupported()))?;
    Ok(place)
}
