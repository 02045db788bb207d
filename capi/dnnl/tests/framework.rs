//! Promise: a client that is built as the README says, against oneDNN's headers without SYCL and TBB, takes
//! its numbers through memory objects and reorders to graphs and back, and is told which primitives are not
//! there.
//!
//! `STERNA_ONEDNN` names a folder with `include` (the package `onednn-devel` on PyPI).
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn a_client_built_as_the_readme_says_runs() {
    let test = "a_client_built_as_the_readme_says_runs";
    let Some(onednn) = env::var_os("STERNA_ONEDNN") else {
        return support::skipped(test, "STERNA_ONEDNN names no folder");
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(here.join("README.md")).expect("the README is text");
    let (_, section) = readme.split_once("## Building a client").expect("the README has the section");
    let (section, _) = section.split_once("## ").expect("a section follows");
    let commands: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let ["cargo dnnl DIR", build, run] = commands[..] else { panic!("three commands: {commands:?}") };

    let folder = support::laid_out("framework");
    fs::copy(here.join("tests/framework.cpp"), folder.join("client.cpp")).expect("the client can be copied");
    let shell = |command: &str| {
        let command = command.replace("DIR", ".").replace("ONEDNN", "$STERNA_ONEDNN");
        let mut shell = Command::new("sh");
        shell.args(["-euc", &command]).current_dir(&folder).env("STERNA_ONEDNN", &onednn);
        shell.env("ONEDNN_VERBOSE", "1");
        shell
    };
    support::succeed(&mut shell(build));
    let said = support::succeed(&mut shell(run));
    let answers: Vec<_> = said.lines().filter(|line| !line.starts_with("sterna_verbose,")).collect();
    assert_eq!(answers.last(), Some(&"0 faults"), "{said}");
    assert_eq!(answers.iter().filter(|line| line.ends_with(": right")).count(), 13 + 100 + 2, "{said}");
    assert_eq!(answers.iter().filter(|line| **line == "a primitive: unimplemented").count(), 2, "{said}");
    let refused = "sterna_verbose,primitive,unimplemented,cpu,dnnl_matmul_primitive_desc_create";
    assert_eq!(
        said.lines().filter(|line| *line == refused).count(),
        1,
        "once, however often it is asked: {said}"
    );
}
