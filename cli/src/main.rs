//! The command line of Sterna: `sterna run` partitions, compiles, executes and checks a graph; `sterna
//! inspect` shows its partitions and plans; `sterna bench` measures how fast partitions run; `sterna batch`
//! runs what batch files list; `sterna convert` writes models as graphs; `sterna ops` prints the schema.

mod args;
mod batch;
mod bench;
mod brief;
mod check;
mod command_error;
mod convert;
mod edit;
mod endings;
mod expect;
mod fill;
mod form;
mod given;
mod host;
mod inline;
mod inspect;
mod latency;
mod manual;
mod minibatch;
mod named;
mod names;
mod needed;
mod npy;
mod npz;
mod ops;
mod parse;
mod progress;
mod report;
mod request;
mod roles;
mod room;
mod run;
mod shapes;
mod source;
mod statistics;
mod synonyms;
mod terminal;
mod timing;
mod trace;
mod usage;
mod whole;
mod words;

use std::process::ExitCode;

use sterna::environment;

use self::args::{Command, RunArgs};
use self::command_error::{CommandError, FAILED, FINE, USAGE};
use self::convert::ConvertArgs;
use self::form::Form;
use self::inspect::InspectArgs;
use self::terminal::{print, say, write};

fn main() -> ExitCode {
    let args = brief::parsed().unwrap_or_else(|error| usage::explained(error).exit());
    let is_told = !matches!(args.command, Command::Completions { .. } | Command::Man { .. });
    let faults = if is_told { environment::faults() } else { Vec::new() };
    if !faults.is_empty() {
        faults.iter().for_each(|fault| say("error", fault));
        return ExitCode::from(USAGE);
    }
    let ended = match args.command {
        Command::Run(args) => run(&args),
        Command::Inspect(args) => inspect(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Batch(args) => batch::batch(&args),
        Command::Convert(args) => convert(&args),
        Command::Ops { kind } => ops(kind.as_deref()),
        Command::Completions { shell } => print(&manual::completions(shell)),
        Command::Man { dir: None } => manual::page().and_then(|page| print(&page)),
        Command::Man { dir: Some(dir) } => manual::write_pages(&dir),
    };
    ExitCode::from(match ended {
        Ok(code) => code,
        Err(CommandError::Failed(error)) => {
            say("error", format!("{error:#}"));
            FAILED
        }
        Err(CommandError::Usage(error)) => {
            say("error", format!("{error:#}"));
            USAGE
        }
    })
}

fn run(args: &RunArgs) -> Result<u8, CommandError> {
    let report = run::run(args)?;
    match args.form.form() {
        // Its partitions are printed already.
        Form::Text => print(&report.ending())?,
        form => print(&report.text(form).map_err(CommandError::failed)?)?,
    };
    report.notes.iter().for_each(|note| say("note", note));
    report.failures.iter().for_each(|failure| say("error", failure));
    Ok(if report.failures.is_empty() { FINE } else { FAILED })
}

fn inspect(args: &InspectArgs) -> Result<u8, CommandError> {
    let shown = inspect::inspect(args)?;
    match &args.output {
        None => print(&shown.text)?,
        Some(path) => write(path, &shown.text)?,
    };
    shown.notes.iter().for_each(|note| say("note", note));
    shown.failures.iter().for_each(|failure| say("error", failure));
    Ok(if shown.failures.is_empty() { FINE } else { FAILED })
}

fn convert(args: &ConvertArgs) -> Result<u8, CommandError> {
    let converted = convert::convert(args)?;
    match &args.output {
        None => print(&converted.text)?,
        Some(path) => write(path, &converted.text)?,
    };
    converted.notes.iter().for_each(|note| say("note", note));
    Ok(FINE)
}

fn ops(kind: Option<&str>) -> Result<u8, CommandError> {
    let text = match kind {
        None => ops::table(),
        Some(name) => {
            let detail = ops::detail(name).map_err(CommandError::usage)?;
            detail.note.iter().for_each(|note| say("note", note));
            detail.text
        }
    };
    print(&text)
}
