//! Structs of options, which begin with their size, so that later versions may add fields at the end.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::ffi::{Fault, require};

/// A struct of options that begins with its size.
///
/// # Safety
///
/// The struct is `repr(C)`, begins with a `usize`, and is of integers, floats and raw pointers.
pub(crate) unsafe trait Options: Sized {
    /// The least size of a caller's struct: what has no default must be in it.
    const MIN_SIZE: usize;

    /// The options of a caller, who may know fewer fields, or more.
    ///
    /// # Safety
    ///
    /// Unless the address is null, a size stands there, and as many bytes can be read.
    unsafe fn read(at: *const Self, name: &'static str) -> Result<Self, Fault> {
        let at = require(NonNull::new(at.cast_mut()), name)?.as_ptr();
        if !at.is_aligned() {
            return Err(Fault::invalid_arguments(format!("`{name}` is not aligned")));
        }
        let mut options = MaybeUninit::<Self>::zeroed();
        // SAFETY: the address is not null and aligned, the struct begins with its size, and the caller
        // promises the rest. Any bits are integers, floats and raw pointers, 0 for those not given.
        unsafe {
            read_bytes(at.cast(), name, Self::MIN_SIZE, options.as_mut_ptr().cast(), size_of::<Self>())?;
            Ok(options.assume_init())
        }
    }
}

/// Copies a struct of `min_size` bytes at least to one of `room` bytes.
///
/// # Safety
///
/// The size of the struct stands at its start, and as many bytes can be read; the target has its room, and is
/// another place.
unsafe fn read_bytes(
    at: *const u8,
    name: &'static str,
    min_size: usize,
    to: *mut u8,
    room: usize,
) -> Result<(), Fault> {
    // SAFETY: the caller promises that the size stands there.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    if size < min_size || size > isize::MAX as usize {
        let message = format!("`struct_size` is {size}; the options have {min_size} bytes at least");
        return Err(Fault::invalid_arguments(message));
    }
    // SAFETY: the caller promises that so many bytes can be read.
    let bytes = unsafe { std::slice::from_raw_parts(at, size) };
    let known = size.min(room);
    if bytes[known..].iter().any(|&byte| byte != 0) {
        let message = format!("`{name}` sets an option behind those that this version of the library knows");
        return Err(Fault::unimplemented(message));
    }
    // SAFETY: the target has room for `known` bytes, and is another place than the caller's struct.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, known) };
    Ok(())
}

/// The object at an address, if that is not null.
///
/// # Safety
///
/// Unless the address is null or not aligned, an object can be read there for the lifetime.
pub(crate) unsafe fn aligned<'a, T>(at: *const T, name: &'static str) -> Result<Option<&'a T>, Fault> {
    if !at.is_aligned() {
        return Err(Fault::invalid_arguments(format!("`{name}` is not aligned")));
    }
    // SAFETY: the address is null or aligned, and the caller promises the rest.
    Ok(unsafe { at.as_ref() })
}
