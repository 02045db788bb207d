//! Promise: options, names and values as users of other tools write them are understood, or answered with
//! what to write here.

use std::process::Command;

use crate::common::{Room, complaint, graph, none_of, op, select, squeezed, sterna, tensor};

#[test]
fn options_of_other_tools_are_answered_with_those_here() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    // Command, option, tip; none if nothing is near.
    let rows: &[(&str, &[&str], &str)] = &[
        ("run", &["--batch", "8"], "tip: it is called `--mb` here"),
        ("run", &["--batch=8"], "tip: it is called `--mb` here"),
        ("run", &["-b", "8"], "tip: it is called `--mb` here"),
        ("run", &["--iterations=5"], "tip: it is called `--repeat` here"),
        ("run", &["-niter", "5"], "tip: it is called `--repeat` here"),
        ("bench", &["--iterations=5"], "tip: it is called `--time` here"),
        ("run", &["--runs=5"], "tip: it is called `--repeat` here"),
        ("bench", &["--duration=5"], "tip: it is called `--time` here"),
        ("run", &["--duration=5"], "tip: it is called `--repeat` here"),
        ("run", &["--size=5"], "tip: it is called `--shape` here"),
        ("inspect", &["--shapes", "x:1x2"], "tip: it is called `--shape` here"),
        ("run", &["--dt=f32"], "tip: it is called `--type` here"),
        ("run", &["--num_threads=5"], "tip: it is called `--threads` here"),
        ("run", &["--device", "CPU"], "tip: Sterna runs on the CPU alone; leave the option out"),
        ("bench", &["-d", "CPU"], "tip: Sterna runs on the CPU alone; leave the option out"),
        ("run", &["--warmUp=200"], "tip: the first executions are warm-up"),
        ("bench", &["--verbose"], "tip: `sterna inspect` shows what is fused"),
        ("inspect", &["--json"], "tip: `sterna run` has `--json`; `sterna inspect` does not"),
        ("inspect", &["--seed=1"], "tip: `sterna run` has `--seed`; `sterna inspect` does not"),
        ("convert", &["--format=json"], "tip: `sterna run` has `--format`; `sterna convert` does not"),
        ("run", &["--model=x.onnx"], "tip: the graph has no option before it"),
        ("run", &["--chek"], "tip: did you mean `--check`?"),
        ("run", &["--treads=4"], "tip: did you mean `--threads`?"),
        ("run", &["--xyzzy"], ""),
        ("run", &["-q"], ""),
    ];
    let mut wrong = Vec::new();
    for (command, option, tip) in rows {
        let ended = sterna(&[&[*command, &graph], *option].concat());
        wrong.extend(complaint(&format!("{command} {option:?}"), &ended, 2, tip));
        wrong.extend(complaint(&format!("{command} {option:?}"), &ended, 2, "unexpected argument '-"));
        let usage = format!("\nUsage: sterna {command} [OPTIONS] ");
        wrong.extend(complaint(&format!("{command} {option:?}"), &ended, 2, &usage));
        if ended.err.matches("tip:").count() != usize::from(!tip.is_empty()) {
            wrong.push(format!("{command} {option:?}: {}", ended.err));
        }
    }
    none_of(wrong);
}

#[test]
fn numbers_are_asked_for_by_their_bounds() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let threads = "write a whole number from 1 to 4096\n";
    let rows: &[(&[&str], &str)] = &[
        (&["run", &graph, "--threads", "many"], threads),
        (&["run", &graph, "--threads", "0"], threads),
        (&["run", &graph, "--threads", "1.5"], threads),
        (&["inspect", &graph, "--threads", "many"], threads),
        (&["batch", &graph, "--threads", "many"], threads),
        (&["bench", &graph, "--threads", "many"], "write numbers from 1 to 4096, such as 1,2"),
        (&["run", &graph, "--repeat", "often"], "write a whole number from 1 to 4294967295\n"),
        (&["run", &graph, "--mb", "x"], "write a whole number from 0 to 4294967295\n"),
        (&["run", &graph, "--seed", "x"], "write a whole number from 0 to 18446744073709551615\n"),
        (&["bench", &graph, "--seed=-1"], "write a whole number from 0 to 18446744073709551615\n"),
        (&["bench", &graph, "--time", "long"], "write seconds from 0.001 to 3600, such as 0.5\n"),
        (&["batch", &graph, "--time-limit", "long"], "write seconds from 0.001 to 604800, such as 0.5\n"),
    ];
    let mut wrong = Vec::new();
    for (args, message) in rows {
        let ended = sterna(args);
        wrong.extend(complaint(&format!("{args:?}"), &ended, 2, message));
        if ended.err.contains("digit") {
            wrong.push(format!("{args:?}: {}", ended.err));
        }
    }
    none_of(wrong);
}

#[test]
fn types_and_kinds_go_by_names_of_other_frameworks() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let add = {
        let inputs = vec![tensor(0, "f32", &[2]), tensor(1, "f32", &[2])];
        room.write("add.json", self::graph(vec![op(0, "Add", inputs, vec![tensor(2, "f32", &[2])])]))
    };
    let rows: &[(&[&str], &str)] = &[
        (&["inspect", &graph, "--type", "float16"], "1 then f16"),
        (&["inspect", &graph, "--type", "half"], "1 then f16"),
        (&["inspect", &graph, "--type", "bfloat16"], "1 then bf16"),
        (&["inspect", &graph, "--type", "float32"], "1 then f32"),
        (
            &["inspect", &graph, "--type", "then=int8", "--type", "else=int8", "--type", "dst=int8"],
            "1 then s8",
        ),
        (&["inspect", &graph, "--fpmath", "bfloat16"], "1 then f32"),
        (&["inspect", &add, "--op-kind", "0=max"], "Maximum 0"),
        (&["inspect", &add, "--op-kind", "0=multiply"], "Multiply 0"),
        (&["ops", "softmax"], "SoftMax, code 64"),
        (&["ops", "select"], "Select, code 81"),
        (&["ops", "where"], "Select, code 81"),
        (&["ops", "gelu"], "GELU, code 27"),
        (&["ops", "layer_norm"], "LayerNorm, code 33"),
        (&["ops", "LayerNormalization"], "LayerNorm, code 33"),
    ];
    let mut wrong = Vec::new();
    for (args, shown) in rows {
        let ended = sterna(args);
        if ended.code != 0 || !squeezed(&ended.out).contains(shown) {
            wrong.push(format!("{args:?}: {} {} {}", ended.code, ended.out, ended.err));
        }
    }
    let note = "note: `where` is Select here\n";
    wrong.extend(complaint("where", &sterna(&["ops", "where"]), 0, note));
    if !sterna(&["ops", "select"]).err.is_empty() {
        wrong.push("another case needs no note".into());
    }
    let silu = "no op kind is called \"silu\"; it is written as Sigmoid, and Multiply";
    wrong.extend(complaint("silu", &sterna(&["ops", "silu"]), 2, silu));
    wrong.extend(complaint("silu", &sterna(&["inspect", &add, "--op-kind", "0=silu"]), 2, silu));
    none_of(wrong);
}

#[test]
fn a_file_in_a_form_that_nobody_writes_is_refused() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let to = |name: &str| room.path(name);
    let (png, pt, yaml, npy, jpg) = (to("x.png"), to("x.pt"), to("x.yaml"), to("x.npy"), to("x.jpg"));
    let dst = format!("dst={pt}");
    let rows: &[(&[&str], &str)] = &[
        (
            &["inspect", &graph, "-o", &png],
            "a file that ends in .png cannot be written; let it end in .txt, .dot, .gv, .svg, .html or .htm, \
             or name a form with --format",
        ),
        (&["run", &graph, "--output", &dst], "ends in .pt cannot be written; let it end in .npy or .npz"),
        (&["convert", &graph, "-o", &yaml], "ends in .yaml cannot be written; let it end in .json"),
        (&["convert", &graph, "--constants", &npy], "let it end in .npz, or name a folder"),
        (&["bench", &graph, "--plot", &jpg], "let it end in .svg"),
        (&["bench", &graph, "--save", &jpg], "let it end in .json"),
    ];
    let mut wrong = Vec::new();
    for (args, message) in rows {
        let ended = sterna(args);
        wrong.extend(complaint(&format!("{args:?}"), &ended, 2, message));
    }
    wrong
        .extend([png, pt, yaml, npy, jpg].iter().filter(|path| std::path::Path::new(path).exists()).cloned());
    none_of(wrong);
}

#[test]
fn a_value_that_the_environment_cannot_have_is_an_error() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let rows: &[(&str, &str, i32, &str)] = &[
        ("STERNA_MAX_CPU_ISA", "avx1024", 2, "STERNA_MAX_CPU_ISA is \"avx1024\"; it takes portable, avx2,"),
        ("STERNA_MAX_CPU_ISA", "AVX2", 2, "did you mean \"avx2\"?"),
        ("STERNA_NUM_THREADS", "banana", 2, "STERNA_NUM_THREADS is \"banana\"; it takes a whole number"),
        ("OMP_NUM_THREADS", "banana", 2, "OMP_NUM_THREADS is \"banana\"; it takes a whole number"),
        ("STERNA_STAY_AWAKE", "never", 2, "STERNA_STAY_AWAKE is \"never\"; it takes 0 or 1"),
        ("STERNA_GRAPH_DUMP", "graphs", 2, "it takes none, graph, subgraph, or several"),
        ("STERNA_NUM_THREADS", "", 0, ""),
        ("OMP_NUM_THREADS", "2,1", 0, ""),
        ("ONEDNN_VERBOSE", "profile_exec,dispatch", 0, ""),
    ];
    let mut wrong = Vec::new();
    for (name, value, code, message) in rows {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sterna"));
        let output = command.args(["run", &graph]).env(name, value).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        // The command line says it; the library need not.
        let is_said = err.contains(message) && err.lines().count() == usize::from(*code != 0);
        if output.status.code() != Some(*code) || !is_said || output.stdout.is_empty() != (*code != 0) {
            wrong.push(format!("{name}={value}: {:?} {err}", output.status.code()));
        }
    }
    none_of(wrong);
}

/// A model of OpenVINO whose tensors have `=` in their names.
const EQUALS: &str = r#"<net name="n" version="11"><layers>
<layer id="0" name="x=1" type="Parameter" version="opset1"><data shape="?" element_type="f32"/>
<output><port id="0" precision="FP32" names="x=1"><dim>-1</dim></port></output></layer>
<layer id="1" name="x" type="Parameter" version="opset1"><data shape="2" element_type="f32"/>
<output><port id="0" precision="FP32" names="x"><dim>2</dim></port></output></layer>
<layer id="2" name="a=b" type="Subtract" version="opset1"><data auto_broadcast="numpy"/>
<input><port id="0"><dim>-1</dim></port><port id="1"><dim>2</dim></port></input>
<output><port id="2" precision="FP32" names="y==z"><dim>2</dim></port></output></layer>
<layer id="3" name="r" type="Result" version="opset1" output_names="y==z">
<input><port id="0"><dim>2</dim></port></input></layer></layers><edges>
<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/></edges></net>"#;

#[test]
fn a_name_that_holds_an_equals_sign_can_be_given() {
    let room = Room::new();
    let model = room.write("model.xml", EQUALS);
    let out = room.path("out.npy");
    let given = ["run", &model, "--input", "x=1=[5,7]", "--input", "x=[1,2]"];
    let output = format!("y==z={out}");
    let rows: &[(&[&str], &str)] = &[
        (&[], "\ny==z = [4, 5]\n"),
        (&["--shape", "x=1=2"], "\ny==z = [4, 5]\n"),
        (&["--output", &output], "out.npy\n"),
        (&["--op-kind", "a=b=Maximum"], "\ny==z = [5, 7]\n"),
        (&["--attr", "a=b.auto_broadcast=none", "--shape", "x=1=2"], "\ny==z = [4, 5]\n"),
        (&["--property", "x=1=variable"], "\ny==z = [4, 5]\n"),
        (&["--type", "x=1=f32"], "\ny==z = [4, 5]\n"),
    ];
    let mut wrong = Vec::new();
    for (more, end) in rows {
        let ended = sterna(&[&given[..], more].concat());
        if ended.code != 0 || !ended.out.contains(end) {
            wrong.push(format!("{more:?}: {} {} {}", ended.code, ended.out, ended.err));
        }
    }
    let filled = sterna(&["run", &model, "--shape", "x=1=2", "--fill", "x=1=3", "--input", "x=[1,2]"]);
    if !filled.out.contains("\ny==z = [2, 1]\n") {
        wrong.push(format!("--fill: {} {}", filled.out, filled.err));
    }
    let unknown = sterna(&["run", &model, "--input", "z=1=[5,7]"]);
    wrong.extend(complaint("unknown", &unknown, 2, "no tensor is named `z`; there are `x=1`, `x`"));
    none_of(wrong);
}
