//! Products of whole numbers in 8 bits: no sum is rounded.
//!
//! `MatMul` of two `Dequantize` adds up in s32 and rounds once to f32, which holds whole numbers up to 2²⁴.
//! So the weights of deep products are taken apart, `w = 16 · high + low`, and what their products give is
//! put together in s32.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::{Reduction, Steps};
use crate::compose::stored;
use crate::error::Fault;
use crate::fold;
use crate::weights::integers;

use DataType as D;
use OpKind as K;

/// The most products of two numbers up to 255 whose sum f32 holds.
const DEEPEST: i64 = 258;
/// The most products of a number up to 255 and one up to 16 that are added up at once; f32 holds the sum.
const DEEPEST_OF_HALVES: i64 = 4096;

/// The number that is taken off each number of an operand.
enum ZeroPoint {
    /// Constants: one, or one for each column.
    Known(Vec<i64>),
    /// In s32, beside the result.
    Computed(TensorId),
}

/// A part of weights, its zero points, and its factor.
type Part = (TensorId, Vec<i64>, i64);

impl Steps<'_, '_> {
    /// The product of matrices in s8 or u8, less a zero point each, which may be one number, or one for each
    /// row of `a` or column of `b`: in f32, if that holds all sums, else in s32. `None` for a zero point of
    /// another shape. All dims are known.
    pub(crate) fn whole_product(
        &mut self,
        [a, b]: [TensorId; 2],
        zeros: [Option<TensorId>; 2],
    ) -> Result<Option<TensorId>, Fault> {
        let (rows, columns) = (self.dims(a)?, self.dims(b)?);
        let ranks = [rows.len(), columns.len()];
        let (Some(of_a), Some(of_b)) =
            (self.zero(zeros[0], ranks, true)?, self.zero(zeros[1], ranks, false)?)
        else {
            return Ok(None);
        };
        let depth = rows.last().copied().unwrap_or(1);
        let (own, moved) = match of_a {
            ZeroPoint::Known(zero) if zero.len() == 1 => (zero[0], None),
            ZeroPoint::Known(_) => return Ok(None),
            ZeroPoint::Computed(zero) => (0, Some(zero)),
        };
        let axis = columns.len().saturating_sub(2);
        let (parts, sums) =
            self.factors(b, of_b, depth, axis, ranks.map(|rank| rank > 1), moved.is_some())?;
        let mut total: Option<TensorId> = None;
        let most = if parts.len() > 1 { DEEPEST_OF_HALVES } else { DEEPEST };
        let mut start = 0;
        while start < depth || total.is_none() {
            let end = depth.min(start + most);
            let whole = end - start == depth;
            let left = if whole { a } else { self.part(a, rows.len() - 1, [start, end])? };
            let left = self.as_floats(left, &[own], 0)?;
            for (part, zero, factor) in &parts {
                let right = if whole { *part } else { self.part(*part, axis, [start, end])? };
                let right = self.as_floats(right, zero, columns.len() as i64 - 1)?;
                let product = self.emit_declared(K::MatMul, &[], &[left, right], D::F32)?;
                if parts.len() == 1 && whole && moved.is_none() {
                    return Ok(Some(product));
                }
                let mut product = self.cast(product, D::S32)?;
                if *factor != 1 {
                    let factor = self.number(D::S32, *factor as f64)?;
                    product = self.both(K::Multiply, product, factor)?;
                }
                total = Some(match total {
                    Some(total) => self.both(K::Add, total, product)?,
                    None => product,
                });
            }
            start = end.max(start + 1);
        }
        let (Some(mut total), sums) = (total, sums) else { return Ok(None) };
        if let (Some(zero), Some(sums)) = (moved, sums) {
            let more = self.both(K::Multiply, sums, zero)?;
            total = self.both(K::Subtract, total, more)?;
        }
        Ok(Some(total))
    }

    /// A zero point; `None` if it has another shape than one of the operand may have.
    fn zero(
        &mut self,
        zero: Option<TensorId>,
        ranks: [usize; 2],
        is_first: bool,
    ) -> Result<Option<ZeroPoint>, Fault> {
        let Some(zero) = zero else { return Ok(Some(ZeroPoint::Known(vec![0]))) };
        let own = self.dims(zero)?;
        let is_one = own.iter().all(|&dim| dim == 1);
        let known = self.builder.value(zero).and_then(integers);
        if let Some(known) = known
            && (is_one || (!is_first && own.len() == 1))
        {
            return Ok(Some(ZeroPoint::Known(known)));
        }
        if !is_one && (ranks.contains(&1) || ranks[usize::from(!is_first)] < own.len()) {
            return Ok(None);
        }
        let beside = match *own {
            _ if is_one => vec![],
            [count] if is_first => vec![count, 1],
            _ => own,
        };
        let zero = self.in_shape(zero, &beside)?;
        Ok(Some(ZeroPoint::Computed(self.cast(zero, D::S32)?)))
    }

    /// Weights as parts of 8 bits with their zero points, whose sum by the factors they are; and if asked for
    /// the sums of their columns in s32.
    fn factors(
        &mut self,
        b: TensorId,
        zero: ZeroPoint,
        depth: i64,
        axis: usize,
        [has_rows, has_columns]: [bool; 2],
        wants_sums: bool,
    ) -> Result<(Vec<Part>, Option<TensorId>), Fault> {
        let keep = has_rows && has_columns;
        let is_short = depth <= DEEPEST;
        let (mut parts, mut sums) = (Vec::new(), None);
        if let ZeroPoint::Known(zeros) = &zero
            && let Some(value) = self.builder.value(b)
            && let Some(apart) = fold::Apart::of(value, zeros)
        {
            if wants_sums {
                let value = apart.sums(axis, keep)?;
                sums = Some(stored(self.builder, value)?);
            }
            if !is_short {
                let [high, low] = apart.halves()?;
                parts.push((stored(self.builder, high)?, vec![0], 16));
                parts.push((stored(self.builder, low)?, vec![0], 1));
            }
        }
        let is_plain = is_short && matches!(zero, ZeroPoint::Known(_));
        if parts.is_empty() && (!is_plain || (wants_sums && sums.is_none())) {
            let mut whole = self.cast(b, D::S32)?;
            let taken = match &zero {
                ZeroPoint::Known(zeros) if zeros.iter().all(|&zero| zero == 0) => None,
                ZeroPoint::Known(zeros) => {
                    let value = fold::integers_of(D::S32, zeros);
                    value.map(|value| self.builder.constant(value)).transpose()?
                }
                ZeroPoint::Computed(zero) => Some(*zero),
            };
            if let Some(mut taken) = taken {
                if self.dims(taken)? == [1] {
                    taken = self.in_shape(taken, &[])?;
                }
                whole = self.both(K::Subtract, whole, taken)?;
            }
            if wants_sums {
                sums = Some(self.reduced(Reduction::One(K::ReduceSum), whole, &[axis as i64], keep)?);
            }
            if !is_plain {
                let sixteen = self.number(D::S32, 16.0)?;
                let high = self.both(K::Divide, whole, sixteen)?;
                let low = self.both(K::Modulo, whole, sixteen)?;
                parts.push((self.cast(high, D::S8)?, vec![0], 16));
                parts.push((self.cast(low, D::U8)?, vec![0], 1));
            }
        }
        if let (true, ZeroPoint::Known(zeros)) = (parts.is_empty(), zero) {
            parts.push((b, zeros, 1));
        }
        Ok((parts, sums))
    }

    /// Whole numbers of 8 bits less a zero point, one for all or one for each place along an axis.
    fn as_floats(&mut self, x: TensorId, zeros: &[i64], axis: i64) -> Result<TensorId, Fault> {
        let mut attrs: Vec<(Attr, AttrValue)> = match zeros {
            [_] => vec![(Attr::Qtype, "per_tensor".into())],
            _ => vec![(Attr::Qtype, "per_channel".into()), (Attr::Axis, axis.into())],
        };
        attrs.push((Attr::Scales, vec![1.0f32; zeros.len()].into()));
        attrs.push((Attr::Zps, zeros.to_vec().into()));
        self.emit(K::Dequantize, &attrs, &[x], D::F32)
    }
}
