//! The bytes that compiled partitions may keep of constant inputs: a budget of the process, or of an engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that may be kept, and bytes that are kept.
#[derive(Debug)]
pub(super) struct ConstantBudget {
    capacity: AtomicUsize,
    kept: AtomicUsize,
}

static OF_PROCESS: ConstantBudget = ConstantBudget::new(UNSET);

/// Stands for a capacity that nobody has set.
const UNSET: usize = usize::MAX;

/// The capacity of the process unless it is set: what the weights of a program need is known only to it, so
/// half of the memory that the process may use; 64 MiB if the system does not tell.
fn unset_capacity() -> usize {
    static CAPACITY: OnceLock<usize> = OnceLock::new();
    *CAPACITY.get_or_init(|| machine_memory().map_or(64 << 20, |bytes| bytes / 2))
}

/// The memory of the machine in bytes, or what its control group allows if that is less, where the system
/// tells it in a file, as Linux does.
fn machine_memory() -> Option<usize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let of_machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1 << 10)
    })?;
    let of_group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    Some(of_group.map_or(of_machine, |bytes: usize| bytes.min(of_machine)))
}

impl ConstantBudget {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity: AtomicUsize::new(capacity), kept: AtomicUsize::new(0) }
    }

    fn capacity(&self) -> usize {
        match self.capacity.load(Ordering::Relaxed) {
            UNSET => unset_capacity(),
            capacity => capacity,
        }
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
        Self(Some(Arc::new(ConstantBudget::new(capacity.min(UNSET - 1)))))
    }

    fn budget(&self) -> &ConstantBudget {
        self.0.as_deref().unwrap_or(&OF_PROCESS)
    }

    /// True if the budget allows anything to be kept.
    pub(super) fn keeps_any(&self) -> bool {
        self.budget().capacity() > 0
    }

    /// True if so many more bytes may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let budget = self.budget();
        budget.kept().saturating_add(bytes) <= budget.capacity()
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
/// that have a [capacity of their own](crate::EngineBuilder::constant_cache_capacity); unless set, half of
/// the memory that the process may use, or 64 MiB if the system does not tell it.
///
/// ```
/// assert!(sterna::constant_cache_capacity() > 0);
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
    // The largest number stands for no capacity that was set; no memory has so many bytes.
    OF_PROCESS.capacity.store(bytes.min(UNSET - 1), Ordering::Relaxed);
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
