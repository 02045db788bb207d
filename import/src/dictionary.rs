//! The dictionaries of the fuzz targets that read models: the words of which libFuzzer makes inputs.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// Compares a dictionary with the words that it should have, or writes it; a word is a text with quotes and
/// bytes escaped. Each type of node or layer is one of those of which `fuzz/examples/seeds.rs` makes seeds.
pub(crate) fn compare(
    format: &str,
    words: BTreeSet<String>,
    mut kinds: impl Iterator<Item = &'static str>,
    seeded: &[&str],
) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/{format}.dict"));
    let text: String = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&file, &text).expect("the dictionary can be written");
    }
    let held = fs::read_to_string(&file).unwrap_or_default();
    assert!(held == text, "fuzz/{format}.dict is out of date; STERNA_REWRITE=1 writes it anew");
    let missing = kinds.find(|kind| !seeded.contains(kind));
    assert_eq!(missing, None, "the fuzzer has no seed of this type");
}
