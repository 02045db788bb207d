//! Runs attention of few queries: chunk of keys by chunk of keys, then merges the partial results of the
//! chunks.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

mod chunk_tokens;
mod put_off;

use self::chunk_tokens::ChunkTokens;
use super::classes::{TileClasses, weighs};
use super::dequantizer::Dequantizer;
use super::pages::{TokenPages, write_zeros};
use super::score_tile::convert;
use super::statistics::{count_sinks, read_sinks, sink_maximum, store_stats};
use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::{Interpreter, SelectDests, select_dests};
use crate::execute::slots::SlotOperands;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::attention::statistic;
use crate::kernels::floats::canonical;
use crate::kernels::gemm::{
    LaterRows, OperandRows, RowProduct, RowScaling, StoredKernels, WIDENED_ROWS, add_rows_with_holes,
    rows_ahead,
};
use crate::kernels::vector::LANES;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    AttentionOperand, Base, CHUNK, CHUNK_TILES, CLASS_TILE, DECODE_ROWS, DecodePhase, DecodeTokens, LoopNest,
    Plan, ScoreProgram, TileClass, class, largest_constant,
};
use crate::types::dtype::DataType;

/// Computes all chunks, then merges those of each group of queries.
pub(in crate::execute) fn run(
    phase: &DecodePhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let unmasked = phase.unmasked.as_ref().map(|unmasked| &unmasked.nest);
    let nests = [Some(&phase.nest), unmasked, Some(&phase.result.nest)];
    let dests = nests.map(|nest| select_dests(nest, bindings));
    let group = |thread| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        QueryGroup::new(phase, plan, bindings, scratch, &dests)
    };
    let chunks = phase.chunks();
    runner.run(phase.groups() * chunks, |thread, ranges| {
        let mut group = group(thread);
        for task in ranges.flatten() {
            group.go_to(task / chunks);
            group.run_chunk(task % chunks);
            if chunks == 1 {
                group.merge();
            }
        }
    })?;
    if chunks == 1 {
        return Ok(());
    }
    runner.run(phase.groups(), |thread, ranges| {
        let mut group = group(thread);
        for task in ranges.flatten() {
            group.go_to(task);
            group.merge();
        }
    })
}

/// Queries that share their keys, and the state of their SoftMax.
struct QueryGroup<'a> {
    phase: &'a DecodePhase,
    /// Computes the logits.
    logits: Interpreter<'a, SlotOperands<'a, 2>>,
    /// The same for chunks in which no mask masks anything.
    unmasked: Option<Interpreter<'a, SlotOperands<'a, 2>>>,
    /// Stores the result.
    result: Interpreter<'a, SlotOperands<'a, 2>>,
    /// Of keys and of values, if the phase dequantises them.
    dequantizers: [Option<Dequantizer<'a>>; 2],
    scratch: *mut u8,
    /// A token of zeros, if keys or values lie in pages.
    zeros: *const u8,
    classes: TileClasses<'a>,
    /// The buffer of partial results, if there is one.
    partials: Option<*mut f32>,
    /// The number of the group, and whether its queries are packed.
    group: usize,
    is_packed: bool,
    /// By query: the largest score so far, and the sum of the exponentials.
    max: [f32; DECODE_ROWS],
    sum: [f32; DECODE_ROWS],
    /// By query: the sink; −∞ without any.
    sinks: [f32; DECODE_ROWS],
}

/// Rows of f32 of this thread, `row` elements from one to the next.
#[derive(Clone, Copy)]
struct FloatRows {
    at: *mut f32,
    row: usize,
    rows: usize,
}

impl FloatRows {
    /// The rows from a column on, as an operand that is read.
    fn source(self, column: usize) -> Source {
        let Target { at, row_stride } = self.target(column);
        Source { at, row_stride }
    }

    /// The rows from a column on, as a result.
    fn target(self, column: usize) -> Target {
        Target { at: self.at.wrapping_add(column).cast(), row_stride: 4 * self.row as isize }
    }
}

/// Which tiles of a chunk are computed, for each query: a bit each.
#[derive(Clone, Copy)]
struct Taken {
    by_row: [u32; DECODE_ROWS],
    /// For any query.
    any: u32,
    /// True if no mask masks anything in the computed tiles.
    is_unmasked: bool,
}

impl<'a> QueryGroup<'a> {
    fn new(
        phase: &'a DecodePhase,
        plan: &'a Plan,
        bindings: &Bindings,
        scratch: *mut u8,
        [logits, of_unmasked, result]: &'a [SelectDests; 3],
    ) -> Self {
        let layout = &phase.layout;
        let slots = |nest: &'a LoopNest, slots: [usize; 2]| SlotOperands {
            slots: slots.map(|place| scratch.wrapping_add(place)),
            cursor: Cursor::new(nest, &plan.constants, bindings),
        };
        let scores = |nest: &'a LoopNest| slots(nest, [layout.scores, layout.logits]);
        let unmasked = phase.unmasked.as_ref().map(|ScoreProgram { nest, .. }| {
            Interpreter::new(&nest.program, of_unmasked, scratch, scores(nest))
        });
        let buffer = |base| match base {
            Base::Buffer(buffer) => Some(bindings.buffers[buffer]),
            _ => None,
        };
        Self {
            phase,
            logits: Interpreter::new(&phase.nest.program, logits, scratch, scores(&phase.nest)),
            unmasked,
            result: Interpreter::new(
                &phase.result.nest.program,
                result,
                scratch.wrapping_add(layout.result_program),
                slots(&phase.result.nest, [layout.result; 2]),
            ),
            dequantizers: Dequantizer::of_both(phase, layout.quantized, plan, bindings, scratch),
            scratch,
            // SAFETY: the scratch is this thread's, as the plan lays it out.
            zeros: unsafe { write_zeros(&layout.paged, scratch) },
            classes: TileClasses::new(phase.classes.as_ref(), bindings),
            partials: phase.partials.and_then(buffer).map(<*mut u8>::cast),
            group: 0,
            is_packed: false,
            max: [f32::NEG_INFINITY; DECODE_ROWS],
            sum: [0.0; DECODE_ROWS],
            sinks: [f32::NEG_INFINITY; DECODE_ROWS],
        }
    }

    fn go_to(&mut self, group: usize) {
        if self.group != group {
            (self.group, self.is_packed) = (group, false);
        }
    }

    fn at(&self, place: usize) -> *mut u8 {
        self.scratch.wrapping_add(place)
    }

    /// Rows of f32 in scratch.
    fn floats(&self, place: usize, row: usize) -> FloatRows {
        FloatRows { at: self.at(place).cast(), row, rows: self.phase.rows() }
    }

    /// The tile of the nest of a chunk of keys, for a repetition.
    fn tile(&self, repeat: usize, chunk: usize) -> usize {
        (self.group * self.phase.repeats + repeat) * self.phase.chunks() + chunk
    }

    /// Keys of a chunk.
    fn keys(&self, chunk: usize) -> usize {
        CHUNK.min(self.phase.nest.space.columns - chunk * CHUNK)
    }

    /// Widens the queries, unless they are there.
    fn pack_queries(&mut self) {
        if std::mem::replace(&mut self.is_packed, true) {
            return;
        }
        let phase = self.phase;
        let (row, access) = (phase.query_row(), phase.access(AttentionOperand::Queries));
        let all = self.floats(phase.layout.queries, row);
        // SAFETY: the scratch has room for the queries.
        unsafe { all.at.write_bytes(0, all.rows * row) };
        for repeat in 0..phase.repeats {
            self.logits.go_to(self.tile(repeat, 0));
            let from = self.logits.operands.cursor.matrix(access);
            let at = all.at.wrapping_add(repeat * phase.queries * row);
            let to = Target { at: at.cast(), row_stride: 4 * row as isize };
            let extent = Extent { rows: phase.queries, columns: phase.depth };
            // SAFETY: the queries can be read; the scratch has room for them, and for the kernel.
            unsafe { phase.pack_queries.run(extent, from, to, self.at(phase.layout.pack)) };
        }
    }

    /// The classes of the tiles of a repetition.
    fn classes(&self, repeat: usize) -> Option<&'a [u8]> {
        self.classes.of_block(self.group * self.phase.repeats + repeat)
    }

    /// The tiles of a chunk that are neither masked nor constant.
    fn varying(&self, chunk: usize) -> Taken {
        let all = (1u32 << self.keys(chunk).div_ceil(CLASS_TILE)) - 1;
        self.taken(all, chunk, |class| matches!(class, TileClass::Partial | TileClass::Full))
    }

    /// The constant tiles of a chunk, for queries for which the constants have weights above 0 under these
    /// maxima.
    fn constant(&self, chunk: usize, max: &[f32; DECODE_ROWS]) -> Taken {
        let mut taken = self.taken(0, chunk, |class| class == TileClass::Constant);
        taken.any = 0;
        for (row, (taken_by, &max)) in taken.by_row.iter_mut().zip(max).take(self.phase.rows()).enumerate() {
            let number = self.classes(row / self.phase.queries).map(largest_constant);
            if !number.is_some_and(|number| weighs(number, max)) {
                *taken_by = 0;
            }
            taken.any |= *taken_by;
        }
        taken
    }

    fn taken(&self, without_classes: u32, chunk: usize, takes: impl Fn(TileClass) -> bool) -> Taken {
        let tiles = self.keys(chunk).div_ceil(CLASS_TILE);
        let mut taken = Taken { by_row: [0; DECODE_ROWS], any: 0, is_unmasked: true };
        for repeat in 0..self.phase.repeats {
            let mut bits = without_classes;
            match self.classes(repeat) {
                Some(classes) => {
                    bits = 0;
                    for tile in 0..tiles {
                        let class = class(classes, chunk * CHUNK_TILES + tile);
                        if takes(class) {
                            bits |= 1 << tile;
                            taken.is_unmasked &= class == TileClass::Full;
                        }
                    }
                }
                None => taken.is_unmasked = false,
            }
            let rows = repeat * self.phase.queries..(repeat + 1) * self.phase.queries;
            taken.by_row[rows].fill(bits);
            taken.any |= bits;
        }
        taken
    }

    /// The partial result of a chunk.
    fn partial(&self, chunk: usize) -> *mut f32 {
        let place = (self.group * self.phase.chunks() + chunk) * self.phase.partial();
        let own = || self.at(self.phase.layout.partial).cast();
        self.partials.map_or_else(own, |partials| partials.wrapping_add(place))
    }

    /// Computes the partial result of a chunk.
    fn run_chunk(&mut self, chunk: usize) {
        let to = self.partial(chunk);
        let taken = self.varying(chunk);
        self.compute(chunk, &taken, to, self.phase.chunks() > 1);
    }

    /// Computes tiles of a chunk, for `to`: the sums of the values of each query, then the largest scores,
    /// then the sums of the exponentials. The values may be put off.
    fn compute(&mut self, chunk: usize, taken: &Taken, to: *mut f32, may_put_off: bool) {
        let phase = self.phase;
        let (rows, row) = (phase.rows(), phase.value_row());
        let (max, sum) = (to.wrapping_add(rows * row), to.wrapping_add(rows * (row + 1)));
        if taken.any != 0 {
            self.compute_logits(chunk, taken);
        }
        let (keys, logits) = (self.keys(chunk), self.floats(phase.layout.logits, CHUNK));
        // SAFETY: a row of logits has room for a chunk, and the target for a partial result, which is this
        // thread's; the plan's level was available when the plan was made.
        unsafe {
            to.write_bytes(0, rows * row);
            for index in 0..rows {
                let (mut largest, mut all) = (f32::NEG_INFINITY, 0.0);
                if taken.any != 0 {
                    let at = logits.at.wrapping_add(index * CHUNK);
                    largest = phase.kernels.maximum(at, keys);
                    all = phase.kernels.exponentials(at, keys, largest, false);
                }
                max.add(index).write(largest);
                sum.add(index).write(all);
            }
        }
        if may_put_off && self.puts_off(to) {
            return;
        }
        let taken = Taken { any: self.weighing(chunk, taken.any), ..*taken };
        self.add_values(chunk, &taken, FloatRows { at: to, row, rows }, false);
    }

    /// The runs of tiles of a chunk that are computed: their first keys, and the keys behind them.
    fn runs(keys: usize, mut tiles: u32) -> impl Iterator<Item = (usize, usize)> {
        let mut tile = 0;
        std::iter::from_fn(move || {
            if tiles == 0 {
                return None;
            }
            let skipped = tiles.trailing_zeros();
            let first = tile + skipped;
            let count = (tiles >> skipped).trailing_ones();
            tile = first + count;
            tiles = tiles.checked_shr(skipped + count).unwrap_or(0);
            Some((first as usize * CLASS_TILE, keys.min(tile as usize * CLASS_TILE)))
        })
    }

    /// The keys or values of a chunk.
    fn tokens(&mut self, chunk: usize, operand: AttentionOperand) -> ChunkTokens<'a> {
        let (access, tile) = (self.phase.access(operand), self.tile(0, chunk));
        let cursor = &mut self.logits.operands.cursor;
        if cursor.tile() != tile {
            self.logits.go_to(tile);
        }
        let columns = match operand {
            AttentionOperand::Keys => self.phase.depth,
            _ => self.phase.value_columns,
        };
        let cursor = &self.logits.operands.cursor;
        let at = cursor.at(access).cast_const();
        let row_stride = self.phase.nest.program.accesses[access].row_stride;
        let rows = OperandRows { at, row_stride, rows: self.keys(chunk), columns, later: None };
        let pages = TokenPages::of(self.phase, operand, cursor, self.phase.first_access, self.zeros);
        let distance = match operand {
            AttentionOperand::Keys => OperandRows::distance(self.phase.layout.paged.token_bytes[0]),
            _ => rows_ahead(row_stride, self.phase.layout.paged.token_bytes[1]),
        };
        ChunkTokens { rows, pages, first: chunk * CHUNK, distance }
    }

    /// Computes the logits in f32: −∞ where nothing is computed.
    fn compute_logits(&mut self, chunk: usize, taken: &Taken) {
        self.pack_queries();
        let phase = self.phase;
        let (layout, keys) = (&phase.layout, self.keys(chunk));
        let tokens = self.tokens(chunk, AttentionOperand::Keys);
        let values = self.tokens(chunk, AttentionOperand::Values);
        let queries = self.floats(layout.queries, phase.query_row());
        let (scores, logits) = (self.floats(layout.scores, CHUNK), self.floats(layout.logits, CHUNK));
        let has_program = !phase.nest.program.roots.is_empty();
        // Without a program and without another type, the scores are the logits.
        let scores = if has_program || phase.round_scores.is_some() { scores } else { logits };
        let all = Extent { rows: phase.queries, columns: keys };
        let f32_row = 4 * CHUNK as isize;
        // SAFETY: the keys of the chunk can be read; all else is scratch of this thread, with room for the
        // rows of a chunk. The plan's level was available when the plan was made.
        unsafe {
            Self::fill_rest(scores, keys, |_| taken.any, 0.0);
            for (first, run) in tokens.runs(Self::runs(keys, taken.any), values.row(0)) {
                let arranged = self.at(layout.widened).cast();
                self.with_rows(0, chunk * CHUNK + first, run, true, |kernels, right, scaling, index| {
                    let (left, to) = (queries.source(0), scores.target(first + index));
                    kernels.dots(&RowProduct { rows: queries.rows, left, right, scaling, to }, arranged);
                });
            }
        }
        for repeat in 0..phase.repeats {
            let of_row = repeat * phase.queries * CHUNK;
            let f32_scores = scores.at.wrapping_add(of_row);
            let f32_logits = logits.at.wrapping_add(of_row);
            let mut from = f32_scores.cast::<u8>();
            if let Some(round) = phase.round_scores {
                from = self.at(layout.typed_scores);
                let scores = Source { at: f32_scores.cast(), row_stride: f32_row };
                let to = Target { at: from, row_stride: (CHUNK * phase.score_width) as isize };
                // SAFETY: both are scratch of this thread, with room for the rows.
                unsafe { convert(round, all, scores, to) };
            }
            let typed = match phase.widen_logits {
                Some(_) => self.at(layout.typed_logits),
                None => f32_logits.cast(),
            };
            let logits_at = match has_program {
                true => {
                    let tile = self.tile(repeat, chunk);
                    let program = match &mut self.unmasked {
                        Some(unmasked) if taken.is_unmasked => unmasked,
                        _ => &mut self.logits,
                    };
                    program.operands.slots = [from, typed];
                    program.go_to(tile);
                    program.run_here();
                    typed
                }
                false => from,
            };
            if let Some(widen) = phase.widen_logits {
                let from = Source { at: logits_at, row_stride: (CHUNK * phase.logit_width) as isize };
                let to = Target { at: f32_logits.cast(), row_stride: f32_row };
                // SAFETY: both are scratch of this thread, with room for the rows.
                unsafe { convert(widen, all, from, to) };
            }
        }
        // SAFETY: the logits are scratch of this thread, with room for the rows of a chunk.
        unsafe { Self::fill_rest(logits, keys, |row| taken.by_row[row], f32::NEG_INFINITY) };
    }

    /// Fills the tiles of rows that are not computed.
    ///
    /// # Safety
    ///
    /// The rows can be written.
    unsafe fn fill_rest(rows: FloatRows, keys: usize, taken: impl Fn(usize) -> u32, number: f32) {
        let all = (1u32 << keys.div_ceil(CLASS_TILE)) - 1;
        for row in 0..rows.rows {
            for (first, end) in Self::runs(keys, all & !taken(row)) {
                let at = rows.at.wrapping_add(row * rows.row + first);
                // SAFETY: as the caller promises.
                (0..end - first).for_each(|column| unsafe { at.add(column).write(number) });
            }
        }
    }

    /// Adds the values of a chunk, by the weights that stand in place of the logits.
    fn add_values(&mut self, chunk: usize, taken: &Taken, to: FloatRows, is_exact: bool) {
        let phase = self.phase;
        let values = self.tokens(chunk, AttentionOperand::Values);
        let keys = self.tokens(chunk, AttentionOperand::Keys);
        // The next chunk is the next task.
        let next = keys.row(keys.rows.rows);
        let weights = self.floats(phase.layout.logits, CHUNK);
        for (first, run) in values.runs(Self::runs(values.rows.rows, taken.any), next) {
            // SAFETY: the values of the chunk can be read; all else is memory of this thread, with room for
            // the rows of a chunk. The plan's level was available when the plan was made.
            unsafe {
                self.with_rows(1, chunk * CHUNK + first, run, !is_exact, |kernels, right, scaling, index| {
                    let (left, to) = (weights.source(first + index), to.target(0));
                    let product = RowProduct { rows: weights.rows, left, right, scaling, to };
                    match is_exact {
                        true => add_rows_with_holes(kernels.level(), &product),
                        false => kernels.add_rows(&product, true),
                    }
                });
            }
        }
    }

    /// Calls a function with kernels and with the tokens of a run that starts at token `first`: with all as
    /// they are stored, if the phase makes them f32 in registers and the caller allows it, else with a few
    /// after the other, in f32. Its last argument is the index of the first of them in the run.
    ///
    /// # Safety
    ///
    /// The tokens can be read.
    unsafe fn with_rows(
        &mut self,
        operand: usize,
        first: usize,
        run: OperandRows,
        allows_registers: bool,
        mut work: impl FnMut(&StoredKernels, OperandRows, RowScaling, usize),
    ) {
        let (phase, block) = (self.phase, self.group * self.phase.repeats);
        let DecodeTokens { kernels, in_registers } = &phase.tokens[operand];
        let to = self.at(phase.layout.widened).cast::<f32>();
        let mut scaling = |token: usize| match &mut self.dequantizers[operand] {
            Some(dequantizer) => dequantizer.scaling(block, token),
            None => RowScaling::NONE,
        };
        if kernels.data_type() == DataType::F32 || *in_registers && allows_registers {
            return work(kernels, run, scaling(first), 0);
        }
        let row = run.columns.next_multiple_of(LANES);
        for index in (0..run.rows).step_by(WIDENED_ROWS) {
            let rows = WIDENED_ROWS.min(run.rows - index);
            let later = run.later.map(|later| LaterRows { rows: run.rows - index, ..later });
            let stored = OperandRows { at: run.row(index), rows, later, ..run };
            // SAFETY: as the caller promises; the scratch has room for the rows, and for a vector more.
            unsafe { kernels.widen(&stored, &scaling(first + index), to, row) };
            let (at, row_stride) = (to.cast_const().cast(), 4 * row as isize);
            let widened = OperandRows { at, row_stride, rows, later: None, ..run };
            work(&phase.of_f32, widened, RowScaling::NONE, index);
        }
    }

    /// Merges the partial results, in the order of the chunks, and stores the result.
    fn merge(&mut self) {
        let phase = self.phase;
        let (rows, chunks) = (phase.rows(), phase.chunks());
        self.read_sinks();
        self.begin(self.sinks.map(sink_maximum));
        for chunk in 0..chunks {
            let max = self.partial(chunk).wrapping_add(rows * phase.value_row());
            for row in 0..rows {
                // SAFETY: an earlier task has written the partial result of the chunk.
                self.max[row] = self.max[row].max(unsafe { max.add(row).read() });
            }
        }
        self.count_sinks();
        (0..chunks).for_each(|chunk| self.take_chunk(chunk));
        // The partial result of the only chunk is not needed any more.
        let own = self.at(phase.layout.partial).cast::<f32>();
        self.with_constants(|group, chunk, taken| {
            group.compute(chunk, taken, own, false);
            group.take(own);
        });
        if !self.is_finite() {
            // A weight of 0 times a value that is not finite is NaN, so keys of weight 0 are skipped.
            self.begin(self.max);
            for chunk in 0..chunks {
                let taken = self.varying(chunk);
                self.compute_exactly(chunk, &taken);
            }
            self.with_constants(Self::compute_exactly);
        }
        self.finish();
    }

    /// Calls a function for each chunk with constant tiles that weigh for a query.
    fn with_constants(&mut self, mut work: impl FnMut(&mut Self, usize, &Taken)) {
        let has_constants =
            |classes: Option<&[u8]>| classes.is_some_and(|of| largest_constant(of) > f32::NEG_INFINITY);
        if !(0..self.phase.repeats).any(|repeat| has_constants(self.classes(repeat))) {
            return;
        }
        // All constants are weighed against the maxima from before any of them counts.
        let max = self.max;
        for chunk in 0..self.phase.chunks() {
            let taken = self.constant(chunk, &max);
            if taken.any != 0 {
                work(self, chunk, &taken);
            }
        }
    }

    fn sums(&self) -> FloatRows {
        self.floats(self.phase.layout.result, self.phase.value_row())
    }

    /// Starts the sums of all chunks.
    fn begin(&mut self, max: [f32; DECODE_ROWS]) {
        self.max = max;
        self.count_sinks();
        let sums = self.sums();
        // SAFETY: the scratch has room for the sums.
        unsafe { sums.at.write_bytes(0, sums.rows * sums.row) };
    }

    /// Reads the sinks of the group.
    fn read_sinks(&mut self) {
        let phase = self.phase;
        for repeat in (0..phase.repeats).filter(|_| phase.sinks.is_some()) {
            self.logits.go_to(self.tile(repeat, 0));
            let queries = repeat * phase.queries..(repeat + 1) * phase.queries;
            read_sinks(phase, &self.logits.operands.cursor, &mut self.sinks[queries]);
        }
    }

    /// Sets the sums of exponentials to those of the sinks under the maxima.
    fn count_sinks(&mut self) {
        count_sinks(&mut self.sum, &self.max, &self.sinks);
    }

    /// A row of the sums of the values.
    fn row(&mut self, row: usize) -> &mut [f32] {
        let sums = self.sums();
        // SAFETY: the row is scratch of this thread that [`begin`](Self::begin) has written, and nobody else
        // has a reference to it.
        unsafe { std::slice::from_raw_parts_mut(sums.at.wrapping_add(row * sums.row), sums.row) }
    }

    /// Adds the partial result of a chunk.
    fn take(&mut self, partial: *const f32) {
        let (rows, row) = (self.phase.rows(), self.phase.value_row());
        for index in 0..rows {
            // SAFETY: the partial result of the chunk has been written: sums of values, largest scores, sums.
            let (values, max, sum) = unsafe {
                (
                    std::slice::from_raw_parts(partial.wrapping_add(index * row), row),
                    partial.add(rows * row + index).read(),
                    partial.add(rows * (row + 1) + index).read(),
                )
            };
            // Without a key the values are weighed by 0, and may be anything times 0.
            if sum == 0.0 {
                continue;
            }
            let before = self.max[index];
            let after = before.max(max);
            if after > before {
                let factor = distance_exp(before, after);
                self.row(index).iter_mut().for_each(|of_row| *of_row *= factor);
                self.sum[index] *= factor;
                self.max[index] = after;
            }
            let factor = distance_exp(max, after);
            self.row(index).iter_mut().zip(values).for_each(|(of_row, value)| *of_row += factor * value);
            self.sum[index] += factor * sum;
        }
    }

    /// Computes tiles of a chunk with the maxima of all keys, and without the values of keys whose weight
    /// is 0.
    fn compute_exactly(&mut self, chunk: usize, taken: &Taken) {
        if taken.any == 0 {
            return;
        }
        self.compute_logits(chunk, taken);
        let (keys, logits) = (self.keys(chunk), self.floats(self.phase.layout.logits, CHUNK));
        for row in 0..logits.rows {
            let at = logits.at.wrapping_add(row * CHUNK);
            // SAFETY: the row has the logits of a chunk; the plan's level was available when the plan was
            // made.
            self.sum[row] += unsafe { self.phase.kernels.exponentials(at, keys, self.max[row], true) };
        }
        self.add_values(chunk, taken, self.sums(), true);
    }

    fn is_finite(&mut self) -> bool {
        let (rows, columns) = (self.phase.rows(), self.phase.value_columns);
        (0..rows).all(|row| self.row(row)[..columns].iter().all(|number| number.is_finite()))
    }

    /// Divides the sums, and stores the result.
    fn finish(&mut self) {
        let phase = self.phase;
        let of_none = if phase.inf_as_zero { 0.0 } else { f32::NAN };
        for row in 0..phase.rows() {
            let sum = self.sum[row];
            let inverse = 1.0 / sum;
            for number in self.row(row) {
                // The sum is 0 or NaN if it is not positive.
                *number = canonical(if sum > 0.0 { *number * inverse } else { sum + of_none });
            }
        }
        for repeat in 0..phase.repeats {
            let first = repeat * phase.queries;
            if phase.has_stats {
                self.logits.go_to(self.tile(repeat, 0));
                let of_rows = self.max.iter().zip(&self.sum).skip(first).take(phase.queries);
                let stats = of_rows.map(|(&max, &sum)| statistic(max, sum, phase.inf_as_zero));
                store_stats(phase, &self.logits.operands.cursor, stats);
            }
            let row = phase.value_row();
            let from = self.sums().at.wrapping_add(first * row).cast::<u8>();
            self.result.operands.slots[0] = match phase.result.round {
                None => from,
                Some(round) => {
                    let extent = Extent { rows: phase.queries, columns: phase.value_columns };
                    let to = Target { at: self.at(phase.layout.typed_result), row_stride: 2 * row as isize };
                    let from = Source { at: from, row_stride: 4 * row as isize };
                    // SAFETY: both are scratch of this thread, with room for the rows.
                    unsafe { convert(round, extent, from, to) };
                    to.at
                }
            };
            let block = self.group * phase.repeats + repeat;
            self.result.go_to(phase.result_tile(block));
            self.result.run_here();
        }
    }
}

/// The exponential of the difference between a number and a larger one; 0 if the larger one is −∞.
fn distance_exp(number: f32, larger: f32) -> f32 {
    (f64::from(number) - f64::from(larger.max(f32::MIN))).exp() as f32
}
