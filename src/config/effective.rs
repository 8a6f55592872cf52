//! The configuration in effect, for people (`check --print`, valid TOML) and for programs (`--json`).
//!
//! Which keys there are is declared ([`super::keys`]); what is in effect was noted by the rules that found it out. Here it
//! is only written. Secrets appear as reference and fingerprint only.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use super::keys::Kind;
use super::values::{Shown, Values};
use super::{Config, Fingerprints};
use crate::signature::Secret;
use crate::terminal::is_unprintable;

/// Every value in effect, table by table.
#[derive(Debug)]
pub(super) struct Effective(Vec<Section>);

#[derive(Debug)]
struct Section {
    /// e.g. `endpoint.billing`; empty for the top of the file.
    header: String,
    values: Vec<(&'static str, Shown)>,
}

impl Effective {
    pub(super) fn of(file: &Values) -> Self {
        let mut sections = Vec::new();
        push_sections(&mut sections, file);
        Self(sections)
    }
}

fn push_sections(sections: &mut Vec<Section>, table: &Values) {
    let values = table.shown();
    if !values.is_empty() {
        sections.push(Section { header: table.path.clone(), values });
    }
    for key in table.table.keys {
        match key.kind {
            Kind::Table(_) | Kind::OptionalTable(_) => {
                table.table(key.name).into_iter().for_each(|inner| push_sections(sections, inner));
            }
            Kind::Named(_) | Kind::Tables(_) => {
                table.tables(key.name).iter().for_each(|inner| push_sections(sections, inner));
            }
            _ => {}
        }
    }
}

impl Config {
    /// Every value in effect as a configuration file. Unset keys are comments.
    pub fn to_toml(&self) -> String {
        let from = match &self.file {
            Some(file) => format!("from {}", file.display()),
            None => "development instance, no file".to_owned(),
        };
        let fingerprints = Fingerprints::of(&self.data_dir);
        let separator = if self.file.is_some() { "," } else { ":" };
        format!("# the configuration in effect{separator} {from}\n{}", self.effective.to_toml(&fingerprints))
    }

    /// Every value in effect as one object, nested as the file is; unset keys are null, a secret is
    /// `{"from", "fingerprint"}` (null where it was not read), sizes are bytes, durations are texts such as `"5m"`.
    pub fn to_json(&self) -> Json {
        self.effective.to_json(&Fingerprints::of(&self.data_dir))
    }
}

impl Effective {
    fn to_toml(&self, fingerprints: &Fingerprints) -> String {
        let mut text = String::new();
        for Section { header, values } in &self.0 {
            // the path of an item of a list ends in its place there, which a header does not name
            let header = match header.rsplit_once('[') {
                Some((list, _)) => format!("[[{list}]]"),
                None => format!("[{header}]"),
            };
            if header != "[]" {
                text.push_str(&format!("\n{header}\n"));
            }
            for (key, value) in values {
                push_toml(&mut text, key, value, fingerprints);
            }
        }
        text
    }

    fn to_json(&self, fingerprints: &Fingerprints) -> Json {
        let mut root = Map::new();
        for Section { header, values } in &self.0 {
            let mut path = header.split('.').filter(|part| !part.is_empty());
            let Some(place) = path.try_fold(&mut root, inner) else { continue };
            let values = values.iter();
            place.extend(values.map(|(key, value)| ((*key).to_owned(), json_of(value, fingerprints))));
        }
        Json::Object(root)
    }
}

/// The object at a part of a path: `billing`, or `token[2]` for the third of a list. Names are checked to contain no dot.
fn inner<'j>(place: &'j mut Map<String, Json>, part: &str) -> Option<&'j mut Map<String, Json>> {
    let Some((list, index)) = part.split_once('[') else {
        return place.entry(part).or_insert_with(|| json!({})).as_object_mut();
    };
    let index: usize = index.trim_end_matches(']').parse().ok()?;
    let list = place.entry(list).or_insert_with(|| json!([])).as_array_mut()?;
    while list.len() <= index {
        list.push(json!({}));
    }
    list.get_mut(index)?.as_object_mut()
}

/// A line of a file. Written here and not by a serializer, which knows no comments, and would write a text as it is: on a
/// terminal it could move the cursor.
fn push_toml(out: &mut String, key: &str, value: &Shown, fingerprints: &Fingerprints) {
    let of = |secret: &Secret| (quoted(secret.label()), fingerprints.text(secret));
    let line = match value {
        Shown::Unset => format!("# {key} is not set"),
        Shown::Flag(flag) => format!("{key} = {flag}"),
        Shown::Number(number) => format!("{key} = {number}"),
        Shown::Text(text) => format!("{key} = {}", quoted(text)),
        Shown::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
            format!("{key} = [{}]", texts.join(", "))
        }
        Shown::Secrets(secrets) => match secrets.iter().map(of).collect::<Vec<_>>().as_slice() {
            [] => format!("{key} = []"),
            [(from, print)] => format!("{key} = [{from}]  # {print}"),
            several => {
                let lines = several.iter().map(|(from, print)| format!("    {from},  # {print}\n"));
                format!("{key} = [\n{}]", lines.collect::<String>())
            }
        },
        Shown::Headers(headers) if headers.is_empty() => format!("{key} = {{  }}"),
        Shown::Headers(headers) => {
            let named = headers.iter().map(|(name, secret)| (quoted(name), of(secret)));
            let (pairs, prints): (Vec<_>, Vec<_>) =
                named.map(|(name, (from, print))| (format!("{name} = {from}"), print)).unzip();
            format!("{key} = {{ {} }}  # {}", pairs.join(", "), prints.join(", "))
        }
    };
    out.push_str(&line);
    out.push('\n');
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if is_unprintable(c) => {
                // writing to a String cannot fail
                write!(quoted, "\\U{:08X}", u32::from(c)).unwrap_or_default();
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn json_of(value: &Shown, fingerprints: &Fingerprints) -> Json {
    let secret = |one: &Secret| json!({ "from": one.label(), "fingerprint": fingerprints.find(one) });
    match value {
        Shown::Unset => Json::Null,
        Shown::Flag(flag) => json!(flag),
        Shown::Number(number) => json!(number),
        Shown::Text(text) => json!(text),
        Shown::Texts(texts) => json!(texts),
        Shown::Secrets(secrets) => secrets.iter().map(secret).collect(),
        Shown::Headers(headers) => headers.iter().map(|(name, one)| (name.clone(), secret(one))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::keys::{Default, Table, key};
    use crate::config::values::Typed;
    use crate::config::{KeyEntry, MissingSecrets, TableEntry, manual};

    const TOKEN: Table =
        Table { header: "admin.token", doc: "", keys: &[key("name", Kind::Text, Default::Required, "")] };
    const ADMIN: Table =
        Table { header: "admin", doc: "", keys: &[key("token", Kind::Tables(&TOKEN), Default::Unset, "")] };
    const FILE: Table =
        Table { header: "", doc: "", keys: &[key("admin", Kind::Table(&ADMIN), Default::Unset, "")] };

    /// Says something of every table, and leaves every key to its default that has one.
    const ALL_TABLES: &str = "
[alert]
url = \"https://ntfy.sh/x\"
[[admin.token]]
name = \"ops\"
sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"
[endpoint.a]
provider = \"custom\"
secrets = [\"env:A\"]
scheme.signature_header = \"X\"
[destination.a]
url = \"http://127.0.0.1:1/\"
";

    fn shown(file: &str) -> Json {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("inboxd.toml");
        std::fs::write(dir.path().join("app.db"), "").expect("a file");
        std::fs::write(&path, file).expect("a file");
        Config::load(Some(&path), MissingSecrets::ReadNone, Vec::new()).expect("good").to_json()
    }

    #[test]
    fn every_declared_key_is_printed() {
        let own = shown(ALL_TABLES);
        let embedded = shown("database = \"app.db\"\n[database_options]\n");
        for TableEntry { header, keys, .. } in manual() {
            let mut path = header.trim_matches(['[', ']']).replace("NAME", "a").replace('.', "/");
            if header.starts_with("[[") {
                path.push_str("/0");
            }
            for KeyEntry { name, .. } in keys {
                let place = if path.is_empty() { format!("/{name}") } else { format!("/{path}/{name}") };
                let is_printed = [&own, &embedded].iter().any(|config| config.pointer(&place).is_some());
                assert!(is_printed, "{place}");
            }
        }
    }

    #[test]
    fn a_list_of_tables_is_printed_as_it_is_typed() {
        let mut file = Values::empty(&FILE, String::new());
        let mut admin = Values::empty(&ADMIN, "admin".to_owned());
        let token = |place: usize, name: &str| {
            let token = Values::empty(&TOKEN, format!("admin.token[{place}]"));
            token.show("name", Shown::text(name));
            token
        };
        admin.set("token", Typed::Tables(vec![token(0, "a\u{1b}"), token(1, "b")]));
        file.set("admin", Typed::Table(admin));
        let effective = Effective::of(&file);
        let fingerprints = Fingerprints::of(Path::new("/nowhere"));
        assert_eq!(
            effective.to_toml(&fingerprints),
            "\n[[admin.token]]\nname = \"a\\U0000001B\"\n\n[[admin.token]]\nname = \"b\"\n"
        );
        let json = json!({ "admin": { "token": [{ "name": "a\u{1b}" }, { "name": "b" }] } });
        assert_eq!(effective.to_json(&fingerprints), json);
    }
}
