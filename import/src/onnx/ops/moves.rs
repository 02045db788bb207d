//! Nodes that move elements or compute shapes: folded on constants, and on other tensors if ops do the same.

use sterna::reference::Value;
use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Call;
use super::arithmetic::{converted, pair};
use crate::builder::is_known;
use crate::compose::{self, folded, resolved_axes, resolved_shape, stored, with_ones, without};
use crate::error::Fault;
use crate::fold::{self, NoRange};
use crate::onnx::tensors;

use DataType as D;
use OpKind as K;

/// The most operands of an op `Concat`.
const WIDEST: usize = 64;
/// The most slices that a node without an op of its own becomes.
const MOST_SLICES: usize = 1024;

pub(super) fn identity(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    Ok(node.input(0))
}

pub(super) fn choice(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    node.one_type(1, 2)?;
    let mode = [(Attr::AutoBroadcast, sterna::AutoBroadcast::Multidirectional.into())];
    let operands = [node.input(0), node.input(1), node.input(2)];
    node.emit_declared(K::Select, &mode, &operands, node.data_type(1))
}

/// A constant that an attribute holds.
pub(super) fn constant(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let list = |count: usize| [count as i64];
    let value = if let Some(text) = node.tensor("value") {
        let value = tensors::value(text, node.folder, node.builder)?;
        return Ok(node.builder.constant(value)?);
    } else if let Some(number) = node.attribute("value_float") {
        Value::from_slice(&[], &[number.float])?
    } else if let Some(number) = node.attribute("value_int") {
        Value::from_slice(&[], &[number.int])?
    } else if let Some(numbers) = node.attribute("value_floats") {
        Value::from_slice(&list(numbers.floats.len()), &numbers.floats)?
    } else if let Some(numbers) = node.attribute("value_ints") {
        Value::from_slice(&list(numbers.ints.len()), &numbers.ints)?
    } else {
        return Err(Fault::MissingAttribute { attribute: "value" });
    };
    stored(node.builder, value)
}

/// The same number everywhere.
pub(super) fn constant_of_shape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.numbers(0)?;
    if dims.iter().any(|&dim| dim < 0) || dims.len() > sterna::MAX_RANK {
        return Err(node.bad_value(0, "at most twelve dims that are not negative"));
    }
    let value = match node.tensor("value") {
        Some(text) => tensors::value(text, node.folder, node.builder)?,
        None => Value::from_slice(&[], &[0.0f32])?,
    };
    if compose::element_count(value.dims()) != Some(1) {
        return Err(Fault::of_attribute("value", "one number"));
    }
    let number = stored(node.builder, fold::reshaped(&value, &[])?)?;
    node.enlarged(number, &dims)
}

/// The dims, or some of them.
pub(super) fn shape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    const WHY: &str = "known dims, which become a constant; give the model a shape";
    let dims = node.builder.dims(node.input(0)).map(<[i64]>::to_vec);
    let fault = || Fault::UnknownShape { port: node.port(0), needed: WHY.into() };
    let dims = dims.ok_or_else(fault)?;
    let rank = dims.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(node.int("start", 0)), place(node.int("end", rank)));
    let part = &dims[start..end.max(start)];
    if !is_known(part) {
        return Err(fault());
    }
    folded(node.builder, Value::from_slice(&[part.len() as i64], part)?)
}

/// The number of elements.
pub(super) fn size(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, whose product becomes a constant; give the model a shape")?;
    let count = compose::element_count(&dims).ok_or_else(|| node.unfit(0, "a countable shape"))?;
    folded(node.builder, Value::from_slice(&[], &[count])?)
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
    folded(node.builder, value)
}

pub(super) fn reshape(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (pattern, data) = (node.numbers(1)?, node.input(0));
    let special_zero = !node.flag("allowzero", false);
    let Some(dims) = node.builder.known_dims(data).map(<[i64]>::to_vec) else {
        let attrs: [(Attr, AttrValue); 2] =
            [(Attr::Shape, pattern.into()), (Attr::SpecialZero, special_zero.into())];
        return node.emit_declared(K::StaticReshape, &attrs, &[data], node.data_type(0));
    };
    let shape = resolved_shape(&dims, &pattern, special_zero);
    let shape = shape.ok_or_else(|| node.unfit(0, "as many elements as the shape asked for has"))?;
    node.in_shape(data, &shape)
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
    let shape = compose::element_count(front).zip(compose::element_count(back));
    let (front, back) = shape.ok_or_else(|| node.unfit(0, "dims whose products are countable"))?;
    node.in_shape(node.input(0), &[front, back])
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
    node.in_shape(node.input(0), &without(&dims, &axes))
}

pub(super) fn unsqueeze(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, beside which others are put")?;
    let axes = node.list(1, "axes")?.ok_or(Fault::MissingAttribute { attribute: "axes" })?;
    let axes = resolved_axes(&axes, dims.len() + axes.len());
    let axes = axes.ok_or_else(|| Fault::of_attribute("axes", "axes within the dims, each once"))?;
    node.in_shape(node.input(0), &with_ones(&dims, &axes))
}

pub(super) fn transpose(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let order: Vec<i64> = match node.ints("perm") {
        Some(order) => order.to_vec(),
        None => (0..node.rank(0)? as i64).rev().collect(),
    };
    transposed(node, node.input(0), &order)
}

pub(super) fn transposed(node: &mut Call<'_, '_>, x: TensorId, order: &[i64]) -> Result<TensorId, Fault> {
    // Of the order of no dims, the op makes that of all.
    if order.is_empty() {
        return Ok(x);
    }
    node.emit_declared(K::StaticTranspose, &[(Attr::Order, order.into())], &[x], node.builder.data_type(x))
}

pub(super) fn concat(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let parts: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
    let axis = node.axis(1, node.rank(0)?)?;
    joined(node, parts, axis)
}

/// Tensors one after the other along an axis.
pub(super) fn joined(
    node: &mut Call<'_, '_>,
    mut parts: Vec<TensorId>,
    axis: usize,
) -> Result<TensorId, Fault> {
    let attrs = [(Attr::Axis, (axis as i64).into())];
    while parts.len() > 1 {
        let mut fewer = Vec::with_capacity(parts.len().div_ceil(WIDEST));
        for group in parts.chunks(WIDEST) {
            fewer.push(match group {
                [one] => *one,
                _ => node.emit(K::Concat, &attrs, group, node.builder.data_type(group[0]))?,
            });
        }
        parts = fewer;
    }
    Ok(parts[0])
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
    node.enlarged(x, &result)
}

/// The ranges of a slice along some axes.
#[derive(Default)]
struct Ranges {
    starts: Vec<i64>,
    ends: Vec<i64>,
    axes: Vec<i64>,
    steps: Vec<i64>,
}

fn sliced(node: &mut Call<'_, '_>, x: TensorId, ranges: Ranges) -> Result<TensorId, Fault> {
    let attrs: [(Attr, AttrValue); 4] = [
        (Attr::Starts, ranges.starts.into()),
        (Attr::Ends, ranges.ends.into()),
        (Attr::Steps, ranges.steps.into()),
        (Attr::Axes, ranges.axes.into()),
    ];
    node.emit_declared(K::Slice, &attrs, &[x], node.builder.data_type(x))
}

/// The elements from a start to an end along one axis.
pub(super) fn part(
    node: &mut Call<'_, '_>,
    x: TensorId,
    axis: usize,
    [start, end]: [i64; 2],
) -> Result<TensorId, Fault> {
    let ranges = Ranges { starts: vec![start], ends: vec![end], axes: vec![axis as i64], steps: vec![1] };
    sliced(node, x, ranges)
}

/// The same backwards: from a start down to and without an end, −1 for before the first.
fn backwards(
    node: &mut Call<'_, '_>,
    x: TensorId,
    axis: usize,
    [start, end]: [i64; 2],
) -> Result<TensorId, Fault> {
    let end = if end < 0 { i64::MIN } else { end };
    let ranges = Ranges { starts: vec![start], ends: vec![end], axes: vec![axis as i64], steps: vec![-1] };
    sliced(node, x, ranges)
}

pub(super) fn slice_by_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let list = |attribute: &'static str| {
        node.ints(attribute).map(<[i64]>::to_vec).ok_or(Fault::MissingAttribute { attribute })
    };
    let (starts, ends) = (list("starts")?, list("ends")?);
    let axes = node.ints("axes").map_or_else(|| (0..starts.len() as i64).collect(), <[i64]>::to_vec);
    let steps = vec![1; starts.len()];
    sliced(node, node.input(0), Ranges { starts, ends, axes, steps })
}

pub(super) fn slice(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (starts, ends) = (node.numbers(1)?, node.numbers(2)?);
    let list = |input| node.optional(input).map(|_| node.numbers(input)).transpose();
    let axes = list(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = list(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [&ends, &axes, &steps].iter().any(|list| list.len() != starts.len()) {
        return Err(node.bad_value(1, "as many numbers as there are ends, axes and steps"));
    }
    sliced(node, node.input(0), Ranges { starts, ends, axes, steps })
}

pub(super) fn split(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let dims = node.known_dims(0, "known dims, which are split")?;
    let axis = node.axis(0, dims.len())?;
    let (length, count) = (dims[axis], node.outputs as i64);
    let lengths = match node.list(1, "split")? {
        Some(lengths) => lengths,
        None => {
            let count = node.int("num_outputs", count);
            if count < node.outputs as i64 || count > MOST_SLICES as i64 {
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
    node.declared = None;
    let (mut parts, mut start) = (Vec::new(), 0);
    for length in lengths.into_iter().take(node.outputs) {
        parts.push(part(node, node.input(0), axis, [start, start + length])?);
        start += length;
    }
    Ok(parts)
}

/// Slices at the places that a constant gives.
pub(super) fn gather(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let dims = node.known_dims(0, "known dims, of which slices are taken")?;
    let axis = node.axis(0, dims.len())?;
    let indices = node.value(1, "a constant; an op that takes elements at places that are computed")?;
    let (shape, places) = (indices.dims().to_vec(), crate::weights::integers(indices));
    let length = dims[axis];
    let places = places.filter(|places| places.iter().all(|place| (-length..length).contains(place)));
    let places = places
        .ok_or_else(|| node.bad_value(1, format!("whole numbers from {} to {}", -length, length - 1)))?;
    let places: Vec<i64> = places.iter().map(|place| place.rem_euclid(length.max(1))).collect();
    let result: Vec<i64> = [&dims[..axis], &shape, &dims[axis + 1..]].concat();
    let x = node.input(0);
    if let Some(value) = node.builder.value(x) {
        let size = crate::weights::byte_count(value.data_type(), &result)?.unwrap_or(usize::MAX);
        if node.builder.charge_folded(size).is_ok()
            && let Some(value) = node.builder.value(x)
        {
            let value = fold::gathered(value, axis, &places, &result)?;
            return Ok(node.builder.constant(value)?);
        }
    }
    node.declared = None;
    // Neighbours are one slice.
    let mut runs: Vec<[i64; 2]> = Vec::new();
    for &place in &places {
        match runs.last_mut() {
            Some([_, end]) if *end == place => *end += 1,
            _ => runs.push([place, place + 1]),
        }
    }
    if runs.len() > MOST_SLICES {
        return Err(node.bad_value(1, format!("at most {MOST_SLICES} places that are no neighbours")));
    }
    if runs.is_empty() {
        runs.push([0, 0]);
    }
    let mut parts = Vec::with_capacity(runs.len());
    for run in runs {
        parts.push(part(node, x, axis, run)?);
    }
    let along = joined(node, parts, axis)?;
    node.in_shape(along, &result)
}

pub(super) fn pad_by_attributes(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let pads = node.ints("pads").map(<[i64]>::to_vec).ok_or(Fault::MissingAttribute { attribute: "pads" })?;
    let fill = node.number(node.data_type(0), node.float("value", 0.0).into())?;
    let axes = (0..node.rank(0)?).collect();
    padded(node, &pads, fill, axes)
}

pub(super) fn pad(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let (pads, data_type, rank) = (node.numbers(1)?, node.data_type(0), node.rank(0)?);
    let fill = match node.optional(2) {
        Some(_) if node.data_type(2) != data_type => {
            return Err(node.bad_type(2, format!("{data_type}, the type of the data")));
        }
        Some(fill) => node.in_shape(fill, &[])?,
        None => node.number(data_type, 0.0)?,
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

/// What stands around the data.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Around {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

/// The data with elements in front and behind along some axes; negative numbers cut off.
fn padded(
    node: &mut Call<'_, '_>,
    pads: &[i64],
    fill: TensorId,
    axes: Vec<usize>,
) -> Result<TensorId, Fault> {
    use Around::{Constant, Edge, Reflect, Wrap};
    let words = [("constant", Constant), ("edge", Edge), ("reflect", Reflect), ("wrap", Wrap)];
    let around = node.word("mode", &words, Constant)?;
    if pads.len() != 2 * axes.len() {
        return Err(node.bad_value(1, "two numbers for each axis"));
    }
    let mut dims = node.known_dims(0, "known dims, around which elements are put")?;
    let mut x = node.input(0);
    node.declared = None;
    for (i, &axis) in axes.iter().enumerate() {
        let (mut front, mut back) = (pads[i], pads[axes.len() + i]);
        if front < 0 || back < 0 {
            let kept =
                [front.min(0).saturating_neg().min(dims[axis]), dims[axis] + back.min(0).max(-dims[axis])];
            x = part(node, x, axis, kept)?;
            dims[axis] = (kept[1] - kept[0]).max(0);
            (front, back) = (front.max(0), back.max(0));
        }
        if front == 0 && back == 0 {
            continue;
        }
        let length = dims[axis];
        // What a slice of the data can give at one side.
        let most = match around {
            Constant => i64::MAX,
            Edge if length > 0 => MOST_SLICES as i64,
            Reflect => length - 1,
            Wrap => length,
            Edge => 0,
        };
        if front > most || back > most {
            return Err(
                node.unfit(0, format!("at most {most} elements in front and behind along axis {axis}"))
            );
        }
        let mut parts = Vec::new();
        for (count, at_front) in [(front, true), (back, false)] {
            if !at_front {
                parts.push(x);
            }
            if count == 0 {
                continue;
            }
            match around {
                Constant => {
                    let mut shape = dims.clone();
                    shape[axis] = count;
                    parts.push(node.enlarged(fill, &shape)?);
                }
                Edge => {
                    let edge = if at_front { [0, 1] } else { [length - 1, length] };
                    let edge = part(node, x, axis, edge)?;
                    parts.extend(std::iter::repeat_n(edge, count as usize));
                }
                Reflect => {
                    let range = if at_front { [count, 0] } else { [length - 2, length - 2 - count] };
                    parts.push(backwards(node, x, axis, range)?);
                }
                Wrap => {
                    let range = if at_front { [length - count, length] } else { [0, count] };
                    parts.push(part(node, x, axis, range)?);
                }
            }
        }
        x = joined(node, parts, axis)?;
        dims[axis] = length.checked_add(front).and_then(|sum| sum.checked_add(back)).unwrap_or(i64::MAX);
    }
    Ok(x)
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
        let index = node.emit(K::GenIndex, &[(Attr::Axis, (axis as i64).into())], &[x], D::S32)?;
        Ok::<_, Fault>(index)
    };
    let (row, column) = (index(node, rank - 2)?, index(node, rank - 1)?);
    let offset = node.number(D::S32, offset as f64)?;
    let diagonal = pair(node, K::Add, row, offset)?;
    let order = if node.flag("upper", true) { K::GreaterEqual } else { K::LessEqual };
    let keeps = node.emit(order, &[], &[column, diagonal], D::Boolean)?;
    let zero = node.number(D::F32, 0.0)?;
    let zero = converted(node, zero, data_type)?;
    node.select(keeps, x, zero)
}
