//! Promise: constants of a file that is mapped stay there where they can, and are the same numbers in any
//! case; a model is read once for all shapes.

#[path = "common/onnx.rs"]
mod bytes;
mod common;
#[path = "files/networks.rs"]
mod networks;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use bytes::{Onnx, external, field, floats, integers, node, tensor, value};
use common::{Ir, as_floats, by_name, float, report};
use sterna::reference::Value;
use sterna::{Engine, Session, TensorView};
use sterna_import::{Dim, Error, Fault, Imported, ModelFile, Options, onnx, openvino};

/// A new folder for the files of a test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// `y = x + c₀ + c₁ + …` of as many constants of four numbers, each from another offset within a word on.
fn sums(count: usize) -> Onnx {
    let sum = |at: usize| if at == 0 { "x".to_owned() } else { format!("s{at}") };
    let mut model = Onnx { inputs: vec![value("x", 1, &[4])], ..Onnx::default() };
    for at in 0..count {
        // A name that is one byte longer moves all that follows.
        let name = format!("c{}", "c".repeat(at));
        let numbers = [0.5, 1.0, 2.0, 4.0].map(|number| number * (at + 1) as f32);
        model.nodes.push(node("Add", &[&sum(at), &name], &[&sum(at + 1)], &[]));
        model.constants.push(floats(&name, &[4], &numbers));
    }
    model.outputs.push(field(1, sum(count).as_bytes()));
    model
}

fn mapped(imported: &Imported) -> usize {
    imported.weights.values().filter(|constant| constant.is_mapped()).count()
}

/// The constants by name.
fn constants(imported: &Imported) -> Vec<(String, Vec<u8>)> {
    let name = |id| imported.weight_names.get(id).cloned().unwrap_or_default();
    imported.weights.iter().map(|(id, constant)| (name(id), constant.bytes().to_vec())).collect()
}

#[test]
fn constants_of_a_mapped_file_are_those_of_its_bytes() {
    let path = folder("mapped").join("sums.onnx");
    let model = sums(8).bytes();
    fs::write(&path, &model).expect("it can be written");
    let of_bytes = onnx::read(&model).unwrap();
    let of_file = onnx::read_file(&path, &Options::default()).unwrap();
    let own = Options { own_constants: true, ..Options::default() };
    let of_own = onnx::read_file(&path, &own).unwrap();
    assert_eq!(constants(&of_bytes), constants(&of_file));
    assert_eq!(constants(&of_bytes), constants(&of_own));
    assert_eq!((mapped(&of_bytes), mapped(&of_own)), (0, 0));
    if cfg!(all(unix, target_endian = "little")) {
        let places = of_file.weights.values().map(|constant| constant.bytes().as_ptr().addr() % 4);
        assert_eq!(mapped(&of_file), 8);
        assert_eq!(places.collect::<BTreeSet<_>>(), [0, 1, 2, 3].into(), "at all offsets within a word");
    }
    let x = float(&[4], &[0.0, 1.0, 2.0, 3.0]);
    let results = [&of_bytes, &of_file, &of_own].map(|imported| by_name(imported, &[("x", x.clone())]));
    assert_eq!(as_floats(&results[0]["s8"]), [18.0, 37.0, 74.0, 147.0]);
    assert!(results[0] == results[1] && results[0] == results[2]);
}

#[test]
fn elements_in_other_files_stay_there() {
    let folder = folder("elements");
    let path = folder.join("sum.onnx");
    let numbers: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    let elements: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    fs::write(folder.join("c.bin"), [&[0; 3][..], &elements, &elements[..5]].concat())
        .expect("it is written");
    let at = |offset: &str| {
        let entries = [("location", "c.bin"), ("offset", offset), ("length", "4096")];
        let mut model = Onnx::of(node("Add", &["x", "c"], &["y"], &[]), &[1024]);
        model.constants.push(external("c", &[1024], &entries));
        fs::write(&path, model.bytes()).expect("it can be written");
        ModelFile::open(&path, &Options::default()).unwrap()
    };
    let unaligned = at("3").import(&Options::default()).unwrap();
    let aligned = at("4").import(&Options::default()).unwrap();
    let only = |imported: &Imported| imported.weights.values().next().unwrap().bytes().to_vec();
    assert_eq!(only(&unaligned), elements);
    assert_eq!(only(&aligned), [&elements[1..], &elements[..1]].concat());
    if cfg!(all(unix, target_endian = "little")) {
        assert_eq!((mapped(&unaligned), mapped(&aligned)), (1, 1));
    }
    // A model keeps its files for all graphs: they share what is mapped.
    let mut wrong = Vec::new();
    for offset in ["3", "4"] {
        let model = at(offset);
        let places = [1, 2].map(|_| {
            let imported = model.import(&Options::default()).unwrap();
            imported.weights.values().next().unwrap().bytes().as_ptr().addr()
        });
        // The first graph is gone; the model keeps what the second one shares.
        if places[0] != places[1] {
            wrong.push(format!("from {offset} on: {places:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn constants_of_openvino_stay_in_their_file() {
    let folder = folder("bin");
    let mut ir = Ir::default();
    let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    let odd = ir.constant("u8", "3", &[1, 2, 3]);
    let unaligned = ir.constant("f32", "4", &bytes);
    ir.constant("u8", "1", &[0]);
    let aligned = ir.constant("f32", "4", &bytes);
    for (name, constant) in [("a", odd), ("b", unaligned), ("c", aligned)] {
        ir.result(name, constant);
    }
    let [xml, bin] = ["model.xml", "model.bin"].map(|name| folder.join(name));
    fs::write(&xml, ir.text()).expect("it can be written");
    fs::write(&bin, &ir.weights).expect("it can be written");
    let of_bytes = openvino::read(&ir.text(), &ir.weights).unwrap();
    let of_file = openvino::read_file(&xml, Some(&bin), &Options::default()).unwrap();
    let own = Options { own_constants: true, ..Options::default() };
    let of_own = ModelFile::open(&xml, &own).unwrap().import(&own).unwrap();
    let in_memory = ModelFile::openvino(&ir.text(), ir.weights.clone(), &own).unwrap().import(&own).unwrap();
    for imported in [&of_file, &of_own, &in_memory] {
        assert_eq!(constants(imported), constants(&of_bytes));
    }
    assert_eq!((mapped(&of_bytes), mapped(&of_own), mapped(&in_memory)), (0, 0, 0));
    if cfg!(all(unix, target_endian = "little")) {
        assert_eq!(mapped(&of_file), 3, "the one at an odd place as well");
    }
    // A file that is too short says so before anything is read there.
    fs::write(&bin, &ir.weights[..8]).expect("it can be written");
    let Err(Error::Layer { fault, .. }) = openvino::read_file(&xml, Some(&bin), &Options::default()) else {
        panic!("the file is too short")
    };
    assert!(matches!(*fault, Fault::Weights { available: 8, .. }), "{fault}");
    fs::remove_file(&bin).expect("it can be removed");
    let lost = openvino::read_file(&xml, Some(&bin), &Options::default());
    assert!(matches!(lost, Err(Error::File { .. })));
}

/// A constant that owns its elements keeps them without its file; to copy one out of a file that was cut off
/// is an error.
#[cfg(unix)]
#[test]
fn files_may_be_cut_off_where_constants_own_their_elements() {
    let path = folder("cut").join("sums.onnx");
    let model = sums(8).bytes();
    let write = || fs::write(&path, &model).expect("it can be written");
    write();
    let own = Options { own_constants: true, ..Options::default() };
    let kept = ModelFile::open(&path, &own).unwrap();
    let before = kept.import(&own).unwrap();
    fs::write(&path, b"").expect("it can be written");
    assert_eq!(constants(&before), constants(&onnx::read(&model).unwrap()));
    assert_eq!(constants(&kept.import(&own).unwrap()), constants(&before));

    let model = four_bits().bytes();
    fs::write(&path, &model).expect("it can be written");
    let mapped = ModelFile::open(&path, &Options::default()).unwrap();
    fs::write(&path, &model[..16]).expect("it can be written");
    let Err(Error::Layer { fault, .. }) = mapped.import(&Options::default()) else {
        panic!("elements without an address are copied")
    };
    assert!(matches!(*fault, Fault::Weights { .. }), "{fault}");
}

#[test]
fn files_of_other_formats_are_refused_by_name() {
    let rows: &[(&str, &[u8], &str)] = &[
        ("model.ort", b"\x18\0\0\0ORTM\0\0", "ONNX Runtime"),
        ("model.tflite", b"\x1c\0\0\0TFL3\0\0", "TensorFlow Lite"),
        ("model.pt", b"PK\x03\x04\0\0", "torch.onnx.export"),
        ("model.pth", b"\x80\x02\x8a\x0a", "torch.onnx.export"),
        ("model.safetensors", b"\x10\x02\0\0\0\0\0\0{\"a\":{", "safetensors"),
        ("model.gguf", b"GGUF\x03\0\0\0", "GGUF"),
        ("model.h5", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("saved_model.pb", b"\x08\x01\x12\x80\x01\x0a\x04", "SavedModel"),
        ("frozen.pb", b"\x0a\x0e\x0a\x01x\x12\x0bPlaceholder", "a graph of TensorFlow"),
        ("frozen_long.pb", b"\x0a\x8e\x01\x0a\x01x\x12\x0bPlaceholder", "a graph of TensorFlow"),
    ];
    let folder = folder("formats");
    let mut wrong = Vec::new();
    for (name, bytes, expected) in rows {
        // The name of the file does not matter.
        for name in [*name, "model.onnx"] {
            let path = folder.join(name);
            fs::write(&path, bytes).expect("it can be written");
            match ModelFile::open(&path, &Options::default()) {
                Err(error @ Error::Document { .. }) if error.to_string().contains(expected) => {}
                other => wrong.push(format!("{name}, {expected}: {:?}", other.err())),
            }
        }
    }
    report(&wrong);
    // A file of ONNX of its first version, which names its producer.
    assert!(sterna_import::refuse_other_formats(b"\x08\x01\x12\x07pytorch\x3a").is_ok());
}

/// `y = Reshape(x + c, [Shape(x)[0], −1])` for x of b × s × 4: as exporters write it, from the shape of `x`.
fn flattened() -> Onnx {
    let mut x = value("x", 1, &[-1, -1, 4]);
    x = {
        let named = |name: &[u8]| field(1, &field(2, name));
        let shape = [named(b"batch"), named(b"seq"), field(1, &bytes::number(1, 4))].concat();
        let of = field(1, &[bytes::number(1, 1), field(2, &shape)].concat());
        drop(x);
        [field(1, b"x"), field(2, &of)].concat()
    };
    let mask = {
        let named = |name: &[u8]| field(1, &field(2, name));
        let of = field(
            1,
            &[bytes::number(1, 1), field(2, &[named(b"batch"), named(b"seq"), named(b"")].concat())].concat(),
        );
        [field(1, b"mask"), field(2, &of)].concat()
    };
    Onnx {
        inputs: vec![x, mask],
        outputs: vec![field(1, b"y")],
        constants: vec![
            floats("c", &[4], &[1.0, 2.0, 3.0, 4.0]),
            integers("first", &[0]),
            integers("rest", &[-1]),
        ],
        nodes: vec![
            node("Add", &["x", "c"], &["sum"], &[]),
            node("Mul", &["sum", "mask"], &["masked"], &[]),
            node("Shape", &["x"], &["shape"], &[]),
            node("Gather", &["shape", "first"], &["batch"], &[]),
            node("Concat", &["batch", "rest"], &["to"], &[bytes::int("axis", 0)]),
            node("Reshape", &["masked", "to"], &["y"], &[]),
        ],
        ..Onnx::default()
    }
}

#[test]
fn one_reading_serves_all_lengths() {
    let path = folder("lengths").join("flat.onnx");
    fs::write(&path, flattened().bytes()).expect("it can be written");
    let model = ModelFile::open(&path, &Options::default()).unwrap();
    let named = |name: &str| Dim::Named(name.into());
    let [x, mask] = model.inputs() else { panic!("two inputs") };
    assert_eq!(x.dims, Some(vec![named("batch"), named("seq"), Dim::Known(4)]));
    assert_eq!(mask.dims, Some(vec![named("batch"), named("seq"), Dim::Open]));
    assert_eq!(model.outputs()[0].names, ["y"]);

    let file = ModelFile::open(&path, &Options::default()).unwrap();
    let session = Session::new(file, &Engine::new()).unwrap();
    let mut wrong = Vec::new();
    for (batch, seq) in [(1, 1), (2, 3), (3, 128), (1, 512), (2, 3)] {
        // The dims of `mask` that have names follow from those of `x`.
        let options = Options {
            dims: [("batch".into(), batch), ("seq".into(), seq)].into(),
            shapes: [("mask".into(), vec![batch, seq, 1])].into(),
            ..Options::default()
        };
        let by_dims = model.import(&options).unwrap();
        let by_shapes = model.at(&[("x", &[batch, seq, 4]), ("mask", &[batch, seq, 1])]).unwrap();
        let anew = onnx::read_under(&flattened().bytes(), &options).unwrap();
        let count = (batch * seq) as usize;
        let x: Vec<f32> = (0..4 * count).map(|i| i as f32).collect();
        let given =
            [("x", float(&[batch, seq, 4], &x)), ("mask", float(&[batch, seq, 1], &vec![1.0; count]))];
        let results = [&by_dims, &by_shapes, &anew].map(|imported| by_name(imported, &given)["y"].clone());
        let expected: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + (i % 4 + 1) as f32).collect();
        if results.iter().any(|y| y.dims() != [batch, 4 * seq] || as_floats(y) != expected) {
            wrong.push(format!("{batch} × {seq}: {results:?}"));
        }
        let ones = vec![1.0f32; count];
        let mask = TensorView::new(&ones, &[batch, seq, 1]);
        let x = TensorView::new(&x, &[batch, seq, 4]);
        let outputs = session.run(&[("x", &x), ("mask", &mask)]).unwrap();
        if outputs["y"].as_slice::<f32>().unwrap() != expected {
            wrong.push(format!("{batch} × {seq}: a session gives {outputs:?}"));
        }
        let places = [&by_dims, &by_shapes].map(|imported| {
            imported.weights.values().map(|constant| constant.bytes().as_ptr()).collect::<Vec<_>>()
        });
        if places[0] != places[1] {
            wrong.push(format!("{batch} × {seq}: constants do not share their elements"));
        }
    }
    report(&wrong);
}

#[test]
fn dims_of_one_name_have_one_length() {
    let bytes = flattened().bytes();
    let model = ModelFile::onnx(&bytes, &Options::default()).unwrap();
    let imported = model.at(&[("x", &[2, 3, 4])]).unwrap();
    assert_eq!(imported.input("mask").unwrap().tensor.partial_dims(), Some(vec![Some(2), Some(3), None]));
    let dims = [("batch".to_owned(), 2)].into();
    let imported = model.import(&Options { dims, partial: true, ..Options::default() }).unwrap();
    assert_eq!(imported.input("x").unwrap().tensor.partial_dims(), Some(vec![Some(2), None, Some(4)]));
    let unknown = Options { dims: [("heads".to_owned(), 2)].into(), ..Options::default() };
    let error = model.import(&unknown).unwrap_err();
    assert_eq!(error.to_string(), "no dim is named `heads`; there are `batch`, `seq`");
    let negative = Options { dims: [("batch".to_owned(), -2)].into(), ..Options::default() };
    assert!(model.import(&negative).is_err());
    assert!(matches!(model.at(&[("z", &[1])]), Err(Error::Name { what: "input", .. })));
}

fn four_bits() -> Onnx {
    Onnx {
        nodes: vec![node("DequantizeLinear", &["c", "scale"], &["y"], &[])],
        constants: vec![tensor("c", 21, &[3], &[0x21, 0xf3]), floats("scale", &[], &[0.5])],
        outputs: vec![field(1, b"y")],
        opset: Some(21),
        ..Onnx::default()
    }
}

/// Types of four bits have no address of their own, and an odd number of them a byte whose half is not
/// theirs.
#[test]
fn elements_of_four_bits_are_copied() {
    let path = folder("bits").join("bits.onnx");
    fs::write(&path, four_bits().bytes()).expect("it can be written");
    let imported = onnx::read_file(&path, &Options::default()).unwrap();
    let y: Value = by_name(&imported, &[])["y"].clone();
    assert_eq!(as_floats(&y), [0.5, 1.0, 1.5]);
}

/// Twice the rows so far of `x`, whose cache is an input and an output.
fn cached() -> Onnx {
    let value = |name: &str, dims: &[&str]| {
        let shape: Vec<u8> = dims.iter().flat_map(|name| field(1, &field(2, name.as_bytes()))).collect();
        let shape = [shape, field(1, &bytes::number(1, 2))].concat();
        let of = field(1, &[bytes::number(1, 1), field(2, &shape)].concat());
        [field(1, name.as_bytes()), field(2, &of)].concat()
    };
    Onnx {
        inputs: vec![value("x", &["batch", "tokens"]), value("past_key_values.0.key", &["batch", "past"])],
        outputs: vec![field(1, b"y"), field(1, b"present.0.key")],
        nodes: vec![
            node("Relu", &["x"], &["new"], &[]),
            node("Concat", &["past_key_values.0.key", "new"], &["present.0.key"], &[bytes::int("axis", 1)]),
            node("Add", &["present.0.key", "present.0.key"], &["y"], &[]),
        ],
        ..Onnx::default()
    }
}

#[test]
fn a_cache_stays_from_run_to_run() {
    let path = folder("caches").join("cached.onnx");
    fs::write(&path, cached().bytes()).expect("it can be written");
    let file = ModelFile::open(&path, &Options::default()).unwrap();
    let session = Session::builder(file.try_into().unwrap()).find_states().build(&Engine::new()).unwrap();
    // The batch is that of `x`, by its name.
    let mut state = session.new_state(&[]).unwrap();
    let mut rows = vec![Vec::new(); 3];
    for tokens in [4usize, 1, 1, 90, 1] {
        let x: Vec<f32> = (0..6 * tokens).map(|i| (i % 7) as f32 - 2.0).collect();
        let of_batch = |batch: usize| x[batch * 2 * tokens..][..2 * tokens].iter().map(|x| 2.0 * x.max(0.0));
        rows.iter_mut().enumerate().for_each(|(batch, rows)| rows.extend(of_batch(batch)));
        let view = TensorView::new(&x, &[3, tokens as i64, 2]);
        let outputs = session.run_with_state(&mut state, &[("x", &view)]).unwrap();
        assert_eq!(outputs["y"].as_slice::<f32>().unwrap(), rows.concat(), "{tokens}");
    }
    assert_eq!(state.len(), 97);
}
