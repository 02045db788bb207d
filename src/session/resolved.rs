//! A model for inputs of known shapes: the graph with the dims of every tensor.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::custom::{Helper, Helpers};
use super::links::LinkedPorts;
use crate::error::{Result, SessionFault};
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::graph::op::Op;
use crate::graph::resolve;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::Dims;

/// A graph that gives each output of a model in a tensor of its own.
pub(super) struct ResolvedGraph {
    pub(super) graph: Graph,
    pub(super) of: Arc<WholeOps>,
    /// The tensors that no op computes.
    given: Vec<LogicalTensor>,
    /// The tensors of the state behind a run.
    presents: Vec<LogicalTensor>,
}

impl ResolvedGraph {
    /// The tensors of the state behind a run, each with whether rows are added to it.
    pub(super) fn presents(&self) -> impl Iterator<Item = (&LogicalTensor, bool)> + Clone {
        self.presents.iter().zip(&self.of.states).map(|(present, pair)| (present, pair.append.is_some()))
    }
}

/// The ops of a model that run, and the tensors that a run gives.
pub(super) struct WholeOps {
    pub(super) ops: Vec<Op>,
    /// The tensor of each output of the model that is no state.
    pub(super) outputs: Vec<TensorId>,
    pub(super) states: Vec<StatePair>,
}

/// A tensor of the state before and behind a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StatePair {
    pub(super) past: TensorId,
    pub(super) present: TensorId,
    /// The op `Concat` that adds rows to the past along the axis on which the state grows, if the present is
    /// computed so.
    pub(super) append: Option<(OpId, usize)>,
}

/// The ops of a model, those that no output needs left out, with an op `Identity` for each output that no op
/// computes or that stands twice, and an op `End` for each that ops use. Outputs that links name are states.
pub(super) fn whole_ops(model: &Model, linked: &[LinkedPorts]) -> Result<WholeOps> {
    let links = model.graph().links()?;
    let in_order = links.order.iter().map(|&index| &model.graph().ops()[index]);
    let mut ops: Vec<Op> = in_order.filter(|op| op.kind() != OpKind::End).cloned().collect();
    let tensors = || model.graph().ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
    let after = |largest: Option<usize>| largest.map_or(0, |id| id.saturating_add(1));
    let of_ports = model.inputs().iter().chain(model.outputs()).map(|port| port.tensor.id().get());
    let mut next_tensor = after(tensors().map(|tensor| tensor.id().get()).chain(of_ports).max());
    let mut next_op = after(model.graph().ops().iter().map(|op| op.id().get()).max());

    let mut states: Vec<StatePair> = linked.iter().map(|link| state_pair(model, link)).collect();
    let mut outputs = Vec::new();
    // A tensor to which rows are added lies with the state; an output that is the same is a copy.
    let once = (0..states.len()).filter(|&state| is_once(&states, state));
    let mut given: Vec<TensorId> = once.map(|state| states[state].present).collect();
    for (index, port) in model.outputs().iter().enumerate() {
        let state = linked.iter().position(|link| link.output == index);
        if state.is_some_and(|state| is_once(&states, state)) {
            continue;
        }
        let id = port.tensor.id();
        let is_computed = links.producer.contains_key(&id);
        let tensor = if is_computed && !given.contains(&id) {
            id
        } else {
            let said = tensors().find(|tensor| tensor.id() == id).unwrap_or(&port.tensor).clone();
            let copy = LogicalTensor::unknown(next_tensor, said.data_type());
            let copied = copy.id();
            ops.push(Op::new(next_op, OpKind::Identity).input(said).output(copy));
            (next_tensor, next_op) = (next_tensor + 1, next_op + 1);
            copied
        };
        given.push(tensor);
        match state {
            Some(state) => (states[state].present, states[state].append) = (tensor, None),
            None => outputs.push(tensor),
        }
    }
    let wanted: Vec<TensorId> =
        outputs.iter().copied().chain(states.iter().map(|state| state.present)).collect();
    let mut ops = live_ops(ops, &wanted);
    let used: FxHashSet<TensorId> = ops.iter().flat_map(Op::inputs).map(LogicalTensor::id).collect();
    for id in given.iter().filter(|id| used.contains(id)) {
        let said = ops.iter().flat_map(Op::outputs).find(|tensor| tensor.id() == *id).cloned();
        ops.extend(said.map(|said| Op::new(next_op, OpKind::End).input(said)));
        next_op += 1;
    }
    Ok(WholeOps { ops, outputs, states })
}

/// True if a state grows by an op that no other state has.
fn is_once(states: &[StatePair], state: usize) -> bool {
    let append = states[state].append;
    append.is_some() && states.iter().position(|other| other.append == append) == Some(state)
}

/// The tensor of the state that a link names, and the op that adds rows to it.
fn state_pair(model: &Model, link: &LinkedPorts) -> StatePair {
    let past = model.inputs()[link.input].tensor.id();
    let present = model.outputs()[link.output].tensor.id();
    let producer = |id: TensorId| {
        let index = model.graph().links().ok()?.producer.get(&id)?;
        model.graph().ops().get(*index)
    };
    // The tensor of which others are copies.
    let source = |mut id: TensorId| {
        while let Some(op) = producer(id).filter(|op| op.kind() == OpKind::Identity) {
            id = op.inputs()[0].id();
        }
        id
    };
    let is_on_axis = |op: &Op| {
        let axis = op.s64_attr(Attr::Axis).unwrap_or(0);
        let rank = model.inputs()[link.input].tensor.rank().unwrap_or(0) as i64;
        let from_start = if axis < 0 { axis + rank } else { axis };
        link.axis.is_some_and(|own| own as i64 == from_start)
    };
    let appends = |op: &&Op| {
        let [first, others @ ..] = op.inputs() else { return false };
        let is_new = |input: &LogicalTensor| source(input.id()) != past;
        op.kind() == OpKind::Concat
            && source(first.id()) == past
            && others.iter().all(is_new)
            && is_on_axis(op)
    };
    let grown = source(present);
    match (producer(grown).filter(appends), link.axis) {
        (Some(op), Some(axis)) => StatePair { past, present: grown, append: Some((op.id(), axis)) },
        _ => StatePair { past, present, append: None },
    }
}

/// The ops on which outputs hang, in order.
fn live_ops(ops: Vec<Op>, outputs: &[TensorId]) -> Vec<Op> {
    let mut wanted: FxHashSet<TensorId> = outputs.iter().copied().collect();
    let mut live = Vec::with_capacity(ops.len());
    for op in ops.into_iter().rev() {
        if op.outputs().iter().any(|output| wanted.contains(&output.id())) {
            wanted.extend(op.inputs().iter().map(LogicalTensor::id));
            live.push(op);
        }
    }
    live.reverse();
    live
}

impl ResolvedGraph {
    /// True if ops run on tensors of the same ids.
    fn are_linked_as(&self, of: &Arc<WholeOps>, given: &[LogicalTensor], graph: &Graph) -> bool {
        let own = &self.of;
        let linked = |(was, is): (&Op, &Op)| is.is_same(was) || is.is_linked_as(was);
        let are_same = || {
            own.states == of.states
                && own.ops.len() == of.ops.len()
                && own.ops.iter().zip(&of.ops).all(linked)
        };
        self.graph.has_setting_of(graph)
            && (Arc::ptr_eq(own, of) || are_same())
            && self.given.iter().map(LogicalTensor::id).eq(given.iter().map(LogicalTensor::id))
    }

    /// The graph and the presents for ops on the same tensors. An op whose inputs are those of the last run
    /// has its results, which follow from nothing else.
    fn again(
        &self,
        model: &Model,
        of: &WholeOps,
        given: &[LogicalTensor],
        helpers: &Helpers,
    ) -> Result<(Graph, Vec<LogicalTensor>)> {
        let of_given = given.iter().zip(&self.given).filter(|(is, was)| is != was);
        let mut changed: FxHashMap<TensorId, LogicalTensor> =
            of_given.map(|(is, _)| (is.id(), is.clone())).collect();
        let mut others = Vec::new();
        for (index, (said, was)) in of.ops.iter().zip(self.graph.ops()).enumerate() {
            let helper = helpers.custom_of(model, said);
            let is_changed = |input: &LogicalTensor| changed.contains_key(&input.id());
            let is_as_before = *said == self.of.ops[index] && !was.inputs().iter().any(is_changed);
            // An op of the caller's may say other dims each time.
            if is_as_before && helper.is_none() {
                continue;
            }
            let input = |input: &LogicalTensor| changed.get(&input.id()).unwrap_or(input).clone();
            let inputs: Vec<LogicalTensor> = was.inputs().iter().map(input).collect();
            let results = results(said, &inputs, helper)?;
            let of_results = results.iter().zip(was.outputs()).filter(|(is, was)| is != was);
            changed.extend(of_results.map(|(is, _)| (is.id(), is.clone())));
            others.push((index, of.resolved(said, inputs, results)));
        }
        let present = |present: &LogicalTensor| changed.get(&present.id()).unwrap_or(present).clone();
        let presents = self.presents.iter().map(present).collect();
        Ok((self.graph.exchanged_alike(others)?, presents))
    }
}

impl WholeOps {
    /// The same with other ops in the place of its ops.
    pub(super) fn with(&self, ops: Vec<Op>) -> Self {
        Self { ops, outputs: self.outputs.clone(), states: self.states.clone() }
    }

    /// An op on tensors whose dims are known.
    fn resolved(&self, op: &Op, inputs: Vec<LogicalTensor>, results: Vec<LogicalTensor>) -> Op {
        match self.states.iter().any(|state| state.append.is_some_and(|(append, _)| append == op.id())) {
            // No partition takes an op that only says which rows are where.
            true => results
                .into_iter()
                .fold(Op::new(op.id(), OpKind::Wildcard).named(op.name()).inputs_from(inputs), Op::output),
            false => op.with_tensors(inputs, results),
        }
    }

    /// The graph and the presents, which nothing of a last run tells.
    fn graph(
        &self,
        model: &Model,
        given: &[LogicalTensor],
        helpers: &Helpers,
    ) -> Result<(Graph, Vec<LogicalTensor>)> {
        let mut known: FxHashMap<TensorId, LogicalTensor> =
            given.iter().map(|tensor| (tensor.id(), tensor.clone())).collect();
        let mut resolved = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let input = |tensor: &LogicalTensor| known.get(&tensor.id()).cloned();
            let inputs =
                op.inputs().iter().map(|tensor| input(tensor).ok_or(SessionFault::NoSource(tensor.id())));
            let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
            let results = results(op, &inputs, helpers.custom_of(model, op))?;
            known.extend(results.iter().map(|result| (result.id(), result.clone())));
            resolved.push(self.resolved(op, inputs, results));
        }
        let present = |pair: &StatePair| {
            known.get(&pair.present).cloned().ok_or_else(|| SessionFault::NoSource(pair.present).into())
        };
        let presents = self.states.iter().map(present).collect::<Result<_>>()?;
        Ok((model.graph().with_ops(resolved)?, presents))
    }
}

/// The graph of ops for given descriptions of what no op computes, made of the last one if it has the same
/// tensors.
///
/// # Errors
///
/// [`SessionFault::NoSource`]; [`SessionFault::OpenShape`]; [`Error::Shape`](crate::Error::Shape) where
/// shapes contradict an op; what an op of the caller's says.
pub(super) fn resolved(
    model: &Model,
    of: &Arc<WholeOps>,
    given: Vec<LogicalTensor>,
    helpers: &Helpers,
    last: Option<&ResolvedGraph>,
) -> Result<ResolvedGraph> {
    let (graph, presents) = match last.filter(|last| last.are_linked_as(of, &given, model.graph())) {
        Some(last) => last.again(model, of, &given, helpers)?,
        None => of.graph(model, &given, helpers)?,
    };
    Ok(ResolvedGraph { graph, of: of.clone(), given, presents })
}

/// The dims of the rows that a run adds to each state, as far as they follow from inputs some of whose dims
/// are open.
pub(super) fn appended_dims(
    of: &WholeOps,
    given: &BTreeMap<TensorId, LogicalTensor>,
) -> Result<Vec<Option<Vec<Option<i64>>>>> {
    let mut known = given.clone();
    let mut found = vec![None; of.states.len()];
    for op in &of.ops {
        let inputs = op.inputs().iter().map(|tensor| known.get(&tensor.id()).unwrap_or(tensor).clone());
        let inputs: Vec<LogicalTensor> = inputs.collect();
        for (pair, found) in of.states.iter().zip(&mut found) {
            if pair.append.is_some_and(|(append, _)| append == op.id()) {
                *found = inputs.get(1).and_then(LogicalTensor::partial_dims);
            }
        }
        let dims = resolve::output_dims(op, &inputs)?;
        for index in 0..op.outputs().len() {
            let output = resolve::resolved_output(op, index, dims[index].as_ref())?;
            known.insert(output.id(), output);
        }
    }
    Ok(found)
}

/// The outputs of an op with their dims.
fn results(op: &Op, inputs: &[LogicalTensor], helper: Option<Helper>) -> Result<Vec<LogicalTensor>> {
    let told = match helper {
        Some(helper) => helper.output_dims(op, inputs)?,
        None => None,
    };
    let dims: Vec<Option<Dims>> = match told {
        Some(dims) => dims.into_iter().map(Some).collect(),
        None => resolve::output_dims(op, inputs)?.into_vec(),
    };
    let outputs = (0..op.outputs().len()).map(|index| {
        let output = resolve::resolved_output(op, index, dims[index].as_ref())?;
        match output.dims() {
            Some(_) => Ok(output),
            None => {
                let (tensor, node) = (output.id(), op.name().to_owned());
                Err(SessionFault::OpenShape { tensor, node }.into())
            }
        }
    });
    outputs.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Session, StateLink};
    use super::*;
    use crate::execute::engine::Engine;
    use crate::graph::builder::GraphBuilder;
    use crate::types::dtype::DataType;

    #[test]
    fn a_new_length_takes_over_the_ops_that_do_not_see_it() -> Result<()> {
        let g = GraphBuilder::new();
        let past = g.input("past", DataType::F32, &[None, Some(2)])?;
        let h = g.tanh(g.relu(g.input("x", DataType::F32, &[Some(1), Some(2)])?)?)?;
        let all = g.concat(&[past, h], 0)?;
        g.output("y", g.exp(h)?)?;
        g.output("largest", g.reduce_max(all, &[0])?)?;
        g.output("present", all)?;
        let link = StateLink::new("past", "present").capacity(8);
        let session =
            Session::builder(g.build()?).state(link).build(&Engine::builder().threads(1).build())?;
        let mut state = session.new_state(&[])?;
        let kept = || session.inner.last.lock().as_ref().map(|last| last.resolved.graph.ops().to_vec());
        let mut before = Vec::new();
        for length in 0..5 {
            session.run_with_state(&mut state, &[("x", &[[0.5f32, 0.25]])])?;
            let after = kept().unwrap_or_default();
            let pairs = before.iter().zip(&after);
            let kinds = pairs.filter(|(was, is): &(&Op, &Op)| was.is_same(is)).map(|(_, is)| is.kind());
            let kinds: Vec<OpKind> = kinds.collect();
            let expected = [OpKind::ReLU, OpKind::Tanh, OpKind::Exp];
            assert_eq!(kinds, if length == 0 { &[][..] } else { &expected }, "{length}");
            before = after;
        }
        Ok(())
    }
}
