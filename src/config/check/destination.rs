//! `[destination.NAME]`: where the rows of the outbox and raw events are sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Uri};

use super::{Checker, Endpoint, HandlerName, Mode, duration_text};
use crate::config::keys::{Default, Kind, Table, Words, key, words};
use crate::config::values::{Shown, Values};
use crate::outgoing::{Client, Network, literal, url_rule};
use crate::providers::Provider;
use crate::signature::Secret;

pub(in crate::config) const TABLE: Table = Table {
    header: "destination.NAME",
    doc: "Where outbox rows and raw events are sent. The name is what `notify` and `forward` list.",
    keys: &[
        key("url", Kind::Text, Default::Required, "`http` or `https`, without user and password."),
        key(
            "sign",
            Kind::Choice(|| words(SIGNS)),
            Default::Is("provider"),
            "`provider`: signed anew as the sender signs; `standard`: Standard Webhooks; `none`.",
        ),
        key(
            "secrets",
            Kind::Secrets,
            Default::Unset,
            "The keys to sign with; with `sign = \"provider\"` those of the endpoint where none is named.",
        ),
        key(
            "order",
            Kind::Choice(|| words(ORDERS)),
            Default::Is("object"),
            "`object`: one request at a time per business object, in commit order; `none`: any order.",
        ),
        key(
            "timeout",
            Kind::Duration,
            Default::Is("15s"),
            "How long one request may take; where an endpoint has `mode = \"proxy\"` its `proxy_timeout` counts.",
        ),
        key("threads", Kind::Count(1, 64), Default::Is("4"), "Requests at once."),
        key(
            "give_up_after",
            Kind::Duration,
            Default::Is("3d"),
            "How long a row is retried after its first failure; then it is dead, with a review.",
        ),
        key("backoff_cap", Kind::Duration, Default::Is("15m"), "The longest wait between two attempts."),
        key(
            "lease",
            Kind::Duration,
            Default::Is("2m"),
            "How long a claimed row belongs to one dispatcher; longer than `timeout`.",
        ),
        key(
            "headers",
            Kind::Headers,
            Default::Unset,
            "Headers that are added, each with a reference to its value.",
        ),
        key(
            "body_format",
            Kind::Choice(|| words(FORMATS)),
            Default::Is("json"),
            "`form`: the payload's fields are sent as a form.",
        ),
        key(
            "result",
            Kind::Text,
            Default::Unset,
            "JSON pointer to the part of an answer that is kept with the row.",
        ),
        key(
            "key_lifetime",
            Kind::Duration,
            Default::Unset,
            "How long the destination remembers an Idempotency-Key; longer than `timeout`.",
        ),
        key(
            "allow_networks",
            Kind::Texts,
            Default::Unset,
            "Private networks that a *name* may resolve to; an address in the url needs none.",
        ),
        key(
            "ca_file",
            Kind::Text,
            Default::Unset,
            "A private certificate authority (PEM) instead of the public ones.",
        ),
    ],
};

const SIGNS: &Words<Sign> =
    &[("provider", Sign::Provider), ("standard", Sign::Standard), ("none", Sign::None)];
const ORDERS: &Words<Order> = &[("object", Order::Object), ("none", Order::None)];
const FORMATS: &Words<BodyFormat> = &[("json", BodyFormat::Json), ("form", BodyFormat::Form)];

/// `[destination.NAME]`
#[derive(Debug)]
pub struct Destination {
    /// The name that `notify` uses and that stands in the outbox.
    pub name: String,
    /// http or https, without user information.
    pub url: String,
    /// How deliveries are signed.
    pub sign: Sign,
    /// The keys for signing; may be empty unless `sign` is [`Sign::Standard`].
    pub secrets: Vec<Secret>,
    /// What may be in flight at once.
    pub order: Order,
    /// How long one request may take.
    pub timeout: Duration,
    /// Requests at once.
    pub threads: usize,
    /// How long a row is retried.
    pub give_up_after: Duration,
    /// The longest pause between two attempts.
    pub backoff_cap: Duration,
    /// How long a claimed row belongs to one dispatcher; longer than `timeout`.
    pub lease: Duration,
    /// Header names with their values, which are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// How the payload is encoded.
    pub body_format: BodyFormat,
    /// JSON pointer to the part of an answer that is kept.
    pub result: Option<String>,
    /// How long the destination remembers an idempotency key.
    pub key_lifetime: Option<Duration>,
    /// Private networks that a name may resolve to.
    pub allow_networks: Vec<Network>,
    /// A private certificate authority, PEM.
    pub ca_file: Option<PathBuf>,
}

/// `sign`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Re-signed like the sender, with a fresh timestamp.
    Provider,
    /// Standard Webhooks.
    Standard,
    /// Not at all.
    None,
}

/// `order`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any.
    None,
    /// One in flight per business object, in commit order.
    Object,
}

/// `body_format`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/json`
    Json,
    /// `application/x-www-form-urlencoded`
    Form,
}

impl Checker {
    /// `None` where too much is wrong to go on; every problem is noted.
    pub(super) fn destination(&mut self, table: &Values, endpoints: &[Endpoint]) -> Option<Destination> {
        let name = table.name.clone();
        self.name(&table.path, &name);
        let sign = self.choice(table, "sign", SIGNS);
        if sign == Sign::Provider {
            self.can_sign_like_the_provider(&table.key("sign"), &name, endpoints);
        }
        let secrets = self.signing_secrets(table, sign);
        self.uses(&table.path, &name, endpoints);
        let timeout = self.duration(table, "timeout");
        let allow_networks = self.networks(table);
        let url = self.destination_url(table, &allow_networks);
        Some(Destination {
            sign,
            secrets,
            order: self.choice(table, "order", ORDERS),
            timeout,
            threads: self.count(table, "threads"),
            give_up_after: self.duration(table, "give_up_after"),
            backoff_cap: self.duration(table, "backoff_cap"),
            lease: self.lease(table, timeout),
            headers: self.headers(table),
            body_format: self.choice(table, "body_format", FORMATS),
            result: self.pointer(table),
            key_lifetime: self.key_lifetime(table, timeout),
            allow_networks,
            ca_file: self.ca_file(table),
            url: url?,
            name,
        })
    }

    fn signing_secrets(&mut self, table: &Values, sign: Sign) -> Vec<Secret> {
        let secrets = self.secrets(table, "secrets");
        if sign == Sign::Standard && table.texts("secrets").is_empty() {
            let rule = "is missing; sign = \"standard\" needs e.g. secrets = [\"env:APP_SECRET\"]";
            self.missing(table.key("secrets"), rule);
        }
        self.signing_keys(&table.key("secrets"), sign, &secrets);
        secrets
    }

    fn lease(&mut self, table: &Values, timeout: Duration) -> Duration {
        let lease = self.duration(table, "lease");
        if lease <= timeout {
            let (lease, timeout) = (duration_text(lease), duration_text(timeout));
            let rule = format!("must be longer than timeout ({timeout}), or a delivery is done twice");
            let advice = "write a longer lease or a shorter timeout";
            self.problem(table.key("lease"), format!("\"{lease}\": {rule}; {advice}"));
        }
        lease
    }

    fn key_lifetime(&mut self, table: &Values, timeout: Duration) -> Option<Duration> {
        let life = self.optional_duration(table, "key_lifetime")?;
        if life <= timeout {
            let (life, timeout) = (duration_text(life), duration_text(timeout));
            let rule =
                format!("must be longer than timeout ({timeout}), or nothing could ever be tried again");
            let advice = "write what the API documents, e.g. \"24h\"";
            self.problem(table.key("key_lifetime"), format!("\"{life}\": {rule}; {advice}"));
        }
        Some(life)
    }

    /// Only the provider holds its private key, and a time inside the body cannot be renewed.
    fn can_sign_like_the_provider(&mut self, key: &str, name: &str, endpoints: &[Endpoint]) {
        for endpoint in endpoints {
            let (scheme, provider) = (endpoint.verifier.scheme(), &endpoint.provider);
            let is_forwarded = endpoint.forward.iter().any(|to| to == name);
            if (is_forwarded || endpoint.notify.as_deref() == Some(name)) && !scheme.can_sign() {
                let rule = format!("{provider} signs with a private key that only it has");
                self.problem(key, format!("\"provider\": {rule}; write sign = \"standard\" or \"none\""));
            } else if is_forwarded && endpoint.mode != Mode::Proxy && scheme.has_time_in_body() {
                let seconds = endpoint.verifier.provider().preset().tolerance_s;
                self.warn(format!(
                    "{key}: \"provider\": {provider} signs a time inside the body, so what the application gets more than \
                     {seconds} s later is refused by its SDK and given up; write sign = \"standard\""
                ));
            }
        }
    }

    fn uses(&mut self, key: &str, name: &str, endpoints: &[Endpoint]) {
        let forwards = |endpoint: &Endpoint| endpoint.forward.iter().any(|used| used == name);
        let notifies = |endpoint: &Endpoint| endpoint.notify.as_deref() == Some(name);
        let writes_to_notify_only = |handler: &HandlerName| match handler {
            HandlerName::Named(name) => self.handler(name).is_some_and(|facts| facts.writes_to_notify_only),
            HandlerName::Sql { .. } => false,
        };
        let may_name_it = |endpoint: &Endpoint| !endpoint.handlers.iter().all(writes_to_notify_only);
        if !endpoints.iter().any(|it| forwards(it) || notifies(it) || may_name_it(it)) {
            self.warn(format!("{key}: is used by no endpoint"));
        }
    }

    /// Keys of Standard Webhooks are base64; the other schemes' keys were checked with their endpoints.
    fn signing_keys(&mut self, key: &str, sign: Sign, secrets: &[Secret]) {
        if sign != Sign::Standard {
            return;
        }
        let Ok(provider) = Provider::named("standardwebhooks") else { return };
        for secret in secrets.iter().filter(|secret| !secret.is_unread()) {
            match provider.check_secret(secret) {
                Ok(None) => {}
                Ok(Some(warning)) => self.warn(format!("{key}: {warning}")),
                Err(rule) => self.problem(key, rule),
            }
        }
    }

    fn destination_url(&mut self, table: &Values, allow_networks: &[Network]) -> Option<String> {
        let key = table.key("url");
        let Some(typed) = self.text(table, "url") else {
            self.missing(key, "is missing; write e.g. url = \"http://127.0.0.1:3000/webhooks\"");
            return None;
        };
        if let Some(host) = private_name(&typed).filter(|_| allow_networks.is_empty()) {
            self.warn(format!(
                "{key}: \"{host}\" is a name of a private network, and private addresses are blocked unless they are named; \
                 write e.g. allow_networks = [\"172.16.0.0/12\"], the network that it is in"
            ));
        }
        let advice = "write e.g. \"http://127.0.0.1:3000/webhooks\"; credentials go into headers";
        self.url(&key, &typed, url_rule, advice)
    }

    fn pointer(&mut self, table: &Values) -> Option<String> {
        let typed = self.text(table, "result")?;
        if !typed.starts_with('/') {
            let rule = format!("\"{typed}\": is not a JSON pointer; write e.g. \"/id\"");
            self.problem(table.key("result"), rule);
        }
        Some(typed)
    }

    fn headers(&mut self, table: &Values) -> BTreeMap<String, Secret> {
        let mut headers = BTreeMap::new();
        for (name, reference) in table.pairs("headers") {
            let key = format!("{}.{name}", table.key("headers"));
            if let Some(rule) = header_rule(name) {
                self.problem(&key, rule);
            }
            let Some(value) = self.secret(&key, reference) else { continue };
            if HeaderValue::from_bytes(value.expose().trim_ascii()).is_err() {
                let rule = "its value cannot stand in a header: it has a line break or a control character";
                self.problem(&key, rule);
            }
            headers.insert(name.to_owned(), value);
        }
        let shown = headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        table.show("headers", Shown::Headers(shown.collect()));
        headers
    }

    fn networks(&mut self, table: &Values) -> Vec<Network> {
        let mut networks = Vec::new();
        for text in table.texts("allow_networks") {
            match text.parse() {
                Ok(network) => networks.push(network),
                Err(rule) => self.problem(table.key("allow_networks"), format!("\"{text}\": {rule}")),
            }
        }
        table.show("allow_networks", Shown::texts(&networks));
        networks
    }

    fn ca_file(&mut self, table: &Values) -> Option<PathBuf> {
        let typed = self.text(table, "ca_file")?;
        let (key, path) = (table.key("ca_file"), self.base.join(&typed));
        if let Err(error) = std::fs::File::open(&path) {
            self.problem(key, format!("\"{typed}\": cannot be read: {error}; name a PEM file"));
        } else if Client::new("https://localhost/", &[], Some(&path)).is_err() {
            self.problem(key, format!("\"{typed}\": holds no certificate; name a PEM file"));
        }
        table.show("ca_file", Shown::text(path.display()));
        Some(path)
    }
}

fn header_rule(name: &str) -> Option<&'static str> {
    if is_ours(name) {
        return Some("is a header that inboxd writes itself; remove it");
    }
    let advice = "is not a header's name; write e.g. headers = { Authorization = \"env:API_TOKEN\" }";
    HeaderName::from_bytes(name.as_bytes()).is_err().then_some(advice)
}

/// The host of a URL, where it is a name that the public DNS does not know: one without a dot, or under a domain that is
/// kept for private use. `localhost` means this machine.
pub(super) fn private_name(url: &str) -> Option<String> {
    const DOMAINS: [&str; 10] = [
        "internal",
        "local",
        "lan",
        "home",
        "corp",
        "intranet",
        "private",
        "svc",
        "localdomain",
        "localhost",
    ];
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.to_ascii_lowercase();
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_private = !host.contains('.') || DOMAINS.contains(&last) || host.ends_with(".home.arpa");
    (host != "localhost" && literal(&host).is_none() && is_private).then_some(host)
}

/// What frames the request, and what inboxd says in it.
fn is_ours(header: &str) -> bool {
    const OURS: [&str; 8] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "expect",
        "upgrade",
        "idempotency-key",
    ];
    let header = header.to_ascii_lowercase();
    OURS.contains(&header.as_str()) || header.starts_with("inboxd-")
}
