//! What options of several commands have in common: how their values are read, and parts of their help.

use std::path::PathBuf;

use anyhow::{Result, bail};
use sterna::TensorId;

use crate::fill::Fill;

/// What every command ends its help with.
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

/// Splits `ID=REST`.
fn id_and_rest(text: &str) -> Result<(TensorId, &str), String> {
    let (id, rest) =
        text.split_once('=').ok_or("write it as ID=..., with the id of a tensor before the `=`")?;
    let id =
        id.parse().map_err(|_| format!("{id:?} is no tensor id; write a whole number before the `=`"))?;
    Ok((id, rest))
}

/// Splits `ID=FILE`.
pub(crate) fn id_and_path(text: &str) -> Result<(TensorId, PathBuf), String> {
    match id_and_rest(text)? {
        (_, "") => Err("name a file after the `=`".into()),
        (id, path) => Ok((id, path.into())),
    }
}

/// Splits `ID=FILL`.
pub(crate) fn id_and_fill(text: &str) -> Result<(TensorId, Fill), String> {
    let (id, fill) = id_and_rest(text)?;
    Ok((id, fill.parse()?))
}

/// Splits `ID=2x3`.
pub(crate) fn id_and_shape(text: &str) -> Result<(TensorId, Vec<i64>), String> {
    let (id, shape) = id_and_rest(text)?;
    if shape.is_empty() {
        return Ok((id, Vec::new()));
    }
    let dim = |dim: &str| match dim.parse() {
        Ok(dim @ 0..) => Ok(dim),
        _ => Err(format!("{dim:?} is no dim; write a shape as dims joined by x, such as 2x8x128x128")),
    };
    Ok((id, shape.split('x').map(dim).collect::<Result<_, _>>()?))
}
