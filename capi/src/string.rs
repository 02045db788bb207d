//! Text that the library hands out.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use crate::ffi::{c_string, status_of};
use crate::status::Status;

/// Hands text out, to be given back to `sterna_string_destroy`.
pub(crate) fn give(text: &str, to: &mut MaybeUninit<*mut c_char>, length: Option<&mut MaybeUninit<usize>>) {
    let text = c_string(text);
    if let Some(length) = length {
        length.write(text.as_bytes().len());
    }
    to.write(text.into_raw());
}

/// Frees text that a function of this library handed out to be freed so. Null is fine; freeing the same text twice is
/// an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_string_destroy(string: *mut c_char) -> Status {
    status_of(|| {
        if !string.is_null() {
            // SAFETY: the caller promises that the text came from `give` and has not been freed.
            drop(unsafe { CString::from_raw(string) });
        }
        Ok(())
    })
}
