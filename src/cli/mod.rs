//! The command line: one file per verb, and the only code that prints.
//!
//! Data goes to stdout, talk to stderr. A verb returns a [`Failure`], and only [`main`] turns it into
//! text and an exit code. Nothing here asks questions, and no secret is ever an argument.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Parser;
use inboxd::config::{Config, MissingSecrets};

mod args;
mod failure;
mod serve;
mod check;
mod init;
mod send;
mod demo;
mod verify;
mod status;
mod events;
mod providers;
mod query;
mod store;
mod completions;
mod man;

pub(crate) use failure::{Exit, Failure};

use args::{Cli, Verb};

/// Runs the command and says why it failed, if it did.
pub(crate) fn main() -> Exit {
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
    conclude(run(cli))
}

fn run(cli: Cli) -> Result<(), Failure> {
    let context = Context { config: cli.config };
    match cli.verb {
        Verb::Serve => serve::run(&context),
        Verb::Check(args) => check::run(&args, &context),
        Verb::Init(args) => init::run(&args),
        Verb::Send(args) => send::run(&args, &context),
        Verb::Demo => demo::run(),
        Verb::Verify(args) => verify::run(&args),
        Verb::Status(args) => status::run(&args, &context),
        Verb::Events(verb) => events::run(&verb, &context),
        Verb::Providers(verb) => providers::run(&verb),
        Verb::Query(args) => query::run(&args, &context),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man => man::run(),
    }
}

/// What every verb may need.
#[derive(Debug)]
pub(crate) struct Context {
    /// `--config`
    config: Option<PathBuf>,
}

impl Context {
    /// The checked configuration.
    pub(crate) fn load(&self, missing: MissingSecrets) -> Result<Config, Failure> {
        Config::load(self.config_file(), missing).map_err(Failure::from)
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

/// Says something to the person at the terminal.
pub(crate) fn say(line: &str) {
    // where stderr is closed nobody is there to be told
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Says what failed and hands on the exit code.
fn conclude(result: Result<(), Failure>) -> Exit {
    let Err(failure) = result else {
        return Exit::Ok;
    };
    for line in failure.lines() {
        say(&format!("inboxd: {line}"));
    }
    failure.exit()
}
