//! Elements and dims of inputs and outputs of a session, by name.

use std::ffi::c_char;

use sterna::{DynView, DynViewMut};

use crate::ffi::{Fault, array, text};
use crate::view::{View, ViewMut, shape};

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
