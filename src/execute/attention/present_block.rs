//! A block of queries that begins where a sequence does, while it is computed.

use std::ops::Range;

use crate::kernels::attention::QUERIES;
use crate::plan::{CLASS_PART, KEYS, KeyRange, MaskedParts, RaggedBlock};

/// The block that is computed, and its masks.
pub(super) struct PresentBlock<'a> {
    pub(super) keys: Range<usize>,
    pub(super) ranges: &'a [KeyRange],
    /// For each part of the queries the keys that all of them see, and those that one of them sees.
    parts: [[KeyRange; 2]; QUERIES / CLASS_PART],
    /// The tile of keys; none unless some of its scores are masked.
    pub(super) masked: Option<Range<usize>>,
}

impl<'a> PresentBlock<'a> {
    pub(super) fn new(block: &RaggedBlock, ranges: &'a [KeyRange]) -> Self {
        let mut parts = [[KeyRange::default(); 2]; QUERIES / CLASS_PART];
        for (part, of) in parts.iter_mut().zip(ranges.chunks(CLASS_PART)) {
            let mut all = KeyRange { first: i32::MIN, end: i32::MAX };
            let mut any = KeyRange { first: i32::MAX, end: i32::MIN };
            for range in of {
                all = KeyRange { first: all.first.max(range.first), end: all.end.min(range.end) };
                any = KeyRange { first: any.first.min(range.first), end: any.end.max(range.end) };
            }
            *part = [all, any];
        }
        Self { keys: block.keys(), ranges, parts, masked: None }
    }

    /// True if every query sees every key of a tile.
    pub(super) fn is_full(&self, keys: &Range<usize>) -> bool {
        let of_queries = self.ranges.len().div_ceil(CLASS_PART);
        let (first, end) = (keys.start as i32, keys.end as i32);
        self.parts[..of_queries].iter().all(|[all, _]| all.first <= first && all.end >= end)
    }

    /// The parts of a tile in which no query sees a key, and those beyond its ends; none unless there is one
    /// of the first kind.
    pub(super) fn masked_parts(&self, keys: &Range<usize>) -> MaskedParts {
        let (mut masked, mut is_masked) = (MaskedParts::default(), false);
        let of_queries = self.ranges.len().div_ceil(CLASS_PART);
        for (part, [_, any]) in self.parts.iter().enumerate() {
            for key in (0..KEYS).step_by(CLASS_PART) {
                let first = keys.start + key;
                let end = keys.end.min(first + CLASS_PART);
                let is_beyond = part >= of_queries || first >= end;
                let is_seen = any.first < end as i32 && any.end > first as i32;
                if is_beyond || !is_seen {
                    let query = part * CLASS_PART;
                    masked.add(&(key..key + CLASS_PART), &(query..query + CLASS_PART));
                    is_masked |= !is_beyond;
                }
            }
        }
        if is_masked { masked } else { MaskedParts::default() }
    }
}
