//! The phase of attention: two products with a SoftMax between them, whose scores are never in memory as a
//! whole.
//!
//! A task is a block of queries of one place along the outer axes. The task goes through blocks of keys. For
//! each block of keys it computes a tile of scores, with a row for each key and a column for each query, and
//! adds the exponentials times the values to the result of the queries. Because queries lie across lanes,
//! keys and values may have any layout.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::integers::{IntegerProducts, IntegerScratch};
use super::quantized_tokens::{QuantizedScratch, QuantizedTokens};
use super::ragged::RaggedTiles;
use super::tile_class::ClassTable;
use crate::kernels::attention::AttentionKernels;
pub(crate) use crate::kernels::attention::KEYS;
use crate::kernels::gemm::pack::{PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::{Kernel1, Kernel2};
use crate::plan::access::Base;
use crate::plan::ids::AccessId;
use crate::plan::nest::LoopNest;
use crate::plan::paged::PageTable;
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Two products with a SoftMax between them, as far as that does not depend on the order in which a phase
/// goes through the scores.
#[derive(Debug)]
pub(crate) struct AttentionCore {
    /// The loops over the outer axes and over blocks of queries and of keys. Its program makes the logits,
    /// which enter the SoftMax, from the scores: it reads slot [`SCORES`](Self::SCORES) and writes slot
    /// [`LOGITS`](Self::LOGITS). Without steps, the scores are the logits. Its accesses are followed by those
    /// of [`AttentionOperand`].
    pub(crate) nest: LoopNest,
    /// The access of the queries.
    pub(crate) first_access: AccessId,
    /// The same loops and accesses around a program without masks, for tiles in which no mask masks anything.
    pub(crate) unmasked: Option<ScoreProgram>,
    /// Elements of a query and of a key, and of a value.
    pub(crate) depth: usize,
    pub(crate) value_columns: usize,
    /// How the phase dequantises keys and values; their type is then f32, which stands in scratch.
    pub(crate) quantized: [Option<Arc<QuantizedTokens>>; 2],
    /// How tables lead to keys and to values that lie in the pages of a cache.
    pub(crate) pages: [Option<PageTable>; 2],
    /// Rounds the scores to their type, and widens the logits to f32.
    pub(crate) round_scores: Option<Kernel1>,
    pub(crate) widen_logits: Option<Kernel1>,
    /// Bytes of an element of scores and of logits.
    pub(crate) score_width: usize,
    pub(crate) logit_width: usize,
    /// True if the weights of a query without keys are 0, not NaN.
    pub(crate) inf_as_zero: bool,
    /// True if the logarithms of the sums are wanted.
    pub(crate) has_stats: bool,
    /// The type of the sinks, scores without a key of which each query has one; `None` without sinks.
    pub(crate) sinks: Option<DataType>,
    /// The classes of the tiles of logits, if something masks them.
    pub(crate) classes: Option<ClassTable>,
    /// The ops behind the second product, and the store of the result.
    pub(crate) result: AttentionResult,
}

impl AttentionCore {
    /// The slot of the scores, as the first product makes them.
    pub(crate) const SCORES: usize = 0;
    /// The slot of the logits.
    pub(crate) const LOGITS: usize = 1;

    /// The index of an access in the nest.
    pub(crate) fn access(&self, operand: AttentionOperand) -> AccessId {
        self.first_access + operand as usize
    }

    /// The tile of the result's nest for a block of queries, by its number among the iterations of all loops
    /// but those over keys.
    pub(crate) fn result_tile(&self, block: usize) -> usize {
        self.nest.tile_of(&self.result.tile_strides, block)
    }

    /// The bases that the driver reads beside the programs.
    pub(in crate::plan) fn reads(&self) -> impl Iterator<Item = Base> {
        let read = [AttentionOperand::Queries, AttentionOperand::Keys, AttentionOperand::Values];
        let sinks = self.sinks.map(|_| AttentionOperand::Sinks);
        let tables = [
            (0, [AttentionOperand::KeyTable, AttentionOperand::KeyLengths]),
            (1, [AttentionOperand::ValueTable, AttentionOperand::ValueLengths]),
        ];
        let tables = tables.into_iter().filter(|&(index, _)| self.pages[index].is_some());
        let tables = tables.flat_map(|(_, operands)| operands);
        read.into_iter()
            .chain(sinks)
            .chain(tables)
            .map(|operand| self.nest.program.accesses[self.access(operand)].base)
    }

    /// The nests of its programs.
    pub(in crate::plan) fn nests(&self) -> impl Iterator<Item = &LoopNest> {
        let unmasked = self.unmasked.iter().map(|unmasked| &unmasked.nest);
        let quantized = self.quantized.iter().flatten().map(|tokens| &tokens.nest);
        [&self.nest, &self.result.nest].into_iter().chain(unmasked).chain(quantized)
    }
}

/// Attention block of queries by block of queries. The blocks of keys are the innermost loop; the rows of a
/// tile are keys and its columns queries.
#[derive(Debug)]
pub(crate) struct AttentionPhase {
    pub(crate) core: AttentionCore,
    /// The types of the queries, the keys and the values.
    pub(crate) types: [DataType; 3],
    /// Computes the scores.
    pub(crate) product: GemmKernel,
    /// A factor on all scores, which the program does not apply.
    pub(crate) factor: Option<ScoreFactor>,
    /// A mask that is in memory: with it the program without masks runs in every tile.
    pub(crate) mask: Option<TensorMask>,
    /// The blocks of queries, if they begin where sequences do: loops over blocks then go token by token, the
    /// program is that without masks, and there are no classes.
    pub(crate) ragged: Option<RaggedTiles>,
    /// Multiplies weights by values.
    pub(crate) value_product: ValueProduct,
    pub(crate) kernels: AttentionKernels,
    /// Packs the queries of a block as panels.
    pub(crate) queries: PackPanel,
    /// Converts the keys of a block to the form that the product reads, unless they are in it.
    pub(crate) keys: Option<RowPack>,
    /// Converts the values of a block to f32, unless they are.
    pub(crate) values: Option<RowPack>,
    /// The ops on the weights before the second product, if they are more than a change of type.
    pub(crate) weights: Option<WeightsProgram>,
    pub(crate) layout: AttentionScratch,
}

/// A number by which all scores are multiplied, or divided. Queries in f32 are instead, unless the number
/// enlarges them: then they might overflow where the scores do not. Queries that are rounded to pairs once
/// more would lose the accuracy of the scores.
#[derive(Debug)]
pub(crate) struct ScoreFactor {
    /// The access of the number, and its type.
    pub(crate) number: AccessId,
    pub(crate) data_type: DataType,
    pub(crate) divides: bool,
    /// Computes the product or the quotient.
    pub(crate) kernel: Kernel2,
}

impl ScoreFactor {
    /// True if products with the number are no larger than what is multiplied.
    pub(crate) fn shrinks(&self, number: f32) -> bool {
        if self.divides { number.abs() >= 1.0 } else { number.abs() <= 1.0 }
    }
}

/// A mask of booleans in memory, behind all that the program without masks computes.
#[derive(Debug)]
pub(crate) struct TensorMask {
    /// The access of the booleans, whose rows are keys; the keys of a query are neighbours.
    pub(crate) condition: AccessId,
    /// The access of the number that takes the place of scores.
    pub(crate) fill: AccessId,
    /// True if scores are kept whose boolean is true; else those whose boolean is false.
    pub(crate) keeps: bool,
}

/// How weights are multiplied by values.
#[derive(Debug)]
pub(crate) enum ValueProduct {
    /// In f32.
    F32(GemmKernel),
    /// In pairs of bf16: the weights, which are rounded, and the values are packed for the kernel.
    Pairs { kernel: GemmKernel, weights: PackPanel, values: RowPack },
    /// In quads of 8-bit integers, as the scores.
    Integers(Box<IntegerProducts>),
}

impl ValueProduct {
    /// The kernel, unless the product is of integers.
    pub(crate) fn kernel(&self) -> Option<GemmKernel> {
        match self {
            Self::F32(kernel) | Self::Pairs { kernel, .. } => Some(*kernel),
            Self::Integers(_) => None,
        }
    }
}

/// A driver reads the fields of the core as fields of the phase.
impl Deref for AttentionPhase {
    type Target = AttentionCore;

    fn deref(&self) -> &AttentionCore {
        &self.core
    }
}

impl AttentionPhase {
    /// Bytes of a row of packed values: of an element of each key of a block.
    pub(crate) const PACKED_VALUE_ROW: usize = 2 * KEYS;

    /// The starts of what the phase reads beside its programs.
    pub(in crate::plan) fn reads(&self) -> impl Iterator<Item = Base> {
        let factor = self.factor.iter().map(|factor| factor.number);
        let mask = self.mask.iter().flat_map(|mask| [mask.condition, mask.fill]);
        let accesses = &self.nest.program.accesses;
        let list = self.ragged.map(|ragged| ragged.list.buffer);
        self.core.reads().chain(list).chain(factor.chain(mask).map(|access| accesses[access].base))
    }

    /// The products, if both are of integers.
    pub(crate) fn integers(&self) -> Option<&IntegerProducts> {
        match &self.value_product {
            ValueProduct::Integers(integers) => Some(integers),
            ValueProduct::F32(_) | ValueProduct::Pairs { .. } => None,
        }
    }

    /// True if the SoftMax writes weights as pairs of bf16, which the product of values reads.
    pub(crate) fn weighs_in_pairs(&self) -> bool {
        self.value_product.kernel().is_some_and(|kernel| kernel.form() == Form::Bf16Pairs)
    }

    /// Bytes of the packed values of a block of keys.
    pub(crate) fn packed_value_bytes(&self) -> usize {
        self.value_columns * Self::PACKED_VALUE_ROW
    }

    /// Number of blocks of keys.
    pub(crate) fn key_blocks(&self) -> usize {
        self.nest.loops[self.nest.row_blocks].extent
    }

    /// Number of places along the outer axes.
    pub(crate) fn places(&self) -> usize {
        let is_outer = |index: &usize| ![self.nest.row_blocks, self.nest.column_blocks].contains(index);
        let outer = (0..self.nest.loops.len()).filter(is_outer);
        outer.map(|index| self.nest.loops[index].extent).saturating_product()
    }

    /// Number of blocks of queries, at all places.
    pub(crate) fn tasks(&self) -> usize {
        let tasks = self.nest.loops.iter().enumerate().filter(|&(index, _)| index != self.nest.row_blocks);
        tasks.map(|(_, l)| l.extent).saturating_product()
    }

    /// The nests of its programs.
    pub(in crate::plan) fn nests(&self) -> SmallVec<[&LoopNest; 2]> {
        self.core.nests().chain(self.weights.iter().map(|weights| &weights.nest)).collect()
    }
}

/// The accesses of attention. Their row strides go along queries or keys, and the others along the elements
/// of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttentionOperand {
    Queries,
    Keys,
    Values,
    /// The statistics, a number for each query; the queries again if there are no statistics.
    Stats,
    /// The sinks, a number for each query; the queries again if there are no sinks.
    Sinks,
    /// The entries of the table of pages of keys, if keys or values lie in pages.
    KeyTable,
    /// The length of the sequence of keys; the queries again if there are no lengths.
    KeyLengths,
    /// The same of values.
    ValueTable,
    ValueLengths,
}

/// The scratch of keys and values that lie in pages, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PagedScratch {
    /// A token of zeros, for tokens that a sequence does not have.
    pub(crate) zeros: usize,
    pub(crate) zero_bytes: usize,
    /// A block of keys, and one of values, whose tokens lie on several pages; for each the bytes of a token.
    pub(crate) blocks: [usize; 2],
    pub(crate) token_bytes: [usize; 2],
}

/// A program that makes the logits from the scores.
#[derive(Debug)]
pub(crate) struct ScoreProgram {
    pub(crate) nest: LoopNest,
    /// The access of the queries.
    pub(crate) first_access: AccessId,
}

/// Ops between the SoftMax and the second product. They need the weights that the SoftMax gives, so the
/// logits are kept until the sums are known, or the scores of many keys are computed twice: for the sums, and
/// for the weights.
#[derive(Debug)]
pub(crate) struct WeightsProgram {
    /// The loops of the scores. Its program takes slot [`SCORES`](AttentionCore::SCORES), the weights, and
    /// writes slot [`LOGITS`](AttentionCore::LOGITS), the factors of the values.
    pub(crate) nest: LoopNest,
    /// Rounds the weights to the type of the SoftMax, and widens the program's result to f32.
    pub(crate) round: Option<Kernel1>,
    pub(crate) widen: Option<Kernel1>,
    /// Bytes of an element of the weights and of the program's result.
    pub(crate) widths: [usize; 2],
}

/// How a block of results is stored.
#[derive(Debug)]
pub(crate) struct AttentionResult {
    /// The loops over the outer axes, blocks of queries and one block of columns, in the order of the
    /// result's dims. Its program takes the block from slot 0.
    pub(crate) nest: LoopNest,
    /// For each loop of the phase's nest but the innermost: tiles of this nest from one iteration to the
    /// next.
    pub(crate) tile_strides: SmallVec<[usize; 6]>,
    /// Rounds the block to the type of the second product.
    pub(crate) round: Option<Kernel1>,
}

/// Offsets into the scratch of a thread, in bytes. The scratch of the program that makes the logits starts
/// at 0.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttentionScratch {
    /// The scratch of the program behind the second product.
    pub(crate) result_program: usize,
    /// The panels of the queries.
    pub(crate) queries: usize,
    /// A block of keys and a block of values as the products read them, and for each the bytes from token to
    /// token.
    pub(crate) keys: usize,
    pub(crate) key_row: usize,
    pub(crate) values: usize,
    pub(crate) value_row: usize,
    /// A block of values with a row for each element, and the panels of weights, for products in pairs.
    pub(crate) packed_values: usize,
    /// The addresses from which blocks of values were packed, if there is room for the packed values of all
    /// blocks of keys: the other blocks of queries take them as they are.
    pub(crate) kept_values: Option<usize>,
    pub(crate) packed_weights: usize,
    /// Tiles of f32: the scores, and the weights that come from them.
    pub(crate) scores: usize,
    pub(crate) weights: usize,
    /// Tiles in the types of the scores and of the logits, if these are not f32.
    pub(crate) typed_scores: usize,
    pub(crate) typed_logits: usize,
    /// The scratch of the program on weights, the weights in the type of the SoftMax, the results of the
    /// program, and these in f32.
    pub(crate) weights_program: usize,
    pub(crate) typed_weights: usize,
    pub(crate) typed_factors: usize,
    pub(crate) factors: usize,
    /// A tile for each block of keys, which holds logits, then exponentials, then weights, or exponentials
    /// alone if weights become integers; `None` if the scores are computed twice instead.
    pub(crate) stored_weights: Option<usize>,
    /// The data that products of integers need.
    pub(crate) integers: Option<IntegerScratch>,
    /// The block of results: a row for each element of a value, a column for each query.
    pub(crate) result: usize,
    /// The block of results in the type of the second product, if that is not f32.
    pub(crate) typed_result: usize,
    /// Scratch of the kernels that pack.
    pub(crate) pack: usize,
    /// The scratch of the dequantisations of keys and of values.
    pub(crate) quantized: [QuantizedScratch; 2],
    pub(crate) paged: PagedScratch,
    /// Bytes of the whole scratch.
    pub(crate) end: usize,
}
