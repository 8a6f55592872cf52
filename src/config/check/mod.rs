//! From [`RawConfig`] to [`Config`]: every rule of the configuration, each stated once.
//!
//! A rule that is broken is noted and checking goes on with the default, so that one run reports
//! everything.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::Uri;

use super::document::Document;
use super::raw::{
    RawConfig, RawDuration, RawEndpoint, RawLimits, RawListen, RawRetention, RawSecrets, RawSize,
};
use super::secrets::Reading;
use super::{
    Address, Config, ConfigError, Embedded, HandlerFacts, Instance, Limits, Listen, MissingSecrets, Problem,
    Retention, Sketch, duration_text, parse_duration, parse_size, secrets, suggest, wrapping,
};
use crate::outgoing::base_url_rule;
use crate::signature::Secret;

mod database;
mod destination;
mod endpoint;
mod work;

/// Where the data is when neither `data_dir` nor `database` is written.
pub(super) const DATA_DIR: &str = "./inboxd-data";

/// The database's name in `data_dir`.
pub(super) const DATABASE: &str = "inboxd.db";

/// The folder in `data_dir` of the secrets that inboxd makes itself.
pub(super) const OWN_SECRETS: &str = "secrets";

/// All unfinished bodies share a budget of this size, so one body cannot be larger.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// A signature over the URL is tried with each.
const PUBLIC_URLS_MAX: usize = 8;
/// Stripe lets an event be sent again for 30 days.
const KEY_RETENTION_MIN: Duration = Duration::from_secs(31 * 86_400);

/// The checked configuration of a file.
pub(super) fn config(
    document: Document,
    file: &Path,
    handlers: Vec<HandlerFacts>,
    missing: MissingSecrets,
) -> Result<Config, ConfigError> {
    let checker = Checker { handlers, missing, ..Checker::of_document(&document, file) };
    finish(checker, document.raw, Some(file))
}

/// The part that reading stored data needs.
pub(super) fn instance(document: Document, file: &Path) -> Result<Instance, ConfigError> {
    let mut checker = Checker::of_document(&document, file);
    let place = checker.place(&document.raw);
    let endpoints = checker.in_file_order("endpoint", document.raw.endpoint.into_iter());
    let destinations = checker.in_file_order("destination", document.raw.destination.into_iter());
    checker.verdict(Some(file))?;
    Ok(Instance {
        data_dir: place.data_dir,
        database: place.database,
        sketches: endpoints.iter().map(|(name, raw)| sketch(name, raw)).collect(),
        endpoints: endpoints.into_iter().map(|(name, _)| name).collect(),
        destinations: destinations.into_iter().map(|(name, _)| name).collect(),
    })
}

fn sketch(name: &str, raw: &RawEndpoint) -> Sketch {
    Sketch {
        name: name.to_owned(),
        is_proxy: raw.mode.as_deref() == Some("proxy"),
        handlers: raw.handlers.clone(),
        forward: raw.forward.clone(),
        livemode: raw.livemode,
        account: raw.account.clone(),
    }
}

/// Checks everything and hands out the configuration, or all problems.
pub(super) fn finish(
    mut checker: Checker,
    raw: RawConfig,
    file: Option<&Path>,
) -> Result<Config, ConfigError> {
    let c = &mut checker;
    let place = c.place(&raw);
    c.is_embedded = place.embedded.is_some();
    c.reading = c.reading_of(&raw.secrets, &place.data_dir);
    let mut public_urls = raw.public_url.map_or(Vec::new(), |urls| c.public_urls(&urls.0));
    let listen = c.listen(&raw.listen);
    let limits = c.limits(&raw.limits);
    let worker = c.worker(&raw.worker, limits.handler_timeout);
    let retention = c.retention(&raw.retention);
    let keep_refused = match raw.debug.keep_refused {
        Some(0) => 0,
        typed => c.count("debug.keep_refused", typed, 0, KEEP_REFUSED_MAX),
    };
    let alert = raw.alert.as_ref().and_then(|alert| c.alert(alert));
    let destinations = c.in_file_order("destination", raw.destination.into_iter());
    let known: Vec<String> = destinations.iter().map(|(name, _)| name.clone()).collect();
    let endpoints = c.in_file_order("endpoint", raw.endpoint.into_iter());
    let mut endpoints: Vec<_> =
        endpoints.into_iter().filter_map(|(name, raw)| c.endpoint(name, raw, &limits, &known)).collect();
    let destinations =
        destinations.into_iter().filter_map(|(name, raw)| c.destination(name, raw, &endpoints)).collect();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.verifier.scheme().signs_url()) {
        if public_urls.is_empty() {
            let key = format!("endpoint.{}.provider", endpoint.name);
            let rule = format!(
                "\"{}\": signs the URL; write public_url = \"https://…\" as the provider knows it",
                endpoint.provider
            );
            c.problem(key, rule);
        }
    }
    for endpoint in &mut endpoints {
        endpoint.verifier.known_at(&public_urls);
    }
    let other_public_urls = public_urls.split_off(public_urls.len().min(1));
    if endpoints.is_empty() && c.problems.is_empty() && file.is_some() {
        c.warn(
            "there is no endpoint, so nothing can be received; add [endpoint.NAME], see `inboxd init`"
                .to_owned(),
        );
    }
    c.warn_of_unread();
    let allow_shared_files = c.reading.allow_shared_files;
    let warnings = checker.verdict(file)?;
    Ok(Config {
        file: file.map(Path::to_owned),
        database: place.database,
        data_dir: place.data_dir,
        embedded: place.embedded,
        runtime_dir: super::runtime_dir(),
        public_url: public_urls.pop(),
        other_public_urls,
        listen,
        limits,
        endpoints,
        destinations,
        retention,
        worker,
        alert,
        keep_refused,
        allow_shared_files,
        without_secret: Vec::new(),
        warnings,
    })
}

/// More than anybody looks through.
const KEEP_REFUSED_MAX: usize = 1000;

/// Collects what is wrong.
pub(super) struct Checker {
    /// What relative paths are relative to.
    base: PathBuf,
    lines: BTreeMap<String, usize>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    /// The endpoint of each path seen so far.
    paths: BTreeMap<String, String>,
    /// Those that `handlers` may list.
    pub(super) handlers: Vec<HandlerFacts>,
    /// Whether the database is the application's.
    is_embedded: bool,
    pub(super) missing: MissingSecrets,
    reading: Reading,
    /// Credentials that only the service could read.
    unread: usize,
}

impl Checker {
    pub(super) fn new(base: PathBuf) -> Self {
        Self {
            base,
            lines: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            paths: BTreeMap::new(),
            handlers: Vec::new(),
            is_embedded: false,
            missing: MissingSecrets::Report,
            reading: Reading::default(),
            unread: 0,
        }
    }

    fn of_document(document: &Document, file: &Path) -> Self {
        Self {
            lines: document.lines.clone(),
            problems: document.problems.clone(),
            ..Self::new(file.parent().map(Path::to_owned).unwrap_or_default())
        }
    }

    /// Notes a problem; `message` is value, rule and advice.
    pub(super) fn problem(&mut self, key: impl Into<String>, message: impl Into<String>) {
        let key = key.into();
        let message = message.into();
        self.problems.push(Problem { line: self.line(&key), key, message });
    }

    /// As [`Checker::problem`], unless that very key is wrong already or was misspelt in its table.
    fn missing(&mut self, key: String, message: &str) {
        let (table, name) = key.rsplit_once('.').unwrap_or_default();
        let meant = format!("did you mean \"{name}\"?");
        let is_misspelling = |problem: &Problem| {
            let of_table = problem.key.rsplit_once('.').map(|(table, _)| table);
            of_table == Some(table) && problem.message.ends_with(&meant)
        };
        let is_told = self.problems.iter().any(|problem| problem.key == key || is_misspelling(problem));
        if !is_told {
            self.problem(key, message);
        }
    }

    /// The registered handler of that name.
    fn handler(&self, name: &str) -> Option<&HandlerFacts> {
        self.handlers.iter().find(|handler| handler.name == name)
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// The warnings, if nothing is wrong.
    fn verdict(mut self, file: Option<&Path>) -> Result<Vec<String>, ConfigError> {
        if self.problems.is_empty() {
            return Ok(self.warnings);
        }
        self.problems.sort_by_key(|problem| problem.line);
        Err(ConfigError { file: file.map(Path::to_owned), problems: self.problems, warnings: self.warnings })
    }

    /// The line of a key, or of the nearest table around it.
    fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(line) = self.lines.get(key) {
                return Some(*line);
            }
            key = key.rsplit_once('.')?.0;
        }
    }

    fn in_file_order<T>(&self, table: &str, entries: impl Iterator<Item = (String, T)>) -> Vec<(String, T)> {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|(name, _)| self.line(&format!("{table}.{name}")));
        entries
    }

    pub(super) fn data_dir(&mut self, typed: Option<&str>) -> PathBuf {
        let typed = typed.unwrap_or(DATA_DIR);
        if typed.is_empty() {
            self.problem("data_dir", "\"\": names no directory; write e.g. \"/var/lib/inboxd\"");
        }
        let path = self.base.join(typed);
        if path.exists() && !path.is_dir() {
            self.problem(
                "data_dir",
                format!("\"{typed}\": is not a directory; name one, or a path that does not exist yet"),
            );
        }
        path
    }

    fn public_urls(&mut self, typed: &[String]) -> Vec<String> {
        if typed.len() > PUBLIC_URLS_MAX {
            let advice = "each is tried on every delivery whose URL is signed; write fewer";
            self.problem("public_url", format!("more than {PUBLIC_URLS_MAX} URLs: {advice}"));
            return Vec::new();
        }
        typed.iter().filter_map(|url| self.public_url(url)).collect()
    }

    fn public_url(&mut self, typed: &str) -> Option<String> {
        let rule = |url: &Uri| base_url_rule(url).or(url.query().is_some().then_some("must have no query"));
        let url = self.url("public_url", typed, rule, "write e.g. \"https://hooks.example.com\"")?;
        Some(url.trim_end_matches('/').to_owned())
    }

    /// The URL as typed, unless it breaks the rule.
    fn url(
        &mut self,
        key: &str,
        typed: &str,
        rule: impl Fn(&Uri) -> Option<&'static str>,
        advice: &str,
    ) -> Option<String> {
        if let Some(problem) = broken_by(typed, rule) {
            self.problem(key, format!("{problem}; {advice}"));
            return None;
        }
        Some(typed.to_owned())
    }

    pub(super) fn listen(&mut self, raw: &RawListen) -> Listen {
        let webhooks = self.address("listen.webhooks", raw.webhooks.as_deref().unwrap_or("127.0.0.1:8787"));
        let admin = match raw.admin.as_deref().unwrap_or("127.0.0.1:8788") {
            "off" => None,
            typed => self.address("listen.admin", typed),
        };
        if let (Some(webhooks), Some(admin)) = (&webhooks, &admin)
            && overlap(webhooks, admin)
        {
            let rule =
                "is the public listener; the admin pages must never be there; write another port, or \"off\"";
            self.problem("listen.admin", format!("\"{admin}\": {rule}"));
        }
        if let Some(Address::Tcp(address)) = &admin
            && !address.ip().is_loopback()
        {
            self.warn(format!(
                "listen.admin {address} can be reached from other machines and asks for no password"
            ));
        }
        let trusted_proxies = raw.trusted_proxies.iter().filter_map(|typed| self.proxy(typed)).collect();
        // a missing address is a problem noted above, so this one is never used
        let webhooks = webhooks.unwrap_or(Address::Unix(PathBuf::new()));
        Listen { webhooks, admin, trusted_proxies }
    }

    fn address(&mut self, key: &str, typed: &str) -> Option<Address> {
        let rule = match typed.split_once(':') {
            None if typed == "systemd" && key == "listen.webhooks" => return Some(Address::Systemd),
            None if typed == "systemd" => "is for listen.webhooks only; write host:port or unix:PATH",
            Some(("unix", "")) => "names no path; write e.g. \"unix:/run/inboxd/inboxd.sock\"",
            // sun_path has 108 bytes, one of them a zero
            Some(("unix", path)) if self.base.join(path).as_os_str().len() > 107 => {
                "is longer than the 107 bytes a Unix socket's path may have"
            }
            Some(("unix", path)) => return Some(Address::Unix(self.base.join(path))),
            Some(("", _)) => {
                "has no host; write e.g. \"127.0.0.1:8787\", or \"0.0.0.0:8787\" for every network"
            }
            _ => match typed.to_socket_addrs().map(|mut found| found.next()) {
                Ok(Some(address)) => return Some(Address::Tcp(address)),
                _ => "is not an address of this machine; write e.g. \"127.0.0.1:8787\" or \"unix:PATH\"",
            },
        };
        self.problem(key, format!("\"{}\": {rule}", without_user(typed)));
        None
    }

    fn proxy(&mut self, typed: &str) -> Option<IpAddr> {
        let proxy = typed.parse().ok();
        if proxy.is_none() {
            self.problem(
                "listen.trusted_proxies",
                format!("\"{typed}\": is not an IP address; write e.g. \"127.0.0.1\""),
            );
        }
        proxy
    }

    fn limits(&mut self, raw: &RawLimits) -> Limits {
        let handler_timeout =
            self.duration("limits.handler_timeout", raw.handler_timeout.as_ref(), Duration::from_secs(2));
        if handler_timeout > Duration::from_secs(10) {
            self.warn(format!(
                "limits.handler_timeout is {}; all writing waits for a handler, and senders give up after about 10s",
                duration_text(handler_timeout)
            ));
        }
        Limits {
            body_bytes_max: self
                .body_bytes_max("limits.body_bytes_max", raw.body_bytes_max.as_ref())
                .unwrap_or(1 << 20),
            connections_max: self.count("limits.connections_max", raw.connections_max, 512, 65_536),
            handler_timeout,
            disk_free_min: self.size("limits.disk_free_min", raw.disk_free_min.as_ref()).unwrap_or(64 << 20),
        }
    }

    fn body_bytes_max(&mut self, key: &str, typed: Option<&RawSize>) -> Option<usize> {
        let bytes = self.size(key, typed)?;
        if !(1..=BODY_BYTES_MAX).contains(&bytes) {
            self.problem(key, format!("{bytes}: must be from 1 to 67108864 (64MiB)"));
            return None;
        }
        usize::try_from(bytes).ok()
    }

    fn retention(&mut self, raw: &RawRetention) -> Retention {
        let payload =
            self.duration("retention.payload", raw.payload.as_ref(), Duration::from_secs(30 * 86_400));
        let key = self.duration("retention.key", raw.key.as_ref(), Duration::from_secs(400 * 86_400));
        let typed = duration_text(key);
        if key < KEY_RETENTION_MIN {
            let rule = "must be at least \"31d\", or an event sent again after it is taken for a new one; write e.g. \"400d\"";
            self.problem("retention.key", format!("\"{typed}\": {rule}"));
        } else if key < payload {
            self.problem(
                "retention.key",
                format!(
                    "\"{typed}\": must not be shorter than retention.payload ({})",
                    duration_text(payload)
                ),
            );
        }
        Retention { payload, key }
    }

    fn duration(&mut self, key: &str, typed: Option<&RawDuration>, default: Duration) -> Duration {
        let Some(RawDuration(typed)) = typed else {
            return default;
        };
        parse_duration(typed).unwrap_or_else(|rule| {
            self.problem(key, format!("\"{typed}\": {rule}"));
            default
        })
    }

    fn count(&mut self, key: &str, typed: Option<u64>, default: usize, max: usize) -> usize {
        let Some(typed) = typed else { return default };
        let count = usize::try_from(typed).ok().filter(|count| (1..=max).contains(count));
        count.unwrap_or_else(|| {
            self.problem(key, format!("{typed}: must be from 1 to {max}"));
            default
        })
    }

    fn size(&mut self, key: &str, typed: Option<&RawSize>) -> Option<u64> {
        let RawSize(typed) = typed?;
        parse_size(typed).map_err(|rule| self.problem(key, format!("\"{typed}\": {rule}"))).ok()
    }

    /// The value that `typed` names, or the first of `choices` where nothing is typed.
    fn choice<T: Copy>(&mut self, key: &str, typed: Option<&str>, choices: &[(&str, T)]) -> T {
        let default = choices[0].1;
        let Some(typed) = typed else { return default };
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == typed) {
            return *value;
        }
        let advice = suggest::advice(typed, choices.iter().map(|(word, _)| *word));
        self.problem(key, format!("\"{typed}\": is unknown; {advice}"));
        default
    }

    fn secrets(&mut self, key: &str, references: &[String]) -> Vec<Secret> {
        references.iter().filter_map(|reference| self.secret(key, reference)).collect()
    }

    fn secret(&mut self, key: &str, reference: &str) -> Option<Secret> {
        if self.leaves_unread(reference) {
            return secrets::unread(reference).map_err(|message| self.problem(key, message)).ok();
        }
        let read = self.reading.resolve(reference).map_err(|message| self.problem(key, message)).ok()?;
        if let Some(warning) = read.warning {
            self.warn(format!("{key}: {warning}"));
        }
        for oddity in wrapping::oddities(&read.secret) {
            self.warn(format!("{key}: \"{}\": {oddity}", read.secret.label()));
        }
        Some(read.secret)
    }

    /// Whether the secret need not or cannot be read here.
    fn leaves_unread(&mut self, reference: &str) -> bool {
        match self.missing {
            MissingSecrets::ReadNone => true,
            MissingSecrets::LeaveCredentials if secrets::needs_service(reference) => {
                self.unread += 1;
                true
            }
            MissingSecrets::LeaveCredentials | MissingSecrets::Make | MissingSecrets::Report => false,
        }
    }

    fn reading_of(&self, raw: &RawSecrets, data_dir: &Path) -> Reading {
        Reading {
            base: self.base.clone(),
            allow_shared_files: raw.allow_shared_files.unwrap_or(false),
            own_folder: data_dir.join(OWN_SECRETS),
            may_repair: self.missing == MissingSecrets::Make,
        }
    }

    fn warn_of_unread(&mut self) {
        let what = match self.unread {
            0 => return,
            1 => "1 secret comes from a systemd credential and was not read".to_owned(),
            count => format!("{count} secrets come from systemd credentials and were not read"),
        };
        self.warn(format!(
            "{what}; to try them, name the folder of their files: CREDENTIALS_DIRECTORY=/etc/inboxd inboxd check"
        ));
    }

    /// Names are part of keys in the database, of labels and of file names.
    fn name(&mut self, key: &str, name: &str) {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_plain) {
            self.problem(key, "the name must be 1 to 64 characters of a-z, 0-9, _ and -");
        }
    }
}

/// What is wrong with a URL that deliveries are sent to; a password in it is not shown.
pub fn url_problem(typed: &str) -> Option<String> {
    broken_by(typed, base_url_rule)
}

/// The URL as it may be shown, and what is wrong with it.
fn broken_by(typed: &str, rule: impl Fn(&Uri) -> Option<&'static str>) -> Option<String> {
    let rule = typed.parse::<Uri>().map_or(Some("is not a URL"), |url| rule(&url))?;
    Some(format!("\"{}\": {rule}", without_user(typed)))
}

/// A URL as it may be shown: what stands before an `@` may be a password.
fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://***@{rest}"),
        (None, Some((_, rest))) => format!("***@{rest}"),
        _ => url.to_owned(),
    }
}

/// Whether two listeners would get each other's connections.
fn overlap(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Tcp(a), Address::Tcp(b)) => {
            let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && a.port() != 0 && same_ip
        }
        (Address::Unix(a), Address::Unix(b)) => a == b,
        (Address::Tcp(_), Address::Unix(_)) | (Address::Unix(_), Address::Tcp(_)) => false,
        // what the service manager listens on is not known here
        (Address::Systemd, _) | (_, Address::Systemd) => false,
    }
}
