//! The graph as a page: one file that loads nothing. Partitions are links to what is said of them, and the
//! one that is linked to is shown beside the picture. A script of its own moves the picture to it, zooms and
//! searches; without the script the page shows the same.

use std::fmt::Write;

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sterna::{LoopOver, LoopSummary, NestSummary, PlanSummary, StepSummary, TensorId};

use crate::arena::{self, Arena};
use crate::mask::Mask;
use crate::model::{Inspection, Outcome, Part};
use crate::picture::{self, Setting};
use crate::ports::PortReport;
use crate::{digest, tiles};

/// Nothing is loaded and no script but the own one is run, whatever a graph holds.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src ";

const SCRIPT: &str = include_str!("page.js");

const STYLE: &str = include_str!("page.css");

/// The graph as a page of HTML: one file that loads nothing. Partitions in its picture are links to their
/// plans.
///
/// # Errors
///
/// The layout of the picture failed.
pub fn page(inspection: &Inspection, arena: &Arena) -> Result<String> {
    let Inspection { source, engine, parts, .. } = inspection;
    let (level, threads) = (engine.level(), engine.threads());
    let style =
        PreEscaped(format!("{STYLE}{}{}{}", picture::style_of(inspection), arena::STYLE, marks(parts)));
    let picture = picture::picture(inspection, Setting { links: true, ..Setting::default() })?;
    let (ops, unsupported) = (inspection.ops(), inspection.unsupported());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content={ (POLICY) (digest::source_of(SCRIPT)) };
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (source) " – Sterna" }
                style { (style) }
            }
            body {
                header {
                    div {
                        h1 { (source) }
                        p { "ops " (ops) " · partitions " (parts.len()) ", not supported " (unsupported)
                            " · kernels " (level) " · threads " (threads) }
                    }
                    (tools())
                }
                main {
                    div class="picture" tabindex="0" role="region" aria-label="Graph" { (picture) }
                    div class="panel" tabindex="0" role="region" aria-label="Plans" {
                        (overview(inspection, arena))
                        @for part in parts { (section(inspection, part)) }
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(page.into_string())
}

/// The most partitions that are marked: a browser looks through the whole page for each.
const MAX_MARKED: usize = 1000;

/// The partition that is shown has a thicker line in the picture, if there are not too many.
fn marks(parts: &[Part]) -> String {
    let mut marks = String::new();
    let is_marked = parts.len() <= MAX_MARKED;
    for Part { id, .. } in parts.iter().filter(|_| is_marked) {
        let _ =
            write!(marks, "body:has(#partition-{id}:target) .of-{id}>:is(.frame,.alone){{stroke-width:4}}");
    }
    marks
}

/// The tools that the script shows, because they do nothing without it.
fn tools() -> Markup {
    const BUTTONS: [(&str, &str, &str); 4] = [
        ("-", "−", "Smaller (key -)"),
        ("+", "+", "Larger (key +)"),
        ("1", "1:1", "Size of the picture (key 1)"),
        ("0", "Fit", "The whole picture (key 0)"),
    ];
    html! {
        div class="tools" role="toolbar" aria-label="Picture" hidden {
            @for (key, name, tip) in BUTTONS { button type="button" data-key=(key) title=(tip) { (name) } }
            input id="search" type="search" placeholder="Search: kind, name, id" aria-keyshortcuts="/"
                aria-label="Search ops and tensors" title="Key /; Enter goes to the next, Shift+Enter back";
            output id="found" for="search" {}
        }
    }
}

fn overview(inspection: &Inspection, arena: &Arena) -> Markup {
    html! {
        section id="overview" {
            h2 { "Partitions" }
            p { "Choose one, here or in the picture. Hatched ones are not supported." }
            table {
                thead { tr { th class="number" { "#" } th { "ops" } th { "what" } } }
                tbody {
                    @for part in &inspection.parts {
                        tr data-part=(part.id) {
                            td class="number" { (part.id) }
                            td { a href={ "#partition-" (part.id) } { (kinds(part)) } }
                            td { small { (part.headline()) } }
                        }
                    }
                }
            }
            (arena.section())
            p class="tools" hidden {
                small {
                    kbd { "n" } " next, " kbd { "p" } " previous partition, " kbd { "Esc" } " all of them; "
                    kbd { "/" } " search; " kbd { "+" } " " kbd { "-" } " " kbd { "0" } " " kbd { "1" }
                    " zoom, as Ctrl with the wheel does; drag the picture to move it."
                }
            }
        }
    }
}

/// The kinds of a partition's ops.
fn kinds(part: &Part) -> String {
    const MAX_KINDS: usize = 6;
    let kinds: Vec<&str> = part.ops.iter().take(MAX_KINDS).map(|op| &*op.kind).collect();
    let more = if part.ops.len() > MAX_KINDS { ", …" } else { "" };
    kinds.join(", ") + more
}

/// The ops of a partition, and the rewrites with which they run.
fn ops_of(part: &Part) -> Markup {
    html! {
        h3 { "Ops" }
        table {
            thead { tr { th class="number" { "op" } th { "kind" } th { "name" } th { "attributes" } } }
            tbody {
                @for op in &part.ops {
                    tr {
                        td class="number" { (op.id) }
                        td class="word" { (op.kind) }
                        td { (op.name) }
                        td {
                            (op.attrs.join(", "))
                            @if let Some(note) = op.skipped { small { (note) } }
                        }
                    }
                }
            }
        }
        @if !part.rewrites.is_empty() {
            h3 { "Rewrites" }
            ul { @for rewrite in &part.rewrites { li { (rewrite) ": " (rewrite.pattern()) } } }
        }
    }
}

fn section(inspection: &Inspection, part: &Part) -> Markup {
    let last = inspection.parts.len() - 1;
    html! {
        section class="partition" id={ "partition-" (part.id) } {
            nav {
                a href="#overview" { "All partitions" }
                @if part.id > 0 { a href={ "#partition-" (part.id - 1) } { "Previous" } }
                @if part.id < last { a href={ "#partition-" (part.id + 1) } { "Next" } }
            }
            h2 { "Partition " (part.id) ": " (part.headline()) }
            (details(part, true))
        }
    }
}

/// All that is said of a partition; in a page, other partitions are links.
pub(crate) fn details(part: &Part, links: bool) -> Markup {
    html! {
        (ops_of(part))
        h3 { "Tensors" }
        table {
            thead {
                tr { th {} th class="number" { "id" } th { "name" } th { "type" } th { "shape" } th {} }
            }
            tbody {
                @for port in &part.inputs { (tensor("in", port)) }
                @for port in &part.outputs { (tensor("out", port)) }
            }
        }
        @match &part.outcome {
            Outcome::Compiled { plan, in_place, mask } => {
                @if !in_place.is_empty() {
                    h3 { "In place" }
                    ul {
                        @for pair in in_place {
                            li {
                                (named(part, pair.output)) " may take the place of "
                                (named(part, pair.input))
                            }
                        }
                    }
                }
                (plan_of(part, plan))
                @if let Some(mask) = mask {
                    h3 { "Mask" }
                    p { (tiles::said(mask)) }
                    @if let Mask::Tiles { tiles, .. } = mask { (tiles::picture(tiles)) }
                }
            }
            Outcome::Open(why) | Outcome::Failed(why) | Outcome::Unsupported(why) => {
                h3 { "No plan" }
                p { (why) }
            }
        }
        @if !part.neighbours.is_empty() {
            h3 { "Why neighbours are apart" }
            ul {
                @for neighbour in &part.neighbours {
                    li {
                        (neighbour.producer) " → " (neighbour.consumer) ", "
                        @if links {
                            a href={ "#partition-" (neighbour.part) } { "partition " (neighbour.part) }
                        } @else {
                            "partition " (neighbour.part)
                        }
                        ": " (neighbour.why)
                    }
                }
            }
        }
    }
}

/// A row about a port.
fn tensor(side: &str, port: &PortReport) -> Markup {
    let [id, name, dtype, shape, more] = port.cells();
    html! {
        tr {
            td class="word" { (side) }
            td class="number" { (id) }
            td { (name) }
            td class="word" { (dtype) }
            td { (shape.replace(',', ",\u{200b}")) }
            td { (more.replace(',', ",\u{200b}")) }
        }
    }
}

/// A tensor in a sentence: its name, if it is an input or output of the graph.
fn named(part: &Part, id: TensorId) -> Markup {
    let port = part.inputs.iter().chain(&part.outputs).find(|port| port.id == id);
    match port.and_then(|port| port.name.as_ref()) {
        Some(name) => html! { var title={ "tensor " (id) } { (name) } },
        None => html! { "tensor " (id) },
    }
}

/// A sentence of a plan, with names for those tensors that have one.
fn with_names(part: &Part, sentence: &str) -> Markup {
    const TENSOR: &str = "tensor ";
    let mut rest = sentence;
    let mut pieces = Vec::new();
    while let Some(at) = rest.find(TENSOR) {
        let behind = &rest[at + TENSOR.len()..];
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let piece = behind[..end].parse().map(|id| named(part, id));
        pieces.push(html! { (rest[..at]) (piece.unwrap_or_else(|_| html! { (TENSOR) })) });
        rest = if behind[..end].is_empty() { behind } else { &behind[end..] };
    }
    html! { @for piece in &pieces { (piece) } (rest) }
}

fn plan_of(part: &Part, plan: &PlanSummary) -> Markup {
    html! {
        h3 { "Plan" }
        dl {
            dt { "kernels" } dd { (plan.level) }
            dt { "in" } dd { (bytes(plan.bytes_read)) }
            dt { "out" } dd {
                (bytes(plan.bytes_written))
                @if plan.non_temporal_stores { ", non-temporal stores" }
            }
            dt { "FLOPs" } dd { (plan.flops) }
            dt { "scratch" } dd { (bytes(plan.scratch_per_thread)) " a thread" }
            @if plan.buffer_bytes > 0 { dt { "buffers" } dd { (bytes(plan.buffer_bytes)) } }
        }
        @if !plan.fallbacks.is_empty() {
            h4 { "Slower forms" }
            ul { @for fallback in &plan.fallbacks { li { (fallback) } } }
        }
        @if plan.nests.is_empty() { p { "Nothing to do: the outputs are empty." } }
        @for (index, nest) in plan.nests.iter().enumerate() {
            @if plan.nests.len() > 1 { h4 { "Phase " (index) ": " (nest.kind) } }
            (nest_of(part, nest))
        }
    }
}

fn nest_of(part: &Part, nest: &NestSummary) -> Markup {
    let NestSummary { rows, columns, tile_rows, tile_columns, tiles, threads, flops, scratch, .. } = nest;
    let loops: Vec<String> = nest.loops.iter().map(loop_of).collect();
    html! {
        dl {
            dt { "loops" }
            dd { @if loops.is_empty() { "none around the tile" } @else { (loops.join(" × ")) } }
            dt { "tile" }
            dd { (tile_rows) " × " (tile_columns) ", of " (rows) " rows × " (columns) " columns" }
            dt { "tiles" } dd { (tiles) @if *threads > 1 { ", shared by " (threads) " threads" } }
            dt { "work" } dd { (flops) " FLOPs, " (bytes(*scratch)) " of scratch a thread" }
        }
        ol class="steps" start="0" { @for step in &nest.steps { li { (step_of(part, step)) } } }
    }
}

fn loop_of(l: &LoopSummary) -> String {
    let over = match l.over {
        LoopOver::RowBlocks => " blocks of rows",
        LoopOver::ColumnBlocks => " blocks of columns",
        _ => "",
    };
    format!("{}{over}", l.extent)
}

/// A step as its text says it, what it does in bold.
fn step_of(part: &Part, step: &StepSummary) -> Markup {
    let (tasks, text) = (step.tasks.join(", "), step.to_string());
    let rest = text.strip_prefix(&tasks).unwrap_or_default();
    html! { b { (with_names(part, &tasks)) } (with_names(part, rest)) }
}

/// A number of bytes, with a unit that suits.
fn bytes(count: usize) -> String {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| count >= *unit) {
        Some((name, unit)) => format!("{count} bytes ({:.1} {name})", count as f64 / *unit as f64),
        None => format!("{count} bytes"),
    }
}
