//! The inputs and outputs of a model, as its text describes them.

use std::collections::BTreeMap;

use super::edges::Source;
use super::ports::{
    extents, names_of_input, names_of_output, names_of_parameter, names_of_result, of_kind, of_layer,
    one_output,
};
use super::types::{self, Element};
use super::variables::{FirstDim, Variable};
use super::xml::{Net, PortText};
use crate::dims::UNKNOWN_DIM;
use crate::error::Error;
use crate::signature::{Dim, Signature, named_once};

/// The inputs and the outputs of a model, as its text describes them.
pub(super) fn signatures(
    net: &Net,
    sources: &[Vec<Option<Source>>],
    variables: &[Variable],
) -> Result<[Vec<Signature>; 2], Error> {
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
    let (mut inputs, mut places) = (Vec::new(), BTreeMap::new());
    for (index, layer) in of_kind(net, "Parameter") {
        places.insert(index, inputs.len());
        let fault = |fault| of_layer(layer, fault);
        let port = one_output(layer).map_err(fault)?;
        let element = layer.attr("element_type").map(types::named).or(port.element);
        let extents = extents(layer, port).map_err(fault)?;
        let dims = extents.map(|extents| extents.iter().map(|extent| extent.dim()).collect());
        inputs.push(signature(names_of_parameter(layer), element, dims));
    }
    for variable in variables.iter().filter(|variable| !variable.stays) {
        let dims = variable.extents.as_ref();
        let dims = dims.map(|extents| extents.iter().map(|extent| extent.dim()).collect());
        let [names, _] = &variable.names;
        let mut described = signature(names.clone(), variable.element, dims);
        name_dims(&variable.first_dims, &mut described, &mut inputs, &places);
        inputs.push(described);
    }
    let outputs = of_kind(net, "Result").map(|(index, layer)| {
        let producer = sources[index].first().and_then(|source| *source);
        let producer = producer.map(|(from, port)| (&net.layers[from], port));
        // A port without dims may be of any rank.
        let port = producer.map(|(from, port)| &from.outputs[port]);
        let dims = port.map(|port| port.dims.clone()).filter(|dims| !dims.is_empty());
        signature(names_of_result(layer, producer), port.and_then(|port| port.element), dims)
    });
    let mut outputs = named_once(outputs);
    for variable in variables.iter().filter(|variable| !variable.stays) {
        let port = variable.written.map(|(from, port)| &net.layers[from].outputs[port]);
        let Some(port) = port else { continue };
        let [_, names] = &variable.names;
        let dims = Some(port.dims.clone()).filter(|dims| !dims.is_empty());
        outputs.push(signature(names.clone(), port.element, dims));
    }
    Ok([inputs, outputs])
}

/// Gives the open dims of a variable, and those of the inputs that its first value takes them from, one name
/// each: so many sequences as an input has are in the variable as well. `places` are those of the inputs by
/// their layers.
fn name_dims(
    first_dims: &[FirstDim],
    described: &mut Signature,
    inputs: &mut [Signature],
    places: &BTreeMap<usize, usize>,
) {
    let Some(dims) = &mut described.dims else { return };
    for (dim, first) in dims.iter_mut().zip(first_dims) {
        let &FirstDim::Of { parameter, axis } = first else { continue };
        let Signature { names, dims: of_input, .. } = &mut inputs[places[&parameter]];
        let from = of_input.as_mut().and_then(|dims| dims.get_mut(axis));
        let Some(from) = from.filter(|_| *dim == Dim::Open) else { continue };
        if *from == Dim::Open {
            *from = Dim::Named(format!("{}.{axis}", names[0]));
        }
        dim.clone_from(from);
    }
}
