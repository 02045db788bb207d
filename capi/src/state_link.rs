//! Links from outputs of a run to inputs of the next one.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;

use crate::ffi::{Fault, text};
use crate::options::Options;

/// Says that an output of a run is an input of the next one: a cache of keys or values, or a hidden state.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then the fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StateLink {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The name of the input.
    pub past: *const c_char,
    /// The name of the output.
    pub present: *const c_char,
    /// The axis along which it grows, from the end if negative, if `has_axis` is not 0.
    pub axis: i64,
    /// Unless 0, `axis` counts; otherwise it is the last dim that the model leaves open, and without one the
    /// tensor does not grow and starts as zeros.
    pub has_axis: c_int,
    /// The most rows along the axis, for which a state has memory from the start; 0 for memory that doubles
    /// when it is used up.
    pub capacity: usize,
    /// The rows that are kept from run to run, the newest ones; 0 for all.
    pub window: usize,
    /// Unless 0, it does not grow and starts as zeros, whichever dims the model leaves open, such as the
    /// batch of a recurrent layer; `has_axis` is then 0.
    pub is_fixed: c_int,
}

// SAFETY: the struct is `repr(C)`, begins with its size, and is of integers and raw pointers.
unsafe impl Options for StateLink {
    const MIN_SIZE: usize = offset_of!(Self, axis);
}

impl StateLink {
    /// # Safety
    ///
    /// Unless they are null, the names are texts that end with a zero.
    pub(crate) unsafe fn to_core(self) -> Result<sterna::StateLink, Fault> {
        // SAFETY: as the caller promises.
        let (past, present) = unsafe { (text(self.past, "past")?, text(self.present, "present")?) };
        let mut link = sterna::StateLink::new(past, present);
        if self.is_fixed != 0 && self.has_axis != 0 {
            return Err(Fault::invalid_arguments("a link that has an axis is not fixed"));
        }
        if self.has_axis != 0 {
            link = link.axis(self.axis);
        }
        if self.is_fixed != 0 {
            link = link.fixed();
        }
        if self.capacity > 0 {
            link = link.capacity(self.capacity);
        }
        Ok(if self.window > 0 { link.window(self.window) } else { link })
    }
}
