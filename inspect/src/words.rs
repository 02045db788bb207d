//! Words about graphs: texts that a graph holds, and sentences about partitions.

use sterna::ProfiledOp;

/// A text from a file without what controls a terminal, changes the direction of writing, or is not allowed
/// in XML: a question mark stands for each such character.
#[must_use]
pub fn harmless(text: &str) -> String {
    without_control(text, '?')
}

/// As [`harmless`], with the sign that stands for a character that cannot be shown.
pub(crate) fn plain(text: &str) -> String {
    without_control(text, '\u{fffd}')
}

fn without_control(text: &str, instead: char) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            // Not allowed in XML.
            && !matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_plain(c) { c } else { instead }).collect()
}

/// A sentence about a partition of some ops, which names the partition and its ops unless the sentence begins
/// with one of them.
#[must_use]
pub fn of_partition(id: usize, ops: &[String], said: &str) -> String {
    let begins = |name: &str| said.strip_prefix(name).is_some_and(|rest| rest.starts_with([':', ' ']));
    match () {
        () if begins(&format!("partition {id}")) => said.to_owned(),
        () if ops.is_empty() || ops.iter().any(|op| begins(op)) => format!("partition {id}: {said}"),
        () => format!("partition {id}, {}: {said}", ops.join(", ")),
    }
}

/// The kinds of ops in a word, each once and the first three by name.
#[must_use]
pub fn kinds_of(ops: &[ProfiledOp]) -> String {
    const NAMED: usize = 3;
    let mut kinds: Vec<&str> = Vec::new();
    for op in ops {
        if !kinds.contains(&op.kind.name()) {
            kinds.push(op.kind.name());
        }
    }
    let more = kinds.len().saturating_sub(NAMED);
    kinds.truncate(NAMED);
    let named = kinds.join("+");
    if more == 0 { named } else { format!("{named}+{more}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_named_once() {
        let ops = ["Select (op 1)".to_owned(), "Exp (op 2)".to_owned()];
        let rows = [
            ("no memory", "partition 3, Select (op 1), Exp (op 2): no memory"),
            ("Exp (op 2): dst is too large", "partition 3: Exp (op 2): dst is too large"),
            ("Exp (op 21): no", "partition 3, Select (op 1), Exp (op 2): Exp (op 21): no"),
            ("partition 3 cannot be compiled: x", "partition 3 cannot be compiled: x"),
        ];
        let wrong: Vec<_> =
            rows.iter().filter(|(said, whole)| of_partition(3, &ops, said) != *whole).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
