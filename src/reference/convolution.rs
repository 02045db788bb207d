//! Convolutions, forward and backward.

use super::number::{HALF_A_UNIT, numbers_of, value_of};
use super::odometer::{Odometer, dense, in_pieces};
use super::value::{Value, count, one, zeroed};
use crate::error::Result;
use crate::graph::op::Op;
use crate::graph::windows::{self, WindowDim, WindowPort, Windows};
use crate::types::shape::Dims;

/// The sum of the products of the weights of an output channel and the elements of a window of `src`, plus
/// the bias of the channel if there is one, rounded once. Padding takes no part; only beside a weight that is
/// not finite it may make the sum NaN, as a 0 does.
///
/// A kernel of `k` elements, `dilations` apart, slides over a spatial dim of `n` by `strides`, from
/// `pads_begin` elements before the first one on. It makes
/// `(n + pads_begin + pads_end − 1 − dilations·(k − 1)) / strides + 1` windows, rounded down, of which there
/// must be one. With `auto_pad` = `VALID` nothing is padded; with `SAME_UPPER` and `SAME_LOWER` so much that
/// there are `n / strides` windows, rounded up, of an odd number one more behind or before.
///
/// `groups` divides the channels: an output channel sees the input channels of its group, and the weights
/// have as many input channels as a group. There may be any number of spatial dims from one on.
pub(super) fn convolution(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

/// The gradient of the source of a Convolution: for each element, the sum of the products of the gradients of
/// the windows that see it and the weights by which they do; 0 if none does.
///
/// If neither `dst_shape` nor the graph gives its shape, a spatial dim is what `n` windows cover: `strides·(n
/// − 1) + dilations·(k − 1) + 1 + output_padding − pads_begin − pads_end`.
pub(super) fn backward_data(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

/// The gradient of the weights of a Convolution: for each, the sum of the products of the gradients of all
/// windows and the elements that the weight is multiplied with there.
pub(super) fn backward_weights(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

/// ConvolutionBackwardData of `src` in place of the gradients of windows, plus the bias of the channel if
/// there is one: each element adds its products with a kernel to the result, `strides` from one
/// kernel to the next.
///
/// A spatial dim is `strides·(n − 1) + dilations·(k − 1) + 1 + output_padding − pads_begin − pads_end` for
/// `n` elements of `src` and `k` of the kernel. With `auto_pad` = `SAME_UPPER` and `SAME_LOWER` so much is
/// cut off that it is `strides·n + output_padding` unless a stride is larger than the kernel, of an odd
/// number one more behind or before.
///
/// Of the weights, I are the channels of `src`, O those of a group of the result.
pub(super) fn transposed(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

/// The gradient of the source of a ConvTranspose, which is the Convolution of `diff_dst` by the same weights.
pub(super) fn transposed_backward_data(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

/// The gradient of the weights of a ConvTranspose: for each, the sum of the products of all elements of `src`
/// and the gradients of the elements to which the weight takes them.
pub(super) fn transposed_backward_weights(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    rounded(op, inputs, shapes)
}

fn rounded(op: &Op, inputs: &[Value], shapes: &[Dims]) -> Result<Vec<Value>> {
    let sums = sums(op, inputs, |x| x)?;
    one(value_of(&sums.numbers, &sums.places(&shapes[0]), op.outputs()[0].data_type(), &shapes[0]))
}

/// How far the sums may be off that f32 adds up in another order: for each, the number of its terms times
/// half a unit in the last place of the sum of their sizes.
pub(super) fn bounds(op: &Op, inputs: &[Value], result: &[i64]) -> Result<Vec<f64>> {
    let (mut bounds, terms) = unrounded(op, inputs, result, f64::abs)?;
    bounds.iter_mut().for_each(|bound| *bound *= terms * HALF_A_UNIT);
    Ok(bounds)
}

/// The sums of a function of each number in the order of the elements of the result, and the most terms that
/// a sum has.
pub(super) fn unrounded(
    op: &Op,
    inputs: &[Value],
    result: &[i64],
    of: fn(f64) -> f64,
) -> Result<(Vec<f64>, f64)> {
    let sums = sums(op, inputs, of)?;
    let mut numbers = zeroed(count(result))?;
    sums.places(result).read(0..count(result), &mut numbers, |at| sums.numbers[at]);
    Ok((numbers, sums.terms))
}

/// The sums of an op.
struct Sums {
    /// Those of each channel side by side, or of each pair of channels for weights.
    numbers: Vec<f64>,
    /// The axes of the result in the order of the sums.
    order: Dims,
    /// The most terms that a sum has.
    terms: f64,
}

impl Sums {
    /// The way over the sums in the order of the elements of the result.
    fn places(&self, result: &[i64]) -> Odometer {
        let ordered: Dims = self.order.iter().map(|&axis| result[axis as usize]).collect();
        let mut strides = Dims::from_elem(0, result.len());
        self.order.iter().zip(dense(&ordered)).for_each(|(&axis, stride)| strides[axis as usize] = stride);
        Odometer::of(result, &strides)
    }
}

/// The sums of products and bias of a function of each number.
fn sums(op: &Op, inputs: &[Value], of: fn(f64) -> f64) -> Result<Sums> {
    let dims: Vec<&[i64]> = inputs.iter().map(Value::dims).collect();
    let (Some(roles), Some(windows)) = (windows::roles(op), windows::windows(op, &dims)?) else {
        unreachable!("the shape of the result has been inferred from the windows")
    };
    let space = Space::of(windows);
    let numbers = |place: WindowPort, order: &Dims| -> Result<Option<Vec<f64>>> {
        match place {
            WindowPort::Input(port) => {
                let order: Vec<usize> = order.iter().map(|&axis| axis as usize).collect();
                let mut numbers =
                    numbers_of(&inputs[port], &Odometer::permuted(inputs[port].dims(), &order))?;
                numbers.iter_mut().for_each(|number| *number = of(*number));
                Ok(Some(numbers))
            }
            WindowPort::Result => Ok(None),
        }
    };
    let image = numbers(roles.image, &space.data_order())?;
    let windows = numbers(roles.windows, &space.data_order())?;
    let weights = numbers(roles.weights.unwrap_or(WindowPort::Result), &space.weights_order())?;
    let mut sums = match (image, windows, weights) {
        (Some(image), None, Some(weights)) => space.windows_of(&image, &weights)?,
        (None, Some(windows), Some(weights)) => space.image_of(&windows, &weights)?,
        (Some(image), Some(windows), None) => space.weights_of(&image, &windows)?,
        _ => unreachable!("a convolution makes one of its three tensors of the other two"),
    };
    // The third input of a backward form is a shape, and has become an attribute.
    if let Some(bias) = inputs.get(2) {
        let bias = numbers_of(bias, &Odometer::dense(bias.dims()))?;
        let plane = sums.numbers.len() / (space.of.batch as usize * bias.len()).max(1);
        for (channel, sums) in sums.numbers.chunks_mut(plane.max(1)).enumerate() {
            let addend = of(bias[channel % bias.len()]);
            sums.iter_mut().for_each(|sum| *sum += addend);
        }
        sums.terms += 1.0;
    }
    Ok(sums)
}

/// Windows, and for each element of the kernel where it meets the image.
struct Space {
    of: Windows,
    /// How many elements of the image, windows and elements of the kernel a channel has.
    image: usize,
    windows: usize,
    kernel: usize,
    /// The channels of a group.
    image_channels: usize,
    window_channels: usize,
    meetings: Vec<Vec<Meeting>>,
    /// From the element of one window of a run to that of the next.
    step: usize,
}

/// Neighbouring windows that meet the image with one element of the kernel: the first element of the image,
/// the first window, and their number.
struct Meeting {
    image: usize,
    window: usize,
    length: usize,
}

impl Space {
    fn of(of: Windows) -> Self {
        // Of tensors without elements, dims may be of any size.
        let product = |size: fn(&WindowDim) -> i64| {
            of.dims.iter().fold(1, |product: usize, dim| product.wrapping_mul(size(dim) as usize))
        };
        let (image, windows) = (product(|dim| dim.image), product(|dim| dim.windows));
        let kernel = product(|dim| dim.kernel);
        let is_empty = [of.batch, of.image_channels, of.window_channels].contains(&0);
        let elements = if is_empty { 0 } else { kernel };
        let meetings = (0..elements).map(|element| runs(&of, element)).collect();
        let [image_channels, window_channels] =
            [of.image_channels, of.window_channels].map(|channels| (channels / of.groups) as usize);
        let step = of.dims.last().map_or(1, |dim| dim.stride as usize);
        Self { of, image, windows, kernel, image_channels, window_channels, meetings, step }
    }

    /// Batch, channels, spatial dims.
    fn data_order(&self) -> Dims {
        let axes = self.of.data;
        let spatial = (0..self.of.dims.len()).map(|dim| (axes.spatial + dim) as i64);
        [0, axes.channels as i64].into_iter().chain(spatial).collect()
    }

    /// Channels of windows, channels of the image, spatial dims.
    fn weights_order(&self) -> Dims {
        let Some(axes) = self.of.weights else { return Dims::new() };
        let spatial = (0..self.of.dims.len()).map(|dim| (axes.spatial + dim) as i64);
        [axes.windows as i64, axes.image as i64].into_iter().chain(spatial).collect()
    }

    /// The weights of a pair of channels: one of the windows, of all groups, and one of the image, of a
    /// group.
    fn weights<'a>(&self, weights: &'a [f64], window_channel: usize, image_channel: usize) -> &'a [f64] {
        &weights[(window_channel * self.image_channels + image_channel) * self.kernel..][..self.kernel]
    }

    fn windows_of(&self, image: &[f64], weights: &[f64]) -> Result<Sums> {
        let (all_windows, all_images) = (self.of.window_channels as usize, self.of.image_channels as usize);
        let mut sums = zeroed(self.of.batch as usize * all_windows * self.windows)?;
        in_pieces(&mut sums, self.windows, |plane, sums| {
            let (batch, channel) = (plane / all_windows, plane % all_windows);
            let group = channel / self.window_channels;
            for in_group in 0..self.image_channels {
                let plane = batch * all_images + group * self.image_channels + in_group;
                let image = &image[plane * self.image..][..self.image];
                for (weight, runs) in self.weights(weights, channel, in_group).iter().zip(&self.meetings) {
                    for run in runs {
                        let elements = image[run.image..].iter().step_by(self.step);
                        let sums = &mut sums[run.window..][..run.length];
                        sums.iter_mut().zip(elements).for_each(|(sum, element)| *sum += weight * element);
                    }
                }
            }
        });
        let terms = (self.image_channels * self.kernel) as f64;
        Ok(Sums { numbers: sums, order: self.data_order(), terms })
    }

    fn image_of(&self, windows: &[f64], weights: &[f64]) -> Result<Sums> {
        let (all_windows, all_images) = (self.of.window_channels as usize, self.of.image_channels as usize);
        let mut sums = zeroed(self.of.batch as usize * all_images * self.image)?;
        in_pieces(&mut sums, self.image, |plane, sums| {
            let (batch, channel) = (plane / all_images, plane % all_images);
            let (group, in_group) = (channel / self.image_channels, channel % self.image_channels);
            for channel in group * self.window_channels..(group + 1) * self.window_channels {
                let windows = &windows[(batch * all_windows + channel) * self.windows..][..self.windows];
                for (weight, runs) in self.weights(weights, channel, in_group).iter().zip(&self.meetings) {
                    for run in runs {
                        let sums = sums[run.image..].iter_mut().step_by(self.step);
                        let windows = &windows[run.window..][..run.length];
                        sums.zip(windows).for_each(|(sum, window)| *sum += weight * window);
                    }
                }
            }
        });
        let terms = (self.window_channels * self.kernel) as f64;
        Ok(Sums { numbers: sums, order: self.data_order(), terms })
    }

    fn weights_of(&self, image: &[f64], windows: &[f64]) -> Result<Sums> {
        let (all_windows, all_images) = (self.of.window_channels as usize, self.of.image_channels as usize);
        let mut sums = zeroed(all_windows * self.image_channels * self.kernel)?;
        in_pieces(&mut sums, self.kernel, |pair, sums| {
            let (channel, in_group) = (pair / self.image_channels, pair % self.image_channels);
            let group = channel / self.window_channels;
            for batch in 0..self.of.batch as usize {
                let plane = batch * all_images + group * self.image_channels + in_group;
                let image = &image[plane * self.image..][..self.image];
                let windows = &windows[(batch * all_windows + channel) * self.windows..][..self.windows];
                for (sum, runs) in sums.iter_mut().zip(&self.meetings) {
                    for run in runs {
                        let elements = image[run.image..].iter().step_by(self.step);
                        let windows = &windows[run.window..][..run.length];
                        *sum += elements.zip(windows).map(|(element, window)| element * window).sum::<f64>();
                    }
                }
            }
        });
        let terms = self.of.batch as f64 * self.windows as f64;
        Ok(Sums { numbers: sums, order: self.weights_order(), terms })
    }
}

/// The windows that meet the image with an element of the kernel, counted in row-major order.
fn runs(of: &Windows, element: usize) -> Vec<Meeting> {
    let mut runs = vec![Meeting { image: 0, window: 0, length: 1 }];
    let mut left = element;
    let mut taps: Vec<i64> = Vec::new();
    for dim in of.dims.iter().rev() {
        taps.push((left % dim.kernel as usize) as i64);
        left /= dim.kernel as usize;
    }
    for (axis, (dim, tap)) in of.dims.iter().zip(taps.into_iter().rev()).enumerate() {
        let place = |window: i64| dim.start(window) + tap * dim.dilation;
        let meets = |&window: &i64| (0..dim.image).contains(&place(window));
        let meeting: Vec<i64> = (0..dim.windows).filter(meets).collect();
        let is_last = axis + 1 == of.dims.len();
        let within = |run: &Meeting| -> Vec<Meeting> {
            let at = |window: i64, length: usize| Meeting {
                image: run.image * dim.image as usize + place(window) as usize,
                window: run.window * dim.windows as usize + window as usize,
                length,
            };
            match (is_last, meeting.first()) {
                // Those that meet the image are neighbours.
                (true, Some(&first)) => vec![at(first, meeting.len())],
                _ => meeting.iter().map(|&window| at(window, 1)).collect(),
            }
        };
        runs = runs.iter().flat_map(within).collect();
    }
    runs
}
