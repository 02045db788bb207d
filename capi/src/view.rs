//! Elements in the caller's memory, with dims and strides.

use std::ffi::{c_char, c_void};

use sterna::{DynView, DynViewMut, MAX_RANK};

use crate::data_type::{self, DataType};
use crate::ffi::{Fault, array, text};

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

/// Elements for an input of a session, with its name.
#[repr(C)]
pub struct NamedView {
    /// The name of the input, UTF-8 that ends with a zero.
    pub name: *const c_char,
    /// The elements.
    pub view: View,
}

/// Memory for an output of a session, with its name.
#[repr(C)]
pub struct NamedViewMut {
    /// The name of the output, UTF-8 that ends with a zero.
    pub name: *const c_char,
    /// The memory, which is dense and row-major.
    pub view: ViewMut,
}

/// The dims of an input, with its name.
#[repr(C)]
pub struct NamedDims {
    /// The name of the input, UTF-8 that ends with a zero.
    pub name: *const c_char,
    /// The number of dims; 0 for a scalar.
    pub ndims: i32,
    /// The dims; null for a scalar.
    pub dims: *const i64,
}

impl NamedDims {
    /// The dims of inputs, by name.
    ///
    /// # Safety
    ///
    /// Unless it is null, there are so many, each with text that ends with a zero, and its dims.
    pub(crate) unsafe fn read<'a>(at: *const Self, num: usize) -> Result<Vec<(&'a str, &'a [i64])>, Fault> {
        // SAFETY: as the caller promises.
        let all = unsafe { array(at, num, "dims") }?;
        // SAFETY: as above.
        let one = |of: &Self| unsafe {
            let name = text(of.name, "name")?;
            Ok((name, shape(name, of.ndims, of.dims, std::ptr::null())?.0))
        };
        all.iter().map(one).collect()
    }
}

/// The dims of a view, and the strides if it has some.
type Shape<'a> = (&'a [i64], Option<&'a [i64]>);

/// # Safety
///
/// Unless they are null, so many dims and strides can be read for `'a`.
unsafe fn shape<'a>(
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

impl NamedView {
    /// # Safety
    ///
    /// As for [`View::to_core`], and the name is text that ends with a zero.
    pub(crate) unsafe fn to_core(&self) -> Result<(&str, DynView<'_>), Fault> {
        // SAFETY: as the caller promises.
        unsafe {
            let name = text(self.name, "name")?;
            Ok((name, self.view.to_core(name)?))
        }
    }
}

impl NamedViewMut {
    /// # Safety
    ///
    /// As for [`ViewMut::to_core`], and the name is text that ends with a zero.
    pub(crate) unsafe fn to_core(&self) -> Result<(&str, DynViewMut<'_>), Fault> {
        // SAFETY: as the caller promises.
        unsafe {
            let name = text(self.name, "name")?;
            Ok((name, self.view.to_core(name)?))
        }
    }
}
