//! `--mb`: another number of samples, which is the first dim of the inputs that have one.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use sterna::{Attr, AttrValue, Graph, LogicalTensor, Op, OpKind, Schema, ShapeRule, TensorId};

use crate::shapes::{LayoutEdit, ShapeEdit};

/// Ports that hold the same for every sample, whatever their rank is.
const SHARED: &[&str] = &["weights", "slope", "bias", "gamma", "beta", "mean", "variance"];

/// Gives the inputs that have samples another number of them, on top of other edits, and says whether there
/// are any such inputs.
///
/// An input has samples if, wherever it is taken, no other input has more dims, nor does an op take it, or
/// what is made of its elements, as weights, and if its first dim is the largest one of all inputs that are
/// so. A mask whose first dim of 1 broadcasts to them keeps it. Statistics of samples go with these.
pub(crate) fn apply(
    graph: &Graph,
    is_constant: impl Fn(TensorId) -> bool,
    samples: i64,
    edits: &mut Vec<(TensorId, ShapeEdit)>,
) -> bool {
    let places: HashMap<TensorId, usize> =
        edits.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
    let dims = |tensor: &LogicalTensor| -> Option<Vec<i64>> {
        let edited = places.get(&tensor.id()).map(|&place| &edits[place].1);
        edited.and_then(|edit| edit.dims.clone()).or_else(|| tensor.dims().map(<[i64]>::to_vec))
    };
    let inputs = graph.inputs();
    let weights = weights(graph, &dims);
    let uses = uses(graph);
    let has_samples = |input: &&&LogicalTensor| {
        !is_constant(input.id())
            && !weights.contains(&input.id())
            && uses.get(&input.id()).into_iter().flatten().all(|&(op, port)| takes_samples(op, port, &dims))
    };
    let found: Vec<(&LogicalTensor, Vec<i64>)> = inputs
        .iter()
        .filter(has_samples)
        .filter_map(|input| Some((*input, dims(input).filter(|dims| !dims.is_empty())?)))
        .collect();
    let Some(before) = found.iter().map(|(_, dims)| dims[0]).max() else { return false };
    for (input, mut dims) in found.into_iter().filter(|(_, dims)| dims[0] == before) {
        let own = || input.strides().and_then(|strides| order(&dims, strides));
        let layout = own().map(LayoutEdit::Order);
        dims[0] = samples;
        match places.get(&input.id()) {
            Some(&place) => edits[place].1.dims = Some(dims),
            None => edits.push((input.id(), ShapeEdit { dims: Some(dims), layout })),
        }
    }
    true
}

/// The ops that take each tensor, each with the port.
fn uses(graph: &Graph) -> HashMap<TensorId, Vec<(&Op, usize)>> {
    let mut uses: HashMap<TensorId, Vec<(&Op, usize)>> = HashMap::new();
    for op in graph.ops() {
        for (port, input) in op.inputs().iter().enumerate() {
            uses.entry(input.id()).or_default().push((op, port));
        }
    }
    uses
}

/// The tensors that ops take as weights, and those whose elements, in other types or places, become weights.
fn weights(graph: &Graph, dims: &impl Fn(&LogicalTensor) -> Option<Vec<i64>>) -> BTreeSet<TensorId> {
    let mut found = BTreeSet::new();
    let outputs = graph.ops().iter().flat_map(|op| op.outputs().iter().map(move |output| (output.id(), op)));
    let makers: HashMap<TensorId, &Op> = outputs.collect();
    let ports = graph.ops().iter().flat_map(|op| op.inputs().iter().enumerate().map(move |pair| (op, pair)));
    let mut open: Vec<TensorId> = ports
        .filter(|(op, (port, input))| match op.kind() {
            OpKind::MatMul => *port == 1 && dims(input).is_some_and(|dims| dims.len() <= 2),
            _ => port_name(op, *port) == "weights",
        })
        .map(|(_, (_, input))| input.id())
        .collect();
    while let Some(tensor) = open.pop() {
        if found.insert(tensor) {
            let maker = makers.get(&tensor).filter(|op| keeps_elements(Schema::of(op.kind()).shape_rule));
            open.extend(maker.into_iter().flat_map(|op| op.inputs()).map(LogicalTensor::id));
        }
    }
    found
}

/// True if each element of a result is made of elements of the inputs that stand in one place.
fn keeps_elements(rule: ShapeRule) -> bool {
    matches!(
        rule,
        ShapeRule::Identity
            | ShapeRule::ElemwiseArithmetic
            | ShapeRule::Select
            | ShapeRule::SameShapes
            | ShapeRule::Quantization
            | ShapeRule::Concat
            | ShapeRule::Slice
            | ShapeRule::StaticReshape
            | ShapeRule::StaticTranspose
    )
}

/// The name of an input port.
fn port_name(op: &Op, port: usize) -> &'static str {
    let ports = Schema::of(op.kind()).inputs;
    ports.get(port).or(ports.last()).map_or("", |port| port.name)
}

/// True if the tensor at a port of an op has samples, as far as the port and its rank say.
fn takes_samples(op: &Op, port: usize, dims: &impl Fn(&LogicalTensor) -> Option<Vec<i64>>) -> bool {
    let rank = |tensor| dims(tensor).map(|dims| dims.len());
    let own = op.inputs().get(port).and_then(rank);
    // A tensor of fewer dims than another input broadcasts to its samples.
    let has_all_dims = own.is_some() && own == op.inputs().iter().filter_map(rank).max();
    match (op.kind(), port_name(op, port)) {
        // A number for each row of the samples.
        (OpKind::LayerNormBackward, "mean" | "variance") => true,
        // Rows of a transposed matrix are not samples.
        (OpKind::MatMul, "src") => {
            has_all_dims && (own != Some(2) || op.get_attr(Attr::TransposeA) != Some(&AttrValue::Bool(true)))
        }
        (OpKind::MatMul, "weights") => has_all_dims,
        (_, name) => has_all_dims && !SHARED.contains(&name),
    }
}

/// The order of dims from the outermost to the innermost, unless it is row-major.
fn order(dims: &[i64], strides: &[i64]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&axis| Reverse(strides[axis]));
    (!order.is_sorted()).then_some(order)
}
