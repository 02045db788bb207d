//! Layers of OpenVINO become ops.

use std::collections::{BTreeMap, BTreeSet};

use sterna::{DataType, Dims, Direction, TensorId};

use super::constants::{ConstantPlace, Weights};
use super::edges::{Source, order, sources};
use super::layers::{self, Class, Trusted};
use super::ports::{
    Extent, extents, input_ref, names_of_input, names_of_output, names_of_parameter, names_of_result,
    of_kind, of_layer, one_output, only,
};
use super::types;
use super::variables::Variable;
use super::wiring::{NamedDims, Wiring};
use super::xml::{Layer, Net, PortText};
use crate::builder::kept::{KeptNodes, NodeGiven};
use crate::builder::reading::{self, KeptReading, NodeReader, Replayed};
use crate::builder::walk::{KeptWalk, WalkRecord, WalkStep};
use crate::builder::{Builder, Imported};
use crate::dims::UNKNOWN_DIM;
use crate::error::{Error, Fault, PortRef};
use crate::limits::Options;
use crate::named_dims::named_lengths;
use crate::skipped::{LayerAttribute, SkippedLayer};

/// The graph of a model under some options, of which only the shapes differ from those of a reading that is
/// kept; with what the next one takes over, of a walk if that is wanted.
pub(super) fn imported<'a>(
    (net, wiring): (&'a Net, &'a Wiring),
    weights: Weights<'a>,
    options: &'a Options,
    kept: KeptReading,
    keeps_walk: bool,
) -> Result<(Imported, KeptReading), Error> {
    let KeptReading { mut nodes, walk } = kept;
    if let Some((walk, before)) = walk {
        let mut reader = NetReader::new(wiring, weights, options, nodes)?;
        if let Some(replayed) = reader.replayed(net, wiring, walk) {
            return replayed.finished(reader.builder, reader.kept, before);
        }
        nodes = reader.kept;
    }
    let mut reader = NetReader::new(wiring, weights, options, nodes)?;
    match &*net.layers {
        [layer] if net.is_lone => reader.lone(layer)?,
        _ => reader.model(net, wiring, keeps_walk)?,
    }
    reader.check_used()?;
    reading::finished(reader.builder, reader.kept, reader.ended)
}

/// A model that is being read.
struct NetReader<'a> {
    weights: Weights<'a>,
    options: &'a Options,
    builder: Builder<'a>,
    /// The layers as they were mapped for the last set of shapes.
    kept: KeptNodes,
    /// The names of the options that have been found.
    used: BTreeSet<&'a str>,
    /// The inputs whose open dims have names.
    named: &'a [NamedDims],
    /// The lengths of these dims, where the options give them.
    lengths: BTreeMap<&'a str, i64>,
    /// The walk through the layers, as long as each is mapped on its own.
    walk: Option<WalkRecord>,
    /// The walk when all layers have been mapped.
    ended: Option<KeptWalk>,
}

/// The layers of a model that are mapped on their own.
struct NetLayers<'r, 'a> {
    reader: &'r mut NetReader<'a>,
    net: &'r Net,
}

impl<'a> NodeReader<'a> for NetLayers<'_, 'a> {
    fn builder(&mut self) -> &mut Builder<'a> {
        &mut self.reader.builder
    }

    /// The layer itself looks at those.
    fn declared_dims_of(&self, _: usize) -> Option<Dims> {
        None
    }

    fn map_anew(&mut self, step: &WalkStep, _: Option<Dims>) -> Result<Vec<TensorId>, Fault> {
        self.reader.kept.mapped += 1;
        self.reader.alone(&self.net.layers[step.node], step.inputs.iter().flatten().copied().collect())
    }
}

impl<'a> NetReader<'a> {
    fn new(
        wiring: &'a Wiring,
        weights: Weights<'a>,
        options: &'a Options,
        kept: KeptNodes,
    ) -> Result<Self, Error> {
        let named = &*wiring.named_dims;
        let input = |input: &'a NamedDims| {
            let of_shape = of_any(&options.shapes, &input.names).map(|(_, dims)| &**dims);
            let given = of_shape.or_else(|| Some(of_any(&options.values, &input.names)?.1.dims()));
            (given, input.axes.iter().map(|(axis, name)| (*axis, &**name)))
        };
        let lengths = named_lengths(options, named.iter().map(input))?;
        let (builder, used) = (Builder::new(&options.limits), BTreeSet::new());
        Ok(Self { weights, options, builder, kept, used, named, lengths, walk: None, ended: None })
    }

    fn model(&mut self, net: &Net, wiring: &Wiring, keeps_walk: bool) -> Result<(), Error> {
        let mut results = self.inputs(net, wiring)?;
        self.walk = keeps_walk.then(|| WalkRecord::new(&self.builder));
        self.layers(net, &wiring.sources, &wiring.order, &mut results)?;
        for (index, layer) in wiring.order.iter().map(|&index| (index, &net.layers[index])) {
            let source = wiring.sources[index].first().copied().flatten();
            let tensor = source.and_then(|source| results.get(&source).copied());
            match &*layer.kind {
                "Assign" => {
                    if let (Some(at), Some(tensor)) = (wiring.of_layers[index], tensor) {
                        let [_, names] = &wiring.variables[at].names;
                        self.builder.output(names.clone(), tensor);
                    }
                }
                "Result" => {
                    let producer = source.map(|(from, port)| (&net.layers[from], port));
                    self.result(layer, producer, tensor).map_err(|fault| of_layer(layer, fault))?;
                }
                _ => {}
            }
        }
        let holds = self.shapes_hold();
        self.ended = self.walk.take().map(|walk| walk.end(&self.builder, holds));
        Ok(())
    }

    /// Adds what a walk has added; `None` if that is not all.
    fn replayed(&mut self, net: &Net, wiring: &Wiring, walk: KeptWalk) -> Option<Replayed> {
        if self.shapes_hold() != walk.holds {
            return None;
        }
        self.inputs(net, wiring).ok()?;
        self.check_used().ok()?;
        Replayed::walked(walk, &mut NetLayers { reader: self, net })
    }

    /// True if the shapes in the file hold, as inputs were given no other ones.
    fn shapes_hold(&self) -> bool {
        self.options.shapes.is_empty()
    }

    /// The inputs of the model and its variables, by the outputs of the layers that give them.
    fn inputs(&mut self, net: &Net, wiring: &Wiring) -> Result<BTreeMap<Source, TensorId>, Error> {
        // Inputs keep the order of the file, and are there whether or not anything hangs on them.
        let mut results: BTreeMap<Source, TensorId> = BTreeMap::new();
        for (index, layer) in of_kind(net, "Parameter") {
            let tensor = self.parameter(layer).map_err(|fault| of_layer(layer, fault))?;
            results.insert((index, 0), tensor);
        }
        let mut read: Vec<Option<TensorId>> = vec![None; wiring.variables.len()];
        for (index, layer) in of_kind(net, "ReadValue") {
            let Some(at) = wiring.of_layers[index] else { continue };
            let tensor = match read[at] {
                Some(tensor) => tensor,
                None => {
                    let tensor = self.variable(layer, &wiring.variables[at]);
                    tensor.map_err(|fault| of_layer(layer, fault))?
                }
            };
            read[at] = Some(tensor);
            results.insert((index, 0), tensor);
        }
        Ok(results)
    }

    /// The results of layers in an order, beside those that are there; ends of the model have none.
    fn layers(
        &mut self,
        net: &Net,
        sources: &[Vec<Option<Source>>],
        order: &[usize],
        results: &mut BTreeMap<Source, TensorId>,
    ) -> Result<(), Error> {
        for &index in order {
            let layer = &net.layers[index];
            let input = |(port, source): (usize, &Option<Source>)| match source {
                Some(source) => results.get(source).copied().ok_or_else(|| {
                    let (from, output) = (&net.layers[source.0], source.1);
                    let needed = format!("an op that gives output {output}");
                    of_layer(from, Fault::Unsupported { needed })
                }),
                None => Err(of_layer(layer, Fault::Unconnected { port: input_ref(layer, port) })),
            };
            if results.contains_key(&(index, 0)) {
                continue;
            }
            let inputs: Vec<TensorId> =
                sources[index].iter().enumerate().map(input).collect::<Result<_, _>>()?;
            let outputs = match &*layer.kind {
                "Assign" | "Result" => continue,
                "If" => {
                    self.walk = None;
                    self.branched(layer, &inputs)
                }
                "ReadValue" | "Const" => self.alone(layer, inputs.clone()),
                _ => self.map(layer, &inputs),
            };
            if outputs.is_err() {
                self.walk = None;
            }
            let outputs = self.or_wildcard(layer, &inputs, outputs)?;
            if let Some(walk) = &mut self.walk {
                walk.note(&self.builder, index, inputs.into_iter().map(Some).collect(), None, &outputs);
            }
            outputs.iter().for_each(|output| self.builder.name_constant(*output, &layer.name));
            results.extend(outputs.into_iter().enumerate().map(|(port, tensor)| ((index, port), tensor)));
        }
        Ok(())
    }

    /// The results of the branch that a condition chooses, which is known when the model is read.
    fn branched(&mut self, layer: &Layer, inputs: &[TensorId]) -> Result<Vec<TensorId>, Fault> {
        let &[cond, ..] = inputs else {
            let (direction, given) = (Direction::Input, inputs.len());
            return Err(Fault::PortCount { direction, given, needed: "1 or more".into() });
        };
        let needed = "a constant, which chooses a branch; give the model values or shapes".into();
        let known = self.builder.value(cond).and_then(|value| value.bytes().first().copied());
        let known = known.ok_or_else(|| Fault::NotConstant { port: input_ref(layer, 0), needed })?;
        let name = if known != 0 { "then_body" } else { "else_body" };
        let unfit = || Fault::Unsupported { needed: format!("`{name}` with ports of the layer") };
        let body = layer.bodies.iter().find(|body| body.name == name).ok_or_else(unfit)?;
        let inner_layers = body.net.layers.iter().enumerate().map(|(index, layer)| (layer.id, index));
        let within: BTreeMap<u64, usize> = inner_layers.collect();
        // Of ports that share an id, the first one counts.
        let ports = layer.inputs.iter().zip(inputs).rev().map(|(port, tensor)| (port.id, *tensor));
        let given: BTreeMap<u64, TensorId> = ports.collect();
        let mut results = BTreeMap::new();
        for [outer, inner] in &body.inputs {
            let (tensor, index) = given.get(outer).zip(within.get(inner)).ok_or_else(unfit)?;
            results.insert((*index, 0), *tensor);
        }
        let of_body = |error: Error| match error {
            Error::Layer { fault, .. } => *fault,
            Error::Limit { what, given, most } => Fault::Limit { what, given, most },
            _ => unfit(),
        };
        let sources = sources(&body.net).map_err(of_body)?;
        let is_input = |index| results.contains_key(&(index, 0));
        let order = order(&body.net, &sources, &is_input).map_err(of_body)?;
        self.layers(&body.net, &sources, &order, &mut results).map_err(of_body)?;
        let ends: BTreeMap<u64, u64> =
            body.outputs.iter().rev().map(|&[outer, inner]| (outer, inner)).collect();
        let output = |port: &PortText| {
            let source = sources[*within.get(ends.get(&port.id)?)?].first().copied().flatten()?;
            results.get(&source).copied()
        };
        layer.outputs.iter().map(|port| output(port).ok_or_else(unfit)).collect()
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
        let inputs_there = inputs.iter().copied().map(Some).collect();
        let given = NodeGiven { variant: self.trusted() as i64, declared: None, inputs: inputs_there };
        let address = std::ptr::from_ref(layer).addr();
        if let Some(outputs) = self.kept.add_again(address, &given, &mut self.builder) {
            return Ok(outputs);
        }
        let mark = self.builder.mark();
        let outputs = self.alone(layer, inputs.to_vec())?;
        self.kept.keep(address, given, mark, &outputs, &self.builder);
        Ok(outputs)
    }

    /// The results of a layer that has no layers within.
    fn alone(&mut self, layer: &Layer, inputs: Vec<TensorId>) -> Result<Vec<TensorId>, Fault> {
        let trusted = self.trusted();
        match &*layer.kind {
            // It has its first value in every run.
            "ReadValue" if !inputs.is_empty() => Ok(inputs),
            "Const" => self.constant(layer).map(|tensor| vec![tensor]),
            _ => layers::map(layer, &mut self.builder, inputs, trusted),
        }
    }

    /// The shapes in the file that hold.
    fn trusted(&self) -> Trusted {
        match (self.shapes_hold(), self.options.values.is_empty()) {
            (false, _) => Trusted::Nothing,
            (true, false) => Trusted::Dims,
            (true, true) => Trusted::Shapes,
        }
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
            let holds = self.shapes_hold();
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

    /// A variable, which is an input: the caller keeps what the last run has left for it. What the file
    /// computes for the first run is left out.
    fn variable(&mut self, layer: &Layer, variable: &Variable) -> Result<TensorId, Fault> {
        let reference = PortRef { direction: Direction::Output, id: one_output(layer)?.id, name: "" };
        let element = variable.element.ok_or(Fault::MissingAttribute { attribute: "variable_type" })?;
        let data_type = element.map_err(|refused| refused.at(reference))?;
        let [names, _] = &variable.names;
        let dims = self.shaped(reference, names, variable.extents.as_deref())?;
        self.input(reference, names.clone(), data_type, dims)
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
            return pattern.map(|pattern| self.named(port, names, pattern)).transpose();
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

    /// The dims of an input in the file, those that have names with the lengths that are known.
    fn named(&self, port: PortRef, names: &[String], pattern: &[Extent]) -> Result<Dims, Fault> {
        let mut dims: Dims = pattern.iter().map(|extent| extent.dim()).collect();
        let is_input = |input: &&NamedDims| input.names.first() == names.first();
        // A value has its own dims.
        let is_open = of_any(&self.options.values, names).is_none();
        let named = self.named.iter().find(is_input).filter(|_| is_open);
        for (axis, name) in named.into_iter().flat_map(|input| &input.axes) {
            let Some(&length) = self.lengths.get(&**name) else { continue };
            let Extent { least, most, .. } = pattern[*axis];
            if !pattern[*axis].takes(length) {
                let needed = format!("dim {axis} from {least} to {most}");
                return Err(Fault::Shape { port, given: dims, needed });
            }
            dims[*axis] = length;
        }
        Ok(dims)
    }

    /// A constant out of the weights.
    fn constant(&mut self, layer: &Layer) -> Result<TensorId, Fault> {
        let place = ConstantPlace::of(layer)?;
        self.builder.charge_stored(usize::try_from(place.size).unwrap_or(usize::MAX))?;
        let value = self.weights.constant(&place)?;
        Ok(self.builder.constant(value)?)
    }

    /// An output of the model.
    fn result(
        &mut self,
        layer: &Layer,
        producer: Option<(&Layer, usize)>,
        tensor: Option<TensorId>,
    ) -> Result<(), Fault> {
        let tensor = tensor.filter(|_| layer.inputs.len() == 1).ok_or_else(|| {
            let (direction, given) = (Direction::Input, layer.inputs.len());
            Fault::PortCount { direction, given, needed: "1".into() }
        })?;
        self.builder.output(names_of_result(layer, producer), tensor);
        Ok(())
    }

    /// Checks that the inputs in the options exist.
    fn check_used(&self) -> Result<(), Error> {
        self.builder.check_used(self.options, |name| self.used.contains(name))
    }
}

fn as_text(text: &str) -> LayerAttribute {
    LayerAttribute::Text(text.as_bytes().to_vec())
}

/// The entry of any of several names; of several entries, the first one.
fn of_any<'a, T>(given: &'a BTreeMap<String, T>, names: &[String]) -> Option<(&'a String, &'a T)> {
    names.iter().filter_map(|name| given.get_key_value(name)).min_by_key(|(name, _)| *name)
}
