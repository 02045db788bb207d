//! The report of a run, as data, as text and as JSON.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sterna::{Engine, FallbackSummary, Op, Partition, TensorId};
use sterna_inspect::{Cell, PortReport, Short, Table, TensorNames, TilesReport, Time, aligned, of_partition};

use crate::expect::ExpectReport;
use crate::form::Form;
use crate::terminal::{BAD, BOLD, GOOD, ODD, painted};
use crate::timing::Timed;
use crate::whole::WholeReport;
use crate::words::harmless;

/// Everything about one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) graph: PathBuf,
    pub(crate) ops: usize,
    pub(crate) threads: usize,
    /// The number of partitions of the graph.
    #[serde(skip)]
    pub(crate) planned: usize,
    /// Those that ended.
    pub(crate) partitions: Vec<PartitionReport>,
    /// The graph as a whole, in one session.
    pub(crate) whole: Option<WholeReport>,
    /// Why it was not run as a whole: results are those of the partitions one by one.
    pub(crate) not_whole: Option<String>,
    /// Results beside what is expected of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) expected: Vec<ExpectReport>,
    /// The small results of a model, or of a graph whose inputs are written out.
    pub(crate) results: Vec<ResultReport>,
    /// The files written.
    pub(crate) written: Vec<Written>,
    /// Remarks that need no action.
    pub(crate) notes: Vec<String>,
    /// One sentence for each thing that failed; the run is fine if there is none.
    pub(crate) failures: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) tensor: TensorId,
    pub(crate) name: Option<String>,
    pub(crate) file: PathBuf,
}

/// A result with its value.
#[derive(Debug, Serialize)]
pub(crate) struct ResultReport {
    /// Its name in the model, or by its port.
    pub(crate) name: String,
    pub(crate) tensor: PortReport,
    /// Its elements in brackets.
    pub(crate) value: String,
}

/// One partition and its outcome.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionReport {
    pub(crate) id: usize,
    pub(crate) supported: bool,
    /// Why it is not supported.
    pub(crate) unsupported_reason: Option<String>,
    pub(crate) ops: Vec<OpReport>,
    pub(crate) inputs: Vec<PortReport>,
    pub(crate) outputs: Vec<PortReport>,
    /// Pairs of an input and the output that may take its place.
    pub(crate) inplace: Vec<[TensorId; 2]>,
    /// The runner of the partition; none if it failed.
    pub(crate) run_by: Option<ExecutedBy>,
    /// Why its results are made up, if they are.
    pub(crate) made_up: Option<String>,
    /// The outputs that `--fill` names, filled for the partitions that follow.
    pub(crate) filled: Vec<TensorId>,
    pub(crate) compile_seconds: Option<f64>,
    /// The fast forms that its plan did not take, under `--verbose`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slower: Vec<SlowerReport>,
    pub(crate) execution: Option<Execution>,
    /// The tiles of masked scores, if it has any.
    pub(crate) mask_tiles: Option<TilesReport>,
    pub(crate) checks: Vec<Check>,
    /// Why it did not run, or why it is not right.
    pub(crate) failure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecutedBy {
    /// The compiled partition.
    Compiled,
    /// The reference interpreter.
    Reference,
    /// Nobody: its results are filled as inputs are.
    MadeUp,
    /// Nobody needs to: it has no outputs.
    Nothing,
}

#[derive(Debug, Serialize)]
pub(crate) struct OpReport {
    pub(crate) kind: &'static str,
    pub(crate) id: usize,
    pub(crate) name: String,
    /// The name as text shows it.
    #[serde(skip)]
    short: String,
}

/// A fast form that a plan did not take.
#[derive(Debug, Serialize)]
pub(crate) struct SlowerReport {
    pub(crate) form: &'static str,
    pub(crate) op: usize,
    pub(crate) reason: &'static str,
    /// All of it in words.
    pub(crate) text: String,
}

impl SlowerReport {
    pub(crate) fn of(fallback: &FallbackSummary) -> Self {
        let FallbackSummary { form, op, reason, .. } = fallback;
        Self { form: form.name(), op: op.id.get(), reason: reason.name(), text: fallback.to_string() }
    }
}

/// The executions of a partition.
#[derive(Debug, Serialize)]
pub(crate) struct Execution {
    /// The executions that were timed.
    pub(crate) repeat: usize,
    /// An execution that was not timed came before. A single cold execution tells no speed.
    pub(crate) is_warm: bool,
    pub(crate) best_seconds: f64,
    pub(crate) median_seconds: f64,
    /// Bytes read and written by one execution, if they are known.
    pub(crate) bytes_moved: Option<usize>,
    /// By the best time, in 10⁹ bytes a second; none of a cold execution.
    pub(crate) gb_per_second: Option<f64>,
}

/// The comparison of one output with the reference.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) tensor: TensorId,
    /// Of an output of the graph.
    pub(crate) name: Option<String>,
    pub(crate) elements: i64,
    /// The units in the last place by which an element may differ; 0 means equal bits.
    pub(crate) ulps: u32,
    /// Each element has a bound of its own, as the results of sums have.
    pub(crate) is_bounded: bool,
    /// In what the reference departs from the ops run one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
    /// How many of 100 elements of the reference are 0, if more than half are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zeros: Option<usize>,
    /// True if the two agree; `None` if that would say little, or cannot be told.
    pub(crate) equal: Option<bool>,
    /// Why this is no check, if it is none.
    pub(crate) no_check: Option<String>,
    pub(crate) first_difference: Option<Difference>,
}

/// The first difference of two values, and the bits of both.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) index: Vec<i64>,
    pub(crate) computed: String,
    pub(crate) reference: String,
}

/// The most characters of the name of an op in a line of text.
const LONGEST_NAME: usize = 60;

/// The names of the ops of a graph in little room.
pub(crate) fn short_names(partitions: &[Partition]) -> Short {
    Short::new(partitions.iter().flat_map(Partition::ops).map(Op::name), LONGEST_NAME)
}

impl Report {
    /// That of a run that begins, on a graph of so many ops.
    pub(crate) fn begun(graph: &Path, ops: usize, engine: &Engine) -> Self {
        Self {
            graph: graph.to_owned(),
            ops,
            threads: engine.threads(),
            planned: 0,
            partitions: Vec::new(),
            whole: None,
            not_whole: None,
            expected: Vec::new(),
            results: Vec::new(),
            written: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds the report of a partition, and of its failure.
    pub(crate) fn add(&mut self, partition: PartitionReport) {
        self.failures.extend(partition.failed());
        self.partitions.push(partition);
    }

    /// The whole report in a form.
    pub(crate) fn text(&self, form: Form) -> serde_json::Result<String> {
        Ok(match form {
            Form::Text => self.to_string(),
            Form::Json => self.to_json()?,
            Form::Csv => self.to_csv(),
            Form::Markdown => self.to_markdown(),
        })
    }

    /// The first line of the text.
    pub(crate) fn heading(&self) -> String {
        let (ops, threads) = (self.ops, self.threads);
        let (graph, partitions) = (self.graph.display(), self.planned);
        // Steps have other partitions each.
        let partitions = if partitions > 0 { format!("partitions {partitions}, ") } else { String::new() };
        format!("{graph}: ops {ops}, {partitions}threads {threads}\n")
    }

    /// The lines of the text about the graph as a whole.
    pub(crate) fn whole_text(&self) -> String {
        let title = painted(BOLD, "whole graph:");
        match (&self.whole, &self.not_whole) {
            (Some(whole), _) => format!("\n{title} one session\n{whole}"),
            (None, Some(why)) => format!("\n{title} partitions one by one, {}\n", harmless(why)),
            (None, None) => String::new(),
        }
    }

    /// The lines of the text behind those of the partitions.
    pub(crate) fn ending(&self) -> String {
        let mut text = self.whole_text();
        if !self.results.is_empty() || !self.written.is_empty() || !self.expected.is_empty() {
            text.push('\n');
        }
        text.extend(self.expected.iter().map(|expected| {
            let style = if expected.equal { GOOD } else { BAD };
            format!("expect {}\n", painted(style, expected))
        }));
        text.extend(self.results.iter().map(|result| format!("{result}\n")));
        text.extend(self.written.iter().map(|Written { tensor, name, file }| {
            format!("wrote tensor {tensor}{} to {}\n", InBrackets(name), file.display())
        }));
        text
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// A row for each partition, in SI units.
    pub(crate) fn to_csv(&self) -> String {
        let head = [
            "partition",
            "supported",
            "ops",
            "run_by",
            "compile_seconds",
            "executions",
            "best_seconds",
            "median_seconds",
            "bytes_moved",
            "gb_per_second",
            "check",
            "failure",
            "p90_seconds",
            "p99_seconds",
            "runs_per_second",
            "run_memory",
            "peak_memory",
        ];
        let mut table = Table::new(&head);
        for partition in &self.partitions {
            let execution = partition.execution.as_ref();
            let of = |value: Option<String>| Cell::from(value.unwrap_or_default());
            table.push([
                partition.id.to_string().into(),
                partition.supported.to_string().into(),
                partition.op_kinds().into(),
                partition.run_by.map_or("", ExecutedBy::name).into(),
                of(partition.compile_seconds.map(|seconds| seconds.to_string())),
                of(execution.map(|execution| execution.repeat.to_string())),
                of(execution.map(|execution| execution.best_seconds.to_string())),
                of(execution.map(|execution| execution.median_seconds.to_string())),
                of(execution.and_then(|execution| Some(execution.bytes_moved?.to_string()))),
                of(execution.and_then(|execution| Some(execution.gb_per_second?.to_string()))),
                partition.verdict().into(),
                partition.failure.clone().unwrap_or_default().into(),
                "".into(),
                "".into(),
                "".into(),
                "".into(),
                "".into(),
            ]);
        }
        self.whole.iter().for_each(|whole| table.push(whole_row(whole)));
        table.csv()
    }

    /// The partitions as a table of Markdown.
    pub(crate) fn to_markdown(&self) -> String {
        let head = ["partition", "ops", "run by", "compile", "execute", "GB/s", "check"];
        let mut table = Table::new(&head);
        for partition in &self.partitions {
            let time = |seconds: Option<f64>| seconds.map_or_else(String::new, |s| Time(s).to_string());
            let execution = partition.execution.as_ref();
            let check = match &partition.failure {
                Some(failure) => failure.clone(),
                None => partition.verdict().to_owned(),
            };
            table.push([
                partition.id.to_string().into(),
                partition.op_kinds().into(),
                partition.run_by.map_or("", ExecutedBy::name).into(),
                time(partition.compile_seconds).into(),
                time(execution.map(|execution| execution.best_seconds)).into(),
                execution
                    .and_then(|execution| Some(format!("{:.2}", execution.gb_per_second?)))
                    .unwrap_or_default()
                    .into(),
                check.into(),
            ]);
        }
        if let Some(whole) = &self.whole {
            let rate = whole.bytes_moved as f64 / whole.latency.min / 1e9;
            table.push([
                "whole".into(),
                "".into(),
                "session".into(),
                Time(whole.plan_seconds).to_string().into(),
                Time(whole.latency.min).to_string().into(),
                if whole.is_warm { format!("{rate:.2}") } else { String::new() }.into(),
                "".into(),
            ]);
        }
        let (ops, partitions, threads) = (self.ops, self.partitions.len(), self.threads);
        let graph = self.graph.display();
        format!("{graph}: ops {ops}, partitions {partitions}, threads {threads}\n\n{}", table.markdown())
    }
}

/// The row of the graph as a whole, behind those of the partitions.
fn whole_row(whole: &WholeReport) -> [Cell; 17] {
    let moved = whole.bytes_moved as f64 / whole.latency.min / 1e9;
    [
        "whole".into(),
        "true".into(),
        "".into(),
        "session".into(),
        whole.plan_seconds.to_string().into(),
        whole.runs.to_string().into(),
        whole.latency.min.to_string().into(),
        whole.latency.p50.to_string().into(),
        whole.bytes_moved.to_string().into(),
        if whole.is_warm { moved.to_string() } else { String::new() }.into(),
        "".into(),
        "".into(),
        whole.latency.p90.to_string().into(),
        whole.latency.p99.to_string().into(),
        whole.runs_per_second.to_string().into(),
        whole.run_memory.to_string().into(),
        whole.peak_memory.map_or_else(String::new, |bytes| bytes.to_string()).into(),
    ]
}

impl ExecutedBy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compiled => "compiled",
            Self::Reference => "reference",
            Self::MadeUp => "made up",
            Self::Nothing => "nothing",
        }
    }
}

impl PartitionReport {
    /// The facts before the run.
    pub(crate) fn of(partition: &Partition) -> Self {
        Self {
            id: partition.id(),
            supported: partition.is_supported(),
            unsupported_reason: partition.unsupported_reason(),
            ops: partition.ops().iter().map(OpReport::of).collect(),
            inputs: partition.inputs().iter().map(PortReport::of).collect(),
            outputs: partition.outputs().iter().map(PortReport::of).collect(),
            inplace: Vec::new(),
            run_by: None,
            made_up: None,
            filled: Vec::new(),
            compile_seconds: None,
            slower: Vec::new(),
            execution: None,
            mask_tiles: None,
            checks: Vec::new(),
            failure: None,
        }
    }
}

impl PartitionReport {
    /// Names the inputs and outputs of the graph, and shortens the names of the ops.
    pub(crate) fn name(&mut self, names: &TensorNames, short: &Short) {
        names.name(self.inputs.iter_mut().chain(&mut self.outputs));
        for op in &mut self.ops {
            op.short = short.of(&op.name).to_owned();
        }
    }

    /// The kinds and ids of its ops.
    fn kinds(&self) -> Vec<String> {
        self.ops.iter().map(|op| format!("{} (op {})", op.kind, op.id)).collect()
    }

    /// Its failure, which names the partition and its ops.
    pub(crate) fn failed(&self) -> Option<String> {
        Some(of_partition(self.id, &self.kinds(), self.failure.as_ref()?))
    }

    /// The kinds of its ops in a word.
    fn op_kinds(&self) -> String {
        self.ops.iter().map(|op| op.kind).collect::<Vec<&str>>().join("+")
    }

    /// The findings of the checks of its outputs, in a word.
    fn verdict(&self) -> &'static str {
        match &self.checks[..] {
            [] => "",
            checks if checks.iter().any(|check| check.equal == Some(false)) => "differs",
            checks if checks.iter().all(|check| check.equal == Some(true)) => "equal",
            _ => "no check",
        }
    }
}

impl OpReport {
    fn of(op: &Op) -> Self {
        Self { kind: op.kind().name(), id: op.id().get(), name: op.name().into(), short: op.name().into() }
    }
}

impl Execution {
    /// The facts of executions that took so long.
    pub(crate) fn of(timed: Timed, bytes_moved: Option<usize>) -> Option<Self> {
        let Timed { mut seconds, executions, is_warm } = timed;
        seconds.sort_unstable_by(f64::total_cmp);
        let best_seconds = *seconds.first()?;
        let rate = |bytes| (is_warm && best_seconds > 0.0).then(|| bytes as f64 / best_seconds / 1e9);
        Some(Self {
            repeat: executions,
            is_warm,
            best_seconds,
            median_seconds: seconds[seconds.len() / 2],
            bytes_moved,
            gb_per_second: bytes_moved.and_then(rate),
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.heading())?;
        self.partitions.iter().try_for_each(|partition| write!(f, "\n{partition}"))?;
        f.write_str(&self.ending())
    }
}

impl Display for ResultReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.name)?;
        f.write_str(&self.value)
    }
}

impl Display for PartitionReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let title = painted(BOLD, format!("partition {}:", self.id));
        match &self.unsupported_reason {
            None => writeln!(f, "{title} supported")?,
            Some(reason) => writeln!(f, "{title} {}, {reason}", painted(ODD, "not supported"))?,
        }
        for op in &self.ops {
            writeln!(f, "  op       {} {} {:?}", op.kind, op.id, op.short)?;
        }
        aligned(&self.inputs, &self.outputs).iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        for [input, output] in &self.inplace {
            writeln!(f, "  in place {output} may take the place of {input}")?;
        }
        if let Some(seconds) = self.compile_seconds {
            writeln!(f, "  compile  {}", Time(seconds))?;
        }
        for slower in &self.slower {
            writeln!(f, "  slower   {}", slower.text)?;
        }
        if let Some(execution) = &self.execution {
            match self.run_by {
                Some(ExecutedBy::Reference) => {
                    writeln!(f, "  execute  reference, {}", Time(execution.best_seconds))?;
                }
                _ => writeln!(f, "  execute  {execution}")?,
            }
        }
        if let Some(tiles) = &self.mask_tiles {
            writeln!(f, "  mask     {tiles}")?;
        }
        if self.run_by == Some(ExecutedBy::Nothing) {
            writeln!(f, "  execute  nothing, it has no outputs")?;
        }
        if let Some(reason) = &self.made_up {
            writeln!(f, "  made up  {reason}")?;
        }
        for tensor in &self.filled {
            writeln!(f, "  filled   tensor {tensor}, by --fill")?;
        }
        for check in &self.checks {
            let style = match check.equal {
                Some(true) => GOOD,
                Some(false) => BAD,
                None => ODD,
            };
            writeln!(f, "  check    {}", painted(style, check))?;
        }
        match &self.failure {
            Some(failure) => writeln!(f, "  failed   {}", painted(BAD, failure)),
            None => Ok(()),
        }
    }
}

impl Display for Execution {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Time(self.best_seconds))?;
        match (self.is_warm, self.repeat) {
            (false, _) => f.write_str(", once and cold")?,
            (true, 1) => {}
            (true, repeat) => write!(f, " best, {} median of {repeat}", Time(self.median_seconds))?,
        }
        if let Some(bytes) = self.bytes_moved {
            write!(f, ", {bytes} bytes moved")?;
        }
        if let Some(rate) = self.gb_per_second {
            write!(f, ", {rate:.2} GB/s")?;
        }
        Ok(())
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}{}: ", self.tensor, InBrackets(&self.name))?;
        let elements = self.elements;
        match &self.first_difference {
            None if self.no_check.is_some() => {
                return write!(f, "no check, {}", self.no_check.as_deref().unwrap_or_default());
            }
            None if self.is_bounded => write!(f, "all {elements} elements are within their bounds")?,
            None if self.ulps == 0 => write!(f, "all {elements} elements equal the reference")?,
            None => write!(f, "all {elements} elements are within {} ulp of the reference", self.ulps)?,
            Some(difference) => return write!(f, "{difference}"),
        }
        self.note.map_or(Ok(()), |note| write!(f, "; {note}"))?;
        self.zeros.map_or(Ok(()), |percent| write!(f, "; {percent} % of them are 0"))
    }
}

/// A name behind an id, if there is one.
struct InBrackets<'a>(&'a Option<String>);

impl Display for InBrackets<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { index, computed, reference } = self;
        write!(f, "the first difference is at {index:?}, computed {computed}, reference {reference}")
    }
}
