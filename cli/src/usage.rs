//! Options that do not exist here: what users of other tools may mean by them.

use std::env;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::args::Args;

/// Options of other tools.
struct Elsewhere {
    /// As benchdnn, trtexec, onnxruntime_perf_test and OpenVINO's benchmark_app call them, without dashes.
    names: &'static [&'static str],
    /// The options here; the first that the command has is meant.
    here: &'static [&'static str],
    /// Advice if no option here does it.
    instead: &'static str,
}

const fn called(names: &'static [&'static str], here: &'static [&'static str]) -> Elsewhere {
    Elsewhere { names, here, instead: "" }
}

const fn without(names: &'static [&'static str], instead: &'static str) -> Elsewhere {
    Elsewhere { names, here: &[], instead }
}

const ELSEWHERE: &[Elsewhere] = &[
    called(&["b", "batch", "batch-size", "batchsize"], &["mb"]),
    called(
        &[
            "count",
            "fix-times-per-prb",
            "iter",
            "iterations",
            "iters",
            "loops",
            "niter",
            "repeats",
            "repetitions",
            "runs",
            "r",
        ],
        &["repeat", "time"],
    ),
    called(&["duration", "max-ms-per-prb", "seconds"], &["time", "repeat"]),
    called(
        &[
            "data-shape",
            "in-shapes",
            "input-shape",
            "input-shapes",
            "maxShapes",
            "optShapes",
            "shapes",
            "size",
        ],
        &["shape"],
    ),
    called(&["data-type", "dt", "dtype", "infer-precision", "inputIOFormats", "ip", "precision"], &["type"]),
    called(&["intra-op-num-threads", "j", "jobs", "nthreads", "num-threads", "x"], &["threads"]),
    called(&["attr-fpmath", "fp-math", "math-mode"], &["fpmath"]),
    called(&["data", "feed", "i", "inputs", "load-inputs", "loadInputs"], &["input"]),
    called(&["exportOutput", "out", "output-file", "outputs", "save-output"], &["output", "save"]),
    called(&["exportTimes", "report", "report-folder"], &["save", "format"]),
    called(&["init", "fill-value"], &["fill"]),
    called(&["attr", "attrs", "op-attrs"], &["attr"]),
    called(&["tensor-property"], &["property"]),
    called(&["compare", "correctness", "mode", "validate", "verify"], &["check"]),
    called(&["baseline", "compare-to"], &["against"]),
    called(&["random-seed"], &["seed"]),
    called(&["output-format"], &["format"]),
    called(&["infer-requests", "nireq", "nstreams", "num-streams"], &["streams"]),
    called(&["absolute-tolerance", "tolerance"], &["atol"]),
    called(&["relative-tolerance"], &["rtol"]),
    called(&["load-outputs", "reference", "ref", "golden"], &["expect"]),
    called(&["dumpProfile", "enable-profiling", "exportProfile", "pc", "report-type", "trace"], &["profile"]),
    // Options that other commands have, or that one may have.
    called(&["against", "check", "fill", "filter", "format", "json", "repeat", "save", "seed", "time"], &[]),
    without(
        &["d", "device", "e", "engine", "ep", "execution-provider", "provider"],
        "Sterna runs on the CPU alone; leave the option out",
    ),
    without(
        &["case", "graph", "m", "model", "network", "onnx", "path"],
        "the graph has no option before it: `sterna run GRAPH`",
    ),
    without(
        &["warm-up", "warmup", "warmup-iterations"],
        "the first executions are warm-up and are not timed; leave the option out",
    ),
    without(
        &["debug", "log-level", "v", "verbose"],
        "`sterna inspect` shows what is fused, its plan, and why neighbours are apart; leave the option out",
    ),
    without(
        &["api", "hint"],
        "executions follow each other, each on all --threads; leave the option out, or see --streams",
    ),
];

/// Adds to an error about an option that does not exist what may be meant, and takes away what clap guesses.
pub(crate) fn explained(mut error: Error) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return error };
    let argument = whole(argument);
    let mut command = Args::command();
    command.build();
    let invoked = env::args_os().find_map(|word| command.find_subcommand(&word));
    let Some(invoked) = invoked.filter(|_| argument.starts_with('-')) else { return error };
    let given = argument.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned();
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    // clap shows the option that it guesses there too.
    error.insert(ContextKind::Usage, ContextValue::StyledStr(invoked.clone().render_usage()));
    let tip = tip(&given, invoked, &command);
    let shown = &argument[..argument.find('=').unwrap_or(argument.len())];
    error.insert(ContextKind::InvalidArg, ContextValue::String(shown.into()));
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// The argument as it was typed: of several letters behind one dash, clap names the first.
fn whole(argument: &str) -> String {
    let is_letter = argument.len() == 2 && !argument.starts_with("--");
    let typed = env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut whole = typed.filter(|word| is_letter && word.starts_with(argument) && !word.starts_with("--"));
    whole.next().unwrap_or_else(|| argument.to_owned())
}

/// The long options of a command, as they are shown.
fn options(command: &clap::Command) -> impl Iterator<Item = &str> {
    let all = command.get_arguments().filter_map(|argument| argument.get_long_and_visible_aliases());
    all.flatten().filter(|name| *name != "help")
}

/// The likely sense of an option that a command lacks.
fn tip(given: &str, invoked: &clap::Command, command: &clap::Command) -> Option<String> {
    let has = |command: &clap::Command, wanted: &str| options(command).any(|name| name == wanted);
    let same = |name: &&str| name.eq_ignore_ascii_case(&given.replace('_', "-"));
    if let Some(row) = ELSEWHERE.iter().find(|row| row.names.iter().any(&same)) {
        if !row.instead.is_empty() {
            return Some(row.instead.into());
        }
        if let Some(here) = row.here.iter().find(|here| has(invoked, here)) {
            return Some(format!("it is called `--{here}` here"));
        }
        let others = || command.get_subcommands().filter(|other| other.get_name() != invoked.get_name());
        let of_others = |wanted: &str| {
            let other = others().find(|other| has(other, wanted))?;
            Some(format!(
                "`sterna {}` has `--{wanted}`; `sterna {}` does not",
                other.get_name(),
                invoked.get_name()
            ))
        };
        return row.here.iter().copied().chain([given]).find_map(of_others);
    }
    let near = sterna::nearest_name(given, options(invoked));
    near.map(|near| format!("did you mean `--{near}`?"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn options_of_other_tools_lead_to_options_that_are_there() {
        let mut command = Args::command();
        command.build();
        let mut seen = BTreeSet::new();
        let mut wrong: Vec<&str> = Vec::new();
        for row in ELSEWHERE {
            wrong.extend(row.names.iter().filter(|name| !seen.insert(name.to_lowercase())));
            let is_there = |wanted: &&&str| {
                command.get_subcommands().any(|command| options(command).any(|name| name == **wanted))
            };
            wrong.extend(row.here.iter().filter(|wanted| !is_there(wanted)));
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
