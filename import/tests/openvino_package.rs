//! Promise: a model that the package `openvino` writes gives what its CPU plugin and its reference evaluator
//! give, but for faults of theirs, each of which is listed here.
//!
//! Runs where `STERNA_TEST_TOOLS=1` and `STERNA_OPENVINO` names a virtual environment of Python with the
//! package, as `.ci/run` installs it. The judge is the reference interpreter of Sterna: what compiled
//! partitions give is held against it in every case.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use common::{eval, oracle, report, written_by};
use serde_json::Value as Json;
use sterna::DataType;
use sterna::reference::Value;
use sterna_import::openvino;

/// Wrong answers of theirs in version 2026.4.1: part of the name of a case, who gives them, and what is
/// wrong.
const FAULTS: &[(&str, &str, &str)] = &[
    ("select i64", "cpu", "cuts s64 to 32 bits"),
    ("select u64", "cpu", "cuts u64 to 32 bits, and spreads the sign"),
    ("of large numbers on i64", "cpu", "computes s64 in 32 bits"),
    ("select f64", "cpu", "carries f64 as f32"),
    ("of fine numbers on f64", "cpu", "compares f64 as f32"),
    ("divide on i", "cpu", "cuts quotients of integers off where m_pythondiv asks to round down"),
    ("pdpd at the end", "cpu", "takes axis -1 of mode pdpd for another dim than the last ones"),
    ("pdpd at the end", "reference", "takes axis -1 of mode pdpd for another dim than the last ones"),
    ("select f16", "reference", "makes signalling NaNs quiet"),
];

/// Cases that they do not run: part of the name of a case, who does not, and why not; on some machines, if
/// that says so.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("pdpd", "cpu", "the plugin fits shapes together without the axis"),
    ("select f8", "cpu", "no kernel for the type"),
    ("select f8", "reference", "no evaluator for the type"),
    ("elu on", "reference", "no evaluator"),
    ("hard_sigmoid on", "reference", "no evaluator"),
    ("is_", "reference", "no evaluator"),
    ("mask nan_to_num", "reference", "no evaluator of IsNaN"),
    ("mask boolean", "reference", "no evaluator of ConvertLike"),
    ("squared_difference on", "reference", "no evaluator for the type"),
    ("ceiling on bf16", "reference", "no evaluator for the type"),
    ("less ", "reference", "no evaluator for the type"),
    ("greater_equal on", "reference", "no evaluator for the type"),
    ("rows: gather_elements", "reference", "no evaluator"),
    ("rows: log_softmax", "reference", "no evaluator"),
    ("rows: mvn", "reference", "no evaluator for the type"),
    ("rows: batch_norm", "reference", "no evaluator"),
    ("rows: group_norm", "reference", "no evaluator"),
    ("rows: group_norm on bf16", "cpu", "on some machines: no kernel for the type"),
    ("rows: soft_sign", "reference", "no evaluator for the type"),
    ("rows: attention", "reference", "no evaluator"),
];

/// How far apart two results of approximated functions may be: a part of the larger one, plus as much again
/// of 1.
fn tolerance(data_type: DataType) -> f64 {
    match data_type {
        DataType::F32 => 2e-6,
        DataType::F16 => 2e-3,
        DataType::Bf16 => 1.6e-2,
        _ => 0.0,
    }
}

#[test]
fn models_of_the_package_give_what_it_gives() {
    let Some(folder) = written_by("openvino", "write_models.py", "models") else { return };
    let cases = fs::read_to_string(folder.join("cases.json")).expect("the script wrote it");
    let cases: Vec<Json> = serde_json::from_str(&cases).expect("the script wrote JSON");
    let data = fs::read(folder.join("data.bin")).expect("the script wrote it");
    let (mut wrong, mut compared) = (Vec::new(), BTreeMap::new());
    let mut met: BTreeSet<(&str, &str)> = BTreeSet::new();
    let listed = |rows: &'static [(&str, &str, &str)], name: &str, who: &str| {
        rows.iter().find(|(part, whose, _)| *whose == who && name.contains(part))
    };
    for case in &cases {
        let name = case["name"].as_str().expect("a case has a name");
        if !case["refused"].is_null() {
            wrong.push(format!("{name}: the package refuses to build it: {}", case["refused"]));
            continue;
        }
        let path = folder.join(case["xml"].as_str().expect("a case has a file"));
        let text = fs::read_to_string(&path).expect("the script wrote it");
        let weights = fs::read(path.with_extension("bin")).unwrap_or_default();
        let imported = match openvino::read(&text, &weights) {
            Ok(imported) => imported,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let inputs: Vec<(&str, Value)> = case["inputs"]
            .as_array()
            .expect("a case has inputs")
            .iter()
            .map(|input| (input["name"].as_str().expect("an input has a name"), value(input, &data)))
            .collect();
        let (ours, judge) = (eval(&imported, &inputs), oracle(&imported, &inputs));
        let of =
            |values: &BTreeMap<_, Value>, index: usize| values[&imported.outputs[index].tensor.id()].clone();
        for index in 0..imported.outputs.len() {
            if let Some(why) = difference(&of(&ours, index), &of(&judge, index)) {
                wrong.push(format!("{name}: compiled partitions differ from the reference: {why}"));
            }
        }
        for who in ["cpu", "reference"] {
            let Some(theirs) = case[who].as_array() else {
                match listed(REFUSALS, name, who) {
                    Some((part, ..)) => {
                        met.insert((part, who));
                    }
                    None => wrong.push(format!("{name}: {who} fails: {}", case[format!("{who}_failed")])),
                }
                continue;
            };
            let fault = (0..imported.outputs.len())
                .find_map(|index| difference(&value(&theirs[index], &data), &of(&judge, index)));
            match (fault, listed(FAULTS, name, who)) {
                (None, _) => *compared.entry(who).or_insert(0) += 1,
                (Some(_), Some((part, ..))) => {
                    met.insert((part, who));
                }
                (Some(fault), None) => wrong.push(format!("{name}: {who}: {fault}")),
            }
        }
    }
    let everywhere = |(_, _, why): &&(&str, &str, &str)| !why.starts_with("on some machines");
    let rows = FAULTS.iter().chain(REFUSALS).filter(everywhere).map(|&(part, who, _)| (part, who));
    let unmet = rows.filter(|row| !met.contains(row));
    wrong.extend(unmet.map(|(part, who)| format!("`{part}` of {who} does not show any more")));
    report(&wrong);
    assert!(
        cases.len() > 800 && compared.values().all(|&count| count > 400),
        "{compared:?} of {}",
        cases.len()
    );
}

/// A tensor that the script wrote.
fn value(place: &Json, data: &[u8]) -> Value {
    let number = |key: &str| place[key].as_u64().expect("a place is numbers") as usize;
    let dims: Vec<i64> = place["dims"].as_array().expect("dims").iter().filter_map(Json::as_i64).collect();
    let data_type = match place["type"].as_str().expect("a place has a type") {
        "f32" => DataType::F32,
        "f16" => DataType::F16,
        "bf16" => DataType::Bf16,
        "f64" => DataType::F64,
        "i8" => DataType::S8,
        "i16" => DataType::S16,
        "i32" => DataType::S32,
        "i64" => DataType::S64,
        "u8" => DataType::U8,
        "u16" => DataType::U16,
        "u32" => DataType::U32,
        "u64" => DataType::U64,
        "boolean" => DataType::Boolean,
        "f8e4m3" => DataType::F8E4m3,
        "f8e5m2" => DataType::F8E5m2,
        other => panic!("{other}"),
    };
    let bytes = &data[number("offset")..number("offset") + number("size")];
    Value::new(data_type, &dims, bytes.to_vec()).unwrap_or_else(|error| panic!("{error} in {place}"))
}

/// In what a result differs from the one that it should be: in bits, but for rounding where the type is a
/// floating-point one.
fn difference(found: &Value, expected: &Value) -> Option<String> {
    if (found.data_type(), found.dims()) != (expected.data_type(), expected.dims()) {
        let of = |value: &Value| format!("{} of {:?}", value.data_type(), value.dims());
        return Some(format!("{}, not {}", of(found), of(expected)));
    }
    if found.bytes() == expected.bytes() {
        return None;
    }
    let size = expected.data_type().size().expect("types here have whole elements");
    let pairs = found.bytes().chunks_exact(size).zip(expected.bytes().chunks_exact(size));
    let (at, (found, expected)) =
        pairs.enumerate().find(|(_, (a, b))| !is_near(a, b, expected.data_type()))?;
    Some(format!("element {at} has the bytes {found:02x?}, not {expected:02x?}"))
}

fn is_near(a: &[u8], b: &[u8], data_type: DataType) -> bool {
    let number = |bytes: &[u8]| -> f64 {
        match data_type {
            DataType::F32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")).into(),
            DataType::F16 => half::f16::from_le_bytes(bytes.try_into().expect("two bytes")).into(),
            DataType::Bf16 => half::bf16::from_le_bytes(bytes.try_into().expect("two bytes")).into(),
            _ => f64::NAN,
        }
    };
    if a == b {
        return true;
    }
    let (x, y, most) = (number(a), number(b), tolerance(data_type));
    // A NaN of other bits is no rounding.
    (x - y).abs() <= most * (1.0 + x.abs().max(y.abs()))
}
