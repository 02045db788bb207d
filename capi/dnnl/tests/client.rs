//! A client compiled against upstream's own headers, linked once, run on the stand-in and on oneDNN.
//!
//! `STERNA_ONEDNN` names a folder with `include` (the package `onednn-devel` on PyPI) and, to compare with
//! oneDNN itself, `lib` (the package `onednn`). Without it these tests say that they were skipped.
//! `STERNA_REWRITE=1` writes what the stand-in answers to `tests/data/client.txt`.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

const ANSWERS: &str = "tests/data/client.txt";

/// Upstream's folder, the client, and the folder of the stand-in that it was linked to.
struct Built {
    upstream: PathBuf,
    client: PathBuf,
    libraries: PathBuf,
}

fn built() -> Option<&'static Built> {
    static BUILT: OnceLock<Option<Built>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let upstream = PathBuf::from(env::var_os("STERNA_ONEDNN")?);
            let libraries = support::laid_out("client");
            let client = libraries.join("client");
            let sources = here("tests/client");
            let mut command = support::compiler("CXX", "c++");
            command.args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-isystem"]);
            command.arg(upstream.join("include"));
            for entry in fs::read_dir(sources).expect("the client has sources") {
                let path = entry.expect("the client has sources").path();
                if path.extension().is_some_and(|extension| extension == "cpp") {
                    command.arg(path);
                }
            }
            command.arg(support::search(&libraries)).args(["-ldnnl", "-o"]).arg(&client);
            support::succeed(&mut command);
            Some(Built { upstream, client, libraries })
        })
        .as_ref()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The client's lines, without those that a library writes by itself.
fn lines(command: &mut Command) -> Vec<String> {
    let said = support::succeed(command);
    said.lines().filter(|line| !line.contains("_verbose,")).map(str::to_owned).collect()
}

fn answers_of_the_stand_in(built: &Built) -> Vec<String> {
    lines(&mut support::program(&built.client, &built.libraries))
}

#[test]
fn the_stand_in_answers_as_it_promises() {
    let Some(built) = built() else {
        return support::skipped("the_stand_in_answers_as_it_promises", "STERNA_ONEDNN names no folder");
    };
    let answers = answers_of_the_stand_in(built);
    let wrong = ["the process died", "elements wrong", "an exception that is not"];
    let wrong: Vec<_> =
        answers.iter().filter(|line| wrong.iter().any(|words| line.contains(words))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(here(ANSWERS), answers.join("\n") + "\n").expect("the answers can be written");
    }
    let expected = fs::read_to_string(here(ANSWERS)).expect("the answers are there");
    let expected: Vec<_> = expected.lines().collect();
    let different: Vec<_> =
        pairs(&expected, &answers).into_iter().filter(|(expected, answer)| expected != answer).collect();
    assert!(different.is_empty(), "expected and answered: {different:#?}");
}

#[test]
fn what_upstream_declares_is_exported() {
    let Some(built) = built() else {
        return support::skipped("what_upstream_declares_is_exported", "STERNA_ONEDNN names no folder");
    };
    let exported = include_str!("data/exports.txt");
    let mut missing = Vec::new();
    for header in ["dnnl_graph.h", "dnnl_common.h", "dnnl.h"] {
        let text = fs::read_to_string(built.upstream.join("include/oneapi/dnnl").join(header))
            .expect("upstream's header is text");
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let functions: Vec<_> = code.iter().filter_map(|line| declared(line)).collect();
        assert!(functions.len() > 10, "{header} declares functions");
        let is_missing = |name: &&str| !exported.lines().any(|line| line == *name);
        missing.extend(functions.into_iter().filter(is_missing).map(str::to_owned));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The function that a line of a header declares.
fn declared(line: &str) -> Option<&str> {
    let (_, behind) = line.split_once("DNNL_API ")?;
    let name = behind.trim_start_matches('*').split('(').next()?;
    name.starts_with("dnnl_").then_some(name)
}

/// Every answer that differs from oneDNN's is a row of the README's table, and every row is a difference.
#[test]
fn differences_from_onednn_are_the_ones_known() {
    let test = "differences_from_onednn_are_the_ones_known";
    let Some(built) = built() else { return support::skipped(test, "STERNA_ONEDNN names no folder") };
    let theirs = built.upstream.join("lib");
    if !theirs.join("libdnnl.so.3").exists() {
        return support::skipped(test, "STERNA_ONEDNN holds no lib/libdnnl.so.3");
    }
    let mut upstream = support::program(&built.client, &theirs);
    // The wheel of oneDNN runs on SYCL, whose CPU device is a library beside it that has to be named.
    upstream.env("OCL_ICD_FILENAMES", theirs.join("libintelocl.so"));
    let upstream = lines(&mut upstream);
    if upstream.iter().any(|line| line == "engine cpu 0: invalid_arguments") {
        return support::skipped(test, "oneDNN finds no CPU device here");
    }
    let ours = answers_of_the_stand_in(built);
    let readme = fs::read_to_string(here("README.md")).expect("the README is text");
    let table: Vec<_> = readme.lines().filter_map(Row::read).collect();
    let (mut used, mut faults) = (vec![false; table.len()], Vec::new());
    for (ours, theirs) in pairs(&ours, &upstream).into_iter().filter(|(ours, theirs)| ours != theirs) {
        match table.iter().position(|row| row.covers(&ours, &theirs)) {
            Some(row) => used[row] = true,
            None => faults.push(format!("not in the table:\n    here:   {ours}\n    oneDNN: {theirs}")),
        }
    }
    for (row, _) in
        table.iter().zip(&used).filter(|(row, used)| !**used && !row.why.starts_with("on some machines"))
    {
        faults.push(format!("no longer a difference: {row:?}"));
    }
    assert!(faults.is_empty(), "{} of {} lines\n{}", faults.len(), ours.len(), faults.join("\n"));
}

/// A row of the table of differences: `| check | here | oneDNN | why |`, each but the last in backticks, `*`
/// for any text.
#[derive(Debug)]
struct Row<'a> {
    check: &'a str,
    here: &'a str,
    upstream: &'a str,
    why: &'a str,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let cells: Vec<_> = line.trim().strip_prefix('|')?.split('|').map(str::trim).collect();
        let code = |cell: &'a str| cell.strip_prefix('`')?.strip_suffix('`');
        let [check, here, upstream, why, ""] = cells[..] else { return None };
        Some(Self { check: code(check)?, here: code(here)?, upstream: code(upstream)?, why })
    }

    fn covers(&self, ours: &str, theirs: &str) -> bool {
        let [(name, here), (_, upstream)] = [split(ours), split(theirs)];
        fits(self.check, name) && fits(self.here, here) && fits(self.upstream, upstream)
    }
}

/// A line is a name and what was answered. The last `: ` parts them, for names hold some, too.
fn split(line: &str) -> (&str, &str) {
    line.rsplit_once(": ").unwrap_or((line, ""))
}

/// True if a text is the pattern's, in which one `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

/// The lines of two runs side by side, by name; a line that one run lacks is beside `name: nothing`.
fn pairs<A: AsRef<str>, B: AsRef<str>>(left: &[A], right: &[B]) -> Vec<(String, String)> {
    let names = |lines: Vec<&str>| -> Vec<(String, String)> {
        let mut seen = std::collections::HashMap::new();
        let name = |line: &str| {
            let name = split(line).0.to_owned();
            let turn: &mut usize = seen.entry(name.clone()).or_default();
            *turn += 1;
            (format!("{name} #{turn}"), line.to_owned())
        };
        lines.into_iter().map(name).collect()
    };
    let left = names(left.iter().map(AsRef::as_ref).collect());
    let right = names(right.iter().map(AsRef::as_ref).collect());
    let find = |lines: &[(String, String)], key: &str| {
        lines.iter().find(|(name, _)| name == key).map(|(_, line)| line.clone())
    };
    let nothing = |line: &str| format!("{}: nothing", split(line).0);
    let mut pairs: Vec<_> = left
        .iter()
        .map(|(key, line)| (line.clone(), find(&right, key).unwrap_or_else(|| nothing(line))))
        .collect();
    let only_right = right.iter().filter(|(key, _)| find(&left, key).is_none());
    pairs.extend(only_right.map(|(_, line)| (nothing(line), line.clone())));
    pairs
}
