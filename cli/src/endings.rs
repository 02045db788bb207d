//! The endings of files that options name, by which the form of a file is told.

use std::path::{Path, PathBuf};

/// The ending of a file in small letters; a number, as in a name of a version, is none.
pub(crate) fn ending_of(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?.to_lowercase();
    ending.starts_with(|c: char| c.is_alphabetic()).then_some(ending)
}

/// Checks that a file that is written has one of the endings that are known, or none.
///
/// # Errors
///
/// The ending, and those that are known.
pub(crate) fn known(path: &Path, endings: &[&str]) -> Result<(), String> {
    match ending_of(path) {
        Some(ending) if !endings.contains(&&*ending) => {
            let known: Vec<String> = endings.iter().map(|ending| format!(".{ending}")).collect();
            let (last, others) = known.split_last().map_or(("", &known[..]), |(last, rest)| (last, rest));
            let known = match others {
                [] => last.to_owned(),
                others => format!("{} or {last}", others.join(", ")),
            };
            Err(format!("a file that ends in .{ending} cannot be written; let it end in {known}"))
        }
        _ => Ok(()),
    }
}

/// Reads the path of a file that is written.
pub(crate) fn file(
    endings: &'static [&'static str],
) -> impl Fn(&str) -> Result<PathBuf, String> + Clone + Send + Sync {
    move |text| {
        let path = PathBuf::from(text);
        known(&path, endings).map(|()| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_nobody_writes_is_refused() {
        let endings = &["svg", "html"];
        let rows = [
            ("x.svg", true),
            ("x.SVG", true),
            ("folder.png/x.html", true),
            ("x", true),
            ("model-v1.2", true),
            (".hidden", true),
            ("x.png", false),
            ("x.svg.gz", false),
        ];
        let wrong: Vec<_> =
            rows.iter().filter(|(path, fine)| known(Path::new(path), endings).is_ok() != *fine).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let said = known(Path::new("x.PNG"), endings).unwrap_err();
        assert_eq!(said, "a file that ends in .png cannot be written; let it end in .svg or .html");
    }
}
