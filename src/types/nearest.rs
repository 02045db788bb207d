//! The name that somebody may have meant.

/// The candidate that a name is a misspelling of: one that differs in case alone, else the one that takes the
/// fewest changes, if these are few. Of equals the first.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody misspells a page of text; distances take time by the square of the length.
    if name.len() > 64 {
        return None;
    }
    let most = (name.chars().count() / 3).clamp(1, 3);
    let wanted = name.to_ascii_lowercase();
    let close = candidates.filter_map(|candidate| {
        let lower = candidate.to_ascii_lowercase();
        // The start of a name is the next best after the name in another case.
        let is_start = wanted.len() >= 3 && lower.starts_with(&wanted);
        let changes = distance(&wanted, &lower).min(if is_start { 1 } else { usize::MAX });
        (changes <= most).then_some((changes, candidate))
    });
    close.min_by_key(|&(changes, _)| changes).map(|(_, candidate)| candidate)
}

/// Letters that are put in, left out or replaced on the way from one word to another (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (at, &other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}
