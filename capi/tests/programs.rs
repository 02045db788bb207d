//! Promise: C programs do what they say, the examples among them; under every compiler and tool at hand.
//!
//! A plain run takes the machine's C compiler. With `STERNA_TEST_TOOLS=1`, which `.ci/run` sets, gcc and clang,
//! valgrind and AddressSanitizer are run as well, and it is an error if one is missing.

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{VALGRIND, compile_with, library_folder, report, say_skipped, scratch_folder, succeeded};

/// The programs of a folder of this package, by name.
fn programs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(&folder).expect("the folder can be read");
    let mut programs: Vec<PathBuf> = files.map(|file| file.expect("the folder can be read").path()).collect();
    programs.retain(|file| file.extension() == Some(OsStr::new("c")));
    programs.sort();
    assert!(!programs.is_empty(), "{} holds no program", folder.display());
    programs
}

fn all_programs() -> Vec<PathBuf> {
    [programs("examples"), programs("tests/c")].concat()
}

fn name(program: &Path) -> &str {
    program.file_stem().and_then(OsStr::to_str).expect("programs have names")
}

/// Compiles a program and runs it under a tool; with no tool, by itself.
fn run(
    program: &Path,
    folder: &Path,
    compiler: &OsStr,
    flags: &[&str],
    tool: &[&str],
) -> Result<String, String> {
    let file = folder.join(name(program));
    compile_with(compiler, program, &file, flags)?;
    let mut command = match tool {
        [] => Command::new(&file),
        [tool, arguments @ ..] => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(&file);
            command
        }
    };
    command.arg(library_folder().join("libsterna_capi.so")).current_dir(folder);
    for name in ["STERNA_VERBOSE", "ONEDNN_VERBOSE", "STERNA_GRAPH_DUMP", "ONEDNN_GRAPH_DUMP"] {
        command.env_remove(name);
    }
    let output = succeeded(&mut command)?;
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

#[test]
fn programs_do_what_they_say() {
    let folder = scratch_folder("programs");
    let wrong: Vec<_> = all_programs()
        .iter()
        .filter_map(|program| run(program, &folder, &common::compiler(), &[], &[]).err())
        .collect();
    report(&wrong);
}

#[test]
fn examples_print_what_their_sources_say() {
    let folder = scratch_folder("examples");
    let expected = [
        ("mask_scores", (0..4).map(mask_scores_line).collect::<String>()),
        ("select", "1 -1 3\n4 -1 6\n".to_owned()),
    ];
    let mut wrong = Vec::new();
    for (program, (expected_name, expected)) in programs("examples").iter().zip(expected) {
        let found = run(program, &folder, &common::compiler(), &[], &[]);
        if name(program) != expected_name || found.as_deref() != Ok(&expected) {
            wrong.push((name(program).to_owned(), found, expected));
        }
    }
    report(&wrong);
}

/// The example in the README is that of the file, without its checks.
#[test]
fn the_readme_shows_the_example() {
    let readme = std::fs::read_to_string(common::repository().join("README.md")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/select.c");
    let example = std::fs::read_to_string(example).unwrap().replace("CHECK(", "").replace("));", ");");
    let lines: Vec<&str> = example.lines().map(str::trim).collect();
    let shown = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let wrong: Vec<&str> =
        shown.lines().map(str::trim).filter(|line| !line.is_empty() && !lines.contains(line)).collect();
    report(&wrong);
}

/// Counts what a causal mask and one of a length leave of the scores.
fn mask_scores_line(entry: usize) -> String {
    let words = 40 - 7 * entry;
    let kept: usize = (0..40).map(|row| (row + 1).min(words)).sum();
    format!("entry {entry} keeps {} scores of {}\n", 3 * kept, 3 * 40 * 40)
}

// One test for each compiler, so that they run side by side.
#[test]
fn programs_of_gcc_pass_every_tool() {
    pass_every_tool("gcc");
}

#[test]
fn programs_of_clang_pass_every_tool() {
    pass_every_tool("clang");
}

fn pass_every_tool(compiler: &str) {
    if std::env::var_os("STERNA_TEST_TOOLS").is_none() {
        say_skipped(&format!("{compiler}, valgrind and AddressSanitizer; STERNA_TEST_TOOLS=1 runs them"));
        return;
    }
    const SANITIZE: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    /// Programs that leave workers behind, or fork while they live, on purpose.
    const LEAVE_THREADS: &[&str] = &["exit", "fork", "unload"];
    let folder = scratch_folder(&format!("tools-{compiler}"));
    let mut wrong = Vec::new();
    for program in all_programs() {
        let tidy = !LEAVE_THREADS.contains(&name(&program));
        let mut try_out = |flags: &[&str], tool: &[&str]| {
            wrong.extend(run(&program, &folder, OsStr::new(compiler), flags, tool).err());
        };
        try_out(&[], &[]);
        try_out(&["-O3"], &[]);
        if tidy {
            try_out(SANITIZE, &[]);
            // As much of the debug information as valgrind reads. It knows no AVX-512.
            for level in ["portable", "avx2"] {
                let level = format!("STERNA_MAX_CPU_ISA={level}");
                try_out(&["-gdwarf-4"], &[&["env", &level], VALGRIND].concat());
            }
        }
    }
    report(&wrong);
}
