//! Graphs and partitions in notebooks: tables that take the colours of the page, light or dark.

use std::collections::BTreeMap;
use std::fmt::Write;

use sterna::{LogicalTensor, Op, Partition, TensorId};

/// The names of tensors that have one.
type Names = BTreeMap<TensorId, String>;

const STYLE: &str = "<style>\
    .sterna{border-collapse:collapse;font:13px/1.4 ui-monospace,monospace;color:inherit}\
    .sterna th,.sterna td{text-align:left;padding:2px 10px;\
    border:1px solid color-mix(in srgb,currentColor 25%,transparent)}\
    .sterna .part td{border-top:2px solid currentColor}\
    .sterna .none td:first-child{background:repeating-linear-gradient(45deg,transparent 0 4px,\
    color-mix(in srgb,currentColor 18%,transparent) 4px 6px)}\
    .sterna-plan{font:12px/1.4 ui-monospace,monospace;color:inherit;background:none;white-space:pre}\
    </style>";

/// Text that stands for itself.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A tensor by its name or number, with type and shape.
fn tensor(desc: &LogicalTensor, names: &Names) -> String {
    let name = names.get(&desc.id()).cloned().unwrap_or_else(|| format!("%{}", desc.id()));
    let dims = match desc.partial_dims() {
        None => "?".to_owned(),
        Some(dims) => {
            let dim = |dim: &Option<i64>| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string());
            dims.iter().map(dim).collect::<Vec<_>>().join("×")
        }
    };
    format!("{name} {}[{dims}]", desc.data_type())
}

fn row(text: &mut String, partition: &Partition, op: &Op, is_first: bool, names: &Names) {
    let tensors = |descs: &[LogicalTensor]| {
        escaped(&descs.iter().map(|desc| tensor(desc, names)).collect::<Vec<_>>().join(", "))
    };
    let class = match (is_first, partition.is_supported()) {
        (true, true) => " class=\"part\"",
        (true, false) => " class=\"part none\"",
        (false, true) => "",
        (false, false) => " class=\"none\"",
    };
    let number = if is_first { partition.id().to_string() } else { String::new() };
    let accuracy = partition.accuracy().map_or("not supported", |accuracy| accuracy.name());
    let accuracy = if is_first { accuracy } else { "" };
    let attributes = op.attrs().map(|(name, value)| format!("{name}={}", attribute(value)));
    let attributes = escaped(&attributes.collect::<Vec<_>>().join(" "));
    let (kind, inputs, outputs) = (op.kind(), tensors(op.inputs()), tensors(op.outputs()));
    // Text grows without fail.
    let _ = write!(
        text,
        "<tr{class}><td>{number}</td><td>{accuracy}</td><td>{kind}</td><td>{inputs}</td>\
         <td>{outputs}</td><td>{attributes}</td></tr>"
    );
}

fn attribute(value: &sterna::AttrValue) -> String {
    use sterna::AttrValue;
    match value {
        AttrValue::Bool(value) => value.to_string(),
        AttrValue::S64(value) => value.to_string(),
        AttrValue::F32(value) => value.to_string(),
        AttrValue::String(value) => value.clone(),
        AttrValue::S64s(value) => format!("{value:?}"),
        AttrValue::F32s(value) => format!("{value:?}"),
        _ => String::new(),
    }
}

fn table(partitions: &[Partition], names: &Names) -> String {
    let mut text = String::from(
        "<table class=\"sterna\"><tr><th>partition</th><th>accuracy</th><th>op</th><th>inputs</th>\
         <th>outputs</th><th>attributes</th></tr>",
    );
    for partition in partitions {
        for (index, op) in partition.ops().iter().enumerate() {
            row(&mut text, partition, op, index == 0, names);
        }
    }
    text += "</table>";
    text
}

/// The ops of a graph by partitions.
pub(crate) fn of_graph(partitions: &[Partition], names: &Names) -> String {
    format!("{STYLE}{}", table(partitions, names))
}

/// The ops of a partition, and its plan or why there is none.
pub(crate) fn of_partition(partition: &Partition, plan: Option<&str>, names: &Names) -> String {
    let table = table(std::slice::from_ref(partition), names);
    let reason = partition.unsupported_reason();
    let below = plan.or(reason.as_deref()).unwrap_or("Shapes are open: compile it for some to see a plan.");
    format!("{STYLE}{table}<pre class=\"sterna-plan\">{}</pre>", escaped(below))
}

/// A plan.
pub(crate) fn of_plan(plan: &str) -> String {
    format!("{STYLE}<pre class=\"sterna-plan\">{}</pre>", escaped(plan))
}
