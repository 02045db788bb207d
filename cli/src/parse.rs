//! Parts that options of several commands share: parsers of values, and pieces of help and of messages.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::endings;
use crate::fill::Fill;
use crate::given::Given;
use crate::named::{self, Named};
use crate::shapes::ShapeEdit;

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

/// The form of options about tensors.
const OF_TENSOR: &str = "NAME=..., with the name or the id of a tensor before the `=`";

/// Reads `NAME=FILE` and `NAME=VALUE`; a file that names its arrays itself may stand alone.
pub(crate) fn named_given(text: &str) -> Result<Named<Given>, String> {
    if !text.contains('=')
        && let given @ (Given::Archive { .. } | Given::Message(_)) = text.parse()?
    {
        return Ok(Named::Alone(given));
    }
    Named::parse(text, OF_TENSOR, str::parse)
}

/// Reads `NAME=FILE`; an archive may stand alone.
pub(crate) fn named_path(text: &str) -> Result<Named<PathBuf>, String> {
    let file = |path: &str| match path {
        "" => Err("name a file after the `=`".into()),
        path => endings::file(&["npy", "npz"])(path),
    };
    match text.contains('=') {
        false if text.ends_with(".npz") => Ok(Named::Alone(text.into())),
        _ => Named::parse(text, OF_TENSOR, file),
    }
}

/// Reads `NAME=FILL`.
pub(crate) fn named_fill(text: &str) -> Result<Named<Fill>, String> {
    Named::parse(text, OF_TENSOR, str::parse)
}

/// Reads `NAME=2x3*ab`.
pub(crate) fn named_shape(text: &str) -> Result<Named<ShapeEdit>, String> {
    Named::parse(text, OF_TENSOR, str::parse)
}

/// Reads `NAME=128`.
pub(crate) fn named_length(text: &str) -> Result<(String, i64), String> {
    let parts = text.rsplit_once('=').map(|(name, length)| (name, length.trim().parse::<i64>()));
    match parts {
        Some((name, Ok(length))) if !name.is_empty() && length >= 0 => Ok((name.to_owned(), length)),
        _ => Err("write NAME=LENGTH, such as seq=128".into()),
    }
}

/// States that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StateArg {
    /// All that the names of the model tell.
    Auto,
    /// An input, and the output that is its next value. Either name may hold `=`.
    Named(Vec<(String, String)>),
}

/// Reads `PAST=PRESENT` and `auto`.
pub(crate) fn named_state(text: &str) -> Result<StateArg, String> {
    let splits = named::splits(text).filter(|(_, present)| !present.is_empty());
    let splits: Vec<(String, String)> =
        splits.map(|(past, present)| (past.to_owned(), present.to_owned())).collect();
    match (text, splits.is_empty()) {
        ("auto", _) => Ok(StateArg::Auto),
        (_, false) => Ok(StateArg::Named(splits)),
        (_, true) => Err("write PAST=PRESENT, an input and an output, or auto".into()),
    }
}

/// Reads a whole number within bounds.
pub(crate) fn whole<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + Display + PartialOrd + Copy + Send + Sync + 'static,
{
    move |text| match text.trim().parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("write a whole number from {least} to {most}")),
    }
}

/// Reads a number of threads.
pub(crate) fn threads(text: &str) -> Result<u16, String> {
    whole(1, MAX_THREADS)(text)
}

/// The most threads that an option names.
pub(crate) const MAX_THREADS: u16 = 4096;

/// The most callers at once that an option names.
pub(crate) const MAX_STREAMS: u16 = 256;

/// Reads a time in seconds, a millisecond or more.
pub(crate) fn seconds(most: f64) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| match text.trim().parse() {
        Ok(seconds) if (0.001..=most).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("write seconds from 0.001 to {most}, such as 0.5")),
    }
}
