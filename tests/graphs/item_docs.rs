//! Promise: op kinds, attributes and data types say in Rust what `docs/ops.md` says of them.
//!
//! The macros in `src/types/op_docs/` are written from what the page is written from; sentences on
//! attributes, data types and kinds that nothing here computes stand in the rows of their lists, which the
//! page repeats. With `STERNA_REWRITE` set in the environment, macros and page are written anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common::{Golden, report};
use crate::op_docs::{Definitions, Facts, read, value_of};
use sterna::{Attr, DataType, OpKind, Schema};

/// The widest line of a generated source.
const WIDTH: usize = 110;

/// The files with the lists whose variants have numbers and names.
const LISTS: [&str; 5] = [
    "src/types/kind.rs",
    "src/types/dtype.rs",
    "src/types/fallback.rs",
    "src/types/rewrite.rs",
    "src/partition/fusion.rs",
];

/// A variant of a coded list: the list, the variant, and the documentation in its row.
struct Variant {
    list: String,
    name: String,
    doc: String,
    aliases: Vec<String>,
}

/// True of a row of a coded list; other macros take a sentence behind the name.
fn is_row(line: &str) -> bool {
    line.contains(" => \"") && line.ends_with("\",")
}

/// The rows of the coded lists in a source: `Name = code => "name",` below documentation and aliases.
fn variants(source: &str) -> Vec<Variant> {
    let mut found = Vec::new();
    let (mut list, mut doc, mut aliases) = (String::new(), Vec::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub enum ") {
            // Other enums have no sentence behind their name.
            list = rest.split_once(": \"").map_or("", |(name, _)| name).to_owned();
            doc.clear();
        } else if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim().to_owned());
        } else if let Some(words) = line.strip_prefix("#[doc(alias(") {
            aliases.extend(
                words.trim_end_matches("))]").split(", ").map(|word| word.trim_matches('"').to_owned()),
            );
        } else if line.starts_with("#[") {
            // An attribute between a row and its documentation.
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| is_row(line)) {
            if !list.is_empty() && name.chars().all(char::is_alphanumeric) {
                let (doc, aliases) = (doc.join(" "), std::mem::take(&mut aliases));
                found.push(Variant { list: list.clone(), name: name.to_owned(), doc, aliases });
            }
            doc.clear();
        } else {
            doc.clear();
            aliases.clear();
        }
    }
    found
}

/// The documentation in the rows of a list, by variant.
fn sentences(path: &str, list: &str) -> BTreeMap<String, String> {
    let rows = variants(&read(path)).into_iter().filter(|variant| variant.list == list);
    rows.map(|variant| (variant.name, variant.doc)).collect()
}

/// A text in lines of at most [`WIDTH`] characters; those behind the first one begin with spaces.
fn filled(text: &str, indent: usize) -> String {
    let mut filled = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width + 1 + length > WIDTH {
            let _ = write!(filled, "\n{}", " ".repeat(indent));
            width = indent;
        } else if width > 0 {
            filled.push(' ');
            width += 1;
        }
        filled += word;
        width += length;
    }
    filled
}

/// A text without what Markdown of rustdoc would take for a link: brackets outside of code.
fn without_links(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 0 { part.replace('[', "\\[") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}

/// The documentation of a kind in Rust, behind the sentence of its row if it has one.
fn doc_of(facts: &Facts) -> String {
    let computed = "Nothing here computes it: graphs with it are described, checked and cut around it.";
    let meaning = facts.meaning.as_deref().unwrap_or(computed);
    let paragraphs = meaning.split("\n\n").map(|paragraph| filled(&without_links(paragraph), 0));
    let mut doc = format!("\n{}\n\n", paragraphs.collect::<Vec<_>>().join("\n\n"));
    let mut item = |text: String| {
        let _ = writeln!(doc, "{}", filled(&without_links(&text), 2));
    };
    let (first, rest) = facts.ports.split_at(1);
    item(format!("- {}{rest}", first.to_uppercase()));
    facts.items.iter().for_each(|(label, text)| item(format!("- {label}: {text}")));
    doc
}

/// The kinds that take an attribute, by the type of its value and what holds without it.
fn takers(attr: Attr) -> Vec<(String, Vec<&'static str>)> {
    let mut takers: Vec<(String, Vec<&str>)> = Vec::new();
    for &kind in OpKind::ALL {
        for row in Schema::of(kind).attributes.iter().filter(|row| row.attr == attr) {
            let value = value_of(row);
            match takers.iter_mut().find(|(other, _)| *other == value) {
                Some((_, kinds)) => kinds.push(kind.name()),
                None => takers.push((value, vec![kind.name()])),
            }
        }
    }
    takers
}

/// A macro with the documentation of names; one name that it lacks is for the next macro.
fn document(title: &str, name: &str, docs: &[(String, String)], next: Option<&str>) -> String {
    let mut text = format!(
        "//! The documentation of {title}.\n\
         //! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.\n\n\
         #[rustfmt::skip]\nmacro_rules! {name} {{\n"
    );
    for (variant, doc) in docs {
        assert!(!doc.contains("\"#"), "{variant}");
        let _ = writeln!(text, "    ({variant}) => {{r#\"{doc}\"#}};");
    }
    if let Some(next) = next {
        let _ = writeln!(text, "    ($Name:ident) => {{ $crate::types::op_docs::{next}!($Name) }};");
    }
    let _ = write!(text, "}}\n\npub(in crate::types) use {name};\n");
    text
}

/// The files of the macros: what each documents, its name, and the macro for all other kinds.
const MACROS: [(&str, &str, &str, Option<&str>); 5] = [
    ("elements", "kinds that compute each element on its own", "kind_doc", Some("tensor_kind_doc")),
    ("tensors", "kinds that compute tensors as a whole", "tensor_kind_doc", Some("image_kind_doc")),
    ("images", "kinds that compute images and their gradients", "image_kind_doc", Some("other_kind_doc")),
    ("others", "kinds that nothing here computes", "other_kind_doc", None),
    ("attributes", "attributes: types of values, what holds without, and kinds", "attribute_doc", None),
];

/// The documentation of an attribute in Rust, behind the sentence of its row.
fn doc_of_attribute(attr: Attr) -> String {
    let takers = takers(attr);
    let item = |(value, kinds): &(String, Vec<&str>)| {
        filled(&without_links(&format!("- {value}: `{}`.", kinds.join("`, `"))), 2) + "\n"
    };
    match takers.as_slice() {
        [] => "\nNo kind here takes it.\n".into(),
        takers => format!("\n{}", takers.iter().map(item).collect::<String>()),
    }
}

/// True of kinds on a batch of images with channels.
fn is_on_images(kind: OpKind) -> bool {
    let name = kind.name();
    ["Conv", "BatchNorm", "Interpolate", "AvgPool", "MaxPool"].iter().any(|family| name.starts_with(family))
}

/// The sources of the macros, by their paths.
fn sources() -> Vec<(String, String)> {
    let definitions = Definitions::read();
    let mut docs: [Vec<(String, String)>; 5] = Default::default();
    for &kind in OpKind::ALL {
        let facts = definitions.facts(kind);
        let of = match (facts.is_pointwise, &facts.meaning) {
            (true, _) => 0,
            (false, Some(_)) if is_on_images(kind) => 2,
            (false, Some(_)) => 1,
            (false, None) => 3,
        };
        docs[of].push((format!("{kind:?}"), doc_of(&facts)));
    }
    docs[4] = Attr::ALL.iter().map(|&attr| (format!("{attr:?}"), doc_of_attribute(attr))).collect();
    let source = |((file, title, name, next), docs): ((&str, &str, &str, Option<&str>), &Vec<_>)| {
        (format!("src/types/op_docs/{file}.rs"), document(title, name, docs, next))
    };
    MACROS.into_iter().zip(&docs).map(source).collect()
}

/// A sentence of Rust's documentation in a page: a link is its text there.
fn in_page(doc: &str) -> String {
    doc.replace("[`", "`").replace("`]", "`")
}

/// The tables of data types and of attributes on the page of ops.
pub(crate) fn tables() -> String {
    let of_types = sentences("src/types/dtype.rs", "DataType");
    let of_attributes = sentences("src/types/kind.rs", "Attr");
    let mut text = String::from("\n## Data types\n\n| type | code | elements |\n|---|---|---|\n");
    for &data_type in DataType::ALL {
        let doc = in_page(&of_types[&format!("{data_type:?}")]);
        let _ = writeln!(text, "| {data_type} | {} | {doc} |", data_type.code());
    }
    text += "\n## Attributes\n\n| attribute | code | meaning | value, and the kinds that take it |\n|---|---|---|---|\n";
    for &attr in Attr::ALL {
        let takers = takers(attr);
        let takers = takers.iter().map(|(value, kinds)| format!("{value}: {}", kinds.join(", ")));
        let doc = in_page(&of_attributes[&format!("{attr:?}")]);
        let _ = writeln!(
            text,
            "| `{attr}` | {} | {doc} | {} |",
            attr.code(),
            takers.collect::<Vec<_>>().join("; ")
        );
    }
    text
}

#[test]
fn the_documentation_in_rust_is_that_of_the_page() {
    let wrong =
        sources().iter().filter_map(|(path, text)| Golden::at(path).differs_from(text)).collect::<Vec<_>>();
    report(&wrong);
}

/// A row says what the variant is, or a macro does for it: a name and a number are no documentation.
#[test]
fn no_variant_is_documented_by_its_name_alone() {
    let definitions = Definitions::read();
    let is_described: BTreeMap<String, bool> = OpKind::ALL
        .iter()
        .map(|&kind| (format!("{kind:?}"), definitions.facts(kind).meaning.is_some()))
        .collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for variant in LISTS.iter().flat_map(|path| variants(&read(path))) {
        seen += 1;
        let Variant { list, name, doc, .. } = &variant;
        let is_written = list == "OpKind" && is_described[name];
        let is_sentence = doc.len() > 10 && doc.ends_with('.') || doc.starts_with("[`Level::");
        if is_written && !doc.is_empty() {
            wrong.push(format!("{list}::{name}: the row says what the definition of the function says"));
        } else if !is_written && !is_sentence {
            wrong.push(format!("{list}::{name}: {doc:?} is no sentence"));
        }
    }
    assert!(seen > OpKind::ALL.len() + Attr::ALL.len() + DataType::ALL.len(), "{seen} variants were read");
    report(&wrong);
}

/// Names of other frameworks, by which people look for a kind, with the kind.
const SEARCHED: [(&str, &str); 28] = [
    ("where", "Select"),
    ("masked_fill", "Select"),
    ("ternary", "Select"),
    ("silu", "Sigmoid"),
    ("swish", "Sigmoid"),
    ("scaled_dot_product_attention", "SoftMax"),
    ("sdpa", "SoftMax"),
    ("flash attention", "SoftMax"),
    ("softmax", "SoftMax"),
    ("relu6", "Clamp"),
    ("clip", "Clamp"),
    ("layer_norm", "LayerNorm"),
    ("rms_norm", "RMSNorm"),
    ("group_norm", "GroupNorm"),
    ("embedding", "Gather"),
    ("index_select", "Gather"),
    ("matmul", "MatMul"),
    ("gemm", "MatMul"),
    ("linear", "MatMul"),
    ("cumsum", "CumSum"),
    ("topk", "TopK"),
    ("argmax", "ArgMax"),
    ("one_hot", "Equal"),
    ("gelu", "GELU"),
    ("permute", "StaticTranspose"),
    ("reshape", "StaticReshape"),
    ("astype", "Cast"),
    ("arange", "GenIndex"),
];

#[test]
fn names_of_other_frameworks_lead_to_kinds() {
    let rows = variants(&read("src/types/kind.rs"));
    let leads = |word: &str, kind: &str| {
        rows.iter().any(|row| {
            row.list == "OpKind" && row.name == kind && row.aliases.iter().any(|alias| alias == word)
        })
    };
    let missing = SEARCHED.iter().filter(|(word, kind)| !leads(word, kind));
    report(&missing.map(|(word, kind)| format!("{word} does not lead to {kind}")).collect::<Vec<_>>());
}

#[test]
fn texts_are_filled_and_have_no_links() {
    let words = vec!["word"; 40].join(" ");
    let lines: Vec<String> = filled(&words, 2).lines().map(str::to_owned).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
    assert!(lines[1].starts_with("  word"), "{lines:?}");
    assert_eq!(without_links("`a[i]` b[] [`c`]"), "`a[i]` b\\[] \\[`c`]");
    let source = "pub enum Kind: \"kind\" {\n/// A.\n#[doc(alias(\"x\", \"y z\"))]\nOne = 1 => \"one\",\nTwo = 2 => \"two\",\n}";
    let rows: Vec<_> =
        variants(source).into_iter().map(|row| (row.name, row.doc, row.aliases.len())).collect();
    assert_eq!(rows, [("One".into(), "A.".to_owned(), 2), ("Two".into(), String::new(), 0)]);
}
