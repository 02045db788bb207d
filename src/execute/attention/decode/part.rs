//! The queries and the keys that are computed together.

use crate::plan::{CHUNK, DECODE_ROWS, DecodeCore, KeyRange, RaggedBlock};

/// Queries that share keys, and these keys.
#[derive(Clone, Copy)]
pub(super) struct GroupPart<'a> {
    /// The number of the part among those of its group.
    pub(super) index: usize,
    /// The first of the iterations of outer axes that share the keys, and their number.
    pub(super) first: usize,
    pub(super) repeats: usize,
    /// Queries of an iteration.
    pub(super) queries: usize,
    /// The first key, and the one behind the last.
    pub(super) first_key: usize,
    pub(super) end_key: usize,
    /// The keys that each query sees, if its block begins where a sequence does; else none.
    pub(super) ranges: &'a [KeyRange],
    /// Tiles of the nest, and blocks of the result, of an iteration.
    tiles: usize,
    blocks: usize,
    /// The first tile and the first block of the part in an iteration, and tiles from chunk to chunk.
    first_tile: usize,
    first_block: usize,
    chunk_tiles: usize,
}

impl<'a> GroupPart<'a> {
    /// All of a group whose queries are one block.
    pub(super) fn of_group(core: &DecodeCore, group: usize) -> Self {
        Self {
            index: 0,
            first: group * core.repeats,
            repeats: core.repeats,
            queries: core.queries,
            first_key: 0,
            end_key: core.nest.space.columns,
            ranges: &[],
            tiles: core.chunks(),
            blocks: 1,
            first_tile: 0,
            first_block: 0,
            chunk_tiles: 1,
        }
    }

    /// The parts of a group for a block, or for a piece of it, with the ranges of its queries.
    pub(super) fn of_block(
        core: &DecodeCore,
        group: usize,
        block: &RaggedBlock,
        ranges: &'a [KeyRange],
    ) -> impl Iterator<Item = Self> + use<'a> {
        let (queries, keys) = (block.queries as usize, block.keys());
        let [all_queries, all_keys] =
            [core.nest.row_blocks, core.nest.column_blocks].map(|index| core.nest.loops[index].extent);
        let (all, parts) = (core.repeats, core.parts(queries));
        let (first_block, first) = (block.first_query as usize, group * all);
        (0..parts).map(move |index| Self {
            index,
            first: first + index * (all / parts),
            repeats: all / parts,
            queries,
            first_key: keys.start,
            end_key: keys.end,
            ranges,
            tiles: all_queries * all_keys,
            blocks: all_queries,
            first_tile: first_block * all_keys + keys.start,
            first_block,
            chunk_tiles: CHUNK,
        })
    }

    /// Queries of all iterations.
    pub(super) fn rows(&self) -> usize {
        self.repeats * self.queries
    }

    pub(super) fn keys(&self) -> usize {
        self.end_key - self.first_key
    }

    pub(super) fn chunks(&self) -> usize {
        self.keys().div_ceil(CHUNK)
    }

    /// The tile of the nest of a chunk of keys, for a repetition.
    pub(super) fn tile(&self, repeat: usize, chunk: usize) -> usize {
        (self.first + repeat) * self.tiles + self.first_tile + chunk * self.chunk_tiles
    }

    /// The number of the block of queries of a repetition among all.
    pub(super) fn block(&self, repeat: usize) -> usize {
        (self.first + repeat) * self.blocks + self.first_block
    }
}

/// The state of the SoftMax of a part.
#[derive(Clone, Copy)]
pub(super) struct GroupPartState {
    /// True once the queries are packed.
    pub(super) is_packed: bool,
    /// By query: the largest score so far, and the sum of the exponentials.
    pub(super) max: [f32; DECODE_ROWS],
    pub(super) sum: [f32; DECODE_ROWS],
    /// By query: the sink; −∞ without any.
    pub(super) sinks: [f32; DECODE_ROWS],
}

impl Default for GroupPartState {
    fn default() -> Self {
        let none = [f32::NEG_INFINITY; DECODE_ROWS];
        Self { is_packed: false, max: none, sum: [0.0; DECODE_ROWS], sinks: none }
    }
}
