//! Promise: the environment variable `STERNA_MAX_CPU_ISA` caps the level of the kernels and the CPU features
//! beside it, and nothing exceeds the machine.

use std::process::Command;

use sterna::{CpuFeature, CpuFeatures, CpuIsa, Engine, Level};

/// The level that a process of this test's own states when the variable has a value.
fn level_under(cap: &str) -> String {
    let said = said_under(cap, "level of this process: ");
    said.split_whitespace().next().unwrap().to_owned()
}

/// The features that such a process has.
fn features_under(cap: &str) -> CpuFeatures {
    let said = said_under(cap, "features of this process: ");
    said.lines().next().unwrap().split_whitespace().map(|name| name.parse::<CpuFeature>().unwrap()).collect()
}

/// The text that such a process prints behind some words.
fn said_under(cap: &str, words: &str) -> String {
    let this = std::env::current_exe().unwrap();
    // On an emulated machine, the emulator with its arguments: the system starts no such process by itself.
    let runner = std::env::var("STERNA_TEST_RUNNER").unwrap_or_default();
    let mut runner = runner.split_whitespace();
    let mut command = match runner.next() {
        None => Command::new(this),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(runner).arg(this);
            command
        }
    };
    let output = command
        .args(["--exact", "level::says_its_level", "--nocapture"])
        .env("STERNA_MAX_CPU_ISA", cap)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_once(words).unwrap().1.to_owned()
}

/// The level that a cap leaves of the machine's: one of another architecture, all of it.
fn capped(machine: Level, cap: Level) -> Level {
    let is_of_other = match cap {
        Level::Avx2 | Level::Avx512 => !cfg!(target_arch = "x86_64"),
        Level::Neon => !cfg!(target_arch = "aarch64"),
        _ => false,
    };
    if is_of_other { machine } else { machine.min(cap) }
}

#[test]
fn says_its_level() {
    println!("level of this process: {}", Engine::new().level());
    println!("features of this process: {}", Engine::new().cpu_features());
    assert_eq!(Engine::new().level(), Level::available());
    assert_eq!(Engine::new().cpu_features(), CpuFeatures::available());
}

#[test]
fn the_variable_caps_the_features() {
    let machine = features_under("avx512_amx");
    let level: Level = level_under("avx512_amx").parse().unwrap();
    let mut wrong = Vec::new();
    for &cap in CpuIsa::ALL {
        let (of_level, of_features) = (level_under(cap.name()), features_under(cap.name()));
        let is_cap = capped(level, cap.level()) == cap.level();
        let features = if is_cap { machine.intersection(cap.features()) } else { machine };
        let expected = (capped(level, cap.level()).name(), features);
        if (&*of_level, of_features) != expected {
            wrong.push((cap, of_level, of_features, expected));
        }
    }
    assert!(wrong.is_empty(), "on a machine of level {level} with {machine}: {wrong:?}");
    assert_eq!(features_under("avx512_what"), machine, "another value is ignored");
}

/// Each cap allows what those below it of its architecture allow, and more.
#[test]
fn caps_are_in_order() {
    for architecture in [[Level::Avx2, Level::Avx512], [Level::Neon; 2]] {
        let caps: Vec<CpuIsa> = CpuIsa::ALL
            .iter()
            .copied()
            .filter(|cap| *cap == CpuIsa::Portable || architecture.contains(&cap.level()))
            .collect();
        for pair in caps.windows(2) {
            let [less, more] = [pair[0], pair[1]];
            assert!(less < more && less.level() <= more.level(), "{less} {more}");
            assert!(less.features().is_subset_of(more.features()), "{less} {more}");
        }
    }
    for &level in Level::ALL {
        assert_eq!(CpuIsa::from(level).level(), level);
    }
}

#[test]
fn the_effective_instruction_set_is_available() {
    let effective = CpuIsa::effective();
    assert_eq!(effective.level(), Level::available());
    assert!(effective.features().is_subset_of(CpuFeatures::available()));
}

#[test]
fn an_engine_of_a_lower_level_has_its_features() {
    let plain = Engine::builder().max_level(Level::Portable).build();
    assert_eq!(plain.cpu_features(), CpuFeatures::NONE);
    let avx2 = Engine::builder().max_level(Level::Avx2).build();
    assert!(avx2.cpu_features().is_subset_of(CpuIsa::Avx2.features()));
    let neon = Engine::builder().max_level(Level::Neon).build();
    assert_eq!(neon.cpu_features(), CpuFeatures::available());
}

#[test]
fn the_variable_caps_the_level() {
    // The machine's own level, whatever cap this very process has.
    let machine: Level = level_under("").parse().unwrap();
    let wrong: Vec<_> = Level::ALL
        .iter()
        .map(|&cap| (cap, level_under(cap.name())))
        .filter(|(cap, said)| said != capped(machine, *cap).name())
        .collect();
    assert!(wrong.is_empty(), "on a machine of level {machine}: {wrong:?}");
}

#[test]
fn another_value_is_ignored() {
    assert_eq!(level_under("sse9"), level_under("avx512_amx"));
    assert_eq!(level_under(""), level_under("avx512_amx"));
}

#[test]
fn an_engine_takes_no_more_than_is_available() {
    for &level in Level::ALL {
        assert_eq!(Engine::builder().max_level(level).build().level(), capped(Level::available(), level));
    }
}
