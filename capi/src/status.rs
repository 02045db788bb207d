//! Statuses of calls.

use std::ffi::{CStr, c_char, c_int};

/// The status of a call: one of the `STERNA_STATUS_*` numbers, 0 for success. They are those of
/// `dnnl_status_t`.
pub type Status = c_int;

pub(crate) const SUCCESS: Status = sterna::Status::Success as Status;
pub(crate) const INVALID_ARGUMENTS: Status = sterna::Status::InvalidArguments as Status;
pub(crate) const UNIMPLEMENTED: Status = sterna::Status::Unimplemented as Status;
pub(crate) const RUNTIME_ERROR: Status = sterna::Status::RuntimeError as Status;

/// Every status with its name. `last_impl_reached` and `not_required` are oneDNN's; no call here ends with
/// them.
pub const STATUSES: &[(Status, &CStr)] = &[
    (SUCCESS, c"success"),
    (sterna::Status::OutOfMemory as Status, c"out_of_memory"),
    (INVALID_ARGUMENTS, c"invalid_arguments"),
    (UNIMPLEMENTED, c"unimplemented"),
    (4, c"last_impl_reached"),
    (RUNTIME_ERROR, c"runtime_error"),
    (6, c"not_required"),
    (sterna::Status::InvalidGraph as Status, c"invalid_graph"),
    (sterna::Status::InvalidGraphOp as Status, c"invalid_graph_op"),
    (sterna::Status::InvalidShape as Status, c"invalid_shape"),
    (sterna::Status::InvalidDataType as Status, c"invalid_data_type"),
];

/// The name of a status, such as `invalid_arguments`; "unknown status" for a number that is none. The text is
/// constant and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_status_string(status: Status) -> *const c_char {
    let row = STATUSES.iter().find(|(code, _)| *code == status);
    row.map_or(c"unknown status", |(_, name)| name).as_ptr()
}
