//! The bytes of a model of ONNX through the reader; what comes out through the whole workflow, as graphs that
//! are read from JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna_fuzz::import::check_reader;
use sterna_import::onnx;

fuzz_target!(|bytes: &[u8]| {
    check_reader(|options| onnx::read_under(bytes, options), |_| (), bytes);
});
