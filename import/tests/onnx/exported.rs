//! Models as exporters write them: nodes in any order, inputs with defaults, dims of −1.

use std::collections::BTreeMap;

use sterna::reference::Value;
use sterna::{OpKind, Policy, Rewrite};
use sterna_import::{Error, Options, onnx};

use super::bytes::{Onnx, field, floats, int, ints, node, number, value};
use super::common::{as_floats, by_name, float, report};
use super::patches::counted;

#[test]
fn nodes_may_stand_in_any_order() {
    // The last node of the file runs first, and a graph in an attribute uses what a later node makes.
    let then = [field(1, &node("Identity", &["a"], &["t"], &[])), field(12, &value("t", 1, &[2]))].concat();
    let other = [field(1, &node("Neg", &["a"], &["e"], &[])), field(12, &value("e", 1, &[2]))].concat();
    let branches =
        [super::bytes::of_graph("then_branch", &then), super::bytes::of_graph("else_branch", &other)];
    let model = Onnx {
        nodes: vec![
            node("Add", &["c", "b"], &["y"], &[]),
            node("If", &["which"], &["c"], &branches),
            node("Abs", &["a"], &["b"], &[]),
            node("Exp", &["x"], &["unused"], &[]),
            node("Neg", &["x"], &["a"], &[]),
        ],
        inputs: vec![value("x", 1, &[2]), value("which", 9, &[])],
        outputs: vec![field(1, b"y")],
        ..Onnx::default()
    };
    let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
    let which = Value::from_slice(&[], &[true]).unwrap();
    let results = by_name(&imported, &[("x", float(&[2], &[1.0, -2.0])), ("which", which)]);
    assert_eq!(as_floats(&results["y"]), [0.0, 4.0]);
    assert!(imported.graph.ops().iter().all(|op| op.kind() != OpKind::Exp));
}

#[test]
fn a_constant_that_is_an_input_is_a_default() {
    let mut model = Onnx::of(node("Add", &["x", "w"], &["y"], &[]), &[2]);
    model.inputs.push(value("w", 1, &[2]));
    model.constants.push(floats("w", &[2], &[10.0, 20.0]));
    let x = || float(&[2], &[1.0, 2.0]);
    let imported = onnx::read(&model.bytes()).unwrap();
    assert_eq!(as_floats(&by_name(&imported, &[("x", x())])["y"]), [11.0, 22.0]);
    let options =
        Options { values: BTreeMap::from([("w".into(), float(&[2], &[0.0, 1.0]))]), ..Options::default() };
    let imported = onnx::read_under(&model.bytes(), &options).unwrap();
    assert_eq!(as_floats(&by_name(&imported, &[("x", x())])["y"]), [1.0, 3.0]);
}

#[test]
fn a_dim_of_minus_one_is_open() {
    let dims = [field(1, &number(1, -1)), field(1, &number(1, 2))].concat();
    let of = field(1, &[number(1, 1), field(2, &dims)].concat());
    let mut model = Onnx::of(node("Exp", &["x"], &["y"], &[]), &[]);
    model.inputs = vec![[field(1, b"x"), field(2, &of)].concat()];
    let options = Options { shapes: BTreeMap::from([("x".into(), vec![3, 2])]), ..Options::default() };
    let imported = onnx::read_under(&model.bytes(), &options).unwrap();
    assert_eq!(imported.outputs[0].tensor.dims(), Some(&[3, 2][..]));
    let open = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(open.outputs[0].tensor.rank(), Some(2));
}

#[test]
fn a_cycle_is_named() {
    let model = Onnx {
        nodes: vec![node("Exp", &["z"], &["y"], &[]), node("Add", &["y", "x"], &["z"], &[])],
        ..Onnx::of(Vec::new(), &[2])
    };
    let Err(Error::Layer { fault, .. }) = onnx::read(&model.bytes()) else { panic!("it is a cycle") };
    let said = "`z` depends on itself, by way of layer `z`; needed: layers without a cycle";
    assert_eq!(fault.to_string(), said);
}

/// A model of nodes on `x` of {2, 3} and `m` of truth values, with a constant `c`.
fn beside(nodes: Vec<Vec<u8>>, c: Vec<u8>) -> Onnx {
    Onnx {
        nodes,
        inputs: vec![value("x", 1, &[2, 3]), value("m", 9, &[2, 3])],
        outputs: vec![field(1, b"y")],
        constants: vec![c],
        ..Onnx::default()
    }
}

#[test]
fn a_constant_of_one_number_is_an_op_of_each_user() {
    let of_bytes = |data_type: i64, dims: &[i64], raw: &[u8]| super::bytes::tensor("c", data_type, dims, raw);
    let add = || vec![node("Cast", &["x"], &["z"], &[int("to", 11)])];
    let double = |c: f64| {
        let nodes = [add(), vec![node("Add", &["z", "c"], &["y"], &[])]].concat();
        beside(nodes, of_bytes(11, &[1], &c.to_le_bytes()))
    };
    let single = |dims: &[i64], c: f32| {
        let count = dims.iter().product::<i64>() as usize;
        beside(vec![node("Mul", &["x", "c"], &["y"], &[])], floats("c", dims, &vec![c; count]))
    };
    let twice = vec![
        node("Mul", &["x", "c"], &["a"], &[]),
        node("Softmax", &["a"], &["b"], &[]),
        node("MatMul", &["b", "w"], &["d"], &[]),
        node("Where", &["m", "d", "c"], &["y"], &[]),
    ];
    let mut twice = beside(twice, floats("c", &[1, 1], &[0.5]));
    twice.constants.push(floats("w", &[3, 3], &[1.0; 9]));
    let mut default = single(&[], 2.0);
    default.inputs.push(value("c", 1, &[]));
    let mut output = single(&[], 2.0);
    output.outputs.push(field(1, b"c"));
    let rows = [
        ("a number", single(&[], 2.0), 1, 0),
        ("a number of three dims", single(&[1, 1, 1], -0.0), 1, 0),
        ("two numbers", single(&[3], 0.0), 0, 1),
        ("infinity", single(&[1], f32::NEG_INFINITY), 1, 0),
        ("a NaN, whose bits tell more", single(&[1], f32::NAN), 0, 1),
        ("an f64 that f32 has", double(0.25), 1, 0),
        ("an f64 that f32 lacks", double(0.1), 0, 1),
        ("two users", twice, 2, 1),
        ("the default of an input", default, 0, 1),
        ("an output as well", output, 1, 1),
    ];
    let mut wrong = Vec::new();
    for (name, model, fills, weights) in rows {
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let ops = imported.graph.ops();
        let made: Vec<_> =
            ops.iter().filter(|op| op.kind() == OpKind::Fill).map(|op| op.outputs()[0].id()).collect();
        let users = |id| ops.iter().filter(|op| op.inputs().iter().any(|input| input.id() == id)).count();
        if (made.len(), imported.weights.len()) != (fills, weights) || made.iter().any(|&id| users(id) != 1) {
            wrong.push(format!("{name}: {made:?} and {} weights", imported.weights.len()));
        }
        let alone = imported.graph.partitions(Policy::Fusion).unwrap();
        let alone = alone.iter().filter(|one| one.ops().iter().all(|op| op.kind() == OpKind::Fill)).count();
        if alone > 0 {
            wrong.push(format!("{name}: {alone} numbers are on their own"));
        }
    }
    report(&wrong);
}

#[test]
fn a_guard_of_the_weights_is_the_mode_of_their_softmax() {
    let nodes = vec![
        node("MatMul", &["q", "k"], &["s"], &[]),
        node("Mul", &["s", "scale"], &["t"], &[]),
        node("Where", &["m", "t", "least"], &["u"], &[]),
        node("Softmax", &["u"], &["p"], &[]),
        node("IsNaN", &["p"], &["n"], &[]),
        node("Where", &["n", "zero", "p"], &["w"], &[]),
        node("MatMul", &["w", "v"], &["y"], &[]),
    ];
    let model = Onnx {
        nodes,
        inputs: vec![
            value("q", 1, &[2, 4]),
            value("k", 1, &[4, 3]),
            value("v", 1, &[3, 2]),
            value("m", 9, &[2, 3]),
        ],
        outputs: vec![field(1, b"y")],
        constants: vec![
            floats("scale", &[], &[0.5]),
            floats("least", &[], &[f32::NEG_INFINITY]),
            floats("zero", &[], &[0.0]),
        ],
        ..Onnx::default()
    };
    let imported = onnx::read(&model.bytes()).unwrap();
    let partitions = imported.graph.partitions(Policy::Fusion).unwrap();
    let applied: Vec<_> = partitions.iter().flat_map(|one| one.rewrites()).copied().collect();
    assert_eq!((partitions.len(), &applied[..]), (1, &[Rewrite::GuardedSoftmax][..]));
    let m = Value::from_slice(&[2, 3], &[true, true, false, false, false, false]).unwrap();
    let inputs = [
        ("q", float(&[2, 4], &[0.0; 8])),
        ("k", float(&[4, 3], &[1.0; 12])),
        ("v", float(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("m", m),
    ];
    assert_eq!(as_floats(&by_name(&imported, &inputs)["y"]), [2.0, 3.0, 0.0, 0.0]);
}

/// The sum of two elements that are no neighbours is an `Add` of slices.
#[test]
fn sums_of_two_elements_are_added() {
    let rows: [(&[i64], i64, i64, &[OpKind]); 5] = [
        (&[3, 2, 4], 1, 0, &[OpKind::Slice, OpKind::Slice, OpKind::Add, OpKind::StaticReshape]),
        (&[3, 2, 4], 1, 1, &[OpKind::Slice, OpKind::Slice, OpKind::Add]),
        (&[-1, 2, 4], 1, 0, &[OpKind::Slice, OpKind::Slice, OpKind::Add, OpKind::StaticReshape]),
        (&[4, 2, 1], 1, 0, &[OpKind::ReduceSum]),
        (&[2, 3, 2], 2, 0, &[OpKind::ReduceSum]),
    ];
    for (dims, axis, keep, kinds) in rows {
        let attributes = [ints("axes", &[axis]), int("keepdims", keep)];
        let model =
            Onnx { opset: Some(12), ..Onnx::of(node("ReduceSum", &["x"], &["y"], &attributes), dims) };
        let imported = onnx::read(&model.bytes()).unwrap();
        let found: Vec<OpKind> = imported.graph.ops().iter().map(sterna::Op::kind).collect();
        assert_eq!(found, kinds, "{dims:?}");
        let own: Vec<i64> = dims.iter().map(|&dim| if dim < 0 { 3 } else { dim }).collect();
        let x = counted(&own);
        let (result, xs) = (&by_name(&imported, &[("x", x.clone())])["y"], as_floats(&x));
        let behind: i64 = own[axis as usize + 1..].iter().product();
        let pairs = xs.chunks(2 * behind as usize).flat_map(|pair| {
            let (first, second) = pair.split_at(behind as usize);
            first.iter().zip(second).map(|(a, b)| a + b).collect::<Vec<f32>>()
        });
        let mut left = own.clone();
        left[axis as usize] = 1;
        if keep == 0 {
            left.remove(axis as usize);
        }
        assert_eq!(*result, float(&left, &pairs.collect::<Vec<f32>>()), "{dims:?}");
    }
}
