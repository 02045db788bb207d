//! A SoftMax that is written out, `exp(x − max(x)) / Σ`, becomes the op.
//!
//! With an addend `n · exp(−max(x))` it is "SoftMax plus one" and its kin: the weights beside a column of the
//! number `ln n` that has no key, which a Concat adds and a Slice takes off.

use super::pattern_rewriter::{PatternRewriter, Replacement, aligns_right};
use super::softmax_shift::{Shifted, from_end, reduced_axis};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let exp = rewriter.op(place).filter(|op| op.kind() == OpKind::Exp)?;
    let mut pattern = WrittenOps { rewriter, removed: vec![place] };
    let exponentials = &exp.outputs()[0];
    let (x, max) = pattern.operand(&exp.inputs()[0])?;
    let (sum, result) = pattern.sum_and_quotient(exponentials)?;
    let axis = reduced_axis(sum.op)?;
    let is_alike = x.data_type() == exponentials.data_type() && x.data_type() == result.data_type();
    if !is_alike || max.is_some_and(|max| reduced_axis(max) != Some(axis)) {
        return None;
    }
    let softmax = Op::new(exp.id(), OpKind::SoftMax).named(exp.name()).attr(Attr::Axis, axis);
    let softmax = softmax.attr(Attr::Mode, "none");
    let added = match sum.addend {
        None => vec![softmax.input(x.clone()).output(result.clone())],
        Some(addend) => {
            let number = pattern.number(addend, max.map(|max| &max.outputs()[0]), &sum.op.outputs()[0])?;
            pattern.beside_column(softmax, x, result, number.ln())?
        }
    };
    Some(Replacement { removed: pattern.removed, added })
}

/// The sum of exponentials, and what is added to it.
struct Sum<'a> {
    op: &'a Op,
    addend: Option<&'a LogicalTensor>,
}

/// The ops of the pattern so far.
struct WrittenOps<'r, 'g> {
    rewriter: &'r PatternRewriter<'g>,
    removed: Vec<usize>,
}

impl<'r> WrittenOps<'r, '_> {
    /// The operand of the SoftMax, and the op that finds its maximum if this is taken off.
    fn operand(&mut self, shifted: &'r LogicalTensor) -> Option<(&'r LogicalTensor, Option<&'r Op>)> {
        let (place, shift) = match self.rewriter.producer(shifted) {
            Some((place, op)) if op.kind() == OpKind::Subtract => (place, op),
            _ => return Some((shifted, None)),
        };
        let Some(Shifted { x, maximum }) = Shifted::of(self.rewriter, shift) else {
            return Some((shifted, None));
        };
        let (max_place, max) = self.rewriter.producer(maximum)?;
        self.removed.extend([place, max_place]);
        Some((x, Some(max)))
    }

    /// The sum of the exponentials, and their quotient by it.
    fn sum_and_quotient(&mut self, of: &LogicalTensor) -> Option<(Sum<'r>, &'r LogicalTensor)> {
        let &[first, second] = self.rewriter.consumers(of) else { return None };
        let is_sum =
            |place: &usize| self.rewriter.op(*place).is_some_and(|op| op.kind() == OpKind::ReduceSum);
        let (sum, quotient) = if is_sum(&first) { (first, second) } else { (second, first) };
        let op = self.rewriter.op(sum).filter(|op| op.kind() == OpKind::ReduceSum)?;
        self.removed.extend([sum, quotient]);
        let mut total = &op.outputs()[0];
        let mut addend = None;
        let (mut at, mut next) = self.rewriter.only_consumer(total)?;
        if next.kind() == OpKind::Add && aligns_right(next) {
            addend = next.inputs().iter().find(|input| input.id() != total.id());
            total = &next.outputs()[0];
            self.removed.push(at);
            (at, next) = self.rewriter.only_consumer(total)?;
        }
        let inverse = (next.kind() == OpKind::Reciprocal).then_some(&next.outputs()[0]);
        if let Some(inverse) = inverse {
            total = inverse;
            self.removed.push(at);
            (at, next) = self.rewriter.only_consumer(total)?;
        }
        let is_quotient = at == quotient
            && aligns_right(next)
            && match (next.kind(), next.inputs()) {
                (OpKind::Divide, [a, b]) => inverse.is_none() && (a.id(), b.id()) == (of.id(), total.id()),
                (OpKind::Multiply, _) => inverse.is_some(),
                _ => false,
            };
        is_quotient.then(|| (Sum { op, addend }, &next.outputs()[0]))
    }

    /// The positive number that is added to the sum; beside a maximum it is multiplied by the exponential of
    /// the negative maximum.
    fn number(
        &mut self,
        of: &LogicalTensor,
        max: Option<&LogicalTensor>,
        beside: &LogicalTensor,
    ) -> Option<f32> {
        let Some(max) = max else { return self.filled(of, beside) };
        let (place, op) = self.rewriter.only_producer(of)?;
        self.removed.push(place);
        let (exp, number) = match (op.kind(), op.inputs()) {
            (OpKind::Multiply, [a, b]) if aligns_right(op) => {
                let (factor, exp) = if self.rewriter.number(a, b).is_some() { (a, b) } else { (b, a) };
                let number = self.filled(factor, exp)?;
                let (place, op) = self.rewriter.only_producer(exp)?;
                self.removed.push(place);
                (op, number)
            }
            _ => (op, 1.0),
        };
        let (place, negative) = self.rewriter.only_producer(exp.inputs().first()?)?;
        self.removed.push(place);
        let is_of_maximum = exp.kind() == OpKind::Exp
            && negative.kind() == OpKind::Negative
            && negative.inputs()[0].id() == max.id();
        is_of_maximum.then_some(number)
    }

    /// The positive number that an op fills in.
    fn filled(&mut self, number: &LogicalTensor, beside: &LogicalTensor) -> Option<f32> {
        let value = self.rewriter.number(number, beside).filter(|value| *value > 0.0 && value.is_finite())?;
        self.removed.extend(self.rewriter.only_producer(number).map(|(place, _)| place));
        Some(value)
    }

    /// A SoftMax along the last axis of a tensor and a column of one number, and the weights without those of
    /// the column.
    fn beside_column(
        &self,
        softmax: Op,
        x: &LogicalTensor,
        result: &LogicalTensor,
        number: f32,
    ) -> Option<Vec<Op>> {
        let [outer @ .., keys] = x.dims()? else { return None };
        let is_last = from_end(softmax.s64_attr(Attr::Axis)?, x.rank()) == Some(-1);
        if !is_last || result.dims() != x.dims() {
            return None;
        }
        let tensor = |columns: i64| {
            let dims = [outer, &[columns]].concat();
            LogicalTensor::any(self.rewriter.fresh(x).id(), x.data_type(), &dims).ok()
        };
        let all = keys.checked_add(1)?;
        let (column, both, weights) = (tensor(1)?, tensor(all)?, tensor(all)?);
        let op = |kind: OpKind| Op::new(softmax.id(), kind);
        let dims = [outer, &[1]].concat();
        let fill = op(OpKind::Fill).attr(Attr::Shape, dims).attr(Attr::Value, number).output(column.clone());
        let concat = op(OpKind::Concat).attr(Attr::Axis, -1i64).inputs_from([x.clone(), column]);
        let slice = op(OpKind::Slice)
            .attr(Attr::Axes, vec![-1i64])
            .attr(Attr::Starts, vec![0i64])
            .attr(Attr::Ends, vec![*keys])
            .input(weights.clone())
            .output(result.clone());
        Some(vec![fill, concat.output(both.clone()), softmax.clone().input(both).output(weights), slice])
    }
}
