//! The inputs and outputs of a graph by name: as a model names them, or else by the ports of its ops.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Result, anyhow, bail};
use sterna::{Graph, LogicalTensor, OpId, Port, Schema, TensorId};
use sterna_import::{Imported, Port as ModelPort};

use crate::named::Named;
use crate::words::{Key, did_you_mean, harmless, listed, plain, shown};

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
    /// Inputs of the graph that are none of the model: its constants.
    unnamed: Vec<NamedTensor>,
    /// The place of each tensor among inputs, outputs and `unnamed`, in this order.
    places: HashMap<TensorId, usize>,
}

impl Names {
    /// Names by ports: an input is called as the first op that takes it calls it, an output as its producer
    /// calls it. Of several that are called alike, all but the first get a number.
    pub(crate) fn of_graph(graph: &Graph) -> Self {
        let mut taken = Taken::default();
        let inputs = ports_of_inputs(graph, &mut taken, &BTreeSet::new());
        let mut ports: HashMap<TensorId, &'static str> = HashMap::new();
        for op in graph.ops() {
            for (index, output) in op.outputs().iter().enumerate() {
                ports.extend(port_name(Schema::of(op.kind()).outputs, index).map(|port| (output.id(), port)));
            }
        }
        let outputs = graph.outputs().into_iter().map(|output| {
            let port = ports.get(&output.id()).copied().unwrap_or("dst");
            NamedTensor { names: vec![taken.unique(port)], id: output.id() }
        });
        let outputs = outputs.collect();
        Self::new(inputs, outputs, Vec::new())
    }

    fn new(inputs: Vec<NamedTensor>, outputs: Vec<NamedTensor>, unnamed: Vec<NamedTensor>) -> Self {
        let mut places = HashMap::new();
        for (place, tensor) in inputs.iter().chain(&outputs).chain(&unnamed).enumerate() {
            places.entry(tensor.id).or_insert(place);
        }
        Self { inputs, outputs, unnamed, places }
    }

    /// The names in a model. Tensors of the graph that have none are called by their ports.
    pub(crate) fn of_model(imported: &Imported) -> Self {
        let Imported { inputs, outputs, graph, weight_names, .. } = imported;
        let mut taken =
            Taken::of(inputs.iter().chain(outputs).flat_map(|port| port.names.iter().cloned()).collect());
        let known: BTreeSet<TensorId> = inputs.iter().map(|port| port.tensor.id()).collect();
        let mut named = |ports: &[ModelPort], side: &str| -> Vec<NamedTensor> {
            let own = |port: &ModelPort| match port.names.iter().any(|name| !name.is_empty()) {
                true => port.names.clone(),
                false => vec![taken.unique(side)],
            };
            ports
                .iter()
                .map(own)
                .zip(ports)
                .map(|(names, port)| NamedTensor { names, id: port.tensor.id() })
                .collect()
        };
        let (inputs, outputs) = (named(inputs, "input"), named(outputs, "output"));
        let is_known = |id: &TensorId| known.contains(id) || weight_names.contains_key(id);
        let by_port = ports_of_inputs(graph, &mut taken, &graph_ids(graph).filter(is_known).collect());
        let used = graph_ids(graph).filter(|id| !known.contains(id));
        let of_weight =
            used.filter_map(|id| Some(NamedTensor { names: vec![taken.unique(weight_names.get(&id)?)], id }));
        let unnamed = of_weight.chain(by_port).collect();
        Self::new(inputs, outputs, unnamed)
    }

    /// The names of the ports of a session, numbered by their order, inputs first.
    pub(crate) fn of_ports(inputs: &[sterna::ModelPort], outputs: &[sterna::ModelPort]) -> Self {
        let numbered = |ports: &[sterna::ModelPort], first: usize| {
            let named = |(index, port): (usize, &sterna::ModelPort)| NamedTensor {
                names: port.names.clone(),
                id: TensorId::new(first + index),
            };
            ports.iter().enumerate().map(named).collect::<Vec<_>>()
        };
        Self::new(numbered(inputs, 0), numbered(outputs, inputs.len()), Vec::new())
    }

    /// The value of an option, and the name or id in it: the longest name that a tensor has.
    pub(crate) fn split<'a, T>(&self, named: &'a Named<T>) -> (Option<&'a Key>, &'a T) {
        let is_named = |tensor: &NamedTensor, key: &str| tensor.names.iter().any(|name| name == key);
        named.split(|key| {
            key.parse::<TensorId>().is_ok()
                || self.on(PortScope::Both).chain(&self.unnamed).any(|tensor| is_named(tensor, key))
        })
    }

    /// The own name of a tensor.
    pub(crate) fn of(&self, id: TensorId) -> Option<&str> {
        let mut place = *self.places.get(&id)?;
        for list in [&self.inputs, &self.outputs, &self.unnamed] {
            match list.get(place) {
                Some(tensor) => return Some(tensor.name()),
                None => place -= list.len(),
            }
        }
        None
    }

    /// True for an input of the graph.
    pub(crate) fn is_input(&self, id: TensorId) -> bool {
        let outputs = self.inputs.len()..self.inputs.len() + self.outputs.len();
        self.places.get(&id).is_some_and(|place| !outputs.contains(place))
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
        let the_one = |ids: &BTreeSet<TensorId>| ids.first().copied().filter(|_| ids.len() == 1);
        match (the_one(&own), the_one(&any), first) {
            (Some(id), ..) => Ok(id),
            // An input before an output of the same name.
            (None, _, Some(first)) if own.len() > 1 && side == PortScope::Both => Ok(first.id),
            (None, Some(id), _) if own.is_empty() => Ok(id),
            _ if own.is_empty() && any.is_empty() => key.parse().map_err(|_| self.unknown(option, key, side)),
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
    pub(crate) fn check(
        &self,
        option: &str,
        id: TensorId,
        known: &BTreeSet<TensorId>,
        what: &str,
    ) -> Result<()> {
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

/// The inputs of a graph.
fn graph_ids(graph: &Graph) -> impl Iterator<Item = TensorId> {
    graph.inputs().into_iter().map(LogicalTensor::id)
}

/// The inputs of a graph that are not known yet, by the ports of their first consumers.
fn ports_of_inputs(graph: &Graph, taken: &mut Taken, known: &BTreeSet<TensorId>) -> Vec<NamedTensor> {
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
        .map(|id| NamedTensor { names: vec![taken.unique(first.get(&id).copied().unwrap_or("src"))], id })
        .collect()
}

/// The name of a port; the last one stands for all further ones.
fn port_name(ports: &'static [Port], index: usize) -> Option<&'static str> {
    ports.get(index).or(ports.last()).map(|port| port.name)
}

/// The names that are taken.
#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// For each name that was asked for, a number below which all are taken behind it.
    numbers: HashMap<String, u64>,
    /// The names tried so far, a measure of the work.
    #[cfg(test)]
    tried: usize,
}

impl Taken {
    fn of(names: HashSet<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// A name that is not taken yet, by a number behind it if need be.
    fn unique(&mut self, name: &str) -> String {
        let number = self.numbers.entry(name.to_owned()).or_insert(1);
        loop {
            #[cfg(test)]
            {
                self.tried += 1;
            }
            let numbered = match *number {
                1 => name.to_owned(),
                number => format!("{name}_{number}"),
            };
            *number += 1;
            if self.names.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// True if an op has this id or name.
pub(crate) fn is_op(key: &str, graph: &Graph) -> bool {
    let id: Option<OpId> = key.parse().ok();
    graph.ops().iter().any(|op| id == Some(op.id()) || op.name() == key)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_numbered_from_two() {
        let mut taken = Taken::of(["b_2", "b"].map(String::from).into());
        let names = ["a", "a", "b", "a", "b", "a_2", "a"].map(|name| taken.unique(name));
        assert_eq!(names, ["a", "a_2", "b_3", "a_3", "b_4", "a_2_2", "a_4"]);
    }

    #[test]
    fn a_name_takes_few_tries_however_many_are_alike() {
        let mut taken = Taken::of((0..20_000).map(|number| format!("src_{}", 2 * number)).collect());
        let names: BTreeSet<String> = (0..20_000).map(|_| taken.unique("src")).collect();
        assert_eq!(names.len(), 20_000);
        assert!(taken.tried <= 40_000, "{}", taken.tried);
    }
}
