//! Runs phases that give the first elements of lines in order of size.
#![allow(unsafe_code, reason = "lines are read and written in raw memory that was checked before")]

use super::bindings::Bindings;
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::top_k::ColumnLines;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{LineDim, LineForm, LineOperand, Plan, TopKPhase};
use crate::types::dtype::DataType;

/// Finds the first elements of all lines.
pub(super) fn run(
    phase: &TopKPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    runner.run(phase.tasks(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        for task in ranges.flatten() {
            LineBlock::new(phase, plan, bindings, scratch, task).run();
        }
    })
}

/// Lines side by side along the last dim.
struct LineBlock<'a> {
    phase: &'a TopKPhase,
    scratch: *mut u8,
    along: LineDim,
    lines: usize,
    source: *const u8,
    indices: *mut u8,
    elements: Option<*mut u8>,
}

impl<'a> LineBlock<'a> {
    fn new(phase: &'a TopKPhase, plan: &Plan, bindings: &Bindings, scratch: *mut u8, task: usize) -> Self {
        let at = |operand: &LineOperand| bindings.address(operand.base, &plan.constants).cast_mut();
        let along = phase.dims[phase.dims.len() - 1];
        let (mut rest, first) = (task / phase.blocks(), task % phase.blocks() * phase.lines);
        let mut block = Self {
            phase,
            scratch,
            along,
            lines: phase.lines.min(along.extent - first),
            source: at(&phase.source),
            indices: at(&phase.indices),
            elements: phase.elements.as_ref().map(at),
        };
        block.step(&along, first);
        for dim in phase.dims[..phase.dims.len() - 1].iter().rev() {
            block.step(dim, rest % dim.extent);
            rest /= dim.extent;
        }
        block
    }

    /// Goes so many places along a dim.
    fn step(&mut self, dim: &LineDim, count: usize) {
        let count = count as isize;
        self.source = self.source.wrapping_offset(dim.source * count);
        self.indices = self.indices.wrapping_offset(dim.indices * count);
        self.elements = self.elements.map(|at| at.wrapping_offset(dim.elements * count));
    }

    fn run(mut self) {
        let phase = self.phase;
        match phase.form {
            LineForm::Columns { steps } => {
                let parts = phase.length.div_ceil(steps);
                for part in 0..parts {
                    let index = if phase.ranking.is_from_last() { parts - 1 - part } else { part };
                    let first = index * steps;
                    let count = steps.min(phase.length - first);
                    let row_stride = phase.source.stride;
                    let at = self.source.wrapping_offset(row_stride * first as isize);
                    self.columns(Source { at, row_stride }, first, count, part == 0);
                }
                self.write(self.lines, 1);
            }
            LineForm::Transposed => {
                let extent = Extent { rows: phase.length, columns: self.lines };
                let source = Source { at: self.source, row_stride: phase.source.stride };
                let source = self.packed(extent, source, self.along.source);
                self.columns(source, 0, phase.length, true);
                self.write(self.lines, 1);
            }
            LineForm::Rows if phase.count == 1 => self.rows(),
            LineForm::Rows => {
                let line = self.along;
                for _ in 0..self.lines {
                    let source = self.row(self.source);
                    let (keys, places) = (self.scratch_at(phase.keys), self.scratch_at(phase.places));
                    // SAFETY: the line lies contiguous; the scratch has room for its keys and places.
                    unsafe {
                        let counts = (phase.length, phase.count);
                        (phase.kernels.sorted)(source.at, counts, phase.ranking, keys, places.cast());
                    }
                    self.write(1, phase.count);
                    self.step(&line, 1);
                }
            }
        }
    }

    /// The first element of each line, line by line.
    fn rows(&self) {
        let phase = self.phase;
        let places = self.scratch_at(phase.places).cast::<u32>();
        let is_there = phase.pack.is_none() && phase.widen.is_none();
        let lines = if is_there { self.lines } else { 1 };
        let extent = Extent { rows: lines, columns: phase.length };
        for line in (0..self.lines).step_by(lines) {
            let at = self.source.wrapping_offset(self.along.source * line as isize);
            let source = Source { row_stride: self.along.source, ..self.row(at) };
            // SAFETY: the lines lie contiguous, and there is room for a place of each.
            unsafe { (phase.kernels.rows)(extent, source, phase.ranking, places.add(line)) };
        }
        self.write(self.lines, 1);
    }

    /// A line whose wide elements lie contiguous.
    fn row(&self, at: *const u8) -> Source {
        let extent = Extent { rows: 1, columns: self.phase.length };
        self.widened(extent, self.packed(extent, Source { at, row_stride: 0 }, self.phase.source.stride))
    }

    /// Steps of all lines, from a place on.
    fn columns(&self, source: Source, first: usize, steps: usize, is_start: bool) {
        let phase = self.phase;
        let extent = Extent { rows: steps, columns: self.lines };
        let source = self.widened(extent, source);
        let (keys, places) = (self.scratch_at(phase.keys), self.scratch_at(phase.places).cast());
        let lines = ColumnLines { extent, source, ranking: phase.ranking, first, is_start, keys, places };
        // SAFETY: the lines lie side by side, and there is room for a key and a place of each.
        unsafe { (phase.kernels.columns)(&lines) };
    }

    fn packed(&self, extent: Extent, source: Source, col_stride: isize) -> Source {
        let Some(pack) = self.phase.pack else { return source };
        let to = self.room(extent, pack.scratch, self.phase.source.data_type.size().unwrap_or(1));
        // SAFETY: the lines are those of a tensor that fits the plan; the scratch has room for the copies.
        unsafe { (pack.kernel)(extent, source, col_stride, 0, to) };
        to.as_source()
    }

    fn widened(&self, extent: Extent, source: Source) -> Source {
        let Some(widen) = self.phase.widen else { return source };
        let to = self.room(extent, widen.scratch, self.phase.width);
        // SAFETY: as for the copies.
        unsafe { (widen.kernel)(extent, source, to, &[0.0; 2], &mut PrefetchQueue::default()) };
        to.as_source()
    }

    fn room(&self, extent: Extent, scratch: usize, width: usize) -> Target {
        Target { at: self.scratch_at(scratch), row_stride: (extent.columns * width) as isize }
    }

    fn scratch_at(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(offset)
    }

    /// Writes the first elements of lines, whose places are in the scratch.
    fn write(&self, lines: usize, count: usize) {
        let phase = self.phase;
        let places = self.scratch_at(phase.places).cast::<u32>().cast_const();
        // Along a line, or from line to line.
        let (indices, elements, source) = match (lines, &phase.elements) {
            (1, elements) => (phase.indices.stride, elements.map_or(0, |elements| elements.stride), 0),
            _ => (self.along.indices, self.along.elements, self.along.source),
        };
        let written = PlacedResults { count: lines * count, places, source: (self.source, source) };
        let along = phase.source.stride;
        // SAFETY: each line has so many results, whose strides stay within tensors that fit the plan; each
        // line is one task's.
        unsafe {
            match phase.indices.data_type {
                DataType::S32 => written.indices::<i32>((self.indices, indices), |place| place as i32),
                _ => written.indices::<i64>((self.indices, indices), i64::from),
            }
            let Some(to) = self.elements else { return };
            match phase.source.data_type.size() {
                Some(1) => written.elements::<u8>((to, elements), along),
                Some(2) => written.elements::<u16>((to, elements), along),
                Some(4) => written.elements::<u32>((to, elements), along),
                _ => written.elements::<u64>((to, elements), along),
            }
        }
    }
}

/// Results that lie at one stride.
struct PlacedResults {
    count: usize,
    places: *const u32,
    /// The line of the first result, and the bytes to that of the next one.
    source: (*const u8, isize),
}

impl PlacedResults {
    /// # Safety
    ///
    /// There is a place for each result, each of which can be written.
    unsafe fn indices<T>(&self, (to, stride): (*mut u8, isize), of: impl Fn(u32) -> T) {
        for i in 0..self.count {
            // SAFETY: as the caller promises.
            unsafe {
                let place = self.places.add(i).read();
                to.offset(stride * i as isize).cast::<T>().write_unaligned(of(place));
            }
        }
    }

    /// # Safety
    ///
    /// As [`indices`](Self::indices), and the elements can be read along the lines.
    unsafe fn elements<U: Copy>(&self, (to, stride): (*mut u8, isize), along: isize) {
        let (from, line) = self.source;
        for i in 0..self.count {
            // SAFETY: as the caller promises.
            unsafe {
                let place = self.places.add(i).read() as isize;
                let from = from.offset(line * i as isize + along * place).cast::<U>();
                to.offset(stride * i as isize).cast::<U>().write_unaligned(from.read_unaligned());
            }
        }
    }
}
