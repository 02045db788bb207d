//! Many elements as one.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::compose::{is_float, is_integer};
use crate::error::Fault;
use crate::fold;

use DataType as D;
use OpKind as K;

/// What a reduction computes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reduction {
    /// What an op of its own computes.
    One(OpKind),
    /// The logarithm of the sum.
    LogSum,
    /// The logarithm of the sum of the exponentials.
    LogSumExp,
    /// The sum of the squares.
    SumSquare,
    /// Of truth values, whether all are true, or any.
    Truth { all: bool },
}

impl Steps<'_, '_> {
    fn along(&mut self, kind: OpKind, x: TensorId, axes: &[i64], keep: bool) -> Result<TensorId, Fault> {
        if axes.is_empty() {
            // The reduction of an element on its own.
            return match kind {
                K::ReduceL1 | K::ReduceL2 => self.same(K::Abs, x),
                _ => Ok(x),
            };
        }
        let attrs: [(Attr, AttrValue); 2] = [(Attr::Axes, axes.into()), (Attr::KeepDims, keep.into())];
        self.emit(kind, &attrs, &[x], self.builder.data_type(x))
    }

    /// The elements along some axes, which count from the front, as one number.
    pub(crate) fn reduced(
        &mut self,
        reduction: Reduction,
        x: TensorId,
        axes: &[i64],
        keep: bool,
    ) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        if let Reduction::One(kind) = reduction
            && is_integer(data_type)
            && let Some(value) = self.builder.value(x)
            && let Some(value) = fold::reduced(kind, value, axes, keep)
        {
            return Ok(self.builder.constant(value)?);
        }
        match reduction {
            Reduction::One(kind @ (K::ReduceMax | K::ReduceMin)) => match data_type {
                // Every one of these numbers is one of f32.
                D::S8 | D::U8 | D::S16 | D::U16 | D::Boolean => {
                    let wide = self.cast(x, D::F32)?;
                    let number = self.along(kind, wide, axes, keep)?;
                    if data_type != D::Boolean {
                        return self.cast(number, data_type);
                    }
                    // Of nothing, the result is an infinity: the least of truth values is false, the most
                    // true.
                    let half = self.float(0.5)?;
                    self.predicate(K::Greater, number, half)
                }
                _ => self.along(kind, x, axes, keep),
            },
            Reduction::Truth { all } => {
                let kind = if all { K::ReduceMin } else { K::ReduceMax };
                self.reduced(Reduction::One(kind), x, axes, keep)
            }
            Reduction::One(kind) => self.along(kind, x, axes, keep),
            Reduction::SumSquare => {
                let squares = self.same(K::Square, x)?;
                self.along(K::ReduceSum, squares, axes, keep)
            }
            Reduction::LogSum => {
                let sum = self.along(K::ReduceSum, x, axes, keep)?;
                self.same(K::Log, sum)
            }
            Reduction::LogSumExp => {
                let x = self.cast(x, D::F32)?;
                let most = self.along(K::ReduceMax, x, axes, true)?;
                // Less an infinity, nothing would be left.
                let (zero, finite) = (self.float(0.0)?, self.emit(K::IsFinite, &[], &[most], D::Boolean)?);
                let least = self.select(finite, most, zero)?;
                let moved = self.both(K::Subtract, x, least)?;
                let shares = self.same(K::Exp, moved)?;
                let sum = self.along(K::ReduceSum, shares, axes, keep)?;
                let log = self.same(K::Log, sum)?;
                let least = match keep || axes.is_empty() {
                    true => least,
                    false => {
                        let dims = self.dims(log)?;
                        self.in_shape(least, &dims)?
                    }
                };
                self.emit(K::Add, &[], &[log, least], data_type)
            }
        }
    }

    /// The place of the largest or smallest element along an axis, the first or the last of several, in s64;
    /// of what holds NaN, that of a NaN. The axis keeps a dim of 1.
    ///
    /// `None` for a type or a length whose places f32 cannot count.
    pub(crate) fn place_of(
        &mut self,
        kind: OpKind,
        x: TensorId,
        axis: usize,
        last: bool,
    ) -> Result<Option<TensorId>, Fault> {
        let (dims, data_type) = (self.dims(x)?, self.builder.data_type(x));
        let narrow = matches!(data_type, D::S8 | D::U8 | D::S16 | D::U16);
        if !(is_float(data_type) || narrow) || dims[axis] > 1 << 24 || dims[axis] == 0 {
            return Ok(None);
        }
        let axes = [axis as i64];
        let x = if narrow { self.cast(x, D::F32)? } else { x };
        let extreme = self.along(kind, x, &axes, true)?;
        let mut hit = self.predicate(K::Equal, x, extreme)?;
        let nan = self.emit(K::IsNaN, &[], &[x], D::Boolean)?;
        hit = self.predicate(K::LogicalOr, hit, nan)?;
        let index = self.emit(K::GenIndex, &[(Attr::Axis, axes[0].into())], &[x], D::S32)?;
        let index = self.cast(index, D::F32)?;
        let (beyond, kind) = if last { (-1.0, K::ReduceMax) } else { ((1 << 24) as f32, K::ReduceMin) };
        let beyond = self.float(beyond)?;
        let places = self.select(hit, index, beyond)?;
        let place = self.along(kind, places, &axes, true)?;
        self.cast(place, D::S64).map(Some)
    }

    /// Mean and variance along some axes, which keep dims of 1, in f32.
    pub(crate) fn moments(&mut self, x: TensorId, axes: &[i64]) -> Result<[TensorId; 2], Fault> {
        let x = self.cast(x, D::F32)?;
        let mean = self.along(K::ReduceMean, x, axes, true)?;
        let apart = self.both(K::SquaredDifference, x, mean)?;
        Ok([mean, self.along(K::ReduceMean, apart, axes, true)?])
    }

    /// Groups of channels, each less its mean and over its deviation, times a scale and plus a shift of each
    /// channel, if there are any. `None` if the dims do not fit.
    pub(crate) fn grouped_norm(
        &mut self,
        x: TensorId,
        groups: i64,
        epsilon: f32,
        affine: Option<[TensorId; 2]>,
    ) -> Result<Option<TensorId>, Fault> {
        let (dims, data_type) = (self.dims(x)?, self.builder.data_type(x));
        if dims.len() < 3 || groups < 1 || dims[1] % groups != 0 || !is_float(data_type) {
            return Ok(None);
        }
        let attrs: [(Attr, AttrValue); 5] = [
            (Attr::Groups, groups.into()),
            (Attr::Epsilon, epsilon.into()),
            (Attr::KeepStats, false.into()),
            (Attr::UseAffine, affine.is_some().into()),
            (Attr::DataFormat, "NCX".into()),
        ];
        let mut operands = vec![x];
        for factor in affine.into_iter().flatten() {
            operands.push(self.cast(factor, D::F32)?);
        }
        self.emit(K::GroupNorm, &attrs, &operands, data_type).map(Some)
    }

    /// The losses `−weight · x` at the class that a target names along dim 1, and the weights of the targets;
    /// both are 0 for the target `ignored`.
    pub(crate) fn likelihoods(
        &mut self,
        x: TensorId,
        target: TensorId,
        weight: Option<TensorId>,
        ignored: Option<i64>,
    ) -> Result<[TensorId; 2], Fault> {
        let (dims, own) = (self.dims(x)?, self.dims(target)?);
        let beside = [&own[..1], &[1], &own[1..]].concat();
        let counts = self.builder.data_type(target);
        let target = self.in_shape(target, &beside)?;
        let class = self.emit(K::GenIndex, &[(Attr::Axis, 1i64.into())], &[x], D::S32)?;
        let class = self.cast(class, counts)?;
        let mut hit = self.predicate(K::Equal, class, target)?;
        if let Some(ignored) = ignored {
            let ignored = self.number(counts, ignored as f64)?;
            let counted = self.predicate(K::NotEqual, target, ignored)?;
            hit = self.predicate(K::LogicalAnd, hit, counted)?;
        }
        let x = self.cast(x, D::F32)?;
        let (zero, mut weights) = (self.float(0.0)?, self.float(1.0)?);
        let mut losses = self.same(K::Negative, x)?;
        if let Some(weight) = weight {
            let mut along = vec![1; dims.len()];
            along[1] = dims[1];
            weights = self.cast(weight, D::F32)?;
            weights = self.in_shape(weights, &along)?;
            losses = self.both(K::Multiply, losses, weights)?;
        }
        let mut sums = [losses, weights];
        for sum in &mut sums {
            let picked = self.select(hit, *sum, zero)?;
            *sum = self.along(K::ReduceSum, picked, &[1], false)?;
        }
        Ok(sums)
    }
}
