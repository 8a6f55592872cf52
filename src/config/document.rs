//! From a file to a [`RawConfig`] plus everything that is wrong with the file's shape.
//!
//! serde stops at the first key it does not know. To report them all, the entry it stopped at is
//! struck from the document and the rest is read again. Nothing typed is ever quoted from here except
//! keys, numbers and booleans: a line of this file may hold what its author thinks is the place for a secret.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::raw::RawConfig;
use super::{ConfigError, Problem, is_absent, suggest};

/// More than any real configuration; a bound for `--config /dev/zero`.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file that is TOML.
#[derive(Debug)]
pub(super) struct Document {
    /// What could be read; struck entries are missing from it.
    pub(super) raw: RawConfig,
    /// The struck entries.
    pub(super) problems: Vec<Problem>,
    /// The line of every key, e.g. of `endpoint.billing.path`.
    pub(super) lines: BTreeMap<String, usize>,
}

/// Reads the file.
///
/// # Errors
/// It cannot be read, or it is not TOML.
pub(super) fn read(file: &Path) -> Result<Document, ConfigError> {
    let text = read_bounded(file).map_err(|error| {
        let advice = if is_absent(&error) {
            format!("does not exist; `inboxd init {}` writes one", file.display())
        } else {
            format!("cannot be read: {error}")
        };
        ConfigError::of_file(file, advice)
    })?;
    parse(&text).map_err(|problem| ConfigError {
        file: Some(file.to_owned()),
        problems: vec![problem],
        warnings: Vec::new(),
    })
}

fn read_bounded(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 MiB, too large for a configuration"));
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Document, Problem> {
    let mut table = DeTable::parse(text).map_err(|error| not_toml(text, &error))?;
    let mut lines = BTreeMap::new();
    note_lines(text, table.get_ref(), "", &mut lines);
    let mut problems = Vec::new();
    loop {
        let error = match RawConfig::deserialize(toml::Deserializer::from(table.clone())) {
            Ok(raw) => {
                return Ok(Document { raw, problems, lines });
            }
            Err(error) => error,
        };
        let struck = error.span().and_then(|span| strike(table.get_mut(), "", &span));
        let Some(struck) = struck else {
            // not reached with the types of `raw`; without it this loop might not end
            let message = "cannot be understood".to_owned();
            return Err(Problem { line: None, key: String::new(), message });
        };
        problems.push(Problem {
            line: error.span().map(|span| line_of(text, span.start)),
            message: explain(&struck, error.message()),
            key: struck.key,
        });
    }
}

/// A syntax error. The parser's own rendering quotes the line, which may hold a secret.
fn not_toml(text: &str, error: &toml::de::Error) -> Problem {
    let start = error.span().map(|span| span.start);
    let column = start.map_or(String::new(), |start| {
        let before = text.get(..start).unwrap_or(text);
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!(" at column {column}")
    });
    Problem {
        line: start.map(|start| line_of(text, start)),
        key: String::new(),
        message: format!("is not TOML{column}: {}", first_line(error.message())),
    }
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn note_lines(text: &str, table: &DeTable<'_>, prefix: &str, lines: &mut BTreeMap<String, usize>) {
    for (key, value) in table {
        let path = join(prefix, key.get_ref());
        lines.insert(path.clone(), line_of(text, key.span().start));
        if let DeValue::Table(inner) = value.get_ref() {
            note_lines(text, inner, &path, lines);
        }
    }
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// An entry taken out of the document.
struct Struck {
    key: String,
    /// `Some` where the value was wrong, `None` where the key was.
    value: Option<String>,
}

/// Takes out the entry whose key, value or list item stands at `span`.
fn strike(table: &mut DeTable<'_>, prefix: &str, span: &Range<usize>) -> Option<Struck> {
    let here = table.iter().find_map(|(key, value)| {
        let value = if key.span() == *span { None } else { Some(shown(at(value, span)?)) };
        Some((key.get_ref().to_string(), value))
    });
    if let Some((key, value)) = here {
        table.remove(key.as_str());
        return Some(Struck { key: join(prefix, &key), value });
    }
    table.iter_mut().find_map(|(key, value)| match value.get_mut() {
        DeValue::Table(inner) => strike(inner, &join(prefix, key.get_ref()), span),
        _ => None,
    })
}

/// The value at `span`: this one or an item of this list.
fn at<'a, 'i>(value: &'a Spanned<DeValue<'i>>, span: &Range<usize>) -> Option<&'a DeValue<'i>> {
    if value.span() == *span {
        return Some(value.get_ref());
    }
    let item = value.get_ref().as_array()?.iter().find(|item| item.span() == *span)?;
    Some(item.get_ref())
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::String(_) => "a text".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Datetime(time) => time.to_string(),
    }
}

/// serde's message in the words of this configuration.
fn explain(struck: &Struck, message: &str) -> String {
    let Some(value) = &struck.value else {
        let typed = struck.key.rsplit('.').next().unwrap_or_default();
        return format!("unknown key; {}", suggest::advice(typed, known_keys(message)));
    };
    if let Some(field) = message.strip_prefix("missing field `") {
        let field = field.trim_end_matches('`');
        return format!("lacks the key \"{field}\"; add it");
    }
    let expected = message.rsplit_once(", expected ").map_or("another type", |(_, expected)| expected);
    let expected = match expected {
        "a string" => "a text in quotes",
        "a sequence" => "a list such as [\"…\"]",
        "a boolean" => "true or false",
        "u64" => "a whole number, not negative",
        table if table.starts_with("struct") || table == "a map" => "a table",
        other => other,
    };
    // a number may be a secret whose quotes were forgotten
    if struck.key.ends_with(".secrets") || struck.key.contains(".headers") {
        return format!("must be {expected}, each \"env:VAR\", \"file:PATH\" or \"credential:NAME\"");
    }
    format!("{value}: must be {expected}")
}

/// The keys in "unknown field `x`, expected one of `a`, `b`".
fn known_keys(message: &str) -> Vec<&str> {
    let list = message.rsplit_once(", expected ").map_or("", |(_, list)| list);
    list.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let document = parse(text).expect("TOML");
        let mut lines = Vec::new();
        for Problem { line, key, message } in document.problems {
            lines.push(format!("{}: {key}: {message}", line.unwrap_or_default()));
        }
        lines.sort();
        lines
    }

    #[test]
    fn every_unknown_key_and_wrong_type_is_found_with_its_line() {
        let found = problems(
            "daat_dir = \"x\"\n[limits]\nconnections_max = -5\nhandler_timeout = 2\n\
             [endpoint.a]\ntolerence = \"5m\"\nlivemode = \"yes\"\nsecrets = [12345678]\n\
             [endpoint.a.scheme]\nsignature_header = \"x\"\nsigned_header = \"x\"\n[endpoint.b]\nsecrets = \"whsec_canary\"\n[wroker]\n",
        );
        let expected = [
            "11: endpoint.a.scheme.signed_header: unknown key; known: ",
            "13: endpoint.b.secrets: must be a list such as [\"…\"], each \"env:VAR\"",
            "14: wroker: unknown key; did you mean \"worker\"?",
            "1: daat_dir: unknown key; did you mean \"data_dir\"?",
            "3: limits.connections_max: -5: must be a whole number",
            "4: limits.handler_timeout: 2: must be a duration in quotes such as \"5m\"",
            "6: endpoint.a.tolerence: unknown key; did you mean \"tolerance\"?",
            "7: endpoint.a.livemode: a text: must be true or false",
            "8: endpoint.a.secrets: must be a text in quotes, each",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    #[test]
    fn a_syntax_error_does_not_quote_the_line() {
        let problem = parse("a = 1\nsecrets = [\"whsec_canary]\n").expect_err("unterminated");
        assert_eq!(problem.line, Some(2));
        assert!(!problem.message.contains("canary"), "{}", problem.message);
    }
}
