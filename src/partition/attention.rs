//! Which ops go together as attention: two products with a SoftMax between them, the pointwise ops that make
//! the scores, and what stands directly around.
//!
//! A group grows from its SoftMax. Before the SoftMax it takes the pointwise ops that lead to the SoftMax and
//! one product, whose result are the scores; behind it, pointwise ops and the product with the values. Then
//! it takes scales, conversions and moves of the operands of both products, and pointwise ops and moves of
//! the result.

use super::fusion::{FusionVerdict, GroupView};
use super::matches::{AttentionRoles, Match, RoundedWeights};
use super::moves;
use super::op_graph::OpGraph;
use super::pointwise::{Pointwise, is_conversion};
use super::products::{OF_NEXT_INTEGERS, is_beside_attention, is_of_next_integers};
use super::rows::is_on_rows;
use super::sinks::SinkOps;
use crate::graph::function::Composite;
use crate::graph::op::Op;
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::kind::{Attr, OpKind};

/// True if a group may start at an op.
pub(super) fn is_seed(op: &Op) -> bool {
    op.kind() == OpKind::SoftMax && is_on_rows(op)
}

/// The match of a grown group, if it has both products.
pub(super) fn matches(group: &GroupView<'_>) -> Result<Match, FusionVerdict> {
    let parts = Parts::new(group);
    let has_whole_sinks = parts.sinks.is_none_or(|sinks| group.has(sinks.concat) == group.has(sinks.slice));
    let mut seeds = group.members.iter().filter(|&&op| group.graph.ops[op].kind() == OpKind::SoftMax);
    match ((seeds.next(), seeds.next()), parts.scores, parts.result) {
        _ if !has_whole_sinks => {
            Err(FusionVerdict::Rejected("the group has a part of a column without a key"))
        }
        ((Some(&softmax), None), Some(scores), Some(result)) => Ok(Match::Attention {
            softmax: group.place(softmax),
            roles: parts.roles(group, [scores, softmax, result]),
        }),
        (_, None, _) => Err(FusionVerdict::Rejected("no product leads to the SoftMax")),
        _ => Err(FusionVerdict::Rejected("no product uses the SoftMax as its left operand")),
    }
}

/// The verdict on one more op.
pub(super) fn grow(group: &GroupView<'_>, op: usize, most: usize) -> FusionVerdict {
    let graph = group.graph;
    let kind = graph.ops[op].kind();
    if !matches!(kind, OpKind::MatMul | OpKind::PagedLoad) && Pointwise::of(graph.ops[op]).is_none() {
        return FusionVerdict::NoMatch;
    }
    if group.is_full(most) {
        return FusionVerdict::Rejected("the group has as many ops as a group may have");
    }
    let parts = Parts::new(group);
    let verdict = match kind {
        OpKind::MatMul => parts.takes_product(graph, op),
        OpKind::PagedLoad => parts.takes_load(graph, op),
        _ if !parts.keeps_pages(graph, op) => Err("tables and lengths of pages are inputs"),
        _ if graph.uses_any(op, &parts.of_result) && is_of_next_integers(group, op) => Err(OF_NEXT_INTEGERS),
        _ if graph.uses_any(op, &parts.behind) => parts.takes_behind(graph, op),
        _ if parts.leads_to_softmax(graph, op) => parts.takes_before(graph, op),
        _ => parts.takes_operand(graph, op),
    };
    match verdict {
        Ok(()) => FusionVerdict::Matched,
        Err(why) => FusionVerdict::Rejected(why),
    }
}

/// The members of a group by what they do.
struct Parts<'a> {
    members: &'a [usize],
    /// The product that makes the scores, and the one that uses the SoftMax.
    scores: Option<usize>,
    result: Option<usize>,
    /// The members that use the SoftMax, or what follows from it; the SoftMax is one of them.
    behind: Vec<usize>,
    /// Of these, the product and what follows from it.
    of_result: Vec<usize>,
    /// The members whose results lead to the SoftMax through pointwise members; the SoftMax is one of them.
    before: Vec<usize>,
    /// The ops that give the SoftMax a column without a key.
    sinks: Option<SinkOps>,
}

impl<'a> Parts<'a> {
    fn new(group: &GroupView<'a>) -> Self {
        let graph = group.graph;
        let mut order = group.members.to_vec();
        order.sort_unstable();
        let seeds = || order.iter().copied().filter(|&op| graph.ops[op].kind() == OpKind::SoftMax);
        let (mut behind, mut before): (Vec<usize>, Vec<usize>) = (seeds().collect(), seeds().collect());
        for &op in &order {
            if !behind.contains(&op) && graph.uses_any(op, &behind) {
                behind.push(op);
            }
        }
        let mut scores = None;
        for &op in order.iter().rev() {
            let leads = !before.contains(&op) && !behind.contains(&op) && graph.feeds_any(op, &before);
            match leads {
                true if graph.ops[op].kind() == OpKind::MatMul => scores = Some(op),
                true => before.push(op),
                false => {}
            }
        }
        let result = behind.iter().copied().find(|&op| graph.ops[op].kind() == OpKind::MatMul);
        let mut of_result: Vec<usize> = result.into_iter().collect();
        for &op in &behind {
            if !of_result.is_empty() && graph.uses_any(op, &of_result) {
                of_result.push(op);
            }
        }
        let sinks = seeds().next().and_then(|softmax| SinkOps::of(graph, softmax));
        Self { members: group.members, scores, result, behind, of_result, before, sinks }
    }

    /// The roles of the members, unless the ops themselves are none that run by tiles.
    fn roles(
        &self,
        group: &GroupView<'_>,
        ops @ [scores, softmax, result]: [usize; 3],
    ) -> Result<AttentionRoles, FallbackReason> {
        let graph = group.graph;
        let is_load = |op: usize| graph.ops[op].kind() == OpKind::PagedLoad;
        let fits = |op: &usize| ops.contains(op) || is_load(*op) || Pointwise::of(graph.ops[*op]).is_some();
        let has_bias = |&product: &usize| graph.ops[product].inputs().len() > 2;
        R::OtherOps.unless(self.members.iter().all(fits))?;
        R::BiasOfProduct.unless(![scores, result].iter().any(has_bias))?;
        R::TransposedWeights.unless(!graph.ops[result].bool_attr(Attr::TransposeA))?;
        let slice = self.sinks.map(|sinks| sinks.slice).filter(|&slice| group.has(slice));
        let (_, made_by) = graph.origin(result, 0, is_conversion);
        let place = |op: usize| group.place(op);
        Ok(AttentionRoles {
            scores: place(scores),
            softmax: place(softmax),
            result: place(result),
            sinks: slice.map(place),
            computes_weights: made_by != slice.or(Some(softmax)),
            rounded: made_by.and_then(|op| rounded_weights(group, softmax, op)),
        })
    }

    fn is_behind(&self, op: usize) -> bool {
        self.behind.contains(&op)
    }

    /// True if a pointwise op outside of the group leads to the SoftMax through members.
    fn leads_to_softmax(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        graph.feeds_any(op, &self.before)
    }

    fn takes_product(&self, graph: &OpGraph<'_>, op: usize) -> Result<(), &'static str> {
        let [left, right] = [0, 1].map(|input| graph.producer(op, input).filter(|&of| self.is_behind(of)));
        match (left, right) {
            _ if is_beside_attention(graph.ops[op]) => Err("the product is one of f64, or of a vector"),
            (Some(_), None) if self.result.is_some() => Err("the group has a product behind its SoftMax"),
            (Some(_), None) if graph.ops[op].bool_attr(Attr::TransposeA) => {
                Err("the product sums over the rows of the SoftMax")
            }
            (Some(_), None) => Ok(()),
            (_, Some(_)) => Err("the SoftMax is no left operand of the product"),
            (None, None) if !self.leads_to_softmax(graph, op) => Err("the product does not make the scores"),
            (None, None) if self.scores.is_some() => Err("the group has a product before its SoftMax"),
            (None, None) if self.feeds_move(graph, op) => Err(MOVES),
            (None, None) => Ok(()),
        }
    }

    /// An op that uses the SoftMax or what follows from it.
    fn takes_behind(&self, graph: &OpGraph<'_>, op: usize) -> Result<(), &'static str> {
        let is_of_result = graph.uses_any(op, &self.of_result);
        match () {
            () if is_of_result && moves::keeps_elements(graph.ops[op]) => Ok(()),
            () if self.sinks.is_some_and(|sinks| sinks.slice == op) => Ok(()),
            () if moves::moves(graph.ops[op]) => Err(MOVES),
            () if is_of_result => Ok(()),
            () if leads_to_product(graph, op) => Ok(()),
            () => Err("the op does not lead to the product with the values"),
        }
    }

    /// An op that leads to the SoftMax.
    fn takes_before(&self, graph: &OpGraph<'_>, op: usize) -> Result<(), &'static str> {
        match () {
            () if self.sinks.is_some_and(|sinks| sinks.concat == op) => Ok(()),
            () if moves::moves(graph.ops[op]) && !self.takes_move(graph, op) => Err(MOVES),
            () if !moves::moves(graph.ops[op]) && self.feeds_move(graph, op) => Err(MOVES),
            // Other ops may use a value that does not depend on the scores: it is also computed as a whole
            // outside of the tiles.
            () if !graph.feeds_only(op, self.members) && !depends_on_product(graph, op) => {
                Err("an op outside of the group uses the result")
            }
            () => Ok(()),
        }
    }

    /// An op that moves elements on their way to the SoftMax: those of an input, or of what another partition
    /// has made for this group alone, such as a bias whose dims change.
    fn takes_move(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        let members = self.members;
        let is_of_another =
            || moves::divides(graph.ops[op]) && graph.feeds_only(op, members) && !graph.uses_any(op, members);
        moves_input(graph, op) || is_of_another()
    }

    /// True if a member that leads to the SoftMax moves the result of an op, which is not computed in tiles
    /// unless it is the same number everywhere.
    fn feeds_move(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        let is_sink = |member: usize| self.sinks.is_some_and(|sinks| sinks.concat == member);
        let mut moving = self.before.iter().filter(|&&op| moves::moves(graph.ops[op]) && !is_sink(op));
        graph.ops[op].kind() != OpKind::Fill && moving.any(|&member| graph.has_edge(op, member))
    }

    /// A load of keys or values from pages.
    fn takes_load(&self, graph: &OpGraph<'_>, op: usize) -> Result<(), &'static str> {
        let is_of_input =
            |input: usize| graph.producer(op, input).is_none_or(|of| !self.members.contains(&of));
        match () {
            () if !graph.feeds_only(op, self.members) => Err("an op outside of the group uses the result"),
            () if !(1..graph.ops[op].inputs().len()).all(is_of_input) => {
                Err("tables and lengths of pages are inputs")
            }
            () if !self.leads_to_right(graph, op) => Err("the pages hold neither keys nor values"),
            () => Ok(()),
        }
    }

    /// True if members lead from an op to the right operands of products alone, as what is moved, converted
    /// or dequantised.
    fn leads_to_right(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        graph.consumers(op).all(|&user| {
            let of = graph.ops[user];
            let port = if of.kind() == OpKind::MatMul { 1 } else { 0 };
            let is_only = (0..of.inputs().len())
                .all(|input| (graph.producer(user, input) == Some(op)) == (input == port));
            let leads = of.kind() == OpKind::MatMul
                || !self.before.contains(&user) && self.leads_to_right(graph, user);
            is_only && leads
        })
    }

    /// True unless an op makes the table or the lengths of a member that loads pages, or computes the cache.
    fn keeps_pages(&self, graph: &OpGraph<'_>, op: usize) -> bool {
        let is_load = |member: &&usize| graph.ops[**member].kind() == OpKind::PagedLoad;
        self.members.iter().filter(is_load).all(|&load| {
            let is_made = |input: usize| graph.producer(load, input) == Some(op);
            let has_tables = (1..graph.ops[load].inputs().len()).any(is_made);
            !has_tables && (!is_made(0) || moves::keeps_elements(graph.ops[op]))
        })
    }

    /// An op that leads to an operand of a product.
    fn takes_operand(&self, graph: &OpGraph<'_>, op: usize) -> Result<(), &'static str> {
        let is_conversion =
            graph.ops[op].kind() == OpKind::TypeCast || Composite::Dequantize.is_of(graph.ops[op]);
        // A scale of an operand that comes from outside or was moved, and its number.
        let is_fill = |op: usize| graph.ops[op].kind() == OpKind::Fill;
        let is_unscaled = |&producer: &usize| is_fill(producer) || moves::keeps_elements(graph.ops[producer]);
        let is_scale = matches!(graph.ops[op].kind(), OpKind::Multiply | OpKind::Divide)
            && graph.producers(op).all(is_unscaled);
        let is_epilogue = || {
            // The result of a load is in memory, as an input is.
            let is_anchor = |producer: &usize| {
                let of = graph.ops[*producer];
                of.kind() != OpKind::PagedLoad && Pointwise::of(of).is_none()
            };
            graph.producers(op).any(is_anchor)
        };
        match () {
            () if !graph.feeds_only(op, self.members) => Err("an op outside of the group uses the result"),
            () if moves::keeps_elements(graph.ops[op]) => Ok(()),
            () if is_scale || is_fill(op) => Ok(()),
            () if !is_conversion => Err("the op computes an operand of a product"),
            () if is_epilogue() => Err("the op is computed with what it converts"),
            () => Ok(()),
        }
    }
}

/// The rounding of weights, if a member that dequantises them gives them to a product.
fn rounded_weights(group: &GroupView<'_>, softmax: usize, dequantize: usize) -> Option<RoundedWeights> {
    let graph = group.graph;
    let quantize = || {
        let quantize = graph.producer(dequantize, 0).filter(|&op| group.has(op));
        let quantize = quantize.filter(|&op| graph.ops[op].kind() == OpKind::Quantize);
        let quantize = quantize.ok_or(R::RoundingOfWeights)?;
        let (tensor, _) = graph.origin(quantize, 0, |op| op.kind() == OpKind::TypeCast);
        R::ConvertedWeights.unless(tensor == Some(graph.ops[softmax].outputs()[0].id()))?;
        Ok(group.place(quantize))
    };
    let is_one = group.has(dequantize) && Composite::Dequantize.is_of(graph.ops[dequantize]);
    is_one.then(|| RoundedWeights { dequantize: group.place(dequantize), quantize: quantize() })
}

/// True if an op gives an input of the graph other dims, or a part of it that another op has given other
/// dims. Strides lead to the elements of such a mask or bias.
fn moves_input(graph: &OpGraph<'_>, op: usize) -> bool {
    let is_input = |op: usize| moves::keeps_elements(graph.ops[op]) && graph.producers(op).next().is_none();
    let is_slice = graph.ops[op].kind() == OpKind::Slice;
    is_input(op) || is_slice && graph.producers(op).all(|&producer| is_input(producer))
}

const MOVES: &str = "tiles lie where the op does not move them";

/// The most ops on a path between an op and a product of its group.
const LONGEST_PATH: usize = 64;

/// True if pointwise ops lead from an op to a product as its left operand.
fn leads_to_product(graph: &OpGraph<'_>, op: usize) -> bool {
    // The edges of the shortest path.
    let edges = graph.to_product.get_or_init(|| {
        let mut edges = vec![usize::MAX; graph.ops.len()];
        for op in (0..graph.ops.len()).rev() {
            let results = graph.ops[op].outputs();
            let along = |&consumer: &usize| match graph.ops[consumer].kind() {
                OpKind::MatMul => {
                    let left = graph.ops[consumer].inputs()[0].id();
                    if results.iter().any(|result| result.id() == left) { 1 } else { usize::MAX }
                }
                _ if Pointwise::of(graph.ops[consumer]).is_some() => edges[consumer].saturating_add(1),
                _ => usize::MAX,
            };
            edges[op] = graph.consumers(op).map(along).min().unwrap_or(usize::MAX);
        }
        edges
    });
    edges[op] <= LONGEST_PATH
}

/// True for an op that computes from the result of a product, and not only from its shape. A product does.
pub(super) fn depends_on_product(graph: &OpGraph<'_>, op: usize) -> bool {
    let edges = graph.from_product.get_or_init(|| {
        let mut edges = vec![usize::MAX; graph.ops.len()];
        for op in 0..graph.ops.len() {
            edges[op] = match graph.ops[op].kind() {
                OpKind::MatMul => 0,
                OpKind::GenIndex => usize::MAX,
                _ if Pointwise::of(graph.ops[op]).is_some() => {
                    let before = graph.producers(op).map(|&producer| edges[producer]).min();
                    before.map_or(usize::MAX, |before| before.saturating_add(1))
                }
                _ => usize::MAX,
            };
        }
        edges
    });
    edges[op] < LONGEST_PATH
}
