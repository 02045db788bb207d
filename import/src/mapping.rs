//! Files that hold the elements of constants: mapped to memory, or read.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sterna::DataType;

use crate::constant::Constant;
use crate::error::Fault;
use crate::files::said;
use crate::mapped_file::MappedFile;
use crate::sizes;
use crate::weights;

/// The bytes of constants: of a file, which is mapped or read where they are asked for, or in memory.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// The name of the file in messages.
    name: String,
    /// Reads what cannot stay where it is, so that pages of the mapping are not there twice.
    file: Option<Mutex<File>>,
    /// All bytes, where the file is mapped or they came without one.
    bytes: Option<Bytes>,
    /// The mapping of the file.
    mapping: Option<MappedFile>,
    /// The number of bytes when the file was opened.
    length: u64,
}

impl Stored {
    /// The bytes of a plain file: mapped, or else read as they are asked for. A system that cannot map the
    /// file has them read as well.
    pub(crate) fn open(name: &str, file: File, is_mapped: bool) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mapping = if is_mapped { MappedFile::new(&file).ok() } else { None };
        let bytes = mapping.clone().map(Bytes::from_owner);
        // The file may have grown before it was mapped.
        let length = bytes.as_ref().map_or(length, |bytes| bytes.len() as u64);
        Ok(Self { name: name.to_owned(), file: Some(Mutex::new(file)), bytes, mapping, length })
    }

    /// Bytes that are in memory.
    pub(crate) fn of_bytes(bytes: Bytes) -> Self {
        Self { length: bytes.len() as u64, bytes: Some(bytes), ..Self::default() }
    }

    /// All bytes, if they are in memory or mapped.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        self.bytes.as_ref()
    }

    /// The number of bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The place of bytes that are part of these.
    pub(crate) fn place_of(&self, part: &Bytes) -> Option<u64> {
        let bytes = self.bytes.as_ref()?;
        let place = part.as_ptr().addr().checked_sub(bytes.as_ptr().addr())?;
        (place + part.len() <= bytes.len()).then_some(place as u64)
    }

    /// A constant out of the bytes, which has `size` of them from `offset` on.
    pub(crate) fn constant(
        &self,
        data_type: DataType,
        dims: &[i64],
        (offset, size): (u64, u64),
    ) -> Result<Constant, Fault> {
        let available = self.length;
        let end = offset.checked_add(size).filter(|&end| end <= available);
        let end = end.ok_or(Fault::Weights { offset, size, available })?;
        // Both are at most the number of bytes.
        let part = self.bytes.as_ref().map(|bytes| bytes.slice(offset as usize..end as usize));
        let in_place =
            part.as_ref().and_then(|part| Constant::part(data_type, dims, part, self.mapping.as_ref()));
        if let Some(constant) = in_place {
            return Ok(constant);
        }
        let mut own = sizes::room(usize::try_from(size).unwrap_or(usize::MAX))?;
        match (&self.file, part) {
            (Some(file), _) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let found = file.seek(SeekFrom::Start(offset));
                let read = found.and_then(|_| (&*file).take(size).read_to_end(&mut own));
                read.map_err(|error| Fault::External { file: self.name.clone(), what: said(&error) })?;
            }
            (None, part) => own.extend_from_slice(&part.unwrap_or_default()),
        }
        // The file may be shorter by now.
        let given = own.len() as u64;
        if given != size {
            return Err(Fault::Weights { offset, size, available: offset + given });
        }
        Ok(weights::of_little_endian(data_type, dims, own)?)
    }
}
