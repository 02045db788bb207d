//! Functions of the caller's that the library calls: how they are told to end, and how they tell an error.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::status;

/// Bytes of the message of a function of the caller, its zero among them.
const MESSAGE: usize = 512;

/// A function that gets the data of the caller back: nothing of what was lent with it is used any more. It
/// may be called from any thread.
pub type Release = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void)>;

/// Calls a function that answers with a status and writes a message.
pub(crate) fn told(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), String> {
    let mut message = [0u8; MESSAGE];
    let answer = call(message.as_mut_ptr().cast(), MESSAGE);
    if answer == status::SUCCESS {
        return Ok(());
    }
    let said = CStr::from_bytes_until_nul(&message).unwrap_or_default().to_string_lossy();
    match said.is_empty() {
        false => Err(said.into_owned()),
        true => Err(format!("it answers with status {answer}")),
    }
}
