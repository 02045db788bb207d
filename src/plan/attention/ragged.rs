//! Blocks of queries that begin where sequences do, for attention whose mask gives each query one range of
//! keys: sequences that follow each other, with causal masks and windows in them.
//!
//! Tiles of a grid straddle sequences, so that most of a tile is masked if sequences are short. A phase
//! before the attention reads the range of each query and writes a list of blocks: each has queries whose
//! ranges overlap, and its tiles of keys begin with the first key of one of them. The list takes a size in
//! proportion to the queries. It also has the work of all blocks so far, by which threads share the blocks.

use std::ops::Range;

use super::tile_class::{CLASS_PART, ClassifyPhase, MaskNode};
use crate::kernels::attention::QUERIES;
use crate::plan::access::Base;

/// Queries, and keys, within which a block takes queries whose ranges do not overlap: products have vectors
/// of as many queries anyway.
const SHARED_PART: usize = CLASS_PART;

/// Finds the blocks of queries, and writes them to a list in an internal buffer.
#[derive(Debug)]
pub(crate) struct RaggedPhase {
    /// The mask. Its table is written for those who ask for the classes of tiles; an execution has none.
    pub(crate) mask: ClassifyPhase,
    /// The computation of the range of a query, each node behind its operands, and the nodes of the first key
    /// and of the one behind the last.
    pub(crate) nodes: Vec<MaskNode>,
    pub(crate) range: [usize; 2],
    pub(crate) list: BlockList,
}

/// A list of blocks in an internal buffer: its head, the blocks, and the range of keys of each query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockList {
    pub(crate) buffer: Base,
    /// Number of queries, and of keys.
    pub(crate) queries: usize,
    pub(crate) keys: usize,
}

/// How a phase of attention goes through the blocks of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RaggedTiles {
    pub(crate) list: BlockList,
    /// True if the products leave out the masked parts of tiles.
    pub(crate) divides: bool,
}

/// The head of a list.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ListHead {
    pub(crate) blocks: usize,
    /// The work of all blocks.
    pub(crate) work: u64,
}

/// A block of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct RaggedBlock {
    pub(crate) first_query: u32,
    pub(crate) queries: u32,
    /// The keys that a query of the block sees, and those between them; none if no query sees any.
    pub(crate) first_key: u32,
    pub(crate) end_key: u32,
    /// The work of the blocks before.
    pub(crate) work_before: u64,
}

/// The keys that a query sees; none if the end is no larger than the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct KeyRange {
    pub(crate) first: i32,
    pub(crate) end: i32,
}

impl KeyRange {
    pub(crate) fn is_empty(self) -> bool {
        self.first >= self.end
    }
}

impl RaggedPhase {
    /// The bases of the ranges.
    pub(crate) fn reads(&self) -> impl Iterator<Item = Base> {
        self.mask.reads()
    }
}

impl BlockList {
    /// Bytes from the start to the blocks, and to the ranges of queries.
    pub(crate) const BLOCKS: usize = size_of::<ListHead>();

    pub(crate) fn ranges(queries: usize) -> usize {
        Self::BLOCKS + queries.saturating_mul(size_of::<RaggedBlock>())
    }

    /// Bytes of the list of so many queries.
    pub(crate) fn bytes(queries: usize) -> usize {
        Self::ranges(queries).saturating_add(queries.saturating_mul(size_of::<KeyRange>()))
    }
}

/// Cuts queries into blocks, query by query.
#[derive(Debug, Default)]
pub(crate) struct BlockCutter {
    block: RaggedBlock,
    work: u64,
}

impl BlockCutter {
    /// Adds the next query, and gives the block that ends before it.
    pub(crate) fn add(&mut self, range: KeyRange) -> Option<RaggedBlock> {
        let (first, end) = match range.is_empty() {
            true => (0, 0),
            false => (range.first as u32, range.end as u32),
        };
        let RaggedBlock { first_query, queries, first_key, end_key, .. } = self.block;
        let joined = (first_key.min(first), end_key.max(end));
        let fits = match (first_key == end_key, first == end) {
            (true, true) => true,
            (false, false) => {
                let overlaps = first < end_key && first_key < end;
                let part = SHARED_PART as u32;
                overlaps || queries < part && joined.1 - joined.0 <= part
            }
            _ => false,
        };
        if queries == 0 || fits && (queries as usize) < QUERIES {
            (self.block.first_key, self.block.end_key) = if queries == 0 { (first, end) } else { joined };
            self.block.queries += 1;
            return None;
        }
        let ended = self.ended();
        self.block = RaggedBlock {
            first_query: first_query + queries,
            queries: 1,
            first_key: first,
            end_key: end,
            work_before: self.work,
        };
        Some(ended)
    }

    /// The last block; none without queries.
    pub(crate) fn last(&mut self) -> Option<RaggedBlock> {
        (self.block.queries > 0).then(|| self.ended())
    }

    /// The work of all blocks so far.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    fn ended(&mut self) -> RaggedBlock {
        self.work += self.block.work();
        self.block
    }
}

impl RaggedBlock {
    /// The keys of the block.
    pub(crate) fn keys(&self) -> Range<usize> {
        self.first_key as usize..self.end_key as usize
    }

    /// About the time of a block, in pairs of a query and a key: vectors of queries are whole, and each block
    /// has some work of its own.
    fn work(&self) -> u64 {
        let queries = (self.queries as usize).next_multiple_of(CLASS_PART) as u64;
        queries * u64::from(self.end_key - self.first_key) + (CLASS_PART * CLASS_PART) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The queries and the keys of the blocks of queries with these ranges.
    fn blocks(ranges: &[(i32, i32)]) -> Vec<(Range<u32>, Range<u32>)> {
        let mut cutter = BlockCutter::default();
        let mut blocks: Vec<RaggedBlock> =
            ranges.iter().filter_map(|&(first, end)| cutter.add(KeyRange { first, end })).collect();
        blocks.extend(cutter.last());
        let mut work = 0;
        for block in &blocks {
            assert_eq!(block.work_before, work, "{block:?}");
            work += block.work();
        }
        assert_eq!(cutter.work(), work);
        let of = |block: &RaggedBlock| {
            (block.first_query..block.first_query + block.queries, block.first_key..block.end_key)
        };
        blocks.iter().map(of).collect()
    }

    #[test]
    fn blocks_begin_with_sequences() {
        let causal = |first: i32, count: i32| (0..count).map(move |at| (first, first + at + 1));
        let two: Vec<(i32, i32)> = causal(0, 70).chain(causal(70, 30)).collect();
        assert_eq!(blocks(&two), [(0..64, 0..64), (64..70, 0..70), (70..100, 70..100)]);
        assert!(blocks(&[]).is_empty());
        // Queries of no sequence, in front, between and behind.
        let none = [(0, 0), (5, 3), (0, 40), (0, 40), (7, 7), (40, 90), (0, 0)];
        let expected = [(0..2, 0..0), (2..4, 0..40), (4..5, 0..0), (5..6, 40..90), (6..7, 0..0)];
        assert_eq!(blocks(&none), expected);
    }

    #[test]
    fn short_sequences_share_a_block_as_far_as_vectors_go() {
        let single: Vec<(i32, i32)> = (0..20).map(|at| (at, at + 1)).collect();
        assert_eq!(blocks(&single), [(0..16, 0..16), (16..20, 16..20)]);
        assert_eq!(blocks(&[(0, 16), (16, 17)]), [(0..1, 0..16), (1..2, 16..17)]);
    }
}
