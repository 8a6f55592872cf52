//! The grammar of the command line, and nothing else: the one source of parsing, `--help`, the
//! completions and the manual.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::config::{parse_signed_duration, preset_names};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgGroup, Args, Command, Parser, Subcommand};
use jiff::SignedDuration;

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
    VERSION.get_or_init(|| format!("{} (SQLite {})", env!("CARGO_PKG_VERSION"), rusqlite::version()))
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon; without a configuration file, a development instance in ./inboxd-data
    Serve(ServeArgs),
    /// Check the configuration and say everything that is wrong with it
    Check(CheckArgs),
    /// Write a short configuration file to start from
    Init(InitArgs),
    /// Send a correctly signed test delivery
    Send(SendArgs),
    /// Show the guarantees with a real daemon in a temporary folder
    Demo,
    /// Judge one delivery with the verifier the daemon uses
    Verify(VerifyArgs),
    /// Show what is stored, what waits and what needs a person
    Status(StatusArgs),
    /// Ask the running daemon whether it is ready: exit 0 or 8
    Health(HealthArgs),
    /// Look at received events
    #[command(subcommand)]
    Events(EventsVerb),
    /// Look at deliveries that the running daemon has refused
    ///
    /// They are kept in its memory where [debug] keep_refused says how many; a development instance keeps 20
    #[command(subcommand)]
    Refused(RefusedVerb),
    /// Put events that wait for a person, or for their next attempt, back to work now
    Retry(RetryArgs),
    /// Look at what waits for a person
    #[command(subcommand)]
    Reviews(ReviewsVerb),
    /// Close a review with a note of what was decided
    Resolve(ResolveArgs),
    /// Look at what is sent to destinations, and steer it
    #[command(subcommand)]
    Outbox(OutboxVerb),
    /// Purge what is older than [retention] says, now
    Purge(PurgeArgs),
    /// Upgrade inboxd's tables in an application's own file
    ///
    /// `serve` upgrades a file of inboxd's own by itself
    Upgrade(UpgradeArgs),
    /// Try out how people are told
    #[command(subcommand)]
    Alert(AlertVerb),
    /// Look at the providers that can be named in the configuration
    #[command(subcommand)]
    Providers(ProvidersVerb),
    /// Run a read-only SQL query on the database
    Query(QueryArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// `check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print the configuration in effect, all defaults included, as TOML
    #[arg(long)]
    pub(crate) print: bool,
    /// Print one JSON object: ok, file, problems, warnings, config
    #[arg(long)]
    pub(crate) json: bool,
}

/// `init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Where to write it [default: --config, else inboxd.toml]
    pub(crate) path: Option<PathBuf>,
    /// Who sends: a name from `inboxd providers list`, or custom
    #[arg(long, default_value = "stripe", value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) provider: String,
    /// The endpoint's name [default: billing for stripe, else the provider's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// For the units in systemd/: secrets as credentials, the unit's drop-in to stdout, and the next steps
    #[arg(long)]
    pub(crate) systemd: bool,
}

/// `serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen for webhooks on this port instead of the configured one
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
}

/// `send`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("send_secret").args(["secret_env", "secret_file"]).requires("to")))]
pub(crate) struct SendArgs {
    /// Whose delivery to imitate, e.g. stripe; may be left out with --endpoint
    #[arg(value_name = "PROVIDER", value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) provider_or_type: String,
    /// The event's type, e.g. invoice.paid; several, separated by commas, are events about one object
    #[arg(value_name = "TYPE[,TYPE...]", value_parser = parse_types, required_unless_present = "endpoint")]
    pub(crate) event_types: Option<EventTypes>,
    /// The endpoint to send to, with its scheme and secret [default: the first of this provider]
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
    /// How many copies of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) times: u32,
    /// How many at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// The event's id [default: a new one]; where the provider has none, deliveries with one id are equal
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The body to send, as it is
    #[arg(long, value_name = "BODY")]
    pub(crate) file: Option<PathBuf>,
    /// Shift the signed time, e.g. -10m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_signed_duration)]
    pub(crate) skew: Option<SignedDuration>,
    /// Send in random order
    #[arg(long)]
    pub(crate) shuffle: bool,
    /// Spoil the signature
    #[arg(long)]
    pub(crate) bad_signature: bool,
    /// Send to this URL instead of the configured instance, with a secret or with --endpoint's
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// The variable that holds the secret for --to
    #[arg(long, value_name = "VAR")]
    pub(crate) secret_env: Option<String>,
    /// The file that holds the secret for --to
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

/// What `send` sends, in this order.
#[derive(Debug, Clone)]
pub(crate) struct EventTypes(pub(crate) Vec<String>);

impl SendArgs {
    /// Whose delivery it is, unless the endpoint says that alone.
    pub(crate) fn provider(&self) -> Option<&str> {
        self.event_types.as_ref().map(|_| self.provider_or_type.as_str())
    }

    /// The types to send.
    pub(crate) fn types(&self) -> Result<EventTypes, String> {
        self.event_types.clone().map_or_else(|| parse_types(&self.provider_or_type), Ok)
    }
}

fn parse_types(text: &str) -> Result<EventTypes, String> {
    let types: Vec<_> = text.split(',').map(str::to_owned).collect();
    if types.iter().any(|name| name.is_empty() || !name.chars().all(|c| c.is_ascii_graphic())) {
        return Err("write TYPE or TYPE,TYPE,… without blanks, e.g. invoice.created,invoice.paid".to_owned());
    }
    if types.len() > 100 {
        return Err("at most 100 types".to_owned());
    }
    Ok(EventTypes(types))
}

/// `verify`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("verify_secret").args(["secret_env", "secret_file"]).multiple(true)))]
pub(crate) struct VerifyArgs {
    /// Whose delivery it is: a name from `inboxd providers list`
    #[arg(
        long,
        required_unless_present = "endpoint",
        requires = "verify_secret",
        value_parser = Names::of_providers(),
        hide_possible_values = true
    )]
    pub(crate) provider: Option<String>,
    /// Scheme, secrets, tolerance and URL of this configured endpoint
    #[arg(long, value_name = "NAME", conflicts_with_all = ["provider", "secret_env", "secret_file"])]
    pub(crate) endpoint: Option<String>,
    /// A variable that holds a secret, verbatim; may be repeated
    #[arg(long, value_name = "VAR")]
    pub(crate) secret_env: Vec<String>,
    /// A file that holds a secret, without one final newline; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Vec<PathBuf>,
    /// A header line 'Name: value'; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// The body's exact bytes; - reads stdin
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) body: PathBuf,
    /// The time to judge at, in seconds since 1970 [default: now]
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    pub(crate) now: Option<i64>,
    /// The public URL, for providers that sign it [default: none, or public_url and the endpoint's path]
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// The request's method
    #[arg(long, default_value = "POST")]
    pub(crate) method: String,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `refused …`
#[derive(Debug, Subcommand)]
pub(crate) enum RefusedVerb {
    /// List them, the oldest first
    List(RefusedListArgs),
    /// Show one, without signatures and credentials
    Show(RefusedShowArgs),
}

/// `refused list`
#[derive(Debug, Args)]
pub(crate) struct RefusedListArgs {
    /// On a terminal too, all columns in full
    #[arg(long)]
    pub(crate) wide: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `refused show`
#[derive(Debug, Args)]
pub(crate) struct RefusedShowArgs {
    /// Its number in the list
    #[arg(value_name = "N")]
    pub(crate) number: u64,
    /// Instead, judge it as `verify` does, in the daemon and with all it came with: exit 7 where it does not hold
    #[arg(long, conflicts_with_all = ["body", "json"])]
    pub(crate) verify: bool,
    /// Instead, print its body, byte for byte
    #[arg(long, conflicts_with = "json")]
    pub(crate) body: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `health`
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Print one JSON object: running, ready, reasons, pid, started_at_ms
    #[arg(long)]
    pub(crate) json: bool,
}

/// `events …`
#[derive(Debug, Subcommand)]
pub(crate) enum EventsVerb {
    /// List events, newest first
    List(EventsListArgs),
    /// Show one event with all that is known about it
    Show(EventsShowArgs),
    /// Print one event's body, byte for byte
    Body(EventsBodyArgs),
}

/// `events list`
#[derive(Debug, Args)]
pub(crate) struct EventsListArgs {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) show: ListArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a list is shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListArgs {
    /// Oldest first, and go on with what is new as it comes, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// On a terminal too, all columns in full
    #[arg(long)]
    pub(crate) wide: bool,
}

/// `events show`
#[derive(Debug, Args)]
pub(crate) struct EventsShowArgs {
    #[command(flatten)]
    pub(crate) event: EventArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `events body`
#[derive(Debug, Args)]
pub(crate) struct EventsBodyArgs {
    #[command(flatten)]
    pub(crate) event: EventArgs,
    /// Instead, the other body of this number that came under the id [default: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) conflict: Option<usize>,
}

/// One event.
#[derive(Debug, Args)]
pub(crate) struct EventArgs {
    /// The provider's event id
    pub(crate) event_id: String,
    /// The endpoint, where the id is found on several
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
}

/// The state of events that are not stored, because their work fails.
pub(crate) const FAILING: &str = "failing";

/// The filters of events; they add up.
#[derive(Debug, Args)]
pub(crate) struct Filters {
    #[command(flatten)]
    pub(crate) shared: SharedFilters,
    /// Only in this state
    ///
    /// "failing": events whose work fails, so that they are not stored and the provider sends them again
    #[arg(long, value_parser = ["pending", "processing", "done", "ignored", "quarantined", FAILING])]
    pub(crate) state: Option<String>,
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
    /// At most so many [default: 50 in lists, all where something is done]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,
}

/// `retry`
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The providers' event ids; without any, the filters choose
    #[arg(value_name = "EVENT_ID")]
    pub(crate) event_ids: Vec<String>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Make events of their own of the other bodies that were kept with this review (kind body_conflict)
    #[arg(long, value_name = "REVIEW", conflicts_with = "event_ids")]
    pub(crate) conflict: Option<i64>,
    /// Do it; without this, events chosen by filters are only counted
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `reviews …`
#[derive(Debug, Subcommand)]
pub(crate) enum ReviewsVerb {
    /// List open reviews, oldest first
    List(ReviewsListArgs),
}

/// `reviews list`
#[derive(Debug, Args)]
pub(crate) struct ReviewsListArgs {
    /// Those that are closed as well, with what was decided
    #[arg(long)]
    pub(crate) all: bool,
    /// On a terminal too, all columns in full
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) limit: Limit,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `resolve`
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The number that `reviews list` shows
    pub(crate) review_id: i64,
    /// What was decided, for those who come after
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: String,
}

/// `outbox …`
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxVerb {
    /// List rows, newest first
    List(OutboxListArgs),
    /// Show one row with all attempts
    Show(OutboxRowArgs),
    /// Put rows that wait, or were given up, back to work now
    Retry(OutboxRetryArgs),
    /// Stop sending to a destination; what is queued waits
    Pause(OutboxPauseArgs),
    /// Send to a destination again
    Resume(OutboxPauseArgs),
}

/// `outbox list`
#[derive(Debug, Args)]
pub(crate) struct OutboxListArgs {
    #[command(flatten)]
    pub(crate) filters: OutboxFilters,
    #[command(flatten)]
    pub(crate) show: ListArgs,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `outbox show`
#[derive(Debug, Args)]
pub(crate) struct OutboxRowArgs {
    /// The number that `outbox list` shows
    pub(crate) row: i64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `outbox retry`
#[derive(Debug, Args)]
pub(crate) struct OutboxRetryArgs {
    /// The numbers that `outbox list` shows; without any, the filters choose
    #[arg(value_name = "ROW")]
    pub(crate) rows: Vec<i64>,
    #[command(flatten)]
    pub(crate) filters: OutboxFilters,
    /// Do it; without this, rows chosen by filters are only counted
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `outbox pause`, `outbox resume`
#[derive(Debug, Args)]
pub(crate) struct OutboxPauseArgs {
    /// The destination's name in the configuration
    pub(crate) destination: String,
}

/// The filters of outbox rows; they add up.
#[derive(Debug, Args)]
pub(crate) struct OutboxFilters {
    #[command(flatten)]
    pub(crate) shared: SharedFilters,
    /// Only what this event led to
    #[arg(long, value_name = "EVENT_ID")]
    pub(crate) event: Option<String>,
    /// Only for this destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<String>,
    /// Only in this state
    #[arg(long, value_parser = ["pending", "sending", "delivered", "dead"])]
    pub(crate) state: Option<String>,
}

/// `upgrade`
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Do it; without this it only says what would be done
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the statements, for the sqlite3 shell
    #[arg(long, conflicts_with = "yes")]
    pub(crate) print: bool,
}

/// `purge`
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The clock is right, and was when the events came: count ages by it, whatever jumps were noticed
    #[arg(long)]
    pub(crate) accept_clock: bool,
}

/// `alert …`
#[derive(Debug, Subcommand)]
pub(crate) enum AlertVerb {
    /// Send a test message the way [alert] says
    Test,
}

/// `providers …`
#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersVerb {
    /// List every provider with what is special about it
    List(ProvidersListArgs),
    /// Show one provider: what to click, which header arrives, how it retries, what to configure
    Show(ProviderArgs),
}

/// `providers list`
#[derive(Debug, Args)]
pub(crate) struct ProvidersListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `providers show`
#[derive(Debug, Args)]
pub(crate) struct ProviderArgs {
    /// The provider's name, e.g. shopify
    #[arg(value_parser = Names::of_providers(), hide_possible_values = true)]
    pub(crate) name: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `query`
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// One SELECT
    #[arg(required_unless_present = "tables")]
    pub(crate) sql: Option<String>,
    /// List the tables with their columns
    #[arg(long, conflicts_with = "sql")]
    pub(crate) tables: bool,
    /// Print one JSON object per row
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV with a header line
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Names that completions offer. Any other text is taken as well: the verb knows better why it is wrong.
#[derive(Debug, Clone)]
pub(crate) struct Names(pub(crate) Vec<&'static str>);

impl Names {
    fn of_providers() -> Self {
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

/// `completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
