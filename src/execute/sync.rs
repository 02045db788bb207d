//! The shared state of `fork_join`, in types that a model checker can replace.

pub(super) use std::hint::spin_loop as pause;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::thread::{Thread, current, park};

/// Number of times that a caller tests whether the others are done before it yields to the system.
pub(super) const SPINS: usize = 10_000;

/// Most teams of a small pool at the same time. A caller that finds no slot works alone, beside
/// more callers than that, and each has a thread.
pub(super) const MIN_SLOTS: usize = 16;

/// The cell of the standard library, with the methods of the one that a model checker watches.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
