//! A graph as a whole, in one session: its latency, how many runs a second there are, and its memory.

mod memory;
pub(crate) mod steps;
pub(crate) mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use sterna::{
    ConstantData, Engine, Graph, LogicalTensor, Model, ModelPort, Op, RunProfile, Session, TensorBuf,
    TensorId,
};
use sterna_import::Constant;
use sterna_inspect::{Time, size};

use self::streams::{SessionInputs, StreamTimes, views};
use crate::host::HostTensor;
use crate::latency::Latency;
use crate::timing::Repeat;
use crate::trace::{KindShare, PhaseSink, Trace, shares, table};

/// The most runs in a profile, and the time after which there is no other.
const PROFILED: usize = 10;
const PROFILED_FOR: Duration = Duration::from_millis(100);

/// Steps, each on the state that the one before has left.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StepsReport {
    pub(crate) steps: usize,
    /// The rows of the state.
    pub(crate) rows: usize,
    /// Bytes of the memory of the state.
    pub(crate) state_memory: usize,
}

/// The runs of a graph as a whole.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WholeReport {
    /// The partitions that a run executes; those that move nothing are none of them.
    pub(crate) partitions: usize,
    /// The ops that the reference interpreter runs, since no kernel does.
    pub(crate) fallbacks: usize,
    /// Seconds to infer shapes, to cut the graph into partitions and to compile them.
    pub(crate) plan_seconds: f64,
    /// Seconds of the first run.
    pub(crate) first_seconds: f64,
    /// Callers at once.
    pub(crate) streams: usize,
    /// The runs that were timed.
    pub(crate) runs: usize,
    /// A run that was not timed came before.
    pub(crate) is_warm: bool,
    /// Seconds of a run.
    pub(crate) latency: Latency,
    pub(crate) runs_per_second: f64,
    /// Bytes that the partitions of a run read and write.
    pub(crate) bytes_moved: usize,
    /// Bytes of a run: tensors between partitions, and scratch.
    pub(crate) run_memory: usize,
    /// The most bytes that the process had in memory, where the system tells it.
    pub(crate) peak_memory: Option<u64>,
    /// The state that steps have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<StepsReport>,
    /// The time of a run by kinds of ops, in a run that was profiled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) by_kind: Vec<KindShare>,
}

impl Display for WholeReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { partitions, fallbacks, plan_seconds, first_seconds, streams, runs, latency, .. } = self;
        write!(f, "  runs     partitions {partitions}")?;
        if *fallbacks > 0 {
            write!(f, ", ops by the reference interpreter {fallbacks}")?;
        }
        writeln!(f, "\n  plan     {}, first run {}", Time(*plan_seconds), Time(*first_seconds))?;
        let Latency { min, p50, p90, p99 } = *latency;
        match self.is_warm {
            false => writeln!(f, "  latency  {}, once and cold", Time(min))?,
            true => writeln!(
                f,
                "  latency  {} best, p50 {}, p90 {}, p99 {} of {runs}",
                Time(min),
                Time(p50),
                Time(p90),
                Time(p99)
            )?,
        }
        if self.is_warm {
            match &self.steps {
                Some(_) => writeln!(f, "  rate     {:.1} steps/s", self.runs_per_second)?,
                None => writeln!(f, "  rate     {:.1} runs/s, streams {streams}", self.runs_per_second)?,
            }
        }
        if let Some(StepsReport { steps, rows, state_memory }) = &self.steps {
            writeln!(f, "  state    rows {rows} after {steps} steps, {}", size(*state_memory))?;
        }
        write!(f, "  memory   {} a run", size(self.run_memory))?;
        if let Some(peak) = self.peak_memory {
            write!(f, ", {} of the process at most", size(usize::try_from(peak).unwrap_or(usize::MAX)))?;
        }
        writeln!(f)?;
        if self.by_kind.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        f.write_str(&table(&self.by_kind, |seconds| Time(seconds).to_string()).text())
    }
}

/// The model of a graph, whose inputs and outputs are called by their ids. Without outputs of its own it has
/// those of the graph.
pub(crate) fn model(
    graph: &Graph,
    constants: &BTreeMap<TensorId, Constant>,
    outputs: &[TensorId],
) -> Result<Model> {
    let mut model = Model::new(graph.clone())?;
    let mentions = || graph.ops().iter().flat_map(|op| op.outputs().iter().chain(op.inputs()));
    let mut ports: Vec<ModelPort> = Vec::new();
    for id in outputs {
        let name = id.to_string();
        let tensor = mentions().find(|tensor| tensor.id() == *id);
        if let Some(tensor) = tensor.filter(|_| ports.iter().all(|port| port.name() != name)) {
            ports.push(ModelPort::new(name, tensor.clone()));
        }
    }
    if !ports.is_empty() {
        let inputs = model.inputs().to_vec();
        model = Model::with_ports(model.into_graph(), inputs, ports)?;
    }
    for (id, constant) in constants {
        model = model.constant(*id, ConstantData::new(constant.clone()));
    }
    Ok(model)
}

/// Those constants that a session can have as they are: they lie row by row, and nothing else is given.
pub(crate) fn shared(
    graph: &Graph,
    mut constants: BTreeMap<TensorId, Constant>,
    is_given: impl Fn(TensorId) -> bool,
) -> BTreeMap<TensorId, Constant> {
    let mentions = graph.ops().iter().flat_map(Op::inputs);
    let strided: BTreeSet<TensorId> =
        mentions.filter(|input| !is_dense(input)).map(LogicalTensor::id).collect();
    constants.retain(|id, _| !strided.contains(id) && !is_given(*id));
    constants
}

/// True if a tensor lies row by row, or may.
fn is_dense(tensor: &LogicalTensor) -> bool {
    let Some(strides) = tensor.strides() else { return true };
    let dense = tensor.dims().map(|dims| LogicalTensor::strided(tensor.id(), tensor.data_type(), dims));
    matches!(dense, Some(Ok(dense)) if dense.strides() == Some(strides))
}

/// A graph that is run as a whole.
pub(crate) struct WholeRun<'a> {
    pub(crate) model: Model,
    pub(crate) engine: &'a Engine,
    pub(crate) tensors: &'a BTreeMap<TensorId, HostTensor>,
    pub(crate) streams: usize,
    pub(crate) repeat: Repeat,
    /// The sink of the engine, if the run is profiled.
    pub(crate) sink: Option<&'a PhaseSink>,
}

/// The outcome of a graph that was run as a whole.
pub(crate) struct WholeEnded {
    pub(crate) report: WholeReport,
    /// The outputs, each with its id in the graph.
    pub(crate) outputs: Vec<(TensorId, HostTensor)>,
    pub(crate) trace: Option<Trace>,
}

impl WholeRun<'_> {
    /// Runs the graph; `tell` is given the report so far, every now and then.
    pub(crate) fn run(self, tell: &dyn Fn(WholeReport)) -> Result<WholeEnded> {
        let Self { model, engine, tensors, streams, repeat, sink } = self;
        let mut trace = sink.map(|_| Trace::new());
        let began = Instant::now();
        let session = Session::builder(model).fallback(true).arenas(streams).build(engine)?;
        let plan_seconds = began.elapsed().as_secs_f64();
        let inputs = inputs(&session, tensors)?;

        let began = Instant::now();
        let (outputs, profiles) = match (sink, &mut trace) {
            (Some(sink), Some(trace)) => profiled(&session, &inputs, sink, trace)?,
            _ => (session.run(&views(&inputs)?)?.into_tensors(), Vec::new()),
        };
        let first = profiles.first().map_or_else(|| began.elapsed(), |profile| profile.duration);
        let (partitions, fallbacks) = session.run_steps();
        let report = |times: &StreamTimes, is_warm| {
            Some(WholeReport {
                partitions,
                fallbacks,
                plan_seconds,
                first_seconds: first.as_secs_f64(),
                streams,
                runs: times.seconds.len(),
                is_warm,
                latency: Latency::of(&times.seconds)?,
                runs_per_second: times.runs_per_second(),
                bytes_moved: session.bytes_moved(),
                run_memory: session.run_memory(),
                peak_memory: memory::peak(),
                steps: None,
                by_kind: shares(profiles.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&profiles)),
            })
        };
        let cold = StreamTimes { seconds: vec![first.as_secs_f64()], elapsed: first };
        let report = match repeat.is_over_after(first) {
            true => report(&cold, false),
            false => {
                let tell = |times: &StreamTimes| {
                    report(times, true).into_iter().for_each(tell);
                    true
                };
                report(&streams::timed(&session, &inputs, streams, repeat, &tell)?, true)
            }
        };
        let report = report.context("nothing was timed")?;
        let ids = session.outputs().iter().map(|port| port.tensor.id());
        let outputs = ids.zip(outputs).map(|(id, output)| (id, HostTensor::of(output, id))).collect();
        Ok(WholeEnded { report, outputs, trace })
    }
}

/// The inputs of a session whose inputs are called by ids.
pub(crate) fn inputs<'a>(
    session: &Session,
    tensors: &'a BTreeMap<TensorId, HostTensor>,
) -> Result<SessionInputs<'a>> {
    let input = |port: &ModelPort| {
        let id = port.tensor.id();
        let tensor = tensors.get(&id).with_context(|| format!("tensor {id} has no value"))?;
        Ok((port.name().to_owned(), tensor))
    };
    session.inputs().iter().map(input).collect()
}

/// The first runs, profiled.
fn profiled(
    session: &Session,
    inputs: &SessionInputs<'_>,
    sink: &PhaseSink,
    trace: &mut Trace,
) -> Result<(Vec<TensorBuf>, Vec<RunProfile>)> {
    session.plan_profile().iter().for_each(|plan| trace.plan(plan));
    let given = views(inputs)?;
    sink.switch(true);
    let start = Instant::now();
    let (outputs, first) = session.run_profiled(&given)?;
    let mut profiles = vec![first];
    while profiles.len() < PROFILED && (profiles.len() < 2 || start.elapsed() < PROFILED_FOR) {
        profiles.push(session.run_profiled(&given)?.1);
    }
    sink.switch(false);
    profiles.iter().enumerate().for_each(|(number, profile)| trace.run(number, profile));
    trace.phases(sink);
    Ok((outputs.into_tensors(), profiles))
}
