//! Which ops go together around several products: a norm and the products of its result, and the gated block
//! of a feed-forward layer, two products of one operand, pointwise ops that join them, and a third product.
//!
//! The ops run one after the other, as they would alone; what is between them stays in internal buffers, and
//! the pointwise ops run on the tiles of a product.

use super::fusion::{FusionVerdict, GroupView};
use super::matches::Match;
use super::moves;
use super::op_graph::OpGraph;
use super::pointwise::Pointwise;
use super::rows::is_on_rows;
use crate::graph::function::Composite;
use crate::graph::op::Op;
use crate::graph::windows::convolves;
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

const FULL: &str = "the group has as many ops as a group may have";
const USED_OUTSIDE: &str = "an op outside of the group uses the result";
pub(super) const OF_NEXT_INTEGERS: &str = "a product behind the group reads the integers";
const MOVES: &str = "tiles of a product lie where the op does not move them";

/// True if an op is a norm of rows whose result products may use.
pub(super) fn is_norm(op: &Op) -> bool {
    matches!(op.kind(), OpKind::LayerNorm | OpKind::RMSNorm) && is_on_rows(op)
}

fn is_product(op: &Op) -> bool {
    op.kind() == OpKind::MatMul
}

/// True if an op is a product that fused attention has no kernels for: of f64, or of a vector.
pub(super) fn is_beside_attention(op: &Op) -> bool {
    let mut operands = op.inputs().iter().take(2);
    is_product(op)
        && operands.any(|of| of.data_type() == DataType::F64 || of.rank().is_some_and(|rank| rank < 2))
}

/// True if an op is a product, or a convolution of any form, which is one of windows.
pub(super) fn multiplies(op: &Op) -> bool {
    is_product(op) || convolves(op)
}

/// True if one op has a result of another one as some input.
fn has_input(graph: &OpGraph<'_>, user: usize, input: usize, of: usize) -> bool {
    graph.ops[user].inputs().get(input).is_some_and(|tensor| graph.ops[of].gives(tensor.id()))
}

/// The match of any group with products.
pub(super) fn matched(group: &GroupView<'_>) -> Match {
    let graph = group.graph;
    // Scales that the graph fixes are those of Dequantize.
    let has_fixed_scales = |op: usize| {
        let mut others = (1..graph.ops[op].inputs().len()).filter_map(|input| graph.producer(op, input));
        let is_number = |other: usize| group.has(other) && graph.ops[other].kind() == OpKind::Fill;
        graph.ops[op].kind() == OpKind::Dequantize || others.any(is_number)
    };
    let is_integer = |product: usize, input: usize| {
        let (_, op) = graph.origin(product, input, moves::keeps_elements);
        op.is_some_and(|op| group.has(op) && dequantises_bytes(graph.ops[op]) && has_fixed_scales(op))
    };
    let mut products = group.members.iter().filter(|&&op| multiplies(graph.ops[op]));
    let of_integers = products.any(|&product| [0, 1].into_iter().all(|input| is_integer(product, input)));
    Match::Products { of_integers }
}

/// True if an op dequantises integers of 8 bits.
fn dequantises_bytes(op: &Op) -> bool {
    Composite::Dequantize.is_of(op) && matches!(op.inputs()[0].data_type(), DataType::U8 | DataType::S8)
}

/// True if an op makes the right operand of members alone: a conversion, a move, or a number for these.
fn leads_to_weights(group: &GroupView<'_>, op: usize) -> bool {
    let graph = group.graph;
    let is_conversion = matches!(graph.ops[op].kind(), OpKind::TypeCast | OpKind::Fill)
        || Composite::Dequantize.is_of(graph.ops[op]);
    let leads = |&user: &usize| {
        let of = graph.ops[user];
        match is_product(of) {
            true => has_input(graph, user, 1, op) && !has_input(graph, user, 0, op),
            false => leads_to_weights(group, user),
        }
    };
    (is_conversion || moves::keeps_elements(graph.ops[op]))
        && graph.feeds_only(op, group.members)
        && graph.consumers(op).all(leads)
        && graph.producers(op).all(|&producer| !is_product(graph.ops[producer]))
}

/// True if an op gives a number to members alone.
pub(super) fn is_own_number(group: &GroupView<'_>, op: usize) -> bool {
    group.graph.ops[op].kind() == OpKind::Fill && group.graph.feeds_only(op, group.members)
}

/// True if an op dequantises an input of the graph for members alone, or converts what such a member of the
/// group would read.
pub(super) fn is_own_dequantisation(group: &GroupView<'_>, op: usize) -> bool {
    let graph = group.graph;
    let dequantises =
        |op: usize| Composite::Dequantize.is_of(graph.ops[op]) && graph.producers(op).next().is_none();
    let converts = || {
        let is_one = |&producer: &usize| dequantises(producer) && graph.consumer_count(producer) == 1;
        graph.ops[op].kind() == OpKind::TypeCast && graph.producers(op).all(is_one)
    };
    let has_producer = || graph.producers(op).next().is_some();
    graph.feeds_only(op, group.members) && (dequantises(op) || has_producer() && converts())
}

/// True if an op dequantises one operand of a product for members alone, and another op does so with the
/// other operand: together they make a product of integers, whatever gives these integers.
pub(super) fn makes_integers(group: &GroupView<'_>, op: usize, product: usize) -> bool {
    group.graph.feeds_only(op, group.members) && is_operand_of_integers(group.graph, op, product)
}

/// True if an op dequantises one operand of a product, and another op, or the same, does so with the other.
fn is_operand_of_integers(graph: &OpGraph<'_>, op: usize, product: usize) -> bool {
    let operands = [0, 1].map(|input| graph.producer(product, input));
    operands.contains(&Some(op))
        && operands.iter().all(|of| of.is_some_and(|of| dequantises_bytes(graph.ops[of])))
}

/// True if an op dequantises bytes that the group gives for a product of integers behind the group, which is
/// to read the bytes: as f32 they would be more bytes, and the product one of f32.
pub(super) fn is_of_next_integers(group: &GroupView<'_>, op: usize) -> bool {
    let graph = group.graph;
    let is_one_of_integers = |&user: &usize| {
        multiplies(graph.ops[user]) && !group.has(user) && is_operand_of_integers(graph, op, user)
    };
    graph.consumer_count(op) == 1 && graph.consumers(op).all(is_one_of_integers)
}

/// The objection to an op that may not join at all, for both fusions.
fn objection(group: &GroupView<'_>, op: usize, most: usize) -> Option<FusionVerdict> {
    let of = group.graph.ops[op];
    match () {
        () if !is_product(of) && !is_norm(of) && Pointwise::of(of).is_none() => Some(FusionVerdict::NoMatch),
        () if group.is_full(most) => Some(FusionVerdict::Rejected(FULL)),
        () => None,
    }
}

/// The members of a gated block by what they do.
struct GatedBlock {
    /// The product that joins the others, from which the group grows.
    down: usize,
    /// The pointwise ops between the products.
    between: Vec<usize>,
    /// The products before these.
    before: Vec<usize>,
    /// The ops that use the last product, or what follows from it.
    behind: Vec<usize>,
}

impl GatedBlock {
    fn new(group: &GroupView<'_>) -> Option<Self> {
        let graph = group.graph;
        // The others lead to it, so it is the last one.
        let is_one = |op: &usize| is_product(graph.ops[*op]);
        let down = group.members.iter().copied().filter(is_one).max()?;
        let mut order = group.members.to_vec();
        order.sort_unstable();
        let mut block = Self { down, between: Vec::new(), before: Vec::new(), behind: vec![down] };
        for &op in order.iter().rev().filter(|&&op| op != down) {
            match block.leads_to_product(graph, op) {
                true if is_product(graph.ops[op]) => block.before.push(op),
                true => block.between.push(op),
                false => {}
            }
        }
        for &op in order.iter().filter(|&&op| op != down) {
            if block.follows(graph, op) {
                block.behind.push(op);
            }
        }
        Some(block)
    }

    /// True if pointwise members lead from an op to the left operand of the last product.
    fn leads_to_product(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        has_input(graph, self.down, 0, op) || graph.feeds_any(op, &self.between)
    }

    fn follows(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        graph.uses_any(op, &self.behind)
    }

    /// True if a product has the left operand of the product before that is there already.
    fn has_operand_of_others(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        let left = |op: usize| graph.ops[op].inputs()[0].id();
        self.before.iter().all(|&other| left(other) == left(op))
    }
}

/// The verdict of a gated block on one more op.
pub(super) fn grow_gated(group: &GroupView<'_>, op: usize, most: usize) -> FusionVerdict {
    let graph = group.graph;
    if let Some(verdict) = objection(group, op, most) {
        return verdict;
    }
    let Some(block) = GatedBlock::new(group) else { return FusionVerdict::NoMatch };
    let of = graph.ops[op];
    let is_anchor = is_product(of) || is_norm(of);
    let is_operand = |&user: &usize| block.before.contains(&user) && has_input(graph, user, 0, op);
    match () {
        () if block.follows(graph, op) => match () {
            () if is_anchor => FusionVerdict::NoMatch,
            () if is_of_next_integers(group, op) => FusionVerdict::Rejected(OF_NEXT_INTEGERS),
            () if moves::moves(of) => FusionVerdict::Rejected(MOVES),
            () => FusionVerdict::Matched,
        },
        () if !graph.feeds_only(op, group.members) => FusionVerdict::Rejected(USED_OUTSIDE),
        () if is_own_number(group, op) || leads_to_weights(group, op) => FusionVerdict::Matched,
        () if is_norm(of) => match graph.consumers(op).all(is_operand) {
            true => FusionVerdict::Matched,
            false => FusionVerdict::Rejected("the norm is no left operand of the products before the gate"),
        },
        () if !block.leads_to_product(graph, op) => FusionVerdict::NoMatch,
        () if is_product(of) && !block.has_operand_of_others(graph, op) => {
            FusionVerdict::Rejected("the product has another left operand than the product beside it")
        }
        () if is_product(of) && block.before.len() == 2 => {
            FusionVerdict::Rejected("the group has both products before its gate")
        }
        () if moves::moves(of) => FusionVerdict::Rejected(MOVES),
        () => FusionVerdict::Matched,
    }
}

/// The match of a gated block. Any product is a seed, so the fusion is silent about other groups.
pub(super) fn matches_gated(group: &GroupView<'_>) -> Result<Match, FusionVerdict> {
    match GatedBlock::new(group) {
        Some(block) if block.before.len() == 2 => Ok(matched(group)),
        _ => Err(FusionVerdict::NoMatch),
    }
}

/// The members of a norm with products by what they do.
struct NormedProducts {
    /// The norm, from which the group grows, and the pointwise ops between it and the products.
    normed: Vec<usize>,
    products: Vec<usize>,
    /// The pointwise ops that use a product, or what follows from one.
    behind: Vec<usize>,
}

impl NormedProducts {
    fn new(group: &GroupView<'_>) -> Option<Self> {
        let graph = group.graph;
        let norm = group.members.iter().copied().find(|&op| is_norm(graph.ops[op]))?;
        let mut order = group.members.to_vec();
        order.sort_unstable();
        let mut parts = Self { normed: vec![norm], products: Vec::new(), behind: Vec::new() };
        for &op in order.iter().filter(|&&op| op > norm) {
            match () {
                () if is_product(graph.ops[op]) => parts.products.push(op),
                () if parts.follows_product(graph, op) => parts.behind.push(op),
                () if graph.uses_any(op, &parts.normed) => parts.normed.push(op),
                () => {}
            }
        }
        Some(parts)
    }

    fn follows_product(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        graph.uses_any(op, &self.products) || graph.uses_any(op, &self.behind)
    }
}

/// The verdict of a norm with products on one more op.
pub(super) fn grow_normed(group: &GroupView<'_>, op: usize, most: usize) -> FusionVerdict {
    let graph = group.graph;
    if let Some(verdict) = objection(group, op, most) {
        return verdict;
    }
    let Some(parts) = NormedProducts::new(group) else { return FusionVerdict::NoMatch };
    let of = graph.ops[op];
    let is_inside = || graph.feeds_only(op, group.members);
    match () {
        () if is_norm(of) => FusionVerdict::NoMatch,
        () if is_product(of) => match parts.normed.iter().any(|&member| has_input(graph, op, 0, member)) {
            true if parts.follows_product(graph, op) => {
                FusionVerdict::Rejected("the product uses a product of the group")
            }
            true => FusionVerdict::Matched,
            false => FusionVerdict::NoMatch,
        },
        () if parts.follows_product(graph, op) && is_of_next_integers(group, op) => {
            FusionVerdict::Rejected(OF_NEXT_INTEGERS)
        }
        () if parts.follows_product(graph, op) || graph.uses_any(op, &parts.normed) => {
            match moves::moves(of) {
                true => FusionVerdict::Rejected(MOVES),
                false => FusionVerdict::Matched,
            }
        }
        () if !is_inside() => FusionVerdict::Rejected(USED_OUTSIDE),
        () if is_own_number(group, op) || leads_to_weights(group, op) => FusionVerdict::Matched,
        () if moves::moves(of) => FusionVerdict::Rejected(MOVES),
        () if follows_anchor(group, op, most) => {
            FusionVerdict::Rejected("the op is behind a product, or behind an op on rows")
        }
        () if has_input(graph, parts.normed[0], 0, op) => FusionVerdict::Matched,
        () => FusionVerdict::NoMatch,
    }
}

/// The match of a norm with products of it; the fusion is silent about other norms.
pub(super) fn matches_normed(group: &GroupView<'_>) -> Result<Match, FusionVerdict> {
    match NormedProducts::new(group) {
        Some(parts) if !parts.products.is_empty() => Ok(matched(group)),
        _ => Err(FusionVerdict::NoMatch),
    }
}

/// True if pointwise ops lead to an op from a product or from an op on rows outside of the group, which takes
/// in what follows it; or from more ops than one group can have.
pub(super) fn follows_anchor(group: &GroupView<'_>, index: usize, most: usize) -> bool {
    let graph = group.graph;
    let (mut open, mut seen) = (vec![index], vec![index]);
    while let Some(op) = open.pop() {
        for &producer in graph.producers(op) {
            let kind = graph.ops[producer];
            if multiplies(kind) || is_on_rows(kind) || seen.len() == most {
                return true;
            }
            if Pointwise::of(kind).is_some() && !seen.contains(&producer) {
                seen.push(producer);
                open.push(producer);
            }
        }
    }
    false
}
