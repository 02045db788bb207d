//! The builder: a method for each kind, types and shapes that follow, errors that name values.

use std::collections::BTreeMap;

use crate::common::{Golden, report};
use sterna::{
    AttrRow, Causal, Count, DataType, Engine, Error, GraphBuilder, GraphValue, OpKind, OpOptions, Result,
    Schema, Session, SessionFault,
};

/// A row of the table of methods: the method, the kind, operands, attributes, and the documentation.
#[derive(Debug, Default)]
struct MethodRow {
    name: String,
    operands: Vec<String>,
    params: Vec<String>,
    doc: String,
    outputs: usize,
}

/// The rows of the source, by kind.
fn method_rows() -> BTreeMap<String, MethodRow> {
    let source = Golden::at("src/graph/builder/kinds.rs").text();
    let (_, table) = source.split_once("\nplain! {\n").unwrap();
    let mut rows = BTreeMap::new();
    let (mut doc, mut row) = (String::new(), String::new());
    for line in table.lines() {
        match line.trim().strip_prefix("/// ") {
            Some(text) => doc += &format!("{text} "),
            None => row += &format!("{} ", line.trim()),
        }
        if !row.trim_end().ends_with(';') {
            if row.contains('{') || row.contains('}') {
                row.clear();
            }
            continue;
        }
        let (names, rest) = row.split_once(": ").unwrap();
        let (kind, rest) = rest.split_once('(').unwrap();
        let (operands, rest) = rest.split_once(')').unwrap();
        let (params, rest) = rest.split_once('[').unwrap().1.rsplit_once(']').unwrap();
        let listed = |list: &str, separator: &str| -> Vec<String> {
            let parts = list.split(separator).map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| part.split(':').next().unwrap().to_owned()).collect()
        };
        let outputs =
            rest.split_once("-> ").map_or(1, |(_, count)| count.trim_end_matches("; ").parse().unwrap());
        let name = names.split(" / ").next().unwrap().trim().to_owned();
        let doc = std::mem::take(&mut doc).trim().to_owned();
        let (operands, params) = (listed(operands, ","), listed(params, ", "));
        rows.insert(kind.trim().to_owned(), MethodRow { name, operands, params, doc, outputs });
        row.clear();
    }
    rows
}

/// The first paragraph of what the page of ops says of each kind, or those of its forms.
fn page() -> BTreeMap<String, String> {
    let page = Golden::at("docs/ops.md").text();
    let section = |text: &str| {
        let (kind, rest) = text.split_once("\n\n")?;
        let paragraphs: Vec<String> = rest
            .split("\n\n")
            .take_while(|part| !part.starts_with("- "))
            .map(|p| p.replace('\n', " "))
            .collect();
        let forms: Vec<&str> =
            paragraphs.iter().map(String::as_str).filter(|p| p.starts_with("With")).collect();
        let first = paragraphs.first()?;
        let doc = if first.starts_with("With ") { forms.join(" ") } else { first.clone() };
        Some((kind.to_owned(), doc))
    };
    page.split("\n## ").skip(1).filter_map(section).collect()
}

fn least(count: Count) -> usize {
    match count {
        Count::OneOf(counts) => counts.iter().copied().min().unwrap(),
        Count::Between(least, _) => least,
    }
}

#[test]
fn every_kind_has_a_method_as_its_schema_says() {
    let (rows, page) = (method_rows(), page());
    let others = [OpKind::Concat, OpKind::End, OpKind::Wildcard];
    let mut faults = Vec::new();
    for schema in Schema::all().iter().filter(|schema| !others.contains(&schema.kind)) {
        let kind = schema.kind;
        let Some(row) = rows.get(kind.name()) else {
            faults.push(format!("{kind} has no method"));
            continue;
        };
        let letters = |text: &str| text.replace('_', "").to_lowercase();
        if letters(&row.name) != letters(kind.name().trim_start_matches("Static")) {
            faults.push(format!("{kind}: the method is called {}", row.name));
        }
        let names: Vec<String> = schema.inputs[..least(schema.input_count)]
            .iter()
            .map(|port| port.name.replace('/', "_or_").replace("else", "else_"))
            .collect();
        if row.operands != names {
            faults.push(format!("{kind}: operands {:?}, not {names:?}", row.operands));
        }
        let is_required = |attr: &&AttrRow| attr.required && attr.attr.name() != "special_zero";
        let required = schema.attributes.iter().filter(is_required).map(|row| row.attr.name());
        for attr in required {
            if !row.params.iter().any(|param| param == attr) {
                faults.push(format!("{kind}: {attr} is required"));
            }
        }
        let known = |param: &String| {
            param == "data_type" || schema.attributes.iter().any(|row| row.attr.name() == param)
        };
        faults
            .extend(row.params.iter().filter(|param| !known(param)).map(|param| format!("{kind}: {param}")));
        if row.outputs != least(schema.output_count) {
            faults.push(format!("{kind}: {} outputs", row.outputs));
        }
        if let Some(doc) = page.get(kind.name()).filter(|&doc| *doc != row.doc) {
            faults.push(format!("{kind}: the page says {doc:?}, the method {:?}", row.doc));
        }
    }
    assert_eq!(rows.len() + others.len(), OpKind::ALL.len());
    report(&faults);
}

type Call = for<'g> fn(&'g GraphBuilder, [GraphValue<'g>; 3]) -> Result<GraphValue<'g>>;

#[test]
fn types_and_dims_follow() {
    let rows: &[(&str, Call, &str)] = &[
        ("open rows times a matrix", |g, [x, _, w]| g.matmul(x, w), "f32 [None, Some(5)]"),
        ("a bias", |g, [x, _, w]| g.matmul_with(x, w, &[], OpOptions::new()), "f32 [None, Some(5)]"),
        ("a comparison", |g, [x, y, _]| g.less(x, y), "boolean [None, Some(4)]"),
        ("a cast", |g, [x, ..]| g.cast(x, DataType::S32), "s32 [None, Some(4)]"),
        ("a number", |_, [x, ..]| (x * 2.0).and_then(|x| 1.0 - x).and_then(|x| -x), "f32 [None, Some(4)]"),
        ("a reshape", |g, [x, ..]| g.reshape(x, &[-1, 2, 2]), "f32 [None, Some(2), Some(2)]"),
        ("a transpose", |g, [x, ..]| g.transpose(x, &[1, 0]), "f32 [Some(4), None]"),
        ("a slice of an open dim", |g, [x, ..]| g.slice(x, &[0], &[3]), "f32 [None, Some(4)]"),
        (
            "a slice",
            |g, [x, ..]| g.slice_with(x, &[1], &[3], OpOptions::new().axes(&[1])),
            "f32 [None, Some(2)]",
        ),
        ("places", |g, [x, ..]| g.argmax(x, -1), "s64 [None]"),
        (
            "places of another type",
            |g, [x, ..]| g.argmax_with(x, -1, OpOptions::new().data_type(DataType::S32)),
            "s32 [None]",
        ),
        ("the largest", |g, [x, ..]| Ok(g.topk(x, 2)?[1]), "s64 [None, Some(2)]"),
        ("two one behind the other", |g, [x, y, _]| g.concat(&[x, y], 1), "f32 [None, Some(8)]"),
        ("a sum", |g, [x, ..]| g.reduce_sum(x, &[1]), "f32 [None]"),
        ("a norm", |g, [x, ..]| g.layer_norm(x), "f32 [None, Some(4)]"),
        (
            "statistics",
            |g, [x, ..]| Ok(g.op(OpKind::SoftMax, &[x], OpOptions::new().axis(-1), 2)?[1]),
            "f32 [None, Some(1)]",
        ),
        ("a number everywhere", |g, _| g.fill(DataType::Bf16, &[2, 3], 1.0), "bf16 [Some(2), Some(3)]"),
        ("a select", |g, [x, y, _]| g.select(g.greater(x, y)?, x, y), "f32 [None, Some(4)]"),
    ];
    let mut faults = Vec::new();
    for (what, call, expected) in rows {
        let g = GraphBuilder::new();
        let value = |name, dims: &[Option<i64>]| g.input(name, DataType::F32, dims).unwrap();
        let values =
            [value("x", &[None, Some(4)]), value("y", &[None, Some(4)]), value("w", &[Some(4), Some(5)])];
        let given = match call(&g, values) {
            Ok(value) => format!("{} {:?}", value.data_type(), value.dims().unwrap_or_default()),
            Err(error) => error.to_string(),
        };
        if given != *expected {
            faults.push(format!("{what}: {given}, not {expected}"));
        }
    }
    report(&faults);
}

#[test]
fn errors_name_the_values_of_their_line() {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[Some(2), Some(3)]).unwrap();
    let flags = g.input("flags", DataType::Boolean, &[None]).unwrap();
    let other = GraphBuilder::new();
    let foreign = other.input("z", DataType::F32, &[Some(1)]).unwrap();
    let y = g.relu(x).unwrap().named("hidden");
    let rows: &[(&str, Result<GraphValue<'_>>, &[&str])] = &[
        ("shapes", g.matmul(x, y), &["MatMul(`x` f32 {2,3}, `hidden` f32 {2,3}): "]),
        ("a type", g.exp(flags), &["Exp(`flags` boolean {?}): ", "boolean"]),
        ("an attribute", g.matmul_with(x, x, &[], OpOptions::new().axis(1)), &["MatMul(", "axis"]),
        ("an axis", g.softmax(x, 2), &["SoftMax(`x` f32 {2,3}): "]),
        ("a value of another builder", g.add(x, foreign), &["belongs to another builder"]),
        ("too many operands", g.matmul_with(x, x, &[x, x], OpOptions::new()), &["4"]),
    ];
    let mut faults = Vec::new();
    for (what, result, parts) in rows {
        let text = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        faults.extend(
            parts
                .iter()
                .filter(|part| !text.contains(**part))
                .map(|part| format!("{what}: {part} in {text:?}")),
        );
    }
    report(&faults);
    assert!(matches!(g.input("x", DataType::F32, &[]), Err(Error::Session(SessionFault::SameName { .. }))));
    // The second op of attention does not fit.
    let z = g.input("z", DataType::F32, &[Some(7), Some(3)]).unwrap();
    let refused = g.attention(x, x, z, |attention| attention);
    assert!(refused.is_err());
    g.output("y", y).unwrap();
    assert!(matches!(g.output("y", x), Err(Error::Session(SessionFault::SameName { .. }))));
    assert!(matches!(g.value(77), Err(Error::Session(SessionFault::NoSource(_)))));
    // Refused ops have left nothing behind.
    assert_eq!(g.build().unwrap().graph().ops().len(), 1);
}

#[test]
fn a_model_goes_on_in_another_builder() -> Result<()> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None])?;
    let w = g.constant("w", &[1], &[3.0f32])?;
    let y = g.multiply(x, w)?;
    g.output("y", y)?;
    let id = y.id();
    let more = GraphBuilder::from_model(g.build()?);
    let y = more.value(id)?;
    more.output("z", (y + 1.0)?)?;
    let session = Session::new(more.build()?, &Engine::new())?;
    let outputs = session.run(&[("x", &[1.0f32, 2.0])])?;
    assert_eq!(outputs["y"].as_slice::<f32>()?, [3.0, 6.0]);
    assert_eq!(outputs["z"].as_slice::<f32>()?, [4.0, 7.0]);
    Ok(())
}

#[test]
fn attention_is_one_partition_with_its_options() -> Result<()> {
    let g = GraphBuilder::new();
    let heads = |name| g.input(name, DataType::F32, &[Some(2), None, Some(8)]);
    let (q, k, v) = (heads("q")?, heads("k")?, heads("v")?);
    let y = g.attention(q, k, v, |attention| attention.causal(Causal::TopLeft))?;
    g.output("y", g.relu(y)?)?;
    let session = Session::new(g.build()?, &Engine::new())?;
    for length in [1usize, 5, 70] {
        let values: Vec<f32> = (0..2 * length * 8).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
        let dims = [2, length as i64, 8];
        let view = sterna::TensorView::new(&values, &dims);
        let outputs = session.run(&[("q", &view), ("k", &view), ("v", &view)])?;
        // The first query sees the first key alone.
        let expected: Vec<f32> = values[..8].iter().map(|x| x.max(0.0)).collect();
        assert_eq!(outputs["y"].as_slice::<f32>()?[..8], expected, "{length}");
        assert_eq!(session.run_steps().1, 0);
    }
    Ok(())
}
