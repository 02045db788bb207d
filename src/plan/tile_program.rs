//! The program of one 2-D tile: steps, and the accesses that they read and write.

use smallvec::{SmallVec, smallvec};

use super::access::Access;
use super::ids::{AccessId, OfSteps, StepId, indexed_by};
use super::register_fusion::RegisterFusionVerdict;
use super::scalar_op::StepLabel;
use crate::kernels::by_width::PackTile;
use crate::kernels::fused::FusedProgram;
use crate::kernels::pointwise::{IsKept, Kernel1, Kernel2, Nibbles, Params, Ramp};
use crate::kernels::select::{Blend, BlendRows, MaskTest, Move, PrefetchDistance, SelectInPlace};
use crate::kernels::unpack::UnpackTile;
use crate::kernels::{InnerStride, StorePolicy, Width};

/// The computation in a 2-D tile. A tile program knows neither the loops around the tile nor the addresses
/// of its accesses; the driver of its phase does.
#[derive(Debug, Default)]
pub(crate) struct TileProgram {
    /// The steps, each after its dependencies.
    pub(crate) steps: Vec<Step>,
    /// The steps that run in each tile, in this order, after their dependencies.
    pub(crate) roots: SmallVec<[StepId; 2]>,
    /// For each loop around the tiles: the steps whose results vary along the loop. If the loop has advanced
    /// from one tile to the next, these results are no longer valid.
    pub(crate) invalidated_by: SmallVec<[StepSet; 4]>,
    /// The accesses of the steps, with the strides inside a tile.
    pub(crate) accesses: SmallVec<[Access; 4]>,
    /// Offset in the program's scratch of the room for one fused kernel.
    pub(crate) fused_scratch: usize,
    /// Bytes of scratch of one thread, for the results of steps and one fused kernel.
    pub(crate) scratch: usize,
    /// Prefetch for a branch that other tiles skip.
    pub(crate) lookahead: Option<LookaheadPrefetch>,
}

impl TileProgram {
    /// The access that would be the next one, behind all others.
    pub(crate) fn next_access(&self) -> AccessId {
        AccessId(self.accesses.len())
    }
}

/// Inputs that the hardware prefetcher cannot predict because the previous tile skipped them. Heavy kernels
/// prefetch the next such tile a few lines a block; the rest is prefetched when its tile starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookaheadPrefetch {
    /// Number of tiles to look through for the next one that computes the branch.
    pub(crate) tiles: usize,
    /// The step that computes the branch.
    pub(crate) step: StepId,
    /// Accesses that read one range of memory in a tile.
    pub(crate) accesses: SmallVec<[AccessId; 4]>,
    /// The access of the input that is the condition and the value that selects the branch, if one element
    /// decides for a tile.
    pub(crate) cond: Option<(AccessId, bool)>,
    /// The access that is read if the branch is not computed: the other branch.
    pub(crate) copied: Option<AccessId>,
    /// The access of the result to which the branch goes.
    pub(crate) result: Option<AccessId>,
}

/// A set of steps of a tile program. The first 64, which is more than most groups have, need no allocation
/// and no loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepSet {
    first: u64,
    rest: Vec<u64>,
}

impl StepSet {
    /// The empty set, for a number of steps.
    #[inline]
    pub(crate) fn none_of(steps: usize) -> Self {
        let rest = if steps > 64 { vec![0; steps.div_ceil(64) - 1] } else { Vec::new() };
        Self { first: 0, rest }
    }

    /// Adds a step, and tells whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, StepId(step): StepId) -> bool {
        let word = if step < 64 { &mut self.first } else { &mut self.rest[step / 64 - 1] };
        let (bit, before) = (1 << (step % 64), *word);
        *word |= bit;
        before & bit == 0
    }

    #[inline]
    pub(crate) fn contains(&self, StepId(step): StepId) -> bool {
        let word = if step < 64 { self.first } else { self.rest[step / 64 - 1] };
        word & (1 << (step % 64)) != 0
    }

    /// Removes all steps of another set from this one.
    #[inline]
    pub(crate) fn remove_all(&mut self, other: &Self) {
        self.first &= !other.first;
        self.rest.iter_mut().zip(&other.rest).for_each(|(word, other)| *word &= !other);
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.first = 0;
        // A call for no bytes may store under an empty mask to no memory, which takes as long as a fault
        // (decision: empty-fill).
        if !self.rest.is_empty() {
            self.rest.fill(0);
        }
    }
}

impl Extend<StepId> for StepSet {
    fn extend<I: IntoIterator<Item = StepId>>(&mut self, steps: I) {
        for step in steps {
            self.insert(step);
        }
    }
}

/// Location of a step's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// In memory.
    Access(AccessId),
    /// The result of another step.
    Step(StepId),
}

impl Operand {
    /// The step that computes it.
    pub(crate) fn step(self) -> Option<StepId> {
        match self {
            Self::Step(step) => Some(step),
            Self::Access(_) => None,
        }
    }
}

/// Destination of a step's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dest {
    /// In memory.
    Access(AccessId),
    /// In the thread's scratch: byte offset, and row stride in bytes.
    Scratch(usize, usize),
}

/// One operation in a tile.
///
/// A step runs if it is a root or if another step needs its result. It runs again only after an iteration of
/// a loop along which the result varies. So a result that no step needs in a tile is not computed.
#[derive(Debug)]
pub(crate) struct Step {
    /// The operations of the step, one after another, for showing the plan.
    pub(crate) labels: SmallVec<[StepLabel; 1]>,
    /// The operation.
    pub(crate) instr: Instr,
    /// Destination of the result.
    pub(crate) to: Dest,
    /// The axes, rows and columns, along which the result varies.
    pub(crate) space: StepSpace,
    /// How its elements are traversed.
    pub(crate) traversal: Traversal,
    /// Why register fusion did not fuse the step further.
    pub(crate) register_fusion: RegisterFusionVerdict,
}

indexed_by! {
    Vec<Step>, StepId, Step;
}

/// How a step traverses its part of a tile. One long row takes less time than many short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traversal {
    /// Row by row.
    RowByRow,
    /// As one row: the rows of the result and of all operands follow each other without a gap.
    Flat,
    /// As one row: the result and all operands have one element a row, and these follow each other without a
    /// gap.
    Column,
}

/// The part of a tile's index space over which a step iterates; along the rest, its result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepSpace {
    /// True if the result differs from row to row.
    pub(crate) rows: bool,
    /// Inner stride of the result.
    pub(crate) columns: InnerStride,
}

/// Operation of a step.
#[derive(Debug)]
pub(crate) enum Instr {
    /// Packs a strided operand, at a prefetch distance.
    PackTile { from: AccessId, distance: isize, kernel: PackTile },
    /// Unpacks a result to a strided port.
    UnpackTile { from: Operand, kernel: UnpackTile },
    /// Copies elements.
    Move { from: Operand, kernel: Move },
    /// Copies one row to every row of a whole tile.
    Repeat { from: Operand, width: Width, rows: usize },
    /// Computes a function of one operand.
    Unary { x: Operand, kernel: Kernel1, params: Params },
    /// Computes a function of two operands.
    Binary { x: Operand, y: Operand, kernel: Kernel2, params: Params },
    /// Writes the index of each element.
    Index { access: AccessId, kernel: Ramp },
    /// Writes elements of four bits as bytes; an access is at the number of each element, counted from the
    /// start of the other access.
    Nibbles { index: AccessId, from: AccessId, kernel: Nibbles },
    /// Writes whether Dropout keeps each element, by the index at which an access is.
    IsKept { access: AccessId, seed: Operand, offset: Operand, probability: Operand, kernel: IsKept },
    /// Selects between two operands.
    Select(Select),
    /// Several operations, fused in registers.
    FusedKernel(FusedKernel),
}

impl Instr {
    /// The operands.
    pub(crate) fn operands(&self) -> SmallVec<[Operand; 3]> {
        match self {
            &Self::PackTile { from: access, .. } | &Self::Index { access, .. } => {
                smallvec![Operand::Access(access)]
            }
            &Self::Nibbles { index, from, .. } => smallvec![Operand::Access(index), Operand::Access(from)],
            &Self::IsKept { access, seed, offset, probability, .. } => {
                smallvec![Operand::Access(access), seed, offset, probability]
            }
            &Self::UnpackTile { from, .. } | &Self::Move { from, .. } | &Self::Repeat { from, .. } => {
                smallvec![from]
            }
            &Self::Unary { x, .. } => smallvec![x],
            &Self::Binary { x, y, .. } => smallvec![x, y],
            Self::Select(select) => smallvec![select.cond, select.then.operand, select.else_.operand],
            Self::FusedKernel(fused) => fused.operands.clone(),
        }
    }

    /// Renumbers the steps whose results are operands.
    pub(crate) fn renumber(&mut self, numbers: &OfSteps<StepId>) {
        let operands: SmallVec<[&mut Operand; 3]> = match self {
            Self::PackTile { .. } | Self::Index { .. } | Self::Nibbles { .. } => smallvec![],
            Self::IsKept { seed, offset, probability, .. } => smallvec![seed, offset, probability],
            Self::UnpackTile { from, .. } | Self::Move { from, .. } | Self::Repeat { from, .. } => {
                smallvec![from]
            }
            Self::Unary { x, .. } => smallvec![x],
            Self::Binary { x, y, .. } => smallvec![x, y],
            Self::Select(select) => {
                smallvec![&mut select.cond, &mut select.then.operand, &mut select.else_.operand]
            }
            Self::FusedKernel(fused) => fused.operands.iter_mut().collect(),
        };
        for operand in operands {
            if let Operand::Step(step) = operand {
                *step = numbers[*step];
            }
        }
    }

    /// The steps whose results are operands.
    pub(crate) fn deps(&self) -> impl Iterator<Item = StepId> {
        self.operands().into_iter().filter_map(Operand::step)
    }
}

/// A register-fused kernel: several steps at once, whose intermediate values stay in registers.
#[derive(Debug)]
pub(crate) struct FusedKernel {
    pub(crate) program: FusedProgram,
    /// The operands of the program.
    pub(crate) operands: SmallVec<[Operand; 3]>,
}

/// The operands and kernels of a select.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) cond: Operand,
    /// Inner stride of the condition. If it is repeated, whole rows are moved.
    pub(crate) cond_inner: InnerStride,
    pub(crate) then: Branch,
    pub(crate) else_: Branch,
    /// Tests the condition of a tile, if a step computes a branch and may be skipped. For branches in memory,
    /// the kernels themselves read only what is needed.
    pub(crate) classify_mask: Option<MaskTest>,
    pub(crate) blend: Blend,
    /// Store policy of the result; in place, that of elements that are not merged with the target.
    pub(crate) stores: StorePolicy,
    /// The prefetch distances of `blend`.
    pub(crate) distance: PrefetchDistance,
    /// Selects whole rows, if the condition is repeated along them and both branches are contiguous and in
    /// memory.
    pub(crate) blend_rows: Option<BlendRows>,
}

impl Select {
    /// The steps that compute its branches, which a mask test may skip.
    pub(crate) fn computed_branches(&self) -> impl Iterator<Item = StepId> {
        [self.then.operand, self.else_.operand].into_iter().filter_map(Operand::step)
    }
}

/// One side of a select.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) operand: Operand,
    /// Copies the whole branch to the result.
    pub(crate) copy: Move,
    /// Copies the branch to the result, if the result is in place of the other branch.
    pub(crate) copy_in_place: Move,
    /// If the result is in place of this branch: selects the other branch into it.
    pub(crate) select_in_place: SelectInPlace,
    /// The input that is this branch, if the result may share its buffer.
    pub(crate) in_place_of: Option<usize>,
}
