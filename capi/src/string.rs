//! Text that the library returns.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::LazyLock;

use crate::ffi::{c_string, ffi_guard, value_of};
use crate::status::Status;

/// Gives text to a caller, who frees it by `sterna_string_destroy`.
pub(crate) fn into_c_string(
    text: &str,
    to: &mut MaybeUninit<*mut c_char>,
    length: Option<&mut MaybeUninit<usize>>,
) {
    let text = c_string(text);
    if let Some(length) = length {
        length.write(text.as_bytes().len());
    }
    to.write(text.into_raw());
}

/// Numbers with their names, as C text that is made once.
pub(crate) fn names(all: impl Iterator<Item = (u32, &'static str)>) -> Vec<(c_int, CString)> {
    all.map(|(code, name)| (code as c_int, c_string(name))).collect()
}

/// The name of a number; null if it has none.
pub(crate) fn name(names: &LazyLock<Vec<(c_int, CString)>>, code: c_int) -> *const c_char {
    let find = || names.iter().find(|(known, _)| *known == code).map(|(_, name)| name.as_ptr());
    value_of(None, find).unwrap_or(ptr::null())
}

/// Frees text from a function of this library whose documentation says so. Null is fine; freeing one text
/// twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_string_destroy(string: *mut c_char) -> Status {
    ffi_guard(|| {
        if !string.is_null() {
            // SAFETY: the caller promises that the text came from `into_c_string` and has not been freed.
            drop(unsafe { CString::from_raw(string) });
        }
        Ok(())
    })
}
