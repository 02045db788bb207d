//! Matrix products.

use super::number::{HALF_A_UNIT, dense_value, floats, numbers_of};
use super::odometer::{Odometer, in_pieces};
use super::value::{Value, count, one, zeroed};
use crate::error::Result;
use crate::graph::op::Op;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// Number of columns computed side by side. Each column has its sum, so the order of the terms stays.
const COLUMNS: usize = 8;

/// How many rows one task works out.
const ROWS: usize = 64;

/// The sum of the products of each row and each column, plus `bias` if there is one, rounded once. A row of
/// no elements sums up to 0.
///
/// A vector is a row on the left and a column on the right, transposed or not, and adds no dim to the result.
/// The dims before the last two broadcast to each other as in NumPy; `bias` broadcasts one way onto the
/// result.
///
/// If the CPU multiplies pairs of bf16, a compiled product of bf16 takes subnormal numbers for 0.
pub(super) fn matmul(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let sums = sums(op, inputs, &shapes[0], |x| x)?;
    one(dense_value(&sums, op.outputs()[0].data_type(), &shapes[0]))
}

/// How far the sums may be off that f32 adds up in another order: for each, the number of its terms times
/// half a unit in the last place of the sum of their sizes.
pub(super) fn bounds(op: &Op, inputs: &[Value], result: &[i64]) -> Result<Vec<f64>> {
    let terms = terms(op, inputs[0].dims(), inputs.len());
    let mut sums = sums(op, inputs, result, f64::abs)?;
    sums.iter_mut().for_each(|sum| *sum *= terms * HALF_A_UNIT);
    Ok(sums)
}

/// How many terms each sum has.
pub(super) fn terms(op: &Op, src: &[i64], inputs: usize) -> f64 {
    let last = src.len() - 1;
    let columns = if op.bool_attr(Attr::TransposeA) && last > 0 { src[last - 1] } else { src[last] };
    columns as f64 + f64::from(inputs > 2)
}

/// The sums of products and bias of a function of each number.
pub(super) fn sums(op: &Op, inputs: &[Value], result: &[i64], of: fn(f64) -> f64) -> Result<Vec<f64>> {
    let (src, weights, bias) = (&inputs[0], &inputs[1], inputs.get(2));
    let rows = Matrices::of(src, op.bool_attr(Attr::TransposeA), of)?;
    let columns = Matrices::of(weights, !op.bool_attr(Attr::TransposeB), of)?;
    let own_dims = usize::from(src.dims().len() > 1) + usize::from(weights.dims().len() > 1);
    let batch = &result[..result.len() - own_dims];

    let mut sums = zeroed(count(result))?;
    let (m, n, k) = (rows.count, columns.count, rows.length);
    in_pieces(&mut sums, m * n, |at, sums| {
        let (rows, columns) = (rows.matrix(batch, at), columns.matrix(batch, at));
        in_pieces(sums, ROWS * n, |piece, sums| {
            let first = piece * ROWS * k;
            multiply(&rows[first..first + sums.len() / n * k], columns, k, sums);
        });
    });
    if let Some(bias) = bias {
        let odometer = Odometer::broadcast(bias.dims(), result, result.len() - bias.dims().len());
        let mut addends = zeroed(sums.len())?;
        floats(bias, &odometer, 0..sums.len(), &mut addends);
        sums.iter_mut().zip(addends).for_each(|(sum, addend)| *sum += of(addend));
    }
    Ok(sums)
}

/// A batch of matrices as numbers, row by row.
pub(super) struct Matrices {
    batch: Dims,
    /// How many rows a matrix has, and how many numbers a row.
    pub(super) count: usize,
    pub(super) length: usize,
    numbers: Vec<f64>,
}

impl Matrices {
    /// The matrices of a function of each number, or their transposes; a vector is one row either way.
    pub(super) fn of(value: &Value, transpose: bool, of: fn(f64) -> f64) -> Result<Self> {
        let rank = value.dims().len();
        let mut order: Vec<usize> = (0..rank).collect();
        if transpose && rank > 1 {
            order.swap(rank - 2, rank - 1);
        }
        let mut numbers = numbers_of(value, &Odometer::permuted(value.dims(), &order))?;
        numbers.iter_mut().for_each(|number| *number = of(*number));
        let mut dims: Dims = order.iter().map(|&axis| value.dims()[axis]).collect();
        let length = dims.pop().unwrap_or(1) as usize;
        let count = dims.pop().unwrap_or(1) as usize;
        Ok(Self { batch: dims, count, length, numbers })
    }

    /// The matrix of a place in a batch onto which these broadcast.
    pub(super) fn matrix(&self, batch: &[i64], at: usize) -> &[f64] {
        let odometer = Odometer::broadcast(&self.batch, batch, batch.len() - self.batch.len());
        let mut own = [0];
        odometer.read(at..at + 1, &mut own, |place| place);
        let size = self.count * self.length;
        &self.numbers[own[0] * size..][..size]
    }
}

/// The product of rows and columns of `k` numbers each, all contiguous.
fn multiply(rows: &[f64], columns: &[f64], k: usize, sums: &mut [f64]) {
    if k == 0 {
        return;
    }
    let n = columns.len() / k;
    for (block, columns) in columns.chunks(COLUMNS * k).enumerate() {
        for (row, sums) in rows.chunks_exact(k).zip(sums.chunks_exact_mut(n)) {
            let sums = &mut sums[block * COLUMNS..];
            match columns.len() / k {
                COLUMNS => sums[..COLUMNS].copy_from_slice(&dots::<COLUMNS>(row, columns)),
                _ => columns.chunks_exact(k).zip(sums).for_each(|(column, sum)| {
                    [*sum] = dots(row, column);
                }),
            }
        }
    }
}

/// The sums of the products of a row and some columns.
fn dots<const N: usize>(row: &[f64], columns: &[f64]) -> [f64; N] {
    let k = row.len();
    let columns: [&[f64]; N] = std::array::from_fn(|i| &columns[i * k..][..k]);
    let mut sums = [0.0; N];
    for (at, x) in row.iter().enumerate() {
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum += x * column[at];
        }
    }
    sums
}
