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
const LANGUAGES: [(&str, &str); 8] = [
    ("rust", "the documentation tests of RUST_PAGES"),
    ("c", "compiled and run here"),
    ("cpp", "compiled and run here"),
    ("cmake", "a file for the commands of its page"),
    ("sh", "run here with STERNA_TEST_GUIDE=1"),
    ("json", "read as a graph here"),
    ("python", "run by `python/tests/test_examples.py`"),
    ("toml", "a manifest that cargo reads here"),
];

/// The files that name the pages with Rust: of the library, and of the reader of models.
const RUST_PAGES: [&str; 2] = ["src/guide.rs", "import/src/guide.rs"];

/// The page whose program needs oneDNN's headers; the package `sterna-dnnl` tests its C++ and its commands.
const NEEDS_ONEDNN: &str = "guide/libdnnl.md";

/// The most pages that the guide may have, references aside: one for each way into the library, the cookbook,
/// and those on what all share.
const MAX_PAGES: usize = 23;

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
    // Pages whose code in Rust another package tests stand behind this line.
    let tested = |text: String| text.split("#[cfg(not(doctest))]").next().unwrap_or_default().to_owned();
    let tested_in_rust = RUST_PAGES.map(named).map(tested).concat();
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
        let is_named = |file: &str| {
            [format!("\"{file}\""), format!("\"guide/{file}\"")]
                .iter()
                .any(|name| tested_in_rust.contains(name))
        };
        if has_rust && !file.is_some_and(is_named) {
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

/// Blocks of TOML, in the guide and in the README, complete a manifest that cargo reads. `CLONE` stands for
/// the path of a clone.
#[test]
fn manifests_of_the_guide_are_read() {
    let root = repository();
    let readme = Page {
        path: "../README.md".into(),
        text: fs::read_to_string(root.join("README.md")).expect("it is text"),
    };
    let all: Vec<Block> = pages(&root).iter().chain([&readme]).flat_map(Page::blocks).collect();
    let folder = scratch_folder("guide-manifests");
    fs::create_dir_all(folder.join("src")).expect("the target folder can be written");
    fs::write(folder.join("src/lib.rs"), "").expect("the target folder can be written");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for block in all.iter().filter(|block| block.language == "toml") {
        seen += 1;
        let head = "[package]\nname = \"reader\"\nedition = \"2024\"\n\n[workspace]\n\n";
        let manifest = format!("{head}{}", block.text.replace("CLONE", &root.display().to_string()));
        fs::write(folder.join("Cargo.toml"), manifest).expect("the target folder can be written");
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--no-deps", "--format-version=1", "--offline"]).current_dir(&folder);
        match succeeded(&mut command) {
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("\"name\":\"sterna\"") => {}
            Ok(_) => wrong.push(format!("{}: no dependency on sterna", block.place)),
            Err(error) => wrong.push(format!("{}: {error}", block.place)),
        }
        if !block.text.contains("[profile.dev.package.sterna]\nopt-level = 3") {
            wrong.push(format!("{}: kernels of a debug build are not optimised", block.place));
        }
    }
    assert_eq!(seen, 2, "README and page on installing");
    report(&wrong);
}

/// A page that names targets, and the function of `.ci/steps.sh` that checks them.
const PLATFORMS: &str = "platforms.md";
const OTHER_TARGETS: &str = "other_targets() {";

/// The table of platforms names the targets that the checks compile for, and no others.
#[test]
fn platforms_are_those_that_the_checks_compile_for() {
    let root = repository();
    let steps = fs::read_to_string(root.join(".ci/steps.sh")).expect("it is text");
    let (_, function) = steps.split_once(OTHER_TARGETS).expect("the checks compile for other targets");
    let function = function.split("\n}").next().unwrap_or_default();
    let pages = pages(&root);
    let page = pages.iter().find(|page| page.path == PLATFORMS).expect("the page is in the summary");
    let is_target = |word: &&str| TARGETS_BEGIN.iter().any(|one| word.starts_with(one));
    let words = |text: &str| -> std::collections::BTreeSet<String> {
        let separators = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
        text.split(separators).filter(is_target).map(str::to_owned).collect()
    };
    let rows: String = page.text.lines().filter(|line| line.starts_with('|')).collect();
    let (in_checks, on_page) = (words(function), words(&rows));
    assert!(in_checks.len() > 4, "{in_checks:?}");
    assert_eq!(on_page, in_checks, "{PLATFORMS} and .ci/steps.sh");
}

/// Beginnings of names of targets.
const TARGETS_BEGIN: [&str; 6] = ["x86_64-", "aarch64-", "s390x-", "riscv64gc-", "wasm32-", "arm"];

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
            if link.starts_with(UNDEFINED) {
                wrong.push(format!("{}: {link}", page.display()));
                continue;
            }
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
    assert!(named > 1, "the pages on installing and on C say how cargo-c is installed; {named} pages do");
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

/// Before the name of a link that a page does not define.
const UNDEFINED: &str = "not defined: ";

/// Where the links and pictures of a page lead. `[text][name]` leads where the page defines `[name]: target`.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let defined: Vec<(&str, &str)> = prose(text).filter_map(definition).collect();
    for line in prose(text) {
        // Text between backticks is code.
        let words: String = line.split('`').step_by(2).collect();
        links.extend(
            words.split("](").skip(1).filter_map(|behind| Some(behind.split_once(')')?.0.to_owned())),
        );
        for name in words.split("][").skip(1).filter_map(|behind| Some(behind.split_once(']')?.0)) {
            match defined.iter().find(|(own, _)| *own == name) {
                Some((_, target)) => links.push((*target).to_owned()),
                None => links.push(format!("{UNDEFINED}{name}")),
            }
        }
    }
    links
}

/// The name and the target that a line defines.
fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ").filter(|(name, _)| !name.contains(['[', ']']))
}

/// The file of the documentation in Rust that leads the links of pages to modules, and that of the modules.
const LINKS_IN_RUST: &str = "src/guide/links.rs";
const MODULES: &str = "src/guide.rs";

/// The text of the first one: for each link of a page that is a module, its module.
fn links_in_rust() -> String {
    let files = pages_in_rust();
    let mut targets = std::collections::BTreeMap::new();
    for file in &files {
        let text = fs::read_to_string(repository().join("docs").join(file)).expect("a page is text");
        let folder = Path::new(file).parent().expect("a page is in a folder");
        let leads_to_page = |(_, target): &(&str, &str)| !target.contains("://") && !target.ends_with(".svg");
        for (name, target) in prose(&text).filter_map(definition).filter(leads_to_page) {
            assert_eq!(
                name, target,
                "{file}: a link has the name of its target, which other pages define too"
            );
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let page = flat(&folder.join(path)).display().to_string();
            let stem = Path::new(&page).file_stem().and_then(OsStr::to_str).expect("a page has a name");
            let heading = if heading.is_empty() { String::new() } else { format!("#{heading}") };
            let module = match files.contains(&page) {
                true => format!("crate::guide::{}{heading}", stem.replace('-', "_")),
                false => "crate::guide#elsewhere".to_owned(),
            };
            let other = targets.insert(name.to_owned(), module.clone());
            assert!(
                other.is_none_or(|other| other == module),
                "{file}: {name} leads elsewhere on another page"
            );
        }
    }
    let lines: String = targets.iter().map(|(name, module)| format!("[{name}]: {module}\n")).collect();
    format!(
        "//! Where the links of pages lead in the documentation in Rust. Written by `capi/tests/guide.rs`;\n\
         //! `STERNA_REWRITE=1 cargo test --test guide links` writes it anew.\n\n\
         #[rustfmt::skip]\nmacro_rules! links {{\n    () => {{\"\n{lines}\n\"}};\n}}\n"
    )
}

/// In Rust a page is a module, and its links lead to modules.
#[test]
fn links_of_pages_lead_to_modules() {
    holds(LINKS_IN_RUST, &links_in_rust());
}

/// Fails if a file that is written here does not hold what it should, or writes it anew.
fn holds(file: &str, expected: &str) {
    let path = repository().join(file);
    if fs::read_to_string(&path).is_ok_and(|text| text == expected) {
        return;
    }
    assert!(env::var_os("STERNA_REWRITE").is_some(), "{file} is old; STERNA_REWRITE=1 rewrites it");
    fs::write(&path, expected).expect("the source can be written");
}

/// The file that puts the pictures of pages into the documentation in Rust, which has no other files.
const PICTURES_IN_RUST: &str = "src/guide/pictures.rs";

/// The most bytes of a picture: the chart on the page on Python would be as large as all other pages.
const MOST_OF_A_PICTURE: usize = 16 << 10;

/// The pages that are modules.
fn pages_in_rust() -> Vec<String> {
    let modules = fs::read_to_string(repository().join(MODULES)).expect("it is text");
    let quoted =
        |line: &str| Some(line.strip_prefix("    ")?.split_once(" \"")?.1.strip_suffix("\";")?.to_owned());
    let files: Vec<String> = modules.lines().filter_map(quoted).collect();
    assert!(files.len() > 20, "{files:?}");
    files
}

/// The text of [`PICTURES_IN_RUST`]: for each page with pictures, definitions of these as data.
fn pictures_in_rust() -> String {
    let mut arms = String::new();
    for file in pages_in_rust() {
        let page = repository().join("docs").join(&file);
        let text = fs::read_to_string(&page).expect("a page is text");
        let pictures = prose(&text).filter(|line| line.starts_with("![")).filter_map(|line| {
            let (_, name) =
                line.rsplit_once("][").unwrap_or_else(|| panic!("{file}: {line} names no picture"));
            name.strip_suffix(']')
        });
        let mut definitions = String::new();
        for name in pictures {
            let picture = fs::read(page.with_file_name(name)).expect("a picture is beside its page");
            if picture.len() <= MOST_OF_A_PICTURE {
                let data = in_lines(&percent_encoded(&picture));
                definitions += &format!("[{name}]: data:image/svg+xml,\\\n{data}\n");
            }
        }
        if !definitions.is_empty() {
            arms += &format!("    (\"{file}\") => {{\"\n{definitions}\n\"}};\n");
        }
    }
    format!(
        "//! The pictures of pages, which documentation in Rust holds as data. Written by\n\
         //! `capi/tests/guide.rs`; `STERNA_REWRITE=1 cargo test --test guide pictures` writes it anew.\n\n\
         #[rustfmt::skip]\nmacro_rules! pictures {{\n{arms}    ($page:tt) => {{\"\"}};\n}}\n"
    )
}

/// Bytes as they may stand in an address, and in Markdown.
fn percent_encoded(bytes: &[u8]) -> String {
    let kept = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/:=,;'".contains(byte);
    let each = |byte: &u8| if kept(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(each).collect()
}

/// Text in lines that a string of Rust joins.
fn in_lines(text: &str) -> String {
    let lines: Vec<&str> =
        text.as_bytes().chunks(100).map(|line| str::from_utf8(line).expect("it is ASCII")).collect();
    lines.join("\\\n")
}

/// Pictures of pages are seen where documentation in Rust is read, also in the one of a package.
#[test]
fn pictures_of_pages_are_data_in_rust() {
    holds(PICTURES_IN_RUST, &pictures_in_rust());
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
    let named = "[a `b`][c.md] and [d][e.md]\n\n[c.md]: ../c.md\n";
    assert_eq!(links(named), ["../c.md", "not defined: e.md"]);
    let named = |text: &str| Block { text: text.into(), ..block.clone() }.file().map(str::to_owned);
    assert_eq!(named("// main.cpp\nint x;\n").as_deref(), Some("main.cpp"));
    assert_eq!(named("/* one.c */\n").as_deref(), Some("one.c"));
    assert_eq!(named("# two words.txt\n"), None);
    assert_eq!(named("#include <x.h>\n"), None);
    assert!(block.printed("h\n").is_none() && block.printed("i\n").is_some());
    let planned = Block { output: None, plan: Some("a 1\n...\nb 22\n".into()), ..block.clone() };
    assert!(planned.printed("a 3\nx\nb 4\n").is_none() && planned.printed("b 4\na 3\n").is_some());
}
