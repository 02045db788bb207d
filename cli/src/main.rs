//! The command line of Sterna: `sterna run` partitions, compiles, executes and checks a graph; `sterna inspect` shows
//! what becomes of it; `sterna bench` measures how fast partitions run; `sterna ops` prints what ops must look like.

mod args;
mod bench;
mod check;
mod fill;
mod held;
mod inspect;
mod manual;
mod npy;
mod ops;
mod report;
mod run;
mod source;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use clap::Parser;

use self::args::{Args, Command, RunArgs};
use self::inspect::InspectArgs;

/// How a command ends when it cannot do what was asked.
enum Ending {
    /// The graph, or something done with it, failed.
    Failed(anyhow::Error),
    /// The arguments, or a file that they name, cannot be used.
    Usage(anyhow::Error),
}

impl Ending {
    /// For errors whose cause is the graph.
    fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self::Failed(error.into())
    }

    /// For errors whose cause is the command line.
    fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }
}

const FINE: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Run(args) => run(&args),
        Command::Inspect(args) => inspect(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Ops { kind } => ops(kind.as_deref()),
        Command::Completions { shell } => print(&manual::completions(shell)),
        Command::Man { dir: None } => manual::page().and_then(|page| print(&page)),
        Command::Man { dir: Some(dir) } => manual::write_pages(&dir),
    };
    ExitCode::from(match ended {
        Ok(code) => code,
        Err(Ending::Failed(error)) => {
            say("error", format!("{error:#}"));
            FAILED
        }
        Err(Ending::Usage(error)) => {
            say("error", format!("{error:#}"));
            USAGE
        }
    })
}

fn run(args: &RunArgs) -> Result<u8, Ending> {
    let report = run::run(args)?;
    let text = if args.json { report.to_json().map_err(Ending::failed)? } else { report.to_string() };
    print(&text)?;
    report.notes.iter().for_each(|note| say("note", note));
    report.failures.iter().for_each(|failure| say("error", failure));
    Ok(if report.failures.is_empty() { FINE } else { FAILED })
}

fn inspect(args: &InspectArgs) -> Result<u8, Ending> {
    let shown = inspect::inspect(args)?;
    match &args.output {
        None => print(&shown.text)?,
        Some(path) => write(path, &shown.text)?,
    };
    shown.notes.iter().for_each(|note| say("note", note));
    shown.failures.iter().for_each(|failure| say("error", failure));
    Ok(if shown.failures.is_empty() { FINE } else { FAILED })
}

fn ops(kind: Option<&str>) -> Result<u8, Ending> {
    let text = match kind {
        None => ops::table(),
        Some(name) => ops::detail(name).map_err(Ending::usage)?,
    };
    print(&text)
}

/// Writes a file, without the colours of text for a terminal.
fn write(path: &Path, text: &str) -> Result<u8, Ending> {
    let text = anstream::adapter::strip_str(text).to_string();
    std::fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Ending::usage)?;
    Ok(FINE)
}

/// Prints to standard output, in colours where that is a terminal that wants them. Whoever closes it early has read enough, which is no error.
fn print(text: &str) -> Result<u8, Ending> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Ending::failed(anyhow::anyhow!("cannot write to standard output: {error}")))
        }
        _ => Ok(FINE),
    }
}

/// Prints to standard error, in colours where that is a terminal that wants them; where nobody reads it, there is nobody
/// to tell.
fn say(what: &str, text: impl Display) {
    let colour = if what == "error" { AnsiColor::Red } else { AnsiColor::Yellow };
    let style = Style::new().bold().fg_color(Some(colour.into()));
    let _ = writeln!(anstream::stderr(), "{style}{what}:{style:#} {text}");
}
