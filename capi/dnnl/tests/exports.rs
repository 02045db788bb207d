//! libdnnl.so.3 shows two things to the loader: its name, and functions of oneDNN alone.
//!
//! `STERNA_REWRITE=1` writes the list.
#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

/// Every function that clients may call, one a line.
const FUNCTIONS: &str = include_str!("data/exports.txt");

#[test]
fn functions_of_onednn_are_exported_and_nothing_else() {
    let library = support::laid_out("exports").join("libdnnl.so.3");
    let symbols = support::succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    if std::env::var_os("STERNA_REWRITE").is_some() {
        let list: String = exported.iter().map(|name| format!("{name}\n")).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/exports.txt");
        return std::fs::write(path, list).expect("the list can be written");
    }
    let expected: BTreeSet<&str> = FUNCTIONS.lines().collect();
    let missing: Vec<_> = expected.difference(&exported).collect();
    let strangers: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty() && strangers.is_empty(), "missing: {missing:?}\nstrangers: {strangers:?}");
}

#[test]
fn the_loader_knows_it_as_libdnnl_3() {
    let folder = support::laid_out("soname");
    let dynamic = support::succeed(Command::new("readelf").arg("-d").arg(folder.join("libdnnl.so.3")));
    let soname = dynamic.lines().find(|line| line.contains("SONAME")).unwrap_or("none");
    assert!(soname.contains("[libdnnl.so.3]"), "soname: {soname}");
    let link = std::fs::read_link(folder.join("libdnnl.so")).expect("libdnnl.so is a link");
    assert_eq!(link.to_str(), Some("libdnnl.so.3"));
}

#[test]
fn laying_out_says_what_is_wrong() {
    let tool = || Command::new(env!("CARGO_BIN_EXE_sterna-dnnl"));
    let file = support::folder("lay-out").join("file");
    std::fs::write(&file, "").expect("a file can be written");
    let rows = [
        ("no folder", support::run(&mut tool()), "usage: sterna-dnnl DIR"),
        ("two folders", support::run(tool().args(["a", "b"])), "usage: sterna-dnnl DIR"),
        ("a file", support::run(tool().arg(&file)), "file: "),
    ];
    let mut faults = Vec::new();
    for (what, output, expected) in rows {
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !said.contains(expected) {
            faults.push(format!("{what}: {}, {said}", output.status));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
