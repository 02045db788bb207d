//! Promise: a panic in a function comes back as `runtime_error`, and what it went through can be used again.
//!
//! The functions are called as a C program calls them; the panics are those of an allocator and a profiler
//! written in Rust, which the library calls in the middle of its work.

#[path = "common/select.rs"]
mod select;

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use select::{SUCCESS, Select, made};
use sterna_capi::allocator::{sterna_allocator_create, sterna_allocator_destroy};
use sterna_capi::engine::{Engine, EngineOptions, sterna_engine_create_with_options, sterna_engine_destroy};
use sterna_capi::last_error::sterna_last_error_message;
use sterna_capi::logical_tensor::sterna_logical_tensor_init_with_dims;
use sterna_capi::profiler::{PhaseProfile, Profiler};
use sterna_capi::tensor::{
    Tensor, sterna_tensor_create, sterna_tensor_destroy, sterna_tensor_set_data_handle,
};

const RUNTIME_ERROR: i32 = 5;

static PANICS: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" fn malloc(size: usize, alignment: usize) -> *mut c_void {
    assert!(!PANICS.load(Ordering::Relaxed), "no {size} bytes today");
    let layout = std::alloc::Layout::from_size_align(size, alignment).unwrap();
    // SAFETY: the size is not 0.
    unsafe { std::alloc::alloc(layout).cast() }
}

/// Blocks are few and small here, and stay behind.
unsafe extern "C-unwind" fn free(_: *mut c_void) {}

const NO_OPTIONS: EngineOptions = EngineOptions {
    struct_size: size_of::<EngineOptions>(),
    allocator: ptr::null(),
    profiler: ptr::null(),
    threads: 0,
    sleep_at_once: 0,
};

/// # Safety
///
/// The options hold what they say.
unsafe fn made_with(options: EngineOptions) -> *mut Engine {
    // SAFETY: as the caller promises.
    made(|to| unsafe { sterna_engine_create_with_options(Some(to), &options) })
}

fn engine() -> *mut Engine {
    // SAFETY: the functions are callable from any thread, at any time.
    let allocator = made(|to| unsafe { sterna_allocator_create(Some(to), Some(malloc), Some(free)) });
    // SAFETY: the allocator was just made, and is destroyed once.
    unsafe {
        let engine = made_with(EngineOptions { allocator: &*allocator, ..NO_OPTIONS });
        assert_eq!(sterna_allocator_destroy(Some(allocator)), SUCCESS);
        engine
    }
}

unsafe extern "C-unwind" fn phase(_: *mut c_void, _: *const PhaseProfile) {
    assert!(!PANICS.load(Ordering::Relaxed), "no phase today");
}

/// An engine that tells of its phases.
fn profiled() -> *mut Engine {
    let profiler = Profiler { phase: Some(phase), execution: None, user_data: ptr::null_mut() };
    // SAFETY: the function is callable from any thread, at any time.
    unsafe { made_with(EngineOptions { profiler: &profiler, threads: 1, sleep_at_once: 1, ..NO_OPTIONS }) }
}

/// What a call answers while the caller's functions panic.
fn panicking(call: impl FnOnce() -> i32) -> i32 {
    PANICS.store(true, Ordering::Relaxed);
    let status = call();
    PANICS.store(false, Ordering::Relaxed);
    status
}

fn last_message() -> String {
    // SAFETY: the text ends with a zero and is good until the next fault on this thread.
    unsafe { CStr::from_ptr(sterna_last_error_message()) }.to_str().unwrap().to_owned()
}

/// One test, since the functions of all share the one word to panic.
#[test]
fn a_panic_comes_back_as_a_status() {
    let engine = self::engine();
    let allocate = ptr::without_provenance_mut::<c_void>(usize::MAX);
    // SAFETY: each object is made before it is used, and destroyed once.
    unsafe {
        let dims = [5];
        let desc =
            made(|to| sterna_logical_tensor_init_with_dims(to.as_mut_ptr(), 0, 3, 1, dims.as_ptr(), 2, 0));
        let mut unmade = MaybeUninit::<Box<Tensor>>::uninit();
        let create = || sterna_tensor_create(Some(&mut unmade), Some(&desc), engine, allocate);
        assert_eq!(panicking(create), RUNTIME_ERROR);
        assert!(last_message().contains("no 20 bytes today"), "{}", last_message());

        let mut tensor = made(|to| sterna_tensor_create(Some(to), Some(&desc), engine, ptr::null_mut()));
        let replace = || sterna_tensor_set_data_handle(Some(&mut tensor), allocate);
        assert_eq!(panicking(replace), RUNTIME_ERROR);
        assert_eq!(sterna_tensor_set_data_handle(Some(&mut tensor), allocate), SUCCESS);
        assert_eq!(sterna_tensor_destroy(Some(tensor)), SUCCESS);
        assert_eq!(sterna_engine_destroy(engine), SUCCESS);
    }

    // In the middle of an execution, which allocates scratch; the compiled partition can be used again.
    let select = Select::new(self::engine(), 2);
    assert_eq!(panicking(|| select.execute()), RUNTIME_ERROR);
    assert!(last_message().contains("bytes today"), "{}", last_message());
    assert_eq!(select.execute(), SUCCESS);
    assert_eq!(select.finish(), [1.0, 2.0, 1.0, 2.0, 1.0]);

    // After a phase, of which a profiler is told.
    let select = Select::new(profiled(), 1);
    assert_eq!(panicking(|| select.execute()), RUNTIME_ERROR);
    assert!(last_message().contains("no phase today"), "{}", last_message());
    assert_eq!(select.execute(), SUCCESS);
    assert_eq!(select.finish(), [1.0, 2.0, 1.0, 2.0, 1.0]);
}
