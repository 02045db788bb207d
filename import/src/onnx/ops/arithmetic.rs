//! Nodes that compute each element on its own.
//!
//! A node without an op becomes several ops, whose composition is the formula of ONNX. On bf16 and f16 the
//! steps between are f32, so that only the result is rounded. Integers that an op lacks are computed as wider
//! ones: what wraps around in the wider type has the right low bits.

use sterna::reference::Value;
use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::call::Call;
use crate::compose::{folded, is_float, is_integer};
use crate::error::Fault;
use crate::onnx::tensors;
use crate::steps::Formula;
use crate::weights::integers;

use DataType as D;
use OpKind as K;

const FLOATS: &str = "f32, bf16, f16";
/// The largest number of f8_e4m3, and of f8_e5m2.
const LARGEST: [(DataType, f32); 2] = [(D::F8E4m3, 448.0), (D::F8E5m2, 57344.0)];

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
    refuse_u64(node, kind)?;
    node.steps.pair(kind, &[], a, b)
}

/// Refuses what no op does with u64.
fn refuse_u64(node: &Call<'_, '_>, kind: OpKind) -> Result<(), Fault> {
    if node.data_type(0) == D::U64 && matches!(kind, K::Divide | K::Modulo) {
        return Err(node.bad_type(0, "s8, s16, s32, s64, u8, u16, u32; an op that divides u64"));
    }
    Ok(())
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
    refuse_u64(node, K::Divide)?;
    let (a, b) = (node.input(0), node.input(1));
    node.steps.cut_quotient(&[], a, b)
}

/// The remainder has the sign of the divisor, or, as C's `fmod`, of the dividend.
pub(super) fn modulo(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (a, b, data_type) = (node.input(0), node.input(1), node.data_type(0));
    if !is_integer(data_type) {
        return Err(node.bad_type(0, "a type of whole numbers; an op with exact remainders of others"));
    }
    if !node.flag("fmod", false) {
        return pair(node, K::Modulo, a, b);
    }
    node.one_type(0, 1)?;
    refuse_u64(node, K::Modulo)?;
    node.steps.cut_remainder(a, b)
}

/// The most exponents that are told apart.
const MAX_EXPONENTS: usize = 32;

/// Constant exponents: a power of the base for each of them, between which truth values choose.
pub(super) fn power(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "a constant; an op that raises to powers that are computed";
    let (base, data_type) = (node.input(0), node.data_type(0));
    let exponents = node.value(1, WHY)?;
    let dims = exponents.dims().to_vec();
    let whole = integers(exponents).map(|list| list.iter().map(|&n| n as f64).collect());
    let numbers: Option<Vec<f64>> = whole.or_else(|| each_float(exponents));
    let numbers = numbers.ok_or_else(|| node.bad_type(1, "numbers"))?;
    let mut different: Vec<f64> = Vec::new();
    for &number in &numbers {
        if !different.iter().any(|other| other.to_bits() == number.to_bits()) {
            different.push(number);
        }
    }
    if different.is_empty() || different.len() > MAX_EXPONENTS {
        return Err(node.bad_value(1, format!("1 to {MAX_EXPONENTS} different exponents")));
    }
    let mut result = None;
    for exponent in different {
        let power = one_power(node, base, data_type, exponent)?;
        let places: Vec<bool> = numbers.iter().map(|number| number.to_bits() == exponent.to_bits()).collect();
        let places = Value::from_slice(&dims, &places)?;
        let places = folded(node.steps.builder, places)?;
        // The first choice is between twice the same, and gives the shape of both operands.
        result = Some(match result {
            None if dims.is_empty() => power,
            None => node.steps.select(places, power, power)?,
            Some(rest) => node.steps.select(places, power, rest)?,
        });
    }
    result.ok_or_else(|| node.bad_value(1, WHY))
}

fn one_power(
    node: &mut Call<'_, '_>,
    base: TensorId,
    data_type: DataType,
    exponent: f64,
) -> Result<TensorId, Fault> {
    if is_float(data_type) {
        return node.steps.emit(K::Pow, &[(Attr::Beta, (exponent as f32).into())], &[base], data_type);
    }
    // Products wrap around as powers do.
    let times = (0..=64).find(|&times| f64::from(times) == exponent);
    let times = times.filter(|_| is_integer(data_type));
    let needed = "f32, bf16, f16; whole numbers to a whole power from 0 to 64";
    let times = times.ok_or_else(|| node.bad_type(0, needed))?;
    let one = node.steps.number(data_type, 1.0)?;
    let dims = node.steps.builder.known_dims(base).map(<[i64]>::to_vec);
    let dims = dims.ok_or_else(|| node.unfit(0, "known dims"))?;
    let mut product = node.steps.enlarged(one, &dims)?;
    for _ in 0..times {
        product = pair(node, K::Multiply, product, base)?;
    }
    Ok(product)
}

/// The elements of a floating-point value.
fn each_float(value: &Value) -> Option<Vec<f64>> {
    Some(match value.data_type() {
        D::F64 => value.elements::<f64>()?,
        D::F32 => value.elements::<f32>()?.into_iter().map(f64::from).collect(),
        D::F16 => value.elements::<half::f16>()?.into_iter().map(f64::from).collect(),
        D::Bf16 => value.elements::<half::bf16>()?.into_iter().map(f64::from).collect(),
        _ => return None,
    })
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
    for (place, kind) in [(1, K::Maximum), (2, K::Minimum)] {
        if let Some(bound) = node.optional(place) {
            x = pair(node, kind, x, bound)?;
        }
    }
    Ok(x)
}

pub(super) fn clip_to_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (least, most) = (node.float("min", f32::MIN), node.float("max", f32::MAX));
    let attrs: [(Attr, AttrValue); 2] = [(Attr::Min, least.into()), (Attr::Max, most.into())];
    node.steps.emit(K::Clamp, &attrs, &[node.input(0)], node.data_type(0))
}

pub(super) fn cast(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let to = node.attribute("to").ok_or(Fault::MissingAttribute { attribute: "to" })?;
    let to = tensors::data_type(to.int)
        .map_err(|given| Fault::of_attribute("to", format!("{}, which is not {given}", tensors::WHOLE)))?;
    converted(node, node.input(0), to)
}

pub(super) fn cast_like(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    converted(node, node.input(0), node.data_type(1))
}

/// A tensor in a type; as a truth value, whether it is not 0.
pub(super) fn converted(node: &mut Call<'_, '_>, x: TensorId, to: DataType) -> Result<TensorId, Fault> {
    let from = node.steps.builder.data_type(x);
    if from == to {
        return Ok(x);
    }
    if matches!(from, D::F8E4m3 | D::F8E5m2) {
        let scale = [(Attr::Scales, vec![1.0f32].into())];
        let number = node.steps.emit(K::Dequantize, &scale, &[x], D::F32)?;
        return converted(node, number, to);
    }
    if to == D::Boolean {
        let zero = node.steps.number(from, 0.0)?;
        return node.steps.emit(K::NotEqual, &[], &[x, zero], to);
    }
    if matches!(to, D::F8E4m3 | D::F8E5m2) {
        if !is_float(from) {
            return Err(node.bad_type(0, FLOATS));
        }
        let number = node.steps.cast(x, D::F32)?;
        return to_f8(node, number, to);
    }
    node.steps.cast(x, to)
}

/// Numbers of f32 as f8: kept within its numbers, or else beyond them as the type has it.
pub(super) fn to_f8(node: &mut Call<'_, '_>, mut x: TensorId, to: DataType) -> Result<TensorId, Fault> {
    if node.flag("saturate", true) {
        let most = LARGEST.iter().find(|(of, _)| *of == to).map_or(f32::MAX, |(_, most)| *most);
        let bounds: [(Attr, AttrValue); 2] = [(Attr::Min, (-most).into()), (Attr::Max, most.into())];
        x = node.steps.emit(K::Clamp, &bounds, &[x], D::F32)?;
    }
    node.steps.emit(K::Quantize, &[(Attr::Scales, vec![1.0f32].into())], &[x], to)
}

/// The type of the first input, which arithmetic on floating point takes.
pub(super) fn floats(node: &Call<'_, '_>) -> Result<DataType, Fault> {
    match node.data_type(0) {
        data_type if is_float(data_type) => Ok(data_type),
        _ => Err(node.bad_type(0, FLOATS)),
    }
}
