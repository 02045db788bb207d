//! The messages of an ONNX file, as far as the reader looks at them, and what a file asks for before any of
//! it is decoded.

use bytes::{Buf, Bytes};
use prost::Message;

use crate::error::{Error, Limited};
use crate::limits::Limits;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelText {
    #[prost(int64, tag = "1")]
    pub(super) ir_version: i64,
    /// The exporter; its name need not be text.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) producer: Vec<u8>,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<GraphText>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opsets: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "25")]
    pub(super) functions: Vec<Function>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GraphText {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<NodeText>,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializers: Vec<TensorText>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "13")]
    pub(super) values: Vec<ValueInfo>,
    /// Present or not; nothing here reads one.
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializers: Vec<Unread>,
}

impl GraphText {
    /// The tensors of which the file declares types and dims.
    pub(super) fn described(&self) -> impl Iterator<Item = &ValueInfo> {
        self.values.iter().chain(&self.outputs)
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeText {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
    #[prost(string, tag = "8")]
    pub(super) overload: String,
}

impl NodeText {
    /// The name of the node in messages: its own, else that of its first output.
    pub(super) fn shown_name(&self) -> Option<&str> {
        Some(&self.name).filter(|name| !name.is_empty()).or(self.outputs.first()).map(String::as_str)
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, tag = "2")]
    pub(super) float: f32,
    #[prost(int64, tag = "3")]
    pub(super) int: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) string: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub(super) tensor: Option<TensorText>,
    #[prost(message, optional, tag = "6")]
    pub(super) graph: Option<GraphText>,
    #[prost(float, repeated, tag = "7")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub(super) strings: Vec<Bytes>,
    #[prost(message, repeated, tag = "10")]
    pub(super) tensors: Vec<TensorText>,
    #[prost(message, repeated, tag = "11")]
    pub(super) graphs: Vec<GraphText>,
    /// Messages of types, which nothing here looks into.
    #[prost(bytes = "bytes", repeated, tag = "14")]
    pub(super) types: Vec<Bytes>,
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
    /// The attribute of the function around the node that is meant.
    #[prost(string, tag = "21")]
    pub(super) refers_to: String,
    /// Messages of sparse tensors, which nothing here looks into.
    #[prost(bytes = "bytes", repeated, tag = "22")]
    pub(super) sparse: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorText {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    /// Present or not; nothing here reads one.
    #[prost(message, optional, tag = "3")]
    pub(super) segment: Option<Unread>,
    #[prost(float, repeated, tag = "4")]
    pub(super) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) int32s: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) int64s: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    /// Part of the bytes of the file, where these are in memory or mapped.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) raw: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub(super) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(super) uint64s: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(super) external: Vec<Entry>,
    #[prost(int32, tag = "14")]
    pub(super) location: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) of: Option<TypeText>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeText {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) element: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dims: Vec<DimText>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DimText {
    /// `None` for a dim that has a name or nothing.
    #[prost(int64, optional, tag = "1")]
    pub(super) value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) outputs: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(super) attributes: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) nodes: Vec<NodeText>,
    #[prost(message, repeated, tag = "9")]
    pub(super) opsets: Vec<OperatorSet>,
    #[prost(string, tag = "10")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) defaults: Vec<Attribute>,
    #[prost(string, tag = "13")]
    pub(super) overload: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Unread {}

/// A message as the count before decoding sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shell {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Shape,
    Function,
    /// A message without messages.
    Leaf,
}

/// The contents of a field that is delimited by its length.
enum Held {
    Message(Shell),
    /// The elements of a constant, so many bytes in memory for each byte of the file.
    Elements(usize),
    /// Text, or what the reader passes over.
    Text,
}

impl Shell {
    fn field(self, tag: u64) -> Held {
        use Held::{Elements, Message, Text};
        match (self, tag) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Message(Self::Graph),
            (Self::Model, 25) => Message(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Message(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) => Message(Self::Tensor),
            (Self::Graph, 11..=13) => Message(Self::ValueInfo),
            (Self::Node, 5) | (Self::Function, 11) => Message(Self::Attribute),
            (Self::ValueInfo, 2) => Message(Self::Type),
            (Self::Type, 1) => Message(Self::TensorType),
            (Self::TensorType, 2) => Message(Self::Shape),
            (Self::Model, 8) | (Self::Function, 9) | (Self::Shape, 1) => Message(Self::Leaf),
            (Self::Graph, 15) | (Self::Tensor, 3 | 13) => Message(Self::Leaf),
            (Self::Tensor, 4 | 9 | 10) => Elements(1),
            (Self::Tensor, 5) => Elements(4),
            (Self::Tensor, 1 | 7 | 11) | (Self::Attribute, 8) => Elements(8),
            (Self::Attribute, 7) => Elements(1),
            _ => Text,
        }
    }
}

/// Decodes a model that keeps to the limits. Elements of constants stay where they are if the bytes are
/// shared.
pub(super) fn model(bytes: impl Buf + AsRef<[u8]>, limits: &Limits) -> Result<ModelText, Error> {
    Count { limits, text: 0, elements: 0, layers: 0, constants: 0 }.message(
        bytes.as_ref(),
        Shell::Model,
        0,
    )?;
    ModelText::decode(bytes).map_err(|_| malformed())
}

/// Decodes a tensor that keeps to the limits.
pub(super) fn tensor(bytes: &[u8], limits: &Limits) -> Result<TensorText, Error> {
    Count { limits, text: 0, elements: 0, layers: 0, constants: 0 }.message(bytes, Shell::Tensor, 0)?;
    TensorText::decode(bytes).map_err(|_| malformed())
}

fn malformed() -> Error {
    Error::Document { what: "the bytes are no ONNX file".into(), needed: "a message of protobuf" }
}

/// Counts what decoding would allocate.
struct Count<'a> {
    limits: &'a Limits,
    text: usize,
    elements: usize,
    layers: usize,
    constants: usize,
}

impl Count<'_> {
    fn message(&mut self, mut bytes: &[u8], shell: Shell, depth: usize) -> Result<(), Error> {
        Limits::check(Limited::Depth, depth, self.limits.depth)?;
        while !bytes.is_empty() {
            self.elements += 1;
            Limits::check(Limited::Elements, self.elements, self.limits.elements)?;
            let key = varint(&mut bytes)?;
            let (tag, wire) = (key >> 3, key & 7);
            let length = match wire {
                0 => {
                    varint(&mut bytes)?;
                    continue;
                }
                1 => 8,
                2 => varint(&mut bytes)?,
                5 => 4,
                // Groups, which no file of this format has.
                _ => return Err(malformed()),
            };
            let length = usize::try_from(length).ok().filter(|&length| length <= bytes.len());
            let (held, rest) = bytes.split_at(length.ok_or_else(malformed)?);
            bytes = rest;
            if wire != 2 {
                continue;
            }
            match shell.field(tag) {
                Held::Message(inner) => {
                    if inner == Shell::Node {
                        self.layers += 1;
                        Limits::check(Limited::Layers, self.layers, self.limits.layers)?;
                    }
                    self.message(held, inner, depth + 1)?;
                }
                Held::Elements(each) => {
                    self.constants = self.constants.saturating_add(held.len().saturating_mul(each));
                    Limits::check(Limited::ConstantBytes, self.constants, self.limits.constant_bytes)?;
                }
                Held::Text => {
                    self.text += held.len();
                    Limits::check(Limited::TextBytes, self.text, self.limits.text_bytes)?;
                }
            }
        }
        Ok(())
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or_else(malformed)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(malformed())
}
