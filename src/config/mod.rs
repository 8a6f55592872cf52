//! The configuration, in two stages: `Values` are what was typed, [`Config`] is what is meant.
//!
//! To add a key, declare it in the table's file in `check/`, and read it there.
//!
//! Everything is checked here, once; no later code validates a setting again. This is the only
//! reader of the environment and of secret files. It never starts anything, never opens the
//! database, and writes in one case only: the secrets of a development instance, when asked to.
//!
//! Relative paths in a file (`data_dir`, `file:…`, `unix:…`, `ca_file`) are relative to that file's
//! directory, so that they mean the same under systemd, in a shell and in a test.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::providers::{self, Provider};
use crate::signature::{CustomScheme, SchemeError};
use crate::terminal::printable;
use effective::Effective;

pub(crate) mod check;
mod development;
mod document;
mod effective;
mod fingerprint;
mod keys;
mod manual;
mod secrets;
mod sharing;
mod suggest;
mod units;
mod values;
mod wrapping;

pub(crate) use check::url_problem;
pub(crate) use check::{
    Address, Admin, AdminToken, Alert, AlertFormat, AlertOn, AlertVia, BodyFormat, Destination, Embedded,
    Endpoint, HandlerName, Limits, Listen, Mode, OnRedelivery, OnScopeMismatch, Order, Replay, Report,
    Retention, Role, Sign, Worker,
};
pub(crate) use development::development_secret;
pub(crate) use fingerprint::Fingerprints;
pub(crate) use manual::{KeyEntry, TableEntry, default_of, manual, remark};
pub(crate) use secrets::{environment, secret_from_env, secret_from_file};
pub(crate) use suggest::closest;
pub(crate) use units::{duration_text, parse_duration, parse_signed_duration, parse_size};

/// Where a configuration is looked for when none is named, in this order.
pub(crate) const DEFAULT_FILES: [&str; 2] = ["inboxd.toml", "/etc/inboxd/inboxd.toml"];

/// A checked configuration: every default filled in, every reference resolved.
#[derive(Debug)]
pub struct Config {
    /// The file it came from; `None` for the development instance.
    pub(crate) file: Option<PathBuf>,
    /// Where inboxd keeps its own files, mode 0700.
    pub(crate) data_dir: PathBuf,
    /// The SQLite file.
    pub(crate) database: PathBuf,
    /// Set where that file is the application's own.
    pub(crate) embedded: Option<Embedded>,
    /// The service manager's directory for sockets, mode 0700; `None`: below `data_dir`.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// The public base URL, without a final slash; needed by providers that sign the URL.
    pub(crate) public_url: Option<String>,
    /// Where connections are accepted.
    pub(crate) listen: Listen,
    /// Bounds on what is accepted.
    pub(crate) limits: Limits,
    /// In the order of the file.
    pub(crate) endpoints: Vec<Endpoint>,
    /// In the order of the file.
    pub(crate) destinations: Vec<Destination>,
    /// How long rows are kept.
    pub(crate) retention: Retention,
    /// How stored events are worked on.
    pub(crate) worker: Worker,
    /// Who may see the pages of the private listener.
    pub(crate) admin: Admin,
    /// Where alerts go; `None`: nowhere.
    pub(crate) alert: Option<Alert>,
    /// How often a message without a cause is sent.
    pub(crate) report: Report,
    /// `debug.keep_refused`: so many of the latest refused deliveries are kept in memory.
    pub(crate) keep_refused: usize,
    /// Endpoints of a development instance that are left out because `serve` has made no secret for them yet.
    pub(crate) without_secret: Vec<WithoutSecret>,
    /// Allowed but suspicious settings, for `check` and the log at start.
    pub(crate) warnings: Vec<String>,
    /// What `check --print` shows.
    effective: Effective,
}

/// An endpoint of a development instance that has no secret yet.
#[derive(Debug, Clone)]
pub(crate) struct WithoutSecret {
    /// The endpoint's name.
    pub endpoint: String,
    /// The preset's name.
    pub provider: String,
    /// What to do, after "it has no secret yet: ".
    pub advice: String,
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

/// The `account` of an endpoint that takes events of any account, but none without an account.
pub(crate) const ACCOUNT_REQUIRED: &str = "required";

/// What an alert program sees of the daemon's environment.
pub(crate) const ALERT_ENVIRONMENT: [&str; 8] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Those of the named variables that are set in this process.
pub(crate) fn inherited(names: &[&'static str]) -> Vec<(&'static str, OsString)> {
    names.iter().filter_map(|name| Some((*name, secrets::environment(name)?))).collect()
}

/// What to do where a secret is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSecrets {
    /// A development instance makes one and keeps it in the data directory: `serve`.
    Make,
    /// Change nothing: an endpoint of a development instance is left out with a warning. For `send`.
    Report,
    /// As [`MissingSecrets::Report`], and credentials that only the service can read are left unread, with one
    /// warning. For `check` in a shell.
    LeaveCredentials,
    /// No secret is read at all, and none can be used. For verbs that need none.
    ReadNone,
}

impl Config {
    /// Its database file, endpoints and destinations.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn into_parts(self) -> (PathBuf, Vec<Endpoint>, Vec<Destination>) {
        (self.database, self.endpoints, self.destinations)
    }

    /// Where its alerts go.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn into_alert(self) -> Option<Alert> {
        self.alert
    }

    /// Reads and checks the configuration: the named file, else the first of `DEFAULT_FILES` that
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
            Some(file) => check::config(document::read(&file, &check::FILE)?, &file, handlers, missing),
            None => development::config(Path::new(""), handlers, missing),
        }
    }
}

/// The part of a configuration that reading the stored data needs. No secret is read for it, so an
/// operator's shell without the service's environment can still list events.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Where the lock and everything outside the database is.
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

/// The settings of an endpoint that decide what would become of a stored event. They are unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sketch {
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
            Some(file) => check::instance(document::read(&file, &check::FILE)?, &file),
            None => Ok(development::instance()),
        }
    }
}

/// The file to read, or `None` for the development instance.
fn locate(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
    if let Some(file) = named {
        // reading it shows whether it exists
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
pub(crate) fn is_absent(error: &io::Error) -> bool {
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
    /// Warnings besides.
    pub warnings: Vec<String>,
}

impl ConfigError {
    /// Problems in what the file names: the database, folders of SQL.
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
pub(crate) fn preset_names() -> Vec<&'static str> {
    providers::all().iter().map(|preset| preset.name).collect()
}

/// Whether there is a preset of this name (`custom` is none).
pub(crate) fn preset_exists(provider: &str) -> bool {
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
pub(crate) fn preset_never_retries(provider: &str) -> bool {
    providers::find(provider).is_some_and(|preset| !preset.retries_by_itself)
}

/// A preset, or the scheme typed in.
fn provider_of(provider: &str, custom: Option<&CustomScheme>) -> Result<Provider, SchemeError> {
    match custom {
        Some(custom) => Provider::custom(custom),
        None => Provider::named(provider),
    }
}
