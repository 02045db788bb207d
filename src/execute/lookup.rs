//! Runs phases of lookups.
#![allow(unsafe_code, reason = "rows are moved in raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::bindings::Bindings;
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::lookup::{IndexedLine, RowStrides, index_at, place_in};
use crate::plan::{Base, IndexOperand, LookupPhase, LookupWork, PartAxis, PlaceDim, Plan};

/// Moves the rows of all places.
pub(super) fn run(
    phase: &LookupPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let first = || {
        let at = |base: Base| bindings.address(base, &plan.constants);
        PlaceAddress {
            table: at(phase.table).cast_mut(),
            rows: at(phase.rows).cast_mut(),
            indices: phase.indices.as_ref().map_or(std::ptr::null(), |indices| at(indices.base)),
        }
    };
    // The copy of an input in whose place the result is has been made.
    if phase.indices.is_none() && first().table == first().rows {
        return Ok(());
    }
    runner.run(phase.parts.count, |_, ranges| {
        let first = first();
        ranges.flatten().for_each(|task| run_part(phase, first, task));
    })
}

/// The addresses of a place.
#[derive(Clone, Copy)]
struct PlaceAddress {
    table: *mut u8,
    rows: *mut u8,
    indices: *const u8,
}

impl PlaceAddress {
    fn along(self, dim: &PlaceDim, index: usize) -> Self {
        let index = index as isize;
        Self {
            table: self.table.wrapping_offset(dim.table * index),
            rows: self.rows.wrapping_offset(dim.rows * index),
            indices: self.indices.wrapping_offset(dim.indices * index),
        }
    }
}

/// Moves the rows of the places of a task.
fn run_part(phase: &LookupPhase, mut start: PlaceAddress, task: usize) {
    let mut ranges: SmallVec<[Range<usize>; 4]> = phase.dims.iter().map(|dim| 0..dim.extent).collect();
    let mut row = phase.row;
    match phase.parts.along {
        PartAxis::Dim(dim) => ranges[dim] = phase.parts.range(task, phase.dims[dim].extent),
        PartAxis::Row => {
            let range = phase.parts.range(task, row.count);
            let along = PlaceDim { extent: row.count, table: row.table, rows: row.rows, indices: 0 };
            start = start.along(&along, range.start);
            row.count = range.len();
        }
    }
    let last = ranges.len() - 1;
    let mut digits: SmallVec<[usize; 4]> = ranges.iter().map(|range| range.start).collect();
    loop {
        let outer = phase.dims[..last].iter().zip(&digits);
        let line = outer.fold(start, |place, (dim, &digit)| place.along(dim, digit));
        let first = line.along(&phase.dims[last], ranges[last].start);
        // SAFETY: each place is one of the phase, whose strides stay within tensors that fit the plan, and
        // only this task writes to it. The table does not overlap the rows.
        unsafe { run_line(phase, row, first, ranges[last].len()) };
        let advanced = (0..last).rev().find(|&dim| {
            digits[dim] += 1;
            let is_within = digits[dim] < ranges[dim].end;
            if !is_within {
                digits[dim] = ranges[dim].start;
            }
            is_within
        });
        if advanced.is_none() {
            return;
        }
    }
}

/// Moves the rows of some places along the last dim.
///
/// # Safety
///
/// The rows of the places can be accessed in the direction of the work.
unsafe fn run_line(phase: &LookupPhase, row: RowStrides, first: PlaceAddress, count: usize) {
    let dim = &phase.dims[phase.dims.len() - 1];
    let (LookupWork::Gather { line, .. } | LookupWork::Scatter { line, .. }) = phase.work;
    if let (Some(line), Some(indices)) = (line, &phase.indices) {
        let axis = indices.axes[0];
        let line_of = IndexedLine {
            count,
            indices: first.indices,
            index_stride: dim.indices,
            size: axis.size,
            axis_stride: axis.stride,
            table: first.table,
            table_stride: dim.table,
            rows: first.rows,
            row_stride: dim.rows,
        };
        // SAFETY: as the caller promises; dims without elements have no phase.
        unsafe { line(line_of) };
        return;
    }
    for i in 0..count {
        let place = first.along(dim, i);
        // SAFETY: as the caller promises.
        unsafe {
            let offset = phase.indices.as_ref().map_or(0, |indices| offset_of(indices, place.indices));
            let table = place.table.wrapping_offset(offset);
            match phase.work {
                LookupWork::Gather { row: copy, .. } => copy(row, table, place.rows),
                LookupWork::Scatter { row: combine, .. } => combine(row, table, place.rows),
            }
        }
    }
}

/// Bytes from the start of a table to the element that indices name.
///
/// # Safety
///
/// An index for each axis can be read at the address.
#[inline(always)]
unsafe fn offset_of(indices: &IndexOperand, at: *const u8) -> isize {
    let offset = |(i, axis): (usize, &crate::plan::LookupAxis)| {
        // SAFETY: as the caller promises.
        let index =
            unsafe { index_at(at.wrapping_offset(indices.tuple_stride * i as isize), indices.data_type) };
        place_in(index, axis.size) * axis.stride
    };
    indices.axes.iter().enumerate().map(offset).sum()
}
