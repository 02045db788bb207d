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
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "answers", "--nocapture"]).env(ASKED, question);
    for name in ["STERNA_NUM_THREADS", "OMP_NUM_THREADS", "STERNA_MAX_CPU_ISA"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.split("answer=").nth(1).and_then(|rest| rest.lines().next());
    answer.unwrap_or_else(|| panic!("no answer in {text:?}")).to_owned()
}

/// What the other tests ask a process of its own.
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
