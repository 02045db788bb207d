//! Graphs: ops linked by the ids of their tensors.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use sterna::{Explanation, FpMath, Rewrite, UnknownName};

use crate::dump;
use crate::engine::{self, EngineKind};
use crate::ffi::{Fault, array, ffi_guard, fill, require, text};
use crate::fpmath_mode::{self, FpMathMode};
use crate::op::Op;
use crate::partition::Partition;
use crate::status::Status;
use crate::string;

/// How a graph is cut into partitions: one of the `STERNA_PARTITION_POLICY_*` numbers, which are those of
/// `dnnl_graph_partition_policy_t`.
pub type PartitionPolicy = c_int;

/// Ops linked by the ids of their tensors.
///
/// Callers add ops, fix the graph by `sterna_graph_finalize`, cut it by `sterna_graph_filter`, and then read
/// its partitions. Functions that take the graph as `const` may be called from any number of threads at once,
/// the others by one thread at a time.
pub struct Graph {
    /// The number of the graph, for the names of files that the graph is written to.
    id: usize,
    core: sterna::Graph,
    partitions: Vec<sterna::Partition>,
    /// Where the graph differs from the JSON that it was read from.
    notes: Vec<sterna::JsonNote>,
}

impl Graph {
    /// The graph behind the handle.
    pub fn core(&self) -> &sterna::Graph {
        &self.core
    }

    /// The same, to add to.
    pub(crate) fn core_mut(&mut self) -> &mut sterna::Graph {
        &mut self.core
    }

    fn new(core: sterna::Graph) -> Box<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Box::new(Self { id, core, partitions: Vec::new(), notes: Vec::new() })
    }
}

fn create(
    graph: Option<&mut MaybeUninit<Box<Graph>>>,
    engine_kind: EngineKind,
    mode: FpMathMode,
) -> Result<(), Fault> {
    let graph = require(graph, "graph")?;
    engine::check_kind(engine_kind)?;
    let mut core = sterna::Graph::new();
    core.set_fpmath(FpMath::new(fpmath_mode::from_code(mode)?))?;
    graph.write(Graph::new(core));
    Ok(())
}

/// Makes a graph without ops, for engines of a kind, with the default floating-point math mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_create(
    graph: Option<&mut MaybeUninit<Box<Graph>>>,
    engine_kind: EngineKind,
) -> Status {
    ffi_guard(|| create(graph, engine_kind, fpmath_mode::default()))
}

/// Makes a graph without ops, for engines of a kind, with a floating-point math mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_create_with_fpmath_mode(
    graph: Option<&mut MaybeUninit<Box<Graph>>>,
    engine_kind: EngineKind,
    mode: FpMathMode,
) -> Status {
    ffi_guard(|| create(graph, engine_kind, mode))
}

/// Destroys a graph; partitions of it stay usable. Null is fine; destroying one twice is an error of the
/// caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_destroy(graph: Option<Box<Graph>>) -> Status {
    ffi_guard(|| {
        drop(graph);
        Ok(())
    })
}

/// Sets the floating-point math mode of a graph, and whether it covers integers too (0: it does not). After
/// `sterna_graph_finalize`: `invalid_graph`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_set_fpmath_mode(
    graph: Option<&mut Graph>,
    mode: FpMathMode,
    apply_to_int: c_int,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        let fpmath = FpMath::new(fpmath_mode::from_code(mode)?).apply_to_int(apply_to_int != 0);
        Ok(graph.core.set_fpmath(fpmath)?)
    })
}

/// Reads the floating-point math mode of a graph, and whether it covers integers too: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_get_fpmath_mode(
    graph: Option<&Graph>,
    mode: Option<&mut MaybeUninit<FpMathMode>>,
    apply_to_int: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        let (mode, apply_to_int) = (require(mode, "mode")?, require(apply_to_int, "apply_to_int")?);
        let fpmath = graph.core.fpmath();
        mode.write(fpmath.mode.code() as FpMathMode);
        apply_to_int.write(fpmath.apply_to_int.into());
        Ok(())
    })
}

/// Turns a rewrite on (any number but 0) or off (0) for later calls of `sterna_graph_filter` and
/// `sterna_graph_explain`, by the name that the page on performance lists, such as `rms-norm`. All are on at
/// first; the setting may change after `sterna_graph_finalize`. `invalid_arguments` for a name that no
/// rewrite has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_set_rewrite(
    graph: Option<&mut Graph>,
    name: *const c_char,
    is_on: c_int,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        // SAFETY: the caller promises text that ends with a zero.
        let name = unsafe { text(name, "name") }?;
        let rewrite: Result<Rewrite, UnknownName> = name.parse();
        let rewrite = rewrite.map_err(|unknown| Fault::invalid_arguments(unknown.to_string()))?;
        graph.core.set_rewrite(rewrite, is_on != 0);
        Ok(())
    })
}

/// Adds a copy of an op to a graph. `invalid_graph_op` if the op does not fit its kind (counts, types,
/// attributes; shapes are checked when a partition is compiled), or if its id is taken; `invalid_graph` after
/// `sterna_graph_finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_add_op(graph: Option<&mut Graph>, op: Option<&Op>) -> Status {
    ffi_guard(|| {
        let (graph, op) = (require(graph, "graph")?, require(op, "op")?);
        Ok(graph.core.add_op(op.core()?.clone())?)
    })
}

/// Fixes a graph: links its ops by the ids of their tensors. A second call does nothing. `invalid_graph` for
/// a tensor with two producers, two descriptions of one tensor, and a cycle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_finalize(graph: Option<&mut Graph>) -> Status {
    ffi_guard(|| Ok(require(graph, "graph")?.core.finalize()?))
}

/// Reads whether a graph has been fixed: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_is_finalized(
    graph: Option<&Graph>,
    is_finalized: Option<&mut MaybeUninit<u8>>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        require(is_finalized, "is_finalized")?.write(graph.core.is_finalized().into());
        Ok(())
    })
}

/// Cuts a graph into partitions. A second call starts anew. `invalid_graph` before `sterna_graph_finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_filter(graph: Option<&mut Graph>, policy: PartitionPolicy) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        let known = u32::try_from(policy).ok().and_then(sterna::Policy::from_code);
        let policy = known.ok_or_else(|| Fault::unknown("partition policy", policy))?;
        graph.partitions = graph.core.partitions(policy)?;
        dump::graph(graph.id, &graph.core);
        Ok(())
    })
}

/// Reads how many partitions the last `sterna_graph_filter` found; 0 before the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_get_partition_num(
    graph: Option<&Graph>,
    num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        require(num, "num")?.write(graph.partitions.len());
        Ok(())
    })
}

/// Hands out all partitions of a graph, in an order in which they can run. `num` is what
/// `sterna_graph_get_partition_num` says, and `partitions` has room for as many. Each call makes new objects,
/// which the caller destroys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_get_partitions(
    graph: Option<&Graph>,
    num: usize,
    partitions: *mut Box<Partition>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        if num != graph.partitions.len() {
            let found = graph.partitions.len();
            return Err(match found {
                0 => Fault::invalid_arguments(format!(
                    "there are no partitions, not {num}; call `sterna_graph_filter` first"
                )),
                _ => Fault::count("partitions", num, found),
            });
        }
        let handles = graph.partitions.iter().map(|core| Box::new(Partition::new(core.clone())));
        // SAFETY: the caller promises room for so many.
        unsafe { fill(partitions, handles, "partitions") }?;
        dump::partitioning(graph.id, &graph.core, &graph.partitions);
        Ok(())
    })
}

/// Reads a graph from `length` bytes of JSON, in the format in which oneDNN writes graphs. The ops are added,
/// the graph is not fixed yet. The message of an error names the line and the column, the op and the key.
/// Lists and objects are at most 128 deep.
///
/// The kind of engine names the device of the dump. It is kept and written again; partitions run on CPU. Of a
/// tensor that an op of the graph produces, the producer's description counts; if a consumer's contradicted
/// it in anything but the type, `sterna_graph_get_json_notes` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_from_json(
    graph: Option<&mut MaybeUninit<Box<Graph>>>,
    json: *const c_char,
    length: usize,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        require(std::ptr::NonNull::new(json.cast_mut()), "json")?;
        // SAFETY: the caller promises so many bytes.
        let json = unsafe { array(json.cast::<u8>(), length, "json") }?;
        let json = std::str::from_utf8(json).map_err(|_| {
            // Field 1 of an ONNX model, a number: the version of the format.
            let is_onnx = json.first() == Some(&8);
            Fault::invalid_arguments(match is_onnx {
                true => "`json` is not UTF-8: this is an ONNX file",
                false => "`json` is not UTF-8",
            })
        })?;
        let (core, notes) = sterna::Graph::from_json_with_notes(json)?;
        let mut read = Graph::new(core);
        read.notes = notes;
        graph.write(read);
        Ok(())
    })
}

/// Tells where `sterna_graph_from_json` differs from the JSON: one line for each consumer of a tensor whose
/// description gave way to the producer's, none if no description did. The caller frees the text by
/// `sterna_string_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_get_json_notes(
    graph: Option<&Graph>,
    text: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let (graph, text) = (require(graph, "graph")?, require(text, "text")?);
        let lines: String = graph.notes.iter().map(|note| format!("{note}\n")).collect();
        string::into_c_string(&lines, text, None);
        Ok(())
    })
}

/// Writes a graph as JSON, in the format in which oneDNN writes graphs. The text ends with a zero, and the
/// caller frees it by `sterna_string_destroy`. `length`, which may be null, receives its length without the
/// zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_to_json(
    graph: Option<&Graph>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
    length: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (graph, json) = (require(graph, "graph")?, require(json, "json")?);
        string::into_c_string(&graph.core.to_json(), json, length);
        Ok(())
    })
}

/// Tells why an op shares a partition with its neighbours or not: one line for each attempt of a fusion, none
/// without attempts. The caller frees the text by `sterna_string_destroy`. `invalid_arguments` for an id that
/// no op of the graph has, `invalid_graph` before `sterna_graph_finalize`.
///
/// `sterna_partition_get_accuracy` says what becomes of the bits. With layout `any`, an op alone may settle
/// another layout, and with it another order of additions. The bits are those of the ops with the layouts
/// that the partition settled: those of its compiled inputs and outputs, and row-major ones for the tensors
/// inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_explain(
    graph: Option<&Graph>,
    op_id: usize,
    text: Option<&mut MaybeUninit<*mut c_char>>,
) -> Status {
    ffi_guard(|| {
        let (graph, text) = (require(graph, "graph")?, require(text, "text")?);
        if !graph.core.ops().iter().any(|op| op.id() == op_id) {
            return Err(Fault::invalid_arguments(format!("the graph has no op {op_id}")));
        }
        let concerns = |line: &Explanation| {
            line.seed.id == op_id || line.neighbour.is_some_and(|neighbour| neighbour.id == op_id)
        };
        let mut lines = String::new();
        for line in graph.core.explain()?.iter().filter(|line| concerns(line)) {
            let _ = match line.neighbour {
                Some(neighbour) => write!(lines, "{}: {} beside {}: ", line.fusion, neighbour, line.seed),
                None => write!(lines, "{}: {}: ", line.fusion, line.seed),
            };
            let _ = writeln!(lines, "{}", line.verdict);
        }
        string::into_c_string(&lines, text, None);
        Ok(())
    })
}
