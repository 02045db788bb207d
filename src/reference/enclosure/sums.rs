//! The intervals of sums along an axis: ReduceSum and ReduceMean, SoftMax and its gradient.

use super::range::{ANYTHING, ElementRange, EnclosedTensor, Rounding, by_weight, sum_may_overflow};
use crate::error::Result;
use crate::graph::op::Op;
use crate::reference::number::HALF_A_UNIT;
use crate::reference::odometer::CHUNK;
use crate::reference::rows::{Rows, rows_along_axis};
use crate::types::dtype::DataType;
use crate::types::function::{EXP_IS_SUBNORMAL, EXP_IS_ZERO};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

use DataType as D;

/// The largest exponent that is looked at: e to its power is a number, and a thousand of them have a sum.
const EXP_LIMIT: f64 = 600.0;

/// A sum or mean of elements along axes, which has the shape `result`.
pub(super) fn sum(op: &Op, given: &EnclosedTensor, axes: &[usize], result: &[i64]) -> Result<EnclosedTensor> {
    let to = op.outputs()[0].data_type();
    let rows = Rows::along(axes, given.centre.dims());
    let terms = rows.length as f64 * HALF_A_UNIT;
    let by = if op.kind() == OpKind::ReduceMean { rows.length as f64 } else { 1.0 };
    let of_row = |row: &[ElementRange]| {
        let sum = |part: fn(&ElementRange) -> f64| row.iter().fold(0.0, |sum, x| sum + part(x));
        let (centre, low, high) = (sum(|x| x.centre), sum(|x| x.low), sum(|x| x.high));
        let most = sum(|x| x.centre.abs().max(x.low.abs()).max(x.high.abs()));
        let [positive, negative] = [sum(|x| finite_part(x.high)), sum(|x| finite_part(-x.low))];
        match centre {
            x if x.is_nan() => ElementRange::exactly(x),
            _ if low.is_nan() || high.is_nan() => ANYTHING,
            x if !x.is_finite() && (low, high) != (x, x) => ANYTHING,
            x if sum_may_overflow(x, positive, negative) => ANYTHING,
            x if !x.is_finite() => ElementRange::exactly(x),
            x => {
                let room = (terms + 1e-14) * most + 1e-36;
                let (low, high) = ((low - room) / by, (high + room) / by);
                ElementRange { centre: x / by, low, high }
                    .rounded(to, if by == 1.0 { 0.0 } else { HALF_A_UNIT })
            }
        }
    };
    let odometer = rows.odometer();
    let of_task = rows.elements_of_task().checked_div(rows.length).unwrap_or(CHUNK);
    EnclosedTensor::compute(D::F64, result, of_task, |first, sums| {
        let length = rows.length;
        let mut elements = vec![ElementRange::exactly(0.0); sums.len() * length];
        given.read(&odometer, first * length..(first + sums.len()) * length, &mut elements);
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = of_row(&elements[row * length..][..length]);
        }
    })
}

/// The share of a term in the sum of the positive terms that are finite.
fn finite_part(term: f64) -> f64 {
    if term.is_finite() { term.max(0.0) } else { 0.0 }
}

/// A tensor whose rows follow from those of others, which have the same dims.
fn by_rows(
    rows: &Rows,
    given: &[&EnclosedTensor],
    dims: &[i64],
    of_row: impl Fn(&mut [ElementRange], &[&[ElementRange]]) + Sync,
) -> Result<EnclosedTensor> {
    let (odometer, length) = (rows.odometer(), rows.length.max(1));
    let result = EnclosedTensor::compute(D::F64, dims, rows.elements_of_task(), |first, results| {
        let read = |tensor: &&EnclosedTensor| {
            let mut elements = vec![ElementRange::exactly(0.0); results.len()];
            tensor.read(&odometer, first..first + results.len(), &mut elements);
            elements
        };
        let given: Vec<Vec<ElementRange>> = given.iter().map(read).collect();
        for (row, results) in results.chunks_exact_mut(length).enumerate() {
            let rows: Vec<&[ElementRange]> =
                given.iter().map(|elements| &elements[row * length..][..length]).collect();
            of_row(results, &rows);
        }
    })?;
    result.moved(|value| rows.placed(value.clone(), dims))
}

/// The gradient of SoftMax: `w · (g − Σ w · g)`, in which a weight of 0 makes 0.
pub(super) fn softmax_backward(
    op: &Op,
    given: [&EnclosedTensor; 2],
    dims: &Dims,
) -> Result<Vec<EnclosedTensor>> {
    let rows = rows_along_axis(op, given[1].centre.dims())?;
    let to = op.outputs()[0].data_type();
    let multiply = |a: ElementRange, b: ElementRange| match a.is_anything() || b.is_anything() {
        true => ANYTHING,
        false => {
            let ends = [(a.low, b.low), (a.low, b.high), (a.high, b.low), (a.high, b.high)];
            ElementRange::hull(a.centre * b.centre, ends.into_iter().map(|(x, y)| x * y))
        }
    };
    let result = by_rows(&rows, &given, dims, |results, given| {
        let pairs = || given[1].iter().zip(given[0]);
        let mut mean = ElementRange::exactly(0.0);
        let [mut most, mut positive, mut negative] = [0.0; 3];
        for (&weight, &gradient) in pairs() {
            let term = by_weight(weight, multiply(weight, gradient));
            let is_known = !mean.is_anything() && !term.is_anything();
            mean = ElementRange {
                centre: if is_known { mean.centre + term.centre } else { 1.0 },
                low: mean.low + term.low,
                high: mean.high + term.high,
            };
            most += term.low.abs().max(term.high.abs());
            positive += finite_part(term.high);
            negative += finite_part(-term.low);
        }
        let room = (rows.length as f64 + 8.0) * HALF_A_UNIT * most + 1e-36;
        let mean = match mean {
            _ if mean.is_anything() || mean.centre.is_nan() => mean,
            _ if sum_may_overflow(mean.centre, positive, negative) => ANYTHING,
            _ if mean.is_finite() => ElementRange { low: mean.low - room, high: mean.high + room, ..mean },
            _ => mean,
        };
        for (result, (&weight, &gradient)) in results.iter_mut().zip(pairs()) {
            let distance = match gradient.is_anything() || mean.is_anything() {
                true => ANYTHING,
                false => {
                    let ends = [gradient.low - mean.high, gradient.high - mean.low];
                    ElementRange::hull(gradient.centre - mean.centre, ends.into_iter())
                }
            };
            let product = multiply(weight, distance.rounded(D::F32, 0.0));
            *result = by_weight(weight, product).rounded(to, 4.0 * HALF_A_UNIT);
        }
    })?;
    Ok(vec![result])
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
    let mut results = vec![by_rows(&rows, &[given], &shapes[0], |shares, given| {
        ScoreRow::of(given[0], inf_as_zero).shares(given[0], to, shares);
        // A pair of query and key that is masked does not exist, whatever the others of the query hold.
        for (share, score) in shares.iter_mut().zip(given[0]).filter(|_| is_backward) {
            if score.is_exact() && score.centre == f64::NEG_INFINITY {
                *share = ElementRange::exactly(0.0);
            }
        }
    })?];
    if let (Some(port), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        let (odometer, length, to) = (rows.odometer(), rows.length, port.data_type());
        let of_task = rows.elements_of_task().checked_div(length).unwrap_or(CHUNK);
        results.push(EnclosedTensor::compute(D::F64, dims, of_task, |first, statistics| {
            let mut elements = vec![ElementRange::exactly(0.0); statistics.len() * length];
            given.read(&odometer, first * length..(first + statistics.len()) * length, &mut elements);
            for (row, statistic) in statistics.iter_mut().enumerate() {
                let scores = &elements[row * length..][..length];
                *statistic = ScoreRow::of(scores, inf_as_zero).statistic().rounded(to, 0.0);
            }
        })?);
    }
    Ok(results)
}

/// The part of a row of scores that all its shares need.
enum ScoreRow {
    /// All shares, and the statistic, are this.
    All(ElementRange),
    Sums {
        /// The lowest maximum of the row, the one of the centres, and the highest.
        least_max: f64,
        max: f64,
        most_max: f64,
        /// The sums of the exponentials of the lower ends, of the centres and of the upper ends.
        sums: [f64; 3],
        length: usize,
    },
}

/// An exponential by the maximum of a row. An interval so wide that its exponential overflows says nothing
/// but that it lies within 0 and 1.
fn exp(score: f64, max: f64) -> f64 {
    (score - max).min(EXP_LIMIT).exp()
}

/// The exponentials of the ends and the centre of a score.
fn exps(score: &ElementRange, max: f64) -> [f64; 3] {
    let centre = exp(score.centre, max);
    match score.is_exact() {
        true => [centre; 3],
        false => [exp(score.low, max), centre, exp(score.high, max)],
    }
}

impl ScoreRow {
    fn of(scores: &[ElementRange], inf_as_zero: bool) -> Self {
        let most = |of: fn(&ElementRange) -> f64| scores.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        let is_surely_nan = |x: &ElementRange| x.centre.is_nan() || x.low == f64::INFINITY;
        if scores.iter().any(is_surely_nan) {
            return Self::All(ElementRange::exactly(f64::NAN));
        }
        let (least_max, max, most_max) =
            (most(|score| score.low), most(|score| score.centre), most(|score| score.high));
        match most_max {
            _ if scores.iter().any(ElementRange::is_anything) => return Self::All(ANYTHING),
            f64::NEG_INFINITY if inf_as_zero => return Self::All(ElementRange::exactly(0.0)),
            f64::NEG_INFINITY if scores.is_empty() => {
                return Self::All(ElementRange::exactly(f64::NEG_INFINITY));
            }
            f64::NEG_INFINITY => return Self::All(ElementRange::exactly(f64::NAN)),
            // It is not known if anything is left of the row, or if it overflows.
            _ if least_max == f64::NEG_INFINITY || most_max == f64::INFINITY => return Self::All(ANYTHING),
            _ => {}
        }
        let sums = scores.iter().fold([0.0; 3], |sums, score| {
            let [low, centre, high] = exps(score, max);
            [sums[0] + low, sums[1] + centre, sums[2] + high]
        });
        Self::Sums { least_max, max, most_max, sums, length: scores.len() }
    }

    fn shares(&self, scores: &[ElementRange], to: DataType, shares: &mut [ElementRange]) {
        let (least_max, max, most_max, sums, length) = match *self {
            Self::All(element) => return shares.fill(element),
            Self::Sums { least_max, max, most_max, sums, length } => (least_max, max, most_max, sums, length),
        };
        let terms = length as f64 * HALF_A_UNIT;
        for (share, score) in shares.iter_mut().zip(scores) {
            if score.high - least_max <= f64::from(EXP_IS_ZERO) {
                *share = ElementRange::exactly(0.0);
                continue;
            }
            let [low, centre, high] = exps(score, max);
            let relative = terms + (64.0 + 2.0 * (max - score.centre).abs().min(128.0)) * HALF_A_UNIT;
            // A type of 16 bits is rounded to before the division by the sum, or after it, or both.
            let relative = if to == D::F32 { relative } else { relative + Rounding::to(to).half_unit };
            let most = high / (high + (sums[0] - low).max(0.0));
            let least = if score.low - most_max < f64::from(EXP_IS_SUBNORMAL) {
                0.0
            } else {
                low / (low + (sums[2] - high).max(0.0))
            };
            let centre = centre / sums[1];
            let element = ElementRange { centre, low: least, high: most.max(centre) };
            let element = element.rounded(to, relative);
            // Even if it is a single number, its sum may be off.
            *share = ElementRange { low: element.low.min(element.centre), ..element };
        }
    }

    fn statistic(&self) -> ElementRange {
        let (least_max, max, most_max, sums, length) = match *self {
            Self::All(element) => return element,
            Self::Sums { least_max, max, most_max, sums, length } => (least_max, max, most_max, sums, length),
        };
        let room = length as f64 * HALF_A_UNIT + 64.0 * HALF_A_UNIT;
        let rounded = |log: f64, sign: f64| log + sign * (room + 4.0 * HALF_A_UNIT * log.abs());
        // Beyond the limit, a sum of exponentials says less than the maximum and the number of scores.
        let low = if max - least_max < EXP_LIMIT { max + sums[0].ln() } else { least_max };
        let high = match most_max - max < EXP_LIMIT {
            true => max + sums[2].ln(),
            false => most_max + (length as f64).ln(),
        };
        ElementRange { centre: max + sums[1].ln(), low: rounded(low, -1.0), high: rounded(high, 1.0) }
    }
}
