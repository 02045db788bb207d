//! Runs attention: block of queries by block of queries, and in each block of keys by block of keys.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

mod integers;
mod packed;
mod ragged;
mod tiles;
mod weights;

use super::classes::{TileClasses, weighs};
use super::dequantizer::Dequantizer;
use super::masked_products::{score_product, value_product};
use super::pages::{TokenPages, gathered, write_zeros};
use super::present_block::PresentBlock;
use super::ragged::RaggedBlocks;
use super::score_chain::{booleans, factor_number, mask_fill, mask_tile, multiply, multiply_panels};
use super::score_tile::{convert_tile, pack_panels};
use super::statistics::{count_sinks, read_sinks, sink_maximum, store_stats};
use super::token_lookahead::{BlockTokens, TokenLookahead};
use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::{Interpreter, SelectDests, TileOperands, select_dests};
use crate::execute::slots::SlotOperands;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::attention::{QUERIES, QuadKernels, ROW, ScoreTile, SoftmaxState};
use crate::kernels::gemm::{Form, Matrix, OperandRows, Panels, Product};
use crate::kernels::{Extent, Target};
use crate::plan::{
    AccessId, AttentionCore, AttentionOperand, AttentionPhase, Base, LoopNest, MaskedParts, Plan,
    ScoreProgram, TensorMask, ValueProduct,
};
use crate::types::dtype::DataType;

/// Computes all blocks of queries.
pub(in crate::execute) fn run(
    phase: &AttentionPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let unmasked = phase.unmasked.as_ref().map(|unmasked| &unmasked.nest);
    let weights = phase.weights.as_ref().map(|weights| &weights.nest);
    let nests = [Some(&phase.nest), unmasked, weights, Some(&phase.result.nest)];
    let dests = nests.map(|nest| select_dests(nest, bindings));
    let of_thread = |thread: usize| {
        QueryBlock::new(phase, plan, bindings, bindings.scratch_of(thread, plan.scratch), &dests)
    };
    let Some(ragged) = &phase.ragged else {
        return runner.run(phase.tasks(), |thread, ranges| {
            let mut block = of_thread(thread);
            ranges.for_each(|tasks| tasks.clone().for_each(|task| block.run(task, tasks.end)));
        });
    };
    let blocks = RaggedBlocks::new(&ragged.list, phase.places(), bindings);
    runner.run(blocks.parts(), |thread, ranges| {
        let mut block = of_thread(thread);
        for (place, of) in ranges.flat_map(|parts| blocks.of_parts(parts)) {
            block.run_ragged(place, of, blocks.ranges(of));
        }
    })
}

/// A block of queries, and the state of its SoftMax.
struct QueryBlock<'a> {
    phase: &'a AttentionPhase,
    /// Computes the logits.
    logits: Interpreter<'a, ScoreOperands<'a>>,
    /// The same for tiles in which no mask masks anything.
    unmasked: Option<Interpreter<'a, ScoreOperands<'a>>>,
    /// Changes weights before they are multiplied by the values.
    weights: Option<Interpreter<'a, SlotOperands<'a, 2>>>,
    /// Stores the result.
    result: Interpreter<'a, SlotOperands<'a, 2>>,
    state: SoftmaxState,
    classes: TileClasses<'a>,
    /// The block, if it begins where a sequence does.
    ragged: Option<PresentBlock<'a>>,
    /// True once the block of results holds sums.
    has_sums: bool,
    /// The sinks of the queries; −∞ without any.
    sinks: [f32; QUERIES],
}

/// A pass over the tiles of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Maxima, exponentials and sums in one pass; the sums so far are rescaled when a maximum grows.
    Online,
    /// Maxima alone.
    Maxima,
    /// Maxima and sums.
    Sums,
    /// The results of the SoftMax, from the maxima and sums of all keys, which two passes found before.
    Weights,
    ExactWeights,
    /// Exponentials and sums with the maxima of all keys, and without the values of keys whose weight is 0.
    Exact,
}

impl<'a> QueryBlock<'a> {
    fn new(
        phase: &'a AttentionPhase,
        plan: &'a Plan,
        bindings: &Bindings,
        scratch: *mut u8,
        [logits, of_unmasked, weights, result]: &'a [SelectDests; 4],
    ) -> Self {
        let cursor = |nest| Cursor::new(nest, &plan.constants, bindings);
        let scores = |nest, first_access| ScoreOperands {
            phase,
            nest,
            first_access,
            scratch,
            cursor: cursor(nest),
            late_factor: None,
            defers_factor: false,
            deferred_factor: None,
            // SAFETY: the scratch is this thread's, as the plan lays it out.
            zeros: unsafe { write_zeros(&phase.layout.paged, scratch) },
            lookahead: TokenLookahead::default(),
            dequantizers: Dequantizer::of_both(phase, phase.layout.quantized, plan, bindings, scratch),
            computed: None,
            masked: MaskedParts::default(),
        };
        let unmasked = phase.unmasked.as_ref().map(|ScoreProgram { nest, first_access }| {
            Interpreter::new(&nest.program, of_unmasked, scratch, scores(nest, *first_access))
        });
        let slots = |nest, slots: [usize; 2]| SlotOperands {
            slots: slots.map(|place| scratch.wrapping_add(place)),
            cursor: cursor(nest),
        };
        let layout = &phase.layout;
        if let Some(kept) = layout.kept_values {
            // SAFETY: the scratch has room for an address of each block of keys.
            unsafe { scratch.wrapping_add(kept).cast::<usize>().write_bytes(0, phase.key_blocks()) };
        }
        let weights = phase.weights.as_ref().map(|program| {
            let from = if program.round.is_some() { layout.typed_weights } else { layout.weights };
            let to = if program.widen.is_some() { layout.typed_factors } else { layout.factors };
            let scratch = scratch.wrapping_add(layout.weights_program);
            Interpreter::new(&program.nest.program, weights, scratch, slots(&program.nest, [from, to]))
        });
        let from = if phase.result.round.is_some() { layout.typed_result } else { layout.result };
        let of_block = slots(&phase.result.nest, [from; 2]);
        let program = &phase.result.nest.program;
        let of_result = scratch.wrapping_add(layout.result_program);
        Self {
            phase,
            logits: Interpreter::new(
                &phase.nest.program,
                logits,
                scratch,
                scores(&phase.nest, phase.first_access),
            ),
            unmasked,
            weights,
            result: Interpreter::new(program, result, of_result, of_block),
            state: SoftmaxState::new(),
            classes: TileClasses::new(phase.classes.as_ref(), bindings),
            ragged: None,
            has_sums: false,
            sinks: [f32::NEG_INFINITY; QUERIES],
        }
    }

    /// Computes a block; the thread computes those behind it up to `end` next.
    fn run(&mut self, task: usize, end: usize) {
        if task + 1 < end {
            self.look_ahead(task);
        }
        self.compute(task);
    }

    /// Computes a block.
    fn compute(&mut self, task: usize) {
        let phase = self.phase;
        self.go_to(task, 0);
        let queries = self.queries();
        self.operands().pack_queries(queries);
        let late_factor = self.operands().late_factor;
        self.unmasked.iter_mut().for_each(|unmasked| unmasked.operands.late_factor = late_factor);
        read_sinks(phase, &self.logits.operands.cursor, &mut self.sinks[..queries]);
        self.begin();
        if let Some(integers) = phase.integers() {
            self.weigh_integers(task, integers, queries);
        } else if let (Some(_), Some(stored)) = (&phase.weights, phase.layout.stored_weights) {
            self.weigh_stored(task, stored, queries);
        } else if phase.weights.is_some() {
            self.pass(task, Pass::Sums);
            self.pass(task, Pass::Weights);
            if !self.is_finite(queries) {
                self.zero_sums();
                self.pass(task, Pass::ExactWeights);
            }
        } else {
            self.pass(task, Pass::Online);
            if !self.divide(queries) {
                // A weight of 0 times a value that is not finite is NaN, so keys of weight 0 are skipped.
                self.begin();
                self.pass(task, Pass::Maxima);
                self.count_sinks();
                self.zero_sums();
                self.pass(task, Pass::Exact);
                self.divide(queries);
            }
        }
        self.finish(task, queries);
    }

    /// Notes the tokens that the next block reads and this one does not.
    fn look_ahead(&mut self, task: usize) {
        let (Some(own), Some(next)) = (self.classes.of_block(task), self.classes.of_block(task + 1)) else {
            return;
        };
        let [own, next] = [(task, own), (task + 1, next)].map(|(task, classes)| {
            self.go_to(task, 0);
            let operands = [AttentionOperand::Queries, AttentionOperand::Keys, AttentionOperand::Values];
            let tokens = operands.map(|operand| self.operands().given(operand));
            BlockTokens { classes, queries: self.queries(), tokens }
        });
        self.logits.operands.lookahead.note(self.phase, &own, &next);
    }

    /// Goes to a tile of scores, and forgets what was computed for others.
    fn go_to(&mut self, task: usize, key_block: usize) {
        self.logits.go_to(task * self.phase.key_blocks() + key_block);
        self.operands().computed = None;
    }

    fn operands(&mut self) -> &mut ScoreOperands<'a> {
        &mut self.logits.operands
    }

    fn queries(&self) -> usize {
        self.logits.operands.cursor.extent().columns
    }

    fn at(&self, place: usize) -> *mut u8 {
        self.logits.operands.scratch.wrapping_add(place)
    }

    fn begin(&mut self) {
        self.state = SoftmaxState::new();
        self.state.max = self.sinks.map(sink_maximum);
        self.count_sinks();
        self.has_sums = false;
    }

    /// Sets the sums to the exponentials of the sinks under the maxima.
    fn count_sinks(&mut self) {
        count_sinks(&mut self.state.sum, &self.state.max, &self.sinks);
    }

    fn sums(&self) -> *mut f32 {
        self.at(self.phase.layout.result).cast()
    }

    fn zero_sums(&mut self) {
        // SAFETY: the scratch has room for a row of the block for each element of a value.
        unsafe { self.sums().write_bytes(0, self.phase.value_columns * QUERIES) };
        self.has_sums = true;
    }

    /// True if the weight exp(number − max) is not 0 in f32 for some query of the block.
    fn weighs(&self, number: f32) -> bool {
        self.state.max[..self.queries()].iter().any(|&max| weighs(number, max))
    }

    /// Adds a tile to the state and to the block of results; `is_unmasked` if no mask masks anything in the
    /// tile.
    fn tile(&mut self, task: usize, key_block: usize, pass: Pass, is_unmasked: bool) {
        let weighs_in_pairs = pass == Pass::Online && self.phase.weighs_in_pairs();
        let tile = self.scores(task, key_block, is_unmasked, weighs_in_pairs);
        let factor = self.operands().deferred_factor.take().unwrap_or(1.0);
        let (kernels, columns) = (&self.phase.kernels, self.phase.value_columns);
        // SAFETY: the tile is scratch of this thread, as is the block of results, which has a row for each
        // element of a value; the plan's level was available when the plan was made.
        unsafe {
            match pass {
                Pass::Online => {
                    let changes = if weighs_in_pairs {
                        let to = self.at(self.phase.layout.packed_weights);
                        kernels.accumulate_pairs(tile, factor, to, &mut self.state)
                    } else {
                        kernels.accumulate(tile, &mut self.state)
                    };
                    if changes && self.has_sums {
                        kernels.rescale(self.sums(), columns, tile.queries, &self.state.factor);
                    }
                    self.add_values(tile, pass);
                }
                Pass::Sums => self.sum_up(key_block, tile),
                Pass::Maxima => {
                    kernels.maxima(tile, &mut self.state);
                    self.store(key_block, tile);
                }
                Pass::Exact => {
                    kernels.exponentials(tile, &mut self.state);
                    self.add_values(tile, pass);
                }
                Pass::Weights | Pass::ExactWeights => {
                    // The sums are known.
                    kernels.exponentials(tile, &mut self.state.clone());
                    kernels.divide(tile.at, tile.keys, tile.queries, &self.state, self.phase.inf_as_zero);
                    let factors = self.factors(task, key_block, tile);
                    self.add_values(factors, pass);
                }
            }
        }
    }

    /// The tile of logits, in f32. The SoftMax may apply a deferred factor on all scores, if it can.
    fn scores(&mut self, task: usize, key_block: usize, is_unmasked: bool, defers: bool) -> ScoreTile {
        let phase = self.phase;
        let place = task * phase.key_blocks() + key_block;
        // A program takes scores that are multiplied.
        self.operands().defers_factor = false;
        let mask = phase.mask.as_ref().filter(|_| !is_unmasked);
        let program = match &mut self.unmasked {
            Some(unmasked) if is_unmasked || mask.is_some() => {
                // Both programs have their scales of keys in one place of scratch.
                self.logits.operands.forget_keys();
                self.logits.go_to(place);
                if let Some(mask) = mask {
                    let (at, stride) = booleans(phase, mask, &self.logits.operands.cursor);
                    let queries = self.logits.operands.cursor.extent().columns;
                    self.logits.operands.lookahead.note_booleans(at, stride, queries);
                }
                unmasked.run(place);
                unmasked.operands.computed = None;
                unmasked.program()
            }
            unmasked => {
                unmasked.iter_mut().for_each(|unmasked| unmasked.operands.forget_keys());
                self.logits.run(place);
                &phase.nest.program
            }
        };
        let extent = self.logits.operands.cursor.extent();
        let is_plain = program.roots.is_empty();
        let is_in_place = is_plain && phase.widen_logits.is_none();
        self.operands().defers_factor =
            defers && is_in_place && mask.is_none_or(|mask| self.masks_wholly(mask));
        match (is_plain, phase.widen_logits) {
            (true, None) => self.operands().compute(phase.layout.scores),
            (true, Some(_)) => {
                self.operands().typed_scores();
                self.widen(extent, phase.layout.typed_scores);
            }
            (false, None) => {}
            (false, Some(_)) => self.widen(extent, phase.layout.typed_logits),
        }
        let tile = if is_in_place { phase.layout.scores } else { phase.layout.weights };
        let tile = ScoreTile { at: self.at(tile).cast(), keys: extent.rows, queries: extent.columns };
        if let Some(mask) = mask {
            // SAFETY: the tile is scratch of this thread, and the cursor is at the tile.
            unsafe { mask_tile(phase, mask, &self.logits.operands.cursor, tile) };
        }
        self.mask_ragged(tile);
        // The SoftMax overwrites what was computed.
        self.operands().computed = None;
        tile
    }

    /// True if the number of a mask is −∞, which a factor leaves as it is.
    fn masks_wholly(&self, mask: &TensorMask) -> bool {
        // SAFETY: the number is an element in memory.
        unsafe { mask_fill(mask, &self.logits.operands.cursor) == f32::NEG_INFINITY }
    }

    /// Widens the logits from a tile of their type.
    fn widen(&self, extent: Extent, from: usize) {
        let Some(widen) = self.phase.widen_logits else { return };
        let (from, to) = ((self.at(from), self.phase.logit_width), (self.at(self.phase.layout.weights), 4));
        // SAFETY: both tiles are scratch of this thread and do not overlap.
        unsafe { convert_tile(widen, extent, from, to) };
    }

    /// Adds the values of a block of keys, by weight.
    fn add_values(&mut self, tile: ScoreTile, pass: Pass) {
        let phase = self.phase;
        let all = Extent { rows: tile.keys, columns: phase.value_columns };
        let is_exact = matches!(pass, Pass::Exact | Pass::ExactWeights);
        let (sums, accumulate) = (self.sums(), self.has_sums);
        let operands = &mut self.logits.operands;
        // SAFETY: the values of the block can be read; all else is scratch of this thread, and the plan's
        // level was available when the plan was made.
        unsafe {
            if is_exact && !operands.has_finite_values(all) {
                let values = operands.tokens(AttentionOperand::Values, all);
                return phase.kernels.masked_product(tile, values, all.columns, sums);
            }
            let (kernel, left, right) = match &phase.value_product {
                ValueProduct::Integers(of) => {
                    let weights = QuadKernels::panel(operands.place(phase.layout.packed_weights));
                    (&of.kernel, operands.value_quads(of, all), weights)
                }
                ValueProduct::F32(kernel) => {
                    let panel_stride = 4 * kernel.panel_columns() as isize;
                    let values = operands.tokens(AttentionOperand::Values, all);
                    (kernel, values, Panels { at: tile.at.cast(), row_stride: ROW, panel_stride })
                }
                ValueProduct::Pairs { kernel, weights, values } => {
                    let is_packed = pass == Pass::Online && phase.weighs_in_pairs();
                    let values = operands.packed_values(values, all);
                    (kernel, values, operands.packed_weights(weights, tile, is_packed))
                }
            };
            let product = Product {
                rows: all.columns,
                columns: tile.queries,
                depth: tile.keys,
                left: left.transposed(),
                right,
                to: sums,
                to_row: ROW,
                accumulate,
                bias: std::ptr::null(),
            };
            let masked = operands.masked;
            value_product(*kernel, &product, masked, || operands.lookahead.step());
        }
        self.has_sums = true;
    }

    fn is_finite(&self, queries: usize) -> bool {
        let sums = Matrix { at: self.sums().cast(), row_stride: ROW, col_stride: 4 };
        let extent = Extent { rows: self.phase.value_columns, columns: queries };
        // SAFETY: the block of results is scratch of this thread, and was written.
        !self.has_sums || unsafe { self.phase.kernels.is_finite(extent, sums, DataType::F32) }
    }

    /// Divides the sums by those of the weights, and returns whether all were finite.
    fn divide(&mut self, queries: usize) -> bool {
        if !self.has_sums {
            self.zero_sums();
        }
        let (phase, sums) = (self.phase, self.sums());
        // SAFETY: the block of results is scratch of this thread, and was written.
        unsafe { phase.kernels.divide(sums, phase.value_columns, queries, &self.state, phase.inf_as_zero) }
    }

    /// Stores the result.
    fn finish(&mut self, task: usize, queries: usize) {
        let phase = self.phase;
        if !self.has_sums {
            self.zero_sums();
        }
        if phase.has_stats {
            let mut numbers = [0.0f32; QUERIES];
            // SAFETY: there is room for the number of each query.
            unsafe { phase.kernels.stats(queries, &self.state, phase.inf_as_zero, numbers.as_mut_ptr()) };
            store_stats(phase, &self.logits.operands.cursor, numbers.into_iter().take(queries));
        }
        if let Some(round) = phase.result.round {
            let extent = Extent { rows: phase.value_columns, columns: queries };
            let (from, to) = ((self.sums().cast(), 4), (self.at(phase.layout.typed_result), 2));
            // SAFETY: both are scratch of this thread and do not overlap.
            unsafe { convert_tile(round, extent, from, to) };
        }
        self.result.go_to(phase.result_tile(task));
        self.result.run_here();
    }
}

/// The operands of the program that computes the logits: a tile of scores is computed when a
/// step first reads it.
struct ScoreOperands<'a> {
    phase: &'a AttentionPhase,
    /// The loops of the program, and the access of the queries.
    nest: &'a LoopNest,
    first_access: AccessId,
    scratch: *mut u8,
    cursor: Cursor<'a>,
    /// A token of zeros, if keys or values lie in pages.
    zeros: *const u8,
    /// Where the factor on all scores lies, unless the packed queries have it in them.
    late_factor: Option<*const u8>,
    /// The SoftMax multiplies the scores of the present tile by the factor, if that is a positive number: the
    /// number, once the scores are there.
    defers_factor: bool,
    deferred_factor: Option<f32>,
    /// The prefetch that runs beside the products.
    lookahead: TokenLookahead,
    /// Of keys and of values, if the phase dequantises them.
    dequantizers: [Option<Dequantizer<'a>>; 2],
    /// The tile whose scores are in scratch.
    computed: Option<usize>,
    /// The parts of the present tile that products leave out.
    masked: MaskedParts,
}

impl<'a> TileOperands<'a> for ScoreOperands<'a> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        let layout = &self.phase.layout;
        match self.nest.program.accesses[access].base {
            Base::Driver(AttentionCore::LOGITS) => self.place(match self.phase.widen_logits {
                Some(_) => layout.typed_logits,
                None => layout.weights,
            }),
            Base::Driver(_) if self.phase.round_scores.is_some() => {
                self.typed_scores();
                self.place(layout.typed_scores)
            }
            Base::Driver(_) => {
                self.compute(layout.scores);
                self.place(layout.scores)
            }
            _ => self.cursor.at(access),
        }
    }
}

impl ScoreOperands<'_> {
    fn place(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(offset)
    }

    /// The type of an operand of a product, and where its tokens lie in the present tile.
    fn given(&self, operand: AttentionOperand) -> (DataType, Matrix) {
        let matrix = self.cursor.matrix(self.first_access + operand as usize);
        (self.phase.types[operand as usize], matrix)
    }

    /// The number of the first key of the present tile.
    fn first_key(&self) -> usize {
        match self.phase.ragged {
            Some(_) => self.cursor.iteration(self.nest.row_blocks),
            None => self.cursor.first_row(),
        }
    }

    /// Keys or values of the present tile as they are stored: where they lie, or copied from several pages.
    fn stored(&self, operand: AttentionOperand, tokens: usize) -> Matrix {
        let (_, lying) = self.given(operand);
        let pages = TokenPages::of(self.phase, operand, &self.cursor, self.first_access, self.zeros);
        let Some(pages) = pages else { return lying };
        let first = self.first_key();
        let paged = &self.phase.layout.paged;
        let index = operand as usize - AttentionOperand::Keys as usize;
        let (bytes, to) = (paged.token_bytes[index], self.place(paged.blocks[index]));
        // SAFETY: the tokens of the block can be read; the scratch has room for a block of them.
        let (at, row_stride) = unsafe { gathered(&pages, (first, first + tokens), bytes, to) };
        Matrix { at, row_stride, ..lying }
    }

    fn forget_keys(&mut self) {
        self.dequantizers[0].iter_mut().for_each(Dequantizer::forget);
    }

    /// True if all values of the present tile are finite, after dequantisation if there is one.
    fn has_finite_values(&mut self, all: Extent) -> bool {
        let (data_type, values) = match self.phase.quantized[1] {
            None => {
                let (data_type, _) = self.given(AttentionOperand::Values);
                (data_type, self.stored(AttentionOperand::Values, all.rows))
            }
            Some(_) => (DataType::F32, self.tokens(AttentionOperand::Values, all)),
        };
        // SAFETY: the values of the block can be read; the plan's level was available when the plan was made.
        unsafe { self.phase.kernels.is_finite(all, values, data_type) }
    }

    /// The keys or values of the present tile: where they are, or converted.
    fn tokens(&mut self, operand: AttentionOperand, extent: Extent) -> Matrix {
        let tokens = self.stored(operand, extent.rows);
        let (phase, layout) = (self.phase, &self.phase.layout);
        let (index, convert, place, row) = match operand {
            AttentionOperand::Keys => (0, phase.keys, layout.keys, layout.key_row),
            _ => (1, phase.values, layout.values, layout.value_row),
        };
        let to = Target { at: self.place(place), row_stride: row as isize };
        let (task, first) = (self.cursor.tile() / phase.key_blocks(), self.first_key());
        if let Some(dequantizer) = &mut self.dequantizers[index] {
            let Extent { rows, columns } = extent;
            let (at, row_stride) = (tokens.at, tokens.row_stride);
            let rows = OperandRows { at, row_stride, rows, columns, later: None };
            // SAFETY: the tokens of the block can be read; the scratch has room for a block of rows, each
            // with a line more than its elements take.
            unsafe { dequantizer.run(task, first, rows, to.at.cast(), row / 4) };
            return Matrix { at: to.at, row_stride: to.row_stride, col_stride: 4 };
        }
        let Some(convert) = convert else { return tokens };
        // SAFETY: the tokens of the block can be read; the scratch has room for a block of them, and for the
        // kernel.
        unsafe { convert.run(extent, tokens, to, self.place(self.phase.layout.pack)) };
        Matrix { at: to.at, row_stride: to.row_stride, col_stride: convert.written_width() as isize }
    }

    /// Packs the queries of the present block as panels.
    fn pack_queries(&mut self, queries: usize) {
        let phase = self.phase;
        if let Some(integers) = phase.integers() {
            return self.pack_integer_queries(integers, queries);
        }
        let (_, tokens) = self.given(AttentionOperand::Queries);
        let (extent, panels) =
            (Extent { rows: phase.depth, columns: queries }, self.place(phase.layout.queries));
        // SAFETY: the queries of the block can be read; the scratch has room for their panels, and for the
        // kernel.
        unsafe {
            pack_panels(&phase.queries, extent, tokens.transposed(), panels, self.place(phase.layout.pack))
        };
        self.late_factor = phase.factor.as_ref().map(|factor| self.cursor.at(factor.number).cast_const());
        if let (Some(factor), Some(number), Form::F32) =
            (&phase.factor, self.late_factor, phase.product.form())
        {
            let bytes = queries.div_ceil(phase.queries.columns()) * phase.queries.panel_bytes(phase.depth);
            // SAFETY: the panels are scratch of this thread, and were written; the number can be read.
            if unsafe { multiply_panels(factor, number, panels, bytes) } {
                self.late_factor = None;
            }
        }
    }

    /// Computes the scores of the present tile, unless they are there.
    fn compute(&mut self, place: usize) {
        if self.computed == Some(self.cursor.tile()) {
            return;
        }
        self.computed = Some(self.cursor.tile());
        let phase = self.phase;
        let Extent { rows: keys, columns: queries } = self.cursor.extent();
        let all = Extent { rows: keys, columns: phase.depth };
        let left = match phase.integers() {
            Some(integers) => self.integer_keys(integers, all),
            None => self.tokens(AttentionOperand::Keys, all),
        };
        // SAFETY: the keys of the block can be read; all else is scratch of this thread, and the plan's level
        // was available when the plan was made.
        unsafe {
            let product = Product {
                rows: keys,
                columns: queries,
                depth: phase.depth,
                left,
                right: Panels {
                    at: self.place(phase.layout.queries),
                    row_stride: phase.queries.row_bytes() as isize,
                    panel_stride: phase.queries.panel_bytes(phase.depth) as isize,
                },
                to: self.place(place).cast(),
                to_row: ROW,
                accumulate: false,
                bias: std::ptr::null(),
            };
            score_product(phase.product, &product, self.masked, || self.lookahead.step());
            let tile = Target { at: self.place(place), row_stride: ROW };
            if let Some(integers) = phase.integers() {
                self.scale_scores(integers, tile.at.cast());
            } else if let (Some(factor), Some(number)) = (&phase.factor, self.late_factor) {
                match factor.divides {
                    true => multiply(factor, number, self.cursor.extent(), tile),
                    // Faster than the kernel of the op (decision: factor-by-query).
                    false => {
                        let number = factor_number(factor, number);
                        if self.defers_factor && number.is_normal() && number > 0.0 {
                            self.deferred_factor = Some(number);
                        } else {
                            phase.kernels.rescale(tile.at.cast(), keys, queries, &[number; QUERIES]);
                        }
                    }
                }
            }
        }
    }

    /// Computes the scores of the present tile in their type.
    fn typed_scores(&mut self) {
        let layout = &self.phase.layout;
        if self.computed == Some(self.cursor.tile()) {
            return;
        }
        self.compute(layout.scores);
        let Some(round) = self.phase.round_scores else { return };
        let (from, to) = (self.place(layout.scores), self.place(layout.typed_scores));
        // SAFETY: both tiles are scratch of this thread and do not overlap.
        unsafe { convert_tile(round, self.cursor.extent(), (from, 4), (to, self.phase.score_width)) };
    }
}
