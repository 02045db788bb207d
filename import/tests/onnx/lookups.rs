//! Lookups at places that are constants, inputs, or computed.

use sterna::OpKind as K;
use sterna::reference::Value;
use sterna_import::onnx;

use super::bytes::{Onnx, field, int, node, tensor, text, value};
use super::common::{as_floats, by_name, float, report};

/// A constant of whole numbers.
fn whole(name: &str, dims: &[i64], elements: &[i64]) -> Vec<u8> {
    tensor(name, 7, dims, &elements.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<_>>())
}

/// A node on `x`, {3, 4}, with the numbers from 0 on, and on places; the kinds of its ops and its result.
struct Row {
    node: Vec<u8>,
    places: Vec<u8>,
    dims: Vec<i64>,
    kinds: &'static [K],
    result: &'static [f32],
}

fn row(node: Vec<u8>, (dims, places): (&[i64], &[i64]), kinds: &'static [K], result: &'static [f32]) -> Row {
    Row { node, places: whole("places", dims, places), dims: dims.to_vec(), kinds, result }
}

/// Each row with its places as a constant.
#[test]
fn constant_places_become_what_is_cheapest() {
    let of = |kind: &str, attrs: &[Vec<u8>]| node(kind, &["x", "places"], &["y"], attrs);
    let rows = [
        row(of("Gather", &[int("axis", 1)]), (&[2], &[1, 2]), &[K::Slice], &[1., 2., 5., 6., 9., 10.]),
        row(of("Gather", &[]), (&[], &[-1]), &[K::Slice, K::StaticReshape], &[8., 9., 10., 11.]),
        row(
            of("Gather", &[int("axis", 1)]),
            (&[6], &[3, 1, 3, 0, 2, 0]),
            &[K::Gather],
            &[3., 1., 3., 0., 2., 0., 7., 5., 7., 4., 6., 4., 11., 9., 11., 8., 10., 8.],
        ),
        // All of the data in its order.
        row(
            of("GatherND", &[]),
            (&[3, 4, 2], &[0, 0, 0, 1, 0, 2, 0, 3, 1, 0, 1, 1, 1, 2, 1, 3, 2, 0, 2, 1, 2, 2, 2, 3]),
            &[K::Identity],
            &[0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11.],
        ),
        // A row by the first dim, a column by the last.
        row(
            of("GatherND", &[]),
            (&[2, 2, 2], &[0, 1, 0, 2, 1, 1, 1, 2]),
            &[K::Slice, K::Slice],
            &[1., 2., 5., 6.],
        ),
        // The same the other way round.
        row(
            of("GatherND", &[]),
            (&[2, 2, 2], &[0, 1, 1, 1, 0, 2, 1, 2]),
            &[K::Slice, K::Slice, K::StaticTranspose],
            &[1., 5., 2., 6.],
        ),
        // A diagonal is no grid.
        row(of("GatherND", &[]), (&[3, 2], &[0, 0, 1, 1, 2, 2]), &[K::GatherND], &[0., 5., 10.]),
        row(
            of("GatherElements", &[int("axis", 1)]),
            (&[3, 1], &[3, -4, 1]),
            &[K::GatherElements],
            &[3., 4., 9.],
        ),
    ];
    let x = || float(&[3, 4], &(0..12).map(|i| i as f32).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for (number, row) in rows.into_iter().enumerate() {
        let mut model = Onnx::of(row.node.clone(), &[3, 4]);
        model.constants.push(row.places);
        let imported = onnx::read(&model.bytes()).unwrap();
        let kinds: Vec<K> = imported.graph.ops().iter().map(sterna::Op::kind).collect();
        let result = match imported.graph.ops() {
            [] => row.result.to_vec(),
            _ => as_floats(&by_name(&imported, &[("x", x())])["y"]),
        };
        if kinds != row.kinds || result != row.result {
            wrong.push(format!("row {number}: {kinds:?}, {result:?}"));
        }
        // The same places as an input give the same.
        let mut model = Onnx::of(row.node, &[3, 4]);
        model.inputs.push(value("places", 7, &row.dims));
        let imported = onnx::read(&model.bytes()).unwrap();
        let kinds: Vec<K> = imported.graph.ops().iter().map(sterna::Op::kind).collect();
        let given: Vec<i64> = match number {
            0 => vec![1, 2],
            2 => vec![3, 1, 3, 0, 2, 0],
            _ => continue,
        };
        let places = Value::from_slice(&row.dims, &given).unwrap();
        let result = as_floats(&by_name(&imported, &[("x", x()), ("places", places)])["y"]);
        if kinds != [K::Gather] || result != row.result {
            wrong.push(format!("row {number} of an input: {kinds:?}, {result:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn updates_and_the_first_elements_are_ops() {
    let x = || float(&[2, 3], &[4.0, 1.0, 3.0, 3.0, 5.0, 5.0]);
    let scatter = |kind: &str, attrs: &[Vec<u8>], dims: &[i64], places: &[i64], updates: &[i64]| {
        let mut model = Onnx::of(node(kind, &["x", "places", "u"], &["y"], attrs), &[2, 3]);
        model.constants.push(whole("places", dims, places));
        model.inputs.push(value("u", 1, updates));
        model
    };
    let run = |model: &Onnx, u: &[f32], dims: &[i64]| {
        let imported = onnx::read(&model.bytes()).unwrap();
        as_floats(&by_name(&imported, &[("x", x()), ("u", float(dims, u))])["y"])
    };
    let model = scatter("ScatterND", &[], &[1, 1], &[-1], &[1, 3]);
    assert_eq!(run(&model, &[7.0, 8.0, 9.0], &[1, 3]), [4.0, 1.0, 3.0, 7.0, 8.0, 9.0]);
    let model = scatter("ScatterND", &[text("reduction", "add")], &[2, 2], &[0, 0, 0, 0], &[2]);
    assert_eq!(run(&model, &[7.0, 8.0], &[2]), [19.0, 1.0, 3.0, 3.0, 5.0, 5.0]);
    let model =
        scatter("ScatterElements", &[int("axis", 1), text("reduction", "max")], &[2, 1], &[2, 0], &[2, 1]);
    assert_eq!(run(&model, &[7.0, 2.0], &[2, 1]), [4.0, 1.0, 7.0, 3.0, 5.0, 5.0]);

    let mut model = Onnx::of(node("TopK", &["x", "k"], &["y", "at"], &[]), &[2, 3]);
    model.constants.push(whole("k", &[1], &[2]));
    model.outputs.push(field(1, b"at"));
    let results = by_name(&onnx::read(&model.bytes()).unwrap(), &[("x", x())]);
    assert_eq!(as_floats(&results["y"]), [4.0, 3.0, 5.0, 5.0]);
    assert_eq!(results["at"].elements::<i64>().unwrap(), [0, 2, 1, 2]);
    let model = Onnx::of(node("ArgMax", &["x"], &["y"], &[int("axis", 1), int("keepdims", 0)]), &[2, 3]);
    let imported = onnx::read(&model.bytes()).unwrap();
    assert_eq!(imported.graph.ops().len(), 1);
    assert_eq!(by_name(&imported, &[("x", x())])["y"].elements::<i64>().unwrap(), [0, 1]);
}

#[test]
fn what_lookups_lack_is_named() {
    let refused = |node: Vec<u8>, constants: &[Vec<u8>]| {
        let mut model = Onnx::of(node, &[3, 4]);
        model.constants.extend_from_slice(constants);
        onnx::read(&model.bytes()).unwrap_err().to_string()
    };
    let rows = [
        (
            refused(node("GatherND", &["x", "i"], &["y"], &[]), &[whole("i", &[2, 3], &[0; 6])]),
            "its last dim is from 1 to the dims of the table",
        ),
        (
            refused(node("TopK", &["x", "k"], &["y", "at"], &[]), &[whole("k", &[1], &[5])]),
            "5 elements along axis 1",
        ),
        (
            refused(node("ScatterND", &["x", "i", "x"], &["y"], &[]), &[whole("i", &[1, 1], &[0])]),
            "it has the shape of what the indices name",
        ),
    ];
    let wrong = rows.into_iter().filter(|(error, needed)| !error.contains(needed));
    report(&wrong.map(|(error, needed)| format!("{error}, without {needed}")).collect::<Vec<_>>());
}

/// As jax2onnx and torch.export write parts of a known length whose start is an input: the ends are sums, in
/// a shape or type of their own.
#[test]
fn parts_of_a_known_length_may_begin_where_an_input_says() {
    let at = |dims: &[i64], numbers: &[i64]| Value::from_slice(dims, numbers).unwrap();
    let rows = [
        (
            "two axes",
            at(&[2], &[1, 2]),
            vec![
                node("Add", &["at", "sizes"], &["ends"], &[]),
                node("Slice", &["x", "at", "ends"], &["y"], &[]),
            ],
            vec![6.0f32, 7., 10., 11.],
        ),
        (
            "a scalar",
            at(&[], &[2]),
            vec![
                node("Add", &["one", "at"], &["end"], &[]),
                node("Unsqueeze", &["at", "zero"], &["starts"], &[]),
                node("Unsqueeze", &["end", "zero"], &["ends"], &[]),
                node("Slice", &["x", "starts", "ends", "one_axis"], &["y"], &[]),
            ],
            vec![2., 6., 10.],
        ),
        (
            "a whole axis",
            at(&[2], &[1, 0]),
            vec![
                node("Add", &["at", "wide"], &["ends"], &[]),
                node("Slice", &["x", "at", "ends"], &["y"], &[]),
            ],
            vec![4., 5., 6., 7.],
        ),
    ];
    let mut wrong = Vec::new();
    for (name, at, nodes, expected) in rows {
        let model = Onnx {
            nodes,
            inputs: vec![value("x", 1, &[3, 4]), value("at", 7, at.dims())],
            constants: vec![
                whole("sizes", &[2], &[2, 2]),
                whole("wide", &[2], &[1, 4]),
                whole("one", &[], &[1]),
                whole("zero", &[1], &[0]),
                whole("one_axis", &[1], &[1]),
            ],
            outputs: vec![field(1, b"y")],
            ..Onnx::default()
        };
        let imported = match onnx::read(&model.bytes()) {
            Ok(imported) => imported,
            Err(why) => {
                wrong.push(format!("{name}: {why}"));
                continue;
            }
        };
        let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let result = by_name(&imported, &[("x", float(&[3, 4], &x)), ("at", at)]);
        let got = as_floats(&result["y"]);
        if got != expected {
            wrong.push(format!("{name}: {got:?}"));
        }
    }
    report(&wrong);
}

/// Starts of any length are refused as what they are, without a list of as many axes.
#[test]
fn starts_of_any_length_are_refused() {
    let model = Onnx {
        nodes: vec![
            node("Add", &["at", "one"], &["ends"], &[]),
            node("Slice", &["x", "at", "ends"], &["y"], &[]),
        ],
        inputs: vec![value("x", 1, &[3, 4]), value("at", 7, &[1 << 40])],
        constants: vec![whole("one", &[1], &[1])],
        outputs: vec![field(1, b"y")],
        ..Onnx::default()
    };
    assert!(onnx::read(&model.bytes()).is_err());
}
