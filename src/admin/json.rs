//! JSON laid out for people, token by token: what was sent is what is shown.
//!
//! Nothing is parsed into values: a number keeps all its digits, a name that stands there twice is shown twice, and a
//! string keeps its escapes. The text is cut where it becomes too long, and indented no deeper than a screen is wide.

use serde::de::IgnoredAny;

/// Bytes of the text that is made.
const BYTES_MAX: usize = 256 << 10;

/// No line is indented deeper.
const DEPTH_MAX: usize = 24;

/// The text laid out, or `None` where it is no JSON. Cut where it becomes too long.
pub fn laid_out(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut out = String::with_capacity(text.len().min(BYTES_MAX));
    let (mut depth, mut is_empty) = (0_usize, false);
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        if out.len() > BYTES_MAX {
            out.push_str("\n…");
            break;
        }
        match first {
            '"' => {
                begin(&mut out, depth, &mut is_empty);
                let end = string_end(rest);
                out.push_str(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            '{' | '[' => {
                begin(&mut out, depth, &mut is_empty);
                out.push(first);
                depth += 1;
                is_empty = true;
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !std::mem::take(&mut is_empty) {
                    line(&mut out, depth);
                }
                out.push(first);
            }
            ',' => {
                out.push(first);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            ' ' | '\t' | '\r' | '\n' => {}
            other => {
                begin(&mut out, depth, &mut is_empty);
                out.push(other);
            }
        }
        rest = &rest[first.len_utf8()..];
    }
    Some(out)
}

/// A first value stands on a line of its own.
fn begin(out: &mut String, depth: usize, is_empty: &mut bool) {
    if std::mem::take(is_empty) {
        line(out, depth);
    }
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
}

/// Where a string ends that the text begins with, its quotes included.
fn string_end(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_kept_as_it_was_sent() {
        let text = r#"{"a":12345678901234567890.10,"a":1E400 , "b":["\u0041\"}",{}, [ ],true],"ü":null}"#;
        let laid = laid_out(text).unwrap();
        let wanted = "{\n  \"a\": 12345678901234567890.10,\n  \"a\": 1E400,\n  \"b\": [\n    \"\\u0041\\\"}\",\n    {},\n    [],\n    true\n  ],\n  \"ü\": null\n}";
        assert_eq!(laid, wanted);
        assert_eq!(laid_out("{} x"), None);
        assert_eq!(laid_out(" 7 ").as_deref(), Some("7"));
    }

    #[test]
    fn deep_and_long_texts_are_bounded() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(laid_out(&deep).unwrap().len() < 20_000);
        let long = format!("[{}1]", "1,".repeat(200_000));
        assert!(laid_out(&long).unwrap().len() < BYTES_MAX + 100);
    }
}
