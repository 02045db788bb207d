//! A run: its cases, and how each is prepared and measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rayon::{ThreadPool, ThreadPoolBuilder};
use sterna::{
    CompiledPartition, Engine, LogicalTensor, Partition, Policy, Stream, Tensor, TensorId, TensorMut,
};
use sterna_inspect::TilesReport;

use super::args::BenchArgs;
use super::limit::Arithmetic;
use super::machine::Machine;
use super::measure::{Measured, best, interleaved};
use super::progress::Progress;
use super::record::{Case, Ceiling, Run, WholeCase};
use super::streams::{Streams, Traffic};
use super::suites::Subject;
use crate::command_error::CommandError;
use crate::fill::Fills;
use crate::host::HostTensor;
use crate::latency::Latency;
use crate::timing::Repeat;
use crate::whole;
use crate::whole::streams::{self, StreamTimes};
use crate::words::check_id;

/// The sizes at which the streaming limit itself is measured, by doubling.
const MIN_CEILING: usize = 4 << 10;
const MAX_CEILING: usize = 256 << 20;

/// The longest measurement of one size.
const CEILING_TIME: Duration = Duration::from_millis(30);

type Tensors = BTreeMap<TensorId, HostTensor>;

/// A number of threads: an engine, and the pool that it shares with the streaming limit.
struct Team {
    engine: Engine,
    pool: Arc<ThreadPool>,
}

/// A subject with its partitions, each with the name of its case.
struct Prepared<'a> {
    subject: &'a Subject,
    partitions: Vec<(String, Partition)>,
    /// The name of the case of all partitions, if there are several and all run.
    whole: Option<String>,
    fills: Fills,
}

/// Everything that one run measures.
pub(crate) struct Session<'a> {
    args: &'a BenchArgs,
    prepared: Vec<Prepared<'a>>,
    teams: Vec<Team>,
    notes: Vec<String>,
}

/// The outcome of a run.
pub(crate) struct Ended {
    pub(crate) run: Run,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
    /// The user interrupted the run.
    pub(crate) interrupted: bool,
}

impl Prepared<'_> {
    /// The names of the cases.
    fn names(&self) -> impl Iterator<Item = &str> {
        let supported = self.partitions.iter().filter(|(_, partition)| partition.is_supported());
        supported.map(|(name, _)| name.as_str()).chain(self.whole.as_deref())
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(args: &'a BenchArgs, subjects: &'a [Subject]) -> Result<Self, CommandError> {
        let mut notes = Vec::new();
        let teams = teams(args, &mut notes).map_err(CommandError::failed)?;
        let mut prepared = Vec::new();
        for subject in subjects {
            let partitions = partitions(subject, args.options.policy()).map_err(CommandError::failed)?;
            let mut values = subject.constants.clone();
            values.extend(subject.given.iter().map(|(id, value)| (*id, value.clone())));
            let fills = Fills::new(&subject.graph, values, subject.fills.clone(), args.seed);
            let runs = |(_, partition): &(String, Partition)| {
                partition.is_supported() || partition.outputs().is_empty()
            };
            let is_asked = partitions.len() > 1 || args.streams.is_some();
            let is_whole = is_asked && partitions.iter().all(runs);
            let whole = is_whole.then(|| format!("{}/whole", subject.name));
            prepared.push(Prepared { subject, partitions, whole, fills });
        }
        let mut session = Self { args, prepared, teams, notes };
        session.check().map_err(CommandError::usage)?;
        Ok(session)
    }

    /// The names of the selected cases.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let of_subject = |prepared: &Prepared<'a>| prepared.names().map(str::to_owned).collect::<Vec<_>>();
        self.prepared.iter().flat_map(of_subject).filter(|name| self.args.wants(name))
    }

    fn check(&mut self) -> Result<()> {
        let all = self.prepared.iter().flat_map(|prepared| &prepared.partitions);
        for (name, partition) in all.clone() {
            if let Some(reason) = partition.unsupported_reason() {
                self.notes.push(format!("{name} is left out: {reason}"));
            }
        }
        if self.names().next().is_none() {
            let known: Vec<&str> = all.map(|(name, _)| name.as_str()).collect();
            match self.args.filter.is_empty() {
                true => bail!("the graph has no partition that runs: {}", self.notes.join("; ")),
                false => bail!("--filter takes none of the cases; choose from {}", known.join(", ")),
            }
        }
        for Prepared { subject, partitions, .. } in &self.prepared {
            let inputs = subject.graph.inputs();
            let computed = partitions.iter().flat_map(|(_, partition)| partition.outputs());
            let held: Vec<TensorId> = inputs.iter().copied().chain(computed).map(LogicalTensor::id).collect();
            for (id, _) in &subject.fills {
                check_id("--fill", *id, &held, "an input of the graph or handed out by a partition")?;
            }
        }
        Ok(())
    }

    /// Measures every case.
    pub(crate) fn run(mut self, subject: String) -> Result<Ended, CommandError> {
        let level = self.teams[0].engine.level().name();
        let mut run = Run::new(Machine::here(), level, subject, self.args.time.as_secs_f64());
        let wants_ceilings = self.args.save.is_some() || self.args.plot.is_some();
        let cases = self.names().count() * self.teams.len();
        let ceilings = if wants_ceilings { ceiling_sizes().count() * self.teams.len() } else { 0 };
        let time = self.args.time.saturating_mul(u32::try_from(cases).unwrap_or(u32::MAX));
        let progress = Progress::new(time + self.ceiling_time() * ceilings as u32);
        let measured = self.measure(&mut run, &progress).map_err(CommandError::failed)?;
        let interrupted = match measured && wants_ceilings {
            true => !self.ceilings(&mut run, &progress).map_err(CommandError::failed)?,
            false => !measured,
        };
        drop(progress);
        Ok(Ended { run, notes: self.notes, interrupted })
    }

    /// Measures the cases; false if the user interrupts.
    fn measure(&mut self, run: &mut Run, progress: &Progress) -> Result<bool> {
        let (mut streams, time) = (Streams::new(), self.args.time);
        for prepared in &self.prepared {
            if !prepared.names().any(|name| self.args.wants(name)) {
                continue;
            }
            let inputs = inputs(prepared, &self.teams[0].engine)?;
            for team in &self.teams {
                let mut tensors = copied(&inputs, &team.engine)?;
                // Of several partitions nobody knows the parts.
                let work = prepared.subject.work.filter(|_| prepared.partitions.len() == 1);
                let callers = self.args.streams.unwrap_or(1).into();
                let mut meter = Meter { team, time, callers, progress, streams: &mut streams, work };
                for (name, partition) in &prepared.partitions {
                    let name = Some(name.as_str()).filter(|name| self.args.wants(name));
                    match step(name, partition, &mut tensors, &prepared.fills, &mut meter)? {
                        Step::Measured(case) => run.cases.push(*case),
                        Step::LeftOut(note) if !self.notes.contains(&note) => self.notes.push(note),
                        Step::LeftOut(_) | Step::Passed => {}
                        Step::Interrupted => return Ok(false),
                    }
                }
                let whole = prepared.whole.as_deref().filter(|name| self.args.wants(name));
                if let Some(name) = whole {
                    match whole_graph(name, prepared, &inputs, &mut meter)? {
                        Step::Measured(case) => run.cases.push(*case),
                        Step::Interrupted => return Ok(false),
                        Step::LeftOut(_) | Step::Passed => {}
                    }
                }
            }
        }
        Ok(true)
    }

    /// Measures the streaming limit at every size; false if the user interrupts.
    fn ceilings(&self, run: &mut Run, progress: &Progress) -> Result<bool> {
        let mut streams = Streams::new();
        let time = self.ceiling_time();
        for Team { engine, pool } in &self.teams {
            let threads = engine.threads();
            progress.begin(format!("streaming limit, {}", counted(threads, "thread")));
            for bytes in ceiling_sizes() {
                let half = Traffic { read: bytes / 2, written: bytes / 2 };
                let (strategy, _) = streams.fastest(half, threads, pool).with_context(|| no_memory(half))?;
                let copy = || {
                    streams.run(half, strategy, pool);
                    Ok(())
                };
                let Some(seconds) = best(copy, time, progress)? else { return Ok(false) };
                run.ceilings.push(Ceiling { threads, bytes, seconds });
            }
        }
        Ok(true)
    }

    fn ceiling_time(&self) -> Duration {
        CEILING_TIME.min(self.args.time)
    }
}

fn ceiling_sizes() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(MIN_CEILING), |size| Some(2 * size)).take_while(|&size| size <= MAX_CEILING)
}

fn teams(args: &BenchArgs, notes: &mut Vec<String>) -> Result<Vec<Team>> {
    let mut teams: Vec<Team> = Vec::new();
    for threads in args.threads.clone().unwrap_or_default().0 {
        let workers = (threads - 1).max(1);
        let pool = ThreadPoolBuilder::new().num_threads(workers).build();
        let pool = pool.map_err(|error| anyhow!("{workers} workers cannot be started: {error}"))?;
        let pool = Arc::new(pool);
        let engine = Engine::builder().pool(pool.clone()).threads(threads).build();
        let got = engine.threads();
        if got != threads {
            notes.push(format!("the environment lowers {threads} threads to {got}"));
        }
        if !teams.iter().any(|team| team.engine.threads() == got) {
            teams.push(Team { engine, pool });
        }
    }
    Ok(teams)
}

/// The partitions of a subject; a single partition's case has the name of the subject.
fn partitions(subject: &Subject, policy: Policy) -> Result<Vec<(String, Partition)>> {
    const NAMED_KINDS: usize = 3;
    let partitions = subject.graph.partitions(policy)?;
    let is_one = partitions.len() == 1;
    let name = |partition: &Partition| {
        let kinds: Vec<&str> = partition.ops().iter().map(|op| op.kind().name()).collect();
        let named = kinds[..kinds.len().min(NAMED_KINDS)].join("+");
        let more = match kinds.len().saturating_sub(NAMED_KINDS) {
            0 => String::new(),
            more => format!("+{more}"),
        };
        match is_one {
            true => subject.name.clone(),
            false => format!("{}/{}-{named}{more}", subject.name, partition.id()),
        }
    };
    Ok(partitions.into_iter().map(|partition| (name(&partition), partition)).collect())
}

/// The inputs of a graph, filled.
fn inputs(prepared: &Prepared<'_>, engine: &Engine) -> Result<Tensors> {
    let mut tensors = BTreeMap::new();
    for desc in prepared.subject.graph.inputs() {
        tensors.insert(desc.id(), filled(desc, &prepared.fills, engine)?);
    }
    Ok(tensors)
}

fn filled(desc: &LogicalTensor, fills: &Fills, engine: &Engine) -> Result<HostTensor> {
    let mut tensor = HostTensor::zeroed(desc, engine)
        .with_context(|| format!("no memory can be made for tensor {}", desc.id()))?;
    tensor.fill(fills)?;
    Ok(tensor)
}

/// The same tensors for another engine.
fn copied(tensors: &Tensors, engine: &Engine) -> Result<Tensors> {
    tensors.iter().map(|(id, tensor)| Ok((*id, tensor.copied(engine)?))).collect()
}

/// Fills the outputs of a partition that does not run, for those that follow it, as far as their shapes are
/// known.
fn make_up(partition: &Partition, tensors: &mut Tensors, fills: &Fills, engine: &Engine) -> Result<()> {
    for port in partition.outputs().iter().filter(|port| port.dims().is_some()) {
        tensors.insert(port.id(), filled(port, fills, engine)?);
    }
    Ok(())
}

/// The outcome of a partition.
enum Step {
    Measured(Box<Case>),
    /// It is no case, or not a selected one, and ran for those that follow it.
    Passed,
    /// It cannot run, which is worth a note.
    LeftOut(String),
    Interrupted,
}

/// Runs a partition, measures it if it is a case with a name, and keeps its outputs for the partitions that
/// follow.
fn step(
    name: Option<&str>,
    partition: &Partition,
    tensors: &mut Tensors,
    fills: &Fills,
    meter: &mut Meter<'_>,
) -> Result<Step> {
    if meter.progress.is_interrupted() {
        return Ok(Step::Interrupted);
    }
    let engine = &meter.team.engine;
    let missing = partition.inputs().iter().map(LogicalTensor::id).find(|id| !tensors.contains_key(id));
    if missing.is_some() || !partition.is_supported() {
        make_up(partition, tensors, fills, engine)?;
        return Ok(match (name, missing) {
            (Some(name), Some(id)) if partition.is_supported() => Step::LeftOut(format!(
                "{name} is left out: what computes tensor {id} does not run here, and its shape is not \
                 known; give it with --shape {id}=..."
            )),
            _ => Step::Passed,
        });
    }
    let failed = || {
        let ops: Vec<String> =
            partition.ops().iter().map(|op| format!("{} (op {})", op.kind(), op.id())).collect();
        format!("the case {} cannot be measured", name.unwrap_or(&ops.join(", ")))
    };
    let from: Vec<&HostTensor> = partition.inputs().iter().map(|port| &tensors[&port.id()]).collect();
    let descs: Vec<LogicalTensor> = from.iter().map(|tensor| tensor.desc().clone()).collect();
    let compiled = partition.compile_for(engine, &descs, partition.outputs()).with_context(failed)?;
    let make = |desc| HostTensor::zeroed(desc, engine);
    let mut outputs =
        compiled.outputs().iter().map(make).collect::<Result<Vec<HostTensor>>>().with_context(failed)?;
    let inputs = from.iter().map(|tensor| tensor.tensor()).collect::<Result<Vec<Tensor<'_>>>>()?;
    let mut into = outputs
        .iter_mut()
        .map(|output| Ok(output.buffer_mut()?.as_tensor_mut()))
        .collect::<Result<Vec<TensorMut<'_>>>>()?;
    let stream = Stream::new(engine);
    let mask_tiles = match name {
        Some(_) => compiled.mask_tiles(&inputs).with_context(failed)?.as_ref().map(TilesReport::of),
        None => None,
    };
    let mut execute = || compiled.execute(&stream, &inputs, &mut into).with_context(failed);
    let step = match name {
        Some(name) => meter.measure(name, traffic(&compiled), mask_tiles, execute)?,
        None => execute().map(|()| Step::Passed)?,
    };
    for mut output in outputs {
        if fills.asks_for(output.desc().id()) {
            output.fill(fills)?;
        }
        tensors.insert(output.desc().id(), output);
    }
    Ok(step)
}

/// Measures all partitions of a graph as a session runs them, and then single runs of as many callers as are
/// asked for.
fn whole_graph(
    name: &str,
    prepared: &Prepared<'_>,
    tensors: &Tensors,
    meter: &mut Meter<'_>,
) -> Result<Step> {
    let failed = || format!("the case {name} cannot be measured");
    let Subject { graph, constants, given, fills, .. } = prepared.subject;
    let is_given = |id| given.contains_key(&id) || fills.iter().any(|(filled, _)| *filled == id);
    let shared = whole::shared(graph, constants.clone(), is_given);
    let model = whole::model(graph, &shared, &[]).with_context(failed)?;
    let session = sterna::Session::builder(model).arenas(meter.callers);
    let session = session.build(&meter.team.engine).with_context(failed)?;
    let inputs = whole::inputs(&session, tensors).with_context(failed)?;
    let views = streams::views(&inputs)?;
    let mut outputs = session.run(&views).with_context(failed)?.into_tensors();
    let mut into = streams::targets(&session, &mut outputs);
    let half = session.bytes_moved() / 2;
    let traffic = Traffic { read: half, written: half };
    let step =
        meter.measure(name, traffic, None, || session.run_into(&views, &mut into).with_context(failed))?;
    let Step::Measured(mut case) = step else { return Ok(step) };
    let goes_on = |_: &StreamTimes| !meter.progress.is_interrupted();
    let repeat = Repeat::For(meter.time);
    let times = streams::timed(&session, &inputs, meter.callers, repeat, &goes_on).with_context(failed)?;
    if meter.progress.is_interrupted() {
        return Ok(Step::Interrupted);
    }
    case.whole = Latency::of(&times.seconds).map(|latency| WholeCase {
        streams: meter.callers,
        runs: times.seconds.len(),
        latency,
        runs_per_second: times.runs_per_second(),
        run_memory: session.run_memory(),
    });
    Ok(Step::Measured(case))
}

/// Measures cases on some number of threads.
struct Meter<'a> {
    team: &'a Team,
    time: Duration,
    /// Callers at once of a graph as a whole.
    callers: usize,
    progress: &'a Progress,
    streams: &'a mut Streams,
    /// The arithmetic of a case, if it is known.
    work: Option<Arithmetic>,
}

impl Meter<'_> {
    fn measure(
        &mut self,
        name: &str,
        bytes: Traffic,
        mask_tiles: Option<TilesReport>,
        execute: impl FnMut() -> Result<()>,
    ) -> Result<Step> {
        let Team { engine, pool } = self.team;
        let threads = engine.threads();
        self.progress.begin(format!("{name}, {}", counted(threads, "thread")));
        let (strategy, streaming) =
            self.streams.fastest(bytes, threads, pool).with_context(|| no_memory(bytes))?;
        // The longer of the two limits is the one that a case can reach.
        let work = self.work.filter(|work| work.seconds(threads) > streaming);
        let limit = || {
            match work {
                Some(work) => work.run(threads, pool),
                None => self.streams.run(bytes, strategy, pool),
            }
            Ok(())
        };
        let measured = interleaved(execute, limit, self.time, self.progress)?;
        let operations = work.map(|work| work.operations);
        Ok(measured.map_or(Step::Interrupted, |Measured { case: seconds, limit, share, rounds }| {
            let name = name.into();
            let share_quartiles = Some([share.lower, share.upper]);
            let share = share.median;
            Step::Measured(Box::new(Case {
                name,
                threads,
                bytes,
                operations,
                rounds,
                seconds,
                limit,
                share,
                share_quartiles,
                mask_tiles,
                whole: None,
            }))
        }))
    }
}

fn no_memory(traffic: Traffic) -> String {
    format!("there is no memory to stream {} bytes", traffic.bytes())
}

/// Bytes that one execution reads and writes, each distinct element counted once.
fn traffic(compiled: &CompiledPartition) -> Traffic {
    let bytes = |desc: &LogicalTensor| {
        desc.element_count().unwrap_or(0).saturating_mul(desc.data_type().size().unwrap_or(0))
    };
    let written: usize = compiled.outputs().iter().map(bytes).sum();
    let read = compiled.bytes_moved().saturating_sub(written);
    Traffic { read, written }
}

/// A number with its noun.
pub(super) fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
