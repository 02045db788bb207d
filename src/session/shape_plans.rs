//! The plans that a session keeps, the newest first.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::profile::SessionPlan;

/// Plans for sets of shapes, the one that was used last in front.
pub(super) struct ShapePlans {
    plans: Mutex<VecDeque<Arc<SessionPlan>>>,
    /// The most plans that are kept.
    most: usize,
}

impl ShapePlans {
    pub(super) fn keeping(most: usize) -> Self {
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
        let behind = plans.len().min(self.most);
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
