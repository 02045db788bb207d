//! The phase of attention for few queries: every key and value is read once, in the order of memory, for all
//! queries that share the keys.
//!
//! A task is a chunk of keys of one group of queries. The task computes the scores of the chunk, with a row
//! for each query and a column for each key. Its partial result goes to an internal buffer: for each query
//! the largest score, the sum of the exponentials and the sums of the values. One head keeps several threads
//! busy. The bits do not depend on the number of threads, because chunks have a fixed size and their partial
//! results are merged in the order of the keys.
//!
//! Of sequences that follow each other, a task is a piece of the keys of a block of few queries, which the
//! list of a phase before names. Its chunks are merged as they are computed, and the pieces of a block at the
//! end.

use std::ops::Deref;

use smallvec::SmallVec;

use super::chunk::DECODE_ROWS;
use super::forward::{AttentionCore, PagedScratch};
use super::quantized_tokens::QuantizedScratch;
use super::ragged::BlockList;
use crate::kernels::attention::DecodeKernels;
use crate::kernels::gemm::StoredKernels;
use crate::kernels::gemm::pack::RowPack;
use crate::kernels::vector::LANES;
use crate::plan::access::Base;
use crate::plan::nest::LoopNest;
use crate::types::shape::SaturatingProduct;

/// Attention for few queries. All queries are one block, and the chunks of keys are the innermost loop; the
/// rows of a tile are queries and its columns keys.
#[derive(Debug)]
pub(crate) struct DecodePhase {
    pub(crate) core: DecodeCore,
    pub(crate) kernels: DecodeKernels,
    /// Widens the queries to f32.
    pub(crate) pack_queries: RowPack,
    /// The keys and the values.
    pub(crate) tokens: [DecodeTokens; 2],
    /// The kernels of tokens in f32.
    pub(crate) of_f32: StoredKernels,
    /// The buffer of the partial results; `None` if none is kept: that of an only chunk stays in scratch.
    pub(crate) partials: Option<Base>,
    pub(crate) layout: DecodeScratch,
}

/// How keys or values are read.
#[derive(Debug)]
pub(crate) struct DecodeTokens {
    pub(crate) kernels: StoredKernels,
    /// The tokens become f32 in registers; else some rows of f32 are written first.
    pub(crate) in_registers: bool,
}

/// Attention for few queries, as far as the sizes of scratch and of buffers depend on it.
#[derive(Debug)]
pub(crate) struct DecodeCore {
    pub(crate) core: AttentionCore,
    /// Iterations of the innermost outer axes that share keys and values; their queries are one group.
    pub(crate) repeats: usize,
    /// Queries of one such iteration; the most that a block has, if blocks begin where sequences do.
    pub(crate) queries: usize,
    /// The list whose pieces the phase computes: loops over blocks then go token by token, the program is
    /// that without masks, and there are no classes. `None` if all queries are one block.
    pub(crate) pieces: Option<BlockList>,
}

/// A driver reads the fields of the core as fields of the phase, as for an
/// [`AttentionPhase`](super::AttentionPhase).
impl Deref for DecodePhase {
    type Target = DecodeCore;

    fn deref(&self) -> &DecodeCore {
        &self.core
    }
}

impl Deref for DecodeCore {
    type Target = AttentionCore;

    fn deref(&self) -> &AttentionCore {
        &self.core
    }
}

impl DecodeCore {
    /// Number of chunks of keys, if all queries are one block.
    pub(crate) fn chunks(&self) -> usize {
        self.nest.loops[self.nest.column_blocks].extent
    }

    /// Number of tasks: chunks, or queries.
    pub(crate) fn tasks(&self) -> usize {
        let of_group = self.pieces.map_or_else(|| self.chunks(), |list| list.queries);
        self.groups().saturating_mul(of_group)
    }

    /// Parts of a group that are computed one after another, with the same keys: each has at most
    /// [`DECODE_ROWS`] queries.
    pub(crate) fn parts(&self, queries: usize) -> usize {
        let fits = |parts: &usize| {
            self.repeats.is_multiple_of(*parts) && self.repeats / parts * queries <= DECODE_ROWS
        };
        (1..self.repeats).find(fits).unwrap_or(self.repeats)
    }

    /// Most parts of a group.
    pub(crate) fn most_parts(&self) -> usize {
        match self.pieces {
            Some(_) => self.parts(self.queries),
            None => 1,
        }
    }

    /// Number of groups of queries that share keys and values.
    pub(crate) fn groups(&self) -> usize {
        let outer = self.nest.loops.iter().take(self.nest.row_blocks);
        outer.map(|l| l.extent).saturating_product() / self.repeats
    }

    /// Queries of a group, or most queries of a part of one.
    pub(crate) fn rows(&self) -> usize {
        match self.pieces {
            Some(_) => DECODE_ROWS,
            None => self.repeats * self.queries,
        }
    }

    /// Elements from row to row of the queries in scratch, and of the sums of values.
    pub(crate) fn query_row(&self) -> usize {
        self.depth.next_multiple_of(LANES)
    }

    pub(crate) fn value_row(&self) -> usize {
        self.value_columns.next_multiple_of(LANES)
    }

    /// Elements of a partial result: the sums of the values of each query, then the largest score of each
    /// query, then the sum of the exponentials of each query.
    pub(crate) fn partial(&self) -> usize {
        (self.rows() * (self.value_row() + 2)).next_multiple_of(LANES)
    }

    /// Partial results of a group: of its chunks, or of all parts of pieces; 0 if none has to be kept.
    pub(crate) fn partials(&self) -> usize {
        match self.pieces {
            Some(list) => list.slots().saturating_mul(self.most_parts()),
            None if self.chunks() > 1 => self.chunks(),
            None => 0,
        }
    }

    /// Bytes of the buffer of the partial results.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.groups().saturating_mul(self.partials()).saturating_mul(4 * self.partial())
    }
}

impl DecodePhase {
    /// The nests of its programs.
    pub(in crate::plan) fn nests(&self) -> SmallVec<[&LoopNest; 2]> {
        self.core.core.nests().collect()
    }

    /// The starts of its buffers.
    pub(in crate::plan) fn buffers(&self) -> impl Iterator<Item = Base> {
        let list = self.pieces.map(|list| list.buffer);
        self.classes.iter().map(|table| table.base).chain(self.partials).chain(list)
    }
}

/// Offsets into the scratch of a thread, in bytes. The scratch of the program that makes the logits starts
/// at 0.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecodeScratch {
    /// The scratch of the program behind the second product.
    pub(crate) result_program: usize,
    /// The queries in f32.
    pub(crate) queries: usize,
    /// Keys or values in f32, as many as the kernels take.
    pub(crate) widened: usize,
    /// The scores and the logits of a chunk, in f32.
    pub(crate) scores: usize,
    pub(crate) logits: usize,
    /// The scores and the logits in their types, if these are not f32.
    pub(crate) typed_scores: usize,
    pub(crate) typed_logits: usize,
    /// The partial result of the only chunk.
    pub(crate) partial: usize,
    /// The sums of the values of all chunks, in f32 and, if the result is not f32, in its type.
    pub(crate) result: usize,
    pub(crate) typed_result: usize,
    /// Scratch of the kernel that packs.
    pub(crate) pack: usize,
    /// The scratch of the dequantisations of keys and of values.
    pub(crate) quantized: [QuantizedScratch; 2],
    pub(crate) paged: PagedScratch,
    /// Bytes of the whole scratch.
    pub(crate) end: usize,
}
