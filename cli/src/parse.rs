//! Parts that options of several commands share: parsers of values, and pieces of help and of messages.

use std::path::PathBuf;

use crate::fill::Fill;
use crate::given::Given;
use crate::shapes::ShapeEdit;
use crate::words::Key;

/// The end of the help of every command.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  all is well
  1  the graph, or something done with it, failed
  2  wrong usage, or a file that cannot be used
  130  Ctrl-C ended it";

/// Paragraphs with a line between them.
pub(crate) fn join(paragraphs: &[&str]) -> String {
    paragraphs.join("\n\n")
}

/// Splits `NAME=REST`.
fn key_and_rest(text: &str) -> Result<(Key, &str), String> {
    match text.split_once('=') {
        Some((key, rest)) if !key.is_empty() => Ok((key.into(), rest)),
        _ => Err("write it as NAME=..., with the name or the id of a tensor before the `=`".into()),
    }
}

/// Splits `NAME=FILE` and `NAME=VALUE`; a file that names its arrays itself may stand alone.
pub(crate) fn key_and_given(text: &str) -> Result<(Option<Key>, Given), String> {
    if !text.contains('=')
        && let given @ (Given::Archive { .. } | Given::Message(_)) = text.parse()?
    {
        return Ok((None, given));
    }
    let (key, given) = key_and_rest(text)?;
    Ok((Some(key), given.parse()?))
}

/// Splits `NAME=FILE`; an archive may stand alone.
pub(crate) fn key_and_path(text: &str) -> Result<(Option<Key>, PathBuf), String> {
    if !text.contains('=') && text.ends_with(".npz") {
        return Ok((None, text.into()));
    }
    match key_and_rest(text)? {
        (_, "") => Err("name a file after the `=`".into()),
        (key, path) => Ok((Some(key), path.into())),
    }
}

/// Splits `NAME=FILL`.
pub(crate) fn key_and_fill(text: &str) -> Result<(Key, Fill), String> {
    let (key, fill) = key_and_rest(text)?;
    Ok((key, fill.parse()?))
}

/// Splits `NAME=2x3*ab`.
pub(crate) fn key_and_shape(text: &str) -> Result<(Key, ShapeEdit), String> {
    let (key, shape) = key_and_rest(text)?;
    Ok((key, shape.parse()?))
}
