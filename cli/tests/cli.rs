//! Runs the built `sterna` as a process: what it prints, writes and exits with.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn sterna(args: &[&str]) -> Ended {
    sterna_reading("", args)
}

fn sterna_reading(stdin: &str, args: &[&str]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sterna"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A process that refuses its arguments never reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn graphs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/graphs")
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

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn tensor(id: usize, dtype: &str, dims: &[i64]) -> Value {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1);
    }
    json!({"id": id, "dtype": dtype, "shape": dims, "stride": strides, "layout_type": "strided",
           "property_type": "undef"})
}

fn op(id: usize, kind: &str, inputs: Vec<Value>, outputs: Vec<Value>) -> Value {
    json!({"id": id, "name": format!("the {kind}"), "kind": kind, "attrs": {}, "inputs": inputs, "outputs": outputs})
}

fn graph(ops: Vec<Value>) -> String {
    json!({"version": "3.13.0", "engine_kind": "cpu", "fpmath_mode": "strict", "graph": ops}).to_string()
}

/// One select: cond 0, then 1, else 2, dst 3, all of one shape.
fn select(dtype: &str, dims: &[i64]) -> String {
    let inputs = vec![tensor(0, "boolean", dims), tensor(1, dtype, dims), tensor(2, dtype, dims)];
    graph(vec![op(7, "Select", inputs, vec![tensor(3, dtype, dims)])])
}

/// An `.npy` file, version 1.
fn npy(descr: &str, fortran: bool, shape: &str, elements: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), elements].concat()
}

/// The header, as text, and the elements of an `.npy` file of version 1.
fn read_npy(path: &str) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..end].to_vec()).unwrap(), bytes[end..].to_vec())
}

/// Fails with all that was found wrong.
fn none_of(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is wrong with how a process ended, if anything.
fn complaint(what: &str, ended: &Ended, code: i32, message: &str) -> Option<String> {
    let fine = ended.code == code && ended.err.contains(message) && !ended.err.contains("panicked");
    (!fine).then(|| format!("{what}: exit {} for {code}, no {message:?} in {:?}", ended.code, ended.err))
}

/// The types: name in a graph, type in a file, bytes.
const TYPES: &[(&str, &str, usize)] = &[
    ("f16", "f2", 2),
    ("bf16", "u2", 2),
    ("f32", "f4", 4),
    ("f64", "f8", 8),
    ("s8", "i1", 1),
    ("s16", "i2", 2),
    ("s32", "i4", 4),
    ("s64", "i8", 8),
    ("u8", "u1", 1),
    ("u16", "u2", 2),
    ("u32", "u4", 4),
    ("u64", "u8", 8),
    ("boolean", "b1", 1),
    ("f8_e5m2", "u1", 1),
    ("f8_e4m3", "u1", 1),
];

fn order_of(size: usize) -> &'static str {
    match size {
        1 => "|",
        _ if cfg!(target_endian = "little") => "<",
        _ => ">",
    }
}

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
fn files_of_every_type_order_and_endianness_are_read_and_written_bit_for_bit() {
    let room = Room::new();
    let (rows, columns) = (3usize, 4usize);
    let mut wrong = Vec::new();
    for &(dtype, file_type, size) in TYPES {
        let graph = room.write("graph.json", select(dtype, &[3, 4]));
        let element = |n: usize, salt: u8| -> Vec<u8> {
            match dtype {
                "boolean" => vec![(n as u8 ^ salt) & 1],
                // All bits are used, those of NaNs among them.
                _ => (0..size).map(|byte| salt ^ (n * 41 + byte * 67) as u8).collect(),
            }
        };
        let cond: Vec<u8> = (0..rows * columns).map(|n| u8::from(n % 3 == 1)).collect();
        let then: Vec<Vec<u8>> = (0..rows * columns).map(|n| element(n, 0x5a)).collect();
        let other: Vec<Vec<u8>> = (0..rows * columns).map(|n| element(n, 0xff)).collect();
        let expected: Vec<u8> = (0..rows * columns)
            .flat_map(|n| if cond[n] != 0 { then[n].clone() } else { other[n].clone() })
            .collect();

        for (order, fortran) in [("<", false), (">", false), ("<", true), (">", true)] {
            let file = |elements: &[Vec<u8>]| {
                let mut bytes = Vec::new();
                for n in 0..rows * columns {
                    let at = if fortran { n % rows * columns + n / rows } else { n };
                    let mut element = elements[at].clone();
                    if (order == ">") == cfg!(target_endian = "little") {
                        element.reverse();
                    }
                    bytes.extend(element);
                }
                let order = if size == 1 { "|" } else { order };
                npy(&format!("{order}{file_type}"), fortran, "(3, 4)", &bytes)
            };
            let cond = room.write("cond.npy", npy("|b1", false, "(3, 4)", &cond));
            let then = room.write("then.npy", file(&then));
            let other = room.write("other.npy", file(&other));
            let out = room.path("out.npy");
            let ended = sterna(&[
                "run",
                &graph,
                "--check",
                "--input",
                &format!("0={cond}"),
                "--input",
                &format!("1={then}"),
                "--input",
                &format!("2={other}"),
                "--output",
                &format!("3={out}"),
            ]);
            let what = format!("{dtype} {order} fortran {fortran}");
            let note = if ["bf16", "f8_e5m2", "f8_e4m3"].contains(&dtype) { "note: tensor 3 is" } else { "" };
            wrong.extend(complaint(&what, &ended, 0, note));
            if note.is_empty() && !ended.err.is_empty() {
                wrong.push(format!("{what}: {}", ended.err));
            }
            if ended.code != 0 {
                continue;
            }
            let (header, elements) = read_npy(&out);
            let descr = format!("'descr': '{}{file_type}'", order_of(size));
            if !header.contains(&descr) || !header.contains("'shape': (3, 4") || elements != expected {
                wrong.push(format!("{what}: {header} {elements:x?} for {expected:x?}"));
            }
        }
    }
    none_of(wrong);
}

#[test]
fn bytes_that_are_no_bools_are_written_as_bytes() {
    let room = Room::new();
    let graph = room.write("graph.json", select("boolean", &[3]));
    let then = room.write("then.npy", npy("|u1", false, "(3,)", &[0, 2, 255]));
    let out = room.path("out.npy");
    let (input, output) = (format!("1={then}"), format!("3={out}"));
    let ended = sterna(&["run", &graph, "--fill", "0=true", "--input", &input, "--output", &output]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(
        ended.err.contains("note: tensor 3 is boolean and holds bytes other than 0 and 1"),
        "{}",
        ended.err
    );
    let (header, elements) = read_npy(&out);
    assert!(header.contains("'|u1'"), "{header}");
    assert_eq!(elements, [0, 2, 255]);
}

#[test]
fn tensors_with_strides_are_read_and_written_row_by_row() {
    let room = Room::new();
    let columns = |id: usize, dtype: &str| {
        let mut tensor = tensor(id, dtype, &[2, 3]);
        tensor["stride"] = json!([1, 2]);
        tensor
    };
    let inputs = vec![columns(0, "boolean"), columns(1, "s16"), tensor(2, "s16", &[2, 3])];
    let graph = room.write("graph.json", graph(vec![op(7, "Select", inputs, vec![columns(3, "s16")])]));
    let elements: Vec<u8> = (1i16..=6).flat_map(i16::to_le_bytes).collect();
    let then = room.write("then.npy", npy("<i2", false, "(2, 3)", &elements));
    let out = room.path("out.npy");
    let (input, output) = (format!("1={then}"), format!("3={out}"));
    let ended =
        sterna(&["run", &graph, "--check", "--fill", "0=ones", "--input", &input, "--output", &output]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("out      3 s16 {2,3} strides {1,2}"), "{}", ended.out);
    let (header, read) = read_npy(&out);
    assert!(header.contains("'fortran_order': False"), "{header}");
    assert_eq!(read, elements);
}

/// Runs a select whose condition is filled so that it hands on a filled tensor, and reads that.
fn filled(room: &Room, dtype: &str, dims: &[i64], more: &[&str]) -> (Ended, Option<Vec<u8>>) {
    let graph = room.write("graph.json", select(dtype, dims));
    let out = room.path("out.npy");
    let _ = fs::remove_file(&out);
    let output = format!("3={out}");
    let ended = sterna(&[&["run", &graph, "--fill", "0=1", "--output", &output], more].concat());
    let elements = Path::new(&out).exists().then(|| read_npy(&out).1);
    (ended, elements)
}

#[test]
fn fills_give_the_bits_of_each_type() {
    let room = Room::new();
    let bits = |hex: &str, size: usize| {
        let value = u64::from_str_radix(hex, 16).unwrap();
        value.to_ne_bytes()[if cfg!(target_endian = "little") { 0..size } else { 8 - size..8 }].to_vec()
    };
    // Type, fill, bits of an element.
    let rows: &[(&str, &str, &str)] = &[
        ("f32", "zeros", "0"),
        ("f32", "ones", "3f800000"),
        ("f32", "-0", "80000000"),
        ("f32", "0.1", "3dcccccd"),
        ("f32", "-inf", "ff800000"),
        ("f32", "nan", "7fc00000"),
        ("f64", "1e300", "7e37e43c8800759c"),
        ("f16", "-65504", "fbff"),
        ("f16", "inf", "7c00"),
        ("f16", "ones", "3c00"),
        ("bf16", "ones", "3f80"),
        ("bf16", "3.14", "4049"),
        ("f8_e5m2", "ones", "3c"),
        ("f8_e5m2", "57344", "7b"),
        ("f8_e5m2", "-inf", "fc"),
        ("f8_e5m2", "1.1", "3c"),
        ("f8_e5m2", "1.125", "3c"),
        ("f8_e5m2", "1.375", "3e"),
        ("f8_e4m3", "ones", "38"),
        ("f8_e4m3", "-448", "fe"),
        ("f8_e4m3", "0.001953125", "1"),
        ("f8_e4m3", "nan", "7f"),
        ("boolean", "true", "1"),
        ("boolean", "false", "0"),
        ("boolean", "ones", "1"),
        ("u8", "255", "ff"),
        ("s8", "-128", "80"),
        ("s16", "-2", "fffe"),
        ("u16", "65535", "ffff"),
        ("s32", "ones", "1"),
        ("u32", "4294967295", "ffffffff"),
        ("s64", "-9223372036854775808", "8000000000000000"),
        ("u64", "18446744073709551615", "ffffffffffffffff"),
    ];
    let mut wrong = Vec::new();
    for &(dtype, fill, hex) in rows {
        let size = TYPES.iter().find(|row| row.0 == dtype).unwrap().2;
        let (ended, elements) = filled(&room, dtype, &[5], &["--fill", &format!("1={fill}")]);
        let expected = bits(hex, size).repeat(5);
        wrong.extend(complaint(&format!("{dtype} {fill}"), &ended, 0, ""));
        if elements.as_ref() != Some(&expected) {
            wrong.push(format!("{dtype} {fill}: {elements:x?} for {expected:x?}"));
        }
    }
    none_of(wrong);
}

#[test]
fn values_that_a_type_cannot_hold_are_wrong_usage() {
    let room = Room::new();
    let rows: &[(&str, &[i64], &str, &str)] = &[
        ("u8", &[2], "300", "u8 cannot hold 300"),
        ("u8", &[2], "-1", "u8 cannot hold -1"),
        ("s32", &[2], "1.5", "s32 cannot hold 1.5"),
        ("s64", &[2], "nan", "s64 cannot hold nan"),
        ("u64", &[2], "true", "u64 cannot hold true"),
        ("boolean", &[2], "2", "boolean cannot hold 2; write true or false"),
        ("f32", &[2], "true", "f32 cannot hold true"),
        ("f32", &[2], "1e39", "f32 cannot hold 1e39"),
        ("f64", &[2], "1e999", "f64 cannot hold 1e999"),
        ("f16", &[2], "65520", "f16 cannot hold 65520"),
        ("f8_e5m2", &[2], "60000", "f8_e5m2 cannot hold 60000"),
        ("f8_e4m3", &[2], "449", "f8_e4m3 cannot hold 449"),
        ("f8_e4m3", &[2], "inf", "f8_e4m3 cannot hold inf"),
        ("f32", &[2], "causal", "causal needs at least two dims"),
        ("f32", &[], "causal", "causal needs at least two dims"),
        ("f32", &[2], "sometimes", "\"sometimes\" is no fill"),
        ("f32", &[2], "", "\"\" is no fill"),
    ];
    let mut wrong = Vec::new();
    for &(dtype, dims, fill, message) in rows {
        let (ended, elements) = filled(&room, dtype, dims, &["--fill", &format!("1={fill}")]);
        wrong.extend(complaint(&format!("{dtype} {fill}"), &ended, 2, message));
        if elements.is_some() {
            wrong.push(format!("{dtype} {fill}: an output was written"));
        }
    }
    none_of(wrong);
}

#[test]
fn causal_is_one_on_and_below_the_diagonal_of_the_last_two_dims() {
    let room = Room::new();
    for dtype in ["u8", "boolean"] {
        let (ended, elements) = filled(&room, dtype, &[2, 3, 4], &["--fill", "1=causal"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_eq!(elements.unwrap(), [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0].repeat(2), "{dtype}");
    }
    let (_, elements) = filled(&room, "f32", &[2, 2], &["--fill", "1=causal"]);
    assert_eq!(elements.unwrap(), [1f32, 0.0, 1.0, 1.0].map(f32::to_ne_bytes).concat());
}

#[test]
fn random_is_finite_varied_and_the_same_for_one_seed() {
    let room = Room::new();
    let mut wrong = Vec::new();
    for &(dtype, _, size) in TYPES {
        let value = |more: &[&str]| filled(&room, dtype, &[20, 50], more).1.unwrap();
        let first = value(&["--seed", "5"]);
        if first != value(&["--fill", "1=random", "--seed", "5", "--threads", "1"]) {
            wrong.push(format!("{dtype}: one seed gives two values"));
        }
        if first == value(&["--seed", "6"]) {
            wrong.push(format!("{dtype}: two seeds give one value"));
        }
        let elements: Vec<&[u8]> = first.chunks(size).collect();
        let mut distinct = elements.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < if dtype == "boolean" { 2 } else { 150 } {
            wrong.push(format!("{dtype}: {} distinct values", distinct.len()));
        }
        let is_fine = |element: &&[u8]| match dtype {
            "f32" => f32::from_ne_bytes((*element).try_into().unwrap()).abs() < 5.0,
            "f64" => f64::from_ne_bytes((*element).try_into().unwrap()).abs() < 5.0,
            "f16" => u16::from_ne_bytes((*element).try_into().unwrap()) & 0x7c00 != 0x7c00,
            "bf16" => u16::from_ne_bytes((*element).try_into().unwrap()) & 0x7f80 != 0x7f80,
            "f8_e5m2" => element[0] & 0x7c != 0x7c,
            "f8_e4m3" => element[0] & 0x7f != 0x7f,
            "boolean" => element[0] <= 1,
            _ => true,
        };
        wrong.extend(elements.iter().find(|element| !is_fine(element)).map(|e| format!("{dtype}: {e:x?}")));
        if dtype == "boolean" {
            let ones = first.iter().filter(|&&byte| byte == 1).count();
            if !(400..600).contains(&ones) {
                wrong.push(format!("{ones} of 1000 truth values are true"));
            }
        }
    }
    // Each tensor has values of its own: with another condition, `else` comes out.
    let then = filled(&room, "u32", &[40], &[]).1.unwrap();
    let graph = room.write("graph.json", select("u32", &[40]));
    let out = room.path("else.npy");
    assert_eq!(sterna(&["run", &graph, "--fill", "0=zeros", "--output", &format!("3={out}")]).code, 0);
    assert_ne!(then, read_npy(&out).1);
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
        (&["run", room.0.path().to_str().unwrap()], "cannot read"),
        (&["run", &graph, "--input", "1"], "write it as ID=..."),
        (&["run", &graph, "--input", "one=x.npy"], "\"one\" is no tensor id"),
        (&["run", &graph, "--input", "1="], "name a file"),
        (&["run", &graph, "--input=-1=x.npy"], "\"-1\" is no tensor id"),
        (
            &["run", &graph, "--input", "9=x.npy"],
            "tensor 9, which is not an input of the graph; choose from 0, 1, 2",
        ),
        (&["run", &graph, "--input", "3=x.npy"], "tensor 3, which is not an input of the graph"),
        (&["run", &graph, "--input", &missing_file], "cannot open"),
        (&["run", &graph, "--fill", "9=ones"], "--fill names tensor 9"),
        (&["run", &graph, "--fill", "1"], "write it as ID=..."),
        (&["run", &graph, "--output", "9=x.npy"], "--output names tensor 9"),
        (&["run", &graph, "--output", "1=x.npy"], "not handed out by a partition; choose from 3"),
        (&["run", &graph, "--output", &unwritable], "cannot write tensor 3 to"),
        (&["run", &graph, "--override-shape", "9=2x2"], "--override-shape names tensor 9"),
        (&["run", &graph, "--override-shape", "3=2x2"], "tensor 3, which is not an input of the graph"),
        (&["run", &graph, "--override-shape", "1=2xx2"], "\"\" is no dim"),
        (&["run", &graph, "--override-shape", "1=-2"], "\"-2\" is no dim"),
        (&["run", &graph, "--override-shape", "1=1x1x1x1x1x1x1x1x1x1x1x1x1"], "rank 13"),
        (&["run", &graph, "--override-shape", "1=9223372036854775807x2"], "address space"),
        (&["run", &graph, "--input", &input, "--fill", "1=ones"], "by --input and by --fill"),
        (&["run", &graph, "--input", &input, "--input", &input], "--input names tensor 1 more than once"),
        (&["run", &graph, "--fill", "1=1", "--fill", "1=2"], "--fill names tensor 1 more than once"),
        (&["run", &graph, "--threads", "0"], "--threads"),
        (&["run", &graph, "--repeat", "0"], "--repeat"),
        (&["run", &graph, "--seed", "x"], "--seed"),
        (&["run", &graph, "--chek"], "--check"),
        (&["run", &open_graph], "give it with --override-shape 1=..."),
        (&["ops", "select"], "is it Select?"),
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

#[test]
fn files_that_are_not_the_tensor_are_refused() {
    let room = Room::new();
    let graph = room.write("graph.json", select("f32", &[2, 2]));
    let elements = 1f32.to_le_bytes().repeat(4);
    let good = npy("<f4", false, "(2, 2)", &elements);
    let record = String::from_utf8_lossy(&good[10..74]).replace("'<f4'", "[('a', '<f4')]");
    let record = [&good[..8], &(record.len() as u16).to_le_bytes(), record.as_bytes(), &elements].concat();
    let version = |major: u8| [&good[..6], &[major], &good[7..]].concat();
    let long = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], &[b'('; 5000]].concat();
    let nested = [&b"\x93NUMPY\x01\x00\xe8\x03"[..], &[b'('; 1000]].concat();
    let claims = "(4294967296, 4294967296, 4294967296)";
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "too short for an .npy file"),
        ("text", b"1 2 3 4 5 6 7 8 9".to_vec(), "it is no .npy file"),
        ("half a header", good[..40].to_vec(), "its header makes no sense"),
        ("long header", long, "longer than that of any plain array"),
        ("nested header", nested, "its header makes no sense"),
        ("version 9", version(9), ""),
        ("record", record, "it holds records"),
        ("objects", npy("|O", false, "(2, 2)", &elements), "its elements are |O"),
        (
            "type",
            npy("<f8", false, "(2, 2)", &elements.repeat(2)),
            "its elements are <f8, but the tensor is f32; save it as f4",
        ),
        ("integers", npy("<i4", false, "(2, 2)", &elements), "its elements are <i4"),
        ("shape", npy("<f4", false, "(4,)", &elements), "its shape is [4], but that of the tensor is [2, 2]"),
        ("negative", npy("<f4", false, "(-2, -2)", &elements), "its header makes no sense"),
        ("enormous", npy("<f4", false, claims, &elements), "its shape is"),
        ("enormous columns", npy("<f4", true, claims, &elements), "its shape is"),
        ("too short", good[..good.len() - 1].to_vec(), "it ends after 15 of 16 bytes"),
        ("too long", [&good[..], &[0]].concat(), "it goes on after the 16 bytes"),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, message) in rows {
        let input = format!("1={}", room.write("in.npy", bytes));
        wrong.extend(complaint(what, &sterna(&["run", &graph, "--input", &input]), 2, message));
    }
    let input = format!("1={}", room.write("in.npy", good));
    wrong.extend(complaint("good", &sterna(&["run", &graph, "--input", &input]), 0, ""));
    none_of(wrong);
}

#[test]
fn strides_that_make_elements_one_lose_no_value_silently() {
    let room = Room::new();
    let mut repeated = tensor(1, "f32", &[2, 2]);
    repeated["stride"] = json!([0, 1]);
    let text = |input: Value, output: Value| {
        let inputs = vec![tensor(0, "boolean", &[2, 2]), input.clone(), input];
        let last = op(8, "Reorder", vec![tensor(3, "f32", &[2, 2])], vec![output]);
        graph(vec![op(7, "Select", inputs, vec![tensor(3, "f32", &[2, 2])]), last])
    };
    let graph = room.write("in.json", text(repeated.clone(), tensor(4, "f32", &[2, 2])));
    let file = |name: &str, elements: [f32; 4]| {
        format!(
            "1={}",
            room.write(name, npy("<f4", false, "(2, 2)", &elements.map(f32::to_le_bytes).concat()))
        )
    };
    let run = |elements| sterna(&["run", &graph, "--check", "--input", &file("in.npy", elements)]);
    let mut wrong: Vec<_> = complaint("alike", &run([1.0, 2.0, 1.0, 2.0]), 0, "").into_iter().collect();
    wrong.extend(complaint("unlike", &run([1.0, 2.0, 3.0, 4.0]), 2, "tensor 1 cannot hold its values"));

    repeated["id"] = json!(4);
    let graph = room.write("out.json", text(tensor(1, "f32", &[2, 2]), repeated));
    let ended = sterna(&["run", &graph]);
    wrong.extend(complaint("output", &ended, 1, "Reorder (op 8): the strides of output tensor 4 overlap"));
    none_of(wrong);
}

#[test]
fn sizes_that_no_machine_has_are_errors() {
    let graph = select("f32", &[2]);
    let ended = sterna_reading(&graph, &["run", "-", "--override-shape", "1=1125899906842624"]);
    none_of(
        complaint("enormous", &ended, 1, "no memory can be made for input tensor 1").into_iter().collect(),
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
        let mut child = Command::new(env!("CARGO_BIN_EXE_sterna"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let _ = child.stdin.take().unwrap().write_all(select("f32", &[2]).as_bytes());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!((code, err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn ops_prints_every_kind_and_each_in_detail() {
    let table = sterna(&["ops"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = table
        .out
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 106);
    let row = |kind: &str| rows.iter().find(|row| row[0] == kind).unwrap();
    assert_eq!(row("Select")[..], ["Select", "81", "3", "1", "compiled"]);
    assert_eq!(row("MatMul")[..], ["MatMul", "39", "2", "or", "3", "1", "reference"]);
    assert_eq!(row("TypeCast").last(), Some(&"compiled"));
    assert_eq!(row("Convolution").last(), Some(&"no"));

    for row in &rows {
        let detail = sterna(&["ops", row[0]]);
        assert_eq!((detail.code, detail.err.as_str()), (0, ""), "{row:?}");
        assert!(detail.out.starts_with(&format!("{}, code {}, runs: ", row[0], row[1])), "{}", detail.out);
    }

    let select = sterna(&["ops", "Select"]).out;
    for line in [
        "inputs: 3\n  0 cond: T1\n  1 then: T2\n  2 else: T2\n",
        "outputs: 1\n  0 dst: T2\n",
        "  T1: boolean\n",
        "  auto_broadcast: string, default numpy, one of none, numpy, pdpd, multidirectional\n",
        "  axis: s64, optional\n",
        "checks: AxisNeedsPdpd\n",
    ] {
        assert!(select.contains(line), "{line:?} in {select}");
    }
    assert!(sterna(&["ops", "GenIndex"]).out.contains("lends only its shape"));
    assert!(sterna(&["ops", "GenIndex"]).out.contains("  axis: s64, required\n"));
}

#[test]
fn help_and_version_are_fine() {
    for args in [&["--help"][..], &["run", "--help"], &["ops", "--help"], &["--version"]] {
        let ended = sterna(args);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{args:?}");
        assert!(!ended.out.is_empty(), "{args:?}");
    }
    assert!(sterna(&["run", "--help"]).out.contains("Exit codes:\n  0  all is well\n  1  "));
}
