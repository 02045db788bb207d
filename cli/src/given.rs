//! The value of an input in an option: a file, or a small value as text.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use sterna::reference::Value;
use sterna::{DataType, LogicalTensor};
use sterna_import::onnx;

use crate::inline::Inline;
use crate::npy;

/// The value of an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    File(PathBuf),
    Inline(Inline),
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Inline::parse(text) {
            Some(value) => Ok(Self::Inline(value?)),
            None if text.is_empty() => {
                Err("name a file after the `=`, or write a value such as [[1,2],[3,4]]".into())
            }
            None => Ok(Self::File(text.into())),
        }
    }
}

impl Given {
    /// The value for a tensor of known dims.
    pub(crate) fn value(&self, desc: &LogicalTensor) -> Result<Value> {
        match self {
            Self::File(path) if is_message(path) => {
                let value = message(path)?;
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
            Self::File(path) => npy::read(path, desc),
            Self::Inline(value) => {
                value.value(desc).with_context(|| format!("tensor {} cannot hold its value", desc.id()))
            }
        }
    }

    /// The type that the elements have by themselves, and the shape.
    pub(crate) fn description(&self) -> Result<(Option<DataType>, Vec<i64>)> {
        match self {
            Self::File(path) if is_message(path) => {
                let value = message(path)?;
                Ok((Some(value.data_type()), value.dims().to_vec()))
            }
            Self::File(path) => npy::description(path),
            Self::Inline(value) => Ok((None, value.dims.clone())),
        }
    }
}

/// Whether a file is a tensor as the test data of ONNX holds it.
fn is_message(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "pb")
}

fn message(path: &Path) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("cannot open {}", path.display()))?;
    let tensor = onnx::tensor(&bytes).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(tensor.1)
}
