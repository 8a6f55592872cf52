//! `man`: one manual page with every verb, on stdout: `inboxd man | man -l -`.

use std::io::{self, Write};

use crate::config::{self, DEFAULT_FILES, KeyEntry, TableEntry};
use crate::providers;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::Cli;
use super::providers::facts;
use super::{Exit, Failure, put};

/// Print the manual page
#[derive(Debug, Args)]
pub(crate) struct ManArgs {}

/// Exit 0.
pub(crate) fn run() -> Result<(), Failure> {
    let mut page = Vec::new();
    render(&mut page).map_err(Failure::of_stdout)?;
    page.extend_from_slice(providers()?.render().as_bytes());
    put(&String::from_utf8_lossy(&page))
}

fn render(page: &mut Vec<u8>) -> io::Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let man = Man::new(command.clone()).title("INBOXD").section("1").manual("inboxd");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    let mut commands = Roff::new();
    commands.control("SH", ["COMMANDS"]);
    for verb in command.get_subcommands() {
        push_verb(&mut commands, verb);
    }
    page.write_all(commands.render().as_bytes())?;
    page.write_all(configuration().render().as_bytes())?;
    page.write_all(exit_status().render().as_bytes())?;
    page.write_all(files_and_environment().render().as_bytes())
}

/// A verb and its sub-verbs.
fn push_verb(roff: &mut Roff, verb: &Command) {
    if verb.has_subcommands() {
        return verb.get_subcommands().for_each(|inner| push_verb(roff, inner));
    }
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    roff.control("SS", [usage.as_str()]);
    roff.text([roman(sentence(verb.get_about()))]);
    for arg in verb.get_arguments().filter(|arg| !arg.is_global_set() && arg.get_id() != "help") {
        let name = match arg.get_long() {
            Some(long) => format!("--{long}"),
            None => arg.get_value_names().map_or(String::new(), |names| names.join(" ")),
        };
        let value = match arg.get_value_names() {
            Some(names) if arg.get_long().is_some() && arg.get_action().takes_values() => {
                format!(" {}", names.join(" "))
            }
            _ => String::new(),
        };
        roff.control("TP", []);
        roff.text([bold(name), roman(value)]);
        roff.text([roman(sentence(arg.get_help()))]);
    }
}

fn sentence(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// The facts of `providers show`, for all providers.
fn providers() -> Result<Roff, Failure> {
    let mut roff = Roff::new();
    roff.control("SH", ["PROVIDERS"]);
    for preset in providers::all() {
        roff.control("TP", []);
        roff.text([bold(preset.name), roman(format!(" ({})", preset.title))]);
        for (what, said) in facts(preset)? {
            roff.text([bold(format!("{what}: ")), roman(said)]);
            roff.control("br", []);
        }
    }
    Ok(roff)
}

/// Every key of the file, as docs/configuration.md lists them.
fn configuration() -> Roff {
    // what is code in Markdown needs no mark where the key is bold
    let plain = |text: &str| text.replace('`', "");
    let mut roff = Roff::new();
    roff.control("SH", ["CONFIGURATION"]);
    for TableEntry { header, doc, keys } in config::manual() {
        let heading = if header.is_empty() { "Top of the file" } else { header.as_str() };
        roff.control("SS", [heading]);
        roff.text([roman(plain(doc))]);
        for KeyEntry { name, kind, default, doc } in keys {
            let default = if default.is_empty() { "not set" } else { &default };
            roff.control("TP", []);
            roff.text([bold(name), roman(format!(" ({kind}; default: {})", plain(default)))]);
            roff.text([roman(plain(doc))]);
        }
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, meaning) in Exit::ALL {
        push_term(&mut roff, &exit.code().to_string(), meaning);
    }
    roff
}

fn files_and_environment() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["FILES"]);
    for file in DEFAULT_FILES {
        push_term(&mut roff, file, "the configuration; without --config, the first file that exists");
    }
    push_term(
        &mut roff,
        "inboxd-data/",
        "database and secrets of a development instance, which runs without a configuration file",
    );
    roff.control("SH", ["ENVIRONMENT"]);
    push_term(&mut roff, "RUST_LOG", "what serve logs: error, warn, info (the default), debug, trace");
    push_term(&mut roff, "STRIPE_WEBHOOK_SECRET, GITHUB_WEBHOOK_SECRET", "secrets of a development instance");
    push_term(&mut roff, "CREDENTIALS_DIRECTORY", "the folder of \"credential:NAME\"; systemd sets it");
    push_term(&mut roff, "RUNTIME_DIRECTORY", "the folder of the private socket; systemd sets it");
    push_term(
        &mut roff,
        "LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC",
        "socket activation, readiness and watchdog, as systemd sets them",
    );
    roff
}

fn push_term(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(meaning)]);
}
