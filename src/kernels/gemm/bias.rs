//! The addition of one row to rows of sums.

use crate::kernels::isa::{at_level, shells};
use crate::kernels::vector::{LANES, Lanes};
use crate::kernels::{Extent, Target};
use crate::types::kind::Level;

/// Adds a row of numbers to each row of a tile. Kernels of elements would take longer for each short row than
/// for its elements (decision: short-bias-rows).
///
/// # Safety
///
/// The tile can be read and written, the row can be read, and they do not overlap; the machine runs the
/// level.
pub(crate) unsafe fn add_to_rows(level: Level, extent: Extent, sums: Target, row: *const f32) {
    // SAFETY: as the caller promises.
    unsafe { at_level!(level, add(extent, sums, row)) }
}

shells! {
    I:
    fn add[](extent: Extent, sums: Target, row: *const f32) {
        add_row::<I>(extent, sums, row)
    }
}

/// # Safety
///
/// As [`add_to_rows`].
#[inline(always)]
unsafe fn add_row<I: Lanes>(extent: Extent, sums: Target, addend: *const f32) {
    let whole = extent.columns - extent.columns % LANES;
    let rest = extent.columns - whole;
    for row in 0..extent.rows {
        let sums = sums.row::<f32>(row);
        // SAFETY: as the caller promises; vectors lie in the row.
        unsafe {
            for column in (0..whole).step_by(LANES) {
                let at = sums.wrapping_add(column);
                I::store(at, I::add(I::load(at), I::load(addend.wrapping_add(column))));
            }
            if rest > 0 {
                let (at, addend) = (sums.wrapping_add(whole), addend.wrapping_add(whole));
                let sum = I::add(I::load_first(at, rest, 0.0), I::load_first(addend, rest, 0.0));
                I::store_first(at, rest, sum);
            }
        }
    }
}
