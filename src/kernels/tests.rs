//! Which kernels have at level Neon the function of level Portable, and why.
//!
//! A body of [`shells`](super::isa::shells) that does not name its level is the same function at every level
//! without a body of its own; the compiler alone makes the difference.

use std::fs;
use std::path::{Path, PathBuf};

/// Why plain Rust serves a kernel at level Neon.
#[derive(Debug, Clone, Copy)]
enum Reason {
    /// It moves elements, which takes no arithmetic. Another body would pay by masked loads and stores, which
    /// the level does not have.
    Moves,
    /// It computes with integers and bits in loops that the compiler vectorises; no sum is behind a product.
    Integers,
    /// It compares floats in loops that the compiler vectorises; no sum is behind a product.
    Bounds,
    /// It multiplies or divides sums by numbers and adds nothing.
    Scales,
    /// It goes along rows, and calls what computes at the level.
    Calls,
}

/// Each file with the bodies that are the portable function at level Neon.
const PORTABLE_AT_NEON: &[(&str, &[(&str, Reason)])] = &[
    ("gemm/finite.rs", &[("finite_32", Reason::Integers), ("finite_16", Reason::Integers)]),
    ("gemm/integers.rs", &[("rows", Reason::Integers), ("scale", Reason::Scales)]),
    ("gemm/window_rows.rs", &[("rows", Reason::Moves)]),
    ("gemm/windows.rs", &[("columns", Reason::Moves)]),
    ("lookup.rs", &[("within", Reason::Integers)]),
    (
        "mask_scan.rs",
        &[("booleans", Reason::Integers), ("of_f32", Reason::Bounds), ("halves", Reason::Integers)],
    ),
    ("pointwise/driver.rs", &[("rows1", Reason::Calls), ("rows2", Reason::Calls)]),
    ("pointwise/indices.rs", &[("kernel", Reason::Integers)]),
    ("pointwise/is_kept.rs", &[("kernel", Reason::Integers)]),
    ("pointwise/nibbles.rs", &[("kernel", Reason::Integers)]),
    ("rows/pool.rs", &[("finish", Reason::Scales), ("parts", Reason::Moves)]),
    (
        "rows/pool_backward.rs",
        &[
            ("across", Reason::Bounds),
            ("down", Reason::Bounds),
            ("join", Reason::Moves),
            ("scatter", Reason::Integers),
        ],
    ),
    (
        "select/mod.rs",
        &[("blend", Reason::Moves), ("select_in_place", Reason::Moves), ("kernel", Reason::Integers)],
    ),
    (
        "select/moves.rs",
        &[
            ("copy_bytes", Reason::Moves),
            ("blend_rows_of_bytes", Reason::Moves),
            ("copied", Reason::Calls),
            ("filled", Reason::Moves),
            ("rows_blended", Reason::Calls),
        ],
    ),
    ("top_k.rs", &[("columns", Reason::Integers), ("rows", Reason::Integers), ("sorted", Reason::Integers)]),
];

#[test]
fn rows_of_level_neon_are_portable_functions_only_for_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
    let mut files = Vec::new();
    collect(&folder, &mut files);
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap().replace('\\', "/");
        // The macros themselves name no function.
        if !["tests.rs", "isa.rs", "by_width.rs"].contains(&&*name) {
            let code = fs::read_to_string(&file).unwrap();
            found.extend(bodies_without_level(&code).into_iter().map(|body| format!("{name}: {body}")));
        }
    }
    let mut listed: Vec<_> = PORTABLE_AT_NEON
        .iter()
        .flat_map(|(file, bodies)| bodies.iter().map(move |(body, _)| format!("{file}: {body}")))
        .collect();
    found.sort();
    listed.sort();
    let without_reason: Vec<_> = found.iter().filter(|body| !listed.contains(body)).collect();
    let gone: Vec<_> = listed.iter().filter(|body| !found.contains(body)).collect();
    assert!(
        without_reason.is_empty() && gone.is_empty(),
        "portable at level Neon without a reason: {without_reason:?}; listed, but not such: {gone:?}"
    );
}

#[test]
fn the_reader_finds_bodies_without_their_level() {
    let code = "
        shells! {
            I:
            // A comment that names I.
            fn with[U: Pod](x: U) { f::<I, U>(x) }
            fn without[const N: usize](x: [u8; N]) -> u8 { if N == 0 { 0 } else { g(x) } }
            fn wide[](x: u8) { g(x) } or { h::<I>(x) }
            fn level[]() { match I::LEVEL { _ => {} } }
        }
        static TABLE: T = kernel!((x: u8), generic::moves[true], avx512::moves[true]);
    ";
    assert_eq!(bodies_without_level(code), ["without", "wide", "moves"]);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            false => {}
        }
    }
}

/// The functions of `shells!` whose first body does not name the level, and the plain bodies of `kernel!`.
fn bodies_without_level(code: &str) -> Vec<String> {
    let lines = code.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("shells! {") {
        let block = group(&code[at..]);
        let (level, mut rest) = block.split_once(':').unwrap();
        while let Some((_, function)) = rest.split_once("fn ") {
            let name = &function[..function.find('[').unwrap()];
            // Behind the arguments, in which no brace stands.
            let arguments = &function[function.find('(').unwrap()..];
            let bodies = &arguments[arguments.find('{').unwrap()..];
            let body = group(bodies);
            let mut words = body.split(|c: char| !c.is_alphanumeric() && c != '_');
            if !words.any(|word| word == level.trim()) {
                found.push(name.to_owned());
            }
            let after = bodies[body.len() + 2..].trim_start();
            rest = match after.strip_prefix("or") {
                Some(wide) => &wide.trim_start()[group(wide).len() + 2..],
                None => after,
            };
        }
    }
    for (at, _) in code.match_indices("kernel!(") {
        // Behind the arguments, in which no path stands.
        let (_, path) = code[at..].split_once("::").unwrap();
        found.push(path[..path.find('[').unwrap()].to_owned());
    }
    found
}

/// The text in the first pair of braces.
fn group(code: &str) -> &str {
    let start = code.find('{').unwrap() + 1;
    let mut depth = 0;
    let end = code[start..].find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth < 0
    });
    &code[start..start + end.unwrap()]
}
