//! Goes through tiles of scores, and leaves out those that are masked as a whole.

use super::{Pass, QueryBlock};
use crate::execute::attention::classes::weighs;
use crate::plan::{MaskedParts, TileClass, class, is_unchanged, largest_constant, masked_parts};

impl<'a> QueryBlock<'a> {
    /// Has all programs begin with the first block of keys.
    fn rewind(&mut self, task: usize) {
        self.go_to(task, 0);
        if let Some(unmasked) = &mut self.unmasked {
            unmasked.go_to(task * self.phase.key_blocks());
        }
        if let Some(weights) = &mut self.weights {
            weights.go_to(task * self.phase.key_blocks());
        }
    }

    /// Goes through the blocks of keys.
    pub(super) fn pass(&mut self, task: usize, pass: Pass) {
        if let Some(ragged) = &self.phase.ragged {
            return self.ragged_pass(task, pass, ragged.divides);
        }
        self.rewind(task);
        let key_blocks = self.phase.key_blocks();
        // Ops between the SoftMax and the values may turn a weight of 0 into another number.
        let classes = match pass {
            Pass::Weights | Pass::ExactWeights => None,
            Pass::Online | Pass::Sums | Pass::Maxima | Pass::Exact => self.classes.of_block(task),
        };
        let Some(classes) = classes else {
            (0..key_blocks).for_each(|key_block| self.tile(task, key_block, pass, false));
            return;
        };
        let constant = largest_constant(classes);
        // Maxima that are known tell it before; a constant that is not low weighs beside ordinary scores.
        let weighs = if pass == Pass::Exact { self.weighs(constant) } else { weighs(constant, 0.0) };
        self.classified(task, pass, classes, weighs);
        if !weighs && constant > f32::NEG_INFINITY && self.weighs(constant) {
            // Sums depend on the order of their terms, so the tiles that were left out are no afterthought.
            self.begin();
            self.rewind(task);
            self.classified(task, pass, classes, true);
        }
    }

    /// Goes through the blocks of keys by their classes.
    fn classified(&mut self, task: usize, pass: Pass, classes: &'a [u8], takes_constants: bool) {
        let mut partial_tile = 0;
        for key_block in 0..self.phase.key_blocks() {
            match class(classes, key_block) {
                TileClass::Masked => {}
                TileClass::Constant if !takes_constants => {}
                TileClass::Constant => self.tile(task, key_block, pass, false),
                TileClass::Full => self.tile(task, key_block, pass, is_unchanged(classes, key_block)),
                TileClass::Partial => {
                    // Parts may be left out for constants that weigh nothing.
                    if !takes_constants {
                        self.leave_out(masked_parts(classes, partial_tile));
                    }
                    self.tile(task, key_block, pass, false);
                    self.leave_out(MaskedParts::default());
                    partial_tile += 1;
                }
            }
        }
    }

    /// Has products leave out parts of the tiles that follow.
    pub(super) fn leave_out(&mut self, parts: MaskedParts) {
        self.logits.operands.masked = parts;
        self.unmasked.iter_mut().for_each(|unmasked| unmasked.operands.masked = parts);
    }
}
