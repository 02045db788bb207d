//! The schema table against a copy of the facts of the op set and a table of our own kinds, and the codes and
//! names of kinds and attributes.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sterna::{Attr, AttrDefault, AttrRow, AttrType, Count, OpKind, Port, Schema};

/// Where Sterna differs from the op set on purpose: a kind, a field, and what the field is here.
///
/// Everything that is not listed is equal.
const WIDER: &[(&str, &str, &str)] = &[
    ("Select", "inputs", r#"[["cond", "T1"], ["then", "T2"], ["else", "T2"]]"#),
    (
        "Select",
        "types",
        r#"{
            "T1": ["boolean"],
            "T2": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s64", "s8", "u16",
                   "u32", "u64", "u8"]
        }"#,
    ),
    (
        "Select",
        "attributes",
        r#"{
            "auto_broadcast": {"code": 128, "required": false, "type": "string", "default": "numpy",
                               "allowed": ["multidirectional", "none", "numpy", "pdpd"]},
            "axis": {"code": 48, "required": false, "type": "s64", "default": null, "allowed": []}
        }"#,
    ),
    ("Select", "checks", r#"["axis_needs_pdpd"]"#),
    // A type variable without a list takes every type.
    ("End", "types", "{}"),
    ("Concat", "types", MOVED),
    ("Reorder", "types", MOVED),
    ("StaticReshape", "types", MOVED),
    ("StaticTranspose", "types", MOVED),
    ("Abs", "types", WITH_F64_INTEGERS),
    ("Add", "types", SUMS),
    ("Divide", "types", SUMS),
    ("Subtract", "types", SUMS),
    ("Multiply", "types", SUMS),
    ("Exp", "types", WITH_F64),
    ("Log", "types", WITH_F64),
    ("MatMul", "types", r#"{"T": ["bf16", "f16", "f32", "f64"], "T1": ["bf16", "f16", "f32", "f64"]}"#),
    ("Maximum", "types", WITH_F64_INTEGERS),
    ("Minimum", "types", WITH_F64_INTEGERS),
    ("ReLU", "types", WITH_F64),
    ("Reciprocal", "types", WITH_F64),
    ("Round", "types", WITH_F64),
    ("Sigmoid", "types", WITH_F64),
    ("Sqrt", "types", WITH_F64),
    ("Square", "types", WITH_F64),
    ("Tanh", "types", WITH_F64),
    ("GreaterEqual", "types", COMPARED),
    (
        "GenIndex",
        "types",
        r#"{
            "T1": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s64", "s8", "u16",
                   "u32", "u64", "u8"],
            "T2": ["s32"]
        }"#,
    ),
    // Stricter than the op set, which lets shapes pass that do not fit.
    ("PReLU", "shape_rule", r#""prelu""#),
    ("AbsBackward", "shape_rule", SAME_SHAPES),
    ("ClampBackward", "shape_rule", SAME_SHAPES),
    ("EluBackward", "shape_rule", SAME_SHAPES),
    ("GELUBackward", "shape_rule", SAME_SHAPES),
    ("HardSigmoidBackward", "shape_rule", SAME_SHAPES),
    ("HardSwishBackward", "shape_rule", SAME_SHAPES),
    ("MishBackward", "shape_rule", SAME_SHAPES),
    ("ReLUBackward", "shape_rule", SAME_SHAPES),
    ("SigmoidBackward", "shape_rule", SAME_SHAPES),
    ("SoftPlusBackward", "shape_rule", SAME_SHAPES),
    ("SqrtBackward", "shape_rule", SAME_SHAPES),
    ("TanhBackward", "shape_rule", SAME_SHAPES),
    ("LogSoftmax", "shape_rule", r#""softmax""#),
    ("LogSoftmaxBackward", "shape_rule", SOFTMAX_BACKWARD),
    ("SoftMaxBackward", "shape_rule", SOFTMAX_BACKWARD),
    ("Quantize", "shape_rule", QUANTIZATION),
    ("Dequantize", "shape_rule", QUANTIZATION),
    ("DynamicQuantize", "shape_rule", QUANTIZATION),
    ("DynamicDequantize", "shape_rule", QUANTIZATION),
    ("BatchNormInference", "shape_rule", r#""batch_norm""#),
    ("InterpolateBackward", "shape_rule", r#""interpolate_backward""#),
];

const MOVED: &str = r#"{
    "T": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s64", "s8", "u16", "u32", "u64",
          "u8"]
}"#;
const SOFTMAX_BACKWARD: &str = r#""softmax_backward""#;
const QUANTIZATION: &str = r#""quantization""#;

const SAME_SHAPES: &str = r#""same_shapes""#;
const SUMS: &str = r#"{
    "T1": ["bf16", "f16", "f32", "f64", "s32", "s64"],
    "T2": ["bf16", "f16", "f32", "f64", "s32", "s64"],
    "T3": ["bf16", "f16", "f32", "f64", "s32", "s64"]
}"#;
const COMPARED: &str = r#"{
    "T1": ["bf16", "f16", "f32", "f64", "s16", "s32", "s64", "s8", "u16", "u32", "u64", "u8"],
    "T2": ["boolean"]
}"#;

const TWO: &str = r#"[["src_0", "T"], ["src_1", "T"]]"#;
const TWO_COMPARED: &str = r#"[["src_0", "T1"], ["src_1", "T1"]]"#;
const BOOLEAN: &str = r#"{"T": ["boolean"]}"#;
const CLASSED: &str = r#"{"T1": ["bf16", "f16", "f32", "f64"], "T2": ["boolean"]}"#;
const FLOATS: &str = r#"{"T": ["bf16", "f16", "f32"]}"#;
const WITH_F64: &str = r#"{"T": ["bf16", "f16", "f32", "f64"]}"#;
const WITH_F64_INTEGERS: &str = r#"{"T": ["bf16", "f16", "f32", "f64", "s32", "s64"]}"#;
const BROADCAST: &str = r#"{
    "auto_broadcast": {"code": 128, "required": false, "type": "string", "default": "numpy",
                       "allowed": ["none", "numpy"]}
}"#;
const FILL: &str = r#"{
    "shape": {"code": 72, "required": true, "type": "s64[]", "default": null, "allowed": []},
    "value": {"code": 4096, "required": true, "type": "f32", "default": null, "allowed": []}
}"#;

const RANGES: &str = r#"{
    "starts": {"code": 4097, "required": true, "type": "s64[]", "default": null, "allowed": []},
    "ends": {"code": 4098, "required": true, "type": "s64[]", "default": null, "allowed": []},
    "steps": {"code": 4099, "required": false, "type": "s64[]", "default": [], "allowed": []},
    "axes": {"code": 64, "required": false, "type": "s64[]", "default": [], "allowed": []}
}"#;

/// A row of a kind of Sterna's own: kind, code, inputs, type variable of `dst`, types, attributes, shape
/// rule, checks.
type OwnRow = (
    &'static str,
    u32,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const SUMS_ALONG: &str = r#"{
    "axis": {"code": 48, "required": true, "type": "s64", "default": null, "allowed": []},
    "exclusive": {"code": 4100, "required": false, "type": "bool", "default": false, "allowed": []},
    "reverse": {"code": 4101, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;

const GATHERED: &str = r#"{
    "T1": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s64", "s8", "u16", "u32", "u64",
           "u8"],
    "T2": ["s32", "s64"]
}"#;
const STORED: &str = r#"{
    "T1": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s4", "s64", "s8", "u16", "u32",
           "u4", "u64", "u8"],
    "T2": ["s32", "s64"]
}"#;
const PAGED: &str = r#"{
    "T1": ["bf16", "boolean", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2", "s16", "s32", "s4", "s64", "s8", "u16", "u32",
           "u4", "u64", "u8"],
    "T2": ["s32", "s64"],
    "T3": ["s32", "s64"]
}"#;
const LOOKED_UP: &str = r#"{
    "axis": {"code": 48, "required": false, "type": "s64", "default": 0, "allowed": []},
    "batch_dims": {"code": 4102, "required": false, "type": "s64", "default": 0, "allowed": []},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const LOOKED_UP_EACH: &str = r#"{
    "axis": {"code": 48, "required": false, "type": "s64", "default": 0, "allowed": []},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const LOOKED_UP_BY_TUPLES: &str = r#"{
    "batch_dims": {"code": 4102, "required": false, "type": "s64", "default": 0, "allowed": []},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const LOOKED_UP_BACKWARD: &str = r#"{
    "src_shape": {"code": 74, "required": true, "type": "s64[]", "default": null, "allowed": []},
    "axis": {"code": 48, "required": false, "type": "s64", "default": 0, "allowed": []},
    "batch_dims": {"code": 4102, "required": false, "type": "s64", "default": 0, "allowed": []},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const PUT_EACH: &str = r#"{
    "axis": {"code": 48, "required": false, "type": "s64", "default": 0, "allowed": []},
    "reduction": {"code": 4104, "required": false, "type": "string", "default": "none",
                  "allowed": ["add", "max", "min", "mul", "none"]},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const PUT_BY_TUPLES: &str = r#"{
    "reduction": {"code": 4104, "required": false, "type": "string", "default": "none",
                  "allowed": ["add", "max", "min", "mul", "none"]},
    "clamp_indices": {"code": 4103, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;
const SCATTERED: &str = r#"[["src", "T1"], ["indices", "T2"], ["updates", "T1"]]"#;
const FLOATS_BY_INDICES: &str = r#"{"T1": ["bf16", "f16", "f32", "f64"], "T2": ["s32", "s64"]}"#;
const ORDERED: &str = r#"{
    "T1": ["bf16", "f16", "f32", "f64", "s16", "s32", "s64", "s8", "u16", "u32", "u64", "u8"],
    "T2": ["s32", "s64"]
}"#;
const FIRST: &str = r#"{
    "k": {"code": 4105, "required": true, "type": "s64", "default": null, "allowed": []},
    "axis": {"code": 48, "required": false, "type": "s64", "default": -1, "allowed": []},
    "largest": {"code": 4106, "required": false, "type": "bool", "default": true, "allowed": []}
}"#;
const PLACE: &str = r#"{
    "axis": {"code": 48, "required": true, "type": "s64", "default": null, "allowed": []},
    "keep_dims": {"code": 97, "required": false, "type": "bool", "default": false, "allowed": []},
    "select_last_index": {"code": 4107, "required": false, "type": "bool", "default": false, "allowed": []}
}"#;

#[rustfmt::skip]
const OWN: &[OwnRow] = &[
    ("Equal", 0x1000, TWO_COMPARED, "T2", COMPARED, BROADCAST, "elemwise_arithmetic", &[]),
    ("NotEqual", 0x1001, TWO_COMPARED, "T2", COMPARED, BROADCAST, "elemwise_arithmetic", &[]),
    ("Less", 0x1002, TWO_COMPARED, "T2", COMPARED, BROADCAST, "elemwise_arithmetic", &[]),
    ("LessEqual", 0x1003, TWO_COMPARED, "T2", COMPARED, BROADCAST, "elemwise_arithmetic", &[]),
    ("Greater", 0x1004, TWO_COMPARED, "T2", COMPARED, BROADCAST, "elemwise_arithmetic", &[]),
    ("LogicalAnd", 0x1005, TWO, "T", BOOLEAN, BROADCAST, "elemwise_arithmetic", &[]),
    ("LogicalOr", 0x1006, TWO, "T", BOOLEAN, BROADCAST, "elemwise_arithmetic", &[]),
    ("LogicalXor", 0x1007, TWO, "T", BOOLEAN, BROADCAST, "elemwise_arithmetic", &[]),
    ("LogicalNot", 0x1008, r#"[["src", "T"]]"#, "T", BOOLEAN, "{}", "identity", &[]),
    ("IsNaN", 0x1009, r#"[["src", "T1"]]"#, "T2", CLASSED, "{}", "identity", &[]),
    ("IsInf", 0x100a, r#"[["src", "T1"]]"#, "T2", CLASSED, "{}", "identity", &[]),
    ("IsFinite", 0x100b, r#"[["src", "T1"]]"#, "T2", CLASSED, "{}", "identity", &[]),
    ("Identity", 0x100c, r#"[["src", "T"]]"#, "T", MOVED, "{}", "identity", &[]),
    ("Negative", 0x100d, r#"[["src", "T"]]"#, "T", WITH_F64_INTEGERS, "{}", "identity", &[]),
    ("Floor", 0x100e, r#"[["src", "T"]]"#, "T", WITH_F64, "{}", "identity", &[]),
    ("Ceil", 0x100f, r#"[["src", "T"]]"#, "T", WITH_F64, "{}", "identity", &[]),
    ("Fill", 0x1010, "[]", "T", r#"{
        "T": ["bf16", "boolean", "f16", "f32", "f64", "s16", "s32", "s64", "s8", "u16", "u32", "u64", "u8"]
    }"#, FILL, "fill", &["shape_of_tensor"]),
    ("Cast", 0x1011, r#"[["src", "T1"]]"#, "T2", r#"{
        "T1": ["bf16", "boolean", "f16", "f32", "f64", "s16", "s32", "s64", "s8", "u16", "u32", "u64", "u8"],
        "T2": ["bf16", "f16", "f32", "f64", "s16", "s32", "s64", "s8", "u16", "u32", "u64", "u8"]
    }"#, "{}", "identity", &[]),
    ("Modulo", 0x1012, TWO, "T", WITH_F64_INTEGERS, BROADCAST, "elemwise_arithmetic", &[]),
    ("Sin", 0x1013, r#"[["src", "T"]]"#, "T", FLOATS, "{}", "identity", &[]),
    ("Cos", 0x1014, r#"[["src", "T"]]"#, "T", FLOATS, "{}", "identity", &[]),
    ("Slice", 0x1015, r#"[["src", "T"]]"#, "T", MOVED, RANGES, "slice", &["slice_ranges"]),
    ("CumSum", 0x1016, r#"[["src", "T"]]"#, "T", r#"{"T": ["bf16", "f16", "f32", "s32", "s64"]}"#, SUMS_ALONG,
     "along_axis", &[]),
    ("Gather", 0x1017, r#"[["src", "T1"], ["indices", "T2"]]"#, "T1", GATHERED, LOOKED_UP, "gather", &[]),
    ("GatherElements", 0x1018, r#"[["src", "T1"], ["indices", "T2"]]"#, "T1", GATHERED, LOOKED_UP_EACH,
     "gather_elements", &[]),
    ("GatherND", 0x1019, r#"[["src", "T1"], ["indices", "T2"]]"#, "T1", GATHERED, LOOKED_UP_BY_TUPLES,
     "gather_nd", &[]),
    ("GatherBackward", 0x101a, r#"[["diff_dst", "T1"], ["indices", "T2"]]"#, r#"[["diff_src", "T1"]]"#,
     FLOATS_BY_INDICES, LOOKED_UP_BACKWARD, "gather_backward", &["src_shape_of_tensor"]),
    ("ScatterElements", 0x101b, SCATTERED, "T1", GATHERED, PUT_EACH, "scatter_elements", &["reduction_types"]),
    ("ScatterND", 0x101c, SCATTERED, "T1", GATHERED, PUT_BY_TUPLES, "scatter_nd", &["reduction_types"]),
    ("TopK", 0x101d, r#"[["src", "T1"]]"#, r#"[["dst", "T1"], ["indices", "T2"]]"#, ORDERED, FIRST, "top_k", &[]),
    ("ArgMax", 0x101e, r#"[["src", "T1"]]"#, "T2", ORDERED, PLACE, "place_along_axis", &[]),
    ("ArgMin", 0x101f, r#"[["src", "T1"]]"#, "T2", ORDERED, PLACE, "place_along_axis", &[]),
    ("PagedLoad", 0x1020, r#"[["src", "T1"], ["block_table", "T2"], ["lengths", "T3"]]"#, "T1", PAGED, "{}",
     "paged_load", &[]),
    ("CacheStore", 0x1021, r#"[["src", "T1"], ["rows", "T1"], ["slots", "T2"]]"#, "T1", STORED, "{}",
     "cache_store", &[]),
    ("Power", 0x1022, TWO, "T", WITH_F64_INTEGERS, BROADCAST, "elemwise_arithmetic", &[]),
];

/// A row of Sterna's own in the form of [`row_of`].
fn own_row(&(kind, code, inputs, dst, types, attributes, shape_rule, checks): &OwnRow) -> (String, Value) {
    let inputs: Value = serde_json::from_str(inputs).unwrap();
    // A type variable alone is that of `dst`.
    let outputs = serde_json::from_str(dst).unwrap_or_else(|_| json!([["dst", dst]]));
    let count = |ports: &Value| [ports.as_array().unwrap().len()];
    // The last input of one kind can be left out.
    let input_count = if kind == "PagedLoad" { json!([2, 3]) } else { json!(count(&inputs)) };
    let row = json!({
        "code": code,
        "input_count": input_count,
        "inputs": inputs,
        "output_count": count(&outputs),
        "outputs": outputs,
        "types": serde_json::from_str::<Value>(types).unwrap(),
        "attributes": serde_json::from_str::<Value>(attributes).unwrap(),
        "shape_rule": shape_rule,
        "checks": checks,
    });
    (kind.to_owned(), row)
}

const FIELDS: [&str; 9] = [
    "code",
    "inputs",
    "outputs",
    "input_count",
    "output_count",
    "types",
    "attributes",
    "shape_rule",
    "checks",
];

fn op_set() -> Value {
    serde_json::from_str(include_str!("../data/op_set.json")).unwrap()
}

/// The rows of the op set by kind, widened, and Sterna's own, with every list sorted whose order means
/// nothing.
fn expected_rows() -> BTreeMap<String, Value> {
    let mut op_set = op_set();
    let rows = op_set["ops"].as_array_mut().unwrap().iter_mut();
    let mut rows: BTreeMap<String, Value> =
        rows.map(|row| (row["kind"].as_str().unwrap().to_owned(), normalised(row.take()))).collect();
    for &(kind, field, text) in WIDER {
        let wider: Value = serde_json::from_str(text).unwrap();
        let narrow = &mut rows.get_mut(kind).unwrap()[field];
        assert_ne!(*narrow, wider, "{kind}.{field} is listed as wider, but is not");
        *narrow = wider;
    }
    rows.extend(OWN.iter().map(own_row));
    rows
}

/// A row in the form of [`row_of`].
fn normalised(mut row: Value) -> Value {
    for types in row["types"].as_object_mut().unwrap().values_mut() {
        sort(types);
    }
    let attributes = row["attributes"].as_array().unwrap().iter().map(|attribute| {
        let mut allowed = attribute.get("allowed").cloned().unwrap_or(json!([]));
        sort(&mut allowed);
        let value = json!({
            "code": attribute["code"],
            "required": attribute["required"],
            "type": attribute["type"],
            "default": attribute.get("default"),
            "allowed": allowed,
        });
        (attribute["name"].as_str().unwrap().to_owned(), value)
    });
    row["attributes"] = Value::Object(attributes.collect());
    sort(&mut row["checks"]);
    row
}

fn sort(names: &mut Value) {
    names.as_array_mut().unwrap().sort_by(|a, b| a.as_str().cmp(&b.as_str()));
}

/// A schema row as JSON.
fn row_of(schema: &Schema) -> Value {
    let ports = |ports: &[Port]| -> Value {
        ports.iter().map(|port| json!([port.name, port.type_variable])).collect()
    };
    let types = schema.types.iter().map(|&(variable, types)| {
        let mut names: Value = types.iter().map(|data_type| data_type.name()).collect();
        sort(&mut names);
        (variable.to_owned(), names)
    });
    let mut checks: Value = schema.checks.iter().map(|check| snake_case(&format!("{check:?}"))).collect();
    sort(&mut checks);
    json!({
        "code": schema.kind.code(),
        "inputs": ports(schema.inputs),
        "outputs": ports(schema.outputs),
        "input_count": count(schema.input_count),
        "output_count": count(schema.output_count),
        "types": Value::Object(types.collect()),
        "attributes": Value::Object(schema.attributes.iter().map(attribute).collect()),
        "shape_rule": snake_case(&format!("{:?}", schema.shape_rule)),
        "checks": checks,
    })
}

fn count(count: Count) -> Value {
    match count {
        Count::OneOf(counts) => json!(counts),
        Count::Between(least, most) => json!({ "least": least, "most": most }),
    }
}

fn attribute(row: &AttrRow) -> (String, Value) {
    let default = row.default.map(|default| match default {
        AttrDefault::Bool(value) => json!(value),
        AttrDefault::S64(value) => json!(value),
        // Through text, so that the decimal number is compared and not its nearest f32.
        AttrDefault::F32(value) => json!(value.to_string().parse::<f64>().unwrap()),
        AttrDefault::String(value) => json!(value),
        AttrDefault::S64s(values) => json!(values),
    });
    let mut allowed = json!(row.allowed);
    sort(&mut allowed);
    let value = json!({
        "code": row.attr.code(),
        "required": row.required,
        "type": row.value_type.name(),
        "default": default,
        "allowed": allowed,
    });
    (row.attr.name().to_owned(), value)
}

fn snake_case(camel_case: &str) -> String {
    let mut snake = String::new();
    for letter in camel_case.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[test]
fn every_row_is_that_of_the_op_set_or_our_own() {
    let expected = expected_rows();
    let rows: BTreeMap<String, Value> =
        Schema::all().iter().map(|schema| (schema.kind.name().to_owned(), row_of(schema))).collect();
    assert_eq!(rows.len(), 88 + 35);
    assert!(rows.keys().eq(expected.keys()), "{:?}\nexpected\n{:?}", rows.keys(), expected.keys());
    let differing: Vec<String> = expected
        .iter()
        .flat_map(|(kind, expected)| FIELDS.map(|field| (kind, field, &rows[kind][field], &expected[field])))
        .filter(|(_, _, given, expected)| given != expected)
        .map(|(kind, field, given, expected)| format!("{kind}.{field}: {given}\n  expected {expected}"))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn a_row_is_found_by_its_kind() {
    let wrong: Vec<_> = OpKind::ALL.iter().filter(|&&kind| Schema::of(kind).kind != kind).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(Schema::all().len(), OpKind::ALL.len());
}

#[test]
fn only_the_input_of_genindex_is_shape_only() {
    let lending: Vec<_> = Schema::all()
        .iter()
        .flat_map(|schema| schema.inputs.iter().chain(schema.outputs).map(move |port| (schema.kind, port)))
        .filter(|(_, port)| port.shape_only)
        .map(|(kind, port)| (kind, port.name))
        .collect();
    assert_eq!(lending, [(OpKind::GenIndex, "src")]);
}

#[test]
fn kinds_have_the_codes_and_names_of_the_op_set_or_our_own() {
    let op_set = op_set();
    let mut wrong = Vec::new();
    let ops = op_set["ops"].as_array().unwrap().iter();
    let ops = ops.map(|row| (row["kind"].as_str().unwrap(), row["code"].as_u64().unwrap() as u32));
    let kinds: Vec<_> = ops.chain(OWN.iter().map(|row| (row.0, row.1))).collect();
    assert_eq!(OpKind::ALL.len(), kinds.len());
    for (name, code) in kinds {
        let found =
            (name.parse::<OpKind>().ok().map(OpKind::code), OpKind::from_code(code).map(OpKind::name));
        if found != (Some(code), Some(name)) {
            wrong.push((name, code, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!([88, 0xfff, 0x1023].map(OpKind::from_code), [None; 3]);
    assert_eq!(
        "select".parse::<OpKind>().unwrap_err().to_string(),
        "no op kind is called \"select\"; did you mean \"Select\"?"
    );
}

#[test]
fn attributes_have_the_codes_and_names_of_the_op_set_or_our_own() {
    let op_set = op_set();
    let codes = op_set["attribute_codes"].as_object().unwrap();
    let mut wrong = Vec::new();
    for (name, code) in codes {
        let code = code.as_u64().unwrap() as u32;
        let found = (name.parse::<Attr>().ok().map(Attr::code), Attr::from_code(code).map(Attr::name));
        if found != (Some(code), Some(name)) {
            wrong.push((name, code, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let own: Vec<_> = Attr::ALL.iter().filter(|attr| attr.code() >= 0x1000).collect();
    assert_eq!(
        own,
        [
            &Attr::Value,
            &Attr::Starts,
            &Attr::Ends,
            &Attr::Steps,
            &Attr::Exclusive,
            &Attr::Reverse,
            &Attr::BatchDims,
            &Attr::ClampIndices,
            &Attr::Reduction,
            &Attr::K,
            &Attr::Largest,
            &Attr::SelectLastIndex
        ]
    );
    assert_eq!((Attr::from_code(0x1000), "value".parse()), (Some(Attr::Value), Ok(Attr::Value)));
    assert_eq!(Attr::ALL.len(), codes.len() + own.len());
    assert_eq!(Attr::from_code(0), None);
    assert_eq!("broadcast".parse::<Attr>().unwrap_err().to_string(), "no attribute is called \"broadcast\"");
}

#[test]
fn the_types_of_attributes_have_the_names_of_json() {
    let names = [
        (AttrType::Bool, "bool"),
        (AttrType::S64, "s64"),
        (AttrType::F32, "f32"),
        (AttrType::String, "string"),
        (AttrType::S64s, "s64[]"),
        (AttrType::F32s, "f32[]"),
    ];
    assert_eq!(names.map(|(value_type, _)| value_type.name()), names.map(|(_, name)| name));
}
