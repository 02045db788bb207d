//! Index ramps, values that no memory holds.

use crate::kernels::isa::{ByLevel, by_level, shells};
use crate::kernels::{Extent, Target};
use crate::types::kind::Level;

/// Writes s32 values that grow by one step along a row and by another from row to row; sums wrap around.
///
/// # Safety
///
/// Every element of the tile can be written, and the machine runs the kernel's level.
pub(crate) type Ramp = unsafe fn(extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target);

/// The kernel that writes a ramp.
pub(crate) fn indices(level: Level) -> Ramp {
    INDICES[level.row()]
}

/// By level.
static INDICES: ByLevel<Ramp> = {
    shells! {
        I:
        fn kernel[](extent: Extent, first: i32, row_step: i32, column_step: i32, to: Target) {
            ramp(extent, first, row_step, column_step, to)
        }
    }

    by_level!(kernel)
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
