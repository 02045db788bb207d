//! Promise: a panic in a function comes back as `runtime_error`, and what it went through can be used again.
//!
//! The functions are called as a C program calls them; the panic is that of an allocator written in Rust, which the
//! library calls in the middle of its work.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use sterna_capi::allocator::{sterna_allocator_create, sterna_allocator_destroy};
use sterna_capi::engine::{sterna_engine_create_with_allocator, sterna_engine_destroy};
use sterna_capi::logical_tensor::{LogicalTensor, sterna_logical_tensor_init_with_dims};
use sterna_capi::status::sterna_last_error_message;
use sterna_capi::tensor::{
    Tensor, sterna_tensor_create, sterna_tensor_destroy, sterna_tensor_set_data_handle,
};

const SUCCESS: i32 = 0;
const RUNTIME_ERROR: i32 = 5;

static PANICS: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" fn malloc(size: usize, alignment: usize) -> *mut c_void {
    assert!(!PANICS.load(Ordering::Relaxed), "no {size} bytes today");
    let layout = std::alloc::Layout::from_size_align(size, alignment).unwrap();
    // SAFETY: the size is not 0.
    unsafe { std::alloc::alloc(layout).cast() }
}

/// Blocks are few and small here; that of a tensor that is destroyed stays behind.
unsafe extern "C-unwind" fn free(_: *mut c_void) {}

#[test]
fn a_panic_comes_back_as_a_status() {
    let mut allocator = MaybeUninit::uninit();
    let mut engine = MaybeUninit::uninit();
    let mut desc = MaybeUninit::<LogicalTensor>::uninit();
    let allocate = ptr::without_provenance_mut::<c_void>(usize::MAX);
    // SAFETY: each object is made before it is used, and destroyed once.
    unsafe {
        assert_eq!(sterna_allocator_create(Some(&mut allocator), Some(malloc), Some(free)), SUCCESS);
        let allocator = allocator.assume_init();
        assert_eq!(sterna_engine_create_with_allocator(Some(&mut engine), 1, 0, Some(&allocator)), SUCCESS);
        let engine = engine.assume_init();
        let dims = [5];
        let status = sterna_logical_tensor_init_with_dims(desc.as_mut_ptr(), 0, 3, 1, dims.as_ptr(), 2, 0);
        assert_eq!(status, SUCCESS);
        let desc = desc.assume_init();

        PANICS.store(true, Ordering::Relaxed);
        let mut tensor = MaybeUninit::<Box<Tensor>>::uninit();
        let status = sterna_tensor_create(Some(&mut tensor), Some(&desc), engine, allocate);
        assert_eq!(status, RUNTIME_ERROR);
        let message = CStr::from_ptr(sterna_last_error_message()).to_str().unwrap();
        assert!(message.contains("no 20 bytes today"), "{message}");

        PANICS.store(false, Ordering::Relaxed);
        assert_eq!(sterna_tensor_create(Some(&mut tensor), Some(&desc), engine, ptr::null_mut()), SUCCESS);
        let mut tensor = tensor.assume_init();
        PANICS.store(true, Ordering::Relaxed);
        assert_eq!(sterna_tensor_set_data_handle(Some(&mut tensor), allocate), RUNTIME_ERROR);
        PANICS.store(false, Ordering::Relaxed);
        assert_eq!(sterna_tensor_set_data_handle(Some(&mut tensor), allocate), SUCCESS);

        assert_eq!(sterna_tensor_destroy(Some(tensor)), SUCCESS);
        assert_eq!(sterna_engine_destroy(engine), SUCCESS);
        assert_eq!(sterna_allocator_destroy(Some(allocator)), SUCCESS);
    }
}
