//! Weights that ops change between the SoftMax and the values: they need the sums of all keys first.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

use super::{Pass, QueryBlock};
use crate::execute::attention::score_tile::convert_tile;
use crate::kernels::Extent;
use crate::kernels::attention::{QUERIES, ScoreTile};
use crate::plan::{KEYS, TileClass, class, largest_constant};

/// Elements of a tile.
const TILE: usize = KEYS * QUERIES;

impl QueryBlock<'_> {
    /// Computes the block with the logits of all its keys in scratch from `stored` on, so that each is
    /// computed once. Exponentials take their place, then weights.
    pub(super) fn weigh_stored(&mut self, task: usize, stored: usize, queries: usize) {
        let key_blocks = self.phase.key_blocks();
        self.pass(task, Pass::Maxima);
        self.count_sinks();
        for key_block in 0..key_blocks {
            if !self.has_weight(task, key_block) {
                continue;
            }
            let tile = self.stored_tile(task, stored, key_block);
            // SAFETY: the pass over the maxima has stored the tile; the plan's level was available when the
            // plan was made.
            unsafe { self.phase.kernels.exponentials(tile, &mut self.state) };
        }
        self.add_stored_values(task, stored, Pass::Weights);
        if !self.is_finite(queries) {
            self.zero_sums();
            self.add_stored_values(task, stored, Pass::ExactWeights);
        }
    }

    /// Stores a tile of logits, if the plan has room for them.
    pub(super) fn store(&self, key_block: usize, tile: ScoreTile) {
        let Some(stored) = self.phase.layout.stored_weights else { return };
        let to = self.stored_at(stored, key_block);
        // SAFETY: the scratch has room for a tile of each block of keys, apart from the tile of logits.
        unsafe { tile.at.cast_const().copy_to_nonoverlapping(to, tile.keys * QUERIES) };
    }

    /// True if some weight of a tile may not be 0, once the maxima are known: these counted the tile.
    pub(super) fn has_weight(&self, task: usize, key_block: usize) -> bool {
        self.classes.of_block(task).is_none_or(|classes| match class(classes, key_block) {
            TileClass::Masked => false,
            TileClass::Constant => self.weighs(largest_constant(classes)),
            TileClass::Full | TileClass::Partial => true,
        })
    }

    /// The stored tile of a block of keys.
    pub(super) fn stored_at(&self, stored: usize, key_block: usize) -> *mut f32 {
        self.at(stored).cast::<f32>().wrapping_add(key_block * TILE)
    }

    /// Goes to a stored tile.
    pub(super) fn stored_tile(&mut self, task: usize, stored: usize, key_block: usize) -> ScoreTile {
        self.go_to(task, key_block);
        let Extent { rows: keys, columns: queries } = self.operands().cursor.extent();
        let at = self.stored_at(stored, key_block);
        ScoreTile { at, keys, queries }
    }

    /// Adds the values of all keys, from stored exponentials in the first pass, and from stored weights
    /// later.
    fn add_stored_values(&mut self, task: usize, stored: usize, pass: Pass) {
        let phase = self.phase;
        self.weights.iter_mut().for_each(|weights| weights.go_to(task * phase.key_blocks()));
        for key_block in 0..phase.key_blocks() {
            let tile = self.stored_tile(task, stored, key_block);
            let has_weight = self.has_weight(task, key_block);
            if pass == Pass::Weights {
                // SAFETY: the scratch has room for a tile of each block of keys; exponentials of a tile that
                // has weight are there. The plan's level was available when the plan was made.
                unsafe {
                    if !has_weight {
                        tile.at.write_bytes(0, tile.keys * QUERIES);
                    }
                    phase.kernels.divide(tile.at, tile.keys, tile.queries, &self.state, phase.inf_as_zero);
                }
            }
            let factors = self.factors(task, key_block, tile);
            // Ops on the weights may turn a weight of 0 into another number.
            if has_weight || !is_zero(factors) {
                self.add_values(factors, pass);
            }
        }
    }

    /// The factors of the values, from a tile of weights.
    pub(super) fn factors(&mut self, task: usize, key_block: usize, tile: ScoreTile) -> ScoreTile {
        let (phase, at) = (self.phase, self.logits.operands.scratch);
        let (Some(program), Some(interpreter)) = (&phase.weights, &mut self.weights) else { return tile };
        let extent = Extent { rows: tile.keys, columns: tile.queries };
        let (layout, [from_width, to_width]) = (&phase.layout, program.widths);
        let place = |place: usize| at.wrapping_add(place);
        // SAFETY: all tiles are scratch of this thread, and overlap only if they are the same.
        unsafe {
            let weights = tile.at.cast();
            match program.round {
                Some(round) => {
                    let to = (place(layout.typed_weights), from_width);
                    convert_tile(round, extent, (weights, 4), to);
                }
                None => interpreter.operands.slots[0] = weights,
            }
            interpreter.run(task * phase.key_blocks() + key_block);
            if let Some(widen) = program.widen {
                let from = (place(layout.typed_factors), to_width);
                convert_tile(widen, extent, from, (place(layout.factors), 4));
            }
        }
        ScoreTile { at: place(layout.factors).cast(), ..tile }
    }
}

/// True if all numbers of a tile of scratch are 0.
fn is_zero(tile: ScoreTile) -> bool {
    (0..tile.keys).all(|key| {
        let row = tile.at.wrapping_add(key * QUERIES);
        // SAFETY: the tile is scratch of this thread, and its columns of queries were written.
        let row = unsafe { std::slice::from_raw_parts(row, tile.queries) };
        row.iter().fold(0, |bits, number| bits | number.to_bits() << 1) == 0
    })
}
