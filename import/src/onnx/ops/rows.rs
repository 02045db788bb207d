//! Nodes that combine the elements of rows: reductions, SoftMax, norms and products.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use super::quantization::{one_number, quantized};
use crate::compose::resolved_axes;
use crate::dims::is_known;
use crate::error::Fault;
use crate::steps::{EQUATION, Reduction, Windows};
use crate::weights::{element_count, integers};

use DataType as D;
use OpKind as K;

/// The elements along some axes as one number.
pub(super) fn reduce(node: &mut Call<'_, '_>, reduction: Reduction) -> Result<TensorId, Fault> {
    let axes = node.list(1, "axes")?.unwrap_or_default();
    let (x, keep) = (node.input(0), node.flag("keepdims", true));
    let rank = node.rank(0)?;
    let axes: Vec<i64> = match axes.is_empty() {
        true if node.flag("noop_with_empty_axes", false) => Vec::new(),
        true => (0..rank as i64).collect(),
        false => {
            let resolved = resolved_axes(&axes, rank);
            let resolved = resolved.ok_or_else(|| Fault::of_attribute("axes", "axes of dims, each once"))?;
            resolved.into_iter().map(|axis| axis as i64).collect()
        }
    };
    let is_whole = matches!(node.data_type(0), D::S32 | D::S64);
    if matches!(reduction, Reduction::LogSumExp) || matches!(reduction, Reduction::LogSum) && !is_whole {
        floats_or_f64(node)?;
    }
    node.steps.reduced(reduction, x, &axes, keep)
}

pub(super) fn softmax(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let axis = node.int("axis", -1);
    let (x, data_type) = (node.input(0), node.data_type(0));
    node.steps.softmax(x, axis, false, data_type)
}

pub(super) fn log_softmax(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let axis = node.int("axis", -1);
    node.steps.emit(K::LogSoftmax, &[(Attr::Axis, axis.into())], &[node.input(0)], node.data_type(0))
}

/// SoftMax of before opset 13: the dims from the axis on are one.
pub(super) fn softmax_of_rows(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    of_rows(node, K::SoftMax)
}

pub(super) fn log_softmax_of_rows(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    of_rows(node, K::LogSoftmax)
}

fn of_rows(node: &mut Call<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, some of which become one")?;
    let axis = node.axis(1, dims.len())?;
    let flat = element_count(&dims[..axis]).zip(element_count(&dims[axis..]));
    let flat = flat.ok_or_else(|| node.unfit(0, "dims whose products are countable"))?;
    let rows = node.steps.in_shape(node.input(0), &[flat.0, flat.1])?;
    let result = node.steps.emit(kind, &[(Attr::Axis, 1i64.into())], &[rows], node.data_type(0))?;
    node.steps.in_shape(result, &dims)
}

/// Sums of products over the labels that the result lacks.
pub(super) fn einsum(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let operands: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
    for place in 0..operands.len() {
        node.known_dims(place, "known dims, each with a label")?;
        node.one_type(0, place)?;
    }
    let attribute = node.attribute("equation").ok_or(Fault::MissingAttribute { attribute: "equation" })?;
    let equation = std::str::from_utf8(&attribute.string).unwrap_or_default();
    let sum = node.steps.einsum(equation, &operands)?;
    sum.ok_or_else(|| Fault::of_attribute("equation", EQUATION))
}

pub(super) fn matmul(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(0, 1)?;
    let (a, b, data_type) = (node.input(0), node.input(1), node.data_type(0));
    let product = node.steps.product(a, b, false, data_type)?;
    product.ok_or_else(|| node.bad_type(0, "f32, bf16, f16; f64 of two dims or more, and few products"))
}

/// The type of the first input, which is one of floating point.
fn floats_or_f64(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    if node.data_type(0) == D::F64 { Ok(D::F64) } else { floats(node) }
}

/// `alpha · A · B + beta · C`.
pub(super) fn gemm(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats(node)?;
    node.one_type(0, 1)?;
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    let attrs: [(Attr, AttrValue); 2] = [
        (Attr::TransposeA, node.flag("transA", false).into()),
        (Attr::TransposeB, node.flag("transB", false).into()),
    ];
    let mut operands = vec![node.input(0), node.input(1)];
    let c = node.optional(2).filter(|_| beta != 0.0);
    if alpha == 1.0 && beta == 1.0 {
        operands.extend(c);
        return node.steps.emit_declared(K::MatMul, &attrs, &operands, data_type);
    }
    let mut product = node.steps.emit_declared(K::MatMul, &attrs, &operands, D::F32)?;
    if alpha != 1.0 {
        let alpha = node.steps.number(D::F32, alpha.into())?;
        product = node.steps.both(K::Multiply, product, alpha)?;
    }
    if let Some(mut c) = c {
        if beta != 1.0 {
            let beta = node.steps.number(D::F32, beta.into())?;
            c = node.steps.emit(K::Multiply, &[], &[c, beta], D::F32)?;
        }
        product = node.steps.emit_declared(K::Add, &[], &[product, c], D::F32)?;
    }
    node.steps.cast(product, data_type)
}

/// The convolution by filters whose windows lie side by side.
pub(super) fn convolution(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    node.one_type(0, 1)?;
    let (windows, bias) = (windows(node)?, node.optional(2));
    let result = node.steps.patches([node.input(0), node.input(1)], bias, &windows.strides)?;
    result.ok_or_else(|| node.unfit(0, NO_ROOM))
}

const NO_ROOM: &str = "as many channels as the filters, and room for a window";

/// The same of numbers in 8 bits, less a zero point each, in s32.
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
    let windows = windows(node)?;
    node.value(1, "constant filters, whose magnitudes tell that no sum is rounded")?;
    let zeros = [node.optional(2), node.optional(3)];
    let result = node.steps.whole_patches([node.input(0), node.input(1)], zeros, &windows.strides)?;
    result.ok_or_else(|| node.unfit(1, "as many channels as the data, and filters whose sums f32 holds"))
}

/// The same by the scales of data and filters, in 8 bits again, with a bias in s32 that is added to the sums.
pub(super) fn quantized_convolution(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let own = |input: usize| (input, node.optional(input));
    let mut inputs = [own(0), own(3), own(2), own(5)];
    let zeros = inputs[3].1.and_then(|zeros| node.steps.builder.value(zeros)).and_then(integers);
    if let Some([zero, rest @ ..]) = zeros.as_deref()
        && rest.iter().all(|other| other == zero)
    {
        // One for each filter, all alike.
        inputs[3].1 = Some(node.steps.number(node.data_type(5), *zero as f64)?);
    }
    let mut sums = convolution_of_integers(&mut node.with_inputs(&inputs))?;
    let filters = node.known_dims(3, "known dims")?;
    let beside: Vec<i64> = std::iter::once(filters[0]).chain(vec![1; filters.len() - 2]).collect();
    if node.optional(8).is_some() {
        if node.data_type(8) != D::S32 || node.known_dims(8, "known dims")? != filters[..1] {
            return Err(node.unfit(8, format!("s32 of {} filters", filters[0])));
        }
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

/// The windows of a convolution, which lie side by side.
fn windows(node: &Call<'_, '_>) -> Result<Windows, Fault> {
    node.rank(0)?;
    let filters = node.known_dims(1, "known dims, which are those of the windows")?;
    let dims = node.steps.builder.dims(node.input(0)).map(<[i64]>::to_vec).unwrap_or_default();
    if filters.len() < 3 || dims.len() != filters.len() {
        return Err(node.unfit(0, "as many dims as the filters have, three or more"));
    }
    if !is_known(&dims[1..]) {
        let needed = "known dims behind the first; give the model a shape".into();
        return Err(Fault::UnknownShape { port: node.port(0), needed });
    }
    let kernel = &filters[2..];
    if node.int("group", 1) != 1 {
        return Err(Fault::of_attribute("group", "1; an op of convolution"));
    }
    if node.ints("kernel_shape").is_some_and(|shape| shape != kernel) {
        return Err(Fault::of_attribute("kernel_shape", "the dims of the filters behind the channels"));
    }
    let list = |name: &str| node.ints(name).map_or_else(|| vec![1; kernel.len()], <[i64]>::to_vec);
    let words = [("NOTSET", false), ("VALID", false), ("SAME_UPPER", true), ("SAME_LOWER", true)];
    let windows = Windows {
        strides: list("strides"),
        dilations: list("dilations"),
        pads: node.ints("pads").unwrap_or_default().to_vec(),
        same: node.word("auto_pad", &words, false)?,
    };
    if let Some((attribute, needed)) = windows.misfit(&dims[2..], kernel) {
        return Err(Fault::of_attribute(attribute, needed));
    }
    Ok(windows)
}

/// The norm by mean and variance over the dims from an axis on; the mean, and one through the deviation.
pub(super) fn layer_normalization(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    stash(node)?;
    let (axis, epsilon) = (node.axis(-1, rank)? as i64, node.float("epsilon", 1e-5));
    let common: [(Attr, AttrValue); 3] = [
        (Attr::BeginNormAxis, axis.into()),
        (Attr::Epsilon, epsilon.into()),
        (Attr::KeepStats, false.into()),
    ];
    let scale = factor(node, 1)?;
    let result = match node.optional(2) {
        Some(_) => {
            let shift = factor(node, 2)?;
            node.steps.emit(K::LayerNorm, &common, &[x, scale, shift], data_type)?
        }
        None => {
            let attrs = [&common[..], &[(Attr::UseAffine, false.into())]].concat();
            let wide = node.steps.cast(x, D::F32)?;
            let plain = node.steps.emit(K::LayerNorm, &attrs, &[wide], D::F32)?;
            node.steps.emit(K::Multiply, &[], &[plain, scale], data_type)?
        }
    };
    if node.outputs == 1 {
        return Ok(vec![result]);
    }
    let axes: Vec<i64> = (axis..rank as i64).collect();
    let moments = node.steps.moments(x, &axes)?;
    let epsilon = node.steps.number(D::F32, epsilon.into())?;
    let moved = node.steps.both(K::Add, moments.variance, epsilon)?;
    let deviation = node.steps.same(K::Sqrt, moved)?;
    let through = node.steps.same(K::Reciprocal, deviation)?;
    Ok(vec![result, moments.mean, through])
}

/// The norm by the mean of the squares over the dims from an axis on.
pub(super) fn rms_normalization(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type, rank) = (node.input(0), floats(node)?, node.rank(0)?);
    stash(node)?;
    let (axis, scale) = (node.axis(-1, rank)? as i64, factor(node, 1)?);
    let attrs: [(Attr, AttrValue); 2] =
        [(Attr::BeginNormAxis, axis.into()), (Attr::Epsilon, node.float("epsilon", 1e-5).into())];
    node.steps.emit(K::RMSNorm, &attrs, &[x, scale], data_type)
}

/// Refuses steps in another type than f32.
fn stash(node: &Call<'_, '_>) -> Result<(), Fault> {
    match node.int("stash_type", 1) {
        1 => Ok(()),
        _ => Err(Fault::of_attribute("stash_type", "1, which is f32")),
    }
}

/// A factor or shift of a norm, in a type that the norm takes beside its data.
pub(super) fn factor(node: &mut Call<'_, '_>, input: usize) -> Result<TensorId, Fault> {
    let data_type = node.data_type(0);
    match data_type {
        D::F32 | D::Bf16 if node.data_type(input) == data_type => Ok(node.input(input)),
        _ => node.steps.cast(node.input(input), D::F32),
    }
}
