//! Promise: a program caps the instruction set by oneDNN's numbers, and is told the one in use by them.

use std::process::Command;

use sterna_capi::cpu_isa::{CPU_ISAS, CpuIsa, sterna_cpu_isa_get_effective, sterna_cpu_isa_set_max};

/// Tells a process of this very test which cap to set.
const CAP: &str = "STERNA_TEST_CAP";

/// The instruction set in use in a process of its own under a cap.
fn effective_under(cap: CpuIsa) -> CpuIsa {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "answers", "--nocapture"])
        .env(CAP, cap.to_string())
        .env_remove("STERNA_MAX_CPU_ISA")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.split("answer=").nth(1).and_then(|rest| rest.split_whitespace().next());
    answer.and_then(|answer| answer.parse().ok()).unwrap_or_else(|| panic!("no answer in {text:?}"))
}

/// The part of the other test that runs in a process of its own.
#[test]
fn answers() {
    let Some(cap) = std::env::var(CAP).ok().and_then(|cap| cap.parse().ok()) else { return };
    // SAFETY: the function takes any number.
    assert_eq!(unsafe { sterna_cpu_isa_set_max(cap) } as i32, 0);
    let effective = sterna_cpu_isa_get_effective();
    // SAFETY: the same.
    assert_ne!(unsafe { sterna_cpu_isa_set_max(cap) } as i32, 0, "it is in use");
    println!("answer={effective} ");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_cap_allows_the_sets_within_it() {
    let told_apart = [0x1, 0x7, 0x27, 0x67, 0xe7, 0xfef];
    let machine = effective_under(0);
    assert!(told_apart.contains(&machine), "{machine:#x}");
    let mut wrong = Vec::new();
    for &(cap, name) in CPU_ISAS.iter().filter(|(cap, _)| *cap != 0) {
        let expected = told_apart.into_iter().rfind(|set| cap & set == *set && machine & set == *set);
        let found = effective_under(cap);
        if Some(found) != expected {
            wrong.push(format!("{name}: {found:#x}, expected {expected:x?}"));
        }
    }
    assert!(wrong.is_empty(), "on a machine of {machine:#x}: {wrong:?}");
}
