//! The words of a batch file, with the lines on which they begin.

use std::path::Path;

use sterna_import::{open_plain, read_at_most};

/// The most bytes of a file.
const MAX_BYTES: usize = 4 << 20;

/// The end of a word that goes on in the next one.
const GOES_ON: char = '\\';

/// A word, and the line on which it begins, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// The words of a file.
///
/// # Errors
///
/// Why the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<Word>, String> {
    let file = open_plain(path).map_err(|error| error.to_string())?;
    let bytes = read_at_most(file, MAX_BYTES).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("it has more than {MAX_BYTES} bytes"))?;
    match str::from_utf8(&bytes) {
        Ok(text) => Ok(words(text)),
        Err(_) => Err("it is no text".into()),
    }
}

/// The words of a text: a word that begins with `#` ends its line, and one that ends with a backslash goes on
/// in the next word, wherever that stands.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut goes_on = false;
    for (line, text) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let of_line = text.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
        for word in of_line {
            let rest = word.strip_suffix(GOES_ON);
            let text = rest.unwrap_or(word);
            match words.last_mut() {
                Some(last) if goes_on => last.text.push_str(text),
                // A lone backslash stands between words that are apart anyway.
                _ if text.is_empty() => continue,
                _ => words.push(Word { text: text.into(), line: line + 1 }),
            }
            goes_on = rest.is_some();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_apart_unless_a_backslash_joins_them() {
        let rows: &[(&str, &[(&str, usize)])] = &[
            ("", &[]),
            ("# a comment --case=x\n#", &[]),
            ("--reset --case=a # b\n\t--case=c#d\r\n", &[("--reset", 1), ("--case=a", 1), ("--case=c#d", 2)]),
            (
                "--in-shapes=0:1,\\\n   0:2,\\\n# between\n 0:3\n--case=a",
                &[("--in-shapes=0:1,0:2,0:3", 1), ("--case=a", 5)],
            ),
            ("--reset \\\n--case=a \\", &[("--reset", 1), ("--case=a", 2)]),
            ("\\", &[]),
            ("--case=a\\", &[("--case=a", 1)]),
        ];
        for (text, expected) in rows {
            let found = words(text);
            let found: Vec<(&str, usize)> = found.iter().map(|word| (&*word.text, word.line)).collect();
            assert_eq!(&found, expected, "{text:?}");
        }
    }
}
