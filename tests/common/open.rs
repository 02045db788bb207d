//! Descriptions of tensors from lists of numbers, one of which stands for an unknown dim or stride.

use sterna::{DataType, Layout, LogicalTensor, Result, TensorId};

/// An unknown dim or stride.
pub const OPEN: i64 = i64::MIN;

/// A number of a list.
pub fn known(number: &i64) -> Option<i64> {
    Some(*number).filter(|&number| number != OPEN)
}

pub fn strides(strides: &[i64]) -> Layout {
    Layout::Strided(strides.iter().map(known).collect())
}

pub fn strided(id: impl Into<TensorId>, data_type: DataType, dims: &[i64]) -> Result<LogicalTensor> {
    LogicalTensor::partial(id, data_type, &dims.iter().map(known).collect::<Vec<_>>())
}

pub fn any(id: impl Into<TensorId>, data_type: DataType, dims: &[i64]) -> Result<LogicalTensor> {
    with_layout(id, data_type, Some(dims), Layout::Any)
}

pub fn with_strides(
    id: impl Into<TensorId>,
    data_type: DataType,
    dims: &[i64],
    of_dims: &[i64],
) -> Result<LogicalTensor> {
    with_layout(id, data_type, Some(dims), strides(of_dims))
}

pub fn with_layout(
    id: impl Into<TensorId>,
    data_type: DataType,
    dims: Option<&[i64]>,
    layout: Layout,
) -> Result<LogicalTensor> {
    let dims: Option<Vec<_>> = dims.map(|dims| dims.iter().map(known).collect());
    LogicalTensor::with_layout(id, data_type, dims.as_deref(), layout)
}
