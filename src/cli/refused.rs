//! `refused`: the latest deliveries that the running daemon has refused, as far as it keeps them.

use std::io::Write as _;

use crate::config::Instance;
use crate::daemon::control::{self, Ask, NoAnswer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::store::{fields, short_time};
use super::table::{Column, List, flexible, whole};
use super::{Context, Exit, Failure, put, put_lines, say};

/// Look at deliveries that the running daemon has refused
///
/// The daemon keeps as many in memory as [debug] keep_refused says; a development instance keeps 20
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
    /// Judge it inside the daemon instead, as `verify` does; exit 7 if it does not verify
    #[arg(long, conflicts_with_all = ["body", "json"])]
    pub(crate) verify: bool,
    /// Print its body instead, byte for byte
    #[arg(long, conflicts_with = "json")]
    pub(crate) body: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Asks over the daemon's private socket: refused deliveries are not in the database.
pub(crate) fn run(verb: &RefusedVerb, context: &Context) -> Result<(), Failure> {
    let instance = Instance::load(context.config_file())?;
    match verb {
        RefusedVerb::List(args) => list(args, &instance),
        RefusedVerb::Show(args) => show(args, &instance),
    }
}

fn list(args: &RefusedListArgs, instance: &Instance) -> Result<(), Failure> {
    let found = ask(instance, Ask::RefusedList)?;
    if args.json {
        return put_lines(found);
    }
    if found.is_empty() {
        say("the daemon has refused nothing since its start");
        return Ok(());
    }
    let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |line: &Value| {
        vec![
            cell(&line["number"]),
            short_time(line["received_at_ms"].as_i64().unwrap_or_default()),
            cell(&line["endpoint"]),
            line["peer"].as_str().unwrap_or("local").to_owned(),
            cell(&line["reason"]),
            cell(&line["body_bytes"]),
        ]
    };
    put(&List::new(&COLUMNS, args.wide).lay_out(&found.iter().map(row).collect::<Vec<_>>()))?;
    say("inboxd refused show N --verify says what to look at");
    Ok(())
}

const COLUMNS: [Column; 6] = [
    whole("N"),
    flexible("RECEIVED (UTC)", 10, 0),
    flexible("ENDPOINT", 8, 0),
    flexible("FROM", 10, 0),
    flexible("REASON", 15, 0),
    flexible("BYTES", 5, 1),
];

fn show(args: &RefusedShowArgs, instance: &Instance) -> Result<(), Failure> {
    let number = args.number;
    if args.verify {
        let report = one(instance, Ask::RefusedVerify { number })?;
        put(&format!("{report}\n"))?;
        let is_ok = report["ok"] == true;
        return if is_ok { Ok(()) } else { Err(Failure::new(Exit::Unverified, "")) };
    }
    let refused = one(instance, Ask::RefusedShow { number })?;
    if args.body {
        return put_body(&refused);
    }
    if args.json {
        return put_lines([refused]);
    }
    put(&fields(&refused, &["headers", "body", "body_base64"]))?;
    for header in refused["headers"].as_array().into_iter().flatten() {
        let text = |at: usize| header[at].as_str().unwrap_or_default();
        put(&format!("{}\n", crate::terminal::printable(&format!("{}: {}", text(0), text(1)))))?;
    }
    Ok(())
}

fn put_body(refused: &Value) -> Result<(), Failure> {
    let bytes = match (refused["body"].as_str(), refused["body_base64"].as_str()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        (None, None) => {
            let why = refused["body_missing"].as_str().unwrap_or_default();
            return Err(Failure::new(Exit::NotFound, format!("the body is not shown: {why}")));
        }
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).map_err(Failure::of_stdout)
}

fn one(instance: &Instance, what: Ask) -> Result<Value, Failure> {
    let nothing = || Failure::new(Exit::Failed, "the daemon gave an answer without content");
    ask(instance, what)?.into_iter().next().ok_or_else(nothing)
}

fn ask(instance: &Instance, what: Ask) -> Result<Vec<Value>, Failure> {
    control::ask(&instance.data_dir, what).map_err(|error| match error {
        NoAnswer::NotRunning => Failure::new(
            Exit::Busy,
            format!(
                "no daemon runs in {}, and what it has refused is kept in its memory only; start `inboxd serve`",
                instance.data_dir.display()
            ),
        ),
        NoAnswer::Off => Failure::new(
            Exit::Refused,
            "the daemon keeps no refused deliveries; write keep_refused = 20 under [debug] and start it again",
        ),
        NoAnswer::Missing(why) => Failure::new(Exit::NotFound, why),
        NoAnswer::Io(error) => Failure::new(Exit::Busy, "cannot ask the daemon").because(error),
    })
}
