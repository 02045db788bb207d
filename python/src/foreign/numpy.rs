//! Arrays of NumPy.
#![allow(unsafe_code, reason = "the interface of NumPy is that of C")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use numpy::npyffi::{self, NPY_ARRAY_WRITEABLE, NPY_TYPES, NpyTypes, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use sterna::{DataType, Dims, DynView, DynViewMut, Engine, LogicalTensor, TensorBuf};

use super::operand::{Access, Operand, Owner};
use super::scalar::Number;
use crate::error::{array_error, caused, raised};

/// The types that NumPy has itself; `long` and `longlong` are both of 64 bits where this is built.
const TYPES: &[(NPY_TYPES, DataType)] = &[
    (NPY_TYPES::NPY_FLOAT, DataType::F32),
    (NPY_TYPES::NPY_BOOL, DataType::Boolean),
    (NPY_TYPES::NPY_HALF, DataType::F16),
    (NPY_TYPES::NPY_DOUBLE, DataType::F64),
    (NPY_TYPES::NPY_BYTE, DataType::S8),
    (NPY_TYPES::NPY_UBYTE, DataType::U8),
    (NPY_TYPES::NPY_SHORT, DataType::S16),
    (NPY_TYPES::NPY_USHORT, DataType::U16),
    (NPY_TYPES::NPY_INT, DataType::S32),
    (NPY_TYPES::NPY_UINT, DataType::U32),
    (NPY_TYPES::NPY_LONGLONG, DataType::S64),
    (NPY_TYPES::NPY_ULONGLONG, DataType::U64),
];

/// The types of the package ml_dtypes.
const ML_TYPES: &[(&str, DataType)] =
    &[("bfloat16", DataType::Bf16), ("float8_e5m2", DataType::F8E5m2), ("float8_e4m3fn", DataType::F8E4m3)];

/// The numbers that NumPy has given to types of ml_dtypes, as far as arrays of them were met.
static MET: Mutex<Vec<(c_int, DataType)>> = Mutex::new(Vec::new());

/// The object if it is an array of NumPy.
pub(super) fn cast<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyUntypedArray>> {
    object.cast::<PyUntypedArray>().ok()
}

/// Refuses an array some of whose elements are masked, which a tensor cannot say.
pub(super) fn check_has_no_mask(array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let py = array.py();
    // SAFETY: the types of NumPy and of an object are there as long as Python is.
    let is_plain =
        unsafe { ffi::Py_TYPE(array.as_ptr()) == npyffi::get_type_object(py, NpyTypes::PyArray_Type) };
    if is_plain {
        return Ok(());
    }
    static MASKED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match array.is_instance(MASKED.import(py, "numpy.ma", "MaskedArray")?)? {
        true => {
            Err(array_error("a masked array has elements that count for nothing; fill them, or take `.data`"))
        }
        false => Ok(()),
    }
}

/// The array of rank 0 of a scalar of NumPy, such as `numpy.float32(1)`; `None` for other objects.
pub(super) fn of_scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyUntypedArray>>> {
    let py = object.py();
    // SAFETY: the type is NumPy's, and the call takes a scalar of it, of which it makes a new array.
    let array = unsafe {
        let scalars = npyffi::get_type_object(py, NpyTypes::PyGenericArrType_Type);
        if ffi::PyObject_TypeCheck(object.as_ptr(), scalars) == 0 {
            return Ok(None);
        }
        let array = PY_ARRAY_API.PyArray_FromScalar(py, object.as_ptr(), ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, array)?
    };
    Ok(Some(array.cast_into::<PyUntypedArray>()?))
}

/// The type of the elements of a dtype.
pub(crate) fn type_of_numpy(dtype: &Bound<'_, PyArrayDescr>) -> PyResult<DataType> {
    let number = dtype.num();
    if let Some((_, data_type)) = TYPES.iter().find(|(own, _)| *own as c_int == number) {
        return Ok(*data_type);
    }
    if number == NPY_TYPES::NPY_LONG as c_int && dtype.itemsize() == 8 {
        return Ok(DataType::S64);
    }
    if number == NPY_TYPES::NPY_ULONG as c_int && dtype.itemsize() == 8 {
        return Ok(DataType::U64);
    }
    let met = |known: &[(c_int, DataType)]| known.iter().find(|(own, _)| *own == number).map(|(_, of)| *of);
    if let Some(data_type) = met(&MET.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(data_type);
    }
    // Code of Python runs here, so no lock is held.
    let name = dtype.getattr(intern!(dtype.py(), "name"))?;
    let name = name.cast::<PyString>()?.to_cow()?;
    // Types of users have numbers from here on; before, a name says less than it seems.
    let is_users = number >= NPY_TYPES::NPY_USERDEF as c_int;
    match ML_TYPES.iter().find(|(own, _)| is_users && *own == name) {
        Some((_, data_type)) => {
            MET.lock().unwrap_or_else(PoisonError::into_inner).push((number, *data_type));
            Ok(*data_type)
        }
        None => Err(array_error(&format!("no tensor has elements of NumPy's type {name}"))),
    }
}

/// The dtype of a type.
fn numpy_type(py: Python<'_>, data_type: DataType) -> PyResult<Bound<'_, PyArrayDescr>> {
    if let Some((number, _)) = TYPES.iter().find(|(_, own)| *own == data_type) {
        // SAFETY: the number is that of a type of NumPy itself, of which the call gives a new reference.
        let dtype = unsafe {
            let descr = PY_ARRAY_API.PyArray_DescrFromType(py, *number as c_int);
            Bound::from_owned_ptr_or_err(py, descr.cast())?
        };
        return Ok(dtype.cast_into::<PyArrayDescr>()?);
    }
    let Some((name, _)) = ML_TYPES.iter().find(|(_, own)| *own == data_type) else {
        return Err(array_error(&format!("no array of NumPy has elements of type {data_type}")));
    };
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import("ml_dtypes").map(|module| module.into_any().unbind()));
    let module = module.map_err(|error| {
        let message = format!(
            "an array of type {data_type} needs the package ml_dtypes; install it, or give `out`, such as a \
             tensor of torch"
        );
        caused(py, &message, error)
    })?;
    PyArrayDescr::new(py, module.bind(py).getattr(*name)?)
}

/// The array that NumPy makes of an object: a view of its memory if it has the buffer protocol or an array
/// interface, or else, if it is only read, a copy.
pub(super) fn as_array<'py>(
    object: &Bound<'py, PyAny>,
    wanted: Option<DataType>,
    access: Access,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = object.py();
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let asarray = ASARRAY.import(py, "numpy", "asarray")?;
    let options = PyDict::new(py);
    let is_plain = object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || Number::of(object).is_some();
    match (wanted, access) {
        (_, Access::Write) => options.set_item(intern!(py, "copy"), false)?,
        (Some(data_type), Access::Read) if is_plain => {
            options.set_item(intern!(py, "dtype"), numpy_type(py, data_type)?)?;
        }
        _ => {}
    }
    let name = object.get_type().fully_qualified_name()?;
    let array = asarray.call((object,), Some(&options)).map_err(|error| {
        let message = match access {
            Access::Read => format!("a {name} is no array"),
            Access::Write => format!("a {name} is no array that can be written"),
        };
        caused(py, &message, error)
    })?;
    array.cast_into::<PyUntypedArray>().map_err(|_| array_error(&format!("a {name} is no array")))
}

/// The array that NumPy makes of a tensor that is handed over.
pub(super) fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = object.py();
    let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "from_dlpack"), (object,));
    let array = array.map_err(|error| caused(py, "the tensor cannot be copied", error))?;
    array.cast_into::<PyUntypedArray>().map_err(|_| array_error("the tensor cannot be copied"))
}

/// The strides of a layout that a tensor can have: `Some(None)` for row-major; `None` if it cannot.
pub(super) fn element_strides(dims: &[i64], given: impl Iterator<Item = i64>) -> Option<Option<Dims>> {
    if dims.contains(&0) {
        return Some(None);
    }
    let mut strides: Dims = given.collect();
    // A dim of 1 has no stride to speak of.
    for (stride, &dim) in strides.iter_mut().zip(dims) {
        if dim == 1 {
            *stride = 1;
        }
    }
    if strides.iter().any(|&stride| stride < 0) {
        return None;
    }
    let mut extent = 1i64;
    let mut is_dense = true;
    for (&dim, &stride) in dims.iter().zip(&strides).rev() {
        is_dense &= dim == 1 || stride == extent;
        extent = extent.saturating_mul(dim);
    }
    Some((!is_dense).then_some(strides))
}

/// An array as an operand. One that no tensor can be, by its strides or the order of its bytes, is copied if
/// it is only read.
pub(super) fn operand(array: &Bound<'_, PyUntypedArray>, access: Access) -> PyResult<Operand> {
    let dtype = array.dtype();
    let data_type = type_of_numpy(&dtype)?;
    // SAFETY: the object is an array, whose fields stay as they are while Python is held.
    let fields = unsafe { &*npyffi::_PyArray_GET_ITEM_DATA(array.as_array_ptr().cast_const()) };
    let (can_write, address) = (fields.flags & NPY_ARRAY_WRITEABLE != 0, fields.data.cast::<u8>());
    let dims: Dims = array.shape().iter().map(|&dim| dim as i64).collect();
    let size = data_type.size().unwrap_or(1) as isize;
    let is_native = size == 1 || dtype.is_native_byteorder() != Some(false);
    let strides = match array.is_c_contiguous() {
        true => Some(None),
        false if array.strides().iter().any(|stride| stride % size != 0) => None,
        false => element_strides(&dims, array.strides().iter().map(|stride| (stride / size) as i64)),
    };
    match strides {
        Some(strides) if is_native => {
            let owner = Owner::Object { _array: array.clone().into_any().unbind() };
            Ok(Operand { data_type, address, dims, strides, can_write, owner })
        }
        _ if access == Access::Write => {
            Err(array_error("a result has strides of whole elements that are not negative, and native bytes"))
        }
        _ => {
            let py = array.py();
            let options = PyDict::new(py);
            options.set_item("order", "C")?;
            let native = dtype.call_method1("newbyteorder", ("=",))?;
            let copy = array.call_method("astype", (native,), Some(&options))?;
            let copy = copy.cast_into::<PyUntypedArray>().map_err(|_| array_error("no array is a copy"))?;
            // A subclass may answer with what it likes.
            if !copy.is_c_contiguous() || copy.dtype().is_native_byteorder() == Some(false) {
                return Err(array_error("the array cannot be copied to a row-major one"));
            }
            operand(&copy, access)
        }
    }
}

/// A new array whose elements nobody has written, with strides in elements; without, it is row-major. The
/// second value is the same array as an operand.
pub(crate) fn new_array<'py>(
    py: Python<'py>,
    data_type: DataType,
    dims: &[i64],
    strides: Option<&[i64]>,
) -> PyResult<(Bound<'py, PyAny>, Operand)> {
    let array = match strides.filter(|strides| !is_dense(dims, strides)) {
        Some(strides) => {
            let desc = LogicalTensor::with_strides(0, data_type, dims, strides);
            let tensor = desc.and_then(|desc| TensorBuf::zeroed(desc, Engine::shared()));
            owned_array(py, tensor.map_err(|error| raised(py, error))?)?
        }
        None => array_at(py, data_type, dims, strides, ptr::null_mut())?,
    };
    let operand = operand(array.cast::<PyUntypedArray>()?, Access::Write)?;
    Ok((array, operand))
}

/// True if the elements of a layout lie side by side.
fn is_dense(dims: &[i64], strides: &[i64]) -> bool {
    let steps = dims.iter().zip(strides).filter(|(dim, _)| **dim > 1).map(|(dim, stride)| (dim - 1) * stride);
    dims.contains(&0) || 1 + steps.sum::<i64>() == dims.iter().product::<i64>()
}

/// An array at an address, or one with memory of its own if that is null. Strides may only be given with an
/// address, or if they are those of a dense layout, since an array of its own has as many bytes as elements.
fn array_at<'py>(
    py: Python<'py>,
    data_type: DataType,
    dims: &[i64],
    strides: Option<&[i64]>,
    address: *mut u8,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = numpy_type(py, data_type)?;
    let size = data_type.size().unwrap_or(1) as isize;
    let mut lengths: Dims = dims.into();
    let mut steps: Option<Dims> =
        strides.map(|strides| strides.iter().map(|&stride| stride * size as i64).collect());
    let steps = steps.as_mut().map_or(ptr::null_mut(), |steps| steps.as_mut_ptr().cast());
    let rank = lengths.len() as c_int;
    // SAFETY: the call takes the reference to the type, reads as many dims and steps as the rank says, and
    // checks what they come to.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            dtype.into_dtype_ptr(),
            rank,
            lengths.as_mut_ptr().cast(),
            steps,
            address.cast::<c_void>(),
            if address.is_null() { 0 } else { NPY_ARRAY_WRITEABLE },
            ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// The tensor as an array, which keeps it.
pub(crate) fn owned_array(py: Python<'_>, mut tensor: TensorBuf) -> PyResult<Bound<'_, PyAny>> {
    let desc = tensor.desc().clone();
    let address = tensor.as_mut_bytes().as_mut_ptr();
    let (dims, strides) = (desc.dims().unwrap_or_default(), desc.strides());
    let array = array_at(py, desc.data_type(), dims, strides, address)?;
    let owner = Bound::new(py, Memory { _tensor: tensor })?.into_any();
    // SAFETY: the object is an array that was made just now, and takes the reference to its owner. Memory of
    // a tensor stays where it is.
    let code = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), owner.into_ptr()) };
    match code {
        0 => Ok(array),
        _ => Err(PyErr::fetch(py)),
    }
}

/// An array of the memory of a view, for use while the view is borrowed alone.
pub(super) fn borrowed<'py>(py: Python<'py>, view: &DynView<'_>) -> PyResult<Bound<'py, PyAny>> {
    let address = view.as_ptr().cast_mut();
    array_of(py, view.data_type(), view.dims(), view.strides(), address)
}

/// As [`borrowed`], to be written; the view is row-major.
pub(super) fn borrowed_mut<'py>(py: Python<'py>, view: &mut DynViewMut<'_>) -> PyResult<Bound<'py, PyAny>> {
    let desc = view.desc(0).map_err(|error| raised(py, error))?;
    let address = view.as_mut_ptr();
    let (dims, strides) = (desc.dims().unwrap_or_default(), desc.strides());
    array_of(py, desc.data_type(), dims, strides, address)
}

/// An array at an address, for use while the memory is there.
pub(super) fn array_of<'py>(
    py: Python<'py>,
    data_type: DataType,
    dims: &[i64],
    strides: Option<&[i64]>,
    address: *mut u8,
) -> PyResult<Bound<'py, PyAny>> {
    array_at(py, data_type, dims, strides, non_null(address))
}

/// An address for an array that has no elements, if there is none.
fn non_null(address: *mut u8) -> *mut u8 {
    if address.is_null() { ptr::dangling_mut::<u64>().cast() } else { address }
}

/// Copies the elements of an array to another one of the same dims and type.
pub(super) fn copy_into(target: &Bound<'_, PyAny>, source: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = target.py();
    static COPYTO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let options = PyDict::new(py);
    options.set_item("casting", "no")?;
    COPYTO.import(py, "numpy", "copyto")?.call((target, source), Some(&options))?;
    Ok(())
}

/// The class of an object, for messages.
pub(crate) fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "object".into(), |name| name.to_string())
}

/// The elements of an owned tensor, row-major or with the strides of its description.
#[pyclass(frozen, module = "sterna._sterna", name = "_Memory")]
struct Memory {
    _tensor: TensorBuf,
}
