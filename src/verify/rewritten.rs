//! The same JSON as other serialisers write it: for finding out that a body was parsed and written again.

use serde::de::IgnoredAny;

/// Larger bodies are not written again.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Every way in which the usual serialisers would write this JSON, key order kept; none where it is no JSON.
pub(super) fn rewritten(body: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let text = std::str::from_utf8(body)
        .ok()
        .filter(|text| text.len() <= BODY_BYTES_MAX && serde_json::from_str::<IgnoredAny>(text).is_ok());
    let layouts = [Layout::Compact, Layout::Spaced, Layout::Indented(2), Layout::Indented(4)];
    text.into_iter().flat_map(move |text| {
        layouts.into_iter().flat_map(move |layout| {
            SPELLINGS.iter().flat_map(move |spelling| {
                let laid_out = laid_out(text, layout);
                let json = spelling.iter().fold(laid_out, |json, escapes| respelled(&json, *escapes));
                [format!("{json}\n"), json].map(String::into_bytes)
            })
        })
    })
}

/// How serialisers spell strings: as it was, JavaScript, Python, PHP, PHP with unescaped Unicode.
const SPELLINGS: [&[Escapes]; 5] = [
    &[],
    &[Escapes::SlashPlain, Escapes::Unicode],
    &[Escapes::SlashPlain, Escapes::Ascii],
    &[Escapes::SlashEscaped, Escapes::Ascii],
    &[Escapes::SlashEscaped, Escapes::Unicode],
];

#[derive(Clone, Copy)]
enum Layout {
    /// `JSON.stringify`
    Compact,
    /// Python's `json.dumps`
    Spaced,
    Indented(usize),
}

/// White space between tokens as this layout has it. The text is valid JSON.
fn laid_out(json: &str, layout: Layout) -> String {
    let (mut out, mut depth) = (String::with_capacity(json.len()), 0usize);
    let (mut in_string, mut escaped) = (false, false);
    let mut chars = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        if let Layout::Indented(width) = layout {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    while let Some(c) = chars.next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push_str(if matches!(layout, Layout::Spaced) { ", " } else { "," });
                line(&mut out, depth);
            }
            ':' => out.push_str(if matches!(layout, Layout::Compact) { ":" } else { ": " }),
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[derive(Clone, Copy)]
enum Escapes {
    /// `\/`
    SlashEscaped,
    SlashPlain,
    /// `\u00e9`
    Ascii,
    Unicode,
}

/// Characters in strings as this style spells them. The text is valid JSON, so `\`, `/` and
/// non-ASCII characters stand in strings only.
fn respelled(json: &str, style: Escapes) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (style, c) {
            (Escapes::SlashEscaped, '/') => out.push_str("\\/"),
            (Escapes::Ascii, c) if !c.is_ascii() => {
                out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
            }
            (_, '\\') => {
                let (piece, after) = escape(rest);
                match (style, piece) {
                    (Escapes::SlashPlain, "/") => out.push('/'),
                    (Escapes::Unicode, piece) if piece.starts_with('u') => match unescaped(piece) {
                        Some(text) => out.push_str(&text),
                        None => out.extend(["\\", piece]),
                    },
                    (_, piece) => out.extend(["\\", piece]),
                }
                rest = after;
            }
            (_, c) => out.push(c),
        }
    }
    out
}

/// What follows a backslash: one character, `uXXXX`, or a surrogate pair as one piece.
fn escape(rest: &str) -> (&str, &str) {
    let high = rest.strip_prefix(['u', 'U']).is_some_and(|hex| hex.starts_with(['d', 'D']));
    let length = match rest.as_bytes().first() {
        Some(b'u') if high && rest.get(5..7) == Some("\\u") => 11,
        Some(b'u') => 5,
        _ => 1,
    };
    rest.split_at_checked(length).unwrap_or((rest, ""))
}

/// The character of `uXXXX`, unless JSON needs it escaped.
fn unescaped(piece: &str) -> Option<String> {
    let text: String = serde_json::from_str(&format!("\"\\{piece}\"")).ok()?;
    (!text.is_ascii()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_other_serialisers_do() {
        let json = r#"{ "a" : [1, {} , [ ]],"b":"x: \"{,}\" \\", "c":{"d":1.0e2} }"#;
        assert_eq!(laid_out(json, Layout::Compact), r#"{"a":[1,{},[]],"b":"x: \"{,}\" \\","c":{"d":1.0e2}}"#);
        assert_eq!(
            laid_out(json, Layout::Spaced),
            r#"{"a": [1, {}, []], "b": "x: \"{,}\" \\", "c": {"d": 1.0e2}}"#
        );
        assert_eq!(
            laid_out(r#"{"a":[1,{}],"b":2}"#, Layout::Indented(2)),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": 2\n}"
        );
    }

    #[test]
    fn escapes_are_respelled_without_touching_the_others() {
        let json = r#""a/b\/c\\/ é\u00e9 🚀\ud83d\ude80 \u000a\u0022\n""#;
        assert_eq!(respelled(r#""a/b""#, Escapes::SlashEscaped), r#""a\/b""#);
        assert_eq!(
            respelled(json, Escapes::SlashPlain),
            r#""a/b/c\\/ é\u00e9 🚀\ud83d\ude80 \u000a\u0022\n""#
        );
        assert_eq!(
            respelled(json, Escapes::Ascii),
            r#""a/b\/c\\/ \u00e9\u00e9 \ud83d\ude80\ud83d\ude80 \u000a\u0022\n""#
        );
        assert_eq!(respelled(json, Escapes::Unicode), r#""a/b\/c\\/ éé 🚀🚀 \u000a\u0022\n""#);
    }
}
