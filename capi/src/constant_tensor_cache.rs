//! The settings of the cache of constant tensors. They have no effect: nothing is computed ahead of time.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{ENGINE_KINDS, EngineKind};
use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;

/// The capacity for each kind of engine, in MiB.
static CAPACITIES: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The size of the address space in MiB.
const MOST: usize = usize::MAX >> 20;

fn capacity_of(kind: EngineKind) -> Result<&'static AtomicUsize, Fault> {
    let place = kind.checked_sub(1).and_then(|place| CAPACITIES.get(usize::try_from(place).ok()?));
    place.ok_or_else(|| {
        let name = ENGINE_KINDS.iter().find(|(code, _)| *code == kind).map(|(_, name)| *name);
        Fault::unknown("engine kind with a cache", name.map_or(kind.to_string(), str::to_owned))
    })
}

/// Reads whether constant tensors are to be cached: 1 or 0. The setting is kept, and has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_get(flag: Option<&mut MaybeUninit<c_int>>) -> Status {
    ffi_guard(|| {
        let is_on = CAPACITIES.iter().any(|capacity| capacity.load(Ordering::Relaxed) > 0);
        require(flag, "flag")?.write(is_on.into());
        Ok(())
    })
}

/// Sets whether constant tensors are to be cached: 0 sets every capacity to 0, a positive number sets each to
/// the size of the address space. The setting is kept, and has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_set(flag: c_int) -> Status {
    ffi_guard(|| {
        if flag < 0 {
            return Err(Fault::invalid_arguments(format!("the flag {flag} is negative")));
        }
        let capacity = if flag == 0 { 0 } else { MOST };
        CAPACITIES.iter().for_each(|one| one.store(capacity, Ordering::Relaxed));
        Ok(())
    })
}

/// Reads the capacity of the cache of constant tensors for a kind of engine, in MiB. The setting is kept, and
/// has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_get_capacity(
    engine_kind: EngineKind,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let size = require(size, "size")?;
        size.write(capacity_of(engine_kind)?.load(Ordering::Relaxed));
        Ok(())
    })
}

/// Sets the capacity of the cache of constant tensors for a kind of engine, in MiB; a larger number than the
/// size of the address space becomes that size. The setting is kept, and has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_constant_tensor_cache_set_capacity(
    engine_kind: EngineKind,
    size: usize,
) -> Status {
    ffi_guard(|| {
        capacity_of(engine_kind)?.store(size.min(MOST), Ordering::Relaxed);
        Ok(())
    })
}
