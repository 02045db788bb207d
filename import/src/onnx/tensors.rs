//! The types and the tensors of ONNX.

use sterna::{DataType, Direction};

use super::element_files::{self, ElementFiles};
use super::proto::{Shape, TensorText, ValueInfo};
use crate::builder::Builder;
use crate::constant::Constant;
use crate::elements::{NO_SCALE, NO_TEXT, OCP, REAL, RefusedType, WHOLE_BYTES};
use crate::error::{Fault, PortRef};
use crate::weights;

use DataType as D;

/// The element types by their number, from 1: the name, and the data type or what is needed in its place.
const TYPES: &[(&str, Result<DataType, &str>)] = &[
    ("float", Ok(D::F32)),
    ("uint8", Ok(D::U8)),
    ("int8", Ok(D::S8)),
    ("uint16", Ok(D::U16)),
    ("int16", Ok(D::S16)),
    ("int32", Ok(D::S32)),
    ("int64", Ok(D::S64)),
    ("string", Err(NO_TEXT)),
    ("bool", Ok(D::Boolean)),
    ("float16", Ok(D::F16)),
    ("double", Ok(D::F64)),
    ("uint32", Ok(D::U32)),
    ("uint64", Ok(D::U64)),
    ("complex64", Err(REAL)),
    ("complex128", Err(REAL)),
    ("bfloat16", Ok(D::Bf16)),
    ("float8e4m3fn", Ok(D::F8E4m3)),
    ("float8e4m3fnuz", Err(OCP)),
    ("float8e5m2", Ok(D::F8E5m2)),
    ("float8e5m2fnuz", Err(OCP)),
    ("uint4", Ok(D::U4)),
    ("int4", Ok(D::S4)),
    ("float4e2m1", Err(WHOLE_BYTES)),
    ("float8e8m0", Err(NO_SCALE)),
    ("uint2", Err(WHOLE_BYTES)),
    ("int2", Err(WHOLE_BYTES)),
];

/// The refusal of a value that has no elements of one type.
const NO_TENSOR: RefusedType =
    RefusedType { given: "no tensor", needed: "a tensor, not a sequence, a map or an optional" };

/// The data type of a number of ONNX.
pub(super) fn data_type(number: i64) -> Result<DataType, RefusedType> {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let &(given, data_type) = index.and_then(|index| TYPES.get(index)).ok_or(RefusedType::UNKNOWN)?;
    data_type.map_err(|needed| RefusedType { given, needed })
}

/// The place of a tensor in messages: the first output of what holds it.
fn place() -> PortRef {
    PortRef { direction: Direction::Output, id: 0, name: "" }
}

/// The fault of an input or constant of a type that no tensor here has.
pub(super) fn no_type(refused: RefusedType) -> Fault {
    refused.at(place())
}

/// The type of an input or output of a model, and its dims if there are any: `None` for one that is open,
/// which some exporters write as −1.
pub(super) fn described(info: &ValueInfo) -> (Result<DataType, RefusedType>, Option<Vec<Option<i64>>>) {
    let Some(tensor) = info.of.as_ref().and_then(|of| of.tensor.as_ref()) else {
        return (Err(NO_TENSOR), None);
    };
    let dims = |shape: &Shape| shape.dims.iter().map(|dim| dim.value.filter(|&dim| dim != -1)).collect();
    (data_type(tensor.element.into()), tensor.shape.as_ref().map(dims))
}

/// The shape of an input or output of a model, if there is one.
pub(super) fn shape(info: &ValueInfo) -> Option<&Shape> {
    info.of.as_ref()?.tensor.as_ref()?.shape.as_ref()
}

/// The value of a constant, whose elements are those of files.
pub(super) fn value(
    tensor: &TensorText,
    files: &ElementFiles,
    builder: &mut Builder<'_>,
) -> Result<Constant, Fault> {
    let data_type = data_type(tensor.data_type.into()).map_err(no_type)?;
    if tensor.segment.is_some() {
        return Err(Fault::Unsupported { needed: "a constant in one segment".into() });
    }
    // The description refuses dims that no tensor has.
    let needed = weights::stored_bytes(data_type, &tensor.dims)?;
    builder.charge_stored(needed)?;
    files.once(tensor, || match &tensor.raw {
        _ if tensor.location == 1 => files.external(data_type, tensor, needed),
        Some(raw) => {
            element_files::sized(raw.len(), needed)?;
            files.within(data_type, &tensor.dims, raw)
        }
        None => {
            let bytes = element_files::of_fields(data_type, tensor, needed)?;
            Ok(weights::of_little_endian(data_type, &tensor.dims, bytes)?)
        }
    })
}
