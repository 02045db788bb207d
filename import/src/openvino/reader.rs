//! Layers of OpenVINO become ops.

use std::collections::{BTreeMap, BTreeSet};

use sterna::{DataType, Dims, Direction, TensorId};

use super::layers::{self, Class, Trusted};
use super::types::{self, Element};
use super::xml::{Layer, Net, PortText};
use crate::builder::kept::{KeptNodes, NodeGiven};
use crate::builder::{Builder, Imported};
use crate::constant::Constant;
use crate::dims::UNKNOWN_DIM;
use crate::error::{Error, Fault, LayerRef, PortRef};
use crate::limits::Options;
use crate::mapping::Stored;
use crate::names::Shown;
use crate::run_order::run_order;
use crate::signature::{Dim, Signature};
use crate::skipped::{LayerAttribute, SkippedLayer};
use crate::weights;

/// The bytes of the constants of a model.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weights<'a> {
    /// Bytes that constants copy.
    Bytes(&'a [u8]),
    /// Bytes that they share.
    Stored(&'a Stored),
}

impl Weights<'_> {
    fn constant(self, data_type: DataType, dims: &[i64], place: (u64, u64)) -> Result<Constant, Fault> {
        match self {
            Self::Stored(stored) => stored.constant(data_type, dims, place),
            Self::Bytes(bytes) => {
                let (available, (offset, size)) = (bytes.len() as u64, place);
                let end = offset.checked_add(size).filter(|&end| end <= available);
                let end = end.ok_or(Fault::Weights { offset, size, available })?;
                // Both are at most the length.
                let part = &bytes[offset as usize..end as usize];
                let mut own = weights::room(part.len())?;
                own.extend_from_slice(part);
                Ok(weights::of_little_endian(data_type, dims, own)?)
            }
        }
    }
}

/// The graph of a model under some options, of which only the shapes differ from those for which layers are
/// kept.
pub(super) fn imported(
    net: &Net,
    weights: Weights<'_>,
    options: &Options,
    kept: &mut KeptNodes,
) -> Result<Imported, Error> {
    let builder = Builder::new(&options.limits);
    let mut reader = NetReader { weights, options, builder, kept, used: BTreeSet::new() };
    match &*net.layers {
        [layer] if net.is_lone => reader.lone(layer)?,
        _ => reader.model(net)?,
    }
    reader.check_used()?;
    let NetReader { builder, kept, .. } = reader;
    Ok(builder.finish(&mut kept.ops)?.into_imported())
}

/// A model that is being read.
struct NetReader<'a> {
    weights: Weights<'a>,
    options: &'a Options,
    builder: Builder<'a>,
    /// The layers as they were mapped for the last set of shapes.
    kept: &'a mut KeptNodes,
    /// The names of the options that have been found.
    used: BTreeSet<&'a str>,
}

/// A layer and one of its outputs.
type Source = (usize, usize);

impl<'a> NetReader<'a> {
    fn model(&mut self, net: &Net) -> Result<(), Error> {
        let sources = sources(net)?;
        let order = order(net, &sources)?;
        // Inputs keep the order of the file, and are there whether or not anything hangs on them.
        let mut results: BTreeMap<Source, TensorId> = BTreeMap::new();
        for (index, layer) in net.layers.iter().enumerate().filter(|(_, layer)| layer.kind == "Parameter") {
            let tensor = self.parameter(layer).map_err(|fault| of_layer(layer, fault))?;
            results.insert((index, 0), tensor);
        }
        for index in order {
            let layer = &net.layers[index];
            let input = |(port, source): (usize, &Option<Source>)| match source {
                Some(source) => results.get(source).copied().ok_or_else(|| {
                    let (from, output) = (&net.layers[source.0], source.1);
                    let needed = format!("an op that gives output {output}");
                    of_layer(from, Fault::Unsupported { needed })
                }),
                None => Err(of_layer(layer, Fault::Unconnected { port: input_ref(layer, port) })),
            };
            let inputs: Vec<TensorId> =
                sources[index].iter().enumerate().map(input).collect::<Result<_, _>>()?;
            let outputs = match &*layer.kind {
                "Parameter" => continue,
                "Result" => {
                    let producer = sources[index].first().and_then(|source| *source);
                    self.result(layer, producer.map(|(from, port)| (&net.layers[from], port)), &inputs)
                        .map_err(|fault| of_layer(layer, fault))?;
                    continue;
                }
                "Const" => self.constant(layer).map(|tensor| vec![tensor]),
                _ => self.map(layer, &inputs),
            };
            let outputs = self.or_wildcard(layer, &inputs, outputs)?;
            outputs.iter().for_each(|output| self.builder.name_constant(*output, &layer.name));
            results.extend(outputs.into_iter().enumerate().map(|(port, tensor)| ((index, port), tensor)));
        }
        Ok(())
    }

    /// A text that is one layer: its ports are the inputs and outputs of a model.
    fn lone(&mut self, layer: &Layer) -> Result<(), Error> {
        let row = layers::row_of(layer).ok();
        let named = |index: usize| row.and_then(|row| row.inputs.get(index));
        let class = |index: usize| named(index).map_or(Class::Value, |input| input.class);
        let declared = |port: &PortText| port.element.and_then(Result::ok);

        let mut given = Vec::new();
        for (index, port) in layer.inputs.iter().enumerate() {
            if let Some(Err(refused)) = port.element {
                return Err(of_layer(layer, refused.at(input_ref(layer, index))));
            }
            given.push(declared(port).or(self.given_type(&names_of_input(layer, index))));
        }
        let shared =
            (0..given.len()).filter(|&index| class(index) == Class::Value).find_map(|index| given[index]);
        // A choice has the type of its branches, which only its result may say.
        let of_result = || layer.outputs.first().filter(|_| layer.kind == "Select").and_then(declared);
        let shared = shared.or_else(of_result).unwrap_or(DataType::F32);

        let mut inputs = Vec::new();
        for (index, port) in layer.inputs.iter().enumerate() {
            let default = if class(index) == Class::Truth { DataType::Boolean } else { shared };
            let names = names_of_input(layer, index);
            let pattern: Vec<Extent> = port.dims.iter().map(|&dim| Extent::of(dim)).collect();
            let reference = input_ref(layer, index);
            let tensor = self
                .shaped(reference, &names, Some(&pattern))
                .and_then(|dims| self.input(reference, names, given[index].unwrap_or(default), dims));
            inputs.push(tensor.map_err(|fault| of_layer(layer, fault))?);
        }
        let outputs = self.map(layer, &inputs);
        let outputs = self.or_wildcard(layer, &inputs, outputs)?;
        for (index, tensor) in outputs.into_iter().enumerate().take(layer.outputs.len()) {
            self.builder.output(names_of_output(layer, index), tensor);
        }
        Ok(())
    }

    /// The results of a layer, which adds what it added for the last set of shapes if it is given the same.
    fn map(&mut self, layer: &Layer, inputs: &[TensorId]) -> Result<Vec<TensorId>, Fault> {
        let trusted = match (self.options.shapes.is_empty(), self.options.values.is_empty()) {
            (false, _) => Trusted::Nothing,
            (true, false) => Trusted::Dims,
            (true, true) => Trusted::Shapes,
        };
        let inputs_there = inputs.iter().copied().map(Some).collect();
        let given = NodeGiven { variant: trusted as i64, declared: None, inputs: inputs_there };
        let address = std::ptr::from_ref(layer).addr();
        if let Some(outputs) = self.kept.add_again(address, &given, &mut self.builder) {
            return Ok(outputs);
        }
        let mark = self.builder.mark();
        let outputs = layers::map(layer, &mut self.builder, inputs.to_vec(), trusted)?;
        self.kept.keep(address, given, mark, &outputs, &self.builder);
        Ok(outputs)
    }

    /// The results of a layer; those of an op `Wildcard` if it cannot be mapped and the options allow that.
    fn or_wildcard(
        &mut self,
        layer: &Layer,
        inputs: &[TensorId],
        outputs: Result<Vec<TensorId>, Fault>,
    ) -> Result<Vec<TensorId>, Error> {
        let error = match outputs {
            Ok(outputs) => return Ok(outputs),
            Err(fault) => of_layer(layer, fault),
        };
        if !self.options.partial {
            return Err(error);
        }
        let described = layer.outputs.iter().map(|port| {
            let data_type = port.element.and_then(Result::ok).unwrap_or(DataType::Undef);
            // A port without dims may be of any rank.
            let dims = Some(Dims::from(&*port.dims)).filter(|dims| !dims.is_empty());
            // Beside inputs of other shapes, only their number holds.
            let holds = self.options.shapes.is_empty();
            let dims = dims.map(|dims| match holds {
                true => dims,
                false => dims.iter().map(|_| UNKNOWN_DIM).collect(),
            });
            (data_type, dims)
        });
        let described: Vec<(DataType, Option<Dims>)> = described.collect();
        let skipped = SkippedLayer {
            name: layer.name.clone(),
            domain: layer.version.clone().unwrap_or_default(),
            kind: layer.kind.clone(),
            opset: None,
            attributes: layer.data.iter().map(|(name, text)| (name.clone(), as_text(text))).collect(),
            inputs: (0..inputs.len()).map(Some).collect(),
        };
        Ok(self.builder.wildcard((error, skipped), inputs, &described)?)
    }

    /// An input of the model.
    fn parameter(&mut self, layer: &Layer) -> Result<TensorId, Fault> {
        only(layer, &["shape", "element_type"])?;
        let port = one_output(layer)?;
        let names = names_of_parameter(layer);
        let element = layer.attr("element_type").map(types::named).or(port.element);
        let element = element.ok_or(Fault::MissingAttribute { attribute: "element_type" })?;
        let reference = PortRef { direction: Direction::Output, id: port.id, name: "" };
        let data_type = match element.or_else(|refused| self.given_type(&names).ok_or(refused)) {
            Ok(data_type) => data_type,
            Err(_) if self.options.partial => DataType::Undef,
            Err(refused) => return Err(refused.at(reference)),
        };
        let pattern = extents(layer, port)?;
        let dims = self.shaped(reference, &names, pattern.as_deref())?;
        self.input(reference, names, data_type, dims)
    }

    /// An input, or the constant whose value the options give it.
    fn input(
        &mut self,
        port: PortRef,
        names: Vec<String>,
        data_type: DataType,
        dims: Option<Dims>,
    ) -> Result<TensorId, Fault> {
        let options = self.options;
        let Some((name, value)) = of_any(&options.values, &names) else {
            return Ok(self.builder.input(names, data_type, dims)?);
        };
        self.used.insert(name);
        if value.data_type() != data_type {
            return Err(Fault::of_type(port, value.data_type(), data_type.to_string()));
        }
        let is_beside = |dims: &Dims| {
            let pairs = || dims.iter().zip(value.dims());
            dims.len() == value.dims().len() && pairs().all(|(dim, own)| dim == own || *dim == UNKNOWN_DIM)
        };
        if !dims.as_ref().is_none_or(is_beside) {
            let needed = "the dims that the file or the options give the input".into();
            return Err(Fault::Shape { port, given: value.dims().into(), needed });
        }
        self.builder.charge_stored(value.bytes().len())?;
        self.builder.input(names, data_type, Some(value.dims().into()))?;
        Ok(self.builder.constant(value.clone().into())?)
    }

    /// The type that the options give an input.
    fn given_type(&mut self, names: &[String]) -> Option<DataType> {
        let options = self.options;
        let (name, data_type) = of_any(&options.types, names)?;
        self.used.insert(name);
        Some(*data_type)
    }

    /// The dims of an input: those that the options give it, which must suit the file, or those of the file.
    fn shaped(
        &mut self,
        port: PortRef,
        names: &[String],
        pattern: Option<&[Extent]>,
    ) -> Result<Option<Dims>, Fault> {
        let options = self.options;
        let Some((name, dims)) = of_any(&options.shapes, names) else {
            return Ok(pattern.map(|pattern| pattern.iter().map(|extent| extent.dim()).collect()));
        };
        self.used.insert(name);
        let given = Dims::from(&**dims);
        match pattern {
            Some(pattern) if pattern.len() != dims.len() => {
                let needed = format!("{} dims, as many as in the file", pattern.len());
                return Err(Fault::Shape { port, given, needed });
            }
            Some(pattern) => {
                let beyond = pattern.iter().zip(dims).position(|(extent, dim)| !extent.takes(*dim));
                if let Some(axis) = beyond {
                    let needed = format!("dim {axis} from {} to {}", pattern[axis].least, pattern[axis].most);
                    return Err(Fault::Shape { port, given, needed });
                }
            }
            None => {}
        }
        Ok(Some(given))
    }

    /// A constant out of the weights.
    fn constant(&mut self, layer: &Layer) -> Result<TensorId, Fault> {
        only(layer, &["element_type", "shape", "offset", "size"])?;
        let port = one_output(layer)?;
        let text = |name: &'static str| layer.attr(name).ok_or(Fault::MissingAttribute { attribute: name });
        let number = |name: &'static str| {
            text(name)?.trim().parse::<u64>().map_err(|_| Fault::of_attribute(name, "a whole number"))
        };
        let at = PortRef { direction: Direction::Output, id: port.id, name: "" };
        let data_type = types::named(text("element_type")?).map_err(|refused| refused.at(at))?;
        let extents =
            pattern(text("shape")?)?.filter(|extents| extents.iter().all(|extent| extent.is_fixed()));
        let extents = extents.ok_or_else(|| Fault::of_attribute("shape", "known dims"))?;
        let dims: Vec<i64> = extents.iter().map(|extent| extent.dim()).collect();
        let (offset, size) = (number("offset")?, number("size")?);
        let needed = weights::byte_count(data_type, &dims)?.unwrap_or(0) as u64;
        // OpenVINO stores a byte for a constant without elements.
        if size != needed && (size, needed) != (1, 0) {
            return Err(Fault::Size { given: size, needed });
        }
        self.builder.charge_stored(usize::try_from(needed).unwrap_or(usize::MAX))?;
        let value = self.weights.constant(data_type, &dims, (offset, needed))?;
        Ok(self.builder.constant(value)?)
    }

    /// An output of the model.
    fn result(
        &mut self,
        layer: &Layer,
        producer: Option<(&Layer, usize)>,
        inputs: &[TensorId],
    ) -> Result<(), Fault> {
        let [tensor] = inputs else {
            let (direction, given) = (Direction::Input, inputs.len());
            return Err(Fault::PortCount { direction, given, needed: "1".into() });
        };
        self.builder.output(names_of_result(layer, producer), *tensor);
        Ok(())
    }

    /// Checks that the inputs in the options exist.
    fn check_used(&self) -> Result<(), Error> {
        if let Some(name) = self.options.dims.keys().next() {
            return Err(Error::Name { what: "dim", name: Shown(name).to_string(), known: Vec::new() });
        }
        self.builder.check_used(self.options, |name| self.used.contains(name))
    }
}

fn as_text(text: &str) -> LayerAttribute {
    LayerAttribute::Text(text.as_bytes().to_vec())
}

/// The names of an input of a lone layer.
fn names_of_input(layer: &Layer, index: usize) -> Vec<String> {
    let row = layers::row_of(layer).ok();
    let named = row.and_then(|row| row.inputs.get(index)).map(|input| input.name.to_owned());
    let port = &layer.inputs[index];
    named.into_iter().chain([port.id.to_string()]).chain(port.names.iter().cloned()).collect()
}

/// The names of an output of a lone layer.
fn names_of_output(layer: &Layer, index: usize) -> Vec<String> {
    let own = if layer.outputs.len() == 1 { "dst".into() } else { format!("dst_{index}") };
    let port = &layer.outputs[index];
    [own, port.id.to_string()].into_iter().chain(port.names.iter().cloned()).collect()
}

/// The names of an input of a model.
fn names_of_parameter(layer: &Layer) -> Vec<String> {
    let of_ports = layer.outputs.iter().flat_map(|port| &port.names);
    let others = of_ports.filter(|name| **name != layer.name).cloned();
    [layer.name.clone()].into_iter().chain(others).collect()
}

/// The names of an output of a model, which a layer makes at one of its outputs.
fn names_of_result(layer: &Layer, producer: Option<(&Layer, usize)>) -> Vec<String> {
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

/// The inputs and the outputs of a model, as its text describes them.
pub(super) fn signatures(net: &Net) -> Result<[Vec<Signature>; 2], Error> {
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
    let of_kind = |kind: &'static str| net.layers.iter().enumerate().filter(move |(_, l)| l.kind == kind);
    let mut inputs = Vec::new();
    for (_, layer) in of_kind("Parameter") {
        let fault = |fault| of_layer(layer, fault);
        let port = one_output(layer).map_err(fault)?;
        let element = layer.attr("element_type").map(types::named).or(port.element);
        let extents = extents(layer, port).map_err(fault)?;
        let dims = extents.map(|extents| extents.iter().map(|extent| extent.dim()).collect());
        inputs.push(signature(names_of_parameter(layer), element, dims));
    }
    let sources = sources(net)?;
    let outputs = of_kind("Result").map(|(index, layer)| {
        let producer = sources[index].first().and_then(|source| *source);
        let producer = producer.map(|(from, port)| (&net.layers[from], port));
        // A port without dims may be of any rank.
        let port = producer.map(|(from, port)| &from.outputs[port]);
        let dims = port.map(|port| port.dims.clone()).filter(|dims| !dims.is_empty());
        signature(names_of_result(layer, producer), port.and_then(|port| port.element), dims)
    });
    Ok([inputs, outputs.collect()])
}

/// The extents of an input of a model; `None` if the rank is unknown.
fn extents(layer: &Layer, port: &PortText) -> Result<Option<Vec<Extent>>, Fault> {
    match layer.attr("shape") {
        Some(text) => pattern(text),
        None => Ok(Some(port.dims.iter().map(|&dim| Extent::of(dim)).collect())),
    }
}

/// The entry of any of several names; of several entries, the first one.
fn of_any<'a, T>(given: &'a BTreeMap<String, T>, names: &[String]) -> Option<(&'a String, &'a T)> {
    names.iter().filter_map(|name| given.get_key_value(name)).min_by_key(|(name, _)| *name)
}

/// The possible values of a dim of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    least: i64,
    most: i64,
    /// It stands in the file as one number.
    fixed: bool,
}

impl Extent {
    /// A dim, unknown or not. One that the file fixes may be given anew, as OpenVINO allows it.
    fn of(dim: i64) -> Self {
        match dim {
            UNKNOWN_DIM => Self { least: 0, most: i64::MAX, fixed: false },
            dim => Self { least: dim, most: dim, fixed: true },
        }
    }

    fn is_fixed(self) -> bool {
        self.fixed
    }

    fn dim(self) -> i64 {
        if self.least == self.most { self.least } else { UNKNOWN_DIM }
    }

    fn takes(self, dim: i64) -> bool {
        self.fixed || (self.least..=self.most).contains(&dim)
    }
}

/// A shape as attributes write it: `1,?,2..8`, with `...` for one of unknown rank, which is `None`.
fn pattern(text: &str) -> Result<Option<Vec<Extent>>, Fault> {
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
fn only(layer: &Layer, known: &[&str]) -> Result<(), Fault> {
    match layer.data.iter().find(|(name, _)| !known.contains(&&**name)) {
        Some((attribute, _)) => Err(Fault::UnknownAttribute { attribute: attribute.clone() }),
        None => Ok(()),
    }
}

fn one_output(layer: &Layer) -> Result<&PortText, Fault> {
    match &*layer.outputs {
        [port] => Ok(port),
        ports => {
            let (direction, given) = (Direction::Output, ports.len());
            Err(Fault::PortCount { direction, given, needed: "1".into() })
        }
    }
}

fn of_layer(layer: &Layer, fault: Fault) -> Error {
    Error::Layer { layer: layer_ref(layer), fault: Box::new(fault) }
}

fn layer_ref(layer: &Layer) -> LayerRef {
    LayerRef { name: layer.name.clone(), id: layer.id, kind: layer.kind.clone() }
}

/// An input of a layer, for messages.
fn input_ref(layer: &Layer, index: usize) -> PortRef {
    let row = layers::row_of(layer).ok();
    let name = row.and_then(|row| row.inputs.get(index)).map_or("", |input| input.name);
    PortRef { direction: Direction::Input, id: layer.inputs[index].id, name }
}

/// For each input of each layer, the output to which its edge leads back.
fn sources(net: &Net) -> Result<Vec<Vec<Option<Source>>>, Error> {
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

/// The layers on which a `Result` hangs, each behind those that it uses; in the order of the file otherwise.
fn order(net: &Net, sources: &[Vec<Option<Source>>]) -> Result<Vec<usize>, Error> {
    let mut wanted = vec![false; net.layers.len()];
    let mut open: Vec<usize> = (0..net.layers.len()).filter(|&i| net.layers[i].kind == "Result").collect();
    if open.is_empty() {
        return Err(Error::Document {
            what: "the model has no layer of type `Result`".into(),
            needed: "one for each output",
        });
    }
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut wanted[index], true) {
            open.extend(sources[index].iter().flatten().map(|(from, _)| from));
        }
    }
    let needs_of = |index: usize| -> Option<BTreeSet<usize>> {
        wanted[index].then(|| sources[index].iter().flatten().map(|(from, _)| *from).collect())
    };
    let needs: Vec<Option<BTreeSet<usize>>> = (0..net.layers.len()).map(needs_of).collect();
    let order = run_order(&needs);
    let ordered: BTreeSet<usize> = order.iter().copied().collect();
    match (0..net.layers.len()).find(|index| wanted[*index] && !ordered.contains(index)) {
        Some(index) => Err(Error::Cycle { layer: layer_ref(&net.layers[index]) }),
        None => Ok(order),
    }
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
