//! Lines on each compilation and each execution.

use std::ffi::c_int;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use sterna::environment;

use crate::ffi::{Fault, ffi_guard};
use crate::status::Status;

/// Not read yet: the environment decides.
const OPEN: c_int = -1;

static LEVEL: AtomicI32 = AtomicI32::new(OPEN);

/// True if lines are written.
#[inline]
pub fn is_on() -> bool {
    match LEVEL.load(Ordering::Relaxed) {
        OPEN => of_environment() > 0,
        level => level > 0,
    }
}

#[cold]
fn of_environment() -> c_int {
    static LEVEL_OF_ENVIRONMENT: OnceLock<c_int> = OnceLock::new();
    let level = *LEVEL_OF_ENVIRONMENT.get_or_init(|| {
        environment::VERBOSE.read().or_else(|| environment::ONEDNN_VERBOSE.read()).unwrap_or(0)
    });
    // A level that another thread set meanwhile stays.
    let _ = LEVEL.compare_exchange(OPEN, level, Ordering::Relaxed, Ordering::Relaxed);
    level
}

/// Writes one line: the action, the ops, the tensors and the milliseconds.
pub(crate) fn line(
    what: &str,
    partition: &sterna::Partition,
    compiled: &sterna::CompiledPartition,
    time: Duration,
) {
    let kinds: Vec<_> = partition.ops().iter().map(|op| op.kind().name()).collect();
    let tensors = |tensors: &[sterna::LogicalTensor]| {
        let one = |tensor: &sterna::LogicalTensor| {
            let dims: Vec<_> = tensor.dims().unwrap_or_default().iter().map(i64::to_string).collect();
            format!("{}:{}:{}", tensor.id(), tensor.data_type(), dims.join("x"))
        };
        tensors.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let (inputs, outputs) = (tensors(compiled.inputs()), tensors(compiled.outputs()));
    let line = format!(
        "sterna_verbose,graph,{what},cpu,{},{},in {inputs} out {outputs},{},{:.6}\n",
        partition.id(),
        kinds.join("+"),
        compiled.engine().level(),
        time.as_secs_f64() * 1e3,
    );
    write(&line);
}

/// Writes a line of the library.
pub fn write(line: &str) {
    // If standard output is closed, nobody can be told.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Sets whether each compilation and each execution writes a line to the standard output: 0 is no, 1 and 2
/// are yes. Before the first call the environment variable `STERNA_VERBOSE` decides, or `ONEDNN_VERBOSE` if
/// the first one is not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_verbose_set(level: c_int) -> Status {
    ffi_guard(|| {
        if !(0..=2).contains(&level) {
            return Err(Fault::unknown("verbosity", level));
        }
        LEVEL.store(level, Ordering::Relaxed);
        Ok(())
    })
}
