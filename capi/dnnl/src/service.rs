//! Settings of oneDNN's primitives as a whole. Nothing here has a primitive cache or code that is
//! made at run time, so most of it is only checked, kept and read back.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use sterna_capi::ffi::{Fault, ffi_guard, require};
use sterna_capi::status::Status;

static PRIMITIVE_CACHE: AtomicI32 = AtomicI32::new(1024);
static ISA_HINTS: AtomicI32 = AtomicI32::new(0);

#[unsafe(no_mangle)]
extern "C" fn dnnl_get_primitive_cache_capacity(capacity: Option<&mut MaybeUninit<c_int>>) -> Status {
    ffi_guard(|| {
        require(capacity, "capacity")?.write(PRIMITIVE_CACHE.load(Ordering::Relaxed));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_set_primitive_cache_capacity(capacity: c_int) -> Status {
    ffi_guard(|| {
        if capacity < 0 {
            return Err(Fault::unknown("capacity", capacity));
        }
        PRIMITIVE_CACHE.store(capacity, Ordering::Relaxed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_get_cpu_isa_hints() -> c_int {
    ISA_HINTS.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_set_cpu_isa_hints(hints: c_int) -> Status {
    ffi_guard(|| {
        if !(0..=1).contains(&hints) {
            return Err(Fault::unknown("set of instruction set hints", hints));
        }
        ISA_HINTS.store(hints, Ordering::Relaxed);
        Ok(())
    })
}

/// There is no code made at run time that could be written out.
#[unsafe(no_mangle)]
extern "C" fn dnnl_set_jit_dump(_enable: c_int) -> Status {
    ffi_guard(|| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_set_jit_profiling_flags(flags: c_uint) -> Status {
    const KNOWN: c_uint = 15;
    ffi_guard(|| match flags & !KNOWN {
        0 => Ok(()),
        _ => Err(Fault::unknown("set of profiling flags", flags)),
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_set_jit_profiling_jitdumpdir(_dir: *const c_char) -> Status {
    ffi_guard(|| Ok(()))
}
