//! Few queries of sequences that follow each other: piece by piece of the keys that a list names.
#![allow(unsafe_code, reason = "logits and partial results are memory of the execution")]

use smallvec::SmallVec;

use super::part::{GroupPart, GroupPartState};
use super::{FloatRows, QueryGroup};
use crate::plan::{DECODE_ROWS, KeyRange, RaggedBlock};

/// The parts of a group.
type GroupParts<'a> = SmallVec<[GroupPart<'a>; DECODE_ROWS]>;

impl<'a> QueryGroup<'a> {
    /// Computes a piece at a place, and stores the result if it is all of its block.
    pub(super) fn run_piece(&mut self, place: usize, piece: &RaggedBlock, ranges: &'a [KeyRange]) {
        let parts: GroupParts<'a> = GroupPart::of_block(self.phase, place, piece, ranges).collect();
        for &part in &parts {
            self.begin_part(part);
            match piece.pieces {
                1 => self.begin_with_sinks(),
                _ => self.begin(self.state.max),
            }
        }
        let own = self.at(self.phase.layout.partial).cast::<f32>();
        for chunk in 0..parts[0].chunks() {
            for &part in &parts {
                self.select(part);
                let taken = self.varying(chunk);
                self.compute(chunk, &taken, own, false);
                self.take(own);
            }
        }
        for &part in &parts {
            self.select(part);
            match piece.pieces {
                1 => self.finish(),
                _ => self.keep(piece),
            }
        }
    }

    /// Merges the pieces of a block at a place, and stores the result.
    pub(super) fn merge_pieces(&mut self, place: usize, pieces: &[RaggedBlock], ranges: &'a [KeyRange]) {
        let end_key = pieces[pieces.len() - 1].end_key;
        let block = RaggedBlock { end_key, ..pieces[0] };
        for part in GroupPart::of_block(self.phase, place, &block, ranges) {
            self.begin_part(part);
            self.begin_with_sinks();
            for piece in pieces {
                if let Some(kept) = self.kept(piece) {
                    self.take(kept);
                }
            }
            self.finish();
        }
    }

    /// Goes to a part of which nothing is computed.
    fn begin_part(&mut self, part: GroupPart<'a>) {
        self.select(part);
        self.state = GroupPartState::default();
    }

    /// Goes to a part.
    fn select(&mut self, part: GroupPart<'a>) {
        self.states[self.part.index] = self.state;
        (self.part, self.state) = (part, self.states[part.index]);
    }

    /// The partial result of the present part for a piece of a block that has several.
    fn kept(&self, piece: &RaggedBlock) -> Option<*mut f32> {
        let (phase, GroupPart { first, index, .. }) = (self.phase, self.part);
        let slot = first / phase.repeats * phase.partials() + piece.slot as usize * phase.most_parts();
        self.partials.map(|partials| partials.wrapping_add((slot + index) * phase.partial()))
    }

    /// Keeps the sums of the present part for the merge.
    fn keep(&mut self, piece: &RaggedBlock) {
        let Some(to) = self.kept(piece) else { return };
        let (rows, row, sums) = (self.part.rows(), self.phase.value_row(), self.sums());
        let numbers = to.wrapping_add(rows * row);
        // SAFETY: the partial result is this thread's, with room for a row, a largest score and a sum of each
        // query. The sums have been written.
        unsafe {
            to.copy_from_nonoverlapping(sums.at, rows * row);
            numbers.copy_from_nonoverlapping(self.state.max.as_ptr(), rows);
            numbers.add(rows).copy_from_nonoverlapping(self.state.sum.as_ptr(), rows);
        }
    }

    /// Masks the logits of keys from `first` on that their queries do not see.
    pub(super) fn mask_ranges(&self, first: usize, logits: FloatRows, keys: usize) {
        for (query, range) in self.part.ranges.iter().enumerate() {
            let within = |key: i32| (i64::from(key) - first as i64).clamp(0, keys as i64) as usize;
            let (start, end) = match range.is_empty() {
                true => (0, 0),
                false => (within(range.first), within(range.end)),
            };
            for repeat in 0..self.part.repeats {
                let at = logits.at.wrapping_add((repeat * self.part.queries + query) * logits.row);
                // SAFETY: the row is scratch of this thread, with room for the keys.
                let row = unsafe { std::slice::from_raw_parts_mut(at, keys) };
                row[..start].fill(f32::NEG_INFINITY);
                row[end..].fill(f32::NEG_INFINITY);
            }
        }
    }
}
