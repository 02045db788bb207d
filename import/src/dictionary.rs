//! The dictionaries of the fuzz targets that read models: the words of which libFuzzer makes inputs.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

/// Compares a dictionary with the words that it should have, or writes it; a word is a text with quotes and
/// bytes escaped. Each type of node or layer has a seed as well.
pub(crate) fn compare(format: &str, words: BTreeSet<String>, kinds: &[&str], seed: impl Fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let file = folder.join(format!("{format}.dict"));
    let text: String = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    if env::var_os("STERNA_REWRITE").is_some() {
        fs::write(&file, &text).expect("the dictionary can be written");
    }
    let held = fs::read_to_string(&file).unwrap_or_default();
    assert!(held == text, "fuzz/{format}.dict is out of date; STERNA_REWRITE=1 writes it anew");
    let has_seed = |kind: &&&str| folder.join("seeds").join(format).join(seed(kind)).exists();
    let missing: Vec<&&str> = kinds.iter().filter(|kind| !has_seed(kind)).collect();
    assert!(missing.is_empty(), "no seed of {missing:?}; fuzz/README.md says how seeds are written");
}
