//! Promise: the environment variable `STERNA_MAX_CPU_ISA` caps the level of the kernels, and nothing exceeds the
//! machine.

use std::process::Command;

use sterna::{Engine, Level};

/// What a process of this test's own says of its level when the variable has a value.
fn level_under(cap: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "says_its_level", "--nocapture"])
        .env("STERNA_MAX_CPU_ISA", cap)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, said) = text.split_once("level of this process: ").unwrap();
    said.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn says_its_level() {
    println!("level of this process: {}", Engine::new().level());
    assert_eq!(Engine::new().level(), Level::available());
}

#[test]
fn the_variable_caps_the_level() {
    // What the machine has, whatever this very process is told.
    let machine: Level = level_under("avx512").parse().unwrap();
    let wrong: Vec<_> = Level::ALL
        .iter()
        .map(|&cap| (cap, level_under(cap.name())))
        .filter(|(cap, said)| said != machine.min(*cap).name())
        .collect();
    assert!(wrong.is_empty(), "on a machine of level {machine}: {wrong:?}");
}

#[test]
fn another_value_is_ignored() {
    assert_eq!(level_under("sse9"), level_under("avx512"));
    assert_eq!(level_under(""), level_under("avx512"));
}

#[test]
fn an_engine_takes_no_more_than_is_available() {
    for &level in Level::ALL {
        assert_eq!(Engine::builder().max_level(level).build().level(), level.min(Level::available()));
    }
}
