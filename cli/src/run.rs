//! `sterna run`: from a graph and arguments to a report.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use sterna::reference::{self, Value};
use sterna::{Engine, Graph, LogicalTensor, Op, Partition, Policy, Stream, Tensor, TensorId, TensorMut};

use crate::Ending;
use crate::args::RunArgs;
use crate::check;
use crate::fill::Fill;
use crate::held::Held;
use crate::npy;
use crate::report::{Execution, PartitionReport, PortReport, Report, Runner, Written};
use crate::source::{check_id, ids};

/// Does all that the arguments ask for. What fails within a partition is part of the report, and the others go on.
pub(crate) fn run(args: &RunArgs) -> Result<Report, Ending> {
    args.check_ids().map_err(Ending::usage)?;
    let graph = args.source.load()?;
    let partitions = graph.partitions(Policy::Fusion).map_err(Ending::failed)?;
    check_ids(args, &graph, &partitions).map_err(Ending::usage)?;

    let engine = match args.threads {
        Some(threads) => Engine::builder().threads(threads.into()).build(),
        None => Engine::new(),
    };
    let mut report = Report {
        graph: args.source.graph.clone(),
        ops: graph.ops().len(),
        threads: engine.threads(),
        partitions: Vec::new(),
        written: Vec::new(),
        notes: Vec::new(),
        failures: Vec::new(),
    };
    let held = inputs(args, &graph, &engine, &mut report.notes)?;
    let mut runner =
        Run { repeat: args.repeat, check: args.check, stream: Stream::new(&engine), engine, held };
    for partition in &partitions {
        let partition = runner.run(partition);
        report.failures.extend(partition.failure.as_ref().map(|failure| {
            let ops: Vec<String> =
                partition.ops.iter().map(|op| format!("{} (op {})", op.kind, op.id)).collect();
            format!("partition {}, {}: {failure}", partition.id, ops.join(", "))
        }));
        report.partitions.push(partition);
    }
    write_outputs(args, &runner.held, &mut report)?;
    Ok(report)
}

/// Checks that the tensors that options name are there.
fn check_ids(args: &RunArgs, graph: &Graph, partitions: &[Partition]) -> Result<()> {
    let inputs = ids(graph.inputs());
    for (id, _) in &args.input {
        check_id("--input", *id, &inputs, "an input of the graph")?;
    }
    for (id, _) in &args.fill {
        check_id("--fill", *id, &inputs, "an input of the graph")?;
    }
    let computed = ids(partitions.iter().flat_map(Partition::outputs));
    for (id, _) in &args.output {
        check_id("--output", *id, &computed, "handed out by a partition")?;
    }
    Ok(())
}

/// The inputs of the graph, from files or filled.
fn inputs(
    args: &RunArgs,
    graph: &Graph,
    engine: &Engine,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<TensorId, Held>, Ending> {
    let mut held = BTreeMap::new();
    for desc in graph.inputs() {
        let id = desc.id();
        if desc.known_dims().is_none() {
            let shape = "the graph does not give the whole shape of input tensor";
            return Err(Ending::usage(anyhow!("{shape} {id}; give it with --override-shape {id}=...")));
        }
        let mut tensor = Held::zeroed(desc, engine)
            .with_context(|| format!("no memory can be made for input tensor {id}"))
            .map_err(Ending::failed)?;
        let from_file = args.input.iter().find(|(given, _)| *given == id);
        let value = match from_file {
            Some((_, path)) => {
                notes.extend(npy::note(id, desc.data_type()));
                npy::read(path, desc)
            }
            None => {
                let fill = args.fill.iter().find(|(given, _)| *given == id);
                fill.map_or(&Fill::Random, |(_, fill)| fill).value(desc, args.seed)
            }
        };
        let value = value.map_err(Ending::usage)?;
        value.write(tensor.elements_mut()).map_err(Ending::failed)?;
        if from_file.is_some() && tensor.value().map_err(Ending::failed)? != value {
            let why = "the strides in the graph make elements one that differ in its file";
            return Err(Ending::usage(anyhow!("tensor {id} cannot hold its values: {why}")));
        }
        held.insert(id, tensor);
    }
    Ok(held)
}

fn write_outputs(args: &RunArgs, held: &BTreeMap<TensorId, Held>, report: &mut Report) -> Result<(), Ending> {
    for (id, path) in &args.output {
        let Some(tensor) = held.get(id) else {
            let why = "was not computed";
            report.failures.push(format!("tensor {id} {why}, so {} was not written", path.display()));
            continue;
        };
        let value = tensor.value().map_err(Ending::failed)?;
        report.notes.extend(npy::write(path, *id, &value).map_err(Ending::usage)?);
        report.written.push(Written { tensor: *id, file: path.clone() });
    }
    Ok(())
}

/// A run under way: the tensors that are there so far.
struct Run {
    repeat: u32,
    check: bool,
    engine: Engine,
    stream: Stream,
    held: BTreeMap<TensorId, Held>,
}

impl Run {
    fn run(&mut self, partition: &Partition) -> PartitionReport {
        let mut report = PartitionReport::of(partition);
        let ran = self.has_inputs(partition).and_then(|()| match partition.is_supported() {
            true => self.execute(partition, &mut report),
            false if partition.outputs().is_empty() => {
                report.run_by = Some(Runner::Nothing);
                Ok(())
            }
            false => self.interpret(partition, &mut report),
        });
        report.failure = ran.err().map(|error| format!("{error:#}"));
        report
    }

    fn has_inputs(&self, partition: &Partition) -> Result<()> {
        match partition.inputs().iter().find(|port| !self.held.contains_key(&port.id())) {
            Some(port) => bail!("it cannot run, since tensor {} was not computed", port.id()),
            None => Ok(()),
        }
    }

    /// Compiles and executes a supported partition, and checks its outputs if asked to.
    fn execute(&mut self, partition: &Partition, report: &mut PartitionReport) -> Result<()> {
        let held: Vec<&Held> = partition.inputs().iter().map(|port| &self.held[&port.id()]).collect();
        let inputs: Vec<LogicalTensor> = held.iter().map(|tensor| tensor.desc().clone()).collect();
        report.inputs = inputs.iter().map(PortReport::of).collect();

        let start = Instant::now();
        let compiled = partition.compile(&self.engine, &inputs, partition.outputs())?;
        report.compile_seconds = Some(start.elapsed().as_secs_f64());
        report.inplace = compiled.inplace_ports().iter().map(|pair| [pair.input, pair.output]).collect();

        let make = |desc| Held::zeroed(desc, &self.engine);
        let mut outputs = compiled.outputs().iter().map(make).collect::<Result<Vec<Held>>>()?;
        report.outputs = outputs.iter().map(|output| PortReport::of(output.desc())).collect();

        let tensors = held.iter().map(|tensor| tensor.tensor()).collect::<Result<Vec<Tensor<'_>>>>()?;
        let mut into: Vec<TensorMut<'_>> =
            outputs.iter_mut().map(|output| output.elements_mut().as_tensor_mut()).collect();
        let mut times = Vec::new();
        for _ in 0..self.repeat {
            let start = Instant::now();
            compiled.execute(&self.stream, &tensors, &mut into)?;
            times.push(start.elapsed());
        }
        report.execution = Execution::of(times, Some(compiled.bytes_moved()));
        report.run_by = Some(Runner::Compiled);

        if self.check {
            report.checks = check::checks(partition, &self.held, &outputs, &self.stream)
                .context("it cannot be checked")?;
        }
        self.held.extend(outputs.into_iter().map(|output| (output.desc().id(), output)));
        match report.checks.iter().find(|check| !check.equal) {
            Some(check) => bail!("the check failed, {check}"),
            None => Ok(()),
        }
    }

    /// Runs an unsupported partition by the reference interpreter.
    fn interpret(&mut self, partition: &Partition, report: &mut PartitionReport) -> Result<()> {
        report.inputs =
            partition.inputs().iter().map(|port| PortReport::of(self.held[&port.id()].desc())).collect();
        let start = Instant::now();
        let mut values = self.reference(partition.ops())?;
        report.execution = Execution::of(vec![start.elapsed()], None);
        report.run_by = Some(Runner::Reference);

        report.outputs.clear();
        for port in partition.outputs() {
            let value = values.remove(&port.id()).context("an output is missing from the reference")?;
            let mut output = Held::zeroed(&shaped(port, value.dims())?, &self.engine)?;
            value.write(output.elements_mut())?;
            ensure!(output.value()? == value, "the strides of output tensor {} overlap", port.id());
            report.outputs.push(PortReport::of(output.desc()));
            self.held.insert(port.id(), output);
        }
        Ok(())
    }

    /// The values that ops compute, by the reference interpreter, from the tensors that are there.
    fn reference(&self, ops: &[Op]) -> Result<BTreeMap<TensorId, Value>> {
        let mut values: BTreeMap<TensorId, Value> = BTreeMap::new();
        for op in ops {
            reference::supports(op)?;
            let value = |input: &LogicalTensor| match values.get(&input.id()) {
                Some(value) => Ok(value.clone()),
                None => self.held[&input.id()].value(),
            };
            let inputs = op.inputs().iter().map(value).collect::<Result<Vec<Value>>>()?;
            let outputs = reference::run(op, &inputs)?;
            values.extend(op.outputs().iter().map(LogicalTensor::id).zip(outputs));
        }
        Ok(values)
    }
}

/// An output as the graph describes it, with the dims that it turned out to have.
fn shaped(port: &LogicalTensor, dims: &[i64]) -> Result<LogicalTensor> {
    match port.known_dims() {
        Some(given) if given != dims => {
            bail!("tensor {} is {given:?} in the graph, but {dims:?} follows from the inputs", port.id())
        }
        Some(_) => Ok(port.clone()),
        None => {
            Ok(LogicalTensor::strided(port.id(), port.data_type(), dims)?.with_property(port.property())?)
        }
    }
}
