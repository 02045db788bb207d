//! The table of fusions, by priority. To add a fusion is to add a row.
//!
//! A fixed pattern, such as attention or a gated MLP, is a row whose `seed` is one op of the pattern and
//! whose `grow` follows the edges around the [group](GroupView): it absorbs an op only in a role of the
//! pattern that is still open. Its `matches` rejects a group without all roles, whose ops then go to rows of
//! lower priority.

use smallvec::SmallVec;

use super::attention;
use super::attention_backward;
use super::fusion::{Fusion, FusionVerdict, GroupView};
use super::matches::Match;
use super::moves;
use super::pointwise::Pointwise;
use super::products;
use super::rows::{self, is_on_rows};
use crate::graph::function::Function;
use crate::graph::op::Op;
use crate::graph::windows;
use crate::types::fallback::FallbackReason;
use crate::types::kind::{Attr, OpKind};

/// The most ops of a fused group. A plan then has a few hundred steps at most, and their order is found at
/// once.
const MAX_OPS: usize = 64;

/// Every fusion, the one with the highest priority first.
pub(super) const FUSIONS: &[Fusion] = &[
    ATTENTION_BACKWARD,
    ATTENTION,
    GATED_MLP,
    NORM_MATMUL,
    MATMUL,
    CONVOLUTION,
    ROWS,
    LOOKUP,
    POOL,
    POINTWISE,
];

/// The gradients of attention: the weights again, from scores and their statistics or by a SoftMax, and the
/// products that use them.
const ATTENTION_BACKWARD: Fusion = Fusion {
    name: "attention_backward",
    seed: attention_backward::is_seed,
    grow: |group, op| attention_backward::grow(group, op, MAX_OPS),
    matches: |group| attention_backward::matches(group, MAX_OPS),
    is_pattern: true,
};

/// Two products with a SoftMax between them, and the pointwise ops between and around.
const ATTENTION: Fusion = Fusion {
    name: "attention",
    seed: attention::is_seed,
    grow: |group, op| attention::grow(group, op, MAX_OPS),
    matches: attention::matches,
    is_pattern: true,
};

/// Two products of one operand, joined by pointwise ops of which one is a gate, and a third product: with the
/// norm of the operand, and pointwise ops behind.
const GATED_MLP: Fusion = Fusion {
    name: "gated_mlp",
    seed: |op| op.kind() == OpKind::MatMul,
    grow: |group, op| products::grow_gated(group, op, MAX_OPS),
    matches: products::matches_gated,
    is_pattern: true,
};

/// A norm and the products of its result, with pointwise ops around them.
const NORM_MATMUL: Fusion = Fusion {
    name: "norm_matmul",
    seed: products::is_norm,
    grow: |group, op| products::grow_normed(group, op, MAX_OPS),
    matches: products::matches_normed,
    is_pattern: true,
};

/// A matrix product, with pointwise ops around it.
const MATMUL: Fusion = Fusion {
    name: "matmul",
    seed: |op| op.kind() == OpKind::MatMul,
    grow: around_product,
    matches: |group| Ok(products::matched(group)),
    is_pattern: false,
};

/// A product of windows and weights, with pointwise ops around it.
const CONVOLUTION: Fusion = Fusion {
    name: "convolution",
    seed: |op| {
        windows::convolves(op)
            && op.s64s_attr(Attr::Strides).len() <= MAX_SPATIAL
            && windows::has_known_result(op)
    },
    grow: around_product,
    matches: |group| Ok(products::matched(group)),
    is_pattern: false,
};

/// Most spatial dims of a convolution that kernels run.
const MAX_SPATIAL: usize = 3;

/// An op on rows, with pointwise ops around it.
const ROWS: Fusion = Fusion {
    name: "rows",
    seed: is_on_rows,
    grow: |group, op| match moves::moves(group.graph.ops[op]) {
        true => match moves_beside(group, op) {
            FusionVerdict::Matched => rows::grow(group, op, MAX_OPS),
            other => other,
        },
        false => rows::grow(group, op, MAX_OPS),
    },
    matches: |_| Ok(Match::Rows),
    is_pattern: false,
};

/// A lookup at the places that indices name, alone: every execution checks its indices before anything is
/// written.
const LOOKUP: Fusion = Fusion {
    name: "lookup",
    seed: |op| is_lookup(op.kind()),
    grow: |_, _| FusionVerdict::NoMatch,
    matches: |_| Ok(Match::Lookup),
    is_pattern: false,
};

/// True for ops that read or write elements at places which data name, or that give such places.
fn is_lookup(kind: OpKind) -> bool {
    use OpKind as K;
    matches!(
        kind,
        K::Gather
            | K::GatherElements
            | K::GatherND
            | K::GatherBackward
            | K::ScatterElements
            | K::ScatterND
            | K::PagedLoad
            | K::CacheStore
            | K::TopK
            | K::ArgMax
            | K::ArgMin
    )
}

/// A pool, an interpolation, or a gradient of one, alone.
const POOL: Fusion = Fusion {
    name: "pool",
    seed: is_pool,
    grow: |_, _| FusionVerdict::Rejected(POOLS_ALONE),
    matches: |_| Ok(Match::Pool),
    is_pattern: false,
};

const POOLS_ALONE: &str = "the rows of a pool overlap, and are combined whole before a row is written";

/// True for ops that combine the elements of windows, and their gradients, if their shapes are known without
/// data.
fn is_pool(op: &Op) -> bool {
    use OpKind as K;
    match op.kind() {
        K::MaxPool | K::AvgPool | K::MaxPoolBackward | K::Interpolate | K::InterpolateBackward => true,
        K::AvgPoolBackward => windows::has_known_result(op),
        _ => false,
    }
}

/// Ops that compute each element on its own.
const POINTWISE: Fusion = Fusion {
    name: "pointwise",
    seed: |op| Pointwise::of(op).is_some(),
    grow: |group, index| {
        let op = group.graph.ops[index];
        match Pointwise::of(op) {
            Some(_) if group.is_full(MAX_OPS) => FusionVerdict::Rejected(FULL),
            Some(_) => match moves::objection(group, index) {
                Some(why) => FusionVerdict::Rejected(why),
                None => FusionVerdict::Matched,
            },
            None if Function::of(op).is_some() => {
                FusionVerdict::Rejected("no kernel runs the op on these types together")
            }
            None => FusionVerdict::NoMatch,
        }
    },
    matches: |_| Ok(Match::Elementwise),
    is_pattern: false,
};

const FULL: &str = "the group has as many ops as a group may have";
const MOVES_ALONE: &str = "tiles of a product or of rows lie where the op does not move them";

/// Matched if an op that moves elements stands where strides of the group's operands or results can take its
/// place: before the group, or between it and the end of the graph.
fn moves_beside(group: &GroupView<'_>, op: usize) -> FusionVerdict {
    let graph = group.graph;
    let is_behind = graph.uses_any(op, group.members);
    let may_be_strides = match is_behind {
        true => moves::leads_out(graph, op),
        false => moves::keeps_elements(graph.ops[op]),
    };
    match moves::objection(group, op) {
        _ if !may_be_strides => FusionVerdict::Rejected(MOVES_ALONE),
        Some(why) => FusionVerdict::Rejected(why),
        None => FusionVerdict::Matched,
    }
}

/// Matched if a product takes an op in: a pointwise op that uses the product's result, or what follows from
/// the result; an op that leads to the operands of the product alone; a number for members, or a stored
/// tensor that is dequantised for them; or an op that moves the result on its way out.
fn around_product(group: &GroupView<'_>, index: usize) -> FusionVerdict {
    let graph = group.graph;
    let op = graph.ops[index];
    // The growth takes in a seed first.
    let Some(&product) = group.members.first() else { return FusionVerdict::NoMatch };
    let behind: SmallVec<[usize; 16]> =
        group.members.iter().copied().filter(|&other| other >= product).collect();
    match () {
        () if Pointwise::of(op).is_none() => FusionVerdict::NoMatch,
        () if group.is_full(MAX_OPS) => FusionVerdict::Rejected(FULL),
        () if graph.uses_any(index, &behind) => match moves::moves(op) {
            true => moves_beside(group, index),
            false if products::is_of_next_integers(group, index) => {
                FusionVerdict::Rejected(products::OF_NEXT_INTEGERS)
            }
            false => FusionVerdict::Matched,
        },
        () if products::is_own_number(group, index) => FusionVerdict::Matched,
        () if products::is_own_dequantisation(group, index) => FusionVerdict::Matched,
        () if products::makes_integers(group, index, product) => FusionVerdict::Matched,
        () if index > product => FusionVerdict::Rejected("the op does not use the product"),
        () if !graph.feeds_only(index, group.members)
            || graph.consumers(index).any(|user| *user > product) =>
        {
            FusionVerdict::Rejected("the op does not lead to the operands of the product alone")
        }
        () if products::follows_anchor(group, index, MAX_OPS) => {
            FusionVerdict::Rejected("the op is behind a product, or behind an op on rows")
        }
        () => moves::objection(group, index).map_or(FusionVerdict::Matched, FusionVerdict::Rejected),
    }
}

/// The match of other ops that compute the same as those of a match, from which it was rewritten: with roles
/// if the pattern is in these ops as well.
pub(super) fn matched_again(of: &Match, group: &GroupView<'_>) -> Match {
    let other_ops = FallbackReason::OtherOps;
    match of {
        Match::Attention { .. } => {
            attention::matches(group).unwrap_or(Match::Attention { softmax: 0, roles: Err(other_ops) })
        }
        Match::AttentionBackward { .. } => attention_backward::matches(group, MAX_OPS)
            .unwrap_or(Match::AttentionBackward { weights: 0, roles: Err(other_ops) }),
        Match::Products { .. } => products::matched(group),
        _ => of.clone(),
    }
}
