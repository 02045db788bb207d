//! The bytes that compiled partitions may keep of constant inputs: a budget of the process, or of an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may be kept, and bytes that are kept.
#[derive(Debug)]
pub(super) struct ConstantBudget {
    capacity: AtomicUsize,
    kept: AtomicUsize,
}

static OF_PROCESS: ConstantBudget = ConstantBudget::new(64 << 20);

impl ConstantBudget {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity: AtomicUsize::new(capacity), kept: AtomicUsize::new(0) }
    }

    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// The budget of an engine; without one of its own, that of the process.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedBudget(Option<Arc<ConstantBudget>>);

impl SharedBudget {
    /// A budget that nothing else draws on.
    pub(super) fn own(capacity: usize) -> Self {
        Self(Some(Arc::new(ConstantBudget::new(capacity))))
    }

    fn budget(&self) -> &ConstantBudget {
        self.0.as_deref().unwrap_or(&OF_PROCESS)
    }

    /// True if no more is kept than the budget allows.
    pub(super) fn is_kept_within(&self) -> bool {
        self.budget().kept() <= self.budget().capacity()
    }

    /// A part of the budget; `None` if it is used up.
    pub(super) fn share(&self, bytes: usize) -> Option<Share> {
        let budget = self.budget();
        let fits = |kept: usize| kept.checked_add(bytes).filter(|&kept| kept <= budget.capacity());
        let taken = budget.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.is_ok().then(|| Share { of: self.clone(), bytes })
    }
}

/// A part of a budget, given back when dropped.
pub(super) struct Share {
    of: SharedBudget,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.budget().kept.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Most bytes that the compiled partitions of the process keep of constant inputs, but for those of engines
/// that have a [capacity of their own](crate::EngineBuilder::constant_cache_capacity); 64 MiB unless set.
///
/// ```
/// assert_eq!(sterna::constant_cache_capacity(), 64 << 20);
/// ```
#[must_use]
pub fn constant_cache_capacity() -> usize {
    OF_PROCESS.capacity()
}

/// Sets the most bytes that the compiled partitions of the process keep of constant inputs, for engines
/// without a [capacity of their own](crate::EngineBuilder::constant_cache_capacity); 0 keeps nothing. If the
/// capacity becomes less than what is kept, each compiled partition gives its copy back when it is executed
/// next, or dropped.
///
/// ```
/// sterna::set_constant_cache_capacity(0); // keep nothing
/// assert_eq!(sterna::constant_cache_bytes(), 0);
/// ```
pub fn set_constant_cache_capacity(bytes: usize) {
    OF_PROCESS.capacity.store(bytes, Ordering::Relaxed);
}

/// Bytes that the compiled partitions of the process keep of constant inputs, but for those of engines that
/// have a [capacity of their own](crate::EngineBuilder::constant_cache_capacity).
///
/// ```
/// assert!(sterna::constant_cache_bytes() <= sterna::constant_cache_capacity());
/// ```
#[must_use]
pub fn constant_cache_bytes() -> usize {
    OF_PROCESS.kept()
}
