//! Tensors in `.npy` files: the header is read and written by a library, the elements are moved as bytes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, WriteOptions, WriterBuilder};
use sterna::reference::Value;
use sterna::{DataType, Engine, LogicalTensor, TensorBuf};
use sterna_import::open_plain;

use crate::room::room_for;

/// The longest header that is read. Plain arrays need less.
const LONGEST_HEADER: usize = 1024;

/// The names of a type in a file, the preferred one first; each has as many bytes as the type.
fn file_types(data_type: DataType) -> &'static [TypeChar] {
    use DataType as D;
    match data_type {
        D::F16 | D::F32 | D::F64 => &[TypeChar::Float],
        D::S8 | D::S16 | D::S32 | D::S64 => &[TypeChar::Int],
        D::U8 | D::U16 | D::U32 | D::U64 | D::Bf16 | D::F8E5m2 | D::F8E4m3 => &[TypeChar::Uint],
        D::Boolean => &[TypeChar::Bool, TypeChar::Uint],
        _ => &[],
    }
}

/// The remark due for types that `.npy` has no name for.
pub(crate) fn note(shown: &str, data_type: DataType) -> Option<String> {
    let bytes = data_type.bits() / 8;
    lacks_name(data_type).then(|| {
        format!("{shown} is {data_type}, for which .npy has no type; the file holds its bits as u{bytes}")
    })
}

fn lacks_name(data_type: DataType) -> bool {
    matches!(data_type, DataType::Bf16 | DataType::F8E5m2 | DataType::F8E4m3)
}

/// The type and the shape that a file says that it holds; no type if tensors have none such.
pub(crate) fn description(path: &Path) -> Result<(Option<DataType>, Vec<i64>)> {
    let file = open_plain(path).with_context(|| format!("cannot open {}", path.display()))?;
    described(&mut BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))
}

/// The type and the shape that the header says.
pub(crate) fn described(mut file: &mut dyn Read) -> Result<(Option<DataType>, Vec<i64>)> {
    let header = header(&mut file)?;
    let DType::Plain(found) = header.dtype() else { bail!("it holds records; save a plain array") };
    let is_found = |data_type: &DataType| {
        // A tensor whose type has no name in such files stands under another name.
        !lacks_name(*data_type)
            && file_types(*data_type).first() == Some(&found.type_char())
            && data_type.size() == found.num_bytes()
    };
    let dims = header.shape().iter().map(|&dim| i64::try_from(dim)).collect::<Result<_, _>>()?;
    Ok((DataType::WHOLE.iter().copied().find(is_found), dims))
}

/// Reads the value of a tensor, which messages call `shown`.
pub(crate) fn read(path: &Path, desc: &LogicalTensor, shown: &str) -> Result<Value> {
    let file = open_plain(path).with_context(|| format!("cannot open {}", path.display()))?;
    parse(BufReader::new(file), desc).with_context(|| format!("cannot read {shown} from {}", path.display()))
}

/// Reads the value of a tensor from the bytes of a file, to their end.
pub(crate) fn parse(mut file: impl Read, desc: &LogicalTensor) -> Result<Value> {
    let header = header(&mut file)?;
    let DType::Plain(found) = header.dtype() else { bail!("it holds records; save a plain array") };
    let data_type = desc.data_type();
    let size =
        data_type.size().with_context(|| format!("elements of type {data_type} are not whole bytes"))?;
    let expected = file_types(data_type);
    ensure!(
        expected.contains(&found.type_char()) && found.num_bytes() == Some(size),
        "its elements are {found}, but the tensor is {data_type}; save it as {}",
        expected.iter().map(|char| format!("{}{size}", char.to_str())).collect::<Vec<_>>().join(" or ")
    );
    let dims: Vec<u64> = desc.dims().unwrap_or(&[]).iter().map(|&dim| dim as u64).collect();
    ensure!(
        header.shape() == dims,
        "its shape is {:?}, but that of the tensor is {dims:?}; save it in the shape of the tensor, or give \
         the tensor another with --shape",
        header.shape()
    );

    let count = desc.element_count().unwrap_or(0);
    let mut elements = room_for(count, size)?;
    file.by_ref().take((count * size) as u64).read_to_end(&mut elements)?;
    ensure!(elements.len() == count * size, "it ends after {} of {} bytes", elements.len(), count * size);
    ensure!(file.read(&mut [0])? == 0, "it goes on after the {} bytes of the array", count * size);

    if found.endianness() != Endianness::Irrelevant && found.endianness() != Endianness::of_machine() {
        elements.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    match header.order() {
        Order::C => Ok(Value::new(data_type, desc.dims().unwrap_or(&[]), elements)?),
        Order::Fortran => {
            let strides: Vec<i64> = header.strides().iter().map(|&stride| stride as i64).collect();
            let columns =
                LogicalTensor::with_strides(desc.id(), data_type, desc.dims().unwrap_or(&[]), &strides)?;
            let mut tensor = TensorBuf::zeroed(columns, &Engine::new())?;
            tensor.as_mut_bytes().copy_from_slice(&elements);
            Ok(Value::read(&tensor.as_tensor())?)
        }
    }
}

/// Parses the header, after a look at its length and its form: the parser trusts the length, and takes
/// exponential time for nested brackets.
fn header(file: &mut impl Read) -> Result<NpyHeader> {
    let mut start = [0; 10];
    file.read_exact(&mut start).context("it is too short for an .npy file")?;
    ensure!(start.starts_with(b"\x93NUMPY"), "it is no .npy file");
    let mut text = start.to_vec();
    let mut length = usize::from(u16::from_le_bytes([start[8], start[9]]));
    if start[6] >= 2 {
        let mut high = [0; 2];
        file.read_exact(&mut high).context("it is too short for an .npy file")?;
        text.extend_from_slice(&high);
        length |= usize::from(u16::from_le_bytes(high)) << 16;
    }
    ensure!(
        length <= LONGEST_HEADER,
        "its header of {length} bytes is longer than that of any plain array; save a plain array"
    );
    let dict = text.len();
    file.take(length as u64).read_to_end(&mut text)?;
    check_form(&text[dict..])?;
    NpyHeader::from_reader(&text[..]).context("its header makes no sense")
}

/// Checks that a header is a flat dict, as plain arrays have it: strings in single or double quotes, and one
/// level of tuples for the shape. Strings are not empty and hold no escapes, so that quotes alone say where
/// they end.
fn check_form(header: &[u8]) -> Result<()> {
    let mut depth = 0;
    let mut bytes = header.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, depth) {
            (quote @ (b'\'' | b'"'), _) => {
                let string: Vec<u8> = bytes.by_ref().take_while(|&byte| byte != quote).collect();
                ensure!(
                    !string.is_empty() && !string.contains(&b'\\'),
                    "its header makes no sense: a string in it is empty or holds an escape"
                );
            }
            (b'[', _) => bail!("it holds records; save a plain array"),
            (b'{', 0) | (b'(', 1) => depth += 1,
            (b'{' | b'(', _) => bail!("its header makes no sense: its brackets are nested"),
            (b'}' | b')', _) => depth -= 1,
            _ => {}
        }
    }
    Ok(())
}

/// Writes the value of a tensor to a file, and says what [`encode`] says.
pub(crate) fn write(path: &Path, shown: &str, value: &Value) -> Result<Option<String>> {
    let write = || -> Result<Option<String>> {
        let mut file = BufWriter::new(File::create(path)?);
        let note = encode(&mut file, shown, value)?;
        file.flush()?;
        Ok(note)
    };
    write().with_context(|| format!("cannot write {shown} to {}", path.display()))
}

/// Writes the bytes of a file, and says what there is to say about the type in it.
///
/// A boolean tensor whose bytes are not all 0 or 1 is written as bytes: no other bits are bools.
pub(crate) fn encode(file: &mut impl Write, shown: &str, value: &Value) -> Result<Option<String>> {
    let data_type = value.data_type();
    let size = data_type.size().unwrap_or(1);
    let beyond_truth = data_type == DataType::Boolean && value.bytes().iter().any(|&byte| byte > 1);
    let char = match file_types(data_type) {
        [_, bytes] if beyond_truth => bytes,
        [preferred, ..] => preferred,
        [] => bail!("{shown} is {data_type}, which .npy files cannot hold"),
    };
    let order = if size == 1 { Endianness::Irrelevant } else { Endianness::of_machine() };
    let name = format!("{}{}{size}", order.to_str(), char.to_str());
    let dims: Vec<u64> = value.dims().iter().map(|&dim| dim as u64).collect();
    let header = WriteOptions::new_header_only().dtype(DType::new_scalar(name.parse()?)).shape(&dims);
    let file = header.writer(file).write_header_only()?;
    file.write_all(value.bytes())?;
    Ok(match beyond_truth {
        true => Some(format!(
            "{shown} is boolean and holds bytes other than 0 and 1, which a bool of .npy cannot; the \
             file holds them as u1"
        )),
        false => note(shown, data_type),
    })
}
