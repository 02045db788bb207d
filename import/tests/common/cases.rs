//! The node cases of the package `onnx`, read in one format or another, and the page that says what became of
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::{env, fs};

use serde_json::Value as Json;
use sterna::reference::{self, Value};
use sterna::{Attr, DataType, LogicalTensor, Op, OpKind, Policy};
use sterna_import::{Error, Fault, Imported, onnx};

use super::{eval, report};

/// Cases whose steps round more than the tolerance of the package allows for: name, relative tolerance, and
/// why.
const COARSE: &[(&str, f64, &str)] = &[(
    "test_attention_4d_causal_fp16_expanded",
    1.0 / 512.0,
    "each op of the body rounds to f16, but what is expected was computed without a body: 2 ulp of f16",
)];

/// The relative tolerance of bf16 in the runner of the package: two units in its last place.
const OF_BF16: f64 = 1.0 / 64.0;

/// The outcome of a case.
pub(crate) enum Outcome {
    /// The results are as expected; whether every op ran in a compiled partition.
    Passed { compiled: bool },
    /// The model is refused, for a reason.
    Refused(String),
    /// The results are others.
    Wrong(String),
}

/// The outcomes of the cases of an op.
#[derive(Default)]
pub(crate) struct Tally {
    compiled: usize,
    interpreted: usize,
    pub(crate) refused: BTreeMap<String, usize>,
}

impl Tally {
    pub(crate) fn passed(&self) -> usize {
        self.compiled + self.interpreted
    }
}

/// The outcomes by op.
pub(crate) type Tallies = BTreeMap<String, Tally>;

/// The cases that the script wrote to a folder.
pub(crate) fn cases(folder: &Path) -> Vec<Json> {
    let cases = fs::read_to_string(folder.join("cases.json")).expect("the script wrote it");
    serde_json::from_str(&cases).expect("the script wrote JSON")
}

/// Counts what becomes of cases; of the wrong ones, why.
pub(crate) fn tally(cases: &[Json], outcome: impl Fn(&Json) -> Outcome) -> (Tallies, Vec<String>) {
    let (mut wrong, mut tallies) = (Vec::new(), Tallies::new());
    for case in cases {
        let (name, op) = (text(&case["name"]), text(&case["op"]));
        let tally = tallies.entry(op.to_owned()).or_default();
        let outcome = catch_unwind(AssertUnwindSafe(|| outcome(case)));
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
    (tallies, wrong)
}

/// The heading of the part of the page that is about OpenVINO's models.
const SECOND: &str = "\n# The same cases as models of OpenVINO\n";

/// Compares one of the two parts of `docs/import.md` with what it should be, or writes it.
pub(crate) fn compare_page(first: bool, part: &str, wrong: &[String]) {
    report(wrong);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/import.md");
    let old = fs::read_to_string(&page).unwrap_or_default();
    let (front, back) = old.split_at(old.find(SECOND).unwrap_or(old.len()));
    let (before, new) = match first {
        true => (front, format!("{part}{back}")),
        false => (back, format!("{front}{SECOND}{part}")),
    };
    let numbers = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("| all |")).unwrap_or("").to_owned();
        let cells = line.split('|').filter_map(|cell| cell.trim().parse::<usize>().ok());
        cells.collect::<Vec<usize>>()
    };
    if let ([_, before, .., refused_before], [_, now, .., refused_now]) = (&*numbers(before), &*numbers(part))
    {
        assert!(now >= before, "{now} cases pass, {before} did");
        assert!(refused_now <= refused_before, "{refused_now} cases are refused, {refused_before} were");
    }
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&page, new).expect("the page can be written");
    } else {
        assert!(old == new, "docs/import.md is out of date; STERNA_REWRITE=1 writes it anew");
    }
}

pub(crate) fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

pub(crate) fn texts(json: &Json) -> Vec<&str> {
    json.as_array().expect("a list").iter().map(text).collect()
}

/// A tensor of a case.
pub(crate) fn load(folder: &Path, kind: &str, index: usize) -> Result<Value, Error> {
    let bytes = fs::read(folder.join(format!("{kind}_{index}.pb"))).expect("the script wrote it");
    onnx::tensor(&bytes).map(|(_, value)| value)
}

/// The outcome of a case, from its inputs and a reader of its model.
pub(crate) fn outcome_of(
    case: &Json,
    folder: &Path,
    values: &[(&str, Value)],
    read: impl Fn(&BTreeMap<String, Value>) -> Result<Imported, Error>,
) -> Outcome {
    let imported = match read_with_few(values, read) {
        Ok(imported) => imported,
        Err(error) => return Outcome::Refused(reason(&error)),
    };
    if case["tensors"] != true {
        return Outcome::Wrong("it is read, although it has more than tensors".into());
    }
    let partitions = imported.graph.partitions(Policy::Fusion).expect("the graph is finalized");
    let compiled =
        partitions.iter().all(|partition| partition.outputs().is_empty() || partition.is_supported());
    let results = eval(&imported, values);
    for (index, name) in texts(&case["outputs"]).iter().enumerate() {
        let expected = match load(folder, "output", index) {
            Ok(expected) => expected,
            Err(error) => return Outcome::Wrong(format!("its output is refused: {error}")),
        };
        let port = imported.output(name).unwrap_or(&imported.outputs[index]);
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
fn read_with_few(
    values: &[(&str, Value)],
    read: impl Fn(&BTreeMap<String, Value>) -> Result<Imported, Error>,
) -> Result<Imported, Error> {
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
        match read(&given) {
            Err(Error::Layer { layer, fault }) if matches!(*fault, Fault::NotConstant { .. }) => {
                refused = Some(Error::Layer { layer, fault });
            }
            other => return other,
        }
    }
    Err(refused.expect("the first step was refused"))
}

/// Why a model is refused, without the name of the node.
pub(crate) fn reason(error: &Error) -> String {
    match error {
        Error::Layer { layer, fault } => match &**fault {
            Fault::Unsupported { .. } => format!("no mapping of `{}`", layer.kind),
            Fault::Type { given, needed, .. } if ["input", "tensor"].contains(&&*layer.kind) => {
                format!("an input is {given}; needed: {needed}")
            }
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

/// A part of the page: tables by op, and the reasons of those that are refused, for ops of which `is_listed`
/// holds or a case passes; the number of cases of any others.
pub(crate) fn page_of(
    about: &str,
    tallies: &Tallies,
    cases: usize,
    is_listed: impl Fn(&str) -> bool,
) -> String {
    let mut page = String::from(about);
    let refused = |tally: &Tally| tally.refused.values().sum::<usize>();
    let passed = Tally::passed;
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
    let row = |op: &str, tally: &Tally| {
        let (compiled, interpreted) = (tally.compiled, tally.interpreted);
        let (passed, refused) = (passed(tally), refused(tally));
        format!("| {op} | {} | {passed} | {compiled} | {interpreted} | 0 | {refused} |\n", passed + refused)
    };
    for (op, tally) in tallies.iter().filter(|(op, tally)| is_listed(op) || passed(tally) > 0) {
        page += &row(op, tally);
    }
    page += "\n## Why cases are refused\n\n| op | cases | reason |\n|---|---|---|\n";
    for (op, tally) in tallies.iter().filter(|(op, tally)| is_listed(op) || passed(tally) > 0) {
        for (reason, count) in &tally.refused {
            let _ = writeln!(page, "| {op} | {count} | {} |", reason.replace('|', "\\|"));
        }
    }
    let others: Vec<String> = tallies
        .iter()
        .filter(|(op, tally)| !is_listed(op) && passed(tally) == 0)
        .map(|(op, tally)| format!("{op} {}", refused(tally)))
        .collect();
    if others.is_empty() {
        return page;
    }
    page += "\n## Ops that are not mapped\n\nThe number is that of their cases.\n\n";
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
