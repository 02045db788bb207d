//! Promise: every block of code in the guide is compiled and run by a test, and every link in the project
//! leads somewhere.
//!
//! Rust runs with the documentation tests of the library, C and C++ here. Commands are run here where
//! `STERNA_TEST_GUIDE=1`; they need cargo-c, pkg-config and CMake.

mod common;

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use common::guide::{Block, Page, follow, pages};
use common::{
    compile_cpp, compile_with, cpp_compiler, report, repository, say_skipped, scratch_folder, succeeded,
};
use sterna::{Graph, Policy};

/// The languages of blocks, with what tests them.
const LANGUAGES: [(&str, &str); 7] = [
    ("rust", "the documentation tests of RUST_PAGES"),
    ("c", "compiled and run here"),
    ("cpp", "compiled and run here"),
    ("cmake", "a file for the commands of its page"),
    ("sh", "run here with STERNA_TEST_GUIDE=1"),
    ("json", "read as a graph here"),
    ("python", "run by `python/tests/test_examples.py`"),
];

/// The files that name the pages with Rust: of the library, and of the reader of models.
const RUST_PAGES: [&str; 2] = ["src/guide.rs", "import/src/guide.rs"];

/// The page whose program needs oneDNN's headers; the package `sterna-dnnl` tests its C++ and its commands.
const NEEDS_ONEDNN: &str = "guide/libdnnl.md";

/// The most pages that the guide may have, references aside: one for each way into the library, and those
/// on what all share.
const MAX_PAGES: usize = 22;

fn blocks(languages: &[&str]) -> Vec<Block> {
    let all = pages(&repository()).into_iter().filter(|page| page.path != NEEDS_ONEDNN);
    let blocks: Vec<Block> =
        all.flat_map(|page| page.blocks()).filter(|block| languages.contains(&&*block.language)).collect();
    assert!(!blocks.is_empty(), "the guide has no block of {languages:?}");
    blocks
}

#[test]
fn every_block_has_a_test() {
    let named = |file: &str| fs::read_to_string(repository().join(file)).expect("the pages are named");
    let tested_in_rust = RUST_PAGES.map(named).concat();
    let mut wrong = Vec::new();
    for page in pages(&repository()) {
        let blocks = page.blocks();
        let has_commands = blocks.iter().any(|block| block.language == "sh");
        for Block { place, language, .. } in &blocks {
            if !LANGUAGES.iter().any(|(known, _)| known == language) {
                wrong.push(format!("{place}: nothing tests a block of {language:?}"));
            }
            if language == "cmake" && !has_commands {
                wrong.push(format!("{place}: no command of the page uses the file"));
            }
        }
        let file = page.path.strip_prefix("guide/");
        let has_rust = blocks.iter().any(|block| block.language == "rust");
        if has_rust && !file.is_some_and(|file| tested_in_rust.contains(&format!("\"{file}\""))) {
            wrong.push(format!("{}: none of {RUST_PAGES:?} names the page", page.path));
        }
    }
    report(&wrong);
}

#[test]
fn programs_print_what_the_guide_says() {
    let folder = scratch_folder("guide-programs");
    let mut wrong = Vec::new();
    let cpp = cpp_compiler();
    if cpp.is_none() {
        say_skipped("C++ programs of the guide: there is no C++ compiler");
    }
    for (number, block) in blocks(&["c", "cpp"]).iter().enumerate() {
        let (source, program) =
            (folder.join(format!("{number}.{}", block.language)), folder.join(number.to_string()));
        fs::write(&source, &block.text).expect("the target folder can be written");
        let compiled = match (&*block.language, &cpp) {
            ("c", _) => compile_with(&common::compiler(), &source, &program, &[]),
            (_, Some(cpp)) => compile_cpp(cpp, &source, &program),
            _ => continue,
        };
        let run = compiled.and_then(|()| succeeded(&mut Command::new(&program)));
        match run {
            Ok(output) => wrong.extend(block.printed(&String::from_utf8_lossy(&output.stdout))),
            Err(error) => wrong.push(format!("{}: {error}", block.place)),
        }
        if block.output.is_none() {
            wrong.push(format!("{}: the guide does not say what it prints", block.place));
        }
    }
    report(&wrong);
}

#[test]
fn graphs_of_the_guide_are_graphs() {
    let read = |text: &str| -> sterna::Result<usize> {
        let mut graph = Graph::from_json(text)?;
        graph.finalize()?;
        Ok(graph.partitions(Policy::Fusion)?.len())
    };
    let wrong: Vec<_> = blocks(&["json"])
        .iter()
        .filter_map(|block| match read(&block.text) {
            Ok(0) => Some(format!("{}: no op", block.place)),
            Ok(_) => None,
            Err(error) => Some(format!("{}: {error}", block.place)),
        })
        .collect();
    report(&wrong);
}

#[test]
fn commands_of_the_guide_run() {
    if env::var_os("STERNA_TEST_GUIDE").is_none() {
        return say_skipped("commands of the guide; STERNA_TEST_GUIDE=1 runs them");
    }
    let home = scratch_folder("guide-home");
    let pages = pages(&repository());
    let own = pages.iter().filter(|page| page.path != NEEDS_ONEDNN);
    report(&own.flat_map(|page| follow(page, &repository(), &home, &[])).collect::<Vec<_>>());
}

#[test]
fn the_guide_is_short_and_whole() {
    let pages = pages(&repository());
    let of_guide: Vec<&str> =
        pages.iter().map(|page| &*page.path).filter(|path| path.starts_with("guide/")).collect();
    let mut wrong = Vec::new();
    if of_guide.len() > MAX_PAGES {
        wrong.push(format!("{} pages: {of_guide:?}", of_guide.len()));
    }
    for file in files(&repository().join("docs"), "md") {
        let path = file.strip_prefix(repository().join("docs")).expect("it is in docs").display().to_string();
        if path != "SUMMARY.md" && !pages.iter().any(|page| page.path == path) {
            wrong.push(format!("SUMMARY.md does not list {path}"));
        }
    }
    report(&wrong);
}

/// Every link that leads to a file of the project, and to a heading. Pages of the guide link to nothing
/// outside it, which its HTML would not have.
#[test]
fn links_lead_somewhere() {
    let root = repository();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in files(&root, "md") {
        let text = fs::read_to_string(&file).expect("documentation is text");
        let page = file.strip_prefix(&root).expect("it is in the project");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                page.to_owned()
            } else {
                flat(&page.parent().expect("a file is in a folder").join(path))
            };
            let fault = if !root.join(&target).exists() {
                "leads nowhere"
            } else if page.starts_with("docs") && !target.starts_with("docs") {
                "leads out of the guide"
            } else if !heading.is_empty() && !headings(&root.join(&target)).any(|own| own == heading) {
                "leads to no heading"
            } else {
                continue;
            };
            wrong.push(format!("{}: {link} {fault}", page.display()));
        }
    }
    assert!(seen > 20, "links were checked: {seen}");
    report(&wrong);
}

/// The page on trouble, and the heading from which on messages are those of other programs.
const TROUBLE: &str = "guide/troubleshooting.md";
const OF_OTHERS: &str = "## Building and linking";

/// The messages that the page on trouble explains are in the source, word by word; `…` stands for values.
#[test]
fn messages_that_the_guide_explains_are_those_of_the_source() {
    let root = repository();
    let folders = ["src", "capi/src", "cli/src", "import/src", "inspect/src"]
        .map(|folder| files(&root.join(folder), "rs"));
    let texts = folders.iter().flatten().map(|file| fs::read_to_string(file).expect("source is text"));
    // A string that goes on in the next line is one string.
    let source: String =
        texts.map(|text| text.split("\\\n").map(str::trim_start).collect::<String>()).collect();
    let pages = pages(&root);
    let page = pages.iter().find(|page| page.path == TROUBLE).expect("the page is in the summary");
    let (own, _) = page.text.split_once(OF_OTHERS).expect("messages of others have a heading");
    let mut wrong = Vec::new();
    let mut explained = 0;
    for row in own.lines() {
        let cell = row.strip_prefix("| `` ").and_then(|rest| rest.split(" ``").next());
        let cell = cell.or_else(|| row.strip_prefix("| `").and_then(|rest| rest.split('`').next()));
        let Some(message) = cell else { continue };
        explained += 1;
        let parts = message.split('…').map(str::trim).filter(|part| part.len() > 2);
        wrong
            .extend(parts.filter(|part| !source.contains(part)).map(|part| format!("{message:?}: {part:?}")));
    }
    assert!(explained > 15, "messages were checked: {explained}");
    report(&wrong);
}

/// The one place that says which cargo-c is installed is `capi/Cargo.toml`; pages repeat it, so that their
/// commands can be pasted.
#[test]
fn pages_name_the_version_of_cargo_c_that_ci_installs() {
    let root = repository();
    let manifest = fs::read_to_string(root.join("capi/Cargo.toml")).expect("the manifest is text");
    let pin = manifest.lines().find_map(|line| line.strip_prefix("cargo-c = \"")?.split('+').next());
    let expected =
        format!("cargo install cargo-c --version {} --locked", pin.expect("the manifest has a pin"));
    let mut wrong = Vec::new();
    let mut named = 0;
    for file in files(&root, "md") {
        let text = fs::read_to_string(&file).expect("documentation is text");
        for line in text.lines().filter(|line| line.contains("cargo install cargo-c")) {
            named += 1;
            if !line.contains(&expected) {
                wrong.push(format!("{}: {line:?} is not {expected:?}", file.display()));
            }
        }
    }
    assert!(named > 1, "README and guide say how cargo-c is installed; {named} pages do");
    report(&wrong);
}

/// The files of an extension below a folder; what is built, hidden or foreign aside.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    const ASIDE: [&str; 3] = ["target", "node_modules", "corpus"];
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let path = entry.expect("a folder of the project can be read").path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or(".");
        if name.starts_with('.') || ASIDE.contains(&name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension() == Some(OsStr::new(extension)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A path without `..`.
fn flat(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// The lines of a page that are not code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Where the links and pictures of a page lead.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        // Text between backticks is code.
        let words: String = line.split('`').step_by(2).collect();
        links.extend(
            words.split("](").skip(1).filter_map(|behind| Some(behind.split_once(')')?.0.to_owned())),
        );
    }
    links
}

/// The headings of a page, as links name them.
fn headings(page: &Path) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let titles: Vec<String> = prose(&text)
        .filter_map(|line| {
            Some(line.trim_start_matches('#').trim().to_owned()).filter(|_| line.starts_with('#'))
        })
        .collect();
    titles.into_iter().map(|title| {
        let kept = title.to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[test]
fn the_reader_of_pages_reads_them() {
    let text = "a [b](c.md) `[d](e.md)`\n```sh\n[f](g)\n```\n```output\nh\n```\n## I j: k\n";
    let page = Page { path: "guide/page.md".into(), text: text.into() };
    let [block] = &page.blocks()[..] else { panic!("{:?}", page.blocks()) };
    assert_eq!((&*block.language, &*block.text, block.output.as_deref()), ("sh", "[f](g)\n", Some("h\n")));
    assert_eq!(block.place, "guide/page.md:2");
    assert_eq!(links(text), ["c.md"]);
    let named = |text: &str| Block { text: text.into(), ..block.clone() }.file().map(str::to_owned);
    assert_eq!(named("// main.cpp\nint x;\n").as_deref(), Some("main.cpp"));
    assert_eq!(named("/* one.c */\n").as_deref(), Some("one.c"));
    assert_eq!(named("# two words.txt\n"), None);
    assert_eq!(named("#include <x.h>\n"), None);
    assert!(block.printed("h\n").is_none() && block.printed("i\n").is_some());
    let planned = Block { output: None, plan: Some("a 1\n...\nb 22\n".into()), ..block.clone() };
    assert!(planned.printed("a 3\nx\nb 4\n").is_none() && planned.printed("b 4\na 3\n").is_some());
}
