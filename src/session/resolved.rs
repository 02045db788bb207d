//! A model for inputs of known shapes: the graph with the dims of every tensor.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::custom::Helpers;
use crate::error::{Result, SessionFault};
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::Model;
use crate::graph::op::Op;
use crate::graph::resolve;
use crate::types::id::TensorId;
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// A graph that gives each output of a model in a tensor of its own.
pub(super) struct ResolvedGraph {
    pub(super) graph: Graph,
    /// The tensor of each output of the model.
    pub(super) outputs: Vec<TensorId>,
}

/// The ops of a model, those that no output needs left out, with an op `Identity` for each output that no op
/// computes or that stands twice, and an op `End` for each that ops use.
pub(super) fn whole_ops(model: &Model) -> Result<(Vec<Op>, Vec<TensorId>)> {
    let links = model.graph().links()?;
    let in_order = links.order.iter().map(|&index| &model.graph().ops()[index]);
    let mut ops: Vec<Op> = in_order.filter(|op| op.kind() != OpKind::End).cloned().collect();
    let tensors = || model.graph().ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
    let after = |largest: Option<usize>| largest.map_or(0, |id| id.saturating_add(1));
    let of_ports = model.inputs().iter().chain(model.outputs()).map(|port| port.tensor.id().get());
    let mut next_tensor = after(tensors().map(|tensor| tensor.id().get()).chain(of_ports).max());
    let mut next_op = after(model.graph().ops().iter().map(|op| op.id().get()).max());

    let mut outputs = Vec::new();
    for port in model.outputs() {
        let id = port.tensor.id();
        let is_computed = links.producer.contains_key(&id);
        if is_computed && !outputs.contains(&id) {
            outputs.push(id);
            continue;
        }
        let said = tensors().find(|tensor| tensor.id() == id).unwrap_or(&port.tensor).clone();
        let copy = LogicalTensor::unknown(next_tensor, said.data_type());
        outputs.push(copy.id());
        ops.push(Op::new(next_op, OpKind::Identity).input(said).output(copy));
        (next_tensor, next_op) = (next_tensor + 1, next_op + 1);
    }
    let mut ops = live_ops(ops, &outputs);
    let used: FxHashSet<TensorId> = ops.iter().flat_map(Op::inputs).map(LogicalTensor::id).collect();
    for id in outputs.iter().filter(|id| used.contains(id)) {
        let said = ops.iter().flat_map(Op::outputs).find(|tensor| tensor.id() == *id).cloned();
        ops.extend(said.map(|said| Op::new(next_op, OpKind::End).input(said)));
        next_op += 1;
    }
    Ok((ops, outputs))
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

/// The graph of ops for given descriptions of what no op computes.
///
/// # Errors
///
/// [`SessionFault::NoSource`]; [`SessionFault::OpenShape`]; [`Error::Shape`](crate::Error::Shape) where
/// shapes contradict an op; what an op of the caller's says.
pub(super) fn resolved(
    model: &Model,
    (ops, outputs): &(Vec<Op>, Vec<TensorId>),
    given: &BTreeMap<TensorId, LogicalTensor>,
    helpers: &Helpers,
) -> Result<ResolvedGraph> {
    let mut known = given.clone();
    let mut resolved = Vec::with_capacity(ops.len());
    for op in ops {
        let input = |tensor: &LogicalTensor| known.get(&tensor.id()).cloned();
        let inputs =
            op.inputs().iter().map(|tensor| input(tensor).ok_or(SessionFault::NoSource(tensor.id())));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let results = results(model, op, &inputs, helpers)?;
        known.extend(results.iter().map(|result| (result.id(), result.clone())));
        resolved.push(op.with_tensors(inputs, results));
    }
    Ok(ResolvedGraph { graph: model.graph().with_ops(resolved)?, outputs: outputs.clone() })
}

/// The outputs of an op with their dims.
fn results(
    model: &Model,
    op: &Op,
    inputs: &[LogicalTensor],
    helpers: &Helpers,
) -> Result<Vec<LogicalTensor>> {
    let told = match helpers.of(model, op) {
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
