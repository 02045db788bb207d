//! The text of a model of OpenVINO, and behind a NUL its weights, through the reader; what comes out through
//! the whole workflow, as graphs that are read from JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna_fuzz::import::check_reader;
use sterna_import::{Error, openvino};

fuzz_target!(|bytes: &[u8]| {
    let (text, weights) = match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let read = check_reader(
        |options| openvino::read_with(text, weights, options),
        |error| check_place(error, text),
        bytes,
    );
    let Some((is_whole, partial)) = read else { return };
    assert_eq!(is_whole, partial.skipped.is_empty());
    let named = partial.inputs.iter().chain(&partial.outputs).all(|port| !port.names.is_empty());
    assert!(named, "{:?} {:?}", partial.inputs, partial.outputs);
});

/// The place of a syntax error is in the text.
fn check_place(error: &Error, text: &str) {
    if let Error::Syntax { line, .. } = error {
        assert!((1..=text.lines().count().max(1) as u32 + 1).contains(line), "{error}");
    }
}
