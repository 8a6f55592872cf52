//! "Did you mean …": the nearest known word.

/// The known word within two edits of the typed one, if there is one.
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (edits(typed, word), word))
        // two edits turn any word of two letters into any other
        .filter(|(edits, word)| *edits <= 2 && *edits < word.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// `did you mean "x"?`, else `known: "a", "b"`, else `there are none`.
pub(super) fn advice<'a>(typed: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(word) = closest(typed, known.clone()) {
        return format!("did you mean \"{word}\"?");
    }
    let known: Vec<_> = known.into_iter().map(|word| format!("\"{word}\"")).collect();
    if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) }
}

/// Levenshtein distance in characters, one row at a time.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, a) in from.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (index, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_edits_are_near_and_three_are_not() {
        let known = ["tolerance", "secrets", "path"];
        assert_eq!(closest("tolerence", known), Some("tolerance"));
        assert_eq!(closest("secret", known), Some("secrets"));
        assert_eq!(closest("pth", known), Some("path"));
        assert_eq!(closest("timeout", known), None);
        assert_eq!(closest("ab", ["cd"]), None);
    }
}
