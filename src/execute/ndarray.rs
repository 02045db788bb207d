//! Arrays of the crate `ndarray` as views, and tensors as arrays.
#![allow(unsafe_code, reason = "strided arrays are no slices")]

use ndarray::{ArrayBase, ArrayViewD, ArrayViewMutD, Data, DataMut, Dimension, IxDyn, ShapeBuilder};

use super::tensor::TensorBuf;
use super::view::{AsView, AsViewMut, TensorView, TensorViewMut};
use crate::error::{Error, Result, TensorFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{Element, InputElement};
use crate::types::shape::Dims;

/// The dims and strides of an array. The strides of an empty array, and of a dim of 1, are any; they become
/// such that a tensor can have them.
fn layout(dims: &[usize], strides: &[isize]) -> (Dims, Dims) {
    let is_empty = dims.contains(&0);
    let stride = |(&dim, &stride): (&usize, &isize)| match is_empty || dim == 1 {
        true => stride.max(0) as i64,
        false => stride as i64,
    };
    (dims.iter().map(|&dim| dim as i64).collect(), dims.iter().zip(strides).map(stride).collect())
}

/// Strides are kept. A negative stride, such as that of a reversed axis, is an error of the call that takes
/// the array.
impl<S: Data, D: Dimension> AsView for ArrayBase<S, D>
where
    S::Elem: InputElement,
{
    type Element = S::Elem;

    fn as_view(&self) -> TensorView<'_, S::Elem> {
        let (dims, strides) = layout(self.shape(), self.strides());
        // SAFETY: the array holds its elements, and is borrowed as long as the view lives.
        unsafe { TensorView::from_raw_parts(self.as_ptr(), dims, strides) }
    }
}

/// As [`AsView`] for arrays.
impl<S: DataMut, D: Dimension> AsViewMut for ArrayBase<S, D>
where
    S::Elem: Element,
{
    type Element = S::Elem;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, S::Elem> {
        let (dims, strides) = layout(self.shape(), self.strides());
        // SAFETY: the array holds its elements, and is uniquely borrowed as long as the view lives.
        unsafe { TensorViewMut::from_raw_parts(self.as_mut_ptr(), dims, strides) }
    }
}

impl TensorBuf {
    /// The elements as an array with the dims and strides of the tensor.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice), and [`TensorFault::NoArray`] for a layout that no array has.
    ///
    /// ```
    /// use sterna::{DataType, Engine, LogicalTensor, TensorBuf};
    /// let columns = LogicalTensor::with_strides(0, DataType::F32, &[2, 3], &[1, 2])?;
    /// let mut tensor = TensorBuf::zeroed(columns, &Engine::new())?;
    /// tensor.as_array_mut::<f32>()?[[1, 2]] = 5.0;
    /// assert_eq!(tensor.as_slice::<f32>()?, [0.0, 0.0, 0.0, 0.0, 0.0, 5.0]);
    /// assert_eq!(tensor.as_array::<f32>()?.sum(), 5.0);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        let shape = IxDyn(&dims(self.desc())).strides(IxDyn(&strides(self.desc())));
        ArrayViewD::from_shape(shape, self.as_slice()?).map_err(|_| no_array(self.desc()))
    }

    /// The elements as an array with the dims and strides of the tensor.
    ///
    /// # Errors
    ///
    /// As [`as_array`](Self::as_array).
    pub fn as_array_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        let shape = IxDyn(&dims(self.desc())).strides(IxDyn(&strides(self.desc())));
        let refused = no_array(self.desc());
        ArrayViewMutD::from_shape(shape, self.as_mut_slice()?).map_err(|_| refused)
    }
}

fn no_array(desc: &LogicalTensor) -> Error {
    Error::Tensor { id: desc.id(), fault: TensorFault::NoArray }
}

fn dims(desc: &LogicalTensor) -> Vec<usize> {
    desc.dims().unwrap_or_default().iter().map(|&dim| dim as usize).collect()
}

fn strides(desc: &LogicalTensor) -> Vec<usize> {
    desc.strides().unwrap_or_default().iter().map(|&stride| stride as usize).collect()
}
