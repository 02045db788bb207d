//! The value of an input in an option: a file, or a small value as text.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use sterna::reference::Value;
use sterna::{DataType, LogicalTensor};
use sterna_import::{onnx, open_plain};

use crate::inline::Inline;
use crate::words::{Key, did_you_mean, listed, plain};
use crate::{npy, npz};

/// The value of an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    /// An `.npy` file.
    File(PathBuf),
    /// A tensor as the test data of ONNX holds it.
    Message(PathBuf),
    /// An array of an `.npz` file; without a name the one that is called as the input.
    Archive {
        path: PathBuf,
        entry: Option<String>,
    },
    Inline(Inline),
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(value) = Inline::parse(text) {
            return Ok(Self::Inline(value?));
        }
        if let Some((path, entry)) = text.rsplit_once(".npz:") {
            return Ok(Self::Archive { path: format!("{path}.npz").into(), entry: Some(entry.into()) });
        }
        let path = PathBuf::from(text);
        match path.extension().and_then(|extension| extension.to_str()) {
            None if text.is_empty() => {
                Err("name a file after the `=`, or write a value such as [[1,2],[3,4]]".into())
            }
            Some("pb") => Ok(Self::Message(path)),
            Some("npz") => Ok(Self::Archive { path, entry: None }),
            _ => Ok(Self::File(path)),
        }
    }
}

/// A value with the tensor that it is for, as an option names both.
#[derive(Debug, Clone)]
pub(crate) struct GivenInput {
    pub(crate) key: Key,
    pub(crate) given: Given,
    /// A file names the tensor, which may hold more than the inputs.
    pub(crate) is_named_by_file: bool,
}

/// The values that `--input` gives, with those of whole files one by one.
pub(crate) fn expanded<'a>(
    given: impl Iterator<Item = (Option<&'a Key>, &'a Given)>,
) -> Result<Vec<GivenInput>> {
    expanded_for("--input", given)
}

/// The values that an option gives, with those of whole files one by one.
pub(crate) fn expanded_for<'a>(
    option: &str,
    given: impl Iterator<Item = (Option<&'a Key>, &'a Given)>,
) -> Result<Vec<GivenInput>> {
    let mut inputs = Vec::new();
    for (key, given) in given {
        let is_named_by_file = key.is_none();
        let mut add = |key: Key, given| inputs.push(GivenInput { key, given, is_named_by_file });
        match (key, given) {
            (Some(key), Given::Archive { path, entry }) => {
                let entry = Some(entry_of(path, entry.as_deref(), key)?);
                add(key.clone(), Given::Archive { path: path.clone(), entry });
            }
            (None, Given::Archive { path, .. }) => {
                for entry in npz::entries(path)? {
                    add(entry.clone(), Given::Archive { path: path.clone(), entry: Some(entry) });
                }
            }
            (None, Given::Message(path)) => {
                let (name, _) = message(path)?;
                ensure!(!name.is_empty(), "{} names no tensor; write NAME={0}", path.display());
                add(name, given.clone());
            }
            (None, Given::File(_) | Given::Inline(_)) => bail!("{option}: write it as NAME=..."),
            (Some(key), given) => add(key.clone(), given.clone()),
        }
    }
    Ok(inputs)
}

/// The array of an archive with the name given, or with the name of the input, or the only array.
fn entry_of(path: &Path, named: Option<&str>, key: &str) -> Result<String> {
    let mut entries = npz::entries(path)?;
    let wanted = named.unwrap_or(key);
    if entries.iter().any(|entry| entry == wanted) {
        return Ok(wanted.into());
    }
    if named.is_none() && entries.len() == 1 {
        return Ok(entries.remove(0));
    }
    let hint = did_you_mean(wanted, entries.iter().map(String::as_str));
    let known = listed(entries.iter().map(|entry| format!("`{}`", plain(entry))));
    bail!(
        "{} has no array `{}`; it has {known}{hint}; write {}={0}:ARRAY",
        path.display(),
        plain(wanted),
        plain(key)
    )
}

impl Given {
    /// The value for a tensor of known dims, which messages call `shown`.
    pub(crate) fn value(&self, desc: &LogicalTensor, shown: &str) -> Result<Value> {
        match self {
            Self::Message(path) => {
                let (_, value) = message(path)?;
                let (given, needed) =
                    ((value.data_type(), value.dims()), (desc.data_type(), desc.dims().unwrap_or(&[])));
                ensure!(
                    given == needed,
                    "{} holds {} {:?}, but the tensor is {} {:?}",
                    path.display(),
                    given.0,
                    given.1,
                    needed.0,
                    needed.1
                );
                Ok(value)
            }
            Self::File(path) => npy::read(path, desc, shown),
            Self::Archive { path, entry } => npz::read(path, entry.as_deref().unwrap_or_default(), desc),
            Self::Inline(value) => {
                value.value(desc).with_context(|| format!("{shown} cannot hold its value"))
            }
        }
    }

    /// The type that the elements have by themselves, and the shape.
    pub(crate) fn description(&self) -> Result<(Option<DataType>, Vec<i64>)> {
        match self {
            Self::Message(path) => {
                let (_, value) = message(path)?;
                Ok((Some(value.data_type()), value.dims().to_vec()))
            }
            Self::File(path) => npy::description(path),
            Self::Archive { path, entry } => npz::description(path, entry.as_deref().unwrap_or_default()),
            Self::Inline(value) => Ok((None, value.dims.clone())),
        }
    }

    /// True if it comes from a file in the format of NumPy, which lacks names for some types.
    pub(crate) fn is_of_numpy(&self) -> bool {
        matches!(self, Self::File(_) | Self::Archive { .. })
    }
}

fn message(path: &Path) -> Result<(String, Value)> {
    let mut file = open_plain(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    onnx::tensor(&bytes).with_context(|| format!("cannot read {}", path.display()))
}
