//! Statistics of SoftMax that a graph takes as an input, as gradients of attention do: of the scores, so that
//! the exponentials of the differences are the shares of the scores.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, Graph, LogicalTensor, Op, OpKind, Policy, Stream, TensorId};

use crate::check;
use crate::host::HostTensor;

/// An input that is subtracted from scores before an Exp.
#[derive(Debug, PartialEq)]
struct Statistics {
    tensor: TensorId,
    scores: TensorId,
    /// The axis along which the scores share a statistic.
    axis: usize,
}

impl Statistics {
    /// Those of a graph.
    fn all(graph: &Graph) -> Vec<Self> {
        let inputs: Vec<TensorId> = graph.inputs().iter().map(|input| input.id()).collect();
        let goes_into_exp = |op: &&Op| {
            let is_taken =
                |exp: &Op| exp.kind() == OpKind::Exp && exp.inputs()[0].id() == op.outputs()[0].id();
            op.kind() == OpKind::Subtract && graph.ops().iter().any(is_taken)
        };
        let of = |op: &Op| {
            let [scores, statistics] = op.inputs() else { return None };
            let (from, to) = (scores.dims()?, statistics.dims()?);
            let is_one = from.len() == to.len() && inputs.contains(&statistics.id());
            let mut differ = (0..from.len()).filter(|&axis| is_one && from[axis] != to[axis]);
            let (axis, None) = (differ.next()?, differ.next()) else { return None };
            (to[axis] == 1).then(|| Self { tensor: statistics.id(), scores: scores.id(), axis })
        };
        graph.ops().iter().filter(goes_into_exp).filter_map(of).collect()
    }
}

/// Replaces those statistics among filled inputs that `may_fill` takes. A graph whose scores cannot be
/// computed keeps what they were filled with, and a note says why.
pub(crate) fn fill(
    graph: &Graph,
    tensors: &mut BTreeMap<TensorId, HostTensor>,
    stream: &Stream,
    may_fill: impl Fn(TensorId) -> bool,
    notes: &mut Vec<String>,
) {
    for statistics in Statistics::all(graph).into_iter().filter(|found| may_fill(found.tensor)) {
        if let Err(why) = filled(graph, tensors, stream, &statistics) {
            let id = statistics.tensor;
            notes.push(format!("tensor {id} holds no statistics of scores, but random numbers: {why:#}"));
        }
    }
}

fn filled(
    graph: &Graph,
    tensors: &mut BTreeMap<TensorId, HostTensor>,
    stream: &Stream,
    statistics: &Statistics,
) -> Result<()> {
    let mut values = BTreeMap::new();
    let value = |values: &BTreeMap<TensorId, Value>, id: TensorId| match values.get(&id) {
        Some(value) => Ok::<Value, anyhow::Error>(value.clone()),
        None => tensors.get(&id).with_context(|| format!("tensor {id} is not computed"))?.value(),
    };
    for op in leading_to(graph, statistics.scores)? {
        let inputs =
            op.inputs().iter().map(|input| value(&values, input.id())).collect::<Result<Vec<Value>>>()?;
        let outputs = computed(&op, &inputs, tensors, stream)?;
        values.extend(op.outputs().iter().map(LogicalTensor::id).zip(outputs));
    }
    let scores = value(&values, statistics.scores)?;
    let tensor = |id, data_type| LogicalTensor::unknown(id, data_type);
    let softmax = Op::new(0, OpKind::SoftMax)
        .input(tensor(0, scores.data_type()))
        .output(tensor(1, scores.data_type()))
        .output(tensor(2, DataType::F32))
        .axis(statistics.axis as i64)
        .attr(Attr::Mode, "inf_as_zero");
    let sums = reference::run(&softmax, &[scores])?.pop().context("SoftMax gives statistics")?;
    let into = tensors.get_mut(&statistics.tensor).context("it is no input")?;
    let data_type = into.desc().data_type();
    let cast = Op::new(0, OpKind::Cast).input(tensor(0, DataType::F32)).output(tensor(1, data_type));
    let sums = match data_type {
        DataType::F32 => sums,
        _ => reference::run(&cast, &[sums])?.pop().context("a cast gives a value")?,
    };
    into.write(&sums)
}

/// The ops from which a tensor follows, each behind those that it depends on.
fn leading_to(graph: &Graph, tensor: TensorId) -> Result<Vec<Op>> {
    let partitions = graph.partitions(Policy::Debug)?;
    let mut needed = BTreeSet::from([tensor]);
    let mut ops = Vec::new();
    for op in partitions.iter().rev().flat_map(|partition| partition.ops()) {
        if op.outputs().iter().any(|output| needed.contains(&output.id())) {
            needed.extend(op.inputs().iter().map(LogicalTensor::id));
            ops.push(op.clone());
        }
    }
    ops.reverse();
    Ok(ops)
}

/// The results of an op, compiled if it can be.
fn computed(
    op: &Op,
    inputs: &[Value],
    tensors: &BTreeMap<TensorId, HostTensor>,
    stream: &Stream,
) -> Result<Vec<Value>> {
    match check::alone(op, inputs, tensors, &[], stream) {
        Ok(outputs) => Ok(outputs),
        Err(_) => Ok(reference::run(op, inputs)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_what_scores_lose_before_an_exponential() {
        let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
        let subtract = |of: [&[i64]; 2], kind| {
            let mut graph = Graph::new();
            let inputs = [tensor(0, of[0]), tensor(1, of[1])];
            let difference = tensor(2, &[2, 3]);
            graph
                .add_op(Op::new(0, OpKind::Subtract).inputs_from(inputs).output(difference.clone()))
                .unwrap();
            graph.add_op(Op::new(1, kind).input(difference).output(tensor(3, &[2, 3]))).unwrap();
            graph.finalize().unwrap();
            Statistics::all(&graph)
        };
        let found = |axis| vec![Statistics { tensor: 1.into(), scores: 0.into(), axis }];
        let rows = [
            (subtract([&[2, 3], &[2, 1]], OpKind::Exp), found(1)),
            (subtract([&[2, 3], &[1, 3]], OpKind::Exp), found(0)),
            (subtract([&[2, 3], &[1, 1]], OpKind::Exp), vec![]),
            (subtract([&[2, 3], &[2, 3]], OpKind::Exp), vec![]),
            (subtract([&[2, 3], &[1]], OpKind::Exp), vec![]),
            (subtract([&[2, 3], &[2, 1]], OpKind::Tanh), vec![]),
        ];
        for (row, (given, expected)) in rows.into_iter().enumerate() {
            assert_eq!(given, expected, "row {row}");
        }
    }
}
