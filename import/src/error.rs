//! Errors as data. A message shows names of layers, ports and attributes, and numbers, but no other contents
//! of a file.

use std::fmt::{self, Display, Formatter};

use sterna::{DataType, Dims, Direction, OpFault, TensorId};

use crate::dims::UNKNOWN_DIM;
use crate::names::Shown;

/// Why a model cannot be read.
///
/// ```
/// use sterna_import::{Error, openvino};
/// let error = openvino::read("<net version=\"11\"><layers></net>", &[]).unwrap_err();
/// assert!(matches!(error, Error::Syntax { line: 1, .. }));
/// assert_eq!(error.to_string(), "line 1, column 27: an element is closed that is not open");
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file needs more than [`Limits`](crate::Limits) allow.
    #[error("{what}: {given} is more than the limit of {most}")]
    Limit {
        /// The limited quantity.
        what: Limited,
        /// The need of the file.
        given: u64,
        /// The limit.
        most: u64,
    },
    /// The text is not well-formed, or has a construct that no model needs.
    #[error("line {line}, column {column}: {what}")]
    Syntax {
        /// The line, from 1.
        line: u32,
        /// The column, from 1.
        column: u32,
        /// The fault.
        what: &'static str,
    },
    /// The file is no model of the format.
    #[error("{what}; needed: {needed}")]
    Document {
        /// The fault.
        what: String,
        /// The right form.
        needed: &'static str,
    },
    /// The file of a model cannot be read.
    #[error("the file `{file}` cannot be read: {what}")]
    File {
        /// The path.
        file: String,
        /// The kind of the fault, as the system calls it, or what the path leads to.
        what: String,
    },
    /// An edge has an end that does not exist, or shares its target with another edge.
    #[error("the edge from layer {} port {} to layer {} port {}: {what}", .from[0], .from[1], .to[0], .to[1])]
    Edge {
        /// Layer and port at its start.
        from: [u64; 2],
        /// Layer and port at its end.
        to: [u64; 2],
        /// The fault.
        what: &'static str,
    },
    /// A layer cannot be mapped.
    #[error("{layer}: {fault}")]
    Layer {
        /// The layer.
        layer: LayerRef,
        /// Why not.
        fault: Box<Fault>,
    },
    /// Layers depend on their own results.
    #[error("{layer} depends on its own result")]
    Cycle {
        /// One of the layers.
        layer: LayerRef,
    },
    /// No input or output has the name.
    #[error("no {what} is named `{name}`; there are {}", Listed(known))]
    Name {
        /// Input, output or dim.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// Several inputs or outputs have the name.
    #[error("several {what}s are named `{name}`")]
    Ambiguous {
        /// Input or output.
        what: &'static str,
        /// The unknown name.
        name: String,
    },
    /// The mapped layers do not make a graph.
    #[error(transparent)]
    Graph(#[from] sterna::Error),
}

struct Listed<'a>(&'a [String]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (i, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The quantity that a limit bounds.
///
/// ```
/// assert_eq!(sterna_import::Limited::Layers.to_string(), "layers");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limited {
    /// Bytes of the text.
    TextBytes,
    /// Elements of the text.
    Elements,
    /// Elements within each other.
    Depth,
    /// Attributes of one element.
    Attributes,
    /// Layers.
    Layers,
    /// Bytes of all constants together.
    ConstantBytes,
    /// Bytes of all constants together that are computed.
    FoldedBytes,
}

impl Display for Limited {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TextBytes => "bytes of text",
            Self::Elements => "elements",
            Self::Depth => "elements within each other",
            Self::Attributes => "attributes of one element",
            Self::Layers => "layers",
            Self::ConstantBytes => "bytes of constants",
            Self::FoldedBytes => "bytes of constants that are computed",
        })
    }
}

/// The layer in an error.
///
/// ```
/// use sterna_import::{Error, openvino};
/// let error = openvino::read(r#"<layer id="4" name="s" type="Tan"/>"#, &[]).unwrap_err();
/// let Error::Layer { layer, .. } = error else { panic!("{error}") };
/// assert_eq!(layer.to_string(), "layer `s` (id 4, type Tan)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRef {
    /// Its name.
    pub name: String,
    /// Its id in the file.
    pub id: u64,
    /// Its type, as the format calls it.
    pub kind: String,
}

impl Display for LayerRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "layer `{}` (id {}, type {})", Shown(&self.name), self.id, Shown(&self.kind))
    }
}

/// The port of a layer in an error.
///
/// ```
/// use sterna::Direction;
/// let port = sterna_import::PortRef { direction: Direction::Input, id: 2, name: "else" };
/// assert_eq!(port.to_string(), "input port 2 (`else`)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRef {
    /// Input or output.
    pub direction: Direction,
    /// Its number in the file.
    pub id: u64,
    /// Its name in the specification of the format; empty if it has none.
    pub name: &'static str,
}

impl Display for PortRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.direction, self.id)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " (`{}`)", self.name) }
    }
}

/// The message of [`Fault::Unmade`].
struct Unmade<'a> {
    tensor: &'a str,
    made_by: Option<&'a str>,
}

impl Display for Unmade<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tensor = Shown(self.tensor);
        match self.made_by {
            Some(layer) => write!(
                f,
                "`{tensor}` depends on itself, by way of layer `{}`; needed: layers without a cycle",
                Shown(layer)
            ),
            None => write!(f, "nothing makes `{tensor}`"),
        }
    }
}

/// Why a layer cannot be mapped.
///
/// ```
/// use sterna_import::{Error, Fault, openvino};
/// let text = r#"<layer type="Round"><data mode="up"/><input><port id="0"/></input>
///               <output><port id="1"/></output></layer>"#;
/// let Err(Error::Layer { fault, .. }) = openvino::read(text, &[]) else { panic!() };
/// assert!(matches!(&*fault, Fault::Attribute { attribute, .. } if attribute == "mode"));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No op computes the layer.
    #[error("layers of this type are not mapped; needed: {needed}")]
    Unsupported {
        /// The supported form.
        needed: String,
    },
    /// Too many or too few ports.
    #[error("{given} {direction} ports; needed: {needed}")]
    PortCount {
        /// Inputs or outputs.
        direction: Direction,
        /// The number of ports.
        given: usize,
        /// The supported form.
        needed: String,
    },
    /// A port to which no edge leads.
    #[error("no edge leads to {port}")]
    Unconnected {
        /// The port.
        port: PortRef,
    },
    /// A tensor that no layer makes, or that depends on itself.
    #[error("{}", Unmade { tensor, made_by: made_by.as_deref() })]
    Unmade {
        /// Its name.
        tensor: String,
        /// The layer of the cycle that makes it; `None` if no layer does.
        made_by: Option<String>,
    },
    /// A port of a type that is not mapped.
    #[error("{port} is {given}; needed: {needed}")]
    Type {
        /// The port.
        port: PortRef,
        /// Its type.
        given: String,
        /// The supported form.
        needed: String,
    },
    /// A port of an unsuitable shape.
    #[error("{port} is {}; needed: {needed}", Braced(given))]
    Shape {
        /// The port.
        port: PortRef,
        /// Its shape.
        given: Dims,
        /// The supported form.
        needed: String,
    },
    /// A port with an unsuitable constant value.
    #[error("the value at {port}; needed: {needed}")]
    Value {
        /// The port.
        port: PortRef,
        /// The supported form.
        needed: String,
    },
    /// A port whose shape must be known to map the layer exactly.
    #[error("the shape of {port} is not known; needed: {needed}")]
    UnknownShape {
        /// The port.
        port: PortRef,
        /// The supported form.
        needed: String,
    },
    /// A port whose value must be known to map the layer.
    #[error("{port} is no constant; needed: {needed}")]
    NotConstant {
        /// The port.
        port: PortRef,
        /// The supported form.
        needed: String,
    },
    /// An output whose description in the file contradicts the one that follows from the inputs.
    #[error("{port} is declared as {declared}, but {found} follows from the inputs")]
    Declared {
        /// The port.
        port: PortRef,
        /// The description in the file.
        declared: String,
        /// The description that follows from the inputs.
        found: String,
    },
    /// An attribute whose value is not mapped.
    #[error("attribute `{attribute}`; needed: {needed}")]
    Attribute {
        /// The attribute.
        attribute: String,
        /// The supported form.
        needed: String,
    },
    /// An attribute that must be there.
    #[error("attribute `{attribute}` is missing")]
    MissingAttribute {
        /// The attribute.
        attribute: &'static str,
    },
    /// An attribute whose meaning is not known here.
    #[error("attribute `{attribute}` is not known here, and might change what the layer computes")]
    UnknownAttribute {
        /// The attribute.
        attribute: String,
    },
    /// Another version of the op.
    #[error("the version of the layer is {given}, which is not read; needed: {needed}")]
    Version {
        /// The version in the file.
        given: String,
        /// The versions that are read.
        needed: String,
    },
    /// A constant that reaches beyond the weights.
    #[error("bytes {offset} to {offset}+{size} of the weights, which are {available} bytes")]
    Weights {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// A constant whose bytes are not those of its type and shape.
    #[error("the constant has {given} bytes, but its type and shape take {needed}")]
    Size {
        /// Bytes that the file gives it.
        given: u64,
        /// Bytes of type and shape.
        needed: u64,
    },
    /// Elements of a constant that stand in a file of their own.
    #[error("the file `{file}` with the elements of the constant: {what}")]
    External {
        /// The file, as the model names it.
        file: String,
        /// The fault.
        what: String,
    },
    /// A limit is reached.
    #[error("{what}: {given} is more than the limit of {most}")]
    Limit {
        /// The limited quantity.
        what: Limited,
        /// The need of the layer.
        given: u64,
        /// The limit.
        most: u64,
    },
    /// The op of Sterna that the layer becomes is refused.
    #[error(transparent)]
    Op(#[from] sterna::Error),
}

impl Fault {
    /// A port of a type that is not mapped.
    pub(crate) fn of_type(port: PortRef, given: DataType, needed: impl Into<String>) -> Self {
        Self::Type { port, given: given.to_string(), needed: needed.into() }
    }

    /// An attribute whose value is not mapped.
    pub(crate) fn of_attribute(attribute: &str, needed: impl Into<String>) -> Self {
        Self::Attribute { attribute: attribute.into(), needed: needed.into() }
    }

    /// If an op is refused for the type of a tensor: the tensor, and the types that it needs.
    pub(crate) fn refused_type(&self) -> Option<(TensorId, String)> {
        let Self::Op(sterna::Error::Op { fault, .. }) = self else { return None };
        match fault {
            OpFault::Type { port, allowed, .. } => {
                let names: Vec<&str> = allowed.iter().map(|data_type| data_type.name()).collect();
                Some((port.tensor, names.join(", ")))
            }
            OpFault::TypesDiffer { port, expected, .. } => Some((port.tensor, expected.to_string())),
            _ => None,
        }
    }
}

/// Dims in braces, `?` for one that is unknown.
pub(crate) struct Braced<'a>(pub(crate) &'a [i64]);

impl Display for Braced<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, &dim) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match dim {
                UNKNOWN_DIM => write!(f, "{comma}?")?,
                _ => write!(f, "{comma}{dim}")?,
            }
        }
        f.write_str("}")
    }
}
