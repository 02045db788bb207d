//! Promise: of the node cases of the package `onnx`, those that are read give what they should, and
//! `docs/import.md` says which are read and why the others are refused.
//!
//! Runs where `STERNA_TEST_TOOLS=1` and `STERNA_ONNX` names a virtual environment of Python with the package,
//! as `.ci/run` installs it. A case is read without values of its inputs first; if one must be a constant,
//! with those of more and more of them.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{env, fs};

use common::{eval, report, written_by};
use serde_json::Value as Json;
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, LogicalTensor, Op, OpKind, Policy};
use sterna_import::{Error, Fault, Imported, onnx};

/// Cases whose steps round more than the tolerance of the package allows for: name, relative tolerance, and
/// why.
const COARSE: &[(&str, f64, &str)] = &[(
    "test_attention_4d_causal_fp16_expanded",
    1.0 / 512.0,
    "each op of the body rounds to f16, but what is expected was computed without a body: 2 ulp of f16",
)];

/// The relative tolerance of bf16 in the runner of the package: two units in its last place.
const OF_BF16: f64 = 1.0 / 64.0;

/// What became of a case.
enum Outcome {
    /// The results are as expected; whether every op ran in a compiled partition.
    Passed { compiled: bool },
    /// The model is refused, for a reason.
    Refused(String),
    /// The results are others.
    Wrong(String),
}

/// The outcomes of the cases of an op.
#[derive(Default)]
struct Tally {
    compiled: usize,
    interpreted: usize,
    refused: BTreeMap<String, usize>,
}

#[test]
fn node_cases_give_what_they_should() {
    let Some(folder) = written_by("onnx", "write_onnx_cases.py", "node cases") else { return };
    let cases = fs::read_to_string(folder.join("cases.json")).expect("the script wrote it");
    let cases: Vec<Json> = serde_json::from_str(&cases).expect("the script wrote JSON");
    let (mut wrong, mut tallies) = (Vec::new(), BTreeMap::<String, Tally>::new());
    for case in &cases {
        let (name, op) = (text(&case["name"]), text(&case["op"]));
        let tally = tallies.entry(op.to_owned()).or_default();
        let outcome = catch_unwind(AssertUnwindSafe(|| outcome(case, &folder.join(name))));
        match outcome.unwrap_or_else(|_| Outcome::Wrong("a panic".into())) {
            Outcome::Passed { compiled: true } => tally.compiled += 1,
            Outcome::Passed { compiled: false } => tally.interpreted += 1,
            Outcome::Refused(reason) => {
                if env::var_os("STERNA_SHOW_REFUSED").is_some() {
                    println!("{name}: {reason}");
                }
                *tally.refused.entry(reason).or_default() += 1;
            }
            Outcome::Wrong(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    report(&wrong);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/import.md");
    let old = fs::read_to_string(&page).unwrap_or_default();
    let new = page_of(&tallies, cases.len());
    let numbers = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("| all |")).unwrap_or("").to_owned();
        let cells = line.split('|').filter_map(|cell| cell.trim().parse::<usize>().ok());
        cells.collect::<Vec<usize>>()
    };
    if let ([_, before, .., refused_before], [_, now, .., refused_now]) = (&*numbers(&old), &*numbers(&new)) {
        assert!(now >= before, "{now} cases pass, {before} did");
        assert!(refused_now <= refused_before, "{refused_now} cases are refused, {refused_before} were");
    }
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&page, new).expect("the page can be written");
    } else {
        assert!(old == new, "docs/import.md is out of date; STERNA_REWRITE=1 writes it anew");
    }
}

fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

fn texts(json: &Json) -> Vec<&str> {
    json.as_array().expect("a list").iter().map(text).collect()
}

fn outcome(case: &Json, folder: &Path) -> Outcome {
    let model = fs::read(folder.join("model.onnx")).expect("the script wrote it");
    // Types are judged before anything is looked at.
    let names = texts(&case["inputs"]);
    let tensors = case["tensors"] == true;
    let load = |kind: &str, index: usize| {
        let bytes = fs::read(folder.join(format!("{kind}_{index}.pb"))).expect("the script wrote it");
        onnx::tensor(&bytes).map(|(_, value)| value)
    };
    let mut values: Vec<(&str, Value)> = Vec::new();
    if tensors {
        for (index, name) in names.iter().enumerate() {
            match load("input", index) {
                Ok(value) => values.push((name, value)),
                Err(error) => match onnx::read(&model) {
                    Err(error) => return Outcome::Refused(reason(&error)),
                    Ok(_) => return Outcome::Wrong(format!("its input is refused: {error}")),
                },
            }
        }
    }
    let imported = match read(&model, &values) {
        Ok(imported) => imported,
        Err(error) => return Outcome::Refused(reason(&error)),
    };
    if !tensors {
        return Outcome::Wrong("it is read, although it has more than tensors".into());
    }
    let partitions = imported.graph.partitions(Policy::Fusion).expect("the graph is finalized");
    let compiled =
        partitions.iter().all(|partition| partition.outputs().is_empty() || partition.is_supported());
    let results = eval(&imported, &values);
    for (index, name) in texts(&case["outputs"]).iter().enumerate() {
        let expected = match load("output", index) {
            Ok(expected) => expected,
            Err(error) => return Outcome::Wrong(format!("its output is refused: {error}")),
        };
        let port = imported.output(name).expect("outputs keep their names");
        let [mut relative, absolute] =
            [&case["rtol"], &case["atol"]].map(|json| json.as_f64().expect("a number"));
        if expected.data_type() == DataType::Bf16 {
            relative = relative.max(OF_BF16);
        }
        if let Some((_, coarse, _)) = COARSE.iter().find(|(name, ..)| *name == text(&case["name"])) {
            relative = *coarse;
        }
        let tolerance = [relative, absolute];
        if let Some(why) = difference(&results[&port.tensor.id()], &expected, tolerance) {
            return Outcome::Wrong(format!("{name}: {why}"));
        }
    }
    Outcome::Passed { compiled }
}

/// Reads a model with the values of as few inputs as it needs: of none, of lists of whole numbers, of all but
/// the first, of all.
fn read(model: &[u8], values: &[(&str, Value)]) -> Result<Imported, Error> {
    let is_list =
        |value: &Value| matches!(value.data_type(), DataType::S64 | DataType::S32) && value.dims().len() <= 1;
    type Takes<'a> = &'a dyn Fn(usize, &Value) -> bool;
    let steps: [Takes<'_>; 4] =
        [&|_, _| false, &|place, value| place > 0 && is_list(value), &|place, _| place > 0, &|_, _| true];
    let mut refused = None;
    for takes in steps {
        let given = values.iter().enumerate().filter(|(place, (_, value))| takes(*place, value));
        let given: BTreeMap<String, Value> =
            given.map(|(_, (name, value))| ((*name).to_owned(), value.clone())).collect();
        match onnx::read_with(model, &given) {
            Err(Error::Layer { layer, fault }) if matches!(*fault, Fault::NotConstant { .. }) => {
                refused = Some(Error::Layer { layer, fault });
            }
            other => return other,
        }
    }
    Err(refused.expect("the first step was refused"))
}

/// Why a model is refused, without the name of the node.
fn reason(error: &Error) -> String {
    match error {
        Error::Layer { layer, fault } => match &**fault {
            Fault::Unsupported { .. } => format!("no mapping of `{}`", layer.kind),
            Fault::Type { given, .. } if layer.kind == "input" => format!("type {given}"),
            fault => format!("`{}`: {fault}", layer.kind),
        },
        other => other.to_string(),
    }
}

/// In what a result differs from the one that it should be, by the rule of the runner of onnx.
fn difference(found: &Value, expected: &Value, [relative, absolute]: [f64; 2]) -> Option<String> {
    if (found.data_type(), found.dims()) != (expected.data_type(), expected.dims()) {
        let of = |value: &Value| format!("{} of {:?}", value.data_type(), value.dims());
        return Some(format!("{}, not {}", of(found), of(expected)));
    }
    let is_near = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs()
    };
    let (Some(a), Some(b)) = (floats(found), floats(expected)) else {
        let size = expected.data_type().size().expect("types here have whole elements");
        let pairs = found.bytes().chunks_exact(size).zip(expected.bytes().chunks_exact(size));
        let (at, (a, b)) = pairs.enumerate().find(|(_, (a, b))| a != b)?;
        return Some(format!("element {at} has the bytes {a:02x?}, not {b:02x?}"));
    };
    let pairs = a.iter().zip(&b).enumerate();
    let (at, (a, b)) = pairs.into_iter().find(|(_, (a, b))| !is_near(**a, **b))?;
    Some(format!("element {at} is {a}, not {b}"))
}

fn floats(value: &Value) -> Option<Vec<f64>> {
    Some(match value.data_type() {
        DataType::F64 => value.elements::<f64>()?,
        DataType::F32 => value.elements::<f32>()?.into_iter().map(f64::from).collect(),
        DataType::F16 => value.elements::<half::f16>()?.into_iter().map(f64::from).collect(),
        DataType::Bf16 => value.elements::<half::bf16>()?.into_iter().map(f64::from).collect(),
        data_type @ (DataType::F8E4m3 | DataType::F8E5m2) => {
            let op = Op::new(0, OpKind::Dequantize)
                .attr(Attr::Scales, vec![1.0f32])
                .input(LogicalTensor::unknown(0, data_type))
                .output(LogicalTensor::unknown(1, DataType::F32));
            floats(&reference::run(&op, std::slice::from_ref(value)).ok()?[0])?
        }
        _ => return None,
    })
}

const ABOUT: &str = "\
# The node cases of ONNX

The package `onnx` 1.23.2 has cases for each op of opsets 1 to 28: a model of one node, or of the nodes that
its function is written out as, with inputs and expected outputs. A test reads each of them with
`onnx::read_with`, runs it, and compares at the tolerance of the package: a relative error of 10⁻³ (bf16:
2⁻⁶), or an absolute one of 10⁻⁷; whole numbers are equal. It writes this page (`STERNA_REWRITE=1 cargo test
-p sterna-import --test onnx_cases`), and fails if a case gives something else than it should, or if fewer
pass than before.

Compiled says that partitions ran every op; interpreted, that the reference interpreter ran at least one of
them. A case whose node needs a shape, an axis or the like as a constant is read with the values of its
inputs. [Coming from ONNX](guide/onnx.md) says what is mapped.

";

fn page_of(tallies: &BTreeMap<String, Tally>, cases: usize) -> String {
    let mut page = String::from(ABOUT);
    let refused = |tally: &Tally| tally.refused.values().sum::<usize>();
    let passed = |tally: &Tally| tally.compiled + tally.interpreted;
    let sum = |of: &dyn Fn(&Tally) -> usize| tallies.values().map(of).sum::<usize>();
    page +=
        "| op | cases | passed | compiled | interpreted | wrong | refused |\n|---|---|---|---|---|---|---|\n";
    let _ = writeln!(
        page,
        "| all | {cases} | {} | {} | {} | 0 | {} |",
        sum(&passed),
        sum(&|tally| tally.compiled),
        sum(&|tally| tally.interpreted),
        sum(&refused)
    );
    let is_mapped = |op: &str| onnx::op_types().any(|name| name == op);
    let row = |op: &str, tally: &Tally| {
        let (compiled, interpreted) = (tally.compiled, tally.interpreted);
        let (passed, refused) = (passed(tally), refused(tally));
        format!("| {op} | {} | {passed} | {compiled} | {interpreted} | 0 | {refused} |\n", passed + refused)
    };
    for (op, tally) in tallies.iter().filter(|(op, tally)| is_mapped(op) || passed(tally) > 0) {
        page += &row(op, tally);
    }
    page += "\n## Why cases are refused\n\n| op | cases | reason |\n|---|---|---|\n";
    for (op, tally) in tallies.iter().filter(|(op, tally)| is_mapped(op) || passed(tally) > 0) {
        for (reason, count) in &tally.refused {
            let _ = writeln!(page, "| {op} | {count} | {} |", reason.replace('|', "\\|"));
        }
    }
    page += "\n## Ops that are not mapped\n\nThe number is that of their cases.\n\n";
    let others: Vec<String> = tallies
        .iter()
        .filter(|(op, tally)| !is_mapped(op) && passed(tally) == 0)
        .map(|(op, tally)| format!("{op} {}", refused(tally)))
        .collect();
    let mut line = String::new();
    for other in &others {
        if line.len() + other.len() + 2 > 118 {
            page += &format!("{}\n", line.trim_end());
            line.clear();
        }
        let _ = write!(line, "{other}, ");
    }
    page += &format!("{}.\n", line.trim_end().trim_end_matches(','));
    page
}
