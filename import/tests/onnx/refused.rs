//! Nodes that become ops `Wildcard`: they keep what the file says of them, and what follows is read.

use std::collections::BTreeMap;

use sterna::OpKind;
use sterna::reference::Value;
use sterna_import::{LayerAttribute, Options, onnx};

use super::bytes::{
    Onnx, field, floats, function, int, integers, node, node_of, number, of_graph, of_tensor, refers, text,
    value, varint,
};
use super::common::report;

/// The result of a node that is refused, in a model that is read in part.
fn partly(model: &Onnx, options: Options) -> Result<(String, usize), String> {
    let options = Options { partial: true, ..options };
    let imported = onnx::read_under(&model.bytes(), &options).map_err(|error| error.to_string())?;
    let ops = imported.graph.ops();
    let refused = ops.iter().filter(|op| op.kind() == OpKind::Wildcard).count();
    let wildcard = ops.iter().find(|op| op.kind() == OpKind::Wildcard).ok_or("nothing is refused")?;
    let output = &wildcard.outputs()[0];
    let dims = output.partial_dims().map(|dims| {
        let text = dims.iter().map(|dim| dim.map_or("?".into(), |dim| dim.to_string()));
        text.collect::<Vec<String>>().join(",")
    });
    Ok((format!("{} {}", output.data_type(), dims.unwrap_or_else(|| "...".into())), refused))
}

/// A node, the dims of its input, constants, and the type and dims of its result.
type Refused<'a> = (Vec<u8>, &'a [i64], Vec<Vec<u8>>, &'a str);

/// An attribute of whole numbers.
fn list(name: &str, numbers: &[i64]) -> Vec<u8> {
    let numbers: Vec<u8> = numbers.iter().flat_map(|&n| number(8, n)).collect();
    [field(1, name.as_bytes()), numbers, number(20, 7)].concat()
}

fn microsoft(kind: &str, inputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    node_of("com.microsoft", kind, inputs, &["z"], attributes)
}

/// Windows that move along the data.
fn of_windows() -> Vec<Refused<'static>> {
    let w = || floats("w", &[6, 1, 3, 3], &[0.0; 54]);
    vec![
        (node("Conv", &["x", "w"], &["z"], &[int("odd", 1)]), &[2, 1, 8, 8], vec![w()], "f32 2,6,6,6"),
        (
            node(
                "Conv",
                &["x", "w"],
                &["z"],
                &[list("strides", &[2, 1]), list("pads", &[1, 0, 1, 2]), int("odd", 1)],
            ),
            &[2, 1, 8, -1],
            vec![w()],
            "f32 2,6,4,?",
        ),
        (
            node(
                "ConvTranspose",
                &["x", "w"],
                &["z"],
                &[list("strides", &[2, 2]), int("group", 2), int("odd", 1)],
            ),
            &[2, 6, 4, 5],
            vec![w()],
            "f32 2,2,9,11",
        ),
        (
            node("MaxPool", &["x"], &["z"], &[list("kernel_shape", &[2, 2]), int("odd", 1)]),
            &[2, 3, 8, 8],
            vec![],
            "f32 2,3,7,7",
        ),
        (
            node(
                "AveragePool",
                &["x"],
                &["z"],
                &[
                    list("kernel_shape", &[3, 3]),
                    list("strides", &[2, 2]),
                    int("ceil_mode", 1),
                    int("odd", 1),
                ],
            ),
            &[2, 3, 4, 7],
            vec![],
            "f32 2,3,2,3",
        ),
        (node("GlobalLpPool", &["x"], &["z"], &[]), &[2, 3, 8, 8], vec![], "f32 2,3,1,1"),
    ]
}

/// Steps of recurrent networks, and data that is enlarged or shrunk.
fn of_steps_and_scales() -> Vec<Refused<'static>> {
    let gru = [floats("w", &[1, 15, 4], &[0.0; 60]), floats("r", &[1, 15, 5], &[0.0; 75])];
    let hidden = [int("hidden_size", 5), int("odd", 1)];
    let lstm = [floats("w", &[1, 20, 4], &[0.0; 80]), floats("r", &[1, 20, 5], &[0.0; 100])];
    vec![
        (node("LSTM", &["x", "w", "r"], &["z"], &hidden), &[7, 2, 4], lstm.to_vec(), "f32 7,1,2,5"),
        (node("GRU", &["x", "w", "r"], &["z"], &[int("odd", 1)]), &[7, 2, 4], gru.to_vec(), "f32 7,1,2,5"),
        (node("Resize", &["x"], &["z"], &[]), &[2, 3, 4], vec![], "f32 ?,?,?"),
        (
            node("Resize", &["x", "", "s"], &["z"], &[int("odd", 1)]),
            &[2, 3, 4],
            vec![floats("s", &[3], &[1.0, 2.0, 0.6])],
            "f32 2,6,2",
        ),
        (
            node("Resize", &["x", "", "", "s"], &["z"], &[list("axes", &[2]), int("odd", 1)]),
            &[2, -1, 4],
            vec![integers("s", &[9])],
            "f32 2,?,9",
        ),
        (
            node("GridSample", &["x", "g"], &["z"], &[int("odd", 1)]),
            &[2, 3, 8, 8],
            vec![floats("g", &[2, 4, 5, 2], &[0.0; 80])],
            "f32 2,3,4,5",
        ),
    ]
}

/// Ops of ONNX Runtime, and others.
fn of_others() -> Vec<Refused<'static>> {
    let w = || floats("w", &[6, 1, 3, 3], &[0.0; 54]);
    vec![
        (
            microsoft("MatMulNBits", &["x", "w", "w"], &[int("N", 5), int("K", 8), int("odd", 1)]),
            &[2, 8],
            vec![w()],
            "f32 2,5",
        ),
        (
            microsoft("MultiHeadAttention", &["x", "x", "x"], &[int("num_heads", 2), int("odd", 1)]),
            &[2, 7, 8],
            vec![],
            "f32 2,7,8",
        ),
        (
            microsoft(
                "GroupQueryAttention",
                &["x"],
                &[int("num_heads", 4), int("kv_num_heads", 2), int("odd", 1)],
            ),
            &[2, 7, 64],
            vec![],
            "f32 2,7,32",
        ),
        (
            microsoft("FusedMatMul", &["x", "x"], &[int("transB", 1), int("odd", 1)]),
            &[5, 2, 7],
            vec![],
            "f32 5,2,2",
        ),
        (node("NonZero", &["x"], &["z"], &[]), &[2, 3, 4], vec![], "s64 3,?"),
        (node("Unique", &["x"], &["z"], &[]), &[2, 3], vec![], "f32 ?"),
        (microsoft("BiasAdd", &["x"], &[]), &[2, 3], vec![], "f32 2,3"),
        (node_of("com.example", "Exp", &["x"], &["z"], &[]), &[2, 3], vec![], "undef ..."),
    ]
}

#[test]
fn one_refusal_stays_one() {
    let mut wrong = Vec::new();
    for (refused, dims, constants, expected) in [of_windows(), of_steps_and_scales(), of_others()].concat() {
        let mut model = Onnx::of(refused, dims);
        model.constants = constants;
        // The ops behind it are read if the type is known.
        model.nodes.push(node("Cast", &["z"], &["f"], &[int("to", 1)]));
        model.nodes.push(node("Exp", &["f"], &["y"], &[]));
        let count = if expected.starts_with("undef") { 2 } else { 1 };
        match partly(&model, Options::default()) {
            Ok((found, refused)) if found == expected && refused == count => {}
            other => wrong.push(format!("{expected}: {other:?}")),
        }
    }
    report(&wrong);
}

#[test]
fn a_wildcard_keeps_all_that_the_file_says_of_a_node() {
    use LayerAttribute as Is;

    let attribute =
        |name: &str, kind: i64, of: Vec<u8>| [field(1, name.as_bytes()), of, number(20, kind)].concat();
    let graph = field(1, &node("Exp", &["a"], &["b"], &[]));
    let attributes = [
        int("number", -3),
        attribute("float", 1, [varint(2 << 3 | 5), 0.5f32.to_le_bytes().to_vec()].concat()),
        text("word", "linear"),
        of_tensor("tensor", &floats("", &[2], &[1.0, 2.0])),
        attribute("floats", 6, field(7, &1.5f32.to_le_bytes())),
        attribute("ints", 7, [number(8, 1), number(8, -2)].concat()),
        attribute("words", 8, [field(9, b"a"), field(9, b"")].concat()),
        attribute("tensors", 9, field(10, &floats("", &[1], &[4.0]))),
        of_graph("graph", &graph),
        attribute("graphs", 10, field(11, &graph)),
        attribute("type", 13, field(14, b"\x0a\x02\x08\x01")),
        refers("outer", "given", 2),
        refers("lost", "left_out", 2),
    ];
    // The node stands in a function, whose call gives an attribute.
    let odd = node_of("com.example", "Odd", &["a", "", "a"], &["b"], &attributes);
    let body = function("F", &["a"], &["b"], &["given", "left_out"], &[odd]);
    let call = node_of("own", "F", &["x"], &["y"], &[int("given", 7)]);
    let model = Onnx { functions: vec![body], ..Onnx::of(call, &[2]) };
    let options = Options { partial: true, ..Options::default() };
    let imported = onnx::read_under(&model.bytes(), &options).unwrap();
    let [op] = imported.graph.ops() else { panic!("one op") };
    let layer = &imported.skipped_layers[&op.id()];
    assert_eq!((&*layer.domain, &*layer.kind, layer.opset), ("com.example", "Odd", None));
    assert_eq!((&layer.inputs[..], op.inputs().len()), (&[Some(0), None, Some(1)][..], 2));
    assert_eq!(imported.skipped_kinds[&op.id()], "Odd");
    let tensor = |numbers: &[f32]| Value::from_slice(&[numbers.len() as i64], numbers).unwrap().into();
    let expected = [
        ("number", Is::Int(-3)),
        ("float", Is::Float(0.5)),
        ("word", Is::Text(b"linear".to_vec())),
        ("tensor", Is::Tensor(tensor(&[1.0, 2.0]))),
        ("floats", Is::Floats(vec![1.5])),
        ("ints", Is::Ints(vec![1, -2])),
        ("words", Is::Texts(vec![b"a".to_vec(), Vec::new()])),
        ("tensors", Is::Tensors(vec![tensor(&[4.0])])),
        ("type", Is::Messages(vec![b"\x0a\x02\x08\x01".to_vec()])),
        ("outer", Is::Int(7)),
    ];
    let mut wrong = Vec::new();
    for (name, expected) in expected {
        if layer.attributes.get(name) != Some(&expected) {
            wrong.push(format!("{name}: {:?}", layer.attributes.get(name)));
        }
    }
    report(&wrong);
    for name in ["graph", "graphs"] {
        let Some(Is::Messages(messages)) = layer.attributes.get(name) else { panic!("{name}") };
        assert!(messages.len() == 1 && messages[0].windows(3).any(|part| part == b"Exp"), "{name}");
    }
    assert!(!layer.attributes.contains_key("lost") && layer.attributes.len() == 12);
}

#[test]
fn shapes_in_the_file_hold_beside_shapes_that_agree() {
    let described = value("z", 1, &[2, 3]);
    let mut model = Onnx::of(node_of("com.example", "Odd", &["x"], &["z"], &[]), &[-1, 3]);
    model.nodes.push(node("Exp", &["z"], &["y"], &[]));
    model.outputs.push(described);
    let mut wrong = Vec::new();
    for (dims, expected) in [(vec![4, 3], "f32 2,3"), (vec![4, 5], "f32 ?,?")] {
        let options = Options { shapes: BTreeMap::from([("x".into(), dims)]), ..Options::default() };
        match partly(&model, options) {
            Ok((found, 1)) if found == expected => {}
            other => wrong.push(format!("{expected}: {other:?}")),
        }
    }
    report(&wrong);
}
