//! Writes graphs, with keys in oneDNN's order.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize as DeriveSerialize;

use super::spelling_of_f32;
use crate::graph::Graph;
use crate::graph::logical_tensor::{Layout, LogicalTensor};
use crate::graph::op::{AttrValue, Op};
use crate::types::id::{OpId, TensorId};
use crate::types::shape::UNKNOWN_DIM;

/// The version of oneDNN whose format is written.
const VERSION: &str = "3.13.0";

impl Graph {
    /// Writes the graph in the JSON format of oneDNN's graph dumps, readable by oneDNN.
    ///
    /// [`from_json`](Graph::from_json) reads the text back to an equal graph, with one exception, which the
    /// format causes: a tensor of rank 1 with an unknown dim looks like a tensor of unknown rank and is read
    /// as one, unless its stride is known. If ops contradict each other on a tensor, so that
    /// [`finalize`](Graph::finalize) refuses the graph, the producer's description is read. Only Sterna reads
    /// its own kinds, data types and attributes, and the strings for an f32 that is not finite.
    ///
    /// ```
    /// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind};
    /// let mut graph = Graph::new();
    /// let dense = |id| LogicalTensor::strided(id, DataType::F32, &[2, 3]);
    /// graph.add_op(Op::new(0, OpKind::ReLU).input(dense(0)?).output(dense(1)?))?;
    /// assert_eq!(Graph::from_json(&graph.to_json())?, graph);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let ids = |tensors: Vec<&LogicalTensor>| tensors.into_iter().map(LogicalTensor::id).collect();
        let document = DocumentOut {
            version: VERSION,
            engine_kind: self.engine_kind().name(),
            fpmath_mode: self.fpmath().mode.name(),
            fpmath_mode_apply_to_int: if self.fpmath().apply_to_int { "true" } else { "false" },
            input_ports: ids(self.inputs()),
            output_ports: ids(self.outputs()),
            graph: self.ops().iter().map(OpOut::from).collect(),
        };
        serde_json::to_string_pretty(&document)
            .expect("all keys are strings, and memory does not fail to be written")
    }
}

#[derive(DeriveSerialize)]
struct DocumentOut<'a> {
    version: &'static str,
    engine_kind: &'static str,
    fpmath_mode: &'static str,
    fpmath_mode_apply_to_int: &'static str,
    input_ports: Vec<TensorId>,
    output_ports: Vec<TensorId>,
    graph: Vec<OpOut<'a>>,
}

#[derive(DeriveSerialize)]
struct OpOut<'a> {
    id: OpId,
    name: &'a str,
    kind: &'static str,
    attrs: BTreeMap<&'static str, AttrOut<'a>>,
    inputs: Vec<TensorOut<'a>>,
    outputs: Vec<TensorOut<'a>>,
}

/// oneDNN's reader needs the type before the value.
#[derive(DeriveSerialize)]
struct AttrOut<'a> {
    r#type: &'static str,
    value: ValueOut<'a>,
}

#[derive(DeriveSerialize)]
#[serde(untagged)]
enum ValueOut<'a> {
    Integer(i64),
    Number(NumberOut),
    String(&'a str),
    Integers(&'a [i64]),
    Numbers(Vec<NumberOut>),
}

#[derive(DeriveSerialize)]
#[serde(untagged)]
enum NumberOut {
    Finite(f32),
    Spelled(String),
}

#[derive(DeriveSerialize)]
struct TensorOut<'a> {
    id: TensorId,
    dtype: &'static str,
    shape: &'a [i64],
    stride: Cow<'a, [i64]>,
    layout_type: &'static str,
    property_type: &'static str,
}

impl<'a> From<&'a Op> for OpOut<'a> {
    fn from(op: &'a Op) -> Self {
        // Inserted one by one: `collect` would add 8 KB of sorting code.
        let mut attrs = BTreeMap::new();
        attrs.extend(op.attrs().map(|(attr, value)| (attr.name(), AttrOut::from(value))));
        Self {
            id: op.id(),
            name: op.name(),
            kind: op.kind().name(),
            attrs,
            inputs: op.inputs().iter().map(TensorOut::from).collect(),
            outputs: op.outputs().iter().map(TensorOut::from).collect(),
        }
    }
}

impl<'a> From<&'a AttrValue> for AttrOut<'a> {
    fn from(value: &'a AttrValue) -> Self {
        let written = match value {
            AttrValue::Bool(value) => ValueOut::Integer((*value).into()),
            AttrValue::S64(value) => ValueOut::Integer(*value),
            AttrValue::F32(value) => ValueOut::Number((*value).into()),
            AttrValue::String(value) => ValueOut::String(value),
            AttrValue::S64s(values) => ValueOut::Integers(values),
            AttrValue::F32s(values) => ValueOut::Numbers(values.iter().map(|&value| value.into()).collect()),
        };
        Self { r#type: value.type_name(), value: written }
    }
}

impl From<f32> for NumberOut {
    fn from(number: f32) -> Self {
        spelling_of_f32(number).map_or(Self::Finite(number), Self::Spelled)
    }
}

impl<'a> From<&'a LogicalTensor> for TensorOut<'a> {
    fn from(tensor: &'a LogicalTensor) -> Self {
        let stride = match (tensor.layout(), tensor.raw_dims()) {
            (Layout::Strided(strides), Some(_)) => Cow::Borrowed(strides.raw()),
            (Layout::Opaque(id), _) => vec![*id as i64].into(),
            _ => Cow::Borrowed(&[UNKNOWN_DIM][..]),
        };
        Self {
            id: tensor.id(),
            dtype: tensor.data_type().name(),
            shape: tensor.raw_dims().unwrap_or(&[UNKNOWN_DIM]),
            stride,
            layout_type: tensor.layout().name(),
            property_type: tensor.property().name(),
        }
    }
}
