//! Names from a file: their form in messages, and lists of them.

use std::fmt::{self, Display, Formatter};

/// The most characters of a name that a message shows.
const LONGEST: usize = 64;

/// A name in a message: short, and without control characters for terminals.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = |c: char| if c.is_control() { '?' } else { c };
        let mut chars = self.0.chars();
        chars.by_ref().take(LONGEST).try_for_each(|c| write!(f, "{}", plain(c)))?;
        f.write_str(if chars.next().is_some() { "…" } else { "" })
    }
}

/// Splits a list of names at its commas, except those behind a backslash.
pub(crate) fn split(list: &str) -> Vec<String> {
    let (mut names, mut name, mut chars) = (Vec::new(), String::new(), list.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&',') => name.extend(chars.next()),
            ',' => names.push(std::mem::take(&mut name)),
            _ => name.push(c),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_plain_commas() {
        assert_eq!(split("a,b\\,c,d"), ["a", "b,c", "d"]);
        assert_eq!(split("a\\b,"), ["a\\b"]);
        assert!(split("").is_empty());
    }

    #[test]
    fn messages_show_names_short_and_plain() {
        assert_eq!(Shown("a\u{1b}[2Jb").to_string(), "a?[2Jb");
        assert_eq!(Shown(&"x".repeat(100)).to_string().chars().count(), LONGEST + 1);
    }
}
