//! What there is to show of a graph, as data: its partitions and their plans, nodes and edges of a picture.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use sterna::{
    Engine, Explanation, FusionVerdict, Graph, InPlacePair, Level, LogicalTensor, Op, OpRef, Partition,
    PlanSummary, Policy, Schema, TensorId, UNKNOWN_DIM,
};

use crate::report::PortReport;

/// A graph, looked at.
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

/// A partition.
pub(super) struct Part {
    pub(super) id: usize,
    /// Kinds, and ids, of its ops.
    pub(super) ops: Vec<OpRef>,
    /// What the graph calls its ops.
    pub(super) names: Vec<String>,
    pub(super) inputs: Vec<PortReport>,
    pub(super) outputs: Vec<PortReport>,
    pub(super) fate: Fate,
    pub(super) neighbours: Vec<Neighbour>,
}

/// What becomes of a partition.
pub(super) enum Fate {
    Compiled {
        plan: PlanSummary,
        in_place: Vec<InPlacePair>,
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
    /// Who makes the tensor, and who uses it.
    pub(super) producer: OpRef,
    pub(super) consumer: OpRef,
    /// Why the two are not in one partition.
    pub(super) why: String,
}

/// What the picture shows as a box.
pub(super) enum Node {
    Op { part: usize, op: OpRef, name: String },
    Input { tensor: TensorId, property: &'static str },
    Output { tensor: TensorId },
}

/// A tensor on its way from one node to another, by index.
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// What the consumer calls it, and its type and shape.
    pub(super) label: String,
}

impl Inspection {
    pub(super) fn new(source: &str, graph: &Graph, threads: Option<usize>) -> Result<Self> {
        let engine = match threads {
            Some(threads) => Engine::builder().threads(threads).build(),
            None => Engine::new(),
        };
        let partitions = graph.partitions(Policy::Fusion)?;
        let wiring = Wiring::new(&partitions);
        let explanations = graph.explain()?;
        // What is known of tensors: as the graph has them, and better where a partition was compiled.
        let mut known: BTreeMap<TensorId, LogicalTensor> = BTreeMap::new();
        let mut parts = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let mut part = looked_at(partition, &engine, &mut known, graph)?;
            part.neighbours = wiring.neighbours(part.id, &explanations);
            parts.push(part);
        }
        let (nodes, edges) = drawn(graph, &partitions, &known);
        Ok(Self {
            source: plain(source),
            level: engine.level(),
            threads: engine.threads(),
            parts,
            nodes,
            edges,
        })
    }

    /// How many ops the graph has.
    pub(super) fn ops(&self) -> usize {
        self.parts.iter().map(|part| part.ops.len()).sum()
    }

    pub(super) fn unsupported(&self) -> usize {
        self.parts.iter().filter(|part| part.is_unsupported()).count()
    }

    /// One sentence for each partition that cannot be compiled as the graph describes it.
    pub(super) fn failures(&self) -> Vec<String> {
        let failure = |part: &Part| match &part.fate {
            Fate::Failed(why) => Some(format!("partition {}: {why}", part.id)),
            _ => None,
        };
        self.parts.iter().filter_map(failure).collect()
    }

    /// One sentence for each partition whose shapes are open.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |part: &Part| match &part.fate {
            Fate::Open(why) => Some(format!("partition {}: {why}", part.id)),
            _ => None,
        };
        self.parts.iter().filter_map(note).collect()
    }
}

impl Part {
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self.fate, Fate::Unsupported(_))
    }

    /// What it is, in a few words.
    pub(super) fn headline(&self) -> String {
        let ops = match self.ops.len() {
            1 => "1 op".into(),
            ops => format!("{ops} ops"),
        };
        match &self.fate {
            Fate::Compiled { .. } if self.ops.len() > 1 => format!("{ops} fused"),
            Fate::Compiled { .. } => ops,
            Fate::Open(_) | Fate::Failed(_) => format!("{ops}, not compiled"),
            Fate::Unsupported(_) => format!("{ops}, not supported"),
        }
    }
}

/// Compiles a partition, if it can be, and tells.
fn looked_at(
    partition: &Partition,
    engine: &Engine,
    known: &mut BTreeMap<TensorId, LogicalTensor>,
    graph: &Graph,
) -> Result<Part> {
    let inputs = partition
        .inputs()
        .iter()
        .map(|port| known.get(&port.id()).map_or_else(|| in_memory(port), |known| Ok(known.clone())))
        .collect::<Result<Vec<LogicalTensor>>>()?;
    let mut outputs = partition.outputs().to_vec();
    let unknown = inputs.iter().find(|input| input.known_dims().is_none());
    let fate = match (partition.unsupported_reason(), unknown) {
        (Some(reason), _) => Fate::Unsupported(reason),
        (None, Some(input)) if graph.inputs().iter().any(|given| given.id() == input.id()) => {
            Fate::Open(format!(
                "the shape of tensor {0} is not known; give it with --override-shape {0}=...",
                input.id()
            ))
        }
        (None, Some(input)) => {
            Fate::Open(format!("the shape of tensor {} is not known before it is computed", input.id()))
        }
        (None, None) => match partition.compile(engine, &inputs, &outputs) {
            Ok(compiled) => {
                outputs = compiled.outputs().to_vec();
                Fate::Compiled { plan: compiled.plan(), in_place: compiled.inplace_ports().to_vec() }
            }
            Err(error) => Fate::Failed(error.to_string()),
        },
    };
    let part = Part {
        id: partition.id(),
        ops: partition.ops().iter().map(op_ref).collect(),
        names: partition.ops().iter().map(|op| plain(op.name())).collect(),
        inputs: inputs.iter().map(PortReport::of).collect(),
        outputs: outputs.iter().map(PortReport::of).collect(),
        fate,
        neighbours: Vec::new(),
    };
    known.extend(inputs.into_iter().chain(outputs).map(|tensor| (tensor.id(), tensor)));
    Ok(part)
}

/// A tensor as `sterna run` would lay it out: row by row, where the graph leaves that open.
fn in_memory(port: &LogicalTensor) -> Result<LogicalTensor> {
    Ok(match (port.known_dims(), port.strides()) {
        (Some(dims), None) => {
            LogicalTensor::strided(port.id(), port.data_type(), dims)?.with_property(port.property())?
        }
        _ => port.clone(),
    })
}

/// A tensor that leads from one partition to another.
struct Link<'a> {
    producer: (usize, &'a Op),
    consumer: (usize, &'a Op),
}

/// The tensors between partitions.
struct Wiring<'a> {
    links: Vec<Link<'a>>,
    part_of: HashMap<usize, usize>,
}

impl<'a> Wiring<'a> {
    fn new(partitions: &'a [Partition]) -> Self {
        let ops = || partitions.iter().flat_map(|part| part.ops().iter().map(move |op| (part.id(), op)));
        let makers: HashMap<TensorId, (usize, &Op)> =
            ops().flat_map(|(part, op)| op.outputs().iter().map(move |out| (out.id(), (part, op)))).collect();
        let mut links = Vec::new();
        for (part, op) in ops() {
            for input in op.inputs() {
                let Some(&producer) = makers.get(&input.id()) else { continue };
                if producer.0 != part {
                    links.push(Link { producer, consumer: (part, op) });
                }
            }
        }
        Self { links, part_of: ops().map(|(part, op)| (op.id(), part)).collect() }
    }

    /// The neighbours of a partition, and why they are not part of it.
    fn neighbours(&self, part: usize, explanations: &[Explanation]) -> Vec<Neighbour> {
        let mut neighbours: Vec<Neighbour> = Vec::new();
        for link in &self.links {
            let (producer, consumer) = (op_ref(link.producer.1), op_ref(link.consumer.1));
            let other = match (link.producer.0 == part, link.consumer.0 == part) {
                (true, _) => link.consumer.0,
                (_, true) => link.producer.0,
                _ => continue,
            };
            if neighbours.iter().any(|known| known.producer == producer && known.consumer == consumer) {
                continue;
            }
            let why = self.why(link, explanations);
            neighbours.push(Neighbour { part: other, producer, consumer, why });
        }
        neighbours
    }

    /// The verdicts that kept the two ends of a link apart.
    fn why(&self, link: &Link<'_>, explanations: &[Explanation]) -> String {
        let ends = [(link.producer, link.consumer), (link.consumer, link.producer)];
        let verdicts = explanations.iter().filter_map(|explanation| {
            let is_on = ends.iter().any(|((part, _), (_, op))| {
                self.part_of.get(&explanation.seed.id) == Some(part)
                    && explanation.neighbour == Some(op_ref(op))
            });
            let neighbour = explanation.neighbour?;
            let fusion = explanation.fusion;
            match explanation.verdict {
                _ if !is_on => None,
                FusionVerdict::Matched => None,
                FusionVerdict::NoMatch => Some(format!("the fusion `{fusion}` takes no {neighbour}")),
                FusionVerdict::Rejected(why) => {
                    Some(format!("the fusion `{fusion}` refused {neighbour}: {why}"))
                }
            }
        });
        let mut verdicts: Vec<String> = verdicts.collect();
        verdicts.dedup();
        match &verdicts[..] {
            [] => format!("no fusion starts at {} or at {}", link.producer.1.kind(), link.consumer.1.kind()),
            verdicts => verdicts.join("; "),
        }
    }
}

fn op_ref(op: &Op) -> OpRef {
    OpRef { kind: op.kind(), id: op.id() }
}

/// What the schema says of an input of an op.
fn port(op: &Op, index: usize) -> Option<&'static sterna::Port> {
    let ports = Schema::of(op.kind()).inputs;
    // The last port stands for all further ones.
    ports.get(index).or(ports.last())
}

/// The nodes and edges of the picture.
fn drawn(
    graph: &Graph,
    partitions: &[Partition],
    known: &BTreeMap<TensorId, LogicalTensor>,
) -> (Vec<Node>, Vec<Edge>) {
    let mut nodes = Vec::new();
    let mut makers: HashMap<TensorId, usize> = HashMap::new();
    let mut ops = Vec::new();
    for partition in partitions {
        for op in partition.ops() {
            makers.extend(op.outputs().iter().map(|output| (output.id(), nodes.len())));
            ops.push((nodes.len(), op));
            nodes.push(Node::Op { part: partition.id(), op: op_ref(op), name: plain(op.name()) });
        }
    }
    for input in graph.inputs() {
        let property = if input.property().name() == "undef" { "" } else { input.property().name() };
        makers.insert(input.id(), nodes.len());
        nodes.push(Node::Input { tensor: input.id(), property });
    }
    let mut edges = Vec::new();
    let shape_of = |tensor: &LogicalTensor| type_and_shape(known.get(&tensor.id()).unwrap_or(tensor));
    for (to, op) in ops {
        for (index, input) in op.inputs().iter().enumerate() {
            let name = port(op, index).map_or("", |port| port.name);
            if let Some(&from) = makers.get(&input.id()) {
                edges.push(Edge { from, to, label: format!("{name} {}", shape_of(input)) });
            }
        }
    }
    for output in graph.outputs() {
        if let Some(&from) = makers.get(&output.id()) {
            edges.push(Edge { from, to: nodes.len(), label: shape_of(output) });
            nodes.push(Node::Output { tensor: output.id() });
        }
    }
    (nodes, edges)
}

/// A type and a shape, such as `f32 8×128`.
fn type_and_shape(tensor: &LogicalTensor) -> String {
    let dim = |&dim: &i64| if dim == UNKNOWN_DIM { "?".into() } else { dim.to_string() };
    let shape = match tensor.dims() {
        None => "of unknown rank".into(),
        Some([]) => "scalar".into(),
        Some(dims) => dims.iter().map(dim).collect::<Vec<String>>().join("×"),
    };
    format!("{} {shape}", tensor.data_type())
}

/// A text of somebody else's without what controls a terminal, turns the direction of writing, or cannot stand in XML.
fn plain(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}
