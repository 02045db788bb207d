//! Promise: a lone layer, as the specification of OpenVINO prints it, computes what the specification says;
//! what cannot be said exactly is refused by name.

mod common;
#[path = "common/division.rs"]
mod division;

use common::{Ir, by_name, float, lone, report};
use division::{CUT_QUOTIENT, CUT_REMAINDER, FLOORED_QUOTIENT, FLOORED_REMAINDER, Of, WHOLE};
use sterna::reference::Value;
use sterna::{Bool8, DataType};
use sterna_import::{Error, Fault, Options, openvino};

/// The example of Select-1, letter by letter.
const SPECIFICATION: &str = r#"
    <layer ... type="Select">
        <input>
            <port id="0">     <!-- cond value is: [[false, false], [true, false], [true, true]] -->
                <dim>3</dim>
                <dim>2</dim>
            </port>
            <port id="1">     <!-- then value is: [[-1, 0], [1, 2], [3, 4]] -->
                <dim>3</dim>
                <dim>2</dim>
            </port>
            <port id="2">     <!-- else value is: [[11, 10], [9, 8], [7, 6]] -->
                <dim>3</dim>
                <dim>2</dim>
            </port>
        </input>
        <output>
            <port id="1">     <!-- output value is: [[11, 10], [1, 8], [3, 4]] -->
                <dim>3</dim>
                <dim>2</dim>
            </port>
        </output>
    </layer>
"#;

#[test]
fn the_example_of_the_specification_gives_its_result() {
    let imported = openvino::read(SPECIFICATION, &[]).unwrap();
    let names: Vec<_> = imported.inputs.iter().map(|port| port.names.clone()).collect();
    assert_eq!(names, [["cond", "0"], ["then", "1"], ["else", "2"]]);
    assert_eq!(imported.outputs[0].names, ["dst", "1"]);
    let cond = Value::from_slice(&[3, 2], &[false, false, true, false, true, true]).unwrap();
    let then = float(&[3, 2], &[-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    let else_ = float(&[3, 2], &[11.0, 10.0, 9.0, 8.0, 7.0, 6.0]);
    let result = by_name(&imported, &[("cond", cond), ("1", then), ("else", else_)]);
    assert_eq!(result["dst"], float(&[3, 2], &[11.0, 10.0, 1.0, 8.0, 3.0, 4.0]));
}

#[test]
fn types_of_a_lone_layer_are_written_given_or_guessed() {
    let mut options = Options::default();
    options.types.insert("else".into(), DataType::S64);
    let types = |text: &str, options: &Options| -> Vec<DataType> {
        let imported = openvino::read_with(text, &[], options).unwrap();
        imported.inputs.iter().chain(&imported.outputs).map(|port| port.tensor.data_type()).collect()
    };
    let (b, f, s) = (DataType::Boolean, DataType::F32, DataType::S64);
    assert_eq!(types(SPECIFICATION, &Options::default()), [b, f, f, f]);
    assert_eq!(types(SPECIFICATION, &options), [b, s, s, s]);
    let written = SPECIFICATION.replace("<port id=\"2\">", "<port id=\"2\" precision=\"U16\">");
    assert_eq!(types(&written, &Options::default())[1..], [DataType::U16; 3]);
    let shaped = |name: &str| {
        let mut options = Options::default();
        options.shapes.insert(name.into(), vec![2, 1]);
        openvino::read_with(SPECIFICATION, &[], &options)
    };
    assert!(matches!(shaped("0"), Err(Error::Layer { .. })), "{:?}", shaped("0"));
    assert!(matches!(shaped("x"), Err(Error::Name { .. })), "{:?}", shaped("x"));
}

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// Type, attributes, inputs, result.
type Computed = (&'static str, &'static str, &'static [&'static [f32]], &'static [f32]);

/// Layers with the numbers that go in and come out.
const COMPUTED: &[Computed] = &[
    ("Abs", "", &[&[-1.5, 2.0]], &[1.5, 2.0]),
    ("Add", "", &[&[1.0, 2.0], &[0.5]], &[1.5, 2.5]),
    ("Ceiling", "", &[&[1.2, -1.2]], &[2.0, -1.0]),
    ("Clamp", "min=\"-1\" max=\"1e0\"", &[&[-2.0, 0.5, 2.0]], &[-1.0, 0.5, 1.0]),
    ("Cos", "", &[&[0.0]], &[1.0]),
    ("Divide", "m_pythondiv=\"true\"", &[&[1.0, 3.0], &[2.0]], &[0.5, 1.5]),
    ("Elu", "alpha=\"0.5\"", &[&[2.0, -1e9]], &[2.0, -0.5]),
    ("Exp", "", &[&[0.0]], &[1.0]),
    ("Floor", "", &[&[1.7, -1.2]], &[1.0, -2.0]),
    ("Gelu", "approximation_mode=\"TANH\"", &[&[0.0, 100.0]], &[0.0, 100.0]),
    ("Gelu", "", &[&[0.0, 100.0]], &[0.0, 100.0]),
    ("HSigmoid", "", &[&[-3.0, 0.0, 3.0, -2.9999998]], &[0.0, 0.5, 1.0, 2.3841858e-7 / 6.0]),
    ("HSwish", "", &[&[-3.0, 3.0, 0.0]], &[0.0, 3.0, 0.0]),
    ("Log", "", &[&[1.0]], &[0.0]),
    ("Maximum", "", &[&[1.0, -1.0], &[0.0]], &[1.0, 0.0]),
    ("Minimum", "auto_broadcast=\"none\"", &[&[1.0, -1.0], &[0.0, 0.0]], &[0.0, -1.0]),
    ("Mish", "", &[&[0.0]], &[0.0]),
    ("FloorMod", "", &[&[7.5, -7.5, -4.0], &[2.0]], &[1.5, 0.5, 0.0]),
    ("Mod", "", &[&[7.5, -7.5, -4.0], &[2.0]], &[1.5, -1.5, -0.0]),
    ("Multiply", "", &[&[1.0, -1.0], &[3.0]], &[3.0, -3.0]),
    ("Negative", "", &[&[1.0, -0.0]], &[-1.0, 0.0]),
    ("PReLU", "", &[&[2.0, -2.0], &[0.25]], &[2.0, -0.5]),
    ("ReLU", "", &[&[2.0, -2.0]], &[2.0, 0.0]),
    ("Round", "mode=\"half_to_even\"", &[&[0.5, 1.5, 2.5]], &[0.0, 2.0, 2.0]),
    (
        "Round",
        "mode=\"half_away_from_zero\"",
        &[&[0.5, 2.5, -2.5, 0.49999997, -0.2, 8388609.0, -INF]],
        &[1.0, 3.0, -3.0, 0.0, -0.0, 8388609.0, -INF],
    ),
    ("Sigmoid", "", &[&[0.0]], &[0.5]),
    ("Sin", "", &[&[0.0, -0.0]], &[0.0, -0.0]),
    ("SoftPlus", "", &[&[-200.0, 100.0]], &[0.0, 100.0]),
    ("Sqrt", "", &[&[4.0]], &[2.0]),
    ("SquaredDifference", "", &[&[4.0, 1.0], &[2.0]], &[4.0, 1.0]),
    ("Subtract", "", &[&[4.0, 1.0], &[2.0]], &[2.0, -1.0]),
    ("Swish", "", &[&[0.0, 100.0]], &[0.0, 100.0]),
    ("Swish", "", &[&[0.0, 100.0], &[2.0]], &[0.0, 100.0]),
    ("Tanh", "", &[&[0.0]], &[0.0]),
    ("Tanh", "", &[&[100.0]], &[1.0]),
    ("Equal", "", &[&[1.0, NAN, 2.0], &[1.0, NAN, 3.0]], &[1.0, 0.0, 0.0]),
    ("NotEqual", "", &[&[1.0, NAN], &[1.0, NAN]], &[0.0, 1.0]),
    ("Less", "", &[&[1.0, 2.0], &[2.0]], &[1.0, 0.0]),
    ("LessEqual", "", &[&[1.0, 2.0], &[2.0]], &[1.0, 1.0]),
    ("Greater", "", &[&[1.0, 3.0], &[2.0]], &[0.0, 1.0]),
    ("GreaterEqual", "", &[&[1.0, 2.0], &[2.0]], &[0.0, 1.0]),
    ("IsNaN", "", &[&[1.0, NAN, INF]], &[0.0, 1.0, 0.0]),
    ("IsFinite", "", &[&[1.0, NAN, INF]], &[1.0, 0.0, 0.0]),
    ("IsInf", "", &[&[1.0, NAN, INF, -INF]], &[0.0, 0.0, 1.0, 1.0]),
    ("IsInf", "detect_negative=\"false\"", &[&[1.0, NAN, INF, -INF]], &[0.0, 0.0, 1.0, 0.0]),
    ("IsInf", "detect_positive=\"false\"", &[&[1.0, NAN, INF, -INF]], &[0.0, 0.0, 0.0, 1.0]),
    ("IsInf", "detect_positive=\"false\" detect_negative=\"false\"", &[&[NAN, INF]], &[0.0, 0.0]),
    ("Convert", "destination_type=\"boolean\"", &[&[0.0, -0.0, NAN, 0.5]], &[0.0, 0.0, 1.0, 1.0]),
    ("Convert", "destination_type=\"i32\"", &[&[1.9, -1.9]], &[1.0, -1.0]),
    ("Convert", "destination_type=\"f16\"", &[&[1.5]], &[1.5]),
    ("Convert", "destination_type=\"f32\"", &[&[1.5]], &[1.5]),
    ("ConvertLike", "", &[&[1.5], &[9.0]], &[1.5]),
];

#[test]
fn layers_compute_what_the_specification_says() {
    let mut wrong = Vec::new();
    for (kind, data, inputs, expected) in COMPUTED {
        let shapes: Vec<(&str, Vec<i64>)> = inputs.iter().map(|x| ("FP32", vec![x.len() as i64])).collect();
        let imported = match openvino::read(&lone(kind, data, &shapes, None), &[]) {
            Ok(imported) => imported,
            Err(error) => {
                wrong.push(format!("{kind} {data}: {error}"));
                continue;
            }
        };
        let names: Vec<String> = (0..inputs.len()).map(|i| i.to_string()).collect();
        let given: Vec<(&str, Value)> =
            names.iter().zip(*inputs).map(|(name, x)| (&**name, float(&[x.len() as i64], x))).collect();
        let result = &by_name(&imported, &given)["dst"];
        let found = common::as_floats(result);
        if found != *expected {
            wrong.push(format!("{kind} {data}: {inputs:?} gives {found:?}, not {expected:?}"));
        }
    }
    report(&wrong);
}

#[test]
fn truth_values_and_integers_have_their_own_ways() {
    let truth = |x: &[bool]| Value::from_slice(&[x.len() as i64], x).unwrap();
    let rows = [
        ("LogicalAnd", [false, false, false, true]),
        ("LogicalOr", [false, true, true, true]),
        ("LogicalXor", [false, true, true, false]),
        ("BitwiseAnd", [false, false, false, true]),
        ("BitwiseOr", [false, true, true, true]),
        ("BitwiseXor", [false, true, true, false]),
        ("Equal", [true, false, false, true]),
        ("NotEqual", [false, true, true, false]),
    ];
    let (a, b) = (truth(&[false, false, true, true]), truth(&[false, true, false, true]));
    let mut wrong = Vec::new();
    for (kind, expected) in rows {
        let text = lone(kind, "", &[("BOOL", vec![4]), ("BOOL", vec![4])], Some("BOOL"));
        let result =
            &by_name(&openvino::read(&text, &[]).unwrap(), &[("a", a.clone()), ("b", b.clone())])["dst"];
        if result.elements::<Bool8>().unwrap() != expected.map(Bool8::from) {
            wrong.push(format!("{kind}: {result:?}"));
        }
    }
    for kind in ["LogicalNot", "BitwiseNot"] {
        let text = lone(kind, "", &[("BOOL", vec![4])], Some("BOOL"));
        let result = &by_name(&openvino::read(&text, &[]).unwrap(), &[("data", b.clone())])["dst"];
        if result.elements::<Bool8>().unwrap() != [true, false, true, false].map(Bool8::from) {
            wrong.push(format!("{kind}: {result:?}"));
        }
    }
    report(&wrong);

    let integers = |x: &[i64]| Value::from_slice(&[x.len() as i64], x).unwrap();
    let rows: &[(&str, &str, &[i64], &[i64])] = &[
        ("Abs", "", &[-5, 5], &[5, 5]),
        ("ReLU", "", &[-5, 5], &[0, 5]),
        ("Negative", "", &[i64::MIN, 5], &[i64::MIN, -5]),
        ("Clamp", "min=\"-1.5\" max=\"2.5\"", &[-9, -1, 2, 9], &[-1, -1, 2, 2]),
        ("Clamp", "min=\"-1e30\" max=\"1e30\"", &[i64::MIN, i64::MAX], &[i64::MIN, i64::MAX]),
        ("Floor", "", &[7], &[7]),
        ("Round", "", &[i64::MAX], &[i64::MAX]),
        ("BitwiseNot", "", &[0, 5, i64::MIN], &[-1, -6, i64::MAX]),
    ];
    for (kind, data, given, expected) in rows {
        let text = lone(kind, data, &[("I64", vec![given.len() as i64])], Some("I64"));
        let result = &by_name(&openvino::read(&text, &[]).unwrap(), &[("data", integers(given))])["dst"];
        assert_eq!(result, &integers(expected), "{kind}");
    }
    for (kind, expected) in [("Divide", [-4, -4, 3]), ("FloorMod", [1, -1, 1])] {
        let text = lone(kind, "", &[("I64", vec![3]), ("I64", vec![3])], Some("I64"));
        let given = [("a", integers(&[-7, 7, 7])), ("b", integers(&[2, -2, 2]))];
        let result = &by_name(&openvino::read(&text, &[]).unwrap(), &given)["dst"];
        assert_eq!(result, &integers(&expected), "{kind}");
    }
}

/// The quotient of the least number and −1 wraps around.
#[test]
fn whole_numbers_of_every_width_are_divided_and_by_zero_are_zero() {
    let rows: [(&str, &str, Of); 5] = [
        ("Divide", "", FLOORED_QUOTIENT),
        ("Divide", "m_pythondiv=\"true\"", FLOORED_QUOTIENT),
        ("Divide", "m_pythondiv=\"false\"", CUT_QUOTIENT),
        ("FloorMod", "", FLOORED_REMAINDER),
        ("Mod", "", CUT_REMAINDER),
    ];
    let mut wrong = Vec::new();
    for of_type in &WHOLE {
        let pairs = of_type.pairs();
        let dims = vec![pairs.len() as i64];
        for (kind, data, expected) in rows {
            let ports = [(of_type.openvino, dims.clone()), (of_type.openvino, dims.clone())];
            let imported = openvino::read(&lone(kind, data, &ports, Some(of_type.openvino)), &[]).unwrap();
            let a = of_type.value(pairs.iter().map(|pair| pair.0));
            let b = of_type.value(pairs.iter().map(|pair| pair.1));
            let result = &by_name(&imported, &[("a", a), ("b", b)])["dst"];
            wrong.extend(of_type.wrong(&format!("{kind} {data}"), result, expected));
        }
    }
    report(&wrong);
}

/// Each element has an exponent of its own.
#[test]
fn powers_have_exponents_of_elements() {
    let read = |precision: &str, dims: Vec<i64>, data: &str, exponents: Value| {
        let inputs = [(precision, dims), (precision, exponents.dims().to_vec())];
        let mut options = Options::default();
        options.values.insert("b".into(), exponents);
        openvino::read_with(&lone("Power", data, &inputs, Some(precision)), &[], &options)
    };
    let mut wrong = Vec::new();
    let exponents = [0.0f32, 1.0, 2.0, -1.0, 0.5, 3.0];
    let (base, exponent) = (float(&[2, 1], &[4.0, 9.0]), float(&[6], &exponents));
    let imported = read("FP32", vec![2, 1], "", exponent.clone()).unwrap();
    let found = &by_name(&imported, &[("a", base)])["dst"];
    let expected = [1.0, 4.0, 16.0, 0.25, 2.0, 64.0, 1.0, 9.0, 81.0, 1.0 / 9.0, 3.0, 729.0];
    if (found.dims(), common::as_floats(found)) != (&[2, 6], expected.to_vec()) {
        wrong.push(format!("floats: {found:?}"));
    }
    let whole = Value::from_slice(&[3], &[0i32, 2, 5]).unwrap();
    let imported = read("I32", vec![3], "auto_broadcast=\"none\"", whole).unwrap();
    let found = &by_name(&imported, &[("a", Value::from_slice(&[3], &[7i32, -7, -3]).unwrap())])["dst"];
    if found.elements::<i32>().unwrap() != [1, 49, -243] {
        wrong.push(format!("integers: {found:?}"));
    }
    let expected = "the dims of the other input";
    match read("FP32", vec![2, 6], "auto_broadcast=\"none\"", exponent) {
        Ok(_) => wrong.push(format!("read, although it needs {expected}")),
        Err(error) if error.to_string().contains(expected) => {}
        Err(error) => wrong.push(error.to_string()),
    }
    report(&wrong);
}

#[test]
fn numbers_become_f8_within_its_bounds() {
    let numbers = float(&[5], &[1.0, -1e9, 1e9, 0.0, 500.0]);
    for (to, expected) in [("f8e4m3", [0x38, 0xfe, 0x7e, 0, 0x7e]), ("f8e5m2", [0x3c, 0xfb, 0x7b, 0, 0x60])] {
        let text = lone("Convert", &format!("destination_type=\"{to}\""), &[("FP32", vec![5])], None);
        let narrow =
            by_name(&openvino::read(&text, &[]).unwrap(), &[("data", numbers.clone())])["dst"].clone();
        assert_eq!(narrow.bytes(), expected, "{to}");
        let text =
            lone("Convert", "destination_type=\"f16\"", &[(&*to.to_uppercase(), vec![5])], Some("FP16"));
        let wide = &by_name(&openvino::read(&text, &[]).unwrap(), &[("data", narrow)])["dst"];
        let most = if to == "f8e4m3" { [448.0, 448.0] } else { [57344.0, 512.0] };
        assert_eq!(common::as_floats(wide), [1.0, -most[0], most[0], 0.0, most[1]], "{to}");
    }
}

/// The text of the specification broadcasts the condition one way. Files in which it enlarges the result say
/// so by the dims of the result.
#[test]
fn conditions_enlarge_what_the_file_says_they_enlarge() {
    let text = |result: &str| {
        let dims = |dims: &[i64]| dims.iter().map(|dim| format!("<dim>{dim}</dim>")).collect::<String>();
        format!(
            "<layer type=\"Select\"><input><port id=\"0\">{}</port><port id=\"1\"/>\
             <port id=\"2\">{}</port></input>\
             <output><port id=\"3\">{result}</port></output></layer>",
            dims(&[2, 1]),
            dims(&[3])
        )
    };
    let imported = openvino::read(&text("<dim>2</dim><dim>3</dim>"), &[]).unwrap();
    let cond = Value::new(DataType::Boolean, &[2, 1], vec![1, 0]).unwrap();
    let given = [("cond", cond), ("then", float(&[], &[9.0])), ("else", float(&[3], &[1.0, 2.0, 3.0]))];
    let result = &by_name(&imported, &given)["dst"];
    assert_eq!(result, &float(&[2, 3], &[9.0, 9.0, 9.0, 1.0, 2.0, 3.0]));
    let error = openvino::read(&text("<dim>3</dim>"), &[]).unwrap_err().to_string();
    assert!(error.contains("has a larger rank than {3}"), "{error}");
}

#[test]
fn select_takes_every_type_and_mode() {
    let mut wrong = Vec::new();
    for (precision, size) in common::PRECISIONS {
        let branch = |first: u8| -> Vec<u8> { (0..6 * size).map(|i| first.wrapping_add(i as u8)).collect() };
        let (then, else_) = (branch(0x80), branch(0x11));
        for (mode, cond, expected) in [
            ("auto_broadcast=\"none\"", vec![2i64, 3], [1u8, 0, 1, 0, 1, 1]),
            ("auto_broadcast=\"numpy\"", vec![3], [1, 0, 1, 1, 0, 1]),
            ("auto_broadcast=\"pdpd\" axis=\"0\"", vec![2], [1, 1, 1, 0, 0, 0]),
            (
                "auto_broadcast=\"pdpd\" auto_broadcast.auto_broadcast_axis=\"-1\"",
                vec![3],
                [1, 0, 1, 1, 0, 1],
            ),
            ("auto_broadcast=\"PDPD\"", vec![3, 1], [9; 6]),
        ] {
            let shapes = [("BOOL", cond.clone()), (*precision, vec![2, 3]), (*precision, vec![2, 3])];
            let imported = match openvino::read(&lone("Select", mode, &shapes, Some(precision)), &[]) {
                Ok(imported) => imported,
                Err(_) if expected == [9; 6] => continue,
                Err(error) => {
                    wrong.push(format!("{precision} {mode}: {error}"));
                    continue;
                }
            };
            let data_type = imported.inputs[1].tensor.data_type();
            let of = |bytes: &[u8]| Value::new(data_type, &[2, 3], bytes.to_vec()).unwrap();
            let picks: Vec<u8> = [1, 0, 1, 0, 1, 1][..cond.iter().product::<i64>() as usize].to_vec();
            let cond = Value::new(DataType::Boolean, &cond, picks).unwrap();
            let result =
                &by_name(&imported, &[("cond", cond), ("then", of(&then)), ("else", of(&else_))])["dst"];
            let chosen: Vec<u8> =
                (0..6 * size).map(|i| if expected[i / size] == 1 { then[i] } else { else_[i] }).collect();
            if result.bytes() != chosen {
                wrong.push(format!("{precision} {mode}: {result:?}"));
            }
        }
    }
    report(&wrong);
}

/// Six units in the last place, near the edges as well.
#[test]
fn inverse_functions_are_near_at_the_edges() {
    type Of = fn(f64) -> f64;
    let rows: [(&str, Of); 6] = [
        ("Acos", f64::acos),
        ("Acosh", f64::acosh),
        ("Asin", f64::asin),
        ("Asinh", f64::asinh),
        ("Atan", f64::atan),
        ("Atanh", f64::atanh),
    ];
    let mut numbers =
        vec![0.0f32, 1.0, 0.5, 0.41421357, 0.41421354, 1.5, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY];
    // Towards 0, 1 and infinity, from both sides of 1.
    for power in 1..24 {
        let small = 0.5f32.powi(power);
        numbers.extend([small, small * 1.3, 1.0 - small, 1.0 + small, 1.7 / small, 3e37 * small]);
    }
    let numbers: Vec<f32> = numbers.iter().flat_map(|&x| [x, -x]).chain([f32::NAN]).collect();
    let mut wrong = Vec::new();
    for (kind, expected) in rows {
        let text = lone(kind, "", &[("FP32", vec![numbers.len() as i64])], Some("FP32"));
        let given = [("data", float(&[numbers.len() as i64], &numbers))];
        let found = common::as_floats(&by_name(&openvino::read(&text, &[]).unwrap(), &given)["dst"]);
        for (&x, found) in numbers.iter().zip(found) {
            let expected = expected(x.into()) as f32;
            let unit = f64::from(expected.abs().next_up() - expected.abs());
            let is_near = (f64::from(found) - f64::from(expected)).abs() <= 6.0 * unit;
            let is_same = found == expected && found.is_sign_negative() == expected.is_sign_negative();
            if !(is_same || found.is_nan() && expected.is_nan() || expected != 0.0 && is_near) {
                wrong.push(format!("{kind} of {x:e}: {found:e}, not {expected:e}"));
            }
        }
    }
    report(&wrong);
}

/// Type, attributes, types and shapes of the inputs, part of the message.
type Refused = (&'static str, &'static str, &'static [(&'static str, &'static [i64])], &'static str);

/// Layers that are refused, with a part of the message.
const REFUSED: &[Refused] = &[
    ("NonZero", "", &[("FP32", &[2])], "needed: ops of Sterna that compute the same"),
    ("Round", "mode=\"up\"", &[("FP32", &[2])], "needed: half_to_even, half_away_from_zero"),
    (
        "SquaredDifference",
        "",
        &[("FP64", &[2]), ("FP64", &[2])],
        "input port 0 (`a`) is f64; needed: f32, bf16",
    ),
    ("Add", "", &[("FP32", &[2]), ("FP16", &[2])], "input port 1 (`b`) is f16; needed: f32, the type of"),
    ("Add", "speed=\"1\"", &[("FP32", &[2]), ("FP32", &[2])], "attribute `speed` is not known here"),
    ("Add", "", &[("FP32", &[2])], "1 input ports; needed: 2"),
    ("Add", "", &[("FP32", &[2]), ("FP32", &[3])], "{3} does not broadcast onto {2}"),
    (
        "Add",
        "auto_broadcast=\"pdpd\" axis=\"0\"",
        &[("FP32", &[2, 3]), ("FP32", &[2])],
        "port 1 (`b`) is no constant",
    ),
    (
        "Add",
        "auto_broadcast=\"pdpd\"",
        &[("FP32", &[2]), ("FP32", &[2, 3])],
        "a place within the dims of input 0",
    ),
    (
        "Add",
        "auto_broadcast=\"pdpd\"",
        &[("FP32", &[2, 1]), ("FP32", &[3])],
        "dims that are those of input 0",
    ),
    ("Power", "", &[("FP32", &[2]), ("FP16", &[])], "is f16; needed: f32"),
    ("Power", "", &[("BOOL", &[2]), ("BOOL", &[2])], "is boolean; needed: a type of numbers"),
    ("Equal", "", &[("F8E4M3", &[2]), ("F8E4M3", &[2])], "is f8_e4m3; needed: f32"),
    ("Less", "", &[("BOOL", &[2]), ("BOOL", &[2])], "is boolean; needed: a numeric type"),
    ("LogicalAnd", "", &[("FP32", &[2]), ("FP32", &[2])], "input port 0 (`a`) is f32; needed: boolean"),
    ("Divide", "m_pythondiv=\"down\"", &[("I32", &[2]), ("I32", &[2])], "`m_pythondiv`; needed: true"),
    ("BitwiseAnd", "", &[("I32", &[2]), ("I32", &[2])], "input port 0 (`a`) is s32; needed: boolean"),
    ("BitwiseNot", "", &[("FP32", &[2])], "input port 0 (`data`) is f32; needed: boolean, integers"),
    ("IsNaN", "", &[("I32", &[2])], "input port 0 (`data`) is s32; needed: f32"),
    ("IsInf", "", &[("I32", &[2])], "input port 0 (`data`) is s32; needed: f32"),
    ("Convert", "", &[("FP32", &[2])], "attribute `destination_type` is missing"),
    ("Convert", "destination_type=\"u1\"", &[("FP32", &[2])], "elements of whole bytes; it is u1"),
    ("Convert", "destination_type=\"f8e5m2\"", &[("I32", &[2])], "an op that converts to f8_e5m2"),
    ("Clamp", "min=\"x\" max=\"1\"", &[("FP32", &[2])], "attribute `min`; needed: a number"),
    (
        "Clamp",
        "min=\"nan\" max=\"1\"",
        &[("FP32", &[2])],
        "attribute `min`; needed: a number that is not NaN",
    ),
    ("Elu", "", &[("FP32", &[2])], "attribute `alpha` is missing"),
    ("Swish", "", &[("FP32", &[2]), ("FP32", &[2])], "input port 1 (`beta`) is {2}; needed: one number"),
    (
        "ShapeOf",
        "",
        &[("FP32", &[2, common::UNKNOWN_DIM])],
        "the shape of input port 0 (`data`) is not known",
    ),
    ("Broadcast", "", &[("FP32", &[2]), ("I64", &[1])], "port 1 (`target_shape`) is no constant"),
    ("Unsqueeze", "", &[("FP32", &[2]), ("I64", &[1])], "port 1 (`axes`) is no constant"),
    (
        "Select",
        "auto_broadcast=\"no\"",
        &[("BOOL", &[]), ("FP32", &[]), ("FP32", &[])],
        "needed: none, numpy, pdpd",
    ),
    (
        "Select",
        "auto_broadcast=\"pdpd\" axis=\"-2\"",
        &[("BOOL", &[]), ("FP32", &[]), ("FP32", &[])],
        "attribute `axis`",
    ),
    (
        "Select",
        "",
        &[("FP32", &[]), ("FP32", &[]), ("FP32", &[])],
        "input port 0 (`cond`) is f32; needed: boolean",
    ),
    ("Select", "", &[("BOOL", &[]), ("FP32", &[]), ("FP16", &[])], "port 2 (`else`) is f16; needed: f32"),
    (
        "Select",
        "",
        &[("BOOL", &[3, 5]), ("FP32", &[2, 3, 4, 5]), ("FP32", &[])],
        "{3,5} does not broadcast onto",
    ),
    ("Select", "", &[("BOOL", &[]), ("STRING", &[]), ("STRING", &[])], "needed"),
];

#[test]
fn what_has_no_exact_form_is_refused_by_name() {
    let mut wrong = Vec::new();
    for (kind, data, inputs, expected) in REFUSED {
        let inputs: Vec<_> = inputs.iter().map(|&(data_type, dims)| (data_type, dims.to_vec())).collect();
        match openvino::read(&lone(kind, data, &inputs, None), &[]) {
            Ok(_) => wrong.push(format!("{kind} {data} is read")),
            Err(error) if error.to_string().contains(expected) => {}
            Err(error) => wrong.push(format!("{kind} {data}: {error}")),
        }
    }
    report(&wrong);
}

#[test]
fn what_a_file_says_of_a_result_is_held_against_what_follows() {
    let text = |precision: &str, dims: &str| {
        format!(
            "<layer type=\"Exp\"><input><port id=\"0\"><dim>2</dim></port></input>\
             <output><port id=\"1\"{precision}>{dims}</port></output></layer>"
        )
    };
    assert!(openvino::read(&text("", "<dim>2</dim>"), &[]).is_ok());
    for text in [text(" precision=\"I32\"", "<dim>2</dim>"), text("", "<dim>3</dim>"), text("", "")] {
        let Err(Error::Layer { fault, .. }) = openvino::read(&text, &[]) else { panic!("{text}") };
        assert!(matches!(*fault, Fault::Declared { .. }), "{fault}");
    }
}

#[test]
fn convolutions_of_patches() {
    let of = |attributes: &str, dims: &str| {
        let mut model = Ir::default();
        let x = model.parameter("x", "f32", dims);
        let w: Vec<f32> = (0..16).map(|i| (i % 5) as f32).collect();
        let w = model.floats("2,2,2,2", &w);
        let y = model.op("Convolution", attributes, &[x, w]);
        model.result("y", y);
        openvino::read(&model.text(), &model.weights)
    };
    let side_by_side = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\"";
    let x: Vec<f32> = (0..16).map(|i| i as f32 - 3.0).collect();
    let mut wrong = Vec::new();
    for (auto_pad, dims) in [("explicit", "1,2,2,4"), ("valid", "?,2,2,4"), ("same_upper", "1,2,2,4")] {
        match of(&format!("{side_by_side} auto_pad=\"{auto_pad}\""), dims) {
            Ok(imported) => {
                let results = by_name(&imported, &[("x", float(&[1, 2, 2, 4], &x))]);
                let expected = [55.0, 81.0, 49.0, 83.0];
                let y = results.values().next().unwrap().elements::<f32>().unwrap();
                if y != expected {
                    wrong.push(format!("{auto_pad}: {y:?}"));
                }
            }
            Err(error) => wrong.push(format!("{auto_pad}: {error}")),
        }
    }
    let refused = [
        (side_by_side.replace("2,2", "0,1"), "attribute `strides`"),
        (side_by_side.replace("end=\"0,0", "end=\"0"), "attribute `pads_begin`"),
        (side_by_side.replace("2,2", "2,a"), "attribute `strides`; needed: whole numbers"),
    ];
    for (attributes, said) in refused {
        match of(&attributes, "1,2,2,4") {
            Err(error) if error.to_string().contains(said) => {}
            other => wrong.push(format!("{said}: {:?}", other.map_err(|error| error.to_string()))),
        }
    }
    report(&wrong);
}

/// A layer on data, with constants of floats and of integers behind it.
fn of_windows(
    kind: &str,
    attributes: &str,
    dims: &str,
    filters: Option<(&str, &[f32])>,
    more: &[&[i64]],
) -> Result<sterna_import::Imported, Error> {
    let mut model = Ir::default();
    let mut inputs = vec![model.parameter("x", "f32", dims)];
    inputs.extend(filters.map(|(shape, numbers)| model.floats(shape, numbers)));
    inputs.extend(more.iter().map(|numbers| model.integers(numbers)));
    // MaxPool has its places as second output.
    let outputs =
        if kind == "MaxPool" { "<dim>-1</dim></port><port id=\"10\"><dim>-1</dim>" } else { "<dim>-1</dim>" };
    let y = model.layer("", kind, attributes, &inputs, outputs);
    model.result("y", y);
    openvino::read(&model.text(), &model.weights)
}

/// Kind, attributes, the dims of the data, filters, further constants, and the result.
type OfWindows = (
    &'static str,
    String,
    &'static [i64],
    Option<(&'static str, &'static [f32])>,
    &'static [&'static [i64]],
    &'static [i64],
    &'static [f32],
);

fn layers_of_windows() -> Vec<OfWindows> {
    let steps = "strides=\"1\" dilations=\"1\" pads_begin=\"0\" pads_end=\"0\"";
    let two = steps.replace("strides=\"1\"", "strides=\"2\"");
    let upper = format!("{two} auto_pad=\"same_upper\"");
    let pool = "strides=\"2\" kernel=\"2\" pads_begin=\"1\" pads_end=\"0\"";
    let resize = "mode=\"linear_onnx\" shape_calculation_mode=\"sizes\"";
    vec![
        (
            "Convolution",
            steps.into(),
            &[1, 1, 4],
            Some(("1,1,2", &[1.0, 10.0])),
            &[],
            &[1, 1, 3],
            &[21.0, 42.0, 84.0],
        ),
        (
            "GroupConvolution",
            steps.into(),
            &[1, 2, 2],
            Some(("2,1,1,2", &[1.0, 10.0, 0.0, 1.0])),
            &[],
            &[1, 2, 1],
            &[21.0, 8.0],
        ),
        (
            "ConvolutionBackpropData",
            two.clone(),
            &[1, 1, 4],
            Some(("1,1,2", &[1.0, 10.0])),
            &[],
            &[1, 1, 8],
            &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 8.0, 80.0],
        ),
        (
            "ConvolutionBackpropData",
            upper,
            &[1, 1, 4],
            Some(("1,1,2", &[1.0, 10.0])),
            &[&[7]],
            &[1, 1, 7],
            &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 8.0],
        ),
        (
            "GroupConvolutionBackpropData",
            format!("{steps} output_padding=\"1\""),
            &[1, 2, 2],
            Some(("2,1,1,1", &[1.0, 10.0])),
            &[],
            &[1, 2, 3],
            &[1.0, 2.0, 0.0, 40.0, 80.0, 0.0],
        ),
        ("MaxPool", pool.into(), &[1, 1, 4], None, &[], &[1, 1, 2], &[1.0, 4.0]),
        (
            "MaxPool",
            format!("{pool} rounding_type=\"ceil\""),
            &[1, 1, 4],
            None,
            &[],
            &[1, 1, 3],
            &[1.0, 4.0, 8.0],
        ),
        ("AvgPool", format!("{pool} exclude-pad=\"true\""), &[1, 1, 4], None, &[], &[1, 1, 2], &[1.0, 3.0]),
        ("AvgPool", format!("{pool} exclude-pad=\"false\""), &[1, 1, 4], None, &[], &[1, 1, 2], &[0.5, 3.0]),
        (
            "Interpolate",
            format!("{resize} coordinate_transformation_mode=\"half_pixel\""),
            &[1, 1, 4],
            None,
            &[&[2], &[1], &[2]],
            &[1, 1, 2],
            &[1.5, 6.0],
        ),
    ]
}

/// Layers whose second input are numbers of windows, places or axes.
fn layers_by_numbers() -> Vec<OfWindows> {
    vec![
        ("AdaptiveAvgPool", String::new(), &[1, 1, 4], None, &[&[2]], &[1, 1, 2], &[1.5, 6.0]),
        ("AdaptiveAvgPool", String::new(), &[1, 1, 4], None, &[&[3]], &[1, 1, 3], &[1.5, 3.0, 6.0]),
        ("AdaptiveAvgPool", String::new(), &[1, 1, 4], None, &[&[5]], &[1, 1, 5], &[1.0, 1.5, 3.0, 6.0, 8.0]),
        ("AdaptiveMaxPool", String::new(), &[1, 1, 4], None, &[&[1]], &[1, 1, 1], &[8.0]),
        ("AdaptiveMaxPool", String::new(), &[1, 1, 4], None, &[&[3]], &[1, 1, 3], &[2.0, 4.0, 8.0]),
        ("Roll", String::new(), &[1, 1, 4], None, &[&[1], &[-1]], &[1, 1, 4], &[8.0, 1.0, 2.0, 4.0]),
        ("Roll", String::new(), &[2, 2], None, &[&[1, -3], &[0, 1]], &[2, 2], &[8.0, 4.0, 2.0, 1.0]),
        (
            "ReverseSequence",
            "batch_axis=\"0\" seq_axis=\"1\"".into(),
            &[2, 2],
            None,
            &[&[1, 2]],
            &[2, 2],
            &[1.0, 2.0, 8.0, 4.0],
        ),
        (
            "NormalizeL2",
            "eps=\"0\" eps_mode=\"max\"".into(),
            &[2, 2, 1],
            None,
            &[&[2]],
            &[2, 2, 1],
            &[1.0, 1.0, 1.0, 1.0],
        ),
        (
            "NormalizeL2",
            "eps=\"36\" eps_mode=\"add\"".into(),
            &[1, 4],
            None,
            &[&[-1, 0]],
            &[1, 4],
            &[1.0 / 11.0, 2.0 / 11.0, 4.0 / 11.0, 8.0 / 11.0],
        ),
        (
            "NormalizeL2",
            "eps=\"256\" eps_mode=\"max\"".into(),
            &[4],
            None,
            &[&[0]],
            &[4],
            &[0.0625, 0.125, 0.25, 0.5],
        ),
        (
            "LRN",
            "alpha=\"3\" beta=\"1\" bias=\"-1\" size=\"3\"".into(),
            &[1, 4, 1],
            None,
            &[&[1]],
            &[1, 4, 1],
            &[0.25, 0.1, 4.0 / 83.0, 8.0 / 79.0],
        ),
    ]
}

#[test]
fn long_windows_share_a_dim_as_short_ones_do() {
    let x = float(&[1, 1, 100], &(0..100u8).map(f32::from).collect::<Vec<f32>>());
    for (kind, expected) in [("AdaptiveAvgPool", [16.5, 49.5, 82.5]), ("AdaptiveMaxPool", [33.0, 66.0, 99.0])]
    {
        let imported = of_windows(kind, "", "1,1,100", None, &[&[3]]).unwrap();
        let found = by_name(&imported, &[("x", x.clone())]);
        let found = common::as_floats(found.values().next().unwrap());
        let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4);
        assert!(found.len() == 3 && is_near, "{kind}: {found:?}");
    }
    let error = of_windows("AdaptiveAvgPool", "", "1,1,9", None, &[&[1 << 40]]).unwrap_err().to_string();
    assert!(error.contains("which windows share"), "{error}");
}

#[test]
fn buckets_below_an_element_are_counted() {
    let x = float(&[2, 2], &[1.0, 2.0, 4.0, 8.0]);
    for (bound, expected) in [("true", [0, 1, 1, 2]), ("false", [1, 1, 2, 2])] {
        let attributes = format!("output_type=\"i32\" with_right_bound=\"{bound}\"");
        let imported = of_windows("Bucketize", &attributes, "2,2", None, &[&[1, 4, 9]]).unwrap();
        let results = by_name(&imported, &[("x", x.clone())]);
        assert_eq!(
            *results.values().next().unwrap(),
            Value::from_slice(&[2, 2], &expected).unwrap(),
            "{bound}"
        );
    }
}

#[test]
fn windows_and_resizing_are_as_specified() {
    let ends = [1.0, 2.0, 4.0, 8.0];
    let mut wrong = Vec::new();
    for (kind, attributes, dims, filters, more, shape, expected) in
        layers_of_windows().into_iter().chain(layers_by_numbers())
    {
        let text: Vec<String> = dims.iter().map(i64::to_string).collect();
        match of_windows(kind, &attributes, &text.join(","), filters, more) {
            Ok(imported) => {
                let results = by_name(&imported, &[("x", float(dims, &ends))]);
                let found = results.values().next().unwrap();
                if *found != float(shape, expected) {
                    wrong.push(format!("{kind} {attributes}: {found:?}, not {expected:?}"));
                }
            }
            Err(error) => wrong.push(format!("{kind} {attributes}: {error}")),
        }
    }
    report(&wrong);
}
