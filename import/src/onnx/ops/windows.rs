//! Nodes of windows: convolutions of floats and of whole numbers, transposed ones, and pools.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use super::node_row::Contents;
use super::quantization::{one_number, quantized};
use crate::dims::is_known;
use crate::error::Fault;
use crate::steps::{Pool, Rounding, WindowPadding, Windows};
use crate::weights::{floats as float_numbers, integers};

use Contents::{Int, Ints, Text};
use DataType as D;
use OpKind as K;

pub(super) const HOW_CONVOLVED: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("dilations", Ints),
    ("group", Int),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];

pub(super) const HOW_TRANSPOSED: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("dilations", Ints),
    ("group", Int),
    ("kernel_shape", Ints),
    ("output_padding", Ints),
    ("output_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];

/// Attributes of the largest elements of windows, those of the first versions without the last three.
pub(super) const HOW_POOLED: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("storage_order", Int),
    ("strides", Ints),
    ("ceil_mode", Int),
    ("dilations", Ints),
];
pub(super) const HOW_AVERAGED: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("count_include_pad", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];
pub(super) const OF_NORM: &[(&str, Contents)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("p", Int),
    ("pads", Ints),
    ("strides", Ints),
];

const NO_ROOM: &str = "as many channels as the filters, and room for a window";

pub(super) fn convolution(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    node.one_type(0, 1)?;
    let (windows, groups, bias) = (of_filters(node)?, groups(node)?, node.optional(2));
    let result = node.steps.convolution([node.input(0), node.input(1)], bias, &windows, groups)?;
    result.ok_or_else(|| node.unfit(0, NO_ROOM))
}

/// The way back of a convolution: each element of the data adds its products with the filters.
pub(super) fn transposed_convolution(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    node.one_type(0, 1)?;
    let (mut windows, groups, bias) = (of_filters(node)?, groups(node)?, node.optional(2));
    let filters = node.known_dims(1, "known dims")?;
    let kernel = &filters[2..];
    let mut more = node.ints("output_padding").map_or_else(|| vec![0; kernel.len()], <[i64]>::to_vec);
    if more.len() != kernel.len() || more.iter().any(|&more| more < 0) {
        return Err(Fault::of_attribute("output_padding", "a number from 0 on for each dim of the kernel"));
    }
    let is_same = matches!(windows.auto_pad, WindowPadding::SameUpper | WindowPadding::SameLower);
    let shape = node.ints("output_shape").filter(|shape| !shape.is_empty());
    if is_same || shape.is_some() {
        let data = node.steps.builder.dims(node.input(0)).map(<[i64]>::to_vec).unwrap_or_default();
        let front_is_less = windows.auto_pad == WindowPadding::SameUpper;
        for (at, &length) in kernel.iter().enumerate() {
            let (stride, dilation) = (windows.strides[at], windows.dilations[at]);
            let extent = (length - 1).saturating_mul(dilation).saturating_add(1).saturating_add(more[at]);
            let total = match shape {
                // A stride of the result for each element of the data.
                None => extent.saturating_sub(stride),
                Some(shape) => {
                    let lengths = shape.get(shape.len().wrapping_sub(kernel.len())..).unwrap_or_default();
                    let Some((&wanted, true)) = lengths.get(at).zip(Some(is_known(&data[2..]))) else {
                        let needed = "a length for each dim of the kernel, of data of known dims";
                        return Err(Fault::of_attribute("output_shape", needed));
                    };
                    (data[2 + at] - 1).saturating_mul(stride).saturating_add(extent).saturating_sub(wanted)
                }
            };
            let (less, rest) = (total.max(0) / 2, total.max(0) - total.max(0) / 2);
            (windows.begin[at], windows.end[at]) = if front_is_less { (less, rest) } else { (rest, less) };
            more[at] = more[at].saturating_sub(total.min(0));
        }
        windows.auto_pad = WindowPadding::Given;
    }
    if windows.begin.iter().chain(&windows.end).any(|&pad| pad < 0) {
        return Err(Fault::of_attribute("pads", "numbers from 0 on"));
    }
    let operands = [node.input(0), node.input(1)];
    let result = node.steps.transposed_convolution(operands, bias, &windows, groups, &more)?;
    result.ok_or_else(|| node.unfit(0, "as many channels as the filters, and windows behind the padding"))
}

/// The convolution of numbers in 8 bits, less a zero point each, in s32.
pub(super) fn convolution_of_integers(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    for (input, point) in [(0, 2), (1, 3)] {
        if !matches!(node.data_type(input), D::S8 | D::U8) {
            return Err(node.bad_type(input, "s8, u8"));
        }
        if node.optional(point).is_some() {
            node.one_type(input, point)?;
            one_number(node, point)?;
        }
    }
    let (windows, groups) = (of_filters(node)?, groups(node)?);
    node.value(1, "constant filters, whose magnitudes tell that no sum is rounded")?;
    let zeros = [node.optional(2), node.optional(3)];
    let operands = [node.input(0), node.input(1)];
    let result = node.steps.whole_convolution(operands, zeros, &windows, groups)?;
    result.ok_or_else(|| node.unfit(1, "as many channels as the data, and filters whose sums f32 holds"))
}

/// The convolution by the scales of data and filters, in 8 bits again, with a bias in s32 that is added to
/// the sums. Scales and zero points that are constants are those of ops around the convolution.
pub(super) fn quantized_convolution(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let filters = node.known_dims(3, "known dims")?;
    if filters.len() < 3 {
        return Err(node.unfit(3, "three dims or more"));
    }
    let has_bias = node.optional(8).is_some();
    if has_bias && (node.data_type(8) != D::S32 || node.known_dims(8, "known dims")? != filters[..1]) {
        return Err(node.unfit(8, format!("s32 of {} filters", filters[0])));
    }
    let own = |input: usize| (input, node.optional(input));
    let mut inputs = [own(0), own(3), own(2), own(5)];
    let zeros = inputs[3].1.and_then(|zeros| node.steps.builder.value(zeros)).and_then(integers);
    if let Some([zero, rest @ ..]) = zeros.as_deref()
        && rest.iter().all(|other| other == zero)
    {
        // One for each filter, all alike.
        inputs[3].1 = Some(node.steps.number(node.data_type(5), *zero as f64)?);
    }
    if let Some(result) = between_ops(node, filters[0])? {
        return quantized(node, result, 6, 0);
    }
    let mut sums = convolution_of_integers(&mut node.with_inputs(&inputs))?;
    let beside: Vec<i64> = std::iter::once(filters[0]).chain(vec![1; filters.len() - 2]).collect();
    if has_bias {
        let bias = node.steps.in_shape(node.input(8), &beside)?;
        sums = node.steps.both(K::Add, sums, bias)?;
    }
    let mut result = node.steps.cast(sums, D::F32)?;
    for (input, count) in [(1, 1), (4, filters[0])] {
        let dims = node.known_dims(input, "known dims")?;
        let mut scale = node.steps.cast(node.input(input), D::F32)?;
        scale = match *dims {
            [] | [1] => node.steps.in_shape(scale, &[])?,
            [own] if own == count => node.steps.in_shape(scale, &beside)?,
            _ => return Err(node.unfit(input, "one number; that of filters, or one for each")),
        };
        result = node.steps.both(K::Multiply, result, scale)?;
    }
    quantized(node, result, 6, 0)
}

/// The convolution of data and filters that ops `Dequantize` make of numbers in 8 bits, with a bias by the
/// product of their scales. `None` for scales and zero points that are not constants.
fn between_ops(node: &mut Call<'_, '_>, count: i64) -> Result<Option<TensorId>, Fault> {
    let numbers = |input: usize| {
        let value = node.optional(input).and_then(|input| node.steps.builder.value(input));
        value.and_then(float_numbers).map(|list| list.into_iter().map(|x| x as f32).collect::<Vec<f32>>())
    };
    let points = |input: usize| node.steps.builder.value(node.input(input)).and_then(integers);
    let parameters = (numbers(1), points(2), numbers(4), points(5));
    let (Some(scale), Some(zero), Some(scales), Some(zeros)) = parameters else { return Ok(None) };
    let is_count = |length: usize| length == 1 || length as i64 == count;
    if scale.len() != 1 || zero.len() != 1 || !is_count(scales.len()) || !is_count(zeros.len()) {
        return Ok(None);
    }
    for (data, point) in [(0, 2), (3, 5)] {
        node.one_type(data, point)?;
        if !matches!(node.data_type(data), D::S8 | D::U8) {
            return Err(node.bad_type(data, "s8, u8"));
        }
    }
    let attrs = |scales: &[f32], zeros: &[i64], count: usize| {
        let many = |length: usize| if length == count { 1 } else { count };
        let scales: Vec<f32> = scales.repeat(many(scales.len()));
        let qtype = if count == 1 { "per_tensor" } else { "per_channel" };
        let attrs: [(Attr, AttrValue); 4] = [
            (Attr::Qtype, qtype.into()),
            (Attr::Axis, 0i64.into()),
            (Attr::Scales, scales.into()),
            (Attr::Zps, zeros.repeat(many(zeros.len())).into()),
        ];
        attrs
    };
    let of_filters = scales.len().max(zeros.len());
    let x = node.steps.emit(K::Dequantize, &attrs(&scale, &zero, 1), &[node.input(0)], D::F32)?;
    let w = node.steps.emit(K::Dequantize, &attrs(&scales, &zeros, of_filters), &[node.input(3)], D::F32)?;
    let mut operands = vec![(0, Some(x)), (3, Some(w))];
    if node.optional(8).is_some() {
        let bias = node.steps.cast(node.input(8), D::F32)?;
        let products: Vec<f32> = scales.iter().map(|of_filter| of_filter * scale[0]).collect();
        let products = crate::constant::Constant::from_slice(&[products.len() as i64], &products)?;
        let products = crate::compose::stored(node.steps.builder, products)?;
        operands.push((8, Some(node.steps.both(K::Multiply, bias, products)?)));
    }
    convolution(&mut node.with_inputs(&operands)).map(Some)
}

/// The windows of a convolution, whose filters are input 1.
fn of_filters(node: &Call<'_, '_>) -> Result<Windows, Fault> {
    let rank = node.rank(0)?;
    let filters = node.known_dims(1, "known dims, which are those of the windows")?;
    if filters.len() < 3 || rank != filters.len() {
        return Err(node.unfit(0, "as many dims as the filters have, three or more"));
    }
    let kernel = &filters[2..];
    if node.ints("kernel_shape").is_some_and(|shape| shape != kernel) {
        return Err(Fault::of_attribute("kernel_shape", "the dims of the filters behind the channels"));
    }
    windows(node, kernel.len())
}

fn groups(node: &Call<'_, '_>) -> Result<i64, Fault> {
    match node.int("group", 1) {
        groups @ 1.. => Ok(groups),
        _ => Err(Fault::of_attribute("group", "a number from 1 on")),
    }
}

/// The attributes of windows along some dims.
fn windows(node: &Call<'_, '_>, count: usize) -> Result<Windows, Fault> {
    let list = |name: &str| node.ints(name).map_or_else(|| vec![1; count], <[i64]>::to_vec);
    let words = [
        ("NOTSET", WindowPadding::Given),
        ("VALID", WindowPadding::Nothing),
        ("SAME_UPPER", WindowPadding::SameUpper),
        ("SAME_LOWER", WindowPadding::SameLower),
    ];
    let auto_pad = node.word("auto_pad", &words, WindowPadding::Given)?;
    let pads = match node.ints("pads") {
        Some(pads) if auto_pad == WindowPadding::Given => pads.to_vec(),
        _ => vec![0; 2 * count],
    };
    if pads.len() != 2 * count {
        return Err(Fault::of_attribute("pads", "two numbers for each dim behind the channels"));
    }
    let (begin, end) = (pads[..count].to_vec(), pads[count..].to_vec());
    let windows = Windows { strides: list("strides"), dilations: list("dilations"), begin, end, auto_pad };
    match windows.misfit(count) {
        Some((attribute, needed)) => Err(Fault::of_attribute(attribute, needed)),
        None => Ok(windows),
    }
}

/// The largest element of each window.
pub(super) fn largest(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    if node.outputs > 1 {
        let needed = "an op that gives the places of the largest elements, which are the output `Indices`";
        return Err(Fault::Unsupported { needed: needed.into() });
    }
    if !matches!(node.data_type(0), D::S8 | D::U8) {
        floats(node)?;
    }
    pool(node, true)
}

/// The mean of each window.
pub(super) fn mean(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    pool(node, false)
}

/// The norm of each window.
pub(super) fn norm(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    let power = node.int("p", 2);
    if !(1..=i64::from(u16::MAX)).contains(&power) {
        return Err(Fault::of_attribute("p", "a number from 1 to 65535"));
    }
    if node.flag("ceil_mode", false) {
        return Err(Fault::of_attribute("ceil_mode", "0; a sum of windows that end behind the padding"));
    }
    let pool = Pool { counts_padding: true, ..pool_of(node, false)? };
    let result = node.steps.pooled_norm(node.input(0), &pool, power as f32)?;
    result.ok_or_else(|| node.unfit(0, "room for a window"))
}

/// Data divided by a norm of the channels around each.
pub(super) fn local_response(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    let size = node.int("size", 0);
    let numbers = [node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0)];
    node.known_dims(0, "known dims, of which the second are channels")?;
    if size < 1 {
        return Err(Fault::of_attribute("size", "a number from 1 on"));
    }
    let result = node.steps.local_response(node.input(0), size, numbers)?;
    result.ok_or_else(|| node.unfit(0, "channels, as many as there is room for"))
}

fn pool(node: &mut Call<'_, '_>, is_max: bool) -> Result<TensorId, Fault> {
    let pool = pool_of(node, is_max)?;
    let result = node.steps.pooled(node.input(0), &pool)?;
    result.ok_or_else(|| match (node.steps.builder.known_dims(node.input(0)), pool.rounding) {
        (None, Rounding::UpWithin) => {
            let needed = "known dims, which tell the number of windows; give the model a shape".into();
            Fault::UnknownShape { port: node.port(0), needed }
        }
        _ => node.unfit(0, "room for a window"),
    })
}

fn pool_of(node: &Call<'_, '_>, is_max: bool) -> Result<Pool, Fault> {
    let rank = node.rank(0)?;
    let kernel = node.ints("kernel_shape").ok_or(Fault::MissingAttribute { attribute: "kernel_shape" })?;
    if rank < 3 || kernel.len() != rank - 2 || kernel.iter().any(|&length| length < 1) {
        return Err(Fault::of_attribute(
            "kernel_shape",
            "a number from 1 on for each dim behind the channels",
        ));
    }
    let windows = windows(node, kernel.len())?;
    if windows.begin.iter().chain(&windows.end).any(|&pad| pad < 0) {
        return Err(Fault::of_attribute("pads", "numbers from 0 on"));
    }
    if !is_max && windows.dilations.iter().any(|&dilation| dilation != 1) {
        return Err(Fault::of_attribute("dilations", "1; a mean of windows with gaps"));
    }
    let rounding = if node.flag("ceil_mode", false) { Rounding::UpWithin } else { Rounding::Down };
    let counts_padding = node.flag("count_include_pad", false);
    Ok(Pool { kernel: kernel.to_vec(), windows, rounding, is_max, counts_padding })
}
