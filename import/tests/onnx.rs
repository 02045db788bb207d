//! Promise: a model of ONNX is read as the opset it names says, with functions, values and shapes that are
//! given; what cannot be mapped is an error that names the node, its type and the attribute or input.

#[path = "common/onnx.rs"]
mod bytes;
#[path = "onnx/caches.rs"]
mod caches;
mod common;
#[path = "onnx/contributed.rs"]
mod contributed;
#[path = "onnx/contributed_attention.rs"]
mod contributed_attention;
#[path = "common/division.rs"]
mod division;
#[path = "onnx/edges.rs"]
mod edges;
#[path = "onnx/exported.rs"]
mod exported;
#[path = "onnx/few_bits.rs"]
mod few_bits;
#[path = "onnx/lengths.rs"]
mod lengths;
#[path = "onnx/lookups.rs"]
mod lookups;
#[path = "onnx/loops.rs"]
mod loops;
#[path = "onnx/packed.rs"]
mod packed;
#[path = "onnx/patches.rs"]
mod patches;
#[path = "onnx/recurrent.rs"]
mod recurrent;
#[path = "onnx/refused.rs"]
mod refused;
#[path = "onnx/sampled.rs"]
mod sampled;
#[path = "onnx/whole.rs"]
mod whole;
#[path = "onnx/windows.rs"]
mod windows;

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use bytes::{
    Onnx, field, floats, function, int, integers, node, node_of, of_graph, of_tensor, refers, tensor, value,
};
use common::{as_floats, by_name, float, report};
use sterna::reference::Value;
use sterna::{OpKind, Policy};
use sterna_import::{Error, Fault, Options, onnx};

/// The result `y` of a model on a value of `x`.
#[track_caller]
fn y(model: &Onnx, x: Value) -> Vec<f32> {
    let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
    as_floats(&by_name(&imported, &[("x", x)])["y"])
}

#[test]
fn a_mask_is_fused() {
    // scores where the mask holds, else a constant.
    let mut model = Onnx::of(node("Where", &["m", "x", "least"], &["y"], &[]), &[2, 3]);
    model.inputs.push(value("m", 9, &[1, 3]));
    model.constants.push(floats("least", &[], &[-1.0]));
    model.nodes.insert(0, node("Exp", &["x"], &["unused"], &[]));
    let imported = onnx::read(&model.bytes()).unwrap();
    let kinds: Vec<OpKind> = imported.graph.ops().iter().map(|op| op.kind()).collect();
    assert_eq!(kinds, [OpKind::Fill, OpKind::Select]);
    let partitions = imported.graph.partitions(Policy::Fusion).unwrap();
    assert!(matches!(&partitions[..], [one] if one.is_supported()));
    let x = float(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let m = Value::from_slice(&[1, 3], &[true, false, true]).unwrap();
    let results = by_name(&imported, &[("x", x), ("m", m)]);
    assert_eq!(as_floats(&results["y"]), [1.0, -1.0, 3.0, 4.0, -1.0, 6.0]);
}

#[test]
fn the_opset_decides() {
    let x = || float(&[1, 2, 2], &[0.0, 0.0, 0.0, 0.0]);
    let softmax =
        |opset| Onnx { opset: Some(opset), ..Onnx::of(node("Softmax", &["x"], &["y"], &[]), &[1, 2, 2]) };
    // Before opset 13 the dims from axis 1 on are one.
    assert_eq!(y(&softmax(11), x()), [0.25; 4]);
    assert_eq!(y(&softmax(13), x()), [0.5; 4]);
    let squeeze = |opset| Onnx {
        opset: Some(opset),
        ..Onnx::of(
            node(
                "Squeeze",
                &["x"],
                &["y"],
                &[[field(1, b"axes"), bytes::number(8, 0), bytes::number(20, 7)].concat()],
            ),
            &[1, 2, 2],
        )
    };
    assert_eq!(onnx::read(&squeeze(11).bytes()).unwrap().outputs[0].tensor.dims(), Some(&[2, 2][..]));
    let refused = onnx::read(&squeeze(13).bytes()).unwrap_err();
    let Error::Layer { fault, .. } = refused else { panic!("{refused}") };
    assert!(matches!(&*fault, Fault::UnknownAttribute { attribute } if attribute == "axes"));
    for opset in [0, 29, -1] {
        let Err(Error::Layer { fault, .. }) = onnx::read(&softmax(opset).bytes()) else { panic!("{opset}") };
        let said = format!("is opset {opset}, which is not read; needed: one of the opsets 1 to 28");
        assert!(matches!(*fault, Fault::Version { .. }) && fault.to_string().ends_with(&said), "{fault}");
    }
    // Older than the first version of the op.
    let mut early = Onnx::of(node("Mish", &["x"], &["y"], &[]), &[2]);
    early.opset = Some(17);
    let refused = onnx::read(&early.bytes()).unwrap_err().to_string();
    let said = "is opset 17, which is not read; needed: opset 18 or a later one";
    assert!(refused.ends_with(said), "{refused}");
}

#[test]
fn what_is_not_mapped_is_named() {
    let with = |kind: &str, attributes: &[Vec<u8>]| Onnx::of(node(kind, &["x"], &["y"], attributes), &[2]);
    let rows = [
        (
            with("Unique", &[]),
            "layer `y` (id 0, type Unique): layers of this type are not mapped; needed: ops of Sterna that \
             compute the same",
        ),
        (
            with("Exp", &[int("axis", 1)]),
            "layer `y` (id 0, type Exp): attribute `axis` is not known here, and might change what the \
             layer computes",
        ),
        (
            with("Concat", &[[field(1, b"axis"), bytes::number(20, 1)].concat()]),
            "layer `y` (id 0, type Concat): attribute `axis`; needed: an attribute of type Int",
        ),
        (with("Add", &[]), "layer `y` (id 0, type Add): 1 input ports; needed: 2"),
        (with("And", &[]), "layer `y` (id 0, type And): 1 input ports; needed: 2"),
        (with("Not", &[]), "layer `y` (id 0, type Not): input port 0 (`X`) is f32; needed: boolean"),
        (
            Onnx::of(node("Reshape", &["x", "x"], &["y"], &[]), &[2]),
            "layer `y` (id 0, type Reshape): input port 1 (`shape`) is no constant; needed: a constant \
             of whole numbers",
        ),
        (Onnx::of(node("Exp", &["z"], &["y"], &[]), &[2]), "layer `y` (id 0, type Exp): nothing makes `z`"),
        (
            Onnx::of(node("Add", &["x", "y"], &["y"], &[]), &[2]),
            "layer `y` (id 0, type Add): `y` depends on itself, by way of layer `y`; needed: layers \
             without a cycle",
        ),
        (
            Onnx::of(node("Exp", &["x"], &["z"], &[]), &[2]),
            "layer `y` (id 0, type output): nothing makes `y`",
        ),
        (
            Onnx::of(node_of("com.example", "Exp", &["x"], &["y"], &[]), &[2]),
            "layer `y` (id 0, type Exp): layers of this type are not mapped; needed: an op of ONNX \
             itself, or a function",
        ),
        (
            Onnx { inputs: vec![value("x", 8, &[2])], ..with("Exp", &[]) },
            "layer `x` (id 0, type input): output port 0 is string; needed: numbers or truth values",
        ),
    ];
    let mut wrong = Vec::new();
    for (model, expected) in rows {
        match onnx::read(&model.bytes()) {
            Err(error) if error.to_string() == expected => {}
            other => wrong.push(format!("{expected}\n  {:?}", other.map_err(|error| error.to_string()))),
        }
    }
    report(&wrong);
    let options = Options { partial: true, ..Options::default() };
    let partial = onnx::read_under(&with("Unique", &[]).bytes(), &options).unwrap();
    assert_eq!((partial.graph.ops()[0].kind(), partial.skipped.len()), (OpKind::Wildcard, 1));
}

#[test]
fn functions_become_their_bodies() {
    // own.F(a) <axis> = Softmax<axis = @axis>(a) + a
    let body = [
        node("Softmax", &["a"], &["s"], &[refers("axis", "axis", 2)]),
        node("Add", &["s", "a"], &["b"], &[]),
    ];
    let softmax = function("F", &["a"], &["b"], &["axis"], &body);
    let call = |attributes: &[Vec<u8>]| Onnx {
        functions: vec![softmax.clone()],
        ..Onnx::of(node_of("own", "F", &["x"], &["y"], attributes), &[2, 1])
    };
    let x = || float(&[2, 1], &[3.0, 3.0]);
    assert_eq!(y(&call(&[int("axis", 0)]), x()), [3.5, 3.5]);
    // An attribute that the call leaves out has the default of the op.
    assert_eq!(y(&call(&[]), x()), [4.0, 4.0]);
    let unknown = onnx::read(&call(&[int("size", 0)]).bytes()).unwrap_err().to_string();
    assert!(unknown.contains("attribute `size` is not known here"), "{unknown}");
    // An input that the call leaves out is left out within.
    let clip = function("C", &["a", "least"], &["b"], &[], &[node("Clip", &["a", "least"], &["b"], &[])]);
    let model = Onnx { functions: vec![clip], ..Onnx::of(node_of("own", "C", &["x"], &["y"], &[]), &[2, 1]) };
    assert_eq!(y(&model, x()), [3.0, 3.0]);
}

#[test]
fn values_and_shapes_are_given() {
    let mut model = Onnx::of(node("Reshape", &["x", "shape"], &["y"], &[]), &[-1, 4]);
    model.inputs.push(value("shape", 7, &[2]));
    let mut of_guide = Onnx::of(node("Reshape", &["x", "shape"], &["y"], &[]), &[-1, 3]);
    of_guide.inputs.push(value("shape", 7, &[2]));
    let bytes = model.bytes();
    // The model that the guide shows.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/reshape.onnx");
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&file, of_guide.bytes()).expect("the file can be written");
    }
    assert!(fs::read(&file).is_ok_and(|held| held == of_guide.bytes()), "STERNA_REWRITE=1 writes it anew");
    assert!(matches!(onnx::read(&bytes), Err(Error::Layer { .. })));
    let shape = Value::from_slice(&[2], &[2i64, -1]).unwrap();
    let values = BTreeMap::from([("shape".into(), shape.clone())]);
    let open = onnx::read_with(&bytes, &values).unwrap();
    assert_eq!(open.input("x").unwrap().tensor.partial_dims(), Some(vec![None, Some(4)]));
    assert!(open.inputs.iter().any(|port| port.name() == "shape"));
    let mut options = Options { values, ..Options::default() };
    options.shapes.insert("x".into(), vec![3, 4]);
    let closed = onnx::read_under(&bytes, &options).unwrap();
    assert_eq!(closed.output("y").unwrap().tensor.dims(), Some(&[2, 6][..]));
    options.shapes.insert("x".into(), vec![3, 4, 1]);
    assert!(onnx::read_under(&bytes, &options).is_err());
    let wrong = BTreeMap::from([("shape".into(), Value::from_slice(&[2], &[2i32, -1]).unwrap())]);
    let error = onnx::read_with(&bytes, &wrong).unwrap_err().to_string();
    assert!(error.contains("is s32; needed: s64"), "{error}");
    let unknown = BTreeMap::from([("size".into(), shape.clone())]);
    assert!(matches!(onnx::read_with(&bytes, &unknown), Err(Error::Name { .. })));
    // A constant that is an input as well may have another value.
    model.constants.push(integers("shape", &[1, 8]));
    model.inputs[0] = value("x", 1, &[2, 4]);
    let dims = |imported: sterna_import::Imported| imported.outputs[0].tensor.dims().map(<[i64]>::to_vec);
    assert_eq!(dims(onnx::read(&model.bytes()).unwrap()), Some(vec![1, 8]));
    let anew = BTreeMap::from([("shape".into(), shape)]);
    assert_eq!(dims(onnx::read_with(&model.bytes(), &anew).unwrap()), Some(vec![2, 4]));
}

#[test]
fn sequences_are_reversed_up_to_constant_lengths() {
    let x = float(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let model = |lengths: &[i64], attributes: &[Vec<u8>]| {
        let mut model = Onnx::of(node("ReverseSequence", &["x", "l"], &["y"], attributes), &[3, 2]);
        model.constants.push(integers("l", lengths));
        model
    };
    let batch_first = [int("batch_axis", 0), int("time_axis", 1)];
    type Row<'a> = (&'a [i64], &'a [Vec<u8>], [f32; 6]);
    let rows: [Row<'_>; 5] = [
        (&[3, 3], &[], [5.0, 6.0, 3.0, 4.0, 1.0, 2.0]),
        (&[2, 2], &[], [3.0, 4.0, 1.0, 2.0, 5.0, 6.0]),
        (&[3, 2], &[], [5.0, 4.0, 3.0, 2.0, 1.0, 6.0]),
        (&[0, 1], &[], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (&[2, 1, 2], &batch_first, [2.0, 1.0, 3.0, 4.0, 6.0, 5.0]),
    ];
    for (lengths, attributes, expected) in rows {
        assert_eq!(y(&model(lengths, attributes), x.clone()), expected, "{lengths:?}");
    }
    for (lengths, attributes) in [
        (&[3][..], &[][..]),
        (&[3, 4], &[]),
        (&[-1, 3], &[]),
        (&[3, 3], &[int("batch_axis", 0)]),
        (&[3, 3], &[int("time_axis", 2)]),
    ] {
        assert!(onnx::read(&model(lengths, attributes).bytes()).is_err(), "{lengths:?}");
    }
}

/// The ops of reductions and products lack f64; what stands for them has the digits of f64.
#[test]
fn rows_of_f64_are_combined_in_f64() {
    let double = |dims: &[i64], numbers: &[f64]| Value::from_slice(dims, numbers).unwrap();
    let numbers: Vec<f64> = (1..=15).map(|i| f64::from(i) / 7.0 + 1e-12).collect();
    let rows = |of: &dyn Fn(&[f64]) -> f64| -> Vec<f64> { numbers.chunks(5).map(of).collect() };
    let sum = |row: &[f64]| row.iter().sum::<f64>();
    let cases: [(&str, Vec<f64>); 7] = [
        ("ReduceSum", rows(&sum)),
        ("ReduceMean", rows(&|row| sum(row) / 5.0)),
        ("ReduceProd", rows(&|row| row.iter().product())),
        ("ReduceMax", rows(&|row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max))),
        ("ReduceMin", rows(&|row| row.iter().copied().fold(f64::INFINITY, f64::min))),
        ("ReduceL2", rows(&|row| row.iter().map(|x| x * x).sum::<f64>().sqrt())),
        ("ReduceLogSumExp", rows(&|row| row.iter().map(|x| x.exp()).sum::<f64>().ln())),
    ];
    let near = |found: &Value, expected: &[f64]| {
        let found = found.elements::<f64>().unwrap();
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-14 * b.abs())
    };
    let mut wrong = Vec::new();
    for (kind, expected) in cases {
        let mut model = Onnx::of(node(kind, &["x", "axes"], &["y"], &[int("keepdims", 0)]), &[]);
        model.inputs = vec![value("x", 11, &[3, 5])];
        model.constants.push(integers("axes", &[1]));
        let imported = onnx::read(&model.bytes()).unwrap();
        let result = &by_name(&imported, &[("x", double(&[3, 5], &numbers))])["y"];
        if result.dims() != [3] || !near(result, &expected) {
            wrong.push(format!("{kind}: {result:?}, not {expected:?}"));
        }
    }
    let mut model = Onnx::of(node("MatMul", &["x", "w"], &["p"], &[]), &[]);
    model.nodes.push(node("Softmax", &["p"], &["y"], &[]));
    model.inputs = vec![value("x", 11, &[3, 5]), value("w", 11, &[5, 2])];
    let weights: Vec<f64> = (0..10).map(|i| f64::from(i) / 3.0).collect();
    let expected: Vec<f64> = numbers
        .chunks(5)
        .flat_map(|row| {
            let column =
                |at: usize| row.iter().enumerate().map(|(i, x)| x * weights[2 * i + at]).sum::<f64>();
            let parts = [column(0).exp(), column(1).exp()];
            parts.map(|part| part / (parts[0] + parts[1]))
        })
        .collect();
    let given = [("x", double(&[3, 5], &numbers)), ("w", double(&[5, 2], &weights))];
    let result = &by_name(&onnx::read(&model.bytes()).unwrap(), &given)["y"];
    let found = result.elements::<f64>().unwrap();
    if found.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-13) || found.len() != 6 {
        wrong.push(format!("product and shares: {found:?}, not {expected:?}"));
    }
    report(&wrong);
}

/// A branch that adds a number to `x`.
fn branch(name: &str, number: f32) -> Vec<u8> {
    let held = format!("{name}_by");
    let add = node("Add", &["x", &held], &[name], &[]);
    let output = field(12, &field(1, name.as_bytes()));
    of_graph(
        &format!("{name}_branch"),
        &[field(1, &add), field(5, &floats(&held, &[], &[number])), output].concat(),
    )
}

#[test]
fn branches_are_taken_or_chosen_between() {
    let branches = [branch("then", 1.0), branch("else", 2.0)];
    let x = || float(&[2], &[1.0, 4.0]);
    let mut model = Onnx::of(node("If", &["cond"], &["y"], &branches), &[2]);
    model.inputs.push(value("cond", 9, &[1]));
    // A condition that is data chooses between what both compute.
    let imported = onnx::read(&model.bytes()).unwrap();
    assert!(imported.graph.ops().iter().any(|op| op.kind() == OpKind::Select));
    for (truth, expected) in [(true, [2.0, 5.0]), (false, [3.0, 6.0])] {
        let cond = Value::from_slice(&[1], &[truth]).unwrap();
        assert_eq!(as_floats(&by_name(&imported, &[("x", x()), ("cond", cond)])["y"]), expected);
    }
    // As exporters ask whether a dim is 1; the branch that is not taken need not fit.
    let mut asked = Onnx::of(node("Shape", &["x"], &["shape"], &[]), &[2]);
    asked.nodes.push(node("Equal", &["shape", "one"], &["cond"], &[]));
    let squeeze = field(1, &node("Squeeze", &["x", "zero"], &["then"], &[]));
    let then = of_graph("then_branch", &[squeeze, field(12, &field(1, b"then"))].concat());
    let asked_branches = [then, branches[1].clone()];
    asked.nodes.push(node("If", &["cond"], &["y"], &asked_branches));
    asked.constants = vec![integers("one", &[1]), integers("zero", &[0])];
    let imported = onnx::read(&asked.bytes()).unwrap();
    let kinds: Vec<OpKind> = imported.graph.ops().iter().map(|op| op.kind()).collect();
    assert_eq!(kinds, [OpKind::Fill, OpKind::Add]);
    assert_eq!(as_floats(&by_name(&imported, &[("x", x())])["y"]), [3.0, 6.0]);
    asked.inputs = vec![value("x", 1, &[1])];
    assert_eq!(onnx::read(&asked.bytes()).unwrap().outputs[0].tensor.dims(), Some(&[][..]));

    // A branch that does not fit asks for a condition, which may be given.
    let mut misfit = Onnx::of(node("If", &["cond"], &["y"], &asked_branches), &[2]);
    misfit.inputs.push(value("cond", 9, &[]));
    misfit.constants = vec![integers("zero", &[0])];
    let error = onnx::read(&misfit.bytes()).unwrap_err().to_string();
    assert!(error.contains("a constant, since `then_branch` cannot be computed: input port 0"), "{error}");
    let values = [("cond".to_owned(), Value::from_slice(&[], &[false]).unwrap())].into();
    let imported = onnx::read_with(&misfit.bytes(), &values).unwrap();
    assert_eq!(as_floats(&by_name(&imported, &[("x", x())])["y"]), [3.0, 6.0]);

    let mut wide = model;
    wide.inputs[1] = value("cond", 9, &[2]);
    let several =
        Onnx { outputs: vec![field(1, b"z")], ..Onnx::of(node("If", &["x"], &["y", "z"], &branches), &[]) };
    let rows = [
        (wide, "input port 0 (`cond`) is no constant; needed: a constant, or branches whose results have"),
        (Onnx::of(node("If", &[], &["y"], &branches), &[2]), "0 input ports; needed: 1"),
        (several, "needed: branches with an output for each of the node"),
        (Onnx::of(node("If", &["x"], &["y"], &branches[..1]), &[]), "attribute `else_branch` is missing"),
        (Onnx::of(node("If", &["x"], &["y"], &branches), &[]), "is no constant; needed: a constant, or"),
    ];
    let mut wrong = Vec::new();
    for (model, expected) in rows {
        match onnx::read(&model.bytes()) {
            Err(error) if error.to_string().contains(expected) => {}
            Err(error) => wrong.push(format!("{expected}: {error}")),
            Ok(_) => wrong.push(format!("read, although it needs {expected}")),
        }
    }
    report(&wrong);
}

#[test]
fn gelu_that_is_written_out_is_one_op() {
    let numbers = [("root", 2f32.sqrt()), ("by_root", 0.5f32.sqrt()), ("half", 0.5), ("one", 1.0)];
    // In front of the error function, and the products behind it, as different exporters write them.
    let scaled = [node("Div", &["x", "root"], &["u"], &[]), node("Mul", &["by_root", "x"], &["u"], &[])];
    let mul = |a: &str, b: &str, to: &str| node("Mul", &[a, b], &[to], &[]);
    let products = [
        [mul("x", "sum", "p"), mul("p", "half", "y")],
        [mul("x", "half", "p"), mul("p", "sum", "y")],
        [mul("half", "sum", "p"), mul("x", "p", "y")],
    ];
    let model = |scaled: &Vec<u8>, products: &[Vec<u8>; 2], half: f32| {
        let mut model = Onnx::of(scaled.clone(), &[5]);
        model.nodes.push(node("Erf", &["u"], &["erf"], &[]));
        model.nodes.push(node("Add", &["erf", "one"], &["sum"], &[]));
        model.nodes.extend_from_slice(products);
        model.constants = numbers
            .map(|(name, number)| floats(name, &[], &[if name == "half" { half } else { number }]))
            .to_vec();
        model
    };
    let x = || float(&[5], &[-3.0, -0.25, 0.0, 0.5, 2.0]);
    let expected = [-0.00404951, -0.10032343, 0.0, 0.34573123, 1.9544997];
    let near = |found: Vec<f32>, factor: f32| {
        found.iter().zip(expected).all(|(a, b)| (a - b * factor).abs() <= 1e-6) && found.len() == 5
    };
    let mut wrong = Vec::new();
    for (index, scaled) in scaled.iter().enumerate() {
        for (order, products) in products.iter().enumerate() {
            let imported = onnx::read(&model(scaled, products, 0.5).bytes()).unwrap();
            let kinds: Vec<OpKind> = imported.graph.ops().iter().map(sterna::Op::kind).collect();
            let found = as_floats(&by_name(&imported, &[("x", x())])["y"]);
            if kinds != [OpKind::GELU] || !near(found.clone(), 1.0) {
                wrong.push(format!("{index}, {order}: {kinds:?} {found:?}"));
            }
            // Of another factor it is none.
            let imported = onnx::read(&model(scaled, products, 0.75).bytes()).unwrap();
            let found = as_floats(&by_name(&imported, &[("x", x())])["y"]);
            if imported.graph.ops().len() < 10 || !near(found.clone(), 1.5) {
                wrong.push(format!("{index}, {order} by ¾: {found:?}"));
            }
        }
    }
    report(&wrong);
    // A value inside of GELU that something else reads is computed as well.
    let mut both = model(&scaled[0], &products[0], 0.5);
    both.outputs.push(field(1, b"erf"));
    let results = by_name(&onnx::read(&both.bytes()).unwrap(), &[("x", x())]);
    assert!(near(as_floats(&results["y"]), 1.0));
    assert!((as_floats(&results["erf"])[3] - 0.3829249).abs() < 1e-6);
}

#[test]
fn sums_run_along_an_axis() {
    let x = || float(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// Type of the node, axis, attributes, and the result.
    type Row<'a> = (&'a str, i64, &'a [Vec<u8>], [f32; 6]);
    let rows: [Row<'_>; 6] = [
        ("CumSum", 1, &[], [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
        ("CumSum", -2, &[], [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]),
        ("CumSum", 1, &[int("exclusive", 1)], [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]),
        ("CumSum", 1, &[int("reverse", 1)], [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]),
        ("CumSum", 1, &[int("reverse", 1), int("exclusive", 1)], [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]),
        ("CumProd", 1, &[int("exclusive", 1)], [1.0, 1.0, 2.0, 1.0, 4.0, 20.0]),
    ];
    let mut wrong = Vec::new();
    for (kind, axis, attributes, expected) in rows {
        let mut model = Onnx::of(node(kind, &["x", "axis"], &["y"], attributes), &[2, 3]);
        (model.constants, model.opset) = (vec![integers("axis", &[axis])], Some(26));
        let found = y(&model, x());
        if found != expected {
            wrong.push(format!("{kind} along {axis}: {found:?}, not {expected:?}"));
        }
    }
    report(&wrong);
    // Integers wrap around; of no elements there is no sum; longer rows take more steps.
    let of = |data_type: i64, x: Value| {
        let mut model = Onnx::of(node("CumSum", &["x", "axis"], &["y"], &[]), &[]);
        model.inputs = vec![value("x", data_type, x.dims())];
        model.constants.push(integers("axis", &[0]));
        by_name(&onnx::read(&model.bytes()).unwrap(), &[("x", x)])["y"].clone()
    };
    let bytes = of(2, Value::from_slice(&[3], &[200u8, 100, 1]).unwrap());
    assert_eq!(bytes.elements::<u8>().unwrap(), [200, 44, 45]);
    assert_eq!(of(1, float(&[0], &[])).dims(), [0]);
    let ones = of(7, Value::from_slice(&[77], &[1i64; 77]).unwrap());
    assert_eq!(ones.elements::<i64>().unwrap(), (1..=77).collect::<Vec<i64>>());
}

/// Before opset 11 exporters make the numbers from 0 on of the places of ones.
#[test]
fn places_of_what_is_not_zero_are_constants() {
    let mut model = Onnx::of(node("Shape", &["x"], &["length"], &[]), &[4]);
    let ones = of_tensor("value", &tensor("", 7, &[1], &1i64.to_le_bytes()));
    model.nodes.push(node("ConstantOfShape", &["length"], &["ones"], &[ones]));
    model.nodes.push(node("NonZero", &["ones"], &["rows"], &[]));
    model.nodes.push(node("Cast", &["rows"], &["numbers"], &[int("to", 1)]));
    model.nodes.push(node("Add", &["x", "numbers"], &["y"], &[]));
    model.opset = Some(9);
    assert_eq!(y(&model, float(&[4], &[0.5; 4])), [0.5, 1.5, 2.5, 3.5]);
    let error = onnx::read(&Onnx::of(node("NonZero", &["x"], &["y"], &[]), &[2]).bytes()).unwrap_err();
    assert!(error.to_string().contains("input port 0 (`X`) is no constant"), "{error}");
}

#[test]
fn an_input_that_nothing_reads_may_be_of_any_type() {
    let mut model = Onnx::of(node("Relu", &["x"], &["y"], &[]), &[2]);
    model.inputs.push(value("text", 8, &[2]));
    assert_eq!(y(&model, float(&[2], &[-1.0, 2.0])), [0.0, 2.0]);
    // A type that is given does not change what the file says.
    let mut options = Options::default();
    options.types.insert("x".into(), sterna::DataType::F32);
    model.inputs = vec![value("x", 8, &[2])];
    let refused = onnx::read_under(&model.bytes(), &options).unwrap_err().to_string();
    assert!(refused.contains("is string; needed: numbers or truth values"), "{refused}");
    // Only if it says nothing.
    model.inputs = vec![value("x", 0, &[2])];
    assert!(onnx::read(&model.bytes()).is_err());
    assert!(onnx::read_under(&model.bytes(), &options).is_ok());
}

#[test]
fn einsum_sums_products_over_labels() {
    let numbers = |count: usize| (0..count).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<f32>>();
    // The dim of each label.
    let dim = |label: char| 2 + i64::from(u32::from(label) % 3);
    let value_of = |labels: &str, index: &dyn Fn(char) -> i64, data: &[f32]| {
        data[labels.chars().fold(0, |place, label| place * dim(label) + index(label)) as usize]
    };
    let mut wrong = Vec::new();
    for equation in [
        "bhid,bhjd->bhij",
        "bhij,bhjd->bihd",
        "bhij,bhjd->bhid",
        "bij, bjk -> bik",
        "ij,kj",
        "i,j->ji",
        "bid,de,bje->bij",
        "abc,cb->a",
        "ab->",
        "abc->cb",
        "abc,b->ab",
        "ab,ab->ab",
    ] {
        let text: String = equation.replace(' ', "");
        let (operands, result) = match text.split_once("->") {
            Some((operands, result)) => (operands, result.to_owned()),
            None => (&*text, "ik".into()),
        };
        let operands: Vec<&str> = operands.split(',').collect();
        let names = ["x", "v", "w"];
        let dims = |labels: &str| labels.chars().map(dim).collect::<Vec<i64>>();
        let attribute = [field(1, b"equation"), field(4, equation.as_bytes()), bytes::number(20, 3)].concat();
        let mut model = Onnx::of(node("Einsum", &names[..operands.len()], &["y"], &[attribute]), &[]);
        model.inputs =
            operands.iter().zip(names).map(|(labels, name)| value(name, 1, &dims(labels))).collect();
        let data: Vec<Vec<f32>> =
            operands.iter().map(|labels| numbers(dims(labels).iter().product::<i64>() as usize)).collect();
        let given: Vec<(&str, Value)> = names
            .into_iter()
            .zip(operands.iter().zip(&data))
            .map(|(name, (labels, data))| (name, float(&dims(labels), data)))
            .collect();
        let found = by_name(&onnx::read(&model.bytes()).unwrap(), &given)["y"].clone();
        // Every index of every label, one after the other.
        let mut all: Vec<char> = operands.concat().chars().collect();
        all.sort_unstable();
        all.dedup();
        let mut expected = vec![0f32; dims(&result).iter().product::<i64>() as usize];
        for number in 0..all.iter().map(|label| dim(*label)).product::<i64>() {
            let index = |label: char| {
                let (mut rest, mut own) = (number, 0);
                for other in &all {
                    if *other == label {
                        own = rest % dim(label);
                    }
                    rest /= dim(*other);
                }
                own
            };
            let place = result.chars().fold(0, |place, label| place * dim(label) + index(label)) as usize;
            expected[place] += operands
                .iter()
                .zip(&data)
                .map(|(labels, data)| value_of(labels, &index, data))
                .product::<f32>();
        }
        let near = as_floats(&found).iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5);
        if found.dims() != dims(&result) || !near {
            wrong.push(format!("{equation}: {found:?}, not {expected:?}"));
        }
    }
    report(&wrong);
    let refused = [("ii->i", "attribute `equation`"), ("ij->k", "attribute `equation`")];
    for (equation, expected) in refused {
        let attribute = [field(1, b"equation"), field(4, equation.as_bytes()), bytes::number(20, 3)].concat();
        let model = Onnx::of(node("Einsum", &["x"], &["y"], &[attribute]), &[3, 3]);
        let error = onnx::read(&model.bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
