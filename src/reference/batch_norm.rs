//! Batch normalisation: statistics of each channel over all other dims.

use super::number::{HALF_A_UNIT, dense_value, in_f32, numbers_of};
use super::odometer::Odometer;
use super::rows::{Rows, all_but_channels, epsilon, sum};
use super::value::{Value, one};
use crate::error::Result;
use crate::graph::op::Op;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

/// `(src − mean) · (gamma / √(variance + epsilon)) + beta` with the numbers of the channel, each step rounded
/// to f32.
pub(super) fn inference(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let rows = Rows::along(&all_but_channels(op, dims)?, dims);
    let (gamma, beta) = (of_channels(&inputs[1])?, of_channels(&inputs[2])?);
    let (mean, variance) = (of_channels(&inputs[3])?, of_channels(&inputs[4])?);
    let mut numbers = rows.numbers(&inputs[0])?;
    let mut channels: Vec<usize> = (0..rows.count).collect();
    rows.each(&mut numbers, &mut channels, |row, &mut channel| {
        let deviation = in_f32(in_f32(variance[channel] + epsilon(op)).sqrt());
        let factor = in_f32(gamma[channel] / deviation);
        for x in row {
            let scaled = in_f32(in_f32(*x - mean[channel]) * factor);
            *x = scaled + beta[channel];
        }
    });
    one(rows.value(&numbers, op.outputs()[0].data_type(), &shapes[0]))
}

/// `gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta` with `batch_mean = sum(src) / n` and
/// `batch_variance = sum((src − batch_mean)²) / n` over all dims but that of the channels. `running_mean` is
/// `momentum · mean + (1 − momentum) · batch_mean`, and `running_variance` likewise, of the outputs as they
/// are rounded.
///
/// Without `momentum` it is 0.5, without `gamma` 1, without `beta` 0. Of no elements, mean and variance of
/// the batch are 0.
///
/// Partitions compute in f32, as distances from the mean rounded to f32, and the variance in f64, as the mean
/// of squares less the square of the mean: a normalised number is off by at most 32 half units in the last
/// place of its size and the mean size of its channel, and of the mean, and by what f64 rounds off the
/// variance. A channel of equal numbers is `beta`.
pub(super) fn forward_training(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let rows = Rows::along(&all_but_channels(op, dims)?, dims);
    let of_input = |port: usize| inputs.get(port).map(of_channels).transpose();
    let (gamma, beta) = (of_input(3)?, of_input(4)?);
    let of_channel = |numbers: &Option<Vec<f64>>, channel: usize, without: f64| {
        numbers.as_ref().map_or(without, |numbers| numbers[channel])
    };
    let (numbers, moments) = rows.normalised(&inputs[0], epsilon(op), |channel, _| {
        (of_channel(&gamma, channel, 1.0), of_channel(&beta, channel, 0.0))
    })?;
    let momentum = f64::from(op.f32_attr(Attr::Momentum).unwrap_or(0.5));
    let output =
        |index: usize, numbers: &[f64]| dense_value(numbers, op.outputs()[index].data_type(), &shapes[index]);
    let batch = [
        output(3, &moments.iter().map(|channel| channel.mean).collect::<Vec<_>>())?,
        output(4, &moments.iter().map(|channel| channel.variance).collect::<Vec<_>>())?,
    ];
    let mut results = vec![rows.value(&numbers, op.outputs()[0].data_type(), &shapes[0])?];
    for (index, batch) in batch.iter().enumerate() {
        let (old, batch) = (of_channels(&inputs[1 + index])?, of_channels(batch)?);
        let running = |(old, batch): (&f64, &f64)| momentum * old + in_f32(1.0 - momentum) * batch;
        results.push(output(1 + index, &old.iter().zip(&batch).map(running).collect::<Vec<_>>())?);
    }
    results.extend(batch);
    Ok(results)
}

/// With `x' = (src − mean) / √(variance + epsilon)` and means over all dims but that of the channels,
/// `diff_src` is `gamma · (diff_dst − mean(diff_dst) − x' · mean(diff_dst · x')) / √(variance + epsilon)`;
/// `diff_gamma` is the sum of `diff_dst · x'`, `diff_beta` that of `diff_dst`.
///
/// Without `gamma` it is 1. (oneDNN leaves out both means, and `gamma`, if `diff_gamma` and `diff_beta` are
/// not asked for.)
///
/// Partitions compute in f32, but for the sums, whose terms are rounded to f32 and added up in f64:
/// `diff_src` is off by at most 32 half units in the last place of the sum of the sizes of its three terms.
pub(super) fn training_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let dims = inputs[0].dims();
    let rows = Rows::along(&all_but_channels(op, dims)?, dims);
    let (src, mut gradient) = (rows.numbers(&inputs[0])?, rows.numbers(&inputs[1])?);
    let (means, variances) = (of_channels(&inputs[2])?, of_channels(&inputs[3])?);
    let gamma = inputs.get(4).map(of_channels).transpose()?;
    let mut channels: Vec<_> =
        rows.slices(&src)?.into_iter().enumerate().map(|(channel, src)| (channel, src, [0.0; 2])).collect();
    rows.each(&mut gradient, &mut channels, |gradient, (channel, src, of_parameters)| {
        let n = gradient.len() as f64;
        let (mean, deviation) = (means[*channel], (variances[*channel] + epsilon(op)).sqrt());
        let normal = |x: &f64| (x - mean) / deviation;
        let products = gradient.iter().zip(&**src).fold(0.0, |sum, (d, x)| sum + d * normal(x));
        *of_parameters = [products, sum(gradient)];
        let [of_gamma, of_beta] = of_parameters.map(|sum| sum / n);
        let factor = gamma.as_ref().map_or(1.0, |gamma| gamma[*channel]);
        for (d, x) in gradient.iter_mut().zip(&**src) {
            *d = factor * (*d - of_beta - normal(x) * of_gamma) / deviation;
        }
    });
    let mut results = vec![rows.value(&gradient, op.outputs()[0].data_type(), dims)?];
    for (index, (output, dims)) in op.outputs().iter().zip(shapes).enumerate().skip(1) {
        let sums: Vec<f64> = channels.iter().map(|(.., sums)| sums[index - 1]).collect();
        results.push(dense_value(&sums, output.data_type(), dims)?);
    }
    Ok(results)
}

/// The numbers of the channels.
fn of_channels(value: &Value) -> Result<Vec<f64>> {
    numbers_of(value, &Odometer::dense(value.dims()))
}

/// How far each element of the first result may be off, before it is rounded to its type.
pub(super) fn bounds(op: &Op, inputs: &[Value], _: &[Dims]) -> Result<Vec<f64>> {
    const STEPS: f64 = 32.0;
    let dims = inputs[0].dims();
    let rows = Rows::along(&all_but_channels(op, dims)?, dims);
    let src = rows.numbers(&inputs[0])?;
    let is_backward = op.kind() == OpKind::BatchNormTrainingBackward;
    let of_input = |port: usize| inputs.get(port).map(of_channels).transpose();
    let factors = if is_backward { of_input(4)? } else { of_input(3)? };
    let addends = if is_backward { None } else { of_input(4)? };
    let statistics = match is_backward {
        true => Some((rows.numbers(&inputs[1])?, of_channels(&inputs[2])?, of_channels(&inputs[3])?)),
        false => None,
    };
    let at = |numbers: &Option<Vec<f64>>, channel: usize, without: f64| {
        numbers.as_ref().map_or(without, |numbers| numbers[channel]).abs()
    };
    let mut bounds = src;
    let mut channels: Vec<usize> = (0..rows.count).collect();
    rows.each(&mut bounds, &mut channels, |row, &mut channel| {
        let n = row.len().max(1) as f64;
        let (factor, addend) = (at(&factors, channel, 1.0), at(&addends, channel, 0.0));
        if let Some((gradient, means, variances)) = &statistics {
            let (mean, deviation) = (means[channel], (variances[channel] + epsilon(op)).sqrt());
            let gradient = &gradient[channel * row.len()..][..row.len()];
            let normal = |x: f64| ((x - mean) / deviation).abs();
            let of_beta = gradient.iter().map(|d| d.abs()).sum::<f64>() / n;
            let of_gamma = gradient.iter().zip(&*row).map(|(d, x)| d.abs() * normal(*x)).sum::<f64>() / n;
            for (x, d) in row.iter_mut().zip(gradient) {
                *x = HALF_A_UNIT * STEPS * factor * (d.abs() + of_beta + normal(*x) * of_gamma) / deviation;
            }
            return;
        }
        let mean = sum(row) / n;
        let distances = row.iter().map(|x| (x - mean).abs()).sum::<f64>() / n;
        let variance = row.iter().fold(0.0, |sum, x| sum + (x - mean).powi(2)) / n;
        let scale = factor / (variance + epsilon(op)).sqrt();
        // The sums of squares are off by some units in the last place of f64.
        let lost = n * f64::EPSILON * (variance + mean * mean) / (variance + epsilon(op));
        for x in row {
            let size = (STEPS + lost / HALF_A_UNIT) * ((*x - mean).abs() + distances) + 2.0 * mean.abs();
            *x = HALF_A_UNIT * (size * scale + 2.0 * addend);
        }
    });
    numbers_of(&rows.value(&bounds, DataType::F64, dims)?, &Odometer::dense(dims))
}
