//! Elements and dims of inputs and outputs of a session, by name.

use std::ffi::c_char;

use smallvec::SmallVec;
use sterna::{AsDynView, AsDynViewMut, DynView, DynViewMut};

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

/// Inputs by name.
type NamedInputs<'a> = SmallVec<[(&'a str, DynView<'a>); 8]>;

/// Memory for outputs, by name.
type NamedOutputs<'a> = SmallVec<[(&'a str, DynViewMut<'a>); 4]>;

impl NamedView {
    /// Inputs by name.
    ///
    /// # Safety
    ///
    /// Unless it is null, there are so many, each as for [`View::to_core`] and with text that ends with a
    /// zero.
    pub(crate) unsafe fn read<'a>(at: *const Self, num: usize) -> Result<NamedInputs<'a>, Fault> {
        // SAFETY: as the caller promises.
        let views = unsafe { array(at, num, "inputs") }?;
        // SAFETY: as above.
        let view = |of: &'a Self| unsafe {
            let name = text(of.name, "name")?;
            Ok((name, of.view.to_core(name)?))
        };
        views.iter().map(view).collect()
    }
}

impl NamedViewMut {
    /// Memory for outputs, by name.
    ///
    /// # Safety
    ///
    /// Unless it is null, there are so many, each as for [`ViewMut::to_core`] and with text that ends with a
    /// zero.
    pub(crate) unsafe fn read<'a>(at: *const Self, num: usize) -> Result<NamedOutputs<'a>, Fault> {
        // SAFETY: as the caller promises.
        let views = unsafe { array(at, num, "outputs") }?;
        // SAFETY: as above.
        let view = |of: &'a Self| unsafe {
            let name = text(of.name, "name")?;
            Ok((name, of.view.to_core(name)?))
        };
        views.iter().map(view).collect()
    }
}

/// Inputs as a session takes them.
pub(crate) fn as_inputs<'a>(inputs: &'a NamedInputs<'_>) -> SmallVec<[(&'a str, &'a dyn AsDynView); 8]> {
    inputs.iter().map(|(name, view)| (*name, view as &dyn AsDynView)).collect()
}

/// Memory for outputs as a session takes it.
pub(crate) fn as_outputs<'a>(
    outputs: &'a mut NamedOutputs<'_>,
) -> SmallVec<[(&'a str, &'a mut dyn AsDynViewMut); 4]> {
    outputs.iter_mut().map(|(name, view)| (*name, view as &mut dyn AsDynViewMut)).collect()
}
