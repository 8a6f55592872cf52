//! "Did you mean …": the nearest known word.

/// Up to two edits make a misspelling; more make another word.
const EDITS_MAX: usize = 2;

/// The known word within two edits of the typed one, if there is one.
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (strsim::levenshtein(typed, word), word))
        // two edits turn any word of two letters into any other
        .filter(|(edits, word)| *edits <= EDITS_MAX && *edits < word.chars().count())
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
