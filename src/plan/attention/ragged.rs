//! Blocks of queries that begin where sequences do, for attention whose mask gives each query one range of
//! keys: sequences that follow each other, with causal masks and windows in them.
//!
//! Tiles of a grid straddle sequences, so that most of a tile is masked if sequences are short. A phase
//! before the attention reads the range of each query and writes a list of blocks: each has queries whose
//! ranges overlap, and its tiles of keys begin with the first key of one of them. The list takes a size in
//! proportion to the queries. It also has the work of all blocks so far, by which threads share the blocks.
//!
//! Blocks of few queries are on a list of their own, for the phase that reads every key once. Their keys are
//! cut into pieces, so that one long sequence keeps several threads busy.

use std::ops::Range;

use super::chunk::{CHUNK, DECODE_ROWS};
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

/// Lists of blocks in an internal buffer: their head, the blocks, the pieces of blocks of few queries, and
/// the range of keys of each query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockList {
    pub(crate) buffer: Base,
    /// Number of queries, and of keys.
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) few: FewQueries,
}

/// The blocks that the phase for few queries computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FewQueries {
    /// None.
    Nowhere,
    /// Those that have few queries and many keys.
    Beside,
    /// All: there are no other queries.
    All,
}

/// How a phase of attention goes through the blocks of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RaggedTiles {
    pub(crate) list: BlockList,
    /// True if the products leave out the masked parts of tiles.
    pub(crate) divides: bool,
}

/// The head of the lists: of blocks, and of pieces of blocks of few queries.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ListHead {
    pub(crate) blocks: ListTotal,
    pub(crate) pieces: ListTotal,
    /// Pieces of blocks that have several.
    pub(crate) slots: usize,
}

/// The length of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct ListTotal {
    pub(crate) count: usize,
    /// The work of all on the list.
    pub(crate) work: u64,
}

/// A block of queries, or a piece of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct RaggedBlock {
    pub(crate) first_query: u32,
    pub(crate) queries: u32,
    /// The keys that a query of the block sees, and those between them; none if no query sees any. Those of a
    /// piece are a part of them.
    pub(crate) first_key: u32,
    pub(crate) end_key: u32,
    /// The work of what comes before on the list.
    pub(crate) work_before: u64,
    /// The pieces of the block, if this is one, and the number of this one among those of blocks that have
    /// several.
    pub(crate) pieces: u32,
    pub(crate) slot: u32,
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
    /// Keys of a piece of a block of few queries.
    const PIECE: usize = 4 * CHUNK;

    /// Fewest keys of a block of few queries beside others.
    const MIN_KEYS: usize = 64;

    /// Bytes from the start to the blocks, to the pieces, and to the ranges of queries.
    pub(crate) const BLOCKS: usize = size_of::<ListHead>();

    pub(crate) fn pieces(&self) -> usize {
        Self::BLOCKS + self.queries.saturating_mul(size_of::<RaggedBlock>())
    }

    pub(crate) fn ranges(&self) -> usize {
        let pieces = match self.few {
            FewQueries::Nowhere => 0,
            _ => self.queries.saturating_add(self.slots()),
        };
        self.pieces().saturating_add(pieces.saturating_mul(size_of::<RaggedBlock>()))
    }

    /// Bytes of the lists.
    pub(crate) fn bytes(&self) -> usize {
        self.ranges().saturating_add(self.queries.saturating_mul(size_of::<KeyRange>()))
    }

    /// Most pieces of blocks that have several: as many as there can be if no two blocks share a key. Further
    /// blocks remain whole.
    pub(crate) fn slots(&self) -> usize {
        match self.few {
            FewQueries::Nowhere => 0,
            _ => 2 * (self.keys / Self::PIECE),
        }
    }

    /// True if a block is one of few queries.
    pub(crate) fn is_few(&self, block: &RaggedBlock) -> bool {
        match self.few {
            FewQueries::Nowhere => false,
            FewQueries::Beside => {
                block.queries as usize <= DECODE_ROWS && block.keys().len() >= Self::MIN_KEYS
            }
            FewQueries::All => true,
        }
    }

    /// The pieces of a block, of which so many slots are taken.
    pub(crate) fn pieces_of(&self, block: RaggedBlock, taken: usize) -> impl Iterator<Item = RaggedBlock> {
        let keys = block.keys();
        let mut count = keys.len().div_ceil(Self::PIECE).max(1);
        if taken + count > self.slots() {
            count = 1;
        }
        let last = count - 1;
        (0..count).map(move |index| {
            let end = keys.start + (index + 1) * Self::PIECE;
            RaggedBlock {
                first_key: (keys.start + index * Self::PIECE) as u32,
                end_key: if index == last { block.end_key } else { end as u32 },
                pieces: count as u32,
                slot: (taken + index) as u32,
                ..block
            }
        })
    }
}

impl ListTotal {
    /// A block or a piece with its place on the list, to which it is added.
    pub(crate) fn add(&mut self, block: RaggedBlock, work: u64) -> RaggedBlock {
        let added = RaggedBlock { work_before: self.work, ..block };
        self.count += 1;
        self.work += work;
        added
    }
}

/// Cuts queries into blocks, query by query.
#[derive(Debug, Default)]
pub(crate) struct BlockCutter {
    block: RaggedBlock,
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
        let next = RaggedBlock {
            first_query: first_query + queries,
            queries: 1,
            first_key: first,
            end_key: end,
            ..RaggedBlock::default()
        };
        Some(std::mem::replace(&mut self.block, next))
    }

    /// The last block; none without queries.
    pub(crate) fn last(self) -> Option<RaggedBlock> {
        (self.block.queries > 0).then_some(self.block)
    }
}

impl RaggedBlock {
    /// The keys of the block.
    pub(crate) fn keys(&self) -> Range<usize> {
        self.first_key as usize..self.end_key as usize
    }

    /// About the time of a block, in pairs of a query and a key: vectors of queries are whole, and each block
    /// has some work of its own.
    pub(crate) fn work(&self) -> u64 {
        let queries = (self.queries as usize).next_multiple_of(CLASS_PART) as u64;
        queries * self.keys().len() as u64 + (CLASS_PART * CLASS_PART) as u64
    }

    /// About the time of a piece, as that of a block: to read a key takes as long as several products with
    /// it.
    pub(crate) fn work_of_piece(&self) -> u64 {
        (u64::from(self.queries) + 2) * self.keys().len() as u64 + CLASS_PART as u64
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

    #[test]
    fn pieces_are_the_keys_of_their_block() {
        let keys = 6 * BlockList::PIECE;
        let list = BlockList { buffer: Base::Index, queries: 9, keys, few: FewQueries::Beside };
        let block = |queries: u32, end_key: usize| RaggedBlock {
            queries,
            first_key: 5,
            end_key: end_key as u32,
            ..RaggedBlock::default()
        };
        assert!(list.is_few(&block(8, 69)) && !list.is_few(&block(9, 69)) && !list.is_few(&block(1, 68)));
        let mut wrong = Vec::new();
        for end in [5, 69, BlockList::PIECE + 5, BlockList::PIECE + 6, keys] {
            for taken in [0, list.slots() - 1] {
                let pieces: Vec<_> = list.pieces_of(block(1, end), taken).collect();
                let mut next = 5;
                for (index, piece) in pieces.iter().enumerate() {
                    let is_next = piece.keys().start == next && piece.slot as usize == taken + index;
                    next = piece.keys().end;
                    if !is_next || piece.pieces as usize != pieces.len() {
                        wrong.push((end, taken, *piece));
                    }
                }
                let whole = taken > 0 || end <= BlockList::PIECE + 5;
                if next != end || whole != (pieces.len() == 1) {
                    wrong.push((end, taken, block(1, next)));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_list_sums_up_its_work() {
        let mut total = ListTotal::default();
        let added = [3, 4].map(|work| total.add(RaggedBlock::default(), work).work_before);
        assert_eq!((added, total), ([0, 3], ListTotal { count: 2, work: 7 }));
    }
}
