//! Operands of the product of values in pairs of bf16.
#![allow(unsafe_code, reason = "attention is computed on raw memory that was checked before")]

use super::ScoreOperands;
use crate::execute::attention::score_tile::pack_panels;
use crate::kernels::attention::{ROW, ScoreTile};
use crate::kernels::gemm::pack::{PackPanel, RowPack};
use crate::kernels::gemm::{Matrix, Panels};
use crate::kernels::{Extent, Target};
use crate::plan::{AttentionOperand, AttentionPhase};

impl ScoreOperands<'_> {
    /// The values of the present tile in bf16, packed so that the keys of an element are neighbours.
    pub(super) fn packed_values(&self, pack: &RowPack, all: Extent) -> Matrix {
        let values = self.stored(AttentionOperand::Values, all.rows);
        let (layout, row) = (&self.phase.layout, AttentionPhase::PACKED_VALUE_ROW as isize);
        let mut to = Target { at: self.place(layout.packed_values), row_stride: row };
        let mut is_there = false;
        if let Some(kept) = layout.kept_values {
            let key_block = self.cursor.tile() % self.phase.key_blocks();
            let packed_from = self.place(kept).cast::<usize>().wrapping_add(key_block);
            to.at = to.at.wrapping_add(key_block * self.phase.packed_value_bytes());
            // SAFETY: the scratch has an address for each block of keys, which this thread alone writes.
            is_there = unsafe { packed_from.replace(values.at.addr()) } == values.at.addr();
        }
        if !is_there {
            // SAFETY: the values of the block can be read; the scratch has room for them and for the kernel.
            unsafe { pack.run(all.transposed(), values.transposed(), to, self.place(layout.pack)) };
        }
        Matrix { at: to.at, row_stride: 2, col_stride: row }
    }

    /// A tile of weights, rounded to bf16 and packed as panels, unless the SoftMax has done so.
    pub(super) fn packed_weights(&self, pack: &PackPanel, tile: ScoreTile, is_packed: bool) -> Panels {
        let layout = &self.phase.layout;
        let (at, panel_bytes) = (self.place(layout.packed_weights), pack.panel_bytes(tile.keys));
        let extent = Extent { rows: tile.keys, columns: tile.queries };
        let from = Matrix { at: tile.at.cast(), row_stride: ROW, col_stride: 4 };
        if !is_packed {
            // SAFETY: the weights of the tile can be read; the scratch has room for their panels and for the
            // kernel.
            unsafe { pack_panels(pack, extent, from, at, self.place(layout.pack)) };
        }
        Panels { at, row_stride: pack.row_bytes() as isize, panel_stride: panel_bytes as isize }
    }
}
