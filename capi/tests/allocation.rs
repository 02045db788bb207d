//! Promise: an execution through the C interface allocates nothing, as one through Rust does not.
//!
//! One test alone in its binary: a second one would allocate while this one counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

use sterna_capi::compiled_partition::{
    CompiledPartition, sterna_compiled_partition_create, sterna_compiled_partition_destroy,
    sterna_compiled_partition_execute,
};
use sterna_capi::engine::{sterna_engine_create, sterna_engine_destroy};
use sterna_capi::logical_tensor::{LogicalTensor, sterna_logical_tensor_init_with_dims};
use sterna_capi::op::{sterna_op_add_input, sterna_op_add_output, sterna_op_create, sterna_op_destroy};
use sterna_capi::partition::{
    sterna_partition_compile, sterna_partition_create_with_op, sterna_partition_destroy,
};
use sterna_capi::status::Status;
use sterna_capi::stream::{sterna_stream_create, sterna_stream_destroy};
use sterna_capi::tensor::{Tensor, sterna_tensor_create, sterna_tensor_destroy};

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a function makes.
fn made<T>(make: impl FnOnce(&mut MaybeUninit<T>) -> Status) -> T {
    let mut value = MaybeUninit::uninit();
    assert_eq!(make(&mut value), 0);
    // SAFETY: the call succeeded, so the value was written.
    unsafe { value.assume_init() }
}

#[test]
fn executions_allocate_nothing() {
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_ne!(CALLS.get(), before, "the counter counts");

    let (boolean, f32, strided, select, cpu, in_order) = (8, 3, 2, 81, 1, 1);
    let cond = [1u8, 0, 1, 0, 1];
    let (then, else_, mut dst) = ([1.0f32; 5], [2.0f32; 5], [0.0f32; 5]);
    let addresses: [*mut c_void; 4] = [
        cond.as_ptr().cast_mut().cast(),
        then.as_ptr().cast_mut().cast(),
        else_.as_ptr().cast_mut().cast(),
        dst.as_mut_ptr().cast(),
    ];
    // SAFETY: each object is made before it is used and destroyed once; the memory of the tensors outlives them.
    unsafe {
        let descs: [LogicalTensor; 4] = std::array::from_fn(|id| {
            let data_type = if id == 0 { boolean } else { f32 };
            made(|desc| {
                let at = desc.as_mut_ptr();
                sterna_logical_tensor_init_with_dims(at, id, data_type, 1, [5].as_ptr(), strided, 0)
            })
        });
        let mut op = made(|op| sterna_op_create(Some(op), 0, select, c"".as_ptr()));
        for desc in &descs[..3] {
            assert_eq!(sterna_op_add_input(Some(&mut op), Some(desc)), 0);
        }
        assert_eq!(sterna_op_add_output(Some(&mut op), Some(&descs[3])), 0);
        let engine = made(|engine| sterna_engine_create(Some(engine), cpu, 0));
        let partition = made(|partition| sterna_partition_create_with_op(Some(partition), Some(&op), cpu));
        let mut compiled: Box<CompiledPartition> =
            made(|compiled| sterna_compiled_partition_create(Some(compiled), Some(&partition)));
        let inputs = [Some(&descs[0]), Some(&descs[1]), Some(&descs[2])];
        let outputs = [Some(&descs[3])];
        let status = sterna_partition_compile(
            Some(&partition),
            Some(&mut compiled),
            3,
            inputs.as_ptr(),
            1,
            outputs.as_ptr(),
            engine,
        );
        assert_eq!(status, 0);
        let stream = made(|stream| sterna_stream_create(Some(stream), engine, in_order));
        let tensors: [Box<Tensor>; 4] = std::array::from_fn(|i| {
            made(|tensor| sterna_tensor_create(Some(tensor), Some(&descs[i]), engine, addresses[i]))
        });
        let [cond, then, else_, to] = tensors.each_ref().map(|tensor| Some(&**tensor));
        let (from, to) = ([cond, then, else_], [to]);

        let execute = || {
            let (compiled, stream) = (Some(&*compiled), Some(&*stream));
            sterna_compiled_partition_execute(compiled, stream, 3, from.as_ptr(), 1, to.as_ptr())
        };
        assert_eq!(execute(), 0);
        let before = CALLS.get();
        for _ in 0..10 {
            assert_eq!(execute(), 0);
        }
        assert_eq!(CALLS.get() - before, 0, "calls of the allocator in ten executions");

        for tensor in tensors {
            assert_eq!(sterna_tensor_destroy(Some(tensor)), 0);
        }
        assert_eq!(sterna_stream_destroy(Some(stream)), 0);
        assert_eq!(sterna_compiled_partition_destroy(Some(compiled)), 0);
        assert_eq!(sterna_partition_destroy(Some(partition)), 0);
        assert_eq!(sterna_op_destroy(Some(op)), 0);
        assert_eq!(sterna_engine_destroy(engine), 0);
    }
    assert_eq!(dst, [1.0, 2.0, 1.0, 2.0, 1.0]);
}
