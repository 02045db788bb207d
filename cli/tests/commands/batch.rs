//! Promise: `sterna batch` runs the graphs that batch files of benchdnn's graph driver list, says of each how
//! it ended, and refuses by file, line and word what it cannot read, however hostile the file is.

use std::fs;

use crate::common::{Ended, Room, complaint, graph, none_of, op, select, sterna, tensor};
use serde_json::{Value, json};

/// A sum of tensors 0 and 1 as tensor 2, of op 0.
fn sum(dims: &[i64]) -> String {
    let port = |id| tensor(id, "f32", dims);
    graph(vec![op(0, "Add", vec![port(0), port(1)], vec![port(2)])])
}

/// A product of tensors 0 and 1 as tensor 2, and its exponential as tensor 3.
fn product(size: i64) -> String {
    let port = |id| tensor(id, "f32", &[size, size]);
    graph(vec![
        op(0, "MatMul", vec![port(0), port(1)], vec![port(2)]),
        op(1, "Exp", vec![port(2)], vec![port(3)]),
    ])
}

/// A folder with graphs, and one of them in a folder of its own.
fn room() -> Room {
    let room = Room::new();
    room.write("sum.json", sum(&[2, 3]));
    room.write("select.json", select("f32", &[4, 5]));
    fs::create_dir(room.path("op")).unwrap();
    room.write("op/product.json", product(6));
    let list = |number: i64| json!({"type": "s64[]", "value": [number]});
    let image = tensor(0, "f32", &[1, 2, 8]);
    let mut pool = op(3, "MaxPool", vec![image.clone()], vec![tensor(1, "f32", &[1, 2, 4])]);
    pool["attrs"] = json!({
        "strides": list(2),
        "pads_begin": list(0),
        "pads_end": list(0),
        "kernel": list(2),
        "data_format": {"type": "string", "value": "NCX"},
    });
    room.write("pool.json", graph(vec![pool]));
    // The axes are data, so that nothing tells the shape before an execution.
    let sum = op(3, "ReduceSum", vec![image, tensor(1, "s32", &[0])], vec![tensor(2, "f32", &[1, 2, 8])]);
    room.write("refused.json", graph(vec![sum]));
    room
}

/// The lines of a batch, without the name of the file.
fn lines(room: &Room, ended: &Ended) -> Vec<String> {
    ended.out.lines().map(|line| line.replace(&room.path(""), "")).collect()
}

#[test]
fn every_graph_of_a_batch_is_a_line() {
    let room = room();
    let batch = room.write(
        "all.batch",
        "# all kinds of lines\n\
         --mode=C -v1 --engine=cpu --graph\n\
         --reset --in-shapes=,0:4x1+1:4x7,\\\n\
         \t\t0:2x3*ba --op-kind=0:Add,0:Maximum --case=sum.json\n\
         --reset --dt=bf16,f16,undef --case=select.json --case=sum.json # the settings stay\n\
         --reset --expected-n-partitions=2 --mb=0,7 --case=op/product.json\n\
         --reset --dt=1:s8+2:s8+3:s8 --case=select.json --reset --case=pool.json\n\
         --reset --expected-n-partitions=0 --attr-fpmath=strict:false,bf16:true --case=op/product.json\n\
         --reset --op-attrs=0:auto_broadcast:none,0:auto_broadcast:undef --in-shapes=1:3 --case=sum.json\n\
         --reset --tensor-property=1:constant --case=sum.json\n\
         --in-shapes=0:scalar+1:-,0:0x3+1:0x3 --case=sum.json --dt=0:s4 --case=sum.json --case=none.json\n",
    );
    let ended = sterna(&["batch", &batch, "--check"]);
    // The file that is missing.
    assert_eq!(ended.code, 1, "{} {}", ended.out, ended.err);
    let found = lines(&room, &ended);
    let expected = [
        "passed   all.batch:4 sum.json --op-kind 0=Add, partitions 1",
        "passed   all.batch:4 sum.json --op-kind 0=Maximum, partitions 1",
        "passed   all.batch:4 sum.json --shape 0=4x1 --shape 1=4x7 --op-kind 0=Add, partitions 1",
        "passed   all.batch:4 sum.json --shape 0=4x1 --shape 1=4x7 --op-kind 0=Maximum, partitions 1",
        "passed   all.batch:4 sum.json --shape '0=2x3*ba' --op-kind 0=Add, partitions 1",
        "passed   all.batch:4 sum.json --shape '0=2x3*ba' --op-kind 0=Maximum, partitions 1",
        "passed   all.batch:5 select.json --type bf16, partitions 1",
        "passed   all.batch:5 select.json --type f16, partitions 1",
        "passed   all.batch:5 select.json, partitions 1",
        "passed   all.batch:5 sum.json --type bf16, partitions 1",
        "passed   all.batch:5 sum.json --type f16, partitions 1",
        "passed   all.batch:5 sum.json, partitions 1",
        "passed   all.batch:6 op/product.json, partitions 1, expected 2",
        "passed   all.batch:6 op/product.json --mb 7, partitions 1, expected 2",
        "passed   all.batch:7 select.json --type 1=s8 --type 2=s8 --type 3=s8, partitions 1",
        "passed   all.batch:7 pool.json, partitions 1",
        "passed   all.batch:8 op/product.json --fpmath strict:false, partitions 1",
        "passed   all.batch:8 op/product.json --fpmath bf16:true, partitions 1",
        "refused  all.batch:9 sum.json --shape 1=3 --attr 0.auto_broadcast=none, partitions 1; Add (op 0)",
        "passed   all.batch:9 sum.json --shape 1=3 --attr 0.auto_broadcast=undef, partitions 1",
        "passed   all.batch:10 sum.json --property 1=constant, partitions 1",
        "passed   all.batch:11 sum.json --shape 0=scalar --shape 1=- --property 1=constant, partitions 1",
        "passed   all.batch:11 sum.json --shape 0=0x3 --shape 1=0x3 --property 1=constant, partitions 1",
        "refused  all.batch:11 sum.json --shape 0=scalar --shape 1=- --type 0=s4 --property 1=constant;",
        "refused  all.batch:11 sum.json --shape 0=0x3 --shape 1=0x3 --type 0=s4 --property 1=constant;",
        "missing  all.batch:11 none.json --shape 0=scalar",
        "missing  all.batch:11 none.json --shape 0=0x3",
        "graphs 27: 22 passed, 3 refused, 2 missing; partitions as expected in ",
    ];
    let pairs = found.iter().zip(expected);
    let wrong = pairs.filter(|(found, expected)| !found.starts_with(expected));
    none_of(wrong.map(|(found, expected)| format!("{expected}\n  {found}")).collect());
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert!(
        ended.err.contains("note: passed over, since it says how benchdnn runs: --graph, --mode, --verbose"),
        "{}",
        ended.err
    );
}

/// The forms that stand in benchdnn's own files.
#[test]
fn what_benchdnn_takes_is_taken() {
    let room = room();
    let batch = room.write(
        "own.batch",
        "--io-shapes=0:4x3+1:1x3 --case=sum.json\n\
         --reset --in-shapes=0:4x3+1*ab:1x3,+0:5x3++1:5x3+ --case=sum.json\n\
         --reset --op-attrs=0:accumulation_mode::strict --case=op/product.json\n\
         --reset --in-shapes=0:ab,0:99999999999999999999,0:2x3*aa --case=sum.json\n\
         --reset --op-kind=0:Conv3 --case=sum.json --reset --dt=0:f33 --case=sum.json\n\
         --reset --tensor-property=0:fixed --case=sum.json\n\
         --reset --dt=bf16 --op-kind=0:Minimum --case=sum.json\n\
         --reset --in-shapes=0:4x3+77:5+1:4x3,88:1 --case=sum.json\n",
    );
    let ended = sterna(&["batch", &batch, "--check"]);
    let found = lines(&room, &ended);
    let expected: &[&[&str]] = &[
        &["passed   own.batch:1 sum.json --shape 0=4x3 --shape 1=1x3, "],
        &["passed   own.batch:2 sum.json --shape 0=4x3 --shape 1=1x3, "],
        &["passed   own.batch:2 sum.json --shape 0=5x3 --shape 1=5x3, "],
        &["passed   own.batch:3 op/product.json --attr 0.accumulation_mode=strict, "],
        &["refused  own.batch:4 sum.json --shape 0=ab; ", "\"ab\" is no dim"],
        &["refused  own.batch:4 sum.json --shape 0=99999999999999999999; ", "is no dim"],
        &["refused  own.batch:4 sum.json --shape '0=2x3*aa'; ", "\"aa\" is no layout"],
        &["refused  own.batch:5 sum.json --op-kind 0=Conv3; ", "no op kind is called \"Conv3\""],
        &["refused  own.batch:5 sum.json --type 0=f33; ", "no type is called \"f33\""],
        &["refused  own.batch:6 sum.json --property 0=fixed; ", "no property is called \"fixed\""],
        &["passed   own.batch:7 sum.json --type bf16 --op-kind 0=Minimum, "],
        &["passed   own.batch:8 sum.json --shape 0=4x3 --shape 1=4x3, "],
        &["passed   own.batch:8 sum.json, "],
        &["graphs 13: 7 passed, 6 refused; "],
    ];
    let pairs = found.iter().zip(expected);
    let wrong = pairs.filter(|(found, parts)| !parts.iter().all(|part| found.contains(part)));
    none_of(wrong.map(|(found, parts)| format!("{parts:?}\n  {found}")).collect());
    assert_eq!((found.len(), ended.code), (expected.len(), 0), "{found:#?} {}", ended.err);
    let said = ended.err.replace(&room.path(""), "");
    let note = "note: passed over, since the graph has no such tensor: --shape 77=5 (own.batch:8), \
                --shape 88=1 (own.batch:8)\n";
    assert_eq!(said, note);
    let commands = sterna(&["batch", &batch, "--commands"]);
    assert!(commands.out.ends_with(&format!("run {}\n", room.path("sum.json"))), "{}", commands.out);
    assert_eq!(commands.err.replace(&room.path(""), ""), note);
}

#[test]
fn a_dry_run_says_what_would_run() {
    let room = room();
    let batch = room.write(
        "dry.batch",
        "--case=sum.json --in-shapes=1:4x3 --case=sum.json --reset --case=pool.json --case=op/product.json",
    );
    let big = room.write("big.json", product(100_000));
    let none = room.write("none.batch", format!("--case=none.json --case={big}"));
    let ended = sterna(&["batch", &batch, "--dry-run"]);
    let found = lines(&room, &ended);
    let expected = [
        "compiled dry.batch:1 sum.json, partitions 1",
        "refused  dry.batch:1 sum.json --shape 1=4x3, partitions 1; Add (op 0)",
        "compiled dry.batch:1 pool.json, partitions 1",
        "compiled dry.batch:1 op/product.json, partitions 1",
        "graphs 4: 3 compiled, 1 refused; partitions as expected in 4 of 4",
    ];
    let wrong = found.iter().zip(expected).filter(|(found, expected)| !found.starts_with(expected));
    none_of(wrong.map(|(found, expected)| format!("{expected}\n  {found}")).collect());
    assert_eq!((found.len(), ended.code), (expected.len(), 0), "{found:#?} {}", ended.err);
    // Each partition as the run itself compiles it: a product of more memory than there is compiles too.
    let ended = sterna(&["batch", &none, "--dry-run"]);
    assert_eq!(ended.code, 1, "{} {}", ended.out, ended.err);
    assert!(ended.out.contains("graphs 2: 1 compiled, 1 missing;"), "{}", ended.out);
    assert_eq!(sterna(&["batch", &batch, "--dry-run", "--strict"]).code, 1);
    for option in ["--check", "--commands", "--time-limit=1"] {
        let ended = sterna(&["batch", &batch, "--dry-run", option]);
        assert_eq!(ended.code, 2, "{option}: {}", ended.err);
    }
}

#[test]
fn a_batch_ends_as_its_graphs_do() {
    let room = room();
    let fine = room.write("fine.batch", "--case=sum.json --in-shapes=0:3x3+1:1x3 --case=sum.json");
    let refused = room.write("refused.batch", "--case=refused.json");
    let more = room.write("more.batch", "--expected-n-partitions=3 --case=sum.json");
    let big = room.write("big.json", product(700));
    let late = room.write("late.batch", format!("--case={big}"));
    let none = room.write("none.batch", "# nothing");
    let rows: &[(&[&str], i32, &str)] = &[
        (&[&fine], 0, "graphs 2: 2 ran; partitions as expected in 2 of 2\n"),
        (&[&fine, "--check", "--strict"], 0, "graphs 2: 2 passed; partitions as expected in 2 of 2\n"),
        (&[&fine, &refused, &more], 0, "graphs 4: 3 ran, 1 refused; partitions as expected in 3 of 4\n"),
        (&[&refused, "--strict"], 1, "graphs 1: 1 refused; partitions as expected in 1 of 1\n"),
        (&[&more, "--strict"], 1, "graphs 1: 1 ran; partitions as expected in 0 of 1\n"),
        (
            &[&late, "--check", "--time-limit", "0.05"],
            0,
            "graphs 1: 1 late; partitions as expected in 1 of 1\n",
        ),
        (&[&late, "--check", "--time-limit", "0.05", "--strict"], 1, "; it took longer than 0.05 s\n"),
        (&[&none], 0, "graphs 0: none; partitions as expected in 0 of 0\n"),
        (&[&more, "--policy", "debug", "--threads", "1"], 0, "graphs 1: 1 ran"),
    ];
    let mut wrong = Vec::new();
    for (args, code, total) in rows {
        let ended = sterna(&[&["batch"], *args].concat());
        if ended.code != *code || !ended.out.contains(total) || !ended.err.is_empty() {
            wrong.push(format!("{args:?}: {} {} {}", ended.code, ended.out, ended.err));
        }
    }
    none_of(wrong);
}

#[test]
fn a_batch_is_data_and_commands_as_well() {
    let room = room();
    let batch =
        room.write("a b.batch", "--in-shapes=,0:*ba --case=sum.json --dt=bf16 --case=op/product.json");
    let ended = sterna(&["batch", &batch, "--check", "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    assert_eq!(report["total"]["graphs"], 4);
    assert_eq!(report["total"]["outcomes"], json!({"passed": 4}));
    assert_eq!(report["graphs"][3]["options"], json!(["--shape", "0=*ba", "--type", "bf16"]));
    assert_eq!(report["graphs"][3]["outcome"], "passed");
    assert_eq!(report["graphs"][3]["expected_partitions"], 1);
    // Each command alone does the same.
    let commands = sterna(&["batch", &batch, "--commands", "--policy", "debug"]);
    assert_eq!((commands.code, &*commands.err), (0, ""));
    let commands: Vec<&str> = commands.out.lines().collect();
    assert_eq!(commands.len(), 4);
    for command in &commands {
        let args = command.strip_prefix("sterna ").unwrap().replace('\'', "");
        let args: Vec<&str> = args.split(' ').collect();
        let ended = sterna(&args);
        assert_eq!(ended.code, 0, "{command}: {} {}", ended.out, ended.err);
    }
    assert!(
        commands[3].ends_with("op/product.json --shape '0=*ba' --type bf16 --policy debug"),
        "{commands:?}"
    );
}

#[test]
fn files_are_found_beside_the_batch_and_in_folders() {
    let room = room();
    fs::create_dir_all(room.path("batches/inner")).unwrap();
    room.write("batches/inner/settings", "--in-shapes=0:5x3,0:6x3");
    room.write("batches/inner/own.json", sum(&[1, 3]));
    room.write("batches/inner/inner.batch", "--case=own.json --case=sum.json");
    let outer = room.write(
        "batches/outer.batch",
        "--batch=inner/settings --in-shapes=,1:1x3 --batch=inner/inner.batch --case=op/product.json",
    );
    let folders = ["--case-dir", &room.path("op"), "--case-dir", &room.path("")];
    let ended = sterna(&[&["batch", &outer, "--check"], &folders[..]].concat());
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    assert!(ended.out.contains("batches/inner/inner.batch:1 own.json, partitions 1\n"), "{}", ended.out);
    assert!(ended.out.contains("graphs 6: 5 passed, 1 refused"), "{}", ended.out);
    // Settings come back from a file that is included.
    let settings = room.write("settings.batch", "--batch=batches/inner/settings --case=sum.json");
    let ended = sterna(&["batch", &settings]);
    assert!(ended.out.contains("sum.json --shape 0=6x3"), "{}", ended.out);
    // Files within a suite name graphs by the folder of the suite.
    room.write("op/harness", "--case=op/product.json --case=product.json");
    let suite = room.write("suite", "--batch=op/harness --case=sum.json --case=product.json");
    let ended = sterna(&["batch", &suite]);
    assert_eq!(ended.code, 1, "{} {}", ended.out, ended.err);
    assert!(ended.out.contains("graphs 4: 3 ran, 1 missing"), "{}", ended.out);
    // A file on the command line starts afresh.
    let plain = room.write("plain.batch", "--case=sum.json");
    let ended = sterna(&["batch", &settings, &plain]);
    assert!(ended.out.contains("plain.batch:1 sum.json, partitions 1\n"), "{}", ended.out);
}

#[test]
fn what_cannot_be_read_is_named() {
    let room = room();
    room.write("self.batch", "--batch=self.batch");
    room.write("twice", "--batch=once --batch=once");
    let wide =
        (0..9).map(|at| room.write(&format!("wide{at}"), format!("--batch=wide{} ", at + 1).repeat(9)));
    assert_eq!(wide.count(), 9);
    room.write("wide6", "--reset");
    let many = format!("--in-shapes={} --dt=f32,bf16,f16 --case=sum.json", ["0:2x3"; 5000].join(","));
    let most = format!("--mb={}", ["1"; 10_001].join(","));
    let all = format!("--mb={} {}", ["1"; 9000].join(","), "--case=sum.json ".repeat(200));
    let rows: &[(&str, &str)] = &[
        (
            "--in-shape=0:2x3",
            "line 1, `--in-shape=0:2x3`: there is no such option; did you mean `in-shapes`?",
        ),
        ("\n\n --reset --frobnicate", "line 3, `--frobnicate`: there is no such option"),
        ("sum.json", "line 1, `sum.json`: there is no such option; options are --NAME=VALUE"),
        ("-vx", "`-vx`: there is no such option"),
        ("--matmul", "`--matmul`: files of another driver"),
        ("--start=3", "`--start=3`: this option cannot be taken: it leaves out cases"),
        ("--engine=gpu:0", "`--engine=gpu:0`: graphs run on the CPU alone"),
        ("--reset=1", "it takes no value"),
        ("--case", "a value is missing"),
        ("--case=", "a value is missing"),
        ("--batch=", "a value is missing"),
        ("--dt", "a value is missing"),
        ("--dt=f32,f33", "no type is called \"f33\""),
        ("--in-shapes=0:2x3+1", "\"1\" is not ID:VALUE"),
        ("--op-attrs=0:axis", "is not ATTRIBUTE:VALUE"),
        ("--expected-n-partitions=-1", "\"-1\" is no number of partitions"),
        ("--mb=x", "\"x\" is no number of samples"),
        ("--batch=nowhere", "`--batch=nowhere`: there is no such file, neither beside this one nor"),
        (
            "--batch=self.batch",
            "self.batch, line 1, `--batch=self.batch`: more than 8 files are within each other",
        ),
        ("--batch=wide0", "more than 1000 files are read"),
        (&many, "the settings make 15000 graphs of one case, and at most 10000 are taken"),
        (&most, "the settings make 10001 graphs of one case"),
        (&all, "graphs of all files, and at most 1000000 are taken"),
    ];
    let mut wrong = Vec::new();
    for (text, message) in rows {
        let batch = room.write("wrong.batch", text);
        let ended = sterna(&["batch", &batch, "--commands"]);
        wrong.extend(complaint(text.get(..40).unwrap_or(text), &ended, 2, message));
        if !ended.out.is_empty() || ended.err.len() > 1000 {
            wrong.push(format!("{text:.40}: {} {}", ended.out, ended.err));
        }
    }
    let binary = room.write("binary.batch", [0xff, 0xfe, 0x00]);
    let long = room.write("long.batch", vec![b'#'; (4 << 20) + 1]);
    let files: &[(&str, &str)] = &[
        (&room.path("nowhere.batch"), "cannot be read: "),
        (&room.path("op"), "cannot be read: it is a directory"),
        (&binary, "cannot be read: it is no text"),
        (&long, "cannot be read: it has more than 4194304 bytes"),
    ];
    for (file, message) in files {
        wrong.extend(complaint(file, &sterna(&["batch", file]), 2, message));
    }
    for time in ["0", "-1", "nan", "1e9", "x"] {
        let ended = sterna(&["batch", &binary, &format!("--time-limit={time}")]);
        wrong.extend(complaint(time, &ended, 2, "write seconds"));
    }
    none_of(wrong);
}

#[test]
fn a_graph_that_breaks_off_does_not_end_the_batch() {
    let room = room();
    room.write("broken.json", "{\"graph\": [");
    // More memory than there is, and an id that no tensor has, which is passed over.
    let batch = room.write(
        "hostile.batch",
        "--case=broken.json --in-shapes=0:2000000000x2000000000+1:2000000000x2000000000 --case=sum.json\n\
         --in-shapes=9:2 --case=sum.json --in-shapes=0:2x3+0:2x3 --case=sum.json --reset --case=sum.json",
    );
    let ended = sterna(&["batch", &batch]);
    let found: Vec<&str> = ended.out.lines().map(|line| line.split(' ').next().unwrap_or("")).collect();
    assert_eq!(found[0], "refused", "{}", ended.out);
    assert!(["refused", "failed"].contains(&found[1]), "{}", ended.out);
    assert_eq!(found[2..5], ["ran", "refused", "ran"], "{}", ended.out);
    assert!(ended.out.contains("--shape names `src_0` (tensor 0) more than once; keep one"), "{}", ended.out);
}
