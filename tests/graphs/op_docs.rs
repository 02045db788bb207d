//! `docs/ops.md`, written from the schema, from the definitions of the functions in the source, and from what
//! the interpreter gives.
//!
//! With `STERNA_REWRITE` set in the environment, it is written anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common::{Golden, plain_op, report};
use crate::item_docs;
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrDefault, AttrRow, AttrType, Count, DataType, LogicalTensor, Op, OpKind, Partition, Port, Schema,
};

use DataType as D;
use OpKind as K;

/// Kinds that the interpreter runs, which the page describes.
fn described() -> BTreeMap<&'static str, OpKind> {
    let kinds = OpKind::ALL.iter().filter(|&&kind| reference::supports(&plain_op(kind)).is_ok());
    kinds.map(|kind| (kind.name(), *kind)).collect()
}

/// The documentation of the interpreter's functions of whole tensors, by kind.
fn tensor_docs() -> BTreeMap<String, String> {
    let rows = read("src/reference/mod.rs");
    let rows = rows.lines().filter_map(|line| line.trim().strip_prefix("(K::")?.strip_suffix("),"));
    let doc = |(module, function): (&str, &str)| {
        let source = read(&format!("src/reference/{module}.rs"));
        let (before, _) = source.split_once(&format!("pub(super) fn {function}(")).unwrap();
        let lines: Vec<&str> = before.lines().rev().map_while(|line| line.strip_prefix("///")).collect();
        let paragraphs = lines
            .split(|line| line.is_empty())
            .map(|lines| lines.iter().rev().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
        paragraphs.collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n\n")
    };
    let row = |row: &str| {
        let (kind, function) = row.split_once(", ").unwrap();
        (kind.to_owned(), doc(function.split_once("::").unwrap()))
    };
    rows.map(row).collect()
}

/// The documentation of the variants of the enums in a source file, by `Enum::Variant`.
fn variant_docs(source: &str) -> BTreeMap<String, String> {
    let mut docs = BTreeMap::new();
    let (mut name, mut doc) = (String::new(), String::new());
    for line in source.lines() {
        let text = line.trim();
        if let Some(text) = text.strip_prefix("///") {
            doc += text;
        } else if let Some((_, rest)) = text.split_once("enum ").filter(|(head, _)| head.starts_with("pub")) {
            name = rest.trim_end_matches(" {").to_owned();
            doc.clear();
        } else if line == "}" {
            name.clear();
        } else if !name.is_empty() && line.starts_with("    ") && !text.starts_with('#') {
            let variant = text.split(['(', ',', ':']).next().unwrap();
            let doc = std::mem::take(&mut doc).trim().to_owned();
            if variant.chars().all(char::is_alphanumeric) {
                docs.insert(format!("{name}::{variant}"), doc);
            }
        } else {
            doc.clear();
        }
    }
    docs
}

/// How the table in `graph/function.rs` maps a kind: the condition on an attribute, the function, its
/// parameters.
pub(crate) struct Mapped {
    condition: &'static str,
    function: String,
    params: Vec<String>,
}

/// The rows of the table, by kind; the text is that of rustfmt.
fn mapped(source: &str) -> BTreeMap<String, Vec<Mapped>> {
    let mut rows: BTreeMap<String, Vec<Mapped>> = BTreeMap::new();
    for line in source.lines().map(str::trim) {
        let Some((left, right)) = line.strip_prefix("K::").and_then(|line| line.split_once(" => ")) else {
            continue;
        };
        let (kind, guard) = left.split_once(" if ").unwrap_or((left, ""));
        let others = rows.contains_key(kind);
        let condition = match (guard, others, kind) {
            ("by_tanh", ..) => "With `mode` = `gelu_tanh`: ",
            ("of_result", ..) => "With `use_dst`: ",
            ("", true, "GELU" | "GELUBackward") => "With `mode` = `gelu_erf`: ",
            ("", true, _) => "Without `use_dst`: ",
            _ => "",
        };
        // The innermost name of a function: `Unary::Clamp` in `F::Unary(Unary::Clamp, …)`, else
        // `Function::Select`.
        let words: Vec<&str> = right.split(|c: char| !c.is_alphanumeric() && c != ':' && c != '_').collect();
        let named = words
            .iter()
            .find(|word| word.contains("::") && !word.starts_with("F::") && !word.starts_with("Attr::"));
        let function = match named {
            Some(name) => (*name).to_owned(),
            None => words
                .iter()
                .find_map(|word| word.strip_prefix("F::"))
                .map(|name| format!("Function::{name}"))
                .unwrap(),
        };
        let params =
            words.iter().filter_map(|word| word.strip_prefix("Attr::")).map(str::to_lowercase).collect();
        rows.entry(kind.to_owned()).or_default().push(Mapped { condition, function, params });
    }
    rows
}

pub(crate) fn read(path: &str) -> String {
    let text = Golden::at(path).text();
    assert!(!text.is_empty(), "{path}");
    text
}

/// The computation of an op, in words and formulas of the source.
fn meaning(kind: &str, rows: &[Mapped], docs: &BTreeMap<String, String>) -> String {
    let sentence = |row: &Mapped| {
        let doc = &docs[&row.function];
        assert!(!doc.is_empty(), "{kind}: {} has no documentation", row.function);
        // A link to another function of the source is that function's name here.
        let doc = doc.replace("[`Unary::GeluTanh`]", "GELU's tanh form").replace("[`Unary::Mish`]", "Mish");
        // Of what the enum says for all that follow, each op says its own part.
        let doc = doc.split(" In this and all that follow").next().unwrap().to_owned();
        let letters = ["p", "q"].iter().zip(&row.params).filter(|(_, attr)| *attr != "value");
        let params: Vec<String> = letters.map(|(letter, attr)| format!("`{letter}` = `{attr}`")).collect();
        match params.as_slice() {
            [] => format!("{}{doc}", row.condition),
            params => format!("{}{doc} Here {}.", row.condition, params.join(", ")),
        }
    };
    rows.iter().map(sentence).collect::<Vec<_>>().join("\n\n")
}

fn types(types: &[DataType]) -> String {
    match types {
        _ if types == D::WHOLE => "every type of whole bytes".into(),
        _ if types == D::NUMERIC => "every numeric type of whole bytes but f8".into(),
        [numeric @ .., D::Boolean] if numeric == D::NUMERIC => {
            "every numeric type of whole bytes but f8, boolean".into()
        }
        _ => types.iter().map(|data_type| data_type.name()).collect::<Vec<_>>().join(", "),
    }
}

/// The types of a row: of all ports if they share one variable or one list, else by variable.
fn types_of(schema: &Schema) -> String {
    match schema.types {
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| other == first) => types(first),
        all => all
            .iter()
            .map(|(variable, list)| format!("{variable}: {}", types(list)))
            .collect::<Vec<_>>()
            .join("; "),
    }
}

fn ports(ports: &[Port]) -> String {
    let port = |port: &Port| {
        let shape_only = if port.shape_only { " (shape-only)" } else { "" };
        format!("`{}` {}{shape_only}", port.name, port.type_variable)
    };
    if ports.is_empty() { "none".into() } else { ports.iter().map(port).collect::<Vec<_>>().join(", ") }
}

/// The ports, and how many of them there may be.
fn optional_ports(all: &[Port], count: Count) -> String {
    match count {
        Count::OneOf([one]) if *one == all.len() => ports(all),
        _ => format!("{} ({count} of them)", ports(all)),
    }
}

/// The type of an attribute's value, and what holds if it is not set.
pub(crate) fn value_of(row: &AttrRow) -> String {
    let need = match row.default {
        Some(AttrDefault::Bool(value)) => format!("default {value}"),
        Some(AttrDefault::S64(value)) => format!("default {value}"),
        Some(AttrDefault::F32(value)) => format!("default {value}"),
        Some(AttrDefault::String(value)) => format!("default `{value}`"),
        Some(AttrDefault::S64s(value)) => format!("default {value:?}"),
        None if row.required => "required".into(),
        None => "optional".into(),
    };
    let allowed: Vec<String> = row.allowed.iter().map(|word| format!("`{word}`")).collect();
    let words = if allowed.is_empty() { String::new() } else { format!(", one of {}", allowed.join(", ")) };
    format!("{}, {need}{words}", row.value_type.name())
}

fn attribute(row: &AttrRow) -> String {
    format!("`{}` {}", row.attr, value_of(row))
}

const EDGES: [f32; 5] = [f32::NEG_INFINITY, -0.0, 0.0, f32::INFINITY, f32::NAN];

fn number(x: f32) -> String {
    match x {
        _ if x.is_nan() => "NaN".into(),
        f32::INFINITY => "∞".into(),
        f32::NEG_INFINITY => "−∞".into(),
        0.0 if x.is_sign_negative() => "−0".into(),
        _ => x.to_string().replace('-', "−"),
    }
}

/// Attributes under which the edges of a kind are shown, each a value of its own.
fn edge_attrs(op: Op, schema: &Schema) -> Op {
    schema.attributes.iter().filter(|row| row.value_type == AttrType::F32).fold(op, |op, row| {
        let value = match row.attr {
            Attr::Min => -1.0,
            Attr::Max => 1.0,
            Attr::Beta if row.default.is_some() => 1.0,
            _ => 0.5,
        };
        op.attr(row.attr, value)
    })
}

/// The interpreter's results at the edges, for a function of one f32 or a gradient of 1.
fn edges(kind: OpKind) -> Option<String> {
    let schema = Schema::of(kind);
    let is_gradient = schema.inputs.get(1).is_some_and(|port| port.name == "diff_dst");
    let is_unary =
        schema.inputs.len() == 1 && !matches!(kind, K::TypeCast | K::Cast | K::GenIndex | K::Identity);
    let on_floats = schema.types.iter().all(|(_, list)| list.contains(&D::F32));
    if !(on_floats && (is_unary || is_gradient)) {
        return None;
    }
    let inputs = (0..schema.inputs.len()).map(|id| LogicalTensor::unknown(id, D::F32));
    let op = Op::new(0, kind).inputs_from(inputs).output(LogicalTensor::unknown(9, D::F32));
    let op = edge_attrs(op, schema);
    let values = [EDGES, [1.0; 5]].map(|numbers| Value::from_slice(&[5], &numbers).unwrap());
    let results: Vec<f32> =
        reference::run(&op, &values[..schema.inputs.len()]).unwrap()[0].elements().unwrap();
    let attrs = op.attrs().filter(|(attr, _)| schema.attributes.iter().any(|row| row.attr == *attr));
    let given: Vec<String> = attrs.map(|(attr, value)| format!("`{attr}` = {value}")).collect();
    let mut under: Vec<String> = if is_gradient { vec!["a gradient of 1".into()] } else { Vec::new() };
    under.extend(given);
    let under = if under.is_empty() { String::new() } else { format!(", for {}", under.join(", ")) };
    let pairs = EDGES.iter().zip(&results).map(|(x, y)| format!("{} → {}", number(*x), number(*y)));
    Some(format!("{}{under}", pairs.collect::<Vec<_>>().join(", ")))
}

/// The greatest error found of each function: by function, then by level.
fn measured(text: &str) -> BTreeMap<&str, Vec<(&str, f64)>> {
    let mut all = BTreeMap::<&str, Vec<(&str, f64)>>::new();
    for line in text.lines() {
        let [function, level, ulps] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        all.entry(function).or_default().push((level, ulps.parse().unwrap()));
    }
    all
}

/// How far a kernel may be off, and how far the one was that is off most.
fn accuracy(kind: OpKind, rows: &[Mapped], measured: &BTreeMap<&str, Vec<(&str, f64)>>) -> String {
    let schema = Schema::of(kind);
    let of_output = |(variable, _): &&(&str, &[DataType])| *variable == schema.outputs[0].type_variable;
    let (_, types) = schema.types.iter().find(of_output).expect("pointwise ops list their types");
    let moves_bits = *types == D::WHOLE || matches!(kind, K::Abs | K::Negative);
    match reference::ulps(&plain_op(kind)) {
        0 if moves_bits || !types.contains(&D::F32) => "exact".into(),
        0 => "correctly rounded".into(),
        ulps => {
            let found = rows.iter().flat_map(|row| &measured[row.function.as_str()]);
            let most = found.map(|(_, ulps)| *ulps).fold(0.0, f64::max);
            format!("at most {ulps} ulp of f32; {most:.2} is the most that was found")
        }
    }
}

/// The table of errors found at each level.
fn table_of_measured(measured: &BTreeMap<&str, Vec<(&str, f64)>>) -> String {
    let levels: Vec<&str> = measured.values().next().unwrap().iter().map(|(level, _)| *level).collect();
    let mut table = format!("| function | {} |\n|---|{}\n", levels.join(" | "), "---|".repeat(levels.len()));
    for (function, found) in measured {
        let (_, name) = function.split_once("::").unwrap();
        assert!(found.iter().map(|(level, _)| level).eq(&levels), "{function}");
        let found: Vec<String> = found.iter().map(|(_, ulps)| format!("{ulps:.2}")).collect();
        let _ = writeln!(table, "| {name} | {} |", found.join(" | "));
    }
    table
}

const HEAD: &str = "\
# What ops compute

A test writes this page from the schema, from the definitions in the source and from results of the reference interpreter;
`STERNA_REWRITE=1 cargo test --test graphs op_docs` writes it anew. The documentation of `OpKind`, `Attr` and `DataType` in Rust
says the same of each. A table of [who runs which](#who-runs-which) follows the rules that hold for all.

`x`, `y` are the inputs in the order of the ports, after broadcasting; `p`, `q` are attributes. Formulas are those of
oneDNN Graph's op specification or, if the specification gives none, of its primitives and their reference code. They hold
as written:

- Arithmetic on f32 is IEEE 754, rounded to nearest, ties to even, denormals kept. f16 and bf16 are computed in f32 and
  rounded to the type of the result at every op, fused or not. f32 mixes with f16 and with bf16.
- A NaN out of arithmetic has positive sign and no payload. A condition is false for NaN; 0 · ∞ and ∞ − ∞ are NaN.
- f64, s32 and s64 do not mix with other types. f64 is computed in f64, with exponential, logarithm and tangent of the C
  library. Arithmetic on s32 and s64 is exact and wraps around.
- Numeric types of whole bytes but f8 are f64, f32, f16, bf16 and the integers of 8 to 64 bits. Only ops that name the f8
  types take them as numbers.
- Booleans are bytes, true if not 0; a result is 0 or 1.
- Two inputs broadcast as `auto_broadcast` says. The inputs of a backward form have one shape. A bias follows the channels
  of `data_format`; so does a slope of rank 1, unless `per_channel_broadcast` is false or the slope is a single number. Any
  other slope is aligned on the right.
- A negative attribute that names a dim counts from the end.

Exact sums define the ops that sum; the interpreter sums in f64, and rounds to f32 and from f32 to the type of the result.
Reductions take `axes` as an attribute or as an input, each dim once. Without axes the elements do not change; with
`keep_dims` each reduced dim becomes a dim of 1. A dim of 0 is never an error: a sum without terms is 0, and a result without
elements is empty.

A product, pointwise ops, SoftMax and a second product run as one partition keep bounds instead of bits. `reference::enclose`
states the bounds, and departs from the ops run one by one: **a masked key does not exist**. A key is masked for a query if
its share is 0, where shares whose exponential is 0 in f32 count as 0. Such a key adds nothing to the second product, even if
its value is NaN or ∞; one by one, 0 · NaN is NaN. A −∞ that does not depend on the first product, added to a score before
the SoftMax, makes the score −∞, even a score of NaN or ∞. A NaN or ∞ still reaches the queries that do not mask its key.
The gradients of all this, with SoftMaxBackward or with ReduceSum and an Exp in place of the SoftMax, are one partition as
well: what is multiplied by a weight of 0 is 0 in every gradient. A plan with a fallback of attention or of its gradients
runs the ops one by one; `PlanSummary::masked_keys` tells it, and `reference::enclose_each` is given it.

Kinds from 4096 (0x1000) on are Sterna's extensions: oneDNN knows neither them nor the attributes `value`, `starts`, `ends`
and `steps`, and its reader of graphs refuses them. Pointwise ops compute each element of the result from one element of
each input. Their accuracy is the largest distance of a compiled op from the formula, in units in the last place of f32,
before the result is rounded to its type; 16-bit results are then one of the nearest two.
";

const RUNS: &str = "
## Who runs which

An op that partitions do not run, because of its kind or of its types, comes back in a partition that says so. The reference
interpreter is there for checks, not for speed.

";

const MEASURED: &str = "
## Measured accuracy

The largest error found, in units in the last place of f32, against f64. Forward forms are tried on all 2³² numbers, those
with a parameter only for its first value. Their other values, and backward forms with two gradients, are tried on all
numbers from 2⁻¹³ to 2⁷, on their negatives and on every 61st of all numbers. Correct rounding is 0.50. All other functions
are correctly rounded or exact.

`STERNA_EVERY_NUMBER=1 cargo test --release --lib functions_stay` measures anew, in about half an hour of processor time.

";

/// The facts on a kind, of which its section of the page and its documentation in Rust are made.
pub(crate) struct Facts {
    /// The computation; `None` of a kind that nothing here computes.
    pub(crate) meaning: Option<String>,
    /// True if each element of the result is computed from one element of each input.
    pub(crate) is_pointwise: bool,
    /// Ports with their variables of types.
    pub(crate) ports: String,
    /// The other items, each with its label.
    pub(crate) items: Vec<(&'static str, String)>,
}

/// The texts of the source from which facts come.
pub(crate) struct Definitions {
    docs: BTreeMap<String, String>,
    rows: BTreeMap<String, Vec<Mapped>>,
    row_docs: BTreeMap<String, String>,
    tensors: BTreeMap<String, String>,
}

impl Definitions {
    pub(crate) fn read() -> Self {
        let functions = [read("src/types/function.rs"), read("src/graph/function.rs")];
        Self {
            docs: functions.iter().flat_map(|source| variant_docs(source)).collect(),
            rows: mapped(&functions[1]),
            row_docs: variant_docs(&read("src/graph/row.rs")),
            tensors: tensor_docs(),
        }
    }

    fn own_rows(&self, kind: OpKind) -> &[Mapped] {
        self.rows.get(kind.name()).map_or(&[][..], Vec::as_slice)
    }

    fn rule(&self, variant: &str) -> String {
        let doc = self.row_docs.get(variant).map_or("", String::as_str);
        assert!(!doc.is_empty(), "{variant} has no documentation");
        doc.to_owned()
    }

    /// The facts on a kind, which the interpreter may run or not.
    pub(crate) fn facts(&self, kind: OpKind) -> Facts {
        let (schema, name) = (Schema::of(kind), kind.name());
        let tensor = self.tensors.get(name);
        let of_elements = || meaning(name, self.own_rows(kind), &self.docs);
        let meaning = tensor.cloned().unwrap_or_else(of_elements);
        let types = if schema.types.is_empty() { "any".into() } else { types_of(schema) };
        let mut items = vec![("Types", format!("{types}."))];
        if !schema.attributes.is_empty() {
            let attributes: Vec<String> = schema.attributes.iter().map(attribute).collect();
            items.push(("Attributes", format!("{}.", attributes.join("; "))));
        }
        let rule = format!("ShapeRule::{:?}", schema.shape_rule);
        let is_inferred = !meaning.is_empty() || self.row_docs.get(&rule).is_some_and(|doc| !doc.is_empty());
        let given = || "The shapes of outputs are those that the graph gives.".to_owned();
        items.push(("Shapes", if is_inferred { self.rule(&rule) } else { given() }));
        if !schema.checks.is_empty() {
            let checks = schema.checks.iter().map(|check| self.rule(&format!("Check::{check:?}")));
            items.push(("Checks", checks.collect::<Vec<_>>().join(" ")));
        }
        Facts {
            is_pointwise: tensor.is_none() && !meaning.is_empty(),
            meaning: Some(meaning).filter(|meaning| !meaning.is_empty()),
            ports: format!(
                "inputs: {}; output{}: {}.",
                optional_ports(schema.inputs, schema.input_count),
                if schema.outputs.len() > 1 { "s" } else { "" },
                optional_ports(schema.outputs, schema.output_count)
            ),
            items,
        }
    }
}

fn page() -> String {
    let text = read("tests/data/accuracy.txt");
    let (measured, definitions) = (measured(&text), Definitions::read());
    let mut page = HEAD.to_owned() + RUNS + &table();
    for (name, kind) in described() {
        let facts = definitions.facts(kind);
        let meaning = facts.meaning.unwrap_or_else(|| panic!("{name} has no documentation"));
        let _ = writeln!(page, "\n## {name}\n\n{meaning}\n\n- Code {}; {}", kind.code(), facts.ports);
        for (label, item) in &facts.items {
            let _ = writeln!(page, "- {label}: {item}");
        }
        if !facts.is_pointwise {
            continue;
        }
        if let Some(edges) = edges(kind) {
            let _ = writeln!(page, "- Edges: {edges}.");
        }
        let accuracy = accuracy(kind, definitions.own_rows(kind), &measured);
        let _ = writeln!(page, "- Accuracy: {accuracy}.");
    }
    page + &item_docs::tables() + MEASURED + &table_of_measured(&measured)
}

#[test]
fn the_page_of_ops_is_that_of_the_source() {
    report(&Golden::at("docs/ops.md").differs_from(&page()).into_iter().collect::<Vec<_>>());
}

#[test]
fn every_function_of_the_source_is_on_the_page() {
    let (functions, table) = (read("src/types/function.rs"), read("src/graph/function.rs"));
    let used: Vec<String> = mapped(&table).into_values().flatten().map(|row| row.function).collect();
    let unused: Vec<String> =
        variant_docs(&functions).into_keys().filter(|name| !used.contains(name)).collect();
    report(&unused);
    assert!(used.len() > 60, "{}", used.len());
}

const FLOATS_INTEGERS: [DataType; 6] = [D::F32, D::Bf16, D::F16, D::F64, D::S32, D::S64];

/// The op of a kind with every port of type s32.
fn on_s32(kind: OpKind) -> Op {
    let inputs = (0..Schema::of(kind).inputs.len()).map(|id| LogicalTensor::unknown(id, D::S32));
    Op::new(0, kind).inputs_from(inputs).output(LogicalTensor::unknown(9, D::S32))
}

/// Who runs an op.
fn runs(op: Op) -> Option<&'static str> {
    let is_interpreted = reference::supports(&op).is_ok();
    match Partition::from_op(op) {
        Ok(partition) if partition.is_supported() => Some("partitions"),
        _ => is_interpreted.then_some("the interpreter"),
    }
}

/// Kinds of equal types, and who runs them, in one row.
fn table() -> String {
    let mut groups: Vec<((String, &str), Vec<&str>)> = Vec::new();
    let mut rest = 0;
    let mut of_integers = Vec::new();
    for &kind in OpKind::ALL {
        let runs = runs(plain_op(kind));
        let Some(runs) = runs else {
            rest += 1;
            continue;
        };
        let schema = Schema::of(kind);
        let mut key = (types_of(schema), runs);
        // An op that runs on numbers alone says so; integers have a row of their own.
        if key.0 == types(&FLOATS_INTEGERS) && self::runs(on_s32(kind)) != Some(runs) {
            of_integers.push(kind.name());
            key.0 = types(&FLOATS_INTEGERS[..4]);
        }
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, kinds)) => kinds.push(kind.name()),
            None => groups.push((key, vec![kind.name()])),
        }
    }
    let mut text = String::from("| kinds | types | run by |\n|---|---|---|\n");
    let key = (types(&FLOATS_INTEGERS[4..]), "the interpreter");
    match groups.iter_mut().find(|(other, _)| *other == key) {
        Some((_, kinds)) => kinds.extend(of_integers),
        None => groups.push((key, of_integers)),
    }
    groups.retain(|(_, kinds)| !kinds.is_empty());
    for ((types, runs), kinds) in groups {
        let _ = writeln!(text, "| {} | {types} | {runs} |", kinds.join(", "));
    }
    let _ = writeln!(
        text,
        "| the other {rest} kinds of oneDNN Graph | | nobody: they are described and checked |"
    );
    text
}
