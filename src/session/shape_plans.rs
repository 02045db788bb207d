//! The plans that a session keeps, the newest first.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::profile::SessionPlan;

/// The plans that are kept whatever their size, unless the caller sets a number.
const DEFAULT_COUNT: usize = 16;
/// The most bytes of all plans together, if they are more.
const MAX_BYTES: usize = 32 << 20;

/// Plans for sets of shapes, the one that was used last in front.
pub(super) struct ShapePlans {
    plans: Mutex<VecDeque<Arc<SessionPlan>>>,
    /// The most plans that are kept, if the caller sets a number.
    most: Option<usize>,
}

impl ShapePlans {
    pub(super) fn keeping(most: Option<usize>) -> Self {
        Self { plans: Mutex::default(), most }
    }

    /// The first plan that fits, which becomes the one that was used last.
    pub(super) fn find(&self, fits: impl Fn(&SessionPlan) -> bool) -> Option<Arc<SessionPlan>> {
        let mut plans = self.plans.lock();
        let index = plans.iter().position(|plan| fits(plan))?;
        let plan = if index == 0 { None } else { plans.remove(index) };
        if let Some(plan) = plan {
            plans.push_front(plan);
        }
        plans.front().cloned()
    }

    /// Keeps a plan; the one that was not used for the longest time makes room.
    pub(super) fn add(&self, plan: Arc<SessionPlan>) {
        let mut plans = self.plans.lock();
        plans.push_front(plan);
        // Dropped when the lock is free, since an allocator is the caller's code.
        let mut bytes = 0usize;
        let is_small = |plan: &&Arc<SessionPlan>| {
            bytes = bytes.saturating_add(plan.bytes);
            bytes <= MAX_BYTES
        };
        let most = self.most.unwrap_or_else(|| plans.iter().take_while(is_small).count().max(DEFAULT_COUNT));
        let behind = plans.len().min(most);
        let dropped: Vec<_> = plans.drain(behind..).collect();
        drop(plans);
        drop(dropped);
    }

    /// The plan that was used last.
    pub(super) fn newest(&self) -> Option<Arc<SessionPlan>> {
        self.plans.lock().front().cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.plans.lock().len()
    }
}
