//! ONNX: a message of protobuf, with the elements of large constants in files of their own.
//!
//! Models of opsets 7 to 28 are read, and earlier ones as far as their ops are those of opset 7. The nodes of
//! the types that [`op_types`] names become ops; whatever differs in meaning becomes a composition of ops
//! that means the same, or an error that names the node, its type, the input or attribute, and what would be
//! needed. Calls of a model's own functions become what their bodies become. What of a model no output hangs
//! on is left out.
//!
//! Shapes, axes and the like are often inputs of nodes. They must follow from constants, from known shapes or
//! from inputs whose values are given ([`read_with`]): such values are computed when the model is read.
//!
//! ```
//! use sterna::OpKind;
//! use sterna_import::onnx;
//! // The bytes of a model of one node: `y = Exp(x)` on float32 of 2 × 3.
//! let model = b"\x08\x0a\x3a\x31\x0a\x0b\x0a\x01x\x12\x01y\"\x03ExpZ\x13\x0a\x01x\x12\x0e\
//!               \x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03b\x0d\x0a\x01y\x12\x08\x0a\x06\
//!               \x08\x01\x12\x02\x0a\x00B\x04\x0a\x00\x10\x0d";
//! let imported = onnx::read(model)?;
//! assert_eq!(imported.graph.ops()[0].kind(), OpKind::Exp);
//! assert_eq!(imported.input("x")?.tensor.dims(), Some(&[2, 3][..]));
//! # Ok::<(), sterna_import::Error>(())
//! ```

mod document;
mod element_files;
mod graphs;
mod infer;
mod ops;
mod order;
mod proto;
mod reader;
mod replay;
mod skipped;
mod tensors;

use std::collections::BTreeMap;
use std::path::Path;

use sterna::reference::Value;

pub(crate) use self::document::OnnxDocument;
use self::element_files::ElementFiles;
use self::reader::of;
use crate::builder::{Builder, Imported};
use crate::error::Error;
use crate::limits::{Limits, Options};

/// Reads a model: the bytes of an `.onnx` file that holds all its constants.
///
/// # Errors
///
/// [`Error`]; a node that cannot be mapped is one.
///
/// ```
/// use sterna_import::{Error, onnx};
/// assert!(matches!(onnx::read(b"no model"), Err(Error::Document { .. })));
/// ```
pub fn read(model: &[u8]) -> Result<Imported, Error> {
    read_under(model, &Options::default())
}

/// Reads a model as [`read`] does, with the values of some of its inputs, by name: what follows from them
/// alone is computed.
///
/// # Errors
///
/// [`Error`]; [`Error::Name`] as well for the value of an input that is not there.
///
/// ```
/// use std::collections::BTreeMap;
/// use sterna_import::{Error, onnx};
/// use sterna::reference::Value;
/// // `y = Exp(x)`.
/// let model = b"\x08\x0a\x3a\x31\x0a\x0b\x0a\x01x\x12\x01y\"\x03ExpZ\x13\x0a\x01x\x12\x0e\
///               \x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03b\x0d\x0a\x01y\x12\x08\x0a\x06\
///               \x08\x01\x12\x02\x0a\x00B\x04\x0a\x00\x10\x0d";
/// let x = Value::from_slice(&[2, 3], &[0.0f32; 6]).unwrap();
/// let imported = onnx::read_with(model, &BTreeMap::from([("x".into(), x.clone())]))?;
/// let ones = Value::from_slice(&[2, 3], &[1.0f32; 6]).unwrap();
/// assert!(imported.weights.values().any(|value| *value == ones), "the exponentials of 0");
/// let error = onnx::read_with(model, &BTreeMap::from([("z".into(), x)])).unwrap_err();
/// assert_eq!(error.to_string(), "no input is named `z`; there are `x`");
/// # Ok::<(), sterna_import::Error>(())
/// ```
pub fn read_with(model: &[u8], values: &BTreeMap<String, Value>) -> Result<Imported, Error> {
    read_under(model, &Options { values: values.clone(), ..Options::default() })
}

/// Reads a model as [`read`] does, under [`Options`].
///
/// # Errors
///
/// [`Error`]; [`Error::Name`] as well for a shape, type or value of an input that is not there.
///
/// ```
/// use sterna_import::{Error, Limits, Options, onnx};
/// let limits = Limits { elements: 1, ..Limits::default() };
/// let refused = onnx::read_under(b"\x08\x0a\x08\x0a", &Options { limits, ..Options::default() });
/// assert!(matches!(refused, Err(Error::Limit { given: 2, most: 1, .. })));
/// ```
pub fn read_under(model: &[u8], options: &Options) -> Result<Imported, Error> {
    OnnxDocument::of_bytes(model, &options.limits)?.imported(options)
}

/// Reads a model as [`read_under`] does out of a file. Constants may have their elements in files beneath its
/// folder.
///
/// # Errors
///
/// [`Error`]; [`Error::File`] if the file cannot be read.
///
/// ```
/// use std::path::Path;
/// use sterna_import::{Error, Options, onnx};
/// let missing = onnx::read_file(Path::new("no/such.onnx"), &Options::default());
/// assert!(matches!(missing, Err(Error::File { .. })));
/// ```
pub fn read_file(path: &Path, options: &Options) -> Result<Imported, Error> {
    OnnxDocument::open(path, options)?.imported(options)
}

/// A tensor as a file of its own holds it, which ONNX uses for inputs and expected outputs: its name, and its
/// value.
///
/// # Errors
///
/// [`Error`].
///
/// ```
/// use sterna_import::onnx;
/// let (name, value) = onnx::tensor(b"\x08\x02\x10\x06B\x01n\x4a\x08\x01\0\0\0\x02\0\0\0")?;
/// assert_eq!((&*name, value.elements::<i32>().unwrap()), ("n", vec![1, 2]));
/// # Ok::<(), sterna_import::Error>(())
/// ```
pub fn tensor(bytes: &[u8]) -> Result<(String, Value), Error> {
    let limits = Limits::default();
    let text = proto::tensor(bytes, &limits)?;
    let files = ElementFiles::default();
    match tensors::value(&text, &files, &mut Builder::new(&limits)) {
        Ok(constant) => Ok((text.name, constant.to_value()?)),
        Err(fault) => Err(of(&text.name, 0, "tensor", fault)),
    }
}

/// The types of the nodes that are mapped.
///
/// ```
/// assert!(sterna_import::onnx::op_types().any(|name| name == "Where"));
/// ```
pub fn op_types() -> impl Iterator<Item = &'static str> {
    ops::mapped()
}
