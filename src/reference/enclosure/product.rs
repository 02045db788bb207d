//! The intervals of matrix products.

use super::range::{ANYTHING, ElementRange, EnclosedTensor};
use crate::error::Result;
use crate::graph::op::Op;
use crate::reference::number::{HALF_A_UNIT, dense_value};
use crate::reference::odometer::Odometer;
use crate::reference::products::{self, Matrices};
use crate::reference::value::{Value, count, zeroed};
use crate::types::dtype::DataType;
use crate::types::kind::Attr;

use DataType as D;

/// A matrix product; with `skips`, a number on the left that is 0 adds nothing, whatever is on the right.
pub(super) fn product(
    op: &Op,
    given: &[&EnclosedTensor],
    result: &[i64],
    skips: bool,
) -> Result<EnclosedTensor> {
    let special = Special::of(op, given, result, skips)?;
    let finite: Vec<Vec<ElementRange>> = given
        .iter()
        .map(|interval| {
            let finite = |x: ElementRange| if x.is_finite() { x } else { ElementRange::exactly(0.0) };
            interval.elements().into_iter().map(finite).collect()
        })
        .collect();
    let values = |of: fn(&ElementRange) -> f64| -> Result<Vec<Value>> {
        let value = |(elements, interval): (&Vec<ElementRange>, &&EnclosedTensor)| {
            let numbers: Vec<f64> = elements.iter().map(of).collect();
            dense_value(&numbers, D::F64, interval.centre.dims())
        };
        finite.iter().zip(given).map(value).collect()
    };
    let sums = products::sums(op, &values(|x| x.centre)?, result, |x| x)?;
    let sizes = products::sums(op, &values(|x| x.centre.abs())?, result, |x| x)?;
    let most = |x: &ElementRange| x.centre.abs() + (x.high - x.centre).max(x.centre - x.low);
    let most_sizes = products::sums(op, &values(most)?, result, |x| x)?;
    let terms = products::terms(op, given[0].centre.dims(), given.len()) * HALF_A_UNIT;
    let to = op.outputs()[0].data_type();
    let element = |at: usize| {
        let (sum, size, most) = (sums[at], sizes[at], most_sizes[at]);
        let (extra, is_anything) = special.as_ref().map_or((0.0, false), |special| special.at(at));
        let sum = sum + extra;
        if extra.is_nan() {
            return ElementRange::exactly(f64::NAN);
        } else if is_anything {
            return ANYTHING;
        } else if !sum.is_finite() {
            return ElementRange::exactly(sum);
        } else if most >= f64::from(f32::MAX) {
            // A sum on the way may overflow.
            return ANYTHING;
        } else if most == 0.0 {
            return ElementRange::exactly(sum);
        }
        // Products of subnormal numbers may be taken for 0.
        let room = (most - size).max(0.0) + (terms + 1e-14) * most + 1e-36;
        ElementRange { centre: sum, low: sum - room, high: sum + room }.rounded(to, 0.0)
    };
    EnclosedTensor::of((0..sums.len()).map(element).collect(), D::F64, result)
}

/// What terms with NaN and infinities add to the elements of a product.
struct Special {
    sums: Vec<f64>,
    is_anything: Vec<bool>,
}

impl Special {
    /// `None` if all numbers are finite.
    fn of(op: &Op, given: &[&EnclosedTensor], result: &[i64], skips: bool) -> Result<Option<Self>> {
        let (left, right) = (&given[0].elements(), &given[1].elements());
        let mut all = left.iter().chain(right);
        if all.all(ElementRange::is_finite) && given.len() == 2 {
            return Ok(None);
        }
        let of = |interval: &EnclosedTensor, transpose: bool| -> Result<[Matrices; 3]> {
            let ends = interval.ends.as_ref().map_or([&interval.centre; 2], |[low, high]| [low, high]);
            let part = |value: &Value| Matrices::of(value, transpose, |x| x);
            Ok([part(&interval.centre)?, part(ends[0])?, part(ends[1])?])
        };
        let rows = of(given[0], op.bool_attr(Attr::TransposeA))?;
        let columns = of(given[1], !op.bool_attr(Attr::TransposeB))?;
        let own_dims = given.iter().take(2).filter(|interval| interval.centre.dims().len() > 1).count();
        let batch = &result[..result.len() - own_dims];
        let (m, n, k) = (rows[0].count, columns[0].count, rows[0].length);
        let mut special = Self { sums: zeroed(count(result))?, is_anything: zeroed(count(result))? };
        let element = |matrices: &[&[f64]; 3], at: usize| ElementRange {
            centre: matrices[0][at],
            low: matrices[1][at],
            high: matrices[2][at],
        };
        for place in 0..count(result).checked_div(m * n).unwrap_or(0) {
            let rows = [0, 1, 2].map(|i| rows[i].matrix(batch, place));
            let columns = [0, 1, 2].map(|i| columns[i].matrix(batch, place));
            for i in 0..m {
                for j in (0..k).filter(|j| !element(&rows, i * k + j).is_finite()) {
                    for c in 0..n {
                        let term =
                            SpecialTerm::of(element(&rows, i * k + j), element(&columns, c * k + j), skips);
                        special.add(place * m * n + i * n + c, term);
                    }
                }
            }
            for c in 0..n {
                for j in (0..k).filter(|j| !element(&columns, c * k + j).is_finite()) {
                    for i in 0..m {
                        let term =
                            SpecialTerm::of(element(&rows, i * k + j), element(&columns, c * k + j), skips);
                        special.add(place * m * n + i * n + c, term);
                    }
                }
            }
        }
        if let Some(bias) = given.get(2) {
            let dims = bias.centre.dims();
            let odometer = Odometer::broadcast(dims, result, result.len() - dims.len());
            let elements = bias.elements();
            let mut places: Vec<usize> = zeroed(count(result))?;
            odometer.read(0..count(result), &mut places, |at| at);
            for (at, place) in places.into_iter().enumerate() {
                match elements[place] {
                    x if x.is_finite() => {}
                    x if x.is_exact() => special.add(at, SpecialTerm::Number(x.centre)),
                    _ => special.add(at, SpecialTerm::Anything),
                }
            }
        }
        Ok(Some(special))
    }

    fn add(&mut self, at: usize, term: SpecialTerm) {
        match term {
            SpecialTerm::None => {}
            SpecialTerm::Number(number) => self.sums[at] += number,
            SpecialTerm::Anything => self.is_anything[at] = true,
        }
    }

    fn at(&self, at: usize) -> (f64, bool) {
        (self.sums[at], self.is_anything[at])
    }
}

/// What a product of two numbers adds to a sum if one of them is not finite.
enum SpecialTerm {
    None,
    Number(f64),
    Anything,
}

impl SpecialTerm {
    fn of(x: ElementRange, y: ElementRange, skips: bool) -> Self {
        let is_zero = |x: &ElementRange| x.is_exact() && x.centre == 0.0;
        if skips && is_zero(&x) {
            return Self::None;
        } else if x.centre.is_nan() {
            return Self::Number(f64::NAN);
        } else if x.is_anything() || y.is_anything() {
            return Self::Anything;
        } else if y.centre.is_nan() {
            // What is 0 or not decides whether a NaN arrives.
            return if skips && x.low <= 0.0 && x.high >= 0.0 {
                Self::Anything
            } else {
                Self::Number(f64::NAN)
            };
        }
        let corners = [x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high];
        match corners[0] {
            first if !first.is_finite() && corners.iter().all(|&corner| corner == first) => {
                Self::Number(first)
            }
            first if first.is_nan() && corners.iter().all(|corner| corner.is_nan()) => Self::Number(first),
            _ => Self::Anything,
        }
    }
}
