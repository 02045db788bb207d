//! Reads models of ONNX and OpenVINO, and graphs in JSON, for programs that use the C interface of Sterna.
//!
//! A shared library of its own, `libsterna_models.so`, whose header is `sterna_models.h`: a program that
//! reads no models does not carry the readers. It runs nothing. It hands graphs to `libsterna.so` through
//! `sterna.h`, and lends constants by address, so that a process has one engine and one cache.
//!
//! Of the library itself it links what readers need: the schema of ops, shape inference, and the reference
//! interpreter, which folds constants.
#![allow(
    clippy::missing_safety_doc,
    reason = "what C callers must keep to is said in the header, for them to read"
)]

mod fault;
mod hand_over;
mod sterna_h;

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::NonNull;

use sterna_import::{ModelFile, Options};

use crate::fault::{Fault, array, ffi_guard, last_message, require, text};
pub use crate::sterna_h::{Model, Status};

/// A length of an open dim that has a name.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct NamedDim {
    /// The name.
    pub name: *const c_char,
    /// The length.
    pub length: i64,
}

/// The options of the readers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FileOptions {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The file of constants of a model of OpenVINO; null for the one beside it.
    pub constants: *const c_char,
    /// Unless 0, files are read instead of mapped.
    pub own_constants: c_int,
    /// Unless 0, a layer that is not known becomes an op of the caller's own.
    pub partial: c_int,
    /// The number of named dims that are given.
    pub dim_num: usize,
    /// The named dims.
    pub dims: *const NamedDim,
}

/// The options of a caller.
///
/// # Safety
///
/// Unless it is null, the struct has the size that it says, and what it points to can be read.
unsafe fn options<'a>(at: *const FileOptions) -> Result<(Options, Option<&'a str>), Fault> {
    let mut options = Options::default();
    let Some(at) = NonNull::new(at.cast_mut()) else { return Ok((options, None)) };
    // SAFETY: the caller promises that a size stands there.
    let size = unsafe { at.as_ptr().cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() || size > size_of::<FileOptions>() {
        let message = format!("`struct_size` is {size}, not at most {}", size_of::<FileOptions>());
        return Err(Fault::invalid_arguments(message));
    }
    let mut given = MaybeUninit::<FileOptions>::zeroed();
    // SAFETY: the caller promises so many bytes; any bits are integers and raw pointers.
    let given = unsafe {
        at.as_ptr().cast::<u8>().copy_to_nonoverlapping(given.as_mut_ptr().cast(), size);
        given.assume_init()
    };
    options.own_constants = given.own_constants != 0;
    options.partial = given.partial != 0;
    // SAFETY: the caller promises so many dims, each with its name.
    for dim in unsafe { array(given.dims, given.dim_num, "dims") }? {
        // SAFETY: as above.
        options.dims.insert(unsafe { text(dim.name, "dims") }?.to_owned(), dim.length);
    }
    match given.constants.is_null() {
        true => Ok((options, None)),
        // SAFETY: the caller promises text that ends with a zero.
        false => Ok((options, Some(unsafe { text(given.constants, "constants") }?))),
    }
}

/// True if text may be a graph in JSON.
fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

/// The largest graph in JSON that is read.
const MAX_JSON: u64 = 1 << 30;

fn opened(path: &Path, constants: Option<&str>, options: &Options) -> Result<*mut Model, Fault> {
    if is_json(path) {
        let unread = |error: std::io::Error| {
            Fault::invalid_arguments(format!("{} cannot be read: {error}", path.display()))
        };
        let length = path.metadata().map_err(unread)?.len();
        if length > MAX_JSON {
            let message = format!("{} has {length} bytes, more than {MAX_JSON}", path.display());
            return Err(Fault::invalid_arguments(message));
        }
        return hand_over::from_json(&std::fs::read_to_string(path).map_err(unread)?);
    }
    let file = match constants {
        Some(constants) => ModelFile::open_with(path, Some(Path::new(constants)), options),
        None => ModelFile::open(path, options),
    };
    hand_over::handed_over(&file?.try_into()?)
}

/// See `sterna_models.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_models_open(
    model: Option<&mut MaybeUninit<*mut Model>>,
    path: *const c_char,
    options: *const FileOptions,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        // SAFETY: the caller promises text that ends with a zero, and options as the header says.
        let (path, (options, constants)) = unsafe { (text(path, "path")?, self::options(options)?) };
        model.write(opened(Path::new(path), constants, &options)?);
        Ok(())
    })
}

/// See `sterna_models.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_models_read_onnx(
    model: Option<&mut MaybeUninit<*mut Model>>,
    data: *const c_void,
    size: usize,
    options: *const FileOptions,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        // SAFETY: the caller promises so many bytes, and options as the header says.
        let (bytes, (options, _)) =
            unsafe { (array(data.cast::<u8>(), size, "data")?, self::options(options)?) };
        let file = ModelFile::onnx(bytes, &options)?;
        model.write(hand_over::handed_over(&file.try_into()?)?);
        Ok(())
    })
}

/// See `sterna_models.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_models_read_openvino(
    model: Option<&mut MaybeUninit<*mut Model>>,
    xml: *const c_char,
    data: *const c_void,
    size: usize,
    options: *const FileOptions,
) -> Status {
    ffi_guard(|| {
        let model = require(model, "model")?;
        // SAFETY: the caller promises text that ends with a zero, so many bytes, and options as the header
        // says.
        let (xml, bytes, (options, _)) =
            unsafe { (text(xml, "xml")?, array(data.cast::<u8>(), size, "data")?, self::options(options)?) };
        let file = ModelFile::openvino(xml, bytes.to_vec(), &options)?;
        model.write(hand_over::handed_over(&file.try_into()?)?);
        Ok(())
    })
}

/// See `sterna_models.h`.
#[unsafe(no_mangle)]
pub extern "C" fn sterna_models_last_error_message() -> *const c_char {
    last_message()
}
