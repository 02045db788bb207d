//! The values of keys that hardly weigh, which are read late or never.
//!
//! A mask that adds a finite number leaves nothing out before the scores are there, and to bound the scores
//! is to read all keys. The values are as much memory, and wait for the scores.
#![allow(unsafe_code, reason = "weights and partial results are read from memory of the execution")]

use std::slice;

use super::QueryGroup;
use crate::execute::attention::classes::weighs;
use crate::execute::attention::tile_class::LOW;
use crate::plan::{CHUNK, CLASS_TILE};

impl QueryGroup<'_> {
    /// Those of the tiles of a chunk that have a weight other than 0 for a query.
    pub(super) fn weighing(&self, chunk: usize, tiles: u32) -> u32 {
        let (keys, weights) = (self.keys(chunk), self.floats(self.phase.layout.logits, CHUNK));
        let weighs = |tile: usize, row: usize| {
            let keys = tile * CLASS_TILE..keys.min((tile + 1) * CLASS_TILE);
            let at = weights.at.wrapping_add(row * CHUNK + keys.start);
            // SAFETY: the row has the weights of the chunk, which nobody writes.
            let weights = unsafe { slice::from_raw_parts(at, keys.len()) };
            // NaN is not 0.
            weights.iter().any(|&weight| weight != 0.0)
        };
        let of_chunk = (0..keys.div_ceil(CLASS_TILE)).filter(|tile| tiles >> tile & 1 == 1);
        of_chunk.filter(|&tile| (0..weights.rows).any(|row| weighs(tile, row))).map(|tile| 1 << tile).sum()
    }

    /// Puts the values of a chunk off if all its scores are low: the sums of exponentials in its partial
    /// result become negative.
    pub(super) fn puts_off(&self, partial: *mut f32) -> bool {
        let rows = self.part.rows();
        let numbers = partial.wrapping_add(rows * self.phase.value_row());
        // SAFETY: the partial result is this thread's, and has a largest score and a sum for each query.
        let numbers = unsafe { slice::from_raw_parts_mut(numbers, 2 * rows) };
        let (max, sums) = numbers.split_at_mut(rows);
        // A sum is NaN if a score is.
        let is_low = |(&max, &sum): (&f32, &f32)| sum == 0.0 || sum > 0.0 && f64::from(max) < LOW;
        let puts_off = max.iter().zip(&*sums).all(is_low) && sums.iter().any(|&sum| sum > 0.0);
        if puts_off {
            sums.iter_mut().for_each(|sum| *sum = -*sum);
        }
        puts_off
    }

    /// Adds the partial result of a chunk under the maxima of all chunks. Values that were put off are read
    /// now, unless their keys weigh nothing.
    pub(super) fn take_chunk(&mut self, chunk: usize) {
        let (rows, partial) = (self.part.rows(), self.partial(chunk));
        let numbers = partial.cast_const().wrapping_add(rows * self.phase.value_row());
        // SAFETY: an earlier task has written the partial result, and nobody writes to it any more.
        let numbers = unsafe { slice::from_raw_parts(numbers, 2 * rows) };
        let (max, sums) = numbers.split_at(rows);
        if !sums.iter().any(|&sum| sum < 0.0) {
            return self.take(partial);
        }
        let of_rows = max.iter().zip(sums).zip(self.state.max);
        if { of_rows }.any(|((&number, &sum), max)| sum < 0.0 && weighs(number, max)) {
            let (taken, own) = (self.varying(chunk), self.at(self.phase.layout.partial).cast());
            self.compute(chunk, &taken, own, false);
            self.take(own);
        }
    }
}
