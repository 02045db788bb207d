//! Layers of windows: convolutions, transposed ones and pools; and data enlarged or shrunk.

use sterna::TensorId;

use super::context::Context;
use super::rows::floats;
use super::shapes::numbers;
use crate::compose::resolved_axes;
use crate::error::Fault;
use crate::steps::{Blend, Coordinates, Nearest, Pool, Resized, Rounding, WindowPadding, Windows};
use crate::weights::floats as float_numbers;

const NO_ROOM: &str = "as many channels as the filters, and room for a window";

pub(super) fn convolution(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    convolved(layer, false)
}

/// The filters have the groups as their first dim.
pub(super) fn group_convolution(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    convolved(layer, true)
}

fn convolved(layer: &mut Context<'_, '_>, has_groups: bool) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let filters = Filters::of(layer, has_groups, true)?;
    let windows = windows(layer, filters.kernel.len())?;
    let operands = [layer.inputs[0], filters.tensor];
    let result = layer.steps.convolution(operands, None, &windows, filters.groups)?;
    result.ok_or_else(|| layer.unfit(0, NO_ROOM))
}

pub(super) fn transposed_convolution(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    transposed(layer, false)
}

/// The filters have the groups as their first dim.
pub(super) fn transposed_group_convolution(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    transposed(layer, true)
}

fn transposed(layer: &mut Context<'_, '_>, has_groups: bool) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let filters = Filters::of(layer, has_groups, false)?;
    let kernel = &filters.kernel;
    let mut windows = windows(layer, kernel.len())?;
    let mut more = match layer.layer.attr("output_padding") {
        Some(_) => layer.ints("output_padding")?,
        None => vec![0; kernel.len()],
    };
    if more.len() != kernel.len() || more.iter().any(|&more| more < 0) {
        return Err(Fault::of_attribute("output_padding", "a number from 0 on for each dim of the kernel"));
    }
    if layer.inputs.len() > 2 {
        let shape = numbers(layer, 2)?;
        let dims = layer.known_dims(0, "known dims, beside which the output has a shape")?;
        if shape.len() != kernel.len() {
            return Err(layer.bad_value(2, "a length for each dim of the kernel"));
        }
        let is_given = windows.auto_pad == WindowPadding::Given;
        let front_is_less = windows.auto_pad != WindowPadding::SameLower;
        for (at, &length) in kernel.iter().enumerate() {
            let (stride, dilation) = (windows.strides[at], windows.dilations[at]);
            let extent = (length - 1).saturating_mul(dilation).saturating_add(1).saturating_add(more[at]);
            let whole = (dims[2 + at] - 1).saturating_mul(stride).saturating_add(extent);
            let total = whole.saturating_sub(shape[at]);
            let cut = total.max(0);
            let (less, rest) = (cut / 2, cut - cut / 2);
            if is_given {
                return Err(Fault::of_attribute("auto_pad", "same_upper, same_lower with a shape as input"));
            }
            (windows.begin[at], windows.end[at]) = if front_is_less { (less, rest) } else { (rest, less) };
            more[at] = more[at].saturating_sub(total.min(0));
        }
        windows.auto_pad = WindowPadding::Given;
    }
    if windows.begin.iter().chain(&windows.end).any(|&pad| pad < 0) {
        return Err(Fault::of_attribute("pads_begin", "numbers from 0 on"));
    }
    let operands = [layer.inputs[0], filters.tensor];
    let result = layer.steps.transposed_convolution(operands, None, &windows, filters.groups, &more)?;
    result.ok_or_else(|| layer.unfit(0, "as many channels as the filters, and windows behind the padding"))
}

/// The filters of a convolution, with the channels of all groups in one dim.
struct Filters {
    tensor: TensorId,
    groups: i64,
    kernel: Vec<i64>,
}

impl Filters {
    fn of(layer: &mut Context<'_, '_>, has_groups: bool, first_is_result: bool) -> Result<Self, Fault> {
        let rank = layer.rank(0)?;
        let dims = layer.known_dims(1, "known dims, which are those of the windows")?;
        let ahead = usize::from(has_groups);
        if rank < 3 || dims.len() != rank + ahead {
            let needed = if has_groups { "a dim more than the data has" } else { "as many dims as the data" };
            return Err(layer.unfit(1, format!("{needed}, which are three or more")));
        }
        let kernel = dims[ahead + 2..].to_vec();
        if !has_groups {
            return Ok(Self { tensor: layer.inputs[1], groups: 1, kernel });
        }
        // {groups, first, second, kernel}: the first of a convolution are channels of the result, those of a
        // transposed one of the data, and both come group by group.
        let (groups, first) = (dims[0], dims[1]);
        let Some(all) = groups.checked_mul(first).filter(|_| groups > 0) else {
            let of = if first_is_result { "result" } else { "data" };
            return Err(layer.unfit(1, format!("one group or more, and channels of the {of} in each")));
        };
        let joined: Vec<i64> = std::iter::once(all).chain(dims[2..].iter().copied()).collect();
        Ok(Self { tensor: layer.steps.in_shape(layer.inputs[1], &joined)?, groups, kernel })
    }
}

/// The attributes of windows along some dims.
fn windows(layer: &Context<'_, '_>, count: usize) -> Result<Windows, Fault> {
    let words = [
        ("explicit", WindowPadding::Given),
        ("notset", WindowPadding::Given),
        ("valid", WindowPadding::Nothing),
        ("same_upper", WindowPadding::SameUpper),
        ("same_lower", WindowPadding::SameLower),
    ];
    let auto_pad = layer.word("auto_pad", &words, WindowPadding::Given)?;
    let (begin, end) = match auto_pad {
        WindowPadding::Given => (layer.ints("pads_begin")?, layer.ints("pads_end")?),
        _ => (vec![0; count], vec![0; count]),
    };
    // A mean has no gaps in its windows.
    let dilations = match layer.layer.attr("dilations") {
        None if layer.layer.attr("kernel").is_some() => vec![1; count],
        _ => layer.ints("dilations")?,
    };
    let windows = Windows { strides: layer.ints("strides")?, dilations, begin, end, auto_pad };
    match windows.misfit(count) {
        Some((attribute, needed)) => {
            let attribute = if attribute == "pads" { "pads_begin" } else { attribute };
            Err(Fault::of_attribute(attribute, needed))
        }
        None => Ok(windows),
    }
}

/// The largest element of each window.
pub(super) fn largest(layer: &mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    pool(layer, true).map(|result| vec![result])
}

/// The mean of each window.
pub(super) fn mean(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    pool(layer, false)
}

fn pool(layer: &mut Context<'_, '_>, is_max: bool) -> Result<TensorId, Fault> {
    let (rank, kernel) = (layer.rank(0)?, layer.ints("kernel")?);
    if rank < 3 || kernel.len() != rank - 2 || kernel.iter().any(|&length| length < 1) {
        return Err(Fault::of_attribute("kernel", "a number from 1 on for each dim behind the channels"));
    }
    let windows = windows(layer, kernel.len())?;
    if windows.begin.iter().chain(&windows.end).any(|&pad| pad < 0) {
        return Err(Fault::of_attribute("pads_begin", "numbers from 0 on"));
    }
    if !is_max && windows.dilations.iter().any(|&dilation| dilation != 1) {
        return Err(Fault::of_attribute("dilations", "1; a mean of windows with gaps"));
    }
    let words = [("floor", Rounding::Down), ("ceil", Rounding::Up), ("ceil_torch", Rounding::UpWithin)];
    let rounding = layer.word("rounding_type", &words, Rounding::Down)?;
    let counts_padding = !is_max && !layer.truth("exclude-pad", false)?;
    let pool = Pool { kernel, windows, rounding, is_max, counts_padding };
    let result = layer.steps.pooled(layer.inputs[0], &pool)?;
    result.ok_or_else(|| match (layer.steps.builder.known_dims(layer.inputs[0]), rounding) {
        (None, Rounding::UpWithin | Rounding::Up) => {
            let needed = "known dims, which tell the number of windows; give the model a shape".into();
            Fault::UnknownShape { port: layer.port(0), needed }
        }
        _ => layer.unfit(0, "room for a window"),
    })
}

/// Data divided by a norm of the channels around each.
pub(super) fn local_response(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    layer.known_dims(0, "known dims, of which the second are channels")?;
    if numbers(layer, 1)? != [1] {
        return Err(layer.bad_value(1, "1, the axis of channels"));
    }
    let size = layer.int("size", None)?;
    if size < 1 {
        return Err(Fault::of_attribute("size", "a number from 1 on"));
    }
    let [alpha, beta, bias] = ["alpha", "beta", "bias"].map(|name| layer.float(name));
    let of = [alpha? as f32, beta? as f32, bias? as f32];
    let result = layer.steps.local_response(layer.inputs[0], size, of)?;
    result.ok_or_else(|| layer.unfit(0, "channels, as many as there is room for"))
}

/// The largest element or the mean of windows that share each dim behind the channels, as many as a constant
/// asks for.
pub(super) fn adaptive_pool(layer: &mut Context<'_, '_>, is_max: bool) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let counts = numbers(layer, 1)?;
    let result = layer.steps.adaptively_pooled(layer.inputs[0], &counts, is_max)?;
    result.ok_or_else(|| layer.unfit(0, "known dims with elements behind the channels, which windows share"))
}

/// Where the elements of resized data lie, and which elements are the nearest there.
fn places(layer: &Context<'_, '_>) -> Result<(Coordinates, Nearest), Fault> {
    let coordinates = [
        ("half_pixel", Coordinates::HalfPixel),
        ("pytorch_half_pixel", Coordinates::HalfPixelOrFirst),
        ("asymmetric", Coordinates::Asymmetric),
        ("align_corners", Coordinates::AlignCorners),
    ];
    let coordinates = layer.word("coordinate_transformation_mode", &coordinates, Coordinates::HalfPixel)?;
    let nearest = [
        ("round_prefer_floor", Nearest::PreferFloor),
        ("round_prefer_ceil", Nearest::PreferCeil),
        ("floor", Nearest::Floor),
        ("ceil", Nearest::Ceil),
        ("simple", Nearest::Simple),
    ];
    Ok((coordinates, layer.word("nearest_mode", &nearest, Nearest::PreferFloor)?))
}

/// Data enlarged or shrunk along some axes, by factors or to lengths.
pub(super) fn interpolate(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    if layer.truth("antialias", false)? {
        return Err(Fault::of_attribute("antialias", "false"));
    }
    for name in ["pads_begin", "pads_end"] {
        if layer.layer.attr(name).is_some() && layer.ints(name)?.iter().any(|&pad| pad != 0) {
            return Err(Fault::of_attribute(name, "zeros"));
        }
    }
    let (coordinates, nearest) = places(layer)?;
    let has_coefficient = layer.layer.attr("cube_coeff").is_some();
    let cubic = Blend::Cubic(if has_coefficient { layer.float("cube_coeff")? } else { -0.75 });
    let nearest = Blend::Nearest(nearest);
    let modes =
        [("nearest", nearest), ("linear", Blend::Linear), ("linear_onnx", Blend::Linear), ("cubic", cubic)];
    let blend = layer.word("mode", &modes, nearest)?;
    if blend != nearest {
        floats(layer, 0)?;
    }
    let by_lengths = layer.word("shape_calculation_mode", &[("sizes", true), ("scales", false)], true)?;
    let dims = layer.known_dims(0, "known dims, which are resized")?;
    // The version of set 4 has lengths and factors, that of set 11 one of them.
    let has_both = layer.opset.is_some_and(|opset| opset < 11);
    let (by_axes, by_size) = match (has_both, by_lengths) {
        (true, true) => (3, 1),
        (true, false) => (3, 2),
        (false, _) => (2, 1),
    };
    let axes = match layer.inputs.len() > by_axes {
        true => resolved_axes(&numbers(layer, by_axes)?, dims.len()),
        false => Some((0..dims.len()).collect()),
    };
    let axes = axes.ok_or_else(|| layer.bad_value(by_axes, "axes within the dims, each once"))?;
    let mut by = Resized {
        lengths: dims.clone(),
        factors: vec![1.0; dims.len()],
        coordinates,
        blend,
        antialias: false,
        exclude_outside: false,
    };
    let needed = "a number above 0 for each axis";
    let factors: Vec<f32> = match by_lengths {
        true => {
            let lengths = numbers(layer, by_size)?;
            let shares = lengths.iter().zip(&axes).map(|(&length, &axis)| length as f32 / dims[axis] as f32);
            axes.iter().zip(&lengths).for_each(|(&axis, &length)| by.lengths[axis] = length);
            if lengths.len() == axes.len() { shares.collect() } else { Vec::new() }
        }
        false => {
            let value = layer.constant(by_size, "constant factors")?;
            let factors: Vec<f32> =
                float_numbers(value).unwrap_or_default().iter().map(|&factor| factor as f32).collect();
            // A float converts within the bounds.
            let length = |(&factor, &axis): (&f32, &usize)| (dims[axis] as f64 * f64::from(factor)) as i64;
            let lengths: Vec<i64> = factors.iter().zip(&axes).map(length).collect();
            axes.iter().zip(&lengths).for_each(|(&axis, &length)| by.lengths[axis] = length);
            factors
        }
    };
    if factors.len() != axes.len() || !factors.iter().all(|&factor| factor > 0.0 && factor.is_finite()) {
        return Err(layer.bad_value(by_size, needed));
    }
    axes.iter().zip(&factors).for_each(|(&axis, &factor)| by.factors[axis] = factor);
    let result = layer.steps.resized(layer.inputs[0], &by)?;
    result.ok_or_else(|| layer.unfit(0, "dims of at least one element, and lengths from 1 to 2^24"))
}
