//! The loops around the tiles of a phase.

use smallvec::SmallVec;

use super::access::Loop;
use super::tile_program::TileProgram;
use crate::kernels::Extent;
use crate::types::shape::{MAX_RANK, SaturatingProduct};

/// Largest number of loops around the tiles of a nest: one for each dim, and blocks of rows and of columns.
pub(crate) const MAX_LOOPS: usize = MAX_RANK + 2;

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
    /// The program that is computed in a tile.
    pub(crate) program: TileProgram,
}

impl LoopNest {
    /// Number of tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.loops.iter().map(|l| l.extent).saturating_product()
    }

    /// The tile of another nest for a block, by its number among the iterations of the first loops: those for
    /// which `strides` tells the tiles of the other nest from one iteration to the next.
    pub(crate) fn tile_of(&self, strides: &[usize], mut block: usize) -> usize {
        let loops = self.loops.iter().zip(strides).rev();
        loops
            .map(|(l, stride)| {
                let iteration = block % l.extent;
                block /= l.extent;
                iteration * stride
            })
            .sum()
    }
}
