//! Goes through tiles of scores, and leaves out those that are masked as a whole.
#![allow(unsafe_code, reason = "classes are read from raw memory that was checked before")]

use super::{Pass, QueryBlock};
use crate::plan::{MaskedParts, TileClass, class, largest_constant, masked_parts};

impl<'a> QueryBlock<'a> {
    /// Goes through the blocks of keys.
    pub(super) fn pass(&mut self, task: usize, pass: Pass) {
        self.go_to(task, 0);
        if let Some(unmasked) = &mut self.unmasked {
            unmasked.go_to(task * self.phase.key_blocks());
        }
        if let Some(weights) = &mut self.weights {
            weights.go_to(task * self.phase.key_blocks());
        }
        let key_blocks = self.phase.key_blocks();
        // Ops between the SoftMax and the values may turn a weight of 0 into another number.
        let classes = match pass {
            Pass::Weights | Pass::ExactWeights => None,
            Pass::Online | Pass::Sums | Pass::Maxima | Pass::Exact => self.classes(task),
        };
        let Some(classes) = classes else {
            (0..key_blocks).for_each(|key_block| self.tile(task, key_block, pass, false));
            return;
        };
        let (mut has_constants, mut partial_tile) = (false, 0);
        for key_block in 0..key_blocks {
            match class(classes, key_block) {
                TileClass::Masked => {}
                TileClass::Constant => has_constants = true,
                TileClass::Full => self.tile(task, key_block, pass, true),
                TileClass::Partial => {
                    self.leave_out(masked_parts(classes, partial_tile));
                    self.tile(task, key_block, pass, false);
                    self.leave_out(MaskedParts::default());
                    partial_tile += 1;
                }
            }
        }
        if has_constants && self.weighs(largest_constant(classes)) {
            let constants =
                (0..key_blocks).filter(|&key_block| class(classes, key_block) == TileClass::Constant);
            constants.for_each(|key_block| self.tile(task, key_block, pass, false));
        }
    }

    /// The classes of the tiles of a block of queries.
    pub(super) fn classes(&self, task: usize) -> Option<&'a [u8]> {
        let (table, at) = (self.phase.classes.as_ref()?, self.table?);
        let row = table.row(task);
        // SAFETY: an earlier phase has written the table, which has a row for each block, and nobody writes
        // to the table any more.
        Some(unsafe { std::slice::from_raw_parts(at.wrapping_add(row.start), row.len()) })
    }

    /// Has products leave out parts of the tiles that follow.
    fn leave_out(&mut self, parts: MaskedParts) {
        self.logits.operands.masked = parts;
        self.unmasked.iter_mut().for_each(|unmasked| unmasked.operands.masked = parts);
    }
}
