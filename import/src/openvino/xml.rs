//! The text of an IR: checked against the limits, parsed, and read into layers and edges.

use std::borrow::Cow;

use roxmltree::{Document, Node, ParsingOptions};
use sterna::MAX_RANK;

use super::types::{self, Element};
use crate::dims::UNKNOWN_DIM;
use crate::error::{Error, Limited};
use crate::limits::Limits;
use crate::names;

/// A model, or a lone layer, as the text gives it.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) layers: Vec<Layer>,
    pub(super) edges: Vec<Edge>,
    /// The text is one layer and no model.
    pub(super) is_lone: bool,
}

#[derive(Debug)]
pub(super) struct Layer {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) version: Option<String>,
    /// The attributes of the element `data`.
    pub(super) data: Vec<(String, String)>,
    pub(super) inputs: Vec<PortText>,
    pub(super) outputs: Vec<PortText>,
    /// The names that a `Result` gives its tensor.
    pub(super) output_names: Vec<String>,
    /// The models within, such as branches.
    pub(super) bodies: Vec<Body>,
}

/// A model within a layer.
#[derive(Debug)]
pub(super) struct Body {
    /// The name of its element.
    pub(super) name: &'static str,
    pub(super) net: Net,
    /// The ports of the layer around, each with the layer within that has its tensor.
    pub(super) inputs: Vec<[u64; 2]>,
    pub(super) outputs: Vec<[u64; 2]>,
}

/// The elements of models within layers, and those of their ports.
const BODIES: [(&str, &str); 2] = [("then_body", "then_port_map"), ("else_body", "else_port_map")];

impl Layer {
    /// An attribute of the element `data`.
    pub(super) fn attr(&self, name: &str) -> Option<&str> {
        self.data.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }
}

#[derive(Debug)]
pub(super) struct PortText {
    pub(super) id: u64,
    pub(super) element: Option<Element>,
    /// The dims, [`UNKNOWN_DIM`] for one that is not known; empty as well where the rank is not known.
    pub(super) dims: Vec<i64>,
    pub(super) names: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Edge {
    /// Layer and port.
    pub(super) from: [u64; 2],
    /// Layer and port.
    pub(super) to: [u64; 2],
}

/// The versions of the format that are read.
const VERSIONS: [&str; 2] = ["10", "11"];

/// Reads a text.
pub(super) fn parse(text: &str, limits: &Limits) -> Result<Net, Error> {
    Limits::check(Limited::TextBytes, text.len(), limits.text_bytes)?;
    let seen = look_over(text, limits)?;
    let text = match seen.root_is_layer {
        true => without_dots(text, &seen.dots),
        false => Cow::Borrowed(text),
    };
    let nodes_limit = u32::try_from(limits.elements.saturating_mul(4)).unwrap_or(u32::MAX);
    let options = ParsingOptions { allow_dtd: false, nodes_limit, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options).map_err(|error| syntax(&error))?;
    let root = document.root_element();
    match root.tag_name().name() {
        "net" => net(root, limits),
        "layer" => Ok(Net { layers: vec![layer(root, limits)?], edges: Vec::new(), is_lone: true }),
        _ => Err(Error::Document {
            what: "the outermost element is neither `net` nor `layer`".into(),
            needed: "the XML file of an OpenVINO IR, or one of its layers",
        }),
    }
}

/// The findings of a scan of a text.
struct Seen {
    root_is_layer: bool,
    /// Where `...` stands within a tag and is no value: the specification shortens attributes so.
    dots: Vec<usize>,
}

/// Goes over a text once, and refuses what would make a parser slow or let it open other files. What is not
/// well-formed, the parser finds.
fn look_over(text: &str, limits: &Limits) -> Result<Seen, Error> {
    let bytes = text.as_bytes();
    let mut seen = Seen { root_is_layer: false, dots: Vec::new() };
    let (mut at, mut depth, mut elements) = (0, 0usize, 0usize);
    while let Some(start) = find(bytes, at, b"<") {
        let rest = &bytes[start..];
        at = match () {
            () if rest.starts_with(b"<!--") => behind(bytes, start, b"-->"),
            () if rest.starts_with(b"<![CDATA[") => behind(bytes, start, b"]]>"),
            () if rest.starts_with(b"<?") => behind(bytes, start, b"?>"),
            () if rest.starts_with(b"<!") => return Err(fault_at(text, start, DOCTYPE)),
            () if rest.starts_with(b"</") => {
                depth = depth.saturating_sub(1);
                behind(bytes, start, b">")
            }
            () => {
                elements += 1;
                Limits::check(Limited::Elements, elements, limits.elements)?;
                Limits::check(Limited::Depth, depth + 1, limits.depth)?;
                if elements == 1 {
                    let name = rest[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                    seen.root_is_layer = &rest[1..=name] == b"layer";
                }
                let end = look_over_tag(text, start, limits, &mut seen.dots)?;
                depth += usize::from(bytes[start..end].last() == Some(&b'>') && bytes[end - 2] != b'/');
                end
            }
        };
    }
    Ok(seen)
}

const DOCTYPE: &str = "document types and entities of one's own are refused";

/// Goes over the tag that opens at `start`; answers with the place behind it.
fn look_over_tag(text: &str, start: usize, limits: &Limits, dots: &mut Vec<usize>) -> Result<usize, Error> {
    let bytes = text.as_bytes();
    let (mut at, mut attributes) = (start + 1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'>' => return Ok(at + 1),
            quote @ (b'"' | b'\'') => at = behind(bytes, at + 1, &[quote]) - 1,
            b':' => return Err(fault_at(text, at, "namespaces are refused")),
            b'=' => {
                attributes += 1;
                Limits::check(Limited::Attributes, attributes, limits.attributes)?;
            }
            b'.' if bytes[at..].starts_with(b"...") => {
                dots.push(at);
                at += 2;
            }
            // The same in one character.
            0xe2 if bytes[at..].starts_with("…".as_bytes()) => {
                dots.push(at);
                at += 2;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(bytes.len())
}

/// The text with spaces for the dots that begin at these places, each of three bytes.
fn without_dots<'a>(text: &'a str, dots: &[usize]) -> Cow<'a, str> {
    if dots.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut plain, mut from) = (String::with_capacity(text.len()), 0);
    for &at in dots {
        plain.push_str(&text[from..at]);
        plain.push_str("   ");
        from = at + 3;
    }
    plain.push_str(&text[from..]);
    Cow::Owned(plain)
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|place| from + place)
}

/// The position behind the first `what` from `from` on; the end if there is none.
fn behind(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    find(bytes, from, what).map_or(bytes.len(), |place| place + what.len())
}

fn fault_at(text: &str, place: usize, what: &'static str) -> Error {
    let before = &text.as_bytes()[..place];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    Error::Syntax { line: line as u32, column: column as u32, what }
}

/// A parser's error in our words: the parser's text would show contents of the file.
fn syntax(error: &roxmltree::Error) -> Error {
    use roxmltree::Error as E;
    let what = match error {
        E::DtdDetected => DOCTYPE,
        E::UnexpectedCloseTag(..) | E::UnexpectedEntityCloseTag(..) => {
            "an element is closed that is not open"
        }
        E::DuplicatedAttribute(..) => "an attribute is given twice",
        E::UnknownEntityReference(..) | E::MalformedEntityReference(..) => {
            "an entity is not one of XML's own"
        }
        E::NoRootNode => "there is no element",
        E::UnclosedRootNode | E::UnexpectedEndOfStream => "the text ends within an element",
        E::NodesLimitReached | E::AttributesLimitReached | E::NamespacesLimitReached => {
            "there are too many nodes"
        }
        _ => "this is not well-formed XML",
    };
    let position = error.pos();
    Error::Syntax { line: position.row, column: position.col, what }
}

fn net(root: Node<'_, '_>, limits: &Limits) -> Result<Net, Error> {
    if !root.attribute("version").is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(Error::Document {
            what: "the version of the IR is not known here".into(),
            needed: "version 10 or 11, which OpenVINO writes since 2020",
        });
    }
    parts(root, limits)
}

/// The layers and edges of a model.
fn parts(root: Node<'_, '_>, limits: &Limits) -> Result<Net, Error> {
    let (mut layers, mut edges) = (Vec::new(), Vec::new());
    for part in elements(root) {
        match part.tag_name().name() {
            "layers" => {
                for element in elements(part).filter(|element| element.has_tag_name("layer")) {
                    Limits::check(Limited::Layers, layers.len() + 1, limits.layers)?;
                    layers.push(layer(element, limits)?);
                }
            }
            "edges" => {
                for element in elements(part).filter(|element| element.has_tag_name("edge")) {
                    edges.push(edge(element)?);
                }
            }
            "pre-process" => {
                return Err(Error::Document {
                    what: "the model has an element `pre-process`".into(),
                    needed: "a model whose preprocessing is part of its layers",
                });
            }
            // Facts about how the model came to be, which change nothing that it computes.
            _ => {}
        }
    }
    Ok(Net { layers, edges, is_lone: false })
}

fn layer(element: Node<'_, '_>, limits: &Limits) -> Result<Layer, Error> {
    let text = |name| element.attribute(name).unwrap_or_default().to_owned();
    let id = element.attribute("id").map_or(Ok(0), |id| number(element, id))?;
    let mut layer = Layer {
        id,
        name: text("name"),
        kind: text("type"),
        version: element.attribute("version").map(str::to_owned),
        data: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        output_names: names::split(&text("output_names")),
        bodies: bodies(element, limits)?,
    };
    for part in elements(element) {
        match part.tag_name().name() {
            "data" => {
                layer.data.extend(part.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())))
            }
            "input" => layer.inputs.extend(ports(part)?),
            "output" => layer.outputs.extend(ports(part)?),
            _ => {}
        }
    }
    Ok(layer)
}

/// The models within a layer.
fn bodies(element: Node<'_, '_>, limits: &Limits) -> Result<Vec<Body>, Error> {
    let find = |name: &str| elements(element).find(|part| part.has_tag_name(name));
    let mut all = Vec::new();
    for (name, of_ports) in BODIES {
        let Some(body) = find(name) else { continue };
        let ports = |name: &str| -> Result<Vec<[u64; 2]>, Error> {
            let ports = find(of_ports).into_iter().flat_map(elements).filter(|port| port.has_tag_name(name));
            let ids = ports.map(|port| {
                let id = |name| port.attribute(name).ok_or_else(|| fault(port, "a port lacks an id"));
                Ok([number(port, id("external_port_id")?)?, number(port, id("internal_layer_id")?)?])
            });
            ids.collect()
        };
        let (inputs, outputs) = (ports("input")?, ports("output")?);
        all.push(Body { name, net: parts(body, limits)?, inputs, outputs });
    }
    Ok(all)
}

fn ports(part: Node<'_, '_>) -> Result<Vec<PortText>, Error> {
    elements(part).filter(|element| element.has_tag_name("port")).map(port).collect()
}

fn port(element: Node<'_, '_>) -> Result<PortText, Error> {
    let mut dims = Vec::new();
    for part in elements(element).filter(|part| part.has_tag_name("dim")) {
        let dim = part.text().unwrap_or_default().trim();
        dims.push(match dim.parse::<i64>() {
            Ok(-1) => UNKNOWN_DIM,
            Ok(dim @ 0..) => dim,
            _ => return Err(fault(part, "a dim is a whole number from −1 on")),
        });
    }
    if dims.len() > MAX_RANK {
        return Err(fault(element, "a tensor has twelve dims at most"));
    }
    Ok(PortText {
        id: element.attribute("id").map_or(Ok(0), |id| number(element, id))?,
        element: element.attribute("precision").map(types::named),
        dims,
        names: names::split(element.attribute("names").unwrap_or_default()),
    })
}

fn edge(element: Node<'_, '_>) -> Result<Edge, Error> {
    let end = |layer: &str, port: &str| -> Result<[u64; 2], Error> {
        let layer = element.attribute(layer).ok_or_else(|| fault(element, "an edge lacks an end"))?;
        let port = element.attribute(port).unwrap_or("0");
        Ok([number(element, layer)?, number(element, port)?])
    };
    Ok(Edge { from: end("from-layer", "from-port")?, to: end("to-layer", "to-port")? })
}

fn number(element: Node<'_, '_>, text: &str) -> Result<u64, Error> {
    text.trim().parse().map_err(|_| fault(element, "an id is no whole number"))
}

fn fault(element: Node<'_, '_>, what: &'static str) -> Error {
    let position = element.document().text_pos_at(element.range().start);
    Error::Syntax { line: position.row, column: position.col, what }
}

fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}
