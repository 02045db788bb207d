//! The built `sterna` as a process, and what tests hand it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use sterna::{Attention, Causal, DataType, Graph, LogicalTensor, MaskTrue};
use tempfile::TempDir;

pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn sterna(args: &[&str]) -> Ended {
    sterna_reading("", args)
}

pub(crate) fn sterna_reading(stdin: &str, args: &[&str]) -> Ended {
    sterna_reading_bytes(stdin.as_bytes(), args)
}

/// A process that runs, with a pipe at each of its three ends.
pub(crate) fn started(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sterna"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn sterna_reading_bytes(stdin: &[u8], args: &[&str]) -> Ended {
    let mut child = started(args);
    // A process that refuses its arguments never reads.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn graphs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/graphs")
}

/// A folder for one test.
pub(crate) struct Room(pub(crate) TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

pub(crate) fn tensor(id: usize, dtype: &str, dims: &[i64]) -> Value {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis].max(1);
    }
    json!({"id": id, "dtype": dtype, "shape": dims, "stride": strides, "layout_type": "strided",
           "property_type": "undef"})
}

pub(crate) fn op(id: usize, kind: &str, inputs: Vec<Value>, outputs: Vec<Value>) -> Value {
    let name = format!("the {kind}");
    json!({"id": id, "name": name, "kind": kind, "attrs": {}, "inputs": inputs, "outputs": outputs})
}

pub(crate) fn graph(ops: Vec<Value>) -> String {
    json!({"version": "3.13.0", "engine_kind": "cpu", "fpmath_mode": "strict", "graph": ops}).to_string()
}

/// One select: cond 0, then 1, else 2, dst 3, all of one shape.
pub(crate) fn select(dtype: &str, dims: &[i64]) -> String {
    let inputs = vec![tensor(0, "boolean", dims), tensor(1, dtype, dims), tensor(2, dtype, dims)];
    graph(vec![op(7, "Select", inputs, vec![tensor(3, dtype, dims)])])
}

/// The queries and keys of [`attention`].
pub(crate) const QUERIES: usize = 200;
pub(crate) const KEYS: usize = 330;

/// Attention of two heads: q 0, k 1, v 2, dst 3, and the mask 4 that both share; without it, causal by
/// indices.
pub(crate) fn attention(has_mask: bool) -> String {
    let tensor = |id, data_type, dims: [usize; 4]| {
        LogicalTensor::strided(id, data_type, &dims.map(|dim| dim as i64)).unwrap()
    };
    let head = |id, tokens| tensor(id, DataType::F32, [1, 2, tokens, 16]);
    let options = Attention::new(head(0, QUERIES), head(1, KEYS), head(2, KEYS), head(3, QUERIES));
    let mask = tensor(4, DataType::Boolean, [1, 1, QUERIES, KEYS]);
    let options = match has_mask {
        true => options.mask(mask, MaskTrue::Keeps),
        false => options.causal(Causal::TopLeft),
    };
    let mut graph = Graph::new();
    graph.attention(&options).unwrap();
    graph.finalize().unwrap();
    graph.to_json()
}

/// A mask for [`attention`] as a file, which leaves out 16 tiles of 24.
pub(crate) fn mask_npy() -> Vec<u8> {
    let keeps = |query: usize, key: usize| match query / 64 {
        0 => key < 64,
        1 => key < 100,
        2 => key >= 128,
        _ => key == 325,
    };
    let pairs = (0..QUERIES).flat_map(|query| (0..KEYS).map(move |key| (query, key)));
    let bytes: Vec<u8> = pairs.map(|(query, key)| keeps(query, key).into()).collect();
    npy("|b1", false, &format!("(1, 1, {QUERIES}, {KEYS})"), &bytes)
}

/// The tiles of [`mask_npy`], and of causal [`attention`], as lines and in numbers.
pub(crate) const MASK_TILES: ([&str; 4], &str) =
    (["#.....", "#+....", "..####", ".....+"], "16 of 24 tiles skipped, 6 full, 2 partial");
pub(crate) const CAUSAL_TILES: ([&str; 4], &str) =
    (["+.....", "#+....", "##+...", "###+.."], "14 of 24 tiles skipped, 6 full, 4 partial");

/// An `.npy` file, version 1.
pub(crate) fn npy(descr: &str, fortran: bool, shape: &str, elements: &[u8]) -> Vec<u8> {
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
pub(crate) fn read_npy(path: &str) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..end].to_vec()).unwrap(), bytes[end..].to_vec())
}

/// Fails with all that was found wrong.
pub(crate) fn none_of(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A sentence on a process that ended in another way than expected.
pub(crate) fn complaint(what: &str, ended: &Ended, code: i32, message: &str) -> Option<String> {
    let fine = ended.code == code && ended.err.contains(message) && !ended.err.contains("panicked");
    (!fine).then(|| format!("{what}: exit {} for {code}, no {message:?} in {:?}", ended.code, ended.err))
}

/// A text in which columns are one space apart.
pub(crate) fn squeezed(text: &str) -> String {
    let words = |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    text.lines().map(|line| words(line) + "\n").collect()
}

/// The types: name in a graph, type in a file, bytes.
pub(crate) const TYPES: &[(&str, &str, usize)] = &[
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

pub(crate) fn order_of(size: usize) -> &'static str {
    match size {
        1 => "|",
        _ if cfg!(target_endian = "little") => "<",
        _ => ">",
    }
}
