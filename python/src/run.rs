//! Calls of the library from Python: the interpreter is released, and nothing unwinds through it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::error::{internal_error, raised};
use crate::log;

/// Calls the library with the interpreter released, so that other threads of Python run.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> sterna::Result<T> + Send,
) -> PyResult<T> {
    log::ask(py);
    let result = detached_untold(py, call);
    log::hand_over(py);
    result
}

/// As [`detached`], for a call of which no log has to know.
pub(crate) fn detached_untold<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> sterna::Result<T> + Send,
) -> PyResult<T> {
    // The library keeps its own things whole if it panics, as its types promise.
    match py.detach(|| catch_unwind(AssertUnwindSafe(call))) {
        Ok(result) => result.map_err(|error| raised(py, error)),
        Err(panic) => Err(internal_error(py, &*panic)),
    }
}
