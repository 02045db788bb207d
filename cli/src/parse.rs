//! Parts that options of several commands share: parsers of values, and pieces of help and of messages.

use std::path::PathBuf;

use anyhow::{Result, bail};
use sterna::TensorId;

use crate::fill::Fill;
use crate::given::Given;
use crate::shapes::ShapeEdit;

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
    let known = known.iter().map(TensorId::to_string);
    bail!("{option} names tensor {id}, which is not {what}; choose from {}", listed(known))
}

/// The most names that a message lists.
const MOST_LISTED: usize = 24;

/// Names in a message.
pub(crate) fn listed(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    let more = names.len().saturating_sub(MOST_LISTED);
    names.truncate(MOST_LISTED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The known name that is most like another one, as a question; empty if none is.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let name = name.to_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&name, &known.to_lowercase());
    let nearest = known.into_iter().map(|known| (likeness(known), known)).filter(|(near, _)| *near > 0.75);
    match nearest.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((_, known)) => format!("; did you mean `{}`?", plain(known)),
        None => String::new(),
    }
}

/// The most characters of a text from a file that a message shows.
const LONGEST: usize = 64;

/// A text from a file in a message: short, and without what controls a terminal or the direction of writing.
pub(crate) fn plain(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut short: String = text.chars().take(LONGEST).map(|c| if is_plain(c) { c } else { '?' }).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// A tensor in an option: the name of an input or output, or an id.
pub(crate) type Key = String;

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

/// Splits `LEFT=RIGHT` where both are words of a closed list or are read later.
pub(crate) fn pair<T>(
    text: &str,
    form: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<(Key, T), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.is_empty() => Ok((left.into(), parse(right)?)),
        _ => Err(format!("write it as {form}")),
    }
}
