//! The fast forms that plans do not take, and the reasons.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use crate::string::{name, names};

/// A form of computation that saves time or memory: one of the `STERNA_FAST_FORM_*` numbers.
pub type FastForm = c_int;

/// The reason for which a plan did not take a fast form: one of the `STERNA_FALLBACK_REASON_*` numbers.
pub type FallbackReason = c_int;

/// A fast form that a plan did not take.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Fallback {
    /// The form; `sterna_fast_form_string` names it.
    pub form: FastForm,
    /// The reason; `sterna_fallback_reason_string` names it.
    pub reason: FallbackReason,
    /// The id of the op that would have had the form.
    pub op_id: usize,
}

impl Fallback {
    pub(crate) fn of(summary: &sterna::FallbackSummary) -> Self {
        let sterna::FallbackSummary { form, op, reason, .. } = summary;
        Self { form: form.code() as FastForm, reason: reason.code() as FallbackReason, op_id: op.id.get() }
    }
}

/// The name of a fast form, such as `decode`; null for a number that is no form. The text is constant and
/// must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_fast_form_string(form: FastForm) -> *const c_char {
    static NAMES: LazyLock<Vec<(FastForm, CString)>> =
        LazyLock::new(|| names(sterna::FastForm::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, form)
}

/// The name of a reason, such as `softmax_axis`; null for a number that is no reason. The text is constant
/// and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_fallback_reason_string(reason: FallbackReason) -> *const c_char {
    static NAMES: LazyLock<Vec<(FallbackReason, CString)>> =
        LazyLock::new(|| names(sterna::FallbackReason::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, reason)
}
