//! The version of the library.

use std::ffi::{c_char, c_int, c_uint};

/// A version of the library. The layout is that of `dnnl_version_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Version {
    /// Changes if programs have to change.
    pub major: c_int,
    /// Changes if something is added.
    pub minor: c_int,
    /// Changes if something is corrected.
    pub patch: c_int,
    /// The version as text, with the name of the library.
    pub hash: *const c_char,
    /// The runtime for CPUs: a thread pool, 8.
    pub cpu_runtime: c_uint,
    /// The runtime for GPUs: none, 0.
    pub gpu_runtime: c_uint,
}

// SAFETY: the one pointer is to constant text.
unsafe impl Sync for Version {}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// The name of the library and its version, as C text.
pub const NAME_AND_VERSION: &str = concat!("sterna ", env!("CARGO_PKG_VERSION"), "\0");

/// The `cpu_runtime` of a library that runs work on a pool of threads.
pub const THREAD_POOL: c_uint = 8;

const fn number(digits: &str) -> c_int {
    let (digits, mut value, mut i) = (digits.as_bytes(), 0, 0);
    while i < digits.len() {
        value = 10 * value + (digits[i] - b'0') as c_int;
        i += 1;
    }
    value
}

static OF_LIBRARY: Version = Version {
    major: number(env!("CARGO_PKG_VERSION_MAJOR")),
    minor: number(env!("CARGO_PKG_VERSION_MINOR")),
    patch: number(env!("CARGO_PKG_VERSION_PATCH")),
    hash: NAME_AND_VERSION.as_ptr().cast(),
    cpu_runtime: THREAD_POOL,
    gpu_runtime: 0,
};

/// The version of the library that is loaded. It is constant and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_version() -> *const Version {
    &OF_LIBRARY
}

/// The version of the library that is loaded, such as "0.1.0". The text is constant and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_version_string() -> *const c_char {
    VERSION.as_ptr().cast()
}
