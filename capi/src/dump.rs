//! Graphs written to files of the working directory, to show what a framework passes.

use std::ffi::c_int;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use serde_json::{Value, json};
use sterna::environment;

use crate::ffi::{Fault, ffi_guard};
use crate::status::Status;

/// Which graphs are written to files: a sum of the `STERNA_DUMP_MODE_*` numbers, which are those of
/// `dnnl_graph_dump_mode_t`.
pub type DumpMode = c_int;

/// Every mode with its name.
pub const DUMP_MODES: &[(DumpMode, &str)] = &[(0, "none"), (SUBGRAPH, "subgraph"), (GRAPH, "graph")];

const SUBGRAPH: DumpMode = 1;
const GRAPH: DumpMode = 2;

/// Not read yet: the environment decides.
const OPEN: DumpMode = -1;

static MODE: AtomicI32 = AtomicI32::new(OPEN);

fn is_on(mode: DumpMode) -> bool {
    let set = match MODE.load(Ordering::Relaxed) {
        OPEN => of_environment(),
        set => set,
    };
    set & mode != 0
}

fn of_environment() -> DumpMode {
    static MODE_OF_ENVIRONMENT: OnceLock<DumpMode> = OnceLock::new();
    *MODE_OF_ENVIRONMENT.get_or_init(|| {
        environment::GRAPH_DUMP.read().or_else(|| environment::ONEDNN_GRAPH_DUMP.read()).unwrap_or(0)
    })
}

fn write(name: &str, text: &str) {
    if let Err(error) = fs::write(name, text) {
        // A message that nobody can read is no reason to end the process.
        let _ = writeln!(io::stderr(), "sterna: {name} could not be written: {error}");
    }
}

/// Writes a graph that has been cut into partitions, without them. The number of the graph stands in the name
/// of the file.
pub(crate) fn graph(number: usize, graph: &sterna::Graph) {
    if is_on(GRAPH) {
        write(&format!("graph-{number}.json"), &graph.to_json());
    }
}

/// Writes a graph with the partition of each op among its attributes.
pub(crate) fn partitioning(number: usize, graph: &sterna::Graph, partitions: &[sterna::Partition]) {
    if !is_on(GRAPH) {
        return;
    }
    let Ok(mut document) = serde_json::from_str::<Value>(&graph.to_json()) else { return };
    let ops = document.get_mut("graph").and_then(Value::as_array_mut);
    for (value, op) in ops.into_iter().flatten().zip(graph.ops()) {
        let has_op = |partition: &&sterna::Partition| partition.ops().iter().any(|one| one.id() == op.id());
        let Some(partition) = partitions.iter().find(has_op) else { continue };
        let backend = if partition.is_supported() { "sterna" } else { "none" };
        if let Some(attrs) = value.get_mut("attrs").and_then(Value::as_object_mut) {
            let id = partition.id().to_string();
            attrs.insert("partition_id".into(), json!({ "type": "string", "value": id }));
            attrs.insert("backend".into(), json!({ "type": "string", "value": backend }));
        }
    }
    if let Ok(text) = serde_json::to_string_pretty(&document) {
        write(&format!("graph-{number}-partitioning.json"), &text);
    }
}

/// Writes the ops of a partition, with the tensors for which it was compiled.
pub(crate) fn subgraph(partition: &sterna::Partition, compiled: &sterna::CompiledPartition) {
    if !is_on(SUBGRAPH) {
        return;
    }
    let resolved = |given: &sterna::LogicalTensor| match compiled.port(given.id()) {
        Ok(port) => port.clone(),
        Err(_) => given.clone(),
    };
    let mut graph = sterna::Graph::new();
    for op in partition.ops() {
        let empty = sterna::Op::new(op.id(), op.kind()).named(op.name());
        let with_attrs = op.attrs().fold(empty, |copy, (attr, value)| copy.attr(attr, value.clone()));
        let with_inputs = with_attrs.inputs_from(op.inputs().iter().map(resolved));
        let copy = op.outputs().iter().map(resolved).fold(with_inputs, sterna::Op::output);
        if graph.add_op(copy).is_err() {
            return;
        }
    }
    let text = graph.to_json();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    write(&format!("graph-{}-{}.json", partition.id(), hasher.finish()), &text);
}

/// Sets which graphs are written to JSON files of the working directory: with `graph`, each graph that is cut
/// into partitions (`graph-<number>.json`), and again with the partition of each op when the partitions are
/// handed out (`graph-<number>-partitioning.json`); with `subgraph`, each partition that is compiled
/// (`graph-<partition>-<hash>.json`).
///
/// Before the first call the environment variable `STERNA_GRAPH_DUMP` decides, or `ONEDNN_GRAPH_DUMP` if the
/// first one is not set: `graph`, `subgraph`, or both with a comma between them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_dump_mode_set(mode: DumpMode) -> Status {
    ffi_guard(|| {
        if !(0..=SUBGRAPH | GRAPH).contains(&mode) {
            return Err(Fault::unknown("dump mode", mode));
        }
        MODE.store(mode, Ordering::Relaxed);
        Ok(())
    })
}
