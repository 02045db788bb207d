//! The parts that all views have.
#![allow(unsafe_code, reason = "views stand for memory of a type known only at run time")]

use crate::error::{Error, Result, TensorFault};
use crate::graph::logical_tensor::{Layout, LogicalTensor, PartialStrides};
use crate::types::dtype::{DataType, Element};
use crate::types::id::TensorId;
use crate::types::shape::{self, Dims};

/// The parts that all views have.
#[derive(Debug, Clone)]
pub(crate) struct RawView {
    pub(crate) data_type: DataType,
    pub(super) address: *mut u8,
    /// Number of elements from the address on; `usize::MAX` if the caller promises that all are there.
    pub(super) length: usize,
    /// `None` if they follow from what is written.
    pub(crate) dims: Option<Dims>,
    /// `None` if the layout is row-major.
    pub(crate) strides: Option<Dims>,
}

// SAFETY: a view stands for a `&[T]` or a `&mut [T]` of elements, which are `Send` and `Sync`.
unsafe impl Send for RawView {}
// SAFETY: as above.
unsafe impl Sync for RawView {}

impl RawView {
    /// The description of a result whose memory is allocated later.
    pub(crate) fn of_any_shape(data_type: DataType) -> Self {
        Self { data_type, address: std::ptr::null_mut(), length: 0, dims: None, strides: None }
    }

    /// The elements at an address that a description of known dims and strides names.
    pub(super) fn of_desc(desc: &LogicalTensor, address: *mut u8) -> Self {
        let (dims, strides) = (desc.dims().map(Into::into), strides_unless_dense(desc).map(Into::into));
        Self { data_type: desc.data_type(), address, length: usize::MAX, dims, strides }
    }

    pub(crate) fn desc(&self, id: TensorId) -> Result<LogicalTensor> {
        let Self { data_type, dims, strides, .. } = self;
        match (dims, strides) {
            (Some(dims), Some(strides)) => LogicalTensor::with_strides(id, *data_type, dims, strides),
            (Some(dims), None) => LogicalTensor::strided(id, *data_type, dims),
            (None, _) => LogicalTensor::laid_out(
                id,
                *data_type,
                None,
                Layout::Strided(PartialStrides::from_raw(Dims::new())),
            ),
        }
    }

    /// True if the elements are memory of a description: its type, dims and strides, and as many as it spans.
    /// A view without dims takes those of the description, row-major.
    pub(crate) fn is_memory_of(&self, desc: &LogicalTensor) -> bool {
        let dims = desc.dims().unwrap_or_default();
        let has_strides = || match &self.strides {
            Some(strides) => {
                let mut pairs = dims.iter().zip(strides.iter().zip(desc.strides().unwrap_or_default()));
                dims.contains(&0) || pairs.all(|(&dim, (a, b))| dim <= 1 || a == b)
            }
            None => strides_unless_dense(desc).is_none(),
        };
        self.data_type == desc.data_type()
            && self.dims.as_deref().is_none_or(|own| own == dims)
            && has_strides()
            && self.check_length(desc).is_ok()
    }

    /// The address, if a condition holds and if it is not null.
    pub(super) fn address_if(&self, holds: bool) -> Option<*mut u8> {
        let is_empty = self.dims.as_deref().is_some_and(|dims| dims.contains(&0));
        (holds && (is_empty || !self.address.is_null())).then_some(self.address)
    }

    /// Number of elements from the address on, as far as it is known.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The number of elements of a view of row-major layout and of a type.
    pub(super) fn dense_count<T: Element>(&self) -> Result<usize> {
        let desc = self.desc(TensorId::new(0))?;
        let refuse = |fault| Err(Error::Value(fault));
        let (expected, given) = (self.data_type, T::DATA_TYPE);
        if expected != given {
            return refuse(TensorFault::ElementType { expected, given });
        }
        if let Some(strides) = strides_unless_dense(&desc) {
            let expected = desc.dims().and_then(shape::row_major_strides).unwrap_or_default();
            return refuse(TensorFault::Strides { expected, given: strides.into() });
        }
        if !self.address.addr().is_multiple_of(align_of::<T>()) {
            return refuse(TensorFault::Unaligned { align: align_of::<T>() });
        }
        if self.address.is_null() {
            return Ok(0);
        }
        match desc.element_count() {
            Some(count) => self.check_length(&desc).map(|()| count).map_err(Error::Value),
            // Without dims, a view has all elements that it was made of.
            None => Ok(self.length),
        }
    }

    pub(super) fn check_length(&self, desc: &LogicalTensor) -> Result<(), TensorFault> {
        let needed = desc.span().unwrap_or(usize::MAX);
        match self.length < needed {
            true => Err(TensorFault::TooShort { needed, given: self.length }),
            false => Ok(()),
        }
    }
}

/// The strides of a description; `None` if they are row-major.
fn strides_unless_dense(desc: &LogicalTensor) -> Option<&[i64]> {
    let dense = desc.dims().and_then(shape::row_major_strides);
    desc.strides().filter(|strides| dense.as_deref() != Some(strides))
}
