//! A slow and obvious interpreter of ops, against which every fast path is checked.
//!
//! Nothing here is clever: an op reads its inputs as numbers, loops over them as its definition does, and
//! writes its outputs, some thousand elements a task. Ops that move elements or their sign bit work on bytes.
//! Integers are computed exactly and wrap around. Floating-point arithmetic is done in f64, which holds every
//! f32, bf16 and f16 exactly, in the order of the elements, and rounded at the end: to f32, and from there to
//! the type of the output. For a sum, difference, product, quotient or square root of f32 numbers that is f32
//! arithmetic: the detour over f64 never changes the result. A NaN that comes out of arithmetic has positive
//! sign and no payload, on every machine. Results are the same on any number of threads, which are those of
//! rayon's global pool; without the feature `threads` there is one, the caller's.
//!
//! ```
//! use sterna::reference::{self, Value};
//! use sterna::{DataType, LogicalTensor, Op};
//!
//! let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[3]);
//! let (cond, dst) = (tensor(0, DataType::Boolean)?, tensor(3, DataType::F32)?);
//! let op = Op::select(0, cond, tensor(1, DataType::F32)?, tensor(2, DataType::F32)?, dst);
//! let inputs = [
//!     Value::from_slice(&[3], &[true, false, true])?,
//!     Value::from_slice(&[3], &[1.0f32, 2.0, 3.0])?,
//!     Value::from_slice(&[3], &[-1.0f32, -2.0, -3.0])?,
//! ];
//! let result = reference::run(&op, &inputs)?;
//! assert_eq!(result[0].elements::<f32>().unwrap(), [1.0, -2.0, 3.0]);
//! # Ok::<(), sterna::Error>(())
//! ```

mod batch_norm;
mod convolution;
mod dropout;
mod element;
mod enclosure;
mod functions;
mod interpolate;
mod lookups;
mod moves;
mod number;
mod odometer;
mod paged;
mod pointwise;
mod pool;
mod products;
mod quantization;
mod rows;
mod taps;
mod value;

pub use enclosure::{Enclosure, enclose, enclose_each};
pub use value::Value;
use value::count;

use crate::error::{Direction, Error, OpFault, Result, TensorFault};
use crate::graph::function::Function;
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::row::{Schema, ShapeRule};
use crate::graph::verify::verify;
use crate::graph::windows;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

use OpKind as K;

/// The function by which an op is interpreted.
enum Semantics {
    /// Each element of the result is a function of one element of each input.
    Pointwise(Function),
    /// A function of whole tensors.
    Tensors(TensorFunction),
}

/// An op, its inputs and the shapes of its outputs, to its outputs.
type TensorFunction = fn(&Op, &[Value], &[Dims]) -> Result<Vec<Value>>;

/// The kinds that are no functions of elements, but can be interpreted all the same.
const TENSOR_FUNCTIONS: &[(OpKind, TensorFunction)] = &[
    (K::ArgMax, lookups::arg_max),
    (K::ArgMin, lookups::arg_min),
    (K::AvgPool, pool::avg_pool),
    (K::AvgPoolBackward, pool::avg_pool_backward),
    (K::BatchNormForwardTraining, batch_norm::forward_training),
    (K::BatchNormInference, batch_norm::inference),
    (K::BatchNormTrainingBackward, batch_norm::training_backward),
    (K::BiasAddBackward, rows::bias_add_backward),
    (K::CacheStore, paged::store),
    (K::Concat, moves::concat),
    (K::Convolution, convolution::convolution),
    (K::ConvolutionBackwardData, convolution::backward_data),
    (K::ConvolutionBackwardWeights, convolution::backward_weights),
    (K::ConvTranspose, convolution::transposed),
    (K::ConvTransposeBackwardData, convolution::transposed_backward_data),
    (K::ConvTransposeBackwardWeights, convolution::transposed_backward_weights),
    (K::CumSum, rows::cum_sum),
    (K::Dequantize, quantization::dequantize),
    (K::Dropout, dropout::dropout),
    (K::DynamicDequantize, quantization::dynamic_dequantize),
    (K::DynamicQuantize, quantization::dynamic_quantize),
    (K::Gather, lookups::gather),
    (K::GatherBackward, lookups::gather_backward),
    (K::GatherElements, lookups::gather),
    (K::GatherND, lookups::gather),
    (K::GroupNorm, rows::group_norm),
    (K::Interpolate, interpolate::interpolate),
    (K::InterpolateBackward, interpolate::interpolate_backward),
    (K::LayerNorm, rows::layer_norm),
    (K::LayerNormBackward, rows::layer_norm_backward),
    (K::LogSoftmax, rows::log_softmax),
    (K::LogSoftmaxBackward, rows::log_softmax_backward),
    (K::MatMul, products::matmul),
    (K::MaxPool, pool::max_pool),
    (K::MaxPoolBackward, pool::max_pool_backward),
    (K::PReLUBackward, rows::prelu_backward),
    (K::PagedLoad, paged::load),
    (K::Quantize, quantization::quantize),
    (K::ReduceL1, rows::reduce_l1),
    (K::ReduceL2, rows::reduce_l2),
    (K::ReduceMax, rows::reduce_max),
    (K::ReduceMean, rows::reduce_mean),
    (K::ReduceMin, rows::reduce_min),
    (K::ReduceProd, rows::reduce_prod),
    (K::ReduceSum, rows::reduce_sum),
    (K::Reorder, moves::reorder),
    (K::RMSNorm, rows::rms_norm),
    (K::ScatterElements, lookups::scatter),
    (K::ScatterND, lookups::scatter),
    (K::Slice, moves::slice),
    (K::SoftMax, rows::softmax),
    (K::SoftMaxBackward, rows::softmax_backward),
    (K::StaticReshape, moves::static_reshape),
    (K::StaticTranspose, moves::static_transpose),
    (K::TopK, lookups::top_k),
];

/// True if an op can be interpreted.
///
/// # Errors
///
/// [`Error::Op`] if the op does not fit its schema row; [`Error::Unimplemented`] with the reason if it
/// does, but cannot be interpreted.
///
/// ```
/// use sterna::{DataType, LogicalTensor, Op, OpKind, reference};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let add = Op::new(0, OpKind::Add).inputs_from([tensor(0), tensor(1)]).output(tensor(2));
/// assert!(reference::supports(&add).is_ok());
/// assert!(reference::supports(&Op::new(0, OpKind::Wildcard).input(tensor(0)).output(tensor(1))).is_err());
/// ```
pub fn supports(op: &Op) -> Result<()> {
    semantics(&verified(op)?).map(|_| ())
}

/// How many units in the last place of its output's type a compiled op may be off the interpreter.
///
/// That is 0 for what IEEE 754 rounds exactly, for what moves bits and for integers. Any other result is one
/// of f32 within the limit that the documentation of ops states; in a type of 16 bits that leaves the nearest
/// two.
///
/// ```
/// use sterna::{DataType, LogicalTensor, Op, OpKind, reference};
/// let ulps = |kind, data_type| {
///     let tensor = |id| LogicalTensor::unknown(id, data_type);
///     reference::ulps(&Op::new(0, kind).input(tensor(0)).output(tensor(1)))
/// };
/// assert_eq!(ulps(OpKind::Sqrt, DataType::F32), 0);
/// assert_eq!(ulps(OpKind::GELU, DataType::F32), 4);
/// assert_eq!(ulps(OpKind::GELU, DataType::Bf16), 1);
/// ```
#[must_use]
pub fn ulps(op: &Op) -> u32 {
    let ulps = Function::of(op).map_or(0, Function::ulps);
    let in_f32 = op.outputs().iter().all(|output| output.data_type() == DataType::F32);
    if in_f32 { ulps } else { ulps.min(1) }
}

/// How far each element of the result of an op that sums up may be off the interpreter, before it is rounded
/// to its type: a compiled op adds up in f32, in another order.
///
/// Of a sum of `n` terms that is `n · 2⁻²⁴` times the sum of their sizes. SoftMax is off by 32 half units in
/// the last place, and one more for each 1 that a number is below the maximum of its row; norms are off by 32
/// half units in the last place of what is normalised, which is distances from the mean. `None` for kinds
/// that are judged by [`ulps`]. A row that holds NaN or ∞ has bounds of NaN or ∞.
///
/// ```
/// use sterna::reference::{self, Value};
/// use sterna::{Attr, DataType, LogicalTensor, Op, OpKind};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let op = Op::new(0, OpKind::ReduceSum).input(tensor(0)).output(tensor(1)).attr(Attr::Axes, vec![0i64]);
/// let bounds = reference::bounds(&op, &[Value::from_slice(&[2], &[3.0f32, -1.0])?])?;
/// assert_eq!(bounds, Some(vec![2.0 * 4.0 / (1 << 24) as f64]));
/// # Ok::<(), sterna::Error>(())
/// ```
///
/// # Errors
///
/// As [`run`].
pub fn bounds(op: &Op, inputs: &[Value]) -> Result<Option<Vec<f64>>> {
    let op = &verified(op)?;
    check_inputs(op, inputs)?;
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    if let Some((op, port)) = resolved(op, inputs) {
        return bounds(&op, &inputs[..port]);
    }
    Ok(match op.kind() {
        K::ReduceSum
        | K::ReduceMean
        | K::ReduceL1
        | K::ReduceL2
        | K::ReduceProd
        | K::BiasAddBackward
        | K::SoftMax
        | K::LogSoftmax
        | K::SoftMaxBackward
        | K::LogSoftmaxBackward
        | K::LayerNorm
        | K::RMSNorm
        | K::GroupNorm
        | K::LayerNormBackward
        | K::PReLUBackward => {
            let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            Some(rows::bounds(op, inputs, &shapes)?)
        }
        K::AvgPool
        | K::AvgPoolBackward
        | K::BatchNormForwardTraining
        | K::BatchNormTrainingBackward
        | K::Interpolate
        | K::InterpolateBackward
        | K::MaxPoolBackward => {
            let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            let of_kind = match op.kind() {
                K::Interpolate | K::InterpolateBackward => interpolate::bounds,
                K::BatchNormForwardTraining | K::BatchNormTrainingBackward => batch_norm::bounds,
                _ => pool::bounds,
            };
            Some(of_kind(op, inputs, &shapes)?)
        }
        K::MatMul => {
            let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            Some(products::bounds(op, inputs, &shapes[0])?)
        }
        K::Convolution
        | K::ConvolutionBackwardData
        | K::ConvolutionBackwardWeights
        | K::ConvTranspose
        | K::ConvTransposeBackwardData
        | K::ConvTransposeBackwardWeights => {
            let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            Some(convolution::bounds(op, inputs, &shapes[0])?)
        }
        _ => None,
    })
}

/// Runs one op on values of the types of its inputs, and gives values of the types of its outputs.
///
/// The shapes of the results follow from those of the values, whatever shapes the op's tensors have.
///
/// ```
/// use sterna::reference::{self, Value};
/// use sterna::{DataType, LogicalTensor, Op};
/// let float = |id| LogicalTensor::unknown(id, DataType::F32);
/// let op = Op::select(0, LogicalTensor::unknown(0, DataType::Boolean), float(1), float(2), float(3));
/// let results = reference::run(
///     &op,
///     &[
///         Value::from_slice(&[2], &[true, false])?,
///         Value::from_slice(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?,
///         Value::from_slice(&[], &[0.0f32])?,
///     ],
/// )?;
/// assert_eq!(results, [Value::from_slice(&[3, 2], &[1.0f32, 0.0, 3.0, 0.0, 5.0, 0.0])?]);
/// # Ok::<(), sterna::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`supports`]; [`Error::Op`] for another number of values than the op has inputs;
/// [`Error::Tensor`] for a value of another type; [`Error::Shape`] if the shapes contradict the op's rule;
/// [`Error::OutOfMemory`].
pub fn run(op: &Op, inputs: &[Value]) -> Result<Vec<Value>> {
    let op = &verified(op)?;
    let semantics = semantics(op)?;
    check_inputs(op, inputs)?;
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    if let Some((op, port)) = resolved(op, inputs) {
        return run(&op, &inputs[..port]);
    }
    let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_SHAPE))?;
    match semantics {
        Semantics::Tensors(_) if shapes.iter().all(|dims| count(dims) == 0) => {
            let outputs = op.outputs().iter().zip(&shapes);
            outputs.map(|(output, dims)| Value::new(output.data_type(), dims, Vec::new())).collect()
        }
        Semantics::Tensors(function) => function(op, inputs, &shapes),
        Semantics::Pointwise(Function::Index) => gen_index(op, dims[0]),
        Semantics::Pointwise(function) => {
            let placement = infer::placement(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            pointwise::pointwise(function, op.outputs()[0].data_type(), inputs, &placement)
        }
    }
}

/// The shapes of an op's outputs that follow from known shapes of its inputs, by the rule by which a compiled
/// partition has them; `None` if the rule of its kind is unknown.
///
/// ```
/// use sterna::{DataType, LogicalTensor, Op, OpKind, reference};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let op = Op::new(0, OpKind::Add).inputs_from([tensor(0), tensor(1)]).output(tensor(2));
/// let shapes = reference::output_shapes(&op, &[&[2, 1], &[3]])?.expect("the rule is known");
/// assert_eq!(shapes[0][..], [2, 3]);
/// # Ok::<(), sterna::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Op`] if the op does not fit its schema row, or another number of shapes is given than the op has
/// inputs; [`Error::Tensor`] for a shape that no tensor has, or that is not known; [`Error::Shape`] if the
/// shapes contradict the op's rule.
pub fn output_shapes(op: &Op, inputs: &[&[i64]]) -> Result<Option<Vec<Dims>>> {
    let op = &verified(op)?;
    check_count(op, inputs.len())?;
    for (port, dims) in op.inputs().iter().zip(inputs) {
        LogicalTensor::any(port.id(), port.data_type(), dims)?;
    }
    Ok(infer::output_shapes(op, inputs)?.map(|shapes| shapes.into_iter().collect()))
}

/// An op that fits its schema row, with defaults for the attributes that are not set. Functions here check an
/// op anew that has not been given to this one.
///
/// # Errors
///
/// [`Error::Op`] if it does not fit.
///
/// ```
/// use sterna::{Attr, AttrValue, DataType, LogicalTensor, Op, OpKind, reference};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let softmax = Op::new(0, OpKind::SoftMax).input(tensor(0)).output(tensor(1));
/// assert_eq!(reference::checked(softmax)?.get_attr(Attr::Axis), Some(&AttrValue::S64(1)));
/// assert!(reference::checked(Op::new(0, OpKind::Exp)).is_err());
/// # Ok::<(), sterna::Error>(())
/// ```
pub fn checked(mut op: Op) -> Result<Op> {
    verify(&mut op)?;
    Ok(op)
}

/// The op of which a last input that stands for an attribute has become the attribute, and the inputs before
/// it; `None` for an op without such an input.
fn resolved(op: &Op, inputs: &[Value]) -> Option<(Op, usize)> {
    let (attr, port) = match Schema::of(op.kind()).shape_rule {
        ShapeRule::Reduce => (Attr::Axes, 1),
        _ => windows::result_shape(op)?,
    };
    let numbers = inputs.get(port)?.elements::<i32>()?.into_iter().map(i64::from).collect::<Vec<_>>();
    let attrs = op.attrs().filter(|(other, _)| *other != attr);
    let same = Op::new(op.id(), op.kind()).named(op.name()).attr(attr, numbers);
    let same = attrs.fold(same, |op, (attr, value)| op.attr(attr, value.clone()));
    let same = same.inputs_from(op.inputs()[..port].iter().cloned());
    Some((op.outputs().iter().cloned().fold(same, Op::output), port))
}

/// The op as a graph would take it: held against its schema row, with defaults for the attributes that are
/// not set.
fn verified(op: &Op) -> Result<Op> {
    checked(op.clone())
}

fn semantics(op: &Op) -> Result<Semantics> {
    let tensor_function = TENSOR_FUNCTIONS.iter().find(|(kind, _)| *kind == op.kind());
    if let Some(&(_, function)) = tensor_function {
        return Ok(Semantics::Tensors(function));
    }
    let function = Function::of(op).ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
    let mut types = op.inputs().iter().chain(op.outputs()).map(LogicalTensor::data_type);
    let alone = types.clone().find(|t| [DataType::F64, DataType::S32, DataType::S64].contains(t));
    let mixed = alone.is_some_and(|alone| types.any(|t| t != alone));
    if matches!(function, Function::Binary(..)) && mixed {
        let what = "the reference interpreter does not mix f64 and integers with other types";
        return Err(unimplemented(op, what));
    }
    Ok(Semantics::Pointwise(function))
}

const UNKNOWN_SHAPE: &str = "the shape of the result is said by no attribute, input or output";
const UNKNOWN_KIND: &str = "the reference interpreter does not know ops of this kind";

fn unimplemented(op: &Op, reason: &'static str) -> Error {
    Error::Unimplemented { op: op.op_ref(), reason }
}

fn check_count(op: &Op, given: usize) -> Result<()> {
    let expected = op.inputs().len();
    if given != expected {
        let fault = OpFault::Count { direction: Direction::Input, expected: expected.to_string(), given };
        return Err(Error::Op { op: op.op_ref(), fault });
    }
    Ok(())
}

fn check_inputs(op: &Op, inputs: &[Value]) -> Result<()> {
    check_count(op, inputs.len())?;
    for (port, value) in op.inputs().iter().zip(inputs) {
        let (expected, given) = (port.data_type(), value.data_type());
        if given != expected {
            return Err(Error::Tensor { id: port.id(), fault: TensorFault::ElementType { expected, given } });
        }
    }
    Ok(())
}

/// Each element is its own index along the axis.
fn gen_index(op: &Op, dims: &[i64]) -> Result<Vec<Value>> {
    let axis = infer::resolved_axis(op, dims)?;
    if i32::try_from(dims[axis]).is_err() {
        return Err(unimplemented(op, "an index along the axis does not fit into s32"));
    }
    pointwise::indices(axis, op.outputs()[0].data_type(), dims)
}
