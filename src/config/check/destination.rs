//! The rules of `[destination.NAME]`.

use std::collections::BTreeMap;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Uri};

use super::{Checker, duration_text};
use crate::config::raw::{RawDestination, RawDuration};
use crate::config::{BodyFormat, Destination, Endpoint, HandlerName, Mode, Order, Sign};
use crate::outgoing::{Client, Network, literal, url_rule};
use crate::providers::Provider;
use crate::signature::Secret;

const MINUTE: u64 = 60;

impl Checker {
    /// `None` where too much is wrong to go on; every problem is noted.
    pub(super) fn destination(
        &mut self,
        name: String,
        raw: RawDestination,
        endpoints: &[Endpoint],
    ) -> Option<Destination> {
        let key = format!("destination.{name}");
        let of = |field: &str| format!("{key}.{field}");
        self.name(&key, &name);
        let signs = [("provider", Sign::Provider), ("standard", Sign::Standard), ("none", Sign::None)];
        let sign = self.choice(&of("sign"), raw.sign.as_deref(), &signs);
        if sign == Sign::Provider {
            self.can_sign_like_the_provider(&of("sign"), &name, endpoints);
        }
        let orders = [("object", Order::Object), ("none", Order::None)];
        let order = self.choice(&of("order"), raw.order.as_deref(), &orders);
        let formats = [("json", BodyFormat::Json), ("form", BodyFormat::Form)];
        let body_format = self.choice(&of("body_format"), raw.body_format.as_deref(), &formats);
        let timeout = self.duration(&of("timeout"), raw.timeout.as_ref(), Duration::from_secs(15));
        let lease = self.lease(&of("lease"), raw.lease.as_ref(), timeout);
        let secrets = self.secrets(&of("secrets"), &raw.secrets);
        if sign == Sign::Standard && raw.secrets.is_empty() {
            self.missing(
                of("secrets"),
                "is missing; sign = \"standard\" needs e.g. secrets = [\"env:APP_SECRET\"]",
            );
        }
        self.signing_keys(&of("secrets"), sign, &secrets);
        self.pointer(&of("result"), raw.result.as_deref());
        self.uses(&key, &name, endpoints);
        let allow_networks = self.networks(&of("allow_networks"), &raw.allow_networks);
        if let Some(host) = raw.url.as_deref().and_then(private_name).filter(|_| allow_networks.is_empty()) {
            self.warn(format!(
                "{}: \"{host}\" is a name of a private network, and private addresses are blocked unless they are named; \
                 write e.g. allow_networks = [\"172.16.0.0/12\"], the network that it is in",
                of("url")
            ));
        }
        let ca_file = raw.ca_file.map(|typed| self.ca_file(&of("ca_file"), &typed));
        Some(Destination {
            url: self.destination_url(&of("url"), raw.url.as_deref())?,
            sign,
            secrets,
            order,
            timeout,
            threads: self.count(&of("threads"), raw.threads, 4, 64),
            give_up_after: self.duration(
                &of("give_up_after"),
                raw.give_up_after.as_ref(),
                Duration::from_secs(3 * 24 * 60 * MINUTE),
            ),
            backoff_cap: self.duration(
                &of("backoff_cap"),
                raw.backoff_cap.as_ref(),
                Duration::from_secs(15 * MINUTE),
            ),
            lease,
            headers: self.headers(&of("headers"), raw.headers),
            body_format,
            result: raw.result,
            key_lifetime: raw
                .key_lifetime
                .as_ref()
                .map(|typed| self.key_lifetime(&of("key_lifetime"), typed, timeout)),
            allow_networks,
            ca_file,
            name,
        })
    }

    fn lease(&mut self, key: &str, typed: Option<&RawDuration>, timeout: Duration) -> Duration {
        let lease = self.duration(key, typed, Duration::from_secs(2 * MINUTE));
        if lease <= timeout {
            let (lease, timeout) = (duration_text(lease), duration_text(timeout));
            let rule = format!("must be longer than timeout ({timeout}), or a delivery is done twice");
            let advice = "write a longer lease or a shorter timeout";
            self.problem(key, format!("\"{lease}\": {rule}; {advice}"));
        }
        lease
    }

    fn key_lifetime(&mut self, key: &str, typed: &RawDuration, timeout: Duration) -> Duration {
        let life = self.duration(key, Some(typed), Duration::from_secs(24 * 60 * MINUTE));
        if life <= timeout {
            let (life, timeout) = (duration_text(life), duration_text(timeout));
            let rule =
                format!("must be longer than timeout ({timeout}), or nothing could ever be tried again");
            self.problem(key, format!("\"{life}\": {rule}; write what the API documents, e.g. \"24h\""));
        }
        life
    }

    /// A provider with a private key signs what nobody else can, and a time inside the body is never made anew.
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

    fn destination_url(&mut self, key: &str, typed: Option<&str>) -> Option<String> {
        let Some(typed) = typed else {
            self.missing(key.to_owned(), "is missing; write e.g. url = \"http://127.0.0.1:3000/webhooks\"");
            return None;
        };
        let advice = "write e.g. \"http://127.0.0.1:3000/webhooks\"; credentials go into headers";
        self.url(key, typed, url_rule, advice)
    }

    fn pointer(&mut self, key: &str, typed: Option<&str>) {
        if let Some(typed) = typed
            && !typed.starts_with('/')
        {
            self.problem(key, format!("\"{typed}\": is not a JSON pointer; write e.g. \"/id\""));
        }
    }

    fn headers(&mut self, key: &str, typed: BTreeMap<String, String>) -> BTreeMap<String, Secret> {
        let mut headers = BTreeMap::new();
        for (name, reference) in typed {
            let key = format!("{key}.{name}");
            if is_ours(&name) {
                self.problem(&key, "is a header that inboxd writes itself; remove it");
            } else if HeaderName::from_bytes(name.as_bytes()).is_err() {
                self.problem(
                    &key,
                    "is not a header's name; write e.g. headers = { Authorization = \"env:API_TOKEN\" }",
                );
            }
            if let Some(value) = self.secret(&key, &reference) {
                if HeaderValue::from_bytes(value.expose().trim_ascii()).is_err() {
                    self.problem(
                        &key,
                        "its value cannot stand in a header: it has a line break or a control character",
                    );
                }
                headers.insert(name, value);
            }
        }
        headers
    }

    fn networks(&mut self, key: &str, typed: &[String]) -> Vec<Network> {
        let mut networks = Vec::new();
        for text in typed {
            match text.parse() {
                Ok(network) => networks.push(network),
                Err(rule) => self.problem(key, format!("\"{text}\": {rule}")),
            }
        }
        networks
    }

    fn ca_file(&mut self, key: &str, typed: &str) -> std::path::PathBuf {
        let path = self.base.join(typed);
        if let Err(error) = std::fs::File::open(&path) {
            self.problem(key, format!("\"{typed}\": cannot be read: {error}; name a PEM file"));
        } else if Client::new("https://localhost/", &[], Some(&path)).is_err() {
            self.problem(key, format!("\"{typed}\": holds no certificate; name a PEM file"));
        }
        path
    }
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
