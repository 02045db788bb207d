//! The form of a row of the table of layers.

use sterna::{OpKind, TensorId};

use super::context::{AXIS, Class, Context, Input};
use crate::error::Fault;
use crate::steps::{Formula, Reduction};

use Class::{Truth, Value as Plain};

/// The mapping of a layer type.
pub(in crate::openvino) struct LayerRow {
    /// The type, as files and the specification write it.
    pub(in crate::openvino) names: &'static [&'static str],
    /// The inputs, in order; the last ones may be missing if there are more than `least`.
    pub(in crate::openvino) inputs: &'static [Input],
    /// The least number of inputs.
    pub(in crate::openvino) least: usize,
    /// The last input stands for any number of them.
    pub(in crate::openvino) variadic: bool,
    /// How many of the last outputs nothing gives; a layer that needs one is refused.
    pub(super) left_out: usize,
    /// The attributes of the element `data`.
    pub(super) attributes: &'static [&'static str],
    pub(super) map: LayerMap,
}

/// The way from a layer to ops.
pub(super) enum LayerMap {
    /// An op of one input and its type, without attributes.
    Unary(OpKind),
    /// As `Unary` on floating point; on integers nothing changes.
    Rounding(OpKind),
    /// A predicate of a floating-point number.
    Predicate(OpKind),
    /// An op of two inputs of one type, which is the type of the result.
    Binary(OpKind),
    /// An op of two inputs of one type with a truth value.
    Comparison(OpKind),
    /// An op of truth values.
    Logic(OpKind),
    /// One number for the elements along some axes.
    Reduction(Reduction),
    /// Several ops on floating point.
    Formula(Formula),
    /// Several ops on any number.
    OfNumber(Formula),
    /// Anything else with one output.
    By(fn(&mut Context<'_, '_>) -> Result<TensorId, Fault>),
    /// Anything else.
    Several(fn(&mut Context<'_, '_>) -> Result<Vec<TensorId>, Fault>),
}

pub(super) const fn input(name: &'static str, class: Class) -> Input {
    Input { name, class }
}

pub(super) const DATA: &[Input] = &[input("data", Plain)];
pub(super) const DATA_AXES: &[Input] = &[input("data", Plain), input("axes", Plain)];
pub(super) const PAIR: &[Input] = &[input("a", Plain), input("b", Plain)];
const TRUTHS: &[Input] = &[input("a", Truth), input("b", Truth)];
pub(super) const BROADCAST: &[&str] = &["auto_broadcast", "axis", AXIS];

pub(super) const fn row(
    names: &'static [&'static str],
    inputs: &'static [Input],
    attributes: &'static [&'static str],
    map: LayerMap,
) -> LayerRow {
    LayerRow { names, inputs, least: inputs.len(), variadic: false, left_out: 0, attributes, map }
}

pub(super) const fn unary(names: &'static [&'static str], map: LayerMap) -> LayerRow {
    row(names, DATA, &[], map)
}

pub(super) const fn binary(names: &'static [&'static str], kind: OpKind) -> LayerRow {
    row(names, PAIR, BROADCAST, LayerMap::Binary(kind))
}

pub(super) const fn comparison(names: &'static [&'static str], kind: OpKind) -> LayerRow {
    row(names, PAIR, BROADCAST, LayerMap::Comparison(kind))
}

pub(super) const fn logic(names: &'static [&'static str], kind: OpKind) -> LayerRow {
    row(names, TRUTHS, BROADCAST, LayerMap::Logic(kind))
}

pub(super) const fn reduction(names: &'static [&'static str], reduction: Reduction) -> LayerRow {
    row(names, DATA_AXES, &["keep_dims"], LayerMap::Reduction(reduction))
}
