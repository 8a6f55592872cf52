//! Makes texts of others (senders, servers, files) safe for a terminal or a log line.
//!
//! Event ids, reasons, answers and keys are texts of strangers. Unchanged, they could move the cursor, forge a second
//! line, or look like another text. Data for programs (JSON, CSV,
//! bodies) is never changed here.

use std::borrow::Cow;

/// The text with `?` for every character that is invisible or changes how others are shown.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unprintable) {
        Cow::Owned(text.chars().map(|c| if is_unprintable(c) { '?' } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A count with its noun: `1 event`, `2 events`.
pub fn counted(count: i64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Control characters, characters that change the direction of text, and invisible ones.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // soft hyphen, Arabic letter mark, Mongolian vowel separator
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // zero width and directional marks; line and paragraph separator, embeddings and overrides
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // word joiner, invisible operators, isolates, deprecated format characters
            | '\u{2060}'..='\u{206f}'
            // byte order mark, interlinear annotations
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // tags
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_is_let_through_and_nothing_visible_is_lost() {
        for hidden in [
            "\u{1b}",
            "\n",
            "\r",
            "\u{9b}",
            "\u{61c}",
            "\u{200b}",
            "\u{200d}",
            "\u{200e}",
            "\u{202e}",
            "\u{2028}",
            "\u{2029}",
            "\u{2060}",
            "\u{2069}",
            "\u{feff}",
            "\u{e0041}",
            "\u{e007f}",
        ] {
            assert_eq!(printable(&format!("a{hidden}b")), "a?b", "{:?}", hidden);
        }
        let seen = "Rechnung № 7 – 請求書 💶 é";
        assert!(matches!(printable(seen), Cow::Borrowed(text) if text == seen));
    }
}
