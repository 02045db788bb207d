//! Files that a model or a user names: what they are is known before they are opened.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens a plain file for reading. A directory, a device, a FIFO or a socket is refused before it is opened:
/// one may hold a reader up, another may never end.
///
/// # Errors
///
/// Those of the system; [`ErrorKind::InvalidInput`] for what is no plain file.
///
/// ```
/// use std::path::Path;
/// let error = sterna_import::open_plain(Path::new("/")).unwrap_err();
/// assert_eq!(error.to_string(), "it is a directory, and a plain file is needed");
/// ```
pub fn open_plain(path: &Path) -> io::Result<File> {
    open_if(path, |file_type| file_type.is_file(), "a plain file")
}

/// Opens a file that a user names as the whole input: a plain file, or a FIFO, which another program may
/// write. A directory, a device or a socket is refused before it is opened.
///
/// # Errors
///
/// Those of the system; [`ErrorKind::InvalidInput`] for what is neither.
///
/// ```
/// use std::path::Path;
/// let error = sterna_import::open_stream(Path::new("/")).unwrap_err();
/// assert_eq!(error.to_string(), "it is a directory, and a plain file or a FIFO is needed");
/// ```
pub fn open_stream(path: &Path) -> io::Result<File> {
    open_if(path, |file_type| file_type.is_file() || is_fifo(file_type), "a plain file or a FIFO")
}

fn open_if(path: &Path, takes: impl Fn(FileType) -> bool, needed: &str) -> io::Result<File> {
    let check = |metadata: Metadata| match takes(metadata.file_type()) {
        true => Ok(()),
        false => {
            let text = format!("{}, and {needed} is needed", kind(metadata.file_type()));
            Err(io::Error::new(ErrorKind::InvalidInput, text))
        }
    };
    let before = path.metadata()?;
    let waits = is_fifo(before.file_type());
    check(before)?;
    let mut options = OpenOptions::new();
    options.read(true);
    if !waits {
        do_not_wait(&mut options);
    }
    let file = options.open(path)?;
    // Another file may have taken its place meanwhile.
    check(file.metadata()?)?;
    Ok(file)
}

/// Reads to the end; `None` if there is more than so many bytes.
///
/// # Errors
///
/// Those of the system.
///
/// ```
/// assert_eq!(sterna_import::read_at_most(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
/// assert_eq!(sterna_import::read_at_most(&b"abc"[..], 2).unwrap(), None);
/// ```
pub fn read_at_most(from: impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take((most as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= most).then_some(bytes))
}

/// A fault of the system in words, without the path.
pub(crate) fn said(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidInput => error.to_string(),
        kind => kind.to_string(),
    }
}

/// The kind of a file, as a sentence.
fn kind(file_type: FileType) -> &'static str {
    match () {
        () if file_type.is_file() => "it is a plain file",
        () if file_type.is_dir() => "it is a directory",
        () if is_fifo(file_type) => "it is a FIFO",
        () => other_kind(file_type),
    }
}

#[cfg(unix)]
fn is_fifo(file_type: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&file_type)
}

#[cfg(not(unix))]
fn is_fifo(_: FileType) -> bool {
    false
}

#[cfg(unix)]
fn other_kind(file_type: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match () {
        () if file_type.is_socket() => "it is a socket",
        () if file_type.is_char_device() || file_type.is_block_device() => "it is a device",
        () => "it is no file",
    }
}

#[cfg(not(unix))]
fn other_kind(_: FileType) -> &'static str {
    "it is no file"
}

/// Lets an open that would wait, because the path has become a FIFO meanwhile, return at once. The number is
/// that of `O_NONBLOCK` on these targets.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64", target_arch = "s390x")
))]
fn do_not_wait(options: &mut OpenOptions) {
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, 0o4000);
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64", target_arch = "s390x")
)))]
fn do_not_wait(_: &mut OpenOptions) {}
