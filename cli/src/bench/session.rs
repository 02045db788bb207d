//! A run: which cases there are, and how each is made ready and measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rayon::{ThreadPool, ThreadPoolBuilder};
use sterna::{
    CompiledPartition, Engine, LogicalTensor, Partition, Policy, Stream, Tensor, TensorId, TensorMut,
};

use super::args::BenchArgs;
use super::is_wanted;
use super::limit::{Streams, Traffic};
use super::machine::Machine;
use super::measure::{Measured, best, by_turns};
use super::progress::Progress;
use super::record::{Case, Ceiling, Run};
use super::suites::Subject;
use crate::Ending;
use crate::fill::Fill;
use crate::held::Held;

/// The sizes at which the streaming limit itself is measured, by doubling.
const LEAST_CEILING: usize = 4 << 10;
const LARGEST_CEILING: usize = 256 << 20;

/// The longest that one size is measured for.
const CEILING_TIME: Duration = Duration::from_millis(30);

type Tensors = BTreeMap<TensorId, Held>;

/// A number of threads: an engine, and the pool that it shares with the streaming limit.
struct Crew {
    engine: Engine,
    pool: Arc<ThreadPool>,
}

/// A subject with its partitions, each with the name of its case.
struct Prepared<'a> {
    subject: &'a Subject,
    partitions: Vec<(String, Partition)>,
}

/// Everything that is measured in one go.
pub(crate) struct Session<'a> {
    args: &'a BenchArgs,
    prepared: Vec<Prepared<'a>>,
    crews: Vec<Crew>,
    notes: Vec<String>,
}

/// What came of it.
pub(crate) struct Ended {
    pub(crate) run: Run,
    /// What the reader should know.
    pub(crate) notes: Vec<String>,
    /// Whether the user ended it before its end.
    pub(crate) interrupted: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(args: &'a BenchArgs, subjects: &'a [Subject]) -> Result<Self, Ending> {
        let mut notes = Vec::new();
        let crews = crews(args, &mut notes).map_err(Ending::failed)?;
        let mut prepared = Vec::new();
        for subject in subjects {
            prepared.push(Prepared { subject, partitions: partitions(subject).map_err(Ending::failed)? });
        }
        let mut session = Self { args, prepared, crews, notes };
        session.check().map_err(Ending::usage)?;
        Ok(session)
    }

    /// The names of the cases that were asked for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let supported = self.prepared.iter().flat_map(|prepared| &prepared.partitions);
        let supported = supported.filter(|(_, partition)| partition.is_supported());
        supported.map(|(name, _)| name.as_str()).filter(|name| is_wanted(&self.args.filter, name))
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
        for Prepared { subject, .. } in &self.prepared {
            let inputs = subject.graph.inputs();
            for (id, _) in &subject.fills {
                let known = inputs.iter().map(|input| input.id().to_string()).collect::<Vec<_>>().join(", ");
                let is_input = inputs.iter().any(|input| input.id() == *id);
                ensure!(
                    is_input,
                    "--fill names tensor {id}, which is not an input of the graph; choose from {known}"
                );
            }
            let unknown = inputs.iter().find(|input| input.known_dims().is_none());
            if let Some(id) = unknown.map(|input| input.id()) {
                let shape = "the graph does not give the whole shape of input tensor";
                bail!("{shape} {id}; give it with --override-shape {id}=...");
            }
        }
        Ok(())
    }

    /// Measures every case.
    pub(crate) fn run(mut self, subject: String) -> Result<Ended, Ending> {
        let level = self.crews[0].engine.level().name();
        let mut run = Run::new(Machine::here(), level, subject, self.args.time.as_secs_f64());
        let wants_ceilings = self.args.save.is_some() || self.args.plot.is_some();
        let cases = self.names().count() * self.crews.len();
        let ceilings = if wants_ceilings { ceiling_sizes().count() * self.crews.len() } else { 0 };
        let time = self.args.time.saturating_mul(u32::try_from(cases).unwrap_or(u32::MAX));
        let progress = Progress::new(time + self.ceiling_time() * ceilings as u32);
        let measured = self.measure(&mut run, &progress).map_err(Ending::failed)?;
        let interrupted = match measured && wants_ceilings {
            true => !self.ceilings(&mut run, &progress).map_err(Ending::failed)?,
            false => !measured,
        };
        drop(progress);
        Ok(Ended { run, notes: self.notes, interrupted })
    }

    /// Measures the cases; false where the user interrupts.
    fn measure(&mut self, run: &mut Run, progress: &Progress) -> Result<bool> {
        let (mut streams, seed, time) = (Streams::new(), self.args.seed, self.args.time);
        for prepared in &self.prepared {
            if !prepared.partitions.iter().any(|(name, _)| is_wanted(&self.args.filter, name)) {
                continue;
            }
            let inputs = inputs(prepared.subject, seed, &self.crews[0].engine)?;
            for crew in &self.crews {
                let mut held = copied(&inputs, &crew.engine)?;
                let mut meter = Meter { crew, time, progress, streams: &mut streams };
                for (name, partition) in &prepared.partitions {
                    let name = Some(name.as_str()).filter(|name| is_wanted(&self.args.filter, name));
                    match step(name, partition, &mut held, seed, &mut meter)? {
                        Step::Measured(case) => run.cases.push(case),
                        Step::LeftOut(note) if !self.notes.contains(&note) => self.notes.push(note),
                        Step::LeftOut(_) | Step::Passed => {}
                        Step::Interrupted => return Ok(false),
                    }
                }
            }
        }
        Ok(true)
    }

    /// Measures the streaming limit at every size; false where the user interrupts.
    fn ceilings(&self, run: &mut Run, progress: &Progress) -> Result<bool> {
        let mut streams = Streams::new();
        let time = self.ceiling_time();
        for Crew { engine, pool } in &self.crews {
            let threads = engine.threads();
            progress.begin(format!("streaming limit, {}", counted(threads, "thread")));
            for bytes in ceiling_sizes() {
                let half = Traffic { read: bytes / 2, written: bytes / 2 };
                let way = streams.fastest(half, threads, pool)?;
                let copy = || {
                    streams.run(half, way, pool);
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
    std::iter::successors(Some(LEAST_CEILING), |size| Some(2 * size))
        .take_while(|&size| size <= LARGEST_CEILING)
}

fn crews(args: &BenchArgs, notes: &mut Vec<String>) -> Result<Vec<Crew>> {
    let mut crews: Vec<Crew> = Vec::new();
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
        if !crews.iter().any(|crew| crew.engine.threads() == got) {
            crews.push(Crew { engine, pool });
        }
    }
    Ok(crews)
}

/// The partitions of a subject; where there is one, its case bears the name of the subject.
fn partitions(subject: &Subject) -> Result<Vec<(String, Partition)>> {
    const NAMED_KINDS: usize = 3;
    let partitions = subject.graph.partitions(Policy::Fusion)?;
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
fn inputs(subject: &Subject, seed: u64, engine: &Engine) -> Result<Tensors> {
    let mut held = BTreeMap::new();
    for desc in subject.graph.inputs() {
        let fill = subject.fills.iter().find(|(id, _)| *id == desc.id());
        held.insert(desc.id(), filled(desc, fill.map_or(&Fill::Random, |(_, fill)| fill), seed, engine)?);
    }
    Ok(held)
}

fn filled(desc: &LogicalTensor, fill: &Fill, seed: u64, engine: &Engine) -> Result<Held> {
    let mut tensor = Held::zeroed(desc, engine)
        .with_context(|| format!("no memory can be made for tensor {}", desc.id()))?;
    tensor.put(&fill.value(desc, seed)?)?;
    Ok(tensor)
}

/// The same tensors for another engine.
fn copied(tensors: &Tensors, engine: &Engine) -> Result<Tensors> {
    let mut copies = BTreeMap::new();
    for (id, tensor) in tensors {
        let mut copy = Held::zeroed(tensor.desc(), engine)?;
        copy.elements_mut().as_mut_bytes().copy_from_slice(tensor.elements().as_bytes());
        copies.insert(*id, copy);
    }
    Ok(copies)
}

/// Puts random values where a partition that does not run would have put its results, for those that follow it.
fn guess(partition: &Partition, held: &mut Tensors, seed: u64, engine: &Engine) {
    for port in partition.outputs().iter().filter(|port| port.known_dims().is_some()) {
        // A type that cannot be filled is one that no partition here reads.
        if let Ok(tensor) = filled(port, &Fill::Random, seed, engine) {
            held.insert(port.id(), tensor);
        }
    }
}

/// What became of a partition.
enum Step {
    Measured(Case),
    /// It is no case, or none that was asked for, and ran for those that follow it.
    Passed,
    /// It cannot run, which is worth a note.
    LeftOut(String),
    Interrupted,
}

/// Runs a partition, measures it if it is a case with a name, and keeps its outputs for the partitions that follow.
fn step(
    name: Option<&str>,
    partition: &Partition,
    held: &mut Tensors,
    seed: u64,
    meter: &mut Meter<'_>,
) -> Result<Step> {
    if meter.progress.is_interrupted() {
        return Ok(Step::Interrupted);
    }
    let engine = &meter.crew.engine;
    let missing = partition.inputs().iter().map(LogicalTensor::id).find(|id| !held.contains_key(id));
    if missing.is_some() || !partition.is_supported() {
        guess(partition, held, seed, engine);
        return Ok(match (name, missing) {
            (Some(name), Some(id)) if partition.is_supported() => Step::LeftOut(format!(
                "{name} is left out: it needs tensor {id}, and what computes that does not run here and leaves its \
                 shape open"
            )),
            _ => Step::Passed,
        });
    }
    let failed = || format!("partition {} cannot be measured", partition.id());
    let from: Vec<&Held> = partition.inputs().iter().map(|port| &held[&port.id()]).collect();
    let descs: Vec<LogicalTensor> = from.iter().map(|tensor| tensor.desc().clone()).collect();
    let compiled = partition.compile(engine, &descs, partition.outputs()).with_context(failed)?;
    let make = |desc| Held::zeroed(desc, engine);
    let mut outputs =
        compiled.outputs().iter().map(make).collect::<Result<Vec<Held>>>().with_context(failed)?;
    let tensors = from.iter().map(|tensor| tensor.tensor()).collect::<Result<Vec<Tensor<'_>>>>()?;
    let mut into: Vec<TensorMut<'_>> =
        outputs.iter_mut().map(|output| output.elements_mut().as_tensor_mut()).collect();
    let stream = Stream::new(engine);
    let mut execute = || compiled.execute(&stream, &tensors, &mut into).with_context(failed);
    let step = match name {
        Some(name) => meter.measure(name, traffic(&compiled), execute)?,
        None => execute().map(|()| Step::Passed)?,
    };
    held.extend(outputs.into_iter().map(|output| (output.desc().id(), output)));
    Ok(step)
}

/// Measures cases on some number of threads.
struct Meter<'a> {
    crew: &'a Crew,
    time: Duration,
    progress: &'a Progress,
    streams: &'a mut Streams,
}

impl Meter<'_> {
    fn measure(&mut self, name: &str, bytes: Traffic, execute: impl FnMut() -> Result<()>) -> Result<Step> {
        let Crew { engine, pool } = self.crew;
        let threads = engine.threads();
        self.progress.begin(format!("{name}, {}", counted(threads, "thread")));
        let way = self.streams.fastest(bytes, threads, pool)?;
        let limit = || {
            self.streams.run(bytes, way, pool);
            Ok(())
        };
        let measured = by_turns(execute, limit, self.time, self.progress)?;
        Ok(measured.map_or(Step::Interrupted, |Measured { case, limit, share, rounds }| {
            Step::Measured(Case { name: name.into(), threads, bytes, rounds, seconds: case, limit, share })
        }))
    }
}

/// What one execution reads and writes, each distinct element counted once.
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
