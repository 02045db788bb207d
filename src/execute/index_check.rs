//! Checks indices against the dims that they name.
#![allow(unsafe_code, reason = "indices are read from raw memory that was checked before")]

use crate::kernels::lookup::index_at;
use crate::plan::IndexCheck;

/// An index that names nothing.
pub(super) struct WrongIndex {
    /// Its place among the indices, counted row-major.
    pub(super) place: usize,
    pub(super) index: i64,
    /// The size of the dim that it was to name.
    pub(super) size: i64,
}

/// The first index, in row-major order, that is beyond its dim.
///
/// # Safety
///
/// The address is that of the port of the indices, which fits the plan.
pub(super) unsafe fn first_wrong(check: &IndexCheck, at: *const u8) -> Option<WrongIndex> {
    let IndexCheck { dims, sizes, data_type, .. } = check;
    let (&(count, stride), outer) = dims.split_last().unwrap_or((&(1, 0), &[]));
    let lines = outer.iter().map(|dim| dim.0).product::<usize>();
    for line in 0..lines {
        let mut rest = line;
        let mut start = at;
        for &(extent, stride) in outer.iter().rev() {
            start = start.wrapping_offset(stride * (rest % extent) as isize);
            rest /= extent;
        }
        for tuple in (0..count).step_by(sizes.len()) {
            for (i, &size) in (tuple..).zip(sizes) {
                // SAFETY: as the caller promises.
                let index = unsafe { index_at(start.wrapping_offset(stride * i as isize), *data_type) };
                if !(-size..size).contains(&index) {
                    return Some(WrongIndex { place: line * count + i, index, size });
                }
            }
        }
    }
    None
}
