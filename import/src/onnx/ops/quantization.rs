//! Numbers to integers and back.
//!
//! An op of its own computes with the scales and zero points as attributes. If they are no constants, or if
//! the zero point would be added before the rounding instead of behind it, ordinary ops compute the formula.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::converted;
use super::call::Call;
use crate::compose::stored;
use crate::error::Fault;
use crate::fold;
use crate::onnx::tensors;
use crate::weights::{integers, one_float};

use DataType as D;
use OpKind as K;

/// The type that an attribute names; `None` if it is missing.
fn asked(node: &Call<'_, '_>) -> Result<Option<DataType>, Fault> {
    match node.int("output_dtype", 0) {
        0 => Ok(None),
        number => {
            let data_type = tensors::data_type(number);
            data_type.map(Some).map_err(|refused| refused.in_attribute("output_dtype"))
        }
    }
}

/// Scales, or zero points, laid beside the data: one for all, one for each place along the axis, or one for
/// each block of neighbours along it.
fn beside(node: &mut Call<'_, '_>, input: usize) -> Result<TensorId, Fault> {
    let own = node.known_dims(input, "known dims, which are laid beside the data")?;
    let tensor = node.input(input);
    let rank = node.rank(0)?;
    if own.is_empty() || (own == [1] && rank > 0) {
        return node.steps.in_shape(tensor, &[]);
    }
    let axis = node.axis(1, rank)?;
    let block = node.int("block_size", 0);
    if block == 0 {
        if own.len() != 1 {
            return Err(node.unfit(input, "one number, or one for each place along the axis"));
        }
        let shape: Vec<i64> = (0..rank).map(|dim| if dim == axis { own[0] } else { 1 }).collect();
        return node.steps.in_shape(tensor, &shape);
    }
    let dims = node.known_dims(0, "known dims, which are divided into blocks")?;
    let fits = block > 0
        && own.len() == rank
        && (0..rank).all(|dim| match dim == axis {
            true => own[dim].checked_mul(block) == Some(dims[dim]),
            false => own[dim] == dims[dim],
        });
    if !fits {
        return Err(
            node.unfit(input, "the dims of the data, divided by the size of the blocks along the axis")
        );
    }
    let split = |length: i64| -> Vec<i64> { [&own[..=axis], &[length], &own[axis + 1..]].concat() };
    let apart = node.steps.in_shape(tensor, &split(1))?;
    let repeated = node.steps.enlarged(apart, &split(block))?;
    node.steps.in_shape(repeated, &dims)
}

/// The attributes of an op with constant scales, if it can say them: one scale, or one for each place.
fn attributes(node: &Call<'_, '_>) -> Result<Option<Vec<(Attr, AttrValue)>>, Fault> {
    if node.int("block_size", 0) != 0 {
        return Ok(None);
    }
    let Some(value) = node.steps.builder.value(node.input(1)) else { return Ok(None) };
    let Some(scales) = value.elements::<f32>() else { return Ok(None) };
    if scales.iter().any(|scale| !scale.is_normal() || *scale < 0.0) {
        return Ok(None);
    }
    let mut attrs: Vec<(Attr, AttrValue)> = match value.dims() {
        [] | [1] => vec![(Attr::Qtype, "per_tensor".into())],
        [_] => {
            let axis = node.axis(1, node.rank(0)?)? as i64;
            vec![(Attr::Qtype, "per_channel".into()), (Attr::Axis, axis.into())]
        }
        _ => return Ok(None),
    };
    attrs.push((Attr::Scales, scales.into()));
    Ok(Some(attrs))
}

/// `round(x / scale) + zero point`, kept within the type.
pub(super) fn quantize(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let zero_point = node.optional(2);
    let to = match (zero_point, asked(node)?) {
        (Some(_), asked) => {
            let to = node.data_type(2);
            if asked.is_some_and(|asked| asked != to) {
                return Err(node.bad_type(2, "the type that `output_dtype` names"));
            }
            to
        }
        (None, asked) => asked.unwrap_or(D::U8),
    };
    if !matches!(node.int("precision", 0), 0 | 1) {
        return Err(Fault::of_attribute("precision", "1, which is f32"));
    }
    let x = node.input(0);
    let wide = match node.data_type(0) {
        D::F32 | D::F16 | D::Bf16 | D::S32 => node.steps.cast(x, D::F32)?,
        _ => return Err(node.bad_type(0, "f32, bf16, f16, s32")),
    };
    let no_shift = match zero_point {
        None => true,
        Some(point) => {
            node.steps.builder.value(point).is_some_and(|value| value.bytes().iter().all(|byte| *byte == 0))
        }
    };
    if let Some(moved) = moved_integers(node, to)? {
        return Ok(moved);
    }
    if no_shift
        && matches!(to, D::S8 | D::U8)
        && let Some(attrs) = attributes(node)?
    {
        return node.steps.emit(K::Quantize, &attrs, &[wide], to);
    }
    let scale = beside(node, 1)?;
    let scale = node.steps.cast(scale, D::F32)?;
    let shares = node.steps.both(K::Divide, wide, scale)?;
    if !matches!(to, D::S8 | D::U8 | D::S16 | D::U16) {
        return match to {
            // A zero point of these types is 0.
            D::F8E4m3 | D::F8E5m2 => {
                let saturates = node.flag("saturate", true);
                node.steps.cast_to_f8(shares, to, saturates)
            }
            _ => Err(Fault::of_type(
                node.port(if zero_point.is_some() { 2 } else { 0 }),
                to,
                "s8, u8, s16, u16, f8_e4m3, f8_e5m2",
            )),
        };
    }
    // The conversion keeps numbers within the type.
    let mut rounded = node.steps.same(K::Round, shares)?;
    if !no_shift {
        let point = beside(node, 2)?;
        let point = node.steps.cast(point, D::F32)?;
        rounded = node.steps.both(K::Add, rounded, point)?;
    }
    node.steps.cast(rounded, to)
}

/// The integers themselves, moved as what they were dequantised to was moved before it is quantised by the
/// same scale and zero point, which gives them back: exporters write both around each op.
fn moved_integers(node: &mut Call<'_, '_>, to: DataType) -> Result<Option<TensorId>, Fault> {
    let value = |input: usize| node.optional(input).and_then(|x| node.steps.builder.value(x));
    let Some(scale) = value(1).and_then(one_float).map(|scale| scale as f32) else { return Ok(None) };
    let zero = match (node.optional(2), value(2).and_then(integers)) {
        (None, _) => 0,
        (_, Some(zeros)) if zeros.len() == 1 => zeros[0],
        _ => return Ok(None),
    };
    // The largest product by the scale stays within f32.
    if !matches!(to, D::S8 | D::U8) || !scale.is_normal() || !(512.0 * scale).is_finite() {
        return Ok(None);
    }
    let x = node.input(0);
    let Some((mut moved, moves)) = node.steps.builder.moved_integers(x, to, (scale, zero)) else {
        return Ok(None);
    };
    for (kind, attrs) in moves {
        moved = node.steps.emit(kind, &attrs, &[moved], to)?;
    }
    Ok(Some(moved))
}

/// The f32 numbers of data in 8 bits whose scale and zero point, one number each, follow them among the
/// inputs.
pub(super) fn dequantized(node: &mut Call<'_, '_>, data: usize) -> Result<TensorId, Fault> {
    if !matches!(node.data_type(data), D::S8 | D::U8) {
        return Err(node.bad_type(data, "s8, u8"));
    }
    one_number(node, data + 1)?;
    let own = |input: usize| (input, node.optional(input));
    let inputs = [own(data), own(data + 1), own(data + 2)];
    dequantize(&mut node.part(&inputs))
}

/// Numbers in 8 bits by the scale at an input and the zero point behind it, one number each. Without a zero
/// point they have the type of the data at another input.
pub(super) fn quantized(
    node: &mut Call<'_, '_>,
    x: TensorId,
    scale: usize,
    data: usize,
) -> Result<TensorId, Fault> {
    one_number(node, scale)?;
    let point = match node.optional(scale + 1) {
        Some(_) if !matches!(node.data_type(scale + 1), D::S8 | D::U8) => {
            return Err(node.bad_type(scale + 1, "s8, u8"));
        }
        Some(point) => {
            one_number(node, scale + 1)?;
            point
        }
        None => node.steps.number(node.data_type(data), 0.0)?,
    };
    let inputs = [(data, Some(x)), (scale, Some(node.input(scale))), (scale + 1, Some(point))];
    quantize(&mut node.part(&inputs))
}

/// Refuses a scale or zero point that is not one number.
pub(super) fn one_number(node: &Call<'_, '_>, input: usize) -> Result<(), Fault> {
    match node.known_dims(input, "known dims, which are those of one number")?.iter().all(|dim| *dim == 1) {
        true => Ok(()),
        false => Err(node.unfit(input, "one number")),
    }
}

/// An axis, and the length along it that blocks divide.
type Longer = (usize, i64);

/// Attributes of an op.
type Attributes = Vec<(Attr, AttrValue)>;

/// The attributes of an op with scales in tensors, and what the data must become so that blocks divide it.
fn in_tensors(node: &Call<'_, '_>) -> Result<(Attributes, Option<Longer>), Fault> {
    let dims = node.known_dims(0, "known dims, beside which scales are laid")?;
    let own = node.known_dims(1, "known dims, which are laid beside the data")?;
    let block = node.int("block_size", 0);
    if own.iter().all(|&dim| dim == 1) && own.len() < 2 && block == 0 {
        return Ok((vec![(Attr::Qtype, "per_tensor".into())], None));
    }
    let axis = node.axis(1, dims.len())?;
    if block == 0 {
        if own != [dims[axis]] {
            return Err(node.unfit(1, "one number, or one for each place along the axis"));
        }
        return Ok((vec![(Attr::Qtype, "per_channel".into()), (Attr::Axis, (axis as i64).into())], None));
    }
    if block < 1 {
        return Err(Fault::of_attribute("block_size", "0, or a number of neighbours"));
    }
    let blocks = dims[axis] / block + i64::from(dims[axis] % block != 0);
    let mut needed = dims.clone();
    needed[axis] = blocks;
    if own != needed || dims.len() < 2 {
        return Err(node.unfit(1, "the dims of the data, divided by the size of the blocks along the axis"));
    }
    let mut shape = vec![1; dims.len()];
    shape[axis] = block;
    let length = blocks.saturating_mul(block);
    let attrs = vec![(Attr::Qtype, "per_group".into()), (Attr::GroupShape, shape.into())];
    Ok((attrs, (length != dims[axis]).then_some((axis, length))))
}

/// `(x − zero point) · scale` by an op whose scales and zero points are tensors.
fn dequantize_by_tensors(node: &mut Call<'_, '_>, to: DataType) -> Result<TensorId, Fault> {
    let (attrs, padded) = in_tensors(node)?;
    let mut x = node.input(0);
    let length = node.known_dims(0, "known dims")?;
    if let Some((axis, length)) = padded {
        let needed = "a constant, or a dim that the size of the blocks divides";
        let value = fold::lengthened(node.value(0, needed)?, axis, length)?;
        x = stored(node.steps.builder, value)?;
    }
    // Whatever the scales, f32 holds what they give.
    let mut scale = if to == D::F32 { node.steps.cast(node.input(1), to)? } else { node.input(1) };
    if node.optional(2).is_some() {
        let (scales, points) = (node.known_dims(1, "known dims")?, node.known_dims(2, "known dims")?);
        let are_one = scales.iter().chain(&points).all(|&dim| dim == 1) && points.len() < 2;
        match scales == points {
            true => {}
            // One number is one of rank 0 or 1.
            false if are_one => scale = node.steps.in_shape(scale, &points)?,
            false => return Err(node.unfit(2, "the dims of the scales")),
        }
    }
    let (result, mut operands) = (node.steps.builder.data_type(scale), vec![x, scale]);
    operands.extend(node.optional(2));
    let mut number = node.steps.emit(K::DynamicDequantize, &attrs, &operands, result)?;
    if let Some((axis, _)) = padded {
        number = node.steps.part(number, axis, [0, length[axis]])?;
    }
    node.steps.cast(number, to)
}

/// `(x − zero point) · scale`.
pub(super) fn dequantize(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, from, scale_type) = (node.input(0), node.data_type(0), node.data_type(1));
    let to = asked(node)?.unwrap_or(scale_type);
    let zero_point = node.optional(2);
    if zero_point.is_some() {
        node.one_type(0, 2)?;
    }
    if matches!(from, D::S8 | D::U8)
        && to == D::F32
        && let Some(mut attrs) = attributes(node)?
    {
        let points = match zero_point {
            None => Some(None),
            Some(point) => node.steps.builder.value(point).and_then(integers).map(Some),
        };
        if let Some(points) = points {
            attrs.extend(points.map(|points| (Attr::Zps, points.into())));
            return node.steps.emit(K::Dequantize, &attrs, &[x], to);
        }
    }
    let in_blocks = node.int("block_size", 0) != 0 && node.rank(0)? > 1;
    if matches!(from, D::S4 | D::U4) || (matches!(from, D::S8 | D::U8) && in_blocks) {
        return dequantize_by_tensors(node, to);
    }
    let mut number = match from {
        D::F8E4m3 | D::F8E5m2 => converted(node, x, D::F32)?,
        D::S8 | D::U8 | D::S16 | D::U16 | D::S32 => {
            let mut whole = node.steps.cast(x, D::S32)?;
            if zero_point.is_some() {
                let point = beside(node, 2)?;
                let point = node.steps.cast(point, D::S32)?;
                whole = node.steps.both(K::Subtract, whole, point)?;
            }
            node.steps.cast(whole, D::F32)?
        }
        _ => return Err(node.bad_type(0, "s4, u4, s8, u8, s16, u16, s32, f8_e4m3, f8_e5m2")),
    };
    let scale = beside(node, 1)?;
    let scale = node.steps.cast(scale, D::F32)?;
    number = node.steps.both(K::Multiply, number, scale)?;
    node.steps.cast(number, to)
}
