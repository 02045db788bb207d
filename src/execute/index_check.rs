//! Checks indices against the dims that they name.
#![allow(unsafe_code, reason = "indices are read from raw memory that was checked before")]

use crate::error::ExecuteFault;
use crate::kernels::lookup::index_at;
use crate::plan::{IndexCheck, IndexRule};
use crate::types::id::TensorId;

/// An index that names nothing.
pub(super) struct WrongIndex {
    /// Its place among the indices, counted row-major.
    place: usize,
    index: i64,
    range: IndexRange,
}

/// The numbers that an index may be.
#[derive(Clone, Copy)]
enum IndexRange {
    /// From either end of a dim of a size.
    Dim(i64),
    Between([i64; 2]),
}

impl IndexRange {
    fn contains(self, index: i64) -> bool {
        match self {
            Self::Dim(size) => (-size..size).contains(&index),
            Self::Between([first, last]) => (first..=last).contains(&index),
        }
    }
}

impl WrongIndex {
    /// The fault of an execution with the index in a tensor.
    pub(super) fn fault(&self, tensor: TensorId) -> ExecuteFault {
        let Self { place, index, range } = *self;
        match range {
            IndexRange::Dim(size) => ExecuteFault::IndexOutOfRange { tensor, place, index, size },
            IndexRange::Between([first, last]) => {
                ExecuteFault::NumberOutOfRange { tensor, place, number: index, first, last }
            }
        }
    }
}

/// The first index, in row-major order, that is beyond its dim.
///
/// # Safety
///
/// The addresses are those of the ports, of which those of the check fit the plan.
pub(super) unsafe fn first_wrong(check: &IndexCheck, ports: &[*mut u8]) -> Option<WrongIndex> {
    let IndexCheck { dims, rule, data_type, port } = check;
    let (&(count, stride), outer) = dims.split_last().unwrap_or((&(1, 0), &[]));
    let lines = outer.iter().map(|dim| dim.0).product::<usize>();
    for line in 0..lines {
        let mut rest = line;
        let mut start = ports[*port].cast_const();
        for &(extent, stride) in outer.iter().rev() {
            start = start.wrapping_offset(stride * (rest % extent) as isize);
            rest /= extent;
        }
        // SAFETY: as the caller promises.
        let used = unsafe { used_of(rule, line, count, ports) };
        for i in 0..used {
            // SAFETY: as the caller promises.
            let index = unsafe { index_at(start.wrapping_offset(stride * i as isize), *data_type) };
            let range = match rule {
                IndexRule::Dims(sizes) => IndexRange::Dim(sizes[i % sizes.len()]),
                IndexRule::Between(range) => IndexRange::Between(*range),
                IndexRule::Pages { pages, .. } => IndexRange::Between([0, pages - 1]),
            };
            if !range.contains(index) {
                return Some(WrongIndex { place: line * count + i, index, range });
            }
        }
    }
    None
}

/// How many of the indices of a line count: those of the pages in which a sequence has rows.
///
/// # Safety
///
/// As [`first_wrong`].
unsafe fn used_of(rule: &IndexRule, line: usize, count: usize, ports: &[*mut u8]) -> usize {
    let IndexRule::Pages { page, lengths: Some(lengths), .. } = rule else { return count };
    let at = ports[lengths.port].wrapping_offset(lengths.stride * line as isize);
    // SAFETY: as the caller promises.
    let length = unsafe { index_at(at, lengths.data_type) }.max(0) as u64;
    length.div_ceil((*page).max(1) as u64).min(count as u64) as usize
}
