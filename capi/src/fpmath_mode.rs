//! How far floating-point arithmetic may be relaxed.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;

/// How far floating-point arithmetic may be relaxed: one of the `STERNA_FPMATH_MODE_*` numbers, which are
/// those of `dnnl_fpmath_mode_t`. A graph carries its mode and writes it to JSON; it is computed as under
/// `strict` in every mode.
pub type FpMathMode = c_int;

static DEFAULT: AtomicI32 = AtomicI32::new(sterna::FpMathMode::Strict as FpMathMode);

pub(crate) fn from_code(code: FpMathMode) -> Result<sterna::FpMathMode, Fault> {
    let known = u32::try_from(code).ok().and_then(sterna::FpMathMode::from_code);
    known.ok_or_else(|| Fault::unknown("floating-point math mode", code))
}

/// The mode of graphs that are created without one.
pub fn default() -> FpMathMode {
    DEFAULT.load(Ordering::Relaxed)
}

/// Reads the mode that graphs created without one get; `strict` unless it was set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_fpmath_mode_get_default(
    mode: Option<&mut MaybeUninit<FpMathMode>>,
) -> Status {
    ffi_guard(|| {
        require(mode, "mode")?.write(default());
        Ok(())
    })
}

/// Sets the mode that graphs created without one get from now on, in the whole process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_fpmath_mode_set_default(mode: FpMathMode) -> Status {
    ffi_guard(|| {
        from_code(mode)?;
        DEFAULT.store(mode, Ordering::Relaxed);
        Ok(())
    })
}
