//! The text of a model of OpenVINO, and behind a NUL its weights, through the reader; what comes out through
//! the whole workflow, as graphs that are read from JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna::DataType;
use sterna_fuzz::check_json;
use sterna_fuzz::run::check_runs;
use sterna_import::{Error, Limits, Options, openvino};

fuzz_target!(|bytes: &[u8]| {
    let (text, weights) = match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let limits = Limits { constant_bytes: 1 << 20, folded_bytes: 1 << 20, ..Limits::default() };
    let mut options = Options { limits, ..Options::default() };
    let strict = openvino::read_with(text, weights, &options);
    if let Err(error) = &strict {
        check_error(error, text);
    }
    options.partial = true;
    let Ok(partial) = openvino::read_with(text, weights, &options) else {
        assert!(strict.is_err(), "what is read is read in part as well");
        return;
    };
    partial.skipped.iter().for_each(|error| check_error(error, text));
    assert_eq!(strict.is_ok(), partial.skipped.is_empty());
    let named = partial.inputs.iter().chain(&partial.outputs).all(|port| !port.names.is_empty());
    assert!(named, "{:?} {:?}", partial.inputs, partial.outputs);
    for (id, value) in &partial.weights {
        let inputs = partial.graph.inputs();
        let port = inputs.iter().find(|port| port.id() == *id).expect("a constant is an input of the graph");
        assert_eq!((port.data_type(), port.known_dims()), (value.data_type(), Some(value.dims())));
    }
    // A layer that is not mapped may have an output of a type that JSON has no word for.
    let has_types = |ops: &[sterna::Op]| {
        ops.iter()
            .flat_map(|op| op.inputs().iter().chain(op.outputs()))
            .all(|t| t.data_type() != DataType::Undef)
    };
    if has_types(partial.graph.ops()) {
        check_json(&partial.graph);
    }
    check_runs(&partial.graph, bytes);
});

/// An error is a sentence of moderate length, and its place is in the text.
fn check_error(error: &Error, text: &str) {
    let sentence = error.to_string();
    assert!(!sentence.is_empty() && sentence.chars().all(|c| !c.is_control()), "{error:?}");
    if let Error::Syntax { line, .. } = error {
        assert!((1..=text.lines().count().max(1) as u32 + 1).contains(line), "{error}");
    }
}
