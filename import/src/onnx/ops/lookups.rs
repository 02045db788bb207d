//! Nodes that look places up, put elements at places, or give places of elements in order of size.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::call::Call;
use crate::compose::is_integer;
use crate::error::Fault;

use DataType as D;
use OpKind as K;

/// Refuses indices that are no integers.
fn check_indices(node: &Call<'_, '_>) -> Result<(), Fault> {
    match is_integer(node.data_type(1)) {
        true => Ok(()),
        false => Err(node.bad_type(1, "a type of integers")),
    }
}

/// Slices along an axis at the places that indices name.
pub(super) fn gather(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(node)?;
    let axis = node.axis(0, node.rank(0)?)?;
    let (x, places) = (node.input(0), node.input(1));
    node.steps.gathered(x, axis, places, 0)
}

/// For each index the element at that place along an axis.
pub(super) fn gather_elements(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(node)?;
    let axis = node.axis(0, node.rank(0)?)? as i64;
    let operands = [node.input(0), node.input(1)];
    node.steps.looked_up(K::GatherElements, &[(Attr::Axis, axis.into())], &operands)
}

/// Slices at the places that tuples of indices name.
pub(super) fn gather_nd(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    check_indices(node)?;
    let batch = usize::try_from(node.int("batch_dims", 0));
    let batch = batch.map_err(|_| Fault::of_attribute("batch_dims", "a number that is not negative"))?;
    let (x, tuples) = (node.input(0), node.input(1));
    node.steps.gathered_nd(x, tuples, batch)
}

/// Updates at the places along an axis that indices name.
pub(super) fn scatter_elements(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    let axis = node.axis(0, node.rank(0)?)? as i64;
    scattered(node, K::ScatterElements, Some(axis))
}

/// Updates at the places that tuples of indices name.
pub(super) fn scatter_nd(node: &mut Call<'_, '_>) -> Result<TensorId, Fault> {
    scattered(node, K::ScatterND, None)
}

fn scattered(node: &mut Call<'_, '_>, kind: OpKind, axis: Option<i64>) -> Result<TensorId, Fault> {
    check_indices(node)?;
    node.one_type(0, 2)?;
    let words = ["none", "add", "mul", "min", "max"].map(|word| (word, word));
    let mut attrs = vec![(Attr::Reduction, node.word("reduction", &words, "none")?.into())];
    attrs.extend(axis.map(|axis| (Attr::Axis, axis.into())));
    let operands = [node.input(0), node.input(1), node.input(2)];
    node.steps.looked_up(kind, &attrs, &operands)
}

/// The largest or smallest elements along an axis, and their places; their number is an input.
pub(super) fn top_k(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let count = node.numbers(1)?;
    let &[count] = &count[..] else { return Err(node.bad_value(1, "one number")) };
    first(node, count)
}

/// The same; their number is an attribute.
pub(super) fn top_k_of_attribute(node: &mut Call<'_, '_>) -> Result<Vec<TensorId>, Fault> {
    let count = node.attribute("k").map(|attribute| attribute.int);
    first(node, count.ok_or(Fault::MissingAttribute { attribute: "k" })?)
}

fn first(node: &mut Call<'_, '_>, count: i64) -> Result<Vec<TensorId>, Fault> {
    let dims = node.known_dims(0, "known dims, along one of which is searched")?;
    let axis = node.axis(-1, dims.len())?;
    if !(0..=dims[axis]).contains(&count) {
        return Err(node.unfit(0, format!("{count} elements along axis {axis}")));
    }
    // Elements that need not be sorted may be.
    let (x, largest) = (node.input(0), node.flag("largest", true));
    Ok(node.steps.top_k(x, (axis, count), largest, D::S64)?.into())
}

/// The place of the largest or smallest element along an axis.
pub(super) fn place_of(node: &mut Call<'_, '_>, kind: OpKind) -> Result<TensorId, Fault> {
    let axis = node.axis(0, node.rank(0)?)?;
    let how = [node.flag("keepdims", true), node.flag("select_last_index", false)];
    let x = node.input(0);
    node.steps.place_of(kind, x, axis, how, D::S64)
}
