//! Layers that move elements or compute shapes: folded on constants, and on other tensors if an op does the
//! same.

use sterna::{DataType, TensorId};

use super::Context;
use crate::compose::{self, folded, is_integer, resolved_shape, stored, with_ones, without};
use crate::error::Fault;
use crate::fold::{self, NoRange};
use crate::weights::integers;

use DataType as D;

/// The operands under mode numpy whose result is that of mode pdpd: the second one aligned to the axis.
pub(super) fn as_numpy(layer: &mut Context<'_, '_>, [a, b]: [TensorId; 2]) -> Result<[TensorId; 2], Fault> {
    const WHY: &str = "known dims, against which mode pdpd aligns";
    let (onto, own, axis) = (layer.known_dims(0, WHY)?, layer.known_dims(1, WHY)?, layer.broadcast_axis()?);
    let room = onto.len().checked_sub(own.len());
    let start = match (room, axis) {
        (Some(room), -1) => room,
        (Some(room), 0..) if axis as u64 <= room as u64 => axis as usize,
        _ => return Err(layer.unfit(1, format!("a place within the dims of input 0 from axis {axis} on"))),
    };
    if own.iter().zip(&onto[start..]).any(|(&dim, &onto)| dim != onto && dim != 1) {
        return Err(layer.unfit(1, format!("dims that are those of input 0 from axis {start} on, or 1")));
    }
    let behind = onto.len() - start - own.len();
    if behind == 0 || own.iter().all(|&dim| dim == 1) {
        return Ok([a, b]);
    }
    let Some(value) = layer.builder.value(b) else {
        let needed = "a constant, or an axis that puts its last dim at the last dim of input 0";
        return Err(Fault::NotConstant { port: layer.port(1), needed: needed.into() });
    };
    let padded: Vec<i64> = own.iter().copied().chain(std::iter::repeat_n(1, behind)).collect();
    let value = fold::reshaped(value, &padded)?;
    Ok([a, stored(layer.builder, value)?])
}

/// The dims of the input.
pub(super) fn shape_of(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let dims = layer.known_dims(0, "known dims, which become a constant; give the model a shape")?;
    let to = layer.element("output_type")?.unwrap_or(D::S64);
    if ![D::S32, D::S64].contains(&to) {
        return Err(Fault::of_attribute("output_type", "i32, i64"));
    }
    let value = fold::integers_of(to, &dims).ok_or_else(|| layer.unfit(0, format!("dims that fit {to}")))?;
    folded(layer.builder, value)
}

/// Consecutive numbers, all known.
pub(super) fn range(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "a constant, so that the numbers are one";
    let to = match layer.element("output_type")? {
        Some(to) => to,
        None if layer.opset.is_some_and(|opset| opset >= 4) => {
            return Err(Fault::MissingAttribute { attribute: "output_type" });
        }
        None => layer.data_type(0),
    };
    let bounds = [0, 1, 2].map(|input| layer.constant(input, WHY));
    let [start, stop, step] = bounds;
    let value = fold::range(start?, stop?, step?, to).map_err(|why| match why {
        NoRange::Bounds => layer.bad_value(2, "finite numbers, and a step that is not 0"),
        NoRange::Inexact => layer.bad_value(2, format!("a step whose multiples are exact in {to}")),
        NoRange::TooLong => layer.bad_value(1, "at most 2^24 numbers"),
    })?;
    folded(layer.builder, value)
}

/// The elements in the shape that a constant gives, whose 0 stands for the dim of the input and whose −1 for
/// the rest.
pub(super) fn reshape(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let pattern = numbers(layer, 1)?;
    let special_zero = layer.truth("special_zero", false)?;
    let dims = layer.known_dims(0, "known dims, from which the shape follows")?;
    let resolved = resolved_shape(&dims, &pattern, special_zero);
    let result = resolved.ok_or_else(|| layer.unfit(0, "as many elements as the shape asked for has"))?;
    in_shape(layer, &result)
}

/// Dims of 1 more, at the axes that a constant gives.
pub(super) fn unsqueeze(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let dims = layer.known_dims(0, "known dims, beside which others are put")?;
    let axes = numbers(layer, 1)?;
    let axes = resolved_axes(layer, &axes, dims.len() + axes.len())?;
    in_shape(layer, &with_ones(&dims, &axes))
}

/// Fewer dims of 1: those at the axes that a constant gives, or all.
pub(super) fn squeeze(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    if layer.truth("allow_axis_skip", false)? {
        return Err(Fault::of_attribute("allow_axis_skip", "false"));
    }
    let dims = layer.known_dims(0, "known dims, of which some go")?;
    let axes = if layer.inputs.len() > 1 { numbers(layer, 1)? } else { Vec::new() };
    let axes = match axes.is_empty() {
        true => (0..dims.len()).filter(|&axis| dims[axis] == 1).collect(),
        false => resolved_axes(layer, &axes, dims.len())?,
    };
    if axes.iter().any(|&axis| dims[axis] != 1) {
        return Err(layer.unfit(0, "a dim of 1 at each of the axes"));
    }
    in_shape(layer, &without(&dims, &axes))
}

/// How a tensor is laid beside the shape that it is repeated to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Numpy,
    Explicit,
    Bidirectional,
}

/// The elements repeated to a shape that a constant gives.
///
/// On a tensor that is no constant, a select does so whose condition alone has the shape and chooses between
/// twice the same.
pub(super) fn broadcast(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let words = [
        ("numpy", Mode::Numpy),
        ("explicit", Mode::Explicit),
        ("bidirectional", Mode::Bidirectional),
        ("none", Mode::Explicit),
    ];
    let mode = layer.word("mode", &words, Mode::Numpy)?;
    let target = numbers(layer, 1)?;
    let dims = layer.known_dims(0, "known dims, which are laid beside the shape")?;
    if target.iter().any(|&dim| dim < 0) {
        return Err(layer.bad_value(1, "dims that are not negative"));
    }
    let padded = |rank: usize| -> Vec<i64> {
        std::iter::repeat_n(1, rank.saturating_sub(dims.len())).chain(dims.iter().copied()).collect()
    };
    let view = match mode {
        Mode::Explicit => {
            let axes = if layer.inputs.len() > 2 { numbers(layer, 2)? } else { Vec::new() };
            let in_order = axes.windows(2).all(|pair| pair[0] < pair[1])
                && axes.iter().all(|&axis| (0..target.len() as i64).contains(&axis));
            if axes.len() != dims.len() || !in_order {
                return Err(layer.unfit(0, "one axis of the shape for each dim, in ascending order"));
            }
            let mut view = vec![1; target.len()];
            axes.iter().zip(&dims).for_each(|(&axis, &dim)| view[axis as usize] = dim);
            view
        }
        Mode::Numpy | Mode::Bidirectional => padded(target.len()),
    };
    let result: Vec<i64> = match mode {
        Mode::Bidirectional => {
            let first = view.len() - target.len();
            let pair = |(axis, &dim): (usize, &i64)| match axis.checked_sub(first).map(|axis| target[axis]) {
                Some(wanted) if dim == 1 => wanted,
                _ => dim,
            };
            view.iter().enumerate().map(pair).collect()
        }
        _ => target.clone(),
    };
    let behind = result.len() - target.len().min(result.len());
    let fits = view.len() == result.len()
        && view.iter().zip(&result).all(|(&dim, &wanted)| dim == wanted || dim == 1)
        && result[behind..].iter().zip(&target).all(|(&dim, &wanted)| dim == wanted || wanted == 1);
    if !fits {
        return Err(layer.unfit(0, "dims that are those of the shape asked for, or 1"));
    }
    if result == dims {
        return Ok(layer.inputs[0]);
    }
    let mut source = layer.inputs[0];
    if view != padded(result.len()) {
        if layer.builder.value(source).is_none() {
            let needed = "a constant, or axes that are the last ones of the shape";
            return Err(Fault::NotConstant { port: layer.port(0), needed: needed.into() });
        }
        source = in_shape(layer, &view)?;
    }
    compose::enlarged(layer.builder, &layer.layer.name, source, &result)
}

/// The first input in another shape of as many elements.
fn in_shape(layer: &mut Context<'_, '_>, dims: &[i64]) -> Result<TensorId, Fault> {
    let source = layer.inputs[0];
    compose::in_shape(layer.builder, &layer.layer.name, source, dims)
}

/// A constant list of whole numbers; one of rank 0 is a list of one.
fn numbers(layer: &Context<'_, '_>, input: usize) -> Result<Vec<i64>, Fault> {
    let value = layer.constant(input, "a constant of whole numbers")?;
    if !is_integer(value.data_type()) {
        return Err(Fault::of_type(layer.port(input), value.data_type(), "a type of whole numbers"));
    }
    let list = integers(value).filter(|_| value.dims().len() <= 1);
    let list = list.filter(|list| list.len() <= sterna::MAX_RANK);
    list.ok_or_else(|| layer.bad_value(input, "a list of at most twelve whole numbers"))
}

/// Axes as indices of dims; negative ones count from the end.
fn resolved_axes(layer: &Context<'_, '_>, axes: &[i64], rank: usize) -> Result<Vec<usize>, Fault> {
    let resolved = compose::resolved_axes(axes, rank);
    resolved.ok_or_else(|| layer.bad_value(1, "axes within the dims, each once"))
}
