//! Types of elements.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::LazyLock;

use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;
use crate::string::{name, names};

/// The type of the elements of a tensor: one of the `STERNA_DATA_TYPE_*` numbers. Those below 0x100 are those
/// of `dnnl_data_type_t`.
pub type DataType = c_int;

/// The type of this number.
pub fn from_code(code: DataType) -> Result<sterna::DataType, Fault> {
    let known = u32::try_from(code).ok().and_then(sterna::DataType::from_code);
    known.ok_or_else(|| Fault::unknown("data type", code))
}

/// The name of a data type, such as `f32`; null for a number that is no type. The text is constant and must
/// not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_data_type_string(data_type: DataType) -> *const c_char {
    static NAMES: LazyLock<Vec<(DataType, CString)>> =
        LazyLock::new(|| names(sterna::DataType::ALL.iter().map(|one| (one.code(), one.name()))));
    name(&NAMES, data_type)
}

/// The bytes that one element of a data type takes; 0 for `undef` and for the 4-bit types, because two of
/// them share a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_data_type_get_size(
    data_type: DataType,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let size = require(size, "size")?;
        size.write(from_code(data_type)?.size().unwrap_or(0));
        Ok(())
    })
}
