//! Reads models of other frameworks into graphs of Sterna.
//!
//! | step | what happens | where |
//! |---|---|---|
//! | read | the text of a format becomes layers and edges, within limits | [`openvino`], [`Limits`] |
//! | map | each layer becomes ops of the same meaning, or an error | [`openvino`], [`Error`] |
//! | fold | what follows from constants alone is computed | [`Imported::weights`] |
//! | use | a graph, its inputs and outputs by name, the values of its constants | [`Imported`], [`Port`] |
//! | again | graphs for other shapes, of one reading | [`ModelFile`], [`Signature`] |
//!
//! A model becomes a [`Graph`](sterna::Graph) whose constants are inputs; [`Imported::weights`] holds their
//! values, which stay in the file where they can ([`Constant`]). What a format says of names, limits, types
//! and shapes is the same for every format; only `openvino` knows OpenVINO.
//!
//! ```
//! use sterna_import::openvino;
//!
//! let imported = openvino::read(
//!     r#"<layer ... type="Select">
//!            <input>
//!                <port id="0"><dim>3</dim><dim>2</dim></port>
//!                <port id="1"><dim>3</dim><dim>2</dim></port>
//!                <port id="2"><dim>3</dim><dim>2</dim></port>
//!            </input>
//!            <output>
//!                <port id="1"><dim>3</dim><dim>2</dim></port>
//!            </output>
//!        </layer>"#,
//!     &[],
//! )?;
//! assert_eq!(imported.graph.ops().len(), 1);
//! assert_eq!(imported.input("then")?.tensor.dims(), Some(&[3, 2][..]));
//! # Ok::<(), sterna_import::Error>(())
//! ```
#![deny(unsafe_code)]

mod builder;
mod compose;
mod constant;
#[cfg(test)]
mod dictionary;
mod dims;
mod elements;
mod error;
mod files;
mod fold;
#[cfg(doctest)]
mod guide;
mod limits;
mod mapped_file;
mod mapping;
mod model_file;
mod named_dims;
mod names;
pub mod onnx;
pub mod openvino;
mod other_formats;
mod run_order;
mod session;
mod signature;
mod sizes;
mod skipped;
mod steps;
mod weights;

pub use builder::{Imported, Port};
pub use constant::Constant;
pub use error::{Error, Fault, LayerRef, Limited, PortRef};
pub use files::{open_plain, open_stream, read_at_most};
pub use limits::{Limits, Options};
pub use model_file::ModelFile;
pub use other_formats::refuse_other_formats;
pub use signature::{Dim, Signature};
pub use skipped::{LayerAttribute, SkippedLayer};
