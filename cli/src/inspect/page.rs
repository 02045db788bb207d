//! The graph as a page: one file without scripts. Partitions are links to what is said of them, and the one
//! that is linked to is shown beside the picture.

use std::fmt::Write;

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sterna::{LoopOver, LoopSummary, NestSummary, PlanSummary, StepSummary};

use super::model::{Inspection, Outcome, Part};
use super::{picture, tiles};
use crate::report::TilesReport;

/// Nothing is loaded and no script is run, whatever a graph holds.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(inspection: &Inspection) -> Result<String> {
    let Inspection { source, level, threads, parts, .. } = inspection;
    let style = PreEscaped(format!("{STYLE}{}{}", picture::style(), marks(parts)));
    let picture = picture::picture(inspection, html! {}, true)?;
    let (ops, unsupported) = (inspection.ops(), inspection.unsupported());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (source) " – Sterna" }
                style { (style) }
            }
            body {
                header {
                    h1 { (source) }
                    p { "ops " (ops) " · partitions " (parts.len()) ", not supported " (unsupported)
                        " · kernels " (level) " · threads " (threads) }
                }
                main {
                    div class="picture" tabindex="0" role="region" aria-label="Graph" { (picture) }
                    div class="panel" tabindex="0" role="region" aria-label="Plans" {
                        (overview(inspection))
                        @for part in parts { (section(inspection, part)) }
                    }
                }
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

fn overview(inspection: &Inspection) -> Markup {
    html! {
        section id="overview" {
            h2 { "Partitions" }
            p { "Choose one, here or in the picture. Hatched ones are not supported." }
            ol class="parts" start="0" {
                @for part in &inspection.parts {
                    li {
                        a href={ "#partition-" (part.id) } { (kinds(part)) } " " small { (part.headline()) }
                    }
                }
            }
        }
    }
}

/// The kinds of a partition's ops.
fn kinds(part: &Part) -> String {
    const MOST: usize = 6;
    let kinds: Vec<&str> = part.ops.iter().take(MOST).map(|op| op.kind.name()).collect();
    let more = if part.ops.len() > MOST { ", …" } else { "" };
    kinds.join(", ") + more
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
            (table("Ops", &["kind", "op", "name"], part.ops.iter().zip(&part.names).map(|(op, name)| {
                [op.kind.to_string(), op.id.to_string(), name.clone()]
            })))
            h3 { "Tensors" }
            ul {
                @for port in &part.inputs { li { "in: " (port) } }
                @for port in &part.outputs { li { "out: " (port) } }
            }
            @match &part.outcome {
                Outcome::Compiled { plan, in_place, mask_tiles } => {
                    @if !in_place.is_empty() {
                        h3 { "In place" }
                        ul {
                            @for pair in in_place {
                                li { "tensor " (pair.output) " may take the place of tensor " (pair.input) }
                            }
                        }
                    }
                    (plan_of(plan))
                    @if let Some(mask_tiles) = mask_tiles {
                        h3 { "Mask" }
                        p { (TilesReport::of(mask_tiles)) }
                        (tiles::picture(mask_tiles))
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
                            a href={ "#partition-" (neighbour.part) } { "partition " (neighbour.part) }
                            ": " (neighbour.why)
                        }
                    }
                }
            }
        }
    }
}

fn plan_of(plan: &PlanSummary) -> Markup {
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
        @if plan.nests.is_empty() { p { "Nothing to do: the outputs are empty." } }
        @for (index, nest) in plan.nests.iter().enumerate() {
            @if plan.nests.len() > 1 { h4 { "Phase " (index) ": " (nest.kind) } }
            (nest_of(nest))
        }
    }
}

fn nest_of(nest: &NestSummary) -> Markup {
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
        ol class="steps" start="0" { @for step in &nest.steps { li { (step_of(step)) } } }
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
fn step_of(step: &StepSummary) -> Markup {
    let (tasks, text) = (step.tasks.join(", "), step.to_string());
    let rest = text.strip_prefix(&tasks).unwrap_or_default();
    html! { b { (tasks) } (rest) }
}

/// A number of bytes, with a unit that suits.
fn bytes(count: usize) -> String {
    const UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| count >= *unit) {
        Some((name, unit)) => format!("{count} bytes ({:.1} {name})", count as f64 / *unit as f64),
        None => format!("{count} bytes"),
    }
}

fn table<const N: usize>(title: &str, head: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> Markup {
    html! {
        h3 { (title) }
        table {
            thead { tr { @for cell in head { th scope="col" { (cell) } } } }
            tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
        }
    }
}
