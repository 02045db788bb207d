//! Promise: of the node cases of the package `onnx`, those that are read give what they should, and
//! `docs/import.md` says which are read and why the others are refused.
//!
//! Runs where `STERNA_TEST_TOOLS=1` and `STERNA_ONNX` names a virtual environment of Python with the package,
//! as `.ci/run` installs it. A case is read without values of its inputs first; if one must be a constant,
//! with those of more and more of them.

mod common;

use std::fs;
use std::path::Path;

use common::cases::{Outcome, cases, compare_page, load, outcome_of, page_of, reason, tally, text, texts};
use common::written_by;
use serde_json::Value as Json;
use sterna::reference::Value;
use sterna_import::onnx;

#[test]
fn node_cases_give_what_they_should() {
    let Some(folder) = written_by("onnx", "write_onnx_cases.py", "node cases") else { return };
    let cases = cases(&folder);
    let (tallies, wrong) = tally(&cases, |case| outcome(case, &folder.join(text(&case["name"]))));
    let is_mapped = |op: &str| onnx::op_types().any(|name| name == op);
    compare_page(true, &page_of(ABOUT, &tallies, cases.len(), is_mapped), &wrong);
}

fn outcome(case: &Json, folder: &Path) -> Outcome {
    let model = fs::read(folder.join("model.onnx")).expect("the script wrote it");
    // Types are judged before anything is looked at.
    let mut values: Vec<(&str, Value)> = Vec::new();
    if case["tensors"] == true {
        for (index, name) in texts(&case["inputs"]).into_iter().enumerate() {
            match load(folder, "input", index) {
                Ok(value) => values.push((name, value)),
                Err(error) => match onnx::read(&model) {
                    Err(error) => return Outcome::Refused(reason(&error)),
                    Ok(_) => return Outcome::Wrong(format!("its input is refused: {error}")),
                },
            }
        }
    }
    outcome_of(case, folder, &values, |given| onnx::read_with(&model, given))
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
