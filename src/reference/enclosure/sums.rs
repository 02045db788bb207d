//! The intervals of sums along an axis: ReduceSum, SoftMax and its gradient.

use super::range::{ANYTHING, ElementRange, EnclosedTensor, Rounding, by_weight};
use crate::error::Result;
use crate::graph::op::Op;
use crate::reference::number::{HALF_A_UNIT, dense_value};
use crate::reference::rows::rows_along_axis;
use crate::reference::value::{Value, count};
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

use DataType as D;

/// The exponent from which on e to its power is 0 in f32: 2⁻¹⁵⁰ is half of the smallest number.
const EXP_IS_ZERO: f64 = -104.0;

/// The exponent below which e to its power is subnormal in f32, and may be taken for 0.
const EXP_IS_SUBNORMAL: f64 = -87.0;

/// A sum of elements, given the function that sums them in f64.
pub(super) fn sum(
    op: &Op,
    given: &EnclosedTensor,
    sums: impl Fn(&Value) -> Result<Vec<f64>>,
    result: &[i64],
) -> Result<EnclosedTensor> {
    let to = op.outputs()[0].data_type();
    let of = |part: fn(&ElementRange) -> f64| -> Result<Vec<f64>> {
        let numbers: Vec<f64> = given.elements().iter().map(part).collect();
        sums(&dense_value(&numbers, D::F64, given.centre.dims())?)
    };
    let (centre, low, high) = (of(|x| x.centre)?, of(|x| x.low)?, of(|x| x.high)?);
    let most = of(|x| x.centre.abs().max(x.low.abs()).max(x.high.abs()))?;
    let terms = count(given.centre.dims()).checked_div(centre.len()).unwrap_or(0) as f64 * HALF_A_UNIT;
    let element = |at: usize| match centre[at] {
        x if x.is_nan() => ElementRange::exactly(x),
        _ if low[at].is_nan() || high[at].is_nan() => ANYTHING,
        x if !x.is_finite() => ElementRange::exactly(x),
        _ if most[at] >= f64::from(f32::MAX) => ANYTHING,
        x => {
            let room = (terms + 1e-14) * most[at] + 1e-36;
            ElementRange { centre: x, low: low[at] - room, high: high[at] + room }.rounded(to, 0.0)
        }
    };
    EnclosedTensor::of((0..centre.len()).map(element).collect(), D::F64, result)
}

/// The gradient of SoftMax: `w · (g − Σ w · g)`, in which a weight of 0 makes 0.
pub(super) fn softmax_backward(
    op: &Op,
    given: [&EnclosedTensor; 2],
    dims: &Dims,
) -> Result<Vec<EnclosedTensor>> {
    let rows = rows_along_axis(op, given[1].centre.dims())?;
    let to = op.outputs()[0].data_type();
    let ranges = |of: &EnclosedTensor| -> Result<Vec<ElementRange>> {
        let (low, high) = of.ends.as_ref().map_or((&of.centre, &of.centre), |[low, high]| (low, high));
        let ends = rows.numbers(low)?.into_iter().zip(rows.numbers(high)?);
        let range = |(centre, (low, high))| ElementRange { centre, low, high };
        Ok(rows.numbers(&of.centre)?.into_iter().zip(ends).map(range).collect())
    };
    let (gradients, weights) = (ranges(given[0])?, ranges(given[1])?);
    let multiply = |a: ElementRange, b: ElementRange| match a.is_anything() || b.is_anything() {
        true => ANYTHING,
        false => {
            let ends = [(a.low, b.low), (a.low, b.high), (a.high, b.low), (a.high, b.high)];
            ElementRange::hull(a.centre * b.centre, ends.into_iter().map(|(x, y)| x * y))
        }
    };
    let mut results = Vec::with_capacity(weights.len());
    for row in 0..rows.count {
        let of_row = row * rows.length..(row + 1) * rows.length;
        let pairs = || weights[of_row.clone()].iter().zip(&gradients[of_row.clone()]);
        let mut mean = ElementRange::exactly(0.0);
        let mut most = 0.0;
        for (&weight, &gradient) in pairs() {
            let term = by_weight(weight, multiply(weight, gradient));
            let is_known = !mean.is_anything() && !term.is_anything();
            mean = ElementRange {
                centre: if is_known { mean.centre + term.centre } else { 1.0 },
                low: mean.low + term.low,
                high: mean.high + term.high,
            };
            most += term.low.abs().max(term.high.abs());
        }
        let room = (rows.length as f64 + 8.0) * HALF_A_UNIT * most + 1e-36;
        let mean = if mean.is_finite() {
            ElementRange { low: mean.low - room, high: mean.high + room, ..mean }
        } else {
            mean
        };
        results.extend(pairs().map(|(&weight, &gradient)| {
            let distance = match gradient.is_anything() || mean.is_anything() {
                true => ANYTHING,
                false => {
                    let ends = [gradient.low - mean.high, gradient.high - mean.low];
                    ElementRange::hull(gradient.centre - mean.centre, ends.into_iter())
                }
            };
            by_weight(weight, multiply(weight, distance.rounded(D::F32, 0.0))).rounded(to, 4.0 * HALF_A_UNIT)
        }));
    }
    let part = |of: fn(&ElementRange) -> f64| {
        rows.value(&results.iter().map(of).collect::<Vec<f64>>(), D::F64, dims)
    };
    let centre = part(|x| x.centre)?;
    let ends = Some([part(|x| x.low)?, part(|x| x.high)?]);
    Ok(vec![EnclosedTensor { centre, ends }])
}

/// SoftMax, and its statistics if the op gives them.
pub(super) fn softmax(
    op: &Op,
    given: &EnclosedTensor,
    shapes: &[Dims],
    is_backward: bool,
) -> Result<Vec<EnclosedTensor>> {
    let rows = rows_along_axis(op, given.centre.dims())?;
    let inf_as_zero = op.str_attr(Attr::Mode) == Some("inf_as_zero");
    let to = op.outputs()[0].data_type();
    let centre = rows.numbers(&given.centre)?;
    let (low, high) = match &given.ends {
        Some([low, high]) => (rows.numbers(low)?, rows.numbers(high)?),
        None => (centre.clone(), centre.clone()),
    };
    let mut shares = Vec::with_capacity(centre.len());
    let mut statistics = Vec::with_capacity(rows.count);
    let length = rows.length;
    for row in 0..rows.count {
        let of = |numbers: &[f64]| numbers[row * length..][..length].to_vec();
        let scores: Vec<ElementRange> = of(&centre)
            .into_iter()
            .zip(of(&low).into_iter().zip(of(&high)))
            .map(|(centre, (low, high))| ElementRange { centre, low, high })
            .collect();
        let (mut row, statistic) = shares_of(&scores, inf_as_zero, to);
        // A pair of query and key that is masked does not exist, whatever the others of the query hold.
        for (share, score) in row.iter_mut().zip(&scores).filter(|_| is_backward) {
            if score.is_exact() && score.centre == f64::NEG_INFINITY {
                *share = ElementRange::exactly(0.0);
            }
        }
        shares.extend(row);
        statistics.push(statistic);
    }
    let part = |of: fn(&ElementRange) -> f64| {
        rows.value(&shares.iter().map(of).collect::<Vec<f64>>(), D::F64, &shapes[0])
    };
    let centre = part(|share| share.centre)?;
    let ends = Some([part(|share| share.low)?, part(|share| share.high)?]);
    let mut results = vec![EnclosedTensor { centre, ends }];
    if let (Some(port), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        let rounded = statistics.iter().map(|statistic| statistic.rounded(port.data_type(), 0.0));
        results.push(EnclosedTensor::of(rounded.collect(), D::F64, dims)?);
    }
    Ok(results)
}

/// The shares of a row of scores, and its statistic.
fn shares_of(scores: &[ElementRange], inf_as_zero: bool, to: DataType) -> (Vec<ElementRange>, ElementRange) {
    let all = |element: ElementRange| (vec![element; scores.len()], element);
    let most = |of: fn(&ElementRange) -> f64| scores.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let is_surely_nan = |x: &ElementRange| x.centre.is_nan() || x.low == f64::INFINITY;
    if scores.iter().any(is_surely_nan) {
        return all(ElementRange::exactly(f64::NAN));
    }
    let (least_max, max, most_max) =
        (most(|score| score.low), most(|score| score.centre), most(|score| score.high));
    match most_max {
        _ if scores.iter().any(ElementRange::is_anything) => return all(ANYTHING),
        f64::NEG_INFINITY if inf_as_zero => return all(ElementRange::exactly(0.0)),
        f64::NEG_INFINITY if scores.is_empty() => return all(ElementRange::exactly(f64::NEG_INFINITY)),
        f64::NEG_INFINITY => return all(ElementRange::exactly(f64::NAN)),
        // Whether anything is left of the row, or whether it overflows, is not known.
        _ if least_max == f64::NEG_INFINITY || most_max == f64::INFINITY => return all(ANYTHING),
        _ => {}
    }
    // An interval so wide that its exponential overflows says nothing but that it lies within 0 and 1.
    let exp = |x: f64| (x - max).min(600.0).exp();
    let sums = scores.iter().fold([0.0; 3], |[low, centre, high], score| {
        [low + exp(score.low), centre + exp(score.centre), high + exp(score.high)]
    });
    let terms = scores.len() as f64 * HALF_A_UNIT;
    let share = |score: &ElementRange| {
        if score.high - least_max <= EXP_IS_ZERO {
            return ElementRange::exactly(0.0);
        }
        let (low, centre, high) = (exp(score.low), exp(score.centre), exp(score.high));
        let relative = terms + (64.0 + 2.0 * (max - score.centre).abs().min(128.0)) * HALF_A_UNIT;
        // A type of 16 bits is rounded to before the division by the sum, or after it, or both.
        let relative = if to == D::F32 { relative } else { relative + Rounding::to(to).half_unit };
        let most = high / (high + (sums[0] - low).max(0.0));
        let least = if score.low - most_max < EXP_IS_SUBNORMAL {
            0.0
        } else {
            low / (low + (sums[2] - high).max(0.0))
        };
        let element = ElementRange { centre: centre / sums[1], low: least, high: most.max(centre / sums[1]) };
        let element = element.rounded(to, relative);
        // Even if it is a single number, its sum may be off.
        ElementRange { low: element.low.min(element.centre), ..element }
    };
    let room = terms + 64.0 * HALF_A_UNIT;
    let log = |sum: f64, sign: f64| {
        let log = max + sum.ln();
        log + sign * (room + 4.0 * HALF_A_UNIT * log.abs())
    };
    let statistic =
        ElementRange { centre: max + sums[1].ln(), low: log(sums[0], -1.0), high: log(sums[2], 1.0) };
    (scores.iter().map(share).collect(), statistic)
}
