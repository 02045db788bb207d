//! Blocks of queries that begin where sequences do: each goes through the keys that one of its queries sees,
//! and masks those that another one does not see by the range of each query.
#![allow(unsafe_code, reason = "tiles of scores are scratch of the thread")]

use super::{Pass, QueryBlock};
use crate::execute::attention::present_block::PresentBlock;
use crate::kernels::Extent;
use crate::kernels::attention::{QUERIES, ScoreTile};
use crate::plan::{AttentionPhase, KEYS, KeyRange, MaskedParts, RaggedBlock};

impl<'a> QueryBlock<'a> {
    /// Computes a block at a place.
    pub(super) fn run_ragged(&mut self, place: usize, block: &RaggedBlock, ranges: &'a [KeyRange]) {
        let phase = self.phase;
        let queries = block.queries as usize;
        let task = place * phase.queries_of_place() + block.first_query as usize;
        self.clip(0, queries);
        let columns = phase.value_columns;
        self.result.operands.cursor.clip(Extent { rows: queries, columns });
        self.ragged = Some(PresentBlock::new(block, ranges));
        self.compute(task);
    }

    /// Gives tiles so many keys and queries.
    fn clip(&mut self, keys: usize, queries: usize) {
        self.logits.operands.cursor.clip(Extent { rows: keys, columns: queries });
    }

    /// Goes through the tiles of keys of the present block.
    pub(super) fn ragged_pass(&mut self, task: usize, pass: Pass, divides: bool) {
        let Some(PresentBlock { keys: all, ranges, .. }) = &self.ragged else { return };
        let (all, queries) = (all.clone(), ranges.len());
        for first in all.clone().step_by(KEYS) {
            let keys = first..all.end.min(first + KEYS);
            self.clip(keys.len(), queries);
            self.go_to(task, first);
            let mut parts = MaskedParts::default();
            if let Some(block) = &mut self.ragged {
                let is_full = block.is_full(&keys);
                if !is_full && divides {
                    parts = block.masked_parts(&keys);
                }
                block.masked = (!is_full).then_some(keys);
            }
            self.leave_out(parts);
            self.tile(task, first, pass, true);
            self.leave_out(MaskedParts::default());
        }
    }

    /// Masks the scores of the present tile that lie outside of the ranges of their queries.
    pub(super) fn mask_ragged(&self, tile: ScoreTile) {
        let Some(PresentBlock { masked: Some(keys), ranges, .. }) = &self.ragged else { return };
        let mut bits = [0; QUERIES];
        for (bits, range) in bits.iter_mut().zip(*ranges) {
            let within = |key: i32| (i64::from(key) - keys.start as i64).clamp(0, KEYS as i64) as u32;
            // The bits of the keys before a number of them.
            let before = |count: u32| 1u64.checked_shl(count).map_or(u64::MAX, |bit| bit - 1);
            let (first, end) = (before(within(range.first)), before(within(range.end)));
            *bits = first | !end;
        }
        // SAFETY: the tile is scratch of this thread; the plan's level was available when the plan was made.
        unsafe { self.phase.kernels.mask_bits(tile, &mut bits, f32::NEG_INFINITY) };
    }
}

impl AttentionPhase {
    /// Blocks of queries of a place along the outer axes: queries, if blocks begin with any.
    fn queries_of_place(&self) -> usize {
        self.nest.loops[self.nest.column_blocks].extent
    }
}
