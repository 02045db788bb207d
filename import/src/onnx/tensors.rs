//! The types and the tensors of ONNX.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path};

use sterna::reference::Value;
use sterna::{DataType, Direction};

use super::proto::{TensorText, ValueInfo};
use crate::builder::Builder;
use crate::error::{Fault, PortRef};
use crate::weights;

use DataType as D;

/// The types whose elements a tensor here can have.
pub(super) const WHOLE: &str = "a type whose elements are whole bytes, and no FNUZ or scale type";

/// The element types by their number, from 1.
const TYPES: &[(&str, Option<DataType>)] = &[
    ("float", Some(D::F32)),
    ("uint8", Some(D::U8)),
    ("int8", Some(D::S8)),
    ("uint16", Some(D::U16)),
    ("int16", Some(D::S16)),
    ("int32", Some(D::S32)),
    ("int64", Some(D::S64)),
    ("string", None),
    ("bool", Some(D::Boolean)),
    ("float16", Some(D::F16)),
    ("double", Some(D::F64)),
    ("uint32", Some(D::U32)),
    ("uint64", Some(D::U64)),
    ("complex64", None),
    ("complex128", None),
    ("bfloat16", Some(D::Bf16)),
    ("float8e4m3fn", Some(D::F8E4m3)),
    ("float8e4m3fnuz", None),
    ("float8e5m2", Some(D::F8E5m2)),
    ("float8e5m2fnuz", None),
    ("uint4", None),
    ("int4", None),
    ("float4e2m1", None),
    ("float8e8m0", None),
    ("uint2", None),
    ("int2", None),
];

fn row(number: i64) -> Option<&'static (&'static str, Option<DataType>)> {
    TYPES.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

/// The data type of a number of ONNX, or the words for what it means.
pub(super) fn data_type(number: i64) -> Result<DataType, &'static str> {
    match row(number) {
        Some((_, Some(data_type))) => Ok(*data_type),
        Some((name, None)) => Err(name),
        None => Err("of an unknown type"),
    }
}

/// The place of a tensor in messages: the first output of what holds it.
fn place() -> PortRef {
    PortRef { direction: Direction::Output, id: 0, name: "" }
}

/// A type that no tensor here has.
pub(super) fn no_type(given: &str) -> Fault {
    Fault::Type { port: place(), given: given.into(), needed: WHOLE.into() }
}

/// The type of an input or output of a model, and its dims if there are any: `None` for one without a name.
pub(super) fn described(info: &ValueInfo) -> (Result<DataType, &'static str>, Option<Vec<Option<i64>>>) {
    let Some(tensor) = info.of.as_ref().and_then(|of| of.tensor.as_ref()) else {
        return (Err("no tensor"), None);
    };
    let dims = tensor.shape.as_ref().map(|shape| shape.dims.iter().map(|dim| dim.value).collect());
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
    let needed = weights::byte_count(data_type, &tensor.dims)?.unwrap_or(0);
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
        // The bits of these types stand in the low bits of a number.
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
    let outside = || Fault::External { what: "it does not lie beneath the folder of the model" };
    let unread = |_| Fault::External { what: "it cannot be read" };
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
    let folder = folder.ok_or(Fault::External { what: "only a model that is read from a file has them" })?;
    let location = Path::new(entry("location").ok_or(Fault::MissingAttribute { attribute: "location" })?);
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
    let mut file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if !metadata.is_file() {
        return Err(Fault::External { what: "it is no plain file" });
    }
    let available = metadata.len();
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
