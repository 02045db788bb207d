//! The graph as a picture.

use std::fmt::Write;

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use crate::layers::Route;
use crate::layout::{self, Layout, Placed};
use crate::model::{HOTTEST, Inspection, Node, Outcome, PartTime};

/// Fill and frame of a partition, on white and on black.
pub(crate) struct Colour {
    pub(crate) light: &'static str,
    pub(crate) line: &'static str,
    dark: &'static str,
    line_on_dark: &'static str,
}

/// Partitions get these in rotation.
pub(crate) const COLOURS: [Colour; 7] = [
    Colour { light: "#dbe9fb", line: "#2563b0", dark: "#142c4a", line_on_dark: "#6aa5ee" },
    Colour { light: "#ddf3dd", line: "#2c7a35", dark: "#143818", line_on_dark: "#6cc274" },
    Colour { light: "#fdeacc", line: "#a86004", dark: "#43290a", line_on_dark: "#eaa24a" },
    Colour { light: "#efdff8", line: "#7d3ba6", dark: "#371c48", line_on_dark: "#c18be6" },
    Colour { light: "#d6f1f0", line: "#13777a", dark: "#0d3839", line_on_dark: "#57bfc0" },
    Colour { light: "#fbdfe6", line: "#b02e53", dark: "#481826", line_on_dark: "#ee8299" },
    Colour { light: "#eeefc8", line: "#6d6f0c", dark: "#33340d", line_on_dark: "#bfc155" },
];

/// Fills by heat, on white and on black, from little time to most of it.
pub(crate) const HEAT: [[&str; 2]; HOTTEST + 1] = [
    ["#fffbe6", "#1f1a0e"],
    ["#fff0bf", "#332609"],
    ["#ffe08a", "#4a3206"],
    ["#ffc75c", "#633d04"],
    ["#ffa64a", "#7d4303"],
    ["#fb8250", "#94420b"],
    ["#f2605a", "#a83618"],
];

/// The rules of a picture on white, and those that differ on black.
pub(crate) fn rules() -> (String, String) {
    let mut on_white = String::from(
        "svg text{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px;fill:#1c2128;\
         text-anchor:middle}\
         svg .back{fill:#ffffff}\
         svg .kind{font-weight:600;font-size:13px}svg .small{font-size:11px;fill:#57606a}\
         svg .title{text-anchor:start;font-weight:600;paint-order:stroke;stroke-width:4px;\
         stroke-linejoin:round;pointer-events:none}\
         svg .way,svg .label{pointer-events:none}\
         svg .way{fill:none;stroke:#6e7781;stroke-width:1.3}svg .tip{fill:#6e7781}\
         svg .label{font-size:11px;paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}\
         svg .op{fill:#ffffff;stroke-width:1.2}svg .tensor{fill:#f0f2f4;stroke:#8c959f}\
         svg .frame,svg .alone{stroke-width:1.8}\
         svg .open{stroke-dasharray:5 3}svg .hatched{stroke:#6e7781;fill:url(#hatch)}\
         svg .hatch-ground{fill:#f6f7f8}svg .hatch-line{stroke:#d5dae0;stroke-width:4}",
    );
    let mut on_black = String::from(
        "svg text{fill:#e6edf3}svg .back{fill:#0d1117}svg .small{fill:#9aa4af}svg .way{stroke:#8b949e}\
         svg .tip{fill:#8b949e}svg .label{stroke:#0d1117}svg .op{fill:#161b22}\
         svg .tensor{fill:#21262d;stroke:#6e7681}svg .hatched{stroke:#8b949e}\
         svg .hatch-ground{fill:#161b22}svg .hatch-line{stroke:#2b323b}",
    );
    for (index, Colour { light, line, dark: ground, line_on_dark }) in COLOURS.iter().enumerate() {
        let add = |to: &mut String, fill: &str, line: &str| {
            let _ = write!(
                to,
                "svg .c{index}{{fill:{fill};stroke:{line}}}svg .in-c{index}{{stroke:{line}}}\
                 svg .on-c{index}{{stroke:{fill}}}"
            );
        };
        add(&mut on_white, light, line);
        add(&mut on_black, ground, line_on_dark);
    }
    (on_white, on_black)
}

/// The style of the picture, alone or in a page.
pub(crate) fn style() -> String {
    let (light, dark) = rules();
    format!("{light}@media(prefers-color-scheme:dark){{{dark}}}")
}

/// The style of a picture, coloured by heat if a profile tells times.
pub(crate) fn style_of(inspection: &Inspection) -> String {
    if inspection.parts.iter().all(|part| part.time.is_none()) {
        return style();
    }
    let (mut light, mut dark) = (String::new(), String::new());
    for (heat, [on_white, on_black]) in HEAT.iter().enumerate() {
        let _ = write!(light, "svg .heat{heat}{{fill:{on_white}}}");
        let _ = write!(dark, "svg .heat{heat}{{fill:{on_black}}}");
    }
    format!("{}{light}@media(prefers-color-scheme:dark){{{dark}}}", style())
}

/// The picture as a file of SVG.
///
/// # Errors
///
/// The layout of the picture failed.
pub fn svg(inspection: &Inspection) -> Result<String> {
    let style = PreEscaped(style_of(inspection));
    let setting = Setting { head: html! { style { (style) } }, ..Setting::default() };
    let picture = picture(inspection, setting)?;
    Ok(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", picture.into_string()))
}

/// The place where a picture stands.
pub(crate) struct Setting<'a> {
    /// The head of the picture, such as its style.
    pub(crate) head: Markup,
    /// True for a page, in which partitions link to what is said of them.
    pub(crate) links: bool,
    /// The end of the names by which the picture calls its own parts, one for each picture of a document.
    pub(crate) mark: &'a str,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self { head: html! {}, links: false, mark: "" }
    }
}

/// The picture.
pub(crate) fn picture(inspection: &Inspection, setting: Setting<'_>) -> Result<Markup> {
    let Setting { head, links, mark } = setting;
    let layout = layout::layout(inspection)?;
    let Layout { width, height, boxes, is_framed, frames, routes } = &layout;
    let view = format!("0 0 {width:.0} {height:.0}");
    // In a page it shrinks to fit, as far as it can still be read.
    let shrink = links.then(|| format!("max-width:100%;min-width:{:.0}px;height:auto", width * 0.6));
    let nodes = || inspection.nodes.iter().zip(boxes);
    Ok(html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(view) width=(px(*width)) height=(px(*height))
            style=[shrink] role="group" aria-label={ "The graph of " (inspection.source) } {
            title { "The graph of " (inspection.source) }
            (head)
            defs {
                pattern id={ "hatch" (mark) } width="9" height="9"
                    patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect class="hatch-ground" width="9" height="9" {}
                    line class="hatch-line" x1="0" y1="0" x2="0" y2="9" {}
                }
                marker id={ "tip" (mark) } viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"
                    markerHeight="7" orient="auto" {
                    path class="tip" d="M0 0L8 4L0 8z" {}
                }
            }
            rect class="back" width="100%" height="100%" {}
            @for (part, placed) in frames { (frame(inspection, *part, placed, links)) }
            @for route in routes { path class="way" d=(curve(route)) marker-end={ "url(#tip" (mark) ")" } {} }
            @for (part, placed) in frames { (title(inspection, *part, placed)) }
            @for (node, placed) in nodes() { (node_box(inspection, node, placed, *is_framed, links)) }
            @for (route, edge) in routes.iter().zip(&inspection.edges) {
                (text("label", route.label, layout::OF_EDGES, &edge.label))
            }
        }
    })
}

/// The frame of a partition of several ops.
fn frame(inspection: &Inspection, part: usize, placed: &Placed, links: bool) -> Markup {
    let class = format!("frame {}", class_of(inspection, part));
    let anchor = Anchor { part, class: "", tip: tip_of(inspection, part), stop: links.then_some(true) };
    linked(rect(&class, placed, 10.0), anchor)
}

/// The title of a frame; edges pass behind it.
fn title(inspection: &Inspection, part: usize, placed: &Placed) -> Markup {
    let (left, top) = (placed.x - placed.width / 2.0, placed.y - placed.height / 2.0);
    let class = format!("title on-c{}", part % COLOURS.len());
    let title = format!("partition {part}: {}", inspection.part(part).headline());
    text(&class, (left + 10.0, top + 12.0), TITLE, &title)
}

/// The size of the font of titles.
const TITLE: f64 = 12.0;

/// The part of a font's size by which its baseline lies below the middle of its capitals: viewers agree about
/// baselines, but not about the middle of a line.
const BASELINE: f64 = 0.35;

/// A line of text whose middle is at some height.
fn text(class: &str, (x, y): (f64, f64), size: f64, line: &str) -> Markup {
    let length = layout::length(line, size).map(px);
    let adjust = length.as_ref().map(|_| "spacingAndGlyphs");
    html! {
        text class=(class) x=(px(x)) y=(px(y + BASELINE * size)) textLength=[length] lengthAdjust=[adjust] {
            (line)
        }
    }
}

fn node_box(inspection: &Inspection, node: &Node, placed: &Placed, has_frames: bool, links: bool) -> Markup {
    let lines = layout::lines(inspection, node, has_frames);
    let first = placed.y - 8.0 * (lines.len() as f64 - 1.0);
    let lines = html! {
        @for (index, line) in lines.iter().enumerate() {
            @let class = if index == 0 { "kind" } else { "small" };
            @let at = (placed.x, first + 16.0 * index as f64);
            (text(class, at, layout::size_of_line(index), line))
        }
    };
    match node {
        Node::Op { part, op, .. } => {
            let is_framed = has_frames && layout::has_frame(inspection, *part);
            let class = match is_framed {
                true => format!("op in-c{}{}", part % COLOURS.len(), heat_of(inspection, *part)),
                false => format!("alone {}", class_of(inspection, *part)),
            };
            let named = if op.name.is_empty() { String::new() } else { format!(" {}", op.name) };
            let attrs: String = op.attrs.iter().map(|attr| format!(", {attr}")).collect();
            let skipped = op.skipped.map_or_else(String::new, |note| format!(", {note}"));
            let anchor = Anchor {
                part: *part,
                class: "node",
                tip: format!("{op}{named}{attrs}{skipped}, {}", tip_of(inspection, *part)),
                // One stop of the keyboard for each partition is enough.
                stop: links.then_some(!is_framed),
            };
            linked(html! { (rect(&class, placed, 6.0)) (lines) }, anchor)
        }
        Node::Input { tensor, name, .. } | Node::Output { tensor, name, .. } => html! {
            g class="node" {
                title { "tensor " (tensor) " " (name) }
                (rect("tensor", placed, placed.height / 2.0)) (lines)
            }
        },
    }
}

fn tip_of(inspection: &Inspection, part: usize) -> String {
    format!("partition {part}: {}", inspection.part(part).headline())
}

/// The attributes by which a thing in the picture is a part of a partition.
struct Anchor<'a> {
    part: usize,
    class: &'a str,
    tip: String,
    /// In a page, whether the keyboard stops there.
    stop: Option<bool>,
}

/// A part of a partition: in a page, a link to its details.
fn linked(content: Markup, Anchor { part, class, tip, stop }: Anchor<'_>) -> Markup {
    let class = format!("{class} of-{part}");
    let class = class.trim_start();
    match stop {
        None => html! { g class=(class) { title { (tip) } (content) } },
        Some(true) => html! {
            a class=(class) href={ "#partition-" (part) } aria-label=(tip) { title { (tip) } (content) }
        },
        Some(false) => html! {
            a class=(class) href={ "#partition-" (part) } tabindex="-1" aria-hidden="true" {
                title { (tip) } (content)
            }
        },
    }
}

/// The class of a partition: its colour; hatched if nothing runs it; with a dashed line if it has no plan.
pub(crate) fn class_of(inspection: &Inspection, part: usize) -> String {
    let colour = part % COLOURS.len();
    match &inspection.part(part).outcome {
        Outcome::Unsupported(_) => "hatched".into(),
        Outcome::Compiled { .. } => format!("c{colour}{}", heat_of(inspection, part)),
        Outcome::Open(_) | Outcome::Failed(_) => format!("open c{colour}"),
    }
}

/// The class of the heat of a partition, behind that of its colour; nothing without a profile.
fn heat_of(inspection: &Inspection, part: usize) -> String {
    inspection.part(part).time.map_or_else(String::new, |PartTime { heat, .. }| format!(" heat{heat}"))
}

fn rect(class: &str, placed: &Placed, radius: f64) -> Markup {
    let Placed { x, y, width, height } = placed;
    html! {
        rect class=(class) x=(px(x - width / 2.0)) y=(px(y - height / 2.0))
            width=(px(*width)) height=(px(*height)) rx=(px(radius)) {}
    }
}

/// A path that bends at the points of a route.
fn curve(route: &Route) -> String {
    let mut points = route.points.iter().copied();
    let mut path = points.next().map_or_else(String::new, |(x, y)| format!("M{x:.1} {y:.1}"));
    let rest: Vec<(f64, f64)> = points.collect();
    for (index, (x, y)) in rest.iter().enumerate() {
        let _ = match rest.get(index + 1) {
            None => write!(path, "L{x:.1} {y:.1}"),
            Some((next_x, next_y)) => {
                write!(path, "Q{x:.1} {y:.1} {:.1} {:.1}", (x + next_x) / 2.0, (y + next_y) / 2.0)
            }
        };
    }
    path
}

/// Pixels, to a tenth.
fn px(pixels: f64) -> String {
    let text = format!("{pixels:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
