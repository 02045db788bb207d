//! Small executions that follow each other soon, and the workers that stay awake for them.
//!
//! To wake a worker costs a caller more than a second thread gains on a small tensor (decision:
//! parallel-bytes). A worker that has helped therefore looks for more work during [`AWAKE_TIME`] before it
//! sleeps. A small execution wakes a worker only if it follows another one within that time; an execution
//! after a pause runs alone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::fork_join::Teams;
use crate::types::environment;

/// Time for which a worker stays awake after its last share (decision: awake-workers).
const AWAKE_TIME: Duration = Duration::from_micros(50);

/// Number of checks for open teams between two readings of the clock.
const LOOKS: u32 = 16;

/// Small executions under way in the process. If there are two, threads of the caller use the cores already,
/// so no worker is worth its core.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// True unless the environment forbids that workers stay awake.
pub(super) fn is_allowed() -> bool {
    static IS_ALLOWED: OnceLock<bool> = OnceLock::new();
    *IS_ALLOWED.get_or_init(|| environment::STAY_AWAKE.read().unwrap_or(true))
}

/// When the last small execution of an engine ended.
pub(super) struct Pace {
    start: Instant,
    /// Nanoseconds from `start`; 0 before the first execution.
    ended: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), ended: AtomicU64::new(0) }
    }

    /// Notes that a small execution begins.
    pub(super) fn begin(&self) -> SmallExecution<'_> {
        SmallExecution { pace: self, is_only: UNDER_WAY.fetch_add(1, Ordering::Relaxed) == 0 }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// A small execution that is under way.
pub(super) struct SmallExecution<'a> {
    pace: &'a Pace,
    is_only: bool,
}

impl SmallExecution<'_> {
    /// True if no other small execution was under way when this one began.
    pub(super) fn is_only(&self) -> bool {
        self.is_only
    }

    /// True if the engine's last small execution ended a moment ago.
    pub(super) fn follows_soon(&self) -> bool {
        let ended = self.pace.ended.load(Ordering::Relaxed);
        ended != 0 && self.pace.now().saturating_sub(ended) < AWAKE_TIME.as_nanos() as u64
    }
}

impl Drop for SmallExecution<'_> {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        self.pace.ended.store(self.pace.now(), Ordering::Relaxed);
    }
}

/// Keeps a worker awake until it has had nothing to do for [`AWAKE_TIME`]. `first` is the slot to start from.
pub(super) fn stay(teams: &Teams, first: usize) {
    let (mut since, mut looks) = (Instant::now(), 0u32);
    teams.stay_awake(first, |has_joined| {
        looks = looks.wrapping_add(1);
        if has_joined {
            since = Instant::now();
        }
        looks.is_multiple_of(LOOKS)
            && (since.elapsed() >= AWAKE_TIME || UNDER_WAY.load(Ordering::Relaxed) > 1)
    });
}
