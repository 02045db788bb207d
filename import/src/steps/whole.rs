//! Products of whole numbers in 8 bits: no sum is rounded.
//!
//! `MatMul` of two `Dequantize` adds up in s32 and rounds once to f32, which holds whole numbers up to 2²⁴.
//! So the depth is divided into ranges whose sums stay within that, which constant weights tell by their
//! magnitudes; weights that are computed are taken apart, `w = 16 · high + low`. What the products give is
//! put together in s32.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::{Reduction, Steps, Windows};
use crate::compose::stored;
use crate::error::Fault;
use crate::fold;
use crate::weights::{element_count, integers};

use DataType as D;
use OpKind as K;

/// The largest number up to which f32 holds all whole ones.
const LARGEST_WHOLE: i64 = 1 << 24;
/// The largest magnitude of a number of 8 bits around 0.
const LARGEST_BYTE: i64 = 128;
/// The most products of two numbers up to 255 whose sum f32 holds.
const DEEPEST: i64 = 258;
/// The largest distance of two numbers of 8 bits.
const LARGEST_DISTANCE: i64 = 255;
/// The most products of a number up to 255 and one up to 16 that are added up at once; f32 holds the sum.
const DEEPEST_OF_HALVES: i64 = 4096;

/// The number that is taken off each number of an operand.
#[derive(Clone)]
enum ZeroPoint {
    /// Constants: one, or one for each column.
    Known(Vec<i64>),
    /// In s32, beside the result.
    Computed(TensorId),
}

/// A part of weights, its zero points, and its factor.
type Part = (TensorId, Vec<i64>, i64);

/// The numbers of a left operand: those of its type less `own`, up to `reach`, less a zero point in s32 that
/// is computed.
struct NumberRange {
    own: i64,
    moved: Option<TensorId>,
    reach: i64,
}

/// The weights of a product.
struct WeightParts {
    /// Their sum by the factors are the weights.
    parts: Vec<Part>,
    /// The sums of the columns in s32, if they were asked for.
    sums: Option<TensorId>,
    /// The ranges of the depth whose products f32 holds.
    ranges: Vec<[i64; 2]>,
}

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
        let of_a = self.around(a, zeros[0], ranks)?;
        let (Some(of_a), Some(of_b)) = (of_a, self.zero(zeros[1], ranks, false)?) else {
            return Ok(None);
        };
        let NumberRange { mut own, mut moved, reach } = of_a;
        let depth = rows.last().copied().unwrap_or(1);
        let axis = columns.len().saturating_sub(2);
        let keeps = ranks.map(|rank| rank > 1);
        let mut weights = self.factors(b, of_b.clone(), (depth, reach), axis, keeps, moved.is_some())?;
        let middle = self.middle(a);
        if weights.ranges.len() > 1 && weights.parts.len() == 1 && moved.is_none() && own != middle {
            // Numbers around 0 have fewer ranges.
            moved = Some(self.number(D::S32, (own - middle) as f64)?);
            own = middle;
            weights = self.factors(b, of_b, (depth, LARGEST_BYTE), axis, keeps, true)?;
        }
        let WeightParts { parts, sums, ranges } = weights;
        let mut total: Option<TensorId> = None;
        for [start, end] in ranges {
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
        }
        let (Some(mut total), sums) = (total, sums) else { return Ok(None) };
        if let (Some(zero), Some(sums)) = (moved, sums) {
            let more = self.both(K::Multiply, sums, zero)?;
            total = self.both(K::Subtract, total, more)?;
        }
        Ok(Some(total))
    }

    /// The convolution of data by constant filters in 8 bits, less a zero point of one number each, in s32.
    /// `None` for dims that do not fit, and for filters so large that f32 does not hold all sums.
    pub(crate) fn whole_convolution(
        &mut self,
        [x, filters]: [TensorId; 2],
        zeros: [Option<TensorId>; 2],
        windows: &Windows,
        groups: i64,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.dims(filters)?;
        let of_filters = match zeros[1].map(|zero| self.builder.value(zero).and_then(integers)) {
            None => Some(0),
            Some(known) => known.and_then(|list| list.first().copied()),
        };
        let value = self.builder.value(filters).filter(|value| !value.bytes().is_empty());
        let (Some(zero), Some(value)) = (of_filters, value) else { return Ok(None) };
        let (count, channels) = (dims[0], dims[1]);
        let taps = element_count(&dims[2..]).unwrap_or(i64::MAX);
        let apart = |rows: &[i64]| -> Result<Option<fold::Apart>, Fault> {
            Ok(fold::Apart::of(&value.retyped(value.data_type(), rows)?, &[zero]))
        };
        let (Some(whole), Some(by_channel)) =
            (apart(&[count, channels * taps])?, apart(&[count, channels, taps])?)
        else {
            return Ok(None);
        };
        let Some(NumberRange { own, moved, reach }) = self.around(x, zeros[0], [dims.len(); 2])? else {
            return Ok(None);
        };
        let (mut numbers, mut reach) = (self.as_floats(x, &[own], 0)?, reach);
        let moved = moved.map(|moved| self.in_shape(moved, &[])).transpose()?;
        if let Some(moved) = moved.filter(|_| windows.have_padding()) {
            // Padding is no part of the data, which what is computed is taken off.
            let moved = self.cast(moved, D::F32)?;
            (numbers, reach) = (self.both(K::Subtract, numbers, moved)?, LARGEST_DISTANCE);
        }
        let of_channels = match moved {
            Some(_) if !windows.have_padding() => Some(whole.sums(1, false)?),
            _ => None,
        };
        let ranges = match whole.ranges(1, LARGEST_WHOLE / reach).len() {
            1 => vec![[0, channels]],
            _ if groups == 1 && taps <= DEEPEST => by_channel.ranges(1, LARGEST_WHOLE / reach / taps),
            _ => return Ok(None),
        };
        let weights = self.as_floats(filters, &[zero], 0)?;
        let mut total: Option<TensorId> = None;
        for range in &ranges {
            let (mut data, mut part) = (numbers, weights);
            if ranges.len() > 1 {
                (data, part) = (self.part(data, 1, *range)?, self.part(part, 1, *range)?);
            }
            let Some(sums) = self.convolution([data, part], None, windows, groups)? else { return Ok(None) };
            let sums = self.cast(sums, D::S32)?;
            total = Some(match total {
                Some(total) => self.both(K::Add, total, sums)?,
                None => sums,
            });
        }
        let (Some(mut sums), Some(moved), Some(of_channels)) = (total, moved, of_channels) else {
            return Ok(total);
        };
        let of_channels = stored(self.builder, of_channels)?;
        let beside: Vec<i64> = std::iter::once(count).chain(vec![1; dims.len() - 2]).collect();
        let of_channels = self.in_shape(of_channels, &beside)?;
        let more = self.both(K::Multiply, of_channels, moved)?;
        sums = self.both(K::Subtract, sums, more)?;
        Ok(Some(sums))
    }

    /// The number that is farthest from the ends of the type of a tensor of 8 bits.
    fn middle(&self, a: TensorId) -> i64 {
        if self.builder.data_type(a) == D::U8 { 128 } else { 0 }
    }

    /// The number that is taken off operands of 8 bits, and what is left of their zero point. `None` for zero
    /// points that are several constants.
    fn around(
        &mut self,
        a: TensorId,
        zero: Option<TensorId>,
        ranks: [usize; 2],
    ) -> Result<Option<NumberRange>, Fault> {
        let Some(zero) = self.zero(zero, ranks, true)? else { return Ok(None) };
        let middle = self.middle(a);
        let (own, moved) = match zero {
            ZeroPoint::Known(zero) if zero.len() == 1 => (zero[0], None),
            ZeroPoint::Known(_) => return Ok(None),
            // Numbers around 0 have the smallest sums.
            ZeroPoint::Computed(zero) => {
                let center = self.number(D::S32, middle as f64)?;
                (middle, Some(self.both(K::Subtract, zero, center)?))
            }
        };
        Ok(Some(NumberRange { own, moved, reach: (own - middle).abs() + LARGEST_BYTE }))
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

    /// Weights as parts of 8 bits with their zero points, for numbers that are up to `reach` from theirs.
    fn factors(
        &mut self,
        b: TensorId,
        zero: ZeroPoint,
        (depth, reach): (i64, i64),
        axis: usize,
        [has_rows, has_columns]: [bool; 2],
        wants_sums: bool,
    ) -> Result<WeightParts, Fault> {
        let keep = has_rows && has_columns;
        if let ZeroPoint::Known(zeros) = &zero
            && let Some(value) = self.builder.value(b)
            && !value.bytes().is_empty()
            && !value.dims().is_empty()
            && let Some(apart) = fold::Apart::of(value, zeros)
        {
            let sums = match wants_sums {
                true => Some(stored(self.builder, apart.sums(axis, keep)?)?),
                false => None,
            };
            let ranges = apart.ranges(axis, LARGEST_WHOLE / reach);
            return Ok(WeightParts { parts: vec![(b, zeros.clone(), 1)], sums, ranges });
        }
        let is_short = depth <= DEEPEST;
        let is_plain = is_short && matches!(zero, ZeroPoint::Known(_));
        let (mut parts, mut sums) = (Vec::new(), None);
        if !is_plain || wants_sums {
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
        let most = if is_short { DEEPEST } else { DEEPEST_OF_HALVES };
        let starts = (0..depth.max(1)).step_by(most as usize);
        let ranges = starts.map(|start| [start, depth.min(start + most)]).collect();
        Ok(WeightParts { parts, sums, ranges })
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

    /// Numbers in u8, their scale and their zero point, by the extremes of all numbers along some axes and 0.
    pub(crate) fn dynamically_quantized(
        &mut self,
        x: TensorId,
        axes: &[i64],
        keep: bool,
    ) -> Result<[TensorId; 3], Fault> {
        let (zero, most) = (self.float(0.0)?, self.float(255.0)?);
        let high = self.reduced(Reduction::One(K::ReduceMax), x, axes, keep)?;
        let low = self.reduced(Reduction::One(K::ReduceMin), x, axes, keep)?;
        let (high, low) = (self.both(K::Maximum, high, zero)?, self.both(K::Minimum, low, zero)?);
        let range = self.both(K::Subtract, high, low)?;
        let scale = self.both(K::Divide, range, most)?;
        // Of zeros alone, ONNX Runtime takes 1.
        let (is_zero, one) = (self.predicate(K::Equal, range, zero)?, self.float(1.0)?);
        let scale = self.select(is_zero, one, scale)?;
        let bounds: [(Attr, AttrValue); 2] = [(Attr::Min, 0.0f32.into()), (Attr::Max, 255.0f32.into())];
        let negative = self.same(K::Negative, low)?;
        let point = self.both(K::Divide, negative, scale)?;
        let point = self.emit(K::Clamp, &bounds, &[point], D::F32)?;
        let point = self.same(K::Round, point)?;
        let share = self.both(K::Divide, x, scale)?;
        let share = self.same(K::Round, share)?;
        // The cast keeps numbers within the bounds of its type.
        let moved = self.both(K::Add, share, point)?;
        Ok([self.cast(moved, D::U8)?, scale, self.cast(point, D::U8)?])
    }
}
