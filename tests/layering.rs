//! Layering: which layer of `src/` may import which, that no files import each other in a circle, where
//! `unsafe` may stand, that `lib.rs` only names things, how long functions and files are, how comments begin,
//! and how crates are compiled.

#[path = "layering/measures.rs"]
mod measures;
#[path = "layering/profiles.rs"]
mod profiles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Each layer, lowest first, with what it may name of the others: a whole layer, or one module of it.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("error", &["types"]),
    ("graph", &["error", "types"]),
    ("kernels", &["types"]),
    ("plan", &["kernels", "error", "types"]),
    ("rewrite", &["graph", "error", "types"]),
    ("partition", &["rewrite", "graph", "error", "types"]),
    ("execute", &["plan", "kernels", "graph::logical_tensor", "error", "types"]),
    ("session", &["partition", "execute", "reference", "graph", "error", "types"]),
    ("compile", &["partition", "plan", "kernels", "graph", "execute", "error", "types"]),
    // No kernel: a plain loop of the reference is compiled for wider registers there.
    ("reference", &["kernels::wide", "graph", "execute::tensor", "error", "types"]),
];

/// The files, and folders, that may hold `unsafe`, by the folder of sources.
const UNSAFE: &[(&str, &[&str])] = &[
    ("src", &["types/dtype.rs", "execute/", "kernels/"]),
    ("import/src", &["mapped_file.rs"]),
    ("cli/src", &[]),
    ("inspect/src", &[]),
    ("python/src", &["foreign/"]),
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
fn no_files_import_each_other_in_a_circle() {
    let mut faults = Vec::new();
    for folder in ["src", "capi/src", "cli/src", "import/src", "inspect/src", "python/src"] {
        let imports = file_imports(sources_of(folder));
        assert!(imports.values().any(|named| !named.is_empty()), "the reader saw no import in {folder}");
        let circles = circles(&imports);
        faults.extend(circles.iter().map(|circle| format!("{folder}: {}", circle.join(" → "))));
    }
    report(&faults);
}

#[test]
fn the_reader_finds_circles() {
    type Row = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let rows: &[Row] = &[
        (
            "a parent with children",
            &[("lib.rs", "mod a;"), ("a/mod.rs", "mod b; use self::b::B;"), ("a/b.rs", "use crate::c;")],
            &[],
        ),
        (
            "siblings",
            &[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "use super::c::{C, D};"),
                ("c.rs", "fn f(a: crate::a::A);"),
            ],
            &["a.rs → b.rs → c.rs"],
        ),
        (
            "a child that names an item of its parent",
            &[("a/mod.rs", "mod b; fn f() { b::f() }"), ("a/b.rs", "use super::A;")],
            &["a/b.rs → a/mod.rs"],
        ),
        (
            "children of a parent that names none of them",
            &[("a/mod.rs", "pub mod b; pub struct A;"), ("a/b.rs", "use super::A;")],
            &[],
        ),
        (
            "a sibling's item by the parent's name",
            &[
                ("a/mod.rs", "pub use b::B; mod b; mod c; use c::C;"),
                ("a/b.rs", ""),
                ("a/c.rs", "use super::B;"),
            ],
            &[],
        ),
        (
            "a name that the parent hands on and uses",
            &[("a/mod.rs", "mod b; pub use self::b::B; struct A(B);"), ("a/b.rs", "use super::A;")],
            &["a/b.rs → a/mod.rs"],
        ),
        (
            "a name that the parent only hands on",
            &[("a/mod.rs", "mod b; pub use self::b::B; struct A;"), ("a/b.rs", "use super::A;")],
            &[],
        ),
        (
            "a module by its own name",
            &[
                ("a.rs", "use super::b; fn f() { b::f() }"),
                ("b.rs", "use crate::a as other; fn f() { other::f() }"),
            ],
            &["a.rs → b.rs"],
        ),
        (
            "all of a module",
            &[("a/mod.rs", "mod b; use b::B;"), ("a/b.rs", "use super::*;")],
            &["a/b.rs → a/mod.rs"],
        ),
        (
            "tests",
            &[("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }")],
            &[],
        ),
        (
            "a file of tests",
            &[("a/mod.rs", "mod b; mod tests; use b::B;"), ("a/tests.rs", "use super::*;")],
            &[],
        ),
    ];
    let mut faults = Vec::new();
    for (what, files, expected) in rows {
        let sources = files.iter().map(|(file, code)| ((*file).to_owned(), tokens(code))).collect();
        let found: Vec<String> =
            circles(&file_imports(sources)).iter().map(|circle| circle.join(" → ")).collect();
        if found != *expected {
            faults.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }
    report(&faults);
}

/// For each file, the files whose items its code names, tests aside. A re-export alone names nothing; whoever
/// uses it names the file whose item it is.
fn file_imports(sources: Vec<(String, Vec<String>)>) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources.into_iter().filter(|(file, _)| !is_of_tests(file));
    let files: BTreeMap<String, (String, Vec<String>)> =
        sources.map(|(file, tokens)| (module_of(&file), (file, without_tests(tokens)))).collect();
    let mentions: BTreeMap<&str, Vec<Mention>> =
        files.iter().map(|(module, (_, tokens))| (&**module, mentions(tokens, module))).collect();
    // The modules and items that the names of each file stand for: its child modules, and what it imports.
    let mut names: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for module in files.keys().filter(|module| !module.is_empty()) {
        let (parent, child) = module.rsplit_once("::").unwrap_or(("", module));
        names.entry(parent).or_default().insert(child, module.clone());
    }
    for (&module, mentions) in &mentions {
        let names = names.entry(module).or_default();
        for mention in mentions {
            if let Some(name) = &mention.import
                && let Some(path) = mention.absolute(names)
            {
                names.insert(name, path);
            }
        }
    }
    // The file that declares what a path leads to; none if that is a module as a whole, or of another crate.
    let file_of = |path: String| {
        let mut path = path;
        for _ in 0..8 {
            let cuts = path.match_indices("::").map(|(at, _)| &path[..at]);
            let module = cuts.filter(|prefix| files.contains_key(*prefix)).last().unwrap_or_default();
            let rest = path[module.len()..].trim_start_matches("::");
            if rest.is_empty() || files.contains_key(&path) {
                return None;
            }
            match names.get(module).and_then(|names| names.get(first(rest))) {
                Some(target) => path = format!("{target}{}", &rest[first(rest).len()..]),
                None => return files.get(module).map(|(file, _)| file.clone()),
            }
        }
        None
    };
    let named = |module: &str, tokens: &[String]| {
        let is_used = |mention: &Mention| match &mention.import {
            // The name stands in the import once.
            Some(name) if mention.is_public => tokens.iter().filter(|token| *token == name).count() > 1,
            _ => true,
        };
        let used = mentions[module].iter().filter(|mention| is_used(mention));
        used.filter_map(|mention| mention.absolute(&names[module])).filter_map(file_of).collect()
    };
    files
        .iter()
        .map(|(module, (file, tokens))| {
            let mut named: BTreeSet<String> = named(module, tokens);
            named.remove(file);
            (file.clone(), named)
        })
        .collect()
}

/// The shortest circle through each file that is in one, each circle once.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for start in imports.keys() {
        let (mut paths, mut reached) = (VecDeque::from([vec![start]]), BTreeSet::new());
        while let Some(path) = paths.pop_front() {
            let named = &imports[path[path.len() - 1]];
            if named.contains(start) {
                // The first file by name stands first.
                let least = (0..path.len()).min_by_key(|&at| path[at]).unwrap_or_default();
                circles.insert((0..path.len()).map(|at| path[(least + at) % path.len()].clone()).collect());
                break;
            }
            let new = named.iter().filter(|file| reached.insert(*file));
            paths.extend(new.map(|file| path.iter().copied().chain([file]).collect::<Vec<_>>()));
        }
    }
    circles.into_iter().collect()
}

#[test]
fn unsafe_stays_in_its_files() {
    let mut faults = Vec::new();
    for (folder, places) in UNSAFE {
        let others = sources_of(folder).into_iter().filter(|(file, tokens)| {
            let may_hold = places.iter().any(|place| file.starts_with(place));
            !may_hold && tokens.iter().any(|token| token == "unsafe")
        });
        faults.extend(others.map(|(file, _)| format!("{folder}/{file} holds `unsafe`")));
    }
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

/// Words that the code once used for things that have a name in the field: no identifier of `src/` is one of
/// them. Each stands beside its successor.
const OLD_WORDS: &[(&str, &str)] = &[
    ("AT_ONCE", "PREFETCH_STEP"),
    ("Ahead", "PrefetchDistance"),
    ("Aside", "Spilled"),
    ("Asked", "Predicate"),
    ("Asked1", "Predicate"),
    ("Asked2", "Predicate"),
    ("Asks", "PrefetchQueue"),
    ("Bound", "Bindings"),
    ("CLASSED", "CLASSIFIABLE"),
    ("Call", "StageCall"),
    ("Chain", "FusedKernel"),
    ("Crew", "ForkJoin"),
    ("Deed", "StepLabel"),
    ("Dense", "Contiguous"),
    ("Draft", "ExprGraph"),
    ("Drafted", "NestExpr"),
    ("Draught", "UnplacedStep"),
    ("Ending", "StoreKind"),
    ("Fate", "Outcome"),
    ("Feed", "Operand"),
    ("Feeds", "Operands"),
    ("Group", "OpGroup, ShapedGroup"),
    ("Held", "InPlaceOperand"),
    ("Inner", "EngineInner, CompiledInner, PartitionInner"),
    ("Judge", "MaskTest"),
    ("Lane", "LaneBits"),
    ("Line", "CacheLine"),
    ("Made", "ValueDef, LoweredNest"),
    ("Meaning", "Semantics"),
    ("Nest", "LoopNest"),
    ("OWN", "EXTENSIONS"),
    ("Odd", "RoundedToOdd"),
    ("Ordinary", "Temporal"),
    ("PLACE", "CLONE"),
    ("Piece", "MemRange"),
    ("Place", "Dest, OperandPtr, JsonPath"),
    ("Plain", "Pod"),
    ("Raw", "Storage"),
    ("Reads", "OperandEntries"),
    ("Row1", "UnaryTable"),
    ("Row2", "BinaryTable"),
    ("Runner", "Interpreter"),
    ("SLOT", "SPILL_BYTES"),
    ("Shares", "ChunkQueue"),
    ("Side", "SelectOperand"),
    ("Slot", "ScratchSlot, Cached"),
    ("Stores", "StorePolicy"),
    ("Streaming", "NonTemporal"),
    ("Sudden", "LookaheadPrefetch"),
    ("Swap", "SwapMasks"),
    ("Sweep", "Traversal"),
    ("Task", "ScalarOp"),
    ("Turned", "Swapped"),
    ("Use", "StageUse"),
    ("Verb", "StageShape"),
    ("Verdict", "MaskClass, FusionVerdict"),
    ("Via", "TwoStepConvert"),
    ("Wait", "SaveMask"),
    ("Walk", "Access"),
    ("Walked", "IterationSpace"),
    ("Way", "Algorithm, Build"),
    ("Ways", "Impls"),
    ("Wide", "Vector512"),
    ("Wiring", "OpGraph"),
    ("Work", "Instr"),
    ("ahead", "distance"),
    ("aside", "spilled"),
    ("asked", "predicate"),
    ("asked1", "predicate1"),
    ("asked2", "predicate2"),
    ("asks", "queue"),
    ("bits_matter", "demands_nan_bits"),
    ("bring", "prefetch_l1"),
    ("bring_end", "prefetch_tail_line"),
    ("cheap", "light"),
    ("crew", "fork_join"),
    ("dear", "heavy"),
    ("deed", "label"),
    ("deeds", "labels"),
    ("draft", "expr"),
    ("drafted", "nest_expr"),
    ("draught", "unplaced"),
    ("effort", "estimated_work"),
    ("elsewhere", "clones"),
    ("feed", "operand"),
    ("feeds", "operands"),
    ("gives_any_nan", "produces_noncanonical_nan"),
    ("is_alone", "single_thread"),
    ("is_at_home", "same_engine"),
    ("is_dear", "cost_class"),
    ("judge", "classify_mask"),
    ("judged", "classified"),
    ("keep_mask", "spill_mask"),
    ("logic_of_both", "logic_masks"),
    ("looked_at", "compared"),
    ("made_branches", "computed_branches"),
    ("may_be_late", "conditional_users"),
    ("meaning", "semantics"),
    ("models", "layout_hints"),
    ("one_by_one", "map_scalar"),
    ("outdated", "invalidated_by"),
    ("pitch", "row_stride"),
    ("pitches", "row_strides"),
    ("pull", "deps"),
    ("pulls", "deps"),
    ("questions", "predicates"),
    ("questions1", "predicates1"),
    ("questions2", "predicates2"),
    ("remember", "memo"),
    ("row1", "unary_table"),
    ("row2", "binary_table"),
    ("scout", "lookahead_cursor"),
    ("settled", "resolved"),
    ("spared", "skippable"),
    ("status_of", "ffi_guard"),
    ("sudden", "lookahead"),
    ("sweep", "traversal"),
    ("take_in_other", "select_in_place"),
    ("truths", "mask"),
    ("turn", "iteration"),
    ("turned", "swapped, advanced"),
    ("turns", "iterations"),
    ("verb", "shape"),
    ("walk", "access"),
    ("walked", "accessed"),
    ("walks", "accesses"),
];

/// Words that no constant has as a part of its name, each beside its successor.
const OLD_PARTS: &[(&str, &str)] = &[
    ("AHEAD", "PREFETCH"),
    ("CHEAP", "LIGHT"),
    ("DEAR", "HEAVY"),
    ("FEW", "INLINE"),
    ("FEWEST", "MIN"),
    ("LEAST", "MIN"),
    ("MOST", "MAX"),
    ("PEEKED", "LOOKAHEAD"),
    ("SPARED", "SKIP"),
    ("USUAL", "DEFAULT"),
];

#[test]
fn no_type_name_is_declared_twice() {
    let mut faults = Vec::new();
    for folder in ["src", "capi/src", "cli/src", "import/src", "inspect/src", "python/src"] {
        let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, tokens) in sources_of(folder) {
            if is_of_tests(&file) {
                continue;
            }
            let tokens = without(without_tests(tokens), &["#", "[", "cfg", "(", "not", "("]);
            for name in declared_types(&tokens) {
                let places = declared.entry(name).or_default();
                places.insert(if places.contains(&file) { format!("{file} twice") } else { file.clone() });
            }
        }
        assert!(!declared.is_empty(), "{folder} declares no type");
        let twice = declared.into_iter().filter(|(_, files)| files.len() > 1);
        faults.extend(twice.map(|(name, files)| format!("{folder}: `{name}` in {files:?}")));
    }
    report(&faults);
}

/// Old words that are names in other crates, with the files that use the crates.
const FOREIGN_WORDS: &[(&str, &str)] = &[("cli/src/npy.rs", "Plain")];

#[test]
fn no_identifier_is_an_old_word() {
    let mut faults = BTreeSet::new();
    for folder in ["src", "capi/src", "cli/src", "inspect/src"] {
        for (file, tokens) in sources_of(folder) {
            let file = format!("{folder}/{file}");
            for token in tokens.iter().filter(|token| !FOREIGN_WORDS.contains(&(&*file, token.as_str()))) {
                if let Some(new) = successor(token) {
                    faults.insert(format!("{file}: `{token}`, now called {new}"));
                }
            }
        }
    }
    report(&Vec::from_iter(faults));
}

/// The present word for an identifier that is an old word, or for an old part of a constant's name.
fn successor(identifier: &str) -> Option<&'static str> {
    let is_constant = !identifier.contains(|c: char| c.is_lowercase());
    let is_part = |old: &str| is_constant && identifier.split('_').any(|part| part == old);
    let word = OLD_WORDS.iter().find(|(old, _)| *old == identifier);
    word.or_else(|| OLD_PARTS.iter().find(|(old, _)| is_part(old))).map(|(_, new)| *new)
}

#[test]
fn old_words_are_found_in_names_of_constants() {
    let rows = [
        ("pitch", Some("row_stride")),
        ("MOST_STEPS", Some("MAX")),
        ("STEPS_AT_MOST", Some("MAX")),
        ("ALMOST", None),
        ("feed_forward", None),
        ("row_stride", None),
    ];
    let found = rows.map(|(identifier, _)| (identifier, successor(identifier)));
    assert_eq!(found, rows);
}

/// The names of the types that the tokens declare; associated types are none, nor are names that a macro
/// makes up.
fn declared_types(tokens: &[String]) -> Vec<String> {
    const ITEMS: [&str; 9] = ["impl", "trait", "fn", "mod", "struct", "enum", "union", "type", "macro_rules"];
    let mut names = Vec::new();
    // For each open block, whether associated types stand in it; and the keyword that began the present item.
    let (mut blocks, mut item) = (Vec::new(), "");
    // Open brackets, in which a `;` ends no item: that of the type `[u8; 4]`.
    let mut brackets = 0usize;
    for at in 0..tokens.len() {
        let word = token(tokens, at);
        match word {
            "{" => blocks.push(["impl", "trait"].contains(&std::mem::take(&mut item))),
            "}" => {
                blocks.pop();
                item = "";
            }
            "[" => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            ";" if brackets == 0 => item = "",
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
        ("associated types of arrays", "impl<const N: usize> A for [u8; N] { type B = u8; }", &[]),
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
        (
            "super within the layer",
            "use super::op::Op; mod inner { use super::super::row::Row; use self::a::A; }",
            &["graph::op::Op", "graph::row::Row", "graph::json::inner::a::A"],
        ),
        (
            "the own module",
            "use self::a::A; fn f() { self::b::f() }",
            &["graph::json::a::A", "graph::json::b::f"],
        ),
        ("other crates", "use std::fmt; use rayon::{self, Scope}; fn f() { std::mem::take(x) }", &[]),
        ("out of an inline module", "mod inner { fn f() { super::super::super::plan::f() } }", &["plan::f"]),
        ("comments", "// crate::a::B\n/* crate::c /* crate::d */ crate::e */ /// [x](crate::f)\n", &[]),
        ("strings", r####"f("crate::a \" crate::b", r#"" crate::c"#, b"crate::d", 'x', '\'')"####, &[]),
        ("lifetimes", "fn f<'a>(x: &'a crate::plan::Plan) -> &'static str", &["plan::Plan"]),
        ("tests", "#[cfg(test)] #[allow(x)] mod tests { use crate::a::B; } use crate::c::D;", &["c::D"]),
        ("a test's import", "#[cfg(test)] use crate::{a::B}; #[cfg(unix)] use crate::c::D;", &["c::D"]),
    ];
    let mut faults = Vec::new();
    for (what, code, expected) in rows {
        let found = crate_paths(&without_tests(tokens(code)), "graph::json");
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

/// The names that the layers use of each other, tests aside.
fn imports() -> Vec<Import> {
    let mut imports = Vec::new();
    for (file, tokens) in sources() {
        let layer = first(file.trim_end_matches(".rs").split('/').next().unwrap_or_default()).to_owned();
        // A file of tests may name any layer, as tests within a file may.
        if layer == "lib" || is_of_tests(&file) {
            continue;
        }
        let paths = crate_paths(&without_tests(tokens), &module_of(&file));
        imports.extend(paths.into_iter().filter(|path| first(path) != layer).map(|path| Import {
            file: file.clone(),
            layer: layer.clone(),
            path,
        }));
    }
    imports
}

/// True if a file, or a folder above it, is called `tests`.
fn is_of_tests(file: &str) -> bool {
    file.trim_end_matches(".rs").split('/').any(|part| part == "tests")
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
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Cuts Rust into words, `::`, `""` for any literal, and single signs; comments are gone, but those of
/// documentation are attributes.
fn tokens(code: &str) -> Vec<String> {
    let stream = code.parse().unwrap_or_else(|error| panic!("{error} in {code}"));
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    let mut is_joint_colon = false;
    for tree in stream {
        let after_colon = std::mem::take(&mut is_joint_colon);
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(open.to_owned());
                flatten(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            TokenTree::Ident(word) => tokens.push(word.to_string()),
            TokenTree::Literal(_) => tokens.push("\"\"".to_owned()),
            TokenTree::Punct(sign) if sign.as_char() == ':' && after_colon => {
                tokens.pop();
                tokens.push("::".to_owned());
            }
            TokenTree::Punct(sign) => {
                is_joint_colon = sign.as_char() == ':' && sign.spacing() == Spacing::Joint;
                tokens.push(sign.to_string());
            }
        }
    }
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

/// The module that a file of a crate is, as a path from the crate root.
fn module_of(file: &str) -> String {
    let parts = file.trim_end_matches(".rs").split('/');
    let parts: Vec<&str> = parts.filter(|part| !["mod", "lib", "main"].contains(part)).collect();
    parts.join("::")
}

/// A path in the code of a module.
struct Mention {
    path: String,
    /// The path starts at a name of the module; otherwise, at the crate root.
    is_relative: bool,
    /// The name that an import gives to the thing.
    import: Option<String>,
    is_public: bool,
}

impl Mention {
    /// The path from the crate root, if the module's names lead to one.
    fn absolute(&self, names: &BTreeMap<&str, String>) -> Option<String> {
        let start = first(&self.path);
        match self.is_relative {
            true => names.get(start).map(|path| format!("{path}{}", &self.path[start.len()..])),
            false => Some(self.path.clone()),
        }
    }
}

/// The paths from the crate root that the code of a module names.
fn crate_paths(tokens: &[String], module: &str) -> Vec<String> {
    let mentions = mentions(tokens, module).into_iter().filter(|mention| !mention.is_relative);
    mentions.map(|mention| mention.path).collect()
}

/// The paths in the code of a module, in order.
fn mentions(tokens: &[String], module: &str) -> Vec<Mention> {
    let mut mentions = Vec::new();
    // For each open block, the name of the module whose body it is.
    let mut blocks: Vec<Option<&str>> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_import = token(tokens, at) == "use";
        let is_path = token(tokens, at + 1) == "::" && (at == 0 || token(tokens, at - 1) != "::");
        match token(tokens, at) {
            _ if is_import || is_path => {
                let is_public = is_import && at > 0 && ["pub", ")"].contains(&token(tokens, at - 1));
                let mut paths = Vec::new();
                at = read_tree(tokens, at + usize::from(is_import), "", &mut paths);
                let inner = blocks.iter().flatten().copied();
                let module: Vec<&str> =
                    module.split("::").filter(|part| !part.is_empty()).chain(inner).collect();
                mentions.extend(paths.into_iter().map(|(path, name)| {
                    let absolute = from_root(&path, &module);
                    let is_relative = absolute.is_none();
                    let path = absolute.unwrap_or(path);
                    Mention { path, is_relative, import: is_import.then_some(name), is_public }
                }));
                continue;
            }
            "{" => blocks.push((at >= 2 && tokens[at - 2] == "mod").then(|| token(tokens, at - 1))),
            "}" => {
                blocks.pop();
            }
            _ => {}
        }
        at += 1;
    }
    mentions
}

/// A path that begins with `crate`, `self` or `super`, from the crate root.
fn from_root(path: &str, module: &[&str]) -> Option<String> {
    let parts: Vec<&str> = path.split("::").collect();
    let supers = parts.iter().take_while(|part| **part == "super").count();
    let (base, rest) = match parts[0] {
        "crate" => (&[][..], &parts[1..]),
        "self" => (module, &parts[1..]),
        "super" => (&module[..module.len().saturating_sub(supers)], &parts[supers..]),
        _ => return None,
    };
    Some([base, rest].concat().join("::"))
}

/// Reads a path, or a tree of them, that goes on behind `prefix`: each with the name that an import gives to
/// it. Answers with the place behind it.
fn read_tree(tokens: &[String], mut at: usize, prefix: &str, paths: &mut Vec<(String, String)>) -> usize {
    if token(tokens, at) == "{" {
        at += 1;
        while !["}", ""].contains(&token(tokens, at)) {
            at = read_tree(tokens, at, prefix, paths);
            at += usize::from(token(tokens, at) == ",");
        }
        return at + 1;
    }
    let segment = token(tokens, at);
    let path = match (prefix, segment) {
        ("", _) => segment.to_owned(),
        (_, "self") => prefix.to_owned(),
        (_, _) => format!("{prefix}::{segment}"),
    };
    if token(tokens, at + 1) == "::" && token(tokens, at + 2) != "<" {
        return read_tree(tokens, at + 2, &path, paths);
    }
    let is_renamed = token(tokens, at + 1) == "as";
    let name = if is_renamed { token(tokens, at + 2) } else { path.rsplit("::").next().unwrap_or_default() };
    let name = name.to_owned();
    paths.push((path, name));
    at + if is_renamed { 3 } else { 1 }
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
