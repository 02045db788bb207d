//! Layers that look places up, put elements at places, or give places of elements in order of size.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::context::Context;
use super::shapes::{axis_at, axis_of};
use crate::compose::is_integer;
use crate::error::Fault;
use crate::weights::integers;

use DataType as D;
use OpKind as K;

/// Refuses indices that are no integers.
fn check_indices(layer: &Context<'_, '_>) -> Result<(), Fault> {
    match layer.data_type(1) {
        data_type if is_integer(data_type) => Ok(()),
        data_type => Err(Fault::of_type(layer.port(1), data_type, "a type of integers")),
    }
}

/// Slices along an axis at the places that indices name.
pub(super) fn gather(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let (x, indices, axis) = (layer.inputs[0], layer.inputs[1], axis_at(layer, 2)?);
    let batch = batch_dims(layer, 1)?;
    layer.steps.gathered(x, axis, indices, batch)
}

/// The number of first dims that data and indices share; a negative one counts from the rank of an input.
fn batch_dims(layer: &Context<'_, '_>, of: usize) -> Result<usize, Fault> {
    let rank = layer.rank(of)? as i64;
    let given = layer.int("batch_dims", Some(0))?;
    let batch = if given < 0 { given.saturating_add(rank) } else { given };
    let batch = usize::try_from(batch).ok().filter(|&batch| batch as i64 <= rank);
    batch.ok_or_else(|| Fault::of_attribute("batch_dims", format!("a number of dims up to {rank}")))
}

/// For each index the element at that place along an axis.
pub(super) fn gather_elements(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let axis = axis_of(layer, layer.int("axis", None)?)? as i64;
    let operands = [layer.inputs[0], layer.inputs[1]];
    layer.steps.looked_up(K::GatherElements, &[(Attr::Axis, axis.into())], &operands)
}

/// Slices at the places that tuples of indices name. The first version made one dim of all that are shared.
pub(super) fn gather_nd(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let batch = batch_dims(layer, 1)?;
    if batch > 1 && layer.opset == Some(5) {
        return Err(Fault::of_attribute("batch_dims", "0, 1"));
    }
    let (x, tuples) = (layer.inputs[0], layer.inputs[1]);
    layer.steps.gathered_nd(x, tuples, batch)
}

/// Updates at the places that tuples of indices name.
pub(super) fn scatter_nd(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let attrs = [(Attr::Reduction, reduction(layer)?.into())];
    let operands = [layer.inputs[0], layer.inputs[1], layer.inputs[2]];
    layer.steps.looked_up(K::ScatterND, &attrs, &operands)
}

/// Updates at the places along an axis that indices name.
pub(super) fn scatter_elements(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let reduction = reduction(layer)?;
    if reduction != "none" && !layer.truth("use_init_val", true)? {
        return Err(Fault::of_attribute("use_init_val", "true"));
    }
    let attrs = [(Attr::Axis, (axis_at(layer, 3)? as i64).into()), (Attr::Reduction, reduction.into())];
    let operands = [layer.inputs[0], layer.inputs[1], layer.inputs[2]];
    layer.steps.looked_up(K::ScatterElements, &attrs, &operands)
}

fn reduction(layer: &Context<'_, '_>) -> Result<&'static str, Fault> {
    let words = [("none", "none"), ("sum", "add"), ("prod", "mul"), ("min", "min"), ("max", "max")];
    layer.word("reduction", &words, "none")
}

/// Slices put at places along an axis: those of a scatter along the first dim, to which the axis is moved.
pub(super) fn scatter_slices(layer: &mut Context<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(layer)?;
    let (rank, axis) = (layer.rank(0)?, axis_at(layer, 3)?);
    let own = layer.known_dims(1, "known dims, beside those of the data")?;
    let [x, indices, updates] = [layer.inputs[0], layer.inputs[1], layer.inputs[2]];
    let steps = &mut layer.steps;
    // The dims from the axis on, as many as asked for, in front of those before it.
    let in_front = |rank: usize, count: usize| -> Vec<i64> {
        let (moved, before) = (axis..axis + count, 0..axis);
        moved.chain(before).chain(axis + count..rank).map(|dim| dim as i64).collect()
    };
    let declared = steps.declared.take();
    let tuples = steps.in_shape(indices, &[&own[..], &[1]].concat())?;
    let result = if axis == 0 {
        steps.looked_up(K::ScatterND, &[], &[x, tuples, updates])?
    } else {
        let table = steps.transposed(x, &in_front(rank, 1))?;
        let updates = steps.transposed(updates, &in_front(rank - 1 + own.len(), own.len()))?;
        let moved = steps.looked_up(K::ScatterND, &[], &[table, tuples, updates])?;
        let back = (1..=axis).chain([0]).chain(axis + 1..rank).map(|dim| dim as i64);
        steps.transposed(moved, &back.collect::<Vec<_>>())?
    };
    steps.declared = declared;
    Ok(result)
}

/// The largest or smallest elements along an axis and their places, in the order of size or of place.
pub(super) fn top_k(layer: &mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let dims = layer.known_dims(0, "known dims, along one of which is searched")?;
    let axis = axis_of(layer, layer.int("axis", None)?)?;
    let count = match integers(layer.constant(1, "a constant, which becomes a dim")?).as_deref() {
        Some(&[count]) if (0..=dims[axis]).contains(&count) => count,
        _ => return Err(layer.bad_value(1, format!("a number up to {}", dims[axis]))),
    };
    let largest = layer.word("mode", &[("max", true), ("min", false)], true)?;
    let by_place = layer.word("sort", &[("value", false), ("index", true), ("none", false)], false)?;
    let to = layer.element("index_element_type")?.unwrap_or(D::S32);
    if !matches!(to, D::S32 | D::S64) {
        return Err(Fault::of_attribute("index_element_type", "i32, i64"));
    }
    let x = layer.inputs[0];
    let steps = &mut layer.steps;
    let [elements, places] = steps.top_k(x, (axis, count), largest, to)?;
    if !by_place || count < 2 {
        return Ok(vec![elements, places]);
    }
    let [places, _] = steps.top_k(places, (axis, count), false, to)?;
    let along = [(Attr::Axis, (axis as i64).into())];
    let elements = steps.looked_up(K::GatherElements, &along, &[x, places])?;
    Ok(vec![elements, places])
}
