//! The name that somebody may have meant.

/// The candidate that a name is a misspelling of: one that differs in case alone, else the one that takes the
/// fewest changes, if these are few. Of equals the first.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody misspells a page of text; distances take time by the square of the length.
    if name.len() > 64 {
        return None;
    }
    let letters = name.chars().count();
    // Of a single letter any other is as near.
    let most = (letters / 3).clamp(1, 3).min(letters.saturating_sub(1));
    let wanted = name.to_ascii_lowercase();
    let close = candidates.into_iter().filter_map(|candidate| {
        let lower = candidate.to_ascii_lowercase();
        let changes = match () {
            () if lower == wanted => 0,
            // The start of a name is the next best after the name in another case.
            () if wanted.len() >= 3 && lower.starts_with(&wanted) => 1,
            () if wanted.len().abs_diff(lower.len()) > 4 * most => return None,
            () => distance(&wanted, &lower),
        };
        (changes <= most).then_some((changes, candidate))
    });
    close.min_by_key(|&(changes, _)| changes).map(|(_, candidate)| candidate)
}

/// Letters that are put in, left out or replaced, and neighbours that are exchanged, on the way from one word
/// to another (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let [from, to] = [from, to].map(|word| word.chars().collect::<Vec<char>>());
    // Changes from the first letters of one word to the first letters of the other.
    let mut changes = vec![vec![0; to.len() + 1]; from.len() + 1];
    for left in 0..=from.len() {
        for right in 0..=to.len() {
            changes[left][right] = if left == 0 || right == 0 {
                left + right
            } else {
                let replaced = usize::from(from[left - 1] != to[right - 1]);
                let is_exchange = left > 1
                    && right > 1
                    && (from[left - 1], from[left - 2]) == (to[right - 2], to[right - 1]);
                let exchanged = if is_exchange { changes[left - 2][right - 2] + 1 } else { usize::MAX };
                (changes[left - 1][right - 1] + replaced)
                    .min(changes[left - 1][right] + 1)
                    .min(changes[left][right - 1] + 1)
                    .min(exchanged)
            };
        }
    }
    changes[from.len()][to.len()]
}
