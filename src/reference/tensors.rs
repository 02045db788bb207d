//! Ops whose elements need more of an input than one element.

use super::number::{self, Number};
use super::one;
use super::value::{Index, Value, aligned, count, index_of, place_of, reserve};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// Each element is the sum, in f64 and in order, of the products of a row and a column, plus `bias` if there
/// is one.
pub(super) fn matmul(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, weights, bias) = (&inputs[0], &inputs[1], inputs.get(2));
    let rows = Rows::of(src, op.bool_attr(Attr::TransposeA))?;
    let columns = Rows::of(weights, !op.bool_attr(Attr::TransposeB))?;
    one(computed(op.outputs()[0].data_type(), &shapes[0], |at| {
        // A vector has no dim of its own in the result: it is the only row, or the only column.
        let mut batch = Index::from(at);
        let n = if weights.dims().len() == 1 { 0 } else { batch.pop().unwrap_or(0) };
        let m = if src.dims().len() == 1 { 0 } else { batch.pop().unwrap_or(0) };
        let products = rows.get(&batch, m).iter().zip(columns.get(&batch, n)).map(|(x, y)| x * y);
        products.sum::<f64>()
            + bias.map_or(0.0, |bias| number(bias, &bias.aligned(at, at.len() - bias.dims().len())))
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
        let rank = value.dims().len();
        let mut order: Index = (0..rank).collect();
        let mut dims = Dims::from(value.dims());
        if rank == 1 {
            dims.insert(0, 1);
        } else if transpose {
            order.swap(rank - 2, rank - 1);
            dims.swap(rank - 2, rank - 1);
        }
        let value = value.permuted(&order)?;
        let length = dims.pop().unwrap_or(1) as usize;
        let mut numbers = reserve(count(value.dims()))?;
        numbers.extend((0..count(value.dims())).map(|n| number(&value, &index_of(n, value.dims()))));
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
/// Where all of a row is −inf, that gives NaN; under mode `inf_as_zero` it gives zeros, and −inf as the
/// statistics.
pub(super) fn softmax(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let src = &inputs[0];
    let axis = infer::resolved_axis(op, src.dims())?;
    let length = src.dims()[axis] as usize;
    let inf_as_zero = op.str_attr(Attr::Mode) == Some("inf_as_zero");

    let mut row_dims = Dims::from(src.dims());
    row_dims[axis] = 1;
    let numbers_of = |row: usize| {
        let mut at = index_of(row, &row_dims);
        (0..length).map(move |i| {
            at[axis] = i;
            number(src, &at)
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

    let dst = computed(op.outputs()[0].data_type(), &shapes[0], |at| match row_of(at) {
        (_, 0.0) => 0.0,
        (max, sum) => (number(src, at) - max).exp() / sum,
    })?;
    let mut results = vec![dst];
    if let (Some(stats), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        results.push(computed(stats.data_type(), dims, |at| {
            let (max, sum) = row_of(at);
            max + sum.ln()
        })?);
    }
    Ok(results)
}

/// Dim `i` of the result is dim `order[i]` of the input.
pub(super) fn transpose(op: &Op, inputs: &[Value], _: &[Dims]) -> Result<Vec<Value>> {
    one(inputs[0].permuted(&infer::resolved_order(op, inputs[0].dims())?))
}

/// The elements of the input in the same order, in the shape of the output.
pub(super) fn same_elements(_: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    one(inputs[0].reshaped(&shapes[0]))
}

/// The floating-point number at an index.
fn number(value: &Value, index: &[usize]) -> f64 {
    Number::of(value.data_type(), value.element(index)).float()
}

/// A value whose element at each index is a number, rounded to f32 and from there to the type.
fn computed(data_type: DataType, dims: &[i64], number: impl Fn(&[usize]) -> f64) -> Result<Value> {
    Value::compute(data_type, dims, |at, bytes| number::append_arithmetic(number(at), data_type, bytes))
}
