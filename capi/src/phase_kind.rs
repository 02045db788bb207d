//! The kinds of the phases in which compiled partitions run.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use crate::string::{name, names};

/// The computation of a phase of a compiled partition: one of the `STERNA_PHASE_KIND_*` numbers.
pub type PhaseKind = c_int;

/// The name of a kind of phase, such as `gemm`; null for a number that is no kind. The text is constant and
/// must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_phase_kind_string(kind: PhaseKind) -> *const c_char {
    static NAMES: LazyLock<Vec<(PhaseKind, CString)>> =
        LazyLock::new(|| names(sterna::PhaseKind::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, kind)
}
