//! `money try`: what the books would hold after one event, without touching them.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::books::currencies::{provider_of, shown};
use crate::books::ledger::{self, Entry};
use crate::cli::{Context, Exit, Failure, put, put_lines, read_bounded, say};
use crate::clock;
use crate::config::{closest, preset_names};
use crate::handlers::{self, Event, Handled};
use crate::store::SqlError;
use crate::store::open;

use super::back_fill::money_handlers;

const BODY_BYTES_MAX: u64 = 32 << 20;

/// Show what the books would hold after one event, in books that are empty
///
/// Nothing is stored: the event is read from a file
#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// The event's body, - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who sends it
    #[arg(long, default_value = "stripe", value_name = "NAME")]
    provider: String,
    /// The event's type, where the provider has it in a header
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Print one JSON object per line: outcome, and each line of the books
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TryArgs, context: &Context) -> Result<(), Failure> {
    let bytes = read_bounded(&args.file, BODY_BYTES_MAX, "an event")?;
    let body: Value = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::new(Exit::Usage, format!("the event is no JSON: {error}")))?;
    let event_type = event_type(args, &body)?;
    let handlers = money_handlers(context, &args.provider);
    if handlers.is_empty() {
        let meant = closest(&args.provider, preset_names().iter().copied());
        let meant = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        let message = format!("no handler books events of {}{meant}", args.provider);
        return Err(Failure::new(Exit::Usage, message));
    }
    let conn = open::in_memory().map_err(super::super::store::read_failed)?;
    let tx = open::begin_immediate(&conn).map_err(super::super::store::read_failed)?;
    let event = Event {
        endpoint: "try",
        provider: &args.provider,
        id: body["id"].as_str().or(body["event_id"].as_str()).unwrap_or("try"),
        event_type: &event_type,
        object_id: None,
        account: body["account"].as_str(),
        livemode: body["livemode"].as_bool(),
        query: None,
        body: &body,
        text: None,
        is_test_send: false,
        notify: None,
        now_ms: clock::now_ms(),
    };
    let handled = handlers::run(&tx, &handlers, &event)
        .map_err(|error| Failure::new(Exit::Failed, format!("the event cannot be tried: {error}")))?;
    let mut entries = Vec::new();
    ledger::each(&tx, |entry| {
        entries.push(entry);
        Ok::<_, SqlError>(())
    })
    .map_err(super::super::store::read_failed)?;
    tell(args, &handled, &entries)
}

fn event_type(args: &TryArgs, body: &Value) -> Result<String, Failure> {
    if let Some(given) = &args.event_type {
        return Ok(given.clone());
    }
    let places = ["/type", "/event_type", "/event", "/meta/event_name"];
    let found = places.iter().find_map(|place| body.pointer(place)?.as_str());
    found.map(str::to_owned).ok_or_else(|| {
        Failure::new(Exit::Usage, "the body does not say its type; add --type, e.g. --type refunds/create")
    })
}

fn outcome(handled: &Handled) -> (&'static str, Option<&str>) {
    match handled {
        Handled::Applied => ("booked", None),
        Handled::Ignored => ("ignored", None),
        Handled::Quarantine(reason) => ("quarantined", Some(reason)),
        Handled::Contradiction(reason) => ("contradiction", Some(reason)),
        Handled::Thin(reason) => ("thin_event", Some(reason)),
        Handled::Park(park) => ("parked", Some(&park.waits_for)),
    }
}

fn tell(args: &TryArgs, handled: &Handled, entries: &[Entry]) -> Result<(), Failure> {
    let (outcome, reason) = outcome(handled);
    if args.json {
        let line = |entry: &Entry| {
            json!({
                "entry_key": entry.entry_key, "kind": entry.kind.as_str(), "amount": entry.amount,
                "currency": entry.currency, "book": entry.kind.book(), "contra": entry.kind.contra(),
                "object": entry.object,
            })
        };
        let first = json!({"outcome": outcome, "reason": reason});
        return put_lines(std::iter::once(first).chain(entries.iter().map(line)));
    }
    if let Some(reason) = reason {
        say(&format!("{outcome}: {reason}"));
    }
    for entry in entries {
        let amount = shown(provider_of(&entry.object), entry.amount.into(), &entry.currency);
        let (book, contra) = (entry.kind.book(), entry.kind.contra());
        put(&format!("{}  {amount}  {book}, and the opposite in {contra}\n", entry.entry_key))?;
    }
    if entries.is_empty() && reason.is_none() {
        say(if outcome == "ignored" {
            "this type of event says nothing of money"
        } else {
            "it books nothing by itself"
        });
    }
    Ok(())
}
