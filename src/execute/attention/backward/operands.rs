//! The operands of the tile programs of gradients, and the products of a tile.
#![allow(unsafe_code, reason = "gradients are computed on raw memory that was checked before")]

use crate::execute::attention::score_tile::{convert_tile, pack_panels};
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::TileOperands;
use crate::kernels::attention::{ROW, ScoreTile};
use crate::kernels::gemm::{Matrix, Panels, Product};
use crate::kernels::{Extent, Source, Target};
use crate::plan::{AccessId, BackwardOperand, BackwardPhase, Base, OperandForm, TileChain, TypedTile};

use BackwardOperand as O;

/// The operands of the first chain: tiles of S and of dP are computed when a step first reads them.
pub(super) struct ChainOperands<'a> {
    pub(super) phase: &'a BackwardPhase,
    pub(super) scratch: *mut u8,
    pub(super) cursor: Cursor<'a>,
    /// The block of queries in its group.
    pub(super) block: usize,
    /// True if the tiles of the present S and dP are in scratch, and so in their types.
    pub(super) has_scores: bool,
    pub(super) has_gradients: bool,
    pub(super) has_typed: [bool; 2],
}

impl<'a> TileOperands<'a> for ChainOperands<'a> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        let Base::Driver(number) = self.cursor.base(access) else { return self.cursor.at(access) };
        match number {
            TileChain::SCORES => self.compute_scores(),
            TileChain::GRADIENTS => self.compute_gradients(),
            _ => {}
        }
        let Some(slot) = self.phase.chain.slots[number] else { return self.scratch };
        if let (Some(typed), Some(has_typed)) = (slot.typed, self.has_typed.get_mut(number))
            && !std::mem::replace(has_typed, true)
        {
            self.round(slot.tile, Some(typed));
        }
        self.place(slot.typed.map_or(slot.tile, |typed| typed.place))
    }
}

impl ChainOperands<'_> {
    fn place(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(offset)
    }

    /// Sets the block of the group, and its tile.
    pub(super) fn begin_tile(&mut self, block: usize) {
        self.block = block;
        (self.has_scores, self.has_gradients, self.has_typed) = (false, false, [false; 2]);
    }

    /// A tile of f32 at a place, of the present extent.
    pub(super) fn tile(&self, place: usize) -> ScoreTile {
        let Extent { rows: keys, columns: queries } = self.cursor.extent();
        ScoreTile { at: self.place(place).cast(), keys, queries }
    }

    /// Where the tokens of an operand lie in the present tile, in their type.
    fn given(&self, operand: O) -> Matrix {
        self.cursor.matrix(self.phase.access(operand))
    }

    fn row(&self, operand: O) -> usize {
        let layout = &self.phase.layout;
        match operand {
            O::Queries | O::Keys | O::DqKeys | O::DkQueries => layout.key_row,
            O::Gradients | O::Values | O::DvGradients => layout.value_row,
        }
    }

    fn columns(&self, operand: O) -> usize {
        match operand {
            O::Queries | O::Keys | O::DqKeys | O::DkQueries => self.phase.depth,
            O::Gradients | O::Values | O::DvGradients => self.phase.value_columns,
        }
    }

    /// The keys or values of the present block in f32.
    fn keys(&self, operand: O) -> Matrix {
        match self.phase.operands[operand as usize].form {
            OperandForm::Same(other) => self.keys(other),
            OperandForm::Rows(_, place) => {
                let row = self.row(operand);
                let first = self.cursor.tile() % self.phase.key_blocks() * self.phase.chain.nest.tile.rows;
                let at = self.place(place + first * row);
                Matrix { at, row_stride: row as isize, col_stride: 4 }
            }
            _ => self.given(operand),
        }
    }

    /// Converts all keys and values of the present place to f32, if they are not.
    pub(super) fn convert_keys(&self) {
        for operand in [O::Keys, O::Values, O::DqKeys] {
            let OperandForm::Rows(pack, place) = self.phase.operands[operand as usize].form else { continue };
            let to = Target { at: self.place(place), row_stride: self.row(operand) as isize };
            let all = Extent { rows: self.phase.chain.nest.space.rows, columns: self.columns(operand) };
            // SAFETY: the present tile is the first of its place, so all tokens can be read from there; the
            // scratch has room for a row for each, and for the kernel.
            unsafe { pack.run(all, self.given(operand), to, self.place(self.phase.layout.pack)) };
        }
    }

    /// Packs Q and dO of the present block to scratch.
    pub(super) fn bring_queries(&self, queries: usize) {
        let phase = self.phase;
        let step = self.block * phase.layout.group_step;
        let scratch = self.place(phase.layout.pack);
        for operand in [O::Queries, O::Gradients, O::DkQueries, O::DvGradients] {
            let (tokens, columns) = (self.given(operand), self.columns(operand));
            match phase.operands[operand as usize].form {
                OperandForm::Panels(pack, place) => {
                    let (extent, to) = (Extent { rows: columns, columns: queries }, self.place(place + step));
                    // SAFETY: the queries of the block can be read; the scratch has room for their panels,
                    // and for the kernel.
                    unsafe { pack_panels(&pack, extent, tokens.transposed(), to, scratch) };
                }
                OperandForm::Rows(pack, place) => {
                    let to = Target { at: self.place(place + step), row_stride: self.row(operand) as isize };
                    // SAFETY: as above.
                    unsafe { pack.run(Extent { rows: queries, columns }, tokens, to, scratch) };
                }
                _ => {}
            }
        }
    }

    /// True if the first tokens of an operand in the present tile are finite.
    pub(super) fn is_finite(&self, operand: O, tokens: usize, columns: usize) -> bool {
        let of = &self.phase.operands[operand as usize];
        if matches!(of.form, OperandForm::Unused) {
            return true;
        }
        let extent = Extent { rows: tokens, columns };
        // SAFETY: the tokens of the block can be read, and the plan's level was available when the plan was
        // made.
        unsafe { self.phase.kernels.is_finite(extent, self.given(operand), of.data_type) }
    }

    /// Computes S = K·Qᵀ of the present tile, unless it is there.
    pub(super) fn compute_scores(&mut self) {
        if !std::mem::replace(&mut self.has_scores, true) {
            self.product(O::Keys, O::Queries, self.phase.layout.scores);
        }
    }

    /// Computes dP = V·dOᵀ of the present tile, unless it is there.
    pub(super) fn compute_gradients(&mut self) {
        if !std::mem::replace(&mut self.has_gradients, true) {
            self.product(O::Values, O::Gradients, self.phase.layout.gradients);
        }
    }

    /// Multiplies a block of keys or values by a block of queries or gradients.
    fn product(&self, left: O, right: O, to: usize) {
        let phase = self.phase;
        let OperandForm::Panels(pack, place) = phase.operands[right as usize].form else { return };
        let Extent { rows: keys, columns: queries } = self.cursor.extent();
        let depth = self.columns(right);
        // SAFETY: the keys of the block can be read; all else is scratch of this thread, and the plan's level
        // was available when the plan was made.
        unsafe {
            phase.product.run(&Product {
                rows: keys,
                columns: queries,
                depth,
                left: self.keys(left),
                right: Panels {
                    at: self.place(place + self.block * phase.layout.group_step),
                    row_stride: pack.row_bytes() as isize,
                    panel_stride: pack.panel_bytes(depth) as isize,
                },
                to: self.place(to).cast(),
                to_row: ROW,
                accumulate: false,
                bias: std::ptr::null(),
            });
        }
    }

    /// Adds the product of a tile and the rows of a block of queries to dK or dV.
    pub(super) fn add_rows(
        &self,
        tile: ScoreTile,
        (operand, is_finite): (O, bool),
        columns: usize,
        to: *mut f32,
        to_row: usize,
    ) {
        let phase = self.phase;
        let OperandForm::Rows(_, place) = phase.operands[operand as usize].form else { return };
        let at = self.place(place + self.block * phase.layout.group_step);
        let row_stride = self.row(operand) as isize;
        // SAFETY: the tile, the rows and the sums are scratch of this thread, and the plan's level was
        // available when the plan was made.
        unsafe {
            if !is_finite {
                let (rows, to_row) = (Source { at, row_stride }, to_row as isize);
                let to = Target { at: to.cast(), row_stride: to_row };
                return phase.kernels.masked_rows(tile, rows, columns, to);
            }
            phase.product.run(&Product {
                rows: tile.keys,
                columns,
                depth: tile.queries,
                left: Matrix { at: tile.at.cast(), row_stride: ROW, col_stride: 4 },
                right: Panels { at, row_stride, panel_stride: 4 * phase.product.panel_columns() as isize },
                to,
                to_row: to_row as isize,
                accumulate: true,
                bias: std::ptr::null(),
            });
        }
    }

    /// Adds dS·K of the present tile to dQ of the block of queries.
    pub(super) fn add_keys(&self, tile: ScoreTile, is_finite: bool) {
        let phase = self.phase;
        let keys = self.keys(O::DqKeys);
        let to = self.place(phase.layout.query_sums + self.block * phase.layout.group_step).cast();
        // SAFETY: as for `add_rows`; the keys of the block can be read.
        unsafe {
            if !is_finite {
                return phase.kernels.masked_product(tile, keys, phase.depth, to);
            }
            phase.product.run(&Product {
                rows: phase.depth,
                columns: tile.queries,
                depth: tile.keys,
                left: keys.transposed(),
                right: Panels {
                    at: tile.at.cast(),
                    row_stride: ROW,
                    panel_stride: 4 * phase.product.panel_columns() as isize,
                },
                to,
                to_row: ROW,
                accumulate: true,
                bias: std::ptr::null(),
            });
        }
    }

    /// Rounds a tile to its type, if that is not f32.
    pub(super) fn round(&self, tile: usize, typed: Option<TypedTile>) {
        let Some(typed) = typed else { return };
        let (from, to) = ((self.place(tile), 4), (self.place(typed.place), typed.width));
        // SAFETY: both tiles are scratch of this thread and do not overlap.
        unsafe { convert_tile(typed.convert, self.cursor.extent(), from, to) };
    }

    /// Widens the result of a slot of the chain.
    pub(super) fn widen(&self, slot: usize) {
        if let Some(slot) = self.phase.chain.slots[slot] {
            self.widen_tile(slot.tile, slot.typed);
        }
    }

    /// Widens a tile from its type, if that is not f32.
    pub(super) fn widen_tile(&self, tile: usize, typed: Option<TypedTile>) {
        let Some(typed) = typed else { return };
        let (from, to) = ((self.place(typed.place), typed.width), (self.place(tile), 4));
        // SAFETY: both tiles are scratch of this thread and do not overlap.
        unsafe { convert_tile(typed.convert, self.cursor.extent(), from, to) };
    }
}
