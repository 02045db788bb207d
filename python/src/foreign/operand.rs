//! Operands: elements of others with what keeps them.
#![allow(unsafe_code, reason = "arrays of others are memory of a type known only at run time")]

use dlpark::python::ImportedDlpack;
use pyo3::prelude::*;
use sterna::{AsDynView, DataType, Dims, DynView, DynViewMut, Engine, LogicalTensor, Tensor};

use crate::error::array_error;

/// An array with what keeps its memory.
pub(crate) struct Operand {
    pub(super) data_type: DataType,
    pub(super) address: *mut u8,
    pub(super) dims: Dims,
    /// `None` if the layout is row-major.
    pub(super) strides: Option<Dims>,
    pub(super) can_write: bool,
    pub(super) owner: Owner,
}

// SAFETY: an operand stands for elements that other threads may read, and write if they have it alone, as a
// `DynView` does. Calls borrow operands; they are dropped by the thread that made them.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

/// The keeper of the memory of an operand.
pub(super) enum Owner {
    /// An array, or another object that is one.
    Object { _array: Py<PyAny> },
    /// A tensor that was handed over.
    Dlpack { _tensor: ImportedDlpack },
    /// The element itself.
    Inline([u8; 8]),
}

/// How far an object may be turned into an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It may be copied: a list, a number, an array whose strides no tensor has.
    Read,
    /// It is written in place, so it must be memory of somebody's.
    Write,
}

impl Operand {
    /// The type of the elements.
    pub(crate) fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The dims.
    pub(crate) fn dims(&self) -> &Dims {
        &self.dims
    }

    /// The strides in elements; `None` if the layout is row-major.
    pub(crate) fn strides(&self) -> Option<&Dims> {
        self.strides.as_ref()
    }

    /// The operand as a description.
    pub(crate) fn desc(&self, id: usize) -> sterna::Result<LogicalTensor> {
        match &self.strides {
            Some(strides) => LogicalTensor::with_strides(id, self.data_type, &self.dims, strides),
            None => LogicalTensor::strided(id, self.data_type, &self.dims),
        }
    }

    pub(super) fn address(&self) -> *mut u8 {
        match &self.owner {
            Owner::Inline(bytes) => bytes.as_ptr().cast_mut(),
            Owner::Object { .. } | Owner::Dlpack { .. } => self.address,
        }
    }

    /// The elements, to be read.
    pub(crate) fn view(&self) -> DynView<'_> {
        // SAFETY: the owner keeps the elements that dims and strides name, as its protocol promises. NumPy
        // and DLPack leave it to their users that nobody writes to an array which a call reads.
        unsafe {
            DynView::from_raw_parts(self.data_type, self.address(), &self.dims, self.strides.as_deref())
        }
    }

    /// The elements, to be written.
    pub(crate) fn view_mut(&mut self) -> PyResult<DynViewMut<'_>> {
        self.check_writable()?;
        // SAFETY: as for `view`; the owner allows writing.
        Ok(unsafe {
            DynViewMut::from_raw_parts(self.data_type, self.address(), &self.dims, self.strides.as_deref())
        })
    }

    /// The bytes of the elements, if the layout is row-major, as data that lives on its own.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let count = self.dims.iter().product::<i64>().max(0) as usize;
        let size = count * self.data_type.size().unwrap_or(0);
        if size == 0 || self.strides.is_some() {
            return Vec::new();
        }
        // SAFETY: the owner keeps so many bytes, which are initialised.
        unsafe { std::slice::from_raw_parts(self.address().cast_const(), size) }.to_vec()
    }

    /// Refuses an array that is read-only.
    pub(crate) fn check_writable(&self) -> PyResult<()> {
        match self.can_write {
            true => Ok(()),
            false => Err(array_error("the array is read-only; a result needs memory that may be written")),
        }
    }

    /// The elements as a tensor of a description.
    pub(super) fn tensor<'a>(
        &'a self,
        desc: &'a LogicalTensor,
        engine: &'a Engine,
    ) -> sterna::Result<Tensor<'a>> {
        self.check_is(desc)?;
        // SAFETY: as for `view`; the description is that of the elements.
        Ok(unsafe { Tensor::from_raw_parts(desc, engine, self.address()) })
    }

    /// Checks that a description is that of the elements.
    pub(super) fn check_is(&self, desc: &LogicalTensor) -> sterna::Result<()> {
        let own = self.desc(desc.id().get())?;
        let refuse = |fault| Err(sterna::Error::Tensor { id: desc.id(), fault });
        let (expected, given) = (desc.data_type(), own.data_type());
        if expected != given {
            return refuse(sterna::TensorFault::ElementType { expected, given });
        }
        let (dims, strides) = (desc.dims().unwrap_or_default(), desc.strides().unwrap_or_default());
        if dims != own.dims().unwrap_or_default() {
            let (expected, given) = (dims.into(), self.dims.clone());
            return refuse(sterna::TensorFault::Shape { expected, given });
        }
        let own = own.strides().unwrap_or_default();
        let mut pairs = dims.iter().zip(strides.iter().zip(own));
        if !dims.contains(&0) && pairs.any(|(&dim, (a, b))| dim > 1 && a != b) {
            let (expected, given) = (strides.into(), own.into());
            return refuse(sterna::TensorFault::Strides { expected, given });
        }
        Ok(())
    }
}

impl AsDynView for Operand {
    fn as_dyn_view(&self) -> DynView<'_> {
        self.view()
    }
}
