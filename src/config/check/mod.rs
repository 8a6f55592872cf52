//! From [`Values`] to [`Config`]: each file declares the keys of a table and states its rules, each once.
//!
//! A rule that is broken is noted and checking goes on with the default, so that one run reports
//! everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::Uri;

use super::document::Document;
use super::effective::Effective;
use super::keys::{Default, Kind, Table, Words, key, words};
use super::secrets::Reading;
use super::values::{Shown, Values};
use super::{
    Config, ConfigError, HandlerFacts, Instance, MissingSecrets, Problem, Sketch, duration_text,
    parse_duration, parse_size, secrets, suggest, wrapping,
};
use crate::outgoing::base_url_rule;
use crate::signature::Secret;

mod admin;
mod alert;
mod database;
mod destination;
mod endpoint;
mod limits;
mod listen;
mod retention;
mod scheme;
mod worker;

pub use admin::{Admin, AdminToken, Role};
pub use alert::{Alert, AlertFormat, AlertOn, AlertVia, Report};
pub use database::Embedded;
pub use destination::{BodyFormat, Destination, Order, Sign};
pub use endpoint::{Endpoint, HandlerName, Mode, OnRedelivery, OnScopeMismatch, Replay};
pub use limits::Limits;
pub use listen::{Address, Listen};
pub use retention::Retention;
pub use worker::Worker;

pub(super) use database::{DATA_DIR, DATABASE};

/// The whole file: `check --print` and the documentation show the tables in this order.
pub(super) const FILE: Table = Table {
    header: "",
    doc: "At the top of the file, before the first table.",
    keys: &[
        key(
            "data_dir",
            Kind::Text,
            Default::Is(DATA_DIR),
            "Where inboxd keeps its own files: made with mode 0700, the database in it with 0600.",
        ),
        key(
            "database",
            Kind::Text,
            Default::Unset,
            "Instead of `data_dir`: the application's own SQLite file, in which inboxd makes its tables.",
        ),
        key(
            "public_url",
            Kind::TextOrTexts,
            Default::Unset,
            "The URL under which providers know inboxd, for those that sign it; a list of up to 8 while a host is renamed, the current one first.",
        ),
        key("listen", Kind::Table(&listen::TABLE), Default::Unset, listen::TABLE.doc),
        key("secrets", Kind::Table(&SECRETS), Default::Unset, SECRETS.doc),
        key("limits", Kind::Table(&limits::TABLE), Default::Unset, limits::TABLE.doc),
        key("worker", Kind::Table(&worker::TABLE), Default::Unset, worker::TABLE.doc),
        key("retention", Kind::Table(&retention::TABLE), Default::Unset, retention::TABLE.doc),
        key("database_options", Kind::OptionalTable(&database::TABLE), Default::Unset, database::TABLE.doc),
        key("admin", Kind::Table(&admin::TABLE), Default::Unset, admin::TABLE.doc),
        key("alert", Kind::OptionalTable(&alert::TABLE), Default::Unset, alert::TABLE.doc),
        key("report", Kind::Table(&alert::REPORT), Default::Unset, alert::REPORT.doc),
        key("debug", Kind::Table(&DEBUG), Default::Unset, DEBUG.doc),
        key("endpoint", Kind::Named(&endpoint::TABLE), Default::Unset, endpoint::TABLE.doc),
        key("destination", Kind::Named(&destination::TABLE), Default::Unset, destination::TABLE.doc),
    ],
};

const SECRETS: Table = Table {
    header: "secrets",
    doc: "How the files of secrets are judged.",
    keys: &[key(
        "allow_shared_files",
        Kind::Flag,
        Default::Is("false"),
        "Use files of secrets that others may read as well.",
    )],
};

const DEBUG: Table = Table {
    header: "debug",
    doc: "What helps to find out why deliveries are refused.",
    keys: &[key(
        "keep_refused",
        // more than anybody looks through
        Kind::Count(0, 1000),
        Default::Is("0"),
        "So many of the latest refused deliveries are kept in memory, for `inboxd refused list`.",
    )],
};

/// The folder in `data_dir` of the secrets that inboxd makes itself.
pub(super) const OWN_SECRETS: &str = "secrets";

/// A signature over the URL is tried with each.
const PUBLIC_URLS_MAX: usize = 8;

/// The checked configuration of a file.
pub(super) fn config(
    document: Document,
    file: &Path,
    handlers: Vec<HandlerFacts>,
    missing: MissingSecrets,
) -> Result<Config, ConfigError> {
    let checker = Checker { handlers, missing, ..Checker::of_document(&document, file) };
    finish(checker, &document.values, Some(file))
}

/// The part that reading stored data needs.
pub(super) fn instance(document: Document, file: &Path) -> Result<Instance, ConfigError> {
    let mut checker = Checker::of_document(&document, file);
    let location = checker.location(&document.values);
    checker.verdict(Some(file))?;
    let (endpoints, destinations) =
        (document.values.tables("endpoint"), document.values.tables("destination"));
    let names = |tables: &[Values]| tables.iter().map(|table| table.name.clone()).collect();
    Ok(Instance {
        data_dir: location.data_dir,
        database: location.database,
        sketches: endpoints.iter().map(sketch).collect(),
        endpoints: names(endpoints),
        destinations: names(destinations),
    })
}

fn sketch(endpoint: &Values) -> Sketch {
    Sketch {
        name: endpoint.name.clone(),
        is_proxy: endpoint.text("mode") == Some("proxy"),
        handlers: endpoint.texts("handlers").to_vec(),
        forward: endpoint.texts("forward").to_vec(),
        livemode: endpoint.flag("livemode"),
        account: endpoint.text("account").map(str::to_owned),
    }
}

/// Checks everything and hands out the configuration, or all problems.
pub(super) fn finish(
    mut checker: Checker,
    values: &Values,
    file: Option<&Path>,
) -> Result<Config, ConfigError> {
    let c = &mut checker;
    let location = c.location(values);
    c.is_embedded = location.embedded.is_some();
    let allow_shared_files = c.flag(c.inner(values, "secrets"), "allow_shared_files");
    c.reading = c.reading_of(allow_shared_files, &location.data_dir);
    let public_urls = c.public_urls(values);
    let listen = c.listen(c.inner(values, "listen"));
    let limits = c.limits(c.inner(values, "limits"));
    let worker = c.worker(c.inner(values, "worker"), limits.handler_timeout);
    let retention = c.retention(c.inner(values, "retention"));
    let keep_refused = c.count(c.inner(values, "debug"), "keep_refused");
    let admin = c.admin(c.inner(values, "admin"));
    let alert = values.table("alert").and_then(|alert| c.alert(alert));
    let report = c.report(c.inner(values, "report"), alert.as_ref());
    let known: Vec<_> = values.tables("destination").iter().map(|table| table.name.clone()).collect();
    let mut endpoints: Vec<_> = values
        .tables("endpoint")
        .iter()
        .filter_map(|endpoint| c.endpoint(endpoint, &limits, &known))
        .collect();
    let destinations = values.tables("destination").iter();
    let destinations = destinations.filter_map(|to| c.destination(to, &endpoints)).collect();
    c.know_urls(&mut endpoints, &public_urls);
    if endpoints.is_empty() && c.problems.is_empty() && file.is_some() {
        c.warn(
            "there is no endpoint, so nothing can be received; add [endpoint.NAME], see `inboxd init`"
                .to_owned(),
        );
    }
    c.warn_of_unread();
    let warnings = checker.verdict(file)?;
    Ok(Config {
        file: file.map(Path::to_owned),
        database: location.database,
        data_dir: location.data_dir,
        embedded: location.embedded,
        runtime_dir: super::runtime_dir(),
        public_url: public_urls.into_iter().next(),
        listen,
        limits,
        endpoints,
        destinations,
        retention,
        worker,
        admin,
        alert,
        report,
        keep_refused,
        without_secret: Vec::new(),
        warnings,
        effective: Effective::of(values),
    })
}

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

    /// A table that is always there.
    fn inner<'v>(&self, values: &'v Values, name: &str) -> &'v Values {
        values.table(name).unwrap_or(values)
    }

    /// A signature over the URL is tried with each that is known.
    fn know_urls(&mut self, endpoints: &mut [Endpoint], public_urls: &[String]) {
        for endpoint in endpoints {
            endpoint.verifier.known_at(public_urls);
            if endpoint.verifier.scheme().signs_url() && public_urls.is_empty() {
                let rule = "signs the URL; write public_url = \"https://…\" as the provider knows it";
                let key = format!("endpoint.{}.provider", endpoint.name);
                self.problem(key, format!("\"{}\": {rule}", endpoint.provider));
            }
        }
    }

    fn public_urls(&mut self, values: &Values) -> Vec<String> {
        let typed = values.texts("public_url");
        let urls: Vec<_> = typed.iter().filter_map(|url| self.public_url(url)).collect();
        values.show(
            "public_url",
            match urls.as_slice() {
                [] => Shown::Unset,
                [url] => Shown::text(url),
                several => Shown::texts(several),
            },
        );
        if typed.len() > PUBLIC_URLS_MAX {
            let advice = "each is tried on every delivery whose URL is signed; write fewer";
            self.problem("public_url", format!("more than {PUBLIC_URLS_MAX} URLs: {advice}"));
        }
        urls
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

    /// As typed, or the declared default.
    fn duration(&mut self, table: &Values, name: &str) -> Duration {
        let default = table.declared(name).default().and_then(|text| parse_duration(text).ok());
        self.duration_or(table, name, default.unwrap_or_default())
    }

    /// As typed, or a default that follows from elsewhere.
    fn duration_or(&mut self, table: &Values, name: &str, default: Duration) -> Duration {
        let duration = self.optional_duration(table, name).unwrap_or(default);
        table.show(name, Shown::Text(duration_text(duration)));
        duration
    }

    fn optional_duration(&mut self, table: &Values, name: &str) -> Option<Duration> {
        let typed = table.text(name);
        let duration = typed.and_then(|typed| {
            let rule = |rule| self.problem(table.key(name), format!("\"{typed}\": {rule}"));
            parse_duration(typed).map_err(rule).ok()
        });
        table.show(name, Shown::optional(duration.map(duration_text)));
        duration
    }

    fn count(&mut self, table: &Values, name: &str) -> usize {
        let key = table.declared(name);
        let Kind::Count(min, max) = key.kind else { return 0 };
        let default = key.default().and_then(|text| text.parse().ok()).unwrap_or(min);
        let typed = table.number(name).unwrap_or(default);
        if !(min..=max).contains(&typed) {
            self.problem(table.key(name), format!("{typed}: must be from {min} to {max}"));
        }
        table.show(name, Shown::Number(typed));
        usize::try_from(typed).unwrap_or(usize::MAX)
    }

    fn size(&mut self, table: &Values, name: &str) -> u64 {
        let default = table.declared(name).default().and_then(|text| parse_size(text).ok());
        self.optional_size(table, name).unwrap_or_else(|| {
            let default = default.unwrap_or_default();
            table.show(name, Shown::Number(default));
            default
        })
    }

    fn optional_size(&mut self, table: &Values, name: &str) -> Option<u64> {
        let typed = table.text(name)?;
        let rule = |rule| self.problem(table.key(name), format!("\"{typed}\": {rule}"));
        let bytes = parse_size(typed).map_err(rule).ok()?;
        table.show(name, Shown::Number(bytes));
        Some(bytes)
    }

    fn flag(&mut self, table: &Values, name: &str) -> bool {
        let flag = table.flag(name).unwrap_or(table.declared(name).default() == Some("true"));
        table.show(name, Shown::Flag(flag));
        flag
    }

    fn optional_flag(&mut self, table: &Values, name: &str) -> Option<bool> {
        let flag = table.flag(name);
        table.show(name, flag.map_or(Shown::Unset, Shown::Flag));
        flag
    }

    /// As typed, or the declared default if there is one.
    fn text(&mut self, table: &Values, name: &str) -> Option<String> {
        let text = table.text(name).or(table.declared(name).default()).map(str::to_owned);
        table.show(name, Shown::optional(text.as_ref()));
        text
    }

    fn texts(&mut self, table: &Values, name: &str) -> Vec<String> {
        let texts = table.texts(name).to_vec();
        table.show(name, Shown::texts(&texts));
        texts
    }

    /// What the typed word means, or the declared default's.
    fn choice<T: Copy>(&mut self, table: &Values, name: &str, words: &Words<T>) -> T {
        let default = table.declared(name).default().unwrap_or_default();
        let default = *words.iter().find(|(word, _)| *word == default).unwrap_or(&words[0]);
        let (word, value) = self.optional_choice(table, name, words).unwrap_or(default);
        table.show(name, Shown::text(word));
        value
    }

    fn optional_choice<T: Copy>(
        &mut self,
        table: &Values,
        name: &str,
        of: &Words<T>,
    ) -> Option<(&'static str, T)> {
        let typed = table.text(name)?;
        let found = of.iter().find(|(word, _)| *word == typed).copied();
        if found.is_none() {
            let advice = suggest::advice(typed, words(of));
            self.problem(table.key(name), format!("\"{typed}\": is unknown; {advice}"));
        }
        found
    }

    fn secrets(&mut self, table: &Values, name: &str) -> Vec<Secret> {
        let key = table.key(name);
        let references = table.texts(name).iter();
        let secrets: Vec<_> = references.filter_map(|reference| self.secret(&key, reference)).collect();
        table.show(name, Shown::Secrets(secrets.clone()));
        secrets
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

    fn reading_of(&self, allow_shared_files: bool, data_dir: &Path) -> Reading {
        Reading {
            base: self.base.clone(),
            allow_shared_files,
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
