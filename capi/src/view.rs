//! Elements in the caller's memory, with dims and strides.

use std::ffi::c_void;

use sterna::{DynView, DynViewMut, MAX_RANK};

use crate::data_type::{self, DataType};
use crate::ffi::{Fault, array};

/// Elements that a call reads, with dims and strides. The struct and what it points to are lent for the call.
#[repr(C)]
pub struct View {
    /// The first element; may be null if there is none.
    pub data: *const c_void,
    /// The type of the elements.
    pub data_type: DataType,
    /// The number of dims; 0 for a scalar.
    pub ndims: i32,
    /// The dims; null for a scalar.
    pub dims: *const i64,
    /// The strides, which count elements; null if the layout is dense and row-major.
    pub strides: *const i64,
}

/// Elements that a call writes, with dims and strides; otherwise as `sterna_view_t`.
#[repr(C)]
pub struct ViewMut {
    /// The first element; may be null if there is none.
    pub data: *mut c_void,
    /// The type of the elements.
    pub data_type: DataType,
    /// The number of dims; 0 for a scalar.
    pub ndims: i32,
    /// The dims; null for a scalar.
    pub dims: *const i64,
    /// The strides, which count elements; null if the layout is dense and row-major.
    pub strides: *const i64,
}

/// The dims of a view, and the strides if it has some.
pub(crate) type Shape<'a> = (&'a [i64], Option<&'a [i64]>);

/// # Safety
///
/// Unless they are null, so many dims and strides can be read for `'a`.
pub(crate) unsafe fn shape<'a>(
    name: &str,
    ndims: i32,
    dims: *const i64,
    strides: *const i64,
) -> Result<Shape<'a>, Fault> {
    let rank = usize::try_from(ndims).ok().filter(|&rank| rank <= MAX_RANK);
    let no_rank = || Fault::invalid_arguments(format!("`{name}`: {ndims} is no rank: it is 0 to {MAX_RANK}"));
    let rank = rank.ok_or_else(no_rank)?;
    // SAFETY: as the caller promises.
    unsafe {
        let strides = if strides.is_null() { None } else { Some(array(strides, rank, "strides")?) };
        Ok((array(dims, rank, "dims")?, strides))
    }
}

impl View {
    /// # Safety
    ///
    /// Dims, strides and the elements that they reach can be read, and nobody writes to the elements.
    pub(crate) unsafe fn to_core(&self, name: &str) -> Result<DynView<'_>, Fault> {
        let data_type = data_type::from_code(self.data_type)?;
        // SAFETY: as the caller promises.
        unsafe {
            let (dims, strides) = shape(name, self.ndims, self.dims, self.strides)?;
            Ok(DynView::from_raw_parts(data_type, self.data.cast(), dims, strides))
        }
    }
}

impl ViewMut {
    /// # Safety
    ///
    /// Dims and strides can be read, and nobody else uses the elements that they reach.
    pub(crate) unsafe fn to_core(&self, name: &str) -> Result<DynViewMut<'_>, Fault> {
        let data_type = data_type::from_code(self.data_type)?;
        // SAFETY: as the caller promises.
        unsafe {
            let (dims, strides) = shape(name, self.ndims, self.dims, self.strides)?;
            Ok(DynViewMut::from_raw_parts(data_type, self.data.cast(), dims, strides))
        }
    }
}
