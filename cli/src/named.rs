//! Options such as `NAME=VALUE`, whose name may hold `=` as well: the graph tells where it ends.

use crate::words::Key;

/// The value that an option gives to the tensor or op that it names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Named<T> {
    /// Each way to split the text into a name and what is said of it, the shortest name first.
    Splits(Vec<(Key, T)>),
    /// Something that goes without a name.
    Alone(T),
}

/// Each way to split `NAME=REST`, the shortest name first.
pub(crate) fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..])).filter(|(name, _)| !name.is_empty())
}

impl<T> Named<T> {
    /// Reads a text of some form.
    ///
    /// # Errors
    ///
    /// The fault of the rest behind the first `=`, if no split can be read, or the form.
    pub(crate) fn parse(
        text: &str,
        form: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, String> {
        let mut fault = None;
        let read = splits(text).filter_map(|(name, rest)| match parse(rest) {
            Ok(value) => Some((name.to_owned(), value)),
            Err(why) => {
                fault.get_or_insert(why);
                None
            }
        });
        Self::of(read).ok_or_else(|| fault.unwrap_or_else(|| format!("write it as {form}")))
    }

    /// The splits of a text, if there are any.
    pub(crate) fn of(splits: impl Iterator<Item = (Key, T)>) -> Option<Self> {
        let splits: Vec<(Key, T)> = splits.collect();
        (!splits.is_empty()).then_some(Self::Splits(splits))
    }

    /// The value, and the name: the longest one that is known, or else the shortest.
    pub(crate) fn split(&self, is_known: impl Fn(&str) -> bool) -> (Option<&Key>, &T) {
        match self {
            Self::Alone(value) => (None, value),
            Self::Splits(splits) => {
                let known = splits.iter().rfind(|(name, _)| is_known(name));
                let (name, value) = known.unwrap_or(&splits[0]);
                (Some(name), value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_that_is_known_counts() {
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("{text} is no number"));
        let known = ["a", "a=b", "b"];
        let rows = [
            ("a=1", Ok(("a", 1.0))),
            ("a=b=1", Ok(("a=b", 1.0))),
            // Nothing is called so, and the complaint is about the first name.
            ("c=1", Ok(("c", 1.0))),
            ("a=b=", Err("b= is no number")),
            ("a=x", Err("x is no number")),
            ("=1", Err("write it as NAME=NUMBER")),
            ("1", Err("write it as NAME=NUMBER")),
        ];
        let mut wrong = Vec::new();
        for (text, expected) in rows {
            let read = Named::parse(text, "NAME=NUMBER", number);
            let split = read.as_ref().map(|named| {
                let (name, value) = named.split(|name| known.contains(&name));
                (name.map_or("", String::as_str), *value)
            });
            if split.map_err(String::as_str) != expected {
                wrong.push(format!("{text}: {read:?}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
        let files = Named::parse("a=b=c", "", |rest| Ok(rest.to_owned())).unwrap();
        assert_eq!(files.split(|name| name == "a"), (Some(&"a".to_owned()), &"b=c".to_owned()));
        assert_eq!(files.split(|_| true), (Some(&"a=b".to_owned()), &"c".to_owned()));
        assert_eq!(files.split(|_| false), (Some(&"a".to_owned()), &"b=c".to_owned()));
    }
}
