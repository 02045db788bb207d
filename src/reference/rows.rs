//! Ops that work on rows: what lies along some axes of a tensor, one result or one row of results for each.

use rayon::prelude::*;

use super::value::{Value, count, reserve};
use super::walk::{CHUNK, Walk};
use super::{numbers_of, value_of};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::Attr;
use crate::types::shape::Dims;

/// A tensor cut into rows: what lies along some of its axes, for each place along the others.
struct Rows {
    /// The axes of the tensor: those of the places, then those along which rows lie.
    order: Vec<usize>,
    count: usize,
    length: usize,
}

impl Rows {
    fn along(axes: &[usize], dims: &[i64]) -> Self {
        let mut order: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
        let product = |axes: &[usize]| {
            let dims: Dims = axes.iter().map(|&axis| dims[axis]).collect();
            count(&dims)
        };
        let (count, length) = (product(&order), product(axes));
        order.extend(axes);
        Self { order, count, length }
    }

    /// The numbers of a tensor of these dims, row by row.
    fn numbers(&self, value: &Value) -> Result<Vec<f64>> {
        numbers_of(value, &self.order)
    }

    /// Makes a tensor of these dims of numbers that are given row by row.
    fn value(&self, numbers: &[f64], data_type: DataType, dims: &[i64]) -> Result<Value> {
        let mut strides = Dims::from_elem(0, dims.len());
        let mut stride = 1i64;
        for &axis in self.order.iter().rev() {
            strides[axis] = stride;
            stride = stride.wrapping_mul(dims[axis]);
        }
        value_of(numbers, &Walk::of(dims, &strides), data_type, dims)
    }

    /// One result for each row.
    fn reduce<T: Send>(&self, numbers: &[f64], of_row: impl Fn(&[f64]) -> T + Sync + Send) -> Result<Vec<T>> {
        let mut results = reserve(self.count)?;
        let row = |i: usize| of_row(&numbers[i * self.length..][..self.length]);
        if numbers.len() <= CHUNK {
            results.extend((0..self.count).map(row));
        } else {
            (0..self.count).into_par_iter().map(row).collect_into_vec(&mut results);
        }
        Ok(results)
    }

    /// Works on each row and what belongs to it.
    fn each<T: Sync>(&self, numbers: &mut [f64], of_rows: &[T], work: impl Fn(&mut [f64], &T) + Sync + Send) {
        if numbers.len() <= CHUNK {
            numbers.chunks_exact_mut(self.length.max(1)).zip(of_rows).for_each(|(row, own)| work(row, own));
        } else {
            numbers.par_chunks_exact_mut(self.length).zip(of_rows).for_each(|(row, own)| work(row, own));
        }
    }
}

/// The rows along the attribute `axis`.
fn rows_along_axis(op: &Op, dims: &[i64]) -> Result<Rows> {
    Ok(Rows::along(&[infer::resolved_axis(op, dims)?], dims))
}

/// `exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max + ln(sum)`.
///
/// A row that is −inf throughout gives NaN under `mode` = `none`; under `inf_as_zero` it gives zeros, and its
/// statistics are 0. A row that holds NaN or ∞ gives NaN. A row of no elements has −∞ as its statistics, under
/// `inf_as_zero` 0.
pub(super) fn softmax(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, dst) = (&inputs[0], op.outputs()[0].data_type());
    let rows = rows_along_axis(op, src.dims())?;
    let inf_as_zero = op.str_attr(Attr::Mode) == Some("inf_as_zero");
    let mut numbers = rows.numbers(src)?;
    let maxima = rows.reduce(&numbers, |row| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY && inf_as_zero { 0.0 } else { max }
    })?;
    rows.each(&mut numbers, &maxima, |row, max| row.iter_mut().for_each(|x| *x = (*x - max).exp()));
    let sums = rows.reduce(&numbers, |row| row.iter().sum::<f64>())?;
    rows.each(&mut numbers, &sums, |row, &sum| {
        row.iter_mut().for_each(|x| *x = if sum == 0.0 { 0.0 } else { *x / sum });
    });
    let mut results = vec![rows.value(&numbers, dst, &shapes[0])?];
    if let (Some(stats), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        let of_row = |(max, sum): (&f64, &f64)| if *sum == 0.0 && inf_as_zero { 0.0 } else { max + sum.ln() };
        let all: Vec<f64> = maxima.iter().zip(&sums).map(of_row).collect();
        results.push(dense_value(&all, stats.data_type(), dims)?);
    }
    Ok(results)
}

/// Every axis, in order.
fn all_axes(dims: &[i64]) -> Vec<usize> {
    (0..dims.len()).collect()
}

/// A value of numbers in row-major order.
fn dense_value(numbers: &[f64], data_type: DataType, dims: &[i64]) -> Result<Value> {
    value_of(numbers, &Walk::permuted(dims, &all_axes(dims)), data_type, dims)
}
