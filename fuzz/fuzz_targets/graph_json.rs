//! The text of a graph through the whole workflow: read, written and read again, partitioned, compiled,
//! executed on filled inputs, fused and op by op, and held against the reference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna::{Error, Graph, Status};
use sterna_fuzz::check_json;
use sterna_fuzz::run::check_runs;
use sterna_fuzz::session::check_session;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut graph = match Graph::from_json(text) {
        Ok(graph) => graph,
        Err(error) => return check_place(&error, text),
    };
    check_json(&graph);
    if let Err(error) = graph.finalize() {
        assert!([Status::InvalidGraph, Status::InvalidGraphOp].contains(&error.status()), "{error}");
        return;
    }
    if let Some(apart) = check_runs(&graph, bytes) {
        check_session(&graph, bytes, &apart);
    }
});

/// An error names a place in the text.
fn check_place(error: &Error, text: &str) {
    assert!(!error.to_string().is_empty());
    assert_ne!(error.status(), Status::RuntimeError, "{error}");
    if let Error::Json(fault) = error {
        let lines = text.lines().count().max(1) + 1;
        assert!((1..=lines).contains(&fault.line), "{error}, of {lines} lines");
        assert!(fault.column <= text.len() + 1, "{error}");
    }
}
