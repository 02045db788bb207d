//! The graph that a drawing shows, with all that is known of it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use sterna::reference::Value;
use sterna::{
    ArenaPlan, ConstantData, CustomNode, Engine, Graph, LogicalTensor, Model, ModelPort, OpId, Session,
    TensorId,
};

use crate::words::harmless;

/// A graph to be shown, with the names and values that whoever loaded it knows. A [`Model`] is one.
pub trait Subject {
    /// The graph, finalized.
    fn graph(&self) -> &Graph;

    /// The names of inputs and outputs, as they are shown.
    fn names(&self) -> BTreeMap<TensorId, String>;

    /// The type of the layer for which an op `Wildcard` stands.
    fn skipped_kind(&self, op: OpId) -> Option<&str>;

    /// A note about such an op, in words that follow it.
    fn skipped_note(&self) -> &'static str {
        "a layer that is not mapped"
    }

    /// Why Sterna does not run such an op of some type.
    fn why_skipped(&self, kind: &str) -> String {
        format!("layers of type {kind} are not mapped")
    }

    /// A tensor with the strides that it has in memory.
    ///
    /// # Errors
    ///
    /// Its shape is not known; the error says how to give it.
    fn in_memory(&self, tensor: &LogicalTensor) -> Result<LogicalTensor>;

    /// The value of an input that somebody gives beside the graph.
    ///
    /// # Errors
    ///
    /// The value does not fit the input.
    fn given(&self, input: &LogicalTensor) -> Result<Option<Value>>;

    /// The value of an input that is a constant of a model.
    ///
    /// # Errors
    ///
    /// The value does not fit the input.
    fn constant(&self, input: &LogicalTensor) -> Result<Option<Value>>;

    /// A hint for the reader: the way to a drawing of a mask that depends on an input, if there is one.
    fn remedy(&self, input: TensorId) -> Option<String>;

    /// The memory of a run in a session; `None` if a shape is open.
    ///
    /// # Errors
    ///
    /// No session runs the graph.
    fn arena_plan(&self, engine: &Engine) -> Result<Option<ArenaPlan>>;
}

impl Subject for Model {
    fn graph(&self) -> &Graph {
        Self::graph(self)
    }

    fn names(&self) -> BTreeMap<TensorId, String> {
        // Inputs come last and win: a model may hand an input out as it is.
        let all = self.outputs().iter().chain(self.inputs());
        all.map(|port: &ModelPort| (port.tensor.id(), harmless(port.name()))).collect()
    }

    fn skipped_kind(&self, op: OpId) -> Option<&str> {
        self.custom_nodes().get(&op).map(|node: &CustomNode| node.op.as_str())
    }

    fn skipped_note(&self) -> &'static str {
        "an op that a function of its own runs"
    }

    fn why_skipped(&self, kind: &str) -> String {
        format!("a session runs {kind} by the function that it is given")
    }

    fn in_memory(&self, tensor: &LogicalTensor) -> Result<LogicalTensor> {
        let dims = tensor.dims().ok_or_else(|| {
            let port = self.inputs().iter().find(|port| port.tensor.id() == tensor.id());
            let named = port.map_or_else(String::new, |port| format!(" `{}`", harmless(port.name())));
            anyhow!("the shape of tensor {}{named} is open; a run tells it", tensor.id())
        })?;
        Ok(match tensor.strides() {
            Some(_) => tensor.clone(),
            None => LogicalTensor::strided(tensor.id(), tensor.data_type(), dims)?
                .with_property(tensor.property())?,
        })
    }

    fn given(&self, _: &LogicalTensor) -> Result<Option<Value>> {
        Ok(None)
    }

    fn constant(&self, input: &LogicalTensor) -> Result<Option<Value>> {
        let value = |data: &ConstantData| {
            Value::new(input.data_type(), input.dims().unwrap_or(&[]), data.bytes().to_vec())
        };
        Ok(self.constants().get(&input.id()).map(value).transpose()?)
    }

    fn remedy(&self, _: TensorId) -> Option<String> {
        None
    }

    fn arena_plan(&self, engine: &Engine) -> Result<Option<ArenaPlan>> {
        Ok(Session::builder(self.clone()).fallback(true).build(engine)?.arena_plan())
    }
}
