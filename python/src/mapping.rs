//! Mappings of Python, taken at once: what runs while their values are read may change them.

use std::collections::BTreeMap;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

/// The keys and values of a mapping.
pub(crate) struct Pairs<'py>(Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>);

impl<'py> Pairs<'py> {
    /// Those of named arguments.
    pub(crate) fn of_arguments(given: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        given.map_or_else(|| Ok(Self(Vec::new())), |given| given.as_any().extract())
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&Bound<'py, PyAny>, &Bound<'py, PyAny>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl<'py> FromPyObject<'_, 'py> for Pairs<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let items = object.cast::<PyMapping>()?.items()?;
        Ok(Self(items.iter().map(|pair| pair.extract()).collect::<PyResult<_>>()?))
    }
}

/// The values of a mapping by name.
pub(crate) struct ByName<T>(pub(crate) BTreeMap<String, T>);

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for ByName<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let pairs: Pairs<'py> = object.extract()?;
        let value = |(name, value): (&Bound<'py, PyAny>, &Bound<'py, PyAny>)| {
            Ok((name.extract::<String>()?, value.extract::<T>().map_err(Into::into)?))
        };
        Ok(Self(pairs.iter().map(value).collect::<PyResult<_>>()?))
    }
}
