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
    let row_bytes = (extent.columns * size_of::<f32>()) as isize;
    if sums.row_stride == row_bytes && matches!(extent.columns, 1 | 2 | 4 | 8) {
        // Rows that follow each other are one.
        let mut repeated = [0.0; LANES];
        // SAFETY: as the caller promises; vectors lie in the rows together.
        unsafe {
            for (lane, number) in repeated.iter_mut().enumerate() {
                *number = addend.add(lane % extent.columns).read_unaligned();
            }
            let (count, addend) = (extent.rows * extent.columns, I::load(repeated.as_ptr()));
            for first in (0..count).step_by(LANES) {
                let (at, part) = (sums.at.cast::<f32>().add(first), (count - first).min(LANES));
                I::store_first(at, part, I::add(I::load_first(at, part, 0.0), addend));
            }
        }
        return;
    }
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
