//! `events`: the received events, one by one.

use std::io::Write as _;

use inboxd::config::{Instance, closest};
use inboxd::inbox::queue::{self, Attempt};
use inboxd::inbox::{self, Event, Filter};
use inboxd::printable::printable;
use inboxd::reviews;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::args::{EventArgs, EventsListArgs, EventsShowArgs, EventsVerb, Filters};
use super::reviews as reviews_verb;
use super::store::{self, fields, read_failed, since_and_until, table, time};
use super::{Context, Exit, Failure, put, put_lines, say};

/// `list`, `show` and `body`.
pub(crate) fn run(verb: &EventsVerb, context: &Context) -> Result<(), Failure> {
    match verb {
        EventsVerb::List(args) => list(args, context),
        EventsVerb::Show(args) => show(args, context),
        EventsVerb::Body(args) => body(args, context),
    }
}

fn list(args: &EventsListArgs, context: &Context) -> Result<(), Failure> {
    let filter = filter(&args.filters)?;
    let (instance, conn) = store::open(context)?;
    warn_of_unknown_endpoint(&instance, args.filters.shared.endpoint.as_deref());
    let limit = args.filters.shared.limit;
    let (events, goes_on) = store::bounded(limit, |limit| inbox::list(&conn, &filter, limit))?;
    store::say_where_it_ends("latest", events.len(), goes_on);
    if args.json {
        return put_lines(events.iter().map(to_json));
    }
    if events.is_empty() {
        say("no event matches");
        return Ok(());
    }
    let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let row = |event: &Event| {
        vec![
            time(event.received_at_ms),
            event.endpoint.clone(),
            event.event_id.clone(),
            cell(&event.event_type),
            cell(&event.object_id),
            event.state.clone(),
            event.duplicates.to_string(),
        ]
    };
    let head = ["RECEIVED", "ENDPOINT", "EVENT", "TYPE", "OBJECT", "STATE", "DUPLICATES"];
    put(&table(&head, &events.iter().map(row).collect::<Vec<_>>()))
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
    let (_, conn) = store::open(context)?;
    let event = find(&conn, &args.event)?;
    let reviews = reviews::about(&conn, &event.endpoint, &event.event_id).map_err(read_failed)?;
    let mut json = to_json(&event);
    let attempts = queue::attempts(&conn, event.id).map_err(read_failed)?;
    json["reviews"] = reviews.iter().map(reviews_verb::to_json).collect();
    json["history"] = attempts.iter().map(attempt_json).collect();
    if args.json {
        return put(&format!("{json}\n"));
    }
    let mut text = fields(&json, &["reviews", "history"]);
    for attempt in &attempts {
        let result = attempt.result.as_deref().unwrap_or("runs, or died with its process");
        let error = attempt.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        text.push_str(&format!(
            "attempt {} {} {result}{error}\n",
            attempt.number,
            time(attempt.started_at_ms)
        ));
    }
    for review in &reviews {
        let end =
            review.resolved_at_ms.map_or_else(|| "open".to_owned(), |at| format!("closed {}", time(at)));
        let reason = printable(&review.reason);
        text.push_str(&format!("review {} ({}, {end}): {reason}\n", review.id, review.kind));
    }
    put(&text)
}

/// Writes the stored bytes and nothing else.
fn body(args: &EventArgs, context: &Context) -> Result<(), Failure> {
    let (_, conn) = store::open(context)?;
    let event = find(&conn, args)?;
    let Some(bytes) = inbox::payload_of(&conn, event.id).map_err(read_failed)? else {
        return Err(Failure::new(Exit::NotFound, format!("the body of {} was purged", event.event_id)));
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&bytes).and_then(|()| stdout.flush()).map_err(Failure::of_stdout)
}

fn find(conn: &Connection, args: &EventArgs) -> Result<Event, Failure> {
    store::find_event(conn, &args.event_id, args.endpoint.as_deref())
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "started_at_ms": attempt.started_at_ms,
        "ended_at_ms": attempt.ended_at_ms,
        "result": attempt.result,
        "error": attempt.error,
    })
}

/// One event as `--json` prints it. New fields may be added; ignore what you do not know.
fn to_json(event: &Event) -> Value {
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
        "headers": serde_json::from_str::<Value>(&event.headers).unwrap_or(Value::Null),
        "payload_bytes": event.payload_bytes,
        "state": event.state,
        "attempts": event.attempts,
        "duplicates": event.duplicates,
        "last_error": event.last_error,
        "received_at_ms": event.received_at_ms,
        "processed_at_ms": event.processed_at_ms,
    })
}
