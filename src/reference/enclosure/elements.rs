//! The intervals of ops that compute or move each element on its own.

use super::range::{ElementRange, EnclosedTensor, by_weight, held_as, is_wide, numbers};
use crate::error::Result;
use crate::graph::function::Function;
use crate::graph::infer::Placement;
use crate::graph::op::Op;
use crate::reference::number::{HALF_A_UNIT, floats};
use crate::reference::odometer::Odometer;
use crate::reference::pointwise;
use crate::reference::value::{Value, count, zeroed};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Sign, Unary};
use crate::types::shape::Dims;

use DataType as D;

/// What a function of values gives at the centres, then at all combinations of the ends of its inputs.
pub(super) fn corners(
    given: &[&EnclosedTensor],
    run: impl Fn(&[Value]) -> Result<Value>,
) -> Result<Vec<Value>> {
    let uncertain: Vec<usize> = (0..given.len()).filter(|&port| given[port].ends.is_some()).collect();
    let mut values: Vec<Value> = given.iter().map(|interval| interval.centre.clone()).collect();
    let mut results = vec![run(&values)?];
    for corner in 0..(1usize << uncertain.len()) * usize::from(!uncertain.is_empty()) {
        for (bit, &port) in uncertain.iter().enumerate() {
            if let Some(ends) = &given[port].ends {
                values[port] = ends[corner >> bit & 1].clone();
            }
        }
        results.push(run(&values)?);
    }
    Ok(results)
}

/// The intervals around results at the centre and at the corners, rounded to a type.
pub(super) fn hull(results: Vec<Value>, to: DataType, relative: f64) -> Result<EnclosedTensor> {
    let (dims, held) = (Dims::from(results[0].dims()), results[0].data_type());
    if results.len() == 1 && !is_wide(to) {
        let centre = results.into_iter().next();
        return centre.map(EnclosedTensor::exact).ok_or_else(|| unreachable!("there is one"));
    }
    let all: Vec<Vec<f64>> = results.iter().map(numbers).collect();
    let elements = (0..all[0].len()).map(|at| {
        let corners = all[1..].iter().map(|numbers| numbers[at]);
        ElementRange::hull(all[0][at], corners).rounded(if is_wide(to) { to } else { D::F64 }, relative)
    });
    EnclosedTensor::of(elements.collect(), held, &dims)
}

/// Each element of the result is a function of one element of each input.
pub(super) fn on_elements(
    op: &Op,
    function: Function,
    given: &[&EnclosedTensor],
    placement: &Placement,
) -> Result<EnclosedTensor> {
    let to = op.outputs()[0].data_type();
    let held = held_as(to);
    let run = |function: Function, values: &[Value]| -> Result<Value> {
        Ok(pointwise::pointwise(function, held, values, placement)?.remove(0))
    };
    let is_move = matches!(function, Function::Select | Function::Identity | Function::Sign(_));
    let results = match (function, given) {
        (Function::Compare(comparison @ (Comparison::Equal | Comparison::NotEqual)), [a, b])
            if a.ends.is_some() || b.ends.is_some() =>
        {
            return equal(comparison, [a, b], placement);
        }
        _ => corners(given, |values| run(function, values))?,
    };
    let relative = match function.ulps() {
        _ if is_move => 0.0,
        0 => 0.0,
        ulps => f64::from(ulps) * 2.0 * HALF_A_UNIT,
    };
    let mut result = hull(results, if is_move { D::F64 } else { to }, relative)?;
    if has_turning_points(function) && result.ends.is_some() {
        let widened = result.elements().into_iter().map(ElementRange::widened).collect();
        result = EnclosedTensor::of(widened, held, &placement.result)?;
    }
    match function {
        // A comparison with a NaN is false, so the corners show nothing of what may be anything.
        Function::Compare(_) | Function::Classify(_) => unsure_of_anything(result, given, placement),
        _ => Ok(result),
    }
}

/// Whether a function has turning points, so that it may leave the range between its values at the ends.
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
        Function::Binary(function, _) => function == Binary::SquaredDifference,
        _ => false,
    }
}

/// Whether numbers are equal: surely not if their intervals are apart, surely so if both are one number.
fn equal(
    comparison: Comparison,
    given: [&EnclosedTensor; 2],
    placement: &Placement,
) -> Result<EnclosedTensor> {
    let [a, b] = given;
    let run = |comparison: Comparison, x: &Value, y: &Value| -> Result<Vec<f64>> {
        let values = [x.clone(), y.clone()];
        let result = pointwise::pointwise(Function::Compare(comparison), D::Boolean, &values, placement)?;
        Ok(numbers(&result[0]))
    };
    let ends = |interval: &EnclosedTensor| match &interval.ends {
        Some([low, high]) => (low.clone(), high.clone()),
        None => (interval.centre.clone(), interval.centre.clone()),
    };
    let ((a_low, a_high), (b_low, b_high)) = (ends(a), ends(b));
    let centre = run(Comparison::Equal, &a.centre, &b.centre)?;
    let (below, above) =
        (run(Comparison::LessEqual, &a_low, &b_high)?, run(Comparison::GreaterEqual, &a_high, &b_low)?);
    let (first, second) =
        (run(Comparison::Equal, &a_low, &b_high)?, run(Comparison::Equal, &a_high, &b_low)?);
    let elements = (0..centre.len()).map(|at| {
        let (surely, perhaps) = (first[at] * second[at], below[at] * above[at]);
        let element =
            ElementRange { centre: centre[at], low: surely.min(centre[at]), high: perhaps.max(centre[at]) };
        match comparison {
            Comparison::Equal => element,
            _ => ElementRange {
                centre: 1.0 - element.centre,
                low: 1.0 - element.high,
                high: 1.0 - element.low,
            },
        }
    });
    let result = EnclosedTensor::of(elements.collect(), D::Boolean, &placement.result)?;
    unsure_of_anything(result, &given, placement)
}

/// A boolean that follows from numbers, true or false where one of them may be anything.
fn unsure_of_anything(
    result: EnclosedTensor,
    given: &[&EnclosedTensor],
    placement: &Placement,
) -> Result<EnclosedTensor> {
    let is_nan = |value: &Value| {
        let whole = Placement { result: value.dims().into(), starts: [0].into_iter().collect() };
        pointwise::pointwise(Function::Classify(Class::Nan), D::Boolean, std::slice::from_ref(value), &whole)
    };
    let mut unsure = vec![false; count(&placement.result)];
    for (port, interval) in given.iter().enumerate() {
        let Some([low, _]) = &interval.ends else { continue };
        if low.data_type() != D::F64 {
            continue;
        }
        let (of_low, of_centre) = (is_nan(low)?.remove(0), is_nan(&interval.centre)?.remove(0));
        let odometer = Odometer::broadcast(low.dims(), &placement.result, placement.starts[port]);
        let mut flags = [vec![0.0; unsure.len()], vec![0.0; unsure.len()]];
        floats(&of_low, &odometer, 0..unsure.len(), &mut flags[0]);
        floats(&of_centre, &odometer, 0..unsure.len(), &mut flags[1]);
        let pairs = flags[0].iter().zip(&flags[1]);
        unsure.iter_mut().zip(pairs).for_each(|(unsure, (low, centre))| *unsure |= low > centre);
    }
    if !unsure.contains(&true) {
        return Ok(result);
    }
    let mut elements = result.elements();
    for (element, unsure) in elements.iter_mut().zip(unsure) {
        if unsure {
            (element.low, element.high) = (0.0, 1.0);
        }
    }
    EnclosedTensor::of(elements, D::Boolean, &placement.result)
}

/// A score to which −∞ is added is −∞, whatever it was.
pub(super) fn masked(
    result: EnclosedTensor,
    mask: &EnclosedTensor,
    placement: &Placement,
    port: usize,
) -> Result<EnclosedTensor> {
    let odometer = Odometer::broadcast(mask.centre.dims(), &placement.result, placement.starts[port]);
    let (low, high) = mask.ends.as_ref().map_or((&mask.centre, &mask.centre), |[low, high]| (low, high));
    let mut ends = [vec![0.0; count(&placement.result)], vec![0.0; count(&placement.result)]];
    for (numbers, value) in ends.iter_mut().zip([low, high]) {
        let all = 0..numbers.len();
        floats(value, &odometer, all, numbers);
    }
    let mut elements = result.elements();
    for (at, element) in elements.iter_mut().enumerate() {
        if ends[0][at] == f64::NEG_INFINITY && ends[1][at] == f64::NEG_INFINITY {
            *element = ElementRange::exactly(f64::NEG_INFINITY);
        }
    }
    EnclosedTensor::of(elements, D::F64, &placement.result)
}

/// What is multiplied by a weight of 0 is 0, whatever it was.
pub(super) fn without_masked(
    result: EnclosedTensor,
    weights: &EnclosedTensor,
    placement: &Placement,
    port: usize,
) -> Result<EnclosedTensor> {
    let dims = weights.centre.dims();
    let odometer = Odometer::broadcast(dims, &placement.result, placement.starts[port]);
    let mut places: Vec<usize> = zeroed(count(&placement.result))?;
    odometer.read(0..count(&placement.result), &mut places, |at| at);
    let of_weights = weights.elements();
    let mut elements = result.elements();
    for (element, place) in elements.iter_mut().zip(places) {
        *element = by_weight(of_weights[place], *element);
    }
    EnclosedTensor::of(elements, D::F64, &placement.result)
}
