//! A graph as data to show: its partitions and their plans, nodes and edges of a picture.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use sterna::reference::Value;
use sterna::{
    CompiledPartition, DataType, Engine, Error, ExecuteFault, Explanation, FusionVerdict, Graph, InPlacePair,
    Level, LogicalTensor, MaskTiles, Op, OpId, OpKind, Partition, PlanSummary, Policy, Rewrite, Schema,
    Tensor, TensorId,
};
use sterna_import::Constant;

use super::attrs;

use crate::fill::element;
use crate::given::Given;
use crate::host::HostTensor;
use crate::ports::{PortReport, TensorNames};
use crate::report::of_partition;
use crate::short::Short;
use crate::source::Loaded;
use crate::trace::StepShare;
use crate::units::Time;
use crate::words::shown;

/// A graph as `inspect` shows it.
pub(super) struct Inspection {
    /// Where it comes from.
    pub(super) source: String,
    pub(super) level: Level,
    pub(super) threads: usize,
    pub(super) parts: Vec<Part>,
    /// The ops by partition, in the order in which they can run, then the inputs and outputs of the graph.
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

/// The time of a partition, as a profile tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartTime {
    pub(super) seconds: f64,
    /// The part of the time of all steps.
    pub(super) share: f64,
    /// How hot it is, from 0 to [`HOTTEST`].
    pub(super) heat: usize,
}

/// The heat of the partition that takes most of the time.
pub(super) const HOTTEST: usize = 6;

/// A partition.
pub(super) struct Part {
    pub(super) id: usize,
    pub(super) ops: Vec<ShownOp>,
    pub(super) rewrites: Vec<Rewrite>,
    pub(super) inputs: Vec<PortReport>,
    pub(super) outputs: Vec<PortReport>,
    pub(super) outcome: Outcome,
    pub(super) neighbours: Vec<Neighbour>,
    /// Its time, if a profile tells it.
    pub(super) time: Option<PartTime>,
}

/// An op as it is shown.
#[derive(Clone)]
pub(super) struct ShownOp {
    pub(super) id: OpId,
    /// Its kind, or the type of the layer of a model that became a Wildcard op.
    pub(super) kind: String,
    /// True for a stand-in of a layer that is not mapped.
    pub(super) is_skipped: bool,
    /// Its name in the graph.
    pub(super) name: String,
    /// Its attributes with their values, such as `axis=-1`: those of numbers, and words and truth values that
    /// are not the default.
    pub(super) attrs: Vec<String>,
}

impl ShownOp {
    fn new(op: &Op, loaded: &Loaded) -> Self {
        let skipped = loaded.skipped_kinds.get(&op.id()).filter(|_| op.kind() == OpKind::Wildcard);
        Self {
            id: op.id(),
            kind: skipped.map_or_else(|| op.kind().to_string(), |kind| plain(kind)),
            is_skipped: skipped.is_some(),
            // Readers of graphs give an op without a name its kind and id.
            name: match skipped {
                Some(_) if op.name() == format!("{}_{}", op.kind(), op.id()) => String::new(),
                _ => plain(op.name()),
            },
            attrs: attrs::shown(op),
        }
    }
}

impl Display for ShownOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} (op {})", self.kind, self.id)
    }
}

/// The tiles of masked scores.
pub(super) enum Mask {
    Tiles {
        tiles: MaskTiles,
        /// The inputs of one element that no option gives, with what they are taken for.
        assumed: Vec<String>,
    },
    /// The input, as an option names it, without which nobody knows them.
    Needs(String),
}

/// The outcome of a partition.
pub(super) enum Outcome {
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

/// An op outside a partition that shares a tensor with one inside.
pub(super) struct Neighbour {
    /// Its partition.
    pub(super) part: usize,
    /// The producer and the consumer of the tensor.
    pub(super) producer: String,
    pub(super) consumer: String,
    /// Why the two are not in one partition.
    pub(super) why: String,
}

/// A box of the picture. A label tells it from others of its kind: its name if it has one of its own,
/// shortened if need be.
pub(super) enum Node {
    Op { part: usize, op: ShownOp, label: String },
    Input { tensor: TensorId, name: String, label: String, property: &'static str },
    Output { tensor: TensorId, name: String, label: String },
}

/// A tensor on its way from one node to another, by index.
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The port of the consumer, and type and shape.
    pub(super) label: String,
}

/// Why neighbours are apart under the policy that fuses nothing.
const ONE_OP: &str = "the policy debug makes a partition of each op";

impl Inspection {
    pub(super) fn new(source: &str, loaded: &Loaded, policy: Policy, threads: Option<usize>) -> Result<Self> {
        let graph = &loaded.graph;
        let given: BTreeMap<TensorId, Given> = loaded.given.iter().cloned().collect();
        let values = KnownValues { given, loaded };
        let names = TensorNames::new(loaded.names.by_id());
        let engine = match threads {
            Some(threads) => Engine::builder().threads(threads).build(),
            None => Engine::new(),
        };
        let partitions = graph.partitions(policy)?;
        let explanations = graph.explain()?;
        let wiring = PartitionEdges::new(&partitions, &explanations, loaded);
        // Tensors as the graph describes them; those of compiled partitions have known strides.
        let mut known: BTreeMap<TensorId, LogicalTensor> = BTreeMap::new();
        let mut parts = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let mut part = inspected(partition, loaded, &engine, &mut known, &values)?;
            names.name(part.inputs.iter_mut().chain(&mut part.outputs));
            part.neighbours = wiring.neighbours(part.id);
            if policy == Policy::Debug {
                part.neighbours.iter_mut().for_each(|neighbour| neighbour.why = ONE_OP.into());
            }
            parts.push(part);
        }
        let (nodes, edges) = drawn(loaded, &partitions, &known, &names);
        Ok(Self {
            source: plain(source),
            level: engine.level(),
            threads: engine.threads(),
            parts,
            nodes,
            edges,
        })
    }

    /// Colours partitions by the time of their ops in a profile, and counts the steps that are none of this
    /// graph.
    pub(super) fn take_times(&mut self, steps: &[StepShare]) -> usize {
        let of_ops: HashMap<OpId, usize> =
            self.parts.iter().flat_map(|part| part.ops.iter().map(|op| (op.id, part.id))).collect();
        let most = steps.iter().map(|step| step.share).fold(f64::MIN_POSITIVE, f64::max);
        let mut strange = 0;
        // A step that copies rows of the state has no ops.
        for step in steps.iter().filter(|step| !step.ops.is_empty()) {
            let Some(&part) = step.ops.iter().find_map(|op| of_ops.get(op)) else {
                strange += 1;
                continue;
            };
            let time = self.parts[part].time.get_or_insert(PartTime { seconds: 0.0, share: 0.0, heat: 0 });
            (time.seconds, time.share) = (time.seconds + step.seconds, time.share + step.share);
            time.heat = ((time.share / most * HOTTEST as f64).round() as usize).min(HOTTEST);
        }
        strange
    }

    /// Number of ops of the graph.
    pub(super) fn ops(&self) -> usize {
        self.parts.iter().map(|part| part.ops.len()).sum()
    }

    pub(super) fn unsupported(&self) -> usize {
        self.parts.iter().filter(|part| part.is_unsupported()).count()
    }

    /// One sentence for each partition that cannot be compiled as the graph describes it.
    pub(super) fn failures(&self) -> Vec<String> {
        let failure = |part: &Part| match &part.outcome {
            Outcome::Failed(why) => Some(of_partition(part.id, &[], why)),
            _ => None,
        };
        self.parts.iter().filter_map(failure).collect()
    }

    /// One sentence for each partition whose shapes are open.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |part: &Part| match &part.outcome {
            Outcome::Open(why) => Some(of_partition(part.id, &[], why)),
            _ => None,
        };
        self.parts.iter().filter_map(note).collect()
    }
}

impl Part {
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self.outcome, Outcome::Unsupported(_))
    }

    /// A short description.
    pub(super) fn headline(&self) -> String {
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
    loaded: &Loaded,
    engine: &Engine,
    known: &mut BTreeMap<TensorId, LogicalTensor>,
    values: &KnownValues<'_>,
) -> Result<Part> {
    // Each as `sterna run` would lay it out, if its shape is known.
    let laid_out = |port: &LogicalTensor| loaded.in_memory(known.get(&port.id()).unwrap_or(port));
    let resolved: Result<Vec<LogicalTensor>> = partition.inputs().iter().map(laid_out).collect();
    let mut outputs = partition.outputs().to_vec();
    let ops: Vec<ShownOp> = partition.ops().iter().map(|op| ShownOp::new(op, loaded)).collect();
    let outcome = match (partition.unsupported_reason(), &resolved) {
        (Some(reason), _) => Outcome::Unsupported(match &ops[..] {
            [op] if op.is_skipped => format!("layers of type {} are not mapped", op.kind),
            _ => reason,
        }),
        (None, Err(open)) => Outcome::Open(open.to_string()),
        (None, Ok(inputs)) => match partition.compile_for(engine, inputs, &outputs) {
            Ok(compiled) => {
                outputs = compiled.outputs().to_vec();
                Outcome::Compiled {
                    plan: compiled.plan(),
                    in_place: compiled.in_place_pairs().to_vec(),
                    mask: values.mask(partition, &compiled, engine)?,
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

/// The values of inputs that are known before anything runs.
struct KnownValues<'a> {
    given: BTreeMap<TensorId, Given>,
    loaded: &'a Loaded,
}

impl KnownValues<'_> {
    /// The value of an input: as an option gives it, or as the model has it.
    fn of(&self, port: &LogicalTensor) -> Result<Option<Value>> {
        match self.given.get(&port.id()) {
            Some(given) => given.value(port, &shown(None, port.id())).map(Some),
            None => Ok(self.loaded.constants.get(&port.id()).map(Constant::to_value).transpose()?),
        }
    }

    /// The tiles of masked scores. An input of one element that nobody gives is taken for what such inputs
    /// are in a mask: the branch of a choice masks, and a scale changes nothing.
    fn mask(
        &self,
        partition: &Partition,
        compiled: &CompiledPartition,
        engine: &Engine,
    ) -> Result<Option<Mask>> {
        let held = |port: &LogicalTensor, value: &Value| -> Result<HostTensor> {
            let mut tensor = HostTensor::zeroed(port, engine)?;
            tensor.write(value)?;
            Ok(tensor)
        };
        let mut known = Vec::new();
        for port in compiled.inputs() {
            if let Some(value) = self.of(port)? {
                known.push(held(port, &value)?);
            }
        }
        let mut assumed = Vec::new();
        loop {
            let tensors = known.iter().map(HostTensor::tensor).collect::<Result<Vec<Tensor<'_>>>>()?;
            let missing = match compiled.mask_tiles(&tensors) {
                Ok(tiles) => return Ok(tiles.map(|tiles| Mask::Tiles { tiles, assumed })),
                Err(Error::Execute(ExecuteFault::Missing { tensor, .. })) => tensor,
                Err(error) => return Err(error.into()),
            };
            let needs = || Ok(Some(Mask::Needs(plain(&self.loaded.names.key(missing)))));
            let Some(port) = compiled.inputs().iter().find(|port| port.id() == missing) else {
                return needs();
            };
            let text = if is_branch(partition, missing) { "-inf" } else { "1" };
            let is_new = known.iter().all(|tensor| tensor.desc().id() != missing);
            if port.element_count() != Some(1) || !is_new || !is_float(port.data_type()) {
                return needs();
            }
            let bytes = element(text, port.data_type())?;
            let value = Value::new(port.data_type(), port.dims().unwrap_or(&[]), bytes)?;
            known.push(held(port, &value)?);
            assumed.push(format!("{} = {text}", plain(&self.loaded.names.key(missing))));
        }
    }
}

/// True for a branch of a choice.
fn is_branch(partition: &Partition, tensor: TensorId) -> bool {
    let mut choices = partition.ops().iter().filter(|op| op.kind() == OpKind::Select);
    choices.any(|op| op.inputs().iter().skip(1).any(|input| input.id() == tensor))
}

fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::F32 | DataType::Bf16 | DataType::F16)
}

/// A tensor that leads from one partition to another.
struct PartitionEdge<'a> {
    producer: (usize, &'a Op),
    consumer: (usize, &'a Op),
}

/// The tensors between partitions.
struct PartitionEdges<'a> {
    edges: Vec<PartitionEdge<'a>>,
    /// The edges of each partition.
    edges_of: HashMap<usize, Vec<usize>>,
    /// The verdicts on ops beside a group that became a partition, by the partition and the id of the op.
    said_of: HashMap<(usize, OpId), Vec<&'a Explanation>>,
    loaded: &'a Loaded,
}

impl<'a> PartitionEdges<'a> {
    fn new(partitions: &'a [Partition], explanations: &'a [Explanation], loaded: &'a Loaded) -> Self {
        let ops = || partitions.iter().flat_map(|part| part.ops().iter().map(move |op| (part.id(), op)));
        let makers: HashMap<TensorId, (usize, &Op)> =
            ops().flat_map(|(part, op)| op.outputs().iter().map(move |out| (out.id(), (part, op)))).collect();
        let mut edges = Vec::new();
        let mut edges_of: HashMap<usize, Vec<usize>> = HashMap::new();
        for (part, op) in ops() {
            for input in op.inputs() {
                let Some(&producer) = makers.get(&input.id()) else { continue };
                if producer.0 != part {
                    edges_of.entry(producer.0).or_default().push(edges.len());
                    edges_of.entry(part).or_default().push(edges.len());
                    edges.push(PartitionEdge { producer, consumer: (part, op) });
                }
            }
        }
        let part_of: HashMap<OpId, usize> = ops().map(|(part, op)| (op.id(), part)).collect();
        let mut said_of: HashMap<(usize, OpId), Vec<&Explanation>> = HashMap::new();
        for explanation in explanations {
            if let (Some(&part), Some(neighbour)) = (part_of.get(&explanation.seed.id), explanation.neighbour)
            {
                said_of.entry((part, neighbour.id)).or_default().push(explanation);
            }
        }
        Self { edges, edges_of, said_of, loaded }
    }

    /// The neighbours of a partition, and why they are not part of it.
    fn neighbours(&self, part: usize) -> Vec<Neighbour> {
        let mut neighbours: Vec<Neighbour> = Vec::new();
        let mut seen = HashSet::new();
        for &edge in self.edges_of.get(&part).into_iter().flatten() {
            let edge = &self.edges[edge];
            let ends = [edge.producer.1, edge.consumer.1];
            let [producer, consumer] = ends.map(|op| ShownOp::new(op, self.loaded).to_string());
            let other = if edge.producer.0 == part { edge.consumer.0 } else { edge.producer.0 };
            if seen.insert(ends.map(Op::id)) {
                neighbours.push(Neighbour { part: other, producer, consumer, why: self.why(edge) });
            }
        }
        neighbours
    }

    /// The verdicts that kept the two ends of an edge apart.
    fn why(&self, edge: &PartitionEdge<'_>) -> String {
        let ends = [(edge.producer, edge.consumer), (edge.consumer, edge.producer)];
        let said = ends.iter().flat_map(|((part, _), (_, op))| self.said_of.get(&(*part, op.id())));
        let verdicts = said.flatten().filter_map(|explanation| {
            let neighbour = explanation.neighbour?;
            let neighbour = match self.loaded.skipped_kinds.get(&neighbour.id) {
                Some(kind) if neighbour.kind == OpKind::Wildcard => {
                    format!("{} (op {})", plain(kind), neighbour.id)
                }
                _ => neighbour.to_string(),
            };
            let fusion = explanation.fusion;
            match explanation.verdict {
                FusionVerdict::Matched => None,
                FusionVerdict::Rejected(why) => {
                    Some(format!("the fusion `{fusion}` refused {neighbour}: {why}"))
                }
                _ => Some(format!("the fusion `{fusion}` takes no {neighbour}")),
            }
        });
        let mut verdicts: Vec<String> = verdicts.collect();
        verdicts.dedup();
        match &verdicts[..] {
            [] => format!("no fusion starts at {} or at {}", edge.producer.1.kind(), edge.consumer.1.kind()),
            verdicts => verdicts.join("; "),
        }
    }
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
    loaded: &Loaded,
    partitions: &[Partition],
    known: &BTreeMap<TensorId, LogicalTensor>,
    names: &TensorNames,
) -> (Vec<Node>, Vec<Edge>) {
    let graph = &loaded.graph;
    let labels = Labels::new(graph, names);
    let mut nodes = Vec::new();
    let mut makers: HashMap<TensorId, usize> = HashMap::new();
    let mut ops = Vec::new();
    for partition in partitions {
        for op in partition.ops() {
            makers.extend(op.outputs().iter().map(|output| (output.id(), nodes.len())));
            ops.push((nodes.len(), op));
            let shown = ShownOp::new(op, loaded);
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
    for input in graph.inputs() {
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
    for output in graph.outputs() {
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

/// A text from a graph, without characters that control a terminal, change the direction of writing, or are
/// not allowed in XML.
pub(super) fn plain(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}
