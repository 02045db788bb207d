//! The types and the tensors of ONNX.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path};

use sterna::reference::Value;
use sterna::{DataType, Direction};

use super::proto::{TensorText, ValueInfo};
use crate::builder::Builder;
use crate::elements::{NO_SCALE, NO_TEXT, OCP, REAL, RefusedType, WHOLE_BYTES};
use crate::error::{Fault, PortRef};
use crate::files::{open_plain, said};
use crate::names::Shown;
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
    let dims = tensor
        .shape
        .as_ref()
        .map(|shape| shape.dims.iter().map(|dim| dim.value.filter(|&dim| dim != -1)).collect());
    (data_type(tensor.element.into()), dims)
}

/// The value of a constant. `folder` is where the files with the elements of large constants lie.
pub(super) fn value(
    tensor: &TensorText,
    folder: Option<&Path>,
    builder: &mut Builder<'_>,
) -> Result<Value, Fault> {
    let data_type = data_type(tensor.data_type.into()).map_err(no_type)?;
    if tensor.segment.is_some() {
        return Err(Fault::Unsupported { needed: "a constant in one segment".into() });
    }
    // The description refuses dims that no tensor has.
    let needed = weights::stored_bytes(data_type, &tensor.dims)?;
    builder.charge_stored(needed)?;
    let dims = &tensor.dims;
    if tensor.location == 1 {
        let bytes = external(tensor, folder, needed)?;
        return Ok(weights::of_little_endian(data_type, dims, &bytes)?);
    }
    if let Some(raw) = &tensor.raw {
        sized(raw.len(), needed)?;
        return Ok(weights::of_little_endian(data_type, dims, raw)?);
    }
    let size = data_type.size().unwrap_or(1);
    let mut bytes = weights::room(needed)?;
    macro_rules! gathered {
        ($elements:expr, $to:ty) => {{
            sized($elements.len() * size, needed)?;
            $elements.iter().for_each(|&element| bytes.extend((element as $to).to_le_bytes()));
        }};
    }
    match data_type {
        D::F32 => gathered!(tensor.floats, f32),
        D::F64 => gathered!(tensor.doubles, f64),
        D::S64 => gathered!(tensor.int64s, i64),
        D::U64 => gathered!(tensor.uint64s, u64),
        D::U32 => gathered!(tensor.uint64s, u32),
        D::S32 => gathered!(tensor.int32s, i32),
        // The bits of these types stand in the low bits of a number, two elements of four bits in one byte.
        _ if size == 2 => gathered!(tensor.int32s, u16),
        _ => gathered!(tensor.int32s, u8),
    }
    Ok(weights::of_little_endian(data_type, dims, &bytes)?)
}

fn sized(given: usize, needed: usize) -> Result<(), Fault> {
    if given == needed {
        return Ok(());
    }
    Err(Fault::Size { given: given as u64, needed: needed as u64 })
}

/// The elements that stand in a file of their own, beneath the folder of the model.
fn external(tensor: &TensorText, folder: Option<&Path>, needed: usize) -> Result<Vec<u8>, Fault> {
    let entry = |key: &str| tensor.external.iter().find(|entry| entry.key == key).map(|entry| &*entry.value);
    let number = |key: &str| -> Result<Option<u64>, Fault> {
        match entry(key) {
            None => Ok(None),
            Some(text) => {
                let number = text.parse::<u64>().map_err(|_| Fault::of_attribute(key, "a whole number"))?;
                Ok(Some(number))
            }
        }
    };
    let location = entry("location").ok_or(Fault::MissingAttribute { attribute: "location" })?;
    let external = |what: &str| Fault::External { file: Shown(location).to_string(), what: what.to_owned() };
    let outside = || external("it does not lie beneath the folder of the model");
    let unread = |error: io::Error| external(&said(&error));
    let folder = folder.ok_or_else(|| external("only a model that is read from a file has them"))?;
    let location = Path::new(location);
    if !location.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    // Links are followed before the place is judged.
    let folder = folder.canonicalize().map_err(unread)?;
    let path = folder.join(location).canonicalize().map_err(unread)?;
    if !path.starts_with(&folder) {
        return Err(outside());
    }
    let mut file = open_plain(&path).map_err(unread)?;
    let available = file.metadata().map_err(unread)?.len();
    let size = length.unwrap_or(available.saturating_sub(offset));
    if offset.checked_add(size).is_none_or(|end| end > available) {
        return Err(Fault::Weights { offset, size, available });
    }
    if size != needed as u64 {
        return Err(Fault::Size { given: size, needed: needed as u64 });
    }
    let mut bytes = weights::room(needed)?;
    file.seek(SeekFrom::Start(offset)).map_err(unread)?;
    file.take(size).read_to_end(&mut bytes).map_err(unread)?;
    sized(bytes.len(), needed)?;
    Ok(bytes)
}
