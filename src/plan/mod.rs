//! What compilation hands to execution: every decision that can be made before data exists. Data only.
//!
//! A [`Plan`] is a list of loop [`Nest`]s. A nest walks tiles of a 2-D loop space and, in each tile, runs its last
//! [`Step`], which pulls the steps that it needs. Nothing in a plan has an id: tensors are ports by position.

pub(crate) mod loops;

use smallvec::SmallVec;

use self::loops::{Loop, Role};
use crate::kernels::pack::{Gather, Scatter};
use crate::kernels::select::{Blend, BlendRows, Judge, Merge, Move};
use crate::kernels::{Extent, Inner, Stores};
use crate::types::shape::{Dims, MAX_RANK};

/// The most ports that a nest walks.
pub(crate) const MAX_WALKS: usize = 8;

/// The most loops around the tiles of a nest: one a dim, and blocks of rows and of columns.
pub(crate) const MAX_LOOPS: usize = MAX_RANK + 2;

/// A partition compiled for concrete shapes and layouts.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Dims and strides of each output, in elements, inferred or as given.
    pub(crate) outputs: Vec<(Dims, Dims)>,
    /// Bytes from the first to the last element of each port, inputs first.
    pub(crate) sizes: Vec<usize>,
    /// Inputs whose very buffer an output may be: positions among the inputs and among the outputs.
    pub(crate) in_place: Vec<(usize, usize)>,
    /// The loop nests, in the order in which they run.
    pub(crate) nests: Vec<Nest>,
    /// Scratch that each thread needs, in bytes.
    pub(crate) scratch: usize,
    /// Bytes of the distinct elements that are read and written, each counted once.
    pub(crate) bytes_moved: usize,
    /// Whether results are stored past the caches, which each thread that ran a share has to end with a fence.
    pub(crate) stores: Stores,
}

/// Loops that run together over tiles, and the steps done in each tile.
#[derive(Debug)]
pub(crate) struct Nest {
    /// The loops around the tiles, the outermost first: those of the index space that are not in a tile, then blocks
    /// of rows, then blocks of columns.
    pub(crate) loops: SmallVec<[Loop; 6]>,
    /// Rows and columns of the whole index space within the loops.
    pub(crate) space: Extent,
    /// Rows and columns of a tile; the last ones of a row or column of tiles may be smaller.
    pub(crate) tile: Extent,
    /// The steps; the last one is the one that is run.
    pub(crate) steps: Vec<Step>,
    /// The ports that the steps walk, with the strides inside a tile.
    pub(crate) walks: SmallVec<[Walk; 4]>,
}

impl Nest {
    /// How many tiles there are.
    pub(crate) fn tiles(&self) -> usize {
        self.loops.iter().filter(|l| l.role == Role::Spatial).map(|l| l.extent).product()
    }
}

/// How a port is walked; the steps along the loops stand in the loops, at the same index as the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The port, by its place among the inputs followed by the outputs.
    pub(crate) port: usize,
    /// Bytes from one row of a tile to the next.
    pub(crate) pitch: isize,
    /// Bytes from one element of a row to the next.
    pub(crate) step: isize,
}

/// Where a step finds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// At a port, by the index of the walk.
    Port(usize),
    /// With the result of another step, by its index.
    Step(usize),
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
/// A step is run when another one pulls it, and at most once a tile, so what nobody needs in a tile is not done.
#[derive(Debug)]
pub(crate) struct Step {
    /// What is done.
    pub(crate) work: Work,
    /// Where the result goes.
    pub(crate) to: Place,
    /// Whether the result varies from row to row, and along a row.
    pub(crate) space: StepSpace,
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
    /// Makes a strided port dense.
    Gather { from: usize, kernel: Gather },
    /// Chooses between two operands.
    Select(Select),
    /// Spreads a result over a strided port.
    Scatter { from: usize, kernel: Scatter },
}

/// The operands and kernels of a select.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) cond: Feed,
    /// How the condition runs along a row: where it is repeated, whole rows are moved.
    pub(crate) cond_inner: Inner,
    pub(crate) then: Branch,
    pub(crate) else_: Branch,
    /// Judges the condition of a tile, where a branch is made by a step that a verdict may spare. Of branches at ports,
    /// the kernels themselves read only what is needed.
    pub(crate) judge: Option<Judge>,
    pub(crate) blend: Blend,
    /// Chooses rows by a condition that is repeated along them, where both branches are dense and at ports.
    pub(crate) blend_rows: Option<BlendRows>,
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
