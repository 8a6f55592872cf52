//! From a file to the [`Values`] of its tables plus everything that is wrong with the file's shape.
//!
//! What may stand where is declared ([`super::keys`]). An entry that is not declared, or is of another type, is reported
//! and left out, and reading goes on, so that one run reports everything. Nothing typed is ever quoted from here except
//! keys, numbers and booleans: a line of this file may hold what its author thinks is the place for a secret.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::keys::{Key, Kind, Table};
use super::values::{Typed, Values};
use super::{ConfigError, Problem, is_absent, suggest};

/// More than any real configuration; a bound for `--config /dev/zero`.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file that is TOML.
#[derive(Debug)]
pub(super) struct Document {
    /// What could be read.
    pub(super) values: Values,
    /// What could not.
    pub(super) problems: Vec<Problem>,
    /// The line of every key, e.g. of `endpoint.billing.path`.
    pub(super) lines: BTreeMap<String, usize>,
}

/// Reads the file.
///
/// # Errors
/// It cannot be read, or it is not TOML.
pub(super) fn read(file: &Path, keys: &'static Table) -> Result<Document, ConfigError> {
    let text = read_bounded(file).map_err(|error| {
        let advice = if is_absent(&error) {
            format!("does not exist; `inboxd init {}` writes one", file.display())
        } else {
            format!("cannot be read: {error}")
        };
        ConfigError::of_file(file, advice)
    })?;
    parse(&text, keys).map_err(|problem| ConfigError {
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

fn parse(text: &str, table: &'static Table) -> Result<Document, Problem> {
    let parsed = DeTable::parse(text).map_err(|error| not_toml(text, &error))?;
    let mut reader = Reader { text, file: table, problems: Vec::new(), lines: BTreeMap::new() };
    let values = reader.table(table, String::new(), parsed.get_ref());
    Ok(Document { values, problems: reader.problems, lines: reader.lines })
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

/// A value of another type than its key takes.
struct Mismatch {
    span: Range<usize>,
    given: String,
    expected: &'static str,
}

impl Mismatch {
    fn of(value: &Spanned<DeValue<'_>>, expected: &'static str) -> Self {
        Self { span: value.span(), given: described(value.get_ref()), expected }
    }
}

struct Reader<'t> {
    text: &'t str,
    file: &'static Table,
    problems: Vec<Problem>,
    lines: BTreeMap<String, usize>,
}

impl Reader<'_> {
    fn table(&mut self, table: &'static Table, path: String, source: &DeTable<'_>) -> Values {
        let mut values = Values::empty(table, path);
        for (name, value) in source {
            let path = values.key(name.get_ref());
            self.note_line(&path, &name.span());
            let Some(key) = table.find(name.get_ref()) else {
                let advice = self.advice(table, name.get_ref());
                self.problem(&name.span(), path, format!("unknown key; {advice}"));
                continue;
            };
            match self.value(key, &path, value) {
                Ok(typed) => values.set(key.name, typed),
                Err(mismatch) => self.mismatch(key, path, &mismatch),
            }
        }
        values
    }

    /// What may have been meant. A key of another table was mostly typed below the wrong header.
    fn advice(&self, table: &Table, name: &str) -> String {
        let others = self.file.all().into_iter().filter(|other| other.find(name).is_some());
        let homes: Vec<_> = others.map(home).collect();
        if homes.is_empty() || suggest::closest(name, table.names()).is_some() {
            return suggest::advice(name, table.names());
        }
        format!("it belongs {}", homes.join(" or "))
    }

    fn value(&mut self, key: &Key, path: &str, value: &Spanned<DeValue<'_>>) -> Result<Typed, Mismatch> {
        let typed = match (&key.kind, value.get_ref()) {
            (Kind::Table(table) | Kind::OptionalTable(table), DeValue::Table(inner)) => {
                Typed::Table(self.table(table, path.to_owned(), inner))
            }
            (Kind::Named(table), DeValue::Table(inner)) => Typed::Tables(self.named(key, table, path, inner)),
            (Kind::Tables(table), DeValue::Array(items)) => {
                Typed::Tables(self.items(key, table, path, items)?)
            }
            (Kind::Headers, DeValue::Table(inner)) => Typed::Pairs(self.pairs(key, path, inner)),
            (Kind::Texts | Kind::TextOrTexts | Kind::Secrets, DeValue::Array(items)) => {
                Typed::Texts(items.iter().map(text_of).collect::<Result<_, _>>()?)
            }
            (Kind::TextOrTexts, DeValue::String(text)) => Typed::Texts(vec![text.to_string()]),
            (Kind::Text | Kind::Choice(_) | Kind::Duration | Kind::Size, DeValue::String(text)) => {
                Typed::Text(text.to_string())
            }
            (Kind::Flag, DeValue::Boolean(flag)) => Typed::Flag(*flag),
            (Kind::Size, DeValue::Integer(number)) if signed(number).is_some() => {
                Typed::Text(signed(number).unwrap_or_default().to_string())
            }
            (Kind::Count(..), DeValue::Integer(number))
                if signed(number).is_some_and(|number| number >= 0) =>
            {
                Typed::Number(signed(number).unwrap_or_default().unsigned_abs())
            }
            _ => return Err(Mismatch::of(value, key.kind.expected())),
        };
        Ok(typed)
    }

    /// In the order of the file, which is that of the names' places in it.
    fn named(&mut self, key: &Key, table: &'static Table, path: &str, source: &DeTable<'_>) -> Vec<Values> {
        let mut entries: Vec<_> = source.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut tables = Vec::new();
        for (name, value) in entries {
            let path = format!("{path}.{}", name.get_ref());
            self.note_line(&path, &name.span());
            match value.get_ref() {
                DeValue::Table(inner) => {
                    let mut values = self.table(table, path, inner);
                    // it may contain a dot
                    values.name = name.get_ref().to_string();
                    tables.push(values);
                }
                _ => self.mismatch(key, path, &Mismatch::of(value, "a table")),
            }
        }
        tables
    }

    fn items(
        &mut self,
        key: &Key,
        table: &'static Table,
        path: &str,
        source: &DeArray<'_>,
    ) -> Result<Vec<Values>, Mismatch> {
        let mut tables = Vec::new();
        for (index, item) in source.iter().enumerate() {
            let DeValue::Table(inner) = item.get_ref() else {
                return Err(Mismatch::of(item, key.kind.expected()));
            };
            let path = format!("{path}[{index}]");
            self.note_line(&path, &item.span());
            tables.push(self.table(table, path, inner));
        }
        Ok(tables)
    }

    fn pairs(&mut self, key: &Key, path: &str, source: &DeTable<'_>) -> BTreeMap<String, String> {
        let mut pairs = BTreeMap::new();
        for (name, value) in source {
            let path = format!("{path}.{}", name.get_ref());
            self.note_line(&path, &name.span());
            match text_of(value) {
                Ok(text) => drop(pairs.insert(name.get_ref().to_string(), text)),
                Err(mismatch) => self.mismatch(key, path, &mismatch),
            }
        }
        pairs
    }

    fn mismatch(&mut self, key: &Key, path: String, mismatch: &Mismatch) {
        let Mismatch { span, given, expected } = mismatch;
        // a number may be a secret whose quotes were forgotten
        let message = match key.kind.names_secrets() {
            true => format!("must be {expected}, each \"env:VAR\", \"file:PATH\" or \"credential:NAME\""),
            false => format!("{given}: must be {expected}"),
        };
        self.problem(span, path, message);
    }

    fn problem(&mut self, span: &Range<usize>, key: String, message: String) {
        self.problems.push(Problem { line: Some(line_of(self.text, span.start)), key, message });
    }

    fn note_line(&mut self, path: &str, span: &Range<usize>) {
        self.lines.insert(path.to_owned(), line_of(self.text, span.start));
    }
}

/// Where the keys of a table are written.
fn home(table: &Table) -> String {
    match table.header {
        "" => "at the top of the file, before the first [table]".to_owned(),
        header => format!("in [{header}]"),
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Result<String, Mismatch> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(Mismatch::of(value, "a text in quotes")),
    }
}

fn signed(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn described(value: &DeValue<'_>) -> String {
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

#[cfg(test)]
mod tests {
    use super::super::check::FILE;
    use super::*;
    use crate::config::keys::{Default, key};

    fn problems(text: &str) -> Vec<String> {
        let document = parse(text, &FILE).expect("TOML");
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

    const TOKEN: Table = Table {
        header: "admin.token",
        doc: "",
        keys: &[
            key("name", Kind::Text, Default::Required, ""),
            key("threads", Kind::Count(1, 4), Default::Is("1"), ""),
        ],
    };
    const ADMIN: Table =
        Table { header: "admin", doc: "", keys: &[key("token", Kind::Tables(&TOKEN), Default::Unset, "")] };
    const WITH_LIST: Table =
        Table { header: "", doc: "", keys: &[key("admin", Kind::Table(&ADMIN), Default::Unset, "")] };

    #[test]
    fn a_list_of_tables_is_read_in_order_and_each_mistake_has_its_place_and_line() {
        let text =
            "[[admin.token]]\nname = \"a\"\nthreads = 2\n[[admin.token]]\nnaem = \"b\"\nthreads = \"x\"\n";
        let document = parse(text, &WITH_LIST).expect("TOML");
        let tokens = document.values.table("admin").expect("always there").tables("token");
        assert_eq!(tokens.len(), 2);
        assert_eq!((tokens[0].text("name"), tokens[0].number("threads")), (Some("a"), Some(2)));
        assert_eq!(tokens[1].key("name"), "admin.token[1].name");
        let found: Vec<_> = document.problems.iter().map(|found| (found.line, found.key.as_str())).collect();
        assert_eq!(
            found,
            [(Some(5), "admin.token[1].naem"), (Some(6), "admin.token[1].threads")],
            "{:?}",
            document.problems
        );
        let wrong = parse("admin.token = [1]\n", &WITH_LIST).expect("TOML").problems;
        assert!(wrong[0].message.starts_with("1: must be a list of tables"), "{wrong:?}");
    }

    #[test]
    fn a_key_under_the_wrong_header_is_sent_to_its_own() {
        let found =
            problems("handler_timeout = \"2s\"\n[limits]\npublic_url = \"x\"\ngive_up_after = \"1d\"\n");
        assert_eq!(
            found,
            [
                "1: handler_timeout: unknown key; it belongs in [limits]",
                "3: limits.public_url: unknown key; it belongs at the top of the file, before the first [table]",
                "4: limits.give_up_after: unknown key; it belongs in [destination.NAME]",
            ]
        );
    }

    #[test]
    fn a_syntax_error_does_not_quote_the_line() {
        let problem = parse("a = 1\nsecrets = [\"whsec_canary]\n", &FILE).expect_err("unterminated");
        assert_eq!(problem.line, Some(2));
        assert!(!problem.message.contains("canary"), "{}", problem.message);
    }
}
