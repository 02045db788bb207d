//! Runs attention of few queries: chunk of keys by chunk of keys, then merges the partial results of the
//! chunks.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

mod chunk_tokens;
mod merge;
mod part;
mod pieces;
mod put_off;

use smallvec::{SmallVec, smallvec};

use self::chunk_tokens::ChunkTokens;
use self::part::{GroupPart, GroupPartState};
use super::classes::{TileClasses, weighs};
use super::dequantizer::Dequantizer;
use super::pages::{TokenPages, write_zeros};
use super::ragged::RaggedBlocks;
use super::score_tile::convert;
use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::{Interpreter, SelectDests, select_dests};
use crate::execute::slots::SlotOperands;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::gemm::{
    LaterRows, OperandRows, RowProduct, RowScaling, StoredKernels, WIDENED_ROWS, add_rows_with_holes,
    rows_ahead,
};
use crate::kernels::vector::LANES;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    AttentionOperand, Base, BlockList, CHUNK, CHUNK_TILES, CLASS_TILE, DECODE_ROWS, DecodePhase,
    DecodeTokens, LoopNest, Plan, ScoreProgram, TileClass, class, largest_constant,
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
    if let Some(list) = &phase.pieces {
        return run_pieces(phase, list, bindings, runner, group);
    }
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

/// Computes all pieces, then merges those of each block that has several.
fn run_pieces<'a>(
    phase: &'a DecodePhase,
    list: &BlockList,
    bindings: &'a Bindings,
    runner: &TaskRunner<'_>,
    group: impl Fn(usize) -> QueryGroup<'a> + Sync,
) -> Result<()> {
    let pieces = RaggedBlocks::pieces(list, phase.groups(), bindings);
    runner.run(pieces.parts(), |thread, ranges| {
        let mut group = group(thread);
        for (place, piece) in ranges.flat_map(|parts| pieces.of_parts(parts)) {
            group.run_piece(place, piece, pieces.ranges(piece));
        }
    })?;
    if pieces.split() == 0 {
        return Ok(());
    }
    runner.run(pieces.split() * phase.groups(), |thread, ranges| {
        let mut group = group(thread);
        for task in ranges.flatten() {
            let (place, slot) = (task / pieces.split(), task % pieces.split());
            if let Some(of_block) = pieces.block_at(slot) {
                group.merge_pieces(place, of_block, pieces.ranges(&of_block[0]));
            }
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
    /// The part that is computed: all of a group, unless its queries are many.
    part: GroupPart<'a>,
    state: GroupPartState,
    /// The states of the other parts of the group.
    states: SmallVec<[GroupPartState; 1]>,
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
            part: GroupPart::of_group(phase, 0),
            state: GroupPartState::default(),
            states: smallvec![GroupPartState::default(); phase.most_parts()],
        }
    }

    /// Goes to a group whose queries are one block.
    fn go_to(&mut self, group: usize) {
        let part = GroupPart::of_group(self.phase, group);
        if self.part.first != part.first {
            (self.part, self.state.is_packed) = (part, false);
        }
    }

    fn at(&self, place: usize) -> *mut u8 {
        self.scratch.wrapping_add(place)
    }

    /// Rows of f32 in scratch.
    fn floats(&self, place: usize, row: usize) -> FloatRows {
        FloatRows { at: self.at(place).cast(), row, rows: self.part.rows() }
    }

    /// Those of the part, if scratch has some for each part.
    fn floats_of_part(&self, place: usize, row: usize) -> FloatRows {
        let before = self.part.index * self.phase.rows() * row;
        self.floats(place + 4 * before, row)
    }

    /// Keys of a chunk.
    fn keys(&self, chunk: usize) -> usize {
        CHUNK.min(self.part.keys() - chunk * CHUNK)
    }

    /// Widens the queries, unless they are there.
    fn pack_queries(&mut self) {
        if std::mem::replace(&mut self.state.is_packed, true) {
            return;
        }
        let (phase, part) = (self.phase, self.part);
        let (row, access) = (phase.query_row(), phase.access(AttentionOperand::Queries));
        let all = self.queries();
        // SAFETY: the scratch has room for the queries.
        unsafe { all.at.write_bytes(0, all.rows * row) };
        for repeat in 0..part.repeats {
            self.logits.go_to(part.tile(repeat, 0));
            let from = self.logits.operands.cursor.matrix(access);
            let at = all.at.wrapping_add(repeat * part.queries * row);
            let to = Target { at: at.cast(), row_stride: 4 * row as isize };
            let extent = Extent { rows: part.queries, columns: phase.depth };
            // SAFETY: the queries can be read; the scratch has room for them, and for the kernel.
            unsafe { phase.pack_queries.run(extent, from, to, self.at(phase.layout.pack)) };
        }
    }

    /// The queries of the part in f32.
    fn queries(&self) -> FloatRows {
        self.floats_of_part(self.phase.layout.queries, self.phase.query_row())
    }

    /// The classes of the tiles of a repetition.
    fn classes(&self, repeat: usize) -> Option<&'a [u8]> {
        self.classes.of_block(self.part.first + repeat)
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
        for (row, (taken_by, &max)) in taken.by_row.iter_mut().zip(max).take(self.part.rows()).enumerate() {
            let number = self.classes(row / self.part.queries).map(largest_constant);
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
        for repeat in 0..self.part.repeats {
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
            let rows = repeat * self.part.queries..(repeat + 1) * self.part.queries;
            taken.by_row[rows].fill(bits);
            taken.any |= bits;
        }
        taken
    }

    /// The partial result of a chunk.
    fn partial(&self, chunk: usize) -> *mut f32 {
        let group = self.part.first / self.phase.repeats;
        let place = (group * self.phase.chunks() + chunk) * self.phase.partial();
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
        let (rows, row) = (self.part.rows(), phase.value_row());
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
        let access = self.phase.access(operand);
        self.go_to_tile(0, chunk);
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
        ChunkTokens { rows, pages, first: self.part.first_key + chunk * CHUNK, distance }
    }

    /// Goes to the tile of the nest of a chunk, for a repetition.
    fn go_to_tile(&mut self, repeat: usize, chunk: usize) {
        let tile = self.part.tile(repeat, chunk);
        if self.phase.pieces.is_some() {
            let extent = Extent { rows: self.part.queries, columns: self.keys(chunk) };
            self.logits.operands.cursor.clip(extent);
        }
        if self.logits.operands.cursor.tile() != tile {
            self.logits.go_to(tile);
        }
    }

    /// Computes the logits in f32: −∞ where nothing is computed.
    fn compute_logits(&mut self, chunk: usize, taken: &Taken) {
        self.pack_queries();
        let (phase, part) = (self.phase, self.part);
        let (layout, keys) = (&phase.layout, self.keys(chunk));
        let tokens = self.tokens(chunk, AttentionOperand::Keys);
        let values = self.tokens(chunk, AttentionOperand::Values);
        let queries = self.queries();
        let (scores, logits) = (self.floats(layout.scores, CHUNK), self.floats(layout.logits, CHUNK));
        let has_program = !phase.nest.program.roots.is_empty();
        // Without a program and without another type, the scores are the logits.
        let scores = if has_program || phase.round_scores.is_some() { scores } else { logits };
        let all = Extent { rows: part.queries, columns: keys };
        let f32_row = 4 * CHUNK as isize;
        // SAFETY: the keys of the chunk can be read; all else is scratch of this thread, with room for the
        // rows of a chunk. The plan's level was available when the plan was made.
        unsafe {
            Self::fill_rest(scores, keys, |_| taken.any, 0.0);
            for (first, run) in tokens.runs(Self::runs(keys, taken.any), values.row(0)) {
                let arranged = self.at(layout.widened).cast();
                self.with_rows(0, tokens.first + first, run, true, |kernels, right, scaling, index| {
                    let (left, to) = (queries.source(0), scores.target(first + index));
                    kernels.dots(&RowProduct { rows: queries.rows, left, right, scaling, to }, arranged);
                });
            }
        }
        for repeat in 0..part.repeats {
            let of_row = repeat * part.queries * CHUNK;
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
                    self.go_to_tile(repeat, chunk);
                    let program = match &mut self.unmasked {
                        Some(unmasked) if taken.is_unmasked => unmasked,
                        _ => &mut self.logits,
                    };
                    program.operands.slots = [from, typed];
                    program.go_to(part.tile(repeat, chunk));
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
        self.mask_ranges(tokens.first, logits, keys);
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
                self.with_rows(1, values.first + first, run, !is_exact, |kernels, right, scaling, index| {
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
    /// they are stored, as far as their scales are in scratch together, if the phase makes them f32 in
    /// registers and the caller allows it, else with a few after the other, in f32. Its last argument is the
    /// index of the first of them in the run.
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
        let (phase, block) = (self.phase, self.part.block(0));
        let DecodeTokens { kernels, in_registers } = &phase.tokens[operand];
        let to = self.at(phase.layout.widened).cast::<f32>();
        let widens = kernels.data_type() != DataType::F32 && !(*in_registers && allows_registers);
        let row = run.columns.next_multiple_of(LANES);
        let most = if widens { WIDENED_ROWS } else { run.rows };
        let mut index = 0;
        while index < run.rows {
            let (token, rows) = (first + index, most.min(run.rows - index));
            let (rows, scaling) = match &mut self.dequantizers[operand] {
                Some(dequantizer) => (dequantizer.together(token, rows), dequantizer.scaling(block, token)),
                None => (rows, RowScaling::NONE),
            };
            let later = run.later.map(|later| LaterRows { rows: run.rows - index, ..later });
            let stored = OperandRows { at: run.row(index), rows, later, ..run };
            if widens {
                // SAFETY: as the caller promises; the scratch has room for the rows, and for a vector more.
                unsafe { kernels.widen(&stored, &scaling, to, row) };
                let (at, row_stride) = (to.cast_const().cast(), 4 * row as isize);
                let widened = OperandRows { at, row_stride, rows, later: None, ..run };
                work(&phase.of_f32, widened, RowScaling::NONE, index);
            } else {
                work(kernels, stored, scaling, index);
            }
            index += rows;
        }
    }
}
