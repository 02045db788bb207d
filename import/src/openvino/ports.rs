//! Names, types and extents of what a model is given and gives.

use std::collections::BTreeSet;

use sterna::Direction;

use super::layers;
use super::xml::{Layer, Net, PortText};
use crate::dims::UNKNOWN_DIM;
use crate::error::{Error, Fault, LayerRef, PortRef};

/// The names of an input of a lone layer.
pub(super) fn names_of_input(layer: &Layer, index: usize) -> Vec<String> {
    let row = layers::row_of(layer).ok();
    let named = row.and_then(|row| row.inputs.get(index)).map(|input| input.name.to_owned());
    let port = &layer.inputs[index];
    named.into_iter().chain([port.id.to_string()]).chain(port.names.iter().cloned()).collect()
}

/// The names of an output of a lone layer.
pub(super) fn names_of_output(layer: &Layer, index: usize) -> Vec<String> {
    let own = if layer.outputs.len() == 1 { "dst".into() } else { format!("dst_{index}") };
    let port = &layer.outputs[index];
    [own, port.id.to_string()].into_iter().chain(port.names.iter().cloned()).collect()
}

/// The names of an input of a model.
pub(super) fn names_of_parameter(layer: &Layer) -> Vec<String> {
    let of_ports = layer.outputs.iter().flat_map(|port| &port.names);
    let others = of_ports.filter(|name| **name != layer.name).cloned();
    [layer.name.clone()].into_iter().chain(others).collect()
}

/// The names of an output of a model, which a layer makes at one of its outputs.
pub(super) fn names_of_result(layer: &Layer, producer: Option<(&Layer, usize)>) -> Vec<String> {
    let mut names = layer.output_names.clone();
    if let Some((producer, port)) = producer {
        names.extend(producer.outputs[port].names.iter().cloned());
        names.push(match producer.outputs.len() {
            1 => producer.name.clone(),
            _ => format!("{}.{port}", producer.name),
        });
    }
    names.push(layer.name.clone());
    let mut seen = BTreeSet::new();
    names.retain(|name| !name.is_empty() && seen.insert(name.clone()));
    names
}

/// The layers of a type, with their places.
pub(super) fn of_kind<'n>(net: &'n Net, kind: &'static str) -> impl Iterator<Item = (usize, &'n Layer)> {
    net.layers.iter().enumerate().filter(move |(_, layer)| layer.kind == kind)
}

/// The extents of an input of a model; `None` if the rank is unknown.
pub(super) fn extents(layer: &Layer, port: &PortText) -> Result<Option<Vec<Extent>>, Fault> {
    match layer.attr("shape") {
        Some(text) => pattern(text),
        None => Ok(Some(port.dims.iter().map(|&dim| Extent::of(dim)).collect())),
    }
}

/// The possible values of a dim of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) least: i64,
    pub(super) most: i64,
    /// It stands in the file as one number.
    pub(super) fixed: bool,
}

impl Extent {
    /// A dim, unknown or not. One that the file fixes may be given anew, as OpenVINO allows it.
    pub(super) fn of(dim: i64) -> Self {
        match dim {
            UNKNOWN_DIM => Self { least: 0, most: i64::MAX, fixed: false },
            dim => Self { least: dim, most: dim, fixed: true },
        }
    }

    pub(super) fn is_fixed(self) -> bool {
        self.fixed
    }

    pub(super) fn dim(self) -> i64 {
        if self.least == self.most { self.least } else { UNKNOWN_DIM }
    }

    pub(super) fn takes(self, dim: i64) -> bool {
        self.fixed || (self.least..=self.most).contains(&dim)
    }
}

/// A shape as attributes write it: `1,?,2..8`, with `...` for one of unknown rank, which is `None`.
pub(super) fn pattern(text: &str) -> Result<Option<Vec<Extent>>, Fault> {
    let text = text.trim();
    let fault = || Fault::of_attribute("shape", "dims, such as 1,?,2..8");
    match text {
        "..." => return Ok(None),
        "" => return Ok(Some(Vec::new())),
        _ => {}
    }
    let number = |text: &str, empty: i64| match text.trim() {
        "" => Some(empty),
        text => text.parse::<i64>().ok().filter(|&dim| dim >= 0),
    };
    let extent = |text: &str| {
        let text = text.trim();
        if text == "?" || text == "-1" {
            return Some(Extent::of(UNKNOWN_DIM));
        }
        match text.split_once("..") {
            Some((least, most)) => {
                let (least, most) = (number(least, 0)?, number(most, i64::MAX)?);
                (least <= most).then_some(Extent { least, most, fixed: false })
            }
            None => text.parse().ok().filter(|&dim| dim >= 0).map(Extent::of),
        }
    };
    let dims: Option<Vec<Extent>> = text.split(',').map(extent).collect();
    dims.filter(|dims| dims.len() <= sterna::MAX_RANK).map(Some).ok_or_else(fault)
}

/// Refuses attributes of the element `data` other than these.
pub(super) fn only(layer: &Layer, known: &[&str]) -> Result<(), Fault> {
    match layer.data.iter().find(|(name, _)| !known.contains(&&**name)) {
        Some((attribute, _)) => Err(Fault::UnknownAttribute { attribute: attribute.clone() }),
        None => Ok(()),
    }
}

pub(super) fn one_output(layer: &Layer) -> Result<&PortText, Fault> {
    match &*layer.outputs {
        [port] => Ok(port),
        ports => {
            let (direction, given) = (Direction::Output, ports.len());
            Err(Fault::PortCount { direction, given, needed: "1".into() })
        }
    }
}

pub(super) fn of_layer(layer: &Layer, fault: Fault) -> Error {
    Error::Layer { layer: layer_ref(layer), fault: Box::new(fault) }
}

pub(super) fn layer_ref(layer: &Layer) -> LayerRef {
    LayerRef { name: layer.name.clone(), id: layer.id, kind: layer.kind.clone() }
}

/// An input of a layer, for messages.
pub(super) fn input_ref(layer: &Layer, index: usize) -> PortRef {
    let row = layers::row_of(layer).ok();
    let name = row.and_then(|row| row.inputs.get(index)).map_or("", |input| input.name);
    PortRef { direction: Direction::Input, id: layer.inputs[index].id, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_dims_and_extents() {
        let dims = |text| pattern(text).unwrap().map(|p| p.iter().map(|e| e.dim()).collect::<Vec<_>>());
        assert_eq!(dims("2, 3"), Some(vec![2, 3]));
        assert_eq!(dims(""), Some(vec![]));
        assert_eq!(dims("..."), None);
        assert_eq!(dims("?,-1,1..5,..4,2..,3..3"), Some([[UNKNOWN_DIM; 5].as_slice(), &[3]].concat()));
        let long = vec!["1"; 13].join(",");
        let wrong: Vec<_> = ["a", "1,,2", "-2", "5..1", "1;2", "1...5", &*long]
            .into_iter()
            .filter(|text| pattern(text).is_ok())
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
