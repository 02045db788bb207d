//! Layering: which layer of `src/` may import which, where `unsafe` may stand, and that `lib.rs` only
//! names things.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each layer, lowest first, with what it may name of the others: a whole layer, or one module of it.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("error", &["types"]),
    ("graph", &["error", "types"]),
    ("kernels", &["types"]),
    ("plan", &["kernels", "error", "types"]),
    ("partition", &["graph", "error", "types"]),
    ("execute", &["plan", "kernels", "graph::logical_tensor", "error", "types"]),
    (
        "compile",
        &["partition", "plan", "kernels", "graph", "execute::compiled", "execute::engine", "error", "types"],
    ),
    ("reference", &["graph", "execute::tensor", "error", "types"]),
];

/// The files, and folders, that may hold `unsafe`.
const UNSAFE: &[&str] = &[
    "types/dtype.rs",
    // A test alone, which puts a kernel of its own into a plan.
    "execute/compiled/tests.rs",
    "execute/fork_join.rs",
    "execute/engine.rs",
    "execute/mod.rs",
    "execute/interpreter.rs",
    "execute/tensor.rs",
    "kernels/",
];

#[test]
fn imports_follow_the_arrows() {
    let mut faults = Vec::new();
    for import in imports() {
        let Import { file, layer, path } = &import;
        let arrows = ARROWS.iter().find(|(name, _)| name == layer);
        match arrows {
            None => faults.push(format!("{file}: layer `{layer}` has no row in ARROWS")),
            Some((_, allowed)) if !allowed.iter().any(|arrow| leads_to(arrow, path)) => {
                faults.push(format!("{file}: `{layer}` must not name `{path}`"));
            }
            Some(_) => {}
        }
    }
    report(&faults);
}

#[test]
fn no_layers_import_each_other() {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Import { layer, path, .. } in imports() {
        edges.entry(layer).or_default().insert(first(&path).to_owned());
    }
    assert!(edges.contains_key("graph"), "the graph layer names others, but the reader saw none: {edges:?}");

    // Layers that name no layer still here are taken away; layers that are left name each other in a circle.
    while let Some(leaf) = edges
        .iter()
        .find(|(_, to)| to.iter().all(|layer| !edges.contains_key(layer)))
        .map(|(layer, _)| layer.clone())
    {
        edges.remove(&leaf);
    }
    assert!(edges.is_empty(), "these layers import each other: {edges:?}");
}

#[test]
fn unsafe_stays_in_its_files() {
    let faults: Vec<String> = sources()
        .into_iter()
        .filter(|(file, _)| !UNSAFE.iter().any(|place| file.starts_with(place)))
        .filter(|(_, tokens)| tokens.iter().any(|token| token == "unsafe"))
        .map(|(file, _)| format!("{file} holds `unsafe`"))
        .collect();
    report(&faults);
}

#[test]
fn lib_only_names_things() {
    let (_, tokens) = sources().into_iter().find(|(file, _)| file == "lib.rs").expect("src/lib.rs exists");
    let mut faults = Vec::new();
    let mut at = skip_attributes(&tokens, 0);
    while at < tokens.len() {
        let end = item_end(&tokens, at);
        let item = &tokens[at..end];
        let names = [&["mod"][..], &["pub", "mod"], &["pub", "use"]];
        let names_only = names.iter().any(|words| item.iter().take(words.len()).eq(words.iter()));
        if !names_only || item.last().is_none_or(|sign| sign != ";") {
            faults.push(format!("lib.rs holds `{}`", item.join(" ")));
        }
        at = skip_attributes(&tokens, end);
    }
    report(&faults);
}

/// One name means one thing: type names that two modules of a crate may both declare.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[("cli/src", "Run"), ("cli/src", "Way")];

/// Words that the code once used for things that have a name in the field: no identifier of `src/` is one of them. Each
/// stands beside its successor.
const OLD_WORDS: &[(&str, &str)] = &[
    ("Ahead", "PrefetchDistance"),
    ("Asks", "PrefetchQueue"),
    ("Bound", "Bindings"),
    ("CHEAP", "LIGHT"),
    ("CLASSED", "CLASSIFIABLE"),
    ("Chain", "FusedKernel"),
    ("Crew", "ForkJoin"),
    ("DEAR", "HEAVY"),
    ("Deed", "StepLabel"),
    ("Draft", "ExprGraph"),
    ("Drafted", "NestExpr"),
    ("Draught", "UnplacedStep"),
    ("Ending", "StoreKind"),
    ("Feed", "Operand"),
    ("Feeds", "Operands"),
    ("Gather", "PackTile"),
    ("Held", "InPlaceOperand"),
    ("Judge", "MaskTest"),
    ("Lane", "LaneBits"),
    ("Line", "CacheLine"),
    ("Made", "ValueDef, LoweredNest"),
    ("Meaning", "Semantics"),
    ("Nest", "LoopNest"),
    ("OWN", "EXTENSIONS"),
    ("Odd", "RoundedToOdd"),
    ("Piece", "MemRange"),
    ("Plain", "Pod"),
    ("Reads", "OperandEntries"),
    ("Row1", "UnaryTable"),
    ("Row2", "BinaryTable"),
    ("Runner", "Interpreter"),
    ("Scatter", "UnpackTile"),
    ("Shares", "ChunkQueue"),
    ("Side", "SelectOperand"),
    ("Stores", "StorePolicy"),
    ("Sudden", "LookaheadPrefetch"),
    ("Sweep", "Traversal"),
    ("Task", "ScalarOp"),
    ("Turned", "Swapped"),
    ("USUAL", "DEFAULT"),
    ("Verb", "StageShape"),
    ("Verdict", "MaskClass, FusionVerdict"),
    ("Via", "TwoStepConvert"),
    ("Walk", "Access"),
    ("Walked", "IterationSpace"),
    ("Ways", "Impls"),
    ("Wide", "Vector512"),
    ("Wiring", "OpGraph"),
    ("Work", "Instr"),
    ("ahead", "distance"),
    ("aside", "spilled"),
    ("asked", "predicate"),
    ("asks", "queue"),
    ("bits_matter", "demands_nan_bits"),
    ("bring", "prefetch_l1"),
    ("crew", "fork_join"),
    ("deeds", "labels"),
    ("draft", "expr"),
    ("effort", "estimated_work"),
    ("elsewhere", "clones"),
    ("feed", "operand"),
    ("feeds", "operands"),
    ("gather", "pack_tile"),
    ("gives_any_nan", "produces_noncanonical_nan"),
    ("is_alone", "single_thread"),
    ("is_at_home", "same_engine"),
    ("judge", "classify_mask"),
    ("made_branches", "computed_branches"),
    ("may_be_late", "conditional_users"),
    ("one_by_one", "map_scalar"),
    ("outdated", "invalidated_by"),
    ("pitch", "row_stride"),
    ("pulls", "deps"),
    ("scatter", "unpack_tile"),
    ("scout", "lookahead_cursor"),
    ("settled", "resolved"),
    ("spared", "skippable"),
    ("sudden", "lookahead"),
    ("sweep", "traversal"),
    ("take_in_other", "select_in_place"),
    ("truths", "mask"),
    ("turn", "iteration"),
    ("turned", "swapped, advanced"),
    ("walk", "access"),
    ("walked", "accessed"),
    ("walks", "accesses"),
];

/// Folders in which some old words still stand.
const OLD_WORDS_LEFT: &[(&str, &[&str])] = &[
    ("error.rs", &["Verdict"]),
    ("lib.rs", &["Verdict"]),
    ("partition/", &["Verdict", "Wiring"]),
    ("reference/", &["Meaning", "gather"]),
];

#[test]
fn no_type_name_is_declared_twice() {
    let mut faults = Vec::new();
    for folder in ["src", "capi/src", "cli/src"] {
        let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, tokens) in sources_of(folder) {
            if file.split('/').any(|part| part == "tests" || part == "tests.rs") {
                continue;
            }
            let tokens = without(without_tests(tokens), &["#", "[", "cfg", "(", "not", "("]);
            for name in declared_types(&tokens) {
                let places = declared.entry(name).or_default();
                places.insert(if places.contains(&file) { format!("{file} twice") } else { file.clone() });
            }
        }
        assert!(!declared.is_empty(), "{folder} declares no type");
        let is_shared = |name: &str| SHARED_TYPE_NAMES.contains(&(folder, name));
        let twice = declared.into_iter().filter(|(name, files)| files.len() > 1 && !is_shared(name));
        faults.extend(twice.map(|(name, files)| format!("{folder}: `{name}` in {files:?}")));
    }
    report(&faults);
}

#[test]
fn no_identifier_is_an_old_word() {
    let mut faults = BTreeSet::new();
    for (file, tokens) in sources() {
        let left = OLD_WORDS_LEFT.iter().filter(|(place, _)| file.starts_with(place));
        let left: Vec<&str> = left.flat_map(|(_, words)| words.iter().copied()).collect();
        for token in &tokens {
            if let Some((old, new)) = OLD_WORDS.iter().find(|(old, _)| old == token)
                && !left.contains(old)
            {
                faults.insert(format!("{file}: `{old}`, now called {new}"));
            }
        }
    }
    report(&Vec::from_iter(faults));
}

/// The names of the types that the tokens declare; associated types are none, nor are names that a macro makes up.
fn declared_types(tokens: &[String]) -> Vec<String> {
    const ITEMS: [&str; 9] = ["impl", "trait", "fn", "mod", "struct", "enum", "union", "type", "macro_rules"];
    let mut names = Vec::new();
    // For each open block, whether associated types stand in it; and the keyword that began the present item.
    let (mut blocks, mut item) = (Vec::new(), "");
    for at in 0..tokens.len() {
        let word = token(tokens, at);
        match word {
            "{" => blocks.push(["impl", "trait"].contains(&std::mem::take(&mut item))),
            "}" => {
                blocks.pop();
                item = "";
            }
            ";" => item = "",
            _ if item.is_empty() && ITEMS.contains(&word) => {
                item = word;
                let name = token(tokens, at + 1);
                let is_type = ["struct", "enum", "union", "trait"].contains(&word)
                    || (word == "type" && blocks.last() != Some(&true));
                if is_type && name.starts_with(|c: char| c.is_ascii_uppercase()) {
                    names.push(name.to_owned());
                }
            }
            _ => {}
        }
    }
    names
}

#[test]
fn the_reader_finds_type_names() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("types", "pub struct A(u8); enum B { C } trait D {} type E<T> = Vec<T>;", &["A", "B", "D", "E"]),
        ("associated types", "trait A { type B; } impl A for u8 { type B = u8; } type C = u8;", &["A", "C"]),
        ("functions", "fn f(x: impl Fn()) -> A { struct B; type C = u8; }", &["B", "C"]),
        ("macros", "macro_rules! m { ($A:ident) => { struct $A; } }", &[]),
    ];
    let mut faults = Vec::new();
    for (what, code, expected) in rows {
        let found = declared_types(&tokens(code));
        if found != *expected {
            faults.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }
    report(&faults);
}

/// The library and its tests are compiled in one profile. With `--release`, tests run without these checks.
#[test]
#[cfg(debug_assertions)]
fn tests_run_with_overflow_checks() {
    let largest = std::hint::black_box(i64::MAX);
    let overflow = std::panic::catch_unwind(|| std::hint::black_box(largest + 1));
    assert!(overflow.is_err(), "{overflow:?}");
}

#[test]
fn the_reader_reads_rust() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("a path", "use crate::types::dtype::DataType;", &["types::dtype::DataType"]),
        ("a rename", "use crate::plan as other;", &["plan"]),
        ("a glob", "use crate::plan::*;", &["plan::*"]),
        (
            "a nested tree",
            "use crate::{error::{Error, Result as R}, graph::{self, op::Op}, plan::*,};",
            &["error::Error", "error::Result", "graph", "graph::op::Op", "plan::*"],
        ),
        ("a path in a signature", "fn f(x: &crate::plan::Plan) {}", &["plan::Plan"]),
        ("a path with type arguments", "f(crate::plan::new::<u8>(1))", &["plan::new"]),
        ("a struct expression", "crate::plan::Plan { x }", &["plan::Plan"]),
        ("a macro's path", "$crate::types::Lane", &["types::Lane"]),
        ("a visibility", "pub(crate) fn f() {} pub(in crate::graph) fn g() {}", &["graph"]),
        ("the way over super", "use super::super::plan::Plan;", &["plan::Plan"]),
        ("super within the layer", "use super::op::Op; mod inner { use super::super::op::Op; }", &[]),
        ("out of an inline module", "mod inner { fn f() { super::super::super::plan::f() } }", &["plan::f"]),
        ("comments", "// crate::a::B\n/* crate::c /* crate::d */ crate::e */ /// [x](crate::f)\n", &[]),
        ("strings", r####"f("crate::a \" crate::b", r#"" crate::c"#, b"crate::d", 'x', '\'')"####, &[]),
        ("lifetimes", "fn f<'a>(x: &'a crate::plan::Plan) -> &'static str", &["plan::Plan"]),
        ("tests", "#[cfg(test)] #[allow(x)] mod tests { use crate::a::B; } use crate::c::D;", &["c::D"]),
        ("a test's import", "#[cfg(test)] use crate::{a::B}; #[cfg(unix)] use crate::c::D;", &["c::D"]),
    ];
    let mut faults = Vec::new();
    for (what, code, expected) in rows {
        let found = crate_paths(&without_tests(tokens(code)), 2);
        if found != *expected {
            faults.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }
    report(&faults);
}

/// One mention of a thing in another layer.
struct Import {
    file: String,
    layer: String,
    /// From the crate root on.
    path: String,
}

/// What the layers name of each other, tests aside.
fn imports() -> Vec<Import> {
    let mut imports = Vec::new();
    for (file, tokens) in sources() {
        let layer = first(file.trim_end_matches(".rs").split('/').next().unwrap_or_default()).to_owned();
        // A file of tests may name any layer, as tests within a file may.
        if layer == "lib" || file.ends_with("/tests.rs") {
            continue;
        }
        let depth = file.split('/').count() - usize::from(file.ends_with("/mod.rs"));
        let paths = crate_paths(&without_tests(tokens), depth);
        imports.extend(paths.into_iter().filter(|path| first(path) != layer).map(|path| Import {
            file: file.clone(),
            layer: layer.clone(),
            path,
        }));
    }
    imports
}

/// The tokens of each file of `src/`, by its path from there.
fn sources() -> Vec<(String, Vec<String>)> {
    sources_of("src")
}

/// The tokens of each file of a folder, by its path from there.
fn sources_of(folder: &str) -> Vec<(String, Vec<String>)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    collect(&src, &mut files);
    files.sort();
    let name = |file: &Path| {
        let parts = file.strip_prefix(&src).expect("the file is in src").iter();
        parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
    };
    files
        .iter()
        .map(|file| (name(file), tokens(&fs::read_to_string(file).expect("a source is text"))))
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources can be read") {
        let path = entry.expect("a folder of sources can be read").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Cuts Rust into words, `::`, `""` for any literal text, and single signs; comments are gone.
fn tokens(code: &str) -> Vec<String> {
    let chars: Vec<char> = code.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
            }
            ('"', _) => {
                i = text_end(&chars, i, '"');
                tokens.push("\"\"".into());
            }
            // A quote opens a character where one closes it; otherwise it opens a lifetime.
            ('\'', next) if next == '\\' || at(i + 2) == '\'' => {
                i = text_end(&chars, i, '\'');
                tokens.push("\"\"".into());
            }
            (':', ':') => {
                tokens.push("::".into());
                i += 2;
            }
            (c, _) if is_word(c) => {
                let start = i;
                while is_word(at(i)) {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let hashes = (i..chars.len()).take_while(|&i| at(i) == '#').count();
                if ["r", "br", "cr"].contains(&&*word) && at(i + hashes) == '"' {
                    i += hashes + 1;
                    while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|hash| at(i + hash) == '#')) {
                        i += 1;
                    }
                    i += 1 + hashes;
                    tokens.push("\"\"".into());
                } else {
                    tokens.push(word);
                }
            }
            (c, _) => {
                if !c.is_whitespace() {
                    tokens.push(c.into());
                }
                i += 1;
            }
        }
    }
    tokens
}

/// Behind the literal that opens at `start`.
fn text_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// The tokens without the items that are there for tests alone.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    without(tokens, &["#", "[", "cfg", "(", "test", ")", "]"])
}

/// The tokens without the items that have an attribute which begins so.
fn without(tokens: Vec<String>, attribute: &[&str]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].iter().take(attribute.len()).eq(attribute.iter()) {
            at = item_end(&tokens, skip_attributes(&tokens, at));
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Behind the attributes at `at`, if there are any.
fn skip_attributes(tokens: &[String], mut at: usize) -> usize {
    while token(tokens, at) == "#" {
        at += if token(tokens, at + 1) == "!" { 2 } else { 1 };
        at = group_end(tokens, at);
    }
    at
}

/// Behind the item at `at`: its `;`, or the block that is its body.
fn item_end(tokens: &[String], mut at: usize) -> usize {
    let is_use = tokens[at..].iter().take_while(|token| *token != ";" && *token != "{").any(|t| t == "use");
    while at < tokens.len() {
        match token(tokens, at) {
            ";" => return at + 1,
            "{" if !is_use => return group_end(tokens, at),
            "{" | "(" | "[" => at = group_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Behind the bracket that closes the one at `at`.
fn group_end(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match token(tokens, at) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The paths from the crate root that the code of a module names; `depth` is how deep below the root the module is.
fn crate_paths(tokens: &[String], depth: usize) -> Vec<String> {
    let mut paths = Vec::new();
    // For each open block, whether it is the body of a module.
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match (token(tokens, at), token(tokens, at + 1)) {
            ("crate", "::") => {
                at = read_tree(tokens, at + 2, "", &mut paths);
                continue;
            }
            ("super", "::") => {
                let mut supers = 0;
                while token(tokens, at) == "super" && token(tokens, at + 1) == "::" {
                    (supers, at) = (supers + 1, at + 2);
                }
                if supers >= depth + blocks.iter().filter(|&&is_module| is_module).count() {
                    at = read_tree(tokens, at, "", &mut paths);
                }
                continue;
            }
            ("{", _) => blocks.push(at >= 2 && tokens[at - 2] == "mod"),
            ("}", _) => {
                blocks.pop();
            }
            _ => {}
        }
        at += 1;
    }
    paths
}

/// Reads a path, or a tree of them, that goes on behind `prefix`; answers with the place behind it.
fn read_tree(tokens: &[String], mut at: usize, prefix: &str, paths: &mut Vec<String>) -> usize {
    if token(tokens, at) == "{" {
        at += 1;
        while !["}", ""].contains(&token(tokens, at)) {
            at = read_tree(tokens, at, prefix, paths);
            while !["}", ",", ""].contains(&token(tokens, at)) {
                at += 1; // `as name`
            }
            at += usize::from(token(tokens, at) == ",");
        }
        return at + 1;
    }
    let segment = token(tokens, at);
    let path = match (prefix, segment) {
        (_, "self") => prefix.to_owned(),
        ("", _) => segment.to_owned(),
        (_, _) => format!("{prefix}::{segment}"),
    };
    if token(tokens, at + 1) == "::" && token(tokens, at + 2) != "<" {
        return read_tree(tokens, at + 2, &path, paths);
    }
    paths.push(path);
    at + 1
}

fn token(tokens: &[String], at: usize) -> &str {
    tokens.get(at).map_or("", String::as_str)
}

fn first(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

fn leads_to(arrow: &str, path: &str) -> bool {
    path.strip_prefix(arrow).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
