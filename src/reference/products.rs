//! Matrix products.

use super::number::{HALF_A_UNIT, dense_value, floats};
use super::odometer::{Odometer, dense, in_pieces};
use super::value::{Value, count, one, zeroed};
use crate::error::Result;
use crate::graph::op::Op;
use crate::kernels::wide::{PlainLoops, in_wide_registers};
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::{self, Dims};

/// How many rows and columns are multiplied side by side (decision: reference-products). Each pair has its
/// own sum, so the order of the terms stays.
const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// How many rows one task works out.
const ROWS_OF_TASK: usize = 256;

/// The sum of the products of each row and each column, plus `bias` if there is one, rounded once. A row of
/// no elements sums up to 0.
///
/// A vector is a row on the left and a column on the right, transposed or not, and adds no dim to the result.
/// The dims before the last two broadcast to each other as in NumPy; `bias` broadcasts one way onto the
/// result.
///
/// If the CPU multiplies pairs of bf16, a compiled product of bf16 takes subnormal numbers for 0. A compiled
/// product of operands that Dequantize makes of u8 or s8 adds up the integers exactly, in s32 if no sum can
/// leave s32 and each column has one scale.
pub(super) fn matmul(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let sums = sums(op, inputs, &shapes[0], |x| x)?;
    one(dense_value(&sums, op.outputs()[0].data_type(), &shapes[0]))
}

/// How far the sums may be off that f32 adds up in another order: for each, the number of its terms times
/// half a unit in the last place of the sum of their sizes. Of f64, both are sums in f64, so that it is a
/// whole unit of that.
pub(super) fn bounds(op: &Op, inputs: &[Value], result: &[i64]) -> Result<Vec<f64>> {
    let terms = terms(op, inputs[0].dims(), inputs.len());
    let mut sums = sums(op, inputs, result, f64::abs)?;
    let unit = if op.inputs()[0].data_type() == DataType::F64 { f64::EPSILON } else { HALF_A_UNIT };
    sums.iter_mut().for_each(|sum| *sum *= terms * unit);
    Ok(sums)
}

/// How many terms each sum has.
pub(super) fn terms(op: &Op, src: &[i64], inputs: usize) -> f64 {
    let last = src.len() - 1;
    let columns = if op.bool_attr(Attr::TransposeA) && last > 0 { src[last - 1] } else { src[last] };
    columns as f64 + f64::from(inputs > 2)
}

/// The sums of products and bias of a function of each number.
fn sums(op: &Op, inputs: &[Value], result: &[i64], of: fn(f64) -> f64) -> Result<Vec<f64>> {
    let product = MatrixSums::of(op, [inputs[0].dims(), inputs[1].dims()], result);
    let read = |value: &Value, odometer: &Odometer, into: &mut [[f64; 1]]| {
        let mut numbers = vec![0.0; into.len()];
        floats(value, odometer, 0..into.len(), &mut numbers);
        into.iter_mut().zip(numbers).for_each(|(into, number)| *into = [of(number)]);
    };
    let mut sums = zeroed(count(result))?;
    in_pieces(&mut sums, product.elements_of_task(), |task, sums| {
        let factors =
            [0, 1].map(|i| move |odometer: &Odometer, into: &mut [_]| read(&inputs[i], odometer, into));
        product.rows(task * ROWS_OF_TASK, sums, &factors, |_, [sum]| sum);
    });
    if let Some(bias) = inputs.get(2) {
        let odometer = Odometer::broadcast(bias.dims(), result, result.len() - bias.dims().len());
        let mut addends = zeroed(sums.len())?;
        floats(bias, &odometer, 0..sums.len(), &mut addends);
        sums.iter_mut().zip(addends).for_each(|(sum, addend)| *sum += of(addend));
    }
    Ok(sums)
}

/// A batch of products of rows and columns, and where those lie.
pub(super) struct MatrixSums {
    /// The numbers of rows, of columns, and of terms of a sum.
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    rows: Lines,
    columns: Lines,
}

/// The rows of the left operand, or the columns of the right one.
struct Lines {
    /// The way to the first element of each matrix.
    matrices: Odometer,
    /// How many elements apart two lines are, and two elements of a line.
    step: usize,
    stride: usize,
}

impl MatrixSums {
    /// The product of operands of two shapes, which has the shape `result`.
    pub(super) fn of(op: &Op, dims: [&[i64]; 2], result: &[i64]) -> Self {
        let own_dims = dims.iter().filter(|dims| dims.len() > 1).count();
        let batch = &result[..result.len() - own_dims];
        let [(m, k, rows), (n, _, columns)] = [
            Lines::of(dims[0], op.bool_attr(Attr::TransposeA), batch),
            Lines::of(dims[1], !op.bool_attr(Attr::TransposeB), batch),
        ];
        Self { m, n, k, rows, columns }
    }

    /// How many elements of the result one task works out, all of whole rows.
    pub(super) fn elements_of_task(&self) -> usize {
        ROWS_OF_TASK * self.n
    }

    /// Works out some rows of all matrices, counted from the first row of the first matrix: of `N` sums of
    /// products of each row and column a function makes an element. Each operand is given by a function that
    /// reads `N` factors of each element that an odometer visits.
    pub(super) fn rows<T, const N: usize>(
        &self,
        first: usize,
        results: &mut [T],
        factors: &[impl Fn(&Odometer, &mut [[f64; N]]); 2],
        result: impl Fn(usize, [f64; N]) -> T,
    ) {
        let mut row = first;
        let mut results = results;
        while !results.is_empty() {
            // A task may end one matrix and begin the next.
            let (matrix, in_matrix) = (row / self.m, row % self.m);
            let count = (self.m - in_matrix).min(results.len() / self.n);
            let (own, others) = std::mem::take(&mut results).split_at_mut(count * self.n);
            results = others;
            let at = row * self.n;
            self.rows_of_matrix(matrix, in_matrix, own, factors, |i, sums| result(at + i, sums));
            row += count;
        }
    }

    fn rows_of_matrix<T, const N: usize>(
        &self,
        matrix: usize,
        first: usize,
        results: &mut [T],
        factors: &[impl Fn(&Odometer, &mut [[f64; N]]); 2],
        result: impl Fn(usize, [f64; N]) -> T,
    ) {
        let (n, k) = (self.n, self.k);
        let count = results.len() / n;
        let mut rows = vec![[0.0; N]; count * k];
        factors[0](&self.rows.of_matrix(matrix, first, count, k), &mut rows);
        let rows = parts(&rows);
        let (mut read, mut panel) = (vec![[0.0; N]; COLUMNS * k], vec![[0.0; COLUMNS]; k]);
        let mut sums = vec![[[0.0; COLUMNS]; N]; count];
        for first in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - first);
            let read = &mut read[..columns * k];
            // Neighbours in memory are read one after the other.
            let by_step = self.columns.step < self.columns.stride;
            let lines = self.columns.of_matrix(matrix, first, columns, k);
            factors[1](&if by_step { lines.swapped() } else { lines }, read);
            for part in 0..N {
                // The terms of a step lie side by side.
                for (step, terms) in panel.iter_mut().enumerate() {
                    for (column, term) in terms[..columns].iter_mut().enumerate() {
                        *term = read[if by_step { step * columns + column } else { column * k + step }][part];
                    }
                }
                in_wide_registers(PanelSums { rows: &rows[part], panel: &panel, part, sums: &mut sums });
            }
            for (row, sums) in sums.iter().enumerate() {
                let first = row * n + first;
                for (column, place) in results[first..first + columns].iter_mut().enumerate() {
                    *place = result(first + column, std::array::from_fn(|part| sums[part][column]));
                }
            }
        }
    }

    /// The way over the rows of the left operand of a matrix of the result, and over the columns of the right
    /// one.
    pub(super) fn lines(&self, matrix: usize) -> [Odometer; 2] {
        [self.rows.of_matrix(matrix, 0, self.m, self.k), self.columns.of_matrix(matrix, 0, self.n, self.k)]
    }
}

impl Lines {
    /// How many lines a matrix has, how many elements a line, and where they are. A line is a row, or with
    /// `transpose` a column; a vector is one line either way.
    fn of(dims: &[i64], transpose: bool, batch: &[i64]) -> (usize, usize, Self) {
        let (own, matrix) = dims.split_at(dims.len().saturating_sub(2));
        let (rows, columns) = match *matrix {
            [rows, columns] => (rows as usize, columns as usize),
            _ => (1, count(dims)),
        };
        let size = rows * columns;
        let strides = shape::access_strides(own, &dense(own), batch, batch.len() - own.len());
        let strides: Dims = strides.iter().map(|stride| stride.wrapping_mul(size as i64)).collect();
        let matrices = Odometer::of(batch, &strides);
        match transpose && matrix.len() == 2 {
            true => (columns, rows, Self { matrices, step: 1, stride: columns }),
            false => (rows, columns, Self { matrices, step: columns, stride: 1 }),
        }
    }

    /// The way over some lines of a matrix, of so many elements each.
    fn of_matrix(&self, matrix: usize, first: usize, count: usize, length: usize) -> Odometer {
        let mut start = [0];
        self.matrices.read(matrix..matrix + 1, &mut start, |place| place);
        Odometer::new([(count, self.step), (length, self.stride)]).starting_at(start[0] + first * self.step)
    }
}

/// The first of each `N` numbers, the second, and so on.
fn parts<const N: usize>(numbers: &[[f64; N]]) -> [Vec<f64>; N] {
    std::array::from_fn(|part| numbers.iter().map(|numbers| numbers[part]).collect())
}

/// The products of rows of as many numbers as the panel has steps, and the columns of the panel: one part of
/// the sums.
struct PanelSums<'a, const N: usize> {
    rows: &'a [f64],
    panel: &'a [[f64; COLUMNS]],
    part: usize,
    sums: &'a mut [[[f64; COLUMNS]; N]],
}

impl<const N: usize> PlainLoops for PanelSums<'_, N> {
    #[inline(always)]
    fn run(self) {
        let (k, part) = (self.panel.len(), self.part);
        if k == 0 {
            return;
        }
        let (blocks, rest) = self.sums.split_at_mut(self.sums.len() / ROWS * ROWS);
        let (rows_of_blocks, rows_of_rest) = self.rows.split_at(blocks.len() * k);
        for (rows, sums) in rows_of_blocks.chunks_exact(ROWS * k).zip(blocks.chunks_exact_mut(ROWS)) {
            let of_rows = dots::<ROWS>(rows, self.panel);
            sums.iter_mut().zip(of_rows).for_each(|(sums, of_row)| sums[part] = of_row);
        }
        for (row, sums) in rows_of_rest.chunks_exact(k).zip(rest) {
            [sums[part]] = dots(row, self.panel);
        }
    }
}

/// The sums of the products of some rows and the columns of a panel.
#[inline(always)]
fn dots<const N: usize>(rows: &[f64], panel: &[[f64; COLUMNS]]) -> [[f64; COLUMNS]; N] {
    let k = panel.len();
    let rows: [&[f64]; N] = std::array::from_fn(|row| &rows[row * k..][..k]);
    let mut sums = [[0.0; COLUMNS]; N];
    for (step, columns) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = row[step];
            sums.iter_mut().zip(columns).for_each(|(sum, column)| *sum += x * column);
        }
    }
    sums
}
