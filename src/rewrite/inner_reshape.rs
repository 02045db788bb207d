//! A reshape between the products of attention moves to their operands and their result.
//!
//! `torch.baddbmm` takes scores [b·h, q, k], whose mask [b, 1, q, k] needs the dims apart: BLOOM and DeBERTa.
//! The decoders of BART's family and XGLM give such scores their dims for the mask alone, and take them back
//! before the SoftMax.

use super::attention_core::Core;
use super::heads_in_columns;
use super::pattern_rewriter::{PatternRewriter, Replacement};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    of_batch(rewriter, place).or_else(|| heads_in_columns::find(rewriter, place))
}

fn of_batch(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let core = Core::at(rewriter, place)?;
    let mut batches = core.batches(rewriter).into_iter();
    let added = batches.find_map(|batch| core.regrouped(rewriter, batch, None, None))?;
    Some(Replacement { removed: core.places().collect(), added })
}
