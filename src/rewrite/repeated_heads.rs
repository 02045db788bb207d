//! Heads of keys and values that are repeated for the heads of queries become groups of queries, so that a
//! product reads each of them once.
//!
//! Every grouped model of transformers writes `repeat_kv`: keys and values [b, h, s, d] become
//! [b, h, 1, s, d], are repeated to [b, h, g, s, d], and reshaped to [b, h·g, s, d].

use super::attention_core::{Core, RightOperand, batch_of};
use super::pattern_rewriter::{PatternRewriter, Replacement};
use super::transposed_weights::exchanges_last_two;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let core = Core::at(rewriter, place)?;
    let [keys, values] = [core.first, core.second].map(|product| {
        let right = rewriter.op(product)?.inputs().get(1)?;
        Repeated::find(rewriter, right)
    });
    let (keys, values) = (keys?, values?);
    if keys.batch != values.batch {
        return None;
    }
    let removed = core.places().chain(keys.places).chain(values.places).collect();
    let added = core.regrouped(rewriter, &keys.batch, Some(keys.operand), Some(values.operand))?;
    Some(Replacement { removed, added })
}

/// An operand whose heads are repeated.
struct Repeated {
    /// The ops that repeat it.
    places: Vec<usize>,
    /// The operand before; its heads have groups of one.
    operand: RightOperand,
    /// The batch dims of the repeated operand before its last reshape.
    batch: Vec<i64>,
}

impl Repeated {
    fn find(rewriter: &PatternRewriter<'_>, operand: &LogicalTensor) -> Option<Self> {
        let mut places = Vec::new();
        let (mut place, mut op) = rewriter.only_producer(operand)?;
        let is_transposed = exchanges_last_two(op);
        if is_transposed {
            places.push(place);
            (place, op) = rewriter.only_producer(&op.inputs()[0])?;
        }
        if op.kind() != OpKind::StaticReshape {
            return None;
        }
        let (repeated, given) = (&op.inputs()[0], &op.outputs()[0]);
        places.push(place);
        let (place, op) = rewriter.only_producer(repeated)?;
        let (source, other) = repetition(rewriter, op)?;
        places.push(place);
        places.extend(other.and_then(|other| rewriter.only_producer(other)).map(|(place, _)| place));
        let (batch, own) = (batch_of(repeated)?, batch_of(source)?);
        let ([outer @ .., heads, groups], [own_outer @ .., own_heads, 1]) = (batch, own) else { return None };
        let joined = [outer, &[heads.checked_mul(*groups)?]].concat();
        let is_group = *groups > 1 && (outer, heads) == (own_outer, own_heads) && batch_of(given)? == joined;
        let [dims, of_source, of_given] =
            [repeated, source, given].map(|tensor| tensor.dims().map(|dims| &dims[dims.len() - 2..]));
        let operand = RightOperand { tensor: source.clone(), is_transposed };
        (is_group && dims == of_source && dims == of_given).then(|| Self {
            places,
            operand,
            batch: batch.to_vec(),
        })
    }
}

/// The tensor that an op repeats and changes in nothing else, and the operand that gives the dims.
fn repetition<'a>(
    rewriter: &PatternRewriter<'_>,
    op: &'a Op,
) -> Option<(&'a LogicalTensor, Option<&'a LogicalTensor>)> {
    let fill = |tensor: &LogicalTensor| rewriter.producer(tensor).filter(|(_, op)| op.kind() == OpKind::Fill);
    let is_one =
        |tensor: &LogicalTensor| fill(tensor).is_some_and(|(_, op)| op.f32_attr(Attr::Value) == Some(1.0));
    match (op.kind(), op.inputs()) {
        // A choice between equals.
        (OpKind::Select, [condition, then, other]) if then.id() == other.id() => {
            fill(condition).map(|_| (then, Some(condition)))
        }
        (OpKind::Multiply, [first, second]) if is_one(second) => Some((first, Some(second))),
        (OpKind::Multiply, [first, second]) if is_one(first) => Some((second, Some(first))),
        (OpKind::Concat, [first, others @ ..]) if others.iter().all(|other| other.id() == first.id()) => {
            Some((first, None))
        }
        _ => None,
    }
}
