//! The phase of the gradients of attention: five products of a tile of scores, which is never in memory as a
//! whole.
//!
//! A task is one place along the outer axes, or the places of all heads whose gradients of keys and values
//! are summed up. The task goes through groups of blocks of queries, and for each group through blocks of
//! keys. For each tile, with a row for each key and a column for each query, it computes the scores and the
//! gradients of the weights. From these it makes the weights and the gradients of the scores, and adds their
//! products with queries, keys and gradients of the result to sums in f32. The sums for keys and values stay
//! in the scratch of the thread until the task ends, the sums for queries until their group ends. So no sum
//! depends on threads.

use smallvec::SmallVec;

use super::tile_class::ClassTable;
use crate::kernels::attention::AttentionKernels;
use crate::kernels::gemm::GemmKernel;
use crate::kernels::gemm::pack::{PackPanel, RowPack};
use crate::kernels::pointwise::Kernel1;
use crate::plan::access::Base;
use crate::plan::ids::AccessId;
use crate::plan::nest::LoopNest;
use crate::types::dtype::DataType;
use crate::types::shape::SaturatingProduct;

/// Blocks of queries that go through the blocks of keys together: a block of keys, and the sums that belong
/// to it, are fetched once for all of them.
pub(crate) const GROUP: usize = 4;

/// The gradients of two products with a SoftMax between them.
#[derive(Debug)]
pub(crate) struct BackwardPhase {
    /// The loops over the outer axes, blocks of queries and, innermost, blocks of keys; the rows of a tile
    /// are keys and its columns queries. Its accesses are followed by those of [`BackwardOperand`].
    pub(crate) chain: TileChain,
    /// The index of the first access of the operands.
    pub(crate) first_access: AccessId,
    /// The operands, in the order of [`BackwardOperand`]; an unused operand is the queries again.
    pub(crate) operands: [PhaseOperand; OPERANDS],
    /// The SoftMax, if it is computed here; otherwise the chain makes the weights.
    pub(crate) softmax: Option<BackwardSoftmax>,
    /// Elements of a query and of a key, and of a value.
    pub(crate) depth: usize,
    pub(crate) value_columns: usize,
    pub(crate) product: GemmKernel,
    pub(crate) kernels: AttentionKernels,
    /// The tile of weights.
    pub(crate) weights: usize,
    /// The tiles of P for dV = Pᵀ·dO and of dS for dQ = dS·K and dK = dSᵀ·Q, as far as a gradient needs them.
    pub(crate) p: Option<usize>,
    pub(crate) ds: Option<usize>,
    /// The tile that is stored as a whole: dS, or what leads there from dP.
    pub(crate) mask: Option<usize>,
    /// The classes of the tiles of logits, if something masks them.
    pub(crate) classes: Option<ClassTable>,
    /// The outer axes, in the order of the loops.
    pub(crate) axes: SmallVec<[OuterAxis; 6]>,
    /// The gradients of queries, keys and values, and the tiles that are stored, if they are wanted.
    pub(crate) results: [Option<BackwardResult>; RESULTS],
    pub(crate) layout: BackwardScratch,
}

/// The operands of the products. Their row strides go from token to token, and the others along the elements
/// of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackwardOperand {
    /// Q and K of S = Q·Kᵀ.
    Queries,
    Keys,
    /// dO and V of dP = dO·Vᵀ.
    Gradients,
    Values,
    /// The right operands of dQ = dS·K, dK = dSᵀ·Q and dV = Pᵀ·dO.
    DqKeys,
    DkQueries,
    DvGradients,
}

/// Number of operands.
pub(crate) const OPERANDS: usize = 7;

/// Number of results; the tiles that are stored are the last one.
pub(crate) const RESULTS: usize = 4;

/// An operand of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhaseOperand {
    pub(crate) data_type: DataType,
    /// How its tokens are read.
    pub(crate) form: OperandForm,
}

/// How the tokens of an operand are read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OperandForm {
    /// The operand is not read.
    Unused,
    /// The kernels read the tokens in memory.
    InPlace,
    /// The tokens of another operand, which are the same.
    Same(BackwardOperand),
    /// As rows of f32, at a place in scratch: all keys of a place, or the queries of a block.
    Rows(RowPack, usize),
    /// As panels of a block of queries, at a place in scratch.
    Panels(PackPanel, usize),
}

/// A tile program, and the tiles that it takes and makes.
#[derive(Debug)]
pub(crate) struct TileChain {
    pub(crate) nest: LoopNest,
    pub(crate) slots: [Option<ChainSlot>; SLOTS],
}

/// Slots of a chain.
pub(crate) const SLOTS: usize = 6;

impl TileChain {
    /// S, or behind the SoftMax P.
    pub(crate) const SCORES: usize = 0;
    /// dP, or behind the SoftMax the gradients of the logits.
    pub(crate) const GRADIENTS: usize = 1;
    /// A result of the chain: the logits, or without a SoftMax P.
    pub(crate) const LOGITS: usize = 2;
    /// A result of the chain: P as dV = Pᵀ·dO takes it, or before a SoftMax the gradients of its result.
    pub(crate) const P: usize = 3;
    pub(crate) const DP: usize = Self::P;
    /// A result of the chain: dS as dQ = dS·K and dK = dSᵀ·Q take it.
    pub(crate) const DS: usize = 4;
    /// A result of the chain: the tile that is stored.
    pub(crate) const MASK: usize = 5;
}

/// A tile that a chain takes or makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainSlot {
    /// The tile in f32.
    pub(crate) tile: usize,
    /// The tile in its type, unless that is f32.
    pub(crate) typed: Option<TypedTile>,
}

/// A tile in a type that is not f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedTile {
    pub(crate) place: usize,
    pub(crate) width: usize,
    /// Rounds a tile that the chain takes, and widens one that it makes.
    pub(crate) convert: Kernel1,
}

/// A SoftMax between the scores and the gradients.
#[derive(Debug)]
pub(crate) struct BackwardSoftmax {
    /// The tile of the gradients of its result, which becomes the tile of the gradients of its input.
    pub(crate) gradients: Option<usize>,
    /// The ops behind the SoftMax and its gradient, if there are any.
    pub(crate) behind: Option<TileChain>,
    /// True if a step of the first chain makes the tile of logits, or the tile of gradients; a tile that no
    /// step makes is the product itself.
    pub(crate) makes_logits: bool,
    pub(crate) makes_gradients: bool,
}

/// An axis around the tiles of scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OuterAxis {
    pub(crate) extent: usize,
    /// True if gradients of keys and values are summed up along the axis, by one task.
    pub(crate) is_summed: bool,
    /// Places from one index to the next.
    pub(crate) places: usize,
    /// Tiles of each result from one index to the next.
    pub(crate) result_tiles: [usize; 3],
}

/// How the sums of a gradient are stored.
#[derive(Debug)]
pub(crate) struct BackwardResult {
    /// Blocks of queries or keys, and one block of columns. Its program takes the block from slot 0.
    pub(crate) nest: LoopNest,
    /// Tiles from one block of queries or keys to the next.
    pub(crate) block_tiles: usize,
    /// Rounds a block to the type of the product.
    pub(crate) round: Option<Kernel1>,
}

/// Offsets into the scratch of a thread, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BackwardScratch {
    /// The scratch of the chain, of the program behind the SoftMax, and of the programs that store results.
    pub(crate) chain: usize,
    pub(crate) behind: usize,
    pub(crate) results: [usize; RESULTS],
    /// Tiles of scores and of gradients of weights.
    pub(crate) scores: usize,
    pub(crate) gradients: usize,
    /// Bytes of a converted key or query, and of a value or a gradient of the result.
    pub(crate) key_row: usize,
    pub(crate) value_row: usize,
    /// Bytes from the scratch of a block of queries of a group to that of the next block.
    pub(crate) group_step: usize,
    /// Sums of the gradients of queries for a block: a row for each element.
    pub(crate) query_sums: usize,
    /// Sums of the gradients of keys and of values: a row for each token of the place.
    pub(crate) key_sums: usize,
    pub(crate) value_sums: usize,
    /// For each block of keys a byte that is not 0 if all keys are finite.
    pub(crate) finite_keys: usize,
    /// A block of results in its type.
    pub(crate) typed_result: usize,
    /// Scratch of the kernels that pack.
    pub(crate) pack: usize,
    /// Bytes of the whole scratch.
    pub(crate) end: usize,
}

impl BackwardPhase {
    /// Number of blocks of keys, and of queries.
    pub(crate) fn key_blocks(&self) -> usize {
        self.chain.nest.loops[self.chain.nest.row_blocks].extent
    }

    pub(crate) fn query_blocks(&self) -> usize {
        self.chain.nest.loops[self.chain.nest.column_blocks].extent
    }

    /// Number of tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.axes.iter().filter(|axis| !axis.is_summed).map(|axis| axis.extent).saturating_product()
    }

    /// The index of an access in the nest.
    pub(crate) fn access(&self, operand: BackwardOperand) -> AccessId {
        self.first_access + operand as usize
    }

    /// The nests of its programs.
    pub(in crate::plan) fn nests(&self) -> SmallVec<[&LoopNest; 2]> {
        let behind = self.softmax.iter().filter_map(|softmax| softmax.behind.as_ref());
        let results = self.results.iter().flatten().map(|result| &result.nest);
        [&self.chain.nest].into_iter().chain(behind.map(|chain| &chain.nest)).chain(results).collect()
    }

    /// The bases that the driver reads beside the programs.
    pub(in crate::plan) fn reads(&self) -> impl Iterator<Item = Base> {
        (0..OPERANDS).map(|operand| self.chain.nest.program.accesses[self.first_access + operand].base)
    }
}
