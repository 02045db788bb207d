//! Views of elements whose type is known only at run time.
#![allow(unsafe_code, reason = "views stand for memory of a type known only at run time")]

use std::marker::PhantomData;

use super::engine::Engine;
use super::raw_view::RawView;
use super::tensor::{Tensor, TensorBuf};
use super::view::{AsView, AsViewMut, TensorView, TensorViewMut, check_view};
use crate::error::Result;
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::{DataType, Element};
use crate::types::id::TensorId;

/// A [`TensorView`] whose type is known only at run time.
///
/// ```
/// use sterna::{DataType, DynView, TensorView};
/// let view = DynView::from(TensorView::new(&[1u8, 2, 3], &[3]));
/// assert_eq!((view.data_type(), view.dims()), (DataType::U8, &[3][..]));
/// ```
#[derive(Debug, Clone)]
pub struct DynView<'a> {
    pub(crate) raw: RawView,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> DynView<'a> {
    /// A view of elements at an address; without strides they are row-major.
    ///
    /// # Safety
    ///
    /// Unless `address` is null, the following holds for `'a`. All elements that the dims and strides name
    /// are initialised elements of the type and readable from any thread, and nobody writes to them while a
    /// call has the view.
    #[must_use]
    pub unsafe fn from_raw_parts(
        data_type: DataType,
        address: *const u8,
        dims: &[i64],
        strides: Option<&[i64]>,
    ) -> Self {
        let (address, length) = (address.cast_mut(), usize::MAX);
        let (dims, strides) = (Some(dims.into()), strides.map(Into::into));
        Self { raw: RawView { data_type, address, length, dims, strides }, memory: PhantomData }
    }

    /// The type of the elements.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.raw.data_type
    }

    /// The dims, as they were given.
    #[must_use]
    pub fn dims(&self) -> &[i64] {
        self.raw.dims.as_deref().unwrap_or_default()
    }

    /// The strides, as they were given; `None` if the layout is row-major.
    #[must_use]
    pub fn strides(&self) -> Option<&[i64]> {
        self.raw.strides.as_deref()
    }

    /// The elements of a view of row-major layout.
    ///
    /// # Errors
    ///
    /// [`TensorFault::ElementType`](crate::TensorFault::ElementType) for another type;
    /// [`TensorFault::Strides`](crate::TensorFault::Strides) for another layout;
    /// [`TensorFault::TooShort`](crate::TensorFault::TooShort).
    ///
    /// ```
    /// use sterna::{AsDynView, DataType};
    /// let matrix = [[1.0f32, 2.0], [3.0, 4.0]];
    /// assert_eq!(matrix.as_dyn_view().elements::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// assert!(matrix.as_dyn_view().elements::<i32>().is_err());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn elements<T: Element>(&self) -> Result<&'a [T]> {
        let count = self.raw.dense_count::<T>()?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: so many elements of the type are there, as the constructors checked or their caller
        // promised, aligned as was just checked, and every bit pattern is an element.
        Ok(unsafe { std::slice::from_raw_parts(self.raw.address.cast_const().cast(), count) })
    }

    /// The view as a tensor of a description of the same dims and strides.
    ///
    /// # Errors
    ///
    /// As [`Tensor::of_view`].
    pub(crate) fn as_tensor<'t>(&'t self, desc: &'t LogicalTensor, engine: &'t Engine) -> Result<Tensor<'t>> {
        check_view(desc, &self.raw)?;
        // SAFETY: the elements are there, as the constructors checked or their caller promised.
        Ok(unsafe { Tensor::from_raw_parts(desc, engine, self.raw.address) })
    }

    /// A view of the elements that a description of known dims and strides names.
    ///
    /// # Safety
    ///
    /// As for [`from_raw_parts`](Self::from_raw_parts).
    pub(super) unsafe fn of_desc(desc: &LogicalTensor, address: *mut u8) -> Self {
        Self { raw: RawView::of_desc(desc, address), memory: PhantomData }
    }

    /// The address of the first element; null if there is none.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.raw.address
    }

    /// The view as a description.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`](crate::Error::Tensor) for dims and strides that no tensor has.
    pub fn desc(&self, id: impl Into<TensorId>) -> Result<LogicalTensor> {
        self.raw.desc(id.into())
    }
}

impl<'a, T> From<TensorView<'a, T>> for DynView<'a> {
    fn from(view: TensorView<'a, T>) -> Self {
        Self { raw: view.raw, memory: PhantomData }
    }
}

/// A [`TensorViewMut`] whose type is known only at run time.
///
/// ```
/// use sterna::{DataType, DynView, DynViewMut, SelectOptions, TensorView, TensorViewMut};
/// let (cond, then) = (TensorView::new(&[true, false], &[2]), TensorView::new(&[1u8, 2], &[2]));
/// let else_ = TensorView::new(&[0u8], &[]);
/// let mut result = [9u8; 2];
/// let mut dst = DynViewMut::from(TensorViewMut::new(&mut result, &[2]));
/// SelectOptions::new().select_dyn(&cond.into(), &then.into(), &else_.into(), &mut dst)?;
/// assert_eq!(result, [1, 0]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug)]
pub struct DynViewMut<'a> {
    pub(crate) raw: RawView,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> DynViewMut<'a> {
    /// A view of elements at an address; without strides they are row-major.
    ///
    /// # Safety
    ///
    /// Unless `address` is null, the following holds for `'a`. All elements that the dims and strides name
    /// are writable from any thread, and nobody else uses them while a call has the view; but an input of
    /// that call may be the very same elements.
    #[must_use]
    pub unsafe fn from_raw_parts(
        data_type: DataType,
        address: *mut u8,
        dims: &[i64],
        strides: Option<&[i64]>,
    ) -> Self {
        let (dims, strides) = (Some(dims.into()), strides.map(Into::into));
        Self { raw: RawView { data_type, address, length: usize::MAX, dims, strides }, memory: PhantomData }
    }

    /// The type of the elements.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.raw.data_type
    }

    /// The dims, as they were given; empty if they follow from what is written.
    #[must_use]
    pub fn dims(&self) -> &[i64] {
        self.raw.dims.as_deref().unwrap_or_default()
    }

    /// The elements of a view of row-major layout.
    ///
    /// # Errors
    ///
    /// As [`DynView::elements`].
    ///
    /// ```
    /// use sterna::AsDynViewMut;
    /// let mut row = [0u8; 3];
    /// row.as_dyn_view_mut().elements_mut::<u8>()?[1] = 7;
    /// assert_eq!(row, [0, 7, 0]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let count = self.raw.dense_count::<T>()?;
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as for `DynView::elements`; the view is uniquely borrowed, and memory of a result may be
        // written as elements of any bits.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.raw.address.cast(), count) })
    }

    /// The bytes of a view of row-major layout.
    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let desc = self.desc(0)?;
        check_view(&desc, &self.raw)?;
        let bytes = desc.memory_size();
        if bytes == 0 || self.raw.address.is_null() {
            return Ok(&mut []);
        }
        // SAFETY: so many bytes belong to the view, which is uniquely borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.raw.address, bytes) })
    }

    /// As `DynView::of_desc`.
    ///
    /// # Safety
    ///
    /// As for [`from_raw_parts`](Self::from_raw_parts).
    pub(super) unsafe fn of_desc(desc: &LogicalTensor, address: *mut u8) -> Self {
        Self { raw: RawView::of_desc(desc, address), memory: PhantomData }
    }

    /// The address of the first element; null if there is none.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.raw.address
    }

    /// The view as a description; without dims, the rank is unknown.
    ///
    /// # Errors
    ///
    /// As [`DynView::desc`].
    pub fn desc(&self, id: impl Into<TensorId>) -> Result<LogicalTensor> {
        self.raw.desc(id.into())
    }
}

impl<'a, T> From<TensorViewMut<'a, T>> for DynViewMut<'a> {
    fn from(view: TensorViewMut<'a, T>) -> Self {
        Self { raw: view.raw, memory: PhantomData }
    }
}

/// Something that a call can read as a tensor of any type: everything that is [`AsView`], a [`DynView`], and
/// a [`TensorBuf`](crate::TensorBuf). A [`Session`](crate::Session) takes a list of such.
///
/// ```
/// use sterna::AsDynView;
/// let inputs: [&dyn AsDynView; 2] = [&[1.0f32, 2.0], &true];
/// assert_eq!((inputs[0].as_dyn_view().dims(), inputs[1].as_dyn_view().dims()), (&[2][..], &[][..]));
/// ```
pub trait AsDynView {
    /// The elements with type, dims and strides.
    fn as_dyn_view(&self) -> DynView<'_>;
}

impl<V: AsView + ?Sized> AsDynView for V {
    fn as_dyn_view(&self) -> DynView<'_> {
        self.as_view().into()
    }
}

impl AsDynView for DynView<'_> {
    fn as_dyn_view(&self) -> DynView<'_> {
        self.clone()
    }
}

impl AsDynView for TensorBuf {
    fn as_dyn_view(&self) -> DynView<'_> {
        // SAFETY: the memory is initialised, and borrowed as long as the view.
        unsafe { DynView::of_desc(self.desc(), self.address()) }
    }
}

/// Something that a call can write a tensor of any type to: everything that is [`AsViewMut`], a
/// [`DynViewMut`], and a [`TensorBuf`](crate::TensorBuf).
///
/// ```
/// use sterna::{AsDynViewMut, DataType};
/// let mut result = [0.0f32; 4];
/// assert_eq!(result.as_dyn_view_mut().data_type(), DataType::F32);
/// ```
pub trait AsDynViewMut {
    /// The elements with type, dims and strides.
    fn as_dyn_view_mut(&mut self) -> DynViewMut<'_>;
}

impl<V: AsViewMut + ?Sized> AsDynViewMut for V {
    fn as_dyn_view_mut(&mut self) -> DynViewMut<'_> {
        self.as_view_mut().into()
    }
}

impl AsDynViewMut for DynViewMut<'_> {
    fn as_dyn_view_mut(&mut self) -> DynViewMut<'_> {
        DynViewMut { raw: self.raw.clone(), memory: PhantomData }
    }
}

impl AsDynViewMut for TensorBuf {
    fn as_dyn_view_mut(&mut self) -> DynViewMut<'_> {
        let address = self.address();
        // SAFETY: the memory belongs to the tensor, which is uniquely borrowed as long as the view.
        unsafe { DynViewMut::of_desc(self.desc(), address) }
    }
}
