//! Allocators: where engines get memory.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ffi::{needed, status_of};
use crate::status::Status;

/// Gives a block of at least `size` bytes (1 or more) at a multiple of `alignment` (a power of two, 64 or more), or
/// null where there is none. A block that is not aligned so is freed at once and counts as none. It is called from any
/// thread that uses the engine, several at a time.
// A callback may unwind into the library: a panic of Rust code is stopped at the border on its way back.
pub type AllocatorMalloc = Option<unsafe extern "C-unwind" fn(size: usize, alignment: usize) -> *mut c_void>;

/// Takes a block back. It is called from any thread that uses the engine, several at a time.
pub type AllocatorFree = Option<unsafe extern "C-unwind" fn(block: *mut c_void)>;

/// Where an engine gets the memory of its tensors and its scratch memory: two functions of the caller's.
///
/// Any thread may use it at any time. An engine copies it, so it may be destroyed as soon as the engine is made.
#[derive(Clone)]
pub struct Allocator {
    core: Arc<dyn sterna::Allocator>,
}

impl Allocator {
    /// What engines are built with.
    pub fn core(&self) -> Arc<dyn sterna::Allocator> {
        self.core.clone()
    }
}

struct Callbacks {
    malloc: unsafe extern "C-unwind" fn(usize, usize) -> *mut c_void,
    free: unsafe extern "C-unwind" fn(*mut c_void),
}

// SAFETY: whoever created the allocator promised that `malloc` gives such blocks; the alignment is checked here.
unsafe impl sterna::Allocator for Callbacks {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller of `sterna_allocator_create` promised that it can be called so from any thread.
        let block = NonNull::new(unsafe { (self.malloc)(size, align) })?;
        if block.addr().get().is_multiple_of(align) {
            return Some(block.cast());
        }
        // SAFETY: the block came from `malloc` a moment ago, and is not used.
        unsafe { (self.free)(block.as_ptr()) };
        None
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, _size: usize, _align: usize) {
        // SAFETY: the block came from `malloc`, and nobody uses it any more.
        unsafe { (self.free)(block.as_ptr().cast()) };
    }
}

/// Makes an allocator of two functions; where either is null, one that uses the memory of the system.
///
/// The functions must be callable until the last engine, tensor and compiled partition that uses the allocator is
/// destroyed. They must not throw exceptions of C++.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_allocator_create(
    allocator: Option<&mut MaybeUninit<Box<Allocator>>>,
    malloc_fn: AllocatorMalloc,
    free_fn: AllocatorFree,
) -> Status {
    status_of(|| {
        let allocator = needed(allocator, "allocator")?;
        let core: Arc<dyn sterna::Allocator> = match (malloc_fn, free_fn) {
            (Some(malloc), Some(free)) => Arc::new(Callbacks { malloc, free }),
            _ => Arc::new(sterna::SystemAllocator),
        };
        allocator.write(Box::new(Allocator { core }));
        Ok(())
    })
}

/// Destroys an allocator; engines that were made with it keep its functions. Null is fine; destroying one twice is an
/// error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_allocator_destroy(allocator: Option<Box<Allocator>>) -> Status {
    status_of(|| {
        drop(allocator);
        Ok(())
    })
}
