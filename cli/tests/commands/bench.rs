//! Runs `sterna bench` as a process: what it measures, saves, compares, draws and refuses.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{attention, graph, op, tensor};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn bench(args: &[&str]) -> Ended {
    bench_reading("", args)
}

fn bench_reading(stdin: &str, args: &[&str]) -> Ended {
    let mut child = sterna(args).stdin(Stdio::piped()).spawn().unwrap();
    // A process that refuses its arguments never reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    ended(child.wait_with_output().unwrap())
}

fn sterna(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sterna"));
    command.arg("bench").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("STERNA_NUM_THREADS").env_remove("OMP_NUM_THREADS");
    command
}

fn ended(output: std::process::Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// A sentence on a process that ended in another way than expected.
    fn complaint(&self, what: &str, code: i32, message: &str) -> Option<String> {
        let fine = self.code == code && self.err.contains(message) && !self.err.contains("panicked");
        (!fine).then(|| format!("{what}: exit {} for {code}, no {message:?} in {:?}", self.code, self.err))
    }
}

/// A folder for one test.
struct Room(TempDir);

impl Room {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// Fails with all that was found wrong.
fn none_of(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/graphs").join(name)
}

/// A saved run with cases of (name, threads, quartiles and median in milliseconds).
fn saved(cpu: &str, cases: &[(&str, usize, [f64; 3])]) -> Value {
    let sample = |[lower, median, upper]: [f64; 3]| {
        let [lower, median, upper] = [lower, median, upper].map(|milliseconds| milliseconds * 1e-3);
        json!({"median": median, "lower": lower, "upper": upper})
    };
    let case = |(name, threads, times): &(&str, usize, [f64; 3])| {
        json!({
            "name": name, "threads": threads, "bytes": {"read": 2_000_000, "written": 1_000_000}, "rounds": 9,
            "seconds": sample(*times), "limit": sample([0.1, 0.1, 0.1]), "share": 0.1 / times[1],
            "share_quartiles": [0.1 / times[2], 0.1 / times[0]],
        })
    };
    json!({
        "format": 1, "date": "2026-11-24", "sterna": "0.1.0", "level": "avx2", "subject": "made up",
        "seconds_per_case": 0.5,
        "machine": {"cpu": cpu, "threads": 2, "arch": "x86_64", "os": "linux", "caches": [32768, 1 << 20]},
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "ceilings": [
            {"threads": 1, "bytes": 16384, "seconds": 1e-6},
            {"threads": 1, "bytes": 16_777_216, "seconds": 1e-3},
        ],
    })
}

/// True if the numbers can come from a measurement.
fn plausible(case: &Value) -> bool {
    let is_sample = |sample: &Value| {
        let [lower, median, upper] = ["lower", "median", "upper"].map(|part| sample[part].as_f64().unwrap());
        0.0 < lower && lower <= median && median <= upper && upper < 10.0
    };
    is_sample(&case["seconds"])
        && is_sample(&case["limit"])
        && case["share"].as_f64().unwrap() > 0.0
        && case["rounds"].as_u64().unwrap() >= 5
}

#[test]
fn a_graph_is_measured_from_a_file_and_from_standard_input() {
    let path = example("select_plain.json");
    let text = fs::read_to_string(&path).unwrap();
    let shapes =
        ["--override-shape", "10=64x50", "--override-shape", "11=64x50", "--override-shape", "12=64x50"];
    let more =
        [&shapes[..], &["--time", "0.001", "--threads", "1,2,1", "--json", "--fill", "10=padding"]].concat();
    for (source, stdin, name) in [(path.to_str().unwrap(), "", "select_plain"), ("-", text.as_str(), "stdin")]
    {
        let ended = bench_reading(stdin, &[&[source][..], &more].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        let run = ended.json();
        assert_eq!(run["subject"], name);
        let cases = run["cases"].as_array().unwrap();
        let threads: Vec<u64> = cases.iter().map(|case| case["threads"].as_u64().unwrap()).collect();
        assert_eq!(threads, [1, 2], "each number of threads once");
        for case in cases {
            assert_eq!(case["name"], name);
            assert_eq!(case["bytes"], json!({"read": 9 * 3200, "written": 4 * 3200}));
            assert!(plausible(case), "{case}");
        }
        assert!(run["comparison"].is_null() && run["ceilings"].as_array().unwrap().is_empty());
    }
}

#[test]
fn every_graph_of_the_suite_runs_and_text_goes_where_it_belongs() {
    let ended = bench(&["--suite", "fusion", "--filter", "/16", "--time", "0.001", "--threads", "1"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for name in ["causal_scale_select/16 ", "t5_bucket/16384 ", "chain_of_12/16 ", "share: of that limit"] {
        assert!(ended.out.contains(name), "{name} is missing in {}", ended.out);
    }
    // Neither a bar nor colours where nobody looks.
    assert!(!ended.out.contains('\x1b') && !ended.err.contains('\x1b'), "{}", ended.err);
    assert!(ended.err.lines().all(|line| line.starts_with("note: ")), "{}", ended.err);
}

#[test]
fn attention_is_measured_beside_the_longer_limit() {
    let ended = bench(&[
        "--suite",
        "attention",
        "--filter",
        "grouped-causal",
        "--time",
        "0.001",
        "--threads",
        "1,2",
        "--json",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let run = ended.json();
    let cases = run["cases"].as_array().unwrap();
    let name = "grouped-causal/f32/8of2x1024x64";
    let is_named = |case: &Value| case["name"].as_str().unwrap().starts_with(name);
    assert!(!cases.is_empty() && cases.iter().all(plausible) && cases.iter().all(is_named), "{cases:?}");
    // One partition is limited by its arithmetic, which takes many times as long as its bytes whatever else
    // the machine does; of several, nobody knows the parts.
    if let [case] = &cases.iter().filter(|case| case["threads"] == 1).collect::<Vec<_>>()[..] {
        let pairs = 1024.0 * 1025.0 / 2.0;
        assert_eq!(case["operations"].as_f64(), Some(4.0 * 8.0 * 64.0 * pairs), "{case}");
    }
}

#[test]
fn tiles_that_a_mask_leaves_out_are_counted_in_every_form() {
    let room = Room::new();
    let (by_indices, by_tensor) =
        (room.write("indices.json", attention(false)), room.write("tensor.json", attention(true)));
    let mut wrong = Vec::new();
    // A tensor filled as the indices say has the same tiles.
    for args in [vec![by_indices.as_str()], vec![by_tensor.as_str(), "--fill", "4=causal"]] {
        let saved = room.path("run.json");
        let measured = bench(&[&args[..], &["--time", "0.001", "--threads", "1", "--save", &saved]].concat());
        wrong.extend(measured.complaint(&format!("{args:?}"), 0, ""));
        let forms = ["text", "json", "csv", "markdown"];
        let [text, json, csv, markdown] =
            forms.map(|format| bench(&["--load", &saved, "--format", format]).out);
        let json: Value = serde_json::from_str(&json).unwrap();
        let numbers = json!({"masked": 14, "constant": 0, "full": 6, "partial": 4});
        let of_csv: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        let in_csv = |name: &str| {
            of_csv[0]
                .iter()
                .position(|column| *column == name)
                .and_then(|column| of_csv[1].get(column).copied())
        };
        if ![&measured.out, &text, &markdown].iter().all(|out| out.contains("14/24 skipped"))
            || json["cases"][0]["mask_tiles"] != numbers
            || (in_csv("mask_tiles"), in_csv("mask_tiles_skipped")) != (Some("24"), Some("14"))
        {
            wrong.push(format!("{args:?}: {}{text}{json}{csv}{markdown}", measured.out));
        }
    }
    // Neither a case without a mask nor a run of an older version says anything of tiles.
    let run = room.write("old.json", saved("made up", &[("case", 1, [1.0; 3])]).to_string());
    let [text, csv] = ["text", "csv"].map(|format| bench(&["--load", &run, "--format", format]).out);
    if text.contains("skipped") || !csv.lines().nth(1).is_some_and(|line| line.ends_with(",,")) {
        wrong.push(format!("{text}{csv}"));
    }
    none_of(wrong);
}

#[test]
fn rates_are_in_the_unit_of_the_limit() {
    let room = Room::new();
    let mut run = saved("made up", &[("bytes", 1, [1.0; 3]), ("products", 1, [2.0; 3])]);
    run["cases"][1]["operations"] = json!(4e6);
    let ended = bench(&["--load", &room.write("run.json", run.to_string())]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let cells = |name: &str| {
        let line = ended.out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let [bytes, products] = ["bytes", "products"].map(cells);
    assert!(bytes.ends_with(&["3.00", "GB/s", "30.0", "0.10"].map(String::from)), "{bytes:?}");
    assert!(products.ends_with(&["2.00", "GFLOP/s", "40.0", "0.05"].map(String::from)), "{products:?}");
    run["cases"][1]["operations"] = json!(-1.0);
    let ended = bench(&["--load", &room.write("run.json", run.to_string())]);
    none_of(ended.complaint("operations below 0", 2, "cannot be").into_iter().collect());
}

#[test]
fn suites_of_products_and_rows_run() {
    for (suite, filter, cases) in [
        ("matmul", "64x64", 1),
        ("matmul", "384x64", 1),
        ("matmul", "1x4096x4096/u8s8", 1),
        ("rows", "64x12x64x64/bf16", 4),
    ] {
        let ended = bench(&["--suite", suite, "--filter", filter, "--time", "0.001", "--threads", "1"]);
        assert_eq!(ended.code, 0, "{suite}: {}", ended.err);
        let is_case = |line: &&str| line.split_whitespace().next().is_some_and(|name| name.contains(filter));
        assert_eq!(ended.out.lines().filter(is_case).count(), cases, "{}", ended.out);
    }
}

#[test]
fn suites_list_their_cases() {
    let count = |args: &[&str]| {
        let ended = bench(args);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let mut names: Vec<String> = ended.out.lines().map(Into::into).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "a name is there twice in {names:?}");
        all
    };
    assert_eq!(count(&["--suite", "select", "--list"]), 13);
    assert_eq!(count(&["--suite", "fusion", "--list"]), 30);
    assert_eq!(count(&["--suite", "matmul", "--list"]), 20);
    assert_eq!(count(&["--suite", "rows", "--list"]), 16);
    assert_eq!(count(&["--suite", "select", "--list", "--filter", "f16", "--filter", "causal"]), 2);
}

/// A reduction that no partition runs, because its shape is known when the data of its axes is.
fn sum_over_axes_in_a_tensor(id: usize, from: usize, to: usize) -> Value {
    let inputs = vec![tensor(from, "f32", &[4]), tensor(9, "s32", &[0])];
    op(id, "ReduceSum", inputs, vec![tensor(to, "f32", &[4])])
}

#[test]
fn partitions_around_those_that_do_not_run_are_measured() {
    let room = Room::new();
    let select = |id, from, to| {
        let inputs = vec![tensor(0, "boolean", &[4]), tensor(from, "f32", &[4]), tensor(2, "f32", &[4])];
        op(id, "Select", inputs, vec![tensor(to, "f32", &[4])])
    };
    let chain = graph(vec![select(0, 1, 3), sum_over_axes_in_a_tensor(1, 3, 4), select(2, 4, 5)]);
    let chain = room.write("chain.json", chain);
    let ended = bench(&[&chain, "--time", "0.001", "--threads", "1", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let run = ended.json();
    let cases = run["cases"].as_array().unwrap();
    assert!(!cases.is_empty() && cases.iter().all(plausible), "{cases:?}");
    assert!(cases.iter().all(|case| case["name"].as_str().unwrap().starts_with("chain/")), "{cases:?}");
    let left_out = "ReduceSum is left out: no kernel runs ReduceSum";
    assert!(ended.err.contains(left_out), "{}", ended.err);
    assert!(run["notes"].to_string().contains(left_out), "{}", run["notes"]);
}

#[test]
fn a_run_is_saved_loaded_compared_and_drawn() {
    let room = Room::new();
    let (file, picture) = (room.path("run.json"), room.path("run.svg"));
    let ended = bench(&[
        "--suite",
        "select",
        "--filter",
        "all-16/",
        "--time",
        "0.001",
        "--threads",
        "1,2",
        "--save",
        &file,
        "--plot",
        &picture,
    ]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let run: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(run["sterna"], env!("CARGO_PKG_VERSION"));
    assert_eq!(run["cases"].as_array().unwrap().len(), 2);
    let ceilings = run["ceilings"].as_array().unwrap();
    assert_eq!(ceilings.len(), 2 * 17, "from 4 KiB to 256 MiB on each number of threads");
    assert!(ceilings.iter().all(|ceiling| ceiling["seconds"].as_f64().unwrap() > 0.0));
    assert!(fs::read_to_string(&picture).unwrap().contains("all-16/f32/random"));

    // A saved run is the same as itself, on the machine where it was made.
    let ended = bench(&["--load", &file, "--against", &file, "--fail-if-slower", "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let cases = ended.json()["comparison"]["cases"].clone();
    for case in cases.as_array().unwrap() {
        // Of measurements that short, the rounds may spread too much to say even that.
        let [lower, upper] = ["lower", "upper"].map(|part| case["ratio_now"][part].as_f64().unwrap());
        let verdict = if upper / lower - 1.0 <= 0.1 { "same" } else { "cannot_tell" };
        assert_eq!((&case["verdict"], case["ratio_change"].as_f64()), (&json!(verdict), Some(0.0)), "{case}");
    }
    let date = run["date"].as_str().unwrap();
    let digits =
        date.split('-').map(|part| part.len() * usize::from(part.bytes().all(|b| b.is_ascii_digit())));
    assert_eq!(digits.collect::<Vec<usize>>(), [4, 2, 2], "{date}");
    assert!(fs::read_to_string(&picture).unwrap().contains(date));
}

#[test]
fn runs_are_compared_beyond_the_noise() {
    let room = Room::new();
    let before = saved(
        "a cpu",
        &[
            ("quicker", 1, [9.0, 10.0, 11.0]),
            ("slower", 1, [9.9, 10.0, 10.1]),
            ("slower", 2, [9.9, 10.0, 10.1]),
            ("little", 1, [10.0, 10.0, 10.0]),
            ("noisy", 1, [5.0, 10.0, 20.0]),
            ("as noisy", 1, [9.0, 10.0, 11.0]),
            ("gone", 1, [1.0, 1.0, 1.0]),
        ],
    );
    let now = saved(
        "a cpu",
        &[
            ("quicker", 1, [7.9, 8.0, 8.1]),
            ("slower", 1, [11.9, 12.0, 12.1]),
            ("slower", 2, [9.9, 10.0, 10.1]),
            ("little", 1, [10.2, 10.2, 10.2]),
            ("noisy", 1, [6.0, 19.0, 30.0]),
            ("as noisy", 1, [9.0, 10.0, 11.0]),
            ("new", 3, [1.0, 1.0, 1.0]),
        ],
    );
    let (before, now) =
        (room.write("before.json", before.to_string()), room.write("now.json", now.to_string()));
    let both = ["--load", &now, "--against", &before];
    let ended = bench(&[&both[..], &["--json"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let comparison = ended.json()["comparison"].clone();
    let verdicts: Vec<String> = comparison["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| format!("{} {} {}", case["name"].as_str().unwrap(), case["threads"], case["verdict"]))
        .collect();
    assert_eq!(
        verdicts,
        [
            "quicker 1 \"faster\"",
            "slower 1 \"slower\"",
            "slower 2 \"same\"",
            "little 1 \"same\"",
            "noisy 1 \"cannot_tell\"",
            "as noisy 1 \"cannot_tell\"",
        ]
    );
    assert_eq!(comparison["only_before"], json!([["gone", 1]]));
    assert_eq!(comparison["only_now"], json!([["new", 3]]));
    assert_eq!(comparison["notes"], json!([]));

    let ended = bench(&both);
    for part in [
        "1 faster, 1 slower, 2 the same, 2 cannot tell; judged by the ratio",
        "only in the saved run: gone (1 thread)",
        "only in this run: new (3 threads)",
        "+20.0 %",
        "-20.0 %",
    ] {
        assert!(ended.out.contains(part), "{part} is missing in {}", ended.out);
    }
    let fail = [&both[..], &["--fail-if-slower"]].concat();
    assert_eq!(bench(&fail).code, 1);
    // A filter takes from both runs.
    let ended = bench(&[&fail[..], &["--filter", "quicker", "--filter", "little"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(!ended.out.contains("only in"), "{}", ended.out);
}

#[test]
fn a_case_is_judged_by_the_limit_beside_it() {
    let room = Room::new();
    let before = saved("a cpu", &["a", "b", "c", "d"].map(|name| (name, 1, [1.0; 3])));
    let times = [("a", 2.0), ("b", 1.0), ("c", 2.0), ("d", 0.922)];
    let mut now = saved("a cpu", &times.map(|(name, time)| (name, 1, [time; 3])));
    // The whole machine became half as fast beside `a` and `b`, whose ratio says that it is better although
    // its time is the same. Beside `d` the copies got faster still than the case.
    for (case, limit) in [(0, 2.0), (1, 2.0), (3, 0.39)] {
        let of_limit = &mut now["cases"][case];
        let seconds = 1e-4 * limit;
        of_limit["limit"] = json!({"median": seconds, "lower": seconds, "upper": seconds});
        let share = 0.1 * limit / times[case].1;
        of_limit["share"] = json!(share);
        of_limit["share_quartiles"] = json!([share, share]);
    }
    // Runs of older versions have no quartiles of the share.
    now["cases"][0].as_object_mut().unwrap().remove("share_quartiles");
    // Another amount of work has another limit.
    now["cases"][2]["bytes"] = json!({"read": 1_000_000, "written": 1_000_000});
    let (before, now) =
        (room.write("before.json", before.to_string()), room.write("now.json", now.to_string()));
    let both = ["--load", &now, "--against", &before];
    let ended = bench(&[&both[..], &["--json"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let cases = ended.json()["comparison"]["cases"].clone();
    let verdicts: Vec<&Value> = cases.as_array().unwrap().iter().map(|case| &case["verdict"]).collect();
    assert_eq!(verdicts, ["same", "disagree", "cannot_tell", "disagree"], "{cases}");
    let said = bench(&both).out;
    assert!(said.contains("0 faster, 0 slower, 1 the same, 2 disagree, 1 cannot tell; judged"), "{said}");
    assert!(said.contains("disagree: the ratio changed and the time did not change with it"), "{said}");
    let notes = "note: 1 of 4 cases move other bytes or compute more or less";
    none_of(bench(&both).complaint("other work", 0, notes).into_iter().collect());
    none_of(bench(&both).complaint("the machine", 0, "% longer than in the saved run").into_iter().collect());
    assert_eq!(bench(&[&both[..], &["--fail-if-slower"]].concat()).code, 0);
}

#[test]
fn a_run_comes_in_every_form() {
    let room = Room::new();
    let before = saved("a cpu", &[("a, \"b\"", 1, [2.0; 3]), ("c|d", 2, [1.0; 3])]);
    let now = saved("a cpu", &[("a, \"b\"", 1, [1.0, 1.0, 1.0]), ("c|d", 1, [1.0; 3])]);
    let (before, now) =
        (room.write("before.json", before.to_string()), room.write("now.json", now.to_string()));
    let of = |args: &[&str]| {
        let ended = bench(&[&["--load", &now], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended.out
    };
    let csv = of(&["--format", "csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("case,threads,bytes_read,bytes_written,operations,rounds,seconds,"),
        "{csv}"
    );
    assert!(lines[1].starts_with("\"a, \"\"b\"\"\",1,2000000,1000000,,9,0.001,0.001,0.001,0.0001,"), "{csv}");
    assert_eq!(lines.len(), 3, "{csv}");
    let csv = of(&["--format", "csv", "--against", &before]);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",saved_seconds,time_change,limit_change,ratio_change,verdict"), "{csv}");
    assert!(lines[1].ends_with(",0.002,-0.5,0,-0.5,faster") && lines[2].ends_with(",,,,,"), "{csv}");
    let markdown = of(&["--format", "markdown", "--against", &before]);
    for line in [
        "| case | threads | moved | time | quartiles | rate |  | limit | share |\n|---|--:|",
        "| c\\|d | 1 | 2.9 MiB | 1.00 ms | +0.0 +0.0 % | 3.00 | GB/s | 30.0 | 0.10 |\n",
        "| a, \"b\" | 1 | 2.00 ms | 1.00 ms | -50.0 % | +0.0 % | -50.0 % | faster |\n",
        "1 faster, 0 slower, 0 the same, 0 cannot tell; judged by",
        "only in this run: c|d (1 thread)",
    ] {
        assert!(markdown.contains(line), "no {line:?} in {markdown}");
    }
    let json: Value = serde_json::from_str(&of(&["--format", "json"])).unwrap();
    assert_eq!(json["cases"].as_array().unwrap().len(), 2);
}

#[test]
fn runs_of_other_machines_are_compared_with_a_word_of_warning() {
    let room = Room::new();
    let here = room.write("here.json", saved("a cpu", &[("a", 1, [1.0, 1.0, 1.0])]).to_string());
    let there = room.write("there.json", saved("another", &[("a", 1, [2.0, 2.0, 2.0])]).to_string());
    let ended = bench(&["--load", &here, "--against", &there]);
    let warning = "note: the saved run is of another machine (another, 2 threads, linux x86_64, here a cpu";
    none_of(ended.complaint("another machine", 0, warning).into_iter().collect());
    assert!(ended.out.contains("1 faster"), "{}", ended.out);
    let ended = bench(&["--load", &here, "--against", &there, "--fail-if-slower"]);
    none_of(ended.complaint("judging", 2, "cannot judge by a run of another machine").into_iter().collect());
    // A new run is of this machine, which is neither: that is said before anything is measured.
    let ended = bench(&["--suite", "select", "--against", &there, "--fail-if-slower"]);
    none_of(
        ended.complaint("measuring", 2, "cannot judge by a run of another machine").into_iter().collect(),
    );
}

#[test]
fn a_plot_shows_every_case_and_is_whole() {
    let room = Room::new();
    let names: Vec<String> = (0..30).map(|n| format!("case <{n}> & \"more\"")).collect();
    let cases: Vec<(&str, usize, [f64; 3])> = names
        .iter()
        .enumerate()
        .flat_map(|(n, name)| [1, 2].map(|threads| (name.as_str(), threads, [1.0 + (n % 7) as f64; 3])))
        .collect();
    let run = room.write("run.json", saved("a cpu", &cases).to_string());
    let picture = room.path("run.svg");
    let ended = bench(&["--load", &run, "--plot", &picture]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let svg = fs::read_to_string(&picture).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let of = |tag: &'static str| document.descendants().filter(move |node| node.has_tag_name(tag));
    let texts: Vec<&str> = of("text").filter_map(|node| node.text()).map(str::trim).collect();
    let missing: Vec<&String> = names.iter().filter(|name| !texts.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} of {texts:?}");
    let machine = "a cpu, 2 threads, linux x86_64 · sterna 0.1.0, level avx2 · 2026-11-24";
    for text in [
        machine,
        "made up",
        "streaming limit, 1 thread",
        "cases and quartiles, 2 threads",
        "L1 32 KiB",
        "L2 1 MiB",
        "GB/s",
    ] {
        assert!(texts.contains(&text), "{text} of {texts:?}");
    }
    // Beside the number in the list, each case has one at its point.
    for number in ["1", "17", "30"] {
        assert!(texts.iter().filter(|text| **text == number).count() >= 3, "{number} of {texts:?}");
    }
    assert!(svg.contains("prefers-color-scheme:dark"));
    let size = |side: &str| document.root_element().attribute(side).unwrap().parse::<f64>().unwrap();
    let (width, height) = (size("width"), size("height"));
    for node in of("text").chain(of("circle")) {
        let at = |axis: &str| node.attribute(axis).or(node.attribute(if axis == "x" { "cx" } else { "cy" }));
        let [x, y] = ["x", "y"].map(|axis| at(axis).unwrap().parse::<f64>().unwrap());
        assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{node:?} lies outside");
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_a_hint() {
    let room = Room::new();
    let good = saved("a cpu", &[("a", 1, [1.0, 1.0, 1.0])]);
    let with = |name: &str, pointer: &str, value: Value| {
        let mut run = good.clone();
        *run.pointer_mut(pointer).unwrap() = value;
        room.write(name, run.to_string())
    };
    let fine = room.write("fine.json", good.to_string());
    let other = room.write("other.json", saved("a cpu", &[("b", 1, [1.0, 1.0, 1.0])]).to_string());
    let no_json = room.write("no.json", "no");
    let format = with("format.json", "/format", json!(7));
    let zero = with("zero.json", "/cases/0/seconds/median", json!(0.0));
    let quartiles = with("quartiles.json", "/cases/0/share_quartiles", json!([0.2, 0.3]));
    let upside_down = with("down.json", "/cases/0/seconds/lower", json!(2.0));
    let negative = with("negative.json", "/ceilings/0/seconds", json!(-1.0));
    let case = good["cases"][0].clone();
    let twice = with("twice.json", "/cases", json!([case, case]));
    let empty = with("empty.json", "/cases", json!([]));
    let no_bytes = with("bytes.json", "/cases/0/bytes", json!({"read": 0, "written": 0}));
    let graph = example("select_plain.json");
    let graph = graph.to_str().unwrap();
    let (folder, nowhere) = (room.path(""), room.path("nowhere/run.json"));
    let reduce = room.write("reduce.json", crate::common::graph(vec![sum_over_axes_in_a_tensor(0, 0, 2)]));
    let suite = ["--suite", "select", "--filter", "all-16/", "--time", "0.001"];
    let rows: &[(&[&str], i32, &str)] = &[
        (&[], 2, "required"),
        (&["--suite", "none"], 2, "possible values: select, fusion"),
        (&[graph, "--suite", "select"], 2, "cannot be used with"),
        (&[graph, "--threads", ""], 2, "it names no number"),
        (&[graph, "--threads", ","], 2, "write numbers from 1 to 4096"),
        (&[graph, "--threads", "0"], 2, "\"0\" is no number of threads"),
        (&[graph, "--threads", "1,-2"], 2, "\"-2\" is no number of threads"),
        (&[graph, "--threads", "5000"], 2, "write numbers from 1 to 4096"),
        (&[graph, "--time", "0"], 2, "write seconds from 0.001 to 3600"),
        (&[graph, "--time", "nan"], 2, "write seconds from 0.001 to 3600"),
        (&[graph, "--fill", "99=ones"], 2, "--fill names tensor 99, which is not an input of the graph"),
        (
            &[graph, "--fill", "10=true", "--fill", "10=false"],
            2,
            "--fill names `cond` (tensor 10) more than once",
        ),
        (&[graph, "--override-shape", "99=2"], 2, "--shape names tensor 99"),
        (&[graph, "--override-shape", "10=3", "--time", "0.001"], 1, "cannot be measured"),
        (&[graph, "--filter", "zzz"], 2, "--filter takes none of the cases; choose from select_plain"),
        (&["--suite", "select", "--fill", "0=ones"], 2, "cannot be used with"),
        (&[&nowhere], 2, "cannot open"),
        (&[&no_json], 1, "cannot read a graph from"),
        (&[&reduce], 2, "the graph has no partition that runs"),
        (&[suite[0], suite[1], "--save", &nowhere], 2, "is no folder"),
        (&[suite[0], suite[1], "--plot", &folder], 2, "name a file"),
        (&[suite[0], suite[1], "--against", &nowhere], 2, "name a file that `sterna bench --save` wrote"),
        (&[suite[0], suite[1], "--fail-if-slower"], 2, "--against"),
        (&["--load", &fine, "--threads", "1"], 2, "cannot be used with"),
        (&["--load", &no_json], 2, "line 1 column"),
        (&["--load", &format], 2, "it is of format 7, and format 1 is known here"),
        (&["--load", &zero], 2, "holds a time, share or number that cannot be"),
        (&["--load", &quartiles], 2, "holds a time, share or number that cannot be"),
        (&["--load", &upside_down], 2, "holds a time, share or number that cannot be"),
        (&["--load", &negative], 2, "it holds a streaming limit that cannot be"),
        (&["--load", &twice], 2, "it holds case \"a\" on 1 threads twice"),
        (&["--load", &empty], 2, "no case"),
        (&["--load", &fine, "--filter", "zzz"], 2, "no case that --filter takes"),
        (&["--load", &fine, "--against", &other], 2, "have no case in common"),
        (&["--load", &no_bytes, "--plot", &room.path("p.svg")], 1, "there is nothing to draw"),
        (&["--load", &fine], 0, ""),
    ];
    let mut wrong = Vec::new();
    for (args, code, message) in rows {
        wrong.extend(bench(args).complaint(&format!("{args:?}"), *code, message));
    }
    none_of(wrong);
}

#[test]
fn the_environment_lowers_threads_and_a_note_says_so() {
    let args = ["--suite", "select", "--filter", "all-16/", "--time", "0.001", "--threads", "1,2", "--json"];
    let output = sterna(&args).env("STERNA_NUM_THREADS", "1").stdin(Stdio::null()).output().unwrap();
    let ended = ended(output);
    none_of(ended.complaint("one thread", 0, "the environment lowers 2 threads to 1").into_iter().collect());
    assert_eq!(ended.json()["cases"].as_array().unwrap().len(), 1);
}

/// Ctrl-C, which a terminal sends as this signal.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_a_run_with_what_was_measured() {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    let room = Room::new();
    let file = room.path("run.json");
    let args =
        ["--suite", "select", "--filter", "all-16/", "--time", "600", "--threads", "1", "--save", &file];
    let child = sterna(&args).stdin(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // Bit 1 of the signals that it catches is the interrupt.
    let catches = || {
        let status = fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 0b10 != 0
    };
    let start = Instant::now();
    while !catches() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never waits for an interrupt");
        sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = ended(child.wait_with_output().unwrap());
    none_of(ended.complaint("an interrupt", 130, "interrupted; nothing was saved").into_iter().collect());
    assert!(ended.out.starts_with("suite select"), "{}", ended.out);
    assert!(!Path::new(&file).exists());
}
