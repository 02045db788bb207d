//! Promise: a model becomes a graph that computes the same, with inputs, outputs and constants by name; what
//! follows from constants is folded.

mod common;

use std::path::Path;

use common::{Ir, as_floats, by_name, float, report};
use sterna::reference::Value;
use sterna::{DataType, Engine, OpKind, Policy, Session, TensorView};
use sterna_import::{Constant, Error, Fault, Imported, ModelFile, Options, openvino};

fn read(ir: &Ir) -> Imported {
    openvino::read(&ir.text(), &ir.weights).unwrap_or_else(|error| panic!("{error}\n{}", ir.text()))
}

fn kinds(imported: &Imported) -> Vec<OpKind> {
    imported.graph.ops().iter().map(|op| op.kind()).collect()
}

#[test]
fn the_files_in_the_tree_are_read_and_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str| {
        let file = |extension: &str| folder.join(format!("{name}.{extension}"));
        let text = std::fs::read_to_string(file("xml")).unwrap();
        openvino::read(&text, &std::fs::read(file("bin")).unwrap_or_default()).unwrap()
    };
    // Scores where the mask is true, else the least number; then twice as much, clipped.
    let masked = read("masked_scores");
    let expected = [OpKind::Fill, OpKind::Fill, OpKind::Select, OpKind::Multiply, OpKind::Clamp];
    assert_eq!(kinds(&masked), expected);
    assert_eq!(masked.graph.partitions(Policy::Fusion).unwrap().len(), 1);
    assert_eq!(masked.input("scores").unwrap().tensor.partial_dims(), Some(vec![None, Some(3)]));
    let mask = Value::from_slice(&[3], &[true, false, true]).unwrap();
    let scores = float(&[2, 3], &[0.25, 1.0, 9.0, -0.5, 2.0, -9.0]);
    let result = by_name(&masked, &[("mask", mask), ("scores", scores)]);
    assert_eq!(result["clipped"], float(&[2, 3], &[0.5, -4.0, 4.0, -1.0, -4.0, -4.0]));

    // The same select in three modes; version 10.
    let modes = read("select_modes");
    let of = |dims: &[i64], from: i64| {
        let count = dims.iter().product::<i64>();
        Value::from_slice(dims, &(from..from + count).collect::<Vec<i64>>()).unwrap()
    };
    let cond = Value::from_slice(&[2, 1], &[false, true]).unwrap();
    let result = by_name(&modes, &[("cond", cond), ("then", of(&[2, 2], 0)), ("else", of(&[2, 2], 10))]);
    let expected = Value::from_slice(&[2, 2], &[10i64, 11, 2, 3]).unwrap();
    assert_eq!(result["by_numpy"], expected);
    assert_eq!(result["by_pdpd"], expected);
    assert_eq!(result["by_none"], expected);

    // A lone layer in a file.
    assert_eq!(read("select_layer").inputs.len(), 3);
}

#[test]
fn inputs_and_outputs_go_by_their_names() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "2");
    let y = ir.parameter("y", "f32", "2");
    ir.parameter("idle", "i8", "");
    let sum = ir.layer("sum", "Add", "", &[x, y], "<dim>2</dim>");
    let twice = ir.op("Add", "", &[sum, sum]);
    ir.result("first", sum);
    ir.result("second", twice);
    ir.result("again", sum);
    ir.result("copy", x);
    let imported = read(&ir);
    let names: Vec<&str> = imported.inputs.iter().map(|port| port.name()).collect();
    assert_eq!(names, ["x", "y", "idle"]);
    // An output that is handed out twice is one with all its names.
    let names: Vec<&[String]> = imported.outputs.iter().map(|port| &*port.names).collect();
    assert_eq!(names, [&["sum", "first", "again"][..], &["Add_4", "second"], &["x", "copy"]]);
    assert_eq!(imported.output("again").unwrap().tensor, imported.output("first").unwrap().tensor);
    assert_eq!(kinds(&imported), [OpKind::Add, OpKind::Add, OpKind::Identity, OpKind::End]);
    let result = by_name(&imported, &[("x", float(&[2], &[1.0, 2.0])), ("y", float(&[2], &[3.0, 4.0]))]);
    assert_eq!(result["sum"], float(&[2], &[4.0, 6.0]));
    assert_eq!(result["Add_4"], float(&[2], &[8.0, 12.0]));
    assert_eq!(result["x"], float(&[2], &[1.0, 2.0]));
    assert!(matches!(imported.input("z"), Err(Error::Name { what: "input", .. })));
}

#[test]
fn names_of_tensors_are_read_and_shared_ones_are_refused() {
    let port = |id: u32, names: &str| {
        format!(
            "<layer id=\"{id}\" name=\"p{id}\" type=\"Parameter\"><data shape=\"1\" element_type=\"f32\"/>\
             <output><port id=\"0\" names=\"{names}\"/></output></layer>\
             <layer id=\"{}\" name=\"r{id}\" type=\"Result\" output_names=\"out{id}\">\
             <input><port id=\"0\"/></input></layer>",
            id + 10
        )
    };
    let text = format!(
        "<net version=\"10\"><layers>{}{}</layers><edges>\
         <edge from-layer=\"0\" from-port=\"0\" to-layer=\"10\" to-port=\"0\"/>\
         <edge from-layer=\"1\" from-port=\"0\" to-layer=\"11\" to-port=\"0\"/></edges></net>",
        port(0, "a,b\\,c,shared"),
        port(1, "shared")
    );
    let imported = openvino::read(&text, &[]).unwrap();
    assert_eq!(imported.inputs[0].names, ["p0", "a", "b,c", "shared"]);
    assert_eq!(imported.input("b,c").unwrap().name(), "p0");
    assert!(matches!(imported.input("shared"), Err(Error::Ambiguous { .. })));
    assert_eq!(imported.output("out1").unwrap().names, ["out1", "shared", "p1", "r1"]);
}

#[test]
fn constants_keep_their_bits_and_are_inputs_of_the_graph() {
    let mut wrong = Vec::new();
    for (element, size) in [("f32", 4), ("f16", 2), ("i64", 8), ("u8", 1), ("boolean", 1), ("f8e4m3", 1)] {
        let mut ir = Ir::default();
        let bytes: Vec<u8> = (0..3 * size).map(|i| 0xf0 - i as u8).collect();
        let constant = ir.constant(element, "3", &bytes);
        ir.result("out", constant);
        let imported = read(&ir);
        let (_, value) = imported.weights.first_key_value().unwrap();
        let result = &by_name(&imported, &[])["Const_0"];
        if cfg!(target_endian = "little") && (value.bytes() != bytes || result.bytes() != bytes) {
            wrong.push(format!("{element}: {value:?}, {result:?}"));
        }
    }
    report(&wrong);
}

/// A name, the layers, and the constant to which they are folded.
type Folded = (&'static str, fn(&mut Ir) -> usize, fn() -> Value);

const FOLDED: &[Folded] = &[
    (
        "Broadcast numpy",
        |ir| {
            let (x, to) = (ir.floats("2,1", &[1.0, 2.0]), ir.integers(&[2, 2, 2]));
            ir.op("Broadcast", "mode=\"numpy\"", &[x, to])
        },
        || float(&[2, 2, 2], &[1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]),
    ),
    (
        "Broadcast explicit",
        |ir| {
            let (x, to, axes) = (ir.floats("2", &[1.0, 2.0]), ir.integers(&[2, 2]), ir.integers(&[0]));
            ir.op("Broadcast", "mode=\"explicit\"", &[x, to, axes])
        },
        || float(&[2, 2], &[1.0, 1.0, 2.0, 2.0]),
    ),
    (
        "Broadcast bidirectional",
        |ir| {
            let (x, to) = (ir.floats("2,1,1", &[1.0, 2.0]), ir.integers(&[1, 2]));
            ir.op("Broadcast", "mode=\"BIDIRECTIONAL\"", &[x, to])
        },
        || float(&[2, 1, 2], &[1.0, 1.0, 2.0, 2.0]),
    ),
    (
        "Unsqueeze",
        |ir| {
            let (x, axes) = (ir.floats("2", &[1.0, 2.0]), ir.integers(&[-1, 0]));
            ir.op("Unsqueeze", "", &[x, axes])
        },
        || float(&[1, 2, 1], &[1.0, 2.0]),
    ),
    (
        "Squeeze",
        |ir| {
            let (x, axes) = (ir.floats("1,2,1", &[1.0, 2.0]), ir.integers(&[-1]));
            ir.op("Squeeze", "", &[x, axes])
        },
        || float(&[1, 2], &[1.0, 2.0]),
    ),
    (
        "Squeeze of all",
        |ir| {
            let x = ir.floats("1,2,1", &[1.0, 2.0]);
            ir.op("Squeeze", "", &[x])
        },
        || float(&[2], &[1.0, 2.0]),
    ),
    (
        "Reshape",
        |ir| {
            let (x, to) = (ir.floats("2,3", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), ir.integers(&[0, -1, 1]));
            ir.op("Reshape", "special_zero=\"true\"", &[x, to])
        },
        || float(&[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ),
    (
        "ShapeOf",
        |ir| {
            let x = ir.parameter("x", "f32", "2,3,4");
            ir.op("ShapeOf", "output_type=\"i32\"", &[x])
        },
        || Value::from_slice(&[3], &[2i32, 3, 4]).unwrap(),
    ),
    (
        "Range",
        |ir| {
            let bounds =
                [[1, 0], [7, 0], [2, 0]].map(|[n, _]: [i64; 2]| ir.constant("i64", "", &n.to_le_bytes()));
            ir.op("Range", "output_type=\"f16\"", &bounds)
        },
        || Value::from_slice(&[3], &[1.0f32, 3.0, 5.0].map(half::f16::from_f32)).unwrap(),
    ),
    (
        "Convert, then Select",
        |ir| {
            let (c, x) = (ir.constant("u8", "2", &[7, 0]), ir.floats("2", &[1.0, 3.0]));
            let y = ir.constant("f16", "", &[0, 0xc0]);
            let c = ir.op("Convert", "destination_type=\"boolean\"", &[c]);
            let y = ir.op("ConvertLike", "", &[y, x]);
            ir.op("Select", "", &[c, x, y])
        },
        || float(&[2], &[1.0, -2.0]),
    ),
    (
        "Add under pdpd",
        |ir| {
            let (a, b) = (ir.floats("2,2", &[0.0; 4]), ir.floats("2", &[1.0, 2.0]));
            ir.op("Add", "auto_broadcast=\"pdpd\" axis=\"0\"", &[a, b])
        },
        || float(&[2, 2], &[1.0, 1.0, 2.0, 2.0]),
    ),
];

#[test]
fn what_follows_from_constants_is_folded() {
    let mut wrong = Vec::new();
    for (what, make, expected) in FOLDED {
        let mut ir = Ir::default();
        let last = make(&mut ir);
        ir.result("out", last);
        match openvino::read(&ir.text(), &ir.weights) {
            Ok(imported) => {
                let values: Vec<&Constant> = imported.weights.values().collect();
                if kinds(&imported) != [OpKind::Identity] || values != [&expected()] {
                    wrong.push(format!("{what}: {:?} of {values:?}", kinds(&imported)));
                }
            }
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    report(&wrong);
}

#[test]
fn what_is_no_constant_is_broadcast_by_a_select() {
    /// Mode, shape, shape asked for, shape of the result, axes.
    type Row = (&'static str, &'static str, &'static [i64], &'static [i64], Option<&'static [i64]>);
    let rows: &[Row] = &[
        ("numpy", "2,1", &[3, 2, 2], &[3, 2, 2], None),
        ("bidirectional", "2,1", &[1, 2], &[2, 2], None),
        ("explicit", "2,1", &[3, 2, 2], &[3, 2, 2], Some(&[1, 2])),
    ];
    for (mode, shape, target, expected, axes) in rows {
        let mut ir = Ir::default();
        let (x, to) = (ir.parameter("x", "i16", shape), ir.integers(target));
        let axes = axes.map(|axes| ir.integers(axes));
        let inputs: Vec<usize> = [x, to].into_iter().chain(axes).collect();
        let wide = ir.op("Broadcast", &format!("mode=\"{mode}\""), &inputs);
        ir.result("out", wide);
        let imported = read(&ir);
        assert_eq!(kinds(&imported), [OpKind::Fill, OpKind::Select]);
        let x = Value::from_slice(&[2, 1], &[-7i16, 9]).unwrap();
        let result = &by_name(&imported, &[("x", x)])[imported.outputs[0].name()];
        assert_eq!(result.dims(), *expected, "{mode}");
        let row: Vec<i16> = [-7, -7, 9, 9].repeat(expected.iter().product::<i64>() as usize / 4);
        assert_eq!(result.elements::<i16>().unwrap(), row, "{mode}");
    }
}

#[test]
fn a_slope_stands_at_the_channels_where_it_is_as_long() {
    let rows: &[(&str, &str, &[f32])] = &[
        // As long as dim 1: one slope a row.
        ("1,2,2", "2", &[-1.0, -1.0, -2.0, -2.0]),
        // As long as the last dim alone.
        ("1,1,4", "4", &[-1.0, -2.0, -3.0, -4.0]),
        ("4", "4", &[-1.0, -2.0, -3.0, -4.0]),
        ("1,2,2", "2,1", &[-1.0, -1.0, -2.0, -2.0]),
        ("1,2,2", "1", &[-1.0, -1.0, -1.0, -1.0]),
    ];
    for (shape, slope, expected) in rows {
        let mut ir = Ir::default();
        let count = if slope.starts_with('4') {
            4
        } else if slope.starts_with('2') {
            2
        } else {
            1
        };
        let slopes = ir.floats(slope, &[1.0, 2.0, 3.0, 4.0][..count]);
        let x = ir.parameter("x", "f32", shape);
        let y = ir.op("PReLU", "", &[x, slopes]);
        ir.result("out", y);
        let dims: Vec<i64> = shape.split(',').map(|dim| dim.parse().unwrap()).collect();
        let result = by_name(&read(&ir), &[("x", float(&dims, &[-1.0; 4]))]);
        assert_eq!(common::as_floats(&result["PReLU_2"]), *expected, "{shape} by {slope}");
    }
}

#[test]
fn powers_take_a_constant_exponent() {
    let power = |shape: &str, exponent: &str, numbers: &[f32], data: &str| {
        let mut ir = Ir::default();
        let (x, y) = (ir.parameter("x", "f32", shape), ir.floats(exponent, numbers));
        let z = ir.op("Power", data, &[x, y]);
        ir.result("out", z);
        openvino::read(&ir.text(), &ir.weights)
    };
    let square = power("?,2", "", &[2.0], "").unwrap();
    assert_eq!(
        by_name(&square, &[("x", float(&[1, 2], &[3.0, -4.0]))])["Power_2"],
        float(&[1, 2], &[9.0, 16.0])
    );
    assert!(power("1,2", "2", &[2.0, 2.0], "").is_ok());
    assert!(power("2", "2", &[2.0, 2.0], "auto_broadcast=\"none\"").is_ok());
    // Exponents of elements choose between powers.
    let of_elements = [
        power("?,?", "2", &[2.0, 2.0], ""),
        power("2", "2", &[2.0, 3.0], ""),
        power("2", "1,1", &[2.0], ""),
        power("...", "1", &[2.0], ""),
        power("2", "", &[2.0], "auto_broadcast=\"pdpd\""),
    ];
    let refused: Vec<usize> =
        of_elements.iter().enumerate().filter(|(_, r)| r.is_err()).map(|(i, _)| i).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(power("2", "", &[2.0], "auto_broadcast=\"none\"").is_err());
}

#[test]
fn shapes_given_anew_go_through_the_whole_model() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "2,1..5");
    let y = ir.layer("y", "Exp", "", &[x], "<dim>2</dim><dim>-1</dim>");
    let shape = ir.op("ShapeOf", "", &[y]);
    ir.result("out", shape);
    let given = |dims: &[i64]| {
        let mut options = Options::default();
        options.shapes.insert("x".into(), dims.to_vec());
        openvino::read_with(&ir.text(), &ir.weights, &options)
    };
    assert!(matches!(openvino::read(&ir.text(), &ir.weights), Err(Error::Layer { .. })));
    let imported = given(&[7, 4]).unwrap();
    assert_eq!(imported.weights.values().next().unwrap().elements::<i64>().unwrap(), [7, 4]);
    // Nothing but the shape of it is asked for.
    assert_eq!(kinds(&imported), [OpKind::Identity]);
    for dims in [&[7, 6][..], &[7], &[7, -1]] {
        assert!(matches!(given(dims), Err(Error::Layer { .. })), "{dims:?}: {:?}", given(dims));
    }
}

#[test]
fn dynamic_dims_and_ranks_stay_unknown() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "...");
    let y = ir.layer("y", "Exp", "", &[x], "");
    let z = ir.layer("z", "Sqrt", "", &[y], "");
    ir.result("out", z);
    let imported = read(&ir);
    assert_eq!(imported.outputs[0].tensor.rank(), None);
    let result = by_name(&imported, &[("x", float(&[2], &[0.0, 0.0]))]);
    assert_eq!(result["z"], float(&[2], &[1.0, 1.0]));
}

#[test]
fn with_partial_the_rest_is_partitioned_around_what_is_not_mapped() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "4");
    let y = ir.op("Exp", "", &[x]);
    let odd = ir.layer("odd", "NonZero", "", &[y], "<dim>4</dim>");
    let z = ir.op("Abs", "", &[odd]);
    let z = ir.op("Sqrt", "", &[z]);
    ir.result("out", z);
    let error = openvino::read(&ir.text(), &[]).unwrap_err();
    let Error::Layer { layer, fault } = &error else { panic!("{error}") };
    assert!(layer.name == "odd" && matches!(**fault, Fault::Unsupported { .. }), "{error}");
    let imported = openvino::read_with(&ir.text(), &[], &Options { partial: true, ..Options::default() });
    // The output of the unknown layer has no type in the text, so that what follows cannot be mapped either.
    let imported = imported.unwrap();
    assert_eq!(imported.skipped[0], error);
    assert_eq!(imported.skipped.len(), 3);

    let text = ir.text();
    let (before, behind) = text.split_once("type=\"NonZero\"").unwrap();
    let typed = behind.replacen("<port id=\"9\">", "<port id=\"9\" precision=\"FP32\">", 1);
    let typed = format!("{before}type=\"NonZero\"{typed}");
    let imported =
        openvino::read_with(&typed, &[], &Options { partial: true, ..Options::default() }).unwrap();
    assert_eq!(kinds(&imported), [OpKind::Exp, OpKind::Wildcard, OpKind::Abs, OpKind::Sqrt]);
    let partitions = imported.graph.partitions(Policy::Fusion).unwrap();
    let sizes: Vec<(usize, bool)> = partitions.iter().map(|p| (p.ops().len(), p.is_supported())).collect();
    assert_eq!(sizes, [(1, true), (1, false), (2, true)]);
    assert_eq!(imported.inputs[0].tensor.data_type(), DataType::F32);
}

#[test]
fn what_no_result_hangs_on_is_left_out() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "2");
    let dead = ir.op("NonZero", "", &[x]);
    ir.op("Exp", "", &[dead]);
    let y = ir.op("Abs", "", &[x]);
    ir.result("out", y);
    assert_eq!(kinds(&read(&ir)), [OpKind::Abs]);
}

#[test]
fn sums_run_along_an_axis() {
    let rows = [
        ("", [1.0, 3.0, 6.0, 10.0, 15.0]),
        ("exclusive=\"true\" reverse=\"false\"", [0.0, 1.0, 3.0, 6.0, 10.0]),
        ("exclusive=\"true\" reverse=\"true\"", [14.0, 12.0, 9.0, 5.0, 0.0]),
    ];
    for (attributes, expected) in rows {
        let mut ir = Ir::default();
        let (x, axis) = (ir.parameter("x", "f32", "1,5"), ir.integers(&[-1]));
        let sums = ir.layer("y", "CumSum", attributes, &[x, axis], "<dim>1</dim><dim>5</dim>");
        ir.result("y", sums);
        let (text, given) = (ir.text(), float(&[1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]));
        let imported = openvino::read(&text, &ir.weights).unwrap();
        assert_eq!(as_floats(&by_name(&imported, &[("x", given)])["y"]), expected, "{attributes}");
    }
}

/// A decoder that keeps what it has seen in a variable, as `optimum` exports it, and a variable of one size.
fn with_variables() -> Ir {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "1,?,2");
    let first = ir.floats("1,0,2", &[]);
    let id = "variable_id=\"past_key_values.0.keypresent.0.key\"";
    let variable = |id: &str, shape: &str| format!("{id} variable_type=\"f32\" variable_shape=\"{shape}\"");
    let past = ir.op("ReadValue", &variable(id, "1,?,2"), &[first]);
    let present = ir.op("Concat", "axis=\"1\"", &[past, x]);
    let sum = ir.integers(&[1]);
    let sum = ir.op("ReduceSum", "keep_dims=\"false\"", &[present, sum]);
    ir.op("Assign", id, &[present]);
    // Its first value is no constant, which does not matter.
    let dead = ir.op("NonZero", "", &[x]);
    let count = ir.op("ReadValue", &variable("variable_id=\"count\"", "1,2"), &[dead]);
    let one = ir.floats("1", &[1.0]);
    let next = ir.op("Add", "", &[count, one]);
    ir.op("Assign", "variable_id=\"count\"", &[next]);
    let y = ir.op("Multiply", "", &[sum, next]);
    ir.result("y", y);
    ir
}

/// A variable whose first value is broadcast to the batch of an input, and one that keeps what it has read.
fn with_first_values() -> Ir {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "?,2");
    let (zero, place, axis) = (ir.floats("", &[0.0]), ir.integers(&[0]), ir.constant("i64", "", &[0; 8]));
    let (shape, two) = (ir.op("ShapeOf", "output_type=\"i64\"", &[x]), ir.integers(&[2]));
    let batch = ir.op("Gather", "batch_dims=\"0\"", &[shape, place, axis]);
    let dims = ir.op("Concat", "axis=\"0\"", &[batch, two]);
    let first = ir.op("Broadcast", "mode=\"numpy\"", &[zero, dims]);
    let of_type = "variable_type=\"f32\" variable_shape=\"?,2\"";
    let sum = ir.op("ReadValue", &format!("variable_id=\"sum\" {of_type}"), &[first]);
    let next = ir.op("Add", "", &[sum, x]);
    ir.op("Assign", "variable_id=\"sum\"", &[next]);
    let double = ir.op("Add", "", &[x, x]);
    let unknown = "variable_id=\"7\" variable_type=\"dynamic\" variable_shape=\"...\"";
    let kept = ir.op("ReadValue", unknown, &[double]);
    ir.op("Assign", "variable_id=\"7\"", &[kept]);
    let y = ir.op("Multiply", "", &[next, kept]);
    ir.result("y", y);
    ir
}

/// A layer whose first branch negates its data and whose second one doubles it, if the model has `rows` rows.
fn branches(rows: &str) -> (String, Vec<u8>) {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", rows);
    let (shape, two) = (ir.op("ShapeOf", "output_type=\"i64\"", &[x]), ir.integers(&[2]));
    let equal = ir.op("Equal", "", &[shape, two]);
    let chosen = ir.op("If", "", &[equal, x, x]);
    ir.result("y", chosen);
    let inner = |kind: &str, ports: &str| {
        let layer = |id: usize, kind: &str, ports: &str, data: &str| {
            format!(
                "<layer id=\"{id}\" name=\"{kind}\" type=\"{kind}\" version=\"opset1\">{data}{ports}</layer>"
            )
        };
        let data = "<data shape=\"?\" element_type=\"f32\"/>";
        let out = "<output><port id=\"9\"><dim>-1</dim></port></output>";
        let layers = [
            layer(0, "Parameter", out, data),
            layer(1, kind, &format!("<input>{ports}</input>{out}"), ""),
            layer(2, "Result", "<input><port id=\"0\"/></input>", ""),
        ];
        let edge = |from: usize, to: usize, port: usize| {
            format!("<edge from-layer=\"{from}\" from-port=\"9\" to-layer=\"{to}\" to-port=\"{port}\"/>")
        };
        let second = if ports.contains("\"1\"") { edge(0, 1, 1) } else { String::new() };
        let edges = [edge(0, 1, 0), second, edge(1, 2, 0)].concat();
        format!("<layers>{}</layers><edges>{edges}</edges>", layers.concat())
    };
    let map = |port: usize| {
        format!(
            "<input external_port_id=\"{port}\" internal_layer_id=\"0\"/>\
             <output external_port_id=\"9\" internal_layer_id=\"2\"/>"
        )
    };
    let bodies = format!(
        "<then_port_map>{}</then_port_map><else_port_map>{}</else_port_map>\
         <then_body>{}</then_body><else_body>{}</else_body>",
        map(1),
        map(2),
        inner("Negative", "<port id=\"0\"/>"),
        inner("Add", "<port id=\"0\"/><port id=\"1\"/>"),
    );
    let text = ir.text();
    let (before, behind) = text.split_once("type=\"If\"").unwrap();
    let end = behind.find("</layer>").unwrap();
    (format!("{before}type=\"If\"{}{bodies}{}", &behind[..end], &behind[end..]), ir.weights)
}

#[test]
fn a_lookup_of_all_places_in_order_is_left_out() {
    for (places, expected) in [([0i64, 1], [1.0f32, 2.0]), ([1, 0], [2.0, 1.0])] {
        let mut ir = Ir::default();
        let x = ir.parameter("x", "f32", "2");
        let (places, axis) = (ir.integers(&places), ir.constant("i64", "", &[0; 8]));
        let taken = ir.op("Gather", "batch_dims=\"0\"", &[x, places, axis]);
        let y = ir.op("Abs", "", &[taken]);
        ir.result("y", y);
        let imported = read(&ir);
        let results = by_name(&imported, &[("x", float(&[2], &[1.0, 2.0]))]);
        assert_eq!(as_floats(results.values().next().unwrap()), expected);
        assert_eq!(kinds(&imported) == [OpKind::Abs], expected[0] == 1.0, "{:?}", kinds(&imported));
    }
}

#[test]
fn a_known_condition_chooses_a_branch() {
    for (rows, given, expected) in [("2", &[1.0f32, 3.0][..], &[-1.0f32, -3.0][..]), ("1", &[2.0], &[4.0])] {
        let (text, weights) = branches(rows);
        let imported = openvino::read(&text, &weights).unwrap();
        let results = by_name(&imported, &[("x", float(&[given.len() as i64], given))]);
        assert_eq!(as_floats(results.values().next().unwrap()), expected, "{rows}");
    }
    let (text, weights) = branches("?");
    let error = openvino::read(&text, &weights).unwrap_err().to_string();
    assert!(error.contains("the shape of input port 0 (`data`) is not known"), "{error}");
}

#[test]
fn first_values_of_variables_tell_their_dims() {
    let ir = with_first_values();
    let model = ModelFile::openvino(&ir.text(), ir.weights.clone(), &Options::default()).unwrap();
    let [x, sum] = model.inputs() else { panic!("{:?}", model.inputs()) };
    assert_eq!((&*sum.names[0], &*model.outputs()[1].names[0]), ("state_in.sum", "state_out.sum"));
    assert_eq!((model.outputs().len(), &x.dims), (2, &sum.dims));
    let session = Session::builder(model.try_into().unwrap()).find_states().build(&Engine::new()).unwrap();
    let mut state = session.new_state(&[]).unwrap();
    for expected in [[2.0f32, 8.0, 18.0, 32.0], [4.0, 16.0, 36.0, 64.0]] {
        let numbers = [1.0f32, 2.0, 3.0, 4.0];
        let x = TensorView::new(&numbers, &[2, 2]);
        let outputs = session.run_with_state(&mut state, &[("x", &x)]).unwrap();
        assert_eq!(outputs["Multiply_15"].as_slice::<f32>().unwrap(), expected);
    }
}

#[test]
fn variables_are_states_of_a_session() {
    let ir = with_variables();
    let model = ModelFile::openvino(&ir.text(), ir.weights.clone(), &Options::default()).unwrap();
    let names = |signatures: &[sterna_import::Signature]| -> Vec<String> {
        signatures.iter().map(|signature| signature.names[0].clone()).collect()
    };
    assert_eq!(names(model.inputs()), ["x", "past_key_values.0.key", "past.count"]);
    assert_eq!(names(model.outputs()), ["Multiply_12", "present.0.key", "present.count"]);
    let session = Session::builder(model.try_into().unwrap()).find_states().build(&Engine::new()).unwrap();
    let mut state = session.new_state(&[]).unwrap();
    let (mut wrong, mut seen) = (Vec::new(), [0.0f32; 2]);
    for (run, rows) in (1..).zip([3usize, 1, 2]) {
        let numbers: Vec<f32> = (0..2 * rows).map(|at| (run * 10 + at) as f32).collect();
        (0..2 * rows).for_each(|at| seen[at % 2] += numbers[at]);
        let x = TensorView::new(&numbers, &[1, rows as i64, 2]);
        let outputs = session.run_with_state(&mut state, &[("x", &x)]).unwrap();
        let found = outputs["Multiply_12"].as_slice::<f32>().unwrap();
        let expected = seen.map(|sum| sum * run as f32);
        if found != expected {
            wrong.push(format!("run {run}: {found:?}, not {expected:?}"));
        }
    }
    report(&wrong);
}

/// The layers that the package `openvino` makes of GELU that is written out, if it keeps it.
#[test]
fn gelu_that_is_written_out_is_one_op() {
    let mut ir = Ir::default();
    let x = ir.parameter("x", "f32", "2,3");
    let (root, one, half) = (ir.floats("1", &[2f32.sqrt()]), ir.floats("", &[1.0]), ir.floats("1,1", &[0.5]));
    let scaled = ir.op("Divide", "", &[x, root]);
    let erf = ir.op("Erf", "", &[scaled]);
    let sum = ir.op("Add", "", &[erf, one]);
    let product = ir.op("Multiply", "", &[x, sum]);
    let y = ir.op("Multiply", "", &[product, half]);
    ir.result("y", y);
    let imported = openvino::read(&ir.text(), &ir.weights).unwrap();
    assert_eq!(kinds(&imported), [OpKind::GELU]);
}

#[test]
fn einsum_of_attention_is_a_product() {
    let mut ir = Ir::default();
    let q = ir.parameter("q", "f32", "1,2,2,3");
    let k = ir.parameter("k", "f32", "1,2,4,3");
    let scores = ir.op("Einsum", "equation=\"bhid,bhjd-&gt;bhij\"", &[q, k]);
    let shares = ir.op("SoftMax", "axis=\"3\"", &[scores]);
    ir.result("y", shares);
    let imported = read(&ir);
    assert_eq!(kinds(&imported), [OpKind::MatMul, OpKind::SoftMax]);
    assert_eq!(imported.outputs[0].tensor.dims(), Some(&[1, 2, 2, 4][..]));
}

/// The result of a model that has one.
fn one_result(imported: &Imported, given: &[(&str, Value)]) -> Value {
    by_name(imported, given).into_values().next().unwrap()
}

/// Attention of OpenVINO whose mask, if it has one, is a parameter.
fn attention(mask: Option<(&str, &str)>, causal: bool, [queries, keys, depth]: [i64; 3], front: &str) -> Ir {
    let mut ir = Ir::default();
    let dims = |rows: i64, columns: i64| format!("{front},{rows},{columns}");
    let mut inputs = vec![
        ir.parameter("q", "f32", &dims(queries, depth)),
        ir.parameter("k", "f32", &dims(keys, depth)),
        ir.parameter("v", "f32", &dims(keys, 3)),
    ];
    inputs.extend(mask.map(|(element, shape)| ir.parameter("mask", element, shape)));
    let result = ir.op("ScaledDotProductAttention", &format!("causal=\"{causal}\""), &inputs);
    ir.result("y", result);
    ir
}

#[test]
fn a_sink_takes_its_share_of_the_weights() {
    let mut wrong = Vec::new();
    for shape in ["2,1,1", "1", "2,3,1"] {
        let mut ir = Ir::default();
        let dims = ["2,3,8", "2,4,8", "2,4,3", "3,4", "1", shape];
        let names = ["q", "k", "v", "mask", "scale", "sink"];
        let inputs = names.iter().zip(dims).map(|(name, dims)| ir.parameter(name, "f32", dims));
        let inputs: Vec<_> = inputs.collect();
        let result = ir.op("ScaledDotProductAttention", "causal=\"false\"", &inputs);
        ir.result("y", result);
        let imported = read(&ir);
        // All scores are 0, and all values 1: four keys beside a sink of ln 4 weigh a half.
        let all = |dims: &str, number: f32| {
            let dims: Vec<i64> = dims.split(',').map(|dim| dim.parse().unwrap()).collect();
            float(&dims, &vec![number; dims.iter().product::<i64>() as usize])
        };
        let numbers = [0.0, 1.0, 1.0, 0.0, 1.0, 4f32.ln()];
        let given: Vec<_> = (0..6).map(|at| (names[at], all(dims[at], numbers[at]))).collect();
        let found = as_floats(&one_result(&imported, &given));
        if found.len() != 18 || found.iter().any(|x| (x - 0.5).abs() > 1e-6) {
            wrong.push(format!("sink of {shape}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_query_that_sees_no_key_is_zero() {
    let mut wrong = Vec::new();
    let numbers = |dims: &[i64]| {
        let count = dims.iter().product::<i64>();
        float(dims, &(0..count).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect::<Vec<_>>())
    };
    let inf = f32::NEG_INFINITY;
    // The second of three queries sees no key.
    let masks = [
        ("boolean", "3,4", Value::from_slice(&[3, 4], &[[true; 4], [false; 4], [true; 4]].concat()).unwrap()),
        ("f32", "3,4", float(&[3, 4], &[[0.0; 4], [inf; 4], [1.0; 4]].concat())),
        ("f32", "3,1", float(&[3, 1], &[0.0, inf, 0.5])),
    ];
    for (element, shape, mask) in masks {
        let imported = read(&attention(Some((element, shape)), false, [3, 4, 8], "2"));
        let given = [
            ("q", numbers(&[2, 3, 8])),
            ("k", numbers(&[2, 4, 8])),
            ("v", numbers(&[2, 4, 3])),
            ("mask", mask),
        ];
        let found = as_floats(&one_result(&imported, &given));
        let is_right = |(i, x): (usize, &f32)| if i / 3 % 3 == 1 { *x == 0.0 } else { x.is_finite() };
        if !found.iter().enumerate().all(is_right) || found.iter().all(|&x| x == 0.0) {
            wrong.push(format!("mask of {element} {shape}: {found:?}"));
        }
    }
    for causal in [false, true] {
        for [batch, heads, queries, keys, depth] in [
            [2, 3, 4, 0, 8],
            [0, 3, 4, 5, 8],
            [2, 0, 4, 5, 8],
            [2, 3, 0, 5, 8],
            [2, 3, 4, 5, 0],
            [2, 3, 4, 0, 0],
        ] {
            let imported =
                read(&attention(None, causal, [queries, keys, depth], &format!("{batch},{heads}")));
            let given = [
                ("q", numbers(&[batch, heads, queries, depth])),
                ("k", numbers(&[batch, heads, keys, depth])),
                ("v", numbers(&[batch, heads, keys, 3])),
            ];
            let found = one_result(&imported, &given);
            let elements = as_floats(&found);
            let is_right = |x: &f32| if keys == 0 { *x == 0.0 } else { x.is_finite() };
            if found.dims() != [batch, heads, queries, 3] || !elements.iter().all(is_right) {
                wrong.push(format!("causal {causal}, {given:?}: {found:?}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn numbers_far_from_zero_are_normalised_by_their_deviation() {
    let mut wrong = Vec::new();
    for (axes, variance, inside) in [
        ([1, 2], true, true),
        ([1, 2], true, false),
        ([0, 1], true, true),
        ([0, 1], true, false),
        ([0, 1], false, true),
    ] {
        let mut ir = Ir::default();
        let (x, along) = (ir.parameter("x", "f32", "24,32,24"), ir.integers(&axes));
        let mode = if inside { "inside_sqrt" } else { "outside_sqrt" };
        let data = format!("eps=\"1e-6\" normalize_variance=\"{variance}\" eps_mode=\"{mode}\"");
        let result = ir.op("MVN", &data, &[x, along]);
        ir.result("y", result);
        let imported = read(&ir);
        let dims = [24, 32, 24];
        let run = |numbers: &[f32]| as_floats(&one_result(&imported, &[("x", float(&dims, numbers))]));
        let equal = run(&[1234.567; 24 * 32 * 24]);
        if equal.iter().any(|&x| x != 0.0) {
            wrong.push(format!("{axes:?} {data}: {}, not 0", equal[0]));
        }
        let numbers: Vec<f32> = (0..24 * 32 * 24).map(|i| 10_000.0 + (i * 37 % 61) as f32 / 1024.0).collect();
        let found = run(&numbers);
        for row in 0..24 {
            let places: Vec<usize> =
                (0..768).map(|i| if axes[0] == 1 { row * 768 + i } else { i * 24 + row }).collect();
            let mean = places.iter().map(|&at| f64::from(numbers[at])).sum::<f64>() / 768.0;
            let squares = places.iter().map(|&at| (f64::from(numbers[at]) - mean).powi(2));
            let spread = squares.sum::<f64>() / 768.0;
            let deviation = match (variance, inside) {
                (false, _) => 1.0,
                (true, true) => (spread + 1e-6).sqrt(),
                (true, false) => spread.sqrt() + 1e-6,
            };
            let off =
                |&at: &usize| ((f64::from(numbers[at]) - mean) / deviation - f64::from(found[at])).abs();
            let worst = places.iter().map(off).fold(0.0, f64::max);
            if worst > 2e-6 {
                wrong.push(format!("{axes:?} {data}: {worst} off"));
                break;
            }
        }
    }
    report(&wrong);
}
