//! Reads and writes graph JSON: the format in which oneDNN dumps graphs.
//!
//! The reader first checks the whole document, then goes through it value by value. A value is a slice of the
//! document, so its address gives its position, and lines are counted only for an error message.
//!
//! Sterna's own kinds and attributes are written by name like any other. oneDNN's reader refuses a graph that
//! has one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::logical_tensor::{Layout, LogicalTensor};
use super::op::{AttrValue, Op};
use super::{FpMath, Graph};
use crate::error::{Direction, Error, JsonFault, OpRef, PortRef, Result};
use crate::types::UnknownName;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, EngineKind, FpMathMode, OpId, OpKind, Property, TensorId};
use crate::types::shape::{Braced, Dims, UNKNOWN_DIM};

/// The version of oneDNN whose format is written.
const VERSION: &str = "3.13.0";

/// Deepest nesting of lists and objects; a graph needs eight levels.
const MAX_DEPTH: usize = 128;

impl Graph {
    /// Reads a graph in the JSON format of oneDNN's graph dumps. The ops are added; the graph is not
    /// finalized.
    ///
    /// The order of keys does not matter, and unknown keys are ignored. Keys that follow from others may be
    /// missing: the lists of ports (they are ignored if present), the name of an op, its attributes, and
    /// everything of a tensor but `id` and `dtype`:
    ///
    /// - a missing `shape`, or the one-element list `[-9223372036854775808]`, means an unknown rank;
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
    /// [`from_json_with_notes`](Graph::from_json_with_notes) lists these cases.
    ///
    /// Booleans may be 0 and 1 or `false` and `true`. A number of type f32 is rounded once, from its decimal
    /// digits; the strings `"inf"`, `"-inf"` and `"nan"` stand for values that JSON cannot write as numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Json`], with the position in the document. If [`LogicalTensor`] or [`add_op`](Graph::add_op)
    /// refused what was read, their error is its cause. In messages, ops and ports are counted from 0, lines
    /// and columns from 1.
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
    ///     "line 2, column 21: op 0 (id 7), key `kind`: no op kind is called \"Relu\"",
    /// );
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        Ok(Self::from_json_with_notes(text)?.0)
    }

    /// Reads a graph as [`from_json`](Graph::from_json) does, and answers as well with what it read in
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
        for (index, op) in ops.ok_or_else(|| root.missing("graph"))?.items()?.enumerate() {
            let op = op.at(JsonPath { op: Some((index, op.text)), ..JsonPath::default() });
            read.push(read_op(op)?);
            nodes.push(op);
        }
        let replaced = let_producers_decide(&mut read);
        for (node, op) in nodes.into_iter().zip(read) {
            graph.add_op(op).map_err(|cause| node.refused(cause))?;
        }
        let notes = replaced.into_iter().map(|replaced| replaced.note(&graph.ops)).collect();
        Ok((graph, notes))
    }

    /// Writes the graph in the JSON format of oneDNN's graph dumps, readable by oneDNN.
    ///
    /// [`from_json`](Graph::from_json) reads the text back to an equal graph, with one exception, which the
    /// format causes: a tensor of rank 1 with an unknown dim looks like a tensor of unknown rank and is read
    /// as one. If ops contradict each other on a tensor, so that [`finalize`](Graph::finalize) refuses the
    /// graph, the producer's description is read. Only Sterna reads its own kinds, data types and attributes,
    /// and the strings for an f32 that is not finite.
    ///
    /// ```
    /// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind};
    /// let mut graph = Graph::new();
    /// let dense = |id| LogicalTensor::strided(id, DataType::F32, &[2, 3]);
    /// graph.add_op(Op::new(0, OpKind::ReLU).input(dense(0)?).output(dense(1)?))?;
    /// assert_eq!(Graph::from_json(&graph.to_json())?, graph);
    /// # Ok::<(), sterna::Error>(())
    /// ```
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

/// A place where a graph was read in another way than its JSON is written: a consumer of a tensor
/// contradicted the tensor's producer, whose description took the place of the consumer's.
///
/// ```
/// use sterna::Graph;
/// let (graph, notes) = Graph::from_json_with_notes(r#"{"graph": []}"#)?;
/// assert!(graph.ops().is_empty() && notes.is_empty());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JsonNote {
    /// The op that consumes the tensor.
    pub consumer: OpRef,
    /// Its port.
    pub port: PortRef,
    /// The op that produces the tensor.
    pub producer: OpRef,
    /// What differs first: "ranks", "dims", "layouts", "strides" or "properties".
    pub what: &'static str,
    /// The description at the consumer's port, as it is written.
    pub replaced: LogicalTensor,
    /// The producer's description, which counts.
    pub by: LogicalTensor,
}

impl fmt::Display for JsonNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |tensor: &LogicalTensor| match (self.what, tensor.layout()) {
            ("ranks" | "dims", _) => Braced(tensor.dims().unwrap_or(&[])).to_string(),
            ("strides", Layout::Strided(strides)) => Braced(strides).to_string(),
            ("layouts", Layout::Opaque(id)) => format!("opaque {id}"),
            ("properties", _) => tensor.property().name().into(),
            (_, layout) => layout.name().into(),
        };
        let Self { consumer, port, producer, what, replaced, by } = self;
        let what = if *what == "ranks" { "dims" } else { what };
        let (replaced, by) = (shown(replaced), shown(by));
        write!(
            f,
            "{consumer}, {port}: {what} {replaced} differ from {by} of its producer, {producer}, \
             whose description counts"
        )
    }
}

/// Puts the description that the producer of a tensor gives in place of each consumer's that contradicts it.
/// Types that differ are left to be refused when the graph is finalized.
fn let_producers_decide(ops: &mut [Op]) -> Vec<Replaced> {
    let mut producers: FxHashMap<TensorId, (usize, usize)> = FxHashMap::default();
    for (op, at) in ops.iter().zip(0..) {
        for (output, port) in op.outputs().iter().zip(0..) {
            producers.entry(output.id()).or_insert((at, port));
        }
    }
    let mut all = Vec::new();
    for consumer in 0..ops.len() {
        for port in 0..ops[consumer].inputs().len() {
            let input = &ops[consumer].inputs()[port];
            let Some(&(producer, output)) = producers.get(&input.id()) else { continue };
            let decides = &ops[producer].outputs()[output];
            let Some(what) = decides.contradiction(input).filter(|&what| what != "types") else { continue };
            let description = decides.clone();
            let written = ops[consumer].replace_input(port, description);
            all.push(Replaced { consumer, port, producer, what, written });
        }
    }
    all
}

/// A consumer's description that was replaced, by the indices of the ops.
struct Replaced {
    consumer: usize,
    port: usize,
    producer: usize,
    what: &'static str,
    written: LogicalTensor,
}

impl Replaced {
    /// The note for users, once the ops are known to have the ports that their kinds have.
    fn note(self, ops: &[Op]) -> JsonNote {
        let consumer = &ops[self.consumer];
        JsonNote {
            consumer: consumer.op_ref(),
            port: consumer.input_ref(self.port),
            producer: ops[self.producer].op_ref(),
            what: self.what,
            replaced: self.written,
            by: consumer.inputs()[self.port].clone(),
        }
    }
}

/// Notes of a partitioned graph's dump among the attributes of each op; they are no attributes.
const NOTES: [&str; 2] = ["partition_id", "backend"];

fn read_op(op: Node<'_>) -> Result<Op> {
    let [id, name, kind, attrs, inputs, outputs] =
        op.fields(["id", "name", "kind", "attrs", "inputs", "outputs"])?;
    let id: OpId = id.ok_or_else(|| op.missing("id"))?.id()?;
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
        let entry = entry.at(JsonPath { attr: Some(&name), key: None, ..op.path });
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
    let id: TensorId = id.ok_or_else(|| tensor.missing("id"))?.id()?;
    let data_type: DataType = data_type.ok_or_else(|| tensor.missing("dtype"))?.named()?;
    let property = property.map_or(Ok(Property::Undef), Node::named)?;
    let dims = shape.map(Node::dims).transpose()?.filter(|dims| dims[..] != [UNKNOWN_DIM]);
    let strides = stride.map(Node::dims).transpose()?;
    let layout_name = match layout {
        Some(layout) => layout.string()?,
        None if strides.is_some() => "strided".into(),
        None => "any".into(),
    };
    let described = match (&*layout_name, &dims, strides) {
        ("strided", Some(dims), None) => LogicalTensor::strided(id, data_type, dims),
        ("strided", Some(dims), Some(strides)) if strides[..] == [UNKNOWN_DIM] => {
            LogicalTensor::with_strides(id, data_type, dims, &Dims::from_elem(UNKNOWN_DIM, dims.len()))
        }
        (name, dims, strides) => {
            let strides = strides.unwrap_or_default();
            let read_layout = match name {
                "undef" => Layout::Undef,
                "any" => Layout::Any,
                "strided" => Layout::Strided(strides),
                "opaque" => Layout::Opaque(strides.first().map_or(0, |&id| id as usize)),
                _ => {
                    let message = format!("no layout is called {name:?}; undef, any, strided and opaque are");
                    return Err(layout.unwrap_or(tensor).fault(message));
                }
            };
            LogicalTensor::with_layout(id, data_type, dims.as_deref(), read_layout)
        }
    };
    described.and_then(|described| described.with_property(property)).map_err(|cause| tensor.refused(cause))
}

const GIVEN_TWICE: &str = "the key is given twice";

/// A JSON value: a slice of the document, and its purpose.
#[derive(Clone, Copy)]
struct Node<'a> {
    document: &'a str,
    text: &'a str,
    path: JsonPath<'a>,
}

/// The way from the document to a value: the op, port, attribute and key that it belongs to.
#[derive(Clone, Copy, Default)]
struct JsonPath<'a> {
    /// The index and the text of an op.
    op: Option<(usize, &'a str)>,
    port: Option<(Direction, usize)>,
    attr: Option<&'a str>,
    key: Option<&'static str>,
}

impl<'a> Node<'a> {
    /// The value of a whole text. Everything inside it is known to be well-formed JSON afterwards.
    fn document(text: &'a str) -> Result<Self> {
        let whole = Self { document: text, text, path: JsonPath::default() };
        if let Some(offset) = too_deep(text) {
            let deep = Self { text: &text[offset..], ..whole };
            return Err(deep.fault(format!("lists and objects are nested more than {MAX_DEPTH} deep")));
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(root) => Ok(Self { text: root.get(), ..whole }),
            Err(error) => {
                let offset = if error.is_eof() { text.len() } else { offset_of(text, &error) };
                let at = Self { text: &text[offset..], ..whole };
                Err(at.fault(format!("{}{}", without_position(&error), hint(text, offset))))
            }
        }
    }

    fn at(self, path: JsonPath<'a>) -> Self {
        Self { path, ..self }
    }

    fn at_port(self, direction: Direction, index: usize) -> Self {
        self.at(JsonPath { port: Some((direction, index)), key: None, ..self.path })
    }

    fn at_key(self, key: &'static str) -> Self {
        self.at(JsonPath { key: Some(key), ..self.path })
    }

    /// The values of the given keys. Other keys are ignored.
    fn fields<const N: usize>(self, keys: [&'static str; N]) -> Result<[Option<Self>; N]> {
        let mut fields = [None; N];
        for (key, value) in self.entries()? {
            let Some(index) = keys.iter().position(|&known| known == key) else { continue };
            let value = value.at_key(keys[index]);
            if fields[index].replace(value).is_some() {
                return Err(value.fault(GIVEN_TWICE));
            }
        }
        Ok(fields)
    }

    /// The keys and values of an object, in written order.
    fn entries(self) -> Result<Vec<(Cow<'a, str>, Self)>> {
        let Entries(entries) = self.read("an object")?;
        Ok(entries.into_iter().map(|(key, value)| (key, Self { text: value.get(), ..self })).collect())
    }

    /// The elements of a list.
    fn items(self) -> Result<impl Iterator<Item = Self>> {
        let items: Vec<&RawValue> = self.read("a list")?;
        Ok(items.into_iter().map(move |item| Self { text: item.get(), ..self }))
    }

    fn dims(self) -> Result<Dims> {
        self.items()?.map(Self::s64).collect()
    }

    fn id(self) -> Result<usize> {
        self.read("an id, a whole number that is not negative")
    }

    fn s64(self) -> Result<i64> {
        self.read("a whole number of 64 bits")
    }

    fn string(self) -> Result<Cow<'a, str>> {
        let Text(text) = self.read("a string")?;
        Ok(text)
    }

    /// A name from a closed list.
    fn named<T: FromStr<Err = UnknownName>>(self) -> Result<T> {
        self.string()?.parse().map_err(|unknown| self.fault(unknown))
    }

    fn truth(self) -> Result<bool> {
        match self.text {
            "0" | "false" | "\"false\"" => Ok(false),
            "1" | "true" | "\"true\"" => Ok(true),
            _ => Err(self.unlike("a truth value: 0, 1, false or true")),
        }
    }

    /// A number, rounded once from its digits; a detour through f64 would round twice.
    fn f32(self) -> Result<f32> {
        let number = match self.text.as_bytes() {
            [b'"', ..] => spelled_f32(&self.string()?),
            _ => self.text.parse().ok().filter(|number: &f32| number.is_finite()),
        };
        number.ok_or_else(|| self.unlike("a number of type f32"))
    }

    fn read<T: Deserialize<'a>>(self, expected: &str) -> Result<T> {
        serde_json::from_str(self.text).map_err(|error| match error.classify() {
            Category::Data => self.unlike(expected),
            // The check of the whole document leaves half a surrogate pair and a number out of range.
            _ => self.fault(without_position(&error)),
        })
    }

    fn unlike(self, expected: &str) -> Error {
        match self.text.as_bytes() {
            [b'{', ..] => self.fault(format!("an object is not {expected}")),
            [b'[', ..] => self.fault(format!("a list is not {expected}")),
            _ => self.fault(format!("`{:.40}` is not {expected}", self.text)),
        }
    }

    fn missing(self, key: &'static str) -> Error {
        self.at_key(key).fault("the key is missing")
    }

    fn refused(self, cause: Error) -> Error {
        self.fault_with(cause.to_string(), Some(cause))
    }

    fn fault(self, message: impl fmt::Display) -> Error {
        self.fault_with(message.to_string(), None)
    }

    fn fault_with(self, message: String, cause: Option<Error>) -> Error {
        let offset = self.text.as_ptr().addr() - self.document.as_ptr().addr();
        let before = &self.document[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Error::Json(Box::new(JsonFault {
            line: 1 + before.bytes().filter(|&byte| byte == b'\n').count(),
            column: 1 + before[line_start..].chars().count(),
            place: self.path.to_string(),
            message,
            cause,
        }))
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.op.map(|(index, text)| match id_and_kind(text) {
            (Some(id), Some(kind)) => format!("op {index} ({kind}, id {id})"),
            (Some(id), None) => format!("op {index} (id {id})"),
            (None, Some(kind)) => format!("op {index} ({kind})"),
            (None, None) => format!("op {index}"),
        });
        let port = self.port.map(|(direction, index)| format!("{direction} {index}"));
        let attr = self.attr.map(|name| format!("attribute `{name}`"));
        let key = self.key.map(|key| format!("key `{key}`"));
        let parts: Vec<String> = [op, port, attr, key].into_iter().flatten().collect();
        match &parts[..] {
            [] => Ok(()),
            parts => write!(f, "{}: ", parts.join(", ")),
        }
    }
}

/// The id and kind of a faulty op, as far as they can be read.
fn id_and_kind(op: &str) -> (Option<OpId>, Option<OpKind>) {
    let entries = serde_json::from_str(op).map_or(Vec::new(), |Entries(entries)| entries);
    let value = |wanted| entries.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.get());
    let kind = value("kind").and_then(|kind| serde_json::from_str(kind).ok());
    let id = value("id").and_then(|id| serde_json::from_str(id).ok());
    (id, kind.and_then(|Text(kind)| kind.parse().ok()))
}

/// The position at which nesting exceeds [`MAX_DEPTH`]. serde_json skips a value without counting its depth.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    text.bytes().position(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

/// The byte of serde_json's error position; serde_json counts columns in bytes, and from 0 at the start of a
/// line.
fn offset_of(text: &str, error: &serde_json::Error) -> usize {
    let line_start: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let offset = line_start + error.column().saturating_sub(1);
    (0..=offset).rev().find(|&offset| text.is_char_boundary(offset)).unwrap_or(0)
}

/// serde_json's message without the position at its end.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        Some((message, _)) => message.into(),
        None => message,
    }
}

/// Advice on numbers in the form in which C++ prints them.
fn hint(text: &str, offset: usize) -> &'static str {
    let part_of_word = |c: char| c.is_ascii_alphabetic() || c == '-';
    let start = text[..offset].trim_end_matches(part_of_word).len();
    let word = text[start..].split(|c| !part_of_word(c)).next();
    match word {
        Some("inf" | "-inf" | "nan" | "-nan") => "; write \"inf\", \"-inf\" or \"nan\" in quotes",
        _ => "",
    }
}

/// An f32 that JSON cannot write as a number: `inf`, `-inf`, `nan`, and any other NaN by its bits.
fn spelled_f32(text: &str) -> Option<f32> {
    match text {
        "inf" => Some(f32::INFINITY),
        "-inf" => Some(f32::NEG_INFINITY),
        "nan" => Some(f32::NAN),
        _ => {
            let bits = text.strip_prefix("nan(0x")?.strip_suffix(')')?;
            let number = f32::from_bits(u32::from_str_radix(bits, 16).ok()?);
            number.is_nan().then_some(number)
        }
    }
}

/// The inverse; `None` for a finite number.
fn spelling_of_f32(number: f32) -> Option<String> {
    match number {
        f32::INFINITY => Some("inf".into()),
        f32::NEG_INFINITY => Some("-inf".into()),
        _ if number.to_bits() == f32::NAN.to_bits() => Some("nan".into()),
        _ if number.is_nan() => Some(format!("nan(0x{:08x})", number.to_bits())),
        _ => None,
    }
}

/// A string, copied only if it has escapes.
#[derive(DeriveDeserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The keys and values of an object in the order of the text, with repeated keys.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Text(key), value)) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

// The written form, with keys in oneDNN's order.

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
        // Inserted one by one: `collect` would sort them with code of its own, 8 KB of it.
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
        let stride = match (tensor.layout(), tensor.dims()) {
            (Layout::Strided(strides), Some(_)) => Cow::Borrowed(&strides[..]),
            (Layout::Opaque(id), _) => vec![*id as i64].into(),
            _ => Cow::Borrowed(&[UNKNOWN_DIM][..]),
        };
        Self {
            id: tensor.id(),
            dtype: tensor.data_type().name(),
            shape: tensor.dims().unwrap_or(&[UNKNOWN_DIM]),
            stride,
            layout_type: tensor.layout().name(),
            property_type: tensor.property().name(),
        }
    }
}
