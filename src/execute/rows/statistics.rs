//! Numbers of rows: results of reductions, and statistics of whole rows or of their parts.

use super::Worker;
use super::runs::{RowPart, row_runs};
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::rows::{RowPass, join_exponentials, join_moments, join_sums};
use crate::kernels::{Extent, Source, Target};
use crate::plan::{AccessId, Measured, PlaceNumbers, RowPlace, RowWork};

impl Worker<'_> {
    /// Room for a number of each place of a tile; null if nobody reads the numbers.
    pub(super) fn numbers(&self, index: usize) -> *mut f64 {
        let numbers = self.phase.numbers.get(index).filter(|numbers| numbers.place != RowPlace::Unused);
        numbers.map_or(std::ptr::null_mut(), |numbers| self.scratch_at(numbers.scratch))
    }

    /// Writes the numbers of the places of a tile to memory.
    pub(super) fn write_numbers(&self, rows: usize) {
        for numbers in self.phase.numbers.iter().filter(|numbers| numbers.place != RowPlace::Unused) {
            let to = self.destination(numbers.place);
            let extent = Extent { rows: 1, columns: rows };
            let wide = Source { at: self.scratch_at(numbers.scratch), row_stride: 0 };
            let narrow = Target { at: self.scratch_at(numbers.narrow), row_stride: 0 };
            let (is_dense, stride) = (to.row_stride == numbers.bytes as isize, to.row_stride);
            let to = Target { row_stride: 0, ..to };
            // SAFETY: there are as many numbers as places of the tile, with room for their results in scratch
            // and in memory.
            unsafe {
                let from = match numbers.convert {
                    Some(convert) => {
                        let direct = if is_dense { to } else { narrow };
                        convert(extent, wide, direct, &[0.0; 2], &mut PrefetchQueue::default());
                        Source { at: narrow.at, row_stride: 0 }
                    }
                    None => wide,
                };
                if !is_dense || numbers.convert.is_none() {
                    (numbers.unpack)(extent, from, to, stride);
                }
            }
        }
    }

    /// Reads the numbers of the places of a tile, or those along a part of a row, as f64.
    pub(super) fn given(&self, numbers: &PlaceNumbers, part: RowPart) -> *mut f64 {
        let Source { at, row_stride } = self.memory(numbers.place);
        let is_along = self.phase.work.is_given_along();
        let narrow = Target { at: self.scratch_at(numbers.narrow), row_stride: 0 };
        let wide = Target { at: self.scratch_at(numbers.scratch), row_stride: 0 };
        // SAFETY: the access stays within its memory for every place and element; the scratch has room for
        // the numbers.
        unsafe {
            let from = Source { at, row_stride: 0 };
            let columns = match is_along {
                false => {
                    (numbers.pack)(Extent { rows: 1, columns: part.rows }, from, row_stride, 0, narrow);
                    part.rows
                }
                true => {
                    row_runs(&numbers.along, part, |run| {
                        let from = Source { at: from.at.wrapping_offset(run.offset), ..from };
                        let to = Target { at: narrow.at.wrapping_add(run.done * numbers.bytes), ..narrow };
                        (numbers.pack)(Extent { rows: 1, columns: run.count }, from, run.stride, 0, to);
                    });
                    part.count
                }
            };
            if let Some(convert) = numbers.convert {
                let narrow = Source { at: narrow.at, row_stride: 0 };
                let extent = Extent { rows: 1, columns };
                convert(extent, narrow, wide, &[0.0; 2], &mut PrefetchQueue::default());
            }
            wide.at.cast()
        }
    }

    /// Scratch for the statistics of the rows of a tile, or of parts of them.
    pub(super) fn measured(&self) -> [*mut f64; 2] {
        match self.phase.measured {
            Some(measured) => measured.scratch.map(|scratch| self.scratch_at(scratch)),
            None => [std::ptr::null_mut(); 2],
        }
    }

    /// The statistics of the parts of the row of a place, as they stand in memory.
    pub(super) fn measured_parts(&self, access: AccessId, row: usize) -> *mut [f64; 2] {
        let from = self.memory(RowPlace::Access(access));
        from.at.wrapping_offset(from.row_stride * row as isize).cast_mut().cast()
    }

    /// Joins the statistics of the parts of each row of a tile.
    pub(super) fn join(&mut self, tile: usize, rows: usize) {
        let Some(measured) = self.phase.measured.filter(|measured| measured.pass == RowPass::Results) else {
            return;
        };
        if self.joined.replace(tile) == Some(tile) {
            return;
        }
        let (length, Measured { part, parts, .. }) = (self.phase.length, measured);
        let to = measured.scratch.map(|scratch| self.scratch_at::<f64>(scratch));
        for row in 0..rows {
            let from = self.measured_parts(measured.access, row);
            // SAFETY: the phase before has written two numbers for each part of each place.
            let of_parts = (0..parts).map(|part| unsafe { from.add(part).read() });
            let joined = match self.phase.work {
                RowWork::SoftMax { inf_as_zero, .. } => join_exponentials(of_parts, inf_as_zero),
                RowWork::SoftMaxBackward(_) | RowWork::NormBackward { .. } => join_sums(of_parts),
                _ => join_moments(of_parts, length, part),
            };
            // SAFETY: there is room for two numbers of each place of a tile.
            to.into_iter().zip(joined).for_each(|(to, number)| unsafe { to.add(row).write(number) });
        }
    }

    /// Writes the statistics of a part of each row of a tile to memory.
    pub(super) fn write_measured(&self, part: RowPart) {
        let Some(Measured { access, scratch, .. }) = self.phase.measured else { return };
        let measured = scratch.map(|scratch| self.scratch_at::<f64>(scratch));
        for row in 0..part.rows {
            let to = self.measured_parts(access, row).wrapping_add(part.first / self.phase.part);
            // SAFETY: the kernel has written two numbers for each row, and the buffer has room for those of
            // each part of each place.
            unsafe { to.write(measured.map(|numbers| numbers.add(row).read())) };
        }
    }
}
