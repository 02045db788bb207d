//! Words of options and messages: names, lists of them, and hints.

use anyhow::{Result, bail};
use sterna::TensorId;
use sterna_inspect::cut;
pub(crate) use sterna_inspect::harmless;

/// Checks that a tensor that an option names is among those that it may name.
pub(crate) fn check_id(option: &str, id: TensorId, known: &[TensorId], what: &str) -> Result<()> {
    if known.contains(&id) {
        return Ok(());
    }
    let known = known.iter().map(TensorId::to_string);
    bail!("{option} names tensor {id}, which is not {what}; choose from {}", listed(known))
}

/// A tensor in a message: its name if it has one, and its id.
pub(crate) fn shown(name: Option<&str>, id: TensorId) -> String {
    match name {
        Some(name) => format!("`{}` (tensor {id})", plain(name)),
        None => format!("tensor {id}"),
    }
}

/// The most names that a message lists.
const MAX_LISTED: usize = 24;

/// Names in a message.
pub(crate) fn listed(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The known name that may be meant, as a question; empty if none is.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match sterna::nearest_name(name, known) {
        Some(known) => format!("; did you mean `{}`?", plain(known)),
        None => String::new(),
    }
}

/// The most characters of a text from a file that a message shows.
const LONGEST: usize = 64;

/// A text from a file in a message: short, and without what controls a terminal or the direction of writing.
pub(crate) fn plain(text: &str) -> String {
    cut(&harmless(text), LONGEST)
}

/// A tensor in an option: the name of an input or output, or an id.
pub(crate) type Key = String;
