//! Promise: the shared library exports the functions of the header, and nothing else.
//!
//! `STERNA_REWRITE=1 cargo test -p sterna-capi --test exports` writes the list.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{header_path, library_folder, prototypes, report, rewrite, succeeded};

fn exported() -> BTreeSet<String> {
    let library = library_folder().join("libsterna_capi.so");
    let output = succeeded(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn exports_equal_the_list() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/exports.txt");
    let exported = exported();
    if std::env::var_os("STERNA_REWRITE").is_some() {
        rewrite(&list, &exported.iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    let listed: BTreeSet<String> = fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    let differing: Vec<_> = exported.symmetric_difference(&listed).collect();
    report(&differing);
}

#[test]
fn exports_equal_the_header() {
    let header = fs::read_to_string(header_path()).unwrap();
    let declared: BTreeSet<String> =
        prototypes(&header).into_iter().map(|prototype| prototype.name).collect();
    assert!(declared.len() > 90, "the header declares more than {} functions", declared.len());
    let exported = exported();
    let differing: Vec<_> = exported.symmetric_difference(&declared).collect();
    report(&differing);
}
