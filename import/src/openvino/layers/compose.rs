//! Layers that become an op with attributes, or several ops.
//!
//! A layer without an op becomes several ops, whose composition is the formula of the specification. On bf16
//! and f16 the steps between are f32, so that only the result is rounded.

use sterna::{Attr, AttrValue, AutoBroadcast, DataType, OpKind, TensorId};

use super::context::{Context, FLOATS};
use super::shapes;
use crate::compose::{is_float, is_integer};
use crate::constant::Constant;
use crate::dims::is_known;
use crate::error::Fault;
use crate::steps::Reduction;
use crate::weights::one_float;

use DataType as D;
use OpKind as K;

/// `min(max(x, min), max)`; on integers the bounds are rounded inwards.
pub(super) fn clamp(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (least, most, data_type) = (layer.float("min")?, layer.float("max")?, layer.data_type(0));
    if least.is_nan() || most.is_nan() {
        return Err(Fault::of_attribute(
            if least.is_nan() { "min" } else { "max" },
            "a number that is not NaN",
        ));
    }
    if ![D::S32, D::S64].contains(&data_type) {
        let attrs = [(Attr::Min, (least as f32).into()), (Attr::Max, (most as f32).into())];
        return layer.steps.emit_declared(K::Clamp, &attrs, &[layer.inputs[0]], data_type);
    }
    // A conversion to an integer keeps to its bounds, beyond which no element is.
    let bound = |number: f64| match data_type {
        D::S32 => Constant::from_slice(&[], &[number as i32]),
        _ => Constant::from_slice(&[], &[number as i64]),
    };
    let least = layer.steps.builder.constant(bound(least.ceil())?)?;
    let most = layer.steps.builder.constant(bound(most.floor())?)?;
    let above = layer.steps.emit_declared(K::Maximum, &[], &[layer.inputs[0], least], data_type)?;
    layer.steps.emit_declared(K::Minimum, &[], &[above, most], data_type)
}

/// Of truth values; no op takes two integers bit by bit.
pub(super) fn bitwise(layer: &mut Context<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let (pair, attr) = shapes::pair(layer)?;
    match layer.data_type(0) {
        D::Boolean => layer.steps.emit_declared(kind, &[attr], &pair, D::Boolean),
        other => Err(Fault::of_type(layer.port(0), other, "boolean, or an op on the bits of integers")),
    }
}

/// How many of the buckets in ascending order lie below each element, or at it as well.
pub(super) fn bucketize(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let to = layer.element("output_type")?.unwrap_or(D::S64);
    let stays_below = layer.truth("with_right_bound", true)?;
    let buckets = layer.known_dims(1, "known dims")?;
    let rank = layer.rank(0)?;
    if !is_integer(to) || buckets.len() != 1 || rank == sterna::MAX_RANK {
        return Err(layer.unfit(1, "a list of numbers"));
    }
    let dims = layer.known_dims(0, "known dims, beside which the buckets are put")?;
    let declared = layer.steps.declared.take();
    let wide = |from: DataType| if is_float(from) { D::F32 } else { from };
    let common = if layer.data_type(0) == layer.data_type(1) { wide(layer.data_type(0)) } else { D::F64 };
    let [x, buckets] = [0, 1].map(|input| layer.steps.cast(layer.inputs[input], common));
    let x = layer.steps.in_shape(x?, &[&*dims, &[1]].concat())?;
    let order = if stays_below { K::Greater } else { K::GreaterEqual };
    let is_behind = layer.steps.predicate(order, x, buckets?)?;
    let counts = layer.steps.cast(is_behind, to)?;
    let counts = layer.steps.reduced(Reduction::One(K::ReduceSum), counts, &[rank as i64], false)?;
    layer.steps.declared = declared;
    layer.steps.cast(counts, to)
}

/// Of a truth value its opposite.
pub(super) fn bitwise_not(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (layer.inputs[0], layer.data_type(0));
    match data_type {
        D::Boolean => layer.steps.emit_declared(K::LogicalNot, &[], &[x], D::Boolean),
        _ if is_integer(data_type) => layer.steps.bitwise_not(x),
        _ => Err(Fault::of_type(layer.port(0), data_type, "boolean, integers")),
    }
}

pub(super) fn convert(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let to = layer.element("destination_type")?;
    let to = to.ok_or(Fault::MissingAttribute { attribute: "destination_type" })?;
    converted(layer, to)
}

pub(super) fn convert_like(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let to = layer.data_type(1);
    converted(layer, to)
}

/// The first input in a type.
fn converted(layer: &mut Context<'_, '_>, to: DataType) -> Result<TensorId, Fault> {
    let (from, source) = (layer.data_type(0), layer.inputs[0]);
    let result = layer.steps.converted(source, to, true)?;
    result.ok_or_else(|| Fault::of_type(layer.port(0), from, format!("an op that converts to {to}")))
}

/// Quotients of integers are rounded down, or cut off if the attribute says so.
pub(super) fn divide(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let down = layer.truth("m_pythondiv", true)?;
    let ([a, b], attr) = shapes::pair(layer)?;
    match down {
        true => layer.steps.pair(K::Divide, &[attr], a, b),
        false => layer.steps.cut_quotient(&[attr], a, b),
    }
}

/// The remainder that has the sign of the dividend.
pub(super) fn modulo(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let ([a, b], attr) = shapes::pair(layer)?;
    if attr.1 == AutoBroadcast::None.into() && layer.steps.builder.dims(a) != layer.steps.builder.dims(b) {
        return Err(layer.unfit(1, "the dims of the other input"));
    }
    layer.steps.cut_remainder(a, b)
}

/// With constant factors.
pub(super) fn selu(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer)?;
    let alpha = one_float(layer.constant(1, "a constant number")?);
    let alpha = alpha.ok_or_else(|| layer.bad_value(1, "one number"))?;
    let (source, gamma) = (layer.inputs[0], layer.inputs[2]);
    let steps = &mut layer.steps;
    let gamma = steps.cast(gamma, D::F32)?;
    let gamma = steps.in_shape(gamma, &[])?;
    steps.selu(source, alpha as f32, gamma)
}

pub(super) fn elu(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let alpha = layer.float("alpha")? as f32;
    layer.steps.emit_declared(K::Elu, &[(Attr::Alpha, alpha.into())], &[layer.inputs[0]], layer.data_type(0))
}

/// Gelu-2 has one form, by the error function; Gelu-7 says which.
pub(super) fn gelu(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let mode = layer.word("approximation_mode", &[("erf", "gelu_erf"), ("tanh", "gelu_tanh")], "gelu_erf")?;
    layer.steps.emit_declared(K::GELU, &[(Attr::Mode, mode.into())], &[layer.inputs[0]], layer.data_type(0))
}

/// `min(max(x + 3, 0), 6) / 6`, step by step: with a factor of 1/6 the zero at −3 would be missed.
pub(super) fn hsigmoid(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (data_type, source) = (floats(layer)?, layer.inputs[0]);
    let three = layer.steps.number(D::F32, 3.0)?;
    let six = layer.steps.number(D::F32, 6.0)?;
    let moved = layer.steps.emit_declared(K::Add, &[], &[source, three], D::F32)?;
    let bounds: [(Attr, AttrValue); 2] = [(Attr::Min, 0.0f32.into()), (Attr::Max, 6.0f32.into())];
    let clamped = layer.steps.emit_declared(K::Clamp, &bounds, &[moved], D::F32)?;
    layer.steps.emit_declared(K::Divide, &[], &[clamped, six], data_type)
}

/// `max(0, min(1, alpha · x + beta))`, whose parameters are constants.
pub(super) fn hard_sigmoid(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let parameter = |input: usize| -> Result<f32, Fault> {
        let value = layer.constant(input, "a constant number")?;
        let number =
            one_float(value).filter(|_| layer.steps.builder.known_dims(layer.inputs[input]) == Some(&[]));
        number.map(|number| number as f32).ok_or_else(|| layer.bad_value(input, "one number of rank 0"))
    };
    let attrs = [(Attr::Alpha, parameter(1)?.into()), (Attr::Beta, parameter(2)?.into())];
    layer.steps.emit_declared(K::HardSigmoid, &attrs, &[layer.inputs[0]], layer.data_type(0))
}

/// One of the infinities is a number that can be compared with; of none, nothing is less than itself.
pub(super) fn is_inf(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let signs = (layer.truth("detect_negative", true)?, layer.truth("detect_positive", true)?);
    let (source, data_type) = (layer.inputs[0], layer.data_type(0));
    if !is_float(data_type) && data_type != D::F64 {
        return Err(Fault::of_type(layer.port(0), data_type, "f32, bf16, f16, f64"));
    }
    let infinity = match signs {
        (true, true) => return layer.steps.emit_declared(K::IsInf, &[], &[source], D::Boolean),
        (false, false) => return layer.steps.emit_declared(K::Less, &[], &[source, source], D::Boolean),
        (true, false) => f64::NEG_INFINITY,
        (false, true) => f64::INFINITY,
    };
    let infinity = layer.steps.number(data_type, infinity)?;
    layer.steps.emit_declared(K::Equal, &[], &[source, infinity], D::Boolean)
}

/// A slope of rank 1 that is as long as dim 1 of the data stands there; any other slope is aligned on the
/// right.
pub(super) fn prelu(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "known dims, which decide where the slope stands";
    let (data, slope) =
        (layer.steps.builder.dims(layer.inputs[0]), layer.steps.builder.dims(layer.inputs[1]));
    let (a, b) = (layer.data_type(0), layer.data_type(1));
    if a != b {
        return Err(Fault::of_type(layer.port(1), b, format!("{a}, the type of the other input")));
    }
    let unknown = |input| Fault::UnknownShape { port: layer.port(input), needed: WHY.into() };
    let slope = slope.ok_or_else(|| unknown(1))?;
    let at_channels = match (data, slope) {
        (_, &[1]) => false,
        (Some(&[_, channels, ..]), &[slopes]) if is_known(&[channels, slopes]) => channels == slopes,
        (Some([] | [_]), _) => false,
        (_, &[_]) => return Err(unknown(0)),
        _ => false,
    };
    let attrs = [(Attr::DataFormat, "NCX".into()), (Attr::PerChannelBroadcast, at_channels.into())];
    let inputs = [layer.inputs[0], layer.inputs[1]];
    layer.steps.emit_declared(K::PReLU, &attrs, &inputs, a)
}

/// Exponents of elements, or one for all.
pub(super) fn power(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (pair, mode) = shapes::pair(layer)?;
    let dims = pair.map(|tensor| layer.steps.builder.dims(tensor));
    if mode.1 == AutoBroadcast::None.into() && dims[0] != dims[1] {
        return Err(layer.unfit(1, "the dims of the other input"));
    }
    let ports = [layer.port(0), layer.port(1)];
    layer.steps.powers(&[mode], pair, ports)
}

pub(super) fn relu(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (source, data_type) = (layer.inputs[0], layer.data_type(0));
    if !is_integer(data_type) {
        return layer.steps.emit_declared(K::ReLU, &[], &[source], data_type);
    }
    let zero = layer.steps.number(data_type, 0.0)?;
    layer.steps.emit_declared(K::Maximum, &[], &[source, zero], data_type)
}

/// To the nearest, halves to the even one or away from zero.
pub(super) fn round(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let to_even = layer.word("mode", &[("half_to_even", true), ("half_away_from_zero", false)], true)?;
    let (source, data_type) = (layer.inputs[0], layer.data_type(0));
    match (is_integer(data_type), to_even) {
        (true, _) => Ok(source),
        (false, true) => layer.steps.emit_declared(K::Round, &[], &[source], data_type),
        (false, false) => layer.steps.rounded_away(source),
    }
}

/// In the modes and on the types of the specification; a condition may enlarge the result under numpy.
pub(super) fn select(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let mode = layer.broadcast_mode()?;
    let mut attrs: Vec<(Attr, AttrValue)> = vec![(Attr::AutoBroadcast, mode.into())];
    let axis = layer.broadcast_axis()?;
    match mode {
        AutoBroadcast::Pdpd if axis < -1 => {
            return Err(Fault::of_attribute("axis", "a whole number from −1 on"));
        }
        AutoBroadcast::Pdpd => attrs.push((Attr::Axis, axis.into())),
        _ => {}
    }
    let inputs = [layer.inputs[0], layer.inputs[1], layer.inputs[2]];
    let data_type = layer.data_type(1);
    if mode != AutoBroadcast::Numpy {
        return layer.steps.emit_declared(K::Select, &attrs, &inputs, data_type);
    }
    // The text of the specification broadcasts the condition one way, OpenVINO's code all ways: where dims
    // are known, the result in the file decides.
    let mut refused = None;
    if inputs.iter().all(|&input| layer.steps.builder.known_dims(input).is_some()) {
        match layer.steps.emit_declared(K::Select, &attrs, &inputs, data_type) {
            Ok(result) => return Ok(result),
            Err(fault) => refused = Some(fault),
        }
    }
    attrs[0].1 = AutoBroadcast::Multidirectional.into();
    let result = layer.steps.emit_declared(K::Select, &attrs, &inputs, data_type);
    match (refused, &result) {
        (Some(fault), Err(_)) => Err(fault),
        (Some(fault), Ok(found)) => {
            let declared = layer.steps.declared.as_deref().filter(|dims| is_known(dims));
            let agrees = declared.is_none_or(|dims| layer.steps.builder.known_dims(*found) == Some(dims));
            if agrees { result } else { Err(fault) }
        }
        (None, _) => result,
    }
}

/// `x · σ(beta · x)`.
pub(super) fn swish(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (data_type, source) = (floats(layer)?, layer.inputs[0]);
    let scaled = match layer.inputs.get(1).copied() {
        Some(beta) => {
            if layer.data_type(1) != data_type {
                return Err(Fault::of_type(layer.port(1), layer.data_type(1), data_type.to_string()));
            }
            if layer
                .steps
                .builder
                .dims(beta)
                .is_none_or(|dims| dims.iter().any(|&dim| dim != 1) || dims.len() > 1)
            {
                return Err(layer.unfit(1, "one number"));
            }
            if layer
                .steps
                .builder
                .dims(source)
                .is_none_or(|dims| dims.len() < layer.steps.builder.dims(beta).map_or(0, <[i64]>::len))
            {
                return Err(layer.unfit(0, "a rank that is not below that of `beta`"));
            }
            layer.steps.emit_declared(K::Multiply, &[], &[source, beta], D::F32)?
        }
        None if data_type == D::F32 => source,
        None => layer.steps.emit_declared(K::TypeCast, &[], &[source], D::F32)?,
    };
    let factor = layer.steps.emit_declared(K::Sigmoid, &[], &[scaled], D::F32)?;
    layer.steps.emit_declared(K::Multiply, &[], &[source, factor], data_type)
}

/// The type of the first input, which arithmetic on floating point takes.
fn floats(layer: &Context<'_, '_>) -> Result<DataType, Fault> {
    match layer.data_type(0) {
        data_type if is_float(data_type) => Ok(data_type),
        data_type => Err(Fault::of_type(layer.port(0), data_type, FLOATS)),
    }
}
