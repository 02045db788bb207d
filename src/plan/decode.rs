//! The phase of attention for few queries: every key and value is read once, in the order of memory, for all
//! queries that share the keys.
//!
//! A task is a chunk of keys of one group of queries. It computes the scores of the chunk, with a row for
//! each query and a column for each key, and leaves for each query the largest score, the sum of the
//! exponentials and the sums of the values in an internal buffer. Chunks have a fixed size, and their
//! results are merged in the order of the keys: so one head keeps several threads busy, and the bits do not
//! depend on how many.

use std::ops::Deref;

use smallvec::SmallVec;

use super::access::Base;
use super::attention::AttentionCore;
use super::nest::LoopNest;
use super::tile_class::CLASS_TILE;
use crate::kernels::attention::{DecodeKernels, VECTOR};
use crate::kernels::gemm::pack::RowPack;
use crate::kernels::rows::RowType;
use crate::types::dtype::DataType;

/// Keys of a chunk.
pub(crate) const CHUNK: usize = 512;

/// Tiles of classes in a chunk.
pub(crate) const CHUNK_TILES: usize = CHUNK / CLASS_TILE;

/// Most queries of a group.
pub(crate) const DECODE_ROWS: usize = 8;

/// Attention for few queries. All queries are one block, and the chunks of keys are the innermost loop; the
/// rows of a tile are queries and its columns keys.
#[derive(Debug)]
pub(crate) struct DecodePhase {
    pub(crate) core: AttentionCore,
    /// Iterations of the innermost outer axes that share keys and values, and are one group.
    pub(crate) repeats: usize,
    /// Queries of one of them.
    pub(crate) queries: usize,
    pub(crate) kernels: DecodeKernels,
    /// Widens the queries to f32.
    pub(crate) pack_queries: RowPack,
    /// The types of the keys and of the values.
    pub(crate) key_type: RowType,
    pub(crate) value_type: RowType,
    /// The buffer of what chunks leave, if there are several: the only one leaves it in scratch.
    pub(crate) partials: Option<Base>,
    pub(crate) layout: DecodeScratch,
}

/// As an [`AttentionPhase`](super::AttentionPhase).
impl Deref for DecodePhase {
    type Target = AttentionCore;

    fn deref(&self) -> &AttentionCore {
        &self.core
    }
}

impl DecodePhase {
    /// Number of chunks of keys.
    pub(crate) fn chunks(&self) -> usize {
        self.nest.loops[self.nest.column_blocks].extent
    }

    /// Number of groups of queries that share keys and values.
    pub(crate) fn groups(&self) -> usize {
        let outer = self.nest.loops.iter().take(self.nest.row_blocks);
        outer.map(|l| l.extent).product::<usize>() / self.repeats
    }

    /// Queries of a group.
    pub(crate) fn rows(&self) -> usize {
        self.repeats * self.queries
    }

    /// Elements from row to row of queries, and of sums of values.
    pub(crate) fn query_row(&self) -> usize {
        self.depth.next_multiple_of(VECTOR)
    }

    pub(crate) fn value_row(&self) -> usize {
        self.value_columns.next_multiple_of(VECTOR)
    }

    /// Elements that a chunk leaves: the sums of the values of each query, then the largest score of each,
    /// then the sum of the exponentials of each.
    pub(crate) fn partial(&self) -> usize {
        (self.rows() * (self.value_row() + 2)).next_multiple_of(VECTOR)
    }

    /// Bytes of the buffer of what chunks leave.
    pub(crate) fn partial_bytes(&self) -> usize {
        let partials = self.groups().saturating_mul(self.chunks());
        partials.saturating_mul(4 * self.partial())
    }

    /// The nests of its programs.
    pub(super) fn nests(&self) -> SmallVec<[&LoopNest; 2]> {
        self.core.nests().collect()
    }

    /// The starts of all accesses, of the table of classes and of what chunks leave, to be changed.
    pub(super) fn bases_mut(&mut self) -> SmallVec<[&mut Base; 8]> {
        self.core.bases_mut().chain(&mut self.partials).collect()
    }

    /// The starts of its buffers.
    pub(super) fn buffers(&self) -> impl Iterator<Item = Base> {
        self.classes.iter().map(|table| table.base).chain(self.partials)
    }
}

/// The float type of elements that lie next to each other, if the phase reads it.
pub(crate) fn row_type(data_type: DataType, stride: isize) -> Option<RowType> {
    RowType::of(data_type).filter(|of| of.bytes() as isize == stride)
}

/// Places in the scratch of a thread, in bytes; the program that makes the logits comes first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecodeScratch {
    /// The scratch of the program behind the second product.
    pub(crate) result_program: usize,
    /// The queries in f32.
    pub(crate) queries: usize,
    /// Keys or values in f32, as many as the kernels take.
    pub(crate) widened: usize,
    /// The scores of a chunk, and what enters the SoftMax, in f32.
    pub(crate) scores: usize,
    pub(crate) logits: usize,
    /// The same in their types, if these are not f32.
    pub(crate) typed_scores: usize,
    pub(crate) typed_logits: usize,
    /// What a chunk leaves that has no place in the buffer.
    pub(crate) partial: usize,
    /// The sums of the values of all chunks, and the same in the type of the result, if that is not f32.
    pub(crate) result: usize,
    pub(crate) typed_result: usize,
    /// Scratch of the kernel that packs.
    pub(crate) pack: usize,
    /// All of it.
    pub(crate) end: usize,
}
