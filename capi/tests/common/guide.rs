//! The pages of the guide, and the blocks of code on them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where in the project the guide is.
const BOOK: &str = "docs";

/// A page of the guide.
#[derive(Debug)]
pub struct Page {
    /// Its path from the folder of the book on.
    pub path: String,
    pub text: String,
}

/// The text between two fences.
#[derive(Debug, Clone)]
pub struct Block {
    /// The page and the line of its opening fence, for messages.
    pub place: String,
    /// The word behind the opening fence.
    pub language: String,
    pub text: String,
    /// Its output: the block of language `output` behind it, if there is one.
    pub output: Option<String>,
    /// Lines of what it prints, with numbers of one machine: the block of language `plan` behind it, if there
    /// is one.
    pub plan: Option<String>,
}

/// The pages that the summary lists, in its order.
pub fn pages(repository: &Path) -> Vec<Page> {
    let book = repository.join(BOOK);
    let read = |path: &str| {
        fs::read_to_string(book.join(path)).unwrap_or_else(|error| panic!("{BOOK}/{path}: {error}"))
    };
    let summary = read("SUMMARY.md");
    let paths = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    paths.map(|path| Page { path: path.to_owned(), text: read(path) }).collect()
}

impl Page {
    /// The name of the page without folder and extension.
    pub fn name(&self) -> &str {
        Path::new(&self.path).file_stem().and_then(|name| name.to_str()).expect("pages have names")
    }

    /// The blocks of code; one of language `output` or `plan` belongs to the block before it.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut lines = self.text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else { continue };
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let text: String = inside.flat_map(|line| [line, "\n"]).collect();
            match blocks.last_mut() {
                Some(before) if language == "output" && before.output.is_none() => before.output = Some(text),
                Some(before) if language == "plan" && before.plan.is_none() => before.plan = Some(text),
                _ => blocks.push(Block {
                    place: format!("{}:{}", self.path, number + 1),
                    language: language.to_owned(),
                    text,
                    output: None,
                    plan: None,
                }),
            }
        }
        blocks
    }
}

impl Block {
    /// The file that the block is: what its first line names in a comment.
    pub fn file(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let comment = [("/* ", " */"), ("// ", ""), ("# ", "")];
        let name = comment.iter().find_map(|(open, close)| first.strip_prefix(open)?.strip_suffix(close))?;
        (name.contains('.') && !name.contains(char::is_whitespace)).then_some(name)
    }

    /// A sentence on the difference between the output of the block and the page, if there is one.
    pub fn printed(&self, found: &str) -> Option<String> {
        let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        let is_printed = self.output.as_ref().is_none_or(|expected| lines(expected) == lines(found));
        let mut left = found.lines().map(without_numbers);
        let mut has_line = |line: &str| line.trim() == "..." || left.any(|own| own == without_numbers(line));
        let has_plan = self.plan.as_ref().is_none_or(|plan| plan.lines().all(&mut has_line));
        let expected = [&self.output, &self.plan].map(|text| text.as_deref().unwrap_or_default()).concat();
        (!is_printed || !has_plan).then(|| format!("{}: printed\n{found}instead of\n{expected}", self.place))
    }
}

/// A line with each number as one sign: sizes of tiles depend on the machine.
fn without_numbers(line: &str) -> String {
    let mut kept = String::new();
    for c in line.trim_end().chars() {
        if !c.is_ascii_digit() {
            kept.push(c);
        } else if !kept.ends_with('#') {
            kept.push('#');
        }
    }
    kept
}

/// Follows a page: writes the files that it names to a folder of their own below `home`, and runs its
/// commands: those of cargo, and what comes before the first file, in the root of the project, the others in
/// that folder. Answers with what went wrong.
pub fn follow(page: &Page, repository: &Path, home: &Path, environment: &[(&str, PathBuf)]) -> Vec<String> {
    let folder = home.join(page.name());
    fs::create_dir_all(&folder).expect("the folder of a page can be made");
    let mut place = repository;
    let mut wrong = Vec::new();
    for block in page.blocks() {
        if let Some(file) = block.file() {
            fs::write(folder.join(file), &block.text).expect("a file of a page can be written");
            place = &folder;
        }
        if block.language != "sh" {
            continue;
        }
        // Cargo's commands are about the project, also where the reader has begun files.
        let here = if block.text.starts_with("cargo ") { repository } else { place };
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &block.text]).current_dir(here);
        let tools = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            if env::var_os(variable).is_none() {
                command.env(variable, tools.join(folder));
            }
        }
        command.env("HOME", home).env_remove("LD_LIBRARY_PATH").envs(environment.iter().cloned());
        // cargo-c and cargo take each other's builds for outdated.
        if block.text.starts_with("cargo cinstall") {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder");
            command.env("CARGO_TARGET_DIR", target.join("cargo-c"));
        }
        let output = command.output().expect("there is a shell");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            wrong.extend(block.printed(&text(&output.stdout)));
        } else {
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            wrong.push(format!("{}: {}\n{out}{err}", block.place, output.status));
        }
    }
    wrong
}
