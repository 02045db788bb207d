//! The command line of Sterna: `sterna run` partitions, compiles, executes and checks a graph; `sterna ops` prints
//! what ops must look like.

mod args;
mod check;
mod fill;
mod held;
mod npy;
mod ops;
mod report;
mod run;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command, RunArgs};

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

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Run(args) => run(&args),
        Command::Ops { kind } => ops(kind.as_deref()),
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
    Ok(if report.failures.is_empty() { 0 } else { FAILED })
}

fn ops(kind: Option<&str>) -> Result<u8, Ending> {
    let text = match kind {
        None => ops::table(),
        Some(name) => ops::detail(name).map_err(Ending::usage)?,
    };
    print(&text)?;
    Ok(0)
}

/// Prints to standard output. Whoever closes it early has read enough, which is no error.
fn print(text: &str) -> Result<(), Ending> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Ending::failed(anyhow::anyhow!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints to standard error; where nobody reads it, there is nobody to tell.
fn say(what: &str, text: impl Display) {
    let _ = writeln!(io::stderr(), "{what}: {text}");
}
