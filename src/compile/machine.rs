//! The machine for which a plan is compiled.

use crate::types::features::CpuFeatures;
use crate::types::kind::Level;

/// The kernels and the threads that a plan may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) level: Level,
    pub(super) features: CpuFeatures,
    /// Whether one thread runs the plan.
    pub(super) single_thread: bool,
}
