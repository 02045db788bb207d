//! What compilation hands to execution: every decision that can be made before data exists. Data only.
//!
//! A [`Plan`] is a list of loop [`Nest`]s. A nest walks tiles of a 2-D loop space and, in each tile, runs its root
//! [`Step`]s, which pull the steps that they need. Nothing in a plan has an id: tensors are ports by position.

pub(crate) mod loops;
pub(crate) mod summary;
pub(crate) mod task;

use smallvec::{SmallVec, smallvec};

use self::loops::{Loop, Role};
use self::task::Deed;
use crate::kernels::chain::Program;
use crate::kernels::pack::{Gather, Scatter};
use crate::kernels::pointwise::{Kernel1, Kernel2, Params, Ramp};
use crate::kernels::select::{Ahead, Blend, BlendRows, Judge, Merge, Move};
use crate::kernels::{Extent, Inner, Stores};
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
    pub(crate) nests: Vec<Nest>,
    /// Elements that are the same everywhere, in 8 bytes each.
    pub(crate) constants: Vec<[u8; 8]>,
    /// Scratch that each thread needs, in bytes.
    pub(crate) scratch: usize,
    /// Bytes of the distinct elements that are read and written, each counted once.
    pub(crate) bytes_moved: usize,
    /// How much there is to do, in bytes that could be moved meanwhile.
    pub(crate) effort: usize,
    /// Whether some step computes on floating-point numbers, which depends on the thread's environment.
    pub(crate) computes_floats: bool,
    /// Whether results are stored past the caches, which each thread that ran a share has to end with a fence.
    pub(crate) stores: Stores,
}

/// Loops that run together over tiles, and the steps done in each tile.
#[derive(Debug)]
pub(crate) struct Nest {
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
    /// The steps; each stands behind those that it pulls.
    pub(crate) steps: Vec<Step>,
    /// The steps that are run in each tile, in this order; they pull the others.
    pub(crate) roots: SmallVec<[usize; 2]>,
    /// For each loop: the steps whose results are out of date when it turns.
    pub(crate) outdated: SmallVec<[StepSet; 4]>,
    /// What the steps walk, with the strides inside a tile.
    pub(crate) walks: SmallVec<[Walk; 4]>,
    /// Where in the thread's scratch there is room for one chain.
    pub(crate) chain_scratch: usize,
    /// What is asked for before a branch reads it that is spared in other tiles.
    pub(crate) sudden: Option<Sudden>,
}

/// What the machine does not see coming: the inputs of a tile behind one that did not read them. Those of the next tile that
/// computes the branch are asked for bit by bit in functions that take long, and what is left of this tile's own, all at once,
/// before the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sudden {
    /// The step that gives the branch.
    pub(crate) step: usize,
    /// Walks that are one piece of memory in a tile.
    pub(crate) walks: SmallVec<[usize; 4]>,
    /// The walk of the input that is a condition, and when that asks for the branch, where one element decides for a tile.
    pub(crate) cond: Option<(usize, bool)>,
    /// The one of the walks that is read where the branch is not computed: the other branch.
    pub(crate) copied: Option<usize>,
    /// The walk of what the branch ends up in.
    pub(crate) result: Option<usize>,
}

impl Base {
    /// The input that is walked, of so many.
    pub(crate) fn input(self, inputs: usize) -> Option<usize> {
        match self {
            Self::Port(port) if port < inputs => Some(port),
            _ => None,
        }
    }
}

impl Nest {
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

/// How something is walked; the steps along the loops stand in the loops, at the same index as the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Where it starts.
    pub(crate) base: Base,
    /// Bytes from one row of a tile to the next.
    pub(crate) pitch: isize,
    /// Bytes from one element of a row to the next.
    pub(crate) step: isize,
}

/// Where a walk starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// At a port, by its place among the inputs followed by the outputs.
    Port(usize),
    /// At one of the plan's constants.
    Constant(usize),
    /// At 0: the walk is through indices, not through memory, and its strides count in ones.
    Index,
}

/// Where a step finds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// In memory, by the index of the walk.
    Walk(usize),
    /// With the result of another step, by its index.
    Step(usize),
}

impl Feed {
    /// The step whose result it is.
    pub(crate) fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            Self::Walk(_) => None,
        }
    }
}

/// Where a step leaves its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a port, by the index of the walk.
    Port(usize),
    /// In the thread's scratch: byte offset, and bytes from one row to the next.
    Scratch(usize, usize),
}

/// One thing done in a tile.
///
/// A step is run when another one pulls it or when it is a root, and not again before a loop turns along which its
/// result varies, so what nobody needs in a tile is not done.
#[derive(Debug)]
pub(crate) struct Step {
    /// What it does, one thing after another, by name: for where the plan is shown.
    pub(crate) deeds: SmallVec<[Deed; 1]>,
    /// What is done.
    pub(crate) work: Work,
    /// Where the result goes.
    pub(crate) to: Place,
    /// Whether the result varies from row to row, and along a row.
    pub(crate) space: StepSpace,
    /// How its elements are gone through.
    pub(crate) sweep: Sweep,
}

/// How a step goes through its part of a tile. One long row takes less time than many short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Row by row.
    Rows,
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
    pub(crate) columns: Inner,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    /// Makes a strided operand dense, and asks for what lies so many bytes ahead.
    Gather { from: usize, ahead: isize, kernel: Gather },
    /// Spreads a result over a strided port.
    Scatter { from: Feed, kernel: Scatter },
    /// Moves elements as they are.
    Move { from: Feed, kernel: Move },
    /// Computes a function of one operand.
    One { x: Feed, kernel: Kernel1, params: Params },
    /// Computes a function of two operands.
    Two { x: Feed, y: Feed, kernel: Kernel2, params: Params },
    /// Writes down where it is.
    Index { walk: usize, kernel: Ramp },
    /// Chooses between two operands.
    Select(Select),
    /// Does several of these at once.
    Chain(Chain),
}

impl Work {
    /// The operands.
    pub(crate) fn feeds(&self) -> SmallVec<[Feed; 3]> {
        match self {
            &Self::Gather { from: walk, .. } | &Self::Index { walk, .. } => smallvec![Feed::Walk(walk)],
            &Self::Scatter { from, .. } | &Self::Move { from, .. } => smallvec![from],
            &Self::One { x, .. } => smallvec![x],
            &Self::Two { x, y, .. } => smallvec![x, y],
            Self::Select(select) => smallvec![select.cond, select.then.feed, select.else_.feed],
            Self::Chain(chain) => chain.feeds.clone(),
        }
    }

    /// Gives the steps whose results are operands other numbers.
    pub(crate) fn renumber(&mut self, numbers: &[usize]) {
        let feeds: SmallVec<[&mut Feed; 3]> = match self {
            Self::Gather { .. } | Self::Index { .. } => smallvec![],
            Self::Scatter { from, .. } | Self::Move { from, .. } => smallvec![from],
            Self::One { x, .. } => smallvec![x],
            Self::Two { x, y, .. } => smallvec![x, y],
            Self::Select(select) => {
                smallvec![&mut select.cond, &mut select.then.feed, &mut select.else_.feed]
            }
            Self::Chain(chain) => chain.feeds.iter_mut().collect(),
        };
        for feed in feeds {
            if let Feed::Step(step) = feed {
                *step = numbers[*step];
            }
        }
    }

    /// The steps whose results are operands.
    pub(crate) fn pulls(&self) -> impl Iterator<Item = usize> {
        self.feeds().into_iter().filter_map(Feed::step)
    }
}

/// Several steps at once, what they leave to each other staying in registers.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) program: Program,
    /// The operands, as many as the program has.
    pub(crate) feeds: SmallVec<[Feed; 3]>,
}

/// The operands and kernels of a select.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) cond: Feed,
    /// How the condition runs along a row: where it is repeated, whole rows are moved.
    pub(crate) cond_inner: Inner,
    pub(crate) then: Branch,
    pub(crate) else_: Branch,
    /// Judges the condition of a tile, where a branch is made by a step that a verdict may spare. Of branches in memory,
    /// the kernels themselves read only what is needed.
    pub(crate) judge: Option<Judge>,
    pub(crate) blend: Blend,
    /// How the result is stored; of a result in place, what is not merged with what is there.
    pub(crate) stores: Stores,
    /// What `blend` asks for.
    pub(crate) ahead: Ahead,
    /// Chooses rows by a condition that is repeated along them, where both branches are dense and in memory.
    pub(crate) blend_rows: Option<BlendRows>,
}

impl Select {
    /// The steps that give its branches, which a verdict may spare.
    pub(crate) fn made_branches(&self) -> impl Iterator<Item = usize> {
        [self.then.feed, self.else_.feed].into_iter().filter_map(Feed::step)
    }
}

/// One side of a select.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) feed: Feed,
    /// Moves the whole of the branch to the result.
    pub(crate) copy: Move,
    /// The same, where the result is in place of the other branch.
    pub(crate) copy_in_place: Move,
    /// Where the result is in place of this branch: takes in the other one.
    pub(crate) take_in_other: Merge,
    /// The input whose buffer the result may be, where this branch is that input.
    pub(crate) in_place_of: Option<usize>,
}
