//! Layers that move elements or compute shapes: folded on constants, and on other tensors if an op does the
//! same.

use sterna::{Attr, AttrValue, AutoBroadcast, DataType, OpKind, TensorId};

use super::context::Context;
use crate::compose::{self, folded, is_integer, resolved_shape, stored, with_ones, without};
use crate::error::Fault;
use crate::fold::{self, NoRange};
use crate::steps::{Around, MAX_SLICES, Padding, Ranges, Steps};
use crate::weights::integers;

use DataType as D;

/// The two operands of one type, as `auto_broadcast` lays them beside each other, and that attribute.
pub(super) fn pair(layer: &mut Context<'_, '_>) -> Result<([TensorId; 2], (Attr, AttrValue)), Fault> {
    let (a, b) = (layer.data_type(0), layer.data_type(1));
    if a != b {
        return Err(Fault::of_type(layer.port(1), b, format!("{a}, the type of the other input")));
    }
    let pair = [layer.inputs[0], layer.inputs[1]];
    let mode = layer.broadcast_mode()?;
    let (pair, mode) = match mode {
        AutoBroadcast::Pdpd => (as_numpy(layer, pair)?, AutoBroadcast::Numpy),
        _ => (pair, mode),
    };
    Ok((pair, (Attr::AutoBroadcast, mode.into())))
}

/// The operands under mode numpy whose result is that of mode pdpd: the second one aligned to the axis.
fn as_numpy(layer: &mut Context<'_, '_>, [a, b]: [TensorId; 2]) -> Result<[TensorId; 2], Fault> {
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
    let Some(value) = layer.steps.builder.value(b) else {
        let needed = "a constant, or an axis that puts its last dim at the last dim of input 0";
        return Err(Fault::NotConstant { port: layer.port(1), needed: needed.into() });
    };
    let padded: Vec<i64> = own.iter().copied().chain(std::iter::repeat_n(1, behind)).collect();
    let value = value.reshaped(&padded)?;
    Ok([a, stored(layer.steps.builder, value)?])
}

/// The dims of the input.
pub(super) fn shape_of(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let dims = layer.known_dims(0, "known dims, which become a constant; give the model a shape")?;
    let to = layer.element("output_type")?.unwrap_or(D::S64);
    if ![D::S32, D::S64].contains(&to) {
        return Err(Fault::of_attribute("output_type", "i32, i64"));
    }
    let value = fold::integers_of(to, &dims).ok_or_else(|| layer.unfit(0, format!("dims that fit {to}")))?;
    folded(layer.steps.builder, value)
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
    folded(layer.steps.builder, value)
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

pub(super) fn identity(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    Ok(layer.inputs[0])
}

/// In the order of dims that a constant gives; of no dims, backwards.
pub(super) fn transpose(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (mut order, rank) = (numbers(layer, 1)?, layer.rank(0)? as i64);
    if order.is_empty() {
        order = (0..rank).rev().collect();
    }
    let source = layer.inputs[0];
    layer.steps.transposed(source, &order)
}

pub(super) fn concat(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let axis = axis_of(layer, layer.int("axis", None)?)?;
    let parts = layer.steps.around_input(layer.inputs.clone(), axis)?;
    layer.steps.joined(parts, axis)
}

/// An axis as the index of a dim of the first input.
pub(super) fn axis_of(layer: &Context<'_, '_>, axis: i64) -> Result<usize, Fault> {
    let rank = layer.rank(0)?;
    let resolved = compose::resolved_axes(&[axis], rank).and_then(|axes| axes.first().copied());
    resolved.ok_or_else(|| Fault::of_attribute("axis", format!("one of the {rank} dims")))
}

/// An axis that a constant gives.
pub(super) fn axis_at(layer: &Context<'_, '_>, input: usize) -> Result<usize, Fault> {
    match *numbers(layer, input)? {
        [axis] => axis_of(layer, axis),
        _ => Err(layer.bad_value(input, "one axis")),
    }
}

/// Sums of the elements up to each.
pub(super) fn running_sum(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    layer.known_dims(0, "known dims, along one of which elements are added up")?;
    let (source, axis) = (layer.inputs[0], axis_at(layer, 1)?);
    let how = [layer.truth("exclusive", false)?, layer.truth("reverse", false)?];
    layer.steps.running(OpKind::Add, source, axis, how)
}

/// Parts of one length along an axis.
pub(super) fn split(layer: &mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let dims = layer.known_dims(0, "known dims, which are split")?;
    let (axis, count) = (axis_at(layer, 1)?, layer.int("num_splits", None)?);
    if count < 1 || count > MAX_SLICES as i64 || dims[axis] % count != 0 {
        return Err(Fault::of_attribute("num_splits", format!("a number that divides {}", dims[axis])));
    }
    let (source, length) = (layer.inputs[0], dims[axis] / count);
    layer.steps.split(source, axis, &vec![length; count as usize])
}

/// Parts of the lengths that a constant gives, of which −1 stands for what is left.
pub(super) fn variadic_split(layer: &mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let dims = layer.known_dims(0, "known dims, which are split")?;
    let axis = axis_at(layer, 1)?;
    let lengths = integers(layer.constant(2, "a constant of whole numbers")?);
    let mut lengths = lengths.ok_or_else(|| layer.bad_value(2, "whole numbers"))?;
    let mut known = lengths.iter().filter(|&&length| length != -1);
    let known = known.try_fold(0i64, |sum, &length| sum.checked_add(length).filter(|_| length >= 0));
    let left = known.and_then(|known| dims[axis].checked_sub(known)).filter(|&left| left >= 0);
    let left = left.ok_or_else(|| layer.bad_value(2, "lengths whose sum is the dim"))?;
    let open = lengths.iter().filter(|&&length| length == -1).count();
    if open > 1 || (open == 0 && left != 0) || lengths.len() > MAX_SLICES {
        return Err(layer.bad_value(2, "lengths whose sum is the dim, at most one of them open"));
    }
    lengths.iter_mut().filter(|length| **length == -1).for_each(|length| *length = left);
    let source = layer.inputs[0];
    layer.steps.split(source, axis, &lengths)
}

pub(super) fn slice(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (steps, source) = (numbers(layer, 3)?, layer.inputs[0]);
    let axes = match layer.inputs.len() {
        5 => numbers(layer, 4)?,
        _ => (0..steps.len() as i64).collect(),
    };
    let range = [layer.inputs[1], layer.inputs[2]];
    if let Some(part) = layer.steps.sliced_from(source, range, Some(&axes), &steps)? {
        return Ok(part);
    }
    let (starts, ends) = (numbers(layer, 1)?, numbers(layer, 2)?);
    if [&ends, &axes, &steps].iter().any(|list| list.len() != starts.len()) {
        return Err(layer.bad_value(1, "as many numbers as there are stops, steps and axes"));
    }
    layer.steps.sliced(source, Ranges { starts, ends, axes, steps })
}

/// A slice by one entry for each dim, some of which put in a dim of 1, take a dim away, or stand for several.
pub(super) fn strided_slice(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let dims = layer.known_dims(0, "known dims, of which parts are taken")?;
    let (begins, ends) = (numbers(layer, 1)?, numbers(layer, 2)?);
    let strides = if layer.inputs.len() > 3 { numbers(layer, 3)? } else { vec![1; begins.len()] };
    let count = begins.len();
    if ends.len() != count || strides.len() != count {
        return Err(layer.bad_value(2, "as many numbers as there are begins and strides"));
    }
    let open_begin = layer.flags("begin_mask", count)?;
    let open_end = layer.flags("end_mask", count)?;
    let new = layer.flags("new_axis_mask", count)?;
    let shrink = layer.flags("shrink_axis_mask", count)?;
    let ellipsis = layer.flags("ellipsis_mask", count)?;
    let own = (0..count).filter(|&at| !new[at] && !ellipsis[at]).count();
    if own > dims.len() || ellipsis[..count].iter().filter(|&&is| is).count() > 1 {
        return Err(layer.bad_value(1, "at most one entry for each dim, and one for those between"));
    }
    let (mut ranges, mut axis, mut kept) = (Ranges::default(), 0, Vec::new());
    for at in 0..count {
        if ellipsis[at] {
            let between = dims.len() - own;
            kept.extend((axis..axis + between).map(Some));
            axis += between;
        } else if new[at] {
            kept.push(None);
        } else {
            let (dim, step) = (dims[axis], strides[at]);
            let (start, end, step) = match shrink[at] {
                true => {
                    let place = if begins[at] < 0 { begins[at].saturating_add(dim) } else { begins[at] };
                    if !(0..dim).contains(&place) {
                        return Err(layer.bad_value(1, format!("a place within {dim}")));
                    }
                    (place, place + 1, 1)
                }
                false => {
                    kept.push(Some(axis));
                    let first = if step < 0 { i64::MAX } else { 0 };
                    let behind = if step < 0 { i64::MIN } else { i64::MAX };
                    let start = if open_begin[at] { first } else { begins[at] };
                    (start, if open_end[at] { behind } else { ends[at] }, step)
                }
            };
            ranges.starts.push(start);
            ranges.ends.push(end);
            ranges.steps.push(step);
            ranges.axes.push(axis as i64);
            axis += 1;
        }
    }
    kept.extend((axis..dims.len()).map(Some));
    let source = layer.inputs[0];
    let steps = &mut layer.steps;
    steps.declared = None;
    let part = if ranges.axes.is_empty() { source } else { steps.sliced(source, ranges)? };
    let dims = steps.dims(part)?;
    let result: Vec<i64> = kept.into_iter().map(|axis| axis.map_or(1, |axis| dims[axis])).collect();
    steps.in_shape(part, &result)
}

/// Backwards along the axes that a constant gives.
pub(super) fn reverse(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let by_mask = layer.word("mode", &[("index", false), ("mask", true)], false)?;
    let rank = layer.rank(0)?;
    let axes = match by_mask {
        true => {
            let value = layer.constant(1, "a constant")?;
            let mask = value.bytes().to_vec();
            if value.data_type() != D::Boolean || mask.len() != rank {
                return Err(layer.bad_value(1, "a truth value for each dim"));
            }
            (0..rank).filter(|&axis| mask[axis] != 0).collect()
        }
        false => resolved_axes(layer, &numbers(layer, 1)?, rank)?,
    };
    let count = axes.len();
    let ranges = Ranges {
        starts: vec![i64::MAX; count],
        ends: vec![i64::MIN; count],
        axes: axes.into_iter().map(|axis| axis as i64).collect(),
        steps: vec![-1; count],
    };
    let source = layer.inputs[0];
    if count == 0 { Ok(source) } else { layer.steps.sliced(source, ranges) }
}

pub(super) fn tile(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (times, source) = (numbers(layer, 1)?, layer.inputs[0]);
    layer.known_dims(0, "known dims, which are repeated")?;
    let result = layer.steps.tiled(source, &times)?;
    result.ok_or_else(|| layer.unfit(0, "at most six dims, and as many numbers"))
}

/// The first elements of each sequence of a batch backwards.
pub(super) fn reverse_sequence(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let dims = layer.known_dims(0, "known dims, along one of which elements are reversed")?;
    let [batch, time] = [("batch_axis", 0), ("seq_axis", 1)].map(|(name, default)| {
        let axes = compose::resolved_axes(&[layer.int(name, Some(default))?], dims.len());
        axes.map(|axes| axes[0]).ok_or_else(|| Fault::of_attribute(name, "one of the dims"))
    });
    let lengths = layer.constant(1, "constant lengths of sequences")?;
    let lengths = integers(lengths).ok_or_else(|| layer.bad_value(1, Steps::LENGTHS))?;
    let result = layer.steps.reversed_sequences(layer.inputs[0], (batch?, time?), &lengths)?;
    result.ok_or_else(|| layer.bad_value(1, Steps::LENGTHS))
}

/// Elements that move along axes, from the end of each to its front.
pub(super) fn roll(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (shifts, axes) = (numbers(layer, 1)?, numbers(layer, 2)?);
    let dims = layer.known_dims(0, "known dims, along which elements move")?;
    let axes: Vec<usize> = (axes.iter())
        .map(|&axis| resolved_axes(layer, &[axis], dims.len()).map(|axes| axes[0]))
        .collect::<Result<_, Fault>>()?;
    if shifts.len() != axes.len() && shifts.len() != 1 {
        return Err(layer.bad_value(1, "one number, or one for each axis"));
    }
    let declared = layer.steps.declared.take();
    let mut result = layer.inputs[0];
    for (&axis, shift) in axes.iter().zip(shifts.iter().cycle()) {
        let length = dims[axis];
        let start = if length == 0 { 0 } else { shift.rem_euclid(length) };
        if start != 0 {
            let back = layer.steps.part(result, axis, [length - start, length])?;
            let front = layer.steps.part(result, axis, [0, length - start])?;
            result = layer.steps.joined(vec![back, front], axis)?;
        }
    }
    layer.steps.declared = declared;
    Ok(result)
}

/// One number at the class that each element names, another one at all others.
pub(super) fn one_hot(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let words = [("ignore_negative", false), ("normalize", true)];
    let from_end = layer.word("negative_indices_mode", &words, false)?;
    let dims = layer.known_dims(0, "known dims, beside which classes are put")?;
    let axis = compose::resolved_axes(&[layer.int("axis", Some(-1))?], dims.len() + 1);
    let axis = axis.ok_or_else(|| Fault::of_attribute("axis", "one of the dims of the result"))?[0];
    let classes = match *numbers(layer, 1)? {
        [classes @ 0..=16_777_216] => classes,
        _ => return Err(layer.bad_value(1, "a number of classes up to 2^24")),
    };
    let [indices, on, off] = [layer.inputs[0], layer.inputs[2], layer.inputs[3]];
    let result = layer.steps.one_hot(indices, axis, classes, from_end, [on, off])?;
    result.ok_or_else(|| layer.unfit(0, "a type that holds all classes"))
}

pub(super) fn pad(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let words = [
        ("constant", Around::Constant),
        ("edge", Around::Edge),
        ("reflect", Around::Reflect),
        ("symmetric", Around::Symmetric),
    ];
    let around = layer.word("pad_mode", &words, Around::Constant)?;
    let dims = layer.known_dims(0, "known dims, around which elements are put")?;
    let (front, back) = (numbers(layer, 1)?, numbers(layer, 2)?);
    if front.len() != dims.len() || back.len() != dims.len() {
        return Err(layer.bad_value(1, "a number for each dim"));
    }
    let paddings: Vec<Padding> =
        (0..dims.len()).map(|axis| Padding { axis, front: front[axis], back: back[axis] }).collect();
    let (source, data_type) = (layer.inputs[0], layer.data_type(0));
    let fill = match layer.inputs.get(3) {
        Some(_) if layer.data_type(3) != data_type => {
            let needed = format!("{data_type}, the type of the data");
            return Err(Fault::of_type(layer.port(3), layer.data_type(3), needed));
        }
        Some(&fill) => layer.steps.in_shape(fill, &[])?,
        None => layer.steps.number(data_type, 0.0)?,
    };
    layer.steps.padded(source, around, &paddings, fill)
}

/// Blocks of channels become neighbours along the dims behind them.
pub(super) fn depth_to_space(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (source, block, depth_first) = blocks(layer)?;
    let result = layer.steps.depth_to_space(source, block, depth_first)?;
    result.ok_or_else(|| layer.unfit(0, "channels that the blocks divide"))
}

/// Neighbours along the dims behind the channels become channels.
pub(super) fn space_to_depth(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    let (source, block, depth_first) = blocks(layer)?;
    let result = layer.steps.space_to_depth(source, block, depth_first)?;
    result.ok_or_else(|| layer.unfit(0, "dims that the block divides"))
}

fn blocks(layer: &Context<'_, '_>) -> Result<(TensorId, i64, bool), Fault> {
    layer.known_dims(0, "known dims, which are divided into blocks")?;
    let depth_first = layer.word("mode", &[("blocks_first", false), ("depth_first", true)], false)?;
    Ok((layer.inputs[0], layer.int("block_size", Some(1))?, depth_first))
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
        if layer.steps.builder.value(source).is_none() {
            let needed = "a constant, or axes that are the last ones of the shape";
            return Err(Fault::NotConstant { port: layer.port(0), needed: needed.into() });
        }
        source = in_shape(layer, &view)?;
    }
    compose::enlarged(layer.steps.builder, &layer.layer.name, source, &result)
}

/// The first input in another shape of as many elements.
fn in_shape(layer: &mut Context<'_, '_>, dims: &[i64]) -> Result<TensorId, Fault> {
    let source = layer.inputs[0];
    compose::in_shape(layer.steps.builder, &layer.layer.name, source, dims)
}

/// A constant list of whole numbers; one of rank 0 is a list of one.
pub(super) fn numbers(layer: &Context<'_, '_>, input: usize) -> Result<Vec<i64>, Fault> {
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
