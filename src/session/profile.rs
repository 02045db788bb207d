//! How a plan came about, what a run spent its time on, and how the arena is laid out, as data.

use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::execute::sequence::{PartitionSequence, SequenceStep, StepTime, StepWork, bytes};
use crate::graph::logical_tensor::LogicalTensor;
use crate::partition::Partition;
use crate::types::constant_data::ConstantData;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::OpKind;
use crate::types::labels::PartitionLabels;

/// The use of the time of a [`RunSpan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanKind {
    /// A [`ModelSource`](crate::ModelSource) makes the model for the shapes.
    Source,
    /// The shape of every tensor is inferred.
    Infer,
    /// The graph is cut into partitions.
    Partition,
    /// A partition is compiled.
    Compile,
    /// A partition of constants alone runs, once for all runs.
    Fold,
    /// A partition runs.
    Execute,
    /// An op of the caller's own runs.
    Custom,
    /// The reference interpreter runs an op that no kernel runs, as [`SessionBuilder::fallback`] allows.
    ///
    /// [`SessionBuilder::fallback`]: crate::SessionBuilder::fallback
    Fallback,
    /// Rows of a state, or a part of the result of a `Concat`, that no op could write there are copied to
    /// their place.
    Copy,
}

impl SpanKind {
    /// Its name, in lower case.
    ///
    /// ```
    /// assert_eq!(sterna::SpanKind::Compile.name(), "compile");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Infer => "infer",
            Self::Partition => "partition",
            Self::Compile => "compile",
            Self::Fold => "fold",
            Self::Execute => "execute",
            Self::Custom => "custom",
            Self::Fallback => "fallback",
            Self::Copy => "copy",
        }
    }

    /// True for a step of a run, false for what comes before the first run on a set of shapes.
    ///
    /// ```
    /// use sterna::SpanKind;
    /// assert!(SpanKind::Execute.is_step() && !SpanKind::Compile.is_step());
    /// ```
    #[must_use]
    pub fn is_step(self) -> bool {
        matches!(self, Self::Execute | Self::Custom | Self::Fallback | Self::Copy)
    }
}

/// An op of a span or of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfiledOp {
    /// The kind.
    pub kind: OpKind,
    /// The id in the graph of the model.
    pub id: OpId,
    /// The name in the graph.
    pub name: String,
}

/// A stretch of time of one thread.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunSpan {
    /// The use of the time.
    pub kind: SpanKind,
    /// The place of the partition among those of the graph, if it is about one.
    pub partition: Option<usize>,
    /// The ops of that partition.
    pub ops: Arc<[ProfiledOp]>,
    /// Bytes that the step reads and writes, as
    /// [`CompiledPartition::bytes_moved`](crate::CompiledPartition::bytes_moved) counts them; 0 for what is
    /// no step.
    pub bytes: usize,
    /// The time at which it began.
    pub began: Instant,
    /// The time that it took.
    pub duration: Duration,
    /// The thread that called; workers beside it are not told apart.
    pub thread: ThreadId,
}

/// The time of a run, span by span.
///
/// [`Session::run_profiled`](crate::Session::run_profiled) gives one. A run that meets new shapes has the
/// spans of its plan as well.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session, SpanKind};
/// let g = GraphBuilder::new();
/// g.output("y", g.exp(g.input("x", DataType::F32, &[None])?)?)?;
/// let session = Session::new(g.build()?, &Engine::new())?;
/// let (_, profile) = session.run_profiled(&[("x", &[0.0f32, 1.0])])?;
/// assert!(profile.time_of(SpanKind::Execute) <= profile.duration);
/// for span in &profile.spans {
///     println!("{}: {:?}, {} bytes", span.kind.name(), span.duration, span.bytes);
/// }
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunProfile {
    /// The spans, in the order in which they began.
    pub spans: Vec<RunSpan>,
    /// The time at which the run began.
    pub began: Instant,
    /// The time that it took.
    pub duration: Duration,
}

impl RunProfile {
    /// The time of all spans of a kind.
    #[must_use]
    pub fn time_of(&self, kind: SpanKind) -> Duration {
        self.spans.iter().filter(|span| span.kind == kind).map(|span| span.duration).sum()
    }
}

/// A step of a plan.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ArenaStep {
    /// Who runs it, or that it copies rows of the state: one of the kinds that are
    /// [steps](SpanKind::is_step).
    pub kind: SpanKind,
    /// The place of its partition among those of the graph, if it is one.
    pub partition: Option<usize>,
    /// Its ops.
    pub ops: Arc<[ProfiledOp]>,
    /// Bytes of scratch that it needs while it runs.
    pub scratch: usize,
}

/// Bytes of the arena, and the steps during which they hold tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaBuffer {
    /// The tensors that have the bytes, one in the place of the other.
    pub tensors: Vec<TensorId>,
    /// The place of the first byte.
    pub offset: usize,
    /// The number of bytes.
    pub bytes: usize,
    /// The step that writes it first, from 0.
    pub first_step: usize,
    /// The last step that needs it.
    pub last_step: usize,
}

/// How the memory of a run is laid out: an arena for the tensors between steps, and scratch behind it.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[Some(64), Some(64)])?;
/// let w = g.input("w", DataType::F32, &[Some(64), Some(64)])?;
/// g.output("y", g.matmul(g.matmul(x, w)?, w)?)?;
/// let session = Session::new(g.build()?, &Engine::new())?;
/// let arena = session.arena_plan().expect("all shapes are known");
/// assert_eq!((arena.steps.len(), arena.buffers.len()), (2, 1));
/// assert_eq!((arena.buffers[0].first_step, arena.buffers[0].last_step), (0, 1));
/// assert!(arena.bytes >= arena.buffers[0].bytes);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ArenaPlan {
    /// The steps, in their order.
    pub steps: Vec<ArenaStep>,
    /// The buffers, in the order of the steps that write them.
    pub buffers: Vec<ArenaBuffer>,
    /// Bytes of the arena.
    pub bytes: usize,
    /// Bytes of scratch: the most that a step needs.
    pub scratch: usize,
}

/// A partition as profiles name it: its place, and what partitions of other sizes share with it.
#[derive(Debug)]
struct NotedPartition(usize, Arc<PartitionLabels>);

impl NotedPartition {
    fn new(partition: &Partition) -> Self {
        Self(partition.id(), partition.labels().clone())
    }
}

/// A step of a plan, as it is kept for profiles.
#[derive(Debug)]
struct StepNote {
    kind: SpanKind,
    /// The partition of the graph that it runs, unless it copies.
    of: Option<NotedPartition>,
}

/// A part of the making of a plan, which may be about one partition.
#[derive(Debug)]
struct PlanSpan {
    kind: SpanKind,
    of: Option<NotedPartition>,
    began: Instant,
    duration: Duration,
    thread: ThreadId,
}

impl PlanSpan {
    fn told(&self) -> RunSpan {
        let &Self { kind, ref of, began, duration, thread } = self;
        RunSpan { kind, partition: id_of(of), ops: ops_of(of), bytes: 0, began, duration, thread }
    }
}

/// The record of the making of a plan.
#[derive(Debug)]
pub(super) struct PlanRecord {
    began: Instant,
    spans: Vec<PlanSpan>,
    steps: Vec<StepNote>,
    pub(super) buffers: Vec<ArenaBuffer>,
}

impl PlanRecord {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), spans: Vec::new(), steps: Vec::new(), buffers: Vec::new() }
    }

    /// Does a part of the work, which may be about one partition, and keeps its time.
    pub(super) fn timed<T>(&mut self, kind: SpanKind, of: Option<&Partition>, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.add(kind, of, began);
        done
    }

    /// Adds a span that ends now.
    pub(super) fn add(&mut self, kind: SpanKind, of: Option<&Partition>, began: Instant) {
        let duration = began.elapsed();
        let thread = thread::current().id();
        self.spans.push(PlanSpan { kind, of: of.map(NotedPartition::new), began, duration, thread });
    }

    /// Adds a step, of a partition of the graph unless it copies.
    pub(super) fn step(&mut self, kind: SpanKind, of: Option<&Partition>) {
        self.steps.push(StepNote { kind, of: of.map(NotedPartition::new) });
    }
}

fn id_of(partition: &Option<NotedPartition>) -> Option<usize> {
    partition.as_ref().map(|noted| noted.0)
}

fn ops_of(partition: &Option<NotedPartition>) -> Arc<[ProfiledOp]> {
    let Some(NotedPartition(_, labels)) = partition else { return Arc::default() };
    let ops = labels.ops.iter().zip(&labels.names);
    ops.map(|(&(kind, id), name)| ProfiledOp { kind, id, name: name.clone() }).collect()
}

/// The sequence that runs on one set of shapes, and how it came about.
#[derive(Debug)]
pub(super) struct SessionPlan {
    pub(super) sequence: PartitionSequence,
    pub(super) record: PlanRecord,
    /// The bytes that it takes, about, beside those that it shares with the plan that was made before it.
    pub(super) bytes: usize,
}

/// The bytes of a step of a plan, about: its tensors, and the part of steps that are compiled for one plan.
const STEP_BYTES: usize = 1 << 10;

impl Deref for SessionPlan {
    type Target = PartitionSequence;

    fn deref(&self) -> &PartitionSequence {
        &self.sequence
    }
}

impl SessionPlan {
    /// A plan that is made behind another one.
    pub(super) fn new(sequence: PartitionSequence, record: PlanRecord, before: Option<&Self>) -> Self {
        let constants = sequence.constants();
        let shared = before.map_or(constants, |before| before.sequence.constants());
        let is_own = |index: usize, data: &ConstantData| {
            let other = shared.get(index);
            other.is_none_or(|other| other.bytes().as_ptr() != data.bytes().as_ptr())
        };
        let own = constants.iter().enumerate().filter(|(index, data)| is_own(*index, data));
        let own: usize = own.map(|(_, data)| data.bytes().len()).sum();
        let bytes = own.saturating_add(sequence.steps().len().saturating_mul(STEP_BYTES));
        Self { sequence, record, bytes }
    }

    /// The making of the plan.
    pub(super) fn profile(&self) -> RunProfile {
        let PlanRecord { began, spans, .. } = &self.record;
        let end = spans.iter().map(|span| span.began + span.duration).max();
        let duration = end.map_or(Duration::ZERO, |end| end.duration_since(*began));
        RunProfile { spans: spans.iter().map(PlanSpan::told).collect(), began: *began, duration }
    }

    /// The profile of a run that began and ended now, with the making of the plan if the run made it.
    pub(super) fn profile_of(&self, began: Instant, times: &[StepTime]) -> RunProfile {
        let thread = thread::current().id();
        let span = |((note, step), time): ((&StepNote, &SequenceStep), &StepTime)| RunSpan {
            kind: note.kind,
            partition: id_of(&note.of),
            ops: ops_of(&note.of),
            bytes: moved(step),
            began: time.began,
            duration: time.duration,
            thread,
        };
        let planning = self.record.spans.iter().filter(|span| span.began >= began).map(PlanSpan::told);
        let steps = self.record.steps.iter().zip(self.sequence.steps()).zip(times).map(span);
        let spans = planning.chain(steps).collect();
        RunProfile { spans, began, duration: began.elapsed() }
    }

    /// The layout of the memory of a run.
    pub(super) fn arena(&self) -> ArenaPlan {
        let (bytes, scratch) = self.sequence.memory();
        let step = |(note, step): (&StepNote, &SequenceStep)| ArenaStep {
            kind: note.kind,
            partition: id_of(&note.of),
            ops: ops_of(&note.of),
            scratch: match &step.work {
                StepWork::Partition(compiled) => compiled.scratchpad_size(),
                StepWork::Function { .. } => 0,
            },
        };
        let steps = self.record.steps.iter().zip(self.sequence.steps()).map(step).collect();
        ArenaPlan { steps, buffers: self.record.buffers.clone(), bytes, scratch }
    }
}

/// Bytes that a step reads and writes.
fn moved(step: &SequenceStep) -> usize {
    match &step.work {
        StepWork::Partition(compiled) => compiled.bytes_moved(),
        StepWork::Function { descs, .. } => {
            descs.iter().map(|desc: &LogicalTensor| bytes(desc)).fold(0, usize::saturating_add)
        }
    }
}
