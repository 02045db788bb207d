//! A norm that is written out becomes the op: one pass over the rows in place of several, and one partition
//! with the products of its result.
//!
//! Exporters write RMSNorm as `x · rsqrt(mean(x²) + ε)` and LayerNorm as the same of `x − mean(x)`, with a
//! square that is a power or a product, and a root that is a reciprocal, a quotient or a power; behind it a
//! factor and, of LayerNorm, an addend of each column. Of bf16 and f16 conversions to f32 and back stand
//! around it, before the factor or behind it.

use smallvec::SmallVec;

use super::pattern_rewriter::{PatternRewriter, Replacement, aligns_right};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::verify;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

pub(super) fn find_rms(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let mean = Mean::at(rewriter, place)?;
    let (square, x) = rewriter.only_producer(mean.of).and_then(|(at, op)| Some((at, squared(op)?)))?;
    let root = RootQuotient::behind(rewriter, mean.result, &[x])?;
    let removed = [&[place, square], &root.removed[..]].concat();
    NormPattern { kind: OpKind::RMSNorm, x, axis: mean.axis, root, removed }.replacement(rewriter)
}

pub(super) fn find_layer(rewriter: &PatternRewriter<'_>, place: usize) -> Option<Replacement> {
    let mean = Mean::at(rewriter, place)?;
    let x = mean.of;
    let mut removed = vec![place];
    // The distances may be there twice, once to be squared.
    let mut distances: SmallVec<[&LogicalTensor; 2]> = SmallVec::new();
    for &user in rewriter.consumers(mean.result) {
        let op = rewriter.op(user).filter(|op| op.kind() == OpKind::Subtract && aligns_right(op))?;
        let [from, less] = op.inputs() else { return None };
        if (from.id(), less.id()) != (x.id(), mean.result.id()) || distances.len() == 2 {
            return None;
        }
        distances.push(&op.outputs()[0]);
        removed.push(user);
    }
    let users = distances.iter().flat_map(|distance| rewriter.consumers(distance));
    let is_square = |op: &Op| squared(op).is_some_and(|of| distances.iter().any(|own| own.id() == of.id()));
    let (square, op) = users.filter_map(|&at| Some((at, rewriter.op(at)?))).find(|(_, op)| is_square(op))?;
    let (variance, _) = rewriter.only_consumer(&op.outputs()[0])?;
    let variance_mean = Mean::at(rewriter, variance).filter(|other| other.axis == mean.axis)?;
    let root = RootQuotient::behind(rewriter, variance_mean.result, &distances)?;
    removed.extend([square, variance]);
    removed.extend(&root.removed);
    NormPattern { kind: OpKind::LayerNorm, x, axis: mean.axis, root, removed }.replacement(rewriter)
}

/// The mean along the last dims.
struct Mean<'a> {
    of: &'a LogicalTensor,
    result: &'a LogicalTensor,
    /// The first of the dims, from behind.
    axis: i64,
}

impl<'a> Mean<'a> {
    fn at(rewriter: &'a PatternRewriter<'_>, place: usize) -> Option<Self> {
        let op = rewriter.op(place).filter(|op| op.kind() == OpKind::ReduceMean)?;
        let ([of], [result]) = (op.inputs(), op.outputs()) else { return None };
        let rank = of.rank()? as i64;
        let from_behind = |axis: &i64| if *axis < 0 { *axis } else { *axis - rank };
        let mut axes: SmallVec<[i64; 4]> = op.s64s_attr(Attr::Axes).iter().map(from_behind).collect();
        axes.sort_unstable();
        let axis = *axes.first()?;
        let are_last = axes.iter().copied().eq(axis..0) && -axis <= rank;
        (are_last && op.bool_attr(Attr::KeepDims)).then_some(Self { of, result, axis })
    }
}

/// The operand of a square.
fn squared(op: &Op) -> Option<&LogicalTensor> {
    match (op.kind(), op.inputs()) {
        (OpKind::Square, [x]) => Some(x),
        (OpKind::Multiply, [x, y]) if x.id() == y.id() => Some(x),
        (OpKind::Pow, [x]) if op.f32_attr(Attr::Beta) == Some(2.0) => Some(x),
        _ => None,
    }
}

/// The quotients of data and the root of a mean.
struct RootQuotient<'a> {
    removed: Vec<usize>,
    epsilon: f32,
    result: &'a LogicalTensor,
}

impl<'a> RootQuotient<'a> {
    /// The quotients of one of several data.
    fn behind(
        rewriter: &'a PatternRewriter<'_>,
        mean: &LogicalTensor,
        data: &[&LogicalTensor],
    ) -> Option<Self> {
        let (place, sum) = rewriter.only_consumer(mean).filter(|(_, op)| op.kind() == OpKind::Add)?;
        let [a, b] = sum.inputs() else { return None };
        let addend = if a.id() == mean.id() { b } else { a };
        let epsilon = rewriter.number(addend, mean).filter(|_| addend.data_type() == DataType::F32)?;
        let mut removed = vec![place];
        removed.extend(rewriter.only_producer(addend).map(|(number, _)| number));
        let (place, root) = rewriter.only_consumer(&sum.outputs()[0])?;
        removed.push(place);
        let mut factor = &root.outputs()[0];
        let is_inverse = root.kind() == OpKind::Pow && root.f32_attr(Attr::Beta) == Some(-0.5);
        if !is_inverse && root.kind() != OpKind::Sqrt {
            return None;
        }
        let (mut place, mut last) = rewriter.only_consumer(factor)?;
        if !is_inverse && !is_quotient(last, data, factor) {
            removed.push(place);
            match (last.kind(), last.inputs()) {
                (OpKind::Reciprocal, _) => {}
                (OpKind::Divide, [one, by]) if by.id() == factor.id() => {
                    rewriter.number(one, factor).filter(|number| *number == 1.0)?;
                    removed.extend(rewriter.only_producer(one).map(|(number, _)| number));
                }
                _ => return None,
            }
            factor = &last.outputs()[0];
            (place, last) = rewriter.only_consumer(factor)?;
        }
        let is_product = last.kind() == OpKind::Multiply && {
            let of = |x: &LogicalTensor, y: &LogicalTensor| {
                data.iter().any(|own| own.id() == x.id()) && y.id() == factor.id()
            };
            matches!(last.inputs(), [x, y] if of(x, y) || of(y, x))
        };
        if !aligns_right(last) || !(is_product || is_quotient(last, data, factor)) {
            return None;
        }
        removed.push(place);
        Some(Self { removed, epsilon, result: &last.outputs()[0] })
    }
}

/// True for the quotient of data and a divisor.
fn is_quotient(op: &Op, data: &[&LogicalTensor], by: &LogicalTensor) -> bool {
    let is_of = |x: &LogicalTensor| data.iter().any(|own| own.id() == x.id());
    op.kind() == OpKind::Divide && matches!(op.inputs(), [x, y] if is_of(x) && y.id() == by.id())
}

/// A norm without its factors.
struct NormPattern<'a> {
    kind: OpKind,
    x: &'a LogicalTensor,
    axis: i64,
    root: RootQuotient<'a>,
    /// The places of the pattern so far.
    removed: Vec<usize>,
}

impl NormPattern<'_> {
    fn replacement(self, rewriter: &PatternRewriter<'_>) -> Option<Replacement> {
        let dims = self.x.partial_dims()?;
        let begin = dims.len().checked_add_signed(self.axis as isize)?;
        let last: Option<Vec<i64>> = dims.get(begin..)?.iter().copied().collect();
        let last = last.filter(|_| self.root.result.data_type() == self.x.data_type())?;
        // A conversion before the norm goes if one back stands behind it.
        let widened = rewriter.producer(self.x).filter(|(_, op)| op.kind() == OpKind::TypeCast);
        let is_inside = || rewriter.consumers(self.x).iter().all(|user| self.removed.contains(user));
        let widened = widened.filter(|_| is_inside()).map(|(place, _)| place);
        let forms = [(widened, true), (widened, false), (None, true), (None, false)];
        forms.into_iter().find_map(|(widened, has_factors)| self.form(rewriter, &last, widened, has_factors))
    }

    /// The exchange with the factors and without, and with the conversion at a place; `None` if the op does
    /// not take the types.
    fn form(
        &self,
        rewriter: &PatternRewriter<'_>,
        last: &[i64],
        widened: Option<usize>,
        has_factors: bool,
    ) -> Option<Replacement> {
        let source = match widened {
            Some(place) => rewriter.op(place)?.inputs().first()?,
            None => self.x,
        };
        let narrow = widened.map(|_| source.data_type());
        let tail = Tail::behind(rewriter, self, has_factors.then_some(last), narrow)?;
        let first = rewriter.op(self.removed[0])?;
        let mut norm = Op::new(first.id(), self.kind)
            .named(first.name())
            .attr(Attr::BeginNormAxis, self.axis)
            .attr(Attr::Epsilon, self.root.epsilon)
            .input(source.clone());
        if self.kind == OpKind::LayerNorm {
            norm = norm.attr(Attr::KeepStats, false).attr(Attr::UseAffine, !tail.factors.is_empty());
        }
        norm = norm.inputs_from(tail.factors.iter().map(|&factor| factor.clone()));
        norm = norm.output(tail.result.clone());
        verify::verify(&mut norm).ok()?;
        let removed = [&self.removed, &tail.removed[..], &Vec::from_iter(widened)].concat();
        Some(Replacement { removed, added: vec![norm] })
    }
}

/// The ops behind the quotients of a norm that belong to the op.
struct Tail<'a> {
    removed: Vec<usize>,
    /// The factor of each column, and the addend.
    factors: Vec<&'a LogicalTensor>,
    result: &'a LogicalTensor,
}

impl<'a> Tail<'a> {
    /// The factors of columns of some dims, if these are given, and a conversion to a type, if it is given.
    fn behind(
        rewriter: &'a PatternRewriter<'_>,
        norm: &NormPattern<'a>,
        last: Option<&[i64]>,
        narrow: Option<DataType>,
    ) -> Option<Self> {
        let mut tail = Self { removed: Vec::new(), factors: Vec::new(), result: norm.root.result };
        let mut is_open = narrow.is_some();
        tail.convert(rewriter, narrow, &mut is_open);
        let before = (tail.result, tail.removed.len());
        let steps: &[OpKind] = match norm.kind {
            OpKind::LayerNorm => &[OpKind::Multiply, OpKind::Add],
            _ => &[OpKind::Multiply],
        };
        let taken = last.is_some_and(|last| steps.iter().all(|&kind| tail.take_factor(rewriter, kind, last)));
        if !taken {
            (tail.result, tail.factors) = (before.0, Vec::new());
            tail.removed.truncate(before.1);
        }
        tail.convert(rewriter, narrow, &mut is_open);
        (!is_open).then_some(tail)
    }

    /// Takes a conversion to a type, if none has been taken.
    fn convert(&mut self, rewriter: &'a PatternRewriter<'_>, to: Option<DataType>, is_open: &mut bool) {
        if let Some((place, op)) = rewriter.only_consumer(self.result)
            && *is_open
            && op.kind() == OpKind::TypeCast
            && Some(op.outputs()[0].data_type()) == to
        {
            self.removed.push(place);
            self.result = &op.outputs()[0];
            *is_open = false;
        }
    }

    /// Takes an op that lays a number for each column beside the rows, if it is there.
    fn take_factor(&mut self, rewriter: &'a PatternRewriter<'_>, kind: OpKind, last: &[i64]) -> bool {
        let Some((place, op)) = rewriter.only_consumer(self.result) else { return false };
        let [a, b] = op.inputs() else { return false };
        let factor = if a.id() == self.result.id() { b } else { a };
        let fits = op.kind() == kind
            && aligns_right(op)
            && factor.id() != self.result.id()
            && factor.dims() == Some(last)
            && [factor, &op.outputs()[0]].iter().all(|port| port.data_type() == self.result.data_type());
        if fits {
            self.removed.push(place);
            self.factors.push(factor);
            self.result = &op.outputs()[0];
        }
        fits
    }
}
