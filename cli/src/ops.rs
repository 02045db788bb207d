//! `sterna ops`: what each op kind computes, and its schema.

use std::fmt::Write;

use anstyle::Style;
use anyhow::{Result, anyhow, bail};
use sterna::{
    Attr, AttrDefault, AttrRow, AttrType, AttrValue, Count, DataType, LogicalTensor, Op, OpKind, Partition,
    Port, Schema, UnknownName, reference,
};

use crate::synonyms::{self, Synonym};
use crate::words::plain;

/// The page of the guide that a test writes from the schema and from the documentation in the source.
const PAGE: &str = include_str!("../ops.md");

/// Columns of the text.
const WIDTH: usize = 100;

/// The beginning of a line of the page that has a label.
const ITEM: &str = "- ";

/// Every kind in a line.
pub(crate) fn table() -> String {
    let mut text = format!("{:<30} {:>4}  {:<12} {:<12} {}\n", "kind", "code", "inputs", "outputs", "runs");
    for schema in Schema::all() {
        let Schema { kind, input_count, output_count, .. } = schema;
        let (inputs, outputs) = (input_count.to_string(), output_count.to_string());
        let _ = writeln!(text, "{kind:<30} {:>4}  {inputs:<12} {outputs:<12} {}", kind.code(), runs(schema));
    }
    text + "\ncompiled: by partitions; reference: by the interpreter that `sterna run` uses where no \
            partition does\n"
}

/// All about one kind, and how it was found if not by its name.
pub(crate) struct Detail {
    pub(crate) text: String,
    pub(crate) note: Option<String>,
}

/// All about the kind of a name, which may be that of another framework.
pub(crate) fn detail(name: &str) -> Result<Detail> {
    let unknown = |unknown: UnknownName| match nearest(name).as_slice() {
        [] if unknown.nearest.is_some() => anyhow!(unknown),
        [] => anyhow!("{unknown}; `sterna ops` lists them all"),
        names => anyhow!("no op kind is called {name:?}; is it {}?", names.join(", ")),
    };
    let kind = match synonyms::op(name) {
        Some(Synonym::Kind(kind)) => kind,
        Some(Synonym::Ops(ops)) => bail!("no op kind is called {name:?}; it is written as {ops}"),
        None => name.parse().map_err(unknown)?,
    };
    let is_same = kind.name().eq_ignore_ascii_case(name);
    let note = (!is_same).then(|| format!("`{}` is {kind} here", plain(name)));
    Ok(Detail { text: described(kind), note })
}

/// All about one kind.
fn described(kind: OpKind) -> String {
    let schema = Schema::of(kind);
    let (bold, section) = (Style::new().bold(), section(kind.name()));
    let mut text = format!("{bold}{kind}{bold:#}, code {}, runs: {}\n", kind.code(), runs(schema));
    for paragraph in section.iter().flat_map(|section| section.paragraphs()) {
        text.push('\n');
        wrapped(&mut text, "", paragraph);
    }
    if section.is_some() {
        text.push('\n');
    }
    ports(&mut text, "inputs", schema.inputs, schema.input_count);
    ports(&mut text, "outputs", schema.outputs, schema.output_count);
    text += "types\n";
    for (variable, types) in schema.types {
        let _ = writeln!(text, "  {variable}: {}", words(types.iter().map(DataType::to_string)));
    }
    let is_free = |port: &&Port| schema.types.iter().all(|(variable, _)| *variable != port.type_variable);
    if let Some(port) = schema.inputs.iter().chain(schema.outputs).find(is_free) {
        let _ = writeln!(text, "  {}: every type, at each port another", port.type_variable);
    }
    if !schema.attributes.is_empty() {
        text += "attributes\n";
    }
    schema.attributes.iter().for_each(|row| attribute(&mut text, row));
    match section {
        Some(section) => {
            for label in ["Shapes", "Checks", "Edges", "Accuracy"] {
                if let Some(said) = section.item(label) {
                    let _ = writeln!(text, "{}", label.to_lowercase());
                    wrapped(&mut text, "  ", said);
                }
            }
            let _ = writeln!(text, "\n{}", reading(section));
        }
        None => {
            text += "\nNothing here computes the op: graphs with it are checked and partitioned, and its \
                     partition comes back unsupported.\n";
        }
    }
    text
}

/// A sentence on the letters of a formula.
fn reading(section: Section) -> &'static str {
    match section.paragraphs().any(|paragraph| paragraph.contains('`')) {
        true => {
            "x and y are the inputs in the order of the ports, after broadcasting; p and q are attributes."
        }
        false => "docs/ops.md has all ops on one page.",
    }
}

/// The page's section on one kind.
#[derive(Clone, Copy)]
struct Section(&'static str);

/// The section of a kind; none for a kind that nothing here computes.
fn section(kind: &str) -> Option<Section> {
    let (_, from) = PAGE.split_once(&format!("\n## {kind}\n"))?;
    Some(Section(from.split("\n## ").next().unwrap_or(from)))
}

impl Section {
    /// The description of the computation.
    fn paragraphs(self) -> impl Iterator<Item = &'static str> {
        let lines = self.0.lines().filter(|line| !line.is_empty());
        lines.take_while(|line| !line.starts_with(ITEM))
    }

    /// The text behind a label.
    fn item(self, label: &str) -> Option<&'static str> {
        self.0.lines().find_map(|line| line.strip_prefix(ITEM)?.strip_prefix(label)?.strip_prefix(": "))
    }
}

/// Adds a text in lines that fit a terminal.
fn wrapped(text: &mut String, indent: &str, said: &str) {
    let mut room = 0;
    for word in said.split_whitespace() {
        let length = word.chars().count() + 1;
        if length > room {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(indent);
            room = WIDTH - indent.len();
        }
        text.push_str(word);
        text.push(' ');
        room = room.saturating_sub(length);
    }
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}

fn ports(text: &mut String, what: &str, ports: &[Port], count: Count) {
    let _ = writeln!(text, "{what}: {count}");
    for (index, Port { name, type_variable, shape_only, .. }) in ports.iter().enumerate() {
        let note = if *shape_only { ", shape-only" } else { "" };
        let _ = writeln!(text, "  {index} {name}: {type_variable}{note}");
    }
}

fn attribute(text: &mut String, row: &AttrRow) {
    let need = match (&row.default, row.required) {
        (Some(default), _) => format!("default {}", default_text(default)),
        (None, true) => "required".into(),
        (None, false) => "optional".into(),
    };
    let _ = write!(text, "  {}: {}, {need}", row.attr, row.value_type.name());
    if !row.allowed.is_empty() {
        let _ = write!(text, ", one of {}", row.allowed.join(", "));
    }
    text.push('\n');
}

fn default_text(default: &AttrDefault) -> String {
    match default {
        AttrDefault::Bool(value) => value.to_string(),
        AttrDefault::S64(value) => value.to_string(),
        AttrDefault::F32(value) => value.to_string(),
        AttrDefault::String(value) => (*value).into(),
        AttrDefault::S64s(values) => format!("{values:?}"),
    }
}

fn words(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// The kinds whose name holds, or is held by, the given one, whatever the case.
fn nearest(name: &str) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let is_near = |kind: &&str| {
        let kind = kind.to_lowercase();
        kind == name || name.len() > 2 && (kind.contains(&name) || name.contains(&kind))
    };
    OpKind::ALL.iter().map(|kind| kind.name()).filter(is_near).collect()
}

/// The runner of the plainest op of a kind.
fn runs(schema: &Schema) -> &'static str {
    let Some(op) = plainest(schema) else { return "no" };
    let is_interpreted = reference::supports(&op).is_ok();
    match Partition::from_op(op) {
        Ok(partition) if partition.is_supported() => "compiled",
        _ if is_interpreted => "reference",
        _ => "no",
    }
}

/// An op of as few ports as its checks let through.
fn plainest(schema: &Schema) -> Option<Op> {
    let counts = |count: Count, ports: &[Port]| {
        let least = (0..).find(|&ports| count.allows(ports)).unwrap_or(0);
        (least..=ports.len().max(least)).filter(move |&ports| count.allows(ports))
    };
    let ports = counts(schema.input_count, schema.inputs)
        .flat_map(|inputs| counts(schema.output_count, schema.outputs).map(move |outputs| [inputs, outputs]));
    // The type of the first input, and that of the ports of other type variables.
    let types =
        || DataType::WHOLE.iter().flat_map(|&first| DataType::WHOLE.iter().map(move |&other| [first, other]));
    ports
        .flat_map(|ports| types().map(move |types| (ports, types)))
        .map(|(ports, types)| sample(schema, ports, types))
        .find(|op| Partition::from_op(op.clone()).is_ok())
}

/// An op of so many inputs and outputs; a port that cannot have the given type has its first possible one.
fn sample(schema: &Schema, [inputs, outputs]: [usize; 2], [first, other]: [DataType; 2]) -> Op {
    let first_variable = schema.inputs.first().map(|port| port.type_variable);
    let data_type = |port: &Port| {
        let wanted = if Some(port.type_variable) == first_variable { first } else { other };
        match schema.types.iter().find(|(variable, _)| *variable == port.type_variable) {
            Some((_, allowed)) if !allowed.contains(&wanted) => allowed[0],
            _ => wanted,
        }
    };
    let tensors = |ports: &[Port], count: usize, first_id: usize| -> Vec<LogicalTensor> {
        let port = |index: usize| &ports[index.min(ports.len() - 1)];
        (0..count).map(|index| LogicalTensor::unknown(first_id + index, data_type(port(index)))).collect()
    };
    let mut op = Op::new(0, schema.kind).inputs_from(tensors(schema.inputs, inputs, 0));
    for output in tensors(schema.outputs, outputs, inputs) {
        op = op.output(output);
    }
    // One of `sizes` and `scales` must be given, which is a check of the row and no attribute's own.
    let is_one_of_two = |row: &AttrRow| row.attr == Attr::Sizes;
    for row in schema.attributes.iter().filter(|row| row.required || is_one_of_two(row)) {
        op = op.attr(row.attr, sample_value(row));
    }
    op
}

/// Some value that a required attribute may have.
fn sample_value(row: &AttrRow) -> AttrValue {
    match row.value_type {
        AttrType::Bool => true.into(),
        AttrType::S64 => 0i64.into(),
        AttrType::F32 => 1f32.into(),
        AttrType::String => row.allowed.first().copied().unwrap_or("").into(),
        AttrType::S64s => vec![1i64].into(),
        AttrType::F32s => vec![1f32].into(),
    }
}
