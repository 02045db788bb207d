//! `sterna bench`: how fast partitions run, beside what plain copies of as many bytes, or as much arithmetic
//! in registers, take on the same machine.

pub(crate) mod args;
mod compare;
mod date;
mod limit;
mod machine;
mod measure;
mod plot;
mod progress;
mod record;
mod session;
mod streams;
mod suites;
mod table;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use self::args::BenchArgs;
use self::compare::{Comparison, RunComparison};
use self::machine::Machine;
use self::record::{Case, Run};
use self::session::{Ended, Session};
use self::suites::Subject;
use crate::command_error::{CommandError, FAILED, INTERRUPTED};
use crate::form::Form;
use crate::names::PortScope;
use crate::source::{GraphArgs, Loaded};
use crate::terminal::{can_be_written, print, say};

/// A quartile further off the median than this says that something else runs.
const UNSTEADY: f64 = 0.1;

/// The output of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    run: &'a Run,
    comparison: Option<&'a RunComparison>,
    notes: &'a [String],
}

/// Measures, compares, saves and draws as the arguments say, and returns the exit code.
pub(crate) fn bench(args: &BenchArgs) -> Result<u8, CommandError> {
    for path in [&args.save, &args.plot].into_iter().flatten() {
        can_be_written(path).map_err(CommandError::usage)?;
    }
    let mut before = args.against.as_deref().map(Run::read).transpose().map_err(CommandError::usage)?;
    if let Some(before) = &mut before {
        before.cases.retain(|case| args.wants(&case.name));
    }
    let loaded = args.load.as_deref().map(Run::read).transpose().map_err(CommandError::usage)?;
    if let (Some(before), true) = (&before, args.fail_if_slower) {
        let machine = loaded.as_ref().map_or_else(Machine::here, |run| run.machine.clone());
        is_of(before, &machine).map_err(CommandError::usage)?;
    }
    let ended = match loaded {
        Some(run) => only_wanted(run, args).map_err(CommandError::usage)?,
        None => {
            let (name, subjects) = subjects(args)?;
            let session = Session::new(args, &subjects)?;
            if args.list {
                print(&session.names().map(|name| format!("{name}\n")).collect::<String>())?;
                return Ok(0);
            }
            session.run(name)?
        }
    };
    report(args, before.as_ref(), &ended)
}

fn report(args: &BenchArgs, before: Option<&Run>, ended: &Ended) -> Result<u8, CommandError> {
    let Ended { run, notes, interrupted } = ended;
    let compared = match (before, interrupted) {
        (Some(before), false) => Some(RunComparison::of(before, run).map_err(CommandError::usage)?),
        _ => None,
    };
    let text = match args.form.form() {
        Form::Text => table::text(run, compared.as_ref()),
        Form::Json => {
            let document = Document { run, comparison: compared.as_ref(), notes };
            serde_json::to_string_pretty(&document).map_err(CommandError::failed)? + "\n"
        }
        Form::Csv => table::csv(run, compared.as_ref()),
        Form::Markdown => table::markdown(run, compared.as_ref()),
    };
    print(&text)?;
    let notes = notes.iter().chain(compared.iter().flat_map(|compared| &compared.notes));
    notes.for_each(|note| say("note", note));
    let is_unsteady = |case: &&Case| case.seconds.spread().iter().any(|part| part.abs() > UNSTEADY);
    let unsteady = run.cases.iter().filter(is_unsteady).count();
    if unsteady > 0 {
        let (all, percent) = (run.cases.len(), 100.0 * UNSTEADY);
        say(
            "note",
            format!(
                "{unsteady} of {all} cases have a quartile more than {percent} % off the median: something \
                 else runs"
            ),
        );
    }
    if *interrupted {
        say("note", "interrupted; nothing was saved, compared or drawn");
        return Ok(INTERRUPTED);
    }
    if let Some(path) = &args.save {
        run.save(path).map_err(CommandError::usage)?;
    }
    if let Some(path) = &args.plot {
        let svg = plot::svg(run).map_err(CommandError::failed)?;
        std::fs::write(path, svg)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(CommandError::usage)?;
    }
    let slower = compared.map_or(0, |compared| compared.count(Comparison::Slower));
    Ok(if args.fail_if_slower && slower > 0 { FAILED } else { 0 })
}

/// The subjects of the bench, and their name.
fn subjects(args: &BenchArgs) -> Result<(String, Vec<Subject>), CommandError> {
    match (&args.graph, args.suite) {
        (Some(path), _) => {
            let loaded = GraphArgs { graph: path.clone(), options: args.options.clone() }.load()?;
            let fills = loaded.resolve("--fill", &args.fill, PortScope::Both).map_err(CommandError::usage)?;
            loaded.notes.iter().for_each(|note| say("note", note));
            for input in loaded.graph.inputs() {
                loaded.in_memory(input).map_err(CommandError::usage)?;
            }
            let is_stdin = path == Path::new("-");
            let name = path.file_stem().filter(|_| !is_stdin).unwrap_or("stdin".as_ref());
            let name = name.to_string_lossy().into_owned();
            let given = loaded.given_values().map_err(CommandError::usage)?;
            let Loaded { graph, constants, .. } = loaded;
            let given = given.into_iter().map(|(id, value)| (id, value.into())).collect();
            let subject = Subject { name: name.clone(), graph, constants, given, fills, work: None };
            Ok((name, vec![subject]))
        }
        (None, Some(suite)) => Ok((format!("suite {}", suite.name()), suite.subjects()?)),
        (None, None) => Err(CommandError::usage(anyhow::anyhow!("name a graph, --suite or --load"))),
    }
}

/// A saved run with the cases that the filters take.
fn only_wanted(mut run: Run, args: &BenchArgs) -> Result<Ended> {
    run.cases.retain(|case| args.wants(&case.name));
    ensure!(!run.cases.is_empty(), "the saved run has no case that --filter takes");
    Ok(Ended { run, notes: Vec::new(), interrupted: false })
}

/// An error unless a saved run tells what is slower on this machine.
fn is_of(before: &Run, machine: &Machine) -> Result<()> {
    if before.machine == *machine {
        return Ok(());
    }
    bail!(
        "--fail-if-slower cannot judge by a run of another machine ({}, here {machine}); save one here, or \
         compare without it",
        before.machine
    )
}
