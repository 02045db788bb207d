//! Long names in little room: the middle goes, both ends stay, and different names stay different.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// A name in at most so many characters: an ellipsis stands for its middle.
#[must_use]
pub fn cut(name: &str, most: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    kept(&characters, &ends(characters.len(), most))
}

/// Names of one document, in little room.
#[derive(Debug, Clone, Default)]
pub struct Short {
    of: HashMap<String, String>,
}

impl Short {
    /// Shortens names to so many characters. Two that would then read alike also keep the place where they
    /// differ, and get more room if that is not enough.
    #[must_use]
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>, most: usize) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let names: Vec<(&str, Vec<char>)> =
            names.into_iter().map(|name| (name, name.chars().collect())).collect();
        let mut short: Vec<String> = names.iter().map(|(name, _)| cut(name, most)).collect();
        let mut room = most;
        loop {
            let alike = alike(&short);
            if alike.is_empty() {
                break;
            }
            for group in alike {
                let first = &names[group[0]].1;
                let shared = |index: &usize| {
                    first.iter().zip(&names[*index].1).take_while(|(one, other)| one == other).count()
                };
                let differs = group.iter().skip(1).map(shared).min().unwrap_or(0);
                for index in group {
                    let (_, characters) = &names[index];
                    short[index] = kept(characters, &around(characters.len(), differs, room));
                }
            }
            // Room for whole names at last, and those differ.
            room += room / 4 + 1;
        }
        Self { of: names.into_iter().map(|(name, _)| name.to_owned()).zip(short).collect() }
    }

    /// A name in little room; one that is not known here is as it is.
    #[must_use]
    pub fn of<'a>(&'a self, name: &'a str) -> &'a str {
        self.of.get(name).map_or(name, String::as_str)
    }
}

/// The groups of texts that are alike.
fn alike(texts: &[String]) -> Vec<Vec<usize>> {
    let mut same: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, text) in texts.iter().enumerate() {
        same.entry(text).or_default().push(index);
    }
    same.into_values().filter(|group| group.len() > 1).collect()
}

/// The two ends of a name.
fn ends(length: usize, most: usize) -> Vec<Range<usize>> {
    if length <= most {
        return std::iter::once(0..length).collect();
    }
    let both = most.saturating_sub(1);
    let tail = both / 2;
    vec![0..both - tail, length - tail..length]
}

/// The two ends of a name, and some of it around a place.
fn around(length: usize, place: usize, most: usize) -> Vec<Range<usize>> {
    if length <= most {
        return std::iter::once(0..length).collect();
    }
    let part = (most.saturating_sub(2) / 3).max(1);
    let start = place.saturating_sub(2).min(length);
    vec![0..part, start..(start + part.max(4)).min(length), length - part..length]
}

/// The characters of some places, from first to last, with an ellipsis for what is between.
fn kept(characters: &[char], places: &[Range<usize>]) -> String {
    let mut text = String::new();
    let mut end = 0;
    for place in places {
        let start = place.start.max(end);
        match start - end {
            0 => {}
            // As long as the ellipsis.
            1 => text.push(characters[end]),
            _ => text.push('…'),
        }
        text.extend(&characters[start..place.end.max(start)]);
        end = place.end.max(start);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_goes_and_both_ends_stay() {
        let rows = [
            ("scores", 30, "scores"),
            ("abcdefghij", 10, "abcdefghij"),
            ("abcdefghijk", 10, "abcde…hijk"),
            ("/model/layers.17/self_attn/Where_output_0", 24, "/model/layer…re_output_0"),
            ("größenordnung", 7, "grö…ung"),
            ("", 4, ""),
        ];
        let wrong: Vec<_> = rows.iter().map(|(name, most, expected)| (cut(name, *most), *expected)).collect();
        let wrong: Vec<_> = wrong.iter().filter(|(found, expected)| found != expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn different_names_stay_different() {
        let layers: Vec<String> =
            (0..300).map(|n| format!("/model/encoder/layers.{n}/attn/Where_out")).collect();
        let pairs: Vec<String> =
            (0..40).map(|n| format!("{}{n}{}", "x".repeat(n + 20), "y".repeat(100 - n))).collect();
        let looks_shortened = ["aaaaa…aaaa".to_owned(), "aaaaabbbbbbaaaa".into(), "aaaaaccccccaaaa".into()];
        for names in [&layers[..], &pairs, &looks_shortened] {
            for most in [0, 1, 4, 10, 24, 30] {
                let short = Short::new(names.iter().map(String::as_str), most);
                let all: BTreeSet<&str> = names.iter().map(|name| short.of(name)).collect();
                assert_eq!(all.len(), names.len(), "{most}: {all:?}");
            }
        }
        let short = Short::new(layers.iter().map(String::as_str), 30);
        assert_eq!(short.of(&layers[17]), "/model/en…s.17/attn/Where_out");
        assert_eq!(short.of("another"), "another");
    }
}
