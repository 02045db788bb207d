//! Why a call fails: its status, and the sentence that `sterna_models_last_error_message` returns.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::sterna_h::{Status, sterna_last_error_message};

const SUCCESS: Status = sterna::Status::Success as Status;
const INVALID_ARGUMENTS: Status = sterna::Status::InvalidArguments as Status;
const RUNTIME_ERROR: Status = sterna::Status::RuntimeError as Status;

/// A status and its sentence.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn invalid_arguments(message: impl Into<String>) -> Self {
        Self { status: INVALID_ARGUMENTS, message: message.into() }
    }
}

impl From<sterna_import::Error> for Fault {
    fn from(error: sterna_import::Error) -> Self {
        let status = match &error {
            sterna_import::Error::Graph(error) => error.status() as Status,
            _ => INVALID_ARGUMENTS,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<sterna::Error> for Fault {
    fn from(error: sterna::Error) -> Self {
        Self { status: error.status() as Status, message: error.to_string() }
    }
}

/// The fault of a call of the other library.
pub(crate) fn check(status: Status) -> Result<(), Fault> {
    if status == SUCCESS {
        return Ok(());
    }
    // SAFETY: the text is valid until the next fault of this thread.
    let message = unsafe { CStr::from_ptr(sterna_last_error_message()) };
    Err(Fault { status, message: message.to_string_lossy().into_owned() })
}

thread_local! {
    static LAST_MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a body. An error or a panic comes back as a status and a sentence.
pub(crate) fn caught(body: impl FnOnce() -> Result<(), Fault>) -> (Status, String) {
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return (SUCCESS, String::new()),
        Ok(Err(fault)) => fault,
        Err(panic) => panicked(panic),
    };
    (fault.status, fault.message)
}

/// Runs the body of a function of the interface; the sentence of an error is kept for the thread.
pub(crate) fn ffi_guard(body: impl FnOnce() -> Result<(), Fault>) -> Status {
    let (status, message) = caught(body);
    if status != SUCCESS {
        // A thread that is ending has no message.
        let _ = LAST_MESSAGE.try_with(|last| *last.borrow_mut() = c_string(&message));
    }
    status
}

fn panicked(panic: Box<dyn Any + Send>) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let message = format!("a panic was stopped at the border to C: {text}");
    // The code that panicked chose the type of the payload, whose destructor might panic too.
    std::mem::forget(panic);
    Fault { status: RUNTIME_ERROR, message }
}

/// The sentence of the last fault on this thread.
pub(crate) fn last_message() -> *const c_char {
    LAST_MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Text for C, in which a zero in the middle is written out.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).or_else(|_| CString::new(text.replace('\0', "\\0"))).unwrap_or_default()
}

/// The object behind a pointer that must not be null.
pub(crate) fn require<T>(pointer: Option<T>, name: &str) -> Result<T, Fault> {
    pointer.ok_or_else(|| Fault::invalid_arguments(format!("`{name}` is null")))
}

/// Text of the caller, up to its zero.
///
/// # Safety
///
/// Unless the address is null, text that ends with a zero stands there, and nobody changes it for `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &str) -> Result<&'a str, Fault> {
    let at = require(NonNull::new(at.cast_mut()), name)?;
    // SAFETY: the address is not null; the rest is promised by the caller.
    let text = unsafe { CStr::from_ptr(at.as_ptr()) };
    text.to_str().map_err(|_| Fault::invalid_arguments(format!("`{name}` is not UTF-8")))
}

/// Values of the caller.
///
/// # Safety
///
/// Unless the address is null, `len` values can be read there, and nobody writes to them for `'a`.
pub(crate) unsafe fn array<'a, T>(at: *const T, len: usize, name: &str) -> Result<&'a [T], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    require(NonNull::new(at.cast_mut()), name)?;
    let is_long = len.checked_mul(size_of::<T>()).is_none_or(|size| size > isize::MAX as usize);
    if is_long || !at.is_aligned() {
        return Err(Fault::invalid_arguments(format!("`{name}` is not aligned, or too long")));
    }
    // SAFETY: the address is not null and is aligned, the size is within bounds; the rest is promised.
    Ok(unsafe { std::slice::from_raw_parts(at, len) })
}
