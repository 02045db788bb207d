//! Index ramps, values that no memory holds.

use crate::kernels::{ByLevel, Extent, Target};
use crate::types::kind::Level;

/// Writes s32 values that grow by one step along a row and by another from row to row; sums wrap around.
///
/// # Safety
///
/// Every element of the tile can be written, and the machine runs the kernel's level.
pub(crate) type Ramp = unsafe fn(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target);

/// The kernel that writes a ramp.
pub(crate) fn indices(level: Level) -> Ramp {
    INDICES[level as usize]
}

/// By level.
static INDICES: ByLevel<Ramp> = {
    unsafe fn portable(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target) {
        // SAFETY: as the caller promises.
        unsafe { ramp(extent, first, row_step, column_step, to) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn avx2(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target) {
        // SAFETY: as the caller promises.
        unsafe { ramp(extent, first, row_step, column_step, to) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target) {
        // SAFETY: as the caller promises.
        unsafe { ramp(extent, first, row_step, column_step, to) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    use {portable as avx2, portable as avx512};

    [portable, avx2, avx512]
};

/// # Safety
///
/// As [`Ramp`].
#[inline(always)]
unsafe fn ramp(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target) {
    for row in 0..extent.rows {
        let to = to.row::<i32>(row);
        let start = first.wrapping_add(row_step.wrapping_mul(row as i32));
        for i in 0..extent.columns {
            // SAFETY: the caller promises that every element of the tile can be written.
            unsafe { to.add(i).write_unaligned(start.wrapping_add(column_step.wrapping_mul(i as i32))) };
        }
    }
}
