//! What compilation hands to execution: every decision that can be made before data exists. Data only.
//!
//! A [`Plan`] is a list of loop [`LoopNest`]s. A nest goes through tiles of a 2-D loop space and, in each
//! tile, runs its root [`Step`]s after the steps on which those depend. Nothing in a plan has an id: tensors
//! are ports by position.

pub(crate) mod loops;
pub(crate) mod scalar_op;
pub(crate) mod summary;

use smallvec::{SmallVec, smallvec};

use self::loops::{Loop, Role};
use self::scalar_op::StepLabel;
use crate::kernels::fused::FusedProgram;
use crate::kernels::pack::{PackTile, UnpackTile};
use crate::kernels::pointwise::{Kernel1, Kernel2, Params, Ramp};
use crate::kernels::select::{Blend, BlendRows, MaskTest, Move, PrefetchDistance, SelectInPlace};
use crate::kernels::{Extent, InnerStride, StorePolicy};
use crate::types::shape::{Dims, MAX_RANK};

/// The most loops around the tiles of a nest: one a dim, and blocks of rows and of columns.
pub(crate) const MAX_LOOPS: usize = MAX_RANK + 2;

/// Bytes moved, or work that takes as long, from which on an execution is worth waking workers for. Of workers that have
/// slept for 3 ms, waking costs the caller some 5 to 10 µs: a tenth of what moving 7 MB takes one thread, and nothing
/// that shows from 8 MiB on. The bench `overhead` measures it (`asleep`).
pub(crate) const PARALLEL_BYTES: usize = 8 * 1024 * 1024;

/// A partition compiled for concrete shapes and layouts.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Dims and strides of each output, in elements, inferred or as given.
    pub(crate) outputs: Vec<(Dims, Dims)>,
    /// Bytes from the first to the last element of each port, inputs first; 0 for inputs that lend only their shape.
    pub(crate) sizes: Vec<usize>,
    /// Inputs whose very buffer an output may be: positions among the inputs and among the outputs.
    pub(crate) in_place: Vec<(usize, usize)>,
    /// The loop nests, in the order in which they run.
    pub(crate) nests: Vec<LoopNest>,
    /// Elements that are the same everywhere, in 8 bytes each.
    pub(crate) constants: Vec<[u8; 8]>,
    /// Scratch that each thread needs, in bytes.
    pub(crate) scratch: usize,
    /// Bytes of the distinct elements that are read and written, each counted once.
    pub(crate) bytes_moved: usize,
    /// How much there is to do, in bytes that could be moved meanwhile.
    pub(crate) estimated_work: usize,
    /// Whether some step computes on floating-point numbers, which depends on the thread's environment.
    pub(crate) computes_floats: bool,
    /// Whether results are stored non-temporally, so that each thread that ran a chunk ends with a fence.
    pub(crate) stores: StorePolicy,
}

/// Loops that run together over tiles, and the steps done in each tile.
#[derive(Debug)]
pub(crate) struct LoopNest {
    /// The loops around the tiles, the outermost first: those of the index space that are not in a tile, and blocks of
    /// rows and of columns.
    pub(crate) loops: SmallVec<[Loop; 6]>,
    /// Which of the loops goes through blocks of rows.
    pub(crate) row_blocks: usize,
    /// Which of the loops goes through blocks of columns.
    pub(crate) column_blocks: usize,
    /// Rows and columns of the whole index space within the loops.
    pub(crate) space: Extent,
    /// Rows and columns of a tile; the last ones of a row or column of tiles may be smaller.
    pub(crate) tile: Extent,
    /// The steps; each stands behind those that it needs.
    pub(crate) steps: Vec<Step>,
    /// The steps that are run in each tile, in this order; they need the others.
    pub(crate) roots: SmallVec<[usize; 2]>,
    /// For each loop: the steps whose results its next iteration invalidates.
    pub(crate) invalidated_by: SmallVec<[StepSet; 4]>,
    /// What the steps access, with the strides inside a tile.
    pub(crate) accesses: SmallVec<[Access; 4]>,
    /// Where in the thread's scratch there is room for one fused kernel.
    pub(crate) fused_scratch: usize,
    /// What is prefetched for a branch that other tiles skip.
    pub(crate) lookahead: Option<LookaheadPrefetch>,
}

/// Inputs that the hardware prefetcher cannot predict because the previous tile skipped them. Heavy kernels
/// prefetch the next such tile a few lines a block; the rest is prefetched when its tile starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookaheadPrefetch {
    /// The step that gives the branch.
    pub(crate) step: usize,
    /// Accesses that are one piece of memory in a tile.
    pub(crate) accesses: SmallVec<[usize; 4]>,
    /// The access of the input that is the condition and the value that selects the branch, if one element
    /// decides for a tile.
    pub(crate) cond: Option<(usize, bool)>,
    /// The one of the accesses that is read where the branch is not computed: the other branch.
    pub(crate) copied: Option<usize>,
    /// The access of what the branch ends up in.
    pub(crate) result: Option<usize>,
}

impl Base {
    /// The input that is accessed, of so many.
    pub(crate) fn input(self, inputs: usize) -> Option<usize> {
        match self {
            Self::Port(port) if port < inputs => Some(port),
            _ => None,
        }
    }
}

impl LoopNest {
    /// How many tiles there are.
    pub(crate) fn tiles(&self) -> usize {
        self.loops.iter().filter(|l| l.role == Role::Spatial).map(|l| l.extent).product()
    }
}

/// A set of steps of a nest. The first 64, which is more than most groups have, take no allocation and no loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepSet {
    first: u64,
    rest: Vec<u64>,
}

impl StepSet {
    /// None of so many steps.
    #[inline]
    pub(crate) fn none_of(steps: usize) -> Self {
        let rest = if steps > 64 { vec![0; steps.div_ceil(64) - 1] } else { Vec::new() };
        Self { first: 0, rest }
    }

    #[inline]
    pub(crate) fn insert(&mut self, step: usize) {
        let word = if step < 64 { &mut self.first } else { &mut self.rest[step / 64 - 1] };
        *word |= 1 << (step % 64);
    }

    #[inline]
    pub(crate) fn contains(&self, step: usize) -> bool {
        let word = if step < 64 { self.first } else { self.rest[step / 64 - 1] };
        word & (1 << (step % 64)) != 0
    }

    /// Takes all steps of another set out of this one.
    #[inline]
    pub(crate) fn remove_all(&mut self, other: &Self) {
        self.first &= !other.first;
        self.rest.iter_mut().zip(&other.rest).for_each(|(word, other)| *word &= !other);
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.first = 0;
        self.rest.fill(0);
    }
}

/// A strided access; its strides along the loops stand in the loops, at the index of the access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// Where it starts.
    pub(crate) base: Base,
    /// Bytes from one row of a tile to the next.
    pub(crate) row_stride: isize,
    /// Bytes from one element of a row to the next.
    pub(crate) col_stride: isize,
}

/// Where an access starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// At a port, by its place among the inputs followed by the outputs.
    Port(usize),
    /// At one of the plan's constants.
    Constant(usize),
    /// At 0: the access is through indices, not through memory, and its strides count in ones.
    Index,
}

/// Where a step finds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// In memory, by the index of the access.
    Access(usize),
    /// With the result of another step, by its index.
    Step(usize),
}

impl Operand {
    /// The step whose result it is.
    pub(crate) fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            Self::Access(_) => None,
        }
    }
}

/// Where a step leaves its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dest {
    /// At a port, by the index of the access.
    Port(usize),
    /// In the thread's scratch: byte offset, and bytes from one row to the next.
    Scratch(usize, usize),
}

/// One thing done in a tile.
///
/// A step is run when another one needs it or when it is a root, and not again before the next iteration of a
/// loop along which its result varies, so what nobody needs in a tile is not done.
#[derive(Debug)]
pub(crate) struct Step {
    /// What it does, one thing after another, by name: for where the plan is shown.
    pub(crate) labels: SmallVec<[StepLabel; 1]>,
    /// What is done.
    pub(crate) instr: Instr,
    /// Where the result goes.
    pub(crate) to: Dest,
    /// Whether the result varies from row to row, and along a row.
    pub(crate) space: StepSpace,
    /// How its elements are traversed.
    pub(crate) traversal: Traversal,
}

/// How a step goes through its part of a tile. One long row takes less time than many short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traversal {
    /// Row by row.
    RowByRow,
    /// As one row: the rows of the result and of all operands follow each other without a gap.
    Flat,
    /// As one row: the result and all operands have one element a row, and these follow each other without a gap.
    Column,
}

/// The part of a tile's index space that a step iterates over; along the rest, its result is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepSpace {
    /// Whether the result differs from row to row.
    pub(crate) rows: bool,
    /// How the result runs along a row.
    pub(crate) columns: InnerStride,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Instr {
    /// Makes a strided operand contiguous, at a prefetch distance.
    PackTile { from: usize, distance: isize, kernel: PackTile },
    /// Spreads a result over a strided port.
    UnpackTile { from: Operand, kernel: UnpackTile },
    /// Moves elements as they are.
    Move { from: Operand, kernel: Move },
    /// Computes a function of one operand.
    Unary { x: Operand, kernel: Kernel1, params: Params },
    /// Computes a function of two operands.
    Binary { x: Operand, y: Operand, kernel: Kernel2, params: Params },
    /// Writes the index of each element.
    Index { access: usize, kernel: Ramp },
    /// Chooses between two operands.
    Select(Select),
    /// Does several of these at once.
    FusedKernel(FusedKernel),
}

impl Instr {
    /// The operands.
    pub(crate) fn operands(&self) -> SmallVec<[Operand; 3]> {
        match self {
            &Self::PackTile { from: access, .. } | &Self::Index { access, .. } => {
                smallvec![Operand::Access(access)]
            }
            &Self::UnpackTile { from, .. } | &Self::Move { from, .. } => smallvec![from],
            &Self::Unary { x, .. } => smallvec![x],
            &Self::Binary { x, y, .. } => smallvec![x, y],
            Self::Select(select) => smallvec![select.cond, select.then.operand, select.else_.operand],
            Self::FusedKernel(fused) => fused.operands.clone(),
        }
    }

    /// Gives the steps whose results are operands other numbers.
    pub(crate) fn renumber(&mut self, numbers: &[usize]) {
        let operands: SmallVec<[&mut Operand; 3]> = match self {
            Self::PackTile { .. } | Self::Index { .. } => smallvec![],
            Self::UnpackTile { from, .. } | Self::Move { from, .. } => smallvec![from],
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
    pub(crate) fn deps(&self) -> impl Iterator<Item = usize> {
        self.operands().into_iter().filter_map(Operand::step)
    }
}

/// A register-fused kernel: several steps at once, whose intermediate values stay in registers.
#[derive(Debug)]
pub(crate) struct FusedKernel {
    pub(crate) program: FusedProgram,
    /// The operands, as many as the program has.
    pub(crate) operands: SmallVec<[Operand; 3]>,
}

/// The operands and kernels of a select.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) cond: Operand,
    /// How the condition runs along a row: where it is repeated, whole rows are moved.
    pub(crate) cond_inner: InnerStride,
    pub(crate) then: Branch,
    pub(crate) else_: Branch,
    /// Tests the condition of a tile, where a branch is made by a step that a mask test may skip. Of branches in memory,
    /// the kernels themselves read only what is needed.
    pub(crate) classify_mask: Option<MaskTest>,
    pub(crate) blend: Blend,
    /// How the result is stored; of a result in place, what is not merged with what is there.
    pub(crate) stores: StorePolicy,
    /// The prefetch distances of `blend`.
    pub(crate) distance: PrefetchDistance,
    /// Chooses rows by a condition that is repeated along them, where both branches are dense and in memory.
    pub(crate) blend_rows: Option<BlendRows>,
}

impl Select {
    /// The steps that give its branches, which a mask test may skip.
    pub(crate) fn computed_branches(&self) -> impl Iterator<Item = usize> {
        [self.then.operand, self.else_.operand].into_iter().filter_map(Operand::step)
    }
}

/// One side of a select.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) operand: Operand,
    /// Moves the whole of the branch to the result.
    pub(crate) copy: Move,
    /// The same, where the result is in place of the other branch.
    pub(crate) copy_in_place: Move,
    /// If the result is in place of this branch: selects the other one into it.
    pub(crate) select_in_place: SelectInPlace,
    /// The input whose buffer the result may be, where this branch is that input.
    pub(crate) in_place_of: Option<usize>,
}
