//! Promise: reading a model takes at most 1.3 times the memory that its files are large, and next to none
//! where its constants stay in files that are mapped; weights that a session packs are not there twice.
//!
//! One test alone in its binary: the memory is that of the process.
#![cfg(target_os = "linux")]

#[path = "common/onnx.rs"]
mod bytes;
mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bytes::{Onnx, external, field, node, tensor, value};
use common::{Ir, report};
use sterna::{Engine, Session, TensorView};
use sterna_import::{Error, Imported, ModelFile, Options, onnx, openvino};

/// Constants of a model, and the elements of each: 48 MiB together.
const COUNT: usize = 12;
const ELEMENTS: usize = 1 << 20;

/// A line of what the system says about the memory of this process, in bytes.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the system tells the memory of a process");
    let line = status.lines().find_map(|text| text.strip_prefix(line)).expect("there is such a line");
    let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("it is a number");
    kib << 10
}

/// The most memory that a call takes on top of what was there, and what it gives.
fn peak<T>(run: impl FnOnce() -> T) -> Option<(u64, T)> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = memory("VmRSS");
    let result = run();
    Some((memory("VmHWM").saturating_sub(before), result))
}

/// A model that adds all constants to its input.
fn sum(constants: Vec<Vec<u8>>, name: impl Fn(usize) -> String) -> Onnx {
    let sum = |at: usize| if at == 0 { "x".to_owned() } else { format!("s{at}") };
    Onnx {
        inputs: vec![value("x", 1, &[ELEMENTS as i64])],
        nodes: (0..COUNT).map(|at| node("Add", &[&sum(at), &name(at)], &[&sum(at + 1)], &[])).collect(),
        constants,
        outputs: vec![field(1, sum(COUNT).as_bytes())],
        ..Onnx::default()
    }
}

fn elements(at: usize) -> Vec<u8> {
    (0..ELEMENTS).flat_map(|i| ((i ^ at) as f32).to_le_bytes()).collect()
}

/// Writes a model with its constants in it; the names shift what follows by one byte each.
fn within(path: &Path) {
    let name = |at: usize| format!("c{}", "c".repeat(at));
    let constants = (0..COUNT).map(|at| tensor(&name(at), 1, &[ELEMENTS as i64], &elements(at))).collect();
    fs::write(path, sum(constants, name).bytes()).expect("it can be written");
}

/// Writes a model with its constants in another file, from an offset on.
fn beside(path: &Path, file: &str, offset: usize) {
    let mut out = fs::File::create(path.with_file_name(file)).expect("it can be written");
    out.write_all(&vec![0; offset]).expect("it can be written");
    (0..COUNT).for_each(|at| out.write_all(&elements(at)).expect("it can be written"));
    let name = |at: usize| format!("c{at}");
    let constant = |at: usize| {
        let first = (offset + 4 * ELEMENTS * at).to_string();
        let entries = [("location", file), ("offset", &first), ("length", &(4 * ELEMENTS).to_string())];
        external(&name(at), &[ELEMENTS as i64], &entries)
    };
    fs::write(path, sum((0..COUNT).map(constant).collect(), name).bytes()).expect("it can be written");
}

/// Writes a model of OpenVINO, and gives the file of its constants.
fn of_openvino(path: &Path, offset: usize) -> PathBuf {
    let mut ir = Ir::default();
    if offset > 0 {
        ir.constant("u8", &offset.to_string(), &vec![0; offset]);
    }
    for at in 0..COUNT {
        let constant = ir.constant("f32", &ELEMENTS.to_string(), &elements(at));
        ir.result(&format!("r{at}"), constant);
    }
    let bin = path.with_extension("bin");
    fs::write(path, ir.text()).expect("it can be written");
    fs::write(&bin, &ir.weights).expect("it can be written");
    bin
}

/// Writes a chain of products with weights in another file, from an offset on.
fn products(path: &Path, file: &str) {
    let mut out = fs::File::create(path.with_file_name(file)).expect("it can be written");
    let side = 1 << 10;
    for at in 0..COUNT {
        // Each element of a product is one of those before.
        let weights = (0..side * side).map(|i| if i / side == (i % side + at) % side { 1.0f32 } else { 0.0 });
        let bytes: Vec<u8> = weights.flat_map(f32::to_le_bytes).collect();
        out.write_all(&bytes).expect("it can be written");
    }
    let constant = |at: usize| {
        let first = (4 * ELEMENTS * at).to_string();
        let entries = [("location", file), ("offset", &first), ("length", &(4 * ELEMENTS).to_string())];
        external(&format!("w{at}"), &[side as i64; 2], &entries)
    };
    let name = |at: usize| if at == 0 { "x".to_owned() } else { format!("p{at}") };
    let product = |at: usize| node("MatMul", &[&name(at), &format!("w{at}")], &[&name(at + 1)], &[]);
    let model = Onnx {
        inputs: vec![value("x", 1, &[ROWS as i64, side as i64])],
        nodes: (0..COUNT).map(product).collect(),
        constants: (0..COUNT).map(constant).collect(),
        outputs: vec![field(1, name(COUNT).as_bytes())],
        ..Onnx::default()
    };
    fs::write(path, model.bytes()).expect("it can be written");
}

/// Rows of a product that read packed weights.
const ROWS: usize = 128;

/// Runs the chain twice, and gives the sum of the places at which the result differs from the input.
fn run_products(path: &Path) -> usize {
    let engine = Engine::builder().threads(1).build();
    let file = ModelFile::open(path, &Options::default()).expect("it can be read");
    let session = Session::new(file, &engine).expect("it runs");
    let side = 1 << 10;
    let x: Vec<f32> = (0..ROWS * side).map(|i| (i % 251) as f32).collect();
    let mut wrong = 0;
    for _ in 0..2 {
        let outputs =
            session.run(&[("x", &TensorView::new(&x, &[ROWS as i64, side as i64]))]).expect("it runs");
        let y = outputs[&*format!("p{COUNT}")].as_slice::<f32>().expect("it is of f32");
        let by: usize = (0..COUNT).sum();
        let before = |i: usize| x[i / side * side + (i % side + by) % side];
        wrong += (0..y.len()).filter(|&i| y[i] != before(i)).count();
    }
    wrong
}

/// A reading, the most memory that it takes as a share of the 48 MiB, and how to do it.
type Reading<'a> = (&'a str, f64, &'a dyn Fn() -> Result<Imported, Error>);

#[test]
fn reading_takes_no_more_memory_than_the_files_have() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memory");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let [all, aligned, odd] = ["all.onnx", "aligned.onnx", "odd.onnx"].map(|name| folder.join(name));
    within(&all);
    beside(&aligned, "aligned.data", 64);
    beside(&odd, "odd.data", 1);
    let [even_ir, odd_ir] = ["even.xml", "odd.xml"].map(|name| folder.join(name));
    let [even_bin, odd_bin] = [of_openvino(&even_ir, 0), of_openvino(&odd_ir, 1)];
    let mapped = Options::default();
    let own = Options { own_constants: true, ..Options::default() };
    let (file, ir) = (onnx::read_file, openvino::read_file);
    let rows: &[Reading<'_>] = &[
        ("constants in the model", 1.3, &|| file(&all, &mapped)),
        ("constants beside the model", 0.1, &|| file(&aligned, &mapped)),
        ("constants beside the model at odd places", 1.3, &|| file(&odd, &mapped)),
        ("constants beside the model that own their elements", 1.3, &|| file(&aligned, &own)),
        ("constants of OpenVINO", 0.1, &|| ir(&even_ir, Some(&even_bin), &mapped)),
        ("constants of OpenVINO at odd places", 1.3, &|| ir(&odd_ir, Some(&odd_bin), &mapped)),
        ("constants of OpenVINO that own their elements", 1.3, &|| ir(&even_ir, Some(&even_bin), &own)),
    ];
    let mut wrong = Vec::new();
    for (what, most, read) in rows {
        let Some((taken, imported)) = peak(read) else {
            // Not by `eprintln`, whose text the test runner keeps to itself.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: the system does not tell the most memory of a process");
            return;
        };
        let imported = imported.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(imported.weights.len(), COUNT, "{what}");
        let share = taken as f64 / (4 * COUNT * ELEMENTS) as f64;
        if share > *most {
            wrong.push(format!("{what}: {share:.2} times the elements, and {most} is the most"));
        }
    }
    let chain = folder.join("products.onnx");
    products(&chain, "products.data");
    if let Some((taken, differing)) = peak(|| run_products(&chain)) {
        let share = taken as f64 / (4 * COUNT * ELEMENTS) as f64;
        if share > 1.3 || differing > 0 {
            wrong.push(format!("packed weights: {share:.2} times the elements, {differing} are wrong"));
        }
    }
    let _ = fs::remove_dir_all(&folder);
    report(&wrong);
}
