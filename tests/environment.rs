//! Promise: environment variables cap the threads of every engine, Sterna's own before OpenMP's; and a
//! program caps the CPU level until it is in use.

mod common;

use std::process::Command;

#[cfg(feature = "threads")]
use common::report;
use sterna::{CpuFeatures, CpuIsa, Engine, Level};

/// Tells a process of this very test what to print.
const ASKED: &str = "STERNA_TEST_ASKED";

/// Runs this test binary again under the variables given, and reads what it prints behind `answer=`.
fn ask(question: &str, variables: &[(&str, &str)]) -> String {
    asked(question, variables).0
}

/// The same, and what the process says on standard error.
fn asked(question: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "answers", "--nocapture"]).env(ASKED, question);
    for name in ["STERNA_NUM_THREADS", "OMP_NUM_THREADS", "STERNA_MAX_CPU_ISA"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.split("answer=").nth(1).and_then(|rest| rest.lines().next());
    let answer = answer.unwrap_or_else(|| panic!("no answer in {text:?}")).to_owned();
    (answer, String::from_utf8(output.stderr).unwrap())
}

/// The part of the other tests that runs in a process of its own.
#[test]
fn answers() {
    match std::env::var(ASKED).as_deref() {
        #[cfg(feature = "threads")]
        Ok("threads") => {
            let pool = std::sync::Arc::new(rayon::ThreadPoolBuilder::new().num_threads(6).build().unwrap());
            let engines = [
                Engine::builder().threads(8).build(),
                Engine::builder().threads(0).build(),
                Engine::builder().pool(pool).build(),
            ];
            println!("answer={:?}", engines.map(|engine| engine.threads()));
        }
        Ok("level") => {
            let first = Level::cap(Level::Portable) && Level::cap(Level::Avx2.min(Level::Portable));
            let level = Engine::new().level();
            println!("answer={first} {level} {}", Level::cap(Level::Avx512));
        }
        Ok("again") => {
            let levels = [0; 3].map(|_| Engine::builder().threads(2).build().level());
            println!("answer={}", levels.iter().all(|level| *level == Level::available()));
        }
        Ok("features") => {
            let first = Level::cap(CpuIsa::Avx512Bf16) && Level::cap(Level::Avx512);
            let beyond = CpuFeatures::available().is_subset_of(CpuIsa::Avx512.features());
            println!(
                "answer={first} {beyond} {} {}",
                CpuIsa::effective().features().is_subset_of(CpuIsa::Avx512.features()),
                Level::cap(CpuIsa::Avx2)
            );
        }
        _ => {}
    }
}

#[test]
fn a_value_that_is_not_taken_is_said_once() {
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        (&[], &[]),
        (&[("STERNA_MAX_CPU_ISA", "")], &[]),
        (&[("STERNA_MAX_CPU_ISA", "portable"), ("STERNA_NUM_THREADS", "1")], &[]),
        (
            &[("STERNA_MAX_CPU_ISA", "avx1024")],
            &["STERNA_MAX_CPU_ISA is \"avx1024\"; it takes portable, avx2,"],
        ),
        #[cfg(feature = "threads")]
        (
            &[("STERNA_NUM_THREADS", "banana"), ("OMP_NUM_THREADS", "many")],
            &["STERNA_NUM_THREADS is \"banana\"; it takes a whole", "OMP_NUM_THREADS is \"many\"; it takes"],
        ),
    ];
    let mut wrong = Vec::new();
    for (variables, said) in rows {
        let (_, err) = asked("again", variables);
        let lines: Vec<&str> = err.lines().filter(|line| line.starts_with("sterna: ")).collect();
        let is_said =
            |line: &str| said.iter().any(|said| line.contains(said)) && line.ends_with("it is ignored");
        if lines.len() != said.len() || !lines.iter().all(|line| is_said(line)) {
            wrong.push(format!("{variables:?}: {err:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[cfg(feature = "threads")]
#[test]
fn variables_cap_the_threads_of_every_engine() {
    let rows: &[(&[(&str, &str)], &str)] = &[
        (&[], "[8, 1, 6]"),
        (&[("OMP_NUM_THREADS", "3")], "[3, 1, 3]"),
        (&[("OMP_NUM_THREADS", "4,2")], "[4, 1, 4]"),
        (&[("STERNA_NUM_THREADS", "2")], "[2, 1, 2]"),
        (&[("STERNA_NUM_THREADS", "5"), ("OMP_NUM_THREADS", "3")], "[5, 1, 5]"),
        (&[("STERNA_NUM_THREADS", "3"), ("OMP_NUM_THREADS", "5")], "[3, 1, 3]"),
        (&[("STERNA_NUM_THREADS", "0")], "[1, 1, 1]"),
        (&[("STERNA_NUM_THREADS", "many"), ("OMP_NUM_THREADS", "7")], "[7, 1, 6]"),
        (&[("STERNA_NUM_THREADS", "-2")], "[8, 1, 6]"),
    ];
    let wrong: Vec<_> = rows
        .iter()
        .map(|(variables, expected)| (variables, *expected, ask("threads", variables)))
        .filter(|(_, expected, found)| found != expected)
        .collect();
    report(&wrong);
}

#[test]
fn the_level_can_be_capped_until_it_is_in_use() {
    assert_eq!(ask("level", &[]), "true portable false");
    assert_eq!(ask("features", &[]), "true true true false");
}
