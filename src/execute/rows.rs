//! Runs a phase over rows.
#![allow(unsafe_code, reason = "kernels run on raw memory that was checked before")]

mod channels;
mod runs;
mod statistics;

use self::runs::{RowPart, row_runs};
use super::bindings::Bindings;
use super::cursor::Cursor;
use super::interpreter::{Interpreter, SelectDests, TileOperands, select_dests};
use super::task_runner::TaskRunner;
use crate::error::Result;
use crate::kernels::by_width::PackTile;
use crate::kernels::prefetch::PrefetchQueue;
use crate::kernels::rows::{
    COLUMNS, LANES_OF_FOLD, Norm, NormBackward, NormProducts, PreluBackward, PreluProducts, RowPass, Scan,
    ScanOrder, SoftMax, SoftMaxBackward, SumKernels,
};
use crate::kernels::vector::RowType;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    AccessId, Base, FoldWork, FusedRows, LoopNest, PRODUCT_ROWS, Packed, PlacedRows, Plan, RowMap,
    RowParameter, RowPlace, RowWork, RowsPhase,
};

/// Runs all tasks of a phase.
pub(super) fn run(
    phase: &RowsPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let dests = [&phase.prologue, &phase.epilogue]
        .map(|fused| select_dests(fused.as_ref().map(|fused| &fused.nest), bindings));
    runner.run(phase.tasks(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let mut worker = Worker::new(phase, plan, bindings, &dests, scratch);
        ranges.for_each(|range| range.for_each(|task| worker.run(task)));
    })
}

/// Runs tasks on one thread.
struct Worker<'a> {
    phase: &'a RowsPhase,
    scratch: *mut u8,
    /// At the tile of the task.
    cursor: Cursor<'a>,
    prologue: Option<RowProgram<'a>>,
    epilogue: Option<RowProgram<'a>>,
    /// The part of rows whose parameters, which all places share, are in the scratch.
    parameters_of: Option<usize>,
    /// The tile whose rows' statistics, joined from those of parts, are in the scratch.
    joined: Option<usize>,
}

impl<'a> Worker<'a> {
    fn new(
        phase: &'a RowsPhase,
        plan: &'a Plan,
        bindings: &Bindings,
        dests: &'a [SelectDests; 2],
        scratch: *mut u8,
    ) -> Self {
        let program = |fused: &'a Option<FusedRows>, dests: &'a SelectDests| {
            fused.as_ref().map(|fused| RowProgram::new(fused, plan, bindings, dests, scratch))
        };
        Self {
            phase,
            scratch,
            cursor: Cursor::new(&phase.nest, &plan.constants, bindings),
            prologue: program(&phase.prologue, &dests[0]),
            epilogue: program(&phase.epilogue, &dests[1]),
            parameters_of: None,
            joined: None,
        }
    }

    fn run(&mut self, task: usize) {
        let phase = self.phase;
        let (tile, part) = (task / phase.parts, task % phase.parts);
        match tile.wrapping_sub(self.cursor.tile()) {
            0 => {}
            1 => {
                self.cursor.advance();
            }
            _ => self.cursor.go_to(tile),
        }
        let RowWork::Scan { order, .. } = phase.work else { return self.run_part(tile, part) };
        let sums = self.scratch_at::<u64>(phase.room);
        // SAFETY: there is room for a sum of each place of a tile.
        unsafe { sums.write_bytes(0, self.cursor.extent().rows) };
        let parts = phase.length.div_ceil(phase.part);
        for part in 0..parts {
            self.run_part(tile, if order.is_reverse { parts - 1 - part } else { part });
        }
    }

    /// Runs the programs and the work on a part of the rows of a tile.
    fn run_part(&mut self, tile: usize, index: usize) {
        let phase = self.phase;
        let first = index * phase.part;
        let count = phase.part.min(phase.length - first);
        let part = RowPart { rows: self.cursor.extent().rows, first, count };
        if let Some(prologue) = &mut self.prologue {
            prologue.run(tile, part);
        }
        match phase.work {
            RowWork::Copy => self.copy(part),
            RowWork::Fold(fold) => self.fold(fold, part, index),
            RowWork::Merge { fold, finish } => {
                let numbers = self.numbers(0);
                let from = self.memory(phase.operands[0].place);
                for row in 0..part.rows {
                    // SAFETY: the buffer has a number for each part of each place.
                    let at = |part: usize| unsafe {
                        from.at.offset(from.row_stride * row as isize).cast::<f64>().add(part).read()
                    };
                    let number = (1..part.count).fold(at(0), |number, part| fold.join(number, at(part)));
                    // SAFETY: there is room for a number of each place of a tile.
                    unsafe { numbers.add(row).write(finish.of(number)) };
                }
                self.write_numbers(part.rows);
            }
            RowWork::Scan { kernels, order, by_columns: true } => self.scan_columns(kernels, order, part),
            RowWork::Scan { kernels, order, .. } => self.scan(kernels, order, part),
            _ => self.rows(part, tile),
        }
        if let Some(epilogue) = &mut self.epilogue {
            epilogue.run(tile, part);
        }
    }

    /// Writes the sums along a part of the rows of a tile, from those of the part before on.
    fn scan(&self, kernels: SumKernels, order: ScanOrder, part: RowPart) {
        let (Some(result), [operand]) = (&self.phase.result, &self.phase.operands[..]) else { return };
        let (source, to) = (self.contiguous(operand, part), self.target(result, part));
        let sums = self.scratch_at(self.phase.room);
        // SAFETY: the rows of source and result lie contiguous, in memory or in scratch with room for the
        // rows of a tile; in place they are the same. There is a sum for each row.
        unsafe { (kernels.rows)(&Scan { extent: part.extent(), source, to, order, sums }) };
        self.write_rows(result, part);
    }

    /// As [`scan`](Self::scan) for rows whose places lie contiguous.
    fn scan_columns(&self, kernels: SumKernels, order: ScanOrder, part: RowPart) {
        let (Some(result), [operand]) = (&self.phase.result, &self.phase.operands[..]) else { return };
        let from = |operand: &PlacedRows| {
            let row_stride = operand.along.first().map_or(0, |&(_, stride)| stride);
            let at = self.memory(operand.place).at.wrapping_offset(row_stride * part.first as isize);
            Source { at, row_stride }
        };
        let (source, Source { at, row_stride }) = (from(operand), from(result));
        let to = Target { at: at.cast_mut(), row_stride };
        let (extent, sums) = (part.extent().transposed(), self.scratch_at(self.phase.room));
        // SAFETY: the places of source and result lie contiguous, and their rows at one stride each; in place
        // they are the same. There is a sum for each place.
        unsafe { (kernels.columns)(&Scan { extent, source, to, order, sums }) };
    }

    fn scratch_at<T>(&self, offset: usize) -> *mut T {
        self.scratch.wrapping_add(offset).cast()
    }

    /// Where rows, or numbers of places, are; for those of a program, with the prologue.
    fn memory(&self, place: RowPlace) -> Source {
        match (place, &self.prologue) {
            (RowPlace::Access(access), _) => {
                let row_stride = self.phase.nest.program.accesses[access].row_stride;
                Source { at: self.cursor.at(access), row_stride }
            }
            (RowPlace::Program, Some(prologue)) => prologue.rows(),
            _ => Source { at: std::ptr::null(), row_stride: 0 },
        }
    }

    /// Where results go; for those of a program, with the epilogue.
    fn destination(&self, place: RowPlace) -> Target {
        let Source { at, row_stride } = match (place, &self.epilogue) {
            (RowPlace::Program, Some(epilogue)) => epilogue.rows(),
            _ => self.memory(place),
        };
        Target { at: at.cast_mut(), row_stride }
    }

    /// Rows that lie contiguous: those in memory, or a packed copy.
    fn contiguous(&self, operand: &PlacedRows, part: RowPart) -> Source {
        let from = self.memory(operand.place);
        match &operand.packed {
            // The prologue has made the part alone.
            None if operand.place == RowPlace::Program => from,
            None => {
                let offset = part.first * operand.bytes;
                Source { at: from.at.wrapping_add(offset), ..from }
            }
            Some(packed) => {
                let to = self.packed(packed);
                row_runs(&operand.along, part, |run| {
                    let from = Source { at: from.at.wrapping_offset(run.offset), ..from };
                    let to = Target { at: to.at.wrapping_add(run.done * operand.bytes), ..to };
                    let extent = Extent { rows: part.rows, columns: run.count };
                    // SAFETY: the access stays within its memory for every place and element; the scratch has
                    // room for the part of the rows of a tile.
                    unsafe { (packed.pack)(extent, from, run.stride, 0, to) };
                });
                to.as_source()
            }
        }
    }

    fn packed(&self, packed: &Packed) -> Target {
        Target { at: self.scratch_at(packed.scratch), row_stride: packed.row_stride as isize }
    }

    /// Where contiguous rows of results go: to memory if they lie so there, else to scratch.
    fn target(&self, operand: &PlacedRows, part: RowPart) -> Target {
        match &operand.packed {
            Some(packed) => self.packed(packed),
            // The epilogue takes the part alone.
            None if operand.place == RowPlace::Program => self.destination(operand.place),
            None => {
                let to = self.destination(operand.place);
                Target { at: to.at.wrapping_add(part.first * operand.bytes), ..to }
            }
        }
    }

    /// Brings results from scratch to memory, unless they are there.
    fn write_rows(&self, operand: &PlacedRows, part: RowPart) {
        let Some(packed) = &operand.packed else { return };
        let (from, to) = (self.packed(packed), self.destination(operand.place));
        row_runs(&operand.along, part, |run| {
            let at = from.at.wrapping_add(run.done * operand.bytes);
            let from = Source { at, row_stride: from.row_stride };
            let to = Target { at: to.at.wrapping_offset(run.offset), ..to };
            let extent = Extent { rows: part.rows, columns: run.count };
            // SAFETY: as for packing.
            unsafe { (packed.unpack)(extent, from, to, run.stride) };
        });
    }

    /// Rows of f32 of a parameter.
    fn parameter(&self, parameter: &RowParameter, part: RowPart) -> Source {
        let rows = if parameter.is_same { 1 } else { part.rows };
        let part = RowPart { rows, ..part };
        let is_there = parameter.is_same && self.parameters_of == Some(part.first);
        let source = match &parameter.operand.packed {
            Some(packed) if is_there => {
                Source { at: self.scratch_at(packed.scratch), row_stride: packed.row_stride as isize }
            }
            _ => self.contiguous(&parameter.operand, part),
        };
        let source = match parameter.widen {
            None => source,
            Some((widen, scratch, row_stride)) => {
                let to = Target { at: self.scratch_at(scratch), row_stride: row_stride as isize };
                if !is_there {
                    // SAFETY: the scratch has room for the rows of a tile.
                    unsafe { widen(part.extent(), source, to, &[0.0; 2], &mut PrefetchQueue::default()) };
                }
                to.as_source()
            }
        };
        Source { row_stride: if parameter.is_same { 0 } else { source.row_stride }, ..source }
    }

    fn copy(&self, part: RowPart) {
        let (Some(result), [operand]) = (&self.phase.result, &self.phase.operands[..]) else { return };
        let (from, to) = (self.contiguous(operand, part), self.target(result, part));
        let bytes = part.count * operand.bytes;
        for row in 0..part.rows as isize {
            let from = from.at.wrapping_offset(from.row_stride * row);
            let to = to.at.wrapping_offset(to.row_stride * row);
            // SAFETY: both have a contiguous row for each place; in place they are the same.
            unsafe { std::ptr::copy(from, to, bytes) };
        }
        self.write_rows(result, part);
    }

    /// Combines a part of the rows of a tile.
    fn fold(&self, work: FoldWork, part: RowPart, index: usize) {
        let numbers = self.numbers(0);
        let FoldWork { kernels, map, by_columns, transpose, finish } = work;
        let operand = &self.phase.operands[0];
        if by_columns && matches!(map, RowMap::None) {
            self.fold_columns(work, part, numbers);
        } else if by_columns {
            self.fold_product_columns(work, part, numbers);
        } else if let Some(transpose) = transpose {
            self.fold_short(work, transpose, part, numbers);
        } else {
            let (source, float) = match map {
                RowMap::None => (self.contiguous(operand, part), operand.float),
                _ => (self.products(map, part), RowType::F32),
            };
            // SAFETY: the rows lie contiguous, and there is room for a number of each.
            unsafe { (kernels.rows)(part.extent(), source, float, numbers) };
        }
        match finish {
            Some(finish) => {
                for row in 0..part.rows {
                    // SAFETY: a number for each row has been written.
                    unsafe {
                        let number = numbers.add(row);
                        number.write(finish.of(number.read()));
                    }
                }
                self.write_numbers(part.rows);
            }
            None => {
                let Some(to) = self.phase.numbers.first().map(|numbers| self.destination(numbers.place))
                else {
                    return;
                };
                for row in 0..part.rows {
                    let to = to.at.wrapping_offset(to.row_stride * row as isize).cast::<f64>();
                    // SAFETY: the buffer has a number for each part of each place.
                    unsafe { to.add(index).write(numbers.add(row).read()) };
                }
            }
        }
    }

    /// Combines rows whose places lie contiguous, whole rows of places at a time.
    fn fold_columns(&self, work: FoldWork, part: RowPart, numbers: *mut f64) {
        let operand = &self.phase.operands[0];
        let source = self.memory(operand.place);
        let partial = self.scratch_at::<f64>(self.phase.room);
        for place in (0..part.rows).step_by(COLUMNS) {
            let columns = COLUMNS.min(part.rows - place);
            let at = source.at.wrapping_add(place * operand.bytes);
            // SAFETY: the access stays within its memory for every place and element, and the scratch has
            // room for the partial results.
            unsafe {
                if part.count == 0 {
                    let none = Extent { rows: 0, columns };
                    (work.kernels.columns)(none, Source { at, row_stride: 0 }, operand.float, 0, partial);
                }
                row_runs(&operand.along, part, |run| {
                    let from = Source { at: at.wrapping_offset(run.offset), row_stride: run.stride };
                    let extent = Extent { rows: run.count, columns };
                    (work.kernels.columns)(extent, from, operand.float, run.done, partial);
                });
                (work.kernels.join)(columns, partial);
                numbers.add(place).copy_from_nonoverlapping(partial, columns);
            }
        }
    }

    /// Combines short rows, which are transposed first.
    fn fold_short(&self, work: FoldWork, transpose: PackTile, part: RowPart, numbers: *mut f64) {
        let operand = &self.phase.operands[0];
        let source = self.contiguous(operand, part);
        let to =
            Target { at: self.scratch_at(self.phase.room), row_stride: (COLUMNS * operand.bytes) as isize };
        for place in (0..part.rows).step_by(COLUMNS) {
            let extent = Extent { rows: part.count, columns: COLUMNS.min(part.rows - place) };
            let from = Source { row_stride: operand.bytes as isize, ..source.at_row(place) };
            // SAFETY: the rows lie contiguous; there is room for few elements of so many places, and for a
            // number of each, rounded up to vectors.
            unsafe {
                transpose(extent, from, source.row_stride, 0, to);
                let from = to.as_source();
                if let Some(few) = work.kernels.few {
                    few(extent, from, operand.float, numbers.add(place));
                }
            }
        }
    }

    /// As [`fold_columns`](Self::fold_columns) for products, which are computed a few rows at a time.
    fn fold_product_columns(&self, work: FoldWork, part: RowPart, numbers: *mut f64) {
        let phase = self.phase;
        let partial = self.scratch_at::<f64>(phase.room);
        let row_stride = (COLUMNS * size_of::<f32>()) as isize;
        let products = self.scratch_at::<f64>(phase.room).wrapping_add(LANES_OF_FOLD * COLUMNS).cast::<u8>();
        let to = Target { at: products, row_stride };
        let [means, factors] = match work.map {
            RowMap::Norm { epsilon, .. } => self.norm_statistics(part, epsilon),
            _ => [std::ptr::null_mut(); 2],
        };
        for place in (0..part.rows).step_by(COLUMNS) {
            let columns = COLUMNS.min(part.rows - place);
            // Without a row, the partial results begin all the same.
            for done in (0..part.count.max(1)).step_by(PRODUCT_ROWS) {
                let extent = Extent { rows: PRODUCT_ROWS.min(part.count - done), columns };
                let rows = |index: usize| {
                    let operand = &phase.operands[index];
                    let row_stride = operand.along.first().map_or(0, |&(_, stride)| stride);
                    let offset = row_stride * (part.first + done) as isize;
                    let at = self.memory(operand.place).at.wrapping_offset(offset);
                    (Source { at: at.wrapping_add(place * operand.bytes), row_stride }, operand.float)
                };
                let (source, gradient) = (rows(0), rows(1));
                // SAFETY: rows lie at one stride, whose places lie contiguous; there is a mean and a factor
                // for each row, and room for the products and the partial results of a tile.
                unsafe {
                    match work.map {
                        RowMap::None => {}
                        RowMap::Norm { kernel, is_by_place, .. } => {
                            // Rows are elements of a row, columns places.
                            let at = if is_by_place { place } else { done };
                            let (means, factors) = (means.wrapping_add(at), factors.wrapping_add(at));
                            let is_by_row = !is_by_place;
                            kernel(&NormProducts { extent, source, gradient, means, factors, is_by_row, to })
                        }
                        RowMap::Prelu(kernel) => kernel(&PreluProducts { extent, source, gradient, to }),
                    }
                    let from = Source { at: to.at, row_stride };
                    (work.kernels.columns)(extent, from, RowType::F32, done, partial);
                }
            }
            // SAFETY: there are partial results, and room for a number of each place of a tile.
            unsafe {
                (work.kernels.join)(columns, partial);
                numbers.add(place).copy_from_nonoverlapping(partial, columns);
            }
        }
    }

    /// The means of a tile, and ones over the deviations.
    fn norm_statistics(&self, part: RowPart, epsilon: f64) -> [*mut f64; 2] {
        let [means, factors] = [0, 1].map(|index| self.given(&self.phase.given[index], part));
        let count = if self.phase.work.is_given_along() { part.count } else { part.rows };
        to_factors(factors, count, epsilon);
        [means, factors]
    }

    /// Rows of products, in f32.
    fn products(&self, map: RowMap, part: RowPart) -> Source {
        let phase = self.phase;
        let row_stride = (phase.part.min(phase.length) * size_of::<f32>()) as isize;
        let to = Target { at: self.scratch_at(phase.room), row_stride };
        let (source, gradient, extent) = (self.operand(0, part), self.operand(1, part), part.extent());
        match map {
            RowMap::None => {}
            RowMap::Norm { kernel, epsilon, is_by_place: is_by_row } => {
                let [means, factors] = self.norm_statistics(part, epsilon);
                // SAFETY: all rows lie contiguous; there is a mean and a factor for each row or each column.
                unsafe { kernel(&NormProducts { extent, source, gradient, means, factors, is_by_row, to }) };
            }
            // SAFETY: all rows lie contiguous.
            RowMap::Prelu(kernel) => unsafe { kernel(&PreluProducts { extent, source, gradient, to }) },
        }
        Source { at: to.at, row_stride }
    }

    /// Computes rows from rows, or the statistics of parts of rows.
    fn rows(&mut self, part: RowPart, tile: usize) {
        self.join(tile, part.rows);
        let phase = self.phase;
        if let RowWork::ChannelNorm { kernels, channels, epsilon } = phase.work {
            return self.norm_channels(part, &kernels, channels, epsilon);
        }
        let is_measured = phase.pass() == RowPass::Measure;
        let to = match &phase.result {
            Some(result) => (self.target(result, part), result.float),
            None if is_measured => {
                (Target { at: std::ptr::null_mut(), row_stride: 0 }, phase.operands[0].float)
            }
            None => return,
        };
        match phase.work {
            RowWork::SoftMax { .. } | RowWork::Norm { .. } => self.compute_rows(part, to),
            RowWork::SoftMaxBackward(_) | RowWork::NormBackward { .. } | RowWork::PreluBackward(_) => {
                self.compute_gradients(part, to);
            }
            RowWork::Copy
            | RowWork::Fold(_)
            | RowWork::Merge { .. }
            | RowWork::Scan { .. }
            | RowWork::ChannelNorm { .. } => {}
        }
        self.parameters_of = Some(part.first);
        if is_measured {
            return self.write_measured(part);
        }
        if let Some(result) = &phase.result {
            self.write_rows(result, part);
        }
        // All parts have the same statistics.
        if part.first == 0 {
            self.write_numbers(part.rows);
        }
    }

    /// The rows of an operand, contiguous.
    fn operand(&self, index: usize, part: RowPart) -> (Source, RowType) {
        let operand = &self.phase.operands[index];
        (self.contiguous(operand, part), operand.float)
    }

    /// Computes rows of SoftMax or of a norm.
    fn compute_rows(&self, part: RowPart, (to, to_type): (Target, RowType)) {
        let (phase, extent, pass, measured) = (self.phase, part.extent(), self.phase.pass(), self.measured());
        let (source, source_type) = self.operand(0, part);
        // SAFETY: the rows of operands and results lie contiguous, in memory or in scratch with room for the
        // rows of a tile. A result in place of the source has the source's strides, so that each of its rows
        // is where the source's is.
        unsafe {
            match phase.work {
                RowWork::SoftMax { kernel, inf_as_zero, is_logarithm } => kernel(&SoftMax {
                    extent,
                    source,
                    source_type,
                    to,
                    to_type,
                    inf_as_zero,
                    is_logarithm,
                    exponentials: phase.kept_row.map_or(std::ptr::null_mut(), |row| self.scratch_at(row)),
                    statistics: self.numbers(0),
                    pass,
                    measured,
                }),
                RowWork::Norm { kernel, is_centred, epsilon } => {
                    let parameter = |index: usize| {
                        phase.parameters.get(index).map(|parameter| self.parameter(parameter, part))
                    };
                    kernel(&Norm {
                        extent,
                        source,
                        source_type,
                        to,
                        to_type,
                        is_centred,
                        epsilon,
                        gamma: parameter(0),
                        beta: parameter(1),
                        means: self.numbers(0),
                        variances: self.numbers(1),
                        pass,
                        measured,
                    });
                }
                _ => {}
            }
        }
    }

    /// Computes rows of the gradients of SoftMax, of a norm or of PReLU.
    fn compute_gradients(&self, part: RowPart, (to, to_type): (Target, RowType)) {
        let (phase, extent, pass, measured) = (self.phase, part.extent(), self.phase.pass(), self.measured());
        let source = self.operand(0, part);
        // SAFETY: as for rows of results.
        unsafe {
            match phase.work {
                RowWork::SoftMaxBackward(kernel) => kernel(&SoftMaxBackward {
                    extent,
                    gradient: source,
                    result: self.operand(1, part),
                    to,
                    to_type,
                    pass,
                    measured,
                }),
                RowWork::NormBackward { kernel, epsilon } => {
                    let [means, factors] = [0, 1].map(|index| self.given(&phase.given[index], part));
                    to_factors(factors, part.rows, epsilon);
                    kernel(&NormBackward {
                        extent,
                        source,
                        gradient: self.operand(1, part),
                        gamma: phase.parameters.first().map(|parameter| self.parameter(parameter, part)),
                        means,
                        factors,
                        to,
                        to_type,
                        length: phase.length,
                        pass,
                        measured,
                    });
                }
                RowWork::PreluBackward(kernel) => kernel(&PreluBackward {
                    extent,
                    source,
                    slope: self.operand(1, part),
                    gradient: self.operand(2, part),
                    to,
                    to_type,
                }),
                _ => {}
            }
        }
    }
}

/// Makes one over the deviation of each variance.
fn to_factors(variances: *mut f64, count: usize, epsilon: f64) {
    for i in 0..count {
        // SAFETY: there is a variance for each.
        unsafe {
            let variance = variances.add(i);
            variance.write(1.0 / (variance.read() + epsilon).sqrt());
        }
    }
}

/// A prologue or epilogue on one thread.
struct RowProgram<'a> {
    fused: &'a FusedRows,
    interpreter: Interpreter<'a, RowsOperands<'a>>,
}

impl<'a> RowProgram<'a> {
    fn new(
        fused: &'a FusedRows,
        plan: &'a Plan,
        bindings: &Bindings,
        dests: &'a SelectDests,
        scratch: *mut u8,
    ) -> Self {
        let nest = &fused.nest;
        let operands = RowsOperands {
            nest,
            cursor: Cursor::new(nest, &plan.constants, bindings),
            rows: scratch.wrapping_add(fused.rows),
            block_bytes: nest.tile.columns * fused.element,
            block: 0,
        };
        let scratch = scratch.wrapping_add(fused.scratch);
        Self { fused, interpreter: Interpreter::new(&nest.program, dests, scratch, operands) }
    }

    /// The rows that the program and the work hand over.
    fn rows(&self) -> Source {
        Source { at: self.interpreter.operands.rows, row_stride: self.fused.row_stride as isize }
    }

    /// Runs the program on a part of the rows of a tile of places.
    fn run(&mut self, tile: usize, part: RowPart) {
        let FusedRows { nest, is_by_place, .. } = self.fused;
        if *is_by_place {
            self.interpreter.operands.block = 0;
            return self.interpreter.run(tile);
        }
        let (blocks, columns) = (nest.loops[nest.column_blocks].extent, nest.tile.columns);
        let first = part.first / columns;
        for block in first..(part.first + part.count).div_ceil(columns) {
            self.interpreter.operands.block = block - first;
            self.interpreter.run(tile * blocks + block);
        }
    }
}

/// The operands of a prologue or epilogue: rows in scratch beside tensors.
struct RowsOperands<'a> {
    nest: &'a LoopNest,
    cursor: Cursor<'a>,
    rows: *mut u8,
    /// Bytes of a row that a tile has, and the tile's number in the part of the rows.
    block_bytes: usize,
    block: usize,
}

impl<'a> TileOperands<'a> for RowsOperands<'a> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        match self.nest.program.accesses[access].base {
            Base::Driver(_) => self.rows.wrapping_add(self.block * self.block_bytes),
            _ => self.cursor.at(access),
        }
    }
}
