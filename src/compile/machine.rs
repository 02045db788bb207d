//! The machine for which a plan is compiled.

use crate::types::features::CpuFeatures;
use crate::types::kind::Level;

/// The kernels and the threads that a plan may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) level: Level,
    pub(super) features: CpuFeatures,
    /// Threads that run the plan, at most [`MAX_THREADS`]: the store policy and the tiles of some products
    /// depend on them.
    pub(super) threads: usize,
    /// The engine keeps what phases make of constant inputs for later executions.
    pub(super) keeps_constants: bool,
    /// There is room for all constants of the caller, so that none is packed in each execution.
    pub(super) has_room: bool,
}

/// More threads change no plan.
pub(super) const MAX_THREADS: usize = 16;

impl Machine {
    /// True if one thread runs the plan.
    pub(super) fn single_thread(self) -> bool {
        self.threads == 1
    }
}
