//! Files of models, and graphs in JSON.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sterna::Graph;
use sterna::reference::Value;
use sterna_import::{ModelFile, Options};

use crate::dtype::type_named;
use crate::error::{named, of_class, raised, raised_by_reader};
use crate::foreign::{Access, Operand, copied};
use crate::mapping::ByName;
use crate::run::detached;

/// How a file is read.
pub(crate) fn reading(
    shapes: Option<ByName<Vec<i64>>>,
    dims: Option<ByName<i64>>,
    types: Option<ByName<Bound<'_, PyAny>>>,
    values: Option<ByName<Bound<'_, PyAny>>>,
    partial: bool,
    own_constants: bool,
) -> PyResult<Options> {
    let values = values.unwrap_or_default().0.into_iter();
    let values = values.map(|(name, of)| match constant(&of) {
        Ok(value) => Ok((name, value)),
        Err(error) => Err(named(&of, &name, error)),
    });
    let types = types.into_iter().flat_map(|types| types.0).map(|(name, of)| Ok((name, type_named(&of)?)));
    Ok(Options {
        shapes: shapes.unwrap_or_default().0,
        dims: dims.unwrap_or_default().0,
        types: types.collect::<PyResult<_>>()?,
        values: values.collect::<PyResult<_>>()?,
        partial,
        own_constants,
        ..Options::default()
    })
}

/// The elements of an array, or of what NumPy makes one of.
fn constant(array: &Bound<'_, PyAny>) -> PyResult<Value> {
    let given = Operand::new(array, None, Access::Read)?;
    let dense = Operand::new(&copied(array.py(), &given.view())?, None, Access::Read)?;
    let (data_type, dims) = (dense.data_type(), dense.dims().clone());
    Value::new(data_type, &dims, dense.into_bytes()).map_err(|error| raised(array.py(), error))
}

/// The contents of a file.
pub(crate) enum Source {
    /// A graph in JSON.
    Graph(Box<Graph>),
    /// A model of another framework.
    File(Box<ModelFile>),
}

/// Reads a path or bytes.
pub(crate) fn read(py: Python<'_>, source: &Bound<'_, PyAny>, options: &Options) -> PyResult<Source> {
    if let Ok(bytes) = source.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            let text = std::str::from_utf8(bytes)
                .map_err(|error| of_class(py, "ModelError", &format!("the JSON is no text: {error}")))?;
            return Ok(Source::Graph(Box::new(detached(py, || Graph::from_json(text))?)));
        }
        let file = py.detach(|| ModelFile::onnx(bytes, options));
        return file.map(|file| Source::File(Box::new(file))).map_err(|error| raised_by_reader(py, error));
    }
    let path: std::path::PathBuf = source.extract()?;
    if begins_as_json(&path) {
        let text = py.detach(|| std::fs::read_to_string(&path)).map_err(|error| {
            of_class(py, "ModelError", &format!("the file `{}` cannot be read: {error}", path.display()))
        })?;
        return Ok(Source::Graph(Box::new(detached(py, || Graph::from_json(&text))?)));
    }
    let file = py.detach(|| ModelFile::open(&path, options));
    file.map(|file| Source::File(Box::new(file))).map_err(|error| raised_by_reader(py, error))
}

/// True if the first byte of a file that is no space opens an object of JSON.
fn begins_as_json(path: &Path) -> bool {
    use std::io::Read;
    if !path.is_file() {
        return false;
    }
    let mut first = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut first));
    read.is_ok() && first.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}
