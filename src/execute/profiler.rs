//! A hook that is told what ran, and how long.

use std::time::{Duration, Instant};

use crate::types::kind::{OpId, OpKind, PhaseKind};

/// Is told of each phase and each execution of an engine's compiled partitions.
///
/// The calls come from the thread that executes, after the phase or the execution has ended; executions of
/// several threads call at once. Durations leave out the time of the functions themselves. An execution
/// that fails is not reported. An engine without a profiler measures nothing.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use sterna::{
///     DataType, Engine, ExecutionProfile, LogicalTensor, Op, OpKind, Partition, PhaseKind, PhaseProfile,
///     Profiler,
/// };
///
/// #[derive(Default)]
/// struct Kinds(Mutex<Vec<PhaseKind>>);
///
/// impl Profiler for Kinds {
///     fn phase(&self, phase: &PhaseProfile<'_>) {
///         self.0.lock().unwrap().push(phase.kind);
///     }
///
///     fn execution(&self, execution: &ExecutionProfile<'_>) {
///         println!("{:?} moved {} bytes in {:?}", execution.ops, execution.bytes, execution.duration);
///     }
/// }
///
/// let kinds = Arc::new(Kinds::default());
/// let engine = Engine::builder().profiler(kinds.clone()).build();
/// let op = Op::new(0, OpKind::Abs)
///     .input(LogicalTensor::strided(0, DataType::F32, &[3])?)
///     .output(LogicalTensor::unknown(1, DataType::F32));
/// let compiled = Partition::from_op(op)?.compile(&engine)?;
/// let mut result = [0.0f32; 3];
/// let inputs = [compiled.tensor("src", &[1.0f32, -2.0, 3.0])?];
/// compiled.run(&inputs, &mut [compiled.tensor_mut("dst", &mut result)?])?;
/// assert_eq!(*kinds.0.lock().unwrap(), [PhaseKind::Map]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub trait Profiler: Send + Sync {
    /// A phase has ended.
    fn phase(&self, phase: &PhaseProfile<'_>) {
        let _ = phase;
    }

    /// An execution has ended.
    fn execution(&self, execution: &ExecutionProfile<'_>) {
        let _ = execution;
    }
}

/// A phase that has run.
///
/// ```
/// use sterna::{PhaseProfile, Profiler};
///
/// /// Prints how fast each phase moved its bytes.
/// struct Speeds;
///
/// impl Profiler for Speeds {
///     fn phase(&self, phase: &PhaseProfile<'_>) {
///         let speed = phase.bytes as f64 / phase.duration.as_secs_f64() / 1e9;
///         println!("{} of {}, {:?}: {speed:.1} GB/s", phase.index + 1, phase.count, phase.kind);
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PhaseProfile<'a> {
    /// The ops of the partition, by kind and id.
    pub ops: &'a [(OpKind, OpId)],
    /// The index of the phase among those of the plan, from 0.
    pub index: usize,
    /// Number of phases of the plan. Phases whose results are kept of an earlier execution are left out.
    pub count: usize,
    /// The kind of computation.
    pub kind: PhaseKind,
    /// Its tasks.
    pub tasks: usize,
    /// The threads for which workers are woken.
    pub threads: usize,
    /// Bytes of the ports and internal buffers that it reads and writes, each as a whole and once.
    pub bytes: usize,
    /// Its floating-point operations, as in [`PlanSummary::flops`](crate::PlanSummary::flops).
    pub flops: usize,
    /// The time at which it began.
    pub began: Instant,
    /// The time that it took.
    pub duration: Duration,
}

/// An execution that has ended.
///
/// ```
/// use std::time::Duration;
///
/// use sterna::{ExecutionProfile, Profiler};
///
/// /// Prints the executions that take long.
/// struct Slow(Duration);
///
/// impl Profiler for Slow {
///     fn execution(&self, execution: &ExecutionProfile<'_>) {
///         if execution.duration > self.0 {
///             println!("{:?} took {:?} for {} bytes", execution.ops, execution.duration, execution.bytes);
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExecutionProfile<'a> {
    /// The ops of the partition, by kind and id.
    pub ops: &'a [(OpKind, OpId)],
    /// Bytes that it reads and writes, each distinct element counted once.
    pub bytes: usize,
    /// Its floating-point operations, as in [`PlanSummary::flops`](crate::PlanSummary::flops).
    pub flops: usize,
    /// The time at which it began: tensors were checked, memory for scratch was there.
    pub began: Instant,
    /// The time that it took, with that of the calls of [`Profiler::phase`].
    pub duration: Duration,
}
