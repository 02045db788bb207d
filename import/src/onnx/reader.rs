//! Nodes of ONNX become ops: in the graph of the model, and in what it calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sterna::reference::Value;
use sterna::{DataType, Dims, Direction, TensorId};

use super::element_files::ElementFiles;
use super::infer;
use super::ops::{self, Call, OpTable};
use super::order::{WantedNodes, unmade, wanted};
use super::proto::{Attribute, DimText, Function, GraphText, ModelText, NodeText, OperatorSet, ValueInfo};
use super::skipped;
use super::tensors;
use crate::builder::Builder;
use crate::builder::kept::{KeptNodes, NodeGiven};
use crate::builder::walk::{KeptWalk, WalkRecord};
use crate::dims::{UNKNOWN_DIM, is_known};
use crate::elements::RefusedType;
use crate::error::{Error, Fault, LayerRef, Limited, PortRef};
use crate::limits::{Limits, Options};
use crate::named_dims::named_lengths;
use crate::names::Shown;
use crate::skipped::SkippedLayer;
use crate::steps::Steps;

/// The opsets whose ops are known. What ops before opset 7 had beside those since are attributes, which are
/// refused.
const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// True for the names of the domain of ONNX itself.
fn is_standard(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

/// The domain of ops that are not settled yet.
const PREVIEW: &str = "ai.onnx.preview";

/// The domain of ops that ONNX Runtime has of its own.
const MICROSOFT: &str = "com.microsoft";

/// Calls of functions within functions.
pub(super) const DEEPEST_CALL: usize = 32;

/// The name by which a call finds a function: domain, name and overload.
pub(super) type Key<'a> = (&'a str, &'a str, &'a str);

pub(super) fn key(function: &Function) -> Key<'_> {
    (&function.domain, &function.name, &function.overload)
}

/// A model that is being read.
pub(super) struct ModelReader<'a> {
    pub(super) model: &'a ModelText,
    pub(super) files: &'a ElementFiles,
    pub(super) options: &'a Options,
    pub(super) builder: Builder<'a>,
    pub(super) functions: BTreeMap<Key<'a>, &'a Function>,
    /// The lengths of dims that have names, where the options give them.
    pub(super) lengths: BTreeMap<&'a str, i64>,
    /// The names of the options that have been found.
    pub(super) used: BTreeSet<&'a str>,
    /// The nodes that have been mapped, those of each call of a function anew.
    pub(super) calls: usize,
    /// The nodes as they were mapped for the last set of shapes.
    pub(super) kept: KeptNodes,
    /// The walk through the nodes of the graph, as long as each is mapped on its own.
    pub(super) walk: Option<WalkRecord>,
    /// The walk when all nodes have been mapped.
    pub(super) ended: Option<KeptWalk>,
}

/// The surroundings of nodes: the graph, or the call of a function.
pub(super) struct Scope<'a, 'b> {
    /// The tensors that have names, so far.
    pub(super) tensors: HashMap<&'a str, TensorId>,
    /// The inputs of the function that the call leaves out.
    pub(super) absent: BTreeSet<&'a str>,
    pub(super) opsets: &'a [OperatorSet],
    /// The attributes of the call.
    pub(super) attributes: &'b BTreeMap<&'a str, &'a Attribute>,
    /// The types and shapes of tensors that the file declares.
    pub(super) declared: HashMap<&'a str, &'a ValueInfo>,
    /// The dims that the file declares hold; else only their number does, as inputs were given other ones.
    pub(super) holds: bool,
    pub(super) depth: usize,
}

impl<'a> ModelReader<'a> {
    /// The type and dims of a tensor that the file declares.
    fn described(&self, name: &str, scope: &Scope<'a, '_>) -> (DataType, Option<Dims>) {
        let Some(info) = scope.declared.get(name) else { return (DataType::Undef, None) };
        let data_type = tensors::described(info).0.unwrap_or(DataType::Undef);
        (data_type, self.declared_dims(info, scope.holds))
    }

    /// The dims that the file declares, where they hold; else as many unknown ones.
    pub(super) fn declared_dims(&self, info: &ValueInfo, holds: bool) -> Option<Dims> {
        let dims = self.dims(info)?;
        Some(if holds { dims } else { dims.iter().map(|_| UNKNOWN_DIM).collect() })
    }

    /// The dims that the file gives a tensor, those that have names with the lengths that are known.
    fn dims(&self, info: &ValueInfo) -> Option<Dims> {
        let dim = |dim: &DimText| {
            let known = dim.value.filter(|&dim| dim != -1);
            known.or_else(|| self.lengths.get(named(dim)?).copied()).unwrap_or(UNKNOWN_DIM)
        };
        tensors::shape(info).map(|shape| shape.dims.iter().map(dim).collect())
    }

    /// Notes the lengths of dims that have names.
    pub(super) fn note_lengths(&mut self, graph: &'a GraphText) -> Result<(), Error> {
        let options = self.options;
        let input = |info: &'a ValueInfo| {
            let of_shape = options.shapes.get(&info.name).map(Vec::as_slice);
            let given = of_shape.or_else(|| options.values.get(&info.name).map(Value::dims));
            let dims = tensors::shape(info).map_or(&[][..], |shape| &*shape.dims);
            (given, dims.iter().enumerate().filter_map(|(axis, dim)| Some((axis, named(dim)?))))
        };
        self.lengths = named_lengths(options, graph.inputs.iter().map(input))?;
        Ok(())
    }

    /// True if the shapes that the options give inputs are among those that the file allows.
    pub(super) fn shapes_agree(&self, graph: &GraphText) -> bool {
        let agrees = |info: &ValueInfo| {
            let given = self.options.shapes.get(&info.name).map(Vec::as_slice);
            let given = given.or_else(|| self.options.values.get(&info.name).map(Value::dims));
            let (_, Some(declared)) = tensors::described(info) else { return given.is_none() };
            given.is_none_or(|given| {
                declared.iter().zip(given).all(|(own, given)| own.is_none_or(|own| own == *given))
            })
        };
        graph.inputs.iter().all(agrees)
    }

    pub(super) fn graph(
        &mut self,
        graph: &'a GraphText,
        wanted: &WantedNodes,
        keeps_walk: bool,
    ) -> Result<(), Error> {
        if !graph.sparse_initializers.is_empty() {
            return Err(Error::Document {
                what: "the graph has sparse constants".into(),
                needed: "dense constants",
            });
        }
        self.note_lengths(graph)?;
        let mut tensors = HashMap::new();
        for (index, info) in graph.inputs.iter().enumerate() {
            if self.is_constant(info, wanted) {
                continue;
            }
            let is_wanted = wanted.names.contains(&*info.name);
            let tensor =
                self.input(info, is_wanted).map_err(|fault| of(&info.name, index, "input", fault))?;
            if tensors.insert(&*info.name, tensor).is_some() {
                return Err(twice(&info.name));
            }
        }
        self.builder.check_used(self.options, |name| self.used.contains(name))?;
        let inputs: BTreeSet<&str> = graph.inputs.iter().map(|info| &*info.name).collect();
        for (index, text) in graph.initializers.iter().enumerate() {
            let given_anew =
                self.options.values.contains_key(&text.name) && tensors.contains_key(&*text.name);
            if given_anew || !wanted.names.contains(&*text.name) {
                continue;
            }
            let value = tensors::value(text, self.files, &mut self.builder);
            let tensor = value.and_then(|value| Ok(self.builder.constant(value)?));
            let tensor = tensor.map_err(|fault| of(&text.name, index, "initializer", fault))?;
            self.builder.name_constant(tensor, &text.name);
            if inputs.contains(&*text.name) {
                self.builder.is_default_of(tensor, &text.name);
            }
            if tensors.insert(&*text.name, tensor).is_some() {
                return Err(twice(&text.name));
            }
        }
        let declared = graph.described().map(|info| (&*info.name, info)).collect();
        let holds = self.shapes_agree(graph);
        let none = BTreeMap::new();
        let opsets = &self.model.opsets;
        let absent = BTreeSet::new();
        let mut scope = Scope { tensors, absent, opsets, attributes: &none, declared, holds, depth: 0 };
        self.walk = keeps_walk.then(|| WalkRecord::new(&self.builder));
        self.nodes(&graph.nodes, &wanted.nodes, &mut scope)?;
        for (index, info) in graph.outputs.iter().enumerate() {
            let tensor = scope.tensors.get(&*info.name);
            let tensor = *tensor.ok_or_else(|| of(&info.name, index, "output", unmade(&info.name, &[])))?;
            if let (Ok(declared), _) = tensors::described(info)
                && declared != self.builder.data_type(tensor)
                && self.builder.data_type(tensor) != DataType::Undef
            {
                let (declared, found) = (declared.to_string(), self.builder.data_type(tensor).to_string());
                let port = PortRef { direction: Direction::Output, id: index as u64, name: "" };
                return Err(of(&info.name, index, "output", Fault::Declared { port, declared, found }));
            }
            self.builder.output(vec![info.name.clone()], tensor);
        }
        self.ended = self.walk.take().map(|walk| walk.end(&self.builder, holds));
        Ok(())
    }

    /// True if an input of the graph is a constant: one that has a value which is not given anew.
    pub(super) fn is_constant(&self, info: &ValueInfo, wanted: &WantedNodes) -> bool {
        wanted.constants.contains(&info.name) && !self.options.values.contains_key(&info.name)
    }

    /// An input of the model, or the constant whose value the options give it.
    pub(super) fn input(&mut self, info: &'a ValueInfo, is_wanted: bool) -> Result<TensorId, Fault> {
        let options = self.options;
        let port = PortRef { direction: Direction::Output, id: 0, name: "" };
        let (data_type, declared) = tensors::described(info);
        let data_type = match (data_type, options.types.get_key_value(&info.name)) {
            (Ok(data_type), _) => data_type,
            (Err(RefusedType::UNKNOWN), Some((name, data_type))) => {
                self.used.insert(name);
                *data_type
            }
            // Nothing reads what no output hangs on.
            (Err(_), _) if options.partial || !is_wanted => DataType::Undef,
            (Err(refused), _) => return Err(tensors::no_type(refused)),
        };
        let unfit = |given: &[i64], needed: String| Fault::Shape { port, given: given.into(), needed };
        let beside = |given: &[i64]| match &declared {
            Some(dims) if dims.len() != given.len() => {
                Err(unfit(given, format!("{} dims, as many as in the file", dims.len())))
            }
            _ => Ok(()),
        };
        if let Some((name, value)) = options.values.get_key_value(&info.name) {
            self.used.insert(name);
            if value.data_type() != data_type {
                return Err(Fault::of_type(port, value.data_type(), data_type.to_string()));
            }
            beside(value.dims())?;
            self.builder.charge_stored(value.bytes().len())?;
            self.builder.input(vec![info.name.clone()], data_type, Some(value.dims().into()))?;
            return Ok(self.builder.constant(value.clone().into())?);
        }
        let dims = match options.shapes.get_key_value(&info.name) {
            Some((name, dims)) => {
                self.used.insert(name);
                beside(dims)?;
                Some(Dims::from(&**dims))
            }
            None => self.dims(info),
        };
        Ok(self.builder.input(vec![info.name.clone()], data_type, dims)?)
    }

    /// The nodes of a graph or function on which something hangs, in the order in which they run.
    pub(super) fn nodes(
        &mut self,
        nodes: &'a [NodeText],
        order: &[usize],
        scope: &mut Scope<'a, '_>,
    ) -> Result<(), Error> {
        for &index in order {
            let node = &nodes[index];
            self.calls += 1;
            Limits::check(Limited::Layers, self.calls, self.options.limits.layers)?;
            let fault = |fault| of_node(node, index, fault);
            let mut inputs: Vec<Option<TensorId>> = Vec::with_capacity(node.inputs.len());
            for name in &node.inputs {
                inputs.push(match &**name {
                    "" => None,
                    name if scope.absent.contains(name) => None,
                    name => {
                        let too_late = || fault(unmade(name, nodes));
                        Some(*scope.tensors.get(name).ok_or_else(too_late)?)
                    }
                });
            }
            let called = (&*node.domain, &*node.op_type, &*node.overload);
            let outputs = match self.functions.get(&called) {
                Some(&function) => {
                    self.walk = None;
                    self.call(node, index, function, &inputs, scope)?
                }
                None => {
                    let of_graphs = match called {
                        (PREVIEW, "FlexAttention", "") => Some(self.flex_attention(node, &inputs, scope)),
                        ("" | "ai.onnx", "If", "") => Some(self.branched(node, &inputs, scope)),
                        ("" | "ai.onnx", "Loop", "") => Some(self.unrolled(node, &inputs, scope)),
                        ("" | "ai.onnx", "Scan", "") => Some(self.scanned(node, &inputs, scope)),
                        _ => None,
                    };
                    let is_of_graphs = of_graphs.is_some();
                    let outputs = of_graphs.unwrap_or_else(|| self.mapped(node, &inputs, scope));
                    if is_of_graphs || outputs.is_err() {
                        self.walk = None;
                    }
                    self.or_wildcard(node, index, &inputs, outputs, scope)?
                }
            };
            if self.walk.is_some() {
                let declared = self.declared(node, scope);
                let walk = self.walk.as_mut();
                walk.into_iter().for_each(|walk| {
                    walk.note(&self.builder, index, inputs.clone(), declared.clone(), &outputs)
                });
            }
            for (name, tensor) in node.outputs.iter().zip(outputs) {
                self.builder.name_constant(tensor, name);
                if !name.is_empty() && scope.tensors.insert(name, tensor).is_some() {
                    return Err(twice(name));
                }
            }
        }
        Ok(())
    }

    /// The results of a node of one of the tables, which adds what it added for the last set of shapes if it
    /// is given the same.
    fn mapped(
        &mut self,
        node: &'a NodeText,
        inputs: &[Option<TensorId>],
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Fault> {
        // An attribute of a call is no part of the node.
        if !scope.attributes.is_empty() {
            return self.called(node, inputs, scope).and_then(ops::map);
        }
        let variant = opset(scope).unwrap_or_default();
        let given = NodeGiven { variant, declared: self.declared(node, scope), inputs: inputs.to_vec() };
        let address = std::ptr::from_ref(node).addr();
        if let Some(outputs) = self.kept.add_again(address, &given, &mut self.builder) {
            return Ok(outputs);
        }
        let mark = self.builder.mark();
        let declared = given.declared.clone();
        let outputs = self.called_as(node, inputs, scope, declared).and_then(ops::map)?;
        self.kept.keep(address, given, mark, &outputs, &self.builder);
        Ok(outputs)
    }

    /// The dims of the first result of a node that the file declares.
    fn declared(&self, node: &NodeText, scope: &Scope<'a, '_>) -> Option<Dims> {
        node.outputs.first().and_then(|name| self.described(name, scope).1)
    }

    /// A node as its mapping sees it.
    pub(super) fn called<'s>(
        &'s mut self,
        node: &'s NodeText,
        inputs: &[Option<TensorId>],
        scope: &'s Scope<'a, '_>,
    ) -> Result<Call<'s, 'a>, Fault> {
        let declared = self.declared(node, scope);
        self.called_as(node, inputs, scope, declared)
    }

    /// The same for a node of whose first result the file declares some dims.
    pub(super) fn called_as<'s>(
        &'s mut self,
        node: &'s NodeText,
        inputs: &[Option<TensorId>],
        scope: &'s Scope<'a, '_>,
        declared: Option<Dims>,
    ) -> Result<Call<'s, 'a>, Fault> {
        let is_preview = node.domain == PREVIEW && node.op_type == "FlexAttention";
        let table = match &*node.domain {
            MICROSOFT => OpTable::Microsoft,
            domain if is_standard(domain) || is_preview => OpTable::Standard,
            _ => return Err(Fault::Unsupported { needed: "an op of ONNX itself, or a function".into() }),
        };
        let opset = match opset(scope) {
            Some(version) if OPSETS.contains(&version) => version,
            other => {
                let given = other.map_or_else(|| "no opset".into(), |version| format!("opset {version}"));
                let needed = format!("one of the opsets {} to {}", OPSETS.start(), OPSETS.end());
                return Err(Fault::Version { given, needed });
            }
        };
        let outputs = node.outputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        Ok(Call {
            kind: &node.op_type,
            table,
            ports: ops::ports(table, &node.op_type, opset),
            attributes: attributes_of(node, scope),
            steps: Steps { builder: &mut self.builder, name: &node.name, declared },
            inputs: inputs.to_vec(),
            outputs,
            files: self.files,
            opset,
            producer: &self.model.producer,
            places: Vec::new(),
        })
    }

    /// A call of a function of the model: what its body becomes.
    fn call(
        &mut self,
        node: &'a NodeText,
        index: usize,
        function: &'a Function,
        inputs: &[Option<TensorId>],
        outer: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Error> {
        let fault = |fault| of_node(node, index, fault);
        if outer.depth == DEEPEST_CALL {
            let (given, most) = (DEEPEST_CALL as u64 + 1, DEEPEST_CALL as u64);
            return Err(fault(Fault::Limit { what: Limited::Depth, given, most }));
        }
        let count = |direction, given, most: usize| {
            fault(Fault::PortCount { direction, given, needed: format!("at most {most}") })
        };
        if inputs.len() > function.inputs.len() {
            return Err(count(Direction::Input, inputs.len(), function.inputs.len()));
        }
        if node.outputs.len() > function.outputs.len() {
            return Err(count(Direction::Output, node.outputs.len(), function.outputs.len()));
        }
        let mut attributes: BTreeMap<&str, &Attribute> =
            function.defaults.iter().map(|attribute| (&*attribute.name, attribute)).collect();
        for attribute in &node.attributes {
            let known =
                function.attributes.contains(&attribute.name) || attributes.contains_key(&*attribute.name);
            if !known {
                let attribute = Shown(&attribute.name).to_string();
                return Err(fault(Fault::UnknownAttribute { attribute }));
            }
            match &*attribute.refers_to {
                "" => attributes.insert(&attribute.name, attribute),
                name => {
                    outer.attributes.get(name).and_then(|given| attributes.insert(&attribute.name, given))
                }
            };
        }
        let names = function.inputs.iter().zip(inputs);
        let tensors: HashMap<&str, TensorId> =
            names.filter_map(|(name, tensor)| Some((&**name, (*tensor)?))).collect();
        let asked = || function.outputs.iter().zip(&node.outputs).filter(|(_, to)| !to.is_empty());
        let wanted = wanted(&function.nodes, asked().map(|(name, _)| &**name));
        // An input that the call leaves out is left out in the body.
        let absent =
            function.inputs.iter().map(|name| &**name).filter(|name| !tensors.contains_key(name)).collect();
        let declared = HashMap::new();
        let opsets = &function.opsets;
        let depth = outer.depth + 1;
        let mut scope =
            Scope { tensors, absent, opsets, attributes: &attributes, declared, holds: true, depth };
        self.nodes(&function.nodes, &wanted.nodes, &mut scope)?;
        let mut outputs = Vec::new();
        for (name, to) in function.outputs.iter().zip(&node.outputs) {
            match scope.tensors.get(&**name) {
                Some(tensor) => outputs.push(*tensor),
                // Nobody asks for it; any tensor keeps its place.
                None if to.is_empty() && !outputs.is_empty() => outputs.push(outputs[0]),
                None => return Err(fault(unmade(name, &[]))),
            }
        }
        Ok(outputs)
    }

    /// The results of a node; those of an op `Wildcard` if it cannot be mapped and the options allow that.
    fn or_wildcard(
        &mut self,
        node: &NodeText,
        index: usize,
        inputs: &[Option<TensorId>],
        outputs: Result<Vec<TensorId>, Fault>,
        scope: &Scope<'a, '_>,
    ) -> Result<Vec<TensorId>, Error> {
        let error = match outputs {
            Ok(outputs) => return Ok(outputs),
            Err(fault) => of_node(node, index, fault),
        };
        if !self.options.partial {
            return Err(error);
        }
        let inferred = infer::results(node, inputs, &self.builder);
        let describe = |(name, (of_type, of_dims)): (&String, (DataType, Option<Dims>))| {
            let (data_type, dims) = self.described(name, scope);
            let is_whole = dims.as_ref().is_some_and(|dims| is_known(dims));
            let data_type = if data_type == DataType::Undef { of_type } else { data_type };
            (data_type, if is_whole { dims } else { of_dims.or(dims) })
        };
        let described: Vec<(DataType, Option<Dims>)> =
            node.outputs.iter().zip(inferred).map(describe).collect();
        let mut places = 0..;
        let opset = scope.opsets.iter().find(|set| set.domain == node.domain);
        let attributes = skipped::attributes(attributes_of(node, scope), self.files, &mut self.builder);
        let skipped = SkippedLayer {
            name: node.name.clone(),
            domain: node.domain.clone(),
            kind: node.op_type.clone(),
            opset: opset.map(|set| set.version),
            attributes: attributes.map_err(|fault| of_node(node, index, fault))?,
            inputs: inputs.iter().map(|input| input.and_then(|_| places.next())).collect(),
        };
        let inputs: Vec<TensorId> = inputs.iter().flatten().copied().collect();
        Ok(self.builder.wildcard((error, skipped), &inputs, &described)?)
    }
}

/// The opset of the ops of ONNX itself.
pub(super) fn opset(scope: &Scope<'_, '_>) -> Option<i64> {
    let of_onnx = scope.opsets.iter().find(|set| is_standard(&set.domain));
    of_onnx.map(|set| set.version)
}

/// The attributes of a node, those of a call in place of what refers to them.
fn attributes_of<'s>(node: &'s NodeText, scope: &Scope<'s, '_>) -> BTreeMap<&'s str, &'s Attribute> {
    let given = |attribute: &'s Attribute| match &*attribute.refers_to {
        "" => Some((&*attribute.name, attribute)),
        // An attribute that the call leaves out is left out here.
        name => scope.attributes.get(name).map(|given| (&*attribute.name, *given)),
    };
    node.attributes.iter().filter_map(given).collect()
}

/// The name of an open dim.
fn named(dim: &DimText) -> Option<&str> {
    let name = dim.name.as_deref().filter(|name| !name.is_empty());
    name.filter(|_| dim.value.is_none())
}

fn twice(name: &str) -> Error {
    Error::Document {
        what: format!("two tensors are named `{}`", Shown(name)),
        needed: "a name of its own for each tensor",
    }
}

pub(super) fn of(name: &str, index: usize, kind: &str, fault: Fault) -> Error {
    let layer = LayerRef { name: name.into(), id: index as u64, kind: kind.into() };
    Error::Layer { layer, fault: Box::new(fault) }
}

/// A node goes by its name, or else by its first output.
fn of_node(node: &NodeText, index: usize, fault: Fault) -> Error {
    of(node.shown_name().unwrap_or_default(), index, &node.op_type, fault)
}
