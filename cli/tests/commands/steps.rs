//! Promise: `--state` runs steps on what the steps before have left, shows and writes the results of the last
//! one, tells the latency of steps, and says which names are not there.

use std::fs;

use serde_json::Value;

use super::onnx::bytes::{Onnx, field, int, node, number};
use crate::common::{Room, complaint, graph, none_of, npy, op, read_npy, sterna, sterna_reading, tensor};

/// An input with names for its open dims.
fn open(name: &str, data_type: i64, dims: &[&str]) -> Vec<u8> {
    let dim = |dim: &&str| match dim.parse() {
        Ok(length) => field(1, &number(1, length)),
        Err(_) => field(1, &field(2, dim.as_bytes())),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let of = field(1, &[number(1, data_type), field(2, &shape)].concat());
    [field(1, name.as_bytes()), field(2, &of)].concat()
}

/// The sum of all rows so far under a mask, with the number of rows: the cache is an input and an output.
fn decoder() -> Vec<u8> {
    let model = Onnx {
        inputs: vec![
            open("x", 1, &["tokens", "2"]),
            open("mask", 1, &["total", "1"]),
            open("past_key_values.0.key", 1, &["past", "2"]),
        ],
        outputs: vec![field(1, b"sum"), field(1, b"present.0.key"), field(1, b"count")],
        nodes: vec![
            node("Concat", &["past_key_values.0.key", "x"], &["present.0.key"], &[int("axis", 0)]),
            node("Mul", &["present.0.key", "mask"], &["seen"], &[]),
            node("ReduceSum", &["seen"], &["sum"], &[int("keepdims", 0)]),
            node("Shape", &["present.0.key"], &["shape"], &[]),
            node("Cast", &["shape"], &["count"], &[int("to", 1)]),
        ],
        ..Onnx::default()
    };
    model.bytes()
}

const INPUTS: [&str; 8] =
    ["--input", "x=[[1,2]]", "--fill", "mask=ones", "--shape", "mask=1x1", "--grow", "mask"];

#[test]
fn steps_run_on_what_those_before_have_left() {
    let room = Room::new();
    let (model, out, trace) =
        (room.write("m.onnx", decoder()), room.path("sum.npy"), room.path("trace.json"));
    let prefix: Vec<u8> = [10.0f32; 4].iter().flat_map(|x| x.to_le_bytes()).collect();
    let prefix = room.write("prefix.npy", npy("<f4", false, "(2, 2)", &prefix));
    let prefix = format!("past_key_values.0.key={prefix}");
    let with_prefix = ["--input", &prefix, "--shape", "mask=3x1"];
    let (named, of_sum) = ("past_key_values.0.key=present.0.key", format!("sum={out}"));
    let rows: [(&str, &[&str], &str, &str); 5] = [
        ("found", &["--state", "auto", "--steps", "5"], "sum = 15", "count = [5, 2]"),
        ("named", &["--state", named, "--steps", "3"], "sum = 9", "count = [3, 2]"),
        ("both", &["--state", named, "--state", "auto", "--steps", "1"], "sum = 3", "count = [1, 2]"),
        ("as usual", &["--state", "auto", "--threads", "1"], "sum = 48", "count = [16, 2]"),
        ("a trace", &["--state", "auto", "--steps", "3", "--profile", &trace], "sum = 9", "count = [3, 2]"),
    ];
    let mut wrong = Vec::new();
    for (what, args, sum, count) in rows {
        let args = [&["run", &model, "--output", &of_sum][..], &INPUTS, args].concat();
        let ended = sterna(&args);
        wrong.extend(complaint(what, &ended, 0, ""));
        let lines = [sum, count, "  state    rows ", "  latency  "];
        if lines.iter().any(|line| !ended.out.lines().any(|other| other.starts_with(line))) {
            wrong.push(format!("{what}: {}", ended.out));
        }
    }
    let last = read_npy(&out).1;
    if last != 9.0f32.to_ne_bytes() {
        wrong.push(format!("written: {last:?}"));
    }
    let args =
        [&["run", &model, "--state", "auto", "--steps", "2"], &INPUTS[..4], &INPUTS[6..], &with_prefix];
    let ended = sterna(&args.concat());
    if ended.code != 0 || !ended.out.contains("\nsum = 46\n") || !ended.out.contains("rows 4 after 2 steps") {
        wrong.push(format!("a prefix: {} {}", ended.out, ended.err));
    }
    let all = room.path("all.npz");
    let args = [&["run", &model, "--state", "auto", "--output", &all], &INPUTS[..]];
    let ended = sterna(&args.concat());
    if ended.code != 0
        || !ended.out.contains("wrote tensor 3 (sum)")
        || ended.out.contains("present.0.key) to")
    {
        wrong.push(format!("an archive: {} {}", ended.out, ended.err));
    }
    let read: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let events = read["traceEvents"].as_array().unwrap();
    for cat in ["run", "execute", "partition"] {
        if events.iter().filter(|event| event["cat"] == cat).count() < 3 {
            wrong.push(format!("no three of {cat} in the trace"));
        }
    }
    none_of(wrong);
}

#[test]
fn the_report_tells_steps_as_data() {
    let room = Room::new();
    let model = room.write("m.onnx", decoder());
    let args = ["run", &model, "--state", "auto", "--steps", "4", "--format", "json"];
    let ended = sterna(&[&args[..], &INPUTS].concat());
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let whole = &report["whole"];
    assert_eq!((&whole["steps"]["steps"], &whole["steps"]["rows"]), (&4.into(), &4.into()), "{}", ended.out);
    assert_eq!(whole["runs"], 3);
    let expect = |sum: f32| {
        let file = room.write("sum.npy", npy("<f4", false, "()", &sum.to_le_bytes()));
        let ended = sterna(&[&args[..6], &INPUTS, &["--expect", &format!("sum={file}")]].concat());
        (ended.code, ended.err.contains("not as expected"))
    };
    assert_eq!([expect(12.0), expect(13.0)], [(0, false), (1, true)]);
}

#[test]
fn a_graph_in_json_has_steps_by_the_names_of_its_ports() {
    let of = |id: usize| tensor(id, "f32", &[3, 2]);
    let graph = graph(vec![op(0, "Add", vec![of(0), of(1)], vec![of(2)])]);
    let args = ["run", "-", "--state", "src_0=dst", "--steps", "3", "--fill", "src_1=2"];
    let ended = sterna_reading(&graph, &args);
    // The only output is the state.
    assert!(ended.code == 0 && ended.out.contains("rows 0 after 3 steps"), "{} {}", ended.out, ended.err);
}

#[test]
fn a_state_whose_shape_is_given_keeps_it() {
    let room = Room::new();
    let recurrent = |past: &str, present: &str| {
        let model = Onnx {
            inputs: vec![open("x", 1, &["batch", "2"]), open(past, 1, &["n", "2"])],
            outputs: vec![field(1, b"sum"), field(1, present.as_bytes())],
            nodes: vec![
                node("Add", &[past, "x"], &[present], &[]),
                node("ReduceSum", &[present], &["sum"], &[int("keepdims", 0)]),
            ],
            ..Onnx::default()
        };
        model.bytes()
    };
    let (named, found) = (
        room.write("m.onnx", recurrent("old", "new")),
        room.write("found.onnx", recurrent("state", "stateN")),
    );
    let input = ["--input", "x=[[1,2]]", "--steps", "3"];
    let rows: [(&str, Vec<&str>); 2] = [
        ("named", vec![&named, "--state", "old=new", "--shape", "old=1x2"]),
        ("found", vec![&found, "--state", "auto", "--shape", "state=1x2"]),
    ];
    let mut wrong = Vec::new();
    for (what, args) in rows {
        let ended = sterna(&[&["run"][..], &args, &input].concat());
        if ended.code != 0 || !ended.out.contains("sum = 9") {
            wrong.push(format!("{what}: {} {}", ended.out, ended.err));
        }
    }
    none_of(wrong);
}

/// A value that the reader of a model needs is a constant of all steps.
#[test]
fn values_that_the_reader_needs_are_constants() {
    let room = Room::new();
    let model = Onnx {
        inputs: vec![open("x", 1, &["n", "2"]), open("old", 1, &["m", "2"]), open("repeats", 7, &["2"])],
        outputs: vec![field(1, b"sum"), field(1, b"new")],
        nodes: vec![
            node("Tile", &["x", "repeats"], &["tiled"], &[]),
            node("Add", &["old", "tiled"], &["new"], &[]),
            node("ReduceSum", &["new"], &["sum"], &[int("keepdims", 0)]),
        ],
        ..Onnx::default()
    };
    let model = room.write("m.onnx", model.bytes());
    let state = ["run", &model, "--state", "old=new", "--shape", "old=2x2", "--steps", "3"];
    let input = ["--input", "x=[[1,2]]", "--input", "repeats=[2,1]"];
    let ended = sterna(&[&state[..], &input].concat());
    let is_said = ended.out.contains("sum = 18") && format!("{}{}", ended.out, ended.err).contains("repeats");
    assert!(ended.code == 0 && is_said, "{} {}", ended.out, ended.err);
    // Without its value, the layer that needs it is named.
    let ended = sterna(&[&state[..], &input[..2]].concat());
    assert!(ended.code != 0 && ended.err.contains("Tile"), "{}", ended.err);
}

#[test]
fn names_that_are_not_there_are_told() {
    let room = Room::new();
    let model = room.write("m.onnx", decoder());
    let plain = room.write("plain.onnx", {
        let relu = Onnx::of(node("Relu", &["x"], &["y"], &[]), &[2, 3]);
        relu.bytes()
    });
    let state = ["--state", "auto"];
    let rows: [(&str, Vec<&str>, &str); 12] = [
        ("no form", vec![&model, "--state", "past"], "write PAST=PRESENT"),
        ("no input", vec![&model, "--state", "past_key_values.0.keys=present.0.key"], "did you mean"),
        (
            "no output",
            vec![&model, "--state", "past_key_values.0.key=presents"],
            "no output is called `presents`",
        ),
        ("nothing found", vec![&plain, "--state", "auto"], "no names tell a state"),
        (
            "no shape",
            [&[&*model][..], &state].concat(),
            "the shape of input `x` is not known; give it with --shape x=",
        ),
        (
            "grows nothing",
            [&[&*model][..], &state, &INPUTS, &["--grow", "masks"]].concat(),
            "no tensor is named `masks`",
        ),
        (
            "a value grows",
            [&[&*model][..], &state, &INPUTS, &["--grow", "x"]].concat(),
            "has a value by --input",
        ),
        (
            "a state is filled",
            [&[&*model][..], &state, &INPUTS, &["--fill", "past_key_values.0.key=1"]].concat(),
            "which is a state",
        ),
        (
            "a state is written",
            [&[&*model][..], &state, &INPUTS, &["--output", "present.0.key=a.npy"]].concat(),
            "or stays in the state",
        ),
        (
            "an edit",
            [&[&*model][..], &state, &INPUTS, &["--fpmath", "bf16"]].concat(),
            "there is a graph for each step",
        ),
        ("steps alone", vec![&model, "--steps", "3"], "--state"),
        ("a check", [&[&*model][..], &state, &["--check"]].concat(), "cannot be used with"),
    ];
    let mut wrong = Vec::new();
    for (what, args, message) in rows {
        let ended = sterna(&[&["run"][..], &args].concat());
        wrong.extend(complaint(what, &ended, 2, message));
    }
    none_of(wrong);
}
