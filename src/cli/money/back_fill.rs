//! `money replay`: stored events through the money handlers once more, e.g. after an upgrade that made them read more.
//!
//! Evidence is joined, so that it does not matter how often and in which order events are read: what is booked stays, what
//! is missing is added. Nobody is notified: to the application these facts are old.

use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::store::{self, counted, read_failed};
use crate::cli::{Context, Exit, Failure, put, say};
use crate::clock;
use crate::config::{Instance, Sketch};
use crate::handlers::{self, Event, Handled, Handler};
use crate::signature;
use crate::store::audit::{self, Act};
use crate::store::inbox::{self, Filter};
use crate::store::reviews::{self, Kind};
use crate::store::{Connection, SqlError, SqlResult, Transaction};

use super::require_books;

/// Events of one transaction: deliveries come in between.
const STRETCH: u32 = 100;

/// Run stored events through the money handlers again, and book what is missing
///
/// Harmless however often: what is booked stays as it is
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Only events of this endpoint
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// Do it; without this flag, only count
    #[arg(long)]
    yes: bool,
}

/// The handlers that keep books from the events of a provider.
pub(super) fn money_handlers(context: &Context, provider: &str) -> Vec<Arc<dyn Handler>> {
    let registry = context.registry();
    let all = registry.names().filter_map(|name| registry.find(name));
    all.filter(|handler| is_bookkeeper(&**handler) && handler.providers().contains(&provider)).collect()
}

/// Orders are states, and not replayed.
fn is_bookkeeper(handler: &dyn Handler) -> bool {
    matches!(handler.name(), "billing" | "money")
}

#[derive(Debug, Default)]
struct Count {
    replayed: i64,
    asked: i64,
    purged: i64,
}

pub(super) fn run(args: &ReplayArgs, context: &Context) -> Result<(), Failure> {
    let (instance, conn) = if args.yes { store::open_to_write(context)? } else { store::open(context)? };
    require_books(&conn)?;
    let filter = Filter { endpoint: args.endpoint.clone(), ..Filter::default() };
    let before = lines(&conn)?;
    let mut count = Count::default();
    let mut after_id = 0;
    loop {
        let events = inbox::list_after(&conn, &filter, after_id, STRETCH).map_err(read_failed)?;
        let Some(last) = events.last() else { break };
        after_id = last.id;
        let chosen: Vec<_> =
            events.iter().filter(|event| !matches!(event.state.as_str(), "pending" | "processing")).collect();
        let mut stretch = |tx: Option<&Transaction<'_>>| -> SqlResult<()> {
            for event in &chosen {
                replay(tx, &conn, (context, &instance), event, &mut count)?;
            }
            Ok(())
        };
        if args.yes {
            store::change(&conn, |tx| stretch(Some(tx)))?;
        } else {
            stretch(None).map_err(read_failed)?;
        }
    }
    if count.purged > 0 {
        say(&format!(
            "the bodies of {} were purged: nothing is left of them to read",
            counted(count.purged, "event")
        ));
    }
    if !args.yes {
        let message = format!("would replay {}; add --yes to do it", counted(count.replayed, "event"));
        return Err(Failure::new(Exit::Refused, message));
    }
    note(&conn, args, &count)?;
    let booked = lines(&conn)? - before;
    put(&format!(
        "{} replayed, {} booked, {} for a person\n",
        counted(count.replayed, "event"),
        counted(booked, "line"),
        counted(count.asked, "question")
    ))
}

fn lines(conn: &Connection) -> Result<i64, Failure> {
    crate::books::ledger::last_id(conn).map_err(read_failed)
}

/// One event; without a transaction it is only counted.
fn replay(
    tx: Option<&Transaction<'_>>,
    conn: &Connection,
    (context, instance): (&Context, &Instance),
    event: &inbox::Event,
    count: &mut Count,
) -> SqlResult<()> {
    let Some(sketch) = instance.sketch(&event.endpoint) else { return Ok(()) };
    let event_type = event.event_type.as_deref().unwrap_or_default();
    let handlers: Vec<_> = money_handlers(context, &event.provider)
        .into_iter()
        .filter(|handler| names(sketch, &**handler) && handler.takes(event_type))
        .collect();
    if handlers.is_empty() {
        return Ok(());
    }
    let Some(payload) = inbox::payload_of(conn, event.id)? else {
        count.purged += 1;
        return Ok(());
    };
    let Ok(body) = serde_json::from_slice::<Value>(&payload) else { return Ok(()) };
    count.replayed += 1;
    let Some(tx) = tx else { return Ok(()) };
    let told = Event {
        endpoint: &event.endpoint,
        provider: &event.provider,
        id: &event.event_id,
        event_type,
        object_id: event.object_id.as_deref(),
        account: event.account.as_deref(),
        livemode: event.livemode,
        query: event.query.as_deref(),
        body: &body,
        text: None,
        is_test_send: signature::is_test_send(&event.event_id, event.object_id.as_deref()),
        notify: None,
        now_ms: clock::now_ms(),
    };
    let handled = handlers::run(tx, &handlers, &told).map_err(|error| match error {
        handlers::HandlerError::Sql(error) => error,
        other @ handlers::HandlerError::Failed(_) => SqlError::UserFunctionError(Box::new(other)),
    })?;
    let (kind, reason) = match &handled {
        Handled::Contradiction(reason) => (Kind::Contradiction, reason),
        Handled::Quarantine(reason) => (Kind::Quarantined, reason),
        Handled::Thin(reason) => (Kind::ThinEvent, reason),
        Handled::Applied | Handled::Ignored | Handled::Park(_) => return Ok(()),
    };
    count.asked += 1;
    // a person may have answered before
    if reviews::about(tx, &event.endpoint, &event.event_id)?.is_empty() {
        reviews::open(tx, kind, &event.endpoint, &event.event_id, reason, told.now_ms)?;
    }
    Ok(())
}

fn names(sketch: &Sketch, handler: &dyn Handler) -> bool {
    sketch.handlers.iter().any(|name| name == handler.name())
}

fn note(conn: &Connection, args: &ReplayArgs, count: &Count) -> Result<(), Failure> {
    let by = store::by();
    let filter = json!({"endpoint": args.endpoint}).to_string();
    let act = Act {
        actor: &by.actor,
        act: "money replay",
        filter: &filter,
        count: count.replayed,
        note: by.note.as_deref(),
    };
    store::change(conn, |tx| audit::note(tx, &act, clock::now_ms()))?;
    Ok(())
}
