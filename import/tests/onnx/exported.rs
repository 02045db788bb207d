//! What exporters write: nodes in any order, inputs with defaults, dims of −1.

use std::collections::BTreeMap;

use sterna::OpKind;
use sterna::reference::Value;
use sterna_import::{Error, Options, onnx};

use super::bytes::{Onnx, field, floats, node, number, value};
use super::common::{as_floats, by_name, float};

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
