//! Bounds of the results of ops that run as one and keep bounds instead of bits: an interval for each
//! element.
//!
//! The centre of an interval is the result in f64, from inputs as they are, without a rounding on the way.
//! Around it lies what the roundings that the types of the ops ask for, the order of additions and the
//! accuracy of functions may make of it, carried along from op to op: a result outside of its interval is
//! wrong. Here a masked key does not exist, unless it is asked for.
//!
//! `range` holds the intervals; `elements`, `sums`, `product` and `convolution` carry them through the ops.

mod convolution;
mod elements;
mod product;
mod range;
mod sums;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use self::convolution::convolved;
use self::elements::{Masking, hull, on_elements};
use self::product::product;
use self::range::{EnclosedTensor, held_as, is_wide, numbers, widened};
use self::sums::{softmax, softmax_backward, sum};
use super::number::{HALF_A_UNIT, dense_value, floats};
use super::odometer::Odometer;
use super::value::{Value, count};
use super::{Semantics, UNKNOWN_KIND, check_count, gen_index, semantics, unimplemented, verified};
use crate::error::{Direction, Error, ExecuteFault, Result, TensorFault};
use crate::graph::function::Function;
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::masking::additive_masks;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::fallback::MaskedKeys;
use crate::types::id::TensorId;
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

use DataType as D;
use OpKind as K;

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
        let (dims, centre) = (Dims::from(interval.centre.dims()), numbers(&interval.centre)?);
        let (low, high) = (numbers(interval.low())?, numbers(interval.high())?);
        let value =
            if is_wide(data_type) { dense_value(&centre, data_type, &dims)? } else { interval.centre };
        Ok(Self { value, centre, low, high })
    }

    /// The result in f64, rounded once at the end.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The result in f64. An element on which the ops say nothing is 1.
    #[must_use]
    pub fn numbers(&self) -> &[f64] {
        &self.centre
    }

    /// The interval of an element; NaN to NaN if the element is NaN, or if the ops say nothing on it.
    #[must_use]
    pub fn ends(&self, element: usize) -> (f64, f64) {
        (self.low[element], self.high[element])
    }

    /// True if the ops say anything on an element. They do not if a sum may or may not overflow, if a
    /// condition hangs on the last bit of a number, or if an infinity meets what may or may not be 0.
    #[must_use]
    pub fn is_judged(&self, element: usize) -> bool {
        self.centre[element].is_nan() || !self.low[element].is_nan()
    }

    /// The first element of a value of the same type and shape that lies outside of its interval by more than
    /// one unit in the last place; 0 if type or shape differ.
    ///
    /// A NaN lies in an interval only if the element has to be NaN, or if the ops say nothing on it.
    #[must_use]
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
/// converts elements around them; the gradients of all this, with SoftMaxBackward and ReduceSum; or norms and
/// SoftMax that are written out, with ReduceMean and ReduceMax; or convolutions of dequantised integers. Such
/// partitions depart from their ops run one by one: **a masked key does not exist**. A key is masked for a
/// query if SoftMax gives it 0, where numbers whose exponential is 0 in f32 count as 0; the key then adds
/// nothing to the product with the values, even if its value is NaN or ∞, and the pair of query and key
/// nothing to any gradient. In gradients, an Exp may stand for the SoftMax. And a −∞ that does not depend on
/// the product of queries and keys, added to a score, makes it −∞, even a score that is NaN or ∞.
///
/// A plan that takes no form of attention runs the ops one by one, with the same bounds, and its masked keys
/// are [multiplied by 0](MaskedKeys::Multiplied): see [`enclose_each`].
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
///     (0.into(), Value::from_slice(&[1, 1], &[1.0f32])?),
///     (1.into(), Value::from_slice(&[2, 1], &[0.5f32, f32::NAN])?),
///     (3.into(), Value::from_slice(&[1, 2], &[0.0f32, f32::NEG_INFINITY])?),
///     (6.into(), Value::from_slice(&[2, 1], &[3.0f32, f32::NAN])?),
/// ]);
/// let result = &reference::enclose(&ops, &inputs, &[7.into()])?[&7.into()];
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
    enclose_each(ops, inputs, wanted, MaskedKeys::Skipped, &|_| ())
}

/// [`enclose`], with the part of masked keys and a function that is called before each op.
///
/// # Errors
///
/// Those of [`enclose`].
pub fn enclose_each(
    ops: &[Op],
    inputs: &BTreeMap<TensorId, Value>,
    wanted: &[TensorId],
    masked_keys: MaskedKeys,
    begins: &dyn Fn(&Op),
) -> Result<BTreeMap<TensorId, Enclosure>> {
    let ops = ops.iter().map(verified).collect::<Result<Vec<Op>>>()?;
    let roles = match masked_keys {
        MaskedKeys::Skipped => MaskRoles::of(&ops),
        MaskedKeys::Multiplied => MaskRoles::none(ops.len()),
    };
    let mut held: BTreeMap<TensorId, EnclosedTensor> = BTreeMap::new();
    for (place, op) in ops.iter().enumerate() {
        begins(op);
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

/// The roles of the tensors of a group of ops, as far as masked keys need them.
struct MaskRoles {
    /// For each op the input whose −∞ masks a score.
    masks: Vec<Option<usize>>,
    /// The tensors that follow by ops on elements from the weights: from a SoftMax, or, in gradients without
    /// one, from an Exp.
    shares: Vec<TensorId>,
    /// True if some product sums up over the queries of the weights, or multiplies P ⊙ dP by the keys: then a
    /// weight of 0 makes all that is multiplied by it 0.
    is_backward: bool,
}

impl MaskRoles {
    /// Those of ops of which no tensor has a role.
    fn none(ops: usize) -> Self {
        Self { masks: vec![None; ops], shares: Vec::new(), is_backward: false }
    }

    fn of(ops: &[Op]) -> Self {
        let has_softmax = ops.iter().any(|op| op.kind() == K::SoftMax);
        let weights = if has_softmax { K::SoftMax } else { K::Exp };
        let mut shares: Vec<TensorId> = Vec::new();
        // Results of ops on elements that follow from products alone, and from both products and weights,
        // such as dS.
        let (mut from_products, mut score_gradients): (Vec<TensorId>, Vec<TensorId>) = Default::default();
        for op in ops {
            let is_pointwise =
                Function::of(op).is_some_and(|f| !matches!(f, Function::Index | Function::Fill(_)));
            let is_followed = is_pointwise || op.kind() == K::SoftMaxBackward;
            let follows = is_followed && op.inputs().iter().any(|port| shares.contains(&port.id()));
            let uses = |of: &[TensorId]| op.inputs().iter().any(|port| of.contains(&port.id()));
            let is_product = op.kind() == K::MatMul || is_followed && uses(&from_products);
            if follows && (is_product || uses(&score_gradients)) {
                score_gradients.push(op.outputs()[0].id());
            }
            match () {
                () if op.kind() == weights || follows => shares.push(op.outputs()[0].id()),
                () if is_product => from_products.push(op.outputs()[0].id()),
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
        let has_score_gradients = products()
            .any(|op| score_gradients.contains(&op.inputs()[0].id()) && keys().any(|keys| keys == right(op)));
        let sums_queries = |op: &Op| {
            op.kind() == K::MatMul && op.bool_attr(Attr::TransposeA) && shares.contains(&op.inputs()[0].id())
        };
        let is_backward = has_score_gradients || ops.iter().any(sums_queries);
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
            Semantics::Tensors(_) if CONVOLVING.contains(&op.kind()) => {
                Ok(vec![convolved(op, given, &shapes[0])?])
            }
            Semantics::Tensors(_) if op.kind() == K::ConvolutionBackwardData && given.len() == 2 => {
                Ok(vec![convolved(op, given, &shapes[0])?])
            }
            Semantics::Tensors(_) if op.kind() == K::SoftMax => {
                softmax(op, given[0], &shapes, self.is_backward)
            }
            Semantics::Tensors(_) if op.kind() == K::SoftMaxBackward => {
                softmax_backward(op, [given[0], given[1]], &shapes[0])
            }
            Semantics::Tensors(_)
                if matches!(op.kind(), K::ReduceSum | K::ReduceMean) && given.len() == 1 =>
            {
                let axes = infer::reduced_axes(op, dims[0])?;
                Ok(vec![sum(op, given[0], &axes, &shapes[0])?])
            }
            Semantics::Tensors(function) if MONOTONE.contains(&op.kind()) => {
                let op = &widened_outputs(op);
                let parts = |of: fn(&EnclosedTensor) -> &Value| -> Result<Value> {
                    let values: Vec<Value> = given.iter().map(|tensor| of(tensor).clone()).collect();
                    Ok(function(op, &values, &shapes)?.remove(0))
                };
                let is_exact = given.iter().all(|tensor| tensor.ends.is_none());
                let ends = match is_exact {
                    true => None,
                    false => Some([parts(EnclosedTensor::low)?, parts(EnclosedTensor::high)?]),
                };
                Ok(vec![EnclosedTensor { centre: parts(|tensor| &tensor.centre)?, ends }])
            }
            Semantics::Tensors(function) if CONVERTING.contains(&op.kind()) => {
                let to = op.outputs()[0].data_type();
                let op = &widened_outputs(op);
                let relative = if is_wide(to) { 2.0 * HALF_A_UNIT } else { 0.0 };
                Ok(vec![hull(given, to, relative, |values| Ok(function(op, values, &shapes)?.remove(0)))?])
            }
            Semantics::Tensors(_) => Err(unimplemented(op, "no interval is known of what the op gives")),
            Semantics::Pointwise(Function::Index) => {
                Ok(gen_index(op, dims[0])?.into_iter().map(EnclosedTensor::exact).collect())
            }
            Semantics::Pointwise(function) => {
                let placement =
                    infer::placement(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
                let share = |&port: &usize| self.shares.contains(&op.inputs()[port].id());
                let is_product = self.is_backward && op.kind() == K::Multiply;
                let weights = (0..2).filter(|_| is_product).filter(share).collect();
                let masking = Masking { mask: self.masks[place], weights };
                Ok(vec![on_elements(op, function, given, &placement, &masking)?])
            }
        }
    }
}

/// Kinds whose third input, if there is one, is a bias and no shape.
const CONVOLVING: &[OpKind] = &[K::Convolution, K::ConvTranspose, K::ConvTransposeBackwardData];

/// Kinds that move elements, or take the largest: ends of intervals lead to ends.
const MONOTONE: &[OpKind] =
    &[K::Concat, K::PagedLoad, K::ReduceMax, K::Reorder, K::Slice, K::StaticReshape, K::StaticTranspose];

/// Kinds between numbers and the integers or small floats that stand for them; Dropout, which multiplies
/// by a number or by 0; and BatchNormInference, which is monotone in every input.
const CONVERTING: &[OpKind] = &[
    K::BatchNormInference,
    K::Dequantize,
    K::Dropout,
    K::DynamicDequantize,
    K::DynamicQuantize,
    K::Quantize,
];

/// The op with outputs of the types in which they are held here.
fn widened_outputs(op: &Op) -> Op {
    let wide = Op::new(op.id(), op.kind()).named(op.name()).inputs_from(op.inputs().iter().cloned());
    let wide = op.attrs().fold(wide, |wide, (attr, value)| wide.attr(attr, value.clone()));
    let output = |port: &LogicalTensor| LogicalTensor::unknown(port.id(), held_as(port.data_type()));
    op.outputs().iter().map(output).fold(wide, Op::output)
}
