//! Which ops go together: from a graph to partitions.

mod attention;
mod attention_backward;
mod convexity;
pub(crate) mod fusion;
mod fusions;
mod grow;
pub(crate) mod matches;
mod moves;
mod op_graph;
pub(crate) mod pointwise;
mod products;
pub(crate) mod resized;
mod rewriting;
mod rows;
mod run_order;
mod signature;
mod sinks;

use std::sync::{Arc, OnceLock};

use rustc_hash::{FxHashMap, FxHashSet};

use self::fusion::{Accuracy, Explanation};
use self::fusions::FUSIONS;
use self::matches::Match;
use self::op_graph::OpGraph;
use self::rewriting::{RewrittenOps, UserGroup};
pub(crate) use self::signature::Signature;
use crate::error::Result;
use crate::graph::function::Function;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::graph::{FpMath, Graph};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::Policy;
use crate::types::labels::PartitionLabels;
use crate::types::rewrite::Rewrite;
use crate::types::shape;
use crate::types::trace::span;

/// Ops of a graph that run as one, or one op that no kernel runs.
///
/// A clone is the same partition. Its ports are the tensors that it shares with the rest of the graph, each
/// listed once.
///
/// ```
/// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind, Policy};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
/// let mut graph = Graph::new();
/// graph.add_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
/// graph.add_op(Op::new(1, OpKind::End).input(tensor(1)?))?;
/// graph.finalize()?;
/// for partition in graph.partitions(Policy::Fusion)? {
///     let kind = partition.ops()[0].kind();
///     assert_eq!(partition.is_supported(), kind == OpKind::Exp, "{:?}", partition.unsupported_reason());
/// }
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Partition {
    inner: Arc<PartitionInner>,
}

#[derive(Debug)]
struct PartitionInner {
    id: usize,
    ops: Vec<Op>,
    inputs: Vec<LogicalTensor>,
    outputs: Vec<LogicalTensor>,
    /// The match; `None` if no fusion took the ops.
    fused: Option<Match>,
    fpmath: FpMath,
    /// Made when it is asked for, as is what `labels` says.
    signature: OnceLock<Arc<Signature>>,
    labels: OnceLock<Arc<PartitionLabels>>,
    /// The ops that name the ports, if they are not those of the partition.
    port_ops: Option<Vec<Op>>,
    rewrites: Vec<Rewrite>,
    /// The same computation in the form in which it runs, with the same ports, if rewrites made one.
    rewritten: Option<Partition>,
}

impl Partition {
    /// A partition of one op, without a graph.
    ///
    /// # Errors
    ///
    /// As [`Graph::add_op`] and [`Graph::finalize`].
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor, Op, Partition};
    /// let scalar = |id, data_type| LogicalTensor::strided(id, data_type, &[]);
    /// let op = Op::select(
    ///     0,
    ///     scalar(0, DataType::Boolean)?,
    ///     scalar(1, DataType::U16)?,
    ///     scalar(2, DataType::U16)?,
    ///     scalar(3, DataType::U16)?,
    /// );
    /// assert!(Partition::from_op(op)?.is_supported());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn from_op(op: Op) -> Result<Self> {
        let mut graph = Graph::new();
        graph.add_op(op)?;
        graph.finalize()?;
        let mut partitions = graph.partitions(Policy::Debug)?;
        Ok(partitions.swap_remove(0))
    }

    /// The place of the partition among those of its graph, from 0.
    #[must_use]
    pub fn id(&self) -> usize {
        self.inner.id
    }

    /// The ops, in an order in which they can run.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.inner.ops
    }

    /// The tensors that the partition takes, in the order in which its ops mention them.
    #[must_use]
    pub fn inputs(&self) -> &[LogicalTensor] {
        &self.inner.inputs
    }

    /// The tensors that the partition gives, in the order in which its ops mention them.
    #[must_use]
    pub fn outputs(&self) -> &[LogicalTensor] {
        &self.inner.outputs
    }

    /// True if the partition can be compiled.
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.inner.fused.is_some()
    }

    /// How exact the partition is; `None` if the partition is not supported.
    #[must_use]
    pub fn accuracy(&self) -> Option<Accuracy> {
        let fused = self.inner.fused.as_ref();
        // The bits of a rewritten form are not those of the ops.
        fused.map(|of| if self.rewrites().is_empty() { of.accuracy() } else { Accuracy::Bounded })
    }

    /// The rewrites that the partition runs with, in the order in which they were applied. Its
    /// [ops](Self::ops) and ports are those of the graph nevertheless.
    ///
    /// A partition that is compiled for other dims than the graph says runs without rewrites.
    #[must_use]
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.inner.rewrites
    }

    /// The partition in the form in which it runs on inputs, which are given in the order of the ports. The
    /// rewritten form is made for the dims that the graph says.
    pub(crate) fn form_for(&self, inputs: &[&LogicalTensor]) -> &Self {
        let is_as_said = |(said, given): (&LogicalTensor, &&LogicalTensor)| {
            let (Some(said), Some(given)) = (said.raw_dims(), given.raw_dims()) else { return true };
            let is_same = |(&said, given): (&i64, &i64)| shape::known(said).is_none_or(|said| said == *given);
            said.len() == given.len() && said.iter().zip(given).all(is_same)
        };
        match &self.inner.rewritten {
            Some(form) if self.inputs().iter().zip(inputs).all(is_as_said) => form,
            _ => self,
        }
    }

    /// The roles of the ops; `None` if the partition is not supported.
    pub(crate) fn matched(&self) -> Option<&Match> {
        self.inner.fused.as_ref()
    }

    /// Why the partition cannot be compiled; `None` if it can.
    #[must_use]
    pub fn unsupported_reason(&self) -> Option<String> {
        let types = |tensors: &[LogicalTensor]| {
            tensors.iter().map(|tensor| tensor.data_type().name()).collect::<Vec<_>>().join(", ")
        };
        let reason = |op: &Op| match Function::of(op) {
            // The kind runs on other types.
            Some(_) => format!("{} on {} to {}", op.kind(), types(op.inputs()), types(op.outputs())),
            None => op.kind().name().to_owned(),
        };
        let reasons = || self.ops().iter().map(reason).collect::<Vec<_>>().join(", ");
        (!self.is_supported()).then(|| format!("no kernel runs {}", reasons()))
    }

    /// Its ops, and the names of its ports.
    pub(crate) fn labels(&self) -> &Arc<PartitionLabels> {
        self.inner.labels.get_or_init(|| {
            let PartitionInner { ops, inputs, outputs, port_ops, .. } = &*self.inner;
            Arc::new(labels(ops, port_ops.as_ref().unwrap_or(ops), inputs, outputs))
        })
    }

    /// The computation of the partition, without ids.
    pub(crate) fn signature(&self) -> &Signature {
        let PartitionInner { fpmath, ops, inputs, outputs, signature, .. } = &*self.inner;
        signature.get_or_init(|| Arc::new(Signature::new(*fpmath, ops, inputs, outputs)))
    }

    /// True if two partitions are known to be the same computation on the same tensors: their ops and ports
    /// are equal, and so are those of the form in which they run. What is made of one fits the other.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let (own, other) = (&*self.inner, &*other.inner);
        own.ops == other.ops
            && own.inputs == other.inputs
            && own.outputs == other.outputs
            && own.fused == other.fused
            && own.fpmath == other.fpmath
            && match (&own.rewritten, &other.rewritten) {
                (None, None) => true,
                (Some(own), Some(other)) => own.is_as(other),
                _ => false,
            }
    }

    /// The first ops of a graph in their order, for tests of lowerings.
    #[cfg(test)]
    pub(crate) fn of_first(graph: &Graph, ops: usize) -> Result<Self> {
        let group = grow::OpGroup { ops: (0..ops).collect(), fused: None };
        let homes: FxHashMap<OpId, usize> = graph.ops()[..ops].iter().map(|op| (op.id(), 0)).collect();
        let group = UserGroup { group, rewritten: None };
        Self::new(0, graph, &OpGraph::new(graph)?, group, &homes)
    }

    /// The partition of a group, where each op of the graph is known to be in one of the groups.
    fn new(
        id: usize,
        graph: &Graph,
        op_graph: &OpGraph<'_>,
        of: UserGroup,
        homes: &FxHashMap<OpId, usize>,
    ) -> Result<Self> {
        let UserGroup { group, rewritten } = of;
        let ops: Vec<Op> = group.ops.iter().map(|&op| op_graph.ops[op].clone()).collect();
        let links = graph.links()?;
        let is_inside = |op: usize| homes.get(&graph.ops()[op].id()) == Some(&id);
        // A tensor with a consumer outside is an output, and so is a tensor without any consumer.
        let leaves = |tensor: TensorId| match links.consumers.get(&tensor) {
            Some(consumers) => consumers.iter().any(|&op| !is_inside(op)),
            None => true,
        };
        let enters = |tensor: TensorId| !links.producer.get(&tensor).is_some_and(|&op| is_inside(op));
        let ports = |tensors: fn(&Op) -> &[LogicalTensor], is_port: &dyn Fn(TensorId) -> bool| {
            let mut seen = FxHashSet::default();
            let all = ops.iter().flat_map(tensors);
            all.filter(|tensor| is_port(tensor.id()) && seen.insert(tensor.id())).cloned().collect::<Vec<_>>()
        };
        let inputs = ports(Op::inputs, &enters);
        let outputs = ports(Op::outputs, &leaves);
        let whole = PartitionInner::new(id, ops, [inputs, outputs], group.fused, graph.fpmath());
        let rewritten = rewritten.map(|form| {
            let rewrites = form.rewrites.clone();
            (rewrites, Partition { inner: Arc::new(whole.rewritten(form)) })
        });
        let (rewrites, rewritten) = rewritten.unzip();
        let inner = PartitionInner { rewrites: rewrites.unwrap_or_default(), rewritten, ..whole };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl PartitionInner {
    /// Ops that run as they are.
    fn new(
        id: usize,
        ops: Vec<Op>,
        [inputs, outputs]: [Vec<LogicalTensor>; 2],
        fused: Option<Match>,
        fpmath: FpMath,
    ) -> Self {
        Self {
            id,
            ops,
            inputs,
            outputs,
            fused,
            fpmath,
            signature: OnceLock::new(),
            labels: OnceLock::new(),
            port_ops: None,
            rewrites: Vec::new(),
            rewritten: None,
        }
    }

    /// Other ops between the same ports.
    fn rewritten(&self, RewrittenOps { ops, fused, rewrites }: RewrittenOps) -> Self {
        let ports = [self.inputs.clone(), self.outputs.clone()];
        let form = Self::new(self.id, ops, ports, fused, self.fpmath);
        Self { port_ops: Some(self.ops.clone()), rewrites, ..form }
    }
}

/// The description of a partition for people, whose ports have the names that some ops give them.
fn labels(
    ops: &[Op],
    port_ops: &[Op],
    inputs: &[LogicalTensor],
    outputs: &[LogicalTensor],
) -> PartitionLabels {
    let (mut taken, mut given) = (FxHashMap::default(), FxHashMap::default());
    for op in port_ops {
        for (index, input) in op.inputs().iter().enumerate() {
            taken.entry(input.id()).or_insert_with(|| op.input_ref(index).name);
        }
        for (index, output) in op.outputs().iter().enumerate() {
            given.entry(output.id()).or_insert_with(|| op.output_ref(index).name);
        }
    }
    let name = |names: &FxHashMap<TensorId, &'static str>, port: &LogicalTensor| {
        names.get(&port.id()).copied().unwrap_or_default()
    };
    let of_inputs = inputs.iter().map(|port| name(&taken, port));
    let ports = of_inputs.chain(outputs.iter().map(|port| name(&given, port))).collect();
    let names = ops.iter().map(|op| op.name().to_owned()).collect();
    PartitionLabels { ops: ops.iter().map(|op| (op.kind(), op.id())).collect(), names, ports }
}

impl Graph {
    /// Cuts the graph into partitions, in an order in which they can run. An op that no kernel runs gets a
    /// separate partition that is [not supported](Partition::is_supported). Each call starts afresh.
    ///
    /// # Errors
    ///
    /// [`GraphFault::NotFinalized`](crate::GraphFault::NotFinalized) before [`finalize`](Graph::finalize).
    pub fn partitions(&self, policy: Policy) -> Result<Vec<Partition>> {
        span!("partition", ops = self.ops().len(), policy = policy.name());
        let op_graph = OpGraph::new(self)?;
        let groups = match policy {
            Policy::Fusion => rewriting::group(self, &op_graph, None)?,
            Policy::Debug => {
                let groups = grow::group(&op_graph, FUSIONS, false, None);
                groups.into_iter().map(|group| UserGroup { group, rewritten: None }).collect()
            }
        };
        let ids = |(id, group): (usize, &UserGroup)| {
            group.group.ops.iter().map(|&op| (op_graph.ops[op].id(), id)).collect::<Vec<_>>()
        };
        let homes: FxHashMap<OpId, usize> = groups.iter().enumerate().flat_map(ids).collect();
        let groups = groups.into_iter().enumerate();
        groups.map(|(id, group)| Partition::new(id, self, &op_graph, group, &homes)).collect()
    }

    /// The verdicts of every fusion on the ops of the graph under [`Policy::Fusion`], in the order of the
    /// decisions: why two neighbours share a partition or do not. Before them stand the
    /// [rewrites](crate::Rewrite) that were applied, and those that were taken back.
    ///
    /// If they do, [`Partition::accuracy`] says what becomes of the bits. With layout `any`, an op alone may
    /// settle another layout, and with it another order of additions. The bits are those of the ops with the
    /// layouts that the partition settled: those of its compiled inputs and outputs, and row-major ones for
    /// the tensors inside.
    ///
    /// # Errors
    ///
    /// As [`partitions`](Graph::partitions).
    pub fn explain(&self) -> Result<Vec<Explanation>> {
        let mut explanations = Vec::new();
        let mut explain = |explanation| explanations.push(explanation);
        rewriting::group(self, &OpGraph::new(self)?, Some(&mut explain))?;
        Ok(explanations)
    }
}
