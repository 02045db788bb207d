//! Layers that become `Wildcard` ops, with all that their file says of them.

use std::collections::BTreeMap;

use crate::constant::Constant;

/// A layer that became an op `Wildcard`: all that the file says of it, but for its tensors.
///
/// ```
/// use sterna_import::{LayerAttribute, Options, openvino};
/// let text = r#"<layer id="0" name="wave" type="Interpolate" version="opset11"><data mode="linear"/>
///               <input><port id="0"/></input><output><port id="1"/></output></layer>"#;
/// let imported = openvino::read_with(text, &[], &Options { partial: true, ..Options::default() })?;
/// let layer = &imported.skipped_layers[&imported.graph.ops()[0].id()];
/// assert_eq!((&*layer.name, &*layer.domain, &*layer.kind), ("wave", "opset11", "Interpolate"));
/// assert_eq!(layer.attributes["mode"], LayerAttribute::Text(b"linear".to_vec()));
/// assert_eq!(layer.inputs, [Some(0)]);
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SkippedLayer {
    /// Its name; empty if it has none.
    pub name: String,
    /// The domain of a node of ONNX, which is empty for ONNX itself; the operation set of a layer of
    /// OpenVINO.
    pub domain: String,
    /// Its type, as the format calls it.
    pub kind: String,
    /// The opset of a model of ONNX in the domain of the node, if it names one.
    pub opset: Option<i64>,
    /// All attributes. Those of OpenVINO are text; graphs within a layer of OpenVINO are left out.
    pub attributes: BTreeMap<String, LayerAttribute>,
    /// For each input of the layer, its place among the inputs of the op; `None` for one that is left out.
    pub inputs: Vec<Option<usize>>,
}

/// An attribute of a layer.
///
/// ```
/// use sterna_import::LayerAttribute;
/// let strides = LayerAttribute::Ints(vec![2, 2]);
/// assert_ne!(strides, LayerAttribute::Int(2));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum LayerAttribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// Text, which files of ONNX may have in any encoding.
    Text(Vec<u8>),
    /// A tensor.
    Tensor(Constant),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<Vec<u8>>),
    /// Tensors.
    Tensors(Vec<Constant>),
    /// Graphs, sparse tensors, types, or tensors of a type that no tensor here has: as messages of protobuf.
    Messages(Vec<Vec<u8>>),
}
