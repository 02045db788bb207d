//! The inputs and outputs of a graph by name: as a model names them, or else by the ports of its ops.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow, bail};
use sterna::{Graph, LogicalTensor, OpId, Port, Schema, TensorId};
use sterna_import::Port as ModelPort;

use crate::words::{did_you_mean, harmless, listed, plain, shown};

/// The place of the tensors that an option may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortScope {
    Inputs,
    Outputs,
    /// Inputs first.
    Both,
}

/// An input or output with its names, its own first.
#[derive(Debug, Clone)]
pub(crate) struct NamedTensor {
    names: Vec<String>,
    pub(crate) id: TensorId,
}

impl NamedTensor {
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// The inputs and outputs of a graph by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) outputs: Vec<NamedTensor>,
    /// Inputs of the graph that a model has no name for: its constants.
    unnamed: Vec<NamedTensor>,
}

impl Names {
    /// Names by ports: an input is called as the first op that takes it calls it, an output as its producer
    /// calls it. Of several that are called alike, all but the first get a number.
    pub(crate) fn of_graph(graph: &Graph) -> Self {
        let mut taken = BTreeSet::new();
        let inputs = ports_of_inputs(graph, &mut taken, &BTreeSet::new());
        let outputs = graph.outputs().into_iter().map(|output| {
            let port = graph.ops().iter().find_map(|op| {
                let index = op.outputs().iter().position(|port| port.id() == output.id())?;
                port_name(Schema::of(op.kind()).outputs, index)
            });
            NamedTensor { names: vec![unique(port.unwrap_or("dst"), &mut taken)], id: output.id() }
        });
        let outputs = outputs.collect();
        Self { inputs, outputs, unnamed: Vec::new() }
    }

    /// The names in a model. Tensors of the graph beside them are called by their ports.
    pub(crate) fn of_model(inputs: &[ModelPort], outputs: &[ModelPort], graph: &Graph) -> Self {
        let mut taken: BTreeSet<String> =
            inputs.iter().chain(outputs).flat_map(|port| port.names.iter().cloned()).collect();
        let known: BTreeSet<TensorId> = inputs.iter().map(|port| port.tensor.id()).collect();
        let mut named = |ports: &[ModelPort], side: &str| -> Vec<NamedTensor> {
            let own = |port: &ModelPort| match port.names.iter().any(|name| !name.is_empty()) {
                true => port.names.clone(),
                false => vec![unique(side, &mut taken)],
            };
            ports
                .iter()
                .map(own)
                .zip(ports)
                .map(|(names, port)| NamedTensor { names, id: port.tensor.id() })
                .collect()
        };
        let (inputs, outputs) = (named(inputs, "input"), named(outputs, "output"));
        let unnamed = ports_of_inputs(graph, &mut taken, &known);
        Self { inputs, outputs, unnamed }
    }

    /// The own name of a tensor.
    pub(crate) fn of(&self, id: TensorId) -> Option<&str> {
        self.on(PortScope::Both).chain(&self.unnamed).find(|tensor| tensor.id == id).map(NamedTensor::name)
    }

    /// The own names by tensor.
    pub(crate) fn by_id(&self) -> BTreeMap<TensorId, String> {
        // Inputs come last and win: a model may hand an input out as it is.
        let all = self.unnamed.iter().chain(&self.outputs).chain(&self.inputs);
        all.map(|tensor| (tensor.id, harmless(tensor.name()))).collect()
    }

    /// A tensor in a message: its name, and its id.
    pub(crate) fn shown(&self, id: TensorId) -> String {
        shown(self.of(id), id)
    }

    /// The text by which an option names a tensor.
    pub(crate) fn key(&self, id: TensorId) -> String {
        self.of(id).map_or_else(|| id.to_string(), str::to_owned)
    }

    /// Checks that an option names no tensor twice.
    pub(crate) fn once(&self, option: &str, ids: impl Iterator<Item = TensorId>) -> Result<()> {
        let mut seen = BTreeSet::new();
        match ids.into_iter().find(|id| !seen.insert(*id)) {
            Some(id) => bail!("{option} names {} more than once; keep one", self.shown(id)),
            None => Ok(()),
        }
    }

    fn on(&self, side: PortScope) -> impl Iterator<Item = &NamedTensor> {
        let inputs = (side != PortScope::Outputs).then_some(&self.inputs);
        let outputs = (side != PortScope::Inputs).then_some(&self.outputs);
        inputs.into_iter().flatten().chain(outputs.into_iter().flatten())
    }

    /// The tensor of a name, or else of an id, that an option gives; an id need not be that of an input or
    /// output.
    pub(crate) fn find(&self, option: &str, key: &str, side: PortScope) -> Result<TensorId> {
        // A tensor whose own name it is comes before others that have it among theirs.
        let own: BTreeSet<TensorId> = self
            .on(side)
            .chain(&self.unnamed)
            .filter(|tensor| tensor.name() == key)
            .map(|tensor| tensor.id)
            .collect();
        let first = self.on(side).find(|tensor| tensor.name() == key);
        let any: BTreeSet<TensorId> = self
            .on(side)
            .filter(|tensor| tensor.names.iter().any(|name| name == key))
            .map(|tensor| tensor.id)
            .collect();
        match (own.len(), any.len(), first) {
            (1, ..) => Ok(own.into_iter().next().unwrap_or_default()),
            // An input before an output of the same name.
            (2.., _, Some(first)) if side == PortScope::Both => Ok(first.id),
            (0, 1, _) => Ok(any.into_iter().next().unwrap_or_default()),
            (0, 0, _) => key.parse().map_err(|_| self.unknown(option, key, side)),
            _ => bail!("{option}: several tensors are named `{}`; name one by its id", plain(key)),
        }
    }

    fn unknown(&self, option: &str, key: &str, side: PortScope) -> anyhow::Error {
        let known = listed(self.on(side).map(|tensor| format!("`{}`", plain(tensor.name()))));
        let hint = did_you_mean(key, self.on(side).map(NamedTensor::name));
        let known = if known.is_empty() { "no names".into() } else { known };
        anyhow!("{option}: no tensor is named `{}`; there are {known}{hint}", plain(key))
    }

    /// Checks that a tensor that an option names is among those that it may name.
    pub(crate) fn check(&self, option: &str, id: TensorId, known: &[TensorId], what: &str) -> Result<()> {
        if known.contains(&id) {
            return Ok(());
        }
        let name = |id: &TensorId| match self.of(*id) {
            Some(name) => format!("{id} ({})", plain(name)),
            None => id.to_string(),
        };
        bail!(
            "{option} names tensor {id}, which is not {what}; choose from {}",
            listed(known.iter().map(name))
        )
    }
}

/// The inputs of a graph that are not known yet, by the ports of their first consumers.
fn ports_of_inputs(
    graph: &Graph,
    taken: &mut BTreeSet<String>,
    known: &BTreeSet<TensorId>,
) -> Vec<NamedTensor> {
    let mut first: BTreeMap<TensorId, &'static str> = BTreeMap::new();
    for op in graph.ops() {
        for (index, input) in op.inputs().iter().enumerate() {
            first
                .entry(input.id())
                .or_insert(port_name(Schema::of(op.kind()).inputs, index).unwrap_or("src"));
        }
    }
    let inputs = graph.inputs().into_iter().map(LogicalTensor::id).filter(|id| !known.contains(id));
    inputs
        .map(|id| NamedTensor { names: vec![unique(first.get(&id).copied().unwrap_or("src"), taken)], id })
        .collect()
}

/// The name of a port; the last one stands for all further ones.
fn port_name(ports: &'static [Port], index: usize) -> Option<&'static str> {
    ports.get(index).or(ports.last()).map(|port| port.name)
}

/// A name that is not taken yet, by a number behind it if need be.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut numbered = name.to_owned();
    for number in 2.. {
        if taken.insert(numbered.clone()) {
            break;
        }
        numbered = format!("{name}_{number}");
    }
    numbered
}

/// The op of an id, or else of a name, that an option gives.
pub(crate) fn op_of(option: &str, key: &str, graph: &Graph) -> Result<OpId> {
    if let Some(op) = key.parse().ok().and_then(|id: OpId| graph.ops().iter().find(|op| op.id() == id)) {
        return Ok(op.id());
    }
    let mut named = graph.ops().iter().filter(|op| op.name() == key);
    match (named.next(), named.next()) {
        (Some(op), None) => Ok(op.id()),
        (Some(one), Some(other)) => {
            let (one, other) = (one.id(), other.id());
            bail!(
                "{option}: several ops are named `{}`; name one by its id, such as {one} or {other}",
                plain(key)
            )
        }
        (None, _) => {
            let shown = |op: &sterna::Op| match op.name() {
                "" => format!("{} {}", op.kind(), op.id()),
                name => format!("{} {} `{}`", op.kind(), op.id(), plain(name)),
            };
            let hint =
                did_you_mean(key, graph.ops().iter().map(sterna::Op::name).filter(|name| !name.is_empty()));
            let known = listed(graph.ops().iter().map(shown));
            bail!("{option}: no op has the id or the name `{}`; there are {known}{hint}", plain(key))
        }
    }
}
