//! Graph JSON: what is read, what is refused and where, and that what is written is read back.
#![cfg(feature = "json")]

use std::panic::catch_unwind;
use std::time::Instant;

use crate::common;
use crate::common::open::{self, OPEN};
use proptest::prelude::*;
use sterna::reference::{Value, run};
use sterna::{
    Attr, AttrValue, AutoBroadcast, DataType, Engine, EngineKind, Error, FpMath, FpMathMode, Graph,
    GraphFault, JsonFault, Layout, LogicalTensor, Op, OpFault, OpKind, Partition, Policy, Property,
    TensorFault,
};

/// A document that the tables below alter.
const VALID: &str = r#"{
  "version": "3.13.0",
  "engine_kind": "cpu",
  "fpmath_mode": "strict",
  "fpmath_mode_apply_to_int": "false",
  "input_ports": [1, 2, 3],
  "output_ports": [6],
  "graph": [
    {
      "id": 40, "name": "pick", "kind": "Select",
      "attrs": {
        "auto_broadcast": {"type": "string", "value": "pdpd"},
        "axis": {"type": "s64", "value": 1}
      },
      "inputs": [
        {"id": 1, "dtype": "boolean", "shape": [5], "stride": [1], "layout_type": "strided", "property_type": "undef"},
        {"id": 2, "dtype": "f32", "shape": [4, 5], "stride": [5, 1], "layout_type": "strided", "property_type": "constant"},
        {"id": 3, "dtype": "f32", "shape": [5, 1], "stride": [1, 1], "layout_type": "strided", "property_type": "variable"}
      ],
      "outputs": [{"id": 4, "dtype": "f32", "shape": [4, 5], "stride": [1, 4], "layout_type": "strided", "property_type": "undef"}]
    },
    {
      "id": 41, "name": "limit", "kind": "Clamp",
      "attrs": {
        "min": {"type": "f32", "value": -0.5},
        "max": {"type": "f32", "value": 6}
      },
      "inputs": [{"id": 4, "dtype": "f32", "shape": [4, 5], "stride": [1, 4], "layout_type": "strided", "property_type": "undef"}],
      "outputs": [{"id": 5, "dtype": "f32", "shape": [4, 5], "layout_type": "any"}]
    },
    {
      "id": 42, "kind": "StaticReshape",
      "attrs": {
        "shape": {"type": "s64[]", "value": [20]},
        "special_zero": {"type": "bool", "value": 0}
      },
      "inputs": [{"id": 5, "dtype": "f32", "shape": [4, 5], "layout_type": "any"}],
      "outputs": [{"id": 6, "dtype": "f32", "shape": [-9223372036854775808], "stride": [-9223372036854775808]}]
    }
  ]
}
"#;

/// [`VALID`] with one piece of it replaced.
fn altered(from: &str, to: &str) -> String {
    assert_eq!(VALID.matches(from).count(), 1, "{from} must be in the document once");
    VALID.replace(from, to)
}

fn fault(text: &str) -> Option<JsonFault> {
    match Graph::from_json(text) {
        Err(Error::Json(fault)) => Some(*fault),
        Err(other) => panic!("{other:?} has no place in the document"),
        Ok(_) => None,
    }
}

/// The graph that [`VALID`] describes.
fn valid_graph() -> Result<Graph, Error> {
    let dense = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims);
    let masked = LogicalTensor::with_strides(4, DataType::F32, &[4, 5], &[1, 4])?;
    let limited = LogicalTensor::any(5, DataType::F32, &[4, 5])?;
    let reshaped =
        LogicalTensor::with_layout(6, DataType::F32, None, Layout::Strided([].into_iter().collect()))?;
    let mut graph = Graph::new();
    graph.add_op(
        Op::select(
            40,
            LogicalTensor::strided(1, DataType::Boolean, &[5])?,
            dense(2, &[4, 5])?.with_property(Property::Constant)?,
            dense(3, &[5, 1])?.with_property(Property::Variable)?,
            masked.clone(),
        )
        .named("pick")
        .auto_broadcast(AutoBroadcast::Pdpd)
        .axis(1),
    )?;
    let clamp = Op::new(41, OpKind::Clamp).named("limit").attr(Attr::Min, -0.5f32).attr(Attr::Max, 6.0f32);
    graph.add_op(clamp.input(masked).output(limited.clone()))?;
    let reshape =
        Op::new(42, OpKind::StaticReshape).attr(Attr::Shape, vec![20i64]).attr(Attr::SpecialZero, false);
    graph.add_op(reshape.input(limited).output(reshaped))?;
    Ok(graph)
}

#[test]
fn a_document_is_the_graph_that_it_describes() -> Result<(), Error> {
    let graph = Graph::from_json(VALID)?;
    assert_eq!(graph, valid_graph()?);
    assert!(!graph.is_finalized());
    Ok(())
}

#[test]
fn what_changes_nothing() {
    let rows: &[(&str, &str)] = &[
        ("\"version\": \"3.13.0\",", ""),
        ("\"engine_kind\": \"cpu\",", ""),
        ("\"fpmath_mode\": \"strict\",", ""),
        ("\"fpmath_mode_apply_to_int\": \"false\",", ""),
        ("\"fpmath_mode_apply_to_int\": \"false\",", "\"fpmath_mode_apply_to_int\": false,"),
        ("\"input_ports\": [1, 2, 3],", ""),
        ("\"input_ports\": [1, 2, 3],", "\"input_ports\": [99, {\"ports\": null}],"),
        ("\"output_ports\": [6],", ""),
        (
            "\"version\"",
            "\"unknown\": {\"id\": [1, {\"id\": \"]}\\\"\"}], \"x\": 1e999, \"y\": null}, \"version\"",
        ),
        ("\"name\": \"pick\"", "\"unknown\": [], \"name\": \"pick\", \"unknown\": 0"),
        ("\"id\": 40, \"name\": \"pick\"", "\"name\": \"\\u0070ick\", \"\\u0069d\": 40"),
        (
            "\"axis\": {\"type\": \"s64\", \"value\": 1}",
            "\"axis\": {\"value\": 1, \"why\": 0, \"type\": \"s64\"}",
        ),
        (
            "\"attrs\": {\n        \"auto",
            "\"attrs\": {\"partition_id\": {\"type\": \"string\", \"value\": \"3\"}, \"backend\": 0, \"auto",
        ),
        ("\"value\": 0}", "\"value\": false}"),
        ("\"value\": 6}", "\"value\": 6.0e+0}"),
        ("\"value\": -0.5}", "\"value\": -0.500000000000000000000000001}"),
        (
            "\"shape\": [5], \"stride\": [1], \"layout_type\": \"strided\"",
            "\"shape\": [5], \"layout_type\": \"strided\"",
        ),
        ("\"shape\": [5], \"stride\": [1], \"layout_type\": \"strided\"", "\"shape\": [5], \"stride\": [1]"),
        (", \"layout_type\": \"any\"}]\n    },", "}]\n    },"),
        (
            ", \"layout_type\": \"any\"}]\n    },",
            ", \"layout_type\": \"any\", \"stride\": [-9223372036854775808]}]\n    },",
        ),
        ("\"stride\": [-9223372036854775808]}", "\"stride\": [3, 2, 1]}"),
        (
            "\"shape\": [-9223372036854775808], \"stride\": [-9223372036854775808]}",
            "\"layout_type\": \"strided\"}",
        ),
    ];
    let expected = valid_graph().unwrap();
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|(from, to)| match Graph::from_json(&altered(from, to)) {
            Ok(graph) if graph == expected => None,
            other => Some((from, to, other)),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A tensor as JSON, and what it is read as.
#[test]
fn tensors_are_read_as_they_are_meant() {
    let unknown = OPEN;
    let with = |dims: Option<&[i64]>, layout| open::with_layout(9, DataType::F32, dims, layout);
    let strided = |dims: Option<&[i64]>, strides: &[i64]| with(dims, open::strides(strides));
    let rows = [
        (r#""shape": []"#, with(Some(&[]), Layout::Any)),
        (r#""shape": [], "stride": []"#, strided(Some(&[]), &[])),
        (r#""shape": [2, 0]"#, with(Some(&[2, 0]), Layout::Any)),
        (r#""layout_type": "undef""#, with(None, Layout::Undef)),
        (r#""shape": [2], "layout_type": "undef", "stride": [7, 7]"#, with(Some(&[2]), Layout::Undef)),
        (r#""shape": [2, -9223372036854775808]"#, with(Some(&[2, unknown]), Layout::Any)),
        (
            r#""shape": [2, -9223372036854775808], "layout_type": "strided""#,
            strided(Some(&[2, unknown]), &[unknown, unknown]),
        ),
        (r#""shape": [2, 3], "stride": [-9223372036854775808]"#, strided(Some(&[2, 3]), &[unknown, unknown])),
        (r#""shape": [2, 3], "stride": [-9223372036854775808, 1]"#, strided(Some(&[2, 3]), &[unknown, 1])),
        (r#""shape": [-9223372036854775808], "stride": [4, 1]"#, strided(None, &[])),
        (r#""shape": [-9223372036854775808], "stride": [4]"#, strided(Some(&[unknown]), &[4])),
        (
            r#""shape": [-9223372036854775808], "stride": [4], "layout_type": "opaque""#,
            with(None, Layout::Opaque(4)),
        ),
        (r#""stride": [4, 1]"#, strided(None, &[])),
        (
            r#""shape": [2, 3], "layout_type": "opaque", "stride": [77, 3]"#,
            with(Some(&[2, 3]), Layout::Opaque(77)),
        ),
        (r#""shape": [], "layout_type": "opaque", "stride": []"#, with(Some(&[]), Layout::Opaque(0))),
        (r#""shape": [], "layout_type": "opaque""#, with(Some(&[]), Layout::Opaque(0))),
        (
            r#""shape": [], "stride": [], "layout_type": "strided", "property_type": "host_scalar""#,
            LogicalTensor::host_scalar(9, DataType::F32),
        ),
    ];
    let wrong: Vec<_> = rows
        .into_iter()
        .filter_map(|(json, expected)| {
            let tensor = format!(r#"{{"id": 9, "dtype": "f32", {json}}}"#);
            let text =
                format!(r#"{{"graph": [{{"id": 0, "kind": "End", "inputs": [{tensor}], "outputs": []}}]}}"#);
            let read = Graph::from_json(&text).map(|graph| graph.ops()[0].inputs()[0].clone());
            (read != expected).then_some((json, read, expected))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each row puts the second piece in the place of the first; `@` marks where the error is to be.
#[test]
fn bad_documents_are_refused_where_they_are_bad() {
    let select = "op 0 (Select, id 40)";
    let clamp = "op 1 (Clamp, id 41)";
    let reshape = "op 2 (StaticReshape, id 42)";
    let rows: &[(&str, &str, String, &str)] = &[
        // Not JSON.
        ("  ]\n}\n", "  ]\n@", "".into(), "EOF while parsing an object"),
        ("  ]\n}\n", "  ]\n} @x", "".into(), "trailing characters"),
        ("  ]\n}\n", "  ]\n}\n@{}", "".into(), "trailing characters"),
        (
            "\"value\": 6}",
            "\"value\": @inf}",
            "".into(),
            "expected value; write \"inf\", \"-inf\" or \"nan\" in quotes",
        ),
        (
            "\"value\": 6}",
            "\"value\": -@inf}",
            "".into(),
            "invalid number; write \"inf\", \"-inf\" or \"nan\" in quotes",
        ),
        ("\"value\": 6}", "\"value\": @True}", "".into(), "expected value"),
        // Of another form.
        ("\"cpu\"", "@\"tpu\"", "key `engine_kind`: ".into(), "no engine kind is called \"tpu\""),
        ("\"cpu\"", "@3", "key `engine_kind`: ".into(), "`3` is not a string"),
        ("\"strict\"", "@\"loose\"", "key `fpmath_mode`: ".into(), "\"loose\""),
        (
            ": \"false\",",
            ": @\"maybe\",",
            "key `fpmath_mode_apply_to_int`: ".into(),
            "`\"maybe\"` is not a truth value",
        ),
        ("{\n  \"version\"", "[]@, {\n  \"version\"", "".into(), "trailing characters"),
        ("\"graph\"", "\"grahp\"", "key `graph`: ".into(), "the key is missing"),
        ("\"version\"", "\"graph\": {}, \"version\"", "key `graph`: ".into(), "the key is given twice"),
        ("\"graph\": [", "\"graph\": [@7, ", "op 0: ".into(), "`7` is not an object"),
        // Ops.
        ("\"id\": 40, ", "", "op 0 (Select), key `id`: ".into(), "the key is missing"),
        ("\"id\": 40", "\"id\": @-1", "op 0 (Select), key `id`: ".into(), "`-1` is not an id"),
        ("\"id\": 40", "\"id\": 40, \"id\": @43", format!("{select}, key `id`: "), "the key is given twice"),
        ("\"Select\"", "@\"Selekt\"", "op 0 (id 40), key `kind`: ".into(), "no op kind is called \"Selekt\""),
        ("\"Select\"", "@81", "op 0 (id 40), key `kind`: ".into(), "`81` is not a string"),
        (", \"kind\": \"Select\"", "", "op 0 (id 40), key `kind`: ".into(), "the key is missing"),
        ("\"pick\"", "@null", format!("{select}, key `name`: "), "`null` is not a string"),
        // Attributes.
        (
            "\"attrs\": {\n        \"min\"",
            "\"attrs\": @[], \"x\": {\n        \"min\"",
            format!("{clamp}, key `attrs`: "),
            "a list is not an object",
        ),
        (
            "\"axis\": {",
            "\"axes_\": @{",
            format!("{select}, attribute `axes_`: "),
            "no attribute is called \"axes_\"",
        ),
        (
            "\"axis\": {",
            "\"auto_broadcast\": @{",
            format!("{select}, attribute `auto_broadcast`: "),
            "the key is given twice",
        ),
        (
            "\"type\": \"s64\", \"value\": 1",
            "\"value\": 1",
            format!("{select}, attribute `axis`, key `type`: "),
            "the key is missing",
        ),
        (
            "\"type\": \"s64\", \"value\": 1",
            "\"type\": \"s64\"",
            format!("{select}, attribute `axis`, key `value`: "),
            "the key is missing",
        ),
        (
            "\"type\": \"s64\", \"value\": 1",
            "\"type\": @\"int\", \"value\": 1",
            format!("{select}, attribute `axis`, key `type`: "),
            "no attribute type is called \"int\"",
        ),
        (
            "\"value\": 1}",
            "\"value\": @1.0}",
            format!("{select}, attribute `axis`, key `value`: "),
            "`1.0` is not a whole number of 64 bits",
        ),
        (
            "\"value\": 1}",
            "\"value\": @9223372036854775808}",
            format!("{select}, attribute `axis`, key `value`: "),
            "is not a whole number of 64 bits",
        ),
        (
            "\"value\": 6}",
            "\"value\": @1e39}",
            format!("{clamp}, attribute `max`, key `value`: "),
            "`1e39` is not a number of type f32",
        ),
        (
            "\"value\": 6}",
            "\"value\": @\"6\"}",
            format!("{clamp}, attribute `max`, key `value`: "),
            "`\"6\"` is not a number of type f32",
        ),
        (
            "\"value\": 6}",
            "\"value\": @true}",
            format!("{clamp}, attribute `max`, key `value`: "),
            "`true` is not a number of type f32",
        ),
        (
            "\"value\": 6}",
            "\"value\": @\"nan(0x3f800000)\"}",
            format!("{clamp}, attribute `max`, key `value`: "),
            "is not a number of type f32",
        ),
        (
            "[20]",
            "[20, @null]",
            format!("{reshape}, attribute `shape`, key `value`: "),
            "`null` is not a whole number of 64 bits",
        ),
        ("[20]", "@20", format!("{reshape}, attribute `shape`, key `value`: "), "`20` is not a list"),
        (
            "\"value\": 0}",
            "\"value\": @2}",
            format!("{reshape}, attribute `special_zero`, key `value`: "),
            "`2` is not a truth value",
        ),
        // Tensors.
        ("\"id\": 3, ", "", format!("{select}, input 2, key `id`: "), "the key is missing"),
        ("\"id\": 3", "\"id\": @\"3\"", format!("{select}, input 2, key `id`: "), "`\"3\"` is not an id"),
        ("\"dtype\": \"boolean\", ", "", format!("{select}, input 0, key `dtype`: "), "the key is missing"),
        (
            "\"boolean\"",
            "@\"bool\"",
            format!("{select}, input 0, key `dtype`: "),
            "no data type is called \"bool\"",
        ),
        (
            "\"shape\": [5]",
            "\"shape\": [@\"5\"]",
            format!("{select}, input 0, key `shape`: "),
            "`\"5\"` is not a whole number of 64 bits",
        ),
        (
            "\"shape\": [5]",
            "\"shape\": [\n@5.5]",
            format!("{select}, input 0, key `shape`: "),
            "`5.5` is not a whole number of 64 bits",
        ),
        (
            "\"shape\": [5]",
            "\"shape\": [@9223372036854775808]",
            format!("{select}, input 0, key `shape`: "),
            "is not a whole number",
        ),
        (
            "\"shape\": [5]",
            "\"shape\": [@[5]]",
            format!("{select}, input 0, key `shape`: "),
            "a list is not a whole number of 64 bits",
        ),
        (
            "\"shape\": [5]",
            "\"shape\": [5], \"shape\": @[5]",
            format!("{select}, input 0, key `shape`: "),
            "the key is given twice",
        ),
        (
            "\"constant\"",
            "@\"const\"",
            format!("{select}, input 1, key `property_type`: "),
            "no tensor property is called \"const\"",
        ),
        (
            "\"stride\": [1], \"layout_type\": \"strided\"",
            "\"layout_type\": @\"dense\"",
            format!("{select}, input 0, key `layout_type`: "),
            "no layout is called \"dense\"",
        ),
        (
            "\"stride\": [5, 1]",
            "\"stride\": [5, @true]",
            format!("{select}, input 1, key `stride`: "),
            "`true` is not a whole number",
        ),
        (
            "\"stride\": [-9223372036854775808]",
            "\"stride\": @{}",
            format!("{reshape}, output 0, key `stride`: "),
            "an object is not a list",
        ),
        // Half a surrogate pair, in a name and in a key.
        ("\"pick\"", "@\"\\ud800\"", format!("{select}, key `name`: "), "hex escape"),
        ("\"name\": \"limit\"", "\"n\\ud800\": 0", "op 1: ".into(), "hex escape"),
        // A name that holds what is not ASCII stands before the error in its line.
        (
            "\"pick\", \"kind\": \"Select\"",
            "\"§→😀\", \"kind\": @\"S\"",
            "op 0 (id 40), key `kind`: ".into(),
            "no op kind is called \"S\"",
        ),
    ];
    let mut wrong = Vec::new();
    for (from, to, place, message) in rows {
        let marked = altered(from, to);
        let text = marked.replace('@', "");
        let Some(fault) = fault(&text) else {
            wrong.push(format!("{to}: read without an error"));
            continue;
        };
        let marked_at = marked.find('@').map(|offset| line_and_column(&marked[..offset]));
        let placed = marked_at.is_none_or(|at| at == (fault.line, fault.column));
        if !placed || fault.place != *place || !fault.message.contains(message) || fault.cause.is_some() {
            wrong.push(format!("{to}: {fault}; expected at {marked_at:?}, {place:?}, {message:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The line and the column at which the text goes on.
fn line_and_column(before: &str) -> (usize, usize) {
    let last = before.split('\n').next_back().unwrap_or("");
    (before.split('\n').count(), last.chars().count() + 1)
}

#[test]
fn a_missing_key_is_missed_where_its_object_begins() {
    let rows: &[(&str, &str, (usize, usize))] = &[
        ("\"graph\"", "\"grahp\"", (1, 1)),
        ("\"id\": 40, ", "", (9, 5)),
        (", \"kind\": \"Select\"", "", (9, 5)),
        ("\"id\": 3, ", "", (18, 9)),
        ("\"type\": \"s64\", \"value\": 1", "\"type\": \"s64\"", (13, 17)),
    ];
    let at = |(from, to)| fault(&altered(from, to)).map(|fault| (fault.line, fault.column));
    let wrong: Vec<_> = rows
        .iter()
        .filter(|(from, to, expected)| at((from, to)) != Some(*expected))
        .map(|(from, to, expected)| (to, at((from, to)), expected))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_dim_of_minus_one_is_unknown() {
    let graph = Graph::from_json(&altered("\"shape\": [5]", "\"shape\": [-1]")).unwrap();
    let select = graph.ops().iter().find(|op| op.kind() == OpKind::Select).unwrap();
    assert_eq!(select.inputs()[0].partial_dims(), Some(vec![None]));
}

/// Formats that people take for graph JSON.
#[test]
fn other_formats_are_named() {
    let model = r#"{"irVersion": "8", "opsetImport": [{"version": "13"}], "graph": {"node": []}}"#;
    let rows = [
        (model, "line 1, column 65: key `graph`: this is an ONNX model"),
        (r#"{"ir_version": 8, "opset_import": []}"#, "line 1, column 1: this is an ONNX model"),
        ("\u{8}\u{8}\u{12}\u{7}pytorch", "line 1, column 1: this is an ONNX file"),
        ("<?xml version=\"1.0\"?>", "line 1, column 1: this is XML, such as an OpenVINO IR"),
        (r#"{"graph": {}}"#, "line 1, column 11: key `graph`: an object is not a list"),
    ];
    let mut wrong = Vec::new();
    for (text, start) in rows {
        let message = fault(text).expect("it is no graph").to_string();
        if !message.starts_with(start) {
            wrong.push(message);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Rows: what to replace, by what, the line and place of the error, and what its cause is.
#[test]
fn what_the_graph_refuses_keeps_its_error_as_the_cause() {
    type Matches = fn(&Error) -> bool;
    let rows: &[(&str, &str, usize, &str, Matches)] = &[
        (
            "\"shape\": [5]",
            "\"shape\": [-5]",
            16,
            "op 0 (Select, id 40), input 0: ",
            |cause| matches!(cause, Error::Tensor { id, fault: TensorFault::NegativeDim { axis: 0, dim: -5 } } if *id == 1),
        ),
        (
            "\"stride\": [5, 1]",
            "\"stride\": [5, 1, 1]",
            17,
            "op 0 (Select, id 40), input 1: ",
            |cause| matches!(cause, Error::Tensor { id, fault: TensorFault::StrideCount { dims: 2, strides: 3 } } if *id == 2),
        ),
        ("\"stride\": [5, 1]", "\"stride\": [5, -1]", 17, "op 0 (Select, id 40), input 1: ", |cause| {
            matches!(
                cause,
                Error::Tensor { id, fault: TensorFault::NegativeStride { axis: 1, stride: -1 } } if *id == 2
            )
        }),
        (
            "\"shape\": [5]",
            "\"shape\": [1,1,1,1,1,1,1,1,1,1,1,1,1]",
            16,
            "op 0 (Select, id 40), input 0: ",
            |cause| matches!(cause, Error::Tensor { id, fault: TensorFault::Rank { rank: 13 } } if *id == 1),
        ),
        (
            "\"id\": 6, \"dtype\": \"f32\", \"shape\": [-9223372036854775808]",
            "\"id\": 6, \"dtype\": \"f32\", \"layout_type\": \"any\", \"shape\": [9223372036854775807, 2]",
            38,
            "op 2 (StaticReshape, id 42), output 0: ",
            |cause| matches!(cause, Error::Tensor { id, fault: TensorFault::TooLarge { .. } } if *id == 6),
        ),
        (
            "\"constant\"",
            "\"host_scalar\"",
            17,
            "op 0 (Select, id 40), input 1: ",
            |cause| matches!(cause, Error::Tensor { id, fault: TensorFault::HostScalar { rank: Some(2), .. } } if *id == 2),
        ),
        (
            "\"boolean\"",
            "\"u8\"",
            9,
            "op 0 (Select, id 40): ",
            |cause| matches!(cause, Error::Op { op, fault: OpFault::Type { .. } } if op.kind == OpKind::Select && op.id == 40),
        ),
        ("\"pdpd\"", "\"nump\"", 9, "op 0 (Select, id 40): ", |cause| {
            matches!(cause, Error::Op { fault: OpFault::AttrValue { attr: Attr::AutoBroadcast, .. }, .. })
        }),
        (
            "\"type\": \"s64\", \"value\": 1",
            "\"type\": \"f32\", \"value\": 1",
            9,
            "op 0 (Select, id 40): ",
            |cause| matches!(cause, Error::Op { fault: OpFault::AttrType { attr: Attr::Axis, .. }, .. }),
        ),
        ("\"axis\"", "\"alpha\"", 9, "op 0 (Select, id 40): ", |cause| {
            matches!(cause, Error::Op { fault: OpFault::UnknownAttr(Attr::Alpha), .. })
        }),
        (
            "\"id\": 42",
            "\"id\": 40",
            31,
            "op 2 (StaticReshape, id 40): ",
            |cause| matches!(cause, Error::Graph(GraphFault::DuplicateOp(op)) if op.id == 40),
        ),
    ];
    let mut wrong = Vec::new();
    for (from, to, line, place, matches) in rows {
        let fault = fault(&altered(from, to));
        let expected = fault.as_ref().is_some_and(|fault| {
            fault.line == *line && fault.place == *place && fault.cause.as_ref().is_some_and(matches)
        });
        if !expected {
            wrong.push((to, line, place, fault));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_document_cut_anywhere_is_refused_at_its_end() {
    let whole = VALID.trim_end();
    let mut wrong = Vec::new();
    for end in (0..whole.len()).filter(|&end| whole.is_char_boundary(end)) {
        let text = &whole[..end];
        let fault = fault(text);
        // A number that stops after its sign or point is an error of its own, at that sign or point.
        let half_number = fault.as_ref().is_some_and(|fault| fault.message == "invalid number");
        let expected = line_and_column(if half_number { &text[..end - 1] } else { text });
        if fault.as_ref().map(|fault| (fault.line, fault.column)) != Some(expected) {
            wrong.push((end, fault));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nesting_has_a_limit_wherever_it_is() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "0" + &"}".repeat(depth);
    let depths = [128, 1_000_000];
    let mut rows: Vec<String> = Vec::new();
    for depth in depths {
        for value in [nested(depth), objects(depth), "[".repeat(depth)] {
            rows.push(value.clone());
            rows.push(format!("{{\"unknown\": {value}, \"graph\": []}}"));
            rows.push(format!("{{\"graph\": {value}}}"));
            rows.push(altered("\"shape\": [5]", &format!("\"shape\": {value}")));
            rows.push(altered("\"pick\"", &format!("\"pick\", \"unknown\": {value}")));
        }
    }
    let accepted = rows.iter().filter(|text| fault(text).is_none()).count();
    assert_eq!(accepted, 0);

    // Just below the limit, and brackets in strings, are no reason to refuse.
    for value in [nested(127), objects(127), format!("\"\\\"{}\"", "[".repeat(200))] {
        let text = format!("{{\"unknown\": {value}, \"graph\": []}}");
        assert_eq!(Graph::from_json(&text), Ok(Graph::new()));
    }
    let deep = fault(&format!("{{\"graph\": [],\n \"unknown\": {}}}", nested(128))).unwrap();
    assert_eq!((deep.line, deep.column), (2, 13 + 127));
    assert!(deep.message.contains("128"), "{deep}");
}

/// So many ops, one a line, each with the id that stands in its place.
fn wildcards(ids: impl Iterator<Item = usize>) -> String {
    let op = |id: usize| format!("{{\"id\":{id},\"kind\":\"Wildcard\",\"inputs\":[],\"outputs\":[]}}");
    let ops: Vec<String> = ids.map(op).collect();
    format!("{{\"graph\":[\n{}\n]}}", ops.join(",\n"))
}

/// Not quadratic: a million ops would take hours.
#[test]
fn a_million_ops() {
    const OPS: usize = 1_000_000;
    let text = wildcards(0..OPS);
    let start = Instant::now();
    let graph = Graph::from_json(&text).unwrap();
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
    assert_eq!(graph.ops().len(), OPS);
    assert_eq!(graph.ops()[OPS - 1].id(), OPS - 1);
}

#[test]
fn an_error_after_many_ops_has_its_own_line() {
    const OPS: usize = 20_000;
    let fault = fault(&wildcards((0..OPS).chain([12]))).unwrap();
    assert_eq!((fault.line, fault.column), (OPS + 2, 1));
    assert_eq!(fault.place, format!("op {OPS} (Wildcard, id 12): "));
}

#[test]
fn the_written_form() -> Result<(), Error> {
    let mut graph = Graph::new();
    graph.set_fpmath(FpMath::new(FpMathMode::Bf16).apply_to_int(true))?;
    let scalar = LogicalTensor::host_scalar(2, DataType::F32)?;
    let product = open::any(3, DataType::F32, &[4, OPEN])?;
    let rows = LogicalTensor::strided(1, DataType::F32, &[4, 5])?.with_property(Property::Variable)?;
    graph.add_op(
        Op::new(8, OpKind::Multiply).named("a \"b\"").inputs_from([rows, scalar]).output(product.clone()),
    )?;
    let limits = Op::new(9, OpKind::Clamp).attr(Attr::Min, -0.0f32).attr(Attr::Max, f32::INFINITY);
    graph.add_op(limits.input(product).output(LogicalTensor::unknown(4, DataType::F32)))?;
    let lines: Vec<String> = graph.to_json().lines().map(|line| line.trim().to_owned()).collect();
    let expected = r#"{
"version": "3.13.0", "engine_kind": "cpu", "fpmath_mode": "bf16", "fpmath_mode_apply_to_int": "true",
"input_ports": [ 1, 2 ], "output_ports": [ 4 ], "graph": [
{ "id": 8, "name": "a \"b\"", "kind": "Multiply",
"attrs": { "auto_broadcast": { "type": "string", "value": "numpy" } },
"inputs": [
{ "id": 1, "dtype": "f32", "shape": [ 4, 5 ], "stride": [ 5, 1 ], "layout_type": "strided", "property_type": "variable" },
{ "id": 2, "dtype": "f32", "shape": [], "stride": [], "layout_type": "strided", "property_type": "host_scalar" } ],
"outputs": [
{ "id": 3, "dtype": "f32", "shape": [ 4, -9223372036854775808 ], "stride": [ -9223372036854775808 ], "layout_type": "any", "property_type": "undef" } ] },
{ "id": 9, "name": "Clamp_9", "kind": "Clamp",
"attrs": { "max": { "type": "f32", "value": "inf" }, "min": { "type": "f32", "value": -0.0 } },
"inputs": [
{ "id": 3, "dtype": "f32", "shape": [ 4, -9223372036854775808 ], "stride": [ -9223372036854775808 ], "layout_type": "any", "property_type": "undef" } ],
"outputs": [
{ "id": 4, "dtype": "f32", "shape": [ -9223372036854775808 ], "stride": [ -9223372036854775808 ], "layout_type": "any", "property_type": "undef" } ] }
] }"#;
    assert_eq!(lines.join(" "), expected.replace('\n', " "));
    assert!(graph.to_json().starts_with("{\n  \"version\""), "two spaces a level");
    Ok(())
}

#[test]
fn every_kind_is_written_by_its_name_and_read_back() {
    let mut wrong = Vec::new();
    for &kind in OpKind::ALL {
        let mut graph = Graph::new();
        graph.add_op(common::plain_op(kind)).unwrap();
        let text = graph.to_json();
        let read = Graph::from_json(&text);
        if read.as_ref() != Ok(&graph) || !text.contains(&format!("\"kind\": \"{kind}\"")) {
            wrong.push(format!("{read:?} from {text}"));
        }
    }
    common::report(&wrong);
}

#[test]
fn truth_values_are_written_as_numbers() -> Result<(), Error> {
    let matrix = |id| LogicalTensor::strided(id, DataType::F32, &[2, 2]);
    let product =
        Op::new(0, OpKind::MatMul).attr(Attr::TransposeA, true).inputs_from([matrix(0)?, matrix(1)?]);
    let mut graph = Graph::new();
    graph.add_op(product.output(matrix(2)?))?;
    let document: serde_json::Value = serde_json::from_str(&graph.to_json()).unwrap();
    let attrs = &document["graph"][0]["attrs"];
    assert_eq!(attrs["transpose_a"], serde_json::json!({"type": "bool", "value": 1}));
    assert_eq!(attrs["transpose_b"], serde_json::json!({"type": "bool", "value": 0}));
    Ok(())
}

/// The one thing that the format cannot say.
#[test]
fn the_kind_of_engine_is_kept_and_changes_nothing_else() -> Result<(), Error> {
    const EXAMPLE: &str = include_str!("../../examples/graphs/select_numpy.json");
    assert_eq!(EXAMPLE.matches("\"cpu\"").count(), 1);
    let mut wrong = Vec::new();
    for &kind in EngineKind::ALL {
        let of_kind = |text: &str| text.replace("\"cpu\"", &format!("\"{kind}\""));
        let graph = Graph::from_json(&of_kind(VALID))?;
        let good = graph.engine_kind() == kind
            && graph.ops() == valid_graph()?.ops()
            && (graph == valid_graph()?) == (kind == EngineKind::Cpu)
            && graph.to_json().contains(&format!("\"engine_kind\": \"{kind}\""))
            && Graph::from_json(&graph.to_json()).as_ref() == Ok(&graph);
        let runs = check_example(&of_kind(EXAMPLE));
        if !good || runs.is_err() {
            wrong.push(format!("{kind}: {runs:?}, {graph:?}"));
        }
    }
    common::report(&wrong);
    assert_eq!(Graph::from_json(&altered("\"engine_kind\": \"cpu\",", ""))?.engine_kind(), EngineKind::Cpu);
    Ok(())
}

/// [`VALID`] with another description of tensor 4 at the op that consumes it.
fn consumer_says(description: &str) -> String {
    const WRITTEN: &str = "\"inputs\": [{\"id\": 4, \"dtype\": \"f32\", \"shape\": [4, 5], \"stride\": [1, 4], \
                           \"layout_type\": \"strided\", \"property_type\": \"undef\"}]";
    altered(WRITTEN, &format!("\"inputs\": [{{\"id\": 4, {description}}}]"))
}

#[test]
fn the_producer_of_a_tensor_decides_what_it_is() {
    let rows = [
        (
            r#""dtype": "f32", "shape": [5], "stride": [1]"#,
            Some(("ranks", "dims {5} differ from {4,5} of its producer")),
        ),
        (
            r#""dtype": "f32", "shape": [4, 1], "stride": [1, 4]"#,
            Some(("dims", "dims {4,1} differ from {4,5} of its producer")),
        ),
        (
            r#""dtype": "f32", "shape": [4, 5], "stride": [5, 1]"#,
            Some(("strides", "strides {5,1} differ from {1,4} of its producer")),
        ),
        (
            r#""dtype": "f32", "shape": [4, 5], "layout_type": "any""#,
            Some(("layouts", "layouts any differ from strided of its producer")),
        ),
        (
            r#""dtype": "f32", "shape": [4, 5], "stride": [7], "layout_type": "opaque""#,
            Some(("layouts", "layouts opaque 7 differ from strided of its producer")),
        ),
        (
            r#""dtype": "f32", "shape": [4, 5], "stride": [1, 4], "property_type": "constant""#,
            Some(("properties", "properties constant differ from undef of its producer")),
        ),
        (r#""dtype": "f32""#, None),
        (r#""dtype": "f32", "shape": [-9223372036854775808], "layout_type": "strided""#, None),
        (r#""dtype": "f32", "shape": [4, 5], "layout_type": "undef""#, None),
        (r#""dtype": "f32", "shape": [-9223372036854775808, 5], "stride": [1, 4]"#, None),
    ];
    let expected = valid_graph().unwrap();
    let mut wrong = Vec::new();
    for (written, expected_note) in rows {
        let (mut graph, notes) = match Graph::from_json_with_notes(&consumer_says(written)) {
            Ok(read) => read,
            Err(error) => {
                wrong.push(format!("{written}: {error}"));
                continue;
            }
        };
        let is_noted = match (&notes[..], expected_note) {
            ([], None) => true,
            ([note], Some((what, text))) => {
                let text = format!(
                    "Clamp (op 41), input 0 `src` (tensor 4): {text}, Select (op 40), whose description counts"
                );
                note.what == what && note.to_string() == text && note.by == expected.ops()[0].outputs()[0]
            }
            _ => false,
        };
        let finalized = graph.finalize();
        if !(is_noted && finalized.is_ok() && graph == expected) {
            wrong.push(format!("{written}: {notes:?}, {finalized:?}, {graph:?}"));
        }
    }
    common::report(&wrong);
}

#[test]
fn the_producer_decides_wherever_it_stands() -> Result<(), Error> {
    let tensor = |id: usize, dims: &str| format!(r#"{{"id": {id}, "dtype": "f32", "shape": {dims}}}"#);
    let op = |id: usize, kind: &str, inputs: &[String], output: String| {
        let inputs = inputs.join(", ");
        format!(r#"{{"id": {id}, "kind": "{kind}", "inputs": [{inputs}], "outputs": [{output}]}}"#)
    };
    let ops = [
        op(1, "Multiply", &[tensor(1, "[1]"), tensor(1, "[3]")], tensor(2, "[3]")),
        op(2, "Abs", &[tensor(0, "[3]")], tensor(1, "[3]")),
        op(3, "Exp", &[tensor(2, "[2]")], tensor(3, "[3]")),
    ];
    let (mut graph, notes) = Graph::from_json_with_notes(&format!("{{\"graph\": [{}]}}", ops.join(", ")))?;
    let places: Vec<_> =
        notes.iter().map(|note| (note.consumer.id.get(), note.port.index, note.producer.id.get())).collect();
    assert_eq!(places, [(1, 0, 2), (3, 0, 1)]);
    assert_eq!(notes[0].replaced.dims(), Some(&[1][..]));
    graph.finalize()?;
    assert!(graph.ops().iter().all(|op| op.inputs()[0].dims() == Some(&[3])));
    Ok(())
}

#[test]
fn what_a_producer_does_not_decide() {
    let types = consumer_says(r#""dtype": "f16", "shape": [4, 5], "stride": [1, 4]"#);
    let types = types.replace("\"id\": 5, \"dtype\": \"f32\"", "\"id\": 5, \"dtype\": \"f16\"");
    let types = types.replace("\"id\": 6, \"dtype\": \"f32\"", "\"id\": 6, \"dtype\": \"f16\"");
    let finalize = |text: &str| {
        let (mut graph, notes) = Graph::from_json_with_notes(text)?;
        assert!(notes.is_empty(), "{notes:?}");
        graph.finalize()
    };
    assert!(matches!(
        finalize(&types),
        Err(Error::Graph(GraphFault::MentionsDiffer { tensor, what: "types", .. })) if tensor == 4
    ));
    let abs = |id: usize, dims: &str| {
        format!(
            r#"{{"id": {id}, "kind": "Abs", "inputs": [{{"id": 0, "dtype": "f32", "shape": {dims}}}],
                "outputs": [{{"id": {}, "dtype": "f32"}}]}}"#,
            id + 1
        )
    };
    assert!(
        matches!(
            finalize(&format!("{{\"graph\": [{}, {}]}}", abs(1, "[2]"), abs(2, "[3]"))),
            Err(Error::Graph(GraphFault::MentionsDiffer { tensor, what: "dims", .. })) if tensor == 0
        ),
        "an input of the graph has no producer"
    );
    // An op without the port that a note would name.
    let fill = r#"{"graph": [
        {"id": 1, "kind": "Abs", "inputs": [{"id": 0, "dtype": "f32"}], "outputs": [{"id": 1, "dtype": "f32", "shape": [2]}]},
        {"id": 2, "kind": "Fill", "attrs": {"shape": {"type": "s64[]", "value": [2]}, "value": {"type": "f32", "value": 0}},
         "inputs": [{"id": 1, "dtype": "f32", "shape": [3]}], "outputs": [{"id": 2, "dtype": "f32"}]}]}"#;
    let refused = fault(fill).expect("Fill takes no input");
    assert!(matches!(refused.cause, Some(Error::Op { fault: OpFault::Count { .. }, .. })), "{refused}");
}

/// Reads a graph of ops that each mention tensor 9 once, as `mentions` describe it; answers with what each
/// says of it in the graph that was read.
fn read_mentions(mentions: &[LogicalTensor]) -> Result<Vec<LogicalTensor>, Error> {
    let mut graph = Graph::new();
    for (id, mention) in mentions.iter().enumerate() {
        let op = Op::new(id, if id == 0 { OpKind::Wildcard } else { OpKind::End });
        graph.add_op(match id {
            0 => op.output(mention.clone()),
            _ => op.input(mention.clone()),
        })?;
    }
    let (mut read, notes) = Graph::from_json_with_notes(&graph.to_json())?;
    assert!(notes.is_empty(), "{notes:?}");
    read.finalize()?;
    Ok(read.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs())).cloned().collect())
}

#[test]
fn one_mention_may_say_what_another_leaves_open() {
    let unknown = LogicalTensor::unknown(9, DataType::F32);
    let any = |dims: &[i64]| open::any(9, DataType::F32, dims).unwrap();
    let strided =
        |dims: &[i64], strides: &[i64]| open::with_strides(9, DataType::F32, dims, strides).unwrap();
    let of_layout = |dims, layout| open::with_layout(9, DataType::F32, dims, layout).unwrap();
    let undef = of_layout(Some(&[2, 3]), Layout::Undef);
    let rankless = of_layout(None, open::strides(&[]));
    let dense = strided(&[2, 3], &[3, 1]);
    let rows = [
        ("an unknown rank", vec![unknown.clone(), any(&[2])], any(&[2])),
        ("an unknown rank, strided", vec![dense.clone(), unknown.clone()], dense.clone()),
        ("an unknown rank of layout strided", vec![rankless.clone(), any(&[2])], any(&[2])),
        ("two unknown ranks", vec![rankless.clone(), unknown], rankless),
        ("an unknown dim", vec![any(&[2, 3]), any(&[2, OPEN])], any(&[2, 3])),
        ("each another dim", vec![any(&[OPEN, 3]), any(&[2, OPEN])], any(&[2, 3])),
        ("one dim after the other", vec![any(&[OPEN; 2]), any(&[OPEN, 3]), any(&[2, OPEN])], any(&[2, 3])),
        ("unknown strides", vec![strided(&[2, 3], &[OPEN; 2]), dense.clone()], dense.clone()),
        ("dims and strides", vec![strided(&[2, 3], &[OPEN; 2]), strided(&[OPEN; 2], &[3, 1])], dense.clone()),
        ("no layout", vec![undef.clone(), dense.clone()], dense.clone()),
        ("no layout, the other way round", vec![dense.clone(), undef.clone()], dense),
        ("no layout, with any", vec![undef.clone(), any(&[OPEN, 3])], any(&[2, 3])),
        ("no layout at all", vec![undef.clone(), undef.clone()], undef),
    ];
    let wrong: Vec<_> = rows
        .into_iter()
        .filter_map(|(what, mentions, expected)| {
            let read = read_mentions(&mentions);
            let good = read.as_deref() == Ok(&vec![expected.clone(); mentions.len()][..]);
            (!good).then(|| format!("{what}: {read:?}, not {expected:?}"))
        })
        .collect();
    common::report(&wrong);
}

#[test]
fn mentions_that_cannot_be_one_are_left_to_finalize() {
    let any = |dims: &[i64]| open::any(9, DataType::F32, dims).unwrap();
    let huge = |dims: &[i64], strides: &[i64]| open::with_strides(9, DataType::F32, dims, strides).unwrap();
    let rows = [
        // The producer leaves open what the consumers contradict each other in.
        vec![any(&[OPEN; 2]), any(&[OPEN, 3]), any(&[2, OPEN]), any(&[OPEN, 4])],
        // Each is possible by itself; together they leave the address space.
        vec![huge(&[2, OPEN], &[OPEN, 1]), huge(&[OPEN, 2], &[i64::MAX, 1])],
    ];
    for mentions in rows {
        let refused = read_mentions(&mentions).unwrap_err();
        assert!(
            matches!(&refused, Error::Graph(GraphFault::MentionsDiffer { tensor, .. }) if *tensor == 9),
            "{refused}"
        );
    }
}

#[test]
fn one_unknown_dim_becomes_an_unknown_rank_unless_its_stride_is_known() -> Result<(), Error> {
    for (layout, rank) in
        [(Layout::Any, None), (open::strides(&[OPEN]), None), (open::strides(&[3]), Some(1))]
    {
        let tensor = open::with_layout(0, DataType::F32, Some(&[OPEN]), layout)?;
        let mut graph = Graph::new();
        graph.add_op(Op::new(0, OpKind::End).input(tensor.clone()))?;
        let read = Graph::from_json(&graph.to_json())?;
        assert_eq!(tensor.rank(), Some(1));
        assert_eq!(read.ops()[0].inputs()[0].rank(), rank);
        assert_eq!(read.to_json(), graph.to_json());
        assert_eq!(read.ops()[0].inputs()[0].layout().name(), tensor.layout().name());
    }
    Ok(())
}

#[test]
fn numbers_are_rounded_once() -> Result<(), Error> {
    // Just above the middle of two neighbours; the nearest f64 is the middle itself, which ties to the lower
    // one.
    let digits = "1.000000059604644775390626";
    let graph = Graph::from_json(&altered("\"value\": 6}", &format!("\"value\": {digits}}}")))?;
    let Some(&AttrValue::F32(max)) = graph.ops()[1].get_attr(Attr::Max) else { panic!("{graph:?}") };
    assert_eq!(max, 1.0 + f32::EPSILON);
    assert_eq!(
        digits.parse::<f64>().unwrap() as f32,
        1.0,
        "the example must be one that two roundings get wrong"
    );
    Ok(())
}

#[test]
fn the_example_graphs_hold_together() {
    let mut wrong = Vec::new();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/graphs")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(why) = check_example(&text) {
            wrong.push(format!("{}: {why}", path.display()));
        }
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    names.sort();
    let expected = [
        "causal_mask.json",
        "causal_scale_select.json",
        "chain_of_12.json",
        "clamp_backward.json",
        "gelu_gated_select.json",
        "gpt_additive_mask.json",
        "image_pyramid.json",
        "implicit_causal_mask.json",
        "nan_to_num.json",
        "padding_bias_select.json",
        "padding_mask.json",
        "safe_softmax_guard.json",
        "select_big.json",
        "select_chain.json",
        "select_multidirectional.json",
        "select_none.json",
        "select_numpy.json",
        "select_pdpd.json",
        "select_plain.json",
        "swin_selects.json",
        "t5_bucket.json",
    ];
    assert_eq!(names, expected);
}

/// An example is a graph with a Select, lists the ports that follow from its ops, survives being written, and
/// can be run: its shapes are those that its ops give.
fn check_example(text: &str) -> Result<(), String> {
    let mut graph = Graph::from_json(text).map_err(|error| error.to_string())?;
    let ids = |tensors: Vec<&LogicalTensor>| {
        tensors.into_iter().map(|tensor| tensor.id().get()).collect::<Vec<_>>()
    };
    let document: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let listed = (document["input_ports"].clone(), document["output_ports"].clone());
    if listed != (ids(graph.inputs()).into(), ids(graph.outputs()).into()) {
        return Err(format!("lists the ports {listed:?}"));
    }
    if !graph.ops().iter().any(|op| op.kind() == OpKind::Select) {
        return Err("has no Select".into());
    }
    if Graph::from_json(&graph.to_json()).as_ref() != Ok(&graph) {
        return Err("is another graph once written and read".into());
    }
    graph.finalize().map_err(|error| error.to_string())?;
    let partitions = graph.partitions(Policy::Debug).map_err(|error| error.to_string())?;
    partitions.iter().try_for_each(check_shapes)
}

fn check_shapes(partition: &Partition) -> Result<(), String> {
    if partition.is_supported() {
        let compiled = partition.compile(&Engine::new());
        return compiled.map(drop).map_err(|error| error.to_string());
    }
    let [op] = partition.ops() else { return Err(format!("partition {} has several ops", partition.id())) };
    let zeros = |tensor: &LogicalTensor| {
        let dims = tensor.dims().unwrap_or_default();
        Value::new(tensor.data_type(), dims, vec![0; tensor.memory_size()])
    };
    let inputs: Result<Vec<Value>, Error> = op.inputs().iter().map(zeros).collect();
    let results = inputs.and_then(|inputs| run(op, &inputs)).map_err(|error| error.to_string())?;
    for (result, output) in results.iter().zip(op.outputs()) {
        if Some(result.dims()) != output.dims() || result.data_type() != output.data_type() {
            return Err(format!("{} gives {:?}, not {output:?}", op.name(), result.dims()));
        }
    }
    Ok(())
}

fn dims() -> impl Strategy<Value = Option<Vec<i64>>> {
    let dim = prop_oneof![4 => 0i64..6, 1 => Just(OPEN)];
    let dims =
        prop::collection::vec(dim, 0..=12).prop_filter("means an unknown rank", |dims| *dims != [OPEN]);
    prop::option::weighted(0.8, dims)
}

fn layout(rank: usize) -> impl Strategy<Value = Layout> {
    let stride = prop_oneof![4 => 0i64..1000, 1 => Just(OPEN)];
    prop_oneof![
        Just(Layout::Undef),
        Just(Layout::Any),
        prop::collection::vec(stride, rank).prop_map(|strides| open::strides(&strides)),
        prop_oneof![0..9usize, any::<usize>()].prop_map(Layout::Opaque),
    ]
}

fn tensor() -> impl Strategy<Value = LogicalTensor> {
    let data_type = prop::sample::select(DataType::ALL);
    let described = dims().prop_flat_map(|dims| {
        let layout = layout(dims.as_ref().map_or(0, Vec::len));
        (Just(dims), layout)
    });
    (any::<usize>(), data_type, described, prop::sample::select(Property::ALL)).prop_map(
        |(id, data_type, (dims, layout), property)| {
            let tensor = open::with_layout(id, data_type, dims.as_deref(), layout).unwrap();
            // A host scalar has rank 0 and one of three types; other tensors stay without a property.
            tensor.clone().with_property(property).unwrap_or(tensor)
        },
    )
}

fn number() -> impl Strategy<Value = f32> {
    let notable = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::MIN_POSITIVE,
        f32::MAX,
        1e-45,
    ];
    prop_oneof![prop::sample::select(notable.to_vec()), any::<u32>().prop_map(f32::from_bits)]
}

/// Ops of kinds that together have attributes of every type, on tensors of every kind.
fn op() -> impl Strategy<Value = Op> {
    let plain = |id, data_type| LogicalTensor::unknown(id, data_type);
    let select = move |mode: AutoBroadcast, axis: Option<i64>| {
        let f16 = |id| plain(id, DataType::F16);
        let op = Op::select(0, plain(0, DataType::Boolean), f16(1), f16(2), f16(3)).auto_broadcast(mode);
        match axis {
            Some(axis) if mode == AutoBroadcast::Pdpd => op.axis(axis),
            _ => op,
        }
    };
    let f32_op = move |kind| Op::new(0, kind).input(plain(0, DataType::F32)).output(plain(1, DataType::F32));
    let s64s = || prop::collection::vec(any::<i64>(), 0..4);
    prop_oneof![
        (prop::collection::vec(tensor(), 0..4), prop::collection::vec(tensor(), 0..4)).prop_map(
            |(inputs, outputs)| {
                outputs.into_iter().fold(Op::new(0, OpKind::Wildcard).inputs_from(inputs), Op::output)
            }
        ),
        (prop::sample::select(AutoBroadcast::ALL), prop::option::of(-1i64..))
            .prop_map(move |(mode, axis)| select(mode, axis)),
        (number(), number())
            .prop_map(move |(min, max)| f32_op(OpKind::Clamp).attr(Attr::Min, min).attr(Attr::Max, max)),
        (s64s(), any::<bool>()).prop_map(move |(shape, special)| {
            f32_op(OpKind::StaticReshape).attr(Attr::Shape, shape).attr(Attr::SpecialZero, special)
        }),
        prop::collection::vec((number(), any::<i64>()), 0..4).prop_map(move |params| {
            let (scales, zps): (Vec<f32>, Vec<i64>) = params.into_iter().unzip();
            Op::new(0, OpKind::Dequantize)
                .input(plain(0, DataType::U8))
                .output(plain(1, DataType::F32))
                .attr(Attr::Qtype, "per_channel")
                .attr(Attr::Scales, scales)
                .attr(Attr::Zps, zps)
        }),
        (any::<String>(), any::<i64>()).prop_map(move |(rounding, groups)| {
            let sizes = |op: Op| {
                [Attr::Strides, Attr::Kernel].into_iter().fold(op, |op, attr| op.attr(attr, vec![groups]))
            };
            let pads = |op: Op| {
                [Attr::PadsBegin, Attr::PadsEnd].into_iter().fold(op, |op, attr| op.attr(attr, vec![0i64]))
            };
            pads(sizes(f32_op(OpKind::AvgPool)))
                .attr(Attr::ExcludePad, true)
                .attr(Attr::RoundingType, rounding)
        }),
    ]
}

fn graph() -> impl Strategy<Value = Graph> {
    let fpmath = (prop::sample::select(FpMathMode::ALL), any::<bool>());
    let ops = prop::collection::btree_map(any::<usize>(), (op(), any::<String>()), 0..6);
    (fpmath, ops).prop_map(|((mode, apply_to_int), ops)| {
        let mut graph = Graph::new();
        graph.set_fpmath(FpMath::new(mode).apply_to_int(apply_to_int)).unwrap();
        for (id, (op, name)) in ops {
            let with_id = Op::new(id, op.kind()).named(name).inputs_from(op.inputs().iter().cloned());
            let with_outputs = op.outputs().iter().cloned().fold(with_id, Op::output);
            let op =
                op.attrs().fold(with_outputs, |with_id, (attr, value)| with_id.attr(attr, value.clone()));
            graph.add_op(op).unwrap();
        }
        graph
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(graph in graph()) {
        let text = graph.to_json();
        let read = Graph::from_json(&text);
        prop_assert_eq!(read.as_ref(), Ok(&graph), "{}", text);
        prop_assert_eq!(read.unwrap().to_json(), text);
    }

    #[test]
    fn a_damaged_document_is_no_panic(at in 0..VALID.len(), length in 0..40usize, put in "[\\[\\]{}\",:a-z0-9.\\\\ -]{0,8}") {
        let end = (at + length).min(VALID.len());
        let text = [&VALID[..at], &put, &VALID[end..]].concat();
        let outcome = catch_unwind(|| Graph::from_json(&text));
        let Ok(read) = outcome else { panic!("panicked on {text}") };
        if let Err(Error::Json(fault)) = read {
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert!((1..=lines.len()).contains(&fault.line), "{}", fault);
            let columns = lines[fault.line - 1].chars().count() + 1;
            prop_assert!((1..=columns).contains(&fault.column), "{}", fault);
        }
    }
}
