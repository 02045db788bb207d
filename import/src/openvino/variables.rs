//! The variables of a model, in which a run leaves what the next one reads.

use std::collections::BTreeMap;

use super::constants::{ConstantPlace, Weights};
use super::edges::Source;
use super::ports::{Extent, of_kind, of_layer, one_output, only, pattern};
use super::types::{self, Element};
use super::xml::{Layer, Net, PortText};
use crate::error::{Error, Fault};
use crate::weights::integers;

/// A variable.
#[derive(Debug)]
pub(super) struct Variable {
    /// The names of the input and of the output that it is.
    pub(super) names: [Vec<String>; 2],
    pub(super) element: Option<Element>,
    /// `None` if the rank is unknown.
    pub(super) extents: Option<Vec<Extent>>,
    /// The dims of its first value, as far as that is broadcast to dims that are given one by one.
    pub(super) first_dims: Vec<FirstDim>,
    /// The output that is written.
    pub(super) written: Option<Source>,
    /// It is written as it was read, so that it has its first value in every run.
    pub(super) stays: bool,
}

/// A dim of the first value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstDim {
    /// That of an input.
    Of {
        parameter: usize,
        axis: usize,
    },
    Length(i64),
    Other,
}

/// The names of the input and of the output that a variable is. Of an identity such as
/// `past_key_values.0.keypresent.0.key`, as exporters of decoders write it, they are the halves. One whose
/// first value has elements does not grow from run to run, which its names tell.
fn names(id: &str, first_dims: &[FirstDim]) -> [Vec<String>; 2] {
    let is_settled = |dim: &FirstDim| matches!(dim, FirstDim::Of { .. } | FirstDim::Length(1..));
    let is_fixed = !first_dims.is_empty() && first_dims.iter().all(is_settled);
    let halves = id.find("present").filter(|&at| at > 0 && id.starts_with("past"));
    let (past, present) = match halves.map(|at| id.split_at(at)) {
        _ if is_fixed => (format!("state_in.{id}"), format!("state_out.{id}")),
        Some((past, present)) => (past.to_owned(), present.to_owned()),
        None => (format!("past.{id}"), format!("present.{id}")),
    };
    [vec![past, id.to_owned()], vec![present]]
}

/// The identity of the variable that a layer reads or writes.
fn variable_id(layer: &Layer) -> Result<&str, Fault> {
    layer.attr("variable_id").ok_or(Fault::MissingAttribute { attribute: "variable_id" })
}

/// The variables of a model, each once, in the order in which the file reads them; and for each layer the one
/// that it reads or writes.
pub(super) fn variables(
    net: &Net,
    sources: &[Vec<Option<Source>>],
    weights: Weights<'_>,
) -> Result<(Vec<Variable>, Vec<Option<usize>>), Error> {
    let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, layer) in of_kind(net, "Assign") {
        let id = only(layer, &["variable_id"]).and_then(|()| variable_id(layer));
        writers.insert(id.map_err(|fault| of_layer(layer, fault))?, index);
    }
    let mut all: Vec<Variable> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_layers = vec![None; net.layers.len()];
    for (index, layer) in of_kind(net, "ReadValue") {
        let fault = |fault| of_layer(layer, fault);
        only(layer, &["variable_id", "variable_type", "variable_shape"]).map_err(fault)?;
        let id = variable_id(layer).map_err(fault)?;
        let place = *places.entry(id).or_insert(all.len());
        of_layers[index] = Some(place);
        if place < all.len() {
            continue;
        }
        let described = one_output(layer).and_then(|port| described(layer, port));
        let (element, extents) = described.map_err(fault)?;
        let source = |index: usize| sources[index].first().copied().flatten();
        let written = writers.get(id).and_then(|&writer| source(writer));
        let stays = source(index).is_some() && written == Some((index, 0));
        let first_dims = FirstValues { net, sources, weights }.dims(index);
        let names = names(id, &first_dims);
        all.push(Variable { names, element, extents, first_dims, written, stays });
    }
    for (id, writer) in writers {
        of_layers[writer] = places.get(id).copied();
    }
    Ok((all, of_layers))
}

/// The type and the extents of a variable; where its attributes do not tell them, its port does.
fn described(layer: &Layer, port: &PortText) -> Result<(Option<Element>, Option<Vec<Extent>>), Fault> {
    let named = layer.attr("variable_type").filter(|name| *name != "dynamic").map(types::named);
    let extents = match layer.attr("variable_shape").filter(|text| text.trim() != "...") {
        Some(text) => pattern(text)?,
        None => Some(port.dims.iter().map(|&dim| Extent::of(dim)).collect()),
    };
    Ok((named.or(port.element), extents))
}

/// The values that variables have at first.
struct FirstValues<'n> {
    net: &'n Net,
    sources: &'n [Vec<Option<Source>>],
    weights: Weights<'n>,
}

impl FirstValues<'_> {
    /// The dims of the first value of the variable that a layer reads.
    fn dims(&self, read: usize) -> Vec<FirstDim> {
        let value = self.source(read, 0).filter(|&value| self.kind(value) == "Broadcast");
        let shape = value.and_then(|value| self.source(value, 1));
        let Some(shape) = shape.filter(|&shape| self.kind(shape) == "Concat") else { return Vec::new() };
        let piece = |input: usize| {
            let piece = self.source(shape, input)?;
            self.of_input(piece).or_else(|| self.constant(piece).map(FirstDim::Length))
        };
        (0..self.sources[shape].len()).map(|input| piece(input).unwrap_or(FirstDim::Other)).collect()
    }

    fn source(&self, index: usize, input: usize) -> Option<usize> {
        self.sources[index].get(input).copied().flatten().map(|(layer, _)| layer)
    }

    fn kind(&self, index: usize) -> &str {
        &self.net.layers[index].kind
    }

    /// The number that a constant is.
    fn constant(&self, index: usize) -> Option<i64> {
        let layer = Some(&self.net.layers[index]).filter(|layer| layer.kind == "Const")?;
        let value = self.weights.constant(&ConstantPlace::of(layer).ok()?).ok()?;
        integers(&value).filter(|numbers| numbers.len() == 1).map(|numbers| numbers[0])
    }

    /// The dim of an input that a layer gives.
    fn of_input(&self, piece: usize) -> Option<FirstDim> {
        let gather = self.behind_casts(piece).filter(|&gather| self.kind(gather) == "Gather")?;
        let shape = self.behind_casts(self.source(gather, 0)?)?;
        let parameter = self.source(shape, 0).filter(|_| self.kind(shape) == "ShapeOf")?;
        let axis = usize::try_from(self.constant(self.source(gather, 1)?)?).ok()?;
        (self.kind(parameter) == "Parameter").then_some(FirstDim::Of { parameter, axis })
    }

    /// The first layer behind those that change the type or add dims of 1.
    fn behind_casts(&self, mut index: usize) -> Option<usize> {
        for _ in 0..self.net.layers.len() {
            if !matches!(self.kind(index), "Convert" | "Unsqueeze" | "Squeeze" | "Reshape") {
                return Some(index);
            }
            index = self.source(index, 0)?;
        }
        None
    }
}
