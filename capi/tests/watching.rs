//! Promise: environment variables, or calls, make the library say what it compiles and executes, and write
//! the graphs that it is given to files that can be read again; without them it does neither.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{compile_with, report, scratch_folder, succeeded};
use sterna::{Attr, AttrValue, Graph};

/// Environment variables with their values.
type Variables = &'static [(&'static str, &'static str)];

/// Runs the example of two graphs in an empty folder, under the variables given; says what it printed.
fn run(name: &str, variables: Variables) -> (PathBuf, String) {
    let folder = scratch_folder(name);
    let binary = folder.join("mask_scores");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mask_scores.c");
    compile_with(&common::compiler(), &source, &binary, &[]).unwrap();
    let mut command = Command::new(&binary);
    command.current_dir(&folder);
    for name in ["STERNA_VERBOSE", "ONEDNN_VERBOSE", "STERNA_GRAPH_DUMP", "ONEDNN_GRAPH_DUMP"] {
        command.env_remove(name);
    }
    let output = succeeded(command.envs(variables.iter().copied())).unwrap();
    fs::remove_file(binary).unwrap();
    (folder, String::from_utf8(output.stdout).unwrap())
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn variables_decide_what_is_said() {
    let rows: &[(&str, Variables, usize)] = &[
        ("verbose-none", &[], 0),
        ("verbose-own", &[("STERNA_VERBOSE", "1")], 10),
        ("verbose-onednn", &[("ONEDNN_VERBOSE", "2")], 10),
        ("verbose-word", &[("ONEDNN_VERBOSE", "profile_exec")], 10),
        ("verbose-off", &[("STERNA_VERBOSE", "0"), ("ONEDNN_VERBOSE", "1")], 0),
    ];
    let mut wrong = Vec::new();
    for (name, variables, expected) in rows {
        let (_, printed) = run(name, variables);
        let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("sterna_verbose,")).collect();
        // Two graphs are compiled; four threads execute each.
        let executed = lines.iter().filter(|line| line.contains(",execute,cpu,0,Select,")).count();
        if lines.len() != *expected || executed != expected / 10 * 8 {
            wrong.push((*name, lines.len(), executed, printed));
        }
    }
    report(&wrong);
}

#[test]
fn variables_decide_what_is_written() {
    let graphs = ["graph-0-partitioning.json", "graph-0.json", "graph-1-partitioning.json", "graph-1.json"];
    let rows: &[(&str, Variables, &[&str], usize)] = &[
        ("dump-none", &[], &[], 0),
        ("dump-graph", &[("ONEDNN_GRAPH_DUMP", "graph")], &graphs, 0),
        ("dump-subgraph", &[("STERNA_GRAPH_DUMP", "subgraph")], &[], 2),
        ("dump-both", &[("ONEDNN_GRAPH_DUMP", "graph,subgraph")], &graphs, 2),
        ("dump-own", &[("STERNA_GRAPH_DUMP", "none"), ("ONEDNN_GRAPH_DUMP", "graph")], &[], 0),
    ];
    let mut wrong = Vec::new();
    for (name, variables, expected, subgraphs) in rows {
        let (folder, _) = run(name, variables);
        let found = files(&folder);
        let graphs: Vec<&str> =
            found.iter().map(String::as_str).filter(|file| graphs.contains(file)).collect();
        if graphs != *expected || found.len() - graphs.len() != *subgraphs {
            wrong.push(format!("{name}: {found:?}"));
        }
        for file in &found {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            // The attributes added to a partitioning are for people, and none that an op has.
            let is_partitioning = file.ends_with("-partitioning.json");
            if is_partitioning && !(text.contains("\"partition_id\"") && text.contains("\"backend\"")) {
                wrong.push(format!("{name}: {file} names no partitions"));
            }
            if !is_partitioning {
                match Graph::from_json(&text) {
                    Err(error) => wrong.push(format!("{name}: {file}: {error}")),
                    Ok(graph) => {
                        let mode = graph.ops()[0].get_attr(Attr::AutoBroadcast);
                        let ranks: Vec<_> =
                            graph.ops()[0].inputs().iter().map(|input| input.rank()).collect();
                        if mode != Some(&AttrValue::from("numpy")) || ranks != [Some(4), Some(4), Some(0)] {
                            wrong.push(format!("{name}: {file} is another graph"));
                        }
                    }
                }
            }
        }
    }
    report(&wrong);
}
