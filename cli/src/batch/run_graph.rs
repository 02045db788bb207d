//! One graph of a batch: whether Sterna takes it, and how it runs, in a process of its own, whose time is
//! limited and whose end does not end the batch.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use serde_json::Value;
use sterna::{Engine, LogicalTensor, Partition, Policy, TensorId};

use crate::batch::rewrite::Alternative;
use crate::command_error::CommandError;
use crate::shapes::in_memory;
use crate::source::GraphArgs;

/// How a graph of a batch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GraphOutcome {
    /// It ran, and every result equals the reference.
    Passed,
    /// It ran; not every result was compared.
    Ran,
    /// It compiles, as far as shapes are known; nothing was run.
    Compiled,
    /// Sterna does not take the graph, or has no kernels for it.
    Refused,
    /// A result differs from the reference.
    Wrong,
    /// It was taken, but did not run to its end.
    Failed,
    /// It ran out of time.
    Late,
    /// There is no such file.
    Missing,
}

impl GraphOutcome {
    pub(crate) const ALL: [Self; 8] = [
        Self::Passed,
        Self::Ran,
        Self::Compiled,
        Self::Refused,
        Self::Wrong,
        Self::Failed,
        Self::Late,
        Self::Missing,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Ran => "ran",
            Self::Compiled => "compiled",
            Self::Refused => "refused",
            Self::Wrong => "wrong",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Missing => "missing",
        }
    }
}

/// How every graph is run.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) check: bool,
    pub(crate) dry_run: bool,
    pub(crate) time_limit: Duration,
    pub(crate) threads: Option<u16>,
    pub(crate) policy: Option<Policy>,
}

impl Terms {
    /// The arguments of `sterna` that run a graph alone.
    pub(crate) fn arguments(&self, path: &Path, options: &Alternative) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["run".into(), path.into()];
        for (name, value) in options {
            arguments.extend([(*name).into(), value.into()]);
        }
        if let Some(policy) = self.policy {
            arguments.extend(["--policy".into(), policy.name().into()]);
        }
        if let Some(threads) = self.threads {
            arguments.extend(["--threads".into(), threads.to_string().into()]);
        }
        if self.check {
            arguments.push("--check".into());
        }
        arguments
    }
}

/// How a graph ended.
#[derive(Debug)]
pub(crate) struct GraphResult {
    pub(crate) outcome: GraphOutcome,
    /// None if the graph was not taken.
    pub(crate) partitions: Option<usize>,
    pub(crate) reason: Option<String>,
}

impl GraphResult {
    fn of(outcome: GraphOutcome, partitions: Option<usize>, reason: impl Into<String>) -> Self {
        Self { outcome, partitions, reason: Some(reason.into()) }
    }
}

/// A graph and its options, as `sterna run` reads them.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Reading {
    #[command(flatten)]
    source: GraphArgs,
}

/// Takes the shapes of tensors that a graph does not have out of options, as benchdnn passes over them, and
/// says which these are.
pub(crate) fn passes_over(path: &Path, options: &mut Alternative) -> Vec<String> {
    let id = |(name, value): &(&str, String)| match (*name, value.split_once('=')) {
        ("--shape", Some((id, _))) => id.parse::<TensorId>().ok(),
        _ => None,
    };
    if !options.iter().any(|option| id(option).is_some()) {
        return Vec::new();
    }
    // A graph that cannot be read is told of where it is run.
    let loaded = Reading::try_parse_from([path]).ok().and_then(|reading| reading.source.load().ok());
    let Some(loaded) = loaded else { return Vec::new() };
    let tensors = loaded.graph.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
    let known: HashSet<TensorId> = tensors.map(LogicalTensor::id).collect();
    let is_known = |option: &(&str, String)| id(option).is_none_or(|id| known.contains(&id));
    let (kept, passed) = std::mem::take(options).into_iter().partition(is_known);
    *options = kept;
    let passed: Alternative = passed;
    passed.into_iter().map(|(name, value)| format!("{name} {value}")).collect()
}

/// Runs one graph in a process of its own.
pub(crate) fn run_graph(path: &Path, options: &Alternative, terms: &Terms) -> GraphResult {
    let mut reading: Vec<OsString> = vec![path.into()];
    for (name, value) in options {
        reading.extend([(*name).into(), value.into()]);
    }
    let partitions = match taken(reading, terms) {
        Ok(partitions) => partitions,
        Err(why) => return GraphResult::of(GraphOutcome::Refused, None, why),
    };
    let count = Some(partitions.len());
    // A partition that gives nothing out need not run.
    let refused = partitions.iter().filter(|partition| !partition.outputs().is_empty());
    if let Some(why) = refused.filter_map(Partition::unsupported_reason).next() {
        return GraphResult::of(GraphOutcome::Refused, count, why);
    }
    if terms.dry_run {
        return match compiled(&partitions, terms.threads) {
            Ok(()) => GraphResult { outcome: GraphOutcome::Compiled, partitions: count, reason: None },
            Err(why) => GraphResult::of(GraphOutcome::Refused, count, why),
        };
    }
    let mut arguments = terms.arguments(path, options);
    arguments.push("--json".into());
    match finished(&arguments, terms.time_limit) {
        Err(why) => GraphResult::of(GraphOutcome::Failed, count, why),
        Ok(Finished { out: None, .. }) => {
            let limit = terms.time_limit.as_secs_f64();
            GraphResult::of(GraphOutcome::Late, count, format!("it took longer than {limit} s"))
        }
        Ok(Finished { out: Some(out), err, code }) => match serde_json::from_str::<Value>(&out) {
            Ok(report) => of_report(&report, count, terms.check),
            // It ended before it ran; a panic or a signal is never the graph's fault.
            Err(_) => {
                let outcome =
                    if matches!(code, Some(1 | 2)) { GraphOutcome::Refused } else { GraphOutcome::Failed };
                let said = err.lines().find_map(|line| line.strip_prefix("error: "));
                GraphResult::of(outcome, count, said.unwrap_or("the process that ran it broke off"))
            }
        },
    }
}

/// The partitions of a graph, if it is taken.
fn taken(reading: Vec<OsString>, terms: &Terms) -> Result<Vec<Partition>, String> {
    let said = |ending: CommandError| match ending {
        CommandError::Failed(error) | CommandError::Usage(error) => first_line(&format!("{error:#}")),
    };
    let reading = Reading::try_parse_from(reading).map_err(|error| {
        let error = error.to_string();
        first_line(error.strip_prefix("error: ").unwrap_or(&error))
    })?;
    let loaded = reading.source.load().map_err(said)?;
    for input in loaded.graph.inputs() {
        loaded.in_memory(input).map_err(|error| format!("{error:#}"))?;
    }
    loaded.graph.partitions(terms.policy.unwrap_or(Policy::Fusion)).map_err(|error| error.to_string())
}

/// Compiles the partitions one after the other, each for the layouts that the ones before it give, unless
/// only a run tells the shapes of its inputs.
fn compiled(partitions: &[Partition], threads: Option<u16>) -> Result<(), String> {
    let engine = match threads {
        Some(threads) => Engine::builder().threads(threads.into()).build(),
        None => Engine::new(),
    };
    let mut known: HashMap<TensorId, LogicalTensor> = HashMap::new();
    for partition in partitions.iter().filter(|partition| partition.is_supported()) {
        let laid_out = |port: &LogicalTensor| in_memory(known.get(&port.id()).unwrap_or(port));
        let Ok(inputs) = partition.inputs().iter().map(laid_out).collect::<anyhow::Result<Vec<_>>>() else {
            continue;
        };
        let compiled = partition.compile_for(&engine, &inputs, partition.outputs());
        let compiled = compiled.map_err(|error| first_line(&error.to_string()))?;
        known.extend(compiled.outputs().iter().map(|output| (output.id(), output.clone())));
    }
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The result that the report of a run states.
fn of_report(report: &Value, count: Option<usize>, is_checked: bool) -> GraphResult {
    let no_partitions = Vec::new();
    let partitions = report["partitions"].as_array().unwrap_or(&no_partitions);
    let checks = |partition: &Value| partition["checks"].as_array().cloned().unwrap_or_default();
    let is_wrong = |partition: &&Value| checks(partition).iter().any(|check| check["equal"] == false);
    let wrong = partitions.iter().find(is_wrong);
    if let Some(partition) = wrong.or(partitions.iter().find(|partition| partition["failure"].is_string())) {
        let failure = partition["failure"].as_str().map(first_line).unwrap_or_default();
        let outcome = match (wrong, partition["compile_seconds"].is_null()) {
            (Some(_), _) => GraphOutcome::Wrong,
            // Shapes that contradict the ops, say.
            (None, true) => GraphOutcome::Refused,
            (None, false) => GraphOutcome::Failed,
        };
        return GraphResult::of(outcome, count, failure);
    }
    match report["failures"].as_array().and_then(|failures| failures.first()?.as_str()) {
        Some(failure) => GraphResult::of(GraphOutcome::Failed, count, first_line(failure)),
        None if !is_checked => GraphResult { outcome: GraphOutcome::Ran, partitions: count, reason: None },
        None => match partitions.iter().flat_map(checks).find(|check| check["equal"] != true) {
            None => GraphResult { outcome: GraphOutcome::Passed, partitions: count, reason: None },
            Some(check) => {
                let why = check["no_check"].as_str().or(check["note"].as_str());
                let why = why.unwrap_or("a result was not compared");
                GraphResult::of(GraphOutcome::Ran, count, format!("no check, {}", first_line(why)))
            }
        },
    }
}

/// The output of a process; none if it was ended because of its time.
struct Finished {
    out: Option<String>,
    err: String,
    code: Option<i32>,
}

/// The most bytes of a report that are read.
const MAX_OUTPUT: u64 = 16 << 20;

/// The longest time between two looks at a process.
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// Runs `sterna` with arguments.
fn finished(arguments: &[OsString], limit: Duration) -> Result<Finished, String> {
    let program = std::env::current_exe().map_err(|error| format!("the program is not found: {error}"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("no process can be started: {error}"))?;
    let out = child.stdout.take().map(said);
    let err = child.stderr.take().map(said);
    let ended = ended(&mut child, Instant::now() + limit);
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
    let text =
        |said: Option<thread::JoinHandle<String>>| said.and_then(|said| said.join().ok()).unwrap_or_default();
    let (out, err) = (text(out), text(err));
    match ended? {
        Some(code) => Ok(Finished { out: Some(out), err, code }),
        None => Ok(Finished { out: None, err, code: None }),
    }
}

/// The exit code of a process, if it ends in time.
fn ended(child: &mut Child, deadline: Instant) -> Result<Option<Option<i32>>, String> {
    let mut nap = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(Some(status.code()));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(nap.min(left));
        nap = (nap * 2).min(LONGEST_NAP);
    }
}

/// Reads to the end what a process says, and keeps so much of it.
fn said(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
        // A process whose text nobody reads would wait.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_of_a_run_has_a_result() {
        let partition = |checks: Value, compiled: Value, failure: Value| {
            json!({"partitions": [
                {"checks": [{"equal": true}], "compile_seconds": 1, "failure": null},
                {"checks": checks, "compile_seconds": compiled, "failure": failure},
            ], "failures": []})
        };
        let no_check = json!([{"equal": null, "no_check": "no values are known\nof it"}]);
        let rows = [
            (partition(json!([{"equal": true}]), json!(1), json!(null)), GraphOutcome::Passed, None),
            (
                partition(no_check, json!(1), json!(null)),
                GraphOutcome::Ran,
                Some("no check, no values are known"),
            ),
            (
                partition(json!([{"equal": true}, {"equal": false}]), json!(1), json!("the check failed\n")),
                GraphOutcome::Wrong,
                Some("the check failed"),
            ),
            (partition(json!([]), json!(1), json!("no memory")), GraphOutcome::Failed, Some("no memory")),
            (partition(json!([]), json!(null), json!("no shape")), GraphOutcome::Refused, Some("no shape")),
            (json!({"partitions": [], "failures": ["x"]}), GraphOutcome::Failed, Some("x")),
        ];
        for (report, outcome, reason) in rows {
            let result = of_report(&report, Some(2), true);
            assert_eq!((result.outcome, result.reason.as_deref()), (outcome, reason), "{report}");
            assert_eq!(result.partitions, Some(2));
        }
        let unchecked = of_report(&json!({"partitions": [], "failures": []}), None, false);
        assert_eq!((unchecked.outcome, unchecked.reason), (GraphOutcome::Ran, None));
    }
}
