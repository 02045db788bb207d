//! Runs the gradients of attention: place by place, group of blocks of queries by group, and in each group
//! block of keys by block of keys. Of each tile it computes P and dS, and adds dS·K to dQ, dSᵀ·Q to dK and
//! Pᵀ·dO to dV.
#![allow(unsafe_code, reason = "gradients are computed on raw memory that was checked before")]

mod operands;

use self::operands::ChainOperands;
use super::classes::{TileClasses, weighs};
use super::score_tile::convert;
use crate::error::Result;
use crate::execute::bindings::Bindings;
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::{Interpreter, SelectDests, select_dests};
use crate::execute::slots::SlotOperands;
use crate::execute::task_runner::TaskRunner;
use crate::kernels::attention::{QUERIES, ROW, ScoreTile, SoftmaxState};
use crate::kernels::{Extent, Source, Target};
use crate::plan::{
    BackwardOperand, BackwardPhase, BackwardSoftmax, GROUP, Plan, RESULTS, SLOTS, TileChain, TileClass,
    class, largest_constant,
};
use crate::types::shape::SaturatingProduct;

use BackwardOperand as O;

/// Computes the gradients of all places.
pub(in crate::execute) fn run(
    phase: &BackwardPhase,
    plan: &Plan,
    bindings: &Bindings,
    runner: &TaskRunner<'_>,
) -> Result<()> {
    let behind = phase.softmax.as_ref().and_then(|softmax| softmax.behind.as_ref());
    let nests = [Some(&phase.chain.nest), behind.map(|behind| &behind.nest)];
    let chains = nests.map(|nest| select_dests(nest, bindings));
    let results =
        phase.results.each_ref().map(|result| select_dests(result.as_ref().map(|of| &of.nest), bindings));
    runner.run(phase.tasks(), |thread, ranges| {
        let scratch = bindings.scratch_of(thread, plan.scratch);
        let mut driver = Driver::new(phase, plan, bindings, scratch, &chains, &results);
        ranges.for_each(|tasks| tasks.for_each(|task| driver.run(task)));
    })
}

/// A pass over the tiles before the gradients, if the phase computes the SoftMax.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatisticsPass {
    /// Maxima, sums, and Σ P ⊙ dP in one pass; sums are rescaled when a maximum grows.
    Online,
    /// Maxima alone.
    Maxima,
    /// Sums under the maxima of all keys, without dP of keys whose weight is 0.
    Exact,
}

/// A block of queries of the present group.
struct Block {
    state: SoftmaxState,
    /// Σ P ⊙ dP for each query, which is later divided by the sums of the state.
    means: [f32; QUERIES],
    /// True if tiles of constants have weights other than 0.
    has_constants: bool,
    /// True if all of Q, and all of dO, is finite.
    finite_queries: bool,
    finite_gradients: bool,
}

impl Block {
    fn new() -> Self {
        Self {
            state: SoftmaxState::new(),
            means: [0.0; QUERIES],
            has_constants: false,
            finite_queries: true,
            finite_gradients: true,
        }
    }
}

/// Computes the gradients of one place after another.
struct Driver<'a> {
    phase: &'a BackwardPhase,
    chain: Interpreter<'a, ChainOperands<'a>>,
    behind: Option<Interpreter<'a, SlotOperands<'a, SLOTS>>>,
    results: [Option<Interpreter<'a, SlotOperands<'a, SLOTS>>>; RESULTS],
    blocks: [Block; GROUP],
    classes: TileClasses<'a>,
}

impl<'a> Driver<'a> {
    fn new(
        phase: &'a BackwardPhase,
        plan: &'a Plan,
        bindings: &Bindings,
        scratch: *mut u8,
        [chain, behind]: &'a [SelectDests; 2],
        results: &'a [SelectDests; RESULTS],
    ) -> Self {
        let cursor = |nest| Cursor::new(nest, &plan.constants, bindings);
        let at = |place: usize| scratch.wrapping_add(place);
        let layout = &phase.layout;
        let operands = ChainOperands {
            phase,
            scratch,
            cursor: cursor(&phase.chain.nest),
            block: 0,
            has_scores: false,
            has_gradients: false,
            has_typed: [false; 2],
        };
        let behind = phase.softmax.as_ref().and_then(|softmax| softmax.behind.as_ref()).map(|of| {
            let slots = of.slots.map(|slot| match slot {
                Some(slot) => at(slot.typed.map_or(slot.tile, |typed| typed.place)),
                None => std::ptr::null_mut(),
            });
            let operands = SlotOperands { slots, cursor: cursor(&of.nest) };
            Interpreter::new(&of.nest.program, behind, at(layout.behind), operands)
        });
        let result = |place: usize| {
            let of = phase.results[place].as_ref()?;
            let operands = SlotOperands { slots: [std::ptr::null_mut(); SLOTS], cursor: cursor(&of.nest) };
            Some(Interpreter::new(&of.nest.program, &results[place], at(layout.results[place]), operands))
        };
        Self {
            phase,
            chain: Interpreter::new(&phase.chain.nest.program, chain, at(layout.chain), operands),
            behind,
            results: std::array::from_fn(result),
            blocks: std::array::from_fn(|_| Block::new()),
            classes: TileClasses::new(phase.classes.as_ref(), bindings),
        }
    }

    fn at(&self, place: usize) -> *mut u8 {
        self.chain.operands.scratch.wrapping_add(place)
    }

    /// Computes the gradients of a task.
    fn run(&mut self, task: usize) {
        let phase = self.phase;
        // The first place, and the first tile of each result.
        let (mut rest, mut first, mut tiles) = (task, 0, [0; 3]);
        for axis in phase.axes.iter().rev().filter(|axis| !axis.is_summed) {
            let index = rest % axis.extent;
            rest /= axis.extent;
            first += index * axis.places;
            tiles.iter_mut().zip(axis.result_tiles).for_each(|(tile, step)| *tile += index * step);
        }
        self.zero_sums();
        let summed: usize =
            phase.axes.iter().filter(|axis| axis.is_summed).map(|axis| axis.extent).saturating_product();
        for member in 0..summed {
            let (mut rest, mut place, mut of_queries) = (member, first, tiles[0]);
            for axis in phase.axes.iter().rev().filter(|axis| axis.is_summed) {
                let index = rest % axis.extent;
                rest /= axis.extent;
                place += index * axis.places;
                of_queries += index * axis.result_tiles[0];
            }
            self.place(place, of_queries);
        }
        let layout = &phase.layout;
        let sums = [(1, layout.key_sums, layout.key_row, phase.depth)];
        let sums = sums.into_iter().chain([(2, layout.value_sums, layout.value_row, phase.value_columns)]);
        for (result, at, row, columns) in sums {
            let tile = phase.chain.nest.tile.rows;
            for block in 0..phase.key_blocks() {
                let from = self.at(at).wrapping_add(block * tile * row);
                let rows = tile.min(phase.chain.nest.space.rows - block * tile);
                let extent = Extent { rows, columns };
                self.finish(result, tiles[result], block, from, extent, [row, columns]);
            }
        }
    }

    fn zero_sums(&self) {
        let (phase, layout) = (self.phase, &self.phase.layout);
        let keys = phase.chain.nest.space.rows;
        let sums = [(1, layout.key_sums, layout.key_row), (2, layout.value_sums, layout.value_row)];
        for (result, at, row) in sums {
            if phase.results[result].is_some() {
                // SAFETY: the scratch has room for a row for each key.
                unsafe { self.at(at).write_bytes(0, keys * row) };
            }
        }
    }

    /// Takes a block of sums out, whose rows are so many bytes apart; rounded ones have so many elements.
    fn finish(
        &mut self,
        result: usize,
        first: usize,
        block: usize,
        from: *mut u8,
        extent: Extent,
        [row, typed]: [usize; 2],
    ) {
        let to = self.at(self.phase.layout.typed_result);
        let (Some(of), Some(interpreter)) = (&self.phase.results[result], &mut self.results[result]) else {
            return;
        };
        interpreter.operands.slots[0] = match of.round {
            None => from,
            Some(round) => {
                let from = Source { at: from, row_stride: row as isize };
                let target = Target { at: to, row_stride: 2 * typed as isize };
                // SAFETY: both are scratch of this thread and do not overlap.
                unsafe { convert(round, extent, from, target) };
                to
            }
        };
        interpreter.go_to(first + block * of.block_tiles);
        interpreter.run_here();
    }

    /// Adds the gradients of one place, and stores those of its queries; `of_queries` is their first
    /// tile.
    fn place(&mut self, place: usize, of_queries: usize) {
        let phase = self.phase;
        let (query_blocks, key_blocks) = (phase.query_blocks(), phase.key_blocks());
        self.chain.go_to(place * query_blocks * key_blocks);
        self.chain.operands.convert_keys();
        self.find_finite_keys(place);
        for first in (0..query_blocks).step_by(GROUP) {
            let blocks = GROUP.min(query_blocks - first);
            for block in 0..blocks {
                self.begin(place, first, block);
            }
            for key_block in 0..key_blocks {
                for block in 0..blocks {
                    let row = place * query_blocks + first + block;
                    let is_computed = self.is_computed(row, key_block, block);
                    if is_computed {
                        self.tile(row, key_block, block);
                    }
                    self.store(row, key_block, is_computed);
                }
            }
            let sums = phase.layout.query_sums;
            for block in (0..blocks).filter(|_| phase.results[0].is_some()) {
                let tile = phase.chain.nest.tile.columns;
                let columns = tile.min(phase.chain.nest.space.columns - (first + block) * tile);
                let from = self.at(sums + block * phase.layout.group_step);
                let extent = Extent { rows: phase.depth, columns };
                self.finish(0, of_queries, first + block, from, extent, [ROW as usize, QUERIES]);
            }
        }
    }

    /// Stores the tile that is needed as a whole; one that is not computed is 0.
    fn store(&mut self, row: usize, key_block: usize, is_computed: bool) {
        let Some(place) = self.phase.mask else { return };
        let nest = &self.phase.chain.nest;
        let first = row % self.phase.query_blocks() * nest.tile.columns;
        let extent = Extent {
            rows: nest.tile.rows.min(nest.space.rows - key_block * nest.tile.rows),
            columns: nest.tile.columns.min(nest.space.columns - first),
        };
        let from = self.at(place);
        if !is_computed {
            // SAFETY: the scratch has room for a row for each key of a tile.
            unsafe { from.write_bytes(0, extent.rows * ROW as usize) };
        }
        let tile = row * self.phase.key_blocks() + key_block;
        self.finish(RESULTS - 1, tile, 0, from, extent, [ROW as usize, QUERIES]);
    }

    /// True if a tile adds anything to the gradients.
    fn is_computed(&self, row: usize, key_block: usize, block: usize) -> bool {
        match self.classes.of_block(row).map(|classes| class(classes, key_block)) {
            Some(TileClass::Masked) => false,
            Some(TileClass::Constant) if self.phase.softmax.is_some() => self.blocks[block].has_constants,
            _ => true,
        }
    }

    /// Goes to a tile, of the block of queries with this row, and forgets what was computed for others.
    fn go_to(&mut self, row: usize, key_block: usize, block: usize) {
        self.chain.go_to(row * self.phase.key_blocks() + key_block);
        self.chain.operands.begin_tile(block);
    }

    /// Notes for each block of keys whether all are finite.
    fn find_finite_keys(&mut self, place: usize) {
        let phase = self.phase;
        if phase.results[0].is_none() {
            return;
        }
        let row = place * phase.query_blocks();
        for key_block in 0..phase.key_blocks() {
            self.chain.go_to(row * phase.key_blocks() + key_block);
            let keys = self.chain.operands.cursor.extent().rows;
            let is_finite = self.chain.operands.is_finite(O::DqKeys, keys, phase.depth);
            // SAFETY: the scratch has room for a byte for each block.
            unsafe { self.at(phase.layout.finite_keys).add(key_block).write(is_finite.into()) };
        }
    }

    /// Packs a block of queries, and finds its maxima and sums if the phase computes the SoftMax.
    fn begin(&mut self, place: usize, first: usize, block: usize) {
        let phase = self.phase;
        let row = place * phase.query_blocks() + first + block;
        self.go_to(row, 0, block);
        let operands = &self.chain.operands;
        let queries = operands.cursor.extent().columns;
        operands.bring_queries(queries);
        self.blocks[block] = Block::new();
        self.blocks[block].finite_queries = operands.is_finite(O::DkQueries, queries, phase.depth);
        self.blocks[block].finite_gradients =
            operands.is_finite(O::DvGradients, queries, phase.value_columns);
        if phase.results[0].is_some() {
            let sums = self.at(phase.layout.query_sums + block * phase.layout.group_step);
            // SAFETY: the scratch has room for a row for each element of a query.
            unsafe { sums.write_bytes(0, phase.depth * ROW as usize) };
        }
        let Some(softmax) = &phase.softmax else { return };
        self.pass(softmax, row, block, StatisticsPass::Online);
        if self.blocks[block].means[..queries].iter().any(|mean| !mean.is_finite()) {
            // A weight of 0 times a gradient that is not finite is NaN, so keys of weight 0 are skipped.
            let of = &mut self.blocks[block];
            (of.state, of.means) = (SoftmaxState::new(), [0.0; QUERIES]);
            self.pass(softmax, row, block, StatisticsPass::Maxima);
            self.pass(softmax, row, block, StatisticsPass::Exact);
        }
        let Block { state, means, .. } = &mut self.blocks[block];
        for (mean, &sum) in means.iter_mut().zip(&state.sum) {
            *mean = if sum == 0.0 { 0.0 } else { *mean / sum };
        }
    }

    /// Goes through the blocks of keys for the maxima and sums of a block of queries.
    fn pass(&mut self, softmax: &'a BackwardSoftmax, row: usize, block: usize, pass: StatisticsPass) {
        let constant = self.classes.of_block(row).map_or(f32::NEG_INFINITY, largest_constant);
        // Maxima that are known tell it before; a constant that is not low weighs beside ordinary scores.
        let is_known = pass == StatisticsPass::Exact;
        let weighs = if is_known { self.weighs(constant, block) } else { weighs(constant, 0.0) };
        self.blocks[block].has_constants = weighs;
        self.classified(softmax, row, block, pass);
        if !weighs && constant > f32::NEG_INFINITY && self.weighs(constant, block) {
            // Sums depend on the order of their terms, so the tiles that were left out are no afterthought.
            let of = &mut self.blocks[block];
            (of.state, of.means, of.has_constants) = (SoftmaxState::new(), [0.0; QUERIES], true);
            self.classified(softmax, row, block, pass);
        }
    }

    /// Goes through the blocks of keys that are computed by their classes.
    fn classified(&mut self, softmax: &'a BackwardSoftmax, row: usize, block: usize, pass: StatisticsPass) {
        for key_block in 0..self.phase.key_blocks() {
            if self.is_computed(row, key_block, block) {
                self.statistics(softmax, row, key_block, block, pass);
            }
        }
    }

    /// True if a number that enters the SoftMax has a weight other than 0 in f32 for some query of the block.
    fn weighs(&self, number: f32, block: usize) -> bool {
        let queries = self.chain.operands.cursor.extent().columns;
        self.blocks[block].state.max[..queries].iter().any(|&max| weighs(number, max))
    }

    /// Adds a tile to the maxima and sums of a block of queries.
    fn statistics(
        &mut self,
        softmax: &BackwardSoftmax,
        row: usize,
        key_block: usize,
        block: usize,
        pass: StatisticsPass,
    ) {
        let tile = self.logits(softmax, row, key_block, block);
        let kernels = &self.phase.kernels;
        let gradients = softmax.gradients.map(|place| self.at(place).cast::<f32>().cast_const());
        let Block { state, means, .. } = &mut self.blocks[block];
        // SAFETY: the tiles are scratch of this thread; the plan's level was available when the plan was
        // made.
        unsafe {
            match pass {
                StatisticsPass::Maxima => return kernels.maxima(tile, state),
                StatisticsPass::Exact => kernels.exponentials(tile, state),
                StatisticsPass::Online => {
                    if kernels.accumulate(tile, state) {
                        means.iter_mut().zip(&state.factor).for_each(|(mean, factor)| *mean *= factor);
                    }
                }
            }
            if let Some(gradients) = gradients {
                kernels.weighted_sums(tile, gradients, means);
            }
        }
    }

    /// The tile of logits, in f32; the tile of dP is computed as well.
    fn logits(&mut self, softmax: &BackwardSoftmax, row: usize, key_block: usize, block: usize) -> ScoreTile {
        self.go_to(row, key_block, block);
        self.chain.run_here();
        let operands = &mut self.chain.operands;
        operands.widen(TileChain::LOGITS);
        operands.widen(TileChain::DP);
        if !softmax.makes_logits {
            operands.compute_scores();
        }
        if softmax.gradients.is_some() && !softmax.makes_gradients {
            operands.compute_gradients();
        }
        operands.tile(self.phase.weights)
    }

    /// Adds the products of a tile to dQ, dK and dV.
    fn tile(&mut self, row: usize, key_block: usize, block: usize) {
        let phase = self.phase;
        let kernels = &phase.kernels;
        let weights = match &phase.softmax {
            None => {
                self.go_to(row, key_block, block);
                self.chain.run_here();
                let results = [TileChain::LOGITS, TileChain::P, TileChain::DS, TileChain::MASK];
                results.into_iter().for_each(|slot| self.chain.operands.widen(slot));
                self.chain.operands.tile(phase.weights)
            }
            Some(softmax) => self.weights(softmax, row, key_block, block),
        };
        let operands = &self.chain.operands;
        let place = |place: usize| operands.scratch.wrapping_add(place).cast::<f32>();
        for tile in
            [phase.p, phase.ds, phase.mask].into_iter().flatten().filter(|&tile| tile != phase.weights)
        {
            // SAFETY: the tiles are scratch of this thread; the plan's level was available when the plan was
            // made.
            unsafe { kernels.clear_masked(weights, place(tile)) };
        }
        let layout = &phase.layout;
        let at_row = |sums: usize, row: usize| {
            let first = key_block * phase.chain.nest.tile.rows * row;
            operands.scratch.wrapping_add(sums + first).cast::<f32>()
        };
        let of = &self.blocks[block];
        if let Some(p) = phase.p {
            let (to, columns) = (at_row(layout.value_sums, layout.value_row), phase.value_columns);
            let tile = ScoreTile { at: place(p), ..weights };
            let right = (O::DvGradients, of.finite_gradients);
            operands.add_rows(tile, right, columns, to, layout.value_row);
        }
        let Some(ds) = phase.ds else { return };
        let tile = ScoreTile { at: place(ds), ..weights };
        if phase.results[1].is_some() {
            let (to, columns) = (at_row(layout.key_sums, layout.key_row), phase.depth);
            operands.add_rows(tile, (O::DkQueries, of.finite_queries), columns, to, layout.key_row);
        }
        if phase.results[0].is_some() {
            // SAFETY: the byte of the block was written.
            let is_finite = unsafe { *operands.scratch.add(layout.finite_keys + key_block) } != 0;
            operands.add_keys(tile, is_finite);
        }
    }

    /// The tile of P; dS follows in its tile.
    fn weights(
        &mut self,
        softmax: &BackwardSoftmax,
        row: usize,
        key_block: usize,
        block: usize,
    ) -> ScoreTile {
        let tile = self.logits(softmax, row, key_block, block);
        let phase = self.phase;
        let kernels = &phase.kernels;
        let of = &self.blocks[block];
        // SAFETY: all tiles are scratch of this thread; the plan's level was available when the plan was
        // made.
        unsafe {
            kernels.weights(tile, &of.state);
            if let Some(gradients) = softmax.gradients {
                kernels.softmax_gradients(tile, self.at(gradients).cast(), &of.means);
            }
        }
        let (Some(program), Some(interpreter)) = (&softmax.behind, &mut self.behind) else { return tile };
        let operands = &mut self.chain.operands;
        // The products that its steps may read.
        if program.slots[TileChain::GRADIENTS].is_some_and(|slot| slot.tile == phase.layout.gradients)
            && softmax.gradients.is_none()
        {
            operands.compute_gradients();
        }
        let supplied = [TileChain::SCORES, TileChain::GRADIENTS];
        let scores = program.slots[TileChain::LOGITS].filter(|slot| slot.tile == phase.layout.scores);
        if scores.is_some() {
            operands.compute_scores();
        }
        let given = supplied.into_iter().filter_map(|slot| program.slots[slot]).chain(scores);
        for slot in given {
            operands.round(slot.tile, slot.typed);
        }
        interpreter.go_to(row * phase.key_blocks() + key_block);
        interpreter.run_here();
        for slot in [TileChain::P, TileChain::DS, TileChain::MASK] {
            if let Some(slot) = program.slots[slot] {
                operands.widen_tile(slot.tile, slot.typed);
            }
        }
        tile
    }
}
