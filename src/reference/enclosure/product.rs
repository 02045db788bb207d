//! The intervals of matrix products.

use super::range::{ANYTHING, ElementRange, EnclosedTensor, sum_may_overflow};
use crate::error::Result;
use crate::graph::op::Op;
use crate::reference::number::HALF_A_UNIT;
use crate::reference::odometer::Odometer;
use crate::reference::products::{self, MatrixSums};
use crate::reference::value::{count, zeroed};
use crate::types::dtype::DataType;

use DataType as D;

/// A matrix product; with `skips`, a number on the left that is 0 adds nothing, whatever is on the right.
pub(super) fn product(
    op: &Op,
    given: &[&EnclosedTensor],
    result: &[i64],
    skips: bool,
) -> Result<EnclosedTensor> {
    let product = MatrixSums::of(op, [given[0].centre.dims(), given[1].centre.dims()], result);
    let special = Special::of(&product, given, result, skips)?;
    let terms = products::terms(op, given[0].centre.dims(), given.len()) * HALF_A_UNIT;
    let to = op.outputs()[0].data_type();
    let bias = given.get(2).map(|bias| {
        let dims = bias.centre.dims();
        (bias, Odometer::broadcast(dims, result, result.len() - dims.len()))
    });
    // The sums of the terms, of their sizes, and of the sizes that they have at most.
    let element = |at: usize, [sum, size, most]: [f64; 3]| {
        let [sum, size, most] = match &bias {
            None => [sum, size, most],
            Some((bias, odometer)) => {
                let mut addend = [ElementRange::exactly(0.0)];
                bias.read(odometer, at..at + 1, &mut addend);
                let [x, x_size, x_most] = factors(addend[0]);
                [sum + x, size + x_size, most + x_most]
            }
        };
        let (extra, is_anything) = special.as_ref().map_or((0.0, false), |special| special.at(at));
        if extra.is_nan() {
            return ElementRange::exactly(f64::NAN);
        } else if is_anything {
            return ANYTHING;
        }
        // The terms that are at most positive and at most negative, as intervals let them be.
        let [positive, negative] = [sum, -sum].map(|sum| (size + sum) / 2.0 + (most - size).max(0.0));
        let sum = sum + extra;
        if sum_may_overflow(sum, positive, negative) {
            return ANYTHING;
        } else if !sum.is_finite() || most == 0.0 {
            return ElementRange::exactly(sum);
        }
        // Products of subnormal numbers may be taken for 0.
        let room = (most - size).max(0.0) + (terms + 1e-14) * most + 1e-36;
        ElementRange { centre: sum, low: sum - room, high: sum + room }.rounded(to, 0.0)
    };
    let read = |tensor: &EnclosedTensor, odometer: &Odometer, into: &mut [ElementRange]| {
        tensor.read(odometer, 0..into.len(), into);
    };
    let is_exact = given[0].ends.is_none() && given[1].ends.is_none();
    EnclosedTensor::compute(D::F64, result, product.elements_of_task(), |first, elements| {
        let row = first / product.n;
        if is_exact {
            // Without intervals, sizes are what they are at most.
            let factors = [0, 1].map(|port| {
                move |odometer: &Odometer, into: &mut [[f64; 2]]| {
                    let mut ranges = vec![ElementRange::exactly(0.0); into.len()];
                    read(given[port], odometer, &mut ranges);
                    into.iter_mut().zip(ranges).for_each(|(into, range)| {
                        let [x, size, _] = factors(range);
                        *into = [x, size];
                    });
                }
            });
            product.rows(row, elements, &factors, |at, [sum, size]| element(at, [sum, size, size]));
        } else {
            let factors = [0, 1].map(|port| {
                move |odometer: &Odometer, into: &mut [[f64; 3]]| {
                    let mut ranges = vec![ElementRange::exactly(0.0); into.len()];
                    read(given[port], odometer, &mut ranges);
                    into.iter_mut().zip(ranges).for_each(|(into, range)| *into = factors(range));
                }
            });
            product.rows(row, elements, &factors, element);
        }
    })
}

/// A factor of a sum: the number, its size, and the size that it has at most. [`Special`] sums up those
/// that are not finite.
fn factors(x: ElementRange) -> [f64; 3] {
    match x.is_finite() {
        true => {
            let size = x.centre.abs();
            [x.centre, size, size + (x.high - x.centre).max(x.centre - x.low)]
        }
        false => [0.0; 3],
    }
}

/// The sums of the terms with NaN and infinities, for each element of a product.
struct Special {
    sums: Vec<f64>,
    is_anything: Vec<bool>,
}

impl Special {
    /// `None` if all numbers are finite.
    fn of(
        product: &MatrixSums,
        given: &[&EnclosedTensor],
        result: &[i64],
        skips: bool,
    ) -> Result<Option<Self>> {
        if given.iter().all(|tensor| tensor.all(ElementRange::is_finite)) {
            return Ok(None);
        }
        let &MatrixSums { m, n, k, .. } = product;
        let mut special = Self { sums: zeroed(count(result))?, is_anything: zeroed(count(result))? };
        for place in 0..count(result).checked_div(m * n).unwrap_or(0) {
            let lines = product.lines(place);
            let mut rows = vec![ElementRange::exactly(0.0); m * k];
            given[0].read(&lines[0], 0..m * k, &mut rows);
            let mut columns = vec![ElementRange::exactly(0.0); n * k];
            given[1].read(&lines[1], 0..n * k, &mut columns);
            for i in 0..m {
                for j in (0..k).filter(|j| !rows[i * k + j].is_finite()) {
                    for c in 0..n {
                        let term = SpecialTerm::of(rows[i * k + j], columns[c * k + j], skips);
                        special.add(place * m * n + i * n + c, term);
                    }
                }
            }
            for c in 0..n {
                for j in (0..k).filter(|j| !columns[c * k + j].is_finite()) {
                    for i in 0..m {
                        let term = SpecialTerm::of(rows[i * k + j], columns[c * k + j], skips);
                        special.add(place * m * n + i * n + c, term);
                    }
                }
            }
        }
        if let Some(bias) = given.get(2) {
            let dims = bias.centre.dims();
            let odometer = Odometer::broadcast(dims, result, result.len() - dims.len());
            let mut addends = vec![ElementRange::exactly(0.0); count(result)];
            bias.read(&odometer, 0..count(result), &mut addends);
            for (at, addend) in addends.into_iter().enumerate() {
                match addend {
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

/// The term that a product of two numbers adds to a sum if one of them is not finite.
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
            // A NaN arrives unless the other factor is 0, which is open if its interval holds 0.
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
