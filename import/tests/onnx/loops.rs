//! Loops and scans whose turns are known are written out.

use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, ints, node, of_graph, tensor, value};
use super::common::{as_floats, by_name, float, report};

/// A loop that adds a step to what it carries along, and gives what it had before each turn.
fn counting(turns: Option<i64>) -> Onnx {
    let nodes = [
        node("Identity", &["goes_on"], &["still"], &[]),
        node("Add", &["before", "step"], &["after"], &[]),
        node("Identity", &["before"], &["seen"], &[]),
    ];
    let names = |tag: u64, names: &[&str]| -> Vec<u8> {
        names.iter().flat_map(|name| field(tag, &field(1, name.as_bytes()))).collect()
    };
    let body = [
        nodes.iter().flat_map(|node| field(1, node)).collect(),
        names(11, &["turn", "goes_on", "before"]),
        names(12, &["still", "after", "seen"]),
    ]
    .concat();
    let mut model =
        Onnx::of(node("Loop", &["turns", "", "x"], &["y", "all"], &[of_graph("body", &body)]), &[2]);
    // The body alone uses the step.
    model.nodes.insert(0, node("Neg", &["half"], &["step"], &[]));
    model.constants.push(floats("half", &[], &[-0.5]));
    match turns {
        Some(turns) => model.constants.push(tensor("turns", 7, &[], &turns.to_le_bytes())),
        None => model.inputs.push(value("turns", 7, &[])),
    }
    model.outputs.push(field(1, b"all"));
    model
}

#[test]
fn loops_of_known_turns_are_written_out() {
    let imported = onnx::read(&counting(Some(3)).bytes()).unwrap();
    let results = by_name(&imported, &[("x", float(&[2], &[1.0, 4.0]))]);
    assert_eq!(as_floats(&results["y"]), [2.5, 5.5]);
    assert_eq!(results["all"].dims(), [3, 2]);
    assert_eq!(as_floats(&results["all"]), [1.0, 4.0, 1.5, 4.5, 2.0, 5.0]);
    let rows = [
        (counting(None), "input port 0 (`M`) is no constant"),
        (counting(Some(0)), "a turn, whose results have a shape"),
        (counting(Some(i64::MAX)), "100000"),
    ];
    let mut wrong = Vec::new();
    for (model, expected) in rows {
        match onnx::read(&model.bytes()) {
            Err(error) if error.to_string().contains(expected) => {}
            Err(error) => wrong.push(error.to_string()),
            Ok(_) => wrong.push(format!("read, although it needs {expected}")),
        }
    }
    report(&wrong);
}

/// A loop without a number of turns, which goes on while a counter is below a constant; nobody asks for
/// two of its results.
fn counting_down(from: i64, turns: &str) -> Onnx {
    let body = [
        field(1, &node("Sub", &["count", "one"], &["less"], &[])),
        field(1, &node("Greater", &["less", "zero"], &["goes_on"], &[])),
        field(1, &node("Add", &["sum", "x"], &["more"], &[])),
        field(1, &node("Identity", &["sum"], &["before"], &[])),
        field(11, &field(1, b"turn")),
        field(11, &field(1, b"was")),
        field(11, &field(1, b"count")),
        field(11, &field(1, b"sum")),
        field(12, &field(1, b"goes_on")),
        field(12, &field(1, b"less")),
        field(12, &field(1, b"more")),
        field(12, &field(1, b"before")),
    ];
    let body = of_graph("body", &body.concat());
    let mut model = Onnx::of(node("Loop", &[turns, "cond", "from", "x"], &["", "y", ""], &[body]), &[2]);
    let scalar = |name: &str, number: i64| tensor(name, 7, &[], &number.to_le_bytes());
    model.constants = vec![scalar("from", from), scalar("one", 1), scalar("zero", 0)];
    model.nodes.insert(0, node("Greater", &["from", "zero"], &["cond"], &[]));
    model
}

#[test]
fn loops_end_where_a_known_condition_says() {
    for (from, expected) in [(0, [1.0, 2.0]), (3, [4.0, 8.0])] {
        let imported = onnx::read(&counting_down(from, "").bytes()).unwrap();
        let results = by_name(&imported, &[("x", float(&[2], &[1.0, 2.0]))]);
        assert_eq!(as_floats(&results["y"]), expected);
    }
    let endless = onnx::read(&counting_down(i64::MAX, "").bytes()).unwrap_err().to_string();
    assert!(endless.contains("100000"), "{endless}");
}

/// A scan of running sums along an axis, which gives the sum and what it was behind each slice.
fn running(attributes: &[Vec<u8>], count: i64, opset: i64) -> Onnx {
    let body = [
        field(1, &node("Add", &["before", "slice"], &["after"], &[])),
        field(1, &node("Identity", &["after"], &["seen"], &[])),
        field(11, &field(1, b"before")),
        field(11, &field(1, b"slice")),
        field(12, &field(1, b"after")),
        field(12, &field(1, b"seen")),
    ];
    let own = [of_graph("body", &body.concat()), int("num_scan_inputs", count)];
    let attributes = [&own[..], attributes].concat();
    let mut model = Onnx::of(node("Scan", &["zero", "x"], &["y", "all"], &attributes), &[2, 3]);
    let zeros = if attributes.len() == 6 { 2 } else { 3 };
    model.constants.push(floats("zero", &[zeros], &vec![0.0; zeros as usize]));
    model.outputs.push(field(1, b"all"));
    model.opset = Some(opset);
    model
}

#[test]
fn scans_are_written_out() {
    let x = float(&[2, 3], &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    let turned = [
        ints("scan_input_axes", &[-1]),
        ints("scan_input_directions", &[1]),
        ints("scan_output_axes", &[1]),
        ints("scan_output_directions", &[1]),
    ];
    type Row<'a> = (&'a [Vec<u8>], &'a [f32], &'a [i64], &'a [f32]);
    let rows: [Row<'_>; 2] = [
        (&[], &[9.0, 18.0, 36.0], &[2, 3], &[1.0, 2.0, 4.0, 9.0, 18.0, 36.0]),
        (&turned, &[7.0, 56.0], &[2, 3], &[7.0, 6.0, 4.0, 56.0, 48.0, 32.0]),
    ];
    let mut wrong = Vec::new();
    for (attributes, sum, dims, all) in rows {
        let imported = onnx::read(&running(attributes, 1, 18).bytes()).unwrap();
        let results = by_name(&imported, &[("x", x.clone())]);
        let found = (as_floats(&results["y"]), results["all"].dims(), as_floats(&results["all"]));
        if found != (sum.to_vec(), dims, all.to_vec()) {
            wrong.push(format!("{found:?}, not {sum:?} {all:?}"));
        }
    }
    let refused = [
        (running(&[], 1, 8), "opset 9 or later"),
        (running(&[ints("scan_input_axes", &[2])], 1, 18), "attribute `scan_input_axes`; needed: an axis"),
        (running(&[ints("scan_output_directions", &[2])], 1, 18), "needed: 0 or 1 for each tensor"),
        (running(&[], 3, 18), "from 1 to the number of inputs"),
    ];
    for (model, expected) in refused {
        match onnx::read(&model.bytes()) {
            Err(error) if error.to_string().contains(expected) => {}
            Err(error) => wrong.push(error.to_string()),
            Ok(_) => wrong.push(format!("read, although it needs {expected}")),
        }
    }
    report(&wrong);
}
