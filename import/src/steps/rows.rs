//! Many elements as one.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::compose::{self, is_float, is_integer};
use crate::constant::Constant;
use crate::dims::UNKNOWN_DIM;
use crate::error::Fault;
use crate::fold;
use crate::weights::element_count;

use DataType as D;
use OpKind as K;

/// The function of a reduction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reduction {
    /// The function of one op kind.
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

/// The results of [`Steps::moments`], in f32.
pub(crate) struct Moments {
    pub(crate) mean: TensorId,
    /// The elements less their mean, whose rounding is made up for.
    pub(crate) centred: TensorId,
    pub(crate) variance: TensorId,
}

/// The types with an op of sums along an axis.
const SUMMED: [DataType; 5] = [D::F32, D::Bf16, D::F16, D::S32, D::S64];

impl Steps<'_, '_> {
    fn along(&mut self, kind: OpKind, x: TensorId, axes: &[i64], keep: bool) -> Result<TensorId, Fault> {
        if axes.is_empty() {
            // The reduction of an element on its own.
            return match kind {
                K::ReduceL1 | K::ReduceL2 => self.same(K::Abs, x),
                _ => Ok(x),
            };
        }
        let data_type = self.builder.data_type(x);
        if data_type == D::F64 || is_integer(data_type) {
            return self.by_halves(kind, x, axes, keep);
        }
        if let (K::ReduceSum, &[axis]) = (kind, axes)
            && let Some(sum) = self.sum_of_two(x, axis as usize, keep)?
        {
            return Ok(sum);
        }
        let attrs: [(Attr, AttrValue); 2] = [(Attr::Axes, axes.into()), (Attr::KeepDims, keep.into())];
        self.emit(kind, &attrs, &[x], self.builder.data_type(x))
    }

    /// The sum of the two elements along an axis behind which others lie, as `Add` of slices: it is rounded
    /// as the sum is, its rows are long, and it fuses with what gives the elements. `None` for another axis.
    fn sum_of_two(&mut self, x: TensorId, axis: usize, keep: bool) -> Result<Option<TensorId>, Fault> {
        let mut dims = self.builder.dims(x).unwrap_or_default().to_vec();
        let unknown = dims.iter().filter(|&&dim| dim == UNKNOWN_DIM).count();
        if dims.get(axis) != Some(&2) || unknown > 1 || dims[axis + 1..].iter().all(|&dim| dim == 1) {
            return Ok(None);
        }
        let halves = [self.part(x, axis, [0, 1])?, self.part(x, axis, [1, 2])?];
        dims[axis] = 1;
        let sum = self.of_dims(K::Add, &[], &halves, &dims)?;
        if keep {
            return Ok(Some(sum));
        }
        dims.remove(axis);
        self.laid_out(sum, &dims).map(Some)
    }

    /// Data {N, C, dims} less the mean of its channel and over its deviation, by a factor and with a shift:
    /// data, factors, shifts, means and variances.
    pub(crate) fn batch_norm(&mut self, operands: &[TensorId; 5], epsilon: f32) -> Result<TensorId, Fault> {
        let (data_type, dims) = (self.builder.data_type(operands[0]), self.builder.dims(operands[0]));
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Epsilon, epsilon.into()), (Attr::DataFormat, "NCX".into())];
        let dims = dims.map(<[i64]>::to_vec);
        self.builder.op(self.name, K::BatchNormInference, &attrs, operands, data_type, dims.as_deref())
    }

    /// A function of floats; of whole numbers in f64, cut off.
    fn in_f64(&mut self, kind: OpKind, x: TensorId) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        if !is_integer(data_type) {
            return self.same(kind, x);
        }
        let wide = self.cast(x, D::F64)?;
        let result = self.same(kind, wide)?;
        self.cast(result, data_type)
    }

    /// A reduction of f64 or whole numbers, which the ops of reductions lack: one half of an axis is combined
    /// with the other until one element is left. Whole numbers wrap around; their mean is cut off.
    fn by_halves(
        &mut self,
        kind: OpKind,
        mut x: TensorId,
        axes: &[i64],
        keep: bool,
    ) -> Result<TensorId, Fault> {
        let mut dims = self.dims(x)?;
        let data_type = self.builder.data_type(x);
        let is_whole = is_integer(data_type);
        let pair = match kind {
            K::ReduceMax => K::Maximum,
            K::ReduceMin => K::Minimum,
            K::ReduceProd => K::Multiply,
            _ => K::Add,
        };
        match kind {
            K::ReduceL1 => x = self.signed(K::Abs, x)?,
            K::ReduceL2 if is_whole => x = self.pair(K::Multiply, &[], x, x)?,
            K::ReduceL2 => x = self.same(K::Square, x)?,
            _ => {}
        }
        let along: Vec<i64> = axes.iter().map(|&axis| dims[axis as usize]).collect();
        let count = element_count(&along).unwrap_or(i64::MAX);
        for axis in axes.iter().map(|&axis| axis as usize) {
            let mut rest: Option<TensorId> = None;
            let mut length = std::mem::replace(&mut dims[axis], 1);
            if length == 0 {
                let nothing = self.of_nothing(kind, data_type)?;
                x = self.enlarged(nothing, &dims)?;
                continue;
            }
            if pair == K::Add && length > 2 && SUMMED.contains(&data_type) && is_whole {
                let attrs = [(Attr::Axis, (axis as i64).into())];
                let sums = self.emit(K::CumSum, &attrs, &[x], data_type)?;
                x = self.part(sums, axis, [length - 1, length])?;
                continue;
            }
            while length > 1 {
                if length % 2 == 1 {
                    let last = self.part(x, axis, [length - 1, length])?;
                    rest = Some(match rest {
                        Some(rest) => self.pair(pair, &[], rest, last)?,
                        None => last,
                    });
                }
                length /= 2;
                let halves = [self.part(x, axis, [0, length])?, self.part(x, axis, [length, 2 * length])?];
                x = self.pair(pair, &[], halves[0], halves[1])?;
            }
            if let Some(rest) = rest {
                x = self.pair(pair, &[], x, rest)?;
            }
        }
        match kind {
            K::ReduceL2 => x = self.in_f64(K::Sqrt, x)?,
            K::ReduceMean => {
                let count = self.number(data_type, count as f64)?;
                x = self.cut_quotient(&[], x, count)?;
            }
            _ => {}
        }
        if keep {
            return Ok(x);
        }
        let left = (0..dims.len()).filter(|&axis| !axes.contains(&(axis as i64)));
        let left: Vec<i64> = left.map(|axis| dims[axis]).collect();
        self.in_shape(x, &left)
    }

    /// The result of a reduction of no elements.
    fn of_nothing(&mut self, kind: OpKind, data_type: DataType) -> Result<TensorId, Fault> {
        let is_whole = is_integer(data_type);
        match kind {
            K::ReduceProd => self.number(data_type, 1.0),
            K::ReduceMax if !is_whole => self.number(data_type, f64::NEG_INFINITY),
            K::ReduceMin if !is_whole => self.number(data_type, f64::INFINITY),
            K::ReduceMax | K::ReduceMin => {
                let (least, most) = match data_type {
                    D::S32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    D::U32 => (0, u32::MAX.into()),
                    D::U64 => (0, -1),
                    _ => (i64::MIN, i64::MAX),
                };
                let limit = Constant::from_slice(&[], &[if kind == K::ReduceMax { least } else { most }])?;
                let limit = self.builder.constant(limit)?;
                self.cast(limit, data_type)
            }
            _ => self.number(data_type, 0.0),
        }
    }

    /// The product of matrices.
    pub(crate) fn product(
        &mut self,
        a: TensorId,
        b: TensorId,
        transposes_b: bool,
        to: DataType,
    ) -> Result<TensorId, Fault> {
        self.emit_declared(K::MatMul, &[(Attr::TransposeB, transposes_b.into())], &[a, b], to)
    }

    /// The shares of exponentials along an axis; of what is −∞ throughout NaN, or 0 if `inf_as_zero` says so.
    pub(crate) fn softmax(
        &mut self,
        x: TensorId,
        axis: i64,
        inf_as_zero: bool,
        to: DataType,
    ) -> Result<TensorId, Fault> {
        if self.builder.data_type(x) != D::F64 {
            let mut attrs: Vec<(Attr, AttrValue)> = vec![(Attr::Axis, axis.into())];
            if inf_as_zero {
                attrs.push((Attr::Mode, "inf_as_zero".into()));
            }
            return self.emit_declared(K::SoftMax, &attrs, &[x], to);
        }
        let rank = self.dims(x)?.len();
        let needed = || Fault::of_attribute("axis", "one of the dims");
        let axis = compose::resolved_axes(&[axis], rank).ok_or_else(needed)?[0] as i64;
        let mut most = self.by_halves(K::ReduceMax, x, &[axis], true)?;
        let zero = self.number(D::F64, 0.0)?;
        if inf_as_zero {
            let nothing = self.number(D::F64, f64::NEG_INFINITY)?;
            let is_nothing = self.predicate(K::Equal, most, nothing)?;
            most = self.select(is_nothing, zero, most)?;
        }
        let moved = self.both(K::Subtract, x, most)?;
        let parts = self.same(K::Exp, moved)?;
        let sum = self.by_halves(K::ReduceSum, parts, &[axis], true)?;
        let mut shares = self.both(K::Divide, parts, sum)?;
        if inf_as_zero {
            let is_nothing = self.predicate(K::Equal, sum, zero)?;
            shares = self.select(is_nothing, zero, shares)?;
        }
        self.cast(shares, to)
    }

    /// For each element the sum, or with `Multiply` the product, of the elements along an axis up to it:
    /// without itself if `exclusive`, from the last element on if `reverse`. Without an op for it, what each
    /// step adds lies twice as far in front as in the step before.
    pub(crate) fn running(
        &mut self,
        kind: OpKind,
        x: TensorId,
        axis: usize,
        [exclusive, reverse]: [bool; 2],
    ) -> Result<TensorId, Fault> {
        let (mut dims, data_type) = (self.dims(x)?, self.builder.data_type(x));
        let length = dims[axis];
        if length == 0 {
            return Ok(x);
        }
        // Steps on constants are folded.
        if kind == K::Add && SUMMED.contains(&data_type) && self.builder.value(x).is_none() {
            let attrs = [
                (Attr::Axis, (axis as i64).into()),
                (Attr::Exclusive, exclusive.into()),
                (Attr::Reverse, reverse.into()),
            ];
            return self.emit(K::CumSum, &attrs, &[x], data_type);
        }
        let wide = if is_float(data_type) { D::F32 } else { data_type };
        let mut x = self.cast(x, wide)?;
        let turned = [length - 1, -1];
        if reverse {
            x = self.backwards(x, axis, turned)?;
        }
        if exclusive {
            dims[axis] = 1;
            let of_nothing = self.number(wide, f64::from(kind == K::Multiply))?;
            let (first, rest) = (self.enlarged(of_nothing, &dims)?, self.part(x, axis, [0, length - 1])?);
            x = self.joined(vec![first, rest], axis)?;
        }
        let mut far = 1;
        while far < length {
            let (done, open) = (self.part(x, axis, [0, far])?, self.part(x, axis, [far, length])?);
            let in_front = self.part(x, axis, [0, length - far])?;
            let sums = self.pair(kind, &[], open, in_front)?;
            x = self.joined(vec![done, sums], axis)?;
            far *= 2;
        }
        if reverse {
            x = self.backwards(x, axis, turned)?;
        }
        self.cast(x, data_type)
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
                let squares = match is_integer(data_type) {
                    true => self.pair(K::Multiply, &[], x, x)?,
                    false => self.same(K::Square, x)?,
                };
                self.along(K::ReduceSum, squares, axes, keep)
            }
            Reduction::LogSum => {
                let sum = self.along(K::ReduceSum, x, axes, keep)?;
                self.in_f64(K::Log, sum)
            }
            Reduction::LogSumExp => {
                let wide = compose::wide_float(data_type);
                let x = self.cast(x, wide)?;
                let most = self.along(K::ReduceMax, x, axes, true)?;
                // Less an infinity, nothing would be left.
                let (zero, finite) =
                    (self.number(wide, 0.0)?, self.emit(K::IsFinite, &[], &[most], D::Boolean)?);
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

    /// The moments along some axes, which keep dims of 1.
    pub(crate) fn moments(&mut self, x: TensorId, axes: &[i64]) -> Result<Moments, Fault> {
        let x = self.cast(x, D::F32)?;
        let mean = self.along(K::ReduceMean, x, axes, true)?;
        let apart = self.both(K::Subtract, x, mean)?;
        // The mean is rounded, which the mean of the distances tells unless the mean is an infinity.
        let lost = self.along(K::ReduceMean, apart, axes, true)?;
        let (zero, finite) = (self.float(0.0)?, self.emit(K::IsFinite, &[], &[lost], D::Boolean)?);
        let lost = self.select(finite, lost, zero)?;
        let centred = self.both(K::Subtract, apart, lost)?;
        let squares = self.same(K::Square, centred)?;
        let variance = self.along(K::ReduceMean, squares, axes, true)?;
        Ok(Moments { mean, centred, variance })
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
