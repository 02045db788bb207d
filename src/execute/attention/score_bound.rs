//! Bounds the size of all scores by the elements of queries and keys, before any score is computed.
#![allow(unsafe_code, reason = "elements are read from raw memory that was checked before")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::mask_scan::ScanKernels;
use crate::plan::{ScoreBound, ScoreOperand};

/// The size that scores are taken to have where their queries and keys are not known.
const ASSUMED: f64 = 1024.0;

/// A number that no score is larger than in size; ∞ if one may be NaN or infinite.
///
/// Sums in f32 are off by less than a hundredth: so deep a product would take more memory than there is.
pub(super) fn largest_score(
    bound: &ScoreBound,
    scan: ScanKernels,
    constants: &[[u8; 8]],
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<f64> {
    let start = |of: &ScoreOperand| bindings.address(of.base, constants);
    if bound.operands.iter().any(|of| start(of).is_null()) {
        return Ok(ASSUMED);
    }
    let [of_queries, of_keys] = bound.operands.each_ref().map(ScoreOperand::tasks);
    // The bits of numbers that are not negative have the order of the numbers.
    let largest = [AtomicU64::new(0), AtomicU64::new(0)];
    runner.run(of_queries.saturating_add(of_keys), |_, ranges| {
        let mut own = [0.0f64; 2];
        for task in ranges.flatten() {
            let (operand, task) = if task < of_queries { (0, task) } else { (1, task - of_queries) };
            let of = &bound.operands[operand];
            let tile = of.scanned(start(of).wrapping_offset(of.offset), task);
            // SAFETY: the strides of an operand lead to its elements; the plan's level was available when the
            // plan was made.
            let size = match unsafe { scan.floats(of.data_type, tile) } {
                Some(bounds) if !bounds.has_nan => bounds.least.abs().max(bounds.most.abs()),
                _ => f64::INFINITY,
            };
            own[operand] = own[operand].max(size);
        }
        for (largest, own) in largest.iter().zip(own) {
            largest.fetch_max(own.to_bits(), Ordering::Relaxed);
        }
    })?;
    let [queries, keys] = largest.map(|bits| f64::from_bits(bits.into_inner()));
    let size = 1.01 * bound.depth as f64 * queries * keys;
    // 0 · ∞ is NaN, as the score is.
    Ok(if size < f64::from(f32::MAX) / 2.0 { size } else { f64::INFINITY })
}
