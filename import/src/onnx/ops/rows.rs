//! Nodes that combine the elements of rows: reductions, SoftMax, norms and products.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::floats;
use super::call::Call;
use crate::compose::{resolved_axes, wide_float};
use crate::error::Fault;
use crate::steps::{EQUATION, Reduction};
use crate::weights::element_count;

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
    node.steps.product(a, b, false, data_type)
}

/// The type of the first input, which is one of floating point.
fn floats_or_f64(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    if node.data_type(0) == D::F64 { Ok(D::F64) } else { floats(node) }
}

/// `alpha · A · B + beta · C`.
pub(super) fn gemm(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats_or_f64(node)?;
    let wide = wide_float(data_type);
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
    let mut product = node.steps.emit_declared(K::MatMul, &attrs, &operands, wide)?;
    if alpha != 1.0 {
        let alpha = node.steps.number(wide, alpha.into())?;
        product = node.steps.both(K::Multiply, product, alpha)?;
    }
    if let Some(mut c) = c {
        if beta != 1.0 {
            let beta = node.steps.number(wide, beta.into())?;
            c = node.steps.emit(K::Multiply, &[], &[c, beta], wide)?;
        }
        product = node.steps.emit_declared(K::Add, &[], &[product, c], wide)?;
    }
    node.steps.cast(product, data_type)
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
