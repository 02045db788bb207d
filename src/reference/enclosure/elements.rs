//! The intervals of ops that compute or move each element on its own.

use std::ops::Range;

use super::range::{ElementRange, EnclosedTensor, by_weight, held_as, is_wide};
use crate::error::Result;
use crate::graph::function::Function;
use crate::graph::infer::Placement;
use crate::graph::op::Op;
use crate::reference::number::{HALF_A_UNIT, floats, floats_of};
use crate::reference::odometer::{CHUNK, Odometer};
use crate::reference::pointwise;
use crate::reference::value::Value;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Comparison, Sign, Unary};
use crate::types::shape::Dims;

use DataType as D;

/// The combinations of the ends of inputs, behind the centres.
fn corners<'a>(given: &[&'a EnclosedTensor]) -> Vec<Vec<&'a Value>> {
    let uncertain: Vec<usize> = (0..given.len()).filter(|&port| given[port].ends.is_some()).collect();
    let mut corners = vec![given.iter().map(|tensor| &tensor.centre).collect::<Vec<&Value>>()];
    for corner in 0..(1usize << uncertain.len()) * usize::from(!uncertain.is_empty()) {
        let mut values = corners[0].clone();
        for (bit, &port) in uncertain.iter().enumerate() {
            if let Some(ends) = &given[port].ends {
                values[port] = &ends[corner >> bit & 1];
            }
        }
        corners.push(values);
    }
    corners
}

/// The intervals around what a function of values gives at the centres and at all corners, rounded to a type.
pub(super) fn hull(
    given: &[&EnclosedTensor],
    to: DataType,
    relative: f64,
    run: impl Fn(&[Value]) -> Result<Value>,
) -> Result<EnclosedTensor> {
    let corners = corners(given);
    let run = |values: &Vec<&Value>| run(&values.iter().copied().cloned().collect::<Vec<Value>>());
    let results = corners.iter().map(run).collect::<Result<Vec<Value>>>()?;
    let (dims, held) = (Dims::from(results[0].dims()), results[0].data_type());
    if let ([result], false) = (&results[..], is_wide(to)) {
        return Ok(EnclosedTensor::exact(result.clone()));
    }
    let (dense, to) = (Odometer::dense(&dims), if is_wide(to) { to } else { D::F64 });
    EnclosedTensor::compute(held, &dims, CHUNK, |first, elements| {
        let mut numbers = vec![vec![0.0; elements.len()]; results.len()];
        for (numbers, result) in numbers.iter_mut().zip(&results) {
            floats(result, &dense, first..first + elements.len(), numbers);
        }
        enclose(&numbers, elements);
        elements.iter_mut().for_each(|element| *element = element.rounded(to, relative));
    })
}

/// The intervals around the first numbers and all others.
fn enclose(numbers: &[Vec<f64>], elements: &mut [ElementRange]) {
    for (at, element) in elements.iter_mut().enumerate() {
        let corners = numbers[1..].iter().map(|numbers| numbers[at]);
        *element = ElementRange::hull(numbers[0][at], corners);
    }
}

/// The inputs of a function that decide its result alone, by their ports.
pub(super) struct Masking {
    /// The input whose −∞ makes the result −∞, whatever it was.
    pub(super) mask: Option<usize>,
    /// The inputs whose 0 makes the result 0, whatever it was.
    pub(super) weights: Vec<usize>,
}

/// Each element of the result is a function of one element of each input.
pub(super) fn on_elements(
    op: &Op,
    function: Function,
    given: &[&EnclosedTensor],
    placement: &Placement,
    masking: &Masking,
) -> Result<EnclosedTensor> {
    let to = op.outputs()[0].data_type();
    let held = held_as(to);
    let corners = corners(given);
    let is_move = matches!(function, Function::Select | Function::Identity | Function::Sign(_));
    if let ([values], true) = (&corners[..], is_move || !is_wide(to)) {
        let values: Vec<Value> = values.iter().copied().cloned().collect();
        let result = pointwise::pointwise(function, held, &values, placement)?;
        return Ok(result.into_iter().map(EnclosedTensor::exact).collect::<Vec<_>>().remove(0));
    }
    let of = |values| pointwise::ElementFunction::of(function, held, values, placement);
    let corners: Vec<pointwise::ElementFunction<'_>> = corners.into_iter().map(of).collect();
    let place = |(tensor, &start): (&&EnclosedTensor, &usize)| {
        Odometer::broadcast(tensor.centre.dims(), &placement.result, start)
    };
    let odometers: Vec<Odometer> = given.iter().zip(&placement.starts).map(place).collect();
    let read = |port: usize, range: &Range<usize>| {
        let mut elements = vec![ElementRange::exactly(0.0); range.len()];
        given[port].read(&odometers[port], range.clone(), &mut elements);
        elements
    };
    let relative = if is_move { 0.0 } else { f64::from(function.ulps()) * 2.0 * HALF_A_UNIT };
    let rounded_to = if is_move || !is_wide(to) { D::F64 } else { to };
    let may_turn = has_turning_points(function);
    let is_truth = matches!(function, Function::Compare(_) | Function::Classify(_));
    EnclosedTensor::compute(held, &placement.result, CHUNK, |first, elements| {
        let range = first..first + elements.len();
        match function {
            Function::Compare(comparison @ (Comparison::Equal | Comparison::NotEqual)) => {
                let pairs = read(0, &range).into_iter().zip(read(1, &range));
                elements.iter_mut().zip(pairs).for_each(|(to, (a, b))| *to = equal(comparison, a, b));
            }
            _ => {
                let numbers: Vec<Vec<f64>> =
                    corners.iter().map(|corner| numbers_of(corner, held, &range)).collect();
                enclose(&numbers, elements);
            }
        }
        for element in &mut *elements {
            *element = element.rounded(rounded_to, relative);
            if may_turn {
                *element = element.widened();
            }
        }
        // A comparison with a NaN is false, so the corners show nothing of what may be anything.
        for port in (0..given.len()).filter(|&port| is_truth && given[port].ends.is_some()) {
            for (element, given) in elements.iter_mut().zip(read(port, &range)) {
                if given.is_anything() {
                    (element.low, element.high) = (0.0, 1.0);
                }
            }
        }
        for &port in &masking.weights {
            let weights = read(port, &range);
            elements.iter_mut().zip(weights).for_each(|(x, weight)| *x = by_weight(weight, *x));
        }
        if let Some(port) = masking.mask {
            for (element, mask) in elements.iter_mut().zip(read(port, &range)) {
                if mask.low == f64::NEG_INFINITY && mask.high == f64::NEG_INFINITY {
                    *element = ElementRange::exactly(f64::NEG_INFINITY);
                }
            }
        }
    })
}

/// A range of the elements of a result as numbers.
fn numbers_of(result: &pointwise::ElementFunction<'_>, held: DataType, range: &Range<usize>) -> Vec<f64> {
    let mut bytes = vec![0; range.len() * held.size().unwrap_or(1)];
    result.write(range, &mut bytes);
    let mut numbers = vec![0.0; range.len()];
    floats_of(&bytes, held, &Odometer::new([(range.len(), 1)]), 0..range.len(), &mut numbers);
    numbers
}

/// True if a function has turning points, so that it may leave the range between its values at the ends.
fn has_turning_points(function: Function) -> bool {
    match function {
        Function::Sign(sign) => sign == Sign::Clear,
        Function::Unary(function, _) => matches!(
            function,
            Unary::Cos
                | Unary::GeluErf
                | Unary::GeluTanh
                | Unary::HardSwish
                | Unary::Mish
                | Unary::Pow
                | Unary::Sin
                | Unary::Square
        ),
        Function::Binary(function, _) => matches!(function, Binary::Power | Binary::SquaredDifference),
        _ => false,
    }
}

/// The truth value of equality: false if the intervals are apart, true if both are one number, else both.
fn equal(comparison: Comparison, a: ElementRange, b: ElementRange) -> ElementRange {
    let of = |truth: bool| f64::from(u8::from(truth));
    let surely = of(a.low == b.high && a.high == b.low);
    let perhaps = of(a.low <= b.high && a.high >= b.low);
    let centre = of(a.centre == b.centre);
    let (low, high) = (surely.min(centre), perhaps.max(centre));
    match comparison {
        Comparison::Equal => ElementRange { centre, low, high },
        _ => ElementRange { centre: 1.0 - centre, low: 1.0 - high, high: 1.0 - low },
    }
}
