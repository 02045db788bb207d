//! Promise: each command of the README that calls `sterna` works as it is printed, one after the other, in
//! the root of a clone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Room, none_of};

/// The beginning of a line of the README that calls the command line.
const CALL: &str = "cargo sterna ";

/// The lines of its blocks of commands.
fn commands(readme: &str) -> Vec<&str> {
    let mut is_inside = false;
    let lines = readme.lines().filter(|line| {
        if line.starts_with("```") {
            is_inside = matches!(*line, "```console" | "```sh");
        }
        is_inside && line.starts_with(CALL)
    });
    lines.collect()
}

#[test]
fn commands_of_the_readme_work_as_they_are_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let room = Room::new();
    let mut wrong = Vec::new();
    let commands = commands(&readme);
    for command in &commands {
        // Files go to a folder of the test, and nobody waits for figures.
        let args = command[CALL.len()..].replace("target/", &room.path(""));
        let quick = if args.starts_with("bench") { " --time 0.001" } else { "" };
        let line = format!("\"$STERNA\" {args}{quick}");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &line])
            .env("STERNA", env!("CARGO_BIN_EXE_sterna"))
            .current_dir(&root)
            .output()
            .unwrap();
        let code = output.status.code();
        // Of measurements that short, one may well be slower than the other.
        let is_judged_slower = args.contains("--fail-if-slower") && code == Some(1);
        if !(output.status.success() || is_judged_slower)
            || output.stdout.is_empty() && !args.contains(" -o ")
        {
            wrong.push(format!("{command}: {code:?} {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    assert!(commands.len() > 7, "{commands:?}");
    none_of(wrong);
}
