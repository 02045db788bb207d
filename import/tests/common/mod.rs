//! Helpers of all tests: texts of layers and models, and running what was read.
#![allow(dead_code, reason = "each file of tests uses a part")]

pub(crate) mod cases;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sterna::reference::{self, Value};
use sterna::{DataType, Engine, LogicalTensor, Op, Policy, Stream, Tensor, TensorBuf, TensorId};
use sterna_import::{Constant, Imported};

/// The types of whole bytes as ports write them, with their bytes.
pub(crate) const PRECISIONS: &[(&str, usize)] = &[
    ("FP32", 4),
    ("FP16", 2),
    ("BF16", 2),
    ("FP64", 8),
    ("I8", 1),
    ("I16", 2),
    ("I32", 4),
    ("I64", 8),
    ("U8", 1),
    ("U16", 2),
    ("U32", 4),
    ("U64", 8),
    ("BOOL", 1),
    ("F8E4M3", 1),
    ("F8E5M2", 1),
];

/// Fails with all that is wrong.
#[track_caller]
pub(crate) fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

pub(crate) fn float(dims: &[i64], elements: &[f32]) -> Value {
    Value::from_slice(dims, elements).expect("as many elements as the dims say")
}

/// The elements of a value as numbers.
pub(crate) fn as_floats(value: &Value) -> Vec<f32> {
    match value.data_type() {
        DataType::F32 => value.elements::<f32>().unwrap(),
        DataType::F16 => value.elements::<half::f16>().unwrap().into_iter().map(f32::from).collect(),
        DataType::S32 => value.elements::<i32>().unwrap().into_iter().map(|x| x as f32).collect(),
        DataType::Boolean => value.bytes().iter().map(|&byte| byte.into()).collect(),
        other => panic!("{other}"),
    }
}

/// A dim that the model leaves open.
pub(crate) const UNKNOWN_DIM: i64 = i64::MIN;

fn dims_text(dims: &[i64]) -> String {
    let dim = |&dim: &i64| format!("<dim>{}</dim>", if dim == UNKNOWN_DIM { -1 } else { dim });
    dims.iter().map(dim).collect()
}

/// The text of a lone layer whose output is described only by its type, if at all.
pub(crate) fn lone(kind: &str, data: &str, inputs: &[(&str, Vec<i64>)], output: Option<&str>) -> String {
    let mut text = format!("<layer id=\"7\" name=\"one\" type=\"{kind}\"><data {data}/><input>");
    for (id, (precision, dims)) in inputs.iter().enumerate() {
        let _ = write!(text, "<port id=\"{id}\" precision=\"{precision}\">{}</port>", dims_text(dims));
    }
    let precision = output.map_or(String::new(), |precision| format!(" precision=\"{precision}\""));
    let _ = write!(text, "</input><output><port id=\"9\"{precision}><dim>-1</dim></port></output></layer>");
    text
}

/// A model under construction, as text and weights.
#[derive(Default)]
pub(crate) struct Ir {
    layers: String,
    edges: String,
    pub(crate) weights: Vec<u8>,
    count: usize,
}

impl Ir {
    pub(crate) fn parameter(&mut self, name: &str, element: &str, shape: &str) -> usize {
        let data = format!("shape=\"{shape}\" element_type=\"{element}\"");
        self.layer(name, "Parameter", &data, &[], "<dim>-1</dim>")
    }

    /// A constant of little-endian bytes.
    pub(crate) fn constant(&mut self, element: &str, shape: &str, bytes: &[u8]) -> usize {
        let (offset, size) = (self.weights.len(), bytes.len());
        self.weights.extend_from_slice(bytes);
        let data =
            format!("element_type=\"{element}\" shape=\"{shape}\" offset=\"{offset}\" size=\"{size}\"");
        self.layer("", "Const", &data, &[], "<dim>-1</dim>")
    }

    pub(crate) fn integers(&mut self, numbers: &[i64]) -> usize {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.constant("i64", &numbers.len().to_string(), &bytes)
    }

    pub(crate) fn floats(&mut self, shape: &str, numbers: &[f32]) -> usize {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.constant("f32", shape, &bytes)
    }

    /// A layer of one output, whose dims are given as text.
    pub(crate) fn layer(
        &mut self,
        name: &str,
        kind: &str,
        data: &str,
        inputs: &[usize],
        dims: &str,
    ) -> usize {
        let id = self.count;
        self.count += 1;
        let name = if name.is_empty() { format!("{kind}_{id}") } else { name.into() };
        let mut text = format!("<layer id=\"{id}\" name=\"{name}\" type=\"{kind}\" version=\"opset1\">");
        if !data.is_empty() {
            let _ = write!(text, "<data {data}/>");
        }
        text += "<input>";
        for (port, from) in inputs.iter().enumerate() {
            let _ = write!(text, "<port id=\"{port}\"/>");
            let _ = write!(
                self.edges,
                "<edge from-layer=\"{from}\" from-port=\"9\" to-layer=\"{id}\" to-port=\"{port}\"/>"
            );
        }
        text += "</input>";
        if kind != "Result" {
            let _ = write!(text, "<output><port id=\"9\">{dims}</port></output>");
        }
        self.layers += &text;
        self.layers += "</layer>";
        id
    }

    /// A layer whose output is not described.
    pub(crate) fn op(&mut self, kind: &str, data: &str, inputs: &[usize]) -> usize {
        self.layer("", kind, data, inputs, "<dim>-1</dim>")
    }

    pub(crate) fn result(&mut self, name: &str, from: usize) {
        self.layer(name, "Result", "", &[from], "");
    }

    pub(crate) fn text(&self) -> String {
        let Self { layers, edges, .. } = self;
        format!("<net name=\"test\" version=\"11\"><layers>{layers}</layers><edges>{edges}</edges></net>")
    }
}

/// The values of a model's tensors that are there before anything runs.
#[track_caller]
fn given(imported: &Imported, inputs: &[(&str, Value)]) -> BTreeMap<TensorId, Value> {
    let value = |constant: &Constant| constant.to_value().expect("a constant of a test is small");
    let mut values: BTreeMap<TensorId, Value> =
        imported.weights.iter().map(|(id, constant)| (*id, value(constant))).collect();
    for (name, value) in inputs {
        let port = imported.input(name).unwrap_or_else(|error| panic!("{error}"));
        values.insert(port.tensor.id(), value.clone());
    }
    values
}

/// Gives all tensors of a model by the reference interpreter, op by op.
#[track_caller]
pub(crate) fn oracle(imported: &Imported, inputs: &[(&str, Value)]) -> BTreeMap<TensorId, Value> {
    let mut values = given(imported, inputs);
    for partition in imported.graph.partitions(Policy::Debug).expect("the graph is finalized") {
        if let [op] = partition.ops()
            && !op.outputs().is_empty()
        {
            interpret(op, &mut values);
        }
    }
    values
}

#[track_caller]
fn interpret(op: &Op, values: &mut BTreeMap<TensorId, Value>) {
    let operands: Vec<Value> = op.inputs().iter().map(|port| values[&port.id()].clone()).collect();
    let results = reference::run(op, &operands).unwrap_or_else(|error| panic!("{error}"));
    values.extend(op.outputs().iter().map(LogicalTensor::id).zip(results));
}

/// Runs a model on values of its inputs by name: every partition by what compiles it, or else by the
/// reference. Gives the outputs by their own names.
#[track_caller]
pub(crate) fn by_name(imported: &Imported, inputs: &[(&str, Value)]) -> BTreeMap<String, Value> {
    let values = eval(imported, inputs);
    let output = |port: &sterna_import::Port| (port.name().to_owned(), values[&port.tensor.id()].clone());
    imported.outputs.iter().map(output).collect()
}

/// Runs a model as [`by_name`] does, and gives all tensors that it hands out.
#[track_caller]
pub(crate) fn eval(imported: &Imported, inputs: &[(&str, Value)]) -> BTreeMap<TensorId, Value> {
    let engine = Engine::builder().threads(1).build();
    let stream = Stream::new(&engine);
    let mut values = given(imported, inputs);
    for partition in imported.graph.partitions(Policy::Fusion).expect("the graph is finalized") {
        if partition.outputs().is_empty() {
            continue;
        }
        if !partition.is_supported() {
            interpret(&partition.ops()[0], &mut values);
            continue;
        }
        let held: Vec<TensorBuf> = partition
            .inputs()
            .iter()
            .map(|port| {
                let value = &values[&port.id()];
                let desc = LogicalTensor::strided(port.id(), port.data_type(), value.dims()).unwrap();
                let mut buffer = TensorBuf::zeroed(desc, &engine).unwrap();
                value.write(&mut buffer).unwrap();
                buffer
            })
            .collect();
        let descs: Vec<LogicalTensor> = held.iter().map(|buffer| buffer.desc().clone()).collect();
        let compiled = partition
            .compile_for(&engine, &descs, partition.outputs())
            .unwrap_or_else(|error| panic!("{error} in {partition:?}"));
        let mut results: Vec<TensorBuf> =
            compiled.outputs().iter().map(|desc| TensorBuf::zeroed(desc.clone(), &engine).unwrap()).collect();
        let sources: Vec<Tensor<'_>> = held.iter().map(TensorBuf::as_tensor).collect();
        let mut into: Vec<_> = results.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        compiled.execute(&stream, &sources, &mut into).unwrap();
        drop(into);
        for result in &results {
            values.insert(result.desc().id(), Value::read(&result.as_tensor()).unwrap());
        }
    }
    values
}

/// The folder with what a script of `tests/tools` writes by a Python package; nothing where tools are not
/// asked for. `what` is what the script writes; `STERNA_` and the name of the package in capitals names the
/// virtual environment.
pub(crate) fn written_by(package: &str, script: &str, what: &str) -> Option<PathBuf> {
    written_from(package, script, what, package, None)
}

/// The same in a folder of another name, where the script is given what another one wrote.
pub(crate) fn written_from(
    package: &str,
    script: &str,
    what: &str,
    folder: &str,
    source: Option<&Path>,
) -> Option<PathBuf> {
    let skip = |why: &str| {
        // Not by `eprintln`, whose text the test runner keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} of the package {package}; {why}");
        None
    };
    if env::var_os("STERNA_TEST_TOOLS").is_none() {
        return skip("STERNA_TEST_TOOLS=1 runs them");
    }
    let variable = format!("STERNA_{}", package.to_uppercase());
    let Some(prefix) = env::var_os(&variable) else {
        return skip(&format!("{variable} names an environment of Python that has it"));
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools").join(script);
    let ran = Command::new(Path::new(&prefix).join("bin/python"))
        .args([script.as_os_str(), folder.as_os_str()])
        .args(source)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the environment has a Python");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(folder)
}
