//! The memory of a run of the whole graph: each buffer of the arena as a bar, over the steps that need it.

use std::collections::BTreeMap;
use std::fmt::Write;

use maud::{Markup, PreEscaped, html};
use sterna::{ArenaBuffer, ArenaPlan, ArenaStep, OpId, OpKind, Policy, SpanKind};

use crate::model::{Inspection, Part};
use crate::picture;
use crate::ports::TensorNames;
use crate::subject::Subject;
use crate::table::Table;
use crate::units::size;
use crate::words::{kinds_of, plain};

/// The kinds that move elements and compute nothing.
const MOVES: &[OpKind] = &[
    OpKind::Concat,
    OpKind::Identity,
    OpKind::Reorder,
    OpKind::Slice,
    OpKind::StaticReshape,
    OpKind::StaticTranspose,
];

/// The memory of a run of a whole graph, or why none is planned.
pub struct Arena {
    planned: Result<PlannedArena, String>,
}

/// The layout of the memory of a run.
struct PlannedArena {
    bytes: usize,
    scratch: usize,
    steps: Vec<ShownStep>,
    buffers: Vec<ShownBuffer>,
}

/// A step of a run.
struct ShownStep {
    /// The partition as it is shown, if it is one of the graph.
    part: Option<usize>,
    kinds: String,
    /// It moves elements and computes nothing.
    is_copy: bool,
    run_by: SpanKind,
}

/// A buffer with the names of its tensors.
struct ShownBuffer {
    tensors: String,
    buffer: ArenaBuffer,
    /// The partition that writes it first.
    part: Option<usize>,
}

impl Arena {
    /// The arena of a graph all of whose shapes are known.
    #[must_use]
    pub fn of(subject: &dyn Subject, policy: Policy, inspection: &Inspection) -> Self {
        let planned = match policy {
            Policy::Fusion => Self::planned(subject, inspection),
            _ => Err("a session has the policy fusion".into()),
        };
        Self { planned }
    }

    fn planned(subject: &dyn Subject, inspection: &Inspection) -> Result<PlannedArena, String> {
        match subject.arena_plan(&inspection.engine) {
            Ok(Some(plan)) => {
                Ok(PlannedArena::of(plan, &inspection.parts, &TensorNames::new(subject.names())))
            }
            Ok(None) => Err("the shape of an input is not known".into()),
            Err(error) => {
                let mut ops = inspection.parts.iter().flat_map(|part| &part.ops);
                // The op that stands for a layer has a name that tells nobody anything.
                Err(match ops.find(|op| op.skipped.is_some()) {
                    Some(op) => subject.why_skipped(&op.kind),
                    None => plain(&format!("{error:#}")),
                })
            }
        }
    }

    /// Lines of text about it.
    pub(crate) fn text(&self) -> String {
        let plan = match &self.planned {
            Err(why) => return format!("arena: none, {why}\n"),
            Ok(plan) => plan,
        };
        let mut text = format!("{}\n", plan.headline());
        for (index, step) in plan.steps.iter().enumerate() {
            let part = step.part.map_or_else(String::new, |part| format!(", partition {part}"));
            let what = match (step.is_copy, step.run_by) {
                (true, _) => "copies",
                (false, SpanKind::Execute) => continue,
                (false, _) => "no kernel",
            };
            let _ = writeln!(text, "  {what:<8} step {index}, {}{part}", step.kinds);
        }
        if plan.buffers.is_empty() {
            return text;
        }
        let mut table = Table::new(&["  tensors", "offset", "bytes", "first step", "last step"]);
        for ShownBuffer { tensors, buffer, .. } in &plan.buffers {
            table.push([
                format!("  {tensors}").into(),
                buffer.offset.to_string().into(),
                buffer.bytes.to_string().into(),
                buffer.first_step.to_string().into(),
                buffer.last_step.to_string().into(),
            ]);
        }
        text + &table.text()
    }

    /// A picture of it as a file of SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let style = PreEscaped(format!("{}{STYLE}", picture::style()));
        let picture = match &self.planned {
            Ok(plan) => plan.picture(html! { style { (style) } }),
            Err(why) => html! {
                svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 40" width="640" height="40" {
                    style { (style) }
                    text class="axis" x="8" y="24" { "no arena: " (why) }
                }
            },
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", picture.into_string())
    }

    /// The part of a page about it.
    pub(crate) fn section(&self) -> Markup {
        html! {
            h3 { "Memory of a run" }
            @match &self.planned {
                Err(why) => p { "No arena: " (why) "." },
                Ok(plan) => {
                    p {
                        (plan.headline()) ". A bar is a buffer, over the steps that need it; grey steps copy."
                    }
                    div class="arena" { (plan.picture(html! {})) }
                }
            }
        }
    }
}

impl PlannedArena {
    fn of(plan: ArenaPlan, parts: &[Part], names: &TensorNames) -> Self {
        let of_ops: BTreeMap<OpId, usize> =
            parts.iter().flat_map(|part| part.ops.iter().map(|op| (op.id, part.id))).collect();
        let part_of = |step: &ArenaStep| step.ops.iter().find_map(|op| of_ops.get(&op.id).copied());
        let step = |step: &ArenaStep| ShownStep {
            part: part_of(step),
            kinds: kinds_of(&step.ops),
            is_copy: step.ops.iter().all(|op| MOVES.contains(&op.kind)),
            run_by: step.kind,
        };
        let steps: Vec<ShownStep> = plan.steps.iter().map(step).collect();
        let buffer = |buffer: ArenaBuffer| {
            let name = |id: &sterna::TensorId| match names.short(*id) {
                Some(name) => format!("{id} {name}"),
                None => id.to_string(),
            };
            let tensors = buffer.tensors.iter().map(name).collect::<Vec<_>>().join(", ");
            let part = steps.get(buffer.first_step).and_then(|step| step.part);
            ShownBuffer { tensors, buffer, part }
        };
        let buffers = plan.buffers.into_iter().map(buffer).collect();
        Self { bytes: plan.bytes, scratch: plan.scratch, steps, buffers }
    }

    fn headline(&self) -> String {
        let (steps, buffers) = (self.steps.len(), self.buffers.len());
        let copies = self.steps.iter().filter(|step| step.is_copy).count();
        format!(
            "arena: {}, scratch {}, buffers {buffers}, steps {steps}, of which {copies} copy",
            size(self.bytes),
            size(self.scratch)
        )
    }

    /// Steps to the right, bytes upwards.
    fn picture(&self, head: Markup) -> Markup {
        let wide = (self.steps.len().max(1) as f64 * STEP).clamp(320.0, 4000.0);
        let step = wide / self.steps.len().max(1) as f64;
        let (width, height) = (wide + LEFT + MARGIN, HIGH + 2.0 * MARGIN + AXIS);
        let ground = MARGIN + HIGH;
        let at = |bytes: usize| ground - HIGH * bytes as f64 / self.bytes.max(1) as f64;
        let copies = self.steps.iter().enumerate().filter(|(_, step)| step.is_copy);
        let frame = format!("M{LEFT} {MARGIN}V{ground:.1}H{:.1}", LEFT + wide);
        let last_step = self.steps.len().saturating_sub(1).to_string();
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (px(width)) " " (px(height)) }
                width=(px(width)) height=(px(height)) role="img" aria-label="The arena" {
                title { (self.headline()) }
                (head)
                rect class="back" width="100%" height="100%" {}
                @for (index, copy) in copies {
                    rect class="copies" x=(px(LEFT + step * index as f64)) y=(px(MARGIN)) width=(px(step))
                        height=(px(HIGH)) { title { "step " (index) " copies: " (copy.kinds) } }
                }
                @for ShownBuffer { tensors, buffer, part } in &self.buffers {
                    @let class = class_of(*part);
                    @let last = buffer.last_step + 1;
                    @let high = (at(buffer.offset) - at(buffer.offset + buffer.bytes)).max(1.0);
                    rect class={ "bar " (class) } x=(px(LEFT + step * buffer.first_step as f64))
                        y=(px(at(buffer.offset) - high)) height=(px(high))
                        width=(px(step * (last - buffer.first_step) as f64)) {
                        title {
                            "tensors " (tensors) ": " (buffer.bytes) " bytes at " (buffer.offset) ", steps "
                            (buffer.first_step) " to " (buffer.last_step)
                        }
                    }
                }
                path class="way" d=(frame) {}
                (axis(LEFT - 4.0, MARGIN + 8.0, "end", &size(self.bytes)))
                (axis(LEFT - 4.0, ground, "end", "0"))
                (axis(LEFT, ground + AXIS, "start", "step 0"))
                (axis(LEFT + wide, ground + AXIS, "end", &last_step))
            }
        }
    }
}

/// A text at an axis.
fn axis(x: f64, y: f64, anchor: &str, said: &str) -> Markup {
    html! { text class={ "axis " (anchor) } x=(px(x)) y=(px(y)) { (said) } }
}

/// The class of a bar: the colour of the partition that writes it.
fn class_of(part: Option<usize>) -> String {
    part.map_or_else(|| "tensor".into(), |part| format!("c{}", part % picture::COLOURS.len()))
}

/// Pixels: of a step, of the arena's height, of the scale, and around everything.
const STEP: f64 = 16.0;
const HIGH: f64 = 280.0;
const LEFT: f64 = 72.0;
const AXIS: f64 = 16.0;
const MARGIN: f64 = 10.0;

/// The style of the picture beside that of the graph.
pub(crate) const STYLE: &str = "svg text.axis{font-size:11px;text-anchor:start}svg text.end{text-anchor:end}\
    svg .bar{stroke-width:1}\
    svg .copies{fill:#8b949e;opacity:.25}";

/// Pixels, to a tenth.
fn px(pixels: f64) -> String {
    format!("{pixels:.1}")
}
