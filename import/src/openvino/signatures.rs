//! What a model is given and gives, as its text describes it.

use std::collections::BTreeSet;

use super::constants::{ConstantPlace, Weights};
use super::edges::{Source, sources};
use super::ports::{
    extents, names_of_input, names_of_output, names_of_parameter, names_of_result, names_of_variable,
    of_kind, of_layer, of_variable, one_output, variable_id,
};
use super::types::{self, Element};
use super::xml::{Net, PortText};
use crate::dims::UNKNOWN_DIM;
use crate::error::Error;
use crate::signature::{Dim, Signature};
use crate::weights::integers;

/// The inputs and the outputs of a model, as its text describes them.
pub(super) fn signatures(net: &Net, weights: Weights<'_>) -> Result<[Vec<Signature>; 2], Error> {
    let signature = |names, element: Option<Element>, dims: Option<Vec<i64>>| {
        let dim = |dim: i64| if dim == UNKNOWN_DIM { Dim::Open } else { Dim::Known(dim) };
        let dims = dims.map(|dims| dims.into_iter().map(dim).collect());
        Signature { names, data_type: element.and_then(Result::ok), dims }
    };
    let of_port = |names, port: &PortText| signature(names, port.element, Some(port.dims.clone()));
    if let ([layer], true) = (&*net.layers, net.is_lone) {
        let inputs = layer.inputs.iter().enumerate();
        let outputs = layer.outputs.iter().enumerate();
        return Ok([
            inputs.map(|(index, port)| of_port(names_of_input(layer, index), port)).collect(),
            outputs.map(|(index, port)| of_port(names_of_output(layer, index), port)).collect(),
        ]);
    }
    let mut inputs = Vec::new();
    for (_, layer) in of_kind(net, "Parameter") {
        let fault = |fault| of_layer(layer, fault);
        let port = one_output(layer).map_err(fault)?;
        let element = layer.attr("element_type").map(types::named).or(port.element);
        let extents = extents(layer, port).map_err(fault)?;
        let dims = extents.map(|extents| extents.iter().map(|extent| extent.dim()).collect());
        inputs.push(signature(names_of_parameter(layer), element, dims));
    }
    let sources = sources(net)?;
    let first_values = FirstValues { net, sources: &sources, weights };
    let mut variables = BTreeSet::new();
    for (index, layer) in of_kind(net, "ReadValue") {
        let fault = |fault| of_layer(layer, fault);
        let id = variable_id(layer).map_err(fault)?;
        if variables.insert(id) {
            let (element, extents) =
                one_output(layer).and_then(|port| of_variable(layer, port)).map_err(fault)?;
            let dims = extents.map(|extents| extents.iter().map(|extent| extent.dim()).collect());
            let [names, _] = names_of_variable(id);
            let mut variable = signature(names, element, dims);
            first_values.name_dims(index, &mut variable, &mut inputs);
            inputs.push(variable);
        }
    }
    let outputs = of_kind(net, "Result").map(|(index, layer)| {
        let producer = sources[index].first().and_then(|source| *source);
        let producer = producer.map(|(from, port)| (&net.layers[from], port));
        // A port without dims may be of any rank.
        let port = producer.map(|(from, port)| &from.outputs[port]);
        let dims = port.map(|port| port.dims.clone()).filter(|dims| !dims.is_empty());
        signature(names_of_result(layer, producer), port.and_then(|port| port.element), dims)
    });
    let mut outputs: Vec<Signature> = outputs.collect();
    for (index, layer) in of_kind(net, "Assign") {
        let [_, names] = names_of_variable(variable_id(layer).map_err(|fault| of_layer(layer, fault))?);
        let port = sources[index].first().and_then(|source| *source);
        let port = port.map(|(from, port)| &net.layers[from].outputs[port]);
        let dims = port.map(|port| port.dims.clone()).filter(|dims| !dims.is_empty());
        outputs.push(signature(names, port.and_then(|port| port.element), dims));
    }
    Ok([inputs, outputs])
}

/// The values that variables have at first.
struct FirstValues<'n> {
    net: &'n Net,
    sources: &'n [Vec<Option<Source>>],
    weights: Weights<'n>,
}

impl FirstValues<'_> {
    /// Gives the open dims of a variable, and those of the inputs that its first value takes them from, one
    /// name each: so many sequences as an input has are in the variable as well.
    fn name_dims(&self, index: usize, variable: &mut Signature, inputs: &mut [Signature]) {
        let Some(dims) = &mut variable.dims else { return };
        let Some(pieces) = self.source(index, 0).and_then(|first| self.pieces(first)) else { return };
        for (dim, piece) in dims.iter_mut().zip(&pieces) {
            let Some((parameter, axis)) = self.dim_of(*piece).filter(|_| *dim == Dim::Open) else { continue };
            let from = inputs.iter_mut().find(|input| input.names.contains(&parameter));
            let from = from.and_then(|input| input.dims.as_mut()?.get_mut(axis));
            let Some(from) = from else { continue };
            if *from == Dim::Open {
                *from = Dim::Named(format!("{parameter}.{axis}"));
            }
            dim.clone_from(from);
        }
    }

    fn source(&self, index: usize, input: usize) -> Option<usize> {
        self.sources[index].get(input).copied().flatten().map(|(layer, _)| layer)
    }

    fn kind(&self, index: usize) -> &str {
        &self.net.layers[index].kind
    }

    /// The layers that make the dims of a value which is broadcast to them, one for each dim.
    fn pieces(&self, value: usize) -> Option<Vec<usize>> {
        let shape = self.source(value, 1).filter(|_| self.kind(value) == "Broadcast")?;
        let count = self.sources[shape].len();
        let pieces = (0..count).map(|input| self.source(shape, input)).collect::<Option<Vec<usize>>>()?;
        (self.kind(shape) == "Concat").then_some(pieces)
    }

    /// The input whose dim a layer gives, and the axis.
    fn dim_of(&self, piece: usize) -> Option<(String, usize)> {
        let gather = self.behind_casts(piece)?;
        let shape = self.behind_casts(self.source(gather, 0).filter(|_| self.kind(gather) == "Gather")?)?;
        let parameter = self.source(shape, 0).filter(|_| self.kind(shape) == "ShapeOf")?;
        let layer = &self.net.layers[parameter];
        let place = ConstantPlace::of(&self.net.layers[self.source(gather, 1)?]).ok()?;
        let axis = integers(&self.weights.constant(&place).ok()?).filter(|axes| axes.len() == 1)?[0];
        let axis = usize::try_from(axis).ok()?;
        (layer.kind == "Parameter").then(|| (layer.name.clone(), axis))
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
