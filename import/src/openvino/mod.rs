//! OpenVINO IR: an XML file, and a `.bin` with the constants.
//!
//! Versions 10 and 11 of the format are read, which OpenVINO writes since 2020. The layers of the types that
//! [`layer_types`] names become ops; whatever differs in meaning becomes a composition of ops that means the
//! same, or an error that names the layer, its type, the port or attribute, and what would be needed. What of
//! a model no `Result` hangs on is left out.
//!
//! A text that holds one element `layer` and no model, as OpenVINO's specification prints them, is read as a
//! model of that layer: `...` among its attributes is passed over, inputs and outputs go by the number of
//! their port or by their name in the specification (`cond`, `then`, `else`; the output is `dst`), and types
//! that are not written are taken from [`Options::types`], else they are boolean for truth values and f32 for
//! all others.
//!
//! ```
//! use sterna::{Attr, OpKind};
//! use sterna_import::openvino;
//! let text = r#"<layer ... type="Select">
//!     <data auto_broadcast="pdpd" axis="0"/>
//!     <input>
//!         <port id="0"><dim>3</dim></port>
//!         <port id="1"><dim>3</dim><dim>2</dim></port>
//!         <port id="2"/>
//!     </input>
//!     <output><port id="3"><dim>3</dim><dim>2</dim></port></output>
//! </layer>"#;
//! let imported = openvino::read(text, &[])?;
//! let op = &imported.graph.ops()[0];
//! assert_eq!((op.kind(), op.get_attr(Attr::Axis)), (OpKind::Select, Some(&0i64.into())));
//! # Ok::<(), sterna_import::Error>(())
//! ```

mod constants;
mod document;
mod edges;
mod layers;
mod ports;
mod reader;
mod signatures;
mod types;
mod variables;
mod wiring;
mod xml;

use std::path::Path;

use self::constants::Weights;
pub(crate) use self::document::{NetDocument, text_of};
use self::wiring::Wiring;
use crate::builder::Imported;
use crate::builder::reading::KeptReading;
use crate::error::Error;
use crate::limits::Options;

/// Reads a model: the text of the `.xml` and the bytes of the `.bin`, which are empty for a model without
/// constants.
///
/// # Errors
///
/// [`Error`]; a layer that cannot be mapped is one.
///
/// ```
/// use sterna_import::openvino;
/// let text = r#"<net name="mask" version="11">
///     <layers>
///         <layer id="0" name="scores" type="Parameter" version="opset1">
///             <data shape="?,4" element_type="f32"/>
///             <output><port id="0" precision="FP32"><dim>-1</dim><dim>4</dim></port></output>
///         </layer>
///         <layer id="1" name="least" type="Const" version="opset1">
///             <data element_type="f32" shape="4" offset="0" size="16"/>
///             <output><port id="0" precision="FP32"><dim>4</dim></port></output>
///         </layer>
///         <layer id="2" name="clipped" type="Maximum" version="opset1">
///             <input><port id="0"><dim>-1</dim><dim>4</dim></port><port id="1"/></input>
///             <output><port id="2" precision="FP32"><dim>-1</dim><dim>4</dim></port></output>
///         </layer>
///         <layer id="3" name="result" type="Result" version="opset1">
///             <input><port id="0"><dim>-1</dim><dim>4</dim></port></input>
///         </layer>
///     </layers>
///     <edges>
///         <edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
///         <edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
///         <edge from-layer="2" from-port="2" to-layer="3" to-port="0"/>
///     </edges>
/// </net>"#;
/// let imported = openvino::read(text, &0.5f32.to_le_bytes().repeat(4))?;
/// assert_eq!(imported.input("scores")?.tensor.rank(), Some(2));
/// assert_eq!(imported.weights.values().next().unwrap().elements::<f32>().unwrap(), [0.5; 4]);
/// # Ok::<(), sterna_import::Error>(())
/// ```
pub fn read(xml: &str, weights: &[u8]) -> Result<Imported, Error> {
    read_with(xml, weights, &Options::default())
}

/// Reads a model as [`read`] does, under [`Options`].
///
/// # Errors
///
/// [`Error`]; [`Error::Name`] as well for a shape or type of an input that is not there.
///
/// ```
/// use sterna::{OpKind, Policy};
/// use sterna_import::{Options, openvino};
/// let text = r#"<layer id="0" name="wave" type="NonZero"><input><port id="0"/></input>
///               <output><port id="1"/></output></layer>"#;
/// let error = openvino::read(text, &[]).unwrap_err();
/// assert!(error.to_string().starts_with("layer `wave` (id 0, type NonZero): layers of this type are not"));
/// let imported = openvino::read_with(text, &[], &Options { partial: true, ..Options::default() })?;
/// assert_eq!(imported.graph.ops()[0].kind(), OpKind::Wildcard);
/// assert_eq!(imported.skipped, [error]);
/// # Ok::<(), sterna_import::Error>(())
/// ```
pub fn read_with(xml: &str, weights: &[u8], options: &Options) -> Result<Imported, Error> {
    let net = xml::parse(xml, &options.limits)?;
    let weights = Weights::Bytes(weights);
    let wiring = Wiring::of(&net, weights)?;
    let read = reader::imported((&net, &wiring), weights, options, KeptReading::default(), false);
    read.map(|(imported, _)| imported)
}

/// Reads a model as [`read_with`] does out of files: the `.xml`, and the one with the constants, if there is
/// one. That one is mapped, unless [`Options::own_constants`] says otherwise; [`ModelFile`](crate::ModelFile)
/// says what that asks of the caller.
///
/// # Errors
///
/// [`Error`]; [`Error::File`] if a file cannot be read.
///
/// ```
/// use std::path::Path;
/// use sterna_import::{Options, openvino};
/// let [xml, bin] = ["xml", "bin"].map(|end| format!("tests/data/masked_scores.{end}"));
/// let imported = openvino::read_file(Path::new(&xml), Some(Path::new(&bin)), &Options::default())?;
/// assert_eq!(imported.input("scores")?.tensor.rank(), Some(2));
/// # Ok::<(), sterna_import::Error>(())
/// ```
pub fn read_file(xml: &Path, weights: Option<&Path>, options: &Options) -> Result<Imported, Error> {
    NetDocument::open(&document::text_of(xml, &options.limits)?, weights, options)?.imported(options)
}

/// The types of the layers that are mapped, besides `Parameter`, `Const` and `Result`.
///
/// ```
/// assert!(sterna_import::openvino::layer_types().any(|name| name == "Select"));
/// ```
pub fn layer_types() -> impl Iterator<Item = &'static str> {
    layers::mapped().chain(["If"])
}
