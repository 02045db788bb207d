//! Promise: environment variables set verbose lines, dumps and threads of the stand-in. The client,
//! `small.c`, needs no header.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// Builds the small client against the stand-in; answers with the program and the folder of the library.
fn small(name: &str) -> (PathBuf, PathBuf) {
    let libraries = support::laid_out(name);
    let program = libraries.join("small");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/small.c");
    let strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    support::succeed(
        support::compiler("CC", "cc")
            .args(strict)
            .arg(source)
            .arg(support::search(&libraries))
            .args(["-ldnnl", "-o"])
            .arg(&program),
    );
    (program, libraries)
}

/// The program, run in a folder of its own.
fn in_folder(program: &Path, libraries: &Path, folder: &str) -> Command {
    let folder = libraries.join(folder);
    fs::create_dir_all(&folder).expect("a folder can be made");
    let mut command = support::program(program, libraries);
    command.current_dir(folder);
    command
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_client_without_headers_runs() {
    let (program, libraries) = small("plain");
    let said = support::succeed(&mut in_folder(&program, &libraries, "run"));
    let lines: Vec<_> = said.lines().collect();
    let [version, result] = lines[..] else { panic!("two lines, and no verbose ones:\n{said}") };
    assert!(version.starts_with("version 3.13.0 "), "{version}");
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "the hash holds Sterna's version: {version}");
    assert_eq!(result, "result 1 -2 -3 4");
    assert_eq!(files(&libraries.join("run")), [""; 0], "nothing is dumped unasked");
}

#[test]
fn verbose_is_one_line_a_compile_and_execute() {
    let (program, libraries) = small("verbose");
    let rows = [("0", 0, 0), ("none", 0, 0), ("1", 1, 1), ("2", 1, 1), ("profile_exec", 1, 1)];
    let mut faults = Vec::new();
    for (level, compiles, executes) in rows {
        let said = support::succeed(in_folder(&program, &libraries, "run").env("ONEDNN_VERBOSE", level));
        let count = |what: &str| said.lines().filter(|line| line.starts_with(what)).count();
        let found = (count("sterna_verbose,graph,compile,cpu,"), count("sterna_verbose,graph,execute,cpu,"));
        if found != (compiles, executes) {
            faults.push(format!("level {level:?}: {found:?} lines of compile and exec:\n{said}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn dumps_go_to_the_working_directory() {
    let (program, libraries) = small("dumps");
    let rows: [(&str, &[&str]); 5] = [
        ("graph", &["graph-N-partitioning.json", "graph-N.json"]),
        ("subgraph", &["graph-N-N.json"]),
        ("graph,subgraph", &["graph-N-N.json", "graph-N-partitioning.json", "graph-N.json"]),
        ("none", &[]),
        ("nonsense", &[]),
    ];
    let mut faults = Vec::new();
    for (modes, expected) in rows {
        support::succeed(in_folder(&program, &libraries, modes).env("ONEDNN_GRAPH_DUMP", modes));
        let folder = libraries.join(modes);
        let mut shapes: Vec<_> = files(&folder).iter().map(|name| numbers_as_n(name)).collect();
        shapes.sort();
        if shapes != expected {
            faults.push(format!("{modes}: {shapes:?}"));
        }
        for name in files(&folder) {
            let json = fs::read_to_string(folder.join(&name)).expect("a dump is text");
            let ops = match sterna::Graph::from_json(&json) {
                Err(error) => {
                    faults.push(format!("{modes}: {name}: {error}"));
                    continue;
                }
                Ok(graph) => graph.ops().len(),
            };
            let is_subgraph = numbers_as_n(&name) == "graph-N-N.json";
            if ops != if is_subgraph { 1 } else { 2 } {
                faults.push(format!("{modes}: {name}: {ops} ops"));
            }
            let value: serde_json::Value = serde_json::from_str(&json).expect("a graph was read from it");
            if value["version"] != "3.13.0" || value["engine_kind"] != "cpu" {
                faults.push(format!("{modes}: {name}: version or engine kind"));
            }
            let attrs = &value["graph"][0]["attrs"];
            let told = attrs["partition_id"]["value"].is_string() && attrs["backend"]["value"].is_string();
            if told != name.contains("partitioning") {
                faults.push(format!("{modes}: {name}: attributes {attrs}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_call_sets_what_the_environment_sets() {
    let (program, libraries) = small("late");
    let said = support::succeed(in_folder(&program, &libraries, "run").arg("late"));
    assert!(said.contains("sterna_verbose,graph,execute,cpu,"), "{said}");
    let mut shapes: Vec<_> = files(&libraries.join("run")).iter().map(|name| numbers_as_n(name)).collect();
    shapes.sort();
    assert_eq!(shapes, ["graph-N-N.json", "graph-N-partitioning.json", "graph-N.json"]);
}

/// The text with each number written as `N`.
fn numbers_as_n(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('N') => {}
            '0'..='9' => out.push('N'),
            _ => out.push(c),
        }
    }
    out
}
