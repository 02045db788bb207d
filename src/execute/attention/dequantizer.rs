//! Turns keys or values of few bits into f32, block by block, in the scratch of a thread.
#![allow(unsafe_code, reason = "tokens are read from raw memory that was checked before")]

use std::sync::Arc;

use crate::execute::bindings::Bindings;
use crate::execute::cursor::Cursor;
use crate::execute::interpreter::Interpreter;
use crate::execute::slots::SlotOperands;
use crate::kernels::gemm::{OperandRows, RowScaling};
use crate::plan::{AttentionCore, LoopNest, Plan, QuantizedScratch, QuantizedTokens, SCALED_TOKENS};

/// The dequantisation of keys or of values, on one thread.
pub(super) struct Dequantizer<'a> {
    tokens: &'a QuantizedTokens,
    layout: QuantizedScratch,
    /// The loops of the phase.
    nest: &'a LoopNest,
    parameters: Interpreter<'a, SlotOperands<'a, 2>>,
    scratch: *mut u8,
    /// The first tile of parameters, but for those of tokens, and the block of tokens whose parameters are in
    /// scratch.
    held: Option<(usize, usize)>,
}

impl<'a> Dequantizer<'a> {
    /// Those of the keys and of the values of a phase, as far as it has them.
    pub(super) fn of_both(
        phase: &'a AttentionCore,
        layouts: [QuantizedScratch; 2],
        plan: &Plan,
        bindings: &Bindings,
        scratch: *mut u8,
    ) -> [Option<Self>; 2] {
        [0, 1].map(|operand| {
            let tokens = phase.quantized[operand].as_ref();
            tokens.map(|tokens: &'a Arc<QuantizedTokens>| {
                Self::new(tokens, layouts[operand], &phase.nest, plan, bindings, scratch)
            })
        })
    }

    fn new(
        tokens: &'a QuantizedTokens,
        layout: QuantizedScratch,
        nest: &'a LoopNest,
        plan: &Plan,
        bindings: &Bindings,
        scratch: *mut u8,
    ) -> Self {
        let operands = SlotOperands {
            slots: layout.slots.map(|place| scratch.wrapping_add(place)),
            cursor: Cursor::new(&tokens.nest, &plan.constants, bindings),
        };
        let program = scratch.wrapping_add(layout.program);
        // No step of the program selects.
        let parameters = Interpreter::new(&tokens.nest.program, &[], program, operands);
        Self { tokens, layout, nest, parameters, scratch, held: None }
    }

    /// Forgets the parameters in scratch: something else may have written there.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// Writes rows of f32, `to_row` numbers from one to the next, from those of tokens that start at `first`,
    /// for a block of queries by its number among the iterations of all loops but those over keys.
    ///
    /// # Safety
    ///
    /// The rows can be read; the target is scratch of this thread with room for whole vectors of each row,
    /// and one more.
    pub(super) unsafe fn run(
        &mut self,
        block: usize,
        first: usize,
        rows: OperandRows,
        to: *mut f32,
        to_row: usize,
    ) {
        let kernels = self.tokens.kernels;
        let mut row = 0;
        while row < rows.rows {
            let count = self.tokens.run(first + row, rows.rows - row);
            let scaling = self.scaling(block, first + row);
            let part = OperandRows { at: rows.row(row), rows: count, ..rows };
            // SAFETY: as the caller promises; the parameters of the rows are in scratch, and a vector more.
            // The plan's level was available when the plan was made.
            unsafe { kernels.widen(&part, &scaling, to.wrapping_add(row * to_row), to_row) };
            row += count;
        }
    }

    /// Tokens from one on whose parameters can be in scratch together with its own, of so many.
    pub(super) fn together(&self, token: usize, count: usize) -> usize {
        self.tokens.run(token, count)
    }

    /// Brings scales and zero points to scratch: those of tokens from `first` on that stand
    /// [`together`](Self::together), for a block of queries as in [`run`](Self::run).
    pub(super) fn scaling(&mut self, block: usize, first: usize) -> RowScaling {
        let Self { tokens, layout, .. } = *self;
        let (sequence, first) = tokens.place(first);
        let chunk = first / SCALED_TOKENS;
        let (first_tile, last_tile) = tokens.tiles(chunk);
        let outer = self.nest.tile_of(&tokens.tile_strides, block);
        let outer = outer + sequence * tokens.sequences.unwrap_or(0);
        let slot = |slot: usize| self.scratch.wrapping_add(layout.slots[slot]).cast::<f32>();
        let slots = [QuantizedTokens::SCALES, QuantizedTokens::ZEROS].map(slot);
        if self.held != Some((outer, chunk)) {
            self.held = Some((outer, chunk));
            let step = tokens.tile_groups * tokens.row_step;
            for (index, tile) in (first_tile..=last_tile).enumerate() {
                self.parameters.operands.slots = slots.map(|slot| slot.wrapping_add(index * step).cast());
                self.parameters.go_to(outer + tile);
                self.parameters.run_here();
            }
        }
        let place = (first / tokens.group.rows - first_tile * tokens.tile_groups) * tokens.row_step;
        RowScaling {
            scales: slots[QuantizedTokens::SCALES].wrapping_add(place),
            zeros: slots[QuantizedTokens::ZEROS].wrapping_add(place),
            group: tokens.group,
            before: first % tokens.group.rows,
            row_step: tokens.row_step,
            column_step: tokens.column_step,
        }
    }
}
