//! `events`: the received events, one by one.

use std::io::Write as _;

use crate::config::{Instance, closest};
use crate::store::inbox::failures::{self, FailingEvent};
use crate::store::inbox::{self, Event, Filter};
use crate::store::{Connection, SqlResult};
use crate::terminal::printable;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::{ListArgs, SharedFilters};
use super::conflicts;
use super::store::{self, read_failed, short_time, since_and_until};
use super::story::Story;
use super::table::{Column, List, flexible, whole};
use super::{Context, Exit, Failure, put, put_lines, say};

/// Look at received events
#[derive(Debug, Subcommand)]
pub(crate) enum EventsVerb {
    /// List events, newest first
    List(EventsListArgs),
    /// Show one event with everything known about it
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
    /// Print another body that came under this id instead, by its number [default: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    pub(crate) conflict: Option<usize>,
}

/// One event.
#[derive(Debug, Args)]
pub(crate) struct EventArgs {
    /// The provider's event id
    pub(crate) event_id: String,
    /// The endpoint, if several have an event with this id
    #[arg(long, value_name = "NAME")]
    pub(crate) endpoint: Option<String>,
}

/// The state of events that are not stored because their handler fails.
pub(crate) const FAILING: &str = "failing";

/// The filters of events; an event must match all of them.
#[derive(Debug, Args)]
pub(crate) struct Filters {
    #[command(flatten)]
    pub(crate) shared: SharedFilters,
    /// Only in this state
    ///
    /// "failing": events whose handler fails. They are not stored, and their provider sends them again
    #[arg(long, value_parser = ["pending", "processing", "done", "ignored", "quarantined", FAILING])]
    pub(crate) state: Option<String>,
}

/// `list`, `show` and `body`.
pub(crate) fn run(verb: &EventsVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        EventsVerb::List(args) => list(args, context),
        EventsVerb::Show(args) => show(args, context),
        EventsVerb::Body(args) => body(args, context),
    }
}

/// Rows read per poll for new events.
const STRETCH: u32 = 500;

const COLUMNS: [Column; 7] = [
    whole("RECEIVED (UTC)"),
    flexible("ENDPOINT", 8, 0),
    flexible("EVENT", 20, 0),
    flexible("TYPE", 10, 1),
    flexible("OBJECT", 10, 2),
    whole("STATE"),
    flexible("DUPLICATES", 10, 3),
];

const FAILING_COLUMNS: [Column; 7] = [
    flexible("FIRST (UTC)", 10, 3),
    whole("LATEST (UTC)"),
    flexible("DELIVERIES", 10, 2),
    flexible("ENDPOINT", 8, 0),
    flexible("EVENT", 20, 0),
    flexible("TYPE", 10, 1),
    flexible("ERROR", 12, 0),
];

fn list(args: &EventsListArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    let (instance, conn) = store::open(context)?;
    warn_of_unknown_endpoint(&instance, args.filters.shared.endpoint.as_deref());
    let limit = args.filters.shared.limit;
    if filter.state.as_deref() == Some(FAILING) {
        return list_failing(args, &conn, &filter);
    }
    // read before the list, so that an event stored in between is shown as new and not lost
    let last_id = inbox::last_id(&conn).map_err(read_failed)?;
    let (mut events, goes_on) = store::bounded(limit, |limit| inbox::list(&conn, &filter, limit))?;
    drop(conn);
    store::say_where_it_ends("latest", events.len(), goes_on && !args.show.follow);
    let mut list = List::new(&COLUMNS, args.show.wide);
    let mut show = |events: &[Event]| {
        if args.json {
            return put_lines(events.iter().map(to_json));
        }
        put(&list.lay_out(&events.iter().map(row).collect::<Vec<_>>()))
    };
    if args.show.follow {
        events.retain(|event| event.id <= last_id);
        events.reverse();
        show(&events)?;
        return store::follow(&instance, last_id, |conn, after| news(conn, &filter, after), show);
    }
    if events.is_empty() && !args.json {
        say("no event matches");
        return Ok(());
    }
    show(&events)
}

/// New events that match, and the latest row of all.
fn news(conn: &Connection, filter: &Filter, after_id: i64) -> SqlResult<(Vec<Event>, i64)> {
    let last_id = inbox::last_id(conn)?;
    let events = inbox::list_after(conn, filter, after_id, STRETCH)?;
    let is_cut = events.len() == STRETCH as usize;
    let seen_to =
        events.last().map_or(last_id, |event| if is_cut { event.id } else { event.id.max(last_id) });
    Ok((events, seen_to))
}

fn row(event: &Event) -> Vec<String> {
    let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        short_time(event.received_at_ms),
        event.endpoint.clone(),
        event.event_id.clone(),
        cell(&event.event_type),
        cell(&event.object_id),
        event.state.clone(),
        event.duplicates.to_string(),
    ]
}

/// Events that are not stored: only the failure of their handler is known.
fn list_failing(args: &EventsListArgs, conn: &Connection, filter: &Filter) -> Result<(), Failure> {
    let limit = args.filters.shared.limit;
    let (events, goes_on) = store::bounded(limit, |limit| failures::list(conn, filter, limit))?;
    store::say_where_it_ends("latest", events.len(), goes_on);
    if args.json {
        return put_lines(events.iter().map(failing_json));
    }
    if events.is_empty() {
        say("no event is failing");
        return Ok(());
    }
    let row = |event: &FailingEvent| {
        vec![
            short_time(event.first_at_ms),
            short_time(event.last_at_ms),
            event.count.to_string(),
            event.endpoint.clone(),
            event.event_id.clone(),
            event.event_type.clone().unwrap_or_else(|| "-".to_owned()),
            event.error.clone(),
        ]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    put(&List::new(&FAILING_COLUMNS, args.show.wide).lay_out(&rows))
}

fn failing_json(event: &FailingEvent) -> Value {
    json!({
        "endpoint": event.endpoint,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "state": FAILING,
        "last_error": event.error,
        "deliveries": event.count,
        "first_at_ms": event.first_at_ms,
        "last_at_ms": event.last_at_ms,
    })
}

/// Events of an endpoint that is no longer configured can be listed: it is not an error.
fn warn_of_unknown_endpoint(instance: &Instance, typed: Option<&str>) {
    let Some(typed) = typed.filter(|typed| !instance.endpoints.iter().any(|name| name == typed)) else {
        return;
    };
    let advice = match closest(typed, instance.endpoints.iter().map(String::as_str)) {
        Some(name) => format!("did you mean {name}?"),
        None => format!("it has {}", instance.endpoints.join(", ")),
    };
    say(&format!("warning: the configuration has no endpoint {}; {advice}", printable(typed)));
}

/// The filters as the inbox understands them.
pub(crate) fn filter(filters: &Filters) -> Result<Filter, Failure> {
    let (since_ms, until_ms) = since_and_until(&filters.shared)?;
    Ok(Filter {
        endpoint: filters.shared.endpoint.clone(),
        event_type: filters.shared.event_type.clone(),
        object_id: filters.shared.object.clone(),
        state: filters.state.clone(),
        since_ms,
        until_ms,
        error: filters.shared.error.clone(),
    })
}

fn show(args: &EventsShowArgs, context: &Context) -> Result<(), Failure> {
    let (instance, conn) = store::open(context)?;
    let event = find(&conn, &args.event)?;
    let story = Story::read(&conn, &instance, event).map_err(read_failed)?;
    if args.json { put(&format!("{}\n", story.to_json())) } else { put(&story.to_text()) }
}

/// Writes the stored bytes and nothing else.
fn body(args: &EventsBodyArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let event = find(&conn, &args.event)?;
    let bytes = match args.conflict {
        Some(number) => conflicts::body(&conn, &event, number)?,
        None => inbox::payload_of(&conn, event.id).map_err(read_failed)?.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("the body of {} was purged", event.event_id))
        })?,
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).map_err(Failure::of_stdout)
}

fn find(conn: &Connection, args: &EventArgs) -> Result<Event, Failure> {
    store::find_event(conn, &args.event_id, args.endpoint.as_deref())
}

/// One event as `--json` prints it. New fields may be added; ignore what you do not know.
pub(crate) fn to_json(event: &Event) -> Value {
    let is_open = matches!(event.state.as_str(), "pending" | "processing");
    json!({
        "id": event.id,
        "endpoint": event.endpoint,
        "provider": event.provider,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "object_id": event.object_id,
        "account": event.account,
        "livemode": event.livemode,
        "api_version": event.api_version,
        "query": event.query,
        "headers": serde_json::from_str::<Value>(&event.headers).unwrap_or(Value::Null),
        "payload_bytes": event.payload_bytes,
        "state": event.state,
        "attempts": event.attempts,
        "attempts_excused": event.attempts_excused,
        "available_at_ms": is_open.then_some(event.available_at_ms),
        "duplicates": event.duplicates,
        "last_error": event.last_error,
        "error_class": event.error_class,
        "received_at_ms": event.received_at_ms,
        "processed_at_ms": event.processed_at_ms,
    })
}
