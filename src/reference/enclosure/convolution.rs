//! The intervals of convolutions and of the gradients of their data.

use super::range::{ANYTHING, ElementRange, EnclosedTensor, sum_may_overflow};
use crate::error::Result;
use crate::graph::op::Op;
use crate::reference::convolution;
use crate::reference::number::{HALF_A_UNIT, store_floats};
use crate::reference::odometer::{CHUNK, Odometer};
use crate::reference::value::{Value, count, zeroed};
use crate::types::dtype::DataType;

use DataType as D;

/// The sums of a convolution, or of a gradient that is one. A sum of which a term is not finite may be
/// anything.
pub(super) fn convolved(op: &Op, given: &[&EnclosedTensor], result: &[i64]) -> Result<EnclosedTensor> {
    let of = |part: fn(&ElementRange) -> f64| -> Result<Vec<Value>> {
        given.iter().map(|tensor| numbers_of(tensor, part)).collect()
    };
    let sums = |inputs: &[Value], of: fn(f64) -> f64| convolution::unrounded(op, inputs, result, of);
    let centres = of(|x| finite(x, x.centre))?;
    let (centres, (sizes, terms)) = (sums(&centres, |x| x)?.0, sums(&centres, f64::abs)?);
    // Without intervals, sizes are what they are at most.
    let most = match given.iter().all(|tensor| tensor.ends.is_none()) {
        true => None,
        false => Some(sums(&of(|x| finite(x, x.low.abs().max(x.high.abs()).max(x.centre.abs())))?, |x| x)?.0),
    };
    let open = match given.iter().all(|tensor| tensor.all(ElementRange::is_finite)) {
        true => None,
        false => Some(reached(op, given, result)?),
    };
    let (terms, to) = (terms * HALF_A_UNIT, op.outputs()[0].data_type());
    EnclosedTensor::compute(D::F64, result, CHUNK, |first, elements| {
        for (at, element) in (first..).zip(elements) {
            let (sum, size) = (centres[at], sizes[at]);
            let most = most.as_ref().map_or(size, |most| most[at]);
            // The terms that are at most positive and at most negative, as intervals let them be.
            let [positive, negative] = [sum, -sum].map(|sum| (size + sum) / 2.0 + (most - size).max(0.0));
            let is_open = open.as_ref().is_some_and(|open| open[at] != 0.0);
            *element = match () {
                () if is_open || sum_may_overflow(sum, positive, negative) => ANYTHING,
                () if most == 0.0 => ElementRange::exactly(sum),
                () => {
                    // Products of subnormal numbers may be taken for 0.
                    let room = (most - size).max(0.0) + (terms + 1e-14) * most + 1e-36;
                    ElementRange { centre: sum, low: sum - room, high: sum + room }.rounded(to, 0.0)
                }
            };
        }
    })
}

/// A part of an element, or 0 if the element is not finite.
fn finite(element: &ElementRange, part: f64) -> f64 {
    if element.is_finite() { part } else { 0.0 }
}

/// For each sum, how many of its terms are not finite.
fn reached(op: &Op, given: &[&EnclosedTensor], result: &[i64]) -> Result<Vec<f64>> {
    let mut all = zeroed(count(result))?;
    for marked in 0..given.len() {
        let marks = given.iter().enumerate().map(|(port, tensor)| match port {
            _ if port == marked => numbers_of(tensor, |x| f64::from(u8::from(!x.is_finite()))),
            // A bias is no factor of the others.
            2 => numbers_of(tensor, |_| 0.0),
            _ if marked == 2 => numbers_of(tensor, |_| 0.0),
            _ => numbers_of(tensor, |_| 1.0),
        });
        let marks = marks.collect::<Result<Vec<Value>>>()?;
        let (sums, _) = convolution::unrounded(op, &marks, result, |x| x)?;
        all.iter_mut().zip(sums).for_each(|(all, sum): (&mut f64, f64)| *all += sum);
    }
    Ok(all)
}

/// A number for each element of a tensor.
fn numbers_of(tensor: &EnclosedTensor, of: fn(&ElementRange) -> f64) -> Result<Value> {
    let dims = tensor.centre.dims();
    let dense = Odometer::dense(dims);
    Value::compute(D::F64, dims, |range, bytes| {
        let mut elements = vec![ElementRange::exactly(0.0); range.len()];
        tensor.read(&dense, range, &mut elements);
        let numbers: Vec<f64> = elements.iter().map(of).collect();
        store_floats(&numbers, D::F64, bytes);
    })
}
