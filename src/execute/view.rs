//! Views: elements of a caller with dims and strides, before they have an id or an engine.
#![allow(unsafe_code, reason = "views stand for memory of a type known only at run time")]

use std::marker::PhantomData;

use super::compiled::CompiledPartition;
use super::engine::Engine;
use super::raw_view::RawView;
use super::stream::Stream;
use super::tensor::{Tensor, TensorMut};
use crate::error::{Error, Result, TensorFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{Element, InputElement};
use crate::types::id::TensorId;
#[cfg(feature = "ndarray")]
use crate::types::shape::Dims;

/// Elements that a call reads, with dims and strides: what [`Tensor`] is, but without id and engine.
///
/// Making a view copies and checks nothing. The call that takes it says what does not fit.
///
/// ```
/// use sterna::TensorView;
/// let values = [1.0f32, 2.0, 3.0, 4.0];
/// let columns = TensorView::with_strides(&values, &[2, 2], &[1, 2]);
/// let scores = TensorView::new(&values, &[2, 2]);
/// let larger = sterna::select(&true, &columns, &scores)?;
/// assert_eq!(larger, [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TensorView<'a, T> {
    pub(crate) raw: RawView,
    elements: PhantomData<&'a [T]>,
}

impl<'a, T: InputElement> TensorView<'a, T> {
    /// Elements of row-major layout.
    #[must_use]
    pub fn new(elements: &'a [T], dims: &[i64]) -> Self {
        Self::of_slice(elements, dims, None)
    }

    /// Elements with strides, which count elements.
    #[must_use]
    pub fn with_strides(elements: &'a [T], dims: &[i64], strides: &[i64]) -> Self {
        Self::of_slice(elements, dims, Some(strides))
    }

    fn of_slice(elements: &'a [T], dims: &[i64], strides: Option<&[i64]>) -> Self {
        let raw = RawView {
            data_type: T::DATA_TYPE,
            address: elements.as_ptr().cast_mut().cast(),
            length: elements.len(),
            dims: Some(dims.into()),
            strides: strides.map(Into::into),
        };
        Self { raw, elements: PhantomData }
    }

    /// # Safety
    ///
    /// As for [`DynView::from_raw_parts`](crate::DynView::from_raw_parts), for elements of type `T`.
    #[cfg(feature = "ndarray")]
    pub(super) unsafe fn from_raw_parts(address: *const T, dims: Dims, strides: Dims) -> Self {
        let (data_type, address) = (T::DATA_TYPE, address.cast_mut().cast());
        let (dims, strides) = (Some(dims), Some(strides));
        let raw = RawView { data_type, address, length: usize::MAX, dims, strides };
        Self { raw, elements: PhantomData }
    }
}

/// Elements that a call writes, with dims and strides: what [`TensorMut`] is, but without id and engine.
///
/// ```
/// use sterna::{TensorView, TensorViewMut};
/// // The second column of a matrix of two.
/// let mut matrix = [0i32; 6];
/// let mut column = TensorViewMut::with_strides(&mut matrix[1..], &[3], &[2]);
/// sterna::select_into(&[true, false, true], &[7, 7, 7], &9, &mut column)?;
/// assert_eq!(matrix, [0, 7, 0, 9, 0, 7]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorViewMut<'a, T> {
    pub(crate) raw: RawView,
    elements: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> TensorViewMut<'a, T> {
    /// Elements of row-major layout.
    #[must_use]
    pub fn new(elements: &'a mut [T], dims: &[i64]) -> Self {
        Self::of_slice(elements, Some(dims), None)
    }

    /// Elements with strides, which count elements.
    #[must_use]
    pub fn with_strides(elements: &'a mut [T], dims: &[i64], strides: &[i64]) -> Self {
        Self::of_slice(elements, Some(dims), Some(strides))
    }

    /// Elements of row-major layout, whose dims follow from what is written there.
    #[must_use]
    pub fn of_any_shape(elements: &'a mut [T]) -> Self {
        Self::of_slice(elements, None, None)
    }

    fn of_slice(elements: &'a mut [T], dims: Option<&[i64]>, strides: Option<&[i64]>) -> Self {
        let (data_type, length) = (T::DATA_TYPE, elements.len());
        let (address, dims) = (elements.as_mut_ptr().cast(), dims.map(Into::into));
        let raw = RawView { data_type, address, length, dims, strides: strides.map(Into::into) };
        Self { raw, elements: PhantomData }
    }

    /// # Safety
    ///
    /// As for [`DynViewMut::from_raw_parts`](crate::DynViewMut::from_raw_parts), for elements of type `T`.
    #[cfg(feature = "ndarray")]
    pub(super) unsafe fn from_raw_parts(address: *mut T, dims: Dims, strides: Dims) -> Self {
        let (data_type, address) = (T::DATA_TYPE, address.cast());
        let (dims, strides) = (Some(dims), Some(strides));
        let raw = RawView { data_type, address, length: usize::MAX, dims, strides };
        Self { raw, elements: PhantomData }
    }
}

/// Something that a call can read as a tensor: a number, which has rank 0; a slice, an array or a vector, of
/// rank 1; an array of arrays, of rank 2; a [`TensorView`], which has the dims that it is given; and with the
/// feature `ndarray`, arrays and views of that crate.
///
/// ```
/// use sterna::{AsView, TensorView};
/// fn rank(tensor: &impl AsView) -> usize {
///     tensor.as_view().desc(0).unwrap().rank().unwrap()
/// }
/// assert_eq!((rank(&1.0f32), rank(&[1u8, 2]), rank(&[[true; 3]; 2])), (0, 1, 2));
/// assert_eq!(rank(&TensorView::new(&[1i64; 6], &[1, 2, 3])), 3);
/// ```
pub trait AsView {
    /// The type of the elements.
    type Element: InputElement;

    /// The elements with dims and strides.
    fn as_view(&self) -> TensorView<'_, Self::Element>;
}

impl<T> TensorView<'_, T> {
    /// The view as a description, by which a [`Tensor`] of a view is made.
    ///
    /// # Errors
    ///
    /// As [`DynView::desc`](crate::DynView::desc).
    pub fn desc(&self, id: impl Into<TensorId>) -> Result<LogicalTensor> {
        self.raw.desc(id.into())
    }
}

impl<T: InputElement> AsView for TensorView<'_, T> {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        self.clone()
    }
}

impl<T: InputElement> AsView for T {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        TensorView::new(std::slice::from_ref(self), &[])
    }
}

impl<T: InputElement> AsView for [T] {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        TensorView::new(self, &[self.len() as i64])
    }
}

impl<T: InputElement, const N: usize> AsView for [T; N] {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        self[..].as_view()
    }
}

impl<T: InputElement, const N: usize, const M: usize> AsView for [[T; N]; M] {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        TensorView::new(self.as_flattened(), &[M as i64, N as i64])
    }
}

impl<T: InputElement> AsView for Vec<T> {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        self[..].as_view()
    }
}

impl<T: InputElement> AsView for &[T] {
    type Element = T;

    fn as_view(&self) -> TensorView<'_, T> {
        (**self).as_view()
    }
}

/// Something that a call can write a tensor to: a slice, an array or a vector, which takes the elements of
/// any shape in row-major order; a [`TensorViewMut`], which has the dims that it is given; and with the
/// feature `ndarray`, arrays and views of that crate.
///
/// ```
/// let mut result = vec![0.0f32; 4];
/// sterna::select_into(&[true, false], &[[1.0, 2.0], [3.0, 4.0]], &0.0, &mut result)?;
/// assert_eq!(result, [1.0, 0.0, 3.0, 0.0]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub trait AsViewMut {
    /// The type of the elements.
    type Element: Element;

    /// The elements with dims and strides.
    fn as_view_mut(&mut self) -> TensorViewMut<'_, Self::Element>;
}

impl<T: Element> AsViewMut for TensorViewMut<'_, T> {
    type Element = T;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut { raw: self.raw.clone(), elements: PhantomData }
    }
}

impl<T: Element> AsViewMut for [T] {
    type Element = T;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut::of_any_shape(self)
    }
}

impl<T: Element, const N: usize> AsViewMut for [T; N] {
    type Element = T;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut::of_any_shape(self)
    }
}

impl<T: Element> AsViewMut for Vec<T> {
    type Element = T;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut::of_any_shape(self)
    }
}

impl<V: AsViewMut + ?Sized> AsViewMut for &mut V {
    type Element = V::Element;

    fn as_view_mut(&mut self) -> TensorViewMut<'_, V::Element> {
        (**self).as_view_mut()
    }
}

impl<'a> Tensor<'a> {
    /// A tensor on the elements of a view, whose dims and strides are those of the description. A stride of a
    /// dim of 1 may be any.
    ///
    /// # Errors
    ///
    /// As [`Tensor::new`]; [`TensorFault::Shape`] and [`TensorFault::Strides`] if dims or strides differ.
    ///
    /// ```
    /// use sterna::{AsView, DataType, Engine, LogicalTensor, Tensor, TensorView};
    /// let (engine, values) = (Engine::new(), [1.0f32, 2.0, 3.0, 4.0]);
    /// let view = TensorView::with_strides(&values, &[2, 2], &[1, 2]);
    /// let desc = view.desc(0)?;
    /// assert_eq!(Tensor::of_view(&desc, &engine, &view)?.desc().strides(), Some(&[1, 2][..]));
    /// let row_major = LogicalTensor::strided(0, DataType::F32, &[2, 2])?;
    /// assert!(Tensor::of_view(&row_major, &engine, &view).is_err());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn of_view<V: AsView + ?Sized>(
        desc: &'a LogicalTensor,
        engine: &'a Engine,
        view: &'a V,
    ) -> Result<Self> {
        let view = view.as_view();
        check_view(desc, &view.raw)?;
        // SAFETY: the view is borrowed for `'a`, and its elements are those that the description names.
        Ok(unsafe { Self::from_raw_parts(desc, engine, view.raw.address) })
    }
}

impl<'a> TensorMut<'a> {
    /// A tensor on the elements of a view, whose dims and strides are those of the description. A view
    /// without dims takes those of the description.
    ///
    /// # Errors
    ///
    /// As [`Tensor::of_view`].
    pub fn of_view<V: AsViewMut + ?Sized>(
        desc: &'a LogicalTensor,
        engine: &'a Engine,
        view: &'a mut V,
    ) -> Result<Self> {
        let view = view.as_view_mut();
        check_view(desc, &view.raw)?;
        // SAFETY: the view is uniquely borrowed for `'a`, and its elements are those that the description
        // names.
        Ok(unsafe { Self::from_raw_parts(desc, engine, view.raw.address) })
    }
}

/// Checks that the elements of a view are those of a description.
pub(super) fn check_view(desc: &LogicalTensor, view: &RawView) -> Result<()> {
    let id = desc.id();
    let refuse = |fault| Err(Error::Tensor { id, fault });
    let (expected, given) = (desc.data_type(), view.data_type);
    if expected != given {
        return refuse(TensorFault::ElementType { expected, given });
    }
    let (Some(dims), Some(strides)) = (desc.dims(), desc.strides()) else {
        return refuse(TensorFault::NotConcrete);
    };
    if desc.is_host_scalar() {
        let (property, hint) = (desc.property(), "use `Tensor::scalar`");
        return refuse(TensorFault::Property { property, hint });
    }
    let view_desc = view.desc(id)?;
    if let Some(given) = view_desc.dims() {
        if given != dims {
            return refuse(TensorFault::Shape { expected: dims.into(), given: given.into() });
        }
        let given = view_desc.strides().unwrap_or_default();
        let is_empty = dims.contains(&0);
        let mut pairs = dims.iter().zip(strides.iter().zip(given));
        if !is_empty && pairs.any(|(&dim, (a, b))| dim > 1 && a != b) {
            return refuse(TensorFault::Strides { expected: strides.into(), given: given.into() });
        }
    }
    view.check_length(desc).or_else(refuse)
}

/// Names of the operands of a select, in the order of the ports.
const OPERANDS: [&str; 4] = ["cond", "then", "else", "dst"];

/// The error of an operand of a select, named for its port.
pub(crate) fn of_operand(error: Error) -> Error {
    match error {
        Error::Tensor { id, fault } => match OPERANDS.get(id.get()) {
            Some(operand) => Error::Operand { operand, fault },
            None => Error::Tensor { id, fault },
        },
        error => error,
    }
}

/// Runs a compiled select on views, whose dims and strides are those that it was compiled for.
pub(crate) fn execute_on_views(
    compiled: &CompiledPartition,
    stream: &Stream,
    inputs: [&RawView; 3],
    dst: &RawView,
) -> Result<()> {
    let operand = |index: usize| move |fault| Error::Operand { operand: OPERANDS[index], fault };
    let engine = compiled.engine();
    let ([cond, then, else_], [result]) = (compiled.inputs(), compiled.outputs()) else {
        return Ok(());
    };
    let descs = [cond, then, else_];
    for (index, (view, desc)) in inputs.into_iter().zip(descs).enumerate() {
        view.check_length(desc).map_err(operand(index))?;
    }
    dst.check_length(result).map_err(operand(3))?;
    let input = |index: usize| {
        // SAFETY: the elements of the view are there, as its constructors checked or their caller promised,
        // and they are those that the description names.
        unsafe { Tensor::from_raw_parts(descs[index], engine, inputs[index].address) }
    };
    // SAFETY: as above; the view of the result is that of elements which nobody else uses.
    let output = unsafe { TensorMut::from_raw_parts(result, engine, dst.address) };
    compiled.execute(stream, &[input(0), input(1), input(2)], &mut [output])
}

/// Runs a compiled select, whose result is row-major, into a new vector.
pub(crate) fn execute_to_vec<T: Element>(
    compiled: &CompiledPartition,
    stream: &Stream,
    inputs: [&RawView; 3],
) -> Result<Vec<T>> {
    let count = compiled.outputs()[0].element_count().unwrap_or(0);
    let mut elements: Vec<T> = Vec::new();
    let (size, align) = (count.saturating_mul(size_of::<T>()), align_of::<T>());
    elements.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { size, align })?;
    let (data_type, address) = (T::DATA_TYPE, elements.as_mut_ptr().cast());
    let dst = RawView { data_type, address, length: count, dims: None, strides: None };
    execute_on_views(compiled, stream, inputs, &dst)?;
    // SAFETY: the vector has room for so many elements, and the execution has written all of them, because
    // the result is dense.
    unsafe { elements.set_len(count) };
    Ok(elements)
}
