//! `sterna run`: from a graph and arguments to a report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sterna::reference::{self, Value};
use sterna::{Engine, LogicalTensor, Op, Partition, Policy, Stream, Tensor, TensorId, TensorMut};
use sterna_import::Constant;
use sterna_inspect::{PortReport, TensorNames, TilesReport};

use crate::args::RunArgs;
use crate::check;
use crate::command_error::CommandError;
use crate::expect::{Expected, Tolerance};
use crate::fill::Fills;
use crate::given::Given;
use crate::host::HostTensor;
use crate::inline;
use crate::named::Named;
use crate::progress::RunProgress;
use crate::report::{
    ExecutedBy, Execution, PartitionReport, Report, ResultReport, SlowerReport, Written, short_names,
};
use crate::request::{OutputFile, RunRequest, is_archive};
use crate::shapes::in_memory;
use crate::source::Loaded;
use crate::statistics;
use crate::terminal::{can_be_written, write};
use crate::timing::{Repeat, Timed, timed};
use crate::trace::PhaseSink;
use crate::whole::steps::StepsRun;
use crate::whole::{WholeEnded, WholeRun};
use crate::words::{plain, shown};
use crate::{npy, npz, whole};

/// Runs a graph as the arguments say. What fails within a partition is part of the report, and the others go
/// on.
pub(crate) fn run(args: &RunArgs) -> Result<Report, CommandError> {
    match args.state.is_empty() {
        true => run_loaded(args, args.source.load()?),
        false => run_steps(args),
    }
}

/// Runs steps, each on the state that the one before has left.
fn run_steps(args: &RunArgs) -> Result<Report, CommandError> {
    let (model, mut loaded) = args.source.load_open()?;
    let mut request = RunRequest::of(args, &loaded).map_err(CommandError::usage)?;
    let expected = Expected::all(&args.expect, &loaded).map_err(CommandError::usage)?;
    let sink = (args.profile.is_some() || args.verbose).then(Arc::<PhaseSink>::default);
    let engine = engine(args, sink.clone());
    let steps = StepsRun::new(args, &request, &loaded, model, &engine, sink.as_deref())?;
    // An archive of all outputs takes those that are no state.
    let takes_all = |file: &OutputFile| {
        args.output.iter().any(|named| matches!(named, Named::Alone(path) if *path == file.path))
    };
    for file in request.output.iter_mut().filter(|file| takes_all(file)) {
        file.tensors.retain(|(id, _)| steps.gives(*id));
    }
    let wanted = request.output.iter().flat_map(|file| file.tensors.iter().map(|(id, _)| ("--output", *id)));
    let wanted = wanted.chain(expected.iter().map(|expected| ("--expect", expected.tensor)));
    steps.check_outputs(&loaded, wanted).map_err(CommandError::usage)?;
    request.output.iter().try_for_each(|file| can_be_written(&file.path)).map_err(CommandError::usage)?;
    if let Some(path) = &args.profile {
        can_be_written(path).map_err(CommandError::usage)?;
    }
    let mut report = Report::begun(&args.source.graph, steps.ops(), &engine);
    report.notes = std::mem::take(&mut loaded.notes);
    let progress = RunProgress::begin(report, args.form.form(), &[], args.progress)?;
    progress.begins_whole();
    let WholeEnded { report: whole, outputs, trace } = steps.run(&|report| progress.whole(report))?;
    progress.whole(whole);
    if let (Some(trace), Some(path)) = (trace, &args.profile) {
        let text = trace.to_json(&args.source.name(), engine.threads()).map_err(CommandError::failed)?;
        write(path, &text)?;
    }
    let Some(mut report) = progress.end() else {
        return Err(CommandError::failed(anyhow!("the run was interrupted")));
    };
    let run = GraphRun {
        repeat: Repeat::Times(0),
        check: false,
        verbose: args.verbose,
        names: TensorNames::new(loaded.names.by_id()),
        tensors: outputs.into_iter().collect(),
        made_up: BTreeSet::new(),
        fills: Fills::new(&loaded.graph, BTreeMap::new(), Vec::new(), args.seed),
        stream: Stream::new(&engine),
        engine,
    };
    finished(args, &request, &loaded, &expected, run, &mut report)?;
    Ok(report)
}

/// Compares, writes and shows results.
fn finished(
    args: &RunArgs,
    request: &RunRequest,
    loaded: &Loaded,
    expected: &[Expected],
    run: GraphRun,
    report: &mut Report,
) -> Result<(), CommandError> {
    let within = Tolerance { absolute: args.atol, relative: args.rtol };
    run.compare(expected, within, report).map_err(CommandError::usage)?;
    write_outputs(request, &run, report)?;
    report.results = results(request, loaded, &run).map_err(CommandError::failed)?;
    run.names.name(report.results.iter_mut().map(|result| &mut result.tensor));
    Ok(())
}

/// Runs a graph that was read.
pub(crate) fn run_loaded(args: &RunArgs, mut loaded: Loaded) -> Result<Report, CommandError> {
    let partitions = loaded.graph.partitions(args.source.options.policy()).map_err(CommandError::failed)?;
    let mut request = RunRequest::of(args, &loaded).map_err(CommandError::usage)?;
    loaded.notes.extend(request.leave_unused(&loaded));
    let expected = Expected::all(&args.expect, &loaded).map_err(CommandError::usage)?;
    request.check(&loaded, &partitions, &expected).map_err(CommandError::usage)?;
    if let Some(path) = &args.profile {
        can_be_written(path).map_err(CommandError::usage)?;
    }

    let sink = (args.profile.is_some() || args.verbose).then(Arc::<PhaseSink>::default);
    let engine = engine(args, sink.clone());
    let mut report = Report::begun(&args.source.graph, loaded.graph.ops().len(), &engine);
    (report.planned, report.notes) = (partitions.len(), std::mem::take(&mut loaded.notes));
    let constants = std::mem::take(&mut loaded.constants);
    let fills = Fills::new(&loaded.graph, constants, request.fill.clone(), args.seed);
    let stream = Stream::new(&engine);
    let left_out = left_out(args, request.fills_results(&loaded));
    // A session has constants where they are.
    let shared = match left_out {
        None => whole::shared(&loaded.graph, fills.constants(), |id| request.is_given(id)),
        Some(_) => BTreeMap::new(),
    };
    let make = |notes: &mut Vec<String>, is_shared: bool| {
        inputs(&request, &loaded, &fills, &engine, notes, &|id| shared.contains_key(&id) == is_shared)
    };
    let mut tensors = make(&mut report.notes, false)?;
    if args.check {
        let may_fill = |id| fills.is_random(id) && !request.is_given(id);
        statistics::fill(&loaded.graph, &mut tensors, &stream, may_fill, &mut report.notes);
    }
    let progress = RunProgress::begin(report, args.form.form(), &partitions, args.progress)?;
    let stage = WholeStage { args, loaded: &loaded, shared: &shared, sink: sink.as_deref() };
    let outputs = stage.run(left_out, &engine, &tensors, partitions.len(), &progress)?;
    tensors.extend(make(&mut Vec::new(), true)?);
    let mut run = GraphRun {
        repeat: Repeat::new(args.repeat, partitions.len()),
        check: args.check,
        verbose: args.verbose,
        names: TensorNames::new(loaded.names.by_id()),
        tensors,
        made_up: BTreeSet::new(),
        fills,
        stream,
        engine,
    };
    run.all(&partitions, &progress)?;
    // The results are those of the session, if there is one.
    run.tensors.extend(outputs);
    let Some(mut report) = progress.end() else {
        return Err(CommandError::failed(anyhow!("the run was interrupted")));
    };
    report.notes.extend(made_up(&report.partitions));
    finished(args, &request, &loaded, &expected, run, &mut report)?;
    Ok(report)
}

/// An engine as the arguments want it, with a sink for phases if there is one.
fn engine(args: &RunArgs, sink: Option<Arc<PhaseSink>>) -> Engine {
    let builder = match args.threads {
        Some(threads) => Engine::builder().threads(threads.into()),
        None => Engine::builder(),
    };
    match sink {
        Some(sink) => builder.profiler(sink).build(),
        None => builder.build(),
    }
}

/// Why a graph is not run as a whole, if what the options ask for is not what a session does.
fn left_out(args: &RunArgs, fills_results: bool) -> Option<&'static str> {
    let rows = [
        (args.check, "--check judges each partition by itself"),
        (args.source.options.policy() != Policy::Fusion, "a session has the policy fusion"),
        (fills_results, "--fill replaces what is computed"),
    ];
    rows.iter().find(|(is_asked, _)| *is_asked).map(|(_, why)| *why)
}

/// The run of the graph as a whole, before that of its partitions.
struct WholeStage<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    /// The constants that the session has where they are.
    shared: &'a BTreeMap<TensorId, Constant>,
    sink: Option<&'a PhaseSink>,
}

impl WholeStage<'_> {
    /// Runs the graph in a session, unless something speaks against it, and gives its outputs.
    fn run(
        &self,
        left_out: Option<&'static str>,
        engine: &Engine,
        tensors: &BTreeMap<TensorId, HostTensor>,
        partitions: usize,
        progress: &RunProgress,
    ) -> Result<Vec<(TensorId, HostTensor)>, CommandError> {
        let Self { args, loaded, shared, sink } = self;
        if let Some(why) = left_out {
            progress.not_whole(why.into());
            return Ok(Vec::new());
        }
        progress.begins_whole();
        let outputs: Vec<TensorId> = match loaded.is_model {
            true => loaded.names.outputs.iter().map(|port| port.id).collect(),
            false => Vec::new(),
        };
        let repeat = Repeat::of_whole(args.repeat, partitions);
        let ended = whole::model(&loaded.graph, shared, &outputs).and_then(|model| {
            let streams = args.streams.into();
            let run = WholeRun { model, engine, tensors, streams, repeat, sink: *sink };
            run.run(&|report| progress.whole(report))
        });
        // The partitions tell what is wrong with the graph, each for itself.
        let WholeEnded { report, outputs, trace } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                progress.not_whole(format!("{error:#}"));
                return Ok(Vec::new());
            }
        };
        progress.whole(report);
        if let (Some(trace), Some(path)) = (trace, &args.profile) {
            let text = trace.to_json(&args.source.name(), engine.threads()).map_err(CommandError::failed)?;
            write(path, &text)?;
        }
        Ok(outputs)
    }
}

/// The small results of a model, and of a graph whose inputs were written out.
fn results(request: &RunRequest, loaded: &Loaded, run: &GraphRun) -> Result<Vec<ResultReport>> {
    let is_written_out = request.input.iter().any(|(_, given)| matches!(given, Given::Inline(_)));
    let outputs: Vec<(String, TensorId)> = match loaded.is_model || is_written_out {
        true => loaded.names.outputs.iter().map(|port| (plain(port.name()), port.id)).collect(),
        false => Vec::new(),
    };
    let mut results = Vec::new();
    for (name, id) in outputs {
        let Some(tensor) = run.tensors.get(&id) else { continue };
        // Larger results are not gathered at all.
        if tensor.desc().element_count().is_none_or(|count| count > inline::MAX_PRINTED) {
            continue;
        }
        if let Some(value) = inline::shown(&tensor.value()?) {
            results.push(ResultReport { name, tensor: PortReport::of(tensor.desc()), value });
        }
    }
    Ok(results)
}

/// Those inputs of the graph that are wanted, as given, or filled.
fn inputs(
    request: &RunRequest,
    loaded: &Loaded,
    fills: &Fills,
    engine: &Engine,
    notes: &mut Vec<String>,
    is_wanted: &dyn Fn(TensorId) -> bool,
) -> Result<BTreeMap<TensorId, HostTensor>, CommandError> {
    let given: BTreeMap<TensorId, &Given> = request.input.iter().map(|(id, given)| (*id, given)).collect();
    let mut tensors = BTreeMap::new();
    for desc in loaded.graph.inputs().into_iter().filter(|desc| is_wanted(desc.id())) {
        let id = desc.id();
        let desc = loaded.in_memory(desc).map_err(CommandError::usage)?;
        let mut tensor = HostTensor::zeroed(&desc, engine)
            .with_context(|| format!("no memory can be made for input {}", loaded.names.shown(id)))
            .map_err(CommandError::failed)?;
        match given.get(&id) {
            None => tensor.fill(fills).map_err(CommandError::usage)?,
            Some(given) => {
                if given.is_of_numpy() {
                    notes.extend(npy::note(&loaded.names.shown(id), desc.data_type()));
                }
                let value = given.value(&desc, &loaded.names.shown(id)).map_err(CommandError::usage)?;
                tensor.write(&value).map_err(CommandError::failed)?;
                if tensor.value().map_err(CommandError::failed)? != value {
                    let why = "the strides in the graph make elements one that differ in its file";
                    return Err(CommandError::usage(anyhow!(
                        "{} cannot hold its values: {why}",
                        loaded.names.shown(id)
                    )));
                }
            }
        }
        tensors.insert(id, tensor);
    }
    Ok(tensors)
}

/// Says which partitions were made up, if any.
fn made_up(partitions: &[PartitionReport]) -> Option<String> {
    let made_up = partitions.iter().filter(|partition| partition.made_up.is_some());
    let ids: Vec<String> = made_up.map(|partition| partition.id.to_string()).collect();
    let (what, results) = match &ids[..] {
        [] => return None,
        [id] => (format!("partition {id}"), "its results were"),
        ids => (format!("partitions {}", ids.join(", ")), "their results were"),
    };
    Some(format!("nothing here computes {what}; {results} made up for those that follow"))
}

fn write_outputs(request: &RunRequest, run: &GraphRun, report: &mut Report) -> Result<(), CommandError> {
    for OutputFile { path, tensors } in &request.output {
        let mut values = Vec::new();
        for (id, name) in tensors {
            let Some(tensor) = run.tensors.get(id) else {
                let what = format!("{} was not computed", shown(run.names.of(*id), *id));
                report.failures.push(format!("{what}, so {} was not written", path.display()));
                continue;
            };
            values.push((name.clone(), *id, tensor.value().map_err(CommandError::failed)?));
        }
        // An archive that lacks one is not written either.
        if values.len() < tensors.len() {
            continue;
        }
        match (is_archive(path), &values[..]) {
            (false, [(_, id, value)]) => {
                report.notes.extend(
                    npy::write(path, &shown(run.names.of(*id), *id), value).map_err(CommandError::usage)?,
                );
            }
            _ => report.notes.extend(npz::write(path, &values).map_err(CommandError::usage)?),
        }
        for (_, id, _) in values {
            if run.made_up.contains(&id) {
                report.notes.push(format!(
                    "{} in {} follows from what was made up",
                    shown(run.names.of(id), id),
                    path.display()
                ));
            }
            let name = run.names.of(id).map(str::to_owned);
            report.written.push(Written { tensor: id, name, file: path.clone() });
        }
    }
    Ok(())
}

/// A run under way, with the tensors that have values so far.
struct GraphRun {
    repeat: Repeat,
    check: bool,
    verbose: bool,
    names: TensorNames,
    fills: Fills,
    engine: Engine,
    stream: Stream,
    tensors: BTreeMap<TensorId, HostTensor>,
    /// The tensors that were made up, or that were computed from such.
    made_up: BTreeSet<TensorId>,
}

impl GraphRun {
    /// Runs all partitions.
    fn all(&mut self, partitions: &[Partition], progress: &RunProgress) -> Result<(), CommandError> {
        let (short, mut done) = (short_names(partitions), 0);
        for partition in partitions {
            progress.begins(partition);
            let mut ended = self.run(partition, progress);
            ended.name(&self.names, &short);
            done += partition.ops().len();
            progress.ended(ended, done)?;
        }
        Ok(())
    }

    /// Compares tensors with what is expected of them.
    fn compare(&self, expected: &[Expected], within: Tolerance, report: &mut Report) -> Result<()> {
        for expected in expected {
            let id = expected.tensor;
            let shown = shown(self.names.of(id), id);
            let Some(tensor) = self.tensors.get(&id) else {
                report.failures.push(format!("{shown} was not computed, and something was expected of it"));
                continue;
            };
            let mut found = expected.compare(&tensor.value()?, &shown, within)?;
            found.name = self.names.of(id).map(str::to_owned);
            if !found.equal {
                report.failures.push(format!("not as expected, {found}"));
            }
            report.expected.push(found);
        }
        Ok(())
    }

    fn run(&mut self, partition: &Partition, progress: &RunProgress) -> PartitionReport {
        let mut report = PartitionReport::of(partition);
        let ran = self.has_inputs(partition).and_then(|()| match partition.is_supported() {
            true => self.execute(partition, &mut report, progress),
            false if partition.outputs().is_empty() => {
                report.run_by = Some(ExecutedBy::Nothing);
                Ok(())
            }
            false => self.interpret_or_make_up(partition, &mut report, progress),
        });
        let ran = ran.and_then(|()| self.replace_filled(partition, &mut report));
        let outputs = partition.outputs().iter().map(LogicalTensor::id);
        if report.made_up.is_some() || partition.inputs().iter().any(|port| self.made_up.contains(&port.id()))
        {
            self.made_up.extend(outputs);
        }
        report.failure = ran.err().map(|error| format!("{error:#}"));
        report
    }

    fn has_inputs(&self, partition: &Partition) -> Result<()> {
        match partition.inputs().iter().find(|port| !self.tensors.contains_key(&port.id())) {
            Some(port) => bail!("it cannot run, since tensor {} was not computed", port.id()),
            None => Ok(()),
        }
    }

    /// Compiles and executes a supported partition, and checks its outputs under `--check`.
    fn execute(
        &mut self,
        partition: &Partition,
        report: &mut PartitionReport,
        progress: &RunProgress,
    ) -> Result<()> {
        let from: Vec<&HostTensor> =
            partition.inputs().iter().map(|port| &self.tensors[&port.id()]).collect();
        let inputs: Vec<LogicalTensor> = from.iter().map(|tensor| tensor.desc().clone()).collect();
        report.inputs = inputs.iter().map(PortReport::of).collect();

        let start = Instant::now();
        let compiled = partition.compile_for(&self.engine, &inputs, partition.outputs())?;
        report.compile_seconds = Some(start.elapsed().as_secs_f64());
        report.inplace = compiled.in_place_pairs().iter().map(|pair| [pair.input, pair.output]).collect();
        if self.verbose {
            report.slower = compiled.plan().fallbacks.iter().map(SlowerReport::of).collect();
        }

        let make = |desc| HostTensor::zeroed(desc, &self.engine);
        let mut outputs = compiled.outputs().iter().map(make).collect::<Result<Vec<HostTensor>>>()?;
        if self.check {
            // An element that nobody writes is not what the reference gives, even if that is 0.
            outputs.iter_mut().for_each(HostTensor::spoil);
        }
        report.outputs = outputs.iter().map(|output| PortReport::of(output.desc())).collect();

        let tensors = from.iter().map(|tensor| tensor.tensor()).collect::<Result<Vec<Tensor<'_>>>>()?;
        let mut into = outputs
            .iter_mut()
            .map(|output| Ok(output.buffer_mut()?.as_tensor_mut()))
            .collect::<Result<Vec<TensorMut<'_>>>>()?;
        let timed = timed(self.repeat, || Ok(compiled.execute(&self.stream, &tensors, &mut into)?))?;
        report.execution = Execution::of(timed, Some(compiled.bytes_moved()));
        report.run_by = Some(ExecutedBy::Compiled);
        report.mask_tiles = compiled.mask_tiles(&tensors)?.as_ref().map(TilesReport::of);

        if self.check {
            let begins = |op: &Op| progress.at(partition, op);
            let masked_keys = compiled.plan().masked_keys();
            report.checks =
                check::checks(partition, masked_keys, &self.tensors, &outputs, &self.stream, &begins)
                    .context("it cannot be checked")?;
            for check in &mut report.checks {
                check.name = self.names.of(check.tensor).map(str::to_owned);
            }
        }
        self.tensors.extend(outputs.into_iter().map(|output| (output.desc().id(), output)));
        match report.checks.iter().find(|check| check.equal == Some(false)) {
            Some(check) => bail!("the check failed, {check}"),
            None => Ok(()),
        }
    }

    /// Gives an unsupported partition results: those of the reference interpreter, or if it knows no such op,
    /// made-up ones.
    fn interpret_or_make_up(
        &mut self,
        partition: &Partition,
        report: &mut PartitionReport,
        progress: &RunProgress,
    ) -> Result<()> {
        report.inputs =
            partition.inputs().iter().map(|port| PortReport::of(self.tensors[&port.id()].desc())).collect();
        // Results that are filled anyway are not computed first, because that may take long.
        let all_filled = partition.outputs().iter().all(|port| self.fills.asks_for(port.id()));
        let start = Instant::now();
        let values = match all_filled {
            true => Err(anyhow!("all of its results are filled by --fill")),
            false => self.reference(partition, progress),
        };
        match values {
            Ok(values) => {
                report.execution = Execution::of(Timed::once(start.elapsed()), None);
                report.run_by = Some(ExecutedBy::Reference);
                self.keep(partition, values, report)
            }
            Err(error) if all_filled || check::is_unknown(&error) => {
                report.run_by = Some(ExecutedBy::MadeUp);
                report.made_up = Some(format!("{error:#}"));
                self.make_up(partition, report)
            }
            Err(error) => Err(error),
        }
    }

    /// The results of ops by the reference interpreter.
    fn reference(&self, partition: &Partition, progress: &RunProgress) -> Result<BTreeMap<TensorId, Value>> {
        let mut values: BTreeMap<TensorId, Value> = BTreeMap::new();
        for op in partition.ops() {
            reference::supports(op)?;
            progress.at(partition, op);
            let value = |input: &LogicalTensor| match values.get(&input.id()) {
                Some(value) => Ok(value.clone()),
                None => self.tensors[&input.id()].value(),
            };
            let inputs = op.inputs().iter().map(value).collect::<Result<Vec<Value>>>()?;
            let outputs = reference::run(op, &inputs)?;
            values.extend(op.outputs().iter().map(LogicalTensor::id).zip(outputs));
        }
        Ok(values)
    }

    /// Keeps what the reference interpreter computed, as the graph lays it out.
    fn keep(
        &mut self,
        partition: &Partition,
        mut values: BTreeMap<TensorId, Value>,
        report: &mut PartitionReport,
    ) -> Result<()> {
        report.outputs.clear();
        for port in partition.outputs() {
            let value = values.remove(&port.id()).context("an output is missing from the reference")?;
            let mut output = HostTensor::zeroed(&shaped(port, value.dims())?, &self.engine)?;
            output.write(&value)?;
            ensure!(output.value()? == value, "the strides of output tensor {} overlap", port.id());
            report.outputs.push(PortReport::of(output.desc()));
            self.tensors.insert(port.id(), output);
        }
        Ok(())
    }

    /// Fills the outputs of a partition that nobody computes.
    fn make_up(&mut self, partition: &Partition, report: &mut PartitionReport) -> Result<()> {
        report.outputs.clear();
        for port in partition.outputs() {
            let made = in_memory(port).and_then(|desc| {
                let mut output = HostTensor::zeroed(&desc, &self.engine)?;
                output.fill(&self.fills)?;
                Ok(output)
            });
            let output = made.with_context(|| {
                let reason = report.made_up.as_deref().unwrap_or_default();
                format!("{reason}, and tensor {} cannot be made up", port.id())
            })?;
            report.outputs.push(PortReport::of(output.desc()));
            self.tensors.insert(port.id(), output);
        }
        Ok(())
    }

    /// Fills those outputs of a partition that `--fill` names, whatever was computed.
    fn replace_filled(&mut self, partition: &Partition, report: &mut PartitionReport) -> Result<()> {
        if report.made_up.is_some() {
            return Ok(());
        }
        for port in partition.outputs().iter().filter(|port| self.fills.asks_for(port.id())) {
            if let Some(tensor) = self.tensors.get_mut(&port.id()) {
                tensor.fill(&self.fills)?;
                report.filled.push(port.id());
            }
        }
        Ok(())
    }
}

/// An output as the graph describes it, with the dims that it turned out to have.
fn shaped(port: &LogicalTensor, dims: &[i64]) -> Result<LogicalTensor> {
    match port.dims() {
        Some(given) if given != dims => {
            bail!("tensor {} is {given:?} in the graph, but {dims:?} follows from the inputs", port.id())
        }
        Some(_) => Ok(port.clone()),
        None => {
            Ok(LogicalTensor::strided(port.id(), port.data_type(), dims)?.with_property(port.property())?)
        }
    }
}
