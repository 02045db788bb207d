//! Promise: whatever is wrong is said in a sentence that names it, with the exit code that the help states.

use std::io::{Read, Write};

use crate::common::{
    Room, complaint, graph, none_of, npy, op, select, started, sterna, sterna_reading, tensor,
};
use serde_json::json;

#[test]
fn files_of_other_formats_are_named() {
    let room = Room::new();
    let ended = sterna(&["run", &room.write("model.ort", b"\x18\0\0\0ORTM\0\0")]);
    let is_named = ended.err.contains("needed: the .onnx from which it was made");
    assert!(ended.code == 2 && is_named, "{} {}", ended.code, ended.err);
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_to_do() {
    let room = Room::new();
    let graph_text = select("f32", &[2, 2]);
    let graph = room.write("graph.json", &graph_text);
    let npy = room.write("ones.npy", npy("<f4", false, "(2, 2)", &1f32.to_le_bytes().repeat(4)));
    let input = format!("1={npy}");
    let missing_file = format!("1={}", room.path("none.npy"));
    let unwritable = format!("3={}", room.path("no/such/folder.npy"));
    let missing_graph = room.path("none.json");
    let mut open = tensor(1, "f32", &[2, 2]);
    open["shape"] = json!([i64::MIN]);
    let open_graph = room.write("open.json", {
        let inputs = vec![tensor(0, "boolean", &[2, 2]), open, tensor(2, "f32", &[2, 2])];
        self::graph(vec![op(0, "Select", inputs, vec![tensor(3, "f32", &[2, 2])])])
    });
    let rows: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["jump"], "jump"),
        (&["run"], "GRAPH"),
        (&["run", &missing_graph], "cannot open"),
        (&["run", room.0.path().to_str().unwrap()], "it is a directory"),
        (&["run", &graph, "--input", "1"], "write it as NAME=..."),
        (
            &["run", &graph, "--input", "one=x.npy"],
            "no tensor is named `one`; there are `cond`, `then`, `else`",
        ),
        (&["run", &graph, "--input", "1="], "name a file"),
        (&["run", &graph, "--input=-1=x.npy"], "no tensor is named `-1`"),
        (
            &["run", &graph, "--input", "9=x.npy"],
            "tensor 9, which is not an input of the graph; choose from 0 (cond), 1 (then), 2 (else)",
        ),
        (&["run", &graph, "--input", "3=x.npy"], "tensor 3, which is not an input of the graph"),
        (&["run", &graph, "--input", &missing_file], "cannot open"),
        (&["run", &graph, "--fill", "9=ones"], "--fill names tensor 9"),
        (
            &["bench", &graph, "--fill", "9=ones"],
            "--fill names tensor 9, which is not an input of the graph or",
        ),
        (&["run", &graph, "--fill", "1"], "write it as NAME=..."),
        (&["run", &graph, "--output", "9=x.npy"], "--output names tensor 9"),
        (&["run", &graph, "--output", "1=x.npy"], "not handed out by a partition; choose from 3 (dst)"),
        (&["run", &graph, "--output", &unwritable], "such is no folder"),
        (&["run", &graph, "--override-shape", "9=2x2"], "--shape names tensor 9"),
        (&["inspect", &graph, "--override-shape", "9=2x2"], "tensor 9, which is not a tensor of the graph"),
        (&["run", &graph, "--override-shape", "1=2xx2"], "\"\" is no dim"),
        (&["run", &graph, "--override-shape", "1=-2"], "\"-2\" is no dim"),
        (&["run", &graph, "--override-shape", "1=1x1x1x1x1x1x1x1x1x1x1x1x1"], "rank 13"),
        (&["run", &graph, "--override-shape", "1=9223372036854775807x2"], "address space"),
        (&["run", &graph, "--input", &input, "--fill", "1=ones"], "by --input and by --fill"),
        (
            &["run", &graph, "--input", &input, "--input", &input],
            "--input names `then` (tensor 1) more than once",
        ),
        (&["run", &graph, "--fill", "1=1", "--fill", "1=2"], "--fill names `then` (tensor 1) more than once"),
        (&["run", &graph, "--threads", "0"], "--threads"),
        (&["run", &graph, "--repeat", "0"], "--repeat"),
        (&["run", &graph, "--seed", "x"], "--seed"),
        (&["run", &graph, "--chek"], "--check"),
        (&["run", &open_graph], "give it with --shape then=..."),
        (
            &["bench", &open_graph],
            "the shape of input `then` (tensor 1) is not known; give it with --shape then=...",
        ),
        (&["ops", "Selekt"], "no op kind is called \"Selekt\"; did you mean \"Select\"?"),
        (&["ops", "Pool"], "AvgPool, AvgPoolBackward, MaxPool, MaxPoolBackward"),
        (&["ops", "Nonsense"], "`sterna ops` lists them all"),
        (&["ops", ""], "`sterna ops` lists them all"),
    ];
    let mut wrong = Vec::new();
    for (args, message) in rows {
        let ended = sterna(args);
        wrong.extend(complaint(&format!("{args:?}"), &ended, 2, message));
        if !ended.out.is_empty() {
            wrong.push(format!("{args:?}: prints {:?}", ended.out));
        }
    }
    none_of(wrong);
}

#[test]
fn a_graph_that_fails_ends_with_1() {
    let whole = select("f32", &[2, 2]);
    let unfit = {
        let inputs = vec![tensor(0, "boolean", &[2]), tensor(1, "f32", &[2]), tensor(2, "f32", &[3])];
        graph(vec![op(7, "Select", inputs, vec![tensor(3, "f32", &[3])])])
    };
    let relu = |id, from, to| op(id, "ReLU", vec![tensor(from, "f32", &[2])], vec![tensor(to, "f32", &[2])]);
    let rows = [
        ("nothing", String::new(), "cannot read a graph"),
        ("truncated", whole[..whole.len() / 2].into(), "cannot read a graph"),
        ("deep", "[".repeat(100_000), "cannot read a graph"),
        ("unknown kind", whole.replace("\"Select\"", "\"Choose\""), "Choose"),
        ("wrong type", whole.replace("boolean", "f32"), "cond"),
        ("shapes", unfit, "Select (op 7)"),
        ("two producers", graph(vec![relu(0, 0, 1), relu(1, 2, 1)]), "tensor 1 is produced by"),
        ("cycle", graph(vec![relu(0, 0, 1), relu(1, 1, 0)]), "depends on its own result"),
        ("one id", graph(vec![relu(0, 0, 1), relu(0, 1, 2)]), "an op of this id"),
    ];
    let judged =
        rows.map(|(what, text, message)| complaint(what, &sterna_reading(&text, &["run", "-"]), 1, message));
    none_of(judged.into_iter().flatten().collect());
}

/// The words that a message repeats behind each other.
fn said_twice(line: &str) -> Option<&str> {
    let parts: Vec<&str> = line.split(": ").collect();
    // The end of a part counts, as in `partition 0, Select (op 0): Select (op 0): ...`.
    parts.windows(2).find(|pair| pair[0].ends_with(pair[1]) && !pair[1].is_empty()).map(|pair| pair[1])
}

#[test]
fn no_message_says_the_same_twice() {
    let room = Room::new();
    let number = |value: i64| json!({"type": "s64", "value": value});
    let word = |value: &str| json!({"type": "string", "value": value});
    let list = |value: &[i64]| json!({"type": "s64[]", "value": value});
    let one = |kind: &str, inputs: &[(&str, &[i64])], output: (&str, &[i64]), attrs: serde_json::Value| {
        let inputs = inputs.iter().enumerate().map(|(id, (dtype, dims))| tensor(id, dtype, dims)).collect();
        let mut op = op(0, kind, inputs, vec![tensor(9, output.0, output.1)]);
        op["attrs"] = attrs;
        graph(vec![op])
    };
    let cond = ("boolean", &[2i64][..]);
    let of = |dims: &'static [i64]| ("f32", dims);
    let grouped = json!({"qtype": word("per_group"), "group_shape": list(&[1, 3])});
    let rows = [
        one("Select", &[cond, of(&[2]), of(&[3])], of(&[3]), json!({})),
        one("Select", &[cond, of(&[2]), of(&[2])], of(&[4]), json!({})),
        one("Select", &[of(&[2]), of(&[2]), of(&[2])], of(&[2]), json!({})),
        one("Select", &[cond, of(&[2])], of(&[2]), json!({})),
        one("Select", &[cond, of(&[2]), of(&[2])], of(&[2]), json!({"axis": number(1)})),
        one("Select", &[cond, of(&[1 << 40, 1]), of(&[1, 1 << 40])], of(&[1 << 40, 1 << 40]), json!({})),
        one("MatMul", &[of(&[2, 3]), of(&[2, 3])], of(&[2, 3]), json!({})),
        one("SoftMax", &[of(&[2, 3])], of(&[2, 3]), json!({"axis": number(7)})),
        one("StaticTranspose", &[of(&[2, 3])], of(&[3, 2]), json!({"order": list(&[0, 0])})),
        one("GenIndex", &[of(&[2, 3])], ("s32", &[2, 3]), json!({"axis": number(5)})),
        one("Concat", &[of(&[4, 6]), of(&[3, 5])], of(&[7, 6]), json!({"axis": number(0)})),
        one("ReduceSum", &[of(&[4, 6])], of(&[4, 6]), json!({"axes": list(&[5])})),
        one("DynamicDequantize", &[("s8", &[4, 6]), of(&[5, 2])], of(&[4, 6]), grouped),
        one("LayerNorm", &[of(&[4, 6]), of(&[5]), of(&[6])], of(&[4, 6]), json!({})),
        one("Wildcard", &[of(&[4, 6])], of(&[4, 6]), json!({})),
        one("Clamp", &[of(&[4])], of(&[4]), json!({})),
        one("Exp", &[of(&[4])], of(&[4]), json!({"alpha": number(1)})),
        one("Exp", &[of(&[-4])], of(&[4]), json!({})),
        one("Exp", &[of(&[4])], of(&[4]), json!({"alpha": 7})),
        select("f32", &[2])[..100].to_owned(),
        "<net version=\"11\"><layers><layer id=\"0\" name=\"x\" type=\"Tan\"/></layers></net>".to_owned(),
    ];
    let mut wrong = Vec::new();
    for (index, text) in rows.iter().enumerate() {
        let file = room.write("graph", text);
        let batch = room.write("cases.batch", format!("--case={file}"));
        let doors: [&[&str]; 9] = [
            &["run", &file],
            &["run", &file, "--check", "--policy", "debug"],
            &["run", &file, "--shape", "0=5x7"],
            &["run", &file, "--type", "bf16"],
            &["run", &file, "--op-kind", "0=MatMul"],
            &["inspect", &file],
            &["bench", &file, "--time", "0.001", "--threads", "1"],
            &["convert", &file, "--attr", "0.axis=99"],
            &["batch", &batch],
        ];
        for door in doors {
            let ended = sterna(door);
            let text = format!("{}{}", ended.out, ended.err);
            let doubled = text.lines().filter_map(|line| Some((said_twice(line)?, line)));
            wrong.extend(doubled.map(|(what, line)| format!("graph {index}, {door:?}: {what:?} in {line}")));
        }
    }
    none_of(wrong);
    assert_eq!(said_twice("error: partition 0, Select (op 0): Select (op 0): x"), Some("Select (op 0)"));
}

#[test]
fn sizes_that_no_machine_has_are_errors() {
    let graph = select("f32", &[2]);
    let ended = sterna_reading(&graph, &["run", "-", "--override-shape", "1=1125899906842624"]);
    none_of(
        complaint("enormous", &ended, 1, "no memory can be made for input `then` (tensor 1)")
            .into_iter()
            .collect(),
    );

    // Few bytes that stand for very many elements.
    let mut repeated = tensor(1, "f32", &[1 << 50]);
    repeated["stride"] = json!([0]);
    let inputs = vec![tensor(0, "boolean", &[1]), repeated, tensor(2, "f32", &[1])];
    let graph = self::graph(vec![op(7, "Select", inputs, vec![tensor(3, "f32", &[1 << 50])])]);
    let ended = sterna_reading(&graph, &["run", "-"]);
    none_of(complaint("repeated", &ended, 2, "tensor 1 cannot be filled").into_iter().collect());
}

#[test]
fn whoever_closes_the_pipe_early_is_no_error() {
    for args in [&["ops"][..], &["run", "-"]] {
        let mut child = started(args);
        drop(child.stdout.take());
        let _ = child.stdin.take().unwrap().write_all(select("f32", &[2]).as_bytes());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn an_error_in_json_is_shown_in_its_line() {
    let long = format!("{{\"graph\": [{}{{\"id\": 7, \"kind\": \"Relu\"}}]}}", " ".repeat(500));
    let rows = [
        (
            "a kind",
            "{\"graph\":\n [{\"id\": 7, \"kind\": \"Relu\"}]}".to_owned(),
            "line 2, column 21: op 0 (id 7), key `kind`: no op kind is called \"Relu\"; did you mean \
             \"ReLU\"?\n  |\n\
             2 |  [{\"id\": 7, \"kind\": \"Relu\"}]}\n  |                     ^\n",
        ),
        ("the end", "{\n  \"graph\": [".to_owned(), "2 |   \"graph\": [\n  |             ^\n"),
        ("a tab and an escape", "\t\u{1b}[31m{".to_owned(), "1 |   [31m{\n  |  ^\n"),
        ("a long line", long, "\n1 | …"),
    ];
    let judged =
        rows.map(|(what, text, shown)| complaint(what, &sterna_reading(&text, &["inspect", "-"]), 1, shown));
    none_of(judged.into_iter().flatten().collect());
}
