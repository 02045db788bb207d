//! Promise: models of ONNX run, are shown, timed and converted as graphs are, with inputs and outputs by
//! name, from `.npy` files, from the test data of ONNX and from small values; what follows from values that
//! are given need not be in the model.

#[path = "../../../import/tests/common/onnx.rs"]
pub(crate) mod bytes;

use crate::common::{Room, none_of, npy, select, squeezed, sterna, sterna_reading_bytes};
use bytes::{Onnx, field, floats, integers, node, value};

/// `y = Where(m, x, -1)` on x of {2,3}.
fn masked() -> Onnx {
    let mut model = Onnx::of(node("Where", &["m", "x", "least"], &["y"], &[]), &[2, 3]);
    model.inputs.push(value("m", 9, &[1, 3]));
    model.constants.push(floats("least", &[], &[-1.0]));
    model
}

const X: &str = "x=[[1,2,3],[4,5,6]]";
const M: &str = "m=[[1,0,1]]";
const RESULT: &str = "\ny = [[1, -1, 3], [4, -1, 6]]\n";

#[test]
fn a_model_runs() {
    let (room, mut wrong) = (Room::new(), Vec::new());
    let model = room.write("model.onnx", masked().bytes());
    let numbers: Vec<u8> = (1..=6).flat_map(|x| (x as f32).to_le_bytes()).collect();
    let x_npy = room.write("x.npy", npy("<f4", false, "(2, 3)", &numbers));
    let x_pb = room.write("input_0.pb", floats("x", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    for x in [X.to_owned(), format!("x={x_npy}"), format!("x={x_pb}")] {
        let ended = sterna(&["run", &model, "--check", "--input", &x, "--input", M]);
        if ended.code != 0 || !ended.out.ends_with(RESULT) {
            wrong.push(format!("{x}: {} {} {}", ended.code, ended.out, ended.err));
        }
    }
    let ended = sterna_reading_bytes(&masked().bytes(), &["run", "-", "--input", X, "--input", M]);
    if !ended.out.ends_with(RESULT) {
        wrong.push(format!("standard input: {} {}", ended.out, ended.err));
    }
    none_of(wrong);
    let other = room.write("other.pb", integers("x", &[1, 2]));
    let refused = sterna(&["run", &model, "--input", &format!("x={other}"), "--input", M]);
    assert!(refused.code != 0 && refused.err.contains("but the tensor is f32"), "{}", refused.err);
    let weights = sterna(&["run", &model, "--weights", &other]);
    assert!(
        weights.code == 2 && weights.err.contains("--weights goes with a model of OpenVINO"),
        "{}",
        weights.err
    );
}

#[test]
fn a_model_is_shown_timed_and_converted() {
    let room = Room::new();
    let mut several = masked();
    several.constants = vec![floats("least", &[3], &[-1.0; 3])];
    let model = room.write("model.onnx", several.bytes());
    let shown = sterna(&["inspect", &model]);
    assert!(shown.code == 0 && shown.out.contains("Select"), "{} {}", shown.out, shown.err);
    // A constant goes by the name that the model gives it; of one number, the op that gives it does.
    assert!(squeezed(&shown.out).contains(" least f32 {3} constant"), "{}", shown.out);
    let number = room.write("number.onnx", masked().bytes());
    let shown_number = sterna(&["inspect", &number]);
    assert!(squeezed(&shown_number.out).contains("\"least\" shape=[] value=-1"), "{}", shown_number.out);
    let timed = sterna(&["bench", &model, "--time", "0.01", "--threads", "1"]);
    assert_eq!(timed.code, 0, "{} {}", timed.out, timed.err);
    let (graph, folder) = (room.path("graph.json"), room.path("constants"));
    let converted = sterna(&["convert", &model, "-o", &graph, "--constants", &folder]);
    assert_eq!(converted.code, 0, "{}", converted.err);
    assert_eq!(sterna(&["run", &graph, "--check"]).code, 0);
}

#[test]
fn an_input_with_a_default_is_given() {
    let room = Room::new();
    // One op uses the default, the other one the dims that follow from it.
    let mut model = Onnx::of(node("Add", &["x", "w"], &["s"], &[]), &[2, 3]);
    model.nodes.push(node("Reshape", &["s", "shape"], &["y"], &[]));
    model.inputs.extend([value("w", 1, &[1]), value("shape", 7, &[2])]);
    model.constants = vec![floats("w", &[1], &[0.5]), integers("shape", &[3, 2])];
    let model = room.write("model.onnx", model.bytes());
    let mut wrong = Vec::new();
    for (given, expected) in [
        (&[][..], "[[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]]"),
        (&["--input", "w=[1]"], "[[2, 3], [4, 5], [6, 7]]"),
        (&["--input", "shape=[6,1]"], "[[1.5], [2.5], [3.5], [4.5], [5.5], [6.5]]"),
        (&["--input", "shape=[1,6]", "--input", "w=[0]"], "[[1, 2, 3, 4, 5, 6]]"),
    ] {
        let ended = sterna(&[&["run", &model, "--input", X][..], given].concat());
        if !ended.out.ends_with(&format!("\ny = {expected}\n")) {
            wrong.push(format!("{given:?}: {} {}", ended.out, ended.err));
        }
    }
    none_of(wrong);
    let refused = sterna(&["run", &model, "--input", X, "--input", "shape=[0.5]"]);
    assert!(refused.code == 2 && refused.err.contains("`shape` cannot hold its value"), "{}", refused.err);
}

#[test]
fn dims_that_have_a_name_get_a_length() {
    let room = Room::new();
    let model = room.write("model.onnx", Onnx::of(node("Exp", &["x"], &["y"], &[]), &[-1, 3]).bytes());
    let ended = sterna(&["run", &model, "--dim", "n=4", "--check"]);
    assert!(ended.code == 0 && ended.out.contains("{4,3}"), "{} {}", ended.out, ended.err);
    let graph = room.write("graph.json", include_str!("../../graphs/clamp_backward.json"));
    let mut wrong = Vec::new();
    for (arguments, code, said) in [
        (&["run", &model, "--dim", "m=4"][..], 1, "no dim is named `m`; there are `n`"),
        (&["run", &model, "--dim", "n"], 2, "write NAME=LENGTH, such as seq=128"),
        (&["run", &model, "--dim", "n=-1"], 2, "write NAME=LENGTH, such as seq=128"),
        (&["run", &graph, "--dim", "n=4"], 2, "--dim goes with a model; this is a graph in JSON"),
    ] {
        let ended = sterna(arguments);
        if ended.code != code || !ended.err.contains(said) {
            wrong.push(format!("{arguments:?}: {} {}", ended.code, ended.err));
        }
    }
    none_of(wrong);
}

#[test]
fn what_a_model_leaves_open_is_given() {
    let room = Room::new();
    let mut reshaped = Onnx::of(node("Reshape", &["x", "shape"], &["y"], &[]), &[-1, 3]);
    reshaped.inputs.push(value("shape", 7, &[2]));
    let model = room.write("model.onnx", reshaped.bytes());
    let ended = sterna(&["run", &model, "--input", X, "--input", "shape=[3,2]"]);
    assert!(ended.out.ends_with("\ny = [[1, 2], [3, 4], [5, 6]]\n"), "{} {}", ended.out, ended.err);
    let taken =
        "note: the value of the input \"shape\" was taken as a constant: all that follows from it was";
    assert!(ended.err.contains(taken) && !ended.err.contains("no op uses"), "{}", ended.err);
    // Without the value there is no shape.
    let refused = sterna(&["run", &model, "--input", X]);
    let needed = "input port 1 (`shape`) is no constant; needed: a constant of whole numbers; \
                  --input shape=... gives a value\n";
    assert!(refused.code == 1 && refused.err.ends_with(needed), "{}", refused.err);
    // The message for a missing shape names the option that sets it.
    let open = Onnx::of(node("Flatten", &["x"], &["y"], &[]), &[-1, 3]);
    let model = room.write("open.onnx", open.bytes());
    let refused = sterna(&["run", &model]);
    assert!(refused.code == 1 && refused.err.contains("--shape x=?x3"), "{}", refused.err);
    let ended = sterna(&["run", &model, "--shape", "x=2x3", "--check"]);
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
}

#[test]
fn what_is_no_model_is_refused() {
    let room = Room::new();
    let refused = sterna(&["run", &room.write("no.onnx", field(1, b"sesame"))]);
    assert!(refused.code == 1 && refused.err.contains("no ONNX file"), "{}", refused.err);
    assert!(!refused.err.contains("sesame"), "{}", refused.err);
    // A graph in JSON is one under any name.
    let named_wrongly = room.write("graph.onnx", select("f32", &[2]));
    assert_eq!(sterna(&["run", &named_wrongly]).code, 0);
    let tan = room.write("tan.onnx", Onnx::of(node("NonZero", &["x"], &["y"], &[]), &[2]).bytes());
    let refused = sterna(&["run", &tan]);
    assert!(refused.code == 1 && refused.err.contains("type NonZero"), "{}", refused.err);
    let partial = sterna(&["inspect", &tan, "--partial"]);
    assert!(
        partial.code == 0 && partial.err.contains("it became a Wildcard op"),
        "{} {}",
        partial.out,
        partial.err
    );
    let line = "  op       NonZero 0 \"\", a layer that is not mapped\n";
    assert!(partial.out.contains(line) && !partial.out.contains("Wildcard"), "{}", partial.out);
    assert!(partial.out.contains("  no plan  layers of type NonZero are not mapped\n"), "{}", partial.out);
    for form in ["dot", "svg", "html"] {
        let shown = sterna(&["inspect", &tan, "--partial", "--format", form]).out;
        assert!(shown.contains("NonZero") && !shown.contains("Wildcard"), "{form}: {shown}");
    }
}

#[test]
fn what_is_said_of_inputs_names_them() {
    let room = Room::new();
    let model = room.write("model.onnx", masked().bytes());
    let mut texts = masked();
    texts.inputs = vec![value("x", 8, &[2]), value("m", 9, &[1, 3])];
    let texts = room.write("texts.onnx", texts.bytes());
    let numbers = room.write("x.npy", npy("<f4", false, "(2,)", &[0; 8]));
    let mut table = Onnx::of(node("Gather", &["x", "places"], &["y"], &[]), &[8, 2]);
    table.inputs.push(value("places", 7, &[-1]));
    let table = room.write("table.onnx", table.bytes());
    let numbers = format!("x={numbers}");
    let rows: [(&[&str], &str); 3] = [
        (&[&model, "--shape", "m=1x3", "--shape", "m=1x3"], "--shape names `m` (tensor 1) more than once"),
        (&[&texts, "--input", &numbers], "layer `x` (id 0, type input): output port 0 is string"),
        // A table that is read at places that come later has a shape all the same.
        (&[&table], "the shape of input `places` (tensor 1) is not known; give it with --shape places=..."),
    ];
    let mut wrong = Vec::new();
    for (args, message) in rows {
        let ended = sterna(&[&["run"], args].concat());
        if ended.code == 0 || !ended.err.contains(message) {
            wrong.push(format!("{args:?}: {}", ended.err));
        }
    }
    // Of a single letter no other is near.
    let ended = sterna(&["run", &model, "--shape", "z=2"]);
    if !ended.err.ends_with("no tensor is named `z`; there are `x`, `m`, `y`\n") {
        wrong.push(ended.err);
    }
    none_of(wrong);
}
