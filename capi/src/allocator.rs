//! Allocators: the source of an engine's memory.
//!
//! The library needs memory aligned to a cache line. Clients pass plain `malloc` all the same, so this module
//! aligns memory inside a block of any alignment.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ffi::{Fault, ffi_guard, require};
use crate::status::Status;

/// Alignment of memory in bytes: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Gives a block of at least `size` bytes (1 or more), or null if there is none. It should start at a
/// multiple of `alignment` (a power of two, 64 or more), but need not: a tensor uses a block as it is unless
/// its elements want more alignment than the block has. The library frees such a block, and a block for
/// scratch memory that is not aligned, at once; it then requests a block of `size` + `alignment` - 1 bytes
/// and aligns the memory inside it. The function is called from any thread that uses the engine, several at a
/// time.
// A callback may unwind into the library: a panic of Rust code is stopped at the border on its way back.
pub type AllocatorMalloc = Option<unsafe extern "C-unwind" fn(size: usize, alignment: usize) -> *mut c_void>;

/// Frees a block, by the address that the other function gave. The function is called from any thread that
/// uses the engine, several at a time.
pub type AllocatorFree = Option<unsafe extern "C-unwind" fn(block: *mut c_void)>;

/// The source of the memory of an engine's tensors and of its scratch memory: two functions of the caller.
///
/// Any thread may use it at any time. An engine copies the allocator, so it may be destroyed as soon as the
/// engine is made.
pub struct Allocator {
    callbacks: Option<Callbacks>,
}

impl Allocator {
    /// The allocator with which engines are built.
    pub fn core(&self) -> Arc<dyn sterna::Allocator> {
        match self.callbacks {
            Some(callbacks) => Arc::new(Aligning { callbacks, moved: Mutex::default() }),
            None => Arc::new(sterna::SystemAllocator),
        }
    }

    /// The functions of the caller; none if the memory is that of the system.
    pub(crate) fn callbacks(&self) -> Option<Callbacks> {
        self.callbacks
    }
}

/// Two functions of a caller, who promised that any thread may call them.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    malloc: unsafe extern "C-unwind" fn(usize, usize) -> *mut c_void,
    free: unsafe extern "C-unwind" fn(*mut c_void),
}

/// A block, and the start of the used memory in the block.
struct Placed {
    block: NonNull<u8>,
    start: NonNull<u8>,
}

impl Callbacks {
    fn malloc(self, size: usize, alignment: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller of `sterna_allocator_create` promised that it can be called so from any thread.
        NonNull::new(unsafe { (self.malloc)(size, alignment) }.cast())
    }

    /// # Safety
    ///
    /// The block came from `malloc`, and nobody uses it any more.
    unsafe fn free(self, block: NonNull<u8>) {
        // SAFETY: as the caller promises.
        unsafe { (self.free)(block.as_ptr().cast()) };
    }

    /// Memory of `size` bytes: a block requested with alignment `alignment`, if it is aligned to `enough`;
    /// else the aligned part of a larger block. Both are powers of two, and `enough` is not the larger one.
    fn place(self, size: usize, alignment: usize, enough: usize) -> Option<Placed> {
        let block = self.malloc(size, alignment)?;
        if block.addr().get().is_multiple_of(enough) {
            return Some(Placed { block, start: block });
        }
        // SAFETY: the block came from `malloc` a moment ago, and is not used.
        unsafe { self.free(block) };
        let block = self.malloc(size.checked_add(alignment - 1)?, alignment)?;
        let gap = block.addr().get().wrapping_neg() % alignment;
        // SAFETY: the gap is less than `alignment`, so that it lies in the block with `size` bytes behind it.
        Some(Placed { block, start: unsafe { block.add(gap) } })
    }
}

/// Memory of a tensor from the functions of a caller, freed by them when it is dropped.
pub(crate) struct Block {
    callbacks: Callbacks,
    placed: Placed,
}

impl Block {
    /// `size` bytes (1 or more), all zero, aligned to an element of `element` bytes at least.
    pub(crate) fn zeroed(callbacks: Callbacks, size: usize, element: usize) -> Result<Self, Fault> {
        let placed = callbacks.place(size, ALIGNMENT, element);
        let placed = placed.ok_or(sterna::Error::OutOfMemory { size, align: ALIGNMENT })?;
        // SAFETY: the memory has that number of bytes, and nobody else knows it.
        unsafe { placed.start.write_bytes(0, size) };
        Ok(Self { callbacks, placed })
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.placed.start.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block came from these functions, and goes with the last that knew it.
        unsafe { self.callbacks.free(self.placed.block) };
    }
}

/// The allocator of the library over the functions of a caller: every block is aligned. Scratch memory comes
/// from it.
struct Aligning {
    callbacks: Callbacks,
    /// The blocks whose memory starts behind the start of the block, by the address of the memory.
    moved: Mutex<HashMap<usize, AtomicPtr<u8>>>,
}

impl Aligning {
    /// Nothing that runs under the lock can panic halfway.
    fn moved(&self) -> MutexGuard<'_, HashMap<usize, AtomicPtr<u8>>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: whoever created the allocator promised that `malloc` gives blocks of the size; `place` aligns them.
unsafe impl sterna::Allocator for Aligning {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let Placed { block, start } = self.callbacks.place(size, align, align)?;
        if block != start {
            self.moved().insert(start.addr().get(), AtomicPtr::new(block.as_ptr()));
        }
        Some(start)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, _size: usize, _align: usize) {
        let moved = self.moved().remove(&start.addr().get());
        let block = moved.and_then(|block| NonNull::new(block.into_inner())).unwrap_or(start);
        // SAFETY: the block came from `malloc`, and nobody uses it any more.
        unsafe { self.callbacks.free(block) };
    }
}

/// Makes an allocator of two functions; if either is null, the allocator uses the memory of the system.
///
/// The functions must be callable until the last engine, tensor and compiled partition that uses the
/// allocator is destroyed. They must not throw exceptions of C++.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_allocator_create(
    allocator: Option<&mut MaybeUninit<Box<Allocator>>>,
    malloc_fn: AllocatorMalloc,
    free_fn: AllocatorFree,
) -> Status {
    ffi_guard(|| {
        let allocator = require(allocator, "allocator")?;
        let callbacks = malloc_fn.zip(free_fn).map(|(malloc, free)| Callbacks { malloc, free });
        allocator.write(Box::new(Allocator { callbacks }));
        Ok(())
    })
}

/// Destroys an allocator; engines that were made with it keep its functions. Null is fine; destroying one
/// twice is an error of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_allocator_destroy(allocator: Option<Box<Allocator>>) -> Status {
    ffi_guard(|| {
        drop(allocator);
        Ok(())
    })
}
