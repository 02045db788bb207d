//! Runs phases of pools and interpolations.
#![allow(unsafe_code, reason = "rows are read and written in raw memory that was checked before")]

use std::ops::Range;

use smallvec::SmallVec;

use super::bindings::Bindings;
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::rows::{
    FinishedRow, JoinedRow, LargestAcross, LargestDown, LargestKernels, NOWHERE, PooledPlanes, RepeatedRows,
    RowAcross, RowsDown, ScatteredRow, TapsAcross, WindowsAcross, WindowsAlong, pool_planes,
};
use crate::kernels::vector::RowType;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    AxisTaps, Base, Plan, PoolAcross, PoolDivisor, PoolPhase, PoolPlanes, PoolWork, RowRepeats,
};

/// Makes all rows of the result.
pub(super) fn run(
    phase: &PoolPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(phase.tasks(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let mut worker = PoolWorker { phase, plan, bindings, scratch, taps: Vec::new(), next: Vec::new() };
        ranges.flatten().for_each(|task| worker.run(task));
    })
}

/// A row of the source that makes a row of the result: the bytes to it from the plane, its share, its number
/// in the kernel, and the number of the row in a tensor of dense planes.
#[derive(Debug, Clone, Copy)]
struct RowTap {
    offset: isize,
    share: f32,
    number: u32,
    row: usize,
}

/// Makes rows on one thread.
struct PoolWorker<'a> {
    phase: &'a PoolPhase,
    plan: &'a Plan,
    bindings: &'a Bindings,
    scratch: *mut u8,
    taps: Vec<RowTap>,
    next: Vec<RowTap>,
}

/// A row of the result.
struct ResultRow {
    /// The number of its plane.
    plane: usize,
    /// Bytes from the starts of source and result.
    source: isize,
    result: isize,
    /// The groups that are made.
    outputs: Range<usize>,
}

impl PoolWorker<'_> {
    fn run(&mut self, task: usize) {
        let row = self.place(task);
        match &self.phase.work {
            PoolWork::Combine(divisor) => self.combine(&row, divisor),
            PoolWork::Planes(divisor, planes) => self.pool_planes(&row, task, (divisor, planes)),
            PoolWork::Numbers { to, kernels } => self.number(&row, task, *to, kernels),
            PoolWork::Scatter { numbers, kernels } => self.scatter(&row, *numbers, kernels),
            PoolWork::Repeat(repeats) => self.repeat(&row, repeats),
        }
    }

    /// The place of a task's row; the rows of the source that make it are in `taps` then.
    fn place(&mut self, task: usize) -> ResultRow {
        let phase = self.phase;
        let (mut rest, part) = (task / phase.parts, task % phase.parts);
        let first = part * phase.part;
        let outputs = first..(first + phase.part).min(phase.outputs);
        let (mut source, mut result) = (0, 0);
        // From the innermost dim on, before whose rows those of outer dims come.
        self.taps.clear();
        self.taps.push(RowTap { offset: 0, share: 1.0, number: 0, row: 0 });
        let (mut kernel, mut rows) = (1, 1);
        for (dim, axis) in phase.outer.iter().enumerate().rev() {
            let index = rest % axis.rows();
            rest /= axis.rows();
            result += phase.result.outer[dim] * index as isize;
            self.add_axis(axis, index, phase.source.outer[dim], (kernel, rows));
            kernel *= axis.kernel;
            rows *= axis.source;
        }
        let plane = rest;
        for (dim, &extent) in phase.planes.iter().enumerate().rev() {
            let index = (rest % extent) as isize;
            rest /= extent;
            source += phase.source.planes[dim] * index;
            result += phase.result.planes[dim] * index;
        }
        ResultRow { plane, source, result, outputs }
    }

    /// Multiplies the rows so far by those along one more dim; `units` are the steps of numbers and of rows.
    fn add_axis(&mut self, axis: &AxisTaps, index: usize, stride: isize, units: (u32, usize)) {
        self.next.clear();
        for tap in axis.of(index) {
            self.next.extend(self.taps.iter().map(|inner| RowTap {
                offset: inner.offset + stride * tap.place as isize,
                share: inner.share * tap.share,
                number: inner.number + units.0 * tap.number,
                row: inner.row + units.1 * tap.place as usize,
            }));
        }
        std::mem::swap(&mut self.taps, &mut self.next);
    }

    fn scratch_at<T>(&self, offset: usize) -> *mut T {
        self.scratch.wrapping_add(offset).cast()
    }

    fn address(&self, base: Base) -> *const u8 {
        self.bindings.address(base, &self.plan.constants)
    }

    /// The groups of the source that a part needs, and the groups beyond it before and behind.
    fn window(&self, outputs: &Range<usize>) -> (usize, Range<usize>, usize) {
        let phase = self.phase;
        match phase.across {
            PoolAcross::Strided(along) => {
                // Places are counted from `before` groups before the row.
                let (before, first) = (along.before, outputs.start * along.step);
                let all = along.reach(outputs.len());
                let lead = before.saturating_sub(first).min(all);
                let from = first.max(before);
                let to = (first + all).min(before + phase.width).max(from);
                (lead, from - before..to - before, all - lead - (to - from))
            }
            PoolAcross::Named { .. } => (0, 0..phase.width, 1),
        }
    }

    /// Writes the rows that make a row of the result, combined, behind `start` groups of the room; and
    /// `start` before and behind them. The answer is the first of them all.
    fn combine_down(&self, row: &ResultRow) -> *mut f32 {
        let phase = self.phase;
        let (before, groups, behind) = self.window(&row.outputs);
        let (inner, width) = (phase.inner, groups.len() * phase.inner);
        let room: *mut f32 = self.scratch_at(phase.scratch.combined);
        let to = room.wrapping_add(before * inner);
        // SAFETY: the room has the groups of a part, with those before and behind; rows are within the
        // source.
        unsafe {
            fill(room, before * inner, phase.start);
            fill(to.add(width), behind * inner, phase.start);
            let at = |tap: &RowTap| self.source_at(row, tap, &groups);
            let all_shares: SmallVec<[f32; 16]> = self.taps.iter().map(|tap| tap.share).collect();
            let shares = if phase.is_plain { std::ptr::null() } else { all_shares.as_ptr() };
            let mut down = RowsDown {
                rows: std::ptr::null(),
                shares,
                count: self.taps.len(),
                float: phase.source.float,
                width,
                start: Some(phase.start),
                to,
            };
            if phase.source.packed.is_none() {
                let rows: SmallVec<[*const u8; 16]> = self.taps.iter().map(at).collect();
                down.rows = rows.as_ptr();
                (phase.kernels.down)(&down);
                return room;
            }
            // One row after the other is brought to neighbours.
            for (index, tap) in self.taps.iter().enumerate() {
                let packed = self.packed(at(tap), groups.len());
                down.rows = &packed;
                down.count = 1;
                (phase.kernels.down)(&down);
                down.start = None;
                down.shares = if phase.is_plain { shares } else { shares.wrapping_add(index + 1) };
            }
            if self.taps.is_empty() {
                fill(to, width, phase.start);
            }
        }
        room
    }

    /// The first of some groups of a row of the source.
    fn source_at(&self, row: &ResultRow, tap: &RowTap, groups: &Range<usize>) -> *const u8 {
        let source = &self.phase.source;
        let offset = row.source + tap.offset + source.along * groups.start as isize;
        self.address(source.base).wrapping_offset(offset)
    }

    /// Groups of a row of the source as neighbours.
    fn packed(&self, from: *const u8, groups: usize) -> *const u8 {
        let PoolPhase { source, inner, scratch, .. } = self.phase;
        let Some((pack, _)) = source.packed else { return from };
        let to = self.scratch_at::<u8>(scratch.packed);
        let bytes = source.float.bytes();
        let from = Source { at: from, row_stride: source.along };
        let target = Target { at: to, row_stride: (inner * bytes) as isize };
        let (extent, from, stride, target) = match inner {
            1 => (Extent { rows: 1, columns: groups }, from, source.along, target),
            _ => (Extent { rows: groups, columns: *inner }, from, source.within, target),
        };
        // SAFETY: the groups are within the source, and the scratch has room for those of a part.
        unsafe { pack(extent, from, stride, 0, target) };
        to
    }

    /// Groups of a row of the source as neighbours in f32.
    fn widened(&self, from: *const u8, groups: usize) -> *const f32 {
        let from = self.packed(from, groups);
        let Some(convert) = self.phase.source.to_f32 else { return from.cast() };
        let to = self.scratch_at::<f32>(self.phase.scratch.widened);
        let extent = Extent { rows: 1, columns: groups * self.phase.inner };
        let (from, target) = (Source { at: from, row_stride: 0 }, Target { at: to.cast(), row_stride: 0 });
        // SAFETY: as for packed rows.
        unsafe { convert(extent, from, target, &[0.0; 2], &mut PrefetchQueue::default()) };
        to
    }

    /// A row in parts, which go to some place of the scratch.
    fn taken_apart(&self, row: *mut f32, across: &WindowsAcross, scratch: usize) -> *mut f32 {
        let to = self.scratch_at(scratch);
        // SAFETY: the row has all groups of the windows, and the scratch room for as many.
        unsafe {
            (self.phase.kernels.planes.take_apart)(row, across.reach(), across.part(), across.step, to)
        };
        to
    }

    fn combine(&self, row: &ResultRow, divisor: &PoolDivisor) {
        let phase = self.phase;
        let mut from = self.combine_down(row);
        let outputs = row.outputs.len();
        let is_direct = phase.result.packed.is_none() && phase.result.float == RowType::F32;
        let at = self.result_at(row);
        let to = if is_direct { at.cast() } else { self.scratch_at(phase.scratch.result) };
        let (ranks, taps) = match &phase.across {
            &PoolAcross::Strided(WindowsAlong { step, between, ranks, .. }) => {
                let mut part = 0;
                if step > 1 && phase.inner == 1 {
                    let across = WindowsAcross { windows: outputs, inner: 1, ranks, between, step };
                    part = across.part();
                    from = self.taken_apart(from, &across, phase.scratch.apart);
                }
                (ranks, TapsAcross::Strided { step, between, part })
            }
            PoolAcross::Named { places, shares, ranks } => {
                (*ranks, TapsAcross::Named { places: places.as_ptr(), shares: shares.as_ptr() })
            }
        };
        let (divisor, counts) = match divisor {
            PoolDivisor::Same(divisor) => (*divisor, std::ptr::null()),
            PoolDivisor::Counted(counts) => (self.taps.len() as f32, counts[row.outputs.start..].as_ptr()),
        };
        let (inner, start) = (phase.inner, phase.start);
        // SAFETY: the combined row has all groups that the part's outputs are made of; there is room for
        // these in the result, or in the scratch.
        unsafe {
            (phase.kernels.across)(&RowAcross { row: from, to, outputs, inner, ranks, start, taps });
            (phase.kernels.finish)(&FinishedRow { row: to, outputs, inner, divisor, counts });
        }
        if !is_direct {
            self.write(to, at, outputs);
        }
    }

    /// Makes some rows of windows of a plane, or those of several planes.
    fn pool_planes(&self, row: &ResultRow, task: usize, (divisor, work): (&PoolDivisor, &PoolPlanes)) {
        let PoolPhase { source, result, scratch, outputs, start, .. } = self.phase;
        let &PoolPlanes { down, rows, of_task, strip, planes, planes_of_task, strides } = work;
        let PoolAcross::Strided(along) = self.phase.across else { return };
        // The rows of a plane are those of the last outer dim, or one.
        let row_strides = [source, result].map(|of| of.outer.last().copied().unwrap_or(0));
        let part = task % rows.div_ceil(of_task);
        let first = part * of_task;
        let first_plane = row.plane % planes.div_ceil(planes_of_task) * planes_of_task;
        let (divisor, counts) = match divisor {
            PoolDivisor::Same(divisor) => (*divisor, std::ptr::null()),
            PoolDivisor::Counted(counts) => (1.0, counts.as_ptr()),
        };
        let slices: SmallVec<[isize; 16]> = self.taps.iter().map(|tap| tap.offset).collect();
        // SAFETY: the planes are within the source, and the rows within the result; the scratch has room for
        // a strip.
        unsafe {
            let operands = PooledPlanes {
                from: self.address(source.base).wrapping_offset(row.source),
                float: source.float,
                // The place of a task is that of the row with its number.
                to: self.result_at(row).wrapping_offset(row_strides[1] * (first - part) as isize),
                to_float: result.float,
                planes: planes_of_task.min(planes - first_plane),
                plane_strides: strides,
                row_strides,
                slices: slices.as_ptr(),
                depth: slices.len(),
                down,
                along,
                first,
                rows: of_task.min(rows - first),
                outputs: *outputs,
                start: *start,
                divisor,
                counts,
                strip,
                room: self.scratch_at(scratch.combined),
            };
            pool_planes(&self.phase.kernels.planes, &operands);
        }
    }

    /// Repeats the elements of rows; each outer dim has one tap.
    fn repeat(&self, row: &ResultRow, repeats: &RowRepeats) {
        let &RowRepeats { kernel, rows, times, strides: [of_source, of_result] } = repeats;
        for tap in &self.taps {
            let from = self.source_at(row, tap, &(0..self.phase.width));
            let (from, to) = (
                Source { at: from, row_stride: of_source },
                Target { at: self.result_at(row), row_stride: of_result },
            );
            // SAFETY: the rows are within source and result, and one task alone writes them.
            unsafe {
                let (float, columns) = (self.phase.source.float, self.phase.width);
                kernel(&RepeatedRows { from, to, float, rows, columns, times });
            }
        }
    }

    fn result_at(&self, row: &ResultRow) -> *mut u8 {
        let result = &self.phase.result;
        let offset = row.result + result.along * row.outputs.start as isize;
        self.address(result.base).cast_mut().wrapping_offset(offset)
    }

    /// Writes groups of f32 to the result.
    fn write(&self, from: *const f32, at: *mut u8, groups: usize) {
        let PoolPhase { result, inner, scratch, .. } = self.phase;
        let mut from: *const u8 = from.cast();
        if let Some(convert) = result.of_f32 {
            let to = match result.packed {
                None => at,
                Some(_) => self.scratch_at(scratch.narrow),
            };
            let extent = Extent { rows: 1, columns: groups * inner };
            let (source, target) = (Source { at: from, row_stride: 0 }, Target { at: to, row_stride: 0 });
            // SAFETY: the scratch has room for the groups of a part.
            unsafe { convert(extent, source, target, &[0.0; 2], &mut PrefetchQueue::default()) };
            from = to;
        }
        let bytes = result.float.bytes();
        match result.packed {
            Some((_, unpack)) => {
                let source = Source { at: from, row_stride: (inner * bytes) as isize };
                let target = Target { at, row_stride: result.along };
                let (extent, stride) = match inner {
                    1 => (Extent { rows: 1, columns: groups }, result.along),
                    _ => (Extent { rows: groups, columns: *inner }, result.within),
                };
                // SAFETY: the groups are within the result, which one task alone writes.
                unsafe { unpack(extent, source, target, stride) };
            }
            // SAFETY: as above.
            None if result.of_f32.is_none() => unsafe {
                at.copy_from_nonoverlapping(from, groups * inner * bytes);
            },
            None => {}
        }
    }

    /// How so many windows go along a row.
    fn across(&self, windows: usize) -> Option<WindowsAcross> {
        let PoolAcross::Strided(WindowsAlong { step, between, ranks, .. }) = self.phase.across else {
            return None;
        };
        Some(WindowsAcross { windows, inner: self.phase.inner, ranks, between, step })
    }

    /// Finds the largest elements of windows.
    fn number(&self, row: &ResultRow, task: usize, to: Base, kernels: &LargestKernels) {
        let PoolPhase { inner, scratch, .. } = *self.phase;
        let Some(across) = self.across(row.outputs.len()) else { return };
        let (before, groups, behind) = self.window(&row.outputs);
        let (before, width, behind) = (before * inner, groups.len() * inner, behind * inner);
        let mut largest: *mut f32 = self.scratch_at(scratch.combined);
        let mut numbers: *mut u32 = self.scratch_at(scratch.numbers);
        let at = (task / self.phase.parts * self.phase.outputs + row.outputs.start) * inner;
        let to = self.address(to).cast_mut().cast::<u32>().wrapping_add(at);
        // SAFETY: the scratch has room for the groups of a part with those beyond the source, and to take
        // them apart; the buffer has a number for each output.
        unsafe {
            let empty = if self.taps.is_empty() { width } else { 0 };
            for (from, count) in [(0, before + empty), (before + width, behind)] {
                fill(largest.add(from), count, f32::NEG_INFINITY);
                fill(numbers.add(from), count, NOWHERE);
            }
            for (index, tap) in self.taps.iter().enumerate() {
                (kernels.down)(&LargestDown {
                    row: self.widened(self.source_at(row, tap, &groups), groups.len()),
                    number: tap.number,
                    is_first: index == 0,
                    width,
                    largest: largest.add(before),
                    numbers: numbers.add(before),
                });
            }
            if across.is_apart() {
                largest = self.taken_apart(largest, &across, scratch.apart);
                numbers = self.taken_apart(numbers.cast(), &across, scratch.apart_numbers).cast();
            }
            (kernels.across)(&LargestAcross { largest, numbers, across, to });
        }
    }

    /// Adds gradients of windows to the elements of a row.
    fn scatter(&self, row: &ResultRow, numbers: Base, kernels: &LargestKernels) {
        let PoolPhase { inner, width: windows, outputs, scratch, .. } = *self.phase;
        let Some(across) = self.across(windows) else { return };
        let PoolAcross::Strided(WindowsAlong { before, step, ranks, .. }) = self.phase.across else { return };
        let length = across.reach().max(before + outputs);
        let joined: *mut f32 = self.scratch_at(scratch.combined);
        let (sums, part) = match across.is_apart() {
            true => (self.scratch_at(scratch.apart), length.div_ceil(step)),
            false => (joined, length),
        };
        let numbers = self.address(numbers).cast::<u32>();
        let rows = self.phase.outer.iter().map(|axis| axis.source).product::<usize>();
        // SAFETY: the scratch has room for the padded row, also in parts; the buffer has a number for each
        // window.
        unsafe {
            fill(sums, if across.is_apart() { part * step } else { length * inner }, 0.0);
            for tap in &self.taps {
                let of_row = (row.plane * rows + tap.row) * windows * inner;
                (kernels.scatter)(&ScatteredRow {
                    gradient: self.widened(self.source_at(row, tap, &(0..windows)), windows),
                    numbers: numbers.add(of_row),
                    across,
                    first: tap.number * ranks as u32,
                    to: sums,
                    part,
                });
            }
            if across.is_apart() {
                (kernels.join)(&JoinedRow { from: sums, part, step, length, to: joined });
            }
            let result = joined.add(before * inner);
            let (divisor, counts) = (1.0, std::ptr::null());
            (self.phase.kernels.finish)(&FinishedRow { row: result, outputs, inner, divisor, counts });
            self.write(result, self.result_at(row), outputs);
        }
    }
}

/// Writes the same number to some places.
///
/// # Safety
///
/// They can be written.
unsafe fn fill<T: Copy>(at: *mut T, count: usize, number: T) {
    for i in 0..count {
        // SAFETY: as the caller promises.
        unsafe { at.add(i).write(number) };
    }
}
