//! The shape and layout of each tensor of a graph: resolved once, before anything runs, for every command
//! alike.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, ensure};
use sterna::{Graph, Layout, LogicalTensor, Op, OpId, Policy, TensorId, UNKNOWN_DIM, reference};

use crate::ending::Ending;
use crate::parse::check_id;

/// Finalizes a graph, with other shapes for some of its tensors, and with each shape that follows from the
/// rules of the ops.
///
/// A tensor keeps the shape that the graph gives it, unless something that it is computed from has another
/// shape now.
pub(crate) fn settle(mut graph: Graph, overrides: &[(TensorId, Vec<i64>)]) -> Result<Graph, Ending> {
    graph.finalize().map_err(Ending::failed)?;
    let mut shapes = Shapes::given(&graph, overrides)?;
    let mut ops: HashMap<OpId, Op> = HashMap::new();
    // Partitions of one op each come in an order in which each op stands behind those that it depends on.
    for partition in graph.partitions(Policy::Debug).map_err(Ending::failed)? {
        for op in partition.ops() {
            ops.insert(op.id(), shapes.settled(op).map_err(Ending::failed)?);
        }
    }
    if graph.ops().iter().all(|op| ops.get(&op.id()) == Some(op)) {
        return Ok(graph);
    }
    let mut settled = Graph::new();
    settled.set_fpmath(graph.fpmath()).map_err(Ending::failed)?;
    for op in graph.ops() {
        settled.add_op(ops.remove(&op.id()).unwrap_or_else(|| op.clone())).map_err(Ending::failed)?;
    }
    settled.finalize().map_err(Ending::failed)?;
    Ok(settled)
}

/// The descriptions of a graph's tensors, and which of them have another shape than in the graph.
struct Shapes {
    known: HashMap<TensorId, LogicalTensor>,
    changed: HashSet<TensorId>,
}

impl Shapes {
    /// The inputs of the graph, and the tensors that are given another shape.
    fn given(graph: &Graph, overrides: &[(TensorId, Vec<i64>)]) -> Result<Self, Ending> {
        let produced = graph.ops().iter().flat_map(Op::outputs);
        let all: Vec<&LogicalTensor> = graph.inputs().into_iter().chain(produced).collect();
        let ids: Vec<TensorId> = all.iter().map(|tensor| tensor.id()).collect();
        let mut known: HashMap<TensorId, LogicalTensor> =
            graph.inputs().into_iter().map(|input| (input.id(), input.clone())).collect();
        let mut changed = HashSet::new();
        for (id, dims) in overrides {
            check_id("--override-shape", *id, &ids, "a tensor of the graph").map_err(Ending::usage)?;
            for tensor in all.iter().filter(|tensor| tensor.id() == *id) {
                let with_dims = LogicalTensor::strided(*id, tensor.data_type(), dims)
                    .and_then(|given| given.with_property(tensor.property()))
                    .context("--override-shape gives a shape that cannot be")
                    .map_err(Ending::usage)?;
                if tensor.known_dims() != Some(dims) {
                    changed.insert(*id);
                }
                known.insert(*id, with_dims);
            }
        }
        Ok(Self { known, changed })
    }

    /// An op between tensors whose shapes are settled, as far as they can be.
    fn settled(&mut self, op: &Op) -> Result<Op> {
        let mut settled = Op::new(op.id(), op.kind()).named(op.name());
        for (attr, value) in op.attrs() {
            settled = settled.attr(attr, value.clone());
        }
        for input in op.inputs() {
            settled = settled.input(self.known.get(&input.id()).unwrap_or(input).clone());
        }
        let inferred = self.inferred(op);
        let depends_on_changed = op.inputs().iter().any(|input| self.changed.contains(&input.id()));
        for (index, output) in op.outputs().iter().enumerate() {
            let dims = inferred.as_ref().and_then(|shapes| shapes.get(index));
            let described = match (self.known.get(&output.id()), output.known_dims(), dims) {
                (Some(overridden), ..) => overridden.clone(),
                (None, Some(_), _) if !depends_on_changed => output.clone(),
                (None, Some(given), Some(dims)) if given == &dims[..] => output.clone(),
                (None, None, Some(dims)) if !depends_on_changed => with_dims(output, dims)?,
                (None, _, Some(dims)) => LogicalTensor::any(output.id(), output.data_type(), dims)?
                    .with_property(output.property())?,
                (None, _, None) if !depends_on_changed => output.clone(),
                (None, _, None) => LogicalTensor::unknown(output.id(), output.data_type())
                    .with_property(output.property())?,
            };
            if described.dims() != output.dims() {
                self.changed.insert(output.id());
            }
            self.known.insert(output.id(), described.clone());
            settled = settled.output(described);
        }
        Ok(settled)
    }

    /// The shapes that follow from the rule of an op. What contradicts the rule is found when the op is
    /// compiled or interpreted, and told there.
    fn inferred(&self, op: &Op) -> Option<Vec<sterna::Dims>> {
        let dims = |input: &LogicalTensor| self.known.get(&input.id())?.known_dims().map(<[i64]>::to_vec);
        let inputs = op.inputs().iter().map(dims).collect::<Option<Vec<Vec<i64>>>>()?;
        let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
        reference::output_shapes(op, &inputs).ok().flatten()
    }
}

/// A tensor whose shape is no longer open, in the layout that it has.
fn with_dims(tensor: &LogicalTensor, dims: &[i64]) -> Result<LogicalTensor> {
    let layout = match tensor.layout() {
        Layout::Strided(_) => Layout::Strided(dims.iter().map(|_| UNKNOWN_DIM).collect()),
        other => other.clone(),
    };
    let property = tensor.property();
    Ok(LogicalTensor::with_layout(tensor.id(), tensor.data_type(), Some(dims), layout)?
        .with_property(property)?)
}

/// A tensor as it lies in memory: as the graph says, or row by row if the graph gives no strides.
///
/// # Errors
///
/// Its shape is not known.
pub(crate) fn in_memory(tensor: &LogicalTensor) -> Result<LogicalTensor> {
    let id = tensor.id();
    let dims = tensor.known_dims();
    ensure!(dims.is_some(), "the shape of tensor {id} is not known; give it with --override-shape {id}=...");
    Ok(match (dims, tensor.strides()) {
        (Some(dims), None) => {
            LogicalTensor::strided(id, tensor.data_type(), dims)?.with_property(tensor.property())?
        }
        _ => tensor.clone(),
    })
}
