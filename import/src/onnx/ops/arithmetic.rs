//! Nodes that compute each element on its own.
//!
//! A node without an op becomes several ops, whose composition is the formula of ONNX. On bf16 and f16 the
//! steps between are f32, so that only the result is rounded. Integers that an op lacks are computed as wider
//! ones: what wraps around in the wider type has the right low bits.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::call::Call;
use crate::compose::{is_float, is_integer};
use crate::error::Fault;
use crate::onnx::tensors;
use crate::steps::Formula;

use DataType as D;
use OpKind as K;

pub(super) const FLOATS: &str = "f32, bf16, f16";

/// An op of two inputs, and integers of every width.
pub(super) fn pair(
    node: &mut Call<'_, '_>,
    kind: OpKind,
    a: TensorId,
    b: TensorId,
) -> Result<TensorId, Fault> {
    let data_type = node.steps.builder.data_type(a);
    let other = node.steps.builder.data_type(b);
    if data_type != other {
        let place = node.inputs.iter().position(|input| *input == Some(b)).unwrap_or(1);
        return Err(Fault::of_type(node.port(place), other, format!("{data_type}, the type of the others")));
    }
    node.steps.pair(kind, &[], a, b)
}

/// A comparison; of truth values too.
pub(super) fn compare(
    node: &mut Call<'_, '_>,
    kind: OpKind,
    a: TensorId,
    b: TensorId,
) -> Result<TensorId, Fault> {
    node.one_type(0, 1)?;
    match (node.steps.builder.data_type(a), kind) {
        (D::Boolean, K::Equal) => {
            let differ = node.steps.emit_declared(K::LogicalXor, &[], &[a, b], D::Boolean)?;
            node.steps.same(K::LogicalNot, differ)
        }
        (D::Boolean, _) => Err(node.bad_type(0, "a numeric type")),
        _ => node.steps.emit_declared(kind, &[], &[a, b], D::Boolean),
    }
}

/// Quotients of whole numbers are cut off.
pub(super) fn divide(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(0, 1)?;
    let (a, b) = (node.input(0), node.input(1));
    node.steps.cut_quotient(&[], a, b)
}

/// The remainder has the sign of the divisor, or, as C's `fmod`, of the dividend.
pub(super) fn modulo(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (a, b) = (node.input(0), node.input(1));
    if !node.flag("fmod", false) {
        return pair(node, K::Modulo, a, b);
    }
    node.one_type(0, 1)?;
    node.steps.cut_remainder(a, b)
}

pub(super) fn power(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (pair, ports) = ([node.input(0), node.input(1)], [node.port(0), node.port(1)]);
    node.steps.powers(&[], pair, ports)
}

pub(super) fn mean(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let inputs: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
    let data_type = floats(node)?;
    let mut sum = inputs[0];
    for input in &inputs[1..] {
        sum = node.steps.emit(K::Add, &[], &[sum, *input], D::F32)?;
    }
    let count = node.steps.number(D::F32, inputs.len() as f64)?;
    node.steps.emit(K::Divide, &[], &[sum, count], data_type)
}

pub(super) fn relu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), node.data_type(0));
    if !is_integer(data_type) {
        return node.steps.same(K::ReLU, x);
    }
    let zero = node.steps.number(data_type, 0.0)?;
    pair(node, K::Maximum, x, zero)
}

pub(super) fn elu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let alpha = node.float("alpha", 1.0);
    node.steps.emit(K::Elu, &[(Attr::Alpha, alpha.into())], &[node.input(0)], node.data_type(0))
}

pub(super) fn leaky_relu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let alpha = node.float("alpha", 0.01);
    node.steps.emit(K::LeakyReLU, &[(Attr::Alpha, alpha.into())], &[node.input(0)], node.data_type(0))
}

pub(super) fn hard_sigmoid(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let attrs: [(Attr, AttrValue); 2] =
        [(Attr::Alpha, node.float("alpha", 0.2).into()), (Attr::Beta, node.float("beta", 0.5).into())];
    node.steps.emit(K::HardSigmoid, &attrs, &[node.input(0)], node.data_type(0))
}

pub(super) fn gelu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let mode = node.word("approximate", &[("none", "gelu_erf"), ("tanh", "gelu_tanh")], "gelu_erf")?;
    node.steps.emit(K::GELU, &[(Attr::Mode, mode.into())], &[node.input(0)], node.data_type(0))
}

/// `alpha · elu(x / alpha)`.
pub(super) fn celu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), floats(node)?);
    let alpha = node.steps.number(D::F32, node.float("alpha", 1.0).into())?;
    let scaled = node.steps.emit(K::Divide, &[], &[x, alpha], D::F32)?;
    let bent = node.steps.emit(K::Elu, &[(Attr::Alpha, 1.0f32.into())], &[scaled], D::F32)?;
    node.steps.emit(K::Multiply, &[], &[bent, alpha], data_type)
}

/// `gamma · (x > 0 ? x : alpha · (eˣ − 1))`.
pub(super) fn selu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    floats(node)?;
    let (x, alpha) = (node.input(0), node.float("alpha", 1.673_263_2));
    let gamma = node.steps.number(D::F32, node.float("gamma", 1.050_701).into())?;
    node.steps.selu(x, alpha, gamma)
}

/// `x · σ(alpha · x)`.
pub(super) fn swish(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), floats(node)?);
    let alpha = node.steps.number(D::F32, node.float("alpha", 1.0).into())?;
    let scaled = node.steps.emit(K::Multiply, &[], &[x, alpha], D::F32)?;
    let factor = node.steps.same(K::Sigmoid, scaled)?;
    node.steps.emit(K::Multiply, &[], &[x, factor], data_type)
}

/// A formula of floating-point numbers.
pub(super) fn formula(node: &mut Call<'_, '_>, formula: Formula) -> Result<TensorId, Fault> {
    floats(node)?;
    let x = node.input(0);
    formula(&mut node.steps, x)
}

/// `x` above alpha, else 0.
pub(super) fn thresholded_relu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), floats(node)?);
    let (alpha, wide) =
        (node.steps.number(D::F32, node.float("alpha", 1.0).into())?, node.steps.cast(x, D::F32)?);
    let above = node.steps.emit(K::Greater, &[], &[wide, alpha], D::Boolean)?;
    let zero = node.steps.number(data_type, 0.0)?;
    node.steps.select(above, x, zero)
}

/// The slope broadcasts one way onto the data.
pub(super) fn prelu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(0, 1)?;
    let attrs: [(Attr, AttrValue); 2] =
        [(Attr::DataFormat, "NCX".into()), (Attr::PerChannelBroadcast, false.into())];
    node.steps.emit(K::PReLU, &attrs, &[node.input(0), node.input(1)], node.data_type(0))
}

/// One of the infinities is a number that can be compared with; of none, nothing is less than itself.
pub(super) fn is_inf(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let signs = (node.flag("detect_negative", true), node.flag("detect_positive", true));
    let (x, data_type) = (node.input(0), node.data_type(0));
    if !is_float(data_type) && data_type != D::F64 {
        return Err(node.bad_type(0, "f32, bf16, f16, f64"));
    }
    let infinity = match signs {
        (true, true) => return node.steps.emit(K::IsInf, &[], &[x], D::Boolean),
        (false, false) => return node.steps.emit(K::Less, &[], &[x, x], D::Boolean),
        (true, false) => f64::NEG_INFINITY,
        (false, true) => f64::INFINITY,
    };
    let infinity = node.steps.number(data_type, infinity)?;
    node.steps.emit(K::Equal, &[], &[x, infinity], D::Boolean)
}

/// Between two numbers, each of which may be left out.
pub(super) fn clip(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let mut x = node.input(0);
    let number = |place: usize| {
        let value = node.steps.builder.value(node.optional(place)?)?;
        value.dims().is_empty().then(|| value.elements::<f32>())?.as_deref()?.first().copied()
    };
    // One op of two numbers that are known takes less time than two ops.
    if let Some((least, most)) = number(1).zip(number(2)) {
        return clamp(node, least, most);
    }
    for (place, kind) in [(1, K::Maximum), (2, K::Minimum)] {
        if let Some(bound) = node.optional(place) {
            x = pair(node, kind, x, bound)?;
        }
    }
    Ok(x)
}

pub(super) fn clip_to_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    clamp(node, node.float("min", f32::MIN), node.float("max", f32::MAX))
}

fn clamp(node: &mut Call<'_, '_>, least: f32, most: f32) -> Result<TensorId, Fault> {
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Min, least.into()), (Attr::Max, most.into())];
    node.steps.emit(K::Clamp, &attrs, &[node.input(0)], node.data_type(0))
}

pub(super) fn cast(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let to = node.attribute("to").ok_or(Fault::MissingAttribute { attribute: "to" })?;
    let to = tensors::data_type(to.int).map_err(|refused| refused.in_attribute("to"))?;
    has_conversions(node, to, |types| Fault::of_attribute("to", types))?;
    converted(node, node.input(0), to)
}

pub(super) fn cast_like(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let to = node.data_type(1);
    has_conversions(node, to, |types| node.bad_type(1, types))?;
    converted(node, node.input(0), to)
}

/// Refuses a type to which no op converts, and which the first input does not have already.
fn has_conversions(
    node: &Call<'_, '_>,
    to: DataType,
    refused: impl FnOnce(String) -> Fault,
) -> Result<(), Fault> {
    let mut types = D::NUMERIC.iter().chain(&[D::Boolean, D::F8E4m3, D::F8E5m2]);
    if to == node.data_type(0) || types.clone().any(|of| *of == to) {
        return Ok(());
    }
    let first = types.next().map_or(String::new(), ToString::to_string);
    Err(refused(types.fold(first, |list, of| format!("{list}, {of}"))))
}

/// A tensor in a type, by the attribute `saturate` of the node.
pub(super) fn converted(node: &mut Call<'_, '_>, x: TensorId, to: DataType) -> Result<TensorId, Fault> {
    let saturates = node.flag("saturate", true);
    node.steps.converted(x, to, saturates)?.ok_or_else(|| node.bad_type(0, FLOATS))
}

/// The type of the first input, which arithmetic on floating point takes.
pub(super) fn floats(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    match node.data_type(0) {
        data_type if is_float(data_type) => Ok(data_type),
        _ => Err(node.bad_type(0, FLOATS)),
    }
}
