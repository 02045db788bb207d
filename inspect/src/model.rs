//! A graph as data to show: its partitions and their plans, nodes and edges of a picture.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Context, Result};
use sterna::{
    CompiledPartition, Engine, Graph, InPlacePair, LogicalTensor, Op, OpId, Partition, PlanSummary, Policy,
    Rewrite, Schema, TensorId,
};

use crate::mask::{self, Mask};
use crate::op::ShownOp;
use crate::ports::{PortReport, TensorNames};
use crate::short::Short;
use crate::subject::Subject;
use crate::units::Time;
use crate::wiring::{Neighbour, PartitionEdges};
use crate::words::{of_partition, plain};

/// A graph with its partitions and plans, or one partition of it, as data to show.
pub struct Inspection {
    /// Where it comes from.
    pub(crate) source: String,
    /// The engine for which plans are made.
    pub(crate) engine: Engine,
    /// The partitions in order; their ids follow each other.
    pub(crate) parts: Vec<Part>,
    /// The ops by partition, in the order in which they can run, then the inputs and outputs of the graph.
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
}

/// The time that a step takes, as a trace tells.
#[derive(Debug, Clone, PartialEq)]
pub struct StepShare {
    /// The ops of the step; none of one that copies rows of a state or parts of a tensor.
    pub ops: Vec<OpId>,
    /// Seconds of a run: the mean of those behind the first, if there are any.
    pub seconds: f64,
    /// The part of the time of all steps.
    pub share: f64,
}

/// The time of a partition, as a profile tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartTime {
    pub(crate) seconds: f64,
    /// The part of the time of all steps.
    pub(crate) share: f64,
    /// How hot it is, from 0 to [`HOTTEST`].
    pub(crate) heat: usize,
}

/// The heat of the partition that takes most of the time.
pub(crate) const HOTTEST: usize = 6;

/// A partition.
pub(crate) struct Part {
    pub(crate) id: usize,
    pub(crate) ops: Vec<ShownOp>,
    pub(crate) rewrites: Vec<Rewrite>,
    pub(crate) inputs: Vec<PortReport>,
    pub(crate) outputs: Vec<PortReport>,
    pub(crate) outcome: Outcome,
    pub(crate) neighbours: Vec<Neighbour>,
    /// Its time, if a profile tells it.
    pub(crate) time: Option<PartTime>,
}

/// The outcome of a partition.
pub(crate) enum Outcome {
    Compiled {
        plan: PlanSummary,
        in_place: Vec<InPlacePair>,
        /// Of masked scores, if it has any.
        mask: Option<Mask>,
    },
    /// No shape is known that only an execution, or the user, can tell.
    Open(String),
    /// It cannot be compiled as the graph describes it.
    Failed(String),
    /// Nothing here runs it.
    Unsupported(String),
}

/// A box of the picture. A label tells it from others of its kind: its name if it has one of its own,
/// shortened if need be.
pub(crate) enum Node {
    Op { part: usize, op: ShownOp, label: String },
    Input { tensor: TensorId, name: String, label: String, property: &'static str },
    Output { tensor: TensorId, name: String, label: String },
}

/// A tensor on its way from one node to another, by index.
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The port of the consumer, and type and shape.
    pub(crate) label: String,
}

/// Why neighbours are apart under the policy that fuses nothing.
const ONE_OP: &str = "the policy debug makes a partition of each op";

impl Inspection {
    /// A graph, cut by a policy and compiled for an engine; `source` says where it comes from.
    ///
    /// # Errors
    ///
    /// A graph that is not finalized, and a value of an input that does not fit its tensor. A partition that
    /// cannot be compiled is part of what is shown.
    pub fn new(source: &str, subject: &dyn Subject, policy: Policy, engine: &Engine) -> Result<Self> {
        Self::of(source, subject, policy, engine, None)
    }

    /// One partition of a graph, by its place among those of the policy; the others are not compiled.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], and a place at which there is none.
    pub fn of_partition(
        source: &str,
        subject: &dyn Subject,
        policy: Policy,
        engine: &Engine,
        partition: usize,
    ) -> Result<Self> {
        Self::of(source, subject, policy, engine, Some(partition))
    }

    fn of(
        source: &str,
        subject: &dyn Subject,
        policy: Policy,
        engine: &Engine,
        only: Option<usize>,
    ) -> Result<Self> {
        let graph = subject.graph();
        let names = TensorNames::new(subject.names());
        let partitions = graph.partitions(policy)?;
        let explanations = graph.explain()?;
        let wiring = PartitionEdges::new(&partitions, &explanations, subject);
        let chosen = match only {
            None => &partitions[..],
            Some(id) => partitions.get(id..=id).with_context(|| format!("there is no partition {id}"))?,
        };
        // Tensors as the graph describes them; those of compiled partitions have known strides.
        let mut known: BTreeMap<TensorId, LogicalTensor> = BTreeMap::new();
        let mut parts = Vec::with_capacity(chosen.len());
        for partition in chosen {
            let mut part = inspected(partition, subject, engine, &mut known)?;
            names.name(part.inputs.iter_mut().chain(&mut part.outputs));
            part.neighbours = wiring.neighbours(part.id);
            if policy == Policy::Debug {
                part.neighbours.iter_mut().for_each(|neighbour| neighbour.why = ONE_OP.into());
            }
            parts.push(part);
        }
        let ends = match (only, chosen) {
            (Some(_), [partition]) => {
                (partition.inputs().iter().collect(), partition.outputs().iter().collect())
            }
            _ => (graph.inputs(), graph.outputs()),
        };
        let (nodes, edges) = drawn(subject, chosen, ends, &known, &names);
        Ok(Self { source: plain(source), engine: engine.clone(), parts, nodes, edges })
    }

    /// A partition that is compiled, for the shapes and strides that it is compiled for.
    #[must_use]
    pub fn of_compiled(
        source: &str,
        subject: &dyn Subject,
        partition: &Partition,
        compiled: &CompiledPartition,
        engine: &Engine,
    ) -> Self {
        let names = TensorNames::new(subject.names());
        let ports = |ports: &[LogicalTensor]| ports.iter().map(PortReport::of).collect::<Vec<_>>();
        let mut part = Part {
            id: partition.id(),
            ops: partition.ops().iter().map(|op| ShownOp::new(op, subject)).collect(),
            rewrites: partition.rewrites().to_vec(),
            inputs: ports(compiled.inputs()),
            outputs: ports(compiled.outputs()),
            outcome: Outcome::Compiled {
                plan: compiled.plan(),
                in_place: compiled.in_place_pairs().to_vec(),
                mask: None,
            },
            neighbours: Vec::new(),
            time: None,
        };
        names.name(part.inputs.iter_mut().chain(&mut part.outputs));
        let all = compiled.inputs().iter().chain(compiled.outputs());
        let known = all.map(|tensor| (tensor.id(), tensor.clone())).collect();
        let ends = (partition.inputs().iter().collect(), partition.outputs().iter().collect());
        let (nodes, edges) = drawn(subject, std::slice::from_ref(partition), ends, &known, &names);
        Self { source: plain(source), engine: engine.clone(), parts: vec![part], nodes, edges }
    }

    /// The partition of an id.
    pub(crate) fn part(&self, id: usize) -> &Part {
        &self.parts[self.place(id)]
    }

    /// The place of a partition among those that are shown.
    fn place(&self, id: usize) -> usize {
        id - self.parts.first().map_or(0, |part| part.id)
    }

    /// Colours partitions by the time of their ops in a profile, and counts the steps that are none of this
    /// graph.
    pub fn take_times(&mut self, steps: &[StepShare]) -> usize {
        let of_ops: HashMap<OpId, usize> =
            self.parts.iter().flat_map(|part| part.ops.iter().map(|op| (op.id, part.id))).collect();
        let most = steps.iter().map(|step| step.share).fold(f64::MIN_POSITIVE, f64::max);
        let mut strange = 0;
        // A step that copies has no ops.
        for step in steps.iter().filter(|step| !step.ops.is_empty()) {
            let Some(&part) = step.ops.iter().find_map(|op| of_ops.get(op)) else {
                strange += 1;
                continue;
            };
            let place = self.place(part);
            let time = self.parts[place].time.get_or_insert(PartTime { seconds: 0.0, share: 0.0, heat: 0 });
            (time.seconds, time.share) = (time.seconds + step.seconds, time.share + step.share);
            time.heat = ((time.share / most * HOTTEST as f64).round() as usize).min(HOTTEST);
        }
        strange
    }

    /// Number of ops of the graph.
    pub(crate) fn ops(&self) -> usize {
        self.parts.iter().map(|part| part.ops.len()).sum()
    }

    pub(crate) fn unsupported(&self) -> usize {
        self.parts.iter().filter(|part| part.is_unsupported()).count()
    }

    /// One sentence for each partition that cannot be compiled as the graph describes it.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failure = |part: &Part| match &part.outcome {
            Outcome::Failed(why) => Some(of_partition(part.id, &[], why)),
            _ => None,
        };
        self.parts.iter().filter_map(failure).collect()
    }

    /// One sentence for each partition whose shapes are open.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let note = |part: &Part| match &part.outcome {
            Outcome::Open(why) => Some(of_partition(part.id, &[], why)),
            _ => None,
        };
        self.parts.iter().filter_map(note).collect()
    }
}

impl Part {
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self.outcome, Outcome::Unsupported(_))
    }

    /// A short description.
    pub(crate) fn headline(&self) -> String {
        let ops = match self.ops.len() {
            1 => "1 op".into(),
            ops => format!("{ops} ops"),
        };
        let what = match &self.outcome {
            Outcome::Compiled { .. } if self.ops.len() > 1 => format!("{ops} fused"),
            Outcome::Compiled { .. } => ops,
            Outcome::Open(_) | Outcome::Failed(_) => format!("{ops}, not compiled"),
            Outcome::Unsupported(_) => format!("{ops}, not supported"),
        };
        match self.time {
            None => what,
            Some(time) => format!("{what}, {}, {:.1} %", Time(time.seconds), 100.0 * time.share),
        }
    }
}

/// Compiles a partition, if it can be, and tells.
fn inspected(
    partition: &Partition,
    subject: &dyn Subject,
    engine: &Engine,
    known: &mut BTreeMap<TensorId, LogicalTensor>,
) -> Result<Part> {
    // Each as a run would lay it out, if its shape is known.
    let laid_out = |port: &LogicalTensor| subject.in_memory(known.get(&port.id()).unwrap_or(port));
    let resolved: Result<Vec<LogicalTensor>> = partition.inputs().iter().map(laid_out).collect();
    let mut outputs = partition.outputs().to_vec();
    let ops: Vec<ShownOp> = partition.ops().iter().map(|op| ShownOp::new(op, subject)).collect();
    let outcome = match (partition.unsupported_reason(), &resolved) {
        (Some(reason), _) => Outcome::Unsupported(match &ops[..] {
            [op] if op.skipped.is_some() => subject.why_skipped(&op.kind),
            _ => reason,
        }),
        (None, Err(open)) => Outcome::Open(open.to_string()),
        (None, Ok(inputs)) => match partition.compile_for(engine, inputs, &outputs) {
            Ok(compiled) => {
                outputs = compiled.outputs().to_vec();
                Outcome::Compiled {
                    plan: compiled.plan(),
                    in_place: compiled.in_place_pairs().to_vec(),
                    mask: mask::of(subject, partition, &compiled, engine)?,
                }
            }
            Err(error) => Outcome::Failed(error.to_string()),
        },
    };
    let inputs: Vec<LogicalTensor> =
        partition.inputs().iter().map(|port| laid_out(port).unwrap_or_else(|_| port.clone())).collect();
    let part = Part {
        id: partition.id(),
        ops,
        rewrites: partition.rewrites().to_vec(),
        inputs: inputs.iter().map(PortReport::of).collect(),
        outputs: outputs.iter().map(PortReport::of).collect(),
        outcome,
        neighbours: Vec::new(),
        time: None,
    };
    known.extend(inputs.into_iter().chain(outputs).map(|tensor| (tensor.id(), tensor)));
    Ok(part)
}

/// The schema of an input of an op.
fn port(op: &Op, index: usize) -> Option<&'static sterna::Port> {
    let ports = Schema::of(op.kind()).inputs;
    // The last port stands for all further ones.
    ports.get(index).or(ports.last())
}

/// An input of the graph that is used more often than this is drawn once for each use, beside the op.
const MAX_SHARED: usize = 4;

/// The most characters of a name in the picture.
const LONGEST_NAME: usize = 28;

/// The labels of boxes.
struct Labels<'a> {
    tensors: &'a TensorNames,
    of_tensors: Short,
    of_ops: Short,
    /// The names that several ops have.
    shared: HashSet<String>,
}

impl<'a> Labels<'a> {
    fn new(graph: &Graph, tensors: &'a TensorNames) -> Self {
        let names: Vec<String> = graph.ops().iter().map(|op| plain(op.name())).collect();
        let mut once: HashSet<&str> = HashSet::new();
        let shared = names.iter().filter(|name| !once.insert(name)).cloned().collect();
        Self {
            tensors,
            of_tensors: Short::new(tensors.all(), LONGEST_NAME),
            of_ops: Short::new(names.iter().map(String::as_str), LONGEST_NAME),
            shared,
        }
    }

    fn of_op(&self, op: &Op, name: &str) -> String {
        let kind = op.kind().name();
        match () {
            // Readers of graphs give an op without a name its kind and id.
            () if name.is_empty() || name == kind || name == format!("{kind}_{}", op.id()) => {
                format!("op {}", op.id())
            }
            () if self.shared.contains(name) => format!("{} · op {}", self.of_ops.of(name), op.id()),
            () => self.of_ops.of(name).to_owned(),
        }
    }

    /// The name of a tensor, and its label.
    fn of_tensor(&self, id: TensorId) -> (String, String) {
        match self.tensors.of(id) {
            Some(name) => (name.to_owned(), self.of_tensors.of(name).to_owned()),
            None => (String::new(), format!("tensor {id}")),
        }
    }

    fn input(&self, tensor: TensorId, property: &'static str) -> Node {
        let (name, label) = self.of_tensor(tensor);
        Node::Input { tensor, name, label, property }
    }
}

/// The nodes and edges of the picture.
fn drawn(
    subject: &dyn Subject,
    partitions: &[Partition],
    (inputs, outputs): (Vec<&LogicalTensor>, Vec<&LogicalTensor>),
    known: &BTreeMap<TensorId, LogicalTensor>,
    names: &TensorNames,
) -> (Vec<Node>, Vec<Edge>) {
    let labels = Labels::new(subject.graph(), names);
    let mut nodes = Vec::new();
    let mut makers: HashMap<TensorId, usize> = HashMap::new();
    let mut ops = Vec::new();
    for partition in partitions {
        for op in partition.ops() {
            makers.extend(op.outputs().iter().map(|output| (output.id(), nodes.len())));
            ops.push((nodes.len(), op));
            let shown = ShownOp::new(op, subject);
            let label = labels.of_op(op, &shown.name);
            nodes.push(Node::Op { part: partition.id(), op: shown, label });
        }
    }
    let mut uses: HashMap<TensorId, usize> = HashMap::new();
    for (_, op) in &ops {
        op.inputs().iter().for_each(|input| *uses.entry(input.id()).or_default() += 1);
    }
    let property_of = |input: &LogicalTensor| match input.property().name() {
        "undef" => "",
        name => name,
    };
    let is_repeated = |input: &LogicalTensor| uses.get(&input.id()).is_some_and(|&uses| uses > MAX_SHARED);
    let mut repeated: HashMap<TensorId, &'static str> = HashMap::new();
    for input in inputs {
        if is_repeated(input) {
            repeated.insert(input.id(), property_of(input));
            continue;
        }
        makers.insert(input.id(), nodes.len());
        nodes.push(labels.input(input.id(), property_of(input)));
    }
    let mut edges = Vec::new();
    let shape_of = |tensor: &LogicalTensor| type_and_shape(known.get(&tensor.id()).unwrap_or(tensor));
    for (to, op) in ops {
        for (index, input) in op.inputs().iter().enumerate() {
            let port = port(op, index).map_or("", |port| port.name);
            if let Some(&property) = repeated.get(&input.id()) {
                makers.insert(input.id(), nodes.len());
                nodes.push(labels.input(input.id(), property));
            }
            if let Some(&from) = makers.get(&input.id()) {
                // An input that is called like the port says so itself.
                let is_said = matches!(&nodes[from], Node::Input { name, .. } if name == port);
                let port = if is_said { String::new() } else { format!("{port} ") };
                edges.push(Edge { from, to, label: port + &shape_of(input) });
            }
        }
    }
    for output in outputs {
        if let Some(&from) = makers.get(&output.id()) {
            edges.push(Edge { from, to: nodes.len(), label: shape_of(output) });
            let (name, label) = labels.of_tensor(output.id());
            nodes.push(Node::Output { tensor: output.id(), name, label });
        }
    }
    (nodes, edges)
}

/// A type and a shape, such as `f32 8×128`.
fn type_and_shape(tensor: &LogicalTensor) -> String {
    let dim = |dim: &Option<i64>| dim.map_or("?".into(), |dim| dim.to_string());
    let shape = match tensor.partial_dims().as_deref() {
        None => "of unknown rank".into(),
        Some([]) => "scalar".into(),
        Some(dims) => dims.iter().map(dim).collect::<Vec<String>>().join("×"),
    };
    format!("{} {shape}", tensor.data_type())
}
