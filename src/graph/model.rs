//! A model: a graph, the names of its inputs and outputs, and the values of its constants.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::logical_tensor::LogicalTensor;
use super::op::{AttrValue, Op};
use super::{FpMath, Graph};
use crate::error::Result;
use crate::types::constant_data::ConstantData;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::OpKind;

/// An input or an output of a model: its names, the first of which is its own, and its tensor in the graph.
///
/// ```
/// use sterna::{DataType, LogicalTensor, ModelPort};
/// let port = ModelPort::new("x", LogicalTensor::partial(0, DataType::F32, &[None, Some(64)])?);
/// assert_eq!(port.name(), "x");
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelPort {
    /// The names.
    pub names: Vec<String>,
    /// The tensor.
    pub tensor: LogicalTensor,
    /// The names of dims, in their order: dims of one name have one length. Empty if no dim has a name.
    pub dim_names: Vec<Option<String>>,
}

impl ModelPort {
    /// A port of one name.
    #[must_use]
    pub fn new(name: impl Into<String>, tensor: LogicalTensor) -> Self {
        Self { names: vec![name.into()], tensor, dim_names: Vec::new() }
    }

    /// The same port with names for its dims, `None` for one that has none.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor, ModelPort};
    /// let tensor = LogicalTensor::partial(0, DataType::F32, &[None, Some(64)])?;
    /// let port = ModelPort::new("x", tensor).with_dim_names(vec![Some("batch".into()), None]);
    /// assert_eq!(port.dim_names[0].as_deref(), Some("batch"));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn with_dim_names(self, dim_names: Vec<Option<String>>) -> Self {
        Self { dim_names, ..self }
    }

    /// The same port with another name beside those that it has.
    #[must_use]
    pub fn also_named(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Its own name; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// An op that only its caller knows: what a `Wildcard` of a graph stands for.
///
/// ```
/// use sterna::{AttrValue, CustomNode};
/// let node = CustomNode::new("my.domain::Scale").attr("factor", 2.0f32);
/// assert_eq!(node.get_attr("factor"), Some(&AttrValue::F32(2.0)));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CustomNode {
    /// The name of the op, by which a session finds what runs it: `domain::Name`.
    pub op: String,
    /// The attributes, as the model has them.
    pub attrs: BTreeMap<String, AttrValue>,
}

impl CustomNode {
    /// An op without attributes.
    #[must_use]
    pub fn new(op: impl Into<String>) -> Self {
        Self { op: op.into(), attrs: BTreeMap::new() }
    }

    /// Sets an attribute; a later value replaces an earlier one.
    #[must_use]
    pub fn attr(mut self, name: impl Into<String>, value: impl Into<AttrValue>) -> Self {
        self.attrs.insert(name.into(), value.into());
        self
    }

    /// An attribute, if it is there.
    #[must_use]
    pub fn get_attr(&self, name: &str) -> Option<&AttrValue> {
        self.attrs.get(name)
    }
}

/// A graph that runs as a whole: ops, the names of inputs and outputs, and constants.
///
/// A [`GraphBuilder`](crate::GraphBuilder) makes one, readers of models do, and any [`Graph`] becomes one
/// whose inputs and outputs are called by the numbers of their tensors. A [`Session`](crate::Session) runs
/// it.
///
/// ```
/// use sterna::{DataType, Graph, LogicalTensor, Model, Op, OpKind};
/// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[4]);
/// let mut graph = Graph::new();
/// graph.add_op(Op::new(0, OpKind::Add).inputs_from([tensor(7)?, tensor(8)?]).output(tensor(9)?))?;
/// let model = Model::new(graph)?;
/// assert_eq!((model.inputs()[1].name(), model.outputs()[0].name()), ("8", "9"));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Model {
    graph: Graph,
    inputs: Vec<ModelPort>,
    outputs: Vec<ModelPort>,
    constants: BTreeMap<TensorId, ConstantData>,
    custom: BTreeMap<OpId, CustomNode>,
    source: Option<Arc<dyn ModelSource>>,
}

// A source that panics has given no model.
impl UnwindSafe for Model {}
impl RefUnwindSafe for Model {}

/// Makes a model for each set of shapes of inputs: a file in which the shapes of ops follow from those
/// of the inputs.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, LogicalTensor, Model, ModelPort, ModelSource, Session};
///
/// /// Reverses the dims of what it is given, whatever their number.
/// #[derive(Debug)]
/// struct Reversed;
///
/// impl ModelSource for Reversed {
///     fn at(&self, shapes: &[(&str, &[i64])]) -> sterna::Result<Model> {
///         let g = GraphBuilder::new();
///         let dims: Vec<Option<i64>> = shapes[0].1.iter().map(|&dim| Some(dim)).collect();
///         g.output("y", g.transpose(g.input("x", DataType::U8, &dims)?, &[])?)?;
///         g.build()
///     }
/// }
///
/// let port = |name, id| ModelPort::new(name, LogicalTensor::unknown(id, DataType::U8));
/// let model = Model::from_source(vec![port("x", 0)], vec![port("y", 1)], std::sync::Arc::new(Reversed));
/// let session = Session::new(model, &Engine::new())?;
/// assert_eq!(session.run(&[("x", &[[1u8, 2], [3, 4]])])?["y"].as_slice::<u8>()?, [1, 3, 2, 4]);
/// # Ok::<(), sterna::Error>(())
/// ```
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// The model for shapes of all inputs, by name. Its inputs and outputs have the names and types of the
    /// model that has this source; constants are best the same memory each time.
    ///
    /// # Errors
    ///
    /// Any; [`SessionFault::Source`](crate::SessionFault::Source) with a message fits most.
    fn at(&self, shapes: &[(&str, &[i64])]) -> Result<Model>;
}

impl Model {
    /// A graph all of whose inputs and outputs are called by the numbers of their tensors. Its outputs are
    /// the tensors that no op uses, and those of ops `End`.
    ///
    /// # Errors
    ///
    /// As [`Graph::finalize`].
    pub fn new(mut graph: Graph) -> Result<Self> {
        graph.finalize()?;
        let named = |tensors: Vec<&LogicalTensor>| -> Vec<ModelPort> {
            tensors
                .into_iter()
                .map(|tensor| ModelPort::new(tensor.id().to_string(), tensor.clone()))
                .collect()
        };
        // An op `End` says that its input is wanted outside.
        let mut wanted = graph.outputs();
        for input in graph.ops().iter().filter(|op| op.kind() == OpKind::End).flat_map(Op::inputs) {
            if wanted.iter().all(|other| other.id() != input.id()) {
                wanted.push(input);
            }
        }
        let (inputs, outputs) = (named(graph.inputs()), named(wanted));
        Ok(Self { graph, inputs, outputs, constants: BTreeMap::new(), custom: BTreeMap::new(), source: None })
    }

    /// A graph with names for its inputs and outputs, in the order of the caller. An output may also be a
    /// tensor that ops use, an input or a constant.
    ///
    /// # Errors
    ///
    /// As [`Graph::finalize`].
    pub fn with_ports(mut graph: Graph, inputs: Vec<ModelPort>, outputs: Vec<ModelPort>) -> Result<Self> {
        graph.finalize()?;
        let (constants, custom) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { graph, inputs, outputs, constants, custom, source: None })
    }

    /// A model that a source makes anew for each set of shapes; a graph of its own it does not have.
    #[must_use]
    pub fn from_source(
        inputs: Vec<ModelPort>,
        outputs: Vec<ModelPort>,
        source: Arc<dyn ModelSource>,
    ) -> Self {
        let (graph, constants, custom) = (Graph::new(), BTreeMap::new(), BTreeMap::new());
        Self { graph, inputs, outputs, constants, custom, source: Some(source) }
    }

    /// The source, if the model is made for each set of shapes.
    #[must_use]
    pub fn source(&self) -> Option<&Arc<dyn ModelSource>> {
        self.source.as_ref()
    }

    /// Gives a tensor that no op computes its value, once and for all. It is no input any more.
    #[must_use]
    pub fn constant(mut self, tensor: impl Into<TensorId>, data: ConstantData) -> Self {
        let tensor = tensor.into();
        self.inputs.retain(|input| input.tensor.id() != tensor);
        self.constants.insert(tensor, data);
        self
    }

    /// The same model with other ports.
    pub(crate) fn with_other_ports(self, inputs: Vec<ModelPort>, outputs: Vec<ModelPort>) -> Self {
        Self { inputs, outputs, ..self }
    }

    /// The same model with another math mode, if there is one.
    pub(crate) fn with_fpmath(self, fpmath: Option<FpMath>) -> Self {
        match fpmath {
            Some(fpmath) => Self { graph: self.graph.with_fpmath(fpmath), ..self },
            None => self,
        }
    }

    /// Says what an op `Wildcard` of the graph stands for.
    #[must_use]
    pub fn custom(mut self, op: impl Into<OpId>, node: CustomNode) -> Self {
        self.custom.insert(op.into(), node);
        self
    }

    /// The graph, finalized.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph, without names and constants.
    #[must_use]
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// The inputs, in their order.
    #[must_use]
    pub fn inputs(&self) -> &[ModelPort] {
        &self.inputs
    }

    /// The outputs, in their order.
    #[must_use]
    pub fn outputs(&self) -> &[ModelPort] {
        &self.outputs
    }

    /// The values of the constants.
    #[must_use]
    pub fn constants(&self) -> &BTreeMap<TensorId, ConstantData> {
        &self.constants
    }

    /// The meanings of ops `Wildcard`.
    #[must_use]
    pub fn custom_nodes(&self) -> &BTreeMap<OpId, CustomNode> {
        &self.custom
    }
}
