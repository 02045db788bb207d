//! A slow and obvious interpreter of ops: what every fast path is held against.
//!
//! Nothing here is optimised. Each result element is worked out on its own, from its index. What moves
//! elements or their sign bit works on bytes. Integers are computed exactly and wrap around. Floating-point
//! arithmetic is done in f64, which holds every f32, bf16 and f16 exactly, and rounded at the end: to f32,
//! and from there to the type of the output. For a sum, difference, product, quotient or square root of f32
//! numbers that is f32 arithmetic: the detour over f64 never changes the result. A NaN that comes out of
//! arithmetic has positive sign and no payload, on every machine.
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

mod functions;
mod number;
mod tensors;
mod value;

use number::Number;
use smallvec::SmallVec;
pub use value::Value;

use crate::error::{Direction, Error, OpFault, Result, TensorFault};
use crate::graph::function::Function;
use crate::graph::infer::{self, Placement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::verify::verify;
use crate::types::dtype::{DataType, bytes_of};
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

use OpKind as K;

/// What the interpreter does for an op.
enum Meaning {
    /// Each element of the result is a function of one element of each input.
    Pointwise(Function),
    /// A function of whole tensors.
    Tensors(TensorFunction),
}

/// An op, its inputs and the shapes of its outputs, to its outputs.
type TensorFunction = fn(&Op, &[Value], &[Dims]) -> Result<Vec<Value>>;

/// The kinds that are no functions of elements, but can be interpreted all the same.
const TENSOR_FUNCTIONS: &[(OpKind, TensorFunction)] = &[
    (K::MatMul, tensors::matmul),
    (K::Reorder, tensors::same_elements),
    (K::SoftMax, tensors::softmax),
    (K::StaticReshape, tensors::same_elements),
    (K::StaticTranspose, tensors::transpose),
];

/// Whether an op can be interpreted.
///
/// # Errors
///
/// [`Error::Op`] where the op does not fit its schema row; [`Error::Unimplemented`] with the reason where it
/// does, but cannot be interpreted.
///
/// ```
/// use sterna::{DataType, LogicalTensor, Op, OpKind, reference};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// let add = Op::new(0, OpKind::Add).inputs_from([tensor(0), tensor(1)]).output(tensor(2));
/// assert!(reference::supports(&add).is_ok());
/// assert!(reference::supports(&Op::new(0, OpKind::ReduceSum).input(tensor(0)).output(tensor(1))).is_err());
/// ```
pub fn supports(op: &Op) -> Result<()> {
    meaning(&verified(op)?).map(|_| ())
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
pub fn ulps(op: &Op) -> u32 {
    let ulps = Function::of(op).map_or(0, Function::ulps);
    let in_f32 = op.outputs().iter().all(|output| output.data_type() == DataType::F32);
    if in_f32 { ulps } else { ulps.min(1) }
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
/// [`Error::Tensor`] for a value of another type; [`Error::Shape`] where the shapes contradict the op's rule;
/// [`Error::OutOfMemory`].
pub fn run(op: &Op, inputs: &[Value]) -> Result<Vec<Value>> {
    let op = &verified(op)?;
    let meaning = meaning(op)?;
    check_inputs(op, inputs)?;
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
    match meaning {
        Meaning::Tensors(function) => function(op, inputs, &shapes),
        Meaning::Pointwise(Function::Index) => one(gen_index(op, &inputs[0])),
        Meaning::Pointwise(function) => {
            let placement = infer::placement(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
            one(pointwise(function, op.outputs()[0].data_type(), inputs, &placement))
        }
    }
}

/// The shapes of an op's outputs that follow from known shapes of its inputs, by the rule by which a compiled
/// partition has them; `None` where nothing here knows the rule of its kind.
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
/// [`Error::Op`] where the op does not fit its schema row, or another number of shapes is given than the op
/// has inputs; [`Error::Tensor`] for a shape that no tensor has, or that is not known; [`Error::Shape`] where
/// the shapes contradict the op's rule.
pub fn output_shapes(op: &Op, inputs: &[&[i64]]) -> Result<Option<Vec<Dims>>> {
    let op = &verified(op)?;
    check_count(op, inputs.len())?;
    for (port, dims) in op.inputs().iter().zip(inputs) {
        let known = LogicalTensor::any(port.id(), port.data_type(), dims)?.known_dims().is_some();
        if !known {
            return Err(Error::Tensor { id: port.id(), fault: TensorFault::NotConcrete });
        }
    }
    Ok(infer::output_shapes(op, inputs)?.map(|shapes| shapes.into_iter().collect()))
}

/// The op as a graph would take it: held against its schema row, with defaults for the attributes that are
/// not set.
fn verified(op: &Op) -> Result<Op> {
    let mut op = op.clone();
    verify(&mut op)?;
    Ok(op)
}

fn meaning(op: &Op) -> Result<Meaning> {
    let tensor_function = TENSOR_FUNCTIONS.iter().find(|(kind, _)| *kind == op.kind());
    if let Some(&(_, function)) = tensor_function {
        return Ok(Meaning::Tensors(function));
    }
    let function = Function::of(op).ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
    let mut types = op.inputs().iter().chain(op.outputs()).map(LogicalTensor::data_type);
    let integer = types.clone().find(|t| [DataType::S32, DataType::S64].contains(t));
    let mixed = integer.is_some_and(|integer| types.any(|t| t != integer));
    if matches!(function, Function::Binary(..)) && mixed {
        return Err(unimplemented(op, "the reference interpreter does not mix integers with other types"));
    }
    Ok(Meaning::Pointwise(function))
}

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

fn one(result: Result<Value>) -> Result<Vec<Value>> {
    Ok(vec![result?])
}

/// Each element of the result is a function of the elements that broadcasting brings together.
fn pointwise(function: Function, to: DataType, inputs: &[Value], placement: &Placement) -> Result<Value> {
    let types: Vec<DataType> = inputs.iter().map(Value::data_type).collect();
    Value::compute(to, &placement.result, |at, bytes| {
        let placed = inputs.iter().zip(&placement.starts);
        let elements: SmallVec<[&[u8]; 3]> =
            placed.map(|(input, &start)| input.element(&input.aligned(at, start))).collect();
        append_element(function, &types, &elements, to, bytes);
    })
}

/// Appends a function of elements of some types.
fn append_element(
    function: Function,
    types: &[DataType],
    elements: &[&[u8]],
    to: DataType,
    bytes: &mut Vec<u8>,
) {
    let number = |i: usize| Number::of(types[i], elements[i]);
    let truth = |i: usize| elements[i] != [0];
    match function {
        Function::Unary(function, params) => {
            number::append_arithmetic(functions::unary(function, params, number(0).float()), to, bytes);
        }
        Function::Binary(function, params) => match (number(0), number(1)) {
            (Number::Integer(x), Number::Integer(y)) => {
                let result = functions::of_integers(function, x, y);
                Number::Integer(result.expect("the schema lets floats alone through to here"))
                    .append(to, bytes);
            }
            (x, y) => {
                let result = functions::binary(function, params, x.float(), y.float());
                number::append_arithmetic(result, to, bytes);
            }
        },
        Function::Compare(comparison) => bytes.push(match (number(0), number(1)) {
            (Number::Integer(x), Number::Integer(y)) => functions::compare(comparison, x, y).into(),
            (x, y) => functions::compare(comparison, x.float(), y.float()).into(),
        }),
        Function::Logic(logic) => bytes.push(functions::logic(logic, truth(0), truth(1)).into()),
        Function::Not => bytes.push((!truth(0)).into()),
        Function::Classify(class) => bytes.push(functions::classify(class, number(0).float()).into()),
        Function::Sign(sign) => {
            let start = bytes.len();
            bytes.extend_from_slice(elements[0]);
            let highest = if cfg!(target_endian = "little") { bytes.len() - 1 } else { start };
            functions::sign(sign, &mut bytes[highest]);
        }
        Function::Select => bytes.extend_from_slice(if truth(0) { elements[1] } else { elements[2] }),
        Function::Convert if types[0] != to => number(0).append(to, bytes),
        Function::Convert | Function::Identity => bytes.extend_from_slice(elements[0]),
        Function::Fill(value) if to == DataType::F32 => bytes.extend_from_slice(bytes_of(&[value])),
        Function::Fill(value) => Number::Float(value.into()).append(to, bytes),
        Function::Index => unreachable!("an index is no function of elements"),
    }
}

/// Each element is its own index along the axis.
fn gen_index(op: &Op, src: &Value) -> Result<Value> {
    let axis = infer::resolved_axis(op, src.dims())?;
    if i32::try_from(src.dims()[axis]).is_err() {
        return Err(unimplemented(op, "an index along the axis does not fit into s32"));
    }
    let to = op.outputs()[0].data_type();
    Value::compute(to, src.dims(), |at, bytes| Number::Integer(at[axis] as i128).append(to, bytes))
}
