//! The manual's table of keys: the declarations as people read them, in the manual page and in docs/configuration.md.

use super::check::FILE;
use super::keys::{Default, Key, Kind, Table};

/// A table of the file.
#[derive(Debug)]
pub struct TableEntry {
    /// e.g. `[endpoint.NAME]`; empty for the top of the file.
    pub header: String,
    /// What it is about.
    pub doc: &'static str,
    /// In the order in which people should read them.
    pub keys: Vec<KeyEntry>,
}

/// A key of it.
#[derive(Debug)]
pub struct KeyEntry {
    /// Its name.
    pub name: &'static str,
    /// What may stand there.
    pub kind: String,
    /// What it is where it is not written, in Markdown; empty: not set.
    pub default: String,
    /// What it does, in Markdown.
    pub doc: &'static str,
}

/// Every key that a configuration may have.
pub fn manual() -> Vec<TableEntry> {
    let mut entries = Vec::new();
    push(&mut entries, &FILE, false);
    entries
}

/// What a key is where it is not written, as it would be typed; `table` is its header, e.g. `endpoint.NAME`.
pub fn default_of(table: &str, key: &str) -> &'static str {
    declared(table, key).default().unwrap_or_default()
}

/// What a key does, to stand beside it in a file.
pub fn remark(table: &str, key: &str) -> String {
    let sentence = declared(table, key).doc.trim_end_matches('.').replace('`', "");
    let mut chars = sentence.chars();
    chars.next().map_or(String::new(), |first| format!("{}{}", first.to_lowercase(), chars.as_str()))
}

fn declared(header: &str, name: &str) -> &'static Key {
    let key = FILE.all().into_iter().find(|table| table.header == header).and_then(|table| table.find(name));
    match key {
        Some(key) => key,
        None => panic!("[{header}] has no key {name}"),
    }
}

fn push(entries: &mut Vec<TableEntry>, table: &Table, is_list: bool) {
    let header = match table.header {
        "" => String::new(),
        header if is_list => format!("[[{header}]]"),
        header => format!("[{header}]"),
    };
    let keys = table.keys.iter().filter(|key| key.table().is_none()).map(entry).collect();
    entries.push(TableEntry { header, doc: table.doc, keys });
    for key in table.keys {
        if let Some(inner) = key.table() {
            push(entries, inner, matches!(key.kind, Kind::Tables(_)));
        }
    }
}

fn entry(key: &Key) -> KeyEntry {
    let default = match key.default {
        Default::Unset => String::new(),
        Default::Is(value) if matches!(key.kind, Kind::Flag | Kind::Count(..)) => format!("`{value}`"),
        Default::Is(value) => format!("`\"{value}\"`"),
        Default::List(values) => {
            let values: Vec<_> = values.iter().map(|value| format!("\"{value}\"")).collect();
            format!("`[{}]`", values.join(", "))
        }
        Default::Follows(words) => words.to_owned(),
        Default::Required => "required".to_owned(),
    };
    KeyEntry { name: key.name, kind: kind(&key.kind), default, doc: key.doc }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Texts => "list of texts".to_owned(),
        Kind::TextOrTexts => "text, or a list of them".to_owned(),
        Kind::Choice(words) => words().join(", "),
        Kind::Flag => "true, false".to_owned(),
        Kind::Count(min, max) => format!("{min} to {max}"),
        Kind::Size => "size".to_owned(),
        Kind::Duration => "duration".to_owned(),
        Kind::Secrets => "list of references".to_owned(),
        Kind::Headers => "table of references".to_owned(),
        Kind::Table(_) | Kind::OptionalTable(_) | Kind::Named(_) | Kind::Tables(_) => "table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::config::environment;
    use crate::config::units::{parse_duration, parse_size};

    const BEGIN: &str = "<!-- keys:begin -->\n";
    const END: &str = "<!-- keys:end -->\n";
    /// Set, the test writes the table instead of complaining.
    const WRITE: &str = "INBOXD_WRITE_DOCS";

    fn markdown() -> String {
        let mut text = "<!-- made from the declarations in src/config/check/: INBOXD_WRITE_DOCS=1 cargo test --lib config::manual -->\n".to_owned();
        for TableEntry { header, doc, keys } in manual() {
            let heading =
                if header.is_empty() { "Top of the file".to_owned() } else { format!("`{header}`") };
            text.push_str(&format!(
                "\n### {heading}\n\n{doc}\n\n| key | value | default | what it does |\n|---|---|---|---|\n"
            ));
            for KeyEntry { name, kind, default, doc } in keys {
                let default = if default.is_empty() { "not set" } else { &default };
                text.push_str(&format!("| `{name}` | {kind} | {default} | {doc} |\n"));
            }
        }
        text.push('\n');
        text
    }

    #[test]
    fn the_keys_in_docs_configuration_md_are_those_that_are_declared() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
        let page = fs::read_to_string(&path).expect("docs/configuration.md");
        let (before, rest) =
            page.split_once(BEGIN).expect("docs/configuration.md has the line <!-- keys:begin -->");
        let (found, after) =
            rest.split_once(END).expect("docs/configuration.md has the line <!-- keys:end -->");
        let wanted = markdown();
        if environment(WRITE).is_some() {
            fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("docs/configuration.md");
        } else if found != wanted {
            panic!(
                "the keys in docs/configuration.md are out of date; run {WRITE}=1 cargo test --lib config::manual"
            );
        }
    }

    #[test]
    fn every_key_says_what_it_does_and_its_default_can_be_typed() {
        fn judge(table: &Table) {
            for key in table.keys {
                let name = format!("[{}] {}", table.header, key.name);
                assert!(key.doc.ends_with('.'), "{name}: a sentence");
                assert!(!key.doc.contains('|'), "{name}: a cell of a table");
                let default = key.default();
                let is_typed = match (&key.kind, default) {
                    (_, None) => true,
                    (Kind::Duration, Some(text)) => parse_duration(text).is_ok(),
                    (Kind::Size, Some(text)) => parse_size(text).is_ok(),
                    (Kind::Count(min, max), Some(text)) => {
                        text.parse().is_ok_and(|count| (*min..=*max).contains(&count))
                    }
                    (Kind::Flag, Some(text)) => text.parse::<bool>().is_ok(),
                    (Kind::Choice(words), Some(text)) => words().contains(&text),
                    (Kind::Text | Kind::TextOrTexts, Some(text)) => !text.is_empty(),
                    (_, Some(_)) => false,
                };
                assert!(is_typed, "{name}: {default:?}");
                key.table().into_iter().for_each(judge);
            }
        }
        judge(&FILE);
    }
}
