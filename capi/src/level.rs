//! CPU levels: how wide the vectors of the kernels are.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use crate::string::{name, names};

/// How wide the vectors of the kernels are: one of the `STERNA_LEVEL_*` numbers.
pub type Level = c_int;

/// The name of a level, such as `avx2`; null for a number that is no level. The text is constant and must not
/// be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_level_string(level: Level) -> *const c_char {
    static NAMES: LazyLock<Vec<(Level, CString)>> =
        LazyLock::new(|| names(sterna::Level::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, level)
}
