//! The cache of constant tensors: what compiled partitions keep of inputs of property constant.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{CPU, ENGINE_KINDS, EngineKind};
use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;

/// The capacity for kinds of engines of which there are none, in MiB.
static OTHER: AtomicUsize = AtomicUsize::new(0);

/// The size of the address space in MiB.
const MAX_SIZE: usize = usize::MAX >> 20;

fn check(kind: EngineKind) -> Result<(), Fault> {
    match ENGINE_KINDS.iter().find(|(code, _)| *code == kind) {
        Some((1.., _)) => Ok(()),
        known => {
            let name = known.map_or_else(|| kind.to_string(), |(_, name)| (*name).to_owned());
            Err(Fault::unknown("engine kind with a cache", name))
        }
    }
}

/// Reads the capacity for a kind, in MiB.
fn get(kind: EngineKind) -> usize {
    if kind == CPU { sterna::constant_cache_capacity() >> 20 } else { OTHER.load(Ordering::Relaxed) }
}

/// Sets the capacity for a kind, in MiB.
pub fn set(kind: EngineKind, size: usize) {
    let size = size.min(MAX_SIZE);
    match kind {
        CPU => sterna::set_constant_cache_capacity(size << 20),
        _ => OTHER.store(size, Ordering::Relaxed),
    }
}

/// Reads whether constant tensors are cached: 1 if a kind of engine has a capacity, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_get(flag: Option<&mut MaybeUninit<c_int>>) -> Status {
    ffi_guard(|| {
        let is_on = ENGINE_KINDS.iter().any(|&(kind, _)| get(kind) > 0);
        require(flag, "flag")?.write(is_on.into());
        Ok(())
    })
}

/// Sets whether constant tensors are cached: 0 sets every capacity to 0, a positive number sets each to the
/// size of the address space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_set(flag: c_int) -> Status {
    ffi_guard(|| {
        if flag < 0 {
            return Err(Fault::invalid_arguments(format!("the flag {flag} is negative")));
        }
        let capacity = if flag == 0 { 0 } else { MAX_SIZE };
        ENGINE_KINDS.iter().for_each(|&(kind, _)| set(kind, capacity));
        Ok(())
    })
}

/// Reads the capacity of the cache of constant tensors for a kind of engine, in MiB: for `cpu`, unless it
/// was set, half of the memory that the process may use, or 64 if the system does not tell it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_get_capacity(
    engine_kind: EngineKind,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let size = require(size, "size")?;
        check(engine_kind)?;
        size.write(get(engine_kind));
        Ok(())
    })
}

/// Sets the capacity of the cache of constant tensors for a kind of engine, in MiB; 0 keeps nothing, and a
/// larger number than the size of the address space becomes that size.
///
/// The first execution of a compiled partition packs what a product reads of inputs of property constant
/// alone, and later executions with the same addresses read the packed copy. So the contents must not change
/// as long as the compiled partition is in use. Another address means packing again. The copy belongs to the
/// compiled partition, and comes from its engine's allocator. If the capacity is used up or the allocator has
/// no memory, each execution packs for itself. If the capacity becomes less than what is kept, each compiled
/// partition gives its copy back when it is executed next, or destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_set_capacity(
    engine_kind: EngineKind,
    size: usize,
) -> Status {
    ffi_guard(|| {
        check(engine_kind)?;
        set(engine_kind, size);
        Ok(())
    })
}
