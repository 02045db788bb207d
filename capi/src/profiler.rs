//! Profilers: functions of the caller that are told what ran, and how long.

use std::ffi::c_void;
use std::time::Duration;

use crate::ffi::Fault;
use crate::op::OpKind;
use crate::phase_kind::PhaseKind;

/// An op of the partition that ran.
#[repr(C)]
pub struct ProfiledOp {
    /// Its kind.
    pub kind: OpKind,
    /// Its id.
    pub id: usize,
}

/// A phase that has run.
#[repr(C)]
pub struct PhaseProfile {
    /// The number of ops of the partition.
    pub op_num: usize,
    /// The ops of the partition.
    pub ops: *const ProfiledOp,
    /// The index of the phase among those of the compiled partition, from 0.
    pub index: usize,
    /// The number of phases of the compiled partition. Phases whose results are kept of an earlier execution
    /// are left out.
    pub phase_num: usize,
    /// The computation of the phase; `sterna_phase_kind_string` names it.
    pub kind: PhaseKind,
    /// Its tasks.
    pub tasks: usize,
    /// The threads for which workers are woken.
    pub threads: usize,
    /// Bytes of the ports and internal buffers that it reads and writes, each as a whole and once.
    pub bytes: usize,
    /// Its floating-point operations, as `sterna_compiled_partition_get_phase_flops` says.
    pub flops: usize,
    /// The nanoseconds that it took.
    pub nanoseconds: u64,
}

/// An execution that has ended.
#[repr(C)]
pub struct ExecutionProfile {
    /// The number of ops of the partition.
    pub op_num: usize,
    /// The ops of the partition.
    pub ops: *const ProfiledOp,
    /// Bytes that it reads and writes, each distinct element counted once.
    pub bytes: usize,
    /// Its floating-point operations, as `sterna_compiled_partition_get_flops` says.
    pub flops: usize,
    /// The nanoseconds that it took, with those of the calls that tell of its phases.
    pub nanoseconds: u64,
}

/// Is told of a phase that has ended. The profile is valid during the call.
// A callback may unwind into the library: a panic of Rust code is stopped at the border on its way back.
pub type ProfilerPhase =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, profile: *const PhaseProfile)>;

/// Is told of an execution that has ended. The profile is valid during the call.
pub type ProfilerExecution =
    Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, profile: *const ExecutionProfile)>;

/// Functions of the caller that are told what the compiled partitions of an engine did. At least one of them
/// is not null.
///
/// The calls come from the thread that executes, after the phase or the execution has ended, in the order of
/// the phases. Executions on several threads call at once, so that the functions guard what they share. What
/// they take is not part of the times of phases. An execution that fails is not told, but for the phases that
/// ended before. The functions must be callable, with their data, until the last execution of the engine has
/// ended. They must not throw exceptions of C++.
#[repr(C)]
pub struct Profiler {
    /// Is told of each phase; may be null.
    pub phase: ProfilerPhase,
    /// Is told of each execution; may be null.
    pub execution: ProfilerExecution,
    /// The first argument of both functions, which the library does not look at.
    pub user_data: *mut c_void,
}

impl Profiler {
    /// The profiler with which engines are built.
    pub(crate) fn core(&self) -> Result<Calling, Fault> {
        let &Self { phase, execution, user_data } = self;
        if phase.is_none() && execution.is_none() {
            return Err(Fault::invalid_arguments("`profiler` has no function"));
        }
        Ok(Calling(Self { phase, execution, user_data }))
    }
}

/// The profiler of the library over the functions of a caller.
pub(crate) struct Calling(Profiler);

// SAFETY: the library hands the data to the functions and does not look at it; whoever made the engine
// promised that any thread may call the functions with it.
unsafe impl Send for Calling {}
// SAFETY: as for `Send`; the promise is for several threads at a time.
unsafe impl Sync for Calling {}

fn ops(ops: &[(sterna::OpKind, sterna::OpId)]) -> Vec<ProfiledOp> {
    ops.iter().map(|&(kind, id)| ProfiledOp { kind: kind.code() as OpKind, id: id.get() }).collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl sterna::Profiler for Calling {
    fn phase(&self, told: &sterna::PhaseProfile<'_>) {
        let Some(phase) = self.0.phase else { return };
        let ops = ops(told.ops);
        let profile = PhaseProfile {
            op_num: ops.len(),
            ops: ops.as_ptr(),
            index: told.index,
            phase_num: told.count,
            kind: told.kind.code() as PhaseKind,
            tasks: told.tasks,
            threads: told.threads,
            bytes: told.bytes,
            flops: told.flops,
            nanoseconds: nanoseconds(told.duration),
        };
        // SAFETY: the maker of the engine promised that any thread may call it so; profile and ops outlive
        // the call.
        unsafe { phase(self.0.user_data, &raw const profile) };
    }

    fn execution(&self, told: &sterna::ExecutionProfile<'_>) {
        let Some(execution) = self.0.execution else { return };
        let ops = ops(told.ops);
        let profile = ExecutionProfile {
            op_num: ops.len(),
            ops: ops.as_ptr(),
            bytes: told.bytes,
            flops: told.flops,
            nanoseconds: nanoseconds(told.duration),
        };
        // SAFETY: as in `phase`.
        unsafe { execution(self.0.user_data, &raw const profile) };
    }
}
