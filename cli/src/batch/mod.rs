//! `sterna batch`: the graphs of batch files, as benchdnn's graph driver reads them, one after the other.

pub(crate) mod args;
mod lines;
mod rewrite;
mod run_graph;
mod word;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use serde::Serialize;

use self::args::BatchArgs;
use self::lines::{Batch, CaseLine};
use self::rewrite::Alternative;
use self::run_graph::{GraphOutcome, GraphResult, Terms, passes_over, run_graph};
use crate::command_error::{CommandError, FAILED, FINE};
use crate::terminal::{print, say};

/// The outcome of one graph.
#[derive(Debug, Serialize)]
struct GraphReport {
    batch: PathBuf,
    line: usize,
    case: String,
    /// The options of `sterna run` that make this graph of the case.
    options: Vec<String>,
    outcome: GraphOutcome,
    partitions: Option<usize>,
    /// None if any number will do.
    expected_partitions: Option<usize>,
    reason: Option<String>,
}

/// The numbers of outcomes.
#[derive(Debug, Default, Serialize)]
struct Total {
    graphs: usize,
    outcomes: BTreeMap<GraphOutcome, usize>,
    /// The graphs that were taken and for which a number of partitions is expected, and those that have it.
    partitions_expected: usize,
    partitions_as_expected: usize,
}

#[derive(Serialize)]
struct BatchReport {
    graphs: Vec<GraphReport>,
    total: Total,
}

/// Runs the graphs of batch files.
pub(crate) fn batch(args: &BatchArgs) -> Result<u8, CommandError> {
    let mut batch = Batch::default();
    for file in &args.files {
        batch.read(file, &args.case_dir).map_err(CommandError::usage)?;
    }
    let terms = Terms {
        check: args.check,
        dry_run: args.dry_run,
        time_limit: args.time_limit,
        threads: args.threads,
        policy: args.policy,
    };
    if args.commands {
        return commands(&batch, &terms);
    }
    let mut report = BatchReport { graphs: Vec::new(), total: Total::default() };
    let mut unknown = BTreeSet::new();
    for case in &batch.cases {
        for mut options in case.graphs() {
            unknown.extend(known_alone(case, &mut options));
            let graph = report_of(case, &options, &terms);
            report.total.add(&graph);
            match args.json {
                true => report.graphs.push(graph),
                false => drop(print(&format!("{graph}\n"))?),
            }
        }
    }
    match args.json {
        true => {
            let text = serde_json::to_string_pretty(&report).map_err(CommandError::failed)?;
            print(&(text + "\n"))?;
        }
        false => drop(print(&format!("{}\n", report.total))?),
    }
    passed_over(&batch).into_iter().chain(unknown_tensors(unknown)).for_each(|note| say("note", note));
    Ok(if report.total.is_fine(args.strict) { FINE } else { FAILED })
}

fn report_of(case: &CaseLine, options: &Alternative, terms: &Terms) -> GraphReport {
    let missing = || GraphResult {
        outcome: GraphOutcome::Missing,
        partitions: None,
        reason: Some("there is no such file, neither beside the batch file nor in a --case-dir".into()),
    };
    let GraphResult { outcome, partitions, reason } =
        case.path.as_ref().map_or_else(missing, |path| run_graph(path, options, terms));
    GraphReport {
        batch: case.file.to_path_buf(),
        line: case.line,
        case: case.name.clone(),
        options: options.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect(),
        outcome,
        partitions,
        expected_partitions: Some(case.expected()).filter(|&expected| expected > 0),
        reason,
    }
}

/// Prints the commands that run the graphs one by one.
fn commands(batch: &Batch, terms: &Terms) -> Result<u8, CommandError> {
    let mut unknown = BTreeSet::new();
    for case in &batch.cases {
        let path = case.path.clone().unwrap_or_else(|| case.name.clone().into());
        for mut options in case.graphs() {
            unknown.extend(known_alone(case, &mut options));
            let words: Vec<String> =
                terms.arguments(&path, &options).into_iter().map(|argument| quoted(&argument)).collect();
            print(&format!("sterna {}\n", words.join(" ")))?;
        }
    }
    passed_over(batch).into_iter().chain(unknown_tensors(unknown)).for_each(|note| say("note", note));
    Ok(FINE)
}

/// An argument as a shell takes it.
fn quoted(argument: &OsString) -> String {
    let text = argument.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Leaves a case the shapes of tensors that its graph has, and gives the others with the line.
fn known_alone(case: &CaseLine, options: &mut Alternative) -> Vec<String> {
    let passed = case.path.as_ref().map(|path| passes_over(path, options)).unwrap_or_default();
    let said = |option: String| format!("{option} ({}:{})", case.file.display(), case.line);
    passed.into_iter().map(said).collect()
}

/// The most options that a note names.
const MAX_NAMED: usize = 10;

fn unknown_tensors(options: BTreeSet<String>) -> Option<String> {
    let named: Vec<&str> = options.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = match options.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!options.is_empty())
        .then(|| format!("passed over, since the graph has no such tensor: {}{more}", named.join(", ")))
}

fn passed_over(batch: &Batch) -> Option<String> {
    let options: Vec<String> = batch
        .passed_over
        .iter()
        .map(|(option, count)| match count {
            1 => option.clone(),
            count => format!("{option} ({count} times)"),
        })
        .collect();
    (!options.is_empty())
        .then(|| format!("passed over, since it says how benchdnn runs: {}", options.join(", ")))
}

impl Total {
    fn add(&mut self, graph: &GraphReport) {
        self.graphs += 1;
        *self.outcomes.entry(graph.outcome).or_default() += 1;
        if let (Some(partitions), Some(expected)) = (graph.partitions, graph.expected_partitions) {
            self.partitions_expected += 1;
            self.partitions_as_expected += usize::from(partitions == expected);
        }
    }

    fn count(&self, outcome: GraphOutcome) -> usize {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    fn is_fine(&self, is_strict: bool) -> bool {
        let bad: &[GraphOutcome] = match is_strict {
            true => &[
                GraphOutcome::Wrong,
                GraphOutcome::Failed,
                GraphOutcome::Missing,
                GraphOutcome::Refused,
                GraphOutcome::Late,
            ],
            false => &[GraphOutcome::Wrong, GraphOutcome::Failed, GraphOutcome::Missing],
        };
        bad.iter().all(|&outcome| self.count(outcome) == 0)
            && (!is_strict || self.partitions_as_expected == self.partitions_expected)
    }
}

impl Display for GraphReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}:{} {}", self.outcome.name(), self.batch.display(), self.line, self.case)?;
        for word in &self.options {
            write!(f, " {}", quoted(&word.into()))?;
        }
        match (self.partitions, self.expected_partitions) {
            (None, _) => {}
            (Some(partitions), Some(expected)) if partitions != expected => {
                write!(f, ", partitions {partitions}, expected {expected}")?;
            }
            (Some(partitions), _) => write!(f, ", partitions {partitions}")?,
        }
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, "; {reason}"))
    }
}

impl Display for Total {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = GraphOutcome::ALL.iter().map(|&outcome| (self.count(outcome), outcome.name()));
        let counts: Vec<String> =
            counts.filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
        let counts = if counts.is_empty() { "none".into() } else { counts.join(", ") };
        let (expected, had) = (self.partitions_expected, self.partitions_as_expected);
        write!(f, "graphs {}: {counts}; partitions as expected in {had} of {expected}", self.graphs)
    }
}
