//! The edges between layers, and the order in which layers are mapped.

use std::collections::{BTreeMap, BTreeSet};

use super::ports::{layer_ref, of_kind};
use super::xml::{Net, PortText};
use crate::error::Error;
use crate::run_order::run_order;

/// A layer and one of its outputs.
pub(super) type Source = (usize, usize);

/// For each input of each layer, the output to which its edge leads back.
pub(super) fn sources(net: &Net) -> Result<Vec<Vec<Option<Source>>>, Error> {
    let mut layers: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, layer) in net.layers.iter().enumerate() {
        if layers.insert(layer.id, index).is_some() {
            return Err(Error::Document {
                what: format!("two layers have the id {}", layer.id),
                needed: "an id of its own for each layer",
            });
        }
    }
    let mut sources: Vec<Vec<Option<Source>>> =
        net.layers.iter().map(|layer| vec![None; layer.inputs.len()]).collect();
    // The place of each port, by its id.
    let place = |ports: &[PortText]| -> BTreeMap<u64, usize> {
        ports.iter().enumerate().rev().map(|(place, port)| (port.id, place)).collect()
    };
    let inputs: Vec<BTreeMap<u64, usize>> = net.layers.iter().map(|layer| place(&layer.inputs)).collect();
    let outputs: Vec<BTreeMap<u64, usize>> = net.layers.iter().map(|layer| place(&layer.outputs)).collect();
    for edge in &net.edges {
        let fault = |what| Error::Edge { from: edge.from, to: edge.to, what };
        let find = |[layer, port]: [u64; 2], ports: &[BTreeMap<u64, usize>]| -> Option<Source> {
            let layer = *layers.get(&layer)?;
            Some((layer, *ports[layer].get(&port)?))
        };
        let from = find(edge.from, &outputs).ok_or_else(|| fault("no output is there"))?;
        let (layer, port) = find(edge.to, &inputs).ok_or_else(|| fault("no input is there"))?;
        if sources[layer][port].replace(from).is_some() {
            return Err(fault("another edge leads there"));
        }
    }
    Ok(sources)
}

/// The layers on which a `Result` or an `Assign` hangs, each behind those that it uses; in the order of the
/// file otherwise.
pub(super) fn order(
    net: &Net,
    sources: &[Vec<Option<Source>>],
    is_input: &dyn Fn(usize) -> bool,
) -> Result<Vec<usize>, Error> {
    let mut wanted = vec![false; net.layers.len()];
    let of_kind = |kind| of_kind(net, kind).map(|(index, _)| index);
    let mut open: Vec<usize> = of_kind("Result").chain(of_kind("Assign")).collect();
    if open.is_empty() {
        return Err(Error::Document {
            what: "the model has no layer of type `Result`".into(),
            needed: "one for each output",
        });
    }
    // A variable may be an input, whatever its value at first.
    let used = |index: usize| match is_input(index) {
        true => [].iter(),
        false => sources[index].iter(),
    };
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut wanted[index], true) {
            open.extend(used(index).flatten().map(|(from, _)| from));
        }
    }
    let needs_of = |index: usize| -> Option<BTreeSet<usize>> {
        wanted[index].then(|| used(index).flatten().map(|(from, _)| *from).collect())
    };
    let needs: Vec<Option<BTreeSet<usize>>> = (0..net.layers.len()).map(needs_of).collect();
    let order = run_order(&needs);
    let ordered: BTreeSet<usize> = order.iter().copied().collect();
    match (0..net.layers.len()).find(|index| wanted[*index] && !ordered.contains(index)) {
        Some(index) => Err(Error::Cycle { layer: layer_ref(&net.layers[index]) }),
        None => Ok(order),
    }
}
