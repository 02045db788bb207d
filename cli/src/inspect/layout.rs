//! Where things are in the picture: the layered layout of dagre, in its Rust port.

use std::thread;

use anyhow::{Context, Result, anyhow};
use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel};

use super::model::{Inspection, Node};

/// Number of ops from which colour alone tells partitions apart, because room for frames makes the layout slow
/// (decision: layout-frames).
const MOST_FRAMED: usize = 300;

/// The layout walks graphs by recursion, as deep as their longest path.
const STACK_BYTES: usize = 512 << 20;

/// Pixels a character takes, about, in the text of boxes and of edges.
const WIDE: f64 = 7.4;
const NARROW: f64 = 6.4;

/// The most characters of a name.
const LONGEST: usize = 30;

/// A picture whose parts have places.
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// For each node, its box.
    pub(super) boxes: Vec<Placed>,
    /// Frames around the ops of partitions that have several.
    pub(super) frames: Vec<(usize, Placed)>,
    /// For each edge, its way and the middle of its label.
    pub(super) ways: Vec<Way>,
}

/// A box, by its middle.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) struct Way {
    pub(super) points: Vec<(f64, f64)>,
    pub(super) label: (f64, f64),
}

/// The lines of text in a box: what matters most first.
pub(super) fn lines(inspection: &Inspection, node: &Node) -> Vec<String> {
    match node {
        Node::Op { part, op, name } => {
            let mut lines = vec![op.kind.to_string(), format!("op {}", op.id)];
            if !name.is_empty() && name != op.kind.name() {
                lines[1] = format!("{} · op {}", shortened(name), op.id);
            }
            if !is_framed(inspection, *part) {
                lines.push(format!("partition {part}"));
            }
            lines
        }
        Node::Input { tensor, property: "" } => vec![format!("tensor {tensor}")],
        Node::Input { tensor, property } => vec![format!("tensor {tensor}"), (*property).into()],
        Node::Output { tensor } => vec![format!("tensor {tensor}"), "result".into()],
    }
}

/// Whether a partition has a frame, which then says what it is.
pub(super) fn is_framed(inspection: &Inspection, part: usize) -> bool {
    inspection.parts[part].ops.len() > 1 && inspection.ops() <= MOST_FRAMED
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into(),
    }
}

/// The width of a text in pixels: signs beyond Latin, Greek and Cyrillic may be twice as wide.
fn width(text: &str, of_character: f64) -> f64 {
    text.chars().map(|c| if c < '\u{1100}' { of_character } else { 2.0 * of_character }).sum()
}

/// Finds a place for everything.
pub(super) fn layout(inspection: &Inspection) -> Result<Layout> {
    let failed = || anyhow!("the layout of the picture failed; `--format text` and `--format dot` need none");
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(STACK_BYTES);
        let laid_out =
            deep.spawn_scoped(scope, || laid_out(inspection)).context("no thread for the layout")?;
        laid_out.join().map_err(|_| failed())?
    })
}

fn laid_out(inspection: &Inspection) -> Result<Layout> {
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: true });
    for (index, node) in inspection.nodes.iter().enumerate() {
        let lines = lines(inspection, node);
        let widest = lines.iter().map(|line| width(line, WIDE)).fold(60.0, f64::max);
        let height = 14.0 + 16.0 * lines.len() as f64;
        graph
            .set_node(of_node(index), Some(NodeLabel { width: widest + 24.0, height, ..Default::default() }));
    }
    let framed = || inspection.parts.iter().filter(|part| is_framed(inspection, part.id));
    for part in framed() {
        graph.set_node(of_frame(part.id), Some(NodeLabel::default()));
    }
    for (index, node) in inspection.nodes.iter().enumerate() {
        if let Node::Op { part, .. } = node
            && is_framed(inspection, *part)
        {
            graph.set_parent(&of_node(index), Some(&of_frame(*part)));
        }
    }
    for (index, edge) in inspection.edges.iter().enumerate() {
        let width = width(&edge.label, NARROW) + 8.0;
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
    let mut boxes =
        (0..inspection.nodes.len()).map(|index| placed(of_node(index))).collect::<Result<Vec<Placed>>>()?;
    let mut frames = Vec::with_capacity(framed.len());
    for part in framed {
        let frame = placed(of_frame(part))?;
        frames.push((part, Placed { y: frame.y - TITLE / 2.0, height: frame.height + TITLE, ..frame }));
    }
    let mut ways = Vec::with_capacity(inspection.edges.len());
    for (index, edge) in inspection.edges.iter().enumerate() {
        let label = graph
            .edge(&of_node(edge.from), &of_node(edge.to), Some(&index.to_string()))
            .with_context(|| format!("the layout lost edge {index}"))?;
        let points: Vec<(f64, f64)> = label.points.iter().map(|point| (point.x, point.y)).collect();
        let middle = points.get(points.len() / 2).copied().unwrap_or_default();
        ways.push(Way { points, label: (label.x.unwrap_or(middle.0), label.y.unwrap_or(middle.1)) });
    }

    // Everything moves to where the picture starts.
    let labels = ways.iter().zip(&inspection.edges).map(|(way, edge)| Placed {
        x: way.label.0,
        y: way.label.1,
        width: width(&edge.label, NARROW),
        height: 16.0,
    });
    let dots =
        ways.iter().flat_map(|way| &way.points).map(|&(x, y)| Placed { x, y, width: 0.0, height: 0.0 });
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
    for way in &mut ways {
        way.points.iter_mut().chain([&mut way.label]).for_each(|(x, y)| (*x, *y) = (*x + dx, *y + dy));
    }
    let (width, height) = (right - left + 2.0 * MARGIN, bottom - top + 2.0 * MARGIN);
    Ok(Layout { width, height, boxes, frames, ways })
}
