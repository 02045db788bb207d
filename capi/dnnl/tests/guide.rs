//! Promise: the page of the guide on oneDNN shows a program that is built with oneDNN's headers, and runs as
//! it says.
//!
//! `STERNA_ONEDNN` names a folder with `include` (the package `onednn-devel` on PyPI).
#![cfg(target_os = "linux")]

mod support;

#[path = "../../tests/common/guide.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests of the guide use the rest")]
mod guide;

use std::env;
use std::path::{Path, PathBuf};

#[test]
fn the_program_of_the_guide_runs_on_the_stand_in() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = guide::pages(&repository);
    let page = pages.iter().find(|page| page.name() == "libdnnl").expect("the guide has the page");
    let Some(upstream) = env::var_os("STERNA_ONEDNN") else {
        return support::skipped("the_program_of_the_guide_runs", "STERNA_ONEDNN names no folder");
    };
    let blocks = page.blocks();
    assert!(blocks.iter().any(|block| block.language == "sh" && block.output.is_some()), "{blocks:?}");
    let headers = PathBuf::from(upstream).join("include");
    let wrong = guide::follow(page, &repository, &support::folder("guide"), &[("CPATH", headers)]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
