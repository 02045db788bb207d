//! Properties of every reader of models.

use sterna::{DataType, Op};
use sterna_import::{Error, Imported, Limits, Options};

use crate::check_json;
use crate::run::check_runs;
use crate::session::{check_session, run_model};

/// Reads a model whole and in part, and runs what comes out through the whole workflow. `check_error`
/// judges each error of the reader; `bytes` are those that the fuzzer gave. Returns whether the model was
/// read whole, and what was read in part.
pub fn check_reader(
    read: impl Fn(&Options) -> Result<Imported, Error>,
    check_error: impl Fn(&Error),
    bytes: &[u8],
) -> Option<(bool, Imported)> {
    let check_error = |error: &Error| {
        let sentence = error.to_string();
        assert!(!sentence.is_empty() && sentence.chars().all(|c| !c.is_control()), "{error:?}");
        check_error(error);
    };
    let limits = Limits { constant_bytes: 1 << 20, folded_bytes: 1 << 20, ..Limits::default() };
    let mut options = Options { limits, ..Options::default() };
    let strict = read(&options);
    if let Err(error) = &strict {
        check_error(error);
    }
    options.partial = true;
    let Ok(partial) = read(&options) else {
        assert!(strict.is_err(), "what is read is read in part as well");
        return None;
    };
    partial.skipped.iter().for_each(check_error);
    for (id, value) in &partial.weights {
        let inputs = partial.graph.inputs();
        let port = inputs.iter().find(|port| port.id() == *id).expect("a constant is an input of the graph");
        assert_eq!((port.data_type(), port.dims()), (value.data_type(), Some(value.dims())));
    }
    // An op that is not mapped may have an output of a type that JSON has no word for.
    let has_types = |ops: &[Op]| {
        ops.iter()
            .flat_map(|op| op.inputs().iter().chain(op.outputs()))
            .all(|t| t.data_type() != DataType::Undef)
    };
    if has_types(partial.graph.ops()) {
        check_json(&partial.graph);
    }
    if let Some(apart) = check_runs(&partial.graph, bytes) {
        check_session(&partial.graph, bytes, &apart);
        // The same with the constants of the model, which are worth packing and folding.
        run_model(partial.clone().try_into(), bytes, false);
    }
    Some((strict.is_ok(), partial))
}
