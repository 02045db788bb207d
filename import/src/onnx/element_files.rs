//! Where the elements of constants of ONNX stand: in the file of the model, or in files beneath its folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sterna::DataType;

use super::proto::TensorText;
use crate::constant::Constant;
use crate::error::Fault;
use crate::files::{open_plain, said};
use crate::mapping::Stored;
use crate::names::Shown;
use crate::weights;

/// The bytes of a model, and of the files with elements beside it. Each file is opened once, and elements
/// that are copied are copied once, however often the model is read.
#[derive(Debug, Default)]
pub(super) struct ElementFiles {
    /// The file of the model.
    model: Stored,
    /// Where the others lie; `None` if the model was no file.
    folder: Option<PathBuf>,
    /// The others are mapped.
    is_mapped: bool,
    others: Mutex<BTreeMap<String, Arc<Stored>>>,
    /// Constants that have their own elements, by the address of their text in the model.
    copies: Mutex<BTreeMap<usize, Constant>>,
}

impl ElementFiles {
    /// Those of a model that is a file.
    pub(super) fn beside(model: Stored, path: &Path, is_mapped: bool) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = Some(folder.unwrap_or(Path::new(".")).to_owned());
        Self { model, folder, is_mapped, ..Self::default() }
    }

    /// A constant that was copied before, or else the one that a function makes.
    pub(super) fn once(
        &self,
        text: &TensorText,
        make: impl FnOnce() -> Result<Constant, Fault>,
    ) -> Result<Constant, Fault> {
        let key = std::ptr::from_ref(text).addr();
        if let Some(constant) = locked(&self.copies).get(&key) {
            return Ok(constant.clone());
        }
        let constant = make()?;
        if !constant.is_mapped() {
            locked(&self.copies).insert(key, constant.clone());
        }
        Ok(constant)
    }

    /// A constant whose elements are bytes of the model.
    pub(super) fn within(&self, data_type: DataType, dims: &[i64], bytes: &Bytes) -> Result<Constant, Fault> {
        let size = bytes.len() as u64;
        match self.model.place_of(bytes) {
            Some(offset) => self.model.constant(data_type, dims, (offset, size)),
            // Each field was decoded to memory of its own.
            None => Stored::of_bytes(bytes.clone()).constant(data_type, dims, (0, size)),
        }
    }

    /// A constant whose elements stand in a file of their own, beneath the folder of the model.
    pub(super) fn external(
        &self,
        data_type: DataType,
        text: &TensorText,
        needed: usize,
    ) -> Result<Constant, Fault> {
        let number = |key: &str| -> Result<Option<u64>, Fault> {
            let number = entry(text, key).map(str::parse::<u64>).transpose();
            number.map_err(|_| Fault::of_attribute(key, "a whole number"))
        };
        let location = entry(text, "location").ok_or(Fault::MissingAttribute { attribute: "location" })?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let file = self.other(location)?;
        let available = file.length();
        let size = length.unwrap_or(available.saturating_sub(offset));
        if offset.checked_add(size).is_none_or(|end| end > available) {
            return Err(Fault::Weights { offset, size, available });
        }
        if size != needed as u64 {
            return Err(Fault::Size { given: size, needed: needed as u64 });
        }
        file.constant(data_type, &text.dims, (offset, size))
    }

    /// A file beneath the folder of the model.
    fn other(&self, location: &str) -> Result<Arc<Stored>, Fault> {
        let mut others = locked(&self.others);
        if let Some(file) = others.get(location) {
            return Ok(file.clone());
        }
        let name = Shown(location).to_string();
        let external = |what: &str| Fault::External { file: name.clone(), what: what.to_owned() };
        let outside = || external("it does not lie beneath the folder of the model");
        let unread = |error: io::Error| external(&said(&error));
        let folder = self.folder.as_ref();
        let folder = folder.ok_or_else(|| external("only a model that is read from a file has them"))?;
        let path = Path::new(location);
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(outside());
        }
        // Links are followed before the place is judged.
        let folder = folder.canonicalize().map_err(unread)?;
        let path = folder.join(path).canonicalize().map_err(unread)?;
        if !path.starts_with(&folder) {
            return Err(outside());
        }
        let file = open_plain(&path).map_err(unread)?;
        let file = Arc::new(Stored::open(&name, file, self.is_mapped).map_err(unread)?);
        others.insert(location.to_owned(), file.clone());
        Ok(file)
    }
}

fn entry<'a>(text: &'a TensorText, key: &str) -> Option<&'a str> {
    text.external.iter().find(|entry| entry.key == key).map(|entry| &*entry.value)
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The elements that stand in the fields of their type, as bytes in little-endian order.
pub(super) fn of_fields(data_type: DataType, text: &TensorText, needed: usize) -> Result<Vec<u8>, Fault> {
    use DataType as D;
    let size = data_type.size().unwrap_or(1);
    let mut bytes = weights::room(needed)?;
    macro_rules! gathered {
        ($elements:expr, $to:ty) => {{
            sized($elements.len() * size, needed)?;
            $elements.iter().for_each(|&element| bytes.extend((element as $to).to_le_bytes()));
        }};
    }
    match data_type {
        D::F32 => gathered!(text.floats, f32),
        D::F64 => gathered!(text.doubles, f64),
        D::S64 => gathered!(text.int64s, i64),
        D::U64 => gathered!(text.uint64s, u64),
        D::U32 => gathered!(text.uint64s, u32),
        D::S32 => gathered!(text.int32s, i32),
        // The bits of these types stand in the low bits of a number, two elements of four bits in one byte.
        _ if size == 2 => gathered!(text.int32s, u16),
        _ => gathered!(text.int32s, u8),
    }
    Ok(bytes)
}

/// Refuses another number of bytes than is needed.
pub(super) fn sized(given: usize, needed: usize) -> Result<(), Fault> {
    if given == needed {
        return Ok(());
    }
    Err(Fault::Size { given: given as u64, needed: needed as u64 })
}
