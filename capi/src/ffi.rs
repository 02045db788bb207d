//! The code that all functions of the interface share: null checks, the panic barrier, and the way from an
//! error to a status and a message.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use crate::status::{self, Status};

const _: () = assert!(cfg!(panic = "unwind"), "the barrier stops panics, which takes unwinding");

/// Why a call fails: its status, and the sentence that `sterna_last_error_message` returns.
#[derive(Debug)]
pub struct Fault {
    status: Status,
    message: Cow<'static, str>,
}

impl Fault {
    /// A fault of the caller.
    pub fn invalid_arguments(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: status::INVALID_ARGUMENTS, message: message.into() }
    }

    /// A feature that is known but not implemented.
    pub fn unimplemented(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: status::UNIMPLEMENTED, message: message.into() }
    }

    /// A fault of another status.
    pub fn of_status(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into() }
    }

    /// A fault of this library.
    pub(crate) fn runtime_error(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: status::RUNTIME_ERROR, message: message.into() }
    }

    /// A number that has no meaning.
    pub fn unknown(what: &str, number: impl std::fmt::Display) -> Self {
        Self::invalid_arguments(format!("{number} is no {what}"))
    }

    /// A count that differs from the required one.
    pub(crate) fn count(what: &str, given: usize, needed: usize) -> Self {
        Self::invalid_arguments(format!("there are {needed} {what}, not {given}"))
    }
}

impl From<sterna::Error> for Fault {
    fn from(error: sterna::Error) -> Self {
        Self { status: error.status() as Status, message: error.to_string().into() }
    }
}

thread_local! {
    static LAST_MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function of the interface. An error or a panic comes back as a status.
#[inline]
pub fn ffi_guard(body: impl FnOnce() -> Result<(), Fault>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => status::SUCCESS,
        Ok(Err(fault)) => record(fault),
        Err(panic) => record(panicked(panic)),
    }
}

/// Runs the body of a function that returns no status; a panic returns `made_up`.
pub fn value_of<T>(made_up: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        record(panicked(panic));
        made_up
    })
}

#[cold]
fn record(fault: Fault) -> Status {
    // A thread that is ending has no message.
    let _ = LAST_MESSAGE.try_with(|last| *last.borrow_mut() = c_string(&fault.message));
    fault.status
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let fault = Fault::runtime_error(format!("a panic was stopped at the border to C: {text}"));
    // The code that panicked chose the type of the payload, whose destructor might panic too.
    std::mem::forget(panic);
    fault
}

/// The sentence of the last fault on this thread; empty if there was none. The text is valid until the next
/// fault.
pub(crate) fn last_message() -> *const c_char {
    LAST_MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Text for C, in which a zero in the middle is written out.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text).or_else(|_| CString::new(text.replace('\0', "\\0"))).unwrap_or_default()
}

/// The object behind a pointer that must not be null.
#[inline]
pub fn require<T>(pointer: Option<T>, name: &'static str) -> Result<T, Fault> {
    #[cold]
    fn is_null(name: &str) -> Fault {
        Fault::invalid_arguments(format!("`{name}` is null"))
    }
    pointer.ok_or_else(|| is_null(name))
}

/// The object behind an element of an array of pointers, none of which may be null.
#[inline]
pub(crate) fn require_at<T>(pointer: Option<T>, name: &'static str, index: usize) -> Result<T, Fault> {
    #[cold]
    fn is_null(name: &str, index: usize) -> Fault {
        Fault::invalid_arguments(format!("`{name}[{index}]` is null"))
    }
    pointer.ok_or_else(|| is_null(name, index))
}

/// An array of the caller.
///
/// # Safety
///
/// Unless the address is null, `len` values can be read there, and nobody writes to them for `'a`.
#[inline]
pub unsafe fn array<'a, T>(at: *const T, len: usize, name: &'static str) -> Result<&'a [T], Fault> {
    check_array(at, len, name)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the address is not null and is aligned, the size is within bounds; the rest is promised by the
    // caller.
    Ok(unsafe { slice::from_raw_parts(at, len) })
}

/// Fills an array of the caller.
///
/// # Safety
///
/// Unless the address is null, all values can be written there.
pub(crate) unsafe fn fill<T>(
    at: *mut T,
    values: impl ExactSizeIterator<Item = T>,
    name: &'static str,
) -> Result<(), Fault> {
    check_array(at, values.len(), name)?;
    for (i, value) in values.enumerate() {
        // SAFETY: the address is not null and is aligned; the caller promises that there is room for so many.
        unsafe { at.add(i).write(value) };
    }
    Ok(())
}

/// Refuses an address that is no array of so many values.
#[inline]
pub(crate) fn check_array<T>(at: *const T, len: usize, name: &'static str) -> Result<(), Fault> {
    #[cold]
    fn refuse(name: &str, why: &str) -> Fault {
        Fault::invalid_arguments(format!("`{name}` {why}"))
    }
    if len == 0 {
        Ok(())
    } else if at.is_null() {
        Err(refuse(name, "is null"))
    } else if !at.is_aligned() {
        Err(refuse(name, "is not aligned"))
    } else if len.checked_mul(size_of::<T>()).is_none_or(|size| size > isize::MAX as usize) {
        Err(refuse(name, "is longer than the address space"))
    } else {
        Ok(())
    }
}

/// Text of the caller, up to its zero.
///
/// # Safety
///
/// Unless the address is null, text that ends with a zero stands there, and nobody changes it for `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char, name: &'static str) -> Result<&'a str, Fault> {
    let at = require(std::ptr::NonNull::new(at.cast_mut()), name)?;
    // SAFETY: the address is not null; the rest is promised by the caller.
    let text = unsafe { CStr::from_ptr(at.as_ptr()) };
    text.to_str().map_err(|_| Fault::invalid_arguments(format!("`{name}` is not UTF-8")))
}
