//! Nodes that move elements or compute shapes: folded on constants, and on other tensors if ops do the same.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::arithmetic::{converted, pair};
use super::call::Call;
use crate::compose::{folded, resolved_axes, resolved_shape, stored, with_ones, without};
use crate::constant::Constant;
use crate::dims::is_known;
use crate::error::Fault;
use crate::fold::{self, NoRange};
use crate::onnx::tensors;
use crate::steps::{Around, MAX_SLICES, Padding, Ranges, Steps};
use crate::weights;

use DataType as D;
use OpKind as K;

pub(super) fn identity(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    Ok(node.input(0))
}

pub(super) fn choice(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(1, 2)?;
    let mode = [(Attr::AutoBroadcast, sterna::AutoBroadcast::Multidirectional.into())];
    let operands = [node.input(0), node.input(1), node.input(2)];
    node.steps.emit_declared(K::Select, &mode, &operands, node.data_type(1))
}

/// A constant that an attribute holds.
pub(super) fn constant(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let list = |count: usize| [count as i64];
    let value = if let Some(text) = node.tensor("value") {
        let value = tensors::value(text, node.files, node.steps.builder)?;
        return Ok(node.steps.builder.constant(value)?);
    } else if let Some(number) = node.attribute("value_float") {
        Constant::from_slice(&[], &[number.float])?
    } else if let Some(number) = node.attribute("value_int") {
        Constant::from_slice(&[], &[number.int])?
    } else if let Some(numbers) = node.attribute("value_floats") {
        Constant::from_slice(&list(numbers.floats.len()), &numbers.floats)?
    } else if let Some(numbers) = node.attribute("value_ints") {
        Constant::from_slice(&list(numbers.ints.len()), &numbers.ints)?
    } else {
        return Err(Fault::MissingAttribute { attribute: "value" });
    };
    stored(node.steps.builder, value)
}

/// The same number everywhere.
pub(super) fn constant_of_shape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.numbers(0)?;
    if dims.iter().any(|&dim| dim < 0) || dims.len() > sterna::MAX_RANK {
        return Err(node.bad_value(0, "at most twelve dims that are not negative"));
    }
    let value = match node.tensor("value") {
        Some(text) => tensors::value(text, node.files, node.steps.builder)?,
        None => Constant::from_slice(&[], &[0.0f32])?,
    };
    if weights::element_count(value.dims()) != Some(1) {
        return Err(Fault::of_attribute("value", "one number"));
    }
    let number = stored(node.steps.builder, value.reshaped(&[])?)?;
    node.steps.enlarged(number, &dims)
}

/// The dims, or some of them.
pub(super) fn shape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "known dims, which become a constant; give the model a shape";
    let dims = node.steps.builder.dims(node.input(0)).map(<[i64]>::to_vec);
    let fault = || Fault::UnknownShape { port: node.port(0), needed: WHY.into() };
    let dims = dims.ok_or_else(fault)?;
    let rank = dims.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(node.int("start", 0)), place(node.int("end", rank)));
    let part = &dims[start..end.max(start)];
    if !is_known(part) {
        return Err(fault());
    }
    folded(node.steps.builder, Constant::from_slice(&[part.len() as i64], part)?)
}

/// The number of elements.
pub(super) fn size(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, whose product becomes a constant; give the model a shape")?;
    let count = weights::element_count(&dims).ok_or_else(|| node.unfit(0, "a countable shape"))?;
    folded(node.steps.builder, Constant::from_slice(&[], &[count])?)
}

/// Consecutive numbers, all known.
pub(super) fn range(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "a constant, so that the numbers are one";
    let to = node.data_type(0);
    let bounds = [node.value(0, WHY)?, node.value(1, WHY)?, node.value(2, WHY)?];
    let value = fold::range(bounds[0], bounds[1], bounds[2], to).map_err(|why| match why {
        NoRange::Bounds => node.bad_value(2, "finite numbers, and a step that is not 0"),
        NoRange::Inexact => node.bad_value(2, format!("a step whose multiples are exact in {to}")),
        NoRange::TooLong => node.bad_value(1, "at most 2^24 numbers"),
    })?;
    folded(node.steps.builder, value)
}

pub(super) fn reshape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (pattern, data) = (node.numbers(1)?, node.input(0));
    let special_zero = !node.flag("allowzero", false);
    let Some(dims) = node.steps.builder.known_dims(data).map(<[i64]>::to_vec) else {
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Shape, pattern.into()), (Attr::SpecialZero, special_zero.into())];
        return node.steps.emit_declared(K::StaticReshape, &attrs, &[data], node.data_type(0));
    };
    let shape = resolved_shape(&dims, &pattern, special_zero);
    let shape = shape.ok_or_else(|| node.unfit(0, "as many elements as the shape asked for has"))?;
    node.steps.in_shape(data, &shape)
}

/// Two dims: those before an axis, and those from it on.
pub(super) fn flatten(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, which become two")?;
    let (axis, rank) = (node.int("axis", 1), dims.len() as i64);
    let place = if axis < 0 { axis.saturating_add(rank) } else { axis };
    if !(0..=rank).contains(&place) {
        return Err(Fault::of_attribute("axis", format!("one of the {rank} dims, or behind them")));
    }
    let (front, back) = dims.split_at(place as usize);
    let shape = weights::element_count(front).zip(weights::element_count(back));
    let (front, back) = shape.ok_or_else(|| node.unfit(0, "dims whose products are countable"))?;
    node.steps.in_shape(node.input(0), &[front, back])
}

pub(super) fn squeeze(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, of which some go")?;
    let axes = match node.list(1, "axes")? {
        None => (0..dims.len()).filter(|&axis| dims[axis] == 1).collect(),
        Some(axes) => {
            let axes = resolved_axes(&axes, dims.len());
            axes.ok_or_else(|| Fault::of_attribute("axes", "axes within the dims, each once"))?
        }
    };
    if axes.iter().any(|&axis| dims[axis] != 1) {
        return Err(node.unfit(0, "a dim of 1 at each of the axes"));
    }
    node.steps.in_shape(node.input(0), &without(&dims, &axes))
}

pub(super) fn unsqueeze(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, beside which others are put")?;
    let axes = node.list(1, "axes")?.ok_or(Fault::MissingAttribute { attribute: "axes" })?;
    let axes = resolved_axes(&axes, dims.len() + axes.len());
    let axes = axes.ok_or_else(|| Fault::of_attribute("axes", "axes within the dims, each once"))?;
    node.steps.in_shape(node.input(0), &with_ones(&dims, &axes))
}

pub(super) fn transpose(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let order: Vec<i64> = match node.ints("perm") {
        Some(order) => order.to_vec(),
        None => (0..node.rank(0)? as i64).rev().collect(),
    };
    let x = node.input(0);
    node.steps.transposed(x, &order)
}

pub(super) fn concat(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let parts: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
    let axis = node.axis(1, node.rank(0)?)?;
    node.steps.joined(parts, axis)
}

/// A repetition of the data; dims of 1 of either side give way.
pub(super) fn expand(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (target, x) = (node.numbers(1)?, node.input(0));
    let dims = node.known_dims(0, "known dims, which are laid beside the shape")?;
    let rank = dims.len().max(target.len());
    let padded = |dims: &[i64]| -> Vec<i64> {
        std::iter::repeat_n(1, rank - dims.len()).chain(dims.iter().copied()).collect()
    };
    let pairs = padded(&dims).into_iter().zip(padded(&target));
    let both = pairs.map(|(own, wanted)| match (own, wanted) {
        (own, wanted) if wanted < 0 || (own != wanted && own != 1 && wanted != 1) => None,
        (1, wanted) => Some(wanted),
        (own, _) => Some(own),
    });
    let result: Option<Vec<i64>> = both.collect();
    let result = result.filter(|result| result.len() <= sterna::MAX_RANK);
    let result = result.ok_or_else(|| node.unfit(0, "dims that are those of the shape asked for, or 1"))?;
    node.steps.enlarged(x, &result)
}

pub(super) fn slice_by_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let list = |attribute: &'static str| {
        node.ints(attribute).map(<[i64]>::to_vec).ok_or(Fault::MissingAttribute { attribute })
    };
    let (starts, ends) = (list("starts")?, list("ends")?);
    let axes = node.ints("axes").map_or_else(|| (0..starts.len() as i64).collect(), <[i64]>::to_vec);
    let steps = vec![1; starts.len()];
    let x = node.input(0);
    node.steps.sliced(x, Ranges { starts, ends, axes, steps })
}

pub(super) fn slice(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let list = |input| node.optional(input).map(|_| node.numbers(input)).transpose();
    let (axes, steps) = (list(3)?, list(4)?);
    let (x, range) = (node.input(0), [node.input(1), node.input(2)]);
    let along = axes.as_deref();
    if let Some(part) = node.steps.sliced_from(x, range, along, steps.as_deref().unwrap_or_default())? {
        return Ok(part);
    }
    let (starts, ends) = (node.numbers(1)?, node.numbers(2)?);
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [&ends, &axes, &steps].iter().any(|list| list.len() != starts.len()) {
        return Err(node.bad_value(1, "as many numbers as there are ends, axes and steps"));
    }
    node.steps.sliced(x, Ranges { starts, ends, axes, steps })
}

pub(super) fn split(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let dims = node.known_dims(0, "known dims, which are split")?;
    let axis = node.axis(0, dims.len())?;
    let (length, count) = (dims[axis], node.outputs as i64);
    let lengths = match node.list(1, "split")? {
        Some(lengths) => lengths,
        None => {
            let count = node.int("num_outputs", count);
            if count < node.outputs as i64 || count > MAX_SLICES as i64 {
                return Err(Fault::of_attribute("num_outputs", "as many as there are outputs"));
            }
            // The last part is what is left.
            let each = length.saturating_add(count - 1) / count.max(1);
            (0..count).map(|i| (length - i * each).clamp(0, each)).collect()
        }
    };
    let total = lengths.iter().try_fold(0i64, |total, &length| total.checked_add(length));
    if total != Some(length) || lengths.iter().any(|&length| length < 0) || lengths.len() < node.outputs {
        return Err(node.unfit(0, "a dim that is the sum of the lengths of its parts"));
    }
    let x = node.input(0);
    let lengths = &lengths[..node.outputs];
    node.steps.split(x, axis, lengths)
}

/// The places of what is not 0 in a constant, a list of indices for each dim.
pub(super) fn non_zero(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "a constant; an op whose result has as many elements as it finds";
    let value = node.value(0, WHY)?;
    let (rank, count) = (value.dims().len(), fold::non_zero(value).count());
    if rank == 0 {
        return Err(node.unfit(0, "one dim or more"));
    }
    // The places, and their indices.
    let bytes = (rank + 1).saturating_mul(count).saturating_mul(size_of::<i64>());
    node.steps.builder.charge_folded(bytes)?;
    let indices = fold::indices_of_non_zero(node.value(0, WHY)?)?;
    Ok(node.steps.builder.constant(indices)?)
}

pub(super) fn pad_by_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let pads = node.ints("pads").map(<[i64]>::to_vec).ok_or(Fault::MissingAttribute { attribute: "pads" })?;
    let fill = node.steps.number(node.data_type(0), node.float("value", 0.0).into())?;
    let axes = (0..node.rank(0)?).collect();
    padded(node, &pads, fill, axes)
}

pub(super) fn pad(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (pads, data_type, rank) = (node.numbers(1)?, node.data_type(0), node.rank(0)?);
    let fill = match node.optional(2) {
        Some(_) if node.data_type(2) != data_type => {
            return Err(node.bad_type(2, format!("{data_type}, the type of the data")));
        }
        Some(fill) => node.steps.in_shape(fill, &[])?,
        None => node.steps.number(data_type, 0.0)?,
    };
    let axes = match node.optional(3) {
        Some(_) => {
            let axes = resolved_axes(&node.numbers(3)?, rank);
            axes.ok_or_else(|| node.bad_value(3, "axes within the dims, each once"))?
        }
        None => (0..rank).collect(),
    };
    padded(node, &pads, fill, axes)
}

/// The data with elements in front and behind along some axes; negative numbers cut off.
fn padded(
    node: &mut Call<'_, '_>,
    pads: &[i64],
    fill: TensorId,
    axes: Vec<usize>,
) -> Result<TensorId, Fault> {
    let words = [
        ("constant", Around::Constant),
        ("edge", Around::Edge),
        ("reflect", Around::Reflect),
        ("wrap", Around::Wrap),
    ];
    let around = node.word("mode", &words, Around::Constant)?;
    if pads.len() != 2 * axes.len() {
        return Err(node.bad_value(1, "two numbers for each axis"));
    }
    node.known_dims(0, "known dims, around which elements are put")?;
    let padding = |(i, &axis): (usize, &usize)| Padding { axis, front: pads[i], back: pads[axes.len() + i] };
    let paddings: Vec<Padding> = axes.iter().enumerate().map(padding).collect();
    let x = node.input(0);
    node.steps.padded(x, around, &paddings, fill)
}

/// One half of each matrix; the other half becomes 0.
pub(super) fn trilu(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (x, data_type) = (node.input(0), node.data_type(0));
    let rank = node.rank(0)?;
    if rank < 2 {
        return Err(node.unfit(0, "two dims or more"));
    }
    let offset = match node.optional(1) {
        Some(_) => *node.numbers(1)?.first().ok_or_else(|| node.bad_value(1, "one number"))?,
        None => 0,
    };
    // Beyond any matrix one is as good as the other.
    let offset = offset.clamp(-(1 << 30), 1 << 30);
    let index = |node: &mut Call<'_, '_>, axis: usize| {
        let index = node.steps.emit(K::GenIndex, &[(Attr::Axis, (axis as i64).into())], &[x], D::S32)?;
        Ok::<_, Fault>(index)
    };
    let (row, column) = (index(node, rank - 2)?, index(node, rank - 1)?);
    let offset = node.steps.number(D::S32, offset as f64)?;
    let diagonal = pair(node, K::Add, row, offset)?;
    let order = if node.flag("upper", true) { K::GreaterEqual } else { K::LessEqual };
    let keeps = node.steps.emit(order, &[], &[column, diagonal], D::Boolean)?;
    let zero = node.steps.number(D::F32, 0.0)?;
    let zero = converted(node, zero, data_type)?;
    node.steps.select(keeps, x, zero)
}

/// The first elements along one axis backwards, as many as a constant says for each place along another.
pub(super) fn reverse_sequence(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, along one of which elements are reversed")?;
    let axis = |name: &str, default: i64| {
        let axes = resolved_axes(&[node.int(name, default)], dims.len());
        axes.map(|axes| axes[0]).ok_or_else(|| Fault::of_attribute(name, "one of the dims"))
    };
    let (batch, time) = (axis("batch_axis", 1)?, axis("time_axis", 0)?);
    let lengths = node.numbers(1)?;
    let result = node.steps.reversed_sequences(node.input(0), (batch, time), &lengths)?;
    result.ok_or_else(|| node.bad_value(1, Steps::LENGTHS))
}
