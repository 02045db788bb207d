//! Arrays in `.npz` files: archives of `.npy` files, stored or deflated.
//!
//! An archive may claim more than it holds, and few bytes may inflate to very many. An array is read only as
//! far as the tensor that it is for needs, and only if its size in the archive is that of the array.
//!
//! Names come from models, and what unpacks an archive makes paths of them. What could lead out of the folder
//! where it unpacks is written as `%` and two digits, as in addresses of the web, and read back as it was.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use sterna::reference::Value;
use sterna::{DataType, LogicalTensor, TensorId};
use sterna_import::open_plain;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::npy;
use crate::words::{plain, shown};

/// The most arrays of an archive.
const MAX_ENTRIES: usize = 4096;

/// The most bytes of an array that is deflated.
const MAX_INFLATED: u64 = 4 << 30;

/// The end of the name of an array's file.
const ENDING: &str = ".npy";

/// An archive that is open.
type Archive = ZipArchive<BufReader<File>>;

fn open(path: &Path) -> Result<Archive> {
    let file = open_plain(path).with_context(|| format!("cannot open {}", path.display()))?;
    let archive = ZipArchive::new(BufReader::new(file))
        .with_context(|| format!("cannot read {}: it is no .npz file", path.display()))?;
    ensure!(
        archive.len() <= MAX_ENTRIES,
        "cannot read {}: it has {} arrays, and at most {MAX_ENTRIES} are taken",
        path.display(),
        archive.len()
    );
    Ok(archive)
}

/// The names of the arrays, in the order of the archive.
pub(crate) fn entries(path: &Path) -> Result<Vec<String>> {
    let archive = open(path)?;
    let names = (0..archive.len()).filter_map(|index| archive.name_for_index(index)?.ok());
    let names: Vec<String> = names.filter_map(|name| Some(read_back(name.strip_suffix(ENDING)?))).collect();
    ensure!(!names.is_empty(), "cannot read {}: it has no arrays", path.display());
    Ok(names)
}

/// Hands the file of an array to a reader, with its size.
fn with_entry<T>(path: &Path, entry: &str, read: impl FnOnce(&mut dyn Read, u64) -> Result<T>) -> Result<T> {
    let read_entry = || {
        let mut archive = open(path)?;
        let held = path.metadata()?.len();
        let written = file_name(entry);
        let is_written = archive.index_for_name(&written).is_some();
        let name = if is_written { written } else { format!("{entry}{ENDING}") };
        let mut file = archive.by_name(&name)?;
        let size = file.size();
        let (most, how) = match file.compression() {
            CompressionMethod::Stored => (held, "holds"),
            CompressionMethod::Deflated => (MAX_INFLATED, "may inflate to"),
            other => bail!(
                "it is compressed in a way that is not read ({other}); save it by np.savez or \
                 np.savez_compressed"
            ),
        };
        ensure!(size <= most, "it claims {size} bytes, and the file {how} {most}");
        // Bytes beyond the size that the archive states stand behind the array, which is refused.
        read(&mut file, size)
    };
    read_entry().with_context(|| format!("cannot read the array `{}` of {}", plain(entry), path.display()))
}

/// The type and the shape of an array, as [`npy::description`] gives them.
pub(crate) fn description(path: &Path, entry: &str) -> Result<(Option<DataType>, Vec<i64>)> {
    with_entry(path, entry, |file, _| npy::described(file))
}

/// Reads the value of a tensor.
pub(crate) fn read(path: &Path, entry: &str, desc: &LogicalTensor) -> Result<Value> {
    with_entry(path, entry, |file, size| {
        // No memory is taken for elements that the archive does not hold.
        let needed = desc.element_count().zip(desc.data_type().size());
        let needed = needed.and_then(|(count, size)| count.checked_mul(size)).map(|bytes| bytes as u64);
        ensure!(
            needed.is_none_or(|needed| needed <= size),
            "it has {size} bytes, fewer than the {} of the tensor",
            needed.unwrap_or_default()
        );
        npy::parse(file, desc)
    })
}

/// Writes the values of tensors by name, and says what there is to say about their types in the file.
pub(crate) fn write(path: &Path, values: &[(String, TensorId, Value)]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let mut write = || -> Result<()> {
        let mut archive = ZipWriter::new(BufWriter::new(File::create(path)?));
        for (name, id, value) in values {
            // As NumPy writes them, so that readers can map them.
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .large_file(value.bytes().len() as u64 >= u64::from(u32::MAX) - 4096);
            let file = file_name(name);
            if file.strip_suffix(ENDING) != Some(name) {
                notes.push(format!(
                    "`{}` is the array of {} in {}",
                    plain(&file),
                    shown(Some(name), *id),
                    path.display()
                ));
            }
            archive.start_file(file, options)?;
            notes.extend(npy::encode(&mut archive, &shown(Some(name), *id), value)?);
        }
        Ok(archive.finish()?.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(notes)
}

/// The file of an array of this name: a path that stays beneath every folder.
fn file_name(name: &str) -> String {
    // Those of the root and of a drive are absolute.
    let drive = name.char_indices().nth(1).filter(|&(_, second)| second == ':');
    let root = name.starts_with('/').then_some(0);
    let outer = drive.map(|(at, _)| at).or(root);
    let mut file = String::with_capacity(name.len() + ENDING.len());
    let mut start = 0;
    for part in name.split_inclusive('/') {
        let is_step = matches!(part.trim_end_matches('/'), "." | "..");
        for (at, letter) in part.char_indices() {
            let is_odd = letter.is_control() || matches!(letter, '\\' | '%') || (is_step && letter == '.');
            if is_odd || outer == Some(start + at) {
                letter
                    .encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| file.push_str(&format!("%{byte:02X}")));
            } else {
                file.push(letter);
            }
        }
        start += part.len();
    }
    file + ENDING
}

/// The name of the array in a file, if [`file_name`] has made the name of the file; else that name.
fn read_back(file: &str) -> String {
    let mut parts = file.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else { return file.into() };
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    let name = String::from_utf8(bytes).ok();
    name.filter(|name| file_name(name).strip_suffix(ENDING) == Some(file)).unwrap_or_else(|| file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_beneath_the_folder_and_are_read_back() {
        let rows = [
            ("dst", "dst"),
            ("", ""),
            ("layers.0/attention/Add:0", "layers.0/attention/Add:0"),
            ("/model/Add", "%2Fmodel/Add"),
            ("//model", "%2F/model"),
            ("..", "%2E%2E"),
            ("../../x", "%2E%2E/%2E%2E/x"),
            ("a/./b/..", "a/%2E/b/%2E%2E"),
            ("...", "..."),
            ("..\\x", "..%5Cx"),
            ("C:/x", "C%3A/x"),
            ("100%", "100%25"),
            ("%2Fx", "%252Fx"),
            ("a\u{0}b\n", "a%00b%0A"),
            ("Größe/λ", "Größe/λ"),
            ("λ:", "λ%3A"),
            ("y.npy", "y.npy"),
        ];
        let mut wrong = Vec::new();
        for (name, file) in rows {
            let made = file_name(name);
            let back = read_back(file);
            if made != format!("{file}{ENDING}") || back != name {
                wrong.push(format!("{name:?}: {made:?}, {back:?}"));
            }
        }
        // Those of others are names as they stand.
        for name in ["a%41", "50%", "/x", "../x", "%zz", "%é", "%FF"] {
            if read_back(name) != name {
                wrong.push(format!("{name:?}: {:?}", read_back(name)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
