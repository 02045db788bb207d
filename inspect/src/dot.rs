//! The graph in the language of Graphviz.

use std::fmt::Write;

use crate::model::{Inspection, Node, Part};
use crate::picture::{COLOURS, HEAT};

/// Stripes: Graphviz does not hatch.
const STRIPES: &str = "#e4e4e4:#ffffff:#e4e4e4:#ffffff:#e4e4e4:#ffffff:#e4e4e4:#ffffff";

/// The graph in the language of Graphviz, partitions as clusters.
#[must_use]
pub fn dot(inspection: &Inspection) -> String {
    let mut text = format!("digraph {} {{\n", quoted(&inspection.source));
    text += "  graph [fontname=\"sans-serif\", fontsize=11, labeljust=l]\n";
    text += "  node [shape=box, style=\"rounded,filled\", fillcolor=white, \
             fontname=\"sans-serif\", fontsize=12]\n";
    text += "  edge [fontname=\"sans-serif\", fontsize=10]\n";
    for part in &inspection.parts {
        cluster(&mut text, inspection, part);
    }
    for (index, node) in inspection.nodes.iter().enumerate() {
        let (label, style) = match node {
            Node::Op { .. } => continue,
            Node::Input { label, property, .. } => (format!("{label}\n{property}"), "shape=ellipse"),
            Node::Output { label, .. } => (label.clone(), "shape=ellipse, peripheries=2"),
        };
        let _ = writeln!(text, "  n{index} [label={}, {style}, style=filled]", quoted(label.trim_end()));
    }
    for edge in &inspection.edges {
        let _ = writeln!(text, "  n{} -> n{} [label={}]", edge.from, edge.to, quoted(&edge.label));
    }
    text + "}\n"
}

fn cluster(text: &mut String, inspection: &Inspection, part: &Part) {
    let style = match part.is_unsupported() {
        true => format!("style=striped, fillcolor=\"{STRIPES}\", color=\"#777777\""),
        false => {
            let colour = &COLOURS[part.id % COLOURS.len()];
            let fill = part.time.map_or(colour.light, |time| HEAT[time.heat][0]);
            format!("style=\"rounded,filled\", fillcolor=\"{fill}\", color=\"{}\"", colour.line)
        }
    };
    let title = format!("partition {}: {}", part.id, part.headline());
    let _ = writeln!(text, "  subgraph cluster_{} {{\n    label={}, {style}", part.id, quoted(&title));
    for (index, node) in inspection.nodes.iter().enumerate() {
        if let Node::Op { part: of, op, label, .. } = node
            && *of == part.id
        {
            let attrs: String = op.attrs.iter().map(|attr| format!("\n{attr}")).collect();
            let label = format!("{}\n{label}{attrs}", op.kind);
            let _ = writeln!(text, "    n{index} [label={}]", quoted(&label));
        }
    }
    *text += "  }\n";
}

/// A string of the language: quotes and backslashes escaped.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
