//! Promise: the guide's tables of layers and nodes name those that are mapped, and its example is the one
//! that the tests run.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::report;
use sterna_import::{onnx, openvino};

fn project(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The faults of the table of a page: the first cells of its rows name each type of `known` once.
fn differences(page: &str, head: &str, known: BTreeSet<&str>) -> Vec<String> {
    let page = project(page);
    let table = page.split(&format!("{head}\n|---|---|---|\n")).nth(1).expect("there is the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    let listed: Vec<&str> = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let named: BTreeSet<&str> = listed.iter().copied().collect();
    let mut wrong: Vec<String> = known.symmetric_difference(&named).map(|name| (*name).into()).collect();
    if listed.len() != named.len() {
        wrong.push("a type is listed twice".into());
    }
    wrong
}

#[test]
fn the_tables_of_types_are_whole() {
    let layers = openvino::layer_types().collect();
    let mut wrong = differences("docs/guide/openvino.md", "| layer | types | becomes |", layers);
    let nodes = onnx::op_types().collect();
    wrong.extend(differences("docs/guide/onnx.md", "| node | types | becomes |", nodes));
    report(&wrong);
}

#[test]
fn the_example_is_the_one_of_the_tests() {
    assert!(project("docs/guide/openvino.md").contains(&project("import/tests/data/select_layer.xml")));
}
