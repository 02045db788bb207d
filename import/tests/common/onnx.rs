//! Models of ONNX as bytes: what protobuf makes of them, field by field.
#![allow(dead_code, reason = "each file of tests uses a part")]

/// A field whose length stands in front of it.
pub(crate) fn field(tag: u64, held: &[u8]) -> Vec<u8> {
    [varint(tag << 3 | 2), varint(held.len() as u64), held.to_vec()].concat()
}

/// A field that is a whole number.
pub(crate) fn number(tag: u64, number: i64) -> Vec<u8> {
    [varint(tag << 3), varint(number as u64)].concat()
}

pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// An attribute that is a word.
pub(crate) fn text(name: &str, word: &str) -> Vec<u8> {
    [field(1, name.as_bytes()), field(4, word.as_bytes()), number(20, 3)].concat()
}

/// An attribute that is a whole number.
pub(crate) fn int(name: &str, value: i64) -> Vec<u8> {
    [field(1, name.as_bytes()), number(3, value), number(20, 2)].concat()
}

/// An attribute that is a list of numbers.
pub(crate) fn ints(name: &str, values: &[i64]) -> Vec<u8> {
    let numbers: Vec<u8> = values.iter().flat_map(|value| number(8, *value)).collect();
    [field(1, name.as_bytes()), numbers, number(20, 7)].concat()
}

/// An attribute that is the attribute of a function.
pub(crate) fn refers(name: &str, to: &str, kind: i64) -> Vec<u8> {
    [field(1, name.as_bytes()), number(20, kind), field(21, to.as_bytes())].concat()
}

/// An attribute that is a tensor.
pub(crate) fn of_tensor(name: &str, tensor: &[u8]) -> Vec<u8> {
    [field(1, name.as_bytes()), field(5, tensor), number(20, 4)].concat()
}

/// An attribute that is a graph.
pub(crate) fn of_graph(name: &str, graph: &[u8]) -> Vec<u8> {
    [field(1, name.as_bytes()), field(6, graph), number(20, 5)].concat()
}

/// A tensor of raw bytes; the types are 1 for f32, 7 for s64.
pub(crate) fn tensor(name: &str, data_type: i64, dims: &[i64], raw: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| number(1, dim)).collect();
    [dims, number(2, data_type), field(8, name.as_bytes()), field(9, raw)].concat()
}

pub(crate) fn floats(name: &str, dims: &[i64], elements: &[f32]) -> Vec<u8> {
    let raw: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    tensor(name, 1, dims, &raw)
}

pub(crate) fn integers(name: &str, elements: &[i64]) -> Vec<u8> {
    let raw: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    tensor(name, 7, &[elements.len() as i64], &raw)
}

/// A tensor whose elements stand in another file.
pub(crate) fn external(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|&dim| number(1, dim)).collect();
    let entry = |(key, value): &(&str, &str)| {
        field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let entries: Vec<u8> = entries.iter().flat_map(entry).collect();
    [dims, number(2, 1), field(8, name.as_bytes()), entries, number(14, 1)].concat()
}

/// An input or output; a dim of −1 has a name.
pub(crate) fn value(name: &str, data_type: i64, dims: &[i64]) -> Vec<u8> {
    let dim = |&dim: &i64| match dim {
        -1 => field(1, &field(2, b"n")),
        _ => field(1, &number(1, dim)),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let of = field(1, &[number(1, data_type), field(2, &shape)].concat());
    [field(1, name.as_bytes()), field(2, &of)].concat()
}

pub(crate) fn node(kind: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    node_of("", kind, inputs, outputs, attributes)
}

pub(crate) fn node_of(
    domain: &str,
    kind: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[Vec<u8>],
) -> Vec<u8> {
    let names = |tag, names: &[&str]| -> Vec<u8> {
        names.iter().flat_map(|name| field(tag, name.as_bytes())).collect()
    };
    let attributes: Vec<u8> = attributes.iter().flat_map(|attribute| field(5, attribute)).collect();
    let kind = field(4, kind.as_bytes());
    [names(1, inputs), names(2, outputs), kind, attributes, field(7, domain.as_bytes())].concat()
}

/// A function of the domain `own`.
pub(crate) fn function(
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[&str],
    nodes: &[Vec<u8>],
) -> Vec<u8> {
    let names = |tag, names: &[&str]| -> Vec<u8> {
        names.iter().flat_map(|name| field(tag, name.as_bytes())).collect()
    };
    let nodes: Vec<u8> = nodes.iter().flat_map(|node| field(7, node)).collect();
    let opset = field(9, &number(2, 18));
    let name = field(1, name.as_bytes());
    [name, names(4, inputs), names(5, outputs), names(6, attributes), nodes, opset, field(10, b"own")]
        .concat()
}

/// A model under construction.
#[derive(Default)]
pub(crate) struct Onnx {
    pub(crate) nodes: Vec<Vec<u8>>,
    pub(crate) constants: Vec<Vec<u8>>,
    pub(crate) inputs: Vec<Vec<u8>>,
    pub(crate) outputs: Vec<Vec<u8>>,
    pub(crate) functions: Vec<Vec<u8>>,
    /// 18 unless it is given.
    pub(crate) opset: Option<i64>,
}

impl Onnx {
    /// A model of one node on an input `x` of f32, with an output `y`.
    pub(crate) fn of(node: Vec<u8>, dims: &[i64]) -> Self {
        Self {
            nodes: vec![node],
            inputs: vec![value("x", 1, dims)],
            outputs: vec![field(1, b"y")],
            ..Self::default()
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let all =
            |tag, parts: &[Vec<u8>]| -> Vec<u8> { parts.iter().flat_map(|part| field(tag, part)).collect() };
        let graph =
            [all(1, &self.nodes), all(5, &self.constants), all(11, &self.inputs), all(12, &self.outputs)];
        let opset = number(2, self.opset.unwrap_or(18));
        [number(1, 8), field(7, &graph.concat()), field(8, &opset), all(25, &self.functions)].concat()
    }
}
