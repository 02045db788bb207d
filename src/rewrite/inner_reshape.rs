//! A reshape between the products of attention moves to their operands and their result.
//!
//! `torch.baddbmm` takes scores [b·h, q, k], whose mask [b, 1, q, k] needs the dims apart: BLOOM and DeBERTa.

use super::attention_core::{Core, batch_of};
use super::pattern_rewriter::{PatternRewriter, Replacement};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let core = Core::at(rewriter, place)?;
    let batch = batch_of(core.reshaped_logits(rewriter)?)?.to_vec();
    let added = core.regrouped(rewriter, &batch, None, None)?;
    Some(Replacement { removed: core.places().collect(), added })
}
