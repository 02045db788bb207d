//! Promise: the command line explains itself: help, completions, manual pages, and no colours where nobody
//! sees them.

use std::fs;
use std::process::Command;

use crate::common::{Room, graph, none_of, op, sterna, tensor};

const COMMANDS: &[&str] = &["run", "inspect", "batch", "convert", "ops", "completions", "man"];

#[test]
fn help_shows_examples_and_exit_codes() {
    let mut wrong = Vec::new();
    let version = sterna(&["--version"]);
    assert_eq!((version.code, version.err.as_str()), (0, ""));
    let of_commands = COMMANDS.iter().map(|command| vec![*command, "--help"]);
    for args in of_commands.chain([vec!["--help"]]) {
        let ended = sterna(&args);
        let has = |text: &str| ended.out.contains(text);
        let is_fine = ended.code == 0
            && ended.err.is_empty()
            && has("Exit codes:\n  0  all is well\n  1  ")
            && has(&format!("Examples:\n  sterna {}", if args.len() > 1 { args[0] } else { "" }))
            && (args.len() > 1 || COMMANDS.iter().all(|command| has(&format!("\n  {command} "))));
        if !is_fine {
            wrong.push(format!("{args:?}: {} {} {}", ended.code, ended.out, ended.err));
        }
    }
    none_of(wrong);
}

/// The most lines of the help of `-h`, which is 100 columns wide if nobody says how wide the terminal is.
const SCREEN: usize = 50;

#[test]
fn short_help_is_one_screen_of_every_option() {
    let mut wrong = Vec::new();
    // An option stands at the beginning of a line, its long name in one column.
    let names = |text: &str| -> Vec<String> {
        let long = |line: &str| {
            Some(line.strip_prefix("      ").or_else(|| line.get(6..))?.strip_prefix("--")?.to_owned())
        };
        let options = text
            .lines()
            .filter(|line| line.starts_with("      --") || line.starts_with("  -"))
            .filter_map(long);
        options.map(|rest| rest.split([' ', ',', '=']).next().unwrap_or_default().to_owned()).collect()
    };
    for command in COMMANDS.iter().chain(&["bench"]) {
        let (short, long) = (sterna(&[command, "-h"]), sterna(&[command, "--help"]));
        let lines = short.out.lines().count();
        let all = names(&long.out);
        let missing: Vec<&String> = all.iter().filter(|name| !names(&short.out).contains(name)).collect();
        let has_more = short.out.contains(&format!("sterna {command} --help"));
        if short.code != 0 || lines > SCREEN || !missing.is_empty() || !has_more || all.is_empty() {
            wrong.push(format!("{command}: {lines} lines without {missing:?}: {}", short.out));
        }
    }
    none_of(wrong);
}

/// The paragraphs of the help fill the lines of a terminal of any width.
#[test]
fn paragraphs_are_broken_where_the_terminal_ends() {
    let mut wrong = Vec::new();
    for (command, first) in [("bench", "How it measures:"), ("batch", "Each --case=GRAPH")] {
        for width in [70usize, 100] {
            let mut sterna = Command::new(env!("CARGO_BIN_EXE_sterna"));
            let output = sterna.args([command, "--help"]).env("COLUMNS", width.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let from = text.find(first).unwrap_or(text.len());
            let lines: Vec<&str> = text[from..].lines().take_while(|line| *line != "Examples:").collect();
            // A line ends early only if the next word is too long for it, or at the end of a paragraph.
            let is_short = |pair: &[&str]| {
                let word = pair[1].split(' ').next().unwrap_or_default();
                !pair[0].is_empty()
                    && !word.is_empty()
                    && pair[0].chars().count() + 1 + word.chars().count() <= width
            };
            wrong.extend(
                lines.windows(2).filter(|pair| is_short(pair)).map(|pair| format!("{command}: {pair:?}")),
            );
            if lines.len() < 5 {
                wrong.push(format!("{command}: {text}"));
            }
        }
    }
    none_of(wrong);
}

#[test]
fn shells_and_manuals_know_every_command() {
    let mut wrong = Vec::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = sterna(&["completions", shell]);
        let is_fine = ended.code == 0 && COMMANDS.iter().all(|command| ended.out.contains(command));
        if !is_fine || !ended.out.contains("override-shape") {
            wrong.push(format!("{shell}: {} {}", ended.code, ended.out));
        }
    }
    let room = Room::new();
    let (page, pages) = (sterna(&["man"]), room.path("man/man1"));
    assert_eq!(sterna(&["man", &pages]).code, 0);
    let written =
        |name: &str| fs::read_to_string(room.path(&format!("man/man1/{name}.1"))).unwrap_or_default();
    if page.code != 0 || page.out != written("sterna") || !page.out.contains(".TH sterna 1") {
        wrong.push(format!("man: {} {}", page.code, page.out));
    }
    for command in COMMANDS {
        if !written(&format!("sterna-{command}")).contains(".SH NAME") {
            wrong.push(format!("no page for {command}"));
        }
    }
    // A file stands where the folder would be.
    let file = room.write("file", "");
    assert_eq!(sterna(&["man", &file]).code, 2);
    none_of(wrong);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let said = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sterna"));
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
            command.env_remove(name);
        }
        let output = command.args(args).envs(variables.iter().copied()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    // Variables, and whether there are colours where standard error is no terminal.
    let rows: &[(&[(&str, &str)], bool)] = &[
        (&[], false),
        (&[("NO_COLOR", "1")], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "")], true),
        (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
    ];
    let room = Room::new();
    let reduce = op(0, "Wildcard", vec![tensor(0, "f32", &[4])], vec![tensor(1, "f32", &[4])]);
    let select = op(
        1,
        "Select",
        vec![tensor(2, "boolean", &[4]), tensor(1, "f32", &[4]), tensor(3, "f32", &[4])],
        vec![tensor(4, "f32", &[4])],
    );
    let graph = room.write("graph.json", graph(vec![reduce, select]));
    // Calls, and the coloured parts of their output.
    let said_in_colour: [(&[&str], &[&str]); 3] = [
        (&["run", "no such file"], &["\u{1b}[31m"]),
        (
            &["run", &graph, "--check"],
            &[
                "\u{1b}[33mnot supported\u{1b}[0m",
                "\u{1b}[32mtensor 4 (dst): all 4 elements equal the reference",
            ],
        ),
        (&["inspect", &graph], &["partition 1: 1 op\u{1b}[0m"]),
    ];
    let mut wrong = Vec::new();
    for (args, colours) in said_in_colour {
        for (variables, expected) in rows {
            let text = said(args, variables);
            let has_all = colours.iter().all(|colour| text.contains(colour));
            if text.contains('\u{1b}') != *expected || has_all != *expected {
                wrong.push(format!("{args:?} {variables:?}: {text:?}"));
            }
        }
    }
    // Data is never coloured.
    for form in ["json", "csv", "markdown"] {
        let text = said(&["run", &graph, "--check", "--format", form], &[("CLICOLOR_FORCE", "1")]);
        let data = text.split("\u{1b}[").next().unwrap_or_default();
        // The note on standard error comes last.
        if !text.contains("Select") || !data.contains("Select") {
            wrong.push(format!("{form}: {text:?}"));
        }
    }
    none_of(wrong);
}
