//! Promise: `sterna run` runs a graph as its arguments say, and reports what happened.

mod common;

use std::fs;
use std::path::Path;

use common::{Room, complaint, graph, graphs, none_of, op, read_npy, select, sterna, sterna_reading, tensor};
use serde_json::{Value, json};

#[test]
fn every_example_graph_passes_its_check() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(graphs()).unwrap() {
        let path = entry.unwrap().path();
        let mut args = vec!["run", path.to_str().unwrap(), "--check", "--json"];
        if path.ends_with("select_big.json") {
            args.extend(["--override-shape", "10=1x1x32x48", "--override-shape", "11=1x3x32x48"]);
        }
        let ended = sterna(&args);
        wrong.extend(complaint(&path.display().to_string(), &ended, 0, ""));
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        let supported = report["partitions"].as_array().unwrap().iter().filter(|p| p["supported"] == true);
        let checked = supported.filter(|p| p["checks"][0]["equal"] == true && p["run_by"] == "compiled");
        if checked.count() == 0 {
            wrong.push(format!("{}: nothing was checked", path.display()));
        }
        seen += 1;
    }
    assert!(seen >= 8, "{seen} graphs");
    none_of(wrong);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[300, 1000]));
    let outputs = ["1", "2"].map(|threads| {
        let out = room.path(threads);
        let output = format!("3={out}");
        let ended = sterna(&["run", &graph, "--threads", threads, "--repeat", "3", "--output", &output]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.contains(&format!("threads {threads}\n")), "{}", ended.out);
        read_npy(&out).1
    });
    assert!(outputs[0] == outputs[1]);
    assert_eq!(outputs[0].len(), 1_200_000);
}

#[test]
fn a_graph_comes_from_standard_input() {
    let ended = sterna_reading(&select("f32", &[2, 2]), &["run", "-", "--check"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for line in [
        "partition 0: supported\n",
        "  op       Select 7 \"the Select\"\n",
        "  in       0 boolean {2,2} strides {2,1}\n",
        "  out      3 f32 {2,2} strides {2,1}\n",
        "  compile  ",
        "  execute  ",
        " bytes moved, ",
        " GB/s\n",
        "tensor 3: all 4 elements equal the reference\n",
    ] {
        assert!(ended.out.contains(line), "{line:?} in {}", ended.out);
    }
}

#[test]
fn an_overridden_shape_reaches_all_that_follows() {
    let room = Room::new();
    let chain = graph(vec![
        op(
            0,
            "Select",
            vec![tensor(0, "boolean", &[4]), tensor(1, "f32", &[4]), tensor(2, "f32", &[4])],
            vec![tensor(3, "f32", &[4])],
        ),
        op(1, "Reorder", vec![tensor(3, "f32", &[4])], vec![tensor(4, "f32", &[4])]),
        op(
            2,
            "Select",
            vec![tensor(0, "boolean", &[4]), tensor(4, "f32", &[4]), tensor(2, "f32", &[4])],
            vec![tensor(5, "f32", &[4])],
        ),
    ]);
    let chain = room.write("chain.json", chain);
    // Shapes of tensors 1 and 2, and the shape of what follows.
    let rows =
        [(["1=2x3x4", "2="], "{2,3,4}", 24), (["1=4", "2=5x4"], "{5,4}", 20), (["1=0x4", "2=1"], "{0,4}", 0)];
    for (shapes, expected, elements) in rows {
        let out = room.path("out.npy");
        let output = format!("4={out}");
        let [first, second] = shapes;
        let overrides = ["--override-shape", first, "--override-shape", second];
        let ended = sterna(&[&["run", &chain, "--check", "--output", &output], &overrides[..]].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        for port in ["3", "4", "5"] {
            assert!(ended.out.contains(&format!("out      {port} f32 {expected}")), "{}", ended.out);
        }
        assert!(ended.out.contains("execute  reference, "), "{}", ended.out);
        assert_eq!(read_npy(&out).1.len(), 4 * elements);
    }

    let unfit = sterna(&["run", &chain, "--override-shape", "1=3"]);
    none_of(complaint("unfit", &unfit, 1, "Select (op 0)").into_iter().collect());
}

#[test]
fn json_holds_the_same_facts() {
    let ended = sterna_reading(&select("u16", &[8, 3]), &["run", "-", "--json", "--check", "--repeat", "5"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["ops"], 1);
    assert_eq!(report["failures"], json!([]));
    let partition = &report["partitions"][0];
    assert_eq!(partition["supported"], true);
    assert_eq!(partition["unsupported_reason"], Value::Null);
    assert_eq!(partition["run_by"], "compiled");
    assert_eq!(partition["ops"], json!([{"kind": "Select", "id": 7, "name": "the Select"}]));
    assert_eq!(
        partition["inputs"][1],
        json!({"id": 1, "dtype": "u16", "shape": [8, 3], "strides": [3, 1], "layout": "strided",
               "property": "undef"})
    );
    let execution = &partition["execution"];
    assert_eq!(execution["repeat"], 5);
    // One byte of condition, two of each branch and of the result.
    assert_eq!(execution["bytes_moved"], 24 * 7);
    let (best, median) =
        (execution["best_seconds"].as_f64().unwrap(), execution["median_seconds"].as_f64().unwrap());
    assert!(0.0 < best && best <= median, "{best} {median}");
    let rate = execution["gb_per_second"].as_f64().unwrap();
    assert!((rate - 168.0 / best / 1e9).abs() < 1e-6 * rate, "{rate} {best}");
    assert!(partition["compile_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(
        partition["checks"],
        json!([{"tensor": 3, "elements": 24, "ulps": 0, "equal": true, "first_difference": null}])
    );
}

#[test]
fn what_cannot_run_is_named_with_the_reason_and_so_is_what_follows() {
    let image = |id| tensor(id, "f32", &[1, 2, 5, 5]);
    let attrs = json!({
        "strides": {"type": "s64[]", "value": [1, 1]}, "pads_begin": {"type": "s64[]", "value": [0, 0]},
        "pads_end": {"type": "s64[]", "value": [0, 0]}, "dilations": {"type": "s64[]", "value": [1, 1]}
    });
    let mut convolution =
        op(3, "Convolution", vec![image(10), tensor(11, "f32", &[1, 1, 2, 2])], vec![image(12)]);
    convolution["attrs"] = attrs;
    let follows = op(4, "Select", vec![tensor(13, "boolean", &[1]), image(12), image(14)], vec![image(15)]);
    let apart = op(5, "Select", vec![tensor(13, "boolean", &[1]), image(10), image(14)], vec![image(16)]);
    let room = Room::new();
    let graph = room.write("graph.json", graph(vec![convolution, follows, apart]));
    let (lost, kept) = (room.path("lost.npy"), room.path("kept.npy"));
    let outputs = [format!("15={lost}"), format!("16={kept}")];
    let ended = sterna(&["run", &graph, "--check", "--output", &outputs[0], "--output", &outputs[1]]);
    assert_eq!(ended.code, 1, "{}", ended.out);
    for message in [
        "not supported, no kernel runs Convolution",
        "Convolution 3 \"the Convolution\"",
        "tensor 16: all 50 elements equal the reference",
    ] {
        assert!(ended.out.contains(message), "{message:?} in {}", ended.out);
    }
    for message in [
        "Convolution (op 3): ",
        "Select (op 4): it cannot run, since tensor 12 was not computed",
        "error: tensor 15 was not computed, so ",
    ] {
        assert!(ended.err.contains(message), "{message:?} in {}", ended.err);
    }
    assert!(!Path::new(&lost).exists());
    assert_eq!(read_npy(&kept).1.len(), 200);
}

#[test]
fn an_end_and_a_host_scalar_are_no_obstacle() {
    let mut scalar = tensor(2, "f32", &[]);
    scalar["property_type"] = json!("host_scalar");
    let dims = [2, 3];
    let inputs = vec![tensor(0, "boolean", &dims), tensor(1, "f32", &dims), scalar];
    let ops = vec![
        op(0, "Select", inputs, vec![tensor(3, "f32", &dims)]),
        op(1, "End", vec![tensor(3, "f32", &dims)], vec![]),
    ];
    let room = Room::new();
    let graph = room.write("graph.json", graph(ops));
    let out = room.path("out.npy");
    let output = format!("3={out}");
    let ended = sterna(&["run", &graph, "--check", "--fill", "0=0", "--fill", "2=-2.5", "--output", &output]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("2 f32 {} strides {} host_scalar"), "{}", ended.out);
    assert!(ended.out.contains("execute  nothing, it has no outputs"), "{}", ended.out);
    assert_eq!(read_npy(&out).1, (-2.5f32).to_ne_bytes().repeat(6));
}

#[test]
fn what_contradicts_its_producer_is_noted_and_replaced() {
    let ops = [
        op(1, "Abs", vec![tensor(0, "f32", &[2, 3])], vec![tensor(1, "f32", &[2, 3])]),
        op(2, "Exp", vec![tensor(1, "f32", &[1, 1])], vec![tensor(2, "f32", &[2, 3])]),
    ];
    let graph = json!({"engine_kind": "gpu", "graph": ops}).to_string();
    let note = "note: Exp (op 2), input 0 `src` (tensor 1): dims {1,1} differ from {2,3} of its producer, Abs (op 1), \
                whose description counts";
    for command in [&["run", "-", "--check"][..], &["inspect", "-"]] {
        let ended = sterna_reading(&graph, command);
        assert_eq!((ended.code, ended.err.lines().next()), (0, Some(note)), "{command:?}: {}", ended.err);
    }
}
