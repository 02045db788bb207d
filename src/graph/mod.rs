//! The description of a graph: ops on logical tensors. Pure data, no memory.

pub(crate) mod attention;
pub(crate) mod attention_backward;
mod attention_heads;
mod attention_pages;
pub(crate) mod attention_positions;
mod attention_sinks;
mod attention_stored;
pub(crate) mod axis;
pub(crate) mod builder;
mod extensions;
pub(crate) mod function;
pub(crate) mod infer;
pub(crate) mod interpolate;
#[cfg(feature = "json")]
pub(crate) mod json;
pub(crate) mod logical_tensor;
pub(crate) mod lookup;
pub(crate) mod masking;
pub(crate) mod model;
pub(crate) mod op;
mod op_sequence;
mod op_set;
pub(crate) mod paged;
pub(crate) mod resolve;
pub(crate) mod row;
pub(crate) mod schema;
pub(crate) mod verify;
pub(crate) mod windows;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use self::logical_tensor::LogicalTensor;
use self::op::Op;
use crate::error::{Direction, GraphFault, Mention, Result};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{EngineKind, FpMathMode};
use crate::types::rewrite::Rewrite;

/// Ops, linked by the ids of their tensors.
///
/// A graph is built op by op, fixed by [`finalize`](Graph::finalize), and then gives its
/// [partitions](Graph::partitions). A tensor that no op produces is an input of the graph; one that no op
/// consumes is an output.
///
/// ```
/// use sterna::{DataType, Graph, LogicalTensor, Op, Policy};
/// let dense = |id, data_type| LogicalTensor::strided(id, data_type, &[2, 3]);
/// let mut graph = Graph::new();
/// graph.add_op(Op::select(
///     0,
///     dense(0, DataType::Boolean)?,
///     dense(1, DataType::F32)?,
///     dense(2, DataType::F32)?,
///     dense(3, DataType::F32)?,
/// ))?;
/// graph.finalize()?;
/// assert_eq!(graph.partitions(Policy::Fusion)?.len(), 1);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Graph {
    ops: Vec<Op>,
    ids: Arc<FxHashSet<OpId>>,
    engine_kind: EngineKind,
    fpmath: FpMath,
    /// The rewrites that are turned off.
    without: Vec<Rewrite>,
    links: Option<Arc<Links>>,
}

/// How far a graph allows arithmetic to be relaxed. No kernel makes use of it: arithmetic on f32 is f32
/// whatever the mode. Compiled partitions of graphs with different modes are nevertheless different.
///
/// ```
/// use sterna::{FpMath, FpMathMode, Graph};
/// let mut graph = Graph::new();
/// graph.set_fpmath(FpMath::new(FpMathMode::Bf16))?;
/// assert_eq!(graph.fpmath().mode, FpMathMode::Bf16);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FpMath {
    /// The mode.
    pub mode: FpMathMode,
    /// True if it also covers integer arithmetic.
    pub apply_to_int: bool,
}

impl FpMath {
    /// A mode that covers floating-point arithmetic alone.
    #[must_use]
    pub fn new(mode: FpMathMode) -> Self {
        Self { mode, apply_to_int: false }
    }

    /// Sets whether the mode also covers integer arithmetic.
    #[must_use]
    pub fn apply_to_int(self, apply_to_int: bool) -> Self {
        Self { apply_to_int, ..self }
    }
}

impl Default for FpMath {
    fn default() -> Self {
        Self::new(FpMathMode::Strict)
    }
}

/// Results of `finalize`.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    /// Indices of the ops in a run order; among ops that can run, the smallest id comes first.
    pub(crate) order: Vec<usize>,
    /// The op that produces a tensor.
    pub(crate) producer: FxHashMap<TensorId, usize>,
    /// The ops that consume a tensor, each listed once.
    pub(crate) consumers: FxHashMap<TensorId, OpIndices>,
}

/// Indices of ops, mostly of few.
pub(crate) type OpIndices = SmallVec<[usize; 4]>;

impl Graph {
    /// An empty graph for a CPU, under strict floating-point arithmetic.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an op after checking it against its [schema](crate::Schema) row. Attributes with a default get it
    /// unless they are set. Shapes are checked when a partition is compiled.
    ///
    /// # Errors
    ///
    /// [`Error::Op`](crate::Error::Op) if the op does not fit its row; [`GraphFault::DuplicateOp`] if the id
    /// is taken; [`GraphFault::Finalized`] after `finalize`.
    pub fn add_op(&mut self, mut op: Op) -> Result<()> {
        self.check_open()?;
        verify::verify(&mut op)?;
        if !Arc::make_mut(&mut self.ids).insert(op.id()) {
            return Err(GraphFault::DuplicateOp(op.op_ref()).into());
        }
        self.ops.push(op);
        Ok(())
    }

    /// Sets the floating-point math mode that the graph carries.
    ///
    /// # Errors
    ///
    /// [`GraphFault::Finalized`] after `finalize`.
    pub fn set_fpmath(&mut self, fpmath: FpMath) -> Result<()> {
        self.check_open()?;
        self.fpmath = fpmath;
        Ok(())
    }

    /// The same graph with another math mode.
    pub(crate) fn with_fpmath(self, fpmath: FpMath) -> Self {
        Self { fpmath, ..self }
    }

    /// Turns a [rewrite](Rewrite) on or off for later calls of [`partitions`](Graph::partitions) and
    /// [`explain`](Graph::explain). All are on at first. The setting is no part of what the graph describes:
    /// it may change after [`finalize`](Graph::finalize), and JSON and equality leave it out.
    ///
    /// ```
    /// use sterna::{Graph, Rewrite};
    /// let mut graph = Graph::new();
    /// for &rewrite in Rewrite::ALL {
    ///     graph.set_rewrite(rewrite, false);
    ///     assert!(!graph.has_rewrite(rewrite));
    /// }
    /// ```
    pub fn set_rewrite(&mut self, rewrite: Rewrite, is_on: bool) {
        self.without.retain(|&other| other != rewrite);
        if !is_on {
            self.without.push(rewrite);
        }
    }

    /// True if a [rewrite](Rewrite) is on.
    #[must_use]
    pub fn has_rewrite(&self, rewrite: Rewrite) -> bool {
        !self.without.contains(&rewrite)
    }

    /// Fixes the graph: links ops by tensor id and finds a run order. A second call does nothing.
    ///
    /// All ops describe a tensor in the same way: type, dims, layout, strides and property.
    ///
    /// # Errors
    ///
    /// [`GraphFault`] for a tensor with two producers, two descriptions of one tensor, and a cycle.
    pub fn finalize(&mut self) -> Result<()> {
        if self.links.is_none() {
            check_mentions(&self.ops)?;
            self.links = Some(Arc::new(link(&self.ops)?));
        }
        Ok(())
    }

    /// True if [`finalize`](Graph::finalize) has succeeded.
    #[must_use]
    pub fn is_finalized(&self) -> bool {
        self.links.is_some()
    }

    /// The ops, in the order in which they were added.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The floating-point math mode that the graph carries.
    #[must_use]
    pub fn fpmath(&self) -> FpMath {
        self.fpmath
    }

    /// The same graph, finalized, with other ops in the place of some: those that a function gives for an
    /// index and the op there. If they have the ids, kinds and tensors of those before, and only describe
    /// tensors in another way or have other attributes, the graph is not linked anew.
    ///
    /// ```
    /// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind};
    /// let exp = |rows| -> sterna::Result<Op> {
    ///     let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[rows]);
    ///     Ok(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))
    /// };
    /// let mut graph = Graph::new();
    /// graph.add_op(exp(2)?)?;
    /// graph.finalize()?;
    /// let longer = exp(3)?;
    /// let exchanged = graph.exchanged(|_, _| Some(longer.clone()))?;
    /// assert_eq!(exchanged.outputs()[0].dims(), Some(&[3][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add_op`](Self::add_op) and [`finalize`](Self::finalize) have them.
    pub fn exchanged(&self, mut with: impl FnMut(usize, &Op) -> Option<Op>) -> Result<Self> {
        let mut others = Vec::new();
        for (index, op) in self.ops.iter().enumerate() {
            if let Some(mut other) = with(index, op) {
                verify::verify(&mut other)?;
                others.push((index, other));
            }
        }
        if self.is_finalized() && others.iter().all(|(index, other)| other.is_linked_as(&self.ops[*index])) {
            return self.exchanged_alike(others);
        }
        let (ids, mut ops) = (Arc::default(), self.ops.clone());
        for (index, op) in others {
            ops[index] = op;
        }
        let mut graph = Self { ops: Vec::with_capacity(ops.len()), ids, links: None, ..self.clone() };
        ops.into_iter().try_for_each(|op| graph.add_op(op))?;
        graph.finalize()?;
        Ok(graph)
    }

    /// The kind of engine that the graph's JSON names: the device of the dump. Partitions run on CPU whatever
    /// it is.
    #[must_use]
    pub fn engine_kind(&self) -> EngineKind {
        self.engine_kind
    }

    /// The tensors that no op produces, in the order in which the ops name them.
    #[must_use]
    pub fn inputs(&self) -> Vec<&LogicalTensor> {
        let produced = ids_of(&self.ops, Op::outputs);
        first_mentions(&self.ops, Op::inputs, &produced)
    }

    /// The tensors that no op consumes, in the order in which the ops name them.
    #[must_use]
    pub fn outputs(&self) -> Vec<&LogicalTensor> {
        let consumed = ids_of(&self.ops, Op::inputs);
        first_mentions(&self.ops, Op::outputs, &consumed)
    }

    /// A finalized graph of other ops, which are known to fit their schema rows; all else is as here.
    pub(crate) fn with_ops(&self, ops: Vec<Op>) -> Result<Self> {
        let ids: FxHashSet<OpId> = ops.iter().map(Op::id).collect();
        let (ids, without) = (Arc::new(ids), self.without.clone());
        let (engine_kind, fpmath) = (self.engine_kind, self.fpmath);
        let mut graph = Self { ops, ids, engine_kind, fpmath, without, links: None };
        graph.finalize()?;
        Ok(graph)
    }

    /// True if two graphs are cut in the same way as far as their ops are the same.
    pub(crate) fn has_setting_of(&self, other: &Self) -> bool {
        self.fpmath == other.fpmath && self.without == other.without
    }

    /// The results of `finalize`.
    pub(crate) fn links(&self) -> Result<&Links> {
        self.links.as_deref().ok_or_else(|| GraphFault::NotFinalized.into())
    }

    /// True if two graphs have ops of the same ids and kinds, on tensors of the same ids, as one was made of
    /// the other.
    pub(crate) fn has_links_of(&self, other: &Self) -> bool {
        let both = self.links.as_ref().zip(other.links.as_ref());
        both.is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// As [`exchanged`](Self::exchanged), with ops that are known to fit their schema rows, and to have the
    /// ids, kinds and tensors of those before.
    pub(crate) fn exchanged_alike(&self, others: Vec<(usize, Op)>) -> Result<Self> {
        debug_assert!(others.iter().all(|(index, other)| other.is_linked_as(&self.ops[*index])));
        let links = self.links()?;
        let (mut graph, indices) = (self.clone(), others.iter().map(|other| other.0).collect::<Vec<_>>());
        for (index, op) in others {
            graph.ops[index] = op;
        }
        let differs = |(was, is): (&LogicalTensor, &LogicalTensor)| {
            let id = is.id();
            let consumers = links.consumers.get(&id).into_iter().flatten();
            let users = links.producer.get(&id).into_iter().chain(consumers);
            let mut mentions = users.flat_map(|&user| ports(&graph.ops[user]));
            was != is && mentions.any(|other| other.id() == id && is.difference(other).is_some())
        };
        let pairs = |&index: &usize| ports(&self.ops[index]).zip(ports(&graph.ops[index]));
        if indices.iter().flat_map(pairs).any(differs) {
            check_mentions(&graph.ops)?;
        }
        Ok(graph)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_finalized() { Err(GraphFault::Finalized.into()) } else { Ok(()) }
    }
}

/// Graphs are equal if they have equal ops in the same order, the same math mode and the same kind of engine.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.ops == other.ops && self.fpmath == other.fpmath && self.engine_kind == other.engine_kind
    }
}

/// The tensors of an op.
fn ports(op: &Op) -> impl Iterator<Item = &LogicalTensor> {
    op.inputs().iter().chain(op.outputs())
}

fn ids_of(ops: &[Op], ports: fn(&Op) -> &[LogicalTensor]) -> FxHashSet<TensorId> {
    ops.iter().flat_map(ports).map(LogicalTensor::id).collect()
}

/// The tensors at some ports, each once, without those with given ids.
fn first_mentions<'a>(
    ops: &'a [Op],
    ports: fn(&Op) -> &[LogicalTensor],
    without: &FxHashSet<TensorId>,
) -> Vec<&'a LogicalTensor> {
    let mut seen = FxHashSet::default();
    let tensors = ops.iter().flat_map(ports);
    tensors.filter(|tensor| !without.contains(&tensor.id()) && seen.insert(tensor.id())).collect()
}

fn link(ops: &[Op]) -> Result<Links> {
    let mut producer = FxHashMap::with_capacity_and_hasher(ops.len(), FxBuildHasher);
    let mut consumers: FxHashMap<TensorId, OpIndices> =
        FxHashMap::with_capacity_and_hasher(2 * ops.len(), FxBuildHasher);
    for (index, op) in ops.iter().enumerate() {
        for output in op.outputs() {
            if let Some(first) = producer.insert(output.id(), index) {
                let (tensor, first) = (output.id(), ops[first].op_ref());
                return Err(GraphFault::TwoProducers { tensor, first, second: op.op_ref() }.into());
            }
        }
        for input in op.inputs() {
            let ops = consumers.entry(input.id()).or_default();
            if ops.last() != Some(&index) {
                ops.push(index);
            }
        }
    }
    let order = order(ops, &producer, &consumers)?;
    Ok(Links { order, producer, consumers })
}

/// Checks that all mentions of a tensor are equal.
fn check_mentions(ops: &[Op]) -> Result<()> {
    let mut firsts: FxHashMap<TensorId, (&Op, Direction, usize)> =
        FxHashMap::with_capacity_and_hasher(2 * ops.len(), FxBuildHasher);
    for op in ops {
        for (direction, ports) in [(Direction::Input, op.inputs()), (Direction::Output, op.outputs())] {
            for (index, tensor) in ports.iter().enumerate() {
                let first = *firsts.entry(tensor.id()).or_insert((op, direction, index));
                if let Some(what) = mentioned(first).difference(tensor) {
                    return Err(mentions_differ(what, first, (op, direction, index)).into());
                }
            }
        }
    }
    Ok(())
}

/// The tensor at a port.
fn mentioned((op, direction, index): (&Op, Direction, usize)) -> &LogicalTensor {
    match direction {
        Direction::Input => &op.inputs()[index],
        Direction::Output => &op.outputs()[index],
    }
}

#[cold]
fn mentions_differ(
    what: &'static str,
    first: (&Op, Direction, usize),
    second: (&Op, Direction, usize),
) -> GraphFault {
    let mention = |at: (&Op, Direction, usize)| {
        let (op, direction, index) = at;
        let port = match direction {
            Direction::Input => op.input_ref(index),
            Direction::Output => op.output_ref(index),
        };
        Box::new(Mention { op: op.op_ref(), port, says: mentioned(at).part(what) })
    };
    let tensor = mentioned(first).id();
    GraphFault::MentionsDiffer { tensor, what, first: mention(first), second: mention(second) }
}

/// Sorts the ops so that each comes after those whose results it uses.
fn order(
    ops: &[Op],
    producer: &FxHashMap<TensorId, usize>,
    consumers: &FxHashMap<TensorId, OpIndices>,
) -> Result<Vec<usize>> {
    let mut waiting_for = vec![0usize; ops.len()];
    let produced = consumers.iter().filter(|(tensor, _)| producer.contains_key(tensor));
    produced.flat_map(|(_, users)| users).for_each(|&user| waiting_for[user] += 1);
    let mut ready: BinaryHeap<Reverse<(OpId, usize)>> = BinaryHeap::new();
    ready.extend((0..ops.len()).filter(|&i| waiting_for[i] == 0).map(|i| Reverse((ops[i].id(), i))));

    let mut order = Vec::with_capacity(ops.len());
    while let Some(Reverse((_, index))) = ready.pop() {
        order.push(index);
        for consumer in ops[index].outputs().iter().filter_map(|output| consumers.get(&output.id())).flatten()
        {
            waiting_for[*consumer] -= 1;
            if waiting_for[*consumer] == 0 {
                ready.push(Reverse((ops[*consumer].id(), *consumer)));
            }
        }
    }
    match op_on_a_cycle(ops, producer, &waiting_for) {
        Some(index) => Err(GraphFault::Cycle(ops[index].op_ref()).into()),
        None => Ok(order),
    }
}

/// An op that depends on its own result, among those that cannot run.
fn op_on_a_cycle(ops: &[Op], producer: &FxHashMap<TensorId, usize>, waiting_for: &[usize]) -> Option<usize> {
    // An op that cannot run has a producer that cannot run; following producers leads to the cycle.
    let waits_on = |index: usize| {
        let producers = ops[index].inputs().iter().filter_map(|input| producer.get(&input.id()).copied());
        producers.into_iter().find(|&producer| waiting_for[producer] > 0)
    };
    let mut seen = FxHashSet::default();
    let mut at = waiting_for.iter().position(|&count| count > 0)?;
    while seen.insert(at) {
        at = waits_on(at)?;
    }
    Some(at)
}
