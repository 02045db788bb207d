//! Promise: each command of the README, and of the page on the command line, that calls `sterna` works as it
//! is printed, one after the other, in the root of a clone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Room, none_of};

/// The pages, from the root on.
const PAGES: [&str; 2] = ["README.md", "docs/command-line.md"];

/// The beginning of a line that calls the command line.
const CALL: &str = "cargo sterna ";

/// The lines of its blocks of commands.
fn commands(page: &str) -> Vec<&str> {
    let mut is_inside = false;
    let lines = page.lines().filter(|line| {
        if line.starts_with("```") {
            is_inside = matches!(*line, "```console" | "```sh");
        }
        is_inside && line.starts_with(CALL)
    });
    lines.collect()
}

#[test]
fn commands_of_the_pages_work_as_they_are_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = PAGES.map(|page| fs::read_to_string(root.join(page)).unwrap());
    let room = Room::new();
    let mut wrong = Vec::new();
    let commands: Vec<&str> = pages.iter().flat_map(|page| commands(page)).collect();
    for command in &commands {
        // Files go to a folder of the test, and nobody waits for figures.
        let args =
            command[CALL.len()..].replace("target/", &room.path("")).replace("--time 0.1", "--time 0.001");
        let line = format!("\"$STERNA\" {args}");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &line])
            .env("STERNA", env!("CARGO_BIN_EXE_sterna"))
            .current_dir(&root)
            .output()
            .unwrap();
        if !output.status.success() || output.stdout.is_empty() && !args.contains(" -o ") {
            let code = output.status.code();
            wrong.push(format!("{command}: {code:?} {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert!(commands.len() > 7, "{commands:?}");
    none_of(wrong);
}
