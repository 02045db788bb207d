//! Reads graphs: what each value of a document stands for.

use super::node::{GIVEN_TWICE, Node};
use super::notes::{JsonNote, complete_mentions, let_producers_decide};
use crate::error::{Direction, Result};
use crate::graph::logical_tensor::{Layout, LogicalTensor, PartialStrides};
use crate::graph::op::{AttrValue, Op};
use crate::graph::{FpMath, Graph};
use crate::types::UnknownName;
use crate::types::dtype::DataType;
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, EngineKind, FpMathMode, OpKind, Property};
use crate::types::shape::{Dims, UNKNOWN_DIM};

impl Graph {
    /// Reads a graph in the JSON format of oneDNN's graph dumps. The ops are added; the graph is not
    /// finalized.
    ///
    /// The order of keys does not matter, and unknown keys are ignored. Keys that follow from others may be
    /// missing: the lists of ports (they are ignored if present), the name of an op, its attributes, and
    /// everything of a tensor but `id` and `dtype`:
    ///
    /// - a missing `shape`, or the one-element list `[-9223372036854775808]`, means an unknown rank, or rank
    ///   1 if it has one stride that is known; a dim of -1 is unknown, as one of -9223372036854775808 is;
    /// - a missing `stride` means row-major; the same one-element list means that no stride is known;
    /// - a missing `layout_type` means `strided` if there is a `stride`, else `any`;
    /// - under layout `opaque`, the first element of `stride` is the layout id, which shares memory with the
    ///   strides in oneDNN; under `any` and `undef`, strides are ignored.
    ///
    /// The kind of engine says where the graph was dumped. It is [kept](Graph::engine_kind) and written
    /// again; partitions run on CPU.
    ///
    /// Of a tensor that an op of the graph produces, the producer's description counts: if a consumer's
    /// contradicts it in anything but the type, the producer's takes its place.
    /// [`from_json_with_notes`](Graph::from_json_with_notes) lists these cases. What one mention of a tensor
    /// leaves open, another may say: an unknown rank, dim or stride, and the layout `undef`. All mentions of
    /// the tensor are then the same.
    ///
    /// Booleans may be 0 and 1 or `false` and `true`. A number of type f32 is rounded once, from its decimal
    /// digits; the strings `"inf"`, `"-inf"` and `"nan"` stand for values that JSON cannot write as numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Json`](crate::Error::Json), with the position in the document. If [`LogicalTensor`] or
    /// [`add_op`](Graph::add_op) refused what was read, their error is its cause. In messages, ops and ports
    /// are counted from 0, lines and columns from 1.
    ///
    /// ```
    /// use sterna::{Error, Graph, OpKind};
    /// let graph = Graph::from_json(
    ///     r#"{"graph": [{
    ///         "id": 0, "kind": "ReLU",
    ///         "inputs": [{"id": 0, "dtype": "f32", "shape": [2, 3]}],
    ///         "outputs": [{"id": 1, "dtype": "f32"}]
    ///     }]}"#,
    /// )?;
    /// assert_eq!(graph.ops()[0].kind(), OpKind::ReLU);
    ///
    /// let error = Graph::from_json("{\"graph\":\n [{\"id\": 7, \"kind\": \"Relu\"}]}").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "line 2, column 21: op 0 (id 7), key `kind`: no op kind is called \"Relu\"; \
    ///      did you mean \"ReLU\"?",
    /// );
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        Ok(Self::from_json_with_notes(text)?.0)
    }

    /// Reads a graph as [`from_json`](Graph::from_json) does, and also returns what it read in
    /// another way than it is written.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Graph::from_json).
    ///
    /// ```
    /// use sterna::Graph;
    /// let (graph, notes) = Graph::from_json_with_notes(
    ///     r#"{"graph": [
    ///         {"id": 0, "kind": "Abs", "inputs": [{"id": 0, "dtype": "f32", "shape": [2, 3]}],
    ///                                  "outputs": [{"id": 1, "dtype": "f32", "shape": [2, 3]}]},
    ///         {"id": 1, "kind": "Exp", "inputs": [{"id": 1, "dtype": "f32", "shape": [1, 3]}],
    ///                                  "outputs": [{"id": 2, "dtype": "f32"}]}
    ///     ]}"#,
    /// )?;
    /// assert_eq!(graph.ops()[1].inputs()[0].dims(), Some(&[2, 3][..]));
    /// assert_eq!(
    ///     notes[0].to_string(),
    ///     "Exp (op 1), input 0 `src` (tensor 1): dims {1,3} differ from {2,3} of its producer, Abs (op 0), \
    ///      whose description counts",
    /// );
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn from_json_with_notes(text: &str) -> Result<(Self, Vec<JsonNote>)> {
        let root = Node::document(text)?;
        let [engine, mode, to_int, ops] =
            root.fields(["engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int", "graph"])?;
        let engine_kind = engine.map_or(Ok(EngineKind::default()), Node::named)?;
        let mut graph = Self { engine_kind, ..Self::new() };
        graph.set_fpmath(FpMath {
            mode: mode.map_or(Ok(FpMathMode::Strict), Node::named)?,
            apply_to_int: to_int.map_or(Ok(false), Node::truth)?,
        })?;
        let (mut nodes, mut read) = (Vec::new(), Vec::new());
        let ops = match ops {
            Some(ops) if !is_model(ops) => ops.items()?,
            Some(ops) => return Err(ops.fault(MODEL)),
            None if is_model(root) => return Err(root.fault(MODEL)),
            None => return Err(root.missing("graph")),
        };
        for (index, op) in ops.enumerate() {
            let op = op.at_op(index);
            read.push(read_op(op)?);
            nodes.push(op);
        }
        let replaced = let_producers_decide(&mut read);
        complete_mentions(&mut read);
        for (node, op) in nodes.into_iter().zip(read) {
            graph.add_op(op).map_err(|cause| node.refused(cause))?;
        }
        let notes = replaced.into_iter().map(|replaced| replaced.note(&graph.ops)).collect();
        Ok((graph, notes))
    }
}

const MODEL: &str = "this is an ONNX model, not a graph in the form of oneDNN's dumps; `sterna_import::onnx` \
                     reads ONNX files";

/// True if a value has keys of a model, or of its graph, as protobuf writes ONNX in JSON.
fn is_model(value: Node<'_>) -> bool {
    const KEYS: [&str; 5] = ["irVersion", "ir_version", "opsetImport", "opset_import", "node"];
    value.entries().is_ok_and(|entries| entries.iter().any(|(key, _)| KEYS.contains(&&**key)))
}

/// Notes of a partitioned graph's dump among the attributes of each op; they are no attributes.
const NOTES: [&str; 2] = ["partition_id", "backend"];

fn read_op(op: Node<'_>) -> Result<Op> {
    let [id, name, kind, attrs, inputs, outputs] =
        op.fields(["id", "name", "kind", "attrs", "inputs", "outputs"])?;
    let id = OpId::new(id.ok_or_else(|| op.missing("id"))?.id()?);
    let kind: OpKind = kind.ok_or_else(|| op.missing("kind"))?.named()?;
    let mut result = Op::new(id, kind);
    if let Some(name) = name {
        result = result.named(name.string()?);
    }
    let mut seen: Vec<Attr> = Vec::new();
    for (name, entry) in attrs.map_or(Ok(Vec::new()), Node::entries)? {
        if NOTES.contains(&&*name) {
            continue;
        }
        let entry = entry.at_attr(op, &name);
        let attr: Attr = name.parse().map_err(|unknown: UnknownName| entry.fault(unknown))?;
        if seen.contains(&attr) {
            return Err(entry.fault(GIVEN_TWICE));
        }
        seen.push(attr);
        result = result.attr(attr, read_attr(entry)?);
    }
    for (index, tensor) in inputs.ok_or_else(|| op.missing("inputs"))?.items()?.enumerate() {
        result = result.input(read_tensor(tensor.at_port(Direction::Input, index))?);
    }
    for (index, tensor) in outputs.ok_or_else(|| op.missing("outputs"))?.items()?.enumerate() {
        result = result.output(read_tensor(tensor.at_port(Direction::Output, index))?);
    }
    Ok(result)
}

fn read_attr(attr: Node<'_>) -> Result<AttrValue> {
    let [value_type, value] = attr.fields(["type", "value"])?;
    let value_type = value_type.ok_or_else(|| attr.missing("type"))?;
    let value = value.ok_or_else(|| attr.missing("value"))?;
    Ok(match &*value_type.string()? {
        "bool" => AttrValue::Bool(value.truth()?),
        "s64" => AttrValue::S64(value.s64()?),
        "f32" => AttrValue::F32(value.f32()?),
        "string" => AttrValue::String(value.string()?.into()),
        "s64[]" => AttrValue::S64s(value.items()?.map(Node::s64).collect::<Result<_>>()?),
        "f32[]" => AttrValue::F32s(value.items()?.map(Node::f32).collect::<Result<_>>()?),
        other => {
            let message =
                format!("no attribute type is called {other:?}; bool, string, s64, f32, s64[] and f32[] are");
            return Err(value_type.fault(message));
        }
    })
}

fn read_tensor(tensor: Node<'_>) -> Result<LogicalTensor> {
    let [id, data_type, shape, stride, layout, property] =
        tensor.fields(["id", "dtype", "shape", "stride", "layout_type", "property_type"])?;
    let id = TensorId::new(id.ok_or_else(|| tensor.missing("id"))?.id()?);
    let data_type: DataType = data_type.ok_or_else(|| tensor.missing("dtype"))?.named()?;
    let property = property.map_or(Ok(Property::Undef), Node::named)?;
    let strides = stride.map(Node::dims).transpose()?;
    let layout_name = match layout {
        Some(layout) => layout.string()?,
        None if strides.is_some() => "strided".into(),
        None => "any".into(),
    };
    // One stride that is known is that of a tensor of rank 1.
    let has_a_stride = matches!(strides.as_deref(), Some(&[stride]) if stride != UNKNOWN_DIM);
    let has_rank = |dims: &Dims| dims[..] != [UNKNOWN_DIM] || (layout_name == "strided" && has_a_stride);
    let dims = shape.map(Node::dims).transpose()?.filter(has_rank);
    // Other tools write an unknown dim so.
    let known = |dim| if dim == -1 { UNKNOWN_DIM } else { dim };
    let dims: Option<Dims> = dims.map(|dims| dims.into_iter().map(known).collect());
    let described = match (&*layout_name, &dims, strides) {
        ("strided", Some(dims), None) => LogicalTensor::dense(id, data_type, dims),
        ("strided", Some(dims), Some(strides)) if strides[..] == [UNKNOWN_DIM] => {
            let strides = PartialStrides::from_raw(Dims::from_elem(UNKNOWN_DIM, dims.len()));
            LogicalTensor::laid_out(id, data_type, Some(dims), Layout::Strided(strides))
        }
        (name, dims, strides) => {
            let strides = strides.unwrap_or_default();
            let read_layout = match name {
                "undef" => Layout::Undef,
                "any" => Layout::Any,
                "strided" => Layout::Strided(PartialStrides::from_raw(strides)),
                "opaque" => Layout::Opaque(strides.first().map_or(0, |&id| id as usize)),
                _ => {
                    let message = format!("no layout is called {name:?}; undef, any, strided and opaque are");
                    return Err(layout.unwrap_or(tensor).fault(message));
                }
            };
            LogicalTensor::laid_out(id, data_type, dims.as_deref(), read_layout)
        }
    };
    described.and_then(|described| described.with_property(property)).map_err(|cause| tensor.refused(cause))
}
