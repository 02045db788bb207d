//! The producer's description of a tensor counts; notes list the consumers that contradict it.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::error::{OpRef, PortRef};
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::graph::op::Op;
use crate::types::kind::TensorId;
use crate::types::shape::Braced;

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
    /// What differs first: "ranks", "dims", "layouts", "strides" or "properties".
    pub what: &'static str,
    /// The description at the consumer's port, as it is written.
    pub replaced: LogicalTensor,
    /// The producer's description, which counts.
    pub by: LogicalTensor,
}

impl fmt::Display for JsonNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |tensor: &LogicalTensor| match (self.what, tensor.layout()) {
            ("ranks" | "dims", _) => Braced(tensor.dims().unwrap_or(&[])).to_string(),
            ("strides", Layout::Strided(strides)) => Braced(strides).to_string(),
            ("layouts", Layout::Opaque(id)) => format!("opaque {id}"),
            ("properties", _) => tensor.property().name().into(),
            (_, layout) => layout.name().into(),
        };
        let Self { consumer, port, producer, what, replaced, by } = self;
        let what = if *what == "ranks" { "dims" } else { what };
        let (replaced, by) = (shown(replaced), shown(by));
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
            let Some(what) = decides.contradiction(input).filter(|&what| what != "types") else { continue };
            let description = decides.clone();
            let written = ops[consumer].replace_input(port, description);
            all.push(Replaced { consumer, port, producer, what, written });
        }
    }
    all
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
