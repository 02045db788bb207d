//! Numbers of Python, which take the type of what stands beside them.

use half::{bf16, f16};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use sterna::DataType;

use crate::error::array_error;

/// A number of Python.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A floating-point number.
    Float(f64),
}

impl Number {
    /// The number that an object is; `None` for arrays and the scalars of NumPy, which have a type.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Option<Self> {
        if let Ok(number) = object.cast_exact::<PyFloat>() {
            return Some(Self::Float(number.value()));
        }
        if let Ok(number) = object.cast_exact::<PyBool>() {
            return Some(Self::Bool(number.is_true()));
        }
        // One beyond 64 bits fits no type, which NumPy says.
        let number = object.cast_exact::<PyInt>().ok()?;
        match number.extract::<i64>() {
            Ok(number) => Some(Self::Int(number.into())),
            Err(_) => number.extract::<u64>().ok().map(|number| Self::Int(number.into())),
        }
    }

    /// The type of the number on its own.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Bool(_) => DataType::Boolean,
            Self::Int(_) => DataType::S64,
            Self::Float(_) => DataType::F64,
        }
    }

    /// As a number of Python.
    pub(super) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Bool(value) => value.into_bound_py_any(py),
            Self::Int(value) => value.into_bound_py_any(py),
            Self::Float(value) => value.into_bound_py_any(py),
        }
    }

    /// The element of a type; `None` if NumPy has to make it.
    pub(super) fn bytes(self, data_type: DataType) -> PyResult<Option<[u8; 8]>> {
        let mut bytes = [0; 8];
        let mut put = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
        match data_type {
            DataType::F32 => put(&(self.float() as f32).to_ne_bytes()),
            DataType::F64 => put(&self.float().to_ne_bytes()),
            DataType::F16 => put(&f16::from_f64(self.float()).to_ne_bytes()),
            DataType::Bf16 => put(&bf16::from_f64(self.float()).to_ne_bytes()),
            DataType::Boolean => put(&[self.boolean()?]),
            DataType::S8 => put(&self.whole::<i8>(data_type)?.to_ne_bytes()),
            DataType::S16 => put(&self.whole::<i16>(data_type)?.to_ne_bytes()),
            DataType::S32 => put(&self.whole::<i32>(data_type)?.to_ne_bytes()),
            DataType::S64 => put(&self.whole::<i64>(data_type)?.to_ne_bytes()),
            DataType::U8 => put(&self.whole::<u8>(data_type)?.to_ne_bytes()),
            DataType::U16 => put(&self.whole::<u16>(data_type)?.to_ne_bytes()),
            DataType::U32 => put(&self.whole::<u32>(data_type)?.to_ne_bytes()),
            DataType::U64 => put(&self.whole::<u64>(data_type)?.to_ne_bytes()),
            _ => return Ok(None),
        }
        Ok(Some(bytes))
    }

    fn float(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    fn boolean(self) -> PyResult<u8> {
        match self {
            Self::Bool(value) => Ok(value.into()),
            _ => Err(array_error("a boolean is True or False, not a number")),
        }
    }

    fn whole<T: TryFrom<i128>>(self, data_type: DataType) -> PyResult<T> {
        let value = match self {
            Self::Bool(value) => value.into(),
            Self::Int(value) => value,
            Self::Float(value) => {
                return Err(array_error(&format!("{value} is no number of type {data_type}")));
            }
        };
        T::try_from(value)
            .map_err(|_| PyOverflowError::new_err(format!("{value} is out of bounds for {data_type}")))
    }
}
