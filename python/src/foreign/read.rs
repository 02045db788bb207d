//! Objects of Python as operands.

use pyo3::prelude::*;
use sterna::{DataType, Dims};

use super::operand::{Access, Operand, Owner};
use super::scalar::Number;
use super::{dlpack, numpy};

impl Operand {
    /// The object as an operand. A number, a list and a tuple become arrays of the wanted type, if there is
    /// one.
    pub(crate) fn new(object: &Bound<'_, PyAny>, wanted: Option<DataType>, access: Access) -> PyResult<Self> {
        if let Some(array) = numpy::cast(object) {
            numpy::check_has_no_mask(array)?;
            return numpy::operand(array, access);
        }
        if let (Some(data_type), Access::Read) = (wanted, access)
            && let Some(number) = Number::of(object)
        {
            return Self::of_number(object.py(), number, data_type);
        }
        if access == Access::Read
            && let Some(array) = numpy::of_scalar(object)?
        {
            return numpy::operand(&array, access);
        }
        if object.hasattr(pyo3::intern!(object.py(), "__dlpack__"))? {
            return match dlpack::operand(object, access)? {
                Some(operand) => Ok(operand),
                None => numpy::operand(&numpy::from_dlpack(object)?, access),
            };
        }
        numpy::operand(&numpy::as_array(object, wanted, access)?, access)
    }

    /// A number in a type.
    pub(crate) fn of_number(py: Python<'_>, number: Number, data_type: DataType) -> PyResult<Self> {
        match number.bytes(data_type)? {
            Some(bytes) => Ok(Self {
                data_type,
                address: std::ptr::null_mut(),
                dims: Dims::new(),
                strides: None,
                can_write: false,
                owner: Owner::Inline(bytes),
            }),
            None => {
                let array = numpy::as_array(&number.into_python(py)?, Some(data_type), Access::Read)?;
                numpy::operand(&array, Access::Read)
            }
        }
    }
}
