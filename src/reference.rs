//! A slow and obvious interpreter of ops: what every fast path is held against.
//!
//! Nothing here is optimised. Each result element is worked out on its own, from its index. `Select` and the ops that
//! only move elements copy bytes. The others compute in f64, which holds every f32, bf16, f16 and s32 exactly, and
//! round at the end: to f32, and from there to the type of the output. For a sum, difference, product, quotient or
//! square root of f32 numbers that is f32 arithmetic: the detour over f64 never changes the result. A NaN that
//! comes out of arithmetic has positive sign and no payload, on every machine.

use smallvec::SmallVec;

use crate::error::{Direction, Error, OpFault, Result, TensorFault};
use crate::execute::tensor::{Tensor, TensorBuf};
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::verify::verify;
use crate::types::dtype::{DataType, Element, InputElement, bytes_of, element_of};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{self, Dims};

use DataType as D;
use Meaning::{Binary, Unary, Whole};
use OpKind as K;

/// What the interpreter does for an op of one kind.
#[derive(Clone, Copy)]
enum Meaning {
    /// A function of one number, for each element.
    Unary(fn(f64) -> f64),
    /// A function of two numbers, for each pair that broadcasting brings together. Truth is 1, falsehood 0.
    Binary(fn(f64, f64) -> f64),
    /// A function of whole tensors.
    Whole(Function),
}

/// An op, its inputs and the shapes of its outputs, to its outputs.
type Function = fn(&Op, &[Value], &[Dims]) -> Result<Vec<Value>>;

/// The kinds that can be interpreted; a kind that is not listed cannot.
const MEANINGS: &[(OpKind, Meaning)] = &[
    (K::Abs, Unary(f64::abs)),
    (K::Add, Binary(|a, b| a + b)),
    (K::BiasAdd, Whole(bias_add)),
    (K::Divide, Binary(|a, b| a / b)),
    (K::Exp, Unary(f64::exp)),
    (K::GenIndex, Whole(gen_index)),
    (K::GreaterEqual, Binary(|a, b| f64::from(a >= b))),
    (K::Log, Unary(f64::ln)),
    (K::MatMul, Whole(matmul)),
    (K::Maximum, Binary(maximum)),
    (K::Minimum, Binary(|a, b| -maximum(-a, -b))),
    (K::Multiply, Binary(|a, b| a * b)),
    (K::ReLU, Unary(|x| maximum(x, 0.0))),
    (K::Reciprocal, Unary(f64::recip)),
    (K::Reorder, Whole(same_elements)),
    (K::Round, Unary(f64::round_ties_even)),
    (K::Select, Whole(select)),
    (K::Sigmoid, Unary(|x| 1.0 / (1.0 + (-x).exp()))),
    (K::SoftMax, Whole(softmax)),
    (K::Sqrt, Unary(f64::sqrt)),
    (K::Square, Unary(|x| x * x)),
    (K::StaticReshape, Whole(same_elements)),
    (K::StaticTranspose, Whole(transpose)),
    (K::Subtract, Binary(|a, b| a - b)),
    (K::Tanh, Unary(f64::tanh)),
    (K::TypeCast, Unary(|x| x)),
];

/// Whether an op can be interpreted.
///
/// # Errors
///
/// [`Error::Op`] where the op does not fit its schema row; [`Error::Unimplemented`] with the reason where it does, but
/// cannot be interpreted.
///
/// ```
/// use sterna::{DataType, LogicalTensor, Op, OpKind, reference};
/// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
/// assert!(reference::supports(&Op::new(0, OpKind::Add).inputs_from([tensor(0), tensor(1)]).output(tensor(2))).is_ok());
/// assert!(reference::supports(&Op::new(0, OpKind::Mish).input(tensor(0)).output(tensor(1))).is_err());
/// ```
pub fn supports(op: &Op) -> Result<()> {
    meaning(&verified(op)?).map(|_| ())
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
/// Those of [`supports`]; [`Error::Op`] for another number of values than the op has inputs; [`Error::Tensor`] for a
/// value of another type; [`Error::Shape`] where the shapes contradict the op's rule; [`Error::OutOfMemory`].
pub fn run(op: &Op, inputs: &[Value]) -> Result<Vec<Value>> {
    let op = &verified(op)?;
    let meaning = meaning(op)?;
    check_inputs(op, inputs)?;
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let shapes = infer::output_shapes(op, &dims)?.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
    match meaning {
        Whole(function) => function(op, inputs, &shapes),
        Unary(function) => {
            let x = &inputs[0];
            one(Value::compute(output_type(op), &shapes[0], |at| function(x.number(at))))
        }
        Binary(function) => {
            let (a, b) = (&inputs[0], &inputs[1]);
            let starts = infer::placement(op, &dims)?.map(|placement| placement.starts);
            let Some([start_a, start_b]) = starts.as_deref() else {
                return Err(unimplemented(op, UNKNOWN_KIND));
            };
            one(Value::compute(output_type(op), &shapes[0], |at| {
                function(a.number(&a.aligned(at, *start_a)), b.number(&b.aligned(at, *start_b)))
            }))
        }
    }
}

/// The op as a graph would take it: held against its schema row, with defaults for the attributes that are not set.
fn verified(op: &Op) -> Result<Op> {
    let mut op = op.clone();
    verify(&mut op)?;
    Ok(op)
}

fn meaning(op: &Op) -> Result<Meaning> {
    let row = MEANINGS.iter().find(|(kind, _)| *kind == op.kind());
    let &(_, meaning) = row.ok_or_else(|| unimplemented(op, UNKNOWN_KIND))?;
    let numbers = || op.inputs().iter().chain(op.outputs()).map(LogicalTensor::data_type);
    let mixed = numbers().any(|t| t == D::S32) && numbers().any(|t| t != D::S32 && t != D::Boolean);
    let computed = [D::F32, D::Bf16, D::F16, D::S32, D::Boolean];
    if !matches!(meaning, Whole(_)) && numbers().any(|data_type| !computed.contains(&data_type)) {
        return Err(unimplemented(op, "the reference interpreter does not compute with this type"));
    }
    if matches!(meaning, Binary(_)) && mixed {
        return Err(unimplemented(
            op,
            "the reference interpreter does not mix s32 with floating-point types",
        ));
    }
    Ok(meaning)
}

const UNKNOWN_KIND: &str = "the reference interpreter does not know ops of this kind";

fn unimplemented(op: &Op, reason: &'static str) -> Error {
    Error::Unimplemented { op: op.op_ref(), reason }
}

fn check_inputs(op: &Op, inputs: &[Value]) -> Result<()> {
    let (expected, given) = (op.inputs().len(), inputs.len());
    if given != expected {
        let fault = OpFault::Count { direction: Direction::Input, expected: expected.to_string(), given };
        return Err(Error::Op { op: op.op_ref(), fault });
    }
    for (port, value) in op.inputs().iter().zip(inputs) {
        let (expected, given) = (port.data_type(), value.data_type);
        if given != expected {
            return Err(Error::Tensor { id: port.id(), fault: TensorFault::ElementType { expected, given } });
        }
    }
    Ok(())
}

fn output_type(op: &Op) -> DataType {
    op.outputs()[0].data_type()
}

fn one(result: Result<Value>) -> Result<Vec<Value>> {
    Ok(vec![result?])
}

/// The larger number; NaN if either is one; 0 is larger than −0.
fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// For each element: the element of `then` where `cond` is not zero, else that of `else`. Bytes, never numbers.
fn select(op: &Op, inputs: &[Value], _: &[Dims]) -> Result<Vec<Value>> {
    let (cond, then, otherwise) = (&inputs[0], &inputs[1], &inputs[2]);
    let shapes = infer::select_shapes(op, &[cond.dims(), then.dims(), otherwise.dims()])?;
    let [cond_start, then_start, else_start] = shapes.starts;
    one(Value::gather(output_type(op), &shapes.result, |at| {
        if cond.element(&cond.aligned(at, cond_start)) != [0] {
            then.element(&then.aligned(at, then_start))
        } else {
            otherwise.element(&otherwise.aligned(at, else_start))
        }
    }))
}

/// Each element is the sum, in f64 and in order, of the products of a row and a column, plus `bias` if there is one.
fn matmul(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, weights, bias) = (&inputs[0], &inputs[1], inputs.get(2));
    let rows = Rows::of(src, op.bool_attr(Attr::TransposeA))?;
    let columns = Rows::of(weights, !op.bool_attr(Attr::TransposeB))?;
    one(Value::compute(output_type(op), &shapes[0], |at| {
        // A vector has no dim of its own in the result: it is the only row, or the only column.
        let mut batch = Index::from(at);
        let n = if weights.dims.len() == 1 { 0 } else { batch.pop().unwrap_or(0) };
        let m = if src.dims.len() == 1 { 0 } else { batch.pop().unwrap_or(0) };
        let products = rows.get(&batch, m).iter().zip(columns.get(&batch, n)).map(|(x, y)| x * y);
        products.sum::<f64>() + bias.map_or(0.0, |bias| bias.number(&bias.aligned_right(at)))
    }))
}

/// The rows of a batch of matrices, as numbers.
struct Rows {
    /// The shape of the batch, followed by the number of rows.
    dims: Dims,
    length: usize,
    numbers: Vec<f64>,
}

impl Rows {
    /// The rows of a value, or of its transpose; a vector is one row either way.
    fn of(value: &Value, transpose: bool) -> Result<Self> {
        let rank = value.dims.len();
        let mut order: Index = (0..rank).collect();
        let mut dims = value.dims.clone();
        if rank == 1 {
            dims.insert(0, 1);
        } else if transpose {
            order.swap(rank - 2, rank - 1);
            dims.swap(rank - 2, rank - 1);
        }
        let value = value.permuted(&order)?;
        let length = dims.pop().unwrap_or(1) as usize;
        let mut numbers = reserve(count(&value.dims))?;
        numbers.extend((0..count(&value.dims)).map(|n| value.number(&index_of(n, &value.dims))));
        Ok(Self { dims, length, numbers })
    }

    /// One row of the matrix that stands at a place in the batch, or that is repeated there.
    fn get(&self, batch: &[usize], row: usize) -> &[f64] {
        let own_batch = &self.dims[..self.dims.len() - 1];
        let mut index = aligned(batch, own_batch, batch.len() - own_batch.len());
        index.push(row);
        let first = place_of(&index, &self.dims) * self.length;
        &self.numbers[first..first + self.length]
    }
}

/// `exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max + log(sum)`.
///
/// Where all of a row is −inf, that gives NaN; under mode `inf_as_zero` it gives zeros, and −inf as the statistics.
fn softmax(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let src = &inputs[0];
    let axis = infer::resolved_axis(op, src.dims())?;
    let length = src.dims[axis] as usize;
    let inf_as_zero = op.str_attr(Attr::Mode) == Some("inf_as_zero");

    let mut row_dims = src.dims.clone();
    row_dims[axis] = 1;
    let numbers_of = |row: usize| {
        let mut at = index_of(row, &row_dims);
        (0..length).map(move |i| {
            at[axis] = i;
            src.number(&at)
        })
    };
    // Empty results need no row, and there may be too many of them to count.
    let row_count = if shapes.iter().all(|dims| count(dims) == 0) { 0 } else { count(&row_dims) };
    let mut rows = reserve(row_count)?;
    rows.extend((0..row_count).map(|row| {
        let max = numbers_of(row).fold(f64::NEG_INFINITY, f64::max);
        let max = if max == f64::NEG_INFINITY && inf_as_zero { 0.0 } else { max };
        let sum: f64 = numbers_of(row).map(|x| (x - max).exp()).sum();
        (max, sum)
    }));
    let row_of = |at: &[usize]| rows[place_of(&aligned(at, &row_dims, 0), &row_dims)];

    let dst = Value::compute(output_type(op), &shapes[0], |at| match row_of(at) {
        (_, 0.0) => 0.0,
        (max, sum) => (src.number(at) - max).exp() / sum,
    })?;
    let mut results = vec![dst];
    if let (Some(stats), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        results.push(Value::compute(stats.data_type(), dims, |at| {
            let (max, sum) = row_of(at);
            max + sum.ln()
        })?);
    }
    Ok(results)
}

/// Each element is its own index along the axis.
fn gen_index(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let axis = infer::resolved_axis(op, inputs[0].dims())?;
    if i32::try_from(inputs[0].dims[axis]).is_err() {
        return Err(unimplemented(op, "an index along the axis does not fit into s32"));
    }
    one(Value::compute(output_type(op), &shapes[0], |at| at[axis] as f64))
}

/// Adds to each element the number of its channel.
fn bias_add(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, bias) = (&inputs[0], &inputs[1]);
    let channel = infer::channel_axis(op, src.dims())?;
    one(Value::compute(output_type(op), &shapes[0], |at| src.number(at) + bias.number(&[at[channel]])))
}

/// Dim `i` of the result is dim `order[i]` of the input.
fn transpose(op: &Op, inputs: &[Value], _: &[Dims]) -> Result<Vec<Value>> {
    one(inputs[0].permuted(&infer::resolved_order(op, inputs[0].dims())?))
}

/// The elements of the input in the same order, in the shape of the output.
fn same_elements(_: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let src = &inputs[0];
    let mut bytes = reserve(src.bytes.len())?;
    bytes.extend_from_slice(&src.bytes);
    Ok(vec![Value { data_type: src.data_type, dims: shapes[0].clone(), bytes }])
}

/// One index a dim.
type Index = SmallVec<[usize; 6]>;

/// The number of elements of a shape that has been checked.
fn count(dims: &[i64]) -> usize {
    shape::element_count(dims).expect("checked when the value was made") as usize
}

/// The index of the n-th element in row-major order.
fn index_of(mut n: usize, dims: &[i64]) -> Index {
    let mut index = Index::from_elem(0, dims.len());
    for (i, &dim) in index.iter_mut().zip(dims).rev() {
        *i = n % dim as usize;
        n /= dim as usize;
    }
    index
}

/// Which element in row-major order stands at an index.
fn place_of(index: &[usize], dims: &[i64]) -> usize {
    index.iter().zip(dims).fold(0, |place, (&i, &dim)| place * dim as usize + i)
}

/// The index in an operand whose first dim stands at dim `start` of a result: a dim of 1 is repeated.
fn aligned(at: &[usize], dims: &[i64], start: usize) -> Index {
    dims.iter().zip(&at[start..]).map(|(&dim, &i)| if dim == 1 { 0 } else { i }).collect()
}

/// An empty vector with room for so many.
fn reserve<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let (size, align) = (count.saturating_mul(size_of::<T>()), align_of::<T>());
    room.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { size, align })?;
    Ok(room)
}

/// A tensor as plain data: its elements dense, in row-major order, in the byte order of the machine.
///
/// Values are equal where type, dims and all bits are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    data_type: DataType,
    dims: Dims,
    bytes: Vec<u8>,
}

impl Value {
    /// A value of the bytes of its elements.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a type without elements of whole bytes, for dims that no tensor has or that are unknown,
    /// and for bytes that are not as many as type and dims ask for.
    pub fn new(data_type: DataType, dims: &[i64], bytes: Vec<u8>) -> Result<Self> {
        let (needed, given) = (byte_count(data_type, dims)?, bytes.len());
        if given != needed {
            return Err(Error::Value(TensorFault::ByteCount { needed, given }));
        }
        Ok(Self { data_type, dims: dims.into(), bytes })
    }

    /// A value of elements in row-major order.
    ///
    /// # Errors
    ///
    /// As [`Value::new`].
    pub fn from_slice<T: InputElement>(dims: &[i64], elements: &[T]) -> Result<Self> {
        let given = bytes_of(elements);
        let mut bytes = reserve(given.len())?;
        bytes.extend_from_slice(given);
        Self::new(T::DATA_TYPE, dims, bytes)
    }

    /// Gathers the elements of a tensor, whatever its strides.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where dims or strides are not known or there is no memory; [`Error::OutOfMemory`].
    pub fn read(tensor: &Tensor<'_>) -> Result<Self> {
        let desc = tensor.desc();
        let fault = |fault| Error::Tensor { id: desc.id(), fault };
        let dims = desc.known_dims().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let strides = desc.strides().ok_or_else(|| fault(TensorFault::NotConcrete))?;
        let size = desc.data_type().size().ok_or_else(|| fault(TensorFault::NoElements(desc.data_type())))?;
        let bytes = tensor.bytes();
        let (needed, given) = (desc.span().unwrap_or(0), bytes.len() / size);
        if given < needed {
            return Err(fault(TensorFault::TooShort { needed, given }));
        }
        Self::gather(desc.data_type(), dims, |at| {
            let first = offset_of(at, strides) * size;
            &bytes[first..first + size]
        })
    }

    /// Scatters the elements into a tensor, whatever its strides; the bytes between its elements stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where the tensor has another type or other dims.
    pub fn write(&self, tensor: &mut TensorBuf) -> Result<()> {
        let desc = tensor.desc().clone();
        let fault = |fault| Error::Tensor { id: desc.id(), fault };
        if desc.data_type() != self.data_type {
            let (expected, given) = (desc.data_type(), self.data_type);
            return Err(fault(TensorFault::ElementType { expected, given }));
        }
        let (Some(dims), Some(strides)) = (desc.known_dims(), desc.strides()) else {
            return Err(fault(TensorFault::NotConcrete));
        };
        if dims != self.dims() {
            return Err(fault(TensorFault::Shape { expected: dims.into(), given: self.dims.clone() }));
        }
        let (size, bytes) = (self.element_size(), tensor.as_mut_bytes());
        for (n, element) in self.bytes.chunks_exact(size).enumerate() {
            let first = offset_of(&index_of(n, dims), strides) * size;
            bytes[first..first + size].copy_from_slice(element);
        }
        Ok(())
    }

    /// The type of the elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The dims.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes of the elements in row-major order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements in row-major order; `None` where `T` stands for another type.
    pub fn elements<T: Element>(&self) -> Option<Vec<T>> {
        let of_this_type = <T as Element>::DATA_TYPE == self.data_type;
        of_this_type.then(|| self.bytes.chunks_exact(self.element_size()).filter_map(element_of).collect())
    }

    /// A value whose element at each index is some element's bytes.
    fn gather<'a>(data_type: DataType, dims: &[i64], element: impl Fn(&[usize]) -> &'a [u8]) -> Result<Self> {
        let mut bytes = reserve(byte_count(data_type, dims)?)?;
        for n in 0..count(dims) {
            bytes.extend_from_slice(element(&index_of(n, dims)));
        }
        Ok(Self { data_type, dims: dims.into(), bytes })
    }

    /// A value whose element at each index is a number, rounded to the type.
    fn compute(data_type: DataType, dims: &[i64], number: impl Fn(&[usize]) -> f64) -> Result<Self> {
        let mut bytes = reserve(byte_count(data_type, dims)?)?;
        for n in 0..count(dims) {
            encode(number(&index_of(n, dims)), data_type, &mut bytes);
        }
        Ok(Self { data_type, dims: dims.into(), bytes })
    }

    /// The value whose dim `i` is dim `order[i]` of this one.
    fn permuted(&self, order: &[usize]) -> Result<Self> {
        let dims: Dims = order.iter().map(|&axis| self.dims[axis]).collect();
        let source = |at: &[usize]| {
            let mut index = Index::from_elem(0, at.len());
            order.iter().zip(at).for_each(|(&axis, &i)| index[axis] = i);
            self.element(&index)
        };
        Self::gather(self.data_type, &dims, source)
    }

    fn element_size(&self) -> usize {
        self.data_type.bits() / 8
    }

    /// The bytes of the element at an index.
    fn element(&self, index: &[usize]) -> &[u8] {
        let first = place_of(index, &self.dims) * self.element_size();
        &self.bytes[first..first + self.element_size()]
    }

    /// The number at an index.
    fn number(&self, index: &[usize]) -> f64 {
        decode(self.element(index), self.data_type)
    }

    /// The index in this operand, whose first dim stands at dim `start` of a result.
    fn aligned(&self, at: &[usize], start: usize) -> Index {
        aligned(at, &self.dims, start)
    }

    /// The index in this operand, whose last dim stands at the last dim of a result.
    fn aligned_right(&self, at: &[usize]) -> Index {
        self.aligned(at, at.len() - self.dims.len())
    }
}

/// How many bytes the elements of a dense tensor have.
fn byte_count(data_type: DataType, dims: &[i64]) -> Result<usize> {
    let of_value = |error| match error {
        Error::Tensor { fault, .. } => Error::Value(fault),
        other => other,
    };
    let size = data_type.size().ok_or(Error::Value(TensorFault::NoElements(data_type)))?;
    let desc = LogicalTensor::any(0, data_type, dims).map_err(of_value)?;
    let elements = desc.element_count().ok_or(Error::Value(TensorFault::NotConcrete))?;
    Ok(elements * size)
}

/// How many elements lie between the first element and the one at an index.
fn offset_of(index: &[usize], strides: &[i64]) -> usize {
    index.iter().zip(strides).map(|(&i, &stride)| i * stride as usize).sum()
}

/// The number that the bytes of an element stand for.
fn decode(bytes: &[u8], data_type: DataType) -> f64 {
    let number = match data_type {
        D::F32 => element_of::<f32>(bytes).map(f64::from),
        D::Bf16 => element_of::<half::bf16>(bytes).map(f64::from),
        D::F16 => element_of::<half::f16>(bytes).map(f64::from),
        D::S32 => element_of::<i32>(bytes).map(f64::from),
        _ => None,
    };
    number.expect("the ops that compute take f32, bf16, f16 and s32 alone")
}

/// Appends the bytes of the element that a number is rounded to; an s32 wraps around.
fn encode(number: f64, data_type: DataType, bytes: &mut Vec<u8>) {
    let rounded = if number.is_nan() { f32::NAN } else { number as f32 };
    match data_type {
        D::F32 => bytes.extend_from_slice(bytes_of(&[rounded])),
        D::Bf16 => bytes.extend_from_slice(bytes_of(&[half::bf16::from_f32(rounded)])),
        D::F16 => bytes.extend_from_slice(bytes_of(&[half::f16::from_f32(rounded)])),
        D::S32 => bytes.extend_from_slice(bytes_of(&[number as i64 as i32])),
        D::Boolean => bytes.push(u8::from(number != 0.0)),
        other => unreachable!("no op that computes gives {other}"),
    }
}
