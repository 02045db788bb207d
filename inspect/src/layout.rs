//! Where things are in the picture: small graphs are laid out by dagre, in its Rust port, with a frame around
//! each partition; others in layers, in time that grows little faster than the graph.

use std::thread;

use anyhow::{Context, Result, anyhow};
use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel};

use crate::layers::{self, Link, Route};
use crate::model::{Edge, Inspection, Node};
use crate::short::cut;

/// The most ops of a graph that dagre lays out: its time grows with the number of ops times the length of
/// edges. In larger graphs partitions are told apart by colour alone.
const MAX_FRAMED: usize = 80;

/// The least part of a picture that a page shows at first, in pixels of the picture.
const FIRST_VIEW: (f64, f64) = (800.0, 500.0);

/// dagre walks graphs by recursion, as deep as their longest path.
const STACK_BYTES: usize = 512 << 20;

/// Pixels of a letter M, by what the text is for.
pub(crate) const OF_KINDS: f64 = 13.0;
pub(crate) const OF_NAMES: f64 = 11.0;
pub(crate) const OF_EDGES: f64 = 11.0;

/// The most attributes in a box, and the most characters of one; the tip of the box has all of them.
const MAX_ATTRS: usize = 3;
const LONGEST_ATTR: usize = 32;

/// A picture whose parts have places.
pub(crate) struct Layout {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// For each node, its box.
    pub(crate) boxes: Vec<Placed>,
    /// Partitions of several ops have frames; those without say their partition in each box.
    pub(crate) is_framed: bool,
    pub(crate) frames: Vec<(usize, Placed)>,
    /// For each edge, its route and the middle of its label.
    pub(crate) routes: Vec<Route>,
}

/// A box, by its middle.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// The lines of text in a box: what matters most first.
pub(crate) fn lines(inspection: &Inspection, node: &Node, is_framed: bool) -> Vec<String> {
    match node {
        Node::Op { part, op, label, .. } => {
            let mut lines = vec![op.kind.clone(), label.clone()];
            lines.extend(op.attrs.iter().take(MAX_ATTRS).map(|attr| cut(attr, LONGEST_ATTR)));
            if op.attrs.len() > MAX_ATTRS {
                lines.push(format!("{} more", op.attrs.len() - MAX_ATTRS));
            }
            if !(is_framed && has_frame(inspection, *part)) {
                lines.push(format!("partition {part}"));
            }
            lines
        }
        Node::Input { label, property: "", .. } => vec![label.clone()],
        Node::Input { label, property, .. } => vec![label.clone(), (*property).into()],
        Node::Output { label, .. } => vec![label.clone(), "result".into()],
    }
}

/// True if a partition has a frame in a picture with frames.
pub(crate) fn has_frame(inspection: &Inspection, part: usize) -> bool {
    inspection.part(part).ops.len() > 1
}

/// The width of a character as part of the size of its font, in a wide font such as DejaVu Sans, so that text
/// fits into its box in any other. Nobody knows the widths of scripts beyond Latin, Greek and Cyrillic.
fn width_of(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' => 0.32,
        'f' | 'r' | 't' | 's' | 'J' | '/' | '(' | ')' | '[' | ']' | '-' => 0.45,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.98,
        'A'..='Z' => 0.72,
        '×' | '+' | '=' | '<' | '>' | '~' => 0.84,
        c if c < '\u{250}' => 0.635,
        c if is_measured(c) => 0.75,
        _ => 1.1,
    }
}

fn is_measured(c: char) -> bool {
    c < '\u{1100}' || ('\u{2010}'..'\u{2070}').contains(&c)
}

/// The width of a text in pixels.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(width_of).sum::<f64>() * size
}

/// The width that a text must be given, because it holds characters whose widths nobody knows.
pub(crate) fn length(text: &str, size: f64) -> Option<f64> {
    (!text.chars().all(is_measured)).then(|| width(text, size))
}

/// The size of the font of a line in a box.
pub(crate) fn size_of_line(line: usize) -> f64 {
    if line == 0 { OF_KINDS } else { OF_NAMES }
}

/// Finds a place for everything.
pub(crate) fn layout(inspection: &Inspection) -> Result<Layout> {
    if inspection.ops() <= MAX_FRAMED {
        let framed = with_frames(inspection)?;
        if framed.opens_on_a_box() {
            return Ok(framed);
        }
    }
    Ok(in_layers(inspection))
}

impl Layout {
    /// True if the corner of the picture that is seen first shows a box.
    fn opens_on_a_box(&self) -> bool {
        let is_seen = |placed: &Placed| placed.x <= FIRST_VIEW.0 && placed.y <= FIRST_VIEW.1;
        self.boxes.is_empty() || self.boxes.iter().any(is_seen)
    }
}

/// Width and height of the box of a node.
fn size(inspection: &Inspection, node: &Node, is_framed: bool) -> (f64, f64) {
    let lines = lines(inspection, node, is_framed);
    // Kinds are bold, which is a tenth wider.
    let wide = |(at, line): (usize, &String)| width(line, size_of_line(at)) * if at == 0 { 1.1 } else { 1.0 };
    let widest = lines.iter().enumerate().map(wide).fold(60.0, f64::max);
    (widest + 22.0, 14.0 + 16.0 * lines.len() as f64)
}

fn in_layers(inspection: &Inspection) -> Layout {
    let sizes: Vec<(f64, f64)> = inspection.nodes.iter().map(|node| size(inspection, node, false)).collect();
    let link =
        |edge: &Edge| Link { from: edge.from, to: edge.to, label_width: width(&edge.label, OF_EDGES) + 8.0 };
    let links: Vec<Link> = inspection.edges.iter().map(link).collect();
    let places = layers::place(&sizes, &links);
    let placed = |(&(x, y), &(width, height)): (&(f64, f64), &(f64, f64))| Placed { x, y, width, height };
    let boxes = places.boxes.iter().zip(&sizes).map(placed).collect();
    moved_to_corner(inspection, boxes, None, places.routes)
}

fn with_frames(inspection: &Inspection) -> Result<Layout> {
    let failed = || anyhow!("the layout of the picture failed; the forms text and dot need none");
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(STACK_BYTES);
        let laid_out =
            deep.spawn_scoped(scope, || by_dagre(inspection)).context("no thread for the layout")?;
        laid_out.join().map_err(|_| failed())?
    })
}

fn by_dagre(inspection: &Inspection) -> Result<Layout> {
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: true });
    for (index, node) in inspection.nodes.iter().enumerate() {
        let (width, height) = size(inspection, node, true);
        graph.set_node(of_node(index), Some(NodeLabel { width, height, ..Default::default() }));
    }
    let framed = || inspection.parts.iter().filter(|part| has_frame(inspection, part.id));
    for part in framed() {
        graph.set_node(of_frame(part.id), Some(NodeLabel::default()));
    }
    for (index, node) in inspection.nodes.iter().enumerate() {
        if let Node::Op { part, .. } = node
            && has_frame(inspection, *part)
        {
            graph.set_parent(&of_node(index), Some(&of_frame(*part)));
        }
    }
    for (index, edge) in inspection.edges.iter().enumerate() {
        let width = width(&edge.label, OF_EDGES) + 8.0;
        let label = EdgeLabel { width, height: 16.0, labelpos: LabelPos::Center, ..Default::default() };
        graph.set_edge(of_node(edge.from), of_node(edge.to), Some(label), Some(&index.to_string()));
    }

    let options = LayoutOptions { nodesep: 24.0, edgesep: 12.0, ranksep: 36.0, ..Default::default() };
    dagre::layout(&mut graph, Some(options));
    read(inspection, &graph, framed().map(|part| part.id).collect())
}

fn of_node(index: usize) -> String {
    format!("n{index}")
}

fn of_frame(part: usize) -> String {
    format!("p{part}")
}

/// Room around everything, and above a frame for what it is called.
const MARGIN: f64 = 16.0;
const TITLE: f64 = 8.0;

/// Takes the places out of a graph that has been laid out.
fn read(inspection: &Inspection, graph: &Graph<NodeLabel, EdgeLabel>, framed: Vec<usize>) -> Result<Layout> {
    let placed = |name: String| {
        let node = graph.node(&name).with_context(|| format!("the layout lost {name}"))?;
        let (Some(x), Some(y)) = (node.x, node.y) else { return Err(anyhow!("the layout placed no {name}")) };
        Ok(Placed { x, y, width: node.width, height: node.height })
    };
    let boxes =
        (0..inspection.nodes.len()).map(|index| placed(of_node(index))).collect::<Result<Vec<Placed>>>()?;
    let mut frames = Vec::with_capacity(framed.len());
    for part in framed {
        let frame = placed(of_frame(part))?;
        frames.push((part, Placed { y: frame.y - TITLE / 2.0, height: frame.height + TITLE, ..frame }));
    }
    let mut routes = Vec::with_capacity(inspection.edges.len());
    for (index, edge) in inspection.edges.iter().enumerate() {
        let label = graph
            .edge(&of_node(edge.from), &of_node(edge.to), Some(&index.to_string()))
            .with_context(|| format!("the layout lost edge {index}"))?;
        let points: Vec<(f64, f64)> = label.points.iter().map(|point| (point.x, point.y)).collect();
        let middle = points.get(points.len() / 2).copied().unwrap_or_default();
        routes.push(Route { points, label: (label.x.unwrap_or(middle.0), label.y.unwrap_or(middle.1)) });
    }
    Ok(moved_to_corner(inspection, boxes, Some(frames), routes))
}

/// The picture with everything moved to where it starts.
fn moved_to_corner(
    inspection: &Inspection,
    mut boxes: Vec<Placed>,
    frames: Option<Vec<(usize, Placed)>>,
    mut routes: Vec<Route>,
) -> Layout {
    let (is_framed, mut frames) = (frames.is_some(), frames.unwrap_or_default());
    let labels = routes.iter().zip(&inspection.edges).map(|(route, edge)| Placed {
        x: route.label.0,
        y: route.label.1,
        width: width(&edge.label, OF_EDGES),
        height: 16.0,
    });
    let dots =
        routes.iter().flat_map(|route| &route.points).map(|&(x, y)| Placed { x, y, width: 0.0, height: 0.0 });
    let all = boxes.iter().copied().chain(frames.iter().map(|(_, frame)| *frame)).chain(labels).chain(dots);
    let (mut left, mut top, mut right, mut bottom) = (f64::MAX, f64::MAX, 0.0f64, 0.0f64);
    for Placed { x, y, width, height } in all {
        (left, right) = (left.min(x - width / 2.0), right.max(x + width / 2.0));
        (top, bottom) = (top.min(y - height / 2.0), bottom.max(y + height / 2.0));
    }
    if boxes.is_empty() {
        (left, top) = (0.0, 0.0);
    }
    let (dx, dy) = (MARGIN - left, MARGIN - top);
    for placed in boxes.iter_mut().chain(frames.iter_mut().map(|(_, frame)| frame)) {
        (placed.x, placed.y) = (placed.x + dx, placed.y + dy);
    }
    for route in &mut routes {
        route.points.iter_mut().chain([&mut route.label]).for_each(|(x, y)| (*x, *y) = (*x + dx, *y + dy));
    }
    let (width, height) = (right - left + 2.0 * MARGIN, bottom - top + 2.0 * MARGIN);
    Layout { width, height, boxes, is_framed, frames, routes }
}
