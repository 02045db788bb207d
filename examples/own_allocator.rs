//! An engine with an allocator of one's own: it counts what tensors and executions take, and keeps to a
//! budget. A call that gets no memory is an error, not an abort.
//!
//! `cargo run --example own_allocator`

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sterna::{Allocator, DataType, Engine, Error, LogicalTensor, Result, SystemAllocator, TensorBuf};

/// Hands out memory of the system, as long as the budget lasts.
struct Budget {
    left: AtomicUsize,
}

// SAFETY: every block is one of the system allocator's, which keeps the promises of the trait.
unsafe impl Allocator for Budget {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let take = |left: usize| left.checked_sub(size);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let block = SystemAllocator.allocate(size, align);
        if block.is_none() {
            self.left.fetch_add(size, Ordering::Relaxed);
        }
        block
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: the caller promises that the block came from `allocate` with these numbers.
        unsafe { SystemAllocator.deallocate(block, size, align) };
        self.left.fetch_add(size, Ordering::Relaxed);
    }
}

pub(crate) fn main() -> Result<()> {
    const BYTES: usize = 1 << 20;
    let budget = Arc::new(Budget { left: AtomicUsize::new(BYTES) });
    let engine = Engine::builder().allocator(budget.clone()).build();

    let small = LogicalTensor::strided(0, DataType::F32, &[256, 256])?;
    let tensor = TensorBuf::zeroed(small, &engine)?;
    let left = budget.left.load(Ordering::Relaxed);
    println!("a tensor of {} bytes leaves {left}", tensor.as_bytes().len());
    assert_eq!(left, BYTES - 256 * 256 * 4);

    let large = LogicalTensor::strided(1, DataType::F32, &[1024, 1024])?;
    let refused = TensorBuf::zeroed(large, &engine).expect_err("it is four times the budget");
    println!("{refused}");
    assert!(matches!(refused, Error::OutOfMemory { .. }));

    drop(tensor);
    assert_eq!(budget.left.load(Ordering::Relaxed), BYTES, "all memory comes back");
    Ok(())
}
