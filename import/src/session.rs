//! Models that were read, as sessions run them.

use std::sync::Arc;

use sterna::{AttrValue, ConstantData, CustomNode, DataType, LogicalTensor, ModelPort, ModelSource};

use crate::builder::{Imported, Port};
use crate::constant::Constant;
use crate::error::Error;
use crate::model_file::ModelFile;
use crate::signature::{Dim, Signature};
use crate::skipped::{LayerAttribute, SkippedLayer};

/// A layer as an op of the caller's own, `domain::Type`, or `Type` in the domain of the format itself. Of its
/// attributes, those that an op of Sterna could have are kept: numbers, texts in UTF-8, and lists of numbers.
fn custom_node(layer: SkippedLayer) -> CustomNode {
    let SkippedLayer { domain, kind, attributes, .. } = layer;
    let op = if domain.is_empty() { kind } else { format!("{domain}::{kind}") };
    attributes.into_iter().fold(CustomNode::new(op), |node, (name, value)| {
        let value: Option<AttrValue> = match value {
            LayerAttribute::Int(number) => Some(number.into()),
            LayerAttribute::Float(number) => Some(number.into()),
            LayerAttribute::Ints(numbers) => Some(numbers.into()),
            LayerAttribute::Floats(numbers) => Some(numbers.into()),
            LayerAttribute::Text(text) => String::from_utf8(text).ok().map(AttrValue::from),
            _ => None,
        };
        match value {
            Some(value) => node.attr(name, value),
            None => node,
        }
    })
}

/// A model with the names, constants and skipped layers of what was read. A layer that became a `Wildcard` is
/// an op of the caller's own, `domain::Type`, or `Type` in the domain of the format itself.
///
/// ```
/// use sterna::{Engine, Session};
/// use sterna_import::openvino;
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>2</dim></port></input>
///               <output><port id="1"><dim>2</dim></port></output></layer>"#;
/// let session = Session::new(openvino::read(text, &[])?, &Engine::new())?;
/// assert_eq!(session.run(&[("data", &[0.0f32, 0.0])])?["dst"].as_slice::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<Imported> for sterna::Model {
    type Error = sterna::Error;

    fn try_from(imported: Imported) -> Result<Self, sterna::Error> {
        let port = |port: &Port| {
            let mut names = port.names.iter();
            let first = ModelPort::new(names.next().cloned().unwrap_or_default(), port.tensor.clone());
            names.fold(first, |port, name| port.also_named(name))
        };
        let inputs = imported.inputs.iter().map(port).collect();
        let outputs = imported.outputs.iter().map(port).collect();
        let mut model = Self::with_ports(imported.graph, inputs, outputs)?;
        for (id, constant) in imported.weights {
            model = model.constant(id, ConstantData::returning(constant, Constant::release));
        }
        for (id, layer) in imported.skipped_layers {
            model = model.custom(id, custom_node(layer));
        }
        Ok(model)
    }
}

/// A file of which a graph is made for each set of shapes.
#[derive(Debug)]
struct FileSource(ModelFile);

impl ModelSource for FileSource {
    fn at(&self, shapes: &[(&str, &[i64])]) -> sterna::Result<sterna::Model> {
        self.0.at(shapes).map_err(of_reading)?.try_into()
    }
}

fn of_reading(error: Error) -> sterna::Error {
    match error {
        Error::Graph(error) => error,
        error => sterna::SessionFault::Source(error.to_string()).into(),
    }
}

/// A file that a session runs on inputs of any lengths: a dim that it leaves open has the length of what a
/// run is given, and what the model computes of shapes follows.
///
/// ```
/// use sterna::{Engine, Session, TensorView};
/// use sterna_import::{ModelFile, Options};
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>-1</dim></port></input>
///               <output><port id="1"/></output></layer>"#;
/// let file = ModelFile::openvino(text, Vec::new(), &Options::default())?;
/// let session = Session::new(file, &Engine::new())?;
/// for length in [1, 3] {
///     let zeros = vec![0.0f32; length];
///     assert_eq!(session.run(&[("data", &zeros)])?["dst"].as_slice::<f32>()?, vec![1.0; length]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<ModelFile> for sterna::Model {
    type Error = sterna::Error;

    fn try_from(file: ModelFile) -> Result<Self, sterna::Error> {
        let options = file.options();
        let port = |(index, of): (usize, &Signature)| {
            let of_name = |name: &String| options.types.get(name).copied();
            // An input of which neither file nor options say a type is f32, as for the reader.
            let said = of.data_type.or_else(|| of.names.iter().find_map(of_name));
            let data_type = said.unwrap_or(DataType::F32);
            let tensor = match &of.dims {
                Some(dims) => {
                    let dims: Vec<Option<i64>> = dims.iter().map(Dim::length).collect();
                    LogicalTensor::partial(index, data_type, &dims)?
                }
                None => LogicalTensor::unknown(index, data_type),
            };
            let mut names = of.names.iter();
            let name = |dim: &Dim| match dim {
                Dim::Named(name) => Some(name.clone()),
                Dim::Known(_) | Dim::Open => None,
            };
            let dim_names = of.dims.iter().flatten().map(name).collect();
            let first = ModelPort::new(names.next().cloned().unwrap_or_default(), tensor);
            let first = first.with_dim_names(dim_names);
            Ok(names.fold(first, |port, name| port.also_named(name)))
        };
        // An input whose value the options give is a constant.
        let is_open = |of: &&Signature| !of.names.iter().any(|name| options.values.contains_key(name));
        let inputs = file.inputs().iter().filter(is_open).enumerate().map(port);
        let inputs = inputs.collect::<sterna::Result<Vec<_>>>()?;
        let outputs = file.outputs().iter().enumerate().map(port).collect::<sterna::Result<Vec<_>>>()?;
        Ok(Self::from_source(inputs, outputs, Arc::new(FileSource(file))))
    }
}
