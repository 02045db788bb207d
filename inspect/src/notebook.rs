//! The output of a cell of a notebook: a picture, and what is said of each partition. All of its rules hold
//! inside of it alone, and its colours follow the theme of the notebook, or else that of the system.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use crate::model::Inspection;
use crate::page;
use crate::picture::{self, Setting};

const STYLE: &str = include_str!("notebook.css");

/// The colours of text and lines on white and on black.
const ON_WHITE: &str =
    ".sterna{--back:#ffffff;--front:#1c2128;--faint:#57606a;--line:#d0d7de;--link:#0b57b8}";
const ON_BLACK: &str =
    ".sterna{--back:#0d1117;--front:#e6edf3;--faint:#9aa4af;--line:#30363d;--link:#79b8ff}";

/// Where notebooks and pages made of them say that they are light, or dark: JupyterLab, VS Code, Sphinx,
/// Colab.
const LIGHT: &str =
    ":is(body[data-jp-theme-light=true],body.vscode-light,html[data-theme=light],html[theme=light])";
const DARK: &str =
    ":is(body[data-jp-theme-light=false],body.vscode-dark,html[data-theme=dark],html[theme=dark])";

/// The most partitions whose plans the output holds.
const MAX_PLANS: usize = 100;

/// The output of a cell for a graph or, of an inspection of one partition, for that partition.
///
/// # Errors
///
/// The layout of the picture failed.
pub fn notebook(inspection: &Inspection) -> Result<String> {
    let parts = &inspection.parts;
    // Pictures of one document call their parts by names of their own.
    let drawn = picture::picture(inspection, Setting::default())?.into_string();
    let mark = mark_of(&drawn);
    let picture = picture::picture(inspection, Setting { mark: &mark, ..Setting::default() })?;
    let shown = html! {
        div class="sterna" {
            style { (PreEscaped(style(&mark))) }
            div class="picture" { (picture) }
            @match &parts[..] {
                [part] => {
                    p class="head" { "Partition " (part.id) ": " (part.headline()) }
                    (page::details(part, false))
                },
                parts => (plans(inspection, parts.len())),
            }
        }
    };
    Ok(shown.into_string())
}

/// The plans of several partitions, each behind its headline.
fn plans(inspection: &Inspection, count: usize) -> Markup {
    html! {
        @for part in inspection.parts.iter().take(MAX_PLANS) {
            details {
                summary { "Partition " (part.id) ": " (part.headline()) }
                (page::details(part, false))
            }
        }
        @if count > MAX_PLANS { p { (count - MAX_PLANS) " more partitions have no room here." } }
    }
}

/// Letters that differ for pictures that differ.
fn mark_of(picture: &str) -> String {
    let mut hasher = DefaultHasher::new();
    picture.hash(&mut hasher);
    format!("-{:x}", hasher.finish())
}

/// The rules for one output.
fn style(mark: &str) -> String {
    let (light, dark) = picture::rules();
    let [light, dark] = [light, dark].map(|rules| rules.replace("svg ", ".sterna svg "));
    let [light, dark] = [format!("{ON_WHITE}{light}"), format!("{ON_BLACK}{dark}")];
    let within = |place: &str, rules: &str| rules.replace(".sterna", &format!("{place} .sterna"));
    let (if_light, if_dark) = (within(LIGHT, &light), within(DARK, &dark));
    let rules = format!("{light}@media(prefers-color-scheme:dark){{{dark}{if_light}}}{if_dark}{STYLE}");
    rules.replace("url(#hatch)", &format!("url(#hatch{mark})")).replace('\n', "")
}

#[cfg(test)]
mod tests {
    use sterna::{DataType, Engine, Graph, LogicalTensor, Model, Op, OpKind, Policy};

    use super::*;

    /// Two partitions: what nothing runs stands behind a choice.
    fn model() -> Model {
        let tensor = |id, of| LogicalTensor::strided(id, of, &[2, 3]).unwrap();
        let f32 = |id| tensor(id, DataType::F32);
        let mut graph = Graph::new();
        graph.add_op(Op::select(0, tensor(0, DataType::Boolean), f32(1), f32(2), f32(3))).unwrap();
        let wild =
            Op::new(1, OpKind::Wildcard).input(f32(3)).output(f32(4)).named("<script>alert(1)</script>");
        graph.add_op(wild).unwrap();
        Model::new(graph).unwrap()
    }

    fn inspection(only: Option<usize>) -> Inspection {
        let (model, engine) = (model(), Engine::new());
        match only {
            None => Inspection::new("a graph", &model, Policy::Fusion, &engine).unwrap(),
            Some(id) => Inspection::of_partition("a graph", &model, Policy::Fusion, &engine, id).unwrap(),
        }
    }

    #[test]
    fn a_graph_shows_its_picture_and_all_plans() {
        let shown = notebook(&inspection(None)).unwrap();
        let document = roxmltree::Document::parse(&shown).unwrap();
        let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
        let svg = document.descendants().filter(|node| node.tag_name().name() == "svg").count();
        assert_eq!((svg, count("details"), count("script")), (1, 2, 0));
        assert!(shown.contains("kernels") && shown.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn a_partition_shows_itself_alone() {
        for id in 0..2 {
            let shown = notebook(&inspection(Some(id))).unwrap();
            let document = roxmltree::Document::parse(&shown).unwrap();
            let boxes = |class: &str| {
                let has =
                    |node: &roxmltree::Node<'_, '_>| node.attribute("class").is_some_and(|of| of == class);
                document.descendants().filter(has).count()
            };
            assert!(shown.contains(&format!("Partition {id}: ")), "{shown}");
            // Its one op, its inputs and its output.
            assert_eq!(boxes("tensor"), [4, 2][id]);
        }
        let (model, engine) = (model(), Engine::new());
        assert!(Inspection::of_partition("", &model, Policy::Fusion, &engine, 2).is_err());
    }

    #[test]
    fn rules_hold_inside_of_the_output_alone() {
        let style = style("-1");
        let rules = style.replace("@media(prefers-color-scheme:dark){", "");
        let selectors =
            rules.split('}').filter_map(|rule| rule.split_once('{')).map(|(selector, _)| selector);
        let wrong: Vec<&str> =
            selectors.filter(|selector| !selector.split(",.").all(|one| one.contains("sterna"))).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(!style.contains("url(#hatch)"));
    }
}
