//! Engines: what partitions are compiled for and run on.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::allocator::{Allocator, Callbacks};
use crate::ffi::{Fault, ffi_guard, require};
use crate::level::Level;
use crate::options::{Options, aligned};
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

/// The options of `sterna_engine_create_with_options`.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
/// defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
/// knows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EngineOptions {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The source of the memory of tensors and of scratch memory, of which the engine makes a copy; null for
    /// the system.
    pub allocator: *const Allocator,
    /// Functions that are told of each phase and each execution of the engine's compiled partitions. The
    /// engine copies the functions and the address of their data. Null for none: nothing is measured.
    pub profiler: *const Profiler,
    /// The most threads of an execution, the caller's among them: 1 is the caller's alone; 0 for a thread for
    /// each hardware thread. An engine has 1,024 at most; the environment may lower it.
    pub threads: usize,
    /// Unless 0, workers sleep at once after work. Otherwise they stay awake for some microseconds, so that
    /// the next execution finds them awake, unless the environment variable `STERNA_STAY_AWAKE` is 0.
    pub sleep_at_once: c_int,
}

// SAFETY: the struct is `repr(C)`, begins with its size, and is of integers and raw pointers.
unsafe impl Options for EngineOptions {
    const MIN_SIZE: usize = size_of::<usize>();
}

impl EngineOptions {
    /// The options that all engines have unless told otherwise.
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>(),
        allocator: ptr::null(),
        profiler: ptr::null(),
        threads: 0,
        sleep_at_once: 0,
    };

    /// An engine with these options.
    ///
    /// # Safety
    ///
    /// Each pointer is null or not aligned, or what its type says can be read there.
    unsafe fn build(self) -> Result<Engine, Fault> {
        // SAFETY: as the caller promises.
        let (allocator, profiler) =
            unsafe { (aligned(self.allocator, "allocator")?, aligned(self.profiler, "profiler")?) };
        let mut builder = sterna::Engine::builder().stay_awake(self.sleep_at_once == 0);
        if let Some(allocator) = allocator {
            builder = builder.allocator(allocator.core());
        }
        if self.threads > 0 {
            builder = builder.threads(self.threads);
        }
        if let Some(profiler) = profiler {
            builder = builder.profiler(Arc::new(profiler.core()?));
        }
        Ok(Engine { core: builder.build(), callbacks: allocator.and_then(Allocator::callbacks) })
    }
}

/// Hands out an engine.
fn give(to: &mut MaybeUninit<*mut Engine>, engine: Engine) {
    to.write(Arc::into_raw(Arc::new(engine)).cast_mut());
}

fn check_device(kind: EngineKind, index: usize) -> Result<(), Fault> {
    check_kind(kind)?;
    match index {
        0 => Ok(()),
        _ => Err(Fault::invalid_arguments(format!("there is one engine, of index 0, not {index}"))),
    }
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
    ffi_guard(|| {
        let engine = require(engine, "engine")?;
        check_device(kind, index)?;
        // SAFETY: the options hold no address.
        give(engine, unsafe { EngineOptions::DEFAULT.build() }?);
        Ok(())
    })
}

/// Makes an engine, of kind `cpu`, with options.
///
/// `invalid_arguments` for a profiler without a function; `unimplemented` for an option that this version
/// does not know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_engine_create_with_options(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    options: *const EngineOptions,
) -> Status {
    ffi_guard(|| {
        let engine = require(engine, "engine")?;
        // SAFETY: the caller promises a struct of the size that it says, and objects where it points.
        give(engine, unsafe { EngineOptions::read(options, "options")?.build() }?);
        Ok(())
    })
}

/// As `sterna_engine_create_with_options` with an allocator, in the form that the stand-in for oneDNN needs.
///
/// # Safety
///
/// As for the functions of the header.
pub unsafe extern "C" fn create_with_allocator(
    engine: Option<&mut MaybeUninit<*mut Engine>>,
    kind: EngineKind,
    index: usize,
    allocator: Option<&Allocator>,
) -> Status {
    ffi_guard(|| {
        let engine = require(engine, "engine")?;
        check_device(kind, index)?;
        let allocator = require(allocator, "allocator")?;
        // SAFETY: the one address is that of a reference.
        give(engine, unsafe { EngineOptions { allocator, ..EngineOptions::DEFAULT }.build() }?);
        Ok(())
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
