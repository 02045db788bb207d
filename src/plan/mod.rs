//! The plan, which compilation hands to execution: every decision that can be made before data exists. The
//! layer holds data only.
//!
//! A [`Plan`] is a list of [`Phase`]s (`phase`). A phase goes through 2-D tiles; what it computes in a tile
//! is a [`TileProgram`] (`tile_program`), whose operands are strided [`Access`]es (`access`). A plan has no
//! ids: tensors are ports by position.

mod access;
pub(crate) mod attention;
mod gemm;
mod ids;
mod lookup;
mod nest;
mod paged;
mod phase;
mod pool;
pub(crate) mod register_fusion;
mod rows;
pub(crate) mod scalar_op;
mod summarize;
pub(crate) mod summary;
mod tile_program;
mod top_k;

pub(crate) use self::access::{Access, Base, Loop, LoopSet, Strides};
pub(crate) use self::attention::backward::{
    BackwardOperand, BackwardPhase, BackwardResult, BackwardScratch, BackwardSoftmax, ChainSlot, GROUP,
    OPERANDS, OperandForm, OuterAxis, PhaseOperand, RESULTS, SLOTS, TileChain, TypedTile,
};
pub(crate) use self::attention::chunk::{CHUNK, CHUNK_TILES, DECODE_ROWS};
pub(crate) use self::attention::decode::{DecodeCore, DecodePhase, DecodeScratch, DecodeTokens};
pub(crate) use self::attention::forward::{
    AttentionCore, AttentionOperand, AttentionPhase, AttentionResult, AttentionScratch, KEYS, PagedScratch,
    ScoreFactor, ScoreProgram, TensorMask, ValueProduct, WeightsProgram,
};
pub(crate) use self::attention::integers::{IntegerProducts, IntegerScratch, IntegerZeros, QuantizedWeights};
pub(crate) use self::attention::quantized_tokens::{QuantizedScratch, QuantizedTokens, SCALED_TOKENS};
pub(crate) use self::attention::ragged::{
    BlockCutter, BlockList, FewQueries, KeyRange, ListHead, ListTotal, RaggedBlock, RaggedPhase, RaggedTiles,
};
pub(crate) use self::attention::score_bound::{ScoreBound, ScoreOperand};
pub(crate) use self::attention::tile_class::{
    CLASS_PART, CLASS_TILE, ClassTable, ClassifyPhase, DIVIDED_TILES, MaskElement, MaskExpr, MaskNode,
    MaskOp, MaskedParts, TileClass, TileClassUses, class, clear_row, is_unchanged, largest_constant,
    masked_parts, note_constant, set_class, set_masked_parts,
};
pub(crate) use self::gemm::{
    Bias, DequantizedRight, Finish, GemmMethod, GemmOperand, GemmPhase, GemmScratch, IntegerProduct,
    LeftForm, PackPhase, RightForm, TapRows, TilePanels, WindowOperand,
};
pub(crate) use self::ids::{AccessId, OfSteps, OfValues, StepId, ValueId, indexed_by};
pub(crate) use self::lookup::{
    IndexCheck, IndexOperand, IndexRule, LookupAxis, LookupParts, LookupPhase, LookupWork, PartAxis,
    PlaceDim, SequenceLengths,
};
pub(crate) use self::nest::{LoopNest, MAX_LOOPS};
pub(crate) use self::paged::{
    LoadedSequences, PageTable, PagedPhase, PagedRows, PagedWork, PlainRows, SequenceSteps,
};
pub(crate) use self::phase::Phase;
pub(crate) use self::pool::{
    AxisTap, AxisTaps, PoolAcross, PoolDivisor, PoolOperand, PoolPhase, PoolPlanes, PoolScratch, PoolWork,
    RowRepeats,
};
pub(crate) use self::rows::{
    FoldFinish, FoldWork, FusedRows, Measured, PART, PRODUCT_ROWS, Packed, PlaceNumbers, PlacedRows, RowMap,
    RowParameter, RowPlace, RowWork, RowsPhase,
};
pub(crate) use self::tile_program::{
    Branch, Dest, FusedKernel, Instr, LookaheadPrefetch, Operand, Select, Step, StepSet, StepSpace,
    TileProgram, Traversal,
};
pub(crate) use self::top_k::{LINES, LineCopy, LineDim, LineForm, LineOperand, TopKPhase};
use crate::kernels::{LINE, StorePolicy};
use crate::types::fallback::{FallbackReason, FastForm};
use crate::types::shape::Dims;

/// An input and an output that may share one buffer, as indices among all ports, inputs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InPlacePorts {
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// A partition compiled for concrete shapes and layouts.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Dims and strides of each output, in elements, inferred or given.
    pub(crate) outputs: Vec<(Dims, Dims)>,
    /// Bytes from the first to the last element of each port, inputs first; 0 for shape-only inputs.
    pub(crate) sizes: Vec<usize>,
    /// The ports that may share one buffer.
    pub(crate) in_place: Vec<InPlacePorts>,
    /// The internal buffers, through which phases hand tensors to later ones. All threads of an execution
    /// share them.
    pub(crate) buffers: Vec<PlacedBuffer>,
    /// The phases, in the order in which they run.
    pub(crate) phases: Vec<Phase>,
    /// The phases that may run once for many executions.
    pub(crate) preparation: Preparation,
    /// Constants: one element, or several behind each other, from the start of a word of 8 bytes.
    pub(crate) constants: Vec<[u8; 8]>,
    /// Scratch of each thread, in bytes: that of the phase that needs most.
    pub(crate) scratch: usize,
    /// The cost of an execution.
    pub(crate) cost: Cost,
    /// The floating-point operations of each phase.
    pub(crate) phase_flops: Vec<usize>,
    /// The threads for an execution.
    pub(crate) threading: Threading,
    /// True if a step computes on floating-point numbers, which depends on the thread's environment.
    pub(crate) computes_floats: bool,
    /// The way of storing results; after non-temporal stores, each thread must end its chunks with a fence.
    pub(crate) stores: StorePolicy,
    /// The forms that it did not take.
    pub(crate) fallbacks: Vec<Fallback>,
    /// The indices that every execution checks.
    pub(crate) index_checks: Vec<IndexCheck>,
}

/// The place of an internal buffer in memory that precedes the scratch of the threads. Buffers share memory
/// whose phases do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlacedBuffer {
    /// The offset, which is that of a cache line.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl PlacedBuffer {
    /// Buffers one behind the other, each at a cache line.
    pub(crate) fn in_order(bytes: &[usize]) -> Vec<Self> {
        let behind = |offset: &mut usize, &bytes: &usize| {
            let buffer = Self { offset: *offset, bytes };
            *offset = buffer.end();
            Some(buffer)
        };
        bytes.iter().scan(0, behind).collect()
    }

    /// The end of its last cache line.
    pub(crate) fn end(self) -> usize {
        self.offset.saturating_add(self.bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX))
    }
}

/// A form that a plan did not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fallback {
    pub(crate) form: FastForm,
    /// The op of the form, by its index in the partition.
    pub(crate) op: usize,
    pub(crate) reason: FallbackReason,
}

/// The phases that read constant inputs alone, and so write the same in every execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Preparation {
    /// Their indices.
    pub(crate) phases: Vec<usize>,
    /// The inputs that they read.
    pub(crate) inputs: Vec<usize>,
    /// The buffers that they write for other phases; their memory is no other buffer's at another time.
    pub(crate) buffers: Vec<usize>,
}

/// The cost of an execution, by shapes alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes of the distinct elements of ports that are read and written, each counted once.
    pub(crate) bytes: usize,
    /// Floating-point operations: two for each multiplication with its addition in a product, one for each
    /// other function of an element.
    pub(crate) flops: usize,
    /// Time of the steps of all tiles, in bytes that could be moved in the same time.
    pub(crate) estimated_work: usize,
}

/// The threads that an execution is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threading {
    /// The caller's alone.
    Caller,
    /// The caller's and workers that are awake; none is woken for one execution.
    AwakeWorkers,
    /// The caller's and all workers.
    AllWorkers,
}

impl Plan {
    /// Bytes of all internal buffers, which precede the scratch of the threads.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.end()).max().unwrap_or(0)
    }

    /// Each buffer that the preparation writes, with its offset in memory for these buffers alone and with
    /// its bytes, rounded up to whole cache lines.
    pub(crate) fn preparation_offsets(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.preparation.buffers.iter().scan(0usize, |end, &buffer| {
            let (start, bytes) = (*end, self.buffers[buffer].end() - self.buffers[buffer].offset);
            *end = start.saturating_add(bytes);
            Some((buffer, start, bytes))
        })
    }
}
