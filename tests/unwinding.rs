//! Promise: whatever a program holds of the library may be used after a panic that was caught, and its types
//! say so.

mod common;

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Case, Random};
use sterna::{
    Allocator, AutoBroadcast, CompiledPartition, DataType, Engine, EngineBuilder, Error, Graph,
    LogicalTensor, Op, Partition, Stream, SystemAllocator, Tensor, TensorBuf, TensorMut,
};

#[test]
fn types_say_that_they_are_safe_across_a_panic() {
    fn whole<T: UnwindSafe + RefUnwindSafe>() {}
    fn behind_a_reference<T: RefUnwindSafe>() {}
    whole::<Engine>();
    whole::<EngineBuilder>();
    whole::<Stream>();
    whole::<CompiledPartition>();
    whole::<Partition>();
    whole::<Graph>();
    whole::<Op>();
    whole::<LogicalTensor>();
    whole::<TensorBuf>();
    whole::<Tensor<'_>>();
    whole::<Error>();
    // As a `&mut`, whose elements an unwound call may have written in part.
    behind_a_reference::<TensorMut<'_>>();
}

/// An allocator that panics when it is told to.
#[derive(Default)]
struct Panicking(AtomicBool);

// SAFETY: the blocks are those of the system's allocator.
unsafe impl Allocator for Panicking {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        assert!(!self.0.swap(false, Ordering::Relaxed), "told to");
        SystemAllocator.allocate(size, align)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as the caller promises; the block came from there.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

#[test]
fn what_a_panic_went_through_works_on() {
    let allocator = Arc::new(Panicking::default());
    let engine = Engine::builder().threads(2).allocator(allocator.clone()).build();
    // A transposed result needs scratch.
    let mut case = Case::new(AutoBroadcast::None, DataType::F32, [&[40, 50]; 3]);
    case.dst_strides = Some(vec![1, 40]);
    let compiled = case.compile(&engine).unwrap();
    assert_ne!(compiled.scratchpad_size(), 0);
    let inputs = case.filled(&compiled, &engine, &mut Random::new(3));
    let desc = &compiled.outputs()[0];
    allocator.0.store(true, Ordering::Relaxed);
    assert!(catch_unwind(|| TensorBuf::zeroed(desc.clone(), &engine)).is_err());
    allocator.0.store(true, Ordering::Relaxed);
    let unwound = catch_unwind(|| {
        let mut output = TensorBuf::zeroed(desc.clone(), &Engine::new()).unwrap();
        drop(common::run(&compiled, &engine, &inputs, &mut output));
        let mut output = TensorBuf::zeroed(desc.clone(), &engine).unwrap();
        common::run(&compiled, &engine, &inputs, &mut output)
    });
    assert!(unwound.is_err());
    case.check(&engine, &mut Random::new(4)).unwrap();
}
