//! Measures of the text of sources, which rustfmt has laid out: lengths of functions and files, and how
//! comments begin.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose functions and files are measured.
const MEASURED: &[&str] = &["src", "capi", "cli", "import", "inspect", "python"];

/// Further folders whose comments are read.
const COMMENTED: &[&str] = &["benches", "examples", "fuzz", "tests"];

const FUNCTION_LINES: usize = 80;
const FILE_LINES: usize = 700;

/// Begins of comments that ask a question in place of a statement.
const QUESTIONS: &[&str] = &["What ", "Whether "];

#[test]
fn functions_and_files_are_short() {
    let mut faults = Vec::new();
    for (file, text) in texts(MEASURED) {
        let lines = without_data(&text);
        if lines.len() > FILE_LINES {
            faults.push(format!("{file}: {} lines, at most {FILE_LINES}", lines.len()));
        }
        let functions = functions(&lines).into_iter().filter(|function| function.lines > FUNCTION_LINES);
        faults.extend(functions.map(|Function { name, line, lines }| {
            format!("{file}:{line}: `{name}` has {lines} lines, at most {FUNCTION_LINES}")
        }));
    }
    super::report(&faults);
}

#[test]
fn comments_are_statements() {
    let mut faults = Vec::new();
    for (file, text) in texts(&[MEASURED, COMMENTED].concat()) {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| is_question(line)) {
            faults.push(format!("{file}:{}: {}", number + 1, line.trim()));
        }
    }
    super::report(&faults);
}

#[test]
fn the_measures_are_those_of_the_text() {
    let text = "\
/// Whatever.
fn of_two() {
}

impl A {
    pub(crate) const unsafe fn of_four(
        &self,
    ) -> usize {
    }

    fn declared(&self) -> usize;

    pub(in crate::module) fn with_data() {
        const ROWS: &[usize] = &[
            1,
        ];
        fn inner() {}
    }
}
";
    let lines = without_data(text);
    let functions = functions(&lines).into_iter();
    let found: Vec<_> = functions.map(|Function { name, line, lines }| (name, line, lines)).collect();
    let expected = [("of_two", 2, 2), ("of_four", 6, 4), ("with_data", 13, 3), ("inner", 17, 1)];
    assert_eq!(found, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
    for mark in ["//", "    ///", "//!"] {
        let questions = ["What it is", "Whether it is", "Whatever it is", "is What"]
            .map(|text| is_question(&format!("{mark} {text}")));
        assert_eq!(questions, [true, true, false, false], "{mark}");
    }
}

/// The path from the root and the text of each source of some folders.
fn texts(folders: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = Vec::new();
    folders.iter().for_each(|folder| super::collect(&root.join(folder), &mut files));
    files.sort();
    assert!(files.len() > folders.len(), "there are few sources in {folders:?}");
    let name = |file: &Path| file.strip_prefix(root).expect("the root holds it").display().to_string();
    files.iter().map(|file| (name(file), fs::read_to_string(file).expect("a source is text"))).collect()
}

fn is_question(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment);
    comment.strip_prefix(' ').is_some_and(|text| QUESTIONS.iter().any(|word| text.starts_with(word)))
}

/// The numbered lines of a text, but for constants of several lines, which are rows of data.
fn without_data(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut end: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match &end {
            Some(last) if line.starts_with(last) => end = None,
            Some(_) => {}
            None => {
                let item = line.split_whitespace().find(|word| !word.starts_with("pub"));
                let is_constant = item.is_some_and(|word| ["const", "static"].contains(&word));
                match is_constant && line.ends_with('[') {
                    true => end = Some(format!("{}]", indent(line))),
                    false => lines.push((number, line)),
                }
            }
        }
    }
    lines
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// The functions that have a body: each ends with the first brace in the column where it begins.
fn functions(lines: &[(usize, &str)]) -> Vec<Function> {
    let mut functions = Vec::new();
    for (at, &(line, text)) in lines.iter().enumerate() {
        let Some(name) = function_name(text) else { continue };
        let margin = indent(text);
        let is_last = |text: &str| {
            let rest = text.strip_prefix(margin).unwrap_or_default();
            rest.starts_with('}') || !rest.starts_with(' ') && rest.ends_with(['}', ';'])
        };
        let Some(length) = lines[at..].iter().position(|(_, text)| is_last(text)) else { continue };
        if !lines[at + length].1.ends_with(';') {
            functions.push(Function { name: name.to_owned(), line, lines: length + 1 });
        }
    }
    functions
}

fn function_name(line: &str) -> Option<&str> {
    let is_qualifier = |word: &&str| {
        ["const", "async", "unsafe", "extern", "$abi", "default"].contains(word)
            || word.starts_with("pub")
            || word.starts_with('"')
            // The path of `pub(in crate::path)`.
            || word.ends_with(')') && !word.contains('(')
    };
    let mut words = line.split_whitespace().skip_while(is_qualifier);
    (words.next() == Some("fn")).then(|| words.next()).flatten()?.split(['(', '<']).next()
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}
