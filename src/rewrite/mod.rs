//! From the forms that exporters write to the forms that fuse: a graph in, an equal graph out.
//!
//! The stage works on a copy of the graph, which the growth of partitions sees in place of the graph, and
//! never on the graph itself: clients hold the ids of their ops and tensors, so a partition lists the ops of
//! the user and has the ports of the user whatever was rewritten. Each op of the copy therefore remembers the
//! [ops of the user](Rewritten::origins) that it stands for, and `partition` takes an application back unless
//! all its ops grow into one partition, of attention if it is a form of attention: no tensor of the user
//! inside of a pattern crosses a border then, and no tensor of the copy does.
//!
//! To add a rewrite is to add a row to `types::rewrite` and a function that finds its pattern to [`ROWS`].
//! The function says which ops it removes and which ones stand in their place; [`PatternRewriter::apply`]
//! refuses the exchange if a value that is needed elsewhere would be gone.

mod attention_core;
mod gelu_tanh;
mod guarded_softmax;
mod heads_in_columns;
mod inner_reshape;
mod norms;
mod pattern_rewriter;
mod repeated_heads;
mod scale_to_queries;
mod softmax_shift;
mod transposed_weights;
mod written_softmax;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use self::pattern_rewriter::{Origins, PatternRewriter, Replacement};
use crate::error::{OpRef, Result};
use crate::graph::Graph;
use crate::types::id::OpId;
use crate::types::kind::OpKind;
use crate::types::rewrite::Rewrite;

/// Finds the pattern of a rewrite at an op, by its place in the rewriter.
type Find = fn(&PatternRewriter<'_>, usize) -> Option<Replacement>;

/// Every rewrite, in the order in which they are tried, with a kind without which no graph has the pattern.
const ROWS: &[(Rewrite, OpKind, Find)] = &[
    // Attention looks for SoftMax.
    (Rewrite::WrittenSoftmax, OpKind::Exp, written_softmax::find),
    (Rewrite::SoftmaxShift, OpKind::ReduceMax, softmax_shift::find),
    (Rewrite::TransposedWeights, OpKind::SoftMax, transposed_weights::find),
    (Rewrite::ScaleToQueries, OpKind::SoftMax, scale_to_queries::find),
    (Rewrite::GuardedSoftmax, OpKind::SoftMax, guarded_softmax::find),
    (Rewrite::ReshapeInsideAttention, OpKind::SoftMax, inner_reshape::find),
    (Rewrite::RepeatedHeads, OpKind::SoftMax, repeated_heads::find),
    // Behind the mean, the other norm is as this one.
    (Rewrite::LayerNorm, OpKind::ReduceMean, norms::find_layer),
    (Rewrite::RmsNorm, OpKind::ReduceMean, norms::find_rms),
    (Rewrite::GeluTanh, OpKind::Tanh, gelu_tanh::find),
];

/// The most times that all rows are tried. A row that applies leaves one pattern less of its own, but may
/// make one of another row.
const MAX_ROUNDS: usize = 4;

/// A graph in which forms have been replaced.
pub(crate) struct Rewritten {
    /// The rewritten graph; tensors at the borders of patterns keep their ids.
    pub(crate) graph: Graph,
    /// The ops of the user for which each op of the rewritten graph stands, by its id.
    pub(crate) origins: FxHashMap<OpId, Origins>,
    pub(crate) applied: Vec<Application>,
}

/// One place where a rewrite was applied.
#[derive(Debug, Clone)]
pub(crate) struct Application {
    pub(crate) rewrite: Rewrite,
    /// The op, of the user, at which the pattern was found.
    pub(crate) at: OpRef,
    /// The ops of the user in the pattern.
    pub(crate) ops: Origins,
}

/// Applies the rows that a graph has not turned off, but for those at some ops. `None` if no row applies.
pub(crate) fn rewritten(graph: &Graph, refused: &FxHashSet<(Rewrite, OpId)>) -> Result<Option<Rewritten>> {
    let has = |kind: OpKind| graph.ops().iter().any(|op| op.kind() == kind);
    let rows = ROWS.iter().filter(|(rewrite, kind, _)| graph.has_rewrite(*rewrite) && has(*kind));
    let rows: SmallVec<[_; ROWS.len()]> = rows.collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let mut rewriter = PatternRewriter::new(graph);
    let mut applied = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let before = applied.len();
        for &&(rewrite, _, find) in &rows {
            let mut place = 0;
            while place < rewriter.places() {
                if let Some(at) = rewriter.op(place).map(|op| op.op_ref())
                    && !refused.contains(&(rewrite, at.id))
                    && let Some(replacement) = find(&rewriter, place)
                    && let Some(ops) = rewriter.apply(replacement)
                {
                    applied.push(Application { rewrite, at, ops });
                }
                place += 1;
            }
        }
        if applied.len() == before {
            break;
        }
    }
    if applied.is_empty() {
        return Ok(None);
    }
    let (ops, origins) = rewriter.finish();
    Ok(Some(Rewritten { graph: graph.with_ops(ops)?, origins, applied }))
}
