//! Checks indices against the dims that they name.
#![allow(unsafe_code, reason = "indices are read from raw memory that was checked before")]

use crate::error::ExecuteFault;
use crate::kernels::lookup::{self, index_at};
use crate::plan::{IndexCheck, IndexRule};
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::Level;

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
    /// The first and the last number.
    fn ends(self) -> [i64; 2] {
        match self {
            Self::Dim(size) => [-size, size - 1],
            Self::Between(ends) => ends,
        }
    }

    fn contains(self, index: i64) -> bool {
        let [first, last] = self.ends();
        (first..=last).contains(&index)
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
        // SAFETY: as the caller promises.
        if only_range(rule).is_some_and(|range| unsafe { are_within(range, start, stride, used, *data_type) })
        {
            continue;
        }
        for i in 0..used {
            // SAFETY: as the caller promises.
            let index = unsafe { index_at(start.wrapping_offset(stride * i as isize), *data_type) };
            let range = range_of(rule, i);
            if !range.contains(index) {
                return Some(WrongIndex { place: line * count + i, index, range });
            }
        }
    }
    None
}

/// The numbers that an index at a place of a line may be.
fn range_of(rule: &IndexRule, place: usize) -> IndexRange {
    match rule {
        IndexRule::Dims(sizes) => IndexRange::Dim(sizes[place % sizes.len()]),
        IndexRule::Between(range) => IndexRange::Between(*range),
        IndexRule::Pages { pages, .. } => IndexRange::Between([0, pages - 1]),
    }
}

/// The numbers that each index of a line may be, if these are the same.
fn only_range(rule: &IndexRule) -> Option<IndexRange> {
    match rule {
        IndexRule::Dims(sizes) if sizes.len() != 1 => None,
        _ => Some(range_of(rule, 0)),
    }
}

/// True if all indices of a line are in a range. Those that do not lie contiguous are looked at one by one.
///
/// # Safety
///
/// The indices can be read.
unsafe fn are_within(
    range: IndexRange,
    start: *const u8,
    stride: isize,
    count: usize,
    data_type: DataType,
) -> bool {
    let [first, last] = range.ends();
    let is_contiguous = data_type.size() == Some(stride.unsigned_abs()) && stride > 0;
    // SAFETY: as the caller promises.
    let are_within = || unsafe {
        let span = last.wrapping_sub(first) as u64;
        lookup::are_within(Level::available(), (start, data_type), count, first, span)
    };
    first <= last && is_contiguous && are_within()
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
