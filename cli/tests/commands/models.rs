//! Promise: models of OpenVINO run, are shown, timed and converted as graphs are, with inputs and outputs by
//! name; small values are written and printed.

use std::path::Path;

use crate::common::{Ended, Room, none_of, npy, squeezed, sterna, sterna_reading};

/// A file of the models that the reader's tests hold.
fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/data").join(name);
    path.to_str().expect("paths of the project are text").into()
}

const COND: &str = "cond=[[0,0],[1,0],[1,1]]";
const THEN: &str = "then=[[-1, 0], [1, 2], [3, 4]]";
const ELSE: &str = "else=[[11,10],[9,8],[7,6]]";
const RESULT: &str = "\ndst = [[11, 10], [1, 8], [3, 4]]\n";

#[test]
fn the_example_of_the_specification_runs() {
    let mut wrong = Vec::new();
    let mut check = |what: &str, ended: Ended| {
        if ended.code != 0 || !ended.out.ends_with(RESULT) {
            wrong.push(format!("{what}: {} {} {}", ended.code, ended.out, ended.err));
        }
    };
    let layer = model("select_layer.xml");
    let by_name = ["--input", COND, "--input", THEN, "--input", ELSE];
    check("by name", sterna(&[&["run", &layer, "--check"], &by_name[..]].concat()));
    let text = std::fs::read_to_string(&layer).expect("the file is in the tree");
    check("from standard input", sterna_reading(&text, &[&["run", "-"], &by_name[..]].concat()));
    let by_number = [COND, THEN, ELSE].iter().zip(["cond", "then", "else"]).enumerate();
    let by_number: Vec<String> =
        by_number.map(|(n, (given, name))| given.replacen(name, &n.to_string(), 1)).collect();
    let args: Vec<&str> = by_number.iter().flat_map(|given| ["--input", given]).collect();
    check("by number", sterna(&[&["run", &layer], &args[..]].concat()));
    none_of(wrong);

    let room = Room::new();
    let file = room.path("dst.npy");
    // The number of the output, which is also that of an input.
    let written =
        sterna(&[&["run", &layer, "--output", &format!("1={file}"), "--json"], &by_name[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&written.out).expect("a report is JSON");
    assert_eq!(report["results"][0]["value"], "[[11, 10], [1, 8], [3, 4]]");
    assert_eq!(report["results"][0]["tensor"]["dtype"], "f32");
    // The types of a lone layer are those of the files that it is given.
    let mask = room.write("mask.npy", npy("|b1", false, "(3, 2)", &[0, 1, 0, 1, 0, 1]));
    let other = room.write("other.npy", npy("|i1", false, "(3, 2)", &[1, 2, 3, 4, 5, 250]));
    let args = ["--input", &format!("cond={mask}"), "--input", &format!("else={other}"), "--fill", "then=7"];
    let typed = sterna(&[&["run", &layer], &args[..]].concat());
    assert!(typed.out.ends_with("\ndst = [[1, 7], [3, 7], [5, 7]]\n"), "{} {}", typed.out, typed.err);
    assert!(squeezed(&typed.out).contains("in 1 then s8 {3,2}"), "{}", typed.out);
    let wrong_type =
        sterna(&["run", &layer, "--input", &format!("then={file}"), "--input", &format!("else={other}")]);
    assert_eq!(wrong_type.code, 1, "{} {}", wrong_type.out, wrong_type.err);
    assert!(wrong_type.err.contains("input port 2 (`else`) is s8; needed: f32"), "{}", wrong_type.err);
}

#[test]
fn a_model_runs_with_the_constants_beside_it() {
    let masked = model("masked_scores.xml");
    let given = ["--input", "mask=[1,0,1]", "--input", "scores=[[0.25,1,9],[-0.5,2,-9]]"];
    let ended = sterna(&[&["run", &masked, "--check"], &given[..]].concat());
    assert!(ended.out.ends_with("\nclipped = [[0.5, -4, 4], [-1, -4, -4]]\n"), "{} {}", ended.out, ended.err);
    // Elsewhere the constants are named.
    let room = Room::new();
    let alone = room.write("alone.xml", std::fs::read(&masked).expect("the file is in the tree"));
    let without = sterna(&[&["run", &alone], &given[..]].concat());
    assert_eq!(without.code, 1);
    assert!(without.err.contains("layer `least_f16` (id 2, type Const): bytes 0 to 0+2"), "{}", without.err);
    let with = sterna(&[&["run", &alone, "--weights", &model("masked_scores.bin")], &given[..]].concat());
    assert_eq!(with.out.lines().last(), ended.out.lines().last());
    // Files by name, in and out.
    let clipped = room.path("clipped.npy");
    let numbers: Vec<u8> = [0.25f32, 1.0, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let scores = room.write("scores.npy", npy("<f4", false, "(1, 3)", &numbers));
    let args = [
        "--input",
        &format!("scores={scores}"),
        "--fill",
        "mask=true",
        "--output",
        &format!("clipped={clipped}"),
    ];
    let ended = sterna(&[&["run", &masked], &args[..]].concat());
    assert!(ended.out.contains("\nclipped = [[0.5, 2, 4]]\n"), "{} {}", ended.out, ended.err);
    let bytes = std::fs::read(&clipped).expect("the result is written");
    assert!(bytes.ends_with(&4.0f32.to_le_bytes()), "{bytes:?}");
}

#[test]
fn a_model_is_shown_timed_and_converted() {
    let room = Room::new();
    // A constant of one number is an op, one of three is none.
    let text = std::fs::read_to_string(model("masked_scores.xml")).expect("the file is in the tree");
    let text =
        text.replace("shape=\"1,1\" offset=\"2\" size=\"4\"", "shape=\"1,3\" offset=\"2\" size=\"12\"");
    let masked = room.write("masked_scores.xml", text);
    room.write("masked_scores.bin", [&[0xff, 0xfb][..], &[0, 0, 0, 0x40].repeat(3)].concat());
    let shape = ["--override-shape", "scores=2x3"];
    let shown = sterna(&[&["inspect", &masked], &shape[..]].concat());
    assert!(shown.code == 0 && shown.out.contains("partition 0: 4 ops fused"), "{} {}", shown.out, shown.err);
    let timed = sterna(&[&["bench", &masked, "--time", "0.01", "--threads", "1"], &shape[..]].concat());
    assert!(timed.code == 0 && timed.out.contains("\nmasked_scores "), "{} {}", timed.out, timed.err);

    let [graph, constants] = ["graph.json", "constants"].map(|name| room.path(name));
    let converted = sterna(&["convert", &masked, "-o", &graph]);
    assert_eq!((converted.code, &*converted.out), (0, ""), "{}", converted.err);
    assert!(converted.err.contains("constant tensors 5 are not in the graph"), "{}", converted.err);
    let printed = sterna(&["convert", &masked, "--constants", &constants]);
    assert_eq!(Ok(printed.out), std::fs::read_to_string(&graph).map_err(|error| error.to_string()));
    assert_eq!(printed.err, "");
    let file = format!("5={constants}/5.npy");
    let again = sterna(&[
        "run",
        &graph,
        shape[0],
        "1=2x3",
        "--input",
        "0=[1,0,1]",
        "--input",
        "1=[[0.25,1,9],[-0.5,2,-9]]",
        "--input",
        &file,
    ]);
    assert!(again.out.ends_with("\ndst = [[0.5, -4, 4], [-1, -4, -4]]\n"), "{} {}", again.out, again.err);
    // In one archive they have the names of the graph's inputs.
    let archive = room.path("constants.npz");
    assert_eq!(sterna(&["convert", &masked, "-o", &graph, "--constants", &archive]).err, "");
    let given = ["--input", "0=[1,0,1]", "--input", "1=[[0.25,1,9],[-0.5,2,-9]]", "--input", &archive];
    let again = sterna(&[&["run", &graph, shape[0], "1=2x3"], &given[..]].concat());
    assert!(again.out.ends_with("\ndst = [[0.5, -4, 4], [-1, -4, -4]]\n"), "{} {}", again.out, again.err);
    // A graph in JSON goes through as it is.
    assert_eq!(sterna(&["convert", &graph]).out, std::fs::read_to_string(&graph).expect("it was written"));
}

#[test]
fn what_cannot_be_mapped_is_an_error_or_a_wildcard() {
    let room = Room::new();
    let layer = |kind: &str| {
        format!(
            "<layer id=\"1\" name=\"wave\" type=\"{kind}\">\
             <input><port id=\"0\" precision=\"FP32\"><dim>4</dim></port></input>\
             <output><port id=\"1\" precision=\"FP32\"><dim>4</dim></port></output></layer>"
        )
    };
    let tan = room.write("tan.xml", layer("NonZero"));
    let message = "layer `wave` (id 1, type NonZero): layers of this type are not mapped";
    for command in ["run", "inspect", "convert"] {
        let ended = sterna(&[command, &tan]);
        assert!(ended.code == 1 && ended.err.contains(message), "{command}: {} {}", ended.code, ended.err);
        let partial = sterna(&[command, &tan, "--partial"]);
        let note = "it became a Wildcard op";
        assert!(
            partial.code == 0 && partial.err.contains(note),
            "{command}: {} {}",
            partial.code,
            partial.err
        );
        // The name shown is the type of the layer.
        let kind = if command == "inspect" { "NonZero" } else { "Wildcard" };
        assert!(partial.out.contains(kind), "{command}: {}", partial.out);
    }
}

#[test]
fn an_input_that_no_op_uses_is_passed_over() {
    let room = Room::new();
    let parameter = |id: usize, name: &str| {
        format!(
            "<layer id=\"{id}\" name=\"{name}\" type=\"Parameter\"><data shape=\"2\" element_type=\"i32\"/>\
             <output><port id=\"0\"/></output></layer>"
        )
    };
    let text = format!(
        "<net version=\"11\"><layers>{}{}<layer id=\"2\" name=\"r\" type=\"Result\"><input><port \
         id=\"0\"/></input>\
         </layer></layers><edges><edge from-layer=\"0\" from-port=\"0\" to-layer=\"2\" \
         to-port=\"0\"/></edges></net>",
        parameter(0, "x"),
        parameter(1, "idle")
    );
    let model = room.write("model.xml", text);
    let ended = sterna(&["run", &model, "--input", "x=[3,-4]", "--input", "idle=[1,2]"]);
    assert!(ended.code == 0 && ended.out.ends_with("\nx = [3, -4]\n"), "{} {}", ended.out, ended.err);
    assert!(ended.err.contains("no op uses the input \"idle\""), "{}", ended.err);
}

#[test]
fn what_options_say_of_a_model_is_checked() {
    let room = Room::new();
    let (layer, masked) = (model("select_layer.xml"), model("masked_scores.xml"));
    let graph = room.write("graph.json", "{\"graph\": []}");
    let other = room.write("other.xml", "<html>sesame</html>");
    let entity = room
        .write("entity.xml", "<!DOCTYPE net [<!ENTITY a SYSTEM \"file:///etc/hostname\">]><net>&a;</net>");
    let rows: &[(&[&str], i32, &str)] = &[
        (
            &["run", &layer, "--input", "mask=[1]"],
            2,
            "no tensor is named `mask`; there are `cond`, `then`, `else`",
        ),
        (&["run", &layer, "--input", "9=[1]"], 2, "tensor 9"),
        (&["run", &layer, "--input", COND, "--input", "0=[1]"], 2, "more than once"),
        (&["run", &layer, "--input", "cond=[[1,0],[1]]"], 2, "item 1 of a list is not as long as item 0"),
        (&["run", &layer, "--input", "cond=[1,0]"], 2, "its value has shape [2], but the tensor has [3, 2]"),
        (&["run", &layer, "--input", "cond=[[0,0],[1,0],[1,7]]"], 2, "boolean cannot hold 7"),
        (&["run", &layer, "--output", "then=x.npy"], 2, "no tensor is named `then`; there are `dst`"),
        (&["run", &layer, "--override-shape", "cond=5"], 1, "needed: 2 dims, as many as in the file"),
        (
            &["run", &masked],
            2,
            "the shape of input `scores` (tensor 1) is not known; give it with --shape scores=...",
        ),
        (&["run", &masked, "--weights", "no such file"], 2, "cannot read no such file"),
        (&["run", &graph, "--weights", "x.bin"], 2, "--weights goes with a model"),
        (&["convert", &graph, "--partial"], 2, "--partial goes with a model"),
        (&["run", &other], 1, "the outermost element is neither `net` nor `layer`"),
        (&["run", &entity], 1, "document types and entities of one's own are refused"),
    ];
    let mut wrong = Vec::new();
    for (args, code, message) in rows {
        let ended = sterna(args);
        if ended.code != *code || !ended.err.contains(message) || ended.err.contains("sesame") {
            wrong.push(format!("{args:?}: {} {}", ended.code, ended.err));
        }
    }
    none_of(wrong);
}
