//! The windows of convolutions and pools: which elements of an image each window sees.
//!
//! An image has a batch, channels and spatial dims. A kernel slides over it; each place of the kernel is a
//! window, and the tensor of windows has an element for each window and each of its channels. A convolution
//! makes windows of an image, its transposed form an image of windows, and their backward forms one of image,
//! windows and weights of the other two. So one geometry serves all of them.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::axis::{shape_error, unfit};
use super::op::Op;
use super::row::{Schema, ShapeRule};
use crate::error::{Error, Result, ShapeFault};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{self, Dims};

/// The windows of an op on tensors of known shapes.
///
/// All sizes are checked: positions of windows, padded images and extents of kernels fit into i64, and no
/// product of a place and a stride leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) batch: i64,
    /// How many groups the channels are divided into; a window of a group sees the channels of the group.
    pub(crate) groups: i64,
    /// The channels of the image, those of all groups.
    pub(crate) image_channels: i64,
    /// The channels of the windows, those of all groups.
    pub(crate) window_channels: i64,
    /// The spatial dims, from the outermost on; there is at least one.
    pub(crate) dims: SmallVec<[WindowDim; 3]>,
    /// The axes of image and windows.
    pub(crate) data: DataAxes,
    /// The axes of the weights; `None` for a pool.
    pub(crate) weights: Option<WeightsAxes>,
}

/// The windows along a spatial dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowDim {
    /// The size of the image.
    pub(crate) image: i64,
    /// The number of windows.
    pub(crate) windows: i64,
    /// The size of the kernel, and from one of its elements to the next.
    pub(crate) kernel: i64,
    pub(crate) dilation: i64,
    /// From one window to the next.
    pub(crate) stride: i64,
    /// How many elements lie before the image and behind it. A window may reach beyond those behind: one of
    /// a pool that rounds up, and one of a transposed convolution with `output_padding`.
    pub(crate) pad_begin: i64,
    pub(crate) pad_end: i64,
}

/// The axes of a tensor of data, whose first axis is the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataAxes {
    pub(crate) channels: usize,
    /// The first of the spatial axes, which are neighbours.
    pub(crate) spatial: usize,
}

/// The axes of a tensor of weights.
///
/// A convolution calls the channels of the image I and those of the windows O, its transposed form the other
/// way round. So `OIX` of the one is `IOX` of the other, and `XIO` is `XOI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WeightsAxes {
    /// The channels of the image, those of one group.
    pub(crate) image: usize,
    /// The channels of the windows, those of all groups.
    pub(crate) windows: usize,
    /// The first of the spatial axes, which are neighbours.
    pub(crate) spatial: usize,
}

#[allow(dead_code, reason = "kernels and the reference of pools read it")]
impl WindowDim {
    /// How many elements of the padded image lie from the first element of the kernel to the last.
    pub(crate) fn extent(&self) -> i64 {
        (self.kernel - 1) * self.dilation + 1
    }

    /// The place in the image of the first element of a window; negative in the padding.
    pub(crate) fn start(&self, window: i64) -> i64 {
        window * self.stride - self.pad_begin
    }

    /// The elements of the kernel that lie within the image, for a window.
    pub(crate) fn taps(&self, window: i64) -> Range<i64> {
        self.taps_within(window, 0, self.image)
    }

    /// The elements of the kernel that lie within the padded image, for a window.
    pub(crate) fn padded_taps(&self, window: i64) -> Range<i64> {
        self.taps_within(window, -self.pad_begin, self.image + self.pad_end)
    }

    fn taps_within(&self, window: i64, first: i64, end: i64) -> Range<i64> {
        let start = self.start(window);
        // How many steps lead from the start to a place, or beyond it.
        let steps_to = |place: i64| match place > start {
            true => ((place - start - 1) / self.dilation + 1).min(self.kernel),
            false => 0,
        };
        let begin = steps_to(first);
        begin..steps_to(end).max(begin)
    }
}

impl Windows {
    /// The shape of the image.
    pub(crate) fn image_shape(&self) -> Dims {
        self.data_shape(self.image_channels, |dim| dim.image)
    }

    /// The shape of the tensor of windows.
    pub(crate) fn windows_shape(&self) -> Dims {
        self.data_shape(self.window_channels, |dim| dim.windows)
    }

    fn data_shape(&self, channels: i64, size: fn(&WindowDim) -> i64) -> Dims {
        let mut shape = Dims::from_elem(self.batch, self.dims.len() + 2);
        shape[self.data.channels] = channels;
        for (slot, dim) in shape[self.data.spatial..].iter_mut().zip(&self.dims) {
            *slot = size(dim);
        }
        shape
    }

    /// The shape of the weights; that of the kernel for a pool.
    pub(crate) fn weights_shape(&self) -> Dims {
        let kernel = self.dims.iter().map(|dim| dim.kernel);
        let Some(axes) = self.weights else { return kernel.collect() };
        let mut shape = Dims::from_elem(self.window_channels, self.dims.len() + 2);
        shape[axes.image] = self.image_channels / self.groups;
        shape[axes.spatial..].iter_mut().zip(kernel).for_each(|(slot, size)| *slot = size);
        shape
    }
}

/// Where an op has a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowPort {
    Input(usize),
    Result,
}

/// Where an op has image, windows and weights; a pool has no weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowRoles {
    pub(crate) image: WindowPort,
    pub(crate) windows: WindowPort,
    pub(crate) weights: Option<WindowPort>,
}

/// The places of the tensors of a convolution or a pool, forward or backward; `None` for ops of other kinds.
pub(crate) fn roles(op: &Op) -> Option<WindowRoles> {
    use WindowPort::{Input, Result};
    let roles = |image, windows, weights| WindowRoles { image, windows, weights };
    Some(match Schema::of(op.kind()).shape_rule {
        ShapeRule::Conv => roles(Input(0), Result, Some(Input(1))),
        ShapeRule::ConvBpropData => roles(Result, Input(0), Some(Input(1))),
        ShapeRule::ConvBpropFilters => roles(Input(0), Input(1), Some(Result)),
        ShapeRule::Convtranspose => roles(Result, Input(0), Some(Input(1))),
        ShapeRule::ConvtransposeBpropData => roles(Input(0), Result, Some(Input(1))),
        ShapeRule::ConvtransposeBpropFilters => roles(Input(1), Input(0), Some(Result)),
        ShapeRule::Pool => roles(Input(0), Result, None),
        ShapeRule::PoolBwd if op.kind() == OpKind::MaxPoolBackward => roles(Input(0), Input(1), None),
        ShapeRule::PoolBwd => roles(Result, Input(0), None),
        _ => return None,
    })
}

/// True for a convolution, forward, transposed or backward.
pub(crate) fn convolves(op: &Op) -> bool {
    roles(op).is_some_and(|roles| roles.weights.is_some())
}

/// The windows of a convolution or a pool, forward or backward, with inputs of some shapes. `None` for ops of
/// other kinds, and for a backward form if the shape of its result is an input or is nowhere said.
///
/// # Errors
///
/// [`Error::Shape`] if the shapes and the attributes do not go together.
pub(crate) fn windows(op: &Op, inputs: &[&[i64]]) -> Result<Option<Windows>> {
    let Some(roles) = roles(op) else { return Ok(None) };
    let said = said_result(op, inputs)?;
    let shape_of = |place: WindowPort| match place {
        WindowPort::Input(port) => Some(inputs[port]),
        WindowPort::Result => said.as_deref(),
    };
    let (image, windows) = (shape_of(roles.image), shape_of(roles.windows));
    let Some(data) = image.or(windows) else { return Ok(None) };
    let port = if let (WindowPort::Input(port), Some(_)) = (roles.image, image) { port } else { 0 };
    if data.len() < 3 {
        return Err(unfit(op, port, data, "it has a batch, channels and at least one spatial dim"));
    }
    let of_rank = |&(_, shape): &(WindowPort, &[i64])| shape.len() != data.len();
    let both = [(roles.image, image), (roles.windows, windows)];
    let mut known = both.into_iter().filter_map(|(place, shape)| Some((place, shape?)));
    if let Some((place, shape)) = known.find(of_rank) {
        return Err(misfit(op, place, shape, "it has as many dims as the other tensor of data"));
    }
    let axes = data_axes(op, data.len());
    let frame = Frame { op, axes, spatial: data.len() - 2, roles: &roles };
    let Some(weights) = roles.weights else { return frame.pool(image, windows) };
    let Some(shape) = shape_of(weights) else { return Ok(None) };
    frame.convolution(image, windows, (weights, shape), inputs.get(2).copied()).map(Some)
}

/// The shape of the result of a convolution or a pool, forward or backward; `None` as for [`windows`].
///
/// # Errors
///
/// As [`windows`].
pub(crate) fn result(op: &Op, inputs: &[&[i64]]) -> Result<Option<Dims>> {
    let Some((windows, roles)) = windows(op, inputs)?.zip(roles(op)) else { return Ok(None) };
    Ok(Some(match roles {
        WindowRoles { image: WindowPort::Result, .. } => windows.image_shape(),
        WindowRoles { windows: WindowPort::Result, .. } => windows.windows_shape(),
        WindowRoles { weights: Some(WindowPort::Result), .. } => windows.weights_shape(),
        // That of MaxPool backward is of the same shape as its source.
        _ => windows.image_shape(),
    }))
}

fn data_axes(op: &Op, rank: usize) -> DataAxes {
    match op.str_attr(Attr::DataFormat) {
        Some("NCX") => DataAxes { channels: 1, spatial: 2 },
        _ => DataAxes { channels: rank - 1, spatial: 1 },
    }
}

fn weights_axes(op: &Op, rank: usize) -> WeightsAxes {
    match op.str_attr(Attr::WeightsFormat) {
        Some("OIX" | "IOX") => WeightsAxes { image: 1, windows: 0, spatial: 2 },
        _ => WeightsAxes { image: rank - 2, windows: rank - 1, spatial: 0 },
    }
}

/// The attribute that gives the shape of the result of a backward form, and the input that can give it
/// instead.
pub(crate) fn result_shape(op: &Op) -> Option<(Attr, usize)> {
    match Schema::of(op.kind()).shape_rule {
        ShapeRule::ConvBpropData => Some((Attr::DstShape, 2)),
        ShapeRule::ConvBpropFilters | ShapeRule::ConvtransposeBpropFilters => Some((Attr::WeightsShape, 2)),
        ShapeRule::PoolBwd if op.kind() != OpKind::MaxPoolBackward => Some((Attr::SrcShape, 1)),
        _ => None,
    }
}

/// True if the shape of the result is known without data: no input gives it, or the graph does as well.
pub(crate) fn has_known_result(op: &Op) -> bool {
    let is_input = result_shape(op).is_some_and(|(_, port)| port < op.inputs().len());
    !is_input || op.outputs()[0].dims().is_some()
}

/// The shape of the result of a backward form as the op says it: by an attribute, else by its output. A shape
/// that is an input is not known before its data is.
fn said_result(op: &Op, inputs: &[&[i64]]) -> Result<Option<Dims>> {
    let Some((attr, port)) = result_shape(op) else { return Ok(None) };
    let shape = op.s64s_attr(attr);
    // Zeros, which the op set has as default, say nothing.
    if inputs.len() <= port && shape.iter().any(|&dim| dim != 0) {
        if shape.iter().any(|&dim| dim < 0) || shape.len() != inputs[0].len() {
            return Err(unfit(
                op,
                0,
                inputs[0],
                "the attribute for the shape of the result has as many dims",
            ));
        }
        return Ok(Some(shape.into()));
    }
    let known =
        op.outputs().first().and_then(|output| output.raw_dims()).filter(|dims| shape::is_known(dims));
    Ok(known.map(Dims::from_slice))
}

fn misfit(op: &Op, place: WindowPort, given: &[i64], why: &'static str) -> Error {
    match place {
        WindowPort::Input(port) => unfit(op, port, given, why),
        WindowPort::Result => {
            let port = op.output_ref(0);
            shape_error(op, ShapeFault::Unfit { port, given: given.into(), why })
        }
    }
}

/// The attributes of windows along a spatial dim.
#[derive(Clone, Copy)]
struct Steps {
    kernel: i64,
    stride: i64,
    dilation: i64,
    pads: [i64; 2],
    output_padding: i64,
    /// How many elements of the padded image the kernel reaches over.
    extent: i64,
}

/// The parts that all tensors of an op share.
struct Frame<'a> {
    op: &'a Op,
    axes: DataAxes,
    /// The number of spatial dims.
    spatial: usize,
    roles: &'a WindowRoles,
}

impl Frame<'_> {
    fn pool(&self, image: Option<&[i64]>, windows: Option<&[i64]>) -> Result<Option<Windows>> {
        let Some(image) = image else { return Ok(None) };
        let kernel = self.op.s64s_attr(Attr::Kernel);
        if kernel.len() != self.spatial {
            return Err(self.blame(image, "the attribute `kernel` has an entry for each spatial dim"));
        }
        let steps = self.steps(image, kernel)?;
        let channels = image[self.axes.channels];
        let sizes = |dim: usize| (Some(image[self.axes.spatial + dim]), None);
        let made = Windows {
            batch: image[0],
            groups: 1,
            image_channels: channels,
            window_channels: channels,
            dims: self.dims(image, &steps, sizes)?,
            data: self.axes,
            weights: None,
        };
        self.check_windows(&made, windows)?;
        Ok(Some(made))
    }

    fn convolution(
        &self,
        image: Option<&[i64]>,
        windows: Option<&[i64]>,
        (place, weights): (WindowPort, &[i64]),
        third: Option<&[i64]>,
    ) -> Result<Windows> {
        let Self { op, axes, spatial, roles } = *self;
        if weights.len() != spatial + 2 {
            return Err(misfit(op, place, weights, "it has as many dims as the tensor of data"));
        }
        let of_weights = weights_axes(op, weights.len());
        let groups = op.s64_attr(Attr::Groups).unwrap_or(1);
        let (window_channels, in_group) = (weights[of_weights.windows], weights[of_weights.image]);
        if groups < 1 || window_channels % groups != 0 {
            return Err(misfit(op, place, weights, "its channels are not divided by the attribute `groups`"));
        }
        let too_many = || misfit(op, place, weights, "its groups have more channels than i64 counts");
        let image_channels = in_group.checked_mul(groups).ok_or_else(too_many)?;
        for (role, shape, channels) in
            [(roles.image, image, image_channels), (roles.windows, windows, window_channels)]
        {
            if let Some(shape) = shape.filter(|shape| shape[axes.channels] != channels) {
                return Err(misfit(op, role, shape, "its channels are not those of the weights"));
            }
        }
        let kernel = &weights[of_weights.spatial..][..spatial];
        let data = image.or(windows).unwrap_or_default();
        let steps = self.steps(data, kernel)?;
        let size = |shape: Option<&[i64]>, dim: usize| shape.map(|shape| shape[axes.spatial + dim]);
        let made = Windows {
            batch: data[0],
            groups,
            image_channels,
            window_channels,
            dims: self.dims(data, &steps, |dim| (size(image, dim), size(windows, dim)))?,
            data: axes,
            weights: Some(of_weights),
        };
        self.check_windows(&made, windows)?;
        // The third input of backward forms is a shape.
        if let Some(bias) = third.filter(|_| self.has_bias()) {
            let is_forward = roles.windows == WindowPort::Result;
            let channels = if is_forward { window_channels } else { image_channels };
            if bias != [channels] {
                return Err(unfit(op, 2, bias, "it holds one number for each channel of the result"));
            }
        }
        Ok(made)
    }

    fn has_bias(&self) -> bool {
        matches!(Schema::of(self.op.kind()).shape_rule, ShapeRule::Conv | ShapeRule::Convtranspose)
    }

    fn is_transposed(&self) -> bool {
        use ShapeRule::{Convtranspose, ConvtransposeBpropData, ConvtransposeBpropFilters};
        let rule = Schema::of(self.op.kind()).shape_rule;
        matches!(rule, Convtranspose | ConvtransposeBpropData | ConvtransposeBpropFilters)
    }

    /// Checks a tensor of windows that is given beside the image.
    fn check_windows(&self, made: &Windows, windows: Option<&[i64]>) -> Result<()> {
        match windows.filter(|&windows| windows != &made.windows_shape()[..]) {
            Some(windows) => {
                let why = "it has an element for each window and channel";
                Err(misfit(self.op, self.roles.windows, windows, why))
            }
            None => Ok(()),
        }
    }

    fn blame(&self, data: &[i64], why: &'static str) -> Error {
        let port = match (self.roles.image, self.roles.windows) {
            (WindowPort::Input(port), _) | (WindowPort::Result, WindowPort::Input(port)) => port,
            (WindowPort::Result, WindowPort::Result) => 0,
        };
        unfit(self.op, port, data, why)
    }

    /// The attributes for each spatial dim.
    fn steps(&self, data: &[i64], kernel: &[i64]) -> Result<SmallVec<[Steps; 3]>> {
        let zeros: SmallVec<[i64; 3]> = smallvec![0; self.spatial];
        let ones: SmallVec<[i64; 3]> = smallvec![1; self.spatial];
        let list = |attr, unless_set: &[i64], why| {
            let list = self.op.s64s_attr(attr);
            // Defaults of the op set have twelve entries, and stand for as many as there are spatial dims.
            let is_default = |&number: &i64| unless_set.first() == Some(&number);
            let is_unset = [0, 12].contains(&list.len()) && list.iter().all(is_default);
            match list.len() == self.spatial {
                true => Ok(SmallVec::from_slice(list)),
                false if is_unset && !unless_set.is_empty() => Ok(SmallVec::from_slice(unless_set)),
                false => Err(self.blame(data, why)),
            }
        };
        let strides: SmallVec<[i64; 3]> =
            list(Attr::Strides, &[], "the attribute `strides` has an entry for each spatial dim")?;
        let dilations: SmallVec<[i64; 3]> =
            list(Attr::Dilations, &ones, "the attribute `dilations` has an entry for each spatial dim")?;
        let begin: SmallVec<[i64; 3]> =
            list(Attr::PadsBegin, &zeros, "the attribute `pads_begin` has an entry for each spatial dim")?;
        let end: SmallVec<[i64; 3]> =
            list(Attr::PadsEnd, &zeros, "the attribute `pads_end` has an entry for each spatial dim")?;
        let output: SmallVec<[i64; 3]> = list(
            Attr::OutputPadding,
            &zeros,
            "the attribute `output_padding` has an entry for each spatial dim",
        )?;
        (0..self.spatial)
            .map(|i| {
                let (kernel, stride, dilation) = (kernel[i], strides[i], dilations[i]);
                if kernel < 1 || stride < 1 || dilation < 1 {
                    return Err(self.blame(data, "kernel, strides and dilations are 1 or more"));
                }
                if begin[i] < 0 || end[i] < 0 || output[i] < 0 {
                    return Err(self.blame(data, "padding is not negative"));
                }
                let extent = (kernel - 1).checked_mul(dilation).and_then(|extent| extent.checked_add(1));
                let extent = extent.ok_or_else(|| self.blame(data, TOO_FAR))?;
                let (pads, output_padding) = ([begin[i], end[i]], output[i]);
                Ok(Steps { kernel, stride, dilation, pads, output_padding, extent })
            })
            .collect()
    }

    /// The windows along each spatial dim, of which the sizes of image or of windows are known.
    fn dims(
        &self,
        data: &[i64],
        steps: &[Steps],
        sizes: impl Fn(usize) -> (Option<i64>, Option<i64>),
    ) -> Result<SmallVec<[WindowDim; 3]>> {
        let of_dim = |(i, steps): (usize, &Steps)| {
            let dim = match sizes(i) {
                (Some(image), _) => self.of_image(steps, image),
                (None, windows) => self.of_windows(steps, windows.unwrap_or(0)),
            };
            dim.map_err(|why| self.blame(data, why))
        };
        steps.iter().enumerate().map(of_dim).collect()
    }

    /// The windows over an image.
    fn of_image(&self, steps: &Steps, image: i64) -> Result<WindowDim, &'static str> {
        let &Steps { kernel, stride, dilation, extent, .. } = steps;
        // The image that a transposed convolution gives has a stride for each window.
        let beyond = match image % stride {
            rest @ 1.. if !self.is_transposed() => rest,
            _ => stride,
        };
        let [pad_begin, pad_end] = self.pads(steps, extent - beyond);
        let padded =
            pad_begin.checked_add(pad_end).and_then(|pads| pads.checked_add(image)).ok_or(TOO_FAR)?;
        let room = padded - extent;
        let steps = match self.op.str_attr(Attr::RoundingType) {
            // Up to the next step, of which part of a window may be left.
            Some("ceil") if room > -stride => {
                room.div_euclid(stride) + i64::from(room.rem_euclid(stride) > 0)
            }
            _ if room >= 0 => room / stride,
            _ => return Err("the kernel is larger than the padded image"),
        };
        // Where the last window ends.
        let end = steps.checked_mul(stride).and_then(|start| start.checked_add(extent));
        end.ok_or(TOO_FAR)?;
        Ok(WindowDim { image, windows: steps + 1, kernel, dilation, stride, pad_begin, pad_end })
    }

    /// The image that windows cover.
    fn of_windows(&self, steps: &Steps, windows: i64) -> Result<WindowDim, &'static str> {
        let &Steps { kernel, stride, dilation, extent, output_padding, .. } = steps;
        let [pad_begin, pad_end] = self.pads(steps, extent - stride);
        let pads = pad_begin.checked_add(pad_end).ok_or(TOO_FAR)?;
        let end = (windows - 1).checked_mul(stride).and_then(|start| start.checked_add(extent));
        let padded = end.and_then(|end| end.checked_add(output_padding)).ok_or(TOO_FAR)?;
        match padded.checked_sub(pads).ok_or(TOO_FAR)? {
            image @ 0.. => Ok(WindowDim { image, windows, kernel, dilation, stride, pad_begin, pad_end }),
            _ => Err("the windows reach less far than the padding"),
        }
    }

    /// The padding before and behind, which for `SAME_UPPER` and `SAME_LOWER` is a number in all.
    fn pads(&self, steps: &Steps, in_all: i64) -> [i64; 2] {
        let in_all = in_all.max(0);
        match self.op.str_attr(Attr::AutoPad) {
            Some("VALID") => [0, 0],
            Some("SAME_UPPER") => [in_all / 2, in_all - in_all / 2],
            Some("SAME_LOWER") => [in_all - in_all / 2, in_all / 2],
            _ => steps.pads,
        }
    }
}

const TOO_FAR: &str = "its windows reach farther than i64 counts";

#[cfg(test)]
mod tests;
