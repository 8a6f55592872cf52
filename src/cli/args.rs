//! The options that every verb takes, and those that several share. Options of a single verb are in the verb's file.
//!
//! Parsing, `--help`, the completions and the manual are all made from these types.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::config::preset_names;
use crate::store::sqlite_version;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, Parser};

use super::Verb;

/// Receives webhooks and turns every business fact into exactly one business effect, on SQLite.
#[derive(Debug, Parser)]
#[command(name = "inboxd", version = version(), propagate_version = false, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Configuration file [default: ./inboxd.toml, then /etc/inboxd/inboxd.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| format!("{} (SQLite {})", env!("CARGO_PKG_VERSION"), sqlite_version()))
}

/// How a list is shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListArgs {
    /// Oldest first, then show new rows as they come, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Show all columns in full, on a terminal too
    #[arg(long)]
    pub(crate) wide: bool,
}

/// The filters that all lists share.
#[derive(Debug, Args)]
pub(crate) struct SharedFilters {
    /// Only of this endpoint
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Only of this type, e.g. invoice.paid
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Only about this business object
    #[arg(long, value_name = "ID")]
    pub(crate) object: Option<String>,
    /// Only received (or queued) since: RFC 3339, or a duration before now such as 2h
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only received (or queued) until: RFC 3339, or a duration before now such as 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only where the last error contains this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// How long a list may be.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Limit {
    /// The most to take [default: 50 in lists, no limit for acts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,
}

/// Names that completions offer. Any other text is accepted too, because the verb explains a wrong name better.
#[derive(Debug, Clone)]
pub(crate) struct Names(pub(crate) Vec<&'static str>);

impl Names {
    pub(crate) fn of_providers() -> Self {
        Self(preset_names())
    }
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().copied().map(PossibleValue::new)))
    }
}
