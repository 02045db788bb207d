//! Helpers of the tests of the stand-in: the library laid out, compilers, programs run on it.
#![allow(dead_code, reason = "each test uses its part")]

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, io};

/// A folder of this name for the files of a test, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old folder can go");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// A folder of this name with the stand-in, laid out by the command that users run.
pub(crate) fn laid_out(name: &str) -> PathBuf {
    let folder = folder(name);
    let output = succeed(Command::new(env!("CARGO_BIN_EXE_sterna-dnnl")).arg(&folder));
    assert!(output.contains("libdnnl.so.3"), "the command says what it wrote: {output}");
    folder
}

/// The words of a variable such as CC, or the default.
pub(crate) fn compiler(variable: &str, default: &str) -> Command {
    let words = env::var(variable).unwrap_or_else(|_| default.into());
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(default));
    command.args(words);
    command
}

/// A program that takes its libraries from a folder.
pub(crate) fn program(path: &Path, libraries: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", libraries);
    for variable in ["ONEDNN_VERBOSE", "STERNA_VERBOSE", "ONEDNN_GRAPH_DUMP", "STERNA_GRAPH_DUMP"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command to its successful end; answers with what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Says that a test did not run, past the capture of the test harness.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(io::stderr(), "SKIPPED {test}: {why}").expect("stderr can be written");
}

/// `-L folder`, as one word.
pub(crate) fn search(folder: &Path) -> OsString {
    let mut word = OsString::from("-L");
    word.push(folder);
    word
}
