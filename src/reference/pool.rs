//! Pools: numbers of the windows that a kernel sees while it slides over an image.

use super::functions::maximum;
use super::number::{HALF_A_UNIT, dense_value, numbers_of};
use super::odometer::{Odometer, dense};
use super::taps::{SourceTap, each_element};
use super::value::{Value, count, one, zeroed};
use crate::error::Result;
use crate::graph::op::Op;
use crate::graph::windows::{self, Windows};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

/// The largest element of each window, NaN where one is NaN, +0 above −0; of a window in padding alone it is
/// −∞.
///
/// A window takes `kernel` elements along each spatial dim, `dilations` apart, from one `strides` behind that
/// of the window before, the first from `pads_begin` before the image on. `auto_pad` takes the place of the
/// pads: `VALID` is none, `SAME_UPPER` and `SAME_LOWER` as many as a window for each step through the image
/// needs, of an odd number one more behind or before it. With `rounding_type` = `ceil` a last window may
/// reach beyond the padding. (oneDNN gives the least finite number for a window without a larger one, and
/// lets its kernels treat NaN as they do.)
///
/// Partitions are exact.
pub(super) fn max_pool(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (image, numbers) = image(op, inputs, 0)?;
    let mut results = zeroed(count(&shapes[0]))?;
    each_window(&image, &mut |window, taps| {
        results[window] =
            taps.iter().fold(f64::NEG_INFINITY, |largest, tap| maximum(largest, numbers[tap.0]));
    });
    one(dense_value(&results, op.outputs()[0].data_type(), &shapes[0]))
}

/// The mean of each window of `MaxPool` without dilations: its sum by the number of its elements, where those
/// in the padding are zeros.
///
/// With `exclude_pad`, and with `rounding_type` = `ceil`, elements in the padding do not count; a window in
/// padding alone is NaN then.
///
/// Partitions sum in f32, along the last dim last, and divide once: a result is off by 4 half units in the
/// last place of the mean of sizes, and one more for each element of the kernel.
pub(super) fn avg_pool(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let (image, numbers) = image(op, inputs, 0)?;
    let mut results = zeroed(count(&shapes[0]))?;
    each_window(&image, &mut |window, taps| {
        let sum = taps.iter().fold(-0.0, |sum, tap| sum + numbers[tap.0]);
        results[window] = sum / divisor(op, &image, taps);
    });
    one(dense_value(&results, op.outputs()[0].data_type(), &shapes[0]))
}

/// The gradient of `MaxPool`: each element of `diff_dst` is added to the element of `diff_src` at the place
/// of the largest element of its window of `src`, of several the first in row-major order. All others are 0.
///
/// A NaN counts as larger than every number, and 0 is equal to −0. A window in padding alone has none.
/// `diff_dst` has as many windows as `rounding_type` = `floor` gives. (oneDNN compares as its forward kernels
/// do.)
///
/// Partitions sum in f32 in the order of `diff_dst`: a result is off by as many half units in the last place
/// of the sum of sizes as windows can share an element.
pub(super) fn max_pool_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let gradient = numbers_of(&inputs[1], &Odometer::dense(inputs[1].dims()))?;
    one(dense_value(&scattered(op, inputs, &gradient)?, op.outputs()[0].data_type(), &shapes[0]))
}

/// Gradients of windows, each at the place of the largest element of its window.
fn scattered(op: &Op, inputs: &[Value], gradient: &[f64]) -> Result<Vec<f64>> {
    let (image, numbers) = image(op, inputs, 0)?;
    let mut results = zeroed(numbers.len())?;
    each_window(&image, &mut |window, taps| {
        let is_larger = |x: f64, y: f64| x > y || x.is_nan() && !y.is_nan();
        let first = |best: Option<usize>, &(place, _): &SourceTap| match best {
            Some(best) if !is_larger(numbers[place], numbers[best]) => Some(best),
            _ => Some(place),
        };
        if let Some(place) = taps.iter().fold(None, first) {
            results[place] += gradient[window];
        }
    });
    Ok(results)
}

/// The gradient of `AvgPool`: the sum of the elements of `diff_dst` whose windows have an element, each by
/// the number of elements of its window, as `AvgPool` counts them under `exclude_pad` or not.
///
/// The shape is the attribute `src_shape`, or that of the output as the graph gives it if `src_shape` is an
/// input, whose data are not read.
///
/// Partitions sum in f32, along the last dim last and else in the order of `diff_dst`: a result is off by 4
/// half units in the last place of the sum of the sizes of its terms for each spatial dim, and one more for
/// each element of the kernel.
pub(super) fn avg_pool_backward(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let gradient = numbers_of(&inputs[0], &Odometer::dense(inputs[0].dims()))?;
    one(dense_value(&spread(op, inputs, &gradient)?, op.outputs()[0].data_type(), &shapes[0]))
}

/// Gradients of windows, each by the number of elements of its window at each of them.
fn spread(op: &Op, inputs: &[Value], gradient: &[f64]) -> Result<Vec<f64>> {
    let image = windows_of(op, inputs)?;
    let mut results = zeroed(count(&image.image_shape()))?;
    each_window(&image, &mut |window, taps| {
        let share = gradient[window] / divisor(op, &image, taps);
        taps.iter().for_each(|&(place, _)| results[place] += share);
    });
    Ok(results)
}

/// The windows of an op, and the numbers of the image, which is an input.
fn image(op: &Op, inputs: &[Value], port: usize) -> Result<(Windows, Vec<f64>)> {
    Ok((windows_of(op, inputs)?, numbers_of(&inputs[port], &Odometer::dense(inputs[port].dims()))?))
}

fn windows_of(op: &Op, inputs: &[Value]) -> Result<Windows> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    match windows::windows(op, &dims)? {
        Some(windows) => Ok(windows),
        None => unreachable!("the shapes of results follow from the windows"),
    }
}

/// The number by which the sum of a window is divided.
fn divisor(op: &Op, image: &Windows, taps: &[SourceTap]) -> f64 {
    match op.bool_attr(Attr::ExcludePad) || op.str_attr(Attr::RoundingType) == Some("ceil") {
        true => taps.len() as f64,
        false => kernel_size(image),
    }
}

fn kernel_size(image: &Windows) -> f64 {
    image.dims.iter().map(|dim| dim.kernel as f64).product()
}

/// Calls a function for each element of the tensor of windows, with its place and with those of the elements
/// of the image that its window has, both in row-major order.
fn each_window(image: &Windows, visit: &mut dyn FnMut(usize, &[SourceTap])) {
    let strides = dense(&image.image_shape());
    let spatial = image.data.spatial;
    let of_dim = |dim: usize, index: i64| match dim.checked_sub(spatial).and_then(|dim| image.dims.get(dim)) {
        Some(windows) => {
            let place = |tap: i64| windows.start(index) + tap * windows.dilation;
            windows.taps(index).map(|tap| ((place(tap) * strides[dim]) as usize, 1.0)).collect()
        }
        None => vec![((index * strides[dim]) as usize, 1.0)],
    };
    each_element(&image.windows_shape(), &of_dim, visit);
}

/// How far each element of the result may be off, before it is rounded to its type.
pub(super) fn bounds(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<f64>> {
    let image = windows_of(op, inputs)?;
    let kernel = kernel_size(&image);
    let sizes = |port: usize| -> Result<Vec<f64>> {
        let numbers = numbers_of(&inputs[port], &Odometer::dense(inputs[port].dims()))?;
        Ok(numbers.into_iter().map(f64::abs).collect())
    };
    let (steps, mut bounds) = match op.kind() {
        OpKind::AvgPool => {
            let (numbers, mut means) = (sizes(0)?, zeroed(count(&shapes[0]))?);
            each_window(&image, &mut |window, taps| {
                let sum = taps.iter().fold(0.0, |sum, tap| sum + numbers[tap.0]);
                means[window] = sum / divisor(op, &image, taps);
            });
            (kernel + 4.0, means)
        }
        OpKind::AvgPoolBackward => (kernel + 4.0 * image.dims.len() as f64, spread(op, inputs, &sizes(0)?)?),
        _ => (kernel, scattered(op, inputs, &sizes(1)?)?),
    };
    bounds.iter_mut().for_each(|bound| *bound *= HALF_A_UNIT * steps);
    Ok(bounds)
}
