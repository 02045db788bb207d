//! A select of five f32, made through the C functions as a C program makes it.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use sterna_capi::compiled_partition::{
    CompiledPartition, sterna_compiled_partition_create, sterna_compiled_partition_destroy,
    sterna_compiled_partition_execute,
};
use sterna_capi::engine::{Engine, sterna_engine_destroy};
use sterna_capi::logical_tensor::{LogicalTensor, sterna_logical_tensor_init_with_strides};
use sterna_capi::op::{sterna_op_add_input, sterna_op_add_output, sterna_op_create, sterna_op_destroy};
use sterna_capi::partition::{
    sterna_partition_compile, sterna_partition_create_with_op, sterna_partition_destroy,
};
use sterna_capi::status::Status;
use sterna_capi::stream::{Stream, sterna_stream_create, sterna_stream_destroy};
use sterna_capi::tensor::{Tensor, sterna_tensor_create, sterna_tensor_destroy};

pub(crate) const SUCCESS: Status = 0;
pub(crate) const CPU: i32 = 1;
const BOOLEAN: i32 = 8;
const F32: i32 = 3;
const SELECT: i32 = 81;
const IN_ORDER: u32 = 1;

/// The value that a function writes.
pub(crate) fn made<T>(make: impl FnOnce(&mut MaybeUninit<T>) -> Status) -> T {
    let mut value = MaybeUninit::uninit();
    assert_eq!(make(&mut value), SUCCESS);
    // SAFETY: the call succeeded, so the value was written.
    unsafe { value.assume_init() }
}

/// A compiled select with tensors on memory of its own.
pub(crate) struct Select {
    engine: *mut Engine,
    compiled: Box<CompiledPartition>,
    stream: Box<Stream>,
    tensors: [Box<Tensor>; 4],
    memory: Box<Memory>,
}

struct Memory {
    cond: [u8; 5],
    then: [f32; 10],
    else_: [f32; 5],
    dst: [f32; 5],
}

impl Select {
    /// Compiles for an engine, which it takes over. `then` has the stride given, 1 or 2; with 2, an execution
    /// takes scratch.
    pub(crate) fn new(engine: *mut Engine, then_stride: i64) -> Self {
        let mut memory =
            Box::new(Memory { cond: [1, 0, 1, 0, 1], then: [1.0; 10], else_: [2.0; 5], dst: [0.0; 5] });
        let addresses: [*mut c_void; 4] = [
            ptr::from_mut(&mut memory.cond).cast(),
            ptr::from_mut(&mut memory.then).cast(),
            ptr::from_mut(&mut memory.else_).cast(),
            ptr::from_mut(&mut memory.dst).cast(),
        ];
        // SAFETY: each object is made before it is used and destroyed once; the memory of the tensors
        // outlives them.
        unsafe {
            let descs: [LogicalTensor; 4] = std::array::from_fn(|id| {
                let data_type = if id == 0 { BOOLEAN } else { F32 };
                let (dims, strides) = ([5], [if id == 1 { then_stride } else { 1 }]);
                made(|desc| {
                    let (at, dims, strides) = (desc.as_mut_ptr(), dims.as_ptr(), strides.as_ptr());
                    sterna_logical_tensor_init_with_strides(at, id, data_type, 1, dims, strides, 0)
                })
            });
            let mut op = made(|op| sterna_op_create(Some(op), 0, SELECT, c"".as_ptr()));
            for desc in &descs[..3] {
                assert_eq!(sterna_op_add_input(Some(&mut op), Some(desc)), SUCCESS);
            }
            assert_eq!(sterna_op_add_output(Some(&mut op), Some(&descs[3])), SUCCESS);
            let partition = made(|to| sterna_partition_create_with_op(Some(to), Some(&op), CPU));
            let mut compiled = made(|to| sterna_compiled_partition_create(Some(to), Some(&partition)));
            let inputs = [Some(&descs[0]), Some(&descs[1]), Some(&descs[2])];
            let outputs = [Some(&descs[3])];
            let (inputs, outputs) = (inputs.as_ptr(), outputs.as_ptr());
            let to = Some(&mut *compiled);
            assert_eq!(
                sterna_partition_compile(Some(&partition), to, 3, inputs, 1, outputs, engine),
                SUCCESS
            );
            let stream = made(|to| sterna_stream_create(Some(to), engine, IN_ORDER));
            let tensors = std::array::from_fn(|i| {
                made(|to| sterna_tensor_create(Some(to), Some(&descs[i]), engine, addresses[i]))
            });
            assert_eq!(sterna_partition_destroy(Some(partition)), SUCCESS);
            assert_eq!(sterna_op_destroy(Some(op)), SUCCESS);
            Self { engine, compiled, stream, tensors, memory }
        }
    }

    pub(crate) fn execute(&self) -> Status {
        let [cond, then, else_, to] = self.tensors.each_ref().map(|tensor| Some(&**tensor));
        let (from, to) = ([cond, then, else_], [to]);
        let (compiled, stream) = (Some(&*self.compiled), Some(&*self.stream));
        // SAFETY: the tensors have memory for all their elements, which nobody else uses.
        unsafe { sterna_compiled_partition_execute(compiled, stream, 3, from.as_ptr(), 1, to.as_ptr()) }
    }

    /// Destroys all, and answers with the result.
    pub(crate) fn finish(self) -> [f32; 5] {
        // SAFETY: each object is destroyed once.
        unsafe {
            for tensor in self.tensors {
                assert_eq!(sterna_tensor_destroy(Some(tensor)), SUCCESS);
            }
            assert_eq!(sterna_stream_destroy(Some(self.stream)), SUCCESS);
            assert_eq!(sterna_compiled_partition_destroy(Some(self.compiled)), SUCCESS);
            assert_eq!(sterna_engine_destroy(self.engine), SUCCESS);
        }
        self.memory.dst
    }
}
