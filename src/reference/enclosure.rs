//! What ops may give that run as one and keep bounds instead of bits: an interval for each element.
//!
//! The centre of an interval is the result in f64, from inputs as they are, without a rounding on the way.
//! Around it lies what the roundings that the types of the ops ask for, the order of additions and the
//! accuracy of functions may make of it, carried along from op to op: a result outside of its interval is
//! wrong. Here a masked key does not exist.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::number::{HALF_A_UNIT, dense_value, floats, numbers_of, store_floats};
use super::odometer::Odometer;
use super::products::{self, Matrices};
use super::rows::rows_along_axis;
use super::value::{Value, count, zeroed};
use super::{Semantics, UNKNOWN_KIND, check_count, gen_index, pointwise, semantics, unimplemented, verified};
use crate::error::{Direction, Error, ExecuteFault, Result, TensorFault};
use crate::graph::function::Function;
use crate::graph::infer::{self, Placement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::masking::additive_masks;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Class, Comparison, Sign, Unary};
use crate::types::kind::{Attr, OpKind, TensorId};
use crate::types::shape::Dims;

use DataType as D;
use OpKind as K;

/// The exponent from which on e to its power is 0 in f32: 2⁻¹⁵⁰ is half of the smallest number.
const EXP_IS_ZERO: f64 = -104.0;

/// The exponent below which e to its power is subnormal in f32, and may be taken for 0.
const EXP_IS_SUBNORMAL: f64 = -87.0;

/// An interval for each element of a tensor, in which the result of ops lies that run as one.
///
/// [`enclose`] gives them.
#[derive(Debug, Clone)]
pub struct Enclosure {
    value: Value,
    centre: Vec<f64>,
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Enclosure {
    fn new(data_type: DataType, interval: EnclosedTensor) -> Result<Self> {
        let (dims, centre) = (Dims::from(interval.centre.dims()), interval.centre());
        let (low, high) = (interval.low(), interval.high());
        let value =
            if is_wide(data_type) { dense_value(&centre, data_type, &dims)? } else { interval.centre };
        Ok(Self { value, centre, low, high })
    }

    /// The result in f64, rounded once at the end.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The result in f64. An element on which the ops say nothing is 1.
    pub fn numbers(&self) -> &[f64] {
        &self.centre
    }

    /// The interval of an element; NaN to NaN if the element is NaN, or if the ops say nothing on it.
    pub fn ends(&self, element: usize) -> (f64, f64) {
        (self.low[element], self.high[element])
    }

    /// Whether the ops say anything on an element. They do not if a sum may or may not overflow, if a
    /// condition hangs on the last bit of a number, or if an infinity meets what may or may not be 0.
    pub fn is_judged(&self, element: usize) -> bool {
        self.centre[element].is_nan() || !self.low[element].is_nan()
    }

    /// The first element of a value of the same type and shape that lies outside of its interval by more than
    /// one unit in the last place; 0 if type or shape differ.
    ///
    /// A NaN lies in an interval only if the element has to be NaN, or if the ops say nothing on it.
    pub fn first_outside(&self, given: &Value) -> Option<usize> {
        if (given.data_type(), given.dims()) != (self.value.data_type(), self.value.dims()) {
            return Some(0);
        }
        let mut numbers = vec![0.0; self.centre.len()];
        floats(given, &Odometer::dense(given.dims()), 0..self.centre.len(), &mut numbers);
        let (unit, smallest) = match given.data_type() {
            D::F32 => (2.0 * HALF_A_UNIT, 2f64.powi(-126)),
            D::Bf16 => (2f64.powi(-7), 2f64.powi(-126)),
            D::F16 => (2f64.powi(-10), 2f64.powi(-24)),
            _ => (0.0, 0.0),
        };
        let room = |end: f64| if end.is_finite() && end != 0.0 { unit * end.abs() + smallest } else { 0.0 };
        numbers.iter().enumerate().position(|(at, &x)| {
            let (low, high) = self.ends(at);
            match self.centre[at].is_nan() {
                true => !x.is_nan(),
                false if low.is_nan() => false,
                // A NaN is no such number.
                false => !(low - room(low)..=high + room(high)).contains(&x),
            }
        })
    }
}

/// Runs ops as one in the order given, and gives an interval for each element of the tensors named.
///
/// This is the reference of partitions whose accuracy is [`Bounded`](crate::Accuracy::Bounded): the product
/// of queries and keys, a chain of pointwise ops, SoftMax and the product with the values, with what moves or
/// converts elements around them; or the gradients of all this, with SoftMaxBackward and ReduceSum. Such
/// partitions depart from their ops run one by one: **a masked key does
/// not exist**. A key is masked for a query if SoftMax gives it 0, where numbers whose exponential is 0 in
/// f32 count as 0; the key then adds nothing to the product with the values, even if its value is NaN or ∞,
/// and the pair of query and key nothing to any gradient. In gradients, an Exp may stand for the SoftMax.
/// And a −∞ that does not depend on the product of queries and keys, added to a score, makes it −∞, even a
/// score that is NaN or ∞.
///
/// ```
/// use std::collections::BTreeMap;
/// use sterna::reference::{self, Value};
/// use sterna::{Attr, DataType, LogicalTensor, Op, OpKind};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let op = |id, kind, inputs: [usize; 2], output| {
///     Op::new(id, kind).inputs_from(inputs.map(tensor)).output(tensor(output))
/// };
/// let ops = [
///     op(0, OpKind::MatMul, [0, 1], 2).attr(Attr::TransposeB, true),
///     op(1, OpKind::Add, [2, 3], 4),
///     Op::new(2, OpKind::SoftMax).input(tensor(4)).output(tensor(5)),
///     op(3, OpKind::MatMul, [5, 6], 7),
/// ];
/// // Of two keys the second is masked; key and value are NaN.
/// let inputs = BTreeMap::from([
///     (0, Value::from_slice(&[1, 1], &[1.0f32])?),
///     (1, Value::from_slice(&[2, 1], &[0.5f32, f32::NAN])?),
///     (3, Value::from_slice(&[1, 2], &[0.0f32, f32::NEG_INFINITY])?),
///     (6, Value::from_slice(&[2, 1], &[3.0f32, f32::NAN])?),
/// ]);
/// let result = &reference::enclose(&ops, &inputs, &[7])?[&7];
/// assert_eq!(result.value().elements::<f32>().unwrap(), [3.0]);
/// assert_eq!(result.first_outside(&Value::from_slice(&[1, 1], &[3.1f32])?), Some(0));
/// # Ok::<(), sterna::Error>(())
/// ```
///
/// # Errors
///
/// As [`run`](super::run); [`Error::Unimplemented`] for an op of a kind that moves, converts or multiplies
/// nothing, computes no element on its own and is no SoftMax; [`Error::Execute`] if a tensor is neither among
/// the inputs nor given by an op before the one that needs it.
pub fn enclose(
    ops: &[Op],
    inputs: &BTreeMap<TensorId, Value>,
    wanted: &[TensorId],
) -> Result<BTreeMap<TensorId, Enclosure>> {
    let ops = ops.iter().map(verified).collect::<Result<Vec<Op>>>()?;
    let roles = MaskRoles::of(&ops);
    let mut held: BTreeMap<TensorId, EnclosedTensor> = BTreeMap::new();
    for (place, op) in ops.iter().enumerate() {
        for port in op.inputs() {
            let Entry::Vacant(place) = held.entry(port.id()) else { continue };
            let value = inputs.get(&port.id()).ok_or_else(|| missing(Direction::Input, port.id()))?;
            let (expected, given) = (port.data_type(), value.data_type());
            if given != expected {
                let fault = TensorFault::ElementType { expected, given };
                return Err(Error::Tensor { id: port.id(), fault });
            }
            place.insert(EnclosedTensor::exact(widened(value)?));
        }
        let given: Vec<&EnclosedTensor> = op.inputs().iter().map(|port| &held[&port.id()]).collect();
        let results = roles.run(place, op, &given)?;
        held.extend(op.outputs().iter().map(LogicalTensor::id).zip(results));
        let is_needed = |id: &TensorId| {
            let mut later = ops[place + 1..].iter().flat_map(Op::inputs);
            wanted.contains(id) || later.any(|port| port.id() == *id)
        };
        held.retain(|id, _| is_needed(id));
    }
    let outputs = ops.iter().flat_map(Op::outputs);
    let types: BTreeMap<TensorId, DataType> = outputs.map(|port| (port.id(), port.data_type())).collect();
    let enclosure = |id: &TensorId| match (types.get(id), held.remove(id)) {
        (Some(&data_type), Some(interval)) => Ok((*id, Enclosure::new(data_type, interval)?)),
        _ => Err(missing(Direction::Output, *id)),
    };
    wanted.iter().map(enclosure).collect()
}

fn missing(direction: Direction, tensor: TensorId) -> Error {
    Error::Execute(ExecuteFault::Missing { direction, tensor })
}

/// Whether a type is computed in f64 here, without its roundings.
fn is_wide(data_type: DataType) -> bool {
    matches!(data_type, D::F32 | D::Bf16 | D::F16)
}

/// The type in which a tensor is held here.
fn held_as(data_type: DataType) -> DataType {
    if is_wide(data_type) { D::F64 } else { data_type }
}

/// A value in the type in which it is held here.
fn widened(value: &Value) -> Result<Value> {
    match is_wide(value.data_type()) {
        true => dense_value(&numbers_of(value, &Odometer::dense(value.dims()))?, D::F64, value.dims()),
        false => Ok(value.clone()),
    }
}

/// A tensor whose elements are known up to an interval.
///
/// An element is NaN for sure if its centre is NaN. If its centre is none but its ends are NaN, it may be
/// anything; its centre is then 1, from which no function makes a NaN.
struct EnclosedTensor {
    centre: Value,
    /// The lower and the upper ends; none if they are the centre.
    ends: Option<[Value; 2]>,
}

impl EnclosedTensor {
    fn exact(centre: Value) -> Self {
        Self { centre, ends: None }
    }

    fn centre(&self) -> Vec<f64> {
        numbers(&self.centre)
    }

    fn low(&self) -> Vec<f64> {
        numbers(self.ends.as_ref().map_or(&self.centre, |ends| &ends[0]))
    }

    fn high(&self) -> Vec<f64> {
        numbers(self.ends.as_ref().map_or(&self.centre, |ends| &ends[1]))
    }

    /// The interval of numbers that are held as a type.
    fn of(elements: Vec<ElementRange>, data_type: DataType, dims: &[i64]) -> Result<Self> {
        let make = |of: fn(&ElementRange) -> f64| {
            let numbers: Vec<f64> = elements.iter().map(of).collect();
            Value::compute(data_type, dims, |range, bytes| store_floats(&numbers[range], data_type, bytes))
        };
        let centre = make(|element| element.centre)?;
        let is_exact = elements.iter().all(ElementRange::is_exact);
        let ends =
            if is_exact { None } else { Some([make(|element| element.low)?, make(|element| element.high)?]) };
        Ok(Self { centre, ends })
    }

    /// The elements.
    fn elements(&self) -> Vec<ElementRange> {
        let ends = self.low().into_iter().zip(self.high());
        self.centre()
            .into_iter()
            .zip(ends)
            .map(|(centre, (low, high))| ElementRange { centre, low, high })
            .collect()
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    let mut numbers = vec![0.0; count(value.dims())];
    floats(value, &Odometer::dense(value.dims()), 0..numbers.len(), &mut numbers);
    numbers
}

/// A number known up to an interval.
#[derive(Debug, Clone, Copy)]
struct ElementRange {
    centre: f64,
    low: f64,
    high: f64,
}

/// What may be anything.
const ANYTHING: ElementRange = ElementRange { centre: 1.0, low: f64::NAN, high: f64::NAN };

impl ElementRange {
    fn exactly(number: f64) -> Self {
        Self { centre: number, low: number, high: number }
    }

    /// Whether the interval is one number, which may be NaN.
    fn is_exact(&self) -> bool {
        self.centre.is_nan() || (self.low == self.centre && self.high == self.centre)
    }

    fn is_anything(&self) -> bool {
        !self.centre.is_nan() && self.low.is_nan()
    }

    fn is_finite(&self) -> bool {
        self.centre.is_finite() && self.low.is_finite() && self.high.is_finite()
    }

    /// The smallest interval around what a function gives at the centres and at all corners.
    fn hull(centre: f64, corners: impl Iterator<Item = f64> + Clone) -> Self {
        match centre.is_nan() {
            true if corners.clone().all(f64::is_nan) => Self::exactly(f64::NAN),
            true => ANYTHING,
            false if corners.clone().any(f64::is_nan) => ANYTHING,
            false => Self {
                centre,
                low: corners.clone().fold(centre, f64::min),
                high: corners.fold(centre, f64::max),
            },
        }
    }

    /// The interval with the centre in its middle.
    fn widened(self) -> Self {
        let room = (self.high - self.centre).max(self.centre - self.low);
        match self.is_finite() {
            true => Self { centre: self.centre, low: self.centre - room, high: self.centre + room },
            false => self,
        }
    }

    /// The interval after a rounding to a type, or none: a fused kernel may keep more digits than the type
    /// has. `relative` is what the function is off besides, as a share of its result.
    fn rounded(self, to: DataType, relative: f64) -> Self {
        let Rounding { half_unit, smallest, largest, .. } = Rounding::to(to);
        let is_kept = self.is_exact()
            && (relative == 0.0 || self.centre == 0.0 || !self.centre.is_finite())
            && represents(to, self.centre);
        if is_kept || self.is_anything() {
            return self;
        }
        let room = |end: f64| (half_unit + relative) * end.abs() + smallest;
        // No rounding changes the sign.
        let down = |end: f64| match end {
            _ if end == 0.0 || end.is_infinite() => end,
            _ if end > 0.0 => (end - room(end)).max(0.0),
            _ => end - room(end),
        };
        let (low, high) = (down(self.low), -down(-self.high));
        let threshold = largest * (1.0 + half_unit);
        let low = if low <= -threshold { f64::NEG_INFINITY } else { low.min(largest) };
        let high = if high >= threshold { f64::INFINITY } else { high.max(-largest) };
        Self { centre: self.centre, low, high }
    }
}

/// What a rounding to a type does.
struct Rounding {
    /// Half a unit in the last place of 1.
    half_unit: f64,
    /// The numbers below it may be taken for 0.
    smallest: f64,
    largest: f64,
}

impl Rounding {
    fn to(data_type: DataType) -> Self {
        let (half_unit, smallest, largest) = match data_type {
            D::F32 => (HALF_A_UNIT, 2f64.powi(-126), f32::MAX.into()),
            // Through f32.
            D::Bf16 => (2f64.powi(-8) + HALF_A_UNIT, 2f64.powi(-126), half::bf16::MAX.to_f64()),
            D::F16 => (2f64.powi(-11) + HALF_A_UNIT, 2f64.powi(-24), half::f16::MAX.to_f64()),
            _ => (0.0, 0.0, f64::INFINITY),
        };
        Self { half_unit, smallest, largest }
    }
}

/// Whether a number is one of a type, or NaN.
fn represents(data_type: DataType, number: f64) -> bool {
    let nearest = match data_type {
        D::F32 => f64::from(number as f32),
        D::Bf16 => half::bf16::from_f64(number).to_f64(),
        D::F16 => half::f16::from_f64(number).to_f64(),
        _ => number,
    };
    nearest == number || number.is_nan()
}

/// What tensors of a group of ops are to each other, as far as masked keys need it.
struct MaskRoles {
    /// For each op the input whose −∞ masks a score.
    masks: Vec<Option<usize>>,
    /// The tensors that follow by ops on elements from the weights: from a SoftMax, or, in gradients without
    /// one, from an Exp.
    shares: Vec<TensorId>,
    /// Whether some product sums up over the queries of the weights, or multiplies what the weights and
    /// another product give by the keys: then a weight of 0 makes all that is multiplied by it 0.
    is_backward: bool,
}

impl MaskRoles {
    fn of(ops: &[Op]) -> Self {
        let has_softmax = ops.iter().any(|op| op.kind() == K::SoftMax);
        let weights = if has_softmax { K::SoftMax } else { K::Exp };
        let mut shares: Vec<TensorId> = Vec::new();
        // What follows by ops on elements from products alone, and from both products and weights.
        let (mut made, mut slopes): (Vec<TensorId>, Vec<TensorId>) = Default::default();
        for op in ops {
            let is_pointwise =
                Function::of(op).is_some_and(|f| !matches!(f, Function::Index | Function::Fill(_)));
            let is_followed = is_pointwise || op.kind() == K::SoftMaxBackward;
            let follows = is_followed && op.inputs().iter().any(|port| shares.contains(&port.id()));
            let uses = |of: &[TensorId]| op.inputs().iter().any(|port| of.contains(&port.id()));
            let is_made = op.kind() == K::MatMul || is_followed && uses(&made);
            if follows && (is_made || uses(&slopes)) {
                slopes.push(op.outputs()[0].id());
            }
            match () {
                () if op.kind() == weights || follows => shares.push(op.outputs()[0].id()),
                () if is_made => made.push(op.outputs()[0].id()),
                () => {}
            }
        }
        // The tensor from which a right operand differs in its type or the order of its dims.
        let right = |op: &Op| {
            let mut tensor = op.inputs()[1].id();
            for op in ops.iter().rev() {
                let kept =
                    matches!(op.kind(), K::TypeCast | K::StaticTranspose | K::StaticReshape | K::Reorder);
                if kept && op.outputs()[0].id() == tensor {
                    tensor = op.inputs()[0].id();
                }
            }
            tensor
        };
        let products = || ops.iter().filter(|op| op.kind() == K::MatMul);
        let keys = || products().filter(|op| !shares.contains(&op.inputs()[0].id())).map(right);
        let has_slopes = products()
            .any(|op| slopes.contains(&op.inputs()[0].id()) && keys().any(|keys| keys == right(op)));
        let sums_queries = |op: &Op| {
            op.kind() == K::MatMul && op.bool_attr(Attr::TransposeA) && shares.contains(&op.inputs()[0].id())
        };
        let is_backward = has_slopes || ops.iter().any(sums_queries);
        if !has_softmax && !is_backward {
            shares.clear();
        }
        Self { masks: additive_masks(ops), shares, is_backward }
    }

    fn run(&self, place: usize, op: &Op, given: &[&EnclosedTensor]) -> Result<Vec<EnclosedTensor>> {
        check_count(op, given.len())?;
        let dims: Vec<&[i64]> = given.iter().map(|interval| interval.centre.dims()).collect();
        let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
        match semantics(op)? {
            Semantics::Tensors(_) if shapes.iter().all(|dims| count(dims) == 0) => {
                let outputs = op.outputs().iter().zip(&shapes);
                let empty = |(port, dims): (&LogicalTensor, &Dims)| {
                    Ok(EnclosedTensor::exact(Value::new(held_as(port.data_type()), dims, Vec::new())?))
                };
                outputs.map(empty).collect()
            }
            Semantics::Tensors(_) if op.kind() == K::MatMul => {
                let skips = self.shares.contains(&op.inputs()[0].id());
                Ok(vec![product(op, given, &shapes[0], skips)?])
            }
            Semantics::Tensors(_) if op.kind() == K::SoftMax => {
                softmax(op, given[0], &shapes, self.is_backward)
            }
            Semantics::Tensors(_) if op.kind() == K::SoftMaxBackward => {
                softmax_backward(op, [given[0], given[1]], &shapes[0])
            }
            Semantics::Tensors(function) if op.kind() == K::ReduceSum && given.len() == 1 => {
                let wide = &widened_outputs(op);
                let sums = |value: &Value| {
                    Ok(numbers(&function(wide, std::slice::from_ref(value), &shapes)?.remove(0)))
                };
                Ok(vec![sum(op, given[0], sums, &shapes[0])?])
            }
            Semantics::Tensors(function) if MOVING.contains(&op.kind()) => {
                let op = &widened_outputs(op);
                let results = corners(given, |values| Ok(function(op, values, &shapes)?.remove(0)))?;
                Ok(vec![hull(results, op.outputs()[0].data_type(), 0.0)?])
            }
            Semantics::Tensors(function) if CONVERTING.contains(&op.kind()) => {
                let to = op.outputs()[0].data_type();
                let op = &widened_outputs(op);
                let results = corners(given, |values| Ok(function(op, values, &shapes)?.remove(0)))?;
                Ok(vec![hull(results, to, if is_wide(to) { 2.0 * HALF_A_UNIT } else { 0.0 })?])
            }
            Semantics::Tensors(_) => Err(unimplemented(op, "no interval is known of what the op gives")),
            Semantics::Pointwise(Function::Index) => {
                Ok(gen_index(op, dims[0])?.into_iter().map(EnclosedTensor::exact).collect())
            }
            Semantics::Pointwise(function) => {
                let placement =
                    infer::placement(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
                let mut result = on_elements(op, function, given, &placement)?;
                let share = |port: &LogicalTensor| self.shares.contains(&port.id());
                if self.is_backward && op.kind() == K::Multiply {
                    for port in (0..2).filter(|&port| share(&op.inputs()[port])) {
                        result = without_masked(result, given[port], &placement, port)?;
                    }
                }
                if let Some(mask) = self.masks[place] {
                    result = masked(result, given[mask], &placement, mask)?;
                }
                Ok(vec![result])
            }
        }
    }
}

/// Kinds that move elements.
const MOVING: &[OpKind] = &[K::Concat, K::Reorder, K::Slice, K::StaticReshape, K::StaticTranspose];

/// Kinds between numbers and the integers or small floats that stand for them; and Dropout, which multiplies
/// by a number or by 0.
const CONVERTING: &[OpKind] =
    &[K::Dequantize, K::Dropout, K::DynamicDequantize, K::DynamicQuantize, K::Quantize];

/// The op with outputs of the types in which they are held here.
fn widened_outputs(op: &Op) -> Op {
    let wide = Op::new(op.id(), op.kind()).named(op.name()).inputs_from(op.inputs().iter().cloned());
    let wide = op.attrs().fold(wide, |wide, (attr, value)| wide.attr(attr, value.clone()));
    let output = |port: &LogicalTensor| LogicalTensor::unknown(port.id(), held_as(port.data_type()));
    op.outputs().iter().map(output).fold(wide, Op::output)
}

/// What a function of values gives at the centres, then at all combinations of the ends of its inputs.
fn corners(given: &[&EnclosedTensor], run: impl Fn(&[Value]) -> Result<Value>) -> Result<Vec<Value>> {
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
fn hull(results: Vec<Value>, to: DataType, relative: f64) -> Result<EnclosedTensor> {
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
fn on_elements(
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
    if turns(function) && result.ends.is_some() {
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
fn turns(function: Function) -> bool {
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
fn masked(
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
fn without_masked(
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

/// A product with a weight: 0 if the weight is 0, even if the other factor is not finite.
fn by_weight(weight: ElementRange, product: ElementRange) -> ElementRange {
    match weight {
        _ if weight.is_exact() && weight.centre == 0.0 => ElementRange::exactly(0.0),
        _ if weight.low <= 0.0 && weight.high >= 0.0 && !product.is_finite() => ANYTHING,
        _ => product,
    }
}

/// A sum of elements, given what sums them up in f64.
fn sum(
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
fn softmax_backward(op: &Op, given: [&EnclosedTensor; 2], dims: &Dims) -> Result<Vec<EnclosedTensor>> {
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
fn softmax(
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

/// A matrix product; with `skips`, a number on the left that is 0 adds nothing, whatever is on the right.
fn product(op: &Op, given: &[&EnclosedTensor], result: &[i64], skips: bool) -> Result<EnclosedTensor> {
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
