//! The limits of a reader: the size of a file, and the options of reading.

use std::collections::BTreeMap;

use sterna::DataType;
use sterna::reference::Value;

use crate::error::{Error, Limited};

/// The limits of a file. A file beyond a limit is refused before memory is allocated.
///
/// ```
/// use sterna_import::{Error, Limits, Options, openvino};
/// let options = Options { limits: Limits { text_bytes: 8, ..Limits::default() }, ..Options::default() };
/// let refused = openvino::read_with("<net version=\"11\"/>", &[], &options);
/// assert!(matches!(refused, Err(Error::Limit { given: 19, most: 8, .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text that describes the model.
    pub text_bytes: usize,
    /// Elements of the text.
    pub elements: usize,
    /// Elements within each other.
    pub depth: usize,
    /// Attributes of one element.
    pub attributes: usize,
    /// Layers.
    pub layers: usize,
    /// Bytes of all constants together, as they are stored.
    pub constant_bytes: usize,
    /// Bytes of all constants together that are computed when the model is read. Larger ones are left to the
    /// execution.
    pub folded_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            text_bytes: 256 << 20,
            elements: 8 << 20,
            depth: 64,
            attributes: 256,
            layers: 100_000,
            constant_bytes: 16 << 30,
            folded_bytes: 64 << 20,
        }
    }
}

impl Limits {
    /// Refuses what is beyond a limit.
    pub(crate) fn check(what: Limited, given: usize, most: usize) -> Result<(), Error> {
        if given <= most {
            return Ok(());
        }
        Err(Error::Limit { what, given: given as u64, most: most as u64 })
    }
}

/// The options of reading a model.
///
/// ```
/// use sterna_import::{Options, openvino};
/// let text = r#"<layer type="Abs"><input><port id="0"><dim>-1</dim></port></input>
///               <output><port id="1"/></output></layer>"#;
/// let mut options = Options::default();
/// options.shapes.insert("data".into(), vec![8]);
/// let imported = openvino::read_with(text, &[], &options)?;
/// assert_eq!(imported.outputs[0].tensor.dims(), Some(&[8][..]));
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The limits of the file.
    pub limits: Limits,
    /// If true, a layer that cannot be mapped becomes an op `Wildcard`, around which the rest is partitioned,
    /// instead of an error.
    pub partial: bool,
    /// Shapes of inputs, by name, in place of those in the file. The shapes of all that follows are inferred
    /// anew.
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Lengths of open dims that have names, by name, for files that name them: those of ONNX do, and of
    /// OpenVINO those of variables that follow an input, as [`ModelFile::inputs`](crate::ModelFile::inputs)
    /// tells. An input whose shape is given as well has that shape. Dims without a length here have that of a
    /// dim of their name among the shapes and values that are given.
    pub dims: BTreeMap<String, i64>,
    /// Types of inputs, by name, for files that say none: a lone layer of OpenVINO's specification.
    pub types: BTreeMap<String, DataType>,
    /// Values of inputs, by name, of which the model then keeps what follows: they are constants.
    pub values: BTreeMap<String, Value>,
    /// If true, files are read instead of mapped, and constants own their elements: a file may then be
    /// changed or cut off as soon as it has been read. Otherwise one that is cut off while it is mapped ends
    /// the process that reads what was there.
    pub own_constants: bool,
}
