//! The bytes of a model of ONNX through the reader; what comes out through the whole workflow, as graphs that
//! are read from JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna::DataType;
use sterna_fuzz::check_json;
use sterna_fuzz::run::check_runs;
use sterna_import::{Error, Limits, Options, onnx};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { constant_bytes: 1 << 20, folded_bytes: 1 << 20, ..Limits::default() };
    let mut options = Options { limits, ..Options::default() };
    let strict = onnx::read_under(bytes, &options);
    if let Err(error) = &strict {
        check_error(error);
    }
    options.partial = true;
    let Ok(partial) = onnx::read_under(bytes, &options) else {
        assert!(strict.is_err(), "what is read is read in part as well");
        return;
    };
    partial.skipped.iter().for_each(check_error);
    for (id, value) in &partial.weights {
        let inputs = partial.graph.inputs();
        let port = inputs.iter().find(|port| port.id() == *id).expect("a constant is an input of the graph");
        assert_eq!((port.data_type(), port.known_dims()), (value.data_type(), Some(value.dims())));
    }
    // A node that is not mapped may have an output of a type that JSON has no word for.
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

/// An error is a sentence of moderate length.
fn check_error(error: &Error) {
    let sentence = error.to_string();
    assert!(!sentence.is_empty() && sentence.chars().all(|c| !c.is_control()), "{error:?}");
}
