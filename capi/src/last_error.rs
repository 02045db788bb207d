//! The message of the last error.

use std::ffi::c_char;

use crate::ffi;

/// The error of the last failed call on this thread: one sentence that names the op, the port and the values
/// that clash; empty if no call has failed. A successful call does not change it. The text is UTF-8, belongs
/// to the library, and stays valid until the next failed call on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_last_error_message() -> *const c_char {
    ffi::last_message()
}
