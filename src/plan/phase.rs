//! The phases of a plan.
//!
//! The phases of a plan run one after another, with a join between two of them. They hand tensors to each
//! other through ports or through the plan's internal buffers. A phase is a number of tasks of fixed size,
//! which may run in any order and on any thread.
//!
//! A [`LoopNest`] is loops around 2-D tiles and a [`TileProgram`](super::TileProgram), which says what is
//! computed in a tile. In a [`Phase::Map`] a task is a tile, and all operands of the program are in memory.
//! Every other phase has a driver in `execute` of its own, which computes the phase's result and runs the
//! programs of its nests as prologue and epilogue. The driver gives the space of such a program when the
//! program is compiled (see `compile::elementwise`), and its operands when the program runs. The interpreter
//! requests an access whose base is [`Base::Driver`] only when a step needs the access, so a tile whose
//! Select needs no product never computes one.

use smallvec::{SmallVec, smallvec};

use super::access::{Access, Base};
use super::attention::backward::BackwardPhase;
use super::attention::decode::DecodePhase;
use super::attention::forward::AttentionPhase;
use super::attention::ragged::RaggedPhase;
use super::attention::tile_class::ClassifyPhase;
use super::gemm::{GemmPhase, PackPhase};
use super::ids::AccessId;
use super::lookup::LookupPhase;
use super::nest::LoopNest;
use super::paged::PagedPhase;
use super::pool::PoolPhase;
use super::rows::RowsPhase;
use super::tile_program::{Dest, Step};
use super::top_k::TopKPhase;
use crate::kernels::gemm::pack::SCRATCH;
use crate::types::kind::PhaseKind;

/// A part of a plan that runs after the part before it has ended.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most plans have one phase, which is a map")]
pub(crate) enum Phase {
    /// Elements that are computed on their own, tile by tile.
    Map(LoopNest),
    /// Elements that depend on whole rows, or numbers of rows.
    Rows(Box<RowsPhase>),
    /// The right operand of a product, packed into an internal buffer.
    Pack(PackPhase),
    /// Matrix products, tile by tile.
    Gemm(Box<GemmPhase>),
    /// Two products with a SoftMax between them, block of queries by block of queries.
    Attention(Box<AttentionPhase>),
    /// Attention of few queries, chunk of keys by chunk of keys.
    Decode(Box<DecodePhase>),
    /// The gradients of attention, head by head.
    AttentionBackward(Box<BackwardPhase>),
    /// The classes of tiles of masked scores, written to a table in an internal buffer.
    Classify(Box<ClassifyPhase>),
    /// The blocks of queries of sequences that follow each other, written to a list in an internal buffer.
    Ragged(Box<RaggedPhase>),
    /// Rows that go to or from places that indices name, or everywhere.
    Lookup(Box<LookupPhase>),
    /// The first elements of lines in order of size.
    TopK(Box<TopKPhase>),
    /// Rows of a result, each made of rows of a source.
    Pool(Box<PoolPhase>),
    /// Rows that go to or from a cache in pages.
    Paged(Box<PagedPhase>),
}

impl Phase {
    /// The kind that a summary of the plan shows.
    pub(crate) fn kind(&self) -> PhaseKind {
        match self {
            Self::Map(_) => PhaseKind::Map,
            Self::Rows(_) => PhaseKind::Rows,
            Self::Pack(_) => PhaseKind::Pack,
            Self::Gemm(_) => PhaseKind::Gemm,
            Self::Attention(_) | Self::Decode(_) => PhaseKind::Attention,
            Self::AttentionBackward(_) => PhaseKind::AttentionBackward,
            Self::Classify(_) | Self::Ragged(_) => PhaseKind::Classify,
            Self::Lookup(_) | Self::Paged(_) => PhaseKind::Lookup,
            Self::TopK(_) => PhaseKind::TopK,
            Self::Pool(_) => PhaseKind::Pool,
        }
    }

    /// Number of tasks, which may run in any order and on any thread.
    pub(crate) fn tasks(&self) -> usize {
        match self {
            Self::Map(nest) => nest.tiles(),
            Self::Rows(rows) => rows.tasks(),
            Self::Pack(pack) => pack.nest.tiles(),
            Self::Gemm(gemm) => gemm.nest.tiles(),
            Self::Attention(attention) => attention.tasks(),
            Self::Decode(decode) => decode.tasks(),
            Self::AttentionBackward(backward) => backward.tasks(),
            Self::Classify(classify) => classify.tasks(),
            Self::Ragged(_) => 1,
            Self::Lookup(lookup) => lookup.parts.count,
            Self::TopK(top_k) => top_k.tasks(),
            Self::Pool(pool) => pool.tasks(),
            Self::Paged(paged) => paged.parts.count,
        }
    }

    /// The mask whose tiles have classes, if the phase finds these, or blocks of queries in place of them.
    pub(crate) fn mask(&self) -> Option<&ClassifyPhase> {
        match self {
            Self::Classify(classify) => Some(classify),
            Self::Ragged(ragged) => Some(&ragged.mask),
            _ => None,
        }
    }

    /// Bytes of scratch of one thread.
    pub(crate) fn scratch(&self) -> usize {
        match self {
            Self::Map(nest) => nest.program.scratch,
            Self::Rows(rows) => rows.scratch(),
            Self::Pack(_) => SCRATCH,
            Self::Gemm(gemm) => gemm.layout.end,
            Self::Attention(attention) => attention.layout.end,
            Self::Decode(decode) => decode.layout.end,
            Self::AttentionBackward(backward) => backward.layout.end,
            Self::Classify(_) | Self::Ragged(_) | Self::Lookup(_) | Self::Paged(_) => 0,
            Self::TopK(top_k) => top_k.scratch,
            Self::Pool(pool) => pool.scratch.end,
        }
    }

    /// The nests of its tile programs.
    pub(crate) fn nests(&self) -> SmallVec<[&LoopNest; 2]> {
        match self {
            Self::Map(nest) => smallvec![nest],
            Self::Rows(rows) => rows.programs().collect(),
            Self::Pack(_)
            | Self::Classify(_)
            | Self::Ragged(_)
            | Self::Lookup(_)
            | Self::TopK(_)
            | Self::Pool(_)
            | Self::Paged(_) => smallvec![],
            Self::Gemm(gemm) => smallvec![&gemm.nest],
            Self::Attention(attention) => attention.nests(),
            Self::Decode(decode) => decode.nests(),
            Self::AttentionBackward(backward) => backward.nests(),
        }
    }

    /// The bases that the phase reads, and those that it writes; `None` unless it computes single elements or
    /// packs an operand.
    pub(crate) fn reads_and_writes(&self) -> Option<(Vec<Base>, Vec<Base>)> {
        let (nest, written): (&LoopNest, Vec<AccessId>) = match self {
            Self::Map(nest) => {
                let to = |step: &Step| match step.to {
                    Dest::Access(to) => Some(to),
                    Dest::Scratch(..) => None,
                };
                (nest, nest.program.steps.iter().filter_map(to).collect())
            }
            Self::Pack(pack) => {
                let written = [PackPhase::TO, PackPhase::SUMS];
                let end = pack.nest.program.next_access();
                (&pack.nest, written.into_iter().filter(|&to| to < end).collect())
            }
            Self::Rows(_)
            | Self::Gemm(_)
            | Self::Attention(_)
            | Self::AttentionBackward(_)
            | Self::Decode(_)
            | Self::Classify(_)
            | Self::Ragged(_)
            | Self::Lookup(_)
            | Self::TopK(_)
            | Self::Pool(_)
            | Self::Paged(_) => return None,
        };
        let accesses = nest.program.accesses.iter().enumerate();
        let (writes, reads): (Vec<_>, Vec<_>) =
            accesses.partition(|&(index, _)| written.contains(&AccessId(index)));
        let bases =
            |accesses: Vec<(usize, &Access)>| accesses.iter().map(|(_, access)| access.base).collect();
        Some((bases(reads), bases(writes)))
    }

    /// True if the driver of the phase reads a port itself, beside the tile programs.
    pub(crate) fn driver_reads(&self, port: usize) -> bool {
        match self {
            Self::Map(_) => false,
            Self::Rows(rows) => {
                rows.nest.program.accesses.iter().any(|access| access.base == Base::Port(port))
            }
            Self::Pack(pack) => pack.nest.program.accesses[PackPhase::FROM].base == Base::Port(port),
            Self::Gemm(gemm) => gemm.reads().any(|base| base == Base::Port(port)),
            Self::Attention(attention) => attention.reads().any(|base| base == Base::Port(port)),
            Self::Decode(decode) => decode.reads().any(|base| base == Base::Port(port)),
            Self::AttentionBackward(backward) => backward.reads().any(|base| base == Base::Port(port)),
            Self::Classify(classify) => {
                classify.reads().chain(classify.reads_of_scores()).any(|base| base == Base::Port(port))
            }
            Self::Ragged(ragged) => ragged.reads().any(|base| base == Base::Port(port)),
            Self::Lookup(lookup) => lookup.reads().any(|base| base == Base::Port(port)),
            Self::TopK(top_k) => top_k.source.base == Base::Port(port),
            Self::Pool(pool) => pool.reads().any(|base| base == Base::Port(port)),
            Self::Paged(paged) => paged.reads().any(|base| base == Base::Port(port)),
        }
    }

    /// True if the phase reads a port.
    pub(crate) fn reads(&self, port: usize) -> bool {
        let mut accesses = self.nests().into_iter().flat_map(|nest| &nest.program.accesses);
        self.driver_reads(port) || accesses.any(|access| access.base == Base::Port(port))
    }

    /// The starts of all accesses, of its tile programs and of its driver.
    pub(crate) fn bases(&self) -> Vec<Base> {
        let of_nest = |nest: &LoopNest| -> Vec<Base> {
            nest.program.accesses.iter().map(|access| access.base).collect()
        };
        match self {
            Self::Map(nest) => of_nest(nest),
            Self::Rows(rows) => rows.programs().chain([&rows.nest]).flat_map(of_nest).collect(),
            Self::Pack(pack) => of_nest(&pack.nest),
            Self::Gemm(gemm) => of_nest(&gemm.nest),
            Self::Attention(attention) => {
                let classes = attention.classes.iter().map(|table| table.base);
                let list = attention.ragged.map(|ragged| ragged.list.buffer);
                attention.nests().into_iter().flat_map(of_nest).chain(classes).chain(list).collect()
            }
            Self::Decode(decode) => {
                decode.nests().into_iter().flat_map(of_nest).chain(decode.buffers()).collect()
            }
            Self::AttentionBackward(backward) => {
                let classes = backward.classes.iter().map(|table| table.base);
                backward.nests().into_iter().flat_map(of_nest).chain(classes).collect()
            }
            Self::Classify(classify) => {
                classify.reads().chain(classify.reads_of_scores()).chain([classify.table]).collect()
            }
            Self::Ragged(ragged) => ragged.reads().chain([ragged.list.buffer]).collect(),
            Self::Lookup(lookup) => lookup.reads().chain([lookup.written()]).collect(),
            Self::TopK(top_k) => [top_k.source.base].into_iter().chain(top_k.written()).collect(),
            Self::Pool(pool) => pool.reads().chain([pool.written()]).collect(),
            Self::Paged(paged) => paged.reads().chain([paged.written()]).collect(),
        }
    }
}
