//! Promise: of the node cases of the package `onnx`, as the package `openvino` converts them, those that are
//! read give what they should, and `docs/import.md` says which are read and why the others are refused.
//!
//! Runs where `STERNA_TEST_TOOLS=1`, and `STERNA_ONNX` and `STERNA_OPENVINO` name virtual environments of
//! Python with the packages, as `.ci/run` installs them. A case is read as the one of ONNX is: first without
//! values of its inputs.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::cases::{
    Outcome, Tally, cases, compare_page, load, outcome_of, page_of, reason, tally, text, texts,
};
use common::{written_by, written_from};
use serde_json::Value as Json;
use sterna::reference::Value;
use sterna_import::{Options, openvino};

/// Models whose layers do not say what the case is: part of the name, and what the package converts wrongly.
const FAULTS: &[(&str, &str)] = &[
    ("qk_matmul_bias_3d_mask_causal", "queries stand before past keys"),
    ("qk_matmul_bias_4d_mask_causal", "queries stand before past keys"),
    ("test_attention_bidirectional_window", "windows are left out"),
    ("test_attention_3d_local_window", "windows are left out"),
    ("test_attention_local_window", "windows are left out"),
    ("test_bitshift_right_int", "shifts are divisions by powers of 2 that the type does not hold"),
    ("test_cast_no_saturate", "numbers beyond the type are kept within it"),
    ("test_div_int32_trunc", "quotients are rounded down"),
    ("test_dynamicquantizelinear", "levels are rounded by another formula"),
    ("test_maxpool_2d_ceil_output_size_reduce_by_one", "a window begins behind the data"),
    ("test_quantizelinear_uint16", "levels are rounded by another formula"),
    ("rnn_batchwise", "a batch in front is left out"),
    ("gru_batchwise", "a batch in front is left out"),
    ("lstm_batchwise", "a batch in front is left out"),
    ("lstm_with_peepholes", "peepholes are left out"),
    ("resize_downsample_scales_linear_align_corners", "the last element lies at the last of the data"),
    ("resize_downsample_scales_cubic_align_corners", "the last element lies at the last of the data"),
    ("cubic_A_n0p5_exclude_outside", "elements beyond the edge weigh as those of the edge"),
    ("sizes_nearest_not_larger", "the policy of the aspect ratio is left out"),
    ("sizes_nearest_not_smaller", "the policy of the aspect ratio is left out"),
    ("test_spacetodepth_crd", "the order of the channels is left out"),
];

#[test]
fn converted_cases_give_what_they_should() {
    let Some(folder) = written_by("onnx", "write_onnx_cases.py", "node cases") else { return };
    let models =
        written_from("openvino", "write_converted.py", "converted cases", "converted", Some(&folder));
    let Some(models) = models else { return };
    let cases = cases(&models);
    let (mut tallies, wrong) = tally(&cases, |case| {
        let name = text(&case["name"]);
        outcome(case, &folder.join(name), &models.join(format!("{name}.xml")))
    });
    let converted = |tally: &Tally| tally.passed() + tally.refused.values().sum::<usize>() > 0;
    tallies.retain(|_, tally| converted(tally));
    compare_page(false, &page_of(ABOUT, &tallies, cases.len(), |_| true), &wrong);
}

fn outcome(case: &Json, folder: &Path, path: &Path) -> Outcome {
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let (model, weights) =
        (String::from_utf8(read(path)).expect("a text"), read(&path.with_extension("bin")));
    let mut values: Vec<(&str, Value)> = Vec::new();
    for (index, name) in texts(&case["inputs"]).into_iter().enumerate() {
        match load(folder, "input", index) {
            Ok(value) => values.push((name, value)),
            Err(error) => return Outcome::Refused(reason(&error)),
        }
    }
    let outcome = outcome_of(case, folder, &values, |given: &BTreeMap<String, Value>| {
        let options = Options { values: given.clone(), ..Options::default() };
        openvino::read_with(&model, &weights, &options)
    });
    match (outcome, FAULTS.iter().find(|(part, _)| text(&case["name"]).contains(part))) {
        (Outcome::Wrong(_), Some((_, what))) => Outcome::Refused(format!("converted wrongly: {what}")),
        (outcome, _) => outcome,
    }
}

const ABOUT: &str = "
The package `openvino` 2026.4.1 reads most of these cases and writes them as models of its own. A test reads
each of those with `openvino::read_with`, runs it, and compares it with what the case expects; it writes this
part of the page (`STERNA_REWRITE=1 cargo test -p sterna-import --test openvino_cases`). [Coming from
OpenVINO](guide/openvino.md) says which layers are mapped.

";
