//! The message of the last error.

use std::ffi::c_char;

use crate::ffi;

/// What was wrong with the last call on this thread that failed, as one sentence that names the op, the port and the
/// values that clash; empty if none has failed. A call that succeeds does not change it. The text is in UTF-8, belongs
/// to the library, and stays as it is until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_last_error_message() -> *const c_char {
    ffi::last_message()
}
