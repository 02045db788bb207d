//! Promise: the guide's table of layers names those that are mapped, and its example is the one that the
//! tests run.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::report;
use sterna_import::openvino;

fn project(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_table_of_layers_is_whole() {
    let page = project("docs/guide/openvino.md");
    let table =
        page.split("| layer | types | becomes |\n|---|---|---|\n").nth(1).expect("there is the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    let listed: Vec<&str> = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let (known, named): (BTreeSet<&str>, BTreeSet<&str>) =
        (openvino::layer_types().collect(), listed.iter().copied().collect());
    let mut wrong: Vec<String> = known.symmetric_difference(&named).map(|name| (*name).into()).collect();
    if listed.len() != named.len() {
        wrong.push("a layer is listed twice".into());
    }
    report(&wrong);
}

#[test]
fn the_example_is_the_one_of_the_tests() {
    assert!(project("docs/guide/openvino.md").contains(&project("import/tests/data/select_layer.xml")));
}
