//! Layers that combine the elements of rows: products, reductions, SoftMax, norms, attention, and numbers
//! rounded to few levels.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::context::{Context, FLOATS};
use super::shapes;
use crate::compose::{is_float, resolved_axes};
use crate::error::Fault;
use crate::steps::{EQUATION, Reduction};
use crate::weights::one_float;

use DataType as D;
use OpKind as K;

/// Sums of products over the labels that the result lacks.
pub(super) fn einsum(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let operands = layer.inputs.clone();
    for place in 0..operands.len() {
        layer.known_dims(place, "known dims, each with a label")?;
    }
    let equation = layer.layer.attr("equation").ok_or(Fault::MissingAttribute { attribute: "equation" })?;
    let sum = layer.steps.einsum(equation, &operands)?;
    sum.ok_or_else(|| Fault::of_attribute("equation", EQUATION))
}

pub(super) fn matmul(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let attrs: [(Attr, AttrValue); 2] = [
        (Attr::TransposeA, layer.truth("transpose_a", false)?.into()),
        (Attr::TransposeB, layer.truth("transpose_b", false)?.into()),
    ];
    let ([a, b], data_type) = ([layer.inputs[0], layer.inputs[1]], layer.data_type(0));
    layer.steps.emit_declared(K::MatMul, &attrs, &[a, b], data_type)
}

/// Along one axis; a row of −∞ throughout gives NaN.
pub(super) fn softmax(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (axis, x, data_type) = (layer.int("axis", Some(1))?, layer.inputs[0], layer.data_type(0));
    layer.steps.softmax(x, axis, false, data_type)
}

pub(super) fn log_softmax(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let attrs = [(Attr::Axis, layer.int("axis", Some(-1))?.into())];
    layer.steps.emit_declared(K::LogSoftmax, &attrs, &[layer.inputs[0]], layer.data_type(0))
}

/// The axes that a constant gives, in ascending order; of no axes, nothing is reduced.
fn axes(layer: &Context<'_, '_>, input: usize) -> Result<Vec<i64>, Fault> {
    let rank = layer.rank(0)?;
    let axes = resolved_axes(&shapes::numbers(layer, input)?, rank);
    let axes = axes.ok_or_else(|| layer.bad_value(input, "axes within the dims, each once"))?;
    let mut axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
    axes.sort_unstable();
    Ok(axes)
}

pub(super) fn reduce(layer: &mut Context<'_, '_>, reduction: Reduction) -> Result<TensorId, Fault> {
    let (x, axes, keep) = (layer.inputs[0], axes(layer, 1)?, layer.truth("keep_dims", false)?);
    layer.steps.reduced(reduction, x, &axes, keep)
}

/// The data less its mean and over its deviation, along the axes that a constant gives, or, in the first
/// version, along all but the first one or two.
pub(super) fn mvn(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type, rank) = (layer.inputs[0], floats(layer, 0)?, layer.rank(0)?);
    let epsilon = layer.float("eps")? as f32;
    let variance = layer.truth("normalize_variance", true)?;
    let inside = layer.word("eps_mode", &[("inside_sqrt", true), ("outside_sqrt", false)], true)?;
    let axes = match layer.inputs.len() {
        1 => {
            let first = if layer.truth("across_channels", false)? { 1 } else { 2 };
            (first..rank as i64).collect()
        }
        _ => axes(layer, 1)?,
    };
    let is_tail =
        !axes.is_empty() && axes.iter().zip(rank - axes.len()..).all(|(&axis, at)| axis == at as i64);
    if is_tail && variance && inside {
        let attrs: [(Attr, AttrValue); 4] = [
            (Attr::BeginNormAxis, axes[0].into()),
            (Attr::Epsilon, epsilon.into()),
            (Attr::KeepStats, false.into()),
            (Attr::UseAffine, false.into()),
        ];
        return layer.steps.emit_declared(K::LayerNorm, &attrs, &[x], data_type);
    }
    let steps = &mut layer.steps;
    let moments = steps.moments(x, &axes)?;
    if !variance {
        return steps.cast(moments.centred, data_type);
    }
    let result = if inside {
        steps.standardized(moments.centred, moments.variance, epsilon, [None, None])?
    } else {
        let deviation = steps.same(K::Sqrt, moments.variance)?;
        let epsilon = steps.float(epsilon)?;
        let deviation = steps.both(K::Add, deviation, epsilon)?;
        steps.both(K::Divide, moments.centred, deviation)?
    };
    steps.cast(result, data_type)
}

/// By means and variances that are given.
pub(super) fn batch_norm(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let (x, epsilon) = (layer.inputs[0], layer.float("epsilon")? as f32);
    let (rank, mut operands) = (layer.rank(0)?, [x; 5]);
    for (at, operand) in operands.iter_mut().enumerate().skip(1) {
        let own = layer.known_dims(at, "known dims")?;
        if rank < 2 || own.len() != 1 {
            return Err(layer.unfit(at, "one number for each channel of data of two dims or more"));
        }
        *operand = layer.steps.cast(layer.inputs[at], D::F32)?;
    }
    layer.steps.batch_norm(&operands, epsilon)
}

pub(super) fn group_norm(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (x, affine) = (layer.inputs[0], [layer.inputs[1], layer.inputs[2]]);
    layer.known_dims(0, "known dims, of which the channels are divided into groups")?;
    let (groups, epsilon) = (layer.int("num_groups", None)?, layer.float("epsilon")? as f32);
    let result = layer.steps.grouped_norm(x, groups, epsilon, Some(affine))?;
    result.ok_or_else(|| {
        layer.unfit(0, "floating point of three dims or more, the second a multiple of the groups")
    })
}

/// The largest or smallest element along an axis, and its place; of several equal ones the first.
/// `SoftMax(scale · Q · Kᵀ + mask) · V`. A mask of truth values leaves out what it says is false; a causal
/// one each key behind its query. A query that sees no key gets 0. A sink is one more score, which has no
/// value.
pub(super) fn attention(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let data_type = floats(layer, 0)?;
    let [q, k, v] = [layer.inputs[0], layer.inputs[1], layer.inputs[2]];
    let causal = layer.truth("causal", false)?;
    let scale = match layer.inputs.get(4) {
        Some(&scale) => scale,
        None => {
            let depth = layer.known_dims(0, "known dims, the last of which gives the scale")?;
            let depth = depth.last().map_or(1, |&depth| depth.max(1));
            layer.steps.float((depth as f64).sqrt().recip() as f32)?
        }
    };
    let mask = layer.inputs.get(3).copied().filter(|_| !causal);
    let steps = &mut layer.steps;
    let scale = steps.cast(scale, D::F32)?;
    let scale = steps.in_shape(scale, &[])?;
    let products = steps.emit(K::MatMul, &[(Attr::TransposeB, true.into())], &[q, k], D::F32)?;
    let mut scores = steps.both(K::Multiply, products, scale)?;
    let nothing = steps.number(D::F32, f64::NEG_INFINITY)?;
    if causal {
        let index = |axis: i64| (K::GenIndex, [(Attr::Axis, axis.into())]);
        let [(kind, row), (_, column)] = [index(-2), index(-1)];
        let (row, column) =
            (steps.emit(kind, &row, &[scores], D::S32)?, steps.emit(kind, &column, &[scores], D::S32)?);
        let keeps = steps.predicate(K::GreaterEqual, row, column)?;
        scores = steps.select(keeps, scores, nothing)?;
    } else if let Some(mask) = mask {
        scores = match steps.builder.data_type(mask) {
            D::Boolean => steps.select(mask, scores, nothing)?,
            _ => steps.emit(K::Add, &[], &[scores, mask], D::F32)?,
        };
    }
    let axis = (Attr::Axis, AttrValue::from(-1i64));
    let sink = layer.inputs.get(5).copied();
    if let Some(sink) = sink {
        let mut dims = steps.dims(scores)?;
        dims.last_mut().into_iter().for_each(|keys| *keys = 1);
        let column = steps.cast(sink, D::F32)?;
        let column = steps.enlarged(column, &dims)?;
        scores = steps.emit(K::Concat, std::slice::from_ref(&axis), &[scores, column], D::F32)?;
    }
    let attrs = [axis, (Attr::Mode, "inf_as_zero".into())];
    let mut shares = steps.emit(K::SoftMax, &attrs, &[scores], data_type)?;
    if sink.is_some() {
        let keys = [(Attr::Axes, -1), (Attr::Starts, 0), (Attr::Ends, -1)];
        let keys = keys.map(|(attr, number): (Attr, i64)| (attr, vec![number].into()));
        shares = steps.emit(K::Slice, &keys, &[shares], data_type)?;
    }
    layer.steps.emit_declared(K::MatMul, &[], &[shares, v], data_type)
}

/// Numbers kept within bounds and rounded to one of some levels: the two ops of quantisation where both say
/// the same, or else the formula.
pub(super) fn fake_quantize(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type, levels) = (layer.inputs[0], floats(layer, 0)?, layer.int("levels", None)?);
    if !(2..=1 << 24).contains(&levels) {
        return Err(Fault::of_attribute("levels", "a number from 2 to 2^24"));
    }
    if !layer.word("auto_broadcast", &[("numpy", true), ("none", true)], true)? {
        return Err(Fault::of_attribute("auto_broadcast", "numpy, none"));
    }
    let bounds = [layer.inputs[1], layer.inputs[2], layer.inputs[3], layer.inputs[4]];
    let values = bounds.map(|bound| layer.steps.builder.value(bound).and_then(one_float));
    let steps = &mut layer.steps;
    if let (D::F32, [Some(low), Some(high), out_low, out_high]) = (data_type, values)
        && let Some((to, attrs)) = steps_of_eight_bits([low, high], levels)
        && (out_low, out_high) == (Some(low), Some(high))
    {
        let whole = steps.emit(K::Quantize, &attrs, &[x], to)?;
        return steps.emit(K::Dequantize, &attrs, &[whole], D::F32);
    }
    let wide = steps.cast(x, D::F32)?;
    let mut of = [x; 4];
    for (bound, wide) in bounds.into_iter().zip(&mut of) {
        *wide = steps.cast(bound, D::F32)?;
    }
    let [low, high, out_low, out_high] = of;
    let last = steps.float((levels - 1) as f32)?;
    let range = steps.both(K::Subtract, high, low)?;
    let moved = steps.both(K::Subtract, wide, low)?;
    let share = steps.both(K::Divide, moved, range)?;
    let place = steps.both(K::Multiply, share, last)?;
    let level = steps.same(K::Round, place)?;
    let share = steps.both(K::Divide, level, last)?;
    let out_range = steps.both(K::Subtract, out_high, out_low)?;
    let scaled = steps.both(K::Multiply, share, out_range)?;
    let inner = steps.both(K::Add, scaled, out_low)?;
    let (least, most) = (steps.both(K::Minimum, low, high)?, steps.both(K::Maximum, low, high)?);
    let (below, above) =
        (steps.predicate(K::LessEqual, wide, least)?, steps.predicate(K::Greater, wide, most)?);
    let result = steps.select(above, out_high, inner)?;
    let result = steps.select(below, out_low, result)?;
    steps.cast(result, data_type)
}

/// The 8-bit type, scale and zero point of 256 levels, if the bounds are exactly numbers of them.
fn steps_of_eight_bits([low, high]: [f64; 2], levels: i64) -> Option<(DataType, Vec<(Attr, AttrValue)>)> {
    let scale = ((high - low) / 255.0) as f32;
    if levels != 256 || !scale.is_normal() || scale < 0.0 {
        return None;
    }
    // In powers of two, the formula and the ops round the same numbers.
    let is_power = scale.to_bits() & 0x7f_ffff == 0;
    let zero = -low / f64::from(scale);
    let (to, point) = match zero {
        0.0..=255.0 if zero.fract() == 0.0 && zero < 128.0 => (D::U8, zero),
        _ if zero == 128.0 => (D::S8, 0.0),
        _ => return None,
    };
    let exact = (high - low) / 255.0 == f64::from(scale);
    (is_power && exact).then(|| {
        let attrs: Vec<(Attr, AttrValue)> =
            vec![(Attr::Scales, vec![scale].into()), (Attr::Zps, vec![point as i64].into())];
        (to, attrs)
    })
}

/// The type of an input, which is floating point.
pub(super) fn floats(layer: &Context<'_, '_>, input: usize) -> Result<DataType, Fault> {
    match layer.data_type(input) {
        data_type if is_float(data_type) => Ok(data_type),
        data_type => Err(Fault::of_type(layer.port(input), data_type, FLOATS)),
    }
}

/// Data divided by the length of its vectors along some axes, to whose square a small number is added, or
/// which is no less than that.
pub(super) fn normalized(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    floats(layer, 0)?;
    let data_type = layer.data_type(0);
    let axes = resolved_axes(&shapes::numbers(layer, 1)?, layer.rank(0)?);
    let axes = axes.ok_or_else(|| layer.bad_value(1, "axes of the data, each once"))?;
    let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
    let mode = layer.word("eps_mode", &[("add", K::Add), ("max", K::Maximum)], K::Add)?;
    let epsilon = layer.float("eps")? as f32;
    let declared = layer.steps.declared.take();
    let x = layer.steps.cast(layer.inputs[0], D::F32)?;
    let mut sums = layer.steps.same(K::Square, x)?;
    if !axes.is_empty() {
        sums = layer.steps.reduced(Reduction::One(K::ReduceSum), sums, &axes, true)?;
    }
    let epsilon = layer.steps.float(epsilon)?;
    let sums = layer.steps.both(mode, sums, epsilon)?;
    let lengths = layer.steps.same(K::Sqrt, sums)?;
    layer.steps.declared = declared;
    layer.steps.emit_declared(K::Divide, &[], &[x, lengths], data_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bits_are_found() {
        let of = |low, high, levels| steps_of_eight_bits([low, high], levels).map(|(to, _)| to);
        assert_eq!(of(-128.0 / 64.0, 127.0 / 64.0, 256), Some(D::S8));
        assert_eq!(of(0.0, 255.0 / 16.0, 256), Some(D::U8));
        assert_eq!(of(-3.0, 252.0, 256), Some(D::U8));
        assert_eq!(of(0.0, 1.0, 256), None);
        assert_eq!(of(0.0, 255.0, 255), None);
        assert_eq!(of(255.0, 0.0, 256), None);
    }
}
