//! Parts that options of several commands share: parsers of values, and pieces of help.

use std::path::PathBuf;

use anyhow::{Result, bail};
use sterna::TensorId;

use crate::fill::Fill;
use crate::given::Given;

/// The end of the help of every command.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  all is well
  1  the graph, or something done with it, failed
  2  wrong usage, or a file that cannot be used";

/// Paragraphs with a line between them.
pub(crate) fn join(paragraphs: &[&str]) -> String {
    paragraphs.join("\n\n")
}

/// Checks that no id is there twice.
pub(crate) fn once(option: &str, ids: impl Iterator<Item = TensorId>) -> Result<()> {
    let mut ids: Vec<TensorId> = ids.collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => bail!("{option} names tensor {} more than once; keep one", pair[0]),
        None => Ok(()),
    }
}

/// Checks that a tensor that an option names is among those that it may name.
pub(crate) fn check_id(option: &str, id: TensorId, known: &[TensorId], what: &str) -> Result<()> {
    if known.contains(&id) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(TensorId::to_string).collect();
    bail!("{option} names tensor {id}, which is not {what}; choose from {}", known.join(", "))
}

/// A tensor in an option: its id or, in a model, the name of an input or output.
pub(crate) type Key = String;

/// Splits `ID=REST`.
fn key_and_rest(text: &str) -> Result<(Key, &str), String> {
    match text.split_once('=') {
        Some((key, rest)) if !key.is_empty() => Ok((key.into(), rest)),
        _ => Err("write it as ID=..., with the id of a tensor before the `=`".into()),
    }
}

/// Splits `ID=FILE` and `ID=VALUE`.
pub(crate) fn key_and_given(text: &str) -> Result<(Key, Given), String> {
    let (key, given) = key_and_rest(text)?;
    Ok((key, given.parse()?))
}

/// Splits `ID=FILE`.
pub(crate) fn key_and_path(text: &str) -> Result<(Key, PathBuf), String> {
    match key_and_rest(text)? {
        (_, "") => Err("name a file after the `=`".into()),
        (key, path) => Ok((key, path.into())),
    }
}

/// Splits `ID=FILL`.
pub(crate) fn key_and_fill(text: &str) -> Result<(Key, Fill), String> {
    let (key, fill) = key_and_rest(text)?;
    Ok((key, fill.parse()?))
}

/// Splits `ID=2x3`.
pub(crate) fn key_and_shape(text: &str) -> Result<(Key, Vec<i64>), String> {
    let (key, shape) = key_and_rest(text)?;
    if shape.is_empty() {
        return Ok((key, Vec::new()));
    }
    let dim = |dim: &str| match dim.parse() {
        Ok(dim @ 0..) => Ok(dim),
        _ => Err(format!("{dim:?} is no dim; write a shape as dims joined by x, such as 2x8x128x128")),
    };
    Ok((key, shape.split('x').map(dim).collect::<Result<_, _>>()?))
}
