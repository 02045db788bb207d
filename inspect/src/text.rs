//! The graph as text.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use crate::arena::Arena;
use crate::mask::Mask;
use crate::model::{Inspection, Outcome, Part};
use crate::ports::aligned;
use crate::tiles;
use crate::wiring::Neighbour;

/// Partitions get these in rotation.
const COLOURS: [AnsiColor; 5] =
    [AnsiColor::Cyan, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::Yellow];

/// The graph as text with colours; the printer removes the colours if the output is no terminal.
#[must_use]
pub fn text(inspection: &Inspection, arena: &Arena) -> String {
    let Inspection { source, engine, parts, .. } = inspection;
    let (level, threads) = (engine.level(), engine.threads());
    let (ops, unsupported) = (inspection.ops(), inspection.unsupported());
    let mut text = format!(
        "{source}: ops {ops}, partitions {} ({unsupported} not supported), kernels {level}, threads \
         {threads}\n",
        parts.len()
    );
    parts.iter().for_each(|part| {
        text.push('\n');
        add(&mut text, part);
    });
    text.push('\n');
    text + &arena.text()
}

fn add(text: &mut String, part: &Part) {
    let style = match part.is_unsupported() {
        true => Style::new().dimmed(),
        false => Style::new().bold().fg_color(Some(COLOURS[part.id % COLOURS.len()].into())),
    };
    let _ = writeln!(text, "{style}partition {}: {}{style:#}", part.id, part.headline());
    for op in &part.ops {
        let _ = write!(text, "  op       {} {} {:?}", op.kind, op.id, op.name);
        op.attrs.iter().for_each(|attr| *text += &format!(" {attr}"));
        op.skipped.iter().for_each(|note| *text += &format!(", {note}"));
        text.push('\n');
    }
    for rewrite in &part.rewrites {
        let _ = writeln!(text, "  rewrite  {rewrite}: {}", rewrite.pattern());
    }
    for line in aligned(&part.inputs, &part.outputs) {
        let _ = writeln!(text, "  {line}");
    }
    match &part.outcome {
        Outcome::Compiled { plan, in_place, mask } => {
            for pair in in_place {
                let (input, output) = (pair.input, pair.output);
                let _ = writeln!(text, "  in place {output} may take the place of {input}");
            }
            plan.to_string().lines().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
            if let Some(mask) = mask {
                let _ = writeln!(text, "  mask     {}", tiles::said(mask));
            }
            if let Some(Mask::Tiles { tiles, .. }) = mask {
                tiles::lines(tiles).into_iter().for_each(|line| {
                    let _ = writeln!(text, "           {line}");
                });
            }
        }
        Outcome::Open(why) | Outcome::Failed(why) | Outcome::Unsupported(why) => {
            let _ = writeln!(text, "  no plan  {why}");
        }
    }
    for neighbour in &part.neighbours {
        let Neighbour { part, producer, consumer, why } = neighbour;
        let _ = writeln!(text, "  apart    {producer} → {consumer}, partition {part}: {why}");
    }
}
