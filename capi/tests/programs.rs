//! Promise: C programs do what they say, the examples among them; under every compiler and tool at hand.
//!
//! A plain run takes the machine's C compiler. With `STERNA_TEST_TOOLS=1`, which `.ci/run` sets, gcc and
//! clang, valgrind and AddressSanitizer are run as well, and it is an error if one is missing.

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
        (
            "attention",
            "prompts of 45 and 20 words, as 64\n\
             24 tokens more, on buckets of 64 96 keys, each compiled once\n"
                .to_owned(),
        ),
        ("custom_op", "1 0\n1 0 3 5 0 4\n".to_owned()),
        ("kv_cache", "1 tokens: 1\n2 tokens: 2\n3 tokens: 2\n3 tokens: 4\n".to_owned()),
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

/// The lines in the README are those of the files, without their checks, in their order.
#[test]
fn the_readme_shows_the_examples() {
    let readme = std::fs::read_to_string(common::repository().join("README.md")).unwrap();
    let mut wrong = Vec::new();
    for (language, file) in [("c", "examples/select.c"), ("cpp", "examples/select.cpp")] {
        let example = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let example = example.replace("CHECK(", "").replace("));", ");");
        let mut lines = example.lines().map(str::trim);
        let block =
            readme.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next());
        let shown: Vec<String> =
            block.unwrap_or_default().lines().map(|line| line.trim().replace("));", ");")).collect();
        wrong.extend(shown.iter().filter(|line| !lines.any(|own| own == line.as_str())).cloned());
        if shown.len() < 4 {
            wrong.push(format!("{language}: {} lines", shown.len()));
        }
    }
    report(&wrong);
}

/// Counts what a causal mask and one of a length leave of the scores.
fn mask_scores_line(entry: usize) -> String {
    let words = 40 - 7 * entry;
    let kept: usize = (0..40).map(|row| (row + 1).min(words)).sum();
    format!("entry {entry} keeps {} scores of {}\n", 3 * kept, 3 * 40 * 40)
}

// One test for each compiler and each level, so that they run side by side. Programs that are built without
// flags run above.
#[test]
fn programs_of_gcc_are_sane() {
    are_sane("gcc", &["-O3"], all_programs());
}

#[test]
fn programs_of_clang_are_sane() {
    let sanitized = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    are_sane("clang", sanitized, all_programs().into_iter().filter(|program| is_tidy(program)).collect());
}

#[test]
fn programs_are_clean_under_valgrind_at_level_portable() {
    are_clean_under_valgrind("portable");
}

#[test]
fn programs_are_clean_under_valgrind_at_level_avx2() {
    are_clean_under_valgrind("avx2");
}

/// True if other tools than the machine's compiler are requested.
fn tools_are_here() -> bool {
    let are_here = std::env::var_os("STERNA_TEST_TOOLS").is_some();
    if !are_here {
        say_skipped("gcc, clang, valgrind and AddressSanitizer; STERNA_TEST_TOOLS=1 runs them");
    }
    are_here
}

/// Programs that leave no workers behind, nor fork while they live, on purpose.
fn is_tidy(program: &Path) -> bool {
    !["exit", "fork", "unload"].contains(&name(program))
}

fn are_sane(compiler: &str, flags: &[&str], programs: Vec<PathBuf>) {
    if !tools_are_here() {
        return;
    }
    let folder = scratch_folder(&format!("tools-{compiler}"));
    let fault = |program: &PathBuf| run(program, &folder, OsStr::new(compiler), flags, &[]).err();
    report(&programs.iter().filter_map(fault).collect::<Vec<_>>());
}

/// valgrind knows no AVX-512.
fn are_clean_under_valgrind(level: &str) {
    if !tools_are_here() {
        return;
    }
    let folder = scratch_folder(&format!("valgrind-{level}"));
    let level = format!("STERNA_MAX_CPU_ISA={level}");
    let tool = [&["env", &level], VALGRIND].concat();
    let tidy = all_programs().into_iter().filter(|program| is_tidy(program));
    // As much of the debug information as valgrind reads.
    let wrong: Vec<_> = tidy
        .filter_map(|program| run(&program, &folder, &common::compiler(), &["-gdwarf-4"], &tool).err())
        .collect();
    report(&wrong);
}
