//! The configuration, in two stages: `RawConfig` is what was typed, [`Config`] is what is meant.
//!
//! Everything is checked here, once; no later code validates a setting again. This is the only
//! reader of the environment and of secret files. It never starts anything, never opens the
//! database, and writes in one case only: the secrets of a development instance, when asked to.
//!
//! Relative paths in a file (`data_dir`, `file:…`, `unix:…`, `ca_file`) are relative to that file's
//! directory, so that they mean the same under systemd, in a shell and in a test.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::outgoing::Network;
use crate::providers::{self, Provider};
use crate::signature::{CustomScheme, SchemeError, Secret};
use crate::terminal::printable;
use crate::verify::Verifier;

mod check;
mod development;
mod document;
mod effective;
mod raw;
mod fingerprint;
mod secrets;
mod sharing;
mod suggest;
mod units;
mod wrapping;

pub use check::url_problem;
pub use development::development_secret;
pub use fingerprint::Fingerprints;
pub use secrets::{environment, secret_from_env, secret_from_file};
pub use suggest::closest;
pub use units::{duration_text, parse_duration, parse_signed_duration, parse_size};

/// Where a configuration is looked for when none is named, in this order.
pub const DEFAULT_FILES: [&str; 2] = ["inboxd.toml", "/etc/inboxd/inboxd.toml"];

/// A checked configuration: every default filled in, every reference resolved.
#[derive(Debug)]
pub struct Config {
    /// The file it came from; `None` for the development instance.
    pub file: Option<PathBuf>,
    /// Where inboxd keeps its own files, mode 0700.
    pub data_dir: PathBuf,
    /// The SQLite file.
    pub database: PathBuf,
    /// Set where that file is the application's own.
    pub embedded: Option<Embedded>,
    /// Where the service manager has made room for sockets, mode 0700; `None`: below `data_dir`.
    pub runtime_dir: Option<PathBuf>,
    /// The public base URL, without a final slash; needed by providers that sign the URL.
    pub public_url: Option<String>,
    /// Others under which providers may know it.
    pub other_public_urls: Vec<String>,
    /// Where connections are accepted.
    pub listen: Listen,
    /// Bounds on what is accepted.
    pub limits: Limits,
    /// In the order of the file.
    pub endpoints: Vec<Endpoint>,
    /// In the order of the file.
    pub destinations: Vec<Destination>,
    /// How long rows are kept.
    pub retention: Retention,
    /// How stored events are worked on.
    pub worker: Worker,
    /// How people are told; `None`: they look.
    pub alert: Option<Alert>,
    /// `debug.keep_refused`: so many of the latest refused deliveries are kept in memory.
    pub keep_refused: usize,
    /// `secrets.allow_shared_files`: files that others may read are used as well.
    pub allow_shared_files: bool,
    /// Endpoints of a development instance that are left out because `serve` has made no secret for them yet.
    pub without_secret: Vec<WithoutSecret>,
    /// Things that are allowed but odd, for `check` and the log at start.
    pub warnings: Vec<String>,
}

/// `database = …` with `[database_options]`: inboxd lives in the application's own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// Whether inboxd may switch write-ahead logging on.
    pub allow_wal: bool,
}

/// An endpoint of a development instance that has no secret yet.
#[derive(Debug, Clone)]
pub struct WithoutSecret {
    /// The endpoint's name.
    pub endpoint: String,
    /// The preset's name.
    pub provider: String,
    /// What to do, after "it has no secret yet: ".
    pub advice: String,
}

/// `[listen]`
#[derive(Debug, Clone)]
pub struct Listen {
    /// The public listener.
    pub webhooks: Address,
    /// The private listener; `None` when switched off.
    pub admin: Option<Address>,
    /// Peers whose connections are closed last when there are too many.
    pub trusted_proxies: Vec<IpAddr>,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; `localhost` may resolve to several addresses, the first is taken.
    Tcp(std::net::SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
    /// `systemd`: the socket that the service manager holds and passes.
    Systemd,
}

impl Address {
    /// What a client would be given: a URL where there is one.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) | Self::Systemd => self.to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

/// `[limits]`
#[derive(Debug)]
pub struct Limits {
    /// The largest body of an endpoint that sets none, in bytes.
    pub body_bytes_max: usize,
    /// Open connections, before file descriptor limits.
    pub connections_max: usize,
    /// How long the handlers of one event may hold the write lock.
    pub handler_timeout: Duration,
    /// Free space below which nothing is accepted, in bytes.
    pub disk_free_min: u64,
}

/// `[endpoint.NAME]`
#[derive(Debug)]
pub struct Endpoint {
    /// Part of the inbox key.
    pub name: String,
    /// The preset's name, or `custom`.
    pub provider: String,
    /// Begins with a slash and does not end in one.
    pub path: String,
    /// Where each secret came from and how to recognise it (`env:NAME sha256:ab12cd34`); for `check --print`.
    pub secrets: Vec<Secret>,
    /// `[endpoint.NAME.scheme]` as typed; for `check --print`.
    pub scheme: Option<CustomScheme>,
    /// The scheme with its keys.
    pub verifier: Verifier,
    /// When the work is done.
    pub mode: Mode,
    /// In the order in which they run.
    pub handlers: Vec<HandlerName>,
    /// Destination of the rows that built-in handlers emit.
    pub notify: Option<String>,
    /// Destinations that get the raw event.
    pub forward: Vec<String>,
    /// How far a signed time may be from now, either way.
    pub tolerance: Duration,
    /// The only mode this endpoint takes.
    pub livemode: Option<bool>,
    /// The only account this endpoint takes.
    pub account: Option<String>,
    /// What becomes of an event of another mode or account.
    pub on_scope_mismatch: OnScopeMismatch,
    /// What a redelivery of a quarantined event does.
    pub on_redelivery: OnRedelivery,
    /// What a known body under a new, unsigned id does.
    pub replay: Replay,
    /// Types for which it is an event of its own: equal bodies are meant twice there. `issues` is `issues.opened` too.
    pub replay_allow: Vec<String>,
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
    /// How long the application may take where the mode is [`Mode::Proxy`].
    pub proxy_timeout: Duration,
}

impl Endpoint {
    /// What a known body under a new, unsigned id does, by the event's type.
    pub fn replay_of(&self, event_type: &str) -> Replay {
        let covers = |allowed: &String| {
            event_type
                .strip_prefix(allowed.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if self.replay_allow.iter().any(covers) { Replay::Allow } else { self.replay }
    }
}

/// One entry of `handlers`. Shown as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerName {
    /// A built-in or registered handler.
    Named(String),
    /// `sql:DIR`
    Sql {
        /// As typed, with the prefix.
        typed: String,
        /// The folder.
        dir: PathBuf,
    },
}

impl fmt::Display for HandlerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) | Self::Sql { typed: name, .. } => f.write_str(name),
        }
    }
}

/// What a registered handler says of itself, as far as the rules of a configuration depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlerFacts {
    /// The name that `handlers` lists.
    pub name: String,
    /// Whether it keeps tables of inboxd's own schema, which an application's file does not have.
    pub keeps_tables: bool,
    /// Whether it acts on what only the body says, so that the signature must cover the body.
    pub needs_signed_body: bool,
    /// Whether it books money: a test event must not be booked like a real one.
    pub is_money: bool,
    /// The presets whose events it understands; empty: any provider's.
    pub providers: Vec<&'static str>,
    /// Whether the endpoint's `notify` is the only destination it writes outbox rows for.
    pub writes_to_notify_only: bool,
}

/// The `account` of an endpoint that takes events of any account, but of one.
pub const ACCOUNT_REQUIRED: &str = "required";

/// When an endpoint's handlers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the request's own transaction, before the answer.
    Sync,
    /// After the answer: a worker takes the stored event from there.
    Async,
    /// By the application that the one destination of `forward` is, before the answer.
    Proxy,
}

/// `on_scope_mismatch`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnScopeMismatch {
    /// 400, nothing stored.
    Refuse,
    /// 200, stored as ignored.
    Ignore,
}

/// `on_redelivery`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRedelivery {
    /// The handlers run again.
    Requeue,
    /// It is only counted.
    Count,
}

/// `replay`: a known body under a new id, where the provider does not sign ids
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Stored for a person; nothing is done.
    Flag,
    /// 400, nothing stored.
    Refuse,
    /// An event like any other.
    Allow,
}

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

/// `[retention]`
#[derive(Debug)]
pub struct Retention {
    /// How long the payload is kept.
    pub payload: Duration,
    /// How long the event's key is remembered; at least 31 days.
    pub key: Duration,
}

/// `[worker]`
#[derive(Debug, Clone, Copy)]
pub struct Worker {
    /// Threads that work on stored events.
    pub threads: usize,
    /// How long a claimed event is held; longer than `limits.handler_timeout`.
    pub lease: Duration,
    /// Attempts an event has before it waits for a person.
    pub max_attempts: u32,
    /// The longest wait between two attempts.
    pub backoff_cap: Duration,
}

/// `[alert]`
#[derive(Debug, Clone)]
pub struct Alert {
    /// How people are told.
    pub via: AlertVia,
    /// What they are told of.
    pub on: Vec<AlertOn>,
    /// How often they are told again while it lasts.
    pub remind: Duration,
}

/// How people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlertVia {
    /// The text is POSTed there, in this shape.
    Url {
        /// As typed.
        url: String,
        /// What the receiver takes.
        format: AlertFormat,
    },
    /// The program is run with the text as its argument.
    Command(PathBuf),
}

/// The shape of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertFormat {
    /// Plain text: ntfy and others.
    Text,
    /// Slack's JSON; Mattermost, Rocket.Chat and Google Chat take it as well.
    Slack,
    /// Discord's JSON.
    Discord,
    /// Microsoft Teams' JSON: an adaptive card.
    Teams,
}

impl AlertFormat {
    /// As typed in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Slack => "slack",
            Self::Discord => "discord",
            Self::Teams => "teams",
        }
    }
}

/// What an alert program sees of the daemon's environment.
pub const ALERT_ENVIRONMENT: [&str; 8] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Those of the named variables that are set in this process.
pub fn inherited(names: &[&'static str]) -> Vec<(&'static str, OsString)> {
    names.iter().filter_map(|name| Some((*name, secrets::environment(name)?))).collect()
}

/// What people are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertOn {
    /// A review is open.
    Review,
    /// An event has waited for work this long.
    Oldest(Duration),
    /// An outbox row was given up.
    Dead,
    /// The work of an event has been failing this long, so that it is not stored.
    Failing(Duration),
    /// Free space is below `limits.disk_free_min`, or there is none.
    Disk,
    /// Nothing can be stored, whatever the reason.
    Store,
}

/// What to do where a secret is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSecrets {
    /// A development instance makes one and keeps it in the data directory: `serve`.
    Make,
    /// Touch nothing: an endpoint of a development instance is left out and a warning says why. For `send`.
    Report,
    /// As [`MissingSecrets::Report`], and credentials that only the service can read are left unread, with one
    /// warning. For `check` in a shell.
    LeaveCredentials,
    /// No secret is read at all, and none can be used. For verbs that need none.
    ReadNone,
}

impl Config {
    /// Reads and checks the configuration: the named file, else the first of [`DEFAULT_FILES`] that
    /// exists, else the development instance. `handlers` are those that the file may list beside `sql:DIR`:
    /// `Registry::facts`.
    ///
    /// # Errors
    /// Every problem found, each with key, value, rule and what to do.
    pub fn load(
        named: Option<&Path>,
        missing: MissingSecrets,
        handlers: Vec<HandlerFacts>,
    ) -> Result<Self, ConfigError> {
        match locate(named)? {
            Some(file) => check::config(document::read(&file)?, &file, handlers, missing),
            None => development::config(Path::new(""), handlers, missing),
        }
    }
}

/// The part of a configuration that reading the stored data needs. No secret is read for it, so an
/// operator's shell without the service's environment can still list events.
#[derive(Debug)]
pub struct Instance {
    /// The lock, and what else is not in the database.
    pub data_dir: PathBuf,
    /// The SQLite file.
    pub database: PathBuf,
    /// The endpoints' names, in the order of the file.
    pub endpoints: Vec<String>,
    /// What becomes of the events of each of them, in the same order.
    pub sketches: Vec<Sketch>,
    /// The destinations' names, in the order of the file.
    pub destinations: Vec<String>,
}

/// An endpoint as far as it says what a stored event would come to. Nothing of it was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    /// The endpoint's name.
    pub name: String,
    /// Whether its application answers for the event (`mode = "proxy"`).
    pub is_proxy: bool,
    /// As typed.
    pub handlers: Vec<String>,
    /// The destinations that get the raw event.
    pub forward: Vec<String>,
    /// The only mode it takes.
    pub livemode: Option<bool>,
    /// The only account it takes.
    pub account: Option<String>,
}

impl Instance {
    /// The endpoint of this name.
    pub fn sketch(&self, endpoint: &str) -> Option<&Sketch> {
        self.sketches.iter().find(|sketch| sketch.name == endpoint)
    }

    /// Finds the instance as [`Config::load`] does.
    ///
    /// # Errors
    /// Problems of the file's shape and of where the data is.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        match locate(named)? {
            Some(file) => check::instance(document::read(&file)?, &file),
            None => Ok(development::instance()),
        }
    }
}

/// The file to read, or `None` for the development instance.
fn locate(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    if let Some(file) = named {
        // whether it exists is found out by reading it
        return Ok(Some(file.to_owned()));
    }
    for file in DEFAULT_FILES.map(Path::new) {
        match file.symlink_metadata() {
            Ok(_) => return Ok(Some(file.to_owned())),
            Err(error) if is_absent(&error) => {}
            // Going on would show an operator an empty development instance instead of the real one.
            Err(error) => {
                let message = format!("cannot be looked at: {error}; name a file with --config");
                return Err(ConfigError::of_file(file, message));
            }
        }
    }
    Ok(None)
}

/// systemd makes it for a unit with `RuntimeDirectory=`; of several, the first is taken.
fn runtime_dir() -> Option<PathBuf> {
    let dirs = secrets::environment("RUNTIME_DIRECTORY")?.into_string().ok()?;
    dirs.split(':').next().filter(|dir| dir.starts_with('/')).map(PathBuf::from)
}

/// Whether there is nothing at the path that was tried.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line in the file, where there is one.
    pub line: Option<usize>,
    /// e.g. `endpoint.billing.tolerance`; empty for the file as a whole.
    pub key: String,
    /// The value (never a secret's), the rule and what to do.
    pub message: String,
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Debug)]
pub struct ConfigError {
    /// The file; `None` for the development instance.
    pub file: Option<PathBuf>,
    /// At least one, in the order of the file.
    pub problems: Vec<Problem>,
    /// What else was noticed.
    pub warnings: Vec<String>,
}

impl ConfigError {
    /// Problems found beyond the file: in what it names.
    pub fn beyond(file: Option<&Path>, problems: Vec<Problem>, warnings: Vec<String>) -> Self {
        Self { file: file.map(Path::to_owned), problems, warnings }
    }

    fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            problems: vec![Problem { line: None, key: String::new(), message: message.into() }],
            warnings: Vec::new(),
        }
    }
}

/// One line per problem: `inboxd.toml:7: endpoint.billing.tolerance: "0s": must be …`.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match (&self.file, problem.line) {
                (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
                (Some(file), None) => write!(f, "{}: ", file.display())?,
                (None, _) => write!(f, "development instance: ")?,
            }
            if !problem.key.is_empty() {
                write!(f, "{}: ", printable(&problem.key))?;
            }
            f.write_str(&printable(&problem.message))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

// All that the configuration asks of the providers.

/// The presets' names, in the order in which they are listed to people.
pub fn preset_names() -> Vec<&'static str> {
    providers::all().iter().map(|preset| preset.name).collect()
}

/// Whether there is a preset of this name (`custom` is none).
pub fn preset_exists(provider: &str) -> bool {
    providers::find(provider).is_some()
}

/// The preset's own name, where another one was typed.
fn preset_name(provider: &str) -> &str {
    providers::find(provider).map_or(provider, |preset| preset.name)
}

/// What people call the provider.
fn preset_title(provider: &str) -> &str {
    providers::find(provider).map_or(provider, |preset| preset.title)
}

/// Whether the provider never redelivers by itself, so that work must not fail in the request.
pub fn preset_never_retries(provider: &str) -> bool {
    providers::find(provider).is_some_and(|preset| !preset.retries_by_itself)
}

/// A preset, or the scheme typed in.
fn provider_of(provider: &str, custom: Option<&CustomScheme>) -> Result<Provider, SchemeError> {
    match custom {
        Some(custom) => Provider::custom(custom),
        None => Provider::named(provider),
    }
}
