//! Scores without a key, with which the state of a SoftMax starts.
#![allow(unsafe_code, reason = "sinks are read from raw memory that was checked before")]

use half::{bf16, f16};

use crate::types::dtype::DataType;

/// The maximum of a query that has seen its sink alone. A sink without a number makes all weights NaN by its
/// own, which is no maximum.
pub(super) fn sink_maximum(sink: f32) -> f32 {
    if sink < f32::INFINITY { sink } else { f32::NEG_INFINITY }
}

/// The exponential of a sink under a maximum.
pub(super) fn sink_weight(sink: f32, max: f32) -> f32 {
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
pub(super) unsafe fn read_float(at: *const u8, data_type: DataType) -> f32 {
    // SAFETY: as the caller promises.
    unsafe {
        match data_type {
            DataType::F16 => at.cast::<f16>().read_unaligned().to_f32(),
            DataType::Bf16 => at.cast::<bf16>().read_unaligned().to_f32(),
            _ => at.cast::<f32>().read_unaligned(),
        }
    }
}
