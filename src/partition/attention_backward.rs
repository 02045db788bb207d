//! Which ops go together as the gradients of attention.
//!
//! The weights are the result of a SoftMax, or of an Exp of the scores less their statistics. One product
//! makes the scores. Another product, of the gradients of the result with the values, may make the gradients
//! of the weights. A product sums up over the queries, as a transposed left operand follows from the weights,
//! or it multiplies what follows from both products by the keys of the scores. One value that follows from
//! the gradients of the weights may be needed as a whole: the gradient of a mask, or what is summed up to it.
//! A pattern is found from the op that makes the weights, as a whole; its [core](Pattern::core) must share
//! the partition, what stands around may.

use std::collections::VecDeque;

use super::attention::depends_on_product;
use super::fusion::{FusionVerdict, GroupView};
use super::matches::{GradientRoles, Match};
use super::moves;
use super::op_graph::OpGraph;
use super::pointwise::{Pointwise, is_conversion};
use super::products::is_beside_attention;
use super::rows::is_on_rows;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::fallback::{FallbackReason, FallbackReason as R};
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};

/// True if a group may start at an op.
pub(super) fn is_seed(op: &Op) -> bool {
    match op.kind() {
        OpKind::SoftMax => is_on_rows(op),
        OpKind::Exp => Pointwise::of(op).is_some(),
        _ => false,
    }
}

/// The match of a grown group, if it has the core of a pattern.
pub(super) fn matches(group: &GroupView<'_>, most: usize) -> Result<Match, FusionVerdict> {
    let mut verdict = FusionVerdict::NoMatch;
    // The weights are the last op that may make them.
    for &seed in group.members.iter().rev().filter(|&&op| is_seed(group.graph.ops[op])) {
        let why = match Pattern::new(group.graph, seed, most) {
            Ok(pattern) if pattern.core.iter().all(|&op| group.has(op)) => {
                let (weights, roles) = (group.place(seed), pattern.roles(group));
                return Ok(Match::AttentionBackward { weights, roles });
            }
            Ok(_) => "a path would leave the gradients and come back",
            Err(Mismatch::Why(why)) => why,
            Err(Mismatch::Other) => continue,
        };
        if verdict == FusionVerdict::NoMatch {
            verdict = FusionVerdict::Rejected(why);
        }
    }
    Err(verdict)
}

/// The verdict on one more op.
pub(super) fn grow(group: &GroupView<'_>, op: usize, most: usize) -> FusionVerdict {
    let Some(&seed) = group.members.first() else { return FusionVerdict::NoMatch };
    let found = group.found.get_or_init(|| match Pattern::new(group.graph, seed, most) {
        Ok(pattern) => [pattern.core, pattern.around].concat(),
        Err(_) => Vec::new(),
    });
    match found.contains(&op) {
        true => FusionVerdict::Matched,
        false => FusionVerdict::NoMatch,
    }
}

/// The ops of a pattern.
struct Pattern {
    /// The op that makes the weights.
    seed: usize,
    /// The products that make scores and gradients of weights, and those that give gradients.
    products: Vec<usize>,
    ends: Vec<usize>,
    /// From the product that makes the scores to those that give gradients.
    core: Vec<usize>,
    /// The op of the core whose result is needed as a whole; it follows from the gradients of the weights.
    mask: Option<usize>,
    /// Ops that make masks and statistics of gradients, bring operands to products, or follow the results.
    around: Vec<usize>,
}

/// Why there is no pattern.
enum Mismatch {
    /// The ops are something else.
    Other,
    /// They would be a pattern but for the reason that the text gives.
    Why(&'static str),
}

impl Pattern {
    /// The pattern around the op that makes the weights.
    fn new(graph: &OpGraph<'_>, seed: usize, most: usize) -> Result<Self, Mismatch> {
        let mut finder =
            Finder { graph, most, core: vec![seed], products: Vec::new(), ends: Vec::new(), mask: None };
        finder.before(seed)?;
        let [scores] = finder.products[..] else { return Err(Mismatch::Other) };
        finder.behind(seed)?;
        let of_dp = of_dp(graph, &finder.core, &finder.products);
        if finder.mask.is_some_and(|op| !of_dp.contains(&op)) {
            return Err(Mismatch::Other);
        }
        let sums_queries = |&end: &usize| graph.ops[end].bool_attr(Attr::TransposeA);
        let multiplies_keys = |&end: &usize| {
            finder.products.len() > 1 && right_origin(graph, end) == right_origin(graph, scores)
        };
        if !finder.ends.iter().any(|end| sums_queries(end) || multiplies_keys(end)) {
            return Err(Mismatch::Other);
        }
        if finder.ends.len() > 3 || finder.products.len() > 2 {
            return Err(Mismatch::Why("more products use the weights than gradients do"));
        }
        let is_product = |op: &usize| finder.ends.contains(op);
        if is_product(&scores) || finder.products.iter().any(is_product) {
            return Err(Mismatch::Why("a product of gradients makes the scores"));
        }
        // A result that nobody consumes is an output of the graph.
        let is_used = |op: &usize| {
            let uses = |tensor| graph.consumers(*op).any(|&user| uses(graph.ops[user], tensor));
            graph.ops[*op].outputs().iter().all(|output| uses(output.id()))
        };
        let unused = finder.core.iter().copied().find(|op| of_dp.contains(op) && !is_used(op));
        let mask = finder.mask.or(unused);
        let finder = Finder { mask, ..finder };
        let around = finder.around();
        let Finder { core, products, ends, .. } = finder;
        let is_inside = |op: &usize| core.contains(op) || around.contains(op);
        let is_whole = |op: &usize| ends.contains(op) || mask == Some(*op);
        let is_hidden = |op: &usize| graph.consumers(*op).all(is_inside);
        match core.iter().all(|op| is_whole(op) || is_hidden(op) && is_used(op)) {
            true => Ok(Self { seed, products, ends, core, mask, around }),
            false => Err(Mismatch::Why("an op outside of the group uses scores or weights")),
        }
    }
}

impl Pattern {
    /// The roles of the members, unless the ops themselves are none that run by tiles.
    fn roles(&self, group: &GroupView<'_>) -> Result<GradientRoles, FallbackReason> {
        let Self { seed, products, ends, core, mask, .. } = self;
        let graph = group.graph;
        let is_kind = |op: usize, kind: OpKind| graph.ops[op].kind() == kind;
        let backwards: Vec<usize> =
            core.iter().copied().filter(|&op| is_kind(op, OpKind::SoftMaxBackward)).collect();
        let of_weights = graph.ops[*seed].outputs();
        let takes_weights = |&op: &usize| graph.origin(op, 1, is_conversion).0 == Some(of_weights[0].id());
        let most = usize::from(is_kind(*seed, OpKind::SoftMax));
        R::OtherOps.unless(backwards.len() <= most && backwards.iter().all(takes_weights))?;
        // No op but those in the tiles needs a value there, and none the statistics.
        let is_inner = |op: &usize| !ends.contains(op) && *mask != Some(*op);
        let inner: Vec<usize> = core.iter().copied().filter(is_inner).collect();
        let needs_inner = |&&op: &&usize| {
            !core.contains(&op) && !is_kind(op, OpKind::GenIndex) && graph.uses_any(op, &inner)
        };
        R::InnerUses.unless(of_weights.len() == 1 && !group.members.iter().any(|op| needs_inner(&op)))?;

        let (backward, dp) = (backwards.first().copied(), products.get(1).copied());
        let of_dp = of_dp(graph, core, products);
        let mut results = [None; 3];
        for &end in ends {
            let is_of_dp = graph.producer(end, 0).is_some_and(|left| of_dp.contains(&left));
            let place = match (graph.ops[end].bool_attr(Attr::TransposeA), is_of_dp) {
                (false, true) => 0,
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => return Err(R::OtherOps),
            };
            R::SeveralProducts.unless(results[place].replace(end).is_none())?;
        }
        let sum = |place: usize| results[place].map(|end| only_sum(group, end));
        let sums = [None, sum(1), sum(2)];
        let sums = if sums.contains(&Some(None)) { [None; 3] } else { sums.map(Option::flatten) };
        let place = |op: usize| group.place(op);
        Ok(GradientRoles {
            weights: place(*seed),
            backward: backward.map(place),
            scores: place(products[0]),
            dp: dp.map(place),
            results: results.map(|end| end.map(place)),
            sums: sums.map(|sum| sum.map(place)),
            mask: mask.map(place),
        })
    }
}

/// The gradients of the weights, from a SoftMaxBackward if there is one, and what pointwise ops of the core
/// make of them.
fn of_dp(graph: &OpGraph<'_>, core: &[usize], products: &[usize]) -> Vec<usize> {
    let is_backward = |op: &&usize| graph.ops[**op].kind() == OpKind::SoftMaxBackward;
    let mut of_dp: Vec<usize> =
        core.iter().find(is_backward).or(products.get(1)).copied().into_iter().collect();
    let mut order = core.to_vec();
    order.sort_unstable();
    for op in order {
        if Pointwise::of(graph.ops[op]).is_some() && graph.uses_any(op, &of_dp) {
            of_dp.push(op);
        }
    }
    of_dp
}

/// The sum that alone follows an op, but for conversions.
fn only_sum(group: &GroupView<'_>, mut op: usize) -> Option<usize> {
    let graph = group.graph;
    loop {
        let mut users = graph.consumers(op);
        let (&user, None) = (users.next()?, users.next()) else { return None };
        match graph.ops[user] {
            _ if !group.has(user) => return None,
            of if of.kind() == OpKind::ReduceSum => return Some(user),
            of if !is_conversion(of) => return None,
            _ => op = user,
        }
    }
}

/// The tensor from which the right operand of a product differs in its type or the order of its dims.
fn right_origin(graph: &OpGraph<'_>, product: usize) -> Option<TensorId> {
    use OpKind as K;
    // Keys and values may be slices of one tensor.
    let passes =
        |op: &Op| matches!(op.kind(), K::TypeCast | K::StaticTranspose | K::StaticReshape | K::Reorder);
    graph.origin(product, 1, passes).0
}

/// True if an op uses a tensor.
fn uses(op: &Op, tensor: TensorId) -> bool {
    op.inputs().iter().any(|input| input.id() == tensor)
}

/// Finds the core of a pattern.
struct Finder<'a, 'g> {
    graph: &'a OpGraph<'g>,
    most: usize,
    core: Vec<usize>,
    /// The products that make scores and gradients of weights.
    products: Vec<usize>,
    /// The products that give gradients.
    ends: Vec<usize>,
    /// The op behind the weights whose result is needed as a whole.
    mask: Option<usize>,
}

impl Finder<'_, '_> {
    /// Takes an op into the core; whether it is new there.
    fn take(&mut self, op: usize) -> Result<bool, Mismatch> {
        if self.core.contains(&op) {
            return Ok(false);
        }
        if self.core.len() == self.most || is_beside_attention(self.graph.ops[op]) {
            return Err(Mismatch::Other);
        }
        self.core.push(op);
        Ok(true)
    }

    /// Takes the pointwise ops and products that lead to an op of the core.
    fn before(&mut self, op: usize) -> Result<(), Mismatch> {
        let graph = self.graph;
        let mut open: Vec<usize> = graph.producers(op).copied().collect();
        while let Some(op) = open.pop() {
            let kind = graph.ops[op].kind();
            if kind == OpKind::MatMul && graph.ops[op].inputs().len() == 2 {
                if self.take(op)? {
                    self.products.push(op);
                }
            } else if leads_from_product(graph, op) {
                if moves::moves(graph.ops[op]) {
                    return Err(Mismatch::Other);
                }
                if self.take(op)? {
                    open.extend(graph.producers(op));
                }
            }
        }
        Ok(())
    }

    /// Takes what follows from the weights, up to the products that give gradients, and what leads there.
    fn behind(&mut self, seed: usize) -> Result<(), Mismatch> {
        let graph = self.graph;
        let mut open = vec![seed];
        let mut followed = vec![seed];
        while let Some(from) = open.pop() {
            // Each user but an index is one of the pattern.
            if graph.consumer_count(from) > self.most {
                return Err(Mismatch::Other);
            }
            for &op in graph.consumers(from) {
                let (of, user) = (graph.ops[from], graph.ops[op]);
                let result = of.outputs()[0].id();
                let is_input =
                    |place: usize| user.inputs().get(place).is_some_and(|input| input.id() == result);
                if followed.contains(&op) || self.ends.contains(&op) {
                    continue;
                }
                match user.kind() {
                    OpKind::MatMul => {
                        if !is_input(0) || is_input(1) || user.inputs().len() != 2 {
                            return Err(Mismatch::Other);
                        }
                        self.take(op)?;
                        self.ends.push(op);
                        continue;
                    }
                    OpKind::GenIndex => continue,
                    OpKind::SoftMaxBackward if is_on_rows(user) && is_input(1) && !is_input(0) => {}
                    _ if Pointwise::of(user).is_none() || moves::moves(user) => {
                        if self.mask.replace(from).is_some_and(|other| other != from) {
                            return Err(Mismatch::Other);
                        }
                        continue;
                    }
                    _ => {}
                }
                followed.push(op);
                self.take(op)?;
                open.push(op);
            }
        }
        followed.iter().try_for_each(|&op| self.before(op))
    }

    /// The ops that the partition takes around the core.
    fn around(&self) -> Vec<usize> {
        let graph = self.graph;
        let mut around: Vec<usize> = Vec::new();
        let has_room = |around: &Vec<usize>| self.core.len() + around.len() < self.most;
        // Ops before: all that use them are members.
        loop {
            let is_inside = |op: &usize| self.core.contains(op) || around.contains(op);
            let members = self.core.iter().chain(&around);
            let mut open = members
                .flat_map(|&user| graph.producers(user).map(move |&op| (user, op)))
                .filter(|(_, op)| !is_inside(op) && graph.consumers(*op).all(is_inside));
            let next = open.find(|&(user, op)| self.takes_before(user, op));
            let Some((_, op)) = next.filter(|_| has_room(&around)) else { break };
            around.push(op);
        }
        // Ops behind: all that they use are members, or given to the graph.
        let follows = |op: usize, around: &[usize]| {
            let is_inside = |op: &usize| self.core.contains(op) || around.contains(op);
            let is_of_rows = infer::is_reduction(graph.ops[op]) && is_on_rows(graph.ops[op]);
            let is_pointwise = || {
                let is_one = moves::keeps_elements(graph.ops[op]) || !moves::moves(graph.ops[op]);
                Pointwise::of(graph.ops[op]).is_some() && is_one
            };
            let is_there = |producer: &usize| is_inside(producer) || self.is_number_of(*producer, op);
            !is_inside(&op) && (is_of_rows || is_pointwise()) && graph.producers(op).all(is_there)
        };
        // An op that uses several is looked at behind each of them.
        let mut behind: VecDeque<usize> = self.ends.iter().copied().chain(self.mask).collect();
        while let Some(of) = behind.pop_front() {
            for &op in graph.consumers(of) {
                if !has_room(&around) {
                    return around;
                }
                let numbers: Vec<usize> =
                    graph.producers(op).copied().filter(|&number| self.is_number_of(number, op)).collect();
                let has_room_for_all = self.core.len() + around.len() + numbers.len() < self.most;
                if has_room_for_all && follows(op, &around) {
                    around.extend(numbers);
                    around.push(op);
                    behind.push_back(op);
                }
            }
        }
        around
    }

    /// True if an op makes a number for another one alone.
    fn is_number_of(&self, number: usize, op: usize) -> bool {
        self.graph.ops[number].kind() == OpKind::Fill && self.graph.consumers(number).all(|&user| user == op)
    }

    /// True if an op that a member uses belongs to the pattern.
    fn takes_before(&self, user: usize, op: usize) -> bool {
        let graph = self.graph;
        let (of, is_operand) = (graph.ops[op], graph.ops[user].kind() == OpKind::MatMul);
        let is_behind_anchor =
            || graph.producers(op).any(|&producer| Pointwise::of(graph.ops[producer]).is_none());
        if moves::keeps_elements(graph.ops[user]) && !self.core.contains(&user) || is_operand {
            // An op that leads to an operand of a product.
            return moves::keeps_elements(of) || of.kind() == OpKind::TypeCast && !is_behind_anchor();
        }
        match of.kind() {
            // Sums of the gradients of the result.
            _ if infer::is_reduction(of) => is_on_rows(of) && !is_on_rows(graph.ops[user]),
            _ => Pointwise::of(of).is_some() && !moves::moves(of),
        }
    }
}

/// True if pointwise ops lead from a product to an op, and not only from its shape; the op is pointwise.
fn leads_from_product(graph: &OpGraph<'_>, op: usize) -> bool {
    graph.ops[op].kind() != OpKind::MatMul && depends_on_product(graph, op)
}
