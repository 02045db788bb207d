//! Promise: a client that is compiled against the header that comes with the stand-in gets oneDNN's names of
//! numbers.
//!
//! With `STERNA_ONEDNN`, the client is compiled against oneDNN's headers as well, and reads the names
//! from oneDNN itself if its library is there. `STERNA_REWRITE=1` writes what the stand-in answers to
//! `tests/data/names.txt`.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::{env, fs};

const ANSWERS: &str = "tests/data/names.txt";

/// Names that Sterna has and oneDNN 3.13 has not: for its own types, and for one of oneDNN's that oneDNN
/// leaves out.
const OURS_ALONE: &[&str] = &[
    "dnnl_dt2str 0xf: f4_e3m0",
    "dnnl_dt2str 0x101: s16",
    "dnnl_dt2str 0x102: u16",
    "dnnl_dt2str 0x103: u32",
    "dnnl_dt2str 0x104: u64",
    "dnnl_f4_e3m0 is 0xf: f4_e3m0",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles the client, in C or in C++, against the headers in the folder of the stand-in and behind them in
/// another.
fn client(
    libraries: &Path,
    name: &str,
    (variable, compiler, flags): Language,
    behind: Option<&Path>,
) -> PathBuf {
    let program = libraries.join(name);
    let mut command = support::compiler(variable, compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(libraries.join("include"));
    if let Some(folder) = behind {
        command.arg("-isystem").arg(folder);
    }
    let source = here("tests/names.c");
    command
        .arg(source)
        .args(["-x", "none"])
        .arg(support::search(libraries))
        .args(["-ldnnl", "-o"])
        .arg(&program);
    support::succeed(&mut command);
    program
}

/// The variable that names a compiler, its default, and how it takes the client.
type Language = (&'static str, &'static str, &'static [&'static str]);
const C: Language = ("CC", "cc", &["-std=c99", "-Wpedantic"]);
const CPP: Language = ("CXX", "c++", &["-std=c++17", "-x", "c++"]);

#[test]
fn the_header_of_the_stand_in_gives_names() {
    let libraries = support::laid_out("names");
    let program = client(&libraries, "names", C, None);
    let said = support::succeed(&mut support::program(&program, &libraries));
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(here(ANSWERS), &said).expect("the answers can be written");
    }
    let expected = fs::read_to_string(here(ANSWERS)).expect("the answers are there");
    let (said, expected): (Vec<_>, Vec<_>) = (said.lines().collect(), expected.lines().collect());
    assert_eq!(said, expected);
    let some =
        ["dnnl_success is 0: success", "dnnl_f32 is 0x3: f32", "dnnl_status2str of none: unknown status"];
    let missing: Vec<_> = some.iter().filter(|line| !said.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // In C++ the very same.
    let program = client(&libraries, "names-cpp", CPP, None);
    let in_cpp = support::succeed(&mut support::program(&program, &libraries));
    assert_eq!(in_cpp.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_names_are_those_of_onednn() {
    let test = "the_names_are_those_of_onednn";
    let Some(upstream) = env::var_os("STERNA_ONEDNN").map(PathBuf::from) else {
        return support::skipped(test, "STERNA_ONEDNN names no folder");
    };
    let libraries = support::laid_out("names-of-onednn");
    let expected = fs::read_to_string(here(ANSWERS)).expect("the answers are there");
    // The stand-in's header with oneDNN's types.
    for (name, language) in [("beside", C), ("beside-cpp", CPP)] {
        let program = client(&libraries, name, language, Some(&upstream.join("include")));
        let said = support::succeed(&mut support::program(&program, &libraries));
        assert_eq!(said.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>(), "{name}");
    }
    let theirs = upstream.join("lib");
    if !theirs.join("libdnnl.so.3").exists() {
        return support::skipped(test, "STERNA_ONEDNN holds no lib/libdnnl.so.3");
    }
    let said = support::succeed(&mut support::program(&libraries.join("beside"), &theirs));
    let common = |line: &&str| !OURS_ALONE.contains(line);
    let ours: Vec<_> = expected.lines().filter(common).collect();
    let unknown = |line: &&str| !(line.contains(" is 0x") && line.ends_with(": unknown dt"));
    assert_eq!(said.lines().filter(unknown).collect::<Vec<_>>(), ours);
}
