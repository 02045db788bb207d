//! One description for all mentions of a tensor: the producer's counts, and what one mention leaves open is
//! taken from the others. Notes list the consumers that contradict the producer.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::error::{OpRef, PortRef};
use crate::graph::logical_tensor::{Layout, LogicalTensor, PartialStrides};
use crate::graph::op::Op;
use crate::types::id::TensorId;
use crate::types::shape::{Dims, UNKNOWN_DIM};

/// A difference between a graph and the JSON that it was read from: a consumer of a tensor contradicted the
/// tensor's producer, whose description replaced the consumer's.
///
/// ```
/// use sterna::Graph;
/// let (graph, notes) = Graph::from_json_with_notes(r#"{"graph": []}"#)?;
/// assert!(graph.ops().is_empty() && notes.is_empty());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JsonNote {
    /// The op that consumes the tensor.
    pub consumer: OpRef,
    /// Its port.
    pub port: PortRef,
    /// The op that produces the tensor.
    pub producer: OpRef,
    /// The first difference: "ranks", "dims", "layouts", "strides" or "properties".
    pub what: &'static str,
    /// The description at the consumer's port, as it is written.
    pub replaced: LogicalTensor,
    /// The producer's description, which counts.
    pub by: LogicalTensor,
}

impl fmt::Display for JsonNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, port, producer, what, replaced, by } = self;
        let (replaced, by) = (replaced.part(what), by.part(what));
        let what = if *what == "ranks" { "dims" } else { what };
        write!(
            f,
            "{consumer}, {port}: {what} {replaced} differ from {by} of its producer, {producer}, \
             whose description counts"
        )
    }
}

/// Puts the description that the producer of a tensor gives in place of each consumer's that contradicts it.
/// Types that differ are left to be refused when the graph is finalized.
pub(super) fn let_producers_decide(ops: &mut [Op]) -> Vec<Replaced> {
    let mut producers: FxHashMap<TensorId, (usize, usize)> = FxHashMap::default();
    for (op, at) in ops.iter().zip(0..) {
        for (output, port) in op.outputs().iter().zip(0..) {
            producers.entry(output.id()).or_insert((at, port));
        }
    }
    let mut all = Vec::new();
    for consumer in 0..ops.len() {
        for port in 0..ops[consumer].inputs().len() {
            let input = &ops[consumer].inputs()[port];
            let Some(&(producer, output)) = producers.get(&input.id()) else { continue };
            let decides = &ops[producer].outputs()[output];
            let Some(what) = contradiction(decides, input).filter(|&what| what != "types") else { continue };
            let description = decides.clone();
            let written = ops[consumer].replace_input(port, description);
            all.push(Replaced { consumer, port, producer, what, written });
        }
    }
    all
}

/// Completes the mentions of each tensor by one another, so that they are equal. Mentions that contradict
/// each other stay as they are, to be refused when the graph is finalized.
pub(super) fn complete_mentions(ops: &mut [Op]) {
    let mut whole: FxHashMap<TensorId, Option<LogicalTensor>> = FxHashMap::default();
    for tensor in ops.iter().flat_map(|op| op.inputs().iter().chain(op.outputs())) {
        let so_far = whole.entry(tensor.id()).or_insert_with(|| Some(tensor.clone()));
        *so_far = so_far.take().and_then(|so_far| completed(so_far, tensor));
    }
    for tensor in ops.iter_mut().flat_map(Op::tensors_mut) {
        if let Some(Some(whole)) = whole.get(&tensor.id()) {
            tensor.clone_from(whole);
        }
    }
}

/// Names the first part in which two descriptions of one id contradict each other. What one of them leaves
/// open contradicts nothing: an unknown dim or stride, the layout `undef`, and of an unknown rank the layout
/// too.
fn contradiction(a: &LogicalTensor, b: &LogicalTensor) -> Option<&'static str> {
    let differ =
        |a: &[i64], b: &[i64]| a.iter().zip(b).any(|(&a, &b)| a != b && a != UNKNOWN_DIM && b != UNKNOWN_DIM);
    if a.data_type() != b.data_type() {
        return Some("types");
    }
    let in_property = (a.property() != b.property()).then_some("properties");
    let (Some(a_dims), Some(b_dims)) = (a.raw_dims(), b.raw_dims()) else { return in_property };
    if a_dims.len() != b_dims.len() {
        return Some("ranks");
    }
    if differ(a_dims, b_dims) {
        return Some("dims");
    }
    let in_layout = match (a.layout(), b.layout()) {
        (Layout::Undef, _) | (_, Layout::Undef) => None,
        (Layout::Strided(a), Layout::Strided(b)) => differ(a.raw(), b.raw()).then_some("strides"),
        (Layout::Opaque(a), Layout::Opaque(b)) => (a != b).then_some("layouts"),
        (a, b) => (a.code() != b.code()).then_some("layouts"),
    };
    in_layout.or(in_property)
}

/// A description, completed by another one. `None` if they contradict each other, and if the dims of one and
/// the strides of the other go beyond the address space together.
fn completed(a: LogicalTensor, b: &LogicalTensor) -> Option<LogicalTensor> {
    if a == *b {
        return Some(a);
    }
    if contradiction(&a, b).is_some() {
        return None;
    }
    let (Some(a_dims), Some(b_dims)) = (a.raw_dims(), b.raw_dims()) else {
        return Some(if b.raw_dims().is_some() { b.clone() } else { a });
    };
    let known = |a: &[i64], b: &[i64]| -> Dims {
        a.iter().zip(b).map(|(&a, &b)| if a == UNKNOWN_DIM { b } else { a }).collect()
    };
    let layout = match (a.layout(), b.layout()) {
        (Layout::Undef, layout) => layout.clone(),
        (Layout::Strided(a), Layout::Strided(b)) => {
            Layout::Strided(PartialStrides::from_raw(known(a.raw(), b.raw())))
        }
        (layout, _) => layout.clone(),
    };
    let dims = known(a_dims, b_dims);
    let whole = LogicalTensor::laid_out(a.id(), a.data_type(), Some(&dims), layout).ok()?;
    whole.with_property(a.property()).ok()
}

/// A consumer's description that was replaced, by the indices of the ops.
pub(super) struct Replaced {
    consumer: usize,
    port: usize,
    producer: usize,
    what: &'static str,
    written: LogicalTensor,
}

impl Replaced {
    /// The note for users, once the ops are known to have the ports that their kinds have.
    pub(super) fn note(self, ops: &[Op]) -> JsonNote {
        let consumer = &ops[self.consumer];
        JsonNote {
            consumer: consumer.op_ref(),
            port: consumer.input_ref(self.port),
            producer: ops[self.producer].op_ref(),
            what: self.what,
            replaced: self.written,
            by: consumer.inputs()[self.port].clone(),
        }
    }
}
