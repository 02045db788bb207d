//! Types by the names that Sterna, NumPy and torch have for them.

use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PyString;
use sterna::DataType;

use crate::error::{array_error, caused};
use crate::foreign::type_of_numpy;

/// Names that others have for types.
const ALIASES: &[(&str, DataType)] = &[
    ("bool", DataType::Boolean),
    ("float16", DataType::F16),
    ("half", DataType::F16),
    ("bfloat16", DataType::Bf16),
    ("float32", DataType::F32),
    ("float", DataType::F32),
    ("float64", DataType::F64),
    ("double", DataType::F64),
    ("int8", DataType::S8),
    ("int16", DataType::S16),
    ("int32", DataType::S32),
    ("int64", DataType::S64),
    ("uint8", DataType::U8),
    ("uint16", DataType::U16),
    ("uint32", DataType::U32),
    ("uint64", DataType::U64),
    ("float8_e5m2", DataType::F8E5m2),
    ("float8_e4m3fn", DataType::F8E4m3),
];

/// The type that an object names: a word, a dtype of NumPy, a dtype of torch.
pub(crate) fn type_named(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let py = object.py();
    if let Ok(dtype) = object.cast::<PyArrayDescr>() {
        return type_of_numpy(dtype);
    }
    let is_of_torch = object.get_type().module().is_ok_and(|module| module == "torch");
    if object.is_instance_of::<PyString>() || is_of_torch {
        let text = object.str()?.to_string();
        let word = text.strip_prefix("torch.").unwrap_or(&text);
        let alias = ALIASES.iter().find(|(name, _)| *name == word).map(|(_, data_type)| *data_type);
        let Some(data_type) = alias.or_else(|| word.parse().ok()) else {
            return Err(array_error(&format!("no data type is called {word:?}")));
        };
        return Ok(data_type);
    }
    let dtype =
        PyArrayDescr::new(py, object).map_err(|error| caused(py, "the object names no type", error))?;
    type_of_numpy(&dtype)
}
