//! The configuration in effect, for people (`check --print`, valid TOML) and for programs (`--json`).
//!
//! Secrets appear as reference and fingerprint only.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use super::{
    Alert, AlertOn, AlertVia, BodyFormat, Config, Destination, Endpoint, Fingerprints, Mode, OnRedelivery,
    OnScopeMismatch, Order, Replay, Sign, duration_text,
};
use crate::signature::{Recipe, Secret};
use crate::terminal::is_unprintable;

impl Config {
    /// Every value in effect as a configuration file. Unset keys are comments.
    pub fn to_toml(&self) -> String {
        let mut text = match &self.file {
            Some(file) => format!("# the configuration in effect, from {}\n", file.display()),
            None => "# the configuration in effect: development instance, no file\n".to_owned(),
        };
        for table in self.tables() {
            if !table.header.is_empty() {
                text.push_str(&format!("\n[{}]\n", table.header));
            }
            for (key, value) in &table.entries {
                push_toml(&mut text, key, value);
            }
        }
        text
    }

    /// Every value in effect as one object, nested as the file is; unset keys are null, a secret is
    /// `{"from", "fingerprint"}` (null where it was not read), sizes are bytes, durations are texts such as `"5m"`.
    pub fn to_json(&self) -> Json {
        let mut root = Map::new();
        for table in self.tables() {
            let entries = table.entries.into_iter().map(|(key, value)| (key, json_of(value)));
            let mut place = &mut root;
            // names are checked to contain no dot
            for part in table.header.split('.').filter(|part| !part.is_empty()) {
                let inner = place.entry(part).or_insert_with(|| json!({}));
                let Json::Object(inner) = inner else {
                    return Json::Null;
                };
                place = inner;
            }
            place.extend(entries);
        }
        Json::Object(root)
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![
            self.top(),
            self.listen_table(),
            Table::new("secrets").with("allow_shared_files", Value::Flag(self.allow_shared_files)),
            self.limits_table(),
            self.worker_table(),
            self.retention_table(),
        ];
        if let Some(embedded) = self.embedded {
            let allow_wal = Value::Flag(embedded.allow_wal);
            tables.push(Table::new("database_options").with("allow_wal", allow_wal));
        }
        tables.extend(self.alert.as_ref().map(alert_table));
        tables.push(Table::new("debug").with("keep_refused", whole(self.keep_refused)));
        let fingerprints = Fingerprints::of(&self.data_dir);
        for endpoint in &self.endpoints {
            tables.push(endpoint_table(endpoint, &fingerprints));
            tables.extend(scheme_table(endpoint));
        }
        tables.extend(self.destinations.iter().map(|to| destination_table(to, &fingerprints)));
        tables
    }

    fn top(&self) -> Table {
        let place = match self.embedded {
            None => ("data_dir", &self.data_dir),
            Some(_) => ("database", &self.database),
        };
        let public_url = match (&self.public_url, self.other_public_urls.as_slice()) {
            (Some(first), [_, ..]) => {
                texts(&std::iter::once(first).chain(&self.other_public_urls).collect::<Vec<_>>())
            }
            (first, _) => optional(first.as_ref()),
        };
        Table::new("").with(place.0, text(place.1.display())).with("public_url", public_url)
    }

    fn listen_table(&self) -> Table {
        let admin = self.listen.admin.as_ref().map_or(text("off"), text);
        Table::new("listen")
            .with("webhooks", text(&self.listen.webhooks))
            .with("admin", admin)
            .with("trusted_proxies", texts(&self.listen.trusted_proxies))
    }

    fn limits_table(&self) -> Table {
        Table::new("limits")
            .with("body_bytes_max", whole(self.limits.body_bytes_max))
            .with("connections_max", whole(self.limits.connections_max))
            .with("handler_timeout", text(duration_text(self.limits.handler_timeout)))
            .with("disk_free_min", Value::Whole(self.limits.disk_free_min))
    }

    fn worker_table(&self) -> Table {
        Table::new("worker")
            .with("threads", whole(self.worker.threads))
            .with("lease", text(duration_text(self.worker.lease)))
            .with("max_attempts", Value::Whole(self.worker.max_attempts.into()))
            .with("backoff_cap", text(duration_text(self.worker.backoff_cap)))
    }

    fn retention_table(&self) -> Table {
        Table::new("retention")
            .with("payload", text(duration_text(self.retention.payload)))
            .with("key", text(duration_text(self.retention.key)))
    }
}

fn alert_table(alert: &Alert) -> Table {
    let on = |on: &AlertOn| match on {
        AlertOn::Review => "review".to_owned(),
        AlertOn::Oldest(age) => format!("oldest>{}", duration_text(*age)),
        AlertOn::Dead => "dead".to_owned(),
        AlertOn::Failing(age) => format!("failing>{}", duration_text(*age)),
        AlertOn::Disk => "disk".to_owned(),
        AlertOn::Store => "store".to_owned(),
    };
    let (url, format, command) = match &alert.via {
        AlertVia::Url { url, format } => (text(url), text(format.as_str()), Value::Unset),
        AlertVia::Command(path) => (Value::Unset, Value::Unset, text(path.display())),
    };
    Table::new("alert")
        .with("url", url)
        .with("format", format)
        .with("command", command)
        .with("on", texts(&alert.on.iter().map(on).collect::<Vec<_>>()))
        .with("remind", text(duration_text(alert.remind)))
}

fn endpoint_table(endpoint: &Endpoint, fingerprints: &Fingerprints) -> Table {
    let mode = match endpoint.mode {
        Mode::Sync => "sync",
        Mode::Async => "async",
        Mode::Proxy => "proxy",
    };
    let proxy_timeout = match endpoint.mode {
        Mode::Proxy => text(duration_text(endpoint.proxy_timeout)),
        Mode::Sync | Mode::Async => Value::Unset,
    };
    let on_scope_mismatch = match endpoint.on_scope_mismatch {
        OnScopeMismatch::Refuse => "refuse",
        OnScopeMismatch::Ignore => "ignore",
    };
    let on_redelivery = match endpoint.on_redelivery {
        OnRedelivery::Requeue => "requeue",
        OnRedelivery::Count => "count",
    };
    let replay = match endpoint.replay {
        Replay::Flag => "flag",
        Replay::Refuse => "refuse",
        Replay::Allow => "allow",
    };
    Table::new(format!("endpoint.{}", endpoint.name))
        .with("provider", text(&endpoint.provider))
        .with("path", text(&endpoint.path))
        .with("secrets", secrets(&endpoint.secrets, fingerprints))
        .with("mode", text(mode))
        .with("handlers", texts(&endpoint.handlers))
        .with("notify", optional(endpoint.notify.as_ref()))
        .with("forward", texts(&endpoint.forward))
        .with("tolerance", text(duration_text(endpoint.tolerance)))
        .with("livemode", endpoint.livemode.map_or(Value::Unset, Value::Flag))
        .with("account", optional(endpoint.account.as_ref()))
        .with("on_scope_mismatch", text(on_scope_mismatch))
        .with("on_redelivery", text(on_redelivery))
        .with("replay", text(replay))
        .with("replay_allow", texts(&endpoint.replay_allow))
        .with("body_bytes_max", whole(endpoint.body_bytes_max))
        .with("proxy_timeout", proxy_timeout)
}

/// Keys of a scheme that mean "not used" where they are not set.
const SCHEME_KEYS_WITHOUT_DEFAULT: [&str; 12] = [
    "prefix",
    "list_separator",
    "pair",
    "key_prefix",
    "timestamp",
    "event_id",
    "event_type",
    "object_id",
    "form_field",
    "challenge",
    "challenge_when",
    "challenge_answer",
];

fn scheme_table(endpoint: &Endpoint) -> Option<Table> {
    let Ok(Json::Object(mut scheme)) = serde_json::to_value(endpoint.scheme.as_ref()?) else {
        return None;
    };
    let plain = Recipe::PLAIN;
    // without a time there is nothing that a unit could be of
    let unit = scheme.contains_key("timestamp").then_some(plain.timestamp_unit);
    // where the header holds the secret itself, nothing is signed
    let signs = !scheme.get("algorithm").is_some_and(|word| word == "token" || word == "basic");
    if scheme.get("signature_header").is_some_and(|name| name == "") {
        scheme.insert(String::from("signature_header"), json!("Authorization"));
    }
    for (key, default) in [
        ("encoding", signs.then_some(plain.encoding)),
        ("algorithm", Some(plain.algorithm)),
        ("key", signs.then_some(plain.key)),
        ("signed", signs.then_some(plain.signed)),
        ("timestamp_unit", unit),
    ] {
        scheme.entry(key).or_insert_with(|| json!(default));
    }
    for key in SCHEME_KEYS_WITHOUT_DEFAULT {
        scheme.entry(key).or_insert(Json::Null);
    }
    let mut table = Table::new(format!("endpoint.{}.scheme", endpoint.name));
    for (key, value) in scheme {
        table = table.with(key, value.as_str().map_or(Value::Unset, text));
    }
    Some(table)
}

fn destination_table(destination: &Destination, fingerprints: &Fingerprints) -> Table {
    let sign = match destination.sign {
        Sign::Provider => "provider",
        Sign::Standard => "standard",
        Sign::None => "none",
    };
    let order = match destination.order {
        Order::Object => "object",
        Order::None => "none",
    };
    let body_format = match destination.body_format {
        BodyFormat::Json => "json",
        BodyFormat::Form => "form",
    };
    let shown = |(name, value): (&String, &Secret)| (name.clone(), Shown::of(value, fingerprints));
    let headers = destination.headers.iter().map(shown);
    Table::new(format!("destination.{}", destination.name))
        .with("url", text(&destination.url))
        .with("sign", text(sign))
        .with("secrets", secrets(&destination.secrets, fingerprints))
        .with("order", text(order))
        .with("timeout", text(duration_text(destination.timeout)))
        .with("threads", whole(destination.threads))
        .with("give_up_after", text(duration_text(destination.give_up_after)))
        .with("backoff_cap", text(duration_text(destination.backoff_cap)))
        .with("lease", text(duration_text(destination.lease)))
        .with("headers", Value::Headers(headers.collect()))
        .with("body_format", text(body_format))
        .with("result", optional(destination.result.as_ref()))
        .with("key_lifetime", destination.key_lifetime.map_or(Value::Unset, |life| text(duration_text(life))))
        .with("allow_networks", texts(&destination.allow_networks))
        .with("ca_file", optional(destination.ca_file.as_ref().map(|path| path.display())))
}

struct Table {
    header: String,
    entries: Vec<(String, Value)>,
}

impl Table {
    fn new(header: impl Into<String>) -> Self {
        Self { header: header.into(), entries: Vec::new() }
    }

    fn with(mut self, key: impl Into<String>, value: Value) -> Self {
        self.entries.push((key.into(), value));
        self
    }
}

enum Value {
    Unset,
    Flag(bool),
    Whole(u64),
    Text(String),
    Texts(Vec<String>),
    Secrets(Vec<Shown>),
    Headers(Vec<(String, Shown)>),
}

/// A secret as it may be seen.
struct Shown {
    from: String,
    /// `None` where it was not read.
    fingerprint: Option<String>,
}

impl Shown {
    fn of(secret: &Secret, fingerprints: &Fingerprints) -> Self {
        Self { from: secret.label().to_owned(), fingerprint: fingerprints.find(secret) }
    }

    fn comment(&self) -> &str {
        self.fingerprint.as_deref().unwrap_or("not read")
    }
}

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn texts(values: &[impl ToString]) -> Value {
    Value::Texts(values.iter().map(ToString::to_string).collect())
}

fn optional(value: Option<impl ToString>) -> Value {
    value.map_or(Value::Unset, text)
}

fn whole(value: usize) -> Value {
    Value::Whole(u64::try_from(value).unwrap_or(u64::MAX))
}

fn secrets(secrets: &[Secret], fingerprints: &Fingerprints) -> Value {
    Value::Secrets(secrets.iter().map(|secret| Shown::of(secret, fingerprints)).collect())
}

fn push_toml(out: &mut String, key: &str, value: &Value) {
    let line = match value {
        Value::Unset => format!("# {key} is not set"),
        Value::Flag(flag) => format!("{key} = {flag}"),
        Value::Whole(number) => format!("{key} = {number}"),
        Value::Text(text) => format!("{key} = {}", quoted(text)),
        Value::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
            format!("{key} = [{}]", texts.join(", "))
        }
        Value::Secrets(secrets) => match secrets.as_slice() {
            [] => format!("{key} = []"),
            [one] => format!("{key} = [{}]  # {}", quoted(&one.from), one.comment()),
            several => {
                let lines =
                    several.iter().map(|one| format!("    {},  # {}\n", quoted(&one.from), one.comment()));
                format!("{key} = [\n{}]", lines.collect::<String>())
            }
        },
        Value::Headers(headers) => {
            let pairs: Vec<_> = headers
                .iter()
                .map(|(name, one)| format!("{} = {}", quoted(name), quoted(&one.from)))
                .collect();
            let prints: Vec<_> = headers.iter().map(|(_, one)| one.comment()).collect();
            let comment =
                if prints.is_empty() { String::new() } else { format!("  # {}", prints.join(", ")) };
            format!("{key} = {{ {} }}{comment}", pairs.join(", "))
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

fn json_of(value: Value) -> Json {
    let secret = |one: Shown| json!({ "from": one.from, "fingerprint": one.fingerprint });
    match value {
        Value::Unset => Json::Null,
        Value::Flag(flag) => json!(flag),
        Value::Whole(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Texts(texts) => json!(texts),
        Value::Secrets(secrets) => secrets.into_iter().map(secret).collect(),
        Value::Headers(headers) => headers.into_iter().map(|(name, one)| (name, secret(one))).collect(),
    }
}
