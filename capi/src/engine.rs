//! Engines: what partitions are compiled for and run on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::allocator::{Allocator, Callbacks};
use crate::ffi::{Fault, ffi_guard, require};
use crate::level::Level;
use crate::profiler::Profiler;
use crate::status::Status;

/// The kind of device of an engine: one of the `STERNA_ENGINE_KIND_*` numbers, which are those of
/// `dnnl_engine_kind_t`. There is one engine, of kind `cpu` and index 0.
pub type EngineKind = c_int;

/// Every kind with its name.
pub const ENGINE_KINDS: &[(EngineKind, &str)] = &[(0, "any"), (CPU, "cpu"), (2, "gpu")];

/// The kind of the one engine.
pub const CPU: EngineKind = 1;

/// A CPU with an allocator and a number of threads.
///
/// Any thread may use it at any time. Streams, tensors and compiled partitions keep the parts of their engine
/// that they need, so the engine may be destroyed before they are. Tensors, streams and compiled partitions
/// of one engine do not mix with those of another.
///
/// Worker threads start with the first execution that is worth more than one thread, and end after the last
/// of the engine, its streams, tensors and compiled partitions is destroyed. A process may fork while workers
/// live, if no other thread is inside a call at that moment: the child starts new workers.
pub struct Engine {
    core: sterna::Engine,
    /// The source of the memory of tensors, if it is not the system.
    callbacks: Option<Callbacks>,
}

impl Engine {
    /// The engine behind the handle.
    pub fn core(&self) -> &sterna::Engine {
        &self.core
    }

    /// The functions of the caller that give memory; none if the memory is that of the system.
    pub(crate) fn callbacks(&self) -> Option<Callbacks> {
        self.callbacks
    }
}

/// An engine handle: shared by everything that keeps the engine.
pub type Shared = Arc<Engine>;

/// Takes a share in a caller's engine.
///
/// # Safety
///
/// Unless it is null, the pointer is an engine that has not been destroyed.
pub unsafe fn share(engine: *const Engine) -> Result<Shared, Fault> {
    let engine = require(std::ptr::NonNull::new(engine.cast_mut()), "engine")?;
    // SAFETY: handles come from `create`, so the pointer is that of an `Arc` whose owner the caller has not
    // destroyed.
    unsafe {
        Arc::increment_strong_count(engine.as_ptr());
        Ok(Arc::from_raw(engine.as_ptr()))
    }
}

/// The handle of an engine for callers.
pub fn handle(engine: &Shared) -> *mut Engine {
    Arc::as_ptr(engine).cast_mut()
}

pub(crate) fn check_kind(kind: EngineKind) -> Result<(), Fault> {
    match ENGINE_KINDS.iter().find(|(code, _)| *code == kind) {
        Some(&(CPU, _)) => Ok(()),
        Some((_, name)) => {
            Err(Fault::invalid_arguments(format!("there is no engine of kind {name}, only of cpu")))
        }
        None => Err(Fault::unknown("engine kind", kind)),
    }
}

fn create(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
    threads: Option<usize>,
    stay_awake: bool,
    profiler: Option<&Profiler>,
) -> Result<(), Fault> {
    let engine = require(engine, "engine")?;
    check_kind(kind)?;
    if index != 0 {
        return Err(Fault::invalid_arguments(format!("there is one engine, of index 0, not {index}")));
    }
    let mut builder = sterna::Engine::builder().stay_awake(stay_awake);
    if let Some(allocator) = allocator {
        builder = builder.allocator(allocator.core());
    }
    if let Some(threads) = threads {
        builder = builder.threads(threads);
    }
    if let Some(profiler) = profiler {
        builder = builder.profiler(Arc::new(profiler.core()?));
    }
    let callbacks = allocator.and_then(Allocator::callbacks);
    engine.write(Arc::into_raw(Arc::new(Engine { core: builder.build(), callbacks })).cast_mut());
    Ok(())
}

/// The number of engines of a kind: 1 for `cpu`, 0 for any other kind.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_engine_get_count(kind: EngineKind) -> usize {
    usize::from(kind == CPU)
}

/// Makes an engine with the memory of the system and a thread for each hardware thread.
///
/// The environment variables `STERNA_NUM_THREADS` and, if that is not set, `OMP_NUM_THREADS` cap the threads
/// of every engine; they are read once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
) -> Status {
    ffi_guard(|| create(engine, kind, index, None, None, true, None))
}

/// Makes an engine that takes the memory of its tensors and its scratch memory from an allocator. The engine
/// copies the allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create_with_allocator(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
) -> Status {
    ffi_guard(|| create(engine, kind, index, Some(require(allocator, "allocator")?), None, true, None))
}

/// Makes an engine that runs each execution on up to `threads` threads, the caller's among them: with 0 or 1,
/// on the caller's alone. If the allocator is null, the memory is that of the system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create_with_threads(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
    threads: usize,
) -> Status {
    ffi_guard(|| create(engine, kind, index, allocator, Some(threads), true, None))
}

/// Makes an engine as `sterna_engine_create_with_threads` does, and sets whether its workers stay awake for
/// some microseconds after work, so that the next execution finds them awake: with 0 they sleep at once.
/// Workers of all other engines stay awake, unless the environment variable `STERNA_STAY_AWAKE` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create_with_workers(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
    threads: usize,
    stay_awake: c_int,
) -> Status {
    ffi_guard(|| create(engine, kind, index, allocator, Some(threads), stay_awake != 0, None))
}

/// Makes an engine as `sterna_engine_create_with_workers` does, and tells a profiler of each phase and each
/// execution of its compiled partitions. The engine copies the functions and the address of their data. The
/// other engines measure nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create_with_profiler(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
    threads: usize,
    stay_awake: c_int,
    profiler: Option<&Profiler>,
) -> Status {
    ffi_guard(|| {
        let profiler = require(profiler, "profiler")?;
        create(engine, kind, index, allocator, Some(threads), stay_awake != 0, Some(profiler))
    })
}

/// Reads the kind of an engine: always `cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_get_kind(
    engine: Option<&Engine>,
    kind: Option<&mut MaybeUninit<EngineKind>>,
) -> Status {
    ffi_guard(|| {
        require(engine, "engine")?;
        require(kind, "kind")?.write(CPU);
        Ok(())
    })
}

/// Reads how many threads an execution may use, the caller's among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_get_threads(
    engine: Option<&Engine>,
    threads: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let engine = require(engine, "engine")?;
        require(threads, "threads")?.write(engine.core.threads());
        Ok(())
    })
}

/// Reads the level of the kernels that partitions compiled for the engine use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_get_level(
    engine: Option<&Engine>,
    level: Option<&mut MaybeUninit<Level>>,
) -> Status {
    ffi_guard(|| {
        let engine = require(engine, "engine")?;
        require(level, "level")?.write(engine.core.level() as Level);
        Ok(())
    })
}

/// Destroys an engine; streams, tensors and compiled partitions made with it stay usable. Null is fine;
/// destroying one twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_destroy(engine: *mut Engine) -> Status {
    ffi_guard(|| {
        if !engine.is_null() {
            // SAFETY: the caller gives back what `create` handed out.
            drop(unsafe { Arc::from_raw(engine.cast_const()) });
        }
        Ok(())
    })
}
