//! The numbers of each query in memory: sinks, which are scores without a key, with which the state of a
//! SoftMax starts, and statistics, with which it ends.
#![allow(unsafe_code, reason = "sinks and statistics are raw memory that was checked before")]

use half::{bf16, f16};

use crate::execute::cursor::Cursor;
use crate::plan::{AttentionCore, AttentionOperand};
use crate::types::dtype::DataType;

/// Reads the sinks of the queries at the cursor, if there are any.
pub(super) fn read_sinks(phase: &AttentionCore, cursor: &Cursor<'_>, sinks: &mut [f32]) {
    let Some(data_type) = phase.sinks else { return };
    let access = phase.access(AttentionOperand::Sinks);
    for (query, sink) in sinks.iter_mut().enumerate() {
        // SAFETY: there is a sink for each query, as far apart as the access says.
        *sink = unsafe { read_float(cursor.row(access, query), data_type) };
    }
}

/// Writes the statistics of the queries at the cursor.
pub(super) fn store_stats(phase: &AttentionCore, cursor: &Cursor<'_>, stats: impl Iterator<Item = f32>) {
    let access = phase.access(AttentionOperand::Stats);
    for (query, number) in stats.enumerate() {
        // SAFETY: there is a statistic for each query, as far apart as the access says.
        unsafe { cursor.row(access, query).cast::<f32>().write_unaligned(number) };
    }
}

/// Sets sums of exponentials to those of the sinks under the maxima.
pub(super) fn count_sinks(sums: &mut [f32], max: &[f32], sinks: &[f32]) {
    for ((sum, &max), &sink) in sums.iter_mut().zip(max).zip(sinks) {
        *sum = sink_weight(sink, max);
    }
}

/// The maximum of a query that has seen its sink alone. A sink without a number makes all weights NaN by its
/// own, which is no maximum.
pub(super) fn sink_maximum(sink: f32) -> f32 {
    if sink < f32::INFINITY { sink } else { f32::NEG_INFINITY }
}

/// The exponential of a sink under a maximum.
fn sink_weight(sink: f32, max: f32) -> f32 {
    match sink {
        f32::NEG_INFINITY => 0.0,
        _ if sink < f32::INFINITY => (f64::from(sink) - f64::from(max)).exp() as f32,
        _ => f32::NAN,
    }
}

/// A floating-point number in memory.
///
/// # Safety
///
/// The number can be read.
unsafe fn read_float(at: *const u8, data_type: DataType) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        match data_type {
            DataType::F16 => at.cast::<f16>().read_unaligned().to_f32(),
            DataType::Bf16 => at.cast::<bf16>().read_unaligned().to_f32(),
            _ => at.cast::<f32>().read_unaligned(),
        }
    }
}
