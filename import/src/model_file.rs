//! A model that is read once, of which graphs are made for any number of shapes.

use std::io::{self, Read as _};
use std::path::Path;

use crate::builder::Imported;
use crate::error::Error;
use crate::files;
use crate::limits::Options;
use crate::names::Shown;
use crate::onnx;
use crate::openvino;
use crate::signature::Signature;

/// A model as its file describes it, whose constants stay where they are. It is read once; each call of
/// [`import`](Self::import) or [`at`](Self::at) makes a graph of it, for other lengths of what the file
/// leaves open, without reading the file again. The constants of all these graphs share their elements with
/// the model, but for those that are computed.
///
/// | | lives as long as |
/// |---|---|
/// | the mapping of a file | the model, or the last [`Constant`](crate::Constant) of a graph that needs it |
/// | elements that were copied out of a file | the same |
/// | a graph, with constants that were computed for it | the [`Imported`] |
/// | what was made for the last [`at`](Self::at), with its constants | the model, or the next `at` |
///
/// A shape of a node that is computed, as exporters write `Shape`, `Gather`, `Concat` and `Reshape` for dims
/// such as `batch`, follows from the shapes of the inputs: a graph for given shapes has all of it as
/// attributes. What is made for a set of shapes can be kept under them, as nothing else of the graph depends
/// on them.
///
/// ```
/// use sterna_import::{ModelFile, Options};
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>-1</dim><dim>4</dim></port></input>
///               <output><port id="1"/></output></layer>"#;
/// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
/// for length in [1, 7, 128] {
///     let imported = model.at(&[("data", &[length, 4])])?;
///     assert_eq!(imported.outputs[0].tensor.dims(), Some(&[length, 4][..]));
/// }
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug)]
pub struct ModelFile {
    format: Format,
    inputs: Vec<Signature>,
    outputs: Vec<Signature>,
    /// How it was read.
    options: Options,
}

#[derive(Debug)]
enum Format {
    Onnx(Box<onnx::OnnxDocument>),
    OpenVino(Box<openvino::NetDocument>),
}

impl ModelFile {
    /// Reads a file: an `.onnx` of ONNX, or an `.xml` of OpenVINO, which has its constants beside it in a
    /// file that ends in `.bin`, or no constants. Which of both it is its first bytes say.
    ///
    /// Files that hold constants are mapped. Their sizes are checked when that is done. A file must not be
    /// changed or cut off while a model, or a constant of it, is alive: elements that change are other
    /// elements, and the system ends a process that reads what has been cut off. [`Options::own_constants`]
    /// reads the files instead.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if a file cannot be read, and all that a file is refused for before its layers are
    /// mapped.
    ///
    /// ```
    /// use std::path::Path;
    /// use sterna_import::{ModelFile, Options};
    /// let model = ModelFile::open(Path::new("tests/data/masked_scores.xml"), &Options::default())?;
    /// assert!(model.inputs().iter().any(|input| input.names[0] == "scores"));
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn open(path: &Path, options: &Options) -> Result<Self, Error> {
        let beside = path.with_extension("bin");
        Self::open_with(path, beside.exists().then_some(&*beside), options)
    }

    /// Reads a file as [`open`](Self::open) does, with a file of constants that a model of OpenVINO has
    /// elsewhere; a model of ONNX takes none.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use std::path::Path;
    /// use sterna_import::{Error, ModelFile, Options};
    /// let path = Path::new("tests/data/masked_scores.xml");
    /// let lost = ModelFile::open_with(path, Some(Path::new("no/such.bin")), &Options::default());
    /// assert!(matches!(lost, Err(Error::File { .. })));
    /// ```
    pub fn open_with(path: &Path, constants: Option<&Path>, options: &Options) -> Result<Self, Error> {
        let unread = |error: io::Error| unread(path, &error);
        let mut first = Vec::new();
        // A FIFO is read once, as a model of ONNX.
        if path.metadata().map_err(unread)?.is_file() {
            let file = files::open_plain(path).map_err(unread)?;
            file.take(FIRST).read_to_end(&mut first).map_err(unread)?;
        }
        match is_xml(&first) {
            true => {
                let text = openvino::text_of(path, &options.limits)?;
                Self::new(
                    Format::OpenVino(Box::new(openvino::NetDocument::open(&text, constants, options)?)),
                    options,
                )
            }
            false => Self::new(Format::Onnx(Box::new(onnx::OnnxDocument::open(path, options)?)), options),
        }
    }

    /// Reads a model of ONNX that is in memory.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use sterna_import::{Error, ModelFile, Options};
    /// assert!(matches!(ModelFile::onnx(b"no model", &Options::default()), Err(Error::Document { .. })));
    /// ```
    pub fn onnx(bytes: &[u8], options: &Options) -> Result<Self, Error> {
        Self::new(Format::Onnx(Box::new(onnx::OnnxDocument::of_bytes(bytes, &options.limits)?)), options)
    }

    /// Reads a model of OpenVINO that is in memory: the text, and the bytes of its constants, which constants
    /// share.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use sterna_import::{Error, ModelFile, Options};
    /// let cut = ModelFile::openvino("<net", Vec::new(), &Options::default());
    /// assert!(matches!(cut, Err(Error::Syntax { line: 1, .. })));
    /// ```
    pub fn openvino(text: &str, constants: Vec<u8>, options: &Options) -> Result<Self, Error> {
        let document = openvino::NetDocument::of_bytes(text, constants, &options.limits)?;
        Self::new(Format::OpenVino(Box::new(document)), options)
    }

    /// Reads a model of OpenVINO whose text is in memory, and whose constants are in a file as for
    /// [`open`](Self::open), if it has any.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use std::path::Path;
    /// use sterna_import::{ModelFile, Options};
    /// let text = std::fs::read_to_string("tests/data/masked_scores.xml").unwrap();
    /// let constants = Some(Path::new("tests/data/masked_scores.bin"));
    /// let model = ModelFile::openvino_with_file(&text, constants, &Options::default())?;
    /// assert_eq!(model.outputs().len(), 1);
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn openvino_with_file(
        text: &str,
        constants: Option<&Path>,
        options: &Options,
    ) -> Result<Self, Error> {
        Self::new(Format::OpenVino(Box::new(openvino::NetDocument::open(text, constants, options)?)), options)
    }

    fn new(format: Format, options: &Options) -> Result<Self, Error> {
        let [inputs, outputs] = match &format {
            Format::Onnx(document) => document.signatures(),
            Format::OpenVino(document) => document.signatures()?,
        };
        Ok(Self { format, inputs, outputs, options: options.clone() })
    }

    /// The options under which it was read.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The inputs, in the order of the file.
    ///
    /// ```
    /// use sterna_import::{ModelFile, Options};
    /// let text = r#"<layer type="Add"><input><port id="0"/><port id="1"/></input>
    ///               <output><port id="2"/></output></layer>"#;
    /// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
    /// assert_eq!(model.inputs().len(), 2);
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    #[must_use]
    pub fn inputs(&self) -> &[Signature] {
        &self.inputs
    }

    /// The outputs, in the order of the file.
    ///
    /// ```
    /// use sterna_import::{ModelFile, Options};
    /// let text = r#"<layer type="Exp"><input><port id="0"/></input>
    ///               <output><port id="1"/></output></layer>"#;
    /// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
    /// assert_eq!(model.outputs()[0].names, ["dst", "1"]);
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    #[must_use]
    pub fn outputs(&self) -> &[Signature] {
        &self.outputs
    }

    /// The graph of the model under options, which need not be those under which it was read.
    ///
    /// # Errors
    ///
    /// [`Error`]; a layer that cannot be mapped is one.
    ///
    /// ```
    /// use sterna_import::{ModelFile, Options};
    /// let text = r#"<layer type="NonZero"><input><port id="0"/></input>
    ///               <output><port id="1"/></output></layer>"#;
    /// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
    /// assert!(model.import(&Options::default()).is_err());
    /// assert!(model.import(&Options { partial: true, ..Options::default() }).is_ok());
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn import(&self, options: &Options) -> Result<Imported, Error> {
        match &self.format {
            Format::Onnx(document) => document.imported(options),
            Format::OpenVino(document) => document.imported(options),
        }
    }

    /// The graph of the model for shapes of its inputs, under the options under which it was read. Inputs
    /// that are not among them keep the dims that the file gives them, where those that have a name get
    /// the length that a dim of this name has among the shapes.
    ///
    /// # Errors
    ///
    /// As [`import`](Self::import); [`Error::Name`] for an input that is not there.
    ///
    /// ```
    /// use sterna_import::{Error, ModelFile, Options};
    /// let text = r#"<layer type="Exp"><input><port id="0"><dim>-1</dim></port></input>
    ///               <output><port id="1"/></output></layer>"#;
    /// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
    /// assert_eq!(model.at(&[("data", &[8])])?.inputs[0].tensor.dims(), Some(&[8][..]));
    /// assert!(matches!(model.at(&[("x", &[8])]), Err(Error::Name { .. })));
    /// # Ok::<(), sterna_import::Error>(())
    /// ```
    pub fn at(&self, shapes: &[(&str, &[i64])]) -> Result<Imported, Error> {
        let mut options = self.options.clone();
        options.shapes.extend(shapes.iter().map(|(name, dims)| ((*name).to_owned(), dims.to_vec())));
        match &self.format {
            Format::Onnx(document) => document.imported_again(&options),
            Format::OpenVino(document) => document.imported_again(&options),
        }
    }
}

/// The bytes of a file that tell its format.
const FIRST: u64 = 256;

/// True if bytes start as XML does.
fn is_xml(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<')
}

fn unread(path: &Path, error: &io::Error) -> Error {
    Error::File { file: Shown(&path.to_string_lossy()).to_string(), what: files::said(error) }
}
