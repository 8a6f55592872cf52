//! The command line: one file per verb, and the only code that prints.
//!
//! Data goes to stdout, messages to stderr. A verb returns a `Failure`, and only [`main`] turns it into
//! text and an exit code. Nothing here asks questions, and no secret is ever an argument.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, StdoutLock, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{
    Config, ConfigError, MissingSecrets, closest, is_absent, preset_names, secret_from_file,
};
use crate::handlers::Registry;
use crate::logging;
use crate::signature::Secret;
use crate::terminal::printable;
use clap::{Parser, Subcommand};
use serde_json::Value;

mod args;
mod admin;
mod audit;
mod allocator;
mod failure;
mod process;
mod serve;
mod check;
mod init;
mod send;
mod demo;
mod verify;
mod status;
mod health;
mod events;
mod refused;
mod retry;
mod conflicts;
mod reviews;
mod outbox;
mod money;
mod purge;
mod alert;
mod providers;
mod query;
mod spool;
mod store;
mod upgrade;
mod table;
mod story;
mod completions;
mod man;

pub(crate) use failure::{Exit, Failure};

use args::Cli;

/// Runs the command line `inboxd` for a program with these handlers, and returns its exit code: a program with
/// handlers of its own gets every verb.
///
/// ```no_run
/// use inboxd::handlers::Registry;
///
/// fn main() -> std::process::ExitCode {
///     inboxd::cli::main(Registry::new()) // .with(YourHandler)
/// }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    // The panic hook has said what happened; a bug gets its own exit code.
    let exit = catch_unwind(AssertUnwindSafe(|| typed(registry))).unwrap_or(Exit::Internal);
    logging::flush(logging::FLUSH_TIME_MAX);
    exit.into()
}

/// Parses and runs the command line, and prints why it failed.
fn typed(registry: Registry) -> Exit {
    process::keep_to_itself();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // --help and --version arrive here as well; clap knows which stream is theirs
        Err(error) => {
            let is_usage = error.use_stderr();
            return match error.print() {
                Ok(()) if is_usage => Exit::Usage,
                Ok(()) => Exit::Ok,
                Err(error) => conclude(Err(Failure::of_stdout(error))),
            };
        }
    };
    let context = Context { config: cli.config, registry };
    conclude(cli.verb.run(&context))
}

/// The verbs, in the order in which the help lists them. A verb is its file (arguments, help, `run`) and its lines
/// here.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Serve(serve::ServeArgs),
    Check(check::CheckArgs),
    Init(init::InitArgs),
    Send(send::SendArgs),
    Demo(demo::DemoArgs),
    Verify(verify::VerifyArgs),
    Status(status::StatusArgs),
    Health(health::HealthArgs),
    #[command(subcommand)]
    Events(events::EventsVerb),
    #[command(subcommand)]
    Refused(refused::RefusedVerb),
    Retry(retry::RetryArgs),
    #[command(subcommand)]
    Reviews(reviews::ReviewsVerb),
    Resolve(reviews::ResolveArgs),
    #[command(subcommand)]
    Admin(admin::AdminVerb),
    #[command(subcommand)]
    Audit(audit::AuditVerb),
    #[command(subcommand)]
    Outbox(outbox::OutboxVerb),
    #[command(subcommand)]
    Money(money::MoneyVerb),
    Purge(purge::PurgeArgs),
    Upgrade(upgrade::UpgradeArgs),
    #[command(subcommand)]
    Alert(alert::AlertVerb),
    #[command(subcommand)]
    Providers(providers::ProvidersVerb),
    Query(query::QueryArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Verb {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Serve(args) => serve::run(args, context),
            Self::Check(args) => check::run(args, context),
            Self::Init(args) => init::run(args, context),
            Self::Send(args) => send::run(args, context),
            Self::Demo(demo::DemoArgs {}) => demo::run(),
            Self::Verify(args) => verify::run(args, context),
            Self::Status(args) => status::run(args, context),
            Self::Health(args) => health::run(args, context),
            Self::Events(verb) => events::run(verb, context),
            Self::Refused(verb) => refused::run(verb, context),
            Self::Retry(args) => retry::run(args, context),
            Self::Reviews(verb) => reviews::run(verb, context),
            Self::Resolve(args) => reviews::resolve(args, context),
            Self::Admin(verb) => admin::run(verb, context),
            Self::Audit(verb) => audit::run(verb, context),
            Self::Outbox(verb) => outbox::run(verb, context),
            Self::Money(verb) => money::run(verb, context),
            Self::Purge(args) => purge::run(args, context),
            Self::Upgrade(args) => upgrade::run(args, context),
            Self::Alert(verb) => alert::run(verb, context),
            Self::Providers(verb) => providers::run(verb),
            Self::Query(args) => query::run(args, context),
            Self::Completions(args) => completions::run(args, context),
            Self::Man(man::ManArgs {}) => man::run(),
        }
    }
}

/// Shared by all verbs.
#[derive(Debug)]
pub(crate) struct Context {
    /// `--config`
    config: Option<PathBuf>,
    /// The handlers that endpoints may name.
    registry: Registry,
}

impl Context {
    /// The checked configuration.
    pub(crate) fn load(&self, missing: MissingSecrets) -> Result<Config, Failure> {
        self.read(missing).map_err(Failure::from)
    }

    /// As [`Context::load`], for a verb that reports what is wrong in its own way.
    pub(crate) fn read(&self, missing: MissingSecrets) -> Result<Config, ConfigError> {
        Config::load(self.config_file(), missing, self.registry.facts())
    }

    /// The handlers that endpoints may name.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// `--config`, where it was given: the argument of `Config::load` and `Instance::load`.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}

/// Writes data to stdout.
pub(crate) fn put(data: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(data.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(Failure::of_stdout)
}

/// A stream of data to stdout, for output that may be too long to keep in memory.
#[derive(Debug)]
pub(crate) struct Data(BufWriter<StdoutLock<'static>>);

impl Data {
    /// Takes stdout until it is dropped.
    pub(crate) fn begin() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// Adds to it.
    pub(crate) fn put(&mut self, data: &str) -> Result<(), Failure> {
        self.0.write_all(data.as_bytes()).map_err(Failure::of_stdout)
    }

    /// Flushes the buffer to stdout, and returns a failure to do so.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::of_stdout)
    }
}

/// One line of JSON for each.
pub(crate) fn put_lines(values: impl IntoIterator<Item = Value>) -> Result<(), Failure> {
    let mut data = Data::begin();
    for value in values {
        data.put(&format!("{value}\n"))?;
    }
    data.end()
}

/// A file's bytes, or stdin's for `-`, at most `bytes_max` of them.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64, what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(bytes_max + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| unreadable(path, what, error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > bytes_max) {
        let message =
            format!("{} is larger than {} MiB, too large for {what}", path.display(), bytes_max >> 20);
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(bytes)
}

/// A secret out of a file that was named on the command line.
pub(crate) fn secret_of(path: &Path) -> Result<Secret, Failure> {
    secret_from_file(path).map_err(|error| unreadable(path, "the secret", error))
}

fn unreadable(path: &Path, what: &str, error: io::Error) -> Failure {
    let exit = if is_absent(&error) { Exit::NotFound } else { Exit::Failed };
    Failure::new(exit, format!("cannot read {what} from {}", path.display())).because(error)
}

/// Advice for an unknown provider's name.
pub(crate) fn provider_advice(typed: &str) -> String {
    let known = preset_names();
    match closest(typed, known.iter().copied()) {
        Some(word) => format!("did you mean {word}?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// Prints a message to the person at the terminal, [`printable`] except for its line breaks.
pub(crate) fn say(text: &str) {
    for line in text.split('\n') {
        logging::say(&printable(line));
    }
}

/// Prints the failure and returns its exit code.
fn conclude(result: Result<(), Failure>) -> Exit {
    let Err(failure) = result else {
        return Exit::Ok;
    };
    for line in failure.lines() {
        say(&format!("inboxd: {}", printable(&line)));
    }
    failure.exit()
}
