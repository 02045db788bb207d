//! The ops between the two products of attention, and the same ops on scores whose batch dims are grouped in
//! another way.

use rustc_hash::FxHashMap;

use super::pattern_rewriter::{PatternRewriter, aligns_right};
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, AutoBroadcast, OpKind};
use crate::types::shape;

/// The most ops between the products.
const MAX_OPS: usize = 48;

/// Two products, and the ops between them by their places.
pub(super) struct Core {
    pub(super) first: usize,
    /// The ops that use the scores, or what follows from them; the SoftMax is one of them.
    between: Vec<usize>,
    pub(super) second: usize,
}

/// An operand of a product in its new form.
pub(super) struct RightOperand {
    pub(super) tensor: LogicalTensor,
    /// True if its last two dims are exchanged, beside what the attribute of the product says.
    pub(super) is_transposed: bool,
}

impl Core {
    /// The core that begins at a product: every op that uses the scores is on the way to one SoftMax along
    /// the keys and one product behind it.
    pub(super) fn at(rewriter: &PatternRewriter<'_>, first: usize) -> Option<Self> {
        let product = rewriter.op(first).filter(|op| op.kind() == OpKind::MatMul)?;
        let is_plain = |op: &Op| op.inputs().len() == 2 && op.inputs()[0].id() != op.inputs()[1].id();
        let mut between: Vec<usize> = Vec::new();
        let (mut second, mut has_softmax) = (None, false);
        let mut waiting = rewriter.consumers(&product.outputs()[0]).to_vec();
        while let Some(place) = waiting.pop() {
            let op = rewriter.op(place)?;
            match op.kind() {
                OpKind::MatMul if second.is_none_or(|other| other == place) && is_plain(op) => {
                    second = Some(place);
                    continue;
                }
                OpKind::SoftMax if op.outputs().len() == 1 && is_along_last(op) && !has_softmax => {
                    has_softmax = true;
                }
                // A column without a key comes and goes.
                OpKind::StaticReshape | OpKind::Concat | OpKind::Slice => {}
                _ if is_on_elements(op) => {}
                _ => return None,
            }
            between.push(place);
            if between.len() > MAX_OPS {
                return None;
            }
            let users = op.outputs().iter().flat_map(|output| rewriter.consumers(output));
            for &user in users {
                if !between.contains(&user) && !waiting.contains(&user) {
                    waiting.push(user);
                }
            }
        }
        (has_softmax && is_plain(product)).then_some(Self { first, between, second: second? })
    }

    /// The products and all ops between them.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        [self.first, self.second].into_iter().chain(self.between.iter().copied())
    }

    /// The batch dims that all scores may have, if a reshape stands between the products: those of the
    /// SoftMax, and those that a reshape gives for a mask alone.
    pub(super) fn batches<'d>(&self, rewriter: &'d PatternRewriter<'_>) -> Vec<&'d [i64]> {
        let of_kind = |kind: OpKind| {
            let ops = self.between.iter().filter_map(|&place| rewriter.op(place));
            ops.filter(move |op| op.kind() == kind)
        };
        let reshaped: Vec<&LogicalTensor> = of_kind(OpKind::StaticReshape).flat_map(Op::outputs).collect();
        let logits = of_kind(OpKind::SoftMax).flat_map(Op::inputs).filter(|_| !reshaped.is_empty());
        logits.chain(reshaped.iter().copied()).filter_map(batch_of).collect()
    }

    /// The same ops, whose scores have other batch dims with as many elements. `keys` and `values` are the
    /// right operands of the products if these have a form of their own. The last op gives the result of the
    /// second product its dims back.
    pub(super) fn regrouped(
        &self,
        rewriter: &PatternRewriter<'_>,
        batch: &[i64],
        keys: Option<RightOperand>,
        values: Option<RightOperand>,
    ) -> Option<Vec<Op>> {
        let (first, second) = (rewriter.op(self.first)?, rewriter.op(self.second)?);
        let mut regroup = Regroup { rewriter, batch, new: FxHashMap::default(), added: Vec::new() };
        regroup.product(first, keys, None)?;
        let mut waiting = self.between.clone();
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut left = Vec::new();
            for place in waiting {
                let op = rewriter.op(place)?;
                let is_made = |input: &LogicalTensor| {
                    let of_core = rewriter.producer(input).filter(|(place, _)| self.holds(*place));
                    of_core.is_none() || regroup.new.contains_key(&input.id())
                };
                match op.inputs().iter().all(is_made) {
                    true => regroup.between(op)?,
                    false => left.push(place),
                }
            }
            if left.len() == before {
                return None;
            }
            waiting = left;
        }
        let weights = regroup.new.get(&second.inputs()[0].id())?.clone();
        if regroup.new.contains_key(&second.inputs()[1].id()) {
            return None;
        }
        regroup.product(second, values, Some(weights))?;
        let result = &second.outputs()[0];
        let made = regroup.new.get(&result.id())?.clone();
        let product = regroup.added.pop()?;
        if batch_of(result)? == batch {
            regroup.added.push(product.with_tensors(product.inputs().to_vec(), [result.clone()]));
        } else {
            regroup.added.push(product);
            regroup.added.push(reshape(second, made, result.clone(), result.dims()?));
        }
        Some(regroup.added)
    }

    fn holds(&self, place: usize) -> bool {
        place == self.first || self.between.contains(&place)
    }
}

/// A walk through the ops of a core that makes each of them anew.
struct Regroup<'a, 'g> {
    rewriter: &'a PatternRewriter<'g>,
    /// The new batch dims.
    batch: &'a [i64],
    /// The tensors that follow from the scores in their new form.
    new: FxHashMap<TensorId, LogicalTensor>,
    added: Vec<Op>,
}

impl Regroup<'_, '_> {
    /// A product with new operands; its left operand is reshaped unless it is given.
    fn product(&mut self, op: &Op, right: Option<RightOperand>, left: Option<LogicalTensor>) -> Option<()> {
        let [of_left, of_right] = op.inputs() else { return None };
        let old = batch_of(&op.outputs()[0])?;
        let left = match left {
            Some(left) => left,
            None => self.reshaped(op, of_left, old)?,
        };
        let right = match right {
            Some(right) => right,
            None => RightOperand { tensor: self.reshaped(op, of_right, old)?, is_transposed: false },
        };
        let result = &op.outputs()[0];
        let new = self.tensor(result, &[self.batch, tokens_of(result)?].concat())?;
        let transposes = op.bool_attr(Attr::TransposeB) != right.is_transposed;
        let product = op.with_tensors([left, right.tensor], [new.clone()]).attr(Attr::TransposeB, transposes);
        self.added.push(product);
        self.new.insert(result.id(), new);
        Some(())
    }

    /// An op between the products.
    fn between(&mut self, op: &Op) -> Option<()> {
        let result = &op.outputs()[0];
        let (batch, tokens) = (batch_of(result)?, tokens_of(result)?);
        let mut of_scores = op.inputs().iter().filter(|input| self.new.contains_key(&input.id()));
        // Elements stay at their places, and none is repeated.
        let is_alike = match op.kind() {
            OpKind::Concat => is_along_last(op),
            OpKind::Slice => of_scores.all(|input| differ_in_columns(input, result)),
            _ => of_scores.all(|input| tokens_of(input) == Some(tokens)),
        };
        if !is_alike || shape::element_count(batch) != shape::element_count(self.batch) {
            return None;
        }
        if op.kind() == OpKind::StaticReshape {
            let operand = self.new.get(&op.inputs()[0].id())?.clone();
            self.new.insert(result.id(), operand);
            return Some(());
        }
        if op.inputs().len() > 1 && !aligns_right(op) {
            return None;
        }
        let mut inputs = Vec::new();
        for input in op.inputs() {
            inputs.push(match self.new.get(&input.id()) {
                Some(input) => input.clone(),
                // It does not broadcast.
                None if op.kind() == OpKind::Concat => self.regrouped(op, input, batch)?,
                None => self.reshaped(op, input, batch)?,
            });
        }
        let new = self.tensor(result, &[self.batch, tokens].concat())?;
        let made = op.with_tensors(inputs, [new.clone()]);
        self.added.push(match op.kind() {
            OpKind::SoftMax | OpKind::Concat => made.attr(Attr::Axis, -1i64),
            OpKind::Slice => of_columns(made, op)?,
            OpKind::GenIndex => {
                let axis = axis_from_end(op, batch.len() + 2).filter(|&axis| axis >= -2)?;
                made.attr(Attr::Axis, axis)
            }
            // A condition may have more dims than operands without batch dims.
            OpKind::Select => made.auto_broadcast(AutoBroadcast::Multidirectional),
            _ => made,
        });
        self.new.insert(result.id(), new);
        Some(())
    }

    /// An operand that does not follow from the scores. It is aligned with batch dims `old`, and gets those
    /// that lie beside the new batch dims.
    fn reshaped(&mut self, user: &Op, operand: &LogicalTensor, old: &[i64]) -> Option<LogicalTensor> {
        let is_number = operand.rank() == Some(0) || self.rewriter.is_number(operand, operand);
        let Some(dims) = operand.dims() else { return is_number.then(|| operand.clone()) };
        let own = &dims[..dims.len().saturating_sub(2)];
        let is_wide_enough = dims.len() <= self.batch.len() + 2;
        if own.iter().all(|&dim| dim == 1) && is_wide_enough {
            return Some(operand.clone());
        }
        self.regrouped(user, operand, old)
    }

    /// The same for an operand of known dims, which gets as many as lie beside.
    fn regrouped(&mut self, user: &Op, operand: &LogicalTensor, old: &[i64]) -> Option<LogicalTensor> {
        if old == self.batch {
            return Some(operand.clone());
        }
        let dims = operand.dims()?;
        let own = &dims[..dims.len().saturating_sub(2)];
        let missing = old.len().checked_sub(own.len())?;
        let padded: Vec<i64> = std::iter::repeat_n(1, missing).chain(own.iter().copied()).collect();
        let batch = beside(&padded, old, self.batch)?;
        let dims = [&batch[..], &dims[own.len()..]].concat();
        let new = self.tensor(operand, &dims)?;
        self.added.push(reshape(user, operand.clone(), new.clone(), &dims));
        Some(new)
    }

    fn tensor(&self, like: &LogicalTensor, dims: &[i64]) -> Option<LogicalTensor> {
        LogicalTensor::any(self.rewriter.fresh(like).id(), like.data_type(), dims).ok()
    }
}

/// A reshape beside another op.
pub(super) fn reshape(beside: &Op, from: LogicalTensor, to: LogicalTensor, dims: &[i64]) -> Op {
    let op = Op::new(beside.id(), OpKind::StaticReshape);
    op.attr(Attr::Shape, dims).attr(Attr::SpecialZero, false).input(from).output(to)
}

/// The dims before the last two.
pub(super) fn batch_of(tensor: &LogicalTensor) -> Option<&[i64]> {
    let dims = tensor.dims()?;
    dims.get(..dims.len().checked_sub(2)?)
}

/// The last two dims.
fn tokens_of(tensor: &LogicalTensor) -> Option<&[i64]> {
    let dims = tensor.dims()?;
    dims.get(dims.len().checked_sub(2)?..)
}

/// The dims that lie beside `new` as `part` lies beside `old`, where `old` and `new` have the same elements
/// in the same order, and each dim of `part` is that of `old` or 1.
fn beside(part: &[i64], old: &[i64], new: &[i64]) -> Option<Vec<i64>> {
    let (mut of_old, mut of_new) = (0, 0);
    let mut dims = Vec::new();
    while of_old < old.len() || of_new < new.len() {
        let (first_old, first_new) = (of_old, of_new);
        let take = |dims: &[i64], at: &mut usize, size: i64| -> Option<i64> {
            let dim = *dims.get(*at)?;
            *at += 1;
            size.checked_mul(dim)
        };
        let mut size_old = if of_old < old.len() { take(old, &mut of_old, 1)? } else { 1 };
        let mut size_new = if of_new < new.len() { take(new, &mut of_new, 1)? } else { 1 };
        while size_old != size_new {
            match size_old < size_new {
                true => size_old = take(old, &mut of_old, size_old)?,
                false => size_new = take(new, &mut of_new, size_new)?,
            }
        }
        let (part, old) = (&part[first_old..of_old], &old[first_old..of_old]);
        match () {
            () if part == old => dims.extend(&new[first_new..of_new]),
            () if part.iter().all(|&dim| dim == 1) => dims.extend(new[first_new..of_new].iter().map(|_| 1)),
            () => return None,
        }
    }
    Some(dims)
}

/// True if an op computes each element from the elements at the same place.
fn is_on_elements(op: &Op) -> bool {
    op.outputs().len() == 1
        && Function::of(op).is_some_and(|of| !matches!(of, Function::Move(_) | Function::Fill(_)))
}

/// True if two tensors have the same dims but for the last one.
fn differ_in_columns(a: &LogicalTensor, b: &LogicalTensor) -> bool {
    let [a, b] = [a, b].map(|of| of.dims().and_then(<[i64]>::split_last).map(|(_, outer)| outer));
    a.is_some() && a == b
}

/// A Slice of the last dim alone, by the range that an op has for it.
fn of_columns(made: Op, op: &Op) -> Option<Op> {
    let rank = op.inputs()[0].rank()? as i64;
    let axes = op.s64s_attr(Attr::Axes);
    if op.s64s_attr(Attr::Steps).iter().any(|&step| step != 1) {
        return None;
    }
    let is_last = |axis: i64| axis == -1 || axis == rank - 1;
    let place = match axes {
        [] => rank as usize - 1,
        axes => axes.iter().position(|&axis| is_last(axis))?,
    };
    let range = [Attr::Starts, Attr::Ends, Attr::Steps].map(|attr| (attr, op.s64s_attr(attr).get(place)));
    let set = |made: Op, (attr, number): (Attr, Option<&i64>)| match number {
        Some(&number) => made.attr(attr, vec![number]),
        None => made,
    };
    Some(range.into_iter().fold(made.attr(Attr::Axes, vec![-1i64]), set))
}

fn is_along_last(op: &Op) -> bool {
    let rank = op.inputs()[0].rank().unwrap_or(0);
    axis_from_end(op, rank) == Some(-1)
}

/// The attribute `axis`, counted from the end.
fn axis_from_end(op: &Op, rank: usize) -> Option<i64> {
    let axis = op.s64_attr(Attr::Axis)?;
    Some(if axis < 0 { axis } else { axis - rank as i64 })
}
