//! The phases of a plan, and the loops around the tiles of a phase.
//!
//! The phases of a plan run one after another, with a join between two of them. They hand tensors to each
//! other through ports or through the plan's internal buffers. A phase is a number of tasks of fixed size,
//! which may run in any order and on any thread.
//!
//! A [`LoopNest`] is loops around 2-D tiles and a [`TileProgram`], which says what is computed in a tile. In
//! a [`Phase::Map`] a task is a tile, and all operands of the program are in memory. Every other phase has a
//! driver in `execute` of its own, which computes the phase's result and runs the programs of its nests as
//! prologue and epilogue. The driver gives the space of such a program when the program is compiled (see
//! `compile::elementwise`), and its operands when the program runs: an access whose base is
//! [`Base::Driver`](super::Base::Driver) is asked of the driver at most when a step needs it, so a tile whose
//! Select needs no product never computes it.

use smallvec::SmallVec;

use super::access::Loop;
use super::tile_program::TileProgram;
use crate::kernels::Extent;
use crate::types::shape::MAX_RANK;

/// Largest number of loops around the tiles of a nest: one for each dim, and blocks of rows and of columns.
pub(crate) const MAX_LOOPS: usize = MAX_RANK + 2;

/// A part of a plan that runs after the part before it has ended.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Elements that are computed on their own, tile by tile.
    Map(LoopNest),
}

impl Phase {
    /// Number of tasks, which may run in any order and on any thread.
    pub(crate) fn tasks(&self) -> usize {
        match self {
            Self::Map(nest) => nest.tiles(),
        }
    }

    /// Bytes of scratch of one thread.
    pub(crate) fn scratch(&self) -> usize {
        match self {
            Self::Map(nest) => nest.program.scratch,
        }
    }
}

/// Loops around tiles, and what is computed in each tile.
#[derive(Debug)]
pub(crate) struct LoopNest {
    /// The loops around the tiles, the outermost first: loops of the index space outside of tiles, and blocks
    /// of rows and of columns.
    pub(crate) loops: SmallVec<[Loop; 6]>,
    /// Index of the loop over blocks of rows.
    pub(crate) row_blocks: usize,
    /// Index of the loop over blocks of columns.
    pub(crate) column_blocks: usize,
    /// Rows and columns of the whole index space inside the loops.
    pub(crate) space: Extent,
    /// Rows and columns of a tile; the last tiles of a row or column of tiles may be smaller.
    pub(crate) tile: Extent,
    /// What is computed in a tile.
    pub(crate) program: TileProgram,
}

impl LoopNest {
    /// Number of tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.loops.iter().map(|l| l.extent).product()
    }
}
