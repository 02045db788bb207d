//! Attention on 8-bit integers: scores and sums of values are products of the integers themselves, and the
//! weights between them become integers once the sums of all keys are known.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

use super::{Pass, QueryBlock, ScoreOperands};
use crate::execute::attention::score_chain::factor_number;
use crate::kernels::attention::{QUERIES, QuadKernels, QuadSums, ScoreTile, WeightRounding};
use crate::kernels::gemm::Matrix;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{AttentionOperand, IntegerProducts, IntegerScratch};

impl QueryBlock<'_> {
    /// Computes the block: the exponentials of all keys, then the sums of values by integer weights.
    pub(super) fn weigh_integers(&mut self, task: usize, integers: &IntegerProducts, queries: usize) {
        let phase = self.phase;
        let (Some(stored), Some(scratch)) = (phase.layout.stored_weights, phase.layout.integers) else {
            return;
        };
        self.pass(task, Pass::Sums);
        let mut rounding = self.rounding(integers, queries);
        let inverse = rounding.factors;
        // Weights of 0 add nothing, and where all weights of a query are NaN, none of them is 0.
        let zero_adds_nothing = integers.rounding.of_nan == integers.rounding.zero
            || rounding.known.count_ones() as usize == queries;
        let sums = self.at(scratch.query_sums).cast::<i32>();
        // SAFETY: the scratch has room for all sums.
        unsafe {
            sums.write_bytes(0, QUERIES);
            self.at(scratch.value_sums).write_bytes(0, QuadKernels::value_row(phase.value_columns));
        }
        let mut keys = 0;
        for key_block in 0..phase.key_blocks() {
            let has_weight = self.has_weight(task, key_block);
            if !has_weight && zero_adds_nothing {
                continue;
            }
            let tile = self.stored_tile(task, stored, key_block);
            // SAFETY: the scratch has room for a tile and for the maxima of each block of keys, which are
            // there if the tile has weight, and for a tile of quads; the machine was found to have the
            // kernels.
            unsafe {
                match has_weight {
                    true => {
                        let maxima = std::slice::from_raw_parts(self.maxima(&scratch, key_block), queries);
                        for (query, own) in maxima.iter().enumerate() {
                            let max = self.state.max[query];
                            let factor = if *own == max { 1.0 } else { (own - max).exp() };
                            rounding.factors[query] = inverse[query] * factor;
                        }
                    }
                    false => tile.at.write_bytes(0, tile.keys * QUERIES),
                }
                integers.quads.round_weights(tile, &rounding, self.at(phase.layout.packed_weights), sums);
            }
            self.add_values(tile, Pass::Weights);
            keys += tile.keys;
        }
        if self.has_sums {
            self.scale_result(integers, &scratch, keys);
        }
    }

    /// How weights are rounded, once the sums are known: the factors turn exponentials under the final maxima
    /// into multiples of the scale.
    fn rounding(&self, integers: &IntegerProducts, queries: usize) -> WeightRounding {
        let of = &integers.rounding;
        let mut rounding =
            WeightRounding { factors: [0.0; QUERIES], zero: f32::from(of.zero), known: 0, of_nan: of.of_nan };
        for query in 0..queries {
            let sum = self.state.sum[query];
            // A query without keys has weights of 0, or of NaN.
            let is_known = sum > 0.0 || sum == 0.0 && self.phase.inf_as_zero;
            rounding.known |= u64::from(is_known) << query;
            rounding.factors[query] = if sum > 0.0 { 1.0 / (sum * of.scale) } else { 0.0 };
        }
        rounding
    }

    /// The maxima with which exponentials of a block of keys were computed.
    fn maxima(&self, scratch: &IntegerScratch, key_block: usize) -> *mut f32 {
        self.at(scratch.maxima).cast::<f32>().wrapping_add(key_block * QUERIES)
    }

    /// Adds the exponentials of a tile to the sums, and keeps them and their maxima if the plan has room for
    /// them.
    pub(super) fn sum_up(&mut self, key_block: usize, tile: ScoreTile) {
        let layout = &self.phase.layout;
        let stored = layout.stored_weights.map(|stored| self.stored_at(stored, key_block));
        let kernels = &self.phase.kernels;
        // SAFETY: the tile is scratch of this thread, as is a tile and the maxima for each block of keys; the
        // plan's level was available when the plan was made.
        unsafe {
            kernels.accumulate_to(tile, stored.unwrap_or(tile.at), &mut self.state);
            if let Some(scratch) = &layout.integers {
                self.state.max.as_ptr().copy_to_nonoverlapping(self.maxima(scratch, key_block), QUERIES);
            }
        }
    }

    /// Turns sums of integers over so many keys into numbers.
    fn scale_result(&self, integers: &IntegerProducts, scratch: &IntegerScratch, keys: usize) {
        let (zeros, rows) = (integers.zeros, self.phase.value_columns);
        let operands = &self.logits.operands;
        let tile = ScoreTile { at: self.sums(), keys: rows, queries: self.queries() };
        let sums = RowSums { at: self.at(scratch.value_sums).cast(), zero: zeros.weights };
        // SAFETY: the sums of the block, of its weights and of its values are scratch of this thread, and
        // were written.
        unsafe {
            operands.note_subtracted(scratch, keys, [zeros.values, zeros.weights]);
            operands.scale(integers, scratch, tile, sums, integers.result_scale as f32);
        }
    }
}

/// The sums of the integers of each row of a tile, and the zero point that they are multiplied by.
#[derive(Clone, Copy)]
struct RowSums {
    at: *const i32,
    zero: i32,
}

impl ScoreOperands<'_> {
    /// Packs the queries of the present block as a panel, and notes the scaling of their scores.
    pub(super) fn pack_integer_queries(&self, integers: &IntegerProducts, queries: usize) {
        let (phase, layout) = (self.phase, &self.phase.layout);
        let Some(scratch) = &layout.integers else { return };
        let (_, tokens) = self.given(AttentionOperand::Queries);
        let sums: *mut i32 = self.place(scratch.query_sums).cast();
        let mut scale = integers.score_scale;
        // SAFETY: the queries of the block and the factor can be read; the scratch has room for the panel,
        // for the sums of its columns, for the scale and for the kernel.
        unsafe {
            sums.write_bytes(0, QUERIES);
            if let Some(factor) = &phase.factor {
                let number = f64::from(factor_number(factor, self.cursor.at(factor.number)));
                scale = if factor.divides { scale / number } else { scale * number };
            }
            self.place(scratch.scale).cast::<f32>().write(scale as f32);
            let (extent, to) = (Extent { rows: phase.depth, columns: queries }, self.place(layout.queries));
            phase.queries.run_with_sums(extent, tokens.transposed(), to, sums, self.place(layout.pack));
            self.note_subtracted(scratch, phase.depth, [integers.zeros.keys, integers.zeros.queries]);
        }
    }

    /// Notes what is subtracted from the sums of each query: the zero point of the left operand, times the
    /// sum of the query's integers, of which there are so many and which have a zero point themselves.
    ///
    /// # Safety
    ///
    /// The sums of the integers of [`QUERIES`] were written.
    unsafe fn note_subtracted(&self, scratch: &IntegerScratch, terms: usize, [of_left, of_query]: [i32; 2]) {
        let of_terms = (terms as i32).wrapping_mul(of_query);
        let sums = self.place(scratch.query_sums).cast::<i32>();
        let to = self.place(scratch.subtracted).cast::<i32>();
        for query in 0..QUERIES {
            // SAFETY: as the caller promises; the scratch has room for a number of each query.
            unsafe {
                let sum = sums.add(query).read().wrapping_sub(of_terms);
                to.add(query).write(sum.wrapping_mul(of_left));
            }
        }
    }

    /// Turns a tile of sums into numbers.
    ///
    /// # Safety
    ///
    /// The sums can be written and those of the rows read, and what is subtracted was noted.
    unsafe fn scale(
        &self,
        integers: &IntegerProducts,
        scratch: &IntegerScratch,
        tile: ScoreTile,
        rows: RowSums,
        scale: f32,
    ) {
        let RowSums { at: row_sums, zero } = rows;
        let subtracted = self.place(scratch.subtracted).cast();
        // SAFETY: as the caller promises.
        unsafe { integers.quads.scale(&QuadSums { tile, subtracted, row_sums, zero, scale }) };
    }

    /// The keys of the present tile, as the product reads them.
    pub(super) fn integer_keys(&self, integers: &IntegerProducts, all: Extent) -> Matrix {
        let layout = &self.phase.layout;
        let (_, tokens) = self.given(AttentionOperand::Keys);
        let to = Target { at: self.place(layout.keys), row_stride: layout.key_row as isize };
        let Some(pack) = &integers.keys else { return tokens };
        let sums = match layout.integers {
            Some(scratch) if integers.zeros.queries != 0 => self.place(scratch.key_sums).cast(),
            _ => std::ptr::null_mut(),
        };
        // SAFETY: the keys of the block can be read; the scratch has room for a block of them, for their sums
        // and for the kernel.
        unsafe { pack.run(all, tokens, to, sums, false, self.place(layout.pack)) };
        Matrix { at: to.at, row_stride: to.row_stride, col_stride: pack.written_width() as isize }
    }

    /// Turns the sums of the present tile into scores.
    pub(super) fn scale_scores(&self, integers: &IntegerProducts, at: *mut f32) {
        let Some(scratch) = &self.phase.layout.integers else { return };
        let Extent { rows: keys, columns: queries } = self.cursor.extent();
        let rows = RowSums { at: self.place(scratch.key_sums).cast(), zero: integers.zeros.queries };
        // SAFETY: the tile is scratch of this thread and was written, and the queries of the block were
        // packed.
        unsafe {
            let scale = self.place(scratch.scale).cast::<f32>().read();
            self.scale(integers, scratch, ScoreTile { at, keys, queries }, rows, scale);
        }
    }

    /// The values of the present tile as quads.
    pub(super) fn value_quads(&self, integers: &IntegerProducts, all: Extent) -> Matrix {
        let layout = &self.phase.layout;
        let (_, Matrix { at, row_stride, .. }) = self.given(AttentionOperand::Values);
        let to = self.place(layout.packed_values);
        if let Some(scratch) = &layout.integers {
            let sums = self.place(scratch.value_sums).cast();
            // SAFETY: the values of the block can be read, which lie next to each other; the scratch has room
            // for a block of quads and for the sums.
            unsafe { integers.quads.pack_values(all, Source { at, row_stride }, to, sums) };
        }
        QuadKernels::packed(to, all.columns)
    }
}
