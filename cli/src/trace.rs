//! The time of runs of a session: as a trace that Perfetto and Chrome show, and by kinds of ops.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sterna::{OpId, PhaseKind, PhaseProfile, Profiler, RunProfile, RunSpan};
use sterna_import::open_plain;
use sterna_inspect::{StepShare, Table, kinds_of};

/// Keeps the phases of an engine while it is on.
#[derive(Default)]
pub(crate) struct PhaseSink {
    is_on: AtomicBool,
    phases: Mutex<Vec<PhaseSpan>>,
}

/// A phase that has run.
struct PhaseSpan {
    kind: PhaseKind,
    args: Value,
    began: Instant,
    duration: Duration,
    thread: ThreadId,
}

impl PhaseSink {
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    fn take(&self) -> Vec<PhaseSpan> {
        std::mem::take(&mut *self.phases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Profiler for PhaseSink {
    fn phase(&self, phase: &PhaseProfile<'_>) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let PhaseProfile { index, count, tasks, threads, bytes, flops, .. } = *phase;
        let args = json!({
            "phase": index, "of": count, "tasks": tasks, "threads": threads, "bytes": bytes, "flops": flops
        });
        let (kind, began, duration) = (phase.kind, phase.began, phase.duration);
        let span = PhaseSpan { kind, args, began, duration, thread: thread::current().id() };
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }
}

/// An event of a trace, in the form of Chrome: times in microseconds.
#[derive(Serialize)]
struct Event {
    name: String,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: usize,
    args: Value,
}

/// The events of a process.
pub(crate) struct Trace {
    events: Vec<Event>,
    base: Instant,
    threads: Vec<ThreadId>,
}

/// The program that writes traces.
const PROGRAM: &str = concat!("sterna ", env!("CARGO_PKG_VERSION"));

/// The number of the process in a trace; there is one.
const PROCESS: u32 = 1;

/// A stretch of time in a trace.
struct Stretch {
    began: Instant,
    duration: Duration,
    thread: ThreadId,
}

impl Trace {
    /// A trace that begins now.
    pub(crate) fn new() -> Self {
        Self { events: Vec::new(), base: Instant::now(), threads: Vec::new() }
    }

    fn add(&mut self, name: String, cat: &'static str, at: &Stretch, args: Value) {
        let known = self.threads.iter().position(|thread| *thread == at.thread);
        let tid = known.unwrap_or_else(|| {
            self.threads.push(at.thread);
            self.threads.len() - 1
        });
        let ts = at.began.saturating_duration_since(self.base).as_secs_f64() * 1e6;
        let dur = Some(at.duration.as_secs_f64() * 1e6);
        self.events.push(Event { name, cat, ph: "X", ts, dur, pid: PROCESS, tid, args });
    }

    /// Adds the making of a plan.
    pub(crate) fn plan(&mut self, profile: &RunProfile) {
        self.whole("plan".into(), "plan", profile, json!({}));
        profile.spans.iter().for_each(|span| self.span(span, None));
    }

    /// Adds a run, the first of which is number 0.
    pub(crate) fn run(&mut self, number: usize, profile: &RunProfile) {
        self.whole(format!("run {number}"), "run", profile, json!({"run": number}));
        profile.spans.iter().for_each(|span| self.span(span, Some(number)));
    }

    /// Adds the phases that a sink has kept.
    pub(crate) fn phases(&mut self, sink: &PhaseSink) {
        for PhaseSpan { kind, args, began, duration, thread } in sink.take() {
            self.add(kind.name().into(), "phase", &Stretch { began, duration, thread }, args);
        }
    }

    fn whole(&mut self, name: String, cat: &'static str, profile: &RunProfile, args: Value) {
        let thread = profile.spans.first().map_or_else(|| thread::current().id(), |span| span.thread);
        let at = Stretch { began: profile.began, duration: profile.duration, thread };
        self.add(name, cat, &at, args);
    }

    fn span(&mut self, span: &RunSpan, run: Option<usize>) {
        let at = Stretch { began: span.began, duration: span.duration, thread: span.thread };
        let name = match span.kind.is_step() || span.ops.is_empty() {
            true => label(span),
            false => format!("{} {}", span.kind.name(), kinds_of(&span.ops)),
        };
        let ops: Vec<Value> = span
            .ops
            .iter()
            .map(|op| json!({"kind": op.kind.name(), "id": op.id.get(), "name": op.name}))
            .collect();
        let mut args = json!({});
        if let Some(partition) = span.partition {
            args = json!({"partition": partition, "ops": ops});
        }
        if let Some(run) = run.filter(|_| span.kind.is_step()) {
            args["run"] = run.into();
            args["bytes"] = span.bytes.into();
        }
        self.add(name, span.kind.name(), &at, args);
    }

    /// The trace of a run of a graph as JSON.
    pub(crate) fn to_json(&self, graph: &str, threads: usize) -> serde_json::Result<String> {
        let name = |name: &'static str, tid, of: String| Event {
            name: name.into(),
            cat: "__metadata",
            ph: "M",
            ts: 0.0,
            dur: None,
            pid: PROCESS,
            tid,
            args: json!({ "name": of }),
        };
        let process = [name("process_name", 0, format!("sterna run {graph}"))];
        let of_threads = (0..self.threads.len()).map(|tid| name("thread_name", tid, format!("caller {tid}")));
        let names: Vec<Event> = process.into_iter().chain(of_threads).collect();
        let document = json!({
            "displayTimeUnit": "ns",
            "otherData": {"program": PROGRAM, "graph": graph, "threads": threads},
            "traceEvents": names.iter().chain(&self.events).collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string(&document)? + "\n")
    }
}

/// The subject of a span: the kinds of its ops, or else the kind of the span.
fn label(span: &RunSpan) -> String {
    match span.ops.is_empty() {
        true => span.kind.name().to_owned(),
        false => kinds_of(&span.ops),
    }
}

/// The time of all steps whose ops are of the same kinds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KindShare {
    /// The kinds of ops.
    pub(crate) ops: String,
    /// Who runs them: `execute`, `custom`, `fallback` or `copy`.
    pub(crate) run_by: &'static str,
    /// The steps of a run.
    pub(crate) steps: usize,
    /// Seconds of a run, the mean of several.
    pub(crate) seconds: f64,
    /// The part of the time of all steps.
    pub(crate) share: f64,
}

/// The shares of kinds of ops in runs of one plan, the largest first.
pub(crate) fn shares(runs: &[RunProfile]) -> Vec<KindShare> {
    let mut found: BTreeMap<(String, &'static str), (usize, f64)> = BTreeMap::new();
    for span in runs.iter().flat_map(|run| &run.spans).filter(|span| span.kind.is_step()) {
        let (steps, seconds) = found.entry((label(span), span.kind.name())).or_default();
        *steps += 1;
        *seconds += span.duration.as_secs_f64();
    }
    let all: f64 = found.values().map(|(_, seconds)| seconds).sum();
    let count = runs.len().max(1);
    let share = |((ops, run_by), (steps, seconds)): ((String, &'static str), (usize, f64))| KindShare {
        ops,
        run_by,
        steps: steps / count,
        seconds: seconds / count as f64,
        share: if all > 0.0 { seconds / all } else { 0.0 },
    };
    let mut shares: Vec<KindShare> = found.into_iter().map(share).collect();
    shares.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    shares
}

/// The shares as a table.
pub(crate) fn table(shares: &[KindShare], time: impl Fn(f64) -> String) -> Table {
    let mut table = Table::new(&["ops", "run by", "steps", "time", "share"]);
    for KindShare { ops, run_by, steps, seconds, share } in shares {
        table.push([
            ops.as_str().into(),
            (*run_by).into(),
            steps.to_string().into(),
            time(*seconds).into(),
            format!("{:.1} %", 100.0 * share).into(),
        ]);
    }
    table
}

/// A trace as it is read.
#[derive(Deserialize)]
struct ReadTrace {
    #[serde(rename = "traceEvents")]
    events: Vec<ReadEvent>,
}

#[derive(Deserialize)]
struct ReadEvent {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: ReadArgs,
}

#[derive(Default, Deserialize)]
struct ReadArgs {
    #[serde(default)]
    ops: Vec<ReadOp>,
    run: Option<usize>,
}

#[derive(Deserialize)]
struct ReadOp {
    id: usize,
}

/// Reads the steps of a trace that `sterna run --profile` wrote.
pub(crate) fn read(path: &Path) -> Result<Vec<StepShare>> {
    let read = || {
        let mut text = String::new();
        open_plain(path)?.read_to_string(&mut text)?;
        steps(&text)
    };
    read().with_context(|| {
        let hint = "name a file that `sterna run --profile` wrote";
        format!("cannot read a profile from {}; {hint}", path.display())
    })
}

/// The steps of a trace.
fn steps(text: &str) -> Result<Vec<StepShare>> {
    let trace: ReadTrace = serde_json::from_str(text)?;
    let is_step =
        |event: &&ReadEvent| ["execute", "custom", "fallback", "copy"].contains(&event.cat.as_str());
    let steps: Vec<&ReadEvent> = trace.events.iter().filter(is_step).collect();
    ensure!(!steps.is_empty(), "it holds no step of a run");
    let last = steps.iter().filter_map(|event| event.args.run).max().unwrap_or(0);
    let mut found: BTreeMap<Vec<OpId>, f64> = BTreeMap::new();
    // The first run touches memory for the first time.
    for event in steps.iter().filter(|event| last == 0 || event.args.run != Some(0)) {
        ensure!(event.dur.is_finite() && event.dur >= 0.0, "it holds a time that cannot be");
        let ops = event.args.ops.iter().map(|op| op.id.into()).collect();
        *found.entry(ops).or_default() += event.dur * 1e-6 / last.max(1) as f64;
    }
    let all: f64 = found.values().sum();
    let share = |(ops, seconds): (Vec<OpId>, f64)| {
        let share = if all > 0.0 { seconds / all } else { 0.0 };
        StepShare { ops, seconds, share }
    };
    Ok(found.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_runs_is_left_out() {
        let event = |cat: &str, run: usize, id: usize, dur: f64| {
            json!({"cat": cat, "ph": "X", "ts": 0, "dur": dur,
                   "args": {"run": run, "partition": id, "ops": [{"kind": "Exp", "id": id, "name": ""}]}})
        };
        let trace = |events: Vec<Value>| json!({ "traceEvents": events }).to_string();
        let several = trace(vec![
            event("execute", 0, 1, 1e6),
            event("execute", 1, 1, 2e6),
            event("execute", 2, 1, 4e6),
            event("fallback", 1, 2, 1e6),
            event("fallback", 2, 2, 1e6),
            event("phase", 1, 2, 9e6),
        ]);
        let step = |id: usize, seconds, share| StepShare { ops: vec![id.into()], seconds, share };
        assert_eq!(steps(&several).unwrap(), [step(1, 3.0, 0.75), step(2, 1.0, 0.25)]);
        assert_eq!(steps(&trace(vec![event("custom", 0, 3, 2e6)])).unwrap(), [step(3, 2.0, 1.0)]);
        let wrong = [trace(vec![]), trace(vec![event("execute", 0, 1, -1.0)]), "[]".into(), String::new()];
        assert!(wrong.iter().all(|text| steps(text).is_err()));
    }
}
