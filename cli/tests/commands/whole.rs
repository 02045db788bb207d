//! Promise: a graph runs as a whole in one session: its latency, runs a second, memory and profile are told,
//! its results are those of its partitions, and they are held against those of others.

use std::fs;

use serde_json::{Value, json};

use crate::common::{
    Room, complaint, graph, none_of, npy, op, order_of, read_npy, select, sterna, sterna_reading, tensor,
};

/// Three products, one on the result of the other, with a SoftMax behind each.
fn products() -> String {
    let square = |id| tensor(id, "f32", &[8, 8]);
    let product = |id: usize, from, to| op(id, "MatMul", vec![square(from), square(1)], vec![square(to)]);
    let softmax = |id: usize, from, to| {
        let mut softmax = op(id, "SoftMax", vec![square(from)], vec![square(to)]);
        softmax["attrs"] = json!({"axis": {"type": "s64", "value": 0}});
        softmax
    };
    graph(vec![
        product(0, 0, 2),
        softmax(1, 2, 3),
        product(2, 3, 4),
        softmax(3, 4, 5),
        product(4, 5, 6),
        softmax(5, 6, 7),
    ])
}

/// An op that nobody runs, and one behind it.
fn wildcard() -> String {
    let image = |id| tensor(id, "f32", &[2, 3]);
    graph(vec![
        op(0, "Wildcard", vec![image(0)], vec![image(1)]),
        op(1, "Exp", vec![image(1)], vec![image(2)]),
    ])
}

fn report(text: &str, args: &[&str]) -> Value {
    let ended = sterna_reading(text, &[&["run", "-", "--json"], args].concat());
    assert_eq!(ended.code, 0, "{args:?}: {}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn a_total_stands_beside_the_partitions() {
    let mut wrong = Vec::new();
    let rows: [(&[&str], u64, Option<u64>); 4] = [
        (&[], 1, None),
        (&["--repeat", "7"], 1, Some(7)),
        (&["--repeat", "5", "--streams", "3", "--threads", "1"], 3, Some(15)),
        (&["--streams", "2"], 2, None),
    ];
    for (args, streams, runs) in rows {
        let report = report(&products(), args);
        let whole = &report["whole"];
        let times = ["min", "p50", "p90", "p99"].map(|part| whole["latency"][part].as_f64().unwrap_or(-1.0));
        let number = |name: &str| whole[name].as_f64().unwrap_or(-1.0);
        let partitions = report["partitions"].as_array().unwrap().len() as f64;
        let is_fine = times[0] > 0.0
            && times.is_sorted()
            && number("streams") == streams as f64
            && runs.is_none_or(|runs| number("runs") == runs as f64)
            && number("runs_per_second") > 0.0
            && number("plan_seconds") > 0.0
            && number("first_seconds") > 0.0
            && number("partitions") == partitions
            && partitions > 1.0
            && number("run_memory") > 0.0
            && (number("peak_memory") > 1e6 || !cfg!(target_os = "linux"))
            && report["not_whole"].is_null();
        if !is_fine {
            wrong.push(format!("{args:?}: {whole} of {partitions}"));
        }
    }
    let of = |form: &str| sterna_reading(&products(), &["run", "-", "--repeat", "3", "--format", form]).out;
    let (text, csv, markdown) = (of("text"), of("csv"), of("markdown"));
    for line in ["\nwhole graph: one session\n", "  latency  ", " p99 ", "  rate     ", "  memory   "] {
        if !text.contains(line) {
            wrong.push(format!("no {line:?} in {text}"));
        }
    }
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let last = lines.last().unwrap();
    if last[..2] != ["whole", "true"] || last[3] != "session" || lines.iter().any(|l| l.len() != last.len()) {
        wrong.push(csv);
    }
    if !markdown.contains("| whole |  | session | ") {
        wrong.push(markdown);
    }
    none_of(wrong);
}

#[test]
fn what_a_session_does_not_do_runs_by_partition_and_says_so() {
    let rows: [(&str, String, &[&str], &str); 4] = [
        ("check", products(), &["--check"], "--check judges each partition by itself"),
        ("policy", products(), &["--policy", "debug"], "a session has the policy fusion"),
        ("fill", products(), &["--fill", "4=1"], "--fill replaces what is computed"),
        ("missing", wildcard(), &[], "Wildcard"),
    ];
    let mut wrong = Vec::new();
    for (what, text, args, why) in rows {
        let report = report(&text, args);
        let said = report["not_whole"].as_str().unwrap_or_default();
        if !report["whole"].is_null() || !said.contains(why) {
            wrong.push(format!("{what}: {said:?} {}", report["whole"]));
        }
        let text = sterna_reading(&text, &[&["run", "-"], args].concat()).out;
        if !text.contains("\nwhole graph: partitions one by one, ") {
            wrong.push(format!("{what}: {text}"));
        }
    }
    let both = sterna_reading(&products(), &["run", "-", "--check", "--streams", "2"]);
    wrong.extend(complaint("check of streams", &both, 2, "cannot be used with"));
    none_of(wrong);
}

#[test]
fn results_are_the_same_as_a_whole_and_by_partition() {
    let room = Room::new();
    let [whole, apart] = ["whole", "apart"].map(|name| room.path(&format!("{name}.npy")));
    let mut results = Vec::new();
    for (out, args) in [(&whole, &[][..]), (&apart, &["--policy", "debug"])] {
        let output = format!("7={out}");
        let ended = sterna_reading(&products(), &[&["run", "-", "--output", &output], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        results.push(read_npy(out));
    }
    assert_eq!(results[0], results[1]);
}

#[test]
fn results_are_held_against_what_is_expected() {
    let room = Room::new();
    let (four, eight) = (format!("{}f4", order_of(4)), format!("{}f8", order_of(8)));
    let floats = |of: &[f32]| of.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    let file = |name: &str, of: &[f32]| room.write(name, npy(&four, false, "(1, 3)", &floats(of)));
    let same = file("same.npy", &[1.5, 1.5, 1.5]);
    let near = file("near.npy", &[1.5, 1.5015, 1.5]);
    let far = file("far.npy", &[1.5, 1.5, f32::NAN]);
    let doubles: Vec<u8> = [1.5f64; 3].iter().flat_map(|x| x.to_ne_bytes()).collect();
    let wide = room.write("wide.npy", npy(&eight, false, "(1, 3)", &doubles));
    let other = room.write("other.npy", npy(&four, false, "(3,)", &floats(&[1.5; 3])));
    let near_by = "1 of 3 elements are not as expected, atol 0e0, rtol 1e-7; largest absolute error \
                   1.500e-3 at [0, 1], computed 1.5, expected 1.5015";
    let rows: [(&str, &str, &[&str], i32, &str); 8] = [
        ("equal", &same, &[], 0, "all 3 elements are as expected, atol 0e0, rtol 1e-7"),
        ("another type", &wide, &[], 0, "all 3 elements are as expected"),
        ("near", &near, &[], 1, near_by),
        ("near enough, relative", &near, &["--rtol", "0.01"], 0, "are as expected, atol 0e0, rtol 1e-2"),
        ("near enough, absolute", &near, &["--atol", "2e-3"], 0, "are as expected, atol 2e-3"),
        ("not a number", &far, &["--atol", "1e9"], 1, "largest absolute error inf at [0, 2]"),
        ("another shape", &other, &[], 2, ""),
        ("no tolerance", &same, &["--atol", "-1"], 2, ""),
    ];
    let mut wrong = Vec::new();
    for (what, file, more, code, said) in rows {
        let expect = format!("dst={file}");
        let args = ["run", "-", "--fill", "1=1.5", "--fill", "2=1.5", "--expect", &expect];
        let ended = sterna_reading(&select("f32", &[1, 3]), &[&args, more].concat());
        wrong.extend(complaint(what, &ended, code, ""));
        if !ended.out.contains(said) || (code == 1) != ended.err.contains("error: not as expected, tensor 3")
        {
            wrong.push(format!("{what}: no {said:?} in {}{}", ended.out, ended.err));
        }
    }
    // An archive names its tensors, and --check judges beside it.
    let archive = format!("dst={}", room.path("out.npz"));
    let text = select("f32", &[1, 3]);
    let written = sterna_reading(&text, &["run", "-", "--output", &archive, "--seed", "3"]);
    wrong.extend(complaint("written", &written, 0, ""));
    let file = room.path("out.npz");
    for (seed, code) in [("3", 0), ("4", 1)] {
        let ended = sterna_reading(&text, &["run", "-", "--check", "--expect", &file, "--seed", seed]);
        wrong.extend(complaint(seed, &ended, code, ""));
    }
    let unknown = sterna_reading(&text, &["run", "-", "--expect", &format!("dts={same}")]);
    wrong.extend(complaint("unknown", &unknown, 2, "did you mean `dst`?"));
    none_of(wrong);
}

#[test]
fn a_profile_is_a_trace_and_colours_the_graph() {
    let room = Room::new();
    let (graph, trace) = (room.write("graph.json", products()), room.path("trace.json"));
    let ended = sterna(&["run", &graph, "--profile", &trace]);
    let mut wrong: Vec<String> = complaint("run", &ended, 0, "").into_iter().collect();
    if !ended.out.contains("run by") || !ended.out.contains("100.0 %") && !ended.out.contains("MatMul") {
        wrong.push(ended.out);
    }
    let read: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let events = read["traceEvents"].as_array().unwrap();
    let of = |cat: &str| events.iter().filter(|event| event["cat"] == cat).collect::<Vec<_>>();
    for (cat, least) in [
        ("plan", 1),
        ("infer", 1),
        ("partition", 1),
        ("compile", 2),
        ("run", 2),
        ("execute", 4),
        ("phase", 4),
    ] {
        if of(cat).len() < least {
            wrong.push(format!("{} {cat} in {read}", of(cat).len()));
        }
    }
    let times = |event: &Value| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
    // Viewers nest what lies inside of another on one thread.
    for step in of("execute") {
        let (began, took) = times(step);
        let run = of("run").into_iter().find(|run| run["args"]["run"] == step["args"]["run"]).unwrap();
        let (run_began, run_took) = times(run);
        if began < run_began || began + took > run_began + run_took + 0.01 || run["tid"] != step["tid"] {
            wrong.push(format!("{step} in {run}"));
        }
    }
    let json = report(&products(), &["-v"]);
    let kinds = json["whole"]["by_kind"].as_array().unwrap();
    let share: f64 = kinds.iter().map(|kind| kind["share"].as_f64().unwrap()).sum();
    if (share - 1.0).abs() > 1e-9 || report(&products(), &[])["whole"]["by_kind"] != Value::Null {
        wrong.push(format!("shares {kinds:?}"));
    }

    let shown = sterna(&["inspect", &graph, "--profile", &trace]);
    wrong.extend(complaint("inspect", &shown, 0, ""));
    if shown.out.lines().filter(|line| line.starts_with("partition ") && line.ends_with(" %")).count() < 2 {
        wrong.push(shown.out);
    }
    let svg = sterna(&["inspect", &graph, "--profile", &trace, "--format", "svg"]).out;
    if !svg.contains("heat6\"") || sterna(&["inspect", &graph, "--format", "svg"]).out.contains("heat6\"") {
        wrong.push(svg);
    }
    let other = room.write("other.json", select("f32", &[2, 3]));
    let strange = sterna(&["inspect", &other, "--profile", &trace]);
    wrong.extend(complaint("another graph", &strange, 0, "steps of the profile have ops that are none of"));
    let refused = sterna(&["inspect", &graph, "--profile", &graph]);
    wrong.extend(complaint("no trace", &refused, 2, "name a file that `sterna run --profile` wrote"));
    none_of(wrong);
}

#[test]
fn inspect_shows_the_memory_of_a_run() {
    let room = Room::new();
    let graph = room.write("graph.json", products());
    let ended = sterna(&["inspect", &graph]);
    let mut wrong: Vec<String> = complaint("text", &ended, 0, "").into_iter().collect();
    let lines: Vec<&str> = ended.out.lines().skip_while(|line| !line.starts_with("arena: ")).collect();
    let rows = lines.iter().skip_while(|line| !line.starts_with("  tensors")).skip(1).count();
    let said = format!("buffers {rows}, ");
    if rows == 0 || !lines[0].contains(&said) {
        wrong.push(ended.out);
    }
    let svg = room.path("arena.svg");
    wrong.extend(complaint("svg", &sterna(&["inspect", &graph, "--format", "arena", "-o", &svg]), 0, ""));
    let svg = fs::read_to_string(&svg).unwrap();
    let bars = |text: &str| {
        let document = roxmltree::Document::parse(text).unwrap();
        let is_bar = |node: &roxmltree::Node<'_, '_>| {
            node.attribute("class").is_some_and(|class| class.starts_with("bar "))
        };
        document.descendants().filter(is_bar).count()
    };
    if bars(&svg) != rows {
        wrong.push(svg);
    }
    let page = sterna(&["inspect", &graph, "--format", "html"]).out;
    if !page.contains("Memory of a run") || page.matches("class=\"bar ").count() != rows {
        wrong.push(page);
    }
    // A transpose that a product needs is moved; one of an output is copied there.
    let mut turned =
        op(0, "StaticTranspose", vec![tensor(0, "f32", &[2, 3])], vec![tensor(1, "f32", &[3, 2])]);
    turned["attrs"] = json!({"order": {"type": "s64[]", "value": [1, 0]}});
    let copy = sterna_reading(&crate::common::graph(vec![turned]), &["inspect", "-"]).out;
    if !copy.contains("  copies   step 0, StaticTranspose, partition 0\n") {
        wrong.push(copy);
    }
    for (what, text, args, why) in [
        ("missing", wildcard(), &[][..], "arena: none, "),
        ("policy", products(), &["--policy", "debug"], "arena: none, a session has the policy fusion"),
    ] {
        let out = sterna_reading(&text, &[&["inspect", "-"], args].concat()).out;
        if !out.contains(why) {
            wrong.push(format!("{what}: {out}"));
        }
    }
    none_of(wrong);
}

#[test]
fn a_bench_has_percentiles_of_a_graph_as_a_whole() {
    let room = Room::new();
    let (several, one) =
        (room.write("several.json", products()), room.write("one.json", select("f32", &[2, 3])));
    let saved = room.path("saved.json");
    let mut wrong = Vec::new();
    let rows: [(&str, &str, &[&str], u64); 3] = [
        ("several", &several, &[], 1),
        ("callers", &several, &["--streams", "2", "--save", &saved], 2),
        ("one", &one, &["--streams", "1"], 1),
    ];
    for (what, graph, more, streams) in rows {
        let args = ["bench", graph, "--threads", "1", "--time", "0.01", "--filter", "/whole", "--json"];
        let ended = sterna(&[&args, more].concat());
        wrong.extend(complaint(what, &ended, 0, ""));
        let run: Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let whole = &run["cases"][0]["whole"];
        let times = ["min", "p50", "p90", "p99"].map(|part| whole["latency"][part].as_f64().unwrap_or(-1.0));
        if whole["streams"] != streams || times[0] <= 0.0 || !times.is_sorted() {
            wrong.push(format!("{what}: {run}"));
        }
    }
    let [text, csv, markdown] =
        ["text", "csv", "markdown"].map(|form| sterna(&["bench", "--load", &saved, "--format", form]).out);
    if !text.contains("\nruns of a whole graph  threads  streams ") || !markdown.contains("| runs of a whole")
    {
        wrong.push(format!("{text}{markdown}"));
    }
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let place = lines[0].iter().position(|column| *column == "streams");
    if lines.len() != 2 || place.and_then(|place| lines[1].get(place).copied()) != Some("2") {
        wrong.push(csv);
    }
    let alone = sterna(&["bench", &one, "--list"]).out;
    if alone != "one\n" {
        wrong.push(alone);
    }
    none_of(wrong);
}

/// Ctrl-C, which a terminal sends as this signal.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_leaves_what_was_measured_of_the_whole() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::Command;
    use std::thread::sleep;
    use std::time::Duration;

    use crate::common::started;

    let mut child = started(&["run", "-", "--repeat", "2000000000"]);
    child.stdin.take().unwrap().write_all(products().as_bytes()).unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    // The times so far are kept every now and then.
    sleep(Duration::from_millis(2500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    assert!(err.starts_with("error: interrupted in the graph as a whole; 0 of "), "{err}");
    out.read_to_string(&mut said).unwrap();
    assert!(said.contains("whole graph: one session\n") && said.contains(" p99 "), "{said}");
}
