//! Tensors that are handed over by DLPack.
#![allow(unsafe_code, reason = "the address of a tensor is what its capsule says")]

use dlpark::ffi::{DLDataType, DLDeviceType};
use dlpark::python::ImportRequest;
use dlpark::{DlpackFlags, ffi};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use sterna::{DataType, Dims};

use super::numpy::{class_of, element_strides};
use super::operand::{Access, Operand, Owner};
use crate::error::{array_error, caused};

/// The types, as DLPack says them.
const TYPES: &[(DLDataType, DataType)] = &[
    (DLDataType::F32, DataType::F32),
    (DLDataType::BOOL, DataType::Boolean),
    (DLDataType::scalar(ffi::DLDataTypeCode::BFLOAT, 16), DataType::Bf16),
    (DLDataType::scalar(ffi::DLDataTypeCode::FLOAT, 16), DataType::F16),
    (DLDataType::F64, DataType::F64),
    (DLDataType::I64, DataType::S64),
    (DLDataType::I32, DataType::S32),
    (DLDataType::I16, DataType::S16),
    (DLDataType::I8, DataType::S8),
    (DLDataType::U8, DataType::U8),
    (DLDataType::U16, DataType::U16),
    (DLDataType::U32, DataType::U32),
    (DLDataType::U64, DataType::U64),
    (DLDataType::F8E5M2, DataType::F8E5m2),
    (DLDataType::F8E4M3FN, DataType::F8E4m3),
];

/// The tensor that an object hands over; `None` if it must be copied, which NumPy does.
pub(super) fn operand(object: &Bound<'_, PyAny>, access: Access) -> PyResult<Option<Operand>> {
    let py = object.py();
    let refuse = |error| caused(py, "the object cannot be had by DLPack", error);
    // They never change, which those that hand themselves over do not say.
    if access == Access::Write && class_of(object).starts_with("jax") {
        return Err(array_error("an array of JAX is read-only; a result needs memory that may be written"));
    }
    let request = ImportRequest::new(object.as_borrowed()).map_err(refuse)?;
    if let Ok(device) = request.device()
        && device.device_type != DLDeviceType::CPU
    {
        let name = class_of(object);
        let message = format!("a {name} lies on device {}, not in memory", device.device_type.0);
        return Err(array_error(&message));
    }
    let tensor = match request.import(None, None) {
        Ok(tensor) => tensor,
        // Before `max_version` existed, `__dlpack__` took no such argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            let capsule = object.call_method0(intern!(py, "__dlpack__")).map_err(refuse)?;
            ImportRequest::new(capsule.as_borrowed())
                .and_then(|request| request.import(None, None))
                .map_err(refuse)?
        }
        Err(error) => return Err(refuse(error)),
    };
    let is_read_only = tensor.flags().contains(DlpackFlags::READ_ONLY);
    if access == Access::Write && tensor.flags().contains(DlpackFlags::IS_COPIED) {
        return Err(array_error("the object hands over a copy, in which nobody would see a result"));
    }
    let parts = tensor.validate().map_err(|error| array_error(&format!("DLPack: {error}")))?;
    if parts.device().device_type != DLDeviceType::CPU {
        return Err(array_error("the tensor lies on a device, not in memory"));
    }
    let given = parts.dtype();
    let Some((_, data_type)) = TYPES.iter().find(|(dtype, _)| dtype.matches(given)) else {
        let message = format!(
            "DLPack: no tensor has elements of code {}, {} bits, {} lanes",
            given.code.0, given.bits, given.lanes
        );
        return Err(array_error(&message));
    };
    let dims: Dims = parts.shape().into();
    let strides = match parts.strides() {
        None => None,
        Some(given) => match element_strides(&dims, given.iter().copied()) {
            Some(strides) => strides,
            None if access == Access::Read => return Ok(None),
            None => return Err(array_error("a result cannot have negative strides")),
        },
    };
    let address = match parts.num_elements() {
        0 => std::ptr::null(),
        _ => {
            // SAFETY: the tensor lies in memory, and the capsule promises that its address and offset are of
            // one allocation.
            let address = unsafe { parts.offset_bytes_ptr() };
            address.map_err(|error| array_error(&format!("DLPack: {error}")))?
        }
    };
    let (address, data_type) = (address.cast_mut(), *data_type);
    let can_write = !is_read_only;
    Ok(Some(Operand {
        data_type,
        address,
        dims,
        strides,
        can_write,
        owner: Owner::Dlpack { _tensor: tensor },
    }))
}
