//! The sums over all chunks of a group of queries: partial results are merged in the order of the keys.
#![allow(unsafe_code, reason = "partial results are read from memory of the execution")]

use super::part::GroupPartState;
use super::{FloatRows, QueryGroup, Taken};
use crate::execute::attention::score_tile::convert;
use crate::execute::attention::statistics::{count_sinks, read_sinks, sink_maximum, store_stats};
use crate::kernels::attention::statistic;
use crate::kernels::floats::canonical;
use crate::kernels::{Extent, Source, Target};
use crate::plan::{CHUNK, DECODE_ROWS, largest_constant};

impl QueryGroup<'_> {
    /// Merges the partial results, in the order of the chunks, and stores the result.
    pub(super) fn merge(&mut self) {
        let phase = self.phase;
        let (rows, chunks) = (self.part.rows(), self.part.chunks());
        self.begin_with_sinks();
        for chunk in 0..chunks {
            let max = self.partial(chunk).wrapping_add(rows * phase.value_row());
            for row in 0..rows {
                // SAFETY: an earlier task has written the partial result of the chunk.
                self.state.max[row] = self.state.max[row].max(unsafe { max.add(row).read() });
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
        self.finish();
    }

    /// Stores the result, from sums that are computed once more if they are not finite.
    pub(super) fn finish(&mut self) {
        if !self.is_finite() {
            // A weight of 0 times a value that is not finite is NaN, so keys of weight 0 are skipped.
            self.begin(self.state.max);
            for chunk in 0..self.part.chunks() {
                let taken = self.varying(chunk);
                self.compute_exactly(chunk, &taken);
            }
            self.with_constants(Self::compute_exactly);
        }
        self.store();
    }

    /// Starts the sums of all chunks with the sinks.
    pub(super) fn begin_with_sinks(&mut self) {
        self.read_sinks();
        self.begin(self.state.sinks.map(sink_maximum));
    }

    /// Calls a function for each chunk with constant tiles that weigh for a query.
    fn with_constants(&mut self, mut work: impl FnMut(&mut Self, usize, &Taken)) {
        let has_constants =
            |classes: Option<&[u8]>| classes.is_some_and(|of| largest_constant(of) > f32::NEG_INFINITY);
        if !(0..self.part.repeats).any(|repeat| has_constants(self.classes(repeat))) {
            return;
        }
        // All constants are weighed against the maxima from before any of them counts.
        let max = self.state.max;
        for chunk in 0..self.part.chunks() {
            let taken = self.constant(chunk, &max);
            if taken.any != 0 {
                work(self, chunk, &taken);
            }
        }
    }

    pub(super) fn sums(&self) -> FloatRows {
        self.floats_of_part(self.phase.layout.result, self.phase.value_row())
    }

    /// Starts the sums of all chunks.
    pub(super) fn begin(&mut self, max: [f32; DECODE_ROWS]) {
        self.state.max = max;
        self.count_sinks();
        let sums = self.sums();
        // SAFETY: the scratch has room for the sums.
        unsafe { sums.at.write_bytes(0, sums.rows * sums.row) };
    }

    /// Reads the sinks of the group.
    fn read_sinks(&mut self) {
        let (phase, part) = (self.phase, self.part);
        for repeat in (0..part.repeats).filter(|_| phase.sinks.is_some()) {
            self.logits.go_to(part.tile(repeat, 0));
            let queries = repeat * part.queries..(repeat + 1) * part.queries;
            read_sinks(phase, &self.logits.operands.cursor, &mut self.state.sinks[queries]);
        }
    }

    /// Sets the sums of exponentials to those of the sinks under the maxima.
    fn count_sinks(&mut self) {
        let GroupPartState { max, sum, sinks, .. } = &mut self.state;
        count_sinks(sum, max, sinks);
    }

    /// A row of the sums of the values.
    pub(super) fn row(&mut self, row: usize) -> &mut [f32] {
        let sums = self.sums();
        // SAFETY: the row is scratch of this thread that [`begin`](Self::begin) has written, and nobody else
        // has a reference to it.
        unsafe { std::slice::from_raw_parts_mut(sums.at.wrapping_add(row * sums.row), sums.row) }
    }

    /// Adds the partial result of a chunk.
    pub(super) fn take(&mut self, partial: *const f32) {
        let (rows, row) = (self.part.rows(), self.phase.value_row());
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
            let before = self.state.max[index];
            let after = before.max(max);
            if after > before {
                let factor = distance_exp(before, after);
                self.row(index).iter_mut().for_each(|of_row| *of_row *= factor);
                self.state.sum[index] *= factor;
                self.state.max[index] = after;
            }
            let factor = distance_exp(max, after);
            self.row(index).iter_mut().zip(values).for_each(|(of_row, value)| *of_row += factor * value);
            self.state.sum[index] += factor * sum;
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
            self.state.sum[row] +=
                unsafe { self.phase.kernels.exponentials(at, keys, self.state.max[row], true) };
        }
        self.add_values(chunk, taken, self.sums(), true);
    }

    fn is_finite(&mut self) -> bool {
        let (rows, columns) = (self.part.rows(), self.phase.value_columns);
        (0..rows).all(|row| self.row(row)[..columns].iter().all(|number| number.is_finite()))
    }

    /// Divides the sums, and stores the result.
    fn store(&mut self) {
        let (phase, part) = (self.phase, self.part);
        let of_none = if phase.inf_as_zero { 0.0 } else { f32::NAN };
        for row in 0..part.rows() {
            let sum = self.state.sum[row];
            let inverse = 1.0 / sum;
            for number in self.row(row) {
                // The sum is 0 or NaN if it is not positive.
                *number = canonical(if sum > 0.0 { *number * inverse } else { sum + of_none });
            }
        }
        if phase.pieces.is_some() {
            let extent = Extent { rows: part.queries, columns: phase.value_columns };
            self.result.operands.cursor.clip(extent);
        }
        for repeat in 0..part.repeats {
            let first = repeat * part.queries;
            if phase.has_stats {
                self.logits.go_to(part.tile(repeat, 0));
                let of_rows = self.state.max.iter().zip(&self.state.sum).skip(first).take(part.queries);
                let stats = of_rows.map(|(&max, &sum)| statistic(max, sum, phase.inf_as_zero));
                store_stats(phase, &self.logits.operands.cursor, stats);
            }
            let row = phase.value_row();
            let from = self.sums().at.wrapping_add(first * row).cast::<u8>();
            self.result.operands.slots[0] = match phase.result.round {
                None => from,
                Some(round) => {
                    let extent = Extent { rows: part.queries, columns: phase.value_columns };
                    let to = Target { at: self.at(phase.layout.typed_result), row_stride: 2 * row as isize };
                    let from = Source { at: from, row_stride: 4 * row as isize };
                    // SAFETY: both are scratch of this thread, with room for the rows.
                    unsafe { convert(round, extent, from, to) };
                    to.at
                }
            };
            self.result.go_to(phase.result_tile(part.block(repeat)));
            self.result.run_here();
        }
    }
}

/// The exponential of the difference between a number and a larger one; 0 if the larger one is −∞.
fn distance_exp(number: f32, larger: f32) -> f32 {
    (f64::from(number) - f64::from(larger.max(f32::MIN))).exp() as f32
}
