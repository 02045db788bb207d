//! Ops that work on rows: what lies along some axes of a tensor, one result or one row of results for each.

use std::ops::Add;

#[cfg(feature = "threads")]
use rayon::prelude::*;

use super::functions::{maximum, minimum};
use super::number::{
    HALF_A_UNIT, dense_value, floats, integers, is_integer, numbers_of, store_integers, value_of,
};
use super::odometer::{CHUNK, Odometer};
use super::value::{Value, count, one, reserve, zeroed};
use crate::error::Result;
use crate::graph::infer;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{self, Dims};

/// A tensor cut into rows: what lies along some of its axes, for each place along the others.
pub(super) struct Rows {
    /// The axes of the tensor: those of the places, then those along which rows lie.
    order: Vec<usize>,
    dims: Dims,
    pub(super) count: usize,
    pub(super) length: usize,
}

impl Rows {
    /// The rows along some axes of dims, in whose order their elements come.
    pub(super) fn along(axes: &[usize], dims: &[i64]) -> Self {
        let mut order: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
        // If another dim is 0, the product of some dims may be more than can be counted.
        let of_axes = |axes: &[usize]| axes.iter().map(|&axis| dims[axis]).collect::<Dims>();
        let product = |axes: &[usize]| match shape::element_count(&of_axes(axes)) {
            Some(count) => count as usize,
            None => usize::MAX,
        };
        let (count, length) = (product(&order), product(axes));
        order.extend(axes);
        Self { order, dims: dims.into(), count, length }
    }

    /// The numbers of a tensor, row by row.
    pub(super) fn numbers(&self, value: &Value) -> Result<Vec<f64>> {
        numbers_of(value, &self.odometer())
    }

    /// The way over the elements of a tensor, row by row.
    pub(super) fn odometer(&self) -> Odometer {
        Odometer::permuted(&self.dims, &self.order)
    }

    /// How many elements some rows have that are worth a task.
    pub(super) fn elements_of_task(&self) -> usize {
        (CHUNK / self.length.max(1)).max(1).saturating_mul(self.length)
    }

    /// Puts the elements of a value, which come row by row, to their places in a tensor.
    pub(super) fn placed(&self, value: Value, dims: &[i64]) -> Result<Value> {
        match self.order.is_sorted() {
            true => Ok(value.reshaped(dims)),
            false => Value::reordered(value.data_type(), dims, &self.back(), value.bytes()),
        }
    }

    /// The way over elements that come row by row, in the order of the tensor.
    fn back(&self) -> Odometer {
        let mut strides = Dims::from_elem(0, self.dims.len());
        let mut stride = 1i64;
        for &axis in self.order.iter().rev() {
            strides[axis] = stride;
            stride = stride.wrapping_mul(self.dims[axis]);
        }
        Odometer::of(&self.dims, &strides)
    }

    /// Makes a tensor of numbers that are given row by row; its dims may part the elements in another way.
    pub(super) fn value(&self, numbers: &[f64], data_type: DataType, dims: &[i64]) -> Result<Value> {
        value_of(numbers, &self.back(), data_type, dims)
    }

    /// One result for each row.
    fn reduce<T: Send>(&self, numbers: &[f64], of_row: impl Fn(&[f64]) -> T + Sync + Send) -> Result<Vec<T>> {
        let mut results = reserve(self.count)?;
        let row = |i: usize| of_row(&numbers[i * self.length..][..self.length]);
        #[cfg(feature = "threads")]
        if numbers.len() > CHUNK {
            (0..self.count).into_par_iter().map(row).collect_into_vec(&mut results);
            return Ok(results);
        }
        results.extend((0..self.count).map(row));
        Ok(results)
    }

    /// Each row.
    pub(super) fn slices<'a>(&self, numbers: &'a [f64]) -> Result<Vec<&'a [f64]>> {
        let mut rows = reserve(self.count)?;
        rows.extend((0..self.count).map(|i| &numbers[i * self.length..][..self.length]));
        Ok(rows)
    }

    /// Works on each row and what belongs to it.
    pub(super) fn each<T: Send>(
        &self,
        numbers: &mut [f64],
        of_rows: &mut [T],
        work: impl Fn(&mut [f64], &mut T) + Sync + Send,
    ) {
        if self.length == 0 && size_of::<T>() == 0 {
            // Rows without elements that own nothing are as many as dims allow, and nothing comes of them.
        } else if self.length == 0 {
            of_rows.iter_mut().for_each(|own| work(&mut [], own));
        } else {
            #[cfg(feature = "threads")]
            if numbers.len() > CHUNK {
                let rows = numbers.par_chunks_exact_mut(self.length).zip(of_rows);
                return rows.for_each(|(row, own)| work(row, own));
            }
            numbers.chunks_exact_mut(self.length).zip(of_rows).for_each(|(row, own)| work(row, own));
        }
    }
}

/// The rows along the attribute `axis`.
pub(super) fn rows_along_axis(op: &Op, dims: &[i64]) -> Result<Rows> {
    Ok(Rows::along(&[infer::resolved_axis(op, dims)?], dims))
}

/// `exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max + ln(sum)`.
///
/// A row that is −inf throughout gives NaN under `mode` = `none`; under `inf_as_zero` it gives zeros, and its
/// statistics are 0. A row that holds NaN or ∞ gives NaN. A row of no elements has −∞ as its statistics,
/// under `inf_as_zero` 0.
///
/// Partitions compute in f32: a result is off by at most 32 half units in its last place, and one more for
/// each 1 that its element is below the maximum.
pub(super) fn softmax(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, dst) = (&inputs[0], op.outputs()[0].data_type());
    let rows = rows_along_axis(op, src.dims())?;
    let inf_as_zero = op.str_attr(Attr::Mode) == Some("inf_as_zero");
    let mut numbers = rows.numbers(src)?;
    let mut statistics = zeroed(rows.count)?;
    rows.each(&mut numbers, &mut statistics, |row, statistic| {
        let max = largest(row);
        let max = if max == f64::NEG_INFINITY && inf_as_zero { 0.0 } else { max };
        row.iter_mut().for_each(|x| *x = (*x - max).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|x| *x = if sum == 0.0 { 0.0 } else { *x / sum });
        *statistic = if sum == 0.0 && inf_as_zero { 0.0 } else { max + sum.ln() };
    });
    let mut results = vec![rows.value(&numbers, dst, &shapes[0])?];
    if let (Some(stats), Some(dims)) = (op.outputs().get(1), shapes.get(1)) {
        results.push(dense_value(&statistics, stats.data_type(), dims)?);
    }
    Ok(results)
}

/// The largest number of a row, without those that are none; of nothing it is −∞.
fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// `x − max − ln(sum)` with `sum` over `exp(x − max)` along the axis.
///
/// A row that is −inf throughout, and one that holds NaN or ∞, give NaN.
///
/// Partitions compute in f32; `reference::bounds` says how far a result may be off.
pub(super) fn log_softmax(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let rows = rows_along_axis(op, inputs[0].dims())?;
    let mut numbers = rows.numbers(&inputs[0])?;
    rows.each(&mut numbers, &mut vec![(); rows.count], |row, ()| {
        let max = largest(row);
        let log = row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        row.iter_mut().for_each(|x| *x = *x - max - log);
    });
    one(rows.value(&numbers, op.outputs()[0].data_type(), &shapes[0]))
}

/// The sum of the elements along the axis up to the element's own, with `exclusive` without its own; with
/// `reverse` from the last element on.
///
/// Sums are f64, in the order of the axis; those of integers wrap.
pub(super) fn cum_sum(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (src, data_type) = (&inputs[0], op.outputs()[0].data_type());
    let rows = rows_along_axis(op, src.dims())?;
    if !is_integer(data_type) {
        let mut numbers = rows.numbers(src)?;
        rows.each(&mut numbers, &mut vec![(); rows.count], |row, ()| sum_along(op, row));
        return one(rows.value(&numbers, data_type, &shapes[0]));
    }
    let mut numbers = zeroed::<i128>(count(src.dims()))?;
    integers(src, &rows.odometer(), 0..numbers.len(), &mut numbers);
    numbers.chunks_exact_mut(rows.length).for_each(|row| sum_along(op, row));
    let back = rows.back();
    one(Value::compute(data_type, &shapes[0], |range, bytes| {
        let mut piece = vec![0; range.len()];
        back.read(range, &mut piece, |at| numbers[at]);
        store_integers(&piece, data_type, bytes);
    }))
}

/// Replaces the numbers of a row by their sums, as [`cum_sum`] says.
fn sum_along<T: Copy + Default + Add<Output = T>>(op: &Op, row: &mut [T]) {
    let is_exclusive = op.bool_attr(Attr::Exclusive);
    let mut sum = T::default();
    let mut next = |x: &mut T| {
        let before = sum;
        sum = sum + *x;
        *x = if is_exclusive { before } else { sum };
    };
    match op.bool_attr(Attr::Reverse) {
        true => row.iter_mut().rev().for_each(&mut next),
        false => row.iter_mut().for_each(&mut next),
    }
}

/// `dst · (diff_dst − sum)` with `sum` over `dst · diff_dst` along the axis.
///
/// Partitions compute in f64 and round once.
pub(super) fn softmax_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    backward_of_rows(op, inputs, shapes, |gradient, dst| {
        let sum: f64 = gradient.iter().zip(dst).map(|(d, y)| d * y).sum();
        gradient.iter_mut().zip(dst).for_each(|(d, y)| *d = y * (*d - sum));
    })
}

/// `diff_dst − exp(dst) · sum` with `sum` over `diff_dst` along the axis.
pub(super) fn log_softmax_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    backward_of_rows(op, inputs, shapes, |gradient, dst| {
        let sum: f64 = gradient.iter().sum();
        gradient.iter_mut().zip(dst).for_each(|(d, y)| *d -= y.exp() * sum);
    })
}

/// A gradient whose rows along the axis follow from those of `diff_dst`, in whose place it is computed, and
/// of `dst`.
fn backward_of_rows(
    op: &Op,
    inputs: &[Value],
    shapes: &[Dims],
    work: impl Fn(&mut [f64], &[f64]) + Sync + Send,
) -> Result<Vec<Value>> {
    let rows = rows_along_axis(op, inputs[0].dims())?;
    let (mut gradient, dst) = (rows.numbers(&inputs[0])?, rows.numbers(&inputs[1])?);
    let mut dst_rows = rows.slices(&dst)?;
    rows.each(&mut gradient, &mut dst_rows, |gradient, dst| work(gradient, dst));
    one(rows.value(&gradient, op.outputs()[0].data_type(), &shapes[0]))
}

/// The sum along `axes`; of nothing it is 0.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_sum(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, sum)
}

/// The sum along `axes` by the number of elements; of nothing it is NaN.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_mean(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| sum(row) / row.len() as f64)
}

/// The largest element along `axes`, NaN where one is NaN, +0 above −0; of nothing it is −∞.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_max(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| row.iter().copied().fold(f64::NEG_INFINITY, maximum))
}

/// The smallest element along `axes`, NaN where one is NaN, −0 below +0; of nothing it is ∞.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_min(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| row.iter().copied().fold(f64::INFINITY, minimum))
}

/// The product along `axes`; of nothing it is 1.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_prod(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| row.iter().product())
}

/// The sum of `|x|` along `axes`; of nothing it is 0.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_l1(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| row.iter().fold(0.0, |sum, x| sum + x.abs()))
}

/// The square root of the sum of `x²` along `axes`; of nothing it is 0.
///
/// Partitions take `axes` as an attribute alone, compute in f64 and round once.
pub(super) fn reduce_l2(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    reduce(op, inputs, shapes, |row| row.iter().fold(0.0, |sum, x| sum + x * x).sqrt())
}

/// A number of each row along `axes`; without axes, the elements as they are.
fn reduce(
    op: &Op,
    inputs: &[Value],
    shapes: &[Dims],
    of_row: impl Fn(&[f64]) -> f64 + Sync + Send,
) -> Result<Vec<Value>> {
    let src = &inputs[0];
    let axes = infer::reduced_axes(op, src.dims())?;
    if axes.is_empty() {
        return Ok(vec![src.reshaped(&shapes[0])]);
    }
    let rows = Rows::along(&axes, src.dims());
    let results = rows.reduce(&rows.numbers(src)?, of_row)?;
    one(dense_value(&results, op.outputs()[0].data_type(), &shapes[0]))
}

/// The sum of `diff_dst` over all dims but that of the channels.
pub(super) fn bias_add_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let rows = Rows::along(&all_but_channels(op, dims)?, dims);
    let sums = rows.reduce(&rows.numbers(&inputs[0])?, sum)?;
    one(dense_value(&sums, op.outputs()[0].data_type(), &shapes[0]))
}

/// All dims but that of the channels.
pub(super) fn all_but_channels(op: &Op, dims: &[i64]) -> Result<Vec<usize>> {
    let channels = infer::channel_axis(op, dims)?;
    Ok((0..dims.len()).filter(|&axis| axis != channels).collect())
}

/// `diff_src` is `diff_dst` for `src` above 0, else `diff_dst · slope`. `diff_slope` is the sum of `diff_dst
/// · src` over the elements of `src` that are not above 0 and share a slope.
pub(super) fn prelu_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let [src, slope, diff_dst] = inputs else { unreachable!("the schema requires three inputs") };
    let dims = src.dims();
    let start = infer::slope_start(op, &[dims, slope.dims()])?;
    let odometer = Odometer::broadcast(slope.dims(), dims, start);
    let mut places = zeroed(count(dims))?;
    odometer.read(0..count(dims), &mut places, |place| place);
    let slopes = numbers_of(slope, &Odometer::dense(slope.dims()))?;
    let dense = Odometer::dense(dims);
    let (numbers, mut gradient) = (numbers_of(src, &dense)?, numbers_of(diff_dst, &dense)?);
    let mut of_slopes = zeroed(slopes.len())?;
    for ((x, d), &place) in numbers.iter().zip(&mut gradient).zip(&places) {
        let is_positive = *x > 0.0;
        of_slopes[place] += if is_positive { 0.0 } else { *d * x };
        *d = if is_positive { *d } else { *d * slopes[place] };
    }
    let of = |numbers: &[f64], i: usize| dense_value(numbers, op.outputs()[i].data_type(), &shapes[i]);
    Ok(vec![of(&gradient, 0)?, of(&of_slopes, 1)?])
}

/// `gamma · (x − mean) / √(variance + epsilon) + beta` over the dims from `begin_norm_axis` on, with
/// `mean = sum(x) / n` and `variance = sum((x − mean)²) / n`, which are the second and third output.
///
/// `gamma` and `beta` broadcast one way onto those dims, and are left out without `use_affine`. Of no
/// elements, mean and variance are 0.
///
/// Partitions compute in f32, as distances from the mean: a normalised number is off by at most 32 half units
/// in the last place of its size and the mean size of its row, and by what f64 rounds off the mean. A row of
/// equal numbers is 0.
pub(super) fn layer_norm(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let begin = infer::norm_axis(op, dims)?;
    let rows = Rows::along(&(begin..dims.len()).collect::<Vec<_>>(), dims);
    let parameters = affine(op, inputs, 1, &dims[begin..])?;
    normalised(op, &inputs[0], &rows, shapes, |_, i| parameters.at(i))
}

/// The formula of LayerNorm over the channels of a group, all that lies beside them included, for each of the
/// first dim: `groups` groups of neighbouring channels.
///
/// `gamma` and `beta` have a number for each channel, and are left out without `use_affine`. Mean and
/// variance have the shape {N, groups}; of no elements they are 0.
///
/// Partitions compute in f32, as distances from the mean: a normalised number is off by at most 32 half units
/// in the last place of its size and the mean size of its row, and by what f64 rounds off the mean. A row of
/// equal numbers is 0.
pub(super) fn group_norm(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let infer::ChannelGroups { axis, groups, channels } = infer::channel_groups(op, dims)?;
    let mut split = Dims::from(dims);
    split[axis] = channels;
    split.insert(axis, groups);
    let beside = (1..split.len()).filter(|&other| other != axis && other != axis + 1);
    let rows = Rows::along(&std::iter::once(axis + 1).chain(beside).collect::<Vec<_>>(), &split);
    let parameters = affine(op, inputs, 1, &dims[axis..=axis])?;
    let (groups, channels) = (groups as usize, channels as usize);
    let beside = rows.length / channels.max(1);
    normalised(op, &inputs[0], &rows, shapes, |row, i| parameters.at(row % groups * channels + i / beside))
}

/// `gamma · x / √(mean(x²) + epsilon)` with the mean over the dims from `begin_norm_axis` on.
///
/// `gamma` broadcasts one way onto `src`. (The documentation of oneDNN takes two roots; its code takes one.)
///
/// Partitions compute in f32: a normalised number is off by at most 32 half units in its last place.
pub(super) fn rms_norm(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let begin = infer::norm_axis(op, dims)?;
    let rows = Rows::along(&(begin..dims.len()).collect::<Vec<_>>(), dims);
    let epsilon = epsilon(op);
    let mut numbers = rows.numbers(&inputs[0])?;
    rows.each(&mut numbers, &mut vec![(); rows.count], |row, ()| {
        let mean = row.iter().fold(0.0, |sum, x| sum + x * x) / row.len() as f64;
        let size = (mean + epsilon).sqrt();
        row.iter_mut().for_each(|x| *x /= size);
    });
    if let Some(gamma) = inputs.get(1) {
        // The rows lie in row-major order.
        let factors = broadcast_numbers(gamma, dims)?;
        numbers.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor);
    }
    one(rows.value(&numbers, op.outputs()[0].data_type(), &shapes[0]))
}

/// With `x' = (src − mean) / √(variance + epsilon)` and means over the dims from `begin_norm_axis` on,
/// `diff_src` is `(g − mean(g) − x' · mean(g · x')) / √(variance + epsilon)` of `g = gamma · diff_dst`;
/// `diff_gamma` is the sum of `diff_dst · x'` over all rows, `diff_beta` that of `diff_dst`.
///
/// Without `use_affine` gamma is 1.
///
/// Partitions compute in f64 and round once, but for the terms of `diff_gamma`: each is rounded to f32, and
/// off by at most 4 half units in its last place, before they are added up in f64.
pub(super) fn layer_norm_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let begin = infer::norm_axis(op, dims)?;
    let rows = Rows::along(&(begin..dims.len()).collect::<Vec<_>>(), dims);
    let (src, mut gradient) = (rows.numbers(&inputs[0])?, rows.numbers(&inputs[1])?);
    let statistic = |port: usize| numbers_of(&inputs[port], &Odometer::dense(inputs[port].dims()));
    let (means, variances) = (statistic(2)?, statistic(3)?);
    let parameters = affine(op, inputs, 4, &dims[begin..])?;
    let epsilon = epsilon(op);
    let deviations: Vec<f64> = variances.iter().map(|variance| (variance + epsilon).sqrt()).collect();

    let of_parameters = shapes.get(1).map_or(&dims[begin..], |dims| dims);
    let mut of_gamma = zeroed(count(of_parameters))?;
    let mut of_beta = of_gamma.clone();
    let mut places = zeroed(rows.length)?;
    let odometer =
        Odometer::broadcast(of_parameters, &dims[begin..], dims.len() - begin - of_parameters.len());
    odometer.read(0..rows.length, &mut places, |place| place);
    for (i, x) in src.iter().enumerate() {
        let (row, place) = (i / rows.length, places[i % rows.length]);
        of_gamma[place] += gradient[i] * (x - means[row]) / deviations[row];
        of_beta[place] += gradient[i];
    }

    let mut of_rows: Vec<_> = (rows.slices(&src)?).into_iter().zip(means.iter().zip(&deviations)).collect();
    rows.each(&mut gradient, &mut of_rows, |gradient, of_row| {
        let &mut (src, (mean, deviation)) = of_row;
        let n = gradient.len() as f64;
        gradient.iter_mut().enumerate().for_each(|(i, g)| *g *= parameters.at(i).0);
        let normal = |x: &f64| (x - mean) / deviation;
        let mean_of_gradient = sum(gradient) / n;
        let products = gradient.iter().zip(src).fold(0.0, |sum, (g, x)| sum + g * normal(x));
        for (g, x) in gradient.iter_mut().zip(src) {
            *g = (*g - mean_of_gradient - normal(x) * products / n) / deviation;
        }
    });
    let mut results = vec![rows.value(&gradient, op.outputs()[0].data_type(), dims)?];
    for ((output, dims), numbers) in op.outputs().iter().zip(shapes).skip(1).zip([of_gamma, of_beta]) {
        results.push(dense_value(&numbers, output.data_type(), dims)?);
    }
    Ok(results)
}

/// The rows of a value less their mean and by their deviation, times one number and plus another, which
/// follow from the numbers of the row and of the element in it; besides them, if the op has such outputs,
/// means and variances.
fn normalised(
    op: &Op,
    src: &Value,
    rows: &Rows,
    shapes: &[Dims],
    parameters: impl Fn(usize, usize) -> (f64, f64) + Sync + Send,
) -> Result<Vec<Value>> {
    let (numbers, moments) = rows.normalised(src, epsilon(op), parameters)?;
    let mut results = vec![rows.value(&numbers, op.outputs()[0].data_type(), &shapes[0])?];
    let statistics: [fn(&Moments) -> f64; 2] = [|row| row.mean, |row| row.variance];
    for ((output, dims), statistic) in op.outputs().iter().zip(shapes).skip(1).zip(statistics) {
        let numbers: Vec<f64> = moments.iter().map(statistic).collect();
        results.push(dense_value(&numbers, output.data_type(), dims)?);
    }
    Ok(results)
}

impl Rows {
    /// The rows of a value less their mean and by their deviation, times one number and plus another, which
    /// follow from the numbers of the row and of the element in it; and their statistics.
    pub(super) fn normalised(
        &self,
        src: &Value,
        epsilon: f64,
        parameters: impl Fn(usize, usize) -> (f64, f64) + Sync + Send,
    ) -> Result<(Vec<f64>, Vec<Moments>)> {
        let mut numbers = self.numbers(src)?;
        let mut moments = reserve(self.count)?;
        moments.extend((0..self.count).map(|row| Moments { row, mean: 0.0, variance: 0.0 }));
        self.each(&mut numbers, &mut moments, |numbers, Moments { row, mean, variance }| {
            let n = numbers.len().max(1) as f64;
            *mean = sum(numbers) / n;
            *variance = numbers.iter().fold(0.0, |sum, x| sum + (x - *mean).powi(2)) / n;
            let deviation = (*variance + epsilon).sqrt();
            for (i, x) in numbers.iter_mut().enumerate() {
                let (factor, addend) = parameters(*row, i);
                *x = factor * (*x - *mean) / deviation + addend;
            }
        });
        Ok((numbers, moments))
    }
}

/// The statistics of a row.
pub(super) struct Moments {
    row: usize,
    pub(super) mean: f64,
    pub(super) variance: f64,
}

/// Factors and addends, as many as there are elements that they belong to, or none.
struct Affine {
    factors: Option<Vec<f64>>,
    addends: Option<Vec<f64>>,
}

impl Affine {
    fn at(&self, i: usize) -> (f64, f64) {
        let factor = self.factors.as_ref().map_or(1.0, |factors| factors[i]);
        (factor, self.addends.as_ref().map_or(0.0, |addends| addends[i]))
    }
}

/// `gamma` and `beta`, which begin at an input, broadcast onto dims; neither without `use_affine`.
fn affine(op: &Op, inputs: &[Value], first: usize, dims: &[i64]) -> Result<Affine> {
    let of = |port: usize| {
        let given = inputs.get(port).filter(|_| op.bool_attr(Attr::UseAffine));
        given.map(|value| broadcast_numbers(value, dims)).transpose()
    };
    Ok(Affine { factors: of(first)?, addends: of(first + 1)? })
}

pub(super) fn epsilon(op: &Op) -> f64 {
    op.f32_attr(Attr::Epsilon).unwrap_or(0.0).into()
}

/// The sum, in order; of nothing it is 0.
pub(super) fn sum(row: &[f64]) -> f64 {
    row.iter().fold(0.0, |sum, x| sum + x)
}

/// The numbers of a value that broadcasts onto dims, its last dim onto their last.
fn broadcast_numbers(value: &Value, dims: &[i64]) -> Result<Vec<f64>> {
    let odometer = Odometer::broadcast(value.dims(), dims, dims.len() - value.dims().len());
    let mut numbers = zeroed(count(dims))?;
    floats(value, &odometer, 0..numbers.len(), &mut numbers);
    Ok(numbers)
}

/// How far each element of the first result may be off, before it is rounded to its type, if kernels compute
/// in f32: for each row along some axes, in an order of its own.
pub(super) fn bounds(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<f64>> {
    let src = &inputs[0];
    let dims = src.dims();
    match op.kind() {
        OpKind::BiasAddBackward => bounds_of_sums(op, src, &all_but_channels(op, dims)?),
        OpKind::SoftMax | OpKind::LogSoftmax => {
            let rows = rows_along_axis(op, dims)?;
            bounds_by_row(&rows, src, |row| bounds_of_softmax(op, row))
        }
        OpKind::LogSoftmaxBackward => {
            let rows = rows_along_axis(op, dims)?;
            let (gradient, mut bounds) = (rows.numbers(src)?, rows.numbers(&inputs[1])?);
            let mut gradients = rows.slices(&gradient)?;
            rows.each(&mut bounds, &mut gradients, |dst, gradient| {
                let sum: f64 = gradient.iter().sum();
                dst.iter_mut().for_each(|y| *y = 4.0 * HALF_A_UNIT * (y.exp() * sum).abs());
            });
            numbers_of(&rows.value(&bounds, DataType::F64, dims)?, &Odometer::dense(dims))
        }
        OpKind::LayerNorm | OpKind::RMSNorm => {
            let begin = infer::norm_axis(op, dims)?;
            let rows = Rows::along(&(begin..dims.len()).collect::<Vec<_>>(), dims);
            let is_centred = op.kind() == OpKind::LayerNorm;
            let mut bounds = bounds_by_row(&rows, src, |row| bounds_of_norm(op, row, is_centred))?;
            if let Some(gamma) = inputs.get(1).filter(|_| !is_centred || op.bool_attr(Attr::UseAffine)) {
                let factors = broadcast_numbers(gamma, dims)?;
                bounds.iter_mut().zip(&factors).for_each(|(bound, factor)| *bound *= factor.abs());
            }
            if let Some(beta) = inputs.get(2).filter(|_| op.bool_attr(Attr::UseAffine)) {
                let addends = broadcast_numbers(beta, dims)?;
                bounds.iter_mut().zip(&addends).for_each(|(bound, addend)| {
                    *bound += 2.0 * HALF_A_UNIT * addend.abs();
                });
            }
            Ok(bounds)
        }
        OpKind::GroupNorm => {
            let infer::ChannelGroups { axis, groups, channels } = infer::channel_groups(op, dims)?;
            let mut split = Dims::from(dims);
            split[axis] = channels;
            split.insert(axis, groups);
            let along: Vec<usize> = (1..split.len()).filter(|&other| other != axis).collect();
            let rows = Rows::along(&along, &split);
            let src = src.reshaped(&split);
            let mut bounds = bounds_by_row(&rows, &src, |row| bounds_of_norm(op, row, true))?;
            if op.bool_attr(Attr::UseAffine) && inputs.len() > 2 {
                let mut onto = vec![1i64; dims.len()];
                onto[axis] = dims[axis];
                let factors = broadcast_numbers(&inputs[1].reshaped(&onto), dims)?;
                let addends = broadcast_numbers(&inputs[2].reshaped(&onto), dims)?;
                for ((bound, factor), addend) in bounds.iter_mut().zip(&factors).zip(&addends) {
                    *bound = *bound * factor.abs() + 2.0 * HALF_A_UNIT * addend.abs();
                }
            }
            Ok(bounds)
        }
        // Computed in f64.
        OpKind::ReduceProd
        | OpKind::ReduceL2
        | OpKind::SoftMaxBackward
        | OpKind::LayerNormBackward
        | OpKind::PReLUBackward => {
            let results = match op.kind() {
                OpKind::ReduceProd => reduce_prod(op, inputs, shapes)?,
                OpKind::ReduceL2 => reduce_l2(op, inputs, shapes)?,
                OpKind::SoftMaxBackward => softmax_backward(op, inputs, shapes)?,
                OpKind::LayerNormBackward => layer_norm_backward(op, inputs, shapes)?,
                _ => prelu_backward(op, inputs, shapes)?,
            };
            let numbers = numbers_of(&results[0], &Odometer::dense(&shapes[0]))?;
            Ok(numbers.into_iter().map(|x| 2.0 * HALF_A_UNIT * x.abs()).collect())
        }
        _ => bounds_of_sums(op, src, &infer::reduced_axes(op, dims)?),
    }
}

/// A bound for each element, row by row.
fn bounds_by_row(rows: &Rows, src: &Value, of_row: impl Fn(&mut [f64]) + Sync + Send) -> Result<Vec<f64>> {
    let mut numbers = rows.numbers(src)?;
    rows.each(&mut numbers, &mut vec![(); rows.count], |row, ()| of_row(row));
    numbers_of(&rows.value(&numbers, DataType::F64, src.dims())?, &Odometer::dense(src.dims()))
}

/// The sum and the exponential are off by this number of half units in the last place, and the exponential by
/// as many as the number is below the maximum.
fn bounds_of_softmax(op: &Op, row: &mut [f64]) {
    const STEPS: f64 = 32.0;
    let max = largest(row);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    let is_logarithm = op.kind() == OpKind::LogSoftmax;
    row.iter_mut().for_each(|x| {
        let below = max - *x;
        *x = match is_logarithm {
            true => HALF_A_UNIT * (STEPS + 2.0 * below + 2.0 * sum.ln()),
            // The least f32 are absolute.
            false if below < 200.0 => HALF_A_UNIT * (STEPS + below) * (-below).exp() / sum + 1e-44,
            false => 1e-44,
        };
    });
}

/// Deviation and mean are off by this number of half units in the last place of the distances from the mean,
/// and the mean by its rounding to f64.
fn bounds_of_norm(op: &Op, row: &mut [f64], is_centred: bool) {
    const STEPS: f64 = 32.0;
    let n = row.len().max(1) as f64;
    let mean = if is_centred { sum(row) / n } else { 0.0 };
    let distances = row.iter().map(|x| (x - mean).abs()).sum::<f64>() / n;
    let variance = row.iter().fold(0.0, |sum, x| sum + (x - mean).powi(2)) / n;
    let deviation = (variance + epsilon(op)).sqrt();
    let lost =
        if is_centred { HALF_A_UNIT * STEPS * distances + 2.0 * f64::EPSILON * mean.abs() } else { 0.0 };
    row.iter_mut().for_each(|x| *x = (HALF_A_UNIT * STEPS * (*x - mean).abs() + lost) / deviation);
}

/// For each sum, the number of its terms times half a unit in the last place of the sum of their sizes.
fn bounds_of_sums(op: &Op, src: &Value, axes: &[usize]) -> Result<Vec<f64>> {
    let rows = Rows::along(axes, src.dims());
    let is_mean = op.kind() == OpKind::ReduceMean;
    rows.reduce(&rows.numbers(src)?, |row| {
        let (sizes, terms) = (row.iter().fold(0.0, |sum, x| sum + x.abs()), row.len() as f64);
        // The quotient of a mean is divided by the number of terms again.
        if is_mean { sizes * HALF_A_UNIT } else { sizes * terms * HALF_A_UNIT }
    })
}
